"""Grids of coloured cells with labels: what a picture shows, before anything has a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
