"""Plans of float32 and complex64 products with few rows or columns on 16-bit tensor cores, without
planes in memory.

Long sums of float32 are for a kernel of its own, on ``wgmma``; others for ``gemm_mma``:
:mod:`~cuteblas.planning.gemm.planes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.gemm.skinny import SkinnyConfig, gemm_skinny
from ...kernels.gemm.tiles import DEPTH
from ..cost.work import Work, added, on_wgmma, persistent
from ..floors import compulsory_bytes
from ..guard import VERDICT, verdict_bytes
from ..operands import (
    Oriented,
    Roles,
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
    why_not_types,
    width_along,
)
from ..plan import Launch, place
from ..problem import DeviceInfo, GemmProblem, Operand
from .family import Family, Made
from .planes import outside, twice, why_not_twice
from .slices import Choice, in_slices, most_workspace
from .split import LEAST_K

__all__ = ["SKINNY", "STAGES", "plan_skinny", "why_not_skinny"]

_MOST_BLOCKS = 256                   # each leaves a verdict
_VERDICT_BYTES = verdict_bytes(_MOST_BLOCKS)
STAGES = {64: 3, 32: 4}              # by columns of a tile
_ROWS, _PRODUCTS = 128, 6
_LAUNCHES = 3                        # of the product, and of two that return at once
_MOST_BATCH_MODES = 3                # a tensor map has five modes


def why_not_skinny(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_skinny``, or ``None`` if it can."""
    if refused := (why_not_twice(p, device, _MOST_BLOCKS) or why_not_types(p, "float32")
                   or why_not_on_wgmma(p, device)):
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


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[int]]:
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
    return Choice(columns, slices, steps * DEPTH, blocks, work, f"128x{columns}, {slices} slices")


def _made(facing: Oriented, device: DeviceInfo, choice: Choice[int]) -> Made:
    p, configs = facing.problem, list[SkinnyConfig]()

    def multiply(part: GemmProblem, roles: Roles) -> Launch:
        configs.append(_config(p, part, choice))
        return _product(facing, part, choice, configs[0], device, roles)

    primary, nbytes = in_slices(p, choice, multiply, facing.by_name)
    by = ", ".join(f"{name} by " + (f"threads, as {why}" if why else "TMA")
                   for name, why in zip("AB", _unmapped(p), strict=True))
    fallback = outside("elements")
    return Made(
        *twice(facing, device, primary, nbytes, _MOST_BLOCKS),
        f"float32 as three bfloat16 on tensor cores, split in registers, six products, sums of {DEPTH} added in float32; "
        f"reads {by}; tile {configs[0].rows}x{choice.tile}x{DEPTH}{str(choice).removeprefix(str(choice.tile))}{facing.note}; "
        f"{fallback}",
        configs[0], fallback)


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
             device: DeviceInfo, roles: Roles) -> Launch:
    """The launch that multiplies, into the memory of a role."""
    whole = facing.problem
    values: dict[str, Any] = {}
    for name, box, (operand, extents), tma in zip("AB", config.boxes, whole.inputs, config.tma,
                                                  strict=True):
        spec = operand_map(box, operand, extents, whole.batch) if tma else None
        values[name] = view(operand, roles[name], spec)
    blocks = min(choice.blocks, device.multiprocessors, _MOST_BLOCKS)
    return bind(gemm_skinny, config, p, blocks, roles, chunk=choice.chunk,
                status=View(place(VERDICT)), **values)


SKINNY = Family("gemm_skinny", why_not_skinny, _tilings, _made, _facing, ("auto",))
plan_skinny = SKINNY.plan
