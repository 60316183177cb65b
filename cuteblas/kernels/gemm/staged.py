"""C of warpgroups: a thread's part of a tile, and the way through shared memory to whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ..._dtypes import dtype
from ...codegen import GlobalTensor, KernelBuilder, TmaBox, WgmmaMma, partition
from ...codegen.mbarrier import fence_proxy_async
from ...codegen.swizzled import longest_row, swizzle_over
from ...codegen.tma import TmaStore, tma_store_wait
from ...layout import (
    ComposedLayout,
    Layout,
    Tensor,
    _,
    local_tile,
    make_identity_tensor,
    make_layout,
    size,
)
from ...layout.symbolic import IntLike, equal
from ..common import (
    ELEMENTS,
    GROUP,
    WARP,
    Coord,
    DynamicPair,
    existing,
    part_of_tile,
    vectors_along,
)
from ..epilogue import Epilogue, OutputTile, OutputTriangle
from .roles import Finish, Sums
from .scheduler import TileOfC

_ROWS_AT_ONCE = 4                   # of a piece that a warp takes away
_PIECES = 2                         # of C that a warpgroup has in shared memory


class StagedC:
    """Tiles of C on their way through shared memory, piece by piece, to whole lines of C. A piece
    is a swizzled line of 128, 64 or 32 bytes wide. While TMA reads one, the next is written, also
    while the next tile is multiplied; without a tensor map, warps write a row at a time."""

    def __init__(self, k: KernelBuilder, element: str, mma: WgmmaMma,
                 tensor_map: str | None = None):
        self._k, self._groups, self._element, self._map = k, mma.groups, element, tensor_map
        self._box = self.box_of(element, mma.tile[1])
        self.columns = size(self._box.layout.inner[1])
        self._count = mma.tile[1] // self.columns
        self._slots = min(_PIECES, self._count)
        piece = size(self._box.layout.inner)
        layout = self._box.layout.map_domain(
            lambda tile: make_layout(
                *tile, Layout(self._slots, piece), Layout(mma.groups, self._slots * piece)
            )
        )
        self._sC = k.shared("sC", element, layout, alignment=1024)
        self._mma = replace(mma, atoms=(replace(mma.atoms[0], n=self.columns * mma.parts),),
                            groups=1)

    @staticmethod
    def box_of(element: str, columns: int) -> TmaBox:
        """The TMA box of a piece (M, N), N contiguous, of a tile of so many columns."""
        item, line = dtype(element).bytes, longest_row(columns, element)
        return TmaBox(element, ComposedLayout(swizzle_over(line, element), 0,
                                              Layout((64, line // item), (line // item, 1))))

    @contextmanager
    def pieces_of(self, tile: TileOfC, matrix: Tensor, extents: DynamicPair,
                  batch: Coord) -> Iterator[tuple[IntLike, Tensor]]:
        """A loop over a tile's pieces: number and this thread's part, which is stored then."""
        k, lane, group = self._k, self._k.thread % GROUP, self._k.thread // GROUP
        if self._count % self._slots:
            k.comment("The first piece goes where the last one of the tile before was")
            if self._map is None:
                k.group_barrier(1 + group, GROUP)
            self._wait(0)
        with k.loop("piece", self._count, unroll=True) as piece:
            stage = self._sC[..., piece % self._slots, group]
            self._wait(self._slots - 1)
            if self._map is not None or self._slots == 1:
                k.group_barrier(1 + group, GROUP)
            mine = partition(stage, self._mma.tile, self._mma.tv_c, lane)
            yield piece, k.pin("tCsC", mine[(_, _, _), 0, 0])
            at = tile.m * self._groups + group, tile.n * self._count + piece
            if self._map is not None:
                fence_proxy_async(k)
            k.group_barrier(1 + group, GROUP)
            if self._map is None:
                self._write_rows(stage, matrix, extents, at, lane)
            else:
                with k.when(equal(lane, 0)):
                    coordinates = local_tile(make_identity_tensor((*extents, *batch)),
                                             (64, self.columns), (*at, *tile.batch))
                    k.copy(TmaStore(self._map, self._box), stage, coordinates)

    def _write_rows(self, stage: Tensor, matrix: Tensor, extents: DynamicPair,
                    at: DynamicPair, lane: IntLike) -> None:
        """Take a piece away, each warp a line of it at a time."""
        k, lanes = self._k, min(WARP, self.columns)
        rows = vectors_along(1, (GROUP // lanes, lanes))
        mine = part_of_tile(rows, (64, self.columns), at, lane)
        tWsC, tWgC = rows.partition(stage, lane), k.pin("tWgC", mine(matrix))
        exists = existing(k, "tWcC", mine, extents)
        _value, steps, across = tWsC.extents
        taken = k.registers("tWrC", self._element, (1, _ROWS_AT_ONCE, across))
        with k.loop("i", steps // _ROWS_AT_ONCE, unroll=False) as i:
            with k.each(_ROWS_AT_ONCE) as j:
                k.copy(ELEMENTS, tWsC[_, _ROWS_AT_ONCE * i + j, _], taken[_, j, _])
            with k.each(_ROWS_AT_ONCE) as j:
                row = _ROWS_AT_ONCE * i + j
                k.copy(ELEMENTS, taken[_, j, _], tWgC[_, row, _], guard=exists[_, row, _])

    def _wait(self, pending: int) -> None:
        """Wait until TMA has at most ``pending`` pieces left to read."""
        if self._map is not None:
            with self._k.when(equal(self._k.thread % GROUP, 0)):
                tma_store_wait(self._k, pending)

    def leave(self) -> None:
        self._wait(0)


class WarpgroupOutput:
    """C of a kernel whose warpgroups have its tiles in accumulators."""

    def __init__(self, k: KernelBuilder, config: Any, c: GlobalTensor, epilogue: Epilogue):
        self._k, self._config, self._c, self._epilogue = k, config, c, epilogue
        config.c.check_run(2 // config.parts)
        self._staged = StagedC(k, config.output, config.mma,
                               c.map or None) if config.staged else None

    @contextmanager
    def finished(self, prepared: Callable[[TileOfC, OutputTile, Tensor], Tensor]
                 | None = None) -> Iterator[Finish]:
        """The role that writes C by the epilogue, of sums that are ``prepared`` for it."""
        guarded = bool(prepared or self._staged is None or self._epilogue.touches_memory
                       or self._config.triangle)

        def write(at: TileOfC, sums: Sums) -> None:
            tile = self._tile(at, guarded)
            self._epilogue.store(prepared(at, tile, sums) if prepared and isinstance(sums, Tensor)
                                 else sums, tile)

        yield write
        if self._staged:
            self._staged.leave()

    def _tile(self, at: TileOfC, guarded: bool) -> OutputTile:
        """A tile, where threads ask which elements exist or, without ``guarded``, need not."""
        k, config, mma, c = self._k, self._config, self._config.mma, self._c
        extents: Any = c.extents
        matrix = c.at(at.batch)

        tile_of = partial(local_tile, tiler=mma.tile, coord=(at.m, at.n))

        def partition(tensor: Tensor) -> Tensor:
            return mma.partition_c(tensor, k.thread)[(_, _, _), 0, 0]

        guard = existing(k, "tCcC", lambda identity: partition(tile_of(identity)),
                         extents) if guarded else None
        pieces = self._staged.pieces_of(at, matrix, extents, c.batch) if self._staged else None
        hermitian = config.hermitian and dtype(config.output).is_complex
        triangle = OutputTriangle(config.triangle, at.diagonal, matrix, hermitian)
        return OutputTile(tile_of(matrix), partition, tile_of, extents, at.batch, guard, pieces,
                          triangle=triangle)
