"""The contents of a picture, before it is drawn: grids of coloured cells with labels, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import LayoutError

__all__ = ["MOST", "Cell", "Figure", "Grid", "grid_of"]

MOST = 64
"""Rows and columns of a grid that are drawn, at most; a note under the picture says what is left out."""


@dataclass(frozen=True)
class Cell:
    """One square of a grid.

    Attributes
    ----------
    lines : tuple of str
        Its text.
    colour : str
        ``#rrggbb``, light.
    marked : bool
        Drawn with a frame.
    """

    lines: tuple[str, ...]
    colour: str
    marked: bool = False


@dataclass(frozen=True)
class Grid:
    """A table of cells.

    Attributes
    ----------
    title : str
        Above it; may be empty.
    cells : tuple of tuples of Cell
        By rows.
    breaks : pair of tuples of int
        Extents of nested modes along rows and columns: lines are drawn at their multiples.
    row_notes, column_notes : tuple of str
        Right of each row and below each column; a note that begins with ``!`` is drawn as a warning, without it.
    """

    title: str
    cells: tuple[tuple[Cell, ...], ...]
    breaks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    row_notes: tuple[str, ...] = ()
    column_notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A picture of layouts, which a notebook displays.

    Attributes
    ----------
    title : str
        One line.
    panels : tuple of tuples of (Grid or None)
        Arranged as written, in rows; grids in a row or column share their cells' edges.
    notes : tuple of str
        Lines below.
    """

    title: str
    panels: tuple[tuple[Grid | None, ...], ...]
    notes: tuple[str, ...] = ()

    def svg(self) -> str:
        """The picture as a self-contained SVG document."""
        from .svg import render

        return render(self)

    def latex(self) -> str:
        """The picture as a LaTeX document of class ``standalone`` (TikZ)."""
        from .latex import render

        return render(self)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file whose name ends in ``.svg`` or ``.tex``."""
        path = Path(path)
        if path.suffix not in (".svg", ".tex"):
            raise LayoutError("save", f"a picture's file ends in .svg or .tex, not {path.suffix!r}", str(path))
        path.write_text(self.svg() if path.suffix == ".svg" else self.latex(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()


def grid_of(title: str, rows: int, columns: int, cell: Callable[[int, int], Cell],
            breaks: tuple[Sequence[int], Sequence[int]] = ((), ()), row_note: Callable[[int], str] | None = None,
            column_note: Callable[[int], str] | None = None, most: int = MOST) -> tuple[Grid, str]:
    """A grid of at most ``most`` rows and columns, and a sentence about what is left out (or nothing)."""
    shown_rows, shown_columns = min(rows, most), min(columns, most)
    cells = tuple(tuple(cell(r, c) for c in range(shown_columns)) for r in range(shown_rows))
    grid = Grid(title, cells, (tuple(breaks[0]), tuple(breaks[1])),
                tuple(map(row_note, range(shown_rows))) if row_note else (),
                tuple(map(column_note, range(shown_columns))) if column_note else ())
    cut = [f"{shown} of {of} {name}" for shown, of, name in ((shown_rows, rows, "rows"), (shown_columns, columns, "columns"))
           if shown < of]
    return grid, f"{title + ': ' if title else ''}the first {' and '.join(cut)}" if cut else ""
