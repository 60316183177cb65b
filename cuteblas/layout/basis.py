"""Strides that are coordinates: scaled basis elements, and the tuples that they add up to.

A stride has to support two things: multiplication by an integer (a coordinate) and addition.
Integers do, and so do tuples of integers. ``E(1)`` is the tuple ``(0,1,0,...)``, ``E(0, 1)`` is
``((0,1,0,...),0,...)``: a layout with such strides maps a coordinate to a coordinate instead of an
address, and is tiled, sliced and partitioned like any other layout.

Examples
--------
>>> str(3 * E(1)), str(E(0, 1))
('3@1', '1@1@0')
>>> 4 * E(0, 1) + 7 * E(0, 0) + 23 * E(1)
ArithTuple((7, 4), 23)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap, zip_longest
from operator import add
from typing import Any

from .errors import LayoutError, described, spell
from .symbolic import Expr, IntLike

_MODES, _NESTING = 1 << 10, 64                           # positions in a tuple, levels of tuples


@dataclass(frozen=True, repr=False)
class ScaledBasis:
    """``value`` at the (hierarchical) position ``modes`` of an otherwise zero tuple.

    Attributes
    ----------
    value : int or Expr
        The scale.
    modes : tuple of int
        The position, outermost first: ``(0, 1)`` is entry 1 of entry 0, and prints as ``@1@0``.

    Examples
    --------
    >>> print(ScaledBasis(4, (0, 1)))
    4@1@0
    """

    value: IntLike
    modes: tuple[int, ...]

    def __post_init__(self) -> None:
        if type(self.modes) is not tuple or not self.modes or any(type(m) is not int
                                                                  or not 0 <= m < _MODES
                                                                  for m in self.modes):
            raise LayoutError(
                "E",
                f"a basis element needs at least one position; positions are integers from 0 to {_MODES - 1}",
                self.modes
            )
        if len(self.modes) > _NESTING:
            raise LayoutError("E", f"positions nest at most {_NESTING} levels deep")
        if isinstance(self.value, bool) or not isinstance(self.value, (int, Expr)):
            raise LayoutError(
                "E", f"the scale of a basis element is an integer, got {described(self.value)}"
            )

    def __repr__(self) -> str:
        basis = f"E({', '.join(map(str, self.modes))})"
        value = f"({self.value!r})" if isinstance(self.value, Expr) else self.value
        return basis if self.value == 1 else f"{value}*{basis}"

    def __str__(self) -> str:
        value = str(self.value) if isinstance(self.value,
                                              int) or self.value.op == "var" else f"({self.value})"
        return value + "".join(f"@{m}" for m in reversed(self.modes))

    def __mul__(self, k: IntLike) -> ScaledBasis:
        if not isinstance(k, (int, Expr)):
            return NotImplemented
        scaled = object.__new__(ScaledBasis)             # of valid parts, which need no check
        scaled.__dict__.update(value=self.value * k, modes=self.modes)
        return scaled

    __rmul__ = __mul__

    def __neg__(self) -> ScaledBasis:
        return self * -1

    def __add__(self, other: object) -> ArithTuple:
        return self.as_tuple() + other

    __radd__ = __add__

    def as_tuple(self) -> ArithTuple:
        """The shortest tuple that has ``value`` at the position."""
        x: Any = self.value
        for m in reversed(self.modes):
            x = ArithTuple(*(0,) * m, x)
        return x


class ArithTuple(tuple):
    """A tuple whose sum with another adds entry by entry; zeros extend the shorter one.

    It compares, unpacks and indexes as any ``tuple``.

    Parameters
    ----------
    *entries : int, Expr or tuple
        The entries.

    Examples
    --------
    >>> ArithTuple(1, 2) + ArithTuple(10, 20, 30)
    ArithTuple(11, 22, 30)
    """

    __slots__ = ()

    def __new__(cls, *entries: Any) -> ArithTuple:
        try:
            return super().__new__(cls, [ArithTuple(*e) if isinstance(e, tuple) else e
                                         for e in entries])
        except RecursionError:
            raise LayoutError("ArithTuple", "tuples nest too deep") from None

    def __getnewargs__(self) -> tuple:
        return tuple(self)

    def __repr__(self) -> str:
        return f"ArithTuple({', '.join(_plain(e) for e in self)})"

    def __str__(self) -> str:
        return spell(self)

    def __add__(self, other: object) -> ArithTuple:
        if isinstance(other, ScaledBasis):
            other = other.as_tuple()
        if isinstance(other, tuple):
            entries = other if type(other) is ArithTuple else ArithTuple(*other)
            return ArithTuple(*starmap(add, zip_longest(self, entries, fillvalue=0)))
        if isinstance(other, int) and other == 0:
            return self
        if isinstance(other, (int, Expr)):
            raise LayoutError("add", f"the integer {other} cannot be added to a tuple", self)
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> ArithTuple:
        return self * -1

    def __sub__(self, other: Any) -> ArithTuple:
        return self + -(ArithTuple(*other) if isinstance(other, tuple) else other)

    def __mul__(self, k: IntLike) -> ArithTuple:  # type: ignore[override]
        return ArithTuple(*(e * k for e in self)) if isinstance(k, (int, Expr)) else NotImplemented

    __rmul__ = __mul__  # type: ignore[assignment]


def _plain(x: object) -> str:
    return f"({', '.join(_plain(e) for e in x)}{',' * (len(x) == 1)})" if isinstance(x, tuple) else repr(x)


def E(*modes: int) -> ScaledBasis:
    """The basis element with a 1 at a position: ``E(1)`` is ``(0,1,0,...)``, ``E(0, 1)`` is
    ``((0,1,0,...),0,...)``.

    Parameters
    ----------
    *modes : int
        The position, outermost first.

    Returns
    -------
    ScaledBasis
        With the scale 1.

    Examples
    --------
    >>> 3 * E(1) + E(0)
    ArithTuple(1, 3)
    """
    return ScaledBasis(1, modes)


def scale_of(stride: Stride) -> IntLike:
    """The integer of a stride: itself, or the scale of a basis element."""
    return stride.value if isinstance(stride, ScaledBasis) else stride


Stride = IntLike | ScaledBasis
