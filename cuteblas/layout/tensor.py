"""Tensors: something that can be offset and dereferenced, seen through a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

from .algebra import get_flat_coord
from .basis import ArithTuple, E
from .checks import Coordinate, Domain, Index, IntTuple, Tiler, checked, inttuple
from .core import (
    Layout,
    Measured,
    Plain,
    cosize,
    make_identity_layout,
    make_layout,
    slice_and_offset,
)
from .errors import LayoutError, described
from .inttuple import (
    dot_digits,
    facing,
    has_none,
    leaves,
    product_each,
    quotient,
    size,
    unflatten,
    wrap,
    zero_of,
)
from .swizzle import ComposedLayout
from .symbolic import Expr
from .tiling import zipped_divide

_TMA_DIMENSIONS = 5


class Engine(Protocol):
    """What a tensor needs of its pointer or iterator; CuTe's word for either."""

    def __add__(self, offset: Any) -> Any:
        """The engine that starts ``offset`` later."""

    def __getitem__(self, offset: Any) -> Any:
        """The element at ``offset``."""


class _Endless:
    """What begins somewhere and has no end."""

    start: Any
    __iter__ = None

    def __add__(self, offset: Any) -> Self:
        return type(self)(self.start + offset)           # type: ignore[call-arg]

    def __getitem__(self, offset: Any) -> Any:
        return self.start + offset


@dataclass(frozen=True)
class CountingIterator(_Endless):
    """The integers from ``start``.

    Parameters
    ----------
    start : int or Expr
        The first.

    Examples
    --------
    >>> Tensor(CountingIterator(100), Layout((4, 8), (8, 1)))(1, 2)
    110
    """

    start: Any = 0

    def __post_init__(self) -> None:
        if isinstance(self.start, bool) or not isinstance(self.start, (int, Expr)):
            raise LayoutError("CountingIterator",
                              f"start is an integer, got {described(self.start)}")

    def __str__(self) -> str:
        return f"counting_iter({self.start})"


@dataclass(frozen=True)
class CoordinateIterator(_Endless):
    """Coordinates from ``start``: offsets are coordinates too (values of layouts with basis
    strides).

    Parameters
    ----------
    start : tuple
        The first.

    Examples
    --------
    >>> Tensor(counting_iterator((0, 0)), make_identity_layout((4, 8)))(2, 5)
    ArithTuple(2, 5)
    """

    start: ArithTuple

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", ArithTuple(*wrap(inttuple(self.start,
                                                                    "CoordinateIterator"))))

    def __str__(self) -> str:
        return f"ArithTuple{self.start}"


@checked
def counting_iterator(start: IntTuple = 0) -> CountingIterator | CoordinateIterator:
    """An iterator over the integers from ``start``, or over coordinates if ``start`` is a tuple.

    Parameters
    ----------
    start : int, Expr or tuple
        Where it begins.

    Returns
    -------
    CountingIterator or CoordinateIterator
        An engine for :func:`make_tensor`.

    Examples
    --------
    >>> Tensor(counting_iterator(), Layout((4, 8), (8, 1)))(1, 2)
    10
    """
    return CoordinateIterator(ArithTuple(*start)) if isinstance(start,
                                                                tuple) else CountingIterator(start)


