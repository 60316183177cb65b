"""Where the lanes of a warp hold the elements of mma.sync, as PTX ISA ("Matrix Fragments for mma")
says it, shape by shape."""

from __future__ import annotations

from collections.abc import Callable

Place = Callable[[int, int, int], tuple[int, int]]
"""(group of lanes, lane in the group, element of the lane) -> row and column; of B (k, n)."""


def _accumulators(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


FRAGMENTS: dict[tuple[str, tuple[int, int, int]], tuple[Place, Place, Place]] = {
    ("16 bits", (16, 8, 8)): (
        lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
        lambda g, t, i: (2 * t + i, g),
        _accumulators,
    ),
    ("16 bits", (16, 8, 16)): (
        lambda g, t, i: (
            g if 0 <= i < 2 or 4 <= i < 6 else g + 8,
            2 * t + (i & 1) + (0 if i < 4 else 8)
        ),
        lambda g, t, i: (2 * t + (i & 1) + (0 if i < 2 else 8), g),
        _accumulators,
    ),
    ("8 bits", (16, 8, 32)): (
        lambda g, t, i: (
            g if 0 <= i < 4 or 8 <= i < 12 else g + 8,
            4 * t + (i & 3) + (0 if i < 8 else 16)
        ),
        lambda g, t, i: (4 * t + (i & 3) + (0 if i < 4 else 16), g),
        _accumulators,
    ),
    ("64 bits", (8, 8, 4)): (
        lambda g, t, i: (g, t),
        lambda g, t, i: (t, g),
        lambda g, t, i: (g, 2 * t + i),
    ),
    ("64 bits", (16, 8, 8)): (
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        _accumulators,
    ),
}


def fragments(bits: int, shape: tuple[int, int, int]) -> tuple[Callable[[int, int], int], ...]:
    """For A (m, k), B (n, k) and C (m, n): (lane, element of the lane) -> position, counted
    colexicographically."""
    m, n, _ = shape
    a, b, c = FRAGMENTS[f"{bits} bits", shape]

    def of_rows(place: Place, rows: int, swapped: bool = False) -> Callable[[int, int], int]:
        def position(lane: int, i: int) -> int:
            row, column = place(lane >> 2, lane % 4, i)
            return column + rows * row if swapped else row + rows * column
        return position

    return of_rows(a, m), of_rows(b, n, swapped=True), of_rows(c, m)
