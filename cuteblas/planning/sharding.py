"""A product over the GPUs of a host: which part of C each of them computes, in which tiles, and what moves for that.

Nothing here uses a GPU. What runs it is in ``engines/spread.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from .streaming import Tile

__all__ = ["AXES", "Extents", "Held", "Operands", "Panel", "Part", "Share", "Spread", "Step", "spread"]

AXES = {"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")}
"""The axes of A, B and C, by the names of the product's extents."""

_ALL = slice(None)
_ROWS = 128                             # of which parts have a multiple: a tile of most kernels
_TILE_BYTES = 64 << 20                  # that move for a tile at least: shorter copies do not fill the link
_LEAST_EXTENT = 512                     # of a tile, so that its kernels fill a GPU
_MOST_TILES = 8
_LEAST_SHARE = 0.02                     # of the work, which a device is asked for at least
_CALL = 100e-6                          # seconds that a further device costs: launches, and copies that begin


class Part(NamedTuple):
    """A range of an axis of an array, and the device that holds it."""

    device: int
    start: int
    stop: int


@dataclass(frozen=True)
class Held:
    """Where an operand or the result is.

    Attributes
    ----------
    axes : tuple of str
        Its axes, of those in :data:`AXES`: an operand may lack the batch.
    axis : str
        The one along which it is divided.
    parts : tuple of Part
        Its parts in their order, which leave no gap.
    bytes : int
        Of the whole array.
    read : bool
        Whether C is an operand, too.
    """

    axes: tuple[str, ...]
    axis: str
    parts: tuple[Part, ...]
    bytes: int
    read: bool = False

    def box(self, tile: Tile) -> dict[str, slice]:
        """What a tile needs of it."""
        return {axis: getattr(tile, axis) for axis in self.axes}


class Piece(NamedTuple):
    """What one shard has of what a tile needs.

    Attributes
    ----------
    shard, device : int
        Its index among the parts of the array, and where it is.
    inside, within : tuple of slice
        The box of the shard, and that of what the tile needs.
    """

    shard: int
    device: int
    inside: tuple[slice, ...]
    within: tuple[slice, ...]


class Panel(NamedTuple):
    """What a tile needs of A, B or C.

    Attributes
    ----------
    shape : tuple of int
        Its extents.
    pieces : tuple of Piece
        Where it is.
    key : int
        Equal for tiles that need the same of it.
    slot : int or None
        The memory that it moves through; ``None`` if one shard on the device has all of it.
    """

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    key: int
    slot: int | None


class Step(NamedTuple):
    """One tile: what it needs of A and B, and where it goes in C."""

    a: Panel
    b: Panel
    c: Panel


@dataclass(frozen=True)
class Share:
    """What one device computes.

    Attributes
    ----------
    device : int
        Its ordinal.
    tiles : tuple of Tile
        Parts of C, in their order; all of K each.
    up, down : int
        The bytes of operands that it gets from other devices, and of C that it sends to them.
    steps : tuple of Step
        What each tile needs, and where.
    """

    device: int
    tiles: tuple[Tile, ...]
    up: int
    down: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Spread:
    """A product over devices.

    Attributes
    ----------
    shares : tuple of Share
        One for each device that has work.
    seconds : float
        The expected time.
    """

    shares: tuple[Share, ...]
    seconds: float


class Extents(NamedTuple):
    """Of a product; the batch is 1 for matrices."""

    batch: int
    m: int
    n: int
    k: int

    def of(self, axis: str) -> int:
        """One of them."""
        return getattr(self, axis)


class Operands(NamedTuple):
    """Where A, B and C are."""

    a: Held
    b: Held
    c: Held


