"""A plan as HTML for notebooks: a fragment that follows the colours of its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice
from math import gcd
from typing import Any

import numpy as np

from .._dtypes import dtype
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
from ..layout.pictures.grids import Cell, by_bank, by_thread, grid_of
from .floors import duration, estimate
from .plan import Plan
from .problem import Pair
from .words import kernel_words, plan_rows, time_words

__all__ = ["Owners", "bank_figures", "owners", "page", "page_of", "tile_figure"]

_STYLE = """\
.cb-plan{font:13px/1.5 system-ui,sans-serif;max-width:62em;color:inherit}
.cb-plan table{border-collapse:collapse;margin:.4em 0;font-size:inherit;border:0}
.cb-plan td{padding:.1em .9em .1em 0;vertical-align:top;text-align:left;border:0;background:none;white-space:normal}
.cb-plan td:first-child{opacity:.65;white-space:nowrap}
.cb-plan .cb-call{font-weight:600}
.cb-plan code,.cb-plan pre{font:12px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;background:none}
.cb-plan pre{overflow:auto;max-height:32em;padding:.6em;border:1px solid rgba(128,128,128,.4);border-radius:6px}
.cb-plan .cb-bar{display:inline-block;height:.8em;min-width:2px;border-radius:3px;vertical-align:baseline}
.cb-plan .cb-bars td:nth-child(2){width:24em}
.cb-plan summary{cursor:pointer;opacity:.85}
.cb-plan .cb-pictures{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start;margin:.5em 0}"""
_COLOURS = {"expected": "#8a94a3", "arithmetic": "#4c8fe0", "memory traffic": "#e09a3e"}
_SHOWN = ("problem", "layouts", "epilogue")          # rows of a plan that are not folded


def page(call: str, rows: Iterable[tuple[str, str]], plan: Plan | None) -> str:
    """A fragment: a heading, names and texts, a plan's bars, layouts, pictures and source."""
    parts = [f'<div class="cb-plan"><style>{_STYLE}</style>',
             f'<div class="cb-call">{escape(call)}</div>', _table(rows)]
    if plan is not None and plan.launches:
        details = plan_rows(plan)
        parts += [_bars(plan), _table((row for row in details if row[0] in _SHOWN), code=True),
                  _pictures(plan), _folded("tile, launches, memory accesses",
                                           _table((row for row in details if row[0] not in _SHOWN),
                                                  code=True))]
        kernels = (launch.kernel for launch in plan.launches)
        parts += [_folded(f"CUDA C++ of {kernel.name}", f"<pre>{escape(kernel.body)}</pre>")
                  for kernel in kernels]
    return "\n".join((*parts, "</div>"))


def page_of(plan: Plan) -> str:
    copies = "; ".join(plan.copied) or "none"
    fallback = [("fallback", plan.fallback)] if plan.fallback else []
    return page(f"plan for {plan.device.name}",
                [("kernel", kernel_words(plan)), ("time", time_words(plan, estimate(plan))),
                 ("copies", copies), *fallback], plan)


def _table(rows: Iterable[tuple[str, str]], *, code: bool = False) -> str:
    lines, previous = [], None
    for name, text in rows:
        shown = f"<code>{escape(text)}</code>" if code else escape(text)
        lines.append(
            f"<tr><td>{escape(name) if name != previous else ''}</td><td>{shown}</td></tr>"
        )
        previous = name
    return f"<table>{''.join(lines)}</table>"


def _bars(plan: Plan) -> str:
    """The expected time beside both parts of the floor."""
    found = estimate(plan)
    times = {"expected": found.seconds, "arithmetic": found.floor.arithmetic_s,
             "memory traffic": found.floor.traffic_s}
    longest = max(seconds or 0.0 for seconds in times.values()) or 1.0
    lines = []
    for name, seconds in times.items():
        if seconds is not None:
            bar = f'<span class="cb-bar" style="width:{100 * seconds / longest:.1f}%;background:{_COLOURS[name]}"></span>'
            lines.append(
                f"<tr><td>{name}</td><td>{bar}</td><td>{escape(duration(seconds))}</td></tr>"
            )
    return f'<table class="cb-bars">{"".join(lines)}</table>'


def _pictures(plan: Plan) -> str:
    figures = [figure for figure in (tile_figure(plan), *bank_figures(plan)) if figure is not None]
    return f'<div class="cb-pictures">{"".join(figure.svg() for figure in figures)}</div>' if figures else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


