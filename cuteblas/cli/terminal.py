"""Text for terminals: colours where they are seen, characters that can be shown, lines that fit."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any

__all__ = ["Paint", "columns", "paint", "shaded", "side_by_side", "wrapped"]

Paint = Callable[[str, int], str]
"""Colours a text by a number."""

_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
_WIDEST = 100
_ENTRY = re.compile(r"  \S+(?: \S+)*  +(?=\S)")


def paint(stream: Any = None) -> Paint:
    """Colours on a terminal; text as it is in files and pipes, for a dumb terminal and where ``NO_COLOR`` is set."""
    stream = sys.stdout if stream is None else stream
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return lambda text, number: text
    return lambda text, number: f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{text}\x1b[0m"


def columns() -> int:
    """Width to write for: the terminal's, at most 100."""
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)


def wrapped(text: str, width: int | None = None) -> str:
    """Lines of two columns, a name and its text, wrapped so that the second column keeps its edge."""
    lines = []
    for line in text.splitlines():
        entry, blank = _ENTRY.match(line), len(line) - len(line.lstrip())
        lines += wrap(line, width or columns(), subsequent_indent=" " * (entry.end() if entry else max(4, blank)),
                      break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def shaded(image: Sequence[Sequence[float]], stream: Any = None) -> list[str]:
    """An image as lines of text, two characters for each pixel, the darkest where the value is largest."""
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None) or "ascii"
    shades = " ░▒▓█"
    try:
        shades.encode(encoding)
    except UnicodeEncodeError:
        shades = " .+#@"
    top = max((value for row in image for value in row), default=0) or 1
    return ["".join(2 * shades[round(max(0, value) / top * (len(shades) - 1))] for value in row) for row in image]


def side_by_side(pictures: Iterable[Sequence[str]], gap: int = 3) -> list[str]:
    """Pictures of equal heights and straight edges next to each other."""
    return [(" " * gap).join(lines).rstrip() for lines in zip(*pictures, strict=True)]
