"""A learner: layouts, tiles and swizzles, and an array type whose products run on the kernels."""

import numpy as np

import cuteblas
from cuteblas.layout import (
    Layout,
    LayoutError,
    Swizzle,
    composition,
    make_tensor,
    print_layout,
    size,
    zipped_divide,
)


def conflicts(layout: Layout) -> str:
    return str(cuteblas.layout.bank_report(layout, 4))


def standardised(x: cuteblas.ndarray) -> cuteblas.ndarray:
    """Columns of mean 0 and deviation 1, by operators and methods alone."""
    y = (x - x.mean(axis=0)) / x.std(axis=0)
    y += 0.0
    y = y * 1.0 + abs(y) * 0
    return y.reshape(-1, x.shape[1]).astype(np.float64)


def covariance(x: cuteblas.ndarray) -> cuteblas.ndarray:
    y = standardised(x)
    return y.T @ y / y.shape[0]


if __name__ == "__main__":
    tile = Layout((8, 8), (8, 1))
    print_layout(composition(Swizzle(3, 0, 3), tile))
    tiles = zipped_divide(tile, (4, 2))
    assert size(tiles) == tiles.size() == tiles.cosize() == 64 and (tiles.rank, tiles.depth) == (2, 2) and tile(3, 2) + 1 == 27
    assert make_tensor(cuteblas.layout.counting_iterator(0), tile)[1, 1] == 9
    try:
        composition(Layout((4, 3), (1, 8)), Layout(6, 1))
    except LayoutError as error:
        print(error.op, error.why)
    assert "wavefront" in conflicts(tile)
    x = cuteblas.asarray(np.arange(12.0).reshape(4, 3) ** 2, device="cpu")
    c = covariance(x)
    assert c.shape == (3, 3) and bool((abs(c - c.T) < 1e-12).all()) and c.ndim == 2
    mask = (c > 0.5) & ~(c < 0) | (c == 1.0)
    assert mask.dtype == np.bool_ and len(c) == 3 and float(c.sum()) > 0
    halves = divmod(c, 2.0)
    assert halves[0].shape == c[0:3].shape
