"""``vecdot``, ``matvec`` and ``vecmat``: generalized ufuncs, as ``matmul``."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import numpy as np

from .algorithms import AS_PLANNED
from .gufunc import MatmulArguments, resolve_product, single_out
from .routing import answer, at_once
from .signatures import typed_product

_NDARRAY = np.ndarray                  # a look-up less


@typed_product
def vecdot(x1: Any, x2: Any, /, out: Any = None, **arguments: Unpack[MatmulArguments]) -> Any:
    """Dot products of vectors, the first one conjugated, as ``numpy.vecdot``.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., n), batch dimensions broadcast. NumPy in, NumPy out; CuPy in, CuPy
        out. Any strides; elements are conjugated as they are read.
    out : array or 1-tuple of array, optional
        Receives the result and is returned. It may have any strides and may overlap the inputs.
    axes, axis, keepdims, casting, order, dtype, subok, signature
        As in ``numpy.vecdot``.

    Returns
    -------
    array or scalar
        Of shape (...).

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.vecdot``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.vecdot(np.ones((5, 3)), np.array([1.0, 2.0, 3.0]))
    array([6., 6., 6., 6., 6.])
    """
    if not arguments and type(x1) is _NDARRAY and (result := at_once("vecdot", np.vecdot, x1, x2,
                                                                     out)) is not None:
        return result
    return answer_gufunc("vecdot", np.vecdot, x1, x2, out, **arguments)


@typed_product
def matvec(x1: Any, x2: Any, /, out: Any = None, **arguments: Unpack[MatmulArguments]) -> Any:
    """Products of matrices and vectors, as ``numpy.matvec``.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., m, n) and (..., n), batch dimensions broadcast. NumPy in, NumPy
        out; CuPy in, CuPy out. Any strides.
    out : array or 1-tuple of array, optional
        Receives the result and is returned. It may have any strides and may overlap the inputs.
    axes, axis, keepdims, casting, order, dtype, subok, signature
        As in ``numpy.matvec``.

    Returns
    -------
    array
        Of shape (..., m).

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.matvec``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.matvec(np.ones((5, 2, 3)), np.array([1.0, 2.0, 3.0])).shape
    (5, 2)
    """
    if not arguments and type(x1) is _NDARRAY and (result := at_once("matvec", np.matvec, x1, x2,
                                                                     out)) is not None:
        return result
    return answer_gufunc("matvec", np.matvec, x1, x2, out, **arguments)


@typed_product
def vecmat(x1: Any, x2: Any, /, out: Any = None, **arguments: Unpack[MatmulArguments]) -> Any:
    """Products of conjugated vectors and matrices, as ``numpy.vecmat``.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., n) and (..., n, m), batch dimensions broadcast. NumPy in, NumPy
        out; CuPy in, CuPy out. Any strides; elements are conjugated as they are read.
    out : array or 1-tuple of array, optional
        Receives the result and is returned. It may have any strides and may overlap the inputs.
    axes, axis, keepdims, casting, order, dtype, subok, signature
        As in ``numpy.vecmat``.

    Returns
    -------
    array
        Of shape (..., m).

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.vecmat``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.vecmat(np.array([1.0, 2.0]), np.ones((5, 2, 3))).shape
    (5, 3)
    """
    if not arguments and type(x1) is _NDARRAY and (result := at_once("vecmat", _vecmat_by_numpy, x1,
                                                                     x2, out)) is not None:
        return result
    return answer_gufunc("vecmat", np.vecmat, x1, x2, out, numpys=_vecmat_by_numpy,
                         **arguments)


def _vecmat_by_numpy(x1: Any, x2: Any, /, out: Any = None, **arguments: Any) -> Any:
    """``numpy.vecmat`` with results of any strides."""
    # NumPy 2.2 to 2.4 ignores the result's strides in its complex loop, and writes beyond it.
    if out is None and not arguments:
        return np.vecmat(x1, x2)
    real = not {"dtype", "signature", "sig"} & arguments.keys() and not any(
        (x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype).kind == "c" for x in (x1, x2))
    if out is None and (real or arguments.get("order") not in ("A", "F", "a", "f")):
        return np.vecmat(x1, x2, **arguments)
    if out is None:
        result = np.vecmat(x1, x2, **arguments)
        if type(result) is np.ndarray:
            result[...] = np.vecmat(x1, x2, **{**arguments, "order": "C"})
        return result
    axes = arguments.get("axes")
    core = axes[2] if isinstance(axes, list) and len(axes) == 3 else -1
    axis = core[0] if isinstance(core, tuple) and len(core) == 1 else core
    if real or type(out) is not np.ndarray or not out.flags.writeable or not isinstance(axis, int) \
            or not -out.ndim <= axis < out.ndim or out.strides[axis] == out.itemsize:
        return np.vecmat(x1, x2, out=out, **arguments)
    contiguous = np.moveaxis(np.empty_like(np.moveaxis(out, axis, -1), order="C"), -1, axis)
    out[...] = np.vecmat(x1, x2, out=contiguous, **arguments)
    return out


def answer_gufunc(function: str, ufunc: Any, x1: Any, x2: Any, out: Any = None, *,
                  numpys: Any = None, **arguments: Any) -> Any:
    return answer(function, numpys or ufunc, partial(resolve_product, ufunc=ufunc), AS_PLANNED, x1,
                  x2, out=single_out(out), **arguments)
