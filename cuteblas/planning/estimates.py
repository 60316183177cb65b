"""The expected time of a plan.

A plan carries what its family says: what it does, counted, times the numbers of a card
(:mod:`~cuteblas.planning.cost.work`). What is here of it is a comparison with the floor. How near
all of this comes to measurements stands in docs/performance/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from .floors import Floor, floor_of
from .problem import DeviceInfo, ReductionProblem

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Estimate", "casting_seconds", "estimate", "touched_bytes"]

_SECTOR = 32             # bytes
_SHORT, _HALF = 30, 0.5  # launches; what takes no longer and is not half its floor waits for
                         # others, or the last blocks



@dataclass(frozen=True)
class Estimate:
    """What a plan is expected to take.

    Attributes
    ----------
    seconds : float or None
        Of all launches; ``None`` where a caller overruled the family's choice and there is no
        model.
    floor : Floor
        The least that any kernel takes.
    bound : {"arithmetic", "memory traffic", "latency", "nothing"}
        What the time is spent on: the larger part of the floor, or, of short calls, waiting: for
        launches, for memory, for the last blocks.
    """

    seconds: float | None
    floor: Floor
    bound: str


def estimate(plan: Plan) -> Estimate:
    """What a plan is expected to take: what its family says, and no less than the floor."""
    floor = floor_of(plan.problem, plan.family, plan.device)
    if plan.family == "nothing":
        return Estimate(0.0, floor, "nothing")
    if plan.seconds is None:
        return Estimate(None, floor, floor.limit)
    # Arrays that are in L2 may be read faster, those of a first call not.
    least = 0.0 if isinstance(plan.problem, ReductionProblem) else floor.traffic_s
    seconds = max(plan.seconds, floor.arithmetic_s, least)
    waits = seconds <= plan.device.seconds(launches=_SHORT) and floor.seconds < _HALF * seconds
    return Estimate(seconds, floor, "latency" if waits else floor.limit)


def casting_seconds(nbytes: int, device: DeviceInfo) -> float:
    """The expected time of an elementwise kernel that reads and writes that many bytes."""
    memory = device.fitted["memory"]
    return device.seconds(0, 2, nbytes / memory["share of bandwidth"])


def touched_bytes(shape: Sequence[int], strides: Sequence[int], item: int) -> int:
    """Bytes of the sectors of 32 that hold elements: what memory moves. Elements that broadcasting
    repeats count once.

    Parameters
    ----------
    shape, strides : sequence of int
        Extents, and strides in elements.
    item : int
        Bytes of an element.
    """
    if 0 in shape:
        return 0
    modes = sorted((abs(s) * item, n) for n, s in zip(shape, strides, strict=True) if s and n > 1)
    run = item                    # bytes from the first to the last of a run without unused sectors
    while modes and modes[0][0] <= max(run, _SECTOR):
        stride, extent = modes.pop(0)
        run += stride * (extent - 1)
    whole = run if not modes else -(-run // _SECTOR) * _SECTOR
    return whole * prod(n for _s, n in modes)
