"""What one call came to: a list of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...planning.plan import Plan

__all__ = ["Recorder", "Step"]

_MOST_BYTES = 1 << 30                   # kept of one call; with more, what lies in between is freed as soon as it has been read


class Step(NamedTuple):
    """What an engine did.

    Attributes
    ----------
    work : Plan or callable
        A plan, or a function of the library.
    arrays : tuple of array
        What it worked on: of a plan in the order of its problem's roles.
    plain : bool
        Whether it was launched without scalars.
    """

    work: Plan | Callable[..., Any]
    arrays: tuple[Any, ...]
    plain: bool = True


class Recorder:
    """The steps of one call, the arrays that it made, and what it counted.

    Attributes
    ----------
    steps : list of Step
        All of them, in order, while ``complete``; else the last one.
    steps_taken, arrays_made : int
        How many.
    made : list of array
        New arrays, while ``complete``.
    complete : bool
        Whether all arrays are kept.
    ticks : list of callable
        What advances the counters.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.steps_taken = self.arrays_made = 0
        self.made: list[Any] = []
        self.complete = True
        self.ticks: list[Callable[[], int]] = []
        self._begins: dict[int, tuple[Any, Any]] = {}           # by its identity: a view, and what it begins with

    def note_array(self, new: Any) -> None:
        """Note a new array."""
        self.arrays_made += 1
        self.made.append(new)
        if sum(x.nbytes for x in self.made) > _MOST_BYTES:
            self.complete = False
        if not self.complete:
            self.steps, self.made, self._begins = self.steps[-1:], [], {}

    def note_view(self, view: Any, x: Any) -> None:
        """Note a view of ``x``, which begins where that begins or after it."""
        if self.complete:
            self._begins[id(view)] = view, self.beginning(x)

    def note_step(self, work: Plan | Callable[..., Any], *arrays: Any, plain: bool = True) -> None:
        """Note a step that is about to be taken."""
        self.steps_taken += 1
        if not self.complete:
            self.steps.clear()
        self.steps.append(Step(work, arrays, plain))

    def beginning(self, x: Any) -> Any:
        """The array that a view begins with; any other array itself."""
        return self._begins.get(id(x), (x, x))[1]
