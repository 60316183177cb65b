"""Layouts of arrays in memory, against NumPy's answers about real arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuteblas.engines.emulator import EMULATOR
from cuteblas.engines.memory import (
    Memory,
    is_contiguous,
    new_memory,
    overlap,
    overlaps_itself,
    same_elements,
)

from ..functions.arrays import small_arrays
from ..functions.comparisons import check_same_strides

shapes = st.lists(st.sampled_from((0, 1, 2, 3)), max_size=4).map(tuple)


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes, st.sampled_from("CFAK"))
def test_new_arrays_are_laid_out_as_numpy_does(data, shape, order):
    x = small_arrays(data.draw, shape)
    check_same_strides(new_memory(EMULATOR.memory(x), order),
                       np.copy(x, order=order))
    assert is_contiguous(EMULATOR.memory(x), "C") == x.flags.c_contiguous
    assert is_contiguous(EMULATOR.memory(x), "F") == x.flags.f_contiguous


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_overlap_is_exact(data):
    memory = np.zeros(64)
    views = []
    for _ in range(2):
        shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple))
        strides = tuple(data.draw(st.integers(-5, 5)) * 8 for _ in shape)
        low = -sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
        views.append(np.ndarray(shape, "f8", memory, low + 8 * data.draw(st.integers(0, 8)),
                                strides))
    assert overlap(*map(EMULATOR.memory, views)) == np.shares_memory(*views)


def test_the_same_elements_have_any_stride_along_one_index():
    x = np.zeros((3, 1, 2))
    same = np.ndarray(x.shape, x.dtype, x, 0, (16, -640, 8))
    assert same_elements(EMULATOR.memory(x), EMULATOR.memory(same))
    assert not same_elements(EMULATOR.memory(x), EMULATOR.memory(x[::-1]))
    other = np.ndarray(x.shape, x.dtype, np.zeros(9), 0, (24, 16, 8))
    assert not same_elements(EMULATOR.memory(other), replace(EMULATOR.memory(other),
                                                             strides=(16, 16, 8)))


def test_what_is_too_hard_to_tell_counts_as_overlap():
    """Rather a copy too many than a wrong result: NumPy's own example."""
    kind, address = np.dtype("i1"), 1 << 40
    assert overlap(Memory((1049, 1049, 1049), (36674, 61119, 85569), kind, address),
                   Memory((1049, 1049, 1), (12223, 12224, 1), kind, address + 64023025))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=3))
def test_no_self_overlap_goes_unnoticed(modes):
    shape, strides = tuple(n for n, _ in modes), tuple(8 * s for _, s in modes)
    offsets = [sum(i * s for i, s in zip(index, strides, strict=True))
               for index in np.ndindex(shape)]
    if len(set(offsets)) < len(offsets):
        assert overlaps_itself(Memory(shape, strides, np.dtype("f8")))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=3),
       st.sampled_from((1, 2, 8)))
def test_self_overlap_is_exact(modes, itemsize):
    shape, strides = tuple(n for n, _ in modes), tuple(s for _, s in modes)
    starts = [sum(i * s for i, s in zip(index, strides, strict=True))
              for index in np.ndindex(shape)]
    touched = [start + i for start in starts for i in range(itemsize)]
    assert overlaps_itself(Memory(shape, strides,
                                  np.dtype(f"V{itemsize}"))) == (len(set(touched)) < len(touched))


def test_self_overlap_that_is_too_hard_to_tell_is_a_doubt(monkeypatch):
    def too_hard(*_arrays, **_options):
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    x = Memory((3, 5), (16, 8), np.dtype("f8"))
    assert overlaps_itself(x) and not overlaps_itself(x, doubt=False)


@pytest.mark.parametrize("x", [np.zeros((3, 4)), np.zeros((3, 4)).T, np.zeros((3, 4))[::-1, ::2],
                               np.zeros((5, 1, 2)), np.zeros((0, 3))])
def test_ordinary_arrays_do_not_overlap_themselves(x):
    assert not overlaps_itself(EMULATOR.memory(x))


@pytest.mark.parametrize("address, alignment",
                         [(0, 16), (16, 16), (8, 8), (4100, 4), (6, 2), (7, 1), (4096, 16)])
def test_alignment(address, alignment):
    assert Memory((1,), (8,), np.dtype("f8"), address).alignment == alignment


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 3), (1, 1)])
@pytest.mark.parametrize("dtype", ["f8", "c16", "f2", "i1"])
@pytest.mark.parametrize("offset, strides", [(0, (24, 8)), (1, (24, 8)), (8, (5, 8)), (8, (24, 5)),
                                             (4, (24, 8))])
def test_aligned_is_what_numpy_calls_so(shape, dtype, offset, strides):
    x = np.ndarray(shape, dtype, np.zeros(20, "c16"), offset, strides)
    assert EMULATOR.memory(x).aligned == x.flags.aligned


def test_span():
    assert Memory((3, 4), (-32, 8), np.dtype("f8")).span == (-64, 32)
    assert Memory((3, 0), (-32, 8), np.dtype("f8")).span == (0, 0)


def test_whole_elements():
    def whole(address, *strides):
        return Memory((2,) * len(strides), strides, np.dtype("f8"), address).whole_elements

    assert whole(8, 16, -8)
    assert not whole(4, 16)
    assert not whole(8, 12)
    assert Memory((1,), (3,), np.dtype("f8"), 8).whole_elements


def test_new_arrays_are_aligned():
    wanted = Memory((3, 5), (8, 24), np.dtype("f8"))
    for new in [EMULATOR.empty(wanted) for _ in range(20)]:
        assert new.shape == (3, 5) and new.strides == (8,
                                                       24) and EMULATOR.memory(new).alignment == 16


def test_new_arrays_are_aligned_where_numpy_aligns_less(monkeypatch):
    monkeypatch.setattr("cuteblas.engines.emulator._ALIGNMENT", 4096)
    wanted = Memory((3, 5), (8, 24), np.dtype("f8"))
    for new in [EMULATOR.empty(wanted) for _ in range(5)]:
        assert new.strides == (8, 24) and EMULATOR.memory(new).address % 4096 == 0
