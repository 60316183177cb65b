"""``gemm_simt``: C = alpha A B^T + beta C by fused multiply-adds, for any type, stride and card.

Tiles are M- and N-major in shared memory, whatever the order of operands, for one inner loop.
Threads sum dense blocks of C in the order of k; sums of float32 in chunks, with totals in
registers or in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gcd

from ..._dtypes import dtype
from ...codegen import Fma, GeneratedKernel, KernelBuilder, TiledCopy, Vector
from ...codegen.tiled import TiledMma
from ...layout import Layout, Tensor, _, flatten, make_tensor, size
from ...layout.symbolic import IntLike, ceil_div, maximum, minimum
from ..common import OperandAccess, Pair, builder, fold_chains
from .block import GemmBlock, GemmConfig
from .main_loop import MainLoop, VectorOperand
from .rows import held_bytes, store_by_rows

_PAD = 4                             # elements after a row of shared memory
_LINE = 64                           # bytes of a row of C that neighbouring lanes have
_VECTORS = 8                         # of totals in shared memory that are in registers at once


@dataclass(frozen=True)
class TileShape:
    """How a tile of C is divided. ``warp`` and ``warps`` are along (M, N); ``values`` are a
    thread's dense blocks. ``totals`` is where chunks of K are added up, ``chains`` how many chains
    of additions an element has, of types that round. ``in_order`` keeps float32 in the order as
    written."""

    m: int
    n: int
    k: int
    warp: Pair = (8, 4)
    warps: Pair = (2, 4)
    values: Pair = (4, 4)
    stages: int = 3
    min_blocks: int = 1
    in_order: bool = False
    totals: str | None = None
    chains: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    def shared_bytes(self, item: int) -> int:
        """Shared memory of a block, for elements and sums of ``item`` bytes."""
        ring = (self.m + self.n + 2 * _PAD) * self.k * self.stages
        return (ring + self.m * self.n * (self.totals == "shared")) * item

    def rows_bytes(self, item: int) -> int:
        return held_bytes(self.n, self.m, item, self.apart)

    @property
    def apart(self) -> int:
        """Bytes between these rows, along M: what neighbouring lanes have of one."""
        return _LINE // self.values[1]

    def chunk(self, k_tiles: IntLike) -> IntLike:
        """Steps along K of a chunk, a chain of additions."""
        # With totals in registers an eighth of K, 16 to 128 elements, so that errors grow with
        # some tens of additions, not with K; beyond 32768, 256 chunks. In shared memory, where
        # each end costs more, two chunks of 128 to 1024 elements.
        few, most, parts = (128, 1024, 2) if self.totals == "shared" else (16, 128, 8)
        chain = minimum(maximum(ceil_div(k_tiles, parts), max(1, few // self.k)), most // self.k)
        return maximum(chain * self.chains, ceil_div(k_tiles, 256))

    @property
    def mma(self) -> TiledMma:
        """Which thread owns what: lanes run fastest, so that each warp owns a compact tile."""
        # Lanes that differ in bit 1 share elements of A, in bit 0 those of B: half a warp reads
        # vectors of 16 bytes in one wavefront (measured; otherwise a quarter).
        (lm, ln), (wm, wn) = self.warp, self.warps
        return TiledMma(Layout((((2, lm // 2), wm), ((2, ln // 2), wn)),
                               (((1, 4), 32), ((2, 2 * lm), 32 * wm))), self.values)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}, {self.warps[0]}x{self.warps[1]} warps of {self.warp[0]}x{self.warp[1]} threads, " \
               f"blocks of {self.values[0]}x{self.values[1]}, {self.stages} stages"


@dataclass(frozen=True)
class SimtConfig(GemmConfig):
    tile: TileShape

    @property
    def name(self) -> str:
        t = self.tile
        return (
            f"gemm_simt_{self.types}_{t.m}x{t.n}x{t.k}_{t.warps[0]}x{t.warps[1]}"
            f"_{t.values[0]}x{t.values[1]}_s{t.stages}{f'_{t.totals}{t.chains}' if t.totals else ''}_{self.traits}"
        )


class _Operand(VectorOperand):
    """An operand in rows of K in shared memory, padded so that rows start in different banks."""

    def __init__(self, block: GemmBlock, mode: int):
        super().__init__(block, mode)
        k, tile, extent, mma = self.k, self.tile, self.extent, self.tile.mma
        item, pitch, values = dtype(self.element).bytes, extent + _PAD, tile.values[mode]
        ring = k.shared(f"s{self.name}", self.element, Layout((extent, tile.k, tile.stages),
                                                              (1, pitch, pitch * tile.k)))
        self.read(_loader(extent, tile, self.access, item), ring)
        part = (mma.partition_a, mma.partition_b)[mode](ring, k.thread)
        self.part = k.pin(f"tCs{self.name}", part)
        self.registers = self.fragment = k.registers(f"tCr{self.name}", self.element,
                                                     (values, extent // mma.tile[mode], 2))
        # the widest vector, of at most 16 bytes, that divides a thread's block
        self.atom = Vector(gcd(values, max(1, 16 // item)))


def _loader(extent: int, tile: TileShape, access: OperandAccess, element_bytes: int) -> TiledCopy:
    """The copy of an (extent, K) tile; lanes run along the contiguous mode."""
    # a small tile has less than a full vector for each thread
    width = min(access.width, extent * tile.k // tile.threads)
    if access.unit == 0:
        along = min(extent // width, tile.threads)
        threads = Layout((along, tile.threads // along))
    else:
        # A 32-byte sector of each row: with the rows padded by 4 elements, the stores into shared
        # memory then use every bank once.
        lanes = gcd(max(1, 32 // element_bytes), tile.k)
        along = min(extent, tile.threads // lanes)
        lanes = tile.threads // along
        threads = Layout((along, lanes), (lanes, 1))
    return TiledCopy(threads, (width, 1))


class _Totals:
    """The sums of chunks along K, added up in registers, or a few at a time in shared memory."""
    # There, vectors of 16 bytes of each thread follow those of the thread before.

    def __init__(self, k: KernelBuilder, tile: TileShape, sums: Tensor, k_tiles: IntLike):
        element, self._sums = sums.engine.dtype, sums
        self._k, self._tile, self._k_tiles, self.chunk = k, tile, k_tiles, k.let("chunk_tiles", tile.chunk(k_tiles))
        vector = 16 // element.bytes
        shape = vector, _VECTORS, size(sums) // (vector * _VECTORS * tile.chains)
        self._pieces = make_tensor(sums.engine, shape) if tile.totals == "shared" else sums[..., 0]
        self._vector = Vector(vector)
        self._part = k.registers("tCrT", element.name,
                                 Layout(shape[:2]) if tile.totals == "shared"
                                 else self._pieces.layout)
        if tile.totals == "shared":
            sT = k.shared("sT", element.name, (vector, tile.threads, *shape[1:]))
            self._totals = k.pin("tCsT", sT[_, k.thread, _, _])
        else:
            k.fill(self._part)

    def end_chunk(self, first: IntLike) -> None:
        """Add the sums to the totals and begin anew; those of the first chunk are the totals."""
        k = self._k
        k.comment("The end of a chunk")
        fold_chains(k, self._sums, self._tile.chains)
        if self._tile.totals == "registers":
            k.fold(self._part, self._pieces)
        else:
            with k.when(self.chunk < first):
                self._each(lambda piece: k.fold(self._part, piece),
                           lambda total: k.copy(self._vector, self._part, total))
            with k.otherwise():
                k.copy(self._vector, self._pieces, self._totals)
        k.fill(self._sums)

    def _each(self, add: Callable[[Tensor], None],
              end: Callable[[Tensor], None] = lambda _total: None) -> None:
        """Add each piece of the sums to its totals, in registers."""
        with self._k.each(size(self._pieces, 2), "p") as p:
            self._k.copy(self._vector, self._totals[..., p], self._part)
            add(self._pieces[..., p])
            end(self._totals[..., p])

    def finish(self) -> Tensor:
        k = self._k
        fold_chains(k, self._sums, self._tile.chains)
        with k.when(self.chunk < self._k_tiles):
            if self._tile.totals == "registers":
                k.fold(self._pieces, self._part)
            else:
                self._each(lambda piece: k.fold(piece, self._part))
        return self._sums[..., 0]


@cache
def gemm_simt(config: SimtConfig) -> GeneratedKernel:
    tile, mma, accumulator = config.tile, config.tile.mma, config.scalars
    passes = mma.passes((tile.m, tile.n), f"C of {config.name}")
    k = builder(
        config,
        tile.threads,
        min_blocks=tile.min_blocks,
        summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {config.types}, tile {tile}\n"
        f"threads of C {mma.tv_c}"
    )
    block = GemmBlock(k, config)
    k.comment("Operands: copies to shared memory (values, rest, rest_k, k tile | stage), fragments "
              "(values, rest | register buffer)")
    operands = [_Operand(block, mode) for mode in range(2)]
    rounds = tile.totals is not None and dtype(accumulator).kind in "fc"
    chains = tile.chains if rounds else 1
    tCrC = k.registers("tCrC", accumulator, (tile.values, *passes, chains))
    k.fill(tCrC)

    plain = {*config.elements, accumulator} == {"float32"} and config.modes == (1, 1, 1) and not config.grouped
    in_order = tile.in_order and plain

    def multiply(step: IntLike) -> None:
        buffer = step % 2
        k.gemm(Fma(config.a.conj, config.b.conj, in_order), tCrC[..., step % chains],
               *(operand.registers[..., buffer] for operand in operands))

    loop = MainLoop(block, tile.stages, tile.k)
    if rounds:
        totals = _Totals(k, tile, tCrC, block.k_tiles)
        loop.write(operands, multiply, totals)
        sums = totals.finish()
    else:
        loop.write(operands, multiply)
        sums = tCrC[..., 0]

    def partition(tensor: Tensor) -> Tensor:
        return flatten(mma.partition_c(tensor, k.thread))         # (vm, vn, rest_m, rest_n)

    if config.c.covering:
        store_by_rows(block, flatten(sums), partition, tile.apart)
    else:
        block.store(flatten(sums), partition)
    return k.build()
