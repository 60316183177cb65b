"""A program of NumPy that installs cuteblas for its products, everywhere or inside a block."""

import numpy as np
from numpy.typing import NDArray

import cuteblas


def power_iteration(a: NDArray[np.float64], steps: int = 200) -> float:
    x = np.ones(len(a))
    for _ in range(steps):
        x = np.matmul(a, x)
        x /= np.linalg.norm(x)
    return float(np.dot(x, np.matmul(a, x)))


if __name__ == "__main__":
    a = np.random.default_rng(0).standard_normal((50, 50))
    a = np.ascontiguousarray(a + a.T + 40 * np.eye(50))
    largest = float(np.linalg.eigvalsh(a)[-1])
    with cuteblas.enabled(numpy=True):
        assert abs(power_iteration(a) - largest) < 1e-3
    cuteblas.install(cupy=False, numpy=True)
    try:
        assert abs(power_iteration(a) - largest) < 1e-3
    finally:
        cuteblas.uninstall()
    assert abs(power_iteration(a) - largest) < 1e-3
