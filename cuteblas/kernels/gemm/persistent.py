"""What kernels of persistent blocks are specialised on, and how that is part of their names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from ...codegen import TmaBox, WgmmaMma
from ..common import PAIRS, OperandAccess, batch_letters
from ..epilogue import EpilogueConfig
from .cluster import ALONE, Cluster
from .tiles import boxes, consumer_mma, depth_of

__all__ = ["PersistentConfig", "TmaConfig"]


@dataclass(frozen=True, kw_only=True)
class PersistentConfig(EpilogueConfig):
    """Tiles of C, how operands are batched and C is written, whatever multiplies, beside the fields of its
    epilogue; ``wide`` speaks of C and of operands that threads read.

    Attributes
    ----------
    columns : int
        Columns of a tile of accumulators.
    stages : int
        Stages of the ring.
    cluster : Cluster
        Blocks that share operands.
    c : OperandAccess
        How C is read and written.
    staged : {"tma", "rows"}, optional
        Who writes C, through shared memory: TMA, or warps, row by row. Else threads write what they
        have.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there (else it is
        broadcast).
    triangle : {"lower", "upper", "both"}, optional
        What is written of a square C: one triangle, or both, of which the lower one is computed.
    hermitian : bool
        Whether C is a Hermitian matrix, of whose triangle the diagonal has no imaginary parts.
    """

    columns: int = 128
    stages: int = 3
    cluster: Cluster = ALONE
    c: OperandAccess = PAIRS
    staged: str | None = None
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    triangle: str | None = None
    hermitian: bool = False

    @property
    def present(self) -> tuple[tuple[bool, ...], ...]:
        """Which batch modes A and B have."""
        return self.batch_a, self.batch_b

    @property
    @abstractmethod
    def multiplied(self) -> str:
        """The type that tensor cores multiply."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of the tile of C."""

    @property
    @abstractmethod
    def k_major(self) -> tuple[bool, bool]:
        """Whether tiles of A, and of B, are contiguous along K in shared memory."""

    @property
    def traits(self) -> str:
        """The part of a kernel's name that says how operands are accessed and C is written."""
        tile = f"{self.rows}x{self.columns}x{depth_of(self.multiplied)}"
        major = "".join("k" if x else "m" for x in self.k_major)
        modes = batch_letters(self.batch_a, self.batch_b)
        written = f"{self.c.letter('mn')}{self.c.width}{self.staged[0] if self.staged else ''}"
        return (
            f"{tile}_s{self.stages}{self.cluster.tag}_{major}{written}_{self.alpha[0]}{self.beta[0]}_b{modes}"
            f"{'_wide' if self.wide else ''}{f'_{self.triangle}' if self.triangle else ''}{'_hermitian' * self.hermitian}"
            f"{self.fused}"
        )


@dataclass(frozen=True, kw_only=True)
class TmaConfig(PersistentConfig):
    """Of kernels whose warpgroups multiply what TMA loads into shared memory.

    Attributes
    ----------
    groups : int
        Multiplying warpgroups, 64 rows of C each.
    k_major_a, k_major_b : bool
        Along which mode A and B, or their planes, are contiguous.
    clipped : bool
        Whether TMA boxes are short, and those outside of A or B are not loaded as zeros, which
        takes longer than to read.
    divided : bool
        Whether blocks, which are alone then, may share the sums of tiles: see
        :class:`~cuteblas.kernels.gemm.divided.Divided`.
    """

    groups: int = 2
    k_major_a: bool = True
    k_major_b: bool = True
    clipped: bool = False
    divided: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return 64 * self.groups

    @property
    def k_major(self) -> tuple[bool, bool]:
        """Whether A, and B, are contiguous along K."""
        return self.k_major_a, self.k_major_b

    @property
    def parts(self) -> int:
        """Accumulators of an element of C, and real products of a product of two elements along
        K."""
        return 1

    @property
    def mma(self) -> WgmmaMma:
        """Who multiplies what."""
        return consumer_mma(self.multiplied, self.columns, self.groups, self.k_major, self.parts)

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """The TMA boxes by which a block loads its part of a stage of A and of B, or of one of
        their planes."""
        return boxes(self.multiplied, self.rows, self.columns, self.k_major, self.cluster,
                     self.clipped)
