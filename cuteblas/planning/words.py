"""What plans say of themselves, in a line each: which kernel, how long, what is copied."""

from __future__ import annotations

from collections.abc import Iterator

from .._dtypes import dtype
from .cost.work import worth
from .floors import Estimate, duration, estimate, quantity
from .plan import Plan
from .problem import (
    ChainProblem,
    ContractionProblem,
    CopyProblem,
    GemmProblem,
    GroupedProblem,
    Modes,
    Operand,
    Problem,
    ReductionProblem,
    is_measured,
)

_FAMILIES = {
    "gemm_simt": "fused multiply-adds",
    "gemm_batched": "fused multiply-adds, many matrices in a block",
    "reduce": "fused multiply-adds, as a dot product",
    "gemm_tutorial": "fused multiply-adds, as tutorials write it",
    "gett": "fused multiply-adds, modes nested",
    "gemm_mma": "tensor cores (mma.sync)",
    "gemm_wgmma": "tensor cores (wgmma)",
    "gemm_split": "16-bit tensor cores (wgmma), {products} products for each",
    "gemm_modular": "tensor cores that multiply bytes (wgmma), modulo up to 15 numbers",
    "gemm_thin": "fused multiply-adds, the larger operand straight into registers",
    "gemm_outer": "fused multiply-adds, as C lies in memory",
    "gemm_skinny": "16-bit tensor cores, six products for each, split in registers",
}
_SHOWN = 0.01                        # of the estimate: resources that are worth less are left out
_MOVES = {"copy": "a copy along the rows", "transpose": "a transpose through shared memory",
          "transpose_in_place": "a transpose in place, through shared memory"}


def kernel_words(plan: Plan) -> str:
    """The kernel: its name, what it computes with, how many launches."""
    if plan.family == "nothing":
        return f"nothing to do: {plan.reason}"
    problem = plan.problem
    if isinstance(problem, ChainProblem):
        words = f"{len(problem.problems)} steps"
    elif isinstance(problem, CopyProblem):
        words = f"{_MOVES.get(plan.family, _MOVES['transpose'])}, words of {problem.itemsize} byte{'s' * (problem.itemsize > 1)}"
    elif isinstance(problem, ReductionProblem):
        words = f"{problem.op} of {problem.x.dtype} in {problem.accumulator}"
    else:
        first = problem.problems[0] if isinstance(problem, GroupedProblem) else problem
        words = f"{first.a.dtype} on {_multiplied(plan, first)}"
    variant = getattr(problem, "variant", None)
    name = f"{variant} ({plan.family})" if variant not in (None, plan.family) else plan.family
    count = len(plan.launches)
    return f"{name}: {words}" + (f", {count} launches" if count > 1 else "")


def _multiplied(plan: Plan, problem: GemmProblem | ContractionProblem) -> str:
    form = getattr(plan.config, "format", "")
    by = _FAMILIES.get(plan.family, plan.family).format(products="six" if form == "bf16x6"
                                                        else "three")
    by += f" ({form})" if form else ""
    element = dtype(problem.a.dtype)
    if plan.family == "gemm_wgmma" and element.is_integer and element.bytes > 1:
        return f"{by}, {element.bytes * (element.bytes + 1) // 2} products of bytes for each"
    return f"{by}, rounded to tf32" if plan.family == "gemm_wgmma" and problem.precision == "tf32" else by


def _device(plan: Plan) -> str:
    """The device, and whether the numbers of planners were measured on such a one."""
    device = plan.device
    scaled = f" (not measured there: estimated from {device.fitted.device} by clock, multiprocessors and bandwidth)"
    measured = "" if is_measured(device) else scaled
    return f"{plan.device.name}{measured}"


def time_words(plan: Plan, expected: Estimate) -> str:
    if plan.family == "nothing":
        return "none"
    least = f"no kernel takes less than {duration(expected.floor.seconds)}"
    if expected.seconds is None:
        return f"no estimate; {least} on {_device(plan)}, bound by {expected.bound}"
    bounded = "" if expected.bound == "latency" else f"; {least}"
    return f"{duration(expected.seconds)} expected on {_device(plan)}, bound by {expected.bound}{bounded}"


def _work_rows(plan: Plan) -> list[tuple[str, str]]:
    floor = estimate(plan).floor
    return [
        (
            "work",
            f"{quantity(floor.flops, 'flop')}, {quantity(floor.bytes, 'byte')} that must move"
        ),
        (
            "floor",
            f"{duration(floor.seconds)} on {plan.device.name}, limited by {floor.limit} "
            f"(arithmetic {duration(floor.arithmetic_s)}, traffic {duration(floor.traffic_s)})"
        )
    ]