@lru_cache(maxsize=256)
def spread(extents: Extents, held: Operands, devices: tuple[int, ...], seconds: float, rate: Callable[[int, int], float],
           finer: int = 1, slots: int | None = None) -> Spread:
    """Divide a product among devices so that it is expected to end first.

    Parameters
    ----------
    extents : Extents
        Of the product.
    held : Operands
        Where A, B and C are.
    devices : tuple of int
        Which may compute.
    seconds : float
        The time of all of it on one of them.
    rate : callable
        Bytes in a second from a device to another one.
    finer : int
        How many times as many tiles as usual: of what has no memory otherwise.
    slots : int, optional
        For how many panels of each operand a device has memory at a time; for all by default.

    Examples
    --------
    >>> whole = [Held(AXES[name], "m" if name != "b" else "k", (Part(0, 0, 16384),), 2**30) for name in "abc"]
    >>> found = spread(Extents(1, 16384, 16384, 16384), Operands(*whole), (0, 1), 43e-3, lambda i, j: 390e9)
    >>> [(share.device, len(share.tiles)) for share in found.shares]
    [(0, 1), (1, 3)]
    """
    order = _in_order(held, devices)
    candidates = [_divided(extents, held, order[:count], grid, seconds, rate, finer)
                  for count in range(1, len(order) + 1) for grid in _grids(extents, count)]
    best = min(candidates, key=lambda found: found.seconds)
    return replace(best, shares=tuple(replace(share, steps=_steps(share, extents, held, slots)) for share in best.shares))


def _steps(share: Share, extents: Extents, held: Operands, most_slots: int | None) -> tuple[Step, ...]:
    """What the tiles of a share need."""
    found: dict[str, list[Panel]] = {}
    for name, one in zip("abc", held, strict=True):
        keys: dict[tuple[tuple[int, int], ...], int] = {}
        panels = []
        for tile in share.tiles:
            region = {axis: cut.indices(extents.of(axis))[:2] for axis, cut in one.box(tile).items()}
            pieces = tuple(_piece(one, part, box, region, extents) for part, box in _places(extents, one, tile))
            here = len(pieces) == 1 and pieces[0].device == share.device
            shape = tuple(stop - start for start, stop in region.values())
            key = keys.setdefault((*region.values(),), len(keys)) if not here else 0
            panels.append(Panel(shape, pieces, key, None if here else key % most_slots if most_slots else key))
        found[name] = panels
    return tuple(Step(*panels) for panels in zip(*found.values(), strict=True))


def _piece(held: Held, part: Part, box: dict[str, slice], region: dict[str, tuple[int, int]], extents: Extents) -> Piece:
    inside, within = [], []
    for axis, cut in box.items():
        low, high, _step = cut.indices(extents.of(axis))
        first, start = part.start if axis == held.axis else 0, region[axis][0]
        inside.append(slice(low - first, high - first))
        within.append(slice(low - start, high - start))
    return Piece(held.parts.index(part), part.device, tuple(inside), tuple(within))


def _in_order(held: Operands, devices: Sequence[int]) -> list[int]:
    """Devices as the parts of what is divided follow each other; those that hold the most come first."""
    found: list[int] = []
    for one in sorted((held.c, held.a, held.b), key=lambda one: -len(one.parts)):
        found += [part.device for part in one.parts if part.device in devices and part.device not in found]
    return found + [device for device in devices if device not in found]


