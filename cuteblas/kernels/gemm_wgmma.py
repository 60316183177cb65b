"""``gemm_wgmma``: float16 and bfloat16 products on Hopper's tensor cores, accumulated in float32.

One producer thread fills a ring of shared-memory stages with TMA copies; warpgroups multiply from it. Full and empty mbarriers hand
the stages back and forth. Blocks are persistent: each walks over tiles of C, and the producer runs ahead across tiles. A and B may
each be K-major or MN-major: 16-bit operands are read in either order by the hardware, so no layout needs a copy.
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
    WgmmaAtom,
    WgmmaMma,
    WgmmaOperand,
    operand_layout,
    tma_load,
    wgmma,
)
from ..codegen.kernel import GeneratedKernel
from ..layout import ArithTuple, Layout, Tensor, _, idx2crd, local_tile, make_identity_tensor, make_layout, size
from ..layout.symbolic import IntLike, all_of, ceil_div, equal, less, select
from .common import OperandAccess, combine, grouped_raster, matrix_at, strides_of

__all__ = ["WgmmaConfig", "boxes", "gemm_wgmma"]

_DEPTH = 64                         # K of a stage: one 128-byte row of a 16-bit type
_INSTRUCTION_DEPTH = 16
_GROUP = 128
_PAIRS = OperandAccess(1, 2)        # what a thread holds side by side


@dataclass(frozen=True)
class WgmmaConfig:
    """Everything that a ``gemm_wgmma`` kernel is specialised on.

    Attributes
    ----------
    element, output : str
        NumPy's names of the types of A and B (``float16``, ``bfloat16``), and of C.
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
    alpha, beta : {"one", "value"}, {"zero", "one", "value"}
        What is known of the scalars.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there (else it is broadcast).
    wide : bool
        Whether offsets into C need 64 bits.
    """

    element: str
    output: str
    groups: int = 2
    columns: int = 256
    stages: int = 4
    k_major_a: bool = True
    k_major_b: bool = True
    c: OperandAccess = _PAIRS
    alpha: str = "one"
    beta: str = "zero"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    wide: bool = False

    @property
    def rows(self) -> int:
        """Rows of the tile of C."""
        return 64 * self.groups

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        major = "".join("k" if x else "m" for x in (self.k_major_a, self.k_major_b))
        unit = {0: "m", 1: "n", None: "s"}[self.c.unit]
        batch = "".join("nabc"[x + 2 * y] for x, y in zip(self.batch_a, self.batch_b, strict=True))
        return (f"gemm_wgmma_{dtype(self.element).tag}_{dtype(self.output).tag}_{self.rows}x{self.columns}x{_DEPTH}_s{self.stages}"
                f"_{major}{unit}{self.c.width}_{self.alpha[0]}{self.beta[0]}_b{batch}{'_wide' if self.wide else ''}")


def boxes(config: WgmmaConfig) -> tuple[TmaBox, TmaBox]:
    """The TMA boxes of a stage of A and of B."""
    return (TmaBox(config.element, operand_layout(config.rows, _DEPTH, config.element, config.k_major_a)),
            TmaBox(config.element, operand_layout(config.columns, _DEPTH, config.element, config.k_major_b)))


def _ring(k: KernelBuilder, name: str, box: TmaBox, stages: int) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the swizzle's period."""
    ring = box.layout.map_domain(lambda tile: make_layout(*tile, Layout(stages, size(tile))))
    return k.shared(name, box.element, ring, alignment=1024)


