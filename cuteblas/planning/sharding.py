"""A product over the GPUs of a host: the parts of C, their tiles, and what moves for them.

Nothing here uses a GPU; ``engines/spread.py`` runs it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from itertools import product as combinations_of
from math import inf, prod
from typing import Any, NamedTuple

from .streaming import Tile, back_and_forth

__all__ = ["Action", "Box", "Cost", "Held", "Operands", "Panel", "Part", "Spread", "Step",
           "common", "seen_from", "spread"]

_ROWS = 128                     # of which parts have a multiple: a tile of most kernels
_TILE_BYTES = 32 << 20          # that move for a tile at least: shorter copies do not fill the link
_LEAST_EXTENT = 512             # of a tile, so that its kernels fill a GPU
_MOST_TILES = 8
# of the least tiles that would be a part, and how many times as large the next ones are
_CUTS = (8, 2), (1, 1), (2, 1), (4, 1), (4, 4), (8, 8), (16, 2), (16, 4)
_ASKING = 30e-6          # seconds that the host takes to begin a copy or the kernels of a tile
_LAUNCHES = 20e-6        # seconds of a further tile, besides what planning estimates of its product
_ROUNDS = 3              # of shares that are made even
_KEPT = 3                # grids and ways to cut that are looked at closely


Box = tuple[range, ...]
"""A part of an array: a range of each axis."""


class Part(NamedTuple):
    """A range of an axis of an array, and the device that holds it."""

    device: int
    range: range


def common(one: Sequence[range], other: Sequence[range]) -> Box:
    """What two boxes of an array have in common; some of its ranges are empty if it is nothing."""
    return tuple(range(max(i.start, j.start), min(i.stop, j.stop))
                 for i, j in zip(one, other, strict=True))


def seen_from(box: Sequence[range], origin: Sequence[range]) -> tuple[slice, ...]:
    """The indices of a box in an array that is a box itself."""
    return tuple(slice(i.start - j.start, i.stop - j.start)
                 for i, j in zip(box, origin, strict=True))


@dataclass(frozen=True)
class Held:
    """Where an operand or C is: gapless ``parts`` along ``axis``; ``read`` if C is read. An axis is
    the name of an extent of tiles, or its length if all tiles have all of it."""

    axes: tuple[str | int, ...]
    axis: int
    parts: tuple[Part, ...]
    itemsize: int
    read: bool = False

    def region(self, tile: Tile) -> Box:
        """What a tile needs of it."""
        return tuple(range(axis) if isinstance(axis, int) else getattr(tile, axis)
                     for axis in self.axes)

    def is_divided(self, axis: str) -> bool:
        """Whether several devices have parts along an extent of tiles."""
        return self.axes[self.axis] == axis and len(self.parts) > 1


class Piece(NamedTuple):
    """A shard's part of a panel: the box ``inside`` it and ``within`` the panel, by ``key``."""

    shard: int
    device: int
    inside: tuple[slice, ...]
    within: tuple[slice, ...]
    key: tuple[Any, ...]
    bytes: int


