"""Grids of coloured cells with labels: what a picture shows, before anything has a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass

MOST = 64
"""Rows and columns of a grid that are drawn, at most; a note says what is left out."""


@dataclass(frozen=True)
class Cell:
    lines: tuple[str, ...]
    colour: str
    marked: bool = False


@dataclass(frozen=True)
class Grid:
    """A table of cells with lines at multiples of ``breaks``; notes with ``!`` are warnings."""

    title: str
    cells: tuple[tuple[Cell, ...], ...]
    breaks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    row_notes: tuple[str, ...] = ()
    column_notes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def grid_of(title: str, rows: int, columns: int, cell: Callable[[int, int], Cell],
            breaks: tuple[Sequence[int], Sequence[int]] = ((), ()),
            row_note: Callable[[int], str] | None = None,
            column_note: Callable[[int], str] | None = None, most: int = MOST) -> Grid:
    shown_rows, shown_columns = min(rows, most), min(columns, most)
    cells = tuple(tuple(cell(r, c) for c in range(shown_columns)) for r in range(shown_rows))
    cut = [f"{shown} of {of} {name}" for shown, of, name in ((shown_rows, rows, "rows"),
                                                             (shown_columns, columns, "columns"))
           if shown < of]
    said = f"{title + ': ' if title else ''}the first {' and '.join(cut)}"
    return Grid(title, cells, (tuple(breaks[0]), tuple(breaks[1])),
                tuple(map(row_note, range(shown_rows))) if row_note else (),
                tuple(map(column_note, range(shown_columns))) if column_note else (),
                (said,) if cut else ())


# -- colours of cells: light enough for dark text, whatever the background -------------------------
EMPTY = "#e4e7eb"
"""A cell without an owner."""

_SCALE = ((255, 244, 196), (196, 230, 170), (132, 205, 190), (140, 180, 236), (186, 160, 226))
_THREADS = ((242, 142, 142), (247, 184, 110), (238, 219, 98), (150, 209, 128),
            (108, 206, 192), (128, 182, 240), (184, 158, 240), (240, 164, 212))
_TINTS = (0.0, 0.35, 0.6, 0.8)


def _mix(a: tuple[int, ...], b: tuple[int, ...], share: float) -> str:
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))


def by_position(position: int, count: int) -> str:
    """The colour of the smallest (0) to the largest value: yellow, green, blue, violet."""
    at = position / max(1, count - 1) * (len(_SCALE) - 1)
    k = min(int(at), len(_SCALE) - 2)
    return _mix(_SCALE[k], _SCALE[k + 1], at - k)


def by_thread(thread: int) -> str:
    """Eight hues in four tints: the 32 threads of a warp differ, and warps look alike."""
    return _mix(_THREADS[thread % 8], (255, 255, 255), _TINTS[thread // 8 % 4])


def by_bank(bank: int, banks: int) -> str:
    return "#" + "".join(f"{round(255 * x):02x}" for x in hls_to_rgb(bank / banks, 0.8, 0.75))
