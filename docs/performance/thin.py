"""``python docs/performance/thin.py FILE [WORD ...]``: products with few rows or columns, long
sums, and outer products, in every type, beside CuPy and PyTorch, and a copy of as many bytes. Of
the cases whose names have all of the words, if there are any.

It needs CuPy, and PyTorch where it should be compared. Times are the GPU's, of calls in turns with
an empty L2 cache.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from conformance.bench.products import RandomProduct, timed_products
from cuteblas.cli.machines import Gpu, medians, versions

DTYPES = "float16", "float32", "float64", "complex64", "complex128"
# Kind, M, N, K, and orders of A and B: N if rows are contiguous, T if columns are.
CASES = (
    *(("thin", n, 8192, 8192, orders) for n in (16, 32, 64) for orders in ("NN", "NT")),
    ("thin", 8192, 16, 8192, "NN"), ("thin", 8192, 16, 8192, "TN"),
    ("thin", 1_000_000, 32, 32, "NN"), ("thin", 1_000_000, 8, 32, "NN"),
    *(("deep", n, n, 1_000_000, orders) for n in (16, 64) for orders in ("NN", "TN", "NT")),
    *(("outer", 8192, 8192, k, "NN") for k in (1, 4, 16, 32, 64)),
)
REPEATS = 9


def cases(words: list[str]) -> Iterator[RandomProduct]:
    """All products, or those whose names have all of the words."""
    for (kind, m, n, k, orders), dtype in product(CASES, DTYPES):
        case = RandomProduct(dtype, kind, 1, m, n, k, orders)
        if all(word in f"{kind} {case}".split() for word in words):
            yield case


def main(file: Path, words: list[str]) -> None:
    """Measure, print and write the figures."""
    import cupy

    machine, rows = Gpu(), list[dict[str, Any]]()
    source, target = (cupy.empty(1 << 30, cupy.uint8) for _ in range(2))
    by_name = {str(case): case for case in cases(words)}
    for row in timed_products(machine, list(by_name.values()), REPEATS, "auto"):
        case = by_name[row["case"]]
        first, second, result = case.shapes
        item = cupy.dtype(case.dtype).itemsize
        moved = sum(x * y for x, y in (first, second, result)) * item // 2
        row["copy_s"], = medians(machine, partial(cupy.copyto, target[:moved], source[:moved]),
                                 repeats=REPEATS, seconds=0.05)
        row["of_copy"] = row["copy_s"] / row["ours_s"]
        rows.append(row)
        best = row["ratio"] * row["ours_s"]
        print(
            f"{case!s:<36}{row['ours_s'] * 1e6:9.1f} us{row['of_copy']:7.2f} of a copy{row['ratio']:7.2f} of the best other"
            f" ({best * 1e6:.1f} us)   {row['kernel']}{'' if row['right'] else '   WRONG'}",
            flush=True
        )
    about = {**versions(),
             "command": f"python docs/performance/thin.py {' '.join([file.name, *words])}"}
    file.write_text(json.dumps({"about": about, "figures": {"thin": rows}}, indent=1) + "\n",
                    encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
