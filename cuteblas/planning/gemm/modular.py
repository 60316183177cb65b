"""Plans of float64 and complex128 products on tensor cores that multiply bytes: operands become
residues modulo small numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import Any, NamedTuple

from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.gemm.modular import MOST_DEPTH, GemmModularConfig, gemm_modular
from ...kernels.gemm.staged import StagedC
from ...kernels.guard import NATIVE
from ...kernels.modular.residues import (
    K_MULTIPLE,
    ResiduesConfig,
    ResiduesOperand,
    planes_of,
    residues,
)
from ...kernels.modular.restore import N_MULTIPLE, RestoreConfig, restore
from ...kernels.modular.survey import (
    MOST,
    RECORD,
    ROWS,
    STATE_BYTES,
    WEIGHTS,
    WORD,
    SurveyConfig,
    SurveyOperand,
    choice,
    parts_of,
    survey,
)
from ..cost.work import Work, on_wgmma
from ..floors import compulsory_bytes
from ..guard import VERDICT, natively, otherwise, verdict_bytes
from ..operands import (
    MAPPED_STRIDE,
    NARROW_SPAN,
    Oriented,
    OwnBatch,
    bind,
    compact,
    launch,
    of_triangle,
    operand_span,
    output_span,
    specialised,
    stored_elements,
    tiles_of_c,
    vector_access,
    why_not_on_wgmma,
    why_not_types,
)
from ..plan import Argument, Launch, Role, Workspace, aligned, place, placed
from ..problem import DeviceInfo, GemmProblem, Operand
from .blocks import Block, Blocks, NoRoom
from .family import Choice, Family, Made
from .mma import plan_mma, why_not_mma
from .simt import plan_simt

__all__ = ["MODULAR", "RESIDUES", "plan_modular", "why_not_modular", "why_not_residues"]

# real products of a sum; with fewer the bound of native arithmetic is nearly as small
_LEAST_DEPTH = 256

_MODULI = 14                         # of random numbers, by which the time is estimated

_BESIDE = 80 << 20     # bytes of workspace beside 1.5 times those of A, B and C
_LINE = 128            # bytes
_MOST_BATCH_MODES = 2  # a tensor map has five modes: rows, K, planes and these
_MOST_BLOCKS = 64      # of C
_WORDS = 1             # of the verdict
_LEAST_COSINE = 0.125  # of the angles of rows of A and B together, for 14 moduli; twice as much for
                       # complex numbers
_UNROLL = 4
_STEPS = 8                           # that a block reads, at most: the last ones end together
_LEAST_BLOCKS = 256                  # that read an operand, if there are as many
_TILES = ((2, 256, 4), (2, 128, 6), (1, 128, 6))      # warpgroups, columns and stages


def why_not_modular(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_modular``, or ``None`` if it can."""
    if p.triangle not in (None, "both"):
        return "it computes all of C, not a triangle"
    if refused := why_not_types(p, "float64", "complex128"):
        return refused
    if p.c.dtype != p.a.dtype:
        return f"C is {p.c.dtype}, not {p.a.dtype} as A and B"
    if refused := why_not_on_wgmma(p, device):
        return refused
    if p.k > MOST_DEPTH:
        return f"sums of more than {MOST_DEPTH} products of bytes do not fit into 31 bits"
    if len(p.batch) > _MOST_BATCH_MODES:
        return f"it takes at most {_MOST_BATCH_MODES} batch modes"
    largest = max(max(p.m, p.n) * _pitch(p.k, K_MULTIPLE),
                  p.m * _pitch(p.n, N_MULTIPLE)) * p.matrices
    if planes_of(p.a.dtype) * MOST * largest >= MAPPED_STRIDE:
        return "planes would lie 2^40 bytes apart or more, out of reach of tensor maps"
    return None


