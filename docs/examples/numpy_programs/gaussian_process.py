"""Prediction and samples of a Gaussian process, in plain NumPy: nothing here knows of cuteblas.

    python gaussian_process.py [POINTS [QUERIES [SAMPLES]]]
    python -m cuteblas --numpy --compare gaussian_process.py
"""

import sys
from time import perf_counter

import numpy as np


def covariance(x, y, length):
    """exp(-|x - y|^2 / 2 length^2) of all pairs of rows."""
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * (x @ y.T)
    return np.exp(-0.5 / length**2 * squares)


def main(points=1000, queries=1000, samples=500):
    rng = np.random.default_rng(0)
    x, unseen = rng.random((points, 8)), rng.random((queries, 8))
    values = np.sin(3 * x).sum(axis=1) + 0.1 * rng.standard_normal(points)
    start = perf_counter()
    inverse = np.linalg.inv(covariance(x, x, 0.7) + 0.01 * np.eye(points))
    across = covariance(unseen, x, 0.7)
    mean = across @ (inverse @ values)
    spread = covariance(unseen, unseen, 0.7) - across @ inverse @ across.T
    root = np.linalg.cholesky(spread + 1e-4 * np.eye(queries))
    drawn = mean[:, None] + root @ rng.standard_normal((queries, samples))
    seconds = perf_counter() - start
    error = np.abs(mean - np.sin(3 * unseen).sum(axis=1)).mean()
    print(
        f"checksum {np.abs(mean).sum():.6g} {error:.4g} {np.abs(drawn - mean[:, None]).mean():.3g}"
    )
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
