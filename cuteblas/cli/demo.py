"""Multiply and transpose real data, check the results against NumPy, and show a kernel at work.

Without files: the handwritten digits that come with scikit-learn. One .npy file: its Gram matrix; two: their product.
On a GPU the kernels race CuPy. Without one, the emulator runs a kernel on this CPU, and what a GPU took elsewhere is shown.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib.resources import files
from time import perf_counter
from typing import Any

import numpy as np

from .. import emulator, runtime
from .._cache import usage
from ..functions import Explanation, ascontiguousarray, backend, explain, explain_copy, matmul
from .command import PROGRAM, CommandError
from .data import Task, task
from .explain import show
from .grading import Grade, grade
from .machines import Gpu, Host, Machine, medians
from .pictures import picture
from .terminal import duration, paint, reflowed, shaded, side_by_side, wrapped

_REPEATS, _SECONDS = 5, 2.0
_WIDTH = 8                      # of the names before what is said
_MORE = f"{PROGRAM} explain --verbose"
_NEXT = f"""
What to look at next
  {PROGRAM} kernels gemm_simt --source      # how it was made; its CUDA
  {PROGRAM} explain 4096x4096 4096x4096     # the plan for any product
  {PROGRAM} layout "(8,8):(8,1)" --bytes 4  # a layout, and its banks
  {PROGRAM} doctor                          # what a GPU needs here"""


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="*", metavar="FILE.npy", help="one array or two to multiply instead of the digits")


def run(options: Namespace) -> int:
    """Run the demonstration; 1 if a result is wrong.

    Raises
    ------
    CommandError
        If there is nothing to work on.
    """
    reason = runtime.why_unavailable()
    work = task(options.files)
    machine: Machine = Host() if reason else Gpu()
    a, b, x = (machine.put(operand) for operand in (work.a, work.b, work.x))
    with np.errstate(all="ignore"), backend("numpy"):       # what overflows in NumPy may overflow here
        try:
            plans = explain(a, b), explain_copy(_turned(x))
        except (ValueError, TypeError) as error:
            raise CommandError(error) from None
        print(reflowed(work.title))
        _entry("runs on", f"{machine.name}{f'; no GPU: {reason}' if reason else ''}")
        right = [_multiply(work, machine, a, b), _transpose(work, machine, x)]
        if reason is None:
            for explanation in plans:
                print()
                show(explanation, with_picture=True, more=_MORE)
        else:
            right += _emulate(work)
            _measured_elsewhere(plans[0])
    wrong = right.count(False)
    print(f"\n{wrong} of {len(right)} results are WRONG" if wrong else f"\nall {len(right)} results are right")
    if not wrong:
        print(_NEXT)
    return 1 if wrong else 0


def _turned(x: Any) -> Any:
    """The matrices of a stack, transposed: a view."""
    return x.swapaxes(-1, -2)


def _multiply(work: Task, machine: Machine, a: Any, b: Any) -> bool:
    """Multiply and grade; on a GPU beside its library."""
    print(reflowed(f"\nA product: {work.product}"))
    result = machine.get(matmul(a, b))
    graded = grade(work.a, work.b, result)
    _entry("error", str(graded))
    if not isinstance(machine, Host):
        _entry(f"{machine.rival_name}'s", str(grade(work.a, work.b, machine.get(machine.rival.matmul(a, b)))))
    _explain_units(graded, result)
    if not isinstance(machine, Host):
        _time(machine, "matmul", lambda: matmul(a, b), lambda: machine.rival.matmul(a, b))
    return graded.passed


def _explain_units(graded: Grade, result: np.ndarray) -> None:
    """Say in what an error is measured."""
    if graded.limit:
        bits = 1 - round(np.log2(np.finfo(result.dtype).eps))
        _entry("", f"u(|A||B|) is the rounding unit of {result.dtype}, u = 2^-{bits}, times the sum of the sizes of an element's "
                   f"terms. Any order of summation stays within {graded.limit:g} of it; a good one needs a few.")


