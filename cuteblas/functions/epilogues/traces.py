"""Graphs from functions: an epilogue runs on traced values once for each set of types.

:func:`resolve` checks an epilogue with operands and says what a kernel computes with them,
:func:`evaluate` computes it by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from ..._dtypes import DTYPES
from ..._dtypes import dtype as element
from ...codegen.epilogue import EpilogueGraph, Node
from ...engines.dispatch import NOTHING, ByName, kind_of
from ...engines.memory import Ints
from .captures import unchanged_since
from .epilogue import Bound, Epilogue, check_shape, is_choice, is_number, widened
from .tracing import (
    WHOLE,
    Input,
    Reduction,
    Traced,
    as_traced,
    cast,
    check_integer,
    constant,
    python_type,
    stored_as,
    traced_leaf,
    value_type,
)

_MOST_TRACES = 256                      # of one epilogue, in one state of what it reads
_RESERVED = frozenset({"a", "b", "c", "acc", "alpha", "beta"})


class TraceKey(NamedTuple):
    """The types, and facts about the scalars, on which a trace depends besides the function."""

    accumulator: str
    output: str | None
    beta_is_zero: bool
    ones: frozenset[str]                # of alpha and beta
    operands: tuple[tuple[str, Any], ...]
    outputs: tuple[tuple[str, np.dtype], ...]


@dataclass(frozen=True)
class Trace:
    """The values of a function for operands of certain types. ``reductions`` has (name,
    operation, axis, source, type); ``hidden`` matrices exist only to be reduced."""

    graph: EpilogueGraph
    output: str
    outputs: tuple[tuple[str, str], ...]
    reductions: tuple[tuple[str, str, int, str, str], ...]
    hidden: frozenset[str]

    @cached_property
    def operands(self) -> tuple[Node, ...]:
        return self.graph.leaves("operand")

    @cached_property
    def scalars(self) -> tuple[Node, ...]:
        return self.graph.leaves("scalar")

    @cached_property
    def exact(self) -> tuple[Node, ...]:
        """Casts of Python integers, which NumPy refuses where the type does not hold the value."""
        return tuple(node for node in self.graph.nodes if node.op == "cast" and node.name)


@dataclass(eq=False)
class _Known:
    """The traces of an epilogue while what it reads stays as it is."""

    unchanged: Callable[[], bool]
    holds: Callable[[], bool]           # unless numbers decide if a call is refused
    by_key: dict[TraceKey, Trace] = field(default_factory=dict)


def native_type(x: Any) -> np.dtype:
    return x.dtype if x.dtype.isnative else x.dtype.newbyteorder("=")


def operand_key(x: Any) -> Any:
    """What a trace depends on: the value of a choice, the type of everything else."""
    if is_choice(x):
        return "choice", type(x), x
    if isinstance(x, np.generic):
        return "scalar", x.dtype
    if is_number(x):
        return "number", next(t for t in (int, float, complex) if isinstance(x, t))
    return "operand", native_type(x)


def trace(epilogue: Epilogue, key: TraceKey) -> Trace:
    """The trace for a key: an earlier one if the function has not changed since."""
    known: _Known | None = epilogue.known
    if known is None or not known.unchanged():
        unchanged = unchanged_since(epilogue.function)
        known = epilogue.known = _Known(unchanged, unchanged)
    found = known.by_key.get(key)
    if found is None:
        if len(known.by_key) >= _MOST_TRACES:
            known.by_key.clear()
        found = known.by_key[key] = _traced(epilogue, key)
        if found.exact:
            known.holds = bool          # which is False without an argument
    return found


def trace_state(epilogue: Epilogue) -> object | None:
    """An object that stays the same while traces hold; ``None`` if calls have to be checked."""
    known: _Known | None = epilogue.known
    return known if known is not None and known.holds() else None


def _traced(epilogue: Epilogue, key: TraceKey) -> Trace:
    named, sums = epilogue.parameters, np.dtype(key.accumulator)
    kind = np.dtype(element(key.output).computed) if key.output else sums
    acc, alpha, beta = (traced_leaf(name, sums) for name in ("acc", "alpha", "beta"))
    c: Traced | None = traced_leaf("c", kind)
    if key.beta_is_zero and "beta" in named:            # C must not be read: it may hold anything
        c, beta = Traced(constant(0, kind), kind, None, WHOLE), Traced(constant(0, sums), sums)
    elif key.beta_is_zero and "c" not in named:
        c = None
    operands = {name: Input(name, sums) for name in epilogue.inputs} \
        | {name: _operand_leaf(epilogue, name, *x) for name, x in key.operands}
    returned = epilogue.of_product(acc, c, alpha, beta, key.ones, operands)
    result, auxiliary = _checked_return(epilogue, returned)
    target = element(key.output).numpy if key.output else result.kind
    # of an int, its value decides
    if not stored_as(np.dtype(np.uint8) if result.weak is int else result.kind, target):
        raise TypeError(
            f"epilogue {epilogue} computes {result.kind}, which cannot be written to a result of {target}"
        )
    node = result.node
    if node.op == "constant":                           # C's type has to hold it
        node = constant(node.value, target)
    elif result.weak or node.op == "scalar":
        node = cast(Traced(node, result.kind, int if result.kind.kind in "iu" else result.weak),
                    target)
    return _assembled(epilogue, key, target, node, auxiliary)


def _operand_leaf(epilogue: Epilogue, name: str, op: str, kind: Any, *choice: Any) -> Any:
    """The operand of a :func:`operand_key` as a value, or the choice itself."""
    if op == "choice":
        return choice[0]
    if op == "number":
        return traced_leaf("scalar", np.dtype(kind), name, kind)
    if kind.name not in DTYPES:
        raise TypeError(
            f"operand {name!r} of epilogue {epilogue} has type {kind}, which kernels do not support"
        )
    return traced_leaf(op, kind, name)


# -- what it returns -------------------------------------------------------------------------------
def _checked_return(epilogue: Epilogue, returned: Any) -> tuple[Traced, dict[str, Any]]:
    result, auxiliary = returned if isinstance(returned,
                                               tuple) and len(returned) == 2 else (returned, {})
    if not isinstance(auxiliary, dict):
        raise TypeError(
            f"epilogue {epilogue} returns a pair whose second item is {type(auxiliary).__name__}; auxiliary outputs "
            f"are a dictionary: return acc, {{'x': ...}}"
        )
    if isinstance(result, Reduction):
        raise TypeError(
            f"epilogue {epilogue} returns a reduction as its result; return it as an auxiliary output: "
            f"return acc, {{'x': ...}}"
        )
    if is_number(result) or isinstance(result, bool | Traced):
        result = as_traced(result)
    else:
        what = "nothing" if result is None else type(result).__name__
        raise TypeError(
            f"epilogue {epilogue} returns {what}; it must return the result, or the result and a dictionary of "
            f"auxiliary outputs"
        )
    for name, x in auxiliary.items():
        if not (isinstance(name, str) and name.isidentifier()
                and name.isascii()) or name in {*_RESERVED, *epilogue.parameters}:
            raise TypeError(
                f"epilogue {epilogue} names an auxiliary output {name!r}; the name must be an ASCII identifier, "
                f"but not a parameter of the function or one of {', '.join(sorted(_RESERVED))}"
            )
        if not isinstance(x, Traced):
            raise TypeError(
                f"auxiliary output {name!r} of epilogue {epilogue} is {type(x).__name__}, not a value or a reduction"
            )
        if not isinstance(x, Reduction) and as_traced(x).extent != WHOLE:
            raise TypeError(
                f"auxiliary output {name!r} of epilogue {epilogue} does not depend on acc or c, so it is not as large "
                f"as the result"
            )
    return result, auxiliary


def _assembled(epilogue: Epilogue, key: TraceKey, target: np.dtype, result: Node,
               auxiliary: ByName) -> Trace:
    """The trace of a function's result: types, and memory for reductions."""
    given = dict(key.outputs)

    def type_of_array(name: str, dtype: np.dtype, natural: np.dtype) -> np.dtype:
        array = given.get(name, natural)
        if not stored_as(dtype, array):
            raise TypeError(
                f"epilogue {epilogue} computes {dtype} for {name!r}, which cannot be written to an array of {array}"
            )
        return array

    half, matrices = value_type(target) != target.name, dict[str, tuple[np.dtype, Node]]()
    reductions, hidden = list[tuple[str, str, int, str, str]](), set[str]()
    for name, x in sorted(auxiliary.items(), key=lambda item: isinstance(item[1], Reduction)):
        if not isinstance(x, Reduction):        # float32 in a half-precision product is stored as C is
            natural = target if half and x.kind == np.float32 else x.kind
            matrices[name] = type_of_array(name, x.kind, natural), x.node
            continue
        if isinstance(x.source, Input):
            source = x.source.name
        else:
            # in the memory of C, of an output, or else of an output of its own that is not returned
            node, own = cast(x.source, x.kind), f"{name}_values"
            while own in {*epilogue.parameters, *auxiliary, *matrices}:
                own += "_"
            at = {"c": (target, result), **matrices}
            source = next((each for each, (stored, value) in at.items()
                           if value == node and stored == node.dtype), own)
            if source == own:
                matrices[own] = np.dtype(node.dtype), node
                hidden.add(own)
        reductions.append((name, x.op, x.axis, source, type_of_array(name, x.kind, x.kind).name))
    graph = _with_typed_numbers(EpilogueGraph(
        str(epilogue), result, tuple((name, node) for name, (_, node) in matrices.items())))
    outputs = tuple((name, kind.name) for name, (kind, _) in matrices.items())
    return Trace(graph, target.name, outputs, tuple(reductions), frozenset(hidden))


