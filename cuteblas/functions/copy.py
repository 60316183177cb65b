"""Copies that arrange elements anew: ``copy``, ``ascontiguousarray`` and ``asfortranarray``, by the copy kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .algorithms import BY_NUMPY, check_variant, refuse_variant
from .counters import tally
from .dispatch import kind_of, own_call, repeaters
from .memory import Memory, overlaps_itself, strides_by_order, without_imaginary_part
from .settings import current_backend

__all__ = ["ascontiguousarray", "asfortranarray", "check_out", "checked_order", "copy", "why_not_words"]


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
    if variant is None and (new := _fast("copy", a, order, out)) is not None:
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
        return _arranged("copy", a, layout, variant)
    reason = f"{type(a).__name__} stays what it is" if subok and kind in ("subclass", "foreign") else None
    array = np.asarray(a)
    reason = reason or why_not_words(array.dtype)
    if reason is not None:
        refuse_variant(variant, reason)
        return _by_numpy("copy", f"delegated to NumPy: {reason}", np.copy, a, order, subok)
    return _arranged("copy", array, layout, variant)


def _into(a: Any, out: Any, variant: str | None) -> Any:
    """``out[...] = a`` with the answer ``out``."""
    kinds = kind_of(a), kind_of(out)
    if kinds[1] not in ("numpy", "subclass", "cupy"):
        raise TypeError("'out' must be an array")
    if "cupy" in kinds:
        return _into_on_gpu(a, out, variant)
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
    from .engines import EMULATOR
    from .pipeline import Execution

    Execution("copy", EMULATOR).copy_into(array, out, variant)
    return out


def _into_on_gpu(a: Any, out: Any, variant: str | None) -> Any:
    """The same where one of both is a CuPy array."""
    from .engines.cuda import CUDA, require_one_device
    from .pipeline import Execution

    in_place = kind_of(a) == kind_of(out) == "cupy" and a.data.ptr == out.data.ptr
    inputs: tuple[Any, ...] = () if in_place else (a,)
    head = ("copy", "in place", a.shape, a.strides, a.dtype, a.data.device_id, variant) if in_place else ("copy", "out", variant)
    if (repeated := repeaters.get(type(out))) is None or repeated(head, inputs, out) is None:
        require_one_device("copy", {"the array": a, "out": out})
        check_out(a, out)
        with CUDA.on_device_of(out):
            run = Execution("copy", CUDA)
            run.copy_into(a, out, variant)
            run.remember(head, inputs, out, out, ("dst",) if in_place else ("src", "dst"))
    return out


def _arranged(function: str, a: Any, order: str, variant: str | None) -> Any:
    """A new array with the elements of ``a`` in an order."""
    from .engines import engine_of
    from .pipeline import Execution

    engine = engine_of(a)
    with engine.on_device_of(a):
        run = Execution(function, engine)
        new = run.new_like(a, order, variant)
        run.remember((function, order, variant), (a,), None, new, ("src", "dst"))
    return new


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
        Element type of the result. A change of type is left to NumPy or CuPy, where CuPy has kernels that keep every number.
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

    Examples
    --------
    >>> b = cuteblas.ascontiguousarray(np.arange(6).reshape(2, 3).T, np.float32)
    >>> b.flags.c_contiguous, b.dtype, b.tolist()
    (True, dtype('float32'), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    """
    if dtype is None and like is None and variant is None and (new := _fast("ascontiguousarray", a, "C")) is not None:
        return new
    return _contiguous("ascontiguousarray", np.ascontiguousarray, "C", a, dtype, variant, like)


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None, variant: str | None = None) -> Any:
    """The array itself if it is Fortran-contiguous, else a Fortran-contiguous copy, as ``numpy.asfortranarray``; 1-D for a scalar.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    dtype : dtype, optional
        Element type of the result. A change of type is left to NumPy or CuPy, where CuPy has kernels that keep every number.
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

    Examples
    --------
    >>> cuteblas.asfortranarray(np.arange(6).reshape(2, 3)).strides
    (8, 16)
    """
    if dtype is None and like is None and variant is None and (new := _fast("asfortranarray", a, "F")) is not None:
        return new
    return _contiguous("asfortranarray", np.asfortranarray, "F", a, dtype, variant, like)


