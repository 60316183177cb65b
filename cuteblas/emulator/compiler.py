"""The host C++ compiler: finding it, and building shared libraries with a cache on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from .errors import CompilerError
from .progress import INTERVAL, show, watched

__all__ = ["available", "build", "why_unavailable"]

_FOLDER = Path(__file__).parent
_HEADERS = ("interface.h", "device.h", "split.h", "values.h", "../codegen/prelude/float8.cuh",
            "../codegen/prelude/modular.cuh")
_COMMON_FLAGS = ("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv",
                 "-Wno-psabi")


@cache
def _compiler() -> tuple[str, str] | None:
    """The compiler's path and version, or None. ``$CXX`` comes first if it is set."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        path = shutil.which(name)
        if path is None:
            continue
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return path, answer.stdout.splitlines()[0]
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
    commands = {"apt-get": "sudo apt-get install g++", "dnf": "sudo dnf install gcc-c++", "pacman": "sudo pacman -S gcc",
                "apk": "sudo apk add g++", "zypper": "sudo zypper install gcc-c++"}
    return next((command for tool, command in commands.items() if shutil.which(tool)), commands["apt-get"])


@cache
def _machine_flags() -> tuple[str, ...]:
    """Instruction sets of this processor that matter: fused multiply-add in one instruction, and wide integers for wgmma."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    try:
        features = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return ()
    return tuple(f"-m{feature}" for feature in ("fma", "avx2") if feature in features)


@cache
def _cache_folder() -> Path:
    """Where libraries are kept: ``$CUTEBLAS_CACHE_DIR``, the user's cache, or a temporary folder if neither can be written."""
    root = os.environ.get("CUTEBLAS_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cuteblas")
    folder = Path(root) / "emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="cuteblas-emulator-"))


@cache
def _header_digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"\0".join((_FOLDER / name).read_bytes() for name in names)).hexdigest()


def build(source: str, what: str, *, optimize: str = "-O1", headers: tuple[str, ...] = _HEADERS,
          flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Compile a C++ source into a shared library and load it.

    Parameters
    ----------
    source : str
        The translation unit; it may include the package's headers.
    what : str
        What is compiled, in words.
    optimize : str
        The compiler's level of optimization.
    headers : tuple of str
        The headers that the library depends on.
    flags : tuple of str
        More of the compiler's.

    Raises
    ------
    CompilerError
        If there is no compiler, or with the compiler's first lines if it refuses the source.
    """
    reason = why_unavailable()
    found = _compiler()
    if reason is not None or found is None:
        raise CompilerError(reason)
    path, version = found
    command = [path, *_COMMON_FLAGS, *flags, *_machine_flags(), optimize, "-w", f"-I{_FOLDER}"]
    key = hashlib.sha256("\0".join((source, _header_digest(headers), version, *command)).encode()).hexdigest()[:40]
    library = _cache_folder() / f"{key}.so"
    if not library.exists():
        _compile(command, source, library, what)
    return ctypes.CDLL(str(library))


def _compile(command: list[str], source: str, library: Path, what: str) -> None:
    """Compile into a temporary file beside the library and rename it: other processes see a whole library or none."""
    handle, temporary = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        code, said = _run([*command, "-x", "c++", "-", "-o", temporary, "-lm"], source, what)
        if code != 0:
            lines = "\n".join(said.splitlines()[:30])
            raise CompilerError(f"the C++ compiler refuses {what}:\n{lines}")
        os.replace(temporary, library)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _run(command: list[str], source: str, what: str) -> tuple[int, str]:
    """Run the compiler on a source: its exit status and what it says. Whatever ends the waiting (Ctrl-C) ends the compiler too."""
    # A session of its own: the driver and the compilers that it starts end together.
    with watched(), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     start_new_session=True) as compiler:
        pending: str | None = source
        try:
            while True:
                try:
                    _, said = compiler.communicate(pending, timeout=INTERVAL)
                    return compiler.returncode, said
                except subprocess.TimeoutExpired:
                    pending = None
                    show(f"compiling {what}")
        except BaseException:
            _end(compiler)
            raise


def _end(compiler: subprocess.Popen[str]) -> None:
    """End a compiler: asked to, it removes its temporary files."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(compiler.pid, number)
            compiler.wait(INTERVAL)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue
        return
