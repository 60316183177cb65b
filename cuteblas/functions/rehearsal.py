"""Calls that NumPy answers, planned as kernels would run them: an algorithm by name is refused wherever a kernel would refuse it.

Nothing is computed, and arrays in between have one element. Imported by the first call that names an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..planning.plan import Plan
from .contractions import EmulatorOfProducts, evaluate
from .engines import plan_for
from .expressions import Expression
from .gemms import prepare
from .gufunc import judge
from .kinds import kind_of
from .memory import Memory
from .named import How
from .problems import has_kernels, stage

__all__ = ["REHEARSAL", "rehearse_gemm", "rehearse_matmul", "rehearse_product"]


class _Rehearsal(EmulatorOfProducts):
    """NumPy arrays, and plans that nobody runs."""

    def empty(self, like: Memory) -> np.ndarray:
        """One element that stands for all of an array, and that nobody can write: there is no memory for others."""
        return as_strided(super().empty(Memory((), (), like.dtype)), like.shape, like.strides, writeable=False)

    def assign(self, dst: np.ndarray, src: np.ndarray) -> None:
        """Nothing."""

    def run(self, plan: Plan, arrays: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Nothing."""

    def multiply(self, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        """Nothing."""

    def scale(self, x: np.ndarray, exponent: int, out: np.ndarray) -> None:
        """Nothing."""

    def count(self, function: str, group: str, detail: str) -> None:
        """Nothing."""


REHEARSAL = _Rehearsal()


def rehearse_product(settle: Callable[..., Expression | None], operands: Sequence[Any], out: Any, how: How,
                     arguments: Mapping[str, Any]) -> Any:
    """Plan a product of two arrays: see :func:`cuteblas.functions.routing.answer`.

    Returns
    -------
    array or None
        What stands for the result; ``None`` if no kernel would have a part in it.

    Raises
    ------
    TypeError, ValueError, IndexError
        What the call would raise if kernels answered it.
    """
    arrays = taken(operands, out)
    if arrays is None:
        return None
    settled = settle(*map(REHEARSAL.memory, arrays), None if out is None else REHEARSAL.memory(out), **arguments)
    if settled is None or not has_kernels(settled.dtype):
        return None
    return evaluate("rehearsal", REHEARSAL, settled, arrays, out, how=how)


def taken(operands: Sequence[Any], out: Any) -> tuple[np.ndarray, ...] | None:
    """The arrays of a call that kernels would take; ``None`` if they would take none."""
    if any(kind_of(x) not in ("numpy", "scalar", "like") for x in operands) or not (out is None or type(out) is np.ndarray):
        return None
    arrays = tuple(np.asarray(x) for x in operands)
    return arrays if all(has_kernels(x.dtype) for x in arrays) else None


def rehearse_matmul(x1: Any, x2: Any, out: Any, precision: str, arguments: Mapping[str, Any]) -> None:
    """Plan ``matmul``: see :func:`cuteblas.matmul`.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What the call would raise if kernels answered it.
    """
    arrays = taken((x1, x2), out)
    if arrays is None:
        return
    memories = REHEARSAL.memory(arrays[0]), REHEARSAL.memory(arrays[1]), None if out is None else REHEARSAL.memory(out)
    product = judge(*memories, arguments)
    if has_kernels(product.dtype):
        staging = stage(*memories, product, precision)
        if staging.c.memory.size:
            plan_for(staging.problem, REHEARSAL.device(arrays[0]))


def rehearse_gemm(a: np.ndarray, b: np.ndarray, arguments: Mapping[str, Any]) -> None:
    """Plan a product in BLAS terms: see :func:`cuteblas.functions.gemms.prepare`.

    Raises
    ------
    TypeError, ValueError
        What the call would raise if kernels answered it.
    """
    plan_for(prepare(REHEARSAL, a, b, **arguments).problem, REHEARSAL.device(a))
