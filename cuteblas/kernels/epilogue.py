"""The end of a GEMM kernel: from sums to C, by alpha and beta or by an epilogue's graph.

A vector along N is a matrix with stride 0 along M, a number in device memory one with strides (0,
0): all matrices of an epilogue are tiled and partitioned exactly as C is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .._dtypes import dtype
from ..codegen import Guard, KernelBuilder, Pointer, TensorParam, Value, Vector
from ..codegen.epilogue import EpilogueGraph, Node, emit, epilogue_role
from ..codegen.values import local
from ..layout import Layout, Tensor, _, flatten, make_tensor
from ..layout.symbolic import Condition, Expr, IntLike, equal, select
from .common import ELEMENTS, Coord, DynamicPair, Partition, combine

_MOST_BYTES = 16                        # of one access

Pieces = AbstractContextManager[tuple[IntLike, Tensor]]


class Parked(Protocol):
    """A thread's sums in memory: a run is loaded when it is asked for."""

    @property
    def layout(self) -> Layout:
        """The layout that they would have in registers."""

    def loaded(self, first: IntLike, count: int) -> Callable[..., Value]:
        """Load ``count`` columns of the last mode from ``first``, to be had by coordinates."""


@dataclass(frozen=True)
class FusedMatrix:
    """A matrix of an epilogue, with strides along M and N: 0 or 1 where fixed, else ``None``."""

    name: str
    dtype: str
    strides: tuple[int | None, int | None] = (None, None)
    width: int = 1

    @property
    def tag(self) -> str:
        return dtype(self.dtype).tag + "".join("s" if s is None else str(s)
                                               for s in self.strides) + f"v{self.width}"


@dataclass(frozen=True)
class FusedEpilogue:
    """A graph, and its matrices in the order of its leaves and of its outputs."""

    graph: EpilogueGraph
    operands: tuple[FusedMatrix, ...] = ()
    outputs: tuple[FusedMatrix, ...] = ()

    @property
    def tag(self) -> str:
        return "_".join(("e" + self.graph.digest,
                         *(m.tag for m in (*self.operands, *self.outputs))))


@dataclass(frozen=True, kw_only=True)
class EpilogueConfig:
    """How a kernel makes C of sums; a "device" scalar is in device memory."""

    alpha: str = "one"
    beta: str = "zero"
    wide: bool = False
    epilogue: FusedEpilogue | None = None

    @property
    def fused(self) -> str:
        """The end of a kernel's name that says which epilogue it has."""
        return f"_{self.epilogue.tag}" if self.epilogue else ""


@dataclass(frozen=True)
class OutputTriangle:
    """The triangle of C that is written, at one tile: a ``part`` ("both": the lower one is
    computed). ``crossed`` if the tile may have elements of the other one; ``matrix`` is all of C,
    of whose transpose a tile is written for both."""

    part: str | None
    crossed: Condition
    matrix: Tensor
    hermitian: bool = False


@dataclass(frozen=True)
class OutputTile:
    """A tile of C, and the elements of it that a thread computes and writes. ``partition`` gives a
    thread's part (run, rest...), as its sums are; a run is contiguous in C if C is. ``pieces``
    yields the number of a piece along the last mode and a thread's part of it, where C does not go
    to memory. A ``triangle`` needs a ``guard``."""

    c: Tensor
    partition: Partition
    tile_of: Partition
    extents: DynamicPair
    item: IntLike | Coord
    guard: Guard | None = None
    pieces: Pieces | None = None
    single: bool = False
    triangle: OutputTriangle | None = None

    def within(self, triangle: str, c: Tensor | None = None) -> OutputTile:
        """The elements of a triangle alone, of this tile of C or of another one."""
        guard = self.guard and replace(self.guard, triangle=triangle)
        return replace(self, c=c or self.c, guard=guard, pieces=None, single=True, triangle=None)


