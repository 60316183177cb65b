"""From NumPy's terms to the kernels' terms: a product or a copy of arrays as a frozen problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from ..planning.problem import CopyProblem, GemmProblem, Operand
from .gufunc import Product
from .memory import Memory, contiguous_strides, overlap, overlaps_itself, strides_by_order

__all__ = ["Staged", "Staging", "copy_problem", "gemm_problem", "has_kernels", "stage"]

_KERNEL_DTYPES = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                            "float16", "float32", "float64", "complex64", "complex128"))
# The widest word that kernels move, in bytes.
_WORD = 16


def has_kernels(dtype: np.dtype) -> bool:
    """Whether kernels multiply arrays of that type."""
    return dtype.name in _KERNEL_DTYPES


@dataclass(frozen=True)
class Staged:
    """An operand as kernels see it: as it is, or as a copy that is made for a reason.

    Attributes
    ----------
    memory : Memory
        What kernels read or write. The address of a copy is not known yet; allocations are aligned to 16 bytes.
    reason : str or None
        Why it is a copy; ``None`` if it is the operand itself.
    """

    memory: Memory
    reason: str | None = None


@dataclass(frozen=True)
class Staging:
    """A product whose operands kernels can read and write.

    Attributes
    ----------
    product : Product
        What NumPy accepted.
    a, b, c : Staged
        Both inputs and the output.
    problem : GemmProblem
        What kernels compute.
    """

    product: Product
    a: Staged
    b: Staged
    c: Staged
    problem: GemmProblem

    @property
    def copies(self) -> tuple[str, ...]:
        """Which operands are copied and why."""
        operands = ("x1", self.a), ("x2", self.b), ("out", self.c)
        return tuple(f"{name}: {staged.reason}" for name, staged in operands if staged.reason)


def stage(x1: Memory, x2: Memory, out: Memory | None, product: Product, precision: str = "auto",
          variant: str | None = None) -> Staging:
    """Decide which operands have to be copied, and write down the problem.

    Kernels take any strides, so an operand is copied only to change its type or byte order, or if its elements are not aligned to
    their own size. ``out`` is computed elsewhere and then assigned if it has another type or alignment, or if it shares memory
    with an input or with itself.
    """
    a, b = _readable(x1, product.dtype), _readable(x2, product.dtype)
    c = _new(product.shape, product.strides, product.dtype) if out is None else _writable(out, a, b, product.dtype)
    return Staging(product, a, b, c, gemm_problem(product, a.memory, b.memory, c.memory, precision, variant))


def _new(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, reason: str | None = None) -> Staged:
    return Staged(Memory(shape, strides, dtype), reason)


def _unfit(x: Memory, dtype: np.dtype) -> str | None:
    if x.dtype != dtype:
        return f"is {x.dtype}, computed in {dtype}"
    return None if x.whole_elements else "elements are not aligned to their size"


def _readable(x: Memory, dtype: np.dtype) -> Staged:
    reason = _unfit(x, dtype)
    return Staged(x) if reason is None else _new(x.shape, strides_by_order(replace(x, dtype=dtype), "K"), dtype, reason)


def _writable(out: Memory, a: Staged, b: Staged, dtype: np.dtype) -> Staged:
    reason = _unfit(out, dtype)
    if reason is None and any(x.reason is None and overlap(out, x.memory) for x in (a, b)):
        reason = "shares memory with an input"
    if reason is None and overlaps_itself(out):
        reason = "shares memory with itself"
    return Staged(out) if reason is None else _new(out.shape, contiguous_strides(out.shape, dtype.itemsize), dtype, reason)


def gemm_problem(product: Product, a: Memory, b: Memory, c: Memory, precision: str = "auto",
                 variant: str | None = None) -> GemmProblem:
    """The problem of multiplying operands that kernels can read.

    Strides of modes of extent 1 become 0. Batch modes of extent 1 are dropped; neighbours that are one mode for every operand are
    merged; a mode along which B does not move becomes part of M where the strides of A and C allow it, and likewise one of A part
    of N.
    """
    (a_k, *a_m), a_batch = _modes(a, product.core1[::-1], product.batch)
    (b_k, *b_n), b_batch = _modes(b, product.core2, product.batch)
    core_c, c_batch = _modes(c, product.core3, product.batch)
    c_m = core_c.pop(0) if a_m else 0
    c_n = core_c.pop(0) if b_n else 0
    m, n = (product.m, *a_m, c_m), (product.n, *b_n, c_n)           # extent, then stride in the input (absent: a vector) and in C
    rows, columns = _Side(m[0], sum(a_m), c_m), _Side(n[0], sum(b_n), c_n)

    batch: list[tuple[int, int, int, int]] = []
    for mode in zip(product.batch, a_batch, b_batch, c_batch, strict=True):
        if mode[0] == 1:
            continue
        if batch and all(outer == inner * mode[0] for outer, inner in zip(batch[-1][1:], mode[1:], strict=True)):
            mode = (batch.pop()[0] * mode[0], *mode[1:])
        batch.append(mode)
    for mode in batch[::-1]:
        extent, in_a, in_b, in_c = mode
        if in_b == 0 and rows.absorbs(in_a, in_c):
            rows = rows.with_outer(extent, in_a, in_c)
        elif in_a == 0 and columns.absorbs(in_b, in_c):
            columns = columns.with_outer(extent, in_b, in_c)
        else:
            continue
        batch.remove(mode)

    extents, batch_a, batch_b, batch_c = (tuple(mode[i] for mode in batch) for i in range(4))
    name = product.dtype.name
    return GemmProblem(rows.extent, columns.extent, product.k,
                       Operand(name, (rows.stride, a_k), batch_a, alignment=a.alignment),
                       Operand(name, (columns.stride, b_k), batch_b, alignment=b.alignment),
                       Operand(name, (rows.stride_c, columns.stride_c), batch_c, alignment=c.alignment),
                       extents, precision=precision, variant=variant)


@dataclass(frozen=True)
class _Side:
    """M or N: its extent, its stride in A or B and its stride in C, in elements."""

    extent: int
    stride: int
    stride_c: int

    def absorbs(self, stride: int, stride_c: int) -> bool:
        """Whether a batch mode with these strides continues this mode."""
        return self.extent == 1 or (stride, stride_c) == (self.stride * self.extent, self.stride_c * self.extent)

    def with_outer(self, extent: int, stride: int, stride_c: int) -> _Side:
        """This mode continued by a batch mode."""
        if self.extent == 1:
            return _Side(extent, stride, stride_c)
        return replace(self, extent=self.extent * extent)


def _modes(x: Memory, core: tuple[int, ...], batch: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """Strides in elements of the axes ``core``, and of the batch modes (0 where the operand is broadcast)."""
    steps = [stride // x.dtype.itemsize if extent > 1 else 0 for stride, extent in zip(x.strides, x.shape, strict=True)]
    rest = [step for axis, step in enumerate(steps) if axis not in core]
    return [steps[axis] for axis in core], (0,) * (len(batch) - len(rest)) + tuple(rest)


def copy_problem(src: Memory, dst: Memory, variant: str | None = None) -> CopyProblem:
    """The problem of copying ``src`` into ``dst``, which has the same shape and element size and does not overlap it.

    Elements move as words of the largest size that divides both addresses, all strides and the element, so that any element type
    and any alignment is a copy of words.
    """
    itemsize = src.dtype.itemsize
    modes = [(n, s, d) for n, s, d in zip(src.shape, src.strides, dst.strides, strict=True) if n != 1]
    word = gcd(_WORD, itemsize, src.address, dst.address, *(stride for mode in modes for stride in mode[1:]))
    modes = [(n, s // word, d // word) for n, s, d in modes]
    if itemsize > word:
        modes.append((itemsize // word, 1, 1))
    shape, src_strides, dst_strides = (tuple(mode[i] for mode in modes) for i in range(3))
    return CopyProblem(shape, src_strides, dst_strides, word, src.alignment, dst.alignment, variant)
