"""Time cuteblas beside CuPy on this GPU, in turns. A ratio above 1 means that cuteblas is faster. Without a GPU, use
bench host --backend numpy.

  gemm       matmul with operands in all orders, and its error on a sample, in units of u(|A||B|)
  transpose  materialised transposes, beside CuPy's and beside the driver's copy of as many bytes (--variants adds the kernels of
             the papers to both groups); alone, also permutations (--sizes 64x1001x1037:0,2,1) and transposes of square matrices in
             place (--sizes 8192:inplace)
  epilogue   products with an epilogue, beside the product alone, and beside CuPy's product and one elementwise kernel
  reduce     sums along the rows and along the columns of a matrix
  host       host time of a call on arrays of 16x16; with --backend numpy on NumPy arrays, beside NumPy
  compile    time to compile each kernel of gemm and transpose, and to find it in the cache on disk

Only when named:

  figure     the figure of CUTLASS's article: every type in every order relative to cuBLAS; --svg draws it
  clients    estimators of scikit-learn on CuPy arrays with cuteblas installed and without (--sizes 20000x2000: samples, features)
  numpy      products and transposes of NumPy arrays through the GPU, beside NumPy, and beside CuPy with copies there and back
  link       copies between host and device, through the ring that NumPy arrays use and with pinned memory
  einsum     contractions of attention, tensor networks and batches, beside cupy.einsum and torch.einsum
  gram       products of a matrix and its own transpose, beside the plain product, and BLAS routines on one triangle
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import runtime
from ..blas.types import dtype_named
from ..functions import backend
from ..functions.algorithms import PRECISIONS
from .clients import clients, number_of_programs
from .command import CommandError, positive, refuse_unwritable
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

_ON_REQUEST = {"figure": figure, "clients": clients, "numpy": numpy_arrays, "link": link, "einsum": contractions,
               "gram": gram_matrices}
_STEPS = {"figure": number_of_clusters, "clients": number_of_programs, "numpy": number_of_calls, "link": lambda _which: 6,
          "einsum": number_of_contractions, "gram": number_of_gram_matrices}
_TITLES = {"cupy": "CuPy", "numpy": "NumPy"}
_NAMES = ", ".join((*GROUPS, *_ON_REQUEST))
_LONGEST = 60                   # seconds without a pause
_ERRORS = ("in units of u(|A||B|), where u is the rounding unit of the result's type and |A||B| the sum of the sizes of an "
           "element's terms: any order of summing K terms stays within K of it")


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("groups", nargs="*", type=_group, metavar="GROUP",
                        help=f"of {_NAMES}; by default {', '.join(GROUPS)}")
    parser.add_argument("--sizes", nargs="+", type=_size, default=(), metavar="SIZE",
                        help="4096 for both; 10240x4096x4096 for a product, M, N and K; 8191x8193 for a transpose, "
                             "65x35x129x253:2,0,3,1 for a permutation of axes, 8192:inplace for a transpose in place")
    parser.add_argument("--dtypes", nargs="+", type=_dtype, default=(), metavar="DTYPE",
                        help=f"by default {' '.join(GEMM_DTYPES)}, for transposes {' '.join(COPY_DTYPES)}")
    parser.add_argument("--orders", nargs="+", type=_orders, default=ORDERS, metavar="ORDERS",
                        help="of products: for each operand N if its rows are contiguous, T if its columns are (default: all four)")
    parser.add_argument("--precision", default="auto", choices=PRECISIONS, metavar="NAME",
                        help=f"as in cuteblas.matmul, one of {', '.join(PRECISIONS)} (default: %(default)s)")
    parser.add_argument("--random", type=positive, default=0, metavar="COUNT",
                        help="of products: so many random ones of every kind, type and order, beside CuPy's and torch's; "
                             "of transposes: so many random permutations of 1 to 256 MiB and 2 to 26 modes, some of slices")
    parser.add_argument("--seed", type=int, default=0, help="of random products and permutations (default: %(default)s)")
    parser.add_argument("--variants", action="store_true",
                        help="measure products and transposes by the named kernels, side by side")
    parser.add_argument("--repeats", type=positive, default=11, help="timings of which the median is taken (default: %(default)s)")
    parser.add_argument("--sustained", type=_seconds, default=0.0, metavar="SECONDS",
                        help="of products: call each for so long without a pause, then time it as long again, so that each runs at "
                             "the clocks that its own power leaves it (default: single calls in turns, at clocks that all share)")
    parser.add_argument("--backend", choices=("cuda", "numpy"), default="cuda",
                        help="of the group host: on CuPy's arrays, or on NumPy's, which need no GPU (default: %(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, in seconds, with the machine and the command")


def run(options: Namespace) -> int:
    """Measure and print; 1 if a result is wrong.

    Raises
    ------
    CommandError
        Without a GPU, and for what a group does not take.
    """
    which, groups = selected(options), options.groups
    if which.permutations and groups != ["transpose"]:
        raise CommandError("permutations of axes and transposes in place are those of the group transpose alone")
    if which.random and groups not in (["gemm"], ["transpose"]):
        raise CommandError("--random draws products or transposes: bench gemm --random COUNT, or bench transpose --random COUNT")
    if which.random and groups == ["gemm"] and (which.sizes or which.variants or options.sustained):
        raise CommandError("random products are timed without --sizes, --variants and --sustained")
    if options.sustained and (groups != ["gemm"] or options.variants):
        raise CommandError("--sustained times the products of the group gemm alone, without --variants")
    if options.svg is not None and "figure" not in groups:
        raise CommandError("--svg draws what the group figure measures: bench figure --svg FILE")
    if "clients" in groups and find_spec("sklearn") is None:
        raise CommandError("the group clients runs scikit-learn, which is not installed: pip install 'cuteblas[demo]'")
    refuse_unwritable(options.json, options.svg)
    machine, about = _machine(options)
    about = {"command": shlex.join(["python", "-m", "cuteblas", *sys.argv[1:]]), **about}
    for name, text in about.items():
        print(f"{name:<13}{text}")
    with backend("numpy"):                  # whatever CUTEBLAS_BACKEND says of NumPy's arrays
        return measure(machine, groups or list(GROUPS), which, options.json, about, options.svg)


def _machine(options: Namespace) -> tuple[Any, dict[str, str]]:
    """Where to measure, and what measurements there depend on."""
    if options.backend == "numpy":
        if options.groups != ["host"]:
            raise CommandError("on NumPy arrays there is the group host alone: bench host --backend numpy")
        return Host(), host_versions()
    if (reason := runtime.why_unavailable()) is not None:
        raise CommandError(f"bench measures on a GPU: {reason}; what calls on NumPy arrays cost: bench host --backend numpy")
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
        steps = _STEPS[group](which) if group in _STEPS else number_of_cases(group, which)
        with Progress(group, steps) as progress:
            for row in (_ON_REQUEST.get(group) or GROUPS[group])(machine, which):
                if not rows:
                    progress.print(_line(row, lambda key, value: _COLUMNS[key][0].replace("CuPy", rival)))
                progress.print(_line(row, lambda key, value: _COLUMNS[key][1](value)))
                progress.advance(not rows or row["case"] != rows[-1]["case"])
                rows.append(row)
                if file is not None:
                    file.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n", "utf-8")
        if not rows:
            print("no case of these sizes and types")
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
    if name not in GROUPS and name not in _ON_REQUEST:
        raise ArgumentTypeError(f"the groups are {_NAMES}, got {name!r}")
    return name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST:
        raise ArgumentTypeError(f"seconds are more than 0 and no more than {_LONGEST}, got {text!r}")
    return seconds


def _size(text: str) -> tuple[int, ...] | Permutation:
    """Extents from ``"8191x8193"``, with axes from ``"64x1001x1037:0,2,1"``, or of matrices in place from ``"8192:inplace"``."""
    written, colon, how = text.partition(":")
    extents = shape(written)
    if 0 in extents:
        raise ArgumentTypeError(f"there is nothing to time in an extent of 0, got {text!r}")
    if not colon:
        return extents
    if how == "inplace":
        extents *= 2 if len(extents) == 1 else 1
        if extents[-1] != extents[-2]:
            raise ArgumentTypeError(f"square matrices are transposed in place, got {text!r}")
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
def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.4g}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _tenths_of_milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _digits_of_milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.5f}"


def _tenths(value: float) -> str:
    return f"{value:.1f}"


def _hundredths(value: float) -> str:
    return f"{value:.2f}"


def _thousandths(value: float) -> str:
    return f"{value:.3f}"


def _digits(value: float) -> str:
    return f"{value:.3g}"


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "case": ("", str),
    "kind": ("kind", str),
    "kernel": ("kernel", str),
    "variant": ("kernel", str),
    "latency_s": ("ms", _digits_of_milliseconds),
    "ours_s": ("us", _microseconds),
    "new_s": ("new us", _microseconds),
    "numpy_s": ("NumPy us", _microseconds),
    "trip_s": ("trip us", _microseconds),
    "rival_s": ("CuPy us", _microseconds),
    "torch_s": ("torch us", _microseconds),
    "floor_s": ("floor us", _microseconds),
    "launches": ("launches", str),
    "copy_s": ("copy us", _microseconds),
    "plain_s": ("plain us", _microseconds),
    "of_plain": ("of plain", _thousandths),
    "to_plain": ("to plain", _hundredths),
    "triangle_s": ("syrk us", _microseconds),
    "products": ("products", str),
    "installed_s": ("ours ms", _tenths_of_milliseconds),
    "alone_s": ("CuPy ms", _tenths_of_milliseconds),
    "nvrtc_s": ("NVRTC ms", _milliseconds),
    "cached_s": ("cached ms", _milliseconds),
    "ratio": ("ratio", _hundredths),
    "to_trip": ("to trip", _hundredths),
    "of_copy": ("of copy", _hundredths),
    "tflops": ("TFLOP/s", _digits),
    "gb_s": ("GB/s", _digits),
    "percent_of_copy": ("% of copy", _tenths),
    "conflicts": ("bank conflicts", str),
    "error": ("error", _digits),
    "rival_error": ("CuPy's", _digits),
    "difference": ("differs", _digits),
    "right": ("", lambda right: "" if right else "WRONG"),
}
"""By key of a row: the heading, and how a value is printed."""

_WIDTHS = {"case": 41, "kind": 12, "kernel": 12, "variant": 43, "conflicts": 14}


def _line(row: Row, text: Callable[[str, Any], str]) -> str:
    cells = ((key, text(key, value)) for key, value in row.items())
    return " ".join(f"{cell:<{_WIDTHS[key]}}" if key in _WIDTHS else f"{cell:>9}" for key, cell in cells).rstrip()
