"""Tiles of A and B in a stage of a persistent block."""

from __future__ import annotations

from ..._dtypes import dtype
from ...codegen import KernelBuilder
from ...codegen.swizzled import ROW_BYTES
from ...layout import ComposedLayout, Layout, Tensor, make_layout, size

__all__ = ["DEPTH", "INSTRUCTION_DEPTH", "depth_of", "ring_of_tiles"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

INSTRUCTION_DEPTH = 16
"""K of one matrix instruction."""


def depth_of(element: str) -> int:
    """K of a stage of a type: a row of 128 bytes, which four matrix instructions multiply."""
    return ROW_BYTES // dtype(element).bytes


def ring_of_tiles(k: KernelBuilder, name: str, element: str, tile: ComposedLayout, stages: int,
                  over: str | None = None) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the
    swizzle's period."""
    ring = tile.map_domain(lambda inner: make_layout(*inner, Layout(stages, size(inner))))
    return k.shared(name, element, ring, alignment=1024, over=over)
