"""``split_planes``: float32 and complex64 operands as sums of 16-bit planes, for tensor cores.

Each row is scaled by a power of two, its largest element just below a limit. A scaled ``y`` is

* fp16x3: ``hi + lo / 2^11`` in float16, ``hi = rn(y)``, ``lo = rn((y - hi) 2^11)``;
* bf16x6: ``b0 + b1 + b2`` in bfloat16, each the rounded rest of what is before it.

A block reads whole rows once and keeps them for the second look; where rows are across K, blocks
of a cluster share them. Complex rows are (re, im) side by side; the other operand is *doubled*,
with rows (re, -im) and (im, re).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import prod

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    CpAsync,
    GeneratedKernel,
    Guard,
    KernelBuilder,
    Mbarriers,
    TensorParam,
    Term,
    TiledCopy,
    Value,
    Vector,
    choose,
    integer,
    oldest_with,
    partition,
)
from ...codegen.copies import StoreAsync
from ...codegen.mbarrier import initialise
from ...layout import (
    ArithTuple,
    CoordinateIterator,
    Layout,
    Tensor,
    _,
    composition,
    local_tile,
    make_layout,
    make_tensor,
)
from ...layout.symbolic import Condition, Expr, IntLike, all_of, ceil_div, equal, maximum, select
from ..common import (
    ELEMENTS,
    WARP,
    Pair,
    builder,
    butterfly,
    clear,
    existing,
    numbers_of,
    part_of_tile,
    parts_of,
    unravel,
    vectors_along,
)
from ..guard import HOLDS, NATIVE, Field, Record, gate_tag
from ..passes import RowOperand, RowThreads, blocks_of_two, fold_row

UNROLL = 4
"""Runs that a thread splits in a step: 16 real numbers."""

_WORD = 4                           # bytes
_FOUND = {"top": "float32"}, {"zeros": "int32", "small": "int32", "sums": "float32"}
"""Statistics of a row and their types: the largest magnitude, then counts and a sum."""
_GRAIN = 64                         # words: shared tensors begin at multiples of 128 bytes


UNBOUNDED = 2.0**127
"""What rows of zeros offer: more than any row needs."""

RECORD = Record((Field("need", "max", 0.0), Field("offer", "min", UNBOUNDED)))
"""What a block, or a cluster that shares rows, records of its rows. *need*: the most that a row
needs of the other operand's, ``z + 3t`` for ``z`` zeros and ``t`` elements too small for fp16x3, 0
without these; infinity for an infinity, a NaN or elements too small for bf16x6. *offer*: the least
lower bound of a row's sum of magnitudes over its largest; :data:`UNBOUNDED` for zeros."""


@dataclass(frozen=True)
class SplitFormat:
    """A way to write a float32 as a sum of 16-bit numbers, the most significant first. Each plane
    is scaled by ``2^step`` against the one before; a scaled row's largest element is in [2^top,
    2^(top + 1)), and elements down to ``2^(top - span)`` lose nothing to float32. ``main``
    products of planes are added in float32 after every stage; ``corrections``, scaled by
    ``2^step``, stay in accumulators over all of K."""

    name: str
    element: str
    planes: int
    step: int
    top: int
    span: int
    main: tuple[Pair, ...]
    corrections: tuple[Pair, ...] = ()


FORMATS = {"fp16x3": SplitFormat("fp16x3", "float16", 2, 11, 14, 26, ((0, 0),), ((1, 0), (0, 1))),
           "bf16x6": SplitFormat("bf16x6", "bfloat16", 3, 0, 50, 100,
                                 ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))),}
"""By name; products of planes that are left out are below float32's rounding."""


