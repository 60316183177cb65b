"""The files that one call goes through: ``python -m tests.gates.walk sgemm`` prints the functions
that it enters, and how often it changes file, there and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cuteblas
from cuteblas import blas

HOME = Path(cuteblas.__file__).parent
CALLS: dict[str, Callable[[np.ndarray], Any]] = {
    "matmul": lambda x: cuteblas.matmul(x, x), "sgemm": lambda x: blas.sgemm(1.0, x, x),
    "einsum": lambda x: cuteblas.einsum("ij,jk,kl->il", x, x, x),
    "copy": lambda x: cuteblas.copy(x.T, "C")}


def walked(call: Callable[[], Any]) -> tuple[int, list[str]]:
    """How often a call changes file, and the functions that it enters, indented by their depth.
    Imports do not count."""
    files, entered, importing, changes, last = [""], list[str](), 0, 0, ""

    def step(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal importing, changes, last
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(HOME)):
            return
        if code.co_name == "<module>":
            importing += 1 if event == "call" else -1
        elif not importing:
            if event == "call":
                files.append(str(Path(code.co_filename).relative_to(HOME)))
                entered.append("  " * (len(files) - 2) + f"{files[-1]} {code.co_name}")
            else:
                files.pop()
            changes += files[-1] not in ("", last)
            last = files[-1]

    sys.setprofile(step)
    try:
        call()
    finally:
        sys.setprofile(None)
    return changes, entered


def main(name: str) -> None:
    """Print a first call and one like it."""
    x = np.ones((64, 64), np.float32)
    for which in ("first", "second"):
        changes, entered = walked(lambda: CALLS[name](x))
        print(*entered, f"the {which} {name} changes file {changes} times", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
