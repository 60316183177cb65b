"""Principal components by the Gram matrix of centred columns, on NumPy arrays and on those of
cuteblas."""

import numpy as np
from numpy.typing import NDArray

import cuteblas

Matrix = NDArray[np.float64]


def covariance(x: Matrix) -> Matrix:
    centred: Matrix = x - x.mean(axis=0)
    return cuteblas.matmul(centred.T, centred / (len(x) - 1))


def covariance_of_ours(x: cuteblas.ndarray) -> cuteblas.ndarray:
    centred = x - x.mean(axis=0)
    return centred.T @ centred / (x.shape[0] - 1)


def components(x: Matrix, count: int) -> tuple[Matrix, Matrix]:
    variances, vectors = np.linalg.eigh(covariance(x))
    chosen = vectors[:, ::-1][:, :count]
    return variances[::-1][:count], cuteblas.dot(x - x.mean(axis=0), chosen)


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((200, 4)) * [9.0, 3.0, 1.0, 0.1]
    variances, scores = components(x, 2)
    assert scores.shape == (200, 2) and np.allclose(scores.var(axis=0, ddof=1), variances)
    ours = covariance_of_ours(cuteblas.asarray(x, device="cpu"))
    assert ours.device == "cpu" and np.allclose(np.asarray(ours), covariance(x))
