"""Dask, with our arrays as chunks."""

from __future__ import annotations

import sys

import numpy as np
import pytest

da = pytest.importorskip("dask.array")

@pytest.fixture(autouse=True)
def dasks_own_products():
    """Other tests of this process may have imported ``cuteblas.dask``."""
    if (ours := sys.modules.get("cuteblas.dask")) is not None:
        ours.uninstall()


RNG = np.random.default_rng(3)
A, B, C, V = RNG.standard_normal((20, 30)), RNG.standard_normal((30, 16)), RNG.standard_normal((4, 5, 6)), RNG.standard_normal(30)


def chunked(x, chunks=8):
    return da.from_array(x, chunks=chunks, asarray=False)


CALLS = {
    "@": (("matmul",), lambda put: chunked(put(A)) @ chunked(put(B))),
    "matmul": (("matmul",), lambda put: da.matmul(chunked(put(A)), chunked(put(V)))),
    "matmul-batched": (
        ("matmul",),
        lambda put: da.matmul(chunked(put(C), 3), chunked(put(C.swapaxes(1, 2)), 3))
    ),
    "matmul-centred": (
        ("matmul",),
        lambda put: (chunked(put(A)) - chunked(put(A)).mean(0)).T @ chunked(put(A))
    ),
    "dot": (("tensordot", "matmul"), lambda put: da.dot(chunked(put(A)), chunked(put(B)))),
    "tensordot": (
        ("tensordot", "matmul"),
        lambda put: da.tensordot(chunked(put(C), 3), chunked(put(C), 3), ((1, 2), (1, 2)))
    ),
    "einsum": (
        ("einsum", "matmul"),
        lambda put: da.einsum("ij,jk->ik", chunked(put(A)), chunked(put(B)))
    ),
    "vdot": (("tensordot", "matmul"), lambda put: da.vdot(chunked(put(V)), chunked(put(V)))),
    "svd_compressed": (
        ("dot", "matmul"),
        lambda put: da.linalg.svd_compressed(chunked(put(A)), 4, n_power_iter=3, seed=0)[1]
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_products(arrays, name):
    if arrays.backend == "cuda" and name == "svd_compressed":
        pytest.skip("Dask draws its random matrix on the host")
    functions, call = CALLS[name]
    expected = call(np.asarray).compute(scheduler="synchronous")
    graph = call(arrays.put)
    with arrays.multiplied(*functions, least=4):
        result = graph.compute(scheduler="synchronous")
    if not np.ndim(expected):
        expected = np.asarray(expected)
    arrays.agree(result, expected)


@pytest.mark.parametrize("call", [lambda a, b: a @ b, lambda a, b: da.tensordot(a, b, 1)],
                         ids=["@", "tensordot"])
def test_chunks_of_several_libraries(arrays, call):
    if arrays.backend == "cuda":
        pytest.skip("chunks on the host and on the GPU do not mix")
    for a, b in ((arrays.put(A), B), (A, arrays.put(B))):
        arrays.agree(call(chunked(a), chunked(b)).compute(scheduler="synchronous"), A @ B)


def test_threads(arrays):
    if arrays.library == "cupy":
        pytest.skip("enabled() serves the thread that it is in, install() all of them")
    if arrays.backend not in ("numpy", "cuda"):
        pytest.skip("backend() serves the thread that it is in")
    with arrays.multiplied("matmul", least=4):
        result = (chunked(arrays.put(A)) @ chunked(arrays.put(B))).compute(
            scheduler="threads", num_workers=2
        )
    arrays.agree(result, A @ B)
