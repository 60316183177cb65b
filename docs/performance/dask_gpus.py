"""``python docs/performance/dask_gpus.py [ROWS [K [COLUMNS [CHUNK [DEVICES [CHUNKS]]]]]]``: a product of Dask arrays on GPUs.

A of ROWS x K by B of K x COLUMNS, float32, in square chunks, which workers hold: by a worker of one GPU, by one for each of DEVICES
("0,1" by default), and without Dask by ``cuteblas.matmul`` on the first of them. Times are medians, from the call to the end of all
work on the GPUs; workers have B's chunks already, except where B is new: there the chunks that move are in the time, by copies
between the GPUs (with DASK_CUTEBLAS__PEER_COPIES=False by way of the host).
CHUNKS is "cupy" (default), or "numpy" for a trial without GPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

import cuteblas

ROUNDS = 5


def numbers(block: np.ndarray, block_info: Any = None) -> np.ndarray:
    """Random elements in the shape of a chunk, the same ones for the same place."""
    return np.random.default_rng([start for start, _stop in block_info[0]["array-location"]]).random(block.shape, np.float32)


def finish() -> None:
    """Wait for the GPU of this process, if it has one."""
    if (cupy := sys.modules.get("cupy")) is not None and cupy.is_available():
        cupy.cuda.runtime.deviceSynchronize()


def seconds(call: Callable[[], Any], before: Callable[[], Any] = lambda: None, rounds: int = ROUNDS) -> float:
    """The time of one call, results kept out of it; ``before`` is called before each."""
    times = []
    for _ in range(2 + rounds):
        given = before()
        start = perf_counter()
        result = call()
        times.append(perf_counter() - start)
        del result, given
    return median(times[2:])


def alone(rows: int, k: int, columns: int, chunks: str) -> float:
    """The time without Dask."""
    library: Any = import_module(chunks)
    a, b = (library.ones(shape, np.float32) for shape in ((rows, k), (k, columns)))

    def call() -> Any:
        c = cuteblas.matmul(a, b)
        finish()
        return c

    return seconds(call)


def by_workers(rows: int, k: int, columns: int, chunk: int, devices: list[str], chunks: str) -> tuple[float, float, np.ndarray]:
    """The times with a worker for each device: B where it is needed, and B new; and the first row of the result."""
    import dask.array as da
    from distributed import wait

    from cuteblas.dask import GPUCluster

    with GPUCluster(devices, memory_limit=0) as cluster, cluster.get_client() as client:
        client.wait_for_workers(len(devices))
        a, b = (da.zeros(shape, chunks=chunk, dtype="float32").map_blocks(numbers, dtype="float32")
                for shape in ((rows, k), (k, columns)))
        if chunks == "cupy":
            a, b = a.to_backend("cupy"), b.to_backend("cupy")
        a, b = a.persist(), b.persist()
        wait([a, b])
        known = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

        def forget() -> None:
            while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > known:       # results of before
                sleep(0.01)

        def everywhere() -> None:
            forget()
            client.replicate(b)

        def product(a: Any, b: Any) -> Any:
            c = (a @ b).persist()
            wait(c)
            client.run(finish)                          # tasks end when their kernels are launched
            return c

        warm = seconds(lambda: product(a, b), everywhere)
        first = product(a, b)[0].compute()
        held: list[Any] = []
        factors = count(2)

        def renew() -> None:
            held.clear()
            forget()
            held[:] = [(b * np.float32(next(factors))).persist()]
            wait(held)
            client.run(finish)

        new = seconds(lambda: product(a, held[0]), renew, rounds=2)
        ways = [stats.get("dask.chunks", {}) for stats in client.run(cuteblas.stats).values()]
        if any(ways):
            print("chunks that moved, by worker:", *(way.get("moved") for way in ways))
    return warm, new, first.get() if hasattr(first, "get") else first


def main(rows: int = 65536, k: int = 16384, columns: int = 16384, chunk: int = 8192, devices: str = "0,1",
         chunks: str = "cupy") -> None:
    """Print the times and their ratios."""
    print(f"float32, {rows} x {k} by {k} x {columns} in chunks of {chunk}")
    plain = alone(rows, k, columns, chunks)
    if chunks == "cupy":                                # its memory is for the workers now
        import_module("cupy").get_default_memory_pool().free_all_blocks()
    print(f"without Dask on one GPU {plain * 1e3:.1f} ms", flush=True)
    one, one_new, first = by_workers(rows, k, columns, chunk, devices.split(",")[:1], chunks)
    print(f"one worker {one * 1e3:.1f} ms ({one / plain:.2f} of that without Dask), B new {one_new * 1e3:.1f} ms", flush=True)
    workers = len(devices.split(","))
    if workers > 1:
        more, more_new, again = by_workers(rows, k, columns, chunk, devices.split(","), chunks)
        print(f"{workers} workers {more * 1e3:.1f} ms ({one / more:.2f} times as fast as one; {more / plain:.2f} of the time "
              f"without Dask), B new {more_new * 1e3:.1f} ms ({one_new / more_new:.2f} times as fast as one)", flush=True)
        print("bitwise the same:", bool(np.array_equal(first, again)))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, int, int, int, str, str), sys.argv[1:], strict=False)))
