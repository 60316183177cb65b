"""Coalescing, complements and inverses of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as _cartesian
from typing import Any

from .basis import ScaledBasis, scale_of
from .checks import Index, Nested, Shape, checked
from .core import Layout, LayoutLike, Plain, make_layout, merged, on_domain
from .errors import LayoutError
from .inttuple import (
    ceil_div,
    check_coordinate,
    crd2idx,
    leaves,
    quotient,
    size,
    surely_less,
    unflatten,
)

INVERSE_LIMIT = 1 << 12
"""How far the values of a layout may reach for :func:`left_inverse` to search."""


@on_domain
@checked
def coalesce(layout: Layout, profile: Nested = None) -> Layout:
    """Merge modes: an equal function of equally many coordinates, with as few modes as possible.

    With a ``profile`` (a tuple; its leaves do not matter) each of its modes is coalesced on its
    own, so that the coordinates of those modes stay coordinates.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is simplified.
    profile : tuple, optional
        Whose modes stay apart.

    Returns
    -------
    as ``layout``
        With as few modes as possible.

    Raises
    ------
    LayoutError
        If the profile has more modes than the layout.

    Examples
    --------
    >>> str(coalesce(Layout((2, (1, 6)), (1, (6, 2)))))
    '12:1'
    """
    if isinstance(profile, tuple):
        if len(profile) > layout.rank:
            raise LayoutError("coalesce", "the profile has more modes than the layout", layout,
                              profile)
        modes = list(layout)
        return make_layout(*(coalesce(m, p) for m, p in zip(modes, profile, strict=False)),
                           *modes[len(profile):])
    return merged(layout.pairs)


@on_domain
def filter_zeros(layout: Layout) -> Layout:
    """Shrink modes of stride 0 to extent 1: the values stay, without their repetitions.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is shrunk.

    Returns
    -------
    as ``layout``
        Of the same profile.

    Examples
    --------
    >>> print(filter_zeros(Layout((4, 8, 2), (0, 1, 8))))
    (1,8,2):(0,1,8)
    """
    return Layout(unflatten([1 if d == 0 else s for s, d in layout.pairs], layout.shape),
                  layout.stride)


@on_domain
def filtered(layout: Layout) -> Layout:
    """``coalesce(filter_zeros(layout))`` (CuTe's ``filter``).

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What is shrunk.

    Returns
    -------
    as ``layout``
        Coalesced.

    Examples
    --------
    >>> print(filtered(Layout((4, 8, 2), (0, 1, 8))))
    16:1
    """
    return coalesce(filter_zeros(layout))


@checked
def flatten(x: Nested) -> Any:
    """The leaves of a tuple, layout or tensor as its modes; an integer stays an integer.

    Parameters
    ----------
    x : int, tuple, Layout, ComposedLayout or Tensor
        What has modes.

    Returns
    -------
    as ``x``
        Without nesting.

    Examples
    --------
    >>> flatten((4, (2, 3)))
    (4, 2, 3)
    >>> print(flatten(Layout((4, (2, 3)), (2, (1, 8)))))
    (4,2,3):(2,1,8)
    """
    if isinstance(x, tuple):
        return leaves(x)
    if hasattr(x, "map_domain"):
        return x.map_domain(flatten)
    if not isinstance(x, Layout) or not isinstance(x.shape, tuple):
        return x
    return Layout(x.flat_shape, x.flat_stride)


def _placed(layout: Layout) -> Iterator[tuple[Any, Any, Any]]:
    """Extent and stride of each leaf, and how many coordinates are before it."""
    before: Any = 1
    for s, d in layout.pairs:
        yield s, d, before
        before = before * s


# -- complement ------------------------------------------------------------------------------------
def _sorted_modes(layout: Layout, op: str) -> list[tuple[Any, Any, Any]]:
    """(extent, stride, coordinates before) of modes that move, by stride."""
    if any(s == 0 for s in layout.flat_shape):
        raise LayoutError(op, "the layout is empty", layout)
    modes = [mode for mode in _placed(layout) if mode[0] != 1 and mode[1] != 0]
    for _, d, _ in modes:
        if isinstance(d, ScaledBasis):
            raise LayoutError(op, f"the basis stride {d} has no order", layout)
        if isinstance(d, int) and d < 0:
            raise LayoutError(op, f"the stride {d} is negative", layout)
    if all(isinstance(d, int) for _, d, _ in modes):
        modes.sort(key=lambda mode: mode[1])
    return modes


@checked
def complement(layout: LayoutLike, cotarget: Shape = None) -> Layout:
    """The layout of the gaps: ``(layout, complement)`` together reach every integer below
    ``cotarget`` once.

    Parameters
    ----------
    layout : Layout
        Its distinct values repeat with the strides of the complement. Modes of stride 0 do not
        count.
    cotarget : int, Expr or shape, optional
        How far to reach; by default no further than needed to fill the gaps. Where the layout does
        not divide it, the complement rounds up.

    Returns
    -------
    Layout
        Strides increase from left to right, and the complement starts at 0.

    Raises
    ------
    LayoutError
        If the values of the layout are not distinct or their repetitions cannot fill an interval:
        with the modes sorted by stride, each stride must be a multiple of extent times stride of
        the mode before.

    Examples
    --------
    >>> str(complement(Layout(4, 2), 24)), str(complement(Layout((2, 2), (1, 6)), 24))
    ('(2,3):(1,8)', '(3,2):(2,12)')
    """
    target = 1 if cotarget is None else size(cotarget)
    gaps: list[tuple[Any, Any]] = []
    current: Any = 1
    for s, d, _ in _sorted_modes(layout, "complement"):
        gap = quotient(d, current)
        if gap is None:
            raise LayoutError(
                "complement",
                f"the mode {s}:{d} does not start at a multiple of {current}, their end",
                layout,
                target
            )
        gaps.append((gap, current))
        current = d * s
    return merged([*gaps, (ceil_div(target, current), current)])


# -- inverses --------------------------------------------------------------------------------------
@checked
def right_inverse(layout: LayoutLike) -> Layout:
    """A layout ``R`` with ``layout(R(i)) == i`` for all ``i`` below its size.

    ``R`` consists of the modes of ``layout`` that follow each other without a gap from stride 1. It
    is the whole inverse of a layout that is one to one onto an interval, and ``1:0`` if no mode has
    stride 1.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    Layout
        The inverse.

    Examples
    --------
    >>> str(right_inverse(Layout((4, 8), (8, 1))))
    '(8,4):(4,1)'
    """
    modes = [*_placed(coalesce(layout))]
    found: list[tuple[Any, Any]] = []
    current: Any = 1
    while follows := next((mode for mode in modes if mode[1] == current and mode[0] != 0), None):
        modes.remove(follows)
        found.append((follows[0], follows[2]))
        current = current * follows[0]
    return merged(found)


@checked
def left_inverse(layout: LayoutLike) -> Layout:
    """The layout ``G`` with ``G(layout(i)) == i`` for all ``i`` of a one-to-one layout.

    Modes of stride 0 do not count: ``G`` then gives the coordinate that is 0 in them, and
    ``layout(G(layout(i))) == layout(i)``.

    Sort the modes by stride. If each stride is a multiple of the stride before, and at least extent
    times stride of that mode, then between two values of ``layout`` ``G`` repeats the coordinate of
    the lower one. For any other static layout, a search (:mod:`~cuteblas.layout.algebra`)
    decides whether some layout goes through the points ``layout(i) -> i``.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    Layout
        The inverse.

    Raises
    ------
    LayoutError
        If two coordinates share a value; if no layout goes through the points (a proof, by
        exhaustion); if a leaf is symbolic and the divisibility is not certain; if a stride is
        negative; or undecided, if the values reach beyond :data:`INVERSE_LIMIT`.

    Examples
    --------
    >>> str(left_inverse(Layout((4, 8), (16, 1)))), str(left_inverse(Layout(4, 2))), str(left_inverse(Layout((2, 2), (2, 3))))
    ('(16,4):(4,1)', '(2,4):(0,1)', '(2,3):(1,1)')
    """
    modes = _sorted_modes(layout, "left_inverse")
    found: list[tuple[Any, Any]] = []
    reach: Any = 1
    # of the mode before, and how many coordinates one step of it is worth
    extent, worth, last = 1, 0, 1
    for s, d, domain in modes:
        gap = quotient(d, last)
        if gap is None or not surely_less(reach - 1, d):
            return _searched_inverse(layout, modes)
        found.append((gap, worth))
        reach, extent, worth, last = s * d, s, domain, d
    return merged([*found, (extent, worth)])


def _searched_inverse(layout: Layout, modes: list[tuple[Any, Any, Any]]) -> Layout:
    """The left inverse of a layout with the ``modes`` (extent, stride, coordinates before)."""
    if not layout.is_static:
        raise LayoutError(
            "left_inverse",
            "with symbolic leaves it is not certain that the strides divide each other",
            layout
        )
    reach = 1 + sum((s - 1) * d for s, d, _ in modes)
    if reach > INVERSE_LIMIT:
        raise LayoutError(
            "left_inverse",
            "the strides do not divide each other, "
            f"and values up to {reach - 1} are too many to search",
            layout
        )
    points: dict[int, int] = {}
    for digits in _cartesian(*(range(s) for s, _, _ in modes)):
        value = sum(x * d for x, (_, d, _) in zip(digits, modes, strict=True))
        index = sum(x * before for x, (_, _, before) in zip(digits, modes, strict=True))
        if (other := points.setdefault(value, index)) != index:
            first, second = sorted((other, index))
            raise LayoutError("left_inverse",
                              f"the coordinates {first} and {second} share the value {value}",
                              layout)
    found = layout_through(points)
    if found is None:
        raise LayoutError("left_inverse",
                          "the layout is one to one, but no layout maps all of its values back",
                          layout)
    return coalesce(found)


@checked
def nullspace(layout: LayoutLike) -> Layout:
    """The layout of the coordinates within modes of stride 0: ``layout(nullspace(i)) == 0`` for all
    ``i``.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    Layout
        ``1:0`` without modes of stride 0.

    Examples
    --------
    >>> str(nullspace(Layout((2, 3, 4), (0, 1, 0))))
    '(2,4):(1,6)'
    """
    return merged((s, before) for s, d, before in _placed(layout) if d == 0)


def is_bijective(layout: Layout) -> bool:
    """Whether the layout reaches every integer below its size exactly once (certainly, where leaves
    are symbolic).

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    bool
        The answer.

    Examples
    --------
    >>> is_bijective(Layout((4, 8), (8, 1))), is_bijective(Layout((4, 8), (16, 1)))
    (True, False)
    """
    return size(right_inverse(layout)) == size(layout)


@checked
def is_injective(layout: LayoutLike) -> bool:
    """Whether all coordinates have different values. If the strides do not tell, up to 2^20 values
    are compared.

    Parameters
    ----------
    layout : Layout
        The layout.

    Returns
    -------
    bool
        The answer.

    Raises
    ------
    LayoutError
        If a leaf is symbolic, or the layout is larger, and the strides do not tell.

    Examples
    --------
    >>> is_injective(Layout((4, 8), (16, 1))), is_injective(Layout((4, 8), (0, 1)))
    (True, False)
    """
    modes = [(s, d) for s, d in layout.pairs if s != 1]
    if any(s == 0 for s, _ in modes):
        return True
    if any(not isinstance(d, ScaledBasis) and d == 0 for _, d in modes):
        return False
    nested = True
    by_kind: dict[tuple[int, ...], Any] = {}
    for s, d in sorted(modes, key=_by_stride):
        kind, scale = (d.modes, d.value) if isinstance(d, ScaledBasis) else ((), d)
        scale = -scale if isinstance(scale, int) and scale < 0 else scale
        nested = nested and surely_less(by_kind.get(kind, 0), scale)
        by_kind[kind] = by_kind.get(kind, 0) + (s - 1) * scale
    if nested:
        return True
    if not layout.is_static or size(layout) > 1 << 20:
        raise LayoutError("is_injective",
                          "the strides do not tell whether two coordinates share a value", layout)
    return len({layout(i) for i in range(size(layout))}) == size(layout)


def _by_stride(mode: tuple[Any, Any]) -> tuple[bool, int]:
    scale = scale_of(mode[1])
    return not isinstance(scale, int), abs(scale) if isinstance(scale, int) else 0


# -- coordinates of values -------------------------------------------------------------------------
@checked
def get_hier_coord(layout: Plain, value: Index) -> Any:
    """The inverse of a one-to-one layout: the coordinate, with the profile of the shape, whose
    value is ``value``.

    Parameters
    ----------
    layout : Layout
        The layout.
    value : int or Expr
        One of its values.

    Returns
    -------
    int, Expr or tuple
        Congruent to the shape.

    Raises
    ------
    LayoutError
        If the layout is not one to one onto ``[0, size)``, or the value is certainly outside.

    Examples
    --------
    >>> threads = Layout(((2, 16), 8), ((1, 16), 2))
    >>> get_hier_coord(threads, 37), get_flat_coord(threads, 37), get_1d_coord(threads, 37)
    (((1, 2), 2), (5, 2), 69)
    """
    total, reach = size(layout), size(right_inverse(layout))
    check_coordinate(value, total, "get_hier_coord", layout)
    if reach != total:
        raise LayoutError("get_hier_coord",
                          f"not one to one onto an interval: no mode has the stride {reach}",
                          layout)
    return unflatten([0 if s == 1 else value // d if s * d == total else value // d % s
                      for s, d in layout.pairs], layout.shape)


@checked
def get_flat_coord(layout: Plain, value: Index) -> Any:
    """The inverse of a one-to-one layout: the coordinate, one integer for each mode, whose value is
    ``value``.

    See :func:`get_hier_coord`.

    Parameters
    ----------
    layout : Layout
        The layout.
    value : int or Expr
        One of its values.

    Returns
    -------
    int, Expr or tuple
        An integer for each mode.

    Examples
    --------
    >>> get_flat_coord(Layout((4, 8), (8, 1)), 10)
    (1, 2)
    """
    coord = get_hier_coord(layout, value)
    return tuple(map(crd2idx, coord, layout.shape)) if isinstance(coord, tuple) else coord


@checked
def get_1d_coord(layout: Plain, value: Index) -> Any:
    """The inverse of a one-to-one layout: the index whose value is ``value``. See
    :func:`get_hier_coord`.

    Parameters
    ----------
    layout : Layout
        The layout.
    value : int or Expr
        One of its values.

    Returns
    -------
    int or Expr
        The index.

    Examples
    --------
    >>> get_1d_coord(Layout((4, 8), (8, 1)), 10)
    9
    """
    return crd2idx(get_hier_coord(layout, value), layout.shape)


# -- layouts through given points ------------------------------------------------------------------
@dataclass(frozen=True)
class _Strides:
    """All integer solutions of linear equations: ``origin`` + combinations of ``directions``."""

    origin: tuple[int, ...] = ()
    directions: tuple[tuple[int, ...], ...] = ()

    def with_mode(self) -> _Strides:
        n = len(self.origin)
        return _Strides((*self.origin, 0), (*((*d, 0) for d in self.directions), (0,) * n + (1,)))

    def subject_to(self, digits: Sequence[int], value: int) -> _Strides | None:
        """The solutions for which ``sum(digits * strides) == value``, or None if there is none."""
        directions = self.directions
        # Euclid's algorithm, until the sum changes along one direction alone
        while len(moving := [d for d in directions if _dot(digits, d)]) > 1:
            least = min(moving, key=lambda d: abs(_dot(digits, d)))
            directions = tuple(d if d is least else
                               _plus(d, -(_dot(digits, d) // _dot(digits, least)), least)
                               for d in directions)
        rest = value - _dot(digits, self.origin)
        if not moving:
            return self if rest == 0 else None
        steps, beyond = divmod(rest, _dot(digits, moving[0]))
        return None if beyond else _Strides(_plus(self.origin, steps, moving[0]),
                                            tuple(d for d in directions if d is not moving[0]))


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _plus(a: Sequence[int], times: int, b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + times * y for x, y in zip(a, b, strict=True))


def layout_through(points: dict[int, int]) -> Layout | None:
    """The flat layout with ``layout(x) == points[x]`` for every ``x``, or None if there is none."""
    if points.get(0, 0) != 0:
        return None
    xs = sorted(points)
    found = _search([()] * len(xs), xs, [points[x] for x in xs], (), _Strides())
    if found is None:
        return None
    shape, strides = found
    return Layout(shape, strides) if len(shape) > 1 else Layout(shape[0], strides[0])


def _search(digits: list[tuple[int, ...]], rest: list[int], values: list[int],
            shape: tuple[int, ...], strides: _Strides) -> tuple[tuple[int, ...],
                                                                tuple[int, ...]] | None:
    """Close the shape with ``rest`` as the last digit, or try every prime as the next extent."""
    last = [(*d, y) for d, y in zip(digits, rest, strict=True)]
    closed = _restrict(strides.with_mode(), last, [0] * len(rest), values)
    if closed is not None:
        return (*shape, max(rest, default=0) + 1), closed.origin
    for p in _primes(max(rest, default=0)):
        longer = [(*d, y % p) for d, y in zip(digits, rest, strict=True)]
        slower = [y // p for y in rest]
        narrowed = _restrict(strides.with_mode(), longer, slower, values)
        if narrowed is not None and (found := _search(longer, slower, values, (*shape, p),
                                                      narrowed)) is not None:
            return found
    return None


def _restrict(strides: _Strides, digits: list[tuple[int, ...]], slower: list[int],
              values: list[int]) -> _Strides | None:
    """The strides for which points with the same ``slower`` digits differ as their values do."""
    first: dict[int, tuple[tuple[int, ...], int]] = {0: ((0,) * len(strides.origin), 0)}
    for d, y, v in zip(digits, slower, values, strict=True):
        base, value = first.setdefault(y, (d, v))
        narrowed = strides.subject_to(_plus(d, -1, base), v - value)
        if narrowed is None:
            return None
        strides = narrowed
    return strides


def _primes(top: int) -> Iterator[int]:
    return (p for p in range(2, top + 1) if all(p % q for q in range(2, int(p**0.5) + 1)))
