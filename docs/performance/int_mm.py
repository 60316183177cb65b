"""``python docs/performance/int_mm.py FILE``: ``blas.igemm``, int8 to int32, beside PyTorch's
``_int_mm``, which calls cuBLASLt.

It needs CuPy and PyTorch. cuBLASLt is given its best order, A by rows and B by columns (NT),
whatever the order of ours.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from cuteblas import blas
from cuteblas.cli.machines import Gpu, medians, versions

SIZES = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (16384,) * 3, (8192, 8192, 2048))
ORDERS, REPEATS = ("NN", "NT", "TN", "TT"), 5


def main(file: Path) -> None:
    """Measure, and write the figures after each size."""
    import cupy
    import torch

    machine, rows = Gpu(), []
    about = {**versions(), "torch": torch.__version__,
             "command": f"python docs/performance/int_mm.py {file.name}"}
    for m, n, k in SIZES:
        words = [(cupy.random.random(rows * k // 4) * 2.0**32).astype(cupy.uint32).view(cupy.int8)
                 for rows in (m, n)]
        a, b = (x.reshape(rows, k) for x, rows in zip(words, (m, n), strict=True))
        rival = torch.empty((m, n), dtype=torch.int32, device="cuda")
        theirs = partial(torch._int_mm, *(torch.from_dlpack(x) for x in (a, b.T)), out=rival)
        ours: list[Any] = []
        results = []
        for order in ORDERS:
            x = a if order[0] == "N" else cupy.asfortranarray(a)
            y = b.T if order[1] == "T" else cupy.ascontiguousarray(b.T)
            results.append(cupy.empty((m, n), cupy.int32))
            ours.append(partial(blas.igemm, 1, x, y, out=results[-1]))
        *seconds, theirs_s = medians(machine, *ours, theirs, repeats=REPEATS)
        for order, taken, result in zip(ORDERS, seconds, results, strict=True):
            right = bool((cupy.from_dlpack(rival) == result).all())
            rows.append({"case": f"int8 {m}x{n}x{k} {order}", "ours_s": taken, "rival_s": theirs_s,
                         "ratio": theirs_s / taken, "tops": 2 * m * n * k / taken / 1e12,
                         "right": right})
            print(rows[-1], flush=True)
        file.write_text(json.dumps({"about": about, "figures": {"int_mm": rows}}, indent=1) + "\n",
                        encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
