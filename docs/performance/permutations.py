"""``python docs/performance/permutations.py`` writes the tables of transpose.md that tell of random
permutations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "h200-transpose-random.json"
BYTES = {"int8": 1, "float16": 2, "float32": 4, "float64": 8, "complex128": 16}
LARGE, WORST = 32 << 20, 10
VIEW = 1e-6                                     # seconds: CuPy copies nothing in less
ASKED = {1: 0.75, 2: 0.75, 4: 0.85, 8: 0.85, 16: 0.85}


def nbytes(row: dict[str, Any]) -> int:
    """What is moved, of ``int8 64x1001x1037:0,2,1 of rows of 1040``."""
    dtype, size = re.split(r"[ :]", row["case"])[:2]
    return prod(map(int, size.split("x"))) * BYTES[dtype]


def part(values: list[float], share: float) -> str:
    """The value that so many are below."""
    return f"{sorted(values)[int(share * (len(values) - 1))]:.2f}"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What CuPy copies too, by bytes of an element, and the worst."""
    rows = [row for row in rows if row["rival_s"] >= VIEW]
    yield (
        "| bytes | of how many | least, tenth percentile, median | of 32 MiB and more | of these below 0.75 (1 and 2 bytes), "
        "0.85 |"
    )
    yield "|---|---|---|---|---|"
    for dtype, item in BYTES.items():
        mine = [row for row in rows if row["case"].startswith(f"{dtype} ")]
        every = [row["of_copy"] for row in mine]
        large = [row["of_copy"] for row in mine if nbytes(row) >= LARGE]
        told = [", ".join(part(values, share) for share in (0, 0.1, 0.5))
                for values in (every, large)]
        yield f"| {item} | {len(every)} | {told[0]} | {told[1]} | {sum(x < ASKED[item] for x in large)} of {len(large)} |"
    median, against = (part([row[key] for row in rows], 0.5) for key in ("of_copy", "ratio"))
    slower = sum(row["ratio"] < 1 for row in rows)
    yield f"\nAll {len(rows)}: median {median} of a copy, {against} times CuPy; {slower} slower than CuPy's. The worst:\n"
    yield "| | part of a copy | against CuPy |"
    yield "|---|---|---|"
    for row in sorted(rows, key=lambda row: row["of_copy"])[:WORST]:
        yield f"| {row['case']} | {row['of_copy']:.2f} | {row['ratio']:.2f} |"


if __name__ == "__main__":
    print("\n".join(table(json.loads(DATA.read_text(encoding="utf-8"))["figures"]["transpose"])))
