"""Methods of NumPy's ufuncs, and calls with ``where``, on CuPy arrays.

It imports CuPy, and is imported when the first of them arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

__all__ = ["by_cupy", "operands"]

# CuPy's do not take complex numbers
_LOGICAL = frozenset({np.logical_and, np.logical_not, np.logical_or, np.logical_xor})
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min",
               "logical_and": "all", "logical_or": "any"}


def operands(ufunc: np.ufunc, *inputs: Any) -> tuple[Any, ...]:
    made = tuple([cupy.asarray(x) if isinstance(x, (list, tuple)) else x for x in inputs])
    if ufunc is np.power and isinstance(made[1], (int, np.integer)) and made[1] < 0 and made[0].dtype.kind in "iu":
        raise ValueError("Integers to negative integer powers are not allowed.")
    if ufunc in _LOGICAL:
        return tuple([x != 0 if isinstance(x, cupy.ndarray) and x.dtype.kind == "c" else x
                      for x in made])
    return made


def by_cupy(ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    """A ufunc's ``method``, or its call with ``where``, on CuPy arrays, or a TypeError."""
    if method == "__call__":
        return lambda *inputs, **named: _masked(ufunc, *inputs, **named)
    name = ufunc.__name__

    def call(x: Any, *others: Any, out: Any = None, **named: Any) -> Any:
        if out is not None:
            named["out"], = out
        try:
            if method == "reduce" and name in _REDUCTIONS:
                return getattr(x, _REDUCTIONS[name])(**{"axis": 0, **named})
            return getattr(getattr(cupy, name), method)(x, *others, **named)
        except (AttributeError, NotImplementedError):
            raise TypeError(f"CuPy has no {name}.{method}") from None

    return call


def _masked(ufunc: np.ufunc, *inputs: Any, where: Any, out: tuple[Any, ...] | None = None,
            **named: Any) -> Any:
    """A call that writes those elements of the result of which ``where`` is true."""
    mask = where if isinstance(where, cupy.ndarray) else cupy.asarray(np.asarray(where, bool))

    def shown(x: Any) -> Any:
        return np.ones(1, x.dtype) if isinstance(x, cupy.ndarray) else x

    into = {} if out is None else {"out": tuple(map(shown, out))}
    with np.errstate(all="ignore"):
        # which also warns of a missing out
        ufunc(*map(shown, inputs), where=np.ones((1,) * min(mask.ndim, 1), mask.dtype), **into,
              **named)
    results = ufunc(*inputs, **named)
    written = []
    for result, given in zip(results if ufunc.nout > 1 else (results,), out or (None,) * ufunc.nout,
                             strict=True):
        if given is None:
            given = cupy.empty(np.broadcast_shapes(result.shape, mask.shape), result.dtype)
        cupy.copyto(given, result, named.get("casting", "same_kind"), mask)
        written.append(given)
    return tuple(written) if ufunc.nout > 1 else written[0]
