"""What planners ask about operands, and the launch that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ..codegen.kernel import GeneratedKernel
from .plan import Argument, Launch, Role
from .problem import GemmProblem, Operand

__all__ = ["NARROW_SPAN", "gemm_spans", "launch", "span", "unit_mode"]

NARROW_SPAN = 2**30
"""Offsets below this fit 32 bits, copies ahead of the end included."""


def span(modes: Iterable[tuple[int, int]]) -> int:
    """Largest distance in elements between two elements of a tensor with modes of (extent, stride)."""
    return sum(max(0, n - 1) * abs(s) for n, s in modes)


def gemm_spans(p: GemmProblem) -> int:
    """The largest of the extents of a GEMM and of the spans of its operands: what decides between 32-bit and 64-bit offsets."""
    operands = ((p.a, (p.m, p.k)), (p.b, (p.n, p.k)), (p.c, (p.m, p.n)))
    return max(p.m, p.n, p.k, *(span(zip((*extents, *p.batch), (*o.strides, *o.batch_strides), strict=True)) for o, extents in operands))


def unit_mode(operand: Operand) -> int | None:
    """The mode with stride 1, the first if both have it."""
    return 0 if operand.strides[0] == 1 else 1 if operand.strides[1] == 1 else None


def launch(kernel: GeneratedKernel, grid: tuple[int, int, int], roles: Mapping[str, str], numbers: Mapping[str, int]) -> Launch:
    """The launch of a kernel whose pointers and scalars stand for ``roles`` and whose integers have the values ``numbers``, by name."""
    supplied = {**roles, "alpha": "alpha", "beta": "beta"}
    arguments = tuple(Argument(role=cast(Role, supplied[q.name])) if q.name in supplied else Argument(value=numbers[q.name])
                      for q in kernel.params)
    return Launch(kernel, grid, arguments)
