"""Time each kind of call that a program made, with cuteblas and with CuPy or NumPy alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from math import prod
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .._forks import surviving
from ..engines.memory import Memory, is_contiguous
from ..functions import reset_stats, stats
from ..planning.floors import duration
from .machines import ADDRESS_BYTES, Gpu, Host, medians, random_array_at

_BELOW = 100                            # random integers: NumPy's products depend on their size
_REPEATS, _HOST_CALLS = 5, 20
_LONGEST = 20.0                   # seconds that one call by NumPy may be expected to take
_WITH_BLAS, _WITHOUT = 2e10, 5e8  # multiplications in a second, at least, with which that is
                                  # expected

Kind = tuple[Any, ...]
"""A function, its arguments and its named arguments: of an array everything but its elements."""


class _Array(NamedTuple):
    """An array's memory, and the number of an earlier array of the call that begins there."""

    memory: Memory
    same: int | None


class Calls:
    """Counts kinds of calls that arrive at the hooks of a library, and times them afterwards."""

    library, hooks, title, width = "", "", "", 0
    budget, seconds = 0.0, 0.0          # for all, and for each kind of call

    def __init__(self) -> None:
        self.calls: Counter[Kind] = Counter()
        self.unknown = 0
        self._lock = surviving(Lock())

    def begin(self) -> None:
        import_module(self.hooks).SWITCH.watch = self.note

    def note(
        self, function: Any, args: tuple[Any, ...], named: Mapping[str, Any] | None = None
    ) -> None:
        addresses: list[int] = []
        kind = function, frozen(args, addresses), frozen(tuple((named or {}).items()), addresses)
        with self._lock:
            try:
                self.calls[kind] += 1
            except TypeError:
                self.unknown += 1

    def timed(self, machine: Any, kind: Kind) -> tuple[list[float], str]:
        """Time a kind of call, ours and the library's, and describe it."""
        raise NotImplementedError

    def compared(self, machine: Any = None) -> Iterator[str]:
        """Time the counted kinds of calls on random numbers, and report, the most work first."""
        hooks: Any = sys.modules.get(self.hooks)  # no program but one that imports CuPy has them
        if hooks is not None:
            hooks.SWITCH.watch = None
        if not self.calls:
            return
        machine = machine or (Host() if self.library == "NumPy" else Gpu())
        yield (
            f"\ntime of one call{self.title}, repeated on random numbers of the same types, shapes "
            "and strides"
        )
        names = "  ".join(f"{name:>{self.width}}" for name in ("cuteblas", self.library))
        yield f"  {'calls':>9}  {names}  ratio  call"
        # of calls of CuPy arrays, on the device and on the host
        start, missing, sums = perf_counter(), self.unknown, np.zeros(4 if self.title else 2)
        for kind, count in sorted(self.calls.items(), key=lambda each: -each[1] * _work(each[0])):
            if perf_counter() - start < self.budget:
                with suppress(MemoryError, ValueError, TypeError):     # too large, or refused
                    times, text = self.timed(machine, kind)
                    sums += count * np.array(times)
                    yield f"  {count:>9}  {self._line(*times)}  {text}"
                    continue
            missing += count
        yield f"  {'in all':>9}  {self._line(*sums)}"
        if missing:
            yield f"  {missing:>9}  calls were not timed"

    def _line(self, ours: float, theirs: float, *on_host: float) -> str:
        cells = [f"{duration(device)}{f' ({duration(host)})' if on_host else ''}"
                 for device, host in zip((ours, theirs), on_host or (0, 0), strict=True)]
        return (
            f"{cells[0]:>{self.width}}  {cells[1]:>{self.width}}  {theirs / max(ours, 1e-12):>5.2f}"
        )


class CupyCalls(Calls):
    """Calls of CuPy arrays: timed on the device, with a cold L2 cache, and on the host."""

    library, hooks, width = "CuPy", "cuteblas.array.hooks", 20
    title = " on the device (and on the host)"
    budget, seconds = 30.0, 0.2

    def timed(self, machine: Any, kind: Kind) -> tuple[list[float], str]:
        """Time both."""
        from ..array.hooks import SWITCH

        patch, args, _named = kind
        token = SWITCH.here.set(True)
        try:
            call = made(machine, args, [])
            if patch.original(*call) is NotImplemented:
                raise TypeError("CuPy takes another way than this hook")
            both = partial(patch.hook, *call), partial(patch.original, *call)
            times = medians(machine, *both, repeats=_REPEATS, seconds=self.seconds)
            times += (
                median(machine.host_interval(each, _HOST_CALLS) for _ in range(3)) / _HOST_CALLS
                for each in both
            )
        finally:
            SWITCH.here.reset(token)
        operands = ", ".join(map(described, _arrays(args)))
        return times, f"{patch.place.removeprefix('cupy.')}({operands})"


