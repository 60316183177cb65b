"""The times of a program's products and copies of NumPy arrays with cuteblas and with NumPy: every kind of call runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..engines.memory import Memory
from ..functions import stats
from .comparison import Kinds, described, random_elements
from .terminal import duration

__all__ = ["NumpyCallCounter", "compared_with_numpy"]

_REPEATS, _SECONDS, _SHORT = 5, 0.5, 0.05      # for each kind of call; of short ones, more repeats
_BUDGET = 60.0                          # seconds for all
_LONGEST = 20.0                         # seconds that one call by NumPy may be expected to take
_WITH_BLAS, _WITHOUT = 2e10, 5e8        # multiplications in a second, at least, with which that is expected
_ALIGNMENT = 16


class _Array(NamedTuple):
    """An array without its elements: its memory, and the number of an earlier array of the call that begins where it does."""

    memory: Memory
    same: int | None


class NumpyCallCounter(Kinds):
    """Counts the kinds of calls that arrive at NumPy's functions."""

    def begin(self) -> None:
        """Start counting."""
        from ..array.numpy_hooks import SWITCH

        SWITCH.watch = self.note

    def end(self) -> None:
        """Stop counting."""
        from ..array.numpy_hooks import SWITCH

        SWITCH.watch = None

    def compared(self) -> Iterator[str]:
        """The report of :func:`compared_with_numpy`."""
        return compared_with_numpy(self)

    def note(self, function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Count a call."""
        addresses: list[int] = []
        self.count(function, _frozen(args, addresses), _frozen(tuple(named.items()), addresses))


def _frozen(x: Any, addresses: list[int]) -> Any:
    if isinstance(x, np.ndarray):
        address = x.__array_interface__["data"][0]
        same = addresses.index(address) if address in addresses else None
        addresses.append(address)
        return _Array(Memory(x.shape, x.strides, x.dtype, address % _ALIGNMENT), same)
    return (type(x), *(_frozen(each, addresses) for each in x)) if isinstance(x, (tuple, list)) else x


def _made(x: Any, arrays: list[np.ndarray]) -> Any:
    """The argument that was frozen, with random elements."""
    if isinstance(x, _Array):
        arrays.append(_array(x.memory, None if x.same is None else arrays[x.same]))
        return arrays[-1]
    return x[0](_made(each, arrays) for each in x[1:]) if isinstance(x, tuple) else x


def _array(kind: Memory, same: np.ndarray | None) -> np.ndarray:
    low, high = kind.span
    if same is not None and same.base is not None and low == 0 and high <= same.base.nbytes:
        return np.ndarray(kind.shape, kind.dtype, same.base, 0, kind.strides)
    offset = (kind.address + low) % _ALIGNMENT
    memory = np.empty(offset + high - low + _ALIGNMENT, np.int8)
    begin = -memory.__array_interface__["data"][0] % _ALIGNMENT + offset
    values = random_elements(kind.dtype, (high - low) // kind.dtype.itemsize + 1).view(np.int8)
    place = memory[begin:begin + high - low]
    for start in range(0, len(place), len(values)):
        place[start:start + len(values)] = values[:len(place) - start]
    return np.ndarray(kind.shape, kind.dtype, place, -low, kind.strides)


class _Times(NamedTuple):
    """Seconds of one call by this package and by NumPy, and where ours ran."""

    ours: float
    numpys: float
    route: str


def compared_with_numpy(counter: NumpyCallCounter) -> Iterator[str]:
    """Time the counted kinds of calls and report on them, line by line; those with the most work first.

    Each is made on random numbers in arrays of the same types, shapes, strides and alignments, in turns as the program made it and
    by NumPy's own function. Times are medians by the wall clock; ours are made once before.

    Parameters
    ----------
    counter : NumpyCallCounter
        The calls.
    """
    from ..array import numpy_hooks

    counter.end()
    if not counter.calls:
        return
    kinds = sorted(counter.calls.items(), key=lambda kind: -kind[1] * _work(kind[0]))
    yield "\ntime of one call, repeated on random numbers of the same types, shapes and strides"
    yield f"  {'calls':>9}  {'cuteblas':>9}  {'NumPy':>9}  ratio  call"
    start, missing, ours, numpys = perf_counter(), counter.unknown, 0.0, 0.0
    everywhere, numpy_hooks.SWITCH.everywhere = numpy_hooks.SWITCH.everywhere, False
    numpy_hooks.link()                  # at the end of the process, the hooks have been removed
    try:
        for kind, count in kinds:
            times = _timed(kind) if perf_counter() - start < _BUDGET and _expected(kind) < _LONGEST else None
            if times is None:
                missing += count
                continue
            ours, numpys = ours + count * times.ours, numpys + count * times.numpys
            yield f"  {count:>9}  {_line(times.ours, times.numpys)}  {_call(kind)}: {times.route}"
    finally:
        numpy_hooks.SWITCH.everywhere = everywhere
        numpy_hooks.unlink()
    yield f"  {'in all':>9}  {_line(ours, numpys)}"
    if missing:
        yield f"  {missing:>9}  calls were not timed"


def _line(ours: float, numpys: float) -> str:
    return f"{duration(ours):>9}  {duration(numpys):>9}  {numpys / max(ours, 1e-12):>5.2f}"


def _arrays(x: Any) -> Iterator[Memory]:
    if isinstance(x, _Array):
        yield x.memory
    elif isinstance(x, tuple):
        for each in x:
            yield from _arrays(each)


def _work(kind: tuple[Any, ...]) -> float:
    """A measure that grows as the multiplications of a product do."""
    sizes = [x.size for x in _arrays(kind[1:])]
    return prod(sizes) ** (1.5 / max(len(sizes), 1)) if len(sizes) != 1 else sizes[0]


def _expected(kind: tuple[Any, ...]) -> float:
    """Seconds that NumPy may take."""
    first = next(_arrays(kind[1:]), None)
    return _work(kind) / (_WITH_BLAS if first is None or first.dtype.char in "fdFD" else _WITHOUT)


def _call(kind: tuple[Any, ...]) -> str:
    """The function, types and shapes, and the orders that are not C."""
    function = kind[0]
    operands = map(described, _arrays(kind[1:]))
    words = [repr(x) for x in kind[1][1:] if isinstance(x, (str, int))]
    return f"{function.__name__}({', '.join([*words, *operands])})"


def _timed(kind: tuple[Any, ...]) -> _Times | None:
    """The times of one kind of call; ``None`` if there is no memory for it, or it fails."""
    from ..array.numpy_hooks import HERE, as_a_program

    function, *frozen = kind
    arrays: list[np.ndarray] = []
    try:
        args, named = _made(frozen[0], arrays), dict(_made(frozen[1], arrays))

        def ours() -> None:
            token = HERE.set(True)
            try:
                as_a_program(function, *args, **named)
            finally:
                HERE.reset(token)

        def numpys() -> None:
            as_a_program(function, *args, **named)

        before = stats()
        ours()
        route = _route(before, stats())
        mine, rivals = _in_turns(ours, numpys)
        return _Times(mine, rivals, route)
    except (MemoryError, ValueError, TypeError):
        return None


def _in_turns(*calls: Callable[[], None]) -> list[float]:
    start = perf_counter()
    taken: list[list[float]] = [[] for _ in calls]
    while not taken[0] or (perf_counter() - start < _SECONDS and len(taken[0]) < _REPEATS) or perf_counter() - start < _SHORT:
        for call, times in zip(calls, taken, strict=True):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
    return [median(times) for times in taken]


def _route(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What was counted in between."""
    details = [detail for function, groups in after.items() for group, counts in groups.items() for detail, n in counts.items()
               if n > before.get(function, {}).get(group, {}).get(detail, 0)]
    return ", ".join(dict.fromkeys(details)) or "NumPy, at once"
