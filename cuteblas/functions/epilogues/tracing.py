"""Values that record what an epilogue's function computes, instead of computing it.

A :class:`Traced` value has the type that NumPy would give it (``ufunc.resolve_dtypes``). float16
is computed in float32 and rounded after every operation, as in NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NoReturn

import numpy as np

from ..._dtypes import element_of
from ...codegen.epilogue import FUNCTIONS, Node
from ...engines.dispatch import ByName, Func

# what a kernel can reasonably hold; recursive readers of a graph cope with it
_MOST_OPERATIONS = 500
_DEFAULTS: dict[type, np.dtype] = {bool: np.dtype(bool), int: np.dtype(np.int64),
                                   float: np.dtype(np.float64), complex: np.dtype(np.complex128)}
_LARGEST_INT64 = 2**63 - 1
_RANKS = {bool: 0, int: 1, float: 2, complex: 3}
_OF_COMPLEX = frozenset({"add", "subtract", "multiply", "divide", "negative", "absolute", "square",
                         "reciprocal", "conj", "equal", "not_equal", "isnan"})
_OF_BOOL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
            "invert": "logical_not"}
_RENAMED = {"conjugate": "conj", "fabs": "absolute", "expit": "sigmoid", **_OF_BOOL}
_SPECIAL = frozenset({"erf", "sigmoid"})                      # functions that NumPy lacks
_NAMED = ", ".join(sorted({*FUNCTIONS} - {"cast", "where", "real", "imag", "conj"}))
_OFFER = f"they support operators, .real, .imag, .conj(), .astype(), numpy.where, numpy.clip and {_NAMED}"


def value_type(dtype: np.dtype) -> str:
    row = element_of(dtype)
    return dtype.name if row is None else row.computed


@cache
def _supported(dtype: np.dtype) -> np.dtype:
    if element_of(dtype) is None:
        raise TypeError(f"epilogues do not support values of type {dtype}")
    return dtype


@lru_cache(maxsize=4096)
def _result_types(ufunc: np.ufunc, types: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    return ufunc.resolve_dtypes((*types, None))


_BINARY = (np.add, np.subtract, np.multiply, np.divide, np.bitwise_and, np.bitwise_or,
           np.bitwise_xor)


def _forward(ufunc: np.ufunc) -> Callable[..., Traced]:
    return lambda self, *other: _operator(ufunc, self, *other)


def _reflected(ufunc: np.ufunc) -> Callable[..., Traced]:
    return lambda self, other: _operator(ufunc, other, self)


def _refusal(text: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise TypeError(text)

    return refuse


def _reducer(op: str) -> Callable[..., Reduction]:
    def reduced(x: Any, axis: Any = None, dtype: Any = None, out: Any = None,
                **others: Any) -> Reduction:
        return Reduction.of(x if isinstance(x, Input) else as_traced(x), op, axis,
                            {"dtype": dtype, "out": out, **others})

    return reduced


class _Reducible:
    """What sums and extrema over an axis are taken of, as auxiliary outputs."""

    __slots__ = ()
    sum, max, min = map(_reducer, ("sum", "max", "min"))


class Traced(_Reducible):
    """A value in the graph with NumPy's type of it (``kind``); ``weak`` is the Python type of a
    number that takes on another's type, ``full`` says that it is as large as the result."""

    __slots__ = ("full", "kind", "node", "weak")
    __array_priority__ = 1000
    __hash__ = None                     # type: ignore[assignment]

    def __init__(self, node: Node, kind: np.dtype, weak: type | None = None, full: bool = False):
        self.node, self.kind, self.weak, self.full = node, kind, weak, full

    def __getattribute__(self, name: str) -> Any:
        # not of Python numbers, which the function sees in NumPy
        if name in _OF_ARRAYS and self.weak:
            raise AttributeError
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"<{self.node}: {self.weak.__name__ if self.weak else self.kind}>"

    # -- operators ---------------------------------------------------------------------------------
    __add__, __sub__, __mul__, __truediv__, __and__, __or__, __xor__ = map(_forward, _BINARY)
    __radd__, __rsub__, __rmul__, __rtruediv__, __rand__, __ror__, __rxor__ = map(_reflected,
                                                                                  _BINARY)
    __lt__, __le__, __gt__, __ge__ = map(_forward, (np.less, np.less_equal, np.greater,
                                                    np.greater_equal))
    __eq__, __ne__ = map(_forward, (np.equal, np.not_equal))  # type: ignore[assignment]
    __neg__, __pos__, __abs__, __invert__ = map(_forward, (np.negative, np.positive, np.absolute,
                                                           np.invert))
    __rpow__ = _reflected(np.power)

    def __pow__(self, other: Any) -> Traced:
        return _power(self, other)

    # -- what NumPy's arrays have ------------------------------------------------------------------
    @property
    def real(self) -> Traced:
        return _part(self, "real")

    @property
    def imag(self) -> Traced:
        return _part(self, "imag")

    @property
    def dtype(self) -> np.dtype:
        return self.kind

    def conjugate(self) -> Traced:
        return _operator(np.conjugate, self) if self.weak or self.kind.kind == "c" else self

    conj = conjugate

    def astype(self, dtype: Any, *how: Any, **named: Any) -> Traced:
        """The value in another type; complex values have no real type."""
        kind = _supported(np.dtype(dtype))
        value = Traced(cast(self, kind), kind, None, self.full)
        _stand_in(self).astype(kind, *how, **named)
        return value

    def copy(self, *how: Any, **named: Any) -> Traced:
        _stand_in(self).copy(*how, **named)
        return self

    def clip(self, min: Any = None, max: Any = None, **others: Any) -> Traced:
        return _clip(self, min, max, **others)

    def round(self, decimals: int = 0, **others: Any) -> Traced:
        return _round(self, decimals, **others)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any,
                        **arguments: Any) -> Traced:
        if method != "__call__":
            raise TypeError(
                f"an epilogue computes element by element, and numpy.{ufunc.__name__}.{method} does not; sums and "
                f"extrema over an axis are auxiliary outputs: x.sum(axis=-1)"
            )
        if arguments:
            raise TypeError(
                f"in an epilogue, numpy.{ufunc.__name__} takes no argument {next(iter(arguments))!r}"
            )
        return apply(ufunc, *inputs)

    def __array_function__(self, function: Any, _types: Any, args: tuple[Any, ...],
                           arguments: ByName) -> Any:
        own = ARRAY_FUNCTIONS.get(function)
        if own is None:
            name = f"{getattr(function, '__module__', 'numpy')}.{getattr(function, '__name__', function)}"
            raise TypeError(f"epilogues do not support {name}; {_OFFER}")
        with np.errstate(all="ignore"):                 # NumPy refuses what it does not take
            function(*map(_stand_in, args), **{name: _stand_in(x) for name, x in arguments.items()})
        return own(*args, **arguments)

    # -- what a value that has no number cannot do -------------------------------------------------
    __bool__ = _refusal(
        "an epilogue cannot branch on a value (if, and, or, not, min, max), because it is traced once for all "
        "elements; choose with numpy.where(condition, x, y), numpy.maximum and numpy.minimum, and combine "
        "conditions with & | ~"
    )
    __float__ = __int__ = __complex__ = __index__ = __array__ = __round__ = __floor__ = __ceil__ = __trunc__ = _refusal(
        "an epilogue's values are not known while it is traced, so they cannot become Python numbers or arrays; "
        "use numpy's functions (numpy.exp, not math.exp) and x.astype(dtype)"
    )
    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _refusal(
        "an epilogue sees one element at a time, so its values have no length, items or shape; numpy.where "
        "replaces x[x < 0] = 0"
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __lshift__ = __rlshift__ = __rshift__ = \
        __rrshift__ = __matmul__ = __rmatmul__ = _refusal(
            f"epilogues do not support the operators // % << >> @; {_OFFER}")

    def __getattr__(self, name: str) -> NoReturn:
        whose = "a Python number has" if self.weak else "an epilogue's values have"
        known = not name.startswith("__") and any(hasattr(kind, name)
                                                  for kind in ([self.weak] if self.weak
                                                               else _ARRAYS))
        raise (TypeError if known else AttributeError)(f"{whose} no {name!r}; {_OFFER}")


class _Opaque:
    """What nothing can be computed with."""

    __array_ufunc__ = None
    __hash__ = None                     # type: ignore[assignment]

    def __init__(self, why: str):
        self._why = why

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(self._why)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = \
        __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __abs__ = __and__ = __or__ = __xor__ = __invert__ = __bool__ = \
        __float__ = __array__ = __getitem__ = __matmul__ = __array_function__ = _refuse


class Reduction(_Opaque):
    """A sum or an extremum over an axis, as an auxiliary output; ``source`` may be "a" or "b"."""

    def __init__(self, source: Traced | str, op: str, axis: int):
        super().__init__(
            f"the {op} over an axis is complete only when the whole result is, so an epilogue cannot compute with it; "
            f"return it as an auxiliary output"
        )
        self.source, self.op, self.axis = source, op, axis

    @classmethod
    def of(cls, x: Traced | Input, op: str, axis: Any, others: ByName) -> Reduction:
        source, axes = (x, [-1, -2]) if isinstance(x, Traced) \
            else (x._name, [-1 if x._name == "a" else -2])
        for name, value in others.items():
            if value not in (None, False):
                raise TypeError(
                    f"a reduction in an epilogue takes only axis=, not {name}={value!r}"
                )
        if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or axis not in axes:
            meaning = {-1: "axis=-1 (over columns: a value for each row)",
                       -2: "axis=-2 (over rows: a value for each column)"}
            whose = f"of {source} " if isinstance(source, str) else ""
            raise ValueError(
                f"a reduction {whose}in an epilogue takes {' or '.join(meaning[a] for a in axes)}, not axis={axis!r}"
            )
        if isinstance(source, Traced):
            if not source.full:
                raise TypeError(
                    "an epilogue can reduce only values that depend on acc or c; operands are broadcast over those"
                )
            if op != "sum" and source.kind.kind == "c":
                raise TypeError(f"complex values have no {op}imum; reduce x.real or abs(x)")
        return cls(source, op, int(axis))


class Input(_Reducible, _Opaque):
    """The operand A or B, of which an epilogue may return a reduction over K."""

    def __init__(self, name: str):
        super().__init__(f"an epilogue may take only the sum, max or min of {name} over its axis K")
        self._name = name

    def __array_function__(  # type: ignore[override]
        self,
        function: Any,
        _types: Any,
        args: tuple[Any, ...],
        arguments: ByName
    ) -> Reduction:
        if function not in _REDUCTIONS:
            self._refuse()
        return ARRAY_FUNCTIONS[function](*args, **arguments)


# -- making values ---------------------------------------------------------------------------------
def traced_leaf(op: str, dtype: np.dtype, name: str = "", *, weak: type | None = None,
                full: bool = False) -> Traced:
    """A leaf of a graph as a value; half precision is read as float32."""
    node = Node(op, value_type(dtype), name=name)
    return Traced(node, np.dtype(node.dtype), weak, full)


def check_integer(value: Any, kind: np.dtype) -> None:
    info = np.iinfo(kind)
    if not info.min <= value <= info.max:
        raise OverflowError(f"Python integer {value} out of bounds for {kind}")


def constant(value: Any, dtype: np.dtype) -> Node:
    name = value_type(dtype)
    kind = np.dtype(name)
    if isinstance(value, int) and not isinstance(value, bool) and kind.kind in "iu":
        check_integer(value, kind)
    with np.errstate(all="ignore"):
        rounded = np.asarray(value).astype(dtype).astype(kind)
    return Node("constant", name, value=rounded.item())


def as_traced(x: Any) -> Traced:
    if isinstance(x, Traced):
        return x
    if isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0):
        kind = _supported(x.dtype)
        return Traced(constant(np.asarray(x)[()], kind), kind)
    if isinstance(x, int | float | complex):
        weak = next(t for t in _RANKS if isinstance(x, t))
        kind = np.dtype(np.uint64) if weak is int and x > _LARGEST_INT64 else _DEFAULTS[weak]  # type: ignore[operator]
        return Traced(constant(x, kind), kind, weak)
    if isinstance(x, _Opaque):
        x._refuse()
    if hasattr(x, "shape"):
        raise TypeError(
            f"an epilogue's function uses an array of shape {tuple(x.shape)} that is not one of its arguments; make it "
            f"an operand: a parameter that each call passes by name"
        )
    raise TypeError(f"an epilogue cannot compute with {type(x).__name__} objects")


