"""Tiles of A and B in a stage of a persistent block."""

from __future__ import annotations

from ..._dtypes import dtype
from ...codegen import KernelBuilder, TmaBox
from ...codegen.swizzled import ROW_BYTES
from ...layout import Layout, Tensor, make_layout, size

__all__ = ["DEPTH", "INSTRUCTION_DEPTH", "depth_of", "ring_of_tiles"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

INSTRUCTION_DEPTH = 16
"""K of one matrix instruction."""


def depth_of(element: str) -> int:
    """K of a stage of a type: a row of 128 bytes, which four matrix instructions multiply."""
    return ROW_BYTES // dtype(element).bytes


def ring_of_tiles(k: KernelBuilder, name: str, box: TmaBox, stages: int) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the
    swizzle's period."""
    ring = box.layout.map_domain(lambda tile: make_layout(*tile, Layout(stages, size(tile))))
    return k.shared(name, box.element, ring, alignment=1024)
