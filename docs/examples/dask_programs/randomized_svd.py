"""The largest singular values of a large matrix from few random combinations of its columns, on
Dask.

    python randomized_svd.py [ROWS [COLUMNS [COMPONENTS [DEVICES]]]]

A matrix of 200,000 x 4,000 by default. DEVICES names GPUs, like 0 or 0,1; without, two processes of
this host compute.
"""

import sys
from time import perf_counter

import dask.array as da
import numpy as np
from workers import held, on_host, samples, workers

import cuteblas.dask  # noqa: F401 - the products of Dask's arrays are its from here on


def randomized_svd(x, place, components, rounds=3):
    """Singular values, and right singular vectors as rows: Halko, Martinsson and Tropp's subspace
    iteration, with Gram matrices."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((x.shape[1], components + 8))
    for _ in range(rounds):
        wide = x @ place(da.from_array(basis.astype(x.dtype), chunks=basis.shape))
        basis, _r = np.linalg.qr(on_host((x.T @ wide).compute()).astype("float64"))
    scores = x @ place(da.from_array(basis.astype(x.dtype), chunks=basis.shape))
    squares, turn = np.linalg.eigh(on_host((scores.T @ scores).compute()).astype("float64"))
    order = slice(None, -components - 1, -1)
    return np.sqrt(squares[order]), (basis @ turn[:, order]).T


def main(rows=200_000, columns=4000, components=16, devices=""):
    with workers(devices) as place:
        empty = da.zeros((rows, columns), chunks=(max(1, rows // 50), columns), dtype="float32")
        x = held(place(empty.map_blocks(samples, dtype="float32")))
        start = perf_counter()
        values, vectors = randomized_svd(x, place, components)
        seconds = perf_counter() - start
    print(f"singular values {values[0]:.6g} to {values[-1]:.6g} of a matrix of {rows} x {columns}")
    print(f"{seconds:.2f} s")
    return values, vectors


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
