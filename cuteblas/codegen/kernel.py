"""The source of one kernel, and everything needed to compile and launch it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from .._dtypes import DType
from ..layout import ComposedLayout, Layout
from .signature import Part, Signature, TensorParam
from .values import Use

__all__ = ["GeneratedKernel", "TensorMapSpec"]

_ELEMENT_BYTES_OF_BOX = 256


@dataclass(frozen=True)
class TensorMapSpec:
    """How a TMA copy sees a tensor in global memory, and the box of shared memory that one copy
    fills.

    Modes are listed innermost first; the innermost mode has stride 1.

    Attributes
    ----------
    dtype : DType
        Element type.
    shape : tuple of int
        Extents, 1 to 5 modes, each at least 1. Coordinates outside read as zero and are not
        written.
    strides : tuple of int
        Strides in *bytes* of modes 1, 2, ... (the innermost is implied): positive multiples of 16
        below 2^40.
    box : tuple of int
        Extents of the box in shared memory, 1 to 256 each; the innermost extent in bytes is a
        multiple of 16 and at most the span of the swizzle.
    swizzle : int
        Span of the shared-memory swizzle in bytes: 0 (none), 32, 64 or 128.

    References
    ----------
    CUDA driver API, ``cuTensorMapEncodeTiled``; PTX ISA, "Tensor Data Movement".

    Examples
    --------
    >>> from cuteblas._dtypes import dtype
    >>> from cuteblas.codegen.kernel import TensorMapSpec
    >>> TensorMapSpec(dtype("float16"), shape=(1000, 500), strides=(2000,), box=(64, 64), swizzle=128).box
    (64, 64)
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(
                f"a tensor map has 1 to 5 modes, a box of that rank and one stride less; got shape {self.shape}, "
                f"strides {self.strides}, box {self.box}"
            )
        if any(not 1 <= n <= 2**32 for n in self.shape):
            raise ValueError(f"the extents of a tensor map are 1 to 2^32, got {self.shape}")
        if any(s % 16 or not 0 < s < 2**40 for s in self.strides):
            raise ValueError(
                f"the strides of a tensor map are positive multiples of 16 bytes below 2^40, got {self.strides}"
            )
        if any(not 1 <= b <= _ELEMENT_BYTES_OF_BOX for b in self.box):
            raise ValueError(f"the extents of a tensor map's box are 1 to 256, got {self.box}")
        if self.swizzle not in (0, 32, 64, 128):
            raise ValueError(
                f"a tensor map swizzles over 0, 32, 64 or 128 bytes, got {self.swizzle}"
            )
        inner = self.box[0] * self.dtype.bytes
        if inner % 16 or (self.swizzle and inner > self.swizzle):
            raise ValueError(
                f"the innermost extent of a tensor map's box is a multiple of 16 bytes and at most the swizzle span "
                f"({self.swizzle} bytes), got {inner} bytes"
            )


@dataclass(frozen=True)
class Param:
    """One kernel parameter."""

    name: str
    kind: Literal["pointer", "scalar", "tensor_map"]
    dtype: DType
    const: bool = True

    @property
    def ctype(self) -> str:
        """The type in C++."""
        if self.kind == "tensor_map":
            return "const __grid_constant__ cb::TensorMap"
        return self.dtype.ctype + (f"{' const' * self.const}*" if self.kind == "pointer" else "")


@dataclass(frozen=True)
class GeneratedKernel:
    """The source of one kernel.

    Attributes
    ----------
    name : str
        The ``extern "C"`` symbol.
    body : str
        The kernel itself: C++ without the prelude. The GPU and the emulator compile this same text,
        each with its own prelude.
    params : tuple of Param
        In order.
    threads : int
        Threads of a block (one-dimensional).
    shared_bytes : int
        Dynamic shared memory of a block, in bytes.
    arch : str
        The oldest architecture that runs it, ``"sm_70"`` ... ; a trailing ``a`` means this
        architecture alone.
    min_blocks : int
        Blocks that should fit on a multiprocessor at once (the second launch bound).
    cluster : tuple of int
        Blocks of a cluster along x, y, z.
    row : tuple of Param
        Members of a table row, for kernels of many problems: see :mod:`~cuteblas.codegen.grouped`.
    uses : frozenset of Use
        The device functions that it calls.
    assembler : tuple of str
        Options for the assembler (ptxas).
    facts : mapping of str to str
        Facts that generation proved or counted, for readers: layouts, bank conflicts, vector
        widths.
    shared : tuple of (str, str, layout)
        Tensors in shared memory, for readers: name, element type and layout in elements.
    registers : tuple of (str, str)
        Fragments in registers: the statement that declares them, as it stands in the body, and
        their name.
    parts : mapping of str to Part
        The part of a plan's values that each parameter takes; other parameters take the value of
        their own names.
    tensors : mapping of str to TensorParam
        The tensors that the kernel takes.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A, N = k.pointer("A", "float32"), k.integer("N")
    >>> kernel = k.build()
    >>> kernel.name, kernel.threads, [q.name for q in kernel.params], "__global__" in kernel.body
    ('example', 32, ['A', 'N'], True)
    """

    name: str
    body: str
    params: tuple[Param, ...]
    threads: int
    shared_bytes: int = 0
    arch: str = "sm_70"
    min_blocks: int = 1
    cluster: tuple[int, int, int] = (1, 1, 1)
    row: tuple[Param, ...] = ()
    uses: frozenset[Use] = frozenset()
    assembler: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)
    shared: tuple[tuple[str, str, Layout | ComposedLayout], ...] = field(default=(), compare=False)
    registers: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    parts: Mapping[str, Part] = field(default_factory=dict, compare=False)
    tensors: Mapping[str, TensorParam] = field(default_factory=dict, compare=False)

    @cached_property
    def signature(self) -> Signature:
        """What its parameters take."""
        return self._signature_of(self.params)

    @cached_property
    def row_signature(self) -> Signature:
        """What the members of a row take."""
        return self._signature_of(self.row)

    def _signature_of(self, params: tuple[Param, ...]) -> Signature:
        parts = tuple(self.parts.get(q.name, Part(q.name)) for q in params)
        return Signature(self.name, params, parts,
                         {part.of: self.tensors[part.of] for part in parts
                          if part.of in self.tensors})

    @cached_property
    def waits(self) -> bool:
        """Whether it may begin while the launch before it in the stream still runs: it waits for
        that one itself."""
        return Use("wait_for_launch_before") in self.uses

    @cached_property
    def cuda_source(self) -> str:
        """The complete translation unit for a CUDA compiler; it includes no header."""
        from .prelude import cuda_prelude

        return cuda_prelude(self.uses, (q.dtype for q in (*self.params, *self.row))) + self.body

    @cached_property
    def digest(self) -> str:
        """A hash of the source and the options, for caches."""
        return hashlib.sha256("\n".join((*self.assembler, self.cuda_source)).encode()).hexdigest()
