"""Choices, alternatives and plans of all families, and slices of K that are added in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ...kernels.common import OperandAccess
from ...kernels.reduce.slices import ReduceConfig, reduce_split
from ..cost.work import Work, added, blocks_in_turns
from ..floors import compulsory_bytes
from ..operands import (
    Oriented,
    Roles,
    along_rows,
    bind,
    compact,
    operand_span,
    output_span,
    power_of_two,
    specialised,
    tiles_of_c,
    unit_mode,
)
from ..plan import Alternative, Launch, Plan, least, place
from ..problem import DeviceInfo, GemmProblem, Operand, Pair

__all__ = ["MIN_SLICE", "NATIVE_PRECISIONS", "UNCOUNTED", "Choice", "Family", "Made",
           "adding_threads", "counted_blocks", "divided_bytes", "in_slices", "most_workspace",
           "numbers_of_slices", "reduction", "sliced", "why_not_plain", "workspace_bytes"]

NATIVE_PRECISIONS = ("auto", "ieee")
"""Native arithmetic of the dtype, and the fastest that is as accurate."""


def why_not_plain(p: GemmProblem) -> str | None:
    """Why a problem is not one of native arithmetic that writes all of C, else ``None``."""
    if p.triangle:
        return "it writes all of C, not a triangle"
    if p.digits != 1:
        return "only gemm_wgmma multiplies planes of digits"
    native = p.precision in NATIVE_PRECISIONS
    return None if native else f"it does not support precision={p.precision!r}"


class Made(NamedTuple):
    launches: tuple[Launch, ...]
    workspace_bytes: int
    reason: str
    config: object = None
    fallback: str = ""


@dataclass(frozen=True)
class Family:
    """A way to compute products. ``tilings`` are the choices for a problem that ``facing`` has put
    in the order in which the kernel writes C; ``made`` computes one of them; ``precisions`` are
    those for which it may be taken."""

    name: str
    why_not: Callable[[GemmProblem, DeviceInfo], str | None]
    tilings: Callable[[GemmProblem, DeviceInfo], Iterable[Choice]]
    made: Callable[..., Made]
    facing: Callable[[GemmProblem], Oriented] = along_rows
    precisions: tuple[str, ...] = NATIVE_PRECISIONS

    def choices(self, problem: GemmProblem, device: DeviceInfo) -> Iterable[Choice]:
        return self.tilings(self.facing(problem).problem, device)

    def seconds(self, problem: GemmProblem, device: DeviceInfo) -> float:
        return least(self.choices(problem, device), device).work.seconds(device)

    def alternatives(self, problem: GemmProblem, device: DeviceInfo,
                     floor: float = 0.0) -> Iterator[Alternative]:
        """The plans without a workspace limit; none needs fewer clocks than ``floor``."""
        for choice in self.choices(problem, device):
            yield Alternative(self.name, choice.name or str(choice), (choice.work,),
                              partial(self.planned, problem, device, choice), floor)

    def plan(self, problem: GemmProblem, device: DeviceInfo, choice: Choice | None = None,
             **own: Any) -> Plan:
        """The plan within the workspace limit; ``choice`` overrules that of the least estimate."""
        if refused := self.why_not(problem, device):
            raise ValueError(f"{self.name} cannot compute this: {refused}")
        return self.planned(problem, device,
                            choice or least(self.choices(problem, device), device), **own)

    def planned(self, problem: GemmProblem, device: DeviceInfo, choice: Choice,
                **own: Any) -> Plan:
        """The plan of a choice for a problem that ``why_not`` does not refuse."""
        made = self.made(self.facing(problem), device, choice, **own)
        seconds = None if choice.work is UNCOUNTED else choice.work.seconds(device)
        return Plan(problem, device, self.name, made.config or choice, made.launches,
                    made.workspace_bytes, made.reason, seconds, fallback=made.fallback)


MIN_SLICE = 128

_MOST_BYTES = 64 << 20
_MOST_ADDING = 64              # threads that add the slices of an element

UNCOUNTED = Work("tensor cores", "TMA", written=1.0)


Tile = TypeVar("Tile")


@dataclass(frozen=True)
class Choice(Generic[Tile]):
    """A tile and slices of K, each ``chunk`` deep; K of ``divided`` tiles is between blocks."""

    tile: Tile
    slices: int
    chunk: int
    blocks: int
    work: Work = UNCOUNTED
    name: str = field(default="", compare=False, repr=False)
    divided: int = 0

    @property
    def in_slices(self) -> str:
        """A part of a plan's reason: how K is split, if it is."""
        return f", K in {self.slices} slices of {self.chunk}, added in order" if self.slices > 1 else ""

    def __str__(self) -> str:
        return f"{self.tile}" + (f"; K in {self.slices} slices of {self.chunk}" if self.slices > 1
                                 else "")


