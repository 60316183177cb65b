"""Time cuteblas beside the other libraries here, in turns. A ratio above 1 means that cuteblas is
faster than the fastest of them.

  gemm       matmul with operands in all orders beside CuPy and torch, and its error on a sample,
             in units of u(|A||B|)
  transpose  transposes into new memory, beside CuPy and beside a copy of as many bytes by the
             driver; without other groups also permutations (--sizes 64x1001x1037:0,2,1) and
             transposes in place (--sizes 8192:inplace)

  # your own shapes
  python -m cuteblas bench gemm --dtypes float32 --sizes 3000x500x70
  # NumPy arrays, beside NumPy; this needs no GPU
  python -m cuteblas bench gemm --backend numpy --sizes 3000x500x70
"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from .. import runtime
from ..blas.types import dtype_named
from ..functions import backend
from ..functions.algorithms import PRECISIONS
from .command import CommandError, Parser, command_line, positive, print_about, refuse_unwritable
from .machines import Gpu, Host, host_versions, versions
from .measurements import (
    COPY_DTYPES,
    GEMM_DTYPES,
    ORDERS,
    Measured,
    Row,
    Selection,
    products,
    transposes,
)
from .problems import Permutation, permutation, shapes
from .terminal import Progress, wrapped

__all__ = ["COLUMNS", "DIGITS", "GROUPS", "HUNDREDTHS", "MICROSECONDS", "WIDTHS", "Group",
           "machine_of", "measure", "number", "selected", "verdict"]

_S = TypeVar("_S", bound=Selection)
Group = Callable[[Any, Any], Measured]
GROUPS: dict[str, Group] = {"gemm": products, "transpose": transposes}
"""By name: what counts and measures the cases of a machine and a selection."""

_ERRORS = (
    "in units of u(|A||B|), where u is the rounding unit of the result's type and |A||B| the sum of the sizes of an "
    "element's terms: any order of summing K terms stays within K of it"
)


def configure(
    parser: Parser, groups: Iterable[str] = GROUPS, usual: Iterable[str] = GROUPS
) -> None:
    names = ", ".join(groups)

    def group(name: str) -> str:
        if name not in groups:
            raise ArgumentTypeError(f"unknown group {name!r}; the groups are {names}")
        return name

    parser.option("groups GROUP",
                  f"groups to time, of {names} (default: {', '.join(usual)})",
                  nargs="*", type=group)
    parser.option("--sizes SIZE",
                  "4096 for a square product or transpose; 10240x4096x4096 for a product, M, N "
                  "and K; 8191x8193 for a transpose; 65x35x129x253:2,0,3,1 for a permutation of "
                  "axes, 8192:inplace for a transpose in place",
                  nargs="+", type=_size, default=())
    parser.option("--dtypes DTYPE",
                  f"element types (default: {' '.join(GEMM_DTYPES)}; of transposes {' '.join(COPY_DTYPES)})",
                  nargs="+", type=_dtype, default=())
    parser.option("--orders ORDERS",
                  "of products: for each operand N if its rows are contiguous, T if its columns are (default: all four)",
                  nargs="+", type=str.upper, choices=ORDERS, default=ORDERS)
    parser.option("--precision NAME",
                  f"as in cuteblas.matmul, one of {', '.join(PRECISIONS)} (default: %(default)s)",
                  default="auto", choices=PRECISIONS)
    parser.option("--repeats",
                  "timings per call; their median counts (default: %(default)s)",
                  type=positive, default=11)
    parser.option("--backend",
                  "arrays of CuPy (cuda), or of NumPy, without a GPU too (default: %(default)s)",
                  choices=("cuda", "numpy"), default="cuda")
    parser.option("--json FILE",
                  "write all times in seconds, with the machine and the command",
                  type=Path)


def run(options: Namespace) -> int:
    which = selected(options, Selection)
    refuse_unwritable(options.json)
    machine, about = machine_of(options, "cuteblas")
    with nullcontext() if options.backend == "numpy" else backend("numpy"):
        return verdict(
            measure(
                machine,
                {name: GROUPS[name] for name in options.groups or GROUPS},
                which,
                options.json,
                about,
            )
        )


def selected(options: Namespace, kind: type[_S]) -> _S:
    if options.groups != ["transpose"] and any(isinstance(size, Permutation)
                                               for size in options.sizes):
        raise CommandError(
            "permutations of axes and transposes in place need the group transpose alone"
        )
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})


def machine_of(options: Namespace, program: str) -> tuple[Any, dict[str, str]]:
    """Where to measure, and what measurements there depend on, which is printed."""
    if options.backend == "cuda" and (reason := runtime.why_unavailable()) is not None:
        raise CommandError(
            f"bench needs a GPU: {reason}; without one, --backend numpy times calls on NumPy arrays"
        )
    machine, known = (
        (Host(), host_versions()) if options.backend == "numpy" else (Gpu(), versions())
    )
    about = {"command": command_line(program), **known}
    print_about(about)
    return machine, about


def measure(machine: Any, groups: Mapping[str, Group], which: Any, file: Path | None,
            about: Mapping[str, str]) -> dict[str, list[Row]]:
    """Run groups on a machine, print their tables and return their rows; ``file`` is rewritten
    after every row, so that an interruption loses nothing."""
    figures: dict[str, list[Row]] = {}
    for name, measured in groups.items():
        rows = figures[name] = []
        print(f"\n{name}")
        count, found = measured(machine, which)
        with Progress(name, count) as progress:
            for row in found:
                if not rows:
                    progress.print(_line({key: COLUMNS[key][0].replace("CuPy", machine.title)
                                          for key in row}))
                progress.print(_line({key: COLUMNS[key][1](value) for key, value in row.items()}))
                progress.advance(not rows or row["case"] != rows[-1]["case"])
                rows.append(row)
                if file is not None:
                    file.write_text(json.dumps({"about": about, "figures": figures}, indent=1)
                                    + "\n", "utf-8")
        if not rows:
            print("no case has these sizes and types")
        elif "error" in rows[0]:
            print(wrapped(f"  error  {_ERRORS}"))
    if file is not None:
        print(f"\nwrote {file}")
    return figures


def verdict(figures: Mapping[str, list[Row]]) -> int:
    wrong = [row["case"] for rows in figures.values() for row in rows if not row.get("right", True)]
    if wrong:
        print(f"\nWRONG results: {', '.join(wrong)}")
    return 1 if wrong else 0


def _size(text: str) -> tuple[int, ...] | Permutation:
    """Extents of "8191x8193", a permutation of "64x1001x1037:0,2,1" or "8192:inplace"."""
    try:
        ((extents, axes),) = shapes(text)
    except ValueError:
        extents, axes = (), None
    if not extents or 0 in extents:
        raise ArgumentTypeError(
            "a size is written 4096, 8191x8193, 64x1001x1037:0,2,1 or 8192:inplace, "
            f"with extents above 0, got {text!r}"
        )
    if axes is None:
        return extents
    try:
        return permutation(extents * 2 if len(extents) == 1 else extents, axes)
    except ValueError as error:
        raise ArgumentTypeError(error) from None


def _dtype(name: str) -> str:
    try:
        return dtype_named(name).name
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error


# -- tables ----------------------------------------------------------------------------------------
def number(form: str, scale: float = 1) -> Callable[[float | None], str]:
    """Print a number times ``scale``; nothing where it is missing."""
    return lambda value: "" if value is None else f"{value * scale:{form}}"


MICROSECONDS, DIGITS, HUNDREDTHS = number(".4g", 1e6), number(".3g"), number(".2f")

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "case": ("", str),
    "kernel": ("kernel", str),
    "ours_s": ("us", MICROSECONDS),
    "rival_s": ("CuPy us", MICROSECONDS),
    "torch_s": ("torch us", MICROSECONDS),
    "copy_s": ("copy us", MICROSECONDS),
    "ratio": ("ratio", HUNDREDTHS),
    "of_copy": ("of copy", HUNDREDTHS),
    "tflops": ("TFLOP/s", DIGITS),
    "gb_s": ("GB/s", DIGITS),
    "error": ("error", DIGITS),
    "rival_error": ("CuPy's", DIGITS),
    "right": ("", lambda right: "" if right else "WRONG"),
}
"""By key of a row: the heading, and how a value is printed."""

WIDTHS = {"case": 41, "kernel": 12}


def _line(cells: Mapping[str, str]) -> str:
    return " ".join(f"{cell:<{WIDTHS[key]}}" if key in WIDTHS else f"{cell:>9}"
                    for key, cell in cells.items()).rstrip()
