"""Copies between padded allocations that must move every element and touch nothing else."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem, outside

SIZES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def scrambled(shape, item):
    """Random bytes, as an array of elements of a size."""
    count = int(np.prod(shape))
    return np.random.default_rng(count).integers(0, 255, count * item,
                                                 np.uint8).view(SIZES[item]).reshape(shape)


def move(engine, values, axes, *, src_pad=0, dst_pad=0, src_offset=0, dst_offset=0, flip=(),
         variant=None):
    """Copy ``values.transpose(axes)`` between two padded allocations; compare, and see that nothing
    else was written."""
    item = values.itemsize

    def padded(shape, pad, offset):
        strides, at = [0] * len(shape), 1
        for i in reversed(range(len(shape))):
            strides[i] = at
            at = at * shape[i] + (pad if i == len(shape) - 1 else 0)
        return Strided(aligned(offset + at + 1, values.dtype), offset, tuple(shape), tuple(strides))

    src = padded(values.shape, src_pad, src_offset)
    src.view[...] = values
    source = Strided(src.base, src.offset, tuple(values.shape[i] for i in axes),
                     tuple(src.strides[i] for i in axes))
    dst = padded(source.shape, dst_pad, dst_offset)
    for which, mode in flip:
        x = source if which == "src" else dst
        x.offset += (x.shape[mode] - 1) * x.strides[mode]
        x.strides = (*x.strides[:mode], -x.strides[mode], *x.strides[mode + 1:])
    dst.base.view(np.uint8)[:] = 0xA5
    plan = plan_copy(replace(copy_problem(source, dst), variant=variant), engine.device)
    engine.run(plan, src=source, dst=dst)
    assert dst.view.tobytes() == source.view.tobytes()
    assert (dst.base[outside(dst)].view(np.uint8) == 0xA5).all(), "memory outside of the target was written"
    assert item == plan.problem.itemsize
    return plan


def lengths(item, among):
    """Lengths of short rows: of bytes all, of other sizes those around multiples of 16, the ends
    of a range, and every third, so that each length is one of bytes and of another size."""
    turn = item.bit_length() - 2
    return [n for n in among if item == 1 or n % 3 == turn or n % 16 in (15, 0, 1)
            or n in (among[0], among[-1])]


def plan_of_matrix(item, rows, columns, **options):
    """The plan of the transpose of a dense matrix of ``rows`` x ``columns``."""
    return plan_copy(CopyProblem((columns, rows), (1, columns), (rows, 1), item, **options), H200)


def moved_by(kind, engine, shape, item, axes=(1, 0), **options):
    """:func:`move` random bytes, by a plan that is certainly of this kind."""
    plan = move(engine, scrambled(shape, item), axes, **options)
    assert isinstance(plan.config, kind), plan.config
    return plan


def counted(plan, **operands):
    """What the emulator counts of every access of a plan."""
    from cuteblas import emulator

    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    for launch in plan.launches:
        memory = {role: emulator.pointer(x.view) for role, x in operands.items()}
        values = [q.value if q.role is None else memory[q.role] + q.offset if q.tensor_map is None
                  else (q.tensor_map, memory[q.role] + q.offset) for q in launch.arguments]
        yield from emulator.compile(launch.kernel).launch(launch.grid, values, count=True)


def transactions(plan, **operands):
    """The same for every warp: per request, (space, write) -> (transactions, fewest possible)."""
    found = {}
    for access in counted(plan, **operands):
        most, least = found.get((access.space, access.write), (0, 0))
        found[access.space, access.write] = (max(most, access.transactions / access.requests),
                                             max(least, access.ideal / access.requests))
    return found


def check_counts(extents, item, variant):
    """Compare what the plan of a transpose counted in one access of one warp with what the emulator
    counts in all of them."""
    rows, columns = extents
    src = Strided(aligned(rows * columns, SIZES[item]), 0, (columns, rows), (1, columns))
    dst = Strided(aligned(rows * columns, SIZES[item]), 0, (columns, rows), (rows, 1))
    plan = plan_copy(replace(copy_problem(src, dst), variant=variant), H200)
    promised = {}
    for what, text in plan.facts.items():
        numbers = re.search(r"(\d+) (?:wavefronts|sectors) of at least (\d+)", text)
        if numbers is not None:
            space, verb, _ = what.split()
            promised[space, verb == "store"] = int(numbers[1]), int(numbers[2])
    assert promised == transactions(plan, src=src, dst=dst)
