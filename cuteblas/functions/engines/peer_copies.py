"""Copies of arrays between GPUs: by the driver where runs are long, else packed by kernels before they move."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...planning.modes import merged
from ...runtime.peers import Lane, Peers
from ..memory import Memory, strides_by_order
from ..pipeline import Execution
from .cuda import CUDA

__all__ = ["assign", "copy_box"]

_RUN_BYTES = 1 << 30                    # of one run, which the driver takes
_MOST_COPIES = 64                       # for one box, before it is packed
_LEAST_RUN = 512                        # bytes: shorter runs are packed by a kernel before they move

Stream = tuple[int, Lane]
"""A device and one of its streams."""


def copy_box(between: Peers, lane: Stream, target: tuple[int, Any], source: tuple[int, Any]) -> None:
    """Begin to copy an array to another one of its shape and type, each on a device."""
    (to, dst), (origin, src) = target, source
    size = dst.dtype.itemsize
    if not dst.size:
        return
    between.connected(to, origin)
    modes: list[Any] = [*merged(tuple(zip(dst.shape, dst.strides, src.strides, strict=True)))]
    width = size
    for mode in sorted(modes, key=lambda mode: mode[1]):
        if mode[1] == mode[2] == width:
            width *= mode[0]
            modes.remove(mode)
    others = sorted((mode for mode in modes if mode[0] > 1), key=lambda mode: mode[1])
    calls = int(np.prod([mode[0] for mode in others[2:]], dtype=float)) if len(others) > 2 else 1
    if width > _RUN_BYTES:
        axis = max(range(dst.ndim), key=lambda axis: dst.strides[axis] if dst.shape[axis] > 1 else 0)
        half = dst.shape[axis] // 2
        for part in (slice(None, half), slice(half, None)):
            box = (*(slice(None),) * axis, part)
            copy_box(between, lane, (to, dst[box]), (origin, src[box]))
        return
    if (width < _LEAST_RUN and others) or calls > _MOST_COPIES or any(min(mode[1:]) < width for mode in others):
        _by_kernels(between, lane, target, source)
        return
    if len(others) > 1 and any(others[1][i] % others[0][i] for i in (1, 2)):
        others, calls = [others[0], *others[1:]], 0     # a plane is no whole number of rows: plane by plane
    outer = others[2:] if calls else others[1:]
    inner = others[:2] if calls else others[:1]
    for index in np.ndindex(*(mode[0] for mode in outer)):
        addresses = [x.data.ptr + sum(i * mode[j] for i, mode in zip(index, outer, strict=True)) for j, x in ((1, dst), (2, src))]
        between.copy(lane, (to, addresses[0]), (origin, addresses[1]), width, inner)


def _by_kernels(between: Peers, lane: Stream, target: tuple[int, Any], source: tuple[int, Any]) -> None:
    """The same where runs are short or backwards: kernels pack the elements where they are, and unpack them where they go."""
    (to, dst), (origin, src) = target, source
    if to == origin:
        _move(between, lane, to, src, dst)
        return
    strides = strides_by_order(Memory(dst.shape, dst.strides, dst.dtype), "K")
    packed = _made(between, lane, origin, dst.shape, dst.dtype, strides)
    _move(between, lane, origin, src, packed)
    if dst.strides == strides:
        copy_box(between, lane, target, (origin, packed))
    else:
        landed = _made(between, lane, to, dst.shape, dst.dtype, strides)
        copy_box(between, lane, (to, landed), (origin, packed))
        _move(between, lane, to, landed, dst)
    between.wait(origin, "kernels", between.record(*lane))      # before the memory is used again


def _made(between: Peers, lane: Stream, device: int, shape: tuple[int, ...], dtype: np.dtype,
          strides: tuple[int, ...]) -> Any:
    """A new array for what a lane copies from now on."""
    with between.on(device):
        new = CUDA.empty(Memory(shape, strides, dtype))
    between.wait(*lane, between.record(device, "kernels"))
    return new


def _move(between: Peers, lane: Stream, device: int, src: Any, dst: Any) -> None:
    """A copy by kernels within a device, in the order of a lane."""
    between.wait(device, "kernels", between.record(*lane))
    with between.on(device):
        Execution("copy: between devices", CUDA).move(src, dst)
    between.wait(*lane, between.record(device, "kernels"))


def assign(between: Peers, target: Any, source: Any) -> None:
    """Copy all elements of a :class:`~cuteblas.ShardedArray` into another one of its shape and type, in whatever shards."""
    devices = sorted({*target.devices, *source.devices})
    begun = [between.record(device, "kernels") for device in devices]
    for device in {*target.devices}:
        for event in begun:
            between.wait(device, "in", event)
    for (to, start), dst in zip(zip(target.devices, target.starts, strict=True), target.shards, strict=True):
        for (origin, first), src in zip(zip(source.devices, source.starts, strict=True), source.shards, strict=True):
            low = [0] * target.ndim
            high = list(target.shape)
            for axis, at, x in ((target.axis, start, dst), (source.axis, first, src)):
                low[axis], high[axis] = max(low[axis], at), min(high[axis], at + x.shape[axis])
            if all(i < j for i, j in zip(low, high, strict=True)):
                box_of = [tuple(slice(i - (at if k == axis else 0), j - (at if k == axis else 0))
                                for k, (i, j) in enumerate(zip(low, high, strict=True)))
                          for axis, at in ((target.axis, start), (source.axis, first))]
                copy_box(between, (to, "in"), (to, dst[box_of[0]]), (origin, src[box_of[1]]))
    ended = [between.record(device, "in") for device in {*target.devices}]
    for device in devices:
        for event in ended:
            between.wait(device, "kernels", event)
