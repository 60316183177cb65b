"""``C = epilogue(alpha A B + beta C)``, for BLAS routines and for ``matmul`` with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._dtypes import accumulator_of
from ..codegen.epilogue import EpilogueGraph, Node, epilogue_role
from ..engines.counters import tally
from ..engines.dispatch import NOTHING, ByName
from ..engines.engine import Engine
from ..engines.execution import Execution
from ..engines.memory import (
    Ints,
    Memory,
    contiguous_strides,
    overlap,
    overlaps_itself,
    same_elements,
)
from ..engines.numpy_gemm import Multiplication, new_array, product_in
from ..engines.problems import Staged, folded_problem, matrix, readable, writable
from ..planning.problem import GemmProblem, Operand, ReductionProblem, ScalarKind
from .algorithms import AS_PLANNED, BY_NUMPY, NATIVE, Algorithm, refuse_variant

Result = tuple[Any, ByName]
"""C, and an epilogue's further results by name."""

SOURCE = "c"
"""The name of C as an operand, where it is read from one array and written to another."""


class GemmArguments(NamedTuple):
    """A product with checked arguments: A is (..., m, k), B (..., k, n), of any strides. ``alpha``
    and ``beta`` may be arrays, whose values the host does not wait for. ``c`` is only read, unless
    it is ``out``. ``epilogue`` replaces ``alpha * sum + beta * C``; arrays for its outputs share
    memory with nothing else. ``triangle`` is what is written of ``out`` and read of ``c``;
    ``"both"`` if A and B are the same memory. Nothing shares memory with an ``out`` that
    ``is_new``."""

    a: Any
    b: Any
    conj_a: bool = False
    conj_b: bool = False
    alpha: Any = 1
    beta: Any = 0
    c: Any = None
    out: Any = None
    output: str | None = None
    compute: str | None = None
    epilogue: Any = None
    algorithm: Algorithm = AS_PLANNED
    order: str = "F"
    is_new: bool = False
    triangle: Any = None
    hermitian: bool = False

    @property
    def shape(self) -> Ints:
        batch = np.broadcast_shapes(*(x.shape[:-2] for x in (self.a, self.b, self.c, self.out)
                                      if x is not None))
        return *batch, self.a.shape[-2], self.b.shape[-1]

    @property
    def kind(self) -> np.dtype:
        given = next(x for x in (self.out, self.c, self.a) if x is not None)
        return np.dtype(self.output) if self.output else given.dtype

    @property
    def usual_sums(self) -> str:
        """The usual type of the sums for these types."""
        return accumulator_of(self.a.dtype.name, self.b.dtype.name, self.kind.name)

    @property
    def sums(self) -> str:
        return self.compute or self.usual_sums

    @property
    def effective_alpha(self) -> Any:
        """The alpha of sums: an empty sum is zero even if alpha is not finite."""
        takes = self.epilogue is not None and "alpha" in self.epilogue.epilogue.parameters
        return self.alpha if takes or self.a.shape[-1] else 1

    def traced(self) -> Any:
        """What kernels compute of the epilogue, with everything checked."""
        from .epilogues import resolve

        return resolve(self.epilogue, accumulator=self.sums, output=self.kind.name,
                       shape=self.shape, alpha=scalar_kind(self.effective_alpha),
                       beta=scalar_kind(self.beta), has_c=self.c is not None,
                       inputs={"a": self.a.shape, "b": self.b.shape})


@dataclass(frozen=True)
class GemmCall:
    """A product, ready to run: ``arrays`` and ``numbers`` by role; ``reductions`` are (operation,
    axis, source, result); ``later`` are pairs of what the caller gave and the array that is copied
    into it."""

    problem: GemmProblem
    arrays: ByName
    alpha: Any
    beta: Any
    numbers: ByName
    result: Any
    auxiliary: ByName
    reductions: tuple[tuple[str, int, Any, Any], ...] = ()
    later: tuple[tuple[Any, Any], ...] = ()


def gemm(run: Execution, given: GemmArguments) -> Result:
    return _run(run, prepare(run, given))


