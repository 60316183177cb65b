"""What kernels share: operand access, order of tiles, transposes in registers, alpha and beta."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import or_
from typing import Any

from .._dtypes import dtype
from ..codegen import (
    CodegenError,
    Element,
    Guard,
    KernelBuilder,
    Pointer,
    TensorParam,
    TiledCopy,
    Value,
    Vector,
    cast,
)
from ..codegen.grouped import PairBuilder, TableBuilder
from ..layout import (
    Layout,
    Tensor,
    domain_offset,
    local_tile,
    make_identity_tensor,
    make_tensor,
    size,
)
from ..layout.symbolic import IntLike, ceil_div, minimum

GROUP, WARP = 128, 32
"""Threads of a warpgroup and of a warp."""

Pair = tuple[int, int]
"""Extents or coordinates along two modes that are known when a kernel is generated."""

DynamicPair = tuple[IntLike, IntLike]

Coord = tuple[IntLike, ...]

ELEMENTS = Vector(1)

Partition = Callable[[Tensor], Tensor]
"""Gives a part of a tensor, whatever its elements are."""

_RASTER_GROUP = 8       # tiles along M that run one after the other before the next column of tiles


def builder(config: Any, threads: int, **options: Any) -> KernelBuilder:
    """What writes a configuration's kernel: its parameters are declared in the same way, be they
    those of one problem, rows of a table (``grouped``) or those of two launches (``paired``)."""
    options["wide"] = config.wide
    if getattr(config, "grouped", False):
        return TableBuilder(config.name, threads, inline=("alpha", "beta"), **options)
    kind = PairBuilder if getattr(config, "paired", False) else KernelBuilder
    return kind(config.name, threads, **options)


@dataclass(frozen=True)
class OperandAccess:
    """How one operand is read or written. ``unit`` is the mode with stride 1: 0 (M of A and C, N
    of B), 1 (K of A and B, N of C) or ``None``; ``width`` is the elements of a vector along it.
    Rows of a ``covering`` operand begin anywhere and are moved by the words of 4 bytes that cover
    them."""

    unit: int | None = None
    width: int = 1
    conj: bool = False
    covering: bool = False

    def __post_init__(self) -> None:
        if self.width != 1 and self.unit is None:
            raise CodegenError(
                f"vectors of {self.width} elements need a mode with stride 1, got {self}"
            )
        if self.covering and (self.unit is None or self.width != 1):
            raise CodegenError(
                f"covering needs a mode with stride 1 and single elements (width 1), got {self}"
            )

    def letter(self, modes: str) -> str:
        """The letter of the mode with stride 1; "s" if there is none."""
        return "s" if self.unit is None else modes[self.unit]
    def check_run(self, run: int) -> None:
        """Refuse vectors of C that are longer than the run along N that a thread has."""
        if self.width > run or (self.width > 1 and self.unit != 1):
            raise CodegenError(
                f"a thread writes vectors of at most {run} elements of C along N, got {self}"
            )


def batch_letters(present_a: tuple[bool, ...], present_b: tuple[bool, ...]) -> str:
    """A letter for each batch mode that says which of A and B has it, for a kernel's name."""
    return "".join("nabc"[a + 2 * b] for a, b in zip(present_a, present_b, strict=True))


PAIRS = OperandAccess(1, 2)
"""The best access to C for warps on tensor cores: a thread holds pairs along N."""


def operand(name: str, modes: str, element: str, access: OperandAccess, *, written: bool = False,
            mapped: bool = False) -> TensorParam:
    """The declaration of an operand of which the stride of one mode is known: 1."""
    strides = tuple(1 if access.unit == i else None for i in range(len(modes)))
    return TensorParam(name, modes, element, strides, access.width, written,
                       f"map{name}" if mapped else "")


def mapped(name: str, modes: str, element: str) -> TensorParam:
    return TensorParam(name, modes, element, map=f"map{name}", addressed=False)


def vectors_along(mode: int, threads: Pair, width: int = 1) -> TiledCopy:
    """The copy in which neighbouring threads move neighbouring vectors along one of two modes."""
    if mode == 0:
        return TiledCopy(Layout(threads), (width, 1))
    return TiledCopy(Layout(threads, (threads[1], 1)), (1, width))


