"""The kernel builder: tensors and tiles in, readable CUDA C++ out.

The builder writes the loops, derives every address, vector width, predicate and descriptor from
layouts, and refuses what it cannot prove. It counts bank conflicts and sectors of the accesses
that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from .._dtypes import DType, dtype
from ..layout import (
    ArithTuple,
    ComposedLayout,
    CoordinateIterator,
    Layout,
    Tensor,
    cosize,
    make_tensor,
    product,
)
from ..layout.symbolic import Condition, Expr, IntLike, Var, all_of, bits_of, bounds, to_c
from .access import AccessCounter
from .engine import CodegenError, Element, Lines, Pointer, static_extents
from .intrinsics import Argument, called, intrinsic
from .kernel import GeneratedKernel, Param
from .nested import tabulated
from .signature import Declarations, declare
from .values import Operand, Rendered, Term, Use, Value, local, rendered

__all__ = ["CopyAtom", "GemmAtom", "Guard", "KernelBuilder"]

_INT32, _INT64 = dtype("int32"), dtype("int64")
_MAX_VECTOR_BYTES = 16
_CONDITION = 2                      # how strongly the condition of ?: binds


_Named = TypeVar("_Named", bound=IntLike | Term | Element | Tensor)
_Variable = TypeVar("_Variable", bound=Value)


class CopyAtom:
    """Copies tensors with certain instructions, and predicates if it has any.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.copies import Vector
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, r = Tensor(k.pointer("S", "float32"), Layout(4)), k.registers("r", "float32", Layout(4))
    >>> k.copy(Vector(4), S, r)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::load_global<4>(&r[0], &S[0]);'
    """

    def copy(self, k: KernelBuilder, source: Tensor, target: Tensor, guard: Guard | None,
             when: Condition) -> None:
        """Write the copy of all of ``source``. An atom that only has ``write`` takes no predicates.

        Raises
        ------
        CodegenError
            If there is a guard or a condition, and the atom takes none.
        """
        if guard is not None or when is not True:
            raise CodegenError(
                f"{type(self).__name__} takes no predicates: put the copy under KernelBuilder.when"
            )
        self.write(k, source, target)

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the copy of all of ``source``: hardware checks bounds, or all elements exist."""


class GemmAtom(Protocol):
    """Multiplies matrices with certain instructions and thread-value layouts.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.fma import Fma
    >>> from cuteblas.layout import Layout
    >>> k = KernelBuilder("example", threads=32)
    >>> a, b = (k.registers(name, "float32", Layout((2, 1))) for name in "ab")
    >>> c = k.registers("c", "float32", Layout(((2, 2), 1, 1)))
    >>> k.gemm(Fma(), c, a, b)
    >>> k.build().body.splitlines()[-4].strip()
    'cb::mac(c[at + j * 2], a[at], b[j]);'
    """

    def gemm(self, k: KernelBuilder, c: Tensor, a: Tensor, b: Tensor) -> None:
        """Write ``c += a b^T``."""


