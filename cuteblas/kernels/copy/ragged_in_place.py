"""``transpose_in_place`` of square matrices whose rows begin anywhere: at addresses that are multiples of an element only.

A block exchanges two square tiles, as where rows are aligned: only then are the elements that it writes those that it has read, and
no block waits for another. So rows of tiles begin and end anywhere in a sector, and cannot be cut at sectors as where the target is
another array. But the whole sectors between are written by aligned vectors, and the elements before and after them, up to one
sector, one by one by neighbouring lanes: L2 counts what a warp writes to a sector once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import KernelBuilder
from ...codegen.copies import Vector
from ...codegen.engine import CodegenError, Pointer
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import TiledCopy
from ...codegen.values import integer
from ...layout import Layout, Tensor, make_identity_tensor
from ...layout.symbolic import IntLike, all_of, less, maximum, minimum
from ..common import cut_words, matrix_at
from .permute import InPlaceConfig, TransposedTile, pair_of_block, transposed_tile
from .ragged import along_i, words_in

__all__ = ["RaggedInPlaceConfig", "ragged_in_place_kernel"]

_SECTOR = 32


@dataclass(frozen=True)
class RaggedInPlaceConfig(InPlaceConfig):
    """What a ``transpose_in_place`` kernel for rows that begin anywhere is specialised on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.src_unit or self.load != self.word or self.store == self.item or _SECTOR % self.store:
            raise CodegenError(f"rows that begin anywhere are contiguous, read by words and written by vectors, got {self}")

    @property
    def border(self) -> int:
        """Elements of a sector."""
        return _SECTOR // self.item

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return super().name.replace("in_place", "ragged_in_place", 1)


@cache
def ragged_in_place_kernel(config: RaggedInPlaceConfig) -> GeneratedKernel:
    """Generate a ``transpose_in_place`` kernel for any alignment: the element (j, i) of every matrix changes places with (i, j).

    Words at the ends of a tile's rows hold elements of the next tile too, which its block may be writing: they are not used.

    Parameters of the kernel: pointer D; extent N; stride of D along i; the extents of the batch modes, then the strides of D there;
    of elements smaller than a word, the lowest that belongs to D and the end of D. All count elements, the last two from D on.
    """
    k, tile = transposed_tile(config, "D[j, i, batch] = D[i, j, batch] in place, for square matrices whose rows begin anywhere")
    element, side = f"b{8 * config.item}", config.tile[0]
    if tile.writer.tile[0] % config.border or config.threads > side * config.border:
        raise CodegenError(f"{config.name}: {config.threads} threads have no whole columns that are whole sectors apart")
    pointer = k.pointer("D", element, const=False, alignment=config.item)
    N, stride = k.integer("N"), k.integer("dD_i", lo=None)
    batch = tuple(k.integer(f"L{q}") for q in range(config.modes))
    strides = tuple(k.integer(f"dD_l{q}", lo=None) for q in range(config.modes))
    span = (k.integer("D_lowest", lo=None), k.integer("D_end")) if config.packed > 1 else ()
    p, q, index = pair_of_block(k, N, config, bool(batch))

    read = matrix_at(pointer, (N, N), (1, stride), batch, strides, index)
    written = matrix_at(pointer, (N, N), (stride, 1), batch, strides, index)
    sT, sU = k.shared("sT", tile.word, config.shared), k.shared("sU", tile.word, config.shared)
    eT, eU = k.shared("eT", element, config.elements, over="sT"), k.shared("eU", element, config.elements, over="sU")
    corner = k.let("first_p", p * side), k.let("first_q", q * side)
    words, before = k.aligned_down("D_words", pointer, tile.word, _SECTOR)
    if config.packed == 1:
        k.comment("Rows of both tiles in; on the diagonal the second has none")
        other = k.let("other", N * k.flag("two", integer(p) < q))
        rows_t = tile.rows_in(k, read, (q, p), (N, N))
        rows_u = tile.rows_in(k, read, (p, q), (other, other), "U")
        tile.staged(k, rows_t, sT)
        tile.staged(k, rows_u, sU, "U")
    else:
        memory = words, before, *span
        words_in(k, tile, pointer, memory, read, corner[::-1], (N, N), (sT, eT), "T")
        with k.when(less(p, q)):
            words_in(k, tile, pointer, memory, read, corner, (N, N), (sU, eU), "U")
    k.barrier()
    k.comment("Columns out, each tile to the place of the other")
    _columns_out(k, tile, config, (words, before), written, corner[::-1], (sT, eT))
    with k.when(less(p, q)):
        _columns_out(k, tile, config, (words, before), written, corner, (sU, eU), "U")
    return k.build()


