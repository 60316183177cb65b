"""Warp-level tensor cores: ``mma.sync`` atoms as data, warps tiled over a block, ``ldmatrix``.

An atom is its thread-value layouts; a thread's elements and ``ldmatrix`` rows follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .._dtypes import dtype
from ..layout import (
    ComposedLayout,
    Figure,
    Layout,
    Swizzle,
    Tensor,
    _,
    coalesce,
    composition,
    make_layout,
    mma_picture,
    right_inverse,
    size,
)
from ..layout.symbolic import IntLike
from .architectures import number_of
from .builder import KernelBuilder
from .engine import CodegenError
from .tiled import Partitions, Pictured, partition
from .values import Value

__all__ = ["MMA_ATOMS", "PLANES", "SIGNED_BYTES", "SPLIT_ATOMS", "UNSIGNED_BYTES", "MmaAtom",
           "RegisterPlanes", "WarpMma", "mma_atom", "operand_tile", "split_atom"]

_WARP = 32
_WORD_BYTES = 4
_CHUNK_BYTES = 16            # a row of an ldmatrix matrix; what one asynchronous copy moves at most
_LINE_BYTES = 128            # every bank once
_MATRICES = 4                # of one ldmatrix

PLANES = 3
"""bfloat16 planes of a float32 that is split in registers."""


@dataclass(frozen=True)
class MmaAtom(Pictured):
    """One ``mma.sync`` instruction: the 32 threads of a warp compute D (m, n) += A (m, k) B (n,
    k)^T.

    The atom of complex128 is one float64 instruction on real and imaginary parts, or four. The
    atoms of float32 and complex64 are six or twelve instructions on bfloat16: elements are split
    into planes in registers (:class:`RegisterPlanes`).

    Attributes
    ----------
    element, accumulator : str
        Types of A and B, and of C and D.
    shape : tuple of int
        (m, n, k).
    arch : str
        The oldest architecture that has it.
    tv_a, tv_b, tv_c : Layout
        ((lane), (value)) -> position in the (m, k), (n, k), (m, n) tile, counted
        colexicographically.

    Raises
    ------
    CodegenError
        If a layout does not cover its tile exactly once.

    References
    ----------
    PTX ISA, "Matrix Fragments for mma".

    Examples
    --------
    >>> from cuteblas.codegen.mma import mma_atom
    >>> atom = mma_atom("float16", "sm_90")
    >>> atom.shape, atom.accumulator
    ((16, 8, 16), 'float32')
    >>> print(atom.tv_c)
    ((4,8),(2,2)):((32,1),(16,8))
    """

    element: str
    accumulator: str
    shape: tuple[int, int, int]
    arch: str
    tv_a: Layout
    tv_b: Layout
    tv_c: Layout

    def __post_init__(self) -> None:
        m, n, k = self.shape
        for name, tv, tile in (("A", self.tv_a, (m, k)), ("B", self.tv_b, (n, k)),
                               ("C", self.tv_c, (m, n))):
            if size(tv[0]) != _WARP or not size(tv) == size(right_inverse(tv)) == prod(tile):
                raise CodegenError(
                    f"mma.sync {self.shape} of {self.element}: the layout {tv} of {name} does not give each of the "
                    f"{tile} elements to one lane of {_WARP}"
                )

    def picture(self) -> Figure:
        """A at the left, B above, C in the corner, each element as its lane and value."""
        return mma_picture(self.tv_a, self.tv_b, self.tv_c, self.shape)

    @property
    def per_register(self) -> int:
        """Elements of A or B in one register: a 32-bit word, or a whole element of 64 bits or
        more."""
        return max(1, _WORD_BYTES // dtype(self.element).bytes)

    @property
    def register(self) -> str:
        """Type of a register of A or B."""
        return "b32" if self.per_register > 1 else self.element

    @property
    def function(self) -> str:
        """The device function."""
        m, n, k = self.shape
        return f"{'split_' * self.splits}{'complex_' * dtype(self.element).is_complex}mma_m{m}n{n}k{k}"

    @property
    def apart(self) -> tuple[int, int]:
        """Rows of A, and of B, between those of a group of 4 lanes and of the next one."""
        return self.tv_a(4), self.tv_b(4)

    @property
    def of_words(self) -> MmaAtom:
        """The same layouts of the words that elements of A and B make: registers in place of
        elements."""
        m, n, k = self.shape
        return _atom("b32", self.accumulator, (m, n, k // self.per_register), self.arch)

    @property
    def splits(self) -> bool:
        """Whether it multiplies planes of its operands (:class:`RegisterPlanes`)."""
        return dtype(self.element).part.bytes == _WORD_BYTES


def _atom(element: str, accumulator: str, shape: tuple[int, int, int], arch: str, together: int = 0,
          columns: tuple[int, int] = (2, 1)) -> MmaAtom:
    """The atom of a shape."""
    # A lane holds, of A and B, what is at row ``lane / 4`` in one register, or in so many
    # ``together``, at ``k = lane % 4`` of them; then 8 rows further; then 4 further along k. Of C
    # it holds pairs along n: the instruction's columns ``2 (lane % 4)`` and the next are
    # ``columns`` apart in C, from lane to lane and in a pair, and so are the rows of B.
    m, n, k = shape
    packed = together or max(1, _WORD_BYTES // dtype(element).bytes)
    lanes, pair = columns

    def operand(rows: int, along: tuple[tuple[int, ...], tuple[int, ...]] = ((8,), (1,))) -> Layout:
        return Layout(((4, *along[0]), (packed, rows // 8, k // (4 * packed))),
                      ((packed * rows, *along[1]), (rows, 8, 4 * packed * rows)))

    tv_b = operand(n) if columns == (2, 1) else operand(n, ((2, 4), (pair, lanes)))
    tv_c = Layout(((4, 8), (2, m // 8)), ((lanes * m, 1), (pair * m, 8)))
    return MmaAtom(element, accumulator, shape, arch, operand(m), tv_b, tv_c)


SIGNED_BYTES = _atom("int8", "int32", (16, 8, 32), "sm_80")

MMA_ATOMS = (
    _atom("float16", "float32", (16, 8, 16), "sm_80"),
    _atom("float16", "float32", (16, 8, 8), "sm_75"),
    _atom("bfloat16", "float32", (16, 8, 16), "sm_80"),
    SIGNED_BYTES,
    _atom("float64", "float64", (16, 8, 8), "sm_90"),
    _atom("float64", "float64", (8, 8, 4), "sm_80"),
    # Neighbouring lanes have neighbouring elements of C, of which two fill a sector.
    _atom("complex128", "complex128", (8, 8, 8), "sm_90", columns=(1, 4)),
    _atom("complex128", "complex128", (8, 8, 4), "sm_80", columns=(1, 4)),
)
"""The best atom of a type on an architecture comes first."""

UNSIGNED_BYTES = _atom("uint8", "int32", (16, 8, 32), "sm_80")
"""Bytes from 0 to 255, for kernels that ask for it: NumPy's uint8 has other sums."""

