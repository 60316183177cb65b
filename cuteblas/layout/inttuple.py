"""Integer tuples: the hierarchical shapes, strides and coordinates that layouts are made of.

An *IntTuple* is an integer, perhaps symbolic, or a tuple of IntTuples, its *modes*. Coordinates
run colexicographically: the leftmost mode is the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import islice
from math import gcd as _gcd
from typing import Any

from . import symbolic
from .basis import ArithTuple, ScaledBasis, Stride
from .checks import (
    Coordinate,
    Divisor,
    IntTuple,
    Modes,
    Nested,
    Shape,
    Shaped,
    Strides,
    Whole,
    checked,
    integer,
)
from .errors import LayoutError, spell
from .symbolic import Condition, Expr, IntLike

_INTEGERS = (int, Expr)


def shape_of(x: Any) -> Any:
    """The shape of a layout or tensor; an IntTuple is its own shape."""
    return x.shape if isinstance(x, Shaped) else x


# -- measures --------------------------------------------------------------------------------------
@checked
def rank(x: Modes, *mode: Whole) -> int:
    """The number of modes, of ``x`` or of its (hierarchical) ``mode``.

    Parameters
    ----------
    x : int, Expr, tuple or layout
        An IntTuple, or something that has a shape.
    *mode : int
        Which mode, from the outermost tuple inwards; the whole by default.

    Returns
    -------
    int
        How many.

    Examples
    --------
    >>> rank(4), rank((4, (2, 3))), rank((4, (2, 3)), 1)
    (1, 2, 2)
    """
    s = entry_at(shape_of(x), mode)
    return len(s) if isinstance(s, tuple) else 1


@checked
def depth(x: Modes, *mode: Whole) -> int:
    """The height of the tree: 0 for an integer, 1 for a tuple of integers, ...

    Parameters
    ----------
    x : int, Expr, tuple or layout
        An IntTuple, or something that has a shape.
    *mode : int
        Which mode, from the outermost tuple inwards; the whole by default.

    Returns
    -------
    int
        How many.

    Examples
    --------
    >>> depth(4), depth((4, 2)), depth(((4, 2), 3))
    (0, 1, 2)
    """
    s = get(shape_of(x), *mode)
    return 1 + max(map(depth, s)) if isinstance(s, tuple) else 0


@checked
def product(x: IntTuple) -> Any:
    """The product of the leaves.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.

    Returns
    -------
    int or Expr
        The product.

    Examples
    --------
    >>> product((4, (2, 3)))
    24
    """
    return product_of(x)


def product_of(x: Any) -> Any:
    """:func:`product` of what is known to be an IntTuple."""
    if not isinstance(x, tuple):
        return x
    n: Any = 1
    for i in x:
        n = n * (product_of(i) if isinstance(i, tuple) else i)
    return n


@checked
def size(x: Shape, *mode: Whole) -> Any:
    """The number of coordinates: the product of the shape, of ``x`` or of its (hierarchical)
    ``mode``.

    Parameters
    ----------
    x : int, Expr, tuple or layout
        An IntTuple, or something that has a shape.
    *mode : int
        Which mode, from the outermost tuple inwards; the whole by default.

    Returns
    -------
    int or Expr
        How many.

    Examples
    --------
    >>> size((4, (2, 3))), size((4, (2, 3)), 1), size(Layout((4, 8), (0, 1)))
    (24, 6, 32)
    """
    return product_of(entry_at(shape_of(x), mode) if mode else shape_of(x))


@checked
def get(x: Nested, *mode: Whole) -> Any:
    """The entry at a hierarchical position: ``get(((2,3),4), 0, 1) == 3``. An integer is its own
    mode 0.

    Parameters
    ----------
    x : tuple
        Modes of anything.
    *mode : int
        Where, from the outermost tuple inwards.

    Returns
    -------
    int, Expr or tuple
        The entry.

    Examples
    --------
    >>> get(((2, 3), 4), 0, 1)
    3
    """
    return entry_at(x, mode)


def entry_at(x: Any, mode: Iterable[int]) -> Any:
    """:func:`get` of what is known to be a tuple of modes."""
    for m in mode:
        if not isinstance(x, tuple):
            if m != 0:
                raise LayoutError("get", f"an integer has no mode {m}", x)
        elif not -len(x) <= m < len(x):
            raise LayoutError("get", f"there is no mode {m}", x)
        else:
            x = x[m]
    return x


@checked
def product_each(x: IntTuple) -> Any:
    """The size of each mode: ``((2,2),6) -> (4,6)``.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.

    Returns
    -------
    int, Expr or tuple
        As many entries as ``x`` has modes.

    Examples
    --------
    >>> product_each(((2, 2), 6))
    (4, 6)
    """
    return tuple(map(product_of, x)) if isinstance(x, tuple) else x


@checked
def product_like(x: IntTuple, guide: Nested) -> Any:
    """``x`` with each subtree multiplied out where ``guide`` has a leaf.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.
    guide : tuple
        Whose profile the result has, no finer than that of ``x``.

    Returns
    -------
    int, Expr or tuple
        Congruent to ``guide``.

    Examples
    --------
    >>> product_like(((2, 2), (3, 4)), (1, (1, 1)))
    (4, (3, 4))
    """
    if isinstance(guide, tuple):
        return tuple(map(product_like, _zippable("product_like", x, guide), guide))
    return product_of(x)


def _zippable(op: str, x: Any, like: tuple) -> tuple:
    if not isinstance(x, tuple) or len(x) != len(like):
        raise LayoutError(op, "the tuples do not match", x, like)
    return x


@checked
def wrap(x: Nested) -> tuple[Any, ...]:
    """``x`` as a tuple.

    Parameters
    ----------
    x : object
        A tuple or a leaf.

    Returns
    -------
    tuple
        ``x`` itself, or ``(x,)``.

    Examples
    --------
    >>> wrap(4), wrap((4, 2))
    ((4,), (4, 2))
    """
    return x if isinstance(x, tuple) else (x,)


@checked
def unwrap(x: Nested) -> Any:
    """``x`` without tuples of one mode around it: ``unwrap(((4,),)) == 4``.

    Parameters
    ----------
    x : object
        A tuple or a leaf.

    Returns
    -------
    object
        A leaf, or a tuple of several modes.

    Examples
    --------
    >>> unwrap(((4,),)), unwrap((4, 2))
    (4, (4, 2))
    """
    while isinstance(x, tuple) and len(x) == 1:
        x = x[0]
    return x


def leaves(x: Any) -> tuple:
    """The leaves from left to right, always as a tuple."""
    if not isinstance(x, tuple):
        return (x,)
    out: list = []
    for i in x:
        if isinstance(i, tuple):
            out += leaves(i)
        else:
            out.append(i)
    return tuple(out)


@checked
def unflatten(flat: Iterable[Any], profile: Nested) -> Any:
    """The inverse of :func:`~cuteblas.layout.flatten`: the entries of ``flat`` arranged as
    ``profile``.

    Parameters
    ----------
    flat : iterable
        As many entries as ``profile`` has leaves.
    profile : tuple
        Whose nesting the result has; its leaves do not matter.

    Returns
    -------
    tuple
        Congruent to ``profile``.

    Raises
    ------
    LayoutError
        If there are more or fewer entries than leaves.

    Examples
    --------
    >>> unflatten((4, 2, 3), (0, (0, 0)))
    (4, (2, 3))
    """
    n = len(leaves(profile))
    items = tuple(islice(flat, n + 1))
    if len(items) != n:
        raise LayoutError("unflatten",
                          f"there are {'fewer' if len(items) < n else 'more'} entries than leaves",
                          items, profile)
    return arranged(items, profile)


def arranged(entries: Iterable[Any], profile: Any) -> Any:
    """:func:`unflatten` of as many entries as a profile has leaves."""
    rest = iter(entries)
    return map_leaves(profile, lambda _: next(rest))


@checked
def transform_leaf(x: Nested, f: Callable[[Any], Any]) -> Any:
    """``f`` of every leaf.

    Parameters
    ----------
    x : tuple
        Modes of anything.
    f : callable
        Takes a leaf.

    Returns
    -------
    tuple
        Congruent to ``x``.

    Examples
    --------
    >>> transform_leaf((4, (2, 3)), lambda n: 2 * n)
    (8, (4, 6))
    """
    return map_leaves(x, f)


def map_leaves(x: Any, f: Callable) -> Any:
    """:func:`transform_leaf` of what is known to be a tuple of modes."""
    return tuple([map_leaves(i, f) for i in x]) if isinstance(x, tuple) else f(x)


@checked
def repeat_like(x: Nested, value: Any) -> Any:
    """``value`` at every leaf of ``x``.

    Parameters
    ----------
    x : tuple
        Modes of anything.
    value : object
        What every leaf becomes.

    Returns
    -------
    tuple
        Congruent to ``x``.

    Examples
    --------
    >>> repeat_like((4, (2, 3)), 0)
    (0, (0, 0))
    """
    return map_leaves(x, lambda _: value)


@checked
def tuple_sum(x: IntTuple) -> Any:
    """The sum of the leaves.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.

    Returns
    -------
    int or Expr
        The sum.

    Examples
    --------
    >>> tuple_sum((4, (2, 9)))
    15
    """
    return sum(leaves(x), 0)


@checked
def tuple_max(x: IntTuple) -> Any:
    """The largest leaf.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.

    Returns
    -------
    int or Expr
        The largest.

    Examples
    --------
    >>> tuple_max((4, (2, 9)))
    9
    """
    return reduce(symbolic.maximum, leaves(x))


@checked
def tuple_min(x: IntTuple) -> Any:
    """The smallest leaf.

    Parameters
    ----------
    x : int, Expr or tuple
        An IntTuple.

    Returns
    -------
    int or Expr
        The smallest.

    Examples
    --------
    >>> tuple_min((4, (2, 9)))
    2
    """
    return reduce(symbolic.minimum, leaves(x))


@checked
def gcd(x: IntTuple) -> int:
    """The greatest common divisor of static leaves.

    Parameters
    ----------
    x : int or tuple
        With static leaves.

    Returns
    -------
    int
        The greatest common divisor.

    Raises
    ------
    LayoutError
        If a leaf is symbolic.

    Examples
    --------
    >>> gcd((12, (18, 30)))
    6
    """
    if not all(isinstance(i, int) for i in leaves(x)):
        raise LayoutError("gcd", "symbolic leaves have no certain divisors", x)
    return _gcd(*leaves(x))


@checked
def inner_product(a: IntTuple, b: Strides) -> Any:
    """The sum of the products of corresponding leaves.

    Parameters
    ----------
    a : int, Expr or tuple
        A coordinate.
    b : int, Expr or tuple
        Strides, basis elements too, congruent to ``a``.

    Returns
    -------
    int, Expr or ArithTuple
        The sum.

    Examples
    --------
    >>> inner_product((1, 2), (8, 1))
    10
    """
    if isinstance(a, tuple):
        return sum(map(inner_product, a, _zippable("inner_product", b, a)), 0)
    return a * b


# -- facts about integers that may be symbolic -----------------------------------------------------
def surely_less(a: IntLike, b: IntLike) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return symbolic.bounds(a - b)[1] < 0


def divides(d: IntLike, n: IntLike) -> bool:
    return quotient(n, d) is not None


def quotient(n: IntLike, d: IntLike) -> IntLike | None:
    """``n / d`` where the division is certainly exact, else ``None``."""
    if isinstance(n, int) and isinstance(d, int):
        return n // d if d and n % d == 0 else None
    if d == 1:
        return n
    if isinstance(d, int) and d <= 0:
        return None
    q = n // d
    return q if q * d == n else None


# -- comparing profiles ----------------------------------------------------------------------------
@checked
def congruent(a: Modes, b: Modes) -> bool:
    """Whether two IntTuples (shapes of layouts) have the same profile.

    Parameters
    ----------
    a, b : int, Expr, tuple or layout
        Shapes, or what has one.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> congruent((4, (2, 3)), (1, (5, 6))), congruent((4, 6), 24)
    (True, False)
    """
    return same_profile(shape_of(a), shape_of(b))


def same_profile(a: Any, b: Any) -> bool:
    """:func:`congruent` of what are known to be tuples of modes."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same_profile, a, b))
    return not isinstance(b, tuple)


