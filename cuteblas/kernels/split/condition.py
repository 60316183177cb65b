"""When planes of fp16x3 hold what a product needs: what blocks that split rows leave of them, and
the verdict on all rows.

docs/performance/gemm-split.md derives why fp16x3 is accurate if no row of an operand needs more
than any row of the other offers.
"""

from __future__ import annotations

from ...codegen import KernelBuilder, Term, choose
from ..guard import HOLDS, NATIVE, Field, Record

__all__ = ["RECORD", "UNBOUNDED", "verdict_on_rows"]

UNBOUNDED = 2.0**127
"""What rows of zeros offer: more than any row can need, unless no offer is enough for it."""

RECORD = Record((Field("need", "max", 0.0), Field("offer", "min", UNBOUNDED)))
"""What a block, or a cluster that shares rows, leaves of its rows.

0. The most that one of them needs of the other operand's rows: ``z + 3t`` for ``z`` zeros and ``t``
   elements that are too small for fp16x3, or 0 if it has none of the latter. Infinity if a row has
   an infinity, a NaN, or elements too small even for bf16x6.
1. The least that one of them offers: a lower bound of its sum of magnitudes over its largest one;
   :data:`UNBOUNDED`, if all are zero.
"""


def verdict_on_rows(k: KernelBuilder, rows: list[list[Term]], fallback: int) -> Term:
    """The verdict on the rows of A and B: ``fallback`` if one needs more than one of the other
    operand offers."""
    (need_a, offer_a), (need_b, offer_b) = rows
    lacks = k.let("is_lacking", (need_a > offer_b) | (need_b > offer_a))
    return choose(k.call("max", need_a, need_b) > UNBOUNDED, NATIVE,
                  choose(lacks, fallback, HOLDS, "uint32"))