class Panel(NamedTuple):
    """What a tile needs of A, B or C, moved through ``slot``, or all in one shard (``None``)."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    key: tuple[Any, ...]
    slot: int | None


class Step(NamedTuple):
    """One tile, with all of K: what it needs of A and B, and where it goes in C."""

    a: Panel
    b: Panel
    c: Panel
    tile: Tile


class Action(NamedTuple):
    """What the host begins: a copy of a piece to a device, or a tile's kernels (no ``name``).
    ``source`` is (device, tile, piece) if the piece does not come from its shard."""

    device: int
    step: int
    name: str = ""
    piece: int = 0
    source: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Spread:
    """A product over devices: the steps of each and when it ends, and actions in the host's
    order."""

    steps: Mapping[int, tuple[Step, ...]]
    ends: tuple[float, ...]
    actions: tuple[Action, ...]

    @property
    def seconds(self) -> float:
        return max(self.ends)


class Operands(NamedTuple):
    a: Held
    b: Held
    c: Held


class Cost(NamedTuple):
    """The time of a product on one device, which has once what it takes to ``prepare`` each
    element of A and B that is read (planes, residues)."""

    seconds: float
    prepare: float = 0.0

    @classmethod
    def from_halves(cls, whole: float, half: float, first: int, second: int) -> Cost:
        """From the time of all and of half the columns: halves prepare one operand twice."""
        again = max(0.0, 2 * half - whole)
        return cls(whole, min(again / first, whole / (2 * (first + second))))

    def of(self, whole: Tile, tile: Tile) -> float:
        """The time of a part of C."""
        products = self.seconds - self.prepare * whole.inputs
        return products * tile.outputs / max(whole.outputs, 1) + self.prepare * tile.inputs


@lru_cache(maxsize=256)
def spread(whole: Tile, held: Operands, devices: tuple[int, ...], cost: Cost,
           rate: Callable[[int, int], float], finer: int = 1, slots: int | None = None) -> Spread:
    """Divide a product among devices so that it is expected to end first."""
    # ``rate`` is bytes in a second between devices; ``finer`` multiplies the number of tiles,
    # where memory is short; ``slots`` is the panels of each operand that a device has room for.
    order, likely, least = _in_order(held, devices), list[Any](), inf
    for count in range(len(order), 0, -1):
        product = _Product(whole, held, tuple(order[:count]), cost, rate, slots)
        for grid in _grids(whole, count) if cost.seconds / count <= least else ():
            seconds = _divided(product, grid, finer, _CUTS[:1]).seconds
            likely.append((seconds, count, product, grid))
            least = min(least, seconds)
    likely.sort(key=lambda one: one[:2])
    return min((_divided(product, grid, finer, _CUTS) for _s, _c, product, grid in likely[:_KEPT]),
               key=lambda found: found.seconds)


def _in_order(held: Operands, devices: Sequence[int]) -> list[int]:
    """Devices in the order of the divided parts; those that hold the most come first."""
    holding = (part.device for one in sorted((held.c, held.a, held.b),
                                             key=lambda one: -len(one.parts))
               for part in one.parts if part.device in devices)
    return [*dict.fromkeys((*holding, *devices))]


def _grids(whole: Tile, count: int) -> Iterator[dict[str, int]]:
    """In how many parts axes are divided, for so many devices."""
    batch, m, n, _k = map(len, whole)
    if batch >= count > 1:
        yield {"batch": count}
    for rows in range(1, count + 1):
        if count % rows == 0 and rows <= m and count // rows <= n:
            yield {"m": rows, "n": count // rows}


@dataclass(frozen=True)
class _Product:
    whole: Tile
    held: Operands
    devices: tuple[int, ...]
    cost: Cost
    rate: Callable[[int, int], float]
    slots: int | None = None
    known: dict[Any, Panel] = field(default_factory=dict)

    def panels(self, tile: Tile) -> list[Panel]:
        """The panels of A and B that a tile reads, and the one of C that it writes."""
        return [self._panel(name, one.region(tile))
                for name, one in self.held._asdict().items()]

    def _panel(self, name: str, region: Box) -> Panel:
        key = name, *region
        if key not in self.known:
            shards = range(len(getattr(self.held, name).parts))
            pieces = (self._piece(name, shard, region) for shard in shards)
            self.known[key] = Panel(tuple(map(len, region)),
                                    tuple(piece for piece in pieces if all(piece.key)), key, None)
        return self.known[key]

    def _piece(self, name: str, shard: int, region: Box) -> Piece:
        """What a part of an array has of a box of it."""
        one: Held = getattr(self.held, name)
        part = one.parts[shard]
        own = one.region(self.whole)
        own = *own[:one.axis], part.range, *own[one.axis + 1:]
        box = common(own, region)
        return Piece(shard, part.device, seen_from(box, own), seen_from(box, region), (name, *box),
                     one.itemsize * prod(map(len, box)))

    def missing(self, device: int, tile: Tile) -> dict[str, int]:
        """The bytes of each array that a tile needs and other devices hold."""
        return {name: sum(piece.bytes for piece in panel.pieces if piece.device != device)
                for name, panel in zip("abc", self.panels(tile), strict=True)}

    def seconds(self, tile: Tile) -> float:
        return self.cost.of(self.whole, tile) + _LAUNCHES

    def steps(self, device: int, tiles: Sequence[Tile]) -> tuple[Step, ...]:
        found: list[list[Panel]] = []
        for panels in zip(*map(self.panels, tiles), strict=True):
            keys: dict[Any, int] = {}
            found.append([panel if [piece.device for piece in panel.pieces] == [device]
                          else panel._replace(slot=keys.setdefault(panel.key, len(keys))
                                              % (self.slots or len(tiles)))
                          for panel in panels])
        return tuple(Step(*each) for each in zip(*found, tiles, strict=True))


class _Course:
    """Tiles of all devices, operands that arrive and results that leave, in time."""
    # A piece comes from its shard or a device that has it, over the fastest link, then from the
    # one that passed it on least: it leaves a group of devices with faster links once. Only one
    # copy at a time leaves a device by links of one rate.

    def __init__(self, product: _Product, cells: Sequence[tuple[Tile, ...]]):
        self.product, self.steps = product, {
            device: product.steps(device, tiles)
            for device, tiles in zip(product.devices, cells, strict=True)}
        self.names = "abc" if product.held.c.read else "ab"
        self.sent = Counter[Any]()                      # how often a device passes a piece on
        # devices that have a piece: since when, and which tile's panel it is in, and where
        self.there: dict[Any, dict[int, tuple[float, tuple[int, int, int]]]] = {}
        self.ready = defaultdict[Any, float](float)     # a panel on a device
        self.free = defaultdict[Any, float](float)      # a link, or the kernels of a device

    def run(self) -> Spread:
        """Follow everything in the order in which the host begins it: in turns of all devices."""
        actions: list[Action] = []
        turns = [self._asked(device) for device in reversed(self.steps)]
        while turns:
            for turn in [*turns]:
                if action := next(turn, None):
                    actions.append(self._begun(action, len(actions) * _ASKING))
                else:
                    turns.remove(turn)
        return Spread(self.steps, tuple(self.free[device, "end"] for device in self.steps),
                      tuple(actions))

    def _asked(self, device: int) -> Iterator[Action]:
        """The copies for a device's tiles, and then their kernels, tile after tile."""
        held = dict[Any, Panel]()
        for i, step in enumerate(self.steps[device]):
            for name in self.names:
                panel: Panel = getattr(step, name)
                before = held.get((name, panel.slot))
                if panel.slot is None or (before and before.key == panel.key):
                    continue
                for piece in before.pieces if before else ():
                    self.there.get(piece.key, {}).pop(device, None)
                held[name, panel.slot] = panel
                # its own first, then those of the next devices: no two begin with the same one
                for at in sorted(range(len(panel.pieces)), key=lambda at: (
                        panel.pieces[at].device < device, panel.pieces[at].device)):
                    yield Action(device, i, name, at)
            yield Action(device, i)

    def _begun(self, action: Action, now: float) -> Action:
        """Follow one action; of a copy, say where the piece comes from."""
        device, step = action.device, self.steps[action.device][action.step]
        if not action.name:
            done = self.free[device, "kernels"] = self.product.seconds(step.tile) + max(
                now, self.free[device, "kernels"],
                *(self.ready[device, name, getattr(step, name).key] for name in self.names))
            for piece in step.c.pieces:
                done = max(done, self._copied("down", device, piece.device, piece.bytes,
                                              self.free[device, "kernels"]))
            self.free[device, "end"] = max(self.free[device, "end"], done)
            return action
        panel: Panel = getattr(step, action.name)
        piece = panel.pieces[action.piece]
        there = self.there.setdefault(piece.key, {})
        origin = device if piece.device == device else min(
            {piece.device, *there}, key=lambda one: (-self.product.rate(one, device),
                                                     self.sent[piece.key, one]))
        self.sent[piece.key, origin] += 1
        since, source = there.get(origin, (0.0, None))
        end = self._copied("up", origin, device, piece.bytes, max(now, since))
        self.ready[device, action.name, panel.key] = end        # of the last piece
        if origin != device:
            there[device] = end, (device, action.step, action.piece)
        return action._replace(source=source)

    def _copied(self, way: str, origin: int, to: int, size: float, begin: float) -> float:
        """When a copy ends: of an operand to a device, or of a result from it."""
        if origin == to:                        # meanwhile
            return begin
        rate = self.product.rate(origin, to)
        links = (origin, way, rate), (to, way)
        end = max(begin, *(self.free[link] for link in links)) + size / rate
        self.free.update(dict.fromkeys(links, end))
        return end