class Epilogue:
    """The end of a kernel, whose parameters are declared here. ``accumulator`` is the type of
    sums, alpha and beta; ``sums`` is the type in which sums come, if they are converted first."""

    def __init__(self, k: KernelBuilder, config: Any, accumulator: str, sums: str | None = None):
        self.k, self._config, self._accumulator, self._output = k, config, accumulator, config.output
        self._fused = fused = config.epilogue
        self._converts = sums not in (None, accumulator)
        self._absent: dict[str, Expr] = {}        # flags: a scalar in device memory turned out to
                                                  # be zero
        self._addresses: dict[str, Pointer] = {}  # of scalars in device memory
        self._alpha, self._beta = self._scalar("alpha", config.alpha), self._scalar("beta", config.beta)
        matrices = (*fused.operands, *fused.outputs) if fused else ()
        inputs = len(fused.operands) if fused else 0
        self._matrices = [k.tensors(TensorParam(epilogue_role(m.name), "mn", m.dtype, m.strides,
                                                m.width, written=i >= inputs))[0]
                          for i, m in enumerate(matrices)]
        scalars = fused.graph.leaves("scalar") if fused else ()
        self._numbers = {node.name: k.scalar(epilogue_role(node.name), node.dtype)
                         for node in scalars}

    def _scalar(self, name: str, kind: str) -> Value | None:
        if kind == "value":
            return self.k.scalar(name, self._accumulator)
        if kind == "device":
            self._addresses[name] = self.k.pointer(name, self._accumulator,
                                                   alignment=dtype(self._accumulator).bytes)
            return local(f"{name}_value", self._accumulator)
        return None

    # -- scalars in device memory ------------------------------------------------------------------
    def load_scalars(self) -> None:
        """Load what is in device memory, where a kernel's work starts."""
        for name, address in self._addresses.items():
            value = self.k.load(self.k.declare(f"{name}_value", self._accumulator), address)
            self._absent[name] = self.k.flag(f"no_{name}", self.k.call("is_zero", value))

    def depth(self, k: IntLike) -> IntLike:
        """The extent K that is summed over: none if alpha turns out to be zero."""
        return self.k.let("K_summed", select(equal(self._absent["alpha"], 1), 0,
                                             k)) if "alpha" in self._absent else k

    def clear(self, total: Tensor) -> None:
        if "alpha" in self._absent:
            with self.k.when(equal(self._absent["alpha"], 1)):
                self.k.fill(total)

    @property
    def _reads_c(self) -> bool:
        return bool(self._fused.graph.leaves("c")) if self._fused else self._config.beta != "zero"

    @property
    def touches_memory(self) -> bool:
        """Whether it reads or writes anything but the C that comes out."""
        return self._reads_c or bool(self._matrices)

    # -- the work ----------------------------------------------------------------------------------
    def store(self, sums: Tensor | Parked, tile: OutputTile) -> None:
        """Turn a thread's sums into C, rounded once."""
        k, triangle = self.k, tile.triangle
        if triangle is None or triangle.part is None or tile.guard is None:
            self._store(sums, tile)
            return
        with k.when(triangle.crossed):
            if triangle.hermitian and isinstance(sums, Tensor):
                with k.loops(sums.extents) as at, k.when(equal(*tile.guard.coordinates(*at))):
                    k.assign(sums(*at).im, 0)
            self._store(sums, tile.within("upper" if triangle.part == "upper" else "lower"))
        with k.otherwise():
            self._store(sums, tile)
        if triangle.part == "both":
            k.comment("The other triangle")
            c = triangle.matrix         # its transpose, by the coordinates of the matrix
            mirrored = tile.tile_of(make_tensor(c.engine, c.shape, c.stride[::-1]))
            self._store(sums, tile.within("below", mirrored))

    def _store(self, sums: Tensor | Parked, tile: OutputTile) -> None:
        k, fused, guard, pieces = self.k, self._fused, tile.guard, tile.pieces
        width = into = 1 if tile.single else self._config.c.width
        formula = f"{fused.graph.name}: C = {fused.graph.result}" if fused else "C = alpha * accumulator + beta * C"
        k.comment(f"Epilogue: {formula}")
        reads_c = self._reads_c
        tCgC = tile.partition(tile.c)
        if reads_c or pieces is None:
            tCgC = k.pin("tCgC", tCgC)
        parts = [k.pin(f"tCg_{matrix.param.name}",
                       tile.partition(tile.tile_of(matrix.at(tile.item, tile.extents))))
                 for matrix in self._matrices]
        run, *rest = sums.layout.extents
        if pieces is not None and not tile.single:
            into = min(run, _MOST_BYTES // dtype(self._output).bytes)

        def one(at: Coord, target: Tensor, own: Callable[[IntLike], Value]) -> None:
            here = (_, *at)
            inside = guard and guard[here]

            def summed(i: IntLike) -> Value:
                return k.convert(own(i), self._accumulator) if self._converts else own(i)

            tCrD = k.registers("tCrD", self._output, run)
            if reads_c:
                absent = self._absent.get("beta")
                if absent is not None:
                    k.fill(tCrD)
                with k.when(True if absent is None else equal(absent, 0)):
                    k.copy(Vector(width), tCgC[here], tCrD, guard=inside)
            if fused is None:
                k.fill(tCrD, lambda i: combine(k, self._output, self._accumulator, summed(i),
                                               tCrD(i) if reads_c else None, self._alpha,
                                               self._beta))
            else:
                self._apply(fused, summed, tCrD, parts, here, run, inside)
            k.copy(Vector(into), tCrD, target, guard=None if pieces else inside)

        def columns(first: IntLike, count: int) -> Callable[..., Value]:
            if isinstance(sums, Tensor):
                return lambda *at: sums(*at[:-1], at[-1] + first)
            return sums.loaded(first, count)

        if pieces is None:
            with k.loops(rest) as at:
                column = columns(at[-1], 1)
                one(at, tCgC[(_, *at)], lambda i: column(i, *at[:-1], 0))
            return
        with pieces as (piece, target):
            _run, *inner, last = target.extents
            of_piece = columns(last * piece, last)
            with k.loops((*inner, last)) as (*outer, i):
                one((*outer, i + last * piece), target[(_, *outer, i)],
                    lambda r: of_piece(r, *outer, i))

    def _apply(self, fused: FusedEpilogue, summed: Callable[[IntLike], Value], tCrD: Tensor,
               parts: list[Tensor], here: tuple, run: int, inside: Guard | None) -> None:
        k, operands = self.k, len(fused.operands)
        inputs = zip(fused.operands, parts[:operands], strict=True)
        values = {m.name: self._loaded(m, part[here], run, inside) for m, part in inputs}
        outputs = [k.registers(f"tCr_{epilogue_role(m.name)}", m.dtype, run)
                   for m in fused.outputs]
        with k.each(run) as i:
            def leaf(node: Node) -> Value:
                match node.op:
                    case "acc":
                        return summed(i)
                    case "c":
                        return k.convert(tCrD(i), node.dtype)
                    case "operand":
                        return k.convert(values[node.name](i), node.dtype)
                    case "scalar":
                        return self._numbers[node.name]
                    case _:
                        return {"alpha": self._alpha,
                                "beta": self._beta}[node.op] or k.call("one", of=node.dtype)

            result, *others = emit(k, fused.graph, leaf)
            k.assign(tCrD(i), k.convert(result, self._output))
            for m, fragment, value in zip(fused.outputs, outputs, others, strict=True):
                k.assign(fragment(i), k.convert(value, m.dtype))
        for m, fragment, part in zip(fused.outputs, outputs, parts[operands:], strict=True):
            k.copy(Vector(m.width), fragment, part[here], guard=inside)

    def _loaded(self, m: FusedMatrix, source: Tensor, run: int, inside: Guard | None) -> Tensor:
        """A run of an operand in registers: one element where all are the same."""
        k, name = self.k, f"tCr_{epilogue_role(m.name)}"
        if run > 1 and any(stride != 0 for stride in flatten(source.stride)):
            fragment = k.registers(name, m.dtype, run)
            k.copy(Vector(m.width), source, fragment, guard=inside)
            return fragment
        fragment = k.registers(name, m.dtype, 1)
        k.copy(ELEMENTS, source(0), fragment, when=inside is None or inside.at((0,)))
        return make_tensor(fragment.engine, run, 0)
