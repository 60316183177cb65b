"""Making a call, and writing down everything that can be seen of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cuteblas

from .calls import Call, Memory, View, renamed
from .registry import out_position, out_views
from .sides import GUARD, Side
from .values import contents, evaluated

__all__ = ["Outcome", "Seen", "perform", "separated"]

@dataclass(frozen=True)
class Seen:
    """A value that a call returned.

    Attributes
    ----------
    label : str
        ``"array"``, ``"scalar"`` (of NumPy), ``"cupy"``, ``"ours"``, ``"sequence"`` or the name of
        the type.
    values : numpy.ndarray or object
        A copy of the elements, or the object.
    strides : tuple of int
    argument : int, optional
        The view whose array object this is.
    place : tuple of int, optional
        Memory and offset of its first element, if it is in one of the call's.
    writeable : bool
    items : tuple of Seen
        Of a list or a tuple.
    """

    label: str
    values: Any = None
    strides: tuple[int, ...] = ()
    argument: int | None = None
    place: tuple[int, int] | None = None
    writeable: bool = True
    items: tuple[Seen, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a call came to.

    Attributes
    ----------
    seen : Seen, optional
        Its result, if it returned.
    error : BaseException, optional
        What it raised.
    memories : list of numpy.ndarray
        All bytes of the memories afterwards, with their guards.
    before : list of numpy.ndarray
        The same in front of the call.
    warned : frozenset of str
        Categories of warnings, without those of floating-point arithmetic.
    """

    seen: Seen | None
    error: BaseException | None
    memories: list[np.ndarray]
    before: list[np.ndarray]
    warned: frozenset[str]


def perform(call: Call, side: Side) -> Outcome:
    """Make a call on fresh memory."""
    memories = [side.memory(contents(memory)) for memory in call.memories]
    arrays = [side.array(memories[view.memory], view) for view in call.views]
    before = [side.bytes_of(memory) for memory in memories]
    arguments = [evaluated(argument, arrays) for argument in call.arguments]
    keywords = {key: evaluated(argument, arrays) for key, argument in call.keywords}
    seen = error = None
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            result = side.functions[call.function](*arguments, **keywords)
            seen = _seen(result, arrays, [(side.address(m), b.nbytes)
                                          for m, b in zip(memories, before, strict=True)])
        except Exception as refusal:
            error = refusal
    warned = frozenset(w.category.__name__ for w in caught
                       if not issubclass(w.category, RuntimeWarning))
    return Outcome(seen, error, [side.bytes_of(memory) for memory in memories], before, warned)


def separated(call: Call) -> Call:
    """The call with every ``out`` in a memory of its own, apart from all operands."""
    views, memories, moved = list(call.views), list(call.memories), dict[int, int]()
    for i in out_views(call):
        memories.append(memories[views[i].memory])
        views.append(replace(views[i], memory=len(memories) - 1))
        moved[i] = len(views) - 1
    position = out_position(call)
    arguments = tuple(renamed(x, moved) if i == position else x
                      for i, x in enumerate(call.arguments))
    keywords = tuple((key, renamed(x, moved) if key == "out" else x) for key, x in call.keywords)
    return Call(call.function, arguments, keywords, tuple[View, ...](views),
                tuple[Memory, ...](memories))


def _seen(result: Any, arrays: list[Any], spans: list[tuple[int, int]]) -> Seen:
    if isinstance(result, (list, tuple)) and not isinstance(result, str):
        return Seen("sequence", type(result).__name__,
                    items=tuple(_seen(item, arrays, spans) for item in result))
    argument = next((i for i, array in enumerate(arrays) if array is result), None)
    if isinstance(result, np.generic):
        return Seen("scalar", np.asarray(result).copy())
    if type(result) is cuteblas.ndarray:
        return replace(_seen(result._data, [], spans), label="ours", argument=argument)
    if isinstance(result, np.ndarray):
        address = result.__array_interface__["data"][0]
        return Seen("array" if type(result) is np.ndarray else type(result).__name__, result.copy(),
                    result.strides, argument, _place(address, result.size, spans),
                    result.flags.writeable)
    if type(result).__module__.startswith("cupy"):
        return Seen("cupy", _downloaded(result), result.strides, argument,
                    _place(result.data.ptr, result.size, spans))
    return Seen(type(result).__name__, result, argument=argument)


def _place(address: int, size: int, spans: list[tuple[int, int]]) -> tuple[int, int] | None:
    if not size:
        return None
    return next(((i, address - start - GUARD) for i, (start, nbytes) in enumerate(spans)
                 if start <= address < start + nbytes), None)


def _downloaded(x: Any) -> np.ndarray:
    """The elements of a CuPy array, whatever its strides and alignment, on a GPU or in host
    memory."""
    import cupy

    host = np.empty(x.shape, x.dtype)
    if not x.size:
        return host
    below = -sum(min((n - 1) * s, 0) for n, s in zip(x.shape, x.strides, strict=True))
    above = sum(max((n - 1) * s, 0) for n, s in zip(x.shape, x.strides, strict=True)) + x.itemsize
    raw = np.empty(below + above, np.uint8)
    if isinstance(x.data.mem, cupy.cuda.UnownedMemory):
        import ctypes

        ctypes.memmove(raw.ctypes.data, x.data.ptr - below, raw.nbytes)
    else:
        raw[:] = cupy.ndarray(raw.shape, np.uint8, x.data - below).get()
    host[...] = np.ndarray(x.shape, x.dtype, raw, below, x.strides)
    return host
