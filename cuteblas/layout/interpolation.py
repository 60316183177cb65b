"""Layouts through given points: the layout that has given values at given indices, if any.

For a fixed shape, strides solve linear integer equations. Shapes of primes suffice, since ``(a,
b):(d, a*d)`` is ``a*b:d``; the search goes from the fastest mode on and abandons a prefix whose
equations contradict each other, so a failure is a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .core import Layout


@dataclass(frozen=True)
class _Strides:
    """All integer solutions of linear equations: ``origin`` + combinations of ``directions``."""

    origin: tuple[int, ...] = ()
    directions: tuple[tuple[int, ...], ...] = ()

    def with_mode(self) -> _Strides:
        n = len(self.origin)
        return _Strides((*self.origin, 0), (*((*d, 0) for d in self.directions), (0,) * n + (1,)))

    def subject_to(self, digits: Sequence[int], value: int) -> _Strides | None:
        """The solutions for which ``sum(digits * strides) == value``, or None if there is none."""
        directions = self.directions
        # Euclid's algorithm, until the sum changes along one direction alone
        while len(moving := [d for d in directions if _dot(digits, d)]) > 1:
            least = min(moving, key=lambda d: abs(_dot(digits, d)))
            directions = tuple(d if d is least else
                               _plus(d, -(_dot(digits, d) // _dot(digits, least)), least)
                               for d in directions)
        rest = value - _dot(digits, self.origin)
        if not moving:
            return self if rest == 0 else None
        steps, beyond = divmod(rest, _dot(digits, moving[0]))
        return None if beyond else _Strides(_plus(self.origin, steps, moving[0]),
                                            tuple(d for d in directions if d is not moving[0]))


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _plus(a: Sequence[int], times: int, b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + times * y for x, y in zip(a, b, strict=True))


def layout_through(points: dict[int, int]) -> Layout | None:
    """The flat layout with ``layout(x) == points[x]`` for every ``x``, or None if there is none."""
    if points.get(0, 0) != 0:
        return None
    xs = sorted(points)
    found = _search([()] * len(xs), xs, [points[x] for x in xs], (), _Strides())
    if found is None:
        return None
    shape, strides = found
    return Layout(shape, strides) if len(shape) > 1 else Layout(shape[0], strides[0])


def _search(digits: list[tuple[int, ...]], rest: list[int], values: list[int],
            shape: tuple[int, ...], strides: _Strides) -> tuple[tuple[int, ...],
                                                                tuple[int, ...]] | None:
    """Close the shape with ``rest`` as the last digit, or try every prime as the next extent."""
    last = [(*d, y) for d, y in zip(digits, rest, strict=True)]
    closed = _restrict(strides.with_mode(), last, [0] * len(rest), values)
    if closed is not None:
        return (*shape, max(rest, default=0) + 1), closed.origin
    for p in _primes(max(rest, default=0)):
        longer = [(*d, y % p) for d, y in zip(digits, rest, strict=True)]
        slower = [y // p for y in rest]
        narrowed = _restrict(strides.with_mode(), longer, slower, values)
        if narrowed is not None and (found := _search(longer, slower, values, (*shape, p),
                                                      narrowed)) is not None:
            return found
    return None


def _restrict(strides: _Strides, digits: list[tuple[int, ...]], slower: list[int],
              values: list[int]) -> _Strides | None:
    """The strides for which points with the same ``slower`` digits differ as their values do."""
    first: dict[int, tuple[tuple[int, ...], int]] = {0: ((0,) * len(strides.origin), 0)}
    for d, y, v in zip(digits, slower, values, strict=True):
        base, value = first.setdefault(y, (d, v))
        narrowed = strides.subject_to(_plus(d, -1, base), v - value)
        if narrowed is None:
            return None
        strides = narrowed
    return strides


def _primes(top: int) -> Iterator[int]:
    return (p for p in range(2, top + 1) if all(p % q for q in range(2, int(p**0.5) + 1)))