def _with_typed_numbers(graph: EpilogueGraph) -> EpilogueGraph:
    """The graph with Python numbers in the one type they are used in, instead of a cast."""
    used: dict[Node, set[str]] = {}
    for node in graph.nodes:
        for argument in node.args:
            if argument.op == "scalar":
                converts = node.op == "cast" and not element(node.dtype).is_stored
                used.setdefault(argument, set()).add(node.dtype if converts else argument.dtype)
    for root in (graph.result, *(node for _, node in graph.outputs)):
        used.setdefault(root, set()).add(root.dtype)
    types = {leaf: types.pop() for leaf, types in used.items() if leaf.op == "scalar"
             and len(types) == 1}
    return graph.substituted(lambda leaf: Node("scalar", types[leaf], name=leaf.name)
                             if leaf in types else leaf)


# -- with operands ---------------------------------------------------------------------------------
class Resolved(NamedTuple):
    """A checked epilogue: trace, operands as views of shape (..., m, n), and numbers."""

    trace: Trace
    operands: tuple[tuple[str, Any], ...]
    scalars: tuple[tuple[str, Any], ...]


def as_bound(epilogue: Any) -> Bound:
    """The ``Bound`` of an epilogue with operands, of one without any, or of a predefined name."""
    if isinstance(epilogue, Bound):
        return epilogue
    if isinstance(epilogue, str):
        return _predefined(epilogue)
    if isinstance(epilogue, Epilogue):
        return epilogue()
    hint = ": decorate it with @cuteblas.epilogue" if callable(epilogue) else ""
    raise TypeError(
        f"epilogue takes a function decorated with @cuteblas.epilogue, with its operands if it has any, or the name of "
        f"a predefined one, got {type(epilogue).__name__}{hint}"
    )


