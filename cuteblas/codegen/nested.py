"""Nested modes seen through flat coordinates: the elements of a tensor contraction's "matrix".

An offset is ``nested((m, k))``, with divisions by run-time extents, too slow for a main loop.
:func:`tabulated` splits it by mode: what depends on static extents alone becomes a stride where it
is provably linear, else an array in registers that is evaluated once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

from ..layout import (
    ArithTuple,
    ComposedLayout,
    E,
    Layout,
    ScaledBasis,
    Tensor,
    make_identity_layout,
    unflatten,
)
from ..layout.symbolic import IntLike, Var, entry, is_static

if TYPE_CHECKING:
    from .builder import KernelBuilder


def by_coordinate(tensor: Tensor, extents: tuple[IntLike, ...]) -> Tensor:
    """View a tensor with nested modes through flat coordinates; a tensor without nested modes stays
    as it is."""
    layout = tensor.layout
    if not any(isinstance(extent, tuple) for extent in layout.shape):
        return tensor
    return Tensor(tensor.engine, ComposedLayout(layout, ArithTuple(*(0 for _ in extents)),
                                                make_identity_layout(extents)))


@dataclass(frozen=True)
class _Sum:
    """``(x, y, ..., linear) -> f(x) + g(y) + ... + linear``, a function for some modes."""

    functions: tuple[Callable[[IntLike], IntLike] | None, ...]

    def __call__(self, coordinate: ArithTuple) -> IntLike:
        *entries, total = coordinate
        for function, x in zip(self.functions, entries, strict=True):
            total = total + function(x) if function is not None else total
        return total

    def __str__(self) -> str:
        return "offset"


def tabulated(k: KernelBuilder, name: str, layout: ComposedLayout) -> ComposedLayout:
    """Evaluate the parts of a layout that are known before a loop, at this place in the kernel."""
    nested: tuple[Layout, ...] = tuple(layout.outer)  # type: ignore[arg-type]
    inner = layout.inner
    linear = len(nested)
    leaves = [_Leaf(s, d) for s, d in inner.pairs]
    functions: list[Callable[[IntLike], IntLike] | None] = [None] * linear
    start: list[IntLike] = [0] * linear
    base: IntLike = 0
    for mode, part in enumerate(nested):
        first = k.let(f"{name}_{mode}", layout.offset[mode])
        along = [leaf for leaf in leaves if isinstance(leaf.stride, ScaledBasis)
                 and leaf.stride.modes == (mode,)]
        if not isinstance(part.shape, tuple):
            base = base + first * part.stride
            for leaf in along:
                leaf.stride = leaf.step * part.stride * E(linear)
            continue
        for leaf in along:
            others = first + sum((Var(f"_{j}") * x.step for j, x in enumerate(along)
                                  if x is not leaf), 0)
            leaf.split_linear_run(part, others, linear)
        along = [leaf for leaf in along if leaf.stride.modes == (mode,)]
        if all(is_static(leaf.extent) for leaf in along):
            table = Layout(tuple(leaf.extent for leaf in along) or 1,
                           tuple(leaf.step for leaf in along) or 0)
            functions[mode] = _table(k, f"{name}_{mode}s", part, first, table)
            for leaf, count in zip(along, accumulate((leaf.extent for leaf in along), mul,
                                                     initial=1), strict=False):
                leaf.stride = count * E(mode)
        else:
            functions[mode], start[mode] = part, first
    offset = ArithTuple(*start, k.let(f"{name}_offset", base))
    shape = unflatten((leaf.full_shape for leaf in leaves), inner.shape)
    stride = unflatten((leaf.full_stride for leaf in leaves), inner.shape)
    return ComposedLayout(_Sum(tuple(functions)), offset, Layout(shape, stride))


class _Leaf:
    """A leaf of the inner layout, perhaps split into a linear run and the rest."""

    def __init__(self, extent: IntLike, stride: Any):
        self.extent, self.stride = extent, stride
        self.run: tuple[int, ScaledBasis] | None = None

    @property
    def step(self) -> IntLike:
        return self.stride.value

    @property
    def full_shape(self) -> Any:
        return self.extent if self.run is None else (self.run[0], self.extent)

    @property
    def full_stride(self) -> Any:
        return self.stride if self.run is None else (self.run[1], self.stride)

    def split_linear_run(self, part: Layout, others: IntLike, linear: int) -> None:
        """Split off the longest run along which the nested mode provably grows by a constant."""
        if not isinstance(self.extent, int):
            return
        for run in range(self.extent, 1, -1):
            step = _linear_step(part, others + Var("_run") * (run * self.step), run,
                                self.step) if self.extent % run == 0 else None
            if step is not None:
                if run == self.extent:
                    self.stride = step * E(linear)
                else:
                    self.run = run, step * E(linear)
                    self.extent, self.stride = self.extent // run, run * self.stride
                return


def _linear_step(part: Layout, start: IntLike, extent: int, stride: IntLike) -> int | None:
    """The constant by which the nested mode provably grows from ``start`` on, or ``None``."""
    values = [part(start + x * stride) for x in range(extent)]
    steps = {after - before for before, after in pairwise(values)}
    step = steps.pop() if len(steps) == 1 else None
    return step if isinstance(step, int) else None


def _table(k: KernelBuilder, name: str, part: Layout, first: IntLike,
           table: Layout) -> Callable[[IntLike], IntLike]:
    """Write an array of offsets along one mode; return the function from an entry's number."""
    def value(i: IntLike) -> IntLike:
        return part(first + table(i))

    entries = prod(table.flat_shape)
    if entries == 1:
        only = k.let(name, value(0))
        return lambda i: only
    k.array(name, entries, value)
    return lambda i: entry(name, i, value(i))
