"""Values that record what an epilogue's function computes, instead of computing it.

A :class:`Traced` value has the type that NumPy would give it (``ufunc.resolve_dtypes``). float16
is computed in float32 and rounded after every operation, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from ..._dtypes import dtype as element
from ..._dtypes import element_of
from ...codegen.epilogue import FUNCTIONS, Node
from ...engines.dispatch import NOTHING, ByName, Func

# what a kernel can reasonably hold; recursive readers of a graph cope with it
_MOST_OPERATIONS = 500
_OF_COMPLEX = frozenset({"add", "subtract", "multiply", "divide", "negative", "absolute", "square",
                         "reciprocal", "conj", "equal", "not_equal", "isnan", "positive"})
_OF_BOOL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
            "invert": "logical_not"}
_RENAMED = {"conjugate": "conj", "fabs": "absolute", "expit": "sigmoid", **_OF_BOOL}
_SPECIAL = frozenset({"erf", "sigmoid"})                      # functions that NumPy lacks
_NAMED = ", ".join(sorted({*FUNCTIONS} - {"cast", "where", "real", "imag", "conj"}))
_OFFER = f"they support operators, .real, .imag, .conj(), .astype(), numpy.where, numpy.clip and {_NAMED}"


def value_type(dtype: np.dtype) -> str:
    row = element_of(dtype)
    return dtype.name if row is None else row.computed


def _supported(dtype: np.dtype) -> np.dtype:
    if element_of(dtype) is None:
        raise TypeError(f"epilogues do not support values of type {dtype}")
    return dtype


_BINARY = (np.add, np.subtract, np.multiply, np.divide, np.bitwise_and, np.bitwise_or,
           np.bitwise_xor)


def _forward(ufunc: np.ufunc) -> Callable[..., Traced]:
    return lambda self, *other: _operator(ufunc, self, *other)


def _reflected(ufunc: np.ufunc) -> Callable[..., Traced]:
    return lambda self, other: _operator(ufunc, other, self)


def _refusal(text: str) -> Callable[..., NoReturn]:
    def refuse(self: Traced, *_: Any) -> NoReturn:
        raise TypeError(self.why_not or text)

    return refuse


class Traced:
    """A value in the graph with NumPy's type of it (``kind``); ``weak`` is the Python type of a
    number that takes on another's type, ``extent`` says how large the value is. Python's numbers
    lack the ``members`` of arrays."""

    members: Mapping[str, Func]
    functions: Mapping[Any, Func]
    weak: type | None = None
    why_not = ""                        # why nothing can be computed with it
    __array_priority__ = 1000
    __hash__ = None                     # type: ignore[assignment]

    def __init__(self, node: Node, kind: np.dtype, weak: type | None = None, extent: int = 0):
        self.node, self.kind, self.weak, self.extent = node, kind, weak, extent

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
        return _power(as_traced(self), other)

    # -- what arrays and numbers have --------------------------------------------------------------
    @property
    def real(self) -> Traced:
        return _part(self, "real")

    @property
    def imag(self) -> Traced:
        return _part(self, "imag")

    def conjugate(self) -> Traced:
        return _operator(np.conjugate, self) if self.weak or self.kind.kind == "c" else self

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
        own = self.functions.get(function)
        if own is None:
            name = f"{getattr(function, '__module__', 'numpy')}.{getattr(function, '__name__', function)}"
            raise TypeError(self.why_not or f"epilogues do not support {name}; {_OFFER}")
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

    def __getattr__(self, name: str) -> Any:
        if name in self.members and not self.weak:
            return self.members[name](self)
        whose = "a Python number has" if self.weak else "an epilogue's values have"
        known = not name.startswith("__") and any(hasattr(kind, name)
                                                  for kind in ([self.weak] if self.weak
                                                               else _ARRAYS))
        raise (TypeError if known
               else AttributeError)(self.why_not or f"{whose} no {name!r}; {_OFFER}")


class Reduction(Traced):
    """A sum or an extremum over an axis, as an auxiliary output."""

    members = functions = NOTHING

    def __init__(self, source: Traced, op: str, axis: int):
        self.source, self.op, self.axis = source, op, axis
        self.kind = np.dtype(value_type(source.kind))
        if op == "sum":                         # integers sum in 64 bits, as in NumPy
            self.kind = np.sum(np.zeros(1, self.kind)).dtype
        self.why_not = (
            f"the {op} over an axis is complete only when the whole result is, so an epilogue cannot compute with it; "
            f"return it as an auxiliary output"
        )


class Input(Traced):
    """The operand A or B, of which an epilogue may return a reduction over K."""

    def __init__(self, name: str, sums: np.dtype):
        self.name, self.kind, self.extent = name, sums, WHOLE
        self.why_not = f"an epilogue may take only the sum, max or min of {name} over its axis K"


# -- making values ---------------------------------------------------------------------------------
def traced_leaf(op: str, dtype: np.dtype, name: str = "", weak: type | None = None) -> Traced:
    """A leaf of a graph as a value; half precision is read as float32."""
    node = Node(op, value_type(dtype), name=name)
    return Traced(node, np.dtype(node.dtype), weak, _EXTENTS.get(op, 0))


WHOLE = 2                               # the extent of what is as large as the result
_POINT = -1                             # that of an array without axes; ufuncs make numbers of it
_EXTENTS = {"acc": WHOLE, "c": WHOLE, "operand": 1}     # of leaves that are not numbers


def check_integer(value: Any, kind: np.dtype, what: str = "Python integer {}") -> None:
    info = np.iinfo(kind)
    if not info.min <= value <= info.max:
        raise OverflowError(f"{what.format(value)} out of bounds for {kind}")


def python_type(kind: np.dtype) -> type:
    """The type of Python's numbers for elements."""
    return type(np.zeros((), kind).item())


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
        if x.why_not:
            raise TypeError(x.why_not)
        return x
    if isinstance(x, int | float | complex) and not isinstance(x, np.generic):
        kind = _supported(np.asarray(x).dtype)
        return Traced(constant(x, kind), kind, next(t for t in _NUMBERS if isinstance(x, t)))
    if isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0):
        kind = _supported(x.dtype)
        return Traced(constant(x, kind), kind, None, _POINT * isinstance(x, np.ndarray))
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
_ARRAYS = np.ndarray, np.float64


