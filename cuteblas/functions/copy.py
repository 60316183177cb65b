"""``copy``, ``ascontiguousarray`` and ``asfortranarray`` with the copy kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.blocked import LEAST, WORDS, copied, copied_to
from ..engines.counters import tally
from ..engines.dispatch import NOTHING, kind_of, own_call, replays
from ..engines.host_memory import empty_array
from ..engines.memory import Memory, new_memory, overlaps_itself
from ..engines.placement import copy_work, offload, stays
from ..engines.settings import backend, current_backend
from .algorithms import Algorithm, check_variant, refuse_variant
from .routing import COPY, NumpyCall, delegate, resolve, route_of
from .signatures import Order, typed_conversion, typed_copy

if TYPE_CHECKING:
    from ..engines.execution import Execution


@typed_copy
def copy(a: Any, order: Order | None = "K", subok: bool = False, *, out: Any = None,
         variant: str | None = None) -> Any:
    """A copy of an array, as ``numpy.copy`` makes it.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides and any element type.
    order : {"K", "C", "F", "A"}
        Layout of the copy: like ``a``, C, Fortran, or Fortran if ``a`` is Fortran contiguous and C
        otherwise.
    subok : bool
        Whether the copy of a subclass of ``numpy.ndarray`` has that class.
    out : array, optional
        Receives the copy and is returned. It has the shape and type of ``a`` and any strides, and
        ``order`` has no effect. It may overlap ``a``: ``copy(x.T, out=x)`` transposes a square
        matrix in place, ``copy(x.mT, out=x)`` every matrix of a stack.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The copy, or ``out``.

    Raises
    ------
    TypeError
        If ``out`` is not an array.
    ValueError
        For an unknown order, in NumPy's words; for a variant that is unknown, does not take this
        copy or cannot run here; for an ``out`` of another shape or type, on another device, or that
        cannot be written to.

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
    check_variant(variant, "copy")
    if out is not None:
        checked_order(order)
        return _into(a, out, variant)
    return _copied(NumpyCall("copy", np.copy, (a,), None, {"order": order, "subok": subok},
                             Algorithm(variant=variant), COPY, partial(copy, variant=variant)), order)


def _into(a: Any, out: Any, variant: str | None) -> Any:
    in_place = kind_of(a) == kind_of(out) == "cupy" and a.data.ptr == out.data.ptr
    inputs: tuple[Any, ...] = () if in_place else (a,)
    head = ("copy", "in place", a.shape, a.strides, a.dtype, a.data.device_id,
            variant) if in_place else ("copy", "out", variant)
    replay = replays[type(out)]
    if replay is not None and replay(head, inputs, out) is not None:
        return out
    return _copied(NumpyCall("copy", _copy_into_by_numpy, (a,), out, NOTHING,
                             Algorithm(variant=variant), COPY, partial(copy, variant=variant)), "K",
                   (head, inputs, ("src", "dst")[in_place:]))


def _copied(call: NumpyCall, order: Any, recorded: tuple[Any, Any, Any] | None = None) -> Any:
    """A copy of words by kernels, into ``out`` or a new array in an order, or by NumPy;
    ``recorded`` are the key, the inputs and the roles of one into ``out``."""
    resolved = resolve(call)
    if isinstance(resolved, str):
        return delegate(call, resolved)
    (a,), (memory,) = resolved.arrays, resolved.memories
    function, out, variant = call.function, call.out, call.algorithm.variant
    reason, dtype = why_not_words(memory.dtype), call.arguments.get("dtype")
    if call.arguments.get("subok") and kind_of(call.operands[0]) in ("subclass", "foreign"):
        reason = f"subok=True keeps the subclass {type(call.operands[0]).__name__}"
    elif dtype is not None and (target := np.dtype(dtype)) != memory.dtype:
        reason = reason or f"changes {memory.dtype} to {target}"
    if reason is not None:
        return delegate(call, route_of(reason))
    order = checked_order(order)
    if out is not None:
        _check_target(a, out)
    elif function in _ITSELF and _lies_in(a, order):
        _ITSELF[function]()
        return call.numpys(a) if resolved.engine.on_host else a if a.ndim else a.reshape(1)
    if resolved.engine.moves:
        return _offloaded(call, a, out if out is not None else empty_array(
            a.shape, a.dtype, new_memory(memory, order).strides))
    with resolved.running(function) as (run, (a,)):
        if out is None:
            new = run.new_like(a, order, variant)
        else:
            run.copy_into(a, new := out, variant)
        head, inputs, roles = recorded or ((function, order, variant), (a,), ("src", "dst"))
        run.record(head, inputs, out, new, roles)
    return new


