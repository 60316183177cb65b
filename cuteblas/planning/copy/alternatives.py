"""What planning chooses among for a copy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...kernels.copy.rearrange import RearrangeConfig
from ...kernels.copy.straight import CopyConfig
from ...kernels.copy.tiles import TransposeConfig
from ..cost.alternatives import Alternative
from ..problem import CopyProblem, DeviceInfo
from .dispatch import CopyChoice, copy_choices

__all__ = ["copy_alternatives"]


def copy_alternatives(problem: CopyProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All kernels among which planning chooses."""
    for choice in copy_choices(problem, device):
        yield Alternative(choice.kernel.family, _name(choice), choice.seconds, partial(choice.plan, device))


def _name(choice: CopyChoice) -> str:
    config = choice.kernel.config
    if isinstance(config, RearrangeConfig):
        return "RearrangeConfig of boxes " + "x".join(map(str, config.box))
    return config.kind if isinstance(config, (CopyConfig, TransposeConfig)) else type(config).__name__
