"""``C = epilogue(alpha A B + beta C)`` by NumPy's BLAS: BLAS routines on NumPy arrays, in kernels' types and with their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...codegen.dtypes import accumulator_of
from ..counters import tally
from ..exact import matmul

__all__ = ["numpy_gemm"]


def numpy_gemm(a: np.ndarray, b: np.ndarray, *, conj_a: bool = False, conj_b: bool = False, alpha: Any = 1, beta: Any = 0,
               c: np.ndarray | None = None, out: np.ndarray | None = None, output: str | None = None, compute: str | None = None,
               epilogue: Any = None, order: str = "F", function: str = "gemm") -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Multiply NumPy arrays: see :func:`cuteblas.functions.gemm.prepare` for the arguments, which are checked.

    Sums of 16-bit numbers are float32 and are rounded once; sums of int8 are exact and wrap in int32.

    Returns
    -------
    array, dict
        C, and the epilogue's further results by name.
    """
    kind = np.dtype(output) if output else next(x.dtype for x in (out, c, a) if x is not None)
    sums = np.dtype(compute or accumulator_of(a.dtype.name, b.dtype.name, kind.name))
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (a, b, c, out) if x is not None))
    shape = (*batch, a.shape[-2], b.shape[-1])
    alpha, beta = (sums.type(x[()] if isinstance(x, np.ndarray) else x) for x in (alpha, beta))
    a, b = (np.conj(x) if conj else x for x, conj in ((a, conj_a), (b, conj_b)))
    target = _new(shape, kind, order) if out is None else out
    extras: Mapping[str, np.ndarray] = {}
    with np.errstate(all="ignore"):     # as on a GPU: overflow is infinite, without a warning
        if epilogue is not None:
            from ..epilogues import evaluate

            acc = np.zeros(shape, sums) if alpha == 0 else _product(a, b, sums, shape)
            before = None if c is None else np.broadcast_to(c, shape)
            target[...], extras = evaluate(epilogue, acc, output=kind.name, alpha=alpha, beta=beta, c=before, a=a, b=b)
        else:
            _combine(a, b, alpha, beta, c, target, sums)
    tally(function, "calls", "numpy" if target.size else "nothing").tick()
    return target, extras


def _new(shape: tuple[int, ...], kind: np.dtype, order: str) -> np.ndarray:
    """A new array whose matrices are in an order."""
    *batch, m, n = shape
    return np.empty(shape, kind) if order == "C" else np.empty((*batch, n, m), kind).swapaxes(-1, -2)


def _combine(a: np.ndarray, b: np.ndarray, alpha: Any, beta: Any, c: np.ndarray | None, target: np.ndarray, sums: np.dtype) -> None:
    """``target = alpha A B + beta C``; what is multiplied by zero is not looked at."""
    if beta == 0:
        c = None
    if alpha == 1 and c is None and a.dtype == target.dtype == sums \
            and np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) == target.shape[:-2]:
        np.matmul(a, b, out=target)
        return
    scaled: Any = 0
    if alpha != 0:
        scaled = _product(a, b, sums, target.shape)
        if alpha != 1:
            scaled = scaled * alpha
    if c is not None:
        scaled = scaled + c.astype(sums) * beta
    target[...] = scaled


def _product(a: np.ndarray, b: np.ndarray, sums: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A B in the type of the sums, broadcast to a shape."""
    product = matmul(None, a, b, dtype=sums) if sums.kind == "i" else None
    if product is None:
        product = np.matmul(a.astype(sums, copy=False), b.astype(sums, copy=False))
    return np.broadcast_to(product, shape)
