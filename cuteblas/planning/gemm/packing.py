"""Products on ``gemm_wgmma`` of operands that it cannot read in place: they are packed, copied first to rows that it can read.

No tensor map describes them, they are float32 or bytes that do not run along K, or longer integers, whose bytes become planes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..._dtypes import dtype
from ...codegen.kernel import GeneratedKernel
from ...kernels.copy.straight import CopyConfig, copy_kernel
from ...kernels.copy.tiles import TransposeConfig, transpose_kernel
from ..copy.cost import CopyWork
from ..copy.dispatch import copy_alternatives
from ..cost.alternatives import Alternative
from ..cost.work import Counted
from ..operands import compact, row_pitch
from ..plan import Argument, Launch, Plan, Role, Workspace, place, placed
from ..problem import CopyProblem, DeviceInfo, GemmProblem, Operand, Problem
from .wgmma import is_exact, plan_wgmma, wgmma_alternatives, why_not_read

__all__ = ["packed_alternatives", "packed_problem", "plan_packed"]

_SECTOR = 16                         # elements: rows are multiples of it
_LINE = 128
_PAIRED: dict[type, Callable[[Any], GeneratedKernel]] = {CopyConfig: copy_kernel, TransposeConfig: transpose_kernel}


@dataclass(frozen=True)
class _Packed:
    """An operand in the workspace.

    Attributes
    ----------
    operand : Operand
        Its layout there.
    problem : CopyProblem
        How it comes there.
    nbytes : int
        What it takes.
    reason : str
        Why the operand itself is not read.
    """

    operand: Operand
    problem: CopyProblem
    nbytes: int
    reason: str


class _Moving(NamedTuple):
    """A copy, and what it does."""

    plan: Plan
    work: CopyWork


def _packed_operands(p: GemmProblem) -> dict[Role, _Packed]:
    """Copies of the operands that cannot be read in place."""
    copies = {}
    for role, (x, extents) in zip("ab", p.inputs, strict=True):
        if (reason := why_not_read(p, role.upper())) is not None:
            digits = dtype(x.dtype).bytes if is_exact(p) else 1
            copies[role] = _pack(x, extents, p.batch, reason, along_k=p.precision == "tf32" or is_exact(p), digits=digits)
    return copies


def packed_problem(p: GemmProblem) -> GemmProblem:
    """The product that :func:`plan_packed` plans; the same if no operand needs to be copied."""
    operands = {role: copy.operand for role, copy in _packed_operands(p).items()}
    if is_exact(p) and dtype(p.a.dtype).bytes > 1:
        return replace(p, **operands, digits=dtype(p.a.dtype).bytes, compute=p.accumulator)       # type: ignore[arg-type]
    return replace(p, **operands)       # type: ignore[arg-type]


def _pack(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...], reason: str, *, along_k: bool,
          digits: int) -> _Packed:
    """A copy of an operand: rows along K or the mode of the smallest stride, matrices one after the other, none of them twice.

    Of longer integers a row has a plane of each of their bytes, the ``digits``.
    """
    item = dtype(operand.dtype).bytes
    sizes = [(extents[mode] == 1, operand.strides[mode] == 0, abs(operand.strides[mode])) for mode in range(2)]
    inner = 1 if along_k or sizes[1] <= sizes[0] else 0
    pitch = row_pitch(extents[inner], _SECTOR)
    if item == 1 or digits > 1:
        multiple = _LINE if extents[inner] >= _LINE else _SECTOR
        pitch = -(-extents[inner] // multiple) * multiple * digits
    strides = (1, pitch) if inner == 0 else (pitch, 1)
    own = [i for i in range(len(batch) - 1, -1, -1) if operand.batch_strides[i] != 0 and batch[i] > 1]     # innermost first
    own_strides, elements = compact((batch[i] for i in own), pitch * extents[1 - inner])
    stride_of = dict(zip(own, own_strides, strict=True))
    batch_strides = tuple(stride_of.get(i, 0) for i in range(len(batch)))
    shape = (*(batch[i] for i in own), *extents)
    source, target = (*(operand.batch_strides[i] for i in own), *operand.strides), (*own_strides, *strides)
    if digits > 1:
        shape, source, target = (*shape, digits), (*(s * digits for s in source), 1), (*target, pitch // digits)
        operand, item = replace(operand, dtype="uint8"), 1
    problem = CopyProblem(shape, source, target, item, operand.alignment)
    return _Packed(replace(operand, strides=strides, batch_strides=batch_strides, alignment=16), problem, elements * item, reason)


@lru_cache(maxsize=4096)
def _moving(copy: Problem, device: DeviceInfo) -> _Moving:
    """A copy: by tiles, of which two may be one launch, unless boxes are expected to save more than a launch."""
    assert isinstance(copy, CopyProblem)
    tiles, *boxes = copy_alternatives(copy, device)
    best = min(boxes, key=lambda choice: choice.seconds(device), default=tiles)
    gained = tiles.seconds(device) - best.seconds(device)
    chosen = best if gained > device.seconds(launches=1) else tiles
    return _Moving(chosen.plan(), chosen.work)


def packed_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All products of the same copies."""
    moves = [_moving(copy.problem, device) for copy in _packed_operands(problem).values()]
    works = _works(moves)
    for product in wgmma_alternatives(packed_problem(problem), device):
        yield Alternative("gemm_wgmma", f"of copies, {product.name}", (*works, *product.works),
                          partial(plan_packed, problem, device, product.plan))


