"""The host C++ compiler, its shared libraries with a cache on disk, and how long work is shown."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from .._cache import cache_directory, find, keep, usable_folder
from .errors import CompilerError

# -- progress of what takes long, on a terminal ----------------------------------------------------
INTERVAL = 0.1
"""Seconds between two updates of the line by the thread that waits."""

_QUIET = 0.5             # seconds before progress is shown
_ERASE = "\r\x1b[K"


class _Line(threading.local):
    """When this thread's outermost ``watched`` block began, and whether anything was written."""

    began: float | None = None
    written = False


_line = _Line()


@contextmanager
def watched() -> Iterator[None]:
    """Let :func:`show` write; the end of the outermost block erases it."""
    if _line.began is not None:
        yield
        return
    _line.began, _line.written = time.monotonic(), False
    try:
        yield
    finally:
        _line.began = None
        if _line.written:
            _write(_ERASE)


def show(text: str) -> None:
    """Show what is done, on a terminal and after half a second."""
    if _line.began is None or (seconds := time.monotonic()
                               - _line.began) < _QUIET or not _on_terminal():
        return
    _line.written = True
    said = f"cuteblas: {seconds:.0f} s {text}"
    # a line that wraps cannot be erased
    _write(_ERASE + said[:shutil.get_terminal_size().columns - 1])


def _on_terminal() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


# -- the compiler ----------------------------------------------------------------------------------
FOLDER = Path(__file__).parent
_HEADERS = ("interface.h", "device.h", "split.h", "values.h", "../codegen/prelude/float8.cuh",
            "../codegen/prelude/modular.cuh")
_COMMON_FLAGS = ("-O1", "-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden",
                 "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-Wno-psabi")
_PATIENCE = 10.0                        # seconds until a compiler has to have told its version


@cache
def _compiler() -> tuple[str, str] | None:
    """The compiler's path and version, or None. ``$CXX`` comes first if it is set."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        path = shutil.which(name)
        if path is None:
            continue
        with suppress(OSError, subprocess.TimeoutExpired):
            code, said, _ = _run([path, "--version"], "", f"asking {name} for its version",
                                 _PATIENCE)
            if code == 0 and said.strip():
                return path, said.strip().splitlines()[0]
    return None


def available() -> bool:
    """Whether kernels can run in the emulator on this machine.

    Returns
    -------
    bool
        Whether there is a compiler that works.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> emulator.available() == (emulator.why_unavailable() is None)
    True
    """
    return why_unavailable() is None


def why_unavailable() -> str | None:
    """What the emulator lacks on this machine and how to get it, or None if it lacks nothing.

    Returns
    -------
    str or None
        The reason.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> emulator.available() == (emulator.why_unavailable() is None)
    True
    """
    if sys.platform == "win32":
        return "the emulator needs Linux or macOS (on Windows: the Windows Subsystem for Linux)"
    if sys.maxsize < 2**32:
        return "the emulator needs a 64-bit Python"
    if _compiler() is None:
        command = "xcode-select --install" if sys.platform == "darwin" else _install_command()
        return f"the emulator needs a C++17 compiler and found none ($CXX, g++, clang++, c++); install one with: {command}"
    return None


def _install_command() -> str:
    commands = {"apt-get": "sudo apt-get install g++", "dnf": "sudo dnf install gcc-c++",
                "pacman": "sudo pacman -S gcc", "apk": "sudo apk add g++",
                "zypper": "sudo zypper install gcc-c++"}
    return next((command for tool, command in commands.items() if shutil.which(tool)),
                commands["apt-get"])


@cache
def _machine_flags() -> tuple[str, ...]:
    """Instruction sets that matter: fused multiply-add, and wide integers for wgmma."""
    try:
        facts = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ()
    features = facts.partition("flags")[2].partition("\n")[0].split()
    return tuple(f"-m{feature}" for feature in ("fma", "avx2") if feature in features)


@cache
def _header_digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"\0".join((FOLDER / name).read_bytes() for name in names)).hexdigest()


def build(source: str, what: str, *, headers: tuple[str, ...] = _HEADERS,
          flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Compile a C++ source, with the package's headers, into a shared library and load it."""
    reason = why_unavailable()
    found = _compiler()
    if reason is not None or found is None:
        raise CompilerError(reason)
    path, version = found
    command = [path, *_COMMON_FLAGS, *flags, *_machine_flags(), "-w", f"-I{FOLDER}"]
    key = hashlib.sha256("\0".join((source, _header_digest(headers), version,
                                    *command)).encode()).hexdigest()[:40]
    if (kept := find("emulator", key)) is not None:
        with suppress(CompilerError):           # of a machine whose libraries are newer
            return _load(kept, what, key)
    data = _compile(command, source, what)
    library = _load(data, what, key)
    keep("emulator", key, data)
    return library


def _compile(command: list[str], source: str, what: str) -> bytes:
    try:
        with TemporaryDirectory(prefix="cuteblas-", ignore_cleanup_errors=True) as place:
            library = Path(place, "library.so")
            code, _, said = _run([*command, "-x", "c++", "-", "-o", str(library), "-lm"], source,
                                 f"compiling {what}")
            if code != 0:
                lines = "\n".join(said.splitlines()[:30])
                raise CompilerError(f"the C++ compiler refuses {what}:\n{lines}")
            return library.read_bytes()
    except OSError as error:
        raise CompilerError(
            f"the C++ compiler did not write the library of {what}: {error}"
        ) from error


def _load(data: bytes, what: str, key: str) -> ctypes.CDLL:
    """Load a library from a file that nobody else can change; ``kept`` is in the cache."""
    # Where programs may not be in the folder of temporary files, the file is in the cache.
    for cached in (False, True):
        try:
            place = usable_folder("emulator") if cached else None
            with TemporaryDirectory(prefix="cuteblas-", dir=place,
                                    ignore_cleanup_errors=True) as folder:
                library = Path(folder, "library.so")
                library.write_bytes(data)
                loaded = ctypes.CDLL(str(library))
                with suppress(OSError):
                    loaded.kept = str(cache_directory() / "emulator" / key)  # type: ignore[attr-defined]
                return loaded
        except OSError as error:
            reason = error
    raise CompilerError(f"the library of {what} cannot be loaded: {reason}")


def _run(command: list[str], source: str, doing: str, seconds: float = inf) -> tuple[int, str, str]:
    """The compiler's exit status and output; whatever ends the waiting (Ctrl-C) ends it too."""
    # A session of its own: the driver and the compilers that it starts end together.
    end = time.monotonic() + seconds
    with watched(), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                     start_new_session=True) as compiler:
        pending: str | None = source
        try:
            while True:
                try:
                    said = compiler.communicate(pending, timeout=INTERVAL)
                    return compiler.returncode, *said
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        raise
                    pending = None
                    show(doing)
        except BaseException:
            _end(compiler)
            raise


def _end(compiler: subprocess.Popen[str]) -> None:
    """End a compiler: asked to, it removes its temporary files."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(compiler.pid, number)
                compiler.wait(INTERVAL)
            return
