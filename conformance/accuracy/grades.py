"""Errors of a product in units of u |A||B|, on a sample of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, log2
from typing import Any

import numpy as np

__all__ = ["ROWS", "UNITS", "Grade", "Row", "grade", "table"]

UNITS = {"f": 2.0**-24, "d": 2.0**-53, "F": 2.0**-24, "D": 2.0**-53}
"""The rounding of a type, by its letter."""

_MOST_SLICES = 12


@dataclass(frozen=True)
class Grade:
    """The largest error and the root of the mean square, in units of u |A||B|; infinite if a result
    is not finite."""

    largest: float
    rms: float

    def __str__(self) -> str:
        return f"{self.largest:9.3g} {self.rms:9.3g}"


@dataclass(frozen=True)
class Row:
    """One line of the table: a case, the algorithm that the plan names, and the grades of ours and
    of the other library."""

    element: str
    case: str
    extents: tuple[int, int, int]
    orders: str
    algorithm: str
    ours: Grade
    theirs: Grade


ROWS: list[Row] = []
"""What was graded in this run."""


def grade(xp: Any, c: Any, a: Any, b: Any, rows: Any) -> Grade:
    """Compare rows of ``c`` with the product in float64 or complex128, or those of these types with
    the exact one.

    ``xp`` is the arrays' library.
    Errors and magnitudes of complex numbers are their absolute values.
    """
    wide, unit = "c16" if c.dtype.kind == "c" else "f8", UNITS[c.dtype.char]
    wide_a, wide_b = a[rows].astype(wide), b.astype(wide)
    scale = abs(wide_a) @ abs(wide_b)
    if c.dtype.char in "dD":
        error = xp.asarray(_distance(xp, c[rows], wide_a, wide_b)) / xp.where(
            scale > 0, scale * unit, 1.0
        )
    else:
        error = abs(c[rows].astype(wide) - wide_a @ wide_b) / xp.where(scale > 0, scale * unit, 1.0)
    if not bool(xp.isfinite(error).all()):
        return Grade(float("inf"), float("inf"))
    return Grade(float(error.max()), float(xp.sqrt((error**2).mean())))


def _slices(xp: Any, x: Any, axis: int) -> Iterator[Any]:
    """Numbers whose sum is ``x``, of so few bits that sums along an axis of products of two of them
    are exact in float64."""
    bits = (52 - ceil(log2(max(x.shape[axis], 2)))) // 2
    for _ in range(_MOST_SLICES):
        largest = abs(x).max(axis=axis, keepdims=True)
        if not bool((largest > 0).any()):
            return
        step = xp.ldexp(1.0, xp.frexp(largest)[1] - bits)
        part = xp.rint(x / step) * step
        x = x - part
        yield part


def _distance(xp: Any, c: Any, a: Any, b: Any) -> np.ndarray:
    """How far float64 or complex128 is from the product, which is summed in long doubles."""
    def parts(x: Any) -> list[Any]:
        return [x.real, x.imag] if x.dtype.kind == "c" else [x]

    def host(x: Any) -> np.ndarray:
        return np.asarray(x.get() if hasattr(x, "get") else x, np.longdouble)

    of_a, of_b = ([list(_slices(xp, part, axis)) for part in parts(x)]
                  for x, axis in ((a, 1), (b, 0)))
    found = [-host(part) for part in parts(c)]
    for (i, some), (j, others) in product(enumerate(of_a), enumerate(of_b)):
        for x, y in sorted(product(range(len(some)), range(len(others))), key=sum):
            found[i ^ j] += (-1 if i and j else 1) * host(some[x] @ others[y])
    return np.asarray(np.hypot(*found) if len(found) == 2 else abs(found[0]), float)


def table(rows: list[Row], rival: str) -> list[str]:
    """The lines of the grade table."""
    head = (
        f"{'type':9} {'case':32} {'m x n x k':>20} {'':3} {'ours: max':>9} {'rms':>9} {rival + ': max':>14} {'rms':>9}  "
        "algorithm"
    )
    return [
        head,
        *(
            f"{r.element:9} {r.case:32} {'x'.join(map(str, r.extents)):>20} {r.orders:3} {r.ours} {r.theirs.largest:14.3g} "
            f"{r.theirs.rms:9.3g}  {r.algorithm}"
            for r in rows
        )
    ]
