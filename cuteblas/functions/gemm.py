"""``C = epilogue(alpha A B + beta C)`` of arrays by kernels: what BLAS routines run, and ``matmul``
with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._dtypes import accumulator_of
from ..codegen.epilogue import EpilogueGraph, Node, epilogue_role
from ..engines.engine import Engine
from ..engines.execution import Execution
from ..engines.memory import Memory, contiguous_strides, overlap, overlaps_itself, same_elements
from ..engines.problems import Matrix, Staged, folded_problem, matrix, readable, writable
from ..planning.problem import GemmProblem, ReductionProblem, ScalarKind
from .algorithms import AS_PLANNED, Algorithm

__all__ = ["SOURCE", "GemmArguments", "GemmCall", "Result", "effective_alpha", "finish", "gemm",
           "new_matrices", "prepare", "refuse_self_overlap", "refuse_shared_outputs", "run_group",
           "scalar_kind"]

Result = tuple[Any, Mapping[str, Any]]
"""C, and an epilogue's further results by name."""

SOURCE = "c"
"""The name of C as an operand, where it is read from one array and written to another."""


class GemmArguments(NamedTuple):
    """What a product of A and B computes besides ``A B``, how, and where the result goes; checked
    by the caller.

    Attributes
    ----------
    conj_a, conj_b : bool
        Whether elements are conjugated as they are read.
    alpha, beta : number or array of no dimensions
        The scalars. Arrays stay where they are: the host does not wait for their values.
    c : array, optional
        Of shape (..., m, n), leading dimensions broadcast; it is only read, unless it is ``out``
        itself.
    out : array, optional
        Receives C. It is written in place whatever its strides, if it is aligned and shares no
        memory with ``a`` or ``b``.
    output, compute : str, optional
        Types of C and of the sums; by default that of ``out``, of ``c`` or of ``a``, and the usual
        one for these types.
    epilogue : Bound, optional
        What is done instead of ``alpha * sum + beta * C``. Arrays for its auxiliary outputs share
        memory with nothing else.
    algorithm : Algorithm
        What kernels do; it means nothing to NumPy.
    order : {"F", "C"}
        The order of the matrices of new arrays.
    triangle : {"lower", "upper"}, optional
        What is written of ``out``, a matrix that kernels can write, and which ``c`` is, if there
        is one.
    hermitian : bool
        Whether that is the triangle of a Hermitian matrix.
    """

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
    triangle: Any = None
    hermitian: bool = False

    def result_of(self, a: Any, b: Any) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of the result."""
        batch = np.broadcast_shapes(*(x.shape[:-2] for x in (a, b, self.c, self.out)
                                      if x is not None))
        shape = *batch, a.shape[-2], b.shape[-1]
        if self.output:
            return shape, np.dtype(self.output)
        return shape, next(x.dtype for x in (self.out, self.c, a) if x is not None)

    def sums_of(self, a: Any, b: Any, kind: np.dtype) -> str:
        """The type of the sums, for a result of that type."""
        return self.compute or accumulator_of(a.dtype.name, b.dtype.name, kind.name)

    def traced(self, a: Any, b: Any, alpha: ScalarKind) -> Any:
        """What kernels compute of the epilogue, with everything checked."""
        from .epilogues import resolve

        shape, kind = self.result_of(a, b)
        return resolve(self.epilogue, accumulator=self.sums_of(a, b, kind), output=kind.name,
                       shape=shape, alpha=alpha, beta=scalar_kind(self.beta),
                       has_c=self.c is not None, inputs={"a": a.shape, "b": b.shape})


@dataclass(frozen=True)
class GemmCall:
    """A product, ready to run.

    Attributes
    ----------
    problem : GemmProblem
        What kernels compute.
    arrays : dict
        The array of each of the problem's roles.
    alpha, beta : number
        The scalars, where they are numbers.
    numbers : dict
        Those of the epilogue, by role.
    result : array
        What is returned.
    auxiliary : dict
        The epilogue's further results that are returned, by name.
    reductions : tuple
        (name, operation, axis, array that is reduced, array for the result).
    copies : tuple of str
        Which operands are copies, and why.
    later : tuple of (array, array)
        What the caller gave and kernels cannot write, and the array in its place that is copied
        into it in the end.
    """

    problem: GemmProblem
    arrays: Mapping[str, Any]
    alpha: Any
    beta: Any
    numbers: Mapping[str, Any]
    result: Any
    auxiliary: Mapping[str, Any]
    reductions: tuple[tuple[str, str, int, Any, Any], ...] = ()
    copies: tuple[str, ...] = ()
    later: tuple[tuple[Any, Any], ...] = ()


def gemm(run: Execution, a: Any, b: Any, given: GemmArguments) -> Result:
    """Multiply arrays by kernels: see :func:`prepare`.

    Returns
    -------
    array, dict
        C, and the epilogue's further results by name.
    """
    return _run(run, prepare(run, a, b, given))


def scalar_kind(x: Any) -> ScalarKind:
    """What a kernel can know of alpha or beta: an array of no dimensions is not looked at."""
    if hasattr(x, "shape") and not isinstance(x, np.generic):
        return "device"
    return "zero" if x == 0 else "one" if x == 1 else "value"


def effective_alpha(alpha: Any, k: int, epilogue: Any) -> Any:
    """The alpha by which sums are multiplied: an empty sum is zero even if alpha is not finite."""
    return alpha if k or (epilogue is not None and "alpha" in epilogue.epilogue.parameters) else 1


def prepare(run: Execution, a: Any, b: Any, given: GemmArguments) -> GemmCall:
    """Allocate what is missing and write down the problem.

    The arrays, (..., m, k) and (..., k, n), have any strides, and types that kernels multiply.

    Raises
    ------
    TypeError, ValueError
        What :func:`cuteblas.functions.epilogues.resolve` raises.
    """
    c, out, epilogue = given.c, given.out, given.epilogue
    shape, kind = given.result_of(a, b)
    (m, n), k = shape[-2:], a.shape[-1]
    sums = given.sums_of(a, b, kind)
    alpha, beta = effective_alpha(given.alpha, k, epilogue), given.beta
    kinds = scalar_kind(alpha), scalar_kind(beta)
    copies: list[str] = []
    later: list[tuple[Any, Any]] = []

    def staged(name: str, x: Any, dtype: np.dtype | None = None) -> Any:
        stage = readable(run.memory(x), x.dtype.newbyteorder("=") if dtype is None else dtype)
        if stage.reason is not None:
            copies.append(f"{name}: {stage.reason}")
        return run.staged(x, stage)

    def written(name: str, array: Any, new: Memory) -> Any:
        """An array for kernels to write: the given one, or a new one, from which the given one is
        copied in the end."""
        reason = None if array is None else writable(run.memory(array), (), new.dtype).reason
        if array is not None and reason is None:
            return array
        made = run.empty(new)
        if array is not None:
            copies.append(f"{name}: {reason}")
            later.append((array, made))
        return made

    alpha, beta = (staged(name, x, np.dtype(sums)) if kind == "device" else x
                   for name, x, kind in zip(("alpha", "beta"), (alpha, beta), kinds, strict=True))
    a, b = staged("a", a), staged("b", b)
    reads_c = c is not None and kinds[1] != "zero"
    trace, operands, numbers = None, dict[str, Any](), dict[str, Any]()
    if epilogue is not None:
        trace, views, scalars = given.traced(a, b, kinds[0])
        reads_c = bool(trace.graph.leaves("c"))
        operands, numbers = dict(views), {epilogue_role(name): x for name, x in scalars}
    graph = trace.graph if trace else None

    target, reason = out, None
    if out is None:
        target = run.empty(new_matrices(shape, kind, given.order))
    else:
        inputs = [Staged(run.memory(x)) for x in (a, b)]
        reason = writable(run.memory(out), inputs, kind).reason
        others = {**operands, **({SOURCE: c} if reads_c else {})}
        reason = reason or _unequal_overlap(run.engine, out, others)
        if reason is not None:
            copies.append(f"out: {reason}")
            target = run.empty(new_matrices(shape, kind, given.order))
            later.append((out, target))
    in_place = reads_c and c.dtype == target.dtype \
        and same_elements(run.memory(c), run.memory(target))
    if reads_c and not in_place:
        graph = _from_another_array(graph, sums, *kinds)
        operands[SOURCE] = c
    outputs = {name: written(name, epilogue.outputs.get(name),
                             new_matrices(shape, np.dtype(dtype), given.order))
               for name, dtype in (trace.outputs if trace else ())}

    def laid_out(x: Any) -> Matrix:
        memory = run.memory(x)
        return matrix(memory, (len(memory.shape) - 2, len(memory.shape) - 1), shape[:-2])

    if graph is not None:
        operands = {node.name: operands[node.name] for node in graph.leaves("operand")}
    operands = {name: staged(name, x) for name, x in operands.items()}
    problem = folded_problem((m, n, k), shape[:-2], replace(laid_out(a), conj=given.conj_a),
                             replace(laid_out(b), conj=given.conj_b), laid_out(target), graph=graph,
                             operands={name: laid_out(x) for name, x in operands.items()},
                             outputs={name: laid_out(x) for name, x in outputs.items()},
                             alpha=kinds[0], beta=kinds[1] if reads_c or trace else "zero",
                             compute=given.compute, **given.algorithm._asdict())
    if given.triangle is not None:
        problem = replace(problem, triangle=given.triangle, hermitian=given.hermitian)
    arrays = {"a": a, "b": b, "c": target, **{epilogue_role(name): x
                                              for name, x in (*operands.items(), *outputs.items())},
              **{name: x for name, x, what in zip(("alpha", "beta"), (alpha, beta), kinds,
                                                  strict=True) if what == "device"}}
    reduced = {"a": a, "b": b, "c": target, **outputs}
    reductions = tuple((name, op, axis, reduced[source],
                        written(name, array, _vector(reduced[source], axis, np.dtype(dtype),
                                                     array)))
                       for name, op, axis, source, dtype in (trace.reductions if trace else ())
                       for array in [epilogue.outputs.get(name)])
    auxiliary = {name: x for name, x in outputs.items() if not (trace and name in trace.hidden)}
    auxiliary |= {name: x for name, _op, _axis, _source, x in reductions}
    if epilogue is not None:
        auxiliary |= epilogue.outputs
    result = target if out is None else out
    return GemmCall(problem, arrays, alpha, beta, numbers, result, auxiliary, reductions,
                    tuple(copies), tuple(later))


def _run(run: Execution, call: GemmCall, note: str = "") -> Result:
    """Run a product, count it, perhaps with a note on its route, and return C and the epilogue's
    further results."""
    run.run(call.problem, call.arrays, call.alpha, call.beta, call.numbers, note)
    return finish(run, call)


def finish(run: Execution, call: GemmCall) -> Result:
    """Do what remains when C was computed: count copies, reduce, and put results where they belong.
    As :func:`gemm` returns."""
    for copied in call.copies:
        run.count("copies", copied)
    for _name, op, axis, source, into in call.reductions:
        _reduce(run, op, axis, source, into)
    for given, computed in call.later:
        run.assign(given, computed)
    return call.result, call.auxiliary


def run_group(run: Execution, calls: Sequence[GemmCall]) -> list[Result]:
    """Run products that do not depend on each other, in as few launches as their types allow.

    Every product is counted: by the family of its kernel and that it was one of a group, or by its
    own family and why it was not.

    Returns
    -------
    list
        For each what :func:`gemm` returns.
    """
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
    """What a product's roles stand for: addresses and numbers."""
    return {"alpha": call.alpha, "beta": call.beta, **call.numbers,
            **{role: engine.memory(x).address for role, x in call.arrays.items()}}


