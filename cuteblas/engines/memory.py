"""Arrays without their data: all decisions are taken on :class:`Memory`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Ints", "Memory", "array_at", "contiguous_strides", "is_contiguous", "new_memory",
           "overlap", "overlaps_itself", "same_elements", "shadow", "without_imaginary_part"]

Ints = tuple[int, ...]

# The exact overlap test solves a bounded Diophantine equation; past this many steps the operands
# count as overlapping.
_OVERLAP_STEPS = 10_000


@dataclass(frozen=True)
class Memory:
    """The layout of an array in memory: strides in bytes, and the address of the first element."""

    shape: Ints
    strides: Ints
    dtype: np.dtype
    address: int = 0
    writeable: bool = True

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def alignment(self) -> int:
        """The largest power of two, at most 16 (bytes), that divides the address."""
        return min(self.address & -self.address or 16, 16)

    @property
    def span(self) -> tuple[int, int]:
        """Bytes from the address that elements touch: from the first to one past the last."""
        if not self.size:
            return 0, 0
        reach = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides,
                                                                 strict=True)]
        return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + self.dtype.itemsize

    @property
    def whole_elements(self) -> bool:
        """Whether address and strides are multiples of the element's size, as kernels need."""
        size = self.dtype.itemsize
        return self.address % size == 0 and all(s % size == 0
                                                for s, n in zip(self.strides, self.shape,
                                                                strict=True) if n > 1)

    @property
    def aligned(self) -> bool:
        """Whether NumPy calls the array aligned: to a float for a complex number."""
        size = self.dtype.alignment
        return self.size == 0 or (self.address % size == 0 and all(
            s % size == 0 for s, n in zip(self.strides, self.shape, strict=True) if n > 1))


class _Addresses:
    __slots__ = "__array_interface__", "array_owner"

    def __init__(self, owner: Any, *layout: Any):
        self.array_owner = owner
        names = "shape", "strides", "typestr", "data"
        self.__array_interface__ = {"version": 3, **dict(zip(names, layout, strict=True))}


def array_at(address: int, shape: Ints, strides: Ints, typestr: str,
             read_only: bool = False, owner: np.ndarray | None = None) -> np.ndarray:
    """An array over memory at an address; the caller keeps its owner alive unless it is given."""
    return np.asarray(_Addresses(owner, shape, strides, typestr, (address, read_only)))


def shadow(shape: Ints, strides: Ints, typestr: str = "|i1",
           address: int = 16) -> np.ndarray:
    """An array that must not be read: NumPy decides by its strides on a result's order."""
    return array_at(address, shape, strides, typestr, True)


def overlap(x: Memory, y: Memory, doubt: bool = True) -> bool:
    """Whether elements of ``x`` and ``y`` share a byte; ``doubt`` if that is too hard to tell."""
    (xlo, xhi), (ylo, yhi) = x.span, y.span
    if x.address + xhi <= y.address + ylo or y.address + yhi <= x.address + xlo:
        return False
    try:
        first, second = (shadow(z.shape, z.strides, f"|V{z.dtype.itemsize}", z.address)
                         for z in (x, y))
        return np.shares_memory(first, second, max_work=_OVERLAP_STEPS)     # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return doubt


def same_elements(x: Memory, y: Memory) -> bool:
    """Whether two arrays have the same elements of memory at the same indices."""
    return (x.address, x.shape, x.dtype.itemsize) == (y.address, y.shape, y.dtype.itemsize) \
        and all(n < 2 or s == t for n, s, t in zip(x.shape, x.strides, y.strides, strict=True))


def overlaps_itself(x: Memory, doubt: bool = True) -> bool:
    """Whether two elements share a byte; ``doubt`` if that is too hard to tell."""
    modes = sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1)
    reach = x.dtype.itemsize
    for stride, extent in modes:
        if stride < reach:
            return x.size > 0 and any(_meets_itself(x.dtype, modes[i:], doubt)
                                      for i in range(len(modes)))
        reach += stride * (extent - 1)
    return False


def _meets_itself(dtype: np.dtype, modes: Sequence[tuple[int, int]], doubt: bool) -> bool:
    """Whether elements with other indices along the first mode share a byte."""
    (stride, extent), *rest = modes
    strides, shape = tuple(s for s, _n in rest), tuple(n for _s, n in rest)
    first = 1 << 40                         # any address but NULL
    return overlap(Memory(shape, strides, dtype, first),
                   Memory((extent - 1, *shape), (stride, *strides), dtype, first + stride), doubt)


def contiguous_strides(shape: Ints, itemsize: int,
                       axes: Sequence[int] | None = None) -> Ints:
    """Strides in bytes without gaps, of ``axes`` outermost first (C order by default)."""
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(range(len(shape)) if axes is None else axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def is_contiguous(x: Memory, order: str) -> bool:
    """Whether NumPy's flags say C-contiguous ("C") or Fortran-contiguous ("F")."""
    axes = range(len(x.shape)) if order == "C" else range(len(x.shape))[::-1]
    expected = contiguous_strides(x.shape, x.dtype.itemsize, axes)
    return x.size == 0 or all(s == e for s, e, n in zip(x.strides, expected, x.shape, strict=True)
                              if n > 1)


def new_memory(x: Memory, order: str) -> Memory:
    """The memory of a new array that copies ``x`` in NumPy's order; it has no address."""
    axes = list(range(len(x.shape)))
    unlike = order in "AK" and not is_contiguous(x, "C")
    if order == "F" or (unlike and is_contiguous(x, "F")):
        axes.reverse()
    elif order == "K" and unlike:
        axes.sort(key=lambda axis: -abs(x.strides[axis]))
    return Memory(x.shape, contiguous_strides(x.shape, x.dtype.itemsize, axes), x.dtype)


def without_imaginary_part(src: Any, dtype: np.dtype) -> Any:
    """The array to cast to ``dtype``: NumPy has warned of lost imaginary parts already."""
    return src.real if src.dtype.kind == "c" and dtype.kind not in "bc" else src
