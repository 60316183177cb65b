"""Functions that NumPy lacks, of traced values, NumPy and CuPy arrays, and numbers."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ...engines.dispatch import kind_of, own_call
from .epilogue import widened
from .tracing import Traced, of_name


def erf(x: Any) -> Any:
    """The error function: SciPy's on NumPy arrays, or Python's without SciPy; that of
    ``cupyx.scipy`` on CuPy arrays.

    Parameters
    ----------
    x : array, number or value of an epilogue
        Real.

    Returns
    -------
    as ``x``
        Elementwise.

    Examples
    --------
    >>> from cuteblas.epilogues import erf
    >>> round(float(erf(0.5)), 6)
    0.5205
    """
    if isinstance(x, Traced):
        return of_name("erf", x)
    if (call := own_call(x)) is not None:
        return call(erf, (x,), {})
    x = _floating(x)
    return _erf_of_cupy()(x) if kind_of(x) == "cupy" else _erf_of_numpy()(x)


def logistic(x: Any) -> Any:
    """``1 / (1 + exp(-x))``, without overflow at large negative ``x``."""
    if isinstance(x, Traced):
        return of_name("sigmoid", x)
    x = _floating(x)
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _floating(x: Any) -> Any:
    x = float(x) if isinstance(x, int) else widened(x)
    return x.astype(np.float64) if hasattr(x, "dtype") and x.dtype.kind in "biu" else x


@cache
def _erf_of_numpy() -> Any:
    try:
        from scipy.special import erf  # type: ignore[import-untyped]
    except ImportError:
        return _erf_by_math
    return erf


def _erf_by_math(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(getattr(x, "dtype", np.float64))[
        ()
    ]


@cache
def _erf_of_cupy() -> Any:
    from cupyx.scipy.special import erf

    return erf
