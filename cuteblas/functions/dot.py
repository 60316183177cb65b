"""Products of two arrays but ``matmul``: NumPy's functions, and generalized ufuncs of vectors."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, Unpack

import numpy as np

from ..engines.dispatch import Func, kind_of, own_call
from ..engines.exact import least_products, matmul
from .algorithms import checked_precision, refuse_with_devices
from .copy import ascontiguousarray
from .expressions import (
    axes_of_dot,
    axes_of_inner,
    axes_of_tensordot,
    common_axes,
    settle_dot,
    settle_inner,
    settle_kron,
    settle_outer,
    settle_tensordot,
    settle_vdot,
)
from .gufunc import MatmulArguments, resolve_product, single_out
from .routing import NumpyProduct, answer
from .signatures import Devices, Precision, typed_product


@typed_product
def dot(a: Any, b: Any, out: Any = None, *, precision: Precision | None = None,
        variant: str | None = None) -> Any:
    """Dot product of two arrays, as ``numpy.dot``: the sum over the last axis of ``a`` and the last
    but one of ``b``.

    Parameters
    ----------
    a, b : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides. A scalar multiplies the other; two
        vectors give their inner product.
    out : array, optional
        Receives the result; C-contiguous, with exactly its shape and type.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm on the GPU, as in :func:`cuteblas.matmul`.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.

    Returns
    -------
    array or scalar
        Of shape ``a.shape[:-1] + b.shape[:-2] + b.shape[-1:]``.

    Raises
    ------
    TypeError, ValueError
        The errors of ``numpy.dot``, in its words and before anything runs; also for operands on
        different devices, and for an algorithm or a kernel that is unknown or does not take this
        product.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.dot([[1, 2], [3, 4]], [1, 1])
    array([3, 7])
    """
    return answer(DOT, a, b, out, precision, variant)


@typed_product
def inner(a: Any, b: Any, /, *, precision: Precision | None = None,
          variant: str | None = None) -> Any:
    """Sum of products over the last axes of two arrays, as ``numpy.inner``.

    Parameters
    ----------
    a, b : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides. A scalar multiplies the other.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm on the GPU, as in :func:`cuteblas.matmul`.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.

    Returns
    -------
    array or scalar
        Of shape ``a.shape[:-1] + b.shape[:-1]``.

    Raises
    ------
    TypeError, ValueError
        The errors of ``numpy.inner``, in its words and before anything runs; also for operands on
        different devices, and for an algorithm or a kernel that is unknown or does not take this
        product.

    Examples
    --------
    >>> cuteblas.inner(np.ones((2, 3)), np.ones((4, 3))).shape
    (2, 4)
    """
    return answer(_INNER, a, b, None, precision, variant)


def vdot(a: Any, b: Any, /) -> Any:
    """Dot product of two arrays as vectors, the first conjugated, as ``numpy.vdot``.

    Parameters
    ----------
    a, b : array_like
        Of equal size. Any strides. Arrays of different shapes are read in place if their axes split
        into common ones, as those of (6,) and (2, 3) do. Otherwise, as for (4, 6) and (6, 4), the
        first one is copied unless it is C-contiguous.

    Returns
    -------
    scalar or 0-d cupy.ndarray
        The product.

    Raises
    ------
    TypeError, ValueError
        The errors of ``numpy.vdot``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.vdot([1j, 2], [1, 1])
    np.complex128(2-1j)
    """
    return answer(_VDOT, a, b)


@typed_product
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Products of every element of ``a`` with every element of ``b``, as ``numpy.outer``; arrays
    are read as vectors.

    Parameters
    ----------
    a, b : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any shapes and strides.
    out : array, optional
        Receives the result; any strides.

    Returns
    -------
    array
        Of shape ``(a.size, b.size)``.

    Raises
    ------
    TypeError, ValueError
        The errors of ``numpy.outer``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.outer([1, 2], [3, 4, 5])
    array([[ 3,  4,  5],
           [ 6,  8, 10]])
    """
    return answer(_OUTER, a, b, out)


@typed_product
def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Precision | None = None,
              variant: str | None = None, devices: Devices | None = None) -> Any:
    """Sum of products over given axes of two arrays, as ``numpy.tensordot``, without reshaping
    them.

    Parameters
    ----------
    a, b : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides: the kernel nests the modes of the
        contraction.
    axes : int or pair of (sequence of) int
        The number of last axes of ``a`` and first axes of ``b``, or the axes of ``a`` and those of
        ``b``.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm on the GPU, as in :func:`cuteblas.matmul`.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.
    devices : "all" or sequence of int, optional
        The GPUs of this host that may compute, as in :func:`cuteblas.matmul`.

    Returns
    -------
    array
        With the remaining axes of ``a``, followed by those of ``b``.

    Raises
    ------
    TypeError, ValueError, IndexError
        The errors of ``numpy.tensordot``, in its words and before anything runs; also for operands
        on different devices, and for an algorithm or a kernel that is unknown or does not take this
        product.

    Examples
    --------
    >>> cuteblas.tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    if devices is not None:
        return _tensordot_over(a, b, axes, devices, checked_precision(precision), variant)
    return answer(TENSORDOT, a, b, None, precision, variant, {"axes": axes})


def _tensordot_over(a: Any, b: Any, axes: Any, devices: Any, precision: str,
                    variant: str | None) -> Any:
    refuse_with_devices("tensordot", {"variant": variant})
    if (call := own_call(a, b)) is not None:
        return call(tensordot, (a, b, axes), {"precision": precision, "devices": devices})
    from .devices import contraction_over

    return contraction_over("tensordot", partial(settle_tensordot, axes=axes),
                            partial(np.tensordot, axes=axes), (a, b, None), devices, precision)


@typed_product
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: blocks of ``b``, one for each element of ``a``, as ``numpy.kron``.

    Parameters
    ----------
    a, b : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides. The one with fewer axes gets axes of
        extent 1 in front.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The product.

    Raises
    ------
    TypeError, ValueError
        The errors of ``numpy.kron``, in its words and before anything runs; also for operands on
        different devices.

    Examples
    --------
    >>> cuteblas.kron([1, 10], [1, 2, 3])
    array([ 1,  2,  3, 10, 20, 30])
    """
    return answer(_KRON, a, b)


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
    return answer(VECDOT, x1, x2, out, arguments=arguments)


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
    return answer(_MATVEC, x1, x2, out, arguments=arguments)


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
    return answer(_VECMAT, x1, x2, out, arguments=arguments)


