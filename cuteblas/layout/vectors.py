"""How many elements two layouts share in a row, and layouts in units of other elements."""

from __future__ import annotations

from math import gcd
from typing import Any

from .algebra import coalesce, right_inverse
from .basis import ScaledBasis
from .checks import Domain, IntTuple, Positive, checked
from .composition import composition
from .core import Layout, merged
from .errors import LayoutError, described
from .inttuple import leaves, quotient, size, unflatten
from .swizzle import ComposedLayout, Swizzle
from .symbolic import Expr, bits_of


def _unswizzled(x: Any) -> tuple[Layout, int | None]:
    """The layout under a tensor or swizzle, and the longest run that a swizzle keeps."""
    x = getattr(x, "layout", x)
    if isinstance(x, Layout):
        return x, None
    if isinstance(x, ComposedLayout) and isinstance(x.outer, Swizzle):
        return x.inner, None if x.outer.bits == 0 else 1 << min(x.outer.base,
                                                                x.outer.base + x.outer.shift)
    raise LayoutError("max_common_layout",
                      "expected a layout, a swizzled layout or a tensor of one", x)


def max_common_layout(a: Any, b: Any) -> Layout:
    """The coordinates of elements that are contiguous in both layouts: ``R`` with
    ``a(R(i)) == b(R(i)) == i``.

    Parameters
    ----------
    a, b : Layout, ComposedLayout or Tensor
        Of the same size. Of a swizzled layout, a run ends where the swizzle may permute.

    Returns
    -------
    Layout
        From the position in the run to the coordinate; ``1:0`` if no two elements are neighbours in
        both.

    Examples
    --------
    >>> str(max_common_layout(Layout((8, 16), (16, 1)), Layout((8, 16), (32, 1))))
    '16:8'
    """
    (a, a_run), (b, b_run) = _unswizzled(a), _unswizzled(b)
    found: list[tuple[Any, Any]] = []
    current: Any = 1
    for s, d in right_inverse(b).pairs:
        common = _prefix(a, found, s, d, current)
        if common == 1:
            break
        found.append((common, d))
        current = current * common
        if common != s:
            break
    runs = [run for run in (a_run, b_run) if run is not None]
    return _first(found, min(runs, default=current))


def _prefix(a: Layout, found: list[tuple[Any, Any]], s: Any, d: Any, current: Any) -> Any:
    """How many of ``s`` steps of ``d`` continue, in ``a``, the run of ``current`` elements."""
    try:
        through = coalesce(composition(a, Layout(s, d)))
    except LayoutError:
        return 1
    n, step = through.flat_shape[0], through.flat_stride[0]
    if step != current:
        return 1
    if not found:
        return n
    try:                            # the steps of all modes together must not carry into each other
        composition(a, Layout(*zip(*found, (n, d), strict=True)))
    except LayoutError:
        return 1
    return n


def _first(modes: list[tuple[Any, Any]], n: Any) -> Layout:
    """The largest beginning of a run with at most ``n`` elements that is a layout."""
    found = []
    for s, d in modes:
        take = s if quotient(n, s) is not None else gcd(s, n) if isinstance(s, int) and isinstance(n, int) else 1
        found.append((take, d))
        if take != s:
            break
        n = quotient(n, s)
    return merged(found)


def max_common_vector(a: Any, b: Any) -> Any:
    """The number of elements that are contiguous in both layouts: the width of a vectorised copy
    between them.

    The addresses of the vectors are another question: :func:`max_alignment`.

    Parameters
    ----------
    a, b : Layout, ComposedLayout or Tensor
        Of the same size.

    Returns
    -------
    int or Expr
        In elements.

    Examples
    --------
    >>> max_common_vector(Layout((8, 16), (16, 1)), Layout((8, 16), (32, 1)))
    16
    """
    return size(max_common_layout(a, b))


