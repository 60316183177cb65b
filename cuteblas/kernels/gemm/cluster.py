"""Blocks of a column of tiles that share B: each loads a part, which TMA writes to all of them."""

from __future__ import annotations

from ...codegen import KernelBuilder, TmaBox
from ...layout import Tensor, local_tile, size
from ...layout.symbolic import IntLike, select
from ..common import GROUP


class Place:
    """A block in its cluster, the ``rank``-th along M; all have begun."""

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
