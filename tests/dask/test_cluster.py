"""Products on two workers: arrays of ours that move, settings, and a worker that dies."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")
pytest.importorskip("distributed", reason="distributed, of the extra dask, is not installed")
pytest.importorskip("threadpoolctl",
                    reason="threadpoolctl, which says how many threads BLAS has, is not installed")

import dask
import dask.array as da
import threadpoolctl

import cuteblas
import cuteblas.dask

RNG = np.random.default_rng(0)


def alone(x):
    """The result of one thread of this process. A BLAS of several threads may add in another order
    than one of one thread."""
    with threadpoolctl.threadpool_limits(1):
        return x.compute(scheduler="synchronous")


def test_the_result_is_that_of_one_thread(client):
    a, b = RNG.standard_normal((60, 90), np.float32), RNG.standard_normal((90, 40), np.float32)
    x, y = da.from_array(a, chunks=(23, 31)), da.from_array(b, chunks=(40, 23))
    for product in (x @ y, x.T @ x, np.einsum("ij,jk,lk->il", x, y, y), (x - 1).T @ x):
        expected = alone(product)
        for _ in range(2):
            np.testing.assert_array_equal(product.compute(scheduler=client), expected)


def test_arrays_of_ours_move_between_workers(client):
    one, other = client.scheduler_info(n_workers=-1)["workers"]
    for x in (RNG.standard_normal((30, 40)), RNG.standard_normal((30, 40)).T,
              RNG.standard_normal((30, 40))[::2, ::-2], np.broadcast_to(np.arange(3.0), (4, 3)),
              np.float32(3), np.empty((0, 4)), np.arange(4, dtype="int8")):
        future = client.scatter(cuteblas.asarray(x), workers=[one], direct=True)
        there = client.submit(lambda y: (type(y).__module__, y), future, workers=[other])
        module, y = there.result()
        assert module == "cuteblas" and type(y) is cuteblas.ndarray
        np.testing.assert_array_equal(np.asarray(y), x)


def test_contiguous_memory_is_sent_as_it_is():
    from distributed.protocol import deserialize, serialize

    for x in (RNG.standard_normal((30, 40)), RNG.standard_normal((30, 40)).T):
        header, frames = serialize(cuteblas.asarray(x), serializers=("dask",))
        assert header["serializer"] == "dask" and len(frames) == 1
        assert np.frombuffer(frames[0], np.uint8).ctypes.data == x.ctypes.data
        y = np.asarray(deserialize(header, frames))
        assert y.ctypes.data == x.ctypes.data and y.strides == x.strides


def test_precision_reaches_the_workers(client):
    def asked(*operands, **named):
        raise RuntimeError(f"{named['precision']} {cuteblas.current_backend()}")

    def patch():
        import cuteblas.dask

        cuteblas.dask.chunks._FUNCTIONS = {**cuteblas.dask.chunks._FUNCTIONS, "matmul": asked}

    def restore():
        cuteblas.dask.chunks._FUNCTIONS = {**cuteblas.dask.chunks._FUNCTIONS,
                                           "matmul": cuteblas.matmul}

    x = da.ones((4, 4), chunks=2, dtype="float32")
    with dask.config.set({"cuteblas.precision": "ieee", "cuteblas.backend": "numpy"}):
        product = x @ (x + 1)
    client.run(patch)
    try:
        with pytest.raises(RuntimeError, match="ieee numpy"):
            product.compute(scheduler=client)
    finally:
        client.run(restore)


def _last_words(block, marker):
    """A chunk, the first time by a worker that is killed."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"),
                    reason="processes are not killed by signals here")
def test_a_worker_that_is_killed_in_the_middle(client, tmp_path):
    a, b = RNG.standard_normal((64, 256), np.float32), RNG.standard_normal((256, 48), np.float32)
    marker = Path(tmp_path) / "killed"
    x, y = da.from_array(a, chunks=(32, 8)), da.from_array(b, chunks=(8, 24))
    broken = da.map_blocks(lambda block, block_id=None: _last_words(block, marker)
                           if block_id == (20, 1) else block, y, dtype=y.dtype, meta=y._meta)
    pids = set(client.run(os.getpid).values())
    result = (x @ broken).compute(scheduler=client)
    assert marker.exists()
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != pids
    np.testing.assert_array_equal(result, alone(x @ y))


def test_a_worker_for_each_gpu():
    with cuteblas.dask.GPUCluster(devices=[3, "GPU-5"], env={"CUTEBLAS_BACKEND": "numpy"},
                                  memory_limit=0) as cluster, cluster.get_client() as client:
        client.wait_for_workers(2, timeout=60)
        seen = client.run(lambda: (os.environ["CUDA_VISIBLE_DEVICES"],
                                   os.environ["CUTEBLAS_BACKEND"],
                                   dask.config.get("cuteblas.peer-copies"),
                                   "cuteblas.dask" in sys.modules,
                                   sys.modules["distributed.comm.utils"].OFFLOAD_THRESHOLD))
        assert {*seen.values()} == {("3,GPU-5", "numpy", True, True, 32768),
                                    ("GPU-5,3", "numpy", True, True, 32768)}
        x = da.ones((10, 10), chunks=5)
        assert (x @ x).sum().compute(scheduler=client) == 1000
    with pytest.raises(ValueError, match="there is no device"):
        cuteblas.dask.GPUCluster(devices=[])


def test_all_devices_are_those_that_this_process_may_see(monkeypatch):
    from cuteblas.dask import clusters

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7")
    assert clusters._all_devices() == ["2", "GPU-7"]
