"""Hopper's instructions for the builder: mbarriers, tensor-map copies, warpgroup matrix multiplications.

Boxes and matrix descriptors are derived from the swizzled layout of the tile in shared memory and checked against the hardware's
canonical layouts, coordinate by coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..layout import ArithTuple, ComposedLayout, Figure, Layout, Swizzle, Tensor, coalesce, flatten, is_bijective, size, tv_picture
from ..layout.symbolic import IntLike, bits_of, ceil_div, minimum, to_c
from .builder import KernelBuilder
from .dtypes import dtype
from .engine import CodegenError, Pointer
from .kernel import TensorMapSpec
from .tiled import partition

__all__ = ["MatrixDescriptor", "Mbarriers", "TmaBox", "WgmmaAtom", "WgmmaMma", "WgmmaOperand", "WgmmaRegisterMma",
           "operand_layout", "store_async", "swizzle_over", "tma_load", "tma_store", "tma_store_wait", "wgmma",
           "wgmma_on_registers"]

_ROW_BYTES = 128                    # one row of the 128-byte swizzle
_MOST_BOX = 256                     # elements of a box along a mode
_STEP_BYTES = 32                    # of a row along K that one matrix instruction multiplies
_CHUNK = 16                         # bytes that a swizzle moves as one; innermost coordinates are multiples
_SWIZZLE_SPAN = {1: 32, 2: 64, 3: 128}


class Mbarriers:
    """An array of mbarriers in shared memory, one for each stage of a ring (PTX ISA, "mbarrier").

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    name : str
        The array's name.
    count : int
        Number of barriers.
    """

    def __init__(self, k: KernelBuilder, name: str, count: int):
        self._k, self.count = k, count
        self._tensor = k.shared(name, "b64", Layout(count), alignment=8)

    def _at(self, stage: IntLike) -> str:
        return self._tensor(stage).address

    def init(self, stage: IntLike, arrivals: int) -> None:
        """Initialise for ``arrivals`` arrivals a phase; one thread does this, then :meth:`publish`."""
        self._k.emit(f"cb::mbarrier_init({self._at(stage)}, {arrivals});")

    def publish(self) -> None:
        """Make initialised barriers visible to the asynchronous proxy."""
        self._k.emit("cb::mbarrier_init_fence();")

    def arrive(self, stage: IntLike) -> None:
        """Arrive once."""
        self._k.emit(f"cb::mbarrier_arrive({self._at(stage)});")

    def arrive_at(self, stage: IntLike, rank: IntLike) -> None:
        """Arrive once at the barrier of the block with this rank in the cluster.

        That tells it that asynchronous operations are done; it makes no ordinary writes visible.
        """
        self._k.emit(f"cb::mbarrier_arrive_at({self._at(stage)}, {to_c(rank)});")

    def expect(self, stage: IntLike, nbytes: int) -> None:
        """Arrive once and let the phase also wait for ``nbytes`` of asynchronous copies."""
        self._k.emit(f"cb::mbarrier_arrive_expect_tx({self._at(stage)}, {nbytes});")

    def wait(self, stage: IntLike, parity: IntLike) -> None:
        """Wait until the phase with this parity has completed."""
        self._k.emit(f"cb::mbarrier_wait({self._at(stage)}, {to_c(parity)});")

    def address(self, stage: IntLike) -> str:
        """The C++ address of one barrier, for copies that complete on it."""
        return self._at(stage)


def store_async(k: KernelBuilder, word: str, target: Tensor, rank: IntLike, barrier: str) -> None:
    """Store a word of 4 bytes into the block with this rank in the cluster (PTX ISA, "st.async").

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    word : str
        What is stored.
    target : Tensor
        Where, one element: as it lies in this block's shared memory.
    rank : int or Expr
        Of the block. It must have begun, and may not end before the word is there.
    barrier : str
        The mbarrier on which this completes, as it lies in this block; that of the other one is meant.
    """
    if target.engine.space != "smem" or target.engine.dtype.bytes != 4 or size(target.layout) != 1:
        raise CodegenError(f"a word is stored into shared memory, got {target}")
    k.emit(f"cb::store_async({target(0).address}, {word}, {to_c(rank)}, {barrier});")


def swizzle_over(span: int, element: str) -> Swizzle:
    """The hardware's swizzle over rows of 128, 64 or 32 bytes."""
    bits = {nbytes: bits for bits, nbytes in _SWIZZLE_SPAN.items()}[span]
    return Swizzle(bits, (_CHUNK // dtype(element).bytes).bit_length() - 1, 3)


def operand_layout(extent: int, depth: int, element: str, k_major: bool, row_bytes: int = _ROW_BYTES) -> ComposedLayout:
    """The swizzled layout of an (extent, depth) operand tile in shared memory.

    Rows have 128 bytes: 64 elements of a 16-bit type, 32 of a 32-bit one. K-major: slabs of one row along K, each ``extent`` rows.
    MN-major: slabs of one row along M (or N), each ``depth`` rows, which may also have 64 or 32 bytes.
    """
    row = row_bytes // dtype(element).bytes
    if k_major:
        if depth % row:
            raise CodegenError(f"a K-major tile of {element} is a multiple of {row} deep, got {depth}")
        slabs = Layout((row, depth // row), (1, row * extent)) if depth > row else Layout(row)
        inner = Layout((extent, slabs.shape), (row, slabs.stride))
    else:
        if extent % row:
            raise CodegenError(f"an MN-major tile of {element} is a multiple of {row} wide, got {extent}")
        inner = Layout(((row, extent // row), depth), ((1, row * depth), row))
    return ComposedLayout(swizzle_over(row_bytes, element), 0, inner)


@dataclass(frozen=True)
class TmaBox:
    """How TMA moves a tile between global and shared memory: a box, repeated.

    Attributes
    ----------
    element : str
        Element type.
    layout : ComposedLayout
        The tile in shared memory, in elements: one mode for each tiled mode of the tensor. Its swizzle is one of the hardware's, or
        the identity ``Swizzle(0, 0, 0)``.
    most : int
        Elements that a box has along a mode at most.
    """

    element: str
    layout: ComposedLayout
    most: int = _MOST_BOX

    @cached_property
    def _modes(self) -> list[tuple[int, int, int, int]]:
        """(stride in shared memory, extent, tile mode, step in that mode) of every flat mode, by stride."""
        modes = []
        for which in range(self.layout.rank):
            mode = coalesce(self.layout.inner[which])
            step = 1
            for n, d in zip(_leaves(mode.shape), _leaves(mode.stride), strict=True):
                boxes = next((i for i in range(1, n) if n % i == 0 and n // i <= self.most), 1)
                if n > 1:
                    modes.append((d, n // boxes, which, step))
                if boxes > 1:
                    modes.append((d * n // boxes, boxes, which, step * n // boxes))
                step *= n
        modes.sort()
        filled = [1, *(d * n for d, n, *_ in modes)]
        if not modes or any(d < end for (d, *_), end in zip(modes, filled, strict=False)):
            raise CodegenError(f"TMA fills shared memory once; elements of {self.layout} lie in the same places")
        return modes

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The modes of the tile as a tensor map lists them: by stride in shared memory, the innermost first."""
        inside = [which for _, _, which, _ in self._modes[:self._flat]]
        return (*inside, *(i for i in range(self.layout.rank) if i not in inside))

    @cached_property
    def _flat(self) -> int:
        """How many flat modes make the box: as long as each is the dense part of another mode of the tile."""
        seen: set[int] = set()
        for i, (_, _, which, step) in enumerate(self._modes):
            if which in seen or step != 1:
                return i
            seen.add(which)
        return len(self._modes)

    @property
    def inner_mode(self) -> int:
        """The tile mode that is contiguous in global memory."""
        return self.order[0]

    @property
    def box(self) -> tuple[int, ...]:
        """Extents of the box, innermost first."""
        extents = [n for _, n, *_ in self._modes[:self._flat]]
        if [d for d, *_ in self._modes[:self._flat]] != [prod(extents[:i]) for i in range(len(extents))]:
            raise CodegenError(f"a box fills shared memory densely; {self.layout} is not compact")
        return (*extents, *(1 for _ in self.order[len(extents):]))

    @property
    def rows(self) -> int:
        """Extent of the box along the tile's first mode."""
        return self.box[self.order.index(0)]

    @property
    def swizzle(self) -> int:
        """Span of the swizzle in bytes, 0 without one."""
        swizzle = self.layout.swizzle
        if swizzle.bits == 0:
            return 0
        item = dtype(self.element).bytes
        if (1 << swizzle.base) * item != _CHUNK or swizzle.shift != 3 or swizzle.bits not in _SWIZZLE_SPAN:
            raise CodegenError(f"TMA has no swizzle {swizzle} for {self.element}")
        span = _SWIZZLE_SPAN[swizzle.bits]
        if self.box[0] * item != span:
            raise CodegenError(f"a swizzle over {span} bytes takes rows of {span} bytes, {self.layout} has {self.box[0] * item}")
        return span

    @property
    def repeats(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """For each box its offset in shared memory (elements), and the steps along the modes of the tile."""
        modes = len(self.order)
        boxes = [(0, (0,) * modes)]
        for d, n, which, step in self._modes[self._flat:]:
            boxes = [(offset + i * d, (*steps[:which], steps[which] + i * step, *steps[which + 1:]))
                     for i in range(n) for offset, steps in boxes]
        alignment = max(_ROW_BYTES, 8 * self.swizzle)
        if any(offset * dtype(self.element).bytes % alignment for offset, _ in boxes):
            raise CodegenError(f"boxes begin at multiples of {alignment} bytes, those of {self.layout} do not")
        return tuple(boxes)

    @property
    def nbytes(self) -> int:
        """Bytes that filling the tile transfers."""
        return size(self.layout.inner) * dtype(self.element).bytes

    def map(self, extents: tuple[int, ...], strides: tuple[int, ...]) -> TensorMapSpec:
        """The tensor map over a tensor with the modes of the tile, then batch modes.

        Strides are in elements; that of the inner mode is 1. Batch modes with stride 0 are left out: every batch index reads the
        same memory.
        """
        item, tiled = dtype(self.element).bytes, len(self.order)
        order = [*self.order, *(i for i in range(tiled, len(extents)) if strides[i] != 0)]
        return TensorMapSpec(dtype(self.element), tuple(max(1, extents[i]) for i in order),
                             tuple(strides[i] * item for i in order[1:]), (*self.box, *(1 for _ in order[tiled:])), self.swizzle)


def _leaves(x) -> tuple[int, ...]:
    return tuple(flatten(x)) if isinstance(x, tuple) else (x,)


def _boxes(box: TmaBox, corner: ArithTuple, tile: Tensor, extent: IntLike | None = None) -> Iterator[tuple[str, str]]:
    """Address in shared memory and coordinates, innermost first, of every box of a tile, as C++."""
    pointer: Pointer = tile.engine
    base = tile.layout.offset if isinstance(tile.layout, ComposedLayout) else 0
    scale = dtype(box.element).bytes
    for offset, steps in box.repeats:
        at = [c + s for c, s in zip(corner, steps, strict=False)]
        if extent is not None:
            at[0] = minimum(at[0], (ceil_div(extent, box.rows) - 1) * box.rows)
        coordinates = [*(at[i] for i in box.order), *list(corner)[len(steps):]]
        if bits_of(coordinates[0]) * scale % _CHUNK:
            raise CodegenError(f"the innermost coordinate of a TMA copy is a multiple of {_CHUNK} bytes, which "
                               f"{to_c(coordinates[0])} elements of {scale} bytes are not provably")
        yield pointer[base + offset * scale // pointer.dtype.bytes].address, ", ".join(to_c(c) for c in coordinates)


def tma_load(k: KernelBuilder, tensor_map: str, box: TmaBox, corner: ArithTuple, tile: Tensor, barrier: str,
             blocks: IntLike | None = None, extent: IntLike | None = None) -> None:
    """Fill a tile of shared memory; completes ``box.nbytes`` on ``barrier``.

    Parameters
    ----------
    corner : ArithTuple
        Coordinate (the modes of the tile, then batch modes) of the tile's first element in the tensor. Along the innermost mode it
        must be a multiple of 16 bytes: the hardware takes nothing else, even where the box ends outside of the tensor.
    tile : Tensor
        The tile; its layout is ``box.layout``, perhaps in words of several elements.
    blocks : int, optional
        A set of blocks of the cluster, bit i for rank i: the tile of each of them is filled, and its barrier completed.
    extent : int, optional
        Of the tensor along the first mode of the tile, if what comes from beyond it is not used: a box that begins there brings
        the last one before it instead, which takes less time than zeros.
    """
    for address, coordinates in _boxes(box, corner, tile, extent):
        if blocks is None:
            k.emit(f"cb::tma_load({address}, &{tensor_map}, {barrier}, {coordinates});")
        else:
            k.emit(f"cb::tma_load_multicast({address}, &{tensor_map}, {barrier}, {to_c(blocks)}, {coordinates});")


def tma_store(k: KernelBuilder, tensor_map: str, box: TmaBox, corner: ArithTuple, tile: Tensor) -> None:
    """Write a tile of shared memory to global memory, as one group of copies; elements outside of the tensor are left out.

    Ordinary writes to the tile need a ``cb::fence_proxy_async()`` by their thread before; TMA's own do not. Parameters are those of
    :func:`tma_load`.
    """
    for address, coordinates in _boxes(box, corner, tile):
        k.emit(f"cb::tma_store(&{tensor_map}, {address}, {coordinates});")
    k.emit("cb::tma_store_commit();")


def tma_store_wait(k: KernelBuilder, pending: int = 0) -> None:
    """Wait until at most ``pending`` groups of this thread's stores still read shared memory."""
    k.emit(f"cb::tma_store_wait_read<{pending}>();")


@dataclass(frozen=True)
class WgmmaOperand:
    """One operand tile of ``wgmma`` in shared memory, and its matrix descriptor.

    Attributes
    ----------
    element : str
        16-bit element type, or ``"tfloat32"``, which is K-major.
    layout : ComposedLayout
        The (MN, K) tile that one instruction (or several along K) reads; that of :func:`operand_layout`.
    k_major : bool
        Which mode is contiguous.
    """

    element: str
    layout: ComposedLayout
    k_major: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, over which the layout is swizzled."""
        span = _SWIZZLE_SPAN.get(self.layout.swizzle.bits)
        if span is None or self.layout.swizzle != swizzle_over(span, self.element):
            raise CodegenError(f"wgmma has no descriptor for {self.layout}: its swizzle is none of the hardware's")
        return span

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """Leading and stride byte offsets of the descriptor (PTX ISA, "Matrix descriptor")."""
        inner, item, row = self.layout.inner, dtype(self.element).bytes, self.row_bytes // dtype(self.element).bytes
        extent = size(inner[0])
        if self.k_major:
            leading, stride = 16, (inner((8, 0)) if extent > 8 else 8 * row) * item
        else:
            leading, stride = (inner((row, 0)) * item if extent > row else 16), inner((0, 8)) * item
        self._check(leading, stride)
        return leading, stride

    def _check(self, leading: int, stride: int) -> None:
        """Compare the layout with the canonical layout that the descriptor describes, along both modes of one instruction.

        A value is the sum of what both modes contribute, so both layouts are the same where these are.
        """
        item, row = dtype(self.element).bytes, self.row_bytes // dtype(self.element).bytes
        extent, depth = size(self.layout.inner[0]), _STEP_BYTES // item
        if self.k_major:
            canonical = Layout(((8, max(1, extent // 8)), depth), ((row, stride // item), 1))
        else:
            canonical = Layout(((row, max(1, extent // row)), (8, 2)), ((1, leading // item), (row, stride // item)))
        along = [*((m, 0) for m in range(extent)), *((0, d) for d in range(1, depth))]
        wrong = [at for at in along if canonical(*at) != self.layout.inner(*at)]
        if wrong:
            raise CodegenError(f"wgmma has no descriptor for {self.layout}: it departs from the canonical layout {canonical} "
                               f"at {wrong[:1]}")

    def step_bytes(self, k: int, row: int = 0) -> int:
        """Bytes by which the start address advances to the instruction at depth ``k``, and whose rows begin at ``row``."""
        if row % (8 if self.k_major else self.row_bytes // dtype(self.element).bytes):
            raise CodegenError(f"rows of {self.layout} that an instruction reads do not begin at {row}")
        return self.layout.inner((row, k)) * dtype(self.element).bytes


class MatrixDescriptor:
    """The matrix descriptor of a ring of operand tiles, computed once and advanced to a stage and a depth.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    name : str
        The descriptor's name.
    ring : Tensor
        The tiles in shared memory, (MN, K, stage).
    operand : WgmmaOperand
        What every tile is.
    """

    def __init__(self, k: KernelBuilder, name: str, ring: Tensor, operand: WgmmaOperand):
        self._name, self._operand = name, operand
        self._stage_bytes = ring.layout.inner((0, 0, 1)) * dtype(operand.element).bytes
        leading, stride = operand.offsets
        start = ring(0, 0, 0).address
        k.emit(f"unsigned long long const {name} = cb::wgmma_descriptor({start}, {leading}, {stride}, {operand.row_bytes});")

    def at(self, stage: IntLike, depth: int, row: int = 0) -> str:
        """The C++ expression of the descriptor at ``row`` and ``depth`` in the tile of a stage."""
        step = self._operand.step_bytes(depth, row)
        return f"cb::wgmma_descriptor_advance({self._name}, {to_c(stage * self._stage_bytes + step)})"


@dataclass(frozen=True)
class WgmmaAtom:
    """``wgmma.mma_async``: D (64, N) += A (64, K) B (N, K)^T by the 128 threads of a warpgroup, in float32; K is 32 bytes.

    Attributes
    ----------
    n : int
        Columns, a multiple of 8 up to 256.
    element : str
        ``"float16"``, ``"bfloat16"`` or ``"tfloat32"``.
    k_major_a, k_major_b : bool
        Which mode of A and B is contiguous in shared memory; of ``"tfloat32"`` it is K.
    """

    n: int
    element: str
    k_major_a: bool = True
    k_major_b: bool = True

    def __post_init__(self) -> None:
        if self.n % 8 or not 8 <= self.n <= 256 or self.element not in ("float16", "bfloat16", "tfloat32"):
            raise CodegenError(f"wgmma has 8 to 256 columns in steps of 8 and float16, bfloat16 or tfloat32 operands, got {self}")
        if self.element == "tfloat32" and not (self.k_major_a and self.k_major_b):
            raise CodegenError(f"wgmma reads tfloat32 along K alone, got {self}")
        tv = self.tv_c
        if size(tv) != 64 * self.n or not is_bijective(tv):
            raise CodegenError(f"the accumulator layout {tv} does not cover 64 x {self.n} exactly once")

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in the (64, N) tile (PTX ISA, accumulator fragments of wgmma.m64nNk16)."""
        return Layout(((4, 8, 4), (2, 2, self.n // 8)), ((128, 1, 16), (64, 8, 512)))

    def picture(self) -> Figure:
        """The accumulators, each as its thread and value."""
        return tv_picture(self.tv_c, (64, self.n))

    def _repr_svg_(self) -> str:
        return self.picture().svg()

    @property
    def depth(self) -> int:
        """K of the instruction."""
        return _STEP_BYTES // dtype(self.element).bytes

    @property
    def call(self) -> str:
        """The prelude function."""
        if self.element == "tfloat32":
            return f"cb::wgmma_m64k8_tf32<{self.n}>"
        return f"cb::wgmma_m64k16<{self.n}, {dtype(self.element).ctype}, {int(not self.k_major_a)}, {int(not self.k_major_b)}>"


@dataclass(frozen=True)
class WgmmaMma:
    """Warpgroups stacked along M, each multiplying its 64 rows.

    Attributes
    ----------
    atoms : tuple of WgmmaAtom
        The instructions, side by side along N.
    groups : int
        Number of warpgroups along M.
    parts : int
        Neighbouring columns of accumulators that make an element of C: 2 if they are real and imaginary parts.
    """

    atoms: tuple[WgmmaAtom, ...]
    groups: int
    parts: int = 1

    @property
    def columns(self) -> int:
        """Columns of accumulators."""
        return sum(atom.n for atom in self.atoms)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first column of each instruction."""
        return tuple(sum(atom.n for atom in self.atoms[:i]) for i in range(len(self.atoms)))

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return 64 * self.groups, self.columns // self.parts

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in :attr:`tile`: the atom's rows in those of a warpgroup, its columns by their parts."""
        rows, atom = 64 * self.groups, self.atoms[0].tv_c

        def placed(position: int) -> int:
            return position % 64 + position // 64 // self.parts * rows

        threads, values = (tuple(map(placed, mode)) for mode in atom.stride)
        return Layout(((*atom.shape[0], self.groups), (2 // self.parts, 2, self.columns // 8)), ((*threads, 64), values))

    def partition_c(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of C (M, N) that ``thread`` owns, shape ``((2, 2, N/8), rest_m, rest_n)``; of pairs, ``((1, 2, N/8), ...)``."""
        return partition(tensor, self.tile, self.tv_c, thread)


def wgmma(k: KernelBuilder, atom: WgmmaAtom, accumulators: Tensor, desc_a: str, desc_b: str, accumulate: str,
          column: int = 0) -> None:
    """Issue one matrix instruction on descriptors; its accumulators are all, or those from a column on."""
    name, count = accumulators.engine.name, atom.n // 2
    if size(accumulators.layout) > count:
        name = f"reinterpret_cast<float (&)[{count}]>({accumulators(0, 0, column // 8).c})"
    k.emit(f"{atom.call}({name}, {desc_a}, {desc_b}, {accumulate});")


@dataclass(frozen=True)
class WgmmaRegisterMma:
    """Warpgroups stacked along M, each multiplying its 64 rows of a 4-byte A that threads read from shared memory themselves.

    Which row of A is which row of the instruction is free, and so is the order along K if B has the same. Both are chosen so that
    a warp reads whole lines of a tile with the 128-byte swizzle without bank conflicts.

    Attributes
    ----------
    columns : int
        N of the instruction.
    groups : int
        Number of warpgroups along M.
    k_major : bool
        Which mode of A is contiguous. Threads read 4 elements together along K, else 2 along M.
    """

    columns: int
    groups: int
    k_major: bool

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return 64 * self.groups, self.columns

    @property
    def _eight(self) -> tuple[tuple, tuple, int]:
        """Rows of A that rows 0 to 7 of a warp's instruction are, shape and stride, and how far the other 8 are from them."""
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
        """((thread), (value)) -> position in the (64 groups, 16) tile of A (PTX ISA, "Register Fragments for wgmma m64nNk16").

        The value modes are the pair's element, its half of 16 along K and the half of 16 rows, the ones read together first.
        """
        rows, (shape, stride, half) = 64 * self.groups, self._eight
        threads = (4, *shape, 4, self.groups), (rows * (4 if self.k_major else 2), *stride, 16, 64)
        values = ((2, 2, 2), (rows, 2 * rows, half)) if self.k_major else ((2, 2, 2), (half, rows, 8 * rows))
        return Layout((threads[0], values[0]), (threads[1], values[1]))

    def word(self, row: int, half: int) -> tuple[int, int]:
        """Where a thread's values (:attr:`tv_a`) have the pair of a half of its rows and a half of K."""
        return (4 * row + 2 * half, 4 * row + 2 * half + 1) if self.k_major else (row + 4 * half, row + 4 * half + 2)

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in :attr:`tile`."""
        rows, (shape, stride, half) = 64 * self.groups, self._eight
        return Layout(((4, *shape, 4, self.groups), (2, 2, self.columns // 8)),
                      ((2 * rows, *stride, 16, 64), (rows, half, 8 * rows)))

    def partition_a(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of A (M, K, ...) that ``thread`` reads, shape ``((2, 2, 2), rest_m, rest_k, ...)``."""
        return partition(tensor, (64 * self.groups, 16), self.tv_a, thread)

    def partition_c(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of C (M, N) that ``thread`` owns, shape ``((2, 2, N/8), rest_m, rest_n)``."""
        return partition(tensor, self.tile, self.tv_c, thread)


def wgmma_on_registers(k: KernelBuilder, columns: int, element: str, k_major_b: bool, accumulators: Tensor, a: Tensor, desc_b: str,
                       accumulate: str) -> None:
    """Issue one matrix instruction on four words of A in registers and a descriptor of B.

    The registers keep their values until the instruction was waited for.
    """
    k.emit(f"cb::wgmma_m64k16_rs<{columns}, {dtype(element).ctype}, {int(not k_major_b)}>({accumulators.engine.name}, "
           f"{a.engine.name}, {desc_b}, {accumulate});")
