"""What happens in a child process made by ``os.fork``, in which only the forking thread goes on.

Locks of other threads are free in it, and what they guard is whole. CUDA does not survive a fork:
calls of the driver fail or never return, so the copy of a process that used CUDA refuses CuPy
arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, RLock, local
from typing import Any, TypeVar
from weakref import WeakSet

REFUSAL = (
    "this process was forked from one that had used CUDA, and CUDA does not work after a fork: start processes with "
    "multiprocessing's 'spawn' or 'forkserver', or fork before making the first CuPy array; NumPy arrays work here"
)

BACKGROUND = "cuteblas"
"""The name of threads whose work nobody has to wait for."""

_Lock = TypeVar("_Lock", type(Lock()), type(RLock()))          # type: ignore[misc]
_uses_cuda = False
_orphaned = False
_forgetting: list[Callable[[], object]] = []


def surviving(lock: _Lock) -> _Lock:
    """A lock that is free in a child of ``fork``, whoever held it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)      # as the standard library does
    return lock


class _Whole(local):
    """``with WHOLE.lock:`` encloses a call, with locks of a C library, that forks wait for."""

    _new, _every, _held = RLock(), WeakSet[Any](), list[Any]()

    def __init__(self) -> None:
        self._own: Any = RLock()
        with self._new:
            self._every.add(self._own)

    @property
    def lock(self) -> Any:
        """This thread's lock, once no fork is under way; a signal handler inside does not wait."""
        if not self._own._is_owned():
            with self._new:
                pass
        return self._own

    def before_fork(self) -> None:
        """Wait for the calls of other threads, and let none begin; here a signal handler forks."""
        self._entered = self._own._release_save() if self._own._is_owned() else None
        self._new.acquire()
        self._held[:] = self._every
        for lock in self._held:
            lock.acquire()

    def after_fork(self) -> None:
        while self._held:
            self._held.pop().release()
        self._new.release()
        if self._entered:
            self._own._acquire_restore(self._entered)


WHOLE = _Whole()


def use_cuda() -> None:
    global _uses_cuda
    refuse_orphans()
    _uses_cuda = True


def orphaned() -> bool:
    """Whether this process is a child of one that had used CUDA."""
    return _orphaned


def refuse_orphans() -> None:
    if _orphaned:
        raise RuntimeError(REFUSAL)


def forget_in_children(forget: Callable[[], object]) -> None:
    """Call a function in children of ``fork`` that cannot use CUDA, before they go on."""
    _forgetting.append(forget)


def _after_fork() -> None:
    global _orphaned
    if _uses_cuda:
        _orphaned = True
        for forget in _forgetting:
            forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=WHOLE.before_fork, after_in_parent=WHOLE.after_fork,
                        after_in_child=WHOLE.after_fork)
    os.register_at_fork(after_in_child=_after_fork)
