"""Named kernels of CUTLASS's first article, of CuTe's GEMM tutorial, and the naive tiled product.

From a policy (block tile, thread tile, step along K) follow the warps and the quadrants of 4 x 4
of a thread, whose operands are vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ..._dtypes import accumulator_of
from ...kernels.common import parts_of
from ...kernels.gemm.simt import TileShape, gemm_simt
from ...tutorial.gemm import NAIVE_TILED, TUTORIAL, TutorialConfig, TutorialShape, gemm_tutorial
from ..copy.dispatch import copy_choice
from ..floors import multiply_adds_per_clock
from ..gemm.mma import plan_mma
from ..gemm.packing import Packed, packed, with_copies
from ..gemm.simt import choice_of, config_of
from ..operands import (
    NARROW_SPAN,
    alpha_kind,
    bind,
    gemm_span,
    oriented,
    sides,
    tiles_of_c,
    unit_mode,
)
from ..plan import Plan, Role
from ..problem import DeviceInfo, GemmProblem, Ints
from ..variants import CHOSEN, Variant

_SOURCE = "CUTLASS: Fast Linear Algebra in CUDA C++"
_QUADRANT = 4                       # extent of the dense blocks that a thread tile is made of
_STAGES = 2                         # double buffering
_PACKED = 4                         # int8 in a word


@dataclass(frozen=True)
class Policy:
    """The sizes of one level each: block and thread tiles (M, N) of C, and the step along K."""

    block: tuple[int, int]
    thread: tuple[int, int]
    depth: int

    @property
    def tile(self) -> TileShape:
        """The hierarchy as nested layouts, for C in M-major order."""
        (m, n), (tm, tn) = self.block, self.thread
        along_m, along_n = m // tm, n // tn
        warp = (8, 4) if along_m % 8 == 0 and along_m >= along_n else (4, 8)
        warps = along_m // warp[0], along_n // warp[1]
        return TileShape(m, n, self.depth, warp, warps, (min(_QUADRANT, tm), min(_QUADRANT, tn)),
                         _STAGES)

    @property
    def transposed(self) -> Policy:
        return replace(self, block=self.block[::-1], thread=self.thread[::-1])


_P = Policy
_SINGLE = {"small": _P((16, 16), (2, 2), 16), "medium": _P((32, 32), (4, 4), 8),
           "large": _P((64, 64), (8, 8), 8), "tall": _P((128, 32), (8, 4), 8),
           "wide": _P((32, 128), (4, 8), 8), "huge": _P((128, 128), (8, 8), 8)}
_DOUBLE = {**_SINGLE, "medium": _P((32, 32), (4, 4), 16), "large": _P((64, 64), (4, 4), 8),
           "huge": _P((64, 128), (8, 8), 8)}
_HALF = {"small": _P((32, 32), (4, 4), 8), "medium": _P((32, 32), (8, 4), 16),
         "large": _P((64, 64), (16, 8), 8), "tall": _P((128, 32), (16, 4), 8),
         "wide": _P((32, 128), (8, 8), 8), "huge": _P((128, 128), (16, 8), 8)}
_BYTES = {"small": _P((16, 32), (4, 4), 32), "medium": _P((32, 32), (4, 4), 32),
          "large": _P((64, 64), (8, 4), 32), "tall": _P((128, 64), (8, 4), 64),
          "wide": _P((64, 128), (4, 8), 64), "huge": _P((128, 128), (8, 8), 32)}

POLICIES: dict[str, dict[str, Policy]] = {
    "float32": _SINGLE, "float64": _DOUBLE, "float16": _HALF, "bfloat16": _HALF, "int8": _BYTES,
}
"""By element type and shape of the problem: those of CUTLASS 0.1 (dispatch_policies.h)."""


def plan_policy(shape: str, aligned: bool, problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan a GEMM on a policy, without predicates if ``aligned`` to the block tile; int8 is summed
    in int32 by dp4a."""
    name = f"gemm_{shape}{'_aligned' if aligned else ''}"
    if problem.a.dtype not in POLICIES or problem.b.dtype != problem.a.dtype:
        raise ValueError(f"{name} multiplies two operands of one type, {', '.join(POLICIES)}, "
                         f"got {problem.a.dtype} and {problem.b.dtype}")
    return _plan(name, POLICIES[problem.a.dtype][shape], aligned, problem, device)