def _lies_in(a: Any, order: str) -> bool:
    return a.flags.c_contiguous if order == "C" else a.flags.f_contiguous


def _check_target(a: Any, out: Any) -> None:
    check_out(a, out)
    if kind_of(out) != "cupy" and not out.flags.writeable:
        raise ValueError("output array is read-only")


def _copy_into_by_numpy(a: Any, out: np.ndarray) -> np.ndarray:
    array = np.asarray(a)
    _check_target(array, out)
    if array.strides != out.strides and np.may_share_memory(array, out):
        array = array.copy()                    # numpy.copyto looks at the signs of strides alone
    np.copyto(out, array)
    return out


_WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
"""Types of CuPy arrays by their size in bytes, for elements of whatever meaning."""


def _offloaded(call: NumpyCall, a: np.ndarray, out: np.ndarray) -> Any:
    function, variant = call.function, call.algorithm.variant
    stay = partial(call.again, *call.operands, **call.named)
    if (word := _WORDS.get(a.itemsize)) is None:
        with backend("numpy"):
            return stay()
    source, into = a.view(word), out.view(word)

    def move(run: Execution, there: Sequence[Any], target: Any) -> Any:
        run.move(there[0], target, variant)
        return target

    def stream() -> Any:
        from ..engines.streamed import stream_copy

        return out if stream_copy(function, source, into, variant) else None

    result = offload(function, copy_work(a, out.strides), move, [source], into, stay, stream=stream)
    return out if type(result) is np.ndarray and result.dtype == word else result


def check_out(a: Any, out: Any) -> None:
    if (a.shape, a.dtype) != (out.shape, out.dtype):
        raise ValueError(
            f"out must have the shape and type of the array, {a.shape} {a.dtype}, got {out.shape} {out.dtype}"
        )
    if overlaps_itself(Memory(out.shape, out.strides, out.dtype)):
        raise ValueError(
            f"elements of out share memory: its shape is {out.shape} and its strides are {out.strides} bytes"
        )


@typed_conversion
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None,
                      variant: str | None = None) -> Any:
    """The array itself if it is C-contiguous, else a C-contiguous copy, as
    ``numpy.ascontiguousarray``; 1-D for a scalar.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    dtype : dtype, optional
        Element type of the result. NumPy or CuPy changes the type, and kernels do where CuPy would
        change numbers.
    like : array, optional
        An array whose type implements NumPy's functions; that type makes the result.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        ``a`` itself or a copy.

    Raises
    ------
    TypeError
        For an unknown dtype, in NumPy's words; on a GPU also for a change to or from a type without
        kernels.
    ValueError
        For a variant that is unknown, does not take this copy or cannot run here.

    Examples
    --------
    >>> b = cuteblas.ascontiguousarray(np.arange(6).reshape(2, 3).T, np.float32)
    >>> b.flags.c_contiguous, b.dtype, b.tolist()
    (True, dtype('float32'), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    """
    if like is None and variant is None and (new := _fast("ascontiguousarray", a, "C", None, dtype)) is not None:
        return new
    return _contiguous(np.ascontiguousarray, "C", a, dtype, variant, like)


@typed_conversion
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None,
                   variant: str | None = None) -> Any:
    """The array itself if it is Fortran-contiguous, else a Fortran-contiguous copy, as
    ``numpy.asfortranarray``; 1-D for a scalar.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    dtype : dtype, optional
        Element type of the result. NumPy or CuPy changes the type, and kernels do where CuPy would
        change numbers.
    like : array, optional
        An array whose type implements NumPy's functions; that type makes the result.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        ``a`` itself or a copy.

    Raises
    ------
    TypeError
        For an unknown dtype, in NumPy's words; on a GPU also for a change to or from a type without
        kernels.
    ValueError
        For a variant that is unknown, does not take this copy or cannot run here.

    Examples
    --------
    >>> cuteblas.asfortranarray(np.arange(6).reshape(2, 3)).strides
    (8, 16)
    """
    if like is None and variant is None and (new := _fast("asfortranarray", a, "F", None, dtype)) is not None:
        return new
    return _contiguous(np.asfortranarray, "F", a, dtype, variant, like)