@dataclass(frozen=True)
class SplitOperand(RowOperand):
    """How one operand (rows, K) is split. ``threads`` are along (rows, K); a ``run`` of neighbours
    is split and written together, :data:`UNROLL` runs of a thread in a step. ``doubled``: a
    complex row is two rows of planes. ``slots`` steps are in shared memory at once. If a step is
    all of K, it stays in registers: 0 slots, or 1 if whole runs cannot be read. Blocks of a
    ``cluster`` share rows, each with every so many-th step."""

    element: str = "float32"
    threads: Pair = (1, 1)
    run: int = 1
    doubled: bool = False
    slots: int = 0
    cluster: int = 1

    def __post_init__(self) -> None:
        if any(n < 1 or n & (n - 1) for n in self.threads):
            raise CodegenError(f"threads are powers of two, got {self}")
        if self.run % self.x.width:
            raise CodegenError(f"a run must consist of whole vectors, got {self}")
        if self.exchanged and prod(self.threads) % WARP:
            raise CodegenError(f"threads that exchange elements must form whole warps, got {self}")
        if self.tile[0] > WARP:
            raise CodegenError(f"rows of a block have a lane of one warp each, got {self}")
        if self.element not in ("float32", "complex64") or (self.parts == 1 and (self.doubled or self.x.conj)):
            raise CodegenError(
                f"only float32 and complex64 are split, and only complex64 is doubled or conjugated, got {self}"
            )

    @property
    def parts(self) -> int:
        """Real numbers of an element, side by side along K of the planes."""
        return parts_of(self.element)

    @property
    def copies(self) -> int:
        return 1 + self.doubled

    @property
    def spread(self) -> Pair:
        """Numbers of a plane that an element becomes along the contiguous one of rows and K."""
        return (1, self.parts) if self.k_major else (self.copies, 1)

    @property
    def strips(self) -> int:
        """Numbers of a plane that an element becomes along the other one."""
        return self.copies if self.k_major else self.parts

    def places(self, part: int) -> list[tuple[int, int, bool]]:
        """Where a plane has the real (0) or imaginary (1) part: strip, number, sign changed."""
        found = []
        for copy in range(self.copies):
            along = part ^ copy                   # the second row has the parts the other way round
            strip, number = (copy, along) if self.k_major else (along, copy)
            found.append((strip, number, self.doubled and part == 1 and copy == 0))
        return sorted(found, key=lambda place: place[2])

    @property
    def values(self) -> Pair:
        return (1, self.run) if self.k_major else (self.run, 1)

    @property
    def tile(self) -> Pair:
        """Rows of a block, and elements along K that it splits in one step."""
        (ti, tj), (vi, vj) = self.threads, self.values
        return ti * vi, tj * vj * UNROLL

    @property
    def reader(self) -> TiledCopy:
        """Who splits what of a step: threads are neighbours along what is contiguous."""
        return vectors_along(int(self.k_major), self.threads, self.run)

    @property
    def sharing(self) -> RowThreads:
        return RowThreads(self.threads, self.k_major, self.values[0])

    @property
    def bringer(self) -> Layout:
        """A thread's loads: ``((thread), (element, vector))`` -> position in a tile."""
        # A warp loads what it splits. Where a run is several vectors, neighbouring lanes load
        # neighbouring vectors: few sectors, and few words of the same bank.
        if not self.exchanged:
            return self.reader.tv
        (ti, tj), vi, width = self.threads, self.values[0], self.x.width
        rows, number = ti * vi, self.run // width
        (along, others), (unit, other) = ((tj, ti), (rows, 1)) if self.k_major else ((ti, tj), (1, rows))
        neighbours = min(along, WARP)
        lines = WARP // neighbours
        vectors = composition(Layout((neighbours * number, lines), (width * unit, other)),
                              Layout((WARP, number), (1, WARP)))
        warps = Layout((along // neighbours, others // lines),
                       (neighbours * self.run * unit, lines * other))
        return make_layout(make_layout(vectors[0], warps),
                           make_layout(Layout(width, unit), vectors[1]))

    @property
    def exchanged(self) -> bool:
        """Whether threads load into shared memory what others of their warp split."""
        return self.slots > 0 and self.x.width < self.run

    @property
    def shared_bytes(self) -> int:
        """Bytes for the rows, for what each warp finds in them, and for what other blocks find."""
        rows, depth = self.tile
        partials = (sum(map(len, _FOUND)) * rows * self.cluster
                    + _GRAIN) * _WORD if self.cluster > 1 else 0
        return rows * self.slots * depth * dtype(self.element).bytes + (rows + 1) * self.sharing.warps * _WORD + partials

    @property
    def tag(self) -> str:
        kind = "" if self.parts == 1 else dtype(self.element).tag
        shape = "x".join(map(str, (*self.threads, self.run, UNROLL)))
        return (f"{kind}{'d' * self.doubled}{'j' * self.x.conj}{self.x.letter('mk')}{self.x.width}"
                f"_{shape}_{f's{self.slots}' if self.slots else 'o'}"
                f"{f'_c{self.cluster}' if self.cluster > 1 else ''}_b{self.batch_modes}")


@dataclass(frozen=True)
class SplitConfig:
    """The configuration of a ``split_planes`` kernel. Blocks that are ``recorded`` leave records
    of their rows; one that ``clears`` sets words of the next kernel to zero."""

    format: str
    a: SplitOperand
    b: SplitOperand
    wide: bool = False
    gate: int | None = None
    recorded: bool = False
    clears: bool = False
    min_blocks: int = 2

    def __post_init__(self) -> None:
        if prod(self.a.threads) != prod(self.b.threads):
            raise CodegenError(f"blocks that split A and B must have the same size, got {self}")
        if any(x.cluster not in (1, self.cluster) for x in (self.a, self.b)):
            raise CodegenError(f"clusters that share rows must have one size, got {self}")

    @property
    def cluster(self) -> int:
        """Blocks of a cluster; they share rows of an operand, or are independent along K."""
        return max(self.a.cluster, self.b.cluster)

    @property
    def sides(self) -> tuple[str, str]:
        """Operands in the order of their blocks: shared rows first, then rows across K."""
        later = [(x.cluster == 1, x.k_major) for x in (self.a, self.b)]
        return ("B", "A") if later[1] < later[0] else ("A", "B")

    @property
    def name(self) -> str:
        blocks = "" if self.min_blocks == 2 else f"_x{self.min_blocks}"
        return (
            f"split_{self.format}_{self.a.tag}_{self.b.tag}{blocks}{'_wide' if self.wide else ''}"
            f"{'_judged' if self.recorded else ''}{'_clears' if self.clears else ''}"
            f"{gate_tag(self.gate)}"
        )


@cache
def split_planes(config: SplitConfig) -> GeneratedKernel:
    """Generate the kernel. The first ``blocks_first`` blocks, whole clusters, split the first of
    :attr:`SplitConfig.sides`. X is an operand, P its planes, R the exponents of rows, S the
    records of blocks or clusters. The words at ``flags`` are set to zero."""
    form = FORMATS[config.format]
    k = builder(
        config,
        prod(config.a.threads),
        arch=oldest_with("clusters"),
        min_blocks=config.min_blocks,
        cluster=config.cluster,
        summary=f"{config.a.element} rows as {form.planes} planes of {form.element} ({form.name})"
    )
    k.gate(config.gate)
    blocks_first = k.integer("blocks_first")
    flags = k.pointer("flags", "uint32", const=False, alignment=4) if config.clears else None
    flags_count = k.integer("flags_count") if config.clears else 0
    arrivals = _Arrivals(k, config)
    block = k.each_block("block")
    arrivals.turn()
    if flags is not None:
        with k.when(equal(block, 0)):
            clear(k, flags, flags_count)
    blocks = blocks_of_two(k, block, blocks_first, f"block_of_{config.sides[1]}")
    for own, side in zip(blocks, config.sides, strict=True):
        _split(k, config, side, own, arrivals)
    return k.build()


def _split(k: KernelBuilder, both: SplitConfig, side: str, block: IntLike,
           arrivals: _Arrivals) -> None:
    form, config = FORMATS[both.format], both.a if side == "A" else both.b
    (M, K), (X, P, R, *records) = config.declared(
        k, side,
        TensorParam(f"P{side}", ("row", "plane", "along"), form.element, (None, None, 1), 8,
                    written=True, lowest=0),
        TensorParam(f"R{side}", "mk", "int32", (1, 0), written=True),
        *[RECORD.parameter(f"S{side}")] * both.recorded)
    batch = X.batch
    (vi, vj), tj, order = config.values, config.threads[1], config.reader.threads
    k.note(
        f"{side}: threads {order}, each {config.values} elements at a time, by vectors of {config.x.width}"
    )
    rank: IntLike = 0
    if config.cluster > 1:
        rank, block = unravel(k, block, config.cluster, ("rank", "group"))
    tile, item = unravel(k, block, k.let("tiles", ceil_div(M, config.tile[0])),
                         several=bool(batch))
    # of a cluster that has the last rows, some blocks may have none
    if config.cluster < both.cluster:
        k.end_block(integer(block) >= prod(batch, start=ceil_div(M, config.tile[0])))

    # this block's steps of its rows
    def steps_of(tensor: Tensor, step: Pair) -> Tensor:
        tensor = local_tile(tensor, (step[0], step[1] * config.cluster), (tile, _))
        return tensor if config.cluster == 1 else local_tile(tensor, step, (0, rank, _))

    # this thread's part of the rows, step by step
    def mine(tensor: Tensor, spread: Pair = (1, 1)) -> Tensor:
        who = TiledCopy(order, (vi * spread[0], vj * spread[1]))
        step = config.tile[0] * spread[0], config.tile[1] * spread[1]
        return who.partition(steps_of(tensor, step), k.thread)

    def brought(tensor: Tensor) -> Tensor:      # what this thread loads
        return partition(steps_of(tensor, config.tile), config.reader.tile, config.bringer,
                         k.thread)

    tXgX = k.pin("tXgX", brought(X.at(item)))
    exists = existing(k, "tXcX", mine, (M, K))
    there = existing(k, "tBcX", brought, (M, K)) if config.exchanged else exists
    read = k.registers("tXrX", config.element, (vi * vj, 1, UNROLL))
    mine_alone = Layout((vi, 1, 1))

    # where the row of a value stands in what is kept of rows
    def of_row(v: IntLike) -> tuple[IntLike, int, int]:
        return (v if vi > 1 else 0), 0, 0

    numbers = partial(numbers_of, element=config.element, conj=config.x.conj)

    fold = _Fold(k, config, rank, arrivals, 1 + both.recorded)

    # What is counted is folded in the place of the rows.
    with k.scratch() if config.slots else nullcontext():
        strip = _Strip(k, config, K, rank, tXgX, there, read)
        if config.cluster > 1:
            arrivals.meet()
        k.comment("The largest magnitudes of the rows")
        (top,) = fold.registers(0)
        with strip.steps(), k.loops((vi * vj, 1, UNROLL)) as (v, i, j):
            for part in numbers(read(v, i, j)):
                k.do("largest_magnitude", part, top(*of_row(v)))
        fold.to_all(top)

        k.comment("Exponents of the rows")
        owned = part_of_tile(config.sharing.owner, (config.tile[0], tj), (tile, 0), k.thread)
        shift, factor, again = (k.registers(name, element, mine_alone)
                                for name, element in (("shift", "int32"), ("factor", "float32"),
                                                      ("again", "float32")))
        far = k.declare("far", "bool", False)
        with k.loops((vi, 1, 1)) as at:
            k.assign(shift(*at), k.call("row_shift", top(*at), form.top))
            k.do("row_factors", shift(*at), factor(*at), again(*at))
            k.assign(far, far | again(*at).differs(1.0))
            k.assign(shift(*at), -shift(*at))
        first = existing(k, "tRcR_m", owned, (M, tj), (M, 1))
        tRgR = k.pin("tRgR", owned(R.at(item, (M, tj))))
        with k.when(equal(rank, 0)):
            k.copy(ELEMENTS, shift, tRgR, guard=first)

        def scaled(part: Value, row: tuple[IntLike, int, int]) -> Value:
            return k.call("scaled", part, factor(*row))

        k.comment("Split" + (", and count what is zero or small" if records else ""))
        if records:
            zeros, small, sums = counts = fold.registers(1)
        # Planes as matrices (rows, K, strip, plane): along their contiguous mode the numbers of
        # an element are side by side, across it they are in strips.
        spread, strips = config.spread, config.strips
        extents, side_by_side = (M * spread[0], K * spread[1]), max(spread)
        pitch, plane, _unit = P.strides
        strides = (pitch * strips, 1) if config.k_major else (1, pitch * strips)
        mP = replace(P, extents=(*extents, strips, form.planes), strides=(*strides, pitch, plane),
                     batch=batch).at(item)
        split, planes = Layout((vi * vj * side_by_side, 1)), {}
        for p, s in product(range(form.planes), range(strips)):
            name = f"P{p}{'ab'[s] if strips > 1 else ''}"
            planes[p, s] = (name, k.registers(f"tXr{name}", form.element, split),
                            k.pin(f"tXg{name}", mine(mP[..., s, p], spread)))
        # Runs are written as a whole: what is after the last element is a zero in the padding
        # of the planes.
        whole = tuple(ceil_div(n, v * x) * (v * x)
                      for n, v, x in zip(extents, (vi, vj), spread, strict=True))
        writable = existing(k, "tXcP", partial(mine, spread=spread), whole)
        narrow, broad = (2.0**(form.top - f.span) for f in FORMATS.values())
        with strip.steps(again=True) as step:
            # Few rows are so small that it takes two factors. Neither rounds: the product
            # between them is at most as large as the result.
            with k.when(far), k.loops((vi * vj, 1, UNROLL)) as (v, i, j):
                x = read(v, i, j)
                for number in numbers_of(x, config.element):
                    k.assign(number, k.call("scaled", number, again(*of_row(v))))
            now = [(fragment, k.pin(f"tXg{name}_step", target[..., step], settled=True))
                   for name, fragment, target in planes.values()]
            room = _of_step(k, "room", writable, step)
            with k.loop("j", UNROLL, unroll=True) as j:
                here = exists[..., j, step]
                if records:
                    least = k.declare("least", "float32", narrow)
                # Two numbers at a time are converted: neighbours, which share a word, or the
                # parts of an element.
                parts = config.parts
                with k.each(vi * vj * parts // 2) as pair:
                    both_numbers = [(pair * (2 // parts) + i // parts, i % parts)
                                    for i in range(2)]
                    rests: list[Value] = []
                    for i, (v, which) in enumerate(both_numbers):
                        number, row = numbers(read(v, 0, j))[which], of_row(v)
                        rests.append(k.declare(f"rest_{i}", "float32", scaled(number, row)))
                        if records:
                            k.do("add_magnitude", rests[i], sums(*row), least)
                    for p in range(form.planes):
                        placed = [[(planes[p, s][1](v * side_by_side + at, 0), opposite)
                                   for s, at, opposite in config.places(which)]
                                  for v, which in both_numbers]
                        firsts = [places[0][0] for places in placed]
                        k.do("convert_pair", *firsts, *rests)
                        for first, (_same, *others) in zip(firsts, placed, strict=True):
                            for place, opposite in others:
                                k.assign(place, k.call("opposite", first) if opposite
                                         else first)
                        if p + 1 < form.planes:
                            for rest, first in zip(rests, firsts, strict=True):
                                k.assign(rest, k.call("plane_rest", rest, first,
                                                      float(2**form.step)))
                with k.when(room.at((0, 0, j))):          # a run is written or not, as a whole
                    for fragment, target in now:
                        k.copy(Vector(config.run * side_by_side), fragment, target[..., j])
                if records:
                    # Few elements are small: they are counted apart. What is not there reads as
                    # zero, and is not counted.
                    with k.when(least < narrow), k.each(vi * vj) as v, k.when(here.at((v, 0))):
                        row = of_row(v)
                        for part in numbers(read(v, 0, j)):
                            k.do("count_magnitude", scaled(part, row), narrow, broad,
                                 zeros(*row), small(*row), sums(*row))

    if records:
        k.comment("What is known of the rows")
        if config.slots:
            k.barrier()
        z, t, total = fold.to_rows(counts)
        record = RECORD.begin(k)
        with k.when(all_of(fold.has_row, tile * config.tile[0] + k.thread < M)):
            k.assign(record(0), k.call("row_need", z, t, total))
            k.assign(record(1), k.call("row_offer", total, 2.0**(form.top + 1)))
        RECORD.fold_lanes(k, record, [*butterfly(WARP)])
        with k.when(equal(k.thread, 0)):
            RECORD.leave(k, record, records[0].address, block)


def verdict_on_rows(k: KernelBuilder, rows: list[list[Term]], fallback: int) -> Term:
    """The verdict on rows of A and B: ``fallback`` if one needs more than another offers, which
    docs/performance/gemm-split.md derives."""
    (need_a, offer_a), (need_b, offer_b) = rows
    lacks = k.let("is_lacking", (need_a > offer_b) | (need_b > offer_a))
    return choose(k.call("max", need_a, need_b) > UNBOUNDED, NATIVE,
                  choose(lacks, fallback, HOLDS, "uint32"))


def _of_step(k: KernelBuilder, name: str, guard: Guard, step: IntLike) -> Guard:
    """The guard of a step, which counts along K from what a thread has first."""
    # So the constants between vectors are compared with one number: the compiler does not find
    # that by itself.
    coordinates, (rows, depth) = guard.coordinates[..., step], guard.extents
    row, first = coordinates(*(0 for _mode in range(coordinates.rank)))
    assert depth is not None
    return Guard(Tensor(CoordinateIterator(ArithTuple(row, 0)), coordinates.layout),
                 (rows, k.let(name, depth - first)))


class _Arrivals:
    """Mbarriers on which other blocks' stores complete: largest elements, then counts; each is
    waited for once, each time that a block splits rows."""

    def __init__(self, k: KernelBuilder, config: SplitConfig):
        self._k = k
        self._parity: IntLike = 0
        if config.cluster == 1:
            return
        self.barriers = Mbarriers(k, "came", 2, arrivals=1)
        with k.when(equal(k.thread, 0)):
            initialise(k, self.barriers)
        if config.gate is not None:
            self._parity = k.variable("parity", 1, hi=1)

    def turn(self) -> None:
        if isinstance(self._parity, Expr):
            self._k.assign(self._parity, 1 - self._parity)

    def meet(self) -> None:
        """Wait until all blocks of the cluster may be stored to: they have begun, and read."""
        self._k.cluster_barrier(ordered=isinstance(self._parity, Expr))

    def wait(self, stage: int) -> None:
        self.barriers.wait(stage, self._parity)


class _Fold:
    """Folds what threads have of rows, those of a block, then blocks of a cluster, always in the
    same order."""

    def __init__(self, k: KernelBuilder, config: SplitOperand, rank: IntLike, arrivals: _Arrivals,
                 stages: int):
        self._k, self._config, self._rank, self._arrivals = k, config, rank, arrivals
        self.threads = config.sharing
        self.has_row = k.thread < self.threads.rows
        if config.cluster == 1:
            return
        # Other blocks store here at any time, so nothing else uses this memory.
        k.comment(
            "What blocks of the cluster find in their parts of the rows: first what is largest, then what is counted"
        )
        shape = self.threads.rows, config.cluster
        self._told = {name: k.shared(f"told_{name}", kind, shape)
                      for found in _FOUND[:stages] for name, kind in found.items()}
        with k.when(equal(k.thread, 0)):
            for stage, found in enumerate(_FOUND[:stages]):
                # counts come to the first block alone
                with k.when(True if stage == 0 else equal(rank, 0)):
                    arrivals.barriers.expect(stage, len(found) * prod(shape) * _WORD)

    def registers(self, stage: int) -> list[Tensor]:
        """Registers for a thread's statistics of its rows, of one of :data:`_FOUND`, cleared."""
        return [self.threads.registers(self._k, *each) for each in _FOUND[stage].items()]

    def _tell(self, total: Tensor, stage: int, rank: IntLike) -> None:
        """Store what this block has of each row where a block of the cluster looks for it."""
        k, told = self._k, self._told[total.engine.root]
        there = make_tensor(told.engine, (1, *told.shape), (0, *told.stride))
        k.copy(StoreAsync(rank, self._arrivals.barriers.at(stage)), make_tensor(total.engine, 1),
               there[_, k.thread, self._rank])

    def to_all(self, total: Tensor) -> None:
        """Every thread gets the largest value of its rows."""
        k, name, cluster = self._k, total.engine.root, self._config.cluster
        if self.threads.warps == cluster == 1:
            self.threads.fold_lanes(k, total, "max")
            return
        self.threads.fold(k, [(total, "max")])
        if cluster == 1:
            told = k.shared(f"told_{name}", total.engine.dtype.name, (self.threads.rows, 1))
            with k.when(self.has_row):
                k.store(told(k.thread), total(0))
            k.barrier()
        else:
            told = self._told[name]
            with k.when(self.has_row), k.loop("to", cluster) as rank:
                self._tell(total, 0, rank)
            self._arrivals.wait(0)
        seen, vector = self.threads.parts(k, told), Vector(self.threads.run)
        k.copy(vector, seen[..., 0], total)
        if cluster > 1:
            other = k.registers(f"other_{name}", total.engine.dtype.name, total.layout)
            with k.loop("from", cluster, start=1, unroll=True) as rank:
                k.copy(vector, seen[..., rank], other)
                k.fold(total, other, "max")

    def to_rows(self, totals: Sequence[Tensor]) -> list[Value]:
        """The totals of a row, for threads of :attr:`has_row`."""
        k = self._k
        self.threads.fold(k, [(total, "add") for total in totals])
        if self._config.cluster > 1:
            with k.when(self.has_row):
                for total in totals:
                    self._tell(total, 1, 0)
            k.end_block(integer(self._rank).differs(0))
            self._arrivals.wait(1)
            with k.when(self.has_row):
                for total in totals:
                    fold_row(k, self._told[total.engine.root], total(0), "add")
        return [total(0) for total in totals]


class _Strip:
    """The rows of a block on their way through shared memory; a warp loads what it reads."""
    # Steps follow each other in a ring of slots. Those that the first pass leaves there begin the
    # second one, which loads the others again, into the slots that it leaves.

    def __init__(self, k: KernelBuilder, config: SplitOperand, depth: IntLike, rank: IntLike,
                 source: Tensor, exists: Guard, fragment: Tensor):
        self._k, self._slots, self._run, self._width = k, config.slots, config.run, config.x.width
        self._exchanged = config.exchanged
        self._source, self._exists, self._fragment = source, exists, fragment
        if not self._slots:
            k.copy(Vector(self._width), source[..., 0], fragment, guard=exists[..., 0])
            return
        rows, columns = config.tile[0], config.tile[1] * self._slots
        ring = k.shared("strip", config.element,
                        Layout((rows, columns), (columns, 1) if config.k_major else (1, rows)))
        parts = local_tile(ring, config.tile, (0, _))
        self._ring = k.pin("tXsX", config.reader.partition(parts, k.thread))
        self._target = self._ring
        if config.exchanged:
            self._target = k.pin("tBsX", partition(parts, config.reader.tile, config.bringer,
                                                   k.thread))
        if self._slots == 1:
            self._bring(0, 0, True)
            return
        mine = depth if config.cluster == 1 else maximum(depth - rank * config.tile[1], 0)
        self._steps = k.let("steps", ceil_div(mine, config.tile[1] * config.cluster))
        self._left = k.let("left", maximum(self._steps - self._slots, 0))
        with k.loop("ahead", self._slots) as position:
            self._bring(position, position, position < self._steps)

    def _bring(self, position: IntLike, step: IntLike, condition: Condition) -> None:
        """Ask for a step, under a condition; in any case that closes a group of copies."""
        k = self._k
        with k.when(condition):
            source = k.pin("tXgX_step", self._source[..., step])
            target = k.pin("tXsX_step", self._target[..., position % self._slots])
            exists = _of_step(k, "behind", self._exists, step)
            with k.loop("j", UNROLL, unroll=True) as j:
                k.copy(CpAsync(self._width), k.pin("tXgX_run", source[..., j]), target[..., j],
                       guard=exists[..., j])
        k.commit()

    def _arrived(self, pending: int) -> None:
        """Wait until at most ``pending`` groups of copies are on their way."""
        self._k.wait(pending)
        if self._exchanged:
            self._k.warp_barrier()

    @contextmanager
    def steps(self, again: bool = False) -> Iterator[IntLike]:
        """A loop over the steps, in any order, whose elements are in the fragment."""
        k = self._k
        if self._slots < 2:
            if not again and self._slots:
                self._arrived(0)
                k.copy(Vector(self._run), self._ring[..., 0], self._fragment)
            yield 0
            return
        first: IntLike = self._left if again else 0
        with k.loop("position", first + self._steps, start=first) as position:
            self._arrived(self._slots - 2)
            # The slot of the step before is free: the wait keeps the compiler from reading it
            # later.
            following = k.let("following", position + self._slots - 1)
            if again:
                more = all_of(self._steps - 1 < following,
                              following < first + self._steps)
                self._bring(following, following - self._steps, more)
            else:
                with k.when(position > 0):
                    self._bring(following, following, following < self._steps)
            k.copy(Vector(self._run), self._ring[..., position % self._slots], self._fragment)
            yield k.let("step", select(position < self._steps, position,
                                       position - self._steps)) if again else position
