"""The times of a program's products with cuteblas and with CuPy alone: every kind of call runs again on both."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .._forks import surviving
from ..engines.memory import Memory, is_contiguous
from .machines import Gpu, medians
from .terminal import duration

__all__ = ["CallCounter", "Kinds", "compared", "described", "random_elements"]

_REPEATS, _SECONDS = 5, 0.2             # for each kind of call
_HOST_CALLS = 20
_BUDGET = 30.0                          # seconds for all
_WORD = 16
_RANDOM = 1 << 20                       # elements that are drawn; larger arrays repeat them


class Kinds:
    """Counts kinds of calls.

    Attributes
    ----------
    calls : Counter
        By the function and its arguments: of an array everything but its elements, and of its address the remainder by 16.
    unknown : int
        Calls with an argument that has no hash.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[Any, ...]] = Counter()
        self.unknown = 0
        self._lock = surviving(Lock())

    def count(self, *kind: Any) -> None:
        """Count a call."""
        with self._lock:
            try:
                self.calls[kind] += 1
            except TypeError:           # a list of axes
                self.unknown += 1


class CallCounter(Kinds):
    """Counts the kinds of calls that arrive at the hooks of CuPy."""

    def begin(self) -> None:
        """Start counting."""
        from ..array import hooks

        hooks.SWITCH.watch = self.note

    def end(self) -> None:
        """Stop counting."""
        hooks: Any = sys.modules.get("cuteblas.array.hooks")       # no program but one that imports CuPy has them
        if hooks is not None:
            hooks.SWITCH.watch = None

    def compared(self) -> Iterator[str]:
        """The report of :func:`compared`."""
        return compared(self)

    def note(self, patch: Any, call: tuple) -> None:
        """Count a call."""
        self.count(patch, tuple(_kind(x) if hasattr(x, "strides") else x for x in call))


def _kind(x: Any) -> Memory:
    return Memory(x.shape, x.strides, x.dtype, x.data.ptr % _WORD)


def described(x: Memory) -> str:
    """The type and the shape of an array, and its order if that is not C."""
    order = "" if is_contiguous(x, "C") else " F" if is_contiguous(x, "F") else " strided"
    return f"{x.dtype} {'x'.join(map(str, x.shape)) or '()'}{order}"


class _Times(NamedTuple):
    """Seconds of one call: on the device and on the host, ours and CuPy's."""

    ours: float
    rival: float
    ours_on_host: float
    rival_on_host: float


def compared(counter: CallCounter, machine: Any = None) -> Iterator[str]:
    """Time the counted kinds of calls and report on them, line by line; those with the most work first.

    Each is made on random numbers in arrays of the same types, shapes, strides and alignments. The time on the device is the median
    between two events, with a cold L2 cache; that on the host is what it takes until the call returns.

    Parameters
    ----------
    counter : CallCounter
        The calls.
    machine : Gpu, optional
        The clock.
    """
    counter.end()
    if not counter.calls:
        return
    kinds = sorted(counter.calls.items(), key=lambda kind: -kind[1] * _work(kind[0][1]))
    machine = Gpu() if machine is None else machine
    yield "\ntime of one call on the device (and on the host), repeated on random numbers of the same types, shapes and strides"
    yield f"  {'calls':>9}  {'cuteblas':>20}  {'CuPy':>20}  ratio  call"
    start, missing, sums = perf_counter(), counter.unknown, np.zeros(4)
    for (patch, arguments), count in kinds:
        times = _timed(machine, patch, arguments) if perf_counter() - start < _BUDGET else None
        if times is None:
            missing += count
            continue
        sums += count * np.array(times)
        operands = ", ".join(described(x) for x in arguments if isinstance(x, Memory))
        yield f"  {count:>9}  {_line(_Times(*times))}  {patch.place.removeprefix('cupy.')}({operands})"
    yield f"  {'in all':>9}  {_line(_Times(*sums))}"
    if missing:
        yield f"  {missing:>9}  calls were not timed"


def _work(arguments: tuple) -> float:
    """A measure that grows as the multiplications of a product do."""
    a, b = arguments[:2]
    return (a.size * b.size) ** 0.5


def _line(times: _Times) -> str:
    ours, rival = (f"{duration(device)} ({duration(host)})" for device, host in
                   ((times.ours, times.ours_on_host), (times.rival, times.rival_on_host)))
    return f"{ours:>20}  {rival:>20}  {times.rival / max(times.ours, 1e-12):>5.2f}"


def _timed(machine: Any, patch: Any, arguments: tuple) -> _Times | None:
    """The times of one kind of call; ``None`` if there is no memory for it, or CuPy takes another way than through this hook."""
    from ..array import hooks

    token = hooks.HERE.set(True)
    try:
        call = tuple(_array(machine, x) if isinstance(x, Memory) else x for x in arguments)
        if patch.original(*call) is NotImplemented:
            return None
        both: tuple[Callable[[], Any], ...] = (lambda: patch.hook(*call)), (lambda: patch.original(*call))
        ours, rival = medians(machine, *both, repeats=_REPEATS, seconds=_SECONDS)
        return _Times(ours, rival, *(_on_host(machine, each) for each in both))
    except MemoryError:
        return None
    finally:
        hooks.HERE.reset(token)


def _on_host(machine: Any, call: Callable[[], Any]) -> float:
    return median(machine.host_interval(call, _HOST_CALLS) for _ in range(3)) / _HOST_CALLS


def _array(machine: Any, kind: Memory) -> Any:
    """An array of that kind with random elements."""
    low, high = kind.span
    offset = (kind.address + low) % _WORD
    count = -(-(offset + high - low) // kind.dtype.itemsize)
    memory = machine.rival.resize(machine.put(random_elements(kind.dtype, count)), count)
    return machine.rival.ndarray(kind.shape, kind.dtype, memory.data + (offset - low), kind.strides)


def random_elements(dtype: np.dtype, count: int) -> np.ndarray:
    """Numbers between -1 and 1, integers below 100 or bool; at most 2^20."""
    numbers = np.random.default_rng(0).uniform(-1, 1, min(count, _RANDOM))
    if dtype.kind in "iu":
        numbers = 100 * abs(numbers)
    elif dtype.kind == "b":
        numbers = abs(numbers).round()
    return numbers.astype(dtype)
