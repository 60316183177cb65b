"""``cuteblas.ndarray`` on the host: NumPy's arrays in everything but the type."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
import sys
from math import trunc

import numpy as np
import pytest

import cuteblas
from cuteblas.array.wrapper import ndarray

A = np.arange(1, 7, dtype=np.float64).reshape(2, 3)
VALUES = {"float": A, "int": np.arange(1, 7).reshape(2, 3),
          "bool": np.array([[True, False, True], [False, True, True]]), "complex": A + 1j,
          "vector": np.arange(1, 4), "0-d": np.array(2)}
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
          operator.mod, operator.pow, divmod, operator.lshift, operator.rshift, operator.and_,
          operator.or_, operator.xor, operator.matmul, operator.lt, operator.le, operator.eq,
          operator.ne, operator.gt, operator.ge]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
            operator.imod, operator.ipow, operator.ilshift, operator.irshift, operator.iand,
            operator.ior, operator.ixor, operator.imatmul]


def outcome(call, *arguments, **named):
    """What a call returns, or its exception."""
    try:
        return call(*arguments, **named)
    except Exception as error:
        return error


def same(result, expected):
    """Whether a result is NumPy's, wrapped: the same type, shape and elements; or the same
    exception."""
    if isinstance(expected, Exception):
        assert type(result) is type(expected) and str(result) == str(expected)
    elif isinstance(expected, (tuple, list)):
        assert len(result) == len(expected) and isinstance(result, type(expected))
        for x, y in zip(result, expected, strict=True):
            same(x, y)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert type(result) is ndarray, f"{type(result)} in place of an array"
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_array_equal(result._data, expected)
    else:
        assert type(result) is type(expected) and (result == expected or result != result)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("call", BINARY, ids=lambda call: call.__name__)
@pytest.mark.parametrize("x", VALUES.values(), ids=VALUES)
def test_operators(x, call):
    for other in (*VALUES.values(), 2, 2.5, 1j, True, np.float32(3), [[1], [2]]):
        for first, second in ((x, other), (other, x)):
            expected = outcome(call, first, second)
            forms = [(v, ndarray(v)) if isinstance(v, np.ndarray) else (v,)
                     for v in (first, second)]
            for a, b in itertools.product(*forms):
                if ndarray in (type(a), type(b)):
                    same(outcome(call, a, b), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("call", IN_PLACE, ids=lambda call: call.__name__)
@pytest.mark.parametrize("x", VALUES.values(), ids=VALUES)
def test_in_place(x, call):
    for other in (np.arange(1, 4), np.ones((3, 3), int), 2, 2.5, [1, 2, 3]):
        expected = outcome(call, x.copy(), other)
        for operand in (other, ndarray(other)) if isinstance(other, np.ndarray) else (other,):
            data = x.copy()
            ours = ndarray(data)
            result = outcome(call, ours, operand)
            if isinstance(expected, Exception):
                same(result, expected)
            else:
                assert result is ours and ours._data is data
                np.testing.assert_array_equal(data, expected)


def test_numpy_on_the_left_in_place():
    plain = same_array = A.copy()
    plain += ndarray(A)
    assert plain is same_array and type(plain) is np.ndarray and (plain == 2 * A).all()


@pytest.mark.parametrize("call", [operator.neg, operator.pos, abs, operator.invert, bool, int,
                                  float, complex, operator.index, len, list, iter, hash, str, round,
                                  trunc])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_unary_operators_and_conversions(call):
    for x in (*VALUES.values(), np.array(2.5), np.array([7]), np.empty(0)):
        result, expected = outcome(call, ndarray(x)), outcome(call, x)
        if call in (hash, round, trunc) and not np.ndim(x):
            same(result, outcome(call, x[()]))
        elif isinstance(expected, TypeError) and call in (hash, round, trunc):
            assert type(result) is TypeError and "ndarray" in str(result)
        elif call is iter and not isinstance(expected, Exception):
            same(list(result), list(expected))
        else:
            same(result, expected)


KEYS = [0, -1, slice(None, None, -1), (0, 1), (slice(None), 1), ..., None, (None, ..., 0), A > 2,
        np.array([1, 0]), [0, 1], ([0, 1], [1, 2]), 5, (0, 0, 0), "field", 1.5,
        (slice(None), np.array([2, 0]))]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing(key):
    def wrap(key):
        return ndarray(key) if isinstance(key, np.ndarray) else tuple(map(wrap, key)) if isinstance(key, tuple) else key

    for k in (key, wrap(key)):
        same(outcome(lambda k=k: ndarray(A)[k]), outcome(lambda: A[key]))
        for value in (7, np.array(8), np.full((2, 9), 1)):
            plain, ours, other = A.copy(), ndarray(A.copy()), ndarray(A.copy())
            expected = outcome(operator.setitem, plain, key, value)
            same(outcome(operator.setitem, ours, k, value), expected)
            outcome(operator.setitem, other, k,
                    ndarray(value) if isinstance(value, np.ndarray) else value)
            np.testing.assert_array_equal(ours._data, plain)
            np.testing.assert_array_equal(other._data, plain)


def test_views_share_memory():
    x = ndarray(A.copy())
    x.T[0, 1] = -1
    x[1:][0, 1] = -2
    assert x._data[1, 0] == -1 and x._data[1, 1] == -2
    x.real = 5
    x.flat = 6
    assert (x._data == 6).all() and x.imag.shape == x.shape and x.mT.shape == (3, 2)
    assert 6 in x and 7 not in x
    same(outcome(operator.delitem, x, 0), outcome(operator.delitem, A, 0))


# Calls with arguments that NumPy accepts; all other methods are called without.
ARGUMENTS = {"argpartition": (1,), "astype": ("f4",), "clip": (2, 4),
             "compress": ([True, False], 0), "dot": (A.T,), "fill": (3,), "getfield": ("f4",),
             "item": (3,), "partition": (1,), "put": ([0], [9]), "repeat": (2,), "reshape": (3, 2),
             "searchsorted": (2,), "setfield": (1, "f4"), "setflags": (True,), "swapaxes": (0, 1),
             "take": ([0, 1],), "to_device": ("cpu",), "view": ("i8",)}
NOT_CALLED = {"dump", "tofile", "resize", "choose", "searchsorted"}


@pytest.mark.parametrize("name", [name for name in dir(np.ndarray) if not name.startswith("_")])
def test_every_member_of_numpys_arrays(name):
    if name in ("ctypes", "data", "base", "device"):
        assert hasattr(ndarray(A), name)
    elif name == "flat":
        assert list(ndarray(A).flat) == list(A.flat)
    elif name in NOT_CALLED:
        assert callable(getattr(ndarray(A), name)) and getattr(ndarray, name).__doc__
    elif callable(getattr(A, name)):
        plain, ours = A.copy(), ndarray(A.copy())
        same(outcome(getattr(ours, name), *ARGUMENTS.get(name, ())),
             outcome(getattr(plain, name), *ARGUMENTS.get(name, ())))
        np.testing.assert_array_equal(ours._data, plain)
    else:
        expected = getattr(A, name)
        result = getattr(ndarray(A), name)
        same(result, expected) if name != "flags" else same(str(result), str(expected))


def test_methods_take_and_return_what_they_are_given():
    x, out, plain = ndarray(A), ndarray(np.empty(3)), np.empty(3)
    assert x.sum(axis=0, out=out) is out and x.sum(0, out=plain) is plain
    np.testing.assert_array_equal(out._data, A.sum(0))
    assert x.dot(x.T, out=(into := ndarray(np.empty((2, 2))))) is into
    assert x.T.copy().flags.c_contiguous and x.T.copy("F").flags.f_contiguous and x.copy(order="K")._data is not A
    assert x.sum.__name__ == "sum" and "sum" in x.sum.__doc__
    assert x.searchsorted is not None and ndarray(np.arange(5)).searchsorted(
        ndarray(np.array([2, 3]))
    ).tolist() == [2, 3]


def test_text(monkeypatch):
    monkeypatch.setattr("cuteblas.array.wrapper.default_device", lambda: "cpu")
    x = ndarray(A)
    assert repr(x) == "cuteblas.array([[1., 2., 3.],\n                [4., 5., 6.]])"
    assert repr(ndarray(np.zeros((0, 3),
                                 "f"))) == "cuteblas.array([], shape=(0, 3), dtype='float32')"
    assert str(x) == str(A) and f"{ndarray(np.array(2.5)):.3f}" == "2.500"
    same(outcome(format, x, ".2f"), outcome(format, A, ".2f"))
    with np.printoptions(precision=1):
        assert repr(ndarray(np.array([1 / 3]))) == "cuteblas.array([0.3])"


def test_text_names_the_device_unless_all_is_on_the_host(monkeypatch):
    monkeypatch.setattr("cuteblas.array.wrapper.default_device", lambda: "cuda:0")
    assert repr(ndarray(np.array([1, 2]))) == "cuteblas.array([1, 2], device='cpu')"
    for n in range(20, 60):
        assert max(map(len, repr(ndarray(np.arange(n) / 7)).splitlines())) <= 75


def test_text_is_made_an_array_again():
    names = {"cuteblas": cuteblas}
    for x in (A, A.astype("f4"), A > 2, A + 1j, A[0].astype("u1"), np.array(2.5),
              np.array(["a", "bc"]), np.array([None, "x"], object),
              np.array(["2020-01-01"], "M8[D]"), np.array([(1, 2.0)], "i4,f4")):
        x = ndarray(x)
        again = eval(repr(x), names)
        assert again.dtype == x.dtype and again.shape == x.shape and (again == x).all() and np.array_repr(x) == repr(x)
    wide = ndarray(np.arange(60.0) / 7)
    assert max(map(len, repr(wide).splitlines())) <= 75 and max(map(len, np.array_repr(wide, 40, 2).splitlines())) <= 40
    assert np.array_repr(arr=wide, precision=1).startswith("cuteblas.array([0. , 0.1,")
    assert np.array_str(wide) == np.array_str(wide._data) and np.array2string(
        wide
    ) == np.array2string(wide._data)


@pytest.mark.parametrize("call", [bytes, lambda x: b"".join([bytes(x)]), lambda x: x.tobytes()])
def test_bytes_are_of_the_memory(call):
    for x in (np.array([1, 2, 3]), np.array([1, 2], "u1"), A, A.T, A > 2, np.array(3),
              np.array([7]), np.empty(0), np.array(2.5)):
        assert call(ndarray(x)) == call(x)


def test_size_for_dask():
    x = ndarray(np.zeros(1000))
    assert sys.getsizeof(x) > 8000 and sys.getsizeof(x[::2]) > 4000 > sys.getsizeof(
        ndarray(np.broadcast_to(0.0, (9, 9, 9)))
    )
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    assert 8000 < sizeof(x) < 8200


def test_what_is_the_array_itself_stays_it():
    """NumPy's methods that may return the array return the same object."""
    x, c = ndarray(A.copy()), ndarray(A + 1j)
    calls = [lambda x: x.conj(), lambda x: x.conjugate(), lambda x: x.astype(x.dtype, copy=False),
             lambda x: x.real, lambda x: x.byteswap(True), lambda x: np.real(x),
             lambda x: np.asarray(x, like=x), lambda x: x.to_device("cpu"),
             lambda x: np.astype(x, x.dtype, copy=False), lambda x: x.astype("c8", copy=False),
             lambda x: x.view(), lambda x: x[...], lambda x: x.squeeze(), lambda x: x.T,
             lambda x: +x, lambda x: x.reshape(x.shape), lambda x: np.conj(x), lambda x: x.copy()]
    for call in calls:
        for ours in (x, c):
            try:
                expected = call(ours._data) is ours._data
            except TypeError:           # like= of an array of NumPy's makes one of NumPy's
                expected = True
            assert (call(ours) is ours) == expected
    xp = x.__array_namespace__()
    assert xp.astype(x, xp.float64, copy=False) is x and xp.asarray(x, copy=False) is x and xp.astype(x, xp.float64) is not x


