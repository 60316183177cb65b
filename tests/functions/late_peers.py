"""Two GPUs and more in this process's memory: copies between them happen as late as CUDA allows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from math import prod
from types import SimpleNamespace

import cupy
import numpy as np
import pytest

from cuteblas.engines import cuda, spread
from cuteblas.planning.problem import CopyProblem
from cuteblas.runtime import peers

from . import host_cupy, reference


def at(address: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)


class Event:
    """A place on a stream."""

    def __init__(self, lane, place, followed=()):
        self.lane, self.place, self.followed = lane, place, dict(followed)


class LatePeers:
    """In place of :class:`cuteblas.runtime.peers.Peers`.

    Attributes
    ----------
    copies : dict
        By stream, what was asked for: target, source (device and address each), and bytes.
    free : dict
        Bytes that each device has left, where that is limited.
    """

    def __init__(self, count=2):
        self._count, self.current = count, 0
        self.copies: dict = {}
        self.done: dict = {}
        self.launches = dict.fromkeys(range(count), 0)
        self.followed = {}        # by a lane of copies: launches of each device that it comes after
        self.free = {}
        self.read = {}                          # by device and address, the last launch that had it
        self.computed = {}                      # the last launch of each device that is not a copy

    def count(self):
        return self._count

    @contextmanager
    def on(self, device):
        before, self.current = self.current, device
        try:
            yield
        finally:
            self.current = before

    def connected(self, device, other):
        return True

    def rate(self, device, other):
        assert device != other, "the driver has no rate of a device to itself"
        return 390e9

    def synchronize(self, device):
        pass

    def touch(self, *arrays):
        pass

    def hold(self, events):
        pass

    def let_go(self, _nbytes=0):
        return 0

    def record(self, device, lane):
        if lane == "kernels":
            return Event((device, lane), self.launches[device])
        return Event((device, lane), len(self.copies.setdefault((device, lane), [])),
                     self.followed.get((device, lane), {}))

    def wait(self, device, lane, event):
        if event.lane[1] != "kernels":
            self.run(event.lane, event.place)
        if lane != "kernels":
            seen = self.followed.setdefault((device, lane), {})
            after = event.followed if event.lane[1] != "kernels" else {event.lane[0]: event.place}
            for other, place in after.items():
                seen[other] = max(seen.get(other, 0), place)

    def copy(self, lane, target, source, width, modes):
        # what a lane reads from a device must have been computed before: it follows that device's
        # launches
        seen = self.followed.get(lane, {})
        assert lane[1] != "out" or seen.get(source[0], 0) >= max(
            self.computed.get(source[0], 0), self.read.get(source, 0)), \
            "a result may leave before its kernel has ended"
        assert lane[1] == "out" or self.read.get(target, 0) <= self.followed.get(lane, {}).get(
            lane[0], 0
        ), "an operand may arrive where a kernel still reads another one"
        self.copies.setdefault(lane, []).append((target, source, width, tuple(modes)))

    def run(self, lane, place):
        """Let the copies of a lane up to a place happen."""
        copies, start = self.copies.setdefault(lane, []), self.done.get(lane, 0)
        for (_to, target), (_origin, source), width, modes in copies[start:place]:
            assert len(modes) <= 2
            for index in product(*(range(mode[0]) for mode in modes)):
                to, origin = (base + sum(i * mode[j] for i, mode in zip(index, modes, strict=True))
                              for j, base in ((1, target), (2, source)))
                at(to, width)[:] = at(origin, width)
        self.done[lane] = max(start, place)

    def moved(self, one, other):
        """The bytes that went from a device to another one."""
        return sum(width * int(np.prod([mode[0] for mode in modes]))
                   for copies in self.copies.values() for target, source, width, modes in copies
                   if (source[0], target[0]) == (one, other))


@contextmanager
def several(count: int = 2) -> Iterator[LatePeers]:
    """So many devices while this lasts."""
    late = LatePeers(count)

    def allocate(nbytes):
        if nbytes > late.free.get(late.current, nbytes):
            raise cuda.CUDA.out_of_memory(nbytes, 0, 0)
        pointer = host_cupy.allocate(nbytes)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(pointer.ptr, max(nbytes, 1), pointer,
                                                               late.current), 0)

    def empty(shape, dtype):
        return cupy.ndarray(shape, dtype, allocate(prod(shape) * np.dtype(dtype).itemsize))

    def executor(plan):
        ready = host_cupy.executor(plan)

        def launch(addresses, *arguments):
            late.launches[late.current] += 1
            if not isinstance(plan.problem, CopyProblem):
                late.computed[late.current] = late.launches[late.current]
            late.read |= dict.fromkeys([(late.current, x) for x in addresses],
                                       late.launches[late.current])
            ready.launch(addresses, *arguments)

        return SimpleNamespace(launch=launch)

    with pytest.MonkeyPatch.context() as patch, host_cupy.installed():
        reference.install(patch)
        patch.setattr("cuteblas.runtime.executor", executor)
        patch.setattr(cupy.cuda, "alloc", allocate)
        patch.setattr(cupy.cuda, "Device", late.on)
        patch.setattr(cupy, "empty", empty)
        patch.setattr(cupy, "get_default_memory_pool",
                      lambda: SimpleNamespace(free_all_blocks=lambda: None))
        patch.setattr(peers, "peers", lambda: late)
        patch.setattr(spread, "peers", lambda: late)
        yield late


__all__ = ["LatePeers", "several"]
