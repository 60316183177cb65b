"""The way of every call, once NumPy's rules are settled: stage, plan, run, count, record."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..planning.problem import ContractionProblem, GemmProblem
from .counters import tally
from .elementwise import (
    cast_by_kernels,
    cast_of,
    elementwise_parts,
    flushed_by_a_product,
    product_of,
    roles,
    scaled_of,
)
from .engine import Engine
from .memory import Memory, new_memory, overlap, same_elements, without_imaginary_part
from .problems import Staged, copy_problem, in_place_problem
from .replay.recording import Recorder, listeners
from .tuning import Problem, fastest, plan_for

if TYPE_CHECKING:
    from ..codegen.epilogue import EpilogueGraph
    from ..planning.plan import Plan
    from .dispatch import Replayable

__all__ = ["Execution"]


class Execution:
    """One call; ``recorder`` has its steps, but not in the emulator."""

    def __init__(self, function: str, engine: Engine):
        self.function, self.engine = function, engine
        self.memory = engine.memory
        self.recorder = None if engine.on_host else Recorder()

    def count(self, kind: str, detail: str, purpose: str = "") -> None:
        function = self.function + purpose
        if self.recorder is not None:
            self.recorder.counted.append((function, kind, detail))
        if self.engine.runs:
            tally(function, kind, detail).tick()

    # -- arrays ------------------------------------------------------------------------------------
    def empty(self, like: Memory) -> Any:
        """A new array, aligned to 16 bytes, with the shape, strides and dtype of ``like``."""
        new = self.engine.empty(like)
        if self.recorder is not None:
            self.recorder.note_array(new)
        return new

    def derived(self, view: Any, x: Any) -> Any:
        """A view of ``x``, which begins where that begins."""
        if self.recorder is not None:
            self.recorder.note_view(view, x)
        return view

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view from the first element of ``x``, with strides in bytes."""
        return self.derived(self.engine.view(x, shape, strides), x)

    def staged(self, x: Any, stage: Staged, name: str = "") -> Any:
        """The array, or its copy, which is counted if it has a name and is for kernels."""
        if stage.reason is None:
            return x
        if name and self.engine.kernels:
            self.count("copies", f"{name}: {stage.reason}")
        copy = self.empty(stage.memory)
        self.assign(copy, x)
        return copy

    # -- plans -------------------------------------------------------------------------------------
    def plan(self, problem: Problem, x: Any) -> Plan:
        return self.engine.plan(problem, x)

    def run(self, problem: Problem, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None, note: str = "", purpose: str = "") -> None:
        """Plan a problem, run it on arrays by role, and count the family of its kernels."""
        plan = self.run_plan(self.plan(problem, next(iter(arrays.values()))), arrays, alpha, beta,
                             numbers)
        self.count("calls", plan.family + note, purpose)

    def run_plan(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
                 numbers: Mapping[str, Any] | None = None) -> Plan:
        """Run a plan, or the fastest for its problem if calls are timed, and return it."""
        # Without memory for the workspace of a plan that "auto" chose, blocks that need less take
        # its place, or native arithmetic, and are counted under "workspace".
        if not self.engine.runs:
            return plan
        tuned = fastest(plan, lambda each: self.engine.seconds(each, arrays, alpha, beta, numbers))
        if tuned is None:
            self.recorder = None                # a later call may be timed
        plan = tuned or plan
        for listener in listeners:
            listener(plan)
        if self.recorder is not None:
            plain = type(alpha) is type(beta) is int and (alpha, beta) == (1, 0) and numbers is None
            self.recorder.note_step(plan, *(arrays[role] for role in plan.problem.roles),
                                    plain=plain)
        try:
            self.engine.run(plan, arrays, alpha, beta, numbers)
        except self.engine.out_of_memory:
            for smaller in _with_less_workspace(plan):
                with suppress(self.engine.out_of_memory):
                    self.engine.run(smaller, arrays, alpha, beta, numbers)
                    what = f"{smaller.family}{' in blocks' if smaller.family == plan.family else ''}"
                    tally("workspace", "calls", f"{what} instead of {plan.family}: no memory for a "
                          f"workspace of {plan.workspace_bytes} bytes").tick()
                    return plan
            raise
        return plan

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Run a plan for many problems: its table, and the arrays that its addresses are of."""
        for listener in listeners:
            listener(plan)
        if self.recorder is not None:
            self.recorder.note_step(plan, *reached)
        self.engine.run_table(plan, table, reached)

    # -- copies ------------------------------------------------------------------------------------
    def move(self, src: Any, dst: Any, variant: str | None = None, purpose: str = "") -> None:
        """Copy ``src`` into ``dst``, of one shape and item size, without overlap."""
        source = self.memory(src)
        if source.size:
            self.run(copy_problem(source, self.memory(dst), variant), {"src": src, "dst": dst},
                     purpose=purpose)
        else:
            self.count("calls", "nothing", purpose)

    def new_like(self, a: Any, order: str, variant: str | None = None, purpose: str = "") -> Any:
        """A new array with the elements of ``a`` in order C, F, A or K, by the copy kernels."""
        target = self.empty(new_memory(self.memory(a), order))
        self.move(a, target, variant, purpose)
        return target

    def copy_into(self, a: Any, out: Any, variant: str | None = None) -> None:
        """``out[...] = a`` as if ``a`` were copied first; square transposes are in place."""
        source, target = self.memory(a), self.memory(out)
        if same_elements(source, target):
            self.count("calls", "nothing")
        elif not overlap(source, target):
            self.move(a, out, variant)
        elif (problem := in_place_problem(source, target)) is not None:
            self.run(replace(problem, variant=variant), {"dst": out})
        else:
            self.move(self.new_like(a, "K", variant), out)
            self.count("copies", "out: shares memory with the array")

    def assign(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` with any cast, broadcast, and any alignment."""
        if self.engine.on_host:
            self.engine.cast(dst, src)
            return
        if src.shape != dst.shape:
            src = self._broadcast(src, dst.shape)
        target, whole = self.memory(dst), self.memory(src).whole_elements
        if src.dtype == dst.dtype and not (whole and target.whole_elements):
            self.move(src, dst, purpose=_ALIGNMENT)
            return
        src = self.aligned(src)
        if target.whole_elements:
            self._cast(dst, src)
        else:
            between = self.empty(new_memory(replace(target, strides=src.strides), "K"))
            self._cast(between, src)
            self.move(between, dst, purpose=_ALIGNMENT)

    def aligned(self, x: Any) -> Any:
        """The array, or an aligned copy, without which CuPy's kernels fail for good."""
        return x if self.engine.on_host or self.memory(x).whole_elements else self.new_like(x, "K", purpose=_ALIGNMENT)

    def _broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return self.view(x, shape, (*[0] * (len(shape) - x.ndim),
                                    *(s if n > 1 else 0
                                      for n, s in zip(x.shape, x.strides, strict=True))))

    # -- functions of elements ---------------------------------------------------------------------
    def _cast(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` of one shape, by CuPy unless it lacks a kernel or flushes."""
        given = without_imaginary_part(src, dst.dtype)
        if cast_by_kernels(given.dtype, dst.dtype):
            self._compute(cast_of(given.dtype.name, dst.dtype.name), {"x": given}, dst)
        else:
            self._by_library("cast", dst, src)

    def multiply(self, x: Any, y: Any, out: Any) -> None:
        """``out[...] = x * y`` in the wider type, rounded once, without CuPy's flush to zero."""
        if self.engine.on_host or (x.dtype == y.dtype == out.dtype
                                   and not flushed_by_a_product(out.dtype)):
            self._by_library("multiply", x, y, out)
        else:
            self._compute(product_of(x.dtype.name, y.dtype.name, out.dtype.name), {"x": x, "y": y},
                          out)

    def scale(self, x: Any, exponent: int, out: Any) -> None:
        """``out[...] = x * 2**exponent`` of two real arrays of one type."""
        if self.engine.on_host:
            self.multiply(x, 2.0**exponent, out)
        else:
            self._compute(scaled_of(x.dtype.name, exponent), {"x": x}, out)

    def _by_library(self, name: str, *arrays: Any) -> None:
        if self.recorder is not None and arrays[0].size:
            self.recorder.note_step(name, *arrays)
        getattr(self.engine, name)(*arrays)

    def _compute(self, graph: EpilogueGraph, operands: Mapping[str, Any], out: Any) -> None:
        if not out.size:
            return
        for problem in elementwise_parts(graph, self.memory(out),
                                         {name: self.memory(x) for name, x in operands.items()}):
            self.run_plan(self.plan(problem, out), roles(operands, out))

    # -- calls like this one -----------------------------------------------------------------------
    def record(self, head: Hashable, inputs: Sequence[Any], out: Any, result: Any,
               roles: Sequence[str], scalars: bool = False) -> None:
        if self.recorder is not None:
            from .replay.cupy import record

            record(self.recorder, head, inputs, out, result, roles, scalars)

    def record_group(self, products: Sequence[Replayable], results: Sequence[Any]) -> None:
        if self.recorder is not None:
            from .replay.groups import record_group

            record_group(self.function, self.recorder, products, results)


_ALIGNMENT = ": alignment"
"""Copies of elements that are not aligned are counted by this name."""


def _with_less_workspace(plan: Plan) -> Iterator[Plan]:
    """Plans of a product with ever less workspace, native arithmetic without any at the end; none
    for a named algorithm."""
    problem = plan.problem
    if not isinstance(problem, (GemmProblem, ContractionProblem)) or problem.precision != "auto":
        return
    least = plan.workspace_bytes
    # a quarter of the workspace, a sixteenth, none
    for each, limit in (*((problem, least // parts) for parts in (4, 16)),
                        (replace(problem, precision="ieee"), 0)):
        smaller = plan_for(each, replace(plan.device, workspace_limit=limit))
        if smaller.workspace_bytes < least:
            least = smaller.workspace_bytes
            yield smaller
