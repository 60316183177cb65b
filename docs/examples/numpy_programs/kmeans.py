"""k-means clustering, whose distances are products, in plain NumPy: nothing here knows of cuteblas.

    python kmeans.py [SAMPLES [FEATURES [CLUSTERS [STEPS]]]]
    python -m cuteblas --numpy --compare kmeans.py
"""

import sys
from time import perf_counter

import numpy as np


def main(samples=20000, features=256, clusters=64, steps=10):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((clusters, features), dtype=np.float32)
    members = rng.integers(0, clusters, samples)
    x = centres[members] + np.float32(0.5) * rng.standard_normal((samples, features),
                                                                 dtype=np.float32)
    start = perf_counter()
    found = x[:clusters].copy()
    for _ in range(steps):
        distances = (found * found).sum(axis=1) - 2 * (x @ found.T)
        nearest = distances.argmin(axis=1)
        chosen = np.zeros((samples, clusters), np.float32)
        chosen[np.arange(samples), nearest] = 1
        sizes = np.maximum(chosen.sum(axis=0), 1)
        found = (chosen.T @ x) / sizes[:, None]
    seconds = perf_counter() - start
    print(
        f"checksum {float(np.abs(found).sum(dtype=float)):.5g} {np.count_nonzero(np.bincount(nearest, minlength=clusters))}"
    )
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