@cache
def _predefined(name: str) -> Bound:
    from . import predefined

    if name not in predefined.__all__:
        raise ValueError(
            f"unknown epilogue {name!r}; the predefined ones are {', '.join(predefined.__all__)}"
        )
    epilogue: Epilogue = getattr(predefined, name)
    return epilogue()


def resolve(bound: Bound, *, accumulator: str, output: str | None, shape: Ints,
            beta: str = "zero", has_c: bool = False, alpha: str = "value",
            inputs: Mapping[str, Ints] = NOTHING) -> Resolved:
    """Trace an epilogue for a result of shape (..., m, n) and check its operands; ``inputs`` has
    the shapes of A and B if they may be reduced."""
    epilogue = bound.epilogue
    _check_c(epilogue, beta, has_c)
    operands = {name: np.asarray(x) if kind_of(x) == "like" and not is_choice(x) else x
                for name, x in bound.operands.items()}
    ones = frozenset(name for name, kind in (("alpha", alpha), ("beta", beta)) if kind == "one")
    key = TraceKey(accumulator, output, beta == "zero", ones,
                   tuple((name, operand_key(x)) for name, x in operands.items()),
                   tuple((name, native_type(x)) for name, x in bound.outputs.items()))
    traced = trace(epilogue, key)
    _check_outputs(bound, traced, {"c": shape, **inputs})
    for node in traced.exact:
        check_integer(_computed(node.args[0], operands), np.dtype(node.dtype))
    views = {}
    for name, (op, *_kind) in key.operands:
        if op == "operand":
            check_shape(epilogue, name, (x := operands[name]).shape, shape)
            views[name] = x if x.shape == shape else np.broadcast_to(x, shape)  # or CuPy's
    return Resolved(traced, tuple((leaf.name, views[leaf.name]) for leaf in traced.operands),
                    tuple((leaf.name, _number(epilogue, leaf, operands[leaf.name]))
                          for leaf in traced.scalars))


