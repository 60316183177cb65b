"""The roles in a persistent block: its last warps load operands, its first warpgroups multiply and
finish.

Each role walks over the block's tiles of C, ``Scheduler.works``, at its own pace; rings of stages
(:mod:`~cuteblas.codegen.pipeline`) are all that ties one role to another. ``load`` knows the ring
of operands alone, ``finish`` a tile and its sums alone. The threads that multiply also finish,
since accumulators are their registers.

Here are the roles that most kernels give: one thread that keeps a ring of stages full by TMA
(:func:`keep_full`), ahead of the warpgroups, across tiles of C; and warpgroups that multiply both
operands from the ring (:class:`Multiplier`).

Accumulators in tensor memory belong to no thread. ``multiply`` then becomes a role of one more
thread, which walks over the tiles as ``load`` does and commits the sums of each tile to a ring of
accumulators; the warpgroups wait for them and finish. These sums are in memory, as
:class:`~cuteblas.kernels.epilogue.Parked` ones are, which epilogues take already: neither ``load``
nor ``finish`` changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..._dtypes import dtype
from ...codegen import (
    Element,
    GlobalTensor,
    KernelBuilder,
    Mbarriers,
    Pipeline,
    TmaBox,
    WgmmaMma,
    operand_layout,
)
from ...codegen.mbarrier import initialise
from ...codegen.tma import TmaLoad, tma_prefetch
from ...codegen.wgmma import WgmmaOperand, wgmma_commit, wgmma_fence, wgmma_wait
from ...layout import Layout, Tensor, local_tile, make_identity_tensor, select, size
from ...layout.symbolic import Condition, IntLike, equal
from ..common import GROUP, Coord, Pair
from ..epilogue import Parked
from .cluster import ALONE, Cluster, Place
from .divided import Divided
from .scheduler import Scheduler, TileOfC, Work
from .tiles import boxes, depth_of, rings_of_tiles

__all__ = ["Finish", "Multiplier", "Multiply", "Products", "Step", "Steps", "Sums", "TmaBlock",
           "TmaOperand", "begin", "keep_full", "specialise", "tma_operands"]

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}
"""Of a thread that loads, and of one that multiplies, by the number of multiplying warpgroups."""


Sums = Tensor | Parked
Multiply = Callable[[Work], Sums]
Finish = Callable[[TileOfC, Sums], None]


def begin(k: KernelBuilder, barriers: Sequence[Mbarriers], maps: Sequence[str]) -> None:
    """Initialise the barriers of a block, for all of its threads, and fetch tensor maps ahead."""
    with k.when(equal(k.thread, 0)):
        initialise(k, *barriers)
        for tensor_map in maps:
            tma_prefetch(k, tensor_map)
    k.barrier()


def specialise(schedule: Scheduler, groups: int, *, load: Callable[[], None],
               multiply: AbstractContextManager[Multiply],
               finish: AbstractContextManager[Finish], loaders: str = "one thread",
               registers: Pair | None = None) -> None:
    """Give the threads of a block their roles.

    Parameters
    ----------
    schedule : Scheduler
        The block's walk over tiles of C.
    groups : int
        Multiplying warpgroups.
    load : callable
        What the threads after these do, from beginning to end.
    multiply, finish : context managers
        Each yields what is done for a tile: what makes its sums, and what makes C of them. Around
        the yield is what threads do before and after all tiles.
    loaders : str
        Who loads.
    registers : tuple of int, optional
        Of a thread that loads, and of one that multiplies.
    """
    k, (of_load, of_multiply) = schedule.k, registers or _REGISTERS[groups]
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


# -- load: one thread, by TMA ------------------------------------------------------------------------
_At = Sequence[Coord]
Step = tuple[_At, _At]
"""Where the tiles of A and of B in a stage are, along K and further modes."""
Steps = Callable[[Work], AbstractContextManager[Step]]
"""The steps along K of what a block does at a time."""


@dataclass(frozen=True)
class TmaOperand:
    """An operand that TMA loads into a ring of tiles.

    Attributes
    ----------
    mode : int
        The mode of C along which its rows go: 0 of A, 1 of B.
    tensor_map : str
        The name of the operand's tensor map.
    box : TmaBox
        How its tiles are loaded, or parts of them.
    ring : Tensor
        Its tiles in shared memory, (MN, K, stage).
    extents : tuple
        Its extents, (MN, K, ...): modes of the tensor map without those of the batch.
    batch : tuple
        Extents of all batch modes.
    present : tuple of bool
        Which of them it has.
    """

    mode: int
    tensor_map: str
    box: TmaBox
    ring: Tensor
    extents: Coord
    batch: Coord
    present: tuple[bool, ...]

    def load(self, k: KernelBuilder, place: Place, barrier: Element, stage: IntLike, of: TileOfC,
             step: Step) -> None:
        """Load this block's part of the tiles of a stage, which follow each other in the ring, for
        a tile of C."""
        at, row = step[self.mode], (of.m, of.n)[self.mode]
        whole = make_identity_tensor((*self.extents, *self._those(self.batch)))
        # boxes outside of the operand are not loaded where all are short
        limit = self.extents[0] if self.box.most < TmaBox.most else None
        brings = TmaLoad(self.tensor_map, self.box, barrier, place.receivers(self.mode), limit)
        for i, coordinates in enumerate(at):
            source = local_tile(whole, self._tile, (row, *coordinates, *self._those(of.batch)))
            both = source, self.ring[..., stage * len(at) + i]
            k.copy(brings, *(place.part(self.mode, self.box, x) for x in both))

    def nbytes(self, step: Step) -> int:
        """Bytes of its tiles in a stage."""
        return len(step[self.mode]) * prod(self._tile) * dtype(self.box.element).bytes

    @property
    def _tile(self) -> tuple[int, ...]:
        return tuple(size(mode) for mode in self.ring.layout.shape[:2])

    def _those(self, modes: Coord) -> Coord:
        """Of batch modes, which may be followed by slices of K, those that it has."""
        return tuple(mode for mode, has in zip(modes, self.present, strict=False) if has)


def tma_operands(tensors: Sequence[GlobalTensor], boxes: Sequence[TmaBox], rings: Sequence[Tensor],
                 extents: Sequence[Coord], batch: Coord,
                 present: Sequence[tuple[bool, ...]]) -> list[TmaOperand]:
    """Those of A and B that have tensor maps; sequences have an item for A and one for B."""
    sides = enumerate(zip(tensors, boxes, rings, extents, present, strict=True))
    return [TmaOperand(mode, tensor.map, box, ring, extent, batch, own)
            for mode, (tensor, box, ring, extent, own) in sides if tensor.map]


def keep_full(schedule: Scheduler, thread: int, pipeline: Pipeline, operands: Sequence[TmaOperand],
              steps: Steps) -> None:
    """One thread fills a stage of the ring in every step."""
    k = schedule.k
    with k.when(equal(k.thread, thread)):
        stage = pipeline.state()
        with schedule.works() as work, steps(work) as step:
            pipeline.acquire(stage, sum(x.nbytes(step) for x in operands))
            for x in operands:
                x.load(k, schedule.place, pipeline.barrier(stage), stage.index, work.tile, step)
            stage.advance()


# -- multiply: warpgroups, from the ring -------------------------------------------------------------
@dataclass(frozen=True)
class Products:
    """Products of a stage that are added to the same sums.

    Attributes
    ----------
    sums : Tensor
        Accumulators.
    pairs : tuple
        Which tile of A in the stage is multiplied by which of B, in this order.
    fresh : bool
        Whether sums are those of the stage alone.
    """

    sums: Tensor
    pairs: tuple[Pair, ...] = ((0, 0),)
    fresh: bool = False


class TmaBlock:
    """A block in which one thread loads tiles of A and B by TMA, and warpgroups multiply them.

    A kernel makes it, then :meth:`begin`, :meth:`walk` and :meth:`specialise`, and declares what is
    its own between them.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    mma : WgmmaMma
        Who multiplies what.
    stages : int
        Stages of the ring.
    cluster : Cluster
        Blocks that share operands.
    planes : int
        Tiles of each operand in a stage, which follow each other.
    """

    def __init__(self, k: KernelBuilder, mma: WgmmaMma, stages: int, cluster: Cluster = ALONE,
                 planes: int = 1):
        self.k, self.mma, self._stages, self._cluster = k, mma, stages, cluster
        atom = mma.atoms[0]
        self._depth = depth_of(atom.element) // mma.parts
        whole = boxes(atom.element, GROUP // 2 * mma.groups, mma.columns,
                      (atom.k_major_a, atom.k_major_b))
        self.rings = rings_of_tiles(k, whole, stages * planes)

    def begin(self, tensors: Sequence[GlobalTensor], *others: Mbarriers) -> None:
        """Initialise the barriers of the ring, and others, for A and B."""
        self._tensors = tensors
        self.pipeline = Pipeline(self.k, self._stages, filled=1,
                                 emptied=self.mma.groups * self._cluster.sharing)
        begin(self.k, (*self.pipeline.barriers, *others), [x.map for x in tensors])

    def walk(self, config: Any, extents: tuple[IntLike, IntLike, IntLike],
             batch: Coord, of_operands: Sequence[Coord],
             divided: Divided | None = None) -> None:
        """Walk over the tiles of C as a configuration says.

        Extents are M, N and K of C and of its sums, of batch modes, and (MN, K, ...) of A and B.
        """
        self.schedule = Scheduler(self.k, extents, (*self.mma.tile, self._depth), batch,
                                  self._cluster, divided, config.triangle)
        self._operands = tma_operands(self._tensors, config.boxes, self.rings, of_operands, batch,
                                      config.present)

    def specialise(self, steps: Steps, multiply: AbstractContextManager[Multiply],
                   finish: AbstractContextManager[Finish],
                   others: Callable[[], None] = lambda: None) -> None:
        """Give the threads their roles; others than the one that loads may do something else."""
        def load() -> None:
            keep_full(self.schedule, GROUP * self.mma.groups, self.pipeline, self._operands, steps)
            others()

        specialise(self.schedule, self.mma.groups, load=load, multiply=multiply, finish=finish)


class Multiplier:
    """A warpgroup at the stages of a ring.

    Parameters
    ----------
    block : TmaBlock
        The block.
    overlaps : bool
        Whether the last products of a stage still run while the next one is waited for: a stage is
        then released one later.
    """

    def __init__(self, block: TmaBlock, overlaps: bool = True):
        self._k, self._mma, self._pipeline = k, mma, pipeline = block.k, block.mma, block.pipeline
        self._place = place = block.schedule.place
        (a, b), atom = block.rings, mma.atoms[0]
        element, depth = atom.element, depth_of(atom.element)
        self._stage = pipeline.state()
        self._released = k.variable("released", 0, hi=pipeline.stages - 1) if overlaps else None
        self._partner = place.partner()
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
        """Registers for this thread's part of a tile of sums."""
        values = Layout((2, 2, self._mma.columns // 8))
        return self._k.registers(name, self._mma.accumulator, values)

    def multiply(self, count: IntLike, *products: Products,
                 and_then: Callable[[], None] | None = None) -> None:
        """Add the products of so many stages, and do something else with the sums of each."""
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
        """Start the products of a stage."""
        first = self._stage.index * self._tiles
        for i, (a, b) in enumerate(products.pairs):
            mma = replace(self._mma, accumulate=i > 0 or not products.fresh)
            self._k.gemm(mma, products.sums, self._a[..., first + a], self._b[..., first + b])
        wgmma_commit(self._k)

    def _release(self, stage: IntLike, condition: Condition = True) -> None:
        self._place.release(self._pipeline, stage, self._partner, condition)
