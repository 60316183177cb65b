"""Layouts, thread-value layouts, swizzles, copies and matrix instructions as grids of cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..banks import BANKS, bank_of, bank_report, lanes_together, meeting
from ..checks import Domain, checked, inttuple
from ..core import Layout
from ..errors import LayoutError, described, spell
from ..inttuple import leaves, product_of
from ..swizzle import ComposedLayout
from ..tensor import CoordinateIterator, CountingIterator, Tensor
from ..tiling import shown_extents, tile_extents, tv_owners
from .figure import Figure
from .grids import EMPTY, MOST, Cell, Grid, by_bank, by_position, by_thread, grid_of

_NOTEBOOK = 32                                      # rows and columns that a layout shows of itself


# -- layouts ---------------------------------------------------------------------------------------
def _extents(x: Any) -> tuple[int, int]:
    """Rows and columns: mode 0, and all other modes counted together. A single mode is a row."""
    rows, n = shown_extents(x, "draw", "drawn")
    if n == 0:
        raise LayoutError("draw", "there are no elements to draw", x)
    return rows, n // rows


def _breaks(shape: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where nested modes begin along rows and columns."""
    first, rest = (shape[0], shape[1:]) if isinstance(shape, tuple) and len(shape) > 1 else (1, shape)
    return _steps(first), _steps(rest)


def _steps(shape: Any) -> tuple[int, ...]:
    steps, n = [], 1
    for extent in leaves(shape)[:-1]:
        n *= extent
        if n > 1 and n not in steps and n != product_of(shape):
            steps.append(n)
    return tuple(steps)


def layout_picture(x: Any, title: str | None = None, most: int = MOST) -> Figure:
    """The table of a layout's values, coloured from the smallest to the largest; of a tensor, its
    elements.

    Parameters
    ----------
    x : Layout, ComposedLayout or Tensor
        Mode 0 runs down, the others, counted together, to the right. Lines separate nested modes.
    title : str, optional
        CuTe's text of the layout by default.
    most : int
        Rows and columns that are drawn, at most.

    Returns
    -------
    Figure
        The picture.

    Examples
    --------
    >>> layout_picture(Layout((4, 8), (8, 1))).svg()[:4]
    '<svg'
    """
    rows, columns = _extents(x)
    layout = x.layout if isinstance(x, Tensor) else x
    shows = x if isinstance(x, Tensor) and isinstance(x.engine,
                                                      (CountingIterator,
                                                       CoordinateIterator)) else layout
    places = _places([layout(r + rows * c) for c in range(min(columns, most))
                      for r in range(min(rows, most))])

    def cell(r: int, c: int) -> Cell:
        i = r + rows * c
        return Cell((str(shows(i)),), by_position(places[layout(i)], len(places)))

    grid = grid_of("", rows, columns, cell, _breaks(x.shape), most=most)
    return Figure.of(str(x) if title is None else title, ((grid,),))


def _places(values: list) -> dict[Any, int]:
    """The rank of every value; coordinates and symbols have the order in which they appear."""
    distinct = dict.fromkeys(values)
    return {value: i for i, value in enumerate(sorted(distinct)
                                               if all(isinstance(v, int) for v in distinct)
                                               else distinct)}


# -- banks -----------------------------------------------------------------------------------------
def bank_picture(layout: Any, element_bytes: int = 4, title: str | None = None) -> Figure:
    """The shared memory bank in which each element begins, and what reading a row or column costs.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        In units of elements.
    element_bytes : int
        1, 2, 4, 8 or 16.
    title : str, optional
        CuTe's text of the layout by default.

    Returns
    -------
    Figure
        The picture.

    Notes
    -----
    Right of each row and below each column is the number of wavefronts that a warp takes to read it
    (its first 32 elements, one per lane), as ``xN``, with a warning if that is more than necessary.
    Frames show, in the worst column, elements that are read together from different words of one
    bank.

    Examples
    --------
    >>> bank_picture(Layout((32, 32), (32, 1)), 4).svg()[:4]
    '<svg'
    """
    rows, columns = _extents(layout)
    report = bank_report(layout, element_bytes)

    def bank(r: int, c: int) -> int:
        return bank_of(layout(r + rows * c), element_bytes)

    def note(cost: tuple[int, int]) -> str:
        return f"{'!' if cost[0] > cost[1] else ''}x{cost[0]}"

    worst = max(range(columns), key=lambda c: (report.columns[c][0], -c))
    served = [layout(r + rows * worst) * element_bytes
              for r in range(min(rows, lanes_together(element_bytes)))]
    framed = meeting(served) if report.columns[worst][0] > report.columns[worst][1] else []
    grid = grid_of("", rows, columns, lambda r, c: Cell((str(bank(r, c)),),
                                                        by_bank(bank(r, c), BANKS),
                                                        c == worst and r in framed),
                   _breaks(layout.shape), lambda r: note(report.rows[r]),
                   lambda c: note(report.columns[c]))
    notes = [
        f"banks of {element_bytes}-byte elements; xN: N wavefronts for a warp that reads the row or column"
    ]
    if framed:
        notes.append(
            f"framed: the elements of column {worst} that meet in bank {bank(framed[0], worst)}"
        )
    return Figure.of(str(layout) if title is None else title, ((grid,),), *notes)


