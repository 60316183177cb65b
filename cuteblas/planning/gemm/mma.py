"""Plans on warp-level tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import inf, prod

from ..._dtypes import dtype
from ...codegen.mma import MmaAtom, mma_atom
from ...kernels.common import OperandAccess
from ...kernels.gemm.mma import MmaConfig, MmaTile, gemm_mma
from ...kernels.gemm.rows import LEAST_ROW
from ..cost.work import OF_A_WARP, Work
from ..floors import multiply_adds_per_clock
from ..operands import (
    NARROW_SPAN,
    VECTOR_BYTES,
    Facing,
    gemm_span,
    oriented,
    run_access,
    settled,
    specialised,
    vector_access,
)
from ..plan import Plan, least
from ..problem import DeviceInfo, GemmProblem, Operand, Pair
from .family import (
    MIN_SLICE,
    Choice,
    Family,
    OneKernel,
    adding_threads,
    counted_blocks,
    depths_of_slices,
    is_divided,
    steps_of_slices,
)

_PAIR = 2                            # elements of C along N that a thread has side by side
_STAGES = 4
_LEAST_COPIED = 4       # bytes that an asynchronous copy moves; narrower reads go through registers
# Multiply-adds of a multiprocessor in a clock through mma.sync, by bytes of an element, where
# tensor cores do more by other means: enough to weigh tiles against slices of K.
_PER_CLOCK = {1: 2048, 2: 1024}
_PRODUCTS_OF_PLANES = 6              # of bfloat16 for one of float32

# float64 and complex128.
# bytes of a tile of C that has a kernel without predicates where it divides the problem
_UNPREDICATED_FROM = 2**16

# Tiles of float64 whose registers a gate would spill, or rows of C with offsets of 64 bits; others,
# a gate and rows of C together.
_CROWDED = ((128, 64, 2, 2), (96, 80, 2, 2))

_ROOM_OF_A_ROW = 16           # bytes of shared memory that a row which is covered by words takes
                              # more than another
_FEW = 64                     # rows, columns or products of a sum: there one operand is most of
                              # what is read or written
_LINE = 128                   # bytes
_FULL = (1, 2, 4)             # times the blocks that fit on the device at once: into so many blocks
                              # thin products are cut
_THREADS, _SUMS = 512, 2**15  # of all blocks of 16 bits that a multiprocessor has registers for
# elements whose slices are added by several threads each; threads of a block
_FEW_RESULTS, _ADDING_THREADS = 2**17, 256

# Of tiles: M and N, warps along each, blocks on a multiprocessor.
_Shapes = tuple[tuple[int, int, int, int, int], ...]
# The step along K is 64 bytes.
_SHAPES: _Shapes = ((128, 256, 2, 4, 1), (128, 128, 2, 2, 1), (128, 64, 2, 2, 1),
                    (64, 128, 2, 2, 1), (64, 64, 2, 2, 1), (32, 32, 1, 1, 1))
# By type and oldest architecture of the instruction; the step along K is 128 bytes, or two
# instructions if they need more.
_WIDE_SHAPES: dict[tuple[str, str], _Shapes] = {
    ("float64", "sm_80"): (
        (128, 128, 4, 2, 1),
        (128, 64, 2, 2, 2),
        (128, 64, 4, 2, 1),
        (64, 128, 2, 4, 1),
        (64, 64, 2, 2, 2),
        (64, 32, 2, 2, 2),
        (32, 32, 2, 2, 2)
    ),
    ("float64", "sm_90"): (
        (128, 128, 4, 2, 1),
        (128, 64, 2, 2, 2),
        (128, 64, 4, 2, 1),
        (96, 96, 2, 4, 1),
        (96, 80, 2, 2, 2),
        (96, 64, 2, 2, 2),
        (64, 80, 2, 2, 2),
        (96, 48, 2, 2, 2),
        (64, 64, 2, 2, 2),
        (64, 48, 2, 2, 2),
        (64, 32, 4, 2, 1),
        (64, 32, 2, 2, 2),
        (32, 48, 2, 2, 3),
        (32, 32, 2, 2, 2)
    ),
    ("complex128", "sm_80"): (
        (128, 64, 4, 2, 1),
        (64, 128, 2, 4, 1),
        (64, 64, 2, 2, 2),
        (64, 32, 2, 2, 2),
        (32, 32, 2, 2, 2)
    ),
    ("complex128", "sm_90"): ((64, 64, 4, 2, 1), (64, 32, 4, 1, 2), (32, 32, 2, 2, 2)),
}


@lru_cache(maxsize=1024)
def _read(operand: Operand, extents: Pair) -> OperandAccess:
    """How ``gemm_mma`` reads an operand: rows of 2 bytes that begin anywhere by covering words."""
    # The first word of a row may hold what is before it, which is the array's memory if no row is
    # before its first one and that one begins at a word.
    access = vector_access(operand, extents)
    anywhere = access.unit is not None and access.width * operand.item == _LEAST_COPIED // 2
    forward = operand.alignment >= _LEAST_COPIED and min((*operand.strides,
                                                          *operand.batch_strides)) >= 0
    matrix = min(extents) > 1                   # a vector has one row, which begins where it begins
    return replace(access, covering=anywhere and operand.item == 2 and forward
                   and matrix)


def _by_rows(p: GemmProblem, tile: MmaTile, device: DeviceInfo) -> bool:
    """Whether C is written by rows through shared memory, by words or where pairs fail."""
    item, room = p.c.item, tile.rows_bytes(p.c.dtype) <= device.shared_bytes_per_block
    if not room or p.triangle or p.c.strides[1] != 1:
        return False
    elements = _LEAST_COPIED <= item < VECTOR_BYTES and p.n >= LEAST_ROW
    single = elements and vector_access(p.c, p.shape, _PAIR * item).width == 1
    return single or _read(p.c, p.shape).covering


def why_not_mma(p: GemmProblem, device: DeviceInfo) -> str | None:
    atom = mma_atom(p.a.dtype, device.arch)
    if atom is None or p.b.dtype != p.a.dtype:
        return f"{device.arch} has no mma.sync for {p.a.dtype}" + ("" if p.b.dtype == p.a.dtype
                                                                   else f" and {p.b.dtype}")
    if atom.accumulator == "int32" and p.c.dtype != "int32" and not p.compute:
        return f"mma.sync sums {p.a.dtype} in int32, but C is {p.c.dtype}"
    if p.accumulator != atom.accumulator:
        return f"mma.sync sums {p.a.dtype} in {atom.accumulator}, not in {p.accumulator}"
    if dtype(atom.element).bytes == 2 and p.precision == "ieee":
        return "precision='ieee' rounds every float32 sum, but tensor cores truncate within a step"
    if not p.depth:
        return "there is nothing to multiply"
    for name, (operand, extents) in zip("AB", p.inputs, strict=True):
        access = vector_access(settled(operand, extents, units=True), extents)
        if atom.per_register == 4 and access.unit != 1:
            return f"8-bit operands must be contiguous along K, but {name} has strides {operand.strides}"
    return None


def _both(m: int, n: int, blocks: int) -> _Shapes:
    """A tile of which each warp has all columns, and the same on its side."""
    return (m, n, 4, 1, blocks), (n, m, 1, 4, blocks)


# Of products with few columns or rows. A warp has all columns, or all rows, so that no other warp
# reads its part of the larger operand; the step along K is a line, and stages and blocks are as
# many as keep memory busy.
_OF_16_BITS = *_both(128, 16, 3), *_both(128, 32, 2), (64, 64, 2, 2, 3), (16, 16, 1, 1, 12)
_THIN_SHAPES: dict[str, _Shapes] = {
    "float16": _OF_16_BITS, "bfloat16": _OF_16_BITS,
    "float64": (*_both(128, 16, 3), (64, 16, 4, 1, 4), *_both(128, 32, 2)),
    "complex128": (*_both(64, 16, 2), (32, 16, 4, 1, 3)),
    "float32": (*_both(128, 16, 3), *_both(128, 32, 2), (64, 64, 2, 2, 2), (16, 16, 1, 1, 12),
                (32, 32, 1, 1, 8)),
    "complex64": (*_both(64, 16, 3), *_both(128, 16, 2), *_both(64, 32, 2), (16, 16, 1, 1, 12),
                  (32, 16, 1, 1, 8)),
}

# Of 16-bit operands that are read by covering words: small matrices of a batch are one step deep,
# and only blocks beside each other hide that each waits for its operands. There are no registers
# for offsets of 64 bits.
_COVERED_SHAPES: _Shapes = ((64, 64, 2, 2, 5), (64, 32, 2, 1, 6), (32, 64, 1, 2, 6),
                            (32, 32, 2, 1, 6))


def _wide_shapes(atom: MmaAtom) -> _Shapes:
    """The tiles of float64 or complex128; none for other types."""
    return _WIDE_SHAPES.get((atom.element, atom.arch), ())


def _shape(tile: MmaTile) -> tuple[int, int, int, int, int]:
    return tile.m, tile.n, *tile.warps, tile.min_blocks


def thin_tiles(atom: MmaAtom, device: DeviceInfo, depth: int,
               covered: bool = False) -> Iterator[MmaTile]:
    """Tiles for few columns or rows, with useful stages; ``covered`` operands have more of
    them."""
    shapes = _THIN_SHAPES.get(atom.element, ()) + _COVERED_SHAPES * covered
    step = max(_LINE // dtype(atom.element).bytes, 2 * atom.shape[2])
    return (_with_useful_stages(tile, depth) for tile in _fitting(shapes, atom, step, device))


def _with_useful_stages(tile: MmaTile, depth: int) -> MmaTile:
    return _at_most(tile, max(2, -(-depth // tile.k) + 1))


def _at_most(tile: MmaTile, stages: int) -> MmaTile:
    return tile if tile.stages <= stages else replace(tile, stages=stages)


def mma_tiles(atom: MmaAtom, device: DeviceInfo) -> Iterator[MmaTile]:
    """The tiles that planning chooses among on a device, the largest first."""
    item = dtype(atom.element).bytes
    return _fitting(_wide_shapes(atom) or _SHAPES, atom,
                    max((128 if item >= 8 else 64) // item, 2 * atom.shape[2]), device)


def _fitting(shapes: _Shapes, atom: MmaAtom, k: int, device: DeviceInfo) -> Iterator[MmaTile]:
    """Tiles of these shapes, with as many stages as there is room for."""
    for m, n, down, across, blocks in shapes:
        tile = MmaTile(m, n, k, atom, (down, across), min_blocks=blocks)
        stages = min(_STAGES, device.shared_bytes_per_block // (tile.stage_bytes * blocks))
        if stages >= 2:
            yield replace(tile, stages=stages)


def resident_blocks(tile: MmaTile, device: DeviceInfo) -> int:
    if _wide_shapes(tile.atom):
        return tile.min_blocks
    room = min(_THREADS // (32 * prod(tile.warps)), _SUMS // (tile.m * tile.n))
    return max(1, min(room, device.shared_bytes_per_block // (tile.stages * tile.stage_bytes)))


def _is_crowded(tile: MmaTile) -> bool:
    """Whether a tile leaves no registers for a gate, or for rows of C with wide offsets."""
    return _shape(tile)[:4] in _CROWDED


def mma_choices(p: GemmProblem, device: DeviceInfo, *,
                atom_of: Callable[[str, str], MmaAtom | None] = mma_atom) -> Iterator[Choice[MmaTile]]:
    """Tiles and slices of K to choose from."""
    atom, covered = atom_of(p.a.dtype, device.arch), any(_covered(p))
    assert atom is not None
    fitted = partial(_with_room, p, device)
    if min(p.m, p.n, p.k) <= _FEW and not p.triangle and not any(p.map_inputs(_is_narrow)):
        narrow = covered and gemm_span(p, p.k) < NARROW_SPAN
        for tile in map(fitted, thin_tiles(atom, device, p.k, narrow)):
            for chunk in _thin_chunks(p, device, tile):
                yield _choice(p, tile, chunk, device, thin=True)
    if atom.splits:
        return
    depths = list(depths_of_slices(p, device))
    for tile in map(fitted, mma_tiles(atom, device)):
        for chunk in depths:
            yield _choice(p, tile, chunk, device)


def _covered(p: GemmProblem) -> tuple[bool, bool]:
    """Whether A and B are read by the words that cover their rows."""
    return p.map_inputs(lambda *x: _read(*x).covering)


def _with_room(p: GemmProblem, device: DeviceInfo, tile: MmaTile) -> MmaTile:
    """A tile with no more stages than there is room for beside covered rows."""
    more = sum(_ROOM_OF_A_ROW * (extent if x.strides[1] == 1 else tile.k)
               for x, extent, covered in zip((p.a, p.b), (tile.m, tile.n), _covered(p), strict=True)
               if covered)
    room = device.shared_bytes_per_block // (tile.min_blocks * (tile.stage_bytes + more))
    return _at_most(tile, max(2, room))


def _is_narrow(x: Operand, extents: Pair) -> bool:
    """Whether an operand cannot be copied asynchronously."""
    access = _read(x, extents)
    return not access.covering and access.width * x.item < _LEAST_COPIED


def _thin_chunks(p: GemmProblem, device: DeviceInfo, tile: MmaTile) -> list[int]:
    """Depths of slices with which blocks fill the device."""
    steps = steps_of_slices(p, tile, device, _FULL, p.k // MIN_SLICE, tile.min_blocks)
    return [p.k, *(tile.k * count for count in steps)]


def _choice(p: GemmProblem, tile: MmaTile, chunk: int, device: DeviceInfo,
            thin: bool = False) -> Choice[MmaTile]:
    """A tile, K in slices of such a depth, and what that does."""
    slices, item, wide = -(-p.k // chunk), p.c.item, _wide_shapes(tile.atom)
    resident = tile.min_blocks if thin else resident_blocks(tile, device)
    blocks, counts = counted_blocks(p, tile, slices, chunk, resident, device, 1 + tile.atom.splits)
    pair = min(VECTOR_BYTES, _PAIR * item)
    access = vector_access(p.c, p.shape, pair)
    whole = slices > 1 or (access.unit == 1 and access.width * item >= pair)
    by_rows = slices == 1 and _by_rows(p, tile, device)
    work = tile_work(p, tile, chunk, device)._replace(
        **counts, reads="streams" if thin else "copies",
        writes="rows" if by_rows else "vectors" if whole else "elements")
    lines = f" by {tile.k} of K" if thin and not tile.atom.splits else ""
    beside = f" and {tile.min_blocks} blocks" if _shape(tile) in _COVERED_SHAPES else ""
    name = f"{tile.m}x{tile.n}{lines} in {prod(tile.warps)} warps{beside}, K by {chunk}"
    if wide and not thin:
        tile = _apart(tile, counts["tiles"], device)
    elif not wide and not tile.atom.splits:
        tile = _with_useful_stages(tile, chunk)
    return Choice(tile, slices, chunk, blocks, work, name, adding=_adding(p, slices))


def tile_work(p: GemmProblem, tile: MmaTile, depth: int, device: DeviceInfo) -> Work:
    element, warps = dtype(tile.atom.element), prod(tile.warps)
    item, depth, wide = element.bytes, -(-depth // tile.k) * tile.k, element.bytes >= 8 and not tile.atom.splits
    multiplied = "float64" if wide else element.name if item < 4 else "float16"
    most = inf if wide else _PER_CLOCK[min(item, 2)]
    rate = min(most, multiply_adds_per_clock("gemm_mma", multiplied, device))
    rate /= (4 if element.is_complex else 1) * (_PRODUCTS_OF_PLANES if tile.atom.splits else 1)
    reads = [(_read(*x), extent) for x, extent in zip(p.inputs, (tile.m, tile.n), strict=True)]
    words = sum(extent / (_LEAST_COPIED / item if x.covering else x.width) for x, extent in reads)
    converted = sum(extent for x, extent in reads if x.covering)
    if tile.atom.splits:                                   # each warp splits what it loads
        converted += tile.m * tile.warps[1] + tile.n * tile.warps[0]
    fragments = warps * (tile.m // tile.warps[0] + tile.n // tile.warps[1])
    return Work("tensor cores, float64" if wide else "tensor cores", "copies",
                clocks=tile.m * tile.n * depth / rate, wavefronts=fragments * depth * item / 128,
                instructions=OF_A_WARP * warps, gathered=words * depth / 32,
                converted=converted * depth * item, warps=warps)


def _adding(p: GemmProblem, slices: int) -> int:
    """Threads that add an element's slices: several if elements are few and fill a block."""
    threads = adding_threads(slices)
    few = p.outputs <= _FEW_RESULTS and p.n * threads >= _ADDING_THREADS
    return threads if slices > 2 and few else 1


