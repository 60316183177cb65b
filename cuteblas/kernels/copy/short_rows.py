"""``transpose`` to or from short rows without gaps: blocks cut their memory, not the rows.

A block has one piece of memory, in shared memory as in global memory; aligned vectors move
between. Lanes access words that are a short row apart: for each factor 2 of its length, one bit of
the line's number is added (exclusive or) to the word's, against bank conflicts. From short rows,
the target is cut where sectors begin, so a block brings a sector's worth of rows more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from ...codegen import (
    CodegenError,
    CpAsync,
    Element,
    GeneratedKernel,
    KernelBuilder,
    TensorParam,
    Vector,
    integer,
)
from ...codegen.engine import Lines
from ...layout import ComposedLayout, Layout, Swizzle, Tensor, zipped_divide
from ...layout.symbolic import Condition, IntLike, all_of, ceil_div, equal, maximum, minimum, select
from ..common import (
    ELEMENTS,
    DynamicPair,
    Pair,
    builder,
    coordinates,
    copy_element,
    cut_words,
    join_words,
    split_words,
    vectors_along,
)

_WORD, _VECTOR, _SECTOR, _LINE = 4, 16, 32, 128


@dataclass(frozen=True)
class PieceConfig:
    """A ``transpose`` with a piece of memory, of short rows, unchanged in shared memory.
    ``threads`` and ``words`` (of 4 bytes, or an element) are along the long and the short mode;
    ``twos`` is how often 2 divides the length of the short rows."""

    item: int
    threads: Pair
    words: Pair
    twos: int = 0
    modes: int = 0
    wide: bool = False

    @property
    def word(self) -> int:
        return max(self.item, _WORD)

    @property
    def packed(self) -> int:
        return self.word // self.item

    @property
    def vector(self) -> int:
        return _VECTOR // self.item

    def typical(self, longest: int) -> int:
        """A length of short rows for which costs are counted."""
        return max(1, (longest // 2**self.twos - 1) | 1) * 2**self.twos

    def swizzle(self, element: int) -> Swizzle:
        """How elements are permuted in shared memory: words of a line by its number."""
        words = (_LINE // self.word).bit_length() - 1
        return Swizzle(min(self.twos, words), (self.word // element).bit_length() - 1, words)


@dataclass(frozen=True)
class ShortRowsConfig(PieceConfig):
    """A ``transpose`` to short rows; the long mode is J. ``min_blocks`` share a multiprocessor."""

    min_blocks: int = 1

    @property
    def tile(self) -> Pair:
        """Elements along J that a block moves, and the longest row of the target."""
        return self.threads[0] * self.words[0] * self.packed, self.threads[1] * self.words[1]

    @property
    def name(self) -> str:
        return (
            f"transpose_short_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_t{self.threads[0]}x{self.threads[1]}"
            f"_z{self.twos}_m{self.modes}{f'_x{self.min_blocks}' if self.min_blocks > 1 else ''}"
            f"{'_wide' if self.wide else ''}"
        )


@dataclass(frozen=True)
class FromShortRowsConfig(PieceConfig):
    """A ``transpose`` from short rows; the long mode is I."""

    def __post_init__(self) -> None:
        if self.threads[0] < self.border or self.tile[1] % self.border:
            raise CodegenError(
                "a block needs a thread along I for each element of a sector, and rows of whole sectors, "
                f"got {self}"
            )

    @property
    def tile(self) -> Pair:
        """The longest source row, and rows that a block moves: whole target sectors."""
        return self.threads[1] * self.words[1], self.threads[0] * self.words[0] * self.packed

    @property
    def border(self) -> int:
        return _SECTOR // self.item

    @property
    def name(self) -> str:
        return (
            f"transpose_from_short_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_t{self.threads[0]}x{self.threads[1]}"
            f"_z{self.twos}_m{self.modes}{'_wide' if self.wide else ''}"
        )


class _Piece:
    """A piece of a tensor's memory in shared memory, from the vector on that it begins in.
    ``shift`` elements of that vector are before it; ``width`` words of a vector are neighbours."""

    def __init__(self, k: KernelBuilder, config: PieceConfig, lines: Lines, first: IntLike,
                 most: int):
        words, vectors = _VECTOR // config.word, -(-(most + config.vector - 1) // config.vector)
        self._config, self._words, self.vectors = config, words, vectors
        self.first = k.let("begin", first)
        self.shift = k.let("shift", self.first % config.vector)
        self.width = 1 if config.twos else words
        self.memory = lines.run(self.first, Layout((words, vectors)), whole=words)
        swizzled = ComposedLayout(config.swizzle(config.word), 0, Layout((words, vectors)))
        self.shared = k.shared("sW", lines.words.dtype.name, swizzled)
        self.elements = k.shared("sE", f"b{8 * config.item}",
                                 ComposedLayout(config.swizzle(config.item), 0,
                                                Layout(config.vector * vectors)), over="sW")

    def parts(self, v: IntLike, fragment: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """A vector in shared memory, and a fragment, by words that are neighbours there."""
        words, parts = (x.map_domain(lambda layout: zipped_divide(layout, self.width))
                        for x in (self.shared[None, v], fragment))
        for w in range(self._words // self.width):
            yield words[None, w], parts[None, w]

    def rows(self, shape: Pair, strides: DynamicPair) -> Tensor:
        """Elements of the piece in shared memory, along J and I."""
        layout = ComposedLayout(self._config.swizzle(self._config.item), self.shift,
                                Layout(shape, strides))
        return Tensor(self.elements.engine, layout)


def _operands(k: KernelBuilder, config: ShortRowsConfig | FromShortRowsConfig,
              short: str) -> tuple[Tensor, Tensor, IntLike]:
    """A block's source and target, one with short rows, and its place along the other mode."""
    element, (tile_j, tile_i) = f"b{8 * config.item}", config.tile
    long, longest, tile = ("j", tile_i, tile_j) if short == "i" else ("i", tile_j, tile_i)
    dense: tuple[int | str, int | str] = ("i", 1) if short == "i" else (1, "j")
    S, D = k.tensors(TensorParam("S", "ji", element, (1, None) if short == "i" else dense),
                     TensorParam("D", "ji", element, dense if short == "i" else (None, 1),
                                 written=True), modes="ji", batch=config.modes,
                     typical={short: config.typical(longest)})
    block, first = k.block_index(), f"first_{long}"
    if not config.modes:
        return S.at(), D.at(), k.let(first, block * tile)
    tiles = k.let("tiles", ceil_div(k.extent(long), tile))
    start, index = k.let(first, block % tiles * tile), k.let("batch", block // tiles)
    return S.at(index), D.at(index), start


@cache
def short_rows_kernel(config: ShortRowsConfig) -> GeneratedKernel:
    """Generate ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S, (I, J) in D."""
    # The target's rows fit the tile, and only the last of a thread's rows may not exist.
    item, packed, vector, threads = config.item, config.packed, config.vector, config.threads[0] * config.threads[1]
    element, word = f"b{8 * item}", f"b{8 * config.word}"
    k = builder(
        config,
        threads,
        min_blocks=config.min_blocks,
        summary="D[j, i, batch] = S[j, i, batch], J contiguous in S, (I, J) in D: elements of "
        f"{item} bytes, tile (J, I) = {config.tile}"
    )
    source, target, first_j = _operands(k, config, "i")
    J, I = source.shape

    k.comment("The piece of the target: vectors that cover it, as they lie in shared memory")
    vectors = k.lines("D_vectors", target.engine, word, _VECTOR)
    piece = _Piece(k, config, vectors, vectors.place(target(first_j, 0)),
                   config.tile[0] * config.tile[1])

    # Instead of columns and rows that do not exist others are read. What belongs to no column is
    # stored after the piece.
    last = config.words[1] - 1
    reader = vectors_along(0, config.threads, packed)
    tScS = coordinates(k, "tScS", reader, config.tile)
    last_row = tScS((0, 0), 0, last)[1]
    last_exists = last_row < I
    apart = k.let("last_j", select(last_exists, I, 1)), k.let("last_i",
                                                              select(last_exists, 1,
                                                                     config.tile[0]))
    sT, sL = piece.rows(config.tile, (I, 1)), piece.rows(config.tile, apart)

    def rows(unroll: bool = True) -> Iterator[tuple[IntLike, IntLike,
                                                    Callable[[IntLike], Element]]]:
        """A thread's rows: their number, the row, and its elements in shared memory by column."""
        if last > 0:
            with k.loop("n", last, unroll=unroll) as n:
                row = tScS((0, 0), 0, n)[1]
                yield n, row, lambda j: sT(j, row)
        yield last, minimum(last_row, I - 1), lambda j: sL(j, last_row)

    def column(x: int, c: int = 0) -> IntLike:
        return tScS((c, 0), x, 0)[0]

    columns = [k.let(f"j_{x}", minimum(first_j + column(x), J - 1)) for x in range(config.words[0])]
    held = k.registers("tSrS", word, (1, *config.words))
    if packed == 1:
        k.comment("Rows in")
        for x, j in enumerate(columns):
            for n, i, _ in rows():
                k.copy(ELEMENTS, source(j, i), held[None, x, n])
        for x in range(config.words[0]):
            for n, _, row in rows():
                k.copy(ELEMENTS, held[None, x, n], row(column(x)))
    else:
        words = k.lines("S_words", source.engine, word, config.word, spanned=True)
        borders = k.let("top", source(first_j, 0)), k.let("bottom", source(first_j, I - 1))
        across = k.let("across", minimum(J - first_j, config.tile[0]))
        inside = k.flag("inside", words.covered(borders, across + packed))
        k.comment("Rows in: the aligned words that cover the thread's words")
        with k.when(inside.ne(0)):
            covering = k.registers("tSrC", word, (2, *config.words))
            single = k.registers("tSrE", element, packed)
            for x, j in enumerate(columns):
                for n, i, _ in rows():
                    k.copy(ELEMENTS, words.run(words.place(source(j, i)), 2), covering[None, x, n])
            for x, j in enumerate(columns):
                for n, i, row in rows():
                    cut_words(k, covering[None, x, n], held[None, x, n],
                              words.bits(words.place(source(j, i))))
                    split_words(k, held[None, x, n], single)
                    for c in range(packed):
                        k.copy(ELEMENTS, single(c), row(column(x, c)))
        k.comment("Where words would reach beyond the array's memory: elements")
        with k.otherwise():
            single = k.registers("tSrE", element, 1)
            for x, c in ((x, c) for x in range(config.words[0]) for c in range(packed)):
                for _, i, row in rows(unroll=False):
                    k.copy(ELEMENTS, source(minimum(first_j + column(x, c), J - 1), i), single)
                    k.copy(ELEMENTS, single, row(column(x, c)))
    k.barrier()

    k.comment("The piece out: whole vectors")
    end = k.let("end", piece.shift + minimum(J - first_j, config.tile[0]) * I)
    lowest, highest = k.let("lowest", ceil_div(piece.shift, vector)), k.let("highest", end // vector)
    # From the first line of shared memory on, so that lanes meet in no bank.
    with k.loop("v", highest, start=k.thread, step=threads) as v, k.when(lowest - 1 < v):
        fragment = k.registers("tDrD", word, _VECTOR // config.word)
        for of_memory, of_registers in piece.parts(v, fragment):
            k.copy(Vector(piece.width), of_memory, of_registers)
        k.copy(Vector(_VECTOR // config.word), fragment, piece.memory[None, v])
    if vector > 1:
        k.comment("Vectors in which it begins and ends: their elements, one by one")
        with k.when(k.thread < vector):
            for what, start, stop, e in (("head", piece.shift, minimum(lowest * vector, end),
                                          k.thread),
                                         ("tail", 0, end,
                                          maximum(lowest, highest) * vector + k.thread)):
                at_end = k.let(what, e)
                with k.when(all_of(start - 1 < at_end, at_end < stop)):
                    copy_element(k, "tDrE", piece.elements(at_end),
                                 target(first_j, at_end - piece.shift))
    return k.build()


@cache
def from_short_rows_kernel(config: FromShortRowsConfig) -> GeneratedKernel:
    """Generate ``D[j, i, batch] = S[j, i, batch]``, (J, I) in S, I contiguous in D."""
    item, packed, vector, border, (columns, rows) = config.item, config.packed, config.vector, config.border, config.tile
    element, word, threads = f"b{8 * item}", f"b{8 * config.word}", config.threads[0] * config.threads[1]
    k = builder(
        config,
        threads,
        summary="D[j, i, batch] = S[j, i, batch], (J, I) in S, I contiguous in D: elements of "
        f"{item} bytes, tile (J, I) = {config.tile}"
    )
    source, target, first_i = _operands(k, config, "j")
    J, I = source.shape

    k.comment("The piece of the source: what covers it, and where it lies in shared memory")
    lines = k.lines("S_vectors", source.engine, word, _VECTOR)
    matrix, most = k.let("matrix", lines.place(source(0, 0))), columns * (rows + border - 1)
    piece = _Piece(k, config, lines, matrix + first_i * J, most)
    sS = piece.rows((columns, rows + border), (1, J))
    count = k.let("count", ceil_div(piece.shift + minimum(I - first_i, rows + border - 1) * J,
                                    vector))

    k.comment("The piece in")

    def at(v: IntLike) -> IntLike:
        return piece.first // vector * vector + v * vector - matrix

    def whole(v: IntLike) -> Condition:
        return all_of(at(v) > -1, at(v) + (vector - 1) < I * J)

    words = _VECTOR // config.word
    if piece.width < words:                             # by words, each to its own place
        mine = [k.thread + q * threads for q in range(-(-piece.vectors // threads))]
        fragment = k.registers("tSrS", word, (words, len(mine)))
        for q, v in enumerate(mine):
            k.copy(Vector(words), piece.memory[None, v], fragment[None, q],
                   when=all_of(v < count, whole(v)))
        for q, v in enumerate(mine):
            with k.when(v < count):
                for of_memory, of_registers in piece.parts(v, fragment[None, q]):
                    k.copy(Vector(piece.width), of_registers, of_memory)
    else:
        with k.loop("v", count, start=k.thread, step=threads) as v, k.when(whole(v)):
            k.copy(CpAsync(words), piece.memory[None, v], piece.shared[None, v])
        k.commit()
        k.wait(0)
    if vector > 1:
        k.comment("Vectors that are not whole in the matrix: their elements, one by one")
        ends = k.flag("ends", (integer(at(0)) < 0) | (integer(at(count)) > I * J))
        with k.when(ends.ne(0)):
            if piece.width < words:
                k.barrier()
            both: tuple[tuple[str, IntLike, Condition], ...] = (("first", 0, at(0) < 0),
                                                                ("last", count - 1,
                                                                 at(count) > I * J))
            for what, v, outside in both:
                with k.when(all_of(k.thread < vector, outside)):
                    mine_at = k.let(what, at(v) + k.thread)
                    with k.when(all_of(mine_at > -1, mine_at < I * J)):
                        copy_element(k, "tSrE", source(mine_at, 0),
                                     piece.elements(v * vector + k.thread))
    k.barrier()

    k.comment("Rows of the target out, each from sector to sector")
    sectors = k.lines("D_words", target.engine, word, _SECTOR)
    writer = vectors_along(1, config.threads[::-1])
    tDcD = coordinates(k, "tDcD", writer, (columns, rows // packed))
    with k.loop("n", config.words[1], unroll=True) as n:
        j, lane = k.let("j", tDcD((0, 0), n, 0)[0]), tDcD((0, 0), n, 0)[1]
        with k.when(j < J):
            begin = k.let("begins", sectors.place(target(j, first_i)))
            later = k.let("later", -begin % border)
            row = k.let("base", sectors.run(begin + later, rows // packed))
            for x in range(config.words[0]):
                _, t = tDcD((0, 0), n, x)
                i = k.let(f"i_{x}", later + t * packed)
                with k.when(first_i + i + (packed - 1) < I):
                    elements, joined = k.registers("tDrE", element, packed), k.registers("tDrW", word, 1)
                    for c in range(packed):
                        k.copy(ELEMENTS, sS(j, i + c), elements(c))
                    join_words(k, elements, joined)
                    k.copy(ELEMENTS, joined, row(t))
                if packed > 1:
                    with k.otherwise(), k.loop("e", packed - 1,
                                               unroll=False) as e, k.when(first_i + i + e < I):
                        copy_element(k, "tDrE", sS(j, i + e), target(j, first_i + i + e))
            with k.when(all_of(equal(first_i, 0), lane < minimum(later, I))):
                copy_element(k, "tDrE", sS(j, lane), target(j, lane))
    return k.build()
