"""``transpose`` and ``copy``: materialise any permutation of any modes between any two strided layouts.

Both move untyped elements of 1 to 16 bytes. Mode I has the smallest stride in the target, mode J in the source; further modes are
batches.

``copy``
    I and J are the same mode: vectors go straight from one to the other through registers.
``transpose``
    A tile of (J, I) passes through shared memory: rows along J come in, columns along I go out, both as wide vectors. Elements
    smaller than 4 bytes are first transposed in registers in blocks that fill a 4-byte word along I, so that shared memory only
    sees words. The tile is swizzled so that neither side meets a bank twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.engine import CodegenError
from ..codegen.kernel import GeneratedKernel
from ..codegen.tiled import TiledCopy
from ..layout import ComposedLayout, Layout, Swizzle, Tensor, local_tile, make_identity_tensor, select
from .common import matrix_at, tile_of_block, transpose_words

__all__ = ["CopyConfig", "TransposeConfig", "copy_kernel", "transpose_kernel"]

_WORD = 4
_LINE = 128


@dataclass(frozen=True)
class CopyConfig:
    """What a ``copy`` kernel is specialised on.

    Attributes
    ----------
    word : int
        Bytes of the words that are moved (a vector of elements counts as one word).
    tile : tuple of int
        Words along mode I and along the next mode that a block moves.
    threads : int
        Threads of a block.
    src_unit, dst_unit : bool
        Whether mode I has stride 1 in the source, in the target.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    word: int
    tile: tuple[int, int]
    threads: int = 256
    src_unit: bool = True
    dst_unit: bool = True
    modes: int = 0
    wide: bool = False

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        units = f"{'u' if self.src_unit else 's'}{'u' if self.dst_unit else 's'}"
        return (f"copy_b{8 * self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_{units}"
                f"_m{self.modes}{'_wide' if self.wide else ''}")


