"""Tiles of A and B in a stage of a persistent block, the TMA boxes that load them, and the
instructions that multiply them."""

from __future__ import annotations

from ..._dtypes import dtype
from ...codegen import KernelBuilder, TmaBox, WgmmaMma, operand_layout
from ...codegen.swizzled import ROW_BYTES, longest_row
from ...codegen.wgmma import WgmmaAtom
from ...layout import Layout, Tensor, make_layout, size
from .cluster import ALONE, Cluster

__all__ = ["DEPTH", "INSTRUCTION_DEPTH", "boxes", "consumer_mma", "depth_of", "ring_of_tiles",
           "rings_of_tiles"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

INSTRUCTION_DEPTH = 16
"""K of one matrix instruction."""

# of an instruction, and of one of 512 threads, which begin with 128 registers
_MOST_COLUMNS, _MOST_OF_THREE = 256, 192
_CLIPPED_ROWS = 64              # of a box at most, where those outside of an operand are not loaded


def depth_of(element: str) -> int:
    """K of a stage of a type: a row of 128 bytes, which four matrix instructions multiply."""
    return ROW_BYTES // dtype(element).bytes


def ring_of_tiles(k: KernelBuilder, name: str, box: TmaBox, stages: int) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the
    swizzle's period."""
    ring = box.layout.map_domain(lambda tile: make_layout(*tile, Layout(stages, size(tile))))
    return k.shared(name, box.element, ring, alignment=1024)


def rings_of_tiles(k: KernelBuilder, of_stage: tuple[TmaBox, TmaBox],
                   tiles: int) -> tuple[Tensor, Tensor]:
    """The rings of A and B."""
    return ring_of_tiles(k, "sA", of_stage[0], tiles), ring_of_tiles(k, "sB", of_stage[1], tiles)


def boxes(element: str, rows: int, columns: int, k_major: tuple[bool, bool],
          cluster: Cluster = ALONE, clipped: bool = False) -> tuple[TmaBox, TmaBox]:
    """The TMA boxes by which a block loads its part of a stage of A and of B, or of one of their
    planes.

    A block's part has fewer rows, or less of K if lines of an MN-major operand cannot be dealt out
    evenly. Boxes that are to be ``clipped`` (:class:`~cuteblas.codegen.tma.TmaLoad`) are short.
    """
    most = (max(_CLIPPED_ROWS, depth_of(element)),) if clipped else ()

    def box(extent: int, parts: int, k_major: bool) -> TmaBox:
        item, depth = dtype(element).bytes, depth_of(element)
        line = longest_row(depth if k_major else extent, element)   # as long in all parts of a tile
        if k_major or extent * item % (parts * line) == 0:
            return TmaBox(element, operand_layout(extent // parts, depth, element, k_major, line),
                          *most)
        whole = operand_layout(extent, depth, element, k_major, line)
        return TmaBox(
            element,
            whole.map_domain(
                lambda tile: make_layout(tile[0], Layout(depth // parts, tile[1].stride))
            ),
            *most
        )

    return box(rows, cluster.n, k_major[0]), box(columns, cluster.m, k_major[1])


def consumer_mma(element: str, columns: int, groups: int, k_major: tuple[bool, bool],
                 parts: int = 1) -> WgmmaMma:
    """Who multiplies what: warpgroups stacked along M; ``parts`` columns of accumulators make an
    element of C.

    More columns than an instruction has are those of several, each of which begins with a line of
    an MN-major B.
    """
    most = _MOST_COLUMNS if groups < 3 or columns <= _MOST_OF_THREE else _MOST_COLUMNS // 2
    atoms = tuple(WgmmaAtom(min(most, columns - first), element, *k_major)
                  for first in range(0, columns, most))
    return WgmmaMma(atoms, groups, parts)
