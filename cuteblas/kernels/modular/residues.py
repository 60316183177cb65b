"""``modular_residues``: float64 or complex128 operands as residues, for products of bytes.

Rows are scaled by a power of two and rounded to integers of up to 62 bits; a plane has residues
modulo one number, in signed bytes along K. Complex elements have three planes a modulus: of both
parts and of their sum. Warps multiply bytes of integers with powers of 256 modulo each number, as
matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from ...codegen import (
    CpAsync,
    GeneratedKernel,
    KernelBuilder,
    TiledCopy,
    Value,
    Vector,
    choose,
)
from ...codegen.mma import SIGNED_BYTES
from ...layout import ComposedLayout, Layout, Swizzle, _
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, equal
from ..common import (
    WARP,
    Pair,
    builder,
    existing,
    numbers_of,
    part_of_tile,
    parts_of,
    unravel,
    vectors_along,
)
from ..passes import blocks_of_two
from .survey import (
    GROUPS,
    LANES,
    MOST,
    THREADS,
    WORD,
    ModularOperand,
    count_moduli,
    groups_of_lanes,
    load_choice,
    plane_rows,
    product_of_moduli,
)

K_MULTIPLE = 32
"""Bytes of a row of residues come in multiples of this."""

_NUMBERS = 8                        # of elements of a thread
_ROWS = 16                          # that a block reads where rows are across K: whole lines
_MODULI = 8                         # by which a matrix product multiplies
_EACH = _MODULI // LANES           # whose residues a lane gets


def planes_of(element: str) -> int:
    return 2 * parts_of(element) - 1


class ResiduesOperand(ModularOperand):
    """How an operand is read and by whom, on its way through shared memory."""

    @property
    def runs(self) -> int:
        """Runs along K, of a word of residues each, of a thread in a row."""
        return _NUMBERS // parts_of(self.element) // WORD

    @property
    def worker(self) -> TiledCopy:
        """Who has which elements of rows: each warp those of one."""
        return vectors_along(1, (THREADS // WARP, WARP), WORD)

    @property
    def bringer(self) -> TiledCopy:
        """Who brings which elements into shared memory: neighbours along what is contiguous."""
        along = (WARP if self.k_major else _ROWS // self.x.width)
        threads = (THREADS // along, along) if self.k_major else (along, THREADS // along)
        return vectors_along(int(self.k_major), threads, self.x.width)

    @property
    def held(self) -> Layout | ComposedLayout:
        """Rows and K in shared memory: rows across K lie side by side, swizzled for writes and
        reads."""
        if self.k_major:
            return Layout(self.tile, (self.tile[1], 1))
        width, run = self.x.width.bit_length() - 1, WORD.bit_length() - 1
        return ComposedLayout(Swizzle(3, width, _ROWS.bit_length() - 1 + run - width), 0,
                              Layout(self.tile, (1, _ROWS)))

    @property
    def tile(self) -> Pair:
        """Rows and elements along K of a block."""
        rows, depth = self.worker.tile
        return rows if self.k_major else _ROWS, depth * self.runs

    def blocks(self, rows: int, depth: int) -> int:
        return -(-rows // self.tile[0]) * -(-depth // self.tile[1])

    @property
    def tag(self) -> str:
        return f"{self.access}{'c' if self.x.conj else ''}_b{self.batch_modes}"


@dataclass(frozen=True)
class ResiduesConfig:
    """The configuration of ``modular_residues``; the first blocks have the first operand."""

    operands: tuple[ResiduesOperand, ...]
    wide: bool = False

    @property
    def name(self) -> str:
        return "_".join(("modular_residues", *(x.tag for x in self.operands))) + "_wide" * self.wide


@cache
def residues(config: ResiduesConfig) -> GeneratedKernel:
    """Generate the kernel. Of operand 0 or 1, X has elements, Q squared norms of rows, D their
    lowest bits; E takes powers of two, ``matrix_rows`` a matrix; P takes planes in rows of
    ``pitch`` words: row, matrix, plane. The first ``blocks_0`` blocks have operand 0."""
    element = config.operands[0].element
    planes = planes_of(element)
    few = config.wide or planes > 1 or any(x.batch_modes or (not x.k_major and x.x.width == 1)
                                           for x in config.operands)
    k = builder(
        config,
        THREADS,
        arch=SIGNED_BYTES.arch,
        min_blocks=2 if few else 3,
        summary=f"{element} rows as residues of integers, {planes} planes of signed bytes for each modulus\n"
        f"threads {config.operands[0].worker.threads}, each runs of {WORD} elements along K"
    )
    words = k.pointer("words", "uint32")
    pitch = k.integer("pitch", multiple=K_MULTIPLE // WORD)
    first = k.integer("blocks_0") if len(config.operands) > 1 else None
    block = k.block_index()
    chosen = load_choice(k, words)
    multipliers = _Multipliers(k)
    count = count_moduli(k, chosen)
    product = _Product(pitch, chosen, count, multipliers)
    blocks = blocks_of_two(k, block, first, "block_of_1")
    for own, side, each in zip(blocks, "01", config.operands, strict=False):
        _residues(k, side, each, own, product)
    return k.build()


class _Multipliers:
    """A lane's numbers of a block of moduli. ``weights`` are (word of an integer, lane of a
    group): a row of bytes has an integer of each lane, of which one alone is not multiplied with
    zeros. ``starts``, ``inverses`` and ``minus``: what sums begin with, 1 / p and -p."""

    def __init__(self, k: KernelBuilder):
        self._k, self._own = k, k.registers("own_weights", "uint32", 2)
        self._group, self._lane = groups_of_lanes(k)
        self.weights = k.registers("tCrB", "uint32", (2, LANES))
        self.starts, self.inverses, self.minus = (
            k.registers(name, kind, _EACH) for name, kind in
            (("starts", "int32"), ("inverses", "float32"), ("minus", "int32")))

    def load(self, moduli: IntLike) -> None:
        k = self._k
        k.do("residue_weights", self._group + _MODULI * moduli,
             *(self._own(word) for word in range(2)))
        k.fill(self.weights, lambda word, lane: choose(equal(self._lane, lane), self._own(word), 0,
                                                       "uint32"))
        for i in range(_EACH):
            k.do("residue_factors", _EACH * self._lane + i + _MODULI * moduli, self.starts(i),
                 self.inverses(i), self.minus(i))


@dataclass(frozen=True)
class _Product:
    """What both operands share: words of a row, the choice, the number of moduli."""

    pitch: IntLike
    chosen: Value
    count: Expr
    multipliers: _Multipliers


def _residues(k: KernelBuilder, side: str, config: ResiduesOperand, block: IntLike,
              product: _Product) -> None:
    element, worker, runs, (rows, depth) = config.element, config.worker, config.runs, config.tile
    pitch, count, by = product.pitch, product.count, product.multipliers
    parts, planes, lines = parts_of(element), planes_of(element), rows // worker.tile[0]
    (M, K), (X,) = config.declared(k, side)
    squares_of, lowest_of = (k.pointer(f"Q{side}", "float64", alignment=8),
                             k.pointer(f"D{side}", "int32", alignment=4))
    exponents = k.pointer(f"E{side}", "int32", const=False, alignment=4)
    written_to, matrix_rows = k.pointer(f"P{side}", "uint32", const=False), k.integer(f"matrix_rows_{side}")
    matrices = prod(X.batch, start=1)
    tiles, steps = k.let("tiles", ceil_div(M, rows)), k.let("steps", ceil_div(pitch, depth // WORD))
    inner, others = (steps, tiles) if config.k_major else (tiles, steps)
    first, above = unravel(k, block, inner, ("first", "above"))
    second, item = unravel(k, above, others, ("second", "item"), bool(X.batch))
    at = (second, first) if config.k_major else (first, second)

    brought = part_of_tile(config.bringer, (rows, depth), at, k.thread)
    there = existing(k, "tBcX", brought, (M, K))
    sX = k.shared(f"sX{side}", element, config.held)
    k.copy(CpAsync(config.x.width), k.pin("tBgX", brought(X.at(item))),
           config.bringer.partition(sX, k.thread), guard=there)
    k.commit()
    tXsX = k.pin("tXsX", worker.partition(sX, k.thread))               # (elements, rows, runs)
    k.comment("The powers of two that scale rows; the first blocks along K leave them")
    scales = k.shared(f"scales{side}", "int32", rows)
    with k.when(k.thread < rows):
        squares, lowest = k.declare("squares", "float64", 0.0), k.declare("lowest", "int32", 0)
        row = k.let("row", at[0] * rows + k.thread)
        flat = k.let("flat", row + matrix_rows * item)
        with k.when(row < M):
            k.load(squares, squares_of[flat])
            k.load(lowest, lowest_of[flat])
        most, _rest = product_of_moduli(k, count)
        norms = k.call("most_of_norms", most)
        scale = k.let("scale", k.call("row_exponent", squares, lowest, product.chosen, norms))
        with k.when(all_of(row < M, equal(at[1], 0))):
            k.store(exponents[flat], scale)
        k.store(scales(k.thread), scale)
    k.wait(0)
    k.barrier()
    read = k.registers("tXrX", element, (WORD, runs))
    integers = k.registers("integers", "int64", (WORD, runs, parts))
    # (number of a pair, word, pair, run)
    pairs = k.registers("tCrA", "uint32", (2, 2, WORD // 2, runs))
    # (modulus, number of a pair, pair)
    sums = k.registers("tCrC", "int32", (_EACH, 2, WORD // 2))
    written = k.registers("tCrP", "uint32", (LANES, _EACH))
    writer = TiledCopy(Layout((worker.tile[0], GROUPS, LANES), (WARP, LANES, 1)),
                       (1, LANES, _EACH))

    # (words and moduli, rows, runs, blocks of moduli, ...)
    mine_of_planes = part_of_tile(writer, (rows, depth // WORD, MOST + 1), (*at, 0), k.thread)
    mP = plane_rows(written_to, (M, pitch, MOST + 1, planes, matrices))
    tPgP = k.pin("tPgP", mine_of_planes(mP[..., item]))
    exists = existing(k, "tPcP", mine_of_planes, (M, pitch, MOST + 1), (M, pitch, count))

    def number_of(plane: int, i: IntLike, run: IntLike) -> Value:
        return integers(i, run, 0) + integers(i, run, 1) if plane == 2 else integers(i, run, plane)

    k.let_next_launch_begin()
    with k.loop("line", lines, unroll=False) as line:
        k.copy(Vector(config.x.width if config.k_major else 1), tXsX[_, line, _], read)
        scale = k.load(k.declare("scale", "int32"),
                       scales(k.thread // WARP + worker.tile[0] * line))
        factor = k.let("factor", k.call("power_of_two_f64", scale))
        with k.loops((WORD, runs)) as (i, run):
            for part, number in enumerate(numbers_of(read(i, run), element, conj=config.x.conj)):
                k.assign(integers(i, run, part), k.call("scaled_integer", number, factor))

        for plane in range(planes):
            k.comment(f"Plane {plane} of each modulus")
            with k.loops((2, WORD // 2, runs)) as (i, pair, run):
                k.do("signed_bytes", number_of(plane, i + 2 * pair, run), pairs(i, 0, pair, run),
                     pairs(i, 1, pair, run))
            with k.loop("moduli", ceil_div(count, _MODULI), unroll=False) as moduli:
                by.load(moduli)
                with k.each(runs) as run:
                    with k.each(LANES) as lane:
                        k.fill(sums, lambda m, _i, _pair: by.starts(m))
                        with k.each(WORD // 2) as pair:
                            k.do(SIGNED_BYTES.function, sums(0, 0, pair), pairs(0, 0, pair, run),
                                 by.weights(0, lane), of=SIGNED_BYTES.element)
                        with k.each(_EACH) as m:
                            found = (k.call("residue_bits", sums(m, i, pair), by.inverses(m),
                                            by.minus(m)) for pair in range(WORD // 2)
                                     for i in range(2))
                            k.assign(written(lane, m), k.call("low_bytes", *found))
                    k.copy(Vector(LANES), written, tPgP[(0, _, _), line, run, moduli, plane],
                           guard=exists[(0, _, _), line, run, moduli])
