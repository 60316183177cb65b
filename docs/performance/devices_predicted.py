"""``python docs/performance/devices_predicted.py``: what the model of ``planning/sharding.py``
expects of 2, 4 and 8 GPUs.

Nothing is measured here, and nothing needs a GPU. The time of a product on one H200 is planning's
estimate; bytes go from a GPU to another one of its host by 376 GB/s (measured between two H200,
NVLink: docs/performance/history.md). The printed table is that of docs/scaling.md.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import cuteblas
from cuteblas.planning.sharding import Cost, Held, Operands, Part, spread
from cuteblas.planning.streaming import Tile

NVLINK = 376e9
AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
CASES = (("float32", 16384), ("float64", 16384), ("float16", 16384), ("float32", 32768),
         ("float64", 32768))


def rate(one: int, other: int) -> float:
    """Bytes in a second from a GPU to another one."""
    return NVLINK


def held(name: str, n: int, itemsize: int, devices: int, axis: str) -> Held:
    """A matrix of n x n in equal parts on so many GPUs."""
    ends = [n * i // devices for i in range(devices + 1)]
    parts = (Part(i, range(*part)) for i, part in enumerate(pairwise(ends)))
    return Held(AXES[name], AXES[name].index(axis), tuple(parts), itemsize)


def cost(dtype: str, n: int) -> Cost:
    """The estimate of one product on one GPU, and of parts of it."""
    found = []
    for columns in (n, n // 2):
        x, y = (np.broadcast_to(np.zeros((), dtype), (n, extent)) for extent in (n, columns))
        plan = cuteblas.explain(x, y, device="h200").plan
        assert plan is not None and plan.seconds is not None
        found.append(plan.seconds)
    return Cost.from_halves(*found, n**2, n**2)


def main() -> None:
    """Print the times that are expected, relative to one GPU."""
    print(
        "| square matrices, H200 | one GPU, estimated | GPUs | from one GPU | A and C by rows, B by rows |"
    )
    print("|---|---:|---:|---:|---:|")
    for dtype, n in CASES:
        whole, itemsize = cost(dtype, n), np.dtype(dtype).itemsize
        for count in (2, 4, 8):
            ratios = []
            for parts in (1, count):
                operands = Operands(held("a", n, itemsize, parts, "m"),
                                    held("b", n, itemsize, parts, "k"),
                                    held("c", n, itemsize, parts, "m"))
                found = spread(Tile.whole(1, n, n, n), operands, tuple(range(count)), whole, rate)
                ratios.append(f"{whole.seconds / found.seconds:.2f}")
            print(
                f"| {dtype} {n} | {whole.seconds * 1e3:.1f} ms | {count} | {' | '.join(ratios)} |"
            )


if __name__ == "__main__":
    main()
