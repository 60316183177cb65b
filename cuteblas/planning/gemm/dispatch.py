"""From a GEMM problem to a plan: a row for each kernel family; the least estimate computes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter

from ..._dtypes import dtype
from ...codegen.architectures import capabilities, oldest_with
from ...kernels.split.planes import FORMATS
from ..cost.work import memory_seconds
from ..floors import floor_of
from ..plan import Alternative, Plan
from ..problem import DeviceInfo, GemmProblem
from ..reductions import DOTS
from ..variants import CHOSEN, Variant, variant
from .batched import BATCHED
from .blocks import NoRoom, plan_in_blocks
from .family import NATIVE_PRECISIONS, Family
from .mma import MMA, why_not_mma
from .modular import MODULAR, RESIDUES
from .outer import OUTER
from .packing import PACKED
from .simt import SIMT
from .skinny import PLANES, SKINNY
from .split import GUARDED, SPLIT
from .thin import THIN
from .wgmma import why_not_wgmma

PRECISIONS = (*NATIVE_PRECISIONS, *FORMATS, "tf32", "modular")
"""What ``precision=`` may be; only "tf32" may be less accurate than native arithmetic ("ieee")."""

# Types whose tensor cores round every multiply-add as the unit does, so that precision "ieee"
# holds.
_WIDE = ("float64", "complex128")

# Families in which an element and the one opposite add the same products in another order: a high
# plane of A by a low one of B comes before a low plane of A by a high one of B.
_ANOTHER_ORDER = frozenset({"gemm_skinny", "gemm_split"})
_ANOTHER_COMPLEX_ORDER = frozenset({"gemm_batched", "gemm_outer", "gemm_thin"})

_OF_FLOOR = 0.8                      # of the time of all multiply-adds: no estimate is below it
_REREAD = ("gemm_batched", "reduce")  # families that count elements which broadcasting repeats once


def _timed(row: Family, problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """A family's alternatives, no faster than their traffic and most of their multiply-adds."""
    return row.alternatives(problem, device, _floor(problem, row, device)[0])


def _floor(problem: GemmProblem, family: Family, device: DeviceInfo) -> tuple[float, float]:
    """Clocks of multiply-adds at least, and seconds that no plan is expected to beat."""
    floor = floor_of(problem, family.name, device)
    moving = 0.0 if family.name in _REREAD else memory_seconds(floor.bytes, device)
    return _OF_FLOOR * floor.arithmetic_s * device.clock_hz, max(_OF_FLOOR * floor.arithmetic_s,
                                                                 moving)


def _why_not_on_mma(p: GemmProblem, device: DeviceInfo) -> str | None:
    made = capabilities(device.arch).float64_tensor_cores if p.a.dtype in _WIDE else dtype(p.a.dtype).is_stored
    return why_not_mma(p, device) if made else f"mma.sync has no tensor cores for {p.a.dtype} on {device.arch}"


FAMILIES = (DOTS, THIN, OUTER, BATCHED, PLANES, SKINNY, GUARDED, SPLIT, RESIDUES, MODULAR, PACKED,
            replace(MMA, why_not=_why_not_on_mma), SIMT)
"""All of them. A new family is a row."""

_SUMMARIES = {
    "gemm_simt": ("any product, on fused multiply-adds", "sm_75"),
    "gemm_thin": (
        "products with few rows or columns, at the speed of the memory that holds the larger operand",
        "sm_75"
    ),
    "gemm_outer": (
        "products with K up to 8, at the speed of the memory that C is written to",
        "sm_75"
    ),
    "gemm_split": (
        "float32 and complex64 products as sums of products of float16 on Hopper's tensor cores, where the device finds "
        "that accurate",
        oldest_with("wgmma")
    ),
    "gemm_modular": (
        "large float64 and complex128 products as products of bytes, modulo up to 15 numbers, on Hopper's tensor "
        "cores, where the device finds that accurate",
        oldest_with("wgmma")
    ),
    "gemm_skinny": (
        "float32 products with few rows or columns on Hopper's tensor cores, split in registers",
        oldest_with("wgmma")
    ),
    "gemm_batched": ("many small matrices in a block, read and written in whole lines", "sm_75"),
    "gemm_wgmma": (
        "float16, bfloat16 and integers on Hopper's tensor cores, fed by TMA; float32 as tfloat32 on request",
        oldest_with("wgmma")
    )
}


