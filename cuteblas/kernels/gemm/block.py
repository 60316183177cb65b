"""Parameters and tiles of the kernels whose threads load A and B (``gemm_simt``, ``gemm_mma``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..._dtypes import dtype
from ...codegen import CodegenError, GlobalTensor, Guard, KernelBuilder, by_coordinate
from ...layout import (
    Layout,
    Tensor,
    _,
    domain_offset,
    idx2crd,
    local_tile,
    make_identity_tensor,
    make_layout,
)
from ...layout.symbolic import IntLike, ceil_div, maximum, minimum
from ..common import OperandAccess, Pair, Partition, grouped_raster, operand
from ..epilogue import Epilogue, EpilogueConfig, OutputTile, OutputTriangle, Pieces
from ..guard import gate_tag
from .triangle import tiles_of_c


@dataclass(frozen=True)
class GemmConfig(EpilogueConfig):
    """The configuration of such a kernel, beside its epilogue. With ``split_k`` the last batch
    mode walks over slices of K, ``chunk`` deep or in turns of ``turn`` elements. ``aligned``: the
    tile divides M, N and K, without predicates. ``modes`` are nested in M, N and K: more than one
    for a contraction, where ``a``, ``b`` and ``c`` speak of the first. ``gate`` is the verdict
    without which the kernel does nothing. A ``grouped`` kernel has a table of problems, with alpha
    and beta "device" if they stand in its rows."""

    element: str
    output: str
    tile: Any
    a: OperandAccess
    b: OperandAccess
    c: OperandAccess
    batch_modes: int = 0
    split_k: bool = False
    aligned: bool = False
    modes: tuple[int, int, int] = (1, 1, 1)
    element_b: str | None = None
    accumulator: str | None = None
    gate: int | None = None
    grouped: bool = False
    triangle: str | None = None
    hermitian: bool = False
    turn: int = 0

    def __post_init__(self) -> None:
        if self.modes != (1, 1, 1) and (self.aligned or self.epilogue):
            raise CodegenError(
                f"nested modes need predicates and cannot have an epilogue, got {self}"
            )
        if self.triangle and (self.modes != (1, 1, 1) or self.aligned or self.split_k):
            raise CodegenError(f"triangles need predicates, plain modes and all of K, got {self}")
        if self.turn and (self.turn % self.tile.k or not self.split_k or self.modes != (1, 1, 1)):
            raise CodegenError(
                f"slices that take turns need a plain K and turns of a multiple of {self.tile.k}, got {self}"
            )

    @property
    def elements(self) -> tuple[str, str]:
        return self.element, self.element_b or self.element

    @property
    def scalars(self) -> str:
        return self.accumulator or dtype(self.element).accumulator

    @property
    def types(self) -> str:
        sums = "" if self.scalars == dtype(self.element).accumulator else self.scalars
        names = self.element, self.element_b, sums, self.output
        return "_".join(dtype(name).tag for name in names if name)

    @property
    def traits(self) -> str:
        access = "".join(f"{o.letter('mk')}{'w' if o.covering else o.width}{'c' if o.conj else ''}"
                         for o in (self.a, self.b, self.c))
        modes = "" if self.modes == (1, 1, 1) else f"_modes{''.join(map(str, self.modes))}"
        return (
            f"{access}_{self.alpha[0]}{self.beta[0]}_b{self.batch_modes}{'_split' * self.split_k}"
            f"{f'_turns{self.turn}' if self.turn else ''}{'_wide' * self.wide}"
            f"{'_aligned' * self.aligned}{'_grouped' * self.grouped}{modes}"
            f"{f'_{self.triangle}' if self.triangle else ''}{'_hermitian' * self.hermitian}"
            f"{self.fused}{gate_tag(self.gate)}"
        )


def _depth_in_turns(depth: IntLike, turn: int, index: IntLike, slices: IntLike) -> IntLike:
    """The part of K of one of ``slices`` that take turns of ``turn`` elements."""
    rounds = depth // (slices * turn)
    return rounds * turn + minimum(maximum(depth - (rounds * slices + index) * turn, 0), turn)


def _tiles_in_turns(matrix: Tensor, tile: Pair, at: IntLike, turn: int,
                    slices: IntLike) -> Tensor:
    """(BM, BK, k tile) of a slice that begins where ``matrix`` (M, K) does and takes turns."""
    (rows, depth), (along_m, along_k) = matrix.shape, matrix.stride
    in_turns = Layout((rows, turn, ceil_div(depth, turn)),
                      (along_m, along_k, slices * turn * along_k))
    # (BM, BK, 1, tile of a turn, turn)
    tiles = local_tile(Tensor(matrix.engine, in_turns), (*tile, 1), (at, _, _))
    bm, bk, _one, of_turn, turns = (tiles.layout[i] for i in range(5))
    return Tensor(tiles.engine, make_layout(bm, bk, make_layout(of_turn, turns)))


class GemmBlock:
    """The tiles of one block, in a kernel whose parameters are declared here. ``gA``, ``gB`` and
    ``gC`` are (BM, BK, k tile), (BN, BK, k tile) and (BM, BN); ``at`` are the coordinates among
    tiles of C. With ``several`` a block computes several tiles."""

    def __init__(self, k: KernelBuilder, config: GemmConfig, *, several: bool = False):
        self.k, self.config = k, config
        k.gate(config.gate)
        tile, (element_a, element_b) = config.tile, config.elements
        self._tile = (tile.m, tile.n, tile.k)
        nested = dict(zip("mnk", config.modes, strict=True))
        multiples = dict(zip("mnk", self._tile, strict=True)) if config.aligned else {}
        A, B, C = k.tensors(operand("A", "mk", element_a, config.a),
                            operand("B", "nk", element_b, config.b),
                            operand("C", "mn", config.output, config.c, written=True), modes="mnk",
                            batch=config.batch_modes, multiples=multiples, nested=nested)
        batch = C.batch
        self._epilogue = Epilogue(k, config, config.scalars)

        M, N, K = (k.let(mode.upper(), k.extent(mode)) for mode in "mnk")
        of_c = tiles_of_c(k, config.triangle, (M, N), (tile.m, tile.n))
        block: IntLike = k.each_block("block", several=several)
        item: IntLike = 0
        if batch:
            tiles = k.let("tiles", of_c.tiles[0] * of_c.tiles[1])
            item = k.let("item", block // tiles)
            block = k.let("block_in_item", block % tiles)
        depth, first_k = K, 0
        if config.turn:
            depth = k.let("depth", _depth_in_turns(K, config.turn, idx2crd(item, batch)[-1],
                                                   batch[-1]))
        elif config.split_k:
            chunk = k.integer("chunk", multiple=max(A.param.along("k"), B.param.along("k"),
                                                    multiples.get("k", 1)))
            first_k = idx2crd(item, batch)[-1] * chunk
            depth = k.let("depth", minimum(chunk, K - first_k))
        self._epilogue.load_scalars()
        depth = self._epilogue.depth(depth)
        bm, bn, diagonal = of_c.at(*grouped_raster(k, block, *of_c.tiles))
        self.at = bm, bn
        self.extents: dict[str, IntLike] = {"m": M, "n": N, "k": depth}

        def matrix(tensor: GlobalTensor) -> Tensor:
            modes = tensor.param.modes
            shape = tuple(extent if nested[mode] > 1 else self.extents[mode]
                          for mode, extent in zip(modes, tensor.extents, strict=True))
            flat = by_coordinate(tensor.at(item, shape),
                                 tuple(self.extents[mode] for mode in modes))
            # A slice of a plain K is a batch index; of a nested K, a range of its flat coordinate.
            return domain_offset((0, first_k), flat) if config.split_k and modes[1] == "k" and nested["k"] > 1 else flat

        def tiles_of(tensor: GlobalTensor, extent: int, at: IntLike) -> Tensor:
            if config.turn:
                return _tiles_in_turns(matrix(tensor), (extent, tile.k), at, config.turn, batch[-1])
            return local_tile(matrix(tensor), (extent, tile.k), (at, _))

        mC = matrix(C)
        self.gA, self.gB = tiles_of(A, tile.m, bm), tiles_of(B, tile.n, bn)
        self.gC = self._tile_of_c(mC)
        self._triangle = OutputTriangle(config.triangle, diagonal, mC, config.hermitian)
        self._item = item

    @cached_property
    def k_tiles(self) -> IntLike:
        return self.k.let("k_tiles", ceil_div(self.extents["k"], self._tile[2]))

    def guard(self, name: str, modes: str, partition: Partition) -> Guard | None:
        """The predicate of a part of A ("mk"), B ("nk") or C ("mn"); ``None`` if always true."""
        if self.config.aligned:
            return None
        return Guard(self.coordinates(name, modes, partition),
                     tuple(self.extents[mode] for mode in modes))

    def coordinates(self, name: str, modes: str, partition: Partition) -> Tensor:
        tile = tuple(self._tile["mnk".index(mode)] for mode in modes)
        at = tuple({"m": self.at[0], "n": self.at[1], "k": _}[mode] for mode in modes)
        identity = make_identity_tensor(tuple(self.extents[mode] for mode in modes))
        return self.k.pin(name, partition(local_tile(identity, tile, at)))

    def store(self, accumulators: Tensor, partition: Partition,
              pieces: Pieces | None = None, single: bool = False) -> None:
        """The end of the kernel: C from the sums, rounded once."""
        self.k.let_next_launch_begin()
        extents, guard = (self.extents["m"], self.extents["n"]), self.guard("tCcC", "mn", partition)
        tile = OutputTile(self.gC, partition, self._tile_of_c, extents, self._item, guard, pieces,
                          single, self._triangle)
        self._epilogue.store(accumulators, tile)

    def _tile_of_c(self, matrix: Tensor) -> Tensor:
        return local_tile(matrix, self._tile[:2], self.at)
