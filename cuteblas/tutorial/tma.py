"""``tma_copy`` and ``tma_transpose``: copies by the tensor memory accelerator of Hopper and later.

TMA takes coordinates: a tensor whose strides are basis elements is tiled like one in memory. A
copy loads a box into shared memory and stores it; a transpose loads a swizzled tile, whose columns
threads read without conflicts (CuTe, "CuTe TMA Tensors"; PTX ISA, "Tensor Data Movement").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..codegen.architectures import oldest_with
from ..codegen.builder import Guard, KernelBuilder
from ..codegen.copies import Vector
from ..codegen.engine import CodegenError
from ..codegen.kernel import GeneratedKernel
from ..codegen.mbarrier import Mbarriers, initialise
from ..codegen.signature import TensorParam
from ..codegen.tiled import TiledCopy
from ..codegen.tma import TmaBox, TmaLoad, TmaStore, tma_store_wait
from ..kernels.common import tile_of_block, transpose_words
from ..layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    idx2crd,
    local_tile,
    make_identity_tensor,
    select,
)

_LINE, _CHUNK, _WORD = 128, 16, 4


@dataclass(frozen=True)
class TmaCopyConfig:
    """The configuration of a ``tma_copy`` kernel: bytes of an element (1, 2, 4, 8), the tile along
    I (contiguous) and J, and at most 3 batch modes."""

    item: int
    tile: tuple[int, int]
    modes: int = 0

    @property
    def box(self) -> TmaBox:
        return TmaBox(f"b{8 * self.item}", ComposedLayout(Swizzle(0, 0, 0), 0, Layout(self.tile)))

    @property
    def name(self) -> str:
        return f"tma_copy_b{8 * self.item}_{self.tile[0]}x{self.tile[1]}_m{self.modes}"


@cache
def tma_copy(config: TmaCopyConfig) -> GeneratedKernel:
    """Generate ``D[i, j, batch] = S[i, j, batch]``, a block for each tile, along I first."""
    box = config.box
    k = KernelBuilder(
        config.name,
        32,
        arch=oldest_with("tma"),
        summary=f"D[i, j, batch] = S[i, j, batch] in boxes of {box.box} elements of {config.item} bytes"
    )
    S, D = k.tensors(TensorParam("S", "ij", box.element, map="S", addressed=False),
                     TensorParam("D", "ij", box.element, map="D", addressed=False, written=True),
                     modes="ij", batch=config.modes)
    extents, batch = (k.extent("i"), k.extent("j")), S.batch
    bi, bj, index = tile_of_block(k, extents, config.tile, config.modes > 0)
    at = tuple(k.let(f"l{i}", c) for i, c in enumerate(idx2crd(index, batch))) if batch else ()
    coordinates = k.pin("tiled", local_tile(make_identity_tensor((*extents, *batch)), config.tile,
                                            (bi, bj, *at)))
    sT = k.shared("sT", box.element, box.layout)
    full = Mbarriers(k, "full", 1, arrivals=1)
    with k.when(k.thread.eq(0)):
        initialise(k, full)
        full.expect(0, box.nbytes)
        k.copy(TmaLoad(S.map, box, full.at(0)), coordinates, sT)
        full.wait(0, 0)
        k.copy(TmaStore(D.map, box), sT, coordinates)
        tma_store_wait(k)
    return k.build()


@dataclass(frozen=True)
class TmaTransposeConfig:
    """The configuration of a ``tma_transpose`` kernel; ``store`` is bytes along M."""

    item: int
    store: int = 16
    threads: int = 256
    wide: bool = False

    def __post_init__(self) -> None:
        if self.item not in (1, 2, 4, 8) or self.store % self.item or self.store not in (1, 2, 4, 8, 16):
            raise CodegenError(
                f"elements must have 1, 2, 4 or 8 bytes and vectors at most 16, got {self}"
            )

    @property
    def vector(self) -> int:
        return self.store // self.item

    @property
    def packed(self) -> int:
        """Elements along N in a word that a thread reads: 4 bytes, if a vector has as many."""
        per_word = max(1, _WORD // self.item)
        return per_word if self.vector % per_word == 0 else 1

    @property
    def word(self) -> int:
        return self.item * self.packed

    @property
    def tile(self) -> tuple[int, int, int]:
        """Elements of a block: a vector along M, vectors along M, and 128 bytes along N."""
        return self.vector, _LINE // self.vector, _LINE // self.item

    @property
    def box(self) -> TmaBox:
        """The tile in shared memory: lines along N, those of one place in vectors together."""
        # Lanes of neighbouring vectors are on neighbouring lines, which the swizzle separates.
        _, vectors, line = self.tile
        return TmaBox(f"b{8 * self.item}", _swizzled(self.item,
                                                     Layout(self.tile, (vectors * line, line, 1))))

    @property
    def shared(self) -> ComposedLayout:
        vector, vectors, line = self.tile[0], self.tile[1], _LINE // self.word
        return _swizzled(self.word, Layout((vector, vectors, line), (vectors * line, line, 1)))

    @property
    def name(self) -> str:
        return f"tma_transpose_b{8 * self.item}_s{self.store}_t{self.threads}{'_wide' if self.wide else ''}"


def _swizzled(item: int, layout: Layout) -> ComposedLayout:
    """Chunks of 16 bytes in lines of 128 bytes, exclusive-ored with the line."""
    return ComposedLayout(Swizzle(3, (_CHUNK // item).bit_length() - 1, 3), 0, layout)


@cache
def tma_transpose(config: TmaTransposeConfig) -> GeneratedKernel:
    """Generate ``D[v, h, n] = S[v, h, n]``, N contiguous in S, M = (v, h) in D; a block a tile."""
    # H counts vectors along M, and the stride of D along N words; tiles along N come first.
    box, packed, word = config.box, config.packed, f"b{8 * config.word}"
    vector, vectors, line = config.tile
    words = vector // packed                                        # of a vector that is written
    # Eight lanes along H, whose vectors fill a line of D, and four along N; warps along N first.
    columns = line // packed
    warps = config.threads // 32
    warps_n = min(warps, columns // 4)
    threads = Layout((1, (8, warps // warps_n), (4, warps_n)), (0, (1, 32 * warps_n), (8, 32)))
    reader, writer = TiledCopy(threads, (vector, 1, 1)), TiledCopy(threads, (words, 1, packed))
    if vectors % reader.tile[1] or columns % reader.tile[2]:
        raise CodegenError(
            f"{config.name}: the tile {config.tile} does not divide among {config.threads} threads"
        )

    k = KernelBuilder(
        config.name,
        config.threads,
        arch=oldest_with("tma"),
        wide=config.wide,
        summary=f"D[v, h, n] = S[v, h, n], N contiguous in S and M = (v, h) in D: elements of {config.item} bytes\n"
        f"tile {config.tile} by boxes of {box.box}, swizzled over {box.swizzle} bytes; "
        f"words of {config.word} bytes"
    )
    S, D = k.tensors(TensorParam("S", "vhn", box.element, map="S", addressed=False),
                     TensorParam("D", "vhn", word, (1, words, None), words, written=True),
                     modes="hn")
    H, N = k.extent("h"), k.extent("n")
    bn, bh, _ = tile_of_block(k, (N, H), (line, vectors), batched=False)
    at = 0, bh, bn
    sT = k.shared("sT", word, config.shared, alignment=1024)
    full = Mbarriers(k, "full", 1, arrivals=1)

    k.comment("Lines in: one thread asks for the tile")
    coordinates = k.pin("tiled", local_tile(make_identity_tensor((vector, H, N)), config.tile, at))
    with k.when(k.thread.eq(0)):
        initialise(k, full)
        full.expect(0, box.nbytes)
        k.copy(TmaLoad(S.map, box, full.at(0)), coordinates, sT)
    k.barrier()
    full.wait(0, 0)

    k.comment("Columns out")
    tile = (words, vectors, line)
    gD = local_tile(D.at(extents=(words, H, N)), tile, at)
    cD = local_tile(make_identity_tensor((words, H, N)), tile, at)
    tDsT, tDgD = k.pin("tDsT", reader.partition(sT, k.thread)), k.pin("tDgD", writer.partition(gD, k.thread))
    guard = Guard(k.pin("tDcD", writer.partition(cD, k.thread)), (None, H, N))
    rest = (1, vectors // reader.tile[1], columns // reader.tile[2])
    tDrS = k.registers("tDrS", word, (vector, *rest))
    k.copy(Vector(1), tDsT, tDrS)
    tDrD = tDrS
    if packed > 1:
        tDrD = k.registers("tDrD", word, (vector, *rest))
        along_n = select(Layout((words, packed, *rest)), 1, 0, 2, 3, 4)
        transpose_words(k, Tensor(tDrS.engine, Layout((packed, words, *rest))),
                        Tensor(tDrD.engine, along_n))
    k.copy(Vector(words), tDrD, tDgD, guard=guard)
    return k.build()
