"""The directory in which compiled kernels outlive a process.

``cuda.core`` owns the files: entries are written atomically, keyed by source, options, architecture and compiler version, and
dropped least recently read first once the directory exceeds :data:`CAPACITY`.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from .errors import require

__all__ = ["CAPACITY", "Part", "Usage", "cache_directory", "clear", "is_whole_cubin", "open_cache", "usage"]

CAPACITY = 1 << 30
"""Largest total size of the cached kernels, in bytes."""


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


@cache
def _open(directory: Path) -> MutableMapping[bytes, bytes]:
    return require("cuda.core.utils").FileStreamProgramCache(directory, max_size_bytes=CAPACITY)


def open_cache() -> MutableMapping[bytes, bytes]:
    """The program cache of :func:`cache_directory`; the directory is created.

    Raises
    ------
    OSError
        If the directory cannot be created or read.
    """
    return _open(cache_directory())


Part = Literal["entries", "emulator"]
"""The folders in the directory: ``entries`` has the kernels for GPUs, ``emulator`` the libraries that the emulator built."""


class Usage(NamedTuple):
    """What a part of the cache holds."""

    files: int
    bytes: int


def _files(part: Part) -> list[Path]:
    return [path for path in (cache_directory() / part).rglob("*") if path.is_file()]


def usage(part: Part) -> Usage:
    """What a part of the cache holds; works without ``cuda.core``."""
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
