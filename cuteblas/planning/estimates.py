"""What a plan is expected to take: one place to ask.

Families that multiply have models of time by which they choose; a plan carries what they say. What is here of them is a comparison
with the floor. Copies and reductions choose by shape and have no model to choose by: they take their traffic, at the share of the
bandwidth of a device copy that kernels of their kind reached on an H200. How near all of this comes to measurements stands in
docs/performance/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ..kernels.copy.permute import CopyConfig
from .floors import Floor, compulsory_bytes, floor_of
from .problem import CopyProblem, DeviceInfo, ReductionProblem

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Estimate", "casting_seconds", "estimate", "moving_seconds", "touched_bytes"]

_START_SECONDS = 2e-6                # of a kernel that moves: to start and to end
_SECTOR = 32                         # bytes
_PRODUCT_SHARE = 0.73                # of the bandwidth of a device copy: what products that memory bounds reach
_ACCESSES = 3.0                      # of a multiprocessor in a clock: reads and writes of single elements
_SHORT_SECONDS, _HALF = 3e-5, 0.5    # what takes no longer and is not half its floor waits: for launches, for the last blocks

# Of the bandwidth of a device copy, by bytes of an element (1, 2, 4, 8, 16): medians of docs/performance/data/h200-transpose*.json
# and h200-bench.json.
_SHARES: dict[str, tuple[float, ...]] = {
    "CopyConfig": (0.9, 0.9, 0.95, 0.95, 0.95),
    "RaggedCopyConfig": (0.8, 0.85, 0.9, 0.9, 0.9),
    "TransposeConfig": (0.89, 0.91, 0.92, 0.94, 0.94),
    "RaggedConfig": (0.77, 0.84, 0.91, 0.93, 0.93),
    "ShortRowsConfig": (0.74, 0.85, 0.94, 0.94, 0.94),
    "FromShortRowsConfig": (0.84, 0.92, 0.94, 0.94, 0.94),
    "InPlaceConfig": (0.76, 0.8, 0.83, 0.85, 0.87),
    "RaggedInPlaceConfig": (0.6, 0.7, 0.8, 0.82, 0.82),
    "RearrangeConfig": (0.84, 0.88, 0.9, 0.91, 0.91),
    "ReductionChoice": (0.5, 0.71, 0.91, 0.96, 0.96),
}
# Of named kernels, by what their names contain: h200-transpose-variants.json, for elements of 4 bytes.
_NAMED = {"naive_read": 0.13, "naive_write": 0.44, "conflict": 0.39, "padded": 0.85, "swizzled": 0.85, "tma_": 0.88}


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
    least = 0.0 if isinstance(plan.problem, (CopyProblem, ReductionProblem)) else floor.traffic_s / _PRODUCT_SHARE
    seconds = max(plan.seconds, floor.arithmetic_s, least)
    waits = seconds <= _SHORT_SECONDS and floor.seconds < _HALF * seconds
    return Estimate(seconds, floor, "latency" if waits else floor.limit)


def moving_seconds(problem: CopyProblem | ReductionProblem, device: DeviceInfo, config: object, launches: int = 1) -> float:
    """The expected time of a copy or a reduction by kernels of a configuration."""
    if isinstance(problem, CopyProblem):
        item = problem.itemsize
        moved = sum(touched_bytes(problem.shape, strides, item) for strides in (problem.src_strides, problem.dst_strides))
        named = problem.variant or ""
    else:
        from ..codegen.dtypes import dtype

        item, moved, named = dtype(problem.x.dtype).bytes, compulsory_bytes(problem), ""
    shares = _SHARES.get(type(config).__name__, _SHARES["CopyConfig"])
    share = next((part for name, part in _NAMED.items() if name in named), shares[item.bit_length() - 1])
    seconds = moved / (share * device.bandwidth)
    if isinstance(config, CopyConfig) and isinstance(problem, CopyProblem):
        words = prod(problem.shape) * item // config.word
        seconds = max(seconds, words / (_ACCESSES * device.multiprocessors * device.clock_hz))
    return launches * _START_SECONDS + seconds


def casting_seconds(nbytes: int, device: DeviceInfo) -> float:
    """The expected time of an elementwise kernel that reads and writes so many bytes."""
    return _START_SECONDS + nbytes / (_SHARES["CopyConfig"][0] * device.bandwidth)


def touched_bytes(shape: Sequence[int], strides: Sequence[int], item: int) -> int:
    """Bytes of the sectors of 32 that elements lie in: what memory moves. Elements that broadcasting repeats count once.

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
