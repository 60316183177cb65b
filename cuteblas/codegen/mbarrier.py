"""Barriers in shared memory that count arrivals and bytes, and words for other blocks that complete on them."""

from __future__ import annotations

from ..layout import Layout, Tensor, size
from ..layout.symbolic import IntLike, to_c
from .builder import KernelBuilder
from .engine import CodegenError

__all__ = ["Mbarriers", "fence_proxy_async", "initialise", "store_async"]


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
        That complete a phase of each.
    """

    def __init__(self, k: KernelBuilder, name: str, count: int, arrivals: int):
        self._k, self.count, self.arrivals = k, count, arrivals
        self._tensor = k.shared(name, "b64", Layout(count), alignment=8)

    def address(self, index: IntLike) -> str:
        """The C++ address of one barrier, for copies that complete on it."""
        return self._tensor(index).address

    def arrive(self, index: IntLike) -> None:
        """Arrive once."""
        self._k.emit(f"cb::mbarrier_arrive({self.address(index)});")

    def arrive_at(self, index: IntLike, rank: IntLike) -> None:
        """Arrive once at the barrier of the block with this rank in the cluster.

        That tells it that asynchronous operations are done; it makes no ordinary writes visible.
        """
        self._k.emit(f"cb::mbarrier_arrive_at({self.address(index)}, {to_c(rank)});")

    def expect(self, index: IntLike, nbytes: int) -> None:
        """Arrive once and let the phase also wait for ``nbytes`` of asynchronous copies."""
        self._k.emit(f"cb::mbarrier_arrive_expect_tx({self.address(index)}, {nbytes});")

    def wait(self, index: IntLike, parity: IntLike) -> None:
        """Wait until the phase with this parity has completed."""
        self._k.emit(f"cb::mbarrier_wait({self.address(index)}, {to_c(parity)});")


def initialise(k: KernelBuilder, *barriers: Mbarriers) -> None:
    """Initialise barriers and make them visible to the asynchronous proxy; one thread does this, before all others meet it."""
    for array in barriers:
        for index in range(array.count):
            k.emit(f"cb::mbarrier_init({array.address(index)}, {array.arrivals});")
    k.emit("cb::mbarrier_init_fence();")


def fence_proxy_async(k: KernelBuilder) -> None:
    """Make this thread's writes to shared memory visible to TMA and ``wgmma`` of those that it meets at a barrier."""
    k.emit("cb::fence_proxy_async();")


def store_async(k: KernelBuilder, word: str, target: Tensor, rank: IntLike, barrier: str) -> None:
    """Store a word of 4 bytes into the block with this rank in the cluster (PTX ISA, "st.async").

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    word : str
        What is stored.
    target : Tensor
        Where, one element: as it lies in this block's shared memory.
    rank : int or Expr
        Of the block. It must have begun, and may not end before the word is there.
    barrier : str
        The mbarrier on which this completes, as it lies in this block; that of the other one is meant.
    """
    if target.engine.space != "smem" or target.engine.dtype.bytes != 4 or size(target.layout) != 1:
        raise CodegenError(f"a word is stored into shared memory, got {target}")
    k.emit(f"cb::store_async({target(0).address}, {word}, {to_c(rank)}, {barrier});")
