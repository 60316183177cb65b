"""Named kernels of CuTe's GEMM tutorial and of the naive tiled product, and the plans that launch
them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from ..._dtypes import accumulator_of, dtype
from ...tutorial.gemm import NAIVE_TILED, TUTORIAL, TutorialConfig, TutorialShape, gemm_tutorial
from ..floors import multiply_adds_per_clock
from ..operands import NARROW_SPAN, alpha_kind, bind, gemm_span, oriented, unit_mode
from ..plan import Plan
from ..problem import DeviceInfo, GemmProblem
from ..variants import Variant

__all__ = ["VARIANTS", "plan_tutorial", "seconds_of_blocks"]

# Of the rate of fused multiply-adds, of blocks with few threads and with many, and the time to
# start and to drain, in blocks: of docs/performance/data/h200-gemm-variants.json.
_RATES, _MANY_THREADS, _RAMP = (0.22, 0.42), 256, 0.5
_MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)


def plan_tutorial(name: str, shape: TutorialShape, predicated: bool, problem: GemmProblem,
                  device: DeviceInfo) -> Plan:
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
        If the kernel cannot sum the types, the extents do not divide for a kernel without
        predicates, or the grid is too large.
    """
    # the order in which neighbouring threads own it
    facing = replace(oriented(problem, 0), purpose="C is M-major")
    p = facing.problem
    try:
        accumulator = accumulator_of(p.a.dtype, p.b.dtype, p.c.dtype)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    extents = (p.m, p.n, p.depth)
    if not predicated and any(e % b for e, b in zip(extents, shape.block, strict=True)):
        raise ValueError(
            f"{name} has no predicates: M, N, K = {', '.join(map(str, extents))} are not multiples of the block "
            f"{shape.block}"
        )
    tiles = -(-p.m // shape.block[0]), -(-p.n // shape.block[1])
    grid = (*(tiles if shape.raster == "mn" else tiles[::-1]), p.matrices)
    if any(blocks > most for blocks, most in zip(grid, _MAX_GRID, strict=True)):
        needed, largest = (" x ".join(map(str, blocks)) for blocks in (grid, _MAX_GRID))
        raise ValueError(f"{name} needs a grid of {needed} blocks; a grid has at most {largest}")
    config = TutorialConfig(p.a.dtype, p.b.dtype, p.c.dtype, shape,
                            (unit_mode(p.a), unit_mode(p.b), unit_mode(p.c)),
                            (p.a.conj, p.b.conj), predicated, alpha_kind(p.alpha), p.beta,
                            len(p.batch),
                            gemm_span(p) >= NARROW_SPAN)
    reason = (
        f"variant {name}: block {shape.block}, {shape.threads} threads, {p.a.dtype} and {p.b.dtype} summed in {accumulator} "
        f"to {p.c.dtype}{facing.note}"
    )
    rate = _RATES[shape.threads >= _MANY_THREADS] * multiply_adds_per_clock(
        "gemm_tutorial", accumulator, device
    )
    return Plan(problem, device, "gemm_tutorial", config,
                (replace(bind(gemm_tutorial, config, p, 1, facing.by_name), grid=grid),),
                reason=reason,
                seconds=seconds_of_blocks(prod(shape.block[:2]) * p.k, prod(grid), accumulator,
                                          rate, device))


def seconds_of_blocks(products: int, blocks: int, accumulator: str, rate: float,
                      device: DeviceInfo) -> float:
    """The expected time of blocks with so many products each, at so many real ones in a clock."""
    parts = 2 if dtype(accumulator).is_complex else 1
    of_block = products * parts**2 / (rate * device.clock_hz)
    return of_block * (-(-blocks // device.multiprocessors) + _RAMP) + device.seconds(launches=1)


def _variant(name: str, shape: TutorialShape, predicated: bool, source: str,
             summary: str) -> Variant:
    return Variant(name, "gemm", source, summary, "sm_75",
                   partial(plan_tutorial, name, shape, predicated))


_TUTORIAL, _NAIVE = "CuTe dense matrix-matrix multiply tutorial", "GEMM with CuTe 1: a naive GEMM"

VARIANTS: tuple[Variant, ...] = (
    _variant(
        "gemm_tutorial",
        TUTORIAL,
        True,
        f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
        "blocks (128,128,8), threads 32x8, 32x8, 16x16; NT, TN, NN, TT by strides, mixed types, ragged sizes by predication"
    ),
    _variant(
        "gemm_tutorial_unpredicated",
        TUTORIAL,
        False,
        f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
        "gemm_tutorial without predicates, for extents that the block divides"
    ),
    _variant(
        "gemm_naive_tiled",
        NAIVE_TILED,
        True,
        f"{_NAIVE}, 2: tiles, partitions, slice-k",
        "blocks (64,64,16), 8x8 threads, each with 8x8 interleaved elements of C: no bank conflicts"
    ),
    _variant(
        "gemm_naive_tiled_dense",
        replace(NAIVE_TILED, owned="dense"),
        True,
        f"{_NAIVE}, 2.2.4: bank conflicts",
        "each thread owns a dense 8x8 block, as the analysis assumes: reads of A meet banks twice"
    ),
    _variant(
        "gemm_naive_tiled_rolled",
        replace(NAIVE_TILED, unroll=False),
        True,
        f"{_NAIVE}, 1: #pragma unroll",
        "without #pragma unroll, to compare"
    ),
)
