"""What planning chooses among for a copy."""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.copy.rearrange import RearrangeConfig
from ..cost.alternatives import Alternative
from ..estimates import moving_seconds
from ..plan import Plan
from ..problem import CopyProblem, DeviceInfo
from .dispatch import copy_plans

__all__ = ["copy_alternatives"]

_RANKS = 5                                      # boxes of the least costs


def copy_alternatives(problem: CopyProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """Planning's choice, which no numbers of a device change, and what could have been chosen: other boxes, and the kernels that
    boxes compete with.
    """
    for index, plan in enumerate(copy_plans(problem, device, _RANKS)):
        yield _alternative(problem, plan, chosen=index == 0)


def _alternative(problem: CopyProblem, plan: Plan, *, chosen: bool) -> Alternative:
    config = plan.config
    name = type(config).__name__
    if isinstance(config, RearrangeConfig):
        name += " of boxes " + "x".join(map(str, config.box))
    return Alternative(plan.family, name, lambda d: moving_seconds(problem, d, config), lambda: plan, offered=lambda _: chosen)