def scalar_kind(x: Any) -> ScalarKind:
    """What a kernel can know of alpha or beta: an array of no dimensions is not looked at."""
    if hasattr(x, "shape") and not isinstance(x, np.generic):
        return "device"
    return "zero" if x == 0 else "one" if x == 1 else "value"


def prepare(run: Execution, given: GemmArguments) -> GemmCall:
    c, out, epilogue = given.c, given.out, given.epilogue
    shape, kind, sums = given.shape, given.kind, given.sums
    scalars = {"alpha": given.effective_alpha, "beta": given.beta}
    kinds = {name: scalar_kind(x) for name, x in scalars.items()}
    later: list[tuple[Any, Any]] = []

    def staged(name: str, x: Any, dtype: np.dtype | None = None) -> Any:
        return run.staged(x, readable(run.memory(x), dtype or x.dtype.newbyteorder("=")), name)

    def written(name: str, array: Any, new: Memory, over_c: ByName = NOTHING,
                inputs: Sequence[Any] = ()) -> Any:
        """An array for kernels to write: the given one, or one that is copied into it later."""
        if array is None:
            return run.empty(new)
        memory = run.memory(array)
        reason = writable(memory, [Staged(run.memory(x)) for x in inputs], new.dtype).reason or next(
            (f"shares memory with {other}" for other, x in over_c.items()
             if not same_elements(run.memory(x), memory) and overlap(run.memory(x), memory)), None)
        if reason is None:
            return array
        run.count("copies", f"{name}: {reason}")
        later.append((array, made := run.empty(new)))
        return made

    on_device = {name: staged(name, x, np.dtype(sums)) for name, x in scalars.items()
                 if kinds[name] == "device"}
    a, b = staged("a", given.a), staged("b", given.b)
    reads_c = c is not None and kinds["beta"] != "zero"
    trace: Any = None
    operands, numbers = dict[str, Any](), dict[str, Any]()
    if epilogue is not None:
        trace, views, given_numbers = given.traced()
        reads_c = bool(trace.graph.leaves("c"))
        operands, numbers = dict(views), {epilogue_role(name): x for name, x in given_numbers}
    graph = trace.graph if trace else None

    source = {SOURCE: c} if reads_c else {}
    target = out if given.is_new else written("out", out, new_matrices(shape, kind, given.order),
                                              operands | source, (a, b))
    if reads_c and not (c.dtype == target.dtype
                        and same_elements(run.memory(c), run.memory(target))):
        graph = _from_another_array(graph, sums, **kinds)
        operands |= source
    outputs = {name: written(name, epilogue.outputs.get(name),
                             new_matrices(shape, np.dtype(dtype), given.order))
               for name, dtype in (trace.outputs if trace else ())}

    def laid_out(x: Any) -> Operand:
        memory = run.memory(x)
        return matrix(memory, (len(memory.shape) - 2, len(memory.shape) - 1), shape[:-2])

    if graph is not None:
        operands = {node.name: operands[node.name] for node in graph.leaves("operand")}
    operands = {name: staged(name, x) for name, x in operands.items()}
    is_usual = epilogue is None and sums == given.usual_sums
    problem = folded_problem((*shape[-2:], a.shape[-1]), shape[:-2], replace(laid_out(a), conj=given.conj_a),
                             replace(laid_out(b), conj=given.conj_b), laid_out(target), graph=graph,
                             operands={name: laid_out(x) for name, x in operands.items()},
                             outputs={name: laid_out(x) for name, x in outputs.items()},
                             alpha=kinds["alpha"],
                             beta=kinds["beta"] if reads_c or trace else "zero",
                             compute=None if is_usual else given.compute,
                             **given.algorithm._asdict())
    triangle = given.triangle if given.triangle != "both" or problem.is_gram else None
    problem = replace(problem, triangle=triangle, hermitian=given.hermitian)
    product = {"a": a, "b": b, "c": target}
    arrays = {**product, **{epilogue_role(name): x
                            for name, x in (*operands.items(), *outputs.items())}, **on_device}
    reductions, auxiliary = [], dict[str, Any]()
    if epilogue is not None:
        for name, op, axis, reduced, dtype in trace.reductions:
            x, into = {**product, **outputs}[reduced], epilogue.outputs.get(name)
            into = written(name, into, _vector(x, axis, np.dtype(dtype), into))
            reductions.append((op, axis, x, into))
            auxiliary[name] = into
        auxiliary = {name: x for name, x in outputs.items()
                     if name not in trace.hidden} | auxiliary | epilogue.outputs
    return GemmCall(problem, arrays, numbers=numbers, result=target if out is None else out,
                    auxiliary=auxiliary, reductions=tuple(reductions), later=tuple(later),
                    **scalars | on_device)


