"""Clocks, and what they measure."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cuteblas.cli.machines import Gpu, Host, medians

from .fakes import FakeGpu


def test_host_times_calls():
    calls = []
    assert Host().interval(lambda: calls.append(1), 3) >= 0 and len(calls) == 3


def test_medians_take_turns_in_changing_order():
    order = []
    taken = {"a": iter((9, 5, 1, 3, 2, 2, 2, 2, 1, 3)),
             "b": iter((9, 5, 10, 30, 20, 20, 20, 20, 10, 30))}

    def interval(call, times):
        call()
        return float(next(taken[order[-1]]))

    machine = SimpleNamespace(interval=interval)
    # after warming up, twice
    result = medians(machine, lambda: order.append("a"), lambda: order.append("b"), repeats=8)
    rounds = [tuple(order[i:i + 2]) for i in range(0, len(order), 2)]
    assert result == [2.0, 20.0] and rounds[:2] == [("a", "b")] * 2
    assert len(rounds) == 10 and set(rounds) == {("a", "b"), ("b", "a")}


def test_short_calls_are_timed_several_at_once_and_long_ones_fewer_times():
    quick, slow = FakeGpu(seconds=(1e-5,)), FakeGpu(seconds=(3.0,))
    medians(quick, lambda: None, repeats=4)
    assert quick.calls == 2 + 4 * 20
    medians(slow, lambda: None, repeats=4, seconds=6.5)
    assert slow.calls == 2 + 2


def test_gpu_counts_only_what_lies_between_the_events(monkeypatch):
    log = []

    class Event:
        def record(self):
            self.time = len(log)
            log.append("event")

        def synchronize(self):
            log.append("wait")

    data = SimpleNamespace(memset_async=lambda value, size, stream: log.append(f"memset {size}"))
    cuda = SimpleNamespace(Event=Event, get_current_stream=lambda: "stream",
                           runtime=SimpleNamespace(memGetInfo=lambda: (800, 900)),
                           get_elapsed_time=lambda start, stop: float(stop.time - start.time))
    cupy = SimpleNamespace(
        uint8=np.uint8, asnumpy=np.asarray,
        empty=lambda size, dtype: SimpleNamespace(data=data, nbytes=size), cuda=cuda
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("cuteblas.runtime.device_info", lambda: SimpleNamespace(name="some GPU"))
    machine = Gpu()
    assert machine.name == "some GPU"
    assert machine.interval(lambda: log.append("call"), 3) == pytest.approx(4e-3)
    assert log == ["memset 100", "event", "call", "call", "call", "event", "wait"]
    log.clear()
    machine.interval(lambda: log.append("call"), 100)
    assert log.count("memset 100") == 4 and log.count("call") == 100
