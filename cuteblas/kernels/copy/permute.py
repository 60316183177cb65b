"""``copy``: vectors go straight from one strided layout to another through registers, where both run along the same mode.

Untyped elements of 1 to 16 bytes. Mode I has the smallest stride in both; further modes are batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import TensorParam
from ...codegen.tiled import TiledCopy
from ...layout import Layout, local_tile, make_identity_tensor
from ..common import tile_of_block

__all__ = ["CopyConfig", "batch_modes", "copy_kernel"]


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


def batch_modes(k: KernelBuilder, modes: int, vector_s: int = 1, vector_d: int = 1) -> tuple[tuple, tuple, tuple]:
    """Extents, source strides and target strides of the batch modes; strides are multiples of the vectors."""
    extents = tuple(k.integer(f"L{i}") for i in range(modes))
    source, target = (tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=vector) for i in range(modes))
                      for name, vector in (("S", vector_s), ("D", vector_d)))
    return extents, source, target


@cache
def copy_kernel(config: CopyConfig) -> GeneratedKernel:
    """Generate a ``copy`` kernel: ``D[i, j, batch] = S[i, j, batch]`` on words, in which extents and strides are counted."""
    word = f"b{8 * config.word}"
    along = min(config.tile[0], config.threads)
    tiled = TiledCopy(Layout((along, config.threads // along)), (1, 1))
    if config.tile[0] % tiled.tile[0] or config.tile[1] % tiled.tile[1]:
        raise CodegenError(f"{config.name}: the tile does not divide into {tiled.tile}")
    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary=f"D[i, j, batch] = S[i, j, batch] in words of {config.word} bytes, tile {config.tile}")
    S, D = k.tensors(TensorParam("S", "ij", word, (1 if config.src_unit else None, None)),
                     TensorParam("D", "ij", word, (1 if config.dst_unit else None, None), written=True),
                     modes="ij", batch=config.modes)
    extents = k.extent("i"), k.extent("j")
    bi, bj, index = tile_of_block(k, extents, config.tile, config.modes > 0)

    gS, gD = (local_tile(x.at(index), config.tile, (bi, bj)) for x in (S, D))
    cS = local_tile(make_identity_tensor(extents), config.tile, (bi, bj))
    tSgS, tSgD = k.pin("tSgS", tiled.partition(gS, k.thread)), k.pin("tSgD", tiled.partition(gD, k.thread))
    guard = Guard(k.pin("tScS", tiled.partition(cS, k.thread)), extents)
    rest = tuple(t // p for t, p in zip(config.tile, tiled.tile, strict=True))
    tSrS = k.registers("tSrS", word, Layout((1, *rest)))
    k.copy(Vector(1), tSgS, tSrS, guard=guard)
    k.copy(Vector(1), tSrS, tSgD, guard=guard)
    return k.build()
