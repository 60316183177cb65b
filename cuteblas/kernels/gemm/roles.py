"""The roles in a persistent block: its last warps load, its first warpgroups multiply and finish.

Each role walks over the block's tiles, ``Scheduler.works``, at its own pace, tied to others by
rings of stages alone. Threads that multiply also finish: accumulators are their registers. With
tensor memory, ``multiply`` would be a thread's role, with a ring of accumulators that ``finish``
reads as :class:`~cuteblas.kernels.epilogue.Parked` sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import compress
from math import prod

from ...codegen import GlobalTensor, KernelBuilder, Mbarriers, Pipeline, operand_layout
from ...codegen.mbarrier import initialise
from ...codegen.pipeline import PipelineState
from ...codegen.tma import TmaLoad, tma_prefetch
from ...codegen.wgmma import WgmmaOperand, wgmma_commit, wgmma_fence, wgmma_wait
from ...layout import (
    ComposedLayout,
    Layout,
    Tensor,
    local_tile,
    make_identity_tensor,
    make_layout,
    select,
    size,
)
from ...layout.symbolic import Condition, IntLike, all_of, equal
from ..common import GROUP, Coord, Pair
from ..epilogue import Parked
from .divided import Divided
from .persistent import RingConfig
from .scheduler import Scheduler, TileOfC, Work

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}
"""Registers of a thread that loads and of one that multiplies, by multiplying warpgroups."""

Sums = Tensor | Parked
Multiply = Callable[[Work], Sums]
Finish = Callable[[TileOfC, Sums], None]

_At = Sequence[Coord]
Step = tuple[_At, _At]
"""Where the tiles of A and of B in a stage are, along K and further modes."""
Steps = Callable[[Work], AbstractContextManager[Step]]
"""The steps along K of one unit of a block's work."""


def ring_of_tiles(k: KernelBuilder, name: str, element: str, tile: ComposedLayout, stages: int,
                  over: str | None = None) -> Tensor:
    """A ring of tiles (MN, K, stage); each stage starts at a multiple of the swizzle's period."""
    ring = tile.map_domain(lambda inner: make_layout(*inner, Layout(stages, size(inner))))
    return k.shared(name, element, ring, alignment=1024, over=over)


class TmaBlock:
    """A block with a ring of stages that TMA fills, and its walk over tiles of C: call
    :meth:`begin`, :meth:`walk`, then :meth:`specialise`. ``planes`` are tiles of an operand in a
    stage."""

    def __init__(self, k: KernelBuilder, config: RingConfig, planes: int = 1):
        self.k, self.config = k, config
        self.rings = tuple(ring_of_tiles(k, f"s{name}", box.element, box.layout,
                                         config.stages * planes)
                           for name, box in zip("AB", config.whole, strict=True))

    def begin(self, tensors: Sequence[GlobalTensor], *others: Mbarriers, filled: int = 1,
              emptied: int | None = None) -> None:
        """Initialise the ring's and other barriers, and fetch tensor maps of A and B ahead."""
        k, config, self._tensors = self.k, self.config, tensors
        self.pipeline = Pipeline(k, config.stages, filled,
                                 emptied or config.mma.groups * config.cluster)
        with k.when(equal(k.thread, 0)):
            initialise(k, *self.pipeline.barriers, *others)
            for tensor in tensors:
                if tensor.map:
                    tma_prefetch(k, tensor.map)
        k.barrier()

    def walk(self, extents: tuple[IntLike, IntLike, IntLike], batch: Coord,
             of_operands: Sequence[Coord], divided: Divided | None = None) -> None:
        """Walk over tiles of C; ``extents`` are (M, N, K), ``of_operands`` (MN, K, ...)."""
        self._batch, self._of_operands = batch, of_operands
        self.schedule = Scheduler(self.k, self.config, extents, batch, divided)

    def keep_full(self, steps: Steps, thread: int | None = None) -> None:
        """One thread, the first that does not multiply, fills a stage in every step."""
        k, pipeline = self.k, self.pipeline
        with k.when(equal(k.thread, thread or GROUP * self.config.mma.groups)):
            stage = pipeline.state()
            with self.schedule.works() as work, steps(work) as step:
                pipeline.acquire(stage)
                self.load(stage, work.tile, step)
                stage.advance()

    def load(self, stage: PipelineState, of_c: TileOfC, step: Step) -> None:
        """Start the loads of this block's part of a stage's tiles by TMA; one thread does this."""
        k, config, place = self.k, self.config, self.schedule.place
        by_tma = [mode for mode, tensor in enumerate(self._tensors) if tensor.map]
        tiles = [tuple(map(size, ring.shape[:2])) for ring in self.rings]
        self.pipeline.expect(stage, sum(len(step[mode]) * prod(tiles[mode])
                                        * self.rings[mode].engine.dtype.bytes for mode in by_tma))
        for mode in by_tma:
            # of batch modes, which may be followed by slices of K, those that it has
            present = config.present[mode]
            box, ring, extents = config.boxes[mode], self.rings[mode], self._of_operands[mode]
            whole = make_identity_tensor((*extents, *compress(self._batch, present)))
            # boxes outside of the operand are not loaded where all are short
            limit = extents[0] if config.clipped else None
            atom = TmaLoad(self._tensors[mode].map, box, self.pipeline.barrier(stage),
                           place.receivers if mode else None, limit)
            for i, at in enumerate(step[mode]):
                source = local_tile(whole, tiles[mode], ((of_c.m, of_c.n)[mode], *at,
                                                         *compress(of_c.batch, present)))
                both = source, ring[..., stage.index * len(step[mode]) + i]
                k.copy(atom, *(place.part(box, x) if mode else x for x in both))

    def specialise(self, load: Callable[[], None], multiply: AbstractContextManager[Multiply],
                   finish: AbstractContextManager[Finish], loaders: str = "one thread",
                   registers: Pair | None = None) -> None:
        """Give the threads of the block their roles."""
        # ``multiply`` and ``finish`` yield what makes a tile's sums, and C of them; around the
        # yield is what threads do before and after all tiles. ``registers`` are those of a thread
        # that loads, and of one that multiplies.
        k, schedule, groups = self.k, self.schedule, self.config.mma.groups
        of_load, of_multiply = registers or _REGISTERS[groups]
        k.comment(f"The producer: {loaders} keeps the ring full")
        with k.when(GROUP * groups - 1 < k.thread):
            k.do("setmaxnreg_dec", of=of_load)
            load()
        k.comment("The consumers: each warpgroup multiplies 64 rows of the tile")
        with k.otherwise():
            k.do("setmaxnreg_inc", of=of_multiply)
            with multiply as sums_of, finish as write, schedule.works() as work:
                sums = sums_of(work)
                with schedule.ended(work, sums, groups):
                    write(work.tile, sums)
        schedule.place.leave()


