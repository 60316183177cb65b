"""Transposes: views, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..engines.dispatch import Func, kind_of
from ..engines.memory import Ints
from .signatures import typed_copy


@typed_copy
def transpose(a: Any, axes: int | Sequence[int] | None = None) -> Any:
    """A view with permuted axes, as ``numpy.transpose``; no element moves.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    axes : sequence of int, optional
        The axis of ``a`` for each axis of the result; by default all axes in reversed order.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A view of ``a``.

    Raises
    ------
    ValueError, numpy.exceptions.AxisError
        If ``axes`` is not a permutation, in NumPy's words.

    See Also
    --------
    cuteblas.ascontiguousarray, cuteblas.copy : materialise a transpose.

    Examples
    --------
    >>> a = np.zeros((2, 3, 4))
    >>> cuteblas.transpose(a).shape, cuteblas.transpose(a, (0, 2, 1)).shape, np.shares_memory(cuteblas.transpose(a), a)
    ((4, 3, 2), (2, 4, 3), True)
    """
    if kind_of(a) != "cupy":
        return np.transpose(a, axes)
    if axes is None:
        return a.transpose()
    if type(axes) is tuple and len(axes) == a.ndim:
        for axis in axes:
            if type(axis) is not int:
                break
        else:
            try:
                return a.transpose(axes)
            except (ValueError, OverflowError):
                pass                                    # NumPy's to refuse
    return _permuted(np.transpose, a, axes)


permute_dims = transpose


@typed_copy
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """A view with two axes exchanged, as ``numpy.swapaxes``; no element moves.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    axis1, axis2 : int
        The axes to exchange.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A view of ``a``; a :class:`cuteblas.ndarray` if ``a`` is one.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis, in NumPy's words.

    Examples
    --------
    >>> cuteblas.swapaxes(np.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    if kind_of(a) != "cupy":
        return np.swapaxes(a, axis1, axis2)
    try:
        return a.swapaxes(axis1, axis2)                 # takes what NumPy takes
    except (TypeError, ValueError, OverflowError):
        return _permuted(np.swapaxes, a, axis1, axis2)


@typed_copy
def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """A view with some axes moved to new positions, as ``numpy.moveaxis``; the others stay in
    order, and no element moves.

    Parameters
    ----------
    a : array
        NumPy in, NumPy out; CuPy in, CuPy out.
    source, destination : int or sequence of int
        The axes to move, and their new positions.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A view of ``a``; a :class:`cuteblas.ndarray` if ``a`` is one.

    Raises
    ------
    ValueError, numpy.exceptions.AxisError
        For axes that do not exist or are named twice, in NumPy's words.

    Examples
    --------
    >>> cuteblas.moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    return _permuted(np.moveaxis, a, source, destination)


@typed_copy
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """A view with one axis moved back until it is before ``start``, as ``numpy.rollaxis``; no
    element moves.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    axis : int
        The axis to move.
    start : int
        The position before which it is placed.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A view of ``a``; a :class:`cuteblas.ndarray` if ``a`` is one.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis or position, in NumPy's words.

    Examples
    --------
    >>> cuteblas.rollaxis(np.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    return _permuted(np.rollaxis, a, axis, start)


@typed_copy
def matrix_transpose(x: Any, /) -> Any:
    """A view with the last two axes exchanged, as ``numpy.matrix_transpose``; no element moves.

    Parameters
    ----------
    x : array_like
        Of shape (..., m, n). NumPy in, NumPy out; CuPy in, CuPy out.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A view of shape (..., n, m).

    Raises
    ------
    ValueError
        If there are fewer than two axes, in NumPy's words.

    Examples
    --------
    >>> cuteblas.linalg.matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    if kind_of(x) == "cupy" and x.ndim > 1:
        return x.swapaxes(-1, -2)
    return _permuted(np.matrix_transpose, x)


def _permuted(call: Func, a: Any, *arguments: Any) -> Any:
    """A view with the axes where NumPy has them, or NumPy's refusal."""
    if kind_of(a) != "cupy":
        return call(a, *arguments)
    permutation = _known if _are_plain(arguments) else _permutation
    return a.transpose(permutation(call, a.ndim, *arguments))


def _are_plain(axes: Sequence[Any]) -> bool:
    """Whether axes are integers, tuples of them or ``None``, as which no others are looked up."""
    for axis in axes:
        kind = type(axis)
        if not (kind is int or axis is None or (kind is tuple and _are_plain(axis))):
            return False
    return True


def _permutation(call: Func, rank: int, *arguments: Any) -> Ints:
    # each axis has its number for a stride
    return call(as_strided(np.empty(0, bool), (0,) * rank, range(rank)), *arguments).strides


_known = lru_cache(maxsize=4096)(_permutation)
