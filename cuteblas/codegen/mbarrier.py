"""Barriers in shared memory that count arrivals and bytes."""

from __future__ import annotations

from ..layout.symbolic import IntLike
from .builder import KernelBuilder
from .engine import Element

__all__ = ["Mbarriers", "fence_proxy_async", "initialise"]


class Mbarriers:
    """An array of mbarriers in shared memory (PTX ISA, "mbarrier").

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    name : str
        The array's name.
    count : int
        Number of barriers.
    arrivals : int
        Arrivals that complete a phase of each barrier.

    Examples
    --------
    >>> from cuteblas.codegen.mbarrier import Mbarriers
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> came = Mbarriers(k, "came", 2, arrivals=1)
    >>> came.expect(1, 512)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::mbarrier_arrive_expect_tx(&came[1], 512);'
    """

    def __init__(self, k: KernelBuilder, name: str, count: int, arrivals: int):
        self._k, self.count, self.arrivals = k, count, arrivals
        self._tensor = k.shared(name, "b64", count, alignment=8)

    def at(self, index: IntLike) -> Element:
        """One barrier, for copies that complete on it."""
        return self._tensor(index)

    def arrive(self, index: IntLike) -> None:
        """Arrive once."""
        self._k.do("mbarrier_arrive", self.at(index))

    def arrive_at(self, index: IntLike, rank: IntLike) -> None:
        """Arrive once at the barrier of the block with this rank in the cluster.

        The arrival reports finished asynchronous operations; it does not make ordinary writes
        visible.
        """
        self._k.do("mbarrier_arrive_at", self.at(index), rank)

    def expect(self, index: IntLike, nbytes: int) -> None:
        """Arrive once and let the phase also wait for ``nbytes`` of asynchronous copies."""
        self._k.do("mbarrier_arrive_expect_tx", self.at(index), nbytes)

    def wait(self, index: IntLike, parity: IntLike) -> None:
        """Wait until the phase with this parity has completed."""
        self._k.do("mbarrier_wait", self.at(index), parity)


def initialise(k: KernelBuilder, *barriers: Mbarriers) -> None:
    """Initialise barriers and make them visible to the asynchronous proxy; one thread does this,
    before all others meet it.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    *barriers : Mbarriers
        The barriers.

    Returns
    -------
    None
        Statements are added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.mbarrier import Mbarriers, initialise
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> came = Mbarriers(k, "came", 1, arrivals=1)
    >>> with k.when(k.thread.eq(0)):
    ...     initialise(k, came)
    >>> [line.strip() for line in k.build().body.splitlines() if "mbarrier_init" in line]
    ['cb::mbarrier_init(&came[0], 1);', 'cb::mbarrier_init_fence();']
    """
    for array in barriers:
        for index in range(array.count):
            k.do("mbarrier_init", array.at(index), array.arrivals)
    k.do("mbarrier_init_fence")


def fence_proxy_async(k: KernelBuilder) -> None:
    """Make this thread's writes to shared memory visible to TMA and ``wgmma`` of threads that it
    meets at a barrier.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.mbarrier import fence_proxy_async
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> fence_proxy_async(k)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::fence_proxy_async();'
    """
    k.do("fence_proxy_async")
