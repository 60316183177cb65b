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
from ...layout import Layout, Tensor, _, local_tile, make_identity_tensor, select, size
from ...layout.symbolic import Expr, IntLike, equal, less
from ..common import GROUP
from ..epilogue import Parked
from .cluster import Place
from .scheduler import Scheduler, TileOfC, Work
from .tiles import depth_of

__all__ = ["Finish", "Multiplier", "Multiply", "Products", "Step", "Sums", "TmaOperand", "begin",
           "keep_full", "specialise", "tma_operands"]

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
               registers: tuple[int, int] | None = None) -> None:
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
    with k.when(less(GROUP * groups - 1, k.thread)):
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
_At = Sequence[tuple[IntLike, ...]]
Step = tuple[TileOfC, tuple[_At, _At]]
"""A tile of C, and where the tiles of A and of B in a stage are, along K and further modes."""


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
    clipped : bool
        Whether what is outside of it is not loaded: :class:`~cuteblas.codegen.tma.TmaLoad`.
    """

    mode: int
    tensor_map: str
    box: TmaBox
    ring: Tensor
    extents: tuple[IntLike, ...]
    batch: tuple[IntLike, ...]
    present: tuple[bool, ...]
    clipped: bool = False

    def load(self, k: KernelBuilder, place: Place, barrier: Element, stage: IntLike,
             step: Step) -> None:
        """Load this block's part of the tiles of a stage, which follow each other in the ring."""
        of, at = step
        limit = self.extents[0] if self.clipped else None
        brings = TmaLoad(self.tensor_map, self.box, barrier, place.receivers(self.mode), limit)
        for i, coordinates in enumerate(at[self.mode]):
            target = self.ring[_, _, stage * len(at[self.mode]) + i]
            both = self._tile_at(of, coordinates), target
            k.copy(brings, *(place.part(self.mode, self.box, x) for x in both))

    def nbytes(self, step: Step) -> int:
        """Bytes of its tiles in a stage."""
        return len(step[1][self.mode]) * prod(self._tile) * dtype(self.box.element).bytes

    @property
    def _tile(self) -> tuple[int, ...]:
        return tuple(size(mode) for mode in self.ring.layout.shape[:2])

    def _tile_at(self, of: TileOfC, at: tuple[IntLike, ...]) -> Tensor:
        """The coordinates of a tile, (MN, K), for a tile of C, at its place along K and further
        modes."""
        whole = make_identity_tensor((*self.extents, *self._those(self.batch)))
        return local_tile(whole, self._tile, ((of.m, of.n)[self.mode], *at, *self._those(of.batch)))

    def _those(self, modes: tuple[IntLike, ...]) -> tuple[IntLike, ...]:
        """Of batch modes, which may be followed by slices of K, those that it has."""
        return tuple(mode for mode, has in zip(modes, self.present, strict=False) if has)


def tma_operands(tensors: Sequence[GlobalTensor], boxes: Sequence[TmaBox], rings: Sequence[Tensor],
                 extents: Sequence[tuple[IntLike, ...]], batch: tuple[IntLike, ...],
                 present: Sequence[tuple[bool, ...]], clipped: bool = False) -> list[TmaOperand]:
    """Those of A and B that have tensor maps; sequences have an item for A and one for B."""
    sides = enumerate(zip(tensors, boxes, rings, extents, present, strict=True))
    return [TmaOperand(mode, tensor.map, box, ring, extent, batch, own, clipped)
            for mode, (tensor, box, ring, extent, own) in sides if tensor.map]


def keep_full(schedule: Scheduler, thread: int, pipeline: Pipeline, operands: Sequence[TmaOperand],
              steps: AbstractContextManager[Step]) -> None:
    """One thread fills a stage of the ring in every step of a loop."""
    k = schedule.k
    with k.when(equal(k.thread, thread)):
        stage = pipeline.state()
        with steps as step:
            pipeline.acquire(stage, sum(x.nbytes(step) for x in operands))
            for x in operands:
                x.load(k, schedule.place, pipeline.barrier(stage), stage.index, step)
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
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)
    fresh: bool = False


class Multiplier:
    """A warpgroup at the stages of a ring.

    Parameters
    ----------
    schedule : Scheduler
        The block's walk over tiles of C.
    mma : WgmmaMma
        Who multiplies what.
    pipeline : Pipeline
        The barriers of the ring.
    a, b : Tensor
        The tiles of A and of B, (MN, K, tile of the ring).
    overlaps : bool
        Whether the last products of a stage still run while the next one is waited for: a stage is
        then released one later.
    """

    def __init__(self, schedule: Scheduler, mma: WgmmaMma, pipeline: Pipeline, a: Tensor, b: Tensor,
                 overlaps: bool = True):
        k, place, atom = schedule.k, schedule.place, mma.atoms[0]
        element, depth = atom.element, depth_of(atom.element)
        self._k, self._mma, self._pipeline, self._place = k, mma, pipeline, place
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
                self._release(released, less(0, k_tile))
                k.assign(released, stage.index)
            if and_then is not None:
                and_then()
            stage.advance()
        if released is not None:
            wgmma_wait(k, 0)
            self._release(released, less(0, count))

    def _issue(self, products: Products) -> None:
        """Start the products of a stage."""
        first = self._stage.index * self._tiles
        for i, (a, b) in enumerate(products.pairs):
            mma = replace(self._mma, accumulate=i > 0 or not products.fresh)
            self._k.gemm(mma, products.sums, self._a[_, _, first + a], self._b[_, _, first + b])
        wgmma_commit(self._k)

    def _release(self, stage: IntLike, condition: Expr | bool = True) -> None:
        self._place.release(self._pipeline, stage, self._partner, condition)
