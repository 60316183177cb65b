"""Plans on ``gemm_simt``: the tile and the number of slices of K with the least estimated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from ..._dtypes import DType, dtype
from ...kernels.common import OperandAccess
from ...kernels.gemm.rows import LEAST_ROW
from ...kernels.gemm.simt import SimtConfig, TileShape, gemm_simt
from ..cost.work import OF_A_WARP, Work
from ..floors import multiply_adds_per_clock
from ..operands import gemm_span, oriented, run_access, specialised
from ..problem import DeviceInfo, GemmProblem, Operand
from .family import Choice, Family, OneKernel, counted_blocks, depths_of_slices, is_divided

MAX_VECTOR = 4                      # elements of a vector access: what a thread owns side by side


_T = TileShape
_TILES = {"float32": (_T(256, 128, 8, warps=(4, 2), stages=4, in_order=True, totals="shared"),
                      _T(128, 256, 8, stages=4, totals="shared"),
                      _T(128, 128, 8, stages=4, totals="registers"),
                      _T(128, 64, 8, warps=(2, 2), stages=4, min_blocks=3, totals="shared"),
                      _T(64, 64, 16, warps=(2, 2), stages=3, min_blocks=4, totals="registers"),
                      _T(64, 32, 16, warps=(2, 1), stages=3, min_blocks=4, totals="registers"),
                      _T(32, 32, 16, warps=(1, 2), stages=3, min_blocks=6, totals="registers",
                         chains=4), _T(128, 16, 16, warps=(4, 1), stages=3, min_blocks=4,
                                       totals="registers"),
                      _T(16, 128, 16, warp=(4, 8), warps=(1, 4), stages=3, min_blocks=4,
                         totals="registers"),),
          "float64": (_T(128, 64, 8, warps=(2, 2), values=(2, 2), stages=3, min_blocks=2),
                      _T(128, 128, 8, warps=(2, 4), values=(2, 2), stages=3),
                      _T(64, 64, 8, warps=(2, 2), values=(2, 2), stages=4, min_blocks=3),
                      _T(32, 32, 16, warps=(2, 2), values=(2, 4), stages=4, min_blocks=2),),
          "complex64": (_T(128, 64, 8, values=(2, 2), stages=3, totals="registers"),
                        _T(64, 64, 8, warps=(2, 2), values=(2, 2), stages=4, min_blocks=2,
                           totals="registers"),
                        _T(32, 32, 8, warps=(2, 2), values=(2, 4), stages=4, min_blocks=3,
                           totals="registers", chains=4),),
          "complex128": (_T(64, 64, 4, warps=(2, 2), values=(1, 1), stages=4, min_blocks=2),
                         _T(32, 32, 8, warps=(1, 2), values=(2, 2), stages=4, min_blocks=4),
                         _T(32, 32, 8, warps=(2, 2), values=(2, 2), stages=4, min_blocks=3),),}
# tiles of a block that has a multiprocessor to itself: nothing else hides what predicates cost
_ALONE = 256 * 128
# of small tiles; threads of a multiprocessor that have 255 registers
_MOST_CHAINS, _THREADS_OF_MOST_REGISTERS = 8, 256
_SHORT, _LONG = 32, 512               # elements of K between which so many chains are added
_LONGEST_CHAIN, _FEW = 2048, 2        # elements of K; blocks for each multiprocessor
_MOST_SUMS = 64  # registers of a thread for sums, with which it has others for writing C by rows
_TURN = 64       # elements of K that a slice takes at a time: lines of 128 bytes, of any type, are
                 # read whole


def candidates(sums: str) -> tuple[TileShape, ...]:
    accumulator = dtype(sums)
    if accumulator.is_complex:
        return _TILES["complex128" if accumulator.bytes == 16 else "complex64"]
    return _TILES["float64" if accumulator.bytes == 8 else "float32"]


def summing(tile: TileShape, depth: int, blocks: int, item: int, device: DeviceInfo,
            slices: int = 1) -> TileShape:
    """The tile as ``blocks`` (0: unknown) add along a depth: totals of chunks, or chains."""
    # Large tiles have totals where few blocks have a long K, or half as long a slice, and room.
    # There, other libraries cut K; elsewhere they add in one chain too, and totals in shared
    # memory take 3 % of the time. Small ones have more chains up to a K of 512 where all blocks
    # run at once: of a K of 65, cuBLAS adds nine chains of 8, so that the first term is rounded 16
    # times; in 4 chains it was 19 times, in 8 it is 12.
    if tile.chains > 1:
        resident = _THREADS_OF_MOST_REGISTERS // tile.threads
        at_once = 0 < blocks <= resident * device.multiprocessors
        return replace(tile, chains=_MOST_CHAINS,
                       min_blocks=resident) if at_once and _SHORT < depth <= _LONG else tile
    deep = depth > _LONGEST_CHAIN // min(slices, 2) and blocks <= _FEW * device.multiprocessors
    if tile.totals != "shared" or tile.m * tile.n < _ALONE or (deep and tile.shared_bytes(item) <= device.shared_bytes_per_block):
        return tile
    return replace(tile, totals=None)


def resident_blocks(tile: TileShape) -> int:
    return max(tile.min_blocks, _THREADS_OF_MOST_REGISTERS // tile.threads)


def fused_unit(element: DType, accumulator: DType) -> str:
    """The kind of multiply-adds: those of other types than their sums' take other pipes too."""
    if element.is_stored:
        return "fused multiply-adds of 16 bits"
    if accumulator.kind == "b":
        return "fused multiply-adds of bool"
    return "fused multiply-adds of int32" if accumulator.is_integer and accumulator.bytes < 8 else "fused multiply-adds"


