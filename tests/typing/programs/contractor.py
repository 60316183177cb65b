"""Contractions: attention and a small tensor network, by einsum and its kin."""

import numpy as np
from numpy.typing import NDArray

import cuteblas

Tensor = NDArray[np.float64]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = cuteblas.einsum("bthd,bshd->bhts", q, k, optimize="optimal") / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return cuteblas.einsum("bhts,bshd->bthd", weights / weights.sum(axis=-1, keepdims=True), v,
                           order="C")


def norm(chain: list[Tensor]) -> float:
    left = np.ones((1, 1))
    for site in chain:
        half = cuteblas.tensordot(left, site, axes=(1, 0))
        left = cuteblas.tensordot(site, half, axes=((0, 1), (0, 1)))
    return float(left[0, 0])


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 5, 3, 4)) for _ in range(3))
    assert attention(q, k, v).shape == (2, 5, 3, 4)
    assert norm([np.ones((1, 2, 3)), np.ones((3, 2, 1))]) == 36.0
    x = cuteblas.asarray(q, device="cpu")
    assert cuteblas.einsum("bthd,bthd->b", x, x).shape == (2,)
    assert cuteblas.moveaxis(x, 0, -1).shape == cuteblas.permute_dims(q, (1, 2, 3, 0)).shape == (5, 3, 4, 2)
    assert cuteblas.kron(np.eye(2), np.ones((2, 2))).shape == cuteblas.outer([1, 2, 3, 4], range(4)).shape
