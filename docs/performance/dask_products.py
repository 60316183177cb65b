"""``python docs/performance/dask_products.py [ROWS [K [CHUNK]]]``: products of Dask arrays by ``cuteblas.dask`` beside Dask's own.

Two worker processes of one thread each on the CPU, NumPy chunks that the workers hold, the same chunks for both. Times are medians
of turns, from the call to the end of all chunks of the result; the ratio is Dask's time over ours.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

import numpy as np

TYPES = ("float32", "float64", "int32", "int8", "float16")
ROUNDS = 3
SMALLER = {"int32": 2, "int8": 2, "float16": 4}         # Dask's own products of these take long


def numbers(chunk: np.ndarray, dtype: str) -> np.ndarray:
    """Random elements in the shape of a chunk."""
    rng = np.random.default_rng(chunk.shape)
    return rng.integers(-100, 101, chunk.shape).astype(dtype) if np.dtype(dtype).kind == "i" \
        else rng.standard_normal(chunk.shape, np.float32).astype(dtype)


def main(rows: int = 4096, k: int = 8192, chunk: int = 1024) -> None:
    """Print a line for each type."""
    import dask.array as da
    from distributed import LocalCluster, wait

    import cuteblas.dask

    cases = {"a @ b": lambda a, b: a @ b, "a.T @ a": lambda a, b: a.T @ a}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster, \
            cluster.get_client() as client:
        for dtype in TYPES:
            m, length = rows // SMALLER.get(dtype, 1), k // SMALLER.get(dtype, 1)
            size = chunk // SMALLER.get(dtype, 1)
            a, b = (da.zeros(shape, chunks=size, dtype=dtype).map_blocks(numbers, dtype, dtype=dtype).persist()
                    for shape in ((m, length), (length, m)))
            wait([a, b])
            for name, call in cases.items():
                times: dict[bool, list[float]] = {True: [], False: []}
                for turn in range(2 * ROUNDS):
                    ours = turn % 2 == 0
                    (cuteblas.dask.install if ours else cuteblas.dask.uninstall)()
                    client.run(cuteblas.dask.install if ours else cuteblas.dask.uninstall)
                    start = perf_counter()
                    product = call(a, b).persist()
                    wait(product)
                    times[ours].append(perf_counter() - start)
                    del product
                ours, theirs = median(times[True]), median(times[False])
                print(f"{dtype} {name} of {m} x {length} in chunks of {size}: ours {ours:.2f} s, Dask's {theirs:.2f} s, ratio "
                      f"{theirs / ours:.2f}", flush=True)
            del a, b


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
