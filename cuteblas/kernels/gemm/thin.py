"""``gemm_thin``: C = alpha A B^T + beta C with few columns, as fast as memory delivers A.

A thread multiplies the vectors of A that it loads, from a ring of stages of its own or, with one
stage, straight from registers; B stays in cache. Sums are of a thread, lanes, warps and slices of
K, each in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import prod

from ..._dtypes import dtype
from ...codegen import CodegenError, CpAsync, Fma, GeneratedKernel, Guard, Vector, partition
from ...codegen.pipeline import RingIndex
from ...layout import Layout, Tensor, _, make_identity_tensor, make_layout, make_tensor, select
from ...layout.symbolic import IntLike, all_of, equal
from ..common import WARP, Pair, builder, butterfly
from .block import GemmBlock, GemmConfig


@dataclass(frozen=True)
class ThinTile:
    """How a tile of C, and a step of its sums, is divided. ``lanes``, ``warps``, ``values`` (a
    thread's dense block) and ``rest`` (how many of them) are along (M, K); lanes are neighbours
    along ``fast``. With one of ``stages``, loads are straight into registers."""

    n: int
    lanes: Pair
    warps: Pair
    values: Pair
    rest: Pair
    fast: int
    stages: int = 1

    def __post_init__(self) -> None:
        if prod(self.lanes) != WARP or self.lanes[1] & (self.lanes[1] - 1):
            raise CodegenError(
                f"lanes must be powers of two along M and K, 32 together, got {self.lanes}"
            )

    @cached_property
    def threads(self) -> int:
        return WARP * prod(self.warps)

    @cached_property
    def pass_(self) -> Pair:
        """Extents along (M, K) of what all threads own at a time."""
        (lm, lk), (wm, wk), (vm, vk) = self.lanes, self.warps, self.values
        return lm * wm * vm, lk * wk * vk

    @cached_property
    def m(self) -> int:
        return self.pass_[0] * self.rest[0]

    @cached_property
    def k(self) -> int:
        return self.pass_[1] * self.rest[1]

    @property
    def halvings(self) -> int:
        """How often lanes along K halve the columns between them when they add up."""
        lanes, columns = self.lanes[1].bit_length() - 1, self.n
        return min(lanes, (columns & -columns).bit_length() - 1)

    @property
    def columns(self) -> int:
        """Columns of which a thread has the sum of its warp."""
        return self.n >> self.halvings

    def owner(self, m: int, k: int, bits: tuple[int, ...] = ()) -> Layout:
        """The mode of threads: steps along M, and along K or ``bits`` of that number."""
        (lm, lk), (wm, wk) = self.lanes, self.warps
        along_k = [*((2, step) for step in bits), (lk >> len(bits), k)]
        lanes = [(lm, m), *along_k] if self.fast == 0 else [*along_k, (lm, m)]
        modes = (*lanes, (wm, lm * m), (wk, lk * k))
        return Layout(tuple(n for n, _step in modes), tuple(step for _n, step in modes))

    @property
    def tv_a(self) -> Layout:
        """``(thread, (values))`` -> position in the (M, K) tile of a pass."""
        (vm, vk), rows = self.values, self.pass_[0]
        return make_layout(self.owner(vm, rows * vk), Layout((vm, vk), (1, rows)))

    def tv_b(self, columns: int) -> Layout:
        """``(thread, (values))`` -> position in a (columns, K) tile; M shares values."""
        vk = self.values[1]
        return make_layout(self.owner(0, columns * vk), Layout((columns, vk)))

    @property
    def tv_c(self) -> Layout:
        """``(thread, (values))`` -> position in the (M, N) tile; warps along K share values."""
        vm, rows = self.values[0], self.pass_[0]
        bits = tuple(rows * (self.n >> i + 1) for i in range(self.halvings))
        return make_layout(self.owner(vm, 0, bits), Layout((vm, self.columns), (1, rows)))

    def __str__(self) -> str:
        (lm, lk), (wm, wk), (vm, vk), (rm, rk) = self.lanes, self.warps, self.values, self.rest
        return (
            f"{self.m}x{self.n}x{self.k}, {wm}x{wk} warps of {lm}x{lk} threads along (M, K), each {rm}x{rk} vectors of "
            f"{vm}x{vk} in a step" + (f", {self.stages} stages" if self.stages > 1 else "")
        )


@dataclass(frozen=True)
class ThinConfig(GemmConfig):
    tile: ThinTile

    @property
    def name(self) -> str:
        t = self.tile
        shape = "_".join(f"{x}x{y}" for x, y in (t.lanes, t.warps, t.values, t.rest))
        return f"gemm_thin_{self.types}_n{t.n}_{shape}_{'mk'[t.fast]}{t.stages}_{self.traits}"


@cache
def gemm_thin(config: ThinConfig) -> GeneratedKernel:
    tile, (element_a, element_b) = config.tile, config.elements
    accumulator = config.scalars
    (vm, vk), (rm, rk), n, width = tile.values, tile.rest, tile.n, config.a.width
    columns = config.b.width if config.b.unit == 0 else 1       # of B that a thread loads at a time
    width_b = config.b.width if config.b.unit in (0, 1) else 1
    if n % columns or (config.b.unit == 1 and vk % width_b):
        raise CodegenError(
            f"{config.name}: vectors of {width_b} elements of B do not divide {n} columns by {vk} of K"
        )

    k = builder(
        config,
        tile.threads,
        summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {config.types}, tile {tile}\n"
        f"threads of A {tile.tv_a}, of B {tile.tv_b(columns)}, of C {tile.tv_c}"
    )
    block = GemmBlock(k, config)
    tid, rows = k.thread, tile.pass_[0]

    mine_a, mine_b, mine_c = (
        partial(partition, tile=extents, tv=tv, thread=tid)
        for extents, tv in ((tile.pass_, tile.tv_a),
                            ((columns, tile.pass_[1]), tile.tv_b(columns)),
                            ((rows, n), tile.tv_c)))
    k.comment("From global memory to registers: (values, rest_m or rest_n, rest_k, k tile)")
    tAgA, tBgB = k.pin("tAgA", mine_a(block.gA)), k.pin("tBgB", mine_b(block.gB))
    tAcA, tBcB = block.guard("tAcA", "mk", mine_a), block.guard("tBcB", "nk", mine_b)
    tArA = k.registers("tArA", element_a, ((vm, vk), rm, rk))
    tBrB = k.registers("tBrB", element_b, ((columns, vk), n // columns, rk))
    tCrC = k.registers("tCrC", accumulator, (vm, rm, n))
    sums = make_tensor(tCrC.engine, ((vm, columns), rm, n // columns),
                       ((1, vm * rm), vm, vm * rm * columns))
    k.fill(tCrC)

    def multiply() -> None:
        with k.loops((vk, rk)) as (v, r):
            k.gemm(Fma(config.a.conj, config.b.conj), sums, tArA[(_, v), _, r], tBrB[(_, v), _, r])

    def load(atom: Vector | CpAsync, source: Tensor, target: Tensor, guard: Guard | None,
             k_tile: IntLike, whole: bool = False) -> None:
        """Load what a step needs; if ``whole``, all of K in it exists."""
        inside = guard and guard[..., k_tile]
        if inside and whole:
            inside = replace(inside, extents=(inside.extents[0], None))
        k.copy(atom, source[..., k_tile], target, guard=inside)

    def straight(k_tile: IntLike, whole: bool) -> None:
        load(Vector(width), tAgA, tArA, tAcA, k_tile, whole)
        load(Vector(width_b), tBgB, tBrB, tBcB, k_tile, whole)
        multiply()

    def ahead(k_tile: IntLike, stage: IntLike) -> None:
        load(CpAsync(width), tAgA, tAsA[..., stage], tAcA, k_tile)
        k.commit()

    if tile.stages == 1:
        whole_steps = k.let("whole_steps", block.extents["k"] // tile.k)
        with k.loop("k_tile", whole_steps, unroll=False) as k_tile:
            straight(k_tile, True)
        with k.when(whole_steps < block.k_tiles):
            straight(whole_steps, False)
    else:
        k.comment(
            "A ring of stages, (values, rest_m, rest_k, stage), of which each thread reads what it has written"
        )
        vectors = vm * vk // width
        own = width * tile.threads                         # vectors of all threads lie side by side
        ring = Layout(((width, vectors), rm, rk, tile.stages, tile.threads),
                      ((1, own), own * vectors, own * vectors * rm, own * vectors * rm * rk, width))
        tAsA = k.pin("tAsA", k.shared("sA", element_a, ring)[..., tid])
        for stage in range(tile.stages - 1):
            ahead(stage, stage)
        read, write = RingIndex(k, tile.stages, "read"), RingIndex(k, tile.stages, "write",
                                                                   tile.stages - 1)
        tBrN = k.registers("tBrN", element_b, tBrB.layout)             # of the next step
        fetch = partial(load, Vector(width_b), tBgB, guard=tBcB)
        fetch(tBrB, k_tile=0)
        with k.loop("k_tile", block.k_tiles, unroll=False) as k_tile:
            fetch(tBrN, k_tile=k_tile + 1)
            k.wait(tile.stages - 2)
            k.copy(Vector(width), tAsA[..., read.index], tArA)
            ahead(k_tile + (tile.stages - 1), write.index)
            multiply()
            k.fill(tBrB, tBrN)
            read.advance()
            write.advance()
        k.wait(0)

    coordinate = mine_a(make_identity_tensor((tile.m, tile.k)))(0, 0, 0)[1]
    lane, warp = k.let("lane_along_k", coordinate // vk % tile.lanes[1]), k.let("warp_along_k", coordinate // (vk * tile.lanes[1]))
    if tile.lanes[1] > 1:
        k.comment(
            "Add what the lanes along K have, halving the columns between them as long as they are even"
        )
        nearest, columns = tile.lanes[0] if tile.fast == 0 else 1, n
        for i, mask in enumerate(butterfly(tile.lanes[1], nearest)):
            if i < tile.halvings:
                columns //= 2
                with k.when(equal(lane // 2**i % 2, 1)), k.loops((vm, rm, columns)) as (v, r, c):
                    low = k.declare("low", accumulator, tCrC(v, r, c))
                    k.assign(tCrC(v, r, c), tCrC(v, r, c + columns))
                    k.assign(tCrC(v, r, c + columns), low)
                with k.loops((vm, rm, columns)) as (v, r, c):
                    k.assign(tCrC(v, r, c), k.call("add", tCrC(v, r, c),
                                                   k.call("shuffle_xor", tCrC(v, r, c + columns),
                                                          mask)))
            else:
                with k.loops((vm, rm, columns)) as at:
                    k.fold_lanes(tCrC(*at), "add", (mask,))
    total = make_tensor(tCrC.engine, ((vm, tile.columns), rm), ((1, vm * rm), vm))
    alone = equal(lane // 2**tile.halvings, 0)                # of the lanes that have the same sums
    if tile.warps[1] > 1:
        k.comment("Add what the warps along K have, in order")
        sR = k.shared("sR", accumulator, Layout((tile.m, n, tile.warps[1]),
                                                (1, tile.m, tile.m * n)))
        tRsR, side = k.pin("tRsR", mine_c(sR)), min(vm, 16 // dtype(accumulator).bytes)
        with k.when(alone):
            k.copy(Vector(side), total, tRsR[..., 0, warp])
        k.barrier()
        part = k.registers("part", accumulator, ((vm, tile.columns), rm))
        with k.when(equal(warp, 0)), k.loop("other", tile.warps[1], start=1) as other:
            k.copy(Vector(side), tRsR[..., 0, other], part)
            k.fold(total, part)

    # values, columns and rest_m: runs first, which are columns where C is contiguous along its rows
    order = (1, 0, 2) if config.c.unit == 1 else (0, 2, 1)
    with k.when(all_of(alone, equal(warp, 0))):
        block.store(select(total[(_, _), _], *order),
                    lambda tensor: select(mine_c(tensor)[(_, _), _, 0], *order))
    return k.build()
