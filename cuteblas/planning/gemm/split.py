"""Plans of float32 and complex64 products on 16-bit tensor cores: both operands are split, then
multiplied plane by plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from ..._dtypes import dtype
from ...codegen.kernel import TensorMapSpec
from ...codegen.signature import View
from ...kernels.gemm.persistent import DEPTH
from ...kernels.gemm.split import GemmSplitConfig, gemm_split
from ...kernels.guard import NATIVE, NEXT
from ...kernels.split.condition import RECORD
from ...kernels.split.planes import FORMATS, SplitConfig, SplitFormat, SplitOperand, split_planes
from ..cost.work import Work, divisions, on_wgmma, persistent
from ..floors import compulsory_bytes
from ..guard import VERDICT, Guarded, gate_values, guarded, otherwise, verdict_bytes
from ..operands import (
    MAPPED_STRIDE,
    NARROW_SPAN,
    VECTOR_BYTES,
    Oriented,
    OwnBatch,
    bind,
    compact,
    launch,
    of_triangle,
    operand_span,
    oriented,
    output_span,
    pairs_along_n,
    row_pitch,
    specialised,
    staged_map,
    staging,
    stored_elements,
    tiles_of_c,
    turned,
    vector_access,
    view,
    why_not_on_wgmma,
    why_not_types,
)
from ..plan import Argument, Launch, Role, Workspace, least, place, placed
from ..problem import DeviceInfo, GemmProblem, Ints, Operand, transposed
from .blocks import Blocks
from .family import Choice, Family, Made
from .simt import SIMT, plan_simt

__all__ = ["GUARDED", "LEAST_K", "SPLIT", "STAGES", "parts_of", "plan_guarded", "why_not_guarded",
           "why_not_split"]

_BESIDE = 80 << 20             # bytes of workspace beside as many as A and B have
_ROW_MULTIPLE = 8              # elements of planes: strides of tensor maps are multiples of 16
                               # bytes
_ALONG = ((512, 2), (512, 1))  # threads of a block that splits rows, and blocks that share a
                               # multiprocessor: rows along K,
_ACROSS = ((256, 3), (256, 2), (256, 1))      # rows across K
_CLUSTERS = (1, 2, 4, 8)  # blocks that share rows across K
_NUMBERS = 16             # real numbers that a thread splits at a time
_AGAIN = 0.3              # of long rows, the part that may be read twice so that two blocks share a
                          # multiprocessor
_RESERVED = 1 << 10       # bytes of shared memory that the driver takes of each block's
_MOST_ROWS = 16           # threads along rows that are contiguous
_BYTES_ACROSS = 128       # of each k that a block reads where rows are across K; half as many of
                          # few rows
_MANY_ROWS = 768
_MOST_PLANE_BYTES = 6  # of all planes of a real number
_FEWEST_STEPS = 3      # along K, of each block, where tiles are divided
_LAUNCHES = 4          # of a split and a product, and of two that return at once
_THIRD = 160           # launches: what a third algorithm, which costs two of them in every call,
                       # has to win at least
_MOST_BLOCKS = 64      # of C, each with a verdict
_VERDICT_BYTES = verdict_bytes(_MOST_BLOCKS)
_MOST_BATCH_MODES = 2                # a tensor map has five modes: rows, K, planes and these
STAGES = {("fp16x3", 2, 128): 3, ("fp16x3", 2, 64): 4, ("fp16x3", 1, 64): 5,
          ("bf16x6", 2, 128): 2, ("bf16x6", 2, 64): 2, ("bf16x6", 1, 64): 3}
"""Stages of the ring by format, multiplying warpgroups of 64 rows and columns of a tile."""

# warpgroups and columns: narrow instructions read more of shared memory
_TILES = ((2, 128), (2, 64), (1, 64))

Tiling = Choice[tuple[int, int]]
"""Warpgroups and columns of a tile, and how many tiles are divided along K."""

LEAST_K = 256
"""With fewer real products in a sum, native arithmetic can be more accurate: in sums of one sign,
what tensor cores cut off within a stage counts as much as the rounding of some 200 sums."""


def why_not_split(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_split``, or ``None`` if it can."""
    if refused := why_not_types(p, "float32", "complex64") or why_not_on_wgmma(p, device,
                                                                               parts_of(p)):
        return refused
    for name, (operand, (rows, _k)) in zip("AB", p.inputs, strict=True):
        batch = OwnBatch.of(p, operand).extents
        elements = prod((row_pitch(rows, _ROW_MULTIPLE), row_pitch(p.k, _ROW_MULTIPLE), *batch))
        if parts_of(p)**2 * _MOST_PLANE_BYTES * elements >= MAPPED_STRIDE:
            return f"planes of {name} would lie 2^40 bytes apart or more, out of reach of tensor maps"
        if len(batch) > _MOST_BATCH_MODES:
            return f"{name} has more than {_MOST_BATCH_MODES} batch modes"
    return None


