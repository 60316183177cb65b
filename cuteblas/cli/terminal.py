"""Text for terminals: colours, characters that can be shown, lines that fit, and progress."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill, wrap
from time import perf_counter
from typing import Any

Paint = Callable[[str, int], str]

_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
_NARROWEST, _WIDEST = 40, 100
_NAMES = 0.4                    # of the width, which names may have for themselves
_SECONDS = 5.0                  # between two lines of progress
_ENTRY = re.compile(r"  \S+(?: \S+)*  +(?=\S)")


def paint() -> Paint:
    """Colours on a terminal; plain text in files, pipes, dumb terminals, with ``NO_COLOR``."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return lambda text, number: text
    return lambda text, number: f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{text}\x1b[0m"


def columns() -> int:
    """Width to write for: the terminal's, between 40 and 100."""
    from shutil import get_terminal_size  # with all formats of archives

    return max(_NARROWEST, min(_WIDEST, get_terminal_size((_WIDEST, 24)).columns))


def wrapped(text: str) -> str:
    """Lines of a name and a text, wrapped so that the text keeps its edge where there is room."""
    lines, width = [], columns()
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        edge = max(4, entry.end() if entry else _indent(line))
        if edge > width * _NAMES:
            line, edge = f"{line[:edge].rstrip() or '  '}  {line[edge:]}", 4
        lines += wrap(line, width, subsequent_indent=" " * edge, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def reflowed(text: str) -> str:
    """Paragraphs wrapped for the terminal; lines that are indented begin where they did."""
    return "\n\n".join(wrapped(part) if part.startswith(" ") else fill(part, columns())
                       for part in text.split("\n\n"))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def side_by_side(pictures: Iterable[Sequence[str]]) -> list[str]:
    """Pictures of equal heights and straight edges next to each other."""
    return ["   ".join(lines).rstrip() for lines in zip(*pictures, strict=True)]


class Progress:
    """The progress of a number of steps on a terminal's stderr: tqdm's bar, or lines."""

    def __init__(self, what: str, total: int):
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
        """Note that so many steps are done."""
        self._done += steps
        now = perf_counter()
        if self._bar is not None:
            self._bar.update(steps)
        elif self._shown and now - self._written >= _SECONDS:
            self._written = now
            print(f"{self._what}: {self._done} of {self._total} after {now - self._start:.0f} s",
                  file=sys.stderr, flush=True)

    def print(self, line: str) -> None:
        """Print a line to stdout, above the bar."""
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line)


def _bar(what: str, total: int) -> Any:
    """A bar of tqdm, where that is installed and the terminal can write over a line."""
    if os.environ.get("TERM") == "dumb":
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(desc=what, total=total, file=sys.stderr, leave=False, dynamic_ncols=True)
