"""What planning chooses among for a problem: plans, each with the time that it is expected to take on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..plan import Plan
    from ..problem import DeviceInfo

__all__ = ["Alternative", "Estimated", "alternative", "together"]


_NORM = 4


def together(*parts: float) -> float:
    """The time of what happens at once: longer than the longest part where another one takes nearly as long."""
    longest = max(parts)
    return longest * sum((part / longest)**_NORM for part in parts)**(1 / _NORM) if longest else 0.0


@dataclass(frozen=True)
class Alternative:
    """One of the plans among which planning chooses.

    Attributes
    ----------
    family : str
        The kernel family.
    name : str
        Its tile and, after a comma, the rest of what distinguishes it within the family.
    seconds : callable
        The time that is expected by the numbers of a device.
    plan : callable
        Makes the plan.
    """

    family: str
    name: str
    seconds: Callable[[DeviceInfo], float]
    plan: Callable[[], Plan]

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


class Estimated(Protocol):
    """A choice with the time that it is expected to take."""

    @property
    def seconds(self) -> float:
        """The time."""


def alternative(family: str, name: str, choice: Estimated, device: DeviceInfo, estimate: Callable[[DeviceInfo], Estimated],
                plan: Callable[[], Plan]) -> Alternative:
    """A choice on a device as an alternative; ``estimate`` makes it by the numbers of another device."""
    def seconds(where: DeviceInfo) -> float:
        return (choice if where is device else estimate(where)).seconds

    return Alternative(family, name, seconds, plan)
