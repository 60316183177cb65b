"""Choices, alternatives and plans of all families, and slices of K that are added in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.reduce.slices import ReduceConfig, reduce_split
from ..cost.work import Counted, Work, added, blocks_in_turns
from ..floors import compulsory_bytes
from ..guard import VERDICT
from ..operands import (
    Facing,
    along_rows,
    bind,
    compact,
    of_triangle,
    operand_span,
    output_span,
    power_of_two,
    specialised,
    tiles_of_c,
    turned,
    unit_mode,
)
from ..plan import Alternative, Launch, Plan, least, place
from ..problem import DeviceInfo, GemmProblem, Ints, Operand, transposed

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


as_it_is = partial(turned, swapped=False)
"""The problem whatever the order of C."""


class Made(NamedTuple):
    launches: tuple[Launch, ...]
    workspace_bytes: int
    reason: str
    config: object = None
    fallback: str = ""
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """A way to compute products. ``tilings`` are the choices for a problem that ``facing`` has put
    in the order in which the kernel writes C; ``made`` computes it by one of them; ``precisions``
    are those for which it may be taken."""

    name: str
    why_not: Callable[[GemmProblem, DeviceInfo], str | None]
    tilings: Callable[[GemmProblem, DeviceInfo], Iterable[Choice]]
    made: Callable[..., Made]
    facing: Callable[[GemmProblem], Facing] = along_rows
    precisions: tuple[str, ...] = NATIVE_PRECISIONS

    def choices(self, problem: GemmProblem, device: DeviceInfo) -> Iterable[Choice]:
        return self.tilings(self.facing(problem)[0], device)

    def seconds(self, problem: GemmProblem, device: DeviceInfo) -> float:
        return least(self.choices(problem, device), device).work.seconds(device)

    def alternatives(self, problem: GemmProblem, device: DeviceInfo,
                     floor: float = 0.0) -> Iterator[Alternative]:
        """The plans without a workspace limit; none needs fewer clocks than ``floor``."""
        for choice in self.choices(problem, device):
            yield Alternative(self.name, choice.name or str(choice), (*choice.before, choice.work),
                              partial(self.planned, problem, device, choice), floor)

    def plan(self, problem: GemmProblem, device: DeviceInfo, choice: Choice | None = None,
             gate: int | None = None) -> Plan:
        """The plan within the workspace limit; ``choice`` overrules that of the least estimate."""
        if refused := self.why_not(problem, device):
            raise ValueError(f"{self.name} cannot compute this: {refused}")
        choice = choice or least(self.choices(problem, device), device)
        return self.planned(problem, device, replace(choice, verdict=gate))

    def planned(self, problem: GemmProblem, device: DeviceInfo, choice: Choice) -> Plan:
        """The plan of a choice for a problem that :attr:`why_not` does not refuse."""
        p, note = self.facing(problem)
        made = self.made(p, device, choice)
        works = () if choice.work is UNCOUNTED else (*choice.before, choice.work)
        return Plan(problem, device, self.name, made.config or choice, made.launches,
                    made.workspace_bytes, made.reason + note,
                    sum(work.seconds(device) for work in works) if works else None, made.copied,
                    made.fallback, works)


MIN_SLICE = 128

_MOST_BYTES = 64 << 20
_MOST_ADDING = 64              # threads that add the slices of an element

UNCOUNTED = Work("tensor cores", "TMA", written=1.0)


Tile = TypeVar("Tile")


@dataclass(frozen=True)
class Choice(Generic[Tile]):
    """A tile and slices of K, each ``chunk`` deep, perhaps in turns of ``turn`` elements; K of
    ``divided`` tiles is between blocks. ``adding`` threads add the slices of an element;
    ``verdict`` is that of a fallback; ``before`` is the work of copies."""

    tile: Tile
    slices: int
    chunk: int
    blocks: int = 1
    work: Work = UNCOUNTED
    name: str = field(default="", compare=False, repr=False)
    divided: int = 0
    turn: int = 0
    adding: int = 1
    verdict: int | None = None
    before: tuple[Counted, ...] = ()

    @property
    def in_slices(self) -> str:
        """A part of a plan's reason: how K is split, if it is."""
        if self.slices == 1:
            return ""
        turns = f" that take turns of {self.turn}" if self.turn else ""
        return f", K in {self.slices} slices of {self.chunk}{turns}, added in order"

    def on(self, device: DeviceInfo) -> str:
        """A part of a plan's reason: the blocks, and how K is split."""
        return f"{self.blocks} blocks on {device.multiprocessors} multiprocessors{self.in_slices}"

    def __str__(self) -> str:
        return f"{self.tile}" + (f"; K in {self.slices} slices of {self.chunk}" if self.slices > 1
                                 else "")


def _with_mode(operand: Operand, stride: int) -> Operand:
    return replace(operand, batch_strides=(stride, *operand.batch_strides))


