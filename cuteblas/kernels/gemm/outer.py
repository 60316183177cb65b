"""``gemm_outer``: C = alpha A B^T + beta C with a short K, as fast as memory takes C: every element type, every order of A and B.

An outer product of vectors, or the sum of up to eight, is little but writing C, so the work is divided as C lies in memory. So many
rows of C as are whole sectors long follow each other as stretches of memory, all of which begin at the same place within a sector,
whether rows do or not. A thread has one vector of every stretch that its block writes: the elements of B that belong to it are the
same in all of them, and are loaded into registers once; from stretch to stretch only the row of A changes. So every store is an
aligned vector, and warps write whole sectors, wherever rows begin.

A vector may be of two rows, where one ends and the next begins: it is computed with both rows of A. Elements are written one by one
where C begins and ends within a vector, and around gaps between rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.builder import KernelBuilder
from ...codegen.copies import Vector
from ...codegen.dtypes import dtype
from ...codegen.engine import CodegenError
from ...codegen.fma import Fma
from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import TensorParam
from ...layout import Layout, Tensor, _, domain_offset, local_tile, make_layout
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, equal, less, maximum, minimum, select
from ..common import operand, tile_of_block
from ..epilogue import Epilogue
from .block import GemmConfig

__all__ = ["SECTOR", "OuterConfig", "OuterTile", "gemm_outer"]

SECTOR = 32
"""Bytes of memory that are written together."""

_BLOCKS = 4                          # that a multiprocessor has registers for


@dataclass(frozen=True)
class OuterTile:
    """How the work of a block is divided.

    Attributes
    ----------
    k : int
        The extent of K.
    width : int
        Elements of a vector of C that a thread writes.
    threads : int
        Threads of a block: neighbours along C's memory.
    """

    k: int
    width: int
    threads: int = 256

    def __str__(self) -> str:
        return f"K of {self.k}, {self.threads} threads side by side with vectors of {self.width}"


@dataclass(frozen=True)
class OuterConfig(GemmConfig):
    """Everything that a ``gemm_outer`` kernel is specialised on: see :class:`~cuteblas.kernels.gemm.block.GemmConfig`.

    Attributes
    ----------
    tile : OuterTile
        The division of the work.
    whole : bool
        Whether every vector is of one row, and exists as a whole or not at all.
    dense : bool
        Whether rows of C follow each other without gaps.
    """

    tile: OuterTile
    whole: bool = False
    dense: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.triangle or self.split_k or self.grouped or self.modes != (1, 1, 1) or self.gate is not None:
            raise CodegenError(f"outer products have plain modes and write all of C, got {self}")

    @property
    def sums(self) -> str:
        """The type of sums."""
        return self.accumulator or dtype(self.element).accumulator

    @property
    def sector(self) -> int:
        """Elements of C that are whole vectors and whole sectors."""
        return max(self.tile.width, SECTOR // dtype(self.output).bytes)

    @property
    def joined(self) -> bool:
        """Whether vectors of two rows are written at once: memory between them is C's, and no other matrix is read or written."""
        return self.dense and not (self.epilogue and (self.epilogue.operands or self.epilogue.outputs))

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        t, how = self.tile, f"{'_whole' if self.whole else ''}{'_dense' if self.dense else ''}"
        return f"gemm_outer_{self.types}_k{t.k}_v{t.width}_t{t.threads}{how}_{self.traits}"


