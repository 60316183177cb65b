"""Kernels for many problems at once: parameters are words of a table, a row for each problem.

Before the rows stand, for each problem, the number of blocks before its own, filled up to a power
of two with a number that no block reaches: a block finds its problem by bisection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from .._dtypes import dtype
from ..layout import Layout, Tensor
from ..layout.symbolic import Var, equal
from .builder import KernelBuilder
from .copies import Vector
from .engine import Element, Pointer
from .kernel import GeneratedKernel, Param
from .values import Term, integer

WORD_BYTES = 8


def word_offsets(row: Iterable[Param]) -> tuple[tuple[int, ...], int]:
    """Offsets of the members of a row and the length of the row, in words; members and rows are
    aligned to their size."""
    offsets, end = [], 0
    for member in row:
        words = -(-member.dtype.bytes // WORD_BYTES) if member.kind == "scalar" else 1
        end = -(-end // words) * words
        offsets.append(end)
        end += words
    return tuple(offsets), -(-end // 2) * 2


class TableBuilder(KernelBuilder):
    """Writes a kernel for many problems: each row of a table holds the parameters that a kernel for
    one problem declares."""

    def __init__(self, name: str, threads: int, *, inline: Sequence[str] = (), **options: object):
        super().__init__(name, threads, **options)       # type: ignore[arg-type]
        self._inline = inline
        self._members: list[Param] = []
        self._row: Tensor | None = None                  # before, parameters are the kernel's own
        table, entries = self.pointer("table", "int64"), self.integer("entries", multiple=2)
        levels, row_words = self.integer("levels"), self.integer("row_words", multiple=2)
        self.comment("The problem of this block: the last with no more blocks before it")
        block = self.block_index("block_of_all")
        problem, half = self.variable("problem", 0), self.variable("half", entries // 2)
        before, probe = (self.registers(name, "int64", 1) for name in ("before", "probe"))
        self.fill(before)
        with self.loop("level", levels):
            self.copy(Vector(1), Tensor(table + (problem + half), Layout(1)), probe)
            with self.when(equal(self.flag("reached", probe(0) <= block), 1)):
                self.assign(problem, problem + half)
                self.assign(before(0), probe(0))
            self.assign(half, half // 2)
        self._row = self.pin("row", Tensor(table + (entries + problem * row_words),
                                           Layout(row_words)))
        self._block_index = f"static_cast<{self._int}>(block_of_all - {before(0).c})"

    def _pass(self, param: Param) -> None:
        if self._row is None:
            super()._pass(param)
            return
        name, inline = self._fresh(param.name), param.name in self._inline
        member = self._member(replace(param, kind="scalar") if inline else param)
        value = member.address if inline else self._word(name, member)
        how = "static_cast" if param.kind == "scalar" else "reinterpret_cast"
        self._line(f"{param.ctype} const {name} = {how}<{param.ctype}>({value});")

    def scalar(self, name: str, element: str) -> Term:
        """A number in the row."""
        kind = dtype(element)
        member = self._member(Param(name, "scalar", kind))
        number, there = self.declare(name, element), f"reinterpret_cast<{kind.ctype} const*>({member.address})"
        return self.load(number, Pointer("gmem", there, kind, const=True))

    def build(self) -> GeneratedKernel:
        """The finished kernel, which knows what its rows hold."""
        return replace(super().build(), row=tuple(self._members))

    def _member(self, member: Param) -> Element:
        self._members.append(member)
        offsets, _words = word_offsets(self._members)
        assert self._row is not None
        return self._row(offsets[-1])

    def _word(self, name: str, member: Element) -> Term:
        return self.load(self.declare(f"{name}_word", "int64"), member)


def first_blocks(blocks: Sequence[int]) -> tuple[list[int], int]:
    """The array of blocks at the beginning of a table, and the number of all blocks."""
    entries = 1 << max(1, (len(blocks) - 1).bit_length())
    *before, total = accumulate(blocks, initial=0)
    return [*before, *[2**62] * (entries - len(before))], total


# -- two launches of one kernel as one: a block takes the parameters of its launch -----------------
class PairBuilder(KernelBuilder):
    """Writes one kernel that does the work of two launches; the kernel is written as for one
    launch."""

    def __init__(self, name: str, threads: int, **options: object):
        super().__init__(name, threads, **options)       # type: ignore[arg-type]
        super()._pass(Param("blocks_first", "scalar", self._int_dtype))
        first, block = Var("blocks_first", 0), self.block_index("block_of_both")
        second = self.flag("second", integer(block) >= first)
        self._block_index = self._c(self.let("own_block", block - second * first))

    def _pass(self, param: Param) -> None:
        name = param.name
        for i in range(2):
            super()._pass(replace(param, name=f"{name}{i}"))
        self._line(f"{param.ctype} const {self._fresh(name)} = second ? {name}1 : {name}0;")
