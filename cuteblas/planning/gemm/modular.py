"""Plans of float64 and complex128 products of bytes: residues of operands modulo small numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import Any, NamedTuple

from ...codegen.signature import View
from ...kernels.common import OperandAccess, parts_of
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
    WORD,
    SurveyConfig,
    SurveyOperand,
    choice,
    survey,
)
from ..cost.work import Work
from ..floors import compulsory_bytes
from ..guard import VERDICT, natively, otherwise, verdict_bytes
from ..operands import (
    MAPPED_STRIDE,
    NARROW_SPAN,
    Side,
    bind,
    compact,
    launch,
    mapped,
    of_sides,
    of_triangle,
    output_span,
    sides,
    specialised,
    stored_elements,
    tiles_of_c,
    vector_access,
    why_not_on_wgmma,
    why_not_types,
)
from ..plan import Argument, Launch, Workspace, aligned, least, place
from ..problem import DeviceInfo, GemmProblem, Pair
from .blocks import Blocks, NoRoom
from .family import Choice, Family, Made
from .mma import plan_mma, why_not_mma
from .ring import WgmmaTile
from .simt import plan_simt

# real products of a sum; with fewer the bound of native arithmetic is nearly as small
_LEAST_DEPTH = 256

_MODULI = 14                         # of random numbers, by which the time is estimated

_BESIDE = 80 << 20     # bytes of workspace beside 1.5 times those of A, B and C
_LINE = 128            # bytes
_MOST_BATCH_MODES = 2  # a tensor map has five modes: rows, K, planes and these
_WORDS = 1             # of the verdict
_LEAST_COSINE = 0.125  # of the angles of rows of A and B together, for 14 moduli; twice as much for
                       # complex numbers
_LEAST_BLOCKS = 256                  # that read an operand, if there are as many
_TILES = WgmmaTile(2, 256, 4), WgmmaTile(2, 128, 6), WgmmaTile(1, 128, 6)


def why_not_modular(p: GemmProblem, device: DeviceInfo) -> str | None:
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
    if max(_plane_bytes(p)) >= MAPPED_STRIDE:
        return "planes would lie 2^40 bytes apart or more, out of reach of tensor maps"
    return None


def why_not_residues(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why ``gemm_modular`` is taken by name alone, or ``None`` if planning may take it."""
    if (refused := why_not_modular(p, device)) is None and parts_of(p.a.dtype) * p.k < _LEAST_DEPTH:
        return f"the error bound of native arithmetic is no larger for sums of fewer than {_LEAST_DEPTH} products"
    return refused


_FRONT = place("workspace")


