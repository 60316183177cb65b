"""Persistent blocks for Hopper: one thread fills a ring of shared-memory stages by TMA, warpgroups multiply from it.

Full and empty mbarriers hand the stages back and forth. Every block walks over tiles of C in a raster that shares operands in L2,
and the producer runs ahead across tiles. Blocks of a cluster work on neighbouring tiles of C: each brings a part of the operand
tiles that they share, and TMA puts it into all of them. Kernels differ in what a stage holds and in what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.dtypes import dtype
from ...codegen.engine import Pointer
from ...codegen.mbarrier import Mbarriers
from ...codegen.swizzled import operand_layout, swizzle_over
from ...codegen.tiled import TiledCopy, partition
from ...codegen.tma import TmaBox, tma_load, tma_store, tma_store_wait
from ...codegen.wgmma import WgmmaAtom, WgmmaMma
from ...layout import ArithTuple, ComposedLayout, Layout, Tensor, _, idx2crd, local_tile, make_identity_tensor, make_layout, size
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, equal, less, maximum, minimum, select
from ..common import OperandAccess, grouped_raster
from ..epilogue import FusedEpilogue

__all__ = ["ALONE", "DEPTH", "GROUP", "INSTRUCTION_DEPTH", "PAIRS", "WARP", "Cluster", "Consumer", "Divided", "PersistentBlock",
           "Stage", "StagedC", "TileOfC", "Verdict", "Work", "boxes", "consumer_mma", "depth_of", "persistent_traits",
           "ring_of_tiles"]

DEPTH = 64
"""K of a stage: one 128-byte row of a 16-bit type."""

INSTRUCTION_DEPTH = 16
"""K of one matrix instruction."""

PAIRS = OperandAccess(1, 2)
"""How C is written at best: a thread holds pairs along N."""

GROUP = 128
"""Threads of a warpgroup."""

WARP = 32
"""Threads of a warp."""

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}     # of threads that do not multiply, and that do, by their warpgroups
_MOST_COLUMNS, _MOST_OF_THREE = 256, 192        # of an instruction, and of one of 512 threads, which begin with 128 registers
_CLIPPED_ROWS = 64                  # of a box at most, where those beyond an operand are not brought
_ROWS_AT_ONCE = 4                   # of a piece that a warp takes away
_PIECES = 2                         # of C that a warpgroup has in shared memory
_VECTOR = 4                         # accumulators that are exchanged together
_VECTORS_AT_ONCE = 16               # that a thread asks for before it adds them
_LINES = 128, 64, 32                # bytes of a line in shared memory, over which it is swizzled


def depth_of(element: str) -> int:
    """K of a stage of a type: a row of 128 bytes, which four matrix instructions multiply."""
    return _LINES[0] // dtype(element).bytes


def ring_of_tiles(k: KernelBuilder, name: str, box: TmaBox, stages: int) -> Tensor:
    """A ring of tiles in shared memory: (MN, K, stage), every stage starting at a multiple of the swizzle's period."""
    ring = box.layout.map_domain(lambda tile: make_layout(*tile, Layout(stages, size(tile))))
    return k.shared(name, box.element, ring, alignment=1024)


@dataclass(frozen=True)
class TileOfC:
    """Where a tile of C lies: its coordinates along M and N, and the coordinate of its matrix in the batch."""

    m: IntLike
    n: IntLike
    batch: tuple[IntLike, ...]

    def corner(self, row: IntLike, depth: IntLike, present: tuple[bool, ...]) -> ArithTuple:
        """The coordinate of an operand's tile in its tensor map: row, depth, and the batch modes that it has."""
        return ArithTuple(row, depth, *(c for c, p in zip(self.batch, present, strict=True) if p))

    def corner_of_c(self, row: IntLike, column: IntLike) -> ArithTuple:
        """The coordinate of a row and a column in C's tensor map, which has all batch modes."""
        return ArithTuple(row, column, *self.batch)


@dataclass(frozen=True)
class Work:
    """What a block does at a time: a tile of C and which tiles along K of it.

    Attributes
    ----------
    tile : TileOfC
        The tile.
    first, end : IntLike
        The first tile along K, and the one behind the last.
    later : Expr
        Whether the block did something else before.
    """

    tile: TileOfC
    first: IntLike
    end: IntLike
    later: Expr | bool


