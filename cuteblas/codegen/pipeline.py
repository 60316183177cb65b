"""A ring of stages in shared memory that one role of a block fills while another one reads."""

from __future__ import annotations

from ..layout.symbolic import Condition, IntLike, equal, select
from .builder import KernelBuilder
from .engine import Element
from .mbarrier import Mbarriers

__all__ = ["Pipeline", "PipelineState", "RingIndex"]


class RingIndex:
    """A position in a ring of stages.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    stages : int
        Stages of the ring.
    name : str
        The name of the variable.
    start : int
        The first stage.

    Examples
    --------
    >>> from cuteblas.codegen.pipeline import RingIndex
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> at = RingIndex(k, 3, "at")
    >>> at.advance()
    >>> print("\\n".join(k.build().body.splitlines()[-4:-1]))
      int const tid = threadIdx.x;
      int at = 0;
      at = at == 2 ? 0 : at + 1;
    """

    def __init__(self, k: KernelBuilder, stages: int, name: str, start: int = 0):
        self._k, self._stages = k, stages
        self.index = k.variable(name, start % stages, hi=stages - 1)

    @property
    def _is_last(self) -> Condition:
        return equal(self.index, self._stages - 1)

    def advance(self) -> None:
        """Move to the next stage."""
        self._k.assign(self.index, select(self._is_last, 0, self.index + 1))


class PipelineState(RingIndex):
    """The stage that a role works on, and the parity of its phase, which changes with each round of
    the ring.

    Parameters
    ----------
    k, stages, name
        See :class:`RingIndex`.

    Examples
    --------
    >>> from cuteblas.codegen.pipeline import PipelineState
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=64, arch="sm_90")
    >>> stage = PipelineState(k, 3, "stage")
    >>> stage.advance()
    >>> print("\\n".join(k.build().body.splitlines()[-6:-1]))
      int const tid = threadIdx.x;
      int stage = 0;
      int parity = 0;
      parity = stage == 2 ? parity ^ 1 : parity;
      stage = stage == 2 ? 0 : stage + 1;
    """

    def __init__(self, k: KernelBuilder, stages: int, name: str):
        super().__init__(k, stages, name)
        self.parity = k.variable("parity" if name == "stage" else f"parity_of_{name}", 0, hi=1)

    def advance(self) -> None:
        """Move to the next stage."""
        self._k.assign(self.parity, select(self._is_last, self.parity ^ 1, self.parity))
        super().advance()


class Pipeline:
    """The barriers of a ring: the producer acquires a stage, fills it and commits it, a consumer
    waits for it and releases it.

    Producer and consumer go round the same stages in the same order, each with a state of its own.
    The producer's first time round finds all stages empty: it waits for the parity that barriers
    have before their first phase.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    stages : int
        Stages of the ring.
    filled, emptied : int
        How many commits fill a stage, and how many releases empty it.
    names : tuple of str
        Names of the barriers of full stages and of free stages.
    stage : str
        The name of the variable that counts stages.

    References
    ----------
    CUTLASS, "Synchronization primitives": ``PipelineTmaAsync``, ``PipelineState``.

    Examples
    --------
    >>> from cuteblas.codegen.pipeline import Pipeline
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=64, arch="sm_90")
    >>> pipeline = Pipeline(k, stages=3, filled=32, emptied=32)
    >>> stage = pipeline.state()
    >>> pipeline.acquire(stage)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::mbarrier_wait(&empty[stage], parity ^ 1);'
    """

    def __init__(self, k: KernelBuilder, stages: int, filled: int, emptied: int,
                 names: tuple[str, str] = ("full", "empty"), stage: str = "stage"):
        self._k, self.stages, self._stage = k, stages, stage
        self._full, self._empty = Mbarriers(k, names[0], stages, filled), Mbarriers(k, names[1], stages, emptied)

    @property
    def barriers(self) -> tuple[Mbarriers, Mbarriers]:
        """The barriers of full stages and of free stages; initialise them before a role begins."""
        return self._full, self._empty

    def state(self) -> PipelineState:
        """The state of a role that begins at the first stage."""
        return PipelineState(self._k, self.stages, self._stage)

    def acquire(self, at: PipelineState) -> None:
        """Wait, as a producer, until a stage is free."""
        self._empty.wait(at.index, at.parity ^ 1)

    def expect(self, at: PipelineState, nbytes: int) -> None:
        """Commit a stage that is full once ``nbytes`` have arrived, too: for copies that complete
        its :meth:`barrier`."""
        self._full.expect(at.index, nbytes)

    def barrier(self, at: PipelineState) -> Element:
        """The barrier on which copies into a stage complete."""
        return self._full.at(at.index)

    def commit(self, stage: IntLike) -> None:
        """Signal that a producer has written its part of a stage."""
        self._full.arrive(stage)

    def wait(self, at: PipelineState) -> None:
        """Wait, as a consumer, until a stage is full."""
        self._full.wait(at.index, at.parity)

    def release(self, stage: IntLike, rank: IntLike | None = None) -> None:
        """Signal that a consumer has read a stage; with ``rank``, signal the block of the cluster
        that filled it."""
        if rank is None:
            self._empty.arrive(stage)
        else:
            self._empty.arrive_at(stage, rank)
