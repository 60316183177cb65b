"""Plans of float32 and complex64 products with few rows or columns on 16-bit tensor cores, without
planes in memory.

Long sums of float32 are for a kernel of its own, on ``wgmma``; others for ``gemm_mma``:
:mod:`~cuteblas.planning.gemm.planes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.gemm.skinny import RANGE, SkinnyConfig, gemm_skinny
from ...kernels.gemm.tiles import DEPTH
from ...kernels.guard import NATIVE
from ..cost.alternatives import Alternative, least
from ..cost.work import Work, added, on_wgmma, persistent
from ..floors import compulsory_bytes
from ..guard import VERDICT, natively, otherwise, verdict_bytes
from ..operands import (
    Oriented,
    bind,
    gemm_span,
    majorness,
    operand_map,
    output_span,
    pairs_along_n,
    specialised,
    tiles_of_c,
    turned,
    view,
    why_not_mapped,
    why_not_on_wgmma,
    width_along,
)
from ..plan import Launch, Plan, Role, place
from ..problem import DeviceInfo, GemmProblem, Operand
from .planes import plan_planes, planes_alternatives, planes_choice, why_not_planes, why_not_twice
from .simt import plan_simt
from .slices import Choice, in_slices, most_workspace
from .split import LEAST_K

__all__ = ["STAGES", "plan_skinny", "skinny_alternatives", "why_not_by_wgmma", "why_not_skinny"]

_MOST_BLOCKS = 256                   # each leaves a verdict
_VERDICT_BYTES = verdict_bytes(_MOST_BLOCKS)
STAGES = {64: 3, 32: 4}              # by columns of a tile
_ROWS, _PRODUCTS = 128, 6
_LAUNCHES = 3                        # of the product, and of two that return at once
_MOST_BATCH_MODES = 3                # a tensor map has five modes


def why_not_skinny(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_skinny``, or ``None`` if it can."""
    return None if why_not_by_wgmma(p, device) is None else why_not_planes(p, device)


