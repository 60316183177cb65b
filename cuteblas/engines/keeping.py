"""Which NumPy arrays have a copy on a device, and whether it still has their elements.

A copy belongs to the array that owns the memory, so views share it. :class:`~cuteblas.runtime.tracking.Watch` says which parts were
written since they were read; only these move again. An array is tracked when it comes again unchanged, as a sample of its bytes
says: the sample decides whether that is worth it, never whether a copy is right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from threading import RLock
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet, ref

import numpy as np

from .._forks import forget_in_children, surviving
from ..runtime.tracking import Untracked, Watch
from .counters import tally
from .emulator import HOST_CUDA
from .memory import shadow
from .settings import keeps_arrays

__all__ = ["Copy", "Device", "Keeper"]

_LEAST_BYTES = 1 << 20
_MOST_OWNERS = 1024                     # whose samples are remembered
_LINES, _LINE_BYTES = 64, 64            # of a sample
_FAULT_COST = 25                        # the first write to a tracked page takes as long as moving so many

_keepers = WeakSet["Keeper"]()
_orphans: list[Any] = []                # memory of the parent process: to free it would be a call of its driver


class Device(Protocol):
    """What a keeper needs of a device. Memory is freed when nothing refers to it."""

    def allocate(self, nbytes: int) -> Any:
        """New memory; a ``MemoryError`` if there is none."""

    def upload(self, memory: Any, offset: int, low: int, high: int) -> None:
        """Begin to copy bytes from ``low`` to ``high`` of the host; what later work on the device reads is the copy."""

    def pinned(self, low: int, high: int) -> bool:
        """Whether devices may write to some of this memory of the host, which the kernel would not see."""


class Copy(NamedTuple):
    """An array on the device: its memory, which lives as long as this, and the bytes before the array's first element."""

    memory: Any
    offset: int


@dataclass(eq=False)
class _Owner:
    """What is known of memory that an array owns: the bytes that moved while its sample was the same, how often all of it has to
    move before it is tracked, the kind of result that it is until it is used, and, while it has a copy, a weak reference to the
    array (NumPy resizes no array that has one) and the bytes that did not have to move."""

    low: int
    nbytes: int
    sample: bytes = b""
    moved: int = 0
    patience: float = 1
    kind: Hashable = None
    memory: Any = None
    watch: Any = None
    array: Any = None
    saved: int = 0

    def sampled(self) -> bool:
        """Take a sample: whether it is that of before."""
        before = self.sample
        step = (self.nbytes - _LINE_BYTES) // (_LINES - 1)
        self.sample = shadow((_LINES, _LINE_BYTES), (step, 1), "|u1", self.low).tobytes()
        if self.sample != before:
            self.moved = 0
        return self.sample == before


