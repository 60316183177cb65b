"""The least time that a device needs for a problem: the larger of its arithmetic and its compulsory traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from .problem import ContractionProblem, CopyProblem, DeviceInfo, GemmProblem, GroupedProblem, Problem, ReductionProblem

__all__ = ["Floor", "compulsory_bytes", "floor_of", "multiply_adds_per_clock"]

# Multiply-adds per clock and multiprocessor in float32, float64 and 32-bit integers, by compute capability
# (CUDA C++ Programming Guide, "Arithmetic Instructions").
_LANES = {"sm_70": (64, 32, 64), "sm_72": (64, 32, 64), "sm_75": (64, 2, 64), "sm_80": (64, 32, 64), "sm_86": (128, 2, 64),
          "sm_87": (128, 2, 64), "sm_89": (128, 2, 64), "sm_90": (128, 64, 64), "sm_100": (128, 64, 64), "sm_103": (128, 2, 64),
          "sm_120": (128, 2, 64), "sm_121": (128, 2, 64)}
# Of the tensor cores of sm_90 (NVIDIA H100 datasheet: 989 TFLOP/s dense in float16, half of it in tf32, 67 in float64).
_TENSOR_CORES = {"float16": 2048, "bfloat16": 2048, "float32": 1024, "complex64": 1024, "float64": 128, "complex128": 128,
                 "int8": 4096, "uint8": 4096}
_SIMT_FAMILIES = frozenset({"gemm_simt"})


@dataclass(frozen=True)
class Floor:
    """The least time for a problem.

    Attributes
    ----------
    flops, bytes : int
        Operations, and bytes that must be read and written once.
    arithmetic_s, traffic_s : float
        Seconds for each at the rate of the unit that is used and of a large device copy.
    """

    flops: int
    bytes: int
    arithmetic_s: float
    traffic_s: float

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.arithmetic_s, self.traffic_s)

    @property
    def limit(self) -> str:
        """Which of the two it is."""
        return "arithmetic" if self.arithmetic_s > self.traffic_s else "memory traffic"


def multiply_adds_per_clock(family: str, dtype: str, arch: str) -> int:
    """Real multiply-adds per clock and multiprocessor of the unit that a kernel family uses for a type."""
    if family not in _SIMT_FAMILIES:
        return _TENSOR_CORES.get(dtype, _TENSOR_CORES["float16"])
    single, double, integer = _LANES.get(arch.rstrip("af"), _LANES["sm_90"])
    if dtype in ("float64", "complex128"):
        return double
    if dtype in ("int64", "uint64"):
        return integer // 4             # four 32-bit multiply-adds
    return integer if "int" in dtype or dtype == "bool" else single


def compulsory_bytes(problem: Problem) -> int:
    """Bytes that must move between memory and the multiprocessors: every element once, elements that broadcasting repeats too."""
    if isinstance(problem, CopyProblem):
        read = prod(n for n, stride in zip(problem.shape, problem.src_strides, strict=True) if stride or n == 0)
        return (read + prod(problem.shape)) * problem.itemsize
    if isinstance(problem, GroupedProblem):
        return sum(map(compulsory_bytes, problem.problems))
    return sum(prod(n for n, stride in modes if stride or n == 0) * _itemsize(dtype) for dtype, modes in _operands(problem))


def _operands(problem: GemmProblem | ContractionProblem | ReductionProblem) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Element type, and extent and stride of every mode, of every operand."""
    if isinstance(problem, GemmProblem):
        m, n, k = problem.m, problem.n, problem.k
        for operand, extents in ((problem.a, (m, k)), (problem.b, (n, k)), (problem.c, (m, n))):
            yield operand.dtype, list(zip((*extents, *problem.batch), (*operand.strides, *operand.batch_strides), strict=True))
    elif isinstance(problem, ReductionProblem):
        for operand in (problem.x, problem.r):
            strides = *operand.strides, *operand.batch_strides
            yield operand.dtype, list(zip((problem.i, problem.j, *problem.batch), strides, strict=True))
    else:
        m_modes, n_modes, k_modes = problem.m, problem.n, problem.k
        yield problem.a.dtype, [(x[0], x[1]) for x in (*m_modes, *k_modes, *problem.batch)]
        yield problem.b.dtype, [*((x[0], x[1]) for x in n_modes), *((x[0], x[2]) for x in (*k_modes, *problem.batch))]
        yield problem.c.dtype, [*((x[0], x[2]) for x in (*m_modes, *n_modes)), *((x[0], x[3]) for x in problem.batch)]


def _itemsize(dtype: str) -> int:
    from ..codegen.dtypes import dtype as element

    return element(dtype).bytes


def floor_of(problem: Problem, family: str, device: DeviceInfo) -> Floor:
    """The least time for a problem on a device with the unit that the kernel family uses."""
    moved = compulsory_bytes(problem)
    if isinstance(problem, (CopyProblem, ReductionProblem)):
        return Floor(0, moved, 0.0, moved / device.bandwidth)
    products = problem.problems if isinstance(problem, GroupedProblem) else (problem,)
    per_clock = device.multiprocessors * device.clock_hz
    seconds = sum(p.flops / (2 * multiply_adds_per_clock(family, p.a.dtype, device.arch) * per_clock) for p in products)
    return Floor(problem.flops, moved, seconds, moved / device.bandwidth)
