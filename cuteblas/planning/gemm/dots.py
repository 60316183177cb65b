"""Dot products: a product with one row and one column, or a batch of them, as a reduction of the
products of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ..cost.alternatives import Alternative
from ..plan import Plan, Role, place, placed
from ..problem import DeviceInfo, GemmProblem, Operand, ReductionProblem
from ..reductions import plan_reduction, reducing, why_not_reduced

__all__ = ["dots_alternatives", "plan_dots", "why_not_dots"]


def why_not_dots(p: GemmProblem, _device: DeviceInfo) -> str | None:
    """Why a problem cannot be computed as dot products, or ``None`` if it can."""
    if (p.m, p.n) != (1, 1):
        return f"a dot product has one row and one column, not {p.m} and {p.n}"
    if p.triangle or p.k == 0 or (p.alpha, p.beta) != ("one", "zero") or p.fusion is not None:
        return "a dot product has K above 0, and no alpha, beta, epilogue or triangle"
    return why_not_reduced(_reduction(p)[0])


def _reduction(p: GemmProblem) -> tuple[ReductionProblem, tuple[Role, Role]]:
    """The reduction along K, and the roles of X and Y: X is the operand whose elements are closer
    together."""
    def scattered(x: Operand) -> tuple[bool, int]:
        steps = [abs(s) for n, s in zip((p.k, *p.batch), (x.strides[1], *x.batch_strides),
                                        strict=True) if n > 1]
        return 0 in steps, min((s for s in steps if s), default=1)

    x, y, roles = (p.a, p.b, ("a", "b")) if scattered(p.a) <= scattered(p.b) else (p.b, p.a, ("b", "a"))
    return ReductionProblem(1, p.k, replace(x, strides=(0, x.strides[1])),
                            replace(p.c, strides=(0, 0)), p.batch, compute=p.accumulator,
                            y=replace(y, strides=(0, y.strides[1]))), roles


def dots_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """The one way of :func:`plan_dots`."""
    yield Alternative("reduce", "dot products", (reducing(_reduction(problem)[0], device),),
                      partial(plan_dots, problem, device))


def plan_dots(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan for a problem that :func:`why_not_dots` does not refuse.

    Raises
    ------
    ValueError
        For more blocks than a grid can have.
    """
    p, (first, second) = _reduction(problem)
    plan = plan_reduction(p, device)
    return replace(plan, problem=problem, launches=placed(plan.launches,
                                                          {"a": place(first), "b": place(second)}))
