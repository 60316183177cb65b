"""Launches of a replay: one plan, or a :class:`Program` of several steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, itemgetter
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...planning.plan import Plan
from ..cuda import launcher_for
from .recording import Recorder, Step

__all__ = ["Call", "Launcher", "Place", "Placed", "Program", "as_launch", "as_program",
           "picking"]

_ALIGNMENT = 256                        # bytes, of intermediate results

Launcher = Callable[[tuple[int, ...], int], Any]
"""A function of the addresses of operands, result and intermediate results, and of a stream."""


class Place(NamedTuple):
    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]

    def at(self, address: int, device: int) -> Any:
        memory = cupy.cuda.UnownedMemory(address, 1, None, device)
        return cupy.ndarray(self.shape, self.dtype, cupy.cuda.MemoryPointer(memory, 0),
                            self.strides)


@dataclass(frozen=True)
class Placed:
    """A plan on some places, perhaps on memory some bytes after their beginnings."""

    launch: Callable[..., Any]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    shifts: tuple[int, ...] | None

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        chosen = self.pick(addresses)
        self.launch(chosen if self.shifts is None else tuple(map(add, chosen, self.shifts)), stream)


@dataclass(frozen=True)
class Call:
    function: Callable[..., Any]
    places: tuple[Place, ...]
    device: int

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.function(*(place.at(addresses[place.number], self.device) for place in self.places))


@dataclass(frozen=True)
class Program:
    """The steps of a call, launched as a plan; intermediate results share an allocation."""

    steps: tuple[Launcher, ...]
    offsets: tuple[int, ...]
    nbytes: int

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Put all steps on CuPy's current stream, whose pool gets the allocation back in order."""
        places = tuple(addresses)
        if self.offsets:
            memory = cupy.cuda.alloc(self.nbytes)
            address = memory.ptr
            places += tuple([address + offset for offset in self.offsets])
        for step in self.steps:
            step(places, stream)


def as_launch(recorder: Recorder, inputs: Sequence[Any], out: Any, result: Any,
              roles: Sequence[str]) -> tuple[Any, Any] | None:
    """The launcher of a call of one step, and what picks addresses; ``None`` with new arrays."""
    if recorder.steps_taken != 1 or recorder.arrays_made != (out is None) or not isinstance(plan := recorder.steps[0].work, Plan):
        return None
    named, wanted = dict(zip(roles, (*inputs, result), strict=True)), plan.problem.roles
    if any(role not in named or x.data.ptr != named[role].data.ptr
           for role, x in zip(wanted, recorder.steps[0].arrays, strict=True)):
        return None
    pick = None if tuple(wanted) == tuple(roles) else itemgetter(*map(list(roles).index, wanted))
    return launcher_for(plan, result.data.device_id), pick


def as_program(recorder: Recorder, inputs: Sequence[Any],
               result: Any) -> tuple[Program, None] | None:
    """All steps of a call; ``None`` if one works on an array that is not known."""
    arrays = (*inputs, result)
    between = [x for x in recorder.made if x is not result]
    places = {id(x): i for i, x in enumerate((*arrays, *between))}
    if not (recorder.complete and recorder.steps
            and result.size) or len(places) < len(arrays) + len(between):
        return None
    steps = tuple(_launcher(recorder, step, places, result.data.device_id)
                  for step in recorder.steps)
    if None in steps:
        return None
    ends = list(accumulate((-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in between), initial=0))
    return Program(steps, tuple(ends[:-1]), ends[-1]), None  # type: ignore[arg-type]


def _launcher(recorder: Recorder, step: Step, places: Mapping[int, int],
              device: int) -> Launcher | None:
    """A step on numbered places; ``None`` if it works on another array."""
    work = step.work
    beginnings = [recorder.beginning(x) for x in step.arrays]
    numbers = [places.get(id(x), -1) for x in beginnings]
    shifts = tuple(x.data.ptr - begin.data.ptr
                   for x, begin in zip(step.arrays, beginnings, strict=True))
    if -1 in numbers or (any(shifts) and not isinstance(work, Plan)):
        return None
    if isinstance(work, Plan):
        return Placed(launcher_for(work, device), picking(numbers), shifts if any(shifts) else None)
    return Call(work, tuple(Place(i, x.shape, x.dtype, x.strides)
                            for i, x in zip(numbers, step.arrays, strict=True)), device)


def picking(numbers: Sequence[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    first, *others = numbers
    return itemgetter(*numbers) if others else itemgetter(slice(first, first + 1))
