"""Unchanged NumPy programs with cuteblas and without: times of whole processes, and of their
computation (in parentheses), in turns; whether their results agree.

    python docs/performance/numpy_programs.py [--sizes cpu|gpu] [--repeats 3] [--caches empty warm kept]
                                              [--json FILE] [NAME ...]

``--sizes cpu`` is for a few processors without a GPU, ``gpu`` for a host with one. A cache is a new
folder for each run (``empty``) or one that a run before has filled (``warm``, and ``kept`` with
``CUTEBLAS_KEEP_ARRAYS=1``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import perf_counter

import numpy as np

HOME = Path(__file__).parents[2]
SIZES = {
    "digits_network": {"cpu": (512, 512, 20), "gpu": (6144, 4096, 4)},
    "pca": {"cpu": (20_000, 512, 16), "gpu": (100_000, 2048, 16)},
    "kernel_ridge": {"cpu": (2000, 1000, 784), "gpu": (6000, 6000, 8192)},
    "kmeans": {"cpu": (20_000, 256, 64, 4), "gpu": (40_000, 4096, 1024, 6)},
    "power_iteration": {"cpu": (1500, 32, 10), "gpu": (8000, 64, 20)},
    "markov_chains": {"cpu": (800, 8, 200), "gpu": (5000, 12, 500)},
    "tensor_network": {"cpu": (12, 48, 2), "gpu": (12, 76, 2)},
    "coupled_cluster": {"cpu": (10, 40, 3), "gpu": (32, 96, 7)},
    "count_paths": {"cpu": (512, 12, 6), "gpu": (768, 12, 6)},
    "image_warps": {"cpu": (8, 512, 2), "gpu": (64, 1024, 4)},
    "gaussian_process": {"cpu": (1000, 1000, 500), "gpu": (6000, 6000, 2000)},
    "transformer": {"cpu": (128, 256, 2, 4), "gpu": (512, 1024, 8, 16)},
}
COMPILED = {"PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": f"{gettempdir()}/cuteblas-modules"}
"""Python's modules are compiled once, as those of an installed package are."""
_CLOSE = 5e-3                           # checksums have four to eight digits


def ran(name: str, sizes: tuple[int, ...], *before: str, cache: str = "",
        keep: str = "0") -> tuple[tuple[float, float], list[float], str]:
    """Seconds of the process and of its computation, the numbers of its checksum, and its
    report."""
    program = HOME / "docs" / "examples" / "numpy_programs" / f"{name}.py"
    begin = perf_counter()
    result = subprocess.run([sys.executable, *before, str(program), *map(str, sizes)],
                            capture_output=True, encoding="utf-8", check=True,
                            env=os.environ | {"PYTHONPATH": str(HOME), "CUTEBLAS_CACHE_DIR": cache,
                                              "CUTEBLAS_KEEP_ARRAYS": keep, **COMPILED})
    seconds = perf_counter() - begin
    checksum, computed = result.stdout.splitlines()[:2]
    return (seconds, float(computed.split()[0])), [float(word)
                                                   for word in checksum.split()[1:]], result.stderr


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*SIZES], metavar="NAME")
    parser.add_argument("--sizes", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--caches", nargs="+", choices=("empty", "warm", "kept"),
                        default=["empty", "warm"])
    parser.add_argument("--json")
    options = parser.parse_args()
    rows: list[dict] = []
    about = {"numpy": np.__version__, "python": platform.python_version(),
             "processors": len(os.sched_getaffinity(0)), "sizes": options.sizes}
    print(
        f"| program | NumPy | {' | '.join(f'{cache} cache | ratio' for cache in options.caches)} |"
    )
    print(f"|---|---|{'---|---|' * len(options.caches)}")
    with TemporaryDirectory() as folder:
        for name in options.names:
            sizes = SIZES[name][options.sizes]
            times: dict[str, list[tuple[float, float]]] = {"numpy": [],
                                                           **{cache: []
                                                              for cache in options.caches}}
            checksums, report = [], ""
            warm = f"{folder}/{name}"
            for which, keep in (("warm", "0"), ("kept", "1")):
                if which in options.caches:
                    ran(name, sizes, "-m", "cuteblas", "--numpy", cache=f"{warm}{keep}", keep=keep)
            for turn in range(options.repeats):
                for which in times:
                    before = () if which == "numpy" else ("-m", "cuteblas", "--numpy")
                    keep = "01"[which == "kept"]
                    cache = f"{warm} {turn}" if which == "empty" else f"{warm}{keep}"
                    seconds, checksum, told = ran(name, sizes, *before, cache=cache, keep=keep)
                    times[which].append(seconds)
                    checksums.append(checksum)
                    report = told or report
            best = {which: min(each) for which, each in times.items()}
            rows.append({"program": name, "sizes": sizes, "seconds": times, "checksums": checksums,
                         "report": report.splitlines()})
            whole, inner = best["numpy"]
            cells = [
                f"{best[cache][0]:.2f} s | {whole / best[cache][0]:.2f} ({inner / best[cache][1]:.2f})"
                for cache in options.caches
            ]
            print(
                f"| `{name}.py {' '.join(map(str, sizes))}` | {whole:.2f} s ({inner:.2f}) | {' | '.join(cells)} |",
                flush=True
            )
            if not all(np.allclose(checksum, checksums[0], rtol=_CLOSE, atol=1e-9)
                       for checksum in checksums):
                print(f"checksums differ: {checksums}")
            if options.json:
                Path(options.json).write_text(json.dumps({"about": about, "programs": rows},
                                                         indent=1) + "\n", "utf-8")
    for cache in options.caches:
        ratios = [min(row["seconds"]["numpy"])[0] / min(row["seconds"][cache])[0] for row in rows]
        print(f"{cache} cache: median {np.median(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
