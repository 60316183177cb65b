"""Pictures of grids side by side, which write themselves as SVG and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import LayoutError
from .grids import Grid
from .latex import render as latex_of
from .scene import Scene, scene_of
from .svg import render as svg_of


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

    Examples
    --------
    >>> figure = layout_picture(Layout((4, 8), (8, 1)))
    >>> figure.title, figure.svg()[:4]
    ('(4,8):(8,1)', '<svg')
    """

    title: str
    panels: tuple[tuple[Grid | None, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, panels: tuple[tuple[Grid | None, ...], ...], *notes: str) -> Figure:
        """A figure of grids, with notes of its own and theirs, each once."""
        theirs = (note for row in panels for grid in row if grid for note in grid.notes)
        return cls(title, panels, tuple(dict.fromkeys((*notes, *theirs))))

    def scene(self) -> Scene:
        """Rectangles, lines and labels with their positions."""
        return scene_of(self.title, self.panels, self.notes)

    def svg(self) -> str:
        """The picture as a self-contained SVG document."""
        return svg_of(self.scene())

    def latex(self) -> str:
        """The picture as a LaTeX document of class ``standalone`` (TikZ)."""
        return latex_of(self.scene())

    def save(self, path: str | Path) -> None:
        """Write the picture to a file whose name ends in ``.svg`` or ``.tex``."""
        path = Path(path)
        if path.suffix not in (".svg", ".tex"):
            raise LayoutError("save", f"a picture's file ends in .svg or .tex, not {path.suffix!r}",
                              str(path))
        path.write_text(self.svg() if path.suffix == ".svg" else self.latex(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()
