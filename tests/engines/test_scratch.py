"""Scratch memory that is used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cuteblas
from cuteblas.engines import host_memory
from cuteblas.engines.host_memory import Scratch


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch):
    """No memory of earlier calls."""
    monkeypatch.setattr(host_memory, "_waiting", [])


def test_nobody_has_the_same_memory():
    first, second = Scratch.taken(), Scratch.taken()
    x, y = (one.array("a", (4, 4), np.float32) for one in (first, second))
    assert not np.may_share_memory(x, y)
    first.give_back()
    third = Scratch.taken()
    assert third is first and Scratch.taken() is not first
    assert np.may_share_memory(third.array("a", (2, 4), np.float64), x)
    assert not np.may_share_memory(third.array("b", (4, 4), np.int8), x)


def test_arrays_have_the_order_of_another_ones_matrices():
    like = np.zeros((2, 3, 5)).mT
    array = Scratch().array("a", (2, 5, 3), np.int16, like)
    assert array.shape == (2, 5, 3) and array.mT.flags.c_contiguous


def test_what_is_large_is_freed(monkeypatch):
    monkeypatch.setattr(host_memory, "_KEPT_BYTES", 64)
    one = Scratch.taken()
    small, large = one.array("small", (8,), np.float64), one.array("large", (9,), np.float64)
    one.give_back()
    again = Scratch.taken()
    assert np.may_share_memory(again.array("small", (8,), np.float64), small)
    assert not np.may_share_memory(again.array("large", (8,), np.float64), large)


def test_threads_that_multiply_and_copy_at_the_same_time():
    rng = np.random.default_rng(0)
    a, b, x = rng.integers(-9, 9, (120, 90)), rng.integers(-9, 9, (90, 130)), rng.standard_normal((600, 700))

    def work(i):
        return (cuteblas.matmul(a + i, b) == (a + i) @ b).all() and (
            cuteblas.ascontiguousarray((x + i).T) == (x + i).T
        ).all()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


def test_a_piece_that_is_too_small_is_replaced_and_two_wait_at_most():
    one = Scratch.taken()
    short = one.array("a", (4,), np.int8)
    assert one.array("a", (400,), np.int8).nbytes == 400 and short.nbytes == 4
    for each in [Scratch.taken() for _ in range(3)]:
        each.give_back()
    assert len(host_memory._waiting) == 2
