"""The programs of docs/examples/dask_programs, small, on two workers."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")
pytest.importorskip("distributed", reason="distributed, of the extra dask, is not installed")

import dask.array as da

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "dask_programs"


@pytest.fixture
def program(client, monkeypatch):
    """A function of the name of a program and the arguments of its main function. Workers find its
    functions in the program."""
    monkeypatch.syspath_prepend(str(FOLDER))
    client.run(lambda: sys.path.insert(0, str(FOLDER)))
    yield lambda name, *arguments: run_path(str(FOLDER / f"{name}.py"))["main"](*arguments)
    client.run(lambda: sys.path.remove(str(FOLDER)))


def the_samples(rows, columns):
    import workers

    x = da.zeros((rows, columns), chunks=(max(1, rows // 50), columns), dtype="float32")
    return x.map_blocks(workers.samples,
                        dtype="float32").compute(scheduler="synchronous").astype("float64")


def test_pca(program):
    directions, variances, scores = program("pca", 1000, 60, 5, "here")
    x = the_samples(1000, 60)
    expected = np.linalg.eigvalsh(np.cov(x.T))[:-6:-1]
    np.testing.assert_allclose(variances, expected, rtol=1e-5)
    np.testing.assert_allclose(np.abs(scores), np.abs(x @ directions), atol=1e-3)


def test_randomized_svd(program):
    values, vectors = program("randomized_svd", 1000, 60, 4, "here")
    _u, expected, v = np.linalg.svd(the_samples(1000, 60), full_matrices=False)
    np.testing.assert_allclose(values, expected[:4], rtol=1e-4)
    np.testing.assert_allclose(np.abs((vectors * v[:4]).sum(1)), 1, atol=1e-3)


def test_gram(program, tmp_path):
    gram = program("gram", str(tmp_path), 1000, 30, 64, "auto", "here")
    x = np.concatenate([np.load(tmp_path / f"{i}.npy") for i in range(16)]).astype("float64")
    assert x.shape == (1000, 30)
    np.testing.assert_allclose(gram, x.T @ x, rtol=1e-4, atol=0.1)
    np.testing.assert_array_equal(gram, gram.T)


def test_tensor_network(program):
    found = program("tensor_network", 4, 24, 10, "here")
    import tensor_network

    shape, chunks = (24, 2, 24), (10, 2, 10)
    chain = [
        da.zeros(shape, chunks=chunks, dtype="float32")
        .map_blocks(tensor_network.tensor, site=i, dtype="float32")
        .compute(scheduler="synchronous")
        .astype("float64")
        / 48**0.5
        for i in range(4)
    ]
    state = chain[0][0]
    for site in chain[1:]:
        state = np.tensordot(state, site, 1)
    np.testing.assert_allclose(found, (state[..., 0] ** 2).sum(), rtol=1e-4)
