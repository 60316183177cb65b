"""Progress of a long command on stderr, if it is a terminal: tqdm's bar, or a line now and
then."""

from __future__ import annotations

import os
import sys
from time import perf_counter
from typing import Any

__all__ = ["Progress"]

_SECONDS = 5.0                  # between two lines


class Progress:
    """The progress of a number of steps; a context manager."""

    def __init__(self, what: str, total: int | None = None):
        self._what, self._total, self._done = what, total, 0
        self._start = self._written = perf_counter()
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = _bar(what, total) if self._shown else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = perf_counter()
        if self._bar is not None:
            self._bar.update(steps)
        elif self._shown and now - self._written >= _SECONDS:
            self._written = now
            of = f" of {self._total}" if self._total else ""
            print(f"{self._what}: {self._done}{of} after {now - self._start:.0f} s",
                  file=sys.stderr, flush=True)

    def print(self, line: str) -> None:
        """Print a line to stdout, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(line, flush=True)
        if self._bar is not None:
            self._bar.refresh()


def _bar(what: str, total: int | None) -> Any:
    """A bar of tqdm, where that is installed and the terminal can write over a line."""
    if os.environ.get("TERM") == "dumb":
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(desc=what, total=total, file=sys.stderr, leave=False, dynamic_ncols=True)
