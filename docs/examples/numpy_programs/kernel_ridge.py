"""Kernel ridge regression with a Gaussian kernel, in plain NumPy: nothing here knows of cuteblas.

    python kernel_ridge.py [TRAINING [TESTS [FEATURES]]]
    python -m cuteblas --numpy --compare kernel_ridge.py
"""

import sys
from time import perf_counter

import numpy as np


def kernel(x, y, width):
    """exp(-|x - y|^2 / 2 width^2) of all pairs of rows."""
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * (x @ y.T)
    return np.exp(squares * (-0.5 / width**2))


def main(training=2000, tests=1000, features=784):
    rng = np.random.default_rng(0)
    x, unseen = (rng.standard_normal((count, features)) for count in (training, tests))
    weights = rng.standard_normal((features, 8)) / features**0.5
    targets = np.tanh(x @ weights) + 0.01 * rng.standard_normal((training, 8))
    start = perf_counter()
    width = features**0.5
    coefficients = np.linalg.solve(kernel(x, x, width) + 0.1 * np.eye(training), targets)
    predicted = kernel(unseen, x, width) @ coefficients
    seconds = perf_counter() - start
    error = np.abs(predicted - np.tanh(unseen @ weights)).mean()
    print(f"checksum {np.abs(coefficients).sum():.8g} {np.abs(predicted).sum():.8g} {error:.6g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
