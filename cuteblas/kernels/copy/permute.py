"""``transpose`` and ``copy``: materialise any permutation of any modes between any two strided layouts.

Both move untyped elements of 1 to 16 bytes. Mode I has the smallest stride in the target, mode J in the source; further modes are
batches.

``copy``
    I and J are the same mode: vectors go straight from one to the other through registers.
``transpose``
    A tile of (J, I) passes through shared memory: rows along J are read, columns along I are written, both as wide vectors.
    Elements smaller than 4 bytes are first transposed in registers in squares that fill a 4-byte word along I, so that shared
    memory holds whole words. The tile is swizzled so that neither side has bank conflicts.
``transpose_in_place``
    Square matrices are transposed in place: a block reads two tiles, each the target of the other, and writes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.paired import PairBuilder
from ...codegen.signature import TensorParam
from ...codegen.tiled import TiledCopy
from ...codegen.values import integer
from ...layout import ComposedLayout, Layout, Swizzle, Tensor, local_tile, make_identity_tensor, make_layout, select, size
from ...layout.symbolic import IntLike, ceil_div, less
from ..common import grouped_raster, tile_of_block, transpose_words

__all__ = ["CopyConfig", "InPlaceConfig", "TransposeConfig", "TransposedTile", "batch_modes", "copy_kernel", "inner_batch",
           "pair_of_block", "transpose_in_place_kernel", "transpose_kernel", "transposed_tile"]

_WORD = 4
_LINE = 128
_VECTOR = 16


@dataclass(frozen=True)
class CopyConfig:
    """What a ``copy`` kernel is specialised on.

    Attributes
    ----------
    word : int
        Bytes of the words that are moved (a vector of elements counts as one word).
    tile : tuple of int
        Words along mode I and along the next mode that a block moves.
    threads : int
        Threads of a block.
    src_unit, dst_unit : bool
        Whether mode I has stride 1 in the source, in the target.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    word: int
    tile: tuple[int, int]
    threads: int = 256
    src_unit: bool = True
    dst_unit: bool = True
    modes: int = 0
    wide: bool = False

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        units = f"{'u' if self.src_unit else 's'}{'u' if self.dst_unit else 's'}"
        return (f"copy_b{8 * self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_{units}"
                f"_m{self.modes}{'_wide' if self.wide else ''}")


@dataclass(frozen=True)
class TransposeConfig:
    """What a ``transpose`` kernel is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element.
    word : int
        Bytes of a word of shared memory: ``item``, or 4 when smaller elements are packed along I in registers.
    load, store : int
        Bytes of a vector that a thread reads along J, writes along I.
    tile : tuple of int
        Elements along J and I that a block transposes.
    threads : int
        Threads of a block.
    src_unit, dst_unit : bool
        Whether J has stride 1 in the source, I in the target.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    group : int
        Tiles along J that run together before the next along I; 0 for all of them.
    inner : int
        In strips of one tile, batch modes of which all indices have a strip before the next strip begins.
    min_blocks : int
        Blocks of which a multiprocessor has to hold the registers. Where 1, the compiler may put off reads to save registers.
    paired : bool
        Whether it makes two copies (:class:`~cuteblas.codegen.paired.PairBuilder`).
    """

    item: int
    word: int
    load: int
    store: int
    tile: tuple[int, int]
    threads: int = 256
    src_unit: bool = True
    dst_unit: bool = True
    modes: int = 0
    wide: bool = False
    group: int = 0
    inner: int = 0
    min_blocks: int = 1
    paired: bool = False

    def __post_init__(self) -> None:
        if self.word % self.item or self.load % self.word or self.store % self.word:
            raise CodegenError(f"a word is a multiple of an element and vectors are multiples of a word, got {self}")
        if self.inner > (self.modes if self.group == 1 else 0):
            raise CodegenError(f"batch modes share strips of one tile, got {self}")

    @property
    def packed(self) -> int:
        """Elements along I in one word."""
        return self.word // self.item

    @property
    def rows(self) -> int:
        """Rows of the source that a block reads."""
        return self.tile[1]

    @property
    def shared(self) -> ComposedLayout:
        """The tile in shared memory: (j, i) in words -> word, i counting words along I."""
        along_j, along_i = self.tile[0], self.rows // self.packed
        return ComposedLayout(_swizzle(self), 0, Layout((along_j, along_i), (1, along_j)))

    @property
    def elements(self) -> ComposedLayout:
        """The tile in shared memory by elements: (j, i) -> element."""
        words, per_word = self.shared, self.packed
        swizzle, shift = words.swizzle, per_word.bit_length() - 1
        along_j, along_i = self.tile[0], self.rows // per_word
        return ComposedLayout(Swizzle(swizzle.bits, swizzle.base + shift, swizzle.shift), 0,
                              Layout((along_j, (per_word, along_i)), (per_word, (1, along_j * per_word))))

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        units = f"{'u' if self.src_unit else 's'}{'u' if self.dst_unit else 's'}"
        return (f"transpose_b{8 * self.item}_w{self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_l{self.load}_s{self.store}"
                f"_{units}_m{self.modes}{f'_g{self.group}' if self.group else ''}"
                f"{f'_n{self.inner}' if self.inner else ''}"
                f"{f'_x{self.min_blocks}' if self.min_blocks > 1 else ''}{'_wide' if self.wide else ''}"
                f"{'_paired' if self.paired else ''}")


