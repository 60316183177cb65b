"""What planning chooses among for a problem: plans, each with what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from .work import Counted, Work

if TYPE_CHECKING:
    from ..plan import Plan
    from ..problem import DeviceInfo

__all__ = ["Alternative", "least"]


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


class Worked(Protocol):
    """A choice of a family, which says what it does."""

    @property
    def work(self) -> Work:
        """The counted resources."""


Choice = TypeVar("Choice", bound=Worked)


def least(choices: Iterable[Choice], device: DeviceInfo) -> Choice:
    """The first of some choices with the least expected time."""
    return min(choices, key=lambda choice: choice.work.seconds(device))
