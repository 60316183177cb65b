"""Persistent blocks for Hopper: one thread fills a ring of shared-memory stages by TMA, warpgroups multiply from it.

Full and empty mbarriers hand the stages back and forth. Every block walks over tiles of C in a raster that shares operands in L2,
and the producer runs ahead across tiles. Kernels differ in what a stage holds and in what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..codegen.builder import KernelBuilder
from ..codegen.hopper import Mbarriers, TmaBox, WgmmaAtom, WgmmaMma, operand_layout
from ..layout import ArithTuple, Layout, Tensor, idx2crd, make_layout, size
from ..layout.symbolic import IntLike, all_of, ceil_div, equal, less, select
from .common import OperandAccess, grouped_raster
from .epilogue import FusedEpilogue

__all__ = ["DEPTH", "GROUP", "INSTRUCTION_DEPTH", "PAIRS", "Consumer", "PersistentBlock", "TileOfC", "boxes", "consumer_mma",
           "persistent_traits", "ring_of_tiles"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

INSTRUCTION_DEPTH = 16
"""K of one matrix instruction."""

PAIRS = OperandAccess(1, 2)
"""How C is written at best: a thread holds pairs along N."""

GROUP = 128
"""Threads of a warpgroup."""

_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 40, 232


def ring_of_tiles(k: KernelBuilder, name: str, box: TmaBox, stages: int) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the swizzle's period."""
    ring = box.layout.map_domain(lambda tile: make_layout(*tile, Layout(stages, size(tile))))
    return k.shared(name, box.element, ring, alignment=1024)


@dataclass(frozen=True)
class TileOfC:
    """Where a tile of C lies: its coordinates along M and N, and the coordinate of its matrix in the batch."""

    m: IntLike
    n: IntLike
    batch: tuple[IntLike, ...]

    def corner(self, row: IntLike, depth: IntLike, present: tuple[bool, ...]) -> ArithTuple:
        """The coordinate of an operand's tile in its tensor map: row, depth, and the batch modes that it has."""
        return ArithTuple(row, depth, *(c for c, p in zip(self.batch, present, strict=True) if p))


def boxes(element: str, rows: int, columns: int, k_major: tuple[bool, bool]) -> tuple[TmaBox, TmaBox]:
    """The TMA boxes of a stage of A and of B, or of one of their planes."""
    box_a, box_b = (TmaBox(element, operand_layout(extent, DEPTH, element, major))
                    for extent, major in zip((rows, columns), k_major, strict=True))
    return box_a, box_b


def consumer_mma(element: str, columns: int, groups: int, k_major: tuple[bool, bool], parts: int = 1) -> WgmmaMma:
    """Who multiplies what: warpgroups stacked along M; ``parts`` columns of accumulators make an element of C."""
    return WgmmaMma(WgmmaAtom(columns, element, *k_major), groups, parts)


def persistent_traits(tile: tuple[int, int], stages: int, k_major: tuple[bool, bool], c: OperandAccess, scalars: tuple[str, str],
                      batch: tuple[tuple[bool, ...], tuple[bool, ...]], wide: bool, epilogue: FusedEpilogue | None) -> str:
    """The part of a kernel's name that says how operands are accessed and C is written."""
    major = "".join("k" if x else "m" for x in k_major)
    unit = {0: "m", 1: "n", None: "s"}[c.unit]
    modes = "".join("nabc"[x + 2 * y] for x, y in zip(*batch, strict=True))
    alpha, beta = scalars
    return (f"{tile[0]}x{tile[1]}x{DEPTH}_s{stages}_{major}{unit}{c.width}_{alpha[0]}{beta[0]}_b{modes}{'_wide' if wide else ''}"
            + (f"_{epilogue.tag}" if epilogue else ""))


class Consumer(NamedTuple):
    """What a multiplying warpgroup does.

    Attributes
    ----------
    start : callable
        Begins a tile of C.
    multiply : callable
        Issues the instructions of a stage, closing one or more groups of them.
    settle : callable
        What is done after that: all groups but the newest are finished, or all.
    finish : callable
        Ends a tile of C; every instruction is finished.
    """

    start: Callable[[], None]
    multiply: Callable[[IntLike], None]
    settle: Callable[[], None]
    finish: Callable[[TileOfC], None]


class _Stage:
    """The stage that a role works on, and the parity of its phase."""

    def __init__(self, k: KernelBuilder, stages: int):
        self._k, self._stages = k, stages
        self.index = k.variable("stage", 0, hi=stages - 1)
        self.parity = k.variable("parity", 0, hi=1)

    def advance(self) -> None:
        """To the next stage."""
        last = equal(self.index, self._stages - 1)
        self._k.assign(self.parity, select(last, self.parity ^ 1, self.parity))
        self._k.assign(self.index, select(last, 0, self.index + 1))


