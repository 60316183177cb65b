"""Products over several GPUs: operands move between them, tiles are multiplied, and results leave
at the same time.

:mod:`cuteblas.planning.sharding` says which device computes what, in which tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import cupy

from ..planning.sharding import (
    AXES,
    Cost,
    Extents,
    Held,
    Operands,
    Panel,
    Part,
    Share,
    Spread,
    spread,
)
from ..runtime.peers import LANES, Peers, peers
from .counters import tally
from .cuda import CUDA
from .memory import Memory, strides_by_order
from .peer_copies import copy_box, hold
from .sharded import ShardedArray

__all__ = ["multiply_over"]

_MOST_HALVINGS = 4
_FEW_SLOTS = 3                         # for panels of an operand, where there is no memory for all

Multiply = Callable[[Any, Any, Any], None]
"""A product of CuPy arrays of one device: A, B and where C goes."""


def multiply_over(function: str, devices: Sequence[int], a: ShardedArray, b: ShardedArray,
                  c: ShardedArray, cost: Cost, multiply: Multiply, reads_c: bool = False) -> Spread:
    """Compute C of matrices, or of one batch axis of them, over devices.

    Parameters
    ----------
    function : str
        On whose account.
    devices : sequence of int
        Which may compute.
    a, b, c : ShardedArray
        Of shapes (batch, m, k), (batch, k, n) and (batch, m, n), or without the batch; C is written
        where it is.
    cost : Cost
        The expected time of it and of its parts on one device.
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
    extents = Extents(c.shape[0] if c.ndim == 3 else 1, a.shape[-2], b.shape[-1], a.shape[-1])
    held = Operands(_held("a", a), _held("b", b), replace(_held("c", c), read=reads_c))
    for halving in range(_MOST_HALVINGS + 1):
        plan = spread(extents, held, tuple(devices), cost, between.rate, 2**halving,
                      _FEW_SLOTS if halving else None)
        workers = [_Worker(between, share, {"a": a, "b": b, "c": c}, multiply, reads_c)
                   for share in plan.shares]
        try:
            for worker in workers:
                worker.reserve()
            _run(between, workers, sorted({*(share.device for share in plan.shares), *a.devices,
                                           *b.devices, *c.devices}))
            break
        except CUDA.out_of_memory:
            if halving == _MOST_HALVINGS or any(worker.began for worker in workers):
                raise
            workers.clear()
            for share in plan.shares:
                with between.on(share.device):
                    cupy.get_default_memory_pool().free_all_blocks()
            tally(function, "moved", "smaller tiles: no memory on a GPU").tick()
    for share in plan.shares:
        tally(function, "spread", f"on cuda:{share.device}").tick()
    return plan


def _held(name: str, x: ShardedArray) -> Held:
    axes = AXES[name][-x.ndim:]
    return Held(
        axes,
        axes[x.axis],
        tuple(
            Part(device, start, start + part.shape[x.axis])
            for device, start, part in zip(x.devices, x.starts, x.shards, strict=True)
        ),
        x.nbytes
    )


def _run(between: Peers, workers: Sequence[_Worker], devices: Sequence[int]) -> None:
    """Begin everything. The current streams of all devices that have a part follow it."""
    begun = [between.record(device, "kernels") for device in devices]
    for worker in workers:
        for lane in LANES:
            for event in begun:
                between.wait(worker.device, lane, event)
    steps = [worker.run() for worker in sorted(workers, key=lambda worker: -worker.share.up)]
    try:
        while steps:               # copies for the first tiles of all, their first tiles, and so on
            steps = [step for step in steps if next(step, None) is not None]
    finally:                       # after an error too: copies that have begun go on
        ended = [between.record(worker.device, lane) for worker in workers for lane in LANES]
        for device in devices:
            for event in ended:
                between.wait(device, "kernels", event)
        hold(between, ended)


class _Slot:
    """Memory of a device for what is elsewhere: what it holds, since when, and until when."""

    __slots__ = ("array", "filled", "free", "key", "memory")

    def __init__(self, memory: Any):
        self.memory = memory
        self.array: Any = None
        self.filled: Any = None
        self.free: Any = None
        self.key: int | None = None


