"""``transpose`` from short rows that follow each other without gaps: what is cut among blocks is the source's memory.

The mirror of :mod:`~cuteblas.kernels.copy.short_rows`. A block has some hundred rows of some bytes each, as an image has pixels,
and those are one piece of memory: it is copied as aligned vectors to shared memory, unchanged. From there each thread assembles
words of the target from elements that are a row apart.

Lanes are neighbours along I, so what they read from shared memory at once is as many words apart as a row has elements. If that
is odd, there are no bank conflicts, and vectors are copied asynchronously. For each factor 2 that it has, one bit of the line's
number is added (exclusive or) to the word's, so that the words of a vector are stored one by one.

Rows of the target begin anywhere. They are cut among blocks where sectors begin, which is elsewhere in every row; so a block brings
as many rows more as a sector has elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import KernelBuilder
from ...codegen.copies import CpAsync, Vector
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.values import integer
from ...layout import ComposedLayout, Layout, Tensor
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, equal, less, minimum
from ..common import join_words, matrix_at
from .short_rows import PieceConfig, batch_modes

__all__ = ["FromShortRowsConfig", "from_short_rows_kernel"]

_VECTOR, _SECTOR = 16, 32


@dataclass(frozen=True)
class FromShortRowsConfig(PieceConfig):
    """What a ``transpose`` kernel from short rows is specialised on: the long mode is I."""

    def __post_init__(self) -> None:
        if self.threads[0] < self.border or self.tile[1] % self.border:
            raise CodegenError("threads along I are at least as many as a sector has elements, and a block's rows whole sectors, "
                               f"got {self}")

    @property
    def tile(self) -> tuple[int, int]:
        """The longest row of the source, and rows that a block moves: whole sectors of the target."""
        return self.threads[1] * self.words[1], self.threads[0] * self.words[0] * self.packed

    @property
    def border(self) -> int:
        """Elements of a sector."""
        return _SECTOR // self.item

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return (f"transpose_from_short_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_t{self.threads[0]}x{self.threads[1]}"
                f"_z{self.twos}_m{self.modes}{'_wide' if self.wide else ''}")


@cache
def from_short_rows_kernel(config: FromShortRowsConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel: ``D[j, i, batch] = S[j, i, batch]``, (J, I) in S, I contiguous in D.

    The source's rows have no more elements than the tile.

    Parameters of the kernel: pointers S, D; extents J, I; stride of D along j; the extents of the batch modes, then the strides of
    S there, then of D. All count elements.
    """
    item, packed, border, (_, rows) = config.item, config.packed, config.border, config.tile
    element, word, threads = f"b{8 * item}", f"b{8 * config.word}", config.threads[0] * config.threads[1]
    k = KernelBuilder(config.name, threads, wide=config.wide,
                      summary="D[j, i, batch] = S[j, i, batch], (J, I) in S, I contiguous in D: elements of "
                              f"{item} bytes, tile (J, I) = {config.tile}")
    ps, pd = k.pointer("S", element, alignment=item), k.pointer("D", element, const=False, alignment=item)
    multiple = 1 << config.twos
    extents = J, I = k.integer("J", typical=max(1, (config.tile[0] // multiple - 1) | 1) * multiple), k.integer("I")
    dd = (k.integer("dD_j", lo=None), 1)
    batch, batch_s, batch_d = batch_modes(k, config.modes)
    block, tiles = k.block_index("block", "x"), k.let("tiles", ceil_div(I, rows))
    first_i, index = (k.let("first_i", block % tiles * rows), k.let("batch", block // tiles)) if batch else \
        (k.let("first_i", block * rows), 0)
    source, target = matrix_at(ps, extents, (1, J), batch, batch_s, index), matrix_at(pd, extents, dd, batch, batch_d, index)

    k.comment("The piece of the source: what covers it, and where it lies in shared memory")
    vector, per_vector = _VECTOR // item, _VECTOR // config.word
    vectors, before = k.aligned_down("S_vectors", ps, word, _VECTOR)
    matrix = k.let("matrix", before + source.engine.offset + source.layout(0, 0))
    begin = k.let("begin", matrix + first_i * J)
    shift = k.let("shift", begin % vector)
    count = k.let("count", ceil_div(shift + minimum(I - first_i, rows + border - 1) * J, vector))
    units = -(-(config.tile[0] * (rows + border - 1) + vector - 1) // vector)
    sW = k.shared("sW", word, ComposedLayout(config.swizzle(config.word), 0, Layout(units * per_vector)))
    sE = k.shared("sE", element, ComposedLayout(config.swizzle(item), 0, Layout(units * vector)), over="sW")
    sS = Tensor(sE.engine, ComposedLayout(config.swizzle(item), shift, Layout((config.tile[0], rows + border), (1, J))))

    def held(j: IntLike, i: IntLike) -> Tensor:
        """An element of the piece, in shared memory."""
        return Tensor(sE.engine + sS(j, i).index, Layout(1))

    k.comment("The piece in")
    first_vector = begin // vector

    def at(v: IntLike) -> IntLike:
        """Where a vector begins in the matrix."""
        return (first_vector + v) * vector - matrix

    def whole(v: IntLike) -> Expr | bool:
        return all_of(less(-1, at(v)), less(at(v) + (vector - 1), I * J))

    def source_of(v: IntLike) -> Tensor:
        return Tensor(vectors + (first_vector + v) * per_vector, Layout(per_vector))

    if config.twos:                                     # by words, each to its own place
        most = -(-units // threads)
        fragment = k.registers("tSrS", word, Layout((per_vector, most)))
        mine = [k.thread + q * threads for q in range(most)]
        for q, v in enumerate(mine):
            k.copy(Vector(per_vector), source_of(v), fragment[None, q], when=all_of(less(v, count), whole(v)))
        for q, v in enumerate(mine):
            with k.when(less(v, count)):
                for w in range(per_vector):
                    place = Tensor(sW.engine + sW(v * per_vector + w).index, Layout(1))
                    k.copy(Vector(1), Tensor(fragment.engine + fragment.layout(w, q), Layout(1)), place)
    else:
        with k.loop("v", count, start=k.thread, step=threads) as v, k.when(whole(v)):
            k.copy(CpAsync(per_vector), source_of(v), Tensor(sW.engine + v * per_vector, Layout(per_vector)))
        k.commit()
        k.wait(0)
    if vector > 1:
        k.comment("Vectors that are not whole in the matrix: their elements, one by one")
        ends = k.flag("ends", (integer(at(0)) < 0) | (integer(at(count)) > I * J))
        with k.when(ends.ne(0)):
            if config.twos:
                k.barrier()
            both: tuple[tuple[str, IntLike, Expr | bool], ...] = (("first", 0, less(at(0), 0)),
                                                                  ("last", count - 1, less(I * J, at(count))))
            for what, v, outside in both:
                with k.when(all_of(less(k.thread, vector), outside)):
                    mine_at = k.let(what, at(v) + k.thread)
                    with k.when(all_of(less(-1, mine_at), less(mine_at, I * J))):
                        single = k.registers("tSrE", element, Layout(1))
                        k.copy(Vector(1), Tensor(ps + (source.engine.offset + source.layout(0, 0) + mine_at), Layout(1)), single)
                        place = Tensor(sE.engine + sE(v * vector + k.thread).index, Layout(1))
                        k.copy(Vector(1), single, place)
    k.barrier()

    k.comment("Rows of the target out, each from sector to sector")
    words, ahead = k.aligned_down("D_words", pd, word, _SECTOR)
    along_i, along_j = k.let("lane", k.thread % config.threads[0]), k.let("row", k.thread // config.threads[0])
    with k.loop("n", config.words[1], unroll=True) as n:
        j = k.let("j", along_j + n * config.threads[1])
        with k.when(less(j, J)):
            row = k.let("begins", ahead + target.engine.offset + target.layout(j, first_i))
            later = k.let("later", -row % border)
            base = k.let("base", (row + later) // packed)
            for x in range(config.words[0]):
                t = along_i + x * config.threads[0]
                i = k.let(f"i_{x}", later + t * packed)
                with k.when(less(first_i + i + (packed - 1), I)):
                    elements, joined = k.registers("tDrE", element, Layout(packed)), k.registers("tDrW", word, Layout(1))
                    for c in range(packed):
                        k.copy(Vector(1), held(j, i + c), Tensor(elements.engine + c, Layout(1)))
                    join_words(k, elements, joined)
                    k.copy(Vector(1), joined, Tensor(words + (base + t), Layout(1)))
                if packed > 1:
                    with k.otherwise(), k.loop("e", packed - 1, unroll=False) as e, k.when(less(first_i + i + e, I)):
                        _element_out(k, held(j, i + e), target, (j, first_i + i + e))
            with k.when(all_of(equal(first_i, 0), less(along_i, minimum(later, I)))):
                _element_out(k, held(j, along_i), target, (j, along_i))
    return k.build()


def _element_out(k: KernelBuilder, held: Tensor, target: Tensor, at: tuple[IntLike, IntLike]) -> None:
    """Write a single element from shared memory."""
    single = k.registers("tDr1", target.engine.dtype.name, Layout(1))
    k.copy(Vector(1), held, single)
    k.copy(Vector(1), single, Tensor(target.engine + target.layout(*at), Layout(1)))
