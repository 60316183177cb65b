"""What a warpgroup does with the stages of a ring: it multiplies them on the tensor cores, and releases each a stage later."""

from __future__ import annotations

from ...codegen.builder import KernelBuilder
from ...codegen.pipeline import Pipeline
from ...codegen.swizzled import operand_layout
from ...codegen.tma import TmaBox
from ...codegen.wgmma import WgmmaMma, WgmmaOperand, wgmma_commit, wgmma_fence, wgmma_wait
from ...layout import Layout, Tensor, _, local_tile
from ...layout.symbolic import IntLike, less
from .cluster import Place
from .roles import GROUP
from .tiles import depth_of

__all__ = ["Multiplier"]


class Multiplier:
    """A warpgroup at the stages of a ring, and its accumulators.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    mma : WgmmaMma
        Who multiplies what.
    pipeline : Pipeline
        The barriers of the ring.
    place : Place
        The block in its cluster.
    a, b : Tensor
        The tiles of A and of B, (MN, K, stage).
    box_b : TmaBox
        How a tile of B lies in shared memory.

    Attributes
    ----------
    accumulators : Tensor
        This thread's part of the tile of C.
    """

    def __init__(self, k: KernelBuilder, mma: WgmmaMma, pipeline: Pipeline, place: Place, a: Tensor, b: Tensor, box_b: TmaBox):
        atom = mma.atoms[0]
        element, depth = atom.element, depth_of(atom.element)
        self._k, self._mma, self._pipeline, self._place = k, mma, pipeline, place
        self._stage = pipeline.state()
        self._released = k.variable("released", 0, hi=pipeline.stages - 1)
        self._partner = place.partner()
        # This group's rows: (64, K, stage).
        tCsA = local_tile(a, (64, depth), (k.let("group", k.thread // GROUP), 0))
        operand_a = WgmmaOperand(element, operand_layout(64, depth, element, atom.k_major_a), atom.k_major_a)
        operand_b = WgmmaOperand(element, box_b.layout, atom.k_major_b)
        self._a, self._b = operand_a.tensor(k, "descriptor_a", tCsA), operand_b.tensor(k, "descriptor_b", b, atom.n)
        self.accumulators = k.registers("tCrC", mma.accumulator, Layout((2, 2, sum(each.n for each in mma.atoms) // 8)))

    def multiply(self, count: IntLike) -> None:
        """Add the products of so many stages."""
        k, stage = self._k, self._stage
        with k.loop("k_tile", count) as k_tile:
            self._pipeline.wait(stage)
            wgmma_fence(k)
            k.gemm(self._mma, self.accumulators, self._a[_, _, stage.index], self._b[_, _, stage.index])
            wgmma_commit(k)
            # All but the newest group of instructions are done: the stage before can be filled again.
            wgmma_wait(k, 1)
            self._place.release(self._pipeline, self._released, self._partner, less(0, k_tile))
            k.assign(self._released, stage.index)
            stage.advance()
        wgmma_wait(k, 0)
        self._place.release(self._pipeline, self._released, self._partner, less(0, count))
