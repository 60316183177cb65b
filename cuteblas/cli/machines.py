"""What commands measure on: NumPy on this CPU, CuPy on the current GPU, random arrays."""

from __future__ import annotations

import platform
from collections.abc import Callable
from math import inf
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ..blas.types import dtype_named, kind_of_numbers
from ..engines.memory import Memory
from ..functions.gemm import new_matrices

_LEAST_INTERVAL = 3e-4          # seconds: of shorter calls, several are timed at once
_MOST_CALLS = 20
_FILLER_BYTES = 2 << 30
_CALLS_PER_FILL = 5            # calls that the host puts into the queue while the device fills that
_MOST_FILLS = 4                # after so many calls the queue stays full by itself


class Host:
    """NumPy on this CPU."""

    title = "NumPy"
    name = "NumPy's BLAS on this CPU"
    rival: Any = np
    get = staticmethod(np.asarray)

    def interval(self, call: Callable[[], Any], times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            call()
        return perf_counter() - start

    host_interval = interval


class Gpu:
    """CuPy on the current device."""

    title = "CuPy"

    def __init__(self) -> None:
        import cupy

        from ..runtime import device_info

        self.rival: Any = cupy
        self.get: Callable[[Any], np.ndarray] = cupy.asnumpy
        self.name = device_info().name
        free, _ = cupy.cuda.runtime.memGetInfo()
        self._filler = cupy.empty(min(_FILLER_BYTES, free // 8), cupy.uint8)

    def interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds between two events around the calls."""
        # Long memsets before the first event keep the device busy while the host queues
        # everything: no gap between launches counts, and the L2 cache is empty.
        cuda = self.rival.cuda
        start, stop = cuda.Event(), cuda.Event()
        for _ in range(min(-(-times // _CALLS_PER_FILL), _MOST_FILLS)):
            self._filler.data.memset_async(0, self._filler.nbytes, cuda.get_current_stream())
        start.record()
        for _ in range(times):
            call()
        stop.record()
        stop.synchronize()
        return cuda.get_elapsed_time(start, stop) * 1e-3

    def host_interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds of the host for these calls; the device starts idle and is not waited for."""
        self.rival.cuda.get_current_stream().synchronize()
        return Host().interval(call, times)


Machine = Gpu | Host


def torch_of(machine: Machine) -> Any:
    """torch with float32 as it is, where it is installed and has the GPU that is measured on."""
    if machine.rival is np:
        return None
    try:
        import torch
    except ImportError:
        return None
    torch.set_float32_matmul_precision("highest")
    return torch if torch.cuda.is_available() else None


def medians(machine: Machine, *calls: Callable[[], Any], repeats: int,
            seconds: float = inf) -> list[float]:
    """Median seconds of calls that are timed side by side, in turns of changing order."""
    # In a fixed order, one call would always come when the device has just slowed down for its
    # power limit (0.996 instead of 1.036 for one product at 8192 on an H200). There are fewer
    # repeats, at least one, if they take more than ``seconds``.
    for call in calls:
        machine.interval(call, 1)
    once = [max(machine.interval(call, 1), 1e-9) for call in calls]
    times = [max(1, min(_MOST_CALLS, round(_LEAST_INTERVAL / t))) for t in once]
    rounds = max(1, int(min(repeats, seconds / sum(once))))
    order = Random(0)
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for i in order.sample(range(len(calls)), len(calls)):
            taken[i].append(machine.interval(calls[i], times[i]) / times[i])
    return [median(each) for each in taken]


def versions() -> dict[str, str]:
    import cupy

    from ..runtime import compiler_version, device_info

    runtime, device = cupy.cuda.runtime, device_info()
    cublas = cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())
    return {
        "device": device.name,
        "architecture": device.arch,
        "driver": f"for CUDA {_cuda(runtime.driverGetVersion())}",
        "cuda": _cuda(runtime.runtimeGetVersion()),
        "nvrtc": compiler_version(),
        "cublas": str(cublas),
        "cupy": cupy.__version__,
        **host_versions(),
    }


def host_versions() -> dict[str, str]:
    import cuteblas

    return {
        "numpy": np.__version__,
        "cuteblas": cuteblas.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


# -- random arrays ---------------------------------------------------------------------------------
ADDRESS_BYTES = 16
"""The remainder of an address by this is kept."""

_PERIOD = (1 << 20) - 3                 # elements, then they repeat: a prime number, so rows differ
_TRUE = 0.1                             # of elements of bool


def random_elements(
    dtype: np.dtype, count: int = _PERIOD, seed: int = 0, below: int | None = None
) -> np.ndarray:
    """Normal numbers, integers of all values or from 0 on, or bool of which one in ten is true."""
    rng, kind = np.random.default_rng(seed), kind_of_numbers(dtype)
    if kind == "b":
        return rng.random(count) < _TRUE
    if kind in "iu" and below is None:
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    if kind in "iu":
        return rng.integers(0, below, count).astype(dtype)
    x = rng.standard_normal(count)
    return (x + 1j * rng.standard_normal(count) if kind == "c" else x).astype(dtype)


def random_array_at(xp: Any, place: Memory, base: Any = None, seed: int = 0,
             below: int | None = None) -> Any:
    """An array with random elements, in the memory of another one if it fits there."""
    low, high = place.span
    offset = (place.address + low) % ADDRESS_BYTES
    if base is None or low < 0 or base.nbytes < offset + high:
        nbytes = offset + high - low
        count = min(_PERIOD, -(-nbytes // place.dtype.itemsize))
        elements = random_elements(place.dtype, count, seed, below)
        base = xp.resize(xp.asarray(elements.view(np.uint8)), nbytes)
    if isinstance(base, np.ndarray):
        return np.ndarray(place.shape, place.dtype, base, offset - low, place.strides)
    return xp.ndarray(place.shape, place.dtype, base.data + (offset - low), place.strides)


def random_array(xp: Any, extents: tuple[int, ...], dtype: str, seed: int = 0, order: str = "C",
                 below: int | None = None) -> Any:
    """A gapless array with random elements, the last two axes in C or F order."""
    return random_array_at(xp, new_matrices(extents, dtype_named(dtype), order), None, seed, below)
