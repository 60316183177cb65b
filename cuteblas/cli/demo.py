"""Multiply and transpose real data, check the results, and watch a kernel run.

Without a file, the data are scikit-learn's handwritten digits. With one .npy file, the product is
its Gram matrix; with two, their product. On a GPU, cuteblas and CuPy are timed in turns. Without
one, the emulator runs a kernel on this CPU, and the demo prints times that the project measured on
a GPU.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from .. import emulator, runtime
from .._cache import usage
from ..functions import (
    Explanation,
    ascontiguousarray,
    backend,
    explain,
    explain_copy,
    matmul,
    matrix_transpose,
)
from ..planning.floors import duration
from .command import PROGRAM, CommandError, Parser, refusals
from .explain import picture, show
from .grading import Grade, grade
from .machines import Gpu, Host, Machine, medians
from .terminal import paint, reflowed, side_by_side, wrapped

_INSTALL = "pip install 'cuteblas[demo]'"
_CORNER, _IMAGES = 96, 4        # extents of what the emulator works on
_ARCHIVE = b"PK"                # how zip files begin, .npz among them
_REPEATS, _SECONDS = 5, 2.0
_WIDTH = 8                      # of the names before what is said
_MORE = f"{PROGRAM} explain --verbose"
_NEXT = f"""
Try next
  {PROGRAM} explain 4096x4096 4096x4096     # which kernel, how fast
  {PROGRAM} kernels gemm_simt --source      # layouts and CUDA source
  {PROGRAM} layout "(8,8):(8,1)" --bytes 4  # a layout, bank conflicts
  {PROGRAM} doctor                          # what is missing for a GPU"""


def configure(parser: Parser) -> None:
    parser.option("files FILE.npy", "one array or two, instead of the digits", nargs="*")


def run(options: Namespace) -> int:
    reason = runtime.why_unavailable()
    work = task(options.files)
    machine: Machine = Host() if reason else Gpu()
    a, b, x = (machine.rival.asarray(each, order="A") for each in (work.a, work.b, work.x))
    with np.errstate(all="ignore"), backend("numpy"):    # what overflows in NumPy may overflow here
        with refusals(ValueError, TypeError):
            plans = explain(a, b), explain_copy(matrix_transpose(x))
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
    if wrong := right.count(False):
        print(f"\n{wrong} of {len(right)} results are WRONG")
        return 1
    print(f"\nall {len(right)} results are right\n{_NEXT}")
    return 0


def _multiply(work: Task, machine: Machine, a: Any, b: Any) -> bool:
    """Multiply and grade; on a GPU beside its library."""
    _say(f"Multiply: {work.product}")
    result = machine.get(matmul(a, b))
    graded = grade(work.a, work.b, result)
    _entry("result", _in_words(graded, result))
    if not isinstance(machine, Host):
        rival = machine.get(machine.rival.matmul(a, b))
        _entry(f"{machine.title.lower()}'s", _in_words(grade(work.a, work.b, rival), rival))
        _time(machine, matmul, a, b)
    return graded.passed


def _in_words(graded: Grade, result: np.ndarray) -> str:
    """Whether a result is right, and how accurate it is."""
    whole = graded.checked == graded.rows
    rows = f"{'all' if whole else f'{graded.checked} of'} {graded.rows}"
    right = f"{'right' if graded.passed else 'WRONG'}, {rows} rows checked"
    if not graded.limit:
        return f"{right}: {'equal to' if graded.passed else 'DIFFERENT FROM'} NumPy's"
    unit = float(np.finfo(result.dtype).eps) / 2
    return f"{right}: the error is at most {graded.error * unit:.1e} of the terms ({result.dtype} itself rounds by {unit:.1e})"


