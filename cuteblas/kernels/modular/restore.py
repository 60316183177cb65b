"""``modular_restore``: C from residues by the Chinese remainder theorem, and its epilogue.

Residues times fractions of 96 bits, summed without what is whole, are the integer over the product
of all moduli: warps multiply the bytes of both as matrices. One rounding makes it a float64;
powers of two undo the scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import prod

from ..._dtypes import dtype
from ...codegen import (
    GeneratedKernel,
    KernelBuilder,
    TiledCopy,
    Vector,
    cast,
    choose,
    partition,
)
from ...codegen.mma import UNSIGNED_BYTES
from ...codegen.values import complex_of
from ...layout import Layout, Tensor, _, local_tile, make_tensor
from ...layout.symbolic import IntLike, equal
from ..common import (
    WARP,
    OperandAccess,
    Pair,
    batch_letters,
    builder,
    existing,
    operand,
    part_of_tile,
    tile_of_block,
    transpose_words,
)
from ..epilogue import Epilogue, EpilogueConfig, OutputTile, OutputTriangle
from .residues import planes_of
from .survey import (
    GROUPS,
    LANES,
    LIMBS,
    MOST,
    WORD,
    count_moduli,
    groups_of_lanes,
    load_choice,
    plane_rows,
    product_of_moduli,
)

N_MULTIPLE = 16
"""Bytes of a row of residues of C come in multiples of this."""

_THREADS = 256


@dataclass(frozen=True)
class RestoreConfig(EpilogueConfig):
    """The configuration of a ``modular_restore`` kernel. ``symmetric`` residues are of the lower
    triangle, whose elements are written twice."""

    output: str
    c: OperandAccess
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    symmetric: bool = False

    @property
    def words(self) -> int:
        """Words of a plane that a lane reads at a time; three planes take more registers."""
        return 4 if planes_of(self.output) == 1 else 2

    @property
    def tile(self) -> Pair:
        """Rows and columns of C of a block: a row of each warp."""
        return _THREADS // WARP, WARP * self.words

    @property
    def returned(self) -> Layout:
        """((thread), (values)) -> position in the tile: one element of each word of its group."""
        rows, _columns = self.tile
        return Layout(((LANES, GROUPS, rows), (1, self.words)),
                      ((rows, rows * LANES * self.words, 1), (0, rows * LANES)))

    @property
    def name(self) -> str:
        modes = batch_letters(self.batch_a, self.batch_b)
        return (f"modular_restore_{dtype(self.output).tag}_{self.c.letter('mn')}{self.c.width}"
                f"_{self.alpha[0]}{self.beta[0]}_b{modes}"
                f"{'_wide' if self.wide else ''}{'_symmetric' * self.symmetric}{self.fused}")


@cache
def restore(config: RestoreConfig) -> GeneratedKernel:
    """Generate the kernel. R has residues of C in rows of ``pitch`` words: row, matrix, plane; EA
    and EB are the powers of two of rows; words and numbers are the product's state."""
    element, planes = config.output, planes_of(config.output)
    little = planes == 1 and not (config.wide or config.symmetric or config.epilogue
                                  or config.batch_a)
    k = builder(
        config,
        _THREADS,
        arch=UNSIGNED_BYTES.arch,
        min_blocks=3 if little else 2,
        summary=f"C = alpha * product + beta * C from {planes} planes of residues for each modulus to {element}"
    )
    (C,) = k.tensors(operand("C", "mn", element, config.c, written=True), modes="mn",
                     batch=len(config.batch_a))
    R, pitch = k.pointer("R", "uint32"), k.integer("pitch", multiple=N_MULTIPLE // WORD)
    rows_a, rows_b = (k.tensors(operand(f"E{side}", mode, "int32", OperandAccess(0)),
                                batch=len(config.batch_a))[0]
                      for side, mode in (("A", "m"), ("B", "n")))
    words = k.pointer("words", "uint32")
    epilogue = Epilogue(k, config, element)
    (M, N), batch = map(k.extent, "mn"), C.batch

    epilogue.load_scalars()
    tile, many = config.tile, config.words
    tile_n, tile_m, item = tile_of_block(k, (N, M), tile[::-1], bool(batch))
    at = tile_m, tile_n
    if config.symmetric:
        above = tile_m * tile[0] + tile[0] - 1 < tile_n * tile[1]
        if not isinstance(above, bool):
            k.stop(above)
    chosen = load_choice(k, words)
    count = count_moduli(k, chosen)

    group, lane = groups_of_lanes(k)
    reader = TiledCopy(Layout((tile[0], GROUPS, LANES), (WARP, LANES, 1)), (1, many, WORD))
    residues = plane_rows(R, (M, pitch, MOST + 1, planes, prod(batch, start=1)))

    mine = part_of_tile(reader, reader.tile, (*at, 0), k.thread)

    tile_of = partial(local_tile, tiler=tile, coord=at)

    def mine_of_c(tensor: Tensor) -> Tensor:
        return partition(tensor, tile, config.returned, k.thread)[(_, _), 0, 0]

    tRgR = k.pin("tRgR", mine(residues[..., item]))
    exists = existing(k, "tRcR", mine, (M, pitch, MOST + 1), (M, pitch, count))
    guard = existing(k, "tCcC", lambda identity: mine_of_c(tile_of(identity)), (M, N))
    found = k.registers("tRrR", "uint32", (many, WORD))
    # (element, word)
    turned = k.registers("tCrA", "uint32", Layout(((2, 2), (2, many // 2)), ((2, 4), (1, 8))))
    fractions = _fractions(k, count, group, lane)
    sums = k.registers("tCrC", "int32", (2, 2, LIMBS // 2))    # (limb, word, pair of limbs)
    limbs = k.registers("limbs", "uint32", LIMBS)
    parts, belows = (k.registers(name, kind, (many, planes))
                     for name, kind in (("parts", "uint64"), ("belows", "uint32")))
    row_of, columns_of = k.declare("row_of", "int32", 0), k.registers("columns_of", "int32",
                                                                      many)
    with k.when(guard.coordinates(0, 0)[0] < M):
        k.load(row_of, rows_a.at(item)(guard.coordinates(0, 0)[0]))
    k.fill(columns_of)
    for word in range(many):
        with k.when(guard.coordinates(0, word)[1] < N):
            k.load(columns_of(word), rows_b.at(item)(guard.coordinates(0, word)[1]))
    for plane in range(planes):
        k.comment(f"Fractions of plane {plane}")
        k.copy(Vector(many), tRgR[(0, _, _), 0, 0, 0, plane], found,
               guard=exists[(0, _, _), 0, 0, 0])
        # From words of four elements to words of four moduli.
        transpose_words(k, make_tensor(found.engine, (WORD, many), (many, 1)), turned)
        for word in range(0, many, 2):
            k.fill(sums)
            with k.loops((2, LIMBS // 2)) as (step, pair):
                k.do(UNSIGNED_BYTES.function, sums(0, 0, pair), turned(2 * step, word),
                     fractions(0, step, pair), of=UNSIGNED_BYTES.element)
            for other in range(2):
                with k.loops((2, LIMBS // 2)) as (i, pair):
                    k.assign(limbs(i + 2 * pair), cast(sums(i, other, pair), "uint32"))
                k.do("fraction_of_sums", limbs, parts(word + other, plane),
                     belows(word + other, plane))

    k.let_next_launch_begin()
    k.comment("Numbers")
    most, rest = product_of_moduli(k, count)
    for number in (most, rest):
        k.assign(number, number * 2.0**-64)
    product = k.registers("product", element, (1, many))
    with k.each(many) as i:
        if planes > 1:           # of x, y and z the real part x - y and the imaginary one z - x - y
            for plane, other in ((2, 0), (2, 1), (0, 1)):
                k.do("subtract_fraction", parts(i, plane), belows(i, plane), parts(i, other),
                     belows(i, other))
        wholes = (k.call("integer_of", parts(i, plane), belows(i, plane), most, rest)
                  for plane in range(0, planes, 2))
        real, *imag = (k.call("unscaled", whole, row_of, columns_of(i)) for whole in wholes)
        k.assign(product(0, i), complex_of(element, real, *imag) if imag else real)
    epilogue.clear(product)

    mC, crossed = C.at(item), tile_m * tile[0] < (tile_n + 1) * tile[1] - 1
    triangle = OutputTriangle("both" if config.symmetric else None, crossed, mC)
    epilogue.store(product, OutputTile(tile_of(mC), mine_of_c, tile_of, (M, N), item, guard,
                                       triangle=triangle))
    return k.build()


def _fractions(k: KernelBuilder, count: IntLike, group: IntLike, lane: IntLike) -> Tensor:
    """A lane's registers of the matrices of weights: (element of a pair, pair, pair of limbs)."""
    # A row has residues of two elements; a matrix has two limbs of weights for each, in columns of
    # their own, and zeros elsewhere: a lane gets all limbs of an element.
    own = k.registers("own_limbs", "uint32", LIMBS // 2)
    k.fill(own, lambda pair: k.call("weights_of_moduli", count,
                                    LIMBS * lane + 2 * pair + group % 2))
    matrices = k.registers("tCrB", "uint32", (2, 2, LIMBS // 2))
    with k.each(LIMBS // 2) as pair:
        for element in range(LANES):
            k.assign(matrices(element % 2, element // 2, pair),
                     choose(equal(group // 2, element), own(pair), 0, "uint32"))
    return matrices