def new_matrices(shape: tuple[int, ...], kind: np.dtype, order: str) -> Memory:
    """Memory for a new array whose matrices are in an order."""
    axes = [*range(len(shape))]
    if order == "F":
        axes[-2:] = axes[:-3:-1]
    return Memory(shape, contiguous_strides(shape, kind.itemsize, axes), kind)


def _unequal_overlap(engine: Engine, out: Any, others: Mapping[str, Any]) -> str | None:
    """Why ``out`` cannot be written while operands over C are read: each element may only be read
    where it is written."""
    for name, x in others.items():
        memory, target = engine.memory(x), engine.memory(out)
        if not same_elements(memory, target) and overlap(memory, target):
            return f"shares memory with {name}"
    return None


def _from_another_array(graph: EpilogueGraph | None, sums: str, alpha: str,
                        beta: str) -> EpilogueGraph:
    """The graph that reads C as an operand; a beta in device memory that is zero keeps what was
    read out of the result."""
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
    """Refuse to write an array of which elements surely share memory: the order of the writes would
    decide."""
    if overlaps_itself(memory, doubt=False):
        raise ValueError(
            f"{who} writes every element of {name} once, but elements of {name} share memory: shape {memory.shape}, "
            f"strides {memory.strides} bytes"
        )


def refuse_shared_outputs(engine: Engine, epilogue: Any, others: Mapping[str, Any]) -> None:
    """See that elements of ``out`` share no memory, and arrays for an epilogue's auxiliary outputs
    none with what the product reads or writes.

    Parameters
    ----------
    engine : Engine
        What the arrays belong to.
    epilogue : Bound
        The epilogue with its operands and outputs.
    others : mapping of str to array
        All other arrays of the call, named for the refusal; those that are ``None`` are left out.

    Raises
    ------
    ValueError
        If one does, or if its own elements share memory.
    """
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


