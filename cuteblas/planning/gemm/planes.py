"""Plans of ``gemm_skinny`` on ``gemm_mma``: float32 and complex64, split in registers as fragments
are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...codegen.architectures import capabilities, why_lacking
from ...codegen.mma import split_atom
from ...kernels.gemm.mma import MmaTile
from ...kernels.gemm.skinny import RANGE
from ...kernels.guard import NATIVE
from ..guard import natively, otherwise, verdict_bytes
from ..operands import Oriented, why_not_types
from ..plan import Launch
from ..problem import DeviceInfo, GemmProblem
from .family import Family, Made
from .mma import facing_rows, mma_choices, mma_launches
from .simt import plan_simt
from .slices import Choice
from .split import parts_of

__all__ = ["LEAST_K", "PLANES", "outside", "plan_planes", "twice", "why_not_planes",
           "why_not_twice"]

_MOST_BLOCKS = 2**11  # each leaves a verdict, which all blocks of the fallback read
_FEW = 64             # rows, columns or products of a sum
LEAST_K = 16          # sums of their own are added in float32: of so many products on, errors are
                      # below native ones


def why_not_planes(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on planes in registers, or ``None`` if it can."""
    if refused := why_not_twice(p, device, _MOST_BLOCKS) or why_not_types(p, "float32",
                                                                          "complex64"):
        return refused
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


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[MmaTile]]:
    atom = split_atom(p.a.dtype, device.arch)
    assert atom is not None
    return mma_choices(p, device, atom)


def _made(facing: Oriented, device: DeviceInfo, choice: Choice[MmaTile]) -> Made:
    p = facing.problem
    (product, *adding), nbytes = mma_launches(p, device, choice, facing.by_name)
    blocks = min(choice.blocks, device.multiprocessors * choice.tile.min_blocks, _MOST_BLOCKS)
    grid = blocks, 1, 1
    primary = Launch.later(lambda: replace(product, grid=grid), grid), *adding
    fallback = outside("elements" if parts_of(p) == 1 else "parts of elements")
    return Made(
        *twice(facing, device, primary, nbytes, _MOST_BLOCKS),
        f"{p.a.dtype} as three bfloat16 on tensor cores by mma.sync, split in registers, six products, sums of 16 added in "
        f"float32; tile {choice}{facing.note}; {fallback}",
        fallback=fallback)


PLANES = Family("gemm_skinny", why_not_planes, _tilings, _made, facing_rows, ("auto",))
plan_planes = PLANES.plan


# -- native arithmetic where elements are out of range -------------------------------------------
def twice(facing: Oriented, device: DeviceInfo, primary: tuple[Launch, ...], nbytes: int,
          room: int) -> tuple[tuple[Launch, ...], int]:
    """Launches that leave verdicts, as many as the first has blocks, and native arithmetic after
    them; and their workspace."""
    native = plan_simt(facing.original, device, gate=NATIVE)
    return natively(primary, nbytes, native, room, primary[0].grid[0])


def outside(parts: str) -> str:
    """The line of a plan about elements, or parts of them, for which there is native arithmetic."""
    low, high = RANGE
    return otherwise(f"{parts} are smaller than 2^{low}, at least 2^{high} or not finite",
                     "fused multiply-adds")
