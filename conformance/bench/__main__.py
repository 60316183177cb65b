"""Time cuteblas beside CuPy on this GPU, in turns. A ratio above 1 means that cuteblas is faster.

  gemm       matmul with operands in all orders, and its error on a sample, in
             units of u(|A||B|); beside torch too, which counts for the ratio
             with --random
  transpose  transposes into new memory, beside CuPy and beside a copy of as
             many bytes by the driver; without other groups also permutations
             (--sizes 64x1001x1037:0,2,1) and transposes in place (--sizes
             8192:inplace)
  epilogue   products with an epilogue, beside the product alone and beside
             CuPy's product with one elementwise kernel after it
  reduce     sums along the rows and along the columns of a matrix
  host       host time of a call on arrays of 16x16; with --backend numpy on
             NumPy arrays, beside NumPy
  compile    time to compile each kernel of gemm and transpose, and to find it
             in the cache on disk

Only when named:

  figure     the figure of CUTLASS's article: every type in every order
             relative to cuBLAS; --svg draws it
  clients    estimators of scikit-learn on CuPy arrays with cuteblas installed
             and without (--sizes 20000x2000: samples, features)
  numpy      products and transposes of NumPy arrays on the GPU, beside NumPy
             and beside CuPy, with copies there and back
  link       copies between host and device: the copies of NumPy arrays, and
             copies of pinned memory
  einsum     contractions of attention, tensor networks and batches, beside
             cupy.einsum and torch.einsum
  gram       products of a matrix and its own transpose, beside the plain
             product, and BLAS routines on one triangle

python -m conformance.bench calibrate fits the numbers of planners to files of measurements; its
--help says more.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cuteblas.cli import bench
from cuteblas.cli.bench import COLUMNS, DIGITS, HUNDREDTHS, MICROSECONDS, WIDTHS, number
from cuteblas.cli.command import CommandError, Parser, ended, positive, refuse_unwritable
from cuteblas.functions import backend

from . import calibrate
from .clients import clients
from .contractions import contractions, gram_matrices
from .figure import chart, figure
from .groups import GROUPS, Selection
from .numpy_arrays import link, numpy_arrays
from .products import report

__all__ = ["ALL", "main"]

ALL: dict[str, bench.Group] = {
    **GROUPS,
    "figure": figure,
    "clients": clients,
    "numpy": numpy_arrays,
    "link": link,
    "einsum": contractions,
    "gram": gram_matrices,
}
"""Every group by its name."""

_LONGEST = 60                   # seconds without a pause
_PROGRAM = "conformance.bench"

_MILLISECONDS, _TENTHS_OF_MILLISECONDS = number(".3g", 1e3), number(".1f", 1e3)
COLUMNS.update({
    "kind": ("kind", str),
    "variant": ("kernel", str),
    "conflicts": ("bank conflicts", str),
    "new_s": ("new us", MICROSECONDS),
    "numpy_s": ("NumPy us", MICROSECONDS),
    "trip_s": ("trip us", MICROSECONDS),
    "floor_s": ("floor us", MICROSECONDS),
    "launches": ("launches", str),
    "plain_s": ("plain us", MICROSECONDS),
    "of_plain": ("of plain", number(".3f")),
    "to_plain": ("to plain", HUNDREDTHS),
    "triangle_s": ("syrk us", MICROSECONDS),
    "products": ("products", str),
    "installed_s": ("ours ms", _TENTHS_OF_MILLISECONDS),
    "alone_s": ("CuPy ms", _TENTHS_OF_MILLISECONDS),
    "nvrtc_s": ("NVRTC ms", _MILLISECONDS),
    "cached_s": ("cached ms", _MILLISECONDS),
    "to_trip": ("to trip", HUNDREDTHS),
    "difference": ("differs", DIGITS),
})
WIDTHS.update({"kind": 12, "variant": 43, "conflicts": 14})


def configure(parser: Parser) -> None:
    """Declare the options."""
    bench.configure(parser, ALL, GROUPS)
    parser.add_argument(
        "--variants",
        action="store_true",
        help="with gemm and transpose: also time the kernels of the papers, side by side"
    )
    parser.add_argument(
        "--random",
        type=positive,
        default=0,
        metavar="COUNT",
        help="with gemm: time COUNT random products of every kind, type and order beside CuPy and torch; "
        "with transpose: time COUNT random permutations of 1 to 256 MiB and 2 to 26 modes, some of slices"
    )
    parser.add_argument("--seed", type=int, default=0,
                        help="seed of random products and permutations (default: %(default)s)")
    parser.add_argument(
        "--sustained",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="with gemm: call each product for SECONDS without a pause, then time it for as long, at the clock "
        "that its own power draw allows (default: single calls in turns, at clocks that all share)"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with figure: draw it")


def run(options: Namespace) -> int:
    """Measure and print; 1 if a result is wrong.

    Raises
    ------
    CommandError
        Without a GPU, and for what a group does not take.
    """
    groups = options.groups
    which = Selection.of(options)
    if which.variants and options.backend == "numpy":
        raise CommandError(
            "--variants times kernels of a GPU, which do not go with --backend numpy"
        )
    if which.random and groups not in (["gemm"], ["transpose"]):
        raise CommandError(
            "--random needs the group gemm or transpose alone, as in gemm --random COUNT"
        )
    if which.random and groups == ["gemm"] and (which.sizes or which.variants or which.sustained):
        raise CommandError("gemm --random does not go with --sizes, --variants or --sustained")
    if which.sustained and (groups != ["gemm"] or which.variants):
        raise CommandError("--sustained needs the group gemm alone, without --variants")
    if options.svg is not None and "figure" not in groups:
        raise CommandError("--svg needs the group figure: figure --svg FILE")
    if "clients" in groups and find_spec("sklearn") is None:
        raise CommandError(
            "the group clients runs scikit-learn, which is not installed: pip install 'cuteblas[demo]'"
        )
    if options.backend == "numpy" and groups != ["host"]:
        raise CommandError("--backend numpy needs the group host alone: host --backend numpy")
    refuse_unwritable(options.json, options.svg)
    machine, about = bench.machine_of(options, _PROGRAM)
    with backend("numpy"):  # whatever CUTEBLAS_BACKEND says of NumPy's arrays
        figures = bench.measure(
            machine, {name: ALL[name] for name in groups or GROUPS}, which, options.json, about
        )
    if which.random and groups == ["gemm"] and figures["gemm"]:
        print(f"\n{report(figures['gemm'])}")
    if options.svg is not None:
        options.svg.write_text(chart(figures["figure"], about), encoding="utf-8")
        print(f"wrote {options.svg}")
    return bench.verdict(figures)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST:
        raise ArgumentTypeError(f"seconds are above 0 and at most {_LONGEST}, got {text!r}")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name, program = (sys.modules[__name__], f"python -m {_PROGRAM}")
    if arguments[:1] == ["calibrate"]:
        name, program, arguments = calibrate, f"{program} calibrate", arguments[1:]
    parser = Parser(program, name.__doc__)
    name.configure(parser)
    return ended(lambda: name.run(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
