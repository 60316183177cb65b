"""What planners ask about operands and epilogues, and the launch that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import gcd, prod
from typing import Any, NamedTuple, TypeVar

from ..codegen.architectures import capabilities, why_lacking
from ..codegen.epilogue import epilogue_role
from ..codegen.kernel import GeneratedKernel, TensorMapSpec
from ..codegen.signature import View
from ..codegen.tma import TmaBox
from ..kernels.common import OperandAccess
from ..kernels.epilogue import FusedEpilogue, FusedMatrix
from ..kernels.gemm.staged import StagedC
from ..kernels.gemm.triangle import tiles_of_triangle
from .guard import gate_values
from .plan import Argument, Launch, Role, place
from .problem import (
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    Ints,
    Operand,
    Pair,
    transposed,
)

T = TypeVar("T")
_TMA_ALIGNMENT = 16                  # bytes, of addresses, strides and rows
_MOST_COORDINATES = 2**31 - 256      # of a mode, before the last box
_LINE, _LONG_ROW = 64, 256           # elements of 2 bytes; of 4 bytes, two lines and longer rows

MAPPED_STRIDE = 2**40
"""Strides of tensor maps are below this, in bytes."""

NARROW_SPAN = 2**30
"""Offsets below this fit 32 bits, copies ahead of the end included."""

_AHEAD = 256       # a tile and the copies ahead of the end reach at most this far outside of a mode
_MOST_BLOCKS = 2**31 - 1             # of a grid

VECTOR_BYTES = 16
"""The most that a thread reads or writes together."""


class Side(NamedTuple):
    """A or B as a kernel that prepares it reads it: distinct matrices of (rows, K); ``batch`` has
    all batch extents, outermost first, but methods give its own modes innermost first."""

    operand: Operand
    rows: int
    k: int
    batch: Ints

    @property
    def modes(self) -> tuple[Pair, ...]:
        batch = zip(self.batch, self.operand.batch_strides, strict=True)
        return tuple((n, s) for n, s in batch if s)[::-1]

    @property
    def extents(self) -> Ints:
        return tuple(n for n, _s in self.modes)

    @property
    def all_rows(self) -> int:
        return self.rows * prod(self.extents)

    @property
    def row_strides(self) -> Ints:
        """Rows from a matrix to the next, along all batch modes of the problem."""
        own = iter(compact(self.extents, self.rows)[0])
        return tuple(next(own) if s else 0 for s in self.operand.batch_strides[::-1])

    @property
    def span(self) -> int:
        """Largest distance in elements between two elements."""
        return operand_span(self.operand, (self.rows, self.k), self.batch)

    @property
    def access(self) -> OperandAccess:
        return vector_access(self.operand, (self.rows, self.k))

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of a kernel that reads it, by name without the side."""
        x, strides = self.operand, tuple(s for _n, s in self.modes)
        return {"X": View(place(x.role, x.offset), x.strides, strides), "M": self.rows, "K": self.k,
                **batch_values(self.extents[::-1])}


def sides(p: GemmProblem) -> tuple[Side, Side]:
    return Side(p.a.named("a"), p.m, p.k, p.batch), Side(p.b.named("b"), p.n, p.k, p.batch)


def of_sides(values: Iterable[Mapping[str, Any]], names: str = "AB") -> dict[str, Any]:
    """The arguments of a kernel that takes the same of two operands, named after both."""
    return {f"{name}{side}": value for side, own in zip(names, values, strict=False)
            for name, value in own.items()}


def stored_elements(p: GemmProblem) -> Pair:
    """Elements of A and of B; those that broadcasting repeats count once."""
    a, b = (side.all_rows * side.k for side in sides(p))
    return a, b


def span(modes: Iterable[Pair]) -> int:
    """Largest distance in elements between elements of modes of (extent, stride)."""
    return sum(max(0, n - 1) * abs(s) for n, s in modes)


