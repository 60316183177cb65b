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
    Element,
    GeneratedKernel,
    GlobalTensor,
    KernelBuilder,
    Pointer,
    Term,
    TiledCopy,
    Value,
    Vector,
    choose,
)
from ...codegen.mma import SIGNED_BYTES
from ...layout import ComposedLayout, Layout, Swizzle, _
from ...layout.symbolic import Condition, Expr, IntLike, all_of, ceil_div, equal, maximum
from ..common import (
    ELEMENTS,
    WARP,
    Pair,
    builder,
    existing,
    numbers_of,
    operand,
    part_of_tile,
    parts_of,
    unravel,
    vectors_along,
)
from .survey import (
    GROUPS,
    LANES,
    MOST,
    NORMS,
    THREADS,
    WORD,
    ModularOperand,
    count_moduli,
    declare_state,
    groups_of_lanes,
    load_choice,
    plane_rows,
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
    """How an operand is read and by whom; rows not along K are turned in shared memory."""

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
        """Who brings which elements into shared memory."""
        along = _ROWS // self.x.width
        return vectors_along(0, (along, THREADS // along), self.x.width)

    @property
    def turned(self) -> ComposedLayout:
        """Rows and K in shared memory, rows side by side, swizzled for writes and reads."""
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
    words, numbers = declare_state(k)
    pitch = k.integer("pitch", multiple=K_MULTIPLE // WORD)
    sides = [_Side.declared(k, i, x) for i, x in enumerate(config.operands)]
    blocks = [k.integer(f"blocks_{i}") for i in range(len(sides) - 1)]
    block = k.block_index()
    chosen = load_choice(k, words)
    multipliers = _Multipliers(k)
    count = count_moduli(k, chosen)
    product = _Product(pitch, numbers[NORMS // 8], chosen, count, multipliers)
    with k.when(block < blocks[0] if blocks else True), k.scratch():
        _residues(k, sides[0], block, product)
    if blocks:
        with k.otherwise():
            _residues(k, sides[1], k.let("block_of_1", maximum(block - blocks[0], 0)), product)
    return k.build()


@dataclass(frozen=True)
class _Side:
    config: ResiduesOperand
    letter: str
    x: GlobalTensor
    squares: Pointer
    lowest: Pointer
    exponents: Pointer
    planes: Pointer
    matrix_rows: IntLike

    @classmethod
    def declared(cls, k: KernelBuilder, number: int, config: ResiduesOperand) -> _Side:
        side = str(number)
        (x,) = k.tensors(operand(f"X{side}", "mk", config.element, config.x), modes="mk",
                         batch=config.batch_modes, suffix=side)
        return cls(config, side, x, k.pointer(f"Q{side}", "float64", alignment=8),
                   k.pointer(f"D{side}", "int32", alignment=4),
                   k.pointer(f"E{side}", "int32", const=False, alignment=4),
                   k.pointer(f"P{side}", "uint32", const=False), k.integer(f"matrix_rows_{side}"))


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
    """What both operands share: words of a row, the most that norms may be, the choice, moduli."""

    pitch: IntLike
    norms: Element
    chosen: Value
    count: Expr
    multipliers: _Multipliers


def _residues(k: KernelBuilder, side: _Side, block: IntLike, product: _Product) -> None:
    config, X, pitch, count, by = side.config, side.x, product.pitch, product.count, product.multipliers
    element, worker, runs, (rows, depth) = config.element, config.worker, config.runs, config.tile
    parts, planes, lines = parts_of(element), planes_of(element), rows // worker.tile[0]
    (M, K), matrices = (k.extent(f"{mode}{side.letter}") for mode in "mk"), prod(X.batch, start=1)
    tiles, steps = k.let("tiles", ceil_div(M, rows)), k.let("steps", ceil_div(pitch, depth // WORD))
    inner, others = (steps, tiles) if config.k_major else (tiles, steps)
    first, above = unravel(k, block, inner, ("first", "above"))
    second, item = unravel(k, above, others, ("second", "item"), bool(X.batch))
    at = (second, first) if config.k_major else (first, second)
    mine, brought = (part_of_tile(who, (rows, depth), at, k.thread)     # (elements, rows, runs)
                     for who in (worker, config.bringer))

    def scale_of(row: IntLike, first: Condition) -> Term:
        """The power of two that scales a row; the first thread of its block leaves it."""
        norms, squares, lowest = (k.declare(name, kind)
                                  for name, kind in (("norms", "float64"), ("squares", "float64"),
                                                     ("lowest", "int32")))
        k.load(norms, product.norms)
        k.assign(squares, 0.0)
        k.assign(lowest, 0)
        flat = k.let("flat", row + side.matrix_rows * item)
        with k.when(row < M):
            k.load(squares, side.squares[flat])
            k.load(lowest, side.lowest[flat])
        scale = k.let("scale", k.call("row_exponent", squares, lowest, product.chosen, norms))
        with k.when(all_of(row < M, first)):
            k.store(side.exponents[flat], scale)
        return scale

    mX, exists_x = X.at(item), existing(k, "tXcX", mine, (M, K))
    if config.k_major:
        tXgX = k.pin("tXgX", mine(mX))
    else:
        sX = k.shared(f"sX{side.letter}", element, config.turned)
        there = existing(k, "tBcX", brought, (M, K))
        source = k.pin("tBgX", brought(mX))
        k.copy(CpAsync(config.x.width), source, config.bringer.partition(sX, k.thread), guard=there)
        k.commit()
        tXsX = k.pin("tXsX", worker.partition(sX, k.thread))
        scales = k.shared(f"scales{side.letter}", "int32", rows)
        with k.when(k.thread < rows):
            k.store(scales(k.thread), scale_of(first * rows + k.thread, equal(second, 0)))
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
    mP = plane_rows(side.planes, (M, pitch, MOST + 1, planes, matrices))
    tPgP = k.pin("tPgP", mine_of_planes(mP[..., item]))
    exists = existing(k, "tPcP", mine_of_planes, (M, pitch, MOST + 1), (M, pitch, count))

    def number_of(plane: int, i: IntLike, run: IntLike) -> Value:
        return integers(i, run, 0) + integers(i, run, 1) if plane == 2 else integers(i, run, plane)

    k.let_next_launch_begin()
    with k.loop("line", lines, unroll=False) as line:
        if config.k_major:
            k.copy(Vector(config.x.width), tXgX[_, line, _], read, guard=exists_x[_, line, _])
        else:
            k.copy(ELEMENTS, tXsX[_, line, _], read)
        k.comment("The scale of the row, and its integers")
        if config.k_major:
            row, along = exists_x.coordinates(0, line, 0)
            scale = scale_of(row, equal(along, 0))
        else:
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
