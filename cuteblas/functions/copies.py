"""Copies that arrange elements anew: ``copy``, ``ascontiguousarray`` and ``asfortranarray``, by the copy kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .backends import current_backend
from .counters import tally
from .kinds import kind_of, own_call
from .memory import Memory, overlaps_itself
from .named import BY_NUMPY, check_variant, refuse_variant

__all__ = ["ascontiguousarray", "asfortranarray", "check_out", "checked_order", "copy", "fast_copies", "why_not_words"]

fast_copies: dict[type, Callable[..., Any]] = {}
"""By the type of an array: a function of (name of ours, array, order) and perhaps ``out`` that answers a call without further
arguments, or returns ``None`` for one that has to go the long way."""


def copy(a: Any, order: str | None = "K", subok: bool = False, *, out: Any = None, variant: str | None = None) -> Any:
    """A copy of an array, as ``numpy.copy`` makes it.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides and any element type.
    order : {"K", "C", "F", "A"}
        Layout of the copy: like ``a``, C, Fortran, or Fortran if ``a`` is Fortran contiguous and C otherwise.
    subok : bool
        Whether a subclass of ``numpy.ndarray`` stays what it is.
    out : array, optional
        Receives the copy and is returned: of the shape and type of ``a``, with any strides, which take the place of ``order``. It
        may overlap ``a``; ``copy(x.T, out=x)`` transposes a square matrix in place, ``copy(x.mT, out=x)`` every matrix of a stack.
    variant : str, optional
        A named kernel instead of the one that planning chooses; ``python -m cuteblas kernels`` lists them.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The copy, or ``out``.

    Raises
    ------
    TypeError
        If ``out`` is no array.
    ValueError
        For an unknown order, in NumPy's words; for an unknown variant, one that does not take this copy, or where no kernel runs;
        for ``out`` of another shape or type, on another device, or that cannot be written.

    Examples
    --------
    >>> import cuteblas, numpy
    >>> x = numpy.arange(4).reshape(2, 2)
    >>> cuteblas.copy(x.T, out=x) is x, x.tolist()
    (True, [[0, 2], [1, 3]])
    """
    if variant is None and (fast := fast_copies.get(type(a))) is not None and (new := fast("copy", a, order, out)) is not None:
        return new
    if (call := own_call(a, out)) is not None:
        return call(copy, (a, order, subok), {"out": out, "variant": variant})
    kind = kind_of(a)
    check_variant(variant, "copy")
    if out is not None:
        checked_order(order)
        return _into(a, out, variant)
    if kind != "cupy" and current_backend() == "numpy":
        refuse_variant(variant, BY_NUMPY)
        return _by_numpy("copy", "numpy", np.copy, a, order, subok)
    layout = checked_order(order)
    if kind == "cupy":
        from ._cupy import copied

        return copied(a, layout, variant)
    reason = f"{type(a).__name__} stays what it is" if subok and kind in ("subclass", "foreign") else None
    array = np.asarray(a)
    reason = reason or why_not_words(array.dtype)
    if reason is not None:
        refuse_variant(variant, reason)
        return _by_numpy("copy", f"delegated to NumPy: {reason}", np.copy, a, order, subok)
    from .execution import EMULATOR, new_like

    return new_like("copy", EMULATOR, array, layout, variant)


def _into(a: Any, out: Any, variant: str | None) -> Any:
    """``out[...] = a`` with the answer ``out``."""
    kinds = kind_of(a), kind_of(out)
    if kinds[1] not in ("numpy", "subclass", "cupy"):
        raise TypeError("'out' must be an array")
    if "cupy" in kinds:
        from ._cupy import copied_into

        return copied_into(a, out, variant)
    array = np.asarray(a)
    check_out(array, out)
    if not out.flags.writeable:
        raise ValueError("output array is read-only")
    reason = None if current_backend() == "numpy" else why_not_words(array.dtype)
    if current_backend() == "numpy" or reason is not None:
        refuse_variant(variant, reason or BY_NUMPY)
        if array.strides != out.strides and np.may_share_memory(array, out):
            array = array.copy()                # numpy.copyto looks at the signs of strides alone
        np.copyto(out, array)
        tally("copy", "calls", "numpy" if reason is None else f"delegated to NumPy: {reason}").tick()
        return out
    from .execution import EMULATOR, copy_into

    copy_into("copy", EMULATOR, array, out, variant)
    return out


def check_out(a: Any, out: Any) -> None:
    """See that ``out`` can hold a copy of ``a``.

    Raises
    ------
    ValueError
        If it has another shape or type, or elements that share memory.
    """
    if (a.shape, a.dtype) != (out.shape, out.dtype):
        raise ValueError(f"out has the shape and type of the array, {a.shape} {a.dtype}, got {out.shape} {out.dtype}")
    if overlaps_itself(Memory(out.shape, out.strides, out.dtype)):
        raise ValueError(f"elements of out share memory: its shape is {out.shape} and its strides are {out.strides} bytes")


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None, variant: str | None = None) -> Any:
    """The array itself if it is C-contiguous, else a C-contiguous copy, as ``numpy.ascontiguousarray``; 1-D for a scalar.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    dtype : dtype, optional
        Element type of the result. A change of type is left to NumPy or CuPy.
    like : array, optional
        Of a type that answers NumPy's functions itself: it makes the result.
    variant : str, optional
        A named kernel instead of the one that planning chooses; ``python -m cuteblas kernels`` lists them.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        ``a`` itself or a copy.

    Raises
    ------
    TypeError
        For an unknown dtype, in NumPy's words; on a GPU also for a change to or from one that its kernels do not have.
    ValueError
        For an unknown variant, one that does not take this copy, or where no kernel runs.
    """
    if dtype is None and like is None and variant is None and (fast := fast_copies.get(type(a))) is not None \
            and (new := fast("ascontiguousarray", a, "C")) is not None:
        return new
    check_variant(variant, "copy")
    if like is not None:
        refuse_variant(variant, "like= names who makes the result")
        return np.ascontiguousarray(a, dtype, like=like)
    return _contiguous("ascontiguousarray", np.ascontiguousarray, "C", a, dtype, variant)


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None, variant: str | None = None) -> Any:
    """The array itself if it is Fortran-contiguous, else a Fortran-contiguous copy, as ``numpy.asfortranarray``; 1-D for a scalar.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    dtype : dtype, optional
        Element type of the result. A change of type is left to NumPy or CuPy.
    like : array, optional
        Of a type that answers NumPy's functions itself: it makes the result.
    variant : str, optional
        A named kernel instead of the one that planning chooses; ``python -m cuteblas kernels`` lists them.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        ``a`` itself or a copy.

    Raises
    ------
    TypeError
        For an unknown dtype, in NumPy's words; on a GPU also for a change to or from one that its kernels do not have.
    ValueError
        For an unknown variant, one that does not take this copy, or where no kernel runs.
    """
    if dtype is None and like is None and variant is None and (fast := fast_copies.get(type(a))) is not None \
            and (new := fast("asfortranarray", a, "F")) is not None:
        return new
    check_variant(variant, "copy")
    if like is not None:
        refuse_variant(variant, "like= names who makes the result")
        return np.asfortranarray(a, dtype, like=like)
    return _contiguous("asfortranarray", np.asfortranarray, "F", a, dtype, variant)


def _contiguous(function: str, call: Any, order: str, a: Any, dtype: Any, variant: str | None) -> Any:
    """An array that is contiguous in that order."""
    if (own := own_call(a)) is not None:
        return own(_contiguous, (function, call, order, a, dtype, variant), {})
    if kind_of(a) == "cupy":
        from ._cupy import contiguous

        return contiguous(function, a, order, dtype, variant)
    if current_backend() == "numpy":
        refuse_variant(variant, BY_NUMPY)
        return _by_numpy(function, "numpy", call, a, dtype)
    array = np.asarray(a)
    reason = why_not_words(array.dtype)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        reason = f"changes {array.dtype} to {np.dtype(dtype)}"
    if reason is not None:
        refuse_variant(variant, reason)
        return _by_numpy(function, f"delegated to NumPy: {reason}", call, a, dtype)
    if array.flags.c_contiguous if order == "C" else array.flags.f_contiguous:
        return _by_numpy(function, "nothing", call, a)
    from .execution import EMULATOR, new_like

    return new_like(function, EMULATOR, array, order, variant)


_NUMPYS = {call.__name__: (call, tally(call.__name__, "calls", "numpy").tick)
           for call in (np.copy, np.ascontiguousarray, np.asfortranarray)}


def _plain_array(function: str, a: np.ndarray, order: Any, out: Any = None) -> Any:
    """A plain NumPy array by NumPy's function, without further questions; ``None`` if there are some."""
    if out is not None or current_backend() != "numpy":
        return None
    call, tick = _NUMPYS[function]
    result = call(a, order) if function == "copy" else call(a)
    tick()
    return result


fast_copies[np.ndarray] = _plain_array


def _by_numpy(function: str, route: str, call: Any, *arguments: Any) -> Any:
    result = call(*arguments)
    tally(function, "calls", route).tick()
    return result


def checked_order(order: Any) -> str:
    """The memory order as one upper-case letter.

    Raises
    ------
    TypeError, ValueError
        In NumPy's words.
    """
    np.array((), order=order)
    return "K" if order is None else order.upper()


def why_not_words(dtype: np.dtype) -> str | None:
    """Why elements of that type cannot be moved as words; ``None`` if they can."""
    if dtype.hasobject:
        return f"elements of {dtype} refer to other memory"
    if dtype.names is not None:
        return f"elements of {dtype} have fields"
    return None if dtype.itemsize else f"elements of {dtype} are empty"