def _grids(extents: Extents, count: int) -> Iterator[dict[str, int]]:
    """In how many parts axes are divided, for so many devices."""
    if extents.batch >= count > 1:
        yield {"batch": count}
    for rows in range(1, count + 1):
        if count % rows == 0 and rows <= extents.m and count // rows <= extents.n:
            yield {"m": rows, "n": count // rows}


def _divided(extents: Extents, held: Operands, devices: Sequence[int], grid: dict[str, int], seconds: float,
             rate: Callable[[int, int], float], finer: int) -> Spread:
    """One way to divide: first equally, then so that devices that wait for others get less."""
    even = {axis: [1 / count] * count for axis, count in grid.items()}
    shares, times = _shares(extents, held, devices, even, seconds, rate, finer)
    axes = [axis for axis, count in grid.items() if count > 1]
    if len(axes) == 1:
        waits = [time - seconds / len(devices) for time in times]
        level = (seconds + sum(waits)) / len(devices)
        parts = [(level - wait) / seconds for wait in waits]
        if min(parts) < _LEAST_SHARE:
            return Spread(shares, max(times))
        weighted, better = _shares(extents, held, devices, {**even, axes[0]: parts}, seconds, rate, finer)
        if max(better) < max(times):
            shares, times = weighted, better
    return Spread(shares, max(times) + _CALL * (len(devices) - 1))


def _shares(extents: Extents, held: Operands, devices: Sequence[int], fractions: dict[str, list[float]], seconds: float,
            rate: Callable[[int, int], float], finer: int) -> tuple[tuple[Share, ...], list[float]]:
    ranges = {axis: _cut(extents.of(axis), parts, _held_cuts(held, axis, len(parts), devices)) for axis, parts in fractions.items()}
    cells = [dict(zip(ranges, cell, strict=True)) for cell in product(*ranges.values())]
    shares, times = [], []
    for device, cell in zip(devices, cells, strict=True):
        tile = Tile(cell.get("batch", _ALL), cell.get("m", _ALL), cell.get("n", _ALL), _ALL)
        work = seconds
        for axis, part in cell.items():
            work *= (part.stop - part.start) / max(extents.of(axis), 1)
        tiles = _tiles(extents, held, device, tile, work, rate, finer)
        up, first, into = _moved(extents, held, device, tiles, devices, rate)
        down, last, out_of = _returned(extents, held, device, tiles, rate)
        shares.append(Share(device, tiles, up, down))
        times.append(max(work + first + last, into, out_of))
    return tuple(shares), times


def _held_cuts(held: Operands, axis: str, count: int, devices: Sequence[int]) -> list[int] | None:
    """Where operands or C are divided already, if each of the devices has its part."""
    for one in held:
        if one.axis == axis and len(one.parts) == count > 1 and [part.device for part in one.parts] == [*devices][:count]:
            return [part.stop for part in one.parts[:-1]]
    return None


def _cut(extent: int, fractions: Sequence[float], cuts: list[int] | None) -> list[slice]:
    if cuts is None:
        cuts, so_far = [], 0.0
        for fraction in fractions[:-1]:
            so_far += fraction
            at = so_far * extent
            cuts.append(min(extent, round(at / _ROWS) * _ROWS if at >= 4 * _ROWS else round(at)))
    ends = [0, *cuts, extent]
    return [slice(i, j) for i, j in pairwise(ends)]


def _tiles(extents: Extents, held: Operands, device: int, tile: Tile, work: float, rate: Callable[[int, int], float],
           finer: int) -> tuple[Tile, ...]:
    """The part of a device in tiles, so that it is computed while operands arrive and results leave.

    They are few: what an algorithm makes of the operand that they share, planes or residues, is made again for each. The first one
    is small, since nothing is computed before it is there, and each of the next as large as what arrives meanwhile; the last one
    is small if C leaves.
    """
    here = {axis: _length(part, extents.of(axis)) for axis, part in tile._asdict().items()}
    missing = {name: sum(n for other, n in _sources(extents, one, tile) if other != device)
               for name, one in zip("abc", held, strict=True)}
    count = min(_MOST_TILES, sum(missing.values()) // _TILE_BYTES) * finer
    if count < 2:
        return (tile,)
    axis = "batch" if here["batch"] > 1 else "m" if missing["a"] > missing["b"] or (missing["a"] == missing["b"]
                                                                                and here["m"] >= here["n"]) else "n"
    count = min(count, here[axis] if axis == "batch" else max(1, here[axis] * finer // _LEAST_EXTENT))
    if finer == 1:
        arriving = missing["a"] + missing["b"] if axis == "batch" else missing["a" if axis == "m" else "b"]
        others = {part.device for one in (held.a, held.b) for part in one.parts} - {device}
        slowest = min((rate(other, device) for other in others), default=1.0)
        return tuple(tile._replace(**{axis: part})
                     for part in _ranges(tile, axis, here[axis], _growing(1 / count, arriving / slowest, work, bool(missing["c"]))))
    inner = _ranges(tile, axis, here[axis], [1 / count] * count)
    if axis == "batch":
        return tuple(tile._replace(**{axis: part}) for part in inner)
    other, parts = "n" if axis == "m" else "m", min(finer, here["n" if axis == "m" else "m"])
    found = []
    for i, part in enumerate(_ranges(tile, other, here[other], [1 / parts] * parts)):
        # there and back, so that panels are used again
        found += [tile._replace(**{axis: each, other: part}) for each in (inner if i % 2 == 0 else reversed(inner))]
    return tuple(found)


def _growing(least: float, arrives: float, work: float, leaves: bool) -> list[float]:
    """The parts of a share that follow each other: the least first if something arrives, and last if something leaves."""
    last = [least] if leaves else []
    left = 1 - sum(last)
    found: list[float] = []
    while left > least / 2:
        step = (least if not found else found[-1] * max(1.0, work / arrives)) if arrives else left
        found.append(left if left - step < least else step)
        left -= found[-1]
    return found + last


def _ranges(tile: Tile, axis: str, extent: int, fractions: Sequence[float]) -> list[slice]:
    """A tile's range of an axis in parts."""
    start = getattr(tile, axis).start or 0
    return [slice(start + part.start, start + part.stop) for part in _cut(extent, fractions, None) if part.stop > part.start]


def _places(extents: Extents, held: Held, tile: Tile) -> list[tuple[Part, dict[str, slice]]]:
    """The parts of an operand that a tile meets, and the box of the whole that each of them has."""
    box = held.box(tile)
    start, stop, _step = box[held.axis].indices(extents.of(held.axis))
    found = []
    for part in held.parts:
        low, high = max(start, part.start), min(stop, part.stop)
        if low < high:
            found.append((part, {**box, held.axis: slice(low, high)}))
    return found


def _sources(extents: Extents, held: Held, tile: Tile) -> list[tuple[int, int]]:
    """The bytes that a tile needs of an operand, by the devices that hold them."""
    found = []
    for part, box in _places(extents, held, tile):
        size = float(held.bytes)
        for axis, cut in box.items():
            size *= _length(cut, extents.of(axis)) / max(extents.of(axis), 1)
        found.append((part.device, int(size)))
    return found


def _readers(held: Held, devices: Sequence[int]) -> int:
    """How many devices read from one at the same time."""
    return len(devices) - (held.parts[0].device in devices) if len(held.parts) == 1 else 1


def _moved(extents: Extents, held: Operands, device: int, tiles: Sequence[Tile], devices: Sequence[int],
           rate: Callable[[int, int], float]) -> tuple[int, float, float]:
    """The bytes of operands that come from other devices; the seconds before the first tile has its own, and of all."""
    total, first, seconds = 0, 0.0, 0.0
    seen = set()
    for i, tile in enumerate(tiles):
        for name, one in zip("abc", held, strict=True):
            if name == "c" and not one.read:
                continue
            key = name, *((cut.start, cut.stop) for cut in one.box(tile).values())
            if key in seen:
                continue
            seen.add(key)
            for other, size in _sources(extents, one, tile):
                if other != device:
                    total += size
                    seconds += size * _readers(one, devices) / rate(other, device)
        if not i:
            first = seconds
    return total, first, seconds


def _returned(extents: Extents, held: Operands, device: int, tiles: Sequence[Tile],
              rate: Callable[[int, int], float]) -> tuple[int, float, float]:
    """The bytes of C that leave; the seconds of the last tile, and of all."""
    total, last, seconds = 0, 0.0, 0.0
    for tile in tiles:
        last = 0.0
        for other, size in _sources(extents, held.c, tile):
            if other != device:
                total += size
                last += size / rate(device, other)
        seconds += last
    return total, last, seconds


def _length(part: slice, extent: int) -> int:
    return len(range(*part.indices(extent)))