@lru_cache(maxsize=4096)
def plan_gemm(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan a GEMM.

    Parameters
    ----------
    problem : GemmProblem
        What to compute.
    device : DeviceInfo
        The device to plan for.

    Returns
    -------
    Plan
        Launches that take the addresses of roles ``a``, ``b`` and ``c``.

    Raises
    ------
    TypeError
        If kernels do not support an element type.
    ValueError
        If the precision is unknown, or a launch needs more blocks than a grid can have.

    Examples
    --------
    >>> half = Operand("float16", (4096, 1))
    >>> problem = GemmProblem(4096, 4096, 4096, a=half, b=half, c=half)
    >>> plan = plan_gemm(problem, H200)
    >>> plan.family, len(plan.launches), plan.seconds < 1e-3
    ('gemm_wgmma', 1, True)
    """
    dtype(problem.a.dtype)
    if problem.precision not in PRECISIONS:
        raise ValueError(
            f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {problem.precision!r}"
        )
    if 0 in (problem.m, problem.n, *problem.batch):
        return Plan.nothing(problem, device)
    if problem.variant is not None and (named := variant(problem.variant, "gemm")) not in VARIANTS:
        return named.plan(problem, device)
    dtype(problem.accumulator)
    if problem.triangle is not None and (of_triangle := _plan_triangle(problem, device)) is not None:
        return of_triangle
    if device.workspace_limit is None:
        return plan_of(gemm_choice(problem, device))
    return _within_limit(_rows(problem, device), problem, device)


def _least(found: Iterable[Alternative], device: DeviceInfo) -> Alternative:
    return min(found, key=lambda each: each.seconds(device))


def _within_limit(rows: Sequence[Family], problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan of the fastest of some families whose workspace is within the limit."""
    fastest = [(row, _least(_timed(row, problem, device), device)) for row in rows]
    over = ""
    for row, best in sorted(fastest, key=lambda found: found[1].seconds(device)):
        try:
            plan = plan_in_blocks(problem, device, row.plan)
        except NoRoom as none:
            over += f"; not {row.name}: {none}"
        else:
            return plan_of(best, plan, over)
    raise ValueError(
        f"precision={problem.precision!r} needs more workspace than the limit of {device.workspace_limit} bytes"
    )


def plan_of(choice: Alternative, plan: Plan | None = None, over: str = "") -> Plan:
    """The plan of an alternative, or one in blocks by its family, with its counts."""
    plan = plan or choice.plan()
    return _noted(replace(plan, seconds=choice.seconds(plan.device), works=choice.works), over)


def _rows(problem: GemmProblem, device: DeviceInfo) -> list[Family]:
    rows, refused = list[Family](), f"{problem.variant} does not support it"
    for row in FAMILIES:
        if problem.precision in row.precisions and problem.variant in (None, row.name):
            if (why_not := row.why_not(problem, device)) is None:
                rows.append(row)
            refused = f"{row.name} cannot compute this: {why_not}"
    if not rows:
        raise ValueError(f"precision={problem.precision!r}: {refused}")
    return rows


def _noted(plan: Plan, over: str) -> Plan:
    """A plan that says why a faster family is not taken."""
    problem, device = plan.problem, plan.device
    if isinstance(problem, GemmProblem) and dtype(problem.a.dtype).is_stored \
            and plan.family in ("gemm_mma", "gemm_simt"):
        faster = (("gemm_wgmma", why_not_wgmma),
                  ("gemm_mma", why_not_mma))[:1 + (plan.family == "gemm_simt")]
        for name, why_not in faster:
            if (refused := why_not(problem, device)) is not None and not over.endswith(refused):
                over += f"; not {name}: {refused}"
    return replace(plan, reason=plan.reason + over,
                   fallback=over.removeprefix("; ")) if over else plan


def _plan_triangle(problem: GemmProblem, device: DeviceInfo) -> Plan | None:
    """The plan of one triangle of C; ``None`` if it is planned as all of C."""
    # Both triangles are planned as all of C where that is faster and as symmetric. One is computed
    # in one piece.
    limited, native = device.workspace_limit is not None, FAMILIES[-1:]
    if problem.triangle != "both":
        return _within_limit(native, problem, device) if limited else None
    another_order = _ANOTHER_ORDER | (_ANOTHER_COMPLEX_ORDER if dtype(problem.a.dtype).is_complex
                                      else frozenset())
    whole = replace(problem, triangle=None)
    if limited:                             # an algorithm that is asked for by name is not replaced
        plan = plan_gemm(whole, device)
        replaced = plan.family in another_order and problem.precision in NATIVE_PRECISIONS
        return _within_limit(native, problem, device) if replaced else plan
    half, best = gemm_choice(problem, device), gemm_choice(whole, device)
    if half.seconds(device) < best.seconds(device) or best.family in another_order:
        return plan_of(half)
    return replace(plan_of(best), problem=problem)


def gemm_choice(problem: GemmProblem, device: DeviceInfo) -> Alternative:
    """The alternative of the least estimate, without a workspace limit."""
    # Families whose floor is above an estimate that was found already are not asked.
    floors = [(_floor(problem, row, device)[1], row) for row in _rows(problem, device)]
    fastest: list[Alternative] = []
    for floor, row in sorted(floors, key=itemgetter(0)):
        if fastest and floor > fastest[0].seconds(device):
            break
        fastest = [_least((*fastest, *_timed(row, problem, device)), device)]
    return fastest[0]


def gemm_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """The plans of every family that is accurate enough, without a workspace limit."""
    for row in _rows(problem, device):
        yield from _timed(row, problem, device)


VARIANTS = tuple(Variant(name, "gemm", CHOSEN, *words, plan_gemm)
                 for name, words in _SUMMARIES.items())