def why_not_residues(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why ``gemm_modular`` is not taken for a problem unless a caller names its precision, or
    ``None`` if it may be."""
    if (refused := why_not_modular(p, device)) is None and parts_of(p.a.dtype) * p.k < _LEAST_DEPTH:
        return f"the error bound of native arithmetic is no larger for sums of fewer than {_LEAST_DEPTH} products"
    return refused


def _pitch(extent: int, multiple: int) -> int:
    """Bytes from a row of residues to the next; long ones begin at lines."""
    multiple = _LINE if extent >= 2 * _LINE else multiple
    return -(-extent // multiple) * multiple


_FRONT = place("workspace")


@dataclass(frozen=True)
class _Side:
    """An operand, and what the workspace has of it.

    Attributes
    ----------
    operand : Operand
        The operand.
    role : str
        Its memory.
    rows, k : int
        Its extents.
    own : OwnBatch
        The batch modes of the operand.
    partials, norms, lowest, exponents : Argument
        The parts of the workspace with the sums of parts of rows, and with what is known of rows.
    """

    operand: Operand
    role: Role
    rows: int
    k: int
    own: OwnBatch
    partials: Argument = _FRONT
    norms: Argument = _FRONT
    lowest: Argument = _FRONT
    exponents: Argument = _FRONT

    @classmethod
    def within(cls, workspace: Workspace, operand: Operand, role: Role, rows: int,
               p: GemmProblem) -> _Side:
        """An operand with its parts of the workspace."""
        side = cls(operand, role, rows, p.k, OwnBatch.of(p, operand))
        partials, norms, lowest, exponents = (workspace.take(nbytes * side.all_rows)
                                              for nbytes in (20 * side.parts, 8, 4, 4))
        return replace(side, partials=partials, norms=norms, lowest=lowest, exponents=exponents)

    @property
    def reading(self) -> SurveyOperand:
        """How it is read before it becomes residues."""
        access = replace(vector_access(self.operand, (self.rows, self.k)), conj=False)
        found = SurveyOperand(access, self.operand.dtype, len(self.own.modes), _UNROLL, _STEPS)
        matrices = prod(self.own.extents)
        while found.steps > 1 and prod(found.blocks(self.rows, self.k)) * matrices < _LEAST_BLOCKS:
            found = replace(found, steps=found.steps // 2)
        return found

    @property
    def all_rows(self) -> int:
        """Rows of all its matrices."""
        return self.rows * prod(self.own.extents)

    @property
    def parts(self) -> int:
        """Parts of K whose sums are apart."""
        return self.reading.blocks(self.rows, self.k)[1]

    @property
    def blocks(self) -> int:
        """Blocks that read it."""
        return prod(self.reading.blocks(self.rows, self.k)) * prod(self.own.extents)

    @property
    def row_blocks(self) -> int:
        """Blocks that have some of its rows."""
        return -(-self.all_rows // ROWS)

    @property
    def partial_sums(self) -> dict[str, Argument]:
        """Where the sums of parts of rows are."""
        count = self.all_rows * self.parts
        return {name: place(self.partials, nbytes * count)
                for name, nbytes in (("T", 0), ("S", 8), ("E", 16))}

    def row_strides(self, p: GemmProblem) -> tuple[int, ...]:
        """Rows from a matrix to the next, for all batch modes, innermost first."""
        return self.own.spread(compact(self.own.extents, self.rows)[0], p)

    def first_row(self, block: Block, row: int) -> int:
        """Which of all its rows is the first of a block of C."""
        return row + block.start[0] * sum(self.row_strides(block.problem)[-1:])


_STATE = {"words": _FRONT, "numbers": _FRONT}          # of a product


def _of_sides(sides: tuple[_Side, _Side],
              values: Callable[[_Side], Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a kernel takes of both operands."""
    for letter, side in zip("AB", sides, strict=True):
        yield {f"{name}{letter}": value for name, value in values(side).items()}


def _survey(a: _Side, b: _Side, batch: tuple[int, ...], records: Argument) -> Iterator[Launch]:
    """What reads both operands and chooses the number of moduli."""
    wide = max(max(operand_span(x.operand, (x.rows, x.k), batch), x.all_rows * x.parts)
               for x in (a, b)) >= NARROW_SPAN
    config = SurveyConfig(a.reading, b.reading, wide)
    yield launch(survey, config, a.blocks + b.blocks, {"blocks_A": a.blocks, "words": _FRONT},
                 *_of_sides((a, b), lambda x: {**x.own.reading(x.operand, x.role, x.rows, x.k),
                                               **x.partial_sums}))
    yield launch(choice, wide, a.row_blocks + b.row_blocks,
                 {"blocks_A": a.row_blocks, "length": a.k, "R": records, "status": place(VERDICT),
                  "least": _LEAST_COSINE * parts_of(a.operand.dtype), **_STATE},
                 *_of_sides((a, b), lambda x: {**x.partial_sums, "Q": x.norms, "D": x.lowest,
                                               "rows_": x.all_rows, "parts_": x.parts}))


class _Memory(NamedTuple):
    """The parts of the workspace with planes of A and B, and of the residues of C."""

    a: Argument
    b: Argument
    c: Argument

    @classmethod
    def of_a(cls, workspace: Workspace, p: GemmProblem) -> Argument:
        """The part for planes of A."""
        return workspace.take(planes_of(p.a.dtype) * MOST * p.m * _pitch(p.k, K_MULTIPLE)
                              * prod(OwnBatch.of(p, p.a).extents))

    @classmethod
    def beside(cls, a: Argument, p: GemmProblem, workspace: Workspace) -> _Memory:
        """The parts for a block of C whose planes of A are there."""
        planes = planes_of(p.a.dtype) * MOST
        b = a if p.triangle else workspace.take(planes * p.n * _pitch(p.k, K_MULTIPLE)
                                                * prod(OwnBatch.of(p, p.b).extents))
        return cls(a, b, workspace.take(planes * p.m * _pitch(p.n, N_MULTIPLE) * p.matrices))


def _cut(p: GemmProblem, begin: int, device: DeviceInfo) -> Blocks | None:
    """The fewest blocks of C for whose planes there is room; ``None`` if there is none."""
    room = (sum(stored_elements(p)) + p.outputs) * p.a.item * 3 // 2 + _BESIDE
    if device.workspace_limit is not None:
        room = min(room, device.workspace_limit)
    room -= begin + verdict_bytes(_WORDS)
    return Blocks.fewest(p, _MOST_BLOCKS, lambda part: _bytes(part) <= room)


def _bytes(p: GemmProblem) -> int:
    """The workspace that planes of a block of C take."""
    workspace = Workspace()
    _Memory.beside(_Memory.of_a(workspace, p), p, workspace)
    return aligned(workspace.nbytes)


@dataclass(frozen=True)
class _Made:
    """An operand of a block of C whose residues are made: its rows begin at a row of the side."""

    side: _Side
    operand: Operand
    rows: int
    row: int
    planes: Argument


def _residues(made: Sequence[_Made], p: GemmProblem, block: Block) -> Launch:
    """The launch that makes residues of one or two operands of a block of C: first of what is
    turned, whose blocks take longest."""
    pitch, planes = _pitch(p.k, K_MULTIPLE), planes_of(p.a.dtype) * MOST
    operands: list[ResiduesOperand] = []
    values, blocks, spans = [], [], []
    for x in sorted(made, key=lambda x: vector_access(x.operand, (x.rows, p.k)).unit != 0):
        batch = OwnBatch.of(p, x.operand)
        reading = ResiduesOperand(vector_access(x.operand, (x.rows, p.k)), x.operand.dtype,
                                  len(batch.modes))
        first = x.side.first_row(block, x.row)
        own = {**batch.reading(x.operand, x.side.role, x.rows, p.k),
               "matrix_rows_": x.side.rows, "P": x.planes,
               "Q": place(x.side.norms, 8 * first), "D": place(x.side.lowest, 4 * first),
               "E": place(x.side.exponents, 4 * first)}
        values.append({f"{name}{len(operands)}": value for name, value in own.items()})
        operands.append(reading)
        blocks.append(reading.blocks(x.rows, pitch) * prod(batch.extents))
        spans.append(max(operand_span(x.operand, (x.rows, p.k), p.batch),
                         planes * x.rows * pitch * prod(batch.extents)))
    config = ResiduesConfig(tuple(operands), max(spans) >= NARROW_SPAN)
    of_first = {"blocks_0": blocks[0]} if len(blocks) > 1 else {}
    return launch(residues, config, sum(blocks), {"pitch": pitch // WORD, **of_first},
                  *values, _STATE)


def _product(p: GemmProblem, device: DeviceInfo, memory: _Memory) -> tuple[Launch, GemmModularConfig]:
    """The launch that multiplies planes."""
    groups, columns, stages = _tile(p, device)
    config = specialised(GemmModularConfig, p, OperandAccess(), groups=groups, columns=columns,
                         stages=stages)
    planes, pitch = planes_of(p.a.dtype) * MOST, _pitch(p.k, K_MULTIPLE)
    values: dict[str, Any] = {"words": _FRONT}
    for name, box, (operand, (rows, _k)), there in zip("AB", config.boxes, p.inputs, memory[:2],
                                                       strict=True):
        batch = OwnBatch.of(p, operand).extents
        steps, plane = compact(batch, rows * pitch)
        spec = box.map((rows, p.k, *batch, planes), (pitch, 1, *steps, plane))
        values[name] = View(map=replace(there, tensor_map=spec))
    across = _pitch(p.n, N_MULTIPLE)
    steps, plane = compact(p.batch[::-1], p.m * across)
    spec = StagedC.box_of("uint8", columns).map((p.m, across, *p.batch[::-1], planes),
                                                (across, 1, *steps, plane))
    values["R"] = View(map=replace(memory.c, tensor_map=spec))
    tiles = tiles_of_c(p, config.tile) * planes
    return bind(gemm_modular, config, p, min(tiles, device.multiprocessors), **values), config


def _tile(p: GemmProblem, device: DeviceInfo) -> tuple[int, int, int]:
    """The tile whose waves take the least time."""
    def waves(tile: tuple[int, int, int]) -> float:
        groups, columns, _stages = tile
        tiles = tiles_of_c(p, (64 * groups, columns)) * planes_of(p.a.dtype) * 14
        return -(-tiles // device.multiprocessors) * (groups * columns + 64)

    return min(_TILES, key=waves)


def _restore(p: GemmProblem, block: Block, sides: tuple[_Side, _Side], memory: _Memory) -> Launch:
    """The launch that makes C of residues."""
    pitch = _pitch(p.n, N_MULTIPLE)
    c = replace(vector_access(p.c, p.shape), width=1, conj=False)
    planes = planes_of(p.c.dtype) * MOST
    reach = max(output_span(p), planes * p.m * pitch * p.matrices)
    config = specialised(RestoreConfig, p, c, reach, symmetric=p.triangle is not None)
    values: dict[str, Any] = {"pitch": pitch // 4, "R": memory.c, **_STATE,
                              "weights": place("workspace", WEIGHTS)}
    for name, side, row in zip("AB", sides, block.start[1:], strict=True):
        of_rows = place(side.exponents, 4 * side.first_row(block, row))
        values[f"E{name}"] = View(of_rows, (1,), side.row_strides(p))
    return bind(restore, config, p, tiles_of_c(p, config.tile, True), **values)


def _work(p: GemmProblem, device: DeviceInfo) -> Work:
    """The work where elements are random numbers; of endless time if the workspace has no room for
    planes."""
    if (cut := _cut(p, 0, replace(device, workspace_limit=None))) is None:
        return Work("tensor cores, bytes", "TMA", written=inf)
    item, planes, most = p.a.item, planes_of(p.a.dtype) * _MODULI, device.multiprocessors
    prepared, launches = item * sum(stored_elements(p)), 4
    whole: dict[str, Any] = {}
    for block, _shared, first in cut.by_rows(p, Workspace(), lambda _part: None):
        part = block.problem
        groups, columns, _stages = _tile(part, device)
        tiles, steps = tiles_of_c(part, (64 * groups, columns)) * planes, -(-part.k // _LINE)
        of_a, of_b = stored_elements(part)
        prepared += (item + planes) * (part.outputs + of_b * (not p.triangle) + of_a * first)
        launches += 3
        for name, count in {**on_wgmma(64 * groups, columns, steps),
                            "written": 64 * groups * columns, "passes": steps}.items():
            whole[name] = whole.get(name, 0.0) + -(-tiles // most) * count
    return Work("tensor cores, bytes", "TMA", **whole, ahead=_TILES[0][2] - 1, blocks=most,
                moved=compulsory_bytes(p), launches=launches, prepared=prepared)


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[None]]:
    """The one way."""
    yield Choice(None, 1, p.k, 1, _work(p, device), "by residues")


def _made(facing: Oriented, device: DeviceInfo, _choice: Choice[None]) -> Made:
    p, workspace = facing.problem, Workspace()
    workspace.take(STATE_BYTES)
    a, b = (_Side.within(workspace, x, role, rows, p)
            for x, role, rows in zip((p.a, p.b), facing.roles, p.shape, strict=True))
    launches = list(_survey(a, b, p.batch, workspace.take(4 * RECORD.size
                                                          * (a.row_blocks + b.row_blocks))))
    if (cut := _cut(p, aligned(workspace.nbytes), device)) is None:
        raise NoRoom(device)
    if p.triangle:
        b = a
    config = None
    for block, there, first in cut.by_rows(p, workspace, partial(_Memory.of_a, workspace),
                                           facing.roles):
        part, memory = block.problem, _Memory.beside(there, block.problem, workspace)
        made = [_Made(a, part.a, part.m, block.start[1], there)] * first
        if b is not a:
            made.append(_Made(b, part.b, part.n, block.start[2], memory.b))
        product, own = _product(part, device, memory)
        launches += placed((_residues(made, part, block), product,
                            _restore(part, block, (a, b), memory)), block.places)
        config = config or own
    native = (plan_mma if why_not_mma(p, device) is None else plan_simt)(
        facing.original, device, gate=NATIVE
    )
    fallback = otherwise("elements differ too much in size, or are infinite or NaN",
                         "fused multiply-adds")
    everything, nbytes = natively(tuple(launches), workspace.nbytes, native, _WORDS)
    products = "" if planes_of(p.a.dtype) == 1 else ", three products for each"
    reason = (
        f"{p.a.dtype} as integers modulo up to {MOST} numbers{products}, on tensor cores that multiply bytes: the device "
        f"chooses as many as the elements need; {fallback}{of_triangle(p)}{facing.note}{cut.note(p, 'A, B and C')}"
    )
    return Made(everything, nbytes, reason, config, fallback)


RESIDUES = Family("gemm_modular", why_not_residues, _tilings, _made, precisions=("auto",))
MODULAR = replace(RESIDUES, why_not=why_not_modular, precisions=("modular",))
plan_modular = MODULAR.plan
