"""Devices of arrays by name: ``"cpu"`` for NumPy's, ``"cuda:0"``, ``"cuda:1"`` ... for CuPy's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ..engines.dispatch import kind_of

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