def apply(ufunc: np.ufunc, *inputs: Any) -> Traced:
    """Apply a NumPy ufunc (or SciPy's ``erf`` or ``expit``) to traced values."""
    name = _RENAMED.get(ufunc.__name__, ufunc.__name__)
    if ufunc.nout != 1 or len(inputs) != FUNCTIONS.get(name, ufunc is np.positive):
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
    return Traced(_operation(name, (cast(value, kind),), kind), kind, None, value.extent)


def _applied(name: str, ufunc: np.ufunc, args: list[Traced]) -> Traced:
    alone = all(x.weak for x in args)   # a ufunc of Python numbers alone sees NumPy's default types
    types = tuple(x.kind if alone or x.weak in (None, bool) else x.weak for x in args)
    *loops, kind = ufunc.resolve_dtypes((*types, None))
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
        if name == "reciprocal":
            raise TypeError(
                "epilogues do not support the reciprocal of integers; convert them with x.astype(numpy.float32)"
            )
        if name == "power" and nodes[1].op == "constant" and nodes[1].value < 0:  # type: ignore[operator]
            raise ValueError("Integers to negative integer powers are not allowed.")
    return Traced(_operation(name, nodes, kind), kind, None, max(0, *(x.extent for x in args)))


def _operation(name: str, nodes: tuple[Node, ...], dtype: np.dtype) -> Node:
    """A function of values in a type of NumPy's; of constants alone, its value."""
    if all(n.op == "constant" for n in nodes) and name not in _SPECIAL:
        with np.errstate(all="ignore"):
            values = [np.asarray(n.value, n.dtype)[()] for n in nodes]
            return constant(getattr(np, name)(*values), dtype)
    simpler = _simplified(name, *nodes)
    if simpler is not None:
        return simpler
    node = Node(name, value_type(dtype), nodes)
    if dtype != node.dtype:                     # half precision: rounded after every operation
        node = Node("cast", node.dtype, (Node("cast", dtype.name, (node,)),))
    return _checked(node)