class PersistentBlock:
    """The roles of a block and their loops.

    Parameters
    ----------
    k : KernelBuilder
        The kernel; it has one warpgroup more than multiply.
    groups : int
        Multiplying warpgroups.
    stages : int
        Stages of the ring.
    tile : tuple of int
        Extents (M, N, K) of a step.
    extents : tuple
        Extents M, N and K of the product.
    batch : tuple
        Extents of the batch modes, innermost first.
    """

    def __init__(self, k: KernelBuilder, groups: int, stages: int, tile: tuple[int, int, int],
                 extents: tuple[IntLike, IntLike, IntLike], batch: tuple[IntLike, ...]):
        self._k, self._groups, self._stages, self._batch = k, groups, stages, batch
        self._full, self._empty = Mbarriers(k, "full", stages), Mbarriers(k, "empty", stages)
        with k.when(equal(k.thread, 0)):
            for stage in range(stages):
                self._full.init(stage, 1)
                self._empty.init(stage, groups)
            self._full.publish()
        k.barrier()
        self._tiles = k.let("tiles_m", ceil_div(extents[0], tile[0])), k.let("tiles_n", ceil_div(extents[1], tile[1]))
        self._k_tiles = k.let("k_tiles", ceil_div(extents[2], tile[2]))
        self._in_matrix = k.let("tiles", self._tiles[0] * self._tiles[1])
        self._total: IntLike = self._in_matrix
        for extent in batch:
            self._total = self._total * extent
        self._first, self._step = k.block_index("block", "x"), k.grid_size("blocks", "x")

    def _at(self, tile: IntLike) -> TileOfC:
        k = self._k
        if not self._batch:
            return TileOfC(*grouped_raster(k, tile, *self._tiles), ())
        index = k.let("item", tile // self._in_matrix)
        m, n = grouped_raster(k, k.let("tile_in_item", tile % self._in_matrix), *self._tiles)
        return TileOfC(m, n, tuple(k.let(f"l{i}", c) for i, c in enumerate(idx2crd(index, self._batch))))

    def produce(self, nbytes: int, load: Callable[[TileOfC, IntLike, IntLike, str], None]) -> None:
        """The producer's part.

        Parameters
        ----------
        nbytes : int
            Bytes of a stage.
        load : callable
            Starts the copies of (tile of C, k tile) into a stage; they complete on the barrier at the address that it is given.
        """
        k, consumers = self._k, GROUP * self._groups
        k.comment("The producer: one thread keeps the ring full")
        with k.when(less(consumers - 1, k.thread)):
            k.emit(f"cb::setmaxnreg_dec<{_PRODUCER_REGISTERS}>();")
            with k.when(equal(k.thread, consumers)):
                stage = _Stage(k, self._stages)
                with k.loop("tile", self._total, start=self._first, step=self._step) as tile:
                    at = self._at(tile)
                    with k.loop("k_tile", self._k_tiles) as k_tile:
                        self._empty.wait(stage.index, stage.parity ^ 1)
                        self._full.expect(stage.index, nbytes)
                        load(at, k_tile, stage.index, self._full.address(stage.index))
                        stage.advance()

    def consume(self, consumer: Callable[[], Consumer], *, overlap: bool = True) -> None:
        """The part of the multiplying warpgroups; to be written after :meth:`produce`.

        Parameters
        ----------
        consumer : callable
            Declares what lives through all tiles, and returns what is done with it.
        overlap : bool
            Whether the newest group of instructions still runs while ``settle`` does its part.
        """
        k = self._k
        k.comment("The consumers: each warpgroup multiplies 64 rows of the tile")
        with k.otherwise():
            k.emit(f"cb::setmaxnreg_inc<{_CONSUMER_REGISTERS}>();")
            stage = _Stage(k, self._stages)
            released = k.variable("released", 0, hi=self._stages - 1) if overlap else stage.index
            lane = k.thread % GROUP
            start, multiply, settle, finish = consumer()
            with k.loop("tile", self._total, start=self._first, step=self._step) as tile:
                at = self._at(tile)
                start()
                with k.loop("k_tile", self._k_tiles) as k_tile:
                    self._full.wait(stage.index, stage.parity)
                    multiply(stage.index)
                    if overlap:
                        # All but the newest group of instructions are done: the stage before can be filled again.
                        k.emit("cb::wgmma_wait<1>();")
                        with k.when(all_of(equal(lane, 0), less(0, k_tile))):
                            self._empty.arrive(released)
                        k.assign(released, stage.index)
                    else:
                        k.emit("cb::wgmma_wait<0>();")
                        with k.when(equal(lane, 0)):
                            self._empty.arrive(stage.index)
                    settle()
                    stage.advance()
                if overlap:
                    k.emit("cb::wgmma_wait<0>();")
                    with k.when(all_of(equal(lane, 0), less(0, self._k_tiles))):
                        self._empty.arrive(released)
                finish(at)
