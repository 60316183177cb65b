"""Pictures of a plan's layouts, in text: the threads that own the tile of C, and the banks of a
tile in shared memory."""

from __future__ import annotations

from ..kernels.copy.tiles import TransposeConfig
from ..layout import ComposedLayout, Layout, size
from ..planning import Plan
from ..planning.pictures import owners
from ..tutorial.transpose import TILE, SharedConfig
from .terminal import Paint, side_by_side

__all__ = ["bank_picture", "element_picture", "picture", "tile_picture"]

_MOST_CELLS = 16
_BANKS, _BANK_BYTES = 32, 4
_SHOWN = 8
_WARP = 32


def picture(plan: Plan, paint: Paint) -> list[str]:
    """The picture that goes with a plan; no lines if there is none."""
    if isinstance(plan.config, SharedConfig):
        return element_picture(plan.config, paint)
    return bank_picture(plan, paint) if isinstance(plan.config,
                                                   TransposeConfig) else tile_picture(plan, paint)


def tile_picture(plan: Plan, paint: Paint) -> list[str]:
    """Which thread owns each part of a tile of C.

    Parameters
    ----------
    plan : Plan
        Of a product; there are lines only if a kernel multiplies.
    paint : Paint
        Colours by warp.
    """
    found = owners(plan)
    if found is None:
        return []
    shown = [row[:_MOST_CELLS] for row in found.grid[:_MOST_CELLS]]
    digits = len(str(max(max(row) for row in shown))) + 1
    (rows, columns), (height, width) = found.tile, found.block
    lines = [
        f"the {rows}x{columns} elements of C that {found.threads} threads own: each number is a thread and its block of "
        f"{height}x{width}{', each colour a warp' if paint('', 0) else ''}"
    ]
    cut = " .." if len(shown[0]) < len(found.grid[0]) else ""
    lines += ["  " + " ".join(paint(f"T{t}".rjust(digits), t // _WARP) for t in row) + cut
              for row in shown]
    if len(shown) < len(found.grid):
        lines.append("  ..")
    if found.repeats != (1, 1):
        tile, times = (f"{m}x{n}" for m, n in (found.of_block, found.repeats))
        lines.append(f"  a block's tile of {tile} repeats this {times} times")
    return lines


def bank_picture(plan: Plan, paint: Paint) -> list[str]:
    """The bank of shared memory in which each vector of a transpose's tile begins, without its
    swizzle and with it.

    Parameters
    ----------
    plan : Plan
        Of a copy; there are lines only if it passes through shared memory.
    paint : Paint
        Colours by bank.
    """
    config = plan.config
    if not isinstance(config, TransposeConfig):
        return []
    shared = config.shared
    # words of a chunk that the swizzle moves as one
    step_j = max(config.store, _BANK_BYTES) // config.word
    # from lane to lane of a column that is read
    step_i = config.store // config.word
    js, ies = (range(0, min(size(shared.inner[m]), _SHOWN * s), s)
               for m, s in ((0, step_j), (1, step_i)))

    def banks(layout: Layout | ComposedLayout) -> list[str]:
        rows = [[layout(j, i) * config.word // _BANK_BYTES % _BANKS for j in js] for i in ies]
        return ["".join(paint(f"{bank:>4}", bank * _BANK_BYTES // (step_j * config.word))
                        for bank in row) for row in rows]

    width = 4 * len(js)
    heading = "".join(f"{f'j{j}':>4}" for j in js)
    labels = [" " * 6, " " * 6, *(f"{f'i{i}':>6}" for i in ies)]
    plain = ["without".ljust(width), heading, *banks(shared.inner)]
    swizzled = [f"with {shared.outer}".ljust(width), heading, *banks(shared)]
    lines = [
        f"the tile of {config.tile[0]}x{config.tile[1]} elements in shared memory, in {config.word}-byte words: "
        f"the bank of word (j, i)"
    ]
    lines += side_by_side([labels, plain, swizzled])
    lines.append(
        "  rows of j are written, columns of i are read: without the swizzle a column would meet one bank"
    )
    return lines


def element_picture(config: SharedConfig, paint: Paint) -> list[str]:
    """The bank of shared memory of each element of a tile: in plain rows, and as a tutorial's
    transpose lays it out."""
    plain = Layout(TILE, (TILE[1], 1))
    step = max(1, _BANK_BYTES // config.item)                          # elements of a bank
    columns, rows = range(0, _SHOWN * step, step), range(_SHOWN)

    def banks(layout: Layout | ComposedLayout) -> list[str]:
        numbers = [[layout(m, n) * config.item // _BANK_BYTES % _BANKS for n in columns]
                   for m in rows]
        return ["".join(paint(f"{bank:>4}", bank) for bank in row) for row in numbers]

    heading = "".join(f"{f'n{n}':>4}" for n in columns)
    width = max(len(heading), *(len(str(layout)) for layout in (plain, config.shared)))
    pictures = [[" " * 4, " " * 4, *(f"{f'm{m}':>4}" for m in rows)]]
    for layout in (plain,) if config.shared == plain else (plain, config.shared):
        lines = [heading, *banks(layout)]
        pictures.append([f"{layout}".ljust(width),
                         *(line + " " * (width - len(heading)) for line in lines)])
    lines = [
        f"the tile of {TILE[0]}x{TILE[1]} elements of {config.item} bytes in shared memory: the bank of element (m, n)"
    ]
    lines += side_by_side(pictures)
    lines.append(
        "  rows are written, columns are read; lanes that meet in one bank wait for each other"
    )
    return lines
