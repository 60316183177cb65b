"""Modes that several tensors share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from .problem import Modes

__all__ = ["Mode", "merged"]


@dataclass(frozen=True)
class Mode:
    """One mode of a permutation: extent, and strides in the source and in the target."""

    extent: int
    src: int
    dst: int

    @property
    def strides(self) -> tuple[int, int]:
        """In the source, and in the target."""
        return self.src, self.dst


def merged(modes: Modes) -> Modes:
    """The same group with as few modes as possible: without extents of 1, and pairs that are one
    mode in all tensors merged.

    Parameters
    ----------
    modes : tuple
        A mode is its extent, followed by its stride in each tensor.

    Returns
    -------
    tuple
        At least one mode; of a group without modes, or of extents of 1, it is ``(1, 0, 0)``.
    """
    def continues(inner: tuple[int, ...], outer: tuple[int, ...]) -> bool:
        return all(o == i * inner[0] for i, o in zip(inner[1:], outer[1:], strict=True))

    left = [mode for mode in modes if mode[0] != 1]
    while pair := next((p for p in permutations(left, 2) if continues(*p)), None):
        inner, outer = pair
        left.remove(inner)
        left.remove(outer)
        left.append((inner[0] * outer[0], *inner[1:]))
    return tuple(left) or ((1, *(0 for _ in (modes[0][1:] if modes else range(2)))),)
