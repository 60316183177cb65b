"""Functions of elements as epilogues of products with K = 0, where CuPy's kernels flush to zero.

CuPy's float32 kernels lose subnormal numbers, which NumPy keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .._dtypes import dtype, element_of
from ..planning.problem import GemmProblem, Operand, merged
from .memory import Memory
from .problems import folded_problem

if TYPE_CHECKING:
    # with the language of kernels, which few calls need
    from ..codegen.epilogue import EpilogueGraph, Node

__all__ = ["cast_by_kernels", "cast_of", "elementwise_parts", "flushed_by_a_cast",
           "flushed_by_a_product", "product_of", "roles", "scaled_of"]

_ROW = 256      # elements, into which a long mode is divided where tiles would have too few columns
_FEW = 32       # of them leave most of a tile idle


def flushed_by_a_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether CuPy's cast loses subnormal numbers: float32 to or from float64, and to bool."""
    single, double = "fF", "dD"
    return (source.char in single and target.char in f"{double}?") or (
        source.char in double and target.char in single
    )


def cast_by_kernels(source: np.dtype, target: np.dtype) -> bool:
    """Whether our kernels cast, where CuPy's flush, keep odd bytes of bools, or lack the type."""
    rows = (element_of(source), element_of(target))
    foreign = any(row is not None and row.package != "numpy" for row in rows)
    return source.char == "?" or foreign or flushed_by_a_cast(source, target)


def flushed_by_a_product(dtype: np.dtype) -> bool:
    """Whether CuPy's products lose subnormal numbers, or use 2 and 4 for true."""
    return dtype.char in "fF?"


@lru_cache(maxsize=64)
def cast_of(source: str, target: str) -> EpilogueGraph:
    from ..codegen.epilogue import EpilogueGraph, Node

    return EpilogueGraph("cast", Node("cast", target, (Node("operand", source, name="x"),)))


@lru_cache(maxsize=64)
def product_of(x: str, y: str, target: str) -> EpilogueGraph:
    """The product of ``x`` and ``y``, computed at least in float32 and rounded once."""
    from ..codegen.epilogue import EpilogueGraph, Node

    wide = np.promote_types(dtype(x).computed, dtype(y).computed).name
    product = Node("multiply", wide, tuple(_in(wide, Node("operand", of, name=name))
                                           for name, of in (("x", x), ("y", y))))
    return EpilogueGraph("product", _in(target, product))


@lru_cache(maxsize=256)
def scaled_of(dtype: str, exponent: int) -> EpilogueGraph:
    from ..codegen.epilogue import EpilogueGraph, Node

    return EpilogueGraph("scaled", Node("multiply", dtype,
                                        (Node("operand", dtype, name="x"),
                                         Node("constant", dtype, value=2.0**exponent))))


def _in(target: str, node: Node) -> Node:
    return node if node.dtype == target else type(node)("cast", target, (node,))


def elementwise_parts(graph: EpilogueGraph, out: Memory,
                      operands: Mapping[str, Memory]) -> list[GemmProblem]:
    """The problems of computing a graph of operands of the result's shape into ``out``."""
    every = (out, *operands.values())
    strides = [tuple(stride // x.dtype.itemsize for stride in x.strides) for x in every]
    one = (1,) * (1 + len(every))
    modes = sorted(merged((one, *zip(out.shape, *strides, strict=True))),
                   key=lambda mode: -abs(mode[1]))
    # the two longest are rows and columns
    if len(modes) > 1 and min(modes[-2][0], modes[-1][0]) < _FEW:
        rows, columns = sorted(sorted(range(len(modes)), key=lambda i: -modes[i][0])[:2])
        modes = [mode for i, mode in enumerate(modes) if i not in (rows, columns)] + [
            modes[rows],
            modes[columns]
        ]
    if len(modes) < 2 or min(modes[-2][0], modes[-1][0]) < _FEW:
        longest = max(modes, default=one)
        if longest[0] > _ROW:
            modes.remove(longest)
            return _divided(graph, every, tuple(operands), modes, longest)
    return [_part(graph, every, tuple(operands), [one] * (2 - len(modes)) + modes)]


def _divided(graph: EpilogueGraph, every: tuple[Memory, ...], names: tuple[str, ...],
             others: list[tuple[int, ...]], longest: tuple[int, ...]) -> list[GemmProblem]:
    """One mode as rows of one length, and what is left of it; the other modes are a batch."""
    extent, *steps = longest
    row = next((n for n in range(_ROW, _ROW // 2, -1) if extent % n == 0), _ROW)
    parts = [_part(graph, every, names, [*others, (extent // row, *(step * row for step in steps)),
                                         (row, *steps)])]
    if left := extent % row:
        shifts = tuple((extent - left) * step * x.dtype.itemsize
                       for step, x in zip(steps, every, strict=True))
        parts.append(_part(graph, every, names, [*others, (1,) * len(longest), (left, *steps)],
                           shifts))
    return parts


def _part(graph: EpilogueGraph, every: tuple[Memory, ...], names: tuple[str, ...],
          modes: list[tuple[int, ...]], shifts: tuple[int, ...] = ()) -> GemmProblem:
    """The problem of elements from so many bytes behind the beginnings of arrays on."""
    *batch, rows, columns = modes
    shifts = shifts or (0,) * len(every)
    matrices = [Operand(x.dtype.name, (rows[i], columns[i]), tuple(mode[i] for mode in batch),
                        alignment=x.alignment).moved(shift)
                for i, (x, shift) in enumerate(zip(every, shifts, strict=True), 1)]
    out = dtype(every[0].dtype.name)
    nothing = Operand(out.name if out.is_multiplied else out.computed, (0, 0), (0,) * len(batch),
                      alignment=matrices[0].alignment)
    return folded_problem((rows[0], columns[0], 0), tuple(mode[0] for mode in batch), nothing,
                          nothing, matrices[0], graph=graph,
                          operands=dict(zip(names, matrices[1:], strict=True)), precision="ieee")


def roles(operands: Mapping[str, Any], out: Any) -> dict[str, Any]:
    """The arrays by role; nothing is read of A and B."""
    from ..codegen.epilogue import epilogue_role

    return {"a": out, "b": out, "c": out, **{epilogue_role(name): x
                                             for name, x in operands.items()}}