def test_views():
    x = ndarray(A.copy())
    for view in (x.view(), x.view(ndarray), x.view(type=ndarray), x.view(type(x)),
                 x.view("f8", ndarray), x.view(A.dtype)):
        assert type(view) is ndarray and view is not x and np.shares_memory(view._data, x._data) and (view == x).all()
    assert x.view("i4", ndarray).shape == (2, 6) and type(x.view(np.matrix)) is type(x.view(type=np.matrix)) is np.matrix
    with pytest.raises(ValueError, match="sub-type of ndarray"):
        x.view(type=list)


FLAT = [2, -1, slice(1, 4), slice(None, None, -2), ..., [0, 2], np.array([1, 1]),
        np.array([[0, 5]]), (A > 2).ravel(), A > 2, 9, None, (0, 1), 1.5, np.int64(3), ()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("key", FLAT, ids=repr)
def test_flat(key):
    wrapped = ndarray(key) if isinstance(key, np.ndarray) else key
    for x in (A, A.T):
        same(outcome(lambda x=x: ndarray(x).flat[wrapped]), outcome(lambda x=x: x.flat[key]))
        for value in (7, [8.0, 9.0], np.arange(2), "text"):
            plain, ours = x.copy("K"), ndarray(x.copy("K"))
            expected = outcome(operator.setitem, plain.flat, key, value)
            given = ndarray(value) if isinstance(value, np.ndarray) else value
            same(outcome(operator.setitem, ours.flat, wrapped, given), expected)
            np.testing.assert_array_equal(ours._data, plain)


def test_flat_is_an_iterator():
    x = ndarray(A.copy())
    flat, plain = x.flat, A.flat
    assert flat.base is x and len(flat) == 6 and iter(flat) is flat
    same(next(flat), next(plain))
    assert (flat.index, flat.coords) == (plain.index, plain.coords)
    same(list(flat), list(plain))
    same(flat.copy(), A.ravel())
    for compare in (operator.eq, operator.ne, operator.lt, operator.ge):
        same(compare(x.flat, 3), compare(A.flat, 3))
        same(compare(x.flat, x.flat), compare(A.flat, A.flat))
    np.testing.assert_array_equal(np.asarray(x.flat, "f4"), A.ravel())
    assert np.asarray(x.flat).flags.writeable and np.sum(x.flat) == A.sum()
    with pytest.raises(TypeError, match="unhashable"):
        hash(flat)
    with pytest.raises(AttributeError):
        flat.shape  # noqa: B018


def test_elements_of_arrays_of_objects():
    inner = np.arange(3)
    members = [inner, [1], (2,), np.float64(1.5), None, "text"]
    x = ndarray(np.empty(6, object))
    for i, member in enumerate(members):
        x[i] = member
    assert all(x[i] is member for i, member in enumerate(members)) and all(
        a is b for a, b in zip(x, members, strict=True)
    )
    assert all(a is b for a, b in zip(x.flat, members, strict=True)) and type(x[1:]) is ndarray and type(x[[0, 1]]) is ndarray


def test_pickles_and_copies():
    x = ndarray(A.copy())
    for order, duplicate in itertools.product("CF", (copy.copy, copy.deepcopy,
                                                     lambda x: pickle.loads(pickle.dumps(x)))):
        z = duplicate(ndarray(A.copy(order)))
        assert z.flags.f_contiguous == (order == "F") and not np.shares_memory(z._data, A)
    strided = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0)
    assert copy.copy(ndarray(strided)).strides == copy.copy(strided).strides
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert type(y) is ndarray and y._data is not x._data
        np.testing.assert_array_equal(y._data, A)
    objects = ndarray(np.array([[1]], object))
    objects[0, 0] = [1]
    assert objects[0, 0] is objects[0, 0] is objects.item() is objects.tolist()[0][0]
    assert copy.deepcopy(objects)[0, 0] is not objects[0, 0] and copy.copy(objects)[0, 0] is objects[0, 0]


