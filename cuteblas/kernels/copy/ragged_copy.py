"""``copy`` between rows that begin anywhere: at addresses that are multiples of an element only, of less than 4 bytes.

A thread writes vectors of 16 bytes that begin at multiples of 16 bytes, wherever the target's rows begin. What it writes may begin
anywhere in the source: it reads the aligned words of 4 bytes that cover it, one more than a vector has, and extracts its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import KernelBuilder
from ...codegen.copies import Vector
from ...codegen.kernel import GeneratedKernel
from ...codegen.paired import PairBuilder
from ...codegen.tiled import TiledCopy
from ...codegen.values import integer
from ...layout import Layout, Tensor, make_identity_tensor
from ...layout.symbolic import IntLike, all_of, less
from ..common import cut_words, matrix_at, tile_of_block
from .permute import batch_modes

__all__ = ["RaggedCopyConfig", "ragged_copy_kernel"]

_WORD, _VECTOR = 4, 16                # bytes


@dataclass(frozen=True)
class RaggedCopyConfig:
    """What a ``copy`` kernel for rows that begin anywhere is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element, 1 or 2.
    tile : tuple of int
        Vectors along mode I, one for each thread there, and rows along the next mode that a block moves.
    threads : int
        Threads of a block.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    paired : bool
        Whether it makes two copies (:class:`~cuteblas.codegen.paired.PairBuilder`).
    """

    item: int
    tile: tuple[int, int]
    threads: int = 256
    modes: int = 0
    wide: bool = False
    paired: bool = False

    @property
    def vector(self) -> int:
        """Elements of a vector."""
        return _VECTOR // self.item

    @property
    def packed(self) -> int:
        """Elements of a word."""
        return _WORD // self.item

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return (f"copy_ragged_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_m{self.modes}"
                f"{'_wide' if self.wide else ''}{'_paired' if self.paired else ''}")


@cache
def ragged_copy_kernel(config: RaggedCopyConfig) -> GeneratedKernel:
    """Generate a ``copy`` kernel for any alignment: ``D[i, j, batch] = S[i, j, batch]``, I contiguous in both.

    Parameters of the kernel: pointers S, D; extents I, J; strides of S and of D along j; the extents of the batch modes, then the
    strides of S there, then of D; the lowest element that belongs to S and the end of S. All count elements, the last two from S
    on.
    """
    element, word, vector, packed = f"b{8 * config.item}", f"b{8 * _WORD}", config.vector, config.packed
    builder = PairBuilder if config.paired else KernelBuilder
    k = builder(config.name, config.threads, wide=config.wide,
                summary=f"D[i, j, batch] = S[i, j, batch], rows begin anywhere: elements of {config.item} bytes, "
                        f"tile (I, J) = {(config.tile[0] * vector, config.tile[1])}")
    ps, pd = k.pointer("S", element, alignment=config.item), k.pointer("D", element, const=False, alignment=config.item)
    extents = I, J = k.integer("I"), k.integer("J")
    ds, dd = (1, k.integer("dS_j", lo=None)), (1, k.integer("dD_j", lo=None))
    batch, batch_s, batch_d = batch_modes(k, config.modes)
    lowest, end = k.integer("S_lowest", lo=None), k.integer("S_end")
    tile = config.tile[0] * vector, config.tile[1]
    bi, bj, index = tile_of_block(k, (I + (vector - 1), J), tile, config.modes > 0)
    source, target = matrix_at(ps, extents, ds, batch, batch_s, index), matrix_at(pd, extents, dd, batch, batch_d, index)

    words, ahead = k.aligned_down("S_words", ps, word, _WORD)
    vectors, before = k.aligned_down("D_vectors", pd, word, _VECTOR)
    tiled = TiledCopy(Layout((config.tile[0], config.threads // config.tile[0])), (1, 1))
    tVcV = k.pin("tVcV", tiled.partition(make_identity_tensor(config.tile), k.thread))
    rows = config.tile[1] // tiled.tile[1]

    def row_of(tensor: Tensor, j: IntLike) -> IntLike:
        return tensor.engine.offset + tensor.layout(0, j)

    k.comment("The vectors of each row of the target: a thread's begins at the row's element i")
    places = []
    for n in range(rows):
        column, row = tVcV((0, 0), 0, n)
        j = k.let(f"j_{n}", bj * config.tile[1] + row)
        begin = k.let(f"begin_{n}", before + row_of(target, j))
        i = k.let(f"i_{n}", (bi * config.tile[0] + column) * vector - begin % vector)
        at = k.let(f"at_{n}", row_of(source, j) + i)
        exists = (integer(j) < J) & (integer(i) >= 0) & (integer(i + vector) <= I)
        inside = (integer(at) >= lowest + (packed - 1)) & (integer(at + (vector + packed)) <= end)
        whole = k.flag(f"whole_{n}", exists & inside)
        places.append((j, begin, i, at, whole))
    k.comment("In: the aligned words that cover vectors of which all elements exist")
    covering = k.registers("tVrC", word, Layout((vector // packed + 1, rows)))
    for n, (_j, _begin, _i, at, whole) in enumerate(places):
        with k.when(whole.ne(0)):
            here = covering[None, n]
            k.copy(Vector(1), Tensor(words + (ahead + at) // packed, here.layout), here)
    k.comment("Out: vectors, or elements one by one where rows begin and end")
    for n, (j, begin, i, at, whole) in enumerate(places):
        with k.when(whole.ne(0)):
            cut = k.registers("tVrV", word, Layout(vector // packed))
            cut_words(k, covering[None, n], cut, 8 * config.item * ((ahead + at) % packed))
            k.copy(Vector(vector // packed), cut, Tensor(vectors + (begin + i) // vector * (vector // packed), cut.layout))
        with k.otherwise():
            single = k.registers("tVrE", element, Layout(vector))
            for tensor, into in ((source, True), (target, False)):
                for e in range(vector):
                    with k.when(all_of(less(j, J), less(-1, i + e), less(i + e, I))):
                        held = Tensor(single.engine + e, Layout(1))
                        there = Tensor(tensor.engine + tensor.layout(i + e, j), Layout(1))
                        k.copy(Vector(1), *((there, held) if into else (held, there)))
    return k.build()
