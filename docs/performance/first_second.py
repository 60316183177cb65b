"""Time of a loop over one product of NumPy arrays, in new processes, with cuteblas and as a ratio
to NumPy.

    python docs/performance/first_second.py [--scale 1.0] [--json FILE]

``call``: ``cuteblas.matmul(a, b)`` in the program; ``unchanged``: ``a @ b`` under
``python -m cuteblas --numpy``. The cache of kernels is a new folder for the first run (``empty``),
which the second one finds (``warm``). ``first`` is what the first call takes beyond NumPy's first
one, and ``moved`` the number of the first call that ran on the GPU. Ratios are of the loop, and of
the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import perf_counter

import numpy as np

HOME = Path(__file__).parents[2]
COMPILED = {"PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": f"{gettempdir()}/cuteblas-modules"}
"""Python's modules are compiled once, as those of an installed package are."""
RUNS = (("float32", 1024, 1500), ("float32", 2048, 250), ("float32", 4096, 40),
        ("float64", 2048, 120), ("float32", 8192, 6))
PROGRAM = """
import sys, time
import numpy as np
name, n, count, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
a, b = (np.random.default_rng(seed).standard_normal((n, n)).astype(name) for seed in range(2))
a[:64, :64] @ b[:64, :64]
if how == "call":
    import cuteblas
    multiply = cuteblas.matmul
else:
    multiply = lambda a, b: a @ b
times, moved = [], 0
begin = time.perf_counter()
for i in range(count):
    start = time.perf_counter()
    multiply(a, b)
    times.append(time.perf_counter() - start)
total = time.perf_counter() - begin
if how != "numpy":
    import cuteblas
    there = sum(n for detail, n in cuteblas.stats().get("matmul", {}).get("moved", {}).items() if detail.startswith("to "))
    moved = count - there + 1 if there else 0
print(total, times[0], sorted(times)[len(times) // 2], moved)
"""


def ran(case: tuple[str, int, int], how: str, cache: str) -> dict[str, float]:
    """Times of a process."""
    before = ("-m", "cuteblas", "--numpy") if how == "unchanged" else ()
    begin = perf_counter()
    result = subprocess.run([sys.executable, *before, "-c", PROGRAM, *map(str, case), how],
                            capture_output=True, encoding="utf-8", check=True,
                            env=os.environ | {"PYTHONPATH": str(HOME), "CUTEBLAS_CACHE_DIR": cache,
                                              **COMPILED})
    total, first, median, moved = map(float, result.stdout.split())
    return {"total": total, "first": first, "median": median, "moved": moved,
            "whole": perf_counter() - begin}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of calls")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    print(
        "| product, calls | how | NumPy | empty cache: of NumPy's (whole), moved, first | warm cache |"
    )
    print("|---|---|---|---|---|")
    for name, n, calls in RUNS:
        case = name, n, max(1, round(calls * options.scale))
        for how in ("call", "unchanged"):
            with TemporaryDirectory() as cache:
                numpy, empty, warm = (ran(case, each, cache) for each in ("numpy", how, how))
            rows.append({"case": case, "how": how, "numpy": numpy, "empty": empty, "warm": warm})
            cells = [
                f"{each['total'] / numpy['total']:.2f} ({each['whole'] / numpy['whole']:.2f}), {each['moved']:.0f}, "
                f"{1e3 * (each['first'] - numpy['first']):.1f} ms"
                for each in (empty, warm)
            ]
            print(
                f"| {name} {n}, {case[2]} | {how} | {numpy['total']:.2f} s | {' | '.join(cells)} |",
                flush=True
            )
    about = {"numpy": np.__version__, "processors": len(os.sched_getaffinity(0))}
    if options.json:
        Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n",
                                      "utf-8")


if __name__ == "__main__":
    main()
