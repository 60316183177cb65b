"""Principal components of handwritten digits, in plain CuPy: nothing here knows of cuteblas.

    python pca.py [SAMPLES [COMPONENTS]]                     CuPy's own products
    python -m cuteblas --compare pca.py                      the same program on the kernels

Noisy copies of scikit-learn's 1797 digits of 8 x 8 pixels (random numbers with a spectrum like
theirs if scikit-learn is missing) are enlarged to 1024 features. The components come from subspace
iteration, which is products of matrices and little else; the data are a view of every other column
of a wider array, as a table often is.
"""

import sys
from time import perf_counter

import cupy as cp
import numpy as np


def digits():
    """Samples of 64 features between 0 and 1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        rng = np.random.default_rng(0)
        return np.abs(rng.standard_normal((1797, 64)) * 0.9 ** np.arange(64)).astype(np.float32)
    return (load_digits().data / 16).astype(np.float32)


def samples(count, features, random):
    """That many noisy, enlarged digits: the even columns of an array twice as wide."""
    pixels = cp.asarray(digits())
    enlarge = random.standard_normal((pixels.shape[1], features), dtype=cp.float32) / 8
    wide = cp.zeros((count, 2 * features), cp.float32)
    x = wide[:, ::2]
    x[...] = pixels[random.integers(0, len(pixels), count)] @ enlarge
    x += 0.05 * random.standard_normal(x.shape, dtype=cp.float32)
    return x


def principal_components(x, components, random, rounds=20):
    """Directions of largest variance, as rows, and the variances."""
    x = x - x.mean(axis=0)
    basis = random.standard_normal((x.shape[1], components), dtype=cp.float32)
    for _ in range(rounds):
        basis, _ = cp.linalg.qr(x.T @ (x @ basis))
    scores = cp.dot(x, basis)
    variances, turn = cp.linalg.eigh(cp.tensordot(scores, scores, axes=(0, 0)) / (len(x) - 1))
    return (basis @ turn)[:, ::-1].T, variances[::-1]


def main(count=100_000, components=64):
    random = cp.random.default_rng(0)
    x = samples(count, 1024, random)
    principal_components(x, components, random, rounds=1)           # loads libraries and kernels
    cp.cuda.Device().synchronize()
    start = perf_counter()
    rows, variances = principal_components(x, components, random)
    cp.cuda.Device().synchronize()
    seconds = perf_counter() - start
    error = float(cp.abs(rows @ rows.T - cp.eye(components, dtype=rows.dtype)).max())
    share = float(variances.sum() / x.var(axis=0, ddof=1).sum())
    print(
        f"{components} components of {count} samples explain {100 * share:.2f} % of the variance; orthogonal to {error:.1e}"
    )
    print(f"{seconds * 1e3:.1f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
