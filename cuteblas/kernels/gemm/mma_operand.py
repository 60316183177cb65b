"""An operand of ``gemm_mma``: its ring of stages, and fragments from vectors or covering words.

Where 2-byte elements begin anywhere, fragments are cut from the words that cover rows along K, and
made of single elements otherwise.
"""

from __future__ import annotations

from math import gcd

from ..._dtypes import dtype
from ...codegen import CodegenError, CpAsync, TiledCopy, static_extents
from ...codegen.copies import Ldmatrix
from ...codegen.covering import CoveredTiles, CpAsyncPart, CutWords, JoinPairs
from ...codegen.mma import WarpMma, operand_tile
from ...layout import ComposedLayout, Layout, Tensor, _, cosize, make_layout, make_tensor, size
from ...layout import select as modes_of
from ...layout.symbolic import IntLike, all_of, minimum, select
from ..common import ELEMENTS, WARP, OperandAccess, Pair, vectors_along
from .block import GemmBlock
from .main_loop import LoopOperand, VectorOperand

_MATRICES = 4                        # registers that one ldmatrix fills


def _fragment(operand: LoopOperand) -> tuple[Tensor, int, int]:
    """Registers (register, atom, buffer) for what a thread multiplies, and their extents."""
    mma = operand.tile.mma
    atom, atoms = mma.atom, mma.atoms[operand.mode]
    per_atom = atom.shape[operand.mode] * atom.shape[2] // WARP // atom.per_register
    registers = operand.k.registers(f"tCr{operand.name}", atom.register,
                                    (per_atom, atoms, 2))
    return registers, per_atom, atoms


def _multiplied(mma: WarpMma, operand: LoopOperand, tensor: Tensor) -> Tensor:
    """The part that a thread multiplies: ((value, atom), 1, k steps, ...)."""
    return (mma.partition_a, mma.partition_b)[operand.mode](tensor, operand.k.thread)


