"""``python docs/performance/devices.py``: products over two GPUs of a host beside one, operands on one of them and in halves.

It needs CuPy and two GPUs. Times are from a call to the end of all work on both.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import cuteblas

CASES = (("float32", 16384), ("float64", 16384), ("float16", 16384), ("float32", 32768))
ROUNDS = 3


def seconds(call: Callable[[], Any]) -> float:
    """The time of one call, results and temporary memory kept out of it."""
    call()
    call()
    times = []
    for _ in range(ROUNDS):
        finish()
        start = perf_counter()
        result = call()
        finish()
        times.append(perf_counter() - start)
        del result
    return median(times)


def finish() -> None:
    """Wait for both GPUs."""
    import cupy

    for device in (0, 1):
        with cupy.cuda.Device(device):
            cupy.cuda.runtime.deviceSynchronize()


def main() -> None:
    """Print the times of one GPU, and those of two relative to them."""
    import cupy

    for dtype, n in CASES:
        with cupy.cuda.Device(0):
            a, b = (cupy.random.random((n, n), dtype=cupy.float32).astype(dtype) for _ in range(2))
            one = seconds(lambda a=a, b=b: cuteblas.matmul(a, b))
            both = seconds(lambda a=a, b=b: cuteblas.matmul(a, b, devices="all"))
        line = f"{dtype} {n}: {one * 1e3:.1f} ms on one GPU; on two, operands on the first {one / both:.2f}"
        if n < 20000:
            rows, columns = (cuteblas.ShardedArray.of(b, (0, 1), axis) for axis in (0, 1))
            halves = cuteblas.ShardedArray.of(a, (0, 1))
            for name, y in (("rows", rows), ("columns", columns)):
                both = seconds(lambda x=halves, y=y: cuteblas.matmul(x, y, devices="all"))
                line += f", A by rows and B by {name} {one / both:.2f}"
            del rows, columns, halves, y
        print(line, "times as fast", flush=True)
        del a, b
        for device in (0, 1):
            with cupy.cuda.Device(device):
                cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