@dataclass(frozen=True, repr=False)
class Tensor(Measured):
    """An engine seen through a layout.

    ``t[coord]`` (or ``t(*coord)``) with a full coordinate is the element,
    ``engine[layout(coord)]``; with ``None`` for some modes it is the tensor of those modes, whose
    engine starts where the slice does. A leading ``...`` stands for ``None`` for all modes that
    are left.

    Attributes
    ----------
    engine : Engine
        Anything with ``engine + offset`` and ``engine[offset]``.
    layout : Layout or ComposedLayout
        From coordinates to offsets.

    Examples
    --------
    >>> t = make_tensor(counting_iterator(42), (4, 5))
    >>> str(t), t[1, 2], str(t[1, None])
    ('counting_iter(42) o (4,5):(1,4)', 51, 'counting_iter(43) o (5):(4)')
    """

    engine: Any
    layout: Any

    def __post_init__(self) -> None:
        if not isinstance(self.layout, (Layout, ComposedLayout)):
            raise LayoutError("Tensor", f"expected a layout, got {described(self.layout)}")

    @property
    def shape(self) -> Any:
        """The shape of the layout."""
        return self.layout.shape

    @property
    def stride(self) -> Any:
        """The strides of the layout (a swizzled layout has none)."""
        if isinstance(self.layout, ComposedLayout):
            raise LayoutError("stride", "a composed layout has no strides", self.layout)
        return self.layout.stride

    def __iter__(self) -> Iterator:
        """The elements in colexicographic order."""
        n = size(self)
        if not isinstance(n, int):
            raise LayoutError("Tensor", "a symbolic number of elements cannot be listed",
                              self.layout)
        return (self[i] for i in range(n))

    def __getitem__(self, coord: Any) -> Any:
        if isinstance(coord, tuple) and ... in coord[:1]:
            coord = (None,) * (len(self) + 1 - len(coord)) + coord[1:]
        if has_none(coord):
            layout, start = slice_and_offset(coord, self.layout)
            return Tensor(_advance(self.engine, start), layout)
        return self.engine[self.layout.at(coord)]

    def __call__(self, *coord: Any) -> Any:
        return self[coord[0] if len(coord) == 1 else coord]

    def map_domain(self, f: Callable[[Layout], Any]) -> Tensor:
        """The same engine seen through ``f(layout)``."""
        return Tensor(self.engine, f(self.layout) if isinstance(self.layout, Layout)
                      else self.layout.map_domain(f))

    def cosize(self, *mode: int) -> Any:
        """The cosize of the layout."""
        return cosize(self.layout, *mode)

    def __str__(self) -> str:
        return f"{self.engine} o {self.layout}"

    def __repr__(self) -> str:
        return f"Tensor({self.engine!r}, {self.layout!r})"


def _advance(engine: Any, start: Any) -> Any:
    return engine if start == 0 else engine + start


def make_tensor(engine: Any, layout: Any, stride: Any = None) -> Tensor:
    """A tensor of an engine and a layout, or of an engine, a shape and perhaps a stride.

    Parameters
    ----------
    engine : Engine
        Anything with ``engine + offset`` and ``engine[offset]``.
    layout : Layout, ComposedLayout, int or tuple
        A layout or a shape.
    stride : int, Expr, tuple or str, optional
        Strides or an order, if ``layout`` is a shape.

    Returns
    -------
    Tensor
        The engine seen through the layout.

    Raises
    ------
    LayoutError
        If strides are given together with a layout.

    Examples
    --------
    >>> make_tensor(counting_iterator(), (4, 8), (8, 1))(1, 2)
    10
    """
    if isinstance(layout, (Layout, ComposedLayout)):
        if stride is not None:
            raise LayoutError("make_tensor", "a layout already has strides", layout, stride)
        return Tensor(engine, layout)
    return Tensor(engine, make_layout(layout) if stride is None else make_layout(layout, stride))


def make_identity_tensor(shape: Any) -> Tensor:
    """The tensor whose element at every coordinate of ``shape`` is the coordinate.

    Tiled and partitioned like a data tensor, it gives the coordinates of every element in the whole
    tensor, for predicates.

    Parameters
    ----------
    shape : int, Expr or tuple
        The extents.

    Returns
    -------
    Tensor
        Of coordinates.

    Examples
    --------
    >>> str(local_tile(make_identity_tensor((5, 7)), (2, 4), (2, 1)))
    'ArithTuple(4,4) o (2,4):(1@0,1@1)'
    """
    layout = make_identity_layout(shape)
    return Tensor(counting_iterator(zero_of(layout.shape)), layout)