class _Vectors(VectorOperand):
    def __init__(self, block: GemmBlock, mode: int):
        super().__init__(block, mode)
        k, tile, name, mma = self.k, self.tile, self.name, self.tile.mma
        extents, k_major = (self.extent, tile.k), self.access.unit != 0
        one = operand_tile(*extents, mma.atom.element, k_major, mma.atom.apart[mode])
        inner = make_layout(one.inner[0], one.inner[1], Layout(tile.stages, size(one.inner)))
        ring = k.shared(f"s{name}", mma.atom.element, ComposedLayout(one.outer, 0, inner),
                        alignment=1024)
        self.read(_by_vectors(extents, mma.threads, self.access), ring)
        self.registers, per_atom, atoms = _fragment(self)
        rows = mma.matrices(mode, k_major)
        if rows is not None:
            self.atom = Ldmatrix(not k_major)
            part = mma.partition_rows(ring, mode, rows, k.thread)
            fragment = Layout((_MATRICES, per_atom * atoms // _MATRICES, 2))
        elif mma.atom.per_register == 1:
            self.atom = ELEMENTS
            part = _multiplied(mma, self, ring)[_, 0, _, _]
            fragment = Layout((per_atom * atoms, 2))
        else:
            raise CodegenError(
                f"{k.name}: ldmatrix does not load operand {name} of {mma.atom.element}: 8-bit "
                "elements are contiguous along K, and a warp owns quadruples of registers"
            )
        self.part = k.pin(f"tCs{name}", part)
        self.fragment = Tensor(self.registers.engine, fragment)


class _Covered(LoopOperand):
    """An operand whose rows begin anywhere: each at its own place in its first word."""

    def __init__(self, block: GemmBlock, mode: int):
        super().__init__(block, mode)
        k, x, tile, atom = self.k, self.name, self.tile, self.tile.atom
        self._along = 1 if self.access.unit != 0 else 0
        self._words = tiles = CoveredTiles.of(k, x, self._turned(self.tiles))
        self._ring = k.shared(f"s{x}", "b32", tiles.held(tile.stages))
        self._source, self._target = (k.pin(f"t{x}{where}{x}", self._part_of_copy(tensor))
                                      for where, tensor in (("g", tiles.words), ("s", self._ring)))
        self._rows = block.coordinates(f"c{x}", self.modes, self._turned)
        self._exists = block.coordinates(
            f"t{x}c{x}",
            self.modes,
            lambda c: self._part_of_copy(tiles.coordinates(self._turned(c)))
        )
        self.registers, per_atom, atoms = _fragment(self)
        self.fragment = make_tensor(self.registers.engine, (per_atom * atoms, 2))
        if self._along:
            of_words = WarpMma(atom.of_words, tile.warps, tile.mma.atoms)

            def along_k(layout: Layout) -> Layout:
                """(word, row, ...) -> (row, word of K, ...): without the last word."""
                return make_layout(layout[1], Layout(tile.k // atom.per_register,
                                                     layout[0].stride), *list(layout)[2:])

            part, early = (_multiplied(of_words, self, x.map_domain(along_k))
                           for x in (self._ring, tiles.early))
            # of all rows of a thread, 8 apart
            self.atom = CutWords(k.let(f"bits_{x}", tiles.bits(early(0, 0, 0, 0))))
            self.part = k.pin(f"tCs{x}", part[_, 0, _, _])
            return
        held = k.shared(f"s{x}_elements", "b16", 2 * cosize(self._ring),
                        over=f"s{x}")
        elements = tiles.held_elements(held.engine, tile.stages)

        def pairs(layout: Layout) -> Layout:
            """(((pair, ...), atom), 1, k steps, stage) -> (pair, (..., atom), k step, stage)."""
            value, atom = layout[0]
            return make_layout(value[0], make_layout(*list(value)[1:], atom), *list(layout)[2:])

        self.atom = JoinPairs()
        self.part = k.pin(f"tCs{x}", _multiplied(tile.mma, self, elements).map_domain(pairs))

    def _turned(self, tensor: Tensor) -> Tensor:
        """(extent, K, ...) in the order (run, row, ...)."""
        return modes_of(tensor, self._along, 1 - self._along, *range(2, tensor.rank))

    def _part_of_copy(self, tensor: Tensor) -> Tensor:
        """What a thread copies of (word, row, ...)."""
        return self._words.partition(tensor, self.tile.mma.threads, self.k.thread)

    def load(self, k_tile: IntLike, stage: IntLike) -> None:
        k, x, tiles, here = self.k, self.name, self._words, (..., k_tile)
        along, across = self._along, 1 - self._along
        extents = [self.block.extents[mode] for mode in self.modes]
        columns = k.let(f"columns_{x}", minimum(extents[along] - self._rows(0, 0, k_tile)[along],
                                                tiles.run))
        ends = tiles.end(k, f"end_{x}", columns)
        source, target = self._source[here], self._target[..., stage]
        coordinates = self._exists[here]
        numbers, lasts = (self._part_of_copy(tensor)[here] for tensor in (tiles.number, ends))
        with k.loops(static_extents(source)) as at:
            word, last, exists = numbers(*at), lasts(*at), coordinates(*at)[across] < extents[across]
            with k.when(word.ne(last)):
                k.copy(CpAsync(1), source(*at), target(*at), when=all_of(exists, word < last))
        # The word in which a row ends, and zeros of the one after a row of words if that is another
        # one.
        beyond, threads = tiles.run // self.tile.atom.per_register, self.tile.mma.threads
        for i in range(-(-tiles.rows // threads)):
            row = k.thread + i * threads
            with k.when(row < tiles.rows):
                last = k.let(f"last_{x}_{i}", ends(0, row, 0))
                exists = self._rows(0, row, k_tile)[across] < extents[across]
                alone = (columns
                         + tiles.early(0, row, 0)) % 2 * dtype(self.tile.atom.element).bytes
                k.copy(CpAsyncPart(select(exists, alone, 0)), tiles.words(last, row, k_tile),
                       self._ring(last, row, stage))
                with k.when(last < beyond):
                    k.copy(CpAsyncPart(0), tiles.words(beyond, row, k_tile),
                           self._ring(beyond, row, stage))


def mma_operand(block: GemmBlock, mode: int) -> LoopOperand:
    config = block.config
    return (_Covered if (config.a, config.b)[mode].covering else _Vectors)(block, mode)


def _by_vectors(extents: Pair, threads: int, access: OperandAccess) -> TiledCopy:
    """The copy of an (extent, K) tile, by vectors along the contiguous mode."""
    along, across = extents if access.unit == 0 else extents[::-1]
    lanes = gcd(along // access.width, threads)
    rows = gcd(across, threads // lanes)
    lanes = threads // rows
    if access.unit == 0:
        return vectors_along(0, (lanes, rows), access.width)
    return vectors_along(1, (rows, lanes), access.width)
