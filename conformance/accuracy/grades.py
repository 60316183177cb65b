"""Errors of a product in units of u |A||B|, on a sample of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ROWS", "UNIT", "Grade", "Row", "grade", "table"]

UNIT = 2.0**-24
"""The rounding of float32."""


@dataclass(frozen=True)
class Grade:
    """The largest error and the root of the mean square, in units of u |A||B|; infinite if a result is not finite."""

    largest: float
    rms: float

    def __str__(self) -> str:
        return f"{self.largest:9.3g} {self.rms:9.3g}"


@dataclass(frozen=True)
class Row:
    """One line of the table: a case, the algorithm that the plan names, and the grades of ours and of the other library."""

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
    """Compare rows of ``c`` with the product in float64 or complex128; ``xp`` is the arrays' library.

    Errors and magnitudes of complex numbers are their absolute values.
    """
    wide = "c16" if c.dtype.kind == "c" else "f8"
    wide_a, wide_b = a[rows].astype(wide), b.astype(wide)
    want, scale = wide_a @ wide_b, abs(wide_a) @ abs(wide_b)
    error = abs(c[rows].astype(wide) - want) / xp.where(scale > 0, scale * UNIT, 1.0)
    if not bool(xp.isfinite(error).all()):
        return Grade(float("inf"), float("inf"))
    return Grade(float(error.max()), float(xp.sqrt((error**2).mean())))


def table(rows: list[Row], rival: str) -> list[str]:
    """The lines of the grade table."""
    head = (f"{'type':9} {'case':32} {'m x n x k':>20} {'':3} {'ours: max':>9} {'rms':>9} {rival + ': max':>14} {'rms':>9}  "
            "algorithm")
    return [head, *(f"{r.element:9} {r.case:32} {'x'.join(map(str, r.extents)):>20} {r.orders:3} {r.ours} {r.theirs.largest:14.3g} "
                    f"{r.theirs.rms:9.3g}  {r.algorithm}" for r in rows)]
