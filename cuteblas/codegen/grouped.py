"""Kernels for many problems at once: what otherwise are parameters are words of a table in device
memory, a row for each problem.

The table is an array of 64-bit words: first, for each problem, the number of blocks before its own
(the rest of a power of two is filled with a number that no block reaches), then the rows. A block
finds its problem by bisection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .._dtypes import dtype
from ..layout import Layout, Tensor
from ..layout.symbolic import Expr, Var, equal
from .builder import KernelBuilder
from .copies import Vector
from .engine import Element, Pointer
from .kernel import GeneratedKernel, Param
from .values import Term

__all__ = ["WORD_BYTES", "TableBuilder", "first_blocks", "word_offsets"]

WORD_BYTES = 8


def word_offsets(row: Iterable[Param]) -> tuple[tuple[int, ...], int]:
    """Offsets of the members of a row and the length of the row, in words; members and rows are
    aligned to their size.

    Parameters
    ----------
    row : iterable of Param
        The members, in order.

    Returns
    -------
    (tuple of int, int)
        The word at which each member begins, and the words of the row.

    Examples
    --------
    >>> from cuteblas.codegen.grouped import TableBuilder, word_offsets
    >>> k = TableBuilder("example", threads=32)
    >>> A, N = k.pointer("A", "float32"), k.integer("N")
    >>> word_offsets(k.build().row)
    ((0, 1), 2)
    """
    offsets, end = [], 0
    for member in row:
        words = -(-member.dtype.bytes // WORD_BYTES) if member.kind == "scalar" else 1
        end = -(-end // words) * words
        offsets.append(end)
        end += words
    return tuple(offsets), -(-end // 2) * 2


class TableBuilder(KernelBuilder):
    """Writes a kernel for many problems: each row of a table holds the parameters that a kernel for
    one problem declares.

    The kernel's own parameters are the pointer ``table`` and integers: ``entries`` of the array of
    blocks (a power of two, at least 2), its logarithm ``levels``, and ``row_words``, the words of a
    row (an even number).

    Parameters
    ----------
    name, threads, **options
        As in :class:`KernelBuilder`.
    inline : sequence of str
        Names of pointers whose numbers are stored in the row itself.

    Examples
    --------
    >>> from cuteblas.codegen.grouped import TableBuilder
    >>> k = TableBuilder("example", threads=32)
    >>> A, N = k.pointer("A", "float32"), k.integer("N")
    >>> kernel = k.build()
    >>> [q.name for q in kernel.params], [q.name for q in kernel.row]
    (['table', 'entries', 'levels', 'row_words'], ['A', 'N'])
    """

    def __init__(self, name: str, threads: int, *, inline: Sequence[str] = (), **options: object):
        super().__init__(name, threads, **options)       # type: ignore[arg-type]
        self._inline = inline
        self._members: list[Param] = []
        table, entries = super().pointer("table", "int64"), super().integer("entries", multiple=2)
        levels, row_words = super().integer("levels"), super().integer("row_words", multiple=2)
        self.comment("The problem of this block: the last with no more blocks before it")
        block = super().block_index("block_of_all", "x")
        problem, half = self.variable("problem", 0), self.variable("half", entries // 2)
        self._before, probe = self.registers("before", "int64",
                                             Layout(1)), self.registers("probe", "int64", Layout(1))
        self.fill(self._before)
        with self.loop("level", levels):
            self.copy(Vector(1), Tensor(table + (problem + half), Layout(1)), probe)
            with self.when(equal(self.flag("reached", probe(0) <= block), 1)):
                self.assign(problem, problem + half)
                self.assign(self._before(0), probe(0))
            self.assign(half, half // 2)
        self._row = self.pin("row", Tensor(table + (entries + problem * row_words),
                                           Layout(row_words)))

    def block_index(self, name: str, axis: str, hi: int | None = None) -> Expr:
        """The block's index among those of its problem; there is only one axis."""
        return self._declare(name, f"static_cast<{self._int}>(block_of_all - {self._before(0).c})",
                             Var(name, 0, hi))

    def pointer(self, name: str, element: str, *, const: bool = True,
                alignment: int = 16) -> Pointer:
        """An address in the row, or of a number in the row."""
        dt, inline = dtype(element), name in self._inline
        qualified = f"{dt.ctype}{' const' if const else ''}*"
        member = self._member(Param(self._fresh(name), "scalar" if inline else "pointer", dt,
                                    const))
        value = member.address if inline else self._word(name, member)
        self._line(f"{qualified} const {name} = reinterpret_cast<{qualified}>({value});")
        return Pointer("gmem", name, dt, alignment=alignment, root=name, const=const)

    def integer(self, name: str, *, lo: int | None = 0, hi: int | None = None, multiple: int = 1,
                typical: int | None = None) -> Expr:
        """An integer in the row."""
        value = self._member(Param(name, "scalar", self._int_dtype))
        self._access.parameter(name, extent=lo is not None, value=typical)
        return self._declare(name, f"static_cast<{self._int}>({self._word(name, value)})",
                             Var(name, lo, hi, -multiple))

    def scalar(self, name: str, element: str) -> Term:
        """A number in the row."""
        kind = dtype(element)
        member = self._member(Param(name, "scalar", kind))
        number, there = self.declare(name, element), f"reinterpret_cast<{kind.ctype} const*>({member.address})"
        self.do("load_global", number, Pointer("gmem", there, kind, const=True), of=1)
        return number

    def build(self) -> GeneratedKernel:
        """The finished kernel, which knows what its rows hold."""
        return replace(super().build(), row=tuple(self._members))

    def _member(self, member: Param) -> Element:
        """Where a new member of the row stands."""
        self._members.append(member)
        offsets, _words = word_offsets(self._members)
        return self._row(offsets[-1])

    def _word(self, name: str, member: Element) -> Term:
        """A word that is loaded."""
        word = self.declare(f"{name}_word", "int64")
        self.do("load_global", word, member, of=1)
        return word


def first_blocks(blocks: Sequence[int]) -> tuple[list[int], int]:
    """The array of blocks at the beginning of a table, and the number of all blocks.

    Parameters
    ----------
    blocks : sequence of int
        The number of blocks of each problem.

    Returns
    -------
    (list of int, int)
        The blocks before each problem, padded to a power of two, and the sum of all.

    Examples
    --------
    >>> from cuteblas.codegen.grouped import first_blocks
    >>> first, blocks = first_blocks([4, 2, 5])
    >>> first[:3], blocks
    ([0, 4, 6], 11)
    """
    entries = 1 << max(1, (len(blocks) - 1).bit_length())
    before, total = [], 0
    for count in blocks:
        before.append(total)
        total += count
    return [*before, *[2**62] * (entries - len(before))], total
