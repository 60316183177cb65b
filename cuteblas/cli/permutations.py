"""Permutations of axes that ``bench transpose`` measures: written out, in place, or drawn at
random."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, prod
from random import Random
from typing import Any

__all__ = ["Permutation", "random_permutations"]

_BYTES, _MODES, _LONGEST = (1 << 20, 1 << 28), (2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 14, 20, 26), 300
_SLICED, _REVERSED, _MOST_BEYOND = 0.07, 0.14, 7


@dataclass(frozen=True)
class Permutation:
    """A permutation of the axes of an array, written out or in place.

    Attributes
    ----------
    extents : tuple of int
        Of the array that is moved.
    axes : tuple of int
        As ``numpy.transpose`` takes them.
    in_place : bool
        Whether the array itself is overwritten.
    beyond : int
        Elements by which rows of memory are longer than those of the array, which is C contiguous
        otherwise: it is a slice.
    backwards : int or None
        An axis that is walked backwards.
    """

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


def random_permutations(count: int, seed: int,
                        sizes: dict[str, int]) -> list[tuple[str, Permutation]]:
    """Random permutations of random types, which are given with the bytes of an element: 1 to 256
    MiB, 2 to 26 modes of 1 to 300 elements (of two, as many as there have to be), some of slices,
    some reversed.
    """
    rng = Random(seed)
    found: list[tuple[str, Permutation]] = []
    while len(found) < count:
        dtype = rng.choice(sorted(sizes))
        elements = exp(rng.uniform(*map(log, _BYTES))) / sizes[dtype]
        modes = rng.choice(_MODES)
        if modes >= 14:
            extents = [2] * min(modes, int(log(elements, 2)))
        else:
            weights = [rng.random() ** 1.5 + 0.05 for _ in range(modes)]
            most = _LONGEST if modes > 2 else int(elements)
            extents = [max(1, min(most, round(elements ** (weight / sum(weights)))))
                       for weight in weights]
            while prod(extents) < elements / 1.5 and (short := [n
                                                                for n, extent in enumerate(extents)
                                                                if extent < most]):
                n = rng.choice(short)
                extents[n] = min(most, max(extents[n] + 1, round(extents[n] * 1.3)))
        axes = rng.sample(range(len(extents)), len(extents))
        kind = rng.random()
        if prod(extents) * sizes[dtype] >= _BYTES[0] // 2:
            beyond = rng.randint(1, _MOST_BEYOND) if kind < _SLICED else 0
            backwards = rng.randrange(len(extents)) if _SLICED <= kind < _REVERSED else None
            found.append((dtype, Permutation(tuple(extents), tuple(axes), False, beyond,
                                             backwards)))
    return found
