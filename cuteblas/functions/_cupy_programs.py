"""Calls on CuPy arrays that came to several steps, as one launch: copies, sums, products, and memory for what lies in between."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, itemgetter
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..planning.plan import Plan
from . import _cupy
from .counters import tally
from .memory import Memory

__all__ = ["Program", "ProgramRecorder", "multiply"]

_ALIGNMENT = 256                        # bytes, of what lies in between
_MOST_BYTES = 1 << 30                   # kept of one call; with more, what lies in between is freed as soon as it has been read

Step = Callable[[tuple[int, ...], int], Any]
"""A function of the addresses of all places and of a stream. The places are the operands, the result, and what lies in between."""


def multiply(x: Any, y: Any, out: Any) -> None:
    """``out[...] = x * y`` by CuPy."""
    cupy.multiply(x, y, out)


class _Place(NamedTuple):
    """An array without its address."""

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]

    def at(self, address: int, device: int) -> Any:
        """The array."""
        memory = cupy.cuda.UnownedMemory(address, 1, None, device)
        return cupy.ndarray(self.shape, self.dtype, cupy.cuda.MemoryPointer(memory, 0), self.strides)


@dataclass(frozen=True)
class _Launch:
    """A plan on some places."""

    launch: Callable[..., Any]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.launch(self.pick(addresses), stream)


@dataclass(frozen=True)
class _Shifted:
    """A plan on what lies some bytes behind the beginnings of places."""

    launch: Callable[..., Any]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    shifts: tuple[int, ...]

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.launch(tuple(map(add, self.pick(addresses), self.shifts)), stream)


@dataclass(frozen=True)
class _Call:
    """A function of CuPy on some places."""

    function: Callable[..., Any]
    places: tuple[_Place, ...]
    device: int

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.function(*(place.at(addresses[place.number], self.device) for place in self.places))


@dataclass(frozen=True)
class Program:
    """The steps of a call; it is launched as a plan is.

    Attributes
    ----------
    steps : tuple of Step
        In order.
    offsets : tuple of int
        Where in one allocation that lies which is neither an operand nor the result.
    nbytes : int
        Its size.
    """

    steps: tuple[Step, ...]
    offsets: tuple[int, ...]
    nbytes: int

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Put all steps on a stream, CuPy's current one; the allocation goes back to CuPy's pool, which keeps to its order."""
        places = tuple(addresses)
        if self.offsets:
            memory = cupy.cuda.alloc(self.nbytes)
            address = memory.ptr
            places += tuple([address + offset for offset in self.offsets])
        for step in self.steps:
            step(places, stream)


class ProgramRecorder(_cupy.Recorder):
    """The engine of one call, which notes its steps and on which arrays they work."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[Plan | Callable[..., Any], tuple[Any, ...]]] = []
        self._between: list[Any] = []
        self._derived: dict[int, tuple[Any, Any]] = {}          # by its identity: a view, and what it begins with
        self._ticks: list[Callable[[], int]] = []
        self._complete = True
        self._plain = True                                      # nothing was launched with numbers

    def empty(self, like: Memory) -> Any:
        """A new array from CuPy's allocator."""
        new = super().empty(like)
        self._between.append(new)
        if sum(x.nbytes for x in self._between) > _MOST_BYTES:
            self._complete = False
        if not self._complete:
            self._steps, self._between, self._derived = [], [], {}
        return new

    def shifted(self, x: Any, nbytes: int) -> Any:
        """An array that begins so many bytes behind another."""
        return self.derived(super().shifted(x, nbytes), x)

    def derived(self, view: Any, x: Any) -> Any:
        """A view of ``x``, which begins where that begins or behind it."""
        if self._complete:
            self._derived[id(view)] = view, self._derived.get(id(x), (x, x))[1]
        return view

    def note(self, function: Callable[..., Any], *arrays: Any) -> None:
        """Note a step that CuPy takes."""
        if self._complete and arrays[0].size:
            self._steps.append((function, arrays))

    def cast_by_cupy(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` by CuPy."""
        self.note(_cupy.cast, dst, src)
        super().cast_by_cupy(dst, src)

    def run(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Launch a plan on the current stream."""
        self._plain = self._plain and (alpha, beta, numbers) == (1, 0, None)
        self._complete = self._complete and self._plain
        if self._complete:
            self._steps.append((plan, tuple(arrays[role] for role in plan.problem.roles)))
        super().run(plan, arrays, alpha, beta, numbers)

    def count(self, function: str, group: str, detail: str) -> None:
        """Advance a counter."""
        tick = tally(function, group, detail).tick
        self._ticks.append(tick)
        tick()

    def remember(self, function: str, head: Hashable, inputs: Sequence[Any], out: Any, result: Any, roles: Sequence[str]) -> None:
        """Let :func:`~cuteblas.functions._cupy.repeated` answer calls like this one, if all of its steps are known."""
        if not self._plain or self.remember_launch(function, head, inputs, out, result, roles):
            return                                              # who repeats such calls gives no numbers
        arrays = (*inputs, result)
        between = [x for x in self._between if x is not result]
        places = {id(x): i for i, x in enumerate((*arrays, *between))}
        if not (self._complete and self._steps and result.size) or len(places) < len(arrays) + len(between) \
                or {type(x) for x in arrays} != {cupy.ndarray} or (out is not None and not self._apart(inputs, out)):
            return
        device = result.data.device_id
        steps = [self._step(work, on, places, device) for work, on in self._steps]
        if None in steps:
            return
        ends = list(accumulate((-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in between), initial=0))
        program, ticks = Program(tuple(step for step in steps if step), tuple(ends[:-1]), ends[-1]), tuple(self._ticks)
        self.make_ready(head, inputs, out, result, program, None, lambda: [tick() for tick in ticks])

    def _step(self, work: Plan | Callable[..., Any], on: Sequence[Any], places: Mapping[int, int], device: int) -> Step | None:
        """A step on numbered places; ``None`` if it works on another array."""
        beginnings = [self._derived.get(id(x), (x, x))[1] for x in on]
        numbers = [places.get(id(x), -1) for x in beginnings]
        shifts = tuple(x.data.ptr - begin.data.ptr for x, begin in zip(on, beginnings, strict=True))
        if -1 in numbers or (any(shifts) and not isinstance(work, Plan)):
            return None
        if isinstance(work, Plan):
            first, *others = numbers
            pick = itemgetter(*numbers) if others else itemgetter(slice(first, first + 1))
            if any(shifts):
                return _Shifted(_cupy.launcher_for(work, device), pick, shifts)
            return _Launch(_cupy.launcher_for(work, device), pick)
        return _Call(work, tuple(_Place(i, x.shape, x.dtype, x.strides) for i, x in zip(numbers, on, strict=True)), device)

    def _apart(self, inputs: Sequence[Any], out: Any) -> bool:
        """Whether the range of ``out`` meets no operand's: then it was not for that that something was copied."""
        (start, end), *others = ((x.address + x.span[0], x.address + x.span[1]) for x in map(self.memory, (out, *inputs)))
        return all(high <= start or end <= low for low, high in others)