def test_results_without_axes_are_numbers_to_python():
    x = ndarray(A + 0.125)
    total, mean = x.sum(), x.mean()
    assert hash(total) == hash(total._data[()]) and {total: 1}[float(total)] == 1 and total in {float(total)}
    assert type(round(total)) is int and round(total) == round(float(total))
    for y in (mean, ndarray(np.array(1234)), ndarray(np.array(2.675, "f4"))):
        for digits in (2, 0, -2, np.int64(1)):
            same(round(y, digits), round(y._data[()], digits))
    assert trunc(mean) == int(mean) and type(trunc(mean)) is int
    with pytest.raises(TypeError):
        round(total, 0.5)


def test_construction():
    class Sub(np.ndarray):
        pass

    assert ndarray(A)._data is A
    assert type(ndarray(A.view(Sub))._data) is np.ndarray
    assert cuteblas.ndarray is ndarray and ndarray.__module__ == "cuteblas"
    x = ndarray(A)
    assert ndarray(x) is x
    for other in ([1, 2], 3, "text", None):
        with pytest.raises(
            TypeError,
            match=r"cuteblas\.ndarray wraps a NumPy or CuPy array, got .*; use cuteblas\.asarray"
        ):
            ndarray(other)
    with pytest.raises(AttributeError):
        ndarray(A).other = 1


