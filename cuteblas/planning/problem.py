"""What is to be computed, in the kernels' terms: frozen, hashable descriptions without any data.

Inside, A is (M, K), B is (N, K) and C is (M, N); transposition and row- or column-major order are only strides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

__all__ = ["H200", "ContractionProblem", "CopyProblem", "DeviceInfo", "GemmProblem", "Operand", "Storage", "transposed"]

ScalarKind = Literal["zero", "one", "value"]
Modes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Operand:
    """One operand of a GEMM as a layout over the memory that holds it.

    Attributes
    ----------
    dtype : str
        NumPy's name of the element type.
    strides : tuple of int
        The two strides in *elements*: (M, K) of A, (N, K) of B, (M, N) of C. Any integers: negative and zero too.
    batch_strides : tuple of int
        Strides in elements of the batch modes, one for each; 0 broadcasts.
    conj : bool
        Whether elements are conjugated as they are read.
    alignment : int
        The largest power of two, at most 16 (bytes), that divides the address of the first element.
    """

    dtype: str
    strides: tuple[int, int]
    batch_strides: tuple[int, ...] = ()
    conj: bool = False
    alignment: int = 16


@dataclass(frozen=True)
class GemmProblem:
    """``C = alpha * A @ B^T + beta * C`` for every batch index.

    Attributes
    ----------
    m, n, k : int
        Extents; any may be 0.
    a, b, c : Operand
        A (M, K), B (N, K) and the output C (M, N).
    batch : tuple of int
        Extents of the batch modes, outermost first as in NumPy.
    alpha, beta : {"zero", "one", "value"}
        What is known of the scalars. ``beta="zero"`` does not read C; ``alpha="zero"`` does not read A or B.
    precision : str
        The algorithm: ``"auto"`` or ``"ieee"`` (native arithmetic of the dtype) at present.
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    batch: tuple[int, ...] = ()
    alpha: ScalarKind = "one"
    beta: ScalarKind = "zero"
    precision: str = "auto"
    variant: str | None = None

    @property
    def flops(self) -> int:
        """Arithmetic operations: 2mnk, four times as many for complex numbers, for every batch index."""
        return 2 * self.m * self.n * self.k * prod(self.batch) * (4 if self.a.dtype.startswith("complex") else 1)


def transposed(p: GemmProblem) -> GemmProblem:
    """The same problem as ``C^T = B A^T``."""
    return replace(p, m=p.n, n=p.m, a=p.b, b=p.a, c=replace(p.c, strides=p.c.strides[::-1]))


@dataclass(frozen=True)
class CopyProblem:
    """``dst[i0, i1, ...] = src[i0, i1, ...]`` between two layouts: a copy, a transpose or any permutation of modes.

    Attributes
    ----------
    shape : tuple of int
        Extents; any may be 0.
    src_strides, dst_strides : tuple of int
        Strides in elements. Those of ``dst`` address every element once; those of ``src`` are any integers.
    itemsize : int
        Bytes of an element: 1, 2, 4, 8 or 16.
    src_alignment, dst_alignment : int
        The largest powers of two, at most 16 (bytes), that divide the addresses.
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    """

    shape: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    itemsize: int
    src_alignment: int = 16
    dst_alignment: int = 16
    variant: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return 2 * prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class Storage:
    """What the memory of a tensor holds.

    Attributes
    ----------
    dtype : str
        NumPy's name of the element type.
    conj : bool
        Whether elements are conjugated as they are read.
    alignment : int
        The largest power of two, at most 16 (bytes), that divides the address of the first element.
    """

    dtype: str
    conj: bool = False
    alignment: int = 16


@dataclass(frozen=True)
class ContractionProblem:
    """A contraction of two tensors as a GEMM whose modes M, N and K are each a group of modes: ``C = alpha * A B + beta * C``.

    A group is a tuple of modes in any order, and a mode is its extent followed by its strides, any integers, in elements.

    Attributes
    ----------
    m : tuple of (extent, stride in A, stride in C)
        Modes of A and C.
    n : tuple of (extent, stride in B, stride in C)
        Modes of B and C.
    k : tuple of (extent, stride in A, stride in B)
        Modes that are summed over; a stride is 0 where only the other tensor has the mode.
    a, b, c : Storage
        What the tensors hold.
    batch : tuple of (extent, stride in A, stride in B, stride in C)
        Modes of all three.
    alpha, beta : {"zero", "one", "value"}
        What is known of the scalars. ``beta="zero"`` does not read C; ``alpha="zero"`` does not read A or B.
    precision : str
        As of a :class:`GemmProblem`.
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    """

    m: Modes
    n: Modes
    k: Modes
    a: Storage
    b: Storage
    c: Storage
    batch: Modes = ()
    alpha: ScalarKind = "one"
    beta: ScalarKind = "zero"
    precision: str = "auto"
    variant: str | None = None

    @property
    def flops(self) -> int:
        """Arithmetic operations: two for every product, four times as many for complex numbers."""
        extents = prod(mode[0] for group in (self.m, self.n, self.k, self.batch) for mode in group)
        return 2 * extents * (4 if self.a.dtype.startswith("complex") else 1)


@dataclass(frozen=True)
class DeviceInfo:
    """What planning needs to know of a device; :data:`H200` stands in where there is none.

    Attributes
    ----------
    name : str
        For people.
    arch : str
        ``"sm_90"`` ...
    multiprocessors : int
        Number of streaming multiprocessors.
    shared_bytes_per_block : int
        Largest dynamic shared memory of a block (opt-in), in bytes.
    clock_hz : float
        Highest clock of the multiprocessors.
    bandwidth : float
        Rate of a large device copy, bytes read plus bytes written per second.
    l2_bytes : int
        Size of the L2 cache.
    """

    name: str
    arch: str
    multiprocessors: int
    shared_bytes_per_block: int
    clock_hz: float
    bandwidth: float
    l2_bytes: int


H200 = DeviceInfo("NVIDIA H200", "sm_90", 132, 232448, 1.98e9, 4.286e12, 62914560)
