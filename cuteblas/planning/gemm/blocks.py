"""Products in blocks of C, one after the other in a workspace that is too small for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import TypeVar

from ..operands import divisors
from ..plan import Launch, Plan, Workspace
from ..problem import DeviceInfo, GemmProblem, Ints, Operand, with_matrices

T = TypeVar("T")
MOST_BLOCKS = 64
"""The most blocks of a product that prepares its operands."""

_MULTIPLE = 256                    # rows and columns: offsets to blocks are multiples of any vector


class NoRoom(ValueError):
    """The limit of the workspace leaves too little room for a plan."""

    def __init__(self, device: DeviceInfo):
        super().__init__(f"its workspace is over the limit of {device.workspace_limit} bytes even in "
                         "small blocks")


@dataclass(frozen=True)
class Block:
    """A block of C from ``start`` (matrix, row, column) on."""

    start: tuple[int, int, int]
    problem: GemmProblem


@dataclass(frozen=True)
class Blocks:
    """Extents of a block: matrices of the outermost batch mode, rows and columns of C."""

    matrices: int
    m: int
    n: int

    @classmethod
    def cut(cls, p: GemmProblem, matrices: int = 1, rows: int = 1, columns: int = 1) -> Blocks:
        """The outermost batch mode, rows and columns of a product, each in so many parts."""
        m, n = (x if parts == 1 else _whole(-(-x // parts))
                for x, parts in ((p.m, rows), (p.n, columns)))
        return cls(-(-(p.batch[0] if p.batch else 1) // matrices), m, n)

    @classmethod
    def fewest(cls, p: GemmProblem, room: int,
               nbytes: Callable[[GemmProblem], int]) -> Blocks | None:
        """The fewest blocks with room for their workspace, a triangle in one, or ``None``."""
        matrices = p.batch[0] if p.batch else 1
        for total in range(1, 2 if p.triangle else MOST_BLOCKS + 1):
            for each in divisors(total, matrices):
                for rows in divisors(total // each, p.m):
                    cut = cls.cut(p, each, rows, total // each // rows)
                    parts = (block.problem for block in cut.of(p))
                    if all(nbytes(x) <= room
                           for x in {(x.m, x.n, x.batch): x for x in parts}.values()):
                        return cut
        return None

    def smaller(self) -> Blocks | None:
        """Half of them, batches first, then C's longer side; ``None`` if nothing is left."""
        if self.matrices > 1:
            return replace(self, matrices=-(-self.matrices // 2))
        longest = "m" if self.m >= self.n else "n"
        extent = getattr(self, longest)
        return None if extent <= _MULTIPLE else replace(self, **{longest: _whole(-(-extent // 2))})

    def of(self, p: GemmProblem) -> Iterator[Block]:
        """The blocks of a product; those that have rows in common are neighbours."""
        matrices = p.batch[0] if p.batch else 1
        for start in product(range(0, matrices, self.matrices), range(0, p.m, self.m),
                             range(0, p.n, self.n)):
            matrix, row, column = start
            part = beginning(p, start[:len(p.batch[:1])], row, column)
            batch = (min(self.matrices, matrices - matrix), *p.batch[1:]) if p.batch else ()
            m, n = min(self.m, p.m - row), min(self.n, p.n - column)
            yield Block(start, replace(part, m=m, n=n, batch=batch))

    def by_rows(self, p: GemmProblem, workspace: Workspace,
                shared: Callable[[GemmProblem], T]) -> Iterator[tuple[Block, T, bool]]:
        """Blocks, what those of the same rows share of the workspace, and if they are first."""
        for _rows, blocks in groupby(self.of(p), key=lambda block: block.start[:2]):
            with workspace.lent():
                first, *others = blocks
                own = shared(first.problem)
                for block in (first, *others):
                    with workspace.lent():
                        yield block, own, block is first

    def count(self, p: GemmProblem) -> int:
        return sum(1 for _block in self.of(p))

    def note(self, p: GemmProblem, together: str) -> str:
        many = self.count(p)
        return "" if many == 1 else f"; {many} blocks of C, so that the workspace is little larger than {together} together"


def beginning(p: GemmProblem, at: Ints, row: int = 0, column: int = 0) -> GemmProblem:
    """The product from an index, a row and a column on."""
    def part(role: str, x: Operand) -> Operand:
        steps = {"a": (row, 0), "b": (column, 0)}.get(role, (row, column))
        strides = *x.batch_strides[:len(at)], *x.strides
        return x.moved(x.item * sum(i * s for i, s in zip((*at, *steps), strides, strict=True)))

    return with_matrices(p, part)


def _whole(extent: int) -> int:
    return -(-extent // _MULTIPLE) * _MULTIPLE


def plan_in_blocks(problem: GemmProblem, device: DeviceInfo,
                   plan_of: Callable[[GemmProblem, DeviceInfo], Plan]) -> Plan:
    """A plan within the device's workspace limit: of the whole product, or of blocks of C."""
    whole = plan_of(problem, device)
    limit = device.workspace_limit
    if limit is None or whole.workspace_bytes <= limit:
        return whole
    blocks = Blocks.cut(problem).smaller()
    while blocks is not None:
        if plan_of(next(blocks.of(problem)).problem, device).workspace_bytes <= limit:
            joined = _joined(problem, device, plan_of, blocks, whole.workspace_bytes)
            # smaller blocks at the ends may need room for sums that they share
            if joined.workspace_bytes <= limit:
                return joined
        blocks = blocks.smaller()
    raise NoRoom(device)


def _joined(problem: GemmProblem, device: DeviceInfo,
            plan_of: Callable[[GemmProblem, DeviceInfo], Plan], blocks: Blocks,
            needed: int) -> Plan:
    """The launches of all blocks; the first of each waits until the block before has ended."""
    launches: list[Launch] = []
    plans = []
    for block in blocks.of(problem):
        plans.append(plan_of(block.problem, device))
        launches += plans[-1].launches
    first = plans[0]
    extents = f"{min(blocks.m, problem.m)} x {min(blocks.n, problem.n)}"
    reason = (
        f"{first.reason}; in {len(plans)} blocks of {extents}, as a workspace of {needed} bytes is over the limit of "
        f"{device.workspace_limit}"
    )
    return Plan(problem, device, first.family, first.config, tuple(launches),
                max(plan.workspace_bytes for plan in plans), reason,
                sum(plan.seconds or 0.0 for plan in plans), first.copied, first.fallback)
