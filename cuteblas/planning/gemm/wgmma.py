"""Plans on Hopper's tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from ..._dtypes import dtype
from ...kernels.common import GROUP
from ...kernels.gemm.digits import MOST_PARKED, ParkedSums
from ...kernels.gemm.divided import clear_words
from ...kernels.gemm.persistent import DEPTH, depth_of
from ...kernels.gemm.staged import StagedC
from ...kernels.gemm.wgmma import WgmmaConfig, gemm_wgmma
from ..cost.work import Work, added
from ..floors import compulsory_bytes
from ..operands import (
    NARROW_SPAN,
    bind,
    launch,
    majorness,
    of_triangle,
    operand_map,
    output_span,
    pairs_along_n,
    specialised,
    staged_view,
    staging,
    view,
    why_not_mapped,
    why_not_on_wgmma,
    why_not_staged,
)
from ..plan import Plan, Workspace
from ..problem import DeviceInfo, GemmProblem, Operand, Pair, transposed
from .family import (
    MIN_SLICE,
    NATIVE_PRECISIONS,
    Choice,
    Family,
    Made,
    most_workspace,
    reduction,
    sliced,
    workspace_bytes,
)
from .ring import WgmmaTile, divisions


def why_not_wgmma(p: GemmProblem, device: DeviceInfo) -> str | None:
    if p.precision == "tf32" and {p.a.dtype, p.b.dtype} != {"float32"}:
        return f"precision='tf32' multiplies float32 by float32, not {p.a.dtype} by {p.b.dtype}"
    exact = is_exact(p)
    if not exact and p.precision != "tf32" and (not dtype(p.a.dtype).is_stored
                                                or p.b.dtype != p.a.dtype):
        return f"it multiplies float16 by float16 or bfloat16 by bfloat16, not {p.a.dtype} by {p.b.dtype}"
    if exact and (refused := _why_not_bytes(p)):
        return refused
    if not exact and p.accumulator != "float32":
        return f"wgmma sums {p.a.dtype} in float32, not in {p.accumulator}"
    if p.precision == "ieee" and not exact:
        return "precision='ieee' rounds every float32 sum, but tensor cores truncate within a step"
    return why_not_on_wgmma(p, device) or why_not_read(p, "A") or why_not_read(p, "B")


def is_exact(p: GemmProblem) -> bool:
    """Whether operands are integers or bool, which are multiplied exactly."""
    return p.precision != "tf32" and dtype(p.a.dtype).kind in "iub"


def _why_not_bytes(p: GemmProblem) -> str | None:
    if p.b.dtype != p.a.dtype:
        return f"it multiplies integers of one type, not {p.a.dtype} by {p.b.dtype}"
    sums = dtype(p.accumulator)
    if sums.kind not in "iub" or (sums.bytes > _BYTES_OF_SUMS and p.digits
                                  * p.a.item < sums.bytes):
        return f"wgmma sums bytes in int32, not in {p.accumulator}"
    if max(p.a.item, p.digits) > 1 and len(p.batch) > _MOST_BATCH_MODES - 1:
        return f"planes of digits have at most {_MOST_BATCH_MODES - 1} batch modes"
    return None


def why_not_read(p: GemmProblem, name: str) -> str | None:
    operand, extents = p.inputs["AB".index(name)]
    exact = is_exact(p)
    if exact and operand.item > 1:
        return f"wgmma multiplies bytes, but {name} is {operand.dtype}"
    if (p.precision == "tf32" or exact) and majorness(operand, extents) == 0:
        read = "bytes" if exact else "32-bit elements"
        return f"wgmma reads {read} along K, but {name} is contiguous along {'M' if name == 'A' else 'N'}"
    return why_not_mapped(name, operand, extents)


def _element(p: GemmProblem) -> str:
    """The type that tensor cores read the operands as."""
    if is_exact(p):
        return "int8" if p.a.dtype == "int8" else "uint8"
    return "tfloat32" if p.precision == "tf32" else p.a.dtype


def _products(p: GemmProblem) -> int:
    """Products of matrices of bytes, or of the operands themselves."""
    return p.digits * (p.digits + 1) // 2


_PAIR = 2                # blocks that share a tile of B, which is the wider one

TILES = (WgmmaTile(2, 320, 3), WgmmaTile(3, 224, 3), WgmmaTile(3, 192, 3), WgmmaTile(2, 256, 4),
         WgmmaTile(2, 224, 4), WgmmaTile(2, 192, 4), WgmmaTile(3, 96, 5), WgmmaTile(2, 128, 6),
         WgmmaTile(1, 192, 6), WgmmaTile(1, 128, 8), WgmmaTile(2, 64, 8), WgmmaTile(1, 64, 8))

PAIRS = tuple(replace(tile, cluster=_PAIR) for tile in TILES if tile.columns >= 128)
"""Tiles of pairs of blocks, which ask less of L2."""

_SPARING = WgmmaTile(2, 256, 4, _PAIR)

TILES_OF_TWO_WORDS = tuple(tile for tile in TILES if tile.groups < 3 and tile.columns <= 128)
"""For 64-bit integers and a K for which their sums take three registers each."""

_PAIRED_WAVES = 3      # from which on pairs are worth it where L2 delivers enough: they save energy
_SECTOR = 32           # bytes
_FLAT = 3              # times as wide as high
_MULTIPLIED = 32       # of a tile's elements, a stage deep, in a clock of the tensor cores
_BYTES_OF_SUMS = 4
_LINE, _BARRIER_BYTES = 128, 1024    # of shared memory: a row in a stage, and all barriers
_MOST_BATCH_MODES = 3                # a tensor map has five modes


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[WgmmaTile]]:
    """What there is to choose among: blocks have whole tiles, of all of K or of slices, or divide
    some."""
    whole = [1, *_slices(p, device)]
    for tile in _tiles(p, device):
        for slices in whole:
            yield _tiling(p, device, tile, slices)
        for divided in _divisions(p, device, tile):
            yield _tiling(p, device, tile, 1, divided)


def _tiles(p: GemmProblem, device: DeviceInfo) -> list[WgmmaTile]:
    """The tiles that fit; of a triangle, those of which two at most are a square."""
    tiles = [*TILES]
    if p.digits > _BYTES_OF_SUMS and p.k > MOST_PARKED:
        tiles = [*TILES_OF_TWO_WORDS]
    elif _across_sectors(p):             # there, L2 is slower, and flat tiles read too much of it
        tiles = [tile for tile in (*TILES, *PAIRS)
                 if tile.columns < _FLAT * tile.rows and not _narrow(p, tile)]
    elif p.precision != "tf32" and not is_exact(p):
        # Pairs of tf32 save too little energy, and with bytes they are slower.
        fewest = _PAIRED_WAVES * device.multiprocessors // _PAIR
        tiles += [_SPARING] * (_SPARING.clusters(p) >= fewest)
    return [tile for tile in tiles if not p.triangle or max(tile.extents) % min(tile.extents) == 0]


def _tiling(p: GemmProblem, device: DeviceInfo, tile: WgmmaTile, slices: int = 1,
            divided: int = 0) -> Choice[WgmmaTile]:
    """A tiling and what it does."""
    chunk, sums = p.k // slices, max(_BYTES_OF_SUMS, p.sum_bytes)
    steps = -(-chunk // depth_of(_element(p))) * _products(p)
    counted = tile.counts(tile.clusters(p) * slices, steps, device, divided,
                          item=sums if slices > 1 else max(_BYTES_OF_SUMS, p.c.item))
    counted["lines"] = 2 * steps * sum(
        extent * (1 + _begins_inside(*x))
        for x, extent in zip(p.inputs, (tile.rows, tile.columns / tile.cluster), strict=True))
    work = Work("tensor cores, bytes" if is_exact(p) else "tensor cores", "TMA",
                "words" if p.digits > _BYTES_OF_SUMS else "vectors" if slices > 1
                or why_not_staged(p) is None else "elements", **counted, moved=compulsory_bytes(p),
                **added(slices, p.outputs * sums, 1 + (divided > 0)))
    how = f"{divided} divided" if divided else f"{slices} slices"
    return Choice(tile, slices, chunk, int(work.blocks), work,
                  f"{tile.rows}x{tile.columns}{' in pairs' * (tile.cluster > 1)}, {how}", divided)


def _narrow(p: GemmProblem, tile: WgmmaTile) -> bool:
    """Whether B is loaded in lines below 128 bytes: more TMA boxes of the same time each."""
    return tile.columns % DEPTH > 0 and majorness(*p.inputs[1]) == 0


def _across_sectors(p: GemmProblem) -> bool:
    return any(p.map_inputs(_begins_inside))


def _begins_inside(x: Operand, extents: Pair) -> bool:
    """Whether rows begin inside of sectors, so that TMA asks for each of its lines twice."""
    other = 1 - (majorness(x, extents) or 0)
    return extents[other] > 1 and x.strides[other] * x.item % _SECTOR > 0


def _slices(p: GemmProblem, device: DeviceInfo) -> Iterator[int]:
    """In how many slices of whole stages K may be."""
    slices, depth = 2, depth_of(_element(p))
    if p.triangle or len(p.batch) >= _MOST_BATCH_MODES - (p.digits > 1):
        return
    most = min(p.k // MIN_SLICE, most_workspace(device) // workspace_bytes(p, 1))
    while slices <= most and p.k % (slices * depth) == 0:
        yield slices
        slices *= 2


def _divisions(p: GemmProblem, device: DeviceInfo, tile: WgmmaTile) -> list[int]:
    """How many tiles may be divided: what whole waves leave, or a wave more; none is cut twice."""
    # Blocks of clusters share no sums; where rows begin inside of sectors, blocks that begin in
    # different places are slow. A B in narrow lines has more boxes than a thread that divides
    # tiles has registers for.
    tiles, depth = tile.clusters(p), -(-p.k // depth_of(_element(p)))
    apart = tiles > device.multiprocessors and _across_sectors(p)
    far = max(tiles * depth, output_span(p)) >= NARROW_SPAN
    if tile.cluster > 1 or p.digits > 1 or apart or far or _narrow(p, tile) \
            or sum(tile.shared_bytes(device)) > most_workspace(device):
        return []
    return divisions(tiles, depth, device)


def _clipped(p: GemmProblem, config: WgmmaConfig) -> bool:
    """Whether whole TMA boxes are outside of A or B, and stages wait for TMA (2 clocks a line)."""
    short = replace(config, clipped=True).boxes
    beyond = any(
        -extent % size >= box.rows
        for extent, size, box in zip(p.shape, config.mma.tile, short, strict=True)
    )
    return beyond and 2 * sum(box.nbytes // box.swizzle
                              for box in short) >= prod(config.mma.tile) // _MULTIPLIED


def _numbers(p: GemmProblem) -> str:
    """What is multiplied, and how it is summed, in words."""
    if p.digits > 1:
        return (
            f"integers of {p.digits} bytes, exactly, on tensor cores: {p.digits} planes of bytes, {_products(p)} products of "
            "planes in one sum"
        )
    if is_exact(p):
        return f"{p.a.dtype} on tensor cores, sums exact in int32, modulo 2^32"
    numbers_are = p.a.dtype if p.precision != "tf32" else f"{p.a.dtype}, rounded to tfloat32 by TMA,"
    return f"{numbers_are} on tensor cores, float32 accumulation"


def _made(p: GemmProblem, device: DeviceInfo, choice: Choice[WgmmaTile]) -> Made:
    workspace = Workspace()
    if choice.slices == 1:
        return _product(p, device, choice, workspace)
    workspace.take(workspace_bytes(p, choice.slices))
    made = _product(replace(sliced(p, choice.slices, choice.chunk, 1), k=choice.chunk), device,
                    choice, workspace)
    return made._replace(launches=(*made.launches, reduction(transposed(p), choice)),
                         reason=f"{made.reason};{choice.in_slices.removeprefix(',')}")


WGMMA = Family("gemm_wgmma", why_not_wgmma, _tilings, _made,
               precisions=(*NATIVE_PRECISIONS, "tf32"))


def plan_wgmma(problem: GemmProblem, device: DeviceInfo, tile: WgmmaTile | None = None,
               divided: int = 0) -> Plan:
    """The plan on ``gemm_wgmma``; ``tile`` overrules the choice, with ``divided`` tiles."""
    choice = None if tile is None else Choice(tile, 1, problem.k, 0, divided=divided)
    return WGMMA.plan(problem, device, choice)


def _product(p: GemmProblem, device: DeviceInfo, choice: Choice[WgmmaTile],
             workspace: Workspace) -> Made:
    tile = choice.tile
    major_a, major_b = (majorness(*x) == 1 for x in p.inputs)
    unstaged = why_not_staged(p)
    config = specialised(
        WgmmaConfig, p, pairs_along_n(p), output_span(p), element=_element(p), **vars(tile),
        k_major_a=major_a, k_major_b=major_b, staged=staging(p), divided=choice.divided > 0,
        digits=p.digits, parked=p.digits > _BYTES_OF_SUMS and p.k <= MOST_PARKED)
    # C takes twice as much in float32
    room = device.shared_bytes_per_block - _BARRIER_BYTES - (
        2 * tile.groups * StagedC.box_of(p.c.dtype, tile.columns).nbytes if config.staged else 0)
    tile = replace(tile, stages=max(1, min(tile.stages, room // (_LINE * sum(config.mma.tile)))))
    config = replace(config, clipped=_clipped(p, config), stages=tile.stages)
    clusters, memory = tile.clusters(p), tile.shared_sums(choice.divided, device, workspace)
    blocks = tile.blocks(clusters, device, choice.divided)
    values: dict[str, Any] = {"C": staged_view(p, config.columns), **memory}
    for name, box, x in zip("AB", config.boxes, p.inputs, strict=True):
        values[name] = view(x[0], name.lower(), operand_map(box, *x, p.batch, p.digits))
    if config.parked:
        values["parked"] = workspace.take(ParkedSums.nbytes(GROUP * tile.groups, tile.columns,
                                                            p.digits, blocks))
    launches, divided = [bind(gemm_wgmma, config, p, blocks, **values)], ""
    if memory:
        launches.insert(0, launch(lambda _: clear_words(), None, 1, words=memory["flags"],
                                  count=memory["flags_count"]))
        divided = f", {choice.divided} of them divided along K between all blocks"
    described = tile.described(depth_of(config.element))
    reason = (
        f"{_numbers(p)}; {described}: {clusters * tile.cluster} tiles on "
        f"{device.multiprocessors} multiprocessors{divided}; C is written "
        + ("by TMA" if unstaged is None else f"by threads: {unstaged}")
        + of_triangle(p)
    )
    return Made(tuple(launches), workspace.nbytes, reason, config)
