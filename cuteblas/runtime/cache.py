"""The directory in which compiled kernels, and calls that have run, outlive a process.

A file is there as a whole or not at all, whatever other processes do; those that were read least recently are removed once a part
exceeds its capacity. Nothing of this imports more than the standard library: a process that finds here what it needs compiles
nothing and plans nothing.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, NamedTuple

__all__ = ["CAPACITY", "Part", "Store", "Usage", "cache_directory", "clear", "is_whole_cubin", "open_cache", "usage"]

CAPACITY = 1 << 30
"""Largest total size of the cached kernels, in bytes."""

_CALLS = 1 << 26                        # the same of calls
_WRITES = 32                            # of which one looks for files to remove


def cache_directory() -> Path:
    """``CUTEBLAS_CACHE_DIR``, else ``cuteblas`` in the platform's directory for caches. It need not exist."""
    if chosen := os.environ.get("CUTEBLAS_CACHE_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "cuteblas"


Part = Literal["entries", "calls", "emulator"]
"""The folders in the directory: ``entries`` has the kernels for GPUs, ``calls`` the launches of calls on GPUs, ``emulator`` the
libraries that the emulator built."""


class Store:
    """Files of a folder by name, which are written once.

    Parameters
    ----------
    folder : Path
        Created by the first file.
    capacity : int
        The most bytes that stay.
    """

    def __init__(self, folder: Path, capacity: int):
        self._folder, self._capacity = folder, capacity
        self._writes = 0

    def get(self, name: str) -> bytes | None:
        """The contents of a file, which counts as used; ``None`` if it is not there.

        Raises
        ------
        OSError
            If it cannot be read.
        """
        path = self._folder / name
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        with suppress(OSError):                             # of another user
            os.utime(path)
        return data

    def __setitem__(self, name: str, data: bytes) -> None:
        """Write a file.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as new:
            try:
                new.write(data)
                new.close()
                os.replace(new.name, self._folder / name)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new.name)
                raise
        if self._writes % _WRITES == 0:
            self._forget_the_oldest()
        self._writes += 1

    def _forget_the_oldest(self) -> None:
        files = []
        for path in self._folder.rglob("*"):
            with suppress(OSError):                         # another process removed it
                found = path.stat()
                if path.is_file():
                    files.append((found.st_mtime, found.st_size, path))
        excess = sum(size for _time, size, _path in files) - self._capacity
        for _time, size, path in sorted(files):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


@cache
def _store(directory: Path, part: Part) -> Store:
    return Store(directory / part, _CALLS if part == "calls" else CAPACITY)


def open_cache(part: Part = "entries") -> Store:
    """A part of :func:`cache_directory`."""
    return _store(cache_directory(), part)


class Usage(NamedTuple):
    """What a part of the cache holds."""

    files: int
    bytes: int


def _files(part: Part) -> list[Path]:
    return [path for path in (cache_directory() / part).rglob("*") if path.is_file()]


def usage(part: Part) -> Usage:
    """What a part of the cache holds."""
    files = _files(part)
    return Usage(len(files), sum(path.stat().st_size for path in files))


def clear(part: Part) -> int:
    """Remove every file of a part of the cache; returns how many there were."""
    files = _files(part)
    for path in files:
        path.unlink(missing_ok=True)
    return len(files)


def is_whole_cubin(data: bytes) -> bool:
    """Whether ``data`` is an ELF file that contains all of its program and section headers, so was not cut short.

    Entries carry no checksum, and a machine that loses power can leave one without its end, where the program headers are.
    """
    if len(data) < 64 or data[:4] != b"\x7fELF":
        return False
    program_headers, section_headers = struct.unpack_from("<QQ", data, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", data, 54)
    return max(program_headers + program_size * programs, section_headers + section_size * sections) <= len(data)
