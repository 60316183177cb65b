"""``modular_restore``: C from the residues of integer products, by the Chinese remainder theorem, and its epilogue.

Residues are multiplied with fractions of 96 bits, whose sum, without what is whole, is the integer over the product of all moduli.
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
from ...codegen.values import complex_of
from ...layout import Layout, Tensor, _, local_tile, make_identity_tensor
from ...layout.symbolic import less
from ..common import OperandAccess, operand, tile_of_block
from ..epilogue import Epilogue, FusedEpilogue
from .residues import planes_of
from .survey import CHOICE, MODULI, PRODUCT, WEIGHTS

__all__ = ["N_MULTIPLE", "RESTORED", "RestoreConfig", "restore"]

N_MULTIPLE = 16
"""Bytes of a row of residues of C."""

_THREADS, _WARP = 256, 32
_RUN = {"float64": 4, "complex128": 2}
RESTORED = {element: (_THREADS // _WARP, _WARP * run) for element, run in _RUN.items()}
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
    """

    output: str
    c: OperandAccess
    alpha: str = "one"
    beta: str = "zero"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    wide: bool = False
    epilogue: FusedEpilogue | None = None

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        unit = {0: "m", 1: "n", None: "s"}[self.c.unit]
        modes = "".join("nabc"[x + 2 * y] for x, y in zip(self.batch_a, self.batch_b, strict=True))
        return (f"modular_restore_{dtype(self.output).tag}_{unit}{self.c.width}_{self.alpha[0]}{self.beta[0]}_b{modes}"
                f"{'_wide' if self.wide else ''}" + (f"_{self.epilogue.tag}" if self.epilogue else ""))


@cache
def restore(config: RestoreConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    R has the residues of C, from 0 on, in rows ``pitch`` long: row after row, matrix after matrix, plane after plane. EA and EB are
    the powers of two by which rows of A and of B were scaled; words and numbers are the state of the product.
    """
    element, run, planes = config.output, _RUN[config.output], planes_of(config.output)
    k = KernelBuilder(config.name, _THREADS, min_blocks=2, wide=config.wide,
                      summary=f"C = alpha * product + beta * C from {planes} planes of residues for each modulus to {element}")
    (C,) = k.tensors(operand("C", "mn", element, config.c, written=True), modes="mn", batch=len(config.batch_a))
    R, pitch = k.pointer("R", "uint8", alignment=16), k.integer("pitch", multiple=N_MULTIPLE)
    rows_a, rows_b = (k.tensors(operand(f"E{side}", mode, "int32", OperandAccess()), batch=len(config.batch_a))[0] for side, mode in
                      (("A", "m"), ("B", "n")))
    words, numbers = k.pointer("words", "uint32", alignment=16), k.pointer("numbers", "float64", alignment=8)
    epilogue = Epilogue(k, element, element, config.c, config.alpha, config.beta, config.epilogue)
    (M, N), batch = map(k.extent, "mn"), C.batch

    epilogue.load_scalars()
    tile = RESTORED[element]
    tile_n, tile_m, item = tile_of_block(k, (N, M), tile[::-1], bool(batch))
    at = tile_m, tile_n
    chosen = k.declare("chosen", "uint32")
    k.do("load_global", chosen, words[CHOICE // 4], of=1)
    k.stop(chosen.equals(0))
    count = k.variable("moduli", 0, hi=len(MODULI))
    k.assign(count, k.call("moduli_of", chosen))

    tiled = TiledCopy(Layout((tile[0], _WARP), (_WARP, 1)), (1, run))
    matrices = prod(batch, start=1)
    residues = Tensor(R, Layout((M, pitch, matrices, planes * len(MODULI)), (pitch, 1, pitch * M, pitch * M * matrices)))

    def mine(tensor: Tensor) -> Tensor:
        return tiled.partition(local_tile(tensor, tile, at), k.thread)

    tRgR = k.pin("tRgR", mine(residues[_, _, item, _])[_, 0, 0, _])
    coordinates = k.pin("tCcC", mine(make_identity_tensor((M, N))))
    guard, inside = Guard(coordinates, (M, N)), Guard(coordinates[_, 0, 0], (M, pitch))
    totals = [tuple(k.registers(f"{name}{plane}", kind, Layout(run)) for name, kind in
                    (("high", "uint32"), ("middle", "uint64"), ("low", "uint64"))) for plane in range(planes)]
    for each in totals:
        for total in each:
            k.fill(total)
    weights = k.registers("weights", "uint32", Layout(4))
    table = Tensor(words, Layout((4, len(MODULI) + 1 + WEIGHTS // 16)))
    found = k.registers("tRrR", "uint8", Layout((run, planes)))
    with k.loop("modulus", count) as modulus:
        k.copy(Vector(4), table[_, modulus + WEIGHTS // 16], weights)
        for plane in range(planes):
            k.copy(Vector(run), tRgR[_, modulus * planes + plane], found[_, plane], guard=inside)
        for plane, each in enumerate(totals):
            with k.loops((run,)) as (i,):
                k.do("add_residue", found(i, plane), *(weights(w) for w in range(3)), *(x(i) for x in each))

    k.comment("Numbers")
    most, rest = k.declare("most", "float64"), k.declare("rest", "float64")
    for number, offset in ((most, 0), (rest, 1)):
        k.do("load_global", number, numbers[PRODUCT // 8 + offset], of=1)
    row, column = coordinates(0, 0, 0)
    row_of = k.declare("row_of", "int32", 0)
    with k.when(less(row, M)):
        k.do("load_global", row_of, rows_a.at(item)(row), of=1)
    columns_of = k.registers("columns_of", "int32", Layout(run))
    k.fill(columns_of)
    with k.loops((run,)) as (i,), k.when(less(column + i, N)):
        k.do("load_global", columns_of(i), rows_b.at(item)(column + i), of=1)
    product = k.registers("product", element, Layout((run, 1, 1)))
    with k.loops((run,)) as (i,):
        first, *others = ([x(i) for x in total] for total in totals)
        if not others:
            whole = k.call("from_residues", *first, most, rest)
            k.assign(product(i, 0, 0), k.call("unscaled", whole, row_of, columns_of(i)))
        else:
            second, both = others
            real = k.call("difference_of_residues", *first, *second, most, rest)
            imag = k.call("cross_of_residues", *both, *first, *second, most, rest)
            k.assign(product(i, 0, 0), complex_of(element, *(k.call("unscaled", x, row_of, columns_of(i)) for x in (real, imag))))
    epilogue.clear(product)
    epilogue.store(product, lambda tensor: tiled.partition(tensor, k.thread), local_tile(C.at(item), tile, at), guard, (M, N), item,
                   lambda matrix: local_tile(matrix, tile, at))
    return k.build()
