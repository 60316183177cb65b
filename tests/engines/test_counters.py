"""Counters, backends and what ``import cuteblas`` offers."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

import cuteblas
from cuteblas.engines.counters import Tally, tally
from cuteblas.engines.dispatch import kind_of
from cuteblas.engines.settings import current_backend


def test_tally_counts_and_resets():
    counted = Tally()
    for _ in range(3):
        counted.tick()
    assert [counted.read(), counted.read(), counted.read(reset=True),
            counted.read()] == [3, 3, 3, 0]
    counted.tick()
    assert counted.read() == 1


def test_no_tick_is_lost_between_threads():
    counted = tally("test", "calls", "threads")
    readings = []

    def work():
        for i in range(20_000):
            counted.tick()
            if i % 1000 == 0:
                readings.append(counted.read())

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.read(reset=True) == 80_000 and max(readings) <= 80_000


def test_stats_leave_out_zeros():
    cuteblas.reset_stats()
    assert cuteblas.stats() == {}
    cuteblas.matmul([1], [2])
    cuteblas.matmul(np.ones(2), np.ones(2))
    assert cuteblas.stats() == {"matmul": {"calls": {"numpy": 2}}}


def test_a_refused_call_is_not_counted():
    cuteblas.reset_stats()
    for x2 in (np.ones(3), [1, 2, 3]):
        with pytest.raises(ValueError):
            cuteblas.matmul(np.ones(2), x2)
    assert cuteblas.stats() == {}


def test_backend_holds_inside_the_block_and_this_thread():
    assert current_backend() == "numpy"
    with cuteblas.backend("emulator"):
        assert current_backend() == "emulator"
        with cuteblas.backend("numpy"):
            assert current_backend() == "numpy"
        seen = []
        thread = Thread(target=lambda: seen.append(current_backend()))
        thread.start()
        thread.join()
        assert seen == ["numpy"] and current_backend() == "emulator"
    assert current_backend() == "numpy"


@pytest.mark.parametrize("name", ["gpu", "", "NUMPY"])
def test_unknown_backend(name):
    message = "the backend is .* has to be one of 'auto', 'numpy', 'cuda', 'emulator'"
    with pytest.raises(ValueError, match=message), cuteblas.backend(name):
        pass


@pytest.mark.parametrize("value, printed", [("emulator", "emulator"), ("", "numpy"),
                                            ("gpu", "CUTEBLAS_BACKEND is 'gpu'")])
def test_backend_from_the_environment(value, printed):
    program = "import cuteblas\ntry: print(cuteblas.current_backend())\nexcept ValueError as error: print(error)"
    result = subprocess.run([sys.executable, "-c", program],
                            env=os.environ | {"CUTEBLAS_BACKEND": value}, capture_output=True,
                            text=True, check=True)
    assert result.stdout.startswith(printed)


class Foreign:
    def __array_ufunc__(self, *_):
        return None


class ForeignArray(np.ndarray):
    def __array_ufunc__(self, *_):
        return None


@pytest.mark.parametrize("operand, expected", [(np.ones(2), "numpy"),
                                               (np.ones((2, 2)).view(np.matrix), "subclass"),
                                               (np.ones(2).view(np.memmap), "subclass"),
                                               (np.ma.array([1]), "subclass"),
                                               (np.ones(2).view(ForeignArray), "foreign"),
                                               (Foreign(), "foreign"), (1.5, "scalar"),
                                               (True, "scalar"), (np.float32(1), "scalar"),
                                               (np.str_("a"), "scalar"), ([1, 2], "like"),
                                               (None, "like")])
def test_kinds(operand, expected):
    assert kind_of(operand) == expected


def test_public_names():
    for name in cuteblas.__all__:
        assert getattr(cuteblas, name).__doc__
    assert set(cuteblas.__all__) <= set(dir(cuteblas))
    assert cuteblas.layout.__name__ == "cuteblas.layout" and "layout" in dir(cuteblas)
    with pytest.raises(AttributeError, match="module 'cuteblas' has no attribute 'nonsense'"):
        _ = cuteblas.nonsense


def test_import_is_light():
    program = """
import sys, cuteblas
parts = {"_forks", "_imports", "array", "engines", "functions"}
print(sorted(n for n in sys.modules if n.startswith("cuteblas.") and n.split(".")[1] not in parts))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True).stdout.strip() == "[]"
