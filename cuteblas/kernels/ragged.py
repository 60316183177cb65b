"""``transpose`` between matrices whose rows begin anywhere: at addresses that are multiples of an element only.

Memory is written in sectors and lines: a sector of which two blocks write a part each costs more than its bytes. So a tile of the
target is not cut at multiples of the tile, which lie somewhere in a sector, but at borders of sectors, which lie elsewhere in every
row: the columns of a block are skewed. The block reads the rows of the source that any of its columns needs: those of its tile and,
before them, as many as a sector has elements, which a neighbour reads too.

In shared memory elements lie as in other transposes. Elements smaller than 4 bytes are packed into words there, and a word of the
target may begin in the midst of one: it is cut from two neighbours. The words of the source's rows are cut likewise from aligned
words that cover them, so that no access is smaller than 4 bytes except where rows begin and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.engine import CodegenError, Pointer
from ..codegen.kernel import GeneratedKernel
from ..codegen.tiled import TiledCopy
from ..layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    composition,
    counting_iterator,
    domain_offset,
    local_tile,
    make_identity_tensor,
)
from ..layout.symbolic import IntLike, all_of, less, to_c
from .common import cut_words, matrix_at, tile_of_block
from .permute import TransposeConfig, TransposedTile, batch_modes, inner_batch, transposed_tile

__all__ = ["RaggedConfig", "ragged_transpose_kernel"]


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
        return f"{super().name.replace('transpose', 'transpose_ragged', 1)}_c{self.cut}"


@cache
def ragged_transpose_kernel(config: RaggedConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel for any alignment: ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S and I in D.

    Parameters of the kernel: pointers S, D; extents J, I; stride of S along i and of D along j; the extents of the batch modes,
    then the strides of S there, then of D. All count elements.
    """
    k, tile = transposed_tile(config, "D[j, i, batch] = S[j, i, batch], J contiguous in S and I in D, rows begin anywhere")
    element = f"b{8 * config.item}"
    ps, pd = k.pointer("S", element, alignment=config.item), k.pointer("D", element, const=False, alignment=config.item)
    extents = J, I = k.integer("J"), k.integer("I")
    ds, dd = (1, k.integer("dS_i", lo=None)), (k.integer("dD_j", lo=None), 1)
    batch, batch_s, batch_d = batch_modes(k, config.modes)
    bj, bi, index = tile_of_block(k, (J, I + config.border), config.tile, config.modes > 0, config.group,
                               inner_batch(k, config, batch))
    source, target = matrix_at(ps, extents, ds, batch, batch_s, index), matrix_at(pd, extents, dd, batch, batch_d, index)

    corner = k.let("first_j", bj * config.tile[0]), k.let("first_i", bi * config.tile[1] - config.border)
    sT = k.shared("sT", tile.word, config.shared)
    sE = k.shared("sE", element, config.elements, over="sT")
    if config.packed == 1:
        _elements_in(k, tile, source, corner, extents, sT)
    else:
        _words_in(k, tile, ps, source, corner, extents, (sT, sE))
    k.barrier()

    words, vector, border = tile.vs, tile.vs * config.packed, config.border
    lines, before = k.aligned_down("D_cut", pd, tile.word, config.cut)
    tDcD = k.pin("tDcD", tile.writer.partition(make_identity_tensor(tile.written), k.thread))
    rows, vectors = (t // p for t, p in zip(tile.written, tile.writer.tile, strict=True))

    @contextmanager
    def column(r: IntLike) -> Iterator[tuple[IntLike, IntLike, IntLike, IntLike]]:
        """A column of the tile if it exists: which, its number in the target, where that row begins behind ``lines``, and how far
        behind the tile's corner it is cut.
        """
        which = k.let("column", tDcD((0, 0), r, 0)[0])
        j = k.let("j", corner[0] + which)
        with k.when(less(j, J)):
            begin = k.let("begin", before + target.engine.offset + target.layout(j, 0))
            yield which, j, begin, k.let("later", (-begin) % border)

    k.comment("Columns out, each from cut to cut")
    with k.loop("r", rows, unroll=True) as r, column(r) as (which, _, begin, later):
        cut = k.let("cut", (begin + border - 1) // border + bi * (config.tile[1] // border) - 1)
        with k.loop("n", vectors, unroll=True) as n:
            word = k.let("word", tDcD((0, 0), r, n)[1])
            i = k.let("i", corner[1] + later + word * config.packed)
            with k.when(all_of(less(-1, i), less(i + (vector - 1), I))):
                held = k.registers("tDrS", tile.word, Layout(words + (config.packed > 1)))
                k.copy(_along_i(sT, which, later // config.packed + word, held), held, width=1)
                if config.packed > 1:
                    cut_words(k, held, held, 8 * config.item * (later % config.packed))
                whole = Tensor(held.engine, Layout(words))
                k.copy(whole, Tensor(lines + (cut * (border // config.packed) + word), whole.layout), width=words)
    if vector > 1:
        k.comment("Where rows begin and end: one element at a time")
        ends = k.flag("ends", f"{to_c(corner[1])} < 0 || {to_c(corner[1] + (config.rows - 1))} >= {to_c(I)}")
        with k.when(ends.ne(0)), k.loop("r", rows, unroll=False) as r, column(r) as (which, j, _, later), \
                k.loop("n", vectors, unroll=False) as n:
            at = k.let("at", later + tDcD((0, 0), r, n)[1] * config.packed)
            i = k.let("i", corner[1] + at)
            partly = k.flag("partly", f"{to_c(i)} < 0 || {to_c(i + (vector - 1))} >= {to_c(I)}")
            with k.when(all_of(partly.ne(0), less(-vector, i), less(i, I))), k.loop("e", vector, unroll=False) as e:
                single = k.registers("tDrE", element, Layout(1))
                with k.when(all_of(less(-1, i + e), less(i + e, I))):
                    k.copy(_along_i(sE, which, at + e, single), single, width=1)
                    k.copy(single, Tensor(target.engine + target.layout(j, i + e), single.layout), width=1)
    return k.build()


def _elements_in(k: KernelBuilder, tile: TransposedTile, source: Tensor, corner: tuple[IntLike, IntLike],
                 extents: tuple[IntLike, IntLike], sT: Tensor) -> None:
    """Read what exists of a tile to shared memory."""
    k.comment("Rows in")
    gS, cS = (local_tile(domain_offset(corner, x), tile.read, (0, 0)) for x in (source, make_identity_tensor(extents)))
    tSgS = k.pin("tSgS", tile.reader.partition(gS, k.thread))
    guard = Guard(k.pin("tScS", tile.reader.partition(cS, k.thread)), extents, halo=True)
    fragment = k.registers("tSrS", tile.word, Layout(((1, 1), *_rest(tile))))
    k.copy(tSgS, fragment, width=1, guard=guard)
    tile.staged(k, fragment, sT)


def _words_in(k: KernelBuilder, tile: TransposedTile, pointer: Pointer, source: Tensor, corner: tuple[IntLike, IntLike],
              extents: tuple[IntLike, IntLike], shared: tuple[Tensor, Tensor]) -> None:
    """Read what exists of a tile of small elements to shared memory, given by words and by elements.

    Threads read blocks of as many rows as a word has elements, a word of each: two aligned words cover it.
    """
    packed, item = tile.packed, pointer.dtype.bytes
    by_element = TiledCopy(tile.reader.threads, (packed, packed))
    blocks = _rest(tile)[1]
    gS, cS = (local_tile(domain_offset(corner, x), (tile.read[0] * packed, tile.read[1]), (0, 0))
              for x in (source, make_identity_tensor(extents)))
    tSgS, tScS = k.pin("tSgS", by_element.partition(gS, k.thread)), k.pin("tScS", by_element.partition(cS, k.thread))
    words, before = k.aligned_down("S_words", pointer, tile.word, packed * item)
    j = tScS((0, 0), 0, 0)[0]

    def begin(row: IntLike, block: IntLike) -> IntLike:
        """Where a thread's word of a row begins, in elements behind the first aligned word."""
        return before + source.engine.offset + source.layout(j, tScS((0, row), 0, block)[1])

    k.comment("Rows in: the aligned words that cover the thread's word lie inside of the row")
    with k.when(all_of(less(packed - 2, j), less(j + (2 * packed - 1), extents[0]))):
        covering = k.registers("tSrC", tile.word, Layout((2, packed, blocks)))
        with k.loops((packed, blocks)) as (row, block):
            exists = Guard(Tensor(counting_iterator(tScS((0, row), 0, block)), Layout(2, 0)), extents, halo=True)
            k.copy(Tensor(words + begin(row, block) // packed, Layout(2)), covering[None, row, block], width=1, guard=exists)
        fragment = k.registers("tSrS", tile.word, Layout(((1, packed), 1, blocks)))
        with k.loops((packed, blocks)) as (row, block):
            cut_words(k, covering[None, row, block], fragment[(None, row), 0, block], 8 * item * (begin(row, block) % packed))
        tile.staged(k, fragment, shared[0])
    with k.otherwise(), k.loop("column", packed, unroll=False) as column:
        single = k.registers("tSrE", pointer.dtype.name, Layout((packed, blocks)))
        guard = Guard(tScS[(column, None), 0, None], extents, halo=True)
        k.copy(tSgS[(column, None), 0, None], single, width=1, guard=guard)
        k.copy(single, by_element.partition(shared[1], k.thread)[(column, None), 0, None], width=1)


def _rest(tile: TransposedTile) -> tuple[int, int]:
    """How often a block's threads read, along J and I."""
    along_j, along_i = (t // p for t, p in zip(tile.read, tile.reader.tile, strict=True))
    return along_j, along_i


def _along_i(shared: Tensor, j: IntLike, i: IntLike, fragment: Tensor) -> Tensor:
    """What a fragment holds of a tile's column ``j``, from ``i`` on."""
    return domain_offset((j, i), shared).map_domain(lambda layout: composition(layout[1], fragment.layout))
