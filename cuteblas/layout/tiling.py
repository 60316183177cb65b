"""Divisions of a layout into tiles, and products of layouts.

All divisions hold the same elements and differ in how they bundle the modes, for a layout
``(M, N, L)`` and a tiler ``(TM, TN)``::

    logical_divide   ((TileM, RestM), (TileN, RestN), L)
    zipped_divide    ((TileM, TileN), (RestM, RestN, L))
    tiled_divide     ((TileM, TileN), RestM, RestN, L)
    flat_divide      (TileM, TileN, RestM, RestN, L)

Products bundle in the same ways. A division whose tile does not divide the layout rounds up: the
last tiles then reach past the layout, and an identity layout divided alike tells which of their
elements exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .algebra import complement, is_bijective, right_inverse
from .checks import (
    Domain,
    IntTuple,
    Nested,
    Tiler,
    Whole,
    checked,
    inttuple,
    tiler_like,
    with_domain,
)
from .composition import compose, composition
from .core import (
    Layout,
    Plain,
    append,
    cosize,
    make_layout,
    make_ordered_layout,
    on_domain,
    trusted,
)
from .errors import LayoutError, described
from .inttuple import leaves, product_each, quotient, size, wrap
from .swizzle import ComposedLayout
from .symbolic import Expr

_MOST = 1 << 20                                          # values whose owners are listed


def _as_tiler(tiler: Any, op: str, *operands: Any) -> Any:
    if tiler is None or isinstance(tiler, (tuple, Layout)):
        return tiler
    if isinstance(tiler, (int, Expr)) and not isinstance(tiler, bool):
        return Layout(tiler)
    raise LayoutError(op,
                      f"a tiler is a layout, an integer, None or a tuple, got {described(tiler)}",
                      *operands)


def _by_mode(f: Callable[[Layout, Any], Layout], layout: Layout, tiler: tuple,
             op: str) -> tuple[list[Layout], list[Layout]]:
    """``f`` of each mode and its entry of the tiler, and the modes beyond it."""
    if len(tiler) > layout.rank:
        raise LayoutError(op, f"the tiler has more than {layout.rank} modes", layout, tiler)
    modes = list(layout)
    return list(map(f, modes, tiler)), modes[len(tiler):]


# -- divisions -------------------------------------------------------------------------------------
@on_domain
@checked
def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Split a layout into tiles, mode by mode: ``((TileM, RestM), (TileN, RestN), L)``.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is divided.
    tiler : Layout, int, None or tuple
        Which elements make the first tile. A tuple divides mode by mode, modes beyond it are kept,
        and ``None`` leaves a mode whole.

    Returns
    -------
    as ``layout``
        The same elements, bundled as above.

    Raises
    ------
    LayoutError
        If the tiler has no complement in the layout, or tile and layout do not divide evenly in the
        middle of nested modes.

    Examples
    --------
    >>> str(logical_divide(Layout((9, (4, 8)), (59, (13, 1))), (Layout(3, 3), Layout((2, 4), (1, 8)))))
    '((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))'
    """
    return _divide(layout, tiler)


def _divide(layout: Layout, tiler: Any) -> Layout:
    if type(tiler) is int and tiler > 1 and not isinstance(layout.shape, tuple):
        # the usual case, spelled out: one mode and a number of elements
        s, d = layout.shape, layout.stride
        rest = (s + (tiler - 1)) // tiler
        return trusted((tiler, rest), (d, 0 if rest == 1 else d * tiler))
    tiler = _as_tiler(tiler, "logical_divide", layout)
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        divided, rest = _by_mode(_divide, layout, tiler, "logical_divide")
        return make_layout(*divided, *rest)
    return compose(layout, make_layout(tiler, complement(tiler, size(layout))), beyond=True)


def _unzip(split: Callable[[Layout, Any], Layout], layout: Layout, tiler: Any, op: str) -> Layout:
    """Split by mode, and gather the first halves and the second halves."""
    if tiler is None:
        return make_layout(layout, Layout(1, 0))
    if not isinstance(tiler, tuple):
        return split(layout, tiler)
    halves, rest = _by_mode(lambda mode, t: _unzip(split, mode, t, op), layout, tiler, op)
    return make_layout(make_layout(*(h[0] for h in halves)),
                       make_layout(*(h[1] for h in halves), *rest))


