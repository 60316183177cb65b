"""Products of two arrays, in NumPy not generalized ufuncs: ``dot``, ``inner`` and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, pairwise
from operator import mul
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..engines.dispatch import kind_of, own_call
from ..engines.memory import Ints, Memory, contiguous_strides, is_contiguous, shadow
from .algorithms import (
    AS_PLANNED,
    Algorithm,
    checked_algorithm,
    checked_precision,
    refuse_with_devices,
)
from .copy import ascontiguousarray
from .expressions import Expression, Term, common_type, expression, letter, stand_in
from .routing import answer, at_once
from .signatures import Devices, Precision, typed_product

Letters = tuple[str, ...]
_NDARRAY = np.ndarray                  # a look-up less


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
    if type(a) is _NDARRAY and precision is variant is None \
            and (result := at_once("dot", np.dot, a, b, out, settle=settle_dot)) is not None:
        return result
    return dot_for("dot", a, b, out, checked_algorithm(precision, variant))


def dot_for(function: str, a: Any, b: Any, out: Any = None,
            algorithm: Algorithm = AS_PLANNED) -> Any:
    result = answer(function, np.dot, settle_dot, algorithm, *_typed(a, b), out=out)
    # NumPy's, of ``out`` too
    return result[()] if type(result) is np.ndarray and result.ndim == 0 else result


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
    if type(a) is _NDARRAY and precision is variant is None \
            and (result := at_once("inner", np.inner, a, b, settle=_settle_inner)) is not None:
        return result
    return answer("inner", np.inner, _settle_inner, checked_algorithm(precision, variant),
                  *_typed(a, b))


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
    if type(a) is _NDARRAY and (result := at_once("vdot", np.vdot, a, b)) is not None:
        return result
    if {kind_of(a), kind_of(b)} <= {"numpy", "cupy"} and a.shape != b.shape and a.size == b.size \
            and _common_axes(a.shape, b.shape) is None:
        a = ascontiguousarray(a).reshape(-1)
    return answer("vdot", np.vdot, _settle_vdot, AS_PLANNED, *_typed(a, b))


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
    if type(a) is _NDARRAY and (result := at_once("outer", np.outer, a, b, out)) is not None:
        return result
    return answer("outer", np.outer, settle_outer, AS_PLANNED, a, b, out=out)


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
    if type(a) is _NDARRAY and precision is variant is None \
            and (result := at_once("tensordot", np.tensordot, a, b, None, {"axes": axes},
                                   settle_tensordot)) is not None:
        return result
    return answer("tensordot", np.tensordot, settle_tensordot,
                  checked_algorithm(precision, variant), a, b, axes=axes)


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
    if type(a) is _NDARRAY and (result := at_once("kron", np.kron, a, b)) is not None:
        return result
    return answer("kron", np.kron, _settle_kron, AS_PLANNED, a, b)


def _typed(a: Any, b: Any) -> tuple[Any, Any]:
    """A list without elements takes the other operand's type (before NumPy 2.5 only ``b``)."""
    return _typed_as(b, a) if _EITHER_SIDE else a, _typed_as(a, b)


def _typed_as(other: Any, x: Any) -> Any:
    if type(x) not in (list, tuple) or kind_of(other) not in ("numpy", "scalar", "like") or _is_empty(other) or not _is_empty(x):
        return x
    return np.asarray(x, np.asarray(other).dtype)


_EITHER_SIDE = np.lib.NumpyVersion(np.__version__) >= "2.5.0"


def _is_empty(x: Any) -> bool:
    return type(x) in (list, tuple) and all(map(_is_empty, x))


# -- what they compute -----------------------------------------------------------------------------
def _letters(*shapes: Ints) -> Iterator[Letters]:
    start = 0
    for shape in shapes:
        yield tuple(letter(start + i) for i in range(len(shape)))
        start += len(shape)


def _products(a: Memory, b: Memory, first: Letters, second: Letters, result: Sequence[str],
              call: Any, scalar: bool = True) -> Expression:
    """The products of elements with these letters, in the type of the result of ``call``."""
    extents = dict(zip((*first, *second), (*a.shape, *b.shape), strict=True))
    return expression((Term(first), Term(second)), result, extents,
                      common_type(call, a.dtype, b.dtype), scalar)


def _matched(a: Memory, b: Memory, axes_a: Sequence[int], axes_b: Sequence[int], call: Any,
             scalar: bool = True) -> Expression | None:
    """The sum over pairs of axes, which must not be negative; ``None`` if their extents differ."""
    if [a.shape[i] for i in axes_a] != [b.shape[i] for i in axes_b]:
        return None
    first, second = _letters(a.shape, b.shape)
    pairs = dict(zip(axes_b, (first[i] for i in axes_a), strict=True))
    second = tuple(pairs.get(i, c) for i, c in enumerate(second))
    rest = [c for axes in (first, second) for c in axes if c not in pairs.values()]
    return _products(a, b, first, second, rest, call, scalar)


def _last_axes(a: Memory, b: Memory, axis: int, call: Any) -> Expression | None:
    """The sum over the last axis of ``a`` and some axis of ``b``, or the product with a scalar."""
    if a.shape and b.shape:
        return _matched(a, b, (len(a.shape) - 1,), (axis,), call)
    settled = _matched(a, b, (), (), call)
    return settled if settled is None or _by_blas(settled) else _scaled(settled, a, b)


