"""Many products at once: those that can share launches do, and the others are computed one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .counters import Tally, tally
from .engines import Engine
from .gemms import GemmCall, finish, run

if TYPE_CHECKING:
    from ..planning.gemm.grouped import Part
    from ..planning.plan import Plan

__all__ = ["routes", "run_group"]


def run_group(engine: Engine, calls: Sequence[GemmCall], function: str) -> list[tuple[Any, Mapping[str, Any]]]:
    """Run products that do not depend on each other, in as few launches as their types allow.

    Every product is counted: by the family of its kernel and that it was one of a group, or by its own family and why it was not.

    Parameters
    ----------
    engine : Engine
        What runs plans on all of their arrays.
    calls : sequence of GemmCall
        The products.
    function : str
        On whose account they are counted.

    Returns
    -------
    list
        For each what :func:`cuteblas.functions.gemms.run` returns.
    """
    from ..planning.gemm.grouped import plan_grouped, table_of, why_alone
    from ..planning.problem import GroupedProblem

    if not calls:
        return []
    device = engine.device(calls[0].arrays["a"])
    reasons = [why_alone(call.problem, device) for call in calls]
    group = [call for call, reason in zip(calls, reasons, strict=True) if reason is None]
    shares = len(group) > 1
    if shares:
        plan = plan_grouped(GroupedProblem(tuple(call.problem for call in group)), device)
        if plan.launches:
            table = table_of(plan, [_values(engine, call) for call in group])
            engine.run_table(plan, table, [x for call in group for x in call.arrays.values()])
        for route in routes(plan, function):
            route.tick()
    return [finish(engine, call, function) if shares and reason is None
            else run(engine, call, function, f", not in a group: {reason}" if reason else "")
            for call, reason in zip(calls, reasons, strict=True)]


def routes(plan: Plan, function: str) -> list[Tally]:
    """The counter of each product of a group."""
    parts: tuple[Part, ...] = plan.config.parts                 # type: ignore[attr-defined]
    families = {member.index: f"{part.family} in a group" for part in parts for member in part.members}
    count = len(plan.problem.problems)                          # type: ignore[union-attr]
    return [tally(function, "calls", families.get(i, "nothing")) for i in range(count)]


def _values(engine: Engine, call: GemmCall) -> dict[str, Any]:
    """What a product's roles stand for: addresses and numbers."""
    return {"alpha": call.alpha, "beta": call.beta, **call.numbers,
            **{role: engine.memory(x).address for role, x in call.arrays.items()}}
