"""Calls on NumPy arrays in tiles: they arrive, are computed, and leave at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from ..planning.streaming import Extents, Schedule, Tile, schedule
from ..runtime.ring import Ring
from .counters import tally
from .cuda import CUDA
from .exchange import Abandoned, Exchange
from .execution import Execution
from .host_cuda import Crossing, compact, crossing, current_ring, free_bytes
from .keeping import expected
from .placement import gpu_seconds
from .settings import workspace_limit

__all__ = ["Operand", "Tiled", "exchanged", "operands_of_product", "stream_copy", "stream_tiles"]

_SURELY_FREE = 256 << 20          # bytes: whether there are so many is found out by asking for them
_MOST_HALVINGS = 4
_PATIENCE = 2.0                         # seconds before progress is shown
_MOMENT = 20e-6                         # seconds
_MOST_RESULTS = 1                       # that leave while the next one is computed


exchanged: ContextVar[Exchange | None] = ContextVar("cuteblas_exchanged", default=None)
"""The operand that other devices bring in parts while they compute theirs of the product."""


class Operand(NamedTuple):
    """An array of a call in tiles, or one in shards; ``axes`` are batch, rows, columns and sum, or
    ``None``."""

    array: Any
    axes: tuple[int | None, ...]

    @property
    def extents(self) -> list[int]:
        return [1 if axis is None else self.array.shape[axis] for axis in self.axes]

    @property
    def element_bytes(self) -> int:
        """Bytes for each index of its axes, all others together."""
        return self.array.nbytes // max(prod(self.extents), 1)

    def part(self, tile: Tile, whole: Any = None) -> Any:
        """The part that a tile needs; of ``whole`` if that has been moved."""
        # an array without axes stays one
        box: list[Any] = [*[slice(None)] * self.array.ndim, ...]
        for axis, part in zip(self.axes, tile, strict=True):
            if axis is not None:
                box[axis] = slice(part.start, part.stop)
        return (self.array if whole is None else whole)[tuple(box)]

    def key(self, tile: Tile) -> tuple[Any, ...]:
        """What tiles have in common that need the same elements."""
        return tuple(part if self.array.strides[axis] else len(part)
                     for axis, part in zip(self.axes, tile, strict=True) if axis is not None)


_NOTHING = Operand(np.empty(0, bool), (None,) * 4)


@dataclass(frozen=True, eq=False)
class Tiled:
    """A call in tiles: ``compute`` takes a tile's operands and its result; ``add`` takes those of
    a part of a sum and the sum so far."""

    function: str
    operands: tuple[Operand, ...]
    result: Operand
    compute: Callable[[Sequence[Any], Any], None]
    add: Callable[[Sequence[Any], Any], Any] | None = None

    @cached_property
    def extents(self) -> Extents:
        """What decides how the call moves. The first two operands are A and B, with axes of the sum
        if they are matrices; others are of the shape of the result, or of none."""
        c, (a, *others) = self.result, self.operands
        b, *over_c = others or [_NOTHING]
        batch, m, n, _one = c.extents
        k, of_matrices = a.extents[3], a.axes[3] is not None
        rows, columns = (axis if axis is None else abs(c.array.strides[axis])
                         for axis in c.axes[1:3])
        moved = sum(x.array.itemsize for x in over_c if x.array.ndim and all(x.array.strides[-2:]))
        kept_a, kept_b = (expected([x.array]) > 0 for x in (a, b))
        return Extents(m, n, k, batch, a.element_bytes, b.element_bytes, c.element_bytes + moved,
                       a.axes[0] is not None, b.axes[0] is not None,
                       np.may_share_memory(a.array, b.array),
                       rows is None or columns is None or rows >= columns, self.add is not None,
                       not of_matrices,
                       gpu_seconds(c.array.dtype, c.array.size * k) if of_matrices else 0.0,
                       kept_a, kept_b)

    def within(self, tile: Tile, convert: Callable[[np.ndarray], np.ndarray]) -> Tiled:
        """The part of a call, with its arrays converted."""
        result, *operands = (x._replace(array=convert(x.part(tile)))
                             for x in (self.result, *self.operands))
        return replace(self, operands=tuple(operands), result=result)


def operands_of_product(a: np.ndarray, b: np.ndarray,
                        c: np.ndarray) -> tuple[Operand, Operand, Operand]:
    """A (..., m, k), B (..., k, n) and C, whose outermost batch axis is divided; what is repeated
    along it moves once."""
    def stack(x: np.ndarray, *core: int | None) -> Operand:
        is_own = x.ndim == c.ndim > 2 and x.shape[0] > 1 and x.strides[0] != 0
        repeated = x.ndim == c.ndim > 2 and not is_own
        return Operand(x[:1] if repeated else x, (0 if is_own else None, *core))

    return (stack(a, a.ndim - 2, None, a.ndim - 1), stack(b, None, b.ndim - 1, b.ndim - 2),
            Operand(c, (0 if c.ndim > 2 else None, c.ndim - 2, c.ndim - 1, None)))


def stream_copy(function: str, a: np.ndarray, new: np.ndarray, variant: str | None) -> bool:
    """Copy a NumPy array in parts of one axis; ``False`` if there are none."""
    if not a.size or not a.ndim or np.may_share_memory(a, new):
        return False
    axis = max(range(a.ndim), key=lambda i: (min(abs(a.strides[i]), abs(new.strides[i]))
                                             * a.shape[i], abs(new.strides[i])))
    run = Execution(f"{function}: tiles", CUDA)
    source, target = (Operand(x, (None, axis, None, None)) for x in (a, new))
    if stream_tiles(Tiled(function, (source,), target,
                          lambda there, into: run.move(there[0], into, variant))):
        return True
    first, second = np.moveaxis(a, axis, 0), np.moveaxis(new, axis, 0)
    return a.ndim > 1 and all(stream_copy(function, *both, variant=variant)
                              for both in zip(first, second, strict=True))


def stream_tiles(call: Tiled) -> bool:
    """Compute all tiles, smaller ones if the device lacks memory; ``False`` if there are none."""
    x, exchange = call.extents, exchanged.get()
    room = free_bytes() if x.a + x.b + x.c > _SURELY_FREE else 4 * _SURELY_FREE
    if (limit := workspace_limit()) is not None:
        room = min(room, limit)
    if exchange is not None and any(exchange.is_of(operand.array) for operand in call.operands[:2]):
        with suppress(CUDA.out_of_memory, Abandoned):
            if _are_streamed(call, exchange.schedule(x, room), exchange):
                return True
        exchange.abandon(current_ring().link.ordinal)
    for _ in range(_MOST_HALVINGS):
        try:
            return _are_streamed(call, schedule(x, room))
        except CUDA.out_of_memory:
            tally(call.function, "moved", "smaller tiles: no memory on the GPU").tick()
            room //= 2
    return False


def _are_streamed(call: Tiled, plan: Schedule | None, exchange: Exchange | None = None) -> bool:
    if plan is None:
        return False
    with crossing() as way:
        _Streamed(way, plan, call, exchange).run()
    tally(call.function, "calls", "in tiles").tick()
    tally(call.function, "moved", f"to cuda:{way.ring.link.ordinal}").tick()
    return True


def shown(tiles: Sequence[Tile]) -> Iterable[Tile]:
    """The tiles; with ``CUTEBLAS_PROGRESS=1`` and tqdm, a bar on stderr after some seconds."""
    if len(tiles) < 2 or os.environ.get("CUTEBLAS_PROGRESS", "0") in ("", "0"):
        return tiles
    try:
        from tqdm import tqdm
    except ImportError:
        return tiles
    return tqdm(tiles, "cuteblas", unit="tile", delay=_PATIENCE, leave=False)


class _Panels:
    """The panels on the device or on their way; none move if all operands are there."""

    def __init__(self, way: Crossing, operands: Sequence[Operand], together: bool,
                 exchange: Exchange | None):
        self._way, self._operands = way, operands
        self._exchanges = {} if exchange is None else {
            i: exchange for i, operand in enumerate(operands[:2]) if exchange.is_of(operand.array)}
        self._there: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}
        kept = ((i, way.kept(operand.array)) for i, operand in enumerate(operands))
        self._whole = {i: there for i, there in kept if there is not None}
        if together and not self._whole.keys() & {0, 1}:  # A and B are one memory, which moves once
            self._whole |= enumerate(way.begin([operand.array for operand in operands[:2]])[0])
        self._first = [*way.uploads]
        self.move = len(self._whole) < len(operands)

    def ask(self, tile: Tile) -> None:
        for i, operand in enumerate(self._operands):
            key = i, operand.key(tile)
            if i not in self._whole and key not in self._there:
                if i in self._exchanges:
                    self._there[key] = self._exchanges[i].begin(self._way, operand.part(tile))
                    continue
                (panel,), transfers = self._way.begin([operand.part(tile)])
                self._there[key] = panel, transfers

    def take(self, tile: Tile) -> list[Any]:
        """The panels of a tile, for kernels that are launched from now on."""
        if self._first:
            self._way.arrived(self._first, helps=True)
            self._first = []
        found = []
        for i, operand in enumerate(self._operands):
            if i in self._whole:
                found.append(operand.part(tile, self._whole[i]))
                continue
            panel, transfers = self._there[i, operand.key(tile)]
            self._way.arrived(transfers, helps=not self._way.streams)
            transfers.clear()
            if i in self._exchanges:
                self._exchanges[i].complete(self._way, operand.key(tile), panel)
            found.append(panel)
        return found

    def keep(self, tiles: Sequence[Tile]) -> None:
        wanted = {(i, operand.key(tile)) for tile in tiles
                  for i, operand in enumerate(self._operands)}
        for key in self._there.keys() - wanted:
            del self._there[key]


class _Streamed:
    def __init__(self, way: Crossing, plan: Schedule, call: Tiled,
                 exchange: Exchange | None = None):
        self.way, self.plan, self.call = way, plan, call
        way.kind = call.function
        way.keeper.leave(call.result.array)
        self.sums = len(plan.tiles[0].k) < call.extents.k      # are divided
        self.whole = None if self.sums else way.home_of(call.result.array)
        self.panels = _Panels(way, call.operands, plan.together, exchange)
        # a tile that leaves when the next one has been launched
        self._computed: tuple[np.ndarray, Any, Any] | None = None

    def run(self) -> None:
        tiles, ahead, call = self.plan.tiles, self.plan.ahead, self.call
        self.way.streams = len(tiles) > 2
        asked = 0
        sum_so_far: Any = None
        for i, tile in enumerate(shown(tiles)):
            if asked and asked < len(tiles):
                self.way.ring.link.uploads_follow_kernels()    # panels may get the memory of others
            while asked < min(i + ahead + 1, len(tiles)):
                self.panels.ask(tiles[asked])
                if not asked and self.way.uploads and isinstance(self.way.ring, Ring):
                    sleep(_MOMENT)                     # threads that wait for the interpreter begin
                asked += 1
            there = self.panels.take(tile)
            here = call.result.part(tile)
            if self.sums and call.add is not None:
                sum_so_far = call.add(there, sum_so_far)
                if tile.k.stop == call.extents.k:
                    self._leave(here, sum_so_far)
                    sum_so_far = None
            else:
                target = CUDA.empty(compact(here)) if self.whole is None \
                    else call.result.part(tile, self.whole)
                call.compute(there, target)
                self._leave(here, target)
                del target
            del there
            if ahead < len(tiles):
                self.panels.keep(tiles[i + 1:i + ahead + 1])
                self.way.returned(_MOST_RESULTS)
        self._bring()
        self.way.finish()
        self.way.arrive(call.result.array, self.whole)

    def _leave(self, here: np.ndarray, there: Any) -> None:
        """Begin to bring a tile or, if no operand moves, the one before."""
        link = self.way.ring.link
        if self.panels.move:
            link.downloads_follow_kernels()
            self.way.fetch(there, here)
            return
        self._bring()
        self._computed = here, there, link.launched()

    def _bring(self) -> None:
        """Begin to bring the tile that was computed before, when its kernels have ended."""
        if self._computed is not None:
            here, there, ended = self._computed
            self._computed = None
            self.way.ring.link.wait(ended)
            self.way.fetch(there, here)
