"""What is to be computed: frozen, hashable descriptions without data.

Inside, A is (M, K), B is (N, K) and C is (M, N); transposition and order are only strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import gcd, prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from .._dtypes import accumulator_of, dtype
from .cost import Costs, costs_of

if TYPE_CHECKING:
    from ..codegen.epilogue import EpilogueGraph

ScalarKind = Literal["zero", "one", "value", "device"]
"""What is known of alpha or beta: 0, 1, a number of each call, or its address on the device."""

Ints = tuple[int, ...]

Pair = tuple[int, int]

Pairs = tuple[Pair, ...]

Modes = tuple[Ints, ...]
T = TypeVar("T")


class Tensor(NamedTuple):
    """One tensor of a problem, with (extent, stride) of every mode, so many bytes behind an
    address."""

    role: str
    item: int
    modes: Pairs
    offset: int = 0


@dataclass(frozen=True)
class Operand:
    """One operand of a GEMM as a layout over the memory that holds it.

    Attributes
    ----------
    dtype : str
        NumPy's name of the element type.
    strides : tuple of int
        The two strides in *elements*: (M, K) of A, (N, K) of B, (M, N) of C. Any integers: negative
        and zero too.
    batch_strides : tuple of int
        Strides in elements of the batch modes, one for each; 0 broadcasts.
    conj : bool
        Whether elements are conjugated as they are read.
    alignment : int
        The largest power of two, at most 16 (bytes), that divides the address of the first element.
    role : str
        The address that a call supplies, if it is not that of the operand's place in the problem.
    offset : int
        Bytes from that address to the first element.
    outer : pair of tuples of (extent, stride)
        Further modes nested in the two, innermost first, where not one stride describes them.

    Examples
    --------
    >>> Operand("float32", strides=(1, 100)).strides
    (1, 100)
    """

    dtype: str
    strides: Pair
    batch_strides: Ints = ()
    conj: bool = False
    alignment: int = 16
    role: str = ""
    offset: int = 0
    outer: tuple[Pairs, Pairs] = ((), ())

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return dtype(self.dtype).bytes

    def named(self, role: str) -> Operand:
        """The operand in the memory of a role, unless it has another one."""
        return self if self.role else replace(self, role=role)

    def moved(self, nbytes: int) -> Operand:
        """The operand that begins so many bytes further."""
        return replace(self, alignment=gcd(self.alignment, nbytes), offset=self.offset + nbytes)

    def modes(self, extents: Ints) -> tuple[Pairs, Pairs]:
        """(Extent, stride) of the modes nested in each of the two, innermost first."""
        rows, columns = (((n // max(1, prod(e for e, _s in outer)), s), *outer)
                         for n, s, outer in zip(extents, self.strides, self.outer, strict=True))
        return rows, columns

    def tensor(self, role: str, extents: Ints) -> Tensor:
        """It with the extents of its modes and of the batch modes."""
        rows, columns = self.modes(extents[:2])
        modes = *rows, *columns, *zip(extents[2:], self.batch_strides, strict=True)
        return Tensor(role, self.item, modes, self.offset)


@dataclass(frozen=True)
class Fusion:
    """What the kernel computes instead of ``alpha * sum + beta * C``; matrices, by name, are
    layouts over C's extents: a vector along N has stride 0 along M."""

    graph: EpilogueGraph
    operands: tuple[tuple[str, Operand], ...] = ()
    outputs: tuple[tuple[str, Operand], ...] = ()

    @property
    def matrices(self) -> tuple[tuple[str, Operand], ...]:
        """What the graph reads and then what it writes."""
        return (*self.operands, *self.outputs)

    @property
    def roles(self) -> tuple[str, ...]:
        """The addresses that a call supplies, in order."""
        from ..codegen.epilogue import epilogue_role

        return tuple(epilogue_role(name) for name, _operand in self.matrices)


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
    alpha, beta : {"zero", "one", "value", "device"}
        What planning knows about the scalars. ``beta="zero"`` does not read C; ``alpha="zero"``
        does not read A or B. A number in device memory (``"device"``) that turns out to be zero has
        the same effect.
    precision : str
        The algorithm: ``"auto"``, ``"ieee"`` (native arithmetic of the dtype), or one by name
        (``gemm.dispatch.PRECISIONS``).
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    compute : str, optional
        NumPy's name of the type of sums, of alpha and of beta, if it is not the default.
    fusion : Fusion, optional
        The epilogue.
    digits : int
        Bytes of an integer, if A and B hold integers as planes of ``uint8``. The planes of a row
        follow one another; each is as long as the stride of rows divided by ``digits``.
    triangle : {"lower", "upper", "both"}, optional
        The part of a square C that is written. ``"lower"`` and ``"upper"`` include the diagonal and
        leave the rest of C as it is. ``"both"`` needs A and B in the same memory, so that C is
        symmetric: one triangle is computed and written twice.
    hermitian : bool
        Whether the triangle is that of a Hermitian matrix, whose diagonal is real.

    Examples
    --------
    >>> half = Operand("float16", (4096, 1))
    >>> problem = GemmProblem(4096, 4096, 4096, a=half, b=half, c=half)
    >>> problem.m, problem.precision
    (4096, 'auto')
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    batch: Ints = ()
    alpha: ScalarKind = "one"
    beta: ScalarKind = "zero"
    precision: str = "auto"
    variant: str | None = None
    compute: str | None = None
    fusion: Fusion | None = None
    digits: int = 1
    triangle: Literal["lower", "upper", "both"] | None = None
    hermitian: bool = False

    def __post_init__(self) -> None:
        if self.k == 0 and self.fusion is None:   # an empty sum is zero even if alpha is not finite
            object.__setattr__(self, "alpha", "one")

    @cached_property
    def accumulator(self) -> str:
        """The type in which products are summed.

        Raises
        ------
        TypeError
            If the operands' types have none in common.
        """
        return self.compute or accumulator_of(self.a.dtype, self.b.dtype, self.c.dtype)

    @property
    def depth(self) -> int:
        """The number of products in a sum: K, or 0 if alpha is zero."""
        return 0 if self.alpha == "zero" else self.k

    @property
    def inputs(self) -> tuple[tuple[Operand, Pair], tuple[Operand, Pair]]:
        """A and B, each with its extents."""
        return (self.a, (self.m, self.k)), (self.b, (self.n, self.k))

    def map_inputs(self, function: Callable[[Operand, Pair], T]) -> tuple[T, T]:
        """Call a function with A and its extents, and with B and its."""
        a, b = self.inputs
        return function(*a), function(*b)

    @property
    def tensors(self) -> Iterator[Tensor]:
        """A, B and C."""
        for role, (x, extents) in zip("abc", (*self.inputs, (self.c, self.shape)),
                                      strict=True):
            yield x.tensor(role, (*extents, *self.batch))

    @property
    def extents(self) -> tuple[Ints, Ints, Ints]:
        """Extents of the modes nested in M, N and K, innermost first."""
        (m, k), (n, _k) = self.map_inputs(Operand.modes)
        of_m, of_n, of_k = (tuple(extent for extent, _stride in mode) for mode in (m, n, k))
        return of_m, of_n, of_k

    @property
    def is_nested(self) -> bool:
        """Whether M, N or K are several modes in an operand."""
        return any((*self.a.outer, *self.b.outer))

    @property
    def shape(self) -> Pair:
        """Rows and columns of C."""
        return self.m, self.n

    @property
    def matrices(self) -> int:
        """Matrices of the batch."""
        return prod(self.batch)

    @property
    def outputs(self) -> int:
        """Elements of C, of all matrices of the batch."""
        return self.m * self.n * self.matrices

    @property
    def sum_bytes(self) -> int:
        """Bytes of a sum."""
        return dtype(self.accumulator).bytes

    @property
    def is_gram(self) -> bool:
        """Whether C is symmetric if A and B share memory, in a form that kernels can compute from
        one triangle."""
        plain = (self.alpha, self.beta, self.fusion, self.variant) == ("one", "zero", None, None)
        square = self.m == self.n and not self.is_nested
        return plain and square and self.a == self.b and self.precision in ("auto", "ieee")

    @property
    def roles(self) -> tuple[str, ...]:
        """The addresses that a call supplies, in order."""
        scalars = tuple(name for name in ("alpha", "beta") if getattr(self, name) == "device")
        return ("a", "b", "c", *(self.fusion.roles if self.fusion else ()), *scalars)

    @property
    def flops(self) -> int:
        """Arithmetic operations: 2mnk, four times as many for complex numbers, for every batch
        index; half of it for a triangle."""
        outputs = self.m * (self.m + 1) // 2 * prod(self.batch) if self.triangle else self.outputs
        return 2 * outputs * self.k * (4 if dtype(self.a.dtype).is_complex else 1)


