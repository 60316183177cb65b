"""Products of NumPy arrays that have run are replayed where all large operands have copies on the
device: the kernel runs on the copies as they are, while Linux is asked whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import memmove
from typing import Any, NamedTuple

import cupy
import numpy as np

from .. import cuda, host_cuda
from ..counters import tally
from ..reuse import empty_array
from .cupy import key_of_call, recorded
from .recording import Recorded

__all__ = ["replayed"]


class _OnCopies(NamedTuple):
    """A product of matrices on the device.

    Attributes
    ----------
    key, call
        The product of CuPy arrays, and its key.
    home, lock
        The device, and the lock of its ring.
    layout : tuple
        Shape, type and strides of the result,
    is_new : bool
        which a new one would have.
    ticks : tuple of callable
        What counts the call.
    """

    key: tuple
    call: Recorded
    home: Any
    lock: Any
    layout: tuple[tuple[int, ...], np.dtype, tuple[int, ...]]
    is_new: bool
    ticks: tuple[Callable[[], Any], ...]

    def __call__(self, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> np.ndarray | None:
        """The product of operands with the shapes, strides and types of those before; ``None`` if
        one has no copy, or was written."""
        call, few, home = self.call, host_cuda.FEW_BYTES, host_cuda.current_home()
        # a handler of signals, while another product has the staging
        if home is not self.home or self.lock._is_owned() or recorded.get(self.key) is not call or (
                not self.is_new if out is None else out.strides != self.layout[2]):
            return None
        try:
            with host_cuda.crossing() as way:
                link, keeper = way.ring.link, way.keeper
                with keeper.lock:
                    if (copies := keeper.copies([x for x in arrays if x.nbytes > few])) is None:
                        return None
                    memory = cupy.cuda.alloc(2 * few + call.nbytes)
                    addresses = [(begin := memory.ptr), begin + few, begin + 2 * few]
                    places = iter(copies)
                    for i, x in enumerate(arrays):
                        if x.nbytes > few:
                            _owner, there, offset, _span = next(places)
                            addresses[i] = there.ptr + offset
                            if addresses[i] & 15 != self.key[1 + i][3]:
                                return None
                        else:
                            memmove(home.staged + i * few, _address(x), x.nbytes)
                            link.copy_up(addresses[i], home.staged + i * few, x.nbytes)
                    if addresses[0] == addresses[1]:    # which have a kernel of their own
                        return None
                    call.launch(addresses if call.pick is None else call.pick(addresses),
                                cuda.current_stream())
                    link.copy_down(home.staged + 2 * few, addresses[2], call.nbytes)
                    if not keeper.unchanged(copies):
                        return None
                out = empty_array(*self.layout) if out is None else out
                link.await_kernels()
                memmove(_address(out), home.staged + 2 * few, call.nbytes)
                way.bytes_down = call.nbytes
        except cuda.CUDA.out_of_memory:
            return None
        for tick in self.ticks:
            tick()
        return out


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


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
    ticks = (tally(function, "calls", "in tiles").tick,
             tally(function, "moved", f"to cuda:{ring.link.ordinal}").tick)
    return call and _OnCopies(key, call, host_cuda.current_home(), ring.lock,
                              (result.shape, result.dtype, result.strides), is_new,
                              (call.tick, *ticks))
