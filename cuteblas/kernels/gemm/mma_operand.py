"""An operand of ``gemm_mma``: its ring of stages in shared memory, the copies that fill it, and the
fragments that come from it.

Rows are read by vectors, or, where 2-byte elements begin anywhere, by the words that cover them:
then fragments are cut from words where rows run along K, and made of single elements where they do
not.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ..._dtypes import dtype
from ...codegen.builder import KernelBuilder
from ...codegen.copies import CpAsync, Ldmatrix, Vector
from ...codegen.covering import CoveredTiles, CpAsyncPart, CutWords, JoinPairs
from ...codegen.engine import CodegenError, static_extents
from ...codegen.mma import WarpMma, operand_tile
from ...codegen.tiled import TiledCopy
from ...layout import ComposedLayout, Layout, Tensor, _, cosize, make_layout, size
from ...layout.symbolic import IntLike, all_of, less, minimum, select
from ..common import OperandAccess, vectors_along
from .block import GemmBlock, GemmConfig

__all__ = ["MmaOperand", "mma_operand"]

_MATRICES = 4                        # registers that one ldmatrix fills


class MmaOperand:
    """One operand, in the order in which a kernel declares what belongs to it.

    Attributes
    ----------
    text : str
        The threads that copy it, for the head of the kernel.
    registers : Tensor
        Its fragment: (register, atom, buffer).
    """

    text: str
    registers: Tensor

    def __init__(self, config: GemmConfig, mode: int):
        self._tile, self._mode, self._name = config.tile, mode, "AB"[mode]
        self._access = (config.a, config.b)[mode]
        self._extent = (config.tile.m, config.tile.n)[mode]
        self._k_major, self._modes = self._access.unit != 0, ("mk", "nk")[mode]

    def hold(self, k: KernelBuilder, tiles: Tensor) -> None:
        """Declare the ring of stages of (extent, K, k tile) in global memory."""

    def partition(self) -> None:
        """Declare what a thread copies."""

    def guard(self, block: GemmBlock) -> None:
        """Declare which of it exists."""

    def load(self, k_tile: IntLike, stage: IntLike, exists: Any) -> None:
        """Start the copies of a tile into a stage."""

    def fragment(self) -> None:
        """Declare the fragment, two buffers of it."""

    def fetch(self, step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        """Load what one step along K multiplies."""

    def _registers(self, k: KernelBuilder) -> tuple[int, int]:
        """Declare the fragment; how many registers an atom has, and how many atoms."""
        tiled = self._tile.mma
        atom, atoms = tiled.atom, tiled.atoms[self._mode]
        per_atom = atom.shape[self._mode] * atom.shape[2] // 32 // atom.per_register
        self.registers = k.registers(f"tCr{self._name}", atom.register,
                                     Layout((per_atom, atoms, 2)))
        return per_atom, atoms

    def _part(self, tiled: WarpMma, tensor: Tensor, thread: IntLike) -> Tensor:
        """What a thread multiplies: ((value, atom), 1, k steps, ...)."""
        return (tiled.partition_a, tiled.partition_b)[self._mode](tensor, thread)


class _Vectors(MmaOperand):
    """An operand whose rows are read by vectors, in a swizzled ring."""

    def __init__(self, config: GemmConfig, mode: int):
        super().__init__(config, mode)
        extents = self._extent, config.tile.k
        self._loader = _by_vectors(extents, config.tile.mma.threads, self._access)
        self.text = str(self._loader.tv)
        if any(e % by for e, by in zip(extents, self._loader.tile, strict=True)):
            raise CodegenError(
                f"the tile {extents} of {self._name} does not divide into {self._loader.tile}, got {config.tile}"
            )

    def hold(self, k: KernelBuilder, tiles: Tensor) -> None:
        tile = self._tile
        one = operand_tile(self._extent, tile.k, tile.atom.element, self._k_major,
                           tile.atom.apart[self._mode])
        inner = make_layout(one.inner[0], one.inner[1], Layout(tile.stages, size(one.inner)))
        self._k, self._tiles = k, tiles
        self._ring = k.shared(f"s{self._name}", tile.atom.element,
                              ComposedLayout(one.outer, 0, inner), alignment=1024)

    def partition(self) -> None:
        k, x = self._k, self._name
        self._source = k.pin(f"t{x}g{x}", self._loader.partition(self._tiles, k.thread))
        self._target = k.pin(f"t{x}s{x}", self._loader.partition(self._ring, k.thread))

    def guard(self, block: GemmBlock) -> None:
        x = self._name
        self._guard = block.guard(f"t{x}c{x}", self._modes,
                                  lambda c: self._loader.partition(c, self._k.thread))

    def load(self, k_tile: IntLike, stage: IntLike, exists: Any) -> None:
        here = (_, _, _, k_tile)
        self._k.copy(CpAsync(self._access.width), self._source[here], self._target[_, _, _, stage],
                     guard=self._guard and self._guard[here], when=exists)

    def fragment(self) -> None:
        k, name, mode, tiled = self._k, self._name, self._mode, self._tile.mma
        per_atom, atoms = self._registers(k)
        rows = tiled.matrices(mode, self._k_major)
        self._by_rows = rows is not None
        if rows is not None:
            self._operand = k.pin(f"tCs{name}",
                                  tiled.partition_rows(self._ring, mode, rows, k.thread))
            self._fragment = Tensor(self.registers.engine,
                                    Layout((_MATRICES, per_atom * atoms // _MATRICES, 2)))
        elif tiled.atom.per_register == 1:
            part = self._part(tiled, self._ring, k.thread)
            self._operand = k.pin(f"tCs{name}", part[_, 0, _, _])
            self._fragment = Tensor(self.registers.engine, Layout((per_atom * atoms, 2)))
        else:
            raise CodegenError(
                f"{k.name}: ldmatrix does not load operand {name} of {tiled.atom.element}: 8-bit "
                "elements are contiguous along K, and a warp owns quadruples of registers"
            )

    def fetch(self, step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        if self._by_rows:
            self._k.copy(Ldmatrix(not self._k_major), self._operand[_, _, step, stage],
                         self._fragment[_, _, buffer])
        else:
            self._k.copy(Vector(1), self._operand[_, step, stage], self._fragment[_, buffer])


class _Covered(MmaOperand):
    """An operand whose rows begin anywhere, in a ring of the words that cover them: each row at its
    own place in its first word."""

    text = "neighbours along rows of words"

    def _turned(self, tensor: Tensor) -> Tensor:
        """(extent, K, ...) in the order (run, row, ...)."""
        return tensor.map_domain(
            lambda layout: make_layout(
                *(layout[i] for i in ((1, 0) if self._k_major else (0, 1))), *list(layout)[2:]
            )
        )

    def _part_of_copy(self, tensor: Tensor) -> Tensor:
        """What a thread copies of (word, row, ...)."""
        return self._tiles.partition(tensor, self._tile.mma.threads, self._k.thread)

    def hold(self, k: KernelBuilder, tiles: Tensor) -> None:
        name, stages = self._name, self._tile.stages
        self._k, self._tiles = k, CoveredTiles.of(k, name, self._turned(tiles))
        self._ring = k.shared(f"s{name}", "b32", self._tiles.held(stages))

    def partition(self) -> None:
        k, x = self._k, self._name
        self._source = k.pin(f"t{x}g{x}", self._part_of_copy(self._tiles.words))
        self._target = k.pin(f"t{x}s{x}", self._part_of_copy(self._ring))

    def guard(self, block: GemmBlock) -> None:
        x = self._name
        self._rows = block.coordinates(f"c{x}", self._modes, self._turned)
        self._words = block.coordinates(
            f"t{x}c{x}",
            self._modes,
            lambda c: self._part_of_copy(self._tiles.coordinates(self._turned(c)))
        )
        self._extents = tuple(block.extents[mode] for mode in self._modes)

    def load(self, k_tile: IntLike, stage: IntLike, exists: Any) -> None:
        k, x, tiles, here = self._k, self._name, self._tiles, (_, _, _, k_tile)
        along, across = (1, 0) if self._k_major else (0, 1)
        columns = k.let(f"columns_{x}", minimum(self._extents[along]
                                                - self._rows(0, 0, k_tile)[along], tiles.run))
        ends = tiles.end(k, f"end_{x}", columns)
        source, target, coordinates = self._source[here], self._target[_, _, _, stage], self._words[here]
        numbers, lasts = (self._part_of_copy(tensor)[here] for tensor in (tiles.number, ends))
        with k.loops(static_extents(source)) as at:
            word, last, exists = numbers(*at), lasts(*at), less(coordinates(*at)[across],
                                                                self._extents[across])
            with k.when(word.ne(last)):
                k.copy(CpAsync(1), source(*at), target(*at), when=all_of(exists, less(word, last)))
        # The word in which a row ends, and zeros of the one after a row of words if that is another
        # one.
        beyond, threads = tiles.run // self._tile.atom.per_register, self._tile.mma.threads
        for i in range(-(-tiles.rows // threads)):
            row = k.thread + i * threads
            with k.when(less(row, tiles.rows)):
                last = k.let(f"last_{x}_{i}", ends(0, row, 0))
                exists = less(self._rows(0, row, k_tile)[across], self._extents[across])
                alone = (columns
                         + tiles.early(0, row, 0)) % 2 * dtype(self._tile.atom.element).bytes
                k.copy(CpAsyncPart(select(exists, alone, 0)), tiles.words(last, row, k_tile),
                       self._ring(last, row, stage))
                with k.when(less(last, beyond)):
                    k.copy(CpAsyncPart(0), tiles.words(beyond, row, k_tile),
                           self._ring(beyond, row, stage))

    def fragment(self) -> None:
        k, name, tile, tiles = self._k, self._name, self._tile, self._tiles
        per_atom, atoms = self._registers(k)
        self._fragment = Tensor(self.registers.engine, Layout((per_atom * atoms, 2)))
        if self._k_major:
            tiled = WarpMma(tile.atom.of_words, tile.warps, tile.mma.atoms)

            def along_k(layout: Layout) -> Layout:
                """(word, row, ...) -> (row, word of K, ...): without the last word."""
                return make_layout(layout[1], Layout(tile.k // tile.atom.per_register,
                                                     layout[0].stride), *list(layout)[2:])

            part = self._part(tiled, self._ring.map_domain(along_k), k.thread)
            early = self._part(tiled, tiles.early.map_domain(along_k), k.thread)
            # of all rows of a thread, 8 apart
            self._bits = k.let(f"bits_{name}", tiles.bits(early(0, 0, 0, 0)))
            self._operand = k.pin(f"tCs{name}", part[_, 0, _, _])
            return
        held = k.shared(f"s{name}_elements", "b16", Layout(2 * cosize(self._ring.layout)),
                        over=f"s{name}")
        elements = tiles.held_elements(held.engine, tile.stages)
        part = self._part(tile.mma, elements, k.thread)

        def pairs(layout: Layout) -> Layout:
            """(((pair, ...), atom), 1, k steps, stage) -> (pair, (..., atom), k step, stage)."""
            value, atom = layout[0]
            return make_layout(value[0], make_layout(*list(value)[1:], atom), *list(layout)[2:])

        self._operand = k.pin(f"tCs{name}", part.map_domain(pairs))

    def fetch(self, step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        if self._k_major:
            self._k.copy(CutWords(self._bits), self._operand[_, step, stage],
                         self._fragment[_, buffer])
        else:
            self._k.copy(JoinPairs(), self._operand[_, _, step, stage], self._fragment[_, buffer])


def mma_operand(config: GemmConfig, mode: int) -> MmaOperand:
    """Operand A (mode 0) or B (1) of a kernel.

    Raises
    ------
    CodegenError
        If its tile does not divide among the threads.
    """
    return (_Covered if (config.a, config.b)[mode].covering else _Vectors)(config, mode)


def _by_vectors(extents: tuple[int, int], threads: int, access: OperandAccess) -> TiledCopy:
    """The copy of an (extent, K) tile: lanes run along whichever mode is contiguous, each with a
    vector along it."""
    along, across = extents if access.unit == 0 else extents[::-1]
    lanes = gcd(along // access.width, threads)
    rows = gcd(across, threads // lanes)
    lanes = threads // rows
    if access.unit == 0:
        return vectors_along(0, (lanes, rows), access.width)
    return vectors_along(1, (rows, lanes), access.width)