# -- thread-value layouts --------------------------------------------------------------------------
def _tv_grid(title: str, tv: Any, tile: tuple[int, int],
             turned: bool = False) -> Grid:
    held = tv_owners(tv, tile[0] * tile[1])

    def cell(r: int, c: int) -> Cell:
        i, j = (c, r) if turned else (r, c)
        by = held.get(i + tile[0] * j, [])
        if not by:
            return Cell(("-", ""), EMPTY)
        more = f"+{len(by) - 1}" if len(by) > 1 else ""
        return Cell((f"T{by[0][0]}{more}", f"V{by[0][1]}"), by_thread(by[0][0]))

    grid = grid_of(title, *(tile[::-1] if turned else tile), cell)
    notes = [*grid.notes]
    if any(len(by) > 1 for by in held.values()):
        notes.append("+n: n more owners of the same element")
    if len(held) < tile[0] * tile[1]:
        notes.append("-: an element without an owner")
    return replace(grid, notes=tuple(notes))


@checked
def tv_picture(tv: Domain, tile: Any, title: str | None = None) -> Figure:
    """The thread and value that own each element of a tile, coloured by thread.

    Parameters
    ----------
    tv : Layout
        ``(thread, value)`` to the colexicographic index in the tile.
    tile : tuple of int
        Extents of the tile: rows and columns, or columns only.
    title : str, optional
        CuTe's text of the layout by default.

    Returns
    -------
    Figure
        The picture.

    Examples
    --------
    >>> tv_picture(Layout((2, 2), (1, 2)), (2, 2)).title
    '(2,2):(1,2) -> (2,2)'
    """
    extents = tile_extents(tile, tv)
    return Figure.of(f"{tv} -> {spell(tile)}" if title is None else title,
                     ((_tv_grid("", tv, extents),),))


@checked
def copy_picture(source: Domain, target: Domain, tile: Any, title: str | None = None) -> Figure:
    """A copy: the thread and value that own each element as it is read, and as it is written.

    Parameters
    ----------
    source, target : Layout
        ``(thread, value)`` to the colexicographic index in the tile.
    tile : tuple of int
        Extents of the tile.
    title : str, optional
        CuTe's text of the layouts by default.

    Returns
    -------
    Figure
        The picture.

    Examples
    --------
    >>> picture = copy_picture(Layout(((2, 4), 4), ((16, 1), 4)), Layout((8, 4), (4, 1)), (4, 8))
    >>> picture.title
    '((2,4),4):((16,1),4) => (8,4):(4,1)'
    """
    extents = tile_extents(tile, source)
    return Figure.of(f"{source} => {target}" if title is None else title,
                     ((_tv_grid("source", source, extents), _tv_grid("target", target, extents)),))


@checked
def mma_picture(a: Domain, b: Domain, c: Domain, shape: tuple[int, int, int],
                title: str | None = None) -> Figure:
    """A matrix instruction: A on the left, B above, C in the corner where their rows and columns
    cross.

    Parameters
    ----------
    a, b, c : Layout
        ``(thread, value)`` to the colexicographic index in the tiles A (M, K), B (N, K) and C (M,
        N).
    shape : (int, int, int)
        M, N and K.
    title : str, optional
        The product by default.

    Returns
    -------
    Figure
        The picture.

    Raises
    ------
    LayoutError
        If the shape has not three extents, or an operand reaches outside of its tile.

    Examples
    --------
    >>> a, b = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), Layout(((4, 8), 2), ((16, 1), 8))
    >>> mma_picture(a, b, a, (16, 8, 8)).title
    'C (16,8) += A (16,8) B (8,8)^T'
    """
    if not isinstance(inttuple(shape, "mma_picture"),
                      tuple) or len(shape) != 3 or not all(isinstance(x, int) for x in shape):
        raise LayoutError("mma_picture", "the shape is (M, N, K)", shape)
    m, n, k = shape
    return Figure.of(f"C ({m},{n}) += A ({m},{k}) B ({n},{k})^T" if title is None else title,
                     ((None, _tv_grid("B", b, (n, k), turned=True)),
                      (_tv_grid("A", a, (m, k)), _tv_grid("C", c, (m, n)))))


# -- anything --------------------------------------------------------------------------------------
def draw(x: Any) -> Figure:
    """The picture of a layout, composed layout or tensor; a figure is returned as it is.

    Parameters
    ----------
    x : Layout, ComposedLayout, Tensor or Figure
        What is drawn.

    Returns
    -------
    Figure
        The picture.

    Raises
    ------
    LayoutError
        If it cannot be drawn.

    Examples
    --------
    >>> draw(Layout((4, 8), (8, 1))).title
    '(4,8):(8,1)'
    """
    if isinstance(x, Figure):
        return x
    if not isinstance(x, (Layout, ComposedLayout, Tensor)):
        raise LayoutError("draw", f"expected a layout, a tensor or a figure, got {described(x)}")
    return layout_picture(x)


def notebook_svg(x: Any) -> str | None:
    """What a notebook displays for a layout or tensor; None where there is nothing to draw."""
    try:
        return layout_picture(x, most=_NOTEBOOK).svg()
    except LayoutError:
        return None


for _kind in (Layout, ComposedLayout, Tensor):           # which know nothing of pictures
    _kind._repr_svg_ = notebook_svg                      # type: ignore[union-attr]


def to_svg(x: Any) -> str:
    """The SVG of a layout, composed layout, tensor or figure.

    Parameters
    ----------
    x : Layout, ComposedLayout, Tensor or Figure
        What is drawn.

    Returns
    -------
    str
        An SVG document.

    Examples
    --------
    >>> to_svg(Layout((2, 2)))[:4]
    '<svg'
    """
    return draw(x).svg()


def to_latex(x: Any) -> str:
    """The LaTeX (TikZ) of a layout, composed layout, tensor or figure.

    Parameters
    ----------
    x : Layout, ComposedLayout, Tensor or Figure
        What is drawn.

    Returns
    -------
    str
        A document for LaTeX with TikZ.

    Examples
    --------
    >>> to_latex(Layout((2, 2))).splitlines()[0]
    '\\\\documentclass[border=2pt]{standalone}'
    """
    return draw(x).latex()
