"""Copies between GPUs: by the driver where runs are long, else packed by kernels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..planning.problem import merged
from ..planning.sharding import common, seen_from
from ..runtime.peers import Lane, Mode, Peers
from .cuda import CUDA, spare_memory
from .execution import Execution
from .memory import Memory, new_memory

__all__ = ["Copies", "assign", "boxes_of", "copy_box"]

_RUN_BYTES = 1 << 30                   # of one run, which the driver takes
_MOST_COPIES = 64                      # for one box, before it is packed
_LEAST_RUN = 512                       # bytes: shorter runs are packed by a kernel before they move

Stream = tuple[int, Lane]


def copy_box(between: Peers, lane: Stream, target: tuple[int, Any],
             source: tuple[int, Any]) -> None:
    """Begin to copy an array to another one of its shape and type, each on a device."""
    (to, dst), (origin, src) = target, source
    between.connected(to, origin)
    if to != origin:
        between.touch(dst, src)
    way = _way(dst.shape, dst.strides, src.strides, dst.itemsize)
    if way is None:
        _by_kernels(between, lane, target, source)
        return
    for address, other in way.starts:
        between.copy(lane, (to, dst.data.ptr + address), (origin, src.data.ptr + other), way.width,
                     way.modes)


class _Way(NamedTuple):
    """Copies by the driver: bytes of a run, modes of a copy, beginnings in both arrays."""

    width: int
    modes: tuple[Mode, ...]
    starts: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def _way(shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...],
         itemsize: int) -> _Way | None:
    """How the driver copies a box; ``None`` where runs are short or backwards, or copies many."""
    if not prod(shape):
        return _Way(0, (), ())
    modes: list[Any] = [*merged(tuple(zip(shape, target, source, strict=True)))]
    width = itemsize
    for mode in sorted(modes, key=lambda mode: mode[1]):
        if mode[1] == mode[2] == width:
            width *= mode[0]
            modes.remove(mode)
    modes = sorted((mode for mode in modes if mode[0] > 1), key=lambda mode: mode[1])
    if (width < _LEAST_RUN and modes) or any(min(mode[1:]) < width for mode in modes):
        return None
    if width > _RUN_BYTES:                              # more than the driver takes
        parts = -(-width // _RUN_BYTES)
        while width % parts:
            parts += 1
        width //= parts
        modes.insert(0, (parts, width, width))
    # a plane is whole rows
    inner = 2 if len(modes) < 2 or not any(modes[1][i] % modes[0][i] for i in (1, 2)) else 1
    outer = modes[inner:]
    if prod(mode[0] for mode in outer) > _MOST_COPIES:
        return None
    starts = tuple((sum(i * mode[1] for i, mode in zip(index, outer, strict=True)),
                    sum(i * mode[2] for i, mode in zip(index, outer, strict=True)))
                   for index in np.ndindex(*(mode[0] for mode in outer)))
    return _Way(width, tuple(modes[:inner]), starts)


def _by_kernels(between: Peers, lane: Stream, target: tuple[int, Any],
                source: tuple[int, Any]) -> None:
    """Copy a box by kernels that pack elements at the source and unpack them at the target."""
    (to, dst), (origin, src) = target, source
    if to == origin:
        _move(between, lane, to, src, dst)
        return
    like = new_memory(Memory(dst.shape, dst.strides, dst.dtype), "K")
    packed = _made(between, lane, origin, like)
    _move(between, lane, origin, src, packed)
    if dst.strides == like.strides:
        copy_box(between, lane, target, (origin, packed))
    else:
        landed = _made(between, lane, to, like)
        copy_box(between, lane, (to, landed), (origin, packed))
        _move(between, lane, to, landed, dst)
    between.wait(origin, "kernels", between.record(*lane))      # before the memory is used again


def _made(between: Peers, lane: Stream, device: int, like: Memory) -> Any:
    """A new array for what a lane copies from now on."""
    with between.on(device):
        new = CUDA.empty(like)
    between.wait(*lane, between.record(device, "kernels"))
    return new


def _move(between: Peers, lane: Stream, device: int, src: Any, dst: Any) -> None:
    between.wait(device, "kernels", between.record(*lane))
    with between.on(device):
        Execution("copy: between devices", CUDA).move(src, dst)
    between.wait(*lane, between.record(device, "kernels"))


def boxes_of(x: Any) -> list[tuple[range, ...]]:
    """The ranges of each shard of a ShardedArray along all axes."""
    whole, axis = [*map(range, x.shape)], x.axis
    return [(*whole[:axis], range(start, start + part.shape[axis]), *whole[axis + 1:])
            for start, part in zip(x.starts, x.shards, strict=True)]


class Copies:
    """Copies in streams of their own, which follow all that the caller has begun on the devices
    whose memory they read or write; what the caller begins there later follows them."""

    def __init__(self, between: Peers, devices: Iterable[int]):
        self._between = between
        self._begun = {device: between.record(device, "kernels") for device in devices}
        self._joined: set[tuple[Stream, int]] = set()   # streams, and whose memory they copy

    def copy(self, lane: Stream, target: tuple[int, Any], source: tuple[int, Any]) -> Any:
        """Begin a copy, and say when it ends."""
        for device in {target[0], source[0]}:
            if (lane, device) not in self._joined:
                self._joined.add((lane, device))
                self._between.wait(*lane, self._begun[device])
        copy_box(self._between, lane, target, source)
        return self._between.record(*lane)

    def end(self) -> None:
        """Let devices follow all copies, and keep the arrays of which parts move until then."""
        ended = {lane: self._between.record(*lane) for lane, _device in self._joined}
        for lane, device in self._joined:
            self._between.wait(device, "kernels", ended[lane])
        self._between.hold([*ended.values()])
        spare_memory(self._between.let_go)


def assign(between: Peers, target: Any, source: Any) -> None:
    """Copy a :class:`~cuteblas.ShardedArray` into another of its shape and type, in any shards."""
    copies = Copies(between, {*target.devices, *source.devices})
    shards = [zip(x.devices, x.shards, boxes_of(x), strict=True) for x in (target, source)]
    for (to, dst, its), (origin, src, theirs) in product(*shards):
        if all(box := common(its, theirs)):
            copies.copy((to, "in"), (to, dst[seen_from(box, its)]),
                        (origin, src[seen_from(box, theirs)]))
    copies.end()
