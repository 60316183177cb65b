"""Tiles of C whose K is divided between blocks, so that all blocks have equal work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from ...codegen import GeneratedKernel, KernelBuilder, Pointer, Vector
from ...layout import Layout, Tensor, _, make_tensor, size
from ...layout.symbolic import Condition, IntLike, equal, maximum, minimum, select
from ..common import GROUP, DynamicPair, clear

_VECTOR = 4                         # accumulators that are exchanged together
_CLEARING_THREADS = 32              # there is room for one warp next to a block of any other kernel
_VECTORS_AT_ONCE = 16               # that a thread asks for before it adds them


@dataclass(frozen=True)
class Divided:
    """The first ``count`` tiles as a row of steps along K, cut into equal parts, one for each
    block. A block begins with the end of its part. Whoever has a tile's last step adds the sums of
    the blocks before it, always in that order: blocks wait only for lower indices. ``sums`` has a
    tile a block, ``flags`` a word a warpgroup, zero at the start: its accumulators are there."""

    count: IntLike
    sums: Pointer
    flags: Pointer

    @classmethod
    def parameters(cls, k: KernelBuilder, element: str = "float32") -> Divided:
        """The parameters ``divided``, ``sums`` (of a type) and ``flags`` of a kernel."""
        return cls(k.integer("divided"), k.pointer("sums", element, const=False),
                   k.pointer("flags", "uint32", const=False, alignment=4))


class Share:
    """A block's part of the divided tiles: it has steps of ``parts`` of them."""

    def __init__(self, k: KernelBuilder, divided: Divided, k_tiles: IntLike, block: IntLike,
                 blocks: IntLike):
        self._k, self._divided, self._k_tiles, self._block, self._blocks = k, divided, k_tiles, block, blocks
        depth = maximum(k_tiles, 1)
        self.tiles = k.let("tiles_divided", select(equal(k_tiles, 0), 0, divided.count))
        steps = k.let("steps_divided", self.tiles * k_tiles)
        self._share, self._longer = k.let("share", steps // blocks), k.let("longer_parts", steps % blocks)
        self._first = k.let("part_first", block * self._share + minimum(block, self._longer))
        self._end = k.let("part_end", self._first + self._share
                          + select(block < self._longer, 1, 0))
        self._last_tile = k.let("last_of_part", maximum(self._end - 1, 0) // depth)
        self.parts = k.let("parts", select(self._first < self._end,
                                           self._last_tile - self._first // depth + 1, 0))

    def tile(self, work: IntLike) -> IntLike:
        """The tile that the block works on at a time: the last one of its part first."""
        return maximum(self._last_tile - work, 0)

    def steps(self, tile: IntLike, in_part: Condition) -> DynamicPair:
        """The block's first step along K of a tile, and the one after the last."""
        k = self._k
        before = k.let("steps_before", tile * self._k_tiles)
        return (k.let("first_k_tile", select(in_part, maximum(self._first - before, 0), 0)),
                k.let("end_k_tile", select(in_part, minimum(self._end - before, self._k_tiles),
                                           self._k_tiles)))

    @contextmanager
    def ended(self, first: IntLike, end: IntLike, total: Tensor, groups: int) -> Iterator[None]:
        """Run the body with a tile's whole sum; a warpgroup has done ``first`` to ``end``."""
        k, lane, group = self._k, self._k.thread % GROUP, self._k.thread // GROUP
        block, vectors = self._block, size(total) // _VECTOR
        rounds = next(n for n in range(-(-vectors // _VECTORS_AT_ONCE), vectors + 1)
                      if vectors % n == 0)
        at_once = Layout((_VECTOR, vectors // rounds))
        mine = make_tensor(total.engine, (_VECTOR, vectors // rounds, rounds))
        sums = make_tensor(self._divided.sums, (_VECTOR, GROUP, vectors // rounds, rounds, groups,
                                                self._blocks))
        flags = make_tensor(self._divided.flags, (groups, self._blocks))
        with k.when(end < self._k_tiles):
            k.comment("Another block ends this tile")
            k.copy(Vector(_VECTOR), mine, k.pin("tSgS", sums[_, lane, _, _, group, block]))
            k.group_barrier(1 + group, GROUP)
            with k.when(equal(lane, 0)):
                k.do("store_flag", flags(group, block), 1)
        with k.otherwise():
            with k.when(first > 0):
                first_block = k.let("first_block",
                                    self._block_of(k.let("tile_begins",
                                                         maximum(self._first - first, 0))))
                others = k.registers("others", total.engine.dtype.name, at_once)
                with k.loop("other", block, start=first_block) as other:
                    k.spin(k.call("load_flag", flags(group, other)).equals(0))
                with k.loop("other", block, start=first_block) as other:
                    tOgS = k.pin("tOgS", sums[_, lane, _, _, group, other])
                    with k.each(rounds, "r") as r:
                        k.copy(Vector(_VECTOR), tOgS[..., r], others)
                        k.fold(mine[..., r], others)
            yield

    def _block_of(self, step: IntLike) -> IntLike:
        """The block that has a step: longer parts come first."""
        in_longer = self._longer * (self._share + 1)
        return select(step < in_longer, step // (self._share + 1),
                      self._longer + maximum(step - in_longer, 0) // maximum(self._share, 1))


@cache
def clear_words() -> GeneratedKernel:
    """Generate the kernel that clears flags, in one block: a pointer to words and their number."""
    k = KernelBuilder("clear_words", _CLEARING_THREADS, summary="words[i] = 0")
    clear(k, k.pointer("words", "uint32", const=False, alignment=4), k.integer("count"))
    return k.build()