@on_domain
@checked
def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Split a layout into tiles: ``((TileM, TileN), (RestM, RestN, L))``. Mode 0 is
    ``composition(layout, tiler)``.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is divided.
    tiler : Layout, int, None or tuple
        Which elements make the first tile; see :func:`logical_divide`.

    Returns
    -------
    as ``layout``
        The same elements, bundled as above.

    Examples
    --------
    >>> tiles = zipped_divide(Layout((4, 8), (8, 1)), (2, 4))
    >>> print(tiles)
    ((2,4),(2,2)):((8,1),(16,4))
    >>> [tiles(i, 3) for i in range(8)]
    [20, 28, 21, 29, 22, 30, 23, 31]
    """
    return _unzip(_divide, layout, tiler, "zipped_divide")


@on_domain
@checked
def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Split a layout into tiles: ``((TileM, TileN), RestM, RestN, L)``. See :func:`logical_divide`.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is divided.
    tiler : Layout, int, None or tuple
        Which elements make the first tile; see :func:`logical_divide`.

    Returns
    -------
    as ``layout``
        The same elements, bundled as above.

    Examples
    --------
    >>> print(tiled_divide(Layout((8, 12, 5)), (4, 3)))
    ((4,3),2,4,5):((1,8),4,24,96)
    """
    tile, rest = zipped_divide(layout, tiler)
    return make_layout(tile, *rest)


