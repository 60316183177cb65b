"""Threads that move NumPy arrays to a GPU and back: the Python side of ``mover.cpp``.

They do what :class:`cuteblas.runtime.ring.Ring` does without the interpreter's lock, so that
pieces are short.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from .errors import DriverError
from .link import check_copy
from .ring import processors

SOURCE = Path(__file__).with_name("mover.cpp")
BUILT: dict[str, Any] = {"what": "threads that move NumPy arrays", "headers": (),
                         "flags": ("-O3", "-pthread")}
"""How :func:`cuteblas.emulator.compiler.build` makes the library of :data:`SOURCE`."""

HASHED_BYTES = 1 << 18
"""Bytes of a part that has a hash of its own."""

_MODES, _SUMS = 64, 4
_DOWN, _UP, _STAYS = range(3)           # ways
_SLOT_BYTES = 4 << 20                   # the driver's part of a copy takes some 10 us
_SLOTS = 8
_CHUNKS, _LEAST_CHUNK = 4, 1 << 19      # of a short transfer, and bytes
_LEAST_PIECE, _MOST_PIECE = 1 << 17, 1 << 19
_SHORT = 64                             # bytes of runs that pieces do not divide
_MOST_THREADS = 16
_PATIENCE = 100                         # milliseconds until signals are looked at


class _Array(ctypes.Structure):
    _fields_ = (("host", ctypes.c_void_p), ("device", ctypes.c_uint64), ("nbytes", ctypes.c_int64),
                ("run", ctypes.c_int64), ("piece", ctypes.c_int64), ("chunk", ctypes.c_int64),
                ("modes", ctypes.c_int32), ("swapped", ctypes.c_int32),
                ("past_cache", ctypes.c_int32), ("shape", ctypes.c_int64 * _MODES),
                ("strides", ctypes.c_int64 * _MODES), ("hashes", ctypes.c_void_p),
                ("key", ctypes.c_void_p))


@cache
def _key() -> np.ndarray:
    """The secret key of this process's hashes."""
    return np.frombuffer(os.urandom(HASHED_BYTES + 64), np.uint64)


