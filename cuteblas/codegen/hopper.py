"""Hopper's instructions for the builder: mbarriers, tensor-map copies, warpgroup matrix multiplications.

Boxes and matrix descriptors are derived from the swizzled layout of the tile in shared memory and checked against the hardware's
canonical layouts, coordinate by coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..layout import ArithTuple, ComposedLayout, Layout, Swizzle, Tensor, flatten, size
from ..layout.symbolic import IntLike, to_c
from .builder import KernelBuilder
from .dtypes import dtype
from .engine import CodegenError, Pointer
from .kernel import TensorMapSpec
from .tiled import partition

__all__ = ["MatrixDescriptor", "Mbarriers", "TmaBox", "WgmmaAtom", "WgmmaMma", "WgmmaOperand", "operand_layout", "tma_load",
           "wgmma"]

_GROUP = 128                        # threads of a warpgroup
_ROW_BYTES = 128                    # one row of the 128-byte swizzle
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
        self._k = k
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

    def expect(self, stage: IntLike, nbytes: int) -> None:
        """Arrive once and let the phase also wait for ``nbytes`` of asynchronous copies."""
        self._k.emit(f"cb::mbarrier_arrive_expect_tx({self._at(stage)}, {nbytes});")

    def wait(self, stage: IntLike, parity: IntLike) -> None:
        """Wait until the phase with this parity has completed."""
        self._k.emit(f"cb::mbarrier_wait({self._at(stage)}, {to_c(parity)});")

    def address(self, stage: IntLike) -> str:
        """The C++ address of one barrier, for copies that complete on it."""
        return self._at(stage)


def operand_layout(extent: int, depth: int, element: str, k_major: bool) -> ComposedLayout:
    """The 128-byte swizzled layout of an (extent, depth) operand tile of a 16-bit type in shared memory.

    K-major: rows of 64 elements along K. MN-major: slabs of 64 elements along M (or N), each slab ``depth`` rows.
    """
    row = _ROW_BYTES // dtype(element).bytes
    if k_major:
        if depth != row:
            raise CodegenError(f"a K-major tile of {element} is {row} deep, got {depth}")
        inner = Layout((extent, depth), (row, 1))
    else:
        if extent % row:
            raise CodegenError(f"an MN-major tile of {element} is a multiple of {row} wide, got {extent}")
        inner = Layout(((row, extent // row), depth), ((1, row * depth), row))
    chunk = (16 // dtype(element).bytes).bit_length() - 1
    return ComposedLayout(Swizzle(3, chunk, 3), 0, inner)


@dataclass(frozen=True)
class TmaBox:
    """How TMA fills a swizzled tile of shared memory: a box, repeated.

    Attributes
    ----------
    element : str
        Element type.
    layout : ComposedLayout
        The (mode 0, mode 1) tile in shared memory.
    """

    element: str
    layout: ComposedLayout

    @cached_property
    def _modes(self) -> list[tuple[int, int, int, int]]:
        """(stride in shared memory, extent, tile mode, step in that mode) of every flat mode, by stride."""
        modes = []
        for which in range(2):
            mode = self.layout.inner[which]
            step = 1
            for n, d in zip(_leaves(mode.shape), _leaves(mode.stride), strict=True):
                if n > 1:
                    modes.append((d, n, which, step))
                step *= n
        modes.sort()
        if [d for d, *_ in modes] != [prod(n for _, n, *_ in modes[:i]) for i in range(len(modes))]:
            raise CodegenError(f"TMA fills shared memory densely; {self.layout} is not compact")
        if len(modes) < 2 or modes[0][2] == modes[1][2]:
            raise CodegenError(f"no two-dimensional box fills {self.layout}")
        return modes

    @property
    def inner_mode(self) -> int:
        """The tile mode that is contiguous in global memory."""
        return self._modes[0][2]

    @property
    def box(self) -> tuple[int, int]:
        """Extents of the box, innermost first."""
        return self._modes[0][1], self._modes[1][1]

    @property
    def swizzle(self) -> int:
        """Span of the swizzle in bytes."""
        swizzle = self.layout.swizzle
        if (1 << swizzle.base) * dtype(self.element).bytes != 16 or swizzle.shift != 3 or swizzle.bits not in _SWIZZLE_SPAN:
            raise CodegenError(f"TMA has no swizzle {swizzle} for {self.element}")
        return _SWIZZLE_SPAN[swizzle.bits]

    @property
    def repeats(self) -> tuple[tuple[int, int, int], ...]:
        """For each further box: its offset in shared memory (elements), and the steps along tile modes 0 and 1."""
        boxes = [(0, 0, 0)]
        for d, n, which, step in self._modes[2:]:
            boxes = [(o + i * d, s0 + i * step * (which == 0), s1 + i * step * (which == 1))
                     for i in range(n) for o, s0, s1 in boxes]
        return tuple(boxes)

    @property
    def nbytes(self) -> int:
        """Bytes that filling the tile transfers."""
        return size(self.layout.inner) * dtype(self.element).bytes

    def map(self, extents: tuple[int, ...], strides: tuple[int, ...]) -> TensorMapSpec:
        """The tensor map over a tensor of modes (0, 1, batch...) with strides in elements; the inner mode's stride is 1.

        Batch modes with stride 0 are left out: every batch index reads the same memory.
        """
        item = dtype(self.element).bytes
        order = [self.inner_mode, 1 - self.inner_mode] + [i for i in range(2, len(extents)) if strides[i] != 0]
        return TensorMapSpec(dtype(self.element), tuple(max(1, extents[i]) for i in order),
                             tuple(strides[i] * item for i in order[1:]), (*self.box, *(1 for _ in order[2:])), self.swizzle)


def _leaves(x) -> tuple[int, ...]:
    return tuple(flatten(x)) if isinstance(x, tuple) else (x,)


def tma_load(k: KernelBuilder, tensor_map: str, box: TmaBox, corner: ArithTuple, tile: Tensor, barrier: str) -> None:
    """Fill a tile of shared memory; completes ``box.nbytes`` on ``barrier``.

    Parameters
    ----------
    corner : ArithTuple
        Coordinate (mode 0, mode 1, batch...) of the tile's first element in the tensor.
    tile : Tensor
        The tile; its layout is ``box.layout``.
    """
    pointer: Pointer = tile.engine
    base = tile.layout.offset if isinstance(tile.layout, ComposedLayout) else 0
    for offset, s0, s1 in box.repeats:
        at = [corner[0] + s0, corner[1] + s1]
        coordinates = [at[box.inner_mode], at[1 - box.inner_mode], *list(corner)[2:]]
        k.emit(f"cb::tma_load({pointer[base + offset].address}, &{tensor_map}, {barrier}, "
               f"{', '.join(to_c(c) for c in coordinates)});")


@dataclass(frozen=True)
class WgmmaOperand:
    """One operand tile of ``wgmma`` in shared memory, and its matrix descriptor.

    Attributes
    ----------
    element : str
        16-bit element type.
    layout : ComposedLayout
        The (MN, K) tile that one instruction (or several along K) reads; 128-byte swizzle.
    k_major : bool
        Which mode is contiguous.
    """

    element: str
    layout: ComposedLayout
    k_major: bool

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """Leading and stride byte offsets of the descriptor (PTX ISA, "Matrix descriptor")."""
        inner, item, row = self.layout.inner, dtype(self.element).bytes, _ROW_BYTES // dtype(self.element).bytes
        extent = size(inner[0])
        if self.k_major:
            leading, stride = 16, (inner((8, 0)) if extent > 8 else 8 * row) * item
        else:
            leading, stride = (inner((row, 0)) * item if extent > row else 16), inner((0, 8)) * item
        self._check(leading, stride)
        return leading, stride

    def _check(self, leading: int, stride: int) -> None:
        """Compare the layout with the canonical layout that the descriptor describes, at every coordinate of one instruction."""
        item, row = dtype(self.element).bytes, _ROW_BYTES // dtype(self.element).bytes
        extent = size(self.layout.inner[0])
        if self.k_major:
            canonical = Layout(((8, max(1, extent // 8)), 16), ((row, stride // item), 1))
        else:
            canonical = Layout(((row, max(1, extent // row)), (8, 2)), ((1, leading // item), (row, stride // item)))
        wrong = [(m, d) for m in range(extent) for d in range(16) if canonical(m, d) != self.layout.inner(m, d)]
        if wrong or self.layout.swizzle != operand_layout(row, row, self.element, self.k_major).swizzle:
            raise CodegenError(f"wgmma has no descriptor for {self.layout}: it departs from the canonical layout {canonical} "
                               f"at {wrong[:1]}")

    def step_bytes(self, k: int) -> int:
        """Bytes by which the start address advances to the instruction at depth ``k``."""
        return self.layout.inner((0, k)) * dtype(self.element).bytes


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
        k.emit(f"unsigned long long const {name} = cb::wgmma_descriptor({start}, {leading}, {stride}, {_ROW_BYTES});")

    def at(self, stage: IntLike, depth: int) -> str:
        """The C++ expression of the descriptor at ``depth`` in the tile of a stage."""
        return f"cb::wgmma_descriptor_advance({self._name}, {to_c(stage * self._stage_bytes + self._operand.step_bytes(depth))})"


@dataclass(frozen=True)
class WgmmaAtom:
    """``wgmma.mma_async.m64nNk16``: D (64, N) += A (64, 16) B (N, 16)^T by the 128 threads of a warpgroup, float32 accumulators.

    Attributes
    ----------
    n : int
        Columns, a multiple of 8 up to 256.
    element : str
        ``"float16"`` or ``"bfloat16"``.
    k_major_a, k_major_b : bool
        Which mode of A and B is contiguous in shared memory.
    """

    n: int
    element: str
    k_major_a: bool = True
    k_major_b: bool = True

    def __post_init__(self) -> None:
        if self.n % 8 or not 8 <= self.n <= 256 or self.element not in ("float16", "bfloat16"):
            raise CodegenError(f"wgmma has 8 to 256 columns in steps of 8 and float16 or bfloat16 operands, got {self}")
        tv = self.tv_c
        if sorted(tv(i) for i in range(size(tv))) != list(range(64 * self.n)):
            raise CodegenError(f"the accumulator layout {tv} does not cover 64 x {self.n} exactly once")

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in the (64, N) tile (PTX ISA, accumulator fragments of wgmma.m64nNk16)."""
        return Layout(((4, 8, 4), (2, 2, self.n // 8)), ((128, 1, 16), (64, 8, 512)))

    @property
    def call(self) -> str:
        """The prelude function."""
        return f"cb::wgmma_m64k16<{self.n}, {dtype(self.element).ctype}, {int(not self.k_major_a)}, {int(not self.k_major_b)}>"


@dataclass(frozen=True)
class WgmmaMma:
    """Warpgroups stacked along M, each multiplying its 64 rows.

    Attributes
    ----------
    atom : WgmmaAtom
        The instruction.
    groups : int
        Number of warpgroups along M.
    """

    atom: WgmmaAtom
    groups: int

    @property
    def tile(self) -> tuple[int, int]:
        """Extents (M, N) of the tile of C."""
        return 64 * self.groups, self.atom.n

    @property
    def tv_c(self) -> Layout:
        """((thread), (value)) -> position in :attr:`tile`."""
        rows = 64 * self.groups
        return Layout(((4, 8, 4, self.groups), (2, 2, self.atom.n // 8)), ((2 * rows, 1, 16, 64), (rows, 8, 8 * rows)))

    def partition_c(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of C (M, N) that ``thread`` owns, shape ``((2, 2, N/8), rest_m, rest_n)``."""
        return partition(tensor, self.tile, self.tv_c, thread)


def wgmma(k: KernelBuilder, atom: WgmmaAtom, accumulators: Tensor, desc_a: str, desc_b: str, accumulate: str) -> None:
    """Issue one matrix instruction on descriptors."""
    k.emit(f"{atom.call}({accumulators.engine.name}, {desc_a}, {desc_b}, {accumulate});")
