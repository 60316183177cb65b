"""Which boxes a permutation is cut into where several of its modes are short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import gcd, lcm, prod

from ...kernels.copy.boxes import BoxConfig, BoxSide
from ..modes import Mode

__all__ = ["box_of"]

_REACHES = 256, 128, 64              # bytes, of runs that a box should have on both sides: the first for which it is small enough
_MOST, _WANTED, _FEWEST = 8192, 4096, 1024          # bytes of a box: at most, as far as it goes, and where there are few of them
_VECTOR = 16
_NARROWER = 4                        # bytes, of vectors of the target, where wider ones are gathered from words of the same banks
_BANKS, _WORD = 32, 4
_STORE = 2.0                         # of a vector that is written, in wavefronts of shared memory
_THREADS, _MANY, _WARP = (256, 1024), 2048, 32      # of a block, and of one that moves so many vectors


Widest = Callable[[str, int, Iterable[int]], int]
"""Elements of a vector in ``"S"`` or ``"D"``, of runs of so many elements, beside other strides."""


def box_of(modes: Sequence[Mode], item: int, blocks: int, widest: Widest) -> tuple[BoxConfig, tuple[int, ...]] | None:
    """The box for a permutation.

    Parameters
    ----------
    modes : sequence of Mode
        With the smallest stride in the target first.
    item : int
        Bytes of an element.
    blocks : int
        Boxes that should be there at least.
    widest : callable
        How wide vectors may be.

    Returns
    -------
    (BoxConfig, tuple of int) or None
        What the kernel is specialised on, but for the width of offsets, and the modes that the box spans, those of its
        extents; ``None`` if no box is small enough.
    """
    orders = {"S": sorted(range(len(modes)), key=lambda q: (modes[q].src == 0, abs(modes[q].src), q)),
              "D": list(range(len(modes)))}
    extents = next((found for reach in _REACHES if prod(found := _reaching(modes, orders, reach // item)) * item <= _MOST), None)
    if extents is None:
        return None
    extents = _grown(modes, orders, extents, item, blocks)
    if prod(extents) * item > 2 * _MOST:                   # of whole vectors
        return None
    spanned = tuple(q for q, n in enumerate(extents) if n > 1)
    box = tuple(extents[q] for q in spanned)
    others = [m for q, m in enumerate(modes) if q not in spanned]
    sides = {}
    for name, order in orders.items():
        inside = [q for q in order if q in spanned]
        run = _run(modes, name, inside, extents)
        rest = [_stride(modes[q], name) for q in inside[run:]] + [_stride(m, name) for m in others]
        vector = widest(name, prod(extents[q] for q in inside[:run]), rest)
        sides[name] = BoxSide(tuple(spanned.index(q) for q in inside), run, vector)
    cut = tuple(n for n, q in enumerate(spanned) if extents[q] < modes[q].extent)
    config = BoxConfig(item, box, cut, sides["S"], sides["D"], _WARP, len(others))
    config = replace(config, target=replace(config.target, vector=_gathered(config)))
    vectors = config.elements // min(config.source.vector, config.target.vector)
    each = -(-vectors // _THREADS[vectors > _MANY])
    return replace(config, threads=-(-vectors // (each * _WARP)) * _WARP), spanned


def _gathered(config: BoxConfig) -> int:
    """Elements of a vector of the target, of those that may be: that for which shared memory delivers elements in least time."""
    item, held, widest = config.item, config.held, config.target.vector

    def wavefronts(vector: int) -> float:
        """For each element that a warp gathers, on average of all that lanes of its first vectors have."""
        found = 0
        for e in range(vector):
            words = {held((lane * vector + e) % config.elements) * item // _WORD for lane in range(_WARP)}
            found += max(Counter(w % _BANKS for w in words).values())
        return (found + _STORE) / vector

    widths = [v for v in (widest >> n for n in range(widest.bit_length())) if v * item >= _NARROWER]
    return min(widths, key=wavefronts, default=widest)


def _stride(mode: Mode, name: str) -> int:
    return mode.src if name == "S" else mode.dst


def _run(modes: Sequence[Mode], name: str, order: Sequence[int], extents: Sequence[int]) -> int:
    """How many modes of a box, in an order, make up its runs."""
    at = 1
    for n, q in enumerate(order):
        if _stride(modes[q], name) != at:
            return n
        if extents[q] < modes[q].extent:
            return n + 1
        at *= extents[q]
    return len(order)


def _reaching(modes: Sequence[Mode], orders: dict[str, list[int]], reach: int) -> list[int]:
    """The smallest extents whose runs have so many elements on both sides, as far as modes follow each other."""
    extents = [1] * len(modes)
    for name, order in orders.items():
        at = 1
        for q in order:
            if _stride(modes[q], name) != at or at >= reach:
                break
            extents[q] = max(extents[q], min(modes[q].extent, -(-reach // at)))
            at *= modes[q].extent
    return extents


def _grown(modes: Sequence[Mode], orders: dict[str, list[int]], extents: list[int], item: int, blocks: int) -> list[int]:
    """Extents of whole vectors, and of as many bytes as a box should have."""
    extents, complete = list(extents), [m.extent for m in modes]

    def whole(q: int) -> int:
        """What the extent of a mode has to be a multiple of, so that runs that end with it are whole vectors."""
        found = 1
        for name, order in orders.items():
            before = order.index(q)
            if _run(modes, name, order, complete) > before:
                found = lcm(found, _VECTOR // gcd(_VECTOR, item * prod(complete[x] for x in order[:before])))
        return found

    for q, m in enumerate(modes):
        if 1 < extents[q] < m.extent:
            extents[q] = min(m.extent, -(-extents[q] // whole(q)) * whole(q))
    wanted = _WANTED if prod(complete) * item >= _WANTED * blocks else _FEWEST
    for q in sorted(range(len(modes)), key=lambda q: (extents[q] == 1, q)):
        others = prod(n for x, n in enumerate(extents) if x != q) * item
        most = wanted // others // whole(q) * whole(q) or (whole(q) if whole(q) * others <= _MOST else wanted // others)
        extents[q] = max(extents[q], min(modes[q].extent, most))
    for q, m in enumerate(modes):
        if 1 < extents[q] < m.extent and prod(extents) // extents[q] * m.extent * item <= _MOST:
            extents[q] = m.extent
    # Rows in shared memory are an odd number of vectors apart: what is gathered from neighbouring rows lies in different banks.
    order = [q for q in orders["S"] if extents[q] > 1]
    run = _run(modes, "S", order, extents)
    if 0 < run < len(order):
        q, pitch = order[run - 1], prod(extents[x] for x in order[:run]) * item
        if extents[q] < modes[q].extent and pitch % (2 * _VECTOR) == 0:
            step = pitch // extents[q] * whole(q)
            extents[q] -= whole(q) * (step % (2 * _VECTOR) > 0 and extents[q] > whole(q))
    return extents
