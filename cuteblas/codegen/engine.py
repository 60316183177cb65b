"""Engines of the generator's tensors: typed pointers into global, shared and register memory.

A :class:`~cuteblas.layout.Tensor` is an engine and a layout. Slicing a tensor adds an offset to its engine; indexing it gives an
:class:`Element`, whose ``c`` and ``address`` are C++ text. Offsets are symbolic integers, so an address is never written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..layout.symbolic import IntLike, bits_of, to_c
from .dtypes import DType

__all__ = ["CodegenError", "Element", "Pointer", "Space"]

Space = Literal["gmem", "smem", "rmem"]


class CodegenError(ValueError):
    """A kernel that cannot be generated as asked: an access that is not provably aligned, a mode that is not covered, ..."""


@dataclass(frozen=True)
class Element:
    """One element of a tensor in a generated kernel."""

    pointer: Pointer
    index: IntLike

    @property
    def c(self) -> str:
        """The element as a C++ lvalue."""
        return f"{self.pointer.name}[{to_c(self.index)}]"

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
