"""Plans on ``gemm_simt``: the tile and the number of slices of K with the least estimated time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from ..codegen.dtypes import dtype
from ..codegen.kernel import GeneratedKernel
from ..kernels.common import OperandAccess
from ..kernels.gemm_simt import SimtConfig, TileShape, gemm_simt
from ..kernels.reduce_split import TILE as REDUCE_TILE
from ..kernels.reduce_split import ReduceConfig, reduce_split
from .plan import Argument, Launch, Plan, Role
from .problem import DeviceInfo, GemmProblem, Operand, transposed

__all__ = ["Candidate", "Choice", "candidates", "choose", "plan_simt"]

Roles = dict[str, Role]               # which argument each pointer parameter takes

_MAX_VECTOR = 4                      # elements of a vector access: what a thread owns side by side
_NARROW_SPAN = 2**30                 # offsets below this fit 32 bits, copies ahead of the end included
_LAUNCH_SECONDS = 4e-6
_SLICE_SECONDS = 0.1e-6              # slices are added one after the other
_GATHER_PENALTY = 14.0               # element-wise copies: this over the extent that shares them is the loss
_MIN_SLICE = 128                     # a slice of K is at least this deep
_MAX_WORKSPACE = 64 << 20            # bytes of slices


@dataclass(frozen=True)
class Candidate:
    """A tile and how fast it runs.

    Attributes
    ----------
    tile : TileShape
        The tile.
    rate : float
        Fraction of a multiprocessor's fused multiply-adds that it reaches when many blocks follow each other.
    ramp : float
        Time to start and drain, in units of the time of one block.

    Notes
    -----
    Rates and ramps were fitted to square products of 64 to 3072 on an H200; docs/performance/gemm-simt.md has the
    measurements. A block that runs alone on a multiprocessor takes ``1 + ramp`` block times, ``c`` blocks take ``c + ramp``.
    """

    tile: TileShape
    rate: float
    ramp: float


_T = TileShape
_SINGLE = (
    Candidate(_T(256, 128, 8, stages=4), 0.75, 0.0),
    Candidate(_T(128, 256, 8, warp=(4, 8), stages=4), 0.75, 0.0),
    Candidate(_T(128, 128, 8, stages=4, min_blocks=2), 0.71, 0.05),
    Candidate(_T(128, 64, 8, warps=(2, 2), stages=4, min_blocks=3), 0.70, 0.25),
    Candidate(_T(64, 64, 16, warps=(2, 2), stages=3, min_blocks=4), 0.65, 0.75),
    Candidate(_T(64, 32, 16, warps=(2, 1), stages=3, min_blocks=4), 0.63, 1.6),
    Candidate(_T(32, 32, 16, warps=(1, 2), stages=3, min_blocks=8), 0.44, 2.5),
    Candidate(_T(128, 16, 16, warps=(4, 1), stages=3, min_blocks=4), 0.35, 2.0),
    Candidate(_T(16, 128, 16, warp=(4, 8), warps=(1, 4), stages=3, min_blocks=4), 0.35, 2.0),
)
_DOUBLE = (
    Candidate(_T(128, 64, 8, warps=(2, 2), stages=3, min_blocks=2), 0.66, 0.2),
    Candidate(_T(64, 64, 8, warps=(2, 2), stages=4, min_blocks=3), 0.55, 0.4),
    Candidate(_T(32, 32, 16, warps=(2, 2), values=(2, 4), stages=4, min_blocks=2), 0.37, 0.9),
)
_SINGLE_COMPLEX = (
    Candidate(_T(128, 64, 8, stages=3), 0.77, 0.1),
    Candidate(_T(64, 64, 8, warps=(2, 2), stages=4, min_blocks=2), 0.69, 0.26),
    Candidate(_T(32, 32, 8, warps=(2, 2), values=(2, 4), stages=4, min_blocks=4), 0.63, 0.5),
)
_DOUBLE_COMPLEX = (
    Candidate(_T(64, 64, 8, warps=(2, 2), values=(2, 2), stages=3), 0.71, 0.2),
    Candidate(_T(32, 32, 8, warps=(1, 2), values=(2, 2), stages=4, min_blocks=4), 0.60, 0.9),
    Candidate(_T(32, 32, 8, warps=(2, 2), values=(2, 2), stages=4, min_blocks=3), 0.46, 0.1),
)
_LANES = {4: 128, 8: 64}             # fused multiply-adds of a multiprocessor in a clock, by bytes of a real accumulator


def candidates(element: str) -> tuple[Candidate, ...]:
    """The tiles that ``gemm_simt`` chooses among for an element type."""
    accumulator = dtype(dtype(element).accumulator)
    if accumulator.is_complex:
        return _DOUBLE_COMPLEX if accumulator.bytes == 16 else _SINGLE_COMPLEX
    return _DOUBLE if accumulator.bytes == 8 else _SINGLE


@dataclass(frozen=True)
class Choice:
    """A tile, how many slices of which depth K is split into, and the estimated time.

    Attributes
    ----------
    tile : TileShape
        The tile.
    slices, chunk : int
        Number of slices of K and the depth of each.
    blocks : int
        Blocks of the grid.
    seconds : float
        Estimate.
    """

    tile: TileShape
    slices: int
    chunk: int
    blocks: int
    seconds: float


def choose(p: GemmProblem, device: DeviceInfo, a: OperandAccess, b: OperandAccess) -> Choice:
    """The tile and split with the least estimated time.

    The estimate for ``c`` blocks on the busiest multiprocessor is ``(c + ramp)`` times the time of a block at the tile's rate;
    slices add the traffic of the workspace and a launch.
    """
    accumulator = dtype(dtype(p.a.dtype).accumulator)
    real_bytes = max(4, accumulator.bytes // (2 if accumulator.is_complex else 1))
    per_second = 2 * _LANES[real_bytes] * device.clock_hz
    k = 0 if p.alpha == "zero" else p.k
    outputs = p.m * p.n * prod(p.batch)

    def estimate(candidate: Candidate, split: int) -> Choice:
        t = candidate.tile
        chunk = -(-k // split // 16) * 16 if split > 1 else k
        slices = -(-k // chunk) if split > 1 else 1
        blocks = -(-p.m // t.m) * -(-p.n // t.n) * prod(p.batch) * slices
        gathered = _GATHER_PENALTY * ((a.unit != 0) / t.n + (b.unit != 0) / t.m)
        flops = 2 * t.m * t.n * (4 if accumulator.is_complex else 1) * (chunk + t.k)
        block_seconds = flops / (per_second * candidate.rate) * (1 + gathered)
        busiest = -(-blocks // device.multiprocessors)
        seconds = block_seconds * (busiest + candidate.ramp) + _LAUNCH_SECONDS
        if slices > 1:
            seconds += 2 * slices * outputs * accumulator.bytes / device.bandwidth + slices * _SLICE_SECONDS + _LAUNCH_SECONDS
        return Choice(t, slices, chunk, blocks, seconds)

    splits = [1]
    while k // (2 * splits[-1]) >= _MIN_SLICE and 2 * splits[-1] * outputs * accumulator.bytes <= _MAX_WORKSPACE:
        splits.append(2 * splits[-1])
    return min((estimate(c, s) for c in candidates(p.a.dtype) for s in splits), key=lambda choice: choice.seconds)


def _span(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> int:
    """Largest distance in elements between two elements of an operand."""
    modes = zip((*extents, *batch), (*operand.strides, *operand.batch_strides), strict=True)
    return sum(max(0, n - 1) * abs(s) for n, s in modes)


def _access(operand: Operand, extents: tuple[int, int], limit: int = _MAX_VECTOR) -> OperandAccess:
    """How an operand can be read or written: unit stride, vector width along mode 0."""
    (e0, e1), (s0, s1) = extents, operand.strides
    unit = 0 if s0 == 1 else 1 if s1 == 1 else None
    width, item = 1, dtype(operand.dtype).bytes
    if unit == 0:
        others = ([s1] if e1 > 1 else []) + list(operand.batch_strides)
        width = gcd(limit, max(1, 16 // item), max(1, operand.alignment // item), e0, *others)
    return OperandAccess(unit, width, operand.conj)


def _with_mode(operand: Operand, stride: int) -> Operand:
    """An operand with one more batch mode, outermost."""
    return replace(operand, batch_strides=(stride, *operand.batch_strides))


def _slices(p: GemmProblem, choice: Choice) -> GemmProblem:
    """The product of every slice of K into the workspace: slices are one more batch mode, outermost."""
    accumulator = dtype(p.a.dtype).accumulator
    below, strides = p.m * p.n, []
    for n in reversed(p.batch):
        strides.append(below)
        below *= n
    target = Operand(accumulator, (1, p.m), (below, *reversed(strides)))
    return replace(p, a=_with_mode(p.a, choice.chunk * p.a.strides[1]), b=_with_mode(p.b, choice.chunk * p.b.strides[1]), c=target,
                   batch=(choice.slices, *p.batch), alpha="one", beta="zero")


def plan_simt(problem: GemmProblem, device: DeviceInfo, rejected: str = "") -> Plan:
    """Plan a GEMM on fused multiply-adds.

    Parameters
    ----------
    problem : GemmProblem
        What to compute; no extent of the result is 0.
    device : DeviceInfo
        Where.
    rejected : str
        Why no faster family could be used, for the plan's reason.

    Raises
    ------
    ValueError
        For more blocks than a grid can have.
    """
    p = problem
    roles: Roles = {"A": "a", "B": "b", "C": "c"}
    swapped = p.c.strides[0] != 1 and p.c.strides[1] == 1
    if swapped:                                        # so that C is M-major, the order in which threads write vectors
        p, roles = transposed(p), {"A": "b", "B": "a", "C": "c"}
    choice = choose(p, device, _access(p.a, (p.m, p.k)), _access(p.b, (p.n, p.k)))
    reason = (f"{p.a.dtype} on fused multiply-adds; tile {choice.tile}: {choice.blocks} blocks on "
              f"{device.multiprocessors} multiprocessors")
    if choice.slices == 1:
        launches: tuple[Launch, ...] = (_product(p, choice, roles),)
        workspace = 0
    else:
        reason += f", K in {choice.slices} slices of {choice.chunk}, added in order"
        partial = _slices(p, choice)
        launches = (_product(partial, choice, {**roles, "C": "workspace"}), _reduction(p, choice, partial))
        workspace = prod((choice.slices, p.m, p.n, *p.batch)) * dtype(partial.c.dtype).bytes
    if any(launch.grid[0] >= 2**31 for launch in launches):
        raise ValueError(f"a product of {problem.m} x {problem.n} in a batch of {prod(problem.batch)} needs more blocks than "
                         "the 2^31 - 1 of a grid")
    reason += "; computed as C^T = B A^T, so that C is written along its rows" if swapped else ""
    return Plan(problem, device, "gemm_simt", choice, launches, workspace, reason + rejected, launches[0].kernel.facts)


def _product(p: GemmProblem, choice: Choice, roles: Roles) -> Launch:
    """The launch of ``gemm_simt``; the outermost batch mode walks over slices if there are several."""
    wide = max(_span(p.a, (p.m, choice.chunk), p.batch), _span(p.b, (p.n, choice.chunk), p.batch), _span(p.c, (p.m, p.n), p.batch),
               p.m, p.n, p.k) >= _NARROW_SPAN
    config = SimtConfig(p.a.dtype, p.c.dtype, choice.tile, _access(p.a, (p.m, p.k)), _access(p.b, (p.n, p.k)),
                        _access(p.c, (p.m, p.n), choice.tile.values[0]), _alpha(p), p.beta, len(p.batch), choice.slices > 1, wide)
    numbers = {"M": p.m, "N": p.n, "K": 0 if p.alpha == "zero" else p.k, "chunk": choice.chunk}
    for name, operand, modes in (("A", p.a, "mk"), ("B", p.b, "nk"), ("C", p.c, "mn")):
        numbers |= {f"d{name}_{mode}": s for mode, s in zip(modes, operand.strides, strict=True)}
        numbers |= {f"d{name}_l{i}": s for i, s in enumerate(reversed(operand.batch_strides))}
    numbers |= {f"L{i}": n for i, n in enumerate(reversed(p.batch))}       # the innermost batch mode runs fastest
    return _launch(gemm_simt(config), choice.blocks, roles, numbers)


def _reduction(p: GemmProblem, choice: Choice, partial: GemmProblem) -> Launch:
    """The launch that adds the slices."""
    wide = _span(partial.c, (p.m, p.n), partial.batch) >= _NARROW_SPAN or _span(p.c, (p.m, p.n), p.batch) >= _NARROW_SPAN
    config = ReduceConfig(partial.c.dtype, p.c.dtype, _access(p.c, (p.m, p.n), 1), _alpha(p), p.beta, len(p.batch), wide)
    numbers = {"M": p.m, "N": p.n, "S": choice.slices, "dC_m": p.c.strides[0], "dC_n": p.c.strides[1]}
    for i, (n, s) in enumerate(zip(reversed(p.batch), reversed(p.c.batch_strides), strict=True)):
        numbers |= {f"L{i}": n, f"dC_l{i}": s}
    blocks = -(-p.m // REDUCE_TILE[0]) * -(-p.n // REDUCE_TILE[1]) * prod(p.batch)
    return _launch(reduce_split(config), blocks, {"W": "workspace", "C": "c"}, numbers)


def _alpha(p: GemmProblem) -> str:
    """A kernel knows that alpha is one, or takes it: with alpha zero it runs over no k."""
    return "one" if p.alpha == "one" else "value"


def _launch(kernel: GeneratedKernel, blocks: int, roles: Roles, numbers: dict[str, int]) -> Launch:
    supplied: Roles = {**roles, "alpha": "alpha", "beta": "beta"}
    arguments = tuple(Argument(role=supplied[q.name]) if q.name in supplied else Argument(value=numbers[q.name])
                      for q in kernel.params)
    return Launch(kernel, (blocks, 1, 1), arguments)
