"""Python's operators on ``cuteblas.ndarray`` and other types, compared with ``numpy.ndarray``."""

from __future__ import annotations

import array
import decimal
import fractions
import operator
from functools import partial

import numpy as np
import pytest

import cuteblas
from cuteblas.array.wrapper import ndarray
from cuteblas.engines.dispatch import kind_of, own_call

from .test_wrapper import BINARY, IN_PLACE, outcome

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning"),
              pytest.mark.filterwarnings("ignore::FutureWarning"),
              pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")]


class Silent:
    """No ufuncs at all."""

    __array_ufunc__ = None


class SilentWithOperator(Silent):
    def __radd__(self, other):
        return "radd"


class Ufuncs:
    """Answers ufuncs, and has no operators."""

    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        return ufunc.__name__, len(inputs), sorted(named)


class Refuses:
    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        return NotImplemented


class Prior:
    """From before NEP 13."""

    __array_priority__ = 5

    def __radd__(self, other):
        return "radd"


class Converted:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


OTHERS = {"silent": Silent(), "silent with an operator": SilentWithOperator(), "ufuncs": Ufuncs(),
          "refuses": Refuses(), "prior": Prior(), "converted": Converted(),
          "masked": np.ma.array([1.0, 2, 3]), "matrix": np.asmatrix(np.eye(3)), "list": [1.0, 2, 3],
          "tuple": (1, 2, 3), "nested": [[1], [2], [3]], "ragged": [1, [2, 3]], "range": range(3),
          "set": {1}, "text": "a", "none": None, "bytes": b"a", "dict": {1: 2}, "ellipsis": ...,
          "object": object(), "flat": np.arange(3.0).flat, "Decimal": decimal.Decimal(2),
          "Fraction": fractions.Fraction(1, 2), "record": np.rec.array(np.arange(3.0)),
          "float": 2.0, "huge": 2**70, "negative": -1, "complex": 2j, "bool": True,
          "np.bool": np.True_, "float32": np.float32(2), "int8": np.int8(3), "uint8": np.uint8(200),
          "0-d": np.array(2), "ints": np.array([1, 2, 3]), "bools": np.array([True, False, True]),
          "column": np.ones((3, 1), "f4"), "empty": np.empty(0),
          "array.array": array.array("d", [1, 2, 3]), "memoryview": memoryview(np.arange(3.0))}
DATA = [np.array([1.0, 2, 3]), np.eye(3), np.array([1, 2, 3]), np.array(2.0),
        np.array([1, 2, 3], "i1")]


def alike(result, expected):
    if isinstance(expected, Exception):
        return type(result) is type(expected)
    if isinstance(expected, tuple):
        return type(result) is tuple and all(map(alike, result, expected))
    if isinstance(expected, np.generic) or type(expected) is np.ndarray:
        if type(result) is not ndarray or result.dtype != expected.dtype or result.shape != expected.shape:
            return False
        result = result._data
    elif type(result) is not type(expected):
        return False
    if isinstance(expected, (np.ndarray, np.generic)):
        return np.array_equal(result, expected, equal_nan=expected.dtype.kind in "fc")
    return result == expected


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_operators(other):
    for data in DATA:
        for call in BINARY:
            for left in (True, False):
                if isinstance(other, memoryview) and not left:
                    # memoryview == array is False by identity, and ours is compared by elements
                    continue
                ours = (ndarray(data), other) if left else (other, ndarray(data))
                theirs = (data, other) if left else (other, data)
                assert alike(outcome(call, *ours), outcome(call, *theirs)), (call, data, left)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_in_place(other):
    for data in DATA:
        for call in IN_PLACE:
            plain, written = data.copy(), data.copy()
            x = ndarray(written)
            expected, result = outcome(call, plain, other), outcome(call, x, other)
            assert result is x if expected is plain else alike(result, expected), (call, data)
            np.testing.assert_array_equal(written, plain)


