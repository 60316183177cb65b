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
"""Functions of every plan that runs; only :func:`listening` writes it."""


@contextmanager
def listening(listener: Callable[[Plan], object]) -> Iterator[None]:
    """Tell a function of every plan that runs meanwhile, also in replays."""
    for forget in planned_under_the_limit:
        forget()
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


class Step(NamedTuple):
    """A plan or a method of the engine by name, and its arrays, a plan's by role; ``plain`` without
    scalars."""

    work: Plan | str
    arrays: tuple[Any, ...]
    plain: bool = True


class Recorder:
    """The steps of one call, its new arrays and its counts; while ``complete``, all are held."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.steps_taken = self.arrays_made = 0
        self.made: list[Any] = []
        self.complete = True
        self.counted: list[tuple[str, str, str]] = []
        # by its identity: a view, and what it begins with
        self._begins: dict[int, tuple[Any, Any]] = {}

    def note_array(self, new: Any) -> None:
        self.arrays_made += 1
        self.made.append(new)
        if sum(x.nbytes for x in self.made) > _MOST_BYTES:
            self.complete = False
        if not self.complete:
            self.steps, self.made, self._begins = self.steps[-1:], [], {}

    def note_view(self, view: Any, x: Any) -> None:
        """Note a view of ``x``, which begins where that begins."""
        if self.complete:
            self._begins[id(view)] = view, self.beginning(x)

    def note_step(self, work: Plan | str, *arrays: Any, plain: bool = True) -> None:
        self.steps_taken += 1
        if not self.complete:
            self.steps.clear()
        self.steps.append(Step(work, arrays, plain))

    def beginning(self, x: Any) -> Any:
        """The array that a view begins with; any other array itself."""
        return self._begins.get(id(x), (x, x))[1]


class Recorded(NamedTuple):
    """A call on CuPy arrays that has run. ``pick`` takes a launch's addresses from those of inputs
    and result (``None``: all); ``strides`` are ``None`` for those of the order; ``near`` has an
    input's number and the distances at which the result reaches into it; ``types`` are held for
    the key, which has their identity."""

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
    ticks = tuple(tally(*each).tick for each in counted)
    return ticks[0] if len(ticks) == 1 else lambda: [tick() for tick in ticks]


def store(recorded: dict[tuple, Any], key: tuple | None, call: Any) -> None:
    if len(recorded) >= MOST_RECORDED:
        recorded.clear()
    with suppress(TypeError):                           # an argument without a hash
        if key is not None:
            recorded[key] = call
