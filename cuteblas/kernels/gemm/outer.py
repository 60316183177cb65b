"""``gemm_outer``: C = alpha A B^T + beta C with a short K, as fast as memory takes C.

Rows of C that are whole sectors long together are a *stretch*; all stretches begin at the same
place in a sector. A thread has one vector of each: its elements of B stay in registers, only the
row of A changes. Vectors of two rows use both rows of A; ends and gaps are written by elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    Fma,
    GeneratedKernel,
    KernelBuilder,
    TensorParam,
    Vector,
    static_extents,
)
from ...layout import Layout, Tensor, _, append, make_tensor
from ...layout import select as modes_of
from ...layout.symbolic import Condition, IntLike, all_of, ceil_div, equal, maximum, minimum, select
from ..common import DynamicPair, builder, operand, tile_from, tile_of_block
from ..epilogue import Epilogue, OutputTile
from .block import GemmConfig

SECTOR = 32
"""Bytes of memory that are written together."""

_BLOCKS = 4                          # that a multiprocessor has registers for


@dataclass(frozen=True)
class OuterTile:
    """How the work of a block is divided; ``width`` is a thread's vector, along C's memory."""

    k: int
    width: int
    threads: int = 256

    def __str__(self) -> str:
        return f"K of {self.k}, {self.threads} threads side by side with vectors of {self.width}"


@dataclass(frozen=True)
class OuterConfig(GemmConfig):
    """The configuration of a ``gemm_outer`` kernel. ``whole``: every vector is of one row, and
    exists or not; ``dense``: rows of C have no gaps."""

    tile: OuterTile
    whole: bool = False
    dense: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.triangle or self.split_k or self.grouped or self.modes != (1, 1, 1) or self.gate is not None:
            raise CodegenError(f"outer products need plain modes and write all of C, got {self}")

    @property
    def sums(self) -> str:
        """The type of sums: of short integers that of registers; of bool a count of products."""
        kind = dtype(self.scalars)
        return "int32" if kind.kind in "iub" and kind.bytes < dtype("int32").bytes else kind.name

    @property
    def sector(self) -> int:
        """Elements of C that are whole vectors and whole sectors."""
        return max(self.tile.width, SECTOR // dtype(self.output).bytes)

    @property
    def joined(self) -> bool:
        """Whether vectors of two rows are written at once: no gap, and no other matrix."""
        return self.dense and not (self.epilogue
                                   and (self.epilogue.operands or self.epilogue.outputs))

    @property
    def name(self) -> str:
        t, how = self.tile, f"{'_whole' if self.whole else ''}{'_dense' if self.dense else ''}"
        return f"gemm_outer_{self.types}_k{t.k}_v{t.width}_t{t.threads}{how}_{self.traits}"


class _Vector:
    """A thread's vector ``v`` of a stretch, with the elements of B that belong to it."""

    def __init__(self, k: KernelBuilder, config: OuterConfig,
                 matrices: tuple[Tensor, Tensor, Tensor], extents: DynamicPair,
                 v: IntLike):
        self.k, self.config, self._extents = k, config, extents
        self._a, self._b, self._c = matrices
        width, depth = config.tile.width, config.tile.k
        pitch = self._pitch = self._c.stride[0]
        k.comment(
            "The row, counted from the first of a stretch, and the column in which this thread's vector of it begins"
        )
        if config.whole:
            self._first, self._column = k.let("row", v // (pitch // width)), k.let("column", v % (pitch // width) * width)
        else:
            # It may be of two rows, also of the last one before the stretch: no row is shorter than
            # a vector.
            self._memory = k.lines("C_vectors", self._c.engine, config.output, SECTOR)
            self._begin = k.let("begin", self._memory.place(self._c(0, 0)))
            before = k.let("before", maximum(pitch - self._begin % config.sector, 0))
            after = k.let("after", before + v * width)
            self._first, self._column = k.let("row", after // pitch - 1), k.let("column", after % pitch)
            self._of_row = k.let("of_row", pitch - self._column)
            self._crosses = k.let("crosses", select(self._of_row < width, 1, 0))

        k.comment("Its elements of B, the same in all stretches")
        self._of_b = k.registers("tCrB", config.sums, (width, depth))
        if config.whole:
            run = tile_from((self._column, 0), self._b, (width, depth))
            self._load("tBrB", run, self._column < extents[1], self._of_b, config.b.width)
        else:
            with k.each(width) as e:
                _m, n = self._place(0, e)
                row = tile_from((n, 0), self._b, (1, depth))
                self._load("tBrB", row, n < extents[1], _element(self._of_b, e))

    def _later(self, e: IntLike) -> Condition:
        return self._of_row - 1 < e

    def _place(self, m: IntLike, e: IntLike) -> DynamicPair:
        """The row and the column of an element, where the vector begins in a row."""
        return m + select(self._later(e), 1, 0), self._column + e - select(
            self._later(e), self._pitch, 0
        )

    def _load(self, name: str, source: Tensor, exists: Condition, target: Tensor,
              width: int = 1) -> None:
        k, extents = self.k, static_extents(source)
        loaded = k.registers(name, source.engine.dtype.name, extents)
        k.copy(Vector(width), source, loaded, when=exists)
        k.fill(target, lambda *at: k.convert(loaded(*at), target.engine.dtype.name))

    def _of_a(self, name: str, m: IntLike) -> Tensor:
        of_a = self.k.registers(f"tCr{name}", self.config.sums, (1, self.config.tile.k))
        row = tile_from((m, 0), self._a, (1, self.config.tile.k))
        self._load(f"tAr{name}", row, all_of(m > -1, m < self._extents[0]), of_a)
        return of_a

    def _multiply(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        k, (count, depth) = self.k, static_extents(b)
        sums = make_tensor(total.engine, ((1, count), 1, 1))
        with k.each(depth) as step:
            k.gemm(Fma(self.config.a.conj, self.config.b.conj), sums,
                   append(a[_, step], 2), append(b[_, step], 2))

    def write(self, epilogue: Epilogue, s: IntLike, rows: IntLike, item: IntLike) -> None:
        """Compute and write this vector of stretch ``s``, of ``rows`` rows."""
        k, tile, (M, N) = self.k, self.config.tile, self._extents
        width, m = tile.width, k.let("m", s * rows + self._first)
        total = k.registers("tCrC", self.config.sums, (width, 1))
        k.fill(total)

        def store(sums: Tensor, place: DynamicPair,
                  memory: Tensor | None = None) -> None:
            """Write a row's sums, to memory that is provably aligned."""
            def mine(matrix: Tensor) -> Tensor:
                return modes_of(tile_from(place, matrix, (1, static_extents(sums)[0])), 1, 0)

            single = sums is not total
            epilogue.clear(sums)
            epilogue.store(sums, OutputTile(memory or mine(self._c), lambda part: part, mine,
                                            (M, N), item, single=single))

        if self.config.whole:
            with k.when(all_of(m < M, self._column < N)):
                self._multiply(total, self._of_a("A", m), self._of_b)
                store(total, (m, self._column))
            return
        two = equal(self._crosses, 1)
        self._multiply(total, self._of_a("A", m), self._of_b)
        with k.when(two):
            next_row = self._of_a("N", m + 1)
            with k.each(width) as e, k.when(self._later(e)):
                k.fill(_element(total, e))
                self._multiply(_element(total, e), next_row, _element(self._of_b, e))
        last, end = (m + self._crosses, 0) if self.config.joined else (m, self._column + (width - 1))
        with k.when(all_of(m > -1, last < M, end < N)):
            place = self._begin + m * self._pitch + self._column
            store(total, (m, self._column), self._memory.run(place, Layout((width, 1)),
                                                             whole=width))
        with k.otherwise(), k.when(all_of(m < M, select(two, 0, self._column) < N)):
            k.comment(
                "Single elements, loaded and multiplied anew: registers are for vectors that exist"
            )
            with k.loop("e", width, unroll=False) as e:
                i, j = (k.let(name, x) for name, x in zip("ij", self._place(m, e), strict=True))
                with k.when(all_of(i > -1, i < M, j < N)):
                    one, a, b = (k.registers(f"tEr{name}", self.config.sums, (1, 1))
                                 for name in "CAB")
                    k.fill(one)
                    with k.loop("step", tile.k, unroll=False) as step:
                        self._load("tArE", tile_from((i, step), self._a, (1, 1)), True, a)
                        self._load("tBrE", tile_from((j, step), self._b, (1, 1)), True, b)
                        self._multiply(one, a, b)
                    store(one, (i, j))


def _element(fragment: Tensor, e: IntLike) -> Tensor:
    return make_tensor(fragment.engine + e, (1, *fragment.shape[1:]), fragment.stride)


@cache
def gemm_outer(config: OuterConfig) -> GeneratedKernel:
    """Generate the kernel; a stretch is ``rows`` of C, ``length`` elements, whole sectors. A block
    writes its part of ``stretches``."""
    tile, width, (element_a, element_b) = config.tile, config.tile.width, config.elements
    k = builder(
        config,
        tile.threads,
        min_blocks=_BLOCKS,
        summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {config.types}, {tile}"
    )
    of_c = TensorParam("C", "mn", config.output, ("n" if config.dense else None, 1),
                       width if config.whole else 1, True, lowest=0)
    A, B, C = k.tensors(operand("A", "mk", element_a, config.a),
                        operand("B", "nk", element_b, config.b), of_c, modes="mnk",
                        batch=config.batch_modes)
    epilogue = Epilogue(k, config, config.scalars, config.sums)
    rows, length = k.integer("rows", lo=1), k.integer("length", lo=1, multiple=config.sector)
    of_block = k.integer("stretches", lo=1)
    M, N, pitch = k.extent("m"), k.extent("n"), C.at().stride[0]
    count = k.let("count", ceil_div(M * pitch + (0 if config.whole else config.sector - 1), length))
    part, group, item = tile_of_block(k, (length // width, count), (tile.threads, of_block),
                                      config.batch_modes > 0)
    v = k.let("v", part * tile.threads + k.thread)
    with k.when(v < length // width):
        epilogue.load_scalars()
        vector = _Vector(k, config, (A.at(item, (M, tile.k)), B.at(item, (N, tile.k)), C.at(item)),
                         (M, N), v)
        k.let_next_launch_begin()
        k.comment("Stretch by stretch")
        first = k.let("first", group * of_block)
        with k.loop("s", minimum(first + of_block, count), start=first, unroll=False) as s:
            vector.write(epilogue, s, rows, item)
    return k.build()
