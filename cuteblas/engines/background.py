"""Work that a call begins and does not wait for: imports, CUDA's start, planning, compilation."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Lock, Thread, enumerate, local
from time import perf_counter, sleep
from typing import Any

from .._forks import BACKGROUND, forget_in_children, surviving

__all__ = ["Job", "expect", "go_on", "later", "short_turns"]

_MOST = 4         # at once; each compiles the kernels of a plan side by side
_PATIENCE = 0.25  # an overdue job is expected to take this part of its time so far in addition
_MOMENT = 2e-3    # seconds in which the caller goes on to NumPy, which needs no interpreter
_TURN = 1e-4      # seconds after which a job lets a caller have the interpreter: a fiftieth of
                  # Python's own
_FULL = 1 << 30   # collections of younger objects before one of all, which would keep the
                  # interpreter for 20 ms while thousands of objects are being imported
_LOOK = 0.02      # seconds after which a caller that waits asks anew how long it will take


class Job:
    """A call of a function in its own thread; ``expected`` is the seconds that it should take."""

    def __init__(self, work: Callable[[], object], expected: float):
        self._work, self._expected, self._begun = work, expected, perf_counter()
        self._end = Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, unless the program has ended meanwhile."""
        sleep(_MOMENT)
        with _turns, short_turns():
            _here.job = self
            try:
                go_on()
                self._work()
            except BaseException as error:
                self._error = error
            finally:
                self._end.set()

    def done(self) -> bool:
        return self._end.is_set()

    def exception(self) -> BaseException | None:
        self._end.wait()
        return self._error

    def wait(self, most: float) -> float:
        """Wait if the job should end within ``most`` seconds; return the seconds waited."""
        begin = now = perf_counter()
        end = begin + most
        while not self.done() and now + max(self._expected - (now - self._begun),
                                            _PATIENCE * (now - self._begun)) < end:
            self._end.wait(min(_LOOK, end - now))
            now = perf_counter()
        return now - begin

    def expect(self, seconds: float) -> None:
        self._expected = perf_counter() - self._begun + seconds


_here = local()


def go_on() -> None:
    """End this thread's job if the program has ended, which waits for it."""
    if all(thread.daemon or thread.name == BACKGROUND or not thread.is_alive()
           for thread in enumerate()):
        raise SystemExit


def expect(seconds: float) -> None:
    """Say how many seconds this thread's job, if it is one, will take from now on."""
    if (job := getattr(_here, "job", None)) is not None:
        job.expect(seconds)


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns with the interpreter often, and nobody collect all garbage."""
    global _running, _before
    with _lock:
        _running += 1
        if _running == 1:
            interval, threshold = _before = sys.getswitchinterval(), gc.get_threshold()
            sys.setswitchinterval(min(interval, _TURN))
            gc.set_threshold(*threshold[:2], _FULL)
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                _restore()


def later(function: Callable[..., object], *arguments: Any, expected: float = 0.0) -> Job:
    """Begin to call a function in another thread, for which the end of the program waits."""
    job = Job(lambda: function(*arguments), expected)
    Thread(target=job.run, name=BACKGROUND).start()
    return job


_turns = BoundedSemaphore(_MOST)
_lock = surviving(Lock())               # of the two below
_running = 0
_before = sys.getswitchinterval(), gc.get_threshold()


def _restore() -> None:
    """Give back Python's settings that the program has not changed meanwhile."""
    interval, threshold = _before
    if sys.getswitchinterval() <= _TURN:
        sys.setswitchinterval(interval)
    if gc.get_threshold()[2] == _FULL:
        gc.set_threshold(*threshold)


def _forget() -> None:
    global _turns, _running
    if _running:
        _restore()
    _turns, _running = BoundedSemaphore(_MOST), 0


forget_in_children(_forget)