def _run(run: Execution, call: GemmCall, note: str = "") -> Result:
    """Run a product, count it, and return C and the epilogue's further results."""
    if call.problem.outputs:
        run.run(call.problem, call.arrays, call.alpha, call.beta, call.numbers or None, note)
    else:
        run.plan(call.problem, call.result)
        run.count("calls", "nothing")
    return finish(run, call)


def finish(run: Execution, call: GemmCall) -> Result:
    """Do what remains when C was computed: reduce, and return results."""
    for reduction in call.reductions:
        _reduce(run, *reduction)
    for given, computed in call.later:
        run.assign(given, computed)
    return call.result, call.auxiliary


def run_group(run: Execution, calls: Sequence[GemmCall]) -> list[Result]:
    """Run independent products in as few launches as types allow, each counted by family."""
    from ..planning.gemm.grouped import plan_grouped, table_of, why_alone
    from ..planning.problem import GroupedProblem

    if not calls:
        return []
    device = run.engine.device(calls[0].arrays["a"])
    reasons = [why_alone(call.problem, device) for call in calls]
    group = [call for call, reason in zip(calls, reasons, strict=True) if reason is None]
    shares = len(group) > 1
    if shares:
        plan: Any = plan_grouped(GroupedProblem(tuple(call.problem for call in group)), device)
        if plan.launches:
            table = table_of(plan, [_values(run.engine, call) for call in group])
            run.run_table(plan, table, [x for call in group for x in call.arrays.values()])
        families = {member.index: f"{part.family} in a group" for part in plan.config.parts
                    for member in part.members}
        for i in range(len(group)):
            run.count("calls", families.get(i, "nothing"))
    return [finish(run, call) if shares and reason is None
            else _run(run, call, f", not in a group: {reason}" if reason else "")
            for call, reason in zip(calls, reasons, strict=True)]


def _values(engine: Engine, call: GemmCall) -> dict[str, Any]:
    return {"alpha": call.alpha, "beta": call.beta, **call.numbers,
            **{role: engine.memory(x).address for role, x in call.arrays.items()}}


def new_matrices(shape: Ints, kind: np.dtype, order: str) -> Memory:
    axes = [*range(len(shape))]
    if order == "F":
        axes[-2:] = axes[:-3:-1]
    return Memory(shape, contiguous_strides(shape, kind.itemsize, axes), kind)


def _from_another_array(graph: EpilogueGraph | None, sums: str, alpha: str,
                        beta: str) -> EpilogueGraph:
    """The graph that reads C as an operand; a beta that is zero on the device leaves C out."""
    def c_of(kind: str) -> Node:
        operand = Node("operand", kind, name=SOURCE)
        if beta != "device" or (graph is not None and not graph.leaves("beta")):
            return operand
        zero = Node("constant", kind, value=0)
        return Node("where", kind, (Node("equal", "bool",
                                         (Node("beta", sums), Node("constant", sums, value=0))),
                                    zero, operand))

    if graph is not None:
        return graph.substituted(lambda leaf: c_of(leaf.dtype) if leaf.op == "c" else leaf)
    scaled = ((Node("acc", sums), "alpha", alpha), (c_of(sums), "beta", beta))
    return EpilogueGraph("axpby", Node("add", sums,
                                       tuple(x if kind == "one"
                                             else Node("multiply", sums, (Node(name, sums), x))
                                             for x, name, kind in scaled)))


def refuse_self_overlap(who: str, name: str, memory: Memory) -> None:
    """Refuse to write elements that surely share memory: the order of writes would decide."""
    if overlaps_itself(memory, doubt=False):
        raise ValueError(
            f"{who} writes every element of {name} once, but elements of {name} share memory: shape {memory.shape}, "
            f"strides {memory.strides} bytes"
        )


