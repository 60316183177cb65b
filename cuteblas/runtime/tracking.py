"""Whether host memory was written: Linux tracks pages; elsewhere :class:`Hashes` are compared.

The first write to a *protected* page costs some 2 us and marks it. Devices leave no marks: a read
with ``O_DIRECT`` marks pages before its data arrive, so :meth:`Watch.written` protects only bytes
that its caller reads next; and callers leave out memory that stays pinned.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from threading import RLock
from typing import Any

import numpy as np

from .._forks import surviving

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}  # the number of the system call
_FLAGS = getattr(os, "O_CLOEXEC", 0) | 1        # for faults in user mode: the kernel asks for no
                                                # privilege
_FAULTS, _FEATURES = 0xAA, 1 << 15 | 1 << 13    # asynchronous, and for pages that are not there yet
# without the sizes of arguments
_START, _REGISTER, _UNREGISTER, _PROTECT = 0xC000AA3F, 0xC000AA00, 0x8000AA01, 0xC000AA06
_SCAN, _MAPPING = 0xC0006610, 0xC0006611
_CHECKS, _PROTECTS, _WRITTEN = 2, 1, 2                  # flags of a scan, and what it looks for
_SHARED, _NAME_BYTES, _STACK = 8, 256, b"[stack]"       # of a mapping
_PAGE_BYTES, _PART_BYTES = mmap.PAGESIZE, 2 << 20
_MOST_EDGES = 64                                        # pages
_RUNS = np.empty((1024, 3), np.int64)                   # of one scan
_RUNS_ADDRESS = _RUNS.ctypes.data

_lock = surviving(RLock())
_watches: set[Watch] = set()
_opened: tuple[int, ...] | str = ()                 # userfaultfd and pagemap, or why there are none


class Untracked(RuntimeError):
    """Linux does not see writes to this memory, or to none on this machine."""


@cache
def _libc() -> ctypes.PyDLL:
    # it keeps the interpreter's lock for these microseconds
    library = ctypes.PyDLL(None, use_errno=True)
    library.ioctl.argtypes = ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p
    library.msync.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return library


def _checked(status: int) -> int:
    if status < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return status


def _ask(descriptor: int, request: int, *words: int) -> Any:
    given = (ctypes.c_int64 * len(words))(*words)
    return _checked(_libc().ioctl(descriptor, request | ctypes.sizeof(given) << 16, given)), given


def _descriptors() -> tuple[int, ...]:
    """The descriptors of userfaultfd and pagemap, opened once; with the lock."""
    global _opened
    if not _opened:
        try:
            if sys.platform != "linux":
                raise KeyError
            faults = _checked(_libc().syscall(_USERFAULTFD[platform.machine()], _FLAGS))
            _opened = faults, os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            _ask(faults, _START, _FAULTS, _FEATURES, 0)
        except KeyError:
            _opened = f"only Linux on x86-64 and AArch64 tracks writes; this is {sys.platform} on {platform.machine()}"
        except OSError as error:
            _forget()
            _opened = (
                f"this process cannot track writes ({error.strerror}): it needs Linux 6.7 or newer, and a seccomp profile "
                f"that allows userfaultfd, which Docker's does not"
            )
    if isinstance(_opened, str):
        raise Untracked(_opened)
    return _opened


def why_untracked() -> str | None:
    """Why writes cannot be tracked here; ``None`` if they can. The first call tries it."""
    with _lock, suppress(Untracked):
        _descriptors()
    return _opened if isinstance(_opened, str) else None


def _is_own(low: int, high: int) -> bool:
    """Whether nobody else writes to memory: private, anonymous, mapped, and not a stack."""
    with suppress(OSError), open("/proc/self/maps", "rb", buffering=0) as maps:
        with suppress(OSError):             # Linux 6.11 and newer; it refuses files with long names
            while low < high:
                name = ctypes.create_string_buffer(_NAME_BYTES)
                words = _ask(maps.fileno(), _MAPPING, 104, 0, low, *[0] * 7, _NAME_BYTES,
                             ctypes.addressof(name), 0)[1]
                if words[5] & _SHARED or words[8] or name.value == _STACK:
                    return False
                low = words[4]
            return True
        for line in maps.read().splitlines():
            span, access, _offset, _device, inode, *names = line.split(None, 5)
            start, end = (int(x, 16) for x in span.split(b"-"))
            if start <= low < end and access.endswith(b"p") and inode == b"0" and names != [_STACK]:
                low = end
    return low >= high


class Watch:
    """Memory whose pages the kernel protects; bytes of partial pages at its ends are compared.
    ``bytes_written`` are those of pages that were found written and protected again."""

    def __init__(self, low: int, high: int):
        self.low, self.high, self.bytes_written = low, high, 0
        start, end = -(-low // _PAGE_BYTES) * _PAGE_BYTES, high // _PAGE_BYTES * _PAGE_BYTES
        start, end = self._pages = (start, end) if start < end else (low, low)
        self._edges: dict[int, bytes] = {}              # by page
        with _lock:
            faults = _descriptors()[0]
            if not _is_own(start, end):
                raise Untracked(
                    "memory of a file, shared memory, a stack or what is not mapped is not tracked"
                )
            for other in _overlapping(start, end):
                # its memory may be another's by now, which it would not see later
                other._look(*other._pages, False)
            self._peers = _overlapping(start, end)
            # which others may have protected, and the bytes of each that were reported since
            self._parts = dict.fromkeys(range(low // _PART_BYTES, -(-high // _PART_BYTES))
                                        if self._peers else (), (0, 0))
            for peer in self._peers:
                peer._peers.append(self)
            _watches.add(self)          # a peer that ends from here on leaves its pages as they are
            try:
                if start < end:
                    _ask(faults, _REGISTER, start, end - start, 2, 0)
                    if not self._peers:
                        # not, what one that has ended left protected
                        _ask(faults, _PROTECT, start, end - start, 0)
            except OSError as error:
                self.end()
                raise Untracked(
                    f"the kernel does not track writes to this memory: {error.strerror}"
                ) from None

    def moving(self, low: int, high: int) -> np.ndarray | None:
        """Where hashes of these bytes go, which are about to move: nowhere."""

    def protect(self) -> None:
        """See writes from now on, and forget earlier ones. Call it before reading the memory."""
        self.written(again=True)

    def written(self, low: int = 0, high: int = 0,
                again: bool = False) -> list[tuple[int, int]] | None:
        """Merged spans of 2 MiB, or pages at ends, written since protection, or ``None``."""
        # Only the bytes asked for: a device may be writing to others. ``again`` protects what was
        # written in the same step, so that no write is missed. ``None``: memory was unmapped or
        # moved, or this is a child of ``fork``.
        low, high = max(low, self.low), min(high or self.high, self.high)
        with _lock:
            parts, found = self._look(low, high, again), []
            if self not in _watches:
                return None
            for part in parts | self._parts.keys():
                first, last = max(part * _PART_BYTES, self.low), min((part + 1) * _PART_BYTES,
                                                                     self.high)
                start, end = max(first, low), min(last, high)
                known = self._parts.get(part, (0, 0))
                if start < end and (part in parts or start < known[0] or known[1] < end):
                    found.append((start, end))
                    if again and part in self._parts:
                        self._parts[part] = start, end
                        if (start, end) == (first, last):
                            del self._parts[part]
            if again and (found or len(self._edges) > _MOST_EDGES):
                self._edges = {}                        # a part that moves may have some of them
            for page in {low // _PAGE_BYTES * _PAGE_BYTES, high // _PAGE_BYTES * _PAGE_BYTES}:
                start, end = max(page, self.low), min(page + _PAGE_BYTES, self.high)
                if page < low or page < high < page + _PAGE_BYTES:
                    now = ctypes.string_at(start, end - start)
                    if now != self._edges.get(page):
                        found.append((start, end))
                        if again:
                            self._edges[page] = now
        return _merged(sorted(found))

    def end(self) -> None:
        """Give up the pages: writes to them cost nothing, unless another watch has them."""
        with _lock:
            if self in _watches:
                _watches.remove(self)
                for peer in self._peers:
                    peer._peers.remove(self)
                if not self._peers:
                    with suppress(OSError):             # memory that is gone
                        _ask(_descriptors()[0], _UNREGISTER, self._pages[0],
                             self._pages[1] - self._pages[0])

    def _look(self, low: int, high: int, protects: bool) -> set[int]:
        """The parts whose whole pages were written; all end if a page is not tracked any more."""
        parts: set[int] = set()
        end, position = high // _PAGE_BYTES * _PAGE_BYTES, -(-low // _PAGE_BYTES) * _PAGE_BYTES
        try:
            while self in _watches and position < end:
                many, words = _ask(_descriptors()[1], _SCAN, 96, _CHECKS | protects * _PROTECTS,
                                   position, end, 0, _RUNS_ADDRESS, len(_RUNS), 0, 0, _WRITTEN, 0,
                                   _WRITTEN)
                position = words[4]
                if many:
                    self.bytes_written += protects * int((_RUNS[:many, 1] - _RUNS[:many, 0]).sum())
                    runs = ((_RUNS[:many, :2] - (0, 1)) // _PART_BYTES).tolist()
                    parts.update(part for first, last in {*map(tuple, runs)}
                                 for part in range(first, last + 1))
            _check_mapped(low, high)                    # a scan passes over what is not
            for peer in self._peers if protects else ():
                peer._parts |= dict.fromkeys(parts, (0, 0))
        # an interrupt, too, after which nobody knows what was written
        except BaseException as error:
            for watch in [self, *self._peers]:
                watch.end()
            if not isinstance(error, OSError):
                raise
        return parts


class Hashes:
    """Hashes of parts since they moved, in place of a :class:`Watch`; they see any write."""

    def __init__(self, low: int, high: int, hashes: Callable[[int, int], np.ndarray],
                 part_bytes: int):
        self.low, self.high, self.bytes_written = low, high, 0
        self._hashes, self._part_bytes = hashes, part_bytes
        self._known = np.zeros((-(-(high - low) // part_bytes), 4), np.uint64)  # 0: it has none

    def moving(self, low: int, high: int) -> np.ndarray:
        """Where hashes of these parts go, which are about to move."""
        return self._known[(low - self.low) // self._part_bytes:][
            :-(-(high - low) // self._part_bytes)]

    def protect(self) -> None:
        """Hash the memory, a copy of which is elsewhere."""
        self._known[:] = self._hashed(self.low, self.high)

    def written(self, low: int = 0, high: int = 0,
                again: bool = False) -> list[tuple[int, int]] | None:
        """As :meth:`Watch.written`, in whole parts, which ``again`` leaves without a hash."""
        low, high = max(low, self.low), min(high or self.high, self.high)
        low -= (low - self.low) % self._part_bytes
        high = min(high + (self.low - high) % self._part_bytes, self.high)
        known = self.moving(low, high)
        try:
            differs = (known != (self._hashed(low, high) if known.any() else 1)).any(1)
        except OSError:
            return None
        if again:
            known[differs] = 0
        return _merged((start, min(start + self._part_bytes, high))
                       for start in (low + np.flatnonzero(differs) * self._part_bytes).tolist())

    def end(self) -> None:
        """Nothing: writes cost nothing."""

    def _hashed(self, low: int, high: int) -> np.ndarray:
        _check_mapped(low, high)
        return self._hashes(low, high)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        merged.append((merged.pop()[0] if merged and merged[-1][1] >= start else start, end))
    return merged


def _check_mapped(low: int, high: int) -> None:
    low = low // _PAGE_BYTES * _PAGE_BYTES
    _checked(_libc().msync(low, high - low, 1))


def _overlapping(low: int, high: int) -> list[Watch]:
    return [watch for watch in _watches if watch._pages[0] < high and low < watch._pages[1]]


def _forget() -> None:
    """Close the descriptors; in a child of ``fork`` they are those of its parent's memory."""
    global _opened
    if not isinstance(_opened, str):
        for descriptor in _opened:
            os.close(descriptor)
        _opened = ()
    _watches.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