# -- what NumPy does with their operands -----------------------------------------------------------
def _typed(a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """A list without elements takes the other operand's type (before NumPy 2.5 only ``b``)."""
    return _typed_as(b, a) if _EITHER_SIDE else a, _typed_as(a, b), out


def _typed_as(other: Any, x: Any) -> Any:
    if type(x) not in (list, tuple) or not _is_empty(x) or _is_empty(other) \
            or kind_of(other) not in ("numpy", "scalar", "like"):
        return x
    return np.asarray(x, np.asarray(other).dtype)


_EITHER_SIDE = np.lib.NumpyVersion(np.__version__) >= "2.5.0"


def _is_empty(x: Any) -> bool:
    return type(x) in (list, tuple) and all(map(_is_empty, x))


def _as_vectors(a: Any, b: Any, out: None) -> tuple[Any, Any, None]:
    if {kind_of(a), kind_of(b)} <= {"numpy", "cupy"} and a.shape != b.shape and a.size == b.size \
            and common_axes(a.shape, b.shape) is None:
        a = ascontiguousarray(a).reshape(-1)
    return _typed(a, b, out)


def _of_ufunc(x1: Any, x2: Any, out: Any) -> tuple[Any, Any, Any]:
    return x1, x2, single_out(out)


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


# -- by BLAS, of types for which NumPy has none ----------------------------------------------------
def _axes_by_blas(axes_of: Func, name: str, a: np.ndarray, b: np.ndarray, out: np.ndarray | None,
                  **arguments: Any) -> Any:
    """The sum over pairs of axes as a product of two matrices."""
    axes_a, axes_b = axes_of(a, b, **arguments) or ((), ())
    summed = [a.shape[i] for i in axes_a]
    k = prod(summed)
    if not k or a.size * b.size < k * least_products(a, b) \
            or summed != [b.shape[i] for i in axes_b]:
        return None
    rows, columns = ([i for i in range(x.ndim) if i not in axes]
                     for x, axes in ((a, axes_a), (b, axes_b)))
    shape = (*[a.shape[i] for i in rows], *[b.shape[i] for i in columns])
    if out is not None and (out.shape != shape or not out.flags.carray):
        return None
    result = matmul(name, a.transpose(*rows, *axes_a).reshape(-1, k),
                    b.transpose(*axes_b, *columns).reshape(k, -1),
                    None if out is None else out.reshape(a.size // k, -1))
    return result if result is None else out if out is not None else result.reshape(shape)


def _vectors_by_blas(vectors: int, insert: Any, axis: int, name: str, a: np.ndarray, b: np.ndarray,
                     out: np.ndarray | None, **arguments: Any) -> Any:
    """Products of matrices and vectors; the latter, an operand by number, get an axis."""
    operands = [a, b]
    rank = operands[vectors].ndim
    if arguments or not rank or operands[1 - vectors].ndim < 2:
        return None
    if rank == 1:
        return matmul(name, a, b, out)
    operands[vectors] = operands[vectors][insert]
    a, b = operands
    result = matmul(name, a, b, None if out is None else out[insert])
    return result if result is None else out if out is not None else result.squeeze(axis)


# -- functions -------------------------------------------------------------------------------------
DOT = NumpyProduct("dot", np.dot, settle_dot, _typed, partial(_axes_by_blas, axes_of_dot))
_INNER = NumpyProduct("inner", np.inner, settle_inner, _typed,
                      partial(_axes_by_blas, axes_of_inner))
TENSORDOT = NumpyProduct("tensordot", np.tensordot, settle_tensordot,
                         by_blas=partial(_axes_by_blas, axes_of_tensordot))
_VDOT = NumpyProduct("vdot", np.vdot, settle_vdot, _as_vectors)
_OUTER = NumpyProduct("outer", np.outer, settle_outer)
_KRON = NumpyProduct("kron", np.kron, settle_kron)
VECDOT, _MATVEC, _VECMAT = (
    NumpyProduct(ufunc.__name__, numpys, partial(resolve_product, ufunc=ufunc), _of_ufunc, by_blas)
    for ufunc, numpys, by_blas in (
        (np.vecdot, np.vecdot, None),
        (np.matvec, np.matvec, partial(_vectors_by_blas, 1, (..., None), -1)),
        (np.vecmat, _vecmat_by_numpy, partial(_vectors_by_blas, 0, (..., None, slice(None)), -2))))
