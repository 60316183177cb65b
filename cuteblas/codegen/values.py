"""Values of kernels: C++ expressions that know their type and their device functions.

Numbers of Python take the other operand's type, index expressions are integers of any type. Values
of two types do not mix: one is converted first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple, TypeAlias

from .._dtypes import DType, dtype
from ..layout.symbolic import Condition, Expr, IntLike, is_condition, spelled, to_c
from .errors import CodegenError

__all__ = ["Operand", "Term", "Value", "cast", "choose", "complex_of", "integer", "local", "number"]

# Levels of precedence are those of index expressions; one is between: || below &&.
_CHOICE, _ALL, _COMPARISON, _SHIFT, _SUM, _PRODUCT, _UNARY, _ATOM = 1, 2, 6, 8, 9, 10, 11, 12
_LEVELS = {"||": 1.5, "&&": _ALL, "|": 3, "&": 5,
           **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON),
           "<<": _SHIFT, ">>": _SHIFT, "+": _SUM, "-": _SUM, "*": _PRODUCT}
_SUFFIX = {"float": "f", "unsigned int": "u", "unsigned long long": "ull"}
_BOOL = dtype("bool")


class Use(NamedTuple):
    """A call of a device function, with its template arguments as C++."""

    name: str
    of: tuple[str, ...] = ()


class Rendered(NamedTuple):
    """A value as C++: its text, its type (``None``: an integer, of whatever type), how strongly it
    binds, and what it calls."""

    c: str
    dtype: DType | None
    level: float = _ATOM
    uses: frozenset[Use] = frozenset()

    def at(self, level: float) -> str:
        """The text where something binds so strongly."""
        return self.c if self.level >= level else f"({self.c})"


def _operator(sign: str, swapped: bool = False,
              of_bools: str | None = None) -> Callable[[Value, Operand], Term]:
    """The method for an operator of C++; the value is its right operand if they are swapped."""
    def method(self: Value, other: Operand) -> Term:
        own = of_bools if of_bools and self.dtype == _BOOL else sign
        return _binary(other, own, self) if swapped else _binary(self, own, other)

    return method


class Value:
    """A value, with the operators of C++; ``==`` stays Python's: see :meth:`equals`.

    For bools, ``&``, ``|`` and ``~`` become ``&&``, ``||`` and ``!``.

    Examples
    --------
    >>> from cuteblas.codegen.values import local, rendered
    >>> x, y = local("x", "float32"), local("y", "float32")
    >>> rendered(x * y + x).c, rendered(x < y).c, rendered(x.equals(y)).c
    ('x * y + x', 'x < y', 'x == y')
    """

    def rendered(self) -> Rendered:
        """What it is in C++."""
        raise NotImplementedError

    @property
    def c(self) -> str:
        """The value as a C++ expression."""
        return self.rendered().c

    @property
    def dtype(self) -> DType | None:
        """The type."""
        return self.rendered().dtype

    def __str__(self) -> str:
        return self.c

    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __lshift__, __rshift__ = map(_operator, ("<<", ">>"))
    __and__, __or__ = _operator("&", of_bools="&&"), _operator("|", of_bools="||")

    def __invert__(self) -> Term:
        return _unary("!" if self.dtype == _BOOL else "~", self)

    def __neg__(self) -> Term:
        return _unary("-", self)

    def equals(self, other: Operand) -> Term:
        """Whether both are equal."""
        return _binary(self, "==", other)

    def differs(self, other: Operand) -> Term:
        """Whether they are not."""
        return _binary(self, "!=", other)

    @property
    def re(self) -> Term:
        """The real part of a complex number."""
        return _part(self, "re")

    @property
    def im(self) -> Term:
        """The imaginary part of a complex number."""
        return _part(self, "im")


Operand: TypeAlias = Value | Condition | int | float


@dataclass(frozen=True, eq=False)
class Term(Value):
    """A value with its C++ text.

    Attributes
    ----------
    spelled : Rendered
        The text and its properties.

    Examples
    --------
    >>> from cuteblas.codegen.values import local, rendered
    >>> x = local("x", "float32")
    >>> rendered((x + x) * x).c
    '(x + x) * x'
    """

    spelled: Rendered

    def rendered(self) -> Rendered:
        return self.spelled


def local(name: str, element: str) -> Term:
    """A variable of a kernel, by its name.

    Parameters
    ----------
    name : str
        The variable.
    element : str
        Its type.

    Returns
    -------
    Term
        Its value.

    Examples
    --------
    >>> from cuteblas.codegen.values import local, rendered
    >>> rendered(-local("x", "float32")).c
    '-x'
    """
    return Term(Rendered(name, dtype(element)))


def rendered(x: Operand, like: DType | None = None) -> Rendered:
    """Write a value, an index expression or a number as C++; numbers take type ``like``."""
    if isinstance(x, Value):
        return x.rendered()
    if isinstance(x, Expr):
        text, level, functions = spelled(x)
        return Rendered(text, _BOOL if is_condition(x) else None, level,
                        frozenset(map(Use, functions)))
    if isinstance(x, bool):
        return Rendered(str(x).lower(), _BOOL)
    suffix = "" if like is None else _SUFFIX.get(like.ctype, "")
    if isinstance(x, int):
        if suffix.startswith("u") and x < 0:
            raise CodegenError(f"{x!r} is not a number of type {like.name}")  # type: ignore[union-attr]
        return Rendered(f"{x}{suffix}" if suffix.startswith("u") else to_c(x), None,
                        _ATOM if x >= 0 else _SUM)
    if like is None or like.ctype not in ("float", "double") or not isfinite(x):
        raise CodegenError(f"{x!r} is not a number of type {'int' if like is None else like.name}")
    return Rendered(f"{x!r}{suffix}", like, _ATOM if x >= 0 else _SUM)


def _common(x: Operand, y: Operand, sign: str) -> tuple[Rendered, Rendered, DType | None]:
    like = next((v.dtype for v in (x, y) if isinstance(v, Value) and v.dtype is not None), None)
    a, b = rendered(x, like), rendered(y, like)
    if a.dtype is not None and b.dtype is not None and a.dtype.ctype != b.dtype.ctype:
        raise CodegenError(f"{a.c} {sign} {b.c}: {a.dtype.name} and {b.dtype.name} do not mix")
    return a, b, a.dtype or b.dtype


def _binary(x: Operand, sign: str, y: Operand) -> Term:
    level = _LEVELS[sign]
    if level == _SHIFT:                                  # the number of bits may have another type
        a, b = rendered(x), rendered(y)
        kind = a.dtype
    else:
        a, b, kind = _common(x, y, sign)
    # comparisons do not chain, and a - (b - c) is not a - b - c
    if level in (_COMPARISON, _SHIFT, _SUM, _PRODUCT):
        text = f"{a.at(level + (level == _COMPARISON))} {sign} {b.at(level + 1)}"
    else:
        text = f"{a.at(level)} {sign} {b.at(level)}"
    return Term(Rendered(text, _BOOL if level == _COMPARISON else kind, level, a.uses | b.uses))


def _unary(sign: str, x: Value) -> Term:
    a = x.rendered()
    return Term(Rendered(f"{sign}{a.at(_UNARY + (sign == '-' and a.level == _UNARY))}", a.dtype,
                         _UNARY, a.uses))


def _part(x: Value, name: str) -> Term:
    a = x.rendered()
    if a.dtype is None or not a.dtype.is_complex:
        raise CodegenError(f"{a.c} is not a complex number")
    return Term(Rendered(f"{a.at(_ATOM)}.{name}", a.dtype.part, _ATOM, a.uses))


def choose(condition: Operand, x: Operand, y: Operand, element: str | None = None) -> Term:
    """``x`` if a condition holds, else ``y``; two numbers need the type.

    Parameters
    ----------
    condition : Value or Expr
        A bool.
    x, y : Value, Expr or number
        The values to choose from.
    element : str, optional
        Their type, if both are numbers.

    Returns
    -------
    Term
        One of them.

    Examples
    --------
    >>> from cuteblas.codegen.values import choose, local, rendered
    >>> x = local("x", "float32")
    >>> rendered(choose(x < 0, -x, x)).c
    'x < 0 ? -x : x'
    """
    like = None if element is None else dtype(element)
    test = rendered(condition)
    if like is None:
        a, b, like = _common(x, y, ":")
    else:
        a, b = rendered(x, like), rendered(y, like)
    return Term(Rendered(f"{test.at(_ALL)} ? {a.at(_ALL)} : {b.at(_CHOICE)}", like, _CHOICE,
                         test.uses | a.uses | b.uses))


def number(x: bool | int | float, element: str) -> Term:
    """A number as a value of a type.

    Parameters
    ----------
    x : bool, int or float
        The number.
    element : str
        Its type.

    Returns
    -------
    Term
        The value.

    Examples
    --------
    >>> from cuteblas.codegen.values import number, rendered
    >>> rendered(number(1, "float64")).c
    '1'
    """
    kind = dtype(element)
    return Term(rendered(x, kind)._replace(dtype=kind))


def integer(x: IntLike) -> Term:
    """An index expression as a value, for the operators of values.

    Parameters
    ----------
    x : int or Expr
        The expression.

    Returns
    -------
    Term
        The value.

    Examples
    --------
    >>> from cuteblas.layout import Var
    >>> from cuteblas.codegen.values import integer, rendered
    >>> rendered(integer(Var("i") + 1) < Var("n")).c
    'i + 1 < n'
    """
    return Term(rendered(x))


def cast(x: Operand, element: str) -> Term:
    """Cast a value with ``static_cast``; :meth:`KernelBuilder.convert` rounds as NumPy does.

    Parameters
    ----------
    x : Value, Expr or number
        The value to cast.
    element : str
        The type.

    Returns
    -------
    Term
        The value in that type.

    Examples
    --------
    >>> from cuteblas.codegen.values import cast, local, rendered
    >>> rendered(cast(local("x", "float32"), "float64")).c
    'static_cast<double>(x)'
    """
    kind = dtype(element)
    a = rendered(x, kind)
    return Term(Rendered(f"static_cast<{kind.ctype}>({a.c})", kind, _ATOM, a.uses))


def complex_of(element: str, re: Operand, im: Operand) -> Term:
    """A complex number from its parts.

    Parameters
    ----------
    element : str
        A complex type.
    re, im : Value or number
        The parts.

    Returns
    -------
    Term
        The number.

    Examples
    --------
    >>> from cuteblas.codegen.values import complex_of, local, rendered
    >>> rendered(complex_of("complex64", local("re", "float32"), local("im", "float32"))).c
    'cb::complex<float>{re, im}'
    """
    kind = dtype(element)
    a, b = (rendered(x, kind.part) for x in (re, im))
    return Term(Rendered(f"{kind.ctype}{{{a.c}, {b.c}}}", kind, _ATOM, a.uses | b.uses))


def run_of(first: Value, count: int) -> Term:
    """Neighbouring elements of a fragment as an array that begins at the first."""
    a = first.rendered()
    assert a.dtype is not None
    return Term(Rendered(f"reinterpret_cast<{a.dtype.ctype} (&)[{count}]>({a.c})", a.dtype, _ATOM,
                         a.uses))
