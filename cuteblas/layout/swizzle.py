"""Swizzles, and layouts composed with a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from .basis import ArithTuple
from .checks import BITS, Whole, checked, integer, inttuple
from .core import Layout, Measured, cosize, slice_and_offset
from .errors import LayoutError
from .inttuple import has_none, product_of
from .symbolic import Expr, IntLike, bits_of, bounds, xor_parts

THROUGH_LIMIT = 1 << 16
"""Values that :func:`swizzle_through` looks at, at most."""


@dataclass(frozen=True)
class Swizzle:
    """An involution on integers that moves some bits by exclusive or with others:
    ``x ^ ((x & yyy) >> shift)``.

    ``0bxxxYYYxxZZZxxx``: the ``bits`` bits ``ZZZ`` above the lowest ``base`` bits change by the
    bits ``YYY``, which are ``shift`` places further up (further down for a negative shift).

    Attributes
    ----------
    bits, base, shift : int
        CuTe's B, M and S: ``bits >= 0``, ``base >= 0``, ``|shift| >= bits``.

    Raises
    ------
    LayoutError
        If the two groups of bits would overlap, or reach beyond 1024 bits, or a number of bits is
        not an integer.

    Examples
    --------
    >>> [Swizzle(1, 0, 1)(x) for x in range(4)]
    [0, 1, 3, 2]
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            object.__setattr__(self, name, integer(getattr(self, name), "Swizzle"))
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise LayoutError("Swizzle", "bits >= 0, base >= 0 and |shift| >= bits must hold",
                              self.bits, self.base, self.shift)
        if self.bits + self.base + abs(self.shift) > BITS:
            raise LayoutError("Swizzle", f"the swizzle reaches beyond {BITS} bits", self.bits,
                              self.base, self.shift)

    @property
    def mask(self) -> int:
        """The bits that are read (``YYY``)."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def changed(self) -> int:
        """The bits that change (``ZZZ``)."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    @property
    def period(self) -> int:
        """``2**(bits + base + |shift|)``: adding a multiple of it before or after the swizzle is
        the same."""
        return 1 << (self.bits + self.base + abs(self.shift))

    def __call__(self, x: Any) -> Any:
        """The swizzled integer; an ``Expr`` gives an ``Expr``.

        A swizzle is linear over exclusive or, so the parts of a sum that adds without a carry are
        swizzled one by one: of an address that is a part per thread plus a constant, only the part
        per thread costs instructions.
        """
        if isinstance(x, Expr) and len(parts := xor_parts(x)) > 1:
            return reduce(xor, (self(p) for p in parts))
        picked = x & self.mask
        if isinstance(picked, int) and picked == 0:
            return x
        return x ^ (picked >> self.shift if self.shift >= 0 else picked << -self.shift)

    def __str__(self) -> str:
        return f"S<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, repr=False)
