"""A library that is written against the Array API standard, for whatever arrays it is given."""

from typing import Any

import numpy as np

import cuteblas
from cuteblas.array import namespace as xp


def softmax(x: Any) -> Any:
    ns = x.__array_namespace__()
    shifted = ns.exp(x - ns.max(x, axis=-1, keepdims=True))
    return shifted / ns.sum(shifted, axis=-1, keepdims=True)


def projections(x: cuteblas.ndarray) -> cuteblas.ndarray:
    orthogonal, _triangle = xp.linalg.qr(x)
    product: cuteblas.ndarray = xp.matmul(orthogonal, xp.matrix_transpose(orthogonal))
    return product


if __name__ == "__main__":
    x = xp.asarray([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]], dtype=xp.float64, device="cpu")
    assert np.allclose(np.asarray(softmax(x).sum(axis=-1)), 1.0)
    p = projections(x)
    assert np.allclose(np.asarray(p @ p), np.asarray(p))
    assert cuteblas.array([1, 2]).dtype == cuteblas.asarray([1, 2]).dtype and cuteblas.array.namespace is xp