def test_array_protocol():
    x = ndarray(A)
    assert np.asarray(x) is A and np.array(x) is not A and np.array(x, copy=True).dtype == A.dtype
    assert np.asarray(x, "f4").dtype == np.float32
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(x, "f4", copy=False)
    np.testing.assert_array_equal(np.array([x, x]), [A, A])


@pytest.mark.parametrize("call", [lambda x: np.take([5, 6, 7, 8, 9, 10, 11], x),
                                  lambda x: np.arange(9).take(x), lambda x: np.arange(6).repeat(x),
                                  lambda x: np.arange(9).put(x, 1), lambda x: np.arange(9)[x],
                                  lambda x: np.asarray(x, "i4"), lambda x: np.array(x, "f4"),
                                  lambda x: np.array(x, "f4", copy=False), lambda x: np.zeros(x),
                                  lambda x: np.add([1, 2, 3, 4, 5, 6], np.asarray(x)),
                                  lambda x: np.ascontiguousarray(x, "i1"),
                                  lambda x: np.array(x, bool)], ids=range(12))
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_numpy_casts_as_strictly_as_its_own(call):
    for x in (A.ravel(), np.array([1.5]), np.array([2, 3, 1, 0, 1, 1]), np.array([1, 0, 1], bool),
              A.ravel() + 1j):
        result, expected = (outcome(call, v) for v in (ndarray(x.copy()), x.copy()))
        if isinstance(expected, Exception) or isinstance(result, Exception):
            assert isinstance(result, Exception) and isinstance(expected, Exception)
        else:
            np.testing.assert_array_equal(result, expected)
            assert np.asarray(result).dtype == np.asarray(expected).dtype