def _columns_out(k: KernelBuilder, tile: TransposedTile, config: RaggedInPlaceConfig, memory: tuple[Pointer, IntLike],
                 target: Tensor, corner: tuple[IntLike, IntLike], shared: tuple[Tensor, Tensor], name: str = "T") -> None:
    """Write a tile to a matrix: of each column whole sectors by aligned vectors, what is before and after them by elements."""
    (lines, before), (sT, sE), packed = memory, shared, config.packed
    words, border, side, element = tile.vs, config.border, config.tile[0], f"b{8 * config.item}"
    extent = target.layout.shape[0]
    tDcD = k.pin(f"tDc{name}", tile.writer.partition(make_identity_tensor(tile.written), k.thread))
    rows, vectors = (t // p for t, p in zip(tile.written, tile.writer.tile, strict=True))
    first = tDcD((0, 0), 0, 0)[0]
    end = k.let(f"end_{name}", minimum(extent - corner[1], side))

    def column_begin(which: IntLike) -> IntLike:
        """Where a column begins in the target, after ``lines``."""
        return before + target.engine.offset + target.layout(corner[0] + which, corner[1])

    # The columns of a thread are whole sectors apart: they begin at the same place in a sector and in the tile.
    later = k.let(f"later_{name}", (-column_begin(first)) % border)
    last = k.let(f"last_{name}", later + maximum(end - later, 0) // border * border)
    for n in range(vectors):
        word = tDcD((0, 0), 0, n)[1]
        # A word is extracted from two; the last of a column, which has none after it, is a whole one, and the first is read too.
        at = [(later // packed + word + w) % (side // packed) for w in range(words + (packed > 1))]
        places = [k.let(f"place_{name}{n}_{w}", sT(first, i).index) for w, i in enumerate(at)]
        with k.when(less(later + word * packed, last)), k.loop("r", rows, unroll=True) as r:
            which = tDcD((0, 0), r, 0)[0]
            with k.when(less(corner[0] + which, extent)):
                held = k.registers("tDrS", tile.word, Layout(words + (packed > 1)))
                for w, place in enumerate(places):
                    word_at = sT.engine + (place ^ r * tile.writer.tile[0])
                    k.copy(Vector(1), Tensor(word_at, Layout(1)), Tensor(held.engine + w, Layout(1)))
                if packed > 1:
                    cut_words(k, held, held, 8 * config.item * (later % packed))
                whole = Tensor(held.engine, Layout(words))
                begin = k.let("begin", (column_begin(which) + border - 1) // border)
                k.copy(Vector(words), whole, Tensor(lines + (begin * (border // packed) + word), whole.layout))

    k.comment("Before and behind them: of whole columns as many elements as a sector has")
    ends = TiledCopy(Layout((config.threads // border, border), (border, 1)), (1, 1))
    tEcD = k.pin(f"tEc{name}", ends.partition(make_identity_tensor((side, border)), k.thread))

    def single(which: IntLike, e: IntLike) -> None:
        held = k.registers("tErE", element, Layout(1))
        k.copy(Vector(1), along_i(sE, which, e, held), held)
        k.copy(Vector(1), held, Tensor(target.engine + target.layout(corner[0] + which, corner[1] + e), held.layout))

    with k.when(less(side - 1, end)), k.loop("r", side // ends.tile[0], unroll=True) as r:
        which, e = tEcD((0, 0), r, 0)
        later = k.let("later", (-column_begin(which)) % border)
        with k.when(all_of(less(corner[0] + which, extent), less(0, later))):
            behind = k.flag("behind", integer(e) >= later)
            single(which, e + behind * (side - border))
    with k.otherwise(), k.loop("r", side // ends.tile[0], unroll=False) as r:
        which, e = tEcD((0, 0), r, 0)
        with k.when(less(corner[0] + which, extent)):
            later = k.let("later", (-column_begin(which)) % border)
            last = k.let("last", later + maximum(end - later, 0) // border * border)
            for start, stop in ((0, minimum(later, end)), (last, end)):
                with k.when(less(start + e, stop)):
                    single(which, start + e)
