"""What planning chooses among for a problem: plans, each with what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .work import Counted

if TYPE_CHECKING:
    from ..plan import Plan
    from ..problem import DeviceInfo

__all__ = ["Alternative"]


@dataclass(frozen=True)
class Alternative:
    """One of the plans among which planning chooses.

    Attributes
    ----------
    family : str
        The kernel family.
    name : str
        Its tile and, after a comma, the rest of what distinguishes it within the family.
    works : tuple of Counted
        What is done one after the other.
    plan : callable
        Makes the plan.
    floor : float
        Clocks in which no plan of the family does the multiply-adds.
    """

    family: str
    name: str
    works: tuple[Counted, ...]
    plan: Callable[[], Plan]
    floor: float = 0.0

    def seconds(self, device: DeviceInfo) -> float:
        """The time that is expected by the numbers of a device."""
        return max(device.seconds(self.floor), sum(work.seconds(device) for work in self.works))

    def __str__(self) -> str:
        return f"{self.family} {self.name}"
