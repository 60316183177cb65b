"""Named kernels of CuTe's GEMM tutorial and of the naive tiled product, and the plans that launch them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from ...codegen.dtypes import accumulator_of, dtype
from ...kernels.tutorial.gemm import NAIVE_TILED, TUTORIAL, TutorialConfig, TutorialShape, gemm_tutorial
from ..floors import multiply_adds_per_clock
from ..operands import NARROW_SPAN, Roles, alpha_kind, gemm_span, gemm_values, launch, unit_mode
from ..plan import Plan
from ..problem import DeviceInfo, GemmProblem, transposed
from ..variants import Variant

__all__ = ["VARIANTS", "plan_tutorial"]

# Of the rate of fused multiply-adds, of blocks with few threads and with many, and the time to start and to drain, in blocks: of
# docs/performance/data/h200-gemm-variants.json.
_RATES, _MANY_THREADS, _RAMP = (0.22, 0.42), 256, 0.5
_MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)


def plan_tutorial(name: str, shape: TutorialShape, predicated: bool, problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan a GEMM on ``gemm_tutorial``.

    Parameters
    ----------
    name : str
        The variant's name.
    shape : TutorialShape
        Block and thread layouts.
    predicated : bool
        Whether extents may be ragged.
    problem : GemmProblem
        What to compute; the types of A, B and C may differ.
    device : DeviceInfo
        The device to plan for.

    Raises
    ------
    ValueError
        If the kernel cannot sum the types, the extents do not divide for a kernel without predicates, or the grid is too large.
    """
    p = problem
    roles: Roles = {"A": "a", "B": "b", "C": "c"}
    swapped = p.c.strides[0] != 1 and p.c.strides[1] == 1
    if swapped:                                        # so that C is M-major, the order in which neighbouring threads own it
        p, roles = transposed(p), {"A": "b", "B": "a", "C": "c"}
    try:
        accumulator = accumulator_of(p.a.dtype, p.b.dtype, p.c.dtype)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    extents = (p.m, p.n, p.depth)
    if not predicated and any(e % b for e, b in zip(extents, shape.block, strict=True)):
        raise ValueError(f"{name} has no predicates: M, N, K = {', '.join(map(str, extents))} are not multiples of the block "
                         f"{shape.block}")
    tiles_m, tiles_n = -(-p.m // shape.block[0]), -(-p.n // shape.block[1])
    grid = (*((tiles_m, tiles_n) if shape.raster == "mn" else (tiles_n, tiles_m)), prod(p.batch))
    if any(blocks > most for blocks, most in zip(grid, _MAX_GRID, strict=True)):
        raise ValueError(f"{name} needs a grid of {grid[0]} x {grid[1]} x {grid[2]} blocks; a grid has at most "
                         f"{_MAX_GRID[0]} x {_MAX_GRID[1]} x {_MAX_GRID[2]}")
    units, wide = (unit_mode(p.a), unit_mode(p.b), unit_mode(p.c)), gemm_span(p) >= NARROW_SPAN
    config = TutorialConfig(p.a.dtype, p.b.dtype, p.c.dtype, shape, units, (p.a.conj, p.b.conj), predicated, alpha_kind(p.alpha),
                            p.beta, len(p.batch), wide)
    kernel = gemm_tutorial(config)
    reason = (f"variant {name}: block {shape.block}, {shape.threads} threads, {p.a.dtype} and {p.b.dtype} summed in {accumulator} "
              f"to {p.c.dtype}")
    reason += "; computed as C^T = B A^T, so that C is M-major" if swapped else ""
    launches = (launch(kernel, grid, gemm_values(p, roles)),)
    return Plan(problem, device, "gemm_tutorial", config, launches, reason=reason, facts=kernel.facts,
                seconds=_estimated(p, shape, prod(grid), accumulator, device))


def _estimated(p: GemmProblem, shape: TutorialShape, blocks: int, accumulator: str, device: DeviceInfo) -> float:
    """The expected time, at the rate that blocks with so many threads reach."""
    parts = 2 if dtype(accumulator).is_complex else 1
    rate = _RATES[shape.threads >= _MANY_THREADS] * multiply_adds_per_clock("gemm_tutorial", accumulator, device)
    of_block = prod(shape.block[:2]) * parts**2 * p.k / (rate * device.clock_hz)
    return of_block * (-(-blocks // device.multiprocessors) + _RAMP) + device.seconds(launches=1)


def _variant(name: str, shape: TutorialShape, predicated: bool, source: str, summary: str) -> Variant:
    return Variant(name, "gemm", source, summary, "sm_75", partial(plan_tutorial, name, shape, predicated))


_TUTORIAL, _NAIVE = "CuTe dense matrix-matrix multiply tutorial", "GEMM with CuTe 1: a naive GEMM"

VARIANTS: tuple[Variant, ...] = (
    _variant("gemm_tutorial", TUTORIAL, True, f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
             "blocks (128,128,8), threads 32x8, 32x8, 16x16; NT, TN, NN, TT by strides, mixed types, ragged sizes by predication"),
    _variant("gemm_tutorial_unpredicated", TUTORIAL, False, f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
             "gemm_tutorial without predicates, for extents that the block divides"),
    _variant("gemm_naive_tiled", NAIVE_TILED, True, f"{_NAIVE}, 2: tiles, partitions, slice-k",
             "blocks (64,64,16), 8x8 threads, each with 8x8 interleaved elements of C: no bank conflicts"),
    _variant("gemm_naive_tiled_dense", replace(NAIVE_TILED, owned="dense"), True, f"{_NAIVE}, 2.2.4: bank conflicts",
             "each thread owns a dense 8x8 block, as the analysis assumes: reads of A meet banks twice"),
    _variant("gemm_naive_tiled_rolled", replace(NAIVE_TILED, unroll=False), True, f"{_NAIVE}, 1: #pragma unroll",
             "without #pragma unroll, to compare"),
)