class _Several:
    problems: tuple[Any, ...]

    @property
    def tensors(self) -> Iterator[Tensor]:
        for p in self.problems:
            yield from p.tensors

    @property
    def flops(self) -> int:
        return sum(getattr(p, "flops", 0) for p in self.problems)


@dataclass(frozen=True)
class GroupedProblem(_Several):
    """Independent products of any extents and strides; alpha and beta are numbers."""

    problems: tuple[GemmProblem, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        """The address of a table with all others (``planning.gemm.grouped.table_of``)."""
        return ("table",)


def transposed(p: GemmProblem) -> GemmProblem:
    flipped = with_matrices(p, lambda role, x: x if role in ("a", "b")
                            else replace(x, strides=x.strides[::-1], outer=x.outer[::-1]))
    return replace(flipped, m=p.n, n=p.m, a=p.b.named("b"), b=p.a.named("a"),
                   triangle=_OTHER.get(p.triangle, p.triangle))


def with_matrices(p: GemmProblem, change: Callable[[str, Operand], Operand]) -> GemmProblem:
    """The problem after a change of each matrix, by its role; the epilogue's count."""
    a, b, c, fusion = change("a", p.a), change("b", p.b), change("c", p.c), p.fusion
    if fusion is not None:
        changed = [(name, change(role, x))
                   for role, (name, x) in zip(fusion.roles, fusion.matrices, strict=True)]
        first = len(fusion.operands)
        fusion = replace(fusion, operands=tuple(changed[:first]), outputs=tuple(changed[first:]))
    return replace(p, a=a, b=b, c=c, fusion=fusion)


_OTHER: dict[str | None, Literal["lower", "upper"]] = {"lower": "upper", "upper": "lower"}


@dataclass(frozen=True)
class CopyProblem:
    """``dst[i0, i1, ...] = src[i0, i1, ...]`` between two layouts: a copy, a transpose or any
    permutation of modes.

    Attributes
    ----------
    shape : tuple of int
        Extents; any may be 0.
    src_strides, dst_strides : tuple of int
        Strides in elements. Those of ``dst`` address every element once; those of ``src`` are any
        integers.
    itemsize : int
        Bytes of an element: 1, 2, 4, 8 or 16.
    src_alignment, dst_alignment : int
        The largest powers of two, at most 16 (bytes), that divide the addresses.
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    in_place : bool
        Whether source and target begin at one address: then the elements of ``dst`` change places.

    Examples
    --------
    >>> problem = CopyProblem((8192, 8192), src_strides=(1, 8192), dst_strides=(8192, 1), itemsize=4)
    >>> plan_copy(problem, H200).family
    'transpose'
    """

    shape: Ints
    src_strides: Ints
    dst_strides: Ints
    itemsize: int
    src_alignment: int = 16
    dst_alignment: int = 16
    variant: str | None = None
    in_place: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The addresses that a call supplies, in order."""
        return ("dst",) if self.in_place else ("src", "dst")

    @property
    def tensors(self) -> Iterator[Tensor]:
        """Source and target."""
        for role, strides in (("src", self.src_strides), ("dst", self.dst_strides)):
            yield Tensor(role, self.itemsize, tuple(zip(self.shape, strides, strict=True)))

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return 2 * prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class Storage:
    """The element type and the alignment of a tensor in memory.

    Attributes
    ----------
    dtype : str
        NumPy's name of the element type.
    conj : bool
        Whether elements are conjugated as they are read.
    alignment : int
        The largest power of two, at most 16 (bytes), that divides the address of the first element.

    Examples
    --------
    >>> Storage("float32").dtype
    'float32'
    """

    dtype: str
    conj: bool = False
    alignment: int = 16

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return dtype(self.dtype).bytes


@dataclass(frozen=True)
class ContractionProblem:
    """A contraction of two tensors as a GEMM whose modes M, N and K are each a group of modes:
    ``C = alpha * A B + beta * C``.

    A group is a tuple of modes in any order, and a mode is its extent followed by its strides, any
    integers, in elements.

    Attributes
    ----------
    m : tuple of (extent, stride in A, stride in C)
        Modes of A and C.
    n : tuple of (extent, stride in B, stride in C)
        Modes of B and C.
    k : tuple of (extent, stride in A, stride in B)
        Modes that are summed over; a stride is 0 where only the other tensor has the mode.
    a, b, c : Storage
        Element types and alignments of the tensors.
    batch : tuple of (extent, stride in A, stride in B, stride in C)
        Modes of all three.
    alpha, beta : {"zero", "one", "value"}
        What planning knows about the scalars. ``beta="zero"`` does not read C; ``alpha="zero"``
        does not read A or B.
    precision : str
        The algorithm, as in :class:`GemmProblem`.
    variant : str, optional
        A named kernel (:mod:`cuteblas.planning.variants`) instead of planning's own choice.
    same : bool
        Whether A and B are the same memory.

    Examples
    --------
    >>> problem = ContractionProblem(m=((4, 6, 5),), n=((5, 1, 1),), k=((6, 1, 5),),
    ...                              a=Storage("float32"), b=Storage("float32"), c=Storage("float32"))
    >>> problem.roles
    ('a', 'b', 'c')
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
    same: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The addresses that a call supplies, in order."""
        return "a", "b", "c"

    @property
    def tensors(self) -> Iterator[Tensor]:
        """A, B and C."""
        return self.product.tensors

    @cached_property
    def product(self) -> GemmProblem:
        """The contraction as a product of matrices with nested modes."""
        def operand(x: Storage, batch: int, *groups: tuple[Modes, int]) -> Operand:
            modes = ([(mode[0], mode[column]) for mode in group or ((1, 0, 0),)]
                     for group, column in groups)
            ((_m, row), *rows), ((_n, column), *columns) = modes
            return Operand(x.dtype, (row, column), tuple(mode[batch] for mode in self.batch[::-1]),
                           x.conj, x.alignment, outer=(tuple(rows), tuple(columns)))

        m, n, k = (prod(mode[0] for mode in group) for group in (self.m, self.n, self.k))
        return GemmProblem(m, n, k, operand(self.a, 1, (self.m, 1), (self.k, 1)),
                           operand(self.b, 2, (self.n, 1), (self.k, 2)),
                           operand(self.c, 3, (self.m, 2), (self.n, 2)),
                           tuple(mode[0] for mode in self.batch[::-1]), self.alpha, self.beta,
                           self.precision, self.variant)

    @property
    def flops(self) -> int:
        """Arithmetic operations: two for every product, four times as many for complex numbers."""
        return self.product.flops


@dataclass(frozen=True)
class ReductionProblem:
    """``R[batch, i] = op over j of X[batch, i, j]``, or the sum of
    ``X[batch, i, j] * Y[batch, i, j]``: dot products of rows.

    Attributes
    ----------
    i, j : int
        Extents; i may be 0, and so may j in a sum.
    x : Operand
        X (I, J).
    r : Operand
        R (I, J) with a stride of 0 along j.
    batch : tuple of int
        Extents of the batch modes, outermost first.
    op : {"sum", "max", "min"}
        The operation along j. ``"max"`` and ``"min"`` are NaN if any element is.
    compute : str, optional
        NumPy's name of the type in which elements are combined; by default the type of sums of
        products of X.
    y : Operand, optional
        Y (I, J), of X's type.

    Examples
    --------
    >>> problem = ReductionProblem(1000, 5000, Operand("float32", (5000, 1)), Operand("float32", (1, 0)))
    >>> problem.op
    'sum'
    """

    i: int
    j: int
    x: Operand
    r: Operand
    batch: Ints = ()
    op: Literal["sum", "max", "min"] = "sum"
    compute: str | None = None
    y: Operand | None = None

    @property
    def accumulator(self) -> str:
        """The type in which elements are combined."""
        return self.compute or dtype(self.x.dtype).accumulator

    @property
    def outputs(self) -> int:
        """Elements of R, of all indices of the batch."""
        return self.i * prod(self.batch)

    @property
    def sum_bytes(self) -> int:
        """Bytes of the type in which elements are combined."""
        return dtype(self.accumulator).bytes

    @property
    def roles(self) -> tuple[str, ...]:
        """The addresses that a call supplies, in order."""
        return ("src", "dst") if self.y is None else ("a", "b", "c")

    @property
    def tensors(self) -> Iterator[Tensor]:
        """X, Y if there is one, and R."""
        operands = (x for x in (self.x, self.y, self.r) if x is not None)
        for role, x in zip(self.roles, operands, strict=True):
            yield x.tensor(role, (self.i, self.j, *self.batch))


@dataclass(frozen=True)
class ChainProblem(_Several):
    """Problems solved one after the other; the workspace passes results on."""

    problems: tuple[Problem, ...]
    roles: tuple[str, ...]


Problem = GemmProblem | CopyProblem | ContractionProblem | ReductionProblem | GroupedProblem | ChainProblem


@dataclass(frozen=True)
class DeviceInfo:
    """A device as planning sees it; :data:`H200` stands in when there is no GPU.

    Attributes
    ----------
    name : str
        The name of the card.
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
    workspace_limit : int, optional
        The most scratch memory that a plan may use, in bytes.
    costs : Costs, optional
        The numbers behind time estimates; by default those shipped for a card of this name, else
        those of an H200.

    Examples
    --------
    >>> H200.arch, H200.multiprocessors
    ('sm_90', 132)
    """

    name: str
    arch: str
    multiprocessors: int
    shared_bytes_per_block: int
    clock_hz: float
    bandwidth: float
    l2_bytes: int
    workspace_limit: int | None = None
    costs: Costs | None = field(default=None, repr=False)

    @cached_property
    def fitted(self) -> Costs:
        """The numbers behind time estimates."""
        return self.costs or costs_of(self.name)

    def seconds(self, clocks: float = 0.0, launches: float = 0.0, nbytes: float = 0.0) -> float:
        """Seconds that clocks of a multiprocessor, launches, and bytes at the bandwidth of a large
        device copy take together."""
        return clocks / self.clock_hz + launches * self.fitted["launch"]["seconds"] + nbytes / self.bandwidth


COPY_EFFICIENCY = 0.87
"""Share of the memory bandwidth that a large device copy reaches: 4286 of 4917 GB/s on an H200."""

H200 = DeviceInfo("NVIDIA H200", "sm_90", 132, 232448, 1.98e9, 4.286e12, 62914560)


@dataclass(frozen=True)
class Mode:
    """One mode of a permutation: extent, and strides in the source and in the target."""

    extent: int
    src: int
    dst: int

    @property
    def strides(self) -> tuple[int, int]:
        return self.src, self.dst


def merged(modes: Modes) -> Modes:
    """A group with as few modes as possible, without extents of 1; ``(1, 0, 0)`` for none."""
    # A mode is its extent, followed by its stride in each tensor.
    def continues(inner: tuple[int, ...], outer: tuple[int, ...]) -> bool:
        return all(o == i * inner[0] for i, o in zip(inner[1:], outer[1:], strict=True))

    left = [mode for mode in modes if mode[0] != 1]
    while pair := next((p for p in permutations(left, 2) if continues(*p)), None):
        inner, outer = pair
        left.remove(inner)
        left.remove(outer)
        left.append((inner[0] * outer[0], *inner[1:]))
    return tuple(left) or ((1, *(0 for _ in (modes[0][1:] if modes else range(2)))),)


_KIB = 1 << 10


def _card(name: str, arch: str, multiprocessors: int, shared_kib: int, clock_mhz: int, gb_s: int,
          l2_mib: int) -> DeviceInfo:
    return DeviceInfo(name, arch, multiprocessors, shared_kib * _KIB, clock_mhz * 1e6,
                      COPY_EFFICIENCY * gb_s * 1e9, l2_mib * _KIB * _KIB)


DEVICES = {
    "a100": _card("NVIDIA A100-SXM4-80GB", "sm_80", 108, 163, 1410, 2039, 40),
    "l40s": _card("NVIDIA L40S", "sm_89", 142, 99, 2520, 864, 96),
    "rtx4090": _card("NVIDIA GeForce RTX 4090", "sm_89", 128, 99, 2520, 1008, 72),
    "h100": _card("NVIDIA H100 80GB HBM3", "sm_90", 132, 227, 1980, 3352, 50),
    "h200": H200,
    "b200": _card("NVIDIA B200", "sm_100", 148, 227, 1965, 8000, 126),
}
"""By the name that ``device=`` and ``--device`` take."""


def device_named(name: str) -> DeviceInfo:
    found = DEVICES.get(name.lower().replace(" ", "").removeprefix("nvidia")) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"device is one of {', '.join(map(repr, DEVICES))}, got {name!r}")
    return found


def is_measured(device: DeviceInfo) -> bool:
    """Whether planners' numbers were fitted to measurements on such a card."""
    return device.fitted.device == device.name