def _stand_in(x: Any) -> Any:
    return x if not isinstance(x, Traced) else x.weak(1) if x.weak else np.ones((1, 1), x.kind)


def cast(x: Traced, dtype: np.dtype) -> Node:
    if x.kind.kind == "c" and dtype.kind not in "cb":
        _refuse_complex(f"a value of type {dtype}")
    if x.node.op == "constant":
        value = x.node.value
        # arrays wrap, Python numbers do not
        return constant(value if x.weak else np.asarray(value, x.node.dtype)[()], dtype)
    if x.kind == dtype:
        return x.node
    kind, node, row = value_type(dtype), x.node, element_of(dtype)
    if row is not None and row.is_stored and not (x.kind.kind in "biu" and 8
                                                  * x.kind.itemsize <= row.significand):
        node = Node("cast", dtype.name, (node,))                # rounded as in memory
    return node if node.dtype == kind else Node("cast", kind, (node,),
                                                "int" * (x.weak is int and dtype.kind in "iu"))


def _refuse_complex(what: str) -> NoReturn:
    raise TypeError(
        f"the epilogue has a complex value where {what} is needed; take x.real, x.imag or abs(x)"
    )


def stored_as(dtype: np.dtype, target: np.dtype) -> bool:
    """Whether NumPy's ``same_kind`` lets a type be stored as another, also of our types."""
    first, second = (np.dtype(np.float16) if (row := element_of(d)) and row.is_stored else d
                     for d in (dtype, target))
    return np.can_cast(first, second, "same_kind")