_WARP = 32
_BLOCKS = 16                         # rows and columns of blocks that a figure shows
_BANKED = (16, 32)                   # elements of a tile in shared memory that a figure shows
_SMALLEST = 4                        # extent of a tile that is worth it
_MOST_FIGURES = 2


@dataclass(frozen=True)
class Owners:
    """Who owns a tile of C: ``grid`` has the thread of each ``block`` of elements, by rows;
    ``tile`` is what the threads own at once, ``of_block`` a thread block's tile."""

    grid: list[list[int]]
    block: Pair
    threads: int
    tile: Pair
    of_block: Pair

    @property
    def repeats(self) -> Pair:
        return self.of_block[0] // self.tile[0], self.of_block[1] // self.tile[1]


def owners(plan: Plan) -> Owners | None:
    """Which thread owns each part of a tile of C, of a plan whose kernel multiplies."""
    found = _mma_of(plan.config)
    if found is None:
        return None
    mma, extents = found
    rows, columns = mma.tile
    threads, owner = size(mma.tv_c[0]), np.zeros(rows * columns, int)
    for i in range(size(mma.tv_c)):
        owner[mma.tv_c(i)] = i % threads
    grid = owner.reshape(columns, rows).T
    read = [(param.name[-1].lower(), argument.role) for launch in plan.launches
            for param, argument in zip(launch.kernel.params, launch.arguments, strict=True)
            if argument.role in ("a", "b")]
    # where both operands are packed, copies come in the order of the kernel's
    operand, role = next((pair for pair in read if pair[0] in "ab"), ("a", read[0][1]))
    if operand != role:                                              # computed as C^T: show C
        grid, extents = grid.T, extents[::-1]
    # the largest blocks, all of one size, that each have one owner
    height, width = (gcd(n, *(1 + np.flatnonzero(np.diff(grid, axis=axis).any(1 - axis))))
                     for axis, n in enumerate(grid.shape))
    rows, columns = grid.shape
    return Owners(grid[::height, ::width].tolist(), (height, width), threads, (rows, columns),
                  extents)


def _mma_of(config: object) -> tuple[TiledMma | WarpMma | WgmmaMma | WgmmaRegisterMma,
                                     Pair] | None:
    """The tiled multiplication of a configuration, and the extents (M, N) of a block's tile."""
    tile = getattr(config, "tile", None)
    if isinstance(tile, (TileShape, MmaTile)):
        return tile.mma, (tile.m, tile.n)
    if isinstance(config, (WgmmaConfig, GemmSplitConfig, SkinnyConfig)):
        return config.mma, config.mma.tile
    return None


def tile_figure(plan: Plan) -> Figure | None:
    """The picture of :func:`owners`, coloured by warp."""
    found = owners(plan)
    if found is None:
        return None
    shown = {thread for row in found.grid[:_BLOCKS] for thread in row[:_BLOCKS]}
    lanes = 1 if max(shown) < _WARP else _WARP         # of a colour
    grid = grid_of("", len(found.grid), len(found.grid[0]),
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
    return Figure.of("who owns the tile of C", ((grid,),), *notes)


def bank_figures(plan: Plan) -> Iterator[Figure]:
    """The bank in which each element of the main kernel's first tiles begins."""
    kernel = plan.main_kernel
    drawn: dict[tuple[str, str], tuple[str, Any]] = {}
    for name, element, layout in kernel.shared if kernel else ():
        if layout.rank > 1 and min(size(layout, 0), size(layout, 1)) >= _SMALLEST:
            drawn.setdefault((element, str(layout)), (name, layout))
    for (element, text), (name, layout) in islice(drawn.items(), _MOST_FIGURES):
        rows, columns = (min(shown, size(layout, mode)) for mode, shown in enumerate(_BANKED))
        grid = grid_of("", rows, columns, partial(_bank_cell, layout, dtype(element).bytes))
        yield Figure.of(
            f"banks of {name}", ((grid,),),
            f"{element} {text} in shared memory: the bank in which each of the first {rows} x {columns} elements begins"
        )


def _bank_cell(layout: Any, nbytes: int, row: int, column: int) -> Cell:
    bank = bank_of(layout(row + size(layout, 0) * column), nbytes)
    return Cell((str(bank),), by_bank(bank, BANKS))