class _Worker:
    """One device at its share."""

    def __init__(self, between: Peers, share: Share, arrays: dict[str, ShardedArray],
                 multiply: Multiply, reads_c: bool):
        self.between, self.share, self.device, self.arrays = between, share, share.device, arrays
        self.multiply, self.read, self.began = multiply, ("a", "b",
                                                          "c") if reads_c else ("a", "b"), False
        self.slots: dict[tuple[str, int], _Slot] = {}

    def reserve(self) -> None:
        """Ask for the memory of all slots."""
        sizes: dict[tuple[str, int], int] = {}
        for step in self.share.steps:
            for name, panel in zip("abc", step, strict=True):
                if panel.slot is not None:
                    nbytes = prod(panel.shape) * self.arrays[name].dtype.itemsize
                    sizes[name, panel.slot] = max(nbytes, sizes.get((name, panel.slot), 1))
        with self.between.on(self.device):
            self.slots = {which: _Slot(cupy.cuda.alloc(nbytes)) for which, nbytes in sizes.items()}

    def run(self) -> Iterator[int]:
        """Begin the copies for some tiles, then compute tile after tile; each is a step."""
        self.began = True
        asked = 0
        for i, step in enumerate(self.share.steps):
            for later in self.share.steps[asked:i + _FEW_SLOTS]:
                for name in self.read:
                    self._bring(name, getattr(later, name))
            asked = max(asked, i + _FEW_SLOTS)
            yield i
            found = {name: self._taken(name, getattr(step, name)) for name in self.read}
            with self.between.on(self.device):
                c = found["c"] if "c" in found else self._target(step.c)
                self.multiply(found["a"], found["b"], c)
            used = [slot for name in self.read
                    if (slot := self._slot(name, getattr(step, name))) is not None]
            if used or step.c.slot is not None:
                ended = self.between.record(self.device, "kernels")
                for slot in used:
                    slot.free = ended
                if step.c.slot is not None:
                    self._leave(step.c, c, ended)

    def _slot(self, name: str, panel: Panel) -> _Slot | None:
        return None if panel.slot is None else self.slots[name, panel.slot]

    def _here(self, name: str, panel: Panel) -> Any:
        """A panel that lies in a shard on this device."""
        piece, = panel.pieces
        return self.arrays[name].shards[piece.shard][piece.inside]

    def _array(self, name: str, panel: Panel, slot: _Slot) -> Any:
        """An array in a slot, its axes in memory as in the shards, so that runs stay long."""
        x = self.arrays[name].shards[panel.pieces[0].shard]
        return cupy.ndarray(panel.shape, x.dtype, slot.memory,
                            strides_by_order(Memory(panel.shape, x.strides, x.dtype), "K"))

    def _bring(self, name: str, panel: Panel) -> None:
        slot = self._slot(name, panel)
        if slot is None or slot.key == panel.key:
            return
        if slot.free is not None:
            self.between.wait(self.device, "in", slot.free)
        slot.key, slot.array = panel.key, self._array(name, panel, slot)
        for piece in panel.pieces:
            source = self.arrays[name].shards[piece.shard][piece.inside]
            copy_box(self.between, (self.device, "in"), (self.device, slot.array[piece.within]),
                     (piece.device, source))
        slot.filled = self.between.record(self.device, "in")

    def _taken(self, name: str, panel: Panel) -> Any:
        """The panel of an array that a tile needs, for kernels that are launched from now on."""
        slot = self._slot(name, panel)
        if slot is None:
            return self._here(name, panel)
        self.between.wait(self.device, "kernels", slot.filled)
        return slot.array

    def _target(self, panel: Panel) -> Any:
        slot = self._slot("c", panel)
        if slot is None:
            return self._here("c", panel)
        if slot.free is not None:
            self.between.wait(self.device, "kernels", slot.free)
        return self._array("c", panel, slot)

    def _leave(self, panel: Panel, c: Any, ended: Any) -> None:
        self.between.wait(self.device, "out", ended)
        for piece in panel.pieces:
            target = self.arrays["c"].shards[piece.shard][piece.inside]
            copy_box(self.between, (self.device, "out"), (piece.device, target),
                     (self.device, c[piece.within]))
        slot = self._slot("c", panel)
        assert slot is not None
        slot.free = self.between.record(self.device, "out")