@dataclass(frozen=True)
class Divided:
    """Tiles of C whose K is divided between blocks, so that all blocks have as much to do.

    The first ``count`` tiles are a row of steps along K, cut into equal parts, one for each block. A block begins with the end of
    its part. Whoever has the last step of a tile ends it: it adds to its own sum those of the blocks before it, which began with
    theirs. So blocks wait only for blocks of a lower index, and add in the same order every time.

    Attributes
    ----------
    count : IntLike
        The number of tiles.
    sums : Pointer
        For each block, a tile of accumulators.
    flags : Pointer
        A word for each warpgroup of each block, zero when the kernel begins: whether its accumulators are there.
    """

    count: IntLike
    sums: Pointer
    flags: Pointer

    @classmethod
    def parameters(cls, k: KernelBuilder) -> Divided:
        """The parameters ``divided``, ``sums`` and ``flags`` of a kernel."""
        return cls(k.integer("divided"), k.pointer("sums", "float32", const=False),
                   k.pointer("flags", "uint32", const=False, alignment=4))


class Verdict:
    """Whether a block may end its tiles, on which one warp decides while the others begin the first of them."""

    def __init__(self, k: KernelBuilder):
        self._k, self.barrier = k, Mbarriers(k, "judged", 1)
        self._word = k.shared("verdict_of_block", "uint32", Layout(1), alignment=4)

    def give(self, verdict: str) -> None:
        """Tell the block the verdict, zero if it may go on; one thread does this."""
        self._k.emit(f"cb::store_shared<1>({self._word(0).address}, &{verdict});")
        self.barrier.arrive(0)

    def leave_unless_zero(self) -> None:
        """Wait for the verdict, and leave if it is not zero."""
        k = self._k
        self.barrier.wait(0, 0)
        given = k.registers("given", "uint32", Layout(1))
        k.copy(self._word, given, width=1)
        k.emit(f"if ({given(0).c} != 0u) return;")


@dataclass(frozen=True)
class Cluster:
    """Blocks that run together on ``m`` by ``n`` tiles of C: those along N share a tile of A, those along M one of B.

    Rank ``i + m * j`` works on tile (i, j).
    """

    m: int = 1
    n: int = 1

    @property
    def size(self) -> int:
        """Number of blocks."""
        return self.m * self.n

    @property
    def tag(self) -> str:
        """Its part of a kernel's name."""
        return f"_c{self.m}x{self.n}" if self.size > 1 else ""


ALONE = Cluster()
"""Blocks that share nothing."""


def _line(extent: int, item: int) -> int:
    """The most bytes of a line in shared memory, swizzled, that divide an extent of elements."""
    return next((line for line in _LINES if extent * item % line == 0), _LINES[0])


