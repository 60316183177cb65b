"""A user of NumPy: least squares by the normal equations, in NumPy's terms throughout."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cuteblas

Matrix = NDArray[np.float64]


def normal_equations(x: Matrix, y: Matrix) -> Matrix:
    gram, right = cuteblas.matmul(x.T, x), cuteblas.dot(x.T, y)
    return np.linalg.solve(gram, right).astype(np.float64)


def distances(points: Matrix) -> Matrix:
    """Squared distances of all pairs of points."""
    norms = cuteblas.vecdot(points, points)
    squares: Matrix = norms[:, None] + norms[None, :] - 2.0 * cuteblas.einsum("ik,jk->ij", points, points)
    return squares


def routes() -> dict[str, Any]:
    cuteblas.reset_stats()
    with cuteblas.backend("numpy"):
        a = np.eye(3)
        out = np.empty((3, 3))
        cuteblas.matmul(a, a, out=out)
        cuteblas.copy(a.T, order="C", out=out)
        cuteblas.linalg.multi_dot([a, a, a])
    return cuteblas.stats()


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    data = generator.standard_normal((100, 3))
    solution = normal_equations(data, data @ np.array([1.0, 2.0, 3.0]))
    assert np.allclose(solution, [1.0, 2.0, 3.0])
    assert distances(data).shape == (100, 100)
    assert "matmul" in routes()
    assert cuteblas.current_backend() in ("numpy", "emulator")
    print(cuteblas.explain(data.T, data))
