"""Layouts: functions from coordinates to integers, written as ``shape:stride``."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from math import inf
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from .basis import ArithTuple, ScaledBasis, scale_of
from .checks import (
    BITS,
    MODES,
    NESTING,
    Coordinate,
    Domain,
    IntTuple,
    Nested,
    Shaped,
    Whole,
    checked,
    coordinate,
    described_by_modes,
    integer,
    inttuple,
    strides,
)
from .errors import LayoutError, described, spell
from .inttuple import (
    arranged,
    basis_like,
    check_coordinate,
    compact_stride,
    depth,
    dot_digits,
    entry_at,
    facing,
    has_none,
    leaves,
    merge_modes,
    product_of,
    same_profile,
    size,
    value_at,
    wrap,
)
from .symbolic import Expr, Var, bounds

_ENTRY = re.compile(r"(?:_?(-?\d+)|([A-Za-z]\w*))((?:\s*@\s*\d+)*)")
_P = ParamSpec("_P")
_Domain = TypeVar("_Domain", bound=Shaped)


class Measured(Shaped):
    """What has modes: layouts, composed layouts, tensors."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """The number of modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __len__(self) -> int:
        return self.rank

    @property
    def extents(self) -> tuple[Any, ...]:
        """The sizes of the modes."""
        return tuple(map(product_of, wrap(self.shape)))

    @property
    def depth(self) -> int:
        """The height of the tree of modes: 0 for an integer, 1 for a tuple of integers."""
        return depth(self)

    def size(self, *mode: int) -> int:
        """The number of coordinates, of a mode if one is named: an :class:`Expr` if an extent is
        one."""
        return size(self, *mode)


