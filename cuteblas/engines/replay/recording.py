"""The steps of a call while it is recorded, and listeners to the plans that calls run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..counters import tally
from ..settings import planned_under_the_limit

if TYPE_CHECKING:
    from ...planning.plan import Plan

__all__ = ["MOST_RECORDED", "Recorded", "Recorder", "Step", "listeners", "listening", "store",
           "ticks_of"]

_MOST_BYTES = 1 << 30  # held of one call; with more, intermediate results are freed as soon as they
                       # have been read
MOST_RECORDED = 8192   # calls are few in practice; a program with ever new shapes starts over at
                       # this number

listeners: list[Callable[[Plan], object]] = []
"""Functions of every plan that runs. Read it; only :func:`listening` writes it."""


@contextmanager
def listening(listener: Callable[[Plan], object]) -> Iterator[None]:
    """Tell a function of every plan that runs meanwhile, also of calls that were recorded
    before."""
    for forget in planned_under_the_limit:
        forget()
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


class Step(NamedTuple):
    """What an engine did.

    Attributes
    ----------
    work : Plan or callable
        A plan, or a function of the library.
    arrays : tuple of array
        The arrays that it worked on; those of a plan in the order of its roles.
    plain : bool
        Whether the launch had no scalars.
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
        Whether all arrays are held.
    counted : list of (str, str, str)
        The counters that it advanced.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.steps_taken = self.arrays_made = 0
        self.made: list[Any] = []
        self.complete = True
        self.counted: list[tuple[str, str, str]] = []
        # by its identity: a view, and what it begins with
        self._begins: dict[int, tuple[Any, Any]] = {}

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


class Recorded(NamedTuple):
    """A call on CuPy arrays that has run: everything that its replay needs.

    Attributes
    ----------
    launch : callable
        A function of addresses, a stream and scalars.
    pick : callable or None
        From the addresses of inputs and result those that the launch takes; ``None`` for all.
    tick : callable
        Counts the call once more.
    several_devices : bool
        Whether the current device may be another one.
    shape, strides, order, dtype, nbytes
        Of a new result; no strides where they are those of the order.
    near : tuple of (int, int, int)
        The number of an input, and between which distances from it the result reaches into its
        range.
    types : tuple of dtype
        Those that the key has by their identity.
    """

    launch: Callable[..., Any]
    pick: Callable[[list[int]], tuple[int, ...]] | None
    tick: Callable[[], Any]
    several_devices: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    order: str
    dtype: np.dtype
    nbytes: int
    near: tuple[tuple[int, int, int], ...]
    types: tuple[np.dtype, ...]


def ticks_of(counted: Sequence[Sequence[str]]) -> Callable[[], Any]:
    """A function that advances the counters of a call once more."""
    ticks = tuple(tally(*each).tick for each in counted)
    return ticks[0] if len(ticks) == 1 else lambda: [tick() for tick in ticks]


def store(recorded: dict[tuple, Any], key: tuple | None, call: Any) -> None:
    """Add a recorded call to those of a replay, unless it has no key."""
    if len(recorded) >= MOST_RECORDED:
        recorded.clear()
    with suppress(TypeError):                           # an argument without a hash
        if key is not None:
            recorded[key] = call