def _check_c(epilogue: Epilogue, beta: str, has_c: bool) -> None:
    named = epilogue.parameters
    if "c" in named and "beta" not in named:
        if not has_c:
            raise ValueError(f"epilogue {epilogue} reads c, but this product has no c")
        if beta != "zero":
            raise ValueError(
                f"epilogue {epilogue} reads c but does not take beta, so beta must be 0"
            )
    elif "alpha" in named and "c" not in named and beta != "zero":
        raise ValueError(
            f"epilogue {epilogue} applies alpha itself and takes neither c nor beta, so the product cannot have a c"
        )


# -- operands --------------------------------------------------------------------------------------
def _number(epilogue: Epilogue, leaf: Node, x: Any) -> Any:
    kind, x = np.dtype(leaf.dtype), np.asarray(x).item()
    if kind.kind in "iu":
        check_integer(x, kind, f"operand {leaf.name!r} of epilogue {epilogue} is {{}}, which is")
    return python_type(kind)(x)


def _computed(node: Node, numbers: ByName) -> Any:
    if node.op in ("constant", "scalar"):
        return node.value if node.op == "constant" else numbers[node.name]
    args = (_computed(x, numbers) for x in node.args)
    return next(args) if node.op == "cast" else getattr(np, node.op)(*args, dtype=object)


# -- outputs ---------------------------------------------------------------------------------------
def _check_outputs(bound: Bound, traced: Trace, shapes: Mapping[str, Ints]) -> None:
    """Refuse extrema of nothing, and arrays that do not fit; ``shapes`` are of C, A and B."""
    epilogue, wanted = bound.epilogue, {name: shapes["c"] for name, _ in traced.outputs
                                        if name not in traced.hidden}
    for name, op, axis, source, _dtype in traced.reductions:
        *batch, rows, columns = shapes.get(source, shapes["c"])     # A and B have batches of their own
        if op != "sum" and source not in ("a", "b") and (rows, columns)[axis] == 0:
            raise ValueError(
                f"output {name!r} of epilogue {epilogue} is a {op}imum over axis {axis}, which has no elements in a "
                f"result of shape {shapes['c']}"
            )
        wanted[name] = (*batch, rows if axis == -1 else columns)
    for name, x in bound.outputs.items():
        if name not in wanted:
            raise epilogue.unknown(name, (*epilogue.operands, *wanted))
        if tuple(x.shape) != wanted[name]:
            raise ValueError(
                f"the array for output {name!r} of epilogue {epilogue} has shape {tuple(x.shape)}, but the "
                f"output has {wanted[name]}"
            )
        if isinstance(x, np.ndarray) and not x.flags.writeable:
            raise ValueError(f"the array for output {name!r} of epilogue {epilogue} is read-only")


# -- by NumPy --------------------------------------------------------------------------------------
def evaluate(bound: Bound, acc: np.ndarray, *, output: str | None = None, alpha: Any = 1,
             beta: Any = 0, c: np.ndarray | None = None, a: np.ndarray | None = None,
             b: np.ndarray | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Apply an epilogue to sums of shape (..., m, n), not yet multiplied by alpha; also return its
    auxiliary outputs. ``c`` is not read if beta is 0, unless the epilogue takes ``c`` and no
    ``beta``."""
    epilogue, sums, named = bound.epilogue, acc.dtype, bound.epilogue.parameters
    alpha, beta = (np.asarray(x).astype(sums)[()] for x in (alpha, beta))
    trace = resolve(bound, accumulator=sums.name, output=output, shape=acc.shape,
                    beta="zero" if beta == 0 else "value", has_c=c is not None,
                    inputs={name: x.shape for name, x in (("a", a), ("b", b))
                            if x is not None}).trace
    target = element(trace.output).numpy
    if c is None or (beta == 0 and ("c" not in named or "beta" in named)):
        c = np.zeros((1,) * acc.ndim, target) if "c" in named else None     # not looked at
    ones = [name for name, x in (("alpha", alpha), ("beta", beta)) if x == 1]
    inputs = {name: {"a": a, "b": b}[name] for name in epilogue.inputs}
    returned = epilogue.of_product(acc, None if c is None else widened(c.astype(target)), alpha,
                                   beta, ones, inputs | bound.operands)
    value, auxiliary = returned if isinstance(returned, tuple) else (returned, {})
    types = dict(trace.outputs) | {name: dtype for name, *_how, dtype in trace.reductions}
    return np.broadcast_to(value, acc.shape).astype(target), {
        name: _stored(x, types[name], bound.outputs.get(name)) for name, x in auxiliary.items()}


def _stored(x: np.ndarray, dtype: str, into: np.ndarray | None) -> np.ndarray:
    if into is None:
        return np.asarray(x).astype(element(dtype).numpy)
    np.copyto(into, x, casting="unsafe")        # resolve refused what is not of the same kind
    return into
