"""A product over the GPUs of a host: which part of C each of them computes, in which tiles, and
what moves for that.

Nothing here uses a GPU. What runs it is in ``engines/spread.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from itertools import product as combinations_of
from math import prod
from typing import Any, NamedTuple

from .streaming import Tile

__all__ = ["AXES", "Cost", "Extents", "Held", "Operands", "Panel", "Part", "Share", "Spread",
           "Step", "spread"]

AXES = {"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")}
"""The axes of A, B and C, by the names of the product's extents."""

_ALL = slice(None)
_ROWS = 128                     # of which parts have a multiple: a tile of most kernels
_TILE_BYTES = 32 << 20          # that move for a tile at least: shorter copies do not fill the link
_LEAST_EXTENT = 512             # of a tile, so that its kernels fill a GPU
_MOST_TILES = 8
_COUNTS = 2, 4, 8, 16    # of the least tiles that would be a part
_LEAST_SHARE = 0.02      # of the work, which a device is asked for at least
_CALL = 100e-6           # seconds that a further device costs: launches, and copies that begin
_LAUNCHES = 20e-6        # seconds of a further tile, besides what planning estimates of its product
_INSIDE = 1e12           # bytes in a second of copies within a device
_ROUNDS = 3              # of shares that are made even


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

    def met(self, start: int, stop: int) -> Iterator[tuple[Part, int, int]]:
        """The parts that a range of its axis meets, and the ranges that they have of it."""
        for part in self.parts:
            low, high = max(start, part.start), min(stop, part.stop)
            if low < high:
                yield part, low, high


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

    def bounds(self, tile: Tile, axis: str) -> tuple[int, int]:
        """Where a tile begins and ends along an axis."""
        start, stop, _step = getattr(tile, axis).indices(self.of(axis))
        return start, stop

    def length(self, tile: Tile, axis: str) -> int:
        """The extent of a tile."""
        start, stop = self.bounds(tile, axis)
        return max(0, stop - start)


class Operands(NamedTuple):
    """Where A, B and C are."""

    a: Held
    b: Held
    c: Held


class Cost(NamedTuple):
    """The time of a product, and of parts of it, on one device.

    Attributes
    ----------
    seconds : float
        Of all of it.
    prepare : float
        Of each element of A and of B that a part of it reads, whatever it is multiplied with:
        planes or residues that are made of it. It is in ``seconds`` once.
    """

    seconds: float
    prepare: float = 0.0

    @classmethod
    def from_halves(cls, whole: float, half: float, first: int, second: int) -> Cost:
        """From the time of all and of half of the columns, of operands of so many elements: what
        two halves take more is what is made of the first one again."""
        again = max(0.0, 2 * half - whole)
        return cls(whole, min(again / first, whole / (2 * (first + second))))

    def of(self, extents: Extents, batch: int, m: int, n: int) -> float:
        """The time of a part of C."""
        products = self.seconds - self.prepare * (extents.batch * (extents.m + extents.n)
                                                  * extents.k)
        preparing = self.prepare * (batch * (m + n) * extents.k)
        return products * (batch * m * n) / max(prod(extents[:3]), 1) + preparing


@lru_cache(maxsize=256)
def spread(extents: Extents, held: Operands, devices: tuple[int, ...], cost: Cost,
           rate: Callable[[int, int], float], finer: int = 1, slots: int | None = None) -> Spread:
    """Divide a product among devices so that it is expected to end first.

    Parameters
    ----------
    extents : Extents
        Of the product.
    held : Operands
        Where A, B and C are.
    devices : tuple of int
        Which may compute.
    cost : Cost
        The time on one of them.
    rate : callable
        Bytes in a second from a device to another one.
    finer : int
        How many times as many tiles as usual: of what has no memory otherwise.
    slots : int, optional
        For how many panels of each operand a device has memory at a time; for all by default.

    Examples
    --------
    >>> whole = [Held(AXES[name], "m" if name != "b" else "k", (Part(0, 0, 16384),), 2**30) for name in "abc"]
    >>> found = spread(Extents(1, 16384, 16384, 16384), Operands(*whole), (0, 1), Cost(43e-3), lambda i, j: 390e9)
    >>> [(share.device, len(share.tiles)) for share in found.shares]
    [(0, 1), (1, 4)]
    """
    order = _in_order(held, devices)
    best: Spread | None = None
    for count in range(len(order), 0, -1):
        product = _Product(extents, held, tuple(order[:count]), cost, rate)
        for grid in _grids(extents,
                           count) if best is None or cost.seconds / count <= best.seconds else ():
            found = _divided(product, grid, finer)
            if best is None or found.seconds <= best.seconds:
                best = found
    assert best is not None
    return replace(best, shares=tuple(replace(share, steps=_steps(share, extents, held, slots))
                                      for share in best.shares))