def multiply_clocks(sums: DType) -> int:
    """Clocks to issue a multiply-add: instructions, of which those of two clocks count twice."""
    each = 5 if sums.is_integer and sums.bytes == 8 else 4 if sums.is_complex else 1
    return each * (2 if sums.part.bytes == 8 or sums.kind in "iub" else 1)


def choices(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[TileShape]]:
    """Tiles and numbers of slices of K to choose from."""
    for tile, chunk in product(candidates(p.accumulator), depths_of_slices(p, device)):
        yield choice_of(p, tile, chunk, device)


def choice_of(p: GemmProblem, tile: TileShape, chunk: int,
              device: DeviceInfo) -> Choice[TileShape]:
    sums, slices = p.sum_bytes, -(-p.depth // max(1, chunk)) or 1
    blocks, counts = counted_blocks(p, tile, slices, chunk, resident_blocks(tile), device)
    c = _written(p, tile, device)
    whole = slices > 1 or c.width >= max(1, min(MAX_VECTOR, 16 // sums))
    writes = "vectors" if whole else "rows" if c.covering else "elements"
    work = tile_work(p, tile, chunk, device)._replace(**counts, writes=writes)
    name = f"{tile.m}x{tile.n} in {prod(tile.warps)} warps, K by {chunk}"
    tile = summing(tile, chunk, blocks, sums, device, slices)
    return Choice(tile, slices, chunk, blocks, work, name,
                  turn=_TURN if slices > 1 and _takes_turns(p, tile) else 0)


def tile_work(p: GemmProblem, tile: TileShape, depth: int, device: DeviceInfo) -> Work:
    sums, element = dtype(p.accumulator), dtype(p.a.dtype)
    depth, warps = -(-depth // tile.k) * tile.k, prod(tile.warps)
    rate = multiply_adds_per_clock("gemm_simt", sums.name, device) / (4 if sums.is_complex else 1)
    rows, columns = (
        n // (lanes * across)
        for n, lanes, across in zip((tile.m, tile.n), tile.warp, tile.warps, strict=True)
    )
    loads = warps * depth * (rows + columns) * max(4, sums.bytes) / 16
    words = sum(extent / (x.width if x.unit == 0 else 1)
                for x, extent in zip(p.map_inputs(simt_access), (tile.m, tile.n), strict=True))
    return Work(fused_unit(element, sums), "copies", clocks=tile.m * tile.n * depth / rate,
                wavefronts=2 * loads, instructions=loads / 4 + OF_A_WARP * warps,
                gathered=words * depth / 32, warps=warps)


def _takes_turns(p: GemmProblem, tile: TileShape) -> bool:
    """Whether slices of K take turns."""
    # A sum that grows along K is rounded as if it were the last slice's alone where slices are
    # ranges. Chunks with totals make that small; slices of one chain take turns, as cuBLAS's do,
    # which costs 4 instructions of 1100.
    sums = dtype(p.accumulator)
    return tile.totals is None and not p.is_nested and sums.kind in "fc" and sums.part.bytes <= 4


def simt_access(operand: Operand, extents: tuple[int, int],
                limit: int = MAX_VECTOR) -> OperandAccess:
    """How an operand can be read or written: unit stride, vector width along mode 0."""
    return run_access(0, operand, extents, limit)


def _written(p: GemmProblem, tile: TileShape, device: DeviceInfo) -> OperandAccess:
    """How C is written: through shared memory where rows are long and vectors would be narrow."""
    c, item = simt_access(p.c, p.shape, tile.values[0]), p.c.item
    narrow = c.unit == 0 and c.width < min(tile.values[0], 16 // item)
    room = tile.m * tile.n * max(4, p.sum_bytes) // (4 * tile.threads) <= _MOST_SUMS \
        and tile.rows_bytes(item) <= device.shared_bytes_per_block
    return replace(c, width=1,
                   covering=True) if narrow and room and p.m >= LEAST_ROW and not (p.triangle or p.is_nested) else c


def types(p: GemmProblem) -> str:
    """What is multiplied and how it is summed, in words."""
    operands = p.a.dtype if p.b.dtype == p.a.dtype else f"{p.a.dtype} by {p.b.dtype}"
    return operands if p.accumulator == p.a.dtype else f"{operands}, summed in {p.accumulator},"


def _words(p: GemmProblem, choice: Choice[TileShape]) -> str:
    return f"{types(p)} on fused multiply-adds; tile {choice.tile}"


def config_of(p: GemmProblem, device: DeviceInfo, choice: Choice[TileShape]) -> SimtConfig:
    """The kernel's configuration, C M-major if it can be; the outermost batch mode may be
    slices."""
    tile, reach = choice.tile, gemm_span(p, None if choice.turn else choice.chunk)
    a, b = p.map_inputs(simt_access)
    return specialised(SimtConfig, p, _written(p, tile, device), reach, 0, tile=tile, a=a, b=b,
                       split_k=choice.slices > 1, gate=choice.verdict, turn=choice.turn,
                       aligned=tile.m * tile.n >= _ALONE and is_divided(p, tile))


SIMT = Family("gemm_simt", lambda _p, _device: None, choices,
              OneKernel(gemm_simt, config_of, _words),
              partial(oriented, mode=0))     # threads write vectors of C along M
plan_simt = SIMT.plan
