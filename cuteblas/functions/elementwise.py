"""Functions of elements by our kernels, as products of nothing with an epilogue: for numbers that CuPy's kernels flush to zero.

CuPy compiles with flush-to-zero, so its float32 kernels lose subnormal numbers, which NumPy keeps. A product with K = 0 reads
nothing of A and B; its epilogue reads operands of any strides and writes C.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..codegen.epilogue import EpilogueGraph, Node, epilogue_role
from ..planning.problem import GemmProblem
from .memory import Memory
from .problems import Matrix, folded_problem

__all__ = ["cast_of", "elementwise_problem", "flushed_by_a_cast", "flushed_by_a_product", "product_of", "roles"]

_LONGEST_ROW = 256                      # elements, into which one long mode is divided


def flushed_by_a_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether CuPy's cast between these types loses subnormal numbers: float32 to or from float64, and to bool."""
    single, double = "fF", "dD"
    return (source.char in single and target.char in f"{double}?") or (source.char in double and target.char in single)


def flushed_by_a_product(dtype: np.dtype) -> bool:
    """Whether CuPy's products of elements of that type lose subnormal numbers."""
    return dtype.char in "fF"


@lru_cache(maxsize=64)
def cast_of(source: str, target: str) -> EpilogueGraph:
    """An element ``x`` of one type in another."""
    return EpilogueGraph("cast", Node("cast", target, (Node("operand", source, name="x"),)))


@lru_cache(maxsize=16)
def product_of(dtype: str) -> EpilogueGraph:
    """The product of elements ``x`` and ``y``."""
    return EpilogueGraph("product", Node("multiply", dtype, (Node("operand", dtype, name="x"), Node("operand", dtype, name="y"))))


def elementwise_problem(graph: EpilogueGraph, out: Memory, operands: Mapping[str, Memory]) -> GemmProblem:
    """The problem of computing a graph of operands, all of the shape of the result and of whole elements, into ``out``."""
    every = (out, *operands.values())
    strides = [tuple(stride // x.dtype.itemsize for stride in x.strides) for x in every]
    modes: list[tuple[int, ...]] = []                   # the extent, then the stride of each array
    for mode in sorted(zip(out.shape, *strides, strict=True), key=lambda mode: -abs(mode[1])):
        extent, *steps = mode
        if extent == 1:
            continue
        if modes and all(outer == inner * extent for outer, inner in zip(modes[-1][1:], steps, strict=True)):
            mode = (modes.pop()[0] * extent, *steps)
        modes.append(mode)
    if len(modes) == 1:                                 # tiles have rows and columns
        extent, *steps = modes[0]
        row = next(n for n in range(min(_LONGEST_ROW, extent), 0, -1) if extent % n == 0)
        modes = [(extent // row, *(step * row for step in steps)), (row, *steps)]
    modes = [(1,) * (1 + len(every))] * (2 - len(modes)) + modes
    *batch, rows, columns = modes
    matrices = [Matrix(x.dtype.name, rows[i], columns[i], tuple(mode[i] for mode in batch), x.alignment)
                for i, x in enumerate(every, 1)]
    nothing = Matrix(out.dtype.name, 0, 0, (0,) * len(batch), out.alignment)
    return folded_problem((rows[0], columns[0], 0), tuple(mode[0] for mode in batch), nothing, nothing, matrices[0], graph=graph,
                          operands=dict(zip(operands, matrices[1:], strict=True)), precision="ieee")


def roles(operands: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """The arrays of such a problem by role: nothing is read of A and B."""
    return {"a": out, "b": out, "c": out, **{epilogue_role(name): x for name, x in operands.items()}}
