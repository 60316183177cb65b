"""From a copy or permutation problem to a plan: merged modes, tile, vector widths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import gcd, prod
from typing import Any, Literal

from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import View
from ...kernels.copy.rearrange import RearrangeConfig, rearrange_kernel
from ...kernels.copy.short_rows import FromShortRowsConfig, ShortRowsConfig, from_short_rows_kernel, short_rows_kernel
from ...kernels.copy.straight import CopyConfig, copy_kernel
from ...kernels.copy.tiles import TransposeConfig, transpose_kernel
from ..cost.alternatives import Alternative
from ..modes import Mode, merged
from ..operands import batch_values, launch
from ..plan import Argument, Plan
from ..problem import CopyProblem, DeviceInfo
from ..variants import CHOSEN, Variant, variant
from .cost import CopyConfigs, TileConfigs, copy_seconds, work_of
from .rearrange import Boxes, Permuted, boxes_of, laid_out

__all__ = ["canonical_modes", "copy_alternatives", "is_wide", "plan_copy", "square_modes"]

_KERNELS: dict[type, Callable[..., GeneratedKernel]] = {
    CopyConfig: copy_kernel, TransposeConfig: transpose_kernel, ShortRowsConfig: short_rows_kernel,
    FromShortRowsConfig: from_short_rows_kernel, RearrangeConfig: rearrange_kernel}
_NARROW_SPAN = 2**30
_WORD = 4                            # bytes
# Copies of smaller words: vectors along rows and rows of a block, the last where there are few rows, each but it where every
# multiprocessor has so many blocks; and elements of rows from which they are worth it.
_RAGGED_COPY_TILES, _RAGGED_COPY_BLOCKS, _RAGGED_COPY_FROM = ((32, 16), (32, 8), (256, 1)), 8, 64

# Boxes that are considered; bytes of a vector; the bytes from which permutations may go by boxes: their kernels have the extents of
# short modes, so that every shape is compiled; and bytes of rows up to which copies of matrices, which permute nothing, do.
_BOXES, _VECTOR, _BOXED_FROM, _SHORT_RUN = 5, 16, 1 << 17, 64
# Transposes go by tiles where these are full: the model takes such tiles for slower than they were measured. The part that is full,
# of the smallest sides by bytes of an element; of rows that begin anywhere, of the only tiles that there are.
_FULL, _SIDES = 0.7, {1: 64, 2: 64, 4: 64, 8: 32, 16: 32}


def canonical_modes(problem: CopyProblem) -> tuple[tuple[Mode, ...], int, int]:
    """The same copy with as few modes as possible, and the offsets (elements) of its first element in source and target.

    Modes of extent 1 go; a mode with a negative stride in the target is walked backwards in both; modes are ordered by their stride
    in the target, smallest first; neighbours that are one mode in both merge (CuTe's ``coalesce`` on the pair of layouts).
    """
    modes, src_offset, dst_offset = [], 0, 0
    for n, s, d in zip(problem.shape, problem.src_strides, problem.dst_strides, strict=True):
        if n == 1:
            continue
        if d < 0:
            src_offset, dst_offset, s, d = src_offset + (n - 1) * s, dst_offset + (n - 1) * d, -s, -d
        modes.append(Mode(n, s, d))
    modes.sort(key=lambda m: m.dst)
    merged: list[Mode] = []
    for m in modes:
        last = merged[-1] if merged else None
        if last and (m.src, m.dst) == (last.src * last.extent, last.dst * last.extent):
            merged[-1] = Mode(last.extent * m.extent, last.src, last.dst)
        else:
            merged.append(m)
    return tuple(merged), src_offset, dst_offset


@dataclass(frozen=True)
class _Kernel(Alternative):
    """One of the kernels that could make a copy: its configuration, and how many blocks it has."""

    config: CopyConfigs
    blocks: int


@dataclass(frozen=True)
class _Copy:
    """A copy with as few modes as possible, of elements as wide as possible: their bytes, the modes, and the offsets (elements) of
    the first element in source and target.
    """

    problem: CopyProblem
    device: DeviceInfo
    item: int
    modes: tuple[Mode, ...]
    offsets: tuple[int, int]

    @cached_property
    def permuted(self) -> Permuted:
        """The same to cut into boxes."""
        # Arrays of which 16 bytes divide the address begin where sectors do: allocations are aligned to 512.
        source, target = (gcd(_SECTOR if alignment == 16 else alignment, offset * self.item) for alignment, offset in
                          zip((self.problem.src_alignment, self.problem.dst_alignment), self.offsets, strict=True))
        return Permuted(self.modes, self.item, (source, target))

    def vector(self, side: int, extent: int, strides: Iterable[int], limit: int = 16) -> int:
        """Elements of the widest vector (at most ``limit`` bytes) of the source (0) or the target (1) that its address, this extent
        and the other strides allow.
        """
        return gcd(max(1, limit // self.item), max(1, self.permuted.alignments[side] // self.item), extent, *strides)

    def wider(self) -> _Copy | None:
        """The same of wider elements, if those of the first mode are one of these and others are transposed."""
        (n, *strides), others, problem = (self.modes[0].extent, self.modes[0].src, self.modes[0].dst), self.modes[1:], self.problem
        nbytes = n * self.item
        if strides != [1, 1] or nbytes not in (2, 4, 8, 16) or not others or others[0].dst != n or others[0].src == n \
                or all(m.src != n for m in others):
            return None
        if any(stride % n for m in others for stride in (m.src, m.dst)) or problem.src_alignment % nbytes \
                or problem.dst_alignment % nbytes:
            return None                                                # else offsets, of steps along other modes, divide too
        scaled = tuple(Mode(m.extent, m.src // n, m.dst // n) for m in others)
        return replace(self, item=nbytes, modes=scaled, offsets=(self.offsets[0] // n, self.offsets[1] // n))

    def alternative(self, family: str, config: CopyConfigs, extents: Sequence[int], blocks: int,
                    plan: Callable[[], Plan]) -> _Kernel:
        """A kernel that could make it, of so many blocks that have these extents along every mode."""
        work = work_of(self.permuted, config, extents, blocks)
        return _Kernel(family, _name(config), partial(copy_seconds, work),
                       lambda: replace(plan(), seconds=copy_seconds(work, self.device)), config, blocks)

    def tiles(self, family: str, config: TileConfigs, numbers: dict[str, Any], batch: Sequence[Mode], blocks: int,
              reason: str) -> _Kernel:
        """The same of a kernel for tiles, with so many blocks for each index of the batch modes."""
        every = blocks * prod(m.extent for m in batch)
        return self.alternative(family, config, _extents(config, self), every,
                                lambda: self.plan(family, config, numbers, batch, every, reason))

    def plan(self, family: str, config: CopyConfigs, numbers: dict[str, Any], batch: Sequence[Mode], blocks: int,
             reason: str) -> Plan:
        """The plan of one launch of a kernel."""
        if blocks >= 2**31:
            raise ValueError(f"a copy of shape {self.problem.shape} needs {blocks} blocks; a grid has at most 2^31 - 1")
        kernel = _KERNELS[type(config)](config)
        steps = {"S": tuple(m.src for m in batch), "D": tuple(m.dst for m in batch)}
        views = {name: View(Argument(role=role, offset=offset * self.item), numbers[name], steps[name])
                 for name, role, offset in zip("SD", ("src", "dst"), self.offsets, strict=True)}
        made = launch(kernel, (blocks, 1, 1), numbers | views, batch_values(tuple(m.extent for m in reversed(batch))))
        return Plan(self.problem, self.device, family, config, (made,), reason=reason, facts=kernel.facts)


def _name(config: CopyConfigs) -> str:
    """What distinguishes a kernel within its family."""
    if isinstance(config, RearrangeConfig):
        return "RearrangeConfig of boxes " + "x".join(map(str, config.box))
    return config.kind if isinstance(config, (CopyConfig, TransposeConfig)) else type(config).__name__


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
        If elements do not have 1, 2, 4, 8 or 16 bytes, the launch needs more blocks than a grid can have, or a permutation in place
        does not transpose square matrices.

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
        return Plan(problem, device, "nothing", None, (), reason="the array has no elements", seconds=0.0)
    if problem.variant is not None and (named := variant(problem.variant, "copy")) not in VARIANTS:
        if problem.in_place:
            raise ValueError(f"variant {problem.variant!r} copies from one array to another, not in place")
        return named.plan(problem, device)
    possible = copy_alternatives(problem, device)
    choices = [alternative for alternative in possible if problem.variant in (None, alternative.family)]
    if not choices:
        raise ValueError(f"variant {problem.variant!r} cannot make this copy; {possible[0].family!r} can")
    return min(choices, key=lambda alternative: alternative.seconds(device)).plan()


def copy_alternatives(problem: CopyProblem, device: DeviceInfo) -> list[Alternative]:
    """The kernels among which planning chooses: the one for the kind of rows, and boxes."""
    if problem.in_place:
        return [_in_place(problem, device)]
    modes, *offsets = canonical_modes(problem)
    copy = _Copy(problem, device, problem.itemsize, modes or (Mode(1, 1, 1),), (offsets[0], offsets[1]))
    while (wider := copy.wider()) is not None:
        copy = wider
    j = _innermost(copy.modes)
    tiles = _transpose if j != 0 and copy.modes[j].src == 1 else _straight
    chosen = tiles(copy)
    return [chosen, *(_boxes(copy) if _in_boxes(copy, j, chosen) else ())]


def _second(modes: Sequence[Mode]) -> int:
    """The mode that tiles of a copy along the first one extend along too: the longest other one, or the first if there is none."""
    return max(range(1, len(modes)), key=lambda q: modes[q].extent, default=0)


def _extents(config: TileConfigs, copy: _Copy) -> list[int]:
    """Elements of a tile along each mode."""
    modes = copy.modes
    if isinstance(config, CopyConfig):
        (along, other), q = config.tile, _second(modes)
        along *= (_VECTOR if config.anywhere else config.word) // copy.item
    else:
        (other, along), q = config.tile, _innermost(modes)
    extents = [1] * len(modes)
    extents[q] = min(other, modes[q].extent)
    extents[0] = min(along, modes[0].extent)
    return extents


def _innermost(modes: Sequence[Mode]) -> int:
    """The mode with the smallest stride in the source."""
    return min(range(len(modes)), key=lambda q: (modes[q].src == 0, abs(modes[q].src), q))


def _in_boxes(copy: _Copy, j: int, tiles: _Kernel) -> bool:
    """Whether boxes compete with the kernel for tiles; mode ``j`` has the smallest stride in the source."""
    item, modes, config = copy.item, copy.modes, tiles.config
    first = modes[0]
    if len(modes) == 1 or prod(m.extent for m in modes) * item < _BOXED_FROM:
        return False
    if j == 0:
        return abs(first.src) == first.dst == 1 and (len(modes) > 2 or first.extent * item <= _SHORT_RUN)
    last, side = modes[j], _SIDES[item]
    if isinstance(config, TransposeConfig) and config.cut:
        full = prod(m.extent for m in modes) / (tiles.blocks * prod(config.tile))
    else:
        full = prod(n / (-(-n // side) * side) for n in (first.extent, last.extent))
    return last.src != 0 and not (full >= _FULL and last.src == 1)


def _rows_without_gaps(item: int, mode_i: Mode, mode_j: Mode) -> Literal["", "source", "target"]:
    """Whether short rows of the source or of the target follow each other without gaps, for which there are kernels."""
    if item not in _SHORT_ROWS or mode_i.dst != 1 or mode_j.src != 1 or mode_i.extent * mode_j.extent * item < _SMALL_MATRIX:
        return ""
    if mode_i.src == mode_j.extent and mode_j.extent < _SHORT and mode_i.extent >= _FROM_SHORT_ROWS_FROM:
        return "source"
    follow = mode_j.dst == mode_i.extent and mode_i.extent < _SHORT and mode_j.extent >= _SHORT_ROWS_FROM
    return "target" if follow else ""


def _boxes(copy: _Copy) -> list[_Kernel]:
    """A permutation by boxes: the few with the least cost, of those that are small enough."""
    every = boxes_of(copy.permuted, copy.device, copy.vector, _BOXES)
    return [_box(copy, found) for found in every if _blocks(copy, found) < 2**31]


def _blocks(copy: _Copy, found: Boxes) -> int:
    return prod(-(-m.extent // n) for m, n in zip(copy.modes, found.extents, strict=True))


def _box(copy: _Copy, found: Boxes) -> _Kernel:
    item, modes, config, spanned = copy.item, copy.modes, replace(found.config, wide=is_wide(copy.modes)), found.spanned
    numbers: dict[str, Any] = {f"N{n}": modes[spanned[n]].extent for n in config.cut}
    numbers |= {"S": tuple(modes[q].src for q in spanned), "D": tuple(modes[q].dst for q in spanned)}
    reason = (f"boxes of {' x '.join(map(str, config.box))} elements through shared memory, reads of "
              f"{config.source.word * item} and writes of {config.target.word * item} bytes; the sectors touched hold "
              f"{100 * (found.touched - 1):.0f} % more bytes than are moved")
    blocks, batch = _blocks(copy, found), [modes[q] for q in found.batch]
    return copy.alternative(config.family, config, found.extents, blocks,
                            lambda: copy.plan(config.family, laid_out(config), numbers, batch, blocks, reason))


def is_wide(modes: tuple[Mode, ...]) -> bool:
    """Whether offsets need 64 bits."""
    span = max(sum((m.extent - 1) * abs(m.src) for m in modes), sum((m.extent - 1) * abs(m.dst) for m in modes))
    return span >= _NARROW_SPAN


def _span(modes: list[tuple[int, int]]) -> tuple[int, int]:
    """The lowest element and the end of what modes of some extents and strides span, from their first element on."""
    reaches = [(n - 1) * stride for n, stride in modes]
    return sum(min(0, r) for r in reaches), 1 + sum(max(0, r) for r in reaches)


def _straight(copy: _Copy) -> _Kernel:
    item, modes, (first, *others) = copy.item, copy.modes, copy.modes
    words = 1
    if first.src == first.dst == 1:
        words = gcd(copy.vector(0, first.extent, [m.src for m in others]), copy.vector(1, first.extent, [m.dst for m in others]))
    second = others.pop(_second(modes) - 1) if others else Mode(1, 0, 0)
    if first.src == first.dst == 1 and words * item < _WORD and first.extent >= _RAGGED_COPY_FROM:
        return _ragged_copy(copy, first, second, others)
    along = first.extent // words
    tile = (1024, 1) if along >= 1024 or second.extent == 1 else (256, 4) if along >= 256 else (64, 16) if along >= 64 else (32, 32)
    config = CopyConfig(words * item, tile, 256, first.src == 1, first.dst == 1, len(others), is_wide(modes))
    scaled = [Mode(second.extent, second.src // words, second.dst // words),
              *(Mode(m.extent, m.src // words, m.dst // words) for m in others)]
    numbers = {"I": along, "J": second.extent, "S": (first.src, scaled[0].src), "D": (first.dst, scaled[0].dst)}
    blocks = -(-along // tile[0]) * -(-second.extent // tile[1])
    return copy.tiles("copy", config, numbers, scaled[1:], blocks,
                      f"both sides run along the same mode: vectors of {words * item} bytes straight through registers, "
                      f"tile {tile} vectors")


def _ragged_copy(copy: _Copy, mode_i: Mode, mode_j: Mode, others: list[Mode]) -> _Kernel:
    """A copy of small elements between rows that begin anywhere."""
    item, vector = copy.item, 16 // copy.item
    batch = prod(m.extent for m in others)

    def blocks(tile: tuple[int, int]) -> int:
        return -(-(mode_i.extent + vector - 1) // (tile[0] * vector)) * -(-mode_j.extent // tile[1]) * batch

    large, small, flat = _RAGGED_COPY_TILES
    enough = blocks(large) >= _RAGGED_COPY_BLOCKS * copy.device.multiprocessors
    along_i, along_j = tile = flat if mode_j.extent < small[1] else large if enough else small
    beyond = along_i * vector                                          # predicates stop threads, not addresses
    reach = Mode(1 + mode_i.extent + 2 * beyond, 1, 1), replace(mode_j, extent=mode_j.extent + along_j), *others
    config = CopyConfig(item, tile, modes=len(others), wide=is_wide(reach), anywhere=True)
    lowest, end = _span([(m.extent, m.src) for m in (mode_i, mode_j, *others)])
    numbers = {"I": mode_i.extent, "J": mode_j.extent, "S": (1, mode_j.src), "D": (1, mode_j.dst), "S_lowest": lowest, "S_end": end}
    return copy.tiles("copy", config, numbers, others, blocks(tile) // batch,
                      f"both sides run along the same mode, and rows begin anywhere: tile {(along_i * vector, along_j)}, writes of "
                      "16 bytes, each read as the 4-byte words that cover it")


@dataclass(frozen=True)
class _Tiling:
    """How transposes of one element size are cut up: the tile along (J, I) in elements, the bytes that a thread reads at once, the
    threads of a block, the tiles along J that run together (0: all), each strip of them along all of I before the next, and the
    blocks of which a multiprocessor has to hold the registers.
    """

    tile: tuple[int, int]
    load: int
    threads: int = 256
    group: int = 0
    min_blocks: int = 1


# By bytes of an element. What is written at once is 16 bytes. Reads are narrower for elements that are packed in registers, so that
# each thread ends up with 16 bytes to put into shared memory.
_TILES = {1: _Tiling((128, 128), 4, group=1), 2: _Tiling((128, 64), 8, group=1), 4: _Tiling((64, 64), 16, group=1),
          8: _Tiling((64, 32), 16, group=1), 16: _Tiling((32, 32), 16, 512, 32)}
# Tiles of bytes where they are full along both modes, and where J and I, or J alone, are short.
_FULL_BYTES = _Tiling((256, 128), 8, group=1), _Tiling((128, 128), 4, 512, 1)
_SMALL_BYTES, _NARROW_BYTES = _Tiling((64, 64), 4, 128, 1), _Tiling((64, 256), 4, 512, 1)
# The same for rows that begin anywhere, which are read by words, and where the target's rows are cut among blocks, in bytes.
_RAGGED = {1: _Tiling((128, 128), 4, 256, 1), 2: _Tiling((64, 128), 4, 256, 8, 5), 4: _Tiling((64, 128), 4, 256, 1, 4),
           8: _Tiling((64, 64), 8, 256, 1, 4), 16: _Tiling((64, 32), 16, 256, 1, 4)}
_CUTS, _RAGGED_FROM = {1: 32, 2: 32, 4: 32, 8: 64, 16: 64}, 32
_MANY, _LINE, _SECTOR, _WARP = 1024, 128, 32, 32
# Rows of the target that follow each other without gaps: by bytes of an element, words that a thread reads, how many of them lie
# along I if that is more, and the blocks of which a multiprocessor has to hold the registers; threads; how many rows there have to
# be; below how many elements rows of the target and of the source are for these kernels, and from how many bytes of a matrix on.
_SHORT_ROWS = {1: (12, 12, 1), 2: (8, 10, 1), 4: (16, 16, 5), 8: (8, 8, 5)}
_SHORT_ROWS_THREADS, _SHORT_ROWS_FROM, _SHORT, _SMALL_MATRIX = 256, 32, 64, 8192
# The same of the source: words that a thread writes; how many rows there have to be, and blocks for each multiprocessor before they
# are large.
_FROM_SHORT_ROWS = {1: 12, 2: 12, 4: 8, 8: 8}
_FROM_SHORT_ROWS_FROM, _FROM_SHORT_ROWS_BLOCKS = 256, 2


def _transpose(copy: _Copy) -> _Kernel:
    item, modes, j = copy.item, copy.modes, _innermost(copy.modes)
    mode_i, mode_j = modes[0], modes[j]
    others = [m for q, m in enumerate(modes) if q not in (0, j)]
    rows = _rows_without_gaps(item, mode_i, mode_j)
    if rows:
        return (_from_short_rows if rows == "source" else _short_rows)(copy, mode_j, mode_i, others)
    strides = [mode_i.src, *(m.src for m in others)]

    def reads(limit: int) -> int:
        return copy.vector(0, mode_j.extent, strides, limit) * item

    targets = [m.dst for m in (mode_j, *others)]
    store, whole = item, False
    if mode_i.dst == 1:
        store = copy.vector(1, mode_i.extent, targets) * item
        whole = store == 16 and all(stride * item % _SECTOR == 0 for stride in targets)
    tiling = _tiling(item, mode_j.extent, mode_i.extent, reads(16)) if whole else _TILES[item]
    load = reads(tiling.load)
    if mode_i.dst == 1 and not (load == tiling.load and whole) and min(mode_i.extent, mode_j.extent) >= _RAGGED_FROM:
        return _ragged(copy, mode_j, mode_i, others)
    packed = item < 4 and load >= 4 and store >= 4
    word = 4 if packed else item
    if not packed:                                       # one vector for both sides, so that neither meets a bank twice
        load = store = item if item < 4 else min(load, store)
    group, inner = _order(tiling, mode_j, others)
    config = TransposeConfig(item, word, load, store, tiling.tile, tiling.threads, True, mode_i.dst == 1, len(others),
                             is_wide(modes), group, inner, tiling.min_blocks if (load, store) == (tiling.load, 16) else 1)
    per_word = config.packed
    numbers = {"J": mode_j.extent, "I": mode_i.extent, "S": (mode_j.src, mode_i.src // per_word),
               "D": (mode_j.dst // per_word, mode_i.dst)}
    scaled = [Mode(m.extent, m.src // per_word, m.dst // per_word) for m in others]
    blocks = -(-mode_j.extent // tiling.tile[0]) * -(-mode_i.extent // tiling.tile[1])
    return copy.tiles("transpose", config, numbers, scaled, blocks,
                      f"source and target run along different modes: tiles of {tiling.tile} elements through swizzled shared "
                      f"memory, reads of {load} and writes of {store} bytes")


def _tiling(item: int, columns: int, rows: int, load: int) -> _Tiling:
    """The tiling where sectors of the target are written whole, extents along J and I are these and ``load`` bytes can be read."""
    if item == 1:
        if load >= _SMALL_BYTES.load and columns <= _SMALL_BYTES.tile[0]:
            if rows <= _SMALL_BYTES.tile[1]:
                return _SMALL_BYTES
            if rows >= _NARROW_BYTES.tile[1]:
                return _NARROW_BYTES
        for tiling in _FULL_BYTES:
            if load >= tiling.load and columns >= tiling.tile[0] and rows >= tiling.tile[1]:
                return tiling
    return _TILES[item]


def _order(tiling: _Tiling, mode_j: Mode, others: list[Mode]) -> tuple[int, int]:
    """Tiles along J that run together, and the batch modes of which all indices have such a strip before the next one begins: those
    between I and J in the target, so that its rows are written in order through all of them. They take strips of one tile.
    """
    inner = sum(m.dst < mode_j.dst for m in others) if tiling.group else 0
    return 1 if inner else tiling.group, inner


def _ragged(copy: _Copy, mode_j: Mode, mode_i: Mode, others: list[Mode]) -> _Kernel:
    """A transpose between rows that begin anywhere, along (J, I)."""
    item = copy.item
    tiling, cut = _RAGGED[item], _CUTS[item]
    word = max(item, 4)
    halo = 2 * (tiling.tile[1] + cut // item)            # rows by which addresses, not accesses, may be outside of the array
    reach = Mode(1 + mode_i.extent + halo, mode_i.src, 1), Mode(1 + mode_j.extent + tiling.tile[0], 1, mode_j.dst), *others
    group, inner = _order(tiling, mode_j, others)
    config = TransposeConfig(item, word, word, 16, tiling.tile, tiling.threads, modes=len(others), wide=is_wide(reach), group=group,
                             inner=inner, min_blocks=tiling.min_blocks, cut=cut)
    numbers = {"J": mode_j.extent, "I": mode_i.extent, "S": (1, mode_i.src), "D": (mode_j.dst, 1)}
    if config.packed > 1:
        numbers["S_lowest"], numbers["S_end"] = _span([(m.extent, m.src) for m in (mode_j, mode_i, *others)])
    blocks = -(-mode_j.extent // config.tile[0]) * -(-(mode_i.extent + config.halo) // config.tile[1])
    return copy.tiles("transpose", config, numbers, others, blocks,
                      f"source and target run along different modes, and rows begin anywhere: tiles of {config.tile} elements "
                      f"through swizzled shared memory, reads of {word} and writes of 16 bytes, the target's rows cut at multiples "
                      f"of {cut}")


def _short_rows(copy: _Copy, mode_j: Mode, mode_i: Mode, others: list[Mode]) -> _Kernel:
    """A transpose to short rows that follow each other without gaps, along (J, I)."""
    item = copy.item
    most, longest, min_blocks = _SHORT_ROWS[item]

    def shape(along_i: int) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Threads and words of a thread along J and I for so many threads along I, and the elements that fit into all blocks."""
        along_j = _SHORT_ROWS_THREADS // along_i
        base, rows = along_j * max(1, 4 // item), -(-mode_i.extent // along_i)
        words = max(1, min(most // rows, -(-mode_j.extent // base)))
        return (along_j, along_i), (words, rows), -(-mode_j.extent // (base * words)) * base * words * rows * along_i

    threads, words, _ = min((shape(n) for n in (8, 4, 2, 1)), key=lambda found: (found[1][1] > longest, found[2]))
    twos = (mode_i.extent & -mode_i.extent).bit_length() - 1
    config = ShortRowsConfig(item, threads, words, twos, len(others), min_blocks=min_blocks)
    columns, _ = config.tile
    reach = Mode(1 + mode_i.extent, mode_i.src, 1), Mode(1 + mode_j.extent + columns, 1, mode_j.dst), *others
    config = replace(config, wide=is_wide(reach))
    numbers = {"J": mode_j.extent, "I": mode_i.extent, "S": (1, mode_i.src), "D": (mode_j.dst, 1)}
    if config.packed > 1:
        numbers["S_lowest"], numbers["S_end"] = _span([(m.extent, m.src) for m in (mode_j, mode_i, *others)])
    return copy.tiles("transpose", config, numbers, others, -(-mode_j.extent // columns),
                      f"source and target run along different modes, and rows of the target follow each other: {columns} at a time "
                      f"through shared memory, in the order of the target, reads of {config.word}, writes of 16 bytes")


def _short_columns(columns: int, rows: int, batch: int, item: int, device: DeviceInfo) -> tuple[tuple[int, int], tuple[int, int]]:
    """Threads along I and J, and words of each, for short rows of the source: blocks of one matrix have as many rows each.

    Where blocks are few, they are smaller, and more of their threads are along J.
    """
    most, packed = _FROM_SHORT_ROWS[item], max(1, 4 // item)
    along_j = 1 << max(0, (-(-columns // most)).bit_length() - 1)
    lanes = _SHORT_ROWS_THREADS // along_j
    words = max(1, most // -(-columns // along_j))
    wanted = -(-_FROM_SHORT_ROWS_BLOCKS * device.multiprocessors // batch)
    blocks = max(1, -(-rows // (lanes * words * packed)), min(wanted, rows // (_WARP * packed)))
    each = -(-rows // (blocks * packed))
    words = -(-each // lanes)
    lanes = -(-each // (words * _WARP)) * _WARP
    if blocks * batch <= _FROM_SHORT_ROWS_BLOCKS * device.multiprocessors:
        along_j = max(along_j, min(1 << (columns - 1).bit_length(), 1 << (_SHORT_ROWS_THREADS // lanes).bit_length() - 1))
    return (lanes, along_j), (words, -(-columns // along_j))


def _from_short_rows(copy: _Copy, mode_j: Mode, mode_i: Mode, others: list[Mode]) -> _Kernel:
    """A transpose from short rows that follow each other without gaps, along (J, I)."""
    item = copy.item
    threads, words = _short_columns(mode_j.extent, mode_i.extent, prod(m.extent for m in others), item, copy.device)
    twos = (mode_j.extent & -mode_j.extent).bit_length() - 1
    config = FromShortRowsConfig(item, threads, words, twos, len(others))
    beyond = config.tile[1] + config.border
    reach = Mode(1 + mode_i.extent + beyond, mode_i.src, 1), Mode(1 + config.tile[0], 1, mode_j.dst), *others
    config = replace(config, wide=is_wide(reach))
    numbers = {"J": mode_j.extent, "I": mode_i.extent, "S": (1, mode_i.src), "D": (mode_j.dst, 1)}
    rows = config.tile[1]
    return copy.tiles("transpose", config, numbers, others, -(-mode_i.extent // rows),
                      f"source and target run along different modes, and rows of the source follow each other: {rows} at a time "
                      f"through shared memory, in the order of the source, reads of 16 bytes, writes of {config.word}, the "
                      f"target's rows cut at multiples of {_SECTOR}")


# The same for tiles that change places; strips are of columns of pairs of tiles.
_SQUARES = {1: _Tiling((128, 128), 4), 2: _Tiling((128, 128), 8),
            4: _Tiling((64, 64), 16, min_blocks=5), 8: _Tiling((32, 32), 16), 16: _Tiling((16, 16), 16)}
# Where vectors are aligned and rows begin in the midst of a sector, or of a line, if there is a pair for every multiprocessor.
_SPLIT_SQUARES = {2: _Tiling((128, 128), 8, group=1), 4: _Tiling((64, 64), 16, group=1, min_blocks=5),
                  8: _Tiling((64, 64), 16, group=1), 16: _Tiling((32, 32), 16, group=1, min_blocks=5)}
# Where rows begin anywhere or end within a vector; and those for which a device needs more shared memory than all have.
_RAGGED_SQUARES = {1: _Tiling((128, 128), 4, group=1, min_blocks=5), 2: _Tiling((64, 64), 4, group=1),
                   4: _Tiling((64, 64), 4, group=1, min_blocks=5), 8: _Tiling((32, 32), 8, 128, 1)}
_LARGE_SQUARES = {2: _Tiling((128, 128), 4, 512, 1, 3), 4: _Tiling((128, 128), 4, 1024, 8), 8: _Tiling((64, 64), 8, 256, 1, 3)}
_RAGGED_SQUARES_FROM = 32
_SINGLE = {2: 64}                   # of elements that move one by one: a thread has those of two tiles in registers
_BYTEWISE = 512                     # threads where bytes move one by one


def square_modes(problem: CopyProblem) -> tuple[int, int, int, tuple[Mode, ...]] | None:
    """The transposition that a permutation in place amounts to: the extent of the square matrices, their strides (the smaller one
    first) and the batch modes. ``None`` if it is none, or if nothing moves.
    """
    modes = merged(tuple(zip(problem.shape, problem.src_strides, problem.dst_strides, strict=True)) or ((1, 0, 0),))
    moving = [mode for mode in modes if mode[1] != mode[2] and mode[0] > 1]
    if len(moving) != 2 or (moving[0][0], moving[0][1], moving[0][2]) != (moving[1][0], moving[1][2], moving[1][1]):
        return None
    inner, outer = sorted(moving[0][1:], key=lambda stride: (stride != 1, abs(stride)))
    return moving[0][0], inner, outer, tuple(Mode(*mode) for mode in modes if mode not in moving and mode[0] > 1)


def _in_place(problem: CopyProblem, device: DeviceInfo) -> _Kernel:
    found = square_modes(problem)
    if found is None:
        raise ValueError(f"only square matrices are transposed in place, got shape {problem.shape} with strides "
                         f"{problem.src_strides} in the source and {problem.dst_strides} in the target")
    n, inner, outer, batch = found
    item, unit = problem.itemsize, inner == 1
    copy = _Copy(problem, device, item, (Mode(n, outer, inner), Mode(n, inner, outer), *batch), (0, 0))
    others = [outer, *(m.dst for m in batch)]

    def widest(limit: int) -> int:
        return copy.vector(1, n, others, limit) * item if unit else item

    ragged = unit and item < 16 and n >= _RAGGED_SQUARES_FROM and widest(16) < 16
    tiling = _SQUARES[item]
    if ragged:
        large = _LARGE_SQUARES.get(item, _RAGGED_SQUARES[item])
        tiling = large if 2 * prod(large.tile) * item <= device.shared_bytes_per_block else _RAGGED_SQUARES[item]
    elif unit and any(stride * item % (_LINE if n >= _MANY else _SECTOR) for stride in others):
        tiling = _SPLIT_SQUARES.get(item, tiling)
    side, load, store = tiling.tile[0], widest(tiling.load), widest(16)
    packed = item < 4 and load >= 4 and store >= 4
    word = 4 if packed else item
    if ragged:
        word, load, store = max(item, 4), max(item, 4), 16
    elif not packed:
        load = store = item if item < 4 else min(load, store)
        side = min(side, _SINGLE.get(item, side))
    reach = (n - 1) * (abs(inner) + abs(outer)) + sum((m.extent - 1) * abs(m.dst) for m in batch)
    # Predicates stop threads, not addresses: those of the last tiles end beyond the matrix.
    beyond = 2 * side * (abs(inner) + abs(outer))
    threads = _BYTEWISE if word == 1 else tiling.threads
    config = TransposeConfig(item, word, load, store, (side, side), threads, unit, unit, len(batch), reach + beyond >= _NARROW_SPAN,
                             tiling.group, min_blocks=tiling.min_blocks if (load, store) == (tiling.load, 16) else 1, in_place=True,
                             cut=_SECTOR if ragged else 0)
    tiles = -(-n // side)
    blocks = tiles * (tiles + 1) // 2 * prod(m.extent for m in batch)
    reason = (f"square matrices in place: each block exchanges two tiles of {side} x {side} elements through swizzled shared "
              f"memory, reads of {load} and writes of {store} bytes")

    def plan() -> Plan:
        if blocks >= 2**31:
            raise ValueError(f"a transposition of shape {problem.shape} in place needs {blocks} blocks; a grid has at most "
                             "2^31 - 1")
        kernel = transpose_kernel(config)
        steps = tuple(m.dst // config.scale for m in batch)
        numbers: dict[str, Any] = {"N": n, "D": View(Argument(role="dst"), (inner, outer // config.scale), steps)}
        if ragged and config.packed > 1:
            numbers["D_lowest"], numbers["D_end"] = _span([(n, inner), (n, outer), *((m.extent, m.dst) for m in batch)])
        made = launch(kernel, (blocks, 1, 1), numbers, batch_values(tuple(m.extent for m in reversed(batch))))
        return Plan(problem, device, "transpose_in_place", config, (made,), reason=reason, facts=kernel.facts)

    extents = min(n, side), min(n, side), *(1 for _ in batch)
    return copy.alternative("transpose_in_place", config, extents, blocks, plan)


VARIANTS = (
    Variant("copy", "copy", CHOSEN, "any copy whose sides run along the same mode, as vectors through registers", "sm_70",
            plan_copy),
    Variant("transpose", "copy", CHOSEN, "any permutation whose sides run along different modes, through swizzled shared memory",
            "sm_70", plan_copy),
    Variant("transpose_in_place", "copy", CHOSEN, "square matrices transposed in place, by pairs of tiles", "sm_70", plan_copy))
