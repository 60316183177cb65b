"""What planning chooses among for a copy."""

from __future__ import annotations

from collections.abc import Iterator

from ..cost.alternatives import Alternative
from ..estimates import moving_seconds
from ..problem import CopyProblem, DeviceInfo
from .dispatch import plan_copy

__all__ = ["copy_alternatives"]


def copy_alternatives(problem: CopyProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """The plan of :func:`~cuteblas.planning.copy.dispatch.plan_copy`: copies choose by shape, and nothing else is offered yet."""
    plan = plan_copy(problem, device)
    yield Alternative(plan.family, type(plan.config).__name__, lambda d: moving_seconds(problem, d, plan.config), lambda: plan)
