r"""Show which kernel would run, how long it would take and why, for a product of two shapes or a
transpose of one.

  python -m cuteblas explain 4096x4096 4096x4096 --order NT
  python -m cuteblas explain "(4096, 4096)" 4096 --dtype bf16
  python -m cuteblas explain 8192x8192 --dtype complex128 \
      --picture
  # a permutation of axes, and a transpose in place
  python -m cuteblas explain 64x1001x1037:0,2,1
  python -m cuteblas explain 8192x8192:inplace
"""

from __future__ import annotations

import re
from argparse import Namespace
from dataclasses import replace
from itertools import cycle
from math import prod
from typing import Any, cast

import numpy as np

from .. import runtime
from .._dtypes import DTYPES, dtype
from ..engines.memory import Memory
from ..engines.settings import limited
from ..functions import Explanation
from ..functions.algorithms import check_variant, checked_algorithm
from ..functions.explain import device_for, explain_copy_of, explain_product_of
from ..functions.gemm import new_matrices
from ..layout import ComposedLayout, Figure, Swizzle, make_layout_like, size
from ..layout.banks import BANK_BYTES, bank_of
from ..layout.pictures.grids import Grid
from ..planning import Plan
from ..planning.pages import tile_figure
from ..planning.problem import DEVICES, H200
from .command import Parser, refusals
from .problems import permutation, shapes
from .terminal import Paint, paint, side_by_side, wrapped

_MOST_BYTES = 2**63                  # of an array: addresses are signed
# of operands that need not exist: aligned, and far from each other
_ADDRESSES = cycle(range(1 << 44, 1 << 47, 1 << 44))
_ORDERS = {"C": "C", "N": "C", "F": "F", "T": "F"}
_ALIASES = {alias: d.name for d in DTYPES.values() if d.kind in "fc" and d.package
            for alias in (d.tag, re.sub("^f", "fp", d.tag))}
# by size, for types that NumPy has not
_STAND_INS: dict[int, np.dtype] = {1: np.dtype(np.int8), 2: np.dtype(np.float16)}


def configure(parser: Parser) -> None:
    parser.option("shapes SHAPE",
                  "one shape or two: 4096x4096, 16x128x64, 4096 or (16,128,64)",
                  nargs="+")
    parser.option("--dtype",
                  "element type by NumPy's name, or bfloat16, bf16, fp16 ... (default: %(default)s)",
                  default="float32")
    parser.option("--order ORDERS",
                  "for each operand: C (or N) for row-major, F (or T) for column-major, as in CF or NT (default: CC)",
                  default="CC")
    parser.precision()
    parser.option("--variant VARIANT",
                  "plan with this kernel; python -m cuteblas kernels lists the names")
    parser.option("--device CARD",
                  f"plan for one of {', '.join(DEVICES)} (default: this machine's GPU, else h200)")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="print layouts, tiles, memory accesses and the floor too")
    parser.option("--picture", "draw the layout that matters most")
    parser.option("--source", "print the CUDA C++ too")


def run(options: Namespace) -> int:
    with refusals(TypeError, ValueError, OverflowError):
        explanation = _explained(options)
    show(explanation, with_picture=options.picture, verbose=options.verbose, more="--verbose")
    if options.source:
        print(explanation.source)
    return 0


def show(explanation: Explanation, with_picture: bool, verbose: bool = False,
         more: str | None = None) -> None:
    """Print an explanation and its plan's picture; ``more`` is how to ask for the rest."""
    text = explanation.verbose() if verbose else str(explanation)
    print(wrapped(text if more is None else text.replace(".verbose() says", f"{more} says")))
    if with_picture and explanation.plan is not None:
        for line in picture(explanation.plan, paint()):
            print(line)


def _explained(options: Namespace) -> Explanation:
    given = shapes(" ".join(options.shapes))
    orders = [_ORDERS.get(letter, "") for letter in options.order.upper().replace(",", "")]
    if len(given) > 2 or len(orders) < len(given) or "" in orders:
        raise ValueError(
            f"explain takes one or two shapes, and an order C or F (N or T) for each; got {len(given)} shapes and "
            f"orders {options.order!r}"
        )
    dtype, element = _dtype(options.dtype)
    card = device_for(options.device) or (runtime.device_info() if runtime.available() else H200)
    device, runs_on = limited(card), f"{card.name}, planned without operands"
    extents, axes = zip(*given, strict=True)
    x, *others = (operand(each, dtype, order)
                  for each, order in zip(extents, orders, strict=False))
    if others:
        if any(axes):
            raise ValueError("a permutation or a transpose in place takes one shape, got two")
        algorithm = checked_algorithm(options.precision, options.variant, "gemm")
        return explain_product_of(x, others[0], None, device, runs_on, algorithm, element=element)
    check_variant(options.variant, "copy")
    if len(x.shape) < (1 if axes[0] else 2):
        raise ValueError(
            f"a transpose needs an array of at least 2 axes, got the shape {x.shape}; two shapes are a product"
        )
    moved = permutation(x.shape, axes[0])
    shape, strides = (tuple(each[i] for i in moved.axes) for each in (x.shape, x.strides))
    return explain_copy_of(replace(x, shape=shape, strides=strides), x if moved.in_place else None,
                           device, runs_on, variant=options.variant, element=element)


