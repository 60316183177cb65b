"""Which NumPy arrays have a copy on a device, and whether it still has their elements.

A copy belongs to the memory that an array owns, so views share it. Only parts that were written
move again, as ``runtime.tracking`` says. An array is tracked when it comes for the third time with
an equal sample of its bytes: the sample decides if that pays, never if a copy is right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

from .._forks import forget_in_children, surviving
from ..runtime.tracking import Hashes, Untracked, Watch, why_untracked
from .counters import tally
from .emulator import HOST_CUDA
from .host_memory import free_idle
from .memory import shadow
from .settings import checked_limit, hashes_arrays, keeps_arrays

__all__ = ["Keeper", "by_hashes", "expected", "is_large", "keep_limit", "keepers", "noted",
           "owning", "release", "wanted"]

_LEAST_BYTES = 1 << 20
_MOST_OWNERS = 1024              # whose samples are remembered
_LINES, _LINE_BYTES = 64, 64     # of a sample
_PATIENCE = 2                    # times that an array moves unchanged before it is tracked
_FAULT_COST = 25                 # the first write to a tracked page takes as long as moving so many

noted: ContextVar[list[Any] | None] = ContextVar("cuteblas_noted", default=None)
"""What ``engines.replay.copies.replayed`` is told of the product of this context."""

_keepers: tuple[ref[Keeper], ...] = ()  # replaced as a whole: devices that are used first add
                                        # theirs while others look
_adding = surviving(RLock())            # of the above
_orphans: list[Any] = []                # of the parent process: to free their memory would be a
                                        # call of its driver


@dataclass(eq=False)
class _Owner:
    """Memory that an array owns: bytes moved with an equal sample, how often all of it has to move
    before it is tracked, the kind of result that it is, and with a copy a weak reference to the
    array, the bytes that did not have to move, and those that have not moved at all."""

    low: int
    nbytes: int
    sample: bytes = b""
    moved: int = 0
    patience: int = field(default_factory=lambda: _PATIENCE)
    kind: Hashable = None
    memory: Any = None
    watch: Any = None
    array: Any = None
    saved: int = 0
    unmoved: int = 0

    def sampled(self) -> bool:
        """Take a sample, and say whether it equals the one before."""
        before, step = self.sample, (self.nbytes - _LINE_BYTES) // (_LINES - 1)
        self.sample = shadow((_LINES, _LINE_BYTES), (step, 1), "|u1", self.low).tobytes()
        if self.sample != before:
            self.moved = 0
        return self.sample == before


class Keeper:
    """The copies on one device, up to ``limit`` bytes, for any thread, under ``lock``."""
    # ``device`` has ``allocate(nbytes)``, which may raise MemoryError; ``upload(memory, offset,
    # low, high, hashes)``, which at least begins a copy that only :meth:`leave` cancels, and fills
    # hashes; and ``pinned(low, high)``: whether devices may write there, unseen by the kernel.
    # ``watch`` makes objects like :class:`~cuteblas.runtime.tracking.Watch`.

    def __init__(self, device: Any, limit: int, watch: Any = Watch):
        global _keepers
        self._default, self.limit, self.nbytes = limit, limit if _limit is None else _limit, 0
        self._device, self._watch = device, watch
        self.lock: Any = surviving(RLock())
        self._owners: dict[tuple[int, int], _Owner] = {}    # by address and bytes
        self._copies: dict[_Owner, None] = {}           # in the order of their last use
        self._dead: deque[tuple[_Owner, Any]] = deque()
        self._useful: set[Hashable] = set()           # kinds of results that came again as operands
        with _adding:
            _keepers = (*(each for each in _keepers if each() is not None), ref(self))

    def find(self, x: np.ndarray) -> tuple[Any, int] | None:
        """The memory of an array's copy, up to date, and bytes to its beginning, or ``None``."""
        if self.lock._is_owned():                       # a handler of signals, while parts move
            return None
        with self.lock:
            owner, offset, (low, high) = self._owner(x)
            if owner is None or owner.memory is None:
                return None
            memory, new = owner.memory, owner.unmoved > 0
            try:
                parts = owner.watch.written(low, high, again=True)
                moved = owner.nbytes if parts is None else sum(end - start for start, end in parts)
                if new:
                    owner.unmoved, owner.watch.bytes_written = owner.unmoved - moved, 0
                owner.saved += high - low - moved
                if parts is None or (moved and self._device.pinned(low, high)) or (not new and (
                        2 * moved >= owner.nbytes or _FAULT_COST * (owner.watch.bytes_written - owner.nbytes / 2) > owner.saved)):
                    self._drop(owner, "dropped: written over")
                    owner.patience *= 2
                    return None
                for start, end in parts:
                    self._device.upload(memory, start - owner.low, start, end,
                                        owner.watch.moving(start, end))
            except BaseException:                       # an interrupt, too
                self._drop(owner)
                raise
            self._use(owner)
            tally("arrays", "kept", "unchanged" if not parts else "moved" if new
                  else "moved in part").tick()
            return memory, offset

    def copies(self, arrays: Iterable[np.ndarray]) -> list[tuple[_Owner, Any, int, Any]] | None:
        """Copies as they are, for :meth:`unchanged` under the same ``lock``, or ``None``."""
        found = []
        for x in arrays:
            owner, offset, span = self._owner(x)
            if owner is None or owner.memory is None:
                return None
            found.append((owner, owner.memory, offset, span))
        return found

    def unchanged(self, copies: Iterable[tuple[_Owner, Any, int, Any]]) -> bool:
        """Whether copies had the elements of their arrays all the time since they were found."""
        for owner, memory, _offset, (low, high) in copies:
            if owner.memory is not memory or owner.watch.written(low, high) != []:
                return False
            owner.saved += high - low
            self._use(owner)
            tally("arrays", "kept", "unchanged").tick()
        return True

    def seen(self, x: np.ndarray, nbytes: int) -> tuple[Any, int] | None:
        """Note that bytes of an operand without a copy move; keep it if that pays by now."""
        with self.lock:
            if self.wanted(x, nbytes):
                self._keep(self._owner(x)[0], x)        # type: ignore[arg-type]
        return self.find(x)

    def wanted(self, x: np.ndarray, nbytes: int) -> bool:
        """Note what a call on an array would have gained by a copy: whether it pays now."""
        with self.lock:
            owner, *_ = self._owner(x, new=True)
            if owner is None or owner.memory is not None:
                return False
            if owner.sampled():
                self._use(owner)
            owner.moved += nbytes
            return owner.moved > owner.patience * owner.nbytes

    def keeps(self, kind: Hashable) -> bool:
        """Whether results of a kind came again as operands."""
        return kind in self._useful

    def result(self, x: np.ndarray, memory: Any, kind: Hashable) -> None:
        """Note a result that arrived in ``memory``; keep it if its kind came again as operands."""
        with self.lock:
            owner, *_ = self._owner(x, new=True)
            if owner is not None and x.nbytes == owner.nbytes:
                self._drop(owner)
                if memory is not None and self.keeps(kind):
                    self._keep(owner, x, memory)
                if owner.memory is None:
                    owner.sampled()
                else:
                    owner.watch.protect()
                    owner.watch.bytes_written = 0
                owner.kind = kind

    def leave(self, x: np.ndarray) -> None:
        """Drop the copy of an array that a call is about to write."""
        with self.lock:
            owner, *_ = self._owner(x)
            if owner is not None and 2 * x.nbytes >= owner.nbytes:
                self._drop(owner)

    def distrust(self, memories: Iterable[Any]) -> None:
        """Drop copies in memory of the device that an error may have left incomplete."""
        with self.lock:
            for owner in [owner for owner in self._copies
                          if any(owner.memory is memory for memory in memories)]:
                self._drop(owner)

    def expected(self, x: np.ndarray, hashed: bool = False) -> int:
        """Bytes of an array that a call need not move; or those whose hashes it compares."""
        with self.lock:
            owner, *_ = self._owner(x)
            return x.nbytes if owner in self._copies and not (
                hashed and isinstance(owner.watch, Watch)) else 0

    def shrink(self, nbytes: float) -> int:
        """Drop copies of so many bytes, least recently used first; return the bytes."""
        with self.lock:
            self._bury()
            before = self.nbytes
            while self._copies and before - self.nbytes < nbytes:
                self._drop(next(iter(self._copies)), "dropped: memory was wanted")
            return before - self.nbytes

    def release(self) -> None:
        with self.lock:
            self.shrink(inf)
            self._owners.clear()

    def _owner(self, x: np.ndarray, new: bool = False) -> tuple[_Owner | None, int,
                                                                tuple[int, int]]:
        """An array's owner's record, the bytes before its first element, and its addresses."""
        self._bury()
        base = _base(x)
        key = base.__array_interface__["data"][0], base.nbytes
        if key not in self._owners:
            if not new or not self.limit or base.nbytes < _LEAST_BYTES or not base.flags.forc or base.dtype.hasobject:
                return None, 0, key
            if len(self._owners) >= _MOST_OWNERS:
                self._owners = {(owner.low, owner.nbytes): owner for owner in self._copies}
            self._owners[key] = _Owner(*key)
        address = low = key[0] if x is base else x.__array_interface__["data"][0]
        high = low + x.nbytes
        if not x.flags.forc:
            low, high = (address + end for end in HOST_CUDA.memory(x).span)
        inside = key[0] <= low and high <= sum(key)
        return self._owners[key] if inside else None, address - key[0], (low, high)

    def _keep(self, owner: _Owner, x: np.ndarray, memory: Any = None) -> None:
        """Track an array's owner, with memory that has, or gets, its bytes."""
        low, high = owner.low, owner.low + owner.nbytes
        if owner.nbytes > self.limit or self._device.pinned(low, high):
            return
        self.shrink(self.nbytes + owner.nbytes - self.limit)
        try:
            owner.unmoved = owner.nbytes if memory is None else 0
            memory = self._device.allocate(owner.nbytes) if memory is None else memory
            owner.watch = self._watch(low, high)
        except (MemoryError, Untracked) as error:
            owner.patience *= 2
            tally("arrays", "kept", f"not: {error}").tick()
            return
        tally("arrays", "known by", "hashes" if isinstance(owner.watch, Hashes)
              else "the pages that Linux tracks").tick()
        owner.memory, owner.saved = memory, 0
        if (array := owning(x)) is not None:       # else nobody knows how long its memory lives
            owner.array = ref(array, lambda array: self._died(owner, array))
        self._copies[owner] = None
        self.nbytes += owner.nbytes

    def _use(self, owner: _Owner) -> None:
        if owner in self._copies:
            self._copies[owner] = self._copies.pop(owner)
        if owner.kind is not None:
            self._useful.add(owner.kind)
            owner.kind = None

    def _drop(self, owner: _Owner, why: str = "") -> None:
        self._useful.discard(owner.kind)                # a result that was not used
        owner.kind = None
        if owner in self._copies:
            del self._copies[owner]
            self.nbytes -= owner.nbytes
            owner.watch.end()
            owner.memory = owner.watch = owner.array = None
            owner.sample, owner.moved = b"", 0
            if why:
                tally("arrays", "kept", why).tick()

    def _died(self, owner: _Owner, array: Any) -> None:
        """Called before memory is freed, at any time; another thread's lock delays the drop."""
        self._dead.append((owner, array))
        if self.lock.acquire(blocking=False):
            self._bury()
            self.lock.release()

    def _bury(self) -> None:
        while self._dead:
            owner, array = self._dead.popleft()
            if owner.array is array:
                self._drop(owner)


