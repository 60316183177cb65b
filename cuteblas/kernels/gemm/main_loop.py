"""The main loop of blocks whose threads load A and B themselves, by asynchronous copies into a ring of stages."""

from __future__ import annotations

from collections.abc import Callable

from ...codegen.engine import CodegenError
from ...codegen.pipeline import RingIndex
from ...layout.symbolic import IntLike, less, minimum
from .block import GemmBlock

__all__ = ["main_loop"]


def main_loop(block: GemmBlock, stages: int, steps: int, *, load: Callable[[IntLike, IntLike], None],
              fetch: Callable[[IntLike, IntLike, IntLike], None], multiply: Callable[[IntLike], None],
              spelled: bool = False, beyond: bool = True, chunk: IntLike | None = None,
              end_chunk: Callable[[IntLike], None] | None = None) -> None:
    """Three streams of instructions, each a step ahead of the next.

    Tiles are copied from global to shared memory ``stages - 1`` steps along K ahead; fragments from shared memory into one of two
    register buffers one step ahead of the multiplication. With more than one buffer of each, one barrier a tile is enough.

    Parameters
    ----------
    block : GemmBlock
        What the block works on.
    stages : int
        Tiles in shared memory, at least 2.
    steps : int
        Steps of the multiplication in a tile: an even number, so that every tile begins with the same register buffer.
    load : callable
        Starts the copies of (k tile, stage) from global to shared memory; beyond the last tile, of zeros.
    fetch : callable
        Loads the fragments of (step, stage) into the registers of a buffer.
    multiply : callable
        Multiplies the fragments of a step, which are in the buffer ``step % 2``.
    spelled : bool
        Whether the steps of a tile are written one after the other instead of as an unrolled loop: in a swizzled address, a step
        that is a constant costs nothing.
    beyond : bool
        Whether tiles beyond the last one are loaded and fetched, as zeros that nobody multiplies: cheaper than a condition, unless
        copies are many.
    chunk : IntLike, optional
        Tiles after which ``end_chunk`` is called, unless they were the last.
    end_chunk : callable, optional
        Takes the sums of a chunk away, before the tile whose index it is given.

    Raises
    ------
    CodegenError
        For fewer than two stages or an odd number of steps.
    """
    k, ahead = block.k, stages - 1
    if ahead < 1 or steps % 2:
        raise CodegenError(f"{k.name}: the main loop needs two stages or more and an even number of steps in a tile, got {stages} "
                           f"and {steps}")

    def start(k_tile: IntLike, stage: IntLike) -> None:
        with k.when(beyond or less(k_tile, k_tiles)):
            load(k_tile, stage)
        k.commit()

    k.comment("Fill the ring")
    k_tiles = block.k_tiles
    for stage in range(ahead):
        start(stage, stage)
    k.wait(ahead - 1)
    k.barrier()
    with k.when(beyond or less(0, k_tiles)):
        fetch(0, 0, 0)

    k.comment("Main loop: copy a tile ahead, multiply this one, operands fetched one step early")
    read, write = RingIndex(k, stages, "read"), RingIndex(k, stages, "write", ahead)
    last = steps - 1

    def step(i: IntLike) -> None:
        fetch(i + 1, read.index, (i + 1) % 2)
        multiply(i)

    def tile(k_tile: IntLike) -> None:
        start(k_tile + ahead, write.index)
        if spelled:
            for constant in range(last):
                step(constant)
        else:
            with k.loop("step", last, unroll=True) as i:
                step(i)
        k.wait(ahead - 1)
        k.barrier()
        read.advance()
        write.advance()
        with k.when(beyond or less(k_tile + 1, k_tiles)):
            fetch(0, read.index, (last + 1) % 2)
        multiply(last)

    if end_chunk is None or chunk is None:
        with k.loop("k_tile", k_tiles) as k_tile:
            tile(k_tile)
        return
    with k.loop("first", k_tiles, step=chunk) as first:
        with k.when(less(0, first)):
            end_chunk(first)
        with k.loop("k_tile", minimum(first + chunk, k_tiles), start=first) as k_tile:
            tile(k_tile)
