"""``CUTEBLAS_KEEP_ARRAYS=1 python docs/performance/kept_matrix.py``: 200 products of one matrix by
vectors, by NumPy and by cuteblas, which moves the matrix to the GPU and keeps it there.

CUDA has been started. A first run fills the cache of kernels; the times of the second one are those
that the documentation quotes.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

import cuteblas
from cuteblas.engines import placement

N, PRODUCTS = 16384, 200


def seconds(how: str, a: np.ndarray, y: np.ndarray) -> float:
    """The time of all products, each of a vector of unit length."""
    with cuteblas.backend(how):
        begin = perf_counter()
        for _ in range(PRODUCTS):
            y = cuteblas.matmul(a, y)
            y /= np.linalg.norm(y)
        return perf_counter() - begin


def main() -> None:
    """Print both times, and what stayed."""
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((N, N)), rng.standard_normal(N)
    placement.start_soon()
    if placement._starting is not None:
        placement._starting.exception()                 # which waits for the end
    numpy = seconds("numpy", a, x)
    cuteblas.reset_stats()
    ours = seconds("auto", a, x)
    print(f"NumPy {numpy:.2f} s, cuteblas {ours:.2f} s: {numpy / ours:.1f} times as fast")
    print({name: cuteblas.stats().get(name) for name in ("arrays", "matmul")})


if __name__ == "__main__":
    main()