def make_tma_tensor(layout: Any) -> Tensor:
    """The coordinates by which the tensor memory accelerator (TMA) addresses the elements of a
    tensor in global memory.

    TMA supports up to five dimensions, the contiguous one first. Here each mode of the tensor is a
    dimension (more than one, where its leaves do not continue each other), dimension 0 is the one
    of stride 1, and the others follow by stride, symbolic strides from left to right. The result is
    tiled, sliced and partitioned like the tensor itself, and its elements are the coordinates that
    a copy passes to TMA.

    Parameters
    ----------
    layout : Layout or Tensor
        In units of elements; modes of stride 0 or extent 1 take part in no dimension.

    Returns
    -------
    Tensor
        Of coordinates.

    Raises
    ------
    LayoutError
        If no stride is 1, a stride is negative or a basis element, or there are more than five
        dimensions.

    Examples
    --------
    >>> str(make_tma_tensor(Layout((128, 64), (64, 1)))), str(make_tma_tensor(Layout(((8, 2), 5), ((1, 8), 32))))
    ('ArithTuple(0,0) o (128,64):(1@1,1@0)', 'ArithTuple(0,0) o ((8,2),5):((1@0,8@0),1@1)')
    """
    layout = getattr(layout, "layout", layout)
    if not isinstance(layout, Layout) or layout.has_basis:
        raise LayoutError("make_tma_tensor",
                          "expected a layout with integer strides, or a tensor of one", layout)
    # (stride, leaves with their multiples) of every dimension
    starts: list[tuple[Any, list[tuple[int, Any]]]] = []
    at = 0
    for mode in layout:
        reach: Any = None
        for s, d in mode.pairs:
            if s != 1 and d != 0:
                if isinstance(d, int) and d < 0:
                    raise LayoutError("make_tma_tensor", f"the stride {d} is negative", layout)
                if reach is not None and d == reach:
                    starts[-1][1].append((at, quotient(d, starts[-1][0])))
                else:
                    starts.append((d, [(at, 1)]))
                reach = s * d
            at += 1
    if not any(d == 1 for d, _ in starts) or len(starts) > _TMA_DIMENSIONS:
        raise LayoutError(
            "make_tma_tensor",
            f"one stride is 1 and there are at most {_TMA_DIMENSIONS} dimensions, "
            f"not {len(starts)} of strides {', '.join(str(d) for d, _ in starts)}",
            layout
        )
    starts.sort(key=lambda start: (not isinstance(start[0], int),
                                   start[0] if isinstance(start[0], int) else 0))
    strides = {leaf: k * E(i) for i, (_, members) in enumerate(starts) for leaf, k in members}
    basis = unflatten([strides.get(leaf, 0) for leaf in range(at)], layout.shape)
    return Tensor(counting_iterator((0,) * len(starts)), Layout(layout.shape, basis))


@checked
def domain_offset(coord: IntTuple, tensor: Tensor) -> Tensor:
    """The tensor moved by a natural coordinate, which may be outside of its shape:
    ``result[c] == tensor[c + coord]``.

    Parameters
    ----------
    coord : int, Expr or tuple
        By how much, as a natural coordinate.
    tensor : Tensor
        What is moved.

    Returns
    -------
    Tensor
        Of the same shape.

    Raises
    ------
    LayoutError
        If the coordinate does not fit the layout.

    Examples
    --------
    >>> moved = domain_offset((1, 2), Tensor(counting_iterator(), Layout((4, 8), (8, 1))))
    >>> moved(0, 0), moved(1, 1)
    (10, 19)
    """
    if not isinstance(tensor, Tensor):
        raise LayoutError("domain_offset", f"expected a tensor, got {described(tensor)}")
    if isinstance(tensor.layout, ComposedLayout):
        inner, outer = tensor.layout.inner, tensor.layout
        moved = ComposedLayout(outer.outer, outer.offset + _linear(coord, inner), inner)
        layout, start = slice_and_offset(None, moved)
        return Tensor(_advance(tensor.engine, start), layout)
    return Tensor(_advance(tensor.engine, _linear(coord, tensor.layout)), tensor.layout)


def _linear(coord: Any, layout: Layout) -> Any:
    """The value at a natural coordinate, also of one outside."""
    value = sum((dot_digits(c, leaves(s), leaves(d))
                 for c, s, d in facing(coord, (layout.shape, layout.stride), "domain_offset", coord,
                                       layout)), 0)
    return ArithTuple() + value if layout.has_basis else value


# -- partitions ------------------------------------------------------------------------------------
def _project(x: Any, proj: Any) -> Any:
    """The modes of ``x`` where ``proj`` is not None."""
    if not isinstance(x, tuple) or not isinstance(proj, tuple) or len(x) != len(proj):
        raise LayoutError("projection",
                          "the projection needs as many entries as the tuple has modes", x, proj)
    return tuple(i for i, p in zip(x, proj, strict=True) if p is not None)