def _simplified(name: str, x: Node, y: Node | None = None) -> Node | None:
    """What an operation is without being computed, bit for bit, as x * 1, x / 1 and x - 0."""
    kind = element(x.dtype).kind
    if name == "positive" or (name == "conj" and kind != "c") \
            or (name in ("floor", "ceil") and kind in "biu") \
            or (name == "absolute" and kind in ("b", "u")):
        return x
    if name == "isnan" and kind in "biu":
        return constant(False, np.dtype(bool))
    if name in ("multiply", "divide", "subtract") and _is_constant(y, name != "subtract"):
        return x
    return y if name == "multiply" and _is_constant(x, 1) else None


def _is_constant(node: Node | None, value: int) -> bool:
    """Whether a value is this number; 0.0 is not -0.0."""
    return node is not None and node.op == "constant" \
        and repr(node.value) in (repr(int(value)), repr(float(value)))


def _checked(node: Node) -> Node:
    if node.depth > _MOST_OPERATIONS:
        raise ValueError(f"an epilogue chains at most {_MOST_OPERATIONS} operations")
    return node


def _operator(ufunc: np.ufunc, *inputs: Any) -> Any:
    """What an operator makes of values; of Python numbers, a Python number."""
    if not all(isinstance(x, _OPERANDS) or hasattr(x, "shape") for x in inputs):
        return NotImplemented
    args = [as_traced(x) for x in inputs]
    last = args[-1]
    if args[0].weak is complex and last.kind == np.float64 and not last.extent:
        args[-1] = Traced(last.node, last.kind, float)      # as which complex takes numpy.float64
    if not all(x.weak for x in args):
        return apply(ufunc, *args)
    weak = _type_in_python(ufunc, args)
    kind = np.dtype(weak)
    result = apply(ufunc, *(Traced(cast(x, kind), kind, weak) for x in args))
    result.weak = python_type(result.kind)
    return result


def _type_in_python(ufunc: np.ufunc, args: list[Traced]) -> type:
    weak = type(sum(x.weak(1) for x in args))   # type: ignore[misc]     # True + True is 2
    if ufunc.__name__ in _OF_BOOL and all(x.weak is bool for x in args):
        weak = bool
    if ufunc is np.power:
        exponent = args[1].node
        if args[1].weak is not int or exponent.op != "constant" or (weak is int and exponent.value < 0):       # type: ignore[operator]
            raise TypeError(
                "a power of Python numbers may be an integer, a fraction or complex, so an epilogue cannot know its "
                "type; use numpy.power"
            )
    return weak


_NUMBERS = bool, int, float, complex
_OPERANDS = (Traced, np.generic, *_NUMBERS)


def _power(x: Traced, exponent: Any) -> Any:
    """``x ** exponent`` with NumPy's short cuts for small Python numbers."""
    if type(exponent) in (int, float) and x.weak is None and x.kind.kind in "fc":
        short = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal, 1: np.positive}.get(exponent)
        if short is not None:
            return apply(short, x)
    if type(exponent) is int and exponent == 2 and x.weak is None and (
            x.kind.kind in "iu" or (x.kind.kind == "b" and x.extent)):
        return apply(np.square, x)        # of bool, the square of a scalar is one of int64 in NumPy
    return _operator(np.power, x, exponent)


def _part(x: Any, name: str) -> Traced:
    value = as_traced(x)
    if value.kind.kind != "c":
        return value if name == "real" else Traced(constant(0, value.kind), value.kind, value.weak,
                                                   value.extent)
    kind = np.dtype(np.float32 if value.kind == np.complex64 else np.float64)
    return Traced(_operation(name, (value.node,), kind), kind, float if value.weak else None,
                  value.extent)


