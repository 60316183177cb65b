"""Copies of NumPy arrays by blocks and in threads, against NumPy's."""

from __future__ import annotations

import os
import sys
import threading
import time
from itertools import permutations

import numpy as np
import pytest

import cuteblas
from cuteblas.engines import blocked

COPY = sys.modules["cuteblas.functions.copy"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Copy everything in blocks of few elements and in three threads."""
    for name, value in (("LEAST", 1), ("_BLOCK", 64), ("_EXTENT", 5), ("_LINE", 1), ("_LINES", 0),
                        ("_RUN", 8), ("_FOR_A_THREAD", 1), ("_PLAIN", 1), ("_PLAIN_CORES", 1)):
        monkeypatch.setattr(blocked, name, value)
    monkeypatch.setattr(COPY, "LEAST", 1)
    monkeypatch.setattr(blocked, "_cores", lambda: 3)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", ["?", "i1", ">i2", "f4", "f8", "c16", "M8[s]"])
def test_copies_in_any_order_are_those_of_numpy(dtype):
    rng = np.random.default_rng(0)
    for shape in ((40, 30), (7, 1, 19), (3, 5, 2, 8), (64,)):
        x = rng.integers(0, 2 if dtype == "?" else 100, [2 * n for n in shape]).astype(dtype)
        for array in (x[tuple(slice(n) for n in shape)],
                      x[tuple(slice(None, None, -2) for _ in shape)]):
            for axes in permutations(range(len(shape))):
                a = array.transpose(axes)
                for order in "CFAK":
                    result, expected = cuteblas.copy(a, order), np.copy(a, order)
                    np.testing.assert_array_equal(result, expected)
                    assert (result.dtype, result.strides) == (expected.dtype, expected.strides)
                for name in ("ascontiguousarray", "asfortranarray"):
                    result, expected = getattr(cuteblas, name)(a), getattr(np, name)(a)
                    np.testing.assert_array_equal(result, expected)
                    assert result.strides == expected.strides
                out = np.zeros([2 * n for n in a.shape],
                               dtype)[tuple(slice(None, None, -2) for _ in shape)]
                assert cuteblas.copy(a, out=out) is out
                np.testing.assert_array_equal(out, a)
    assert {route for calls in cuteblas.stats().values()
            for route in calls["calls"]} >= {blocked.WORDS}


def test_large_transposes_go_in_blocks_and_others_do_not():
    a = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    cuteblas.reset_stats()
    result = cuteblas.ascontiguousarray(a.T)
    np.testing.assert_array_equal(result, a.T)
    assert cuteblas.ascontiguousarray(a) is a
    for x in (a, a[:100, :100].T, a[:, :3].T, a.astype(object).T):
        np.testing.assert_array_equal(cuteblas.copy(x, "C"), x)
    assert cuteblas.stats()["ascontiguousarray"] == {"calls": {"numpy": 1, "numpy: in blocks": 1}}
    assert cuteblas.stats()["copy"] == {"calls": {"numpy": 4}}
    assert cuteblas.explain_copy(a.T).runs_on.startswith("NumPy, in blocks, 1 thread")
    assert cuteblas.explain_copy(a).runs_on.startswith("NumPy;")
    with pytest.raises(ValueError) as theirs:
        np.copy(a.T, "X")
    with pytest.raises(ValueError) as ours:
        cuteblas.copy(a.T, "X")
    assert str(ours.value) == str(theirs.value)
    square = a.copy()
    assert cuteblas.copy(square.T, out=square) is square
    np.testing.assert_array_equal(square, a.T)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("broken", ["first", "other"])
def test_an_error_in_a_thread_ends_all_and_is_raised(monkeypatch, broken):
    main, copyto = threading.current_thread(), np.copyto

    def fails(*arguments):
        if (threading.current_thread() is main) == (broken == "first"):
            raise KeyboardInterrupt
        time.sleep(1e-3)
        copyto(*arguments)

    monkeypatch.setattr(blocked.np, "copyto", fails)
    with pytest.raises(KeyboardInterrupt):
        blocked.copied(np.zeros((300, 300)).T, "C")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cuteblas copy")]


@pytest.mark.usefixtures("small_blocks")
def test_without_further_threads_there_is_one(monkeypatch):
    def refuses(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    a = np.arange(10000.0).reshape(100, 100)
    np.testing.assert_array_equal(blocked.copied(a.T, "C"), a.T)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_threads_are_no_more_than_cores_of_this_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {5})
    found = blocked.method((8192, 8192), (32768, 4), (4, 32768), np.dtype(np.float32))
    assert found.threads == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(64)))
    found = blocked.method((8192, 8192), (32768, 4), (4, 32768), np.dtype(np.float32))
    assert found.threads == 16