def why_not_guarded(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why ``gemm_split`` is not taken for a problem unless a caller names its precision, or
    ``None`` if it may be."""
    if (refused := why_not_split(p, device)) is None and parts_of(p) * p.k < LEAST_K:
        return f"sums of fewer than {LEAST_K} products are more accurate in native arithmetic"
    return refused


def parts_of(p: GemmProblem) -> int:
    """Real numbers of an element of the operands."""
    return 2 if dtype(p.a.dtype).is_complex else 1


def _facing(p: GemmProblem) -> Oriented:
    """The problem whose C is written along its rows; of complex numbers, that whose B, the operand
    that is doubled, is the smaller.

    Elements of 8 bytes are written in runs of 32 bytes along N and of 64 along M: either is whole
    sectors.
    """
    in_a, in_b = stored_elements(p)
    if parts_of(p) == 1 or in_a == in_b:
        return oriented(p, 1)
    purpose = "the smaller operand is doubled"
    return turned(p, in_a < in_b, purpose)


@dataclass(frozen=True)
class _Planes:
    """An operand in the workspace, split.

    Attributes
    ----------
    config : SplitOperand
        How it is split.
    values : dict
        What the kernel that splits it takes, by name without the side.
    blocks, records : int
        Blocks that split it, and what they say of their rows: as many records, or one from each
        cluster that shares rows.
    extents : tuple of int
        Of the planes: rows, K, plane, then the batch modes that the operand has, innermost first.
    strides : tuple of int
        Of the planes in elements, for the same modes.
    row_strides : tuple of int
        Of the exponents of the rows, for each batch mode of the problem, innermost first.
    exponents, said, planes : Argument
        The parts of the workspace with the exponents of rows, the records of blocks, and the
        planes.
    span : int
        The largest distance between two elements of the operand or of its planes.
    """

    config: SplitOperand
    values: Mapping[str, Any]
    blocks: int
    records: int
    extents: Ints
    strides: Ints
    row_strides: Ints
    exponents: Argument
    said: Argument
    planes: Argument
    span: int

    def done(self, config: SplitOperand | None = None) -> _Planes:
        """The planes for a launch that finds the operand split already."""
        return replace(self, config=config or self.config, blocks=0, values={**self.values, "M": 0})


def _accessed(operand: Operand, rows: int, k: int, doubled: bool) -> SplitOperand:
    """How an operand is read, before it is divided among blocks."""
    element = dtype(operand.dtype)
    own = [stride for stride in operand.batch_strides if stride]
    return SplitOperand(vector_access(operand, (rows, k)), (1, 1), VECTOR_BYTES // element.bytes,
                        len(own), element.name, doubled)


def _split(form: SplitFormat, p: GemmProblem, name: str, role: Role, config: SplitOperand,
           workspace: Workspace) -> _Planes:
    """An operand, A or B, that is split into the workspace."""
    operand, (rows, k) = p.inputs["AB".index(name)]
    parts, doubled, k_major = config.parts, config.doubled, config.k_major
    own = OwnBatch.of(p, operand)
    lengths = own.extents
    along, across = (parts * k, (1 + doubled) * rows)[::1 if k_major else -1]
    pitch = row_pitch(along, _ROW_MULTIPLE)
    plane = pitch * across
    batch_strides, elements = compact(lengths, plane * form.planes)
    row_strides, count = compact(lengths, rows)
    records = -(-rows // config.tile[0]) * prod(lengths)
    exponents, said = workspace.take(4 * count), workspace.take(4 * RECORD.size * records)
    planes = workspace.take(elements * dtype(form.element).bytes)
    values: dict[str, Any] = {
        **own.reading(operand, role, rows, k),
        "P": View(planes, (pitch, plane, 1), batch_strides),
        "R": View(exponents, (1, 0), row_strides),
        "S": View(said, (1,))}
    extents = (1 + doubled) * rows, parts * k, form.planes, *lengths
    strides = (pitch, 1, plane) if k_major else (1, pitch, plane)
    return _Planes(config, values, records * config.cluster, records, extents,
                   (*strides, *batch_strides), own.spread(row_strides, p), exponents, said, planes,
                   max(operand_span(operand, (rows, k), p.batch), elements))


class _Readings(NamedTuple):
    """How both operands are read, and how many blocks share a multiprocessor."""

    a: SplitOperand
    b: SplitOperand
    resident: int


@lru_cache(maxsize=256)
def _readings(p: GemmProblem, device: DeviceInfo) -> _Readings:
    """How blocks look at rows of A and of B twice, and how many share a multiprocessor; complex
    rows of B are doubled.

    The more share it, the better some load rows while others split them. Fewer have more of the
    shared memory: the part of a row that does not fit there has to be read again. With rows across
    K, which need shared memory in every block, the other operand uses it too.
    """
    most = device.shared_bytes_per_block
    operands = [_accessed(x, rows, p.k, doubled)
                for x, rows, doubled in ((p.a, p.m, False), (p.b, p.n, parts_of(p) == 2))]
    along = all(x.k_major for x in operands)
    for threads, resident in _ALONG if along else _ACROSS:
        limit = (most + _RESERVED) // resident - _RESERVED
        read = partial(_reading, k=p.k, threads=threads, limit=limit, short=along and resident > 1)
        alone = [read(x, rows, clusters=_CLUSTERS)
                 for x, rows in zip(operands, p.shape, strict=True)]
        size = max(x.cluster for x in alone)               # a launch has clusters of one size
        a, b = (found if found.cluster in (1, size) else read(x, rows, clusters=(size,))
                for found, x, rows in zip(alone, operands, p.shape, strict=True))
        if all(x.slots == 0 or p.k * (1 - _AGAIN * x.k_major) <= x.slots * x.tile[1] * x.cluster
               for x in (a, b)):
            break
    return _Readings(a, b, resident)


def _reading(operand: SplitOperand, rows: int, *, k: int, threads: int, limit: int, short: bool,
             clusters: Ints) -> SplitOperand:
    """An operand whose blocks read whole rows well: threads along rows and K, and how much is in
    flight or kept at a time.

    Short rows stay in registers if they may; where they cannot be read as whole runs, they get
    there through shared memory. Others are in shared memory, of which a block has at most ``limit``
    bytes.
    """
    run, item = operand.run, dtype(operand.element).bytes
    operand = replace(operand, unroll=max(1, _NUMBERS // (run * operand.parts)))
    if not operand.k_major:
        return _across(operand, rows, k, threads, limit, clusters)
    along = _power_of_two(threads * operand.unroll * run // k)
    if short and along >= 1:
        along = min(along, _MOST_ROWS)
        return replace(operand, threads=(along, threads // along), slots=int(operand.x.width < run))
    along = min(_MOST_ROWS, max(1, _power_of_two(limit // (item * k))))
    return _kept(replace(operand, threads=(along, threads // along)), k, limit)


def _across(operand: SplitOperand, rows: int, k: int, threads: int, limit: int,
            clusters: Ints) -> SplitOperand:
    """An operand whose rows are across K: as few blocks share them as can keep them, two at least
    if there are few rows."""
    few = rows < _MANY_ROWS
    lanes = _BYTES_ACROSS // (operand.run * dtype(operand.element).bytes) >> few
    for cluster in clusters:
        found = replace(operand, threads=(lanes, threads // lanes), cluster=cluster)
        if k <= found.tile[1] * cluster:
            return replace(found, slots=int(operand.x.width < operand.run))
        found = _kept(found, k, limit)
        if cluster > few and k <= found.slots * found.tile[1] * cluster:
            break
    return found


def _kept(operand: SplitOperand, k: int, limit: int) -> SplitOperand:
    """An operand with as many slots as there are steps, as far as they fit."""
    fixed, step = operand.shared_bytes, replace(operand,
                                                slots=2).shared_bytes - operand.shared_bytes
    # few different kernels
    wanted = 1 << (-(-k // (operand.tile[1] * operand.cluster)) - 1).bit_length()
    return replace(operand, slots=max(2, min((limit - fixed) // (step // 2), wanted)))


def _power_of_two(limit: int) -> int:
    """The largest power of two that is no larger, or 0."""
    return 1 << limit.bit_length() - 1 if limit else 0


def _made(facing: Oriented, device: DeviceInfo, choice: Tiling) -> Made:
    """What computes a product in the format that a caller names, whatever its elements are."""
    problem = facing.original
    form = FORMATS[problem.precision]
    cut = _cut(form, facing.problem, device, _room(problem))
    workspace = Workspace()
    blocks, config = _Splitting(form, device, workspace, facing.roles).in_blocks(
        facing.problem, cut, choice)
    launches = tuple(launch for block in blocks for launch in block)
    return Made(launches, workspace.nbytes,
                f"{_described(form, problem)}; {launches[-1].grid[0]} persistent blocks"
                f"{of_triangle(problem)}{facing.note}{cut.note(facing.problem, 'A and B')}", config)


def _made_guarded(facing: Oriented, device: DeviceInfo, choice: Tiling) -> Made:
    """A product that is never less accurate than native arithmetic: the device itself decides which
    format the elements allow.

    fp16x3 if no row of an operand needs more than a row of the other one offers
    (:data:`~cuteblas.kernels.split.planes.RECORD`); bf16x6 if that fails, where it is faster than
    native arithmetic; native arithmetic if elements of a row lie more than 2^100 apart, and for
    infinities and NaNs. Kernels that are not chosen return at once. Where the planes of a format
    would take too much of the workspace, C is computed in blocks, for each of which the device
    decides.
    """
    problem = facing.original
    room, narrow, broad = _room(problem) - _VERDICT_BYTES, FORMATS["fp16x3"], FORMATS["bf16x6"]
    third = _tiling(facing.problem, device, broad).work.seconds(device) \
        + device.seconds(launches=_THIRD) < SIMT.seconds(problem, device)
    cut = _cut(narrow, facing.problem, device, room)
    workspace = Workspace()
    splitting = _Splitting(narrow, device, workspace, facing.roles, NEXT if third else NATIVE)
    primary, config = splitting.in_blocks(facing.problem, cut, choice)
    parts = []
    for block, launches in zip(cut.of(facing.problem, facing.roles), primary, strict=True):
        fallbacks, part = list[Launch](), block.problem
        if third:
            splitting = _Splitting(broad, device, workspace, facing.roles, gate=NEXT)
            again, _config = splitting.in_blocks(part, _cut(broad, part, device, room))
            fallbacks += (launch for each in again for launch in each)
        native = plan_simt(transposed(part) if facing.swapped else part, device, gate=NATIVE)
        fallbacks += native.within(workspace).launches
        parts.append(Guarded(launches, placed(fallbacks, block.places), workspace.nbytes))
    last = f" (sizes more than 2^{broad.span} apart, infinities, NaNs)" if third else ""
    fallback = otherwise("elements of a row or column differ too much in size", *["bf16x6"] * third,
                         f"fused multiply-adds{last}")
    return Made(*guarded(parts, device, _MOST_BLOCKS),
                f"{_described(narrow, problem)}; {fallback}; {primary[-1][-1].grid[0]} persistent "
                f"blocks{of_triangle(problem)}{facing.note}{cut.note(facing.problem, 'A and B')}",
                config, fallback)


def _room(p: GemmProblem) -> int:
    """The workspace that a product may have if it can be cut so: as many bytes as its operands, and
    a few more."""
    return sum(stored_elements(p)) * p.a.item + _BESIDE


def _cut(form: SplitFormat, p: GemmProblem, device: DeviceInfo, room: int) -> Blocks:
    """The fewest blocks of C whose planes have room. Rows of A are split once for all blocks that
    share them."""
    def fits(part: GemmProblem) -> bool:
        return p.triangle is not None or _Splitting(form, device, Workspace()).nbytes(part) <= room

    return Blocks.fewest(p, _MOST_BLOCKS, fits) or Blocks.cut(p)


def _tiling(p: GemmProblem, device: DeviceInfo, form: SplitFormat) -> Tiling:
    """The fastest tiling by estimate."""
    return least(_tilings(p, device, form), device)


def _named(p: GemmProblem, device: DeviceInfo) -> Iterator[Tiling]:
    """The best tiling in the format that a caller names."""
    yield replace(_tiling(p, device, FORMATS[p.precision]), name=p.precision)


def _guarded(p: GemmProblem, device: DeviceInfo) -> Iterator[Tiling]:
    """Those of fp16x3; of products in blocks the best one alone, which each block chooses again."""
    form = FORMATS["fp16x3"]
    if _cut(form, p, device, _room(p) - _VERDICT_BYTES).count(p) > 1:
        yield replace(_tiling(p, device, form), name="in blocks")
    else:
        yield from _tilings(p, device, form)


def _tilings(p: GemmProblem, device: DeviceInfo, form: SplitFormat) -> Iterator[Tiling]:
    """Whole tiles; or the tiles after whole waves are divided, or these and one more wave, in which
    no tile is cut twice."""
    parts, most, item = parts_of(p), device.multiprocessors, p.a.item
    steps, products = -(-parts * p.k // DEPTH), len(form.main) + len(form.corrections)
    sides = [*zip(stored_elements(p), (parts, parts**2), strict=True)][:1 if _one_operand(p) else 2]
    prepared = sum(elements * (item + 2 * form.planes * numbers) for elements, numbers in sides)
    for tile in _TILES:
        rows, columns = 64 * tile[0], tile[1]
        tiles = tiles_of_c(p, (rows, columns // parts))
        work = Work("tensor cores", "TMA", **on_wgmma(rows, columns, steps, products, form.planes),
                    ahead=STAGES[form.name, *tile] - 1, moved=compulsory_bytes(p),
                    launches=_LAUNCHES, prepared=prepared)
        for divided in divisions(tiles, most):
            if not divided or _FEWEST_STEPS * most <= divided * steps < 2**31:
                of_c = 4 * rows * columns
                counted = persistent(tiles, steps, divided, (of_c, of_c), device)
                yield Choice(tile, 1, p.k, most if divided else min(tiles, most),
                             work._replace(**counted), f"{rows}x{columns}, {divided} divided",
                             divided)


def _described(form: SplitFormat, p: GemmProblem) -> str:
    real = "" if parts_of(p) == 1 else " as a real product with twice the N and K"
    return (
        f"{p.a.dtype} as {form.name} on tensor cores{real}: rows scaled by powers of two and split into {form.planes} planes "
        f"of {form.element}, {len(form.main) + len(form.corrections)} products of planes, sums of {DEPTH} added in float32"
    )


@dataclass(frozen=True)
class _Memory:
    """The contents of the workspace: the planes of both operands, the flags of divided tiles and
    their sums.

    Attributes
    ----------
    a, b : _Planes
        The operands, split.
    resident : int
        Blocks that share a multiprocessor while they split them.
    tiling : Choice
        How the product is cut into tiles.
    flags, sums : Argument, optional
        The parts for divided tiles.
    """

    a: _Planes
    b: _Planes
    resident: int
    tiling: Tiling
    flags: Argument | None = None
    sums: Argument | None = None

    @property
    def flag_words(self) -> int:
        """Flags of divided tiles."""
        return self.tiling.tile[0] * self.tiling.blocks if self.tiling.divided else 0


def _one_operand(p: GemmProblem) -> bool:
    """Whether planes of A are those of B."""
    return p.triangle == "both" and parts_of(p) == 1


@dataclass(frozen=True)
class _Splitting:
    """What splits both operands and multiplies them, for each block of C.

    Attributes
    ----------
    form : SplitFormat
        The planes.
    device : DeviceInfo
        The device to plan for.
    workspace : Workspace
        Where the planes are.
    roles : tuple of str
        The roles of A and B.
    fallback, gate : int, optional
        The verdict that each block leaves on its rows if another algorithm has to compute it; that
        under which all of them run.
    """

    form: SplitFormat
    device: DeviceInfo
    workspace: Workspace
    roles: tuple[Role, Role] = ("a", "b")
    fallback: int | None = None
    gate: int | None = None

    def in_blocks(self, whole: GemmProblem, cut: Blocks,
                  tiling: Tiling | None = None) -> tuple[list[tuple[Launch, ...]],
                                                          GemmSplitConfig]:
        """The launches of each block; the tiling of a single one may be given."""
        tiling = tiling if cut.count(whole) == 1 else None
        found: list[tuple[Launch, ...]] = []
        configs = []
        for block, a, first in cut.by_rows(whole, self.workspace, self._rows, self.roles):
            p, readings = block.problem, _readings(block.problem, self.device)
            own = self._memory(p, a, readings, tiling)
            product, config = self._product(p, own)
            splitter = self._splitter(a if first else a.done(readings.a), own)
            found.append(placed((splitter, product), block.places))
            configs.append(config)
        return found, configs[0]

    def _rows(self, p: GemmProblem) -> _Planes:
        """Take planes of A of the workspace: the first of blocks with these rows splits them."""
        readings = _readings(p, self.device)
        return _split(self.form, p, "A", self.roles[0], readings.a, self.workspace)

    def nbytes(self, p: GemmProblem) -> int:
        """The workspace of a block of C."""
        self._memory(p, self._rows(p), _readings(p, self.device))
        return self.workspace.nbytes

    def _memory(self, p: GemmProblem, a: _Planes, readings: _Readings,
                tiling: Tiling | None = None) -> _Memory:
        """Take planes of B, and flags and sums of divided tiles, of the workspace."""
        b = a.done() if _one_operand(p) else _split(self.form, p, "B", self.roles[1], readings.b,
                                                    self.workspace)
        memory = _Memory(a, b, readings.resident, tiling or _tiling(p, self.device, self.form))
        if not (flags := memory.flag_words):
            return memory
        sums = 4 * 64 * prod(memory.tiling.tile) * memory.tiling.blocks
        return replace(memory, flags=self.workspace.take(4 * flags), sums=self.workspace.take(sums))

    def _splitter(self, a: _Planes, memory: _Memory) -> Launch:
        """The launch that splits both operands and clears the flags of divided tiles."""
        b, flags, recorded = memory.b, memory.flags, self.fallback is not None
        wide = max(a.span, b.span) >= NARROW_SPAN
        config = SplitConfig(self.form.name, a.config, b.config, wide, self.gate, recorded,
                             flags is not None, memory.resident)
        blocks = -(-(a.blocks + b.blocks) // config.cluster) * config.cluster
        values: dict[str, Any] = {"blocks_first": (a if config.sides[0] == "A" else b).blocks,
                                  **gate_values(self.gate)}
        if flags is not None:
            values |= {"flags": flags, "flags_count": memory.flag_words}
        sides = ({f"{name}{side}": value for name, value in planes.values.items() if recorded
                  or name != "S"} for side, planes in (("A", a), ("B", b)))
        return launch(split_planes, config, blocks, values, *sides)

    def _product(self, p: GemmProblem, memory: _Memory) -> tuple[Launch, GemmSplitConfig]:
        """The launch that multiplies planes."""
        a, b, tiling = memory.a, memory.b, memory.tiling
        groups, columns = tiling.tile
        config = specialised(
            GemmSplitConfig, p, pairs_along_n(p, 2 // parts_of(p)), output_span(p),
            format=self.form.name, columns=columns, stages=STAGES[self.form.name, groups, columns],
            k_major_a=a.config.k_major, k_major_b=b.config.k_major, fallback=self.fallback,
            gate=self.gate, staged=staging(p), groups=groups, divided=tiling.divided > 0)
        staged = staged_map(p, config.tile[1]) if config.staged == "tma" else None
        values: dict[str, Any] = {"C": view(p.c, "c", staged), "status": place(VERDICT),
                                  "divided": tiling.divided, "flags": memory.flags,
                                  "sums": memory.sums}
        for name, planes, box in zip("AB", (a, b), config.boxes, strict=True):
            spec: TensorMapSpec = box.map(planes.extents, planes.strides)
            values[name] = View(map=replace(planes.planes, tensor_map=spec))
            values[f"R{name}"] = View(planes.exponents, (1, 0) if name == "A" else (0, 1),
                                      planes.row_strides)
            values |= {f"S{name}": planes.said, f"S{name}_count": planes.records}
        return bind(gemm_split, config, p, tiling.blocks, gate=self.gate, **values), config


SPLIT = Family("gemm_split", why_not_split, _named, _made, _facing, tuple(FORMATS))
GUARDED = replace(SPLIT, why_not=why_not_guarded, tilings=_guarded, made=_made_guarded,
                  precisions=("auto",))
plan_guarded = replace(GUARDED, why_not=why_not_split).plan    # of short sums too
