"""From a copy or permutation problem to a plan: merged modes, tile, vector widths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod

from ...kernels.copy.straight import CopyConfig
from ...kernels.copy.tiles import TransposeConfig
from ..operands import VECTOR_BYTES
from ..plan import Plan
from ..problem import CopyProblem, DeviceInfo, Mode, Pair, merged
from ..variants import CHOSEN, Variant, variant
from .boxes import boxes_of
from .work import Copy, CopyKernel, is_wide

__all__ = ["CopyKernel", "canonical_modes", "copy_alternatives", "copy_choice", "is_wide",
           "plan_copy", "square_modes"]

_WORD, _SECTOR, _LINE = 4, 32, 128                     # bytes
_RAGGED_FROM, _RAGGED_COPY_FROM = 32, 64   # elements of rows that begin anywhere and are cut
_RAGGED_COPY_BLOCKS = 8              # for each multiprocessor, from which their tiles are large

# Bytes from which permutations may go by boxes: their kernels have the extents of short modes, so
# that every shape is compiled; and bytes of rows up to which copies of matrices, which permute
# nothing, do.
_BOXED_FROM, _SHORT_RUN = 1 << 17, 64
# The part of tiles that is full, from which transposes go by tiles alone: the model takes full
# tiles for slower than they were measured.
_FULL = 0.7

# Elements from which rows of a square matrix should begin at lines, not only at sectors
_LONG_SQUARE = 1024


def canonical_modes(problem: CopyProblem) -> tuple[tuple[Mode, ...], Pair]:
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
    return tuple(sorted(found, key=lambda m: m.dst)), (src_offset, dst_offset)


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
        found = square_modes(problem)
        if found is None:
            raise ValueError(
                f"only square matrices are transposed in place, got shape {problem.shape} with strides "
                f"{problem.src_strides} in the source and {problem.dst_strides} in the target"
            )
        n, inner, outer, batch = found
        modes = Mode(n, outer, inner), Mode(n, inner, outer), *batch
        return [_turned(Copy.of(problem, device, modes), 1)]
    modes, offsets = canonical_modes(problem)
    copy = _with_wide_words(Copy.of(problem, device, modes or (Mode(1, 1, 1),), offsets))
    j = copy.orders[0][0]
    chosen = _turned(copy, j) if j != 0 and copy.modes[j].src == 1 else _straight(copy)
    return [chosen, *(boxes_of(copy) if _in_boxes(copy, j, chosen) else ())]


def _with_wide_words(copy: Copy) -> Copy:
    """A copy of wider elements as often as the first mode is one and others are transposed."""
    first, *others = copy.modes
    n, nbytes = first.extent, first.extent * copy.item
    alignments = copy.problem.src_alignment, copy.problem.dst_alignment
    if first.strides != (1, 1) or nbytes not in (2, 4, 8, 16) or not others \
            or others[0].dst != n or others[0].src == n or all(m.src != n for m in others):
        return copy
    if any(stride % n for m in others for stride in m.strides) \
            or any(alignment % nbytes for alignment in alignments):
        return copy                           # else offsets, of steps along other modes, divide too
    wide = copy.of_words(n)
    return _with_wide_words(replace(wide, modes=wide.modes[1:]))


# -- boxes ----------------------------------------------------------------------------------------
def _in_boxes(copy: Copy, j: int, tiles: CopyKernel) -> bool:
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


# -- copies along the rows ------------------------------------------------------------------------
def _straight(copy: Copy) -> CopyKernel:
    item, first, both = copy.item, copy.modes[0], "both sides run along the same mode"
    if len(copy.modes) == 1:
        copy = replace(copy, modes=(first, Mode(1, 0, 0)))
    q = max(range(1, len(copy.modes)), key=lambda q: copy.modes[q].extent)
    rows, contiguous = copy.modes[q].extent, first.strides == (1, 1)
    word = gcd(copy.vector_bytes(0, 0), copy.vector_bytes(1, 0)) if contiguous else item
    if contiguous and word < _WORD and first.extent >= _RAGGED_COPY_FROM:
        # small elements between rows that begin anywhere
        vector = VECTOR_BYTES // item
        vectors = -(-(first.extent + vector - 1) // vector)
        large = -(-vectors // 32) * -(-rows // 16) * prod(m.extent for m in copy.others(0, q))
        enough = large >= _RAGGED_COPY_BLOCKS * copy.device.multiprocessors
        along, across = (256, 1) if rows < 8 else (32, 16 if enough else 8)
        return copy.kernel(
            CopyConfig(item, (along, across), anywhere=True), "IJ",
            {0: along * vector, q: across},
            f"{both}, and rows begin anywhere: tile {(along * vector, across)}, "
            "writes of 16 bytes, each read as the 4-byte words that cover it", halo=vector - 1
        )
    copy = copy.of_words(word // item)
    along = copy.modes[0].extent
    width = 1024 if rows == 1 else next((n for n in (1024, 256, 64) if along >= n), 32)
    tile = width, 1024 // width
    return copy.kernel(CopyConfig(word, tile, 256, first.src == 1, first.dst == 1), "IJ",
                       dict(zip((0, q), tile, strict=True)),
                       f"{both}: vectors of {word} bytes straight "
                       f"through registers, tile {tile} vectors")


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


def _turned(copy: Copy, j: int) -> CopyKernel:
    """A permutation whose target runs along the first mode and whose source along mode ``j``, or
    squares of these modes in place."""
    item, mode_i, mode_j, others = copy.item, copy.modes[0], copy.modes[j], copy.others(0, j)
    in_place, unit = copy.problem.in_place, mode_i.dst == 1
    load = copy.vector_bytes(0, j) if mode_j.src == 1 else item
    store = copy.vector_bytes(1, 0) if unit else item
    border = _LINE if in_place and mode_i.extent >= _LONG_SQUARE else _SECTOR
    apart = all(m.dst * item % border == 0 for m in copy.others(0))
    if in_place:
        tiling = _square_tiling(item, unit and not apart)
    elif store == VECTOR_BYTES and apart:
        tiling = _whole_tiling(item, mode_j.extent, mode_i.extent, load)
    else:
        tiling = _usual_tiling(item)
    most = tiling.load or min(VECTOR_BYTES, _WORD * item)  # of what is read for packed elements
    load = min(load, most)
    full = store == VECTOR_BYTES and (in_place or (apart and load == most))
    ragged = unit and not full and min(mode_i.extent, mode_j.extent) >= _RAGGED_FROM
    if ragged:
        tiling = _ragged_square_tiling(item, copy.device) if in_place else _ragged_tiling(item)
    elif store < VECTOR_BYTES or load < most:
        tiling = replace(tiling, min_blocks=1)
    word, load, store = _words(item, load, store, ragged)
    if in_place and word == 1:
        tiling = replace(tiling, threads=512)
    elif in_place and word == 2:           # one by one: a thread has those of both in registers
        tiling = replace(tiling, tile=(64, 64))
    # All indices of batch modes between I and J in the target have a strip, then of one tile,
    # before the next one begins: so rows of the target are written in order through all of them.
    inner = 0 if in_place else sum(m.dst < mode_j.dst for m in others)
    cut = ragged * _SECTOR * (1 if item < 8 or in_place else 2)
    config = TransposeConfig(item, word, load, store, tiling.tile, tiling.threads, unit,
                             len(others), group=1 if inner else tiling.group, inner=inner,
                             min_blocks=tiling.min_blocks, in_place=in_place, cut=cut)
    what = ("square matrices in place, two tiles for each block" if in_place
            else "source and target run along different modes")
    rows = f", rows that begin anywhere are cut at multiples of {cut} bytes" if cut else ""
    reason = (f"{what}: tiles of {config.tile} elements through swizzled shared memory, "
              f"reads of {load} and writes of {store} bytes{rows}")
    along_j, along_i = config.tile
    names, tile = ("NN", {0: along_i, j: along_j}) if in_place else ("JI", {j: along_j, 0: along_i})
    return copy.kernel(config, names, tile, reason, halo=config.halo)


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
