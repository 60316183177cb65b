"""When planes of fp16x3 hold what a product needs: records of rows, and the verdict on them.

docs/performance/gemm-split.md derives it: no row may need more than any row of the other operand
offers.
"""

from __future__ import annotations

from ...codegen import KernelBuilder, Term, choose
from ..guard import HOLDS, NATIVE, Field, Record

UNBOUNDED = 2.0**127
"""What rows of zeros offer: more than any row needs."""

RECORD = Record((Field("need", "max", 0.0), Field("offer", "min", UNBOUNDED)))
"""What a block, or a cluster that shares rows, leaves of them. *need*: the most that a row needs
of the other operand's, ``z + 3t`` for ``z`` zeros and ``t`` elements too small for fp16x3, 0
without these; infinity for an infinity, a NaN or elements too small for bf16x6. *offer*: the least
lower bound of a row's sum of magnitudes over its largest; :data:`UNBOUNDED` for zeros."""


def verdict_on_rows(k: KernelBuilder, rows: list[list[Term]], fallback: int) -> Term:
    """The verdict on rows of A and B: ``fallback`` if one needs more than another offers."""
    (need_a, offer_a), (need_b, offer_b) = rows
    lacks = k.let("is_lacking", (need_a > offer_b) | (need_b > offer_a))
    return choose(k.call("max", need_a, need_b) > UNBOUNDED, NATIVE,
                  choose(lacks, fallback, HOLDS, "uint32"))
