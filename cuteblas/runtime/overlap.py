"""Launches that may begin while the kernel before them in the stream still runs (programmatic dependent launch, from sm_90 on)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from .errors import check, require

__all__ = ["overlapping_launch"]


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute`` with an integer for its value."""

    _fields_ = (("id", ctypes.c_int), ("_", ctypes.c_int), ("value", ctypes.c_int), ("_rest", ctypes.c_int * 15))


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint))


class LaunchError(RuntimeError):
    """What the driver said of a launch; its ``status`` is the ``CUresult``."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@cache
def _launcher() -> tuple[Callable[..., int], _Attribute]:
    """The driver's ``cuLaunchKernelEx``, and the attribute that lets a launch overlap with the one before it."""
    driver = require("cuda.bindings.driver")
    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    address = check(driver.cuGetProcAddress(b"cuLaunchKernelEx", 12000, flags), "looking up cuLaunchKernelEx")
    pointer = ctypes.c_void_p
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Config), pointer, pointer, pointer)
    kind = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    return prototype(address), _Attribute(id=int(kind), value=1)


def overlapping_launch(function: int, x: int, y: int, z: int, bx: int, by: int, bz: int, shared_bytes: int, stream: int,
                       parameters: int, extra: int) -> None:
    """Launch a kernel that may begin before the one ahead of it in the stream has ended; the kernel itself waits for that.

    Parameters are those of ``cuLaunchKernel``.

    Raises
    ------
    LaunchError
        If the driver refuses it.
    """
    launch, attribute = _launcher()
    config = _Config((x, y, z), (bx, by, bz), shared_bytes, stream, ctypes.pointer(attribute), 1)
    status = launch(ctypes.byref(config), function, parameters, extra)
    if status:
        name = require("cuda.bindings.driver").CUresult(status).name
        raise LaunchError(status, f"{name}: the launch was refused")
