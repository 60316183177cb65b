"""An operand that several GPUs need: each brings a part of every panel and copies the others'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Condition
from typing import Any

import numpy as np

from ..planning.streaming import Extents, Schedule, panels_along
from ..runtime.peers import peers
from .cuda import CUDA
from .host_cuda import Crossing, compact
from .peer_copies import copy_box

__all__ = ["Abandoned", "Exchange"]


class Abandoned(Exception):
    """A device has left before it brought its part."""


class Exchange:
    """The panels of one operand, ``by_rows`` or columns, on all devices; strides are positive."""

    def __init__(self, operand: np.ndarray, devices: Sequence[int], by_rows: bool, moved: int):
        self._operand, self._devices = operand, tuple(devices)
        self._by_rows, self._moved = by_rows, moved
        # by device and panel: memory, and when the part is there
        self._there: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._left: set[int] = set()
        self._changed = Condition()

    def is_of(self, x: np.ndarray) -> bool:
        return _identity(x) == _identity(self._operand)

    def schedule(self, x: Extents, limit: int) -> Schedule | None:
        """A device's schedule, whose panels all stay; ``None`` if they need more memory."""
        if 2 * (x.a + x.b) + x.c > limit:
            return None
        tiles = panels_along(x, self._by_rows, self._moved)
        return Schedule(tiles, len(tiles))

    def begin(self, way: Crossing, part: np.ndarray) -> tuple[Any, list[Any]]:
        """A panel on this device, and what brings this device's part of it."""
        there = CUDA.empty(compact(part))
        before, at = len(way.uploads), self._devices.index(way.ring.link.ordinal)
        way.send(self._cut(part, there, at), self._cut(there, there, at).data)
        return there, way.uploads[before:]

    def complete(self, way: Crossing, key: Any, there: Any) -> None:
        """Let later kernels find all of a panel, of which this device's part has arrived."""
        between, device = peers(), way.ring.link.ordinal
        with self._changed:
            self._there[device, key] = there, between.record(device, "kernels")
            self._changed.notify_all()
        for at, other, (source, arrived) in self._others(device, key):
            between.wait(device, "kernels", arrived)
            copy_box(between, (device, "kernels"), (device, self._cut(there, there, at)),
                     (other, self._cut(source, source, at)))
        between.hold(())                # panels stay until the last device has left

    def _others(self, device: int, key: Any) -> Iterator[tuple[int, int, tuple[Any, Any]]]:
        for at, other in enumerate(self._devices):
            with self._changed:
                while other != device and (other, key) not in self._there:
                    if other in self._left:
                        raise Abandoned
                    self._changed.wait()
            if other != device:
                yield at, other, self._there[other, key]

    def _cut(self, x: Any, there: Any, at: int) -> Any:
        """A device's part of a panel, in the order of axes in its memory."""
        x = x.transpose(sorted(range(x.ndim), key=lambda axis: -there.strides[axis]))
        ends = [x.shape[0] * i // len(self._devices) for i in (at, at + 1)]
        return x[slice(*ends)]

    def leave(self, device: int) -> None:
        """Say that a device has ended; the last one frees the memory of all."""
        with self._changed:
            self._left.add(device)
            if len(self._left) == len(self._devices):
                self._there.clear()
            self._changed.notify_all()

    def abandon(self, device: int) -> None:
        self.leave(device)
        with self._changed:
            self._changed.wait_for(lambda: len(self._left) == len(self._devices))


def _identity(x: np.ndarray) -> tuple[Any, ...]:
    return x.__array_interface__["data"][0], x.shape, x.strides, x.dtype
