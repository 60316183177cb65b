"""The role that multiplies: warpgroups, on tensor cores that read both operands from a ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...codegen.pipeline import Pipeline
from ...codegen.swizzled import operand_layout
from ...codegen.wgmma import WgmmaMma, WgmmaOperand, wgmma_commit, wgmma_fence, wgmma_wait
from ...layout import Layout, Tensor, _, local_tile, select, size
from ...layout.symbolic import Expr, IntLike, less
from ..common import GROUP
from .scheduler import Scheduler
from .tiles import depth_of

__all__ = ["Multiplier", "Products"]


@dataclass(frozen=True)
class Products:
    """Products of a stage that are added to the same sums.

    Attributes
    ----------
    sums : Tensor
        Accumulators.
    pairs : tuple
        Which tile of A in the stage is multiplied by which of B, in this order.
    fresh : bool
        Whether sums are those of the stage alone.
    """

    sums: Tensor
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)
    fresh: bool = False


class Multiplier:
    """A warpgroup at the stages of a ring.

    Parameters
    ----------
    schedule : Scheduler
        The block's walk over tiles of C.
    mma : WgmmaMma
        Who multiplies what.
    pipeline : Pipeline
        The barriers of the ring.
    a, b : Tensor
        The tiles of A and of B, (MN, K, tile of the ring).
    overlaps : bool
        Whether the last products of a stage still run while the next one is waited for: a stage is
        then released one later.
    """

    def __init__(self, schedule: Scheduler, mma: WgmmaMma, pipeline: Pipeline, a: Tensor, b: Tensor,
                 overlaps: bool = True):
        k, place, atom = schedule.k, schedule.place, mma.atoms[0]
        element, depth = atom.element, depth_of(atom.element)
        self._k, self._mma, self._pipeline, self._place = k, mma, pipeline, place
        self._stage = pipeline.state()
        self._released = k.variable("released", 0, hi=pipeline.stages - 1) if overlaps else None
        self._partner = place.partner()
        # This group's rows: (64, K, tile of the ring).
        tCsA = local_tile(a, (64, depth), (k.let("group", k.thread // GROUP), 0))
        tile_of_a = operand_layout(64, depth, element, atom.k_major_a)
        operand_a = WgmmaOperand(element, tile_of_a, atom.k_major_a)
        tile_of_b = select(b.layout, 0, 1)
        operand_b = WgmmaOperand(element, tile_of_b, atom.k_major_b)
        self._a = operand_a.tensor(k, "descriptor_a", tCsA)
        self._b = operand_b.tensor(k, "descriptor_b", b, atom.n)
        self._tiles = size(b.layout.inner[2]) // pipeline.stages

    def accumulators(self, name: str) -> Tensor:
        """Registers for this thread's part of a tile of sums."""
        values = Layout((2, 2, self._mma.columns // 8))
        return self._k.registers(name, self._mma.accumulator, values)

    def multiply(self, count: IntLike, *products: Products,
                 and_then: Callable[[], None] | None = None) -> None:
        """Add the products of so many stages, and do something else with the sums of each."""
        k, stage, released = self._k, self._stage, self._released
        with k.loop("k_tile", count) as k_tile:
            self._pipeline.wait(stage)
            wgmma_fence(k)
            for each in products:
                self._issue(each)
            if released is None:
                wgmma_wait(k, 0)
                self._release(stage.index)
            else:
                # All but the newest group of instructions are done: the stage before is free again.
                wgmma_wait(k, 1)
                self._release(released, less(0, k_tile))
                k.assign(released, stage.index)
            if and_then is not None:
                and_then()
            stage.advance()
        if released is not None:
            wgmma_wait(k, 0)
            self._release(released, less(0, count))

    def _issue(self, products: Products) -> None:
        """Start the products of a stage."""
        first = self._stage.index * self._tiles
        for i, (a, b) in enumerate(products.pairs):
            mma = replace(self._mma, accumulate=i > 0 or not products.fresh)
            self._k.gemm(mma, products.sums, self._a[_, _, first + a], self._b[_, _, first + b])
        wgmma_commit(self._k)

    def _release(self, stage: IntLike, condition: Expr | bool = True) -> None:
        self._place.release(self._pipeline, stage, self._partner, condition)
