"""Passes over rows of two operands: blocks of each, and threads that share rows.

What threads find of rows is folded in a fixed order: lanes by shuffles, then warps in shared
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..codegen import GlobalTensor, KernelBuilder, TensorParam, TiledCopy, Value
from ..layout import Layout, Tensor, make_identity_tensor, make_layout, make_tensor, size
from ..layout.symbolic import IntLike, equal, maximum
from .common import (
    ELEMENTS,
    WARP,
    DynamicPair,
    OperandAccess,
    Pair,
    butterfly,
    operand,
    vectors_along,
)


@dataclass(frozen=True)
class RowOperand:
    """An operand (rows, K) of a pass, and how it is read."""

    x: OperandAccess
    element: str
    batch_modes: int = 0

    @property
    def k_major(self) -> bool:
        """A pass reads and writes along K, unless the operand is contiguous along rows alone."""
        return self.x.unit != 0

    def declared(self, k: KernelBuilder, side: str, *others: TensorParam
                 ) -> tuple[DynamicPair, tuple[GlobalTensor, ...]]:
        """Declare the extents, the operand and other tensors, all named after a side."""
        tensors = k.tensors(operand(f"X{side}", "mk", self.element, self.x), *others, modes="mk",
                            batch=self.batch_modes, suffix=side)
        return (k.extent(f"m{side}"), k.extent(f"k{side}")), tensors


def blocks_of_two(k: KernelBuilder, block: IntLike, first: IntLike | None,
                  name: str) -> Iterator[IntLike]:
    """The index of a block among those of the ``first`` operand, then among those of the second;
    without a number, all are of the first."""
    with k.when(True if first is None else block < first), k.scratch():
        yield block
    if first is not None:
        with k.otherwise(), k.scratch():
            yield k.let(name, maximum(block - first, 0))


def fold_row(k: KernelBuilder, shared: Tensor, total: Value, by: str) -> None:
    """Fold the parts (row, part) of a thread's row in order."""
    parts = size(shared, 1)
    found = k.registers(f"of_{shared.engine.root}", shared.engine.dtype.name, parts)
    k.copy(ELEMENTS, shared[k.thread, None], found)
    k.assign(total, found(0))
    for part in range(1, parts):
        k.assign(total, k.call(by, total, found(part)))


@dataclass(frozen=True)
class RowThreads:
    """Threads of a block along (rows, K), each with ``run`` rows, neighbours ``along_k`` or along
    rows."""

    threads: Pair
    along_k: bool
    run: int = 1

    @property
    def rows(self) -> int:
        return self.threads[0] * self.run

    @property
    def lanes(self) -> int:
        """Lanes of a warp that share rows."""
        return max(1, min(self.threads[1], WARP // (1 if self.along_k else self.threads[0])))

    @property
    def warps(self) -> int:
        """Warps that share rows."""
        return self.threads[1] // self.lanes

    @property
    def owner(self) -> TiledCopy:
        """Who has which rows, one thread after the other along K."""
        return TiledCopy(vectors_along(int(self.along_k), self.threads).threads, (self.run, 1))

    def registers(self, k: KernelBuilder, name: str, element: str,
                  start: float | None = None) -> Tensor:
        """A number of each row of a thread, (rows, 1, 1)."""
        found = k.registers(name, element, (self.run, 1, 1))
        k.fill(found, start)
        return found

    def parts(self, k: KernelBuilder, shared: Tensor) -> Tensor:
        """Parts (row, part) of a thread's rows, the same along K: (rows, 1, 1, part)."""
        rows, part = shared.layout
        everywhere = make_layout(rows, Layout(self.threads[1], 0), part)
        mine = self.owner.partition(Tensor(shared.engine, everywhere), k.thread)
        return k.pin(f"tRs_{shared.engine.root}", mine)

    def fold_lanes(self, k: KernelBuilder, total: Tensor, by: str) -> None:
        apart = 1 if self.along_k else self.threads[0]
        with k.loops(total.extents) as at:
            k.fold_lanes(total(*at), by, butterfly(self.lanes, apart))

    def fold(self, k: KernelBuilder, totals: Sequence[tuple[Tensor, str]]) -> None:
        """Fold numbers of rows, by functions: the first threads get the block's, of a row each."""
        for total, by in totals:
            self.fold_lanes(k, total, by)
        k.comment("Warps have parts of rows: a thread for each row folds them")
        shared = [k.shared(f"s_{total.engine.root}", total.engine.dtype.name,
                           (self.rows, self.warps)) for total, _by in totals]
        parts = [self.parts(k, each) for each in shared]
        along = self.owner.partition(make_identity_tensor((self.rows, self.threads[1])),
                                     k.thread)(0, 0, 0)[1]
        with k.when(equal(along % self.lanes, 0)):
            for (total, _by), part in zip(totals, parts, strict=True):
                k.copy(ELEMENTS, total, part[..., along // self.lanes])
        k.barrier()
        with k.when(k.thread < self.rows):
            for (total, by), each in zip(totals, shared, strict=True):
                fold_row(k, each, make_tensor(total.engine, 1)(0), by)