def operand_span(operand: Operand, extents: Pair, batch: Ints) -> int:
    """The largest distance between elements, or to those that copies of nested modes ask for."""
    ahead = sum(-(-_AHEAD * outer[-1][0] // n) * abs(outer[-1][1])
                for n, outer in zip(extents, operand.outer, strict=True) if outer)
    return span(operand.tensor("", (*extents, *batch)).modes) + ahead


def written(p: GemmProblem | CopyProblem | ContractionProblem) -> dict[str, Pair]:
    """The roles that a plan writes, with the bytes before and from their address."""
    found, targets = {}, [*p.tensors][-1:]
    if isinstance(p, GemmProblem) and p.fusion:
        targets += (x.tensor(epilogue_role(name), (*p.shape, *p.batch))
                    for name, x in p.fusion.outputs)
    for x in targets:
        before, after = (span((n, end(0, s)) for n, s in x.modes) for end in (min, max))
        found[x.role] = x.offset + before * x.item, x.offset + (after + 1) * x.item
    return found


def gemm_span(p: GemmProblem, depth: int | None = None) -> int:
    """The largest extent or span of a GEMM, to choose offsets of 32 or 64 bits."""
    # ``depth`` is that of A and B where K is in slices.
    k = p.k if depth is None else depth
    return max(p.m, p.n, p.k, output_span(p), *(operand_span(x, (n, k), p.batch)
                                                for x, (n, _k) in p.inputs))


def output_span(p: GemmProblem) -> int:
    """The largest span of C and of the matrices of the epilogue."""
    fused = p.fusion.matrices if p.fusion else ()
    return max(operand_span(x, p.shape, p.batch) for _name, x in (("c", p.c), *fused))


def vector_width(x: Operand, most: int, *multiples: int) -> int:
    """Elements of the widest vector that an address and these extents and strides allow."""
    item = x.item
    return gcd(most, max(1, VECTOR_BYTES // item), max(1, x.alignment // item), *multiples)


def width_along(mode: int, operand: Operand, extents: Pair, most: int) -> int:
    """Elements of vectors along a mode with stride 1, whatever the stride of extent 1."""
    modes = operand.modes(extents)
    (extent, _one), *others = *modes[mode], *modes[1 - mode]
    return vector_width(operand, most, extent, *(s for n, s in others if n > 1),
                        *operand.batch_strides)


def fused(p: GemmProblem, run_mode: int, most: int) -> FusedEpilogue | None:
    """How a kernel accesses an epilogue's matrices: ``most`` elements along ``run_mode``."""
    if p.fusion is None:
        return None

    def matrix(name: str, x: Operand) -> FusedMatrix:
        strides = tuple(s if s in (0, 1) else 0 if n == 1 else None
                        for s, n in zip(x.strides, p.shape, strict=True))
        others = p.shape[run_mode], x.strides[1 - run_mode], *x.batch_strides
        width = vector_width(x, most, *others) if x.strides[run_mode] == 1 else 1
        return FusedMatrix(name, x.dtype, strides, width)       # type: ignore[arg-type]

    operands, outputs = (tuple(matrix(*m) for m in matrices)
                         for matrices in (p.fusion.operands, p.fusion.outputs))
    return FusedEpilogue(p.fusion.graph, operands, outputs)


def unit_mode(operand: Operand, first: int = 0) -> int | None:
    """The mode with stride 1; ``first`` if both have it."""
    return next((mode for mode in (first, 1 - first) if operand.strides[mode] == 1), None)


@lru_cache(maxsize=1024)
def run_access(mode: int, operand: Operand, extents: Pair, most: int) -> OperandAccess:
    """How threads that hold runs along a mode access an operand: in vectors if its stride is 1."""
    unit = unit_mode(operand, mode)
    width = width_along(mode, operand, extents, most) if unit == mode else 1
    return OperandAccess(unit, width, operand.conj)


def vector_access(operand: Operand, extents: Pair,
                  most_bytes: int = VECTOR_BYTES) -> OperandAccess:
    """How threads access an operand: along a stride of 1, in vectors as wide as possible."""
    runs = (run_access(mode, operand, extents, most_bytes // operand.item) for mode in (1, 0))
    return max(runs, key=lambda access: access.width)


def majorness(operand: Operand, extents: Pair) -> int | None:
    """The mode that is contiguous for a tensor map (K if both are), or ``None``."""
    for mode in (1, 0):
        if operand.strides[mode] == 1 or (extents[mode] == 1 and operand.strides[1 - mode] != 1):
            return mode
    return None


def why_not_mapped(name: str, operand: Operand, extents: Pair) -> str | None:
    major, batch = majorness(operand, extents), operand.batch_strides
    if major is None:
        return f"no mode of {name} has stride 1"
    pitch = operand.strides[1 - major] if extents[1 - major] > 1 else _TMA_ALIGNMENT
    if operand.alignment % _TMA_ALIGNMENT:
        return f"{name} is not aligned to {_TMA_ALIGNMENT} bytes"
    if pitch <= 0 or pitch * operand.item % _TMA_ALIGNMENT:
        return f"the strides {operand.strides} of {name} are not positive multiples of {_TMA_ALIGNMENT} bytes"
    if max(pitch, *batch, 0) * operand.item >= MAPPED_STRIDE:
        return f"the strides {(*operand.strides, *batch)} of {name} are not below 2^40 bytes"
    if any(s < 0 or s * operand.item % _TMA_ALIGNMENT for s in batch):
        return f"the batch strides {batch} of {name} are not multiples of {_TMA_ALIGNMENT} bytes"
    if sum(s != 0 for s in batch) > 3:
        return f"{name} has more than three batch modes"
    return None


def why_not_types(p: GemmProblem, *types: str) -> str | None:
    if p.a.dtype in types and p.a.dtype == p.b.dtype == p.accumulator:
        return None
    kinds = " or ".join(f"{name} by {name}" for name in types)
    return f"it multiplies {kinds}, not {p.a.dtype} by {p.b.dtype} summed in {p.accumulator}"


def why_not_on_wgmma(p: GemmProblem, device: DeviceInfo, numbers: int = 1) -> str | None:
    """Why no kernel on wgmma computes a problem, of ``numbers`` reals an element."""
    if not capabilities(device.arch).wgmma:
        return why_lacking("wgmma", device.arch)
    if not p.depth:
        return "there is nothing to multiply"
    if max(numbers * max(p.m, p.n, p.k), *p.batch, 1) >= _MOST_COORDINATES:
        return "coordinates of tensor maps have 32 bits"
    return None


def operand_map(box: TmaBox, operand: Operand, extents: Pair, batch: Ints,
                digits: int = 1) -> TensorMapSpec:
    """The tensor map of an operand: its planes of digits, if any, then batch modes."""
    row = _TMA_ALIGNMENT // operand.item
    far = max(1, -(-extents[box.inner_mode] // row)) * row    # where there is but one element
    planes = [(digits, operand.strides[0] // digits)] if digits > 1 else []
    shape, strides = zip(*zip(extents, operand.strides, strict=True), *planes,
                         *[*zip(batch, operand.batch_strides, strict=True)][::-1], strict=True)
    return box.map(shape, tuple(s if n > 1 or mode == box.inner_mode else far
                                for mode, (n, s) in enumerate(zip(shape, strides, strict=True))))


Facing = tuple[GemmProblem, str]
"""A problem in the order in which a kernel writes C, and what a plan says if that is of C^T."""


def oriented(p: GemmProblem, mode: int, purpose: str = "C is written along its rows") -> Facing:
    """The problem whose C is contiguous along ``mode``, 0 (M) or 1 (N), if it can be."""
    return turned(p, p.c.strides[mode] != 1 and p.c.strides[1 - mode] == 1, purpose)


along_rows = partial(oriented, mode=1)
"""The problem whose C is contiguous along N, if it can be."""


def turned(p: GemmProblem, swapped: bool, purpose: str = "") -> Facing:
    """The problem as it is, or that of C^T for a purpose."""
    return (transposed(p), f"; computed as C^T = B A^T, so that {purpose}") if swapped else (p, "")


def settled(operand: Operand, extents: Pair, units: bool = False) -> Operand:
    """The operand with stride 0 in modes of extent 1, but where it is 1 if ``units`` stay."""
    strides = (0 if n == 1 and not (units and s == 1) else s
               for n, s in zip(extents, operand.strides, strict=True))
    return replace(operand, strides=tuple(strides))       # type: ignore[arg-type]


def pairs_along_n(p: GemmProblem, most: int = 2) -> OperandAccess:
    """How a thread holding pairs of C along N (``most`` 2), or single elements, accesses them."""
    return run_access(1, p.c, p.shape, most)


def why_not_staged(p: GemmProblem) -> str | None:
    """Why no tensor map can write C, with rows along N; ``None`` if one can."""
    item = p.c.item
    if p.c.strides[1] != 1:
        return "it is not contiguous along rows or columns"
    if p.n * item % _TMA_ALIGNMENT:
        return f"{p.n} elements of {item} bytes are not a multiple of {_TMA_ALIGNMENT} bytes"
    return why_not_mapped("C", p.c, p.shape)


def compact(extents: Iterable[int], step: int) -> tuple[Ints, int]:
    """Strides of modes in order, the first innermost, and the stride of what follows."""
    strides = []
    for n in extents:
        strides.append(step)
        step *= n
    return tuple(strides), step


def merged_stride(modes: Sequence[Pair]) -> int | None:
    """The stride of some modes, the first innermost, as one mode; ``None`` if they are none."""
    follow = all(n * inner == outer for (n, inner), (_n, outer) in pairwise(modes))
    return modes[0][1] if follow else None


def divisors(number: int, most: int | None = None) -> list[int]:
    last = number if most is None else min(number, most)
    return [i for i in range(1, last + 1) if number % i == 0]


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def row_pitch(extent: int, multiple: int) -> int:
    """Elements from one row in the workspace to the next, in multiples."""
    # Long rows begin at lines, so that what TMA reads of one, 128 bytes, is in one line of L2.
    multiple = multiple if extent < _LONG_ROW else _LINE
    return -(-extent // multiple) * multiple


def staging(p: GemmProblem) -> str | None:
    """How C goes through shared memory: away by TMA, by rows, or not at all."""
    return "tma" if why_not_staged(p) is None else "rows" if p.c.strides[1] == 1 else None


def tiles_of_c(p: GemmProblem, tile: Pair, whole: bool = False) -> int:
    """Tiles that are computed, in all matrices; ``whole``, also where a triangle is written."""
    if p.triangle and not whole:
        return tiles_of_triangle(p.m, tile) * p.matrices
    return -(-p.m // tile[0]) * -(-p.n // tile[1]) * p.matrices


def of_triangle(p: GemmProblem, slices: int = 1) -> str:
    """The end of a plan's reason where one triangle is computed or written."""
    if p.triangle is None or (slices > 1 and p.triangle == "both"):
        return ""
    return "; one triangle is computed and written twice, as A and B are the same" if p.triangle == "both" else \
        f"; the {p.triangle} triangle alone"


def staged_view(p: GemmProblem, columns: int) -> View:
    """C for ``StagedC``, with a tensor map of so many columns if one describes it."""
    if staging(p) != "tma":
        return view(p.c, "c")
    return view(p.c, "c", operand_map(StagedC.box_of(p.c.dtype, columns), p.c, p.shape, p.batch))


def alpha_kind(alpha: str) -> str:
    """A kernel knows that alpha is one, or takes it: with alpha zero it runs over no k."""
    return "value" if alpha == "zero" else alpha


def view(operand: Operand, role: Role | Argument, tensor_map: TensorMapSpec | None = None) -> View:
    """An operand, in the memory of a role unless it has one; batches are innermost first."""
    memory = place(operand.role or role, operand.offset)
    described = None if tensor_map is None else replace(memory, tensor_map=tensor_map)
    strides = tuple((s, *(x for _n, x in outer)) if outer else s
                    for s, outer in zip(operand.strides, operand.outer, strict=True))
    return View(memory, strides, operand.batch_strides[::-1], described)


def mapped(memory: Argument, tensor_map: TensorMapSpec) -> View:
    return View(map=replace(memory, tensor_map=tensor_map))


def batch_values(batch: Ints) -> dict[str, Ints]:
    return {"L": batch[::-1]} if batch else {}


def gemm_values(p: GemmProblem, gate: int | None = None) -> dict[str, Any]:
    """All that kernels take of a problem, by name; with alpha zero, no k."""
    scalars, matrices = ["alpha", "beta"], [("A", "a", p.a), ("B", "b", p.b), ("C", "c", p.c)]
    if p.fusion is not None:
        scalars += (epilogue_role(node.name) for node in p.fusion.graph.leaves("scalar"))
        matrices += ((role, role, x) for role, (_name, x) in zip(p.fusion.roles, p.fusion.matrices,
                                                                 strict=True))
    m, n, k = (mode if len(mode) > 1 else mode[0] for mode in p.extents)
    return {"M": m, "N": n, "K": p.depth and k, **batch_values(p.batch), **gate_values(gate),
            **{name: Argument(role=name) for name in scalars},
            **{name: view(x, role) for name, role, x in matrices}}


def specialised(config: Callable[..., T], p: GemmProblem, c: OperandAccess, reach: int = 0,
                run_mode: int = 1, **own: Any) -> T:
    """A kernel's configuration: fields that follow from a problem, and its ``own``."""
    # Offsets stay below ``reach``; threads hold runs of C along ``run_mode``.
    names = {field.name for field in fields(config)}            # type: ignore[arg-type]
    batch_a, batch_b = (tuple(s != 0 for s in x.batch_strides[::-1]) for x in (p.a, p.b))
    found: dict[str, Any] = {
        "element": p.a.dtype, "element_b": p.b.dtype if p.b.dtype != p.a.dtype else None,
        "output": p.c.dtype,
        "accumulator": p.accumulator, "c": c, "alpha": alpha_kind(p.alpha), "beta": p.beta,
        "modes": tuple(map(len, p.extents)), "batch_modes": len(p.batch), "batch_a": batch_a, "batch_b": batch_b,
        "wide": reach >= NARROW_SPAN, "triangle": p.triangle, "hermitian": p.hermitian}
    if "epilogue" in names and "epilogue" not in own:
        found["epilogue"] = fused(p, run_mode, c.width)
    return config(**{name: value for name, value in found.items() if name in names} | own)


def bind(generator: Callable[[Any], GeneratedKernel], config: object, p: GemmProblem, blocks: int,
         gate: int | None = None, **own: Any) -> Launch:
    """The launch of a kernel with a problem's values and its ``own``."""
    return launch(generator, config, blocks, gemm_values(p, gate) | own)


def launch(generator: Callable[[Any], GeneratedKernel], config: object, blocks: int,
           *groups: Mapping[str, Any], **named: Any) -> Launch:
    """The launch of a kernel, generated when needed, with the values that it declares of these."""
    grid = blocks, 1, 1

    def made() -> Launch:
        kernel = generator(config)
        if blocks > _MOST_BLOCKS:
            raise ValueError(f"{kernel.name} needs {blocks} blocks; a grid has at most 2^31 - 1")
        values = kernel.signature.bind({name: x for group in ({"blocks": blocks}, *groups, named)
                                        for name, x in group.items() if name in kernel.signature})
        return Launch(kernel, grid, tuple(x if isinstance(x, Argument) else Argument(value=x)
                                          for x in values))

    return Launch.later(made, grid) if blocks <= _MOST_BLOCKS else made()
