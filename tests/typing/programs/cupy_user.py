"""A user of CuPy: products on the GPU, their plans, and unchanged programs on the kernels."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING

import cuteblas

if TYPE_CHECKING:
    from cupy import ndarray as Array


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Softmax of scaled scores times values, batched, on whatever arrays are given."""
    scores = cuteblas.matmul(queries, keys.swapaxes(-1, -2)) / math.sqrt(queries.shape[-1])
    weights = scores - scores.max(axis=-1, keepdims=True)
    return cuteblas.matmul(weights, values)


def main() -> None:
    import cupy

    a = cupy.random.standard_normal((4096, 4096), dtype=cupy.float32)
    c: Array = cuteblas.matmul(a.T, a, precision="ieee")
    explanation = cuteblas.explain(a.T, a)
    print(explanation, explanation.family, len(explanation.source))
    with cuteblas.enabled():
        c = a @ a
    cuteblas.install()
    try:
        c = cupy.ascontiguousarray(c.T) @ attention(c, c, c)
    finally:
        cuteblas.uninstall()
    cuteblas.set_workspace_limit(1 << 30)
    wrapped = cuteblas.asarray(c, device="cuda")
    print(wrapped.device, wrapped.shape)


if __name__ == "__main__":
    if importlib.util.find_spec("cupy") is not None and cuteblas.runtime.available():
        main()
