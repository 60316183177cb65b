"""From NumPy's terms to the kernels' terms: a product that NumPy accepts as a problem, and which operands are copied for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..engines.memory import Memory
from ..engines.problems import Staged, folded_problem, matrix, new, readable, writable
from ..planning.problem import GemmProblem
from .gufunc import Product

__all__ = ["Staging", "gemm_problem", "stage"]


@dataclass(frozen=True)
class Staging:
    """A product whose operands kernels can read and write.

    Attributes
    ----------
    product : Product
        What NumPy accepted.
    a, b, c : Staged
        Both inputs and the output.
    problem : GemmProblem
        What kernels compute.
    """

    product: Product
    a: Staged
    b: Staged
    c: Staged
    problem: GemmProblem

    @property
    def copies(self) -> tuple[str, ...]:
        """Which operands are copied and why."""
        operands = ("x1", self.a), ("x2", self.b), ("out", self.c)
        return tuple(f"{name}: {staged.reason}" for name, staged in operands if staged.reason)


def stage(x1: Memory, x2: Memory, out: Memory | None, product: Product, precision: str = "auto",
          variant: str | None = None) -> Staging:
    """Decide which operands have to be copied, and write down the problem.

    Kernels take any strides, so an operand is copied only to change its type or byte order, or if its elements are not aligned to
    their own size. ``out`` is computed elsewhere and then assigned if it has another type or alignment, or if it shares memory
    with an input or with itself.
    """
    a, b = readable(x1, product.dtype), readable(x2, product.dtype)
    c = new(product.shape, product.strides, product.dtype) if out is None else writable(out, (a, b), product.dtype)
    problem = gemm_problem(product, a.memory, b.memory, c.memory, precision, variant)
    if a.reason is b.reason is None and x1.address == x2.address != 0 and problem.is_gram:
        problem = replace(problem, triangle="both")
    return Staging(product, a, b, c, problem)


def gemm_problem(product: Product, a: Memory, b: Memory, c: Memory, precision: str = "auto",
                 variant: str | None = None) -> GemmProblem:
    """The problem of multiplying operands that kernels can read."""
    (a_k, *a_m), (b_k, *b_n), core_c = product.core1[::-1], product.core2, list(product.core3)
    c_m = core_c.pop(0) if a_m else None
    c_n = core_c.pop(0) if b_n else None
    core_a, core_b = (a_m[0] if a_m else None, a_k), (b_k, b_n[0] if b_n else None)
    operands = (matrix(x, core, product.batch) for x, core in ((a, core_a), (b, core_b), (c, (c_m, c_n))))
    return folded_problem((product.m, product.n, product.k), product.batch, *operands, precision=precision, variant=variant)
