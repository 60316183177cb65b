"""The notation of ``einsum``, and its order of products: optimal for few terms, else greedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import inf, prod
from operator import index
from string import ascii_letters
from typing import Any

from ..engines.memory import Ints

_SORTED = "".join(sorted(ascii_letters))        # what the numbers of the interleaved form stand for


@dataclass(frozen=True)
class Subscripts:
    """Subscripts with a letter for each axis, also for those of an ellipsis. An extent is 1 only if
    all axes of the letter have extent 1."""

    terms: tuple[str, ...]
    result: str
    extents: dict[str, int]


def _places_of_operands(arguments: Sequence[Any]) -> slice:
    if arguments and isinstance(arguments[0], str):
        return slice(1, None)
    return slice(0, len(arguments) // 2 * 2, 2)


def operands_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(arguments[_places_of_operands(arguments)])


def with_operands(arguments: Sequence[Any], operands: Iterable[Any]) -> tuple[Any, ...]:
    changed = list(arguments)
    changed[_places_of_operands(arguments)] = operands
    return tuple(changed)


def read(arguments: Sequence[Any], shapes: Sequence[Ints],
         out: Ints | None = None) -> Subscripts | None:
    """The subscripts of a call, or ``None`` if they make no sense; ``out`` may be larger along an
    index whose extent is 1 in all operands."""
    text = text_of(arguments)
    if text is None:
        return None
    text = text.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    named = inputs.split(",")
    if len(named) != len(shapes) or not all(
            c in ascii_letters for term in (*named, result) for c in term.replace("...", "", 1)):
        return None
    unused = "".join(c for c in ascii_letters if c not in text)     # the last ones for ellipses
    terms, longest = [], 0
    for term, shape in zip(named, shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        if not 0 <= hidden <= len(unused) or (hidden and "..." not in term):
            return None
        longest = max(longest, hidden)
        terms.append(term.replace("...", unused[len(unused) - hidden:]))
    ellipsis = unused[len(unused) - longest:]
    if arrow:
        if longest and "..." not in result:
            return None
        result = result.replace("...", ellipsis)
    else:
        letters = inputs.replace(",", "").replace(".", "")
        result = ellipsis + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        return None
    extents = _extents(terms, shapes, (result, out))
    return None if extents is None else Subscripts(tuple(terms), result, extents)


def text_of(arguments: Sequence[Any]) -> str | None:
    """The subscripts of a call, also of the interleaved form; ``None`` if there are none."""
    try:
        if isinstance(arguments[0], str):
            return arguments[0]
        result = "->" + _letters(arguments[-1]) if len(arguments) % 2 else ""
        return ",".join(map(_letters, arguments[1::2])) + result
    except (IndexError, TypeError):
        return None


def _letters(numbers: Any) -> str:
    given = ["..." if i is Ellipsis else index(i) for i in numbers]
    if any(i < 0 for i in given if not isinstance(i, str)):
        raise IndexError
    return "".join(i if isinstance(i, str) else _SORTED[i] for i in given)


def _extents(terms: Sequence[str], shapes: Sequence[Ints],
             out: tuple[str, Ints | None]) -> dict[str, int] | None:
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for c, n in zip(term, shape, strict=True):
            if own.setdefault(c, n) != n:
                return None
        for c, n in own.items():
            if extents.get(c, 1) != n and extents.get(c, 1) != 1 and n != 1:
                return None
            extents[c] = n if n != 1 else extents.get(c, 1)
    result, shape_of_result = out
    if shape_of_result is not None:
        if len(result) != len(shape_of_result):
            return None
        for c, n in zip(result, shape_of_result, strict=True):
            if extents[c] not in (1, n):
                return None
            extents[c] = n
    return extents


# -- in which order --------------------------------------------------------------------------------
MOST_FOR_OPTIMAL = 8
"""With at most this many terms all orders are compared: 3^8 subsets in some milliseconds."""

Path = list[Ints]


def contraction_path(subscripts: Subscripts, most: int = MOST_FOR_OPTIMAL) -> tuple[Ints, ...]:
    """The best order of at most so many terms, a good one of more, as ``numpy.einsum_path`` writes
    it."""
    return _path(subscripts.terms, subscripts.result, tuple(subscripts.extents.items()), most)


@lru_cache(maxsize=1024)
def _path(terms: tuple[str, ...], result: str, extents: tuple[tuple[str, int], ...],
          most: int) -> tuple[Ints, ...]:
    find = optimal_path if len(terms) <= most else greedy_path
    return tuple(find(terms, result, dict(extents)))


def optimal_path(terms: Sequence[str], result: str, extents: Mapping[str, int]) -> Path:
    """The order of fewest multiplications, by dynamic programming over subsets of terms."""
    # Each subset is solved once, by its cheapest pair of complementary parts: 3^n steps instead of
    # (2n-3)!! orders. Ties go to the smallest intermediate results.
    count = len(terms)
    if count < 2:
        return [(0,)] if terms else []
    letters = sorted(set("".join(terms)))
    masks = [sum(1 << letters.index(c) for c in set(term)) for term in terms]
    wanted = sum(1 << letters.index(c) for c in result)
    full = (1 << count) - 1
    inside = [0] * (full + 1)                   # indices of the terms of a subset
    for subset in range(1, full + 1):
        low = subset & -subset
        inside[subset] = inside[subset ^ low] | masks[low.bit_length() - 1]
    # those left when it has been multiplied
    after = [inside[s] & (inside[full ^ s] | wanted) for s in range(full + 1)]
    sizes: dict[int, int] = {}

    def size(mask: int) -> int:
        if mask not in sizes:
            sizes[mask] = prod(extents[c] for i, c in enumerate(letters) if mask >> i & 1)
        return sizes[mask]

    best: dict[int, tuple[float, float, int]] = {1 << i: (0, 0, 0) for i in range(count)}
    for subset in range(1, full + 1):
        if subset in best:
            continue
        low, found = subset & -subset, (inf, inf, 0)
        rest = part = subset ^ low
        while part:           # every part that lacks the lowest term, so that each pair is met once
            other = subset ^ part
            cost, memory = (best[part][i] + best[other][i] for i in (0, 1))
            if cost <= found[0]:
                candidate = (cost + size(after[part] | after[other]), memory + size(after[subset]),
                             part)
                found = min(found, candidate)
            part = (part - 1) & rest
        best[subset] = found
    left, path = [1 << i for i in range(count)], list[Ints]()       # positions are in what is left

    def multiply(subset: int) -> None:
        if part := best[subset][2]:
            pair = part, subset ^ part
            for each in pair:
                multiply(each)
            path.append(tuple(sorted(map(left.index, pair))))
            left[:] = [*(x for x in left if x not in pair), subset]

    multiply(full)
    return path


def greedy_path(terms: Sequence[str], result: str, extents: Mapping[str, int]) -> Path:
    """The order that always shrinks memory most; terms without a common index come last."""
    # The measure is that of opt_einsum (Smith and Gray, 2018): elements of the product less those
    # of its factors.
    left, path = [frozenset(term) for term in terms], list[Ints]()
    uses = Counter(c for term in (*left, {*result}) for c in term)

    def size(indices: Iterable[str]) -> int:
        return prod(extents[c] for c in indices)

    def product(x: frozenset[str], y: frozenset[str]) -> frozenset[str]:
        return frozenset(c for c in x | y if uses[c] > (c in x) + (c in y))

    def growth(pair: Ints) -> int:
        x, y = (left[i] for i in pair)
        return size(product(x, y)) - size(x) - size(y)

    while len(left) > 1:
        pairs = [*combinations(range(len(left)), 2)]
        i, j = min([p for p in pairs if left[p[0]] & left[p[1]]] or pairs, key=growth)
        second, first = left.pop(j), left.pop(i)
        left.append(product(first, second))
        uses.subtract((*first, *second))
        uses.update(left[-1])
        path.append((i, j))
    return path or [(0,)] * len(terms)