@dataclass(frozen=True)
class Guard:
    """A predicate: which coordinates of a partitioned tensor are inside the extents.

    Attributes
    ----------
    coordinates : Tensor
        The identity tensor, partitioned exactly as the tensor that it guards; its elements are
        coordinates.
    extents : tuple
        Exclusive upper bounds, one for each coordinate; ``None`` where nothing needs checking.
    halo : bool
        Whether coordinates may be negative; no element exists there. Single elements are then
        copied.
    triangle : {"lower", "upper", "below"}, optional
        The triangle of two coordinates in which elements exist, with the diagonal or strictly below
        it. Single elements are then copied.

    Examples
    --------
    >>> from cuteblas.codegen.builder import Guard, KernelBuilder
    >>> from cuteblas.layout import make_identity_tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> M, N = k.integer("M"), k.integer("N")
    >>> print(Guard(make_identity_tensor((32, 16)), (M, N)).at((3, 5)))
    3 < M && 5 < N
    """

    coordinates: Tensor
    extents: tuple[IntLike | None, ...]
    halo: bool = False
    triangle: str | None = None

    def at(self, coordinate: tuple[Any, ...]) -> Condition:
        """The condition under which the element at ``coordinate`` exists."""
        values = self.coordinates(*coordinate)
        inside = [v < n for v, n in zip(values, self.extents, strict=True) if n is not None]
        if self.triangle is not None:
            (m, n), strict = values, self.triangle == "below"
            inside.append(m < n + 1 if self.triangle == "upper" else n < m + (not strict))
        return all_of(*inside, *(v > -1 for v in values if self.halo))

    def same_for(self, coordinate: tuple[Any, ...], width: int) -> bool:
        """Whether the condition is provably the same for ``width`` (a power of two) elements along
        mode 0 from ``coordinate``."""
        if self.halo or self.triangle is not None:
            return width == 1
        first, *rest = coordinate
        start, end = self.coordinates(*coordinate), self.coordinates(first + width - 1, *rest)
        return all(n is None or a == b or (bits_of(a) | bits_of(n)) & (width - 1) == 0
                   for a, b, n in zip(start, end, self.extents, strict=True))

    def __getitem__(self, coordinate: tuple) -> Guard:
        return replace(self, coordinates=self.coordinates[coordinate])


