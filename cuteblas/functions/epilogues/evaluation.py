"""Epilogues by NumPy: the Python function, run as it is, with the types and the rules of kernels
around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._dtypes import dtype as element
from .epilogue import Bound, widened
from .resolution import resolve

__all__ = ["evaluate"]


def evaluate(bound: Bound, acc: np.ndarray, *, output: str | None = None, alpha: Any = 1,
             beta: Any = 0, c: np.ndarray | None = None, a: np.ndarray | None = None,
             b: np.ndarray | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Apply an epilogue to the sums of a product.

    Parameters
    ----------
    bound : Bound
        The epilogue with its operands.
    acc : numpy.ndarray
        The sums of products, of shape (..., m, n), in the type in which they are added; not
        multiplied by alpha.
    output : str, optional
        The type of C, in which the result is returned; by default the one that the function
        computes.
    alpha, beta : number or array of no dimensions
        The scalars.
    c : numpy.ndarray, optional
        What C was, broadcast to (..., m, n); it is not looked at if beta is 0, unless the epilogue
        takes ``c`` and no ``beta``.
    a, b : numpy.ndarray, optional
        The operands of the product, conjugated, for epilogues that reduce them.

    Returns
    -------
    array, dict of array
        The result, and the auxiliary outputs by name: the given arrays where there are some.

    Raises
    ------
    TypeError, ValueError, OverflowError
        What :func:`~cuteblas.functions.epilogues.resolve` raises: whatever a kernel refuses is
        refused here too.
    """
    epilogue, sums, named = bound.epilogue, acc.dtype, bound.epilogue.parameters
    alpha, beta = (np.asarray(x).astype(sums)[()] for x in (alpha, beta))
    trace = resolve(bound, accumulator=sums.name, output=output, shape=acc.shape,
                    beta="zero" if beta == 0 else "value", has_c=c is not None,
                    inputs={name: x.shape for name, x in (("a", a), ("b", b))
                            if x is not None}).trace
    target = element(trace.output).numpy
    if c is None or (beta == 0 and not ("c" in named and "beta" not in named)):
        c = np.zeros((1,) * acc.ndim, target)           # not looked at
    before = widened(c.astype(target))
    # one times an infinite complex number is not that number
    if "alpha" not in named and alpha != 1:
        acc = alpha * acc
    if "c" not in named and beta != 0:
        acc = acc + (before.astype(sums) if beta == 1 else beta * before.astype(sums))
    product = {"acc": acc, "c": before, "alpha": alpha, "beta": beta, "a": a, "b": b}
    arguments = {name: product[name] for name in named if name not in epilogue.operands}
    returned = epilogue.computed({**epilogue.operands, **arguments, **bound.operands})
    value, auxiliary = returned if isinstance(returned, tuple) else (returned, {})
    result = np.broadcast_to(value, acc.shape).astype(target)
    types = dict(trace.outputs) | {name: dtype for name, *_how, dtype in trace.reductions}
    return result, {name: _stored(x, types[name], bound.outputs.get(name))
                    for name, x in auxiliary.items()}


def _stored(x: np.ndarray, dtype: str, into: np.ndarray | None) -> np.ndarray:
    """An auxiliary output in its type, in the array that was given for it."""
    if into is None:
        return np.asarray(x).astype(element(dtype).numpy)
    np.copyto(into, x, casting="unsafe")        # resolve refused what is not of the same kind
    return into
