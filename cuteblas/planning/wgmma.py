"""Whether a GEMM can run on Hopper's tensor cores, and the plan if it can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..codegen.dtypes import dtype
from ..kernels.gemm_wgmma import WgmmaConfig, gemm_wgmma
from ..kernels.persistent import ALONE, DEPTH, Cluster
from .operands import (
    NARROW_SPAN,
    alpha_kind,
    fused,
    fusion_numbers,
    majorness,
    operand_map,
    oriented,
    output_span,
    pairs_along_n,
    staged_map,
    staging,
    why_not_mapped,
    why_not_staged,
)
from .plan import Argument, Launch, Plan, Role
from .problem import DeviceInfo, GemmProblem
from .simt import LAUNCH_SECONDS
from .slices import MIN_SLICE, SLICE_SECONDS, Choice, most_workspace, reduction, sliced, workspace_bytes

__all__ = ["TILES", "WgmmaTile", "plan_wgmma", "why_not_wgmma"]

def why_not_wgmma(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_wgmma``, or ``None`` if it can."""
    if p.a.dtype not in ("float16", "bfloat16") or p.b.dtype != p.a.dtype:
        return f"its operands are float16 or bfloat16, not {p.a.dtype}"
    if p.accumulator != "float32":
        return f"wgmma sums {p.a.dtype} in float32, not in {p.accumulator}"
    if p.precision == "ieee":
        return "precision='ieee' sums in rounded float32 steps, tensor cores truncate within a step"
    if device.arch != "sm_90":
        return f"wgmma exists on sm_90 alone, not on {device.arch}"
    if p.k == 0 or p.alpha == "zero":
        return "there is nothing to multiply"
    if max(p.m, p.n, p.k, *p.batch, 1) >= 2**31 - 256:
        return "coordinates of tensor maps have 32 bits"
    return why_not_mapped("A", p.a, (p.m, p.k)) or why_not_mapped("B", p.b, (p.n, p.k))