def _contiguous(call: Any, order: str, a: Any, dtype: Any, variant: str | None,
                like: Any = None) -> Any:
    function = call.__name__
    check_variant(variant, "copy")
    if like is not None:
        refuse_variant(variant, "like= chooses the library that makes the result")
        return call(a, dtype, like=like)
    if (own := own_call(a)) is not None:
        return own(_contiguous, (call, order, a, dtype, variant), {})
    if kind_of(a) == "cupy" and dtype is not None and (target := np.dtype(dtype)) != a.dtype:
        return _of_type_on_gpu(function, a, order, target, variant)
    return _copied(NumpyCall(function, call, (a,), None, {"dtype": dtype},
                             Algorithm(variant=variant), COPY,
                             partial(_contiguous, call, order, variant=variant)), order)


def _of_type_on_gpu(function: str, a: Any, order: str, dtype: np.dtype, variant: str | None) -> Any:
    """A new array of another type on a GPU."""
    from .._dtypes import element_of

    head = function, order, "cast", dtype.char
    loses = a.dtype.kind == "c" and dtype.kind != "c"   # imaginary parts, of which every call warns
    row = element_of(dtype)
    records = variant is None and not loses and row is not None \
        and dtype is (np.dtype(dtype.char) if row.package == "numpy" else row.numpy)
    replay = replays[type(a)] if records else None
    if replay is not None and (new := replay(head, (a,), None)) is not None:
        return new
    reason = f"changes {a.dtype} to {dtype}"
    refuse_variant(variant, reason)
    np.zeros(1, a.dtype).astype(dtype)                  # warns
    from ..engines.cuda import CUDA
    from ..engines.execution import Execution

    if not all(element_of(x) is not None and x.isnative for x in (a.dtype, dtype)):
        raise TypeError(f"{function} has no kernel on the GPU that converts {a.dtype} to {dtype}")
    with CUDA.on_device_of(a):
        run = Execution(function, CUDA)
        source = a if a.ndim else run.derived(a.reshape(1), a)
        new = run.empty(new_memory(replace(run.memory(source), dtype=dtype), order))
        run.assign(new, source)
        run.count("calls", reason)
        if records:
            run.record(head, (a,), None, new, "xc")
    return new


_NDARRAY = np.ndarray                  # a look-up less
_ITSELF = {name: tally(name, "calls", "nothing").tick
           for name in ("ascontiguousarray", "asfortranarray")}
_NUMPYS = {call.__name__: (call, tally(call.__name__, "calls", "numpy").tick)
           for call in (np.ndarray.copy, np.ascontiguousarray, np.asfortranarray)}


def _fast(function: str, a: Any, order: Any, out: Any = None, dtype: Any = None) -> Any:
    """A plain array's copy without checks, or a replayed one; ``None`` if neither applies."""
    if out is not None and not (type(order) is str and order == "K"):
        return None
    if type(a) is _NDARRAY:
        # stays takes longer
        if not (current_backend() == "numpy" or stays(a)):
            return None
        if out is not None:
            return _onto(a, out) if type(out) is _NDARRAY else None
        if a.nbytes >= LEAST and dtype is None and (function == "copy" or not _lies_in(a, order)) \
                and (new := copied(a, order)) is not None:
            tally(function, "calls", WORDS).tick()
            return new
        call, tick = _NUMPYS[function]
        result = call(a, "K" if order is None else order) if function == "copy" else call(a, dtype)
        tick()
        return result
    if dtype is not None or (replay := replays[type(a)]) is None:
        return None
    if out is not None:
        return replay(("copy", "out", None), (a,), out)
    new = replay((function, order, None), (a,), None)
    if new is None and function != "copy" and a.ndim and _lies_in(a, order):
        _ITSELF[function]()
        return a
    return new


def _onto(a: np.ndarray, out: np.ndarray) -> np.ndarray:
    """``out`` with the elements of an array, by this CPU."""
    if a.nbytes >= LEAST:
        _check_target(a, out)
        if not np.may_share_memory(a, out) and copied_to(out, a):
            tally("copy", "calls", WORDS).tick()
            return out
    _copy_into_by_numpy(a, out)
    _NUMPYS["copy"][1]()
    return out


def checked_order(order: Any) -> str:
    np.array((), order=order)
    return "K" if order is None else order.upper()


def why_not_words(dtype: np.dtype) -> str | None:
    """Why elements of that type cannot be moved as words; ``None`` if they can."""
    if dtype.hasobject:
        return f"elements of {dtype} refer to other memory"
    if dtype.names is not None:
        return f"elements of {dtype} have fields"
    return None if dtype.itemsize else f"elements of {dtype} are empty"
