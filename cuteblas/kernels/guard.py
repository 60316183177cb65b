"""The guard on the device: an algorithm's condition on elements, and the verdict on it.

docs/architecture.md explains it. A pass before the product leaves a :class:`Record` a block, from
which each block of the product makes the :class:`Verdict` before it writes; or blocks of the
product leave verdicts at their end (:func:`leave_verdict`), and C may not be an input.
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

HOLDS = 0
"""The verdict if the condition holds: the primary algorithm's result stands."""

NEXT, NATIVE = 1, 2
"""The verdicts for the algorithm's own fallback, and for native arithmetic."""

_RECORDS_AT_ONCE = 4                # that a thread asks for before it looks at them


def gate_tag(gate: int | None) -> str:
    """The part of the name of a kernel that runs under the verdict ``gate`` alone."""
    return "" if gate is None else f"_if{gate}"


@dataclass(frozen=True)
class Field:
    """A number of a record: how two of it combine, and what it is of none at all."""

    name: str
    combine: str
    start: float


@dataclass(frozen=True)
class Record:
    """The numbers that a block or cluster leaves of elements: 1, 2 or 4 float32, as a vector."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if self.size not in (1, 2, 4):
            raise CodegenError(f"a record is read as one vector of 1, 2 or 4 numbers, got {self}")

    @property
    def size(self) -> int:
        return len(self.fields)

    def parameter(self, name: str) -> TensorParam:
        """All records, as a parameter of the kernel that leaves them."""
        return TensorParam(name, ("record",), "float32", (1,), self.size, written=True, batch=False)

    def begin(self, k: KernelBuilder) -> Tensor:
        record = k.registers("record", "float32", self.size)
        for at, field in enumerate(self.fields):
            k.assign(record(at), field.start)
        return record

    def add(self, k: KernelBuilder, record: Tensor, other: Tensor) -> None:
        for at, field in enumerate(self.fields):
            k.assign(record(at), k.call(field.combine, record(at), other(at)))

    def fold_lanes(self, k: KernelBuilder, record: Tensor, masks: Sequence[int]) -> None:
        """Combine the records of lanes whose numbers differ by ``masks``."""
        for at, field in enumerate(self.fields):
            k.fold_lanes(record(at), field.combine, masks)

    def folded(self, k: KernelBuilder, records: Mapping[str, tuple[Pointer, IntLike]],
               lane: IntLike) -> list[list[Term]]:
        """For each name, the numbers of its records (pointer, count), folded by one warp."""
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
        k.copy(Vector(self.size), record, make_tensor(records, (self.size, index + 1))[_, index])


class Verdict:
    """The verdict on all records, which every block makes before it writes. Declares, for each
    name, the address and number of records, and ``status``, the word that takes the verdict."""

    def __init__(self, k: KernelBuilder, record: Record, names: Sequence[str]):
        self._k, self._record = k, record
        pointers = [k.pointer(name, "float32", alignment=4 * record.size) for name in names]
        self._records = {name: (pointer, k.integer(f"{name}_count"))
                         for name, pointer in zip(names, pointers, strict=True)}
        self._status = k.pointer("status", "uint32", const=False, alignment=4)

    def share(self) -> Mbarriers:
        """Allocate what a block keeps in shared memory; the barrier is to be initialised."""
        self._barrier = Mbarriers(self._k, "judged", 1, arrivals=1)
        self._of_block = self._k.shared("verdict_of_block", "uint32", 1, alignment=4)
        return self._barrier

    def make(self, condition: Callable[[list[list[Term]]], Term], comment: str) -> None:
        """Make the verdict, a ``uint32``, by one warp; the first block leaves it at ``status``."""
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
        """Wait for the verdict, and end the block if the condition fails; before threads write."""
        k = self._k
        self._barrier.wait(0, 0)
        given = k.registers("given", "uint32", 1)
        k.copy(ELEMENTS, self._of_block, given)
        k.stop(given(0).differs(HOLDS))


def leave_verdict(k: KernelBuilder, words: Pointer, fails: Value, fallback: int) -> None:
    """Leave a block's verdict in its word: ``fallback`` if ``fails`` for one of its threads."""
    word = k.let("word", choose(k.call("syncthreads_or", fails), fallback, HOLDS, "uint32"))
    with k.when(equal(k.thread, 0)):
        k.store(words[k.block_index("reporting")], word)