def _transpose(work: Task, machine: Machine, x: Any) -> bool:
    _say(f"Transpose: {work.transposed}, copied to C order")
    moved = machine.get(ascontiguousarray(matrix_transpose(x)))
    right = bool(moved.flags.c_contiguous) and np.array_equal(
        moved, matrix_transpose(work.x), equal_nan=moved.dtype.kind in "fc"
    )
    _entry(
        "result",
        f"{'right' if right else 'WRONG'}: {'all' if right else 'NOT all'} {work.x.size} elements are where NumPy "
        "puts them"
    )
    if not isinstance(machine, Host):
        _time(machine, ascontiguousarray, matrix_transpose(x))
    return right


def _time(machine: Machine, function: Callable[..., Any], *operands: Any) -> None:
    name = function.__name__
    calls = (partial(each, *operands) for each in (function, getattr(machine.rival, name)))
    mine, theirs = medians(machine, *calls, repeats=_REPEATS, seconds=_SECONDS)
    _entry("time", f"cuteblas.{name} {duration(mine)}, {machine.title.lower()}.{name} "
                   f"{duration(theirs)}: {theirs / mine:.2f} times as fast")


# -- a kernel at work ------------------------------------------------------------------------------
def _emulate(work: Task) -> list[bool]:
    """Run a generated kernel on a piece of the data; whether its result is right, if it ran."""
    _say("Watch a kernel: the emulator runs the GPU's code on this CPU and checks every step")
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
        _show_images("upside down, by a product: np.eye(8)[::-1] @ digits", product, work.images)
        print()
    _entry(
        "product",
        f"{a.dtype} {a.shape} @ {b.shape}; the kernel reads both in place, whatever their strides"
    )
    for launch in plan.launches:
        count = launch.grid[0] * launch.grid[1]
        _entry(
            "kernel",
            f"{plan.family}, generated for this product: {count} block{'s' * (count > 1)} of {launch.kernel.threads} "
            "threads"
        )
    _entry("result", "right: every element equals NumPy's" if np.array_equal(product, a @ b)
           else _in_words(graded, product))
    _entry(
        "checks",
        "no access out of bounds or misaligned, no race between threads, no read of uninitialised memory"
    )
    compiled = usage("emulator").files > known
    how = ("mostly to compile the kernel, which is now on disk" if compiled
           else "with the compiled kernel from disk")
    _entry("time", f"{duration(seconds)}, {how}")
    print()
    for line in picture(plan, paint()):
        print(wrapped(f"  {line}"))
    return [graded.passed]


def _show_images(title: str, strip: np.ndarray, count: int) -> None:
    print(f"\n  {title}")
    for line in side_by_side(shaded(image) for image in np.hsplit(strip, count)):
        print(f"  {line}")


def shaded(image: np.ndarray) -> list[str]:
    """An image as lines of text, two characters for each pixel, the darkest where the value is
    largest."""
    shades = " ░▒▓█"
    try:
        shades.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        shades = " .+#@"
    levels = image.clip(0) / (image.max(initial=0) or 1) * (len(shades) - 1)
    return ["".join(2 * shades[level] for level in row) for row in levels.round().astype(int)]


# -- speed on a GPU --------------------------------------------------------------------------------
def _measured_elsewhere(explanation: Explanation) -> None:
    """Print times that the project measured, and the plan of the product above on a GPU."""
    measured = json.loads(files(__package__).joinpath("measured.json").read_text("utf-8"))
    _say(f"Speed on a GPU: the project's measurements on {measured['about']}")
    print(f"  {'':38}{'cuteblas':>10}{'CuPy':>10}")
    for what, ours, theirs in measured["rows"]:
        print(
            f"  {what:38}{duration(ours):>10}{duration(theirs):>10}{theirs / ours:>6.1f} times as fast"
        )
    _say("The product above on that GPU: cuteblas's plan, with an estimated time")
    show(explanation, with_picture=False, more=_MORE)


def _say(text: str) -> None:
    print(f"\n{reflowed(text)}", flush=True)


def _entry(name: str, text: str) -> None:
    print(wrapped(f"  {name:<{_WIDTH}}  {text}"))