def refuse_shared_outputs(engine: Engine, epilogue: Any, others: ByName) -> None:
    """Refuse outputs that share memory, among their elements or with the call's other arrays."""
    if others["out"] is not None:
        refuse_self_overlap(f"epilogue {epilogue.epilogue}", "out", engine.memory(others["out"]))
    if not epilogue.outputs:
        return
    seen = {name: engine.memory(x) for name, x in others.items() if x is not None}
    seen |= {f"its operand {name!r}": engine.memory(x) for name, x in epilogue.operands.items()
             if hasattr(x, "strides") and not isinstance(x, np.generic)}
    for name, x in epilogue.outputs.items():
        memory = engine.memory(x)
        refuse_self_overlap(f"epilogue {epilogue.epilogue}", f"the output {name!r}", memory)
        for other, y in seen.items():
            if overlap(memory, y):
                raise ValueError(
                    f"the output {name!r} of epilogue {epilogue.epilogue} shares memory with {other}; it needs memory "
                    f"of its own"
                )
        seen[f"the output {name!r}"] = memory


def gemm_by_numpy(function: str, given: GemmArguments) -> Result:
    """Multiply by NumPy's BLAS: 16 bits in float32, rounded once; int8 wraps in int32."""
    precision, variant = given.algorithm
    if variant is not None:
        refuse_variant(variant, BY_NUMPY)
    if precision not in NATIVE:
        from ..engines.emulator import REHEARSAL

        gemm(Execution(function, REHEARSAL), given)
    a, b, c, out, epilogue = given.a, given.b, given.c, given.out, given.epilogue
    shape, kind, sums, triangle = given.shape, given.kind, np.dtype(given.sums), given.triangle
    alpha, beta = (sums.type(x[()] if isinstance(x, np.ndarray) else x)
                   for x in (given.effective_alpha, given.beta))
    extras: Mapping[str, np.ndarray] = {}
    if epilogue is None:
        multiplication = Multiplication(shape, kind, sums, given.order, given.conj_a, given.conj_b,
                                        False)
        target = multiplication.run(a, b, alpha, beta, c, out if triangle is None else None)
        if triangle is not None and out is not None:
            written = np.tri(len(out), dtype=bool)
            np.copyto(out, target, where=written if triangle == "lower" else written.T)
            target = out
    else:
        from .epilogues import evaluate

        a, b = (np.conj(x) if conj else x for x, conj in ((a, given.conj_a), (b, given.conj_b)))
        target = new_array(shape, kind, given.order) if out is None else out
        with np.errstate(all="ignore"):
            acc = np.zeros(shape, sums) if alpha == 0 else product_in(a, b, sums, shape)
            before = None if c is None else np.broadcast_to(c, shape)
            target[...], extras = evaluate(epilogue, acc, output=kind.name, alpha=alpha, beta=beta,
                                           c=before, a=a, b=b)
    tally(function, "calls", "numpy" if target.size else "nothing").tick()
    return target, extras


# -- reductions of what was computed ---------------------------------------------------------------
def _vector(source: Any, axis: int, dtype: np.dtype, array: Any) -> Memory:
    """Memory for a reduction along axis -1 or -2, of the shape of a given array."""
    shape = (*source.shape[:-2], source.shape[-2 if axis == -1
                                              else -1]) if array is None else array.shape
    return Memory(shape, contiguous_strides(shape, dtype.itemsize), dtype)


def _reduce(run: Execution, op: str, axis: int, source: Any, into: Any) -> None:
    x, r = run.memory(source), run.memory(into)
    batch = x.shape[:-2]
    rank = len(x.shape)
    kept, summed = (rank - 2, rank - 1) if axis == -1 else (rank - 1, rank - 2)
    whole, result = matrix(x, (kept, summed), batch), matrix(r, (rank - 2, None), batch)
    wide = "float64" if result.dtype == "float64" and np.dtype(x.dtype).kind == "f" else None
    compute = result.dtype if np.dtype(r.dtype).kind in "iu" else wide
    problem = ReductionProblem(x.shape[kept], x.shape[summed], whole, result, batch,
                               op, compute)             # type: ignore[arg-type]
    run.run(problem, {"src": source, "dst": into})
