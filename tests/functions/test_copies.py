"""``copy``, ``ascontiguousarray`` and transposes of NumPy arrays against NumPy's."""

from __future__ import annotations

from operator import attrgetter

import ml_dtypes
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
    assert (result is x) == (expected is x) and np.shares_memory(result,
                                                                 x) == np.shares_memory(expected, x)
    same(result, expected)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("x", [[[1, 2], [3, 4]], 3.5, (), np.float32(2),
                               np.ones((2, 2)).view(np.matrix), np.array([None, "x"]),
                               np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
                               np.array(["ab", "c"]), np.zeros(3, "V0"),
                               np.array(["ab", "c"], np.dtypes.StringDType()),
                               np.ma.array([1, 2], mask=[0, 1])])
def test_what_is_no_ordinary_array(x):
    for subok in (False, True):
        result, expected = cuteblas.copy(x, subok=subok), np.copy(x, subok=subok)
        assert type(result) is type(expected) and result.dtype == expected.dtype and np.all(result == expected)
    result, expected = cuteblas.ascontiguousarray(x), np.ascontiguousarray(x)
    assert type(result) is type(expected) and result.dtype == expected.dtype and np.all(result == expected)


@settings(max_examples=300, deadline=None)
@given(st.data(), shapes)
def test_copies_into_an_array(by_definition, data, shape):
    x = small_arrays(data.draw, shape, (*DTYPES, "g", ">f4", "S3"))
    out = small_arrays(data.draw, shape, (x.dtype.str,), writeable=True)
    assert cuteblas.copy(x, out=out) is out
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("step, start", [(3, 3), (1, 1), (-1, 0), (2, 1)])
@pytest.mark.parametrize("dtype", ["u1", "f8", "O"])
def test_numpys_copies_that_overlap_are_as_if_copied_first(step, start, dtype):
    buffer = np.arange(30).astype(dtype)
    x, out = buffer[::step][:8], buffer[start:start + 8]
    expected = x.copy()
    assert cuteblas.copy(x, out=out) is out
    assert out.tolist() == expected.tolist()


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_of_ml_dtypes(dtype):
    """All bits are kept, NaNs' too, also in place; and casts are ml_dtypes'."""
    kind = getattr(ml_dtypes, dtype)
    x = np.arange(3 * 256).astype(f"u{np.dtype(kind).itemsize}").view(kind).reshape(3, 16, 16)
    for view in (x, x.T, x[:, ::-2, 1:], x.swapaxes(1, 2)):
        for order in "CFAK":
            result, expected = cuteblas.copy(view, order), np.copy(view, order)
            check_same_strides(result, expected)
            assert result.dtype == kind and result.tobytes("A") == expected.tobytes("A")
        assert cuteblas.ascontiguousarray(view).tobytes() == view.tobytes()
        assert cuteblas.asfortranarray(view).tobytes("F") == view.tobytes("F")
        assert cuteblas.transpose(view).tobytes() == np.transpose(view).tobytes()
        for target in ("f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
            assert cuteblas.ascontiguousarray(view, target).tobytes() == np.ascontiguousarray(view, target).tobytes()
    square, expected = x.copy(), x.mT.tobytes()
    assert cuteblas.copy(square.mT, out=square) is square and square.tobytes() == expected


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("dtype", ["?", "e", "f", "d", "D", "S3", "V12", "U2", "O"])
@pytest.mark.parametrize("view", [lambda x: (x, x.T), lambda x: (x.T, x),
                                  lambda x: (x[:4, :4], x[:4, :4].T),
                                  lambda x: (x[::2, ::2], x[::2, ::2].T),
                                  lambda x: (x[::-1], x[::-1].T),
                                  lambda x: (x[1:, 1:], x[:-1, :-1]), lambda x: (x, x[::-1]),
                                  lambda x: (x, x), lambda x: (x[0], x[:, 0]),
                                  lambda x: (x.reshape(2, 3, 6)[:, :, :3],
                                             x.reshape(2, 3, 6)[:, :, :3].swapaxes(1, 2)),
                                  lambda x: (x.reshape(3, 2, 6), x.reshape(3, 2, 6)[::-1]),
                                  lambda x: (x[:0, :0], x[:0, :0].T)])
def test_copies_between_views_of_one_array(view, dtype):
    """As if the source were copied first, whatever the overlap."""
    x = np.arange(36).reshape(6, 6)
    x = x.astype(dtype) if dtype[0] != "V" else np.arange(36 * 12,
                                                          dtype="u1").view("V12").reshape(6, 6)
    y = x.copy()
    out, source = view(x)
    expected, theirs = view(y)
    expected[...] = theirs.copy()
    assert cuteblas.copy(source, out=out) is out
    assert x.tolist() == y.tolist()


def test_routes_of_copies_into_an_array(by_definition):
    with cuteblas.backend("emulator"):
        for source, out, calls, copies, in_place in ((lambda x: x.T, lambda x: x, {"reference": 1},
                                                      {}, True),
                                                     (lambda x: x[::-1], lambda x: x,
                                                      {"reference": 2},
                                                      {"out: shares memory with the array": 1},
                                                      False), (lambda x: x, lambda x: x,
                                                               {"nothing": 1}, {}, None),
                                                     (lambda x: x.T, lambda x: np.empty_like(x),
                                                      {"reference": 1}, {}, False),
                                                     (lambda x: x[:0], lambda x: x[:0],
                                                      {"nothing": 1}, {}, None)):
            x = np.arange(16.0).reshape(4, 4)
            cuteblas.reset_stats()
            launched = len(reference.LAUNCHED)
            cuteblas.copy(source(x), out=out(x))
            found = cuteblas.stats()["copy"]
            assert (found["calls"], found.get("copies", {})) == (calls, copies)
            last = [plan.problem.in_place for plan in reference.LAUNCHED[launched:]][-1:]
            assert last == ([] if in_place is None else [in_place])


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("out, error, message",
                         [([1], TypeError, "'out' must be an array"),
                          (np.ones(4), ValueError,
                           r"shape and type of the array, \(2, 2\) float64, got \(4,\)"),
                          (np.ones((2, 2), "f"), ValueError,
                           r"\(2, 2\) float64, got \(2, 2\) float32"),
                          (np.lib.stride_tricks.as_strided(np.zeros(2), (2, 2), (0, 8)), ValueError,
                           "elements of out share memory"),
                          (np.broadcast_to(np.zeros((2, 2)), (2, 2)), ValueError,
                           "output array is read-only")])
def test_arrays_that_cannot_receive_a_copy(out, error, message):
    with pytest.raises(error, match=message):
        cuteblas.copy(np.ones((2, 2)), out=out)
    with pytest.raises(ValueError, match="order must be one of"):
        cuteblas.copy(np.ones((2, 2)), "Z", out=np.ones((2, 2)))
    with pytest.raises(TypeError, match="order must be str"):
        cuteblas.copy(np.ones((2, 2)), np.array(["a", "b"]), out=np.ones((2, 2)))  # type: ignore[call-overload]


@pytest.mark.parametrize("call", [cuteblas.ascontiguousarray, cuteblas.asfortranarray],
                         ids=lambda call: call.__name__)
def test_like_makes_arrays_of_that_type(call):
    x = cuteblas.ndarray(np.ones((2, 2)))
    for source in ([[1, 2], [3, 4]], np.ones((2, 3), order="F"), x, 3):
        made = call(source, "f4", like=x)
        assert type(made) is cuteblas.ndarray and made.dtype == np.float32 and made.ndim > 0
        assert made.flags.f_contiguous if call is cuteblas.asfortranarray else made.flags.c_contiguous
    assert type(call([1], like=np.ones(1))) is np.ndarray
    with pytest.raises(TypeError, match="like"):
        call([1], like=[1])
    with pytest.raises(
        ValueError,
        match=r"variant='tma_copy' names a kernel, but like= chooses the library that makes the result"
    ):
        call(np.ones(2), like=x, variant="tma_copy")


@pytest.mark.usefixtures("anywhere")
def test_arrays_of_ours_are_transposed_in_place():
    x = cuteblas.ndarray(np.arange(12.0).reshape(3, 2, 2))
    expected = np.asarray(x).swapaxes(1, 2).copy()
    assert cuteblas.copy(x.mT, out=x) is x
    np.testing.assert_array_equal(np.asarray(x), expected)
    data = np.arange(4.0).reshape(2, 2)
    assert cuteblas.copy(cuteblas.ndarray(data.T),
                         out=data) is data and data.tolist() == [[0, 2], [1, 3]]


@pytest.mark.usefixtures("anywhere")
def test_refusals_are_numpys():
    x = np.ones((2, 3))
    for call, of_numpy, arguments in ((cuteblas.copy, np.copy, {"order": "Z"}),
                                      (cuteblas.copy, np.copy, {"order": 3}),
                                      (cuteblas.ascontiguousarray, np.ascontiguousarray,
                                       {"dtype": "nonsense"})):
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
        "copy": {
            "calls": {
                "reference": 1,
                "delegated to NumPy: elements of object refer to other memory": 1,
                "delegated to NumPy: elements of |V0 are empty": 1,
                "nothing": 1
            }
        },
        "ascontiguousarray": {
            "calls": {
                "nothing": 1,
                "reference": 1,
                "delegated to NumPy: changes float64 to float32": 1
            }
        }
    }
    with cuteblas.backend("numpy"):
        launched = len(reference.LAUNCHED)
        cuteblas.copy(np.ones(3))
        assert cuteblas.stats()["copy"]["calls"]["numpy"] == 1 and len(reference.LAUNCHED) == launched


