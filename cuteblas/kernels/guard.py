"""The guard on the device: an algorithm's condition on the elements, and the verdict by which later
kernels compute or return.

A *primary* algorithm is right under a condition on elements that it reads anyway. It leaves a
*verdict*, a word in device memory: :data:`HOLDS`, or the number of the *fallback* that has to
compute C in its place. Fallbacks are launched in any case; their kernels return at once unless the
verdict is their number (:meth:`~cuteblas.codegen.builder.KernelBuilder.gate`), so that nothing
waits for the host. Every call writes the verdict before anything reads it, so it need not be reset.

There are two ways to find it.

* A pass before the product reads the operands, and each of its blocks leaves a :class:`Record` of
  what it has seen. From all records one warp of each block of the product makes the
  :class:`Verdict`, while others multiply, and no block writes unless the condition holds: C may be
  an input.
* Blocks of the product see the elements themselves, and each leaves a verdict of its own at the end
  (:func:`leave_verdict`). C has been written then: it may not be an input.

:mod:`cuteblas.planning.guard` puts the launches together; docs/architecture.md explains the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ..codegen import (
    CodegenError,
    KernelBuilder,
    Mbarriers,
    Pointer,
    TensorParam,
    Term,
    Value,
    Vector,
    choose,
)
from ..layout import Layout, Tensor, _, make_tensor
from ..layout.symbolic import IntLike, ceil_div, equal, maximum
from .common import ELEMENTS, WARP, butterfly, existing, part_of_tile, vectors_along

__all__ = ["HOLDS", "NATIVE", "NEXT", "Field", "Record", "Verdict", "gate_tag", "leave_verdict"]

HOLDS = 0
"""The verdict if the condition holds: what the primary algorithm computes is the result."""

NEXT, NATIVE = 1, 2
"""The verdicts if it does not: the fallback of the algorithm's own, and native arithmetic, which
takes any elements."""

_RECORDS_AT_ONCE = 4                # that a thread asks for before it looks at them


def gate_tag(gate: int | None) -> str:
    """The part of the name of a kernel that does nothing unless the verdict is ``gate``."""
    return "" if gate is None else f"_if{gate}"


@dataclass(frozen=True)
class Field:
    """A number of a record.

    Attributes
    ----------
    name : str
        What it is called in the source.
    combine : str
        Which of two is kept: ``"max"`` or ``"min"``.
    start : float
        What is kept of none at all.
    """

    name: str
    combine: str
    start: float


@dataclass(frozen=True)
class Record:
    """What a block, or a cluster of them, leaves of the elements that it has read: a few float32.

    Attributes
    ----------
    fields : tuple of Field
        Its numbers, one, two or four: a record is read as one vector.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if self.size not in (1, 2, 4):
            raise CodegenError(f"a record is read as one vector of 1, 2 or 4 numbers, got {self}")

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return len(self.fields)

    def parameter(self, name: str) -> TensorParam:
        """The declaration of all records, for the kernel that leaves them."""
        return TensorParam(name, ("record",), "float32", (1,), self.size, written=True, batch=False)

    def begin(self, k: KernelBuilder) -> Tensor:
        """Registers for a record that has seen no elements."""
        record = k.registers("record", "float32", self.size)
        for at, field in enumerate(self.fields):
            k.assign(record(at), field.start)
        return record

    def add(self, k: KernelBuilder, record: Tensor, other: Tensor) -> None:
        """Add what another record has seen."""
        for at, field in enumerate(self.fields):
            k.assign(record(at), k.call(field.combine, record(at), other(at)))

    def fold_lanes(self, k: KernelBuilder, record: Tensor, masks: Sequence[int]) -> None:
        """Combine those of lanes whose numbers differ by masks."""
        for at, field in enumerate(self.fields):
            k.fold_lanes(record(at), field.combine, masks)

    def folded(self, k: KernelBuilder, records: Mapping[str, tuple[Pointer, IntLike]],
               lane: IntLike) -> list[list[Term]]:
        """For each name, the numbers of so many records at a pointer, folded by one warp."""
        reader = vectors_along(0, (1, WARP), self.size)
        step = self.size, WARP * _RECORDS_AT_ONCE
        at_once = Layout((self.size, 1, _RECORDS_AT_ONCE))
        mine = part_of_tile(reader, step, (0, _), lane)     # (record, 1, records at once, step)
        folded = []
        for name, (pointer, count) in records.items():
            numbers = [k.declare(f"{field.name}_{name}", "float32", field.start)
                       for field in self.fields]
            found = k.registers(f"found_{name}", "float32", at_once)
            source = k.pin(f"t{name}", mine(make_tensor(pointer, (self.size, count))))
            folded.append((numbers, found, source, existing(k, f"t{name}_c", mine,
                                                            (self.size, count), (None, count))))
        most: IntLike = reduce(maximum, (count for _pointer, count in records.values()))
        with k.loop("i", ceil_div(most, step[1]), unroll=False) as i:
            for _numbers, found, source, exists in folded:
                k.copy(Vector(self.size), source[..., i], found, guard=exists[..., i])
            for numbers, found, _source, exists in folded:
                with k.each(_RECORDS_AT_ONCE) as j, k.when(exists.at((0, 0, j, i))):
                    for at, (field, number) in enumerate(zip(self.fields, numbers, strict=True)):
                        k.assign(number, k.call(field.combine, number, found(at, 0, j)))
        for at, field in enumerate(self.fields):
            for numbers, *_others in folded:
                k.fold_lanes(numbers[at], field.combine, butterfly(WARP))
        return [numbers for numbers, *_others in folded]

    def leave(self, k: KernelBuilder, record: Tensor, records: Pointer, index: IntLike) -> None:
        """Store a record; one thread does this."""
        k.copy(Vector(self.size), record, make_tensor(records, (self.size, index + 1))[_, index])


