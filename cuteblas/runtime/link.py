"""The link between the host's memory and one GPU's: streams, events and pinned memory, by CuPy."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .driver import LIBRARY
from .errors import DriverError, require


class Driver(ctypes.Structure):
    """Driver functions and their arguments for threads that are not Python's."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("enter", "copy", "record", "query",
                                                          "context", "up", "down"))


def _loaded_driver() -> ctypes.PyDLL:
    """The driver as a PyDLL: its short calls keep the interpreter's lock, which a thread that gives
    it away gets back late."""
    library = ctypes.PyDLL(LIBRARY)
    word, handle = ctypes.c_uint64, ctypes.c_void_p
    library.cuMemcpyAsync.argtypes = word, word, ctypes.c_size_t, handle
    library.cuEventRecord.argtypes = handle, handle
    library.cuEventQuery.argtypes = handle,
    return library


def check_copy(status: int) -> None:
    if status:
        raise DriverError(
            f"the CUDA driver refused a copy between host and device: CUresult {status}"
        )


_PCI = Path("/sys/bus/pci/devices")


def processors_in(text: str) -> set[int]:
    """Processors of a list as Linux writes it: ``0-3,8``."""
    ends = (part.split("-") for part in text.strip().split(","))
    return {each for first, *last in ends for each in range(int(first), int([first, *last][-1]) + 1)}


class Link:
    """Copies in both directions and kernels on three streams; tests replace it."""

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self._cupy = require("cupy")
        self._runtime = self._cupy.cuda.runtime
        with self._cupy.cuda.Device(ordinal):
            self._up, self._compute, self._down = (self._cupy.cuda.Stream(non_blocking=True)
                                                   for _ in range(3))
        self._driver = _loaded_driver()

    # -- memory ------------------------------------------------------------------------------------
    def pinned(self, nbytes: int) -> np.ndarray:
        """New pinned memory as bytes; it is freed with the array."""
        memory = self._cupy.cuda.PinnedMemoryPointer(self._cupy.cuda.PinnedMemory(nbytes), 0)
        return np.frombuffer(memory, np.uint8, nbytes)

    def is_pinned(self, address: int) -> bool:
        """Whether the driver can copy from and to memory of the host as it is."""
        return self._runtime.pointerGetAttributes(address).type == self._runtime.memoryTypeHost

    def free_bytes(self) -> int:
        """Device memory that can be allocated: the driver's and that of CuPy's pool."""
        free, _total = self._runtime.memGetInfo()
        return free + self._cupy.get_default_memory_pool().free_bytes()

    # -- threads and streams -----------------------------------------------------------------------
    def enter_thread(self) -> None:
        """Make the device that of this thread, for good."""
        self._runtime.setDevice(self.ordinal)

    @contextmanager
    def nearby(self) -> Iterator[None]:
        """Let this thread, and those it begins, run on the processors nearest to the device."""
        try:
            before = os.sched_getaffinity(0)
            name = self._runtime.deviceGetPCIBusId(self.ordinal).lower()
            near = before & processors_in(
                (_PCI / name / "local_cpulist").read_text(encoding="ascii"))
        except (AttributeError, OSError, ValueError):
            near = set()
        if not near:
            yield
            return
        os.sched_setaffinity(0, near)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def computing(self) -> AbstractContextManager[Any]:
        """Let CuPy and kernels work on the stream of kernels; the device is the current one."""
        return self._compute

    def event(self, block: bool = True) -> Any:
        """A new event; with ``block``, waiting leaves the processor to others."""
        return self._cupy.cuda.Event(block=block, disable_timing=True)

    def driver(self) -> Driver:
        """What threads call that are not Python's."""
        library, context = self._driver, ctypes.c_void_p()
        with self._cupy.cuda.Device(self.ordinal):
            check_copy(library.cuCtxGetCurrent(ctypes.byref(context)))
        calls = [ctypes.cast(call, ctypes.c_void_p)
                 for call in (library.cuCtxSetCurrent, library.cuMemcpyAsync, library.cuEventRecord,
                              library.cuEventQuery)]
        return Driver(*calls, context, self._up.ptr, self._down.ptr)

    def uploads_follow_kernels(self) -> None:
        self._up.wait_event(self._compute.record())

    def kernels_follow_uploads(self) -> None:
        self._compute.wait_event(self._up.record())

    def downloads_follow_kernels(self) -> None:
        self._down.wait_event(self._compute.record())

    def launched(self) -> Any:
        return self._compute.record(self.event())

    def upload(self, address: int, source: int, nbytes: int, done: Any = None) -> None:
        """Begin a copy from pinned memory; ``done`` is recorded after it."""
        self._copy(address, source, nbytes, self._up, done)

    def download(self, target: int, address: int, nbytes: int, done: Any = None) -> None:
        """Begin a copy into pinned memory; ``done`` is recorded after it."""
        self._copy(target, address, nbytes, self._down, done)

    def _copy(self, target: int, source: int, nbytes: int, stream: Any, done: Any) -> None:
        check_copy(self._driver.cuMemcpyAsync(target, source, nbytes, stream.ptr))
        if done is not None:
            check_copy(self._driver.cuEventRecord(done.ptr, stream.ptr))

    def copy_up(self, address: int, source: int, nbytes: int) -> None:
        """Copy in the order of kernels; pageable memory may be written when this returns."""
        self._runtime.memcpyAsync(address, source, nbytes, self._runtime.memcpyHostToDevice,
                                  self._compute.ptr)

    def copy_down(self, target: int, address: int, nbytes: int) -> None:
        """Begin to copy what launched kernels make, until :meth:`await_kernels`."""
        self._runtime.memcpyAsync(target, address, nbytes, self._runtime.memcpyDeviceToHost,
                                  self._compute.ptr)

    def await_kernels(self) -> None:
        """Wait for the kernels that were launched, and for copies that follow them."""
        self._compute.synchronize()

    def wait(self, done: Any) -> None:
        if self._driver.cuEventQuery(done.ptr):
            done.synchronize()

    def await_downloads(self) -> None:
        self._down.synchronize()

    def synchronize(self) -> None:
        for stream in (self._up, self._compute, self._down):
            stream.synchronize()
