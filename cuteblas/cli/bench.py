r"""Time cuteblas beside the other libraries here, in turns. A ratio above 1 means that cuteblas is
faster than the fastest of them.

  gemm       matmul with operands in all orders beside CuPy and
             torch, and its error on a sample, in units of
             u(|A||B|)
  transpose  transposes into new memory, beside CuPy and beside
             a copy of as many bytes by the driver; without
             other groups also permutations
             (--sizes 64x1001x1037:0,2,1) and transposes in
             place (--sizes 8192:inplace)

  # your own shapes
  python -m cuteblas bench gemm --dtypes float32 \
      --sizes 3000x500x70
  # NumPy arrays, beside NumPy; this needs no GPU
  python -m cuteblas bench gemm --backend numpy \
      --sizes 3000x500x70
"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, Self

from .. import blas, runtime
from ..blas.types import dtype_named
from ..engines.problems import has_kernels
from ..functions import Explanation, backend, copy, explain, explain_copy, matmul
from ..functions.signatures import Precision
from .command import (
    CommandError,
    Parser,
    command_line,
    positive,
    print_about,
    refusals,
    refuse_unwritable,
)
from .grading import Grade, grade
from .machines import Gpu, Host, host_versions, medians, random_array, torch_of, versions
from .problems import Permutation, permutation, shapes
from .terminal import Progress, wrapped

GEMM_DTYPES = ("float32", "float64", "complex64", "complex128", "float16")
COPY_DTYPES = ("int8", "float16", "float32", "float64", "complex128")
ORDERS = ("NN", "NT", "TN", "TT")
_SAMPLED = 1 << 20                      # elements of an operand by which a result is checked

Row = dict[str, Any]
"""One line of a table: times in seconds under keys that end in ``_s``."""

Measured = tuple[int, Iterator[Row]]
"""How many cases there are, and their rows, one or several for each."""


@dataclass(frozen=True)
class Selection:
    """Which cases are measured, and how. ``sizes`` of one extent are squares, two a transpose,
    three M, N, K; none means the usual ones, and so of ``dtypes``."""

    sizes: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    orders: Sequence[str] = ORDERS
    precision: Precision = "auto"
    repeats: int = 11

    @classmethod
    def of(cls, options: Namespace) -> Self:
        """The selection that the options of a command name."""
        if options.groups != ["transpose"] and any(isinstance(size, Permutation)
                                                   for size in options.sizes):
            raise CommandError(
                "permutations of axes and transposes in place need the group transpose alone"
            )
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})


_ERRORS = (
    "in units of u(|A||B|), where u is the rounding unit of the result's type and |A||B| the sum of the sizes of an "
    "element's terms: any order of summing K terms stays within K of it"
)


# -- products --------------------------------------------------------------------------------------
def products(machine: Any, which: Selection) -> Measured:
    """Products, beside those of the other libraries."""
    cases = product_cases(which, ((1024,), (4096,)))
    return len(cases), (
        multiplied(machine, which, case, *operands(machine.rival, case)) for case in cases
    )


def product_cases(
    which: Selection, usual: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...] = GEMM_DTYPES
) -> list[str]:
    """Type, extents M, N, K and orders of every product: ``"float32 1024x1024x1024 NT"``."""
    sizes = [
        size * 3 if len(size) == 1 else size for size in which.sizes or usual if len(size) != 2
    ]
    return [
        f"{dtype} {'x'.join(map(str, size))} {orders}"
        for dtype in which.dtypes or dtypes
        for size in sizes
        for orders in which.orders
    ]


def operands(xp: Any, case: str) -> list[Any]:
    """Both operands of a product."""
    dtype, size, orders = case.split()
    m, n, k = map(int, size.split("x"))
    return [
        random_array(xp, extents, dtype, seed, "C" if order == "N" else "F")
        for seed, (order, extents) in enumerate(zip(orders, ((m, k), (k, n)), strict=True))
    ]


def multiplied(machine: Any, which: Selection, case: str, a: Any, b: Any,
               variant: str | None = None, seconds: float = inf) -> Row:
    """The row of a product."""
    xp = machine.rival
    c, d = (xp.empty((*a.shape[:-1], b.shape[-1]), a.dtype) for _ in range(2))
    ours: Callable[[], Any]
    if has_kernels(a.dtype):
        explanation = explain(a, b, c, precision=which.precision, variant=variant)
        ours = partial(matmul, a, b, out=c, precision=which.precision, variant=variant)
    else:  # bfloat16: NumPy's matmul makes float32 of it
        with refusals(TypeError):
            planned = blas.plan(a, b, out=c, precision=which.precision)
        explanation, ours = planned.explain(), partial(planned.execute, a, b, out=c)
    theirs: dict[str, Callable[[], Any]] = {"rival_s": partial(xp.matmul, a, b, out=d)}
    if a.dtype.name in GEMM_DTYPES and (torch := torch_of(machine)) is not None:
        x, y, z = map(torch.from_dlpack, (a, b, d))
        theirs["torch_s"] = partial(torch.matmul, x, y, out=z)
    taken, *others = medians(
        machine, ours, *theirs.values(), repeats=which.repeats, seconds=seconds
    )
    ours()
    theirs["rival_s"]()
    mine, rival = (graded(machine, a, b, result) for result in (c, d))
    flops = 2 * c.size * a.shape[-1] * (4 if a.dtype.kind == "c" else 1)
    return {
        "case": case,
        "kernel": _kernel(machine, explanation),
        "ours_s": taken,
        **dict(zip(theirs, others, strict=True)),
        "ratio": min(others) / taken,
        "tflops": flops / taken / 1e12,
        "error": mine.error,
        "rival_error": rival.error,
        "right": mine.passed,
    }


# -- transposes ------------------------------------------------------------------------------------
def transposes(machine: Any, which: Selection) -> Measured:
    """Transposes and permutations, beside the other library and a copy of as many bytes."""
    cases = move_cases(which)
    return len(cases), (moved(machine, which, *case) for case in cases)


def move_cases(which: Selection) -> list[tuple[str, Permutation]]:
    """Type and permutation of every transpose."""
    sizes = [size if isinstance(size, Permutation)
             else Permutation(size * 2 if len(size) == 1 else size)
             for size in which.sizes or ((8192,), (8191, 8193))
             if isinstance(size, Permutation) or len(size) < 3]
    return [*product(which.dtypes or COPY_DTYPES, sizes)]


def moved(machine: Any, which: Selection, dtype: str, size: Permutation,
          variant: str | None = None) -> Row:
    """The row of a transpose."""
    xp = machine.rival
    x = random_array(xp, size.memory(), dtype)
    array = xp.empty(size.extents, x.dtype) if size.beyond else x
    source, target, other = size.of(x), x if size.in_place else None, xp.empty_like(array)
    explanation = explain_copy(source, out=target, variant=variant)
    call = partial(copy, source, "C", out=target, variant=variant)

    def rival() -> Any:
        if target is None:
            return xp.ascontiguousarray(source)
        target[...] = source.copy()
        return target

    ours, theirs, copied = medians(
        machine, call, rival, partial(xp.copyto, other, array), repeats=which.repeats
    )
    expected = source.copy()
    return {
        "case": f"{dtype} {size}",
        "kernel": _kernel(machine, explanation),
        "ours_s": ours,
        "rival_s": theirs,
        "copy_s": copied,
        "ratio": theirs / ours,
        "of_copy": copied / ours,
        "gb_s": 2 * array.nbytes / ours / 1e9,
        "right": bool((call() == expected).all()),
    }


# -- both ------------------------------------------------------------------------------------------
def _kernel(machine: Any, explanation: Explanation) -> str:
    by_numpy = isinstance(machine, Host) and explanation.runs_on.startswith("NumPy")
    return "NumPy" if by_numpy else explanation.family


def graded(machine: Any, a: Any, b: Any, c: Any, most: tuple[int, int] = (8, 32)) -> Grade:
    """Grade some rows and columns of a product, of the last one in a batch, at even distances."""
    if c.ndim > 2:
        a, b, c = a[-1], b[-1], c[-1]
    limits = most[0], max(1, min(most[1], _SAMPLED // max(1, a.shape[1])))
    rows, columns = (
        slice(None, None, max(1, -(-n // limit))) for n, limit in zip(c.shape, limits, strict=True)
    )
    return grade(machine.get(a[rows]), machine.get(b[:, columns]), machine.get(c[rows, columns]))


Group = Callable[[Any, Any], Measured]
GROUPS: dict[str, Group] = {"gemm": products, "transpose": transposes}
"""By name: what counts and measures the cases of a machine and a selection."""


# -- the command -----------------------------------------------------------------------------------
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
    parser.precision()
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
    which = Selection.of(options)
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