class ComposedLayout(Measured):
    """The function ``c -> outer(offset + inner(c))``.

    Tiling, dividing, slicing and composing act on ``inner``; where a slice starts accumulates in
    ``offset``.

    Attributes
    ----------
    outer : Swizzle, Layout or callable
        A function of integers; a Swizzle as a rule.
    offset : int or Expr
        Added before ``outer``.
    inner : Layout
        The layout that coordinates go through first.

    Examples
    --------
    >>> L = ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1)))
    >>> str(L), L(1, 0), str(L(1, None))
    ('S<1,0,1> o 0 o (2,2):(2,1)', 3, 'S<1,0,1> o 2 o (2):(1)')
    """

    outer: Callable[[Any], Any]
    offset: Any
    inner: Layout

    def __post_init__(self) -> None:
        offset = inttuple(self.offset, "ComposedLayout")
        object.__setattr__(self, "offset", offset)
        if not isinstance(self.inner, Layout) or not callable(self.outer):
            raise LayoutError("ComposedLayout", "takes a function, an offset and a layout",
                              self.outer, self.offset, self.inner)
        if self.inner.has_basis and isinstance(self.outer, Swizzle):
            raise LayoutError("ComposedLayout", "a swizzle acts on integers, not on basis strides",
                              self.outer, self.inner)

    @property
    def shape(self) -> Any:
        """The shape of ``inner``."""
        return self.inner.shape

    @property
    def swizzle(self) -> Swizzle:
        """The outer part, if it is a swizzle; the identity swizzle if not."""
        return self.outer if isinstance(self.outer, Swizzle) else Swizzle(0, 0, 0)

    def __call__(self, *coord: Any) -> Any:
        """The value at a coordinate, or the sublayout (which starts where it did) of the modes
        where it is ``None``."""
        c = coord[0] if len(coord) == 1 else coord
        if has_none(c):
            sub, start = slice_and_offset(c, self.inner)
            return ComposedLayout(self.outer, self.offset + start, sub)
        return self.at(c)

    def at(self, c: Any) -> Any:
        """The value at a coordinate without ``None``."""
        return self.outer(self.offset + self.inner.at(c))

    def __iter__(self) -> Iterator[ComposedLayout]:
        return (ComposedLayout(self.outer, self.offset, mode) for mode in self.inner)

    def __getitem__(self, mode: Any) -> ComposedLayout:
        return ComposedLayout(self.outer, self.offset, self.inner[mode])

    def map_domain(self, f: Callable[[Layout], Any]) -> ComposedLayout:
        """Replace ``inner`` by ``f(inner)``."""
        return ComposedLayout(self.outer, self.offset, f(self.inner))

    def slice_and_offset(self, coord: Any) -> tuple[ComposedLayout, Any]:
        """The sublayout at ``coord``, and the part of its start that the swizzle leaves alone."""
        sub, start = slice_and_offset(coord, self.inner)
        outside, inside = self._split(self.offset + start)
        return ComposedLayout(self.outer, inside, sub), outside

    def _split(self, offset: IntLike) -> tuple[IntLike, IntLike]:
        """``offset`` as a certain multiple of the swizzle's period and the rest."""
        if not isinstance(self.outer, Swizzle) or isinstance(offset, ArithTuple):
            return 0, offset
        period = self.outer.period
        if isinstance(offset, int):
            return offset - offset % period, offset % period
        constant, terms = (offset.args if offset.op == "sum" else (0, ((1, offset),)))
        outside: Any = constant - constant % period
        for k, term in terms:
            if bits_of(part := k * term) & (period - 1) == 0:
                outside = outside + part
        return outside, offset - outside

    def cosize(self, *mode: int) -> Any:
        """A bound for values: every value is in ``[0, cosize)``.

        ``cosize(inner)`` where the swizzle acts as the identity, else rounded up to the block that
        the swizzle permutes.

        Raises
        ------
        LayoutError
            If the outer part is not a swizzle or the offset may be negative.
        """
        inner = self.inner[mode] if mode else self.inner
        if not isinstance(self.outer, Swizzle):
            raise LayoutError("cosize", "the outer part is not a swizzle", self)
        if any(not isinstance(x, (int, Expr)) or bounds(x)[0] < 0
               for x in (self.offset, *inner.flat_stride)):
            raise LayoutError("cosize", "the offset or a stride may be negative", self)
        n = cosize(inner)
        n = n + self.offset if n != 0 else n
        if bounds(n)[1] <= (self.outer.mask & -self.outer.mask):
            return n
        block = 1 << self.outer.changed.bit_length()
        return (n + (block - 1)) // block * block

    def __str__(self) -> str:
        return f"{self.outer} o {self.offset} o {self.inner}"

    def __repr__(self) -> str:
        return f"ComposedLayout({self.outer!r}, {self.offset!r}, {self.inner!r})"


# -- swizzles from what they do --------------------------------------------------------------------
@checked
def make_swizzle(read: Whole, changed: Whole) -> Swizzle:
    """The swizzle that changes the bits of one mask by the bits of another.

    Parameters
    ----------
    read, changed : int
        Masks of equally many neighbouring bits (CuTe's ``YYY`` and ``ZZZ``) that do not overlap.

    Returns
    -------
    Swizzle
        The swizzle.

    Raises
    ------
    LayoutError
        If the masks are not equally long, have gaps or overlap.

    Examples
    --------
    >>> str(make_swizzle(0b1110000000, 0b1110000))
    'S<3,4,3>'
    """
    bits = read.bit_count()
    lowest = [(mask & -mask).bit_length() - 1 if mask > 0 else 0 for mask in (read, changed)]
    run = (1 << bits) - 1
    if read < 0 or changed < 0 or read & changed or (read, changed) != (run << lowest[0], run << lowest[1]):
        raise LayoutError("make_swizzle",
                          "takes two masks of equally many neighbouring bits that do not overlap",
                          bin(read), bin(changed))
    return Swizzle(bits, min(lowest), lowest[0] - lowest[1])


