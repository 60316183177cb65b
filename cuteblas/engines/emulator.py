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

__all__ = ["EMULATOR", "HOST_CUDA", "REHEARSAL", "Emulator"]

_ALIGNMENT = 16


class Emulator:
    """NumPy arrays, and the generated kernels on the CPU. Plans are made for an H200."""

    on_host, moves, runs = True, False, True
    out_of_memory: Any = ()

    def memory(self, x: Any) -> Memory:
        """The memory of an array."""
        return Memory(x.shape, x.strides, x.dtype, x.__array_interface__["data"][0],
                      x.flags.writeable)

    def device(self, x: np.ndarray) -> DeviceInfo:
        """The device that is emulated."""
        from ..planning.problem import H200

        return limited(H200)

    def on_device_of(self, x: np.ndarray) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()

    def plan(self, problem: Any, x: np.ndarray) -> Plan:
        """The plan for a problem."""
        from .tuning import plan_for

        return plan_for(problem, self.device(x))

    def empty(self, like: Memory) -> np.ndarray:
        """A new array, aligned to 16 bytes."""
        new = np.ndarray(like.shape, like.dtype, strides=like.strides)
        if self.memory(new).address % _ALIGNMENT == 0:
            return new
        buffer = np.empty(new.nbytes + _ALIGNMENT, np.uint8)
        return np.ndarray(like.shape, like.dtype, buffer, -self.memory(buffer).address % _ALIGNMENT,
                          like.strides)

    def view(self, x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """A view that begins at the first element of ``x``, with these strides in bytes."""
        return as_strided(x, shape, strides)

    def number(self, value: np.ndarray) -> np.ndarray:
        """A 0-d array with the element of one: itself."""
        return value

    def identity(self, extent: int, dtype: np.dtype) -> np.ndarray:
        """The unit matrix."""
        return np.eye(extent, dtype=dtype)

    def run(self, plan: Plan, arrays: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Run a plan on arrays by role, with its scalars, and the numbers of an epilogue by
        role."""
        from .. import emulator

        emulator.run(plan, arrays, alpha, beta, numbers=numbers)

    def seconds(self, plan: Plan, arrays: Mapping[str, np.ndarray], *scalars: Any) -> float | None:
        """None: the emulator's time says nothing of a GPU's."""
        return None

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[np.ndarray]) -> None:
        """Run a plan for many problems: its table, and the arrays that the addresses in it belong
        to."""
        from .. import emulator

        emulator.run(plan, {"table": table}, reached=[x for x in reached if x.size])

    def cast(self, dst: np.ndarray, src: np.ndarray) -> None:
        """``dst[...] = src`` with any cast, by NumPy."""
        np.copyto(dst, without_imaginary_part(src, dst.dtype), casting="unsafe")

    def multiply(self, x: np.ndarray, y: Any, out: np.ndarray) -> None:
        """``out[...] = x * y`` by NumPy."""
        with np.errstate(all="ignore"):
            np.multiply(x, y, out=out, casting="unsafe")

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """The inverses of square matrices by NumPy."""
        return np.linalg.inv(x)


class _Rehearsal(Emulator):
    """NumPy arrays, and plans that are not run: calls that NumPy computes are planned as kernels
    would run them, so that an algorithm by name is refused wherever a kernel would refuse it. New
    arrays have one element."""

    runs = False

    def empty(self, like: Memory) -> np.ndarray:
        """A read-only element that stands for all of an array: there is no memory for others."""
        return as_strided(super().empty(Memory((), (), like.dtype)), like.shape, like.strides,
                          writeable=False)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """What stands for inverses."""
        return self.empty(Memory(x.shape, x.strides,
                                 np.linalg.inv(np.ones((1, 1), x.dtype)).dtype))

    def cast(self, dst: np.ndarray, src: np.ndarray) -> None:
        """Nothing."""

    def multiply(self, x: np.ndarray, y: Any, out: np.ndarray) -> None:
        """Nothing."""


class _HostCuda(Emulator):
    """NumPy arrays of calls that may run on the GPU: see :mod:`~cuteblas.engines.host_cuda`."""

    moves = True


EMULATOR, REHEARSAL, HOST_CUDA = Emulator(), _Rehearsal(), _HostCuda()
