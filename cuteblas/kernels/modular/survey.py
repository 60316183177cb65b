"""Norms of rows of float64 and complex128 operands, their lowest bits, and the number of moduli.

``modular_survey`` reads both operands once and leaves parts along K; ``modular_choice`` adds them
up in order, and its last block makes the verdict and the choice. docs/performance/gemm-modular.md
derives the condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import NamedTuple

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    GeneratedKernel,
    KernelBuilder,
    Pointer,
    Term,
    TiledCopy,
    Value,
    Vector,
    cast,
    choose,
    integer,
)
from ...codegen.values import number
from ...layout import Tensor, _, local_tile, make_tensor
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, equal, maximum
from ..common import (
    WARP,
    DynamicPair,
    Pair,
    builder,
    butterfly,
    existing,
    numbers_of,
    unravel,
    vectors_along,
)
from ..guard import HOLDS, NATIVE, Field, Record
from ..passes import RowOperand, RowThreads, blocks_of_two

MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197)
"""The largest numbers that are pairwise coprime."""

MOST = len(MODULI)

RECORD = Record((Field("cosine", "min", 1.0), Field("bits", "max", 0.0)))
"""What a block leaves of its rows: the least cosine of the angle between a row's magnitudes and a
row of ones (-1 for native arithmetic), and twice the most bits: a row's squared norm in units of
its lowest bit, squared."""

WORD, LIMBS = 4, 12
"""Bytes that an instruction multiplies, and those of a weight."""

CHOICE, ARRIVED, STATE_BYTES = 0, 4, 8
"""Bytes in a product's state: the choice; the number of blocks that have left records."""

LANES, GROUPS = 4, WARP // 4
"""Lanes of a group, which has a row of a matrix of bytes, and groups of a warp."""

THREADS, ROWS = 256, 32
"""Threads of a block, and rows of one of ``modular_choice``."""