# -- operations ------------------------------------------------------------------------------------
_OF_ARRAYS = frozenset({"astype", "clip", "conj", "copy", "dtype", "max", "min", "round", "sum"})
_ARRAYS = np.ndarray, np.float64


def apply(ufunc: np.ufunc, *inputs: Any) -> Traced:
    """Apply a NumPy ufunc (or SciPy's ``erf`` or ``expit``) to traced values."""
    name = _RENAMED.get(ufunc.__name__, ufunc.__name__)
    if ufunc is np.positive:
        x = as_traced(*inputs)
        return Traced(x.node, _result_types(ufunc, (x.kind,))[-1], None, x.full)
    if name not in FUNCTIONS or ufunc.nout != 1 or len(inputs) != FUNCTIONS[name]:
        raise TypeError(f"epilogues do not support numpy.{ufunc.__name__}; {_OFFER}")
    if name in _SPECIAL:
        return of_name(name, inputs[0])
    return _applied(name, ufunc, [as_traced(x) for x in inputs])


def of_name(name: str, x: Any) -> Traced:
    """``erf`` or ``sigmoid`` of a value: float64 of integers, float32 of half precision."""
    value = as_traced(x)
    if value.kind.kind == "c":
        _refuse_complex(f"the argument of {name}")
    kind = np.dtype(np.float64 if value.kind.kind in "biu" else value_type(value.kind))
    return Traced(_operation(name, (cast(value, kind),), kind), kind, None, value.full)