class KernelBuilder:
    """Writes one kernel.

    Parameters
    ----------
    name : str
        The kernel's symbol.
    threads : int
        Threads of a block.
    arch : str
        The oldest architecture that runs it.
    min_blocks : int
        Blocks that should fit on a multiprocessor at once.
    wide : bool
        Whether integers have 64 bits instead of 32.
    summary : str
        First lines of the comment that heads the source.
    unroll : bool
        Whether loops over the elements of fragments ask the compiler to unroll them
        (``#pragma unroll``).
    cluster : int
        Blocks of a cluster, along x.
    waits : bool
        Whether the kernel may begin while the launch before it in the stream still runs; first it
        waits for that one to end.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.copies import Vector
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("doubled", threads=32, waits=False)
    >>> S, D = Tensor(k.pointer("S", "float32"), Layout(32)), Tensor(k.pointer("D", "float32", const=False), Layout(32))
    >>> r = k.registers("r", "float32", Layout(1))
    >>> k.do("load_global", r(0), S(k.thread), of=1)
    >>> k.assign(r(0), r(0) + r(0))
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> body = k.build().body
    >>> print(body[body.index("extern"):])
    extern "C" __global__ void __launch_bounds__(32)
    doubled(float const* S, float* D)
    {
      int const tid = threadIdx.x;
      alignas(16) float r[1];
      cb::load_global<1>(&r[0], &S[tid]);
      r[0] = r[0] + r[0];
      cb::store_global<1>(&D[tid], &r[0]);
    }
    <BLANKLINE>
    """

    def __init__(self, name: str, threads: int, *, arch: str = "sm_75", min_blocks: int = 1,
                 wide: bool = False, summary: str = "", unroll: bool = True, cluster: int = 1,
                 waits: bool = True):
        self.name, self.threads, self.arch = _checked_name(name), threads, arch
        self.min_blocks, self.cluster = min_blocks, cluster
        self._int, self._int_dtype = ("long long", _INT64) if wide else ("int", _INT32)
        self._summary, self._unroll, self._waits = summary, unroll, waits
        self._gated = self._in_loop = False
        self._block_index = ""                         # the block's, if it is one among others
        self._rest = ExitStack()                       # what ends with the kernel
        self._notes: list[str] = []
        self._params: list[Param] = []
        self.declarations = Declarations()
        self._lines: list[str] = []
        self._indent = 1
        self._shared_bytes = self._shared_next = 0
        self._shared_at: dict[str, int] = {}
        self._shared_tensors: list[tuple[str, str, Layout | ComposedLayout]] = []
        self._names: set[str] = set()
        self._uses: set[Use] = set()
        self._registers: dict[str, str] = {}           # their declarations, and their names
        self.assembler: tuple[str, ...] = ()
        self._access = AccessCounter(threads)
        self.thread = self._declare("tid", "threadIdx.x", Var("tid", 0, threads - 1))
        self._access.thread = self.thread

    # -- parameters --------------------------------------------------------------------------------
    tensors = declare

    def extent(self, mode: str) -> IntLike:
        """The extent of a declared mode: the product of the extents nested in it."""
        return product(self.declarations.extents[mode])

    def pointer(self, name: str, element: str, *, const: bool = True,
                alignment: int = 16) -> Pointer:
        """A pointer parameter to elements of a type, aligned to ``alignment`` bytes."""
        dt = dtype(element)
        self._pass(Param(name, "pointer", dt, const))
        return Pointer("gmem", name, dt, alignment=alignment, root=name, const=const)

    def integer(self, name: str, *, lo: int | None = 0, multiple: int = 1,
                typical: int | None = None) -> Expr:
        """An integer parameter from ``lo`` on that is a multiple of ``multiple`` (a power of two).

        The builder counts the costs of accesses for a ``typical`` value.
        """
        self._access.parameter(name, extent=lo is not None, value=typical)
        self._pass(Param(name, "scalar", self._int_dtype))
        return Var(name, lo, bits=-multiple)

    def scalar(self, name: str, element: str) -> Term:
        """A parameter that holds one value of an element type."""
        self._params.append(Param(self._fresh(name), "scalar", dtype(element)))
        return local(name, element)

    def gate(self, value: int | None) -> None:
        """Add parameters ``gate`` and ``gate_words``: the kernel does nothing unless one of these
        words in memory has this value.

        With ``None`` there is no gate.
        """
        if value is None:
            return
        words, count = self.pointer("gate", "uint32", alignment=4), self.integer("gate_words")
        self._gated = True
        opens = self.declare("gate_opens", "bool", False)
        with self.loop("i", count, start=self.thread, step=self.threads) as i:
            word = self.load(self.declare("word", "uint32"), words[i])
            self.assign(opens, opens | word.equals(value))
        self.stop(~self.call("syncthreads_or", opens))

    def each_block(self, name: str, *, several: bool = False) -> Expr:
        """The block's index along x. With a gate or with ``several``, a block loops over the work
        of several blocks.

        A launch with a gate has only as many blocks as fit on the device, so a closed gate costs
        little. Parameter ``blocks`` is the number of blocks of work. The loop ends at
        :meth:`after_blocks` or at the end of the kernel.
        """
        if not self._gated and not several:
            return self.block_index(name)
        first, step = self.block_index("own_block"), self.grid_size("own_blocks")
        block = self._rest.enter_context(self.loop(name, self.integer("blocks"), start=first,
                                                   step=step, unroll=False))
        self._in_loop = True
        # What the block before left in shared memory, or on its way there, is not in use any more.
        self.wait(0)
        self.barrier()
        assert isinstance(block, Expr)
        return block

    def after_blocks(self) -> None:
        """End the loop of :meth:`each_block`."""
        self._rest.close()
        self._in_loop = False

    def end_block(self, condition: Value | Expr) -> None:
        """End the work of a block (:meth:`each_block`) early, if a condition holds for all of its
        threads."""
        self._line(f"if ({self._c(condition)}) {'continue' if self._in_loop else 'return'};")

    def tensor_map(self, name: str) -> str:
        """A TMA tensor map parameter; returns its C++ name."""
        self._params.append(Param(self._fresh(name), "tensor_map", dtype("b8")))
        return name

    def lines(self, name: str, pointer: Pointer, element: str, nbytes: int, *,
              spanned: bool = False) -> Lines:
        """The memory around a tensor as words of a type. They begin at the last multiple of
        ``nbytes`` at or before its pointer.

        Words before and after the tensor may lie outside of the array. With ``spanned``, parameters
        ``<pointer>_lowest`` and ``<pointer>_end`` give the bounds of the array, in elements from
        the pointer. ``nbytes`` is a power of two.
        """
        dt, item = dtype(element), pointer.dtype.bytes
        const = " const" if pointer.const else ""
        self._record({Use("aligned_down", (dt.ctype + const, str(nbytes)))})
        self._line(
            f"{dt.ctype}{const}* const {self._fresh(name)} = cb::aligned_down<{dt.ctype}{const}, {nbytes}>({pointer.name});"
        )
        between = f"static_cast<int>(reinterpret_cast<unsigned long long>({pointer.name}) & {nbytes - 1}) / {item}"
        before = self._declare(f"{name}_before", between,
                               Var(f"{name}_before", 0, nbytes // item - 1))
        words = Pointer("gmem", name, dt, alignment=nbytes, root=pointer.root, const=pointer.const)
        span = (self.integer(f"{pointer.name}_lowest", lo=None),
                self.integer(f"{pointer.name}_end")) if spanned else None
        return Lines(words, before, dt.bytes // item, span)

    # -- memory ------------------------------------------------------------------------------------
    def shared(self, name: str, element: str, layout: Any, *, alignment: int = 128,
               over: str | None = None) -> Tensor:
        """A tensor in the block's shared memory, of a layout or a shape; with ``over``, in the
        memory of another tensor, not in use meanwhile."""
        dt = dtype(element)
        tensor = make_tensor(Pointer("smem", name, dt, alignment=alignment, root=name), layout)
        layout, elements = tensor.layout, cosize(tensor.layout)
        offset = -(-self._shared_next // alignment) * alignment if over is None else self._shared_at[over]
        self._shared_at[name] = offset
        self._shared_tensors.append((name, dt.name, layout))
        self._shared_next = max(self._shared_next, offset + elements * dt.bytes)
        self._shared_bytes = max(self._shared_bytes, self._shared_next)
        self._line(
            f"{dt.ctype}* const {self._fresh(name)} = {self._c(self.call('shared_memory', offset, of=element))};"
        )
        self.note(f"{name}: shared {dt.name} {layout}, {elements * dt.bytes} bytes")
        return tensor

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Limit shared tensors to a ``with`` block: later tensors reuse their memory, after a
        barrier."""
        start = self._shared_next
        yield
        self._shared_next = start

    def registers(self, name: str, element: str, layout: Any) -> Tensor:
        """A fragment: a tensor in the thread's registers, of a layout or a shape."""
        dt = dtype(element)
        tensor = make_tensor(Pointer("rmem", name, dt, root=name), layout)
        declaration = f"alignas(16) {dt.ctype} {self._fresh(name)}[{cosize(tensor.layout)}];"
        self._registers[declaration] = name
        self._line(declaration)
        self.note(f"{name}: registers {dt.name} {tensor.layout}")
        return tensor

    # -- integers ----------------------------------------------------------------------------------
    def let(self, name: str, value: _Named) -> _Named:
        """Name an integer expression, a value, or the place of an element or a tensor; constants
        and plain variables stay what they are."""
        given: Any = value
        if isinstance(given, Term):
            assert given.dtype is not None
            return self.declare(name, given.dtype.name, given, const=True)  # type: ignore[return-value]
        if isinstance(given, Element):
            return replace(given, index=self.let(name, given.index))  # type: ignore[return-value]
        if isinstance(given, Tensor):
            return Tensor(
                replace(given.engine, offset=self.let(name, given.engine.offset)), given.layout
            )  # type: ignore[return-value]
        if isinstance(given, int) or given.op == "var":
            return value
        return self._declare(name, self._c(given), given)  # type: ignore[return-value]

    def block_index(self, name: str = "block", axis: str = "x") -> Expr:
        """The block's index along ``axis`` (x, y or z)."""
        return self._declare(name, self._block_index or f"blockIdx.{axis}", Var(name, 0))

    def grid_size(self, name: str = "blocks", axis: str = "x") -> Expr:
        """The number of blocks along ``axis`` (x, y or z)."""
        self._access.parameter(name, extent=True)
        return self._declare(name, f"gridDim.{axis}", Var(name, 1))

    def flag(self, name: str, condition: Value | Expr) -> Expr:
        """An integer that is 1 if a condition holds, else 0."""
        text = self._recorded(rendered(condition)).at(_CONDITION)
        return self._declare(name, f"{text} ? 1 : 0", Var(name, 0, 1))

    def variable(self, name: str, value: IntLike, hi: int | None = None) -> Expr:
        """A mutable integer, 0 to ``hi``, changed by :meth:`assign`."""
        self._line(f"{self._int} {self._fresh(name)} = {self._c(value)};")
        return Var(name, 0, hi)

    def array(self, name: str, entries: int, value: Callable[[IntLike], IntLike]) -> None:
        """An array of integers in registers, ``value(i)`` at ``i``;
        :func:`~cuteblas.layout.symbolic.entry` reads it."""
        self._line(f"{self._int} {self._fresh(name)}[{entries}];")
        with self.each(entries) as i:
            self._line(f"{name}[{self._c(i)}] = {self._c(value(i))};")

    # -- values ------------------------------------------------------------------------------------
    def declare(self, name: str, element: str, value: Operand | None = None, *,
                const: bool = False) -> Term:
        """A variable of an element type, without a value or with one, which it keeps if it is
        ``const``."""
        kind = dtype(element)
        text = "" if value is None else f" = {self._value(value, kind)}"
        ctype = "unsigned" if kind.ctype == "unsigned int" else kind.ctype
        self._line(f"{ctype}{' const' if const else ''} {self._fresh(name)}{text};")
        return local(name, element)

    def words(self, name: str, values: Sequence[Value]) -> Tensor:
        """An array of words of 4 bytes."""
        self._line(
            f"unsigned {self._fresh(name)}[{len(values)}] = {{{', '.join(self._value(v, dtype('b32')) for v in values)}}};"
        )
        return Tensor(Pointer("rmem", name, dtype("b32"), root=name), Layout(len(values)))

    def assign(self, target: Value | Expr, value: Operand) -> None:
        """Change an element of registers, or a variable.

        Raises
        ------
        CodegenError
            If the value has another type.
        """
        kind = None if isinstance(target, Expr) else target.dtype
        self._line(f"{self._c(target)} = {self._value(value, kind)};")

    def call(self, name: str, *arguments: Argument, of: object = ()) -> Term:
        """The value of a device function (:mod:`~cuteblas.codegen.intrinsics`).

        Parameters
        ----------
        name : str
            The name of the function.
        *arguments
            The arguments of the call.
        of : optional
            Template arguments: the name of an element type, an integer, or several of them.
        """
        return Term(called(name, of if isinstance(of, tuple) else (of,), arguments))

    def do(self, name: str, *arguments: Argument, of: object = ()) -> None:
        """Call a device function that returns no value: see :meth:`call`."""
        self._line(f"{self._c(self.call(name, *arguments, of=of))};")

    def convert(self, value: Operand, element: str) -> Term:
        """Convert a value to another type, rounded as in NumPy."""
        return self.call("convert", value, of=element)

    def pin(self, name: str, tensor: Tensor, *, settled: bool = False) -> Tensor:
        """Name a tensor in the source: its offset is computed once, where this stands.

        The compiler may still compute it again wherever it is used, unless it is ``settled`` (in
        global memory). Of a tensor with nested modes that is seen through flat coordinates, offsets
        along modes of static extent are computed too: see :mod:`~cuteblas.codegen.nested`.
        """
        engine, layout = tensor.engine, tensor.layout
        self.note(f"{name}: {layout}")
        if isinstance(engine, Pointer):
            if isinstance(layout, ComposedLayout) and isinstance(layout.outer, Layout):
                layout = tabulated(self, name, layout)
            elif isinstance(layout, ComposedLayout):
                layout = replace(layout, offset=self.let(f"{name}_offset", layout.offset))
            element = engine[0]
            const = " const" if engine.const else ""
            self._record(element.rendered().uses)
            address = self._c(self.call("settled",
                                        replace(engine,
                                                const=False)[0])) if settled else element.address
            self._line(f"{engine.dtype.ctype}{const}* const {self._fresh(name)} = {address};")
            low = bits_of(element.index) & -bits_of(element.index)
            alignment = min(engine.alignment, low
                            * engine.dtype.bytes) if low > 0 else engine.alignment
            return Tensor(replace(engine, name=name, offset=0, alignment=alignment,
                                  origin=engine.origin + element.index), layout)
        if isinstance(engine, CoordinateIterator):
            start = ArithTuple(*(self.let(f"{name}_{i}", v) for i, v in enumerate(engine.start)))
            return Tensor(CoordinateIterator(start), layout)
        raise CodegenError(f"a tensor over {engine!r} cannot be named")

    # -- control -----------------------------------------------------------------------------------
    @contextmanager
    def loop(self, name: str, stop: IntLike, *, start: IntLike = 0, step: IntLike = 1,
             unroll: bool | None = None) -> Iterator[IntLike]:
        """``for (name = start; name < stop; name += step)``; a single iteration of constants is
        written without a loop.

        The compiler is told to unroll it, or not to (``False``), or decides.
        """
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and start + step >= stop > start:
            yield start
            return
        name = self._unused(name)
        if unroll is not None:
            self._lines.append("#pragma unroll" if unroll else "#pragma unroll 1")
        advance = f"++{name}" if step == 1 else f"{name} += {self._c(step)}"
        with self._block(
            f"for ({self._int} {name} = {self._c(start)}; {name} < {self._c(stop)}; {advance})"
        ):
            self._fresh(name)
            yield Expr("var", (name,), bounds(start)[0], bounds(stop)[1] - 1)

    @contextmanager
    def loops(self, extents: Sequence[int], names: str = "ijklmn") -> Iterator[tuple[IntLike, ...]]:
        """Nested loops over static extents, the first innermost, unrolled if the kernel's are;
        yields the coordinates."""
        with ExitStack() as stack:
            at = [stack.enter_context(self.each(extent, name))
                  for name, extent in reversed(list(zip(names, extents, strict=False)))]
            yield (*reversed(at),)

    def each(self, extent: int, name: str = "i") -> AbstractContextManager[IntLike]:
        """A loop over one static extent, as those of :meth:`loops`; yields the coordinate."""
        return self.loop(name, extent, unroll=self._unroll or None)

    @contextmanager
    def when(self, condition: Value | Condition) -> Iterator[None]:
        """Statements under a condition; without a test if it is known to hold."""
        if condition is True:
            yield
        else:
            with self._block(f"if ({self._c(condition)})"):
                yield

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The alternative of the :meth:`when` just before."""
        with self._block("else"):
            yield

    def stop(self, condition: Value | Expr) -> None:
        """End the thread if a condition holds."""
        self._line(f"if ({self._c(condition)}) return;")

    def spin(self, condition: Value) -> None:
        """Evaluate a condition until it does not hold any more."""
        self._line(f"while ({self._c(condition)}) {{}}")

    # -- work --------------------------------------------------------------------------------------
    def copy(self, atom: CopyAtom, source: Tensor | Element, target: Tensor | Element, *,
             guard: Guard | None = None, when: Condition = True) -> None:
        """Copy a tensor with the instructions of an atom: :mod:`~cuteblas.codegen.copies`,
        :mod:`~cuteblas.codegen.tma`.

        Parameters
        ----------
        atom : CopyAtom
            The instructions to copy with.
        source, target : Tensor or Element
            Tensors with the same extents; if the atom works per thread, the thread's parts. An
            element is a tensor of one.
        guard : Guard, optional
            The predicate of elements that exist.
        when : Expr or bool
            A condition; if it is false, no element exists.
        """
        of_source, of_target = (x.run() if isinstance(x, Element) else x for x in (source, target))
        atom.copy(self, of_source, of_target, guard, when)

    def load(self, variable: _Variable, source: Element | Pointer) -> _Variable:
        """Load an element of memory to a variable, which is returned."""
        place = source.pointer if isinstance(source, Element) else source
        self.do("load_global" if place.space == "gmem" else "load_shared", variable, source, of=1)
        return variable

    def store(self, target: Element, variable: Value) -> None:
        """Store a variable to an element of memory."""
        in_global = target.pointer.space == "gmem"
        self.do("store_global" if in_global else "store_shared", target, variable, of=1)

    def count(self, element: Element, width: int, call: str) -> None:
        """Count the cost of an access to ``width`` elements at ``element`` with a device
        function."""
        self._access.count(element, width, call)

    def fill(self, fragment: Tensor, value: Operand | Callable[..., Operand] | None = None) -> None:
        """Set every element of a fragment: to zero, a value, or a function of its coordinates."""
        zero = self.call("zero", of=fragment.engine.dtype.name)
        with self.loops(static_extents(fragment)) as at:
            self.assign(fragment(*at), zero if value is None
                        else value(*at) if callable(value) else value)

    def gemm(self, atom: GemmAtom, c: Tensor, a: Tensor, b: Tensor) -> None:
        """``c += a b^T`` on the operands of an atom: fragments, or tiles in shared memory."""
        atom.gemm(self, c, a, b)

    def fold(self, total: Tensor, part: Tensor, by: str = "add") -> None:
        """Add a fragment to another with the same extents, or combine them with another function of
        two values."""
        if static_extents(total) != static_extents(part):
            raise CodegenError(f"fold: extents differ: {part.layout} into {total.layout}")
        self.fill(total, lambda *at: self.call(by, total(*at), part(*at)))

    def fold_lanes(self, x: Value, by: str, masks: Iterable[int]) -> None:
        """Combine a variable with that of the lane whose number differs by a mask, for one mask
        after the other."""
        for mask in masks:
            self.assign(x, self.call(by, x, self.call("shuffle_xor", x, mask)))

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        self.do("syncthreads")

    def warp_barrier(self) -> None:
        """Wait for all threads of the warp."""
        self.do("syncwarp")

    def group_barrier(self, number: IntLike, threads: int) -> None:
        """Wait for ``threads`` threads at a named barrier, 1 to 15."""
        self.do("named_barrier_sync", number, threads)

    def cluster_barrier(self, *, ordered: bool = False) -> None:
        """Wait for all threads of the cluster; only with ``ordered``, it also orders memory
        accesses."""
        self.do("cluster_sync_ordered" if ordered else "cluster_sync")

    def let_next_launch_begin(self) -> None:
        """Let the next launch begin when all blocks have come this far or ended; without this call,
        when all have ended.

        Blocks of an early launch crowd onto the multiprocessors that are free first, and stay
        there. Call this when the kernel is nearly done.
        """
        if self._waits and not self._gated and not self._in_loop:
            self.do("next_launch_may_begin")

    def commit(self) -> None:
        """Close the group of asynchronous copies issued so far."""
        self.do("cp_async_commit")

    def wait(self, pending: int) -> None:
        """Wait until at most ``pending`` groups of this thread's asynchronous copies are
        unfinished."""
        self.do("cp_async_wait", of=pending)

    # -- text --------------------------------------------------------------------------------------
    def note(self, text: str) -> None:
        """Add a line to the comment that heads the kernel."""
        self._notes.append(text)

    def comment(self, text: str) -> None:
        """Write a comment line."""
        self._lines.append("")
        self._line(_comment(text))

    def build(self) -> GeneratedKernel:
        """The finished kernel."""
        self._rest.close()
        facts = self._access.report()
        head = [self._summary, *self._notes, *(f"{k}: {v}" for k, v in facts.items())]
        comment = "\n".join(_comment(line) for text in head if text for line in text.splitlines())
        parameters = ", ".join(f"{p.ctype} {p.name}" for p in self._params)
        # setmaxnreg needs both bounds: ptxas has to know how many registers there are at entry.
        both = self.min_blocks > 1 or any(use.name.startswith("setmaxnreg") for use in self._uses)
        bounds_ = f"{self.threads}, {self.min_blocks}" if both else f"{self.threads}"
        clusters = f" __cluster_dims__({self.cluster}, 1, 1)" if self.cluster > 1 else ""
        lines, self._lines, self._indent = self._lines, [], 1
        if self._waits:
            self.do("wait_for_launch_before")
        body = (
            f'{comment}\nextern "C" __global__ void __launch_bounds__({bounds_}){clusters}\n{self.name}({parameters})\n{{\n'
            + "\n".join(self._lines + lines)
            + "\n}\n"
        )
        return GeneratedKernel(self.name, body, tuple(self._params), self.threads,
                               self._shared_bytes, self.arch, self.min_blocks, (self.cluster, 1, 1),
                               uses=frozenset(self._uses), assembler=self.assembler, facts=facts,
                               shared=tuple(self._shared_tensors),
                               registers=tuple(self._registers.items()),
                               parts=self.declarations.parts, tensors=self.declarations.tensors)

    def _pass(self, param: Param) -> None:
        self._fresh(param.name)
        self._params.append(param)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(head + " {")
        self._indent += 1
        outside = set(self._names)
        yield
        self._names = outside                          # names end with the block that declares them
        self._indent -= 1
        self._line("}")

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._indent + text)

    def _record(self, uses: Iterable[Use]) -> None:
        for use in uses:
            if use not in self._uses and not (row := intrinsic(use.name)).runs_on(self.arch):
                raise CodegenError(
                    f"{self.name} is for {self.arch}, where there is no cb::{use.name}: it needs {row.arch}"
                )
            self._uses.add(use)

    def _c(self, x: Operand) -> str:
        """An operand as C++; what it calls is recorded."""
        return to_c(x) if type(x) is int else self._recorded(rendered(x)).c

    def _value(self, x: Operand, kind: DType | None) -> str:
        """A value of a certain type as C++; what it calls is recorded."""
        value = self._recorded(rendered(x, kind))
        if value.dtype is not None and kind is not None and value.dtype.ctype != kind.ctype:
            raise CodegenError(f"{value.c} has type {value.dtype.name}, expected {kind.name}")
        return value.c

    def _recorded(self, value: Rendered) -> Rendered:
        self._record(value.uses)
        return value

    def _declare(self, name: str, text: str, facts: Expr) -> Expr:
        self._line(f"{self._int} const {self._fresh(name)} = {text};")
        variable = Expr("var", (name,), facts.lo, facts.hi, facts.bits)
        if facts != variable:
            self._access.define(name, facts)
        return variable

    def _fresh(self, name: str) -> str:
        if name in self._names:
            raise CodegenError(f"{self.name}: the name '{name}' is used twice")
        self._names.add(name)
        return _checked_name(name)

    def _unused(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name


def _checked_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise CodegenError(f"{name!r} is not a name in C++")
    return name


def _comment(text: str) -> str:
    """One line of comment, whatever the text: nothing of it ends or continues the line."""
    return "// " + re.sub(r"[^ -~]|[\\?]", lambda found: f"<{ord(found[0]):x}>", text)
