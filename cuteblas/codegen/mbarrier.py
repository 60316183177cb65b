"""Barriers in shared memory that count arrivals and bytes, and words for other blocks that complete on them."""

from __future__ import annotations

from ..layout import Layout, Tensor, size
from ..layout.symbolic import IntLike, to_c
from .builder import KernelBuilder
from .engine import CodegenError

__all__ = ["Mbarriers", "store_async"]


class Mbarriers:
    """An array of mbarriers in shared memory, one for each stage of a ring (PTX ISA, "mbarrier").

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    name : str
        The array's name.
    count : int
        Number of barriers.
    """

    def __init__(self, k: KernelBuilder, name: str, count: int):
        self._k, self.count = k, count
        self._tensor = k.shared(name, "b64", Layout(count), alignment=8)

    def _at(self, stage: IntLike) -> str:
        return self._tensor(stage).address

    def init(self, stage: IntLike, arrivals: int) -> None:
        """Initialise for ``arrivals`` arrivals a phase; one thread does this, then :meth:`publish`."""
        self._k.emit(f"cb::mbarrier_init({self._at(stage)}, {arrivals});")

    def publish(self) -> None:
        """Make initialised barriers visible to the asynchronous proxy."""
        self._k.emit("cb::mbarrier_init_fence();")

    def arrive(self, stage: IntLike) -> None:
        """Arrive once."""
        self._k.emit(f"cb::mbarrier_arrive({self._at(stage)});")

    def arrive_at(self, stage: IntLike, rank: IntLike) -> None:
        """Arrive once at the barrier of the block with this rank in the cluster.

        That tells it that asynchronous operations are done; it makes no ordinary writes visible.
        """
        self._k.emit(f"cb::mbarrier_arrive_at({self._at(stage)}, {to_c(rank)});")

    def expect(self, stage: IntLike, nbytes: int) -> None:
        """Arrive once and let the phase also wait for ``nbytes`` of asynchronous copies."""
        self._k.emit(f"cb::mbarrier_arrive_expect_tx({self._at(stage)}, {nbytes});")

    def wait(self, stage: IntLike, parity: IntLike) -> None:
        """Wait until the phase with this parity has completed."""
        self._k.emit(f"cb::mbarrier_wait({self._at(stage)}, {to_c(parity)});")

    def address(self, stage: IntLike) -> str:
        """The C++ address of one barrier, for copies that complete on it."""
        return self._at(stage)


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
