"""Checks of arguments: a *kind* maps an argument and the operation's name to the argument, or
raises.

Annotations name the kinds of parameters, which :func:`checked` applies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from itertools import chain, repeat
from types import NoneType
from typing import Annotated, Any, TypeVar

from .basis import ArithTuple, ScaledBasis
from .errors import LayoutError, described
from .symbolic import Expr

BITS = 1024
"""Bits of a given integer, at most: it can be printed, and makes no computation long."""

NESTING = 64
"""How deep tuples nest, at most."""

MODES = 1 << 16
"""Modes of a tuple, at most."""

_LEAST, _MOST = 1 - (1 << BITS), (1 << BITS) - 1

Kind = Callable[[Any, str], Any]
_F = TypeVar("_F", bound=Callable)


class Shaped:
    """Anything with a ``shape``: layouts, composed layouts, tensors."""

    __slots__ = ()
    shape: Any


def integer(x: Any, op: str, expected: str = "expected an integer", *operands: Any) -> int:
    """``x`` as a plain integer, from anything with ``__index__`` but a bool."""
    if type(x) is not int:
        if isinstance(x, bool) or not hasattr(type(x), "__index__"):
            raise LayoutError(op, f"{expected}, got {described(x)}", *operands)
        x = operator.index(x)
    if not _LEAST <= x <= _MOST:
        raise LayoutError(op, f"the integer has {x.bit_length()} bits, more than {BITS}")
    return x


def _tree(x: Any, op: str, leaf: Kind, levels: int = NESTING) -> Any:
    """``x`` with ``leaf(entry, op)`` in the place of each entry that is not a tuple."""
    if not isinstance(x, tuple):
        return leaf(x, op)
    if not x:
        raise LayoutError(op, "an empty tuple is not a mode", x)
    if levels == 0:
        raise LayoutError(op, f"tuples nest at most {NESTING} levels deep")
    if len(x) > MODES:
        raise LayoutError(op, f"a tuple has at most {MODES} modes")
    entries = [i if type(i) is int and _LEAST <= i <= _MOST else _tree(i, op, leaf, levels - 1)
               for i in x]
    return ArithTuple(*entries) if isinstance(x, ArithTuple) else tuple(entries)


def _leaf(expected: str, *others: type) -> Kind:
    """The kind of an integer, of an expression, and of what has one of further types."""
    return lambda x, op: x if isinstance(x, (Expr, *others)) else integer(x, op, expected)


_INTEGERS = "expected an integer or a tuple of them"
_number, _stride = _leaf(_INTEGERS), _leaf(_INTEGERS, ScaledBasis)
_free, _any = _leaf(_INTEGERS, NoneType), _leaf(_INTEGERS, NoneType, ScaledBasis)
_tile = _leaf("a tiler is a layout, an integer, None or a tuple", NoneType, Shaped)


# -- kinds -----------------------------------------------------------------------------------------
def inttuple(x: Any, op: str) -> Any:
    return x if type(x) is int and _LEAST <= x <= _MOST else _tree(x, op, _number)


def strides(x: Any, op: str) -> Any:
    """An IntTuple whose leaves may be basis elements."""
    return _tree(x, op, _stride)


def coordinate(x: Any, op: str) -> Any:
    """An IntTuple whose leaves may be ``None``."""
    return x if type(x) is int else _tree(x, op, _free)


def tiler_like(x: Any, op: str) -> Any:
    """A swizzle, or a coordinate whose leaves may be layouts too."""
    return x if hasattr(x, "period") else _tree(x, op, _tile)


def index(x: Any, op: str) -> Any:
    return x if isinstance(x, Expr) else integer(x, op)


def _or_shaped(kind: Kind) -> Kind:
    """A kind, or something that has a shape."""
    return lambda x, op: x if isinstance(x, Shaped) else kind(x, op)


described_by_modes = _or_shaped(lambda x, op: _tree(x, op, _any))


def nested(x: Any, op: str) -> Any:
    _tree(x, op, _anything)
    return x


def positive(x: Any, op: str) -> int:
    if (n := integer(x, op)) <= 0:
        raise LayoutError(op, f"expected an integer above 0, got {described(x)}")
    return n


def with_domain(x: Any, op: str) -> Any:
    if not isinstance(x, Shaped):
        raise LayoutError(op, f"expected a layout or a tensor, got {described(x)}")
    return x


IntTuple = Annotated[Any, inttuple]
Strides = Annotated[Any, strides]
Coordinate = Annotated[Any, coordinate]
Shape = Annotated[Any, _or_shaped(inttuple)]
Tiler = Annotated[Any, tiler_like]
Index = Annotated[Any, index]
Divisor = Annotated[Any, _or_shaped(coordinate)]
Modes = Annotated[Any, described_by_modes]
Nested = Annotated[Any, nested]
Domain = Annotated[Any, with_domain]
Whole = Annotated[int, integer]
Positive = Annotated[int, positive]


# -- functions of checked arguments ----------------------------------------------------------------
def checked(f: _F) -> _F:
    """Apply the kinds that annotations name; a default of ``None`` is passed on."""
    op = f.__name__.rstrip("_")
    parameters = signature(f).parameters.values()
    by_name = {p.name: _kind_of(p, f.__globals__) for p in parameters}
    each = [*by_name.values()]
    several = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    # no parameter follows one of several arguments
    further = each.pop() if several else _anything

    @wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {name: by_name.get(name, _anything)(x, op) for name, x in kwargs.items()}
        return f(*[kind(x, op) for kind, x in zip(chain(each, repeat(further)), args,
                                                  strict=False)], **kwargs)

    return wrapper  # type: ignore[return-value]


def _kind_of(parameter: Parameter, names: Mapping[str, Any]) -> Kind:
    annotation = names.get(str(parameter.annotation).removesuffix(" | None"))
    kind, = getattr(annotation, "__metadata__", (_anything,))
    return _or_none(kind) if parameter.default is None else kind


def _anything(x: Any, op: str) -> Any:
    return x


def _or_none(kind: Kind) -> Kind:
    return lambda x, op: None if x is None else kind(x, op)
