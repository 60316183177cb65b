"""The error of a product, in units of u (|A| |B|), against a reference in wider arithmetic.

Any order of sums of depth K has an error of at most about K units (N. J. Higham, Accuracy and
Stability of Numerical Algorithms, 2nd edition, section 3.5). Integers must be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from ..blas.types import kind_of_numbers

# Multiply-adds that the reference of a check may take: in float64 by a BLAS, in longdouble without
# one.
_WORK_DOUBLE, _WORK_LONG = 2e10, 1e8


@dataclass(frozen=True)
class Grade:
    """The largest componentwise error of ``checked`` rows in units of u (|A| |B|), u being half
    the distance from 1 to the next number, and its limit; integers: 0 or infinite."""

    error: float
    limit: float
    checked: int
    rows: int

    @property
    def passed(self) -> bool:
        return self.error <= self.limit


def grade(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Grade:
    """The error of ``c`` as the product ``a @ b``, of some rows if all take more than seconds."""
    if b.ndim == 1:
        b, c = b[:, None], c[..., None]
    if a.ndim == 1:
        a, c = a[None, :], c[..., None, :]
    rows, depth = a.shape[-2:]
    exact = kind_of_numbers(c.dtype) not in "fc"
    wide = c.dtype if exact else np.result_type(c.dtype, np.float64)
    if not exact and wide == c.dtype:
        wide = np.result_type(c.dtype, np.longdouble)
    work = _WORK_DOUBLE if wide.char in "dD" else _WORK_LONG
    affordable = work // max(1, depth * c[..., :1, :].size)
    some = slice(None, None, max(1, -(-rows // max(1, int(affordable)))))
    a, b, c = a[..., some, :].astype(wide), b.astype(wide), c[..., some, :]
    expected, checked = np.matmul(a, b), a.shape[-2]
    if exact:
        return Grade(0.0 if np.array_equal(expected, c) else np.inf, 0.0, checked, rows)
    # Complex multiplication adds two roundings to each product (Higham, section 3.6).
    limit = 2.0 * (depth + 2) if wide.kind == "c" else float(max(depth, 1))
    return Grade(_worst(expected, np.matmul(abs(a), abs(b)), c, depth), limit, checked, rows)


def _worst(expected: np.ndarray, size: np.ndarray, c: np.ndarray, depth: int) -> float:
    """The largest error in u times ``size``; infinite for misplaced infinities and NaNs."""
    # Elements whose terms exceed the type's largest number say nothing: whether they overflow is a
    # matter of order.
    # NumPy's finfo does not know the types of ml_dtypes
    facts = import_module("ml_dtypes" if c.dtype.kind == "V" else "numpy").finfo(c.dtype)
    unit = size * float(facts.eps) / 2 + float(facts.smallest_subnormal) * max(depth, 1)
    clear = size < float(facts.max)
    with np.errstate(invalid="ignore"):
        error = np.where(clear, abs(c - expected) / unit, 0)
    misplaced = ~np.isfinite(expected) & (np.isnan(expected) != np.isnan(c))
    error = np.where((clear & np.isnan(error)) | misplaced, np.inf, error)
    return float(error.max(initial=0))
