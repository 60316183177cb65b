"""Kernels on devices: compiled, loaded and ready to launch, once each."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._forks import refuse_orphans, surviving
from ..codegen.architectures import target_architecture
from .compiler import compile, is_compiled
from .devices import capturing, device_info
from .driver import check_status, driver_function
from .errors import DriverError, require

if TYPE_CHECKING:
    from ..codegen.kernel import GeneratedKernel

_SHARED_BYTES_WITHOUT_ASKING = 48 * 1024
_PORTABLE_CLUSTER = 8
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 13     # CUfunction_attribute
_FIRST_WITH_FUNC_LOAD = 12040


class KernelRecord(NamedTuple):
    """What loads a kernel of another process; ``cubin`` is its file's name in the cache."""

    name: str
    threads: int
    shared_bytes: int
    waits: bool
    cubin: str
    cluster: tuple[int, int, int]
    params: tuple[Any, ...]


class LoadedKernel(NamedTuple):
    """A kernel on a device: the ``CUfunction`` as an integer, and what keeps it loaded."""

    function: int
    owner: object


_lock = surviving(threading.Lock())
_loaded: dict[tuple[str, str, str, int], LoadedKernel] = {}


def load_all(kernels: Iterable[GeneratedKernel], ordinal: int) -> list[LoadedKernel]:
    """Load kernels, and compile those that have to be while later ones are generated."""
    from concurrent.futures import ThreadPoolExecutor

    refuse_orphans()
    keys, missing = [], {}
    with ThreadPoolExecutor() as pool:
        for kernel in kernels:
            keys.append(key := _key(kernel, ordinal))
            if key in _loaded or key in missing:
                continue
            if capturing():
                raise RuntimeError(
                    f"kernel {kernel.name} is not loaded on device {ordinal}, and kernels cannot be compiled or loaded "
                    "during the capture of a stream: call warmup, or run the operation once, before the capture"
                )
            missing[key] = kernel, pool.submit(compile, kernel, _target(kernel, ordinal))
    for key, (kernel, cubin) in missing.items():
        with _lock:
            if key not in _loaded:
                _loaded[key] = _load(kernel, ordinal, cubin.result())
    return [_loaded[key] for key in keys]


def _target(kernel: GeneratedKernel, ordinal: int) -> str:
    return target_architecture(kernel.arch, device_info(ordinal).arch)


def are_compiled(kernels: Iterable[GeneratedKernel], ordinal: int) -> bool:
    return all(is_loaded(kernel, ordinal) or is_compiled(kernel, _target(kernel, ordinal))
               for kernel in kernels)


def _key(kernel: GeneratedKernel, ordinal: int) -> tuple[str, str, str, int]:
    return kernel.name, kernel.arch, kernel.digest, ordinal


def is_loaded(kernel: GeneratedKernel, ordinal: int) -> bool:
    return _key(kernel, ordinal) in _loaded


def load_cubin(kernel: KernelRecord, cubin: bytes, ordinal: int) -> LoadedKernel:
    """A kernel of another process, loaded on a device."""
    refuse_orphans()
    key = kernel.name, "", kernel.cubin, ordinal
    with _lock:
        if key not in _loaded:
            _loaded[key] = _load(kernel, ordinal, cubin)
        return _loaded[key]


def _load(kernel: GeneratedKernel | KernelRecord, ordinal: int, cubin: bytes) -> LoadedKernel:
    cupy = require("cupy")
    driver = cupy.cuda.driver
    with cupy.cuda.Device(ordinal):
        cupy.cuda.runtime.free(0)     # makes the context that CuPy uses current
        owner = cupy.cuda.function.Module()
        try:
            owner.load(cubin)
            function = owner.get_function(kernel.name).ptr
            if kernel.shared_bytes > _SHARED_BYTES_WITHOUT_ASKING:
                driver.funcSetAttribute(function,
                                        driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        kernel.shared_bytes)
            x, y, z = kernel.cluster
            if x * y * z > _PORTABLE_CLUSTER:
                driver.funcSetAttribute(function, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        except driver.CUDADriverError as error:
            raise DriverError(
                f"loading kernel {kernel.name} on device {ordinal}: {error}"
            ) from error
        if cupy.cuda.runtime.driverGetVersion() >= _FIRST_WITH_FUNC_LOAD:
            # Lazily loaded code would otherwise reach the device at the first launch, which may be
            # inside a capture.
            status = driver_function("cuFuncLoad", ctypes.c_void_p)(function)
            check_status(status, f"loading kernel {kernel.name} on device {ordinal}")
    return LoadedKernel(function, owner)
