"""The products and copies that ``calibrate`` measures; what each is follows from its name."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from ..engines.memory import Memory, contiguous_strides
from ..planning.problem import CopyProblem, GemmProblem, Operand
from .explain import shapes
from .permutations import Permutation, permutation

__all__ = ["Sample", "copied", "product", "sample_named", "usual_samples"]

_PRODUCT = re.compile(r"(\w+) (?:(\d+)x)?(\d+)x(\d+)x(\d+) ([NT]{3})(?: by (\w+))?")
_COPY = re.compile(r"(\w+) (\S+)(?: of rows of (\d+))?(?: with axis (\d+) reversed)?")


class Sample(NamedTuple):
    """A problem to measure: its name, the problem, the type of its elements and the bytes before
    the first ones."""

    name: str
    problem: GemmProblem | CopyProblem
    dtype: str
    offset: int = 0


def usual_samples() -> list[Sample]:
    """Random problems of all kinds in turns, so that whenever time runs out there are some of each.
    ``conformance/bench/samples.py`` drew them."""
    names = files("cuteblas.cli").joinpath("problems.txt").read_text("utf-8")
    return [sample_named(name) for name in names.splitlines()]


def sample_named(name: str) -> Sample:
    """The problem of a name: ``"float32 8x64x32x16 NTN by ieee"``, ``"int8 64x12:1,0 of rows of
    14"``."""
    if found := _PRODUCT.fullmatch(name):
        element, batch, m, n, k, orders, precision = found.groups()
        return product(element, int(m), int(n), int(k), (int(batch),) if batch else (), orders,
                       precision or "auto")
    if (found := _COPY.fullmatch(name)) is None:
        raise ValueError(f"{name!r} is not a problem")
    element, text, row, axis = found.groups()
    ((extents, axes),) = shapes(text)
    return copied(element, replace(permutation(extents, axes),
                                   beyond=int(row) - extents[-1] if row else 0,
                                   backwards=int(axis) if axis else None))


def product(
    name: str, m: int, n: int, k: int, batch: tuple[int, ...], orders: str, precision: str = "auto"
) -> Sample:
    """A product of operands, and with a result, in orders: ``N`` where rows are contiguous, ``T``
    where columns are."""

    def operand(rows: int, columns: int, order: str) -> Operand:
        return Operand(name, (columns, 1) if order == "N" else (1, rows),
                       (rows * columns,) * len(batch))

    # B is (N, K): its rows are contiguous along N where those of NumPy's K x N are.
    a, b, c = operand(m, k, orders[0]), operand(n, k, "T" if orders[1] == "N"
                                                else "N"), operand(m, n, orders[2])
    times, by = f"{batch[0]}x" if batch else "", "" if precision == "auto" else f" by {precision}"
    return Sample(f"{name} {times}{m}x{n}x{k} {orders}{by}",
                  GemmProblem(m, n, k, a, b, c, batch, precision=precision), name)


def copied(name: str, moved: Permutation) -> Sample:
    """A permutation of axes that is written out in C order."""
    memory = np.empty(moved.memory(), name)
    x = moved.of(memory)
    strides, target = (tuple(s // x.itemsize for s in y)
                       for y in (x.strides, contiguous_strides(x.shape, x.itemsize)))
    offset = x.ctypes.data - memory.ctypes.data
    alignment = Memory(x.shape, x.strides, x.dtype, offset).alignment
    return Sample(f"{name} {moved}",
                  CopyProblem(x.shape, strides, target, x.itemsize, alignment), name, offset)
