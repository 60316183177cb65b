"""How commands begin and end: output of any text, a line for what went wrong, and the exit status.

0: done; 1: a result is wrong, or something cannot be had, read or written; 2: the command line is
not understood; 130: interrupted; 141: the reader of the output is gone.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn

from ..functions.signatures import PRECISIONS
from .terminal import columns, reflowed

PROGRAM = "cuteblas" if Path(sys.argv[0]).stem == "cuteblas" else "python -m cuteblas"

INTERRUPTED, UNREAD = 130, 141
# RuntimeError: CUDA's, the emulator's, RecursionError
_FAILURES = OSError, MemoryError, RuntimeError, ImportError


class CommandError(Exception):
    """A command cannot do what was requested; the message says why and what to do, in one line."""

    def __init__(self, message: object, status: int = 2):
        super().__init__(str(message))
        self.status = status


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """Let a command refuse what the library refuses by errors of these kinds, in one line."""
    try:
        yield
    except kinds as error:
        raise CommandError(" ".join(str(error).split())) from None


class Parser(ArgumentParser):
    """A parser whose description fits the terminal and whose errors are one line."""

    def __init__(self, prog: str, description: str | None):
        super().__init__(
            prog,
            formatter_class=lambda prog: RawDescriptionHelpFormatter(prog, width=columns()),
            description=reflowed(description or "")
        )

    def option(self, name: str, help: str, **how: Any) -> None:
        """Declare an option, with its value's word after a space, or a flag."""
        name, _, word = name.partition(" ")
        how = {**how, "metavar": word} if word else how or {"action": "store_true"}
        self.add_argument(name, help=help, **how)

    def precision(self) -> None:
        """Declare the option that names the algorithm of a product."""
        self.option("--precision NAME",
                    f"as in cuteblas.matmul, one of {', '.join(PRECISIONS)} (default: %(default)s)",
                    default="auto", choices=PRECISIONS)

    def print_help(self, file: Any = None) -> None:
        """Print the help, and say if that fails, unlike argparse."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


def command_line(program: str = "cuteblas") -> str:
    """The command of this process, as a shell takes it."""
    return shlex.join(["python", "-m", program, *sys.argv[1:]])


def print_about(about: Mapping[str, object]) -> None:
    for name, text in about.items():
        print(f"{name:<13}{text}")


def did_you_mean(word: str, known: Iterable[str], kind: str) -> str:
    """The known word that is nearest to a misspelt one, or all of them."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else f"the {kind} are {', '.join(known)}"


def positive(text: str) -> int:
    """A whole number from 1 on, as the ``type`` of an option."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def refuse_unwritable(*paths: str | os.PathLike[str] | None) -> None:
    """Check before the work whether files can be written after it."""
    for path in paths:
        if path is not None and (reason := _why_unwritable(Path(path))):
            raise CommandError(f"{os.fspath(path)!r} cannot be written: {reason}")


def _why_unwritable(path: Path) -> str | None:
    try:
        if path.is_dir():
            return "it is a directory"
        if not path.parent.is_dir():
            return f"there is no directory {os.fspath(path.parent)!r}"
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            return "permission denied"
    except OSError as error:                # a name that is too long
        return error.strerror
    return None


def ended(work: Callable[[], int]) -> int:
    """Do a command's work and return its exit status; its own mistakes keep their traceback."""
    _take_any_text()
    try:
        try:
            with _interruptible():
                status = work()
        finally:
            # a full disk or a closed pipe speaks here and not when the interpreter ends
            sys.stdout.flush()
    except BrokenPipeError:
        status = UNREAD
    except KeyboardInterrupt:
        status = INTERRUPTED
    except CommandError as error:
        status = _say(str(error), error.status)
    except _FAILURES as error:
        status = _say(_sentence(error), 1)
    finally:
        _drop_what_cannot_be_written()
    return status


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C; a ``KeyboardInterrupt`` through ``exec`` would end the interpreter by SIGINT."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise :class:`_Interrupted`, where it would raise ``KeyboardInterrupt``."""
    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise _Interrupted

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(sentence: str, status: int) -> int:
    with suppress(OSError):
        print(sentence, file=sys.stderr)
    return status


def _sentence(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {str(error) or 'the system has none to give'}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename!r}: {error.strerror}"
    return str(error) or type(error).__name__


def _take_any_text() -> None:
    """Write characters that the encoding lacks as escapes; what is closed takes all."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for as long as the process lives
        elif isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _drop_what_cannot_be_written() -> None:
    """Let the interpreter flush what is left for a closed pipe or a full disk into nothing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
