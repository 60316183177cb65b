"""Tiles of persistent blocks on Hopper's tensor cores: what each of them counts, and those that
all blocks divide along K."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from ..operands import tiles_of_c
from ..plan import Workspace
from ..problem import DeviceInfo, GemmProblem, Pair

_FEWEST_STEPS = 3                    # along K, of each block, where tiles are divided


@dataclass(frozen=True)
class WgmmaTile:
    """A tile of C, 64 rows for each of ``groups``, with ``stages`` of K; blocks of a ``cluster``
    follow each other along M."""

    groups: int
    columns: int
    stages: int
    cluster: int = 1

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def extents(self) -> Pair:
        """Rows and columns of a cluster."""
        return self.rows * self.cluster, self.columns

    def clusters(self, p: GemmProblem) -> int:
        """Clusters that cover C, or a triangle of it."""
        return tiles_of_c(p, self.extents)

    def blocks(self, clusters: int, device: DeviceInfo, divided: int = 0) -> int:
        """Persistent blocks: all that run at once if some tiles are divided between them."""
        most = device.multiprocessors
        return most if divided else min(clusters, most // self.cluster) * self.cluster

    def described(self, depth: int) -> str:
        """The tile with that much of K in a stage, in words."""
        shape = f"tile {self.rows}x{self.columns}x{depth}, {self.stages} stages"
        return shape + (f", clusters of {self.cluster} x 1 blocks" if self.cluster > 1 else "")

    def counts(self, clusters: int, steps: float, device: DeviceInfo, divided: int = 0,
               products: int = 1, planes: int = 1, item: float = 4) -> dict[str, Any]:
        """What a tile takes of ``steps`` of ``products`` of ``planes``, and the busiest block."""
        rows, columns, most = self.rows, self.columns, device.multiprocessors
        instructions = 1 if columns <= 256 and not (rows == 192 and columns > 192) else 2
        tiles = clusters / most if divided else -(-clusters // (most // self.cluster))
        exchanged = 4 * rows * columns * (1 + -(-most // divided)) if divided else 0.0
        return {"clocks": products * steps * rows * columns / 32,
                "wavefronts": steps * (products * rows / 64 * (64 * instructions + columns)
                                       + planes * (rows + columns)),
                "lines": 2 * steps * planes * (rows + columns), "ahead": max(1, self.stages - 1),
                "tiles": tiles, "passes": tiles * steps,
                "blocks": self.blocks(clusters, device, divided),
                "written": ceil(tiles) * rows * columns * item, "exchanged": exchanged,
                "apart": divided / most}

    def shared_bytes(self, device: DeviceInfo) -> Pair:
        """Bytes of sums, 64 rows a warpgroup, and of flags, where blocks divide tiles."""
        warpgroups = self.groups * device.multiprocessors
        return 4 * 64 * self.columns * warpgroups, 4 * warpgroups

    def shared_sums(self, divided: int, device: DeviceInfo,
                    workspace: Workspace) -> dict[str, Any]:
        """The arguments of a kernel whose blocks divide tiles; none if they do not."""
        if not divided:
            return {}
        sums, flags = self.shared_bytes(device)
        return {"divided": divided, "flags": workspace.take(flags), "flags_count": flags // 4,
                "sums": workspace.take(sums)}


def divisions(tiles: int, steps: int, device: DeviceInfo) -> list[int]:
    """How many tiles may be divided along K: those after whole waves, or one wave more, where each
    block gets a few of their steps."""
    most = device.multiprocessors
    rest = tiles % most
    return [divided for divided in (rest, rest + most) if rest and divided <= tiles
            and _FEWEST_STEPS * most <= divided * steps < 2**31]