def _described(x: np.ndarray, device: int, slot_bytes: int, threads: int, past_cache: bool,
               hashes: np.ndarray | None = None) -> _Array:
    """An array that lies in C order on the device; ``slot_bytes`` is the most of a chunk."""
    modes: list[tuple[int, int]] = []                       # from the last axis
    run = x.itemsize
    for n, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if n == 1:
            continue
        if not modes and stride == run:
            run *= n
        elif modes and stride == modes[-1][0] * modes[-1][1]:
            modes[-1] = modes[-1][0] * n, modes[-1][1]
        else:
            modes.append((n, stride))
    swapped = 0 if x.dtype.isnative else 4 if x.dtype.kind == "U" else x.itemsize // (2 if x.dtype.kind == "c" else 1)
    piece = min(max(-(-x.nbytes // (2 * threads)), _LEAST_PIECE), _MOST_PIECE,
                slot_bytes) if hashes is None else HASHED_BYTES
    piece -= piece % (run if run <= _SHORT else swapped or 1)
    chunk = min(max(-(-x.nbytes // _CHUNKS), _LEAST_CHUNK, piece), slot_bytes)
    found = _Array(x.__array_interface__["data"][0], device, x.nbytes, run, piece,
                   chunk - chunk % piece, len(modes), swapped, past_cache)
    for i, (n, stride) in enumerate(reversed(modes)):
        found.shape[i], found.strides[i] = n, stride
    if hashes is not None:
        found.hashes, found.key = hashes.ctypes.data, _key().ctypes.data
    return found


class _Transfer:
    __slots__ = ("_job", "_kept", "_library", "_mover")

    def __init__(self, library: ctypes.CDLL, mover: int, kept: Any):
        self._library, self._mover, self._kept, self._job = library, mover, kept, None

    def begin(self, x: _Array, way: int) -> None:
        self._job = self._library.mover_begin(self._mover, ctypes.byref(x), way)

    def wait(self, helps: bool = False) -> None:
        """Move pieces until the last one is handed over to its stream, or in its array."""
        while self._job is not None:
            if self._library.mover_wait(self._mover, self._job, _PATIENCE):
                job, self._job = self._job, None
                check_copy(self._library.mover_end(job))

    def cancel(self) -> None:
        """Drop what has not begun and wait for what has, even if that is interrupted."""
        while self._job is not None:
            try:
                self._library.mover_cancel(self._job)
                self.wait()
            except (DriverError, KeyboardInterrupt):
                pass

    __del__ = cancel


class Mover:
    """Slots and threads of one device until :meth:`close`; ``lock`` is the call's on the link."""
    # By default threads are three quarters of at most 16 processors, with the one that waits: more
    # wait for each other and the driver.

    def __init__(self, link: Any, library: ctypes.CDLL, threads: int | None = None,
                 slot_bytes: int = _SLOT_BYTES, slots: int = _SLOTS):
        self.link, self.slot_bytes = link, slot_bytes
        self.lock = RLock()
        self.threads = max(1, min(processors(), _MOST_THREADS) * 3 // 4
                           - 1) if threads is None else threads
        self._library = library
        pointer = ctypes.c_void_p
        library.mover_begin.argtypes = library.mover_wait.argtypes = pointer, pointer, ctypes.c_int
        for function in (library.mover_cancel, library.mover_end, library.mover_delete):
            function.argtypes = pointer,
        library.mover_begin.restype = library.mover_new.restype = pointer
        self._memory = [link.pinned(slots * slot_bytes) for _ in range(2)]
        self._events = [[link.event(block=False) for _ in range(slots)] for _ in range(2)]
        pointers = [(pointer * slots)(*(event.ptr for event in events))
                    for events in self._events]
        self._driver = link.driver()
        self._mover = library.mover_new(ctypes.byref(self._driver),
                                        *(pointer(x.ctypes.data) for x in self._memory),
                                        ctypes.c_int64(slot_bytes), *pointers, slots, self.threads)

    def upload(self, x: np.ndarray, address: int, streams: bool = False,
               hashes: np.ndarray | None = None) -> _Transfer:
        """Begin to copy elements to the device; ``hashes`` gets those of the bytes that move."""
        # Unless others follow soon (``streams``), elements are written past the cache, from which
        # the copy engine reads more slowly; a stream waits for memory, which that burdens.
        return self._start(x, address, _UP, not streams, x, hashes)

    def hashes(self, low: int, high: int) -> np.ndarray:
        """A keyed hash of each part, four words; others meet with probability < 2**-120."""
        found = np.empty((-(-(high - low) // HASHED_BYTES), _SUMS), np.uint64)
        transfer = _Transfer(self._library, self._mover, found)
        transfer.begin(_Array(low, 0, high - low, high - low, HASHED_BYTES, HASHED_BYTES,
                              hashes=found.ctypes.data, key=_key().ctypes.data), _STAYS)
        transfer.wait()
        return found

    def download(self, x: np.ndarray, address: int, kept: Any = None,
                 streams: bool = False) -> _Transfer:
        """Begin to copy into an array; ``kept`` lives as long as the transfer."""
        return self._start(x, address, _DOWN, True, (x, kept))

    def _start(self, x: np.ndarray, address: int, way: int, past_cache: bool, kept: Any,
               hashes: np.ndarray | None = None) -> _Transfer:
        transfer = _Transfer(self._library, self._mover, (kept, hashes))
        if x.size:
            transfer.begin(_described(x, address, self.slot_bytes, self.threads + 1, past_cache,
                                      hashes), way)
        return transfer

    def close(self) -> None:
        """End the threads and free the slots; nothing is on its way."""
        self._library.mover_delete(self._mover)
