"""``modular_residues``: a float64 or complex128 operand as residues modulo small numbers, for products of bytes.

Each row is scaled by a power of two and rounded to integers of up to 62 bits; a plane has their residues modulo one number, in
signed bytes, contiguous along K whatever the strides of the operand are. A complex element has three planes for each modulus: the
residues of its real part, of its imaginary part and of their sum, so that three real products make a complex one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import CpAsync, Vector
from ...codegen.dtypes import dtype
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.tiled import TiledCopy
from ...codegen.values import Value
from ...layout import ComposedLayout, Layout, Swizzle, Tensor, _, local_tile, make_identity_tensor
from ...layout.symbolic import IntLike, all_of, ceil_div, equal, less
from ..common import OperandAccess, operand
from .survey import CHOICE, MODULI, MOST, NORMS, THREADS, numbers_of, parts_of

__all__ = ["K_MULTIPLE", "ResiduesConfig", "planes_of", "residues"]

K_MULTIPLE = 32
"""Bytes of a row of residues, of which those at the end may be zeros."""

_WARP = 32
_NUMBERS = 8                        # along K of a thread
_ROWS = 16                          # that a block reads where rows are across K: whole lines


def planes_of(element: str) -> int:
    """Planes for each modulus."""
    return 2 * parts_of(element) - 1


@dataclass(frozen=True)
class ResiduesConfig:
    """What a ``modular_residues`` kernel is specialised on.

    Attributes
    ----------
    x : OperandAccess
        How the operand (rows, K) is read.
    element : str
        float64 or complex128.
    batch_modes : int
        Number of batch modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    x: OperandAccess
    element: str = "float64"
    batch_modes: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        if self.element not in ("float64", "complex128"):
            raise CodegenError(f"float64 and complex128 have residues, got {self}")

    @property
    def k_major(self) -> bool:
        """Whether elements are read along K; else they are turned in shared memory."""
        return self.x.unit != 0

    @property
    def run(self) -> int:
        """Elements along K whose residues a thread computes together."""
        return _NUMBERS // parts_of(self.element)

    @property
    def worker(self) -> TiledCopy:
        """Who has which elements of rows: each warp those of one."""
        return TiledCopy(Layout((THREADS // _WARP, _WARP), (_WARP, 1)), (1, self.run))

    @property
    def bringer(self) -> TiledCopy:
        """Who brings which elements into shared memory."""
        along = _ROWS // self.x.width
        return TiledCopy(Layout((along, THREADS // along)), (self.x.width, 1))

    @property
    def turned(self) -> ComposedLayout:
        """Rows and K in shared memory, rows side by side; swizzled: lanes write neighbours, and read each another run of K."""
        width, run = self.x.width.bit_length() - 1, self.run.bit_length() - 1
        return ComposedLayout(Swizzle(3, width, _ROWS.bit_length() - 1 + run - width), 0, Layout(self.tile, (1, _ROWS)))

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and elements along K of a block."""
        rows, depth = self.worker.tile
        return rows if self.k_major else _ROWS, depth

    def blocks(self, rows: int, depth: int) -> int:
        """Blocks of a matrix."""
        return -(-rows // self.tile[0]) * -(-depth // self.tile[1])

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        unit = {0: "m", 1: "k", None: "s"}[self.x.unit]
        return (f"modular_residues_{dtype(self.element).tag}{unit}{self.x.width}{'c' if self.x.conj else ''}_b{self.batch_modes}"
                f"{'_wide' if self.wide else ''}")


@cache
def residues(config: ResiduesConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    X is the operand; Q has the squared norms of its rows, D their lowest bits, E takes the powers of two by which they are scaled,
    each ``matrix_rows`` for a matrix; P takes the planes, whose rows are ``pitch`` long: row after row, matrix after matrix, plane
    after plane.
    """
    parts, run, worker, (rows, depth) = parts_of(config.element), config.run, config.worker, config.tile
    planes = planes_of(config.element)
    # Offsets of 64 bits take registers that two blocks of complex elements do not leave.
    k = KernelBuilder(config.name, THREADS, min_blocks=1 if config.wide else 2, wide=config.wide,
                      summary=f"{config.element} rows as residues of integers, {planes} planes of signed bytes for each modulus\n"
                              f"threads {worker.threads}, each {run} elements along K")
    (X,) = k.tensors(operand("X", "mk", config.element, config.x), modes="mk", batch=config.batch_modes)
    squares_of, lowest_of = k.pointer("Q", "float64", alignment=8), k.pointer("D", "int32", alignment=4)
    words, numbers = k.pointer("words", "uint32", alignment=16), k.pointer("numbers", "float64", alignment=8)
    exponents = k.pointer("E", "int32", const=False, alignment=4)
    P, pitch = k.pointer("P", "int8", const=False, alignment=16), k.integer("pitch", multiple=K_MULTIPLE)
    matrix_rows = k.integer("matrix_rows")
    (M, K), matrices = (k.extent(mode) for mode in "mk"), prod(X.batch, start=1)

    block = k.block_index("block", "x")
    tiles, steps = k.let("tiles", ceil_div(M, rows)), k.let("steps", ceil_div(pitch, depth))
    inner, others = (steps, tiles) if config.k_major else (tiles, steps)
    first, above = k.let("first", block % inner), k.let("above", block // inner)
    second, item = k.let("second", above % others), k.let("item", above // others)
    at = (second, first) if config.k_major else (first, second)

    chosen, norms = k.declare("chosen", "uint32"), k.declare("norms", "float64")
    k.do("load_global", chosen, words[CHOICE // 4], of=1)
    k.stop(chosen.equals(0))
    k.do("load_global", norms, numbers[NORMS // 8], of=1)
    count = k.variable("moduli", 0, hi=MOST)
    k.assign(count, k.call("moduli_of", chosen))

    def mine(tensor: Tensor, who: TiledCopy = worker) -> Tensor:        # (elements, rows)
        return who.partition(local_tile(tensor, (rows, depth), at), k.thread)

    mX, elements = X.at(item if X.batch else 0), make_identity_tensor((M, K))
    coordinates = k.pin("tXcX", mine(elements)[_, _, 0])
    read = k.registers("tXrX", config.element, Layout(run))
    if config.k_major:
        tXgX = k.pin("tXgX", mine(mX)[_, _, 0])
    else:
        sX = k.shared("sX", config.element, config.turned)
        there = Guard(k.pin("tBcX", mine(elements, config.bringer)), (M, K))
        source = k.pin("tBgX", mine(mX, config.bringer))
        k.copy(CpAsync(config.x.width), source, config.bringer.partition(sX, k.thread), guard=there)
        k.commit()
        tXsX = k.pin("tXsX", worker.partition(sX, k.thread)[_, _, 0])
        k.wait(0)
        k.barrier()
    squares, lowest = k.declare("squares", "float64"), k.declare("lowest", "int32")
    integers = k.registers("integers", "int64", Layout((run, parts)))
    written = k.registers("tXrP", "int8", Layout(run))
    mP = Tensor(P, Layout((M, pitch, matrices, planes * MOST), (pitch, 1, pitch * M, pitch * M * matrices)))
    tPgP = k.pin("tPgP", mine(mP[_, _, item, _])[_, _, 0, _])

    def number_of(plane: int, i: IntLike) -> Value:
        return integers(i, 0) + integers(i, 1) if plane == 2 else integers(i, plane)

    with k.loop("line", rows // worker.tile[0], unroll=False) as line:
        if config.k_major:
            k.copy(Vector(config.x.width), tXgX[_, line], read, guard=Guard(coordinates[_, line], (M, K)))
        else:
            k.copy(Vector(1), tXsX[_, line], read)
        k.comment("The scale of the row, and its integers")
        row, along = coordinates(0, line)
        k.assign(squares, 0.0)
        k.assign(lowest, 0)
        flat = k.let("flat", row + matrix_rows * item)
        with k.when(less(row, M)):
            k.do("load_global", squares, squares_of[flat], of=1)
            k.do("load_global", lowest, lowest_of[flat], of=1)
        scale = k.declare("scale", "int32", k.call("row_exponent", squares, lowest, chosen, norms), const=True)
        factor = k.declare("factor", "float64", k.call("power_of_two_f64", scale), const=True)
        with k.when(all_of(less(row, M), equal(along, 0))):
            k.do("store_global", exponents[flat], scale, of=1)
        with k.loops((run,)) as (i,):
            for part, number in enumerate(numbers_of(read(i), config.element, conj=config.x.conj)):
                k.assign(integers(i, part), k.call("scaled_integer", number, factor))

        k.comment("Planes")
        exists = Guard(coordinates[_, line], (M, pitch))
        for index, modulus in enumerate(MODULI):
            with k.when(less(index, count)):
                for plane in range(planes):
                    with k.loops((run,)) as (i,):
                        k.assign(written(i), k.call("residue", number_of(plane, i), of=modulus))
                    k.copy(Vector(run), written, tPgP[_, line, index * planes + plane], guard=exists)
    return k.build()
