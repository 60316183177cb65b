"""``alpha A B + beta C`` by NumPy's BLAS, in kernels' types and with their rules."""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass
from typing import Any

import numpy as np

from .exact import matmul

__all__ = ["QUIET", "Multiplication", "new_array", "product_in"]

QUIET = Context()
"""``QUIET.copy().run`` calls without NumPy's warnings, in a quarter of ``errstate``'s time."""
QUIET.run(np.seterr, all="ignore")


@dataclass(frozen=True, slots=True)
class Multiplication:
    """``alpha A B + beta C`` of certain shapes and types; ``plain``: just A B."""

    shape: tuple[int, ...]
    kind: np.dtype
    sums: np.dtype
    order: str
    conj_a: bool
    conj_b: bool
    plain: bool

    def run(self, a: np.ndarray, b: np.ndarray, alpha: Any, beta: Any, c: np.ndarray | None,
            out: np.ndarray | None) -> np.ndarray:
        """The result; overflow is infinite, without a warning, as on a GPU."""
        target = new_array(self.shape, self.kind, self.order) if out is None else out
        with np.errstate(all="ignore"):
            if self.plain:
                np.matmul(a, b, target)
            else:
                a, b = np.conj(a) if self.conj_a else a, np.conj(b) if self.conj_b else b
                _combine(a, b, self.sums.type(alpha), self.sums.type(beta), c, target, self.sums)
        return target


def new_array(shape: tuple[int, ...], kind: np.dtype, order: str) -> np.ndarray:
    if len(shape) == 2:
        return np.empty(shape, kind, order)             # type: ignore[call-overload]
    *batch, m, n = shape
    return np.empty(shape, kind) if order == "C" else np.empty((*batch, n, m),
                                                               kind).swapaxes(-1, -2)


def _combine(a: np.ndarray, b: np.ndarray, alpha: Any, beta: Any, c: np.ndarray | None,
             target: np.ndarray, sums: np.dtype) -> None:
    """``target = alpha A B + beta C``; what is multiplied by zero is not looked at."""
    if beta == 0:
        c = None
    if alpha == 1 and c is None and a.dtype == target.dtype == sums \
            and np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) == target.shape[:-2]:
        np.matmul(a, b, out=target)
        return
    scaled: Any = 0
    if alpha != 0:
        scaled = product_in(a, b, sums, target.shape)
        if alpha != 1:
            scaled = scaled * alpha
    if c is not None:
        # one times an infinite complex number is not that number
        before = c.astype(sums, copy=False)
        scaled = scaled + (before if beta == 1 else before * beta)
    target[...] = scaled


def product_in(a: np.ndarray, b: np.ndarray, sums: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    product = matmul(None, a, b, dtype=sums) if sums.kind == "i" else None
    if product is None:
        product = np.matmul(a.astype(sums, copy=False), b.astype(sums, copy=False))
    return product if product.shape == shape else np.broadcast_to(product, shape)
