"""The main loop of blocks whose threads copy A and B asynchronously into a ring of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...codegen import CodegenError, CpAsync, TiledCopy
from ...codegen.builder import CopyAtom
from ...codegen.pipeline import RingIndex
from ...layout import Tensor
from ...layout.symbolic import IntLike, minimum
from .block import GemmBlock


class LoopOperand:
    """A or B (``mode`` 0 or 1): a ring of stages in shared memory, and fragments with two buffers.
    ``part`` (..., step, stage) is copied to ``fragment`` (..., buffer)."""

    registers: Tensor
    atom: CopyAtom
    part: Tensor
    fragment: Tensor

    def __init__(self, block: GemmBlock, mode: int):
        config = block.config
        self.block, self.k, self.mode, self.tile = block, block.k, mode, config.tile
        self.name, self.modes = "AB"[mode], ("mk", "nk")[mode]
        self.access, self.element = (config.a, config.b)[mode], config.elements[mode]
        self.extent, self.tiles = (self.tile.m, self.tile.n)[mode], (block.gA, block.gB)[mode]

    def load(self, k_tile: IntLike, stage: IntLike) -> None:
        """Start the copies of a tile into a stage; after the last tile, of zeros."""

    def fetch(self, step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        """Load what a step along K of a stage multiplies into a buffer of the fragment."""
        self.k.copy(self.atom, self.part[..., step, stage], self.fragment[..., buffer])


class VectorOperand(LoopOperand):
    def read(self, copy: TiledCopy, ring: Tensor) -> None:
        k, x, self._width = self.k, self.name, max(copy.values)
        k.note(f"threads that copy {x}: {copy.tv}")
        copy.passes((self.extent, self.tile.k), f"{x} of {k.name}")
        self._source, self._target = (
            k.pin(f"t{x}{where}{x}", copy.partition(tensor, k.thread))
            for where, tensor in (("g", self.tiles), ("s", ring)))
        # without predicates of elements, copies beyond the end write zeros
        self._aligned = self.block.config.aligned
        self._guard = self.block.guard(f"t{x}c{x}", self.modes,
                                       lambda c: copy.partition(c, k.thread))

    def load(self, k_tile: IntLike, stage: IntLike) -> None:
        here = (..., k_tile)
        exists = k_tile < self.block.k_tiles if self._aligned else True
        self.k.copy(CpAsync(self._width), self._source[here], self._target[..., stage],
                    guard=self._guard and self._guard[here], when=exists)


class Chunks(Protocol):
    """Takes sums away chunk by chunk along K."""

    @property
    def chunk(self) -> IntLike:
        """Tiles of a chunk."""

    def end_chunk(self, first: IntLike) -> None:
        """Take a chunk's sums away before the tile of this index; not after the last tile."""


@dataclass(frozen=True)
class MainLoop:
    """Copies to shared memory, ``stages - 1`` ahead; fragments to registers, a step ahead;
    products. With two buffers of each, one barrier a tile is enough. ``steps`` of a tile are even,
    so that it begins with the same buffer. ``spelled`` steps are constants, which cost nothing in
    swizzled addresses. ``past_end`` loads zeros after the last tile: cheaper than a condition,
    unless copies are many."""

    block: GemmBlock
    stages: int
    steps: int
    spelled: bool = False
    past_end: bool = True

    def __post_init__(self) -> None:
        if self.stages < 2 or self.steps % 2:
            raise CodegenError(
                f"{self.block.k.name}: the main loop needs two stages or more and an even number of steps in a "
                f"tile, got {self.stages} and {self.steps}"
            )

    def write(self, operands: Sequence[LoopOperand], multiply: Callable[[IntLike], None],
              chunks: Chunks | None = None) -> None:
        """Write the loop; ``multiply`` takes a step, with fragments in buffer ``step % 2``."""
        k, ahead, last = self.block.k, self.stages - 1, self.steps - 1
        k.comment("Fill the ring")
        k_tiles = self.block.k_tiles

        def start(k_tile: IntLike, stage: IntLike) -> None:
            with k.when(self.past_end or k_tile < k_tiles):
                for operand in operands:
                    operand.load(k_tile, stage)
            k.commit()

        def fetch(step: IntLike, stage: IntLike, buffer: IntLike) -> None:
            for operand in operands:
                operand.fetch(step, stage, buffer)

        for stage in range(ahead):
            start(stage, stage)
        k.wait(ahead - 1)
        k.barrier()
        with k.when(self.past_end or k_tiles > 0):
            fetch(0, 0, 0)

        k.comment(
            "Main loop: copy a tile ahead, multiply this one, operands fetched one step early"
        )
        read, write = RingIndex(k, self.stages, "read"), RingIndex(k, self.stages, "write", ahead)

        def step(i: IntLike) -> None:
            fetch(i + 1, read.index, (i + 1) % 2)
            multiply(i)

        def tile(k_tile: IntLike) -> None:
            start(k_tile + ahead, write.index)
            if self.spelled:
                for constant in range(last):
                    step(constant)
            else:
                with k.loop("step", last, unroll=True) as i:
                    step(i)
            k.wait(ahead - 1)
            k.barrier()
            read.advance()
            write.advance()
            with k.when(self.past_end or k_tile + 1 < k_tiles):
                fetch(0, read.index, (last + 1) % 2)
            multiply(last)

        if chunks is None:
            with k.loop("k_tile", k_tiles) as k_tile:
                tile(k_tile)
            return
        with k.loop("first", k_tiles, step=chunks.chunk) as first:
            with k.when(first > 0):
                chunks.end_chunk(first)
            with k.loop("k_tile", minimum(first + chunks.chunk, k_tiles), start=first) as k_tile:
                tile(k_tile)
