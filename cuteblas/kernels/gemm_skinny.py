"""``gemm_skinny``: float32 products with few columns on Hopper's 16-bit tensor cores, without planes in memory.

A is large and read once, B small. A stage of both comes to shared memory as it is, float32, by TMA where tensor maps describe the
operands, else by the copies of a warpgroup. The multiplying warpgroups read A from
there into the registers in which their instructions take it, and split it on the way, into three planes of bfloat16; another
warpgroup splits B into planes in shared memory. Six products of planes make the result, as in
:mod:`~cuteblas.kernels.gemm_split`'s bf16x6: that of the first ones is added in float32 after every stage, rounded, and so are the
others, which have accumulators of their own.

Nothing is scaled. Three bfloat16 hold any float32 of moderate magnitude as it is, and products of such numbers neither overflow nor
underflow: :data:`RANGE`. Whoever splits keeps the range of what it has seen. Each block says at ``status`` if a number was outside
of it, so that a kernel that comes later computes C again by native arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.dtypes import dtype
from ..codegen.engine import CodegenError
from ..codegen.hopper import (
    MatrixDescriptor,
    Mbarriers,
    TmaBox,
    WgmmaOperand,
    WgmmaRegisterMma,
    operand_layout,
    tma_load,
    wgmma_on_registers,
)
from ..codegen.kernel import GeneratedKernel
from ..codegen.tiled import TiledCopy
from ..layout import Layout, Tensor, _, composition, local_tile, make_identity_tensor, make_layout, size
from ..layout.symbolic import Expr, IntLike, all_of, equal, less
from .common import OperandAccess, matrix_at, strides_of
from .epilogue import Epilogue, FusedEpilogue
from .persistent import (
    DEPTH,
    GROUP,
    INSTRUCTION_DEPTH,
    PAIRS,
    WARP,
    PersistentBlock,
    Stage,
    TileOfC,
    persistent_traits,
    ring_of_tiles,
)

__all__ = ["OUT_OF_RANGE", "RANGE", "SkinnyConfig", "gemm_skinny"]

RANGE = (-50, 50)
"""Elements that are not zero are at least two to the power of the first number and less than two to the power of the second.

