"""``copy``, ``ascontiguousarray`` and transposes of NumPy arrays against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas

from . import reference
from .arrays import DTYPES, small_arrays
from .comparisons import check_same_refusal, check_same_strides, outcome

shapes = st.lists(st.sampled_from((0, 1, 2, 3, 4)), max_size=4).map(tuple)


@pytest.fixture(params=["numpy", "by definition"])
def anywhere(request):
    """Both backends."""
    if request.param == "numpy":
        with cuteblas.backend("numpy"):
            yield
    else:
        request.getfixturevalue("by_definition")
        with cuteblas.backend("emulator"):
            yield


def same(result, expected):
    assert type(result) is type(expected) and result.dtype == expected.dtype
    for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED"):
        assert result.flags[flag] == expected.flags[flag], flag
    check_same_strides(result, expected)
    np.testing.assert_array_equal(result, expected)


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes, st.sampled_from((*"CFAKcfak", None)))
def test_copy(by_definition, data, shape, order):
    x = small_arrays(data.draw, shape, (*DTYPES, "g", ">f4", "M8[s]", "S3", "U2"))
    same(cuteblas.copy(x, order=order), np.copy(x, order=order))


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes)
def test_ascontiguousarray(by_definition, data, shape):
    x = small_arrays(data.draw, shape)
    result, expected = cuteblas.ascontiguousarray(x), np.ascontiguousarray(x)
    assert (result is x) == (expected is x) and np.shares_memory(result, x) == np.shares_memory(expected, x)
    same(result, expected)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("x", [[[1, 2], [3, 4]], 3.5, (), np.float32(2), np.ones((2, 2)).view(np.matrix), np.array([None, "x"]),
                               np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), np.array(["ab", "c"]), np.zeros(3, "V0"),
                               np.array(["ab", "c"], np.dtypes.StringDType()), np.ma.array([1, 2], mask=[0, 1])])
def test_what_is_no_ordinary_array(x):
    for subok in (False, True):
        result, expected = cuteblas.copy(x, subok=subok), np.copy(x, subok=subok)
        assert type(result) is type(expected) and result.dtype == expected.dtype and np.all(result == expected)
    result, expected = cuteblas.ascontiguousarray(x), np.ascontiguousarray(x)
    assert type(result) is type(expected) and result.dtype == expected.dtype and np.all(result == expected)


@pytest.mark.usefixtures("anywhere")
def test_refusals_are_numpys():
    x = np.ones((2, 3))
    for call, of_numpy, arguments in ((cuteblas.copy, np.copy, {"order": "Z"}), (cuteblas.copy, np.copy, {"order": 3}),
                                      (cuteblas.ascontiguousarray, np.ascontiguousarray, {"dtype": "nonsense"})):
        check_same_refusal(call, outcome(of_numpy, x, **arguments)[1], x, **arguments)


@pytest.mark.usefixtures("anywhere")
def test_a_change_of_type():
    x = np.arange(6).reshape(2, 3).T
    same(cuteblas.ascontiguousarray(x, dtype="f4"), np.ascontiguousarray(x, dtype="f4"))
    same(cuteblas.ascontiguousarray(x, dtype=x.dtype), np.ascontiguousarray(x, dtype=x.dtype))


def test_routes_are_visible(by_definition):
    cuteblas.reset_stats()
    cuteblas.copy(np.ones((3, 4)).T, order="C")
    cuteblas.copy(np.array([None]))
    cuteblas.copy(np.zeros(3, "V0"))
    cuteblas.copy(np.ones((0, 3)))
    cuteblas.ascontiguousarray(np.ones(3))
    cuteblas.ascontiguousarray(np.ones((3, 4)).T)
    cuteblas.ascontiguousarray(np.ones(3), dtype="f4")
    assert cuteblas.stats() == {
        "copy": {"calls": {"reference": 1, "delegated to NumPy: elements of object refer to other memory": 1,
                           "delegated to NumPy: elements of |V0 are empty": 1, "nothing": 1}},
        "ascontiguousarray": {"calls": {"nothing": 1, "reference": 1, "delegated to NumPy: changes float64 to float32": 1}}}
    with cuteblas.backend("numpy"):
        launched = len(reference.LAUNCHED)
        cuteblas.copy(np.ones(3))
        assert cuteblas.stats()["copy"]["calls"]["numpy"] == 1 and len(reference.LAUNCHED) == launched


@pytest.mark.parametrize("axes", [None, (1, 2, 0), (-1, 0, 1), (0, 0, 1), (0, 1), (0, 1, 7), "abc", [2, 1, 0]])
def test_transposes_are_views(axes):
    x = np.ones((2, 3, 4))
    expected, refusal = outcome(np.transpose, x, axes)
    if refusal is not None:
        check_same_refusal(cuteblas.transpose, refusal, x, axes)
    else:
        view = cuteblas.transpose(x, axes)
        assert view.base is x and view.strides == expected.strides


def test_matrix_transpose():
    x = np.ones((2, 3, 4))
    assert cuteblas.matrix_transpose(x).shape == (2, 4, 3) and cuteblas.matrix_transpose(x).base is x
    assert cuteblas.transpose([[1, 2]]).tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="Input array must be at least 2-dimensional, but it is 1"):
        cuteblas.matrix_transpose(np.ones(3))
