"""Copies by vectors, ``cp.async``, ``ldmatrix`` and ``st.async``; TMA's are in ``tma``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..layout import ComposedLayout, Swizzle, Tensor, size
from ..layout.inttuple import divides
from ..layout.symbolic import Condition, IntLike, Var, all_of, bits_of
from .builder import CopyAtom, Guard, KernelBuilder
from .engine import CodegenError, Element, Pointer, Space, static_extents
from .intrinsics import Argument

__all__ = ["Covering", "CpAsync", "Ldmatrix", "StoreAsync", "Vector", "expect_words"]

_MOST_BYTES = 16                    # of a vector, and of a row that ldmatrix loads
_REGISTERS = 4                      # that one ldmatrix fills
_WORD = 4                           # bytes that st.async stores


@dataclass(frozen=True)
class Vector(CopyAtom):
    """Copies between registers and memory, ``width`` elements along mode 0 at a time.

    With a guard, elements that do not exist read as zero and are not written. With a condition that
    is false, no element exists.

    Attributes
    ----------
    width : int
        Elements of a vector.

    Examples
    --------
    >>> from cuteblas.codegen.copies import Vector
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> S, r = Tensor(k.pointer("S", "float32"), Layout(8)), k.registers("r", "float32", Layout(8))
    >>> k.copy(Vector(4), S, r)
    >>> print("\\n".join(k.build().body.splitlines()[-5:-1]))
    #pragma unroll
      for (int i = 0; i < 2; ++i) {
        cb::load_global<4>(&r[i * 4], &S[i * 4]);
      }
    """

    width: int = 1

    _calls: ClassVar[Mapping[tuple[str, str], str]] = {("gmem", "rmem"): "load_global",
                                                       ("rmem", "gmem"): "store_global",
                                                       ("smem", "rmem"): "load_shared",
                                                       ("rmem", "smem"): "store_shared"}
    _predicated: ClassVar[bool] = False         # whether the calls always take a predicate

    def __post_init__(self) -> None:
        if self.width not in (1, 2, 4, 8, 16):
            raise CodegenError(f"a vector has 1, 2, 4, 8 or 16 elements, got {self.width}")

    def copy(self, k: KernelBuilder, source: Tensor, target: Tensor, guard: Guard | None,
             when: Condition) -> None:
        """Write the accesses.

        Raises
        ------
        CodegenError
            If extents differ, or a vector is not provably contiguous, aligned and as a whole inside
            or outside of the guard.
        """
        extents = static_extents(source)
        if extents != static_extents(target):
            raise CodegenError(f"copy: extents differ: {source.layout} to {target.layout}")
        if extents[0] % self.width:
            raise CodegenError(
                f"copy: mode 0 of {source.layout} does not split into vectors of {self.width}"
            )
        call = self._calls.get((source.engine.space, target.engine.space))
        if call is None:
            known = ", ".join(f"{a} to {b}" for a, b in self._calls)
            raise CodegenError(
                f"copy: the atom copies {known}, not {source.engine.space} to {target.engine.space}"
            )
        for tensor in (source, target):
            _prove_vector(tensor, self.width)
        with k.loops((extents[0] // self.width, *extents[1:])) as (v, *rest):
            at = (v * self.width, *rest)
            s, d = source(*at), target(*at)
            arguments: list[Argument] = [d, s]
            if guard is not None and not guard.same_for(at, self.width):
                raise CodegenError(
                    f"copy: vectors of {self.width} elements may lie partly outside of the extents {guard.extents}"
                )
            if guard is not None or when is not True or self._predicated:
                arguments.append(all_of(when, True if guard is None else guard.at(at)))
            for element in (s, d):
                k.count(element, self.width, call)
            k.do(call, *arguments, of=self.width)


@dataclass(frozen=True)
class CpAsync(Vector):
    """Asynchronous copies from global to shared memory (``cp.async``).

    :meth:`KernelBuilder.commit` closes a group of copies, :meth:`KernelBuilder.wait` waits for
    groups. Otherwise the atom works as :class:`Vector`.

    Attributes
    ----------
    width : int
        Elements that one copy moves: 4, 8 or 16 bytes.

    Examples
    --------
    >>> from cuteblas.codegen.copies import CpAsync
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> S, sS = Tensor(k.pointer("S", "float32"), Layout(4)), k.shared("sS", "float32", Layout(4))
    >>> k.copy(CpAsync(4), S, sS)
    >>> k.commit()
    >>> k.wait(0)
    >>> k.build().body.splitlines()[-4].strip()
    'cb::cp_async<4>(&sS[0], &S[0], true);'
    """

    _calls: ClassVar[Mapping[tuple[str, str], str]] = {("gmem", "smem"): "cp_async"}
    _predicated: ClassVar[bool] = True


@dataclass(frozen=True)
class Covering(Vector):
    """Loads from shared memory of words that cover a run of elements; the rest of the words may
    never have been written.

    The run may begin anywhere. Otherwise the atom works as :class:`Vector`.

    Attributes
    ----------
    width : int
        Elements that are loaded at once.

    Examples
    --------
    >>> from cuteblas.codegen.copies import Covering
    >>> Covering(4).width
    4
    """

    _calls: ClassVar[Mapping[tuple[str, str], str]] = {("smem", "rmem"): "load_covering"}


@dataclass(frozen=True)
class Ldmatrix(CopyAtom):
    """Loads of 8 x 8 matrices of 16-bit elements from shared memory, four at a time, by whole warps
    (``ldmatrix``).

    The source is (row, quadruple), the row of 16 bytes that a lane addresses in each quadruple of
    matrices; the target (4, quadruple), 32-bit registers, one for each matrix.

    Attributes
    ----------
    transposed : bool
        Whether lanes get pairs of a column instead of pairs of a row.

    Examples
    --------
    >>> from cuteblas.codegen.copies import Ldmatrix
    >>> Ldmatrix(transposed=True)
    Ldmatrix(transposed=True)
    """

    transposed: bool = False

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the loads.

        Raises
        ------
        CodegenError
            If a row is not provably 16 contiguous, aligned bytes.
        """
        width, quadruples = static_extents(source)
        if width * source.engine.dtype.bytes != _MOST_BYTES or static_extents(target) != (
            _REGISTERS,
            quadruples
        ):
            raise CodegenError(
                f"ldmatrix loads rows of 16 bytes into 4 registers, got {source.layout} to {target.layout}"
            )
        _prove_vector(source, width)
        with k.each(quadruples) as q:
            row = source(0, q)
            k.count(row, width, "load_shared")
            k.do("ldmatrix_x4_trans" if self.transposed else "ldmatrix_x4", target(0, q), row)


