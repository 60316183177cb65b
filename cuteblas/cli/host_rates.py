"""What NumPy takes on this host, and the way to its GPU, for ``backend("auto")``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..functions import ascontiguousarray, backend, matmul
from ..planning.cost.hosts import HOST, HostCosts
from ..runtime.ring import processors
from .arrays import random_array
from .machines import Gpu, Host, Machine, medians

_REPEATS = 5
_EXTENT = 2048                          # of products; a quarter where NumPy has no BLAS
_COPIED = 8192                          # rows and columns of a matrix that is copied
_BELOW = 100                            # integers


def _seconds(call: Callable[..., Any], *operands: Any, on: Machine | None = None) -> float:
    (taken,) = medians(on or Host(), partial(call, *operands), repeats=_REPEATS)
    return taken


def measured(extent: int = _EXTENT, copied: int = _COPIED) -> HostCosts:
    """Measure this host and its GPU; ``extent`` and ``copied`` are those of square matrices."""
    count = processors()
    here, there = {}, {}
    for name in HOST.multiplications:
        n = extent if name in ("float32", "float64", "complex64", "complex128") else extent // 4
        a, b = _matrices(n, name)
        with backend("numpy"):
            seconds = _seconds(matmul, a, b)
        here[name] = n**3 / max(seconds - 3 * a.nbytes / (HOST.product_bytes * count),
                                seconds / 2) / count
        there[name] = _on_gpu(*_matrices(extent, name))
    x = np.ones((copied, copied), np.float32)
    vector, into = x[0].copy(), np.zeros_like(x)
    with backend("numpy"):
        product = _seconds(np.matmul, x, vector)
        transposed = _seconds(ascontiguousarray, x.T)
    copy = _seconds(np.copyto, into, x)
    pageable, pinned = _link(x.reshape(-1).view(np.uint8))
    few = np.ones((64, 64), np.float32)
    with backend("cuda"):
        call = _seconds(matmul, few, few)
    return HOST.changed({"multiplications": here, "gpu_multiplications": there,
                         "product_bytes": x.nbytes / product / count,
                         "copied_bytes": x.nbytes / copy,
                         "transposed_bytes": x.nbytes / transposed / min(count, 16),
                         "packed_bytes": pageable / min(count, 16)**0.7, "link_bytes": pinned,
                         "call": call})


def _matrices(n: int, name: str) -> Iterator[np.ndarray]:
    return (random_array(np, (n, n), name, seed, below=_BELOW) for seed in range(2))


def _on_gpu(a: np.ndarray, b: np.ndarray) -> float:
    """Multiplications in a second of matrices that are there."""
    gpu = Gpu()
    x, y = map(gpu.rival.asarray, (a, b))
    return len(a)**3 / _seconds(matmul, x, y, matmul(x, y), on=gpu)


def _link(x: np.ndarray) -> tuple[float, float]:
    """Bytes in a second to the device, from pageable memory and from pinned memory."""
    import cupy

    from ..engines.host_cuda import current_ring

    ring = current_ring()
    there, pinned = cupy.cuda.alloc(x.nbytes), ring.link.pinned(x.nbytes)

    def staged() -> None:
        ring.upload(x, there.ptr, True).wait()
        ring.link.synchronize()

    def direct() -> None:
        ring.link.upload(there.ptr, pinned.ctypes.data, x.nbytes)
        ring.link.synchronize()

    return x.nbytes / _seconds(staged), x.nbytes / _seconds(direct)
