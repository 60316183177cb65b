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
