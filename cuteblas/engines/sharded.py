"""Arrays in parts on several GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .dispatch import kind_of

__all__ = ["ShardedArray", "as_sharded"]


class ShardedArray:
    """An array that is divided along one axis among GPUs of this host.

    Calls with ``devices=`` take it as an operand or ``out``, and return it. It has no arithmetic;
    its parts are CuPy arrays.

    Parameters
    ----------
    shards : sequence of cupy.ndarray
        The parts in order, each on any GPU. They have one type, and only their extents along
        ``axis`` may differ.
    axis : int
        The axis along which the array is divided.

    Attributes
    ----------
    shards : tuple of cupy.ndarray
    axis : int
        At least 0.
    shape : tuple of int
        Of the whole array.
    dtype : numpy.dtype

    Raises
    ------
    TypeError
        If a part is not a CuPy array.
    ValueError
        If the types or extents of parts do not fit together.

    See Also
    --------
    cuteblas.matmul : takes them, with ``devices=``.

    Examples
    --------
    >>> x = cuteblas.ShardedArray([cupy.zeros((3, 5)), cupy.zeros((4, 5))])  # doctest: +SKIP
    >>> x.shape, x.devices  # doctest: +SKIP
    ((7, 5), (0, 0))
    """

    __slots__ = ("axis", "dtype", "shape", "shards")

    def __init__(self, shards: Sequence[Any], axis: int = 0):
        self.shards = tuple(shards)
        if not self.shards:
            raise ValueError("a ShardedArray needs at least one shard")
        for i, x in enumerate(self.shards):
            if kind_of(x) != "cupy":
                raise TypeError(
                    f"shards have to be CuPy arrays, but shard {i} is {type(x).__module__}.{type(x).__name__}"
                )
        first = self.shards[0]
        self.axis = np.lib.array_utils.normalize_axis_index(axis, first.ndim)
        self.dtype = first.dtype
        for i, x in enumerate(self.shards):
            if x.dtype != first.dtype:
                raise ValueError(
                    f"shards have to have one type, but shard 0 is {first.dtype} and shard {i} {x.dtype}"
                )
            if x.ndim != first.ndim or any(
                n != m
                for j, (n, m) in enumerate(zip(x.shape, first.shape, strict=True))
                if j != self.axis
            ):
                raise ValueError(
                    f"shards may differ only along axis {self.axis}, but shard 0 has shape {first.shape} and shard "
                    f"{i} {x.shape}"
                )
        self.shape = tuple(sum(x.shape[j] for x in self.shards) if j == self.axis else n
                           for j, n in enumerate(first.shape))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each shard."""
        return tuple(x.data.device_id for x in self.shards)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return int(np.prod(self.shape, dtype=float)) * self.dtype.itemsize

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each shard begins along the axis."""
        ends = np.cumsum([0, *(x.shape[self.axis] for x in self.shards)])
        return tuple(int(end) for end in ends[:-1])

    def __repr__(self) -> str:
        where = ", ".join(f"cuda:{device}" for device in self.devices)
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype}, axis={self.axis}, devices=({where}))"

    @classmethod
    def like(cls, shape: Sequence[int], dtype: Any, devices: Sequence[int],
             axis: int = 0) -> ShardedArray:
        """A new array whose elements are not initialised, divided equally among devices.

        Parameters
        ----------
        shape : sequence of int
            Of the whole array.
        dtype : dtype
        devices : sequence of int
            The device of each shard.
        axis : int
            The axis to divide.

        Examples
        --------
        >>> cuteblas.ShardedArray.like((100, 5), "float32", devices=(0, 1))  # doctest: +SKIP
        ShardedArray(shape=(100, 5), dtype=float32, axis=0, devices=(cuda:0, cuda:1))
        """
        from ..runtime.peers import peers

        peers()                         # refuses where there is no GPU
        import cupy

        axis = np.lib.array_utils.normalize_axis_index(axis, len(shape))
        ends = [shape[axis] * i // len(devices) for i in range(len(devices) + 1)]
        shards = []
        for device, (start, stop) in zip(devices, pairwise(ends), strict=True):
            with cupy.cuda.Device(device):
                shards.append(cupy.empty((*shape[:axis], stop - start, *shape[axis + 1:]), dtype))
        return cls(shards, axis)

    @classmethod
    def of(cls, x: Any, devices: Sequence[int], axis: int = 0) -> ShardedArray:
        """A copy of a CuPy array or another sharded array, divided equally among devices.

        Examples
        --------
        >>> x = cuteblas.ShardedArray.of(cupy.ones((100, 5)), devices=(0, 1))  # doctest: +SKIP
        """
        from ..runtime.peers import peers

        host = peers()
        from .peer_copies import assign

        source = as_sharded(x)
        target = cls.like(source.shape, source.dtype, devices, axis)
        assign(host, target, source)
        return target

    def gathered(self, device: int | None = None) -> Any:
        """A copy as one CuPy array.

        Parameters
        ----------
        device : int, optional
            The device of the copy; that of the first shard by default.

        Examples
        --------
        >>> x.gathered(1).device.id  # doctest: +SKIP
        1
        """
        return self.of(self, [self.devices[0] if device is None else device], self.axis).shards[0]


def as_sharded(x: Any) -> ShardedArray:
    """An operand in shards: a CuPy array is one, ``cupyx.distributed`` has chunks."""
    if isinstance(x, ShardedArray):
        return x
    # whose arrays are CuPy's by type, without memory of their own
    if type(x).__module__.startswith("cupyx.distributed"):
        return _from_chunks(x)
    if kind_of(x) == "cupy":
        return ShardedArray([x] if x.ndim else [x.reshape(1)])
    raise TypeError(
        f"calls with devices= take CuPy arrays, cuteblas.ShardedArray and arrays of cupyx.distributed, got "
        f"{type(x).__module__}.{type(x).__name__}"
    )


def _from_chunks(x: Any) -> ShardedArray:
    from ..runtime.peers import peers

    if x.mode is not None:
        raise ValueError("a distributed array in this mode has partial results as chunks; "
                         "change_mode(cupyx.distributed.array.REPLICA) completes them")
    chunks: dict[tuple[tuple[int, int], ...], Any] = {}
    held = x.all_chunks()
    for device, boxes in x.index_map.items():
        peers().synchronize(device)                     # chunks are written on streams of their own
        for box, array in zip(boxes, held[device], strict=True):
            key = tuple(cut.indices(n)[:2] for cut, n in zip(box, x.shape, strict=True))
            chunks.setdefault(key, array)
    divided = [axis for axis in range(len(x.shape)) if len({key[axis] for key in chunks}) > 1]
    if len(divided) > 1:
        raise ValueError(
            f"a distributed array has to be divided along one axis, but this one is divided along axes "
            f"{', '.join(map(str, divided))}; reshard divides it differently"
        )
    axis = divided[0] if divided else 0
    ordered = sorted(chunks, key=lambda key: key[axis])
    for one, other in pairwise(ordered):
        if one[axis][1] != other[axis][0]:
            raise ValueError(
                f"chunks of a distributed array overlap or leave gaps along axis {axis}"
            )
    return ShardedArray([chunks[key] for key in ordered], axis)
