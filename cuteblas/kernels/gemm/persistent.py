"""What kernels of persistent blocks are specialised on, and how that is part of their names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from ..._dtypes import dtype
from ...codegen import KernelBuilder, TmaBox, WgmmaMma, oldest_with, operand_layout
from ...codegen.swizzled import ROW_BYTES, longest_row
from ...codegen.wgmma import WgmmaAtom
from ...layout import Layout, make_layout
from ..common import GROUP, PAIRS, OperandAccess, Pair, batch_letters, builder
from ..epilogue import EpilogueConfig

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

# of an instruction, and of one of 512 threads, which begin with 128 registers
_MOST_COLUMNS, _MOST_OF_THREE = 256, 192
_CLIPPED_ROWS = 64              # of a box at most, where those outside of an operand are not loaded


def depth_of(element: str) -> int:
    """K of a stage: a row of 128 bytes, which four matrix instructions multiply."""
    return ROW_BYTES // dtype(element).bytes


@dataclass(frozen=True, kw_only=True)
class RingConfig:
    """Tiles of C, and the ring of stages that TMA fills and warpgroups multiply. ``groups`` are
    multiplying warpgroups, 64 rows of C each; blocks of a ``cluster`` follow each other along M.
    ``k_major_*``: contiguous along K. ``clipped`` boxes are short: what is outside of A or B is
    not loaded as zeros, which takes longer than to read. ``batch_*`` says, innermost first,
    whether an operand has a stride there."""

    groups: int = 2
    columns: int = 128
    stages: int = 3
    cluster: int = 1
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
        """Accumulators of an element of C, and real products of a product along K."""
        return 1

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def depth(self) -> int:
        """K of a stage, in elements that tensor cores multiply."""
        return depth_of(self.multiplied)

    @property
    def tile(self) -> Pair:
        return self.mma.tile

    @property
    def k_major(self) -> tuple[bool, bool]:
        return self.k_major_a, self.k_major_b

    @property
    def present(self) -> tuple[tuple[bool, ...], ...]:
        return self.batch_a, self.batch_b

    @property
    def mma(self) -> WgmmaMma:
        """Warpgroups stacked along M; wide tiles are several instructions, one a line of B."""
        few = self.groups < 3 or self.columns <= _MOST_OF_THREE
        most = _MOST_COLUMNS if few else _MOST_COLUMNS // 2
        atoms = tuple(WgmmaAtom(min(most, self.columns - first), self.multiplied, *self.k_major)
                      for first in range(0, self.columns, most))
        return WgmmaMma(atoms, self.groups, self.parts)

    def builder(self, summary: str, others: int = 1) -> KernelBuilder:
        """The kernel's builder, with ``others`` warpgroups that do not multiply."""
        return builder(self, GROUP * (self.groups + others), arch=oldest_with("wgmma"),
                       cluster=self.cluster, summary=summary)

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """TMA boxes of a block's part of a stage of A and of B, or of one of their planes."""
        return self._boxes(self.cluster)

    @property
    def whole(self) -> tuple[TmaBox, TmaBox]:
        return self._boxes(1)

    def _boxes(self, cluster: int) -> tuple[TmaBox, TmaBox]:
        """The boxes of one of so many blocks that share B."""
        # A block's part has fewer rows, or less of K where lines of an MN-major B cannot be dealt
        # out evenly. Boxes that are to be clipped are short.
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

        return (box(self.rows, 1, self.k_major[0]),
                box(self.columns, cluster, self.k_major[1]))


@dataclass(frozen=True, kw_only=True)
class TmaConfig(RingConfig, EpilogueConfig):
    """Kernels that write C. ``staged``: TMA or warps, row by row, write C from shared memory, else
    threads write what they have. ``divided``: blocks, alone then, may share the sums of tiles."""

    c: OperandAccess = PAIRS
    staged: str | None = None
    divided: bool = False
    hermitian: bool = False

    @property
    def traits(self) -> str:
        tile = f"{self.rows}x{self.columns}x{self.depth}"
        major = "".join("k" if x else "m" for x in self.k_major)
        modes = batch_letters(self.batch_a, self.batch_b)
        written = f"{self.c.letter('mn')}{self.c.width}{self.staged[0] if self.staged else ''}"
        return (
            f"{tile}_s{self.stages}{f'_c{self.cluster}x1' if self.cluster > 1 else ''}_{major}"
            f"{written}_{self.alpha[0]}{self.beta[0]}_b{modes}{'_wide' * self.wide}"
            f"{f'_{self.triangle}' if self.triangle else ''}"
            f"{'_hermitian' * self.hermitian}{self.fused}"
        )
