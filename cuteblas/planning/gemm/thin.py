"""Plans on ``gemm_thin``: few rows or columns, bound by the memory of the larger operand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd, prod
from operator import mul

from ..._dtypes import dtype
from ...codegen.architectures import capabilities
from ...kernels.common import OperandAccess
from ...kernels.gemm.thin import ThinConfig, ThinTile, gemm_thin
from ..cost.work import OF_A_WARP, Work
from ..floors import multiply_adds_per_clock
from ..operands import (
    VECTOR_BYTES,
    Facing,
    gemm_span,
    power_of_two,
    settled,
    specialised,
    turned,
    vector_access,
)
from ..problem import DeviceInfo, GemmProblem, Operand, Pair
from .family import (
    Choice,
    Family,
    OneKernel,
    adding_threads,
    counted_blocks,
    steps_of_slices,
    why_not_plain,
)
from .simt import fused_unit, types

_COLUMNS = (1, 2, 3, 4, 6, 8)               # of tiles
MOST_COLUMNS = _COLUMNS[-1]
"""With more, sums take so many registers that too little is on its way from memory."""
_MANY = 8                                   # columns from which sums take most registers
_WARPS = ((4, 1), (2, 2), (1, 4), (1, 1), (1, 8))
_STEP_BYTES = 32, 128  # the least and the most that a thread loads of A before it multiplies: into
                       # registers,
_STAGE_BYTES = 32, 64  # or into a stage of the ring
_STAGES = 4
_RINGED_FROM = 4                  # columns: with fewer, registers have room for what is on its way
_LEAST_COPIED = 4                 # bytes of asynchronous copies; registers read narrower ones
_REGISTERS, _OWN = 168, 32        # of 4 bytes: what a thread may use, and what addresses and
                                  # predicates take of them
_EASY = 104                       # registers with which it is not slower
_OF_MULTIPROCESSOR = 65536, 2048  # registers and threads
_SHARED = 224 << 10               # bytes of shared memory on a multiprocessor
_LINE = 128                       # bytes of a line, and of a wavefront
_FULL = (1, 2, 4, 8)              # blocks on each multiprocessor for which K is cut into slices
_LEAST_STEPS = 2                  # of a slice
_FOLDING = 1.5                    # clocks of the instructions with which lanes add a word
_PADDING = 2                      # a tile is at most so many times the matrix


_Accesses = tuple[OperandAccess, OperandAccess]


def why_not_thin(p: GemmProblem, device: DeviceInfo) -> str | None:
    if min(p.m, p.n) > MOST_COLUMNS:
        return f"the result has more than {MOST_COLUMNS} rows and more than {MOST_COLUMNS} columns"
    return why_not_plain(p)


def _facing(p: GemmProblem) -> Facing:
    """The problem whose result has few columns."""
    swapped = p.n > p.m or (p.n == p.m and p.a.strides[1] != 1 and p.b.strides[1] == 1)
    return turned(p, swapped, "columns are few")


def _access(operand: Operand, extents: Pair) -> OperandAccess:
    """How an operand is accessed, whatever the strides of modes of extent 1 are."""
    return vector_access(settled(operand, extents), extents)


def _narrowed(access: OperandAccess, owned: Pair) -> OperandAccess:
    """How threads that own so many elements along each mode access an operand."""
    return access if access.unit is None else replace(access, width=gcd(access.width,
                                                                        owned[access.unit]))


def _read(accesses: _Accesses, tile: ThinTile) -> _Accesses:
    a, b = accesses
    return _narrowed(a, tile.values), _narrowed(b, (tile.n, tile.values[1]))


def _registers(p: GemmProblem, tile: ThinTile) -> int:
    """Registers of a thread; short elements are converted there."""
    (vm, vk), (rm, rk) = tile.values, tile.rest
    a, b, sums = (max(4, item) for item in (p.a.item, p.b.item, p.sum_bytes))
    of_b = tile.n * vk * rk * b * (2 if tile.stages > 1 else 1)
    return _OWN + (vm * vk * rm * rk * a + of_b + vm * rm * tile.n * sums) // 4


def _shared_bytes(p: GemmProblem, tile: ThinTile) -> int:
    ring = tile.stages * tile.threads * prod(tile.values + tile.rest) * p.a.item
    sums = tile.m * tile.n * tile.warps[1] * p.sum_bytes
    return ring * (tile.stages > 1) + sums * (tile.warps[1] > 1)


def _choice(p: GemmProblem, accesses: _Accesses, tile: ThinTile, steps: int,
            device: DeviceInfo) -> Choice[ThinTile]:
    """A tile, K in slices of so many steps, and what that does."""
    (a, b), kind, item = _read(accesses, tile), dtype(p.accumulator), p.a.item
    (vm, vk), (rm, rk) = tile.values, tile.rest
    chunk = steps * tile.k
    slices, warps = -(-p.k // chunk) if chunk else 1, tile.threads // 32
    steps = -(-min(chunk, p.depth) // tile.k)
    # Of a warp in a step: loads, and wavefronts of them.
    loads_a, loads_b = rm * rk * vm * vk // a.width, tile.n * rk * vk // b.width
    spread = 32 * item if a.unit is not None or tile.fast == 1 else 32 * 32
    lines_a, lines_b = (max(1, -(-x // _LINE))
                        for x in (spread * a.width, tile.lanes[1] * p.b.item * b.width))
    wavefronts = loads_a * lines_a * (2 if tile.stages > 1 else 1) + loads_b * lines_b
    registers, (most, threads) = _registers(p, tile), _OF_MULTIPROCESSOR
    resident = max(1, min(most // (tile.threads * (registers + 8)), threads // tile.threads, 32,
                          _SHARED // max(_shared_bytes(p, tile), 1)))
    folded = _FOLDING * _folded(tile) * max(1, kind.bytes // 4)
    products = multiply_adds_per_clock("gemm_simt", kind.name, device)
    products /= 4 if kind.is_complex else 1
    blocks, counts = counted_blocks(p, tile, slices, min(chunk, p.depth), resident, device)
    work = Work(fused_unit(dtype(p.a.dtype), kind), "streams" if tile.stages > 1 else "loads",
                clocks=warps * steps * 32 * tile.n * vm * vk * rm * rk / products,
                fetched=warps * steps * wavefronts,
                instructions=warps * (steps * (loads_a + loads_b) / 4 + folded + OF_A_WARP),
                crowded=max(0, registers - _EASY) / _REGISTERS, warps=warps,
                **counts | {"written": 0.0})
    return Choice(tile, slices, chunk, blocks, work, adding=adding_threads(slices))


def _tiles(p: GemmProblem, a: OperandAccess, b: OperandAccess,
           device: DeviceInfo) -> Iterator[ThinTile]:
    """The tiles with the widest vectors of which any fits."""
    n, item, extents = next(x for x in _COLUMNS if x >= p.n), p.a.item, (p.m, p.k)
    fast = a.unit if a.unit is not None else min(
        (1, 0), key=lambda mode: (extents[mode] == 1, abs(p.a.strides[mode])))
    # Of K that a thread multiplies at a time: less where that of B would leave no registers.
    deepest = min(b.width, VECTOR_BYTES // item) if fast == 0 and b.unit == 1 else 1
    rows = sorted({1, 2, 4, p.m} if p.m == 3 else {1, 2, 4})
    for depth, width in product((16, 8, 4, 2, 1), repeat=2):
        if deepest % depth or a.width % width:
            continue
        values = (width, depth) if fast == 0 else (1, width)
        down, along = (min(32, power_of_two(-(-x // v)))
                       for x, v in zip(extents, values, strict=True))
        lines = {x for x in (32, max(1, _LINE // (item * width))) if x <= along} or {along}
        ringed = n >= _RINGED_FROM and width * item >= _LEAST_COPIED and capabilities(device.arch).async_copies
        found = False
        for lanes, warps, *rest in product(sorted(lines if fast else {32 // down}, reverse=True),
                                           _WARPS, rows, (1, 2, 4, 8, 16)):
            tile = ThinTile(n, (32 // lanes, lanes), warps, values, (rest[0], rest[1]), fast)
            stages = _STAGES if ringed and p.k >= _STAGES * tile.k else 1
            tile = replace(tile, stages=stages)
            # short ones are converted
            nbytes = prod(values) * prod(rest) * max(item, 4 if stages == 1 else 1)
            least, most = _STEP_BYTES if stages == 1 else _STAGE_BYTES
            fits = (nbytes >= least or n >= _MANY or tile.k >= p.k) and (nbytes <= most
                                                                         or prod(rest) == 1)
            padded = any(size >= _PADDING * extent and count > 1 for size, extent, count in zip(
                (tile.m, tile.k), extents, map(mul, warps, rest), strict=True))
            if fits and not padded and _registers(p, tile) <= _REGISTERS:
                found = True
                yield tile
        if found:
            return


def _folded(tile: ThinTile) -> int:
    """Elements that a thread exchanges with other lanes and warps, and then writes."""
    sums, count = tile.values[0] * tile.rest[0] * tile.n, 0
    for i in range(tile.lanes[1].bit_length() - 1):
        sums = sums // 2 if i < tile.halvings else sums
        count += sums
    return count + (2 if tile.warps[1] > 1 else 1) * sums


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[ThinTile]]:
    """Tiles and slices to choose from."""
    accesses = p.map_inputs(_access)
    for tile in _tiles(p, *accesses, device):
        steps = -(-p.k // tile.k)
        cut = steps_of_slices(p, tile, device, _FULL, steps // _LEAST_STEPS)
        for each in (steps, *reversed(cut)):
            yield _choice(p, accesses, tile, each, device)


def _words(p: GemmProblem, choice: Choice[ThinTile]) -> str:
    return f"{types(p)} on fused multiply-adds, A straight into registers; tile {choice.tile}"


def config_of(p: GemmProblem, _device: DeviceInfo, choice: Choice[ThinTile]) -> ThinConfig:
    """The kernel's configuration; the outermost batch mode walks over slices, if any."""
    tile = choice.tile
    a, b = _read(p.map_inputs(_access), tile)
    c = _narrowed(_access(p.c, p.shape), (tile.values[0], tile.columns))
    return specialised(ThinConfig, p, c, gemm_span(p, choice.chunk), int(c.unit == 1), tile=tile,
                       a=a, b=b, split_k=choice.slices > 1, gate=choice.verdict)


THIN = Family("gemm_thin", why_not_thin, _tilings, OneKernel(gemm_thin, config_of, _words), _facing)
plan_thin = THIN.plan