def tile_from(corner: DynamicPair, matrix: Tensor, extents: Pair) -> Tensor:
    return local_tile(domain_offset(corner, matrix), extents, (0, 0))


def part_of_tile(copy: TiledCopy, tile: Coord, at: tuple[Any, ...],
                 thread: IntLike) -> Partition:
    """Gives a thread's part of the tile of a tensor at some coordinates."""
    return lambda tensor: copy.partition(local_tile(tensor, tile, at), thread)


def existing(k: KernelBuilder, name: str, partition: Partition,
             extents: Coord,
             limits: tuple[IntLike | None, ...] | None = None) -> Guard:
    """Which elements of a thread's part of a tensor are within extents, or ``limits``."""
    return Guard(k.pin(name, partition(make_identity_tensor(extents))), limits or extents)


def coordinates(k: KernelBuilder, name: str, copy: TiledCopy, extents: tuple[int, ...]) -> Tensor:
    return k.pin(name, copy.partition(make_identity_tensor(extents), k.thread))


def tile_of_block(
    k: KernelBuilder,
    extents: DynamicPair,
    tile: tuple[int, IntLike],
    batched: bool,
    group: int = 0,
    inner: IntLike = 1
) -> tuple[IntLike, IntLike, IntLike]:
    """Tile coordinates of a block along two modes, and its flat batch index."""
    # The first mode is fastest. With ``group``, strips of that many tiles along it run one after
    # the other, each along all of the second mode; in strips of one tile, ``inner`` batch indices
    # share a strip.
    block = k.each_block("block")
    tiles_0 = k.let("tiles_0", ceil_div(extents[0], tile[0]))
    if not group:
        tile_0, rest = unravel(k, block, tiles_0, ("tile_0", "above" if batched else "tile_1"))
        if not batched:
            return tile_0, rest, 0
        tiles_1 = k.let("tiles_1", ceil_div(extents[1], tile[1]))
        return tile_0, *unravel(k, rest, tiles_1, ("tile_1", "batch"))
    tiles_1 = k.let("tiles_1", ceil_div(extents[1], tile[1]))
    if group == 1:
        tile_1, rest = unravel(k, block, tiles_1, ("tile_1", "above"))
        if not batched:
            return rest, tile_1, 0
        strip = k.let("strip", rest // inner)
        return k.let("tile_0", strip % tiles_0), tile_1, k.let("batch", rest % inner
                                                               + strip // tiles_0 * inner)
    if not batched:
        return *grouped_raster(k, block, tiles_0, tiles_1, group), 0
    tiles = k.let("tiles", tiles_0 * tiles_1)
    return *grouped_raster(k, k.let("tile", block % tiles), tiles_0, tiles_1,
                           group), k.let("batch", block // tiles)


def unravel(k: KernelBuilder, index: IntLike, extent: IntLike,
            names: tuple[str, str] = ("tile", "item"),
            several: bool = True) -> DynamicPair:
    """The place of an index along a mode of this extent, and along the next (``several``)."""
    if not several:
        return index, 0
    return k.let(names[0], index % extent), k.let(names[1], index // extent)


def transpose_words(k: KernelBuilder, source: Tensor, target: Tensor, name: str = "word") -> None:
    """Transpose blocks of words in registers: element ``i`` of word ``j`` becomes element ``j`` of
    word ``i``; mode 0 of both fragments counts the words of a block."""
    packed, *rest = source.extents
    atom = {2: "transpose_b16x2", 4: "transpose_b8x4"}[packed]
    with k.loops(rest) as at:
        word = k.words(name, [source(r, *at) for r in range(packed)])
        k.do(atom, word)
        for r in range(packed):
            k.assign(target(r, *at), word(r))


def cut_words(k: KernelBuilder, source: Tensor, target: Tensor, bits: IntLike) -> None:
    """Words that begin ``bits`` after those of ``source``, which has one more; also in place."""
    with k.each(size(source) - 1) as w:
        k.assign(target(w), k.call("between_words", source(w), source(w + 1), bits))


def split_words(k: KernelBuilder, source: Tensor, target: Tensor) -> None:
    """The elements of a word of 4 bytes, the first from its lowest bits."""
    packed, dt = size(target), target.engine.dtype
    for c in range(packed):
        k.assign(target(c), cast(source(0) >> 8 * dt.bytes * c, dt.name))


def join_words(k: KernelBuilder, source: Tensor, target: Tensor) -> None:
    """A word from its elements, the first in its lowest bits."""
    packed, dt, to = size(source), source.engine.dtype, target.engine.dtype
    shifted = [cast(source(c), to.name) << 8 * dt.bytes * c for c in range(packed)]
    k.assign(target(0), reduce(or_, shifted) if packed > 1 else source(0))


def butterfly(lanes: int, apart: int = 1) -> Iterator[int]:
    """The masks by which lanes, ``apart`` from each other, combine values: nearest first."""
    return (apart << i for i in range(lanes.bit_length() - 1))


def fold_halves(k: KernelBuilder, tiled: TiledCopy, shared: Tensor, along: IntLike,
                fragments: tuple[Tensor, Tensor], by: str = "add", width: int = 1) -> None:
    """Fold threads' values along shared memory's second mode, half onto half, to the first."""
    # ``fragments`` are a thread's values and as many registers more; ``along`` is its place.
    total, part = fragments
    mine, half = k.pin("tRsR", tiled.partition(shared, k.thread)), size(shared, 1)
    k.copy(Vector(width), total, mine)
    while half > 1:
        half //= 2
        k.barrier()
        with k.when(along < half):
            k.copy(Vector(width), tiled.partition(domain_offset((0, half), shared), k.thread), part)
            k.fold(total, part, by)
            if half > 1:
                k.copy(Vector(width), total, mine)


def fold_chains(k: KernelBuilder, sums: Tensor, chains: int) -> None:
    """Fold chains of additions, the last mode of sums, half onto half into the first one."""
    while chains > 1:
        chains //= 2
        for chain in range(chains):
            k.fold(sums[..., chain], sums[..., chain + chains])


def packed_strides(box: tuple[int, ...], order: Sequence[int]) -> dict[int, int]:
    """The strides of modes of a box that follow each other without gaps in this order."""
    return {q: prod(box[x] for x in order[:i]) for i, q in enumerate(order)}


def copy_element(k: KernelBuilder, name: str, source: Element, target: Element) -> None:
    single = k.registers(name, source.dtype.name, 1)
    k.copy(ELEMENTS, source, single)
    k.copy(ELEMENTS, single, target)


def parts_of(element: str) -> int:
    return 2 if dtype(element).is_complex else 1


def numbers_of(x: Value, element: str, *, conj: bool = False) -> list[Value]:
    return [x] if parts_of(element) == 1 else [x.re, -x.im if conj else x.im]


def clear(k: KernelBuilder, words: Pointer, count: IntLike) -> None:
    cleared = make_tensor(words, (1, count))
    nothing = k.registers("nothing", words.dtype.name, 1)
    k.fill(nothing)
    with k.loop("word", count, start=k.thread, step=k.threads) as word:
        k.copy(ELEMENTS, nothing, cleared[None, word])


def grouped_raster(k: KernelBuilder, block: IntLike, tiles_m: IntLike, tiles_n: IntLike,
                   group: int = _RASTER_GROUP) -> DynamicPair:
    """Tile coordinate of a block, in columns of a few tiles that share operands in L2."""
    strip = tiles_n * group
    first = k.let("first_m", block // strip * group)
    height = k.let("height", minimum(tiles_m - first, group))
    within = k.let("within", block % strip)
    return k.let("tile_m", first + within % height), k.let("tile_n", within // height)


def combine(k: KernelBuilder, output: str, accumulator: str, acc: Value, c: Value | None,
            alpha: Value | None, beta: Value | None) -> Value:
    """``alpha * acc + beta * c``, rounded to the output type once."""
    # ``alpha`` and ``beta`` are ``None`` for one, by which an infinite complex number changes;
    # ``c`` is ``None`` if ``beta`` is zero.
    def scaled(x: Value, factor: Value | None, of: str) -> Value:
        return k.call("scale", x, factor, of=of) if factor else k.convert(x, of)

    if c is None:
        return scaled(acc, alpha, output)
    return k.convert(k.call("add", scaled(acc, alpha, accumulator), scaled(c, beta, accumulator)),
                     output)
