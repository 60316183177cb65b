"""The link between the memory of the host and that of one GPU: streams, events and pinned memory, by CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .errors import require

__all__ = ["Link"]


class Link:
    """Copies in both directions and kernels, each on a stream of its own, so that all three run at the same time.

    Tests replace it: all that the engine of NumPy arrays asks of CUDA is here, and CuPy's arrays.

    Parameters
    ----------
    ordinal : int
        The device.
    """

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self._cupy = require("cupy")
        self._runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(ordinal):
            self._up, self._compute, self._down = (self._cupy.cuda.Stream(non_blocking=True) for _ in range(3))

    # -- memory -------------------------------------------------------------------------------------------------------------------
    def pinned(self, nbytes: int) -> np.ndarray:
        """New pinned memory as bytes; it is freed with the array."""
        memory = self._cupy.cuda.PinnedMemoryPointer(self._cupy.cuda.PinnedMemory(nbytes), 0)
        return np.frombuffer(memory, np.uint8, nbytes)

    def is_pinned(self, address: int) -> bool:
        """Whether the driver can copy from and to memory of the host as it is."""
        return self._runtime.pointerGetAttributes(address).type == self._runtime.memoryTypeHost

    def free_bytes(self) -> int:
        """Device memory that can be allocated: what the driver has, and what CuPy's pool keeps."""
        free, _total = self._runtime.memGetInfo()
        return free + self._cupy.get_default_memory_pool().free_bytes()

    # -- threads and streams ------------------------------------------------------------------------------------------------------
    def enter_thread(self) -> None:
        """Make the device that of this thread, for good."""
        self._runtime.setDevice(self.ordinal)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let CuPy and kernels work on the stream of kernels."""
        with self._cupy.cuda.Device(self.ordinal), self._compute:
            yield

    def event(self) -> Any:
        """A new event; who waits for it leaves the processor to others."""
        return self._cupy.cuda.Event(block=True, disable_timing=True)

    def uploads_follow_kernels(self) -> None:
        """Let uploads from now on begin when the kernels that were launched have ended."""
        self._up.wait_event(self._compute.record())

    def kernels_follow_uploads(self) -> None:
        """Let kernels from now on begin when the uploads have ended."""
        self._compute.wait_event(self._up.record())

    def downloads_follow_kernels(self) -> None:
        """Let downloads from now on begin when the kernels that were launched have ended."""
        self._down.wait_event(self._compute.record())

    def upload(self, address: int, source: int, nbytes: int, done: Any = None) -> None:
        """Begin a copy from pinned memory; ``done`` is recorded behind it."""
        self._runtime.memcpyAsync(address, source, nbytes, self._runtime.memcpyHostToDevice, self._up.ptr)
        if done is not None:
            done.record(self._up)

    def download(self, target: int, address: int, nbytes: int, done: Any = None) -> None:
        """Begin a copy into pinned memory; ``done`` is recorded behind it."""
        self._runtime.memcpyAsync(target, address, nbytes, self._runtime.memcpyDeviceToHost, self._down.ptr)
        if done is not None:
            done.record(self._down)

    def await_downloads(self) -> None:
        """Wait for all downloads that have begun."""
        self._down.synchronize()

    def synchronize(self) -> None:
        """Wait for all that has begun."""
        for stream in (self._up, self._compute, self._down):
            stream.synchronize()
