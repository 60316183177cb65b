"""Products on ``gemm_wgmma`` of operands that are packed, copied first to rows that it can read.

No tensor map describes them, they are float32 or bytes not along K, or integers whose bytes become
planes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from ...codegen.kernel import GeneratedKernel
from ...kernels.copy.straight import CopyConfig, copy_kernel
from ...kernels.copy.tiles import TransposeConfig, transpose_kernel
from ..copy.dispatch import CopyKernel, copy_alternatives
from ..operands import compact, row_pitch
from ..plan import Argument, Launch, Plan, Role, Workspace, place, placed
from ..problem import CopyProblem, DeviceInfo, GemmProblem, Ints, Operand, Pair
from .family import Choice, Family, Made, as_it_is
from .wgmma import WGMMA, is_exact, why_not_read, why_not_wgmma

_SECTOR = 16                         # elements: rows are multiples of it
_LINE = 128
_PAIRED: dict[type, Callable[[Any], GeneratedKernel]] = {CopyConfig: copy_kernel,
                                                         TransposeConfig: transpose_kernel}


@dataclass(frozen=True)
class Packed:
    """An operand in the workspace, and the copy that brings it there from an ``offset`` on."""

    operand: Operand
    problem: CopyProblem
    nbytes: int
    offset: int


def packed(x: Operand, extents: Pair, batch: Ints, inner: int, pitch: int) -> Packed:
    """A copy of an operand as matrices, one after the other; ``inner`` has stride 1, the other
    mode ``pitch``."""
    item, groups = x.item, x.modes(extents)
    matrices = tuple(zip(batch, x.batch_strides, strict=True))[::-1]
    own = [(n, s) for n, s in matrices if s and n > 1]
    steps, elements = compact((n for n, _s in own), pitch * extents[1 - inner])
    strides = (1, pitch) if inner == 0 else (pitch, 1)
    here = (compact((n for n, _s in group), first)[0]
            for group, first in zip(groups, strides, strict=True))
    shape, there = zip(*own, *groups[0], *groups[1], strict=True)
    each = iter(steps)
    apart = tuple(next(each) if s and n > 1 else 0 for n, s in matrices)
    copy = CopyProblem(shape, there, (*steps, *(step for group in here for step in group)), item,
                       x.alignment)
    return Packed(Operand(x.dtype, strides, apart[::-1], x.conj), copy, elements * item,
                  x.offset)


def with_copies(product: Plan, copies: Mapping[Role, Packed], moves: Mapping[Role, CopyKernel],
                *copied: str) -> Plan:
    """A product between copies that pack and unpack; its own workspace comes first."""
    workspace = Workspace()
    workspace.take(product.workspace_bytes)
    places = {role: workspace.take(copy.nbytes) for role, copy in copies.items()}
    before, after, configs = list[Launch](), tuple[Launch, ...](), list[Any]()
    for role, move in moves.items():
        here, there = ("dst", "src") if role == "c" else ("src", "dst")
        launches = placed(move.plan().launches, {here: place(role, copies[role].offset),
                                                 there: places[role]})
        if role == "c":
            after = launches
        else:
            before += launches
            configs.append(move.config)
    seconds = sum(move.seconds(product.device) for move in moves.values())
    return replace(product, launches=(*_paired(before, configs), *placed(product.launches, places), *after),
                   workspace_bytes=workspace.nbytes, copied=(*product.copied, *copied),
                   reason="; ".join((product.reason, *copied)),
                   seconds=(product.seconds or 0.0) + seconds)


def _packed_operands(p: GemmProblem) -> dict[Role, Packed]:
    return {role: _pack(p, *x) for role, x in zip("ab", p.inputs, strict=True)
            if why_not_read(p, role.upper()) is not None}


def packed_problem(p: GemmProblem) -> GemmProblem:
    """The product that :func:`plan_packed` plans; the same if no operand needs to be copied."""
    operands = {role: copy.operand for role, copy in _packed_operands(p).items()}
    if is_exact(p) and p.a.item > 1:
        return replace(p, **operands, digits=p.a.item, compute=p.accumulator)  # type: ignore[arg-type]
    return replace(p, **operands)       # type: ignore[arg-type]


def _pack(p: GemmProblem, x: Operand, extents: tuple[int, int]) -> Packed:
    """A copy along K or the smallest stride, a plane for each byte of longer integers."""
    item, exact = x.item, is_exact(p)
    sizes = [(extents[mode] == 1, x.strides[mode] == 0, abs(x.strides[mode])) for mode in range(2)]
    inner = 1 if p.precision == "tf32" or exact or sizes[1] <= sizes[0] else 0
    digits, pitch = item if exact else 1, row_pitch(extents[inner], _SECTOR)
    if exact or item == 1:
        multiple = _LINE if extents[inner] >= _LINE else _SECTOR
        pitch = -(-extents[inner] // multiple) * multiple * digits
    x = replace(x, dtype="uint8") if digits > 1 else x
    found = packed(x, extents, p.batch, inner, pitch)
    if digits == 1:
        return found
    copy, planes = found.problem, (*found.problem.dst_strides, pitch // digits)
    read = *(s * digits for s in copy.src_strides), 1
    return replace(found, problem=replace(copy, shape=(*copy.shape, digits), src_strides=read,
                                          dst_strides=planes))


@lru_cache(maxsize=4096)
def _moving(copy: CopyProblem, device: DeviceInfo) -> CopyKernel:
    """A copy by tiles, which may share a launch, unless boxes save more than a launch."""
    tiles, *boxes = copy_alternatives(copy, device)
    best = min(boxes, key=lambda choice: choice.seconds(device), default=tiles)
    gained = tiles.seconds(device) - best.seconds(device)
    return best if gained > device.seconds(launches=1) else tiles


def _moves(copies: Mapping[Role, Packed], device: DeviceInfo) -> dict[Role, CopyKernel]:
    """What packs operands; a second copy begins while the first one ends."""
    moves = {role: _moving(copy.problem, device) for role, copy in copies.items()}
    return {role: replace(each, work=each.work._replace(beside=i > 0))
            for i, (role, each) in enumerate(moves.items())}


def _why_not_packed(p: GemmProblem, device: DeviceInfo) -> str | None:
    return why_not_wgmma(packed_problem(p), device)


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice]:
    before = tuple(each.work for each in _moves(_packed_operands(p), device).values())
    for choice in WGMMA.choices(packed_problem(p), device):
        yield replace(choice, name=f"of copies, {choice.name}", before=before) if before else choice


def _made(p: GemmProblem, device: DeviceInfo, choice: Choice) -> Made:
    """The product after what packs its operands, if any has to be."""
    copies = _packed_operands(p)
    copied = (f"{role.upper()} is copied first: {why_not_read(p, role.upper())}"
              for role in copies)
    plan = with_copies(WGMMA.planned(packed_problem(p), device, choice), copies,
                       _moves(copies, device), *copied)
    return Made(plan.launches, plan.workspace_bytes, plan.reason, plan.config, copied=plan.copied)


PACKED = Family("gemm_wgmma", _why_not_packed, _tilings, _made, as_it_is, WGMMA.precisions)
plan_packed = PACKED.plan


def _paired(launches: list[Launch], configs: list[Any]) -> list[Launch]:
    """Launches that copy: two of one configuration as one, which costs the host less."""
    if len(launches) != 2 or len({*configs}) != 1 or type(configs[0]) not in _PAIRED:
        return launches
    first, second = launches
    grid = first.grid[0] + second.grid[0], 1, 1

    def paired() -> Launch:
        kernel = _PAIRED[type(configs[0])](replace(configs[0], paired=True))
        each = zip(first.arguments, second.arguments, strict=True)
        return Launch(kernel, grid, (Argument(value=first.grid[0]), *chain.from_iterable(each)))

    return [Launch.later(paired, grid)]
