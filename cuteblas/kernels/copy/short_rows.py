"""``transpose`` to short rows that follow each other without gaps: what is cut among blocks is the target's memory, not its rows.

A row of the target of about 35 bytes is in two or three sectors, most of which it shares with the next row. But where rows follow
each other, a block that has whole rows of them has one piece of memory. It reads the source's rows by words along J and stores each
element at its place in that piece, in shared memory; from there the piece is written as aligned vectors. Only where it begins and
ends are elements written one by one.

Lanes are neighbours along J, so the words that they store to shared memory at once are a row of the target (times the elements of a
word) apart: as many words as a row has elements. If that is odd, there are no bank conflicts. For each factor 2 that it has, one
bit of the line's number is added (exclusive or) to the word's, so that lanes that would conflict use the banks between, as far as a
line has words: 2 lanes conflict where rows of 8-byte elements have 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ...codegen.builder import KernelBuilder
from ...codegen.copies import Vector
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import TiledCopy
from ...codegen.values import integer
from ...layout import ComposedLayout, Layout, Swizzle, Tensor, make_identity_tensor
from ...layout.symbolic import IntLike, all_of, ceil_div, less, maximum, minimum, select
from ..common import cut_words, matrix_at, split_words

__all__ = ["PieceConfig", "ShortRowsConfig", "batch_modes", "short_rows_kernel"]

_WORD, _VECTOR, _LINE = 4, 16, 128


@dataclass(frozen=True)
class PieceConfig:
    """What a ``transpose`` kernel is specialised on that holds a piece of memory, of short rows, unchanged in shared memory.

    Attributes
    ----------
    item : int
        Bytes of an element.
    threads : tuple of int
        Threads along the long mode and along the short one.
    words : tuple of int
        Words (of 4 bytes, or an element) that a thread moves along both.
    twos : int
        How often 2 divides the length of the short rows.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    item: int
    threads: tuple[int, int]
    words: tuple[int, int]
    twos: int = 0
    modes: int = 0
    wide: bool = False

    @property
    def word(self) -> int:
        """Bytes of a word."""
        return max(self.item, _WORD)

    @property
    def packed(self) -> int:
        """Elements of a word."""
        return self.word // self.item

    def swizzle(self, element: int) -> Swizzle:
        """How elements of so many bytes are permuted in shared memory: words of a line by the line's number."""
        words = (_LINE // self.word).bit_length() - 1
        return Swizzle(min(self.twos, words), (self.word // element).bit_length() - 1, words)


@dataclass(frozen=True)
class ShortRowsConfig(PieceConfig):
    """What a ``transpose`` kernel for short rows is specialised on: see :class:`PieceConfig`; the long mode is J.

    Attributes
    ----------
    min_blocks : int
        Blocks of which a multiprocessor has to hold the registers.
    """

    min_blocks: int = 1

    @property
    def tile(self) -> tuple[int, int]:
        """Elements along J that a block moves, and the longest row of the target."""
        return self.threads[0] * self.words[0] * self.packed, self.threads[1] * self.words[1]

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return (f"transpose_short_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_t{self.threads[0]}x{self.threads[1]}"
                f"_z{self.twos}_m{self.modes}{f'_x{self.min_blocks}' if self.min_blocks > 1 else ''}"
                f"{'_wide' if self.wide else ''}")


def batch_modes(k: KernelBuilder, modes: int, vector_s: int = 1, vector_d: int = 1) -> tuple[tuple, tuple, tuple]:
    """Extents, source strides and target strides of the batch modes; strides are multiples of the vectors."""
    extents = tuple(k.integer(f"L{i}") for i in range(modes))
    source, target = (tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=vector) for i in range(modes))
                      for name, vector in (("S", vector_s), ("D", vector_d)))
    return extents, source, target


@cache
def short_rows_kernel(config: ShortRowsConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel: ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S, (I, J) in D.

    The target's rows have no more elements than the tile, and so many that of the rows that a thread reads only the last may not
    exist.

    Parameters of the kernel: pointers S, D; extents J, I; stride of S along i; the extents of the batch modes, then the strides of
    S there, then of D; of elements smaller than a word, the lowest that belongs to S and the end of S. All count elements, the last
    two from S on.
    """
    item, packed, threads = config.item, config.packed, config.threads[0] * config.threads[1]
    element, word, vector = f"b{8 * item}", f"b{8 * config.word}", _VECTOR // item
    k = KernelBuilder(config.name, threads, wide=config.wide, min_blocks=config.min_blocks,
                      summary="D[j, i, batch] = S[j, i, batch], J contiguous in S, (I, J) in D: elements of "
                              f"{item} bytes, tile (J, I) = {config.tile}")
    ps, pd = k.pointer("S", element, alignment=item), k.pointer("D", element, const=False, alignment=item)
    multiple = 1 << config.twos
    extents = J, I = k.integer("J"), k.integer("I", typical=max(1, (config.tile[1] // multiple - 1) | 1) * multiple)
    ds = (1, k.integer("dS_i", lo=None))
    batch, batch_s, batch_d = batch_modes(k, config.modes)
    memory = (k.integer("S_lowest", lo=None), k.integer("S_end")) if packed > 1 else (0, 0)
    block, tiles = k.block_index("block", "x"), k.let("tiles", ceil_div(J, config.tile[0]))
    first_j, index = (k.let("first_j", block % tiles * config.tile[0]), k.let("batch", block // tiles)) if batch else \
        (k.let("first_j", block * config.tile[0]), 0)
    source, target = matrix_at(ps, extents, ds, batch, batch_s, index), matrix_at(pd, extents, (I, 1), batch, batch_d, index)

    k.comment("The piece of the target: vectors that cover it, as they lie in shared memory")
    vectors, before = k.aligned_down("D_vectors", pd, word, _VECTOR)
    begin = k.let("begin", before + target.engine.offset + target.layout(first_j, 0))
    shift = k.let("shift", begin % vector)
    units, swizzle = (config.tile[0] * config.tile[1] + vector) // packed, config.swizzle(item)
    sW = k.shared("sW", word, ComposedLayout(config.swizzle(config.word), 0, Layout(units)))
    sE = k.shared("sE", element, ComposedLayout(swizzle, 0, Layout(units * packed)), over="sW")
    sT = Tensor(sE.engine, ComposedLayout(swizzle, shift, Layout(config.tile, (I, 1))))

    reader = TiledCopy(Layout(config.threads), (packed, 1))
    tScS = k.pin("tScS", reader.partition(make_identity_tensor(config.tile), k.thread))
    columns = [tScS((0, 0), x, 0)[0] for x in range(config.words[0])]

    def row(n: IntLike) -> IntLike:
        return tScS((0, 0), 0, n)[1]

    # A thread's last row, if it does not exist, is stored after all that do, so that none waits for a branch.
    last = config.words[1] - 1
    last_exists = less(row(last), I)
    strides = k.let("last_j", select(last_exists, I, 1)), k.let("last_i", select(last_exists, 1, config.tile[0]))
    sL = Tensor(sE.engine, ComposedLayout(swizzle, shift, Layout(config.tile, strides)))

    def place(c: int, x: int, n: IntLike) -> Tensor:
        """The place of an element in shared memory: of a word, of words along J and along I."""
        return Tensor(sE.engine + (sL if n is last else sT)(columns[x] + c, row(n)).index, Layout(1))

    def at(j: IntLike, i: IntLike) -> IntLike:
        return source.engine.offset + source.layout(j, i)

    def rows(unroll: bool = True) -> Iterator[tuple[IntLike, IntLike]]:
        """A thread's rows: each as its number among them, and as one that exists."""
        if last > 0:
            with k.loop("n", last, unroll=unroll) as n:
                yield n, row(n)
        yield last, minimum(row(last), I - 1)

    # Instead of columns and rows that do not exist others are read. What belongs to no column is stored after the piece.
    existing = [k.let(f"j_{x}", minimum(first_j + j, J - 1)) for x, j in enumerate(columns)]
    held = k.registers("tSrS", word, Layout((1, *config.words)))
    if packed == 1:
        k.comment("Rows in")
        for x, j in enumerate(existing):
            for n, i in rows():
                k.copy(Vector(1), Tensor(ps + at(j, i), Layout(1)), held[None, x, n])
        for x in range(config.words[0]):
            for n, _ in rows():
                k.copy(Vector(1), held[None, x, n], place(0, x, n))
    else:
        words, ahead = k.aligned_down("S_words", ps, word, config.word)
        top, bottom = k.let("top", at(first_j, 0)), k.let("bottom", at(first_j, I - 1))
        across = k.let("across", minimum(J - first_j, config.tile[0]))
        inside = k.flag("inside", (integer(minimum(top, bottom)) >= memory[0] + (packed - 1))
                        & (integer(maximum(top, bottom) + across + 2 * packed) <= memory[1]))
        k.comment("Rows in: the aligned words that cover the thread's words")
        with k.when(inside.ne(0)):
            covering = k.registers("tSrC", word, Layout((2, *config.words)))
            single = k.registers("tSrE", element, Layout(packed))
            for x, j in enumerate(existing):
                for n, i in rows():
                    k.copy(Vector(1), Tensor(words + (ahead + at(j, i)) // packed, Layout(2)), covering[None, x, n])
            for x, j in enumerate(existing):
                for n, i in rows():
                    cut_words(k, covering[None, x, n], held[None, x, n], 8 * item * ((ahead + at(j, i)) % packed))
                    split_words(k, held[None, x, n], single)
                    for c in range(packed):
                        k.copy(Vector(1), Tensor(single.engine + c, Layout(1)), place(c, x, n))
        k.comment("Where words would reach beyond the array's memory: elements")
        with k.otherwise():
            single = k.registers("tSrE", element, Layout(1))
            for x, c in ((x, c) for x in range(config.words[0]) for c in range(packed)):
                j = first_j + columns[x] + c
                for n, i in rows(unroll=False):
                    k.copy(Vector(1), Tensor(ps + at(minimum(j, J - 1), i), Layout(1)), single)
                    k.copy(Vector(1), single, place(c, x, n))
    k.barrier()

    k.comment("The piece out: whole vectors")
    end = k.let("end", shift + minimum(J - first_j, config.tile[0]) * I)
    lowest, highest = k.let("lowest", ceil_div(shift, vector)), k.let("highest", end // vector)
    per_vector = _VECTOR // config.word
    # From the first line of shared memory on, so that lanes meet in no bank.
    with k.loop("v", highest, start=k.thread, step=threads) as v, k.when(less(lowest - 1, v)):
        fragment = k.registers("tDrD", word, Layout(per_vector))
        if config.twos:
            for w in range(per_vector):
                one = Tensor(sW.engine + sW(v * per_vector + w).index, Layout(1))
                k.copy(Vector(1), one, Tensor(fragment.engine + w, Layout(1)))
        else:
            k.copy(Vector(per_vector), Tensor(sW.engine + v * per_vector, fragment.layout), fragment)
        k.copy(Vector(per_vector), fragment, Tensor(vectors + (begin // vector + v) * per_vector, fragment.layout))
    if vector > 1:
        k.comment("Vectors in which it begins and ends: their elements, one by one")
        with k.when(less(k.thread, vector)):
            for what, start, stop, e in (("head", shift, minimum(lowest * vector, end), k.thread),
                                         ("tail", 0, end, maximum(lowest, highest) * vector + k.thread)):
                at_end = k.let(what, e)
                with k.when(all_of(less(start - 1, at_end), less(at_end, stop))):
                    single = k.registers("tDrE", element, Layout(1))
                    k.copy(Vector(1), Tensor(sE.engine + sE(at_end).index, Layout(1)), single)
                    there = target.engine.offset + target.layout(first_j, at_end - shift)
                    k.copy(Vector(1), single, Tensor(pd + there, Layout(1)))
    return k.build()
