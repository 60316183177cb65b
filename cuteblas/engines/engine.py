"""What runs plans on arrays of one library: the emulator on NumPy arrays, CUDA on CuPy arrays.

An engine takes steps, plans nothing and records nothing; :mod:`~cuteblas.engines.execution` says
which steps a call consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ..planning.plan import Plan
from ..planning.problem import DeviceInfo
from .dispatch import kind_of
from .emulator import EMULATOR
from .memory import Memory

__all__ = ["Engine", "engine_of"]


class Engine(Protocol):
    """Arrays of one library, and the means to run plans on them.

    Attributes
    ----------
    on_host : bool
        Whether arrays are NumPy's, whose loops take elements of any alignment and keep subnormal
        numbers; CuPy's do neither.
    moves : bool
        Whether calls take NumPy arrays to the GPU, where :data:`~cuteblas.engines.cuda.CUDA` takes
        their steps.
    runs : bool
        Whether plans run; otherwise nothing is computed, counted or recorded.
    out_of_memory : exception type, or () for none
        What :meth:`run` raises if there is no memory for a workspace.
    """

    on_host: bool
    moves: bool
    runs: bool
    out_of_memory: Any

    def memory(self, x: Any) -> Memory:
        """The memory of an array."""

    def device(self, x: Any) -> DeviceInfo:
        """What the array's device is to planning."""

    def on_device_of(self, x: Any) -> AbstractContextManager[None]:
        """Make the device of an array the current one."""

    def plan(self, problem: Any, x: Any, make: Callable[[Any, DeviceInfo], Plan]) -> Plan:
        """The plan that a planner makes of a problem on the device of an array."""

    def empty(self, like: Memory) -> Any:
        """A new array, aligned to 16 bytes, with the shape, strides and dtype of ``like``."""

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view that begins at the first element of ``x``, with these strides in bytes."""

    def number(self, value: np.ndarray) -> Any:
        """A 0-d array with the element of a 0-d NumPy array, on the current device."""

    def identity(self, extent: int, dtype: np.dtype) -> Any:
        """The unit matrix, on the current device."""

    def run(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Run a plan on arrays by role, with its scalars, and the numbers of an epilogue by
        role."""

    def seconds(self, plan: Plan, arrays: Mapping[str, Any], *scalars: Any) -> float | None:
        """The time of a plan on what :meth:`run` gets, which stays as it is.

        ``None`` where nothing can be timed, as while a CUDA graph is captured.
        """

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Run a plan for many problems: its table, and the arrays that the addresses in it belong
        to."""

    def cast(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` with any cast, by the library."""

    def multiply(self, x: Any, y: Any, out: Any) -> None:
        """``out[...] = x * y``, by the library."""

    def inverse(self, x: Any) -> Any:
        """The inverses of square matrices, by the library."""


def engine_of(x: Any) -> Engine:
    """What runs kernels on an array."""
    if kind_of(x) == "cupy":
        from .cuda import CUDA

        return CUDA
    return EMULATOR
