"""``python docs/performance/measured.py`` takes what the demonstration says of a GPU from the data
of this folder.

It goes into the package, since what is installed has no docs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DATA = Path(__file__).parent / "data"
TARGET = Path(__file__).parents[2] / "cuteblas" / "cli" / "measured.json"
# By file and group of figures: the cases to tell.
CASES = {
    ("h200-float32", "gemm"): ("float32 4096x4096x4096 NN",),
    ("h200-complex", "gemm"): ("complex64 4096x4096x4096 NN",),
    ("h200-half", "gemm"): ("float16 4096x4096x4096 NN",),
    ("h200-double", "gemm"): ("float64 4096x4096x4096 NN",),
    ("h200-transpose", "transpose"): ("int8 8192x8192", "float32 8192x8192"),
}
FUNCTIONS = {"gemm": "matmul", "transpose": "transpose"}


def main(target: Path) -> None:
    """Write the cases, each with our seconds and CuPy's, and on what they were measured."""
    rows, about = [], set()
    for (name, group), cases in CASES.items():
        data = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        found = {row["case"]: row for row in data["figures"][group]}
        for case in cases:
            element, size, *_orders = case.split()
            rows.append([f"{FUNCTIONS[group]} {element} {size.replace('x', ' x ')}",
                         found[case]["ours_s"], found[case]["rival_s"]])
        about.add(described(**data["about"]))
    (machine,) = about
    target.write_text(json.dumps({"about": machine, "rows": rows}, indent=1) + "\n",
                      encoding="utf-8")


def described(device: str, cupy: str, cublas: str, **_others: str) -> str:
    """A machine in words."""
    major, minor = divmod(int(cublas) // 100, 100)
    return f"one {device}, beside CuPy {cupy.rpartition('.')[0]} (cuBLAS {major}.{minor})"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
