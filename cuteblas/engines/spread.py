"""Products over several GPUs: operands move, tiles are multiplied and results leave at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import cupy

from ..planning.sharding import Action, Cost, Held, Operands, Panel, Part, Spread, spread
from ..planning.streaming import Tile
from ..runtime.peers import Lane, Peers, peers
from .counters import tally
from .cuda import CUDA
from .memory import Memory, new_memory
from .peer_copies import Copies, boxes_of
from .streamed import Operand, Tiled

__all__ = ["compute_over"]

_MOST_HALVINGS = 4
_FEW_SLOTS = 3                         # for panels of an operand, where there is no memory for all

def compute_over(devices: Sequence[int], call: Tiled, cost: Cost, reads_c: bool = False) -> Spread:
    """Compute a call on arrays in shards over devices, where its result is."""
    # ``cost`` is the expected time of it and of its parts on one device; ``reads_c``: C is also
    # read.
    between = peers()
    whole = Tile.whole(*call.result.extents)
    a, b, c = map(_held, (*call.operands, call.result))
    held = Operands(a, b, replace(c, read=reads_c))
    for halving in range(_MOST_HALVINGS + 1):
        plan = spread(whole, held, tuple(devices), cost, between.rate, 2**halving,
                      _FEW_SLOTS if halving else None)
        runner = _Runner(between, plan, call, reads_c)
        try:
            runner.reserve()
        except CUDA.out_of_memory:
            if halving == _MOST_HALVINGS:
                raise
            runner.slots.clear()
            for device in plan.steps:
                with between.on(device):
                    cupy.get_default_memory_pool().free_all_blocks()
            tally(call.function, "moved", "smaller tiles: no memory on a GPU").tick()
        else:
            runner.run()
            break
    for device, steps in plan.steps.items():
        if steps:
            tally(call.function, "spread", f"on cuda:{device}").tick()
    return plan


def _held(operand: Operand) -> Held:
    x = operand.array
    named = dict(zip(operand.axes, Tile._fields, strict=True))
    parts = (Part(device, box[x.axis]) for device, box in zip(x.devices, boxes_of(x), strict=True))
    return Held(tuple(named.get(axis, n) for axis, n in enumerate(x.shape)), x.axis, tuple(parts),
                x.dtype.itemsize)


@dataclass(slots=True, eq=False)
class _Slot:
    """Memory of a device for what is elsewhere: arrivals, and what still reads it."""

    memory: Any
    array: Any = None
    key: Any = None
    filled: dict[int, Any] = field(default_factory=dict)
    last: dict[Lane, Any] = field(default_factory=dict)
    used: list[Any] = field(default_factory=list)


class _Runner:
    def __init__(self, between: Peers, plan: Spread, call: Tiled, reads_c: bool):
        self.between, self.plan, self.compute = between, plan, call.compute
        self.arrays = dict(zip("abc", (x.array for x in (*call.operands, call.result)),
                               strict=True))
        self.read = "abc" if reads_c else "ab"
        self.slots: dict[Any, _Slot] = {}
        self.sent: dict[Any, Any] = {}                  # the last copy of an operand by a link

    def reserve(self) -> None:
        sizes: dict[Any, int] = {}
        for device, steps in self.plan.steps.items():
            for name, panel in ((name, getattr(step, name)) for step in steps for name in "abc"):
                nbytes = prod(panel.shape) * self.arrays[name].dtype.itemsize
                place = device, name, panel.slot
                if panel.slot is not None and nbytes > sizes.get(place, 0):
                    sizes[place] = nbytes
        for place, nbytes in sizes.items():
            with self.between.on(place[0]):
                self.slots[place] = _Slot(cupy.cuda.alloc(nbytes))

    def run(self) -> None:
        """Begin everything; a device's current stream follows copies from and to it."""
        devices = {*self.plan.steps}.union(*(x.devices for x in self.arrays.values()))
        self.copies = Copies(self.between, devices)
        try:
            for action in self.plan.actions:
                with self.between.on(action.device):
                    if action.name:
                        self._bring(action)
                    else:
                        self._compute(action.device, action.step)
        finally:                        # after an error too: copies that have begun go on
            self.copies.end()

    def _follow(self, device: int, lane: Lane, events: Iterable[Any]) -> None:
        for event in events:
            self.between.wait(device, lane, event)

    def _slot(self, device: int, name: str, step: int) -> tuple[Panel, Any]:
        panel: Panel = getattr(self.plan.steps[device][step], name)
        return panel, self.slots.get((device, name, panel.slot))

    def _array(self, name: str, panel: Panel, slot: _Slot | None) -> Any:
        """A panel in its shard, or in a slot in the shards' order of axes, for long runs."""
        piece = panel.pieces[0]
        x = self.arrays[name].shards[piece.shard]
        if slot is None:
            return x[piece.inside]
        return cupy.ndarray(panel.shape, x.dtype, slot.memory,
                            new_memory(Memory(panel.shape, x.strides, x.dtype), "K").strides)

    def _bring(self, action: Action) -> None:
        device, name = action.device, action.name
        panel, slot = self._slot(device, name, action.step)
        piece = panel.pieces[action.piece]
        if slot.key != panel.key:
            self._follow(device, "in", slot.used)
            self._follow(device, "inside", slot.used)
            slot.key, slot.array, slot.filled, slot.used = panel.key, self._array(name, panel,
                                                                                  slot), {}, []
        origin = piece.device
        lane: Lane = "inside" if origin == device else "in"
        source, other = self.arrays[name].shards[piece.shard][piece.inside], None
        if action.source is not None:
            origin, step, at = action.source
            held, other = self._slot(origin, name, step)
            self.between.wait(device, lane, other.filled[at])
            source = other.array[held.pieces[at].within]
        link = origin != device and (origin, self.between.rate(origin, device))
        before, event = self.sent.get(link, (device, None))
        if before != device:            # so that what is asked for first arrives first
            self.between.wait(device, lane, event)
        ended = slot.filled[action.piece] = slot.last[lane] = self.copies.copy(
            (device, lane), (device, slot.array[piece.within]), (origin, source))
        if link:
            self.sent[link] = device, ended
        if other is not None:
            other.used.append(ended)

    def _compute(self, device: int, step: int) -> None:
        found, slots = [], []
        for name in "abc":
            panel, slot = self._slot(device, name, step)
            if slot is not None:
                slots.append(slot)
                if name in self.read:
                    self._follow(device, "kernels", slot.last.values())
                else:
                    self._follow(device, "kernels", slot.used)
                    slot.array, slot.used = self._array(name, panel, slot), []
            found.append(self._array(name, panel, None) if slot is None else slot.array)
        self.compute(found[:2], found[2])
        ended = self.between.record(device, "kernels")
        for each in slots:
            each.used.append(ended)
        for piece in panel.pieces if slot else ():      # those of C
            lane: Lane = "inside" if piece.device == device else "out"
            self.between.wait(device, lane, ended)
            target = self.arrays["c"].shards[piece.shard][piece.inside]
            slots[-1].used.append(self.copies.copy((device, lane), (piece.device, target),
                                                   (device, found[-1][piece.within])))