def _by_blas(settled: Expression) -> bool:
    """Whether NumPy gives a product with a scalar to BLAS: rules of ``dot``, not ``multiply``."""
    return settled.dtype.char in "fdFD" and len(settled.shape) < 3


def _scaled(settled: Expression, a: Memory, b: Memory) -> Expression:
    """An expression; a new result of a product with a scalar has the order of the other operand."""
    rank = len(settled.shape)
    if rank < 2 or (a.shape and b.shape):
        return settled
    other = a if a.shape else b
    walk = np.nditer([shadow(tuple(min(n, 2) for n in other.shape), other.strides), None],
                     ["zerosize_ok"], order="K")
    strides = walk.operands[1].strides
    axes = sorted(range(rank), key=lambda axis: -strides[axis])
    return replace(settled, strides=contiguous_strides(settled.shape, settled.dtype.itemsize, axes))


def _fits(settled: Expression, a: Memory, b: Memory, out: Memory) -> bool:
    """Whether ``numpy.multiply`` would write the result to ``out``."""
    try:
        fits = np.broadcast_shapes(settled.shape, out.shape) == out.shape
    except ValueError:
        return False
    if fits:
        np.multiply(stand_in(a, (1,)), stand_in(b, (1,)), out=stand_in(out, (1,)))
    return fits


def settle_dot(a: Memory, b: Memory, out: Memory | None) -> Expression | None:
    rank = len(b.shape)
    settled = _last_axes(a, b, max(rank - 2, 0), np.dot)
    if settled is None or out is None:
        return settled
    if () in (a.shape, b.shape) and not _by_blas(settled):
        return settled if _fits(settled, a, b, out) else None
    if (out.dtype, len(out.shape)) != (settled.dtype, len(settled.shape)) or not (
            is_contiguous(out, "C") and out.writeable and out.aligned):
        raise ValueError(
            "output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array)"
        )
    if out.shape != settled.shape:
        raise ValueError("output array has wrong dimensions")
    return settled


def _settle_inner(a: Memory, b: Memory, out: None) -> Expression | None:
    return _last_axes(a, b, len(b.shape) - 1, np.inner)


def settle_tensordot(a: Memory, b: Memory, out: None, axes: Any) -> Expression | None:
    """As NumPy reads ``axes``; what it cannot read it refuses itself."""
    try:
        axes_a, axes_b = axes
    except TypeError:
        axes_a, axes_b = range(-axes, 0), range(axes)
    named = [[*x] if np.iterable(x) else [x] for x in (axes_a, axes_b)]
    if len(named[0]) != len(named[1]) or any(isinstance(i, bool) for i in chain(*named)):
        return None
    with suppress(TypeError, ValueError):
        axes_a, axes_b = map(normalize_axis_tuple, named, (len(a.shape), len(b.shape)))
        return _matched(a, b, axes_a, axes_b, np.dot, scalar=False)
    return None


def _settle_vdot(a: Memory, b: Memory, out: None) -> Expression | None:
    axes = _common_axes(a.shape, b.shape) if a.size == b.size else None
    if axes is None:
        return None
    first, second, extents = axes
    return expression((Term(first, conj=True), Term(second)), (), extents,
                      common_type(np.vdot, a.dtype, b.dtype))


def _common_axes(shape1: Ints, shape2: Ints) -> tuple[Letters, Letters, dict[str, int]] | None:
    """Letters for the axes of two arrays of one size that count elements alike, and their extents:
    (6,) and (2, 3) give (ab,) and (a, b). ``None`` if no extents divide both shapes."""
    if 0 in shape1:
        axes1, axes2 = (tuple("" if n else "a" for n in shape) for shape in (shape1, shape2))
        return axes1, axes2, {"a": 0}
    # the elements from each axis on, and where either shape has a bound
    sizes = [[*accumulate(shape[::-1], mul, initial=1)] for shape in (shape1, shape2)]
    bounds = sorted({*chain(*sizes)})
    if any(n % m for m, n in pairwise(bounds)):
        return None
    letters = {n: letter(i) for i, n in enumerate(bounds[1:])}
    first, second = (tuple("".join(c for n, c in letters.items() if low < n <= high)[::-1]
                           for low, high in pairwise(each))[::-1] for each in sizes)
    return first, second, {letters[n]: n // m for m, n in pairwise(bounds)}


def settle_outer(a: Memory, b: Memory, out: Memory | None) -> Expression | None:
    first, second = _letters(a.shape, b.shape)
    settled = _products(a, b, first, second, ("".join(first), "".join(second)), np.multiply)
    return settled if out is None or _fits(settled, a, b, out) else None


def _settle_kron(a: Memory, b: Memory, out: None) -> Expression | None:
    first, second = _letters(a.shape, b.shape)
    rank = max(len(first), len(second))
    blocks = zip(*(("",) * (rank - len(axes)) + axes for axes in (first, second)), strict=True)
    return _scaled(_products(a, b, first, second, ["".join(block) for block in blocks],
                             np.multiply), a, b)
