"""Typed pointers into global, shared and register memory: engines of the generator's tensors.

Slicing a tensor adds a symbolic offset to its engine; indexing it gives an :class:`Element`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from .._dtypes import DType
from ..layout import Layout, Tensor
from ..layout.symbolic import IntLike, bits_of, is_static, maximum, minimum
from .errors import CodegenError
from .values import Rendered, Value, integer, rendered

__all__ = ["CodegenError", "Element", "Pointer", "Space"]

Space = Literal["gmem", "smem", "rmem"]


@dataclass(frozen=True)
class Element(Value):
    """One element of a tensor in a generated kernel: a value and a place.

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

    def run(self, length: int = 1) -> Tensor:
        """The tensor of so many elements of memory that follow each other, from this one on."""
        return Tensor(replace(self.pointer, offset=self.index), Layout(length))


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
        The allocation that ``name`` points into and the offset of ``name`` from its start, for
        analysis.
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
        return Pointer(self.space, self.name, self.dtype, self.offset + offset, self.alignment,
                       self.root, self.origin, self.const)

    def __getitem__(self, offset: IntLike) -> Element:
        return Element(self, self.offset + offset)

    def aligned_to(self, index: IntLike, nbytes: int) -> bool:
        """Whether the element at ``index`` is provably aligned to ``nbytes``."""
        return self.alignment % nbytes == 0 and (bits_of(index) * self.dtype.bytes) % nbytes == 0 if self.space != "rmem" else True


@dataclass(frozen=True)
class Lines:
    """The memory around a tensor as aligned words; :meth:`KernelBuilder.lines` makes them. Elements
    may begin anywhere in a word."""

    words: Pointer
    before: IntLike                     # elements from the first word to the tensor's address
    packed: int                         # elements of a word
    span: tuple[IntLike, IntLike] | None = None     # of the array, in elements from that address

    def place(self, element: Element) -> IntLike:
        """The place of an element of the tensor."""
        return self.before + element.index

    def run(self, place: IntLike, layout: Layout | int = 1, whole: int = 1) -> Tensor:
        """Words from the one on that a place is in, so many or in this layout; or from the first of
        the ``whole`` ones that it is in, where words are counted in so many at a time.
        """
        first = place // (self.packed * whole) * whole
        return Tensor(self.words + first, layout if isinstance(layout, Layout) else Layout(layout))

    def bits(self, place: IntLike) -> IntLike:
        """Bits of its word before a place."""
        return 8 * self.words.dtype.bytes // self.packed * (place % self.packed)

    def covered(self, runs: Iterable[Element], length: IntLike) -> Value:
        """Whether the words that cover so many elements from each of these on, and one word more,
        are memory of the array."""
        if self.span is None:
            raise CodegenError(
                f"the kernel has no parameters for the bounds of {self.words.root}: pass spanned=True"
            )
        (lowest, end), places = self.span, [run.index for run in runs]
        return ((integer(reduce(minimum, places)) >= lowest + (self.packed - 1))
                & (integer(reduce(maximum, places) + (length + self.packed)) <= end))


def static_extents(tensor: Tensor) -> tuple[int, ...]:
    """Static sizes of the top-level modes."""
    extents = tensor.extents
    if not all(map(is_static, extents)):
        raise CodegenError(
            f"the extents of {tensor.layout} are not known when the kernel is generated"
        )
    return extents
