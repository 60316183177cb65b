"""``transpose``: two modes change places, a tile at a time through shared memory.

J has the smallest stride in the source, I in the target; small elements are packed along I into
words of 4 bytes. Where rows of the target begin anywhere, tiles are cut at sectors, elsewhere in
every row: a block reads as many rows before its tile as a sector has elements. In place, pairs of
exact squares change places, and what is outside of whole sectors is written one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ...codegen import (
    CodegenError,
    GeneratedKernel,
    GlobalTensor,
    Guard,
    KernelBuilder,
    TensorParam,
    TiledCopy,
    Vector,
    integer,
)
from ...codegen.engine import Lines
from ...layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    make_identity_tensor,
    make_layout,
    make_tensor,
    select,
    size,
)
from ...layout.symbolic import Condition, IntLike, all_of, ceil_div, maximum, minimum
from ..common import (
    ELEMENTS,
    DynamicPair,
    Pair,
    builder,
    coordinates,
    copy_element,
    cut_words,
    existing,
    grouped_raster,
    tile_from,
    tile_of_block,
    transpose_words,
    unravel,
    vectors_along,
)

_WORD, _VECTOR, _LINE = 4, 16, 128  # bytes
_WIDE = 32                          # columns from which on tiles of words that begin anywhere are
                                    # read at multiples of a stride


@dataclass(frozen=True)
class TransposeConfig:
    """The configuration of a ``transpose`` kernel. ``item``, ``word``, ``load`` and ``store`` are
    in bytes: an element, a word of shared memory, vectors read along J and written along I;
    ``tile`` is (J, I). ``unit``: rows of the target have stride 1. ``group`` tiles along J run
    together (0: all); in strips of one tile, ``inner`` batch indices share a strip. ``in_place``
    exchanges pairs of tiles. ``cut``: where rows begin anywhere, they are cut at multiples of so
    many bytes."""

    item: int
    word: int
    load: int
    store: int
    tile: Pair
    threads: int = 256
    unit: bool = True
    modes: int = 0
    wide: bool = False
    group: int = 0
    inner: int = 0
    min_blocks: int = 1
    paired: bool = False
    in_place: bool = False
    cut: int = 0

    def __post_init__(self) -> None:
        if self.word % self.item or self.load % self.word or self.store % self.word:
            raise CodegenError(
                f"a word must be a multiple of an element, and vectors multiples of a word, got {self}"
            )
        if self.inner > (self.modes if self.group == 1 else 0):
            raise CodegenError(f"batch modes share strips of one tile, got {self}")
        if self.in_place and self.tile[0] != self.tile[1]:
            raise CodegenError(f"transposing in place needs square tiles, got {self}")
        if self.cut and (not self.unit or self.load != self.word or self.cut % self.store
                         or self.tile[1] % self.border):
            raise CodegenError(
                f"rows that begin anywhere must be contiguous, read by words and cut at multiples of the vectors "
                f"written, got {self}"
            )

    @property
    def packed(self) -> int:
        return self.word // self.item

    @property
    def border(self) -> int:
        """Elements between the places where rows that begin anywhere may be cut."""
        return self.cut // self.item

    @property
    def halo(self) -> int:
        """Rows of the source that a block reads before those of its tile."""
        return 0 if self.in_place else self.border

    @property
    def rows(self) -> int:
        return self.tile[1] + self.halo

    @property
    def scale(self) -> int:
        """Elements of what strides count: packed words, or 1 where rows begin anywhere."""
        return 1 if self.cut else self.packed

    @property
    def family(self) -> str:
        return "transpose_in_place" if self.in_place else "transpose"

    @property
    def kind(self) -> str:
        return f"{'Ragged' if self.cut else ''}{'InPlace' if self.in_place else '' if self.cut else 'Transpose'}Config"

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
                              Layout((along_j, (per_word, along_i)),
                                     (per_word, (1, along_j * per_word))))

    @property
    def name(self) -> str:
        units = "uu" if self.unit else "ss" if self.in_place else "us"
        what = f"transpose{'_ragged' if self.cut else ''}{'_in_place' if self.in_place else ''}"
        return (
            f"{what}_b{8 * self.item}_w{self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_l{self.load}_s{self.store}"
            f"_{units}_m{self.modes}{f'_g{self.group}' if self.group else ''}"
            f"{f'_n{self.inner}' if self.inner else ''}"
            f"{f'_x{self.min_blocks}' if self.min_blocks > 1 else ''}{'_wide' if self.wide else ''}"
            f"{'_paired' if self.paired else ''}{f'_c{self.cut}' if self.cut else ''}"
        )


@dataclass(frozen=True)
class _Moved:
    """A tile that a block moves: ``corner`` and ``limits`` are in elements along J and I."""

    name: str
    corner: DynamicPair
    source: Tensor
    target: Tensor
    shared: Tensor
    elements: Tensor
    limits: DynamicPair
    exists: Condition = True


@cache
def transpose_kernel(config: TransposeConfig) -> GeneratedKernel:
    """Generate ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S and I in D."""
    # In place, (j, i) of every square matrix of D changes places with (i, j), a block for each
    # pair of tiles. Extents are in elements, strides in words, or in elements where rows begin
    # anywhere: there the lowest element that belongs to the source and its end are parameters too.
    tile = TransposedTile(config)
    what = "D[j, i, batch] = D[i, j, batch] in place" if config.in_place else "D[j, i, batch] = S[j, i, batch]"
    k = builder(
        config,
        config.threads,
        min_blocks=config.min_blocks,
        summary=f"{what}, J contiguous in the source and I in the target{', rows begin anywhere' if config.cut else ''}: "
        f"elements of {config.item} bytes, tile (J, I) = {config.tile}\n"
        f"threads read {tile.reader.tv} of {tile.reader.tile} words, write {tile.writer.tv} of "
        f"{tile.writer.tile} words"
    )
    S, D = _operands(k, config, tile)
    spanned = config.cut > 0 and config.packed > 1
    moved = _pair(k, config, tile, D) if config.in_place else [_one(k, config, tile, S, D)]

    if spanned:
        around = k.lines(f"{S.param.name}_words", S.address, tile.word, _WORD, spanned=True)
        for each in moved:
            with k.when(each.exists):
                _words_in(k, config, tile, each, around)
    else:
        k.comment("Rows in" + ("; on the diagonal the second tile has none" if config.in_place
                               else ""))
        fragments = [tile.rows_in(k, each) for each in moved]
        k.comment("Words along i into shared memory")
        for each, fragment in zip(moved, fragments, strict=True):
            tile.staged(k, fragment, each.shared, each.name)
    k.barrier()
    k.comment("Columns out" + (", each tile to the place of the other" if config.in_place else ""))
    lines = k.lines("D_cut", D.address, tile.word, config.cut) if config.cut else None
    for each in moved:
        with k.when(each.exists):
            if lines is not None:
                _sectors_out(k, config, tile, each, lines)
            else:
                tile.columns_out(k, each)
    return k.build()


def _operands(k: KernelBuilder, config: TransposeConfig,
              tile: TransposedTile) -> tuple[GlobalTensor, GlobalTensor]:
    element = f"b{8 * config.item}" if config.cut else tile.word
    read, written = (1, 1) if config.cut else (tile.vl, tile.vs)
    unit = 1 if config.unit else None
    if config.in_place:
        both = max(read, written)
        (D,) = k.tensors(TensorParam("D", "ji", element, (unit, None), both, written=True),
                         modes="N", batch=config.modes, multiples={"N": both * config.scale})
        return D, D
    S, D = k.tensors(TensorParam("S", "ji", element, (1, None), read),
                     TensorParam("D", "ji", element, (None, unit), written, written=True),
                     modes="ji", batch=config.modes,
                     multiples={"j": read * config.scale, "i": written * config.scale})
    return S, D


def _held(k: KernelBuilder, config: TransposeConfig, tile: TransposedTile,
          name: str) -> tuple[Tensor, Tensor]:
    words = k.shared(f"s{name}", tile.word, config.shared)
    if not config.cut:
        return words, words
    return words, k.shared(f"e{name}", f"b{8 * config.item}", config.elements, over=f"s{name}")


def _one(k: KernelBuilder, config: TransposeConfig, tile: TransposedTile, S: GlobalTensor,
         D: GlobalTensor) -> _Moved:
    J, I = k.extent("j"), k.extent("i")
    # indices of a batch that share a strip
    inner = k.let("inner", size(S.batch[:config.inner])) if config.inner else 1
    bj, bi, index = tile_of_block(k, (J, I + config.halo), config.tile, config.modes > 0,
                                  config.group, inner)
    corner = bj * config.tile[0], bi * config.tile[1] - config.halo
    if config.cut:
        corner = k.let("first_j", corner[0]), k.let("first_i", corner[1])
    source, target = (J // config.scale, I), (J, I // config.scale)
    return _Moved("T", corner, S.at(index, source), D.at(index, target),
                  *_held(k, config, tile, "T"), source)


def _pair(k: KernelBuilder, config: TransposeConfig, tile: TransposedTile,
          D: GlobalTensor) -> list[_Moved]:
    """The two tiles of a block, (p, q) and (q, p) with p <= q; on the diagonal they are one."""
    # Pairs of t tiles fill a rectangle of t | 1 columns: the rows p of the triangle from its top,
    # filled up with those from its end.
    N, batched = k.extent("N"), config.modes > 0
    block, tiles = k.block_index(), k.let("tiles", ceil_div(N, config.tile[0]))
    odd = k.let("odd", tiles % 2)
    columns, rows = k.let("columns", tiles + 1 - odd), k.let("rows", (tiles + odd) // 2)
    if config.group:
        pairs = k.let("pairs", columns * rows)
        pair, index = unravel(k, block, pairs, ("pair", "batch"), batched)
        column, row = grouped_raster(k, pair, columns, rows, config.group)
    else:
        column, above = unravel(k, block, columns, ("column", "above"))
        row, index = unravel(k, above, rows, ("row", "batch"), batched)
    p, q = k.variable("p", tiles - 1 + odd - row), k.variable("q", tiles - 1 - column)
    with k.when(row + (-odd) < column):
        k.assign(p, row)
        k.assign(q, column - 1 + odd)
    read = D.at(index, (N // config.scale, N))
    written = select(read, 1, 0)
    other = k.let("other", N * k.flag("two", integer(p) < q))
    below, right = p * config.tile[0], q * config.tile[0]
    if config.cut:
        below, right = k.let("first_p", below), k.let("first_q", right)
    return [_Moved("T", (right, below), read, written, *_held(k, config, tile, "T"),
                   (N // config.scale, N)),
            _Moved("U", (below, right), read, written, *_held(k, config, tile, "U"),
                   (other // config.scale, other), p < q)]


class TransposedTile:
    """How the threads of a block transpose a tile through shared memory."""
    # A thread reads as many rows as a word has elements, ``vl`` words each. Word (j, i') of shared
    # memory holds elements (j, packed * i' ...); lanes of a warp write columns along I as whole
    # lines.

    def __init__(self, config: TransposeConfig) -> None:
        packed, (tj, ti) = config.packed, config.tile
        self.word, self.packed = f"b{8 * config.word}", packed
        # words of a vector
        self.vl, self.vs = config.load // config.word, config.store // config.word
        lanes_j = tj // packed // self.vl
        self.reader = TiledCopy(Layout((lanes_j, config.threads // lanes_j)), (self.vl, packed))
        self.stager = TiledCopy(self.reader.threads, (self.vl * packed, 1))
        lanes_i = _lanes_along_i(config)
        warps_i = min(ti // packed // self.vs // lanes_i, config.threads // 32)
        lanes = 32 // lanes_i
        warps_j = config.threads // 32 // warps_i
        self.writer = TiledCopy(Layout(((lanes, warps_j), (lanes_i, warps_i)),
                                       ((lanes_i, 32 * warps_i), (1, 32))), (1, self.vs))
        # the tile in words
        self.read, self.written = (tj // packed, config.rows), (tj, ti // packed)
        self.scale, self.halo = config.scale, config.halo > 0
        # how often threads read and write, along J and I
        self.rest = self.reader.passes(self.read, f"words read by {config.name}")
        self.passes = self.writer.passes(self.written, f"words written by {config.name}")

    def rows_in(self, k: KernelBuilder, moved: _Moved) -> Tensor:
        """Read a tile's words (along J, I) that exist to registers ((words, packed), rest...)."""
        corner, name = (moved.corner[0] // self.scale, moved.corner[1]), moved.name

        def mine(matrix: Tensor) -> Tensor:
            return self.reader.partition(tile_from(corner, matrix, self.read), k.thread)

        tSgS = k.pin(f"tSg{name}", mine(moved.source))
        guard = replace(existing(k, f"tSc{name}", mine, moved.limits), halo=self.halo)
        fragment = k.registers(f"tSr{name}", self.word,
                               ((self.vl, self.packed), *self.rest))
        k.copy(Vector(self.vl), tSgS, fragment, guard=guard)
        return fragment

    def staged(self, k: KernelBuilder, fragment: Tensor, shared: Tensor, name: str = "T") -> None:
        """Write the words along I of a tile in registers to shared memory."""
        rest = self.rest
        tSsT = k.pin(f"tSs{name}", self.stager.partition(shared, k.thread))
        turned = fragment
        if self.packed > 1:
            turned = k.registers(f"tSw{name}", self.word, (self.vl * self.packed, *rest))
            rows = select(Layout((self.vl, self.packed, *rest)), 1, 0, 2, 3)
            transpose_words(k, Tensor(fragment.engine, rows),
                            make_tensor(turned.engine, (self.packed, self.vl, *rest)))
        swizzle = shared.layout.swizzle
        k.copy(Vector(min(self.vl * self.packed, 1 << swizzle.base,
                          _VECTOR // shared.engine.dtype.bytes)), turned, tSsT)

    def columns_out(self, k: KernelBuilder, moved: _Moved) -> None:
        """Write a tile in shared memory to the target (J, words along I)."""
        corner, name = (moved.corner[0], moved.corner[1] // self.scale), moved.name

        def mine(matrix: Tensor) -> Tensor:
            return self.writer.partition(tile_from(corner, matrix, self.written), k.thread)

        tDsT = k.pin(f"tDs{name}", self.writer.partition(moved.shared, k.thread))
        tDgD = k.pin(f"tDg{name}", mine(moved.target))
        guard = existing(k, f"tDc{name}", mine, moved.target.shape)
        fragment = k.registers(f"tDr{name}", self.word, ((1, self.vs), *self.passes))
        k.copy(ELEMENTS, tDsT, fragment)
        k.copy(Vector(self.vs), fragment, tDgD, guard=guard)


def _lanes_along_i(config: TransposeConfig) -> int:
    """Lanes of a warp that write to one row of the target."""
    return min(_LINE // config.store, config.tile[1] * config.item // config.store, 32)


def _swizzle(config: TransposeConfig) -> Swizzle:
    """The swizzle of the tile: vectors along J are permuted by the position along I."""
    # A row of 128 bytes has ``128 / chunk`` chunks, a chunk being a thread's vector (at least a
    # bank). Lanes of a column step by ``store / word`` words along I: those bits choose the chunk.
    lanes, chunk = _lanes_along_i(config), max(config.store, _WORD)
    chunks, length = _LINE // chunk, chunk // config.word
    if lanes < chunks:
        # Few rows: lanes that are served together are on several columns, and each row of theirs
        # has banks of its own.
        length = max(_LINE // max(config.word, _WORD) // lanes, config.load // config.word)
        chunks = lanes
    bits, base, rows, step = (n.bit_length() - 1 for n in (chunks, length, config.tile[0],
                                                           config.store // config.word))
    return Swizzle(bits, base, rows + step - base)


def _words_in(k: KernelBuilder, config: TransposeConfig, tile: TransposedTile, moved: _Moved,
              lines: Lines) -> None:
    """Read what exists of a tile of small elements to shared memory, in words that cover them."""
    # Rows that do not exist are replaced by others; words that reach beyond the array's memory are
    # read by elements. Whole tiles are read at multiples of a stride: that costs registers, more
    # than it gains in pairs of tiles, or in long tiles of few columns.
    packed, name, corner, source, extents = tile.packed, moved.name, moved.corner, moved.source, moved.source.shape
    by_element = TiledCopy(tile.reader.threads, (packed, packed))
    blocks = tile.rest[1]
    along_j, along_i = tile.read[0] * packed, tile.read[1]
    gS, cS = (tile_from(corner, x, (along_j, along_i))
              for x in (source, make_identity_tensor(extents)))
    tSgS, tScS = k.pin(f"tSg{name}", by_element.partition(gS, k.thread)), k.pin(f"tSc{name}", by_element.partition(cS, k.thread))
    j = tScS((0, 0), 0, 0)[0]

    def nearest(row: IntLike) -> IntLike:
        return minimum(maximum(row, 0), extents[1] - 1)

    borders = [k.let(f"{row}_{name}", source(corner[0], nearest(corner[1] + i)))
               for row, i in (("top", 0), ("bottom", along_i - 1))]
    inside = k.flag(f"inside_{name}", lines.covered(borders, along_j))
    k.comment("Rows in: the aligned words that cover the thread's words")
    with k.when(inside.ne(0)), k.when(j < extents[0]):
        covers = k.registers("tSrC", tile.word, (2, packed, blocks))
        fragment = k.registers("tSrS", tile.word, ((1, packed), 1, blocks))

        def read_block(block: IntLike) -> None:
            with k.each(packed) as row:
                begin = k.let("begin", lines.place(source(j, nearest(tScS((0, row), 0, block)[1]))))
                k.copy(ELEMENTS, lines.run(begin, 2), covers[None, row, block])

        # of all threads together: a multiple of a word's, so that theirs begin alike
        rows = by_element.tile[1]
        if not config.in_place and config.tile[0] >= _WIDE:
            every = k.flag(f"every_{name}", (integer(corner[1]) >= 0)
                           & (integer(corner[1] + along_i) <= extents[1]))
            with k.when(every.ne(0)):
                for row in range(packed):
                    apart = Layout(blocks, rows * source.stride[1] // packed)
                    strided = lines.run(lines.place(source(j, tScS((0, row), 0, 0)[1])),
                                        make_layout(Layout(2), apart))
                    k.copy(ELEMENTS, k.pin(f"tSg{name}{row}", strided, settled=True),
                           covers[None, row, None])
            with k.otherwise(), k.each(blocks) as block:
                first = corner[1] + block * rows
                with k.when(all_of(-rows < first, first < extents[1])):
                    read_block(block)
        else:
            with k.each(blocks) as block:
                read_block(block)
        for row in range(packed):     # words of rows that are a multiple of words apart begin alike
            bits = k.let(f"bits_{row}", lines.bits(lines.place(source(j, tScS((0, row), 0, 0)[1]))))
            with k.each(blocks) as block:
                cut_words(k, covers[None, row, block], fragment[(None, row), 0, block], bits)
        tile.staged(k, fragment, moved.shared, name)
    with k.otherwise(), k.loop("column", packed, unroll=False) as column:
        single = k.registers("tSrE", source.engine.dtype.name, (packed, blocks))
        guard = Guard(tScS[(column, None), 0, None], extents, halo=True)
        k.copy(ELEMENTS, tSgS[(column, None), 0, None], single, guard=guard)
        k.copy(
            ELEMENTS,
            single,
            by_element.partition(moved.elements, k.thread)[(column, None), 0, None]
        )


def _sectors_out(k: KernelBuilder, config: TransposeConfig, tile: TransposedTile, moved: _Moved,
                 lines: Lines) -> None:
    """Write a tile to rows that begin anywhere: whole sectors by vectors, the rest by elements."""
    packed, words, border, name = config.packed, tile.vs, config.border, moved.name
    corner, target, (J, I) = moved.corner, moved.target, moved.target.shape
    if tile.writer.tile[0] % border or config.threads > config.tile[0] * border:
        raise CodegenError(
            f"{config.name}: {config.threads} threads must hold whole columns that lie whole sectors apart"
        )
    tDcD = coordinates(k, f"tDc{name}", tile.writer, tile.written)
    rows, vectors = tile.passes
    starts = k.flag(f"starts_{name}", integer(corner[1]) < 0)  # rows of the target do, in this tile
    end = k.let(f"end_{name}", I - corner[1] if config.halo
                else minimum(I - corner[1], config.tile[1]))

    def column_begin(which: IntLike) -> IntLike:
        return lines.place(target(corner[0] + which, corner[1]))

    # what is written whole: vectors, or in place sectors
    unit = config.store // config.item if config.halo else border

    def sectors(which: IntLike, name: str = "") -> tuple[IntLike, IntLike, IntLike, IntLike]:
        """A column's first sector, begin and end of its whole part, and end."""
        later = k.let(f"later{name}", (-column_begin(which)) % border)
        stop = minimum(end, later + config.tile[1]) if config.halo else end
        first = later + starts * (border - later + later % unit) if config.halo else later
        return later, first, k.let(f"last{name}",
                                   later + maximum(stop - later, 0) // unit * unit), stop

    # The columns of a thread are whole sectors apart: they begin at the same place in a sector and
    # in the tile.
    column = tDcD((0, 0), 0, 0)[0]
    later, first, last, _ = sectors(column, f"_{name}")
    for n in range(vectors):
        word = tDcD((0, 0), 0, n)[1]
        # A word is cut from two that follow each other. After the last of a column, a whole one,
        # the first is read.
        at = [later // packed + word + w for w in range(words + (packed > 1))]
        at = [k.let(f"word_{name}{n}_{w}", i if config.halo else i % tile.written[1])
              for w, i in enumerate(at)]
        here = k.let(f"here_{name}{n}", later + word * packed)
        with k.when(all_of(first - 1 < here, here < last)), k.loop("r", rows, unroll=True) as r:
            which = tDcD((0, 0), r, 0)[0]
            with k.when(corner[0] + which < J):
                held = k.registers("tDrS", tile.word, (1, len(at)))
                for w, i in enumerate(at):
                    k.copy(ELEMENTS, moved.shared(which, i), held[None, w])
                if packed > 1:
                    cut_words(k, held[0, None], held[0, None], 8 * config.item * (later % packed))
                line = k.let("line", lines.run(column_begin(which) + (border - 1), tile.written[1],
                                               whole=border // packed))
                k.copy(Vector(words), held(0, 0).run(words), line(word).run(words))

    if config.halo and unit == 1:
        return
    k.comment("Before and behind them: of each column fewer elements than are written whole")
    lanes = max(unit, config.threads // config.tile[0])
    ends = vectors_along(1, (config.threads // lanes, lanes))
    tEcD = coordinates(k, f"tEc{name}", ends, (config.tile[0], lanes))
    passes = config.tile[0] // ends.tile[0]

    def single(which: IntLike, e: IntLike) -> None:
        copy_element(k, "tErE", moved.elements(which, e), target(corner[0] + which, corner[1] + e))

    def single_ones() -> None:
        with k.loop("r", passes, unroll=False) as r:
            which, e = tEcD((0, 0), r, 0)
            with k.when(corner[0] + which < J):
                _, first, last, stop = sectors(which)
                head = starts * first if config.halo else first
                for start, until in ((starts * border, minimum(head, stop)),
                                     (maximum(first, last), stop)):
                    with k.when(start + e < until):
                        single(which, start + e)

    if config.halo:                       # rows of the target begin in this tile, or they end there
        edge = k.flag("ends", (integer(corner[1]) < 0)
                      | (integer(corner[1] + (config.rows - 1)) >= I))
        with k.when(edge.ne(0)):
            single_ones()
        return
    with k.when(config.tile[1] - 1 < end), k.loop("r", passes, unroll=True) as r:
        which, e = tEcD((0, 0), r, 0)
        later = k.let("later", (-column_begin(which)) % border)
        with k.when(all_of(corner[0] + which < J, later > 0)):
            behind = k.flag("behind", integer(e) >= later)
            single(which, e + behind * (config.tile[1] - border))
    with k.otherwise():
        single_ones()
