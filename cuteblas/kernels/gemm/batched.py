"""``gemm_batched``: C = alpha A B^T + beta C for many small matrices, several in a block.

Matrices that follow each other without gaps are one *span*, copied by vectors in whole lines.
Other operands are walked through in the order of their strides; one that all matrices share is
copied once a block. A thread computes a part of one matrix of C, or whole matrices, each loaded as
a span. Sums go back through shared memory, to C in C's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gcd, prod
from typing import Any

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    CpAsync,
    Fma,
    GeneratedKernel,
    GlobalTensor,
    Guard,
    KernelBuilder,
    TensorParam,
    Value,
    Vector,
    by_coordinate,
    static_extents,
)
from ...layout import (
    Layout,
    Tensor,
    _,
    append,
    coalesce,
    domain_offset,
    group_modes,
    idx2crd,
    local_tile,
    logical_divide,
    make_identity_tensor,
    make_layout,
    select,
    upcast,
    zipped_divide,
)
from ...layout.symbolic import Condition, IntLike, all_of, minimum
from ..common import WARP, Pair, builder, packed_strides, tile_from, transpose_words, vectors_along
from ..epilogue import Epilogue, EpilogueConfig, OutputTile

Box = tuple[int, int, int]

MATRICES = 2
"""The mode of a box that counts matrices, after rows and columns."""

_ASYNCHRONOUS = 4                    # bytes, of what is copied to shared memory without registers
_LEAST_THREADS = 64                  # of a block
_WORD = 4                            # bytes that are multiplied together, neighbours along K
_LOW_BITS, _ONES = 0x7F7F7F7F, 0x01010101           # of each byte of a word


@dataclass(frozen=True)
class BatchedTile:
    """How the work of a block is divided. ``across`` are threads along (M, N) of a matrix, ``run``
    a thread's neighbours there, ``depth`` threads along K, ``step`` the K loaded together.
    ``whole`` is how many matrices a thread has in registers; ``words`` multiplies bytes four at a
    time."""

    matrices: int
    across: Pair = (1, 1)
    run: Pair = (1, 1)
    depth: int = 1
    step: int = 1
    whole: int = 0
    words: bool = False

    def rest(self, mode: int, extent: int) -> int:
        """Runs of a thread along M (``mode`` 0) or N."""
        return -(-extent // (self.across[mode] * self.run[mode]))

    def loaded(self, mode: int, extent: int, held: Box, item: int) -> tuple[bool, int]:
        """Whether a thread loads along K, and how much at once: elements, or words of bytes."""
        run, (x, y, each), most = self.run[mode], held, max(1, 16 // item)
        if self.words:
            return y == 1, gcd(self.step // _WORD, _WORD, x // _WORD,
                               each // _WORD) if y == 1 else 1
        if y == 1 and x != 1:
            return True, gcd(self.step, most, x, each)
        return False, gcd(run, most, y, each, extent) if x == 1 else 1

    def stored(self, extent: int, held: Box, item: int) -> int:
        """Elements that a thread stores at once along N."""
        row, column, matrix = held
        return gcd(self.run[1], max(1, 16 // item), row, matrix, extent) if column == 1 else 1

    def spanned(self, side: BatchedSide, item: int) -> Pair:
        """The elements of a thread's whole matrices, and how many of them it moves at once."""
        elements = side.matrix * (self.whole if MATRICES in side.order else 1)
        return elements, gcd(elements, max(1, 16 // item), side.held[MATRICES] * self.whole)

    @property
    def multiplying(self) -> int:
        return prod(self.across) * self.depth * self.matrices // max(1, self.whole)

    @property
    def threads(self) -> int:
        """The threads of a block: those that multiply, or more, which only copy."""
        return max(_LEAST_THREADS, -(-self.multiplying // WARP) * WARP)

    def __str__(self) -> str:
        threads, run = "x".join(map(str, (*self.across, self.depth))), "x".join(map(str, self.run))
        mine = f"{self.whole} for each thread" if self.whole else f"{threads} threads for each, runs of {run}, K by {self.step}"
        return f"{self.matrices} matrices, {self.threads} threads; {mine}{', four bytes at a time' if self.words else ''}"


@dataclass(frozen=True)
class BatchedSide:
    """Where the matrices of an operand are. ``order`` has modes, smallest stride first: 0 and 1 as
    in the operand, 2 the matrices; ``run`` of them follow each other without gaps. ``held`` are
    strides in shared memory, 0 where a mode is missing; ``box`` is what a block has. Matrices have
    one stride if they are ``even``, else one for each batch mode."""

    order: tuple[int, ...]
    run: int
    width: int
    held: tuple[int, int, int]
    box: Box
    conj: bool = False
    even: bool = True

    @property
    def outermost(self) -> bool:
        return self.order[-1:] == (MATRICES,)

    @property
    def inside(self) -> bool:
        """Whether other modes go around the matrices."""
        return MATRICES in self.order[:-1]

    @property
    def matrix(self) -> int:
        return prod(self.box[q] for q in self.order if q != MATRICES)

    @property
    def counted(self) -> int:
        """Elements that a matrix adds to the mode of matrices, or to the whole that they end."""
        return self.matrix if self.outermost else 1

    @property
    def joined(self) -> int:
        """How many of its modes are one in memory and in shared memory: vectors go across them."""
        dense = (self.held[q] == stride
                 for q, stride in packed_strides(self.box, self.order[:self.run]).items())
        return next((i for i, same in enumerate(dense) if not same), self.run)

    def shared(self, vectors: int) -> Layout:
        """The place of (row, column, matrix) in shared memory, with room for ``vectors``."""
        shape = [extent if q in self.order else 1 for q, extent in enumerate(self.box)]
        inner = prod(self.box[q] for q in self.order[:-1])
        shape[self.order[-1]] = -(-vectors * self.width // inner)
        return Layout(tuple(shape), self.held)

    def declared(self, name: str, element: str, written: bool) -> TensorParam:
        """The operand as a parameter: rows, columns and, if they are even, matrices."""
        modes = ("row", "column", "matrix")[:2 + self.even]
        known = {**dict.fromkeys(self.order), **packed_strides(self.box, self.order[:self.run])}
        strides = tuple(known.get(q, 0) for q in range(len(modes)))
        return TensorParam(name, modes, element, strides, self.width, written, batch=not self.even)

    @property
    def tag(self) -> str:
        order = "".join("xyl"[q] for q in self.order)
        return f"{order}{'' if self.even else 'l'}{self.run}v{self.width}{'c' if self.conj else ''}h{'_'.join(map(str, self.held))}"


@dataclass(frozen=True)
class BatchedConfig(EpilogueConfig):
    """The configuration of a ``gemm_batched`` kernel beside its epilogue; ``extents`` are (M, N,
    K), and ``multiple`` divides the number of matrices."""

    element: str
    element_b: str
    output: str
    accumulator: str
    extents: tuple[int, int, int]
    tile: BatchedTile
    a: BatchedSide
    b: BatchedSide
    c: BatchedSide
    batch_modes: int = 0
    multiple: int = 1

    @property
    def sides(self) -> tuple[BatchedSide, ...]:
        return self.a, self.b, self.c

    @property
    def sums(self) -> str:
        """The type of sums before they are converted to the accumulators' type."""
        return "int32" if self.tile.words else self.accumulator

    @property
    def name(self) -> str:
        t = self.tile
        types = "_".join(dtype(x).tag for x in dict.fromkeys((self.element, self.element_b,
                                                              self.accumulator, self.output)))
        return (
            f"gemm_batched_{types}_{'x'.join(map(str, self.extents))}_{t.matrices}_{t.threads}_"
            f"{t.across[0]}x{t.across[1]}x{t.depth}_{t.run[0]}x{t.run[1]}x{t.step}{'q' if t.words else f'w{t.whole}'}"
            f"_{self.a.tag}_{self.b.tag}_{self.c.tag}"
            f"_{self.alpha[0]}{self.beta[0]}_b{self.batch_modes}m{self.multiple}{'_wide' if self.wide else ''}{self.fused}"
        )


class _Operand:
    """What a block has of an operand: vectors (width, vector) in the order of memory."""

    def __init__(self, k: KernelBuilder, side: BatchedSide, tensor: GlobalTensor, threads: int,
                 first: IntLike, limit: IntLike):
        self.k, self.side, self.tensor, self.name = k, side, tensor, tensor.param.name
        self._first, self._limit = first if MATRICES in side.order else 0, limit
        self._copy = vectors_along(0, (1, threads), side.width)
        self.vectors = prod(side.box[q] for q in side.order) // side.width
        self.passes = -(-self.vectors // threads)
        self.shared_layout = side.shared(self.passes * threads)

    def vectors_of(self, tensor: Tensor, joined: int) -> Tensor:
        """A tensor (row, column, matrix) as (width, vector), across so many joined modes."""
        width = self.side.width

        def by_vector(layout: Layout) -> Layout:
            modes = [layout[q] for q in self.side.order]
            along, *dense = logical_divide(coalesce(make_layout(*modes[:joined])),
                                           width) if joined else (Layout(1),)
            rest = coalesce(make_layout(*dense, *modes[joined:]))
            if not isinstance(rest.shape, tuple):          # of all passes
                rest = Layout(self.passes * self._copy.tile[1], rest.stride)
            return make_layout(along, rest)

        return by_coordinate(tensor.map_domain(by_vector), (width, self.vectors))

    def part_of(self, tensor: Tensor, joined: int = 0) -> Tensor:
        """This part of a tensor (row, column, matrix) in memory, as (width, vector)."""
        if self.side.box[MATRICES] == 1:
            return self.vectors_of(append(tensor[..., self._first], 3), joined)
        if self.side.inside or joined == len(self.side.order):
            here = domain_offset((0, 0, self._first), tensor)
            return self.vectors_of(local_tile(here, self.side.box, (0, 0, 0)), joined)
        first = self._first * (self.side.matrix // self.side.width)
        return domain_offset((0, first), self.vectors_of(tensor, joined))

    @property
    def memory(self) -> Tensor:
        every: Any = 0 if self.side.even else None
        whole = self.tensor.at(every, self.side.box[:len(self.tensor.param.modes)])
        return self.part_of(whole, self.side.run)

    def shared(self, name: str, element: str, *, parts: int = 1, over: str | None = None) -> Tensor:
        """Shared memory for it, with room for writes beyond its end in a last pass."""
        vectors = self.passes * self._copy.tile[1] if over is None else self.vectors
        last = vectors * self.side.width - 1
        each = select(self.shared_layout, *self.side.order)(last) + 1
        memory = self.k.shared(name, element, each * parts, over=over)
        return Tensor(memory.engine, make_layout(*self.shared_layout, Layout(parts, each)))

    def in_shared(self, shared: Tensor) -> Tensor:
        """This part in shared memory: (width, vector)."""
        return self.vectors_of(shared, self.side.joined)

    def mine(self, tensor: Tensor) -> Tensor:
        """What this thread copies: (width, pass)."""
        return select(self._copy.partition(tensor, self.k.thread), 0, 2)

    @property
    def guard(self) -> Guard:
        if not self.side.inside:
            end: IntLike = self.vectors
            if self.side.outermost:
                end = self.k.let(f"{self.name}_end",
                                 self._limit * self.side.matrix // self.side.width)
            vectors = self.mine(make_identity_tensor((self.side.width, self.vectors)))
            return Guard(self.k.pin(f"t{self.name}c{self.name}", vectors), (None, end))
        # Passes end after the last of the vectors: then the last mode is beyond its extent.
        # matrices are looked at first
        last, backwards = self.side.order[-1], range(len(self.side.box))[::-1]
        ends = tuple(self._limit if q == MATRICES else self.side.box[q] if q == last else None
                     for q in backwards)
        coordinates = select(make_identity_tensor(self.side.box[::-1]), *backwards)
        return Guard(self.mine(self.vectors_of(coordinates, self.side.joined)), ends)

    def load(self, shared: Tensor) -> None:
        """Copy this part to shared memory, with zeros for what does not exist."""
        k, width, name = self.k, self.side.width, self.name
        tXgX, tXsX = k.pin(f"t{name}g{name}", self.mine(self.memory)), k.pin(f"t{name}s{name}", self.mine(self.in_shared(shared)))
        if width * shared.engine.dtype.bytes >= _ASYNCHRONOUS:
            k.copy(CpAsync(width), tXgX, tXsX, guard=self.guard)
            return
        held = k.registers(f"t{name}r{name}", shared.engine.dtype.name,
                           (width, self.passes))
        k.copy(Vector(width), tXgX, held, guard=self.guard)
        k.copy(Vector(width), held, tXsX)


class _Parked:
    """Sums in shared memory, in the order of C; a run is loaded with all parts of K."""

    def __init__(self, k: KernelBuilder, parts: list[Tensor],
                 exists: Callable[[IntLike], Condition]):
        self._k, self._parts, self._exists = k, parts, exists

    @property
    def layout(self) -> Layout:
        return Layout(static_extents(self._parts[0]))

    def loaded(self, first: IntLike, count: int) -> Callable[..., Value]:
        k, (width, _passes) = self._k, static_extents(self._parts[0])
        element = self._parts[0].engine.dtype
        vector = Vector(gcd(width, max(1, 16 // element.bytes)))
        total = k.registers("total", element.name, width)
        k.fill(total)
        with k.when(self._exists(first)):
            k.copy(vector, self._parts[0][_, first], total)
            for p, part in enumerate(self._parts[1:]):
                other = k.registers(f"part_{p}", element.name, width)
                k.copy(vector, part[_, first], other)
                k.fold(total, other)
        return lambda i, *_rest: total(i)


class _Divided:
    """Products of threads with a part of a matrix of C: runs along M and N, turns along K."""

    def __init__(self, k: KernelBuilder, config: BatchedConfig):
        self._k, self._config, tile = k, config, config.tile
        names = ("column", "row", "part", "matrix")
        at = idx2crd(k.thread, (tile.across[1], tile.across[0], tile.depth, tile.matrices))
        column, row, self._part, self._matrix = (k.let(f"at_{name}", x)
                                                 for name, x in zip(names, at, strict=True))
        self._starts = tuple(self._runs(mode, x) for mode, x in enumerate((row, column)))
        (vm, vn), (rm, rn) = tile.run, (len(starts) for starts in self._starts)
        self.total = k.registers("tCrC", config.sums,
                                 Layout(((vm, vn), rm, rn), ((vn, 1), vm * vn, vm * vn * rm)))
        k.fill(self.total)

    def _runs(self, mode: int, at: IntLike) -> list[tuple[IntLike, Condition]]:
        """Where a thread's runs begin, and whether they exist; others repeat the last run."""
        k, tile, extent = self._k, self._config.tile, self._config.extents[mode]
        across, run = tile.across[mode], tile.run[mode]
        found: list[tuple[IntLike, Condition]] = []
        for rest in range(tile.rest(mode, extent)):
            start = (at + across * rest) * run
            if across * (rest + 1) * run <= extent:
                found.append((start, True))
            else:
                found.append((k.let(f"start_{'mn'[mode]}{rest}", minimum(start, extent - run)),
                              start < extent))
        return found

    def _from_runs(self, name: str, mode: int, side: BatchedSide, shared: Tensor) -> list[Tensor]:
        """An operand from each run's start, (neighbour, K). Words of four rows are (K in a word,
        word along K): four transposed ones are four rows."""
        starts, matrix = [start for start, _exists in self._starts[mode]], self._matrix
        if self._config.tile.words:
            words = upcast(Layout(side.box, side.held), _WORD)
            shared = self._k.shared(f"s{name}w", "int8x4", words, over=f"s{name}")
            if side.held[1] != 1:
                return [zipped_divide(shared[start // _WORD, _, matrix], _WORD) for start in starts]
        return [domain_offset((start, 0), shared[..., matrix]) for start in starts]

    def _fragments(self, name: str, mode: int, side: BatchedSide,
                   shared: Tensor) -> tuple[Tensor, Callable[[IntLike], None]]:
        """Registers (run, rest, step) for an operand, and what loads them for a turn along K."""
        k, tile, dt = self._k, self._config.tile, shared.engine.dtype
        run, rest = tile.run[mode], len(self._starts[mode])
        along_k, width = tile.loaded(mode, self._config.extents[mode], side.held, dt.bytes)
        step, element = (tile.step // _WORD, "int8x4") if tile.words else (tile.step, dt.name)
        order = (step, step * run, 1) if along_k else (1, run, run * rest)
        fragment = k.registers(f"tCr{name}", element, Layout((run, rest, step), order))
        parts = [k.pin(f"tCs{name}{r}", local_tile(domain_offset((0, self._part * step), x),
                                                   (run, step), (0, _)))
                 for r, x in enumerate(self._from_runs(name, mode, side, shared))]

        def load(turn: IntLike) -> None:
            for r, part in enumerate(parts):
                here = part[..., turn * tile.depth], fragment[_, r, _]
                k.copy(Vector(width), *(select(x, 1, 0) if along_k else x for x in here))
                if tile.words and not along_k:
                    transpose_words(k, here[1], here[1], f"word{name}{r}")
                if tile.words and dt.kind == "b":               # any byte but 0 is true
                    with k.loops((run, step)) as at:
                        word = here[1](*at)
                        k.assign(word, (((word & _LOW_BITS) + _LOW_BITS) | word) >> 7 & _ONES)

        return fragment, load

    def products(self, sA: Tensor, sB: Tensor) -> None:
        k, config, tile = self._k, self._config, self._config.tile
        (tCrA, load_a), (tCrB, load_b) = self._fragments("A", 0, config.a,
                                                         sA), self._fragments("B", 1, config.b, sB)
        with k.loop("turn", config.extents[2] // (tile.step * tile.depth)) as turn:
            load_a(turn)
            load_b(turn)
            with k.each(tile.step // _WORD if tile.words else tile.step) as at:
                k.gemm(Fma(config.a.conj, config.b.conj), self.total, tCrA[..., at],
                       tCrB[..., at])

    def store(self, sC: Tensor) -> None:
        k, config = self._k, self._config
        width = config.tile.stored(config.extents[1], config.c.held, sC.engine.dtype.bytes)
        held = sC[..., self._matrix, self._part]
        for r, (row, row_exists) in enumerate(self._starts[0]):
            for s, (column, column_exists) in enumerate(self._starts[1]):
                own = self.total[(_, _), r, s]
                target = tile_from((row, column), held, config.tile.run)
                with k.when(all_of(row_exists, column_exists)):
                    k.copy(Vector(width), select(own, 1, 0), select(target, 1, 0))


class _Whole:
    """Products of threads with whole matrices, each loaded and stored as one span."""

    def __init__(self, k: KernelBuilder, config: BatchedConfig):
        self._k, self._config = k, config
        self.total = k.registers("tCrC", config.accumulator, self._layout(config.c))
        k.fill(self.total)

    def _box(self, side: BatchedSide) -> Box:
        """The rows, columns and matrices of an operand that a thread has."""
        rows, columns, _matrices = side.box
        return rows, columns, self._config.tile.whole

    def _layout(self, side: BatchedSide) -> Layout:
        strides = packed_strides(self._box(side), side.order)
        return Layout(self._box(side), tuple(strides.get(q, 0) for q in range(3)))

    def _span(self, side: BatchedSide, shared: Tensor,
              registers: Tensor) -> tuple[Vector, Tensor, Tensor]:
        """How a thread's span is copied, where it is in shared memory, and in registers."""
        mine = local_tile(shared, self._box(side), (0, 0, self._k.thread))
        of_memory, of_registers = (coalesce(select(x, *side.order)) for x in (mine, registers))
        _elements, width = self._config.tile.spanned(side, shared.engine.dtype.bytes)
        return Vector(width), of_memory, of_registers

    def products(self, sA: Tensor, sB: Tensor) -> None:
        k, config, fragments = self._k, self._config, []
        for name, side, shared in (("A", config.a, sA), ("B", config.b, sB)):
            fragments.append(k.registers(f"tCr{name}", shared.engine.dtype.name,
                                         self._layout(side)))
            atom, of_memory, of_registers = self._span(side, shared, fragments[-1])
            k.copy(atom, of_memory, of_registers)
        tCrA, tCrB = fragments
        with k.loops((config.extents[2], config.tile.whole)) as (at, matrix):
            # rows and columns as ((row, column), 1, 1)
            own = group_modes(self.total[..., matrix], 0, 2)
            k.gemm(Fma(config.a.conj, config.b.conj), append(own, 3),
                   append(tCrA[_, at, matrix], 2), append(tCrB[_, at, matrix], 2))

    def store(self, sC: Tensor) -> None:
        atom, of_memory, of_registers = self._span(self._config.c, sC, self.total)
        self._k.copy(atom, of_registers, of_memory)


@cache
def gemm_batched(config: BatchedConfig) -> GeneratedKernel:
    """Generate the kernel; its matrices are A, B and C, and ``matrices`` is their number."""
    tile, (m, n, depth), sums = config.tile, config.extents, config.accumulator
    if depth % (tile.step * tile.depth):
        raise CodegenError(f"{config.name}: {tile} does not divide {config.extents}")
    k = builder(
        config,
        tile.threads,
        summary=f"C = alpha * A * B^T + beta * C with A ({m},{depth}), B ({n},{depth}), C ({m},{n}) for each matrix: "
        f"{tile}"
    )
    types = config.element, config.element_b, config.output
    declared = (side.declared(name, element, name == "C")
                for name, element, side in zip("ABC", types, config.sides, strict=True))
    tensors = k.tensors(*declared, batch=config.batch_modes)
    epilogue = Epilogue(k, config, sums, config.sums)
    count = k.integer("matrices", multiple=config.multiple)
    first = k.let("first", k.block_index() * tile.matrices)
    limit = k.let("limit", minimum(count - first, tile.matrices))
    A, B, C = (_Operand(k, side, tensor, tile.threads, first, limit)
               for side, tensor in zip(config.sides, tensors, strict=True))
    epilogue.load_scalars()

    k.comment("Matrices of the block to shared memory")
    sA, sB = (x.shared(f"s{x.name}", x.tensor.param.element)[..., 0] for x in (A, B))
    A.load(sA)
    B.load(sB)
    k.commit()
    k.wait(0)
    k.barrier()

    k.comment("Products: (runs, rest) of C for a thread")
    multiply = (_Whole if tile.whole else _Divided)(k, config)
    busy = k.thread < tile.multiplying if tile.multiplying < tile.threads else True
    with k.when(busy):
        multiply.products(sA, sB)
    epilogue.clear(multiply.total)
    k.barrier()
    sC = C.shared("sC", config.sums, parts=tile.depth, over="sA")
    with k.when(busy):
        multiply.store(sC)
    k.barrier()
    k.let_next_launch_begin()
    guard = C.guard
    summed = [k.pin(f"tCsC{part}", C.mine(C.in_shared(sC[..., part])))
              for part in range(tile.depth)]
    parked = _Parked(k, summed, lambda at: guard.at((0, at)))
    every: Any = None                               # matrix of the batch: the tile of C has several
    epilogue.store(parked, OutputTile(C.memory, C.mine, C.part_of, (m, n), every, guard))
    return k.build()
