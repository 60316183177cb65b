"""Transposes: views, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .kinds import kind_of

__all__ = ["matrix_transpose", "transpose"]


def transpose(a: Any, axes: int | Sequence[int] | None = None) -> Any:
    """A view with permuted axes, as ``numpy.transpose``; no element moves.

    Parameters
    ----------
    a : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    axes : sequence of int, optional
        For each axis of the result the axis of ``a``; reversed order by default.

    Raises
    ------
    ValueError, numpy.exceptions.AxisError
        If ``axes`` is not a permutation, in NumPy's words.

    See Also
    --------
    cuteblas.ascontiguousarray, cuteblas.copy : materialise a transpose.
    """
    if kind_of(a) != "cupy":
        return np.transpose(a, axes)
    np.transpose(_shape_of(a), axes)
    return a.transpose(axes)


def matrix_transpose(x: Any, /) -> Any:
    """A view with the last two axes exchanged, as ``numpy.matrix_transpose``; no element moves.

    Raises
    ------
    ValueError
        If there are fewer than two axes, in NumPy's words.
    """
    if kind_of(x) != "cupy":
        return np.matrix_transpose(x)
    np.matrix_transpose(_shape_of(x))
    return x.swapaxes(-1, -2)


def _shape_of(a: Any) -> np.ndarray:
    """A NumPy array of the same shape, in which one element stands for all: NumPy judges the axes by it."""
    return np.broadcast_to(np.False_, a.shape)