def batch_modes(k: KernelBuilder, modes: int, vector_s: int = 1, vector_d: int = 1) -> tuple[tuple, tuple, tuple]:
    """Extents, source strides and target strides of the batch modes; strides are multiples of the vectors."""
    extents = tuple(k.integer(f"L{i}") for i in range(modes))
    source, target = (tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=vector) for i in range(modes))
                      for name, vector in (("S", vector_s), ("D", vector_d)))
    return extents, source, target


def inner_batch(k: KernelBuilder, config: TransposeConfig, batch: tuple[IntLike, ...]) -> IntLike:
    """How many indices of the batch have a strip of tiles before the next strip begins."""
    return k.let("inner", size(batch[:config.inner])) if config.inner else 1


@cache
def copy_kernel(config: CopyConfig) -> GeneratedKernel:
    """Generate a ``copy`` kernel: ``D[i, j, batch] = S[i, j, batch]`` on words, in which extents and strides are counted."""
    word = f"b{8 * config.word}"
    along = min(config.tile[0], config.threads)
    tiled = TiledCopy(Layout((along, config.threads // along)), (1, 1))
    if config.tile[0] % tiled.tile[0] or config.tile[1] % tiled.tile[1]:
        raise CodegenError(f"{config.name}: the tile does not divide into {tiled.tile}")
    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary=f"D[i, j, batch] = S[i, j, batch] in words of {config.word} bytes, tile {config.tile}")
    S, D = k.tensors(TensorParam("S", "ij", word, (1 if config.src_unit else None, None)),
                     TensorParam("D", "ij", word, (1 if config.dst_unit else None, None), written=True),
                     modes="ij", batch=config.modes)
    extents = k.extent("i"), k.extent("j")
    bi, bj, index = tile_of_block(k, extents, config.tile, config.modes > 0)

    gS, gD = (local_tile(x.at(index), config.tile, (bi, bj)) for x in (S, D))
    cS = local_tile(make_identity_tensor(extents), config.tile, (bi, bj))
    tSgS, tSgD = k.pin("tSgS", tiled.partition(gS, k.thread)), k.pin("tSgD", tiled.partition(gD, k.thread))
    guard = Guard(k.pin("tScS", tiled.partition(cS, k.thread)), extents)
    rest = tuple(t // p for t, p in zip(config.tile, tiled.tile, strict=True))
    tSrS = k.registers("tSrS", word, Layout((1, *rest)))
    k.copy(Vector(1), tSgS, tSrS, guard=guard)
    k.copy(Vector(1), tSrS, tSgD, guard=guard)
    return k.build()


@cache
def transpose_kernel(config: TransposeConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel: ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S and I in D.

    Extents are counted in elements, strides in words.
    """
    k, tile = transposed_tile(config, "D[j, i, batch] = S[j, i, batch], J contiguous in S and I in D")
    word, per_word = tile.word, config.packed
    along_j, along_i = 1 if config.src_unit else None, 1 if config.dst_unit else None
    S, D = k.tensors(TensorParam("S", "ji", word, (along_j, None), tile.vl),
                     TensorParam("D", "ji", word, (None, along_i), tile.vs, written=True),
                     modes="ji", batch=config.modes, multiples={"j": tile.vl * per_word, "i": tile.vs * per_word})
    J, I = k.extent("j"), k.extent("i")
    bj, bi, index = tile_of_block(k, (J, I), config.tile, config.modes > 0, config.group, inner_batch(k, config, S.batch))

    source, target = (J // per_word, I), (J, I // per_word)                     # extents in words
    sT = k.shared("sT", word, config.shared)
    k.comment("Rows in: (words along j x rows, rest)")
    fragment = tile.rows_in(k, S.at(index, source), (bj, bi), source)
    k.comment("Words along i into shared memory")
    tile.staged(k, fragment, sT)
    k.barrier()
    k.comment("Columns out")
    tile.columns_out(k, sT, D.at(index, target), (bj, bi))
    return k.build()


@dataclass(frozen=True)
class InPlaceConfig(TransposeConfig):
    """What a ``transpose_in_place`` kernel is specialised on. The tile is square, and what is J in one tile is I in the other.

    Strips of :attr:`group` columns of pairs run one after the other; 0 for rows of pairs.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tile[0] != self.tile[1] or self.src_unit != self.dst_unit:
            raise CodegenError(f"matrices are transposed in place in square tiles of one layout, got {self}")

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return super().name.replace("transpose", "transpose_in_place", 1)


@cache
def transpose_in_place_kernel(config: InPlaceConfig) -> GeneratedKernel:
    """Generate a ``transpose_in_place`` kernel: the element (j, i) of every matrix of a batch changes places with (i, j).

    A block has two tiles, (p, q) and (q, p) with p <= q, which no other block reads or writes. Both are in shared memory before
    either is written; on the diagonal they are one.

    The extent N of both modes is counted in elements, strides in words. There is one block for each pair of tiles.
    """
    k, tile = transposed_tile(config, "D[j, i, batch] = D[i, j, batch] in place, for square matrices")
    word, per_word, vector = tile.word, config.packed, max(tile.vl, tile.vs)
    (D,) = k.tensors(TensorParam("D", "ji", word, (1 if config.src_unit else None, None), vector, written=True),
                     modes="N", batch=config.modes, multiples={"N": vector * per_word})
    N = k.extent("N")
    source = N // per_word, N                                                   # extents in words

    p, q, index = pair_of_block(k, N, config, config.modes > 0)
    read = D.at(index, source)
    written = read.map_domain(lambda layout: make_layout(layout[1], layout[0]))
    sT, sU = k.shared("sT", word, config.shared), k.shared("sU", word, config.shared)
    k.comment("Rows of both tiles in; on the diagonal the second has none")
    other = k.let("other", N * k.flag("two", integer(p) < q))
    rows_t = tile.rows_in(k, read, (q, p), source)
    rows_u = tile.rows_in(k, read, (p, q), (other // per_word, other), "U")
    k.comment("Words along i into shared memory")
    tile.staged(k, rows_t, sT)
    tile.staged(k, rows_u, sU, "U")
    k.barrier()
    k.comment("Columns out, each tile to the place of the other")
    tile.columns_out(k, sT, written, (q, p))
    with k.when(less(p, q)):
        tile.columns_out(k, sU, written, (p, q), "U")
    return k.build()


def pair_of_block(k: KernelBuilder, extent: IntLike, config: InPlaceConfig, batched: bool) -> tuple[IntLike, IntLike, IntLike]:
    """The pair (p, q), p <= q, of tiles of a square matrix that a block exchanges, and its flat batch index.

    Pairs of t tiles fill a rectangle of t | 1 columns: the rows p of the triangle from its top, filled up with those from its end.
    """
    block, tiles = k.block_index("block", "x"), k.let("tiles", ceil_div(extent, config.tile[0]))
    odd = k.let("odd", tiles % 2)
    columns = k.let("columns", tiles + 1 - odd)
    rows = k.let("rows", (tiles + odd) // 2)
    if config.group:
        pairs = k.let("pairs", columns * rows)
        pair, index = (k.let("pair", block % pairs), k.let("batch", block // pairs)) if batched else (block, 0)
        column, row = grouped_raster(k, pair, columns, rows, config.group)
    else:
        column, above = k.let("column", block % columns), k.let("above", block // columns)
        row, index = (k.let("row", above % rows), k.let("batch", above // rows)) if batched else (above, 0)
    p, q = k.variable("p", tiles - 1 + odd - row), k.variable("q", tiles - 1 - column)
    with k.when(less(row + (-odd), column)):
        k.assign(p, row)
        k.assign(q, column - 1 + odd)
    return p, q, index


def transposed_tile(config: TransposeConfig, what: str) -> tuple[KernelBuilder, TransposedTile]:
    """The builder of a kernel that transposes tiles, and how its threads do it."""
    tile = TransposedTile(config)
    builder = PairBuilder if config.paired else KernelBuilder
    k = builder(config.name, config.threads, wide=config.wide, min_blocks=config.min_blocks,
                summary=f"{what}: elements of {config.item} bytes, tile (J, I) = {config.tile}\n"
                        f"threads read {tile.reader.tv} of {tile.reader.tile} words, write {tile.writer.tv} of "
                        f"{tile.writer.tile} words")
    return k, tile


class TransposedTile:
    """How the threads of a block transpose a tile through shared memory.

    Rows of words along J come in: each thread reads as many rows as a word has elements, of ``vl`` words each. In shared memory,
    word (j, i') holds elements (j, packed * i' ...); the same threads write what they transposed. Columns along I go out: the lanes
    of a warp fill whole lines.
    """

    def __init__(self, config: TransposeConfig) -> None:
        packed, (tj, ti) = config.packed, config.tile
        self.word, self.packed = f"b{8 * config.word}", packed
        self.vl, self.vs = config.load // config.word, config.store // config.word           # words of a vector
        lanes_j = tj // packed // self.vl
        self.reader = TiledCopy(Layout((lanes_j, config.threads // lanes_j)), (self.vl, packed))
        self.stager = TiledCopy(self.reader.threads, (self.vl * packed, 1))
        lanes_i = _lanes_along_i(config)
        warps_i = min(ti // packed // self.vs // lanes_i, config.threads // 32)
        lanes = 32 // lanes_i
        warps_j = config.threads // 32 // warps_i
        self.writer = TiledCopy(Layout(((lanes, warps_j), (lanes_i, warps_i)), ((lanes_i, 32 * warps_i), (1, 32))), (1, self.vs))
        self.read, self.written = (tj // packed, config.rows), (tj, ti // packed)            # the tile in words
        for what, extents, by in (("read", self.read, self.reader.tile), ("written", self.written, self.writer.tile)):
            if any(e % b for e, b in zip(extents, by, strict=True)):
                raise CodegenError(f"{config.name}: the tile {extents} does not divide into {by} words {what} by all threads")

    def rows_in(self, k: KernelBuilder, source: Tensor, at: tuple[IntLike, IntLike], extents: tuple[IntLike, IntLike],
                name: str = "T") -> Tensor:
        """Read what exists of a tile of ``source`` (words along J, I) to registers: ((words, packed), rest...)."""
        gS, cS = (local_tile(x, self.read, at) for x in (source, make_identity_tensor(extents)))
        tSgS = k.pin(f"tSg{name}", self.reader.partition(gS, k.thread))
        guard = Guard(k.pin(f"tSc{name}", self.reader.partition(cS, k.thread)), extents)
        rest = tuple(t // p for t, p in zip(self.read, self.reader.tile, strict=True))
        fragment = k.registers(f"tSr{name}", self.word, Layout(((self.vl, self.packed), *rest)))
        k.copy(Vector(self.vl), tSgS, fragment, guard=guard)
        return fragment

    def staged(self, k: KernelBuilder, fragment: Tensor, shared: Tensor, name: str = "T") -> None:
        """Write the words along I of a tile in registers to shared memory."""
        rest = tuple(t // p for t, p in zip(self.read, self.reader.tile, strict=True))
        tSsT = k.pin(f"tSs{name}", self.stager.partition(shared, k.thread))
        turned = fragment
        if self.packed > 1:
            turned = k.registers(f"tSw{name}", self.word, Layout((self.vl * self.packed, *rest)))
            rows = select(Layout((self.vl, self.packed, *rest)), 1, 0, 2, 3)
            transpose_words(k, Tensor(fragment.engine, rows), Tensor(turned.engine, Layout((self.packed, self.vl, *rest))))
        swizzle = shared.layout.swizzle
        k.copy(Vector(min(self.vl * self.packed, 1 << swizzle.base, _VECTOR // shared.engine.dtype.bytes)), turned, tSsT)

    def columns_out(self, k: KernelBuilder, shared: Tensor, target: Tensor, at: tuple[IntLike, IntLike], name: str = "T") -> None:
        """Write a tile in shared memory to a tile of ``target`` (J, words along I)."""
        extents = target.layout.shape
        gD, cD = (local_tile(x, self.written, at) for x in (target, make_identity_tensor(extents)))
        tDsT = k.pin(f"tDs{name}", self.writer.partition(shared, k.thread))
        tDgD = k.pin(f"tDg{name}", self.writer.partition(gD, k.thread))
        guard = Guard(k.pin(f"tDc{name}", self.writer.partition(cD, k.thread)), extents)
        rest = tuple(t // p for t, p in zip(self.written, self.writer.tile, strict=True))
        fragment = k.registers(f"tDr{name}", self.word, Layout(((1, self.vs), *rest)))
        k.copy(Vector(1), tDsT, fragment)
        k.copy(Vector(self.vs), fragment, tDgD, guard=guard)


def _lanes_along_i(config: TransposeConfig) -> int:
    """Lanes of a warp that write to one row of the target."""
    return min(_LINE // config.store, config.tile[1] * config.item // config.store, 32)


def _swizzle(config: TransposeConfig) -> Swizzle:
    """The swizzle of the tile: vectors along J are permuted by the position along I.

    A row of 128 bytes has ``128 / chunk`` chunks, where a chunk is the vector that a thread writes (at least one bank). Lanes that
    read a column step by ``store / word`` words along I; exclusive or with that step's low bits sends them to different chunks.
    """
    lanes = _lanes_along_i(config)
    chunk = max(config.store, _WORD)
    step = (config.store // config.word).bit_length() - 1
    if lanes * chunk < _LINE:
        # Few rows: lanes that are served together are on several columns, and each row of theirs has banks of its own.
        base = max(_LINE // max(config.word, _WORD) // lanes, config.load // config.word).bit_length() - 1
        return Swizzle(lanes.bit_length() - 1, base, config.tile[0].bit_length() - 1 + step - base)
    base = (chunk // config.word).bit_length() - 1
    bits = (_LINE // chunk).bit_length() - 1
    return Swizzle(bits, base, config.tile[0].bit_length() - 1 + step - base)
