"""The least time of a problem, the expected time of a plan, and times and quantities as text.

The floor is the larger of arithmetic and compulsory traffic. How near estimates are to
measurements stands in docs/performance/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from .._dtypes import dtype as element
from .plan import Plan
from .problem import (
    ChainProblem,
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    GroupedProblem,
    Problem,
    ReductionProblem,
    Tensor,
)

# Multiply-adds per clock and multiprocessor in float32, float64 and 32-bit integers, by compute
# capability (CUDA C++ Programming Guide, "Arithmetic Instructions").
_LANES = {"sm_70": (64, 32, 64), "sm_72": (64, 32, 64), "sm_75": (64, 2, 64), "sm_80": (64, 32, 64),
          "sm_86": (128, 2, 64), "sm_87": (128, 2, 64), "sm_89": (128, 2, 64),
          "sm_90": (128, 64, 64), "sm_100": (128, 64, 128), "sm_103": (128, 2, 128),
          "sm_120": (128, 2, 128), "sm_121": (128, 2, 128)}
# The same of tensor cores in 16 bits, summed in float32, and in float64, by the datasheets: 312 and
# 19.5 TFLOP/s of an A100, 362 of an L40S, 989 and 67 of an H100, all dense. Others have half of it
# in tf32 and twice as much in int8. What mma.sync, which is all that runs here on sm_100, reaches
# of its 2250 is not documented: that of sm_80 is assumed.
_TENSOR_CORES = {"sm_70": (512, 0), "sm_75": (512, 0), "sm_80": (1024, 64), "sm_86": (512, 0),
                 "sm_89": (512, 0), "sm_90": (2048, 128), "sm_100": (1024, 64), "sm_120": (512, 0)}
# GeForce cards sum in float32 at half the rate (whitepapers of GA102 and AD102: 71 TFLOP/s of an
# RTX 3090, 165 of an RTX 4090).
_HALVED = "GeForce"
_SIMT_FAMILIES = frozenset({"gemm_simt", "gemm_thin", "gemm_outer", "gemm_batched", "gemm_tutorial",
                            "gett"})
# Products of float16 or bfloat16 in place of one of float32.
_PRODUCTS = {"gemm_split": 3, "bf16x6": 6, "gemm_skinny": 6}
_MODULI = 14  # products of bytes for one of float64 by residues; a complex one takes three, not
              # four
_PACKED = 4   # products of bytes that dp4a adds, in the named kernels


@dataclass(frozen=True)
class Floor:
    """The least time for a problem: operations, and bytes that move once, at a device's rates."""

    flops: int
    bytes: int
    arithmetic_s: float
    traffic_s: float

    @property
    def seconds(self) -> float:
        return max(self.arithmetic_s, self.traffic_s)

    @property
    def limit(self) -> str:
        return "arithmetic" if self.arithmetic_s > self.traffic_s else "memory traffic"


def multiply_adds_per_clock(family: str, dtype: str, device: DeviceInfo) -> float:
    """Real multiply-adds per clock and multiprocessor of a kernel family's unit."""
    arch, kind = device.arch.rstrip("af"), element(dtype)
    if family in _SIMT_FAMILIES:
        single, double, integer = _LANES.get(arch, _LANES["sm_90"])
        if kind.kind in "fc":
            return double if kind.part.bytes == 8 else single
        return integer / 4 if kind.bytes == 8 else integer          # four 32-bit multiply-adds
    half, double = _TENSOR_CORES.get(arch, _TENSOR_CORES["sm_80"])
    if family == "gemm_modular":
        return 2 * half / _MODULI * (4 / 3 if kind.is_complex else 1)
    if kind.kind in "iu" and family == "gemm_wgmma":                # products of bytes
        return 4 * half / (kind.bytes * (kind.bytes + 1))
    if kind.part.bytes == 8:
        return double or _LANES.get(arch, _LANES["sm_90"])[1]
    if kind.bytes == 1:
        return 2 * half
    half //= 2 if _HALVED in device.name else 1
    if family in _PRODUCTS:
        return half / _PRODUCTS[family]
    return half / 2 if kind.part.bytes == 4 else half


