"""``gemm_simt``: C = alpha A B^T + beta C on fused multiply-adds, for every element type, every stride and every architecture.

A (M, K) and B (N, K) come through a ring of shared-memory stages, filled by asynchronous copies that zero-fill what lies outside;
both tiles are kept M- and N-major in shared memory whatever their order in global memory, so that one inner loop serves all of
them. Each thread accumulates dense blocks of C in registers, in the order of k.

Which strides are 1, how wide the vectors are and whether offsets need 64 bits are fixed when the kernel is generated; extents and
strides are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.dtypes import dtype
from ..codegen.engine import CodegenError
from ..codegen.kernel import GeneratedKernel
from ..codegen.tiled import TiledCopy, TiledMma
from ..layout import Layout, _, idx2crd, local_tile, make_identity_tensor
from ..layout.symbolic import IntLike, ceil_div, equal, minimum, select
from .common import OperandAccess, combine, grouped_raster, matrix_at, strides_of

__all__ = ["OperandAccess", "SimtConfig", "TileShape", "gemm_simt"]


@dataclass(frozen=True)
class TileShape:
    """How a tile of C is divided.

    Attributes
    ----------
    m, n, k : int
        Extents of the tile that a block computes, and its step along K.
    warp : tuple of int
        Threads of a warp along (M, N); 32 together.
    warps : tuple of int
        Warps of a block along (M, N).
    values : tuple of int
        Extents of the dense blocks of C that a thread owns.
    stages : int
        Stages of the shared-memory ring.
    min_blocks : int
        Blocks that should fit on a multiprocessor at once.
    """

    m: int
    n: int
    k: int
    warp: tuple[int, int] = (8, 4)
    warps: tuple[int, int] = (2, 4)
    values: tuple[int, int] = (4, 4)
    stages: int = 3
    min_blocks: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def mma(self) -> TiledMma:
        """Which thread owns what: lanes run fastest, so that each warp owns a compact tile."""
        (lm, ln), (wm, wn) = self.warp, self.warps
        return TiledMma(Layout(((lm, wm), (ln, wn)), ((1, 32), (lm, 32 * wm))), self.values)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}, {self.warps[0]}x{self.warps[1]} warps of {self.warp[0]}x{self.warp[1]} threads, " \
               f"blocks of {self.values[0]}x{self.values[1]}, {self.stages} stages"


@dataclass(frozen=True)
class SimtConfig:
    """Everything that a ``gemm_simt`` kernel is specialised on.

    Attributes
    ----------
    element, output : str
        NumPy's names of the types of A and B, and of C.
    tile : TileShape
        The division of the work.
    a, b, c : OperandAccess
        How the operands are read and written.
    alpha, beta : {"one", "value"}, {"zero", "one", "value"}
        What is known of the scalars.
    batch_modes : int
        Number of batch modes.
    split : bool
        Whether the last batch mode walks over slices of K, each ``chunk`` deep (the last may be shorter).
    wide : bool
        Whether offsets need 64 bits.
    """

    element: str
    output: str
    tile: TileShape
    a: OperandAccess
    b: OperandAccess
    c: OperandAccess
    alpha: str = "one"
    beta: str = "zero"
    batch_modes: int = 0
    split: bool = False
    wide: bool = False

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        t = self.tile
        major = {0: "m", 1: "k", None: "s"}
        access = "".join(f"{major[o.unit]}{o.width}{'c' if o.conj else ''}" for o in (self.a, self.b, self.c))
        return (f"gemm_simt_{dtype(self.element).tag}_{dtype(self.output).tag}_{t.m}x{t.n}x{t.k}_{t.warps[0]}x{t.warps[1]}"
                f"_{t.values[0]}x{t.values[1]}_s{t.stages}_{access}_{self.alpha[0]}{self.beta[0]}_b{self.batch_modes}"
                f"{'_split' if self.split else ''}{'_wide' if self.wide else ''}")


def _loader(extent: int, tile: TileShape, access: OperandAccess, element_bytes: int) -> TiledCopy:
    """The copy of an (extent, K) tile: lanes run along whichever mode is contiguous in global memory."""
    width = min(access.width, extent * tile.k // tile.threads)      # a small tile has less than a full vector for each thread
    if access.unit == 0:
        along = min(extent // width, tile.threads)
        threads = Layout((along, tile.threads // along))
    else:
        # A 32-byte sector of each row: with the rows padded by 4 elements, the stores into shared memory then meet every bank once.
        lanes = gcd(max(1, 32 // element_bytes), tile.k)
        along = min(extent, tile.threads // lanes)
        lanes = tile.threads // along
        threads = Layout((along, lanes), (lanes, 1))
    return TiledCopy(threads, (width, 1))


@cache
def gemm_simt(config: SimtConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : SimtConfig
        What the kernel is specialised on.

    Returns
    -------
    GeneratedKernel
        Parameters: pointers A, B, C; extents M, N, K; the strides of A (M, K), B (N, K), C (M, N) that are not fixed at 1; the
        extents of the batch modes, then the strides of A there, of B and of C; alpha and beta if they are values; the depth of a
        slice of K if it is split.

    Raises
    ------
    CodegenError
        If the tile does not divide among the threads, or a vector width is not provable.
    """
    tile, element, output = config.tile, config.element, config.output
    accumulator = dtype(element).accumulator
    item = dtype(element).bytes
    mma = tile.mma
    load_a, load_b = _loader(tile.m, tile, config.a, item), _loader(tile.n, tile, config.b, item)
    tiles_of = (("A", (tile.m, tile.k), load_a.tile), ("B", (tile.n, tile.k), load_b.tile), ("C", (tile.m, tile.n), mma.tile))
    for what, extents, by in tiles_of:
        if any(e % b for e, b in zip(extents, by, strict=True)):
            raise CodegenError(f"{config.name}: the tile {extents} of {what} does not divide into {by}")

    k = KernelBuilder(config.name, tile.threads, min_blocks=tile.min_blocks, wide=config.wide,
                      summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {element} to {output}, tile {tile}\n"
                              f"threads of C {mma.tv_c}, of A {load_a.tv}, of B {load_b.tv}")
    # -- tensors --------------------------------------------------------------------------------------------------------------
    pa = k.pointer("A", element, alignment=config.a.width * item)
    pb = k.pointer("B", element, alignment=config.b.width * item)
    pc = k.pointer("C", output, const=False, alignment=config.c.width * dtype(output).bytes)
    M = k.integer("M", multiple=max(config.a.width, config.c.width))
    N = k.integer("N", multiple=config.b.width)
    K: IntLike = k.integer("K")
    operands = (("A", "mk", config.a), ("B", "nk", config.b), ("C", "mn", config.c))
    stride_a, stride_b, stride_c = (strides_of(k, name, modes, access) for name, modes, access in operands)
    batch_modes = range(config.batch_modes)
    batch = tuple(k.integer(f"L{i}") for i in batch_modes)
    batch_a, batch_b, batch_c = (tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=access.width) for i in batch_modes)
                                 for name, _modes, access in operands)
    alpha = k.scalar("alpha", accumulator) if config.alpha == "value" else None
    beta = k.scalar("beta", accumulator) if config.beta == "value" else None

    tiles_m, tiles_n = k.let("tiles_m", ceil_div(M, tile.m)), k.let("tiles_n", ceil_div(N, tile.n))
    block: IntLike = k.block_index("block", "x")
    item_of_batch: IntLike = 0
    if batch:
        tiles = k.let("tiles", tiles_m * tiles_n)
        item_of_batch = k.let("item", block // tiles)
        block = k.let("block_in_item", block % tiles)
    if config.split:
        chunk = k.integer("chunk")
        K = k.let("depth", minimum(chunk, K - idx2crd(item_of_batch, batch)[-1] * chunk))
    bm, bn = grouped_raster(k, block, tiles_m, tiles_n)

    mA = matrix_at(pa, (M, K), stride_a, batch, batch_a, item_of_batch)
    mB = matrix_at(pb, (N, K), stride_b, batch, batch_b, item_of_batch)
    mC = matrix_at(pc, (M, N), stride_c, batch, batch_c, item_of_batch)
    gA = local_tile(mA, (tile.m, tile.k), (bm, _))                      # (BM, BK, k)
    gB = local_tile(mB, (tile.n, tile.k), (bn, _))                      # (BN, BK, k)
    gC = local_tile(mC, (tile.m, tile.n), (bm, bn))                     # (BM, BN)
    cA = local_tile(make_identity_tensor((M, K)), (tile.m, tile.k), (bm, _))
    cB = local_tile(make_identity_tensor((N, K)), (tile.n, tile.k), (bn, _))
    cC = local_tile(make_identity_tensor((M, N)), (tile.m, tile.n), (bm, bn))

    # -- shared memory: K rows of M (or N) elements, padded so that rows start in different banks -----------------------------
    pad = 4
    sA = k.shared("sA", element, Layout((tile.m, tile.k, tile.stages), (1, tile.m + pad, (tile.m + pad) * tile.k)))
    sB = k.shared("sB", element, Layout((tile.n, tile.k, tile.stages), (1, tile.n + pad, (tile.n + pad) * tile.k)))

    # -- who copies and who multiplies what -----------------------------------------------------------------------------------
    tid = k.thread
    k.comment("Copies from global to shared memory: (values, rest_m, rest_k, k tile | stage)")
    tAgA, tAsA = k.pin("tAgA", load_a.partition(gA, tid)), k.pin("tAsA", load_a.partition(sA, tid))
    tBgB, tBsB = k.pin("tBgB", load_b.partition(gB, tid)), k.pin("tBsB", load_b.partition(sB, tid))
    tAcA = Guard(k.pin("tAcA", load_a.partition(cA, tid)), (M, K))
    tBcB = Guard(k.pin("tBcB", load_b.partition(cB, tid)), (N, K))

    def load(k_tile: IntLike, stage: IntLike) -> None:
        k.copy(tAgA[_, _, _, k_tile], tAsA[_, _, _, stage], width=load_a.values[0], guard=tAcA[_, _, _, k_tile])
        k.copy(tBgB[_, _, _, k_tile], tBsB[_, _, _, stage], width=load_b.values[0], guard=tBcB[_, _, _, k_tile])
        k.commit()

    k.comment("Operands and accumulators of a thread: (values, rest, k | register buffer)")
    tCsA, tCsB = k.pin("tCsA", mma.partition_a(sA, tid)), k.pin("tCsB", mma.partition_b(sB, tid))
    (vm, vn), rest_m, rest_n = tile.values, tile.m // mma.tile[0], tile.n // mma.tile[1]
    tCrA = k.registers("tCrA", element, Layout((vm, rest_m, 2)))
    tCrB = k.registers("tCrB", element, Layout((vn, rest_n, 2)))
    tCrC = k.registers("tCrC", accumulator, Layout(((vm, vn), rest_m, rest_n)))
    k.fill(tCrC)
    width_a, width_b = _vector(vm, item), _vector(vn, item)

    def fetch(step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        k.copy(tCsA[_, _, step, stage], tCrA[_, _, buffer], width=width_a)
        k.copy(tCsB[_, _, step, stage], tCrB[_, _, buffer], width=width_b)

    def multiply(buffer: IntLike) -> None:
        k.fma(tCrC, tCrA[_, _, buffer], tCrB[_, _, buffer], conj_a=config.a.conj, conj_b=config.b.conj)

    # -- the pipeline ---------------------------------------------------------------------------------------------------------
    k.comment("Fill the ring")
    ahead = tile.stages - 1
    for stage in range(ahead):
        load(stage, stage)
    k.wait(ahead - 1)
    k.barrier()
    fetch(0, 0, 0)

    k.comment("Main loop: copy a tile ahead, multiply this one, operands fetched one step early")
    k_tiles = k.let("k_tiles", ceil_div(K, tile.k))
    read = k.variable("read", 0, hi=tile.stages - 1)
    write = k.variable("write", ahead, hi=tile.stages - 1)
    last = tile.k - 1
    with k.loop("k_tile", k_tiles) as k_tile:
        load(k_tile + ahead, write)
        with k.loop("step", last, unroll=True) as step:
            fetch(step + 1, read, (step + 1) % 2)
            multiply(step % 2)
        k.wait(ahead - 1)
        k.barrier()
        for ring in (read, write):
            k.assign(ring, _next(ring, tile.stages))
        fetch(0, read, (last + 1) % 2)
        multiply(last % 2)

    # -- epilogue -------------------------------------------------------------------------------------------------------------
    k.comment("Epilogue: C = alpha * accumulator + beta * C")
    tCgC = k.pin("tCgC", mma.partition_c(gC, tid))
    tCcC = Guard(k.pin("tCcC", mma.partition_c(cC, tid)), (M, N))
    with k.loops((vn, rest_m, rest_n)) as (j, m, n):
        column = (_, j)
        tCrD = k.registers("tCrD", output, Layout(vm))
        guard, target = tCcC[column, m, n], tCgC[column, m, n]
        if config.beta != "zero":
            k.copy(target, tCrD, width=config.c.width, guard=guard)
        with k.loops((vm,)) as (i,):
            k.emit(f"{tCrD(i).c} = {combine(output, accumulator, tCrC((i, j), m, n).c, tCrD(i).c, alpha, beta, config.beta)};")
        k.copy(tCrD, target, width=config.c.width, guard=guard)
    return k.build()


def _vector(values: int, item: int) -> int:
    """Elements of the widest vector (at most 16 bytes) that divides a thread's block."""
    return gcd(values, max(1, 16 // item))


def _next(stage: IntLike, stages: int) -> IntLike:
    return select(equal(stage, stages - 1), 0, stage + 1)
