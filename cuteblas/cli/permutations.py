"""Permutations of axes that ``bench transpose`` and ``calibrate`` measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Permutation", "permutation"]


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
        part = [slice(None, None, -1 if axis == self.backwards else 1)
                for axis in range(len(self.extents))]
        return x[..., :self.extents[-1]][tuple(part)].transpose(self.axes)


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