def _applied(name: str, ufunc: np.ufunc, args: list[Traced]) -> Traced:
    alone = all(x.weak for x in args)   # a ufunc of Python numbers alone sees NumPy's default types
    types = tuple(x.kind if alone or x.weak in (None, bool) else x.weak for x in args)
    *loops, kind = _result_types(ufunc, types)
    full = any(x.full for x in args)
    if any(loop != loops[0] for loop in loops):
        raise TypeError(
            f"epilogues do not compare {loops[0]} with {loops[1]}; convert one with x.astype(dtype)"
        )
    loop = _supported(loops[0])
    if loop.kind == "c" and name not in _OF_COMPLEX:
        _refuse_complex(f"the argument of {name}")
    if ufunc.__name__ in _OF_BOOL and loop.kind != "b":
        raise TypeError("in an epilogue, & | ^ ~ combine conditions, not integers")
    if name.startswith("logical_"):
        loop = np.dtype(bool)
    nodes = tuple(cast(x, loop) for x in args)
    if loop.kind in "biu":
        if name in ("floor", "ceil", "conj") or (name == "absolute" and loop.kind != "i"):
            return Traced(nodes[0], loop, None, full)
        if name == "isnan":
            return Traced(constant(False, np.dtype(bool)), np.dtype(bool))
        if name == "reciprocal":
            raise TypeError(
                "epilogues do not support the reciprocal of integers; convert them with x.astype(numpy.float32)"
            )
        if name == "power" and nodes[1].op == "constant" and nodes[1].value < 0:  # type: ignore[operator]
            raise ValueError("Integers to negative integer powers are not allowed.")
    if name == "conj" and loop.kind == "f":
        return Traced(nodes[0], loop, None, full)
    return Traced(_operation(name, nodes, kind), kind, None, full)