def _transpose(work: Task, machine: Machine, x: Any) -> bool:
    """Materialise a transpose and compare; on a GPU beside its library."""
    print(reflowed(f"\nA transpose: {work.transposed}, written out in C order"))
    right = _same(machine.get(ascontiguousarray(_turned(x))), _turned(work.x))
    _entry("elements", f"{work.x.size}, {'all' if right else 'NOT all'} where NumPy puts them")
    if not isinstance(machine, Host):
        _time(machine, "ascontiguousarray", lambda: ascontiguousarray(_turned(x)),
              lambda: machine.rival.ascontiguousarray(_turned(x)))
    return right


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays are equal, NaNs too, the first in C order."""
    return bool(x.flags.c_contiguous) and np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")


def _time(machine: Machine, function: str, ours: Callable[[], Any], rival: Callable[[], Any]) -> None:
    """Print both times."""
    mine, theirs = medians(machine, ours, rival, repeats=_REPEATS, seconds=_SECONDS)
    _entry("time", f"cuteblas.{function} {duration(mine)}, {machine.rival_name}.{function} {duration(theirs)}: "
                   f"{theirs / mine:.2f} times as fast")


# -- a kernel at work --------------------------------------------------------------------------------------------------------------
def _emulate(work: Task) -> list[bool]:
    """Run a generated kernel on this CPU, on a piece of the data; whether its result is right, if it ran."""
    print(reflowed("\nOne kernel at work: the code for a GPU, compiled for this CPU and run under checks"), flush=True)
    if (missing := emulator.why_unavailable()) is not None:
        _entry("skipped", missing)
        return []
    a, b = work.piece
    with backend("emulator"):
        plan = explain(a, b).plan
        if plan is None:
            _entry("skipped", f"there are no kernels for {a.dtype}")
            return []
        known, start = usage("emulator").files, perf_counter()
        try:
            product = matmul(a, b)
        except emulator.EmulatorError as error:
            _entry("ERROR", str(error))
            return [False]
        seconds = perf_counter() - start
    graded = grade(a, b, product)
    if work.images:
        _show_images("four digits", b, work.images)
        _show_images("turned upside down by the kernel: np.eye(8)[::-1] @ digits", product, work.images)
        print()
    _entry("product", f"{a.dtype} {a.shape} @ {b.shape}; operands are read in place, whatever their strides")
    for launch in plan.launches:
        _entry("kernel", f"{launch.kernel.name}, a grid of {launch.grid[0]} x {launch.grid[1]} blocks of {launch.kernel.threads} "
                         "threads")
    _entry("result", "every element equal to NumPy's" if np.array_equal(product, a @ b) else str(graded))
    _entry("checked", "every memory access: bounds, alignment, races, reads of what nothing has written")
    compiled = usage("emulator").files > known
    compiler = "most of it for the C++ compiler; the next run finds" if compiled else "with"
    _entry("time", f"{duration(seconds)}, {compiler} the kernel on disk")
    print()
    for line in picture(plan, paint()):
        print(wrapped(f"  {line}"))
    return [graded.passed]


def _show_images(title: str, strip: np.ndarray, count: int) -> None:
    print(f"\n  {title}")
    for line in side_by_side(shaded(image) for image in np.hsplit(strip, count)):
        print(f"  {line}")


# -- what a GPU would give ---------------------------------------------------------------------------------------------------------
def _measured_elsewhere(explanation: Explanation) -> None:
    """Figures of the project's own measurements, and what a GPU would run for the product above."""
    measured = json.loads(files("cuteblas.cli").joinpath("measured.json").read_text(encoding="utf-8"))
    about = measured["about"]
    cublas = int(about["cublas"])
    print(reflowed(f"\nWhat a GPU gives: measured on one {about['device']}, beside CuPy {about['cupy'].rpartition('.')[0]} "
                  f"(cuBLAS {cublas // 10000}.{cublas // 100 % 100})"))
    print(f"  {'':38}{'cuteblas':>10}{'CuPy':>10}")
    for row in measured["rows"]:
        dtype, size, *_ = row["case"].split()
        what = f"{'matmul' if row['group'] == 'gemm' else 'transpose'} {dtype} {size.replace('x', ' x ')}"
        print(f"  {what:38}{duration(row['ours_s']):>10}{duration(row['rival_s']):>10}{row['rival_s'] / row['ours_s']:>6.1f} "
              "times as fast")
    print(reflowed("\nWhat it would run for the product above: planned, not measured"))
    show(explanation, with_picture=False, more=_MORE)


def _entry(name: str, text: str) -> None:
    print(wrapped(f"  {name:<{_WIDTH}}  {text}"))
