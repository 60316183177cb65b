"""Products in blocks of C, one after the other in the same workspace, where one plan for all of C would need too much of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from ..codegen.dtypes import dtype
from ..codegen.epilogue import epilogue_role
from .plan import Launch, Plan, Role, with_roles
from .problem import DeviceInfo, GemmProblem, Operand

__all__ = ["plan_in_blocks"]

_MULTIPLE = 256                      # rows and columns: offsets to blocks are multiples of any vector


@dataclass(frozen=True)
class _Blocks:
    """Extents of a block: matrices of the outermost batch mode, rows and columns of C."""

    matrices: int
    m: int
    n: int

    def smaller(self) -> _Blocks | None:
        """Half of them: batches first, then the longer side of C; ``None`` if there is nothing to halve."""
        if self.matrices > 1:
            return replace(self, matrices=-(-self.matrices // 2))
        longest = "m" if self.m >= self.n else "n"
        extent = getattr(self, longest)
        return None if extent <= _MULTIPLE else replace(self, **{longest: _whole(-(-extent // 2))})


def _whole(extent: int) -> int:
    return -(-extent // _MULTIPLE) * _MULTIPLE


def plan_in_blocks(problem: GemmProblem, device: DeviceInfo, plan_of: Callable[[GemmProblem, DeviceInfo], Plan]) -> Plan | None:
    """A plan whose workspace is within the device's limit: that of the whole product, or of blocks of C.

    Parameters
    ----------
    problem : GemmProblem
        What to compute.
    device : DeviceInfo
        Where; its ``workspace_limit`` is the most that a plan may ask for.
    plan_of : callable
        Plans a product, or a block of it.

    Returns
    -------
    Plan or None
        ``None`` if even small blocks need more.
    """
    whole = plan_of(problem, device)
    limit = device.workspace_limit
    if limit is None or whole.workspace_bytes <= limit:
        return whole
    blocks = _Blocks(problem.batch[0] if problem.batch else 1, problem.m, problem.n).smaller()
    while blocks is not None:
        if plan_of(_block(problem, blocks, (0, 0, 0))[0], device).workspace_bytes <= limit:
            joined = _joined(problem, device, plan_of, blocks, whole.workspace_bytes)
            if joined.workspace_bytes <= limit:                # smaller blocks at the ends may need room for sums that they share
                return joined
        blocks = blocks.smaller()
    return None


def _joined(problem: GemmProblem, device: DeviceInfo, plan_of: Callable[[GemmProblem, DeviceInfo], Plan], blocks: _Blocks,
            needed: int) -> Plan:
    """The launches of all blocks; the first of each waits until the block before has ended."""
    starts = list(_starts(problem, blocks))
    launches: list[Launch] = []
    plans = []
    for start in starts:
        part, places = _block(problem, blocks, start)
        plans.append(plan_of(part, device))
        launches += (with_roles(launch, places) for launch in plans[-1].launches)
    first = plans[0]
    extents = f"{min(blocks.m, problem.m)} x {min(blocks.n, problem.n)}"
    reason = (f"{first.reason}; in {len(starts)} blocks of {extents}, as a workspace of {needed} bytes is over the limit of "
              f"{device.workspace_limit}")
    return Plan(problem, device, first.family, first.config, tuple(launches), max(plan.workspace_bytes for plan in plans), reason,
                first.facts)


def _starts(p: GemmProblem, blocks: _Blocks) -> Iterator[tuple[int, int, int]]:
    """Where blocks begin: matrix, row and column."""
    matrices = p.batch[0] if p.batch else 1
    return product(range(0, matrices, blocks.matrices), range(0, p.m, blocks.m), range(0, p.n, blocks.n))


def _block(p: GemmProblem, blocks: _Blocks, start: tuple[int, int, int]) -> tuple[GemmProblem, dict[Role, tuple[Role, int]]]:
    """The product of a block, and from which byte on of each role's memory."""
    matrix, row, column = start
    places = {}

    def part(role: Role, x: Operand, *along: int) -> Operand:
        steps = [i * s for i, s in zip(along, x.strides, strict=True)]
        if p.batch:
            steps.append(matrix * x.batch_strides[0])
        offset = sum(steps) * dtype(x.dtype).bytes
        places[role] = role, offset
        return replace(x, alignment=min(x.alignment, offset & -offset)) if offset else x

    a, b, c = part("a", p.a, row, 0), part("b", p.b, column, 0), part("c", p.c, row, column)
    fusion = p.fusion
    if fusion is not None:
        operands, outputs = (tuple((name, part(epilogue_role(name), x, row, column)) for name, x in matrices)
                             for matrices in (fusion.operands, fusion.outputs))
        fusion = replace(fusion, operands=operands, outputs=outputs)
    batch = (min(blocks.matrices, p.batch[0] - matrix), *p.batch[1:]) if p.batch else ()
    return replace(p, m=min(blocks.m, p.m - row), n=min(blocks.n, p.n - column), a=a, b=b, c=c, batch=batch, fusion=fusion), places