def _operation(name: str, nodes: tuple[Node, ...], dtype: np.dtype) -> Node:
    """A function of values in a type of NumPy's; of constants alone, its value."""
    if all(n.op == "constant" for n in nodes) and name not in _SPECIAL:
        with np.errstate(all="ignore"):
            values = [np.asarray(n.value, n.dtype)[()] for n in nodes]
            return constant(getattr(np, name)(*values), dtype)
    unchanged = _unchanged(name, nodes)
    if unchanged is not None:
        return unchanged
    node = Node(name, value_type(dtype), nodes)
    if dtype != node.dtype:                     # half precision: rounded after every operation
        node = Node("cast", node.dtype, (Node("cast", dtype.name, (node,)),))
    return _checked(node)


def _unchanged(name: str, nodes: tuple[Node, ...]) -> Node | None:
    """The argument that an operation leaves as it is, bit for bit: x * 1, x / 1 and x - 0."""
    if name in ("multiply", "divide", "subtract") and nodes[1].op == "constant":
        neutral = 0 if name == "subtract" else 1
        if repr(nodes[1].value) in (repr(neutral), repr(float(neutral))):
            return nodes[0]
    if name == "multiply" and nodes[0].op == "constant" and repr(nodes[0].value) in ("1", "1.0"):
        return nodes[1]
    return None


def _checked(node: Node) -> Node:
    if node.depth > _MOST_OPERATIONS:
        raise ValueError(f"an epilogue chains at most {_MOST_OPERATIONS} operations")
    return node


def _operator(ufunc: np.ufunc, *inputs: Any) -> Any:
    """What an operator makes of values; of Python numbers, a Python number."""
    if not all(isinstance(x, _OPERANDS) or hasattr(x, "shape") for x in inputs):
        return NotImplemented
    args = [as_traced(x) for x in inputs]
    if not all(x.weak for x in args):
        return apply(ufunc, *args)
    weak = _type_in_python(ufunc, args)
    result = apply(ufunc, *(Traced(cast(x, _DEFAULTS[weak]), _DEFAULTS[weak], weak) for x in args))
    result.weak = next(t for t, dtype in _DEFAULTS.items() if dtype == result.kind)
    return result


def _type_in_python(ufunc: np.ufunc, args: list[Traced]) -> type:
    weak = max((x.weak for x in args if x.weak), key=_RANKS.__getitem__)
    if weak is bool and ufunc not in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        weak = int                              # True + True is 2
    if ufunc is np.power:
        exponent = args[1].node
        if args[1].weak is not int or exponent.op != "constant" or (weak is int and exponent.value < 0):       # type: ignore[operator]
            raise TypeError(
                "a power of Python numbers may be an integer, a fraction or complex, so an epilogue cannot know its "
                "type; use numpy.power"
            )
    return weak


