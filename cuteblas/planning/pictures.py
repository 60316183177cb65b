"""Pictures of a plan: the thread that owns each part of a tile of C, and the banks of tiles in
shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from .._dtypes import dtype
from ..codegen.kernel import GeneratedKernel
from ..codegen.mma import WarpMma
from ..codegen.tiled import TiledMma
from ..codegen.wgmma import WgmmaMma, WgmmaRegisterMma
from ..kernels.gemm.mma import MmaTile
from ..kernels.gemm.simt import TileShape
from ..kernels.gemm.skinny import SkinnyConfig
from ..kernels.gemm.split import GemmSplitConfig
from ..kernels.gemm.wgmma import WgmmaConfig
from ..layout import Figure, size
from ..layout.banks import BANKS, bank_of
from ..layout.pictures.colours import by_bank, by_thread
from ..layout.pictures.grids import Cell, Grid, grid_of
from .plan import Plan
from .problem import Pair

__all__ = ["Owners", "bank_figures", "main_kernel", "owners", "tile_figure"]

_WARP = 32
_BLOCKS = 16                         # rows and columns of blocks that a figure shows
_BANKED = (16, 32)                   # elements of a tile in shared memory that a figure shows
_SMALLEST = 4                        # extent of a tile that is worth it
_MOST_FIGURES = 2


@dataclass(frozen=True)
class Owners:
    """Who owns a tile of C.

    Attributes
    ----------
    grid : tuple of tuples of int
        The thread of each block of elements, by rows of C.
    block : tuple of int
        Extents of a block.
    threads : int
        Threads that own elements.
    tile, of_block : tuple of int
        Extents of what they own at once, and of a thread block's tile of C.
    """

    grid: tuple[tuple[int, ...], ...]
    block: Pair
    threads: int
    tile: Pair
    of_block: Pair

    @property
    def repeats(self) -> Pair:
        """How many times the tile is repeated."""
        return self.of_block[0] // self.tile[0], self.of_block[1] // self.tile[1]


def owners(plan: Plan) -> Owners | None:
    """Which thread owns each part of a tile of C: the thread-value layout of the multiplication,
    read backwards; of a plan whose kernel multiplies.
    """
    found = _mma_of(plan.config)
    if found is None:
        return None
    mma, extents = found
    rows, columns = mma.tile
    owner = [0] * (rows * columns)
    threads = size(mma.tv_c[0])
    for i in range(size(mma.tv_c)):
        owner[mma.tv_c(i)] = i % threads
    grid = [[owner[m + rows * n] for n in range(columns)] for m in range(rows)]
    first = next(argument.role for launch in plan.launches for argument in launch.arguments
                 if argument.role in ("a", "b"))
    if first == "b":                                                 # computed as C^T: show C
        grid, extents, (rows, columns) = [list(row) for row in zip(*grid, strict=True)], extents[::-1], (columns, rows)
    height, width = _block(grid)
    blocks = tuple(tuple(row[::width]) for row in grid[::height])
    return Owners(blocks, (height, width), threads, (rows, columns), extents)


def _mma_of(config: object) -> tuple[TiledMma | WarpMma | WgmmaMma | WgmmaRegisterMma,
                                     Pair] | None:
    """The tiled multiplication of a configuration, and the extents (M, N) of a block's tile."""
    tile = getattr(config, "tile", None)
    if isinstance(tile, (TileShape, MmaTile)):
        return tile.mma, (tile.m, tile.n)
    if isinstance(config, (WgmmaConfig, GemmSplitConfig, SkinnyConfig)):
        return config.mma, config.mma.tile
    return None


def _block(grid: list[list[int]]) -> Pair:
    """Extents of the largest blocks, all of one size, that each have one owner."""
    def run(lines: list[list[int]]) -> int:
        common = len(lines[0])
        for line in lines:
            changes = [i for i in range(1, len(line)) if line[i] != line[i - 1]]
            common = gcd(common, *changes)
        return common
    return run([list(column) for column in zip(*grid, strict=True)]), run(grid)


def tile_figure(plan: Plan) -> Figure | None:
    """The picture of :func:`owners`, coloured by warp."""
    found = owners(plan)
    if found is None:
        return None
    shown = {thread for row in found.grid[:_BLOCKS] for thread in row[:_BLOCKS]}
    lanes = 1 if max(shown) < _WARP else _WARP         # of a colour
    grid, cut = grid_of("", len(found.grid), len(found.grid[0]),
                        lambda r, c: Cell((f"T{found.grid[r][c]}",),
                                          by_thread(found.grid[r][c] // lanes)), most=_BLOCKS)
    rows, columns = found.tile
    height, width = found.block
    notes = [
        f"{found.threads} threads own {rows} x {columns} elements of C; each cell is a thread and its {height} x {width}, "
        f"each colour a {'thread' if lanes == 1 else 'warp'}"
    ]
    if found.repeats != (1, 1):
        notes.append(
            f"a block's tile of {found.of_block[0]} x {found.of_block[1]} repeats this {found.repeats[0]} x "
            f"{found.repeats[1]} times"
        )
    return Figure("who owns the tile of C", ((grid,),), (*notes, *([cut] if cut else [])))


def main_kernel(plan: Plan) -> GeneratedKernel | None:
    """The kernel that does the work: the one that has the family's name, or the first."""
    kernels = [launch.kernel for launch in plan.launches]
    return next((k for k in kernels if k.name.startswith(plan.family)),
                kernels[0] if kernels else None)


def bank_figures(plan: Plan) -> Iterator[Figure]:
    """The bank of shared memory in which each element of a tile begins, of the first tiles of the
    main kernel."""
    kernel = main_kernel(plan)
    tiles = [(name, element, layout) for name, element, layout in (kernel.shared if kernel else ())
             if layout.rank > 1 and min(size(layout, 0), size(layout, 1)) >= _SMALLEST]
    drawn = 0
    seen = set()
    for name, element, layout in tiles:
        if drawn == _MOST_FIGURES or (element, str(layout)) in seen:
            continue
        seen.add((element, str(layout)))
        drawn += 1
        nbytes, extent = dtype(element).bytes, size(layout, 0)
        rows, columns = (min(shown, size(layout, mode)) for mode, shown in enumerate(_BANKED))
        banks = [[bank_of(layout(r + extent * c), nbytes) for c in range(columns)]
                 for r in range(rows)]
        cells = tuple(tuple(Cell((str(bank),), by_bank(bank, BANKS)) for bank in row)
                      for row in banks)
        yield Figure(
            f"banks of {name}",
            ((Grid("", cells),),),
            (
                f"{element} {layout} in shared memory: the bank in which each of the first {rows} x {columns} elements begins",
            )
        )