def _contiguous(function: str, call: Any, order: str, a: Any, dtype: Any, variant: str | None, like: Any = None) -> Any:
    """An array that is contiguous in that order."""
    check_variant(variant, "copy")
    if like is not None:
        refuse_variant(variant, "like= names who makes the result")
        return call(a, dtype, like=like)
    if (own := own_call(a)) is not None:
        return own(_contiguous, (function, call, order, a, dtype, variant), {})
    if kind_of(a) == "cupy":
        if dtype is not None and (target := np.dtype(dtype)) != a.dtype:
            return _of_type_on_gpu(function, a, order, target, variant)
        if a.flags.c_contiguous if order == "C" else a.flags.f_contiguous:
            tally(function, "calls", "nothing").tick()
            return a if a.ndim else a.reshape(1)
        return _arranged(function, a, order, variant)
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
    return _arranged(function, array, order, variant)


def _of_type_on_gpu(function: str, a: Any, order: str, dtype: np.dtype, variant: str | None) -> Any:
    """A new array in an order with the elements of ``a`` in another type, by CuPy where that keeps them."""
    from ..codegen.dtypes import element_of

    head = function, order, "cast", dtype.char
    loses = a.dtype.kind == "c" and dtype.kind != "c"   # imaginary parts, of which every call warns
    row = element_of(dtype)
    repeats = variant is None and not loses and row is not None \
        and dtype is (np.dtype(dtype.char) if row.package == "numpy" else row.numpy)
    if repeats and (repeated := repeaters.get(type(a))) is not None and (new := repeated(head, (a,), None)) is not None:
        return new
    reason = f"changes {a.dtype} to {dtype}"
    refuse_variant(variant, reason)
    np.zeros(1, a.dtype).astype(dtype)                  # warns
    from .elementwise import cast_by_kernels
    from .engines.cuda import CUDA
    from .pipeline import Execution

    if not all(element_of(x) is not None and x.isnative for x in (a.dtype, dtype)):
        raise TypeError(f"{function} has no kernel on the GPU that makes {dtype} of {a.dtype}")
    with CUDA.on_device_of(a):
        run = Execution(function, CUDA)
        if not cast_by_kernels(without_imaginary_part(np.zeros(0, a.dtype), dtype).dtype, dtype):
            run.count("calls", f"delegated to CuPy: {reason}")
            return getattr(CUDA.library, function)(without_imaginary_part(run.aligned(a), dtype), dtype)
        source = a if a.ndim else run.derived(a.reshape(1), a)
        memory = replace(run.memory(source), dtype=dtype)
        new = run.empty(replace(memory, strides=strides_by_order(memory, order)))
        run.assign(new, source)
        run.count("calls", reason)
        if repeats:
            run.remember(head, (a,), None, new, "xc")
    return new


_NDARRAY = np.ndarray                  # a look-up less
_ITSELF = {name: tally(name, "calls", "nothing").tick for name in ("ascontiguousarray", "asfortranarray")}
_NUMPYS = {call.__name__: (call, tally(call.__name__, "calls", "numpy").tick)
           for call in (np.copy, np.ascontiguousarray, np.asfortranarray)}


def _fast(function: str, a: Any, order: Any, out: Any = None) -> Any:
    """A plain NumPy array by NumPy's function, or a copy of a plain CuPy array if the like of it has been made before, without
    further questions; a CuPy array itself if that is asked for; ``None`` if there are questions."""
    if type(a) is _NDARRAY:
        if out is not None or current_backend() != "numpy":
            return None
        call, tick = _NUMPYS[function]
        result = call(a, order) if function == "copy" else call(a)
        tick()
        return result
    repeated = repeaters.get(type(a))
    if repeated is None:
        return None
    if out is not None:
        return repeated(("copy", "out", None), (a,), out) if type(order) is str and order == "K" else None
    new = repeated((function, order, None), (a,), None)
    if new is None and function != "copy" and a.ndim:
        flags = a.flags
        if flags.c_contiguous if order == "C" else flags.f_contiguous:
            _ITSELF[function]()
            return a
    return new


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
