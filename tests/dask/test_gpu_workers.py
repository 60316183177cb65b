"""Products of CuPy chunks on two workers, each a process with its GPU in the memory of the host."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")
pytest.importorskip("distributed", reason="distributed, of the extra dask, is not installed")

import dask.array as da
import distributed

import cuteblas
import cuteblas.dask
from tests.functions import host_cupy

from . import host_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux",
                                reason="processes open each other's memory on Linux")


@pytest.fixture(scope="module")
def client():
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as patch, host_workers.start():
        patch.syspath_prepend(root)                         # which spawned processes get, too
        with cuteblas.dask.GPUCluster([0, 1], memory_limit=0, preload=["tests.dask.host_workers"]) as cluster, \
                cluster.get_client() as client:
            client.wait_for_workers(2, timeout=60)
            yield client


def numbers(block, block_info=None):
    place = [start for start, _stop in block_info[0]["array-location"]]
    return np.random.default_rng(place).integers(-4, 5, block.shape).astype("float32")


def held(x):
    """An array on the workers."""
    x = x.persist()
    distributed.wait(x)
    return x


def gathered(x):
    """The elements of an array that the workers hold, chunk after chunk."""
    chunks = {future.key: future for future in distributed.futures_of(x)}
    return np.block([[host_cupy.on_host(chunks[key].result()) for key in row]
                     for row in x.__dask_keys__()])


def test_chunks_move_from_worker_to_worker(client):
    a, b = (da.zeros(shape, chunks=chunks, dtype="float32").map_blocks(numbers, dtype="float32")
            for shape, chunks in (((60, 90), (20, 30)), ((90, 40), (30, 20))))
    x, y = (held(z.to_backend("cupy")) for z in (a, b))
    a, b = (z.compute(scheduler="synchronous") for z in (a, b))
    client.replicate(y)
    np.testing.assert_array_equal(gathered(held(x @ y)), a @ b)
    np.testing.assert_array_equal(gathered(held(x.T @ x)), a.T @ a)
    moved = [stats.get("dask.chunks", {}).get("moved", {})
             for stats in client.run(cuteblas.stats).values()]
    assert sum(sum(each.values()) for each in moved) > 0
    assert all("by the host" in way for each in moved for way in each)
    # a worker goes on while it waits for the other one's GPU
    names = {name for found in client.run(_readers).values() for name in found}
    assert names and all(name.startswith("Dask-Offload") for name in names)


def _readers():
    from tests.dask import host_workers

    return host_workers.readers


def test_nothing_is_held_in_the_end(client):
    def count():
        from cuteblas.dask import offers

        return len(offers.offers())

    assert set(client.run(count).values()) == {0}
