"""``python docs/performance/devices.py``: products over two GPUs of a host and more, beside one.

CuPy arrays on the first GPU, and in equal parts; NumPy arrays. It needs CuPy and two GPUs. Times
are from a call to the end of all work on all GPUs. Where a product used fewer GPUs than it was
offered, their number follows in parentheses.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import cuteblas

CASES = (("float32", 8192), ("float32", 16384), ("float64", 16384), ("float16", 16384),
         ("float32", 32768), ("float16", 32768))
OF_NUMPY = (("float32", 8192), ("float32", 16384), ("float64", 16384))
IN_PARTS = 20000                        # rows, above which arrays are on one GPU alone
ROUNDS = 3


def seconds(call: Callable[[], Any], devices: int) -> float:
    """The time of one call, results and temporary memory kept out of it."""
    call()
    call()
    times = []
    for _ in range(ROUNDS):
        finish(devices)
        start = perf_counter()
        result = call()
        finish(devices)
        times.append(perf_counter() - start)
        del result
    return median(times)


def finish(devices: int) -> None:
    """Wait for all GPUs."""
    import cupy

    for device in range(devices):
        with cupy.cuda.Device(device):
            cupy.cuda.runtime.deviceSynchronize()


def free(devices: int) -> None:
    """Give the memory of arrays that are gone back to the driver."""
    import cupy

    for device in range(devices):
        with cupy.cuda.Device(device):
            cupy.get_default_memory_pool().free_all_blocks()


def cell(one: float, call: Callable[[], Any], several: int, devices: int) -> str:
    """How many times as fast as one GPU a call is."""
    ratio = one / seconds(call, devices)
    cuteblas.reset_stats()
    call()
    used = sum(where.startswith("on cuda") for where in cuteblas.stats()["matmul"]["spread"])
    return f"{ratio:.2f}" + f" ({used})" * (used < several)


def main() -> None:
    """Print the times of one GPU, and how many times as fast several are."""
    import cupy

    devices = cupy.cuda.runtime.getDeviceCount()
    counts = [count for count in (2, 4, 8) if count <= devices]
    print("| arrays | GPUs | one GPU | on the first | both by rows | B by columns |")
    print("|---|---|---|---|---|---|")
    for dtype, n in CASES:
        with cupy.cuda.Device(0):
            a, b = (cupy.random.random((n, n), dtype=cupy.float32).astype(dtype) for _ in range(2))
            one = seconds(lambda a=a, b=b: cuteblas.matmul(a, b), devices)
        for count in counts:
            some = range(count)
            with cupy.cuda.Device(0):
                cells = [cell(one, lambda a=a, b=b, s=some: cuteblas.matmul(a, b, devices=s), count,
                              devices)]
            if n < IN_PARTS:
                x = cuteblas.ShardedArray.of(a, some)
                for axis in (0, 1):
                    y = cuteblas.ShardedArray.of(b, some, axis)
                    cells.append(cell(one,
                                      lambda x=x, y=y, s=some: cuteblas.matmul(x, y, devices=s),
                                      count, devices))
                del x, y
            print(f"| CuPy {dtype} {n} | {count} | {one * 1e3:.1f} ms | {' | '.join(cells)} |",
                  flush=True)
        del a, b
        free(devices)
    for dtype, n in OF_NUMPY:
        a, b = (np.random.default_rng(seed).random((n, n), dtype=dtype) for seed in range(2))
        with cuteblas.backend("cuda"):
            one = seconds(lambda a=a, b=b: cuteblas.matmul(a, b), devices)
            for count in counts:
                found = cell(one, lambda a=a, b=b, s=range(count): cuteblas.matmul(a, b, devices=s),
                             count, devices)
                print(f"| NumPy {dtype} {n} | {count} | {one * 1e3:.1f} ms | {found} |", flush=True)


if __name__ == "__main__":
    main()