_Way = tuple[str, bool, tuple[int, int], bool]
"""The axis of tiles, if what needs the device's own part comes first, one of :data:`_CUTS`, and if
the last tile is small."""


def _divided(product: _Product, grid: dict[str, int], finer: int,
             cuts: Sequence[tuple[int, int]]) -> Spread:
    """One way to divide: first equally, then with less for devices that wait for others."""
    parts = {axis: [1 / count] * count for axis, count in grid.items()}
    axes = [axis for axis, count in grid.items() if count > 1]
    held, best = product.held, None
    ways: list[_Way] = [
        way for axis in (("batch",) if len(product.whole.batch) > 1 else ("m", "n"))
        for way in combinations_of((axis,), {False, any(one.is_divided(axis) for one in held[:2])},
                                   cuts, (False, True))]
    for _round in range(1 + _ROUNDS if len(axes) == 1 and len(cuts) > 1 else 1):
        tried = dict[Any, tuple[Spread, _Way]]()
        for way in ways:
            cells = tuple(_tiles(product, *cell, way, finer) for cell in _cells(product, parts))
            if cells not in tried:
                tried[cells] = _Course(product, cells).run(), way
        # of those that end at the same time the one with the fewest copies and tiles
        found = sorted(tried.values(), key=lambda one: (
            round(one[0].seconds / product.cost.seconds, 4), len(one[0].actions)))
        if best is not None and found[0][0].seconds >= best.seconds:
            break
        best, ways = found[0][0], [way for _spread, way in found[:_KEPT]]
        if len(axes) == 1:
            level = sum(best.ends) / len(best.ends)
            parts[axes[0]] = [max(0.0, part - (end - level) / product.cost.seconds)
                              for part, end in zip(parts[axes[0]], best.ends, strict=True)]
    assert best is not None
    return best


