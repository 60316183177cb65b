"""What runs plans on arrays of one library. There are two engines: the emulator on NumPy arrays here, the GPU on CuPy arrays in
``_cupy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..planning.plan import Plan
from ..planning.problem import H200, CopyProblem, DeviceInfo, GemmProblem, ReductionProblem
from .counters import tally
from .limits import limited
from .memory import Memory, without_imaginary_part

__all__ = ["EMULATOR", "Emulator", "Engine", "plan_for"]

_ALIGNMENT = 16


class Engine(Protocol):
    """Arrays of one library, and the means to run plans on them."""

    def memory(self, x: Any) -> Memory:
        """Where the elements of an array lie."""

    def device(self, x: Any) -> DeviceInfo:
        """What the array's device is to planning."""

    def empty(self, like: Memory) -> Any:
        """A new array, aligned to 16 bytes, with the shape, strides and dtype of ``like``."""

    def assign(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` with any cast."""

    def run(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Run a plan on arrays by role, with its scalars, and the numbers of an epilogue by role."""

    def count(self, function: str, group: str, detail: str) -> None:
        """Advance a counter of a function."""

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Run a plan for many problems: its table, and the arrays that the addresses in it belong to."""


def plan_for(problem: GemmProblem | CopyProblem | ReductionProblem, device: DeviceInfo) -> Plan:
    """The plan for a problem on a device; planning is imported by the first call."""
    from ..planning import plan_copy, plan_gemm, plan_reduction

    if isinstance(problem, GemmProblem):
        return plan_gemm(problem, device)
    return plan_copy(problem, device) if isinstance(problem, CopyProblem) else plan_reduction(problem, device)


class Emulator:
    """NumPy arrays, and the generated kernels on the CPU. Plans are made for an H200."""

    def memory(self, x: np.ndarray) -> Memory:
        """Where the elements of an array lie."""
        return Memory(x.shape, x.strides, x.dtype, x.__array_interface__["data"][0], x.flags.writeable)

    def device(self, x: np.ndarray) -> DeviceInfo:
        """The device that is emulated."""
        return limited(H200)

    def empty(self, like: Memory) -> np.ndarray:
        """A new array, aligned to 16 bytes."""
        new = np.ndarray(like.shape, like.dtype, strides=like.strides)
        if self.memory(new).address % _ALIGNMENT == 0:
            return new
        buffer = np.empty(new.nbytes + _ALIGNMENT, np.uint8)
        return np.ndarray(like.shape, like.dtype, buffer, -self.memory(buffer).address % _ALIGNMENT, like.strides)

    def assign(self, dst: np.ndarray, src: np.ndarray) -> None:
        """``dst[...] = src`` with any cast."""
        np.copyto(dst, without_imaginary_part(src, dst.dtype), casting="unsafe")

    def run(self, plan: Plan, arrays: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Run a plan in the emulator."""
        from .. import emulator

        emulator.run(plan, arrays, alpha, beta, numbers=numbers)

    def count(self, function: str, group: str, detail: str) -> None:
        """Advance a counter of a function."""
        tally(function, group, detail).tick()

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[np.ndarray]) -> None:
        """Run a plan for many problems in the emulator."""
        from .. import emulator

        emulator.run(plan, {"table": table}, reached=[x for x in reached if x.size])


EMULATOR = Emulator()