class NumpyCalls(Calls):
    """Calls of NumPy arrays, by the wall clock."""

    library, hooks, width = "NumPy", "cuteblas.array.numpy_hooks", 9
    budget, seconds = 60.0, 0.5

    def compared(self, machine: Any = None) -> Iterator[str]:
        """Report as above, with the hooks in force only around our own calls."""
        from ..array.numpy_hooks import SWITCH

        everywhere, SWITCH.everywhere = SWITCH.everywhere, False
        SWITCH.link()                       # at the end of the process, the hooks have been removed
        try:
            yield from super().compared(machine)
        finally:
            SWITCH.everywhere = everywhere
            SWITCH.unlink()

    def timed(self, machine: Any, kind: Kind) -> tuple[list[float], str]:
        """Time both."""
        from ..array.numpy_hooks import SWITCH, as_a_program

        function, args, named = kind
        operands = [*_arrays(kind)]
        rate = _WITH_BLAS if all(x.dtype.char in "fdFD" for x in operands[:1]) else _WITHOUT
        if _work(kind) > _LONGEST * rate:
            raise ValueError("NumPy takes too long")
        arrays: list[np.ndarray] = []
        given, options = made(machine, args, arrays), dict(made(machine, named, arrays))
        theirs = partial(as_a_program, function, *given, **options)
        ours = partial(_inside, SWITCH.here, theirs)
        reset_stats()
        ours()
        route = [detail for groups in stats().values() for counts in groups.values()
                 for detail in counts]
        times = medians(machine, ours, theirs, repeats=_REPEATS, seconds=self.seconds)
        words = [repr(x) for x in args[1:] if isinstance(x, (str, int))]
        text = ", ".join([*words, *map(described, operands)])
        by = ", ".join(dict.fromkeys(route)) or "NumPy, at once"
        return times, f"{function.__name__}({text}): {by}"


def _inside(switch: ContextVar[bool], call: Callable[[], Any]) -> None:
    """Call where a switch is on."""
    token = switch.set(True)
    try:
        call()
    finally:
        switch.reset(token)


# -- kinds of calls --------------------------------------------------------------------------------
def frozen(x: Any, addresses: list[int]) -> Any:
    address = (
        x.__array_interface__["data"][0]
        if isinstance(x, np.ndarray)
        else getattr(getattr(x, "data", None), "ptr", None)
    )
    if address is not None:
        same = addresses.index(address) if address in addresses else None
        addresses.append(address)
        return _Array(Memory(x.shape, x.strides, x.dtype, address % ADDRESS_BYTES), same)
    return (
        (type(x), *(frozen(each, addresses) for each in x)) if isinstance(x, (tuple, list)) else x
    )


def made(machine: Any, x: Any, arrays: list[Any]) -> Any:
    if isinstance(x, _Array):
        base = None if x.same is None else arrays[x.same].base
        arrays.append(random_array_at(machine.rival, x.memory, base, below=_BELOW))
        return arrays[-1]
    return x[0](made(machine, each, arrays) for each in x[1:]) if isinstance(x, tuple) else x


def described(x: Memory) -> str:
    """The type and the shape of an array, and its order if that is not C."""
    order = "" if is_contiguous(x, "C") else " F" if is_contiguous(x, "F") else " strided"
    return f"{x.dtype} {'x'.join(map(str, x.shape)) or '()'}{order}"


def _arrays(x: Any) -> Iterator[Memory]:
    if isinstance(x, _Array):
        yield x.memory
    elif isinstance(x, tuple):
        for each in x:
            yield from _arrays(each)


def _work(kind: Kind) -> float:
    """A measure that grows as the multiplications of a product do."""
    sizes = [x.size for x in _arrays(kind[1:])]
    return prod(sizes) ** (1.5 / max(len(sizes), 1)) if len(sizes) != 1 else sizes[0]