class _Vector:
    """The vector of a stretch that a thread has, with the elements of B that belong to it.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    config : OuterConfig
        What it is specialised on.
    matrices : tuple of Tensor
        A, B and C of the block.
    extents : tuple of IntLike
        M and N.
    v : IntLike
        Which vector of a stretch it is.
    """

    def __init__(self, k: KernelBuilder, config: OuterConfig, matrices: tuple[Tensor, Tensor, Tensor],
                 extents: tuple[IntLike, IntLike], v: IntLike):
        self.k, self.config, self._extents = k, config, extents
        self._a, b, self._c = matrices
        width, depth, sums = config.tile.width, config.tile.k, config.sums
        self._pitch: IntLike = self._c.layout.stride[0]
        k.comment("The row, counted from the first of a stretch, and the column in which this thread's vector of it begins")
        if config.whole:
            columns = self._pitch // width
            self._row, self._column = k.let("row", v // columns), k.let("column", v % columns * width)
        else:
            # It may be of two rows, also of the last one before the stretch: no row is shorter than a vector.
            self._memory = k.lines("C_vectors", self._c.engine, config.output, SECTOR)
            self._begin = k.let("begin", self._memory.place(self._c(0, 0)))
            before = k.let("before", maximum(self._pitch - self._begin % config.sector, 0))
            after = k.let("after", before + v * width)
            self._row, self._column = k.let("row", after // self._pitch - 1), k.let("column", after % self._pitch)
            self._crosses = k.flag("crosses", less(self._pitch - width, self._column))

        k.comment("Its elements of B, the same in all stretches")
        self._raw = k.registers("tArA", config.element, Layout((1, depth, 1 if config.whole else 2)))
        raw = k.registers("tBrB", b.engine.dtype.name, Layout((width, depth)))
        if config.whole:
            k.copy(Vector(config.b.width), local_tile(domain_offset((self._column, 0), b), (width, depth), (0, 0)), raw,
                   when=less(self._column, extents[1]))
        else:
            with k.loops((width, depth)) as (e, step):
                n = self._place(0, e)[1]
                k.copy(Vector(1), b(n, step), raw(e, step), when=less(n, extents[1]))
        self._of_a, self._of_b = k.registers("tCrA", sums, Layout((1, 1, depth))), k.registers("tCrB", sums, Layout((width, depth)))
        self.total = k.registers("tCrC", sums, Layout((width, 1)))
        with k.loops((width, depth)) as at:
            k.assign(self._of_b(*at), k.convert(raw(*at), sums))

    def _later(self, e: IntLike) -> Expr | bool:
        """Whether an element is of the next row."""
        return less(self._pitch - 1, self._column + e)

    def _place(self, m: IntLike, e: IntLike) -> tuple[IntLike, IntLike]:
        """The row and the column of an element of the vector that begins in a row."""
        later = self._later(e)
        return m + select(later, 1, 0), self._column + e - select(later, self._pitch, 0)

    def _load(self, m: IntLike, later: int = 0, when: Expr | bool = True) -> None:
        """A row of A, if it exists, for the elements of this row or the next one."""
        row = local_tile(domain_offset((m, 0), self._a), (1, self.config.tile.k), (0, 0))
        self.k.copy(Vector(1), row, self._raw[_, _, later], when=all_of(when, less(-1, m), less(m, self._extents[0])))

    def _multiply(self, first: IntLike, count: int, later: int = 0) -> None:
        """Sums of so many elements, from one on, with a row of A that is loaded."""
        k, config, depth = self.k, self.config, self.config.tile.k
        total = Tensor(self.total.engine + first, Layout(((1, count), 1, 1)))
        of_b = Tensor(self._of_b.engine + first, Layout((count, 1, depth), (1, 1, config.tile.width)))
        k.fill(total)
        with k.loops((depth,)) as (step,):
            k.assign(self._of_a(0, 0, step), k.convert(self._raw(0, step, later), config.sums))
            k.gemm(Fma(config.a.conj, config.b.conj), total, self._of_a[_, _, step], of_b[_, _, step])

    def write(self, epilogue: Epilogue, s: IntLike, rows: IntLike, item: IntLike) -> None:
        """Compute and write that of a stretch of so many rows."""
        k, width, (M, N) = self.k, self.config.tile.width, self._extents
        m = k.let("m", s * rows + self._row)

        def store(first: IntLike, count: int, place: tuple[IntLike, IntLike], memory: Tensor | None = None) -> None:
            """Elements of a row from one on, in memory that is provably aligned."""
            def mine(matrix: Tensor) -> Tensor:
                part = local_tile(domain_offset(place, matrix), (1, count), (0, 0))
                return part.map_domain(lambda layout: make_layout(layout[1], layout[0]))

            total = Tensor(self.total.engine + first, Layout((count, 1)))
            epilogue.store(total, lambda part: part, memory or mine(self._c), None, (M, N), item, mine, single=count == 1)

        if self.config.whole:
            with k.when(all_of(less(m, M), less(self._column, N))):
                self._load(m)
                self._multiply(0, width)
                epilogue.clear(self.total)
                store(0, width, (m, self._column))
            return
        two = equal(self._crosses, 1)
        self._load(m)
        self._load(m + 1, 1, two)
        self._multiply(0, width)
        with k.when(two), k.loops((width,)) as (e,), k.when(self._later(e)):
            self._multiply(e, 1, 1)
        epilogue.clear(self.total)
        last, inside = (m + self._crosses, True) if self.config.joined else (m, less(self._column + width - 1, N))
        exists = k.flag("exists", all_of(less(-1, m), less(last, M), inside))
        with k.when(equal(exists, 1)):
            place = self._begin + m * self._pitch + self._column
            store(0, width, (m, self._column), self._memory.run(place, Layout((width, 1)), whole=width))
        with k.otherwise(), k.loops((width,)) as (e,):
            i, j = self._place(m, e)
            with k.when(all_of(less(-1, i), less(i, M), less(j, N))):
                store(e, 1, (i, j))


@cache
def gemm_outer(config: OuterConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : OuterConfig
        What the kernel is specialised on.

    Returns
    -------
    GeneratedKernel
        Its matrices are A, B and C; a stretch is ``rows`` of C, ``length`` elements of memory, whole sectors; a block writes its
        part of so many ``stretches``.

    Raises
    ------
    CodegenError
        If a vector width is not provable.
    """
    tile, width, (element_a, element_b) = config.tile, config.tile.width, config.elements
    k = KernelBuilder(config.name, tile.threads, min_blocks=_BLOCKS, wide=config.wide,
                      summary=f"C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): {config.types}, {tile}")
    of_c = TensorParam("C", "mn", config.output, ("n" if config.dense else None, 1), width if config.whole else 1, True, lowest=0)
    A, B, C = k.tensors(operand("A", "mk", element_a, config.a), operand("B", "nk", element_b, config.b), of_c,
                        modes="mnk", batch=config.batch_modes)
    epilogue = Epilogue(k, config.sums, config.output, config.c, config.alpha, config.beta, config.epilogue)
    rows, length = k.integer("rows", lo=1), k.integer("length", lo=1, multiple=config.sector)
    of_block = k.integer("stretches", lo=1)
    M, N = k.extent("m"), k.extent("n")
    before = 0 if config.whole else config.sector - 1
    count = k.let("count", ceil_div(M * C.strides[0] + before, length))
    part, group, item = tile_of_block(k, (length // width, count), (tile.threads, of_block), config.batch_modes > 0)
    v = k.let("v", part * tile.threads + k.thread)
    k.stop(less(length // width - 1, v))
    epilogue.load_scalars()
    vector = _Vector(k, config, (A.at(item, (M, tile.k)), B.at(item, (N, tile.k)), C.at(item)), (M, N), v)
    k.let_next_launch_begin()
    k.comment("Stretch by stretch")
    first = k.let("first", group * of_block)
    with k.loop("s", minimum(first + of_block, count), start=first, unroll=False) as s:
        vector.write(epilogue, s, rows, item)
    return k.build()
