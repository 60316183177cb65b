"""Show the plan for operands of given shapes, without any data: two shapes for their product, one for its materialised transpose.

  python -m cuteblas explain 4096x4096 4096x4096 --dtype float32 --order CF
  python -m cuteblas explain 8192x8192 --dtype complex128 --picture
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..functions import Explanation, explain, explain_copy
from ..functions.memory import contiguous_strides
from .pictures import picture
from .terminal import paint, wrapped

__all__ = ["shape", "show", "stand_in"]

_ALIGNMENT = 16


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shapes", nargs="+", type=shape, metavar="SHAPE", help="one or two, for example 4096x4096 or 16x128x64")
    parser.add_argument("--dtype", default="float32", help="element type (default: %(default)s)")
    parser.add_argument("--order", default="CC", metavar="ORDERS",
                        help="for each operand C or F: whether its last axis or the one before has stride 1 (default: CC)")
    parser.add_argument("--precision", default="auto", help="as in cuteblas.matmul (default: %(default)s)")
    parser.add_argument("--picture", action="store_true", help="draw the layout that matters")
    parser.add_argument("--source", action="store_true", help="print the CUDA C++ too")


def run(options: Namespace) -> int:
    """Print the plan; 2 if NumPy would not accept the call."""
    try:
        told = _told(options)
    except (TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    show(told, with_picture=options.picture)
    if options.source:
        print(told.source)
    return 0


def show(told: Explanation, with_picture: bool) -> None:
    """Print an explanation, wrapped, and the picture of its plan."""
    print(wrapped(str(told)))
    if with_picture and told.plan is not None:
        for line in picture(told.plan, paint()):
            print(line)


def _told(options: Namespace) -> Explanation:
    shapes, orders = options.shapes, options.order.upper()
    if len(shapes) > 2 or len(orders) < len(shapes) or set(orders) - {"C", "F"}:
        raise ValueError(f"one or two shapes and for each an order C or F are explained, got {len(shapes)} and {options.order!r}")
    operands = [stand_in(extents, np.dtype(options.dtype), order) for extents, order in zip(shapes, orders, strict=False)]
    if len(operands) == 2:
        return explain(*operands, precision=options.precision)
    return explain_copy(np.matrix_transpose(operands[0]))


def shape(text: str) -> tuple[int, ...]:
    """Extents from ``"16x128x64"``."""
    try:
        extents = tuple(map(int, text.lower().split("x")))
    except ValueError:
        extents = (-1,)
    if min(extents) < 0:
        raise ArgumentTypeError(f"a shape is written 4096x4096, got {text!r}")
    return extents


def stand_in(extents: tuple[int, ...], dtype: np.dtype, order: str) -> np.ndarray:
    """An array of any size that takes no memory and must not be read: gapless, with the last two axes in C or F order."""
    axes = list(range(len(extents)))
    if order == "F":
        axes[-2:] = axes[:-3:-1]
    memory = np.empty(2 * _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    element = np.ndarray((), dtype, memory, start) if dtype.itemsize <= _ALIGNMENT else np.empty((), dtype)
    return as_strided(element, extents, contiguous_strides(extents, dtype.itemsize, axes), writeable=False)