_OF_CHOICE = RowThreads((ROWS, THREADS // ROWS), False)
_LOWEST = 4096
_UNROLL = 4                         # vectors that a thread asks for at a time


class _Partial(NamedTuple):
    """A number of a row in parts: its type, how two are combined, and that of no element."""

    letter: str
    name: str
    element: str
    combine: str
    start: float


_PARTIALS = (_Partial("T", "sums", "float64", "add", 0.0),
             _Partial("S", "squares", "float64", "add", 0.0),
             _Partial("E", "lowest", "int32", "min", _LOWEST))


@dataclass(frozen=True)
class ModularOperand(RowOperand):
    """How an operand (rows, K) of float64 or complex128 is read."""

    def __post_init__(self) -> None:
        if self.element not in ("float64", "complex128"):
            raise CodegenError(
                f"only float64 and complex128 are multiplied by their residues, got {self}"
            )

    @property
    def access(self) -> str:
        """How elements are read, as a part of a kernel's name."""
        return f"{dtype(self.element).tag}{self.x.letter('mk')}{self.x.width}"


@dataclass(frozen=True)
class SurveyOperand(ModularOperand):
    """How ``modular_survey`` reads an operand: a few vectors at a time, at most ``steps`` times,
    so that the last blocks end together."""

    steps: int = 8

    @property
    def sharing(self) -> RowThreads:
        """Warps have rows of their own, or parts of K."""
        warps = THREADS // WARP
        if self.k_major:
            return RowThreads((warps, WARP), True)
        return RowThreads((WARP, warps), False, self.x.width)

    @property
    def reader(self) -> TiledCopy:
        """Who reads what of a step."""
        return vectors_along(int(self.k_major), self.sharing.threads, self.x.width)

    @property
    def tile(self) -> Pair:
        """Rows of a block, and elements along K that it reads at a time."""
        rows, depth = self.reader.tile
        return rows, depth * _UNROLL

    def blocks(self, rows: int, depth: int) -> Pair:
        return -(-rows // self.tile[0]), -(-depth // (self.tile[1] * self.steps))

    @property
    def tag(self) -> str:
        return f"{self.access}_{_UNROLL}x{self.steps}_b{self.batch_modes}"


@dataclass(frozen=True)
class SurveyConfig:
    a: SurveyOperand
    b: SurveyOperand
    wide: bool = False

    @property
    def name(self) -> str:
        return f"modular_survey_{self.a.tag}_{self.b.tag}{'_wide' if self.wide else ''}"


def groups_of_lanes(k: KernelBuilder) -> DynamicPair:
    return k.let("group", k.thread % WARP // LANES), k.let("lane", k.thread % LANES)


def load_choice(k: KernelBuilder, words: Pointer) -> Value:
    """The choice that the state of a product has: 0 leaves it to native arithmetic."""
    return k.load(k.declare("chosen", "uint32"), words[CHOICE // 4])


def count_moduli(k: KernelBuilder, chosen: Value) -> Expr:
    """The number of moduli of a choice; of 0 a block has nothing to do."""
    k.stop(chosen.equals(0))
    count = k.variable("moduli", 0, hi=MOST)
    k.assign(count, k.call("moduli_of", chosen))
    return count


def product_of_moduli(k: KernelBuilder, count: IntLike) -> list[Term]:
    """The product of so many moduli, as a sum of two numbers."""
    parts = [k.declare(name, "float64") for name in ("most", "rest")]
    k.do("product_of_moduli", count, *parts)
    return parts


def plane_rows(planes: Pointer, shape: tuple[IntLike, IntLike, int, int, IntLike]) -> Tensor:
    """Planes of residues, (row, word of it, modulus, plane of a modulus, matrix)."""
    rows, pitch, _moduli, of_modulus, matrices = shape
    plane = pitch * rows * matrices
    return make_tensor(planes, shape, (pitch, 1, of_modulus * plane, plane, pitch * rows))


@cache
def survey(config: SurveyConfig) -> GeneratedKernel:
    """Generate ``modular_survey``, of which ``blocks_A`` blocks read A. X is an operand; T, S and
    E have sums of magnitudes and squares, and lowest bits: rows, then parts of K. In ``words``
    nobody has arrived."""
    k = builder(config, THREADS, min_blocks=3,
                summary="Norms of rows and their lowest bits, part by part of K")
    blocks_a = k.integer("blocks_A")
    words, nobody = k.pointer("words", "uint32", const=False), k.let("nobody", number(0, "uint32"))
    block = k.block_index()
    with k.when(all_of(equal(block, 0), equal(k.thread, 0))):
        k.store(words[ARRIVED // 4], nobody)
    blocks = blocks_of_two(k, block, blocks_a, "block_of_B")
    for own, side, each in zip(blocks, "AB", (config.a, config.b), strict=True):
        _survey(k, side, each, own)
    return k.build()


def _partials(k: KernelBuilder, side: str, const: bool = True) -> dict[_Partial, Pointer]:
    return {each: k.pointer(f"{each.letter}{side}", each.element, const=const, alignment=8)
            for each in _PARTIALS}


def _survey(k: KernelBuilder, side: str, config: SurveyOperand, block: IntLike) -> None:
    (M, K), (x,) = config.declared(k, side)
    partials = _partials(k, side, const=False)
    reader, (rows, depth), width = config.reader, config.tile, config.x.width
    tiles, chunks = k.let("tiles", ceil_div(M, rows)), k.let("chunks",
                                                             ceil_div(K, depth * config.steps))
    tile, above = unravel(k, block, tiles, ("tile", "above"))
    chunk, item = unravel(k, above, chunks, ("chunk", "item"))
    k.note(f"{side}: threads {reader.threads}, vectors of {width}")

    def mine(tensor: Tensor) -> Tensor:
        part = local_tile(tensor, (rows, depth * config.steps), (tile, chunk))
        return reader.partition(local_tile(part, (rows, depth), (0, _)), k.thread)

    tXgX = k.pin("tXgX", mine(x.at(item if x.batch else 0)))
    exists = existing(k, "tXcX", mine, (M, K))
    values, sharing = reader.values, config.sharing
    read = k.registers("tXrX", config.element, (prod(values), 1, _UNROLL))
    own = _totals(k, sharing)
    with k.loop("step", config.steps) as step:
        k.copy(Vector(width), tXgX[..., step], read, guard=exists[..., step])
        with k.loops((prod(values), 1, _UNROLL)) as (v, i, j):
            numbers = numbers_of(read(v, i, j), config.element)
            function = "add_element" if len(numbers) == 1 else "add_complex_element"
            k.do(function, *numbers,
                 *(total(v if sharing.run > 1 else 0) for total in own.values()))
    k.let_next_launch_begin()
    found = _folded(k, sharing, own)
    # Rows of all matrices one after the other, part after part.
    row = k.let("row", tile * rows + k.thread)
    with k.when(all_of(row < M, k.thread < rows)):
        for pointer, total in zip(partials.values(), found, strict=True):
            gP = make_tensor(pointer, (M, prod(x.batch, start=1), chunks))
            k.store(gP(row, item, chunk), total)


def _totals(k: KernelBuilder, threads: RowThreads) -> dict[_Partial, Tensor]:
    return {each: threads.registers(k, each.name, each.element, each.start) for each in _PARTIALS}


def _folded(k: KernelBuilder, threads: RowThreads, own: dict[_Partial, Tensor]) -> list[Value]:
    """The numbers of a row, for a thread for each row of the block."""
    threads.fold(k, [(total, each.combine) for each, total in own.items()])
    return [total(0) for total in own.values()]


@cache
def choice(wide: bool = False) -> GeneratedKernel:
    """Generate ``modular_choice``, a lane a row. Q takes squared norms of rows, D their lowest
    bits, R a :data:`RECORD` a block. The last block chooses: ``least`` is the cosine that 14
    moduli need, ``status`` takes the verdict, ``words`` the product's state."""
    k = KernelBuilder(
        f"modular_choice{'_wide' if wide else ''}",
        THREADS,
        wide=wide,
        summary="Norms of rows and their lowest bits, from all parts of K; how many moduli they allow"
    )
    blocks_a, length = k.integer("blocks_A"), k.integer("length")
    records = k.pointer("R", "float32", const=False, alignment=8)
    least = k.scalar("least", "float32")
    status = k.pointer("status", "uint32", const=False, alignment=4)
    words = k.pointer("words", "uint32", const=False)
    block = k.block_index()
    k.let_next_launch_begin()
    record = RECORD.begin(k)
    for own, side in zip(blocks_of_two(k, block, blocks_a, "block_of_B"), "AB", strict=True):
        _rows(k, length, own, record, side)
    k.comment("A record of the block")
    k.stop(cast(integer(k.thread), "int32") >= WARP)
    RECORD.fold_lanes(k, record, [*butterfly(WARP)])
    before = k.declare("before", "uint32", 0)
    with k.when(equal(k.thread, 0)):
        RECORD.leave(k, record, records, block)
        k.assign(before, k.call("count_arrival", words[ARRIVED // 4]))
    k.fold_lanes(before, "max", butterfly(WARP))
    blocks = k.grid_size()
    k.stop(cast(before + 1, "int32") < cast(integer(blocks), "int32"))
    k.warp_barrier()
    k.comment("The last block makes the choice")
    by_a, by_b = RECORD.folded(k, {"A": (records, blocks_a),
                                   "B": (records + RECORD.size * blocks_a,
                                         maximum(blocks - blocks_a, 0))}, k.thread)
    chosen = k.let("chosen", k.call("choose_moduli", *by_a, *by_b, least))
    with k.when(equal(k.thread, 0)):
        k.store(status[0], k.let("verdict", choose(chosen.equals(0), NATIVE, HOLDS, "uint32")))
        k.store(words[CHOICE // 4], chosen)
    return k.build()


def _rows(k: KernelBuilder, length: IntLike, block: IntLike, record: Tensor, side: str) -> None:
    partials, rows, parts = _partials(k, side), k.integer(f"rows_{side}"), k.integer(f"parts_{side}")
    squares_of = k.pointer(f"Q{side}", "float64", const=False, alignment=8)
    lowest_of = k.pointer(f"D{side}", "int32", const=False, alignment=4)
    row, own = k.let("row", block * ROWS + k.thread % WARP), _totals(k, _OF_CHOICE)
    with (k.when(row < rows), k.loop("part", parts, start=k.thread // WARP,
                                     step=THREADS // WARP, unroll=False) as part):
        found = [(total, each, k.registers(f"found_{each.letter}", each.element, total.layout))
                 for each, total in own.items()]
        for _total, each, fragment in found:
            k.load(fragment(0), make_tensor(partials[each], (rows, parts))(row, part))
        for total, each, fragment in found:
            k.fold(total, fragment, each.combine)
    sums, squares, lowest = _folded(k, _OF_CHOICE, own)
    with k.when(all_of(k.thread < WARP, row < rows)):
        k.do("judge_row", sums, squares, lowest, length, record(0), record(1))
        k.store(squares_of[row], squares)
        k.store(lowest_of[row], lowest)