@pytest.mark.parametrize("axes", [None, (1, 2, 0), (-1, 0, 1), (0, 0, 1), (0, 1), (0, 1, 7), "abc",
                                  [2, 1, 0]])
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
    assert cuteblas.matrix_transpose(x).shape == (2, 4,
                                                  3) and cuteblas.matrix_transpose(x).base is x
    assert cuteblas.transpose([[1, 2]]).tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="Input array must be at least 2-dimensional, but it is 1"):
        cuteblas.matrix_transpose(np.ones(3))


def with_unusual_strides(rng) -> np.ndarray:
    """An array with axes of extent 0 and 1 whose strides may be anything."""
    rank = int(rng.integers(5))
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3], rank, p=[0.05, 0.4, 0.35, 0.2]))
    axes = rng.permutation(rank)
    x = np.zeros(tuple(shape[axis] for axis in axes), "f").transpose(np.argsort(axes))
    x = x[tuple(slice(None, None, int(rng.choice([1, 1, 1, 2, -1]))) for _ in shape)]
    strides = [4 * int(rng.integers(-9, 50)) if n == 1 and rng.random() < 0.3 else 0
               if rng.random() < 0.05 else s for n, s in zip(x.shape, x.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(x, strides=strides)


@pytest.mark.parametrize("seed", range(300))
def test_every_stride_of_a_result_is_numpys(seed, anywhere):
    x = with_unusual_strides(np.random.default_rng(seed))
    orders = [{"order": order} for order in "KACF"]
    calls = [("copy", (x,), orders), ("copy", (x.T,), orders), ("ascontiguousarray", (x,), [{}]),
             ("asfortranarray", (x,), [{}])]
    if x.ndim > 1:
        y, letters = x.swapaxes(-2, -1), "abcd"[:x.ndim]
        product = f"{letters},{letters[:-2]}{letters[-1]}z->z{letters[-2]}{letters[:-2]}"
        calls += [("matmul", (x, y), orders), ("dot", (x, y), [{}]), ("inner", (x, x), [{}]),
                  ("vecdot", (x, x), orders), ("matvec",
                                               (x, y[..., 0] if x.shape[-2]
                                                else np.zeros(x.shape[-1], "f")), orders),
                  ("einsum", (product, x, y), orders),
                  ("einsum", (f"{letters}->{letters[:0:-1]}", x), orders)]
        calls += [("linalg.matrix_power", (x, n), [{}]) for n in (0, 1, 2, 3)
                  if x.shape[-1] == x.shape[-2]]
    for name, operands, named in calls:
        for arguments in named:
            got, expected = (attrgetter(name)(module)(*operands, **arguments)
                             for module in (cuteblas, np))
            assert np.shape(got) == expected.shape, name
            assert np.asarray(got).strides == expected.strides, (name, arguments, x.shape,
                                                                 x.strides)
