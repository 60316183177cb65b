"""``matmul``: NumPy's semantics over NumPy's BLAS, the emulator and the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

import numpy as np

from .backends import current_backend
from .counters import tally
from .kinds import kind_of, own_call
from .named import BY_NUMPY, NATIVE, check_variant, checked_precision, refuse_variant

__all__ = ["MatmulArguments", "delegate", "fast_paths", "host_operands", "matmul", "single_out"]

fast_paths: dict[type, Callable[[Any, Any, Any, str | None], Any]] = {}
"""By the type of the first operand: a function of (x1, x2, out, precision) for calls without further arguments that returns the
result, or ``None`` for a call that has to go the long way."""

_by_numpy = tally("matmul", "calls", "numpy")


class MatmulArguments(TypedDict, total=False):
    """The keyword arguments that matmul shares with every generalized ufunc of NumPy."""

    axes: list[int | tuple[int, ...]]
    axis: int
    keepdims: bool
    casting: str
    order: str | None
    dtype: Any
    subok: bool
    signature: Any


def matmul(x1: Any, x2: Any, /, out: Any = None, *, epilogue: Any = None, precision: str | None = None, variant: str | None = None,
           **arguments: Unpack[MatmulArguments]) -> Any:
    """Matrix product of two arrays, as ``numpy.matmul`` defines it.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., m, k) and (..., k, n), batch dimensions broadcast; a vector is a row on the left and a column on
        the right, and its dimension is dropped from the result. Both on the host (NumPy arrays and what NumPy converts to them)
        or both CuPy arrays on one device. Any strides: operands are copied only if they must be cast or are not aligned to their
        elements.
    out : array or 1-tuple of array, optional
        Receives the result and is returned. It may have any strides and may overlap the inputs.
    epilogue : epilogue, optional
        What is done with every element before it is rounded and written, by the kernel that computes it: a function decorated
        with :func:`cuteblas.epilogue`, with its operands, or the name of a ready one (:mod:`cuteblas.epilogues`). The result has
        the type that it has without an epilogue.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32"}, optional
        The algorithm on the GPU: ``"ieee"`` is the native arithmetic of the dtype, ``"auto"`` (the default) the fastest algorithm
        that is not less accurate on these very operands. The others are algorithms for float32 by name, whatever the operands are:
        sums of products of float16 or bfloat16 on tensor cores, or one product of operands that are rounded to 11 bits
        (``"tf32"``), the only one that is less accurate than native arithmetic: errors are up to 2^-11 of each operand.
    variant : str, optional
        A named kernel instead of the one that planning chooses; ``python -m cuteblas kernels`` lists them.
    axes, axis, keepdims, casting, order, dtype, subok, signature
        As in ``numpy.matmul``.

    Returns
    -------
    array or scalar
        NumPy in, NumPy out; CuPy in, CuPy out. The product of two vectors is a scalar on the host, a 0-d array on the GPU. With an
        epilogue that has further results, a pair: the product and a dict of them by name.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What ``numpy.matmul`` raises, in its words and before anything runs; also for operands on different devices, for an
        unknown precision, for an unknown variant, one that does not take this product, or where no kernel runs, and for an epilogue
        that does not fit.

    See Also
    --------
    cuteblas.explain : what a call runs, and why.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.matmul([[1, 2], [3, 4]], [1, 1])
    array([3, 7])
    >>> cuteblas.matmul([[1.0, 2.0], [3.0, 4.0]], [[1.0], [-1.0]], epilogue="relu")
    array([[0.],
           [0.]])
    """
    fast = fast_paths.get(type(x1))
    if fast is not None and variant is None and epilogue is None and not arguments:
        result = fast(x1, x2, out, precision)
        if result is not None:
            return result
    if epilogue is not None:
        from .fused import fused_matmul

        return fused_matmul(x1, x2, single_out(out), epilogue, checked_precision(precision), variant, arguments)
    if (call := own_call(x1, x2, single_out(out))) is not None:
        return call(matmul, (x1, x2, out), {"precision": precision, "variant": variant, **arguments})
    return _matmul(x1, x2, out, checked_precision(precision), variant, arguments)


def _plain_arrays(x1: np.ndarray, x2: Any, out: Any, precision: str | None) -> Any:
    """The product of plain NumPy arrays by NumPy's BLAS, without further questions; ``None`` if there are some."""
    if type(x2) is not np.ndarray or precision is not None or (out is not None and type(out) is not np.ndarray) \
            or current_backend() != "numpy":
        return None
    result = np.matmul(x1, x2, out)
    _by_numpy.tick()
    return result


fast_paths[np.ndarray] = _plain_arrays


def _matmul(x1: Any, x2: Any, out: Any, precision: str, variant: str | None, arguments: Mapping[str, Any]) -> Any:
    out = single_out(out)
    check_variant(variant, "gemm")
    kinds = {kind_of(x) for x in (x1, x2, out)}
    if "cupy" in kinds:
        from . import _cupy

        return _cupy.matmul(x1, x2, out, precision, variant, arguments)
    if current_backend() == "numpy":
        refuse_variant(variant, BY_NUMPY)
        if precision not in NATIVE:
            from .rehearsal import rehearse_matmul

            rehearse_matmul(x1, x2, out, precision, arguments)
        result = np.matmul(x1, x2, out=out, **arguments)
        _by_numpy.tick()
        return result
    from .execution import emulated_matmul

    return emulated_matmul(x1, x2, out, precision, variant, arguments)


def single_out(out: Any) -> Any:
    """``out`` without the 1-tuple that ufuncs allow around it.

    Raises
    ------
    ValueError
        For any other tuple, in NumPy's words.
    """
    if isinstance(out, tuple):
        if len(out) != 1:
            np.matmul(np.zeros((1, 1)), np.zeros((1, 1)), out=out)
        return out[0]
    return out


def host_operands(x1: Any, x2: Any, out: Any) -> tuple[str | None, Any, Any]:
    """Operands on the host as NumPy arrays; or, unchanged, with the reason why NumPy itself has to take them."""
    for x in (x1, x2, out):
        kind = kind_of(x)
        if kind == "foreign":
            return f"{type(x).__name__} answers ufuncs itself", x1, x2
        if kind == "subclass":
            return f"{type(x).__name__} is a subclass of numpy.ndarray", x1, x2
    if out is not None and type(out) is not np.ndarray:
        return "out is not an array", x1, x2
    return None, np.asarray(x1), np.asarray(x2)


def delegate(reason: str, x1: Any, x2: Any, out: Any, arguments: Mapping[str, Any], variant: str | None = None) -> Any:
    """Let ``numpy.matmul`` answer, and count why.

    Raises
    ------
    ValueError
        If a kernel was asked for by name.
    """
    refuse_variant(variant, reason)
    result = np.matmul(x1, x2, out=out, **arguments)
    tally("matmul", "calls", f"delegated to NumPy: {reason}").tick()
    return result
