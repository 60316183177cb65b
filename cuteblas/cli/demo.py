"""Multiply and transpose real data, check the results against NumPy, and show how it is done.

Without files: the handwritten digits that come with scikit-learn. One .npy file: its Gram matrix; two: their product.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from .. import emulator, runtime
from ..functions import ascontiguousarray, backend, explain, explain_copy, matmul
from .data import DataError, Task, task
from .explain import show
from .grading import grade
from .machines import Gpu, Host, Machine, medians
from .terminal import shaded, side_by_side, wrapped

_REPEATS, _SECONDS = 5, 2.0
_PIECE = 96                     # largest extent of what the emulator works on
_IMAGES = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="*", metavar="FILE.npy", help="one array or two to multiply instead of the digits")


def run(options: Namespace) -> int:
    """Run the demonstration; 1 if a result is wrong, 2 if there is nothing to work on."""
    reason = runtime.why_unavailable()
    try:
        work = task(options.files)
        machine: Machine = Host() if reason else Gpu()
        a, b, x = (machine.put(operand) for operand in (work.a, work.b, work.x))
        plans = explain(a, b), explain_copy(_turned(x))
    except (DataError, ValueError, TypeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(wrapped(f"{work.title}\n  runs on  {machine.name}{f'; no GPU: {reason}' if reason else ''}"))
    right = [_multiply(work, machine, a, b), _transpose(work, machine, x)]
    for told in plans:
        print()
        show(told, with_picture=True)
    if reason:
        right += _emulate(work)
    wrong = right.count(False)
    print(f"\n{wrong} of {len(right)} results are WRONG" if wrong else f"\nall {len(right)} results are right")
    return 1 if wrong else 0


def _turned(x: Any) -> Any:
    """The matrices of a stack, transposed: a view."""
    return x.swapaxes(-1, -2)


def _multiply(work: Task, machine: Machine, a: Any, b: Any) -> bool:
    """Multiply, grade and time."""
    print(f"\nmultiply: {work.product}")
    judged = grade(work.a, work.b, machine.get(matmul(a, b)))
    _entry("error", str(judged))
    if not isinstance(machine, Host):
        _entry(f"{machine.rival_name}'s", str(grade(work.a, work.b, machine.get(machine.rival.matmul(a, b)))))
    _time(machine, "matmul", lambda: matmul(a, b), lambda: machine.rival.matmul(a, b))
    return judged.passed


def _transpose(work: Task, machine: Machine, x: Any) -> bool:
    """Materialise a transpose, compare and time."""
    print(f"\ntranspose: {work.transposed}, written out in C order")
    right = _same(machine.get(ascontiguousarray(_turned(x))), _turned(work.x))
    _entry("elements", _verdict(work.x.size, right))
    _time(machine, "ascontiguousarray", lambda: ascontiguousarray(_turned(x)), lambda: machine.rival.ascontiguousarray(_turned(x)))
    return right


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays are equal, NaNs too, the first in C order."""
    return bool(x.flags.c_contiguous) and np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")


def _verdict(elements: int, right: bool) -> str:
    return f"{elements}, {'all' if right else 'NOT all'} where NumPy puts them"


def _time(machine: Machine, function: str, ours: Callable[[], Any], rival: Callable[[], Any]) -> None:
    """Print both times, in milliseconds."""
    mine, theirs = medians(machine, ours, rival, repeats=_REPEATS, seconds=_SECONDS)
    _entry("time", f"cuteblas.{function} {mine * 1e3:.3g} ms, {machine.rival_name}.{function} {theirs * 1e3:.3g} ms: "
                   f"{theirs / mine:.2f} times as fast")


def _emulate(work: Task) -> list[bool]:
    """Run generated kernels on this CPU, on a piece of the data; which of the results are right."""
    print("\nthe kernels in the emulator, on a piece of the data")
    if (missing := emulator.why_unavailable()) is not None:
        _entry("skipped", missing)
        return []
    a, b = _piece(work.a), _piece(work.b)
    x = _turned(_piece(work.x) if work.images is None else work.images[:_IMAGES])
    with backend("emulator"):
        plans = explain(a, b).plan, explain_copy(x).plan
        if plans[0] is None or plans[1] is None:
            _entry("skipped", f"there are no kernels for {a.dtype}")
            return []
        start = perf_counter()
        try:
            product, copy = matmul(a, b), ascontiguousarray(x)
        except emulator.EmulatorError as error:
            _entry("ERROR", str(error))
            return [False]
        seconds = perf_counter() - start
    judged, right = grade(a, b, product), _same(copy, x)
    for launch in (*plans[0].launches, *plans[1].launches):
        _entry("kernel", f"{launch.kernel.name}: {launch.grid[0]} blocks of {launch.kernel.threads} threads")
    _entry("checked", "every memory access: bounds, alignment, races, reads of what nothing has written")
    _entry("product", f"{a.shape} @ {b.shape}: error {judged}")
    _entry("transpose", f"{x.shape}: {_verdict(x.size, right)}")
    _entry("time", f"{seconds:.1f} s, the C++ compiler included")
    if work.images is not None:
        for images, title in ((_turned(x), "digits"), (copy, "their transposes, by the kernel")):
            print(f"\n  {title}", *side_by_side(shaded(image) for image in images), sep="\n")
    return [judged.passed, right]


def _piece(x: np.ndarray) -> np.ndarray:
    """A corner of the first matrix of a stack."""
    x = x[(0,) * max(0, x.ndim - 2)]
    return x[(slice(_PIECE),) * x.ndim]


def _entry(name: str, text: str) -> None:
    print(wrapped(f"  {name:<9}  {text}"))