def test_what_cannot_be_had():
    """The limits that docs/arrays.md names."""
    x = ndarray(np.array([1.0, 2, 3]))
    total = kept = x.sum()
    total += 1
    assert kept == 7
    rows = ndarray(np.arange(12).reshape(6, 2))
    with pytest.warns(UserWarning, match="duplicates after shuffling"):
        np.random.default_rng(0).shuffle(rows)
    assert len(set(map(tuple, rows.tolist()))) < 6
    shuffled = ndarray(np.arange(6))[np.random.default_rng(0).permutation(6).tolist()]
    assert type(shuffled) is ndarray and sorted(shuffled.tolist()) == [*range(6)]
    polynomial, plain = np.polynomial.polynomial, x._data
    assert polynomial.polyvalfromroots(x, x).shape != polynomial.polyvalfromroots(plain, plain).shape
    assert polynomial.polyval(x, np.eye(3)).shape != polynomial.polyval(plain, np.eye(3)).shape
    assert (polynomial.polyvalfromroots(np.asarray(x),
                                        plain) == polynomial.polyvalfromroots(plain, plain)).all()
    assert (polynomial.polyval(x, [1, 2]) == polynomial.polyval(plain, [1, 2])).all()
    assert type(np.r_[x, x]) is type(np.lib.stride_tricks.as_strided(x, (2,))) is type(np.vectorize(abs)(x)) is np.ndarray
    with pytest.raises(TypeError, match="bytes-like"):
        memoryview(x)
    assert bytearray(ndarray(np.array([1, 2]))) == b"\1\2" and bytes(x.data) == plain.tobytes()
    for product in (cuteblas.matmul, cuteblas.vecdot):
        assert not any(hasattr(product, name) for name in ("reduce", "nin", "signature"))