@on_domain
@checked
def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Split a layout into tiles: ``(TileM, TileN, RestM, RestN, L)``. See :func:`logical_divide`.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is divided.
    tiler : Layout, int, None or tuple
        Which elements make the first tile; see :func:`logical_divide`.

    Returns
    -------
    as ``layout``
        The same elements, bundled as above.

    Examples
    --------
    >>> print(flat_divide(Layout((8, 12, 5)), (4, 3)))
    (4,3,2,4,5):(1,8,4,24,96)
    """
    tile, rest = zipped_divide(layout, tiler)
    return make_layout(*tile, *rest)


# -- products --------------------------------------------------------------------------------------
def _of_blocks(f: Callable[[Layout, Any], Layout]) -> Callable[[Any, Any], Any]:
    """Let a product repeat a layout or an integer; of a composed layout, the inner one."""
    op = f.__name__

    @wraps(f)
    def wrapper(block: Any, tiler: Any) -> Any:
        if isinstance(block, ComposedLayout):
            return block.map_domain(lambda layout: wrapper(layout, tiler))
        tiler = tiler_like(tiler, op)
        block = Layout(block) if isinstance(block, (int, Expr)) and not isinstance(block, bool) else block
        if not isinstance(block, Layout):
            raise LayoutError(op, "the block of a product is a layout, because its codomain grows",
                              block, tiler)
        return f(block, _as_tiler(tiler, op, block))

    return wrapper


@_of_blocks
def logical_product(block: Layout, tiler: Any) -> Layout:
    """Repeat a block, side by side in memory, as the tiler arranges the copies:
    ``(block, copies)``.

    Parameters
    ----------
    block : Layout or ComposedLayout
        The block. Of a composed layout, the inner layout repeats, and the swizzle applies to the
        place of each copy.
    tiler : Layout, int, None or tuple
        Where copy ``i`` goes, counted in copies; a tuple multiplies mode by mode.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Raises
    ------
    LayoutError
        If the block is a tensor, has no complement, or has fewer modes than the tiler.

    Examples
    --------
    >>> str(logical_product(Layout((2, 2), (4, 1)), Layout((3, 2), (2, 1))))
    '((2,2),(3,2)):((4,1),(8,2))'
    """
    if tiler is None:
        return block
    if isinstance(tiler, tuple):
        repeated, rest = _by_mode(logical_product, block, tiler, "logical_product")
        return make_layout(*repeated, *rest)
    return make_layout(block, compose(complement(block, size(block) * cosize(tiler)), tiler))


@_of_blocks
def zipped_product(block: Layout, tiler: Any) -> Layout:
    """Repeat a block: ``((BlockM, BlockN), (CopiesM, CopiesN, L))``. See :func:`logical_product`.

    Parameters
    ----------
    block : Layout or ComposedLayout
        What is repeated.
    tiler : Layout, int, None or tuple
        Where the copies go; see :func:`logical_product`.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Examples
    --------
    >>> print(zipped_product(Layout((2, 3)), Layout((4, 5))))
    ((2,3),(4,5)):((1,2),(6,24))
    """
    return _unzip(logical_product, block, tiler, "zipped_product")


@_of_blocks
def tiled_product(block: Layout, tiler: Any) -> Layout:
    """Repeat a block: ``((BlockM, BlockN), CopiesM, CopiesN, L)``. See :func:`logical_product`.

    Parameters
    ----------
    block : Layout or ComposedLayout
        What is repeated.
    tiler : Layout, int, None or tuple
        Where the copies go; see :func:`logical_product`.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Examples
    --------
    >>> print(tiled_product(Layout((2, 3)), Layout((4, 5))))
    ((2,3),4,5):((1,2),6,24)
    """
    first, copies = zipped_product(block, tiler)
    return make_layout(first, *copies)


@_of_blocks
def flat_product(block: Layout, tiler: Any) -> Layout:
    """Repeat a block: ``(BlockM, BlockN, CopiesM, CopiesN, L)``. See :func:`logical_product`.

    Parameters
    ----------
    block : Layout or ComposedLayout
        What is repeated.
    tiler : Layout, int, None or tuple
        Where the copies go; see :func:`logical_product`.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Examples
    --------
    >>> print(flat_product(Layout((2, 3)), Layout((4, 5))))
    (2,3,4,5):(1,2,6,24)
    """
    first, copies = zipped_product(block, tiler)
    return make_layout(*first, *copies)


def _ranked_product(op: str, block: Layout, tiler: Any) -> tuple[Layout, Layout]:
    if not isinstance(tiler, Layout):
        raise LayoutError(op, "the tiler is a layout or an integer", block, tiler)
    n = max(block.rank, tiler.rank)
    first, copies = logical_product(append(block, n), append(tiler, n))
    return first, copies


@_of_blocks
def blocked_product(block: Layout, tiler: Any) -> Layout:
    """Arrange copies of a block in all of its dimensions, each copy in one piece: mode ``i`` is
    ``(block_i, copies_i)``.

    Parameters
    ----------
    block : Layout or ComposedLayout
        What is repeated.
    tiler : Layout or int
        Where the copies go, counted in copies.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Examples
    --------
    >>> str(blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))))
    '((2,3),(5,4)):((5,10),(1,30))'
    """
    first, copies = _ranked_product("blocked_product", block, tiler)
    return make_layout(*map(make_layout, first, copies))


@_of_blocks
def raked_product(block: Layout, tiler: Any) -> Layout:
    """Interleave copies of a block in all of its dimensions: mode ``i`` is ``(copies_i, block_i)``.

    Parameters
    ----------
    block : Layout or ComposedLayout
        What is repeated.
    tiler : Layout or int
        Where the copies go, counted in copies.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Examples
    --------
    >>> str(raked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))))
    '((3,2),(4,5)):((10,5),(30,1))'
    """
    first, copies = _ranked_product("raked_product", block, tiler)
    return make_layout(*map(make_layout, copies, first))


@on_domain
@checked
def tile_to_shape(block: Layout, shape: IntTuple, order: Nested = None) -> Layout:
    """Repeat a block to fill ``shape``: mode ``i`` is ``(block_i, copies_i)`` and has the size of
    mode ``i`` of ``shape``.

    ``order`` says in which order the copies follow each other in memory (see
    ``make_ordered_layout``), from the left by default.

    Parameters
    ----------
    block : Layout, ComposedLayout or Tensor
        What is repeated.
    shape : int, Expr or tuple
        Extents of the result by mode.
    order : tuple, optional
        Which mode of copies comes first.

    Returns
    -------
    as ``block``
        Block and copies, bundled as above.

    Raises
    ------
    LayoutError
        If a mode of the shape is not a multiple of the block's mode.

    Examples
    --------
    >>> print(tile_to_shape(Layout((2, 4), (4, 1)), (8, 8)))
    ((2,4),(4,2)):((4,8),(1,32))
    """
    target = wrap(product_each(shape))
    block = append(block, len(target))
    if len(target) < block.rank:
        raise LayoutError("tile_to_shape", "the shape has fewer modes than the block", block, shape)
    copies = []
    for i, (n, mode) in enumerate(zip(target, block, strict=True)):
        count = quotient(n, size(mode))
        if count is None:
            raise LayoutError("tile_to_shape", f"mode {i}: {n} is not a multiple of {size(mode)}",
                              block, shape)
        copies.append(count)
    arrangement = make_ordered_layout(tuple(copies),
                                      tuple(range(len(copies))) if order is None else order)
    return blocked_product(block, arrangement)


@checked
def make_layout_tv(threads: Plain, values: Plain) -> tuple[Any, Layout]:
    """A thread-value layout: which element of a tile each value of each thread is.

    Parameters
    ----------
    threads : Layout
        From the coordinate of a thread in the tile to its number; one to one onto ``[0, size)``.
    values : Layout
        From the coordinate of a value in a thread's block to its number; one to one onto
        ``[0, size)``.

    Returns
    -------
    tile : tuple or int
        Extents of the tile: threads times values, by mode. Each thread owns a dense block.
    tv : Layout
        ``(thread, value)`` to the colexicographic index in the tile.

    Raises
    ------
    LayoutError
        If one of the layouts is not one to one onto an interval.

    Examples
    --------
    >>> tile, tv = make_layout_tv(Layout((4, 2), (2, 1)), Layout((1, 4)))
    >>> tile, str(tv)
    ((4, 8), '((2,4),4):((16,1),4)')
    """
    for what, layout in (("threads", threads), ("values", values)):
        if not is_bijective(layout):
            raise LayoutError("make_layout_tv",
                              f"the layout of the {what} is not one to one onto [0,{size(layout)})",
                              threads, values)
    tile = raked_product(threads, values)
    return product_each(tile.shape), composition(right_inverse(tile),
                                                 Layout((size(threads), size(values))))


@checked
def tv_owners(tv: Domain, count: Whole) -> dict[int, list[tuple[int, int]]]:
    """Invert a thread-value layout: the (thread, value) pairs of each position of a tile, threads
    in ascending order.

    Parameters
    ----------
    tv : Layout or ComposedLayout
        ``(thread, value) -> position``; further modes count as values.
    count : int
        Positions of the tile.

    Returns
    -------
    dict
        From a position to its pairs.

    Raises
    ------
    LayoutError
        If ``tv`` has one mode or symbolic extents, or reaches outside of the tile.

    Examples
    --------
    >>> tv_owners(Layout((2, 2), (1, 2)), 4)
    {0: [(0, 0)], 2: [(0, 1)], 1: [(1, 0)], 3: [(1, 1)]}
    """
    n, threads = size(tv), size(tv, 0)
    if tv.rank < 2 or not isinstance(n, int) or not isinstance(threads, int):
        raise LayoutError(
            "tv_owners",
            "a thread-value layout has a mode of threads and a mode of values, with static extents",
            tv
        )
    if n > _MOST:
        raise LayoutError("tv_owners", f"{n} values are too many to list their owners", tv)
    found: dict[int, list[tuple[int, int]]] = {}
    for t in range(threads):
        for v in range(n // threads):
            position = tv(t + threads * v)
            if not isinstance(position, int) or not 0 <= position < count:
                raise LayoutError(
                    "tv_owners",
                    f"value {v} of thread {t} is at {position}, outside the tile [0,{count})",
                    tv
                )
            found.setdefault(position, []).append((t, v))
    return found


def shown_extents(x: Any, op: str, done: str) -> tuple[int, int]:
    """The numbers of rows and of elements that are shown; rows are mode 0, unless it is alone."""
    n = size(with_domain(x, op))
    rows = size(x, 0) if x.rank > 1 else 1
    if not isinstance(n, int) or not isinstance(rows, int):
        raise LayoutError(op, f"a symbolic number of elements cannot be {done}", x)
    return rows, n


def tile_extents(tile: Any, tv: Any) -> tuple[int, int]:
    """Rows and columns of a tile that is shown; a single extent is one row."""
    extents = leaves(inttuple(tile, "tile_extents"))
    if len(extents) == 1:
        extents = (1, *extents)
    if len(extents) != 2 or not all(isinstance(e, int) and e > 0 for e in extents):
        raise LayoutError("tile_extents", "a tile that is shown has one or two extents above 0",
                          tile, tv)
    return extents