def _with_mode(operand: Operand, stride: int) -> Operand:
    return replace(operand, batch_strides=(stride, *operand.batch_strides))


def _slice_of_workspace(p: GemmProblem) -> Operand:
    strides, slice_stride = compact(reversed(p.batch), p.m * p.n)
    return Operand(p.accumulator, (1, p.m), (slice_stride, *reversed(strides)))


def most_workspace(device: DeviceInfo) -> int:
    return _MOST_BYTES if device.workspace_limit is None else min(_MOST_BYTES,
                                                                  device.workspace_limit)


def numbers_of_slices(p: GemmProblem, device: DeviceInfo) -> Iterator[int]:
    """Into how many slices K may be split: 1, 2, 3, 4, 6, 8, 12 ..., for full waves."""
    most = min(p.depth // MIN_SLICE, most_workspace(device) // workspace_bytes(p, 1))
    yield 1
    count, after = 2, 3
    while count <= most:
        yield count
        count, after = after, 2 * count


def sliced(p: GemmProblem, count: int, chunk: int) -> GemmProblem:
    """The product of every slice of K, ``chunk`` apart, into the workspace; all of a triangle."""
    return replace(p, a=_with_mode(p.a, chunk * p.a.strides[1]),
                   b=_with_mode(p.b, chunk * p.b.strides[1]), c=_slice_of_workspace(p),
                   batch=(count, *p.batch), alpha="one", beta="zero", compute=p.accumulator,
                   fusion=None, triangle=None, hermitian=False)


def workspace_bytes(p: GemmProblem, count: int) -> int:
    return count * p.outputs * p.sum_bytes


def counted_blocks(p: GemmProblem, tile: Any, slices: int, chunk: int, resident: int,
                   device: DeviceInfo, launches: int = 1) -> tuple[int, dict[str, Any]]:
    """Blocks that multiply slices, and what they do beside multiplying."""
    blocks, outputs = tiles_of_c(p, (tile.m, tile.n), slices > 1) * slices, p.outputs
    item = p.c.item if slices == 1 else p.sum_bytes
    turns = blocks_in_turns(blocks, resident, -(-chunk // tile.k), tile.stages, device)
    of_c = min(tile.m, p.m) * min(tile.n, p.n) * max(4, item)
    return blocks, {**turns, **added(slices, outputs * p.sum_bytes, launches),
                    "written": turns["tiles"] * of_c, "moved": compulsory_bytes(p),
                    "stored": outputs * slices * item}


def divided_bytes(groups: int, columns: int, device: DeviceInfo) -> Pair:
    """Bytes of sums, 64 rows a warpgroup, and of flags, where blocks divide tiles."""
    warpgroups = groups * device.multiprocessors
    return 4 * 64 * columns * warpgroups, 4 * warpgroups


def in_slices(
    p: GemmProblem,
    choice: Choice,
    multiply: Callable[[GemmProblem, Roles], Launch],
    roles: Roles,
    *,
    gate: int | None = None,
    along: int = 1,
    step: int = 0
) -> tuple[tuple[Launch, ...], int]:
    """The launches of a product or of slices and their sum, and workspace bytes."""
    # ``multiply`` launches a product whose operands are in the memory of roles. Slices begin
    # ``step`` elements of K apart, by default a chunk.
    if choice.slices == 1:
        return (multiply(p, roles),), 0
    parts = multiply(sliced(p, choice.slices, step or choice.chunk), {**roles, "C": "workspace"})
    return (parts, reduction(p, choice.slices, gate, along)), workspace_bytes(p, choice.slices)


def adding_threads(slices: int) -> int:
    return min(_MOST_ADDING, max(2, power_of_two(-(-slices // 4))))


def reduction(p: GemmProblem, count: int, gate: int | None = None, along: int = 1) -> Launch:
    partial = operand_span(_slice_of_workspace(p), p.shape, (count, *p.batch))
    config = specialised(ReduceConfig, p, OperandAccess(unit_mode(p.c)),
                         max(p.m, p.n, partial, output_span(p)), 0, gate=gate, along=along,
                         triangle=None if p.triangle == "both" else p.triangle)
    return bind(reduce_split, config, p, tiles_of_c(p, config.tile, True), gate=gate, W=place("workspace"), S=count)