def max_alignment(layout: Any) -> int:
    """The longest run whose every copy in the layout starts at a multiple of its length, as far as
    is certain.

    It is the largest ``n`` for which :func:`upcast` succeeds.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        In units of elements.

    Returns
    -------
    int
        In elements.

    Raises
    ------
    LayoutError
        If strides are basis elements.

    Examples
    --------
    >>> max_alignment(Layout((8, 4), (1, 12))), max_alignment(Layout((8, 4), (2, 16)))
    (4, 1)
    """
    layout, run = _unswizzled(layout)
    flat = coalesce(layout)
    modes = list(flat.pairs)
    chain, current = [], 1
    while found := [mode for mode in modes if isinstance(mode[0], int) and mode[1] == current
                    and mode[0] > 1]:
        modes.remove(found[0])
        chain.append(found[0][0])
        current *= found[0][0]
    common = 0
    for s, d in modes:
        if isinstance(d, ScaledBasis):
            raise LayoutError("max_alignment", "basis strides have no alignment", layout)
        if s != 1:
            common = gcd(common, bits_of(d) & -bits_of(d) if isinstance(d, Expr) else d)
    n = 1
    for s in chain:
        f = gcd(s, common // n) if common else s
        n *= f
        if f != s:
            break
    return n if run is None else gcd(n, run)


# -- changing the element --------------------------------------------------------------------------
@checked
def upcast(layout: Domain, n: Positive) -> Any:
    """The layout in units of ``n`` neighbouring elements:
    ``upcast((8,4):(1,8), 4) == (2,4):(1,2)``.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        In units of elements.
    n : int
        Elements of a unit, above 0.

    Returns
    -------
    as ``layout``
        In units of ``n`` elements.

    Raises
    ------
    LayoutError
        If the elements of a unit are not all there, a unit does not start at a multiple of ``n``,
        or ``n`` is not above 0.

    Examples
    --------
    >>> print(upcast(Layout((8, 4), (1, 8)), 4))
    (2,4):(1,2)
    """
    if isinstance(layout, ComposedLayout):
        return _recast_swizzle(layout, n, upcast)
    _refuse_tensor(layout, "upcast")
    shape, stride = [], []
    inside: list[tuple[int, int]] = []
    for s, d in layout.pairs:
        q = quotient(d, n) if not isinstance(d, ScaledBasis) else None
        if s == 1 or q is not None:
            shape.append(s)
            stride.append(0 if s == 1 else q)
            continue
        r = quotient(n, d) if isinstance(d, int) and d > 0 else None
        rest = None if r is None else quotient(s, r) or (1 if quotient(r, s) else None)
        if r is None or rest is None:
            raise LayoutError("upcast", f"the mode {s}:{d} does not divide into units of {n}",
                              layout)
        shape.append(rest)
        stride.append(0 if rest == 1 else 1)
        inside.append((d, s // rest))
    current = 1
    for d, count in sorted(inside):
        if d != current:
            raise LayoutError("upcast",
                              f"the modes of stride below {n} do not follow each other from 1",
                              layout)
        current *= count
    if current != n:
        raise LayoutError("upcast", f"a unit of {n} elements has only {current} of them in a row",
                          layout)
    return _rebuild(layout, shape, stride)


@checked
def downcast(layout: Domain, n: Positive) -> Any:
    """The layout in units of an ``n``-th of an element:
    ``downcast((2,4):(1,2), 4) == (8,4):(1,8)``.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        In units of elements.
    n : int
        Parts of an element, above 0.

    Returns
    -------
    as ``layout``
        In units of an ``n``-th of an element.

    Raises
    ------
    LayoutError
        If not exactly one mode has stride 1, so that it is not clear which one takes the parts, or
        ``n`` is not above 0.

    Examples
    --------
    >>> print(downcast(Layout((2, 4), (1, 2)), 4))
    (8,4):(1,8)
    """
    if isinstance(layout, ComposedLayout):
        return _recast_swizzle(layout, n, downcast)
    _refuse_tensor(layout, "downcast")
    if n == 1:
        return layout
    if sum(d == 1 and s != 1 for s, d in layout.pairs) != 1:
        raise LayoutError("downcast", "not exactly one mode has stride 1", layout)
    shape = [s * n if d == 1 and s != 1 else s for s, d in layout.pairs]
    stride = [d if d == 1 else d * n for d in layout.flat_stride]
    return _rebuild(layout, shape, stride)


def _refuse_tensor(x: Any, op: str) -> None:
    if not isinstance(x, Layout):
        raise LayoutError(
            op, f"expected a layout, since an engine has elements of its own, got {described(x)}"
        )


def _rebuild(layout: Layout, shape: list, stride: list) -> Layout:
    return Layout(unflatten(shape, layout.shape), unflatten(stride, layout.shape))


def _recast_swizzle(layout: ComposedLayout, n: int, recast: Any) -> ComposedLayout:
    op, swizzle, bits = recast.__name__, layout.outer, n.bit_length() - 1
    offset = quotient(layout.offset, n) if op == "upcast" else layout.offset * n
    if not isinstance(swizzle, Swizzle) or n != 1 << bits or offset is None:
        raise LayoutError(
            op, f"a swizzle is recast by powers of two that divide its offset, not by {n}", layout
        )
    base = swizzle.base - bits if op == "upcast" else swizzle.base + bits
    if base < 0 < swizzle.bits:
        raise LayoutError(op, f"the swizzle permutes elements within a unit of {n}", layout)
    return ComposedLayout(Swizzle(swizzle.bits, max(0, base), swizzle.shift), offset,
                          recast(layout.inner, n))


@checked
def recast_layout(layout: Domain, old_bits: Positive, new_bits: Positive) -> Any:
    """The layout of the same memory seen as elements of ``new_bits`` instead of ``old_bits``.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        In units of ``old_bits``.
    old_bits, new_bits : int
        Sizes of elements, above 0.

    Returns
    -------
    as ``layout``
        In units of ``new_bits``.

    Raises
    ------
    LayoutError
        If a size is not above 0 or neither divides the other, or :func:`upcast` or :func:`downcast`
        refuses.

    Examples
    --------
    >>> print(recast_layout(Layout((8, 4), (1, 8)), 8, 32))
    (2,4):(1,2)
    """
    if new_bits % old_bits == 0:
        return upcast(layout, new_bits // old_bits)
    if old_bits % new_bits == 0:
        return downcast(layout, old_bits // new_bits)
    raise LayoutError("recast_layout",
                      f"neither {old_bits} nor {new_bits} bits are a multiple of the other", layout)


@checked
def domain_distribute(shape: IntTuple, n: Positive) -> Layout:
    """A tile of ``n`` elements of a shape, as wide as possible from the left.

    Parameters
    ----------
    shape : int or tuple
        Static extents.
    n : int
        Elements of the tile.

    Returns
    -------
    Layout
        From the element of the tile to its index in the shape.

    Raises
    ------
    LayoutError
        If the common divisors of the modes with ``n`` do not make ``n``.

    Examples
    --------
    >>> str(domain_distribute((15, 14), 6))
    '(3,2):(1,15)'
    """
    if not all(isinstance(s, int) for s in leaves(shape)):
        raise LayoutError("domain_distribute", "symbolic extents have no certain divisors", shape,
                          n)
    found, before, rest = [], 1, n
    for s in leaves(shape):
        f = gcd(s, rest)
        found.append((f, before))
        before, rest = before * s, rest // f
    if rest != 1:
        raise LayoutError("domain_distribute", f"the modes have no tile of {n} elements", shape, n)
    return merged(found)
