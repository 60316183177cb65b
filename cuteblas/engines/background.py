"""Work that a call begins and does not wait for: imports, the start of CUDA, planning, compilation."""

from __future__ import annotations

from collections.abc import Callable
from threading import BoundedSemaphore, Event, Thread, main_thread
from time import perf_counter, sleep
from typing import Any

from .._forks import BACKGROUND, forget_in_children

__all__ = ["Job", "later"]

_MOST = 4                               # at once; each compiles the kernels of a plan side by side
_PATIENCE = 0.25                        # an overdue job is expected to take this part of its time so far in addition
_MOMENT = 2e-3                          # seconds in which the caller goes on to NumPy, which needs no interpreter


class Job:
    """A call of a function in a thread of its own.

    Parameters
    ----------
    work : callable
        What to do.
    expected : float
        The seconds that this should take.
    """

    def __init__(self, work: Callable[[], object], expected: float):
        self._work, self._expected, self._begun = work, expected, perf_counter()
        self._end = Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, unless the program has ended meanwhile."""
        sleep(_MOMENT)
        with _turns:
            try:
                if main_thread().is_alive():
                    self._work()
            except BaseException as error:
                self._error = error
            finally:
                self._end.set()

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._end.is_set()

    def exception(self) -> BaseException | None:
        """What ended it, when it has ended."""
        self._end.wait()
        return self._error

    def wait(self, most: float) -> float:
        """Wait if it is expected to end within so many seconds; the seconds that this took."""
        begin = perf_counter()
        elapsed = begin - self._begun
        if self.done() or max(self._expected - elapsed, _PATIENCE * elapsed) >= most:
            return 0.0
        self._end.wait(most)
        return perf_counter() - begin


def later(function: Callable[..., object], *arguments: Any, expected: float = 0.0) -> Job:
    """Begin to call a function in another thread. The end of the program waits for it if it has begun."""
    job = Job(lambda: function(*arguments), expected)
    Thread(target=job.run, name=BACKGROUND).start()
    return job


_turns = BoundedSemaphore(_MOST)


def _forget() -> None:
    global _turns
    _turns = BoundedSemaphore(_MOST)


forget_in_children(_forget)