@pytest.mark.parametrize("number", [-1, 300, 2.5, 1j, True, None, np.datetime64("2026-01-01")])
@pytest.mark.parametrize("dtype", "BHLbl?efdOM")
def test_products_with_numbers_are_refused_in_numpys_words(number, dtype):
    data = np.ones((2, 2), "i4").astype("M8[D]" if dtype == "M" else dtype)
    calls = [(call, call) for call in (lambda x: operator.imatmul(x, number), lambda x: x @ number,
                                       lambda x: number @ x)]
    calls += [(partial(getattr(cuteblas, name), number), partial(getattr(np, name), number))
              for name in ("matvec", "vecmat", "vecdot")]
    with cuteblas.backend("emulator"):
        for ours, numpys in calls:
            with pytest.raises(Exception) as expected:
                numpys(data)
            with pytest.raises(expected.type) as got:
                ours(ndarray(data))
            assert str(got.value) == str(expected.value)


def test_types_without_ufuncs_are_refused_in_place():
    x = ndarray(np.ones(3))
    with pytest.raises(TypeError,
                       match=r"operand 'Silent' does not support ufuncs \(__array_ufunc__=None\)"):
        x += Silent()
    with pytest.raises(TypeError, match="does not support ufuncs"):
        x @= SilentWithOperator()
    assert x + SilentWithOperator() == "radd"


@pytest.mark.parametrize("call", [call for call in IN_PLACE
                                  if call.__name__ in ("iadd", "isub", "imul", "itruediv", "ipow")],
                         ids=lambda call: call.__name__)
def test_labelled_arrays_are_written_in_place(call):
    pandas = pytest.importorskip("pandas")
    xarray = pytest.importorskip("xarray")
    values = np.array([1.0, 2, 3])
    for other in (pandas.Series(values), pandas.Series(values, index=[5, 6, 7]),
                  pandas.Index(values), xarray.DataArray(values), xarray.Variable("a", values),
                  xarray.DataArray(ndarray(values))):
        data = np.array([4.0, 5, 6])
        expected = call(data.copy(), values)
        x = before = ndarray(data)
        x = call(x, other)
        assert x is before and x._data is data
        np.testing.assert_array_equal(data, expected)
    whole = ndarray(np.ones(3, int))
    with pytest.raises(TypeError, match="Cannot cast ufunc"):
        whole += pandas.Series([0.5, 0.5, 0.5])


@pytest.mark.parametrize("call", BINARY, ids=lambda call: call.__name__)
def test_sparse_matrices(call):
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[1.0, 0, 2], [0, 0, 3], [4, 0, 0]])
    for matrix in (sparse.csr_array(dense), sparse.coo_array(dense)):
        for left in (True, False):
            ours, theirs = ((ndarray(dense), matrix),
                            (dense, matrix)) if left else ((matrix, ndarray(dense)),
                                                           (matrix, dense))
            result, expected = outcome(call, *ours), outcome(call, *theirs)
            if isinstance(expected, Exception):
                assert isinstance(result, Exception)
            else:
                result, expected = (x.toarray() if sparse.issparse(x) else np.asarray(x)
                                    for x in (result, expected))
                np.testing.assert_array_equal(result, expected)


def test_membership():
    x = ndarray(np.array([[1.0, 2], [3, 4]]))
    for element in (2, 9, 2.0, np.float32(3), [1, 2], np.array([9, 4]), None, "a",
                    ndarray(np.array(4.0)), Silent(), object()):
        plain = np.asarray(element) if isinstance(element, ndarray) else element
        assert outcome(lambda e=element: e in x) == outcome(lambda e=plain: e in x._data), element


def test_kinds_of_operands():
    class Masked(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **named):
            return NotImplemented

    x = np.ones((2, 2))
    operands = x, np.asmatrix(x), x.view(Masked), Ufuncs(), ndarray(x), 1j, np.float32(1), [1.0]
    assert [*map(kind_of, operands)] == ["numpy", "subclass", "foreign", "foreign", "foreign",
                                         "scalar", "scalar", "like"]


def test_our_type_makes_a_call_unless_another_type_answers():
    x = np.ones((2, 2))
    assert own_call(ndarray(x), x) is own_call(x, ndarray(x)) is not None
    assert own_call(x, x) is own_call(ndarray(x), Ufuncs()) is own_call(Ufuncs(), ndarray(x)) is None
