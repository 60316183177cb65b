"""A link whose copies happen as late as CUDA allows, between arrays of this process: what nobody
waited for has not happened."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from threading import RLock

import numpy as np

from cuteblas.runtime.link import Driver


def at(address: int, nbytes: int) -> np.ndarray:
    """Bytes of this process."""
    return np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)


class Event:
    """Recorded behind some copies of a stream."""

    def __init__(self, link):
        self.link, self.stream, self.place = link, None, 0
        self.ptr = len(link.events) + 1
        link.events.append(self)

    def synchronize(self):
        self.link.run(self.stream, self.place)


class Launched:
    """After the kernels that had been launched when it was made."""

    def __init__(self, link):
        self.link, self.kernels = link, link.kernels

    def synchronize(self):
        self.link.log.append(f"{self.kernels} kernels have ended")
        self.link.kernels_are_new = False


class LateLink:
    """In place of :class:`cuteblas.runtime.link.Link`.

    Attributes
    ----------
    log : list
        What was asked for, in order.
    kernels_are_new : bool
        Whether a kernel was launched that downloads have not been told to follow.
    kernels : int
        How many were launched.
    """

    def __init__(self, ordinal=0, free=1 << 40):
        self.ordinal, self.free = ordinal, free
        self._lock = RLock()
        self._copies = {"up": [], "down": []}
        self._ended = {"up": 0, "down": 0}
        self.log, self.pinned_ranges, self.kernels_are_new = [], [], False
        self.fail_at, self.kernels = None, 0
        self.events, self._after_kernels = [], []

    def pinned(self, nbytes):
        memory = np.full(nbytes, 0xA5, np.uint8)
        self.pinned_ranges.append((memory.ctypes.data, memory.ctypes.data + nbytes))
        return memory

    def is_pinned(self, address):
        return any(low <= address < high for low, high in self.pinned_ranges)

    def free_bytes(self):
        return self.free

    def enter_thread(self):
        pass

    def nearby(self):
        return nullcontext()

    def computing(self):
        return nullcontext()

    def event(self, block=True):
        return Event(self)

    def driver(self):
        """What threads call that are not Python's: the same, by callbacks. A copy that is asked for
        twice has happened."""
        word, handle = ctypes.c_uint64, ctypes.c_void_p

        def copy(target, source, nbytes, stream):
            try:
                self._begin("up" if stream == 1 else "down", target, source, nbytes, None)
            except Exception:
                return 999
            return 0

        def record(event, stream):
            done = self.events[event - 1]
            done.stream = "up" if stream == 1 else "down"
            done.place, done.asked = len(self._copies[done.stream]), 0
            return 0

        def query(event):
            done = self.events[event - 1]
            done.asked += 1
            if done.asked < 3:
                return 600
            done.synchronize()
            return 0

        self._calls = (ctypes.CFUNCTYPE(ctypes.c_int, handle)(lambda context: 0),
                       ctypes.CFUNCTYPE(ctypes.c_int, word, word, ctypes.c_size_t, handle)(copy),
                       ctypes.CFUNCTYPE(ctypes.c_int, handle, handle)(record),
                       ctypes.CFUNCTYPE(ctypes.c_int, handle)(query))
        return Driver(*(ctypes.cast(call, handle) for call in self._calls), None, 1, 2)

    def uploads_follow_kernels(self):
        self.log.append("uploads follow kernels")

    def kernels_follow_uploads(self):
        self.log.append("kernels follow uploads")
        self.run("up", len(self._copies["up"]))

    def downloads_follow_kernels(self):
        self.log.append("downloads follow kernels")
        self.kernels_are_new = False

    def launched(self):
        return Launched(self)

    def upload(self, address, source, nbytes, done=None):
        self._begin("up", address, source, nbytes, done)

    def download(self, target, address, nbytes, done=None):
        assert not self.kernels_are_new, "a download may begin before the kernel has ended"
        self._begin("down", target, address, nbytes, done)

    def _begin(self, stream, target, source, nbytes, done):
        with self._lock:
            copies = self._copies[stream]
            if self.fail_at is not None and self.fail_at == len(copies):
                raise RuntimeError("the link is down")
            assert self.is_pinned(source if stream == "up" else target)
            copies.append((target, source, nbytes))
            self.log.append((stream, nbytes))
            if done is not None:
                done.stream, done.place = stream, len(copies)

    def run(self, stream, place):
        """Let all copies of a stream up to a place happen."""
        with self._lock:
            while self._ended[stream] < place:
                target, source, nbytes = self._copies[stream][self._ended[stream]]
                at(target, nbytes)[:] = at(source, nbytes)
                self._ended[stream] += 1

    def copy_up(self, address, source, nbytes):
        self.log.append(("copied up", nbytes))
        at(address, nbytes)[:] = at(source, nbytes)

    def copy_down(self, target, address, nbytes):
        self.log.append(("copied down", nbytes))
        self._after_kernels.append((target, address, nbytes))

    def await_kernels(self):
        self.kernels_are_new = False
        while self._after_kernels:
            target, address, nbytes = self._after_kernels.pop()
            at(target, nbytes)[:] = at(address, nbytes)

    def wait(self, done):
        done.synchronize()

    def await_downloads(self):
        self.run("down", len(self._copies["down"]))

    def synchronize(self):
        self.await_kernels()
        for stream, copies in self._copies.items():
            self.run(stream, len(copies))

    @property
    def moved(self):
        """The bytes that went each way."""
        return {stream: sum(nbytes for _target, _source, nbytes in copies)
                for stream, copies in self._copies.items()}
