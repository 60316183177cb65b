"""CuPy's part of the routines; imported with the first operand on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

from .._forks import use_cuda
from ..engines.memory import Ints, Memory


def from_host(x: np.ndarray, device: int) -> Any:
    with cupy.cuda.Device(device):
        return cupy.asarray(x, order="K")


@contextmanager
def in_stream(stream: Any, device: int) -> Iterator[None]:
    with cupy.cuda.Device(device):
        if isinstance(stream, (cupy.cuda.Stream, cupy.cuda.ExternalStream)):
            with stream:
                yield
        else:
            with cupy.cuda.ExternalStream(_handle(stream)):
                yield


def _handle(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        version_and_handle = stream.__cuda_stream__() if callable(stream.__cuda_stream__) else stream.__cuda_stream__
        return int(version_and_handle[1])
    if hasattr(stream, "cuda_stream"):          # torch
        return int(stream.cuda_stream)
    raise TypeError(
        f"stream has to be a CUDA stream or the handle of one, got {type(stream).__name__}"
    )


def at_address(address: int, dtype: np.dtype, shape: Ints, strides: Ints,
               device: int | None) -> Any:
    """An array over memory that somebody else owns; ``strides`` are in bytes."""
    use_cuda()
    ordinal = cupy.cuda.runtime.getDevice() if device is None else device
    low, high = Memory(shape, strides, dtype).span
    memory = cupy.cuda.UnownedMemory(address + low, high - low, None, ordinal)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, -low), strides)