@dataclass(frozen=True)
class StoreAsync(CopyAtom):
    """A store of a word of 4 bytes, from a register, into the shared memory of a block of the
    cluster (PTX ISA, "st.async").

    The target is one element, at its address in this block's shared memory.

    Attributes
    ----------
    rank : int or Expr
        The rank of the block. It must have begun, and may not end before the word arrives.
    barrier : Element
        The mbarrier that the store completes in the other block, given by its address in this one.

    Examples
    --------
    >>> from cuteblas.codegen.copies import StoreAsync
    >>> from cuteblas.codegen.mbarrier import Mbarriers
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32, arch="sm_90", cluster=2)
    >>> barrier = Mbarriers(k, "came", 1, arrivals=1).at(0)
    >>> StoreAsync(1, barrier).rank
    1
    """

    rank: IntLike
    barrier: Element

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the store.

        Raises
        ------
        CodegenError
            If the operands are not a register word and shared memory.
        """
        expect_words("rmem", source, "smem", target, source, target)
        if size(source.layout) != 1 or size(target.layout) != 1:
            raise CodegenError(f"StoreAsync stores one word, got {source} to {target}")
        k.do("store_async", target(0), source(0), self.rank, self.barrier)


def expect_words(source_space: Space, source: Tensor, target_space: Space, target: Tensor,
                 *words: Tensor) -> None:
    """Refuse a copy between other kinds of memory, or of tensors whose elements are not words."""
    if (source.engine.space, target.engine.space) != (source_space, target_space) or any(
            x.engine.dtype.bytes != _WORD for x in words):
        raise CodegenError(f"words of {_WORD} bytes are copied from {source_space} to "
                           f"{target_space}, got {source} to {target}")


def _prove_vector(tensor: Tensor, width: int) -> None:
    """Refuse a vector access whose elements are not provably contiguous and aligned."""
    pointer: Pointer = tensor.engine
    nbytes = width * pointer.dtype.bytes
    if nbytes > _MOST_BYTES:
        raise CodegenError(
            f"copy: {width} elements of {pointer.dtype.name} are not a vector of 1 to {_MOST_BYTES} bytes"
        )
    if pointer.aligned_to(0, nbytes) and (width == 1 or _consists_of_runs(tensor, width)):
        return
    extent, *rest = static_extents(tensor)
    start, others = Var("_0", 0, extent // width - 1) * width, [Var(f"_{i}", 0, n - 1)
                                                                for i, n in enumerate(rest, 1)]
    first = tensor(start, *others).index
    if any(tensor(start + v, *others).index - first != v for v in range(1, width)):
        raise CodegenError(
            f"copy: {width} elements of mode 0 of {pointer.name} {tensor.layout} are not contiguous"
        )
    if not pointer.aligned_to(first, nbytes):
        raise CodegenError(
            f"copy: vectors of {width} elements of {pointer.name} {tensor.layout} are not provably aligned "
            f"to {nbytes} bytes"
        )


def _consists_of_runs(tensor: Tensor, width: int) -> bool:
    """Whether a tensor visibly consists of runs of ``width`` elements at multiples of it."""
    layout, starts = tensor.layout, [tensor.engine.offset]
    if isinstance(layout, ComposedLayout):
        if not isinstance(layout.outer, Swizzle) or 1 << layout.outer.base < width:
            return False                                # a swizzle moves runs, but takes none apart
        starts.append(layout.offset)
        layout = layout.inner
    (s, d), *others = [(s, d) for s, d in layout.pairs if s != 1]
    return d == 1 and divides(width, s) and all(bits_of(x) & (width - 1) == 0
                                                for x in (*starts, *(d for _, d in others)))
