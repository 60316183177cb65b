"""Products of NumPy arrays whose operands have copies on the device: the kernel runs on them while
Linux is asked whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from .. import cuda, host_cuda
from ..counters import tally
from .cupy import key_of_call, recorded
from .recording import Recorded

__all__ = ["replayed"]


class _OnCopies(NamedTuple):
    """A product of matrices on the device; ``places`` are pinned memory of operands that move with
    every call, ``is_new`` says that a new result is laid out like ``result``."""

    key: tuple
    call: Recorded
    home: Any
    lock: Any
    places: tuple[np.ndarray | None, ...]
    result: np.ndarray
    is_new: bool
    ticks: tuple[Callable[[], Any], ...]

    def __call__(self, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> np.ndarray | None:
        """The product of operands like those; ``None`` if one has no copy, or was written."""
        call, few, home = self.call, host_cuda.FEW_BYTES, host_cuda.current_home()
        # a handler of signals, while another product has the pinned memory
        if self.lock._is_owned() or home is not self.home or recorded.get(self.key) is not call or (
                out is None and not self.is_new):
            return None
        try:
            with host_cuda.crossing() as way:
                link, keeper = way.ring.link, way.keeper
                with keeper.lock:
                    copies = keeper.copies([x for x, place in zip(arrays, self.places, strict=True)
                                            if place is None])
                    if copies is None:
                        return None
                    memory = cupy.cuda.alloc(2 * few + call.nbytes)
                    addresses = [(begin := memory.ptr), begin + few, begin + 2 * few]
                    there = iter(copies)
                    for i, place in enumerate(self.places):
                        if place is None:
                            _owner, copy, offset, _span = next(there)
                            addresses[i] = copy.ptr + offset
                            if (id(arrays[i].dtype), addresses[i] & 15) != self.key[1 + i][2:4]:
                                return None
                        else:
                            np.copyto(place, arrays[i])
                            link.copy_up(addresses[i], home.staged + i * few, place.nbytes)
                    if addresses[0] == addresses[1]:    # which have a kernel of their own
                        return None
                    call.launch(addresses if call.pick is None else call.pick(addresses),
                                cuda.current_stream())
                    link.copy_down(home.staged + 2 * few, addresses[2], call.nbytes)
                    if not keeper.unchanged(copies):
                        return None
                link.await_kernels()
                way.bytes_down = call.nbytes
                if out is None:
                    out = self.result.copy("K")
                else:
                    np.copyto(out, self.result)
        except cuda.CUDA.out_of_memory:
            return None
        for tick in self.ticks:
            tick()
        return out


def replayed(function: str, note: Sequence[Any], arrays: Sequence[np.ndarray], result: np.ndarray,
             is_new: bool) -> _OnCopies | None:
    """What replays a product that ``straight`` noted; ``None`` if its kernel is unknown."""
    # ``note`` has the ring, the head of the replay, and operands and result on the device.
    ring, *given = note
    key: Any = key_of_call(*given)
    call, home, few = recorded.get(key), host_cuda.current_home(), host_cuda.FEW_BYTES
    places = [np.ndarray(x.shape, x.dtype, home.staging, i * few, x.strides)
              if x.nbytes <= few else None for i, x in enumerate((*arrays, result))]
    return call and _OnCopies(
        key, call, home, ring.lock, (*places[:2],), places[2], is_new,  # type: ignore[arg-type]
        (call.tick, tally(function, "calls", "in tiles").tick,
         tally(function, "moved", f"to cuda:{ring.link.ordinal}").tick))