@dataclass(frozen=True, repr=False)
class Layout(Measured):
    """A function from coordinates to integers: the inner product of the natural coordinate with the
    strides.

    Parameters
    ----------
    shape : int, Expr or tuple
        Extents, nested at will; static extents are at least 0.
    stride : int, Expr, ScaledBasis or tuple, optional
        Congruent to ``shape``. The default is compact with the leftmost mode fastest (a mode of
        size 1 gets stride 0).

    Raises
    ------
    LayoutError
        If the shape is not an IntTuple, an extent is negative, or shape and stride are not
        congruent.

    Examples
    --------
    >>> L = Layout((4, (2, 3)), (2, (1, 8)))
    >>> str(L), L(7), L(3, 1), L(3, (1, 0)), L[1]
    ('(4,(2,3)):(2,(1,8))', 7, 7, 7, Layout((2, 3), (1, 8)))
    """

    shape: Any
    stride: Any = None

    def __post_init__(self) -> None:
        shape = inttuple(self.shape, "Layout")
        object.__setattr__(self, "shape", shape)
        if self.stride is None:
            stride = compact_stride(shape)
        else:
            stride = strides(self.stride, "Layout")
            if not same_profile(shape, stride):
                raise LayoutError("Layout", "shape and stride are not congruent", shape, stride)
        object.__setattr__(self, "stride", stride)
        if any(type(s) is int and s < 0 for s in self.flat_shape):
            raise LayoutError("Layout", "an extent is negative", shape, stride)

    @cached_property
    def flat_shape(self) -> tuple[Any, ...]:
        """The leaves of the shape."""
        return leaves(self.shape)

    @cached_property
    def flat_stride(self) -> tuple[Any, ...]:
        """The leaves of the stride."""
        return leaves(self.stride)

    @property
    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Extent and stride of every leaf."""
        return zip(self.flat_shape, self.flat_stride, strict=True)

    @cached_property
    def is_static(self) -> bool:
        """Whether every leaf is known now."""
        return all(type(s) is int for s in self.flat_shape) and all(type(scale_of(d)) is int
                                                                    for d in self.flat_stride)

    @cached_property
    def has_basis(self) -> bool:
        """Whether a stride is a basis element, so that values are tuples."""
        return any(isinstance(d, ScaledBasis) for d in self.flat_stride)

    # -- as a function -----------------------------------------------------------------------------
    @overload
    def __call__(self, *coord: int | tuple[int, ...]) -> int: ...
    @overload
    def __call__(self, *coord: Any) -> Any: ...
    def __call__(self, *coord: Any) -> Any:
        """The value at a coordinate, or the sublayout of the modes where the coordinate is
        ``None``.

        ``L(i)`` takes one integer for all modes or one tuple, ``L(i, j)`` one coordinate for each
        mode. A sublayout starts at 0: :func:`slice_and_offset` returns where it starts in ``L``.
        """
        c = coord[0] if len(coord) == 1 else coord
        return slice_and_offset(c, self)[0] if has_none(c) else self.at(c)

    def at(self, c: Any) -> Any:
        """The value at a coordinate without ``None``."""
        if type(c) is not int and not isinstance(c, Expr):
            try:
                return self._value(value_at(c, self.shape, self.stride))
            except (LayoutError, RecursionError):          # the check names the fault
                coordinate(c, "Layout")
                raise
        check_coordinate(c, self._size, "Layout", self)
        if type(c) is int:
            return self._value(dot_digits(c, self.flat_shape, self.flat_stride))
        runs = merge_modes(self.pairs)                   # fewer divisions in the index expression
        return self._value(dot_digits(c, *zip(*runs, strict=True)) if runs else 0)

    def _value(self, x: Any) -> Any:
        return ArithTuple() + x if self.has_basis and type(x) is not ArithTuple else x

    @cached_property
    def _size(self) -> Any:
        return product_of(self.flat_shape)

    def cosize(self, *mode: int) -> int:
        """The number of elements that a buffer needs, of a mode if one is named: see
        :func:`cosize`."""
        return cosize(self, *mode)

    # -- as a sequence of modes --------------------------------------------------------------------
    def __iter__(self) -> Iterator[Layout]:
        if not isinstance(self.shape, tuple):
            return iter((self,))
        return map(trusted, self.shape, self.stride)

    def __getitem__(self, mode: int | tuple[int, ...] | slice) -> Layout:
        """A mode as a layout: ``L[1]``, ``L[0, 1]`` (mode 1 of mode 0), or a range of modes
        ``L[1:3]``."""
        if isinstance(mode, slice):
            return select(self, *range(*mode.indices(self.rank)))
        path = tuple([integer(m, "Layout") for m in mode]) if isinstance(mode, tuple) else (integer(mode, "Layout"),)
        return trusted(entry_at(self.shape, path), entry_at(self.stride, path))

    # -- text --------------------------------------------------------------------------------------
    def __str__(self) -> str:
        return f"{spell(self.shape)}:{spell(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, Expr] | None = None) -> Layout:
        """The layout of CuTe's text: ``(4,2):(1,4)``, ``((2,2),6)``, ``(_128,8,K):(1@0,2@1,ldA)``.

        Without strides the layout is compact. An underscore before a number (CuTe's mark of a
        static integer) is ignored; a name is taken from ``variables`` or else becomes a
        non-negative :func:`~cuteblas.layout.symbolic.Var`.

        Raises
        ------
        LayoutError
            If the text is not a layout.
        """
        shape, colon, stride = text.partition(":")
        return cls(_read(shape, text, variables or {}),
                   _read(stride, text, variables or {}) if colon else None)


def trusted(shape: Any, stride: Any) -> Layout:
    """A layout of parts of valid layouts, without checking them again."""
    layout = object.__new__(Layout)
    layout.__dict__["shape"] = shape
    layout.__dict__["stride"] = stride
    return layout


def merged(modes: Iterable[tuple[Any, Any]]) -> Layout:
    """The layout of flat modes, extents with strides, in as few modes as possible."""
    runs = merge_modes(modes) or [(1, 0)]
    return trusted(*runs[0]) if len(runs) == 1 else trusted(*zip(*runs, strict=True))


def _read(part: str, text: str, variables: Mapping[str, Expr]) -> Any:
    """The tuple of a part of a text: its entries are taken out, and Python reads the nesting."""
    entries: list[Any] = []

    def number(digits: str) -> int:
        # Python would refuse to read it, with a hint at a setting of its own
        if len(digits) > BITS:
            raise LayoutError("Layout.parse",
                              f"a number of {len(digits)} digits has more than {BITS} bits",
                              repr(text))
        return int(digits)

    def entry(found: re.Match[str]) -> str:
        digits, name, place = found.groups()
        value = variables.get(name, Var(name)) if name else number(digits)
        position = tuple(map(number, reversed(re.findall(r"\d+", place))))
        entries.append(ScaledBasis(value, position) if position else value)
        return " 0 "

    nesting = _ENTRY.sub(entry, part)
    try:
        if not re.fullmatch(r"[\s(),0]*", nesting):
            raise SyntaxError("invalid syntax")
        return arranged(entries, literal_eval(nesting.replace(")", ",)").strip()))
    except (SyntaxError, MemoryError) as error:
        raise LayoutError("Layout.parse",
                          f"{str(error).partition(' (')[0]}; expected an integer, a name or a "
                          f"tuple of them; tuples nest at most {NESTING} levels deep",
                          repr(text)) from None


def plain_layout(x: Any, op: str) -> Any:
    """A layout itself, neither composed nor a tensor: a kind of :mod:`~cuteblas.layout.checks`."""
    if not isinstance(x, Layout):
        raise LayoutError(op, f"expected a layout, got {described(x)}")
    return x


def layout_like(x: Any, op: str) -> Layout:
    """A layout; an integer ``n`` is ``n:1``."""
    return Layout(x) if isinstance(x, int) and not isinstance(x, bool) else plain_layout(x, op)


Plain = Annotated[Layout, plain_layout]
LayoutLike = Annotated[Layout, layout_like]


# -- building --------------------------------------------------------------------------------------
def make_layout(*args: Any) -> Layout:
    """``make_layout(shape[, stride])`` or ``make_layout(layout, layout, ...)``.

    Layouts become the modes of the result; a single layout becomes its only mode. Instead of
    strides, ``"left"`` (the default) and ``"right"`` stand for the compact layouts whose first and
    last leaf is the fastest.

    Parameters
    ----------
    *args : int, Expr, tuple, str or Layout
        A shape and perhaps strides or an order, or layouts.

    Returns
    -------
    Layout
        The layout.

    Raises
    ------
    LayoutError
        If the arguments are neither.

    Examples
    --------
    >>> print(make_layout((4, 8), (8, 1)))
    (4,8):(8,1)
    >>> print(make_layout(Layout(4, 2), Layout(3)))
    (4,3):(2,1)
    """
    if args and all(isinstance(a, Layout) for a in args):
        return trusted(tuple([a.shape for a in args]), tuple([a.stride for a in args]))
    if not 1 <= len(args) <= 2 or any(isinstance(a, Layout) for a in args):
        raise LayoutError("make_layout",
                          "the arguments are a shape with or without a stride, or layouts only",
                          *args)
    if len(args) == 2 and isinstance(args[1], str):
        if args[1] not in ("left", "right"):
            raise LayoutError("make_layout", "an order in words is 'left' or 'right'", *args)
        shape = inttuple(args[0], "make_layout")
        return Layout(shape, None if args[1] == "left"
                      else compact_stride(shape, reversed(range(len(leaves(shape))))))
    return Layout(*args)


@checked
def make_ordered_layout(shape: IntTuple, order: Nested) -> Layout:
    """The compact layout whose leaves are traversed in the order of ``order``'s leaves, smallest
    first.

    An entry of ``order`` may be an integer where the shape has a tuple: its leaves then follow each
    other from the left. Entries that are not static come last, and ties are traversed from left to
    right.

    Parameters
    ----------
    shape : int, Expr or tuple
        The extents.
    order : int or tuple
        A key for every leaf, or for a mode.

    Returns
    -------
    Layout
        Compact.

    Examples
    --------
    >>> str(make_ordered_layout((2, 3, 4), (2, 1, 3)))
    '(2,3,4):(3,1,6)'
    """
    return Layout(shape, compact_stride(shape, _ranked([*_spread(order, shape, (shape, order))])))


def _ranked(keys: Sequence[Any]) -> list[int]:
    """The places of keys from the smallest to the largest, and of symbolic ones after them."""
    return sorted(range(len(keys)), key=lambda i: keys[i] if isinstance(keys[i], int) else inf)


def _spread(order: Any, shape: Any, operands: tuple) -> Iterator:
    if isinstance(shape, tuple):
        if order is None or (isinstance(order, tuple) and len(order) != len(shape)):
            raise LayoutError("make_ordered_layout", "shape and order do not match", *operands)
        for o, s in zip(order if isinstance(order, tuple) else (order,) * len(shape), shape,
                        strict=True):
            yield from _spread(o, s, operands)
    elif isinstance(order, tuple):
        raise LayoutError("make_ordered_layout", "shape and order do not match", *operands)
    else:
        yield order


@checked
def make_layout_like(layout: Plain) -> Layout:
    """The compact layout with the shape and the order of strides of ``layout``; modes of stride 0
    keep it.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    Layout
        Compact.

    Raises
    ------
    LayoutError
        If strides are basis elements.

    Examples
    --------
    >>> print(make_layout_like(Layout((4, 8), (100, 1))))
    (4,8):(8,1)
    """
    return _stored(layout, _by_stride(layout))


def _by_stride(layout: Layout) -> list[int]:
    if layout.has_basis:
        raise LayoutError("make_layout_like", "basis strides have no order", layout)
    return _ranked([abs(d) if isinstance(d, int) else d for d in layout.flat_stride])


def _stored(layout: Layout, order: Iterable[int]) -> Layout:
    """The compact layout whose leaves follow in an order; those of stride 0 keep it."""
    held = arranged([1 if d == 0 else s for s, d in layout.pairs], layout.shape)
    return Layout(layout.shape, compact_stride(held, order))


def make_fragment_like(layout: Any) -> Layout:
    """The compact layout of a thread's registers for a partition of ``layout``'s shape.

    Mode 0, the values of a copy or MMA atom, comes first with its leftmost leaf fastest, whatever
    its strides; the other modes follow in the order of their strides. Modes of stride 0 keep it:
    what is repeated is stored once.

    Parameters
    ----------
    layout : Layout, or anything with a layout (of a composed layout, its inner one)

    Returns
    -------
    Layout
        Compact.

    Raises
    ------
    LayoutError
        If it has no layout.

    Examples
    --------
    >>> str(make_fragment_like(Layout(((2, 2), 4, 3), ((64, 8), 512, 128))))
    '((2,2),4,3):((1,2),12,4)'
    """
    while not isinstance(layout, Layout):
        found = getattr(layout, "layout", getattr(layout, "inner", None))
        if found is None:
            raise LayoutError("make_fragment_like", "expected a layout or a tensor", layout)
        layout = found
    values = len(layout[0].flat_shape)
    rest = _by_stride(layout[1:]) if layout.rank > 1 else []
    return _stored(layout, (*range(values), *(values + i for i in rest)))


@checked
def make_identity_layout(shape: IntTuple) -> Layout:
    """The layout that maps every coordinate of ``shape`` to itself: strides ``1@0``, ``1@1``, ...
    (``1`` for an integer shape).

    Parameters
    ----------
    shape : int, Expr or tuple
        The extents.

    Returns
    -------
    Layout
        With basis strides.

    Examples
    --------
    >>> print(make_identity_layout((4, 8)))
    (4,8):(1@0,1@1)
    >>> make_identity_layout((4, 8))(3, 5)
    ArithTuple(3, 5)
    """
    return Layout(shape, basis_like(shape))


# -- measures --------------------------------------------------------------------------------------
@checked
def coshape(layout: Plain) -> Any:
    """The shape of the codomain: ``1 + sum((extent - 1) * |stride|)``, with basis strides a tuple
    of such sums.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    int, Expr or ArithTuple
        The shape.

    Raises
    ------
    LayoutError
        For a mixture of integer and basis strides, and for a symbolic stride that may be negative.

    Examples
    --------
    >>> coshape(Layout((4, 3), (1, 8))), coshape(Layout((4, 3), (2 * E(1), E(0))))
    (20, ArithTuple(3, 7))
    """
    top: Any = 0
    for s, d in layout.pairs:
        if s == 0:
            return 0
        lo, hi = bounds(scale_of(d))
        if hi < 0:
            d = -d
        elif lo < 0:
            raise LayoutError("coshape", f"the stride {d} may be negative", layout)
        if layout.has_basis and not isinstance(d, ScaledBasis) and d != 0 and s != 1:
            raise LayoutError("coshape", f"the stride {d} stands beside basis strides", layout)
        top = top + (s - 1) * d if s != 1 else top
    return _one_more(ArithTuple() + top) if layout.has_basis else top + 1


def _one_more(x: Any) -> Any:
    return ArithTuple(*map(_one_more, x)) if isinstance(x, tuple) else x + 1


@checked
def cosize(x: Domain, *mode: Whole) -> Any:
    """The number of elements that a buffer needs: the size of the :func:`coshape`, 0 if the layout
    is empty.

    Without negative strides this is the largest value plus one. For a swizzled layout it is an
    upper bound.

    Parameters
    ----------
    x : Layout, ComposedLayout or Tensor
        What has elements.
    *mode : int
        Which mode, from the outermost tuple inwards; the whole by default.

    Returns
    -------
    int or Expr
        How many.

    Raises
    ------
    LayoutError
        As :func:`coshape` does.

    Examples
    --------
    >>> cosize(Layout((4, 8), (16, 1)))
    56
    """
    return product_of(coshape(x[mode] if mode else x)) if isinstance(x, Layout) else x.cosize(*mode)


# -- acting on the domain of what has one ----------------------------------------------------------
def on_domain(
    f: Callable[Concatenate[Layout, _P], Layout]
) -> Callable[Concatenate[_Domain, _P], _Domain]:
    """Extend ``f(layout, ...)`` to composed layouts and tensors."""
    @wraps(f)
    def wrapper(x: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, Layout):
            return f(x, *args, **kwargs)
        if hasattr(x, "map_domain"):
            return x.map_domain(lambda layout: wrapper(layout, *args, **kwargs))
        raise LayoutError(f.__name__, f"expected a layout or a tensor, got {described(x)}")

    return wrapper


class _Surgery(Protocol[_P]):
    @overload
    def __call__(self, x: _Domain, /, *args: _P.args, **kwargs: _P.kwargs) -> _Domain: ...
    @overload
    def __call__(self, x: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...


def _surgery(f: Callable[Concatenate[tuple[Any, ...], _P], tuple[Any, ...]]) -> _Surgery[_P]:
    """Extend ``f(modes, ...) -> modes`` to tuples, layouts and what has a layout."""
    @wraps(f)
    def wrapper(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        if hasattr(x, "map_domain"):
            return x.map_domain(lambda layout: wrapper(layout, *args, **kwargs))
        if isinstance(x, Layout):
            return make_layout(*f(tuple(x), *args, **kwargs))
        return f(wrap(described_by_modes(x, f.__name__)), *args, **kwargs)

    return wrapper


def _check_modes(op: str, modes: tuple, indices: Iterable[int]) -> None:
    for i in indices:
        if not -len(modes) <= i < len(modes):
            raise LayoutError(op, f"there is no mode {i}: there are {len(modes)} modes", *modes)


def _between(op: str, modes: tuple, begin: int, end: int) -> tuple:
    if not 0 <= begin < end <= len(modes):
        raise LayoutError(op, f"there are no modes {begin}:{end}: there are {len(modes)} modes",
                          *modes)
    return modes[begin:end]


@_surgery
@checked
def select(modes: tuple, *indices: Whole) -> tuple:
    """The modes of a tuple, layout or tensor at ``indices``, in that order.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    *indices : int
        Which modes.

    Returns
    -------
    as ``modes``
        Of the same type.

    Raises
    ------
    LayoutError
        If there is no such mode, or none is asked for.

    Examples
    --------
    >>> select((4, 2, 8), 2, 0)
    (8, 4)
    >>> print(select(Layout((4, 2, 8)), 2, 0))
    (8,4):(8,1)
    """
    _check_modes("select", modes, indices)
    if not indices:
        raise LayoutError("select", "a layout has at least one mode", *modes)
    return tuple(modes[i] for i in indices)


@_surgery
@checked
def take(modes: tuple, begin: Whole, end: Whole) -> tuple:
    """The modes ``begin`` up to, but not including, ``end``.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    begin, end : int
        The first mode and the one after the last.

    Returns
    -------
    as ``modes``
        Of the same type.

    Raises
    ------
    LayoutError
        If there are no such modes.

    Examples
    --------
    >>> take((2, 3, 4, 5), 1, 3)
    (3, 4)
    """
    return _between("take", modes, begin, end)


@_surgery
@checked
def group_modes(modes: tuple, begin: Whole, end: Whole) -> tuple:
    """The modes ``begin`` up to ``end`` bundled into one.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    begin, end : int
        The first mode and the one after the last.

    Returns
    -------
    as ``modes``
        Of the same type.

    Raises
    ------
    LayoutError
        If there are no such modes.

    Examples
    --------
    >>> group_modes((2, 3, 4), 0, 2)
    ((2, 3), 4)
    >>> print(group_modes(Layout((2, 3, 4)), 1, 3))
    (2,(3,4)):(1,(2,6))
    """
    found = _between("group_modes", modes, begin, end)
    bundle = make_layout(*found) if isinstance(modes[0], Layout) else found
    return (*modes[:begin], bundle, *modes[end:])


def _padding(modes: tuple, n: int | None, with_: Any) -> tuple:
    if n is not None and n > MODES:
        raise LayoutError("append", f"a tuple has at most {MODES} modes", n)
    if with_ is None:
        with_ = Layout(1, 0) if isinstance(modes[0], Layout) else 1
    return (with_,) * (1 if n is None else max(0, n - len(modes)))


@_surgery
@checked
def append(modes: tuple, n: Whole | None = None, with_: Any = None) -> tuple:
    """Modes ``with_`` (default ``1:0``) added on the right: one, or as many as bring the rank to
    ``n``.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    n : int, optional
        The rank of the result.
    with_ : int or Layout, optional
        The mode that is added.

    Returns
    -------
    as ``modes``
        Of the same type.

    Examples
    --------
    >>> append((4, 2), 3)
    (4, 2, 1)
    >>> append((4,), 2, 8)
    (4, 8)
    """
    return (*modes, *_padding(modes, n, with_))


@_surgery
@checked
def prepend(modes: tuple, n: Whole | None = None, with_: Any = None) -> tuple:
    """Modes ``with_`` (default ``1:0``) added on the left: one, or as many as bring the rank to
    ``n``.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    n : int, optional
        The rank of the result.
    with_ : int or Layout, optional
        The mode that is added.

    Returns
    -------
    as ``modes``
        Of the same type.

    Examples
    --------
    >>> prepend((4, 2), 3)
    (1, 4, 2)
    """
    return (*_padding(modes, n, with_), *modes)


@_surgery
@checked
def replace(modes: tuple, index: Whole, mode: Any) -> tuple:
    """Replace the mode at ``index`` with ``mode``.

    Parameters
    ----------
    modes : tuple, Layout, ComposedLayout or Tensor
        What has modes.
    index : int
        Which mode.
    mode : int, tuple or Layout
        The new mode.

    Returns
    -------
    as ``modes``
        Of the same type.

    Examples
    --------
    >>> replace((4, 2, 8), 1, (3, 3))
    (4, (3, 3), 8)
    """
    _check_modes("replace", modes, [index])
    return (*modes[:index], mode, *modes[index:][1:])


# -- slices ----------------------------------------------------------------------------------------
@checked
def slice_and_offset(coord: Coordinate, layout: Any) -> tuple[Any, Any]:
    """The sublayout of the modes where ``coord`` is ``None``, and the value at which it starts.

    The free modes become a flat list of modes: ``((None, 1), None)`` of ``((2,3),4)`` has modes
    ``(2, 4)``. For a swizzled layout the start stays inside of it, except for a multiple of the
    swizzle's period.

    Parameters
    ----------
    coord : int, Expr, None or tuple
        A coordinate, ``None`` where a mode is free.
    layout : Layout or ComposedLayout
        What is sliced.

    Returns
    -------
    sublayout : Layout or ComposedLayout
        The free modes.
    start : int, Expr or ArithTuple
        The value at which they begin.

    Raises
    ------
    LayoutError
        If the coordinate does not fit, or leaves no mode free.

    Examples
    --------
    >>> sliced, offset = slice_and_offset((None, 3), Layout((4, 8), (8, 1)))
    >>> print(sliced, offset)
    (4):(8) 3
    """
    if not isinstance(layout, Layout):
        if not hasattr(layout, "slice_and_offset"):
            raise LayoutError("slice_and_offset", f"expected a layout, got {described(layout)}",
                              coord)
        return layout.slice_and_offset(coord)
    if coord is None:
        return layout, 0
    faced = facing(coord, (layout.shape, layout.stride), "slice", coord, layout)
    free = [(s, d) for c, s, d in faced if c is None]
    if not free:
        raise LayoutError("slice", "the coordinate leaves no mode free", coord, layout)
    return trusted(*zip(*free, strict=True)), sum((value_at(c, s, d) for c, s, d in faced
                                                   if c is not None), 0)
