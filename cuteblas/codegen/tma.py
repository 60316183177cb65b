"""Copies by the tensor memory accelerator, in boxes derived from a tile's shared memory layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .._dtypes import dtype
from ..layout import ComposedLayout, Tensor, coalesce, size
from ..layout.inttuple import leaves
from ..layout.symbolic import IntLike, bits_of, ceil_div, minimum, to_c
from .builder import CopyAtom, KernelBuilder
from .engine import CodegenError, Element, Pointer
from .kernel import TensorMapSpec
from .swizzled import CHUNK, ROW_BYTES, SPANS

__all__ = ["TmaBox", "TmaLoad", "TmaStore", "tma_prefetch", "tma_store_wait"]

_MOST_BOX = 256                     # elements of a box along a mode


@dataclass(frozen=True)
class TmaBox:
    """How TMA moves a tile between global and shared memory: a box, repeated.

    Attributes
    ----------
    element : str
        Element type.
    layout : ComposedLayout
        The tile in shared memory, in elements: one mode for each tiled mode of the tensor. Its
        swizzle is one of the hardware's, or the identity ``Swizzle(0, 0, 0)``.
    most : int
        The most elements that a box has along a mode.

    Examples
    --------
    >>> from cuteblas.codegen.swizzled import operand_layout
    >>> from cuteblas.codegen.tma import TmaBox
    >>> box = TmaBox("float16", operand_layout(128, 64, "float16", True))
    >>> box.box, box.swizzle, box.nbytes
    ((64, 128), 128, 16384)
    """

    element: str
    layout: ComposedLayout
    most: int = _MOST_BOX

    @cached_property
    def _modes(self) -> list[tuple[int, int, int, int]]:
        """(stride in shared memory, extent, tile mode, step in it) of flat modes, by stride."""
        modes = []
        for which in range(self.layout.rank):
            mode = coalesce(self.layout.inner[which])
            step = 1
            for n, d in zip(leaves(mode.shape), leaves(mode.stride), strict=True):
                boxes = next((i for i in range(1, n) if n % i == 0 and n // i <= self.most), 1)
                if n > 1:
                    modes.append((d, n // boxes, which, step))
                if boxes > 1:
                    modes.append((d * n // boxes, boxes, which, step * n // boxes))
                step *= n
        modes.sort()
        filled = [1, *(d * n for d, n, *_ in modes)]
        if not modes or any(d < end for (d, *_), end in zip(modes, filled, strict=False)):
            raise CodegenError(
                f"TMA fills each place of shared memory once, but elements of {self.layout} share places"
            )
        return modes

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The modes of the tile as a tensor map lists them: by stride in shared memory, the
        innermost first."""
        inside = [which for _, _, which, _ in self._modes[:self._flat]]
        return (*inside, *(i for i in range(self.layout.rank) if i not in inside))

    @cached_property
    def _flat(self) -> int:
        """Flat modes that make the box: each the dense part of another mode of the tile."""
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
        if [d for d, *_ in self._modes[:self._flat]] != [prod(extents[:i])
                                                         for i in range(len(extents))]:
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
        if (1 << swizzle.base) * item != CHUNK or swizzle.shift != 3 or swizzle.bits not in SPANS:
            raise CodegenError(f"TMA has no swizzle {swizzle} for {self.element}")
        span = SPANS[swizzle.bits]
        if self.box[0] * item != span:
            raise CodegenError(
                f"a swizzle over {span} bytes takes rows of {span} bytes, {self.layout} has {self.box[0] * item}"
            )
        return span

    @property
    def repeats(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """For each box its offset in shared memory (elements), and the steps along the modes of the
        tile."""
        modes = len(self.order)
        boxes = [(0, (0,) * modes)]
        for d, n, which, step in self._modes[self._flat:]:
            boxes = [(offset + i * d, (*steps[:which], steps[which] + i * step, *steps[which + 1:]))
                     for i in range(n) for offset, steps in boxes]
        alignment = max(ROW_BYTES, 8 * self.swizzle)
        if any(offset * dtype(self.element).bytes % alignment for offset, _ in boxes):
            raise CodegenError(
                f"boxes must begin at multiples of {alignment} bytes; those of {self.layout} do not"
            )
        return tuple(boxes)

    @property
    def nbytes(self) -> int:
        """Bytes that filling the tile transfers."""
        return size(self.layout.inner) * dtype(self.element).bytes

    def map(self, extents: tuple[int, ...], strides: tuple[int, ...]) -> TensorMapSpec:
        """The tensor map over a tensor with the modes of the tile, then batch modes.

        Strides are in elements; that of the inner mode is 1. Batch modes with stride 0 are left
        out: every batch index reads the same memory.
        """
        item, tiled = dtype(self.element).bytes, len(self.order)
        order = [*self.order, *(i for i in range(tiled, len(extents)) if strides[i] != 0)]
        return TensorMapSpec(dtype(self.element), tuple(max(1, extents[i]) for i in order),
                             tuple(strides[i] * item for i in order[1:]),
                             (*self.box, *(1 for _ in order[tiled:])), self.swizzle)


def _boxes(box: TmaBox, coordinates: Tensor, tile: Tensor,
           extent: IntLike | None = None) -> Iterator[tuple[Element, list[IntLike]]]:
    """Where every box of a tile begins in shared memory, and its coordinates, innermost first."""
    pointer: Pointer = tile.engine
    if size(tile.layout) * pointer.dtype.bytes != box.nbytes:
        raise CodegenError(
            f"TMA moves tiles of {box.nbytes} bytes with this box, got {tile.layout} of {pointer.dtype.name}"
        )
    base = tile.layout.offset if isinstance(tile.layout, ComposedLayout) else 0
    scale = dtype(box.element).bytes
    for offset, steps in box.repeats:
        at = list(coordinates(*steps))
        if extent is not None:
            at[0] = minimum(at[0], (ceil_div(extent, box.rows) - 1) * box.rows)
        ordered = [*(at[i] for i in box.order), *at[len(steps):]]
        if bits_of(ordered[0]) * scale % CHUNK:
            raise CodegenError(
                f"the innermost coordinate of a TMA copy must be a multiple of {CHUNK} bytes; "
                f"{to_c(ordered[0])} elements of {scale} bytes are not provably one"
            )
        yield pointer[base + offset * scale // pointer.dtype.bytes], ordered


@dataclass(frozen=True)
class TmaLoad(CopyAtom):
    """Fills a tile of shared memory; completes ``box.nbytes`` on a barrier.

    The source is a tile of the tensor of coordinates (the modes of the tile, then batch modes): an
    identity tensor, tiled as the one in memory would be. The first coordinate along the innermost
    mode must be a multiple of 16 bytes, even if the box ends outside of the tensor. The layout of
    the target is ``box.layout``, perhaps in words of several elements.

    Attributes
    ----------
    tensor_map : str
        The C++ name of the tensor map.
    box : TmaBox
        The box in which tiles move.
    barrier : Element
        The mbarrier that the copies complete.
    blocks : IntLike, optional
        A set of blocks of the cluster, bit i for rank i: the copy fills the tile and completes the
        barrier of each.
    extent : IntLike, optional
        The tensor's extent along the first mode of the tile, if elements beyond it are not used. A
        box beyond it loads the last box inside instead, which takes less time than zeros.

    Examples
    --------
    >>> from cuteblas.codegen.mbarrier import Mbarriers
    >>> from cuteblas.codegen.tma import TmaBox, TmaLoad
    >>> from cuteblas.layout import ComposedLayout, Layout, Swizzle, make_identity_tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> box = TmaBox("float32", ComposedLayout(Swizzle(0, 0, 0), 0, Layout((32, 8))))
    >>> tile, came = k.shared("tile", "float32", box.layout), Mbarriers(k, "came", 1, arrivals=1)
    >>> k.copy(TmaLoad(k.tensor_map("map"), box, came.at(0)), make_identity_tensor((32, 8)), tile)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::tma_load(&tile[0], &map, &came[0], 0, 0);'
    """

    tensor_map: str
    box: TmaBox
    barrier: Element
    blocks: IntLike | None = None
    extent: IntLike | None = None

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the copies of all boxes; one thread issues them."""
        for first, at in _boxes(self.box, source, target, self.extent):
            if self.blocks is None:
                k.do("tma_load", first, self.tensor_map, self.barrier, *at)
            else:
                k.do("tma_load_multicast", first, self.tensor_map, self.barrier, self.blocks, *at)


@dataclass(frozen=True)
class TmaStore(CopyAtom):
    """Writes a tile of shared memory to global memory, as one group of copies; elements outside of
    the tensor are left out.

    The target is a tile of coordinates, as the source of :class:`TmaLoad`. Ordinary writes to the
    tile need a :func:`~cuteblas.codegen.mbarrier.fence_proxy_async` by their thread before; TMA's
    own do not.

    Attributes
    ----------
    tensor_map : str
        The C++ name of the tensor map.
    box : TmaBox
        The box in which tiles move.

    Examples
    --------
    >>> from cuteblas.codegen.tma import TmaBox, TmaStore
    >>> from cuteblas.layout import ComposedLayout, Layout, Swizzle, make_identity_tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> box = TmaBox("float32", ComposedLayout(Swizzle(0, 0, 0), 0, Layout((32, 8))))
    >>> k.copy(TmaStore(k.tensor_map("map"), box), k.shared("tile", "float32", box.layout), make_identity_tensor((32, 8)))
    >>> [line.strip() for line in k.build().body.splitlines() if "tma_store" in line]
    ['cb::tma_store(&map, &tile[0], 0, 0);', 'cb::tma_store_commit();']
    """

    tensor_map: str
    box: TmaBox

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the copies of all boxes; one thread issues them."""
        for first, at in _boxes(self.box, target, source):
            k.do("tma_store", self.tensor_map, first, *at)
        k.do("tma_store_commit")


def tma_prefetch(k: KernelBuilder, tensor_map: str) -> None:
    """Fetch a tensor map before it is used.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    tensor_map : str
        The parameter.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.tma import tma_prefetch
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> tma_prefetch(k, k.tensor_map("map"))
    >>> k.build().body.splitlines()[-2].strip()
    'cb::tma_prefetch(&map);'
    """
    k.do("tma_prefetch", tensor_map)


def tma_store_wait(k: KernelBuilder, pending: int = 0) -> None:
    """Wait until at most ``pending`` groups of this thread's stores still read shared memory.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    pending : int
        Groups that need not have been read.

    Returns
    -------
    None
        A statement is added to the kernel.

    Examples
    --------
    >>> from cuteblas.codegen.tma import tma_store_wait
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> tma_store_wait(k)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::tma_store_wait_read<0>();'
    """
    k.do("tma_store_wait_read", of=pending)
