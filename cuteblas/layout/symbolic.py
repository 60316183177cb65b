"""Symbolic integers: the dynamic leaves of layouts and the index expressions of generated kernels.

A leaf of a layout is a Python ``int`` (known when a kernel is generated) or an :class:`Expr` (known
when it runs). An ``Expr`` supports the integer operators of Python with Python's meaning (floor
division, non-negative ``%`` for a positive divisor), so that code written for ``int`` works on
both: evaluating a layout at symbolic coordinates *is* generating its index expression.

Every expression carries two facts that are kept exact enough to simplify with:

``lo``, ``hi``
    bounds of the value, infinite where nothing is known,
``bits``
    a two's complement mask of the bits that can be one (``value & ~bits == 0``); ``-8`` says "a
    multiple of 8", ``0x30`` says "only bits 4 and 5". Two values with disjoint bits add without a
    carry, so their sum is also their exclusive or; swizzles are linear over exclusive or, which is
    how a swizzled address splits into a part per thread and a constant per access.

Examples
--------
>>> t = Var("t", 0, 31)
>>> (t * 8 + 5) // 8, (t * 8 + 5) % 8
(t, 5)
>>> str((t // 4) * 16 + t % 4)
'(t >> 2) * 16 + (t & 3)'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import repeat
from math import gcd
from typing import Any, TypeVar

from .errors import LayoutError, described

_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_OPERATORS: dict[str, Callable[[int, int], int]] = {"mul": operator.mul, "div": operator.floordiv,
                                                    "mod": operator.mod, "and": operator.and_,
                                                    "xor": operator.xor, "all": operator.and_,
                                                    "min": min, "max": max, "lt": operator.lt,
                                                    "le": operator.le, "eq": operator.eq,
                                                    "ne": operator.ne}
_Result = TypeVar("_Result")

# of a bound that is not known; an infinite float cannot be added to every integer
_INFINITY: Any = Decimal("Infinity")


class _Fields:
    """An expression that is being made."""

    __slots__ = ("_hash", "_spelled", "args", "bits", "hi", "lo", "op")
    op: str
    args: tuple[Any, ...]
    lo: int
    hi: int
    bits: int
    _hash: int
    _spelled: tuple[str, int, frozenset[str]] | None     # as :func:`spelled` returns it


def _operator(compute: Callable[[Any, Any], _Result]) -> Callable[[Expr, IntLike], _Result]:
    """A method of :class:`Expr` that computes with an integer or an expression."""
    def method(self: Expr, other: IntLike) -> _Result:
        return compute(self, other) if isinstance(other, _INTEGERS) else NotImplemented
    return method


class Expr(_Fields):
    """An immutable integer (or, for comparisons, boolean) expression.

    Build expressions from :func:`Var` with operators. ``==`` and ``hash`` are structural, so
    expressions can be dictionary keys and members of hashable layouts; numeric comparisons are
    ``<`` and ``>`` and the methods :meth:`eq`, :meth:`ne`. They are expressions, or ``bool`` where
    the bounds decide them.

    Parameters
    ----------
    op : str
        The operation.
    args : tuple
        What it is applied to.
    lo, hi : int or None
        Inclusive bounds; ``None`` is unbounded.
    bits : int, optional
        Mask of the bits that can be one.

    Examples
    --------
    >>> i = Var("i", 0, 8)
    >>> print(4 * i + 1, (4 * i) % 4)
    i * 4 + 1 0
    """

    __slots__ = ()

    def __new__(cls, op: str, args: tuple, lo: int | None, hi: int | None,
                bits: int | None = None) -> Expr:
        x: Any = object.__new__(_Fields)
        x.op, x.args, x._hash, x._spelled = op, args, hash((op, args)), None
        x.lo = -_INFINITY if lo is None else lo
        x.hi = _INFINITY if hi is None else hi
        x.bits = -1 if bits is None else bits
        if x.lo >= 0 and x.hi < _INFINITY:
            x.bits &= (1 << x.hi.bit_length()) - 1
        x.__class__ = cls
        return x

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an Expr is immutable")

    def __reduce__(self):
        return (Expr, (self.op, self.args, self.lo, self.hi, self.bits))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.op == other.op and self.args == other.args

    def __bool__(self) -> bool:
        raise TypeError(
            f"the symbolic expression '{self}' is neither true nor false until the kernel runs"
        )

    def __repr__(self) -> str:
        return _c(self, 0)

    # -- arithmetic --------------------------------------------------------------------------------
    def __add__(self, other: IntLike) -> IntLike:
        if type(other) is int:
            const, terms = _terms(self)
            return _make_sum(const + other, terms) if other else self
        return total((self, other)) if isinstance(other, _INTEGERS) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> IntLike:
        return _scale(self, -1)

    __sub__ = _operator(lambda x, y: total((x, _scale(y, -1))))
    __rsub__ = _operator(lambda x, y: total((y, _scale(x, -1))))
    __mul__ = __rmul__ = _operator(lambda x, y: _mul(x, y))
    __floordiv__ = _operator(lambda x, y: _divmod(x, y)[0])
    __rfloordiv__ = _operator(lambda x, y: _divmod(y, x)[0])
    __mod__ = _operator(lambda x, y: _divmod(x, y)[1])
    __rmod__ = _operator(lambda x, y: _divmod(y, x)[1])
    __divmod__ = _operator(lambda x, y: _divmod(x, y))
    __rdivmod__ = _operator(lambda x, y: _divmod(y, x))
    __and__ = __rand__ = _operator(lambda x, y: _and(x, y))
    __xor__ = __rxor__ = _operator(lambda x, y: _xor((x, y)))

    def __lshift__(self, n: int) -> IntLike:
        return _scale(self, 1 << n)

    def __rshift__(self, n: int) -> IntLike:
        return self // (1 << n)

    # -- comparisons (booleans) --------------------------------------------------------------------
    __lt__ = _operator(lambda x, y: _compare("lt", x, y))
    __gt__ = _operator(lambda x, y: _compare("lt", y, x))

    def eq(self, other: IntLike) -> Condition:
        """``self == other`` as an expression, or a ``bool`` where the bounds decide it."""
        return _compare("eq", self, other)

    def ne(self, other: IntLike) -> Condition:
        """``self != other`` as an expression, or a ``bool`` where the bounds decide it."""
        return _compare("ne", self, other)


IntLike = int | Expr
Condition = Expr | bool
_INTEGERS = (int, Expr)


def Var(name: str, lo: int | None = 0, hi: int | None = None, bits: int | None = None) -> Expr:
    """A named integer that is known when the kernel runs.

    Parameters
    ----------
    name : str
        A C identifier.
    lo, hi : int or None
        Inclusive bounds; ``None`` is unbounded. The default is a non-negative integer.
    bits : int or None
        Mask of the bits that can be one (see the module), ``None`` if nothing is known.

    Returns
    -------
    Expr
        The variable.

    Raises
    ------
    LayoutError
        If the name is not an identifier, or a bound is not an integer.

    Examples
    --------
    >>> M = Var("M")
    >>> print(Layout((M, 8), (8, 1)), ceil_div(M, 32))
    (M,8):(8,1) (M + 31) >> 5
    """
    if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
        raise LayoutError("Var",
                          f"the name of a symbolic integer is an identifier, got {described(name)}")
    for fact in (lo, hi, bits):
        if fact is not None and type(fact) is not int:
            raise LayoutError("Var", f"a bound is an integer or None, got {described(fact)}", name)
    return Expr("var", (name,), lo, hi, bits)


# -- facts -----------------------------------------------------------------------------------------
def is_static(x: object) -> bool:
    """Whether ``x`` is a Python integer, that is, known when a kernel is generated."""
    return isinstance(x, int) and not isinstance(x, bool)


def bounds(x: IntLike) -> tuple[int, int]:
    """Inclusive lower and upper bound of ``x``, perhaps infinite."""
    return (x, x) if isinstance(x, int) else (x.lo, x.hi)


def bits_of(x: IntLike) -> int:
    """Mask of the bits of ``x`` that can be one, in two's complement."""
    return x if isinstance(x, int) else x.bits


