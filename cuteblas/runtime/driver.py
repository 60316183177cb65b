"""Driver functions that CuPy lacks, by ctypes: ``cuda.bindings`` takes long to import."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .errors import DriverError, check, require

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@cache
def driver_function(name: str, *types: Any) -> Callable[..., int]:
    """A function of the driver, which returns a status."""
    try:
        library = ctypes.CDLL(LIBRARY)
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise DriverError(f"looking up {name}: {error}") from None
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)          # type: ignore[arg-type]


def check_status(status: int, what: str) -> None:
    if status:
        check((require("cuda.bindings.driver").CUresult(status),), what)


# -- launches that begin while the kernel before runs (programmatic dependent launch, sm_90) -------
_PROGRAMMATIC_STREAM_SERIALIZATION = 6      # CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute`` with an integer for its value."""

    _fields_ = (("id", ctypes.c_int), ("_", ctypes.c_int), ("value", ctypes.c_int),
                ("_rest", ctypes.c_int * 15))


class _Config(ctypes.Structure):
    _fields_ = (("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint))


class LaunchError(RuntimeError):
    """The driver's error for a launch; its ``status`` is the ``CUresult``."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@cache
def _launcher() -> tuple[Callable[..., int], _Attribute]:
    """The driver's ``cuLaunchKernelEx``, and the attribute of overlapping launches."""
    pointer = ctypes.c_void_p
    launch = driver_function("cuLaunchKernelEx", ctypes.POINTER(_Config), pointer, pointer, pointer)
    return launch, _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)


class OverlappingLaunch:
    """Launches of one kernel that may begin before the launch ahead has ended."""
    # Called as ``cuLaunchKernel`` is, by one thread; only the stream may change after the first
    # call.

    def __init__(self) -> None:
        self._config: _Config | None = None

    def __call__(self, function: int, x: int, y: int, z: int, bx: int, by: int, bz: int,
                 shared_bytes: int, stream: int, parameters: int, extra: int) -> None:
        if self._config is None:
            self._launch, attribute = _launcher()
            self._config = _Config((x, y, z), (bx, by, bz), shared_bytes, stream,
                                   ctypes.pointer(attribute), 1)
            self._reference = ctypes.byref(self._config)
        self._config.stream = stream
        status = self._launch(self._reference, function, parameters, extra)
        if status:
            name = require("cuda.bindings.driver").CUresult(status).name
            raise LaunchError(status, f"{name}: the launch was refused")
