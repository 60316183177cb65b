"""Engines of the generator's tensors: typed pointers into global, shared and register memory.

A :class:`~cuteblas.layout.Tensor` is an engine and a layout. Slicing a tensor adds an offset to its engine; indexing it gives an
:class:`Element`, which is a value and has an address. Offsets are symbolic integers, so an address is never written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..layout import Tensor, rank, size
from ..layout.symbolic import IntLike, bits_of, is_static
from .dtypes import DType
from .errors import CodegenError
from .values import Rendered, Value, rendered

__all__ = ["CodegenError", "Element", "Pointer", "Space", "static_extents"]

Space = Literal["gmem", "smem", "rmem"]


@dataclass(frozen=True)
class Element(Value):
    """One element of a tensor in a generated kernel: a value, and a place.

    Attributes
    ----------
    pointer : Pointer
        The memory.
    index : int or Expr
        Which element of it.

    Examples
    --------
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> r = k.registers("r", "float32", Layout((2, 4)))
    >>> r(1, 2).index
    5
    """

    pointer: Pointer
    index: IntLike

    @property
    def dtype(self) -> DType:
        """The type."""
        return self.pointer.dtype

    def rendered(self) -> Rendered:
        index = rendered(self.index)
        return Rendered(f"{self.pointer.name}[{index.c}]", self.pointer.dtype, uses=index.uses)

    @property
    def address(self) -> str:
        """The element's address as a C++ expression."""
        return f"&{self.c}"


@dataclass(frozen=True)
class Pointer:
    """A typed pointer plus an offset.

    Attributes
    ----------
    space : {"gmem", "smem", "rmem"}
        Global, shared or register memory.
    name : str
        The C++ pointer (or register array).
    dtype : DType
        Element type.
    offset : IntLike
        Offset in elements from ``name``.
    alignment : int
        Bytes that divide the address of ``name``.
    root, origin : str, IntLike
        The allocation that ``name`` points into and the offset of ``name`` from its start, for analysis.
    const : bool
        Whether the kernel only reads through it.

    Examples
    --------
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A = k.pointer("A", "float32")
    >>> A.space, A.dtype.name, (A + 4).offset
    ('gmem', 'float32', 4)
    """

    space: Space
    name: str
    dtype: DType
    offset: IntLike = 0
    alignment: int = 16
    root: str = ""
    origin: IntLike = 0
    const: bool = False

    def __add__(self, offset: IntLike) -> Pointer:
        return replace(self, offset=self.offset + offset)

    def __getitem__(self, offset: IntLike) -> Element:
        return Element(self, self.offset + offset)

    def aligned_to(self, index: IntLike, nbytes: int) -> bool:
        """Whether the element at ``index`` is provably aligned to ``nbytes``."""
        return self.alignment % nbytes == 0 and (bits_of(index) * self.dtype.bytes) % nbytes == 0 if self.space != "rmem" else True


def static_extents(tensor: Tensor) -> tuple[int, ...]:
    """Static sizes of the top-level modes.

    Parameters
    ----------
    tensor : Tensor
        A tensor whose shape is known.

    Returns
    -------
    tuple of int
        A size for each top-level mode.

    Raises
    ------
    CodegenError
        If one is not known when the kernel is generated.

    Examples
    --------
    >>> from cuteblas.codegen.engine import static_extents
    >>> from cuteblas.layout import Layout, Tensor, counting_iterator
    >>> static_extents(Tensor(counting_iterator(), Layout((4, (2, 3)))))
    (4, 6)
    """
    layout = tensor.layout
    extents = tuple(size(layout[i]) for i in range(rank(layout)))
    if not all(is_static(n) for n in extents):
        raise CodegenError(f"the extents of {layout} are not known when the kernel is generated")
    return extents
