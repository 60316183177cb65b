"""Progress of a long compilation or run: a line on a terminal's stderr, erased at the end."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERVAL", "show", "watched"]

INTERVAL = 0.1
"""Seconds between two updates of the line by the thread that waits."""

_PATIENCE = 0.5             # seconds before progress is shown
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
                               - _line.began) < _PATIENCE or not _on_terminal():
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