def _slice_of_workspace(p: GemmProblem, mode: int = 0) -> Operand:
    """C with slices as one more batch mode, outermost: in each slice a mode has stride 1."""
    strides, slice_stride = compact(reversed(p.batch), p.m * p.n)
    matrix = (p.n, 1) if mode else (1, p.m)
    rows, columns = (tuple(zip(own, compact(own, step)[0], strict=True))[1:]
                     for own, step in zip(p.extents, matrix, strict=False))
    return Operand(p.accumulator, matrix, (slice_stride, *reversed(strides)), role="workspace",
                   outer=(rows, columns))


def most_workspace(device: DeviceInfo) -> int:
    return _MOST_BYTES if device.workspace_limit is None else min(_MOST_BYTES,
                                                                  device.workspace_limit)


def depths_of_slices(p: GemmProblem, device: DeviceInfo) -> Iterator[int]:
    """All of K, and how deep 2, 3, 4, 6, 8, 12 ... slices of it are, for full waves."""
    most = min(p.depth // MIN_SLICE, most_workspace(device) // workspace_bytes(p, 1))
    yield p.depth
    count, after = 2, 3
    while count <= most:
        yield -(-p.depth // count // 16) * 16
        count, after = after, 2 * count


def steps_of_slices(p: GemmProblem, tile: Any, device: DeviceInfo, full: Ints, most: int,
                    resident: int = 1) -> list[int]:
    """Steps along K of slices with which blocks fill the device, the fewest first."""
    steps, blocks = -(-p.k // tile.k), tiles_of_c(p, (tile.m, tile.n))
    most = min(most, most_workspace(device) // workspace_bytes(p, 1))
    numbers = (min(most, times * device.multiprocessors * resident // blocks) for times in full)
    return sorted({-(-steps // count) for count in numbers if count > 1})


def sliced(p: GemmProblem, count: int, chunk: int, mode: int = 0) -> GemmProblem:
    """The product of every slice of K, ``chunk`` apart, along a mode of C in the workspace."""
    # A slice of a nested K is a range of its flat coordinate: the kernel moves that, no address.
    a, b = (_with_mode(x, 0 if x.outer[1] else chunk * x.strides[1]) for x in (p.a, p.b))
    return replace(p, a=a, b=b, c=_slice_of_workspace(p, mode),
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


def is_divided(p: GemmProblem, tile: Any) -> bool:
    """Whether a tile divides a product, whose kernel then needs no predicates."""
    return not (p.triangle or p.is_nested or p.m % tile.m or p.n % tile.n or p.k % tile.k)


def in_slices(p: GemmProblem, choice: Choice, multiply: Callable[[GemmProblem], Launch],
              mode: int = 0) -> tuple[tuple[Launch, ...], int]:
    """The launches of a product or of slices and their sum, and workspace bytes."""
    if choice.slices == 1:
        return (multiply(p),), 0
    parts = multiply(sliced(p, choice.slices, choice.turn or choice.chunk, mode))
    adding = reduction(transposed(p) if mode else p, choice)
    return (parts, adding), workspace_bytes(p, choice.slices)


@dataclass(frozen=True)
class OneKernel:
    """How a family computes whose choices are configurations of one kernel, :func:`in_slices`."""

    kernel: Callable[[Any], GeneratedKernel]
    config: Callable[[GemmProblem, DeviceInfo, Any], Any]
    words: Callable[[GemmProblem, Any], str]
    mode: int = 0

    def __call__(self, p: GemmProblem, device: DeviceInfo, choice: Choice) -> Made:
        def multiply(part: GemmProblem) -> Launch:
            return bind(self.kernel, self.config(part, device, choice), part,
                        gate=choice.verdict, **vars(choice), status=View(place(VERDICT)))

        return Made(*in_slices(p, choice, multiply, self.mode),
                    f"{self.words(p, choice)}: {choice.on(device)}{of_triangle(p, choice.slices)}",
                    choice)


def adding_threads(slices: int) -> int:
    return min(_MOST_ADDING, max(2, power_of_two(-(-slices // 4))))


def reduction(p: GemmProblem, choice: Choice) -> Launch:
    """The launch that adds the slices, of stride 1 along M."""
    count, gate = choice.slices, choice.verdict
    partial = operand_span(_slice_of_workspace(p), p.shape, (count, *p.batch))
    config = specialised(ReduceConfig, p, OperandAccess(unit_mode(p.c)),
                         max(p.m, p.n, partial, output_span(p)), 0, gate=gate,
                         along=choice.adding, modes=tuple(map(len, p.extents[:2])),
                         triangle=None if p.triangle == "both" else p.triangle)
    return bind(reduce_split, config, p, tiles_of_c(p, config.tile, True), gate=gate,
                W=place("workspace"), S=count)