SPLIT_ATOMS = (
    _atom("float32", "float32", (16, 8, 16), "sm_80", together=2),
    _atom("complex64", "complex64", (16, 8, 8), "sm_80"),
)
"""Atoms of elements that are split into bfloat16, with less range than the type has."""


def _best(atoms: tuple[MmaAtom, ...], element: str, arch: str) -> MmaAtom | None:
    return next((a for a in atoms if a.element == element
                 and number_of(a.arch) <= number_of(arch)), None)


def mma_atom(element: str, arch: str) -> MmaAtom | None:
    """The instruction for a type on an architecture, or ``None`` if there is none.

    Parameters
    ----------
    element : str
        The type of A and B.
    arch : str
        ``"sm_80"``, ``"sm_90"`` ...

    Returns
    -------
    MmaAtom or None
        The instruction.

    Examples
    --------
    >>> from cuteblas.codegen.mma import mma_atom
    >>> mma_atom("float16", "sm_90").shape, mma_atom("float32", "sm_90") is None
    ((16, 8, 16), True)
    """
    return _best(MMA_ATOMS, element, arch)


def split_atom(element: str, arch: str) -> MmaAtom | None:
    """The instructions on planes of bfloat16 for a type on an architecture, or ``None`` if there
    are none.

    Parameters
    ----------
    element : str
        The type of A and B.
    arch : str
        ``"sm_80"``, ``"sm_90"`` ...

    Returns
    -------
    MmaAtom or None
        The instructions.

    Examples
    --------
    >>> from cuteblas.codegen.mma import split_atom
    >>> split_atom("complex64", "sm_90").shape, split_atom("float64", "sm_90") is None
    ((16, 8, 8), True)
    """
    return _best(SPLIT_ATOMS, element, arch)


