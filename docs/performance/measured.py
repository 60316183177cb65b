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
KEYS = ("kernel", "ours_s", "rival_s")
ABOUT = ("device", "cupy", "cublas")


def main(target: Path) -> None:
    """Write the cases, and on what they were measured."""
    rows, about = [], {}
    for (name, group), cases in CASES.items():
        data = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        found = {row["case"]: row for row in data["figures"][group]}
        rows += [{"group": group, "case": case, **{key: found[case][key] for key in KEYS}}
                 for case in cases]
        machine = {key: data["about"][key] for key in ABOUT}
        if about and machine != about:
            raise ValueError(f"{name} was measured on {machine}, the others on {about}")
        about = machine
    target.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