def _apart(tile: MmaTile, busiest: int, device: DeviceInfo) -> MmaTile:
    """The tile with a ring so long that no more blocks fit than the busiest multiprocessor has."""
    # A launch begins while the one before it ends: its blocks would go, several at once, where
    # there is room first, and stay there.
    if busiest > tile.min_blocks:
        return tile
    return replace(tile, stages=max(tile.stages,
                                    device.shared_bytes_per_block // ((busiest + 1)
                                                                      * tile.stage_bytes) + 1))


def facing_rows(problem: GemmProblem) -> Facing:
    """The problem whose C is written along its rows: threads hold pairs of C along N."""
    p, note = oriented(problem, 1)
    a, b = p.map_inputs(partial(settled, units=True))
    return replace(p, a=a, b=b), note


def _words(p: GemmProblem, choice: Choice[MmaTile]) -> str:
    covered = " and ".join(name for name, words in zip("AB", _covered(p), strict=True) if words)
    read = f", {covered} read as the words that cover their rows" if covered else ""
    sums = choice.tile.atom.accumulator
    return f"{p.a.dtype} on tensor cores by mma.sync, {sums} accumulation{read}; tile {choice.tile}"


def _config(p: GemmProblem, device: DeviceInfo, choice: Choice[MmaTile]) -> MmaConfig:
    """The kernel's configuration; the outermost batch mode walks over slices, if any."""
    tile, atom = choice.tile, choice.tile.atom
    run = tile.run(p.c.dtype, p.triangle)
    c = run_access(1, p.c, p.shape, min(VECTOR_BYTES // p.c.item, run))
    reach = gemm_span(p, choice.chunk)
    crowded = choice.verdict is not None or (reach >= NARROW_SPAN and _is_crowded(tile))
    c = replace(c, covering=_by_rows(p, tile, device) and not crowded)
    a, b = p.map_inputs(_read)
    large = tile.m * tile.n * dtype(atom.element).bytes >= _UNPREDICATED_FROM
    aligned = large and bool(_wide_shapes(atom)) and not choice.chunk % tile.k
    return specialised(MmaConfig, p, c, reach, accumulator=None, tile=tile, a=a, b=b,
                       split_k=choice.slices > 1, gate=choice.verdict,
                       aligned=aligned and is_divided(p, tile))


MMA = Family("gemm_mma", why_not_mma, mma_choices, OneKernel(gemm_mma, _config, _words, mode=1),
             facing_rows)


def plan_mma(problem: GemmProblem, device: DeviceInfo, choice: Choice[MmaTile] | None = None,
             gate: int | None = None) -> Plan:
    """The plan on ``gemm_mma``; with a ``gate``, on a tile that leaves registers for it."""
    if gate is not None and not choice and why_not_mma(problem, device) is None:
        tilings = (x for x in MMA.choices(problem, device) if not _is_crowded(x.tile))
        choice = least(tilings, device)
    return MMA.plan(problem, device, choice, gate)