def _steps(share: Share, extents: Extents, held: Operands,
           most_slots: int | None) -> tuple[Step, ...]:
    """What the tiles of a share need."""
    found: list[list[Panel]] = []
    for one in held:
        keys: dict[tuple[tuple[int, int], ...], int] = {}
        panels = []
        for tile in share.tiles:
            region = {axis: extents.bounds(tile, axis) for axis in one.axes}
            pieces = tuple(_piece(one, part, {**region, one.axis: bounds}, region)
                           for part, *bounds in one.met(*region[one.axis]))
            here = len(pieces) == 1 and pieces[0].device == share.device
            key = 0 if here else keys.setdefault((*region.values(),), len(keys))
            slot = None if here else key % most_slots if most_slots else key
            panels.append(Panel(tuple(stop - start for start, stop in region.values()), pieces,
                                key, slot))
        found.append(panels)
    return tuple(Step(*panels) for panels in zip(*found, strict=True))


def _piece(held: Held, part: Part, box: Mapping[str, Sequence[int]],
           region: Mapping[str, tuple[int, int]]) -> Piece:
    """The box of a region that a part holds."""
    inside = [slice(*(x - part.start * (axis == held.axis) for x in bounds))
              for axis, bounds in box.items()]
    within = [slice(*(x - region[axis][0] for x in bounds)) for axis, bounds in box.items()]
    return Piece(held.parts.index(part), part.device, tuple(inside), tuple(within))


def _in_order(held: Operands, devices: Sequence[int]) -> list[int]:
    """Devices as the parts of what is divided follow each other; those that hold the most come
    first."""
    holding = (part.device for one in sorted((held.c, held.a, held.b),
                                             key=lambda one: -len(one.parts))
               for part in one.parts if part.device in devices)
    return [*dict.fromkeys((*holding, *devices))]


