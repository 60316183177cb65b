"""A plan's layouts in text: threads that own the tile of C, and banks of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..kernels.copy.tiles import TransposeConfig
from ..layout import Layout, size
from ..layout.banks import BANK_BYTES, bank_of
from ..layout.pictures.grids import Grid
from ..planning import Plan
from ..planning.pages import tile_figure
from ..tutorial.transpose import TILE, TutorialTransposeConfig
from .terminal import Paint, side_by_side

_SHOWN = 8


def picture(plan: Plan, paint: Paint) -> list[str]:
    """The picture that goes with a plan; no lines if there is none."""
    config = plan.config
    if isinstance(config, TransposeConfig):
        return _bank_picture(config, paint)
    if isinstance(config, TutorialTransposeConfig) and config.shared is not None:
        return _element_picture(config, paint)
    return _tile_picture(plan, paint)


def _tile_picture(plan: Plan, paint: Paint) -> list[str]:
    """Which thread, in the colour of its warp, owns each part of a tile of C."""
    figure = tile_figure(plan)
    if figure is None:
        return []
    (title, *notes), grid = figure.notes, cast(Grid, figure.panels[0][0])
    colours = list(dict.fromkeys(cell.colour for row in grid.cells for cell in row))
    width = max(len(cell.lines[0]) for row in grid.cells for cell in row)
    rows = (" ".join(paint(cell.lines[0].rjust(width), colours.index(cell.colour)) for cell in row)
            for row in grid.cells)
    return [title if paint("", 0) else title.partition(", each colour")[0],
            *(f"  {line}" for line in (*rows, *notes))]


def _bank_picture(config: TransposeConfig, paint: Paint) -> list[str]:
    """The bank in which each vector of a transpose's tile begins, without and with its swizzle."""
    shared = config.shared
    # words of a chunk that the swizzle moves as one
    step_j = max(config.store, BANK_BYTES) // config.word
    # from lane to lane of a column that is read
    step_i = config.store // config.word
    js, ies = (range(0, min(size(shared.inner[m]), _SHOWN * s), s)
               for m, s in ((0, step_j), (1, step_i)))
    return [
        f"the tile of {config.tile[0]}x{config.tile[1]} elements in shared memory, in {config.word}-byte words: "
        f"the bank of word (j, i)",
        *_banks(
            {"without": shared.inner, f"with {shared.outer}": shared},
            [f"{f'i{i}':>6}" for i in ies],
            [f"{f'j{j}':>4}" for j in js],
            lambda layout, i, j: bank_of(layout(js[j], ies[i]), config.word),
            lambda text, bank: paint(text, bank * BANK_BYTES // (step_j * config.word)),
        ),
        "  rows of j are written, columns of i are read: without the swizzle a column would meet one bank",
    ]


def _banks(layouts: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str],
           bank: Callable[[Any, int, int], int], paint: Paint) -> list[str]:
    """The bank of each row and column of layouts, which stand side by side under their titles."""
    heading = "".join(columns)
    width = max(map(len, (heading, *layouts)))
    tables = [["", "", *rows]]
    for title, layout in layouts.items():
        numbers = [[bank(layout, r, c) for c in range(len(columns))] for r in range(len(rows))]
        tables.append([title.ljust(width), heading,
                       *("".join(paint(f"{number:>4}", number) for number in row)
                         + " " * (width - len(heading)) for row in numbers)])
    tables[0] = [label.rjust(len(rows[0])) for label in tables[0]]
    return side_by_side(tables)


def _element_picture(config: TutorialTransposeConfig, paint: Paint) -> list[str]:
    """The bank of each element of a tile, in plain rows and as a tutorial's transpose has it."""
    step = max(1, BANK_BYTES // config.item)                          # elements of a bank
    return [
        f"the tile of {TILE[0]}x{TILE[1]} elements of {config.item} bytes in shared memory: the bank of element (m, n)",
        *_banks(
            {str(layout): layout for layout in (Layout(TILE, (TILE[1], 1)), config.shared)},
            [f"{f'm{m}':>4}" for m in range(_SHOWN)],
            [f"{f'n{step * n}':>4}" for n in range(_SHOWN)],
            lambda layout, m, n: bank_of(layout(m, step * n), config.item),
            paint,
        ),
        "  rows are written, columns are read; lanes that meet in one bank wait for each other",
    ]
