"""C by way of shared memory, in the ring's place, where threads would write elements apart.

With rows that are not whole vectors, the same sector would be written many times, in parts; here
neighbouring threads write along rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import gcd

from ..._dtypes import dtype
from ...codegen import CodegenError, static_extents
from ...codegen.copies import Covering
from ...codegen.covering import CoveredTiles
from ...layout import Layout, Tensor, _, append, cosize, select
from ...layout.symbolic import IntLike, all_of, equal, minimum
from ..common import ELEMENTS, WARP, Partition, copy_element, vectors_along
from .block import GemmBlock

LEAST_ROW = 16
"""Elements of the shortest rows that repay the way through shared memory."""

_WORD = 4                           # bytes


def held_bytes(rows: int, length: int, item: int, apart: int) -> int:
    """Shared memory for ``rows`` of ``length`` elements, ``apart`` bytes from each other."""
    return rows * (length * item + max(item, apart))


def store_by_rows(block: GemmBlock, sums: Tensor, partition: Partition, apart: int) -> None:
    """The end of a kernel that writes tiles of C by rows. ``sums`` and ``partition`` are (run,
    rest...); ``apart`` bytes between rows let threads write runs of several rows to different
    banks."""
    words = block.config.c.unit == 1 and dtype(block.config.output).bytes < _WORD
    pieces = _by_words(block, partition) if words else _by_elements(block, partition, apart)
    block.store(sums, partition, pieces, single=words)


@contextmanager
def _by_elements(block: GemmBlock, partition: Partition,
                 apart: int) -> Iterator[tuple[IntLike, Tensor]]:
    """Neighbouring threads write neighbours along the contiguous mode of C."""
    k, config = block.k, block.config
    element, along = config.output, config.c.unit
    if along is None:
        raise CodegenError(f"C must be contiguous along rows or columns, got {config}")
    tile = config.tile.m, config.tile.n
    length, rows = tile[along], tile[1 - along]
    line, item = gcd(length, WARP), dtype(element).bytes
    pitch = held_bytes(1, length, item, apart) // item
    k.wait(0)
    k.barrier()
    strides = (1, pitch) if along == 0 else (pitch, 1)
    held = k.shared("sC", element, Layout(tile, strides), over="sA")
    yield 0, k.pin("tCsC", partition(held))
    k.barrier()
    k.comment("C by rows: (1, rest_m, rest_n)")
    others = gcd(rows, k.threads // line)
    copy = vectors_along(along, (line, others) if along == 0 else (others, line))

    mine = partial(copy.partition, thread=k.thread)
    source, target = k.pin("tRsC", mine(held)), k.pin("tRgC", mine(block.gC))
    guard = block.guard("tRcC", "mn", mine)
    steps, lines = (static_extents(source)[1 + mode] for mode in (along, 1 - along))
    row = k.registers("tRrC", element, (1, lines))
    with k.each(steps) as step:
        at = (_, step, _) if along == 0 else (..., step)
        k.copy(ELEMENTS, source[at], row)
        k.copy(ELEMENTS, row, target[at], guard=guard and guard[at])


@contextmanager
def _by_words(block: GemmBlock, partition: Partition) -> Iterator[tuple[IntLike, Tensor]]:
    """Rows that begin anywhere: whole words of memory, then elements alone in theirs."""
    k, tile, element = block.k, block.config.tile, block.config.output

    def turned(tensor: Tensor) -> Tensor:
        """(M, N) as tiles of rows: (run, row, 1)."""
        return append(select(tensor, 1, 0), 3)

    tiles = CoveredTiles.of(k, "C", turned(block.gC))
    part = partial(tiles.partition, threads=k.threads, thread=k.thread)
    k.wait(0)
    k.barrier()
    words = k.shared("sC", "b32", tiles.held(1), over="sA")
    elements = tiles.held_elements(k.shared("sC_elements", element,
                                            2 * cosize(words), over="sA").engine, 1)
    yield 0, k.pin("tCsC", partition(select(elements, 1, 0)))
    k.barrier()
    k.comment("C by words: (1, words, rows, 1)")
    source, target = k.pin("tWsC", part(words)), k.pin("tWgC", part(tiles.words))
    begin = part(tiles.begin)
    coordinates = block.coordinates("tWcC", "mn",
                                    lambda identity: part(tiles.coordinates(turned(identity))))
    rows, left = block.extents["m"], block.extents["n"] - coordinates(0, 0, 0, 0)[1]
    columns = k.let("columns", minimum(left, tile.n))
    held = k.registers("tWrC", "b32", static_extents(source))
    k.copy(Covering(1), source, held)
    with k.loops(static_extents(source)) as at:
        first, exists = begin(*at), coordinates(*at)[0] < rows
        k.copy(ELEMENTS, held(*at), target(*at),
               when=all_of(exists, first > -1, first + 1 < columns))
    k.comment("Elements that are alone in a word: the first and the last one of a row")
    with k.loop("row", tile.m, start=k.thread, step=k.threads) as row:
        early = k.let("early", tiles.early(0, row, 0))
        for alone, column in ((early, 0), ((columns + early) % 2, columns - 1)):
            with k.when(all_of(block.at[0] * tile.m + row < rows, equal(alone, 1))):
                copy_element(k, "tErC", elements(column, row, 0), block.gC(row, column))