class Keeper:
    """The copies on one device. All methods may be called by any thread.

    Parameters
    ----------
    device : Device
        Where the copies are.
    limit : int
        The most bytes of all copies; those that were used least recently leave first.
    watch : type
        What sees writes: :class:`~cuteblas.runtime.tracking.Watch`, or a class with its methods.

    Attributes
    ----------
    limit, nbytes : int
        The limit, and the bytes of all copies.
    """

    def __init__(self, device: Device, limit: int, watch: Any = Watch):
        self.limit, self.nbytes = limit, 0
        self._device, self._watch, self._lock = device, watch, surviving(RLock())
        self._owners: dict[tuple[int, int], _Owner] = {}    # by address and bytes
        self._copies: dict[_Owner, None] = {}           # in the order of their last use
        self._dead: deque[tuple[int, Any]] = deque()
        self._useful: set[Hashable] = set()             # kinds of results that came again as operands
        _keepers.add(self)

    def find(self, x: np.ndarray) -> Copy | None:
        """The copy of an array, if there is one; parts that were written move there first."""
        with self._lock:
            owner, offset = self._owner(x)
            if owner is None or owner.memory is None:
                return None
            memory, nbytes = owner.memory, owner.nbytes
            parts = owner.watch.written(again=True)
            moved = nbytes if parts is None else sum(high - low for low, high in parts)
            owner.saved += nbytes - moved
            if 2 * moved >= nbytes or _FAULT_COST * (owner.watch.bytes_written - nbytes / 2) > owner.saved \
                    or (moved and self._device.pinned(owner.low, owner.low + nbytes)):
                self._drop(owner, "dropped: written over")
                owner.patience *= 2
                return None
            try:
                for low, high in parts:
                    self._device.upload(memory, low - owner.low, low, high)
            except BaseException:
                self._drop(owner, "dropped: not moved")
                raise
            self._use(owner)
            tally("arrays", "kept", "moved in part" if parts else "unchanged").tick()
            return Copy(memory, offset)

    def seen(self, x: np.ndarray, nbytes: int) -> Copy | None:
        """Note that ``nbytes`` of an operand without a copy have to move. Its owner moves and is kept if that is worth it."""
        with self._lock:
            owner, offset = self._owner(x, new=True)
            if owner is None or owner.memory is not None or owner.patience == inf:
                return None
            if owner.sampled():
                self._use(owner)
            owner.moved += nbytes
            return Copy(owner.memory, offset) if owner.moved > owner.patience * owner.nbytes and self._keep(owner, x) else None

    def result(self, x: np.ndarray, memory: Any, kind: Hashable) -> None:
        """Note a result that arrived; ``memory`` has its bytes. It is kept if results of this kind came again as operands."""
        with self._lock:
            owner, _ = self._owner(x, new=True)
            if owner is None or x.nbytes != owner.nbytes:
                return
            self._drop(owner)
            if kind not in self._useful or not self._keep(owner, x, memory):
                owner.sampled()
            owner.kind = kind

    def leave(self, x: np.ndarray) -> None:
        """Drop the copy of an array that a call is about to write over: writes to it cost nothing."""
        with self._lock:
            owner, _ = self._owner(x)
            if owner is not None and 2 * x.nbytes >= owner.nbytes:
                self._drop(owner)

    def expected(self, x: np.ndarray) -> int:
        """The bytes of an array that a call probably does not have to move."""
        with self._lock:
            owner, _ = self._owner(x)
            return 0 if owner is None or owner.memory is None else x.nbytes

    def shrink(self, nbytes: float) -> int:
        """Drop copies of so many bytes, those that were used least recently first; returns the bytes."""
        with self._lock:
            self._bury()
            before = self.nbytes
            while self._copies and before - self.nbytes < nbytes:
                self._drop(next(iter(self._copies)), "dropped: memory was wanted")
            return before - self.nbytes

    def release(self) -> None:
        """Drop all copies, and what is known of arrays."""
        with self._lock:
            self.shrink(inf)
            self._owners.clear()

    def _owner(self, x: np.ndarray, new: bool = False) -> tuple[_Owner | None, int]:
        """What is known of the memory of an array's owner, and the bytes before the array's first element."""
        self._bury()
        base, here = _base(x), HOST_CUDA.memory(x)
        key = HOST_CUDA.memory(base).address, base.nbytes
        owner = self._owners.get(key)
        if owner is None and new and keeps_arrays() and base.nbytes >= _LEAST_BYTES and base.flags.forc \
                and not base.dtype.hasobject:
            if len(self._owners) >= _MOST_OWNERS:
                self._owners = {(owner.low, owner.nbytes): owner for owner in self._copies}
            owner = self._owners[key] = _Owner(*key)
        offset = here.address - key[0]
        low, high = here.span
        return owner if offset + low >= 0 and offset + high <= base.nbytes else None, offset

    def _keep(self, owner: _Owner, x: np.ndarray, memory: Any = None) -> bool:
        """Track the owner of an array, and move it unless its memory on the device is there."""
        low, high, moves = owner.low, owner.low + owner.nbytes, memory is None
        if owner.nbytes > self.limit or self._device.pinned(low, high):
            return False
        self.shrink(self.nbytes + owner.nbytes - self.limit)
        try:
            memory = self._device.allocate(owner.nbytes) if moves else memory
            owner.watch = self._watch(low, high)
        except (MemoryError, Untracked) as error:
            owner.patience = inf if isinstance(error, Untracked) else owner.patience
            tally("arrays", "kept", f"not: {error}").tick()
            return False
        owner.memory, owner.saved, owner.array = memory, 0, ref(_base(x), lambda array: self._died(owner, array))
        self._copies[owner] = None
        self.nbytes += owner.nbytes
        try:
            owner.watch.protect()
            owner.watch.bytes_written = 0
            if moves:
                self._device.upload(memory, 0, low, high)
        except BaseException:
            self._drop(owner)
            raise
        return True

    def _use(self, owner: _Owner) -> None:
        if owner in self._copies:
            self._copies[owner] = self._copies.pop(owner)
        if owner.kind is not None:
            self._useful.add(owner.kind)
            owner.kind = None

    def _drop(self, owner: _Owner, why: str = "") -> None:
        self._useful.discard(owner.kind)                # a result that was not used
        owner.kind = None
        if owner.memory is not None:
            del self._copies[owner]
            self.nbytes -= owner.nbytes
            owner.watch.end()
            owner.memory = owner.watch = owner.array = None
            owner.sample, owner.moved = b"", 0
            if why:
                tally("arrays", "kept", why).tick()

    def _died(self, owner: _Owner, array: Any) -> None:
        """Called before memory is freed, in the middle of anything: while another thread has the lock, the copy stays until it is
        asked for something."""
        self._dead.append((owner, array))
        if self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def _bury(self) -> None:
        while self._dead:
            owner, array = self._dead.popleft()
            if owner.array is array:
                self._drop(owner)


def _base(x: np.ndarray) -> np.ndarray:
    """The last array that an array is a view of."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def _forget() -> None:
    for keeper in _keepers:
        _orphans.append((keeper._owners, keeper._copies))
        keeper._owners, keeper._copies, keeper.nbytes = {}, {}, 0


forget_in_children(_forget)