def _placed(tv: Layout, atom: tuple[int, int], rows: int) -> Layout:
    """A layout of an atom's tile as one of the same corner of a tile with ``rows`` rows."""
    return composition(Layout(atom, (1, rows)), tv)


@dataclass(frozen=True)
class WarpMma(Partitions):
    """The warps of a block, each multiplying a block of atoms: block tile, warp tile and atom as
    one nested layout.

    The block is compact along a mode, unless a warp has an odd number of atoms there: then atoms of
    the warps follow each other, so that all of a warp are equally far from a multiple of two atoms,
    as swizzled rows of two atoms need.

    Attributes
    ----------
    atom : MmaAtom
        The instruction.
    warps : tuple of int
        Warps along (M, N), M fastest.
    atoms : tuple of int
        Atoms that a warp owns along (M, N).
    conj_b : bool
        Whether products conjugate the complex elements of B.

    Examples
    --------
    >>> from cuteblas.codegen.mma import WarpMma, mma_atom
    >>> mma = WarpMma(mma_atom("float16", "sm_90"), warps=(2, 2), atoms=(2, 4))
    >>> mma.tile
    (64, 64)
    """

    atom: MmaAtom
    warps: tuple[int, int]
    atoms: tuple[int, int]
    conj_b: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _WARP * prod(self.warps)

    @property
    def depth(self) -> int:                                     # type: ignore[override]
        """K of the instruction."""
        return self.atom.shape[2]

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Extents (M, N) of the part of C that a warp owns."""
        return self.atom.shape[0] * self.atoms[0], self.atom.shape[1] * self.atoms[1]

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return self.warp_tile[0] * self.warps[0], self.warp_tile[1] * self.warps[1]

    def _steps(self, mode: int) -> tuple[int, int]:
        """Rows (or columns) from a warp to the next, and from an atom of a warp to its next."""
        step, warps, atoms = self.atom.shape[mode], self.warps[mode], self.atoms[mode]
        return (step, step * warps) if atoms % 2 and atoms > 1 else (step * atoms, step)

    @cached_property
    def tv_c(self) -> Layout:
        """((lane, warp m, warp n), (atom value, atom m, atom n)) -> position in the (M, N) tile."""
        (m, n, _), (tile_m, _) = self.atom.shape, self.tile
        (warp_m, atom_m), (warp_n, atom_n) = self._steps(0), self._steps(1)
        tv = _placed(self.atom.tv_c, (m, n), tile_m)
        return make_layout(make_layout(tv[0], Layout(self.warps, (warp_m, warp_n * tile_m))),
                           make_layout(tv[1], Layout(self.atoms, (atom_m, atom_n * tile_m))))

    def _operand(self, mode: int) -> Layout:
        """((lane, warp m, warp n), (atom value, atom)) -> position along M or N, and k."""
        rows, (of_warp, of_atom) = self.tile[mode], self._steps(mode)
        tv = _placed((self.atom.tv_a, self.atom.tv_b)[mode], (self.atom.shape[mode], self.depth), rows)
        warps = tuple(of_warp if i == mode else 0 for i in range(2))
        return make_layout(make_layout(tv[0], Layout(self.warps, warps)),
                           make_layout(tv[1], Layout(self.atoms[mode], of_atom)))

    def matrices(self, mode: int, k_major: bool) -> Layout | None:
        """How ``ldmatrix`` loads an operand: ((thread), (row of 16 bytes, matrix quadruple)) ->
        position in its tile.

        The lanes 8 j .. 8 j + 7 address the rows of matrix j, which becomes register j of every
        lane. So the layout is the operand's own, seen through a permutation of (thread, value): a
        row of a matrix is what 4 neighbouring lanes hold in one register (the transposing form:
        what the 8 lanes of a column hold).

        Returns
        -------
        Layout or None
            ``None`` if there is no such load: for 64-bit elements, for transposed 8-bit ones, or
            where a warp's registers are not quadruples.
        """
        packed, tv = self.atom.per_register, (self.tv_a, self.tv_b)[mode]
        registers = size(tv[1]) // packed
        if packed == 1 or (packed == 4 and not k_major) or registers % _MATRICES:
            return None
        lane, value, warps = 1, self.threads, prod(self.warps)
        register = packed * value
        groups = registers // _MATRICES
        groups_of_lanes, within = Layout(8, 4 * lane), Layout((packed, 4), (value, lane))
        row, along = (groups_of_lanes, within) if k_major else (within, groups_of_lanes)
        permutation = make_layout(make_layout(row, Layout((_MATRICES, warps), (register, _WARP))),
                                  make_layout(along, Layout(groups, _MATRICES * register)))
        return composition(tv, permutation)

    def partition_rows(self, tensor: Tensor, mode: int, rows: Layout, thread: IntLike) -> Tensor:
        """The rows of A (mode 0) or B (1) that ``thread`` addresses for ``ldmatrix``, shape
        ``(row, quadruple, k steps, ...)``."""
        part = partition(tensor, (self.tile[mode], self.depth), rows, thread)
        return part.map_domain(lambda layout: make_layout(*layout[0], *list(layout)[2:]))

    @cached_property
    def tv_quads(self) -> Layout:
        """((lane, warps), (run of 4, half, atom m, pair of atoms n)) -> position in the (M, N)
        tile, after :meth:`exchange`.

        It is that of C with the lowest bit of a lane and the lowest bit of an atom's number along N
        exchanged.
        """
        threads, halves = self.threads, self.atom.shape[0] // 8
        atom_m = 2 * halves * threads
        atom_n = atom_m * self.atoms[0]
        permutation = make_layout(make_layout(Layout(2, atom_n), Layout(threads // 2, 2)),
                                  make_layout(Layout((2, 2), (threads, 1)),
                                              Layout(halves, 2 * threads),
                                              Layout(self.atoms[0], atom_m),
                                              Layout(self.atoms[1] // 2, 2 * atom_n)))
        tv = composition(self.tv_c, permutation)
        return make_layout(tv[0], make_layout(coalesce(tv[1][0]), *list(tv[1])[1:]))

    def partition_quads(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of C (M, N) that ``thread`` has after :meth:`exchange`, shape
        ``(run of 4, half, atom m, pair of atoms n)``."""
        return partition(tensor, self.tile, self.tv_quads, thread)[(_, _, _, _), 0, 0]

    def exchange(self, k: KernelBuilder, c: Tensor, thread: IntLike) -> Tensor:
        """Pairs along N become runs of four: each lane gives its neighbour a pair of one of two
        atoms for one of the other.

        Parameters
        ----------
        k : KernelBuilder
            The kernel.
        c : Tensor
            ``(value, atom m, atom n)`` in registers, with an even number of atoms along N.
        thread : IntLike
            The thread.

        Returns
        -------
        Tensor
            The same registers as ``(run, half, atom m, pair of atoms)``: they are at
            :attr:`tv_quads` now.
        """
        halves, of_m, of_n = self.atom.shape[0] // 8, *self.atoms
        odd, values = k.let("odd", thread % 2), 2 * halves
        runs = Tensor(c.engine, Layout(((2, 2), halves, of_m, of_n // 2),
                                       ((1, values * of_m), 2, values, 2 * values * of_m)))
        given = k.registers("tCrG", c.engine.dtype.name, 2)
        with k.loops((halves, of_m, of_n // 2)) as at:
            for i in range(2):
                first, second = (runs((i, atom), *at) for atom in range(2))
                k.assign(given(i), second)
                with k.when(odd > 0):
                    k.assign(given(i), first)
                k.assign(given(i), k.call("shuffle_xor", given(i), 1))
                with k.when(odd > 0):
                    k.assign(first, given(i))
                with k.otherwise():
                    k.assign(second, given(i))
        return runs

    def gemm(self, k: KernelBuilder, c: Tensor, a: Tensor, b: Tensor) -> None:
        """``c += a b^T`` on the fragments of a warp: c ``(value, atom m, atom n)``, a and b
        registers ``(register, atom)``."""
        # An element of A fills four registers: hold those of one atom at a time.
        spread = dtype(self.atom.element).is_complex and not self.atom.splits
        with k.loops(self.atoms[::-1] if spread else self.atoms) as at:
            m, n = at[::-1] if spread else at
            of = self.conj_b if dtype(self.atom.element).is_complex else () if self.atom.splits else self.atom.element
            first = (0, 0) if self.atom.splits else (0,)
            k.do(self.atom.function, c(0, m, n), a(*first, m), b(*first, n), of=of)


class RegisterPlanes:
    """The planes of an operand in registers: pairs along K of float32, or the parts of a complex
    number, as three bfloat16 each.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    name : str
        The name of the planes.
    atom : MmaAtom
        One of :data:`SPLIT_ATOMS`.
    count : int
        Elements of the operand that a thread holds for an atom.
    atoms : int
        The number of atoms.

    Attributes
    ----------
    planes : Tensor
        (word of a pair, plane, atom).

    Examples
    --------
    >>> from cuteblas.codegen.mma import RegisterPlanes, split_atom
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_80")
    >>> print(RegisterPlanes(k, "planes", split_atom("float32", "sm_80"), 8, 2).planes.layout)
    (4,3,2):(1,4,12)
    """

    def __init__(self, k: KernelBuilder, name: str, atom: MmaAtom, count: int, atoms: int):
        self._k, self._complex = k, dtype(atom.element).is_complex
        self._pairs = count if self._complex else count // 2
        self.planes = k.registers(name, "uint32", (self._pairs, PLANES, atoms))
        self._atoms = atoms

    def split(self, elements: Tensor, seen: Sequence[Value]) -> None:
        """Split the elements (value, atom) of a step; ``seen`` keeps their range."""
        k = self._k
        with k.loops((self._pairs, self._atoms)) as (i, atom):
            x = elements(i, atom) if self._complex else elements(2 * i, atom)
            parts = (x.re, x.im) if self._complex else (x, elements(2 * i + 1, atom))
            k.do("split_pair", *parts, *(self.planes(i, plane, atom) for plane in range(PLANES)),
                 *seen)


def operand_tile(extent: int, depth: int, element: str, k_major: bool,
                 apart: int = 1) -> ComposedLayout:
    """The swizzled layout of an (extent, depth) operand tile in shared memory, without bank
    conflicts in copies or fragment loads.

    Rows of at most 128 bytes along whichever mode is contiguous in global memory. For ``ldmatrix``,
    16-byte chunks are permuted by the row: 8 rows at the same chunk meet every bank once. 64-bit
    elements are loaded one by one, 4 along each mode by 16 lanes: there, 32-byte chunks are
    permuted. 128-bit elements are loaded 2 along the rows of the operand and 4 along K by 8 lanes:
    single ones are permuted where rows run along K; where they do not, pairs, or single ones if the
    rows are 4 ``apart``.

    Parameters
    ----------
    extent : int
        Rows of A, or columns of B.
    depth : int
        Extent along K.
    element : str
        The type of the elements.
    k_major : bool
        Whether K is the contiguous mode in global memory.
    apart : int
        Rows from one group of 4 lanes to the next: 1, or 4 for 128-bit elements.

    Returns
    -------
    ComposedLayout
        From (row, k) to a place in shared memory, in elements.

    Raises
    ------
    CodegenError
        If the contiguous extent does not divide into rows of a power of two of elements.

    Examples
    --------
    >>> from cuteblas.codegen.mma import operand_tile
    >>> print(operand_tile(128, 64, "float16", k_major=True))
    S<3,3,3> o 0 o (128,(64,1)):(64,(1,8192))
    """
    item = dtype(element).bytes
    contiguous = depth if k_major else extent
    row = min(contiguous, _LINE_BYTES // item)
    if contiguous % row or row & (row - 1):
        raise CodegenError(
            f"a tile of {extent} x {depth} {element} does not divide into rows of a power of two "
            f"up to {_LINE_BYTES} bytes"
        )
    slabs = contiguous // row
    if k_major:
        inner = Layout((extent, (row, slabs)), (row, (1, row * extent)))
    else:
        inner = Layout(((row, slabs), depth), ((1, row * depth), row))
    if item == 16:
        by_rows, across = (Swizzle(1, 2, 1), Swizzle(2, 1, 2)) if apart == 1 else (Swizzle(1, 2, 3), Swizzle(2, 0, 3))
        return ComposedLayout(by_rows if k_major else across, 0, inner)
    if item == 8:
        return ComposedLayout(Swizzle(2, 2, 2), 0, inner)
    bits = max(0, (row * item // _CHUNK_BYTES).bit_length() - 1)
    chunk = (_CHUNK_BYTES // item).bit_length() - 1
    return ComposedLayout(Swizzle(bits, chunk, 3), 0, inner)
