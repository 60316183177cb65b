"""Who computes: what the programs beside this file share."""

from contextlib import contextmanager

import dask
import numpy as np
from distributed import futures_of, wait


@contextmanager
def workers(devices="", memory="auto"):
    """Two processes of this host; or one for each GPU that is named, like "0" or "0,1"; or, for
    "here", whoever is set already.

    What is given is a function that brings the chunks of an array to where they are computed with.
    """
    if devices == "here":
        yield lambda x: x
        return
    if devices:
        from cuteblas.dask import GPUCluster

        cluster = GPUCluster(devices.split(","), memory_limit=memory)
    else:
        from distributed import LocalCluster

        cluster = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=memory,
                               dashboard_address=None)
    with cluster, cluster.get_client():
        yield (lambda x: x.to_backend("cupy")) if devices else (lambda x: x)


def held(*arrays):
    """The arrays computed, on the workers, which is waited for: what follows is timed without
    them."""
    found = dask.persist(*arrays)
    if any(futures_of(x) for x in found):
        wait(found)
    return found if len(arrays) > 1 else found[0]


def on_host(x):
    """A NumPy array of a computed one."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def samples(block, rank=16, block_info=None):
    """Rows of numbers with a spectrum that falls off, and noise; the same ones for the same place,
    whoever makes them."""
    (start, _stop), (first, last) = block_info[0]["array-location"]
    sources = np.random.default_rng(1).standard_normal((rank, last), dtype=np.float32)[:, first:]
    rng = np.random.default_rng((start, first))
    weights = rng.standard_normal((len(block), rank), dtype=np.float32) * np.float32(8) * np.float32(0.7) ** np.arange(rank)
    return (weights @ sources + rng.standard_normal(block.shape,
                                                    dtype=np.float32)).astype(block.dtype)
