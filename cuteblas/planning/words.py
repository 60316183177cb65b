"""What plans say of themselves, in a line each: which kernel, how long, what is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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
    Ints,
    Operand,
    Pair,
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
    if isinstance(problem, GroupedProblem | ChainProblem):
        return [row for p in problem.problems for row in _problem_rows(p)]
    if isinstance(problem, CopyProblem):
        sides = (("source", problem.src_strides, problem.src_alignment),
                 ("target", problem.dst_strides, problem.dst_alignment))
        return [("problem", f"copy words of {problem.itemsize} bytes"),
                *(("layouts", f"{name} {_tuple(problem.shape)}:{_tuple(strides)}, aligned to {alignment} bytes")
                  for name, strides, alignment in sides)]
    if isinstance(problem, ReductionProblem):
        what = (f"R[i] = {problem.op} of X[i, j] over j in {problem.accumulator}, "
                f"I = {problem.i}, J = {problem.j}")
        return [("problem", what), *(_layout(f"{name} (I,J)", x, (problem.i, problem.j), problem.batch)
                                     for name, x in (("X", problem.x), ("R", problem.r)))]
    if isinstance(problem, ContractionProblem):
        p = problem.product
        what = ", ".join(f"{name} = {_tuple(group)}"
                         for name, group in zip("MNK", p.extents, strict=True))
    else:
        p = problem
        batch = f", batch {p.batch}" if p.batch else ""
        what = f"C = A B^T with M = {p.m}, N = {p.n}, K = {p.k}{batch}"
    rows = [("problem", what)]
    for name, matrix in zip(("A (M,K)", "B (N,K)", "C (M,N)"), (*p.inputs, (p.c, p.shape)),
                            strict=True):
        rows.append(_layout(name, *matrix, p.batch))
    if p.fusion is not None:
        rows.append(("epilogue", f"{p.fusion.graph.name}: C = {p.fusion.graph.result}"))
        rows += [_layout(f"{name} (M,N)", x, p.shape, p.batch) for name, x in p.fusion.matrices]
    return rows


def _layout(name: str, x: Operand, extents: Pair, batch: Ints) -> tuple[str, str]:
    groups = *x.modes(extents), *((pair,) for pair in zip(batch, x.batch_strides, strict=True))
    shape, strides = (_tuple([modes[0][side] if len(modes) == 1 else [mode[side] for mode in modes]
                              for modes in groups]) for side in range(2))
    return "layouts", f"{name} {shape}:{strides} {x.dtype}, aligned to {x.alignment} bytes"


def _tuple(values: Iterable[Any]) -> str:
    each = (str(x) if isinstance(x, int) else _tuple(x) for x in values)
    return f"({','.join(each)})"


def _facts(plan: Plan) -> dict[str, str]:
    facts: dict[str, str] = {}
    for launch in plan.launches:
        facts |= launch.kernel.facts
    return facts | dict(plan.facts)
