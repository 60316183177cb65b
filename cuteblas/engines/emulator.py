"""The generated kernels in the emulator, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .memory import Memory, without_imaginary_part
from .settings import limited

if TYPE_CHECKING:
    from ..planning.plan import Plan
    from ..planning.problem import DeviceInfo

__all__ = ["EMULATOR", "HOST_CUDA", "NUMPY", "REHEARSAL", "Emulator"]

_ALIGNMENT = 16


class Emulator:
    """NumPy arrays, and the generated kernels on the CPU; plans are made for an H200."""

    on_host, kernels, moves, runs = True, True, False, True
    out_of_memory: Any = ()

    def memory(self, x: Any) -> Memory:
        return Memory(x.shape, x.strides, x.dtype, x.__array_interface__["data"][0],
                      x.flags.writeable)

    def device(self, x: np.ndarray) -> DeviceInfo:
        from ..planning.problem import H200

        return limited(H200)

    def on_device_of(self, x: np.ndarray) -> AbstractContextManager[None]:
        return nullcontext()

    def plan(self, problem: Any, x: np.ndarray) -> Plan:
        from .tuning import plan_for

        return plan_for(problem, self.device(x))

    def empty(self, like: Memory) -> np.ndarray:
        new = np.ndarray(like.shape, like.dtype, strides=like.strides)
        if self.memory(new).address % _ALIGNMENT == 0:
            return new
        buffer = np.empty(new.nbytes + _ALIGNMENT, np.uint8)
        return np.ndarray(like.shape, like.dtype, buffer, -self.memory(buffer).address % _ALIGNMENT,
                          like.strides)

    def view(self, x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """A view from the first element of ``x``, with strides in bytes."""
        return as_strided(x, shape, strides)

    def number(self, value: np.ndarray) -> np.ndarray:
        return value

    def identity(self, extent: int, dtype: np.dtype) -> np.ndarray:
        return np.eye(extent, dtype=dtype)

    def run(self, plan: Plan, arrays: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Run a plan on arrays by role, with its scalars and an epilogue's numbers."""
        from .. import emulator

        emulator.run(plan, arrays, alpha, beta, numbers=numbers)

    def seconds(self, plan: Plan, arrays: Mapping[str, np.ndarray], *scalars: Any) -> float | None:
        """``None``: the emulator's time says nothing of a GPU's."""
        return None

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[np.ndarray]) -> None:
        from .. import emulator

        emulator.run(plan, {"table": table}, reached=[x for x in reached if x.size])

    def cast(self, dst: np.ndarray, src: np.ndarray) -> None:
        np.copyto(dst, without_imaginary_part(src, dst.dtype), casting="unsafe")

    def multiply(self, x: np.ndarray, y: Any, out: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            np.multiply(x, y, out=out, casting="unsafe")

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.inv(x)


class _Rehearsal(Emulator):
    """NumPy arrays, and plans that do not run, so that an algorithm by name is refused wherever a
    kernel would refuse it."""

    runs = False

    def empty(self, like: Memory) -> np.ndarray:
        """A read-only element that stands for all of an array: there is no memory for others."""
        return as_strided(super().empty(Memory((), (), like.dtype)), like.shape, like.strides,
                          writeable=False)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return self.empty(Memory(x.shape, x.strides,
                                 np.linalg.inv(np.ones((1, 1), x.dtype)).dtype))

    def cast(self, dst: np.ndarray, src: np.ndarray) -> None:
        """Nothing."""

    def multiply(self, x: np.ndarray, y: Any, out: np.ndarray) -> None:
        """Nothing."""


class _Numpy(Emulator):
    """NumPy arrays of calls that NumPy computes."""

    kernels = False


class _HostCuda(_Numpy):
    """NumPy arrays of calls that may run on the GPU."""

    moves = True


EMULATOR, REHEARSAL, NUMPY, HOST_CUDA = Emulator(), _Rehearsal(), _Numpy(), _HostCuda()
