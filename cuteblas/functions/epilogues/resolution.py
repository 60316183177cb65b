"""From an epilogue with operands to what a kernel (:func:`resolve`) or NumPy (:func:`evaluate`)
computes with them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..._dtypes import dtype as element
from ...codegen.epilogue import Node
from ...engines.dispatch import NOTHING, ByName, kind_of
from ...engines.memory import Ints
from .epilogue import Bound, Epilogue, check_shape, is_choice, widened
from .traces import Trace, TraceKey, native_type, operand_key, trace
from .tracing import check_integer, python_type


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
    views = {name: _broadcast(epilogue, name, operands[name], shape)
             for name, (op, *_kind) in key.operands if op == "operand"}
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
def _broadcast(epilogue: Epilogue, name: str, x: Any, shape: Ints) -> Any:
    if x.shape == shape:
        return x
    check_shape(epilogue, name, x.shape, shape)
    return np.broadcast_to(x, shape)                    # CuPy's for its arrays


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
