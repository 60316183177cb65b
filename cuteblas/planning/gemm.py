"""From a GEMM problem to a plan: which kernel, which tile, which vector widths."""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod

from ..codegen.dtypes import dtype
from ..kernels.common import OperandAccess
from ..kernels.gemm_simt import SimtConfig, TileShape, gemm_simt
from .plan import Argument, Launch, Plan
from .problem import DeviceInfo, GemmProblem, Operand, transposed
from .wgmma import plan_wgmma, why_not_wgmma

__all__ = ["plan_gemm", "simt_tiles"]

_MAX_VECTOR = 4                      # elements of a vector access: what a thread owns side by side
_NARROW_SPAN = 2**30                 # offsets below this fit 32 bits, copies ahead of the end included

# Tiles by the size of an accumulator: large first. Registers for accumulators: m * n / threads * bytes / 4.
_TILES = {
    4: (TileShape(128, 128, 16, warps=(2, 4), stages=3, min_blocks=2), TileShape(64, 64, 16, warps=(2, 2), stages=3, min_blocks=4),
        TileShape(32, 32, 16, warps=(1, 2), stages=3)),
    8: (TileShape(128, 128, 8, warps=(2, 4), stages=3), TileShape(64, 64, 8, warps=(2, 2), stages=3, min_blocks=2),
        TileShape(32, 32, 8, warps=(1, 2), stages=3)),
    16: (TileShape(64, 64, 8, warps=(2, 4), values=(2, 2), stages=3), TileShape(32, 32, 8, warps=(1, 2), values=(2, 2), stages=3)),
}


def simt_tiles(element: str) -> tuple[TileShape, ...]:
    """The tiles that ``gemm_simt`` chooses among for an element type, large first."""
    return _TILES[max(4, dtype(dtype(element).accumulator).bytes)]


def _span(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> int:
    """Largest distance in elements between two elements of an operand."""
    modes = zip((*extents, *batch), (*operand.strides, *operand.batch_strides), strict=True)
    return sum(max(0, n - 1) * abs(s) for n, s in modes)


def _access(operand: Operand, extents: tuple[int, int]) -> OperandAccess:
    """How an operand can be read or written: unit stride, vector width."""
    (e0, e1), (s0, s1) = extents, operand.strides
    unit = 0 if s0 == 1 else 1 if s1 == 1 else None
    width = 1
    if unit == 0:
        others = [s for n, s in ((e1, s1),) if n > 1] + list(operand.batch_strides)
        width = gcd(_MAX_VECTOR, max(1, operand.alignment // dtype(operand.dtype).bytes), e0, *others)
        width = min(width, max(1, 16 // dtype(operand.dtype).bytes))
    return OperandAccess(unit, width, operand.conj)


def _choose_tile(p: GemmProblem, device: DeviceInfo) -> tuple[TileShape, str]:
    """The tile with the least estimated time: waves of blocks times the work of a block, smaller tiles reading more per operation."""
    def cost(t: TileShape) -> float:
        blocks = -(-p.m // t.m) * -(-p.n // t.n) * prod(p.batch)
        resident = device.multiprocessors * t.min_blocks
        waves = -(-blocks // resident)
        overlap = min(1.0, blocks / device.multiprocessors / t.min_blocks) if waves == 1 else 1.0
        work = t.m * t.n * t.min_blocks * max(overlap, 1 / t.min_blocks)
        return waves * work * (1 + 24 / t.m + 24 / t.n)

    tile = min(simt_tiles(p.a.dtype), key=cost)
    blocks = -(-p.m // tile.m) * -(-p.n // tile.n) * prod(p.batch)
    return tile, f"tile {tile}: {blocks} blocks on {device.multiprocessors} multiprocessors, the least estimated time of its family"


@lru_cache(maxsize=4096)
def plan_gemm(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan a GEMM.

    Parameters
    ----------
    problem : GemmProblem
        What to compute.
    device : DeviceInfo
        Where.

    Returns
    -------
    Plan
        Its launches take the addresses of roles ``a``, ``b``, ``c``.

    Raises
    ------
    ValueError
        For an unknown precision, or more blocks than a grid can have.
    """
    if problem.precision not in ("auto", "ieee"):
        raise ValueError(f"precision must be 'auto' or 'ieee', got {problem.precision!r}")
    if 0 in (problem.m, problem.n, *problem.batch):
        return Plan(problem, device, "nothing", None, (), reason="the result has no elements")
    refused = why_not_wgmma(problem, device)
    if refused is None:
        return plan_wgmma(problem, device)
    return _plan_simt(problem, device, f"; not gemm_wgmma: {refused}" if dtype(problem.a.dtype).bytes == 2 else "")


def _plan_simt(problem: GemmProblem, device: DeviceInfo, rejected: str) -> Plan:
    p, roles = problem, {"A": "a", "B": "b", "C": "c"}
    swapped = p.c.strides[0] != 1 and p.c.strides[1] == 1
    if swapped:                                        # so that C is M-major, the order in which threads write vectors
        p, roles = transposed(p), {"A": "b", "B": "a", "C": "c"}
    tile, why = _choose_tile(p, device)
    wide = max(_span(p.a, (p.m, p.k), p.batch), _span(p.b, (p.n, p.k), p.batch), _span(p.c, (p.m, p.n), p.batch),
               p.m, p.n, p.k) >= _NARROW_SPAN
    config = SimtConfig(p.a.dtype, p.c.dtype, tile, _access(p.a, (p.m, p.k)), _access(p.b, (p.n, p.k)), _access(p.c, (p.m, p.n)),
                        "one" if p.alpha == "one" else "value", p.beta, len(p.batch), wide)
    kernel = gemm_simt(config)
    values: dict[str, Argument] = {name: Argument(role=role) for name, role in (*roles.items(), ("alpha", "alpha"), ("beta", "beta"))}
    numbers = {"M": p.m, "N": p.n, "K": 0 if p.alpha == "zero" else p.k}
    for name, operand, modes in (("A", p.a, "mk"), ("B", p.b, "nk"), ("C", p.c, "mn")):
        numbers |= {f"d{name}_{mode}": s for mode, s in zip(modes, operand.strides, strict=True)}
        numbers |= {f"d{name}_l{i}": s for i, s in enumerate(reversed(operand.batch_strides))}
    numbers |= {f"L{i}": n for i, n in enumerate(reversed(p.batch))}       # the innermost batch mode runs fastest
    values |= {name: Argument(value=v) for name, v in numbers.items()}
    blocks = -(-p.m // tile.m) * -(-p.n // tile.n) * prod(p.batch)
    if blocks >= 2**31:
        raise ValueError(f"a product of {problem.m} x {problem.n} in a batch of {prod(problem.batch)} needs {blocks} blocks; a grid has at most 2^31 - 1")
    launch = Launch(kernel, (blocks, 1, 1), tuple(values[q.name] for q in kernel.params))
    reason = f"{p.a.dtype} on fused multiply-adds; {why}" + ("; computed as C^T = B A^T, so that C is written along its rows" if swapped else "") + rejected
    return Plan(problem, device, "gemm_simt", config, (launch,), reason=reason, facts=kernel.facts)
