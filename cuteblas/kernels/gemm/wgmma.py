"""``gemm_wgmma``: float16 and bfloat16 products on Hopper's tensor cores, accumulated in float32; float32 as tfloat32 on request.

Blocks are persistent (:mod:`~cuteblas.kernels.gemm.persistent`). A and B may each be K-major or MN-major: 16-bit operands are read
in either order by the hardware, so no layout needs a copy. 32-bit ones are read along K alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.dtypes import dtype
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.swizzled import operand_layout
from ...codegen.tma import TmaBox
from ...codegen.wgmma import MatrixDescriptor, WgmmaMma, WgmmaOperand, wgmma
from ...layout import Layout, Tensor, _, local_tile, make_identity_tensor
from ...layout.symbolic import IntLike
from ..common import OperandAccess, matrix_at, strides_of
from ..epilogue import Epilogue, FusedEpilogue
from .persistent import (
    ALONE,
    GROUP,
    PAIRS,
    Cluster,
    Consumer,
    Divided,
    PersistentBlock,
    StagedC,
    TileOfC,
    Work,
    boxes,
    consumer_mma,
    depth_of,
    persistent_traits,
    ring_of_tiles,
)

__all__ = ["WgmmaConfig", "gemm_wgmma"]


@dataclass(frozen=True)
class WgmmaConfig:
    """Everything that a ``gemm_wgmma`` kernel is specialised on.

    Attributes
    ----------
    element, output : str
        Names of the types of A and B (``float16``, ``bfloat16``, or ``tfloat32``: float32 that TMA rounds), and of C.
    groups : int
        Multiplying warpgroups, 64 rows of C each.
    columns : int
        Columns of the tile of C.
    stages : int
        Stages of the ring.
    k_major_a, k_major_b : bool
        Which mode of A and B has stride 1.
    c : OperandAccess
        How C is read and written.
    alpha, beta : {"one", "value", "device"}, {"zero", "one", "value", "device"}
        What is known of the scalars; ``"device"``: they lie in device memory.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there (else it is broadcast).
    wide : bool
        Whether offsets into C need 64 bits.
    epilogue : FusedEpilogue, optional
        What is done instead of ``alpha * sum + beta * C``.
    cluster : Cluster
        Blocks that share operands.
    staged : {"tma", "rows"}, optional
        Who writes C, through shared memory: TMA, or warps, row by row. Else threads write what they have.
    divided : bool
        Whether blocks, which are alone then, may share the sums of tiles: see :class:`~cuteblas.kernels.gemm.persistent.Divided`.
    clipped : bool
        Whether boxes are short, and those beyond A or B are not brought as zeros, which takes longer than to read.
    """

    element: str
    output: str
    groups: int = 2
    columns: int = 256
    stages: int = 4
    k_major_a: bool = True
    k_major_b: bool = True
    c: OperandAccess = PAIRS
    alpha: str = "one"
    beta: str = "zero"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    wide: bool = False
    epilogue: FusedEpilogue | None = None
    cluster: Cluster = ALONE
    staged: str | None = None
    divided: bool = False
    clipped: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return 64 * self.groups

    @property
    def mma(self) -> WgmmaMma:
        """Who multiplies what."""
        return consumer_mma(self.element, self.columns, self.groups, (self.k_major_a, self.k_major_b))

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """The TMA boxes by which a block brings its part of a stage of A and of B."""
        return boxes(self.element, self.rows, self.columns, (self.k_major_a, self.k_major_b), self.cluster, self.clipped)

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        traits = persistent_traits((self.rows, self.columns), self.stages, (self.k_major_a, self.k_major_b), self.c,
                                   (self.alpha, self.beta), (self.batch_a, self.batch_b), self.wide, self.epilogue,
                                   self.cluster, self.staged, depth_of(self.element))
        return (f"gemm_wgmma_{dtype(self.element).tag}_{dtype(self.output).tag}_{traits}{'_divided' if self.divided else ''}"
                f"{'_clipped' if self.clipped else ''}")


@cache
def gemm_wgmma(config: WgmmaConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : WgmmaConfig
        What the kernel is specialised on.

    Returns
    -------
    GeneratedKernel
        Parameters: tensor maps A, B, and C if TMA writes it; pointer C; extents M, N, K; the strides of C (M, N) that are not fixed
        at 1; the extents of the batch modes, then the strides of C there; if tiles are divided, their number, and pointers to sums
        and flags; those of the :class:`~cuteblas.kernels.epilogue.Epilogue`. The grid is one-dimensional, a multiple of the
        cluster, and may have fewer blocks than tiles.
    """
    box_a, box_b = config.boxes
    mma, depth = config.mma, depth_of(config.element)
    consumers = GROUP * config.groups
    if config.c.width > 2 or (config.c.width > 1 and config.c.unit != 1):
        raise CodegenError(f"a thread holds pairs along N: C is written in vectors of 1 or 2 along N, got {config.c}")
    if config.divided and config.cluster.size > 1:
        raise CodegenError("blocks that share the sums of tiles are alone, not in clusters")

    k = KernelBuilder(config.name, consumers + GROUP, arch="sm_90a", wide=config.wide, cluster=config.cluster.size,
                      summary="C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
                              f"{config.element} to {config.output}, tile {config.rows}x{config.columns}x{depth}, "
                              f"{config.stages} stages\n"
                              f"A box {box_a.box} x {len(box_a.repeats)}, B box {box_b.box} x {len(box_b.repeats)}, "
                              f"accumulators {mma.tv_c}")
    map_a, map_b = k.tensor_map("mapA"), k.tensor_map("mapB")
    map_c = k.tensor_map("mapC") if config.staged == "tma" else None
    pc = k.pointer("C", config.output, const=False, alignment=config.c.width * dtype(config.output).bytes)
    M, N, K = k.integer("M"), k.integer("N", multiple=config.c.width), k.integer("K")
    stride_c = strides_of(k, "C", "mn", config.c)
    batch = tuple(k.integer(f"L{i}") for i in range(len(config.batch_a)))
    batch_c = tuple(k.integer(f"dC_l{i}", lo=None, multiple=config.c.width) for i in range(len(config.batch_a)))
    divided = Divided.parameters(k) if config.divided else None
    epilogue = Epilogue(k, "float32", config.output, config.c, config.alpha, config.beta, config.epilogue, len(batch))

    tile_a, tile_b = boxes(config.element, config.rows, config.columns, (config.k_major_a, config.k_major_b))
    sA, sB = ring_of_tiles(k, "sA", tile_a, config.stages), ring_of_tiles(k, "sB", tile_b, config.stages)
    staged = StagedC(k, config.output, mma, map_c) if config.staged else None
    epilogue.load_scalars()
    step = config.rows, config.columns, depth
    block = PersistentBlock(k, config.groups, config.stages, step, (M, N, epilogue.depth(K)), batch, config.cluster, (map_a, map_b),
                            divided=divided)

    def load(tile: TileOfC, k_tile: IntLike, stage: IntLike, barrier: str) -> None:
        block.load(0, map_a, box_a, tile, k_tile * depth, config.batch_a, sA[_, _, stage], barrier, config.clipped)
        block.load(1, map_b, box_b, tile, k_tile * depth, config.batch_b, sB[_, _, stage], barrier, config.clipped)

    block.produce(tile_a.nbytes + tile_b.nbytes, load)
    operand_a = WgmmaOperand(config.element, operand_layout(64, depth, config.element, config.k_major_a), config.k_major_a)
    operand_b = WgmmaOperand(config.element, tile_b.layout, config.k_major_b)

    def consumer() -> Consumer:
        # This group's rows: (64, K, stage).
        tCsA = local_tile(sA, (64, depth), (k.let("group", k.thread // GROUP), 0))
        a = MatrixDescriptor(k, "descriptor_a", tCsA, operand_a)
        b = MatrixDescriptor(k, "descriptor_b", sB, operand_b)
        tCrC = k.registers("tCrC", "float32", Layout((2, 2, config.columns // 8)))

        def multiply(stage: IntLike) -> None:
            k.emit("cb::wgmma_fence();")
            for first in range(0, depth, mma.atoms[0].depth):
                for atom, column in zip(mma.atoms, mma.firsts, strict=True):
                    wgmma(k, atom, tCrC, a.at(stage, first), b.at(stage, first, column), "1", column)
            k.emit("cb::wgmma_commit();")

        def finish(work: Work) -> None:
            with block.ended(work, tCrC):
                store(work.tile)

        def store(tile: TileOfC) -> None:
            at = tile.m, tile.n

            def partition(tensor: Tensor) -> Tensor:
                return mma.partition_c(tensor, k.thread).map_domain(lambda layout: layout[0])       # without the modes of extent 1

            mC = matrix_at(pc, (M, N), stride_c, batch, batch_c, tile.batch)
            gC = local_tile(mC, mma.tile, at)
            guard = None
            if staged is None or epilogue.touches_memory:
                guard = Guard(k.pin("tCcC", partition(local_tile(make_identity_tensor((M, N)), mma.tile, at))), (M, N))
            pieces = staged.pieces_of(tile, mC, (M, N)) if staged else None
            epilogue.store(tCrC, partition, gC, guard, (M, N), batch, tile.batch, lambda matrix: local_tile(matrix, mma.tile, at),
                           pieces)

        return Consumer(lambda: k.fill(tCrC), multiply, lambda: None, finish, staged.leave if staged else lambda: None)

    block.consume(consumer)
    return k.build()
