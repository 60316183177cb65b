"""Functions of the CUDA driver that CuPy does not have, by ctypes.

``cuda.bindings`` has them all, but it takes longer to import than all else that a process needs
which compiles nothing.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .errors import DriverError, check, require

__all__ = ["LIBRARIES", "check_status", "driver_function"]

LIBRARIES = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}
"""The driver's library by platform."""


@cache
def driver_function(name: str, *types: Any) -> Callable[..., int]:
    """A function of the driver, which returns a status."""
    try:
        library = ctypes.CDLL(LIBRARIES.get(sys.platform, LIBRARIES["linux"]))
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise DriverError(f"looking up {name}: {error}") from None
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)          # type: ignore[arg-type]


def check_status(status: int, what: str) -> None:
    """Refuse a status that is not success."""
    if status:
        check((require("cuda.bindings.driver").CUresult(status),), what)
