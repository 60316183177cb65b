"""The roles in a persistent block: its last warps load operands, its first warpgroups multiply and
finish.

Each role walks over the block's tiles of C, ``Scheduler.works``, at its own pace; rings of stages
(:mod:`~cuteblas.codegen.pipeline`) are all that ties one role to another. ``load`` knows the ring
of operands alone, ``finish`` a tile and its sums alone. The threads that multiply also finish,
since accumulators are their registers.

Accumulators in tensor memory belong to no thread. ``multiply`` then becomes a role of one more
thread, which walks over the tiles as ``load`` does and commits the sums of each tile to a ring of
accumulators; the warpgroups wait for them and finish. These sums are in memory, as
:class:`~cuteblas.kernels.epilogue.Parked` ones are, which epilogues take already: neither ``load``
nor ``finish`` changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ...codegen.builder import KernelBuilder
from ...codegen.mbarrier import Mbarriers, initialise
from ...codegen.tma import tma_prefetch
from ...layout import Tensor
from ...layout.symbolic import equal, less
from ..common import GROUP
from ..epilogue import Parked
from .scheduler import Scheduler, TileOfC, Work

__all__ = ["Finish", "Multiply", "Sums", "begin", "specialise"]

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
