"""Calls on NumPy arrays that NumPy has computed, replayed without checks and resolution."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..counters import tally
from ..dispatch import Replayable, replays
from ..memory import Memory, overlaps_itself
from ..placement import FEW
from ..settings import backend_of_environment, chosen_backend
from .recording import store

__all__ = ["Compute", "Computed", "record", "record_key", "recorded", "replay"]

_NDARRAY = np.ndarray

Compute = Callable[[Sequence[Any], Any, tuple[Any, ...]], Any]
"""A function that computes a call from its inputs, ``out`` and scalars."""


class Computed(NamedTuple):
    compute: Callable[..., Any]
    tick: Callable[[], int]
    few: bool                           # whether it is too small for a GPU


_recorded: dict[tuple, Computed] = {}


def recorded(key: tuple) -> Computed | None:
    """The call of this key, if NumPy has computed it and would do so now."""
    if (found := _recorded.get(key)) is not None:
        where = chosen_backend() or backend_of_environment()
        if where == "numpy" or (where == "auto" and found.few):
            return found
    return None


def record_key(key: tuple, function: str, compute: Callable[..., Any],
               arrays: Sequence[np.ndarray]) -> None:
    store(_recorded, key, Computed(compute, tally(function, "calls", "numpy").tick,
                                   sum(x.size for x in arrays) <= FEW))


def replay(head: Hashable, inputs: Sequence[Any], out: Any, scalars: tuple[Any, ...] = ()) -> Any:
    """The result of a call if NumPy has computed one like it before, else ``None``."""
    # Shapes and types decide everything, except whether ``out`` can be written and overlaps an
    # input.
    key = [head]
    for x in inputs:
        if type(x) is not _NDARRAY:
            return None
        key.append((x.shape, x.dtype))
    if out is not None:
        if type(out) is not _NDARRAY or not out.flags.writeable or any(np.may_share_memory(x, out) for x in inputs):
            return None
        key.append((out.shape, out.dtype, out.strides))
    try:
        found = recorded(tuple(key))
    except TypeError:                                   # an argument without a hash
        return None
    if found is None:
        return None
    result = found.compute(inputs, out, scalars)
    found.tick()
    return result


def record(call: Replayable, function: str, compute: Compute) -> None:
    """Let :func:`replay` answer calls like this one; ``compute`` holds none of its arrays."""
    inputs, out = call.inputs, call.out
    arrays = inputs if out is None else (*inputs, out)
    if any(type(x) is not _NDARRAY for x in arrays) or not all(x.size for x in arrays) \
            or (out is not None and overlaps_itself(Memory(out.shape, out.strides, out.dtype))):
        return
    key: tuple[Any, ...] = (call.head, *((x.shape, x.dtype) for x in inputs))
    record_key(key if out is None else (*key, (out.shape, out.dtype, out.strides)), function,
               compute, arrays)


replays[np.ndarray] = replay
