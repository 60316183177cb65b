"""From a copy or permutation problem to a plan: merged modes, tile, vector widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd, prod
from typing import Any

from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import View
from ...kernels.copy.rearrange import RearrangeConfig, rearrange_kernel
from ...kernels.copy.straight import CopyConfig, copy_kernel
from ...kernels.copy.tiles import TransposeConfig, transpose_kernel
from ..operands import NARROW_SPAN, VECTOR_BYTES, batch_values, launch
from ..plan import Alternative, Argument, Plan
from ..problem import CopyProblem, DeviceInfo, Mode, Pair, merged
from ..variants import CHOSEN, Variant, variant
from .cost import CopyConfigs, CopyWork, TileConfigs, work_of
from .rearrange import Boxes, Permuted, boxes_of, laid_out

__all__ = ["CopyKernel", "canonical_modes", "copy_alternatives", "copy_choice", "is_wide",
           "plan_copy", "square_modes"]

_KERNELS: dict[type, Callable[..., GeneratedKernel]] = {
    CopyConfig: copy_kernel, TransposeConfig: transpose_kernel, RearrangeConfig: rearrange_kernel}
_MOST_BLOCKS = 2**31 - 1             # of a grid
_WORD, _SECTOR, _LINE = 4, 32, 128                     # bytes
_RAGGED_FROM, _RAGGED_COPY_FROM = 32, 64   # elements of rows that begin anywhere and are cut
_RAGGED_COPY_BLOCKS = 8              # for each multiprocessor, from which their tiles are large

# Boxes that are considered; the bytes from which permutations may go by boxes: their kernels have
# the extents of short modes, so that every shape is compiled; and bytes of rows up to which copies
# of matrices, which permute nothing, do.
_BOXES, _BOXED_FROM, _SHORT_RUN = 5, 1 << 17, 64
# The part of tiles that is full, from which transposes go by tiles alone: the model takes full
# tiles for slower than they were measured.
_FULL = 0.7

# Elements from which rows of a square matrix should begin at lines, not only at sectors
_LONG_SQUARE = 1024


def canonical_modes(problem: CopyProblem) -> tuple[tuple[Mode, ...], int, int]:
    """The copy with as few modes as possible, and offsets (elements) of its first element."""
    # Modes of extent 1 go; one with a negative stride in the target is walked backwards in both;
    # modes are ordered by stride in the target; those that are one mode in both merge (CuTe's
    # ``coalesce`` on the pair of layouts).
    modes, src_offset, dst_offset = [], 0, 0
    for n, s, d in zip(problem.shape, problem.src_strides, problem.dst_strides, strict=True):
        if d < 0:
            src_offset, dst_offset, s, d = src_offset + (n - 1) * s, dst_offset + (n - 1) * d, -s, -d
        modes.append((n, s, d))
    found = (Mode(*mode) for mode in merged(tuple(modes)) if mode[0] != 1)
    return tuple(sorted(found, key=lambda m: m.dst)), src_offset, dst_offset


@dataclass(frozen=True)
class CopyKernel(Alternative):
    """One of the kernels that could make a copy."""

    config: CopyConfigs = field(kw_only=True)
    blocks: int = field(kw_only=True)
    work: CopyWork = field(kw_only=True)


@dataclass(frozen=True)
class _Copy(Permuted):
    """A copy with as few modes, and elements as wide, as possible; ``offsets`` are in elements."""

    problem: CopyProblem
    device: DeviceInfo
    offsets: Pair

    @classmethod
    def of(cls, problem: CopyProblem, device: DeviceInfo, modes: tuple[Mode, ...],
           offsets: Pair) -> _Copy:
        # Arrays of which 16 bytes divide the address begin where sectors do: allocations are
        # aligned to 512.
        source, target = (gcd(_SECTOR if alignment == 16 else alignment, offset * problem.itemsize)
                          for alignment, offset in zip((problem.src_alignment,
                                                        problem.dst_alignment), offsets,
                                                       strict=True))
        return cls(modes, problem.itemsize, (source, target), problem, device, offsets)

    def vector_bytes(self, side: int, q: int, most: int = VECTOR_BYTES) -> int:
        """Bytes that threads move at a time along a stride of 1 in source (0) or target (1)."""
        return self.vector(side, self.modes[q].extent,
                           [m.strides[side] for m in self.others(q)], most) * self.item

    def others(self, *tiled: int) -> list[Mode]:
        return [m for q, m in enumerate(self.modes) if q not in tiled]

    def wider(self) -> _Copy | None:
        """This copy with wider elements, if the first mode is one and others are transposed."""
        first, *others = self.modes
        n, nbytes = first.extent, first.extent * self.item
        alignments = self.problem.src_alignment, self.problem.dst_alignment
        if first.strides != (1, 1) or nbytes not in (2, 4, 8, 16) or not others \
                or others[0].dst != n or others[0].src == n or all(m.src != n for m in others):
            return None
        if any(stride % n for m in others for stride in m.strides) \
                or any(alignment % nbytes for alignment in alignments):
            return None                       # else offsets, of steps along other modes, divide too
        return replace(self, item=nbytes, modes=tuple(_by_words(m, n) for m in others),
                       offsets=(self.offsets[0] // n, self.offsets[1] // n))

    def tiles(self, config: TileConfigs, q: int, reason: str,
              beyond: Pair = (0, 0)) -> CopyKernel:
        """The kernel with tiles along the first mode and ``q``; addresses reach ``beyond``."""
        reached, batch = dict(zip((q, 0), beyond[::-1], strict=True)), self.others(0, q)
        wide = is_wide([replace(m, extent=m.extent + reached.get(i, 0))
                        for i, m in enumerate(self.modes)])
        config = replace(config, modes=len(batch), wide=wide)
        first, other = self.modes[0], self.modes[q] if q else Mode(1, 0, 0)
        scale, halo, (across, along) = 1, 0, config.tile
        counted = [("J", other), ("I", first)]
        if isinstance(config, CopyConfig):
            scale, halo = config.word // self.item, config.vector - 1
            along, across = config.tile[0] * config.vector * scale, config.tile[1]
            counted = [("I", replace(first, extent=first.extent // scale)), ("J", other)]
        else:
            scale, halo = config.scale, config.halo
        tiles = -(-(first.extent + halo) // along) * -(-other.extent // across)
        extents = [min({q: across, 0: along}.get(i, 1), m.extent)
                   for i, m in enumerate(self.modes)]
        return self.kernel(config, [(name, _by_words(m, scale)) for name, m in counted],
                           [_by_words(m, scale) for m in batch], extents,
                           tiles * prod(m.extent for m in batch), reason)

    def kernel(self, config: CopyConfigs, counted: Sequence[tuple[str, Mode]],
               batch: Sequence[Mode], extents: Sequence[int],
               blocks: int, reason: str) -> CopyKernel:
        """A kernel of blocks of these extents; ``counted`` modes are not batch modes."""
        work = work_of(self, config, extents, blocks, self.device)
        family, name = _family_and_name(config)

        def plan() -> Plan:
            final = laid_out(config) if isinstance(config, RearrangeConfig) else config
            values: dict[str, Any] = {name: m.extent for name, m in counted}
            for side, (name, role) in enumerate((("S", "src"), ("D", "dst"))):
                steps, strides = (tuple(m.strides[side] for m in modes)
                                  for modes in (batch, [m for _name, m in counted]))
                reaches = [(m.extent - 1) * m.strides[side] for m in self.modes]
                values |= {name: View(Argument(role, offset=self.offsets[side] * self.item),
                                      strides, steps),
                           f"{name}_lowest": sum(min(0, reach) for reach in reaches),
                           f"{name}_end": 1 + sum(max(0, reach) for reach in reaches)}
            each = launch(_KERNELS[type(final)], final, blocks, values,
                         batch_values(tuple(m.extent for m in reversed(batch))))
            return Plan(self.problem, self.device, family, final, (each,), reason=reason,
                        seconds=work.seconds(self.device), works=(work,))

        return CopyKernel(family, name, (work,), plan, config=config, blocks=blocks,
                          work=work)


def _by_words(mode: Mode, elements: int) -> Mode:
    """A mode whose strides count words of so many elements; neighbours stay neighbours."""
    return Mode(mode.extent, *(stride if stride == 1 else stride // elements
                               for stride in mode.strides))


def _family_and_name(config: CopyConfigs) -> tuple[str, str]:
    if isinstance(config, RearrangeConfig):
        return config.family, f"RearrangeConfig of boxes {'x'.join(map(str, config.box))}"
    if isinstance(config, CopyConfig):
        return "copy", config.kind
    return "transpose_in_place" if config.in_place else "transpose", config.kind


@lru_cache(maxsize=4096)
def plan_copy(problem: CopyProblem, device: DeviceInfo) -> Plan:
    """Plan a copy, transpose or permutation.

    Parameters
    ----------
    problem : CopyProblem
        What to move.
    device : DeviceInfo
        The device to plan for.

    Returns
    -------
    Plan
        One launch that takes the addresses of roles ``src`` and ``dst``.

    Raises
    ------
    ValueError
        If elements do not have 1, 2, 4, 8 or 16 bytes, the launch needs more blocks than a grid can
        have, or a permutation in place does not transpose square matrices.

    Examples
    --------
    >>> problem = CopyProblem((8192, 8192), src_strides=(1, 8192), dst_strides=(8192, 1), itemsize=4)
    >>> plan = plan_copy(problem, H200)
    >>> plan.family, len(plan.launches)
    ('transpose', 1)
    """
    if problem.itemsize not in (1, 2, 4, 8, 16):
        raise ValueError(f"kernels copy elements of 1, 2, 4, 8 or 16 bytes, got {problem.itemsize}")
    if 0 in problem.shape:
        return Plan.nothing(problem, device, reason="the array has no elements")
    if problem.variant is not None and (named := variant(problem.variant, "copy")) not in VARIANTS:
        if problem.in_place:
            raise ValueError(
                f"variant {problem.variant!r} copies from one array to another, not in place"
            )
        return named.plan(problem, device)
    return copy_choice(problem, device).plan()


def copy_choice(problem: CopyProblem, device: DeviceInfo) -> CopyKernel:
    """The first alternative of the least estimate, of those that a variant allows."""
    possible = copy_alternatives(problem, device)
    choices = [alternative for alternative in possible
               if problem.variant in (None, alternative.family)]
    if not choices:
        raise ValueError(
            f"variant {problem.variant!r} cannot make this copy; {possible[0].family!r} can"
        )
    return min(choices, key=lambda alternative: alternative.seconds(device))


def copy_alternatives(problem: CopyProblem, device: DeviceInfo) -> list[CopyKernel]:
    """The kernel for the kind of rows, and boxes."""
    if problem.in_place:
        return [_in_place(problem, device)]
    modes, source, target = canonical_modes(problem)
    copy = _Copy.of(problem, device, modes or (Mode(1, 1, 1),), (source, target))
    while (wider := copy.wider()) is not None:
        copy = wider
    j = copy.orders[0][0]
    chosen = _transpose(copy, j) if j != 0 and copy.modes[j].src == 1 else _straight(copy)
    return [chosen, *(_boxes(copy) if _in_boxes(copy, j, chosen) else ())]


def is_wide(modes: Sequence[Mode]) -> bool:
    return any(sum((m.extent - 1) * abs(m.strides[side]) for m in modes) >= NARROW_SPAN
               for side in (0, 1))


# -- boxes ----------------------------------------------------------------------------------------
def _in_boxes(copy: _Copy, j: int, tiles: CopyKernel) -> bool:
    """Whether boxes compete with tiles; mode ``j`` has the smallest stride in the source."""
    modes, config, elements = copy.modes, tiles.config, prod(m.extent for m in copy.modes)
    first, last = modes[0], modes[j]
    if len(modes) == 1 or elements * copy.item < _BOXED_FROM:
        return False
    if j == 0:
        return abs(first.src) == first.dst == 1 and (len(modes) > 2
                                                     or first.extent * copy.item <= _SHORT_RUN)
    return last.src != 0 and not (isinstance(config, TransposeConfig)
                                  and elements >= _FULL * tiles.blocks * prod(config.tile))


def _boxes(copy: _Copy) -> list[CopyKernel]:
    every = (_box(copy, found) for found in boxes_of(copy, copy.device, _BOXES))
    return [kernel for kernel in every if kernel.blocks <= _MOST_BLOCKS]


def _box(copy: _Copy, found: Boxes) -> CopyKernel:
    item, modes, config = copy.item, copy.modes, replace(found.config, wide=is_wide(copy.modes))
    reason = (
        f"boxes of {' x '.join(map(str, config.box))} elements through shared memory, reads of "
        f"{config.source.word * item} and writes of {config.target.word * item} bytes; the sectors touched hold "
        f"{100 * (found.touched - 1):.0f} % more bytes than are moved"
    )
    blocks = prod(-(-m.extent // n) for m, n in zip(modes, found.extents, strict=True))
    counted = [(f"N{n}", modes[q]) for n, q in enumerate(found.spanned)]
    return copy.kernel(config, counted, [modes[q] for q in found.batch], found.extents, blocks,
                       reason)


# -- copies along the rows ------------------------------------------------------------------------
def _straight(copy: _Copy) -> CopyKernel:
    item, first, modes = copy.item, copy.modes[0], copy.modes
    # The longest other mode, if there is one.
    q = max(range(1, len(modes)), key=lambda q: modes[q].extent, default=0)
    rows, contiguous = modes[q].extent if q else 1, first.strides == (1, 1)
    word = gcd(copy.vector_bytes(0, 0), copy.vector_bytes(1, 0)) if contiguous else item
    if contiguous and word < _WORD and first.extent >= _RAGGED_COPY_FROM:
        return _ragged_copy(copy, q, rows)
    along = first.extent * item // word
    width = 1024 if rows == 1 else next((n for n in (1024, 256, 64) if along >= n), 32)
    tile = width, 1024 // width
    return copy.tiles(CopyConfig(word, tile, 256, first.src == 1, first.dst == 1), q,
                      f"both sides run along the same mode: vectors of {word} bytes straight "
                      f"through registers, tile {tile} vectors")


def _ragged_copy(copy: _Copy, q: int, rows: int) -> CopyKernel:
    """A copy of small elements between rows that begin anywhere."""
    item, vector = copy.item, VECTOR_BYTES // copy.item
    vectors = -(-(copy.modes[0].extent + vector - 1) // vector)
    large = -(-vectors // 32) * -(-rows // 16) * prod(m.extent for m in copy.others(0, q))
    enough = large >= _RAGGED_COPY_BLOCKS * copy.device.multiprocessors
    tile = (256, 1) if rows < 8 else (32, 16 if enough else 8)
    elements = tile[0] * vector, tile[1]
    return copy.tiles(
        CopyConfig(item, tile, anywhere=True),
        q,
        f"both sides run along the same mode, and rows begin anywhere: tile {elements}, "
        "writes of 16 bytes, each read as the 4-byte words that cover it",
        (1 + 2 * elements[0], tile[1])
    )


# -- transposes -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Tiling:
    """How transposes of one element size are cut up: ``tile`` is (J, I) in elements; ``group``
    tiles along J run together (0: all), along all of I."""

    tile: tuple[int, int]
    threads: int = 256
    group: int = 1
    min_blocks: int = 1
    load: int = 0


def _read_bytes(item: int) -> int:
    """Bytes that a thread reads at once, to put 16 bytes of packed elements into shared memory."""
    return min(VECTOR_BYTES, _WORD * item)


def _whole_tiling(item: int, columns: int, rows: int, load: int) -> _Tiling:
    """The tiling where vectors are aligned, J and I are so long and ``load`` bytes can be read."""
    if item == 1 and load >= _WORD:
        if columns <= 64 and rows <= 64:
            return _Tiling((64, 64), 128)
        if columns <= 64 and rows >= 256:
            return _Tiling((64, 256), 512)
        if load >= 8 and columns >= 256 and rows >= 128:
            return _Tiling((256, 128), load=8)
        if columns >= 128 and rows >= 128:
            return _Tiling((128, 128), 512)
    return _usual_tiling(item)


def _usual_tiling(item: int) -> _Tiling:
    """Tiles of 16 KiB, as square as they can be, the longer side along J."""
    rows = 128 >> item.bit_length() // 2
    tile = 16384 // item // rows, rows
    return _Tiling(tile, 512, 32) if item == VECTOR_BYTES else _Tiling(tile)


def _ragged_tiling(item: int) -> _Tiling:
    """The tiling where rows begin anywhere: they are read by words, and cut among blocks."""
    tile = 128 if item == 1 else 64, min(128, 512 // item)
    return _Tiling(tile, group=8 if item == 2 else 1, min_blocks={1: 1, 2: 5}.get(item, 4))


def _words(item: int, load: int, store: int, ragged: bool) -> tuple[int, int, int]:
    """Bytes of a word of shared memory, of a read and of a write, up to ``load``, ``store``."""
    if ragged:
        return max(item, _WORD), max(item, _WORD), VECTOR_BYTES
    if item < _WORD <= min(load, store):
        return _WORD, load, store
    # One vector for both sides, so that neither meets a bank twice
    both = min(load, store) if item >= _WORD else item
    return item, both, both


def _transpose(copy: _Copy, j: int) -> CopyKernel:
    """A permutation whose target runs along the first mode and whose source along mode ``j``."""
    item, mode_i, mode_j, others = copy.item, copy.modes[0], copy.modes[j], copy.others(0, j)
    rowwise = mode_i.dst == 1
    store = copy.vector_bytes(1, 0) if rowwise else item
    whole = store == VECTOR_BYTES and all(m.dst * item % _SECTOR == 0 for m in copy.others(0))
    tiling = _usual_tiling(item)
    if whole:
        tiling = _whole_tiling(item, mode_j.extent, mode_i.extent, copy.vector_bytes(0, j))
    most = tiling.load or _read_bytes(item)
    load = copy.vector_bytes(0, j, most)
    small = min(mode_i.extent, mode_j.extent) < _RAGGED_FROM
    ragged, cut = rowwise and not small and not (whole and load == most), 0
    if ragged:
        cut, tiling = _SECTOR if item < 8 else 2 * _SECTOR, _ragged_tiling(item)
    word, load, store = _words(item, load, store, ragged)
    # All indices of batch modes between I and J in the target have a strip, then of one tile,
    # before the next one begins: so rows of the target are written in order through all of them.
    inner = sum(m.dst < mode_j.dst for m in others)
    config = TransposeConfig(item, word, load, store, tiling.tile, tiling.threads, rowwise,
                             len(others), group=1 if inner else tiling.group, inner=inner,
                             min_blocks=tiling.min_blocks, cut=cut)
    if ragged:
        reason = (
            f"source and target run along different modes, and rows begin anywhere: tiles of "
            f"{config.tile} elements through swizzled shared memory, reads of {word} and writes of "
            f"16 bytes, the target's rows cut at multiples of {cut}"
        )
    else:
        reason = (f"source and target run along different modes: tiles of {config.tile} elements "
                  f"through swizzled shared memory, reads of {load} and writes of {store} bytes")
    return copy.tiles(config, j, reason,
                      (1 + 2 * config.rows, 1 + config.tile[0]) if ragged else (0, 0))


# -- transposes in place --------------------------------------------------------------------------
# Tiles that change places; strips are of columns of pairs of tiles. Where rows begin anywhere or
# end within a vector: those for which a device needs more shared memory than all have, and others.
_LARGE_RAGGED_SQUARES = {2: _Tiling((128, 128), 512, min_blocks=3),
                         4: _Tiling((128, 128), 1024, 8),
                         8: _Tiling((64, 64), min_blocks=3)}
_RAGGED_SQUARES = {1: _Tiling((128, 128), min_blocks=5), 2: _Tiling((64, 64)),
                   4: _Tiling((64, 64), min_blocks=5),
                   8: _Tiling((32, 32), 128)}


def _square_tiling(item: int, split: bool) -> _Tiling:
    """The tiling of aligned vectors; ``split`` where rows begin inside of a sector or line."""
    side = min(128, 256 // item) * (2 if split and item >= 8 else 1)
    return _Tiling((side, side), group=1 if split and item > 1 else 0,
                   min_blocks=5 if item == 4 or (split and item == VECTOR_BYTES) else 1)


def _ragged_square_tiling(item: int, device: DeviceInfo) -> _Tiling:
    """The tiling where rows begin anywhere or end within a vector."""
    usual = _RAGGED_SQUARES[item]
    large = _LARGE_RAGGED_SQUARES.get(item, usual)
    return large if 2 * prod(large.tile) * item <= device.shared_bytes_per_block else usual


def square_modes(problem: CopyProblem) -> tuple[int, int, int, tuple[Mode, ...]] | None:
    """A permutation in place as a transposition: extent, strides (smaller first) and batch modes;
    ``None`` if it is none, or if nothing moves."""
    modes = [Mode(*mode) for mode in merged(tuple(zip(problem.shape, problem.src_strides,
                                                      problem.dst_strides, strict=True)))]
    moving = [mode for mode in modes if mode.src != mode.dst and mode.extent > 1]
    if len(moving) != 2 or moving[0] != Mode(moving[1].extent, moving[1].dst, moving[1].src):
        return None
    inner, outer = sorted(moving[0].strides, key=lambda stride: (stride != 1, abs(stride)))
    batch = tuple(mode for mode in modes if mode not in moving and mode.extent > 1)
    return moving[0].extent, inner, outer, batch


def _in_place(problem: CopyProblem, device: DeviceInfo) -> CopyKernel:
    found = square_modes(problem)
    if found is None:
        raise ValueError(
            f"only square matrices are transposed in place, got shape {problem.shape} with strides "
            f"{problem.src_strides} in the source and {problem.dst_strides} in the target"
        )
    n, inner, outer, batch = found
    item, unit, strides = problem.itemsize, inner == 1, [outer, *(m.dst for m in batch)]
    modes = Mode(n, outer, inner), Mode(n, inner, outer), *batch
    copy = _Copy.of(problem, device, modes, (0, 0))
    ragged = unit and n >= _RAGGED_FROM and copy.vector_bytes(1, 0) < VECTOR_BYTES
    split = unit and any(stride * item % (_LINE if n >= _LONG_SQUARE else _SECTOR)
                         for stride in strides)
    tiling = _ragged_square_tiling(item, device) if ragged else _square_tiling(item, split)
    load, store = (copy.vector_bytes(1, 0, most) if unit else item
                   for most in (_read_bytes(item), VECTOR_BYTES))
    full = ragged or (load, store) == (_read_bytes(item), VECTOR_BYTES)
    word, load, store = _words(item, load, store, ragged)
    # Elements of 2 bytes move one by one there: a thread has those of two tiles in registers.
    side = min(tiling.tile[0], 64) if word == 2 else tiling.tile[0]
    config = TransposeConfig(item, word, load, store, (side, side),
                             512 if word == 1 else tiling.threads, unit, len(batch),
                             is_wide([*(replace(m, extent=n + 2 * side) for m in modes[:2]),
                                      *batch]),
                             tiling.group,
                             min_blocks=tiling.min_blocks if full else 1,
                             in_place=True, cut=_SECTOR if ragged else 0)
    tiles = -(-n // side)
    reason = (
        f"square matrices in place: each block exchanges two tiles of {side} x {side} elements through swizzled shared "
        f"memory, reads of {load} and writes of {store} bytes"
    )
    moved, *each = (_by_words(m, config.scale) for m in copy.modes)
    return copy.kernel(config, [("N", moved), ("N", each[0])], each[1:],
                       [min(n, side), min(n, side), *(1 for _ in batch)],
                       tiles * (tiles + 1) // 2 * prod(m.extent for m in batch), reason)


VARIANTS = (
    Variant(
        "copy", "copy", CHOSEN,
        "any copy whose sides run along the same mode, as vectors through registers", "sm_70",
        plan_copy
    ),
    Variant(
        "transpose", "copy", CHOSEN,
        "any permutation whose sides run along different modes, through swizzled shared memory",
        "sm_70", plan_copy
    ),
    Variant(
        "transpose_in_place", "copy", CHOSEN,
        "square matrices transposed in place, by pairs of tiles", "sm_70", plan_copy
    )
)
