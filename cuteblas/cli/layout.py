r"""Print and draw a layout: its values, its size, whether it is one to one, and its bank conflicts.

  python -m cuteblas layout "(8,8):(8,1)" --swizzle 3,0,3 \
      --bytes 16
  python -m cuteblas layout "(12,8)" --tile "(4,_)" --svg out.svg
  python -m cuteblas layout "((4,8),(2,2)):((32,1),(16,8))" \
      --tv "(16,8)"

Operations apply in this order: compose, swizzle, tile.
"""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from ..layout import (
    ComposedLayout,
    Figure,
    Layout,
    LayoutError,
    Swizzle,
    bank_picture,
    bank_report,
    complement,
    composition,
    copy_picture,
    cosize,
    is_injective,
    layout_picture,
    layout_table,
    mma_picture,
    size,
    transform_leaf,
    tv_picture,
    tv_table,
    zipped_divide,
)
from .command import Parser, refusals, refuse_unwritable

_MOST = 64


def configure(parser: Parser) -> None:
    parser.option("layout LAYOUT", 'CuTe\'s text: "(8,8):(8,1)", or a shape, which is compact')
    parser.option("--compose LAYOUT", "apply LAYOUT to the values: LAYOUT o this")
    parser.option("--swizzle B,M,S", "swizzle the values")
    parser.option("--tile TILER",
                  'divide into tiles, one to a column: "(4,2)" by mode ("_" for a whole mode), or a layout "8:2"')
    parser.option("--complement N", "print the complement, which fills the gaps below N", type=int)
    parser.option("--bytes N",
                  "bytes of an element: count and draw the banks of shared memory",
                  type=int)
    parser.option("--tv TILE",
                  'the layout maps (thread, value) into a tile of these extents: "(16,8)"')
    parser.option("--to LAYOUT", "with --tv: draw a copy to the threads and values of LAYOUT")
    parser.add_argument("--mma", nargs=2, metavar=("A", "B"), help="with --tv: draw a matrix instruction; A and B are layouts, "
                                                                   "and C has this one")
    parser.option("--svg FILE", "write the picture as SVG")
    parser.option("--latex FILE", "write the picture as LaTeX (TikZ)")


def run(options: Namespace) -> int:
    refuse_unwritable(options.svg, options.latex)
    with refusals(LayoutError):
        layout = _derived(options)
        shown = _values if options.tv is None else _thread_values
        lines, figure = shown(options, layout)
        print("\n".join(lines))
        if options.complement is not None:
            print(
                f"complement up to {options.complement}: {complement(layout, options.complement)}"
            )
        if options.bytes is not None:
            print(bank_report(layout, options.bytes))
        for path, kind, text in ((options.svg, "SVG", figure.svg),
                                 (options.latex, "LaTeX", figure.latex)) if figure else ():
            if path:
                Path(path).write_text(text(), encoding="utf-8")
                print(f"wrote {path} ({kind})")
    return 0


def _derived(options: Namespace) -> Any:
    layout: Any = Layout.parse(options.layout)
    if options.compose is not None:
        layout = composition(layout, Layout.parse(options.compose))
    if options.swizzle is not None:
        layout = composition(_swizzle(options.swizzle), layout)
    if options.tile is not None:
        layout = zipped_divide(layout, _tiler(options.tile))
    return layout


def _swizzle(text: str) -> Swizzle:
    try:
        bits, base, shift = map(int, text.split(","))
    except ValueError:
        raise LayoutError("Swizzle", "a swizzle is written B,M,S, for example 3,0,3",
                          repr(text)) from None
    return Swizzle(bits, base, shift)


def _tiler(text: str) -> Any:
    """A layout if the text has strides, else extents by mode with None for ``_``."""
    if ":" in text:
        return Layout.parse(text)
    shape = Layout.parse(re.sub(r"_(?!\d)", "whole", text)).shape
    return transform_leaf(shape, lambda x: x if isinstance(x, int) else None)


def _values(options: Namespace, layout: Any) -> tuple[list[str], Figure | None]:
    if options.to or options.mma:
        raise LayoutError("layout",
                          "--to and --mma draw thread-value layouts: give the tile with --tv",
                          str(layout))
    n = size(layout)
    rows = size(layout, 0) if layout.rank > 1 else 1
    if isinstance(n, int) and n > 0 and max(rows, n // rows) <= _MOST:
        table = layout_table(layout)
    else:
        table = f"{layout}\n(no table: {'extents are symbolic' if not isinstance(n, int) else f'{n} values'})"
    figure = None
    if options.svg or options.latex:
        figure = layout_picture(layout) if options.bytes is None else bank_picture(layout, options.bytes)
    return [table, _measures(layout)], figure


def _thread_values(options: Namespace, layout: Any) -> tuple[list[str], Figure]:
    tile = Layout.parse(options.tv).shape
    lines = [tv_table(layout, tile), _measures(layout)]
    if options.mma:
        a, b = map(Layout.parse, options.mma)
        return lines, mma_picture(a, b, layout, _instruction_shape(a, tile))
    if options.to:
        return lines, copy_picture(layout, Layout.parse(options.to), tile)
    return lines, tv_picture(layout, tile)


def _instruction_shape(a: Layout, tile: Any) -> tuple[int, int, int]:
    """(M, N, K): the tile is C's, and K is what A's values reach."""
    if not isinstance(tile, tuple) or len(tile) != 2:
        raise LayoutError("layout", "the C of a matrix instruction has a tile (M,N)", tile)
    return (*tile, -(-cosize(a) // tile[0]))


def _measures(layout: Layout | ComposedLayout) -> str:
    """One line: size, cosize, one to one, compact."""
    n, reach = size(layout), cosize(layout)
    try:
        once = is_injective(layout.inner if isinstance(layout, ComposedLayout) else layout)
    except LayoutError:
        return f"size {n}, cosize {reach}, not certain to be one to one"
    return f"size {n}, cosize {reach}, {'' if once else 'not '}one to one, {'' if once and n == reach else 'not '}compact"