def why_not_by_wgmma(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on the kernel of its own, or ``None`` if it can."""
    if (refused := why_not_twice(p, device, _MOST_BLOCKS)) is not None:
        return refused
    if {p.a.dtype, p.b.dtype, p.accumulator} != {"float32"}:
        return f"it multiplies float32 by float32, not {p.a.dtype} by {p.b.dtype} summed in {p.accumulator}"
    if (refused := why_not_on_wgmma(p, device)) is not None:
        return refused
    if p.k < LEAST_K:
        return f"sums of fewer than {LEAST_K} products are more accurate in native arithmetic"
    if p.a.conj or p.b.conj or len(p.batch) > _MOST_BATCH_MODES:
        return f"it takes at most {_MOST_BATCH_MODES} batch modes and does not conjugate"
    return None


def _unmapped(p: GemmProblem) -> tuple[str | None, str | None]:
    """Why no tensor map describes A, and B; ``None`` where one does."""
    a, b = (why_not_mapped(name, *x) for name, x in zip("AB", p.inputs, strict=True))
    return a, b


def _access(operand: Operand, extents: tuple[int, int]) -> OperandAccess:
    """How threads read an operand: along the mode with stride 1, in vectors if rows, strides and
    address allow it."""
    unit = majorness(operand, extents)
    return OperandAccess() if unit is None else OperandAccess(unit, width_along(unit, operand, extents, 4))


def _facing(p: GemmProblem) -> Oriented:
    """The problem whose B is the smaller operand."""
    return turned(p, p.n > p.m, "B is the smaller operand")


def _choose(p: GemmProblem, device: DeviceInfo) -> Choice[int]:
    """Columns of a tile, and the number of slices of K, with the least estimated time."""
    return least(_choices(p, device), device)


def _choices(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[int]]:
    """Columns of a tile and numbers of slices to choose from."""
    by_threads, stages = [why is not None for why in _unmapped(p)], -(-p.k // DEPTH)
    most = min(stages // 4, (most_workspace(device) - _VERDICT_BYTES) // (4 * p.outputs),
               2 * device.multiprocessors)
    # none is empty
    numbers = sorted({-(-stages // -(-stages // slices)) for slices in range(1, max(most, 1) + 1)})
    for columns, slices in product(STAGES, numbers):
        yield _choice(p, columns, slices, by_threads, device)


def _choice(p: GemmProblem, columns: int, slices: int, by_threads: Sequence[bool],
            device: DeviceInfo) -> Choice[int]:
    """Columns of a tile, slices of K, and what that does."""
    steps, sums = -(-p.k // (DEPTH * slices)), 4 * p.outputs
    blocks, extents = tiles_of_c(p, (_ROWS, columns)) * slices, (_ROWS, columns)
    tiles = -(-blocks // device.multiprocessors)
    counted = on_wgmma(_ROWS, columns, steps, _PRODUCTS)
    # Both operands come as float32, A is split into registers, B into three planes of shared
    # memory.
    counted["lines"], counted["wavefronts"] = 4 * steps * sum(extents), counted["wavefronts"] + steps * (_ROWS + 2 * columns)
    work = Work(
        "tensor cores",
        "TMA",
        **counted,
        converted=4 * steps * DEPTH * sum(extents),
        passes=tiles * steps,
        ahead=STAGES[columns] - 1,
        gathered=steps
        * DEPTH
        / 32
        * sum(n for n, threads in zip(extents, by_threads, strict=True) if threads),
        blocks=blocks,
        moved=compulsory_bytes(p),
        **persistent(tiles, 0, 4 * _ROWS * columns, 0, device),
        **added(slices, sums, _LAUNCHES)
    )
    return Choice(columns, slices, steps * DEPTH, blocks, work)


def skinny_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All that :func:`plan_skinny` chooses among."""
    if why_not_planes(problem, device) is None:
        yield from planes_alternatives(problem, device)
    if why_not_by_wgmma(problem, device) is not None:
        return
    p = _facing(problem).problem
    for choice in _choices(p, device):
        yield Alternative("gemm_skinny", f"128x{choice.tile}, {choice.slices} slices",
                          (choice.work,), partial(plan_skinny, problem, device, choice))


def plan_skinny(problem: GemmProblem, device: DeviceInfo,
                choice: Choice[int] | None = None) -> Plan:
    """The plan on ``gemm_skinny``; where elements are out of range, the device itself takes native
    arithmetic.

    ``choice`` overrules that of the least estimated time, among those of the kernel of its own.

    Raises
    ------
    ValueError
        If the kernels do not take the problem.
    """
    refused, facing = why_not_by_wgmma(problem, device), _facing(problem)
    own = choice or (_choose(facing.problem, device) if refused is None else None)
    if choice is None and why_not_planes(problem, device) is None:
        planes = planes_choice(problem, device)
        if own is None or planes.work.seconds(device) < own.work.seconds(device):
            return plan_planes(problem, device, planes)
    if own is None:
        raise ValueError(f"gemm_skinny cannot compute this: {refused}")
    choice = own
    configs: list[SkinnyConfig] = []

    def multiply(p: GemmProblem, c: Role) -> Launch:
        configs.append(_config(facing.problem, p, choice))
        return _product(facing, p, choice, configs[0], device, c)

    primary, nbytes = in_slices(facing.problem, choice, multiply)
    config, native = configs[0], plan_simt(problem, device, gate=NATIVE)
    launches, nbytes = natively(primary, nbytes, native, _MOST_BLOCKS, primary[0].grid[0])
    low, high = RANGE
    by = ", ".join(f"{name} by " + (f"threads, as {why}" if why else "TMA")
                   for name, why in zip("AB", _unmapped(facing.problem), strict=True))
    fallback = otherwise(f"elements are smaller than 2^{low}, at least 2^{high} or not finite",
                         "fused multiply-adds")
    reason = (
        f"float32 as three bfloat16 on tensor cores, split in registers, six products, sums of {DEPTH} added in float32; "
        f"reads {by}; tile {config.rows}x{config.columns}x{DEPTH}{str(choice).removeprefix(str(choice.tile))}{facing.note}; "
        f"{fallback}"
    )
    return Plan(problem, device, "gemm_skinny", config, launches, nbytes, reason,
                primary[0].kernel.facts, choice.work.seconds(device), fallback=fallback)


def _config(whole: GemmProblem, p: GemmProblem, choice: Choice[int]) -> SkinnyConfig:
    """What the kernel is specialised on for a product, or for the slices ``p`` of it."""
    unmapped_a, unmapped_b = _unmapped(whole)
    by_tma = unmapped_a is None, unmapped_b is None
    a, b = whole.map_inputs(_access)
    reach = output_span(p) if all(by_tma) else max(gemm_span(whole), output_span(p))
    inputs = replace(p, a=whole.a, b=whole.b)               # their slices are steps of a block
    return specialised(SkinnyConfig, inputs, pairs_along_n(p), reach, columns=choice.tile,
                       stages=STAGES[choice.tile], a=a, b=b, tma=by_tma, slices=choice.slices > 1)


def _product(facing: Oriented, p: GemmProblem, choice: Choice[int], config: SkinnyConfig,
             device: DeviceInfo, output: Role) -> Launch:
    """The launch that multiplies into the memory of a role."""
    whole = facing.problem
    values: dict[str, Any] = {}
    for name, role, box, (operand, extents), tma in zip("AB", facing.roles, config.boxes,
                                                        whole.inputs, config.tma, strict=True):
        values[name] = view(operand, role, operand_map(box, operand, extents, whole.batch) if tma
                            else None)
    blocks = min(choice.blocks, device.multiprocessors, _MOST_BLOCKS)
    return bind(gemm_skinny(config), p, blocks, {"C": output}, chunk=choice.chunk,
                status=View(place(VERDICT)), **values)
