"""Divisions of a layout into tiles, and products of layouts.

All divisions hold the same elements and differ in how they bundle the modes, for a layout ``(M, N, L)`` and a tiler ``(TM, TN)``::

    logical_divide   ((TileM, RestM), (TileN, RestN), L)
    zipped_divide    ((TileM, TileN), (RestM, RestN, L))
    tiled_divide     ((TileM, TileN), RestM, RestN, L)
    flat_divide      (TileM, TileN, RestM, RestN, L)

Products bundle in the same ways. A division whose tile does not divide the layout rounds up: the last tiles then reach past
the layout, and an identity layout divided alike tells which of their elements exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .algebra import complement
from .composition import compose
from .core import Layout, append, cosize, make_layout, make_ordered_layout, on_domain, trusted
from .errors import LayoutError
from .inttuple import ceil_div, leaves, product_each, quotient, size
from .symbolic import Expr

__all__ = ["blocked_product", "flat_divide", "flat_product", "logical_divide", "logical_product", "raked_product", "tile_to_shape",
           "tiled_divide", "tiled_product", "zipped_divide", "zipped_product"]


def _as_tiler(tiler: Any, op: str, *operands: Any) -> Any:
    if tiler is None or isinstance(tiler, (tuple, Layout)):
        return tiler
    if isinstance(tiler, (int, Expr)):
        return Layout(tiler)
    raise LayoutError(op, f"a tiler is a layout, an integer, None or a tuple, got {tiler!r}", *operands)


# -- divisions --------------------------------------------------------------------------------------------------------------------
@on_domain
def logical_divide(layout: Layout, tiler: Any) -> Layout:
    """A layout split into the elements of a tile and the tiles: ``((TileM, RestM), (TileN, RestN), L)``.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is divided.
    tiler : Layout, int, None or tuple
        Which elements make the first tile. A tuple divides mode by mode, modes beyond it are kept, and ``None`` leaves a mode
        whole.

    Raises
    ------
    LayoutError
        If the tiler has no complement in the layout, or tile and layout do not divide evenly in the middle of nested modes.

    Examples
    --------
    >>> str(logical_divide(Layout((9, (4, 8)), (59, (13, 1))), (Layout(3, 3), Layout((2, 4), (1, 8)))))
    '((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))'
    """
    if type(tiler) is int and tiler > 1 and not isinstance(layout.shape, tuple):
        s, d = layout.shape, layout.stride               # the usual case, spelled out: one mode and a number of elements
        rest = ceil_div(s, tiler)
        return trusted((tiler, rest), (d, 0 if rest == 1 else d * tiler))
    tiler = _as_tiler(tiler, "logical_divide", layout)
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        if len(tiler) > layout.rank:
            raise LayoutError("logical_divide", f"the tiler has more than {layout.rank} modes", layout, tiler)
        modes = list(layout)
        return make_layout(*(logical_divide(m, t) for m, t in zip(modes, tiler, strict=False)), *modes[len(tiler):])
    return compose(layout, make_layout(tiler, complement(tiler, size(layout))), beyond=True)


def _unzip(split: Callable[[Layout, Any], Layout], layout: Layout, tiler: Any, op: str) -> Layout:
    """Split by mode, and gather the first halves and the second halves."""
    if tiler is None:
        return make_layout(layout, Layout(1, 0))
    if not isinstance(tiler, tuple):
        return split(layout, tiler)
    if len(tiler) > layout.rank:
        raise LayoutError(op, f"the tiler has more than {layout.rank} modes", layout, tiler)
    modes = list(layout)
    halves = [_unzip(split, m, t, op) for m, t in zip(modes, tiler, strict=False)]
    return make_layout(make_layout(*(h[0] for h in halves)), make_layout(*(h[1] for h in halves), *modes[len(tiler):]))


@on_domain
def zipped_divide(layout: Layout, tiler: Any) -> Layout:
    """``((TileM, TileN), (RestM, RestN, L))``; mode 0 is ``composition(layout, tiler)``. See :func:`logical_divide`."""
    return _unzip(logical_divide, layout, tiler, "zipped_divide")


@on_domain
def tiled_divide(layout: Layout, tiler: Any) -> Layout:
    """``((TileM, TileN), RestM, RestN, L)``. See :func:`logical_divide`."""
    tile, rest = zipped_divide(layout, tiler)
    return make_layout(tile, *rest)


@on_domain
def flat_divide(layout: Layout, tiler: Any) -> Layout:
    """``(TileM, TileN, RestM, RestN, L)``. See :func:`logical_divide`."""
    tile, rest = zipped_divide(layout, tiler)
    return make_layout(*tile, *rest)


# -- products ---------------------------------------------------------------------------------------------------------------------
def _as_layouts(op: str, block: Any, tiler: Any) -> tuple[Layout, Any]:
    block = Layout(block) if isinstance(block, (int, Expr)) else block
    if not isinstance(block, Layout):
        raise LayoutError(op, "products are of layouts: the codomain grows", block, tiler)
    return block, _as_tiler(tiler, op, block)


def logical_product(block: Layout, tiler: Any) -> Layout:
    """``(block, copies)``: the block repeated, side by side in memory, as the tiler arranges the copies.

    Parameters
    ----------
    block : Layout
        What is repeated.
    tiler : Layout, int, None or tuple
        Where copy ``i`` goes, counted in copies; a tuple multiplies mode by mode.

    Examples
    --------
    >>> str(logical_product(Layout((2, 2), (4, 1)), Layout((3, 2), (2, 1))))
    '((2,2),(3,2)):((4,1),(8,2))'
    """
    block, tiler = _as_layouts("logical_product", block, tiler)
    if tiler is None:
        return block
    if isinstance(tiler, tuple):
        if len(tiler) > block.rank:
            raise LayoutError("logical_product", f"the tiler has more than {block.rank} modes", block, tiler)
        modes = list(block)
        return make_layout(*(logical_product(m, t) for m, t in zip(modes, tiler, strict=False)), *modes[len(tiler):])
    return make_layout(block, compose(complement(block, size(block) * cosize(tiler)), tiler))


def zipped_product(block: Layout, tiler: Any) -> Layout:
    """``((BlockM, BlockN), (CopiesM, CopiesN, L))``."""
    block, tiler = _as_layouts("zipped_product", block, tiler)
    return _unzip(logical_product, block, tiler, "zipped_product")


def tiled_product(block: Layout, tiler: Any) -> Layout:
    """``((BlockM, BlockN), CopiesM, CopiesN, L)``."""
    first, copies = zipped_product(block, tiler)
    return make_layout(first, *copies)


def flat_product(block: Layout, tiler: Any) -> Layout:
    """``(BlockM, BlockN, CopiesM, CopiesN, L)``."""
    first, copies = zipped_product(block, tiler)
    return make_layout(*first, *copies)


def _ranked_product(op: str, block: Layout, tiler: Any) -> tuple[Layout, Layout]:
    block, tiler = _as_layouts(op, block, tiler)
    if not isinstance(tiler, Layout):
        raise LayoutError(op, "the tiler is a layout or an integer", block, tiler)
    n = max(block.rank, tiler.rank)
    first, copies = logical_product(append(block, n), append(tiler, n))
    return first, copies


def blocked_product(block: Layout, tiler: Any) -> Layout:
    """Copies of a block of rank R arranged in R dimensions, each copy in one piece: mode ``i`` is ``(block_i, copies_i)``.

    Examples
    --------
    >>> str(blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))))
    '((2,3),(5,4)):((5,10),(1,30))'
    """
    first, copies = _ranked_product("blocked_product", block, tiler)
    return make_layout(*map(make_layout, first, copies))


def raked_product(block: Layout, tiler: Any) -> Layout:
    """Copies of a block of rank R interleaved in R dimensions: mode ``i`` is ``(copies_i, block_i)``.

    Examples
    --------
    >>> str(raked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))))
    '((3,2),(4,5)):((10,5),(30,1))'
    """
    first, copies = _ranked_product("raked_product", block, tiler)
    return make_layout(*map(make_layout, copies, first))


@on_domain
def tile_to_shape(block: Layout, shape: Any, order: Any = None) -> Layout:
    """The block repeated to fill ``shape``; mode ``i`` is ``(block_i, copies_i)`` with the size of ``shape``'s mode ``i``.

    ``order`` says in which order the copies follow each other in memory (see ``make_ordered_layout``), from the left by default.

    Raises
    ------
    LayoutError
        If a mode of the shape is not a multiple of the block's mode.
    """
    block = append(block, len(leaves(product_each(shape))))
    target = product_each(shape) if isinstance(shape, tuple) else (shape,)
    if len(target) < block.rank:
        raise LayoutError("tile_to_shape", "the shape has fewer modes than the block", block, shape)
    copies = []
    for i, (n, mode) in enumerate(zip(target, block, strict=True)):
        count = quotient(n, size(mode))
        if count is None:
            raise LayoutError("tile_to_shape", f"mode {i}: {n} is not a multiple of {size(mode)}", block, shape)
        copies.append(count)
    arrangement = make_ordered_layout(tuple(copies), tuple(range(len(copies))) if order is None else order)
    return blocked_product(block, arrangement)
