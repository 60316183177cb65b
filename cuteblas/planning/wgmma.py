"""Whether a GEMM can run on Hopper's tensor cores, and the plan if it can."""

from __future__ import annotations

from math import prod

from ..kernels.gemm_wgmma import WgmmaConfig, gemm_wgmma
from .operands import NARROW_SPAN, alpha_kind, fused, fusion_numbers, oriented, output_span, pairs_along_n
from .plan import Argument, Launch, Plan
from .problem import DeviceInfo, GemmProblem, Operand

__all__ = ["plan_wgmma", "why_not_wgmma"]

_ALIGNMENT = 16                      # bytes: addresses and strides of tensor maps
_ITEM = 2


def _majorness(operand: Operand, extents: tuple[int, int]) -> int | None:
    """The mode with stride 1 (K if both have), or ``None``."""
    for mode in (1, 0):
        if operand.strides[mode] == 1 or (extents[mode] == 1 and operand.strides[1 - mode] != 1):
            return mode
    return None


def _why_not_operand(name: str, operand: Operand, extents: tuple[int, int]) -> str | None:
    major = _majorness(operand, extents)
    if major is None:
        return f"no mode of {name} has stride 1"
    others = [(extents[1 - major], operand.strides[1 - major])]
    if operand.alignment % _ALIGNMENT:
        return f"{name} is not aligned to {_ALIGNMENT} bytes"
    if any(n > 1 and (s <= 0 or s * _ITEM % _ALIGNMENT) for n, s in others):
        return f"the strides {operand.strides} of {name} are not positive multiples of {_ALIGNMENT} bytes"
    if any(s < 0 or s * _ITEM % _ALIGNMENT for s in operand.batch_strides):
        return f"the batch strides {operand.batch_strides} of {name} are not multiples of {_ALIGNMENT} bytes"
    if len([s for s in operand.batch_strides if s]) > 3:
        return f"{name} has more than three batch modes"
    return None


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
    return _why_not_operand("A", p.a, (p.m, p.k)) or _why_not_operand("B", p.b, (p.n, p.k))


def _tile(p: GemmProblem, device: DeviceInfo) -> tuple[int, int]:
    """(columns, stages): the wide tile where it still gives every multiprocessor work."""
    tiles = -(-p.m // 128) * -(-p.n // 256) * prod(p.batch)
    return (256, 4) if tiles >= device.multiprocessors else (128, 6) if p.n > 64 else (64, 6)


def plan_wgmma(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan on ``gemm_wgmma`` for a problem that :func:`why_not_wgmma` does not refuse."""
    facing = oriented(problem, 1)
    p = facing.problem
    columns, stages = _tile(p, device)
    inner = range(len(p.batch) - 1, -1, -1)            # the innermost batch mode runs fastest
    major_a, major_b = (_majorness(o, e) == 1 for o, e in ((p.a, (p.m, p.k)), (p.b, (p.n, p.k))))
    batch_a, batch_b = (tuple(o.batch_strides[i] != 0 for i in inner) for o in (p.a, p.b))
    c = pairs_along_n(p)
    config = WgmmaConfig(p.a.dtype, p.c.dtype, 2, columns, stages, major_a, major_b, c, alpha_kind(p.alpha), p.beta, batch_a,
                         batch_b, output_span(p) >= NARROW_SPAN, fused(p, 1, c.width))
    kernel = gemm_wgmma(config)
    values = {"C": Argument(role="c")}
    for name, role, box, o, extent in zip(("mapA", "mapB"), facing.roles, config.boxes, (p.a, p.b), (p.m, p.n), strict=True):
        extents = (extent, p.k)
        strides = [s if n > 1 or mode == box.inner_mode else max(8, -(-extents[box.inner_mode] // 8) * 8)
                   for mode, (n, s) in enumerate(zip(extents, o.strides, strict=True))]
        spec = box.map((*extents, *(p.batch[i] for i in inner)), (*strides, *(o.batch_strides[i] for i in inner)))
        values[name] = Argument(role=role, tensor_map=spec)
    numbers = {"M": p.m, "N": p.n, "K": p.k, "dC_m": p.c.strides[0], "dC_n": p.c.strides[1]}
    numbers |= {f"L{q}": p.batch[i] for q, i in enumerate(inner)} | {f"dC_l{q}": p.c.batch_strides[i] for q, i in enumerate(inner)}
    values |= {name: Argument(value=v) for name, v in (numbers | fusion_numbers(p.fusion)).items()}
    tiles = -(-p.m // config.rows) * -(-p.n // config.columns) * prod(p.batch)
    arguments = tuple(values.get(q.name) or Argument(role=q.name) for q in kernel.params)
    launch = Launch(kernel, (min(tiles, device.multiprocessors), 1, 1), arguments)
    reason = (f"{p.a.dtype} on tensor cores, float32 accumulation; tile {config.rows}x{columns}x64, {stages} stages: "
              f"{tiles} tiles on {device.multiprocessors} multiprocessors")
    return Plan(problem, device, "gemm_wgmma", config, (launch,), reason=reason + facing.note, facts=kernel.facts)
