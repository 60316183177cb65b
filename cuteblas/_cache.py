"""The directory in which compiled kernels, libraries and calls that have run outlive a process.

A file ends with a digest of its name and contents, and is there as a whole or not at all. Nothing
is read from or written to folders that other users could have written to. A part that exceeds its
capacity loses the files that were read least recently. What cannot be kept is made again by every
process, with one warning.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG, S_ISVTX
from tempfile import NamedTemporaryFile
from typing import Literal, NamedTuple

Part = Literal["entries", "calls", "choices", "emulator"]
"""Kernels for GPUs, launches of calls, plans that were timed, libraries of the emulator."""

CAPACITIES: dict[Part, int] = {"entries": 1 << 30, "calls": 1 << 26, "choices": 1 << 24,
                               "emulator": 1 << 30}
"""Largest total size of the files of a part, in bytes."""

_WRITES = 32                            # of which one looks for files to remove
_DIGEST_BYTES = 32
_writes: Counter[Path] = Counter()      # by the folder
_warned: list[OSError] = []


def cache_directory() -> Path:
    """``CUTEBLAS_CACHE_DIR``, else ``cuteblas`` in the platform's directory for caches."""
    return _absolute(user_directory("CUTEBLAS_CACHE_DIR", ("LOCALAPPDATA", "~/AppData/Local"),
                                    "~/Library/Caches", ("XDG_CACHE_HOME", "~/.cache")))


def user_directory(variable: str, windows: tuple[str, str], macos: str,
                   others: tuple[str, str]) -> str:
    """The folder that ``variable`` names, else ``cuteblas`` in the platform's directory;
    ``windows`` and ``others`` are (variable of that directory, default)."""
    chosen = os.environ.get(variable)
    if not chosen:
        base = macos
        if sys.platform != "darwin":
            name, usual = windows if sys.platform == "win32" else others
            base = os.environ.get(name, "")
            base = base if os.path.isabs(base) else usual         # as the specification of XDG says
        chosen = f"{base}/cuteblas"
    found = os.path.expanduser(chosen)
    if found.startswith("~"):
        raise FileNotFoundError(f"there is no home directory for {chosen}: set {variable}")
    return found


@cache
def _absolute(path: str) -> Path:
    """A path from the directory that is the current one when it is first asked for."""
    return Path(path).absolute()


def _is_anothers(found: os.stat_result, writers: int = 0o022) -> bool:
    """Whether a user besides this one and root owns a file or a folder, or can write to it."""
    return hasattr(os, "geteuid") and (found.st_uid not in (0, os.geteuid())
                                       or bool(found.st_mode & writers))


def _refuse(folder: Path) -> None:
    """Refuse a folder in which others can put files, or another folder in its place."""
    for i, path in enumerate((folder, *folder.parents, *folder.resolve().parents)):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = path.stat()
            sticky = i > 0 and found.st_mode & S_ISVTX       # nobody replaces there what others own
            if _is_anothers(found, 0 if sticky
                            else 0o022) if i < 2 else found.st_mode & 0o002 and not sticky:
                raise PermissionError(f"another user owns {path} or can write to it")


def find(part: Part, name: str) -> bytes | None:
    """A file's contents; ``None`` if it is missing, damaged, or others could have written it."""
    try:
        folder = cache_directory() / part
        _refuse(folder)
        path = folder / name
        found = path.stat()
        if not S_ISREG(found.st_mode) or found.st_size > CAPACITIES[part] or _is_anothers(found):
            return None
        data = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):                      # of root, or in a file system that is not writable
        os.utime(path)
    return _contents(name, data)


def _contents(name: str, file: bytes) -> bytes | None:
    data, digest = file[:-_DIGEST_BYTES], file[-_DIGEST_BYTES:]
    return data if digest == _digest(name, data) else None


def _digest(name: str, data: bytes) -> bytes:
    return sha256(name.encode() + b"\0" + data).digest()


def usable_folder(part: Part) -> Path:
    folder = cache_directory() / part
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(0o700, exist_ok=True)
    _refuse(folder)
    return folder


def keep(part: Part, name: str, data: bytes) -> None:
    """Write a file; warn, once, if that is not possible."""
    try:
        folder = _write(part, name, data)
    except OSError as error:
        if not _warned:
            _warned.append(error)
            warnings.warn(
                f"cuteblas cannot keep compiled kernels: the cache cannot be used ({error}); set CUTEBLAS_CACHE_DIR to a "
                f"folder of your own",
                RuntimeWarning,
                stacklevel=3
            )
        return
    if _writes[folder] % _WRITES == 0:
        _forget_the_oldest(part)
    _writes[folder] += 1


def _write(part: Part, name: str, data: bytes) -> Path:
    folder = usable_folder(part)
    with NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as new:
        try:
            new.write(data + _digest(name, data))
            new.close()
            os.replace(new.name, folder / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(new.name)
            raise
    return folder


def _forget_the_oldest(part: Part) -> None:
    files = sorted(_files(part))
    excess = sum(size for _time, size, _path in files) - CAPACITIES[part]
    for _time, size, path in files:
        if excess <= 0:
            break
        with suppress(OSError):
            path.unlink()
        excess -= size


def _files(part: Part) -> Iterator[tuple[float, int, Path]]:
    """When each file was used last, its size and path; other processes may remove some."""
    with suppress(OSError):
        for where, _folders, names in os.walk(cache_directory() / part):
            for path in (Path(where, name) for name in names):
                with suppress(FileNotFoundError):
                    found = path.lstat()
                    yield found.st_mtime, found.st_size, path


class Usage(NamedTuple):
    files: int
    bytes: int


def usage(part: Part) -> Usage:
    sizes = [size for _time, size, _path in _files(part)]
    return Usage(len(sizes), sum(sizes))


def clear(part: Part) -> int:
    removed = 0
    for _time, _size, path in [*_files(part)]:
        with suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return removed


# The emulator's libraries are for one machine.
_MEMBER = re.compile(r"\A(entries|calls|choices)/([0-9a-f]{64})\Z")
_ARCHITECTURE = slice(48, 50)           # of a cubin: one of these bytes, by the version of its form


def export_to(path: str, arch: str = "") -> int:
    """Write what is for GPUs (of one architecture) to an archive; return the number of files."""
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    with ZipFile(path, "w") as archive:
        for part in CAPACITIES:
            for name in sorted(file.name for _time, _size, file in _files(part)):
                member = f"{part}/{name}"
                if _MEMBER.match(member) and (data := find(part, name)) is not None and (
                        not arch or (int(arch[3:]) in data[_ARCHITECTURE] if part == "entries"
                                     else arch.encode() in data)):
                    archive.writestr(ZipInfo(member), data + _digest(name, data), ZIP_DEFLATED)
        return len(archive.namelist())


def import_from(path: str) -> int:
    """Keep all files of an archive of :func:`export_to`, or none; return how many there were."""
    from zipfile import ZipFile

    found = []
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > CAPACITIES["entries"]:
                raise ValueError
            for member in members:
                ((part, name),) = _MEMBER.findall(member.filename)
                if (data := _contents(name, archive.read(member))) is None:
                    raise ValueError
                found.append((part, name, data))
    except OSError:
        raise
    except Exception:                   # of zipfile, zlib, or whatever damage leads to
        raise ValueError(
            f"nothing was imported from {path}: it was damaged, holds more than the cache may, or `cache export` "
            "did not write it"
        ) from None
    for each in found:
        _write(*each)
    for part in CAPACITIES:
        _forget_the_oldest(part)
    return len(found)