@dataclass(frozen=True)
class WgmmaTile:
    """What a block works on: a tile of C of 64 rows for each multiplying warpgroup, in a cluster, with stages of K.

    Attributes
    ----------
    groups, columns, stages : int
        Those of :class:`~cuteblas.kernels.gemm_wgmma.WgmmaConfig`.
    cluster : Cluster
        Blocks that share operands.
    """

    groups: int
    columns: int
    stages: int
    cluster: Cluster = ALONE

    def clusters(self, p: GemmProblem) -> int:
        """Clusters that cover C."""
        return -(-p.m // (64 * self.groups * self.cluster.m)) * -(-p.n // (self.columns * self.cluster.n)) * prod(p.batch)

    def __str__(self) -> str:
        shape = f"tile {64 * self.groups}x{self.columns}x64, {self.stages} stages"
        return shape + (f", clusters of {self.cluster.m} x {self.cluster.n} blocks" if self.cluster.size > 1 else "")


TILES = ((WgmmaTile(2, 256, 4), 0.69e-6), (WgmmaTile(2, 192, 4), 0.55e-6), (WgmmaTile(2, 128, 6), 0.38e-6),
         (WgmmaTile(1, 128, 8), 0.205e-6), (WgmmaTile(2, 64, 8), 0.24e-6), (WgmmaTile(1, 64, 8), 0.14e-6))
"""What planning chooses among, and the seconds that a stage of K takes while the whole device multiplies."""

_MOST_BATCH_MODES = 3                # a tensor map has five modes


def _choose(p: GemmProblem, device: DeviceInfo, *, may_split: bool) -> Choice[WgmmaTile]:
    """The tile and, if it ``may_split``, the number of slices of K with the least estimated time.

    That is the time of the waves of blocks and what adding slices costs.
    """
    outputs, item = p.m * p.n * prod(p.batch), dtype(p.accumulator).bytes

    def estimate(tile: WgmmaTile, stage: float, slices: int) -> Choice[WgmmaTile]:
        chunk, blocks = p.k // slices, tile.clusters(p) * slices
        seconds = -(-blocks // device.multiprocessors) * -(-chunk // DEPTH) * stage + LAUNCH_SECONDS
        if slices > 1:
            seconds += 2 * slices * outputs * item / device.bandwidth + slices * SLICE_SECONDS + LAUNCH_SECONDS
        return Choice(tile, slices, chunk, blocks, seconds)

    splits = [1]
    if may_split and len(p.batch) < _MOST_BATCH_MODES:
        while p.k % (2 * splits[-1] * DEPTH) == 0 and p.k // (2 * splits[-1]) >= MIN_SLICE \
                and 2 * splits[-1] * outputs * item <= most_workspace(device):
            splits.append(2 * splits[-1])
    return min((estimate(tile, stage, n) for tile, stage in TILES for n in splits), key=lambda choice: choice.seconds)


def plan_wgmma(problem: GemmProblem, device: DeviceInfo, tile: WgmmaTile | None = None) -> Plan:
    """The plan on ``gemm_wgmma`` for a problem that :func:`why_not_wgmma` does not refuse; ``tile`` overrules its choice."""
    choice = _choose(oriented(problem, 1).problem, device, may_split=True)
    if choice.slices == 1 or tile is not None:
        launch, config, reason = _product(problem, device, tile, "c")
        return Plan(problem, device, "gemm_wgmma", config, (launch,), reason=reason, facts=launch.kernel.facts)
    slices = replace(sliced(problem, choice.slices, choice.chunk), k=choice.chunk)
    launch, config, reason = _product(slices, device, None, "workspace")
    launches = launch, reduction(problem, choice.slices)
    return Plan(problem, device, "gemm_wgmma", config, launches, workspace_bytes(problem, choice.slices),
                f"{reason}; K in {choice.slices} slices of {choice.chunk}, added in order", launch.kernel.facts)


def _product(problem: GemmProblem, device: DeviceInfo, tile: WgmmaTile | None, output: Role) -> tuple[Launch, WgmmaConfig, str]:
    """The launch that multiplies, into the memory of a role; and why it is as it is."""
    facing = oriented(problem, 1)
    p = facing.problem
    tile = tile or _choose(p, device, may_split=False).tile
    inner = range(len(p.batch) - 1, -1, -1)            # the innermost batch mode runs fastest
    major_a, major_b = (majorness(o, e) == 1 for o, e in ((p.a, (p.m, p.k)), (p.b, (p.n, p.k))))
    batch_a, batch_b = (tuple(o.batch_strides[i] != 0 for i in inner) for o in (p.a, p.b))
    c, unstaged = pairs_along_n(p), why_not_staged(p)
    config = WgmmaConfig(p.a.dtype, p.c.dtype, tile.groups, tile.columns, tile.stages, major_a, major_b, c, alpha_kind(p.alpha),
                         p.beta, batch_a, batch_b, output_span(p) >= NARROW_SPAN, fused(p, 1, c.width), tile.cluster,
                         staging(p))
    kernel = gemm_wgmma(config)
    values = {"C": Argument(role=output)}
    for name, role, box, o, extent in zip(("mapA", "mapB"), facing.roles, config.boxes, (p.a, p.b), (p.m, p.n), strict=True):
        values[name] = Argument(role=role, tensor_map=operand_map(box, o, (extent, p.k), p.batch))
    if config.staged == "tma":
        values["mapC"] = Argument(role=output, tensor_map=staged_map(p))
    numbers = {"M": p.m, "N": p.n, "K": p.k, "dC_m": p.c.strides[0], "dC_n": p.c.strides[1]}
    numbers |= {f"L{q}": p.batch[i] for q, i in enumerate(inner)} | {f"dC_l{q}": p.c.batch_strides[i] for q, i in enumerate(inner)}
    values |= {name: Argument(value=v) for name, v in (numbers | fusion_numbers(p.fusion)).items()}
    clusters, most = tile.clusters(p), device.multiprocessors // tile.cluster.size
    arguments = tuple(values.get(q.name) or Argument(role=q.name) for q in kernel.params)
    reason = (f"{p.a.dtype} on tensor cores, float32 accumulation; {tile}: {clusters * tile.cluster.size} tiles on "
              f"{device.multiprocessors} multiprocessors; C is written "
              + ("by TMA" if unstaged is None else f"by threads: {unstaged}") + facing.note)
    return Launch(kernel, (min(clusters, most) * tile.cluster.size, 1, 1), arguments), config, reason