class _Ring:
    """The stage that a role works on, and the parity of its phase."""

    def __init__(self, k: KernelBuilder, stages: int):
        self._k, self._stages = k, stages
        self.stage = k.variable("stage", 0, hi=stages - 1)
        self.parity = k.variable("parity", 0, hi=1)

    def advance(self) -> None:
        """To the next stage."""
        last = equal(self.stage, self._stages - 1)
        self._k.assign(self.parity, select(last, self.parity ^ 1, self.parity))
        self._k.assign(self.stage, select(last, 0, self.stage + 1))


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
        Parameters: tensor maps A, B; pointer C; extents M, N, K; the strides of C (M, N) that are not fixed at 1; the extents of
        the batch modes, then the strides of C there; alpha and beta if they are values. The grid is one-dimensional and may have
        fewer blocks than tiles.
    """
    box_a, box_b = boxes(config)
    atom = WgmmaAtom(config.columns, config.element, config.k_major_a, config.k_major_b)
    mma = WgmmaMma(atom, config.groups)
    consumers = _GROUP * config.groups
    if config.c.width > 2 or (config.c.width > 1 and config.c.unit != 1):
        raise CodegenError(f"a thread holds pairs along N: C is written in vectors of 1 or 2 along N, got {config.c}")

    k = KernelBuilder(config.name, consumers + _GROUP, arch="sm_90a", wide=config.wide,
                      summary="C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
                              f"{config.element} to {config.output}, tile {config.rows}x{config.columns}x{_DEPTH}, "
                              f"{config.stages} stages\n"
                              f"A box {box_a.box} x {len(box_a.repeats)}, B box {box_b.box} x {len(box_b.repeats)}, "
                              f"accumulators {mma.tv_c}")
    map_a, map_b = k.tensor_map("mapA"), k.tensor_map("mapB")
    pc = k.pointer("C", config.output, const=False, alignment=config.c.width * dtype(config.output).bytes)
    M, N, K = k.integer("M"), k.integer("N", multiple=config.c.width), k.integer("K")
    stride_c = strides_of(k, "C", "mn", config.c)
    batch = tuple(k.integer(f"L{i}") for i in range(len(config.batch_a)))
    batch_c = tuple(k.integer(f"dC_l{i}", lo=None, multiple=config.c.width) for i in range(len(config.batch_a)))
    alpha = k.scalar("alpha", "float32") if config.alpha == "value" else None
    beta = k.scalar("beta", "float32") if config.beta == "value" else None

    sA, sB = _ring(k, "sA", box_a, config.stages), _ring(k, "sB", box_b, config.stages)
    full, empty = Mbarriers(k, "full", config.stages), Mbarriers(k, "empty", config.stages)
    with k.when(equal(k.thread, 0)):
        for stage in range(config.stages):
            full.init(stage, 1)
            empty.init(stage, config.groups)
        full.publish()
    k.barrier()

    tiles_m, tiles_n = k.let("tiles_m", ceil_div(M, config.rows)), k.let("tiles_n", ceil_div(N, config.columns))
    k_tiles = k.let("k_tiles", ceil_div(K, _DEPTH))
    in_matrix = k.let("tiles", tiles_m * tiles_n)
    total: IntLike = in_matrix
    for extent in batch:
        total = total * extent
    first, step = k.block_index("block", "x"), k.grid_size("blocks", "x")

    def tile_at(tile: IntLike) -> tuple[IntLike, IntLike, tuple[IntLike, ...]]:
        if not batch:
            return (*grouped_raster(k, tile, tiles_m, tiles_n), ())
        index = k.let("item", tile // in_matrix)
        bm, bn = grouped_raster(k, k.let("tile_in_item", tile % in_matrix), tiles_m, tiles_n)
        return bm, bn, tuple(k.let(f"l{i}", c) for i, c in enumerate(idx2crd(index, batch)))

    def corner(rows: IntLike, depth: IntLike, at: tuple[IntLike, ...], present: tuple[bool, ...]) -> ArithTuple:
        return ArithTuple(rows, depth, *(c for c, p in zip(at, present, strict=True) if p))

    k.comment("The producer: one thread keeps the ring full")
    with k.when(less(consumers - 1, k.thread)):
        k.emit("cb::setmaxnreg_dec<40>();")
        with k.when(equal(k.thread, consumers)):
            ring = _Ring(k, config.stages)
            with k.loop("tile", total, start=first, step=step) as tile:
                bm, bn, at = tile_at(tile)
                with k.loop("k_tile", k_tiles) as k_tile:
                    empty.wait(ring.stage, ring.parity ^ 1)
                    full.expect(ring.stage, box_a.nbytes + box_b.nbytes)
                    barrier, depth = full.address(ring.stage), k_tile * _DEPTH
                    corner_a = corner(bm * config.rows, depth, at, config.batch_a)
                    corner_b = corner(bn * config.columns, depth, at, config.batch_b)
                    tma_load(k, map_a, box_a, corner_a, sA[_, _, ring.stage], barrier)
                    tma_load(k, map_b, box_b, corner_b, sB[_, _, ring.stage], barrier)
                    ring.advance()
    k.comment("The consumers: each warpgroup multiplies 64 rows of the tile")
    with k.otherwise():
        k.emit("cb::setmaxnreg_inc<232>();")
        ring = _Ring(k, config.stages)
        released = k.variable("released", 0, hi=config.stages - 1)
        group, lane = k.let("group", k.thread // _GROUP), k.thread % _GROUP
        tCsA = local_tile(sA, (64, _DEPTH), (group, 0))                            # this group's rows: (64, K, stage)
        operand_a = WgmmaOperand(config.element, operand_layout(64, _DEPTH, config.element, config.k_major_a), config.k_major_a)
        operand_b = WgmmaOperand(config.element, box_b.layout, config.k_major_b)
        descriptor_a = MatrixDescriptor(k, "descriptor_a", tCsA, operand_a)
        descriptor_b = MatrixDescriptor(k, "descriptor_b", sB, operand_b)
        tCrC = k.registers("tCrC", "float32", Layout((2, 2, config.columns // 8)))
        accumulators = Tensor(tCrC.engine, Layout(((2, 2, config.columns // 8), 1, 1)))
        with k.loop("tile", total, start=first, step=step) as tile:
            bm, bn, at = tile_at(tile)
            k.fill(accumulators)
            with k.loop("k_tile", k_tiles) as k_tile:
                full.wait(ring.stage, ring.parity)
                k.emit("cb::wgmma_fence();")
                for depth in range(0, _DEPTH, _INSTRUCTION_DEPTH):
                    wgmma(k, atom, tCrC, descriptor_a.at(ring.stage, depth), descriptor_b.at(ring.stage, depth), "1")
                k.emit("cb::wgmma_commit();")
                # All but the newest group of instructions are done: the stage before can be filled again.
                k.emit("cb::wgmma_wait<1>();")
                with k.when(all_of(equal(lane, 0), less(0, k_tile))):
                    empty.arrive(released)
                k.assign(released, ring.stage)
                ring.advance()
            k.emit("cb::wgmma_wait<0>();")
            with k.when(all_of(equal(lane, 0), less(0, k_tiles))):
                empty.arrive(released)
            gC = local_tile(matrix_at(pc, (M, N), stride_c, batch, batch_c, at), mma.tile, (bm, bn))
            cC = local_tile(make_identity_tensor((M, N)), mma.tile, (bm, bn))
            tCgC = k.pin("tCgC", mma.partition_c(gC, k.thread))
            tCcC = Guard(k.pin("tCcC", mma.partition_c(cC, k.thread)), (M, N))
            with k.loops((2, config.columns // 8)) as (h, n):
                pair = ((_, h, n), 0, 0)
                tCrD = k.registers("tCrD", config.output, Layout(2))
                if config.beta != "zero":
                    k.copy(tCgC[pair], tCrD, width=config.c.width, guard=tCcC[pair])
                with k.loops((2,)) as (i,):
                    acc = accumulators((i, h, n), 0, 0).c
                    k.emit(f"{tCrD(i).c} = {combine(config.output, 'float32', acc, tCrD(i).c, alpha, beta, config.beta)};")
                k.copy(tCrD, tCgC[pair], width=config.c.width, guard=tCcC[pair])
    return k.build()
