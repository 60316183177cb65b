"""Random choices, and arrays in memories laid out in every way."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np

from .calls import Argument, Call, Code, Holder, Memory, Operand, View

__all__ = ["Building", "Draw", "Pools", "reach"]

T = TypeVar("T")


@dataclass(frozen=True)
class Pools:
    """What calls are made from on a backend.

    Attributes
    ----------
    dtypes : mapping
        Weights of element types.
    odd_dtypes : sequence
        Rare ones: without a kernel, or in another byte order.
    extents : mapping
        Weights of extents.
    work : int
        The most multiplications of a call, about.
    layouts : mapping
        Weights of the memory layouts of arrays.
    backend : str
        On CuPy's arrays ("host", "cuda") there are no lists among the arguments.
    """

    dtypes: Mapping[str, float]
    odd_dtypes: Sequence[str]
    extents: Mapping[int, float]
    work: int
    layouts: Mapping[str, float]
    backend: str

    @property
    def on_gpu(self) -> bool:
        """Whether arrays are CuPy's."""
        return self.backend in ("host", "cuda")


class Draw:
    """A source of random choices."""

    def __init__(self, seed: int, pools: Pools):
        self.random = random.Random(seed)
        self.pools = pools

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def choice(self, sequence: Sequence[T]) -> T:
        return sequence[self.random.randrange(len(sequence))]

    def weighted(self, weights: Mapping[T, float]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return self.random.randint(low, high)

    def seed(self) -> int:
        return self.random.randrange(2**31)

    def extent(self) -> int:
        return self.weighted(self.pools.extents)

    def extents(self, count: int) -> tuple[int, ...]:
        """Extents whose product is not more than the work of a call."""
        found = [self.extent() for _ in range(count)]
        while prod(max(n, 1) for n in found) > self.pools.work:
            i = max(range(count), key=found.__getitem__)
            found[i] = min(self.extent(), max(found[i] // 2, 1))
        return tuple(found)

    def dtype(self) -> str:
        if self.chance(0.03):
            return self.choice(self.pools.odd_dtypes)
        return self.weighted(self.pools.dtypes)

    def fill(self) -> str:
        return self.weighted({"small": 4, "normal": 4, "bits": 2, "ones": 0.3, "zeros": 0.3,
                              "special": 1.2, "extreme": 0.8, "tiny": 0.3})


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Bytes below the first element's address and from there on that an array occupies."""
    if 0 in shape:
        return 0, 0
    ways = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return -sum(min(way, 0) for way in ways), sum(max(way, 0) for way in ways) + itemsize


class Building:
    """A call under construction: memories and views so far."""

    def __init__(self, draw: Draw, holder: Holder = "plain"):
        self.draw = draw
        self.holder = holder
        self.memories: list[Memory] = []
        self.views: list[View] = []
        self.base = draw.dtype()            # most operands of a call have one type
        self.fill = draw.fill()

    def call(self, function: str, arguments: Sequence[Argument],
             keywords: Mapping[str, Argument] | None = None) -> Call:
        return Call(function, tuple(arguments), tuple((keywords or {}).items()), tuple(self.views),
                    tuple(self.memories))

    def dtype(self) -> str:
        return self.base if self.draw.chance(0.85) else self.draw.dtype()

    def array(self, shape: Sequence[int], dtype: str | None = None, *, layout: str | None = None,
              fill: str | None = None, holder: Holder | None = None,
              alone: bool = False) -> Operand:
        """An operand; now and then in the memory of another one."""
        dtype = self.dtype() if dtype is None else dtype
        holder = self.holder if holder is None else holder
        shape = tuple(shape)
        if self.views and not alone and self.draw.chance(0.08):
            return self._placed(self._alike(shape, dtype, holder))
        strides, shift = self._laid_out(shape, np.dtype(dtype).itemsize,
                                        self._layout(dtype, layout))
        fill = fill or (self.fill if self.draw.chance(0.8) else self.draw.fill())
        return self._placed(self._alone(shape, dtype, strides, shift, fill, holder))

    def out(self, shape: Sequence[int], dtype: str, *, layout: str | None = None) -> Operand:
        """An array to write to, whose elements are distinct places; it may overlap operands in any
        way."""
        shape = tuple(shape)
        itemsize = np.dtype(dtype).itemsize
        writeable = not self.draw.chance(0.01)
        kind = self._layout(dtype, layout)
        strides, shift = self._laid_out(shape, itemsize, "C" if kind == "broadcast" else kind)
        others = [view for view in self.views if _refers(view.dtype) == _refers(dtype)]
        if others and self.draw.chance(0.25):
            other = self.draw.choice(others)
            if other.shape == shape and other.dtype == dtype and self.draw.chance(0.5) and _distinct(other):
                return self._placed(replace(other, writeable=writeable, holder=self.holder))
            below, above = reach(shape, strides, itemsize)
            offset = max(other.offset + self.draw.integer(-2, 3) * itemsize - below
                         * self.draw.integer(0, 1), below)
            self._extend(other.memory, offset + above)
            return self._placed(View(other.memory, dtype, shape, strides, offset, writeable,
                                     self.holder))
        return self._placed(replace(self._alone(shape, dtype, strides, shift, "ones", self.holder),
                                    writeable=writeable))

    def operand(self, shape: Sequence[int], dtype: str | None = None) -> Argument:
        """An array, or now and then the list of its elements, or a number in place of an array of
        no dimensions."""
        if not shape and self.draw.chance(0.5):
            return self.number()
        if not self.draw.pools.on_gpu and self.draw.chance(0.02) and prod(shape) <= 24:
            return Code(repr(np.array([self.draw.integer(0, 3)
                                       for _ in range(prod(shape))]).reshape(shape).tolist()))
        return self.array(shape, dtype)

    def number(self) -> Code:
        """A scalar of Python or NumPy."""
        return Code(self.draw.choice(("2", "-1", "0", "True", "0.5", "1.5", "-2.0", "1j", "(2-1j)",
                                      "np.float32(1.5)", "np.int8(3)", "np.float64(0.1)",
                                      "np.complex64(1+2j)", "np.float16(0.5)", "float('inf')",
                                      "float('nan')", "3", "10**12", "1e300", "np.bool_(True)",
                                      "-0.0")))

    def view(self, operand: Operand) -> View:
        return self.views[operand.view]

    def room(self, view: View) -> None:
        """Make the memory of a view as large as it needs."""
        self._extend(view.memory, view.offset + max(reach(view.shape, view.strides,
                                                          np.dtype(view.dtype).itemsize)[1], 1))

    def _placed(self, view: View) -> Operand:
        self.views.append(view)
        return Operand(len(self.views) - 1)

    def _alone(self, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...], shift: int,
               fill: str, holder: Holder) -> View:
        itemsize = np.dtype(dtype).itemsize
        below, above = reach(shape, strides, itemsize)
        self.memories.append(Memory(dtype, 0, fill, self.draw.seed()))
        self._extend(len(self.memories) - 1, below + shift + above)
        return View(len(self.memories) - 1, dtype, shape, strides, below + shift, True, holder)

    def _alike(self, shape: tuple[int, ...], dtype: str, holder: Holder) -> View:
        """A view in the memory of another: the same elements, or some elements further on."""
        other = self.draw.choice(self.views)
        if not {np.dtype(dtype).kind,
                np.dtype(other.dtype).kind} <= set("iufc") or self.draw.chance(0.8):
            dtype = other.dtype     # bytes other than 0 and 1 are not bools, and numbers no objects
        if other.shape == shape and other.dtype == dtype and self.draw.chance(0.5):
            return replace(other, holder=holder, writeable=True)
        if other.shape == shape[::-1] and other.dtype == dtype and self.draw.chance(0.5):
            return replace(other, shape=shape, strides=other.strides[::-1], holder=holder,
                           writeable=True)
        itemsize = np.dtype(dtype).itemsize
        strides, _ = self._laid_out(shape, itemsize, self.draw.choice(("C", "F", "C")))
        below, above = reach(shape, strides, itemsize)
        offset = max(other.offset + self.draw.integer(-1, 2) * itemsize, below)
        self._extend(other.memory, offset + above)
        return View(other.memory, dtype, shape, strides, offset, True, holder)

    def _extend(self, memory: int, nbytes: int) -> None:
        grown = self.memories[memory]
        itemsize = np.dtype(grown.dtype).itemsize
        self.memories[memory] = replace(grown, count=max(grown.count, -(-nbytes // itemsize)))

    def _layout(self, dtype: str, layout: str | None) -> str:
        """The way asked for or a random one; references to objects are aligned."""
        layout = layout or self.draw.weighted(self.draw.pools.layouts)
        return "sliced" if _refers(dtype) and layout in ("odd", "misaligned") else layout

    def _laid_out(self, shape: tuple[int, ...], itemsize: int,
                  layout: str) -> tuple[tuple[int, ...], int]:
        """Strides in bytes, and by how many bytes the array begins further on."""
        draw, rank = self.draw, len(shape)
        inner_first = list(range(rank)) if layout == "F" else list(reversed(range(rank)))
        if layout == "permuted" or (layout in ("sliced", "padded", "negative", "misaligned")
                                    and draw.chance(0.3)):
            draw.random.shuffle(inner_first)
        strides = [0] * rank
        step = itemsize
        if layout == "odd":                 # a field of a record: no multiple of the element's size
            step += draw.integer(1, 3)
        for axis in inner_first:
            if layout == "sliced" and draw.chance(0.6):
                step *= draw.choice((2, 3))
            strides[axis] = step
            if layout == "negative" and draw.chance(0.6):
                strides[axis] = -step
            if layout == "broadcast" and draw.chance(0.5):
                strides[axis] = 0
                continue
            step *= max(shape[axis], 1)
            if layout == "padded":
                step += itemsize * draw.choice((1, 1, 4, 8))
        shift = 0
        if layout == "misaligned":
            shift = draw.integer(1, max(itemsize - 1, 1))
        elif draw.chance(0.2):
            shift = itemsize * draw.integer(1, 4)
        return tuple(strides), shift


def _refers(dtype: str) -> bool:
    """Whether elements of a type are references to objects, which no other bytes may stand for."""
    return np.dtype(dtype).hasobject


def _distinct(view: View) -> bool:
    """Whether no two elements of a view share bytes, as far as strides tell."""
    itemsize = np.dtype(view.dtype).itemsize
    step = itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(view.strides, view.shape,
                                                             strict=True)):
        if extent > 1:
            if stride < step:
                return False
            step = stride * (extent - 1) + step
    return True
