"""Calls on NumPy arrays in tiles: they arrive, are computed, and leave at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
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

__all__ = ["Operand", "Tiled", "exchanged", "stream_copy", "stream_product", "stream_tiles"]

_SURELY_FREE = 256 << 20          # bytes: whether there are so many is found out by asking for them
_MOST_HALVINGS = 4
_PATIENCE = 2.0                         # seconds before progress is shown
_MOMENT = 20e-6                         # seconds
_MOST_RESULTS = 1                       # that leave while the next one is computed


exchanged: ContextVar[Exchange | None] = ContextVar("cuteblas_exchanged", default=None)
"""The operand that other devices bring in parts while they compute theirs of the product."""


class Operand(NamedTuple):
    """An array of a call in tiles; ``axes`` are batch, rows, columns and sum, or ``None``."""

    array: np.ndarray
    axes: tuple[int | None, ...]

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


@dataclass(frozen=True, eq=False)
class Tiled:
    """A call in tiles: ``compute`` takes a tile's operands and its result; ``add`` takes those of
    a part of a sum and the sum so far."""

    function: str
    extents: Extents
    operands: tuple[Operand, ...]
    result: Operand
    compute: Callable[[Sequence[Any], Any], None]
    add: Callable[[Sequence[Any], Any], Any] | None = None


def stream_product(function: str, a: np.ndarray, b: np.ndarray, c: np.ndarray,
                   others: Mapping[str, np.ndarray], compute: Callable[[Sequence[Any], Any], None],
                   add: Callable[[Sequence[Any], Any], Any] | None = None) -> bool:
    """Compute something of products in tiles; ``False`` if there are none."""
    # Operands are (..., m, k) and (..., k, n); ``c`` shares no memory with them; ``others`` have
    # the shape of the result or none.
    if max(a.ndim, b.ndim) > c.ndim:                        # axes of extent 1 that out lacks
        return False
    first = 0 if c.ndim > 2 else None                       # the axis of the batch
    # whether an operand has its own elements for each index of it
    own_a, own_b = (x.ndim == c.ndim > 2 and x.shape[0] > 1 and x.strides[0] != 0 for x in (a, b))
    batch, many = (c.shape[0], prod(c.shape[1:-2])) if c.ndim > 2 else (1, 1)
    moved = sum(x.itemsize for x in others.values() if x.ndim and all(x.strides[-2:]))
    extents = Extents(c.shape[-2], c.shape[-1], a.shape[-1], batch, many, a.itemsize, b.itemsize,
                      c.itemsize + moved, own_a, own_b, np.may_share_memory(a, b),
                      abs(c.strides[-2]) >= abs(c.strides[-1]), add is not None,
                      seconds=gpu_seconds(c.dtype, prod(c.shape) * a.shape[-1]),
                      a_kept=expected([a]) > 0, b_kept=expected([b]) > 0)
    # repeated along the batch
    a, b = (x[:1] if x.ndim == c.ndim > 2 and not own else x for x, own in ((a, own_a), (b, own_b)))
    operands = (Operand(a, (first if own_a else None, a.ndim - 2, None, a.ndim - 1)),
                Operand(b, (first if own_b else None, None, b.ndim - 1, b.ndim - 2)),
                *(Operand(x, (first, x.ndim - 2, x.ndim - 1, None) if x.ndim else (None,) * 4)
                  for x in others.values()))
    result = Operand(c, (first, c.ndim - 2, c.ndim - 1, None))
    if stream_tiles(Tiled(function, extents, operands, result, compute, add)):
        return True
    if c.ndim < 4:
        return False
    def each(x: np.ndarray, i: int) -> np.ndarray:
        return x if x.ndim < c.ndim else x[i] if x.shape[0] > 1 else x[0]

    return all(stream_product(function, each(a, i), each(b, i), c[i],
                              {name: each(x, i) for name, x in others.items()}, compute, add)
               for i in range(batch))


def stream_copy(function: str, a: np.ndarray, new: np.ndarray, variant: str | None) -> bool:
    """Copy a NumPy array in parts of one axis; ``False`` if there are none."""
    if not a.size or not a.ndim or np.may_share_memory(a, new):
        return False
    axis = max(range(a.ndim), key=lambda i: (min(abs(a.strides[i]), abs(new.strides[i]))
                                             * a.shape[i], abs(new.strides[i])))
    run = Execution(f"{function}: tiles", CUDA)
    each = a.nbytes // a.shape[axis]
    extents = Extents(a.shape[axis], 1, 1, a_bytes=each, b_bytes=0, c_bytes=each,
                      may_divide_k=False, grain=1, a_kept=expected([a]) > 0)
    axes = None, axis, None, None
    if stream_tiles(Tiled(function, extents, (Operand(a, axes),), Operand(new, axes),
                          lambda there, target: run.move(there[0], target, variant))):
        return True
    first, second = np.moveaxis(a, axis, 0), np.moveaxis(new, axis, 0)
    return a.ndim > 1 and all(stream_copy(function, *both, variant=variant)
                              for both in zip(first, second, strict=True))


def stream_tiles(call: Tiled) -> bool:
    """Compute all tiles, smaller ones if the device lacks memory; ``False`` if there are none."""
    x, function = call.extents, call.function
    room = free_bytes() if x.a + x.b + x.c > _SURELY_FREE else 4 * _SURELY_FREE
    if (limit := workspace_limit()) is not None:
        room = min(room, limit)
    exchange = exchanged.get()
    if exchange is not None and not any(exchange.is_of(operand.array)
                                        for operand in call.operands[:2]):
        exchange = None
    for _ in range(_MOST_HALVINGS):
        plan = schedule(x, room) if exchange is None else exchange.schedule(x, room)
        if plan is None and exchange is not None:
            exchange.abandon(current_ring().link.ordinal)
            exchange, plan = None, schedule(x, room)
        if plan is None:
            return False
        try:
            with crossing() as way:
                _Streamed(way, plan, call, exchange).run()
        except (CUDA.out_of_memory, Abandoned) as error:
            if exchange is not None:
                exchange.abandon(current_ring().link.ordinal)
                exchange = None
            if isinstance(error, Abandoned):
                continue
            tally(function, "moved", "smaller tiles: no memory on the GPU").tick()
            room //= 2
        else:
            tally(function, "calls", "in tiles").tick()
            tally(function, "moved", f"to cuda:{way.ring.link.ordinal}").tick()
            return True
    return False


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
        in_parts = any(len(tile.k) < call.extents.k for tile in plan.tiles)
        self.whole = None if in_parts else way.home_of(call.result.array)
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
            same = [i + d for d in (-1, 1) if 0 <= i + d < len(tiles)
                    and tiles[i + d][:3] == tile[:3]]
            if same and call.add is not None:
                first, last = i - 1 not in same, i + 1 not in same
                sum_so_far = call.add(there, None if first else sum_so_far)
                if last:
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
