"""Calls of matmul with an epilogue: a pool of functions with operands of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import cuteblas
from cuteblas.epilogues import epilogue

from ..calls import Argument, Call, Code
from ..draw import Building, Draw
from ..values import arrays_of, evaluated
from .products import result_dtype

__all__ = ["MAKERS", "OURS", "POOL", "REFERENCES", "wide"]


@dataclass(frozen=True)
class Entry:
    """A function of the pool.

    Attributes
    ----------
    function : callable
        As a user writes it, in NumPy's terms.
    operands : mapping
        What each one is: ``"column"`` (a value for each column), ``"row"``, ``"matrix"``,
        ``"scalar"`` (0-d array), ``"number"``, or ``"state"``: a number that the function does not
        take but reads from an object.
    ready : bool
        Whether it is one of ``cuteblas.epilogues``.
    """

    function: Callable[..., Any]
    operands: Mapping[str, str]
    ready: bool = False


def _bias_relu_aux(acc: Any, bias: Any) -> Any:
    pre = acc + bias
    return np.maximum(pre, 0), {"pre": pre}


def _clamp(acc: Any, lo: Any = None, hi: Any = None) -> Any:
    acc = acc if lo is None else np.maximum(acc, lo)
    return acc if hi is None else np.minimum(acc, hi)


def _silu(acc: Any) -> Any:
    return acc / (1 + np.exp(-acc))


def _leaky(acc: Any, slope: Any) -> Any:
    return np.where(acc > 0, acc, slope * acc)


def _affine(acc: Any, scale: Any, shift: Any) -> Any:
    return acc * scale + shift


def _statistics(acc: Any, bias: Any) -> Any:
    pre = acc + bias
    return pre, {"largest": np.max(pre, axis=-1), "total": pre.sum(axis=-2)}


def _gated(acc: Any, gate: Any) -> Any:
    return acc * np.where(gate > 0, 1, 0)


_STATE = SimpleNamespace(slope=1.0)


def _tunable(acc: Any) -> Any:
    return np.where(acc > 0, acc, acc * _STATE.slope)


def _squared(acc: Any) -> Any:
    return np.square(acc) - acc


POOL: dict[str, Entry] = {
    "bias": Entry(lambda acc, bias: acc + bias, {"bias": "column"}, True),
    "relu": Entry(lambda acc: np.maximum(acc, 0), {}, True),
    "bias_relu_aux": Entry(_bias_relu_aux, {"bias": "row"}),
    "clamp": Entry(_clamp, {"lo": "number", "hi": "number"}, True),
    "scale": Entry(lambda acc, scale: acc * scale, {"scale": "number"}, True),
    "residual_add": Entry(lambda acc, residual: acc + residual, {"residual": "matrix"}, True),
    "tanh": Entry(lambda acc: np.tanh(acc), {}, True),
    "silu": Entry(_silu, {}),
    "leaky": Entry(_leaky, {"slope": "number"}),
    "affine": Entry(_affine, {"scale": "column", "shift": "scalar"}),
    "statistics": Entry(_statistics, {"bias": "column"}),
    "gated": Entry(_gated, {"gate": "matrix"}),
    "squared": Entry(_squared, {}),
    "tunable": Entry(_tunable, {"slope": "state"}),
}


def _decorated() -> dict[str, Any]:
    """The epilogues of the pool, with operands as keywords."""
    silu, squared, tunable = epilogue(_silu), epilogue(_squared), epilogue(_tunable)

    @epilogue
    def bias_relu_aux(acc: Any, *, bias: Any) -> Any:
        return _bias_relu_aux(acc, bias)

    @epilogue
    def leaky(acc: Any, *, slope: Any) -> Any:
        return _leaky(acc, slope)

    @epilogue
    def affine(acc: Any, *, scale: Any, shift: Any) -> Any:
        return _affine(acc, scale, shift)

    @epilogue
    def statistics(acc: Any, *, bias: Any) -> Any:
        return _statistics(acc, bias)

    @epilogue
    def gated(acc: Any, *, gate: Any) -> Any:
        return _gated(acc, gate)

    return {"silu": silu, "squared": squared, "tunable": tunable, "bias_relu_aux": bias_relu_aux,
            "leaky": leaky, "affine": affine, "statistics": statistics, "gated": gated,
            **{name: getattr(cuteblas.epilogues, name) for name, entry in POOL.items()
               if entry.ready}}


_EPILOGUES = _decorated()


def matmul(x1: Any, x2: Any, name: str, out: Any = None, **operands: Any) -> Any:
    """``cuteblas.matmul`` with an epilogue of the pool."""
    return cuteblas.matmul(x1, x2, out=out, epilogue=_EPILOGUES[name](**_passed(name, operands)))


def _passed(name: str, operands: Mapping[str, Any]) -> dict[str, Any]:
    """The operands that a function takes; the others are set where it reads them."""
    states = {key for key, kind in POOL[name].operands.items()
              if kind == "state"} if name in POOL else set()
    for key in states & operands.keys():
        setattr(_STATE, key, operands[key])
    return {key: x for key, x in operands.items() if key not in states}


def _applied(name: str, acc: Any, operands: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    fitted = {}
    for key, x in _passed(name, operands).items():
        if isinstance(x, np.ndarray) and x.dtype.char == "e":
            x = x.astype("f")
        if isinstance(x, np.ndarray) and np.broadcast_shapes(x.shape, acc.shape) != acc.shape:
            raise ValueError("shape of an operand")
        fitted[key] = x
    returned = POOL[name].function(acc, **fitted)
    value, more = returned if isinstance(returned, tuple) else (returned, {})
    return np.broadcast_to(value, acc.shape), more


def _reference(x1: Any, x2: Any, name: str, out: Any = None, **operands: Any) -> Any:
    """The product, and what follows it, by NumPy."""
    product = np.matmul(x1, x2)
    if product.ndim < 2 or min(np.ndim(x1), np.ndim(x2)) < 2:
        raise ValueError("vectors")
    dtype = product.dtype
    acc = np.matmul(np.asarray(x1, "f"), np.asarray(x2, "f")) if dtype.char == "e" else product
    value, more = _applied(name, acc, operands)
    if not np.can_cast(value.dtype, dtype, "same_kind"):
        raise TypeError("cast")
    result = np.matmul(x1, x2, out=out) if out is not None else product
    with np.errstate(all="ignore"):
        result[...] = value.astype(dtype)
        further = {key: np.asarray(x, dtype if x.dtype.char == "f" and dtype.char == "e"
                                   and x.shape == acc.shape else x.dtype)
                   for key, x in more.items()}
    return (result, *further.values()) if further else result


def _flat(x1: Any, x2: Any, name: str, out: Any = None, **operands: Any) -> Any:
    """Ours, with further results in a tuple."""
    returned = matmul(x1, x2, name, out, **operands)
    return (returned[0], *returned[1].values()) if isinstance(returned, tuple) else returned


OURS: dict[str, Callable[..., Any]] = {"epilogues.matmul": _flat}
REFERENCES: dict[str, Callable[..., Any]] = {"epilogues.matmul": _reference}


def wide(
    call: Call, exact: np.ndarray, radius: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Exact results of an epilogue, how far they may be off from those of the sums, and the size of
    what was added."""
    arrays = arrays_of(call)
    name = evaluated(call.arguments[2], arrays)
    kind = "G" if exact.dtype.kind == "c" else "g"
    operands = {key: evaluated(x, arrays) for key, x in call.keywords if key != "out"}
    operands = {key: np.asarray(x).astype(kind) if isinstance(x, (np.ndarray, np.generic)) else x
                for key, x in operands.items()}
    results = []
    with np.errstate(all="ignore"):
        middle, *others = (_leaves(name, exact + sign * radius, operands) for sign in (0, -1, 1))
        for i, value in enumerate(middle):
            apart = np.max([np.abs(other[i] - value) for other in others], axis=0)
            size = np.abs(value)
            if i == 2 and value.shape != exact.shape:           # the sums of columns
                size = np.abs(middle[0]).sum(axis=-2) * exact.shape[-2]
            results.append((value, 2 * apart, size))
    return results


