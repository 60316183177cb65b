"""A fake GPU, NumPy with a clock that returns given times, and a card whose times follow a
formula."""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace
from itertools import cycle

import numpy as np


class FakeGpu:
    """The interface of ``machines.Gpu``; every call has its own of the ``seconds``, by when it came
    first."""

    name = "a fake GPU"
    rival = np
    title = "CuPy"

    def __init__(self, seconds=(1.0,)):
        self._seconds, self._taken = cycle(seconds), {}
        self.calls = 0

    def get(self, x):
        return np.asarray(x)

    def interval(self, call, times):
        for _ in range(times):
            call()
        self.calls += times
        if id(call) not in self._taken:
            # kept, so that its number stays its own
            self._taken[id(call)] = call, next(self._seconds)
        return self._taken[id(call)][1] * times

    def host_interval(self, call, times):
        call()
        return next(self._seconds) * times


def future(result):
    made = Future()
    made.set_result(result)
    return made


class NoWorkers:
    """Processes that compile nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, problem, names, device):
        return future([None] * len(names))


class FormulaCard:
    """A card with other numbers."""

    workers = NoWorkers()

    def __init__(self, device, noise=0.0):
        rng = random.Random(5)
        changed = {family: {name: x * rng.choice((0.4, 2.5)) for name, x in numbers.items()}
                   for family, numbers in device.fitted.numbers.items()
                   if family in ("units", "rates", "waits")}
        self.device, self.true, self.noise = device, replace(device, costs=device.fitted.changed(changed)), noise
        self.rng, self.timed = rng, 0

    def times(self, problem, plans):
        self.timed += len(plans)
        return {
            i: x.seconds(self.true) * (1 + self.rng.uniform(0, self.noise))
            for i, x in enumerate(problem.alternatives)
        }
