"""Plans of float32 and complex64 products on 16-bit tensor cores, of operands in planes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import prod
from typing import Any

from ..._dtypes import dtype
from ...kernels.gemm.persistent import DEPTH
from ...kernels.gemm.split import GemmSplitConfig, gemm_split
from ...kernels.guard import NATIVE, NEXT
from ...kernels.split.planes import FORMATS, SplitConfig, SplitFormat, split_planes
from ..cost.work import Work
from ..floors import compulsory_bytes
from ..guard import VERDICT, Guarded, gate_values, guarded, otherwise, verdict_bytes
from ..operands import (
    MAPPED_STRIDE,
    NARROW_SPAN,
    Facing,
    bind,
    launch,
    of_sides,
    of_triangle,
    oriented,
    output_span,
    pairs_along_n,
    row_pitch,
    sides,
    specialised,
    staged_view,
    staging,
    stored_elements,
    tiles_of_c,
    turned,
    why_not_on_wgmma,
    why_not_types,
)
from ..plan import Launch, Workspace, least, place
from ..problem import DeviceInfo, GemmProblem
from .blocks import MOST_BLOCKS, Blocks
from .family import Choice, Family, Made
from .planes import ROW_MULTIPLE, Planes, readings_of
from .ring import WgmmaTile, divisions
from .simt import SIMT, plan_simt

_BESIDE = 80 << 20             # bytes of workspace beside as many as A and B have
_MOST_PLANE_BYTES = 6  # of all planes of a real number
_VERDICT_BYTES = verdict_bytes(MOST_BLOCKS)
_LAUNCHES = 4          # of a split and a product, and of two that return at once
_THIRD = 160           # launches: what a third algorithm, which costs two of them in every call,
                       # has to win at least
_MOST_BATCH_MODES = 2                # a tensor map has five modes: rows, K, planes and these
TILES = {"fp16x3": (WgmmaTile(2, 128, 3), WgmmaTile(2, 64, 4), WgmmaTile(1, 64, 5)),
         "bf16x6": (WgmmaTile(2, 128, 2), WgmmaTile(2, 64, 2), WgmmaTile(1, 64, 3))}
"""By format; narrow instructions read more of shared memory."""

Tiling = Choice[WgmmaTile]
"""A tile, and how many tiles are divided along K."""

_NARROW = FORMATS["fp16x3"]

LEAST_K = 256
"""The least real products of a sum: with fewer, native arithmetic can be more accurate."""
# In sums of one sign, what tensor cores cut off within a stage counts as much as the rounding of
# some 200 sums.


def why_not_split(p: GemmProblem, device: DeviceInfo) -> str | None:
    if refused := why_not_types(p, "float32", "complex64") or why_not_on_wgmma(p, device,
                                                                               parts_of(p)):
        return refused
    for name, side in zip("AB", sides(p), strict=True):
        pitches = row_pitch(side.rows, ROW_MULTIPLE), row_pitch(p.k, ROW_MULTIPLE)
        elements = prod((*pitches, *side.extents))
        if parts_of(p)**2 * _MOST_PLANE_BYTES * elements >= MAPPED_STRIDE:
            return f"planes of {name} would lie 2^40 bytes apart or more, out of reach of tensor maps"
        if len(side.modes) > _MOST_BATCH_MODES:
            return f"{name} has more than {_MOST_BATCH_MODES} batch modes"
    return None


def why_not_guarded(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why ``gemm_split`` is taken by name alone, or ``None`` if planning may take it."""
    if (refused := why_not_split(p, device)) is None and parts_of(p) * p.k < LEAST_K:
        return f"sums of fewer than {LEAST_K} products are more accurate in native arithmetic"
    return refused


def parts_of(p: GemmProblem) -> int:
    """Real numbers of an element of the operands."""
    return 2 if dtype(p.a.dtype).is_complex else 1


def _facing(p: GemmProblem) -> Facing:
    """The problem with C along its rows; of complex numbers, with the smaller operand as B."""
    # Elements of 8 bytes are written in runs of 32 bytes along N and of 64 along M: whole sectors.
    in_a, in_b = stored_elements(p)
    if parts_of(p) == 1 or in_a == in_b:
        return oriented(p, 1)
    purpose = "the smaller operand is doubled"
    return turned(p, in_a < in_b, purpose)


def _made(p: GemmProblem, device: DeviceInfo, choice: Tiling) -> Made:
    """What computes a product in the format that a caller names."""
    splitting = _Splitting(FORMATS[p.precision], device)
    cut = splitting.cut(p, _room(p))
    blocks, config = splitting.in_blocks(p, cut, choice)
    launches = tuple(chain.from_iterable(blocks))
    return Made(launches, splitting.workspace.nbytes, _reason(p, config, cut, launches),
                config)


