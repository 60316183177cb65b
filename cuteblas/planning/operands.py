"""What planners ask about operands, and the launch that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..codegen.kernel import GeneratedKernel
from .plan import Argument, Launch, Role
from .problem import GemmProblem, Operand

__all__ = ["NARROW_SPAN", "Roles", "alpha_kind", "gemm_numbers", "gemm_span", "launch", "operand_span", "span", "unit_mode"]

Roles = dict[str, Role]
"""Which argument of a call each pointer parameter takes."""

NARROW_SPAN = 2**30
"""Offsets below this fit 32 bits, copies ahead of the end included."""


def span(modes: Iterable[tuple[int, int]]) -> int:
    """Largest distance in elements between two elements of a tensor with modes of (extent, stride)."""
    return sum(max(0, n - 1) * abs(s) for n, s in modes)


def operand_span(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> int:
    """Largest distance in elements between two elements of an operand."""
    return span(zip((*extents, *batch), (*operand.strides, *operand.batch_strides), strict=True))


def gemm_span(p: GemmProblem) -> int:
    """The largest of the extents of a GEMM and of the spans of its operands: it decides between 32-bit and 64-bit offsets."""
    operands = (p.a, (p.m, p.k)), (p.b, (p.n, p.k)), (p.c, (p.m, p.n))
    return max(p.m, p.n, p.k, *(operand_span(o, extents, p.batch) for o, extents in operands))


def unit_mode(operand: Operand) -> int | None:
    """The mode with stride 1, the first if both have it."""
    return 0 if operand.strides[0] == 1 else 1 if operand.strides[1] == 1 else None


def alpha_kind(alpha: str) -> str:
    """A kernel knows that alpha is one, or takes it: with alpha zero it runs over no k."""
    return "one" if alpha == "one" else "value"


def gemm_numbers(p: GemmProblem) -> dict[str, int]:
    """The values of a GEMM kernel's integer parameters, by name; with alpha zero, it runs over no k."""
    numbers = {"M": p.m, "N": p.n, "K": 0 if p.alpha == "zero" else p.k}
    for name, operand, modes in (("A", p.a, "mk"), ("B", p.b, "nk"), ("C", p.c, "mn")):
        numbers |= {f"d{name}_{mode}": s for mode, s in zip(modes, operand.strides, strict=True)}
        numbers |= {f"d{name}_l{i}": s for i, s in enumerate(reversed(operand.batch_strides))}
    return numbers | {f"L{i}": n for i, n in enumerate(reversed(p.batch))}       # the innermost batch mode runs fastest


def launch(kernel: GeneratedKernel, grid: tuple[int, int, int], roles: Roles, numbers: Mapping[str, int]) -> Launch:
    """The launch of a kernel whose pointers stand for ``roles`` and whose integers have the values ``numbers``, by name."""
    supplied: Roles = {**roles, "alpha": "alpha", "beta": "beta"}
    arguments = tuple(Argument(role=supplied[q.name]) if q.name in supplied else Argument(value=numbers[q.name])
                      for q in kernel.params)
    return Launch(kernel, grid, arguments)