@checked
def inner_partition(tensor: Domain, tiler: Tiler, coord: Coordinate) -> Any:
    """The tile at ``coord`` of the tensor divided by ``tiler``: modes of the tile, then the rest
    modes where ``coord`` is None.

    Parameters
    ----------
    tensor : Layout, ComposedLayout or Tensor
        The whole.
    tiler : Layout, int, None or tuple
        The tile.
    coord : int, Expr, None or tuple
        Which tile.

    Returns
    -------
    as ``tensor``
        One tile.

    Examples
    --------
    >>> tile = inner_partition(Tensor(counting_iterator(), Layout((4, 8), (8, 1))), (2, 4), (1, 1))
    >>> print(tile.layout)
    (2,4):(8,1)
    >>> tile(0, 0)
    20
    """
    divided = zipped_divide(tensor, tiler)
    tile, rest = divided.shape
    return divided(_all(tile), _pad(coord, rest))


@checked
def outer_partition(tensor: Domain, tiler: Tiler, coord: Coordinate) -> Any:
    """The element at ``coord`` of every tile of the tensor divided by ``tiler``: the rest modes.

    Parameters
    ----------
    tensor : Layout, ComposedLayout or Tensor
        The whole.
    tiler : Layout, int, None or tuple
        The tile.
    coord : int, Expr, None or tuple
        Which element of each tile.

    Returns
    -------
    as ``tensor``
        One element of every tile.

    Examples
    --------
    >>> firsts = outer_partition(Tensor(counting_iterator(), Layout((4, 8), (8, 1))), (2, 4), (0, 0))
    >>> [firsts(i) for i in range(4)]
    [0, 16, 4, 20]
    """
    divided = zipped_divide(tensor, tiler)
    tile, rest = divided.shape
    return divided(_pad(coord, tile), _all(rest))


def _all(shape: Any) -> Any:
    return (None,) * len(shape) if isinstance(shape, tuple) else None


def _pad(coord: Any, shape: Any) -> Any:
    """A coordinate, padded with free modes."""
    if isinstance(coord, tuple) and isinstance(shape, tuple) and len(coord) < len(shape):
        return coord + (None,) * (len(shape) - len(coord))
    if isinstance(coord, tuple) and len(coord) == 1 and not isinstance(shape, tuple):
        return coord[0]
    return coord


@checked
def local_tile(tensor: Domain, tiler: Tiler, coord: Coordinate, proj: Coordinate = None) -> Any:
    """The tile of a tensor that belongs to a thread block.

    Parameters
    ----------
    tensor : Tensor, Layout or ComposedLayout
        The whole.
    tiler : tuple or Layout
        The shape of a tile.
    coord : int or tuple
        Which tile; a mode that is None is kept, as a mode after those of the tile.
    proj : tuple, optional
        Marks with None the entries of ``tiler`` and ``coord`` that this tensor does not have: with
        tiler ``(BM, BN, BK)`` the operand A (M, K) takes ``(1, None, 1)``.

    Returns
    -------
    as ``tensor``
        One tile, and the modes that are kept.

    Examples
    --------
    >>> A = make_tensor(counting_iterator(0), (5120, 4096), (1, 5120))
    >>> str(local_tile(A, (128, 128, 8), (1, 2, None), (1, None, 1)))
    'counting_iter(128) o (128,8,512):(1,5120,40960)'
    """
    if proj is not None:
        tiler, coord = _project(tiler, proj), _project(coord, proj)
    return inner_partition(tensor, tiler, coord)


@checked
def local_partition(tensor: Domain, threads: Plain, index: Index, proj: Coordinate = None) -> Any:
    """The elements of a tensor that belong to one thread of a thread layout.

    Parameters
    ----------
    tensor : Tensor, Layout or ComposedLayout
        What the threads share.
    threads : Layout
        From coordinates in the tile of threads to the thread's index; one to one onto
        ``[0, size)``.
    index : int or Expr
        The thread.
    proj : tuple, optional
        Marks with None the modes of ``threads`` that this tensor does not have.

    Returns
    -------
    as ``tensor``
        The elements of one thread.

    Examples
    --------
    >>> mine = local_partition(Tensor(counting_iterator(), Layout((4, 8), (8, 1))), Layout((2, 4), (4, 1)), 5)
    >>> [mine(i) for i in range(4)]
    [9, 25, 13, 29]
    """
    shape, coord = product_each(threads.shape), get_flat_coord(threads, index)
    if proj is not None:
        shape, coord = _project(shape, proj), _project(coord, proj)
    return outer_partition(tensor, shape, coord)