@checked
def weakly_congruent(a: Modes, b: Modes) -> bool:
    """Whether the profile of ``b`` refines the profile of ``a``.

    Parameters
    ----------
    a, b : int, Expr, tuple or layout
        Shapes, or what has one.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> weakly_congruent(24, (4, 6)), weakly_congruent((4, 6), 24)
    (True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if not isinstance(a, tuple):
        return True
    return isinstance(b, tuple) and len(a) == len(b) and all(map(weakly_congruent, a, b))


@checked
def compatible(a: Shape, b: Shape) -> bool:
    """Whether every coordinate of shape ``a`` is a coordinate of shape ``b``: sizes equal, and
    ``b`` refines ``a``.

    Parameters
    ----------
    a, b : int, Expr, tuple or layout
        Shapes, or what has one.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> compatible(24, (4, 6)), compatible((4, 6), (6, 4))
    (True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if not isinstance(a, tuple):
        return a == product_of(b)
    return isinstance(b, tuple) and len(a) == len(b) and all(map(compatible, a, b))


@checked
def elem_less(a: IntTuple, b: IntTuple) -> Condition:
    """Whether every leaf of ``a`` is below its leaf of ``b``: the predicate of an access (an
    ``Expr`` unless it is certain).

    A leaf of ``b`` may face a tuple in ``a`` only if their profiles agree.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool or Expr
        An expression where it depends on symbols.

    Examples
    --------
    >>> elem_less((2, 4), (3, 5)), elem_less((3, 4), (3, 5))
    (True, False)
    >>> print(elem_less((Var("i"),), (Var("M"),)))
    i < M
    """
    return _elementwise("lt", a, b)


@checked
def elem_leq(a: IntTuple, b: IntTuple) -> Condition:
    """Whether every leaf of ``a`` is at most its leaf of ``b``.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool or Expr
        An expression where it depends on symbols.

    Examples
    --------
    >>> elem_leq((3, 4), (3, 5)), elem_leq((4, 4), (3, 5))
    (True, False)
    """
    return _elementwise("le", a, b)


@checked
def elem_gtr(a: IntTuple, b: IntTuple) -> Condition:
    """Whether every leaf of ``a`` is above its leaf of ``b``.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool or Expr
        An expression where it depends on symbols.

    Examples
    --------
    >>> elem_gtr((4, 5), (3, 4)), elem_gtr((3, 5), (3, 4))
    (True, False)
    """
    return elem_less(b, a)


@checked
def elem_geq(a: IntTuple, b: IntTuple) -> Condition:
    """Whether every leaf of ``a`` is at least its leaf of ``b``.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool or Expr
        An expression where it depends on symbols.

    Examples
    --------
    >>> elem_geq((3, 5), (3, 4)), elem_geq((3, 5), (4, 4))
    (True, False)
    """
    return elem_leq(b, a)


@checked
def lex_less(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``a`` comes before ``b`` where the leftmost leaf counts most, as in a dictionary;
    leaves are static.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> lex_less((0, 2), (3, 1)), lex_less((3, 1), (0, 2))
    (True, False)
    """
    return _ordered("lex_less", a, b) < 0


@checked
def lex_leq(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``a`` comes before ``b`` or is ``b`` where the leftmost leaf counts most.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> lex_leq((1, 2), (1, 2)), lex_leq((3, 1), (0, 2))
    (True, False)
    """
    return _ordered("lex_leq", a, b) <= 0


@checked
def colex_less(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``a`` comes before ``b`` where the rightmost leaf counts most: the order in which
    coordinates are counted.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> colex_less((3, 1), (0, 2)), colex_less((0, 2), (3, 1))
    (True, False)
    """
    return _ordered("colex_less", a, b, last_first=True) < 0


@checked
def colex_leq(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``a`` comes before ``b`` or is ``b`` where the rightmost leaf counts most.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples of the same profile.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> colex_leq((1, 2), (1, 2)), colex_leq((0, 2), (3, 1))
    (True, False)
    """
    return _ordered("colex_leq", a, b, last_first=True) <= 0


def _ordered(op: str, a: Any, b: Any, last_first: bool = False) -> int:
    """Negative, 0 or positive: the sign of the first difference that counts."""
    if not same_profile(a, b):
        raise LayoutError(op, "the tuples do not match", a, b)
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    if not all(isinstance(x, int) for pair in pairs for x in pair):
        raise LayoutError(op, "the order of symbolic leaves is not certain", a, b)
    return next((x - y for x, y in (reversed(pairs) if last_first else pairs) if x != y), 0)


def _elementwise(op: str, a: Any, b: Any) -> Condition:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return symbolic.all_of(*(_elementwise(op, i, j)
                                 for i, j in zip(wrap(a), _zippable(f"elem_{op}", b, wrap(a)),
                                                 strict=True)))
    return a < (b if op == "lt" else b + 1)


# -- dividing shapes -------------------------------------------------------------------------------
@checked
def ceil_div(a: Shape, b: Divisor) -> Any:
    """``ceil(a / b)``, by mode where ``b`` is a tuple (modes of ``a`` beyond those of ``b`` stay);
    the grid of a tiled shape.

    Where ``a`` is a tuple and ``b`` an integer, the size of ``a`` is divided progressively from the
    left.

    Parameters
    ----------
    a : int, Expr, tuple or layout
        A shape.
    b : int, Expr, tuple, None or layout
        Divisors above 0; ``None`` is the whole mode.

    Returns
    -------
    int, Expr or tuple
        As many modes as ``a`` has.

    Raises
    ------
    LayoutError
        If ``b`` has more modes than ``a``, or a divisor is not above 0.

    Examples
    --------
    >>> ceil_div(100, 32), ceil_div((100, 70), (32, 32))
    (4, (4, 3))
    """
    a, b = shape_of(a), shape_of(b)
    if b is None:
        return repeat_like(a, 1)
    if isinstance(b, tuple):
        if not isinstance(a, tuple) or len(a) < len(b):
            raise LayoutError("ceil_div", "the divisor has more modes than the shape", a, b)
        return tuple(map(ceil_div, a, b)) + a[len(b):]
    if isinstance(a, tuple):
        out = []
        for i in a:
            n = product_of(i)
            out.append(ceil_div(i, b))
            b = ceil_div(b, n)
        return tuple(out)
    if isinstance(b, int) and b <= 0:
        raise LayoutError("ceil_div", "the divisor must be positive", a, b)
    return symbolic.ceil_div(a, b)


@checked
def evenly_divides(shape: Shape, tiler: Divisor) -> bool:
    """Whether tiles of the extents ``tiler`` certainly fill ``shape`` without remainder, by mode
    where ``tiler`` is a tuple.

    Parameters
    ----------
    shape : int, Expr, tuple or layout
        What is divided.
    tiler : int, Expr, tuple, None or layout
        Extents of a tile; ``None`` is the whole mode.

    Returns
    -------
    bool
        The answer.

    Raises
    ------
    LayoutError
        If ``tiler`` has more modes than ``shape``.

    Examples
    --------
    >>> evenly_divides((128, (4, 3)), (32, 6)), evenly_divides((128, 5), (32, 2))
    (True, False)
    """
    shape, tiler = shape_of(shape), shape_of(tiler)
    if isinstance(tiler, tuple):
        if not isinstance(shape, tuple) or len(shape) < len(tiler):
            raise LayoutError("evenly_divides", "the tiler has more modes than the shape", shape,
                              tiler)
        return all(map(evenly_divides, shape, tiler))
    return tiler is None or divides(tiler, product_of(shape))


@checked
def round_up(a: IntTuple, b: IntTuple) -> Any:
    """The smallest multiple of ``b`` that is at least ``a``, by mode.

    Parameters
    ----------
    a : int, Expr or tuple
        A shape.
    b : int, Expr or tuple
        Divisors above 0.

    Returns
    -------
    int, Expr or tuple
        Congruent to ``a``.

    Examples
    --------
    >>> round_up(100, 32), round_up((100, 70), (32, 32))
    (128, (128, 96))
    """
    if isinstance(a, tuple):
        return tuple(map(round_up, a, _zippable("round_up", b, a)))
    return ceil_div(a, b) * b


@checked
def shape_div(a: IntTuple, b: IntTuple) -> Any:
    """``a / b``; a tuple is divided from the left: ``shape_div((3,4), 6) == (1,2)``.

    Parameters
    ----------
    a : int, Expr or tuple
        A shape.
    b : int, Expr or tuple
        Divisors above 0.

    Returns
    -------
    int, Expr or tuple
        Congruent to ``a``.

    Raises
    ------
    LayoutError
        Where neither of two integers divides the other, or a divisor is not above 0.

    Examples
    --------
    >>> shape_div((3, 4), 6), shape_div(12, 4)
    ((1, 2), 3)
    """
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            return tuple(map(shape_div, a, _zippable("shape_div", b, a)))
        out = []
        for i in a:
            out.append(shape_div(i, b))
            b = shape_div(b, product_of(i))
        return tuple(out)
    if isinstance(b, tuple):
        return shape_div(a, product_of(b))
    if isinstance(b, int) and b <= 0:
        raise LayoutError("shape_div", "the divisor must be positive", a, b)
    q = quotient(a, b)
    if q is not None:
        return q
    if divides(a, b) and surely_less(0, a):
        return 1
    raise LayoutError("shape_div", "neither integer divides the other", a, b)


@checked
def elem_scale(a: IntTuple, b: IntTuple) -> Any:
    """``a`` times ``b`` by mode; a tuple in ``b`` facing an integer in ``a`` counts as its size.

    Parameters
    ----------
    a, b : int, Expr or tuple
        IntTuples; ``b`` is no coarser than ``a``.

    Returns
    -------
    int, Expr or tuple
        Congruent to ``a``.

    Examples
    --------
    >>> elem_scale((2, 3), (4, (5, 2)))
    (8, 30)
    """
    if isinstance(a, tuple):
        return tuple(map(elem_scale, a, _zippable("elem_scale", b, a)))
    return a * product_of(b)


# -- coordinates -----------------------------------------------------------------------------------
def compact_stride(shape: Any, order: Iterable[int] | None = None) -> Any:
    """Compact strides of a shape whose leaves follow in an order; 0 for modes of size 1."""
    flat = leaves(shape)
    stride: list = [0] * len(flat)
    current: Any = 1
    for i in range(len(flat)) if order is None else order:
        if flat[i] != 1:
            stride[i] = current
            current = current * flat[i]
    return arranged(stride, shape)


def check_coordinate(c: Any, n: Any, op: str, *operands: Any) -> None:
    """Refuse a coordinate that is certainly outside ``[0, n)``."""
    if type(c) is int and type(n) is int and 0 <= c < n:
        return
    lo, hi = symbolic.bounds(c)
    if hi < 0 or lo >= symbolic.bounds(n)[1]:
        raise LayoutError(op, f"the coordinate {c} is outside [0,{n})", *operands)


def _integer(c: Any, op: str, shape: Any) -> IntLike:
    if isinstance(c, Expr):
        return c
    return integer(c, op, "a coordinate is an integer or a tuple", shape)


@checked
def crd2idx(coord: IntTuple, shape: IntTuple, stride: Strides = None) -> Any:
    """The value of the layout ``shape:stride`` at a coordinate.

    Parameters
    ----------
    coord : int, Expr or tuple
        One integer for the whole shape, one for each mode, or any mixture down the tree.
    shape, stride : IntTuple
        Congruent; without a stride the shape is compact.

    Returns
    -------
    int, Expr or ArithTuple
        An ArithTuple where the strides are basis elements.

    Raises
    ------
    LayoutError
        If the coordinate does not fit the shape or is certainly out of range, or the stride is not
        congruent.

    Examples
    --------
    >>> crd2idx((1, 2), (4, 8)), crd2idx((1, 2), (4, 8), (8, 1))
    (9, 10)
    """
    if stride is not None and not same_profile(shape, stride):
        raise LayoutError("crd2idx", "shape and stride are not congruent", shape, stride)
    return value_at(coord, shape, compact_stride(shape) if stride is None else stride)


def value_at(coord: Any, shape: Any, stride: Any) -> Any:
    """:func:`crd2idx` of a layout's own shape and strides, and of a coordinate that is one."""
    parts: list[Any] = []
    for c, s, d in facing(coord, (shape, stride), "crd2idx", coord, shape):
        if type(c) is int and type(s) is int and 0 <= c < s:
            parts.append(c * d)
        else:
            c = _integer(c, "crd2idx", shape)
            check_coordinate(c, product_of(s), "crd2idx", coord, shape)
            parts += _digits(c, leaves(s), leaves(d))
    return _added(parts)


def facing(coord: Any, trees: tuple, op: str, *operands: Any) -> list[tuple]:
    """Each entry of a coordinate, with the modes of ``trees`` that it faces."""
    if not isinstance(coord, tuple):
        return [(coord, *trees)]
    found = []
    if any(not isinstance(x, tuple) or len(x) != len(coord) for x in trees):
        raise LayoutError(
            op, f"the coordinate {spell(coord)} does not fit the mode {spell(trees[0])}", *operands
        )
    for c, *modes in zip(coord, *trees, strict=True):
        found += facing(c, tuple(modes), op, *operands)
    return found


def _added(parts: list[Any]) -> Any:
    for part in parts:
        if not isinstance(part, _INTEGERS):
            return sum(parts, 0)
    return symbolic.total(parts)


def dot_digits(c: Any, shape: Sequence, stride: Sequence) -> Any:
    """``sum(digit * stride)`` over the digits of ``c``, of which the last is not reduced."""
    return _added(_digits(c, shape, stride))


def _digits(c: Any, shape: Sequence, stride: Sequence) -> list[Any]:
    out = []
    for s, d in zip(shape[:-1], stride, strict=False):
        c, digit = divmod(c, s)
        out.append(digit * d)
    out.append(c * stride[-1])
    return out


def merge_modes(modes: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Flat modes ``s0:d0, s1:s0*d0`` merged into ``s0*s1:d0``, without modes of extent 1."""
    runs: list[tuple[Any, Any]] = []
    for s, d in modes:
        if type(s) is int and s == 1:
            continue
        if runs and runs[-1][0] * runs[-1][1] == d:
            runs[-1] = (runs[-1][0] * s, runs[-1][1])
        else:
            runs.append((s, d))
    return runs


@checked
def idx2crd(idx: IntTuple, shape: IntTuple, stride: Coordinate = None) -> Any:
    """The coordinate, congruent to ``shape``, of an index.

    Without strides the index counts coordinates colexicographically and the last mode is not
    reduced (an index within the size needs no reduction). With strides, each leaf is
    ``idx // stride % shape``, which inverts a compact layout.

    Parameters
    ----------
    idx : int, Expr or tuple
        An index, or one for each mode.
    shape : int, Expr or tuple
        What the coordinate is of.
    stride : int, Expr or tuple, optional
        Of a compact layout whose inverse is asked for.

    Returns
    -------
    int, Expr or tuple
        The coordinate.

    Raises
    ------
    LayoutError
        If the index is certainly out of range.

    Examples
    --------
    >>> idx2crd(9, (4, 8)), idx2crd(10, (4, 8), (8, 1))
    ((1, 2), (1, 2))
    """
    if isinstance(idx, tuple):
        stride = (None,) * len(idx) if stride is None else stride
        return tuple(map(idx2crd, idx, _zippable("idx2crd", shape, idx),
                         _zippable("idx2crd", stride, idx)))
    idx = _integer(idx, "idx2crd", shape)
    if stride is not None:
        return _strided_crd(idx, shape, stride)
    check_coordinate(idx, product_of(shape), "idx2crd", idx, shape)
    flat = leaves(shape)
    return unflatten(_digits(idx, flat, (1,) * len(flat)), shape)


def _strided_crd(idx: IntLike, shape: Any, stride: Any) -> Any:
    if isinstance(shape, tuple):
        return tuple(
            _strided_crd(idx, s, d)
            for s, d in zip(shape, _zippable("idx2crd", stride, shape), strict=True)
        )
    return 0 if stride == 0 or shape == 1 else idx // stride % shape


@checked
def crd2crd(coord: IntTuple, shape: IntTuple, target: IntTuple) -> Any:
    """The coordinate of ``target`` with the colexicographic index that ``coord`` has in ``shape``.

    Parameters
    ----------
    coord : int, Expr or tuple
        A coordinate of ``shape``.
    shape, target : int, Expr or tuple
        Shapes of the same size.

    Returns
    -------
    int, Expr or tuple
        The coordinate of ``target``.

    Examples
    --------
    >>> crd2crd((1, 2), (4, 6), (2, 12))
    (1, 4)
    """
    return idx2crd(crd2idx(coord, shape), target)


# -- slices ----------------------------------------------------------------------------------------
def has_none(coord: Any) -> bool:
    if not isinstance(coord, tuple):
        return coord is None
    waiting = list(coord)
    for c in waiting:                    # which grows: however deep tuples nest, this does not
        if c is None:
            return True
        if isinstance(c, tuple):
            waiting += c
    return False


@checked
def slice_(coord: Coordinate, x: Nested) -> Any:
    """The modes of ``x`` where ``coord`` is ``None``, side by side.

    Parameters
    ----------
    coord : int, Expr, None or tuple
        A coordinate, ``None`` where a mode is free.
    x : object
        A tuple with modes where ``coord`` has.

    Returns
    -------
    object
        A flat tuple of modes.

    Examples
    --------
    >>> slice_((None, 1), (4, 8))
    (4,)
    """
    if coord is None:
        return x
    return tuple([mode for c, mode in facing(coord, (x,), "slice", coord, x) if c is None])


@checked
def dice(coord: Coordinate, x: Nested) -> Any:
    """The modes of ``x`` where ``coord`` is not ``None``, side by side.

    Parameters
    ----------
    coord : int, Expr, None or tuple
        A coordinate, ``None`` where a mode is free.
    x : object
        A tuple with modes where ``coord`` has.

    Returns
    -------
    object
        A flat tuple of modes.

    Examples
    --------
    >>> dice((0, None), (4, 8))
    (4,)
    """
    if not isinstance(coord, tuple) and coord is not None:
        return x
    return tuple([mode for c, mode in facing(coord, (x,), "dice", coord, x) if c is not None])


@checked
def zero_of(profile: Nested) -> Any:
    """The zero coordinate of a profile: an ArithTuple, or 0 for an integer.

    Parameters
    ----------
    profile : tuple
        Its leaves do not matter.

    Returns
    -------
    ArithTuple or int
        Zeros.

    Examples
    --------
    >>> zero_of(4), zero_of((4, (2, 3)))
    (0, ArithTuple(0, (0, 0)))
    """
    return ArithTuple(*map(zero_of, profile)) if isinstance(profile, tuple) else 0


def basis_like(profile: Any, *position: int) -> Stride | tuple:
    """The basis element of every leaf of a profile; 1 for an integer."""
    if isinstance(profile, tuple):
        return tuple(basis_like(p, *position, i) for i, p in enumerate(profile))
    return ScaledBasis(1, position) if position else 1
