"""What a call would run, and why; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .backends import current_backend
from .copies import check_out, checked_order, why_not_words
from .kinds import kind_of
from .named import check_variant, checked_precision, refuse_variant
from .products import MatmulArguments, host_operands, single_out

if TYPE_CHECKING:
    from ..planning.plan import Plan
    from ..planning.problem import ContractionProblem, CopyProblem, DeviceInfo, GemmProblem, Operand, Problem, ReductionProblem

__all__ = ["Explanation", "explain", "explain_copy"]



@dataclass(frozen=True, repr=False)
class Explanation:
    """What a call would run. ``print`` it.

    Attributes
    ----------
    call : str
        The call: function, dtypes, shapes.
    runs_on : str
        Who does the work; for a call that is delegated, to whom and why.
    copies : tuple of str
        Operands that are copied first, or results that are copied afterwards, and why.
    plan : Plan or None
        What the kernels would do; ``None`` if there are no kernels for the call.
    """

    call: str
    runs_on: str
    copies: tuple[str, ...] = ()
    plan: Plan | None = None

    @property
    def source(self) -> str:
        """The CUDA C++ of the plan, empty without a plan."""
        return "" if self.plan is None else self.plan.source

    def __str__(self) -> str:
        rows = [("runs on", self.runs_on), *(("copies", copied) for copied in self.copies)]
        if self.plan is not None:
            rows += _plan_rows(self.plan)
        width = max(len(name) for name, _ in rows)
        lines = [self.call]
        previous = None
        for name, text in rows:
            for line in text.splitlines():
                lines.append(f"  {name if name != previous else '':<{width}}  {line}")
                previous = name
        return "\n".join(lines)

    __repr__ = __str__


def explain(x1: Any, x2: Any, /, out: Any = None, *, epilogue: Any = None, precision: str | None = None,
            variant: str | None = None, **arguments: Unpack[MatmulArguments]) -> Explanation:
    """What :func:`cuteblas.matmul` would run for the same arguments, and why.

    Without a GPU, and for NumPy arrays, plans are made for an H200.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What ``matmul`` raises.

    Examples
    --------
    >>> import cuteblas, numpy
    >>> cuteblas.explain(numpy.ones((3, 4), object), numpy.ones((4, 5)))
    matmul: object (3, 4) @ float64 (4, 5) -> object (3, 5)
      runs on  NumPy: kernels have no object
    """
    from .engines import EMULATOR, Engine, plan_for
    from .gufunc import judge
    from .problems import has_kernels, stage

    precision, out = checked_precision(precision), single_out(out)
    check_variant(variant, "gemm")
    if epilogue is not None:
        return _explain_fused(x1, x2, out, epilogue, precision, variant, arguments)
    engine: Engine = EMULATOR
    kinds = {kind_of(x) for x in (x1, x2, out)}
    if "cupy" in kinds and "foreign" not in kinds:
        from ._cupy import CUPY, judged

        engine, product = CUPY, judged(x1, x2, out, arguments)
        runs_on = f"cuda:{x1.data.device_id}, {engine.device(x1).name}"
    else:
        reason, x1, x2 = host_operands(x1, x2, out)
        if reason is not None:
            refuse_variant(variant, reason)
            return Explanation(f"matmul: {type(x1).__name__} @ {type(x2).__name__}", f"NumPy: {reason}")
        product = judge(EMULATOR.memory(x1), EMULATOR.memory(x2), None if out is None else EMULATOR.memory(out), arguments)
        runs_on = _on_the_host(EMULATOR.device(x1))
    call = f"matmul: {_described(x1)} @ {_described(x2)} -> {_described(product if out is None else out)}"
    if not has_kernels(product.dtype):
        refuse_variant(variant, f"kernels have no {product.dtype}")
        return Explanation(call, f"NumPy: kernels have no {product.dtype}")
    staging = stage(engine.memory(x1), engine.memory(x2), None if out is None else engine.memory(out), product, precision,
                    variant)
    return Explanation(call, runs_on, staging.copies, plan_for(staging.problem, engine.device(x1)))


def _explain_fused(x1: Any, x2: Any, out: Any, epilogue: Any, precision: str, variant: str | None, arguments: Any) -> Explanation:
    """The explanation of a product with an epilogue."""
    from .engines import EMULATOR, plan_for
    from .fused import fused_call

    engine, call = fused_call(x1, x2, out, epilogue, precision, variant, arguments)
    device = engine.device(call.arrays["a"])
    runs_on = _on_the_host(device) if engine is EMULATOR else device.name
    shown = f"matmul with an epilogue: {_described(call.arrays['a'])} @ {_described(call.arrays['b'])} -> {_described(call.result)}"
    return Explanation(shown, runs_on, call.copies, plan_for(call.problem, device))


def explain_copy(a: Any, order: str = "C", *, out: Any = None, variant: str | None = None) -> Explanation:
    """What :func:`cuteblas.copy` would run, and why: ``explain_copy(a.T)`` explains a materialised transpose, and
    ``explain_copy(a.T, out=a)`` one in place.

    Without a GPU, and for NumPy arrays, plans are made for an H200.

    Raises
    ------
    ValueError
        For an unknown order, in NumPy's words; for an unknown variant, or one that does not take this copy.
    """
    from .engines import EMULATOR, Engine, plan_for
    from .memory import Memory, overlap, strides_by_order
    from .problems import copy_problem, in_place_problem

    order = checked_order(order)
    check_variant(variant, "copy")
    engine: Engine = EMULATOR
    if kind_of(a) == "cupy":
        from ._cupy import CUPY

        engine = CUPY
        runs_on = f"cuda:{a.data.device_id}, {engine.device(a).name}"
    else:
        a = np.asarray(a)
        runs_on = _on_the_host(EMULATOR.device(a))
    call = f"copy: {_described(a)} in order {order!r}"
    if (reason := why_not_words(a.dtype)) is not None:
        refuse_variant(variant, reason)
        return Explanation(call, f"NumPy: {reason}")
    source = engine.memory(a)
    target = Memory(source.shape, strides_by_order(source, order), source.dtype)
    if out is not None:
        check_out(a, out)
        call, into = f"copy: {_described(a)} into out", engine.memory(out)
        if not overlap(source, into):
            target = into
        elif (problem := in_place_problem(source, into)) is not None:
            return Explanation(call, runs_on, (), plan_for(replace(problem, variant=variant), engine.device(a)))
        else:
            copied = ("out: shares memory with the array",)
            return Explanation(call, runs_on, copied, plan_for(copy_problem(source, target, variant), engine.device(a)))
    return Explanation(call, runs_on, (), plan_for(copy_problem(source, target, variant), engine.device(a)))


def _on_the_host(device: DeviceInfo) -> str:
    if current_backend() == "emulator":
        return "the emulator, on this CPU"
    return f"NumPy; the plan below is what {device.name} would run (backend('emulator') runs it on this CPU)"


def _described(x: Any) -> str:
    return f"{x.dtype} {x.shape}"


def _plan_rows(plan: Plan) -> list[tuple[str, str]]:
    from ..planning.floors import floor_of
    floor = floor_of(plan.problem, plan.family, plan.device)
    rows = _problem_rows(plan.problem)
    rows += [("kernel", f"{plan.family}: {plan.reason}"), ("tile", str(plan.config))]
    for launch in plan.launches:
        kernel = launch.kernel
        rows += [("launch", f"{kernel.name}, {' x '.join(map(str, launch.grid))} blocks of {kernel.threads} threads, "
                            f"{kernel.shared_bytes} bytes of shared memory each")]
    rows += [(name, text) for name, text in _facts(plan).items()]
    rows += [("work", f"{_si(floor.flops)}flop, {_si(floor.bytes)}byte that must move"),
             ("floor", f"{_si(floor.seconds)}s on {plan.device.name}, limited by {floor.limit} "
                       f"(arithmetic {_si(floor.arithmetic_s)}s, traffic {_si(floor.traffic_s)}s)")]
    return rows


def _problem_rows(problem: Problem) -> list[tuple[str, str]]:
    from ..planning.problem import CopyProblem, GemmProblem, GroupedProblem, ReductionProblem

    if isinstance(problem, GemmProblem):
        return _gemm_rows(problem)
    if isinstance(problem, CopyProblem):
        return _copy_rows(problem)
    if isinstance(problem, ReductionProblem):
        return _reduction_rows(problem)
    if isinstance(problem, GroupedProblem):
        return [row for p in problem.problems for row in _gemm_rows(p)]
    return _contraction_rows(problem)


def _facts(plan: Plan) -> dict[str, str]:
    facts: dict[str, str] = {}
    for launch in plan.launches:
        facts |= launch.kernel.facts
    return facts | dict(plan.facts)


def _gemm_rows(problem: GemmProblem) -> list[tuple[str, str]]:
    batch = f", batch {problem.batch}" if problem.batch else ""
    return [("problem", f"C = A B^T with M = {problem.m}, N = {problem.n}, K = {problem.k}{batch}"),
            ("layouts", "A (M,K) " + _layout(problem.a, (problem.m, problem.k), problem.batch)),
            ("layouts", "B (N,K) " + _layout(problem.b, (problem.n, problem.k), problem.batch)),
            ("layouts", "C (M,N) " + _layout(problem.c, (problem.m, problem.n), problem.batch)), *_fusion_rows(problem)]


def _fusion_rows(problem: GemmProblem) -> list[tuple[str, str]]:
    if problem.fusion is None:
        return []
    graph, extents = problem.fusion.graph, (problem.m, problem.n)
    rows = [("epilogue", f"{graph.name}: C = {graph.result}")]
    rows += [("layouts", f"{name} (M,N) {_layout(x, extents, problem.batch)}")
             for name, x in (*problem.fusion.operands, *problem.fusion.outputs)]
    return rows


def _layout(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> str:
    strides = *operand.strides, *operand.batch_strides
    return f"{_tuple((*extents, *batch))}:{_tuple(strides)} {operand.dtype}, aligned to {operand.alignment} bytes"


def _copy_rows(problem: CopyProblem) -> list[tuple[str, str]]:
    return [("problem", f"copy words of {problem.itemsize} bytes"),
            ("layouts", f"source {_tuple(problem.shape)}:{_tuple(problem.src_strides)}, aligned to {problem.src_alignment} bytes"),
            ("layouts", f"target {_tuple(problem.shape)}:{_tuple(problem.dst_strides)}, aligned to {problem.dst_alignment} bytes")]


def _reduction_rows(problem: ReductionProblem) -> list[tuple[str, str]]:
    extents = problem.i, problem.j
    return [("problem", f"R[i] = {problem.op} of X[i, j] over j in {problem.accumulator}, I = {problem.i}, J = {problem.j}"),
            ("layouts", "X (I,J) " + _layout(problem.x, extents, problem.batch)),
            ("layouts", "R (I,J) " + _layout(problem.r, extents, problem.batch))]


def _contraction_rows(problem: ContractionProblem) -> list[tuple[str, str]]:
    groups = {"M": problem.m, "N": problem.n, "K": problem.k}
    rows = [("problem", ", ".join(f"{name} = {_tuple(tuple(mode[0] for mode in modes))}" for name, modes in groups.items()))]
    for name, storage, (first, second), places in (("A", problem.a, "MK", (1, 1)), ("B", problem.b, "NK", (1, 2)),
                                                   ("C", problem.c, "MN", (2, 2))):
        shape, stride = (",".join(_tuple(tuple(mode[at] for mode in groups[group])) for group, at in pairs)
                         for pairs in (((first, 0), (second, 0)), ((first, places[0]), (second, places[1]))))
        layout = f"({shape}):({stride}) {storage.dtype}, aligned to {storage.alignment} bytes"
        rows.append(("layouts", f"{name} ({first},{second}) {layout}"))
    return rows


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"


def _si(value: float) -> str:
    """A quantity with three digits and the prefix of its unit."""
    for exponent, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "u"), (-9, "n")):
        if abs(value) >= 10.0**exponent:
            return f"{value / 10.0**exponent:.3g} {prefix}"
    return "0 "