def _trailing_zeros(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else 64


def _nonneg(x: IntLike) -> bool:
    return bounds(x)[0] >= 0


# -- sums: a constant and integer multiples of terms -----------------------------------------------
def _terms(x: IntLike) -> tuple[int, tuple[tuple[int, Expr], ...]]:
    """``x`` as ``constant + sum(coefficient * term)``."""
    if isinstance(x, int):
        return int(x), ()
    if x.op == "sum":
        return x.args
    return 0, ((1, x),)


def total(parts: Iterable[IntLike]) -> IntLike:
    const = 0
    coef: dict[Expr, int] = {}
    for part in parts:
        if isinstance(part, int):
            const += part
        elif part.op == "sum":
            const += part.args[0]
            for k, t in part.args[1]:
                coef[t] = coef.get(t, 0) + k
        else:
            coef[part] = coef.get(part, 0) + 1
    return _make_sum(const, tuple([(k, t) for t, k in coef.items() if k]))


def _make_sum(const: int, terms: tuple[tuple[int, Expr], ...]) -> IntLike:
    if not terms:
        return const
    if const == 0 and len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    lo = hi = bits = any_bits = const
    carry_free = True
    for k, t in terms:
        tlo, thi = (t.lo, t.hi) if k > 0 else (t.hi, t.lo)
        lo += k * tlo
        hi += k * thi
        tbits = k * t.bits
        any_bits |= tbits
        if carry_free:
            if k < 0 or k & (k - 1):       # only what divides all values is known of such a product
                tbits = -(tbits & -tbits)
                if k > 0 and tlo >= 0 and thi < _INFINITY:
                    tbits &= (1 << (k * thi).bit_length()) - 1
            carry_free = bits & tbits == 0
            bits |= tbits
    return Expr("sum", (const, terms), lo, hi, bits if carry_free else -(any_bits & -any_bits))


def _scale(x: IntLike, k: int) -> IntLike:
    const, terms = _terms(x)
    return _make_sum(const * k, tuple((c * k, t) for c, t in terms)) if k else 0


def _mul(a: IntLike, b: IntLike) -> IntLike:
    if isinstance(a, int):
        return _scale(b, int(a))
    if isinstance(b, int):
        return _scale(a, int(b))
    ka, fa = _factors(a)
    kb, fb = _factors(b)
    if ka * kb != 1:
        return _scale(_product(fa + fb), ka * kb)
    corners = [x * y if x and y else 0 for x in bounds(a) for y in bounds(b)]
    return Expr("mul", fa + fb, min(corners), max(corners),
                -(1 << (_trailing_zeros(a.bits) + _trailing_zeros(b.bits))))


def _factors(x: Expr) -> tuple[int, tuple[Expr, ...]]:
    if x.op == "mul":
        return 1, x.args
    if x.op == "sum" and x.args[0] == 0 and len(x.args[1]) == 1:
        k, t = x.args[1][0]
        return k, _factors(t)[1]
    return 1, (x,)


def _product(factors: Iterable[IntLike]) -> IntLike:
    return reduce(_mul, factors)


# -- division --------------------------------------------------------------------------------------
def _split(x: IntLike, d: int) -> tuple[IntLike, IntLike]:
    """``x == d * q + r`` with everything that is visibly a multiple of ``d`` in ``q``."""
    const, terms = _terms(x)
    quotient: list[tuple[int, IntLike]] = []
    rest: list[tuple[int, Expr]] = []
    for k, t in terms:
        if k % d == 0:
            quotient.append((k // d, t))
        elif d & (d - 1) == 0 and t.bits and (t.bits * (k & -k)) & (d - 1) == 0 and t.op != "sum":
            low = k & -k
            quotient.append((k // low, _shift_right(t, (d // low).bit_length() - 1)))
        else:
            rest.append((k, t))
    q = total([_scale(t, k) for k, t in quotient])
    return q + const // d, _make_sum(const % d, tuple(rest))


def _shift_right(x: Expr, n: int) -> IntLike:
    if n == 0:
        return x
    lo, hi = x.lo // (1 << n), x.hi // (1 << n)
    if lo == hi:
        return lo
    if x.op == "div" and isinstance(x.args[1], int):
        return x.args[0] // (x.args[1] << n)
    return Expr("div", (x, 1 << n), lo, hi, x.bits >> n)


def _divmod(a: IntLike, b: IntLike) -> tuple[IntLike, IntLike]:
    """The quotient, rounded down, and what remains."""
    if isinstance(a, int) and isinstance(b, int):
        return divmod(a, b)
    if isinstance(b, Expr):
        return _divmod_by_symbol(a, b)
    if b <= 0:
        raise ZeroDivisionError(f"'{a}' // {b}: the divisor must be positive")
    if b == 1:
        return a, 0
    q, r = _split(a, b)
    lo, hi = (bound // b for bound in bounds(r))
    if lo == hi:
        return q + lo, r - lo * b
    g, x = _reduced(r, b)
    if g > 1:                                  # r == g * x + c % g, and b == g * d
        quotient, rest = _divmod(x, b // g)
        return q + quotient, g * rest + _terms(r)[0] % g
    assert isinstance(r, Expr)
    inner = r.args[1] if r.op in ("div", "mod") and isinstance(r.args[1], int) else 0
    if r.op == "mod" and inner and inner % b == 0:
        quotient, rest = _divmod(r.args[0], b)
        return q + quotient % (inner // b), rest
    mask = b - 1 if b & (b - 1) == 0 else 0
    rest = Expr("mod", (r, b), 0, b - 1, r.bits & mask if mask else None)
    if r.op == "div" and inner:
        return q + r.args[0] // (inner * b), rest
    return q + Expr("div", (r, b), lo, hi, r.bits >> mask.bit_length() if mask else None), rest


def _divmod_by_symbol(a: IntLike, b: Expr) -> tuple[IntLike, IntLike]:
    if a == b:
        return 1, 0
    if isinstance(a, int) and a == 0:
        return 0, 0
    high, low = _split_by_bits(a, b)
    if low != 0:                                     # the low bits reach no multiple of the divisor
        quotient, rest = _divmod(high, b)
        return quotient, rest + low
    lo, hi = (0, bounds(a)[1]) if _nonneg(a) else (None, _INFINITY)
    quotient = Expr("div", (a, b), lo, hi)
    if hi < b.lo:
        return quotient, a
    zeros = min(_trailing_zeros(bits_of(a)), _trailing_zeros(b.bits))
    return quotient, Expr("mod", (a, b), 0, min(hi, b.hi - 1), -(1 << zeros))


def _reduced(x: IntLike, d: int) -> tuple[int, IntLike]:
    """The common divisor of ``d`` and of the terms of ``x``, and ``x`` over it, rounded down."""
    const, terms = _terms(x)
    g = gcd(d, *(k for k, _ in terms))
    return g, _make_sum(const // g, tuple((k // g, t) for k, t in terms))


def _split_by_bits(a: IntLike, b: Expr) -> tuple[IntLike, IntLike]:
    """``a == high + low``: ``high`` a multiple of a power of two that divides ``b``."""
    for zeros in range(_trailing_zeros(b.bits), 0, -1):
        low = _split(a, 1 << zeros)[1]
        if _nonneg(low) and bounds(low)[1] < 1 << zeros and _nonneg(a - low):
            return a - low, low
    return a, 0


# -- bits ------------------------------------------------------------------------------------------
def _and(a: IntLike, b: IntLike) -> IntLike:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a & b
    if isinstance(b, int):
        live = a.bits & b
        if live == 0:
            return 0
        if live == a.bits:
            return a
        b = live if b >= 0 or a.bits >= 0 else b
        if b >= 0 and b & (b + 1) == 0:
            return a % (b + 1)
        if a.op == "and" and isinstance(a.args[1], int):
            return _and(a.args[0], a.args[1] & b)
        if a.op == "sum" and len(parts := xor_parts(a)) > 1:
            return total(_and(p, b) for p in parts)
        return Expr("and", (a, b), 0 if b >= 0 else None, b if b >= 0 else None, live)
    return Expr("and", (a, b), 0 if _nonneg(a) or _nonneg(b) else None, None, a.bits & b.bits)


def _carry_free(parts: list[IntLike]) -> bool:
    seen = 0
    for p in parts:
        if seen & bits_of(p):
            return False
        seen |= bits_of(p)
    return True


def _xor(parts: Iterable[IntLike]) -> IntLike:
    const = 0
    terms: list[Expr] = []
    for p in parts:
        for t in xor_parts(p):
            if isinstance(t, int):
                const ^= int(t)
            else:
                terms.remove(t) if t in terms else terms.append(t)
    if not terms:
        return const
    # What shares no bit with the rest is added instead: sums cancel and fold, exclusive ors do not.
    live = reduce(operator.or_, [t.bits for t in terms])
    apart: list[IntLike] = [const & ~live] if const >= 0 and const & ~live else []
    once = const = const & live if const >= 0 else const
    twice = 0                                            # bits that several of them can have
    for t in terms:
        twice |= once & t.bits
        once |= t.bits
    apart += [t for t in terms if not t.bits & twice]
    if apart:
        return total([*apart, _xor([const, *(t for t in terms if t.bits & twice)])])
    bits = const | live
    nonneg = bits >= 0 or (const >= 0 and all(_nonneg(t) for t in terms))
    return Expr("xor", (const, tuple(terms)), 0 if nonneg else None, bits if bits >= 0 else None,
                bits)


# -- comparisons, selection ------------------------------------------------------------------------
def _compare(op: str, a: IntLike, b: IntLike) -> Condition:
    lo, hi = bounds(a - b)
    if op in ("lt", "le"):
        least = 0 if op == "lt" else 1      # the smallest difference for which the comparison fails
        if hi < least:
            return True
        if lo >= least:
            return False
    else:
        if lo == hi == 0:
            return op == "eq"
        if lo > 0 or hi < 0:
            return op == "ne"
    return Expr(op, (a, b), 0, 1)


def equal(a: IntLike, b: IntLike) -> Condition:
    return _compare("eq", a, b)


def all_of(*conditions: Condition) -> Condition:
    """The conjunction: ``True`` when all are known to hold, ``False`` when one is known not to."""
    live: list[Expr] = []
    for c in conditions:
        if c is False:
            return False
        if isinstance(c, Expr):
            for part in c.args if c.op == "all" else (c,):
                if part not in live:
                    live.append(part)
    return True if not live else live[0] if len(live) == 1 else Expr("all", tuple(live), 0, 1)


def select(condition: Condition, a: IntLike, b: IntLike) -> IntLike:
    if isinstance(condition, bool):
        return a if condition else b
    if a == b:
        return a
    lows, highs = zip(bounds(a), bounds(b), strict=True)
    return Expr("select", (condition, a, b), min(lows), max(highs), bits_of(a) | bits_of(b))


def minimum(a: IntLike, b: IntLike) -> IntLike:
    return _extreme("min", a, b)


def maximum(a: IntLike, b: IntLike) -> IntLike:
    return _extreme("max", a, b)


def _extreme(op: str, a: IntLike, b: IntLike) -> IntLike:
    less = _compare("le", a, b)
    if isinstance(less, bool):
        return a if less == (op == "min") else b
    lo, hi = map(_OPERATORS[op], bounds(a), bounds(b))
    return Expr(op, (a, b), lo, hi, bits_of(a) | bits_of(b))


def entry(array: str, index: IntLike, value: IntLike) -> IntLike:
    """``value``, which the source has stored as ``array[index]`` and which is written so."""
    if isinstance(value, int):
        return value
    return Expr("entry", (array, index, value), value.lo, value.hi, value.bits)


def xor_parts(x: IntLike) -> tuple[IntLike, ...]:
    """Parts whose exclusive or is ``x``: the terms of a sum without carries, else ``x`` alone."""
    if isinstance(x, int):
        return (x,)
    if x.op == "xor":
        const, terms = x.args
        return tuple(p for t in (const, *terms) for p in xor_parts(t) if p != 0)
    const, terms = _terms(x)
    parts = [const, *(_scale(t, k) for k, t in terms)]
    return tuple(p for p in parts if p != 0) if _carry_free(parts) else (x,)


def ceil_div(a: IntLike, b: IntLike) -> IntLike:
    return (a + (b - 1)) // b


# -- reading expressions ---------------------------------------------------------------------------
def operands(x: Expr) -> Iterable[IntLike]:
    """The expressions whose values make that of ``x``."""
    if x.op == "xor":
        return (x.args[0], *x.args[1])
    return x.args[2:] if x.op == "entry" else _parts(x)


def variables(x: IntLike) -> frozenset[str]:
    if isinstance(x, int):
        return frozenset()
    return frozenset(x.args) if x.op == "var" else frozenset().union(*map(variables, operands(x)))


def evaluate(x: IntLike, values: Mapping[str, int]) -> int:
    """The value of ``x`` for given values of its variables."""
    if isinstance(x, int):
        return x
    return values[x.args[0]] if x.op == "var" else int(combined(x, [evaluate(part, values)
                                                                    for part in operands(x)]))


def combined(x: Expr, values: Sequence[Any]) -> Any:
    """The value of ``x`` from those of its :func:`operands`, integers or lists by case."""
    if x.op == "sum":
        total: Any = x.args[0]
        for (k, _), value in zip(x.args[1], values, strict=True):
            total = _each(operator.add, total, value if k == 1 else _each(operator.mul, k, value))
        return total
    if x.op == "select":
        return _each(lambda test, a, b: a if test else b, *values)
    return values[0] if x.op == "entry" else reduce(partial(_each, _OPERATORS[x.op]), values)


def _each(f: Callable, *values: Any) -> Any:
    if list not in map(type, values):
        return f(*values)
    return list(map(f, *(v if type(v) is list else repeat(v) for v in values)))


def to_c(x: IntLike) -> str:
    return spelled(x)[0]


def spelled(x: IntLike) -> tuple[str, int, frozenset[str]]:
    """``x`` as a C expression (:func:`to_c`), its precedence (see the levels below), and the names
    of the functions that it calls."""
    if isinstance(x, int):
        return *_c_parts(x), frozenset()
    if x._spelled is None:
        calls = {part.op for part in _written(x)} & {"min", "max"}
        object.__setattr__(x, "_spelled", (*_c_parts(x), frozenset(calls)))
    return x._spelled  # type: ignore[return-value]


def is_condition(x: IntLike) -> bool:
    """Whether ``x`` is true or false."""
    return isinstance(x, Expr) and (x.op in _COMPARISONS or x.op == "all")


def _parts(x: Expr) -> Iterable[IntLike]:
    if x.op == "entry":
        return (x.args[1],)
    return (t for _, t in x.args[1]) if x.op == "sum" else x.args[1] if x.op == "xor" else x.args


def _written(x: Expr) -> Iterator[Expr]:
    """``x`` and the expressions in its text, whose divisions are those of C."""
    if x.op in ("div", "mod"):
        a, b = x.args
        if not _nonneg(a) and not (isinstance(b, int) and b & (b - 1) == 0):
            raise ValueError(
                f"'{a}' may be negative, and C divides toward zero: it cannot be divided by {b}"
            )
    yield x
    if x.op != "var":
        for part in _parts(x):
            if isinstance(part, Expr):
                yield from _written(part)


# Precedence levels, low to high: ?: 1, && 2, | 3, ^ 4, & 5, comparison 6, shift 8, + 9, * 10,
# unary 11. By operation: its operator, the least level of operands without parentheses, and its own
# level.
_INFIX = {"and": (" & ", 10, 5), "all": (" && ", 6, 2),
          **{op: (f" {symbol} ", 8, 6) for op, symbol in _COMPARISONS.items()}}


def _c(x: IntLike, level: int) -> str:
    text, own = _c_parts(x)
    return f"({text})" if own < level else text


def _c_parts(x: IntLike) -> tuple[str, int]:
    if isinstance(x, int):
        return (str(int(x)) if -(2**31) < x < 2**31 else f"{int(x)}LL"), (12 if x >= 0 else 9)
    if x._spelled is not None:
        return x._spelled[:2]
    if x.op == "var":
        return x.args[0], 12
    if x.op == "entry":
        return f"{x.args[0]}[{_c(x.args[1], 0)}]", 12
    if x.op == "sum":
        const, terms = x.args
        out = ""
        for k, t in sorted(terms, key=lambda kt: kt[0] < 0):
            body = _c(t, 10 if k > 0 else 11) + (f" * {_c_parts(abs(k))[0]}" if abs(k) != 1 else "")
            out += body if not out and k > 0 else f"-{body}" if not out else f" + {body}" if k > 0 else f" - {body}"
        if const:
            out += f" + {const}" if const > 0 else f" - {-const}"
        single = len(terms) == 1 and const == 0 and terms[0][0] > 0
        return out, 10 if single else 9
    if x.op == "mul":
        return " * ".join(_c(f, 11 if i else 10) for i, f in enumerate(x.args)), 10
    if x.op in ("div", "mod"):
        a, b = x.args
        if isinstance(b, int) and b & (b - 1) == 0:
            if x.op == "mod":
                return f"{_c(a, 10)} & {b - 1}", 5
            return f"{_c(a, 10)} >> {b.bit_length() - 1}", 8
        return f"{_c(a, 10)} {'/' if x.op == 'div' else '%'} {_c(b, 11)}", 10
    if x.op == "xor":
        const, terms = x.args
        return " ^ ".join([_c(t, 10) for t in terms] + ([str(const)] if const else [])), 4
    if x.op in _INFIX:
        symbol, level, own = _INFIX[x.op]
        return symbol.join(_c(part, level) for part in x.args), own
    if x.op == "select":
        return f"{_c(x.args[0], 2)} ? {_c(x.args[1], 2)} : {_c(x.args[2], 2)}", 1
    return f"cb::{x.op}({_c(x.args[0], 0)}, {_c(x.args[1], 0)})", 12
