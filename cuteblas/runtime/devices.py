"""The devices of this machine, without device memory; the first query imports CuPy."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._forks import REFUSAL, orphaned, use_cuda
from .driver import driver_function
from .errors import INSTALL, DriverError, MissingDependency, in_one_line, require

if TYPE_CHECKING:
    from ..planning.problem import DeviceInfo


def why_unavailable() -> str | None:
    """Why kernels cannot run on a GPU here, in one sentence; ``None`` if they can. Each process
    finds out once.

    Returns
    -------
    str or None
        The reason.

    Examples
    --------
    >>> reason = why_unavailable()
    >>> reason is None or isinstance(reason, str)
    True
    """
    return REFUSAL if orphaned() else _why_unavailable()


@cache
def _why_unavailable() -> str | None:
    if find_spec("cupy") is None:
        return f"CuPy is not installed: {INSTALL}"
    try:
        cupy = require("cupy")
        if int(cupy.__version__.partition(".")[0]) < 14:
            return f"CuPy {cupy.__version__} is too old, and cuteblas needs 14 or newer: {INSTALL}"
        if cupy.cuda.runtime.getDeviceCount() == 0:
            return "the CUDA driver does not find a device"
        use_cuda()
    except MissingDependency as error:
        return str(error)
    except Exception as error:          # CuPy's, or whatever a broken installation raises
        return f"the CUDA driver is missing or cannot be used: {in_one_line(error)}"
    try:
        # whose import takes long, and a process that compiles nothing does not need it
        found = find_spec("cuda.core")
    except ModuleNotFoundError:
        found = None
    return None if found else f"GPU kernels need cuda.core, which is not installed: {INSTALL}"


def require_gpu(what: str) -> None:
    if (reason := why_unavailable()) is not None:
        raise MissingDependency(f"{what} cannot work here: {reason}")


def available() -> bool:
    """Whether kernels can run on a GPU here.

    Returns
    -------
    bool
        Each process finds out once.

    Examples
    --------
    >>> available() == (why_unavailable() is None)
    True
    """
    return why_unavailable() is None


def start_driver() -> None:
    """Initialise the driver, before an import would hold the interpreter's lock meanwhile."""
    # To look up a function would, too.
    with suppress(DriverError):
        start, *_ = _starting_functions()
        start(0)


@cache
def _starting_functions() -> list[Callable[..., int]]:
    out, index = ctypes.c_void_p, ctypes.c_int
    return [driver_function("cuInit", ctypes.c_uint), driver_function("cuDeviceGet", out, index),
            driver_function("cuDevicePrimaryCtxRetain", out, index)]


def load_libraries() -> None:
    """Load cuBLAS and NVRTC before CuPy's import does, which would hold the interpreter's lock."""
    # Built-in functions first: a library without a run path (13.0) finds them where they are loaded.
    found = find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for name in "cublasLt", "nvrtc-builtins", "nvrtc":
            for file in Path(folder).glob(f"*/lib/lib{name}.so.*"):
                with suppress(AttributeError):              # of other systems than Linux
                    ctypes.CDLL(None).dlopen(os.fsencode(file), os.RTLD_NOW)


def create_context() -> None:
    """Create the first device's context by the driver, while CuPy is imported."""
    with suppress(DriverError):
        _, get, retain = _starting_functions()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if not get(ctypes.byref(device), 0):
            retain(ctypes.byref(context), device)


def device_info(ordinal: int | None = None) -> DeviceInfo:
    """The limits and rates of a device, on which planning depends.

    Parameters
    ----------
    ordinal : int, optional
        Index of the device; the current one by default.

    Returns
    -------
    DeviceInfo
        The limits and rates.

    Raises
    ------
    MissingDependency
        If there is no GPU.
    RuntimeError
        In a process that was forked from one that had used CUDA.

    Examples
    --------
    >>> device_info().arch  # doctest: +SKIP
    """
    use_cuda()
    require_gpu("device_info")
    if ordinal is None:
        ordinal = require("cupy").cuda.Device().id
    return _device_info(ordinal)


@lru_cache
def _device_info(ordinal: int) -> DeviceInfo:
    from ..planning.problem import COPY_EFFICIENCY, DeviceInfo
    from .costs import own_costs

    cuda = require("cupy").cuda
    device = cuda.Device(ordinal)
    attributes = device.attributes
    # Two transfers per clock of the memory; clocks are given in kHz and the width of the bus in
    # bits.
    peak = 2 * attributes["MemoryClockRate"] * 1e3 * attributes["GlobalMemoryBusWidth"] / 8
    name = cuda.runtime.getDeviceProperties(ordinal)["name"].decode()
    return DeviceInfo(
        name=name,
        arch=f"sm_{device.compute_capability}",
        multiprocessors=attributes["MultiProcessorCount"],
        shared_bytes_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
        clock_hz=attributes["ClockRate"] * 1e3,
        bandwidth=COPY_EFFICIENCY * peak,
        l2_bytes=attributes["L2CacheSize"],
        costs=own_costs(name),
    )


def capturing() -> bool:
    """Whether CuPy's current stream is being captured into a CUDA graph.

    Returns
    -------
    bool
        True between the beginning and the end of a capture.

    Examples
    --------
    >>> capturing()  # doctest: +SKIP
    """
    cuda = require("cupy").cuda
    return is_captured(cuda.runtime, cuda.get_current_stream().ptr)


def is_captured(runtime: Any, stream: int) -> bool:
    """Whether a stream is being captured into a CUDA graph, by ``cupy.cuda.runtime``."""
    try:
        return runtime.streamIsCapturing(stream)
    except runtime.CUDARuntimeError:
        return True     # the default stream refuses the question while another stream is capturing
