"""``python docs/performance/batched.py FILE``: batches of small matrices beside CuPy and PyTorch,
and a copy of as many bytes.

It needs CuPy and PyTorch. Times are the GPU's: calls are queued behind a kernel that waits, so that
the host does not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import cuteblas
from cuteblas.cli.machines import versions

DTYPES = "float16", "float32", "float64", "complex64", "complex128", "int8", "int32"
SHAPES = ((100_000, 3), (1_000_000, 3), (100_000, 4), (1_000_000, 4), (100_000, 8), (30_000, 16),
          (10_000, 32), (2000, 64), (256, 100))
CALLS, ROUNDS, WAIT = 10, 5, 2_000_000


def seconds(call: Callable[[], Any]) -> float:
    """The GPU's time for one of several calls, which follow each other."""
    import torch

    call()
    call()
    found = []
    for _ in range(ROUNDS):
        torch.cuda._sleep(WAIT)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / CALLS / 1e3)
    return median(found)


def random(shape: tuple[int, ...], dtype: str) -> Any:
    """Random elements; integers are small."""
    import cupy

    x = cupy.random.standard_normal(shape, dtype=cupy.float32) * (4 if dtype.startswith("int")
                                                                  else 1)
    return (x + 1j * x[::-1] if dtype.startswith("complex") else x).astype(dtype)


def case(batch: int, m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
    """The figures of one product of C-ordered arrays."""
    import cupy
    import torch

    a, b = random((batch, m, k), dtype), random((batch, k, n), dtype)
    ours, theirs = cupy.empty((batch, m, n), dtype), cupy.empty((batch, m, n), dtype)
    row: dict[str, Any] = {"case": f"{dtype} {batch} of {m}x{n}x{k}",
                           "bytes": a.nbytes + b.nbytes + ours.nbytes}
    row["ours_s"] = seconds(partial(cuteblas.matmul, a, b, out=ours))
    row["family"] = cuteblas.explain(a, b, out=ours).family
    if not dtype.startswith("int"):
        rival = torch.empty((batch, m, n), dtype=getattr(torch, dtype), device="cuda")
        row["cupy_s"] = seconds(partial(cupy.matmul, a, b, out=theirs))
        row["torch_s"] = seconds(partial(torch.bmm, torch.from_dlpack(a), torch.from_dlpack(b),
                                         out=rival))
        row["ratio"] = min(row["cupy_s"], row["torch_s"]) / row["ours_s"]
        scale = float(abs(theirs).max())
        row["difference"] = float(abs(ours - theirs).max()) / scale
    source = torch.empty(row["bytes"] // 2, dtype=torch.uint8, device="cuda")
    row["copy_s"] = seconds(partial(torch.empty_like(source).copy_, source))
    row["of_copy"] = row["copy_s"] / row["ours_s"]
    return row


def main(file: Path) -> None:
    """Measure, and write the figures."""
    import torch

    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(50):
        x @ x
    about = {**versions(), "torch": torch.__version__, "device": torch.cuda.get_device_name(),
             "command": f"python docs/performance/batched.py {file.name}"}
    rows = []
    for shape in (*((batch, n, n, n) for batch, n in SHAPES), (1000, 1, 1, 200)):
        for dtype in DTYPES:
            rows.append(case(*shape, dtype))
            print(rows[-1], flush=True)
    file.write_text(json.dumps({"about": about, "figures": {"batched": rows}}, indent=1) + "\n",
                    encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