def _works(moves: Sequence[_Moving]) -> tuple[Counted, ...]:
    """What packing does; a second copy begins while the first one ends."""
    return tuple(moving.work._replace(beside=i > 0) for i, moving in enumerate(moves))


def plan_packed(problem: GemmProblem, device: DeviceInfo, product: Callable[[], Plan] | None = None) -> Plan:
    """The plan on ``gemm_wgmma`` of a product that takes :func:`packed_problem`; ``product`` overrules how that is planned.

    The workspace holds what the product needs there, then the copies.
    """
    plan, copies = plan_wgmma(packed_problem(problem), device) if product is None else product(), _packed_operands(problem)
    workspace = Workspace()
    workspace.take(plan.workspace_bytes)
    places = {role: workspace.take(copy.nbytes) for role, copy in copies.items()}
    made = [_moving(copy.problem, device) for copy in copies.values()]
    moves = [each.plan for each in made]
    copying = [(launch, moving.config) for role, moving in zip(copies, moves, strict=True)
               for launch in placed(moving.launches, {"src": place(role), "dst": places[role]})]
    launches = [*_paired(copying), *placed(plan.launches, places)]
    copied = tuple(f"{role.upper()} is copied first: {copy.reason}" for role, copy in copies.items())
    reason = "; ".join((plan.reason, *copied))
    return replace(plan, problem=problem, launches=tuple(launches), workspace_bytes=workspace.nbytes, reason=reason,
                   seconds=(plan.seconds or 0.0) + sum(work.seconds(device) for work in _works(made)), copied=copied)


def _paired(copying: list[tuple[Launch, object]]) -> list[Launch]:
    """Launches that copy, given with their configurations: two of one kernel as one, which costs the host less."""
    launches = [launch for launch, _config in copying]
    configs = [config for _launch, config in copying]
    if len(launches) != 2 or configs[0] != configs[1] or (kernel := _PAIRED.get(type(configs[0]))) is None:
        return launches
    first, second = launches
    each = (argument for pair in zip(first.arguments, second.arguments, strict=True) for argument in pair)
    config: Any = configs[0]
    return [Launch(kernel(replace(config, paired=True)), (first.grid[0] + second.grid[0], 1, 1),
                   (Argument(value=first.grid[0]), *each))]