def _rate(p: GemmProblem | ContractionProblem, family: str, device: DeviceInfo) -> float:
    if p.precision == "bf16x6":
        family = p.precision
    packed = _PACKED if family == "gemm_simt" and p.variant and p.a.dtype == "int8" else 1
    return packed * multiply_adds_per_clock(family, p.a.dtype, device)


@lru_cache(maxsize=256)
def compulsory_bytes(problem: Problem) -> int:
    """Bytes that must move: every element once, however broadcast, but not an epilogue's."""
    return sum(prod(n for n, stride in x.modes if stride or n == 0) * x.item
               for x in problem.tensors)


def floor_of(problem: Problem, family: str, device: DeviceInfo) -> Floor:
    """The least time for a problem on a device with the unit that the kernel family uses."""
    moved = compulsory_bytes(problem)
    if isinstance(problem, (CopyProblem, ReductionProblem)):
        return Floor(0, moved, 0.0, moved / device.bandwidth)
    if isinstance(problem, ChainProblem):
        parts = [floor_of(p, family, device) for p in problem.problems]
        return Floor(problem.flops, moved, sum(x.arithmetic_s for x in parts),
                     sum(x.traffic_s for x in parts))
    products = problem.problems if isinstance(problem, GroupedProblem) else (problem,)
    per_clock = device.multiprocessors * device.clock_hz
    seconds = sum(p.flops / (2 * _rate(p, family, device) * per_clock) for p in products)
    return Floor(problem.flops, moved, seconds, moved / device.bandwidth)


_PREFIXES = ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"),
             (-6, "u"), (-9, "n"), (-12, "p"))


def quantity(value: float, unit: str) -> str:
    """A quantity with three digits and the prefix of its unit: 2.75 ms, 137 Gflop."""
    rounded = float(f"{value:.3g}")
    for exponent, prefix in _PREFIXES:
        if abs(rounded) >= 10.0**exponent:
            number = rounded / 10.0**exponent
            return f"{number:.0f} {prefix}{unit}" if abs(number) >= 1000 else f"{number:.3g} {prefix}{unit}"
    return f"{rounded:.3g} {unit}"


def duration(seconds: float) -> str:
    """A time: from two minutes on in minutes, hours and days."""
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            number = float(f"{seconds / length:.3g}")
            return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"
    return quantity(seconds, "s")


_SECTOR = 32             # bytes
_SHORT, _HALF = 30, 0.5  # launches; what takes no longer and is not half its floor waits for
                         # others, or the last blocks



@dataclass(frozen=True)
class Estimate:
    """The expected time of a plan, ``None`` where a caller overruled the family's choice, and its
    bound: the larger part of the floor or, of short calls, latency."""

    seconds: float | None
    floor: Floor
    bound: str


def estimate(plan: Plan) -> Estimate:
    """The expected time of a plan: its family's, and no less than the floor."""
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
    memory = device.fitted["memory"]
    return device.seconds(0, 2, nbytes / memory["share of bandwidth"])


def touched_bytes(x: Tensor) -> int:
    """Bytes of the sectors that hold elements; those that broadcasting repeats count once."""
    if any(n == 0 for n, _s in x.modes):
        return 0
    modes = sorted((abs(s) * x.item, n) for n, s in x.modes if s and n > 1)
    run = x.item                  # bytes from the first to the last of a run without unused sectors
    while modes and modes[0][0] <= max(run, _SECTOR):
        stride, extent = modes.pop(0)
        run += stride * (extent - 1)
    whole = run if not modes else -(-run // _SECTOR) * _SECTOR
    return whole * prod(n for _s, n in modes)