def _dtype(name: str) -> tuple[np.dtype, str | None]:
    """The type as NumPy has it, and the name of one that it has not."""
    name = _ALIASES.get(name.lower(), name)
    if name in DTYPES and DTYPES[name].package == "ml_dtypes":
        return _STAND_INS[DTYPES[name].bytes], name
    try:
        return np.dtype(name), None
    except (TypeError, ValueError, SyntaxError):
        raise TypeError(
            f"data type {name!r} not understood; element types are those of NumPy and bfloat16"
        ) from None


def operand(extents: tuple[int, ...], dtype: np.dtype, order: str) -> Memory:
    """An aligned array that need not exist: gapless, with the last two axes in C or F order."""
    if dtype.itemsize * prod(max(n, 1) for n in extents) >= _MOST_BYTES:
        raise ValueError(
            f"an array of {'x'.join(map(str, extents))} elements of {dtype.itemsize} bytes is too large: arrays have "
            "less than 2^63 bytes"
        )
    return replace(new_matrices(extents, dtype, order), address=next(_ADDRESSES))


# -- pictures in text ------------------------------------------------------------------------------
_SHOWN = 8                      # rows and columns of shared memory


def picture(plan: Plan, paint: Paint) -> list[str]:
    """The picture that goes with a plan; no lines if there is none."""
    if (figure := tile_figure(plan)) is not None:
        return _tile_picture(figure, paint)
    kernel = plan.main_kernel
    for _name, element, layout in kernel.shared if kernel else ():
        if layout.rank == 2 and min(size(layout, 0), size(layout, 1)) >= _SHOWN:
            return _bank_picture(layout, dtype(element).bytes, paint)
    return []


def _tile_picture(figure: Figure, paint: Paint) -> list[str]:
    """Which thread, in the colour of its warp, owns each part of a tile of C."""
    (title, *notes), grid = figure.notes, cast(Grid, figure.panels[0][0])
    colours = list(dict.fromkeys(cell.colour for row in grid.cells for cell in row))
    width = max(len(cell.lines[0]) for row in grid.cells for cell in row)
    rows = (" ".join(paint(cell.lines[0].rjust(width), colours.index(cell.colour)) for cell in row)
            for row in grid.cells)
    return [title if paint("", 0) else title.partition(", each colour")[0],
            *(f"  {line}" for line in (*rows, *notes))]


def _bank_picture(layout: Any, nbytes: int, paint: Paint) -> list[str]:
    """The bank of each element of a tile, in rows without a gap and as its layout has it."""
    swizzled = layout if isinstance(layout, ComposedLayout) else ComposedLayout(Swizzle(0, 0, 0), 0,
                                                                                layout)
    swizzle, inner = swizzled.swizzle, swizzled.inner
    across = [d == 1 for d in inner.flat_stride].index(True)        # the mode of neighbours
    # what the swizzle moves as one, and how far apart rows are that it moves differently
    chunk = max(1 << swizzle.base if swizzle.bits else 1, BANK_BYTES // nbytes)
    apart = max(1, (swizzle.mask & -swizzle.mask) // inner[1 - across].flat_stride[0])
    columns, rows = (range(0, min(size(layout, mode), _SHOWN * step), step)
                     for mode, step in ((across, chunk), (1 - across, apart)))
    heading = "".join(f"{f'j{j}':>4}" for j in columns)
    tables = [["", "", *(f"{f'i{i}':>6}" for i in rows)]]
    for each in dict.fromkeys((make_layout_like(inner), layout)):
        width = max(len(heading), len(str(each)))
        tables.append([str(each).ljust(width), heading.ljust(width)])
        for i in rows:
            banks = [bank_of(each(*((j, i) if across == 0 else (i, j))), nbytes) for j in columns]
            line = "".join(paint(f"{bank:>4}", bank * BANK_BYTES // (chunk * nbytes))
                           for bank in banks)
            tables[-1].append(line + " " * (width - len(heading)))
    tables[0][:2] = [" " * len(tables[0][2])] * 2
    extents = f"{size(layout, 1 - across)}x{size(layout, across)}"
    return [f"a tile of {extents} elements of {nbytes} bytes in shared memory: the bank of element "
            "(i, j)",
            *side_by_side(tables),
            "  lanes that access a row or a column and meet in one bank wait for each other"]
