"""A fake GPU: NumPy in place of CuPy, and a clock that returns given times."""

from __future__ import annotations

from itertools import cycle

import numpy as np


class FakeGpu:
    """The interface of ``machines.Gpu``; every call has its own of the ``seconds``, by when it came first."""

    name = "a fake GPU"
    rival = np
    rival_name = "cupy"
    host_turn = 200

    def __init__(self, seconds=(1.0,)):
        self._seconds, self._taken = cycle(seconds), {}
        self.calls = 0

    def put(self, x):
        return x

    def get(self, x):
        return np.asarray(x)

    def interval(self, call, times):
        for _ in range(times):
            call()
        self.calls += times
        if id(call) not in self._taken:
            self._taken[id(call)] = call, next(self._seconds)           # kept, so that its number stays its own
        return self._taken[id(call)][1] * times

    def host_interval(self, call, times):
        call()
        return next(self._seconds) * times

    def copy(self, target, source):
        target[...] = source
