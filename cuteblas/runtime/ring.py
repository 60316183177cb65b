"""Pinned slots and threads that fill and empty them, without a compiler for those of
:mod:`.mover`.

A thread packs a piece into a slot, begins its recorded copy, and who takes the slot next waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Barrier, RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..planning.streaming import boxes

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

SLOT_BYTES = 4 << 20
_MOST_THREADS = 12               # with more, they wait for each other
_PIECES = 4                      # of a transfer that is alone; the driver takes some 20 us for each
_LEAST_PIECE = 2 << 20           # bytes
_INLINE_BYTES = 1 << 20          # what one thread has copied before another has been woken


def processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Piece(NamedTuple):
    """A part of a host array, at most a slot long, and its device address, without gaps there."""

    array: np.ndarray
    address: int


class _Slot:
    """Pinned memory, and when the last copy from it has ended."""

    __slots__ = ("address", "done", "memory", "used")

    def __init__(self, memory: np.ndarray, done: Any):
        self.memory, self.address, self.done, self.used = memory, memory.ctypes.data, done, False

    def like(self, x: np.ndarray) -> np.ndarray:
        """The beginning of the memory as an array like ``x``, in the machine's byte order."""
        return np.ndarray(x.shape, x.dtype.newbyteorder("="), self.memory)


class Transfer:
    """Pieces on their way: uploads until handed to their stream, results until in their arrays."""

    __slots__ = ("_begun", "_kept")

    def __init__(self, threads: ThreadPoolExecutor, pieces: Sequence[Callable[[], None]],
                 kept: Any = None):
        self._kept = kept
        try:
            self._begun = [(threads.submit(move), move) for move in pieces]
        except RuntimeError:                            # the program has ended, and its threads
            self._begun = []
            for move in pieces:
                move()

    def wait(self, helps: bool = False) -> None:
        """Wait for all pieces; a caller that helps moves some of them."""
        try:
            for moving, move in reversed(self._begun) if helps else ():
                if moving.cancel():
                    move()
            for moving, _move in self._begun:
                if not moving.cancelled():
                    moving.result()
        except Exception:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Drop what has not begun and wait for what has, even if that is interrupted."""
        while left := [moving for moving, _move in self._begun
                       if not (moving.cancel() or moving.done())]:
            with suppress(KeyboardInterrupt):
                left[0].exception()


class Ring:
    """Slots and threads of one device until :meth:`close`; ``lock`` is the call's on the link."""

    def __init__(self, link: Any, threads: int | None = None, slot_bytes: int = SLOT_BYTES):
        self.link, self.slot_bytes = link, slot_bytes
        self.lock = RLock()
        self.threads = min(processors(), _MOST_THREADS) if threads is None else threads
        count = self.threads + max(2, self.threads // 2)
        self._filled, self._emptied = (self._slots(count) for _ in range(2))
        self._uploads, self._downloads = map(self._pool, ("upload", "download"))

    def _pool(self, name: str) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(self.threads, f"cuteblas {name}", self.link.enter_thread)
        begin = Barrier(self.threads)                   # all of them, on the processors of this one
        for _ in range(self.threads):
            pool.submit(begin.wait)
        return pool

    def _slots(self, count: int) -> SimpleQueue[_Slot]:
        slots: SimpleQueue[_Slot] = SimpleQueue()
        memory = self.link.pinned(count * self.slot_bytes)
        for i in range(count):
            slots.put(_Slot(memory[i * self.slot_bytes:(i + 1) * self.slot_bytes],
                            self.link.event()))
        return slots

    def upload(self, x: np.ndarray, address: int, streams: bool = False,
               _hashes: Any = None) -> Transfer:
        """Begin to copy elements to the device; ``streams``: others follow soon."""
        return self._transfer(self._uploads, self._upload, self._pieces(x, address, streams))

    def download(self, x: np.ndarray, address: int, kept: Any = None,
                 streams: bool = False) -> Transfer:
        """Begin to copy into an array; ``kept`` lives as long as the transfer."""
        return self._transfer(self._downloads, self._download, self._pieces(x, address, streams),
                              kept)

    def _transfer(self, threads: ThreadPoolExecutor, move: Callable[..., None],
                  pieces: Sequence[_Piece], kept: Any = None) -> Transfer:
        """Move pieces; short ones are moved when this returns."""
        if sum(piece.array.nbytes for piece in pieces) <= _INLINE_BYTES:
            for piece in pieces:
                move(piece, True)
            pieces = ()
        return Transfer(threads, [partial(move, piece, False) for piece in pieces], kept)

    def _pieces(self, x: np.ndarray, address: int, streams: bool) -> list[_Piece]:
        """An array in pieces: fewer if it is alone, of which several threads have one."""
        most = self.slot_bytes if streams else min(self.slot_bytes,
                                                   max(-(-x.nbytes // _PIECES), _LEAST_PIECE))
        return [_Piece(x[(*box, ...)], address + offset)
                for box, offset in boxes(x.shape, x.itemsize, most)] if x.size else []

    def _upload(self, piece: _Piece, _polls: bool) -> None:
        slot = self._filled.get()
        try:
            if slot.used:
                self.link.wait(slot.done)
            x = piece.array
            np.copyto(slot.like(x), x)
            self.link.upload(piece.address, slot.address, x.nbytes, slot.done)
            slot.used = True
        finally:
            self._filled.put(slot)

    def _download(self, piece: _Piece, polls: bool) -> None:
        """Download a piece; ``polls`` is quicker and keeps the processor busy."""
        slot = self._emptied.get()
        try:
            x = piece.array
            self.link.download(slot.address, piece.address, x.nbytes, None if polls else slot.done)
            if polls:
                self.link.await_downloads()
            else:
                self.link.wait(slot.done)
            np.copyto(x, slot.like(x))
        finally:
            self._emptied.put(slot)

    def close(self) -> None:
        """End the threads and free the slots; nothing is on its way."""
        self._uploads.shutdown()
        self._downloads.shutdown()
