"""Blocks that share operand tiles: each loads a part, which TMA writes to all of them."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen import KernelBuilder, TmaBox
from ...layout import Tensor, local_tile, size
from ...layout.symbolic import IntLike, equal, select
from ..common import GROUP


@dataclass(frozen=True)
class Cluster:
    """Blocks on ``m`` by ``n`` tiles of C: those along N share A, those along M B. Rank ``i + m *
    j`` has tile (i, j)."""

    m: int = 1
    n: int = 1

    @property
    def size(self) -> int:
        return self.m * self.n

    @property
    def sharing(self) -> int:
        """Blocks that a block's tiles come from, itself included."""
        return self.m + self.n - 1

    @property
    def tag(self) -> str:
        return f"_c{self.m}x{self.n}" if self.size > 1 else ""


ALONE = Cluster()


class Place:
    """A block among those of its cluster, at coordinates ``m`` and ``n``; all have begun."""

    def __init__(self, k: KernelBuilder, cluster: Cluster, block: IntLike):
        self._k, self._cluster = k, cluster
        self.m: IntLike = 0
        self.n: IntLike = 0
        if cluster.size > 1:
            k.cluster_barrier()
            rank = k.let("rank", block % cluster.size)
            self.m, self.n = k.let("rank_m", rank % cluster.m), k.let("rank_n", rank // cluster.m)

    def part(self, operand: int, box: TmaBox, tile: Tensor) -> Tensor:
        """This block's part of a tile (MN, K) of A (0) or B (1): of its rows, or else of K."""
        rows, deep = (size(mode) for mode in box.layout.shape)
        part = (self.n, self.m)[operand]
        return local_tile(tile, (rows, deep), (part, 0) if rows < size(tile, 0)
                          else (0, part))

    def receivers(self, operand: int) -> IntLike | None:
        """Bits of the ranks that share tiles of A (0) or B (1) with this block, or ``None``."""
        c = self._cluster
        count, step, at = (c.n, c.m, self.m) if operand == 0 else (c.m, 1, self.n * c.m)
        if count == 1:
            return None
        one = sum(1 << step * i for i in range(count))
        return sum((select(equal(at, i), one << i, 0) for i in range(1, c.size)),
                   select(equal(at, 0), one, 0))

    def partner(self) -> IntLike | None:
        """The rank that a warpgroup's first threads signal, each another filler of its stages."""
        k, c, lane = self._k, self._cluster, self._k.thread % GROUP
        if c.size == 1:
            return None
        below = self.n * c.m + lane
        right = (self.n + 1 + lane - c.m) % c.n * c.m + self.m if c.n > 1 else 0
        return k.let("partner", select(lane < c.m, below, right))

    def leave(self) -> None:
        if self._cluster.size > 1:
            self._k.comment("No block leaves while another one may still write to it")
            self._k.cluster_barrier()