@dataclass(frozen=True)
class TransposeConfig:
    """What a ``transpose`` kernel is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element.
    word : int
        Bytes of a word of shared memory: ``item``, or 4 when smaller elements are packed along I in registers.
    load, store : int
        Bytes of a vector that a thread reads along J, writes along I.
    tile : tuple of int
        Elements along J and I that a block transposes.
    threads : int
        Threads of a block.
    src_unit, dst_unit : bool
        Whether J has stride 1 in the source, I in the target.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    item: int
    word: int
    load: int
    store: int
    tile: tuple[int, int]
    threads: int = 256
    src_unit: bool = True
    dst_unit: bool = True
    modes: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        if self.word % self.item or self.load % self.word or self.store % self.word:
            raise CodegenError(f"a word is a multiple of an element and vectors are multiples of a word, got {self}")

    @property
    def packed(self) -> int:
        """Elements along I in one word."""
        return self.word // self.item

    @property
    def shared(self) -> ComposedLayout:
        """The tile in shared memory: (j, i) in words -> word, i counting words along I."""
        along_j, along_i = self.tile[0], self.tile[1] // self.packed
        return ComposedLayout(_swizzle(self), 0, Layout((along_j, along_i), (1, along_j)))

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        units = f"{'u' if self.src_unit else 's'}{'u' if self.dst_unit else 's'}"
        return (f"transpose_b{8 * self.item}_w{self.word}_{self.tile[0]}x{self.tile[1]}_t{self.threads}_l{self.load}_s{self.store}"
                f"_{units}_m{self.modes}{'_wide' if self.wide else ''}")


def _batch(k: KernelBuilder, modes: int, vector_s: int = 1, vector_d: int = 1) -> tuple[tuple, tuple, tuple]:
    """Extents, source strides and target strides of the batch modes; strides are multiples of the vectors."""
    extents = tuple(k.integer(f"L{i}") for i in range(modes))
    source, target = (tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=vector) for i in range(modes))
                      for name, vector in (("S", vector_s), ("D", vector_d)))
    return extents, source, target


@cache
def copy_kernel(config: CopyConfig) -> GeneratedKernel:
    """Generate a ``copy`` kernel: ``D[i, j, batch] = S[i, j, batch]`` on words.

    Parameters of the kernel: pointers S, D; extents I, J (words); strides of S, then of D, along i (where not fixed at 1) and j;
    the extents of the batch modes, then the strides of S there, then of D. Strides are in words.
    """
    word = f"b{8 * config.word}"
    along = min(config.tile[0], config.threads)
    tiled = TiledCopy(Layout((along, config.threads // along)), (1, 1))
    if config.tile[0] % tiled.tile[0] or config.tile[1] % tiled.tile[1]:
        raise CodegenError(f"{config.name}: the tile does not divide into {tiled.tile}")
    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary=f"D[i, j, batch] = S[i, j, batch] in words of {config.word} bytes, tile {config.tile}")
    ps, pd = k.pointer("S", word, alignment=config.word), k.pointer("D", word, const=False, alignment=config.word)
    extents = (k.integer("I"), k.integer("J"))
    ds = (1 if config.src_unit else k.integer("dS_i", lo=None), k.integer("dS_j", lo=None))
    dd = (1 if config.dst_unit else k.integer("dD_i", lo=None), k.integer("dD_j", lo=None))
    batch, batch_s, batch_d = _batch(k, config.modes)
    bi, bj, index = tile_of_block(k, extents, config.tile, config.modes > 0)

    gS = local_tile(matrix_at(ps, extents, ds, batch, batch_s, index), config.tile, (bi, bj))
    gD = local_tile(matrix_at(pd, extents, dd, batch, batch_d, index), config.tile, (bi, bj))
    cS = local_tile(make_identity_tensor(extents), config.tile, (bi, bj))
    tSgS, tSgD = k.pin("tSgS", tiled.partition(gS, k.thread)), k.pin("tSgD", tiled.partition(gD, k.thread))
    guard = Guard(k.pin("tScS", tiled.partition(cS, k.thread)), extents)
    rest = tuple(t // p for t, p in zip(config.tile, tiled.tile, strict=True))
    tSrS = k.registers("tSrS", word, Layout((1, *rest)))
    k.copy(tSgS, tSrS, width=1, guard=guard)
    k.copy(tSrS, tSgD, width=1, guard=guard)
    return k.build()


@cache
def transpose_kernel(config: TransposeConfig) -> GeneratedKernel:
    """Generate a ``transpose`` kernel: ``D[j, i, batch] = S[j, i, batch]``, J contiguous in S and I in D.

    Parameters of the kernel: pointers S, D to words; extents J, I in elements; strides of S along j (where not fixed at 1) and i;
    of D along j and i (where not fixed at 1); the extents of the batch modes, then the strides of S there, then of D. All strides
    are in words.
    """
    word, packed = f"b{8 * config.word}", config.packed
    tj, ti = config.tile
    vl, vs = config.load // config.word, config.store // config.word           # words of a vector
    # Rows of words along J come in: each thread reads `packed` rows of `vl` words.
    lanes_j = tj // packed // vl
    reader = TiledCopy(Layout((lanes_j, config.threads // lanes_j)), (vl, packed))
    # In shared memory, word (j, i') holds elements (j, packed * i' ...): the same threads write what they transposed.
    stager = TiledCopy(reader.threads, (vl * packed, 1))
    # Columns along I go out: the lanes of a warp fill whole 128-byte lines.
    lanes_i = min(_LINE // config.store, ti // packed // vs, 32)
    warps_i = ti // packed // vs // lanes_i
    lanes = 32 // lanes_i
    warps_j = config.threads // 32 // warps_i
    writer = TiledCopy(Layout(((lanes, warps_j), (lanes_i, warps_i)), ((lanes_i, 32 * warps_i), (1, 32))), (1, vs))
    for what, extents, by in (("read", (tj // packed, ti), reader.tile), ("written", (tj, ti // packed), writer.tile)):
        if any(e % b for e, b in zip(extents, by, strict=True)):
            raise CodegenError(f"{config.name}: the tile {extents} does not divide into {by} words {what} by all threads")

    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary="D[j, i, batch] = S[j, i, batch], J contiguous in S and I in D: "
                              f"elements of {config.item} bytes, tile (J, I) = {config.tile}\n"
                              f"threads read {reader.tv} of {reader.tile} words, write {writer.tv} of {writer.tile} words")
    ps, pd = k.pointer("S", word, alignment=config.load), k.pointer("D", word, const=False, alignment=config.store)
    J, I = k.integer("J", multiple=vl * packed), k.integer("I", multiple=vs * packed)
    ds = (1 if config.src_unit else k.integer("dS_j", lo=None), k.integer("dS_i", lo=None, multiple=vl))
    dd = (k.integer("dD_j", lo=None, multiple=vs), 1 if config.dst_unit else k.integer("dD_i", lo=None))
    batch, batch_s, batch_d = _batch(k, config.modes, vl, vs)
    bj, bi, index = tile_of_block(k, (J, I), config.tile, config.modes > 0)

    source, target = (J // packed, I), (J, I // packed)                         # extents in words
    tile_s, tile_d = (tj // packed, ti), (tj, ti // packed)
    gS = local_tile(matrix_at(ps, source, ds, batch, batch_s, index), tile_s, (bj, bi))
    gD = local_tile(matrix_at(pd, target, dd, batch, batch_d, index), tile_d, (bj, bi))
    cS = local_tile(make_identity_tensor(source), tile_s, (bj, bi))
    cD = local_tile(make_identity_tensor(target), tile_d, (bj, bi))
    sT = k.shared("sT", word, config.shared)

    k.comment("Rows in: (words along j x rows, rest)")
    tSgS = k.pin("tSgS", reader.partition(gS, k.thread))
    guard_s = Guard(k.pin("tScS", reader.partition(cS, k.thread)), source)
    rest = tuple(t // p for t, p in zip(tile_s, reader.tile, strict=True))
    tSrS = k.registers("tSrS", word, Layout(((vl, packed), *rest)))
    k.copy(tSgS, tSrS, width=vl, guard=guard_s)

    k.comment("Words along i into shared memory")
    tSsT = k.pin("tSsT", stager.partition(sT, k.thread))
    tSrT = tSrS
    if packed > 1:
        tSrT = k.registers("tSrT", word, Layout((vl * packed, *rest)))
        rows = select(Layout((vl, packed, *rest)), 1, 0, 2, 3)
        transpose_words(k, Tensor(tSrS.engine, rows), Tensor(tSrT.engine, Layout((packed, vl, *rest))))
    k.copy(tSrT, tSsT, width=min(vl * packed, 1 << sT.layout.swizzle.base))
    k.barrier()

    k.comment("Columns out")
    tDsT, tDgD = k.pin("tDsT", writer.partition(sT, k.thread)), k.pin("tDgD", writer.partition(gD, k.thread))
    guard_d = Guard(k.pin("tDcD", writer.partition(cD, k.thread)), target)
    rest_d = tuple(t // p for t, p in zip(tile_d, writer.tile, strict=True))
    tDrD = k.registers("tDrD", word, Layout(((1, vs), *rest_d)))
    k.copy(tDsT, tDrD, width=1)
    k.copy(tDrD, tDgD, width=vs, guard=guard_d)
    return k.build()


def _swizzle(config: TransposeConfig) -> Swizzle:
    """The swizzle of the tile: vectors along J are permuted by the position along I.

    A row of 128 bytes has ``128 / chunk`` chunks, where a chunk is the vector that a thread writes (at least one bank). Lanes that
    read a column step by ``store / word`` words along I; exclusive or with that step's low bits sends them to different chunks.
    """
    chunk = max(config.store, _WORD)
    base = (chunk // config.word).bit_length() - 1
    bits = (_LINE // chunk).bit_length() - 1
    step = (config.store // config.word).bit_length() - 1
    return Swizzle(bits, base, config.tile[0].bit_length() - 1 + step - base)
