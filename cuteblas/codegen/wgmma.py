"""Matrix products by warpgroups: atoms, and descriptors of operands in shared memory, which are
derived from the swizzled layout of a tile and checked against the hardware's canonical layouts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from .._dtypes import dtype
from ..layout import (
    ComposedLayout,
    Figure,
    Layout,
    Tensor,
    coalesce,
    composition,
    is_bijective,
    make_layout,
    size,
    transform_leaf,
    tv_picture,
)
from ..layout.symbolic import IntLike, ceil_div
from .builder import KernelBuilder
from .engine import CodegenError
from .intrinsics import called
from .swizzled import SPANS, swizzle_over
from .tiled import Partitions, Pictured
from .values import Rendered, Value, run_of

__all__ = ["WgmmaAtom", "WgmmaMma", "WgmmaOperand", "WgmmaRegisterMma", "wgmma_commit",
           "wgmma_fence", "wgmma_wait"]

_STEP_BYTES = 32                    # of a row along K that one matrix instruction multiplies
_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class WgmmaOperand:
    """One operand tile of ``wgmma`` in shared memory, and its matrix descriptor.

    Attributes
    ----------
    element : str
        16-bit element type, or ``"tfloat32"``, ``"int8"`` or ``"uint8"``, which are K-major.
    layout : ComposedLayout
        The (MN, K) tile that one instruction (or several along K) reads; that of
        :func:`operand_layout`.
    k_major : bool
        Which mode is contiguous.

    Examples
    --------
    >>> from cuteblas.codegen.swizzled import operand_layout
    >>> from cuteblas.codegen.wgmma import WgmmaOperand
    >>> operand = WgmmaOperand("float16", operand_layout(64, 64, "float16", True), True)
    >>> operand.row_bytes, operand.offsets
    (128, (16, 1024))
    """

    element: str
    layout: ComposedLayout
    k_major: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, over which the layout is swizzled."""
        span = SPANS.get(self.layout.swizzle.bits)
        if span is None or self.layout.swizzle != swizzle_over(span, self.element):
            raise CodegenError(
                f"wgmma has no descriptor for {self.layout}: its swizzle is not one of the hardware's"
            )
        return span

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """Leading and stride byte offsets of the descriptor (PTX ISA, "Matrix descriptor"), whose
        canonical layout is that of this operand along both modes of one instruction.

        A value is the sum of what both modes contribute, so both layouts are the same where these
        are.
        """
        inner, item = self.layout.inner, dtype(self.element).bytes
        row, extent, depth = self.row_bytes // item, size(inner[0]), _STEP_BYTES // item
        if self.k_major:
            leading, stride = 16 // item, inner((8, 0)) if extent > 8 else 8 * row
            canonical = Layout(((8, max(1, extent // 8)), depth), ((row, stride), 1))
        else:
            leading, stride = inner((row, 0)) if extent > row else 16 // item, inner((0, 8))
            canonical = Layout(((row, max(1, extent // row)), (8, 2)),
                               ((1, leading), (row, stride)))
        rows = range(0 if coalesce(canonical[0]) == coalesce(inner[0]) else extent)
        along = [*((m, 0) for m in rows), *((0, d) for d in range(depth))]
        wrong = [at for at in along if canonical(*at) != inner(*at)]
        if wrong:
            raise CodegenError(
                f"wgmma has no descriptor for {self.layout}: it departs from the canonical layout {canonical} "
                f"at {wrong[:1]}"
            )
        return leading * item, stride * item

    def tensor(self, k: KernelBuilder, name: str, ring: Tensor, rows: int | None = None) -> Tensor:
        """The operand as instructions take it: descriptors of what each of them reads, of shape
        (MN, K, stage).

        Parameters
        ----------
        k : KernelBuilder
            The kernel.
        name : str
            The name of the first descriptor, which is computed once; the others are some bytes from
            it.
        ring : Tensor
            The tiles in shared memory, (MN, K, stage): in each stage, as many as this operand along
            either mode, or more.
        rows : int, optional
            Rows that an instruction reads along MN; by default all.
        """
        item, inner = dtype(self.element).bytes, self.layout.inner
        extent, depth = size(inner[0]), size(inner[1])
        rows, step = rows or extent, _STEP_BYTES // item
        if rows < extent and rows % (8 if self.k_major else self.row_bytes // item):
            raise CodegenError(
                f"rows of {self.layout} that an instruction reads do not begin at {rows}"
            )
        leading, stride = self.offsets
        first = k.let(name, k.call("wgmma_descriptor", ring(0, 0, 0), leading, stride,
                                   self.row_bytes))
        modes = (composition(inner[0], Layout(ceil_div(extent, rows), rows)),
                 composition(inner[1], Layout(depth // step, step)), ring.layout.inner[2])
        in_bytes = (Layout(mode.shape, transform_leaf(mode.stride, lambda d: d * item))
                    for mode in modes)
        return Tensor(Descriptors(first), make_layout(*in_bytes))


@dataclass(frozen=True, eq=False)
class Descriptor(Value):
    """The matrix descriptor of memory that begins some bytes after the memory of another
    descriptor."""

    first: Value
    offset: IntLike

    def rendered(self) -> Rendered:
        return called("wgmma_descriptor_advance", (), (self.first, self.offset))


@dataclass(frozen=True)
class Descriptors:
    """The engine of operands in shared memory: descriptors, indexed by their distance in bytes from
    the first."""

    first: Value
    offset: IntLike = 0

    def __add__(self, offset: IntLike) -> Descriptors:
        return Descriptors(self.first, self.offset + offset)

    def __getitem__(self, offset: IntLike) -> Descriptor:
        return Descriptor(self.first, self.offset + offset)


@dataclass(frozen=True)
class WgmmaAtom(Pictured):
    """``wgmma.mma_async``: D (64, N) += A (64, K) B (N, K)^T by the 128 threads of a warpgroup; K
    is 32 bytes.

    Sums are in float32; those of bytes in int32, modulo 2^32.

    Attributes
    ----------
    n : int
        Columns, a multiple of 8 up to 256; of bytes, from 32 on a multiple of 16.
    element : str
        ``"float16"``, ``"bfloat16"``, ``"tfloat32"``, ``"int8"`` or ``"uint8"``.
    k_major_a, k_major_b : bool
        Which mode of A and B is contiguous in shared memory; of types that do not have 16 bits it
        is K.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import WgmmaAtom
    >>> atom = WgmmaAtom(128, "float16")
    >>> print(atom.tv_c)
    ((4,8,4),(2,2,16)):((128,1,16),(64,8,512))
    """

    n: int
    element: str
    k_major_a: bool = True
    k_major_b: bool = True

    def __post_init__(self) -> None:
        if self.n % 8 or not 8 <= self.n <= 256 or self.element not in ("float16", "bfloat16", "tfloat32", *_BYTES):
            raise CodegenError(
                "wgmma has 8 to 256 columns in steps of 8 and operands of float16, bfloat16, tfloat32, int8 or "
                f"uint8, got {self}"
            )
        if self.of_bytes and self.n > 32 and self.n % 16:
            raise CodegenError(
                f"wgmma of bytes has more than 32 columns in steps of 16, got {self}"
            )
        if (self.element == "tfloat32" or self.of_bytes) and not (self.k_major_a
                                                                  and self.k_major_b):
            raise CodegenError(f"wgmma reads {self.element} along K alone, got {self}")
        tv = self.tv_c
        if size(tv) != 64 * self.n or not is_bijective(tv):
            raise CodegenError(
                f"the accumulator layout {tv} does not cover 64 x {self.n} exactly once"
            )

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in the (64, N) tile (PTX ISA, accumulator fragments of
        wgmma.m64nNk16)."""
        return Layout(((4, 8, 4), (2, 2, self.n // 8)), ((128, 1, 16), (64, 8, 512)))

    def picture(self) -> Figure:
        """The accumulators, each as its thread and value."""
        return tv_picture(self.tv_c, (64, self.n))

    @property
    def depth(self) -> int:
        """K of the instruction."""
        return _STEP_BYTES // dtype(self.element).bytes

    @property
    def of_bytes(self) -> bool:
        """Whether it multiplies bytes."""
        return self.element in _BYTES

    @property
    def accumulator(self) -> str:
        """The type of sums."""
        return "int32" if self.of_bytes else "float32"

    @property
    def function(self) -> str:
        """The device function."""
        if self.of_bytes:
            return "wgmma_m64k32"
        return "wgmma_m64k8_tf32" if self.element == "tfloat32" else "wgmma_m64k16"

    @property
    def of(self) -> tuple[object, ...]:
        """The template arguments of the device function."""
        if self.of_bytes:
            return self.n, self.element, self.element
        majors = self.element, int(not self.k_major_a), int(not self.k_major_b)
        return (self.n,) if self.element == "tfloat32" else (self.n, *majors)


@dataclass(frozen=True)
class WgmmaMma(Partitions):
    """Warpgroups stacked along M, each multiplying its 64 rows.

    Attributes
    ----------
    atoms : tuple of WgmmaAtom
        The instructions, side by side along N.
    groups : int
        Number of warpgroups along M.
    parts : int
        Neighbouring columns of accumulators that make an element of C: 2 if they are real and
        imaginary parts.
    accumulate : bool
        Whether the first instructions of a product add to what the accumulators hold, or overwrite
        it.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import WgmmaAtom, WgmmaMma
    >>> WgmmaMma((WgmmaAtom(128, "float16"),), groups=2).tile
    (128, 128)
    """

    atoms: tuple[WgmmaAtom, ...]
    groups: int
    parts: int = 1
    accumulate: bool = True

    @property
    def accumulator(self) -> str:
        """The type of sums."""
        return self.atoms[0].accumulator

    @property
    def columns(self) -> int:
        """Columns of accumulators."""
        return sum(atom.n for atom in self.atoms)

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return 64 * self.groups, self.columns // self.parts

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in :attr:`tile`: the atom's rows in those of a warpgroup,
        its columns by their parts."""
        rows, atom = 64 * self.groups, self.atoms[0].tv_c

        def placed(position: int) -> int:
            return position % 64 + position // 64 // self.parts * rows

        threads, values = (tuple(map(placed, mode)) for mode in atom.stride)
        return Layout(((*atom.shape[0], self.groups), (2 // self.parts, 2, self.columns // 8)),
                      ((*threads, 64), values))

    def gemm(self, k: KernelBuilder, c: Tensor, a: Tensor, b: Tensor) -> None:
        """``c += a b^T`` by a warpgroup: a ``(1, K)`` and b ``(instruction along N, K)`` are
        descriptors."""
        for step in range(size(a.layout[1])):
            accumulate = int(self.accumulate or step > 0)
            for i, atom in enumerate(self.atoms):
                column, count = sum(before.n for before in self.atoms[:i]), atom.n // 2
                own = c if size(c.layout) == count else run_of(c(0, 0, column // 8), count)
                k.do(atom.function, own, a(0, step), b(i, step), accumulate, of=atom.of)


@dataclass(frozen=True)
class WgmmaRegisterMma(Partitions):
    """Warpgroups stacked along M, each multiplying its 64 rows of a 4-byte A that threads read from
    shared memory themselves.

    Which row of A is which row of the instruction is free, and so is the order along K if B has the
    same. Both are chosen so that a warp reads whole lines of a tile with the 128-byte swizzle
    without bank conflicts.

    Attributes
    ----------
    columns : int
        N of the instruction.
    groups : int
        Number of warpgroups along M.
    k_major : bool
        Which mode of A is contiguous. Threads read 4 elements together along K, else 2 along M.
    element : str
        16-bit type in which words of A and tiles of B are multiplied.
    accumulate : bool
        Whether an instruction adds to what the accumulators hold, or overwrites it.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import WgmmaRegisterMma
    >>> WgmmaRegisterMma(32, 2, True).tile
    (128, 32)
    """

    columns: int
    groups: int
    k_major: bool
    element: str = "bfloat16"
    accumulate: bool = True

    depth: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if self.columns % 8 or not 8 <= self.columns <= 256 or self.element not in ("float16", "bfloat16"):
            raise CodegenError(
                f"wgmma has 8 to 256 columns in steps of 8, and takes float16 or bfloat16 in registers: {self}"
            )

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return 64 * self.groups, self.columns

    @property
    def _eight(self) -> tuple[tuple, tuple, int]:
        """Rows of A for a warp's rows 0 to 7, (shape, stride), and the distance of the rest."""
        return ((2, 4), (4, 1), 8) if self.k_major else ((8,), (2,), 1)

    @property
    def width(self) -> int:
        """Elements of A that a thread reads together."""
        return 4 if self.k_major else 2

    @property
    def order_of_pairs(self) -> Layout:
        """Pairs along K, of 16 elements of A -> of the instruction."""
        return Layout((2, 4), (4, 1)) if self.k_major else Layout(8)

    @property
    def tv_a(self) -> Layout:
        """((thread), (value)) -> position in the (64 groups, 16) tile of A (PTX ISA, "Register
        Fragments for wgmma m64nNk16").

        The value modes are the pair's element, its half of 16 along K and the half of 16 rows, the
        ones read together first.
        """
        rows, (shape, stride, half) = 64 * self.groups, self._eight
        threads = (4, *shape, 4, self.groups), (rows * self.width, *stride, 16, 64)
        values = ((2, 2, 2), (rows, 2 * rows, half)) if self.k_major else ((2, 2, 2), (half, rows, 8 * rows))
        return Layout((threads[0], values[0]), (threads[1], values[1]))

    def word(self, row: int, half: int) -> tuple[int, int]:
        """Where a thread's values (:attr:`tv_a`) have the pair of a half of its rows and a half of
        K."""
        return (4 * row + 2 * half, 4 * row + 2 * half + 1) if self.k_major else (row + 4 * half, row + 4 * half + 2)

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in :attr:`tile`."""
        rows, (shape, stride, half) = 64 * self.groups, self._eight
        return Layout(((4, *shape, 4, self.groups), (2, 2, self.columns // 8)),
                      ((2 * rows, *stride, 16, 64), (rows, half, 8 * rows)))

    def gemm(self, k: KernelBuilder, c: Tensor, a: Tensor, b: Tensor) -> None:
        """``c += a b^T`` by a warpgroup: a is four words in registers, which keep their values
        until the instruction was waited for, and b ``(1)`` a descriptor.
        """
        k.do("wgmma_m64k16_rs", c, a, b(0), int(self.accumulate),
             of=(self.columns, self.element, 0))


def wgmma_fence(k: KernelBuilder) -> None:
    """Order accesses to registers before the instructions that follow.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import wgmma_fence
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=128, arch="sm_90a")
    >>> wgmma_fence(k)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::wgmma_fence();'
    """
    k.do("wgmma_fence")


def wgmma_commit(k: KernelBuilder) -> None:
    """Close the group of instructions issued so far.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import wgmma_commit
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=128, arch="sm_90a")
    >>> wgmma_commit(k)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::wgmma_commit();'
    """
    k.do("wgmma_commit")


def wgmma_wait(k: KernelBuilder, pending: int) -> None:
    """Wait until at most ``pending`` groups of this warpgroup's instructions are unfinished.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    pending : int
        Groups that may be unfinished.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.wgmma import wgmma_wait
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=128, arch="sm_90a")
    >>> wgmma_wait(k, 0)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::wgmma_wait<0>();'
    """
    k.do("wgmma_wait", of=pending)


def wgmma_delivered(k: KernelBuilder, accumulators: Tensor) -> None:
    """Tell the compiler that results have arrived in registers: it moves no use of them before this
    statement."""
    k.do("wgmma_delivered", accumulators)
