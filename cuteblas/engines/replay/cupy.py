"""Calls on CuPy arrays that have run before: one look-up leads to their launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any

import cupy
import numpy as np

from ..._forks import forget_in_children
from ..cuda import CUDA, current_device, current_stream, launcher_for, several_devices
from ..settings import planned_under_the_limit
from . import kept
from .kept import as_one_step, as_program, made_ready
from .recording import MOST_RECORDED, Recorded, Recorder, listeners, store, ticks_of

__all__ = ["NDARRAY", "forget", "key_of_call", "record", "recorded", "replay"]

recorded: dict[tuple, Any] = {}
"""Recorded calls by their keys, and recorded groups."""

_not_kept: set[tuple] = set()
"""Keys of calls that no process has kept."""

NDARRAY = cupy.ndarray                  # looked up where it is noticed
_BARE = cupy.ndarray.__mro__[1]
_new: Any = _BARE.__new__
_fill_in: Any = getattr(_BARE, "_init", None)


def _by_parts(shape: tuple[int, ...], dtype: np.dtype, memory: Any, strides: tuple[int, ...] | None,
              order: str) -> Any:
    """``cupy.ndarray(shape, dtype, memory, strides, order)``, by the two calls in it."""
    made = _new(NDARRAY)
    _fill_in(made, shape, dtype, memory, strides, order)
    return made


_made: Callable[..., Any] = cupy.ndarray if _fill_in is None else _by_parts


def key_of_call(head: Hashable, inputs: Sequence[Any], out: Any) -> tuple | None:
    """The key of a call; ``None`` if an array is not a plain CuPy array."""
    # Two calls with one key are the same call, whatever the arrays contain: the head, a part for
    # each operand, a part for ``out`` (``None`` without one), and whether the first two operands
    # begin at one address. Types are there by identity, since equal ones may differ in what NumPy
    # makes of them (``long``, ``longlong``, metadata): whoever keeps a key keeps the types.
    if any(type(x) is not cupy.ndarray for x in (inputs if out is None else (*inputs, out))):
        return None
    same = (True,) if len(inputs) > 1 and inputs[0].data.ptr == inputs[1].data.ptr else ()
    return head, *map(_part, inputs), None if out is None else _part(out), *same


def _part(x: Any) -> tuple:
    return x.shape, x.strides, id(x.dtype), x.data.ptr & 15, x.data.device_id


def replay(head: Hashable, inputs: tuple[Any, ...], out: Any, scalars: tuple[Any, ...] = ()) -> Any:
    """The result of a call if one like it has run before, else ``None``."""
    # Shapes, strides, types, alignments and devices decide everything, except whether ``out``
    # overlaps an input: where address ranges meet, the long way finds out. An input that is
    # ``out`` itself is left out of ``inputs``; ``scalars`` follow addresses and stream.
    key, addresses = [head], []      # as key_of_call, without its calls: they would be noticed here
    for x in inputs if out is None else (*inputs, out):
        if type(x) is not NDARRAY:
            return None
        data = x.data
        address = data.ptr
        addresses.append(address)
        key.append((x.shape, x.strides, id(x.dtype), address & 15, data.device_id))
    if out is None:
        key.append(None)
    if len(inputs) > 1 and addresses[0] == addresses[1]:
        key.append(True)
    try:
        found = recorded.get(tuple(key))
        if found is None and (found := _kept_call(tuple(key), head, inputs, out)) is None:
            return None
    except TypeError:                                   # an argument without a hash
        return None
    launch, pick, tick, several, shape, strides, order, dtype, nbytes, near, _types = found
    if several and current_device() != data.device_id:
        return None
    if out is None:
        memory = cupy.cuda.alloc(nbytes)
        address = memory.ptr
        if address & 15:
            return None
        addresses.append(address)
        out = _made(shape, dtype, memory, strides, order)
    else:
        for i, below, above in near:
            if below < address - addresses[i] < above:
                return None
    try:
        launch(addresses if pick is None else pick(addresses), current_stream(), *scalars)
    except cupy.cuda.memory.OutOfMemoryError:           # the long way has an alternative
        return None
    tick()
    return out


def forget() -> None:
    recorded.clear()
    _not_kept.clear()


def _kept_call(key: tuple, head: Hashable, inputs: Sequence[Any], out: Any) -> Recorded | None:
    """A call that has not run in this process, if another one has kept it."""
    if key in _not_kept or listeners:
        return None
    from ... import runtime

    if runtime.capturing():                             # nothing can be loaded now
        return None
    with suppress(Exception):
        if (found := kept.read(head, inputs, out)) is not None:
            store(recorded, key, found)
            return found
    if len(_not_kept) >= MOST_RECORDED:
        _not_kept.clear()
    _not_kept.add(key)
    return None


def record(recorder: Recorder, head: Hashable, inputs: Sequence[Any], out: Any, result: Any,
           roles: Sequence[str], scalars: bool) -> None:
    """Let :func:`replay` answer such calls, if their steps are known, and keep them on disk."""
    # ``roles`` are what each input and, last, the result is to a plan; a call of several steps has
    # no ``scalars``.
    if {type(x) for x in (*inputs, result)} != {cupy.ndarray} or not (
        scalars or all(step.plain for step in recorder.steps)
    ):
        return
    near = _near(inputs, result)
    program = as_one_step(recorder, inputs, out, result, roles)
    # an operand that out meets may have been copied for that
    if program is None and not scalars and (out is None or not any(
            below < out.data.ptr - inputs[i].data.ptr < above for i, below, above in near)):
        program = as_program(recorder, inputs, result)
    if program is not None:
        ready: Any = made_ready(program, len(inputs) + 1, result.data.device_id, launcher_for)
        call = Recorded._make((*ready, ticks_of(recorder.counted), several_devices(),
                               *_made_like(result), near,
                               tuple(x.dtype for x in (*inputs, result))))
        store(recorded, key_of_call(head, inputs, out), call)
        kept.write(head, inputs, out, call, program, recorder.counted)


def _made_like(result: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None, str, np.dtype, int]:
    """Shape, strides, order, type and bytes of a new result."""
    order = "F" if result.flags.f_contiguous and not result.flags.c_contiguous else "C"
    usual = _made(result.shape, result.dtype, result.data, None, order).strides == result.strides
    return result.shape, None if usual else result.strides, order, result.dtype, result.nbytes


def _near(inputs: Sequence[Any], result: Any) -> tuple[tuple[int, int, int], ...]:
    *spans, (low, high) = (CUDA.memory(x).span for x in (*inputs, result))
    return tuple((i, first - high, end - low) for i, (first, end) in enumerate(spans))


forget_in_children(forget)
planned_under_the_limit.append(forget)
