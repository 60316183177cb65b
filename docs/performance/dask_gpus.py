"""``python docs/performance/dask_gpus.py [ROWS [K [COLUMNS [CHUNK [DEVICES [CHUNKS]]]]]]``: a
product of Dask arrays on GPUs.

A of ROWS x K by B of K x COLUMNS, float32, in square chunks, which workers hold: by a worker of one
GPU, by one for each of DEVICES ("0,1" by default), and without Dask by ``cuteblas.matmul`` on the
first of them. Times are medians, from the call to the end of all work on the GPUs. Where operands
are new, the chunks that move are in the time: by copies between the GPUs, or with
DASK_CUTEBLAS__PEER_COPIES=False by way of the host. CHUNKS is "cupy" (default), or "numpy" for a
trial without GPUs.
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


def numbers(block: np.ndarray, seed: int, block_info: Any = None) -> np.ndarray:
    """Random elements in the shape of a chunk, the same ones for the same place."""
    place = (start for start, _stop in block_info[0]["array-location"])
    return np.random.default_rng([seed, *place]).random(block.shape, np.float32)


def finish() -> None:
    """Wait for the GPU of this process, if it has one."""
    if (cupy := sys.modules.get("cupy")) is not None and cupy.is_available():
        cupy.cuda.runtime.deviceSynchronize()


def seconds(call: Callable[[], Any], before: Callable[[], Any] = lambda: None,
            rounds: int = ROUNDS) -> float:
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
    given = {"dtype": library.float32} if chunks == "cupy" else {}
    a, b = (library.random.random(shape, **given).astype("float32", copy=False)
            for shape in ((rows, k), (k, columns)))

    def call() -> Any:
        c = cuteblas.matmul(a, b)
        finish()
        return c

    return seconds(call)


def by_workers(rows: int, k: int, columns: int, chunk: int, devices: list[str], parts: int,
               chunks: str) -> tuple[Any, ...]:
    """The times with a worker for each device, A by rows and B everywhere; A by rows and B new; and
    both as Dask places them; and the first row of the result."""
    import dask.array as da
    from distributed import wait

    from cuteblas.dask import GPUCluster

    def made(rows: int, columns: int, seed: int) -> Any:
        x = da.zeros((rows, columns), chunks=chunk, dtype="float32").map_blocks(
            numbers, seed, dtype="float32"
        )
        return x.to_backend("cupy") if chunks == "cupy" else x

    with GPUCluster(devices, memory_limit=0) as cluster, cluster.get_client() as client:
        client.wait_for_workers(len(devices))
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        part = rows // chunk // parts * chunk or rows
        a = da.concatenate([client.persist(made(min(part, rows - start), k, start),
                                           workers=[workers[i % len(workers)]])
                            for i, start in enumerate(range(0, rows, part))]).persist()
        b, anywhere = made(k, columns, 1).persist(), made(rows, k, 2).persist()
        wait([a, b, anywhere])
        known = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

        def forget() -> None:
            # results of before
            while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > known:
                sleep(0.01)

        def everywhere() -> None:
            forget()
            client.replicate(b)

        def product(a: Any, b: Any) -> Any:
            c = (a @ b).persist()
            wait(c)
            client.run(finish)                          # tasks end when their kernels are launched
            return c

        times = [seconds(lambda: product(a, b), everywhere)]
        first = product(a, b)[0].compute()
        held: list[Any] = []
        factors = count(2)

        def renew() -> None:
            held.clear()
            forget()
            held[:] = [(b * np.float32(next(factors))).persist()]
            wait(held)
            client.run(finish)

        times.append(seconds(lambda: product(a, held[0]), renew, rounds=2))

        def renew_both() -> None:
            held.clear()
            forget()
            held[:] = [(x * np.float32(next(factors))).persist() for x in (anywhere, b)]
            wait(held)
            client.run(finish)

        times.append(seconds(lambda: product(*held), renew_both, rounds=2))
        ways = [stats.get("dask.chunks", {}) for stats in client.run(cuteblas.stats).values()]
        if any(ways):
            print("chunks that moved, by worker:", *(way.get("moved") for way in ways))
    return *times, first.get() if hasattr(first, "get") else first


def main(rows: int = 65536, k: int = 16384, columns: int = 16384, chunk: int = 8192,
         devices: str = "0,1", chunks: str = "cupy") -> None:
    """Print the times and their ratios."""
    print(f"float32, {rows} x {k} by {k} x {columns} in chunks of {chunk}")
    plain = alone(rows, k, columns, chunks)
    if chunks == "cupy":                                # its memory is for the workers now
        import_module("cupy").get_default_memory_pool().free_all_blocks()
    print(f"without Dask on one GPU {plain * 1e3:.1f} ms", flush=True)
    names = devices.split(",")
    *one, first = by_workers(rows, k, columns, chunk, names[:1], len(names), chunks)
    words = "A by rows and B everywhere", "B new", "both new and as Dask places them"
    print(
        f"one worker {', '.join(f'{word} {time * 1e3:.1f} ms' for word, time in zip(words, one, strict=True))}; the first is "
        f"{one[0] / plain:.2f} of the time without Dask",
        flush=True
    )
    if len(names) > 1:
        *more, again = by_workers(rows, k, columns, chunk, names, len(names), chunks)
        found = (f"{word} {time * 1e3:.1f} ms ({alone / time:.2f} times as fast as one)"
                 for word, time, alone in zip(words, more, one, strict=True))
        print(f"{len(names)} workers {', '.join(found)}", flush=True)
        print("bitwise the same:", bool(np.array_equal(first, again)))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, int, int, int, str, str), sys.argv[1:],
                                            strict=False)))
