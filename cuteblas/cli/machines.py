"""The two machines that the commands measure on: NumPy on this CPU, and CuPy on the current GPU."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np

__all__ = ["Comparison", "Gpu", "Host", "Machine", "compare", "versions"]

_LEAST_INTERVAL = 3e-4          # seconds: shorter calls are timed several at once
_MOST_CALLS = 20
_FILLER_BYTES = 1 << 30


class Machine(Protocol):
    """Where arrays live, what a user has there today, and a clock."""

    name: str
    rival: Any
    rival_name: str

    def put(self, x: np.ndarray) -> Any:
        """An array of this machine with the elements and the order of ``x``."""

    def get(self, x: Any) -> np.ndarray:
        """The array on the host."""

    def interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds for that many calls in a row."""


class Host:
    """NumPy on this CPU."""

    name = "NumPy's BLAS on this CPU"
    rival: Any = np
    rival_name = "numpy"

    def put(self, x: np.ndarray) -> np.ndarray:
        """The array itself."""
        return x

    def get(self, x: np.ndarray) -> np.ndarray:
        """The array itself."""
        return np.asarray(x)

    def interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds by the wall clock."""
        start = perf_counter()
        for _ in range(times):
            call()
        return perf_counter() - start


class Gpu:
    """CuPy on the current device."""

    rival_name = "cupy"

    def __init__(self) -> None:
        import cupy

        from ..runtime import device_info

        self.rival: Any = cupy
        self.name = device_info().name
        free, _ = cupy.cuda.runtime.memGetInfo()
        self._filler = cupy.empty(min(_FILLER_BYTES, free // 8), cupy.uint8)

    def put(self, x: np.ndarray) -> Any:
        """A copy on the device in the order of ``x``."""
        return self.rival.asarray(x, order="F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C")

    def get(self, x: Any) -> np.ndarray:
        """A copy on the host."""
        return self.rival.asnumpy(x)

    def interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds between two events around the calls.

        A long memset before the first event keeps the device busy while the host puts everything into the queue, so that no gap
        between launches is counted; it also empties the L2 cache.
        """
        cuda = self.rival.cuda
        start, stop = cuda.Event(), cuda.Event()
        self._filler.data.memset_async(0, self._filler.nbytes, cuda.get_current_stream())
        start.record()
        for _ in range(times):
            call()
        stop.record()
        stop.synchronize()
        return cuda.get_elapsed_time(start, stop) * 1e-3

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        self.rival.cuda.get_current_stream().synchronize()


@dataclass(frozen=True)
class Comparison:
    """Median seconds of a call of ours and of what users have today, taken in turns."""

    ours: float
    rival: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.rival / self.ours


def compare(machine: Machine, ours: Callable[[], Any], rival: Callable[[], Any], repeats: int, least: float = _LEAST_INTERVAL) -> Comparison:
    """Time two calls side by side.

    Both are called once before, to compile and to warm up. Then they take turns, so that both see the same clocks; calls shorter than
    ``least`` seconds are timed several at once.
    """
    calls = ours, rival
    for call in calls:
        machine.interval(call, 1)
    times = [min(_MOST_CALLS, max(1, round(least / max(machine.interval(call, 1), 1e-9)))) for call in calls]
    taken = [[machine.interval(call, n) / n for call, n in zip(calls, times, strict=True)] for _ in range(repeats)]
    return Comparison(*(median(column) for column in zip(*taken, strict=True)))


def versions() -> dict[str, str]:
    """What measurements on this GPU depend on, by name."""
    import cupy

    import cuteblas

    from ..runtime import compiler_version, device_info

    runtime, device = cupy.cuda.runtime, device_info()
    cublas = cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())
    return {"device": device.name, "architecture": device.arch, "driver": _cuda(runtime.driverGetVersion()),
            "cuda": _cuda(runtime.runtimeGetVersion()), "nvrtc": compiler_version(), "cublas": str(cublas), "cupy": cupy.__version__,
            "numpy": np.__version__, "cuteblas": cuteblas.__version__, "python": platform.python_version(), "system": platform.platform()}


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
