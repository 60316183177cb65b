"""Time cuteblas beside CuPy on this GPU, in turns. A ratio above 1 means that cuteblas is faster. Without a GPU, use
bench host --backend numpy.

  gemm       matmul with operands in all orders, and its error on a sample, in units of u(|A||B|)
  transpose  transposes into new memory, beside CuPy and beside a copy of as many bytes by the driver; without other groups also
             permutations (--sizes 64x1001x1037:0,2,1) and transposes in place (--sizes 8192:inplace)
  epilogue   products with an epilogue, beside the product alone and beside CuPy's product with one elementwise kernel after it
  reduce     sums along the rows and along the columns of a matrix
  host       host time of a call on arrays of 16x16; with --backend numpy on NumPy arrays, beside NumPy
  compile    time to compile each kernel of gemm and transpose, and to find it in the cache on disk

Only when named:

  figure     the figure of CUTLASS's article: every type in every order relative to cuBLAS; --svg draws it
  clients    estimators of scikit-learn on CuPy arrays with cuteblas installed and without (--sizes 20000x2000: samples, features)
  numpy      products and transposes of NumPy arrays on the GPU, beside NumPy and beside CuPy, with copies there and back
  link       copies between host and device: the copies of NumPy arrays, and copies of pinned memory
  einsum     contractions of attention, tensor networks and batches, beside cupy.einsum and torch.einsum
  gram       products of a matrix and its own transpose, beside the plain product, and BLAS routines on one triangle
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import runtime
from ..blas.types import dtype_named
from ..functions import backend
from ..functions.algorithms import PRECISIONS
from .clients import clients, number_of_programs
from .command import CommandError, command_line, positive, print_about, refuse_unwritable
from .contractions import contractions, gram_matrices, number_of_contractions, number_of_gram_matrices
from .explain import shape
from .figure import chart, figure, number_of_clusters
from .machines import Gpu, Host, host_versions, versions
from .measurements import COPY_DTYPES, GEMM_DTYPES, GROUPS, ORDERS, Row, Selection, number_of_cases
from .numpy_arrays import link, number_of_calls, numpy_arrays
from .permutations import Permutation
from .products import report
from .progress import Progress
from .terminal import wrapped

__all__ = ["measure", "selected"]

# By name: what yields the rows of a table, and the number of steps.
_ON_REQUEST: dict[str, tuple[Callable[[Any, Selection], Iterator[Row]], Callable[[Selection], int]]] = {
    "figure": (figure, number_of_clusters), "clients": (clients, number_of_programs), "numpy": (numpy_arrays, number_of_calls),
    "link": (link, lambda _which: 6), "einsum": (contractions, number_of_contractions),
    "gram": (gram_matrices, number_of_gram_matrices)}
_GROUPS = {name: (rows, partial(number_of_cases, name)) for name, rows in GROUPS.items()} | _ON_REQUEST
_TITLES = {"cupy": "CuPy", "numpy": "NumPy"}
_NAMES = ", ".join(_GROUPS)
_LONGEST = 60                   # seconds without a pause
_ERRORS = ("in units of u(|A||B|), where u is the rounding unit of the result's type and |A||B| the sum of the sizes of an "
           "element's terms: any order of summing K terms stays within K of it")


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("groups", nargs="*", type=_group, metavar="GROUP",
                        help=f"groups to time, of {_NAMES} (default: {', '.join(GROUPS)})")
    parser.add_argument("--sizes", nargs="+", type=_size, default=(), metavar="SIZE",
                        help="4096 for a square product or transpose; 10240x4096x4096 for a product, M, N and K; "
                             "8191x8193 for a transpose; 65x35x129x253:2,0,3,1 for a permutation of axes, "
                             "8192:inplace for a transpose in place")
    parser.add_argument("--dtypes", nargs="+", type=_dtype, default=(), metavar="DTYPE",
                        help=f"element types (default: {' '.join(GEMM_DTYPES)}; of transposes {' '.join(COPY_DTYPES)})")
    parser.add_argument("--orders", nargs="+", type=_orders, default=ORDERS, metavar="ORDERS",
                        help="of products: for each operand N if its rows are contiguous, T if its columns are (default: all four)")
    parser.add_argument("--precision", default="auto", choices=PRECISIONS, metavar="NAME",
                        help=f"as in cuteblas.matmul, one of {', '.join(PRECISIONS)} (default: %(default)s)")
    parser.add_argument("--random", type=positive, default=0, metavar="COUNT",
                        help="with gemm: time COUNT random products of every kind, type and order beside CuPy and torch; "
                             "with transpose: time COUNT random permutations of 1 to 256 MiB and 2 to 26 modes, some of slices")
    parser.add_argument("--seed", type=int, default=0, help="seed of random products and permutations (default: %(default)s)")
    parser.add_argument("--variants", action="store_true",
                        help="with gemm and transpose: also time the kernels of the papers, side by side")
    parser.add_argument("--repeats", type=positive, default=11, help="timings per call; their median counts (default: %(default)s)")
    parser.add_argument("--sustained", type=_seconds, default=0.0, metavar="SECONDS",
                        help="with gemm: call each product for SECONDS without a pause, then time it for as long, at the clock "
                             "that its own power draw allows (default: single calls in turns, at clocks that all share)")
    parser.add_argument("--backend", choices=("cuda", "numpy"), default="cuda",
                        help="with host: arrays of CuPy (cuda), or of NumPy, without a GPU (default: %(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with figure: draw it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times in seconds, with the machine and the command")


def run(options: Namespace) -> int:
    """Measure and print; 1 if a result is wrong.

    Raises
    ------
    CommandError
        Without a GPU, and for what a group does not take.
    """
    which, groups = selected(options), options.groups
    if which.permutations and groups != ["transpose"]:
        raise CommandError("permutations of axes and transposes in place need the group transpose alone")
    if which.random and groups not in (["gemm"], ["transpose"]):
        raise CommandError("--random needs the group gemm or transpose alone, as in bench gemm --random COUNT")
    if which.random and groups == ["gemm"] and (which.sizes or which.variants or options.sustained):
        raise CommandError("gemm --random does not go with --sizes, --variants or --sustained")
    if options.sustained and (groups != ["gemm"] or options.variants):
        raise CommandError("--sustained needs the group gemm alone, without --variants")
    if options.svg is not None and "figure" not in groups:
        raise CommandError("--svg needs the group figure: bench figure --svg FILE")
    if "clients" in groups and find_spec("sklearn") is None:
        raise CommandError("the group clients runs scikit-learn, which is not installed: pip install 'cuteblas[demo]'")
    refuse_unwritable(options.json, options.svg)
    machine, about = _machine(options)
    about = {"command": command_line(), **about}
    print_about(about)
    with backend("numpy"):                  # whatever CUTEBLAS_BACKEND says of NumPy's arrays
        return measure(machine, groups or list(GROUPS), which, options.json, about, options.svg)


def _machine(options: Namespace) -> tuple[Any, dict[str, str]]:
    """Where to measure, and what measurements there depend on."""
    if options.backend == "numpy":
        if options.groups != ["host"]:
            raise CommandError("--backend numpy needs the group host alone: bench host --backend numpy")
        return Host(), host_versions()
    if (reason := runtime.why_unavailable()) is not None:
        raise CommandError(f"bench needs a GPU: {reason}; without one, bench host --backend numpy times calls on NumPy arrays")
    return Gpu(), versions()


def selected(options: Namespace) -> Selection:
    """What the options select."""
    return Selection(tuple(size for size in options.sizes if not isinstance(size, Permutation)), tuple(options.dtypes),
                     tuple(options.orders), options.precision, options.repeats, options.variants,
                     tuple(size for size in options.sizes if isinstance(size, Permutation)), options.sustained, options.random,
                     options.seed)


def measure(machine: Any, groups: list[str], which: Selection, file: Path | None, about: Mapping[str, str],
            drawing: Path | None = None) -> int:
    """Run groups on a machine and print their tables; 1 if a result is wrong.

    Parameters
    ----------
    machine : Gpu
        Where arrays live, and the clock.
    groups : list of str
        Names in :data:`~cuteblas.cli.measurements.GROUPS`.
    which : Selection
        The cases.
    file : Path or None
        Where to write the figures as JSON; rewritten after every row, so that an interruption loses nothing.
    about : mapping
        What goes into the file beside them.
    drawing : Path, optional
        Where to draw the figure as SVG.
    """
    figures: dict[str, list[Row]] = {}
    rival = _TITLES[machine.rival_name]
    for group in groups:
        rows = figures[group] = []
        print(f"\n{group}")
        measured, steps = _GROUPS[group]
        with Progress(group, steps(which)) as progress:
            for row in measured(machine, which):
                if not rows:
                    progress.print(_line(row, lambda key, value: _COLUMNS[key][0].replace("CuPy", rival)))
                progress.print(_line(row, lambda key, value: _COLUMNS[key][1](value)))
                progress.advance(not rows or row["case"] != rows[-1]["case"])
                rows.append(row)
                if file is not None:
                    file.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n", "utf-8")
        if not rows:
            print("no case has these sizes and types")
        elif "error" in rows[0]:
            print(wrapped(f"  error  {_ERRORS}"))
        elif group == "gemm" and which.random:
            print(f"\n{report(rows)}")
    if file is not None:
        print(f"\nwrote {file}")
    if drawing is not None and "figure" in figures:
        drawing.write_text(chart(figures["figure"], about), encoding="utf-8")
        print(f"wrote {drawing}")
    wrong = [row["case"] for rows in figures.values() for row in rows if not row.get("right", True)]
    if wrong:
        print(f"\nWRONG results: {', '.join(wrong)}")
    return 1 if wrong else 0


def _group(name: str) -> str:
    if name not in _GROUPS:
        raise ArgumentTypeError(f"unknown group {name!r}; the groups are {_NAMES}")
    return name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST:
        raise ArgumentTypeError(f"seconds are above 0 and at most {_LONGEST}, got {text!r}")
    return seconds


def _size(text: str) -> tuple[int, ...] | Permutation:
    """Extents from ``"8191x8193"``, with axes from ``"64x1001x1037:0,2,1"``, or of matrices in place from ``"8192:inplace"``."""
    written, colon, how = text.partition(":")
    extents = shape(written)
    if 0 in extents:
        raise ArgumentTypeError(f"extents to time are above 0, got {text!r}")
    if not colon:
        return extents
    if how == "inplace":
        extents *= 2 if len(extents) == 1 else 1
        if extents[-1] != extents[-2]:
            raise ArgumentTypeError(f"a transpose in place needs square matrices, got {text!r}")
        return Permutation(extents, (*range(len(extents) - 2), len(extents) - 1, len(extents) - 2), True)
    try:
        axes = tuple(map(int, how.split(",")))
    except ValueError:
        axes = ()
    if sorted(axes) != list(range(len(extents))):
        raise ArgumentTypeError(f"a permutation of axes is written 64x1001x1037:0,2,1, got {text!r}")
    return Permutation(extents, axes)


def _dtype(name: str) -> str:
    try:
        return dtype_named(name).name
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error


def _orders(letters: str) -> str:
    if letters.upper() not in ORDERS:
        raise ArgumentTypeError(f"the orders are {', '.join(ORDERS)}, got {letters!r}")
    return letters.upper()


# -- tables -----------------------------------------------------------------------------------------------------------------------
def _number(form: str, scale: float = 1) -> Callable[[float | None], str]:
    """Print a number times ``scale``; nothing where it is missing."""
    return lambda value: "" if value is None else f"{value * scale:{form}}"


_MICROSECONDS, _MILLISECONDS, _TENTHS_OF_MILLISECONDS = _number(".4g", 1e6), _number(".3g", 1e3), _number(".1f", 1e3)
_DIGITS, _HUNDREDTHS = _number(".3g"), _number(".2f")

_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "case": ("", str),
    "kind": ("kind", str),
    "kernel": ("kernel", str),
    "variant": ("kernel", str),
    "latency_s": ("ms", _number(".5f", 1e3)),
    "ours_s": ("us", _MICROSECONDS),
    "new_s": ("new us", _MICROSECONDS),
    "numpy_s": ("NumPy us", _MICROSECONDS),
    "trip_s": ("trip us", _MICROSECONDS),
    "rival_s": ("CuPy us", _MICROSECONDS),
    "torch_s": ("torch us", _MICROSECONDS),
    "floor_s": ("floor us", _MICROSECONDS),
    "launches": ("launches", str),
    "copy_s": ("copy us", _MICROSECONDS),
    "plain_s": ("plain us", _MICROSECONDS),
    "of_plain": ("of plain", _number(".3f")),
    "to_plain": ("to plain", _HUNDREDTHS),
    "triangle_s": ("syrk us", _MICROSECONDS),
    "products": ("products", str),
    "installed_s": ("ours ms", _TENTHS_OF_MILLISECONDS),
    "alone_s": ("CuPy ms", _TENTHS_OF_MILLISECONDS),
    "nvrtc_s": ("NVRTC ms", _MILLISECONDS),
    "cached_s": ("cached ms", _MILLISECONDS),
    "ratio": ("ratio", _HUNDREDTHS),
    "to_trip": ("to trip", _HUNDREDTHS),
    "of_copy": ("of copy", _HUNDREDTHS),
    "tflops": ("TFLOP/s", _DIGITS),
    "gb_s": ("GB/s", _DIGITS),
    "percent_of_copy": ("% of copy", _number(".1f")),
    "conflicts": ("bank conflicts", str),
    "error": ("error", _DIGITS),
    "rival_error": ("CuPy's", _DIGITS),
    "difference": ("differs", _DIGITS),
    "right": ("", lambda right: "" if right else "WRONG"),
}
"""By key of a row: the heading, and how a value is printed."""

_WIDTHS = {"case": 41, "kind": 12, "kernel": 12, "variant": 43, "conflicts": 14}


def _line(row: Row, text: Callable[[str, Any], str]) -> str:
    cells = ((key, text(key, value)) for key, value in row.items())
    return " ".join(f"{cell:<{_WIDTHS[key]}}" if key in _WIDTHS else f"{cell:>9}" for key, cell in cells).rstrip()
