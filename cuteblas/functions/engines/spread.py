"""Products over several GPUs: operands move between them, tiles are multiplied, and results leave at the same time.

:mod:`cuteblas.planning.sharding` says which device computes what, in which tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import cupy

from ...planning.sharding import AXES, Held, Part, Share, Spread, places, spread
from ...planning.streaming import Tile
from ...runtime.peers import Peers, peers
from ..counters import tally
from ..memory import Memory, strides_by_order
from ..sharded import ShardedArray
from .cuda import CUDA
from .peer_copies import copy_box

__all__ = ["multiply_over"]

_MOST_HALVINGS = 4

Multiply = Callable[[Any, Any, Any], None]
"""A product of CuPy arrays of one device: A, B and where C goes."""


def multiply_over(function: str, devices: Sequence[int], a: ShardedArray, b: ShardedArray, c: ShardedArray, seconds: float,
                  multiply: Multiply, reads_c: bool = False) -> Spread:
    """Compute C of matrices, or of one batch axis of them, over devices.

    Parameters
    ----------
    function : str
        On whose account.
    devices : sequence of int
        Which may compute.
    a, b, c : ShardedArray
        Of shapes (batch, m, k), (batch, k, n) and (batch, m, n), or without the batch; C is written where it is.
    seconds : float
        The expected time of all of it on one device.
    multiply : callable
        Multiplies tiles.
    reads_c : bool
        Whether C is also read.

    Returns
    -------
    Spread
        What was done.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If a device has no memory for the smallest tiles.
    """
    between = peers()
    extents = {"batch": c.shape[0] if c.ndim == 3 else 1, "m": a.shape[-2], "n": b.shape[-1], "k": a.shape[-1]}
    held = {name: _held(name, x) for name, x in (("a", a), ("b", b), ("c", c))}
    for halving in range(_MOST_HALVINGS + 1):
        plan = spread(extents, held, devices, seconds, between.rate, 2**halving)
        work = _Spread(between, plan, extents, held, {"a": a, "b": b, "c": c}, multiply, reads_c)
        try:
            with work.memory(whole=not halving):
                work.run()
            break
        except CUDA.out_of_memory:
            if work.began or halving == _MOST_HALVINGS:
                raise
            for share in plan.shares:
                with between.on(share.device):
                    cupy.get_default_memory_pool().free_all_blocks()
            tally(function, "moved", "smaller tiles: no memory on a GPU").tick()
    for share in plan.shares:
        tally(function, "spread", f"on cuda:{share.device}").tick()
    return plan


def _held(name: str, x: ShardedArray) -> Held:
    axes = AXES[name][-x.ndim:]
    return Held(axes, axes[x.axis], tuple(Part(device, start, start + part.shape[x.axis])
                                          for device, start, part in zip(x.devices, x.starts, x.shards, strict=True)), x.nbytes)


class _Spread:
    """One product on its way."""

    def __init__(self, between: Peers, plan: Spread, extents: dict[str, int], held: dict[str, Held],
                 arrays: dict[str, ShardedArray], multiply: Multiply, reads_c: bool):
        self.between, self.plan, self.extents, self.held, self.arrays = between, plan, extents, held, arrays
        self.multiply, self.reads_c, self.began = multiply, reads_c, False
        self.workers = [_Worker(self, share) for share in plan.shares]
        self.devices = sorted({*(share.device for share in plan.shares), *(d for x in arrays.values() for d in x.devices)})

    def memory(self, whole: bool) -> _Reserved:
        """Memory on all devices for what moves, while this lasts; of all tiles, or of a few at a time."""
        return _Reserved(self.workers, whole)

    def run(self) -> None:
        """Begin everything. The current streams of all devices that have a part follow it."""
        self.began = True
        begun = [self.between.record(device, "kernels") for device in self.devices]
        for worker in self.workers:
            for lane in ("kernels", "in", "out"):
                for event in begun:
                    self.between.wait(worker.device, lane, event)
        steps = [worker.steps() for worker in sorted(self.workers, key=lambda worker: -worker.share.up)]
        while steps:                                    # all copies begin, then the first tile of each device, and so on
            steps = [step for step in steps if next(step, None) is not None]
        ended = [self.between.record(worker.device, lane) for worker in self.workers for lane in ("kernels", "in", "out")]
        for device in self.devices:
            for event in ended:
                self.between.wait(device, "kernels", event)

    def region(self, name: str, tile: Tile) -> dict[str, tuple[int, int]]:
        """Where what a tile needs of an array begins and ends, by axes."""
        return {axis: cut.indices(self.extents[axis])[:2] for axis, cut in self.held[name].box(tile).items()}

    def boxes(self, name: str, tile: Tile) -> list[tuple[int, Any, tuple[slice, ...]]]:
        """The shards that a tile meets: device, view of the shard, and the part of what the tile needs that it is."""
        held, region, found = self.held[name], self.region(name, tile), []
        for part, box in places(self.extents, held, tile):
            inside, within = [], []
            for axis, cut in box.items():
                low, high, _step = cut.indices(self.extents[axis])
                first = part.start if axis == held.axis else 0
                inside.append(slice(low - first, high - first))
                within.append(slice(low - region[axis][0], high - region[axis][0]))
            shard = self.arrays[name].shards[held.parts.index(part)]
            found.append((part.device, shard[tuple(inside)], tuple(within)))
        return found

    def shape(self, name: str, tile: Tile) -> tuple[int, ...]:
        """The extents of what a tile needs of an array."""
        return tuple(stop - start for start, stop in self.region(name, tile).values())


class _Worker:
    """One device's share."""

    def __init__(self, work: _Spread, share: Share):
        self.work, self.share, self.device, self.between = work, share, share.device, work.between
        self.slots: dict[str, list[_Slot]] = {"a": [], "b": [], "c": []}
        self.keys = {name: list(dict.fromkeys(self._key(name, tile) for tile in share.tiles)) for name in "abc"}

    def _key(self, name: str, tile: Tile) -> tuple[Any, ...]:
        return tuple(self.work.region(name, tile).values())

    def _is_here(self, name: str, tile: Tile) -> bool:
        found = self.work.boxes(name, tile)
        return len(found) == 1 and found[0][0] == self.device

    # -- memory -------------------------------------------------------------------------------------------------------------------
    def reserve(self, whole: bool) -> None:
        """Ask for memory for what is elsewhere: for all tiles, or for three at a time."""
        with self.between.on(self.device):
            for name in "abc":
                sizes: dict[tuple[Any, ...], int] = {}
                for tile in self.share.tiles:
                    if not self._is_here(name, tile):
                        elements = prod(self.work.shape(name, tile))
                        sizes[self._key(name, tile)] = elements * self.work.arrays[name].dtype.itemsize
                if sizes:
                    count = len(sizes) if whole else min(3, len(sizes))
                    self.slots[name] += [_Slot(cupy.cuda.alloc(max(1, *sizes.values()))) for _ in range(count)]

    def _slot(self, name: str, tile: Tile) -> int:
        return self.keys[name].index(self._key(name, tile)) % len(self.slots[name])

    def _array(self, name: str, tile: Tile, slot: _Slot) -> Any:
        """An array in a slot, its axes in memory as in the shards, so that runs stay long."""
        shape, x = self.work.shape(name, tile), self.work.boxes(name, tile)[0][1]
        return cupy.ndarray(shape, x.dtype, slot.memory, strides_by_order(Memory(shape, x.strides, x.dtype), "K"))

    # -- steps --------------------------------------------------------------------------------------------------------------------
    def steps(self) -> Iterator[int]:
        """Begin the copies for as many tiles as there is memory for, then compute tile after tile; each is a step."""
        tiles, names = self.share.tiles, ("a", "b", "c") if self.work.reads_c else ("a", "b")
        rings = [len(self.slots[name]) for name in names if len(self.keys[name]) > len(self.slots[name]) > 0]
        ahead, asked = min(rings, default=len(tiles)), 0
        for i, tile in enumerate(tiles):
            for j in range(asked, min(i + ahead, len(tiles))):
                for name in names:
                    if not self._is_here(name, tiles[j]):
                        self._bring(name, tiles[j])
                asked = j + 1
            yield i
            found = {name: self._taken(name, tile) for name in names}
            with self.between.on(self.device):
                c = found["c"] if "c" in found else self._target(tile)
                self.work.multiply(found["a"], found["b"], c)
            ended = self.between.record(self.device, "kernels")
            for name in names:
                if self.slots[name]:
                    self.slots[name][self._slot(name, tile)].free = ended
            if not self._is_here("c", tile):
                self._leave(tile, c, ended)

    def _bring(self, name: str, tile: Tile) -> None:
        slot, key = self.slots[name][self._slot(name, tile)], self._key(name, tile)
        if slot.key == key:
            return
        if slot.free is not None:
            self.between.wait(self.device, "in", slot.free)
        slot.key, slot.array = key, self._array(name, tile, slot)
        for device, source, box in self.work.boxes(name, tile):
            copy_box(self.between, (self.device, "in"), (self.device, slot.array[box]), (device, source))
        slot.filled = self.between.record(self.device, "in")

    def _taken(self, name: str, tile: Tile) -> Any:
        """What a tile needs of an array, for kernels that are launched from now on."""
        if self._is_here(name, tile):
            return self.work.boxes(name, tile)[0][1]
        slot = self.slots[name][self._slot(name, tile)]
        self.between.wait(self.device, "kernels", slot.filled)
        return slot.array

    def _target(self, tile: Tile) -> Any:
        if self._is_here("c", tile):
            return self.work.boxes("c", tile)[0][1]
        slot = self.slots["c"][self._slot("c", tile)]
        if slot.free is not None:
            self.between.wait(self.device, "kernels", slot.free)
        return self._array("c", tile, slot)

    def _leave(self, tile: Tile, c: Any, ended: Any) -> None:
        self.between.wait(self.device, "out", ended)
        for device, target, box in self.work.boxes("c", tile):
            copy_box(self.between, (self.device, "out"), (device, target), (self.device, c[box]))
        self.slots["c"][self._slot("c", tile)].free = self.between.record(self.device, "out")


class _Slot:
    """Memory of a device for what is elsewhere: what it holds, since when, and until when."""

    __slots__ = ("array", "filled", "free", "key", "memory")

    def __init__(self, memory: Any):
        self.memory = memory
        self.array: Any = None
        self.filled: Any = None
        self.free: Any = None
        self.key: Any = None


class _Reserved:
    """Memory of all workers."""

    def __init__(self, workers: Sequence[_Worker], whole: bool):
        self._workers, self._whole = workers, whole

    def __enter__(self) -> None:
        try:
            for worker in self._workers:
                worker.reserve(self._whole)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_error: object) -> None:
        for worker in self._workers:
            for slots in worker.slots.values():
                slots.clear()
