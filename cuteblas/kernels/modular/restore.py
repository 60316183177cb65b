"""``modular_restore``: C from the residues of integer products, by the Chinese remainder theorem, and its epilogue.

Residues are multiplied with fractions of 96 bits, whose sum, without what is whole, is the integer over the product of all moduli:
four residues and four bytes of fractions by an instruction.
It becomes a float64 by one rounding, and powers of two undo the scaling of its row and its column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.dtypes import dtype
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import TiledCopy
from ...codegen.values import complex_of, run_of
from ...layout import Layout, Tensor, _, local_tile, make_identity_tensor
from ...layout.symbolic import all_of, less
from ..common import OperandAccess, operand, tile_of_block, transpose_words
from ..epilogue import Epilogue, FusedEpilogue
from ..gemm.triangle import mirrored
from .residues import planes_of
from .survey import CHOICE, LIMBS, MOST, PRODUCT, WEIGHTS, WORD

__all__ = ["N_MULTIPLE", "RESTORED", "RestoreConfig", "restore"]

N_MULTIPLE = 16
"""Bytes of a row of residues of C."""

_THREADS, _WARP = 256, 32
_GROUPS = (MOST + 1) // WORD         # of four moduli
_RUN = 4                            # elements of C of a thread: as many as a word has residues

RESTORED = _THREADS // _WARP, _WARP * _RUN
"""Rows and columns of C of a block."""


@dataclass(frozen=True)
class RestoreConfig:
    """What a ``modular_restore`` kernel is specialised on.

    Attributes
    ----------
    output : str
        C's type, float64 or complex128.
    c : OperandAccess
        How C is read and written.
    alpha, beta : {"one", "value", "device"}, {"zero", "one", "value", "device"}
        What is known of the scalars.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there.
    wide : bool
        Whether offsets need 64 bits.
    epilogue : FusedEpilogue, optional
        What is done instead of ``alpha * sum + beta * C``.
    symmetric : bool
        Whether there are residues of the lower triangle, whose elements are written twice.
    """

    output: str
    c: OperandAccess
    alpha: str = "one"
    beta: str = "zero"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    wide: bool = False
    epilogue: FusedEpilogue | None = None
    symmetric: bool = False

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        unit = {0: "m", 1: "n", None: "s"}[self.c.unit]
        modes = "".join("nabc"[x + 2 * y] for x, y in zip(self.batch_a, self.batch_b, strict=True))
        return (f"modular_restore_{dtype(self.output).tag}_{unit}{self.c.width}_{self.alpha[0]}{self.beta[0]}_b{modes}"
                f"{'_wide' if self.wide else ''}{'_symmetric' * self.symmetric}"
                + (f"_{self.epilogue.tag}" if self.epilogue else ""))


@cache
def restore(config: RestoreConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    R has the residues of C, from 0 on, in rows of ``pitch`` words: row after row, matrix after matrix, plane after plane. EA and EB
    are the powers of two by which rows of A and of B were scaled; words and numbers are the state of the product.
    """
    element, planes = config.output, planes_of(config.output)
    k = KernelBuilder(config.name, _THREADS, min_blocks=2, wide=config.wide,
                      summary=f"C = alpha * product + beta * C from {planes} planes of residues for each modulus to {element}")
    (C,) = k.tensors(operand("C", "mn", element, config.c, written=True), modes="mn", batch=len(config.batch_a))
    R, pitch = k.pointer("R", "uint32", alignment=16), k.integer("pitch", multiple=N_MULTIPLE // WORD)
    rows_a, rows_b = (k.tensors(operand(f"E{side}", mode, "int32", OperandAccess()), batch=len(config.batch_a))[0] for side, mode in
                      (("A", "m"), ("B", "n")))
    words, numbers = k.pointer("words", "uint32", alignment=16), k.pointer("numbers", "float64", alignment=8)
    epilogue = Epilogue(k, element, element, config.c, config.alpha, config.beta, config.epilogue)
    (M, N), batch = map(k.extent, "mn"), C.batch

    epilogue.load_scalars()
    tile = RESTORED
    tile_n, tile_m, item = tile_of_block(k, (N, M), tile[::-1], bool(batch))
    at = tile_m, tile_n
    if config.symmetric:
        above = less(tile_m * tile[0] + tile[0] - 1, tile_n * tile[1])
        if not isinstance(above, bool):
            k.stop(above)
    chosen = k.declare("chosen", "uint32")
    k.do("load_global", chosen, words[CHOICE // 4], of=1)
    k.stop(chosen.equals(0))
    count = k.variable("moduli", 0, hi=MOST)
    k.assign(count, k.call("moduli_of", chosen))

    who = Layout((tile[0], _WARP), (_WARP, 1))
    tiled, words_of = TiledCopy(who, (1, _RUN)), TiledCopy(who, (1, 1))
    matrices = prod(batch, start=1)
    residues = Tensor(R, Layout((M, pitch, matrices, planes * MOST), (pitch, 1, pitch * M, pitch * M * matrices)))

    def mine(tensor: Tensor) -> Tensor:
        return tiled.partition(local_tile(tensor, tile, at), k.thread)

    def mine_in_words(tensor: Tensor) -> Tensor:
        return words_of.partition(local_tile(tensor, (tile[0], _WARP), at), k.thread)

    tRgR = k.pin("tRgR", mine_in_words(residues[_, _, item, _])[0, 0, 0, _])
    exists = Guard(k.pin("tRcR", mine_in_words(make_identity_tensor((M, pitch)))), (M, pitch)).at((0, 0, 0))
    coordinates = k.pin("tCcC", mine(make_identity_tensor((M, N))))
    guard = Guard(coordinates, (M, N))
    found = k.registers("tRrR", "uint32", Layout((WORD, _GROUPS)))
    turned = k.registers("turned", "uint32", Layout(WORD))
    weights = k.registers("weights", "uint32", Layout((WORD, LIMBS // WORD)))
    sums = k.registers("sums", "uint32", Layout((LIMBS, _RUN)))
    parts, belows = (k.registers(name, kind, Layout((_RUN, planes))) for name, kind in (("parts", "uint64"), ("belows", "uint32")))
    table = Tensor(words, Layout((WORD, WEIGHTS // 16 + _GROUPS * LIMBS // WORD)))
    for plane in range(planes):
        k.comment(f"Fractions of plane {plane}")
        k.fill(found)
        for index in range(MOST):
            with k.when(all_of(less(index, count), exists)):
                k.do("load_global", found(index % WORD, index // WORD), tRgR(index * planes + plane), of=1)
        k.fill(sums)
        for group in range(_GROUPS):
            with k.when(less(WORD * group, count)):
                for at_word in range(LIMBS // WORD):
                    k.copy(Vector(WORD), table[_, WEIGHTS // 16 + LIMBS // WORD * group + at_word], weights[_, at_word])
                transpose_words(k, found[_, group], turned)                 # from residues of elements to those of moduli
                with k.loops((LIMBS, _RUN)) as (limb, i):
                    weight = weights(limb % WORD, limb // WORD)
                    k.assign(sums(limb, i), k.call("dot_of_residues", turned(i), weight, sums(limb, i)))
        with k.loops((_RUN,)) as (i,):
            k.do("fraction_of_sums", run_of(sums(0, i), LIMBS), parts(i, plane), belows(i, plane))

    k.comment("Numbers")
    most, rest = k.declare("most", "float64"), k.declare("rest", "float64")
    for number, offset in ((most, 0), (rest, 1)):
        k.do("load_global", number, numbers[PRODUCT // 8 + offset], of=1)
    row, column = coordinates(0, 0, 0)
    row_of = k.declare("row_of", "int32", 0)
    with k.when(less(row, M)):
        k.do("load_global", row_of, rows_a.at(item)(row), of=1)
    columns_of = k.registers("columns_of", "int32", Layout(_RUN))
    k.fill(columns_of)
    with k.loops((_RUN,)) as (i,), k.when(less(column + i, N)):
        k.do("load_global", columns_of(i), rows_b.at(item)(column + i), of=1)
    product = k.registers("product", element, Layout((_RUN, 1, 1)))
    with k.loops((_RUN,)) as (i,):
        if planes > 1:                                  # of x, y and z the real part x - y and the imaginary one z - x - y
            for plane, other in ((2, 0), (2, 1), (0, 1)):
                k.do("subtract_fraction", parts(i, plane), belows(i, plane), parts(i, other), belows(i, other))
        wholes = (k.call("integer_of", parts(i, plane), belows(i, plane), most, rest) for plane in range(0, planes, 2))
        real, *imag = (k.call("unscaled", whole, row_of, columns_of(i)) for whole in wholes)
        k.assign(product(i, 0, 0), complex_of(element, real, *imag) if imag else real)
    epilogue.clear(product)

    def tiled_c(matrix: Tensor) -> Tensor:
        return local_tile(matrix, tile, at)

    def partition(tensor: Tensor) -> Tensor:
        return tiled.partition(tensor, k.thread)

    if config.symmetric:
        diagonal = less(tile_m * tile[0], (tile_n + 1) * tile[1] - 1)
        epilogue.store_triangle("both", diagonal, product, partition, tiled_c(C.at(item)), guard, (M, N), item, tiled_c,
                                mirrored=tiled_c(mirrored(C.at(item))))
    else:
        epilogue.store(product, partition, tiled_c(C.at(item)), guard, (M, N), item, tiled_c)
    return k.build()
