"""Multiply and transpose real data, check the results against NumPy, and show how it is done.

Without files: the handwritten digits that come with scikit-learn. One .npy file: its Gram matrix; two: their product.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from time import perf_counter
from typing import Any

import numpy as np

from .. import emulator, runtime
from ..functions import Explanation, ascontiguousarray, backend, explain, explain_copy, matmul
from .data import DataError, Task, task
from .grading import grade
from .machines import Comparison, Gpu, Host, Machine, compare
from .pictures import picture
from .terminal import Paint, columns, paint, shaded, side_by_side, wrapped

_REPEATS = 5
_PIECE = 96                     # largest extent of what the emulator multiplies
_IMAGES = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="*", metavar="FILE.npy", help="one array or two to multiply instead of the digits")


def run(options: Namespace) -> int:
    """Run the demonstration; 1 if a result is wrong, 2 if there is nothing to work on."""
    try:
        work = task(options.files)
        reason = runtime.why_unavailable()
        machine: Machine = Host() if reason else Gpu()
        a, b, x = (machine.put(operand) for operand in (work.a, work.b, work.x))
        explanations = explain(a, b), explain_copy(_turned(x))
    except (DataError, ValueError, TypeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(wrapped(work.title))
    print(wrapped(f"  runs on  {machine.name}" + (f", because there is no GPU to use: {reason}" if reason else "")))
    colours = paint()
    right = [_multiply(work, machine, a, b), _transpose(work, machine, x)]
    for told in explanations:
        _show(told, colours)
    if reason:
        right.append(_emulate(work, colours))
    wrong = right.count(False)
    print(f"\n{'all results are right' if not wrong else f'{wrong} of {len(right)} results are WRONG'}")
    return 1 if wrong else 0


def _turned(x: Any) -> Any:
    """The matrices of a stack, transposed: a view."""
    return x.swapaxes(-1, -2)


def _multiply(work: Task, machine: Machine, a: Any, b: Any) -> bool:
    """Multiply, grade and time."""
    theirs = machine.rival.matmul
    _heading(f"multiply: {work.product}, {work.a.dtype} {work.a.shape} @ {work.b.dtype} {work.b.shape}")
    judged = grade(work.a, work.b, machine.get(matmul(a, b)))
    _line("error", str(judged))
    if not isinstance(machine, Host):
        _line("", f"of {machine.rival_name}.matmul: {grade(work.a, work.b, machine.get(theirs(a, b)))}")
    _time(f"cuteblas.matmul on {machine.name}", f"{machine.rival_name}.matmul", compare(machine, lambda: matmul(a, b), lambda: theirs(a, b), _REPEATS))
    return judged.passed


def _transpose(work: Task, machine: Machine, x: Any) -> bool:
    """Materialise a transpose, compare and time."""
    theirs = machine.rival.ascontiguousarray
    _heading(f"transpose: {work.transposed}, {work.x.dtype} {work.x.shape}, written out in C order")
    right = _same(machine.get(ascontiguousarray(_turned(x))), _turned(work.x))
    _line("elements", f"{work.x.size}, {_where(right)}")
    _time("cuteblas.ascontiguousarray", f"{machine.rival_name}.ascontiguousarray",
          compare(machine, lambda: ascontiguousarray(_turned(x)), lambda: theirs(_turned(x)), _REPEATS))
    return right


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays are equal, NaNs too, and lie in memory in C order."""
    return bool(x.flags.c_contiguous) and np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")


def _where(right: bool) -> str:
    return "all where NumPy puts them" if right else "NOT where NumPy puts them"


def _show(told: Explanation, colours: Paint) -> None:
    """Print a plan and its picture."""
    _heading("the plan of " + str(told))
    lines = picture(told.plan, colours) if told.plan else []
    print(*([""] if lines else []), *lines, sep="\n")


def _emulate(work: Task, colours: Paint) -> bool:
    """Run the kernels on this CPU, on a piece of the data."""
    a, b, x = (operand[(0,) * max(0, operand.ndim - 2)] for operand in (work.a, work.b, work.x))
    a, b, x = a[..., :_PIECE, :_PIECE], b[..., :_PIECE, :_PIECE], x[:_PIECE, :_PIECE]