def _grids(extents: Extents, count: int) -> Iterator[dict[str, int]]:
    """In how many parts axes are divided, for so many devices."""
    if extents.batch >= count > 1:
        yield {"batch": count}
    for rows in range(1, count + 1):
        if count % rows == 0 and rows <= extents.m and count // rows <= extents.n:
            yield {"m": rows, "n": count // rows}


class _Moved(NamedTuple):
    """What moves between a device and others: bytes there, bytes within the device, and the seconds
    that it takes."""

    bytes: float
    inside: float
    seconds: float


@dataclass(frozen=True)
class _Product:
    """What is divided, among which devices."""

    extents: Extents
    held: Operands
    devices: tuple[int, ...]
    cost: Cost
    rate: Callable[[int, int], float]
    known: dict[Any, _Moved] = field(default_factory=dict)

    def moved(self, name: str, device: int, tile: Tile, leaves: bool = False) -> _Moved:
        """What a tile needs of A, B or C and others hold, or what it gives them of C."""
        one, extents = getattr(self.held, name), self.extents
        key = name, device, *extents.bounds(tile, one.axis), leaves
        if (found := self.known.get(key)) is None:
            found = self.known[key] = self._of_all(one, device, extents.bounds(tile, one.axis),
                                                   leaves)
        share = 1.0
        for axis in one.axes:
            if axis != one.axis:
                share *= extents.length(tile, axis) / max(extents.of(axis), 1)
        return _Moved(*(share * number for number in found))

    def _of_all(self, one: Held, device: int, bounds: tuple[int, int], leaves: bool) -> _Moved:
        """The same of a range of the axis that is divided, and all of the others."""
        total = inside = seconds = 0.0
        parts = list(one.met(*bounds))
        for part, low, high in parts:
            size = one.bytes * (high - low) / self.extents.of(one.axis)
            if part.device == device:
                inside += size
                continue
            total += size
            seconds += size / self.rate(device, part.device) if leaves \
                else size * _readers(one, self.devices) / self.rate(part.device, device)
        inside = inside if len(parts) > 1 else 0.0
        return _Moved(total, inside, seconds + inside / _INSIDE)

    def seconds(self, tile: Tile) -> float:
        """The time of a tile on a device that has all that it needs."""
        return self.cost.of(self.extents, *(self.extents.length(tile, axis)
                                            for axis in ("batch", "m", "n"))) + _LAUNCHES

    def run(self, device: int, tiles: Sequence[Tile]) -> tuple[float, int, int]:
        """The time of tiles that follow each other while operands arrive in the same order and
        results leave; the bytes that come from other devices, and those that go there.
        """
        # when copies in, kernels and copies out have ended
        arrived = computed = left = 0.0
        up = down = 0.0
        there: dict[Any, float] = {}
        for tile in tiles:
            ready = 0.0
            for name in "abc" if self.held.c.read else "ab":
                key = name, *(self.extents.bounds(tile, axis)
                              for axis in getattr(self.held, name).axes)
                if key not in there:
                    moved = self.moved(name, device, tile)
                    arrived += moved.seconds
                    up += moved.bytes
                    there[key] = arrived if moved.seconds else 0.0
                ready = max(ready, there[key])
            computed = max(computed, ready) + self.seconds(tile)
            leaving = self.moved("c", device, tile, leaves=True)
            if leaving.bytes:
                down += leaving.bytes
                left = max(left, computed) + leaving.seconds
        return max(computed, left), int(up), int(down)


def _divided(product: _Product, grid: dict[str, int], finer: int) -> Spread:
    """One way to divide: first equally, then so that devices that wait for others get less."""
    devices = product.devices
    parts = {axis: [1 / count] * count for axis, count in grid.items()}
    shares, times = _shares(product, parts, finer)
    axes = [axis for axis, count in grid.items() if count > 1]
    for _round in range(_ROUNDS if len(axes) == 1 else 0):
        level = sum(times) / len(times)
        parts = {**parts, axes[0]: [part - (time - level) / product.cost.seconds
                                    for part, time in zip(parts[axes[0]], times, strict=True)]}
        if min(parts[axes[0]]) < _LEAST_SHARE:
            break
        weighted, better = _shares(product, parts, finer)
        if max(better) >= max(times):
            break
        shares, times = weighted, better
    return Spread(shares, max(times) + _CALL * (len(devices) - 1))


def _shares(product: _Product, fractions: dict[str, list[float]],
            finer: int) -> tuple[tuple[Share, ...], list[float]]:
    extents, held, devices = product.extents, product.held, product.devices
    ranges = [_cut(extents.of(axis), parts, _held_cuts(held, axis, len(parts), devices))
              for axis, parts in fractions.items()]
    shares, times = [], []
    for device, cell in zip(devices, combinations_of(*ranges), strict=True):
        tile = Tile(_ALL, _ALL, _ALL, _ALL)._replace(**dict(zip(fractions, cell, strict=True)))
        tiles = _tiles(product, device, tile, finer)
        seconds, up, down = product.run(device, tiles)
        shares.append(Share(device, tiles, up, down))
        times.append(seconds)
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


def _tiles(product: _Product, device: int, tile: Tile, finer: int) -> tuple[Tile, ...]:
    """The part of a device in tiles, so that it is computed while operands arrive and results
    leave.

    They are few: what an algorithm makes of the operand that they share, planes or residues, is
    made again for each. The first one needs what is here already, or is small, since nothing is
    computed before it is there; each of the next is as large as what arrives meanwhile; and the
    last one is small if C leaves.
    """
    if not all(product.extents.length(tile, axis) for axis in ("batch", "m", "n")):
        return ()
    missing = {name: int(product.moved(name, device, tile).bytes) for name in "abc"}
    moves = sum(missing.values()) // _TILE_BYTES
    if finer > 1:
        return _finer_tiles(product, tile, missing, min(_MOST_TILES, moves) * finer, finer)
    if moves < 2:
        return (tile,)
    # of those that end at the same time the first one
    return min(_tilings(product, device, tile, missing, moves),
               key=lambda tiles: round(product.run(device, tiles)[0] / product.cost.seconds, 4))


def _tilings(product: _Product, device: int, tile: Tile, missing: dict[str, int],
             moves: int) -> Iterator[tuple[Tile, ...]]:
    """Ways to cut a part along one axis."""
    yield (tile,)
    others = {part.device for one in (product.held.a, product.held.b)
              for part in one.parts} - {device}
    slowest = min((product.rate(other, device) for other in others), default=1.0)
    for axis in ("batch",) if product.extents.length(tile, "batch") > 1 else ("m", "n"):
        arriving = missing["a"] + missing["b"] if axis == "batch" else missing["a" if axis == "m" else "b"]
        most = product.extents.length(tile, axis) // (1 if axis == "batch" else _LEAST_EXTENT)
        for inner in _by_place(product, device, tile, axis):
            if len(inner) > 1:
                yield inner
            *first, last = inner
            share = product.extents.length(last, axis) / product.extents.length(tile, axis)
            for count in _COUNTS:
                if count > min(moves, most * share):
                    break
                for leaves in (False, True) if missing["c"] else (False,):
                    pieces = _growing(1 / count, arriving / slowest, product.seconds(tile), leaves)
                    yield (*first, *_cut_tile(product, last, axis, pieces))


def _by_place(product: _Product, device: int, tile: Tile, axis: str) -> Iterator[tuple[Tile, ...]]:
    """What needs the device's own part of an operand before the rest, and a tile as it is."""
    for one in (product.held.a, product.held.b):
        own = [part for part in one.parts if part.device == device]
        if one.axis == axis and len(one.parts) > len(own) == 1:
            start, stop = product.extents.bounds(tile, axis)
            low, high = max(start, own[0].start), min(stop, own[0].stop)
            if low < high and (start, stop) != (low, high):
                rest = sorted(((start, low), (high, stop)), key=lambda part: part[1] - part[0])
                yield tuple(tile._replace(**{axis: slice(*part)}) for part in ((low, high), *rest)
                            if part[0] < part[1])
    yield (tile,)


def _finer_tiles(product: _Product, tile: Tile, missing: dict[str, int], count: int,
                 finer: int) -> tuple[Tile, ...]:
    """Many equal tiles along both axes."""
    if count < 2:
        return (tile,)
    here = {axis: product.extents.length(tile, axis) for axis in ("batch", "m", "n")}
    along_m = (missing["a"], here["m"]) >= (missing["b"], here["n"])
    axis = "batch" if here["batch"] > 1 else "m" if along_m else "n"
    count = min(count, here[axis] if axis == "batch"
                else max(1, here[axis] * finer // _LEAST_EXTENT))
    if axis == "batch":
        return tuple(_cut_tile(product, tile, axis, [1 / count] * count))
    other = "n" if axis == "m" else "m"
    parts, found = min(finer, here[other]), list[Tile]()
    for i, part in enumerate(_cut_tile(product, tile, other, [1 / parts] * parts)):
        inner = _cut_tile(product, part, axis, [1 / count] * count)
        # there and back, so that panels are used again
        found += inner[::-1] if i % 2 else inner
    return tuple(found)


def _growing(least: float, arrives: float, work: float, leaves: bool) -> list[float]:
    """The parts of a share that follow each other: the least first if something arrives, and last
    if something leaves."""
    last = [least] if leaves else []
    left = 1 - sum(last)
    found: list[float] = []
    while left > least / 2:
        step = (least if not found else found[-1] * max(1.0, work / arrives)) if arrives else left
        found.append(left if left - step < least else step)
        left -= found[-1]
    return found + last


def _cut_tile(product: _Product, tile: Tile, axis: str, fractions: Sequence[float]) -> list[Tile]:
    """A tile in parts along an axis."""
    start = getattr(tile, axis).start or 0
    parts = _cut(product.extents.length(tile, axis), fractions, None)
    return [tile._replace(**{axis: slice(start + part.start, start + part.stop)})
            for part in parts if part.stop > part.start]


def _readers(held: Held, devices: Sequence[int]) -> int:
    """How many devices read from one at the same time."""
    return len(devices) - (held.parts[0].device in devices) if len(held.parts) == 1 else 1