def _cells(product: _Product,
           fractions: dict[str, list[float]]) -> Iterator[tuple[int, Tile]]:
    """The part of each device."""
    cells = [product.whole]
    for axis, parts in fractions.items():
        extent = len(getattr(product.whole, axis))
        ends = _held_ends(product, axis, len(parts)) or _ends(extent, parts)
        cells = [part for cell in cells for part in cell.between(axis, ends)]
    return zip(product.devices, cells, strict=True)


def _held_ends(product: _Product, axis: str, count: int) -> list[int] | None:
    """Where parts of operands or of C end already, if each of the devices has its own."""
    return next(([part.range.stop for part in one.parts] for one in product.held
                 if one.axes[one.axis] == axis
                 and [part.device for part in one.parts] == [*product.devices[:count]]), None)


def _ends(extent: int, fractions: Sequence[float]) -> list[int]:
    """Where such parts of an extent end."""
    ends = [part * extent for part in accumulate(fractions)]
    return [*(min(extent, round(end / _ROWS) * _ROWS if end >= 4 * _ROWS else round(end))
              for end in ends[:-1]), extent]


def _tiles(product: _Product, device: int, tile: Tile, way: _Way, finer: int) -> tuple[Tile, ...]:
    """The part of a device in tiles, computed while operands arrive and results leave."""
    # Tiles are few: what is made of the operand that they share is made again for each. The first
    # needs what is here already, or is small; each of the next is as large as what arrives
    # meanwhile; the last is small if C leaves. Devices with the same panels cut them alike.
    if not tile.outputs:
        return ()
    axis, own, (least, growth), leaves = way
    missing = product.missing(device, tile)
    moves = sum(missing.values()) // _TILE_BYTES
    if moves < 2:
        return (tile,)
    if finer > 1:
        return tuple(_finer_tiles(tile, axis == "batch", finer))
    first, last = _own_first(product, device, tile, axis) if own else ([], tile)
    count = min(least, moves, len(getattr(last, axis)) // (1 if axis == "batch" else _LEAST_EXTENT))
    if count < 2:
        return (*first, last)
    arrives = any(missing[name] for name in "ab" if axis in getattr(product.held, name).axes)
    return (*first, *_cut(last, axis, _growing(1 / count, growth if arrives else 0,
                                               leaves and missing["c"] > 0)))


def _own_first(product: _Product, device: int, tile: Tile, axis: str) -> tuple[list[Tile], Tile]:
    """What needs the device's own part of an operand, and what comes after it, then before."""
    for one in product.held[:2]:
        own = [part.range for part in one.parts if part.device == device]
        if one.is_divided(axis) and len(own) == 1:
            whole: range = getattr(tile, axis)
            (here,) = common(own, [whole])
            if here:
                ends = here.start - whole.start, here.stop - whole.start, len(whole)
                before, first, after = tile.between(axis, ends)
                *found, last = (part for part in (first, after, before) if part.outputs)
                return found, last
    return [], tile


def _finer_tiles(tile: Tile, batch: bool, finer: int) -> list[Tile]:
    """Many equal tiles along both axes, there and back, so that panels are used again."""
    most = [1 / (_MOST_TILES * finer)] * (_MOST_TILES * finer)
    if batch:
        return _cut(tile, "batch", most)
    return back_and_forth([_cut(strip, "m", most)
                           for strip in _cut(tile, "n", [1 / finer] * finer)])


def _growing(least: float, growth: float, leaves: bool) -> list[float]:
    """Parts of a share: the least first if something arrives, last if something leaves."""
    last = [least] if leaves else []
    left = 1 - sum(last)
    found: list[float] = []
    while left > least / 2:
        step = (found[-1] * growth if found else least) if growth else left
        found.append(left if left - step < least else step)
        left -= found[-1]
    return found + last


def _cut(tile: Tile, axis: str, fractions: Sequence[float]) -> list[Tile]:
    """A tile in parts along an axis, none of them empty."""
    ends = _ends(len(getattr(tile, axis)), fractions)
    return [part for part in tile.between(axis, ends) if getattr(part, axis)]
