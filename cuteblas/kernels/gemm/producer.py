"""The role that loads by TMA: one thread keeps a ring of stages full.

It runs ahead of the warpgroups that multiply, across tiles of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod

from ..._dtypes import dtype
from ...codegen.builder import KernelBuilder
from ...codegen.engine import Element
from ...codegen.pipeline import Pipeline
from ...codegen.signature import GlobalTensor
from ...codegen.tma import TmaBox, TmaLoad
from ...layout import Tensor, _, local_tile, make_identity_tensor, size
from ...layout.symbolic import IntLike, equal
from .cluster import Place
from .scheduler import Scheduler, TileOfC

__all__ = ["Step", "TmaOperand", "keep_full", "tma_operands"]

_At = Sequence[tuple[IntLike, ...]]
Step = tuple[TileOfC, tuple[_At, _At]]
"""A tile of C, and where the tiles of A and of B in a stage are, along K and further modes."""


@dataclass(frozen=True)
class TmaOperand:
    """An operand that TMA loads into a ring of tiles.

    Attributes
    ----------
    mode : int
        The mode of C along which its rows go: 0 of A, 1 of B.
    tensor_map : str
        The name of the operand's tensor map.
    box : TmaBox
        How its tiles are loaded, or parts of them.
    ring : Tensor
        Its tiles in shared memory, (MN, K, stage).
    extents : tuple
        Its extents, (MN, K, ...): modes of the tensor map without those of the batch.
    batch : tuple
        Extents of all batch modes.
    present : tuple of bool
        Which of them it has.
    clipped : bool
        Whether what is outside of it is not loaded: :class:`~cuteblas.codegen.tma.TmaLoad`.
    """

    mode: int
    tensor_map: str
    box: TmaBox
    ring: Tensor
    extents: tuple[IntLike, ...]
    batch: tuple[IntLike, ...]
    present: tuple[bool, ...]
    clipped: bool = False

    def load(self, k: KernelBuilder, place: Place, barrier: Element, stage: IntLike,
             step: Step) -> None:
        """Load this block's part of the tiles of a stage, which follow each other in the ring."""
        of, at = step
        limit = self.extents[0] if self.clipped else None
        brings = TmaLoad(self.tensor_map, self.box, barrier, place.receivers(self.mode), limit)
        for i, coordinates in enumerate(at[self.mode]):
            target = self.ring[_, _, stage * len(at[self.mode]) + i]
            both = self._tile_at(of, coordinates), target
            k.copy(brings, *(place.part(self.mode, self.box, x) for x in both))

    def nbytes(self, step: Step) -> int:
        """Bytes of its tiles in a stage."""
        return len(step[1][self.mode]) * prod(self._tile) * dtype(self.box.element).bytes

    @property
    def _tile(self) -> tuple[int, ...]:
        return tuple(size(mode) for mode in self.ring.layout.shape[:2])

    def _tile_at(self, of: TileOfC, at: tuple[IntLike, ...]) -> Tensor:
        """The coordinates of a tile, (MN, K), for a tile of C, at its place along K and further
        modes."""
        whole = make_identity_tensor((*self.extents, *self._those(self.batch)))
        return local_tile(whole, self._tile, ((of.m, of.n)[self.mode], *at, *self._those(of.batch)))

    def _those(self, modes: tuple[IntLike, ...]) -> tuple[IntLike, ...]:
        """Of batch modes, which may be followed by slices of K, those that it has."""
        return tuple(mode for mode, has in zip(modes, self.present, strict=False) if has)


def tma_operands(tensors: Sequence[GlobalTensor], boxes: Sequence[TmaBox], rings: Sequence[Tensor],
                 extents: Sequence[tuple[IntLike, ...]], batch: tuple[IntLike, ...],
                 present: Sequence[tuple[bool, ...]], clipped: bool = False) -> list[TmaOperand]:
    """Those of A and B that have tensor maps; sequences have an item for A and one for B."""
    sides = enumerate(zip(tensors, boxes, rings, extents, present, strict=True))
    return [TmaOperand(mode, tensor.map, box, ring, extent, batch, own, clipped)
            for mode, (tensor, box, ring, extent, own) in sides if tensor.map]


def keep_full(schedule: Scheduler, thread: int, pipeline: Pipeline, operands: Sequence[TmaOperand],
              steps: AbstractContextManager[Step]) -> None:
    """One thread fills a stage of the ring in every step of a loop."""
    k = schedule.k
    with k.when(equal(k.thread, thread)):
        stage = pipeline.state()
        with steps as step:
            pipeline.acquire(stage, sum(x.nbytes(step) for x in operands))
            for x in operands:
                x.load(k, schedule.place, pipeline.barrier(stage), stage.index, step)
            stage.advance()