@dataclass(frozen=True)
class Products:
    """Products of a stage that are added to the same sums; ``pairs`` are tiles of A and B, in
    order. ``fresh`` sums are those of the stage alone."""

    sums: Tensor
    pairs: tuple[Pair, ...] = ((0, 0),)
    fresh: bool = False


class Multiplier:
    """A warpgroup at the stages of a ring; with ``overlaps`` a stage is released one later, so
    that its last products still run while the next one is waited for."""

    def __init__(self, block: TmaBlock, overlaps: bool = True):
        self._k, self._mma, self._pipeline = k, mma, pipeline = block.k, block.config.mma, block.pipeline
        self._sharing = block.config.cluster
        (a, b), atom = block.rings, mma.atoms[0]
        element, depth = atom.element, block.config.depth
        self._stage = pipeline.state()
        self._released = k.variable("released", 0, hi=pipeline.stages - 1) if overlaps else None
        self._partner = block.schedule.place.partner()
        # This group's rows: (64, K, tile of the ring).
        tCsA = local_tile(a, (64, depth), (k.let("group", k.thread // GROUP), 0))
        tile_of_a = operand_layout(64, depth, element, atom.k_major_a)
        operand_a = WgmmaOperand(element, tile_of_a, atom.k_major_a)
        tile_of_b = select(b.layout, 0, 1)
        operand_b = WgmmaOperand(element, tile_of_b, atom.k_major_b)
        self._a = operand_a.tensor(k, "descriptor_a", tCsA)
        self._b = operand_b.tensor(k, "descriptor_b", b, atom.n)
        self._tiles = size(b.layout.inner[2]) // pipeline.stages

    def accumulators(self, name: str) -> Tensor:
        values = Layout((2, 2, self._mma.columns // 8))
        return self._k.registers(name, self._mma.accumulator, values)

    def multiply(self, count: IntLike, *products: Products,
                 and_then: Callable[[], None] | None = None) -> None:
        """Add the products of ``count`` stages, and do something else with the sums of each."""
        k, stage, released = self._k, self._stage, self._released
        with k.loop("k_tile", count) as k_tile:
            self._pipeline.wait(stage)
            wgmma_fence(k)
            for each in products:
                self._issue(each)
            if released is None:
                wgmma_wait(k, 0)
                self._release(stage.index)
            else:
                # All but the newest group of instructions are done: the stage before is free again.
                wgmma_wait(k, 1)
                self._release(released, k_tile > 0)
                k.assign(released, stage.index)
            if and_then is not None:
                and_then()
            stage.advance()
        if released is not None:
            wgmma_wait(k, 0)
            self._release(released, count > 0)

    def _issue(self, products: Products) -> None:
        first = self._stage.index * self._tiles
        for i, (a, b) in enumerate(products.pairs):
            mma = replace(self._mma, accumulate=i > 0 or not products.fresh)
            self._k.gemm(mma, products.sums, self._a[..., first + a], self._b[..., first + b])
        wgmma_commit(self._k)

    def _release(self, stage: IntLike, condition: Condition = True) -> None:
        """Signal all blocks that filled a stage: this warpgroup has read it."""
        with self._k.when(all_of(self._k.thread % GROUP < self._sharing, condition)):
            self._pipeline.release(stage, self._partner)
