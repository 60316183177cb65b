"""Groups of products on CuPy arrays that have run before. Like ``_cupy``, imported when the first CuPy array arrives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._forks import forget_in_children
from ..planning.gemm.grouped import Form
from ..planning.plan import Plan
from . import _cupy
from .groups import routes
from .memory import Memory

__all__ = ["GroupRecorder", "Product", "repeated_group"]


class Product(Protocol):
    """One product of a call: what tells it from others besides its arrays, what is read, what is written, alpha and beta."""

    @property
    def head(self) -> Hashable: ...

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def out(self) -> Any: ...

    @property
    def scalars(self) -> tuple[Any, Any]: ...

    @property
    def roles(self) -> Sequence[str]:
        """What each input and, last, the result is to a plan."""


class _Ready(NamedTuple):
    """A group that has run. Arrays are numbered: the inputs and the result of the first product, then those of the second ..."""

    launch: Callable[..., Any]
    ticks: tuple[Callable[[], int], ...]
    several_devices: bool
    results: tuple[Memory, ...]
    lows: np.ndarray                    # where the bytes of each array begin, relative to its address,
    highs: np.ndarray                   # and where they end
    read: np.ndarray                    # the numbers of those that have elements
    written: np.ndarray
    form: Form
    words: np.ndarray                   # of the table that hold an address,
    numbers: np.ndarray                 # the array that it belongs to,
    shifts: np.ndarray                  # and what is added to it
    types: tuple[np.dtype, ...]         # those that the key has by their identity


_ready: dict[tuple, _Ready] = {}
forget_in_children(_ready.clear)


def _key(function: str, products: Sequence[Product]) -> tuple | None:
    """The key of a group, which has those of its products; ``None`` if an array is no plain CuPy array."""
    keys: list[Any] = [function]
    for p in products:
        key = _cupy.key_of_call(p.head, p.inputs, p.out)
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def repeated_group(function: str, products: Sequence[Product]) -> list[Any] | None:
    """The results of a group if the like of it has run before, else ``None``.

    Where the address ranges of a result and of any other array meet, the long way finds out.
    """
    try:
        key = _key(function, products)
        ready = None if key is None else _ready.get(key)
    except TypeError:                   # an argument without a hash
        return None
    if ready is None or (ready.several_devices and _cupy.current_device() != products[0].inputs[0].data.device_id):
        return None
    results = [_cupy.CUPY.empty(like) if p.out is None else p.out for p, like in zip(products, ready.results, strict=True)]
    if any(p.out is None and result.data.ptr & 15 for p, result in zip(products, results, strict=True)):
        return None
    addresses = np.array([x.data.ptr for p, result in zip(products, results, strict=True) for x in (*p.inputs, result)], np.int64)
    if _meet(addresses + ready.lows, addresses + ready.highs, ready.read, ready.written):
        return None
    table = ready.form.blank.copy()
    table[ready.words] = addresses[ready.numbers] + ready.shifts
    for number in ready.form.numbers:
        number.write(table, products[number.problem].scalars[number.name == "beta"])
    ready.launch((_cupy.uploaded(table).ptr,), _cupy.current_stream())
    for tick in ready.ticks:
        tick()
    return results


def _meet(lows: np.ndarray, highs: np.ndarray, read: np.ndarray, written: np.ndarray) -> bool:
    """Whether a range that is written meets another one."""
    order = written[np.argsort(lows[written])]
    starts, ends = lows[order], highs[order]
    if (starts[1:] < ends[:-1]).any():
        return True
    after = np.searchsorted(ends, lows[read], "right")          # of those that are written the first that ends behind the beginning
    within = after < len(starts)
    return bool((starts[after[within]] < highs[read[within]]).any())


class GroupRecorder(_cupy.Recorder):
    """The engine of one call of many products, which notes what the call comes to."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: list[Plan] = []

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Launch a plan for many problems on the current stream, behind the copy of its table."""
        self._groups.append(plan)
        super().run_table(plan, table, reached)

    def remember_group(self, function: str, products: Sequence[Product], results: Sequence[Any]) -> None:
        """Let :func:`repeated_group` answer calls like this one, if it came to one group of all products and to nothing else."""
        created = sum(p.out is None for p in products)
        key = _key(function, products)
        if key is None or len(self._groups) != 1 or not self.nothing_but(launches=0, created=created):
            return
        (plan,) = self._groups
        form: Form = plan.config.form                            # type: ignore[attr-defined]
        numbers: dict[tuple[int, str], int] = {}
        for i, p in enumerate(products):
            numbers |= {(i, role): len(numbers) + j for j, role in enumerate(p.roles)}
        memories = [self.memory(x) for p, result in zip(products, results, strict=True) for x in (*p.inputs, result)]
        last = {numbers[i, p.roles[-1]] for i, p in enumerate(products)}
        with_elements = [i for i, x in enumerate(memories) if x.size]
        lows, highs = (np.array(ends, np.int64) for ends in zip(*(x.span for x in memories), strict=True))
        read, written = (np.array([i for i in with_elements if (i in last) == wanted], np.intp) for wanted in (False, True))
        ready = _Ready(_cupy.launcher_for(plan, results[0].data.device_id), tuple(route.tick for route in routes(plan, function)),
                       _cupy.several_devices(), tuple(map(self.memory, results)), lows, highs, read, written, form,
                       np.array([address.word for address in form.addresses], np.intp),
                       np.array([numbers[address.problem, address.role] for address in form.addresses], np.intp),
                       np.array([address.shift for address in form.addresses], np.int64), tuple(x.dtype for x in memories))
        if len(_ready) >= _cupy.MOST_READY:
            _ready.clear()
        _ready[key] = ready
