"""Kernels on devices: compiled, loaded and ready to launch, once each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .._forks import refuse_orphans, surviving
from ..codegen.kernel import GeneratedKernel
from .architectures import target_architecture
from .compiler import compile
from .devices import capturing, device_info
from .errors import check, require

__all__ = ["LoadedKernel", "load", "load_all"]

_SHARED_BYTES_WITHOUT_ASKING = 48 * 1024
_PORTABLE_CLUSTER = 8
_FIRST_WITH_FUNC_LOAD = 12040


class LoadedKernel(NamedTuple):
    """A kernel on a device: the driver's ``CUfunction`` as an integer, and the object that keeps it loaded."""

    function: int
    owner: object


_lock = surviving(threading.Lock())
_loaded: dict[tuple[str, str, str, int], LoadedKernel] = {}


def load(kernel: GeneratedKernel, ordinal: int) -> LoadedKernel:
    """The kernel, loaded on a device; compiled if it has to be.

    Parameters
    ----------
    kernel : GeneratedKernel
        The kernel.
    ordinal : int
        Index of the device.

    Raises
    ------
    RuntimeError
        If the kernel is not loaded yet and CuPy's current stream is being captured.
    ValueError
        If the device cannot run the kernel.
    CompileError, DriverError
        If the compiler or the driver refuses it.
    """
    refuse_orphans()
    key = _key(kernel, ordinal)
    with _lock:
        if key not in _loaded:
            if capturing():
                raise RuntimeError(f"kernel {kernel.name} is not loaded on device {ordinal} yet and nothing can be compiled or "
                                   "loaded while a stream is being captured: call warmup, or run the operation once, before the "
                                   "capture")
            _loaded[key] = _load(kernel, ordinal, _compiled(kernel, ordinal))
        return _loaded[key]


def load_all(kernels: Sequence[GeneratedKernel], ordinal: int) -> list[LoadedKernel]:
    """The same for several kernels, which are compiled side by side."""
    if len(kernels) > 1 and not capturing():
        missing = list({_key(kernel, ordinal): kernel for kernel in kernels if _key(kernel, ordinal) not in _loaded}.values())
        with ThreadPoolExecutor(max(1, len(missing))) as pool:
            for kernel, cubin in zip(missing, pool.map(lambda kernel: _compiled(kernel, ordinal), missing), strict=True):
                with _lock:
                    _loaded.setdefault(_key(kernel, ordinal), _load(kernel, ordinal, cubin))
    return [load(kernel, ordinal) for kernel in kernels]


def _key(kernel: GeneratedKernel, ordinal: int) -> tuple[str, str, str, int]:
    return kernel.name, kernel.arch, kernel.digest, ordinal


def _compiled(kernel: GeneratedKernel, ordinal: int) -> bytes:
    return compile(kernel, target_architecture(kernel.arch, device_info(ordinal).arch))


def _load(kernel: GeneratedKernel, ordinal: int, cubin: bytes) -> LoadedKernel:
    cupy, core, driver = require("cupy"), require("cuda.core"), require("cuda.bindings.driver")
    doing = f"loading kernel {kernel.name} on device {ordinal}"
    with cupy.cuda.Device(ordinal):
        cupy.cuda.runtime.free(0)     # makes the context that CuPy uses current
        owner = core.ObjectCode.from_cubin(cubin, name=kernel.name).get_kernel(kernel.name)
        function = check(driver.cuKernelGetFunction(driver.CUkernel(int(owner.handle))), doing)
        attribute = driver.CUfunction_attribute
        if kernel.shared_bytes > _SHARED_BYTES_WITHOUT_ASKING:
            largest = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(function, largest, kernel.shared_bytes), doing)
        x, y, z = kernel.cluster
        if x * y * z > _PORTABLE_CLUSTER:
            check(driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), doing)
        if cupy.cuda.runtime.driverGetVersion() >= _FIRST_WITH_FUNC_LOAD:
            # Lazily loaded code would otherwise reach the device at the first launch, which may be inside a capture.
            check(driver.cuFuncLoad(function), doing)
    return LoadedKernel(int(function), owner)
