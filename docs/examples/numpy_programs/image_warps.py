"""Images resampled by separable filters, batch after batch, in plain NumPy: nothing here knows of
cuteblas.

    python image_warps.py [IMAGES [EXTENT [BATCHES]]]
    python -m cuteblas --numpy --compare image_warps.py
"""

import sys
from time import perf_counter

import numpy as np


def resampling(extent, shift, width):
    """A matrix that smooths rows of pixels and moves them by a fraction of a pixel."""
    places = np.arange(extent)
    weights = np.exp(-0.5 * ((places[:, None] + shift - places) / width) ** 2)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def main(images=16, extent=512, batches=4):
    rng = np.random.default_rng(0)
    pictures = rng.random((images, extent, extent), dtype=np.float32)
    start = perf_counter()
    total = 0.0
    for batch in range(batches):
        rows, columns = resampling(extent, batch / 3, 2.0), resampling(extent, -batch / 5, 3.0)
        warped = rows @ pictures @ columns.T
        total += float(np.abs(warped - pictures).mean(dtype=float))
        pictures = warped
    seconds = perf_counter() - start
    print(f"checksum {total:.5g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
