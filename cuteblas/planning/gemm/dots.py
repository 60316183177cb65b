"""Dot products, or a batch of them, as a reduction of the products of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..problem import DeviceInfo, GemmProblem, Operand, ReductionProblem
from ..reductions import plan_reduction, reducing, why_not_reduced
from .family import Choice, Family, Made, as_it_is


def why_not_dots(p: GemmProblem, _device: DeviceInfo) -> str | None:
    if p.shape != (1, 1):
        return f"a dot product has one row and one column, not {p.m} and {p.n}"
    if p.triangle or p.k == 0 or (p.alpha, p.beta) != ("one", "zero") or p.fusion is not None:
        return "a dot product has K above 0, and no alpha, beta, epilogue or triangle"
    return why_not_reduced(_reduction(p))


def _reduction(p: GemmProblem) -> ReductionProblem:
    """The reduction along K; elements of X are closer together than those of Y."""
    def scattered(x: Operand) -> tuple[bool, int]:
        steps = [abs(s) for n, s in zip((p.k, *p.batch), (x.strides[1], *x.batch_strides),
                                        strict=True) if n > 1]
        return 0 in steps, min((s for s in steps if s), default=1)

    x, y = sorted((p.a.named("a"), p.b.named("b")), key=scattered)
    return ReductionProblem(1, p.k, replace(x, strides=(0, x.strides[1])),
                            replace(p.c, strides=(0, 0)), p.batch, compute=p.accumulator,
                            y=replace(y, strides=(0, y.strides[1])))


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[None]]:
    yield Choice(None, 1, p.k, 1, reducing(_reduction(p), device), "dot products")


def _made(p: GemmProblem, device: DeviceInfo, _choice: Choice[None]) -> Made:
    plan = plan_reduction(_reduction(p), device)
    return Made(plan.launches, plan.workspace_bytes, plan.reason, plan.config)


DOTS = Family("reduce", why_not_dots, _tilings, _made, as_it_is)
plan_dots = DOTS.plan
