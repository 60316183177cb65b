"""Layouts and tensors as text."""

from __future__ import annotations

from typing import Any

from .core import Layout
from .errors import LayoutError, spell
from .tensor import Tensor
from .tiling import shown_extents, tile_extents, tv_owners

_MOST = 1 << 18                                          # elements that are listed


def _grid(x: Any) -> list[list[str]]:
    """The values by mode 0 and by all other modes counted together, as text."""
    rows, n = shown_extents(x, "print_layout", "listed")
    if n > _MOST:
        raise LayoutError("print_layout", f"{n} elements are too many to list", x)
    at = (lambda i: x[i]) if isinstance(x, Tensor) else x
    return [[str(at(i)) for i in range(r, n, rows)] for r in range(rows)] if n else []


def layout_table(layout: Any) -> str:
    """A layout's values in a grid with its coordinates: mode 0 downwards, the others to the right.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        With static extents, of at most 2^18 elements.

    Returns
    -------
    str
        Lines of text.

    Examples
    --------
    >>> print(layout_table(Layout((2, 3), (3, 1))))
    (2,3):(3,1)
          0   1   2
        +---+---+---+
     0  | 0 | 1 | 2 |
        +---+---+---+
     1  | 3 | 4 | 5 |
        +---+---+---+
    """
    grid = _grid(layout)
    return _ruled(str(layout), grid)


def _ruled(title: str, grid: list[list[str]]) -> str:
    columns = len(grid[0]) if grid else 0
    left = len(str(max(len(grid) - 1, 0)))
    width = max((len(v) for row in grid for v in row), default=1)
    width = max(width, len(str(max(columns - 1, 0))))
    rule = " " * (left + 3) + "+" + ("-" * (width + 2) + "+") * columns
    lines = [title, (" " * (left + 4) + "".join(f" {c:>{width}}  "
                                                for c in range(columns))).rstrip(), rule]
    for r, row in enumerate(grid):
        lines += [f" {r:>{left}}  |" + "".join(f" {v:>{width}} |" for v in row), rule]
    return "\n".join(lines)


def tv_table(tv: Any, tile: Any) -> str:
    """A tile in a grid: each element shows the thread and the value that hold it; ``+n`` counts
    further holders.

    Parameters
    ----------
    tv : Layout
        ``(thread, value)`` to the colexicographic index in the tile.
    tile : tuple of int
        Extents: rows and columns, or columns only.

    Returns
    -------
    str
        Lines of text.

    Raises
    ------
    LayoutError
        If the layout reaches outside of the tile, or there are more than 2^18 elements.

    Examples
    --------
    >>> print(tv_table(Layout(((2, 2), 2), ((4, 1), 2)), (4, 2)))
    ((2,2),2):((4,1),2) -> (4,2)
             0      1
        +------+------+
     0  | T0V0 | T1V0 |
        +------+------+
     1  | T2V0 | T3V0 |
        +------+------+
     2  | T0V1 | T1V1 |
        +------+------+
     3  | T2V1 | T3V1 |
        +------+------+
    """
    rows, columns = tile_extents(tile, tv)
    if rows * columns > _MOST:
        raise LayoutError("tv_table", f"{rows * columns} elements are too many to list", tv)
    held = tv_owners(tv, rows * columns)

    def text(position: int) -> str:
        by = held.get(position, [])
        return f"T{by[0][0]}V{by[0][1]}{f'+{len(by) - 1}' if len(by) > 1 else ''}" if by else "-"

    return _ruled(f"{tv} -> {spell(tile)}", [[text(r + rows * c) for c in range(columns)]
                                             for r in range(rows)])


def print_layout(layout: Layout) -> None:
    """Print :func:`layout_table`.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        With static extents.

    Returns
    -------
    None
        The text goes to standard output.

    Examples
    --------
    >>> print_layout(Layout((2, 3), (3, 1)))
    (2,3):(3,1)
          0   1   2
        +---+---+---+
     0  | 0 | 1 | 2 |
        +---+---+---+
     1  | 3 | 4 | 5 |
        +---+---+---+
    """
    print(layout_table(layout))


def tensor_table(tensor: Tensor) -> str:
    """A tensor's elements in rows, mode 0 downwards.

    Parameters
    ----------
    tensor : Tensor
        With static extents, of at most 2^18 elements.

    Returns
    -------
    str
        Lines of text.

    Examples
    --------
    >>> from cuteblas.layout import counting_iterator, make_tensor
    >>> print(tensor_table(make_tensor(counting_iterator(42), (2, 3))))
    counting_iter(42) o (2,3):(1,2):
       42   44   46
       43   45   47
    """
    grid = _grid(tensor)
    width = max(5, 2 + max((len(v) for row in grid for v in row), default=0))
    return "\n".join([f"{tensor}:", *("".join(f"{v:>{width}}" for v in row) for row in grid)])


def print_tensor(tensor: Tensor) -> None:
    """Print :func:`tensor_table`.

    Parameters
    ----------
    tensor : Tensor
        With static extents.

    Returns
    -------
    None
        The text goes to standard output.

    Examples
    --------
    >>> print_tensor(make_tensor(counting_iterator(10), (2, 3), (3, 1)))
    counting_iter(10) o (2,3):(3,1):
       10   11   12
       13   14   15
    """
    print(tensor_table(tensor))