What is left after two planes is then at least 2^-50 2^-23 and its product with an element at least 2^-123: no product that counts
is subnormal, and no sum reaches 2^127.
"""

OUT_OF_RANGE = 2
"""What a block writes to its word at ``status`` if native arithmetic has to compute C; else it writes 0."""

_PLANE = "bfloat16"
_PLANES = 3
_MAIN, _CORRECTIONS = ((0, 0),), ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1))
_BUFFERS = 2                        # of B's planes in shared memory, and of A's in registers
_GROUPS = 2
_VECTORS = OperandAccess(1, 4)      # along K, of 16 bytes
_REGISTERS = 80, 176                # of threads that do not multiply, and of those that do


@dataclass(frozen=True)
class SkinnyConfig:
    """Everything that a ``gemm_skinny`` kernel is specialised on.

    Attributes
    ----------
    output : str
        NumPy's name of C's type.
    columns : int
        Columns of a tile of C, a multiple of 32; it has 128 rows.
    stages : int
        Stages of the ring.
    a, b : OperandAccess
        Which mode of A and B has stride 1 and, without TMA, how they are read.
    tma : bool
        Whether TMA reads both.
    c : OperandAccess
        How C is written.
    alpha : {"one", "value", "device"}
        What is known of it; ``"device"``: it lies in device memory.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there (else it is broadcast).
    slices : bool
        Whether K is in slices, which are one more batch mode of C, outermost.
    wide : bool
        Whether offsets need 64 bits.
    epilogue : FusedEpilogue, optional
        What is done instead of ``alpha * sum``.
    """

    output: str
    columns: int = 64
    stages: int = 3
    a: OperandAccess = _VECTORS
    b: OperandAccess = _VECTORS
    tma: bool = True
    c: OperandAccess = PAIRS
    alpha: str = "one"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    slices: bool = False
    wide: bool = False
    epilogue: FusedEpilogue | None = None

    @property
    def k_major(self) -> tuple[bool, bool]:
        """Along which mode tiles of A and of B are contiguous in shared memory."""
        return self.a.unit != 0, self.b.unit != 0

    @property
    def mma(self) -> WgmmaRegisterMma:
        """Who multiplies what."""
        return WgmmaRegisterMma(self.columns, _GROUPS, self.k_major[0])

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return self.mma.tile[0]

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """The tiles of a stage of A and of B, as TMA boxes."""
        a, b = (TmaBox("float32", operand_layout(extent, DEPTH, "float32", major))
                for extent, major in zip((self.rows, self.columns), self.k_major, strict=True))
        return a, b

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        traits = persistent_traits((self.rows, self.columns), self.stages, self.k_major, self.c, (self.alpha, "zero"),
                                   (self.batch_a, self.batch_b), self.wide, self.epilogue)
        read = "" if self.tma else "".join(f"_{'mks'[2 if x.unit is None else x.unit]}{x.width}" for x in (self.a, self.b))
        return f"gemm_skinny_{dtype(self.output).tag}_{traits}{read}{'_sliced' if self.slices else ''}"


def _reader(access: OperandAccess) -> TiledCopy:
    """How a warpgroup reads a tile, vectors along what is contiguous, a warp's whole lines of it as far as there are any."""
    line = WARP // access.width
    if access.unit == 0:
        return TiledCopy(Layout((line, GROUP // line)), (access.width, 1))
    return TiledCopy(Layout((GROUP // line, line), (line, 1)), (1, access.width))


@cache
def gemm_skinny(config: SkinnyConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : SkinnyConfig
        What the kernel is specialised on.

    Returns
    -------
    GeneratedKernel
        Parameters: tensor maps A (M, K) and B (N, K) with the batch modes that they have, or without TMA pointers A and B; pointers
        C and status, a word for each block; extents M, N and K; that of a slice of K if there are several; without TMA, the strides
        of A and of B that are not fixed at 1; those of C; the extents of the batch modes, slices last, then the strides of C there
        and, without TMA, those of A and of B; those of the :class:`~cuteblas.kernels.epilogue.Epilogue`. The grid is
        one-dimensional and may have fewer blocks than tiles.
    """
    mma, (box_a, box_b) = config.mma, config.boxes
    if config.columns % WARP or config.c.width > 2 or (config.c.width > 1 and config.c.unit != 1):
        raise CodegenError(f"tiles have a multiple of 32 columns, and C is written in vectors of 1 or 2 along N, got {config}")
    k = KernelBuilder(config.name, GROUP * (_GROUPS + 2), arch="sm_90a", wide=config.wide,
                      summary="C = alpha * A * B^T with A (M,K), B (N,K), C (M,N): float32 as three bfloat16, A's in registers, "
                              f"tile {config.rows}x{config.columns}x{DEPTH}, {config.stages} stages\n"
                              f"A {mma.tv_a}, accumulators {mma.tv_c}")
    k.follows()
    names = "AB"
    maps = [k.tensor_map(f"map{name}") for name in names] if config.tma else []
    accesses = (config.a, config.b)
    pointers = [] if config.tma else [k.pointer(name, "float32", alignment=4 * access.width)
                                      for name, access in zip(names, accesses, strict=True)]
    pc = k.pointer("C", config.output, const=False, alignment=config.c.width * dtype(config.output).bytes)
    status = k.pointer("status", "uint32", const=False, alignment=4)
    # What vectors run along is a multiple of their width.
    along_m, along_n, along_k = (1 if config.tma else max([1, *(x.width for x in which if x.unit == unit)])
                                 for which, unit in ((accesses[:1], 0), (accesses[1:], 0), (accesses, 1)))
    M, N = k.integer("M", multiple=along_m), k.integer("N", multiple=max(along_n, config.c.width))
    K = k.integer("K", multiple=along_k)
    chunk = k.integer("chunk", multiple=DEPTH) if config.slices else K
    strides = [] if config.tma else [strides_of(k, *pair) for pair in zip(names, ("mk", "nk"), accesses, strict=True)]
    stride_c = strides_of(k, "C", "mn", config.c)
    modes = range(len(config.batch_a) + config.slices)
    batch = tuple(k.integer(f"L{i}") for i in modes)
    batch_c = tuple(k.integer(f"dC_l{i}", lo=None, multiple=config.c.width) for i in modes)
    batch_strides = [] if config.tma else [
        tuple(k.integer(f"d{name}_l{i}", lo=None, multiple=access.width) if has else 0 for i, has in enumerate(present))
        for name, access, present in zip(names, accesses, (config.batch_a, config.batch_b), strict=True)]
    epilogue = Epilogue(k, "float32", config.output, config.c, config.alpha, "zero", config.epilogue, len(batch))

    sA, sB = ring_of_tiles(k, "sA", box_a, config.stages), ring_of_tiles(k, "sB", box_b, config.stages)
    # Planes of B, one after the other in each buffer: as matrices of bfloat16, and as words of two along K.
    plane = TmaBox(_PLANE, operand_layout(config.columns, DEPTH, _PLANE, k_major=True))
    sP = ring_of_tiles(k, "sP", plane, _BUFFERS * _PLANES)
    in_words = operand_layout(config.columns, DEPTH // 2, "uint32", k_major=True).map_domain(
        lambda tile: make_layout(*tile, Layout(_BUFFERS * _PLANES, size(tile))))
    sW = k.shared("sW", "uint32", in_words, alignment=1024, over="sP")
    epilogue.load_scalars()
    ready, free = Mbarriers(k, "ready", _BUFFERS), Mbarriers(k, "free", _BUFFERS)
    arrivals = 1 if config.tma else GROUP // WARP, _GROUPS * GROUP // WARP + 1
    block = PersistentBlock(k, _GROUPS, config.stages, (*mma.tile, DEPTH), (M, N, epilogue.depth(chunk)), batch, maps=maps,
                            arrivals=arrivals, rings=((ready, 1), (free, _GROUPS)), registers=_REGISTERS)

    def first_k_tile(tile: TileOfC) -> IntLike:
        return tile.batch[-1] * (chunk // DEPTH) if config.slices else 0

    def load_by_tma(tile: TileOfC, k_tile: IntLike, stage: IntLike, barrier: str) -> None:
        own = TileOfC(tile.m, tile.n, tile.batch[:len(config.batch_a)])
        depth = (first_k_tile(tile) + k_tile) * DEPTH
        corners = tile.m * config.rows, tile.n * config.columns
        for tensor_map, box, ring, row, present in zip(maps, config.boxes, (sA, sB), corners, (config.batch_a, config.batch_b),
                                                       strict=True):
            tma_load(k, tensor_map, box, own.corner(row, depth, present), ring[_, _, stage], barrier)

    def load_by_threads(tile: TileOfC, k_tile: IntLike, stage: IntLike, lane: IntLike) -> None:
        own, of_batch = batch[:len(config.batch_a)], tile.batch[:len(config.batch_a)]
        depth = k.let("depth", first_k_tile(tile) + k_tile)
        for name, pointer, extent, access, stride, steps, ring, box, at in zip(
                names, pointers, (M, N), accesses, strides, batch_strides, (sA, sB), config.boxes, (tile.m, tile.n), strict=True):
            rows = size(box.layout.inner[0])
            copy = _reader(access)

            def mine(tensor: Tensor, copy: TiledCopy = copy, rows: int = rows, at: IntLike = at) -> Tensor:
                return copy.partition(local_tile(tensor, (rows, DEPTH), (at, depth)), lane)

            tXgX = k.pin(f"tXg{name}", mine(matrix_at(pointer, (extent, K), stride, own, steps, of_batch)))
            exists = Guard(k.pin(f"tXc{name}", mine(make_identity_tensor((extent, K)))), (extent, K))
            tXsX = k.pin(f"tXs{name}", copy.partition(ring, lane))
            rest = (size(tXsX.layout.inner[i]) for i in (1, 2))
            _inner, outer = sorted(zip(rest, (1, 2), strict=True))
            with k.loop("i", outer[0], unroll=False) as i:
                at = (_, i, _) if outer[1] == 1 else (_, _, i)
                k.copy(tXgX[at], tXsX[(*at, stage)], width=access.width, guard=exists[at])

    k.emit("bool in_range = true;")

    def seen() -> str:
        """Registers for the range of what a thread splits."""
        k.emit("unsigned least = 0xffffffffu, most = 0u, lost = 0u;")
        return "least, most, lost"

    def report() -> None:
        k.emit(f"in_range = cb::pairs_are_between(least, most, lost, {RANGE[0]}, {RANGE[1]});")

    def split_b() -> None:
        k.comment("Planes of B, by a warpgroup of its own")
        lane = k.let("lane", k.thread % GROUP)
        threads = Layout((WARP, GROUP // WARP), (GROUP // WARP, 1))
        of_pairs, of_words = TiledCopy(threads, (1, 2)), TiledCopy(threads, (1, 1))
        tPsB = k.pin("tPsB", of_pairs.partition(sB, lane))                                 # ((1, 2), N, K, stage)
        order = make_layout(mma.order_of_pairs, Layout(DEPTH // INSTRUCTION_DEPTH, size(mma.order_of_pairs)))
        ordered = sW.map_domain(lambda layout: make_layout(layout[0], composition(layout[1], order), layout[2]))
        tPsW = k.pin("tPsW", of_words.partition(ordered, lane))                            # ((1, 1), N, K, buffer and plane)
        across, along = (size(tPsB.layout.inner[i]) for i in (1, 2))
        pairs_of_b = k.registers("pairs_of_b", "float32", Layout((2, along)))
        planes = [k.registers(f"b{p}", "uint32", Layout((1, along))) for p in range(_PLANES)]
        stage, buffer, range_ = Stage(k, config.stages), Stage(k, _BUFFERS, "buffer"), seen()
        with block.steps():
            block.filled(stage)
            free.wait(buffer.index, buffer.parity ^ 1)
            for i in range(across):
                with k.loops((along,)) as (j,):
                    k.copy(tPsB[_, i, j, stage.index], pairs_of_b[_, j], width=2 if config.k_major[1] else 1)
                with k.loops((along,)) as (j,):
                    words = ", ".join(plane(0, j).c for plane in planes)
                    k.emit(f"cb::split_pair({pairs_of_b(0, j).c}, {pairs_of_b(1, j).c}, {words}, {range_});")
                with k.loops((along,)) as (j,):
                    for p, plane in enumerate(planes):
                        k.copy(plane[_, j], tPsW[_, i, j, buffer.index * _PLANES + p], width=1)
            k.emit("cb::fence_proxy_async();")
            k.group_barrier(1, GROUP)
            with k.when(equal(lane, 0)):
                ready.arrive(buffer.index)
                block.emptied(stage)
            stage.advance()
            buffer.advance()
        report()

    if config.tma:
        block.produce(box_a.nbytes + box_b.nbytes, load_by_tma, split_b)
    else:
        block.produce_by_threads(load_by_threads, split_b)

    with block.consumers():
        tCsA = k.pin("tCsA", mma.partition_a(sA, k.thread)[_, 0, _, _])                 # ((2, 2, 2), K, stage)
        descriptor = MatrixDescriptor(k, "descriptor_b", sP, WgmmaOperand(_PLANE, plane.layout, k_major=True))
        fragment = Layout((2, 2, config.columns // 8))
        total, main, corrections = (k.registers(name, "float32", fragment) for name in ("total", "main_", "corrections"))
        values = k.registers("values", "float32", Layout(8))
        words = [[k.registers(f"a{p}_{b}", "uint32", Layout(4)) for p in range(_PLANES)] for b in range(_BUFFERS)]
        stage, buffer, range_ = Stage(k, config.stages), Stage(k, _BUFFERS, "buffer"), seen()
        released = k.variable("released", 0, hi=_BUFFERS - 1)

        def multiply(accumulators: Tensor, products: tuple[tuple[int, int], ...], step: int) -> None:
            for i, (p, q) in enumerate(products):
                b = descriptor.at(buffer.index * _PLANES + q, step * INSTRUCTION_DEPTH)
                wgmma_on_registers(k, config.columns, _PLANE, True, accumulators, words[step % _BUFFERS][p], b,
                                   "0" if i == step == 0 else "1")

        def settle(released: IntLike, condition: Expr | bool = True) -> None:
            """Add what a stage made to the total; its planes of B may be overwritten."""
            k.emit("cb::wgmma_wait<0>();")
            with k.when(all_of(equal(k.thread % GROUP, 0), condition)):
                free.arrive(released)
            for part in (corrections, main):
                k.emit(f"cb::wgmma_delivered({part.engine.name});")
                with k.loops((2, 2, config.columns // 8)) as at:
                    k.emit(f"{total(*at).c} = cb::add({total(*at).c}, {part(*at).c});")

        def stage_of_k(k_tile: IntLike) -> None:
            block.filled(stage)
            steps = DEPTH // INSTRUCTION_DEPTH
            for step in range(steps):
                k.copy(tCsA[_, step, stage.index], values, width=mma.width)
                if step == steps - 1:
                    k.warp_barrier()
                    with k.when(equal(k.thread % WARP, 0)):
                        block.emptied(stage)
                if step != 1:                                       # then, nothing but step 0 is under way
                    k.emit(f"cb::wgmma_wait<{_BUFFERS - 1}>();")
                for half in range(2):
                    for row in range(2):
                        x, y = (values(at).c for at in mma.word(row, half))
                        planes = ", ".join(plane(row + 2 * half).c for plane in words[step % _BUFFERS])
                        k.emit(f"cb::split_pair({x}, {y}, {planes}, {range_});")
                if step == 0:
                    # The stage before ends here, so that it still multiplied while this one's first values were split.
                    settle(released, less(0, k_tile))
                    k.assign(released, buffer.index)
                    ready.wait(buffer.index, buffer.parity)
                k.emit("cb::wgmma_fence();")
                multiply(corrections, _CORRECTIONS, step)
                multiply(main, _MAIN, step)
                k.emit("cb::wgmma_commit();")
            stage.advance()
            buffer.advance()

        with block.tiles() as tile:
            for tensor in (total, main, corrections):
                k.fill(tensor)
            with k.loop("k_tile", block.k_tiles) as k_tile:
                stage_of_k(k_tile)
            settle(released, less(0, block.k_tiles))
            at = tile.m, tile.n

            def partition(tensor: Tensor) -> Tensor:
                return mma.partition_c(tensor, k.thread).map_domain(lambda layout: layout[0])       # without the modes of extent 1

            def tiled(matrix: Tensor) -> Tensor:
                return local_tile(matrix, mma.tile, at)

            guard = Guard(k.pin("tCcC", partition(tiled(make_identity_tensor((M, N))))), (M, N))
            gC = tiled(matrix_at(pc, (M, N), stride_c, batch, batch_c, tile.batch))
            epilogue.store(total, partition, gC, guard, (M, N), batch, tile.batch, tiled)
        report()

    k.comment("Whether all that the block has split was in range")
    k.emit(f"unsigned const word = cb::syncthreads_or(!in_range) ? {OUT_OF_RANGE}u : 0u;")
    with k.when(equal(k.thread, 0)):
        k.emit(f"cb::store_global<1>({status[k.block_index('reporting', 'x')].address}, &word);")
    return k.build()
