"""Workers with GPUs in the memory of the host: Dask imports this module in each, and ``start``
makes this process like them."""

from __future__ import annotations

from contextlib import ExitStack
from threading import current_thread
from types import SimpleNamespace

import cupy
import numpy as np
import pytest

from cuteblas.dask import offers, serialization
from tests.functions import host_cupy

readers: set[str] = set()
"""The threads in which arrays were fetched."""


class HostMemory:
    """In place of what CUDA is asked for: no process opens another one's memory."""

    def handle_of(self, x):
        raise RuntimeError("a trial without GPUs")

    def on_host(self, x):
        return np.ascontiguousarray(host_cupy.on_host(x)).reshape(-1).view(np.uint8)

    def empty(self, shape, dtype):
        return host_cupy.on_gpu(np.empty(shape, dtype))

    def put(self, x, elements):
        readers.add(current_thread().name)
        host_cupy.on_host(x)[...] = np.frombuffer(elements, x.dtype).reshape(x.shape)


def start() -> ExitStack:
    """CuPy arrays are in the memory of the host until what is given is closed."""
    stack = ExitStack()
    stack.enter_context(host_cupy.installed())
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    for name in ("asarray", "array"):
        patch.setattr(cupy, name, lambda x, *_a, **_k: x if isinstance(x, cupy.ndarray)
                      else host_cupy.on_gpu(np.array(x)))
    patch.setattr(cupy, "asnumpy", lambda x: host_cupy.on_host(x).copy())
    patch.setattr(cupy.cuda, "Event", lambda **_k: SimpleNamespace(record=lambda: None,
                                                                   synchronize=lambda: None))
    memory = HostMemory()
    patch.setattr(offers, "Memory", lambda: memory)
    patch.setattr(serialization, "_memory", lambda: memory)
    patch.setattr(serialization, "_LEAST_BYTES", 1)
    return stack


_kept: list[ExitStack] = []


def dask_setup(_worker: object) -> None:
    """What Dask calls when a worker begins."""
    _kept.append(start())