# -- reductions of what was computed ---------------------------------------------------------------
def _vector(source: Any, axis: int, dtype: np.dtype, array: Any) -> Memory:
    """Memory for a reduction along the last axis (-1) or the one before (-2); of the shape of a
    given array."""
    shape = (*source.shape[:-2], source.shape[-2 if axis == -1
                                              else -1]) if array is None else array.shape
    return Memory(shape, contiguous_strides(shape, dtype.itemsize), dtype)


def _reduce(run: Execution, op: str, axis: int, source: Any, into: Any) -> None:
    """Reduce an axis by the reduction kernel; every run adds in the same order."""
    x, r = run.memory(source), run.memory(into)
    batch = x.shape[:-2]
    rank = len(x.shape)
    kept, summed = (rank - 2, rank - 1) if axis == -1 else (rank - 1, rank - 2)
    whole, result = matrix(x, (kept, summed), batch), matrix(r, (rank - 2, None), batch)
    wide = "float64" if result.dtype == "float64" and np.dtype(x.dtype).kind == "f" else None
    compute = result.dtype if np.dtype(r.dtype).kind in "iu" else wide
    problem = ReductionProblem(
        x.shape[kept],
        x.shape[summed],
        whole.operand(whole.batch, (whole.rows, whole.columns)),
        result.operand(result.batch, (result.rows, 0)),
        batch,
        op,  # type: ignore[arg-type]
        compute
    )
    run.run(problem, {"src": source, "dst": into})