def boxes(element: str, rows: int, columns: int, k_major: tuple[bool, bool], cluster: Cluster = ALONE,
          clipped: bool = False) -> tuple[TmaBox, TmaBox]:
    """The TMA boxes by which a block brings its part of a stage of A and of B, or of one of their planes.

    A block's part has fewer rows, or less of K if lines of an MN-major operand cannot be dealt out evenly. Boxes that are to be
    ``clipped`` (:meth:`PersistentBlock.load`) are short.
    """
    most = (_CLIPPED_ROWS,) if clipped else ()

    def box(extent: int, parts: int, k_major: bool) -> TmaBox:
        item, depth = dtype(element).bytes, depth_of(element)
        line = _line(depth if k_major else extent, item)                            # as long in all parts of a tile
        if k_major or extent * item % (parts * line) == 0:
            return TmaBox(element, operand_layout(extent // parts, depth, element, k_major, line), *most)
        whole = operand_layout(extent, depth, element, k_major, line)
        return TmaBox(element, whole.map_domain(lambda tile: make_layout(tile[0], Layout(depth // parts, tile[1].stride))), *most)

    return box(rows, cluster.n, k_major[0]), box(columns, cluster.m, k_major[1])


def consumer_mma(element: str, columns: int, groups: int, k_major: tuple[bool, bool], parts: int = 1) -> WgmmaMma:
    """Who multiplies what: warpgroups stacked along M; ``parts`` columns of accumulators make an element of C.

    More columns than an instruction has are those of several, each of which begins with a line of an MN-major B.
    """
    most = _MOST_COLUMNS if groups < 3 or columns <= _MOST_OF_THREE else _MOST_COLUMNS // 2
    atoms = tuple(WgmmaAtom(min(most, columns - first), element, *k_major) for first in range(0, columns, most))
    return WgmmaMma(atoms, groups, parts)


def persistent_traits(tile: tuple[int, int], stages: int, k_major: tuple[bool, bool], c: OperandAccess, scalars: tuple[str, str],
                      batch: tuple[tuple[bool, ...], tuple[bool, ...]], wide: bool, epilogue: FusedEpilogue | None,
                      cluster: Cluster = ALONE, staged: str | None = None, depth: int = DEPTH) -> str:
    """The part of a kernel's name that says how operands are accessed and C is written."""
    major = "".join("k" if x else "m" for x in k_major)
    unit = {0: "m", 1: "n", None: "s"}[c.unit]
    modes = "".join("nabc"[x + 2 * y] for x, y in zip(*batch, strict=True))
    alpha, beta = scalars
    written = f"{unit}{c.width}{staged[0] if staged else ''}"
    return (f"{tile[0]}x{tile[1]}x{depth}_s{stages}{cluster.tag}_{major}{written}_{alpha[0]}{beta[0]}_b{modes}"
            f"{'_wide' if wide else ''}" + (f"_{epilogue.tag}" if epilogue else ""))


class Consumer(NamedTuple):
    """What a multiplying warpgroup does.

    Attributes
    ----------
    start : callable
        Begins a tile of C.
    multiply : callable
        Issues the instructions of a stage, closing one or more groups of them.
    settle : callable
        What is done after that: all groups but the newest are finished, or all.
    finish : callable
        Ends the work on a tile of C; every instruction is finished.
    leave : callable
        What is done after the last tile.
    """

    start: Callable[[], None]
    multiply: Callable[[IntLike], None]
    settle: Callable[[], None]
    finish: Callable[[Work], None]
    leave: Callable[[], None] = lambda: None


class Stage:
    """The stage of a ring that a role works on, and the parity of its phase."""

    def __init__(self, k: KernelBuilder, stages: int, name: str = "stage"):
        self._k, self._stages = k, stages
        self.index = k.variable(name, 0, hi=stages - 1)
        self.parity = k.variable("parity" if name == "stage" else f"parity_of_{name}", 0, hi=1)

    def advance(self) -> None:
        """To the next stage."""
        last = equal(self.index, self._stages - 1)
        self._k.assign(self.parity, select(last, self.parity ^ 1, self.parity))
        self._k.assign(self.index, select(last, 0, self.index + 1))


class PersistentBlock:
    """The roles of a block and their loops.

    Parameters
    ----------
    k : KernelBuilder
        The kernel; it has one warpgroup more than multiply.
    groups : int
        Multiplying warpgroups.
    stages : int
        Stages of the ring.
    tile : tuple of int
        Extents (M, N, K) of a step.
    extents : tuple
        Extents M, N and K of the product.
    batch : tuple
        Extents of the batch modes, innermost first.
    cluster : Cluster
        Which blocks share operands; it walks over tiles of C as one.
    maps : sequence of str
        Tensor maps that are fetched ahead.
    arrivals : tuple of int, optional
        How many say that a stage has been filled and that it has been read; by default one thread and the multiplying warpgroups.
    rings : sequence of (Mbarriers, int)
        Further barriers of the kernel, and the arrivals of a phase.
    registers : tuple of int, optional
        Registers of the threads that do not multiply, and of those that do.
    divided : Divided, optional
        Tiles of C that several blocks share; of blocks that are alone.
    """

    def __init__(self, k: KernelBuilder, groups: int, stages: int, tile: tuple[int, int, int],
                 extents: tuple[IntLike, IntLike, IntLike], batch: tuple[IntLike, ...], cluster: Cluster = ALONE,
                 maps: Sequence[str] = (), arrivals: tuple[int, int] | None = None, rings: Sequence[tuple[Mbarriers, int]] = (),
                 registers: tuple[int, int] | None = None, divided: Divided | None = None):
        self._k, self._groups, self._stages, self._batch, self._cluster, self._tile = k, groups, stages, batch, cluster, tile
        self._registers, self._extents = registers or _REGISTERS[groups], extents
        self._full, self._empty = Mbarriers(k, "full", stages), Mbarriers(k, "empty", stages)
        self._sharing = cluster.m + cluster.n - 1                   # blocks that a block's tiles come from, itself included
        with k.when(equal(k.thread, 0)):
            filled, emptied = arrivals or (1, groups * self._sharing)
            for barriers, count in ((self._full, filled), (self._empty, emptied), *rings):
                for stage in range(barriers.count):
                    barriers.init(stage, count)
            self._full.publish()
            for tensor_map in maps:
                k.emit(f"cb::tma_prefetch(&{tensor_map});")
        k.barrier()
        self._block, self._blocks = block, blocks = k.block_index("block", "x"), k.grid_size("blocks", "x")
        self._at_m: IntLike = 0
        self._at_n: IntLike = 0
        if cluster.size > 1:
            k.cluster_barrier()
            rank = k.let("rank", block % cluster.size)
            self._at_m, self._at_n = k.let("rank_m", rank % cluster.m), k.let("rank_n", rank // cluster.m)
        self._tiles = (k.let("tiles_m", ceil_div(extents[0], tile[0] * cluster.m)),
                       k.let("tiles_n", ceil_div(extents[1], tile[1] * cluster.n)))
        self._k_tiles = k.let("k_tiles", ceil_div(extents[2], tile[2]))
        self._in_matrix = k.let("tiles", self._tiles[0] * self._tiles[1])
        self._total: IntLike = self._in_matrix
        for extent in batch:
            self._total = self._total * extent
        self._first: IntLike = k.let("first", block // cluster.size)
        self._step = k.let("step", blocks // cluster.size)
        self._divided = divided
        if divided is not None:
            depth = maximum(self._k_tiles, 1)
            shared = k.let("tiles_divided", select(equal(self._k_tiles, 0), 0, divided.count))
            steps = k.let("steps_divided", shared * self._k_tiles)
            self._share, self._longer = k.let("share", steps // blocks), k.let("longer_parts", steps % blocks)
            self._part = k.let("part_first", block * self._share + minimum(block, self._longer))
            self._part_end = k.let("part_end", self._part + self._share + select(less(block, self._longer), 1, 0))
            self._last_of_part = k.let("last_of_part", maximum(self._part_end - 1, 0) // depth)
            self._parts = k.let("parts", select(less(self._part, self._part_end), self._last_of_part - self._part // depth + 1, 0))
            self._whole = k.let("whole", ceil_div(maximum(self._total - shared - self._first, 0), self._step))
            self._first = k.let("first_whole", shared + self._first)

    def _at(self, tile: IntLike) -> TileOfC:
        k = self._k
        if not self._batch:
            return self._of_block(*grouped_raster(k, tile, *self._tiles), ())
        index = k.let("item", tile // self._in_matrix)
        m, n = grouped_raster(k, k.let("tile_in_item", tile % self._in_matrix), *self._tiles)
        return self._of_block(m, n, tuple(k.let(f"l{i}", c) for i, c in enumerate(idx2crd(index, self._batch))))

    def _of_block(self, m: IntLike, n: IntLike, batch: tuple[IntLike, ...]) -> TileOfC:
        """This block's tile of those of its cluster."""
        return TileOfC(m * self._cluster.m + self._at_m, n * self._cluster.n + self._at_n, batch)

    def _members(self, count: int, step: int, at: IntLike) -> IntLike:
        """The set of ranks ``at``, ``at + step``, ..., bit i for rank i; ``at`` is one of few numbers."""
        one = sum(1 << step * i for i in range(count))
        return sum((select(equal(at, i), one << i, 0) for i in range(1, self._cluster.size)), select(equal(at, 0), one, 0))

    def load(self, operand: int, tensor_map: str, box: TmaBox, tile: TileOfC, depth: IntLike, present: tuple[bool, ...],
             stage: Tensor, barrier: str, clipped: bool = False) -> None:
        """Bring this block's part of an operand tile, to all blocks that share it.

        Parameters
        ----------
        operand : int
            0 for A, 1 for B.
        tensor_map, box
            Where the part comes from.
        tile : TileOfC
            What is multiplied.
        depth : int
            Where the tile begins along K.
        present : tuple of bool
            Which batch modes the operand has.
        stage : Tensor
            The operand tile in shared memory, (MN, K).
        barrier : str
            Where the copies complete.
        clipped : bool
            Whether boxes that begin beyond the operand bring the last ones before again, of which nothing comes into C.
        """
        c = self._cluster
        first = (tile.m, tile.n)[operand] * self._tile[operand]
        if operand == 0:
            parts, part, blocks = c.n, self._at_n, self._members(c.n, c.m, self._at_m)
        else:
            parts, part, blocks = c.m, self._at_m, self._members(c.m, 1, self._at_n * c.m)
        rows, deep = (size(mode) for mode in box.layout.shape)
        at = (part, 0) if rows < self._tile[operand] else (0, part)
        own = local_tile(stage, (rows, deep), at)
        corner = tile.corner(first + at[0] * rows, depth + at[1] * deep, present)
        tma_load(self._k, tensor_map, box, corner, own, barrier, blocks if parts > 1 else None,
                 self._extents[operand] if clipped else None)

    def produce(self, nbytes: int, load: Callable[[TileOfC, IntLike, IntLike, str], None],
                helper: Callable[[], None] | None = None, aside: Callable[[], None] | None = None,
                begin: Callable[[Work], None] = lambda work: None) -> None:
        """The producer's part: one thread and TMA.

        Parameters
        ----------
        nbytes : int
            Bytes of a stage.
        load : callable
            Starts the copies of (tile of C, k tile) into a stage; they complete on the barrier at the address that it is given.
        helper : callable, optional
            What the warpgroup behind those that multiply does; the producer is in the one behind that.
        aside : callable, optional
            What the warp behind that of the producer does.
        begin : callable
            What the producer does before it begins something.
        """
        k = self._k
        with self._producer("one thread keeps the ring full", helper) as first:
            with k.when(equal(k.thread, first)):
                stage = Stage(k, self._stages)
                with self.steps(begin) as (at, k_tile):
                    self._empty.wait(stage.index, stage.parity ^ 1)
                    self._full.expect(stage.index, nbytes)
                    load(at, k_tile, stage.index, self._full.address(stage.index))
                    stage.advance()
            if aside is not None:
                with k.when(equal(k.thread // WARP, first // WARP + 1)):
                    aside()

    def produce_by_threads(self, load: Callable[[TileOfC, IntLike, IntLike, IntLike], None],
                           helper: Callable[[], None] | None = None,
                           by_tma: tuple[int, Callable[[TileOfC, IntLike, IntLike, str], None]] | None = None) -> None:
        """The producer's part: a warpgroup and its threads' own asynchronous copies, for operands that no tensor map describes.

        Parameters
        ----------
        load : callable
            Starts this thread's copies of (tile of C, k tile) into a stage; the thread's number in the warpgroup comes last.
        helper : callable, optional
            As in :meth:`produce`.
        by_tma : (int, callable), optional
            Bytes that TMA brings into each stage beside these, and what starts that, as in :meth:`produce`.
        """
        k = self._k
        with self._producer("a warpgroup keeps the ring full", helper) as first, k.when(less(first - 1, k.thread)):
            lane = k.let("lane", k.thread % GROUP)
            stage = Stage(k, self._stages)
            loaded, some = k.variable("loaded", 0, hi=self._stages - 1), k.variable("some", 0, hi=1)

            def announce(pending: int) -> None:
                k.wait(pending)
                with k.when(equal(some, 1)):
                    self._full.arrive(loaded)

            with self.steps() as (at, k_tile):
                self._empty.wait(stage.index, stage.parity ^ 1)
                if by_tma is not None:
                    with k.when(equal(lane, 0)):
                        self._full.expect(stage.index, by_tma[0])
                        by_tma[1](at, k_tile, stage.index, self._full.address(stage.index))
                load(at, k_tile, stage.index, lane)
                k.commit()
                announce(1)                             # the stage before has come
                k.assign(loaded, stage.index)
                k.assign(some, 1)
                stage.advance()
            announce(0)

    @contextmanager
    def _producer(self, what: str, helper: Callable[[], None] | None) -> Iterator[int]:
        """What the threads that do not multiply do, the producer's part being written inside; yields its first thread."""
        k, consumers = self._k, GROUP * self._groups
        producer = consumers + GROUP * (helper is not None)
        k.comment(f"The producer: {what}")
        with k.when(less(consumers - 1, k.thread)):
            k.emit(f"cb::setmaxnreg_dec<{self._registers[0]}>();")
            yield producer
            if helper is not None:
                with k.when(less(k.thread, producer)):
                    helper()

    @property
    def k_tiles(self) -> IntLike:
        """Tiles along K of each tile of C."""
        return self._k_tiles

    @contextmanager
    def works(self) -> Iterator[Work]:
        """A loop over what this block does."""
        k = self._k
        if self._divided is None:
            with k.loop("tile", self._total, start=self._first, step=self._step) as tile:
                yield Work(self._at(tile), 0, self._k_tiles, less(self._first, tile))
            return
        with k.loop("work", self._parts + self._whole) as work:
            in_part = less(work, self._parts)
            own, whole = maximum(self._last_of_part - work, 0), self._first + maximum(work - self._parts, 0) * self._step
            tile = k.let("tile", select(in_part, own, whole))
            before = k.let("steps_before", tile * self._k_tiles)
            first = k.let("first_k_tile", select(in_part, maximum(self._part - before, 0), 0))
            end = k.let("end_k_tile", select(in_part, minimum(self._part_end - before, self._k_tiles), self._k_tiles))
            yield Work(self._at(tile), first, end, less(0, work))

    @contextmanager
    def tiles(self) -> Iterator[TileOfC]:
        """A loop over this block's tiles of C."""
        with self.works() as work:
            yield work.tile

    @contextmanager
    def steps(self, begin: Callable[[Work], None] = lambda work: None) -> Iterator[tuple[TileOfC, IntLike]]:
        """Loops over what this block does and the tiles along K of that; each begins with ``begin``."""
        with self.works() as work:
            begin(work)
            with self._k.loop("k_tile", work.end, start=work.first) as k_tile:
                yield work.tile, k_tile

    @contextmanager
    def ended(self, work: Work, total: Tensor) -> Iterator[None]:
        """What a warpgroup does with the whole sum of a tile.

        Parameters
        ----------
        work : Work
            What has been done.
        total : Tensor
            Accumulators, of float32: this thread's of a part of the sum, then of all of it.
        """
        if self._divided is None:
            yield
            return
        k, lane, group = self._k, self._k.thread % GROUP, self._k.thread // GROUP
        block, blocks, vectors = self._block, self._blocks, size(total.layout) // _VECTOR
        rounds = next(n for n in range(-(-vectors // _VECTORS_AT_ONCE), vectors + 1) if vectors % n == 0)
        at_once = Layout((_VECTOR, vectors // rounds))
        mine = Tensor(total.engine, Layout((_VECTOR, vectors // rounds, rounds)))
        sums = Tensor(self._divided.sums, Layout((_VECTOR, GROUP, vectors // rounds, rounds, self._groups, blocks)))
        flags = Tensor(self._divided.flags, Layout((self._groups, blocks)))
        with k.when(less(work.end, self._k_tiles)):
            k.comment("Another block ends this tile")
            k.copy(mine, k.pin("tSgS", sums[_, lane, _, _, group, block]), width=_VECTOR)
            k.group_barrier(1 + group, GROUP)
            with k.when(equal(lane, 0)):
                k.emit(f"cb::store_flag({flags(group, block).address}, 1u);")
        with k.otherwise():
            with k.when(less(0, work.first)):
                begin = k.let("tile_begins", maximum(self._part - work.first, 0))
                behind = self._longer * (self._share + 1)
                first = k.let("first_block", select(less(begin, behind), begin // (self._share + 1), self._longer
                                                    + maximum(begin - behind, 0) // maximum(self._share, 1)))
                others = k.registers("others", "float32", at_once)
                with k.loop("other", block, start=first) as other:
                    k.emit(f"while (cb::load_flag({flags(group, other).address}) == 0u) {{}}")
                with k.loop("other", block, start=first) as other:
                    tOgS = k.pin("tOgS", sums[_, lane, _, _, group, other])
                    with k.loops((rounds,), "r") as (r,):
                        k.copy(tOgS[_, _, r], others, width=_VECTOR)
                        with k.loops((_VECTOR, vectors // rounds)) as (i, j):
                            k.emit(f"{mine(i, j, r).c} = cb::add({mine(i, j, r).c}, {others(i, j).c});")
            yield

    def filled(self, stage: Stage) -> None:
        """Wait until a stage has been filled."""
        self._full.wait(stage.index, stage.parity)

    def emptied(self, stage: Stage) -> None:
        """One of its readers has read a stage."""
        self._empty.arrive(stage.index)

    @contextmanager
    def consumers(self) -> Iterator[None]:
        """What the multiplying warpgroups do; to be written after :meth:`produce`."""
        self._k.comment("The consumers: each warpgroup multiplies 64 rows of the tile")
        with self._k.otherwise():
            self._k.emit(f"cb::setmaxnreg_inc<{self._registers[1]}>();")
            yield

    def consume(self, consumer: Callable[[], Consumer], *, overlap: bool = True) -> None:
        """The part of the multiplying warpgroups; to be written after :meth:`produce`.

        Parameters
        ----------
        consumer : callable
            Declares what lives through all tiles, and returns what is done with it.
        overlap : bool
            Whether the newest group of instructions still runs while ``settle`` does its part.
        """
        k = self._k
        with self.consumers():
            stage = Stage(k, self._stages)
            released = k.variable("released", 0, hi=self._stages - 1) if overlap else stage.index
            lane = k.thread % GROUP
            partner = self._partner(lane)
            start, multiply, settle, finish, leave = consumer()

            def release(stage: IntLike, condition: Expr | bool = True) -> None:
                with k.when(all_of(less(lane, self._sharing), condition)):
                    if partner is None:
                        self._empty.arrive(stage)
                    else:
                        self._empty.arrive_at(stage, partner)

            with self.works() as work:
                start()
                # Counted from 0: with another start, ptxas waits after every instruction of the loop.
                count = work.end if isinstance(work.first, int) else k.let("count", maximum(work.end - work.first, 0))
                with k.loop("k_tile", count) as k_tile:
                    self.filled(stage)
                    multiply(stage.index)
                    if overlap:
                        # All but the newest group of instructions are done: the stage before can be filled again.
                        k.emit("cb::wgmma_wait<1>();")
                        release(released, less(0, k_tile))
                        k.assign(released, stage.index)
                    else:
                        k.emit("cb::wgmma_wait<0>();")
                        release(stage.index)
                    settle()
                    stage.advance()
                if overlap:
                    k.emit("cb::wgmma_wait<0>();")
                    release(released, less(0, count))
                finish(work)
            leave()
        if self._cluster.size > 1:
            k.comment("No block leaves while another one may still write to it")
            k.cluster_barrier()

    def _partner(self, lane: IntLike) -> IntLike | None:
        """The rank of the block whose barrier the first threads of a warpgroup arrive at: all that fill this block's stages."""
        k, c = self._k, self._cluster
        if c.size == 1:
            return None
        below = self._at_n * c.m + lane
        right = (self._at_n + 1 + lane - c.m) % c.n * c.m + self._at_m if c.n > 1 else 0
        return k.let("partner", select(less(lane, c.m), below, right))


class StagedC:
    """Tiles of C on their way through shared memory: warpgroups write their rows there piece by piece, and what takes them away
    writes whole lines of C.

    A piece is as wide as a line of 128 bytes, or of 64 or 32 where only these divide the tile, swizzled, so that pairs of 2-byte
    elements are written without bank conflicts. While TMA reads one, the next one is written, and it still does so while the next
    tile is multiplied. Where no tensor map describes C, the warpgroup itself takes pieces away, a warp a row at a time.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    element : str
        C's type.
    mma : WgmmaMma
        Who has what of a tile of C.
    tensor_map : str, optional
        C's, if TMA takes pieces away.
    """

    def __init__(self, k: KernelBuilder, element: str, mma: WgmmaMma, tensor_map: str | None = None):
        self._k, self._groups, self._element, self._map = k, mma.groups, element, tensor_map
        self._box = self.box_of(element, mma.tile[1])
        self._columns = size(self._box.layout.inner[1])
        self._count = mma.tile[1] // self._columns
        self._slots = min(_PIECES, self._count)
        piece = size(self._box.layout.inner)
        layout = self._box.layout.map_domain(
            lambda tile: make_layout(*tile, Layout(self._slots, piece), Layout(mma.groups, self._slots * piece)))
        self._sC = k.shared("sC", element, layout, alignment=1024)
        self._mma = replace(mma, atoms=(replace(mma.atoms[0], n=self._columns * mma.parts),), groups=1)

    @staticmethod
    def box_of(element: str, columns: int) -> TmaBox:
        """The TMA box of a piece, (M, N), N contiguous, of a tile of so many columns."""
        item = dtype(element).bytes
        line = _line(columns, item)
        return TmaBox(element, ComposedLayout(swizzle_over(line, element), 0, Layout((64, line // item), (line // item, 1))))

    @contextmanager
    def pieces_of(self, tile: TileOfC, matrix: Tensor, extents: tuple[IntLike, IntLike]) -> Iterator[tuple[IntLike, Tensor]]:
        """A loop over the pieces of a tile: yields the number of one and this thread's part of it, and stores what was written.

        Parameters
        ----------
        tile : TileOfC
            The tile.
        matrix : Tensor
            The whole of C, (M, N).
        extents : tuple
            M and N.
        """
        k, lane, group = self._k, self._k.thread % GROUP, self._k.thread // GROUP
        if self._count % self._slots:
            k.comment("The first piece goes where the last one of the tile before was")
            if self._map is None:
                k.group_barrier(1 + group, GROUP)
            else:
                with k.when(equal(lane, 0)):
                    tma_store_wait(k)
        with k.loop("piece", self._count, unroll=True) as piece:
            stage = self._sC[_, _, piece % self._slots, group]
            if self._map is not None:
                with k.when(equal(lane, 0)):
                    tma_store_wait(k, self._slots - 1)
            if self._map is not None or self._slots == 1:
                k.group_barrier(1 + group, GROUP)
            yield piece, k.pin("tCsC", partition(stage, self._mma.tile, self._mma.tv_c, lane).map_domain(lambda layout: layout[0]))
            at = tile.m * self._groups + group, tile.n * self._count + piece
            if self._map is None:
                k.group_barrier(1 + group, GROUP)
                self._write_rows(stage, matrix, extents, at, lane)
            else:
                k.emit("cb::fence_proxy_async();")
                k.group_barrier(1 + group, GROUP)
                with k.when(equal(lane, 0)):
                    corner = tile.corner_of_c(64 * at[0], self._columns * at[1])
                    tma_store(k, self._map, self._box, corner, stage)

    def _write_rows(self, stage: Tensor, matrix: Tensor, extents: tuple[IntLike, IntLike], at: tuple[IntLike, IntLike],
                    lane: IntLike) -> None:
        """Take a piece away, each warp a line of it at a time."""
        k, lanes = self._k, min(WARP, self._columns)
        rows = TiledCopy(Layout((GROUP // lanes, lanes), (lanes, 1)), (1, 1))

        def mine(tensor: Tensor) -> Tensor:
            return rows.partition(local_tile(tensor, (64, self._columns), at), lane)

        tWsC, tWgC = rows.partition(stage, lane), k.pin("tWgC", mine(matrix))
        exists = Guard(k.pin("tWcC", mine(make_identity_tensor(extents))), extents)
        _value, steps, across = (size(tWsC.layout.inner[i]) for i in range(3))
        taken = k.registers("tWrC", self._element, Layout((1, _ROWS_AT_ONCE, across)))
        with k.loop("i", steps // _ROWS_AT_ONCE, unroll=False) as i:
            with k.loops((_ROWS_AT_ONCE,)) as (j,):
                k.copy(tWsC[_, _ROWS_AT_ONCE * i + j, _], taken[_, j, _], width=1)
            with k.loops((_ROWS_AT_ONCE,)) as (j,):
                row = _ROWS_AT_ONCE * i + j
                k.copy(taken[_, j, _], tWgC[_, row, _], width=1, guard=exists[_, row, _])

    def leave(self) -> None:
        """Wait until TMA has read everything."""
        if self._map is None:
            return
        with self._k.when(equal(self._k.thread % GROUP, 0)):
            tma_store_wait(self._k)
