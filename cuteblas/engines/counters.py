"""Counters of calls and copies by route, so that nothing is silently slower."""

from __future__ import annotations

from functools import cache
from itertools import count
from threading import Lock

from .._forks import surviving

__all__ = ["Tally", "reset_stats", "stats", "tally"]

_lock = surviving(Lock())
_tallies: dict[tuple[str, str, str], Tally] = {}


class Tally:
    """A count that any thread may advance without a lock."""
    # ``tick`` is the ``__next__`` of an ``itertools.count``, one uninterrupted C call of about 20
    # ns. Reading takes one value out of the sequence, deducted from the next reading.

    __slots__ = ("_offset", "tick")

    def __init__(self) -> None:
        self.tick = count().__next__
        self._offset = 0

    def read(self, reset: bool = False) -> int:
        """The count; with ``reset`` it starts again at 0."""
        with _lock:
            value = self.tick()
            total = value - self._offset
            self._offset = value + 1 if reset else self._offset + 1
            return total


@cache
def tally(function: str, kind: str, detail: str) -> Tally:
    """The one tally of a function for a route (kind "calls") or a reason (kind "copies")."""
    with _lock:                             # threads that ask at the same time get the same one
        return _tallies.setdefault((function, kind, detail), Tally())


def stats() -> dict[str, dict[str, dict[str, int]]]:
    """Counts of calls and copies since the start or the last :func:`reset_stats`.

    Returns
    -------
    dict
        For every function that was called, ``"calls"`` by route and ``"copies"`` by reason. A route
        is a kernel family such as ``"gemm_simt"``, ``"numpy"`` for NumPy's BLAS,
        ``"delegated to ..."`` with the reason, or ``"nothing"`` for an empty result. Operands are
        copied if kernels cannot read or write them as they are. ``"tune"`` counts the choices that
        :func:`tune` measured. Zeros are left out.

    Examples
    --------
    >>> import cuteblas, numpy
    >>> cuteblas.reset_stats()
    >>> cuteblas.matmul(numpy.eye(2), numpy.eye(2)).trace()
    np.float64(2.0)
    >>> cuteblas.stats()
    {'matmul': {'calls': {'numpy': 1}}}
    """
    result: dict[str, dict[str, dict[str, int]]] = {}
    for (function, kind, detail), counted in sorted(_tallies.copy().items()):
        if total := counted.read():
            result.setdefault(function, {}).setdefault(kind, {})[detail] = total
    return result


def reset_stats() -> None:
    """Set all counters to 0.

    Returns
    -------
    None
        The counters are 0.

    Examples
    --------
    >>> cuteblas.reset_stats()
    >>> cuteblas.stats()
    {}
    """
    for counted in _tallies.copy().values():
        counted.read(reset=True)
