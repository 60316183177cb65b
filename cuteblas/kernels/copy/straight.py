"""``copy``: vectors through registers, from one strided layout to another along the same mode I.

Where rows of 1- and 2-byte elements begin anywhere, a thread writes vectors at multiples of 16
bytes and reads the aligned words of 4 bytes that cover them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from ...codegen import (
    CodegenError,
    GeneratedKernel,
    GlobalTensor,
    KernelBuilder,
    TensorParam,
    TiledCopy,
    Vector,
    integer,
)
from ...layout import Tensor
from ...layout.symbolic import Expr, IntLike, all_of
from ..common import (
    ELEMENTS,
    Pair,
    builder,
    coordinates,
    cut_words,
    existing,
    part_of_tile,
    tile_of_block,
    vectors_along,
)

_WORD, _VECTOR = 4, 16                # bytes


@dataclass(frozen=True)
class CopyConfig:
    """The configuration of a ``copy`` kernel. ``word`` is the bytes that extents and strides
    count: a vector, or an element where rows begin ``anywhere``; ``tile`` is in words, or vectors
    of 16 bytes. ``src_unit`` and ``dst_unit``: mode I has stride 1. A ``paired`` kernel makes two
    copies."""

    word: int
    tile: Pair
    threads: int = 256
    src_unit: bool = True
    dst_unit: bool = True
    modes: int = 0
    wide: bool = False
    anywhere: bool = False
    paired: bool = False

    def __post_init__(self) -> None:
        if self.anywhere and (self.word >= _WORD or not self.src_unit or not self.dst_unit):
            raise CodegenError(
                f"rows that begin anywhere need contiguous elements of less than {_WORD} bytes, got {self}"
            )

    @property
    def name(self) -> str:
        units = f"{'u' if self.src_unit else 's'}{'u' if self.dst_unit else 's'}"
        return (
            f"copy_{'ragged_' if self.anywhere else ''}b{8 * self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_{units}"
            f"_m{self.modes}{'_wide' if self.wide else ''}{'_paired' if self.paired else ''}"
        )

    family: ClassVar[str] = "copy"

    @property
    def kind(self) -> str:
        return "RaggedCopyConfig" if self.anywhere else "CopyConfig"

    @property
    def vector(self) -> int:
        return _VECTOR // self.word if self.anywhere else 1


@cache
def copy_kernel(config: CopyConfig) -> GeneratedKernel:
    """Generate ``D[i, j, batch] = S[i, j, batch]`` on words, which extents and strides count."""
    # Where rows begin anywhere, S's lowest element and its end are parameters, counted from S on.
    word = f"b{8 * config.word}"
    along = min(config.tile[0], config.threads)
    tiled = vectors_along(0, (along, config.threads // along))
    k = builder(
        config,
        config.threads,
        summary=f"D[i, j, batch] = S[i, j, batch] in words of {config.word} bytes, tile {config.tile}"
        f"{' vectors, rows begin anywhere' if config.anywhere else ''}"
    )
    S, D = k.tensors(TensorParam("S", "ij", word, (1 if config.src_unit else None, None)),
                     TensorParam("D", "ij", word, (1 if config.dst_unit else None, None),
                                 written=True), modes="ij", batch=config.modes)
    if config.anywhere:
        _vectors_anywhere(k, config, tiled, S, D)
    else:
        _words(k, config, tiled, S, D)
    return k.build()


def _words(k: KernelBuilder, config: CopyConfig, tiled: TiledCopy, S: GlobalTensor,
           D: GlobalTensor) -> None:
    extents = k.extent("i"), k.extent("j")
    bi, bj, index = tile_of_block(k, extents, config.tile, config.modes > 0)

    mine = part_of_tile(tiled, config.tile, (bi, bj), k.thread)
    tSgS, tSgD = k.pin("tSgS", mine(S.at(index))), k.pin("tSgD", mine(D.at(index)))
    guard = existing(k, "tScS", mine, extents)
    tSrS = k.registers("tSrS", S.address.dtype.name,
                       (1, *tiled.passes(config.tile, config.name)))
    k.copy(ELEMENTS, tSgS, tSrS, guard=guard)
    k.copy(ELEMENTS, tSrS, tSgD, guard=guard)


@dataclass(frozen=True)
class _TargetVector:
    """A vector of the target that a thread writes; ``whole`` if all of it exists, and what covers
    it in the source is the array's memory."""

    j: IntLike
    i: IntLike
    words: Tensor
    source: IntLike
    whole: Expr


def _vectors_anywhere(k: KernelBuilder, config: CopyConfig, tiled: TiledCopy, S: GlobalTensor,
                      D: GlobalTensor) -> None:
    element, word, vector, packed = S.address.dtype.name, f"b{8 * _WORD}", config.vector, _WORD // config.word
    I, J = k.extent("i"), k.extent("j")
    bi, bj, index = tile_of_block(k, (I + (vector - 1), J),
                                  (config.tile[0] * vector, config.tile[1]), config.modes > 0)
    source, target = S.at(index), D.at(index)
    words = k.lines("S_words", S.address, word, _WORD, spanned=True)
    vectors = k.lines("D_vectors", D.address, word, _VECTOR)
    tVcV = coordinates(k, "tVcV", tiled, config.tile)
    (_columns, rows), wide = tiled.passes(config.tile, config.name), vector // packed

    k.comment("The vectors of each row of the target: a thread's begins at the row's element i")
    mine = []
    for n in range(rows):
        column, row = tVcV((0, 0), 0, n)
        j = k.let(f"j_{n}", bj * config.tile[1] + row)
        begin = k.let(f"begin_{n}", vectors.place(target(0, j)))
        i = k.let(f"i_{n}", (bi * config.tile[0] + column) * vector - begin % vector)
        exists = (integer(j) < J) & (integer(i) >= 0) & (integer(i + vector) <= I)
        at = k.let(f"at_{n}", source(i, j))
        whole = k.flag(f"whole_{n}", exists & words.covered([at], vector))
        mine.append(_TargetVector(j, i, vectors.run(begin + i, wide, whole=wide), words.place(at),
                                  whole))
    k.comment("In: the aligned words that cover vectors of which all elements exist")
    covering = k.registers("tVrC", word, (wide + 1, rows))
    for n, each in enumerate(mine):
        with k.when(each.whole.ne(0)):
            k.copy(ELEMENTS, words.run(each.source, wide + 1), covering[None, n])
    k.comment("Out: vectors, or elements one by one where rows begin and end")
    for n, each in enumerate(mine):
        with k.when(each.whole.ne(0)):
            cut = k.registers("tVrV", word, wide)
            cut_words(k, covering[None, n], cut, words.bits(each.source))
            k.copy(Vector(wide), cut, each.words)
        with k.otherwise():
            single = k.registers("tVrE", element, (1, vector))
            for tensor, into in ((source, True), (target, False)):
                for i, e in ((each.i + e, single[None, e]) for e in range(vector)):
                    with k.when(all_of(each.j < J, i > -1, i < I)):
                        k.copy(ELEMENTS, *((tensor(i, each.j), e) if into
                                           else (e, tensor(i, each.j))))