def _resource_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """What the estimate counts, step after step."""
    for work in plan.works:
        whole = work.seconds(plan.device)
        parts = [
            f"{duration(seconds)} less without {name} ({', '.join(f'{field} {count:.6g}' for field, count in counts.items())})"
            for name, counts, seconds in worth(work, plan.device)
            if seconds >= _SHOWN * whole
        ]
        yield "estimate", f"{duration(whole)}; {', '.join(parts)}"


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """All that is known of a plan, as names and texts."""
    rows = _problem_rows(plan.problem)
    rows += [("kernel", f"{plan.family}: {plan.reason}"), ("tile", str(plan.config))]
    for launch in plan.launches:
        kernel = launch.kernel
        rows += [
            (
                "launch",
                f"{kernel.name}, {' x '.join(map(str, launch.grid))} blocks of {kernel.threads} threads, "
                f"{kernel.shared_bytes} bytes of shared memory each"
            )
        ]
    if plan.workspace_bytes:
        rows += [("workspace", f"{plan.workspace_bytes} bytes")]
    rows += list(_facts(plan).items())
    return [*rows, *_work_rows(plan), *_resource_rows(plan)]


def _problem_rows(problem: Problem) -> list[tuple[str, str]]:
    if isinstance(problem, GemmProblem):
        return _gemm_rows(problem)
    if isinstance(problem, CopyProblem):
        return _copy_rows(problem)
    if isinstance(problem, ReductionProblem):
        return _reduction_rows(problem)
    if isinstance(problem, GroupedProblem | ChainProblem):
        return [row for p in problem.problems for row in _problem_rows(p)]
    return _contraction_rows(problem)


def _facts(plan: Plan) -> dict[str, str]:
    facts: dict[str, str] = {}
    for launch in plan.launches:
        facts |= launch.kernel.facts
    return facts | dict(plan.facts)


def _gemm_rows(problem: GemmProblem) -> list[tuple[str, str]]:
    batch = f", batch {problem.batch}" if problem.batch else ""
    matrices = zip(("A (M,K)", "B (N,K)", "C (M,N)"),
                   (*problem.inputs, (problem.c, problem.shape)), strict=True)
    return [("problem", f"C = A B^T with M = {problem.m}, N = {problem.n}, K = {problem.k}{batch}"),
            *(("layouts", f"{name} {_layout(*x, problem.batch)}") for name, x in matrices),
            *_fusion_rows(problem)]


def _fusion_rows(problem: GemmProblem) -> list[tuple[str, str]]:
    if problem.fusion is None:
        return []
    graph = problem.fusion.graph
    rows = [("epilogue", f"{graph.name}: C = {graph.result}")]
    rows += [("layouts", f"{name} (M,N) {_layout(x, problem.shape, problem.batch)}")
             for name, x in problem.fusion.matrices]
    return rows


def _layout(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> str:
    strides = *operand.strides, *operand.batch_strides
    return f"{_tuple((*extents, *batch))}:{_tuple(strides)} {operand.dtype}, aligned to {operand.alignment} bytes"


def _copy_rows(problem: CopyProblem) -> list[tuple[str, str]]:
    return [
        ("problem", f"copy words of {problem.itemsize} bytes"),
        (
            "layouts",
            f"source {_tuple(problem.shape)}:{_tuple(problem.src_strides)}, aligned to {problem.src_alignment} bytes"
        ),
        (
            "layouts",
            f"target {_tuple(problem.shape)}:{_tuple(problem.dst_strides)}, aligned to {problem.dst_alignment} bytes"
        )
    ]


def _reduction_rows(problem: ReductionProblem) -> list[tuple[str, str]]:
    extents = problem.i, problem.j
    return [
        (
            "problem",
            f"R[i] = {problem.op} of X[i, j] over j in {problem.accumulator}, I = {problem.i}, J = {problem.j}"
        ),
        ("layouts", "X (I,J) " + _layout(problem.x, extents, problem.batch)),
        ("layouts", "R (I,J) " + _layout(problem.r, extents, problem.batch))
    ]


def _contraction_rows(problem: ContractionProblem) -> list[tuple[str, str]]:
    m, n, k = problem.m, problem.n, problem.k
    rows = [("problem", ", ".join(f"{name} = {_column(modes, 0)}"
                                  for name, modes in (("M", m), ("N", n), ("K", k))))]
    for name, x, (first, of_first), (second, of_second) in (("A (M,K)", problem.a, (m, 1), (k, 1)),
                                                            ("B (N,K)", problem.b, (n, 1), (k, 2)),
                                                            ("C (M,N)", problem.c, (m, 2), (n, 2))):
        shape = f"{_column(first, 0)},{_column(second, 0)}"
        strides = f"{_column(first, of_first)},{_column(second, of_second)}"
        layout = f"({shape}):({strides}) {x.dtype}, aligned to {x.alignment} bytes"
        rows.append(("layouts", f"{name} {layout}"))
    return rows


def _column(modes: Modes, at: int) -> str:
    return _tuple(tuple(mode[at] for mode in modes))


def _tuple(values: tuple[int, ...]) -> str:
    return f"({','.join(map(str, values))})"
