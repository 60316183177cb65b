"""Plans of ``gemm_skinny`` on ``gemm_mma``: float32 and complex64, split in registers as fragments
are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from ..._dtypes import dtype
from ...codegen.architectures import capabilities, why_lacking
from ...codegen.mma import MmaAtom, split_atom
from ...kernels.gemm.mma import MmaTile
from ...kernels.gemm.skinny import RANGE
from ...kernels.guard import NATIVE
from ..cost.alternatives import Alternative, least
from ..guard import natively, otherwise, verdict_bytes
from ..plan import Plan
from ..problem import DeviceInfo, GemmProblem
from .mma import facing_rows, mma_choices, mma_launches
from .simt import plan_simt
from .slices import Choice
from .split import parts_of

__all__ = ["LEAST_K", "plan_planes", "planes_alternatives", "planes_choice", "why_not_planes",
           "why_not_twice"]

_MOST_BLOCKS = 2**11  # each leaves a verdict, which all blocks of the fallback read
_FEW = 64             # rows, columns or products of a sum
LEAST_K = 16          # sums of their own are added in float32: of so many products on, errors are
                      # below native ones


def why_not_planes(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on planes in registers, or ``None`` if it can."""
    if (refused := why_not_twice(p, device, _MOST_BLOCKS)) is not None:
        return refused
    if len({p.a.dtype, p.b.dtype, p.accumulator}) > 1 or split_atom(p.a.dtype, device.arch) is None:
        return (
            f"it multiplies float32 by float32 or complex64 by complex64, not {p.a.dtype} by {p.b.dtype} "
            f"summed in {p.accumulator}"
        )
    if not capabilities(device.arch).wgmma:
        return why_lacking("wgmma", device.arch)
    if not p.depth:
        return "there is nothing to multiply"
    if min(p.m, p.n, p.k) > _FEW:
        return f"M, N and K are all larger than {_FEW}"
    if parts_of(p) * p.k < LEAST_K:
        return f"sums of fewer than {LEAST_K} products are more accurate in native arithmetic"
    return None


def why_not_twice(p: GemmProblem, device: DeviceInfo, words: int) -> str | None:
    """Why a product cannot be computed by blocks with so many verdicts, and then natively."""
    if p.triangle:
        return "it computes all of C, not a triangle"
    if p.beta != "zero" or (p.fusion is not None and p.fusion.graph.leaves("c")):
        return "native arithmetic may have to write C a second time, so C must not be read by beta or an epilogue"
    if device.workspace_limit is not None and device.workspace_limit < verdict_bytes(words):
        return f"it needs more workspace than the limit of {device.workspace_limit} bytes"
    return None


def _atom(p: GemmProblem, device: DeviceInfo) -> MmaAtom:
    atom = split_atom(p.a.dtype, device.arch)
    assert atom is not None
    return atom


def _choices(problem: GemmProblem, device: DeviceInfo) -> Iterator[Choice[MmaTile]]:
    """Tiles and slices of K to choose from."""
    return mma_choices(facing_rows(problem).problem, device, _atom(problem, device))


def planes_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All that :func:`plan_planes` chooses among."""
    for choice in _choices(problem, device):
        name = f"{choice.tile.m}x{choice.tile.n} in {prod(choice.tile.warps)} warps, K by {choice.chunk}"
        yield Alternative("gemm_skinny", name, (choice.work,),
                          partial(plan_planes, problem, device, choice))


def planes_choice(p: GemmProblem, device: DeviceInfo) -> Choice[MmaTile]:
    """The tile and the number of slices of K with the least estimated time."""
    return least(_choices(p, device), device)


def plan_planes(problem: GemmProblem, device: DeviceInfo,
                choice: Choice[MmaTile] | None = None) -> Plan:
    """The plan on planes in registers; where elements are out of range, the device itself takes
    native arithmetic.

    ``choice`` overrules that of the least estimated time.

    Raises
    ------
    ValueError
        If the kernel does not take the problem.
    """
    if (refused := why_not_planes(problem, device)) is not None:
        raise ValueError(f"gemm_mma cannot compute this: {refused}")
    facing = facing_rows(problem)
    choice = choice or planes_choice(problem, device)
    (product, *adding), nbytes = mma_launches(facing.problem, device, choice, facing.by_name)
    blocks = min(choice.blocks, device.multiprocessors * choice.tile.min_blocks, _MOST_BLOCKS)
    primary = replace(product, grid=(blocks, 1, 1)), *adding
    native = plan_simt(problem, device, gate=NATIVE)
    launches, nbytes = natively(primary, nbytes, native, _MOST_BLOCKS, blocks)
    low, high = RANGE
    parts = "elements" if not dtype(problem.a.dtype).is_complex else "parts of elements"
    fallback = otherwise(f"{parts} are smaller than 2^{low}, at least 2^{high} or not finite",
                         "fused multiply-adds")
    reason = (
        f"{problem.a.dtype} as three bfloat16 on tensor cores by mma.sync, split in registers, six products, sums of 16 "
        f"added in float32; tile {choice}{facing.note}; {fallback}"
    )
    return Plan(problem, device, "gemm_skinny", choice, launches, nbytes, reason,
                launches[0].kernel.facts, choice.work.seconds(device), fallback=fallback)
