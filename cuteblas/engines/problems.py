"""From arrays to the kernels' terms: a product or a copy of memory as a frozen problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from .._dtypes import element_of
from ..planning.problem import CopyProblem, Fusion, GemmProblem, Operand, ScalarKind
from .dispatch import NOTHING
from .memory import Ints, Memory, new_memory, overlap, overlaps_itself

if TYPE_CHECKING:
    from ..codegen.epilogue import EpilogueGraph

__all__ = ["Staged", "copy_problem", "folded_problem", "has_kernels", "in_place_problem", "matrix",
           "readable", "writable"]

# The widest word that kernels move, in bytes.
_WORD = 16


def has_kernels(dtype: np.dtype) -> bool:
    row = element_of(dtype)
    return row is not None and row.is_multiplied and row.package == "numpy"


@dataclass(frozen=True)
class Staged:
    """An operand as kernels see it, or a copy for a reason; a copy's address is not yet known."""

    memory: Memory
    reason: str | None = None


def _unfit(x: Memory, dtype: np.dtype) -> str | None:
    if x.dtype != dtype:
        return f"is {x.dtype}, computed in {dtype}"
    return None if x.whole_elements else "elements are not aligned to their size"


def readable(x: Memory, dtype: np.dtype) -> Staged:
    """An input as kernels of that type can read it."""
    reason = _unfit(x, dtype)
    return Staged(x if reason is None else new_memory(replace(x, dtype=dtype), "K"), reason)


def writable(out: Memory, inputs: Iterable[Staged], dtype: np.dtype) -> Staged:
    """An output as kernels of that type can write it while they read the inputs."""
    reason = _unfit(out, dtype)
    if reason is None and any(x.reason is None and overlap(out, x.memory) for x in inputs):
        reason = "shares memory with an input"
    if reason is None and overlaps_itself(out):
        reason = "shares memory with itself"
    return Staged(out if reason is None else new_memory(replace(out, dtype=dtype), "C"), reason)


def matrix(x: Memory, core: tuple[int | None, int | None], batch: Ints) -> Operand:
    """The stack whose rows and columns are the axes ``core`` (``None``: a vector lacks it); modes
    of extent 1 get stride 0."""
    steps = [stride // x.dtype.itemsize if extent > 1 else 0
             for stride, extent in zip(x.strides, x.shape, strict=True)]
    rows, columns = (0 if axis is None else steps[axis] for axis in core)
    rest = [step for axis, step in enumerate(steps) if axis not in core]
    return Operand(x.dtype.name, (rows, columns), (0,) * (len(batch) - len(rest)) + tuple(rest),
                   alignment=x.alignment)


def folded_problem(extents: tuple[int, int, int], batch: Ints, a: Operand, b: Operand,
                   c: Operand, *, graph: EpilogueGraph | None = None,
                   operands: Mapping[str, Operand] = NOTHING,
                   outputs: Mapping[str, Operand] = NOTHING, alpha: ScalarKind = "one",
                   beta: ScalarKind = "zero", precision: str = "auto", variant: str | None = None,
                   compute: str | None = None) -> GemmProblem:
    """The problem of A (m, k) B (k, n) into C (m, n), with as few batch modes as possible."""
    # Batch modes of extent 1 are dropped, those that are one for every operand joined; a mode
    # along which B does not move becomes part of M where strides of A, C and all over C allow it,
    # likewise of A and N.
    over_c = [c, *operands.values(), *outputs.values()]
    # an extent, then strides: in A or B, and over C
    rows: Ints = extents[0], a.strides[0], *(x.strides[0] for x in over_c)
    columns: Ints = extents[1], b.strides[1], *(x.strides[1] for x in over_c)
    modes: list[Ints] = []                                  # in A, in B, and over C
    for mode in zip(batch, *(x.batch_strides for x in (a, b, *over_c)), strict=True):
        if modes and (joined := _joined(mode, modes[-1])):
            modes[-1] = joined
        elif mode[0] != 1:
            modes.append(mode)
    for mode in modes[::-1]:
        extent, in_a, in_b, *in_c = mode
        if in_b == 0 and (joined := _joined(rows, (extent, in_a, *in_c))):
            rows = joined
        elif in_a == 0 and (joined := _joined(columns, (extent, in_b, *in_c))):
            columns = joined
        else:
            continue
        modes.remove(mode)

    left, batch_a, batch_b, *batches = (tuple(mode[i] for mode in modes)
                                        for i in range(3 + len(over_c)))
    first, *rest = (replace(x, strides=pair, batch_strides=each)
                    for x, pair, each in zip(over_c, zip(rows[2:], columns[2:], strict=True),
                                             batches, strict=True))
    fusion = None
    if graph is not None:
        named, reads = list(zip((*operands, *outputs), rest, strict=True)), len(operands)
        fusion = Fusion(graph, tuple(named[:reads]), tuple(named[reads:]))
    return GemmProblem(rows[0], columns[0], extents[2],
                       replace(a, strides=(rows[1], a.strides[1]), batch_strides=batch_a),
                       replace(b, strides=(columns[1], b.strides[0]), batch_strides=batch_b), first,
                       left, alpha, beta, precision, variant, compute, fusion)


def _joined(inner: Ints, outer: Ints) -> Ints | None:
    """Two modes, each an extent and strides, as one; ``None`` if the outer one does not go on where
    the inner one ends."""
    extent, *strides = inner
    if extent == 1:
        return outer
    return (extent * outer[0], *strides) if outer[1:] == tuple(s * extent for s in strides) else None


def in_place_problem(x: Memory, out: Memory) -> CopyProblem | None:
    """The problem of an in-place transposition of square matrices, else ``None``."""
    if (x.shape, x.dtype, x.address) != (out.shape, out.dtype, out.address) or overlaps_itself(out):
        return None
    problem = replace(copy_problem(x, out), in_place=True)
    from ..planning.copy.dispatch import square_modes

    return None if square_modes(problem) is None else problem


def copy_problem(src: Memory, dst: Memory, variant: str | None = None) -> CopyProblem:
    """The problem of copying ``src`` into ``dst``, of one shape and item size, without overlap."""
    # Elements move as the largest words that divide addresses, strides and the element, whatever
    # their type and alignment.
    itemsize = src.dtype.itemsize
    modes = [(n, s, d) for n, s, d in zip(src.shape, src.strides, dst.strides, strict=True)
             if n != 1]
    word = gcd(_WORD, itemsize, src.address, dst.address,
               *(stride for mode in modes for stride in mode[1:]))
    modes = [(n, s // word, d // word) for n, s, d in modes]
    if itemsize > word:
        modes.append((itemsize // word, 1, 1))
    shape, src_strides, dst_strides = (tuple(mode[i] for mode in modes) for i in range(3))
    return CopyProblem(shape, src_strides, dst_strides, word, src.alignment, dst.alignment, variant)