@dataclass(frozen=True)
class _Surveyed:
    """An operand, and the workspace of its parts' sums and of what is known of its rows."""

    side: Side
    reading: SurveyOperand
    partials: Argument
    norms: Argument
    lowest: Argument
    exponents: Argument

    @classmethod
    def within(cls, workspace: Workspace, side: Side) -> _Surveyed:
        read = SurveyOperand(replace(side.access, conj=False), side.operand.dtype, len(side.modes))
        fewest = _LEAST_BLOCKS / prod(side.extents)
        while read.steps > 1 and prod(read.blocks(side.rows, side.k)) < fewest:
            read = replace(read, steps=read.steps // 2)
        nbytes = 20 * read.blocks(side.rows, side.k)[1], 8, 4, 4
        return cls(side, read, *(workspace.take(each * side.all_rows) for each in nbytes))

    @property
    def parts(self) -> int:
        return self.reading.blocks(self.side.rows, self.side.k)[1]

    @property
    def blocks(self) -> int:
        side = self.side
        return prod(self.reading.blocks(side.rows, side.k)) * prod(side.extents)

    @property
    def row_blocks(self) -> int:
        return -(-self.side.all_rows // ROWS)

    @property
    def partial_sums(self) -> dict[str, Argument]:
        count = self.side.all_rows * self.parts
        return {name: place(self.partials, nbytes * count)
                for name, nbytes in (("T", 0), ("S", 8), ("E", 16))}

    def known(self, matrix: int = 0, row: int = 0) -> dict[str, Argument]:
        """Arguments for norms, lowest bits and exponents of rows, from a row of a matrix on."""
        first = row + matrix * sum(self.side.row_strides[-1:])
        return {"Q": place(self.norms, 8 * first), "D": place(self.lowest, 4 * first),
                "E": place(self.exponents, 4 * first)}


def _survey(operands: tuple[_Surveyed, _Surveyed], records: Argument) -> Iterator[Launch]:
    """What reads both operands and chooses the number of moduli."""
    a, b = operands
    element, k = a.side.operand.dtype, a.side.k
    wide = max(max(x.side.span, x.side.all_rows * x.parts) for x in operands) >= NARROW_SPAN
    config = SurveyConfig(a.reading, b.reading, wide)
    yield launch(survey, config, a.blocks + b.blocks, {"blocks_A": a.blocks, "words": _FRONT},
                 of_sides({**x.side.reading, **x.partial_sums} for x in operands))
    yield launch(choice, wide, a.row_blocks + b.row_blocks,
                 {"blocks_A": a.row_blocks, "length": k, "R": records, "status": place(VERDICT),
                  "least": _LEAST_COSINE * parts_of(element), "words": _FRONT},
                 of_sides({**x.known(), **x.partial_sums, "rows_": x.side.all_rows,
                           "parts_": x.parts} for x in operands))


def _pitches(p: GemmProblem) -> Pair:
    """Bytes from a row of residues of A or B to the next, and of C; long ones begin at lines."""
    def pitch(extent: int, multiple: int) -> int:
        multiple = _LINE if extent >= 2 * _LINE else multiple
        return -(-extent // multiple) * multiple

    return pitch(p.k, K_MULTIPLE), pitch(p.n, N_MULTIPLE)


def _planes(p: GemmProblem) -> int:
    """Planes of residues, for the largest number of moduli."""
    return planes_of(p.a.dtype) * MOST


def _plane_bytes(p: GemmProblem) -> tuple[int, int, int]:
    pitch, across = _pitches(p)
    a, b = (_planes(p) * side.all_rows * pitch for side in sides(p))
    return a, b, _planes(p) * p.m * across * p.matrices


class _Memory(NamedTuple):
    """The parts of the workspace with planes of A and B, and of the residues of C."""

    a: Argument
    b: Argument
    c: Argument

    @classmethod
    def of_a(cls, workspace: Workspace, p: GemmProblem) -> Argument:
        return workspace.take(_plane_bytes(p)[0])

    @classmethod
    def beside(cls, a: Argument, p: GemmProblem, workspace: Workspace) -> _Memory:
        """The parts for a block of C whose planes of A are there."""
        _a, of_b, of_c = _plane_bytes(p)
        return cls(a, a if p.triangle else workspace.take(of_b), workspace.take(of_c))


def _cut(p: GemmProblem, begin: int, device: DeviceInfo) -> Blocks | None:
    """The fewest blocks of C for whose planes there is room; ``None`` if there is none."""
    room = (sum(stored_elements(p)) + p.outputs) * p.a.item * 3 // 2 + _BESIDE
    if device.workspace_limit is not None:
        room = min(room, device.workspace_limit)
    return Blocks.fewest(p, room - begin - verdict_bytes(_WORDS), _bytes)


def _bytes(p: GemmProblem) -> int:
    workspace = Workspace()
    _Memory.beside(_Memory.of_a(workspace, p), p, workspace)
    return aligned(workspace.nbytes)


class _Rows(NamedTuple):
    """The rows of an operand of a block of C, from one of all on, and where their residues are."""

    surveyed: _Surveyed
    side: Side
    first: int
    planes: Argument


def _residues(p: GemmProblem, matrix: int, rows: Iterable[_Rows]) -> Launch:
    """The launch that makes residues, first of what is turned, whose blocks take longest."""
    pitch, _across = _pitches(p)
    operands, values, blocks, spans = [], [], [], list[int]()
    for surveyed, side, first, planes in sorted(rows, key=lambda x: x.side.access.unit != 0):
        operand = ResiduesOperand(side.access, side.operand.dtype, len(side.modes))
        operands.append(operand)
        values.append({**side.reading, "matrix_rows_": surveyed.side.rows, "P": planes,
                       **surveyed.known(matrix, first)})
        blocks.append(operand.blocks(side.rows, pitch) * prod(side.extents))
        spans += side.span, _planes(p) * side.all_rows * pitch
    config = ResiduesConfig(tuple(operands), max(spans) >= NARROW_SPAN)
    return launch(residues, config, sum(blocks), of_sides(values, "01"), words=_FRONT,
                  pitch=pitch // WORD, blocks_0=blocks[0])


def _product(p: GemmProblem, device: DeviceInfo,
             memory: _Memory) -> tuple[Launch, GemmModularConfig]:
    tile = _multiplying(p, device).tile
    config = specialised(GemmModularConfig, p, OperandAccess(), **vars(tile))
    planes, (pitch, across), (a, b) = _planes(p), _pitches(p), sides(p)
    values: dict[str, Any] = {"words": _FRONT}
    for name, box, there, rows, length, stride, batch in (
            ("A", config.boxes[0], memory.a, p.m, p.k, pitch, a.extents),
            ("B", config.boxes[1], memory.b, p.n, p.k, pitch, b.extents),
            ("R", StagedC.box_of("uint8", tile.columns), memory.c, p.m, across, across, p.batch[::-1])):
        steps, plane = compact(batch, rows * stride)
        values[name] = mapped(there, box.map((rows, length, *batch, planes),
                                             (stride, 1, *steps, plane)))
    blocks = tile.blocks(tile.clusters(p) * planes, device)
    return bind(gemm_modular, config, p, blocks, **values), config


def _multiplying(p: GemmProblem, device: DeviceInfo) -> Choice[WgmmaTile]:
    """The tile of the least estimate for residues of random elements, and what it does."""
    planes, steps = planes_of(p.a.dtype) * _MODULI, -(-p.k // _LINE)
    return least((Choice(tile, 1, p.k, work=Work(
        "tensor cores, bytes", "TMA", **tile.counts(tile.clusters(p) * planes, steps, device,
                                                    item=1), moved=compulsory_bytes(p)))
        for tile in _TILES), device)


def _restore(p: GemmProblem, start: tuple[int, int, int], operands: tuple[_Surveyed, _Surveyed],
             memory: _Memory) -> Launch:
    _pitch, across = _pitches(p)
    c = replace(vector_access(p.c, p.shape), width=1, conj=False)
    reach = max(output_span(p), _plane_bytes(p)[2])
    config = specialised(RestoreConfig, p, c, reach, symmetric=p.triangle is not None)
    matrix, *rows = start
    exponents: Any = {f"E{name}": View(x.known(matrix, row)["E"], (1,), x.side.row_strides)
                 for name, x, row in zip("AB", operands, rows, strict=True)}
    return bind(restore, config, p, tiles_of_c(p, config.tile, True), pitch=across // WORD,
                R=memory.c, words=_FRONT, **exponents)


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[None]]:
    """What is done for random elements; endless if the workspace has no room for planes."""
    works = [Work("tensor cores, bytes", "TMA", written=inf)]
    if cut := _cut(p, 0, replace(device, workspace_limit=None)):
        item, planes = p.a.item, planes_of(p.a.dtype) * _MODULI
        surveyed, launches = item * sum(stored_elements(p)), 4
        works.clear()
        for block in cut.of(p):
            part, first = block.problem, block.start[2] == 0
            of_a, of_b = stored_elements(part)
            prepared = (item + planes) * (part.outputs + of_b * (not p.triangle) + of_a * first)
            works.append(_multiplying(part, device).work._replace(
                launches=launches + 3, prepared=surveyed + prepared))
            surveyed = launches = 0
    *before, work = works
    yield Choice(None, 1, p.k, 1, work, "by residues", before=tuple(before))


def _made(p: GemmProblem, device: DeviceInfo, _choice: Choice[None]) -> Made:
    workspace = Workspace()
    workspace.take(STATE_BYTES)
    a, b = (_Surveyed.within(workspace, side) for side in sides(p))
    records = workspace.take(4 * RECORD.size * (a.row_blocks + b.row_blocks))
    launches, configs = [*_survey((a, b), records)], []
    if (cut := _cut(p, aligned(workspace.nbytes), device)) is None:
        raise NoRoom(device)
    for block, there, first in cut.by_rows(p, workspace, partial(_Memory.of_a, workspace)):
        part, (matrix, row, column) = block.problem, block.start
        memory, (of_a, of_b) = _Memory.beside(there, part, workspace), sides(part)
        rows = [_Rows(a, of_a, row, there)] * first
        if not p.triangle:
            rows.append(_Rows(b, of_b, column, memory.b))
        product, config = _product(part, device, memory)
        configs.append(config)
        launches += (_residues(part, matrix, rows), product,
                     _restore(part, block.start, (a, a if p.triangle else b), memory))
    native = (plan_mma if why_not_mma(p, device) is None else plan_simt)(
        p, device, gate=NATIVE
    )
    fallback = otherwise("elements differ too much in size, or are infinite or NaN",
                         "fused multiply-adds")
    everything, nbytes = natively(tuple(launches), workspace.nbytes, native, _WORDS)
    products = "" if planes_of(p.a.dtype) == 1 else ", three products for each"
    reason = (
        f"{p.a.dtype} as integers modulo up to {MOST} numbers{products}, on tensor cores that multiply bytes: the device "
        f"chooses as many as the elements need; {fallback}{of_triangle(p)}{cut.note(p, 'A, B and C')}"
    )
    return Made(everything, nbytes, reason, configs[0], fallback)


RESIDUES = Family("gemm_modular", why_not_residues, _tilings, _made, precisions=("auto",))
MODULAR = replace(RESIDUES, why_not=why_not_modular, precisions=("modular",))
plan_modular = MODULAR.plan