def _leaves(name: str, acc: np.ndarray, operands: Mapping[str, Any]) -> list[np.ndarray]:
    value, more = _applied(name, acc, operands)
    return [np.asarray(value), *map(np.asarray, more.values())]


def _make(draw: Draw) -> Call:
    b = Building(draw)
    m, n, k = draw.extents(3)
    batch = draw.weighted({(): 8, (2,): 1, (3, 2): 0.3})
    if draw.chance(0.8):
        b.base = draw.weighted({"<f4": 4, "<f8": 2, "<f2": 2, "<i4": 0.5, "<c8": 0.3})
    x1, x2 = b.array((*(batch if draw.chance(0.7) else ()), m, k)), b.array((*batch, k, n))
    name = draw.choice(list(POOL))
    kinds = {np.dtype(b.view(x).dtype).kind for x in (x1, x2)}
    acc = np.result_type(b.view(x1).dtype,
                         b.view(x2).dtype) if kinds <= set("biufc") else np.dtype("f8")
    keywords: dict[str, Argument] = {}
    for key, kind in POOL[name].operands.items():
        dtype = acc.str if draw.chance(0.85) else draw.choice(("<f4", "<f2", "<i4", "|b1"))
        if kind == "state":
            keywords[key] = Code(draw.choice(("0.5", "2.0", "-1.5")))
        elif kind == "number":
            if name != "clamp" or draw.chance(0.7):
                keywords[key] = Code(draw.choice(("0", "1", "2", "0.5", "-1.5", "3",
                                                  "np.float32(0.25)")))
        elif kind == "scalar":
            keywords[key] = b.array((), dtype, layout="C", alone=True)
        elif kind == "matrix":
            keywords[key] = b.array((*batch, m, n) if draw.chance(0.7) else (m, n), dtype)
        elif kind == "row":
            keywords[key] = b.array((m, 1) if draw.chance(0.8) else (m,), dtype)
        else:
            keywords[key] = b.array((1, n) if draw.chance(0.7) else (n,), dtype)
    if draw.chance(0.4):
        keywords["out"] = b.out((*batch, m, n),
                                result_dtype(b, (x1, x2)) if draw.chance(0.1) else acc.str)
    return b.call("epilogues.matmul", [x1, x2, Code(repr(name))], keywords)


MAKERS: dict[str, Callable[[Draw], Call]] = {"epilogues.matmul": _make}
