"""Calls on NumPy arrays that NumPy has computed before are computed again at once, as calls on CuPy arrays are launched
(:mod:`~cuteblas.engines.repeats`): neither checked nor resolved. How each call was computed is remembered here: BLAS routines by
:func:`remember`, products with an epilogue by :func:`keep`, under keys of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .counters import tally
from .dispatch import Repeat, register_repeater
from .memory import Memory, overlaps_itself
from .placement import FEW
from .settings import backend_of_environment, chosen_backend

__all__ = ["Again", "Ready", "keep", "known", "remember", "repeated"]

_MOST = 4096                            # calls; a program with ever new shapes starts over at this number
_NDARRAY = np.ndarray

Again = Callable[[Sequence[Any], Any, tuple[Any, ...]], Any]
"""A function that computes a call from its inputs, ``out`` and scalars."""


class Ready(NamedTuple):
    """A call that has run."""

    again: Callable[..., Any]
    tick: Callable[[], int]
    few: bool                           # whether it is too small for a GPU


_ready: dict[tuple, Ready] = {}


def known(key: tuple) -> Ready | None:
    """The call of this key, if NumPy has computed it and would do so now."""
    if (ready := _ready.get(key)) is not None:
        where = chosen_backend() or backend_of_environment()
        if where == "numpy" or (where == "auto" and ready.few):
            return ready
    return None


def keep(key: tuple, function: str, again: Callable[..., Any], arrays: Sequence[np.ndarray]) -> None:
    """Let :func:`known` find a call on these arrays, counted on a function's account."""
    if len(_ready) >= _MOST:
        _ready.clear()
    _ready[key] = Ready(again, tally(function, "calls", "numpy").tick, sum(x.size for x in arrays) <= FEW)


def repeated(head: Hashable, inputs: Sequence[Any], out: Any, scalars: tuple[Any, ...] = ()) -> Any:
    """The result of a call if NumPy has computed one like it before, else ``None``.

    Shapes and types decide everything about a call that was accepted, except whether ``out`` can be written and overlaps an input.

    Parameters
    ----------
    head : hashable
        The function, and all arguments that are not arrays: equal ones mean the same.
    inputs : sequence
        The operands.
    out : array or None
        Receives the result.
    scalars : tuple
        Further arguments of the call.
    """
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
        ready = known(tuple(key))
    except TypeError:                                   # an argument without a hash
        return None
    if ready is None:
        return None
    result = ready.again(inputs, out, scalars)
    ready.tick()
    return result


def remember(repeat: Repeat, function: str, again: Again) -> None:
    """Let :func:`repeated` answer calls like one that NumPy has computed.

    Parameters
    ----------
    repeat : Repeat
        The call.
    function : str
        The function for whose account it is counted.
    again : callable
        Computes it from inputs, ``out`` and scalars, and holds none of them.
    """
    _repeated, head, inputs, out, _roles, _scalars = repeat
    arrays = inputs if out is None else (*inputs, out)
    if any(type(x) is not _NDARRAY for x in arrays) or not all(x.size for x in arrays) \
            or (out is not None and overlaps_itself(Memory(out.shape, out.strides, out.dtype))):
        return
    key: tuple[Any, ...] = (head, *((x.shape, x.dtype) for x in inputs))
    if out is not None:
        key += ((out.shape, out.dtype, out.strides),)
    keep(key, function, again, arrays)


register_repeater(np.ndarray, repeated)
