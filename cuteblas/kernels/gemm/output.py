"""C where warpgroups have tiles of it in accumulators: what of a tile is a thread's, and by which way it comes to memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...codegen.builder import KernelBuilder
from ...codegen.dtypes import dtype
from ...codegen.signature import GlobalTensor
from ...codegen.wgmma import WgmmaMma, WgmmaRegisterMma
from ...layout import Tensor, local_tile
from ...layout.symbolic import IntLike
from ..common import existing
from ..epilogue import Epilogue, OutputTile
from .persistent import PersistentConfig
from .roles import Finish, Sums
from .scheduler import TileOfC
from .staged import StagedC
from .triangle import output_triangle

__all__ = ["WarpgroupOutput"]


@dataclass(frozen=True)
class WarpgroupOutput:
    """C of a kernel whose warpgroups have its tiles in accumulators.

    Attributes
    ----------
    k : KernelBuilder
        The kernel.
    config : PersistentConfig
        What it is specialised on.
    mma : WgmmaMma or WgmmaRegisterMma
        Who has what of a tile.
    c : GlobalTensor
        C.
    extents : tuple
        Extents M and N.
    staged : StagedC, optional
        The way through shared memory.
    guarded : bool
        Whether threads ask which elements exist.
    """

    k: KernelBuilder
    config: PersistentConfig
    mma: WgmmaMma | WgmmaRegisterMma
    c: GlobalTensor
    extents: tuple[IntLike, IntLike]
    staged: StagedC | None = None
    guarded: bool = True

    @contextmanager
    def finished(self, epilogue: Epilogue,
                 prepared: Callable[[TileOfC, OutputTile, Tensor], Tensor] | None = None) -> Iterator[Finish]:
        """The role that writes C by an epilogue, of sums that are prepared for it."""
        def write(at: TileOfC, sums: Sums) -> None:
            tile = self.tile(at)
            epilogue.store(prepared(at, tile, sums) if prepared and isinstance(sums, Tensor) else sums, tile)

        yield write
        if self.staged:
            self.staged.leave()

    def tile(self, at: TileOfC) -> OutputTile:
        """A tile, as the epilogue takes it."""
        k, config, extents, matrix = self.k, self.config, self.extents, self.c.at(at.batch)

        def tile_of(tensor: Tensor) -> Tensor:
            return local_tile(tensor, self.mma.tile, (at.m, at.n))

        def partition(tensor: Tensor) -> Tensor:
            with_ones = self.mma.partition_c(tensor, k.thread)
            return with_ones.map_domain(lambda layout: layout[0])       # without the modes of extent 1

        guard = existing(k, "tCcC", lambda identity: partition(tile_of(identity)), extents) if self.guarded else None
        pieces = self.staged.pieces_of(at, matrix, extents, self.c.batch) if self.staged else None
        hermitian = config.hermitian and dtype(self.c.param.element).is_complex
        triangle = output_triangle(config.triangle, at.diagonal, matrix, tile_of, hermitian)
        return OutputTile(tile_of(matrix), partition, tile_of, extents, at.batch, guard, pieces, triangle=triangle)
