"""``gemm_thin``: C = alpha A B^T + beta C with few columns, as fast as memory delivers A: every element type, every stride.

A is large and read once, straight into registers: each thread loads vectors along whichever mode is contiguous, several of them
before it multiplies any. B is small and stays in cache, from where threads load what belongs to their part of K. The threads of a
block are an array along M and K, so a sum is made of many short ones: of a thread, of the lanes of a warp, of warps, and of slices
of K, each added in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.dtypes import dtype
from ...codegen.engine import CodegenError
from ...codegen.fma import Fma
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import partition
from ...layout import Layout, Tensor, _, make_identity_tensor, make_layout
from ...layout.symbolic import IntLike, equal, less
from .block import GemmBlock, GemmConfig

__all__ = ["ThinConfig", "ThinTile", "gemm_thin"]

_WARP = 32


@dataclass(frozen=True)
class ThinTile:
    """How a tile of C, and what is summed for it in one step, is divided.

    Attributes
    ----------
    n : int
        Columns of the tile; every thread has all of them.
    lanes, warps : tuple of int
        Threads of a warp, and warps of a block, along (M, K).
    values : tuple of int
        Extents along (M, K) of the dense blocks of A that a thread owns.
    rest : tuple of int
        How many such blocks it loads in a step, along (M, K).
    fast : int
        The mode along which lanes are neighbours: 0 (M) or 1 (K).
    """

    n: int
    lanes: tuple[int, int]
    warps: tuple[int, int]
    values: tuple[int, int]
    rest: tuple[int, int]
    fast: int

    def __post_init__(self) -> None:
        if prod(self.lanes) != _WARP or self.lanes[1] & (self.lanes[1] - 1):
            raise CodegenError(f"the lanes of a warp are 32, powers of two along M and K, got {self.lanes}")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _WARP * prod(self.warps)

    @property
    def pass_(self) -> tuple[int, int]:
        """Extents along (M, K) of what all threads own at a time."""
        m, k = (x * w * v for x, w, v in zip(self.lanes, self.warps, self.values, strict=True))
        return m, k

    @property
    def m(self) -> int:
        """Rows of the tile."""
        return self.pass_[0] * self.rest[0]

    @property
    def k(self) -> int:
        """The step along K."""
        return self.pass_[1] * self.rest[1]

    def owner(self, m: int, lanes_k: int, warps_k: int) -> Layout:
        """The mode of threads of a thread-value layout: steps of neighbours along M, of lanes and of warps along K."""
        (lm, lk), (wm, wk) = self.lanes, self.warps
        lanes = ((lm, m), (lk, lanes_k))
        modes = (*(lanes if self.fast == 0 else lanes[::-1]), (wm, lm * m), (wk, warps_k))
        return Layout(tuple(n for n, _step in modes), tuple(step for _n, step in modes))

    @property
    def tv_a(self) -> Layout:
        """``(thread, (values))`` -> position in the (M, K) tile of a pass."""
        (vm, vk), rows = self.values, self.pass_[0]
        return make_layout(self.owner(vm, rows * vk, rows * vk * self.lanes[1]), Layout((vm, vk), (1, rows)))

    def tv_b(self, columns: int) -> Layout:
        """``(thread, (values))`` -> position in a (columns, K) tile of a pass; threads along M share values."""
        vk = self.values[1]
        return make_layout(self.owner(0, columns * vk, columns * vk * self.lanes[1]), Layout((columns, vk)))

    @property
    def tv_c(self) -> Layout:
        """``(thread, values)`` -> position along M; threads along K share values."""
        return make_layout(self.owner(self.values[0], 0, 0), Layout(self.values[0]))

    def __str__(self) -> str:
        (lm, lk), (wm, wk), (vm, vk), (rm, rk) = self.lanes, self.warps, self.values, self.rest
        return (f"{self.m}x{self.n}x{self.k}, {wm}x{wk} warps of {lm}x{lk} threads along (M, K), each {rm}x{rk} vectors of "
                f"{vm}x{vk} in a step")


@dataclass(frozen=True)
class ThinConfig(GemmConfig):
    """Everything that a ``gemm_thin`` kernel is specialised on: see :class:`~cuteblas.kernels.gemm.block.GemmConfig`.

    Attributes
    ----------
    tile : ThinTile
        The division of the work.
    """

    tile: ThinTile

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        t = self.tile
        shape = "_".join(f"{x}x{y}" for x, y in (t.lanes, t.warps, t.values, t.rest))
        return f"gemm_thin_{self.types}_n{t.n}_{shape}_{'mk'[t.fast]}_{self.traits}"


@cache
def gemm_thin(config: ThinConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : ThinConfig
        What the kernel is specialised on.

    Returns
    -------
    GeneratedKernel
        Its matrices and scalars are those of :class:`~cuteblas.kernels.gemm.block.GemmBlock`.

    Raises
    ------
    CodegenError
        If the tile does not divide among the threads, or a vector width is not provable.
    """
    tile, (element_a, element_b) = config.tile, config.elements
    accumulator = config.accumulator or dtype(element_a).accumulator
    (vm, vk), (rm, rk), n = tile.values, tile.rest, tile.n
    columns = config.b.width if config.b.unit == 0 else 1              # of B that a thread loads at a time
    width_b = config.b.width if config.b.unit in (0, 1) else 1
    if n % columns or (config.b.unit == 1 and vk % width_b):
        raise CodegenError(f"{config.name}: vectors of {width_b} elements of B do not divide {n} columns by {vk} of K")

    k = KernelBuilder(config.name, tile.threads, wide=config.wide,
                      summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {config.types}, tile {tile}\n"
                              f"threads of A {tile.tv_a}, of B {tile.tv_b(columns)}, of C {tile.tv_c}")
    block = GemmBlock(k, config, accumulator)
    tid, rows = k.thread, tile.pass_[0]

    def mine_a(tensor: Tensor) -> Tensor:
        return partition(tensor, tile.pass_, tile.tv_a, tid)

    def mine_b(tensor: Tensor) -> Tensor:
        return partition(tensor, (columns, tile.pass_[1]), tile.tv_b(columns), tid)

    def mine_c(tensor: Tensor) -> Tensor:
        return partition(tensor, (rows, 1), tile.tv_c, tid)

    k.comment("From global memory to registers: (values, rest_m or rest_n, rest_k, k tile)")
    tAgA, tBgB = k.pin("tAgA", mine_a(block.gA)), k.pin("tBgB", mine_b(block.gB))
    tAcA, tBcB = block.guard("tAcA", "mk", mine_a), block.guard("tBcB", "nk", mine_b)
    tArA = k.registers("tArA", element_a, Layout(((vm, vk), rm, rk)))
    tBrB = k.registers("tBrB", element_b, Layout(((columns, vk), n // columns, rk)))
    tCrC = k.registers("tCrC", accumulator, Layout((vm, rm, n)))
    sums = Tensor(tCrC.engine, Layout(((vm, columns), rm, n // columns), ((1, vm * rm), vm, vm * rm * columns)))
    k.fill(tCrC)

    def step(k_tile: IntLike, whole: bool) -> None:
        """Load and multiply; all of K in it exists if it is a ``whole`` step."""
        here = (_, _, _, k_tile)

        def inside(guard: Guard | None) -> Guard | None:
            return guard and replace(guard[here], extents=(guard.extents[0], None) if whole else guard.extents)

        k.copy(Vector(config.a.width), tAgA[here], tArA, guard=inside(tAcA))
        k.copy(Vector(width_b), tBgB[here], tBrB, guard=inside(tBcB))
        with k.loops((vk, rk)) as (v, r):
            k.gemm(Fma(config.a.conj, config.b.conj), sums, tArA[(_, v), _, r], tBrB[(_, v), _, r])

    whole_steps = k.let("whole_steps", block.depth // tile.k)
    with k.loop("k_tile", whole_steps, unroll=False) as k_tile:
        step(k_tile, True)
    with k.when(less(whole_steps, block.k_tiles)):
        step(whole_steps, False)

    if tile.lanes[1] > 1:
        k.comment("Add what the lanes along K have")
        first = tile.lanes[0] if tile.fast == 0 else 1
        with k.loops((vm, rm, n)) as at:
            mask = first
            while mask < first * tile.lanes[1]:
                k.fold_lanes(tCrC(*at), "add", (mask,))
                mask *= 2
    part_of_k = mine_a(make_identity_tensor((tile.m, tile.k)))(0, 0, 0)[1]
    if tile.warps[1] > 1:
        k.comment("Add what the warps along K have, in order")
        lanes_k = tile.pass_[1] // tile.warps[1]
        sR = k.shared("sR", accumulator, Layout((tile.m, n, tile.warps[1])))
        owner = make_layout(tile.owner(vm, 0, rows), Layout(vm))
        tRsR = k.pin("tRsR", partition(sR, (rows, 1, tile.warps[1]), owner, tid))
        with k.when(equal(part_of_k % lanes_k, 0)):
            k.copy(Vector(1), tCrC, tRsR[_, _, _, 0])
        k.barrier()
        part = k.registers("part", accumulator, Layout((vm, rm, n)))
        with k.when(equal(part_of_k, 0)), k.loop("warp", tile.warps[1], start=1) as warp:
            k.copy(Vector(1), mine_c(sR[_, _, warp]), part)
            k.fold(tCrC, part)

    def runs(layout: Layout) -> Layout:
        """(values, rest_m, n), or n first where C is contiguous along its rows."""
        return make_layout(layout[2], layout[0], layout[1]) if config.c.unit == 1 else layout

    with k.when(equal(part_of_k, 0) if tile.lanes[1] * tile.warps[1] > 1 else True):
        block.store(tCrC.map_domain(runs), lambda tensor: mine_c(tensor).map_domain(runs))
    return k.build()
