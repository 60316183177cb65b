"""What kernels of persistent blocks are specialised on, and how that is part of their names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from ..._dtypes import dtype
from ...codegen import KernelBuilder, TmaBox, WgmmaMma, oldest_with, operand_layout
from ...codegen.swizzled import ROW_BYTES, longest_row
from ...codegen.wgmma import WgmmaAtom
from ...layout import Layout, make_layout
from ..common import GROUP, PAIRS, OperandAccess, Pair, batch_letters
from ..epilogue import EpilogueConfig
from .cluster import ALONE, Cluster

__all__ = ["DEPTH", "RingConfig", "TmaConfig", "depth_of"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

# of an instruction, and of one of 512 threads, which begin with 128 registers
_MOST_COLUMNS, _MOST_OF_THREE = 256, 192
_CLIPPED_ROWS = 64              # of a box at most, where those outside of an operand are not loaded


def depth_of(element: str) -> int:
    """K of a stage of a type: a row of 128 bytes, which four matrix instructions multiply."""
    return ROW_BYTES // dtype(element).bytes


@dataclass(frozen=True, kw_only=True)
class RingConfig:
    """Tiles of C, and the ring of stages that TMA fills and warpgroups multiply.

    Attributes
    ----------
    groups : int
        Multiplying warpgroups, 64 rows of C each.
    columns : int
        Columns of a tile of accumulators.
    stages : int
        Stages of the ring.
    cluster : Cluster
        Blocks that share operands.
    k_major_a, k_major_b : bool
        Along which mode A and B, or their planes, are contiguous.
    clipped : bool
        Whether TMA boxes are short, and those outside of A or B are not loaded as zeros, which
        takes longer than to read.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there (else it is
        broadcast).
    triangle : {"lower", "upper", "both"}, optional
        What is written of a square C: one triangle, or both, of which the lower one is computed.
    wide : bool
        Whether offsets need 64 bits: of C, and of operands that threads read.
    """

    groups: int = 2
    columns: int = 128
    stages: int = 3
    cluster: Cluster = ALONE
    k_major_a: bool = True
    k_major_b: bool = True
    clipped: bool = False
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    triangle: str | None = None
    wide: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's symbol."""

    @property
    @abstractmethod
    def multiplied(self) -> str:
        """The type that tensor cores multiply."""

    @property
    def parts(self) -> int:
        """Accumulators of an element of C, and real products of a product of two elements along
        K."""
        return 1

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return 64 * self.groups

    @property
    def depth(self) -> int:
        """K of a stage, in elements that tensor cores multiply."""
        return depth_of(self.multiplied)

    @property
    def tile(self) -> Pair:
        """Extents of the tile of C."""
        return self.mma.tile

    @property
    def k_major(self) -> tuple[bool, bool]:
        """Whether tiles of A, and of B, are contiguous along K in shared memory."""
        return self.k_major_a, self.k_major_b

    @property
    def present(self) -> tuple[tuple[bool, ...], ...]:
        """Which batch modes A and B have."""
        return self.batch_a, self.batch_b

    @property
    def mma(self) -> WgmmaMma:
        """Who multiplies what: warpgroups stacked along M.

        More columns than an instruction has are those of several, each of which begins with a line
        of an MN-major B.
        """
        few = self.groups < 3 or self.columns <= _MOST_OF_THREE
        most = _MOST_COLUMNS if few else _MOST_COLUMNS // 2
        atoms = tuple(WgmmaAtom(min(most, self.columns - first), self.multiplied, *self.k_major)
                      for first in range(0, self.columns, most))
        return WgmmaMma(atoms, self.groups, self.parts)

    def builder(self, summary: str, others: int = 1) -> KernelBuilder:
        """The builder of the kernel, with so many warpgroups that do not multiply."""
        return KernelBuilder(self.name, GROUP * (self.groups + others), arch=oldest_with("wgmma"),
                             wide=self.wide, cluster=self.cluster.size, summary=summary)

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """The TMA boxes by which a block loads its part of a stage of A and of B, or of one of
        their planes."""
        return self._boxes(self.cluster)

    @property
    def whole(self) -> tuple[TmaBox, TmaBox]:
        """Whole tiles of A and of B in a stage."""
        return self._boxes(ALONE)

    def _boxes(self, cluster: Cluster) -> tuple[TmaBox, TmaBox]:
        """The boxes of a block of a cluster.

        A block's part has fewer rows, or less of K if lines of an MN-major operand cannot be dealt
        out evenly. Boxes that are to be ``clipped`` (:class:`~cuteblas.codegen.tma.TmaLoad`) are
        short.
        """
        element, depth = self.multiplied, self.depth
        most = (max(_CLIPPED_ROWS, depth),) if self.clipped else ()

        def box(extent: int, parts: int, k_major: bool) -> TmaBox:
            line = longest_row(depth if k_major else extent, element)   # as long in all parts
            evenly = k_major or extent * dtype(element).bytes % (parts * line) == 0
            layout = operand_layout(extent // parts if evenly else extent, depth, element, k_major,
                                    line)
            if not evenly:
                layout = layout.map_domain(lambda tile: make_layout(
                    tile[0], Layout(depth // parts, tile[1].stride)))
            return TmaBox(element, layout, *most)

        return (box(self.rows, cluster.n, self.k_major[0]),
                box(self.columns, cluster.m, self.k_major[1]))


@dataclass(frozen=True, kw_only=True)
class TmaConfig(RingConfig, EpilogueConfig):
    """Of kernels that write C, beside the fields of their epilogue.

    Attributes
    ----------
    c : OperandAccess
        How C is read and written.
    staged : {"tma", "rows"}, optional
        Who writes C, through shared memory: TMA, or warps, row by row. Else threads write what they
        have.
    divided : bool
        Whether blocks, which are alone then, may share the sums of tiles: see
        :class:`~cuteblas.kernels.gemm.divided.Divided`.
    hermitian : bool
        Whether C is a Hermitian matrix, of whose triangle the diagonal has no imaginary parts.
    """

    c: OperandAccess = PAIRS
    staged: str | None = None
    divided: bool = False
    hermitian: bool = False

    @property
    def traits(self) -> str:
        """The part of a kernel's name that says how operands are accessed and C is written."""
        tile = f"{self.rows}x{self.columns}x{self.depth}"
        major = "".join("k" if x else "m" for x in self.k_major)
        modes = batch_letters(self.batch_a, self.batch_b)
        written = f"{self.c.letter('mn')}{self.c.width}{self.staged[0] if self.staged else ''}"
        return (
            f"{tile}_s{self.stages}{self.cluster.tag}_{major}{written}_{self.alpha[0]}{self.beta[0]}"
            f"_b{modes}{'_wide' * self.wide}{f'_{self.triangle}' if self.triangle else ''}"
            f"{'_hermitian' * self.hermitian}{self.fused}"
        )