def _made_guarded(p: GemmProblem, device: DeviceInfo, choice: Tiling) -> Made:
    """A product never less accurate than native arithmetic: the device decides on the format."""
    # fp16x3 if no row needs more than a row of the other operand offers; else bf16x6, where it is
    # faster than native arithmetic; native if elements of a row lie more than 2^100 apart, and for
    # infinities and NaNs. With too little workspace, C is computed in blocks, and the device
    # decides for each.
    broad = FORMATS["bf16x6"]
    room = _room(p) - _VERDICT_BYTES
    third = _tiling(p, device, broad).work.seconds(device) \
        + device.seconds(launches=_THIRD) < SIMT.seconds(p, device)
    splitting = _Splitting(_NARROW, device, fallback=NEXT if third else NATIVE)
    again = replace(splitting, form=broad, fallback=None, gate=NEXT)
    cut = splitting.cut(p, room)
    primary, config = splitting.in_blocks(p, cut, choice)
    parts = []
    for block, launches in zip(cut.of(p), primary, strict=True):
        part, fallbacks = block.problem, list[Launch]()
        if third:
            fallbacks += chain.from_iterable(again.in_blocks(part, again.cut(part, room))[0])
        native = plan_simt(part, device, gate=NATIVE)
        fallbacks += native.within(splitting.workspace).launches
        parts.append(Guarded(launches, tuple(fallbacks), splitting.workspace.nbytes))
    last = f" (sizes more than 2^{broad.span} apart, infinities, NaNs)" if third else ""
    fallback = otherwise("elements of a row or column differ too much in size", *["bf16x6"] * third,
                         f"fused multiply-adds{last}")
    return Made(*guarded(parts, device, MOST_BLOCKS),
                _reason(p, config, cut, primary[-1], f"; {fallback}"), config, fallback)


def _reason(p: GemmProblem, config: GemmSplitConfig, cut: Blocks, launches: Sequence[Launch],
            fallback: str = "") -> str:
    form = FORMATS[config.format]
    real = "" if parts_of(p) == 1 else " as a real product with twice the N and K"
    return (
        f"{p.a.dtype} as {form.name} on tensor cores{real}: rows scaled by powers of two and split into {form.planes} planes "
        f"of {form.element}, {len(form.main + form.corrections)} products of planes, sums of {DEPTH} "
        f"added in float32{fallback}; {launches[-1].grid[0]} persistent blocks{of_triangle(p)}"
        f"{cut.note(p, 'A and B')}"
    )


def _room(p: GemmProblem) -> int:
    """The workspace that a product may have if it can be cut: about the bytes of its operands."""
    return sum(stored_elements(p)) * p.a.item + _BESIDE


def _tiling(p: GemmProblem, device: DeviceInfo, form: SplitFormat) -> Tiling:
    return least(_tilings(p, device, form), device)


def _named(p: GemmProblem, device: DeviceInfo) -> Iterator[Tiling]:
    yield replace(_tiling(p, device, FORMATS[p.precision]), name=p.precision)


def _guarded(p: GemmProblem, device: DeviceInfo) -> Iterator[Tiling]:
    """Tilings of fp16x3; of products in blocks the best alone, chosen again by each block."""
    if _Splitting(_NARROW, device).cut(p, _room(p) - _VERDICT_BYTES).count(p) > 1:
        yield replace(_tiling(p, device, _NARROW), name="in blocks")
    else:
        yield from _tilings(p, device, _NARROW)