def plan_dp4a(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan an int8 product on dp4a: the largest policy that gives every multiprocessor a block."""
    types = problem.a.dtype, problem.b.dtype, problem.c.dtype
    if types != ("int8", "int8", "int32"):
        raise ValueError("igemm_dp4a multiplies int8 by int8 to int32, "
                         "got {} by {} to {}".format(*types))
    shape = next((s for s in ("huge", "large", "medium")
                  if tiles_of_c(problem, _BYTES[s].block, True) >= device.multiprocessors), "small")
    return _plan("igemm_dp4a", _BYTES[shape], False, problem, device)


def _check_divided(name: str, extents: Ints, by: Ints, what: str) -> None:
    if any(e % b for e, b in zip(extents, by, strict=True)):
        raise ValueError(f"{name} has no predicates: M, N, K = {', '.join(map(str, extents))} are "
                         f"not multiples of the {what}")


def _plan(name: str, policy: Policy, aligned: bool, problem: GemmProblem,
          device: DeviceInfo) -> Plan:
    p, note = oriented(problem, 0)
    by = *policy.block, policy.depth
    if aligned:
        _check_divided(name, (problem.m, problem.n, p.depth), by, f"tile {'x'.join(map(str, by))}")
    policy = policy.transposed if note else policy
    blocks, tile = tiles_of_c(p, policy.block, True), policy.tile
    reason = (
        f"variant {name}: block tile {policy.block[0]}x{policy.block[1]}x{policy.depth}, {tile.threads} threads in "
        f"{tile.warps} warps of {tile.warp}, thread tile {policy.thread[0]}x{policy.thread[1]}, {_STAGES} stages of shared "
        f"memory and of registers, {'no predicates' if aligned else 'predicated'}"
    )
    copies = dict[Role, Packed]()
    if p.a.dtype == "int8":
        tile = replace(tile, k=tile.k // _PACKED)
        p, copies = _in_words(p, name)
        reason += f"; dp4a on words of {_PACKED} along K"
        if copies:
            reason += f", after {', '.join(copies).upper()} has been rearranged to lie along K"
    choice = choice_of(p, tile, p.depth, device)
    choice = replace(choice, tile=tile, blocks=blocks)
    config = replace(config_of(p, device, choice), aligned=aligned)
    product = Plan(problem, device, "gemm_simt", choice,
                   (bind(gemm_simt, config, p, blocks, chunk=choice.chunk),), reason=reason + note,
                   seconds=choice.work.seconds(device))
    return with_copies(product, copies, {role: copy_choice(x.problem, device)
                                         for role, x in copies.items()})


def _in_words(p: GemmProblem, name: str) -> tuple[GemmProblem, dict[Role, Packed]]:
    """A product of int8 as one of words of 4 along K, and what rearranges operands for it."""
    if p.c.dtype != "int32":
        raise ValueError(f"{name} sums int8 in int32: C is int32, got {p.c.dtype}")
    if p.k % _PACKED:
        raise ValueError(f"{name} multiplies words of 4 int8: K is a multiple of 4, got {p.k}")
    copies, words = dict[Role, Packed](), []
    for side in sides(p):
        operand, rows = side.operand, side.rows
        others = operand.strides[0] if rows > 1 else 0, *operand.batch_strides
        if operand.strides[1] != 1 or operand.alignment % _PACKED or any(s % _PACKED for s in others):
            copies[operand.role] = found = packed(operand, (rows, p.k), p.batch, 1, p.k)
            operand = found.operand.named(operand.role)
        words.append(replace(operand, dtype="int8x4", strides=(operand.strides[0] // _PACKED, 1),
                             batch_strides=tuple(s // _PACKED for s in operand.batch_strides)))
    return replace(p, k=p.k // _PACKED, a=words[0], b=words[1]), copies


def _plan_mma(problem: GemmProblem, device: DeviceInfo) -> Plan:
    plan = plan_mma(problem, device)
    return replace(plan, reason=f"variant gemm_mma: {plan.reason}")


def _variant(shape: str, policy: Policy, aligned: bool) -> Variant:
    (m, n), (tm, tn) = policy.block, policy.thread
    extents = "extents that the tile divides" if aligned else "ragged extents by predicates"
    return Variant(
        f"gemm_{shape}{'_aligned' if aligned else ''}",
        "gemm",
        f"{_SOURCE}: CUTLASS GEMM policies",
        f"block tile {m}x{n}x{policy.depth}, thread tile {tm}x{tn} (float32; others by type), "
        f"double buffering, {extents}",
        "sm_75",
        partial(plan_policy, shape, aligned)
    )


# Of the rate of fused multiply-adds, of blocks with few threads and with many, and the time to
# start and to drain, in blocks: of docs/performance/data/h200-gemm-variants.json.
_RATES, _MANY_THREADS, _RAMP = (0.22, 0.42), 256, 0.5
_MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)


def plan_tutorial(name: str, shape: TutorialShape, predicated: bool, problem: GemmProblem,
                  device: DeviceInfo) -> Plan:
    """Plan a GEMM on ``gemm_tutorial``; the types of A, B and C may differ."""
    # the order in which neighbouring threads own it
    p, note = oriented(problem, 0, "C is M-major")
    try:
        accumulator = accumulator_of(p.a.dtype, p.b.dtype, p.c.dtype)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    if not predicated:
        _check_divided(name, (p.m, p.n, p.depth), shape.block, f"block {shape.block}")
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
        f"to {p.c.dtype}{note}"
    )
    rate = _RATES[shape.threads >= _MANY_THREADS] * multiply_adds_per_clock(
        "gemm_tutorial", accumulator, device
    )
    products = prod(shape.block[:2]) * p.k * parts_of(accumulator)**2      # real ones, of a block
    blocks = -(-prod(grid) // device.multiprocessors) + _RAMP
    return Plan(problem, device, "gemm_tutorial", config,
                (replace(bind(gemm_tutorial, config, p, 1), grid=grid),),
                reason=reason, seconds=products / (rate * device.clock_hz) * blocks
                + device.seconds(launches=1))


def _tutorial_variant(name: str, shape: TutorialShape, predicated: bool, source: str,
             summary: str) -> Variant:
    return Variant(name, "gemm", source, summary, "sm_75",
                   partial(plan_tutorial, name, shape, predicated))


_TUTORIAL, _NAIVE = "CuTe dense matrix-matrix multiply tutorial", "GEMM with CuTe 1: a naive GEMM"

VARIANTS: tuple[Variant, ...] = (
    *(_variant(*policy, aligned) for aligned in (False, True) for policy in _SINGLE.items()),
    Variant(
        "igemm_dp4a", "gemm", f"{_SOURCE}: Complete GEMM (IGEMM)",
        "int8 by int8 to int32, four products an instruction", "sm_75", plan_dp4a
    ),
    Variant(
        "gemm_mma", "gemm", f"{CHOSEN}; {_SOURCE}: WMMA GEMM",
        "warp-level tensor cores: mma.sync, ldmatrix, swizzled multi-stage ring", "sm_75", _plan_mma
    ),
    _tutorial_variant(
        "gemm_tutorial",
        TUTORIAL,
        True,
        f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
        "blocks (128,128,8), threads 32x8, 32x8, 16x16; NT, TN, NN, TT by strides, mixed types, ragged sizes by predication"
    ),
    _tutorial_variant(
        "gemm_tutorial_unpredicated",
        TUTORIAL,
        False,
        f"{_TUTORIAL}: a simple dense matrix-matrix multiply example",
        "gemm_tutorial without predicates, for extents that the block divides"
    ),
    _tutorial_variant(
        "gemm_naive_tiled",
        NAIVE_TILED,
        True,
        f"{_NAIVE}, 2: tiles, partitions, slice-k",
        "blocks (64,64,16), 8x8 threads, each with 8x8 interleaved elements of C: no bank conflicts"
    ),
    _tutorial_variant(
        "gemm_naive_tiled_dense",
        replace(NAIVE_TILED, owned="dense"),
        True,
        f"{_NAIVE}, 2.2.4: bank conflicts",
        "each thread owns a dense 8x8 block, as the analysis assumes: reads of A meet banks twice"
    ),
    _tutorial_variant(
        "gemm_naive_tiled_rolled",
        replace(NAIVE_TILED, unroll=False),
        True,
        f"{_NAIVE}, 1: #pragma unroll",
        "without #pragma unroll, to compare"
    ),
)
