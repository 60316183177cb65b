"""A figure as rectangles, lines and labels, in pixels of 1/96 inch; y grows downwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Literal

from .grids import Grid

CELL_FONT, AXIS_FONT, TITLE_FONT = 11, 10, 13
_CHARACTER = 0.6                                         # width of a character by font size
_LINE, _PAD, _GAP, _MARGIN = 13, 5, 26, 14
_NARROWEST = 420                                     # notes may be this wide under a narrow picture

Style = Literal["cell", "axis", "warning", "title", "note"]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    colour: str
    marked: bool


@dataclass(frozen=True)
class Rule:
    x1: float
    y1: float
    x2: float
    y2: float
    thickness: float


@dataclass(frozen=True)
class Label:
    """A line of text; ``y`` is its middle."""

    x: float
    y: float
    text: str
    font: int
    anchor: Anchor
    style: Style


@dataclass
class Scene:
    title: str
    width: float = 0
    height: float = 0
    rectangles: list[Rectangle] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)


def _text_width(text: str, font: int) -> float:
    return len(text) * font * _CHARACTER


_Span = tuple[float, float, float]
"""Space before, inside and after the cells of a grid."""


def _spans(grid: Grid, width: float, height: float) -> tuple[_Span, _Span]:
    """The space of a grid across and down, for cells of a width and a height."""
    rows = len(grid.cells)
    notes = max((_text_width(note.removeprefix("!"), AXIS_FONT) for note in grid.row_notes),
                default=0)
    across = (_text_width(str(max(rows - 1, 0)), AXIS_FONT) + 8, _columns(grid) * width,
              notes + 8 if notes else 0)
    return across, (18 + (18 if grid.title else 0), rows * height, 18 if grid.column_notes else 0)


def scene_of(title: str, panels: Sequence[Sequence[Grid | None]], notes: Sequence[str]) -> Scene:
    """Place everything; cells are of one size, so that grids of a row or column line up."""
    grids = [grid for row in panels for grid in row if grid is not None]
    cells = [cell for grid in grids for row in grid.cells for cell in row]
    height = max((len(cell.lines) for cell in cells), default=1) * _LINE + 2 * _PAD
    texts = [_text_width(line, CELL_FONT) for cell in cells for line in cell.lines]
    texts += [_text_width(note.removeprefix("!"), AXIS_FONT) for grid in grids
              for note in grid.column_notes]
    width = float(round(max(height, *(text + 2 * _PAD for text in texts), 0)))

    scene = Scene(title)
    top: float = _MARGIN
    if title:
        scene.labels.append(Label(_MARGIN, top + 9, title, TITLE_FONT, "start", "title"))
        top += 30
    spans = [[grid and _spans(grid, width, height) for grid in row] for row in panels]
    rows = [_largest([span[1] for span in row if span]) for row in spans]
    columns = [_largest([span[0] for span in column if span])
               for column in zip(*spans, strict=True)]
    y = top
    right: float = _MARGIN
    for row, (before, inside, after) in zip(panels, rows, strict=True):
        y += before
        x: float = _MARGIN
        for grid, (left, cells_wide, notes_wide) in zip(row, columns, strict=True):
            x += left
            if grid is not None:
                _place(scene, grid, x, y, width, height)
            x += cells_wide + notes_wide
            right = max(right, x)
            x += _GAP
        y += inside + after + _GAP
    y -= _GAP
    right = max(right, *(_MARGIN + _text_width(g.title, CELL_FONT) for g in grids),
                _MARGIN + _text_width(title, TITLE_FONT))
    if notes:
        y += 12
    for note in notes:
        for line in wrap(note, int(max(right - _MARGIN, _NARROWEST) / (AXIS_FONT * _CHARACTER))):
            scene.labels.append(Label(_MARGIN, y + 8, line, AXIS_FONT, "start", "note"))
            right = max(right, _MARGIN + _text_width(line, AXIS_FONT))
            y += 16
    scene.width, scene.height = float(round(right + _MARGIN)), float(round(y + _MARGIN))
    return scene


def _columns(grid: Grid) -> int:
    return max((len(row) for row in grid.cells), default=0)


def _largest(spans: list[_Span]) -> _Span:
    return tuple(map(max, zip(*spans, strict=True))) if spans else (0, 0, 0)


def _place(scene: Scene, grid: Grid, x: float, y: float, width: float, height: float) -> None:
    """Draw a grid whose first cell has its upper left corner at (x, y)."""
    rows, columns = len(grid.cells), _columns(grid)
    if grid.title:
        scene.labels.append(Label(x, y - 27, grid.title, CELL_FONT, "start", "title"))
    for c in range(columns):
        scene.labels.append(Label(x + (c + 0.5) * width, y - 9, str(c), AXIS_FONT, "middle",
                                  "axis"))
    for r, row in enumerate(grid.cells):
        scene.labels.append(Label(x - 6, y + (r + 0.5) * height, str(r), AXIS_FONT, "end", "axis"))
        for c, cell in enumerate(row):
            left, top = x + c * width, y + r * height
            scene.rectangles.append(Rectangle(left, top, width, height, cell.colour, cell.marked))
            first = top + height / 2 - (len(cell.lines) - 1) * _LINE / 2
            for k, text in enumerate(cell.lines):
                scene.labels.append(Label(left + width / 2, first + k * _LINE, text, CELL_FONT,
                                          "middle", "cell"))
    for i in range(1, rows):
        if depth := sum(i % extent == 0 for extent in grid.breaks[0]):
            scene.rules.append(Rule(x, y + i * height, x + columns * width, y + i * height, depth))
    for i in range(1, columns):
        if depth := sum(i % extent == 0 for extent in grid.breaks[1]):
            scene.rules.append(Rule(x + i * width, y, x + i * width, y + rows * height, depth))
    for r, note in enumerate(grid.row_notes):
        scene.labels.append(_note(note, x + columns * width + 6, y + (r + 0.5) * height, "start"))
    for c, note in enumerate(grid.column_notes):
        scene.labels.append(_note(note, x + (c + 0.5) * width, y + rows * height + 10, "middle"))


def _note(note: str, x: float, y: float, anchor: Anchor) -> Label:
    return Label(x, y, note.removeprefix("!"), AXIS_FONT, anchor,
                 "warning" if note.startswith("!") else "axis")