def test_what_pandas_and_xarray_want():
    pandas = pytest.importorskip("pandas")
    xarray = pytest.importorskip("xarray")
    x, series = ndarray(np.array([1.0, 2, 3])), pandas.Series([1.0, 2, 3])
    for result in (series + x, x + series, pandas.Index([0.0, 0, 1]) * x, x * series, series @ x,
                   pandas.Series(x)):
        assert type(result).__module__.partition(".")[0] in ("pandas", "numpy")
    assert (x * series).tolist() == [1, 4, 9] and series @ x == x @ series == 14
    frame = pandas.DataFrame(np.ones((3, 3)))
    with pytest.raises(ValueError, match="Unable to coerce"):
        frame + ndarray(np.ones((3, 3)))
    assert (frame + np.asarray(ndarray(np.ones((3, 3))))).shape == (3, 3)
    assert series.isin(x).all() and series.isin(np.asarray(x)).all() and series.iloc[x > 1].tolist() == [1, 2, 2]
    assert series.iloc[np.asarray(x > 1)].tolist() == [2, 3]
    named = xarray.DataArray(x, dims="t", coords={"t": x})
    assert type(named.data) is type((named + x).data) is type(named.sum().data) is ndarray and type(named.t.data) is np.ndarray


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_other_types_answer_operators_themselves():
    class Silent:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "radd"

    class Ufuncs:
        def __array_ufunc__(self, ufunc, method, *inputs, **named):
            return ufunc.__name__, [type(x) for x in inputs]

    class Prior:
        __array_priority__ = 1

        def __rmatmul__(self, other):
            return type(other)

    class Functions:
        def __array_function__(self, function, types, arguments, named):
            return function.__name__

    x = ndarray(A)
    assert x + Silent() == "radd" and np.add(x, Ufuncs()) == ("add", [ndarray, Ufuncs])
    with pytest.raises(TypeError):
        np.add(x, Silent())
    assert x + Ufuncs() == np.add(x, Ufuncs()) and Ufuncs() - x == ("subtract", [Ufuncs, ndarray])
    assert (x == Ufuncs()) == ("equal", [ndarray, Ufuncs]) and x @ Ufuncs() == (
        "matmul",
        [ndarray, Ufuncs]
    )
    assert x @ Prior() is np.ndarray            # such types know NumPy's arrays
    assert np.dot(x, Functions()) == np.dot(Functions(), x) == "dot"
    assert type(x + np.matrix(A)) is type(np.matrix(A)
                                          + x) is type(np.add(x, np.matrix(A))) is np.matrix
    before = x
    x += np.matrix(A) * 0
    assert x is before
    masked = x + np.ma.array(A, mask=A > 3)
    assert isinstance(masked, np.ma.MaskedArray) and masked.mask.sum() == 3


def test_scipy_sparse_on_either_side():
    sparse = pytest.importorskip("scipy.sparse").csr_array(A)
    for result in (sparse @ ndarray(A.T), ndarray(A.T) @ sparse):
        assert result.shape in ((2, 2), (3, 3))


def test_products_are_ours():
    x, y = ndarray(A), ndarray(A.T)
    into = ndarray(np.ones((2, 2)))
    into2 = ndarray(np.ones((2, 2)))
    cuteblas.reset_stats()
    calls = [lambda: x @ y, lambda: A @ y, lambda: x @ A.T, lambda: np.matmul(x, y),
             lambda: np.matmul(x, A.T, out=into), lambda: cuteblas.matmul(x, y),
             lambda: operator.imatmul(into2, into), lambda: x @ A.T.tolist(),
             lambda: A.tolist() @ y]
    for count, call in enumerate(calls, 1):
        assert type(call()) is ndarray
        assert cuteblas.stats()["matmul"]["calls"] == {"numpy": count}
    assert x.dot(y).shape == (2, 2) and np.dot(A, y).shape == (2, 2) and np.linalg.multi_dot([x, y, x]).shape == (2, 3)
    assert np.vecdot(x, x).shape == (2,) and np.einsum("ij,kj", x, A).shape == (2, 2)
    calls = cuteblas.stats()
    assert calls["dot"]["calls"] == {"numpy": 2} and {"linalg.multi_dot", "vecdot",
                                                      "einsum"} < set(calls)


@pytest.mark.parametrize("place", ["first", "second"])
def test_cuteblas_functions_take_it(place):
    x, y = (ndarray(A), A.T) if place == "first" else (A, ndarray(A.T))
    for call in (cuteblas.matmul, cuteblas.dot, lambda a, b: cuteblas.tensordot(a, b, 1),
                 lambda a, b: cuteblas.einsum("ij,jk", a, b)):
        same(call(x, y), A @ A.T)
    same(cuteblas.matmul(x, y, precision="ieee"), A @ A.T)
    into = ndarray(np.empty((2, 2)))
    assert cuteblas.matmul(x, y, into) is into
    np.testing.assert_array_equal(into._data, A @ A.T)
