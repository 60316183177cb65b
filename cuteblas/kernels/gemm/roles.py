"""The roles in a persistent block: the last warpgroups load operands, the first ones multiply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...codegen.builder import KernelBuilder
from ...codegen.mbarrier import Mbarriers, initialise
from ...codegen.tma import tma_prefetch
from ...layout.symbolic import equal, less

__all__ = ["GROUP", "WARP", "begin", "consumers", "producers"]

GROUP = 128
"""Threads of a warpgroup."""

WARP = 32
"""Threads of a warp."""

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}     # of threads that do not multiply, and that do, by their warpgroups


def begin(k: KernelBuilder, barriers: Sequence[Mbarriers], maps: Sequence[str]) -> None:
    """Initialise the barriers of a block, for all of its threads, and fetch tensor maps ahead."""
    with k.when(equal(k.thread, 0)):
        initialise(k, *barriers)
        for tensor_map in maps:
            tma_prefetch(k, tensor_map)
    k.barrier()


@contextmanager
def producers(k: KernelBuilder, groups: int, what: str, registers: tuple[int, int] | None = None) -> Iterator[None]:
    """What the threads after ``groups`` warpgroups that multiply do; they leave them ``registers``, (their own, those of the
    others).
    """
    k.comment(f"The producer: {what}")
    with k.when(less(GROUP * groups - 1, k.thread)):
        k.do("setmaxnreg_dec", of=(registers or _REGISTERS[groups])[0])
        yield


@contextmanager
def consumers(k: KernelBuilder, groups: int, registers: tuple[int, int] | None = None) -> Iterator[None]:
    """What the warpgroups that multiply do; to be written right after :func:`producers`."""
    k.comment("The consumers: each warpgroup multiplies 64 rows of the tile")
    with k.otherwise():
        k.do("setmaxnreg_inc", of=(registers or _REGISTERS[groups])[1])
        yield
