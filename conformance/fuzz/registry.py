"""Every function that is called: how calls of it are made, what answers them here and in NumPy, and
how answers are compared."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import cuteblas

from .calls import Argument, Call, operands_in
from .draw import Draw
from .functions import arrays, copies, einsums, epilogues, products, routines

__all__ = ["FUNCTIONS", "Function", "out_position", "out_views"]

Comparison = Literal["product", "exact", "routine", "epilogue"]
_OUT_POSITIONS = {"matmul": 2, "vecdot": 2, "matvec": 2, "vecmat": 2, "dot": 2, "outer": 2,
                  "epilogues.matmul": 3, "clip": 3, "method.clip": 3}
_WITH_PRECISION = frozenset({"matmul", "dot", "inner", "tensordot", "einsum", "linalg.matmul",
                             "linalg.tensordot", "linalg.multi_dot", "linalg.matrix_power"})
_WITH_VARIANT = _WITH_PRECISION - {"linalg.multi_dot",
                                   "linalg.matrix_power"} | {"copy", "ascontiguousarray",
                                                             "asfortranarray"}
_HEAVY = {"matmul": 6.0, "einsum": 6.0, "dot": 3.0, "copy": 3.0, "tensordot": 2.0, "vecdot": 1.5,
          "einsum_path": 0.3}


@dataclass(frozen=True)
class Function:
    """A function under test.

    Attributes
    ----------
    name : str
    make : callable
        A random call.
    ours, reference : callable
        What is called, and what it is compared with: NumPy's function or a definition in NumPy's
        terms.
    comparison : {"product", "exact", "routine", "epilogue"}
        Whether values may differ within the bound of a sum of products, not at all, within that of
        alpha A B + beta C, or of a function of a product.
    weight : float
        How often it is called.
    left_out : frozenset of str
        Backends on which it is not called.
    """

    name: str
    make: Callable[[Draw], Call]
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    comparison: Comparison
    weight: float = 1.0
    left_out: frozenset[str] = frozenset()


def out_position(call: Call) -> int | None:
    """Where among the positional arguments ``out`` may stand."""
    position = _OUT_POSITIONS.get(call.base)
    if position is None and isinstance(ufunc := getattr(np, call.base, None), np.ufunc):
        return ufunc.nin
    return position


def out_views(call: Call) -> list[int]:
    """Indices of the views that a call is asked to write to."""
    found = []
    argument: Argument | None
    position = out_position(call)
    given: list[Argument | None] = [*call.arguments[position:position
                                                    + 1]] if position is not None else []
    if arrays.in_place(call.function):
        given.append(next(iter(call.arguments), None))
    if call.keyword("overwrite_c") is not None:
        given.append(call.keyword("c"))
    for argument in (*given, call.keyword("out")):
        if argument is not None:
            found += [operand.view for operand in operands_in(argument)]
    return found


def _copy(a: Any, order: Any = "K", subok: bool = False, *, out: Any = None) -> Any:
    """``copy`` with the extension ``out``, in NumPy's terms."""
    if out is None:
        return np.copy(a, order, subok)         # type: ignore[call-overload]
    np.array((), order=order)
    if not isinstance(out, np.ndarray):
        raise TypeError("'out' must be an array")
    array = np.asarray(a)
    if (array.shape, array.dtype) != (out.shape, out.dtype):
        raise ValueError("another shape or type")
    np.copyto(out, array.copy())
    return out


def _vecmat(x1: Any, x2: Any, /, *given: Any, **arguments: Any) -> Any:
    """``numpy.vecmat``, whose complex loop (NumPy 2.2 to 2.4) takes results for contiguous: ``out``
    and orders by way of a copy."""
    if len(given) > 1 or (given and not isinstance(given[0], np.ndarray)):
        # more is allowed as a keyword than in third place
        return np.vecmat(x1, x2, *given, **arguments)
    out = given[0] if given else arguments.pop("out", None)
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    order = arguments.get("order")
    if isinstance(target, np.ndarray) and target.ndim and target.flags.writeable:
        axes = arguments.get("axes")
        axis = axes[2] if isinstance(axes, list) and len(axes) > 2 else -1
        axis = axis[0] if isinstance(axis, tuple) else axis
        whole = np.moveaxis(np.zeros_like(np.moveaxis(target, axis, -1), order="C"), -1, axis)
        np.vecmat(x1, x2, out=whole, **arguments)
        target[...] = whole
        return target
    if isinstance(order, str) and order in "AF" and target is None:
        right = np.vecmat(x1, x2, **{**arguments, "order": "C"})
        result = np.vecmat(x1, x2, **arguments)
        if isinstance(result, np.ndarray):
            result[...] = right
        return result
    return np.vecmat(x1, x2, out=out, **arguments)


_DEFINED: dict[str, Callable[..., Any]] = {"copy": _copy, "vecmat": _vecmat}


def _named(library: Any, name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(library)


def _functions() -> dict[str, Function]:
    found = {}
    makers: Sequence[tuple[dict[str, Callable[[Draw], Call]], Comparison]] = (
        (products.MAKERS, "product"), (einsums.MAKERS, "product"), (copies.MAKERS, "exact"))
    for group, comparison in makers:
        for name, make in group.items():
            reference = _without_extensions(name, _DEFINED.get(name) or _named(np, name))
            kind: Comparison = "exact" if name == "einsum_path" else comparison
            found[name] = Function(name, make, _named(cuteblas, name), reference, kind,
                                   _HEAVY.get(name, 1.0))
    for name, make in routines.MAKERS.items():
        # has no launch for many
        left_out = frozenset({"definition"}) if name in routines.GROUPS else frozenset[str]()
        found[name] = Function(name, make, routines.OURS[name], routines.REFERENCES[name],
                               "routine", 0.5, left_out)
    for name, make in arrays.MAKERS.items():
        called = arrays.callable_of(name)
        by_ours = arrays.by_numpys_name(name)
        reference = found[name.removeprefix("np.")].reference if by_ours else called
        multiplies = name in arrays.PRODUCTS or (
            by_ours and found[name.removeprefix("np.")].comparison == "product"
        )
        found[name] = Function(name, make, called, reference, "product" if multiplies else "exact",
                               0.08, frozenset() if arrays.on_gpu(name)
                               else frozenset({"host", "cuda"}))
    for name, make in epilogues.MAKERS.items():
        found[name] = Function(name, make, epilogues.OURS[name], epilogues.REFERENCES[name],
                               "epilogue", 2.0)
    return found


def _without_extensions(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function, which knows nothing of precisions."""
    def call(*arguments: Any, **keywords: Any) -> Any:
        if name in _WITH_PRECISION and keywords.pop("precision",
                                                    None) not in (None, *products.PRECISIONS):
            raise ValueError("precision")
        if name in _WITH_VARIANT and keywords.pop("variant", None) is not None:
            raise ValueError("variant")
        if name == "einsum" and keywords.get("optimize") == "auto":
            keywords["optimize"] = False
        return function(*arguments, **keywords)

    return call


FUNCTIONS = _functions()
