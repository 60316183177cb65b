"""``transpose`` between matrices whose rows begin anywhere: at addresses that are multiples of an element only.

Memory is written in sectors and lines: a sector that two blocks write in part costs more than its bytes. So a tile of the target is
not cut at multiples of the tile, which are somewhere inside of a sector, but at the boundaries of sectors, which are elsewhere in
every row: the columns of a block are skewed. The block reads the rows of the source that any of its columns needs: those of its
tile and, before them, as many as a sector has elements, which a neighbour reads too.

The layout in shared memory is that of other transposes. Elements smaller than 4 bytes are packed into words there, and a word of
the target may begin in the middle of one: it is extracted from two neighbours. The words of the source's rows are extracted in the
same way from aligned words that cover them, so that no access is smaller than 4 bytes except where rows begin and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.engine import CodegenError, Pointer
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import TiledCopy
from ...codegen.values import integer
from ...layout import Layout, Tensor, composition, domain_offset, local_tile, make_identity_tensor
from ...layout.symbolic import IntLike, all_of, less, maximum, minimum
from ..common import cut_words, matrix_at, tile_of_block
from .permute import TransposeConfig, TransposedTile, batch_modes, inner_batch, transposed_tile

__all__ = ["RaggedConfig", "along_i", "ragged_transpose_kernel", "words_in"]

_WIDE = 32                          # columns from which on tiles are read at multiples of a stride


@dataclass(frozen=True)
class RaggedConfig(TransposeConfig):
    """What a ``transpose`` kernel for rows that begin anywhere is specialised on.

    Attributes
    ----------
    cut : int
        Bytes: the target's rows are cut among blocks at multiples of it, a power of two of at least :attr:`store`.
    """

    cut: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.src_unit and self.dst_unit) or self.load != self.word or self.cut % self.store or self.tile[1] % self.border:
            raise CodegenError(f"rows that begin anywhere are contiguous, read by words and cut at multiples of what is written, "
                               f"got {self}")

    @property
    def border(self) -> int:
        """Elements between the places where rows may be cut."""
        return self.cut // self.item

    @property
    def rows(self) -> int:
        """Rows of the source that a block reads: those of its tile, and before them as many as a cut may be early."""
        return self.tile[1] + self.border

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return f"{super().name.replace('transpose', 'transpose_ragged', 1)}_c{self.cut}"


@cache
def ragged_transpose_kernel(config: RaggedConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel for any alignment: ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S and I in D.

    Parameters of the kernel: pointers S, D; extents J, I; stride of S along i and of D along j; the extents of the batch modes,
    then the strides of S there, then of D; of elements smaller than a word, the lowest that belongs to S and the end of S. All
    count elements, the last two from S on.
    """
    k, tile = transposed_tile(config, "D[j, i, batch] = S[j, i, batch], J contiguous in S and I in D, rows begin anywhere")
    element = f"b{8 * config.item}"
    ps, pd = k.pointer("S", element, alignment=config.item), k.pointer("D", element, const=False, alignment=config.item)
    extents = J, I = k.integer("J"), k.integer("I")
    ds, dd = (1, k.integer("dS_i", lo=None)), (k.integer("dD_j", lo=None), 1)
    batch, batch_s, batch_d = batch_modes(k, config.modes)
    span = (k.integer("S_lowest", lo=None), k.integer("S_end")) if config.packed > 1 else ()
    bj, bi, index = tile_of_block(k, (J, I + config.border), config.tile, config.modes > 0, config.group,
                               inner_batch(k, config, batch))
    source, target = matrix_at(ps, extents, ds, batch, batch_s, index), matrix_at(pd, extents, dd, batch, batch_d, index)

    corner = k.let("first_j", bj * config.tile[0]), k.let("first_i", bi * config.tile[1] - config.border)
    sT = k.shared("sT", tile.word, config.shared)
    sE = k.shared("sE", element, config.elements, over="sT")
    if config.packed == 1:
        _elements_in(k, tile, source, corner, extents, sT)
    else:
        memory = *k.aligned_down("S_words", ps, tile.word, tile.packed * config.item), *span
        words_in(k, tile, ps, memory, source, corner, extents, (sT, sE), strided=config.tile[0] >= _WIDE)
    k.barrier()

    words, vector, border = tile.vs, tile.vs * config.packed, config.border
    lines, before = k.aligned_down("D_cut", pd, tile.word, config.cut)
    tDcD = k.pin("tDcD", tile.writer.partition(make_identity_tensor(tile.written), k.thread))
    rows, vectors = (t // p for t, p in zip(tile.written, tile.writer.tile, strict=True))

    def row_begin(j: IntLike) -> IntLike:
        return before + target.engine.offset + target.layout(j, 0)

    def cut_of(j: IntLike) -> IntLike:
        """How far after the tile's corner a row of the target is cut."""
        return k.let("later", (-row_begin(j)) % border)

    def places(which: IntLike, later: IntLike) -> list[list[IntLike]]:
        """Where in shared memory the words are that cover a thread's vectors of a column."""
        return [[k.let(f"place_{n}_{w}", sT(which, later // config.packed + tDcD((0, 0), 0, n)[1] + w).index)
                 for w in range(words + (config.packed > 1))] for n in range(vectors)]

    k.comment("Columns out, each from cut to cut")
    # Rows of the target whose distance is a whole number of sectors are cut at the same place, and have the same place in the tile.
    first, step = tDcD((0, 0), 0, 0)[0], tile.writer.tile[0]
    alike = cut_of(corner[0] + first) if step % border == 0 else None
    places_alike = None if alike is None else places(first, alike)

    @contextmanager
    def column(r: IntLike) -> Iterator[tuple[IntLike, IntLike, IntLike, IntLike]]:
        """A column of the tile if it exists: which, its number in the target, where that row begins after ``lines``, and how far
        after the tile's corner it is cut.
        """
        which = k.let("column", tDcD((0, 0), r, 0)[0])
        j = k.let("j", corner[0] + which)
        with k.when(less(j, J)):
            yield which, j, k.let("begin", row_begin(j)), cut_of(j) if alike is None else alike

    with k.loop("r", rows, unroll=True) as r, column(r) as (which, _, begin, later):
        cut = k.let("cut", (begin + border - 1) // border + bi * (config.tile[1] // border) - 1)
        held_at = places(which, later) if places_alike is None else [[at ^ r * step for at in held] for held in places_alike]
        for n in range(vectors):
            word = tDcD((0, 0), r, n)[1]
            i = k.let(f"i_{n}", corner[1] + later + word * config.packed)
            with k.when(all_of(less(-1, i), less(i + (vector - 1), I))):
                fragment = k.registers("tDrS", tile.word, Layout(words + (config.packed > 1)))
                for w, at in enumerate(held_at[n]):
                    k.copy(Vector(1), Tensor(sT.engine + at, Layout(1)), Tensor(fragment.engine + w, Layout(1)))
                if config.packed > 1:
                    cut_words(k, fragment, fragment, 8 * config.item * (later % config.packed))
                whole = Tensor(fragment.engine, Layout(words))
                k.copy(Vector(words), whole, Tensor(lines + (cut * (border // config.packed) + word), whole.layout))
    if vector > 1:
        lanes = tile.writer.tile[1] // words
        k.comment("Vectors in which rows begin and end: their elements, one by one")
        ends = k.flag("ends", (integer(corner[1]) < 0) | (integer(corner[1] + (config.rows - 1)) >= I))
        with k.when(ends.ne(0)), k.loop("r", rows, unroll=False) as r, column(r) as (which, j, begin, later):
            lane = k.let("lane", tDcD((0, 0), r, 0)[1] // words)
            for what, partly in (("first", (-begin) % vector - vector), ("last", (begin + I) // vector * vector - begin)):
                at = k.let(what, partly - corner[1])
                with k.when(all_of(less(later - 1, at), less(at, later + config.tile[1]))), \
                        k.loop("e", vector, start=lane, step=lanes, unroll=False) as e:
                    i = k.let("i", corner[1] + at + e)
                    single = k.registers("tDrE", element, Layout(1))
                    with k.when(all_of(less(-1, i), less(i, I))):
                        k.copy(Vector(1), along_i(sE, which, at + e, single), single)
                        k.copy(Vector(1), single, Tensor(target.engine + target.layout(j, i), single.layout))
    return k.build()


def _elements_in(k: KernelBuilder, tile: TransposedTile, source: Tensor, corner: tuple[IntLike, IntLike],
                 extents: tuple[IntLike, IntLike], sT: Tensor) -> None:
    """Read what exists of a tile to shared memory."""
    k.comment("Rows in")
    gS, cS = (local_tile(domain_offset(corner, x), tile.read, (0, 0)) for x in (source, make_identity_tensor(extents)))
    tSgS = k.pin("tSgS", tile.reader.partition(gS, k.thread))
    guard = Guard(k.pin("tScS", tile.reader.partition(cS, k.thread)), extents, halo=True)
    fragment = k.registers("tSrS", tile.word, Layout(((1, 1), *_rest(tile))))
    k.copy(Vector(1), tSgS, fragment, guard=guard)
    tile.staged(k, fragment, sT)


def words_in(k: KernelBuilder, tile: TransposedTile, pointer: Pointer, memory: tuple[Pointer, IntLike, IntLike, IntLike],
             source: Tensor, corner: tuple[IntLike, IntLike], extents: tuple[IntLike, IntLike], shared: tuple[Tensor, Tensor],
             name: str = "S", strided: bool = False) -> None:
    """Read what exists of a tile of small elements to shared memory, given by words and by elements.

    Threads read blocks of as many rows as a word has elements, a word of each: two aligned words cover it. Instead of rows that do
    not exist others are read. Single elements are read where words would reach beyond the array's memory.

    If ``strided``, tiles of which all rows exist are read at multiples of a stride, without a look at each row, and of others only
    blocks that have rows. It takes registers for addresses, more than it gains where tiles are long and have few columns.

    ``memory`` is: the aligned words, how many elements the first of them begins before ``pointer``, and the first element and the
    end of what the array spans, in elements from ``pointer`` on.
    """
    packed, item = tile.packed, pointer.dtype.bytes
    words, before, lowest, end = memory
    by_element = TiledCopy(tile.reader.threads, (packed, packed))
    blocks = _rest(tile)[1]
    along_j, along_i = tile.read[0] * packed, tile.read[1]
    gS, cS = (local_tile(domain_offset(corner, x), (along_j, along_i), (0, 0)) for x in (source, make_identity_tensor(extents)))
    tSgS, tScS = k.pin(f"tSg{name}", by_element.partition(gS, k.thread)), k.pin(f"tSc{name}", by_element.partition(cS, k.thread))
    j = tScS((0, 0), 0, 0)[0]

    def existing(row: IntLike) -> IntLike:
        """A row that exists: this one, or the first or last."""
        return minimum(maximum(row, 0), extents[1] - 1)

    def at(j: IntLike, row: IntLike) -> IntLike:
        return source.engine.offset + source.layout(j, existing(row))

    top, bottom = (k.let(f"{row}_{name}", at(corner[0], corner[1] + i)) for row, i in (("top", 0), ("bottom", along_i - 1)))
    inside = k.flag(f"inside_{name}", (integer(minimum(top, bottom)) >= lowest + (packed - 1))
                    & (integer(maximum(top, bottom) + (along_j + packed)) <= end))
    k.comment("Rows in: the aligned words that cover the thread's words")
    with k.when(inside.ne(0)), k.when(less(j, extents[0])):
        covering = k.registers("tSrC", tile.word, Layout((2, packed, blocks)))
        fragment = k.registers("tSrS", tile.word, Layout(((1, packed), 1, blocks)))

        def read_existing(block: IntLike) -> None:
            with k.loops((packed,)) as (row,):
                begin = k.let("begin", before + at(j, tScS((0, row), 0, block)[1]))
                k.copy(Vector(1), Tensor(words + begin // packed, Layout(2)), covering[None, row, block])

        rows = by_element.tile[1]                     # of all threads together: a multiple of a word's, so that theirs begin alike
        if strided:
            every = k.flag(f"every_{name}", (integer(corner[1]) >= 0) & (integer(corner[1] + along_i) <= extents[1]))
            with k.when(every.ne(0)):
                for row in range(packed):
                    begin = before + source.engine.offset + source.layout(j, tScS((0, row), 0, 0)[1])
                    covers = Tensor(words + begin // packed, Layout((2, blocks), (1, rows * source.layout.stride[1] // packed)))
                    k.copy(Vector(1), k.pin(f"tSg{name}{row}", covers, settled=True), covering[None, row, None])
            with k.otherwise(), k.loops((blocks,)) as (block,):
                first = corner[1] + block * rows
                with k.when(all_of(less(-rows, first), less(first, extents[1]))):
                    read_existing(block)
        else:
            with k.loops((blocks,)) as (block,):
                read_existing(block)
        for row in range(packed):                     # words of rows that are a multiple of words apart begin alike
            begins = before + source.engine.offset + source.layout(j, tScS((0, row), 0, 0)[1])
            bits = k.let(f"bits_{row}", 8 * item * (begins % packed))
            with k.loops((blocks,)) as (block,):
                cut_words(k, covering[None, row, block], fragment[(None, row), 0, block], bits)
        tile.staged(k, fragment, shared[0], name)
    with k.otherwise(), k.loop("column", packed, unroll=False) as column:
        single = k.registers("tSrE", pointer.dtype.name, Layout((packed, blocks)))
        guard = Guard(tScS[(column, None), 0, None], extents, halo=True)
        k.copy(Vector(1), tSgS[(column, None), 0, None], single, guard=guard)
        k.copy(Vector(1), single, by_element.partition(shared[1], k.thread)[(column, None), 0, None])


def _rest(tile: TransposedTile) -> tuple[int, int]:
    """How often a block's threads read, along J and I."""
    along_j, along_i = (t // p for t, p in zip(tile.read, tile.reader.tile, strict=True))
    return along_j, along_i


def along_i(shared: Tensor, j: IntLike, i: IntLike, fragment: Tensor) -> Tensor:
    """What a fragment holds of a tile's column ``j``, from ``i`` on."""
    return domain_offset((j, i), shared).map_domain(lambda layout: composition(layout[1], fragment.layout))
