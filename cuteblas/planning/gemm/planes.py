"""Operands of ``gemm_split``: how blocks read their rows, and their planes in the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from ..._dtypes import dtype
from ...codegen.signature import View
from ...codegen.tma import TmaBox
from ...kernels.common import parts_of
from ...kernels.split.planes import RECORD, UNROLL, SplitFormat, SplitOperand
from ..operands import VECTOR_BYTES, Side, compact, mapped, power_of_two, row_pitch, sides
from ..plan import Argument, Workspace
from ..problem import DeviceInfo, GemmProblem, Ints

ROW_MULTIPLE = 8
"""Elements of rows of planes come in multiples of this: strides of tensor maps are in 16 bytes."""

_ALONG = ((512, 2), (512, 1))  # threads of a block that splits rows, and blocks that share a
                               # multiprocessor: rows along K,
_ACROSS = ((256, 3), (256, 2), (256, 1))      # rows across K
_CLUSTERS = (1, 2, 4, 8)  # blocks that share rows across K
_AGAIN = 0.3              # of long rows, the part that may be read twice so that two blocks share a
                          # multiprocessor
_RESERVED = 1 << 10       # bytes of shared memory that the driver takes of each block's
_MOST_ROWS = 16           # threads along rows that are contiguous
_BYTES_ACROSS = 128       # of each k that a block reads where rows are across K; half as many of
                          # few rows
_MANY_ROWS = 768


@dataclass(frozen=True)
class Planes:
    """An operand in the workspace, split. ``extents`` and ``strides`` are those of planes, in
    elements: rows, K, plane, then batch modes, innermost first; ``said`` are ``records`` of its
    rows; ``span`` is the largest distance between elements of operand or planes."""

    config: SplitOperand
    values: Mapping[str, Any]
    blocks: int
    records: int
    extents: Ints
    strides: Ints
    row_strides: Ints
    exponents: Argument
    said: Argument
    planes: Argument
    span: int

    @classmethod
    def within(cls, workspace: Workspace, form: SplitFormat, side: Side,
               config: SplitOperand) -> Planes:
        rows, depth, lengths = config.copies * side.rows, config.parts * side.k, side.extents
        along, across = (depth, rows) if config.k_major else (rows, depth)
        pitch = row_pitch(along, ROW_MULTIPLE)
        plane = pitch * across
        batch_strides, elements = compact(lengths, plane * form.planes)
        records = -(-side.rows // config.tile[0]) * prod(lengths)
        exponents, said, planes = map(workspace.take, (
            4 * side.all_rows, 4 * RECORD.size * records, elements * dtype(form.element).bytes))
        values = {**side.reading, "P": View(planes, (pitch, plane, 1), batch_strides),
                  "R": View(exponents, (1, 0), compact(lengths, side.rows)[0]),
                  "S": View(said, (1,))}
        strides = (pitch, 1, plane) if config.k_major else (1, pitch, plane)
        return cls(config, values, records * config.cluster, records,
                   (rows, depth, form.planes, *lengths), (*strides, *batch_strides),
                   side.row_strides, exponents, said, planes, max(side.span, elements))

    def done(self, config: SplitOperand) -> Planes:
        """The planes for a launch that finds the operand split already."""
        return replace(self, config=config, blocks=0, values={**self.values, "M": 0})

    def multiplied(self, name: str, box: TmaBox) -> dict[str, Any]:
        """What the kernel takes that multiplies them as A or B."""
        exponents = View(self.exponents, (1, 0) if name == "A" else (0, 1), self.row_strides)
        return {name: mapped(self.planes, box.map(self.extents, self.strides)),
                f"R{name}": exponents, f"S{name}": self.said, f"S{name}_count": self.records}


class Readings(NamedTuple):
    """How both operands are read, and how many blocks share a multiprocessor."""

    operands: tuple[SplitOperand, SplitOperand]
    resident: int


@lru_cache(maxsize=256)
def readings_of(p: GemmProblem, device: DeviceInfo) -> Readings:
    """How blocks look at rows of A and of B twice; complex rows of B are doubled."""
    # The more share a multiprocessor, the better some load while others split; fewer have more
    # shared memory: what does not fit is read again. With rows across K, the other operand uses it
    # too.
    most = device.shared_bytes_per_block
    operands = [SplitOperand(side.access, side.operand.dtype, len(side.modes),
                             run=VECTOR_BYTES // side.operand.item, doubled=doubled)
                for side, doubled in zip(sides(p), (False, parts_of(p.a.dtype) == 2), strict=True)]
    along = all(x.k_major for x in operands)
    for threads, resident in _ALONG if along else _ACROSS:
        limit = (most + _RESERVED) // resident - _RESERVED
        read = partial(_reading, k=p.k, threads=threads, limit=limit, short=along and resident > 1)
        alone = [read(x, rows, clusters=_CLUSTERS)
                 for x, rows in zip(operands, p.shape, strict=True)]
        size = max(x.cluster for x in alone)               # a launch has clusters of one size
        a, b = (found if found.cluster in (1, size) else read(x, rows, clusters=(size,))
                for found, x, rows in zip(alone, operands, p.shape, strict=True))
        if all(x.slots == 0 or p.k * (1 - _AGAIN * x.k_major) <= x.slots * x.tile[1] * x.cluster
               for x in (a, b)):
            break
    return Readings((a, b), resident)


def _reading(operand: SplitOperand, rows: int, *, k: int, threads: int, limit: int, short: bool,
             clusters: Ints) -> SplitOperand:
    """An operand in whole rows: threads along rows and K, and how much is kept."""
    # Short rows stay in registers if they may, through shared memory where they cannot be read as
    # whole runs. Others are in shared memory, at most ``limit`` bytes of a block.
    run, item = operand.run, dtype(operand.element).bytes
    if not operand.k_major:
        return _across(operand, rows, k, threads, limit, clusters)
    along = _largest_power(threads * UNROLL * run // k)
    if short and along >= 1:
        along = min(along, _MOST_ROWS)
        return replace(operand, threads=(along, threads // along), slots=int(operand.x.width < run))
    along = min(_MOST_ROWS, max(1, _largest_power(limit // (item * k))))
    return _kept(replace(operand, threads=(along, threads // along)), k, limit)


def _across(operand: SplitOperand, rows: int, k: int, threads: int, limit: int,
            clusters: Ints) -> SplitOperand:
    """An operand with rows across K: few blocks that can keep them, two for few rows."""
    few = rows < _MANY_ROWS
    lanes = _BYTES_ACROSS // (operand.run * dtype(operand.element).bytes) >> few
    for cluster in clusters:
        found = replace(operand, threads=(lanes, threads // lanes), cluster=cluster)
        if k <= found.tile[1] * cluster:
            return replace(found, slots=int(operand.x.width < operand.run))
        found = _kept(found, k, limit)
        if cluster > few and k <= found.slots * found.tile[1] * cluster:
            break
    return found


def _kept(operand: SplitOperand, k: int, limit: int) -> SplitOperand:
    """An operand with as many slots as there are steps, as far as they fit."""
    fixed, step = operand.shared_bytes, replace(operand,
                                                slots=2).shared_bytes - operand.shared_bytes
    # few different kernels
    wanted = power_of_two(-(-k // (operand.tile[1] * operand.cluster)))
    return replace(operand, slots=max(2, min((limit - fixed) // (step // 2), wanted)))


def _largest_power(limit: int) -> int:
    return 1 << limit.bit_length() >> 1