def compose_swizzles(outer: Swizzle, inner: Any) -> Any:
    """``outer`` after a layout, a swizzle or a swizzled layout."""
    if isinstance(inner, Swizzle):
        return _merged(outer, inner)
    if not isinstance(inner, ComposedLayout):
        return ComposedLayout(outer, 0, inner if isinstance(inner, Layout) else Layout(inner))
    if isinstance(inner.outer, Swizzle):
        return ComposedLayout(_merged(outer, inner.outer), inner.offset, inner.inner)
    raise LayoutError("composition", "the outer part of the layout is not a swizzle", outer, inner)


def _merged(outer: Swizzle, inner: Swizzle) -> Swizzle:
    flips = {}                            # by bit: which bits of the result it flips besides itself
    for i in range(max(outer.period, inner.period).bit_length()):
        if flip := outer(inner(1 << i)) ^ (1 << i):
            flips[i] = flip
    if not flips:
        return Swizzle(0, min(outer.base, inner.base), outer.shift)
    lowest, highest = min(flips), max(flips)
    for i in range(lowest, highest + 1):
        if flips[lowest].bit_count() != 1 or flips.get(i) != flips[lowest] << (i - lowest):
            raise LayoutError(
                "composition",
                "no swizzle is the composition of the two: "
                f"bit {lowest} flips {flips[lowest]:#b} of the result, "
                f"bit {i} flips {flips.get(i, 0):#b}",
                outer,
                inner
            )
    run = (1 << (highest - lowest + 1)) - 1
    return make_swizzle(run << lowest, run * flips[lowest])


def swizzle_through(layout: Layout, tiler: ComposedLayout, inner: Layout) -> ComposedLayout:
    """``c -> layout(tiler(c))`` as a swizzle after a layout."""
    offset, swizzle = tiler.offset, tiler.outer
    if not isinstance(swizzle, Swizzle):
        raise LayoutError("composition", "the outer part of the tiler is not a swizzle", layout,
                          tiler)
    if not (layout.is_static and inner.is_static and isinstance(offset, int)) or layout.has_basis:
        raise LayoutError("composition",
                          "a swizzle is not moved through symbolic leaves or basis strides", layout,
                          tiler)
    n = product_of(inner.shape)
    if n > THROUGH_LIMIT:
        raise LayoutError("composition", f"{n} values are too many to search for a swizzle", layout,
                          tiler)
    pairs: dict[int, int] = {}
    for i in range(n):
        before, after = layout(offset) + inner(i), layout(tiler(i))
        if pairs.setdefault(before, after) != after or before < 0:
            raise LayoutError(
                "composition",
                f"no swizzle has these values: at index {i} of the tiler the value {before} "
                f"becomes {after}",
                layout,
                tiler
            )
    for found in _candidates(pairs):
        if all(found(before) == after for before, after in pairs.items()):
            return ComposedLayout(found, layout(offset), inner)
    raise LayoutError("composition",
                      "no swizzle after the layout has the values of this one before it", layout,
                      tiler)


def _candidates(pairs: dict[int, int]) -> Iterator[Swizzle]:
    """Swizzles that may take every ``before`` to its ``after``; if any does, one of these does."""
    # A swizzle that changes more bits than those that ever flip can be replaced by one with the
    # same shift that changes these alone: the shift is all that has to be tried.
    flips = top = 0
    for before, after in pairs.items():
        flips |= before ^ after
        top = max(top, before.bit_length(), after.bit_length())
    if not flips:
        yield Swizzle(0, 0, 0)
        return
    lowest = (flips & -flips).bit_length() - 1
    bits = flips.bit_length() - lowest
    for base in range(min(lowest, top - 2 * bits) + 1):
        sizes = range(bits, top - bits - lowest
                      + 1) if base == lowest else [lowest - base] if lowest - base >= bits else []
        for size in sizes:
            yield Swizzle(bits, base, size if base == lowest else -size)
