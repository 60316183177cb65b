"""Where arrays are, and NumPy's functions on them: by this package or by the arrays' library."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from .. import functions
from ..engines.dispatch import Carrier, Func, kind_of, own_types
from ..functions import linalg

# -- devices by name: cpu for NumPy's arrays, cuda:0, cuda:1 ... for CuPy's ------------------------
CPU = "cpu"


def device_of(data: Any) -> str:
    return f"cuda:{data.data.device_id}" if kind_of(data) == "cupy" else CPU


@cache
def _why_no_gpu() -> str | None:
    """The reason why there is only the host, in one sentence; ``None`` if there is more."""
    from .. import runtime

    return runtime.why_unavailable()


@cache
def devices() -> tuple[str, ...]:
    if _why_no_gpu():
        return (CPU,)
    import cupy

    return (CPU, *(f"cuda:{ordinal}" for ordinal in range(cupy.cuda.runtime.getDeviceCount())))


def default_device() -> str:
    """``CUTEBLAS_DEVICE``, else CuPy's current GPU, else the host."""
    return checked_device(os.environ.get("CUTEBLAS_DEVICE") or (CPU if _why_no_gpu() else "cuda"))


def checked_device(device: Any) -> str:
    """A device's name, of "cpu", "cuda" (CuPy's current) or "cuda:1"; ``None`` is the default."""
    if device is None:
        return default_device()
    if device == CPU:
        return CPU
    name = f"cuda:{device.id}" if type(device).__module__.partition(".")[0] == "cupy" else device
    if isinstance(name, str) and re.fullmatch(r"cuda(:\d+)?", name):
        if (reason := _why_no_gpu()) is not None:
            raise ValueError(
                f'Device not understood. Only "cpu" is allowed, but received: {device}; {reason}'
            )
        if name == "cuda":
            import cupy

            name = f"cuda:{cupy.cuda.runtime.getDevice()}"
    if name not in devices():
        *most, last = (f'"{each}"' for each in devices())
        allowed = f"{', '.join(most)} and {last} are" if most else f"Only {last} is"
        raise ValueError(f"Device not understood. {allowed} allowed, but received: {device}")
    return name


@contextmanager
def made_on(device: str) -> Iterator[Any]:
    """The library, NumPy or CuPy, whose new arrays are made on a device in the block."""
    if device == CPU:
        yield np
        return
    import cupy

    with cupy.cuda.Device(int(device.removeprefix("cuda:"))):
        yield cupy


def copied_to(data: Any, device: str) -> Any:
    """An array with the same elements on a device; the array itself if it is there."""
    here = device_of(data)
    if here == device:
        return data
    if device == CPU:
        with made_on(here):
            return data.get()
    with made_on(device) as library:
        return library.asarray(data)


# -- functions by library --------------------------------------------------------------------------
_SOME = np.empty(0)
SIMPLE_TYPES = frozenset({int, float, complex, bool, str, bytes, slice, type, type(None),
                          type(...)})
"""Some types without arrays inside."""
_ON_THE_HOST = SIMPLE_TYPES | {np.ndarray}


def leaves(argument: Any) -> Iterator[Any]:
    """The members of nested tuples, lists and dictionaries, and the operands of epilogues."""
    members = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else (argument,)
    for member in members:
        if isinstance(member, (tuple, list, dict)):
            yield from leaves(member)
        elif isinstance(member, Carrier):
            yield from leaves(member.given)
        else:
            yield member


def require_one_place(function: str, arguments: Iterable[Any]) -> None:
    """Refuse arrays of NumPy together with those of CuPy, and CuPy's of different devices."""
    if _ON_THE_HOST.issuperset(map(type, arguments)):
        return
    arrays = [x for x in leaves(arguments) if kind_of(x) in ("numpy", "subclass", "cupy")]
    if len(arrays) > 1 and len(set(map(device_of, arrays))) > 1:
        from ..engines.cuda import require_one_device

        require_one_device(function, {f"operand {i}": x for i, x in enumerate(arrays)})


def by_library(function: Func, *arguments: Any, **named: Any) -> Any:
    """A function of NumPy by this package or the arguments' library; by NumPy without arrays."""
    # Each library is asked as NumPy asks it (NEP 18), once: NumPy would look for our arrays again,
    # in containers that are not known here.
    ours = ours_by_numpys().get(function)
    values = *arguments, *named.values()
    on_gpu = None if _ON_THE_HOST.issuperset(map(type, values)) else next(
        (x for x in leaves(values) if kind_of(x) == "cupy"), None)
    if on_gpu is not None:
        from ._cupy_functions import by_cupy

        return by_cupy(function, ours, arguments, named, on_gpu)
    if ours is not None:
        return ours(*arguments, **named)
    return np.ndarray.__array_function__(_SOME, function, (), arguments, named)


@cache
def ours_by_numpys() -> dict[Any, Func]:
    """Our functions by those of NumPy."""
    return {theirs: getattr(package, name)
            for library, package in ((np, functions), (np.linalg, linalg))
            for name in package.__all__ if callable(theirs := getattr(library, name, None))
            and not isinstance(theirs, type)}


@cache
def is_answered_here(kind: type) -> bool:
    """Whether NumPy, CuPy or this package answers NumPy's functions on that type."""
    theirs = getattr(sys.modules.get("cupy"), "ndarray", None)
    if kind in own_types or (theirs is not None and issubclass(kind, theirs)):
        return True
    return getattr(kind, "__array_function__", None) is np.ndarray.__array_function__