class Verdict:
    """The verdict on all records, which every block of a kernel makes for itself before it writes.

    Parameters
    ----------
    k : KernelBuilder
        The kernel. Its parameters are declared here: for each name the address of records, then for
        each how many there are, and ``status``, the word that takes the verdict.
    record : Record
        What a record is.
    names : sequence of str
        Of the records of each operand.
    """

    def __init__(self, k: KernelBuilder, record: Record, names: Sequence[str]):
        self._k, self._record = k, record
        pointers = [k.pointer(name, "float32", alignment=4 * record.size) for name in names]
        self._records = {name: (pointer, k.integer(f"{name}_count"))
                         for name, pointer in zip(names, pointers, strict=True)}
        self._status = k.pointer("status", "uint32", const=False, alignment=4)

    def share(self) -> Mbarriers:
        """Allocate what a block keeps of it in shared memory; the barrier that is returned is to be
        initialised."""
        self._barrier = Mbarriers(self._k, "judged", 1, arrivals=1)
        self._of_block = self._k.shared("verdict_of_block", "uint32", 1, alignment=4)
        return self._barrier

    def make(self, condition: Callable[[list[list[Term]]], Term], comment: str) -> None:
        """Make the verdict; one warp does this. The first block leaves it at ``status``.

        Parameters
        ----------
        condition : callable
            Given the numbers of the records of each operand, folded, it returns the verdict: a
            ``uint32``.
        comment : str
            What the source says of it.
        """
        k = self._k
        k.comment(comment)
        lane = k.let("lane", k.thread % WARP)
        folded = self._record.folded(k, self._records, lane)
        verdict = k.let("verdict", condition(folded))
        with k.when(equal(lane, 0)):
            with k.when(equal(k.block_index("judge"), 0)):
                k.store(self._status[0], verdict)
            k.store(self._of_block(0), verdict)
            self._barrier.arrive(0)

    def leave_unless_it_holds(self) -> None:
        """Wait for the verdict, and end the block if the condition does not hold; all threads that
        write do this before."""
        k = self._k
        self._barrier.wait(0, 0)
        given = k.registers("given", "uint32", 1)
        k.copy(ELEMENTS, self._of_block, given)
        k.stop(given(0).differs(HOLDS))


def leave_verdict(k: KernelBuilder, words: Pointer, fails: Value, fallback: int) -> None:
    """Leave a block's own verdict, in its own word, at the end of a kernel: ``fallback`` if
    ``fails`` for one of its threads."""
    word = k.let("word", choose(k.call("syncthreads_or", fails), fallback, HOLDS, "uint32"))
    with k.when(equal(k.thread, 0)):
        k.store(words[k.block_index("reporting")], word)