_OPERANDS = (Traced, int, float, complex, np.generic, _Opaque)


def _power(x: Traced, exponent: Any) -> Any:
    """``x ** exponent`` with NumPy's short cuts for small Python numbers."""
    if type(exponent) in (int, float) and x.weak is None and x.kind.kind in "fc":
        short = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal, 1: np.positive}.get(exponent)
        if short is not None:
            return apply(short, x)
    if type(exponent) is int and exponent == 2 and x.weak is None and (
            x.kind.kind in "iu" or (x.kind.kind == "b" and not _is_scalar(x))):
        return apply(np.square, x)        # of bool, the square of a scalar is one of int64 in NumPy
    return _operator(np.power, x, exponent)


def _is_scalar(x: Traced) -> bool:
    """Whether a value depends on numbers of a call alone: in NumPy it would be a scalar."""
    left, seen = [x.node], set[Node]()
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left.extend(node.args)
    kinds = {node.op for node in seen}
    return "scalar" in kinds and kinds.isdisjoint(("acc", "c", "operand"))


def _part(x: Any, name: str) -> Traced:
    value = as_traced(x)
    if value.kind.kind != "c":
        return value if name == "real" else Traced(constant(0, value.kind), value.kind, value.weak,
                                                   value.full)
    kind = np.dtype(np.float32 if value.kind == np.complex64 else np.float64)
    return Traced(_operation(name, (value.node,), kind), kind, float if value.weak else None,
                  value.full)


def _where(condition: Any, *choices: Any) -> Traced:
    if len(choices) != 2:
        raise TypeError("in an epilogue, numpy.where takes a condition and two values")
    chosen = [as_traced(x) for x in choices]
    test = as_traced(condition)
    kind = _supported(np.result_type(*(x.weak(0) if x.weak else x.kind for x in chosen)))
    nodes = tuple(cast(x, kind) for x in chosen)
    decides = cast(test, np.dtype(bool))
    full = test.full or any(x.full for x in chosen)
    if decides.op == "constant":
        return Traced(nodes[0] if decides.value else nodes[1], kind, None, full)
    return Traced(_checked(Node("where", value_type(kind), (decides, *nodes))), kind, None, full)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None,
          **others: Any) -> Traced:
    for name, value in others.items():
        if value is not None:
            raise TypeError(f"in an epilogue, numpy.clip takes no argument {name!r}")
    low, high = a_min if a_min is not None else min, a_max if a_max is not None else max
    if low is not None or high is None:
        x = apply(np.positive, x) if low is None else apply(np.maximum, x, low)
    return x if high is None else apply(np.minimum, x, high)


def _round(x: Any, decimals: int = 0, **others: Any) -> Traced:
    if decimals != 0 or any(value is not None for value in others.values()):
        raise TypeError(
            "in an epilogue, numpy.round rounds to integers and takes no further argument"
        )
    return apply(np.positive if as_traced(x).kind.kind in "iu" else np.rint, x)


def _like(number: float) -> Callable[..., Traced]:
    def filled(x: Any, dtype: Any = None, order: Any = None, subok: Any = None, *,
               device: Any = None) -> Traced:
        kind = as_traced(x).kind if dtype is None else _supported(np.dtype(dtype))
        return Traced(constant(number, kind), kind, None, as_traced(x).full)
    return filled


_REDUCTIONS: dict[Any, Callable[..., Reduction]] = {
    np.sum: _Reducible.sum, np.max: _Reducible.max, np.amax: _Reducible.max,
    np.min: _Reducible.min, np.amin: _Reducible.min}
ARRAY_FUNCTIONS: dict[Any, Func] = {np.where: _where, np.clip: _clip,
                                                  np.round: _round, np.around: _round,
                                                  np.zeros_like: _like(0), np.ones_like: _like(1),
                                                  np.real: operator.attrgetter("real"),
                                                  np.imag: operator.attrgetter("imag"),
                                                  np.iscomplexobj: lambda x: x.kind.kind == "c",
                                                  np.isrealobj: lambda x: x.kind.kind != "c",
                                                  **_REDUCTIONS,}
