"""``gemm_skinny``: float32 products with few columns on 16-bit tensor cores, without planes in
memory.

Threads split A into three planes of bfloat16 on its way to registers, another warpgroup splits B
in shared memory; six products as in bf16x6, added in float32 after every stage. Nothing is scaled:
a block leaves a verdict if an element was outside of :data:`RANGE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    CpAsync,
    GeneratedKernel,
    KernelBuilder,
    Pipeline,
    TensorParam,
    Term,
    TmaBox,
    Vector,
    operand_layout,
    wgmma_delivered,
)
from ...codegen.mbarrier import fence_proxy_async
from ...codegen.wgmma import WgmmaOperand, WgmmaRegisterMma, wgmma_commit, wgmma_fence, wgmma_wait
from ...layout import Layout, Tensor, _, composition, make_layout, size
from ...layout.symbolic import Condition, IntLike, all_of, equal
from ..common import (
    ELEMENTS,
    GROUP,
    WARP,
    DynamicPair,
    OperandAccess,
    Pair,
    existing,
    mapped,
    operand,
    part_of_tile,
    vectors_along,
)
from ..epilogue import Epilogue
from ..guard import NATIVE, leave_verdict
from .persistent import DEPTH, TmaConfig
from .roles import Multiply, Step, Sums, TmaBlock, ring_of_tiles
from .scheduler import Work
from .staged import WarpgroupOutput

RANGE = (-50, 50)
"""Exponents of elements that are not zero: at least 2^-50, less than 2^50. What two planes leave
is at least 2^-73, and its product at least 2^-123: no product that counts is subnormal, and no sum
reaches 2^127."""

_PLANE = "bfloat16"
_PLANES = 3
_MAIN, _CORRECTIONS = ((0, 0),), ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1))
_BUFFERS = 2                        # of B's planes in shared memory, and of A's in registers
_VECTORS = OperandAccess(1, 4)      # along K, of 16 bytes
_REGISTERS = 80, 176                # of threads that do not multiply, and of those that do


@dataclass(frozen=True)
class SkinnyConfig(TmaConfig):
    """The configuration of a ``gemm_skinny`` kernel; tiles have 128 rows and a multiple of 32
    columns. ``tma``: whether TMA reads A, and B; ``slices`` of K are the outermost batch mode."""

    output: str
    a: OperandAccess = _VECTORS
    b: OperandAccess = _VECTORS
    tma: tuple[bool, bool] = (True, True)
    slices: bool = False

    @property
    def multiplied(self) -> str:
        return _PLANE

    @property
    def k_major(self) -> tuple[bool, bool]:
        return self.a.unit != 0, self.b.unit != 0

    @property
    def mma(self) -> WgmmaRegisterMma:                          # type: ignore[override]
        return WgmmaRegisterMma(self.columns, self.groups, self.k_major[0], _PLANE)

    def _boxes(self, cluster: int) -> tuple[TmaBox, TmaBox]:
        """TMA boxes of a stage of A and of B, of float32."""
        a, b = (TmaBox("float32", operand_layout(extent, DEPTH, "float32", major))
                for extent, major in zip((self.rows, self.columns), self.k_major, strict=True))
        return a, b

    @property
    def name(self) -> str:
        read = "".join("" if tma else f"_{name}{'mks'[2 if x.unit is None else x.unit]}{x.width}"
                       for name, x, tma in zip("ab", (self.a, self.b), self.tma, strict=True))
        return f"gemm_skinny_{dtype(self.output).tag}_{self.traits}{read}{'_sliced' if self.slices else ''}"


def declare_range(k: KernelBuilder) -> list[Term]:
    """Variables for the range of the numbers that a thread splits."""
    return [k.declare(name, "uint32", first)
            for name, first in (("least", 2**32 - 1), ("most", 0), ("lost", 0))]


def is_in_range(k: KernelBuilder, seen: list[Term]) -> Term:
    """Whether all that a thread has split was in :data:`RANGE`."""
    return k.call("pairs_are_between", *seen, *RANGE)


def _declared(name: str, modes: str, access: OperandAccess, tma: bool,
              present: tuple[bool, ...]) -> TensorParam:
    """A or B, with the batch modes that it has."""
    if tma:
        return mapped(name, modes, "float32")
    return replace(operand(name, modes, "float32", access), batch=present)


@cache
def gemm_skinny(config: SkinnyConfig) -> GeneratedKernel:
    """Generate the kernel. Tensor maps or threads read A and B; ``status`` is a word a block. The
    grid may have fewer blocks than tiles."""
    mma, groups = config.mma, config.groups
    if config.columns % WARP or config.beta != "zero":
        raise CodegenError(f"tiles have a multiple of 32 columns, and C is not read, got {config}")
    k = config.builder(
        "C = alpha * A * B^T with A (M,K), B (N,K), C (M,N): float32 as three bfloat16, A's in registers, "
        f"tile {config.rows}x{config.columns}x{DEPTH}, {config.stages} stages\n"
        f"A {mma.tv_a}, accumulators {mma.tv_c}",
        others=2
    )
    A, B, C, status = k.tensors(_declared("A", "mk", config.a, config.tma[0], config.batch_a),
                                _declared("B", "nk", config.b, config.tma[1], config.batch_b),
                                operand("C", "mn", config.output, config.c, written=True),
                                TensorParam("status", "", "uint32", written=True, batch=False),
                                modes=("m", "n", "k", *(["chunk"] if config.slices else [])),
                                batch=len(config.batch_a) + config.slices,
                                multiples={"chunk": DEPTH})
    (M, N, K), batch = map(k.extent, "mnk"), C.batch
    chunk = k.extent("chunk") if config.slices else K
    epilogue = Epilogue(k, config, "float32")

    block = TmaBlock(k, config)
    output = WarpgroupOutput(k, config, C, epilogue)
    sA, sB = block.rings
    # Planes of B, one after the other in each buffer: as matrices of bfloat16, and as words of two
    # along K.
    plane, in_words = (operand_layout(config.columns, depth, element, k_major=True)
                       for depth, element in ((DEPTH, _PLANE), (DEPTH // 2, "uint32")))
    sP = ring_of_tiles(k, "sP", _PLANE, plane, _BUFFERS * _PLANES)
    sW = ring_of_tiles(k, "sW", "uint32", in_words, _BUFFERS * _PLANES, over="sP")
    epilogue.load_scalars()
    planes_of_b = Pipeline(k, _BUFFERS, filled=1, emptied=groups, names=("ready", "free"),
                           stage="buffer")
    summed = epilogue.depth(chunk)
    # Who writes a stage without TMA, and reads what was written so, says so for itself; else a warp
    # does for its threads.
    by_threads = not all(config.tma)
    block.begin((A, B), *planes_of_b.barriers, filled=any(config.tma) + GROUP * by_threads,
                emptied=(groups + 1) * GROUP if by_threads else groups * GROUP // WARP + 1)
    block.walk((M, N, summed), batch, ((M, K), (N, K)))
    pipeline, schedule = block.pipeline, block.schedule
    loader = GROUP * (groups + 1)               # its first thread: the warpgroup before it splits B

    @contextmanager
    def steps(work: Work) -> Iterator[Step]:
        with work.steps(k) as k_tile:
            at = [((work.tile.batch[-1] * (chunk // DEPTH) if config.slices else 0) + k_tile,)]
            yield at, at

    in_range = k.declare("in_range", "bool", True)

    def split_b() -> None:
        k.comment("Planes of B, by a warpgroup of its own")
        lane = k.let("lane", k.thread % GROUP)
        of_pairs, of_words = (vectors_along(1, (WARP, GROUP // WARP), width) for width in (2, 1))
        tPsB = k.pin("tPsB", of_pairs.partition(sB, lane))                   # ((1, 2), N, K, stage)
        order = make_layout(mma.order_of_pairs,
                            Layout(DEPTH // mma.depth, size(mma.order_of_pairs)))
        ordered = sW.map_domain(lambda layout: make_layout(layout[0], composition(layout[1], order),
                                                           layout[2]))
        tPsW = k.pin("tPsW", of_words.partition(ordered, lane))   # ((1, 1), N, K, buffer and plane)
        across, along = tPsB.extents[1:3]
        pairs_of_b = k.registers("pairs_of_b", "float32", (2, along))
        planes = [k.registers(f"b{p}", "uint32", (1, along)) for p in range(_PLANES)]
        stage, buffer, seen = pipeline.state(), planes_of_b.state(), declare_range(k)
        with schedule.works() as work, steps(work):
            pipeline.wait(stage)
            planes_of_b.acquire(buffer)
            for i in range(across):
                with k.each(along) as j:
                    k.copy(Vector(2 if config.k_major[1] else 1), tPsB[_, i, j, stage.index],
                           pairs_of_b[_, j])
                with k.each(along) as j:
                    k.do("split_pair", pairs_of_b(0, j), pairs_of_b(1, j),
                         *(plane(0, j) for plane in planes), *seen)
                with k.each(along) as j:
                    for p, plane in enumerate(planes):
                        k.copy(ELEMENTS, plane[_, j], tPsW[_, i, j, buffer.index * _PLANES + p])
            fence_proxy_async(k)
            k.group_barrier(1, GROUP)
            if by_threads:
                pipeline.release(stage.index)
            with k.when(equal(lane, 0)):
                planes_of_b.commit(buffer.index)
                if not by_threads:
                    pipeline.release(stage.index)
            stage.advance()
            buffer.advance()
        k.assign(in_range, is_in_range(k, seen))

    def load_by_threads() -> None:
        lane = k.let("lane", k.thread % GROUP)
        stage = pipeline.state()
        newest, any_loaded = k.variable("loaded", 0, hi=config.stages - 1), k.variable("some", 0, hi=1)

        def copy_tile(matrix: Tensor, access: OperandAccess, ring: Tensor, at: DynamicPair,
                      stage: IntLike) -> None:
            """Start the copies of this thread's part of the tile at (rows, first of K)."""
            name, line = matrix.engine.root, WARP // access.width
            along, threads = (0, (line, GROUP // line)) if access.unit == 0 else (1, (GROUP // line, line))
            copy = vectors_along(along, threads, access.width)
            mine = part_of_tile(copy, ring.extents[:2], at, lane)
            source, target = (k.pin(f"tXg{name}", mine(matrix)),
                              k.pin(f"tXs{name}", copy.partition(ring, lane)))
            exists = existing(k, f"tXc{name}", mine, matrix.shape)
            _least, (most, mode) = sorted((target.extents[i], i) for i in (1, 2))
            with k.loop("i", most, unroll=False) as i:
                some = (_, i, _) if mode == 1 else (..., i)
                k.copy(CpAsync(access.width), source[some], target[(*some, stage)],
                       guard=exists[some])

        def announce(pending: int) -> None:
            k.wait(pending)
            with k.when(equal(any_loaded, 1)):
                pipeline.commit(newest)

        with schedule.works() as work, steps(work) as step:
            tile, (((k_tile,),), _of_b) = work.tile, step
            pipeline.acquire(stage)
            if any(config.tma):
                with k.when(equal(lane, 0)):
                    block.load(stage, tile, step)
            depth = k.let("depth", k_tile)
            for tensor, access, ring, row in ((A, config.a, sA, tile.m), (B, config.b, sB, tile.n)):
                if not tensor.map:
                    matrix = tensor.at(tile.batch[:len(tensor.batch)])
                    copy_tile(matrix, access, ring, (row, depth), stage.index)
            k.commit()
            announce(1)                                 # the stage before has come
            k.assign(newest, stage.index)
            k.assign(any_loaded, 1)
            stage.advance()
        announce(0)

    def load() -> None:
        if by_threads:
            with k.when(loader - 1 < k.thread):
                load_by_threads()
        else:
            block.keep_full(steps, loader)
        with k.when(k.thread < loader):
            split_b()

    @contextmanager
    def multiply() -> Iterator[Multiply]:
        tCsA = k.pin("tCsA", mma.partition_a(sA, k.thread)[_, 0, _, _])      # ((2, 2, 2), K, stage)
        tCrB = WgmmaOperand(_PLANE, plane, k_major=True).tensor(k, "descriptor_b", sP)
        fragment = Layout((2, 2, config.columns // 8))
        total, main, corrections = (k.registers(name, "float32", fragment)
                                    for name in ("total", "main_", "corrections"))
        values = k.registers("values", "float32", 8)
        words = [[k.registers(f"a{p}_{b}", "uint32", 4) for p in range(_PLANES)]
                 for b in range(_BUFFERS)]
        stage, buffer, seen = pipeline.state(), planes_of_b.state(), declare_range(k)
        released = k.variable("released", 0, hi=_BUFFERS - 1)
        last = DEPTH // mma.depth - 1

        def split_a(step: int) -> None:
            for half in range(2):
                for row in range(2):
                    planes = (plane(row + 2 * half) for plane in words[step % _BUFFERS])
                    k.do("split_pair", *map(values, mma.word(row, half)), *planes, *seen)

        def issue(accumulators: Tensor, products: tuple[Pair, ...], step: int) -> None:
            for i, (p, q) in enumerate(products):
                k.gemm(replace(mma, accumulate=i > 0 or step > 0), accumulators,
                       words[step % _BUFFERS][p], tCrB[_, step, buffer.index * _PLANES + q])

        def settle(released: IntLike, condition: Condition = True) -> None:
            """Add what a stage made to the total; its planes of B may be overwritten."""
            wgmma_wait(k, 0)
            with k.when(all_of(equal(k.thread % GROUP, 0), condition)):
                planes_of_b.release(released)
            for part in (corrections, main):
                wgmma_delivered(k, part)
                k.fold(total, part)

        def sums_of(work: Work) -> Sums:
            for tensor in (total, main, corrections):
                k.fill(tensor)
            with k.loop("k_tile", work.end) as k_tile:
                pipeline.wait(stage)
                for step in range(last + 1):
                    k.copy(Vector(mma.width), tCsA[_, step, stage.index], values)
                    if step == last:
                        if by_threads:
                            pipeline.release(stage.index)
                        else:
                            k.warp_barrier()
                            with k.when(equal(k.thread % WARP, 0)):
                                pipeline.release(stage.index)
                    if step != 1:                            # then, nothing but step 0 is under way
                        wgmma_wait(k, _BUFFERS - 1)
                    split_a(step)
                    if step == 0:
                        # The stage before ends here, so that it still multiplied while this one's
                        # first values were split.
                        settle(released, k_tile > 0)
                        k.assign(released, buffer.index)
                        planes_of_b.wait(buffer)
                    wgmma_fence(k)
                    issue(corrections, _CORRECTIONS, step)
                    issue(main, _MAIN, step)
                    wgmma_commit(k)
                stage.advance()
                buffer.advance()
            settle(released, work.end > 0)
            return total

        yield sums_of
        k.assign(in_range, is_in_range(k, seen))

    loaders = "a warpgroup" if by_threads else "one thread"
    block.specialise(load, multiply(), output.finished(), loaders, _REGISTERS)

    k.comment("Whether all that the block has split was in range")
    leave_verdict(k, status.address, ~in_range, NATIVE)
    return k.build()
