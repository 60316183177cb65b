"""Principal components by the covariance matrix, in plain NumPy: nothing here knows of cuteblas.

    python pca.py [SAMPLES [FEATURES [COMPONENTS]]]
    python -m cuteblas --numpy --compare pca.py
"""

import sys
from time import perf_counter

import numpy as np


def samples(count, features, rng):
    """Numbers with a spectrum that falls off: mixtures of few sources, and noise."""
    sources = rng.standard_normal((count, 32),
                                  dtype=np.float32) * 0.8 ** np.arange(32, dtype=np.float32)
    noise = rng.standard_normal((count, features), dtype=np.float32)
    return sources @ rng.standard_normal((32, features), dtype=np.float32) + np.float32(0.1) * noise


def principal_components(x, components):
    """Scores, directions of largest variance, as columns, and the variances."""
    x = x - x.mean(axis=0)
    covariance = x.T @ x / (len(x) - 1)
    variances, directions = np.linalg.eigh(covariance)
    directions = directions[:, :-components - 1:-1]
    return x @ directions, directions, variances[:-components - 1:-1]


def main(count=20_000, features=512, components=16):
    x = samples(count, features, np.random.default_rng(0))
    start = perf_counter()
    scores, directions, variances = principal_components(x, components)
    seconds = perf_counter() - start
    share = variances.sum() / x.var(axis=0, ddof=1).sum()
    sums = [np.abs(x).sum(dtype=float) for x in (scores, directions[:, :4])]
    print(f"checksum {sums[0]:.4g} {sums[1]:.4g} {variances[0]:.4g} {share:.4f}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
