"""Layouts and tensors as text."""

from __future__ import annotations

from typing import Any

from .core import Layout
from .errors import LayoutError
from .inttuple import size
from .tensor import Tensor

__all__ = ["layout_table", "print_layout", "print_tensor", "tensor_table"]


def _grid(x: Any) -> list[list[str]]:
    """The values by mode 0 and by all other modes counted together, as text."""
    n = size(x)
    rows = size(x, 0) if x.rank > 1 else 1
    if not isinstance(n, int) or not isinstance(rows, int):
        raise LayoutError("print_layout", "a symbolic number of elements cannot be listed", x)
    at = (lambda i: x[i]) if isinstance(x, Tensor) else x
    return [[str(at(i)) for i in range(r, n, rows)] for r in range(rows)] if n else []


def layout_table(layout: Any) -> str:
    """A layout's values in a grid with its coordinates: mode 0 downwards, the others to the right.

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
    columns = len(grid[0]) if grid else 0
    left = len(str(max(len(grid) - 1, 0)))
    width = max((len(v) for row in grid for v in row), default=1)
    width = max(width, len(str(max(columns - 1, 0))))
    rule = " " * (left + 3) + "+" + ("-" * (width + 2) + "+") * columns
    lines = [str(layout), (" " * (left + 4) + "".join(f" {c:>{width}}  " for c in range(columns))).rstrip(), rule]
    for r, row in enumerate(grid):
        lines += [f" {r:>{left}}  |" + "".join(f" {v:>{width}} |" for v in row), rule]
    return "\n".join(lines)


def print_layout(layout: Layout) -> None:
    """Print :func:`layout_table`."""
    print(layout_table(layout))


def tensor_table(tensor: Tensor) -> str:
    """A tensor's elements in rows, mode 0 downwards.

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
    """Print :func:`tensor_table`."""
    print(tensor_table(tensor))
