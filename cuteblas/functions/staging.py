"""A product that NumPy accepts as one of matrices: operands that are copied, and its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._dtypes import accumulator_of
from ..engines.dispatch import replays
from ..engines.emulator import REHEARSAL
from ..engines.execution import Execution
from ..engines.memory import Memory, shadow
from ..engines.problems import has_kernels, readable
from ..planning.problem import GemmProblem
from .algorithms import AS_PLANNED, Algorithm
from .gemm import GemmArguments, Result, gemm, prepare
from .gufunc import Product, resolve_product


def run_product(run: Execution, product: Product, given: GemmArguments,
                multiply: Callable[[Execution, GemmArguments], Result] = gemm) -> Result:
    """Multiply matrices of the operands."""
    # Kernels take any strides: an operand is copied only for another type, byte order or
    # alignment. Without an epilogue, ``out`` is computed elsewhere and then assigned if its type or
    # alignment differs, or if it overlaps an input or itself.
    out, bound, name = given.out, given.epilogue, product.dtype.name
    first, second = (run.staged(x, readable(run.memory(x), product.dtype), operand)
                     for x, operand in ((given.a, "x1"), (given.b, "x2")))
    result = run.empty(product.memory) if out is None else out
    arrays = first, second, result
    a, b, c = map(run.derived, product.matrices(*arrays), arrays)
    output = name if bound is None else _stored(result.dtype)
    compute = None if output == name else accumulator_of(name, name, name)
    same = bound is None and run.memory(a).address == run.memory(b).address != 0
    _c, auxiliary = multiply(run, given._replace(
        a=a, b=b, out=c, output=output, compute=compute, order="C", is_new=out is None,
        triangle="both" if same else None))
    beyond = max(a.ndim, b.ndim) - c.ndim               # axes of extent 1 that out lacks
    if beyond > 0:
        auxiliary = {name: x if name in bound.outputs else x.reshape(x.shape[beyond:])
                     for name, x in auxiliary.items()}
    return result, auxiliary


def _stored(dtype: np.dtype) -> str:
    """The type that results are rounded to: that of ``out`` or the kernels' widest."""
    return dtype.name if has_kernels(dtype) else "complex128" if dtype.kind == "c" else "float64"


def arrays_at(*memories: Memory) -> list[np.ndarray]:
    """Arrays that must not be read, at addresses of their own where they have none."""
    return [shadow(x.shape, x.strides, x.dtype.str, x.address or i << 44)
            for i, x in enumerate(memories, 1)]


def problem_of(x1: Memory, x2: Memory, algorithm: Algorithm = AS_PLANNED) -> GemmProblem:
    """The problem of a product of operands that need not exist."""
    problems: list[GemmProblem] = []

    def note(run: Execution, given: GemmArguments) -> Result:
        problems.append(prepare(run, given).problem)
        return None, {}

    a, b = arrays_at(x1, x2)
    run_product(Execution("matmul", REHEARSAL), resolve_product(x1, x2),
                GemmArguments(a, b, algorithm=algorithm), note)
    return problems[0]


TILES = "matmul: tiles"
"""Products of tiles are counted by this name."""


def multiply_tile(a: Any, b: Any, c: Any, precision: str) -> None:
    head, replay = (TILES, precision), replays[type(a)]
    if replay is None or replay(head, (a, b), c) is None:
        from ..engines.cuda import CUDA

        run, memories = Execution(TILES, CUDA), (CUDA.memory(a), CUDA.memory(b), CUDA.memory(c))
        run_product(run, resolve_product(*memories),
                    GemmArguments(a, b, out=c, algorithm=Algorithm(precision)))
        run.record(head, (a, b), c, c, "abc")
