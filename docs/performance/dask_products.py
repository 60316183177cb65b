"""``python docs/performance/dask_products.py [ROWS [K [CHUNK [TYPES]]]]``: products of Dask arrays
beside Dask's own.

Two worker processes of one thread each on the CPU, NumPy chunks that the workers hold, the same
chunks for both. Times are medians of turns, from the call to the end of all chunks of the result;
the ratio is Dask's time over that of ``cuteblas.dask``.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

import numpy as np

TYPES = ("float32", "float64", "int32", "int8", "float16")
ROUNDS = 3


def numbers(chunk: np.ndarray, dtype: str) -> np.ndarray:
    """Random elements in the shape of a chunk."""
    rng = np.random.default_rng(chunk.shape)
    return rng.integers(-100, 101, chunk.shape).astype(dtype) if np.dtype(dtype).kind == "i" \
        else rng.standard_normal(chunk.shape, np.float32).astype(dtype)


def main(rows: int = 2048, k: int = 8192, chunk: int = 1024, types: str = ",".join(TYPES)) -> None:
    """Print two lines for each type."""
    import dask.array as da
    from distributed import LocalCluster, wait

    import cuteblas.dask

    cases = {"a @ b": lambda a, b: a @ b, "a.T @ a": lambda a, b: a.T @ a}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None,
                      memory_limit=0) as cluster, cluster.get_client() as client:
        for dtype in types.split(","):
            a, b = (
                da.zeros(shape, chunks=chunk, dtype=dtype)
                .map_blocks(numbers, dtype, dtype=dtype)
                .persist()
                for shape in ((rows, k), (k, rows))
            )
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
                print(
                    f"{dtype} {name} of {rows} x {k} in chunks of {chunk}: ours {ours:.2f} s, Dask's {theirs:.2f} s, ratio "
                    f"{theirs / ours:.2f}",
                    flush=True
                )
            del a, b


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
