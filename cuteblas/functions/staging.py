"""From a product that NumPy accepts to a problem of kernels, the copies it needs, and its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engines.execution import Execution
from ..engines.memory import Memory
from ..engines.problems import Staged, folded_problem, matrix, readable, writable
from ..engines.replay.registry import replays
from ..planning.problem import GemmProblem
from .algorithms import AS_PLANNED, Algorithm
from .gufunc import Product, resolve_product


@dataclass(frozen=True)
class Staging:
    a: Staged
    b: Staged
    c: Staged
    problem: GemmProblem


def stage(x1: Memory, x2: Memory, out: Memory | None, product: Product,
          algorithm: Algorithm = AS_PLANNED) -> Staging:
    """Decide which operands are copied, and write down the problem."""
    # Kernels take any strides: an operand is copied only for another type, byte order or
    # alignment. ``out`` is computed elsewhere and then assigned if its type or alignment differs,
    # or if it overlaps an input or itself.
    a, b = readable(x1, product.dtype), readable(x2, product.dtype)
    c = Staged(product.memory) if out is None \
        else writable(out, (a, b), product.dtype)
    batch, extents = product.batch, product.extents
    matrices = (matrix(x.memory, core, batch)
                for x, core in zip((a, b, c), product.cores, strict=True))
    problem = folded_problem((extents.get("m", 1), extents.get("n", 1), extents["k"]), batch,
                             *matrices, **algorithm._asdict())
    if a.reason is b.reason is None and x1.address == x2.address != 0 and problem.is_gram:
        problem = replace(problem, triangle="both")
    return Staging(a, b, c, problem)


TILES = "matmul: tiles"
"""Products of tiles are counted by this name."""


def multiply_tile(a: Any, b: Any, c: Any, precision: str) -> None:
    head, replay = (TILES, precision), replays[type(a)]
    if replay is None or replay(head, (a, b), c) is None:
        from ..engines.cuda import CUDA

        run, memories = Execution(TILES, CUDA), (CUDA.memory(a), CUDA.memory(b), CUDA.memory(c))
        run_staged(run, (a, b), c, resolve_product(*memories), Algorithm(precision))
        run.record(head, (a, b), c, c, "abc")


def run_staged(run: Execution, arrays: Sequence[Any], out: Any, product: Product,
               algorithm: Algorithm) -> Any:
    """Copy what must be copied, multiply, and return ``out`` or the new array."""
    x1, x2 = arrays
    staging = stage(run.memory(x1), run.memory(x2), None if out is None else run.memory(out),
                    product, algorithm)
    c = out if out is not None and staging.c.reason is None else run.empty(staging.c.memory)
    plan = run.plan(staging.problem, x1)
    if staging.c.memory.size:
        plan = run.run_plan(plan, {"a": run.staged(x1, staging.a, "x1"),
                                   "b": run.staged(x2, staging.b, "x2"), "c": c})
    run.count("calls", plan.family if staging.c.memory.size else "nothing")
    if out is not None and c is not out:
        run.count("copies", f"out: {staging.c.reason}")
        run.assign(out, c)
    return c if out is None else out
