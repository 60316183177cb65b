"""What kernels of persistent blocks are specialised on, and how that is part of their names."""

from __future__ import annotations

from dataclasses import dataclass

from ..common import PAIRS, OperandAccess, batch_letters
from ..epilogue import EpilogueConfig
from .cluster import ALONE, Cluster
from .tiles import DEPTH

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
    c : OperandAccess
        How C is read and written.
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
    c: OperandAccess = PAIRS
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    triangle: str | None = None
    hermitian: bool = False

    @property
    def present(self) -> tuple[tuple[bool, ...], ...]:
        """Which batch modes A and B have."""
        return self.batch_a, self.batch_b

    def traits(self, rows: int, k_major: tuple[bool, bool], staged: str | None = None,
               cluster: Cluster = ALONE, depth: int = DEPTH) -> str:
        """The part of a kernel's name that says how operands are accessed and C is written."""
        major = "".join("k" if x else "m" for x in k_major)
        modes = batch_letters(self.batch_a, self.batch_b)
        written = f"{self.c.letter('mn')}{self.c.width}{staged[0] if staged else ''}"
        return (
            f"{rows}x{self.columns}x{depth}_s{self.stages}{cluster.tag}_{major}{written}_{self.alpha[0]}{self.beta[0]}_b{modes}"
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
    staged : {"tma", "rows"}, optional
        Who writes C, through shared memory: TMA, or warps, row by row. Else threads write what they
        have.
    divided : bool
        Whether blocks, which are alone then, may share the sums of tiles: see
        :class:`~cuteblas.kernels.gemm.divided.Divided`.
    """

    groups: int = 2
    k_major_a: bool = True
    k_major_b: bool = True
    staged: str | None = None
    divided: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return 64 * self.groups

    @property
    def k_major(self) -> tuple[bool, bool]:
        """Whether A, and B, are contiguous along K."""
        return self.k_major_a, self.k_major_b
