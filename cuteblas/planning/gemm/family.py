"""What all families of kernels have in common: from their choices to alternatives and plans.

A family says what it refuses, in which order it writes C, what there is to choose among, and which
launches make a choice come true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..operands import Oriented, along_rows
from ..plan import Alternative, Launch, Plan, least
from ..problem import DeviceInfo, GemmProblem
from .slices import UNCOUNTED, Choice

__all__ = ["NATIVE_PRECISIONS", "Family", "Made", "why_not_plain"]

NATIVE_PRECISIONS = ("auto", "ieee")
"""Native arithmetic of the dtype, and the fastest that is as accurate."""


def why_not_plain(p: GemmProblem) -> str | None:
    """Why a problem is none of native arithmetic that writes all of C; ``None`` if it is one."""
    if p.triangle:
        return "it writes all of C, not a triangle"
    if p.digits != 1:
        return "only gemm_wgmma multiplies planes of digits"
    native = p.precision in NATIVE_PRECISIONS
    return None if native else f"it does not support precision={p.precision!r}"


class Made(NamedTuple):
    """The launches of a choice, and what its plan says of them.

    Attributes
    ----------
    launches : tuple of Launch
        In order.
    workspace_bytes : int
        Scratch memory that they share.
    reason : str
        Why the kernel, its tile and its launches are as they are.
    config : object, optional
        The configuration that a plan shows, if that is not the choice.
    fallback : str
        What the device uses where elements do not allow this.
    """

    launches: tuple[Launch, ...]
    workspace_bytes: int
    reason: str
    config: object = None
    fallback: str = ""


@dataclass(frozen=True)
class Family:
    """A way to compute products.

    Attributes
    ----------
    name : str
        The kernel family.
    why_not : callable
        Why it does not compute a problem on a device, or ``None`` if it does.
    tilings : callable
        The choices for a problem that :attr:`facing` returned, each with its work.
    made : callable
        Of such a problem, a device and a choice: what computes it.
    facing : callable
        The problem with C in the order in which the kernel writes it.
    precisions : tuple of str
        Those of :data:`~cuteblas.planning.gemm.dispatch.PRECISIONS` for which it may be taken.
    """

    name: str
    why_not: Callable[[GemmProblem, DeviceInfo], str | None]
    tilings: Callable[[GemmProblem, DeviceInfo], Iterable[Choice]]
    made: Callable[..., Made]
    facing: Callable[[GemmProblem], Oriented] = along_rows
    precisions: tuple[str, ...] = NATIVE_PRECISIONS

    def choices(self, problem: GemmProblem, device: DeviceInfo) -> Iterable[Choice]:
        """What there is to choose among."""
        return self.tilings(self.facing(problem).problem, device)

    def seconds(self, problem: GemmProblem, device: DeviceInfo) -> float:
        """The estimated time of :meth:`plan`."""
        return least(self.choices(problem, device), device).work.seconds(device)

    def alternatives(self, problem: GemmProblem, device: DeviceInfo,
                     floor: float = 0.0) -> Iterator[Alternative]:
        """The plans on a device without a limit, each with its work; none does all multiply-adds in
        fewer clocks than ``floor``."""
        for choice in self.choices(problem, device):
            yield Alternative(self.name, choice.name or str(choice), (choice.work,),
                              partial(self.planned, problem, device, choice), floor)

    def plan(self, problem: GemmProblem, device: DeviceInfo, choice: Choice | None = None,
             **own: Any) -> Plan:
        """The plan of a problem within a device's limit of the workspace.

        Parameters
        ----------
        problem : GemmProblem
            What to compute; no extent of the result is 0.
        device : DeviceInfo
            The device to plan for.
        choice : Choice, optional
            Overrules that of the least estimated time.
        **own
            What the family's ``made`` takes beside these.

        Raises
        ------
        NoRoom
            If the limit leaves too little room.
        ValueError
            If the kernel does not take the problem, or for more blocks than a grid can have.
        """
        if refused := self.why_not(problem, device):
            raise ValueError(f"{self.name} cannot compute this: {refused}")
        return self.planned(problem, device,
                            choice or least(self.choices(problem, device), device), **own)

    def planned(self, problem: GemmProblem, device: DeviceInfo, choice: Choice,
                **own: Any) -> Plan:
        """The plan of a choice for a problem that :attr:`why_not` does not refuse."""
        made = self.made(self.facing(problem), device, choice, **own)
        seconds = None if choice.work is UNCOUNTED else choice.work.seconds(device)
        return Plan(problem, device, self.name, made.config or choice, made.launches,
                    made.workspace_bytes, made.reason, seconds, fallback=made.fallback)