def _tilings(p: GemmProblem, device: DeviceInfo, form: SplitFormat) -> Iterator[Tiling]:
    """Whole tiles, or those after whole waves divided, or a wave more; none is cut twice."""
    parts, item = parts_of(p), p.a.item
    steps, products = -(-parts * p.k // DEPTH), len(form.main + form.corrections)
    sides = [*zip(stored_elements(p), (parts, parts**2), strict=True)][:1 if _one_operand(p) else 2]
    prepared = sum(elements * (item + 2 * form.planes * numbers) for elements, numbers in sides)
    for tile in TILES[form.name]:
        tiles = tiles_of_c(p, (tile.rows, tile.columns // parts))
        for divided in (0, *divisions(tiles, steps, device)):
            counted = tile.counts(tiles, steps, device, divided, products, form.planes)
            work = Work("tensor cores", "TMA", **counted, moved=compulsory_bytes(p),
                        launches=_LAUNCHES, prepared=prepared)
            yield Choice(tile, 1, p.k, int(work.blocks), work,
                         f"{tile.rows}x{tile.columns}, {divided} divided", divided)


def _one_operand(p: GemmProblem) -> bool:
    return p.triangle == "both" and parts_of(p) == 1


@dataclass(frozen=True)
class _Splitting:
    """What splits and multiplies operands for each block of C. Blocks leave the verdict
    ``fallback`` if another algorithm has to compute theirs; all run under the verdict ``gate``."""

    form: SplitFormat
    device: DeviceInfo
    workspace: Workspace = field(default_factory=Workspace)
    fallback: int | None = None
    gate: int | None = None

    def cut(self, p: GemmProblem, room: int) -> Blocks:
        """The fewest blocks of C whose planes have room; blocks share planes of rows of A."""
        def nbytes(part: GemmProblem) -> int:
            alone = replace(self, workspace=Workspace())
            alone._beside(part, alone._planes(0, part), _tiling(part, self.device, self.form))
            return alone.workspace.nbytes

        return Blocks.fewest(p, room, nbytes) or Blocks.cut(p)

    def in_blocks(self, whole: GemmProblem, cut: Blocks, tiling: Tiling | None = None
                  ) -> tuple[list[tuple[Launch, ...]], GemmSplitConfig]:
        """The launches of each block, and the first configuration; ``tiling`` is for one."""
        tiling = tiling if cut.count(whole) == 1 else None
        found, configs = [], []
        for block, a, first in cut.by_rows(whole, self.workspace, partial(self._planes, 0)):
            own = tiling or _tiling(block.problem, self.device, self.form)
            launches, config = self._launches(block.problem, a, first, own)
            found.append(launches)
            configs.append(config)
        return found, configs[0]

    def _planes(self, side: int, p: GemmProblem) -> Planes:
        return Planes.within(self.workspace, self.form, sides(p)[side],
                             readings_of(p, self.device).operands[side])

    def _beside(self, p: GemmProblem, a: Planes, tiling: Tiling) -> tuple[Planes, dict[str, Any]]:
        """Take planes of B of the workspace, and the flags and sums of divided tiles."""
        b = a if _one_operand(p) else self._planes(1, p)
        return b, tiling.tile.shared_sums(tiling.divided, self.device, self.workspace)

    def _launches(self, p: GemmProblem, a: Planes, first: bool,
                  tiling: Tiling) -> tuple[tuple[Launch, ...], GemmSplitConfig]:
        """What splits and what multiplies, beside planes of A that the ``first`` block splits."""
        b, shared = self._beside(p, a, tiling)
        config = specialised(
            GemmSplitConfig, p, pairs_along_n(p, 2 // parts_of(p)), output_span(p),
            format=self.form.name, **vars(tiling.tile), k_major_a=a.config.k_major,
            k_major_b=b.config.k_major, fallback=self.fallback, gate=self.gate, staged=staging(p),
            divided=tiling.divided > 0)
        values: dict[str, Any] = {"C": staged_view(p, config.tile[1]), "status": place(VERDICT)}
        for name, planes, box in zip("AB", (a, b), config.boxes, strict=True):
            values |= planes.multiplied(name, box)
        product = bind(gemm_split, config, p, tiling.blocks, gate=self.gate, **values, **shared)
        own = readings_of(p, self.device)
        a, b = a if first else a.done(own.operands[0]), a.done(a.config) if _one_operand(p) else b
        splitter = self._splitter(a, b, own.resident, shared)
        return (splitter, product), config

    def _splitter(self, a: Planes, b: Planes, resident: int, shared: Mapping[str, Any]) -> Launch:
        """The launch that splits both operands and clears the flags of divided tiles."""
        config = SplitConfig(self.form.name, a.config, b.config, max(a.span, b.span) >= NARROW_SPAN,
                             self.gate, self.fallback is not None, bool(shared), resident)
        blocks = -(-(a.blocks + b.blocks) // config.cluster) * config.cluster
        return launch(split_planes, config, blocks, gate_values(self.gate), shared,
                      of_sides((a.values, b.values)),
                      blocks_first=(a if config.sides[0] == "A" else b).blocks)


SPLIT = Family("gemm_split", why_not_split, _named, _made, _facing, tuple(FORMATS))
GUARDED = replace(SPLIT, why_not=why_not_guarded, tilings=_guarded, made=_made_guarded,
                  precisions=("auto",))
plan_guarded = replace(GUARDED, why_not=why_not_split).plan    # of short sums too