# -- what is multiplied ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """A product, an array to transpose, and a small product for the emulator, whose second operand
    has ``images`` side by side."""

    title: str
    product: str
    transposed: str
    a: np.ndarray
    b: np.ndarray
    x: np.ndarray
    piece: tuple[np.ndarray, np.ndarray]
    images: int = 0


def task(files: Sequence[str]) -> Task:
    """The product of two files, the Gram matrix of one, or without files the digits."""
    if not files:
        return _digits()
    if len(files) > 2:
        raise CommandError(f"demo multiplies one or two .npy files, got {len(files)}")
    arrays = [_load(name) for name in files]
    names = [Path(name).name for name in files]
    title = "; ".join(f"{name}: {x.dtype} {x.shape}" for name, x in zip(names, arrays, strict=True))
    x = np.atleast_2d(arrays[0])
    if len(arrays) == 2:
        (a, b), product = arrays, f"{names[0]} @ {names[1]}"
    else:                                              # the smaller of the two Gram matrices
        turned, mark = np.matrix_transpose(x.conj()), "A^H" if x.dtype.kind == "c" else "A^T"
        wide = x.shape[-2] <= x.shape[-1]
        a, b, formula = (x, turned, f"A {mark}") if wide else (turned, x, f"{mark} A")
        product = f"the Gram matrix {formula} of {names[0]}"
    transposed, piece = f"the transpose of {names[0]}", (_corner(a), _corner(b))
    return Task(title, product, transposed, a, b, x, piece)


def _corner(x: np.ndarray) -> np.ndarray:
    """A corner of the first matrix of a stack."""
    x = x[(0,) * max(0, x.ndim - 2)]
    return x[(slice(_CORNER),) * x.ndim]


def _digits() -> Task:
    """Products of all pairs of pixels, centred: the digits' kernel matrix of degree 2."""
    if find_spec("sklearn") is None:
        raise CommandError(
            f"the handwritten digits need scikit-learn: {_INSTALL}; or name one or two .npy files"
        )
    from sklearn.datasets import load_digits

    images = load_digits().images.astype(np.float32)
    pixels = images.reshape(len(images), -1)
    pixels = (pixels - pixels.mean(axis=0)) / 16
    features = (pixels[:, :, None] * pixels[:, None, :]).reshape(len(pixels), -1)
    count, height, width = images.shape
    upside_down = np.eye(height, dtype=images.dtype)[::-1]
    title = (
        f"{count} handwritten digits of {height}x{width} pixels, from scikit-learn. Each row of X describes a digit by the "
        f"products of all pairs of its pixels: {features.dtype} {features.shape}."
    )
    return Task(title, "X @ X.T, the similarity of every two digits", "X.T", features, features.T,
                features, (upside_down, np.hstack(images[:_IMAGES])), _IMAGES)


def _load(name: str) -> np.ndarray:
    try:
        with open(name, "rb") as file:
            begins = file.read(len(MAGIC_PREFIX))
        if begins.startswith(_ARCHIVE):
            raise CommandError(
                f"{name} holds several arrays; save the one to multiply with numpy.save"
            )
        if begins != MAGIC_PREFIX:
            raise CommandError(f"{name} is not a .npy file; numpy.save('x.npy', x) writes one")
        x = np.load(name, allow_pickle=False)
    except OSError as error:
        raise CommandError(
            f"{name or repr(name)} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, EOFError, MemoryError) as error:
        if "allow_pickle" in str(error):
            raise CommandError(f"{name} holds Python objects, which are not numbers") from None
        raise CommandError(f"{name} cannot be read as a .npy file: {error}") from error
    if x.dtype.kind not in "biufc":
        raise CommandError(f"{name} holds {x.dtype}, which is not a type of numbers")
    if not x.size or not x.ndim:
        raise CommandError(f"{name} has shape {x.shape}: there is nothing to multiply")
    return x