def keepers() -> list[Keeper]:
    return [keeper for each in _keepers if (keeper := each()) is not None]


def expected(arrays: Iterable[Any], hashed: bool = False) -> int:
    """Bytes of NumPy arrays that a call need not move; or those whose hashes it compares."""
    filled = [keeper for keeper in keepers() if keeper.nbytes]
    return sum({id(x): keeper.expected(x, hashed) for keeper in filled for x in arrays
                if is_large(x)}.values())


def by_hashes() -> bool:
    """Whether hashes alone tell if kept arrays were written."""
    return hashes_arrays() or why_untracked() is not None


def is_on() -> bool:
    return keeps_arrays() if _limit is None else _limit > 0


def is_large(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.nbytes >= _LEAST_BYTES


def owning(x: np.ndarray) -> np.ndarray | None:
    """The array with which an array's memory goes; ``None`` if it is not known."""
    base = _base(x)
    return getattr(base.base, "array_owner", base)


def wanted(x: np.ndarray, nbytes: int) -> bool:
    """Whether to keep an array, after one more call that would have gained these bytes."""
    # all of which take note
    return max([keeper.wanted(x, nbytes) for keeper in keepers()], default=False)


def release() -> None:
    """Free the device memory that holds copies of NumPy arrays, and memory of the host that large
    arrays have left.

    Returns
    -------
    None
        The device's memory is free, in CuPy's pool. Later calls move arrays again.

    Examples
    --------
    >>> cuteblas.release()
    """
    for keeper in keepers():
        keeper.release()
    free_idle()


def keep_limit(nbytes: int | None) -> int | None:
    """Keep NumPy arrays that come again on the GPU, in so much memory of each device.

    Parameters
    ----------
    nbytes : int or None
        The most bytes; 0 keeps none. ``None`` is 0, or with ``CUTEBLAS_KEEP_ARRAYS=1`` half of the
        memory that is free when a device is used first.

    Returns
    -------
    int or None
        The previous limit.

    Raises
    ------
    TypeError, ValueError
        For anything else, or a negative number.

    Examples
    --------
    >>> before = cuteblas.keep_limit(2**30)
    >>> cuteblas.keep_limit(before)
    1073741824
    """
    global _limit
    before, _limit = _limit, None if nbytes is None else checked_limit(nbytes, "the limit of kept arrays")
    for keeper in keepers():
        keeper.limit = keeper._default if nbytes is None else nbytes
        keeper.shrink(keeper.nbytes - keeper.limit)
    return before


_limit: int | None = None


def _base(x: np.ndarray) -> np.ndarray:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def _forget() -> None:
    for keeper in keepers():
        _orphans.append((keeper._owners, keeper._copies))
        keeper._owners, keeper._copies, keeper.nbytes = {}, {}, 0


forget_in_children(_forget)
