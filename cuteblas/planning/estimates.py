"""The expected time of a plan.

Families that multiply or copy have models of time by which they choose; a plan carries what they say. What is here of them is a
comparison with the floor. Reductions and named copies have no model to choose by: they take their traffic, at the share of the
bandwidth of a device copy that kernels of their kind reach. How near all of this comes to measurements stands in
docs/performance/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from .floors import Floor, compulsory_bytes, floor_of
from .problem import CopyProblem, DeviceInfo, ReductionProblem

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Estimate", "casting_seconds", "estimate", "named_seconds", "reducing_seconds", "touched_bytes"]

_SECTOR = 32                         # bytes
_SHORT, _HALF = 30, 0.5              # launches; what takes no longer and is not half its floor waits for others, or the last blocks

# What the names of kernels contain of which the share of the bandwidth of a device copy was measured.
_NAMED = ("naive_read", "naive_write", "conflict", "padded", "swizzled", "tma_")


@dataclass(frozen=True)
class Estimate:
    """What a plan is expected to take.

    Attributes
    ----------
    seconds : float or None
        Of all launches; ``None`` where a caller overruled the family's choice and there is no model.
    floor : Floor
        The least that any kernel takes.
    bound : {"arithmetic", "memory traffic", "latency", "nothing"}
        What the time is spent on: the larger part of the floor, or, of short calls, waiting: for launches, for memory, for the
        last blocks.
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


def named_seconds(name: str, problem: CopyProblem, device: DeviceInfo) -> float:
    """The expected time of a copy by a named kernel."""
    nbytes = sum(touched_bytes(problem.shape, strides, problem.itemsize) for strides in (problem.src_strides, problem.dst_strides))
    return _moving(nbytes, f"named {next(own for own in _NAMED if own in name)}", device)


def reducing_seconds(problem: ReductionProblem, device: DeviceInfo, launches: int) -> float:
    """The expected time of a reduction."""
    from ..codegen.dtypes import dtype

    return _moving(compulsory_bytes(problem), f"reductions of {dtype(problem.x.dtype).bytes} bytes", device, launches)


def _moving(nbytes: float, kernel: str, device: DeviceInfo, launches: int = 1) -> float:
    costs = device.fitted["traffic"]
    return device.seconds(launches=launches * costs["start: launches"], nbytes=nbytes / costs[f"{kernel}: share of bandwidth"])


def casting_seconds(nbytes: int, device: DeviceInfo) -> float:
    """The expected time of an elementwise kernel that reads and writes that many bytes."""
    costs = device.fitted["traffic"]
    return device.seconds(0, costs["start: launches"], nbytes / costs["elementwise: share of bandwidth"])


def touched_bytes(shape: Sequence[int], strides: Sequence[int], item: int) -> int:
    """Bytes of the sectors of 32 that hold elements: what memory moves. Elements that broadcasting repeats count once.

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
    run = item                                         # bytes from the first to the last of a run without unused sectors
    while modes and modes[0][0] <= max(run, _SECTOR):
        stride, extent = modes.pop(0)
        run += stride * (extent - 1)
    whole = run if not modes else -(-run // _SECTOR) * _SECTOR
    return whole * prod(n for _s, n in modes)
