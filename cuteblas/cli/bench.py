"""Measure against CuPy on this GPU, side by side in one run: medians of event timings, as ratios (above 1 means that cuteblas is faster).

  gemm       matmul with both operands in both orders, and its error on a sample in units of u(|A||B|)
  transpose  materialised transposes, against CuPy's and against a copy of the same bytes by the driver
  host       what a call costs the host, on arrays of 16x16
  compile    the time of NVRTC for each kernel of the groups above, and of finding it in the cache on disk
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from .. import runtime
from ..codegen.kernel import GeneratedKernel
from ..functions import copy, explain, explain_copy, matmul
from ..functions.products import PRECISIONS
from ..planning import Plan
from ..runtime.architectures import target_architecture
from .explain import shape
from .grading import Grade, grade
from .machines import Gpu, medians, versions

__all__ = ["GROUPS", "measure"]

_GEMM_DTYPES = "float32", "float64", "complex64", "complex128", "float16"
_COPY_DTYPES = "int8", "float16", "float32", "float64", "complex128"
_GEMM_SHAPES = ((1024,), (4096,))
_COPY_SHAPES = ((8192,), (8191, 8193))
_HOST_CALLS = 2000
_SAMPLED_ROWS, _SAMPLED_COLUMNS = 8, 32

Row = dict[str, Any]


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("groups", nargs="*", type=_group, metavar="GROUP", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--sizes", nargs="+", type=shape, metavar="SIZE",
                        help="4096 for both; 10240x4096x4096 for a product, M, N and K; 8191x8193 for a transpose")
    parser.add_argument("--dtypes", nargs="+", type=_dtype, metavar="DTYPE", help=f"by default {' '.join(_GEMM_DTYPES)}, for transposes {' '.join(_COPY_DTYPES)}")
    parser.add_argument("--orders", nargs="+", type=_orders, metavar="ORDERS", default=["NN", "NT", "TN", "TT"],
                        help="of products: for each operand N if its rows are contiguous, T if its columns are (default: all four)")
    parser.add_argument("--precision", default="auto", choices=PRECISIONS, help="as in cuteblas.matmul (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=11, help="timings of which the median is taken (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, in seconds, with the machine and the command")


def run(options: Namespace) -> int:
    """Measure and print; 1 if a result is wrong, 2 without a GPU."""
    if (reason := runtime.why_unavailable()) is not None:
        print(f"bench measures on a GPU: {reason}", file=sys.stderr)
        return 2
    about = {"command": shlex.join(["python", "-m", "cuteblas", *sys.argv[1:]]), **versions()}
    print("\n".join(f"{name:<13}{text}" for name, text in about.items()))
    return measure(Gpu(), options, about)


def measure(machine: Any, options: Namespace, about: dict[str, str]) -> int:
    """Run the groups on a machine; 1 if a result is wrong.

    Parameters
    ----------
    machine : Gpu
        Where arrays live, and the clock.
    options : Namespace
        What :func:`configure` declares.
    about : dict
        Goes into the file beside the figures.
    """
    figures: dict[str, list[Row]] = {}
    for group in options.groups or GROUPS:
        rows = figures[group] = []
        print(f"\n{group}")
        for row in GROUPS[group](machine, options):
            if not rows:
                print(_line(list(row), [_COLUMNS[name][0] for name in row]))
            print(_line(list(row), [_COLUMNS[name][1](value) for name, value in row.items()]), flush=True)
            rows.append(row)
            if options.json is not None:                       # after every row, so that an interruption loses nothing
                options.json.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    wrong = [row["case"] for rows in figures.values() for row in rows if not row.get("right", True)]
    if wrong:
        print(f"\nWRONG results: {', '.join(wrong)}")
    return 1 if wrong else 0


def _group(name: str) -> str:
    if name not in GROUPS:
        raise ArgumentTypeError(f"the groups are {', '.join(GROUPS)}, got {name!r}")
    return name


def _dtype(name: str) -> str:
    try:
        return np.dtype(name).name
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error


def _orders(letters: str) -> str:
    letters = letters.upper()
    if len(letters) != 2 or set(letters) - {"N", "T"}:
        raise ArgumentTypeError(f"the orders are NN, NT, TN and TT, got {letters!r}")
    return letters


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.4g}"


def _plain(value: float) -> str:
    return f"{value:.3g}"


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "case": ("", str), "kernel": ("kernel", str), "ours_s": ("us", _microseconds), "rival_s": ("CuPy us", _microseconds),
    "copy_s": ("copy us", _microseconds), "nvrtc_s": ("NVRTC us", _microseconds), "cached_s": ("cached us", _microseconds),
    "ratio": ("ratio", "{:.2f}".format), "of_copy": ("of copy", "{:.2f}".format), "tflops": ("TFLOP/s", _plain), "gb_s": ("GB/s", _plain),
    "error": ("error", _plain), "rival_error": ("CuPy's", _plain), "right": ("", lambda right: "" if right else "WRONG"),
}
"""By key of a row: the heading, and how a value is printed."""


def _line(keys: list[str], cells: list[str]) -> str:
    widths = {"case": 34, "kernel": 11}
    return " ".join(f"{cell:<{widths[key]}}" if key in widths else f"{cell:>9}" for key, cell in zip(keys, cells, strict=True)).rstrip()


# -- groups ---------------------------------------------------------------------------------------------------------------------------
def _gemm(machine: Any, options: Namespace) -> Iterator[Row]:
    xp = machine.rival
    for case, a, b in _products(machine, options, _random):
        c, d = (xp.empty((a.shape[0], b.shape[1]), a.dtype) for _ in range(2))
        plan = explain(a, b, c, precision=options.precision).plan
        ours, rival = medians(machine, lambda: matmul(a, b, out=c, precision=options.precision), lambda: xp.matmul(a, b, out=d),
                              repeats=options.repeats)
        mine, theirs = _graded(machine, a, b, c), _graded(machine, a, b, d)
        yield {"case": case, "kernel": plan.family, "ours_s": ours, "rival_s": rival, "ratio": rival / ours,
               "tflops": plan.problem.flops / ours / 1e12, "error": mine.error, "rival_error": theirs.error, "right": mine.passed}


def _transpose(machine: Any, options: Namespace) -> Iterator[Row]:
    xp = machine.rival
    for case, x in _transposes(machine, options, _random):
        target = xp.empty_like(x)
        ours, rival, copied = medians(machine, lambda: copy(x.T, order="C"), lambda: xp.ascontiguousarray(x.T),
                                      lambda: machine.copy(target, x), repeats=options.repeats)
        right = bool((copy(x.T, order="C") == x.T).all())
        yield {"case": case, "kernel": explain_copy(x.T).plan.family, "ours_s": ours, "rival_s": rival, "copy_s": copied,
               "ratio": rival / ours, "of_copy": copied / ours, "gb_s": 2 * x.nbytes / ours / 1e9, "right": right}


def _host(machine: Any, options: Namespace) -> Iterator[Row]:
    xp = machine.rival
    a, b, c = (_random(xp, (16, 16), "float32", seed) for seed in range(3))
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "matmul(a, b, out=c)": (lambda: matmul(a, b, out=c), lambda: xp.matmul(a, b, out=c)),
        "matmul(a, b)": (lambda: matmul(a, b), lambda: xp.matmul(a, b)),
        "copy(a.T, order='C')": (lambda: copy(a.T, order="C"), lambda: xp.ascontiguousarray(a.T)),
    }
    for case, calls in pairs.items():
        taken = [[machine.host_interval(call, _HOST_CALLS) / _HOST_CALLS for call in calls] for _ in range(options.repeats + 1)]
        ours, rival = np.median(taken[1:], axis=0).tolist()
        yield {"case": case, "ours_s": ours, "rival_s": rival, "ratio": rival / ours}


def _compile(machine: Any, options: Namespace) -> Iterator[Row]:
    plans: list[Plan] = [explain(a, b, precision=options.precision).plan for _, a, b in _products(machine, options, _unset)]
    plans += [explain_copy(x.T).plan for _, x in _transposes(machine, options, _unset)]
    kernels = {(launch.kernel.name, plan.device.arch): launch.kernel for plan in plans for launch in plan.launches}
    with _empty_cache():
        for (name, arch), kernel in kernels.items():
            target = target_architecture(kernel.arch, arch)
            compiled, found = (_seconds_to_compile(kernel, target) for _ in range(2))
            yield {"case": f"{name} {target}", "nvrtc_s": compiled, "cached_s": found}


GROUPS: dict[str, Callable[[Any, Namespace], Iterator[Row]]] = {"gemm": _gemm, "transpose": _transpose, "host": _host, "compile": _compile}
"""By name: what yields the rows of a table."""


# -- what is measured -----------------------------------------------------------------------------------------------------------------
def _products(machine: Any, options: Namespace, fill: Callable) -> Iterator[tuple[str, Any, Any]]:
    """Name and operands of every product."""
    sizes = [size * 3 if len(size) == 1 else size for size in options.sizes or _GEMM_SHAPES if len(size) in (1, 3)]
    for dtype in options.dtypes or _GEMM_DTYPES:
        for m, n, k in sizes:
            for orders in options.orders:
                a, b = (fill(machine.rival, extents, dtype, seed) if order == "N" else fill(machine.rival, extents[::-1], dtype, seed).T
                        for seed, (order, extents) in enumerate(zip(orders, ((m, k), (k, n)), strict=True)))
                yield f"{dtype} {m}x{n}x{k} {orders}", a, b


def _transposes(machine: Any, options: Namespace, fill: Callable) -> Iterator[tuple[str, Any]]:
    """Name and array of every transpose."""
    sizes = [size * 2 if len(size) == 1 else size for size in options.sizes or _COPY_SHAPES if len(size) in (1, 2)]
    for dtype in options.dtypes or _COPY_DTYPES:
        for size in sizes:
            yield f"{dtype} {size[0]}x{size[1]}", fill(machine.rival, size, dtype, 0)


def _random(xp: Any, extents: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Normal numbers, or small integers."""
    generator = xp.random.RandomState(seed)
    if np.issubdtype(dtype, np.inexact):
        x = generator.standard_normal(extents)
        return (x + 1j * generator.standard_normal(extents) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype)
    return generator.randint(0, 100, extents).astype(dtype)


def _unset(xp: Any, extents: tuple[int, ...], dtype: str, seed: int) -> Any:
    """An array of which only the layout matters."""
    return xp.empty(extents, dtype)


def _graded(machine: Any, a: Any, b: Any, c: Any) -> Grade:
    """The grade of some rows and columns of a product."""
    rows, columns = (slice(None, None, max(1, n // most)) for n, most in zip(c.shape, (_SAMPLED_ROWS, _SAMPLED_COLUMNS), strict=True))
    return grade(machine.get(a[rows]), machine.get(b[:, columns]), machine.get(c[rows, columns]))


def _seconds_to_compile(kernel: GeneratedKernel, target: str) -> float:
    start = perf_counter()
    runtime.compile(kernel, target)
    return perf_counter() - start


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Compiled kernels go to a new directory, which is removed afterwards."""
    before = os.environ.get("CUTEBLAS_CACHE_DIR")
    with TemporaryDirectory() as directory:
        os.environ["CUTEBLAS_CACHE_DIR"] = directory
        try:
            yield
        finally:
            if before is None:
                del os.environ["CUTEBLAS_CACHE_DIR"]
            else:
                os.environ["CUTEBLAS_CACHE_DIR"] = before
