"""Which tiles of C a persistent block works on: a raster that shares operands in L2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import prod

from ...codegen import KernelBuilder, TmaBox
from ...layout import Tensor, idx2crd, local_tile, size
from ...layout.symbolic import Condition, IntLike, ceil_div, maximum, select
from ..common import GROUP, Coord, grouped_raster
from ..epilogue import Parked
from .divided import Divided, Share
from .persistent import RingConfig
from .triangle import tiles_of_c


class Place:
    """A block in its cluster, the ``rank``-th along M; all have begun. Blocks of a column of tiles
    share B: each loads a part, which TMA writes to all of them."""

    def __init__(self, k: KernelBuilder, blocks: int, block: IntLike):
        self._k, self._blocks = k, blocks
        self.rank: IntLike = 0
        if blocks > 1:
            k.cluster_barrier()
            self.rank = k.let("rank", block % blocks)

    def part(self, box: TmaBox, tile: Tensor) -> Tensor:
        """This block's part of a tile (N, K) of B: of its rows, or else of K."""
        rows, depth = (size(mode) for mode in box.layout.shape)
        return local_tile(tile, (rows, depth), (self.rank, 0) if rows < size(tile, 0)
                          else (0, self.rank))

    @property
    def receivers(self) -> int | None:
        """Bits of the ranks that share tiles of B, or ``None``."""
        return (1 << self._blocks) - 1 if self._blocks > 1 else None

    def partner(self) -> IntLike | None:
        """The rank that a warpgroup's first threads signal, each another filler of its stages."""
        k, lane = self._k, self._k.thread % GROUP
        if self._blocks == 1:
            return None
        return k.let("partner", select(lane < self._blocks, lane, 0))

    def leave(self) -> None:
        if self._blocks > 1:
            self._k.comment("No block leaves while another one may still write to it")
            self._k.cluster_barrier()


@dataclass(frozen=True)
class TileOfC:
    """A tile of C: its coordinates, that of its matrix, and if it may reach the other triangle."""

    m: IntLike
    n: IntLike
    batch: Coord
    diagonal: Condition = False


@dataclass(frozen=True)
class Work:
    """A block's work at a time: a tile of C, its tiles along K from ``first`` to ``end``, and
    whether it comes ``later`` than other work."""

    tile: TileOfC
    first: IntLike
    end: IntLike
    later: Condition

    def steps(self, k: KernelBuilder) -> AbstractContextManager[IntLike]:
        return k.loop("k_tile", self.end, start=self.first)

    def count(self, k: KernelBuilder) -> IntLike:
        """The number of tiles along K, for a loop from 0: with another start ptxas waits in it."""
        return self.end if isinstance(self.first,
                                      int) else k.let("count", maximum(self.end - self.first, 0))


class Scheduler:
    """The walk of a block over tiles of C; blocks of a cluster walk as one. ``batch`` has extents,
    innermost first; ``divided`` tiles are of blocks that are alone."""

    def __init__(self, k: KernelBuilder, config: RingConfig,
                 extents: tuple[IntLike, IntLike, IntLike], batch: Coord,
                 divided: Divided | None = None):
        self.k, self._batch, self._cluster = k, batch, config.cluster
        (rows, columns), cluster = config.tile, config.cluster
        block, blocks = k.block_index(), k.grid_size()
        self.block, self.blocks = block, blocks
        self.place = Place(k, cluster, block)
        self._of_c = tiles_of_c(k, config.triangle, extents[:2], (rows * cluster, columns))
        self.k_tiles = k.let("k_tiles", ceil_div(extents[2], config.depth // config.parts))
        self._in_matrix = k.let("tiles", self._of_c.tiles[0] * self._of_c.tiles[1])
        self._total = prod(batch, start=self._in_matrix)
        self._first: IntLike = k.let("first", block // cluster)
        self._step = k.let("step", blocks // cluster)
        self._share: Share | None = None
        if divided is not None:
            self._share = Share(k, divided, self.k_tiles, block, blocks)
            tiles = self._share.tiles
            self._whole = k.let("whole", ceil_div(maximum(self._total - tiles - self._first, 0),
                                                  self._step))
            self._first = k.let("first_whole", tiles + self._first)

    def _at(self, tile: IntLike) -> TileOfC:
        k = self.k
        batch: Coord = ()
        if self._batch:
            batch = idx2crd(k.let("item", tile // self._in_matrix), self._batch)
            tile = k.let("tile_in_item", tile % self._in_matrix)
        place = grouped_raster(k, tile, *self._of_c.tiles)
        batch = tuple(k.let(f"l{i}", c) for i, c in enumerate(batch))
        m, n, diagonal = self._of_c.at(*place)
        return TileOfC(m * self._cluster + self.place.rank, n, batch, diagonal)

    @contextmanager
    def works(self) -> Iterator[Work]:
        k, share = self.k, self._share
        if share is None:
            with k.loop("tile", self._total, start=self._first, step=self._step) as tile:
                yield Work(self._at(tile), 0, self.k_tiles, self._first < tile)
            return
        with k.loop("work", share.parts + self._whole) as work:
            in_part = work < share.parts
            whole = self._first + maximum(work - share.parts, 0) * self._step
            tile = k.let("tile", select(in_part, share.tile(work), whole))
            first, end = share.steps(tile, in_part)
            yield Work(self._at(tile), first, end, work > 0)

    @contextmanager
    def ended(self, work: Work, total: Tensor | Parked, groups: int) -> Iterator[None]:
        """Run the body with the whole sum of a tile in the accumulators."""
        if self._share is None or not isinstance(total, Tensor):
            yield
        else:
            with self._share.ended(work.first, work.end, total, groups):
                yield
