"""Products of NumPy arrays that have run are replayed where all large operands have copies on the
device: the kernel runs on the copies as they are, while Linux is asked whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from .. import cuda, host_cuda
from ..reuse import empty_array
from .cupy import key_of_call, recorded
from .recording import Recorded, ticks_of

__all__ = ["replayed"]


class _OnCopies(NamedTuple):
    """A product of matrices on the device.

    Attributes
    ----------
    key, call
        The product of CuPy arrays, and its key.
    ring
        Of the device.
    layout : tuple
        Shape, type and strides of the result,
    is_new : bool
        which a new one would have.
    tick : callable
        Counts the call.
    """

    key: tuple
    call: Recorded
    ring: Any
    layout: tuple[tuple[int, ...], np.dtype, tuple[int, ...]]
    is_new: bool
    tick: Callable[[], Any]

    def __call__(self, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> np.ndarray | None:
        """The product of operands with the shapes, strides and types of those before; ``None`` if
        one has no copy, or was written."""
        if recorded.get(self.key) is not self.call or (
                not self.is_new if out is None else out.strides != self.layout[2]):
            return None
        try:
            with host_cuda.crossing() as way:
                if way.ring is not self.ring or (launched := self._launched(way, arrays)) is None:
                    return None
                out = empty_array(*self.layout) if out is None else out
                memory, _copies = launched              # which live as long as their kernel
                way.keeper.leave(out)
                way.deliver(cupy.ndarray(out.shape, out.dtype, memory, out.strides), out)
        except cuda.CUDA.out_of_memory:
            return None
        self.tick()
        return out

    def _launched(self, way: host_cuda.Crossing, arrays: Sequence[np.ndarray]) -> Any:
        """The memory of the result, and the copies, if these are right."""
        call, keeper, few = self.call, way.keeper, host_cuda.FEW_BYTES
        if keeper.lock._is_owned():         # as in find
            return None
        with keeper.lock:
            if (copies := keeper.copies([x for x in arrays if x.nbytes > few])) is None:
                return None
            memory = cupy.cuda.alloc(2 * few + call.nbytes)
            addresses, places = [memory.ptr, memory.ptr + few, memory.ptr + 2 * few], iter(copies)
            for i, x in enumerate(arrays):
                if x.nbytes > few:
                    _owner, there, offset, _span = next(places)
                    addresses[i] = there.ptr + offset
                else:
                    way.ring.link.copy_up(addresses[i], x.__array_interface__["data"][0], x.nbytes)
                if addresses[i] & 15 != self.key[1 + i][3]:
                    return None
            if addresses[0] == addresses[1]:            # which have a kernel of their own
                return None
            call.launch(addresses if call.pick is None else call.pick(addresses),
                        cuda.current_stream())
            return (memory + 2 * few, copies) if keeper.unchanged(copies) else None


def replayed(function: str, note: Sequence[Any], result: np.ndarray,
             is_new: bool) -> _OnCopies | None:
    """What replays a product that :func:`~cuteblas.engines.host_cuda.straight` has noted; ``None``
    if its kernel is not recorded.

    Parameters
    ----------
    function : str
        On whose account.
    note : sequence
        The ring, the head of the replay, and the operands and the result on the device.
    result : numpy.ndarray
        The result,
    is_new : bool
        and whether the call made it.
    """
    ring, *given = note
    key: Any = key_of_call(*given)
    call = recorded.get(key)
    ticks = ticks_of([(function, "calls", "in tiles"),
                      (function, "moved", f"to cuda:{ring.link.ordinal}")])
    return call and _OnCopies(key, call, ring, (result.shape, result.dtype, result.strides), is_new,
                              lambda: (call.tick(), ticks()))
