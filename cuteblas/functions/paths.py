"""In which order the terms of a contraction are multiplied: optimal by dynamic programming for few terms, greedy for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf, prod

__all__ = ["MOST_FOR_OPTIMAL", "contraction_path", "greedy_path", "optimal_path"]

MOST_FOR_OPTIMAL = 8
"""Up to this many terms all orders are compared: 3^8 pairs of subsets, which take some milliseconds."""

Path = list[tuple[int, ...]]


@lru_cache(maxsize=1024)
def contraction_path(terms: tuple[str, ...], result: str, extents: tuple[tuple[str, int], ...]) -> tuple[tuple[int, ...], ...]:
    """The order that is used unless the caller names one, as ``numpy.einsum_path`` writes it.

    Parameters
    ----------
    terms : tuple of str
        The indices of each term.
    result : str
        The indices of the result.
    extents : tuple of (str, int)
        Of every index.
    """
    find = optimal_path if len(terms) <= MOST_FOR_OPTIMAL else greedy_path
    return tuple(find(terms, result, dict(extents)))


def optimal_path(terms: Sequence[str], result: str, extents: Mapping[str, int]) -> Path:
    """The order with the fewest multiplications, outer products included, by dynamic programming over subsets of the terms.

    The cheapest way to a subset is the cheapest pair of complementary parts of it, so each subset is solved once: 3^n steps for n
    terms, in place of the (2n-3)!! orders. Of equally cheap ways the one with the smallest intermediate results is taken.
    """
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
    after = [inside[s] & (inside[full ^ s] | wanted) for s in range(full + 1)]         # those left when it has been multiplied
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
        while part:                             # every part that lacks the lowest term, so that each pair is met once
            other = subset ^ part
            cost, memory = (best[part][i] + best[other][i] for i in (0, 1))
            if cost <= found[0]:
                candidate = (cost + size(after[part] | after[other]), memory + size(after[subset]), part)
                found = min(found, candidate)
            part = (part - 1) & rest
        best[subset] = found
    return _as_positions(_tree(best, full), count)


def _tree(best: Mapping[int, tuple[float, float, int]], subset: int) -> list[tuple[int, int]]:
    """Pairs of subsets in the order in which they are multiplied."""
    part = best[subset][2]
    return [*_tree(best, part), *_tree(best, subset ^ part), (part, subset ^ part)] if part else []


def _as_positions(pairs: Sequence[tuple[int, int]], count: int) -> Path:
    """Pairs of subsets as positions in the list of what is left."""
    left = [1 << i for i in range(count)]
    path: Path = []
    for pair in pairs:
        path.append(tuple(sorted(left.index(subset) for subset in pair)))
        for subset in pair:
            left.remove(subset)
        left.append(pair[0] | pair[1])
    return path


def greedy_path(terms: Sequence[str], result: str, extents: Mapping[str, int]) -> Path:
    """Always the product that shrinks memory most, of pairs that share an index; at the end outer products, smallest first.

    The measure is that of opt_einsum (Smith and Gray, 2018): elements of the product less those of its factors.
    """
    def size(indices: frozenset[str]) -> int:
        return prod(extents[c] for c in indices)

    left = [frozenset(term) for term in terms]
    path: Path = []
    uses = {c: sum(c in term for term in left) + (c in result) for c in extents}

    def product(x: frozenset[str], y: frozenset[str]) -> frozenset[str]:
        return frozenset(c for c in x | y if uses[c] > (c in x) + (c in y))

    while len(left) > 1:
        pairs = [(i, j) for j in range(len(left)) for i in range(j) if left[i] & left[j]]
        if pairs:
            def growth(pair: tuple[int, int]) -> int:
                x, y = left[pair[0]], left[pair[1]]
                return size(product(x, y)) - size(x) - size(y)

            i, j = min(pairs, key=growth)
        else:
            i, j = sorted(sorted(range(len(left)), key=lambda i: size(left[i]))[:2])
        second, first = left.pop(j), left.pop(i)
        new = product(first, second)
        for c in first | second:
            uses[c] -= (c in first) + (c in second) - (c in new)
        left.append(new)
        path.append((i, j))
    return path or [(0,)] * len(terms)
