"""Plans on ``gemm_outer``: products with a short K, bound by the memory that C is written to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import gcd

from ..._dtypes import dtype
from ...kernels.common import OperandAccess
from ...kernels.gemm.outer import SECTOR, OuterConfig, OuterTile, gemm_outer
from ..cost.work import OF_A_WARP, Work, blocks_in_turns
from ..floors import compulsory_bytes
from ..operands import (
    NARROW_SPAN,
    VECTOR_BYTES,
    fused,
    gemm_span,
    oriented,
    specialised,
)
from ..problem import DeviceInfo, GemmProblem
from .family import Choice, Family, OneKernel, why_not_plain
from .simt import multiply_clocks, simt_access, types

DEEPEST = 8
"""The largest K: with more, too few elements of B are in registers to fill sectors."""
_WORDS, _FEWER = 32, 24            # registers of a thread for B; where bytes, loaded scalars or
                                   # wide offsets need others
_WIDEST_GAP = 2                    # rows of C are at most so many times as far apart as they are
                                   # long
_STRETCHES = (1, 2, 4, 8, 16, 32)  # of a block
_BLOCKS_OF_A_STRETCH = 8           # that are to have work for all threads
_LOOP, _ANYWHERE = 11, 22          # instructions of a stretch beside its products, and where
                                   # vectors may be of two rows
_LOADS, _OF_L2 = 3, 4              # elements of A from L1 in the time of a line of L2; lines of L2
                                   # in that of one of memory
# of a multiprocessor, of a thread beside B and sums; blocks at once
_REGISTERS, _OWN, _FEWEST, _MOST = 65536, 28, 4, 8


@dataclass(frozen=True)
class OuterChoice(Choice[OuterTile]):
    """How C is cut: stretches of ``rows`` and ``length`` elements, ``stretches`` a block."""

    rows: int = field(kw_only=True)
    length: int = field(kw_only=True)
    stretches: int = field(kw_only=True)

    def __str__(self) -> str:
        return f"{self.tile}, {self.stretches} stretches of {self.rows} rows"


def why_not_outer(p: GemmProblem, device: DeviceInfo) -> str | None:
    if p.k > DEEPEST:
        return f"K is {p.k}, more than {DEEPEST}"
    if not p.depth:
        return "there is nothing to multiply"
    if refused := why_not_plain(p):
        return refused
    p, _note = oriented(p, 1)
    item, pitch = p.c.item, _pitch(p)
    if p.c.strides[1] != 1 and p.n > 1:
        return "C is contiguous neither along its rows nor along its columns"
    if p.n * item < SECTOR:
        return f"rows of C with {p.n} elements are shorter than a sector of memory"
    if not p.n <= pitch <= _WIDEST_GAP * p.n:
        return f"rows of C have {p.n} elements but lie {pitch} apart"
    return None


def _pitch(p: GemmProblem) -> int:
    return p.c.strides[0] if p.m > 1 else p.n


def _width(p: GemmProblem) -> int:
    """Elements of a vector of C: 16 bytes, or fewer where elements of B are too many."""
    item = p.c.item
    crowded = item == 1 or "device" in (p.alpha, p.beta) or gemm_span(p) >= NARROW_SPAN
    width, words = VECTOR_BYTES // item, _FEWER if crowded else _WORDS
    while width > 1 and width * p.k * max(4, p.sum_bytes) // 4 > words:
        width //= 2
    return width


def _sector(p: GemmProblem, width: int) -> int:
    """Elements of C that are whole vectors and whole sectors."""
    return max(width, SECTOR // p.c.item)


def _whole(p: GemmProblem, width: int) -> bool:
    """Whether vectors are of one row and aligned, and matrices begin at sectors."""
    aligned = p.c.alignment % (width * p.c.item) == 0 and not any(
        x % _sector(p, width) for x in p.c.batch_strides
    )
    return aligned and p.n % width == _pitch(p) % width == 0


def _rows(p: GemmProblem, tile: OuterTile) -> int:
    """Rows of a stretch: whole sectors that leave few threads of its last block idle."""
    pitch, block = _pitch(p), tile.threads * tile.width             # elements of C that it has
    sector = _sector(p, tile.width)
    fewest = sector // gcd(pitch, sector)
    most = max(1, min(_BLOCKS_OF_A_STRETCH * block // (fewest * pitch), -(-p.m // fewest)))

    def idle(times: int) -> tuple[float, int]:
        vectors = min(times * fewest, p.m) * pitch // tile.width
        stretches = -(-p.m // (times * fewest))
        return round(-(-vectors // tile.threads) * block * stretches / (p.m * pitch), 2), times

    return fewest * min(range(1, most + 1), key=idle)


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterable[OuterChoice]:
    """What there is to choose among."""
    tile = OuterTile(p.k, _width(p))
    width, threads, whole, rows = tile.width, tile.threads, _whole(p, tile.width), _rows(p, tile)
    sector, memory = _sector(p, width), p.m * _pitch(p)
    memory += 0 if whole else sector - 1
    # one stretch ends with C
    length = rows * _pitch(p) if rows < p.m else -(-memory // sector) * sector
    vectors, count = length // width, -(-memory // length)
    blocks = -(-vectors // threads)                             # that have vectors of a stretch
    warps = -(-vectors // (blocks * 32))                        # of a block, those with a vector
    kept = width * (p.k + 2) * max(4, p.sum_bytes) // 4
    resident = max(_FEWEST, min(_MOST, _REGISTERS // (threads * (_OWN + kept))))
    own, each = _instructions(p, width, whole)
    moved = compulsory_bytes(p) + (p.outputs * p.c.item if p.beta != "zero" else 0)

    def choice(stretches: int) -> OuterChoice:
        grid = blocks * -(-count // stretches) * p.matrices
        waits = stretches * max(1.0, p.k * max(1.0, p.a.item / 8) / _LOADS)
        work = Work("fused multiply-adds", "loads",
                    instructions=warps * ((own + stretches * each) / 4 + OF_A_WARP),
                    fetched=warps * (_fetched(p, width, whole) + stretches * p.k), warps=warps,
                    moved=moved, **blocks_in_turns(grid, resident, waits, 1 + _OF_L2, device))
        return OuterChoice(tile, 1, p.k, grid, work, rows=rows, length=length,
                           stretches=stretches)

    return map(choice, dict.fromkeys(min(stretches, count) for stretches in _STRETCHES))


def _fetched(p: GemmProblem, width: int, whole: bool) -> float:
    """Wavefronts in which a warp loads its elements of B: vectors in whole stretches."""
    by = width if whole and p.b.strides[0] == 1 else 1
    sectors = min(32, -(-width * p.b.item * abs(p.b.strides[0]) * 32 // SECTOR))
    return width // by * p.k * max(1.0, sectors / 4)


def _instructions(p: GemmProblem, width: int, whole: bool) -> tuple[float, float]:
    """Instructions before the first stretch and for each; those of two clocks count twice."""
    multiply, item, pitch = multiply_clocks(dtype(p.accumulator)), p.c.item, _pitch(p)
    packing = {1: 3.0, 2: 0.5}.get(item, 0.0) + (p.fusion is not None or p.beta != "zero")
    each = _LOOP + p.k * (2 + width * multiply) + width * packing
    if whole:
        return 80 + 2 * width * p.k, each
    # of warps, those that have a vector of two rows
    crossing = min(1.0, 32 * width / pitch)
    each += _ANYWHERE + crossing * (p.k * (2 + width * multiply) + 2 * width)
    # of warps, those with a vector at the edge of a gap between rows, whose elements are written
    # one by one
    edges = min(1.0, 2 * 32 * width / pitch) if pitch > p.n else 0.0
    return 160 + 8 * width + 4 * width * p.k, each + edges * width * (20 + p.k * (8 + multiply))


def _words(p: GemmProblem, choice: OuterChoice) -> str:
    return f"{types(p)} on fused multiply-adds as C lies in memory; {choice}"


def config_of(p: GemmProblem, _device: DeviceInfo, choice: OuterChoice) -> OuterConfig:
    """What the kernel is specialised on, of a problem with C along its rows."""
    tile = choice.tile
    whole = _whole(p, tile.width)
    # the last stretch may end after C
    reached = max(gemm_span(p), (p.m * _pitch(p) + choice.length) // 2)
    most = tile.width if whole else 1
    a = replace(simt_access(p.a, (p.m, p.k)), width=1)
    return specialised(OuterConfig, p, OperandAccess(1, tile.width), reached, tile=tile, a=a,
                       b=simt_access(p.b, (p.n, p.k), most), epilogue=fused(p, 1, most),
                       whole=whole, dense=_pitch(p) == p.n)


OUTER = Family("gemm_outer", why_not_outer, _tilings, OneKernel(gemm_outer, config_of, _words))
plan_outer = OUTER.plan
