"""Five NumPy programs with and without this package: their own times, in turns; whether their checksums agree.

    python docs/performance/numpy_programs.py [--sizes cpu|gpu] [--repeats 3] [--json FILE] [NAME ...]

``--sizes cpu`` is for a few processors without a GPU, ``gpu`` for a host with one, where ``CUTEBLAS_BACKEND=auto`` is set.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

HOME = Path(__file__).parents[2]
SIZES = {
    "pca": {"cpu": (20_000, 512, 16), "gpu": (200_000, 2048, 16)},
    "kernel_ridge": {"cpu": (2000, 1000, 784), "gpu": (8192, 4096, 4096)},
    "digits_network": {"cpu": (512, 512, 20), "gpu": (4096, 4096, 30)},
    "count_paths": {"cpu": (512, 12, 6), "gpu": (1024, 12, 6)},
    "tensor_network": {"cpu": (12, 48, 2), "gpu": (12, 80, 2)},
}


def ran(name: str, sizes: tuple[int, ...], *before: str) -> tuple[float, str]:
    """Seconds that a program says it took, and its checksum."""
    program = HOME / "docs" / "examples" / "numpy_programs" / f"{name}.py"
    result = subprocess.run([sys.executable, *before, str(program), *map(str, sizes)], capture_output=True, encoding="utf-8",
                            check=True, env=os.environ | {"PYTHONPATH": str(HOME)})
    checksum, seconds = result.stdout.splitlines()
    return float(seconds.split()[0]), checksum


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*SIZES], metavar="NAME")
    parser.add_argument("--sizes", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.sizes == "gpu":
        os.environ["CUTEBLAS_BACKEND"] = "auto"
    rows: list[dict] = []
    about = {"numpy": np.__version__, "python": platform.python_version(), "processors": len(os.sched_getaffinity(0)),
             "sizes": options.sizes, "backend": os.environ.get("CUTEBLAS_BACKEND", "")}
    print("| program | sizes | NumPy | with cuteblas | ratio |\n|---|---|---|---|---|")
    for name in options.names:
        sizes, times = SIZES[name][options.sizes], {"numpy": [], "cuteblas": []}
        checksums = set()
        for _ in range(options.repeats):
            for which, before in (("numpy", ()), ("cuteblas", ("-m", "cuteblas", "--numpy"))):
                seconds, checksum = ran(name, sizes, *before)
                times[which].append(seconds)
                checksums.add(checksum)
        best = {which: min(each) for which, each in times.items()}
        rows.append({"program": name, "sizes": sizes, "seconds": times, "checksums": sorted(checksums)})
        print(f"| `{name}.py` | {' '.join(map(str, sizes))} | {best['numpy']:.2f} s | {best['cuteblas']:.2f} s | "
              f"{best['numpy'] / best['cuteblas']:.1f} |", flush=True)
        if len(checksums) > 1:
            print(f"checksums differ: {checksums}")
        if options.json:
            Path(options.json).write_text(json.dumps({"about": about, "programs": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
