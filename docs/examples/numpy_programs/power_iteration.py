"""The largest eigenvalues of a symmetric matrix by subspace iteration, in plain NumPy: nothing here
knows of cuteblas.

    python power_iteration.py [EXTENT [VECTORS [STEPS]]]
    python -m cuteblas --numpy --compare power_iteration.py
"""

import sys
from time import perf_counter

import numpy as np


def main(extent=2000, vectors=32, steps=20):
    rng = np.random.default_rng(0)
    half = rng.standard_normal((extent, extent))
    a = (half + half.T) / (2 * extent) ** 0.5
    a += np.outer(half[0], half[0]) * (4 / extent)   # one eigenvalue that is larger than the others
    start = perf_counter()
    squared = a @ a
    basis = np.linalg.qr(rng.standard_normal((extent, vectors)))[0]
    for _ in range(steps):
        basis = np.linalg.qr(squared @ basis)[0]
    values = np.sort(np.linalg.eigvalsh(basis.T @ (a @ basis)))
    seconds = perf_counter() - start
    print(f"checksum {values[-1]:.8g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
