"""Products of which one triangle is computed: its tiles and their order."""

from __future__ import annotations

from math import lcm

from ...codegen import KernelBuilder
from ...layout.symbolic import Condition, IntLike, ceil_div, equal, select
from ..common import DynamicPair, Pair

TRIANGLES = ("lower", "upper", "both")
"""What is written of a square C; for both, the lower one is computed."""


def _square(tile: Pair) -> tuple[int, int, int]:
    """The extent of the least square of whole tiles, and its tiles along M and N."""
    extent = lcm(*tile)
    return extent, extent // tile[0], extent // tile[1]


def tiles_of_triangle(extent: int, tile: Pair) -> int:
    """Tiles of the squares on and below the diagonal."""
    square, along_m, along_n = _square(tile)
    squares = -(-extent // square)
    return squares * (squares + 1) // 2 * along_m * along_n


def tiles_of_c(k: KernelBuilder, part: str | None, extents: DynamicPair,
               tile: Pair) -> Rectangle:
    return Triangle(k, part, extents[0], tile) if part else Rectangle(k, extents, tile)


class Rectangle:
    def __init__(self, k: KernelBuilder, extents: DynamicPair, tile: Pair):
        self.tiles = (k.let("tiles_m", ceil_div(extents[0], tile[0])),
                      k.let("tiles_n", ceil_div(extents[1], tile[1])))

    def at(self, down: IntLike, across: IntLike) -> tuple[IntLike, IntLike, Condition]:
        """The tile at a place, and whether it may have elements of another triangle."""
        return down, across, False


class Triangle(Rectangle):
    """A triangle of squares of tiles, folded into a rectangle: neighbours share operands."""
    # The first half of the columns of squares are columns of the rectangle, below its diagonal;
    # what is left is a triangle that fits above them.

    def __init__(self, k: KernelBuilder, part: str, extent: IntLike, tile: Pair):
        self._k, self._part = k, part
        square, self._along_m, self._along_n = _square(tile)
        if part == "upper":
            self._along_m, self._along_n = self._along_n, self._along_m
        squares = k.let("squares", ceil_div(extent, square))
        self._half = k.let("half", (squares + 1) // 2)
        self._even = k.let("even", 1 - squares % 2)
        self.tiles = k.let("tiles_down", (squares + self._even)
                           * self._along_m), k.let("tiles_across", self._half * self._along_n)

    def at(self, down: IntLike, across: IntLike) -> tuple[IntLike, IntLike, Condition]:
        """The tile of C at a place, and whether its square is on the diagonal."""
        k, half, even = self._k, self._half, self._even
        row, column = k.let("square_down", down // self._along_m), k.let("square_across", across // self._along_n)
        folded = row < column + even
        i = k.let("square_m", select(folded, half + column + even - 1, row - even))
        j = k.let("square_n", select(folded, half + row, column))
        m = k.let("m_of_triangle", i * self._along_m + down % self._along_m)
        n = k.let("n_of_triangle", j * self._along_n + across % self._along_n)
        return (n, m, equal(i, j)) if self._part == "upper" else (m, n, equal(i, j))
