"""Problems by their names: shapes, permutations of axes, products and copies to measure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ..engines.memory import Memory, contiguous_strides
from ..planning.problem import CopyProblem, GemmProblem, Operand

_MOST_DIGITS = 19
_EXTENTS = r"\d+(?:\s*[x\u00d7X*,]\s*\d+)*"
_SHAPE = re.compile(
    rf"(\(\s*(?:{_EXTENTS})?\s*,?\s*\)|{_EXTENTS})(?::(inplace|\d+(?:,\d+)*))?(?![\w:])"
)
_PRODUCT = re.compile(r"(\w+) ((?:\d+x){2,3}\d+) ([NT]{3})(?: by (\w+))?")
_COPY = re.compile(r"(\w+) (\S+)(?: of rows of (\d+))?(?: with axis (\d+) reversed)?")


def shapes(text: str) -> list[tuple[tuple[int, ...], str | None]]:
    """The shapes in ``4096x4096``, ``(4096, 4096)`` or ``4096``, each with its colon's rest."""
    found = [(re.findall(r"\d+", extents), axes or None) for extents, axes in _SHAPE.findall(text)]
    if not found or _SHAPE.sub("", text).strip(" \t,@"):
        raise ValueError(f"a shape is written 4096x4096, (4096,4096) or 4096, got {text!r}")
    if (digits := max(len(n) for extents, _axes in found for n in ("", *extents))) > _MOST_DIGITS:
        raise ValueError(f"an extent has at most {_MOST_DIGITS} digits, got one of {digits}")
    return [(tuple(map(int, extents)), axes) for extents, axes in found]


# -- permutations ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Permutation:
    """A permutation of the axes of an array, written out or in place; rows of memory are
    ``beyond`` elements longer, and the axis ``backwards`` is walked so."""

    extents: tuple[int, ...]
    axes: tuple[int, ...] = (1, 0)
    in_place: bool = False
    beyond: int = 0
    backwards: int | None = None

    def __str__(self) -> str:
        how = ":inplace" if self.in_place else "" if self.axes == (1, 0) else f":{','.join(map(str, self.axes))}"
        sliced = f" of rows of {self.extents[-1] + self.beyond}" if self.beyond else ""
        reversed_ = f" with axis {self.backwards} reversed" if self.backwards is not None else ""
        return "x".join(map(str, self.extents)) + how + sliced + reversed_

    def memory(self) -> tuple[int, ...]:
        """Extents of the array of which it is a part."""
        return (*self.extents[:-1], self.extents[-1] + self.beyond)

    def of(self, x: Any) -> Any:
        """The permuted view of an array of the extents of :meth:`memory`."""
        part = x[..., :self.extents[-1]]
        if self.backwards is not None:
            part = np.flip(part, self.backwards)
        return part.transpose(self.axes)


def permutation(extents: tuple[int, ...], axes: str | None) -> Permutation:
    """The permutation after a shape's colon; the last two axes for ``inplace`` or nothing."""
    count = len(extents)
    in_place = axes == "inplace"
    if axes and not in_place:
        order = tuple(map(int, axes.split(",")))
        if sorted(order) != [*range(count)]:
            raise ValueError(f"the axes of a permutation of {extents} are 0 to {count - 1} in some "
                             f"order, got {axes}")
        return Permutation(extents, order)
    if in_place and (count < 2 or extents[-1] != extents[-2]):
        raise ValueError(
            f"a transpose in place needs two equal last extents, got the shape {extents}"
        )
    return Permutation(extents, (*range(count - 2), count - 1, count - 2), in_place)


# -- what calibrate measures -----------------------------------------------------------------------
class Sample(NamedTuple):
    """A problem, the type of its elements, and bytes before the first ones."""

    name: str
    problem: GemmProblem | CopyProblem
    dtype: str
    offset: int = 0


def usual_samples() -> list[Sample]:
    """Random problems of all kinds in turns; ``conformance/bench/samples.py`` drew them."""
    names = files(__package__).joinpath("problems.txt").read_text("utf-8")
    return [sample_named(name) for name in names.splitlines()]


def sample_named(name: str) -> Sample:
    """The problem of "float32 8x64x32x16 NTN by ieee" or "int8 64x12:1,0 of rows of 14"."""
    if found := _PRODUCT.fullmatch(name):
        element, extents, orders, precision = found.groups()
        *batch, m, n, k = map(int, extents.split("x"))
        return product(element, m, n, k, tuple(batch), orders, precision or "auto")
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
    """A product; ``orders`` has ``N`` where rows are contiguous, ``T`` where columns are."""

    def operand(rows: int, columns: int, order: str) -> Operand:
        return Operand(name, (columns, 1) if order == "N" else (1, rows),
                       (rows * columns,) * len(batch))

    # B is (N, K): its rows are contiguous along N where those of NumPy's K x N are.
    a, b = operand(m, k, orders[0]), operand(n, k, "NT"[orders[1] == "N"])
    c = operand(m, n, orders[2])
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
