"""Plans with few rows or columns, split in registers, on ``gemm_skinny`` or ``gemm_mma``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from ...codegen.architectures import capabilities, why_lacking
from ...codegen.mma import split_atom
from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.gemm.mma import MmaTile
from ...kernels.gemm.persistent import DEPTH
from ...kernels.gemm.skinny import RANGE, SkinnyConfig, gemm_skinny
from ...kernels.guard import NATIVE
from ..cost.work import Work, added
from ..floors import compulsory_bytes
from ..guard import VERDICT, natively, otherwise, verdict_bytes
from ..operands import (
    Facing,
    bind,
    gemm_span,
    majorness,
    operand_map,
    output_span,
    pairs_along_n,
    specialised,
    turned,
    view,
    why_not_mapped,
    why_not_on_wgmma,
    why_not_types,
    width_along,
)
from ..plan import Launch, place
from ..problem import DeviceInfo, GemmProblem, Operand
from .family import Choice, Family, Made, in_slices, most_workspace
from .mma import MMA, facing_rows, mma_choices
from .ring import WgmmaTile
from .simt import plan_simt
from .split import LEAST_K, parts_of

_MOST_BLOCKS = 256                   # each leaves a verdict
_VERDICT_BYTES = verdict_bytes(_MOST_BLOCKS)
TILES = WgmmaTile(2, 64, 3), WgmmaTile(2, 32, 4)
_PRODUCTS = 6
_LAUNCHES = 3                        # of the product, and of two that return at once
_MOST_BATCH_MODES = 3                # a tensor map has five modes


def why_not_skinny(p: GemmProblem, device: DeviceInfo) -> str | None:
    if refused := (why_not_twice(p, device, _MOST_BLOCKS) or why_not_types(p, "float32")
                   or why_not_on_wgmma(p, device)):
        return refused
    if p.k < LEAST_K:
        return f"sums of fewer than {LEAST_K} products are more accurate in native arithmetic"
    if p.a.conj or p.b.conj or len(p.batch) > _MOST_BATCH_MODES:
        return f"it takes at most {_MOST_BATCH_MODES} batch modes and does not conjugate"
    return None


def _unmapped(p: GemmProblem) -> tuple[str | None, str | None]:
    a, b = (why_not_mapped(name, *x) for name, x in zip("AB", p.inputs, strict=True))
    return a, b


def _access(operand: Operand, extents: tuple[int, int]) -> OperandAccess:
    """How threads read an operand: along the mode with stride 1, in vectors if possible."""
    unit = majorness(operand, extents)
    return OperandAccess() if unit is None else OperandAccess(unit, width_along(unit, operand, extents, 4))


def _facing(p: GemmProblem) -> Facing:
    """The problem whose B is the smaller operand."""
    return turned(p, p.n > p.m, "B is the smaller operand")


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[WgmmaTile]]:
    by_threads, stages = [why is not None for why in _unmapped(p)], -(-p.k // DEPTH)
    most = min(stages // 4, (most_workspace(device) - _VERDICT_BYTES) // (4 * p.outputs),
               2 * device.multiprocessors)
    # none is empty
    numbers = sorted({-(-stages // -(-stages // slices)) for slices in range(1, max(most, 1) + 1)})
    for tile, slices in product(TILES, numbers):
        yield _choice(p, tile, slices, by_threads, device)


def _choice(p: GemmProblem, tile: WgmmaTile, slices: int, by_threads: Sequence[bool],
            device: DeviceInfo) -> Choice[WgmmaTile]:
    steps, extents = -(-p.k // (DEPTH * slices)), tile.extents
    counted = tile.counts(tile.clusters(p) * slices, steps, device, 0, _PRODUCTS)
    # Both operands come as float32, A is split into registers, B into three planes of shared
    # memory.
    counted["lines"] *= 2
    counted["wavefronts"] += steps * (tile.rows + 2 * tile.columns)
    gathered = sum(n for n, threads in zip(extents, by_threads, strict=True) if threads)
    work = Work("tensor cores", "TMA", **counted, converted=4 * steps * DEPTH * sum(extents),
                gathered=steps * DEPTH / 32 * gathered, moved=compulsory_bytes(p),
                **added(slices, 4 * p.outputs, _LAUNCHES))
    return Choice(tile, slices, steps * DEPTH, min(int(work.blocks), _MOST_BLOCKS), work,
                  f"{tile.rows}x{tile.columns}, {slices} slices")


def _made(p: GemmProblem, device: DeviceInfo, choice: Choice[WgmmaTile]) -> Made:
    configs = list[SkinnyConfig]()

    def multiply(part: GemmProblem) -> Launch:
        part = replace(part, a=p.a, b=p.b)               # slices are steps of a block
        config = _config(p, part, choice)
        configs.append(config)
        maps: dict[str, Any] = {name: view(x, name.lower(), operand_map(box, x, extents, p.batch))
                for name, box, (x, extents), tma in zip("AB", config.boxes, p.inputs, config.tma,
                                                        strict=True) if tma}
        return bind(gemm_skinny, config, part, choice.blocks, chunk=choice.chunk,
                    status=View(place(VERDICT)), **maps)

    primary, nbytes = in_slices(p, choice, multiply)
    by = ", ".join(f"{name} by " + (f"threads, as {why}" if why else "TMA")
                   for name, why in zip("AB", _unmapped(p), strict=True))
    fallback = outside("elements")
    return Made(
        *twice(p, device, primary, nbytes, _MOST_BLOCKS),
        f"float32 as three bfloat16 on tensor cores, split in registers, six products, sums of {DEPTH} added in float32; "
        f"reads {by}; tile {choice.tile.rows}x{choice.tile.columns}x{DEPTH}{str(choice).removeprefix(str(choice.tile))}; "
        f"{fallback}",
        configs[0], fallback)


def _config(whole: GemmProblem, p: GemmProblem, choice: Choice[WgmmaTile]) -> SkinnyConfig:
    """What the kernel is specialised on for a product, or for the slices ``p`` of it."""
    unmapped_a, unmapped_b = _unmapped(p)
    by_tma = unmapped_a is None, unmapped_b is None
    a, b = p.map_inputs(_access)
    reach = max(output_span(p), 0 if all(by_tma) else gemm_span(whole))
    return specialised(SkinnyConfig, p, pairs_along_n(p), reach, **vars(choice.tile), a=a, b=b,
                       tma=by_tma, slices=choice.slices > 1)


SKINNY = Family("gemm_skinny", why_not_skinny, _tilings, _made, _facing, ("auto",))
plan_skinny = SKINNY.plan


# -- by mma.sync: split in registers as fragments are loaded ----------------------------------------
_MOST_BLOCKS_BY_MMA = 2**11  # each leaves a verdict, which all blocks of the fallback read
_FEW = 64                    # rows, columns or products of a sum
LEAST_K_BY_MMA = 16          # sums of their own are added in float32: of so many products on,
                             # errors are below native ones


def why_not_planes(p: GemmProblem, device: DeviceInfo) -> str | None:
    if refused := why_not_twice(p, device, _MOST_BLOCKS_BY_MMA) or why_not_types(p, "float32",
                                                                          "complex64"):
        return refused
    if not capabilities(device.arch).wgmma:
        return why_lacking("wgmma", device.arch)
    if not p.depth:
        return "there is nothing to multiply"
    if min(p.m, p.n, p.k) > _FEW:
        return f"M, N and K are all larger than {_FEW}"
    if parts_of(p) * p.k < LEAST_K_BY_MMA:
        return f"sums of fewer than {LEAST_K_BY_MMA} products are more accurate in native arithmetic"
    return None


def why_not_twice(p: GemmProblem, device: DeviceInfo, words: int) -> str | None:
    """Why blocks with so many verdicts, and then native arithmetic, cannot compute a product."""
    if p.triangle:
        return "it computes all of C, not a triangle"
    if p.beta != "zero" or (p.fusion is not None and p.fusion.graph.leaves("c")):
        return "native arithmetic may have to write C a second time, so C must not be read by beta or an epilogue"
    if device.workspace_limit is not None and device.workspace_limit < verdict_bytes(words):
        return f"it needs more workspace than the limit of {device.workspace_limit} bytes"
    return None


def _made_by_mma(p: GemmProblem, device: DeviceInfo, choice: Choice[MmaTile]) -> Made:
    made = MMA.made(p, device, choice)
    product, *adding = made.launches
    blocks = min(choice.blocks, device.multiprocessors * choice.tile.min_blocks, _MOST_BLOCKS_BY_MMA)
    grid = blocks, 1, 1
    primary = Launch.later(lambda: replace(product, grid=grid), grid), *adding
    fallback = outside("elements" if parts_of(p) == 1 else "parts of elements")
    return Made(
        *twice(p, device, primary, made.workspace_bytes, _MOST_BLOCKS_BY_MMA),
        f"{p.a.dtype} as three bfloat16 on tensor cores by mma.sync, split in registers, six products, sums of 16 added in "
        f"float32; tile {choice}; {fallback}",
        fallback=fallback)


PLANES = Family("gemm_skinny", why_not_planes, partial(mma_choices, atom_of=split_atom),
                _made_by_mma, facing_rows, ("auto",))
plan_planes = PLANES.plan


# -- native arithmetic where elements are out of range -------------------------------------------
def twice(p: GemmProblem, device: DeviceInfo, primary: tuple[Launch, ...], nbytes: int,
          room: int) -> tuple[tuple[Launch, ...], int]:
    """Launches that leave a verdict a block, native arithmetic after them, and their workspace."""
    native = plan_simt(p, device, gate=NATIVE)
    return natively(primary, nbytes, native, room, primary[0].grid[0])


def outside(parts: str) -> str:
    """The line of a plan about elements for which there is native arithmetic."""
    low, high = RANGE
    return otherwise(f"{parts} are smaller than 2^{low}, at least 2^{high} or not finite",
                     "fused multiply-adds")