def _where(condition: Any, *choices: Any) -> Traced:
    if len(choices) != 2:
        raise TypeError("in an epilogue, numpy.where takes a condition and two values")
    test, *chosen = map(as_traced, (condition, *choices))
    kind = _supported(np.result_type(*(x.weak(0) if x.weak else x.kind for x in chosen)))
    nodes = tuple(cast(x, kind) for x in chosen)
    decides = cast(test, np.dtype(bool))
    node = nodes[not decides.value] if decides.op == "constant" \
        else _checked(Node("where", value_type(kind), (decides, *nodes)))
    return Traced(node, kind, None, max(x.extent for x in (test, *chosen)) or _POINT)


def _astype(x: Traced, dtype: Any, *how: Any, **named: Any) -> Traced:
    kind = _supported(np.dtype(dtype))
    value = Traced(cast(x, kind), kind, None, x.extent)
    _stand_in(x).astype(kind, *how, **named)
    return value


def _copy(x: Traced, *how: Any, **named: Any) -> Traced:
    _stand_in(x).copy(*how, **named)
    return x


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
    return apply(np.positive if x.kind.kind in "iu" else np.rint, x)


def _like(number: float) -> Callable[..., Traced]:
    def filled(x: Any, dtype: Any = None, order: Any = None, subok: Any = None, *,
               device: Any = None) -> Traced:
        kind = x.kind if dtype is None else _supported(np.dtype(dtype))
        return Traced(constant(number, kind), kind, None, x.extent or _POINT)
    return filled


def _reduced(op: str, x: Any, axis: Any = None, dtype: Any = None, out: Any = None,
             **others: Any) -> Reduction:
    of_input = isinstance(x, Input)
    source = x if of_input else as_traced(x)
    axes = [-1, -2] if not of_input else [-1 if x.name == "a" else -2]
    for name, value in {"dtype": dtype, "out": out, **others}.items():
        if value not in (None, False):
            raise TypeError(
                f"a reduction in an epilogue takes only axis=, not {name}={value!r}"
            )
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or axis not in axes:
        meaning = {-1: "axis=-1 (over columns: a value for each row)",
                   -2: "axis=-2 (over rows: a value for each column)"}
        whose = f"of {x.name} " if of_input else ""
        raise ValueError(
            f"a reduction {whose}in an epilogue takes {' or '.join(meaning[a] for a in axes)}, not axis={axis!r}"
        )
    if source.extent != WHOLE:
        raise TypeError(
            "an epilogue can reduce only values that depend on acc or c; operands are broadcast over those"
        )
    if not of_input and op != "sum" and source.kind.kind == "c":
        raise TypeError(f"complex values have no {op}imum; reduce x.real or abs(x)")
    return Reduction(source, op, int(axis))


_sum, _max, _min = (partial(_reduced, op) for op in ("sum", "max", "min"))
_REDUCTIONS = {np.sum: _sum, np.max: _max, np.amax: _max, np.min: _min, np.amin: _min}
ARRAY_FUNCTIONS: dict[Any, Func] = {
    np.where: _where, np.clip: _clip, np.round: _round, np.around: _round,
    np.zeros_like: _like(0), np.ones_like: _like(1), np.real: attrgetter("real"),
    np.imag: attrgetter("imag"), np.iscomplexobj: lambda x: x.kind.kind == "c",
    np.isrealobj: lambda x: x.kind.kind != "c", **_REDUCTIONS}
Input.functions, Traced.functions = _REDUCTIONS, ARRAY_FUNCTIONS


def _methods(**functions: Func) -> dict[str, Func]:
    return {name: partial(partial, function) for name, function in functions.items()}


Input.members = _methods(sum=_sum, max=_max, min=_min)
Traced.members = Input.members | _methods(
    astype=_astype, clip=_clip, conj=Traced.conjugate, copy=_copy, round=_round
) | {"dtype": attrgetter("kind")}
