"""``matmul`` against ``numpy.matmul``: results, types, strides and refusals, with problems
evaluated by the definition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas

from . import reference
from .arrays import DTYPES, LAYOUTS, laid_out, small_arrays
from .comparisons import check_same_refusal, check_same_strides, outcome

pytestmark = pytest.mark.usefixtures("by_definition")


def agree(x1, x2, out=None, **arguments):
    """The result of a call that agrees with NumPy's in everything; ``None`` if both refuse in the
    same words."""
    expected_out = None if out is None else out.copy(order="K")
    if out is not None:
        expected_out.flags.writeable = out.flags.writeable
    expected, refusal = outcome(np.matmul, x1, x2, out=expected_out, **arguments)
    if refusal is not None:
        launched = len(reference.LAUNCHED)
        check_same_refusal(cuteblas.matmul, refusal, x1, x2, out, **arguments)
        assert len(reference.LAUNCHED) == launched
        return None
    result = cuteblas.matmul(x1, x2, out, **arguments)
    assert type(result) is type(expected) and result.dtype == expected.dtype
    if out is None:
        check_same_strides(result, expected)
    else:
        assert result is out
    np.testing.assert_array_equal(result, expected)
    return result


extents = st.sampled_from((0, 1, 1, 2, 3, 4))
batches = st.lists(extents, max_size=3).map(tuple)


@st.composite
def products(draw):
    """Shapes that mostly fit: two operands, an ``out`` or none."""
    m, n, k = draw(extents), draw(extents), draw(extents)
    batch = draw(batches)

    def part(of):
        return tuple(1 if draw(st.integers(0, 3)) == 0 else extent
                     for extent in of[draw(st.integers(0, len(of))):])

    first = (k,) if draw(st.integers(0, 5)) == 0 else (*part(batch), m, k)
    second = (k,) if draw(st.integers(0, 5)) == 0 else (*part(batch), k, n)
    if draw(st.integers(0, 7)) == 0:
        first, second = draw(batches), draw(batches)
    shape = None
    if draw(st.booleans()):
        core = (() if len(first) == 1 else first[-2:-1]) + (() if len(second) == 1 else second[-1:])
        wider = draw(st.sampled_from(((), (), (2,))))
        try:
            shape = (*wider, *np.broadcast_shapes(first[:-2], second[:-2]), *core)
        except ValueError:
            shape = (*batch, *core)
    return first, second, shape


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    first, second, shape = data.draw(products())
    x1, x2 = small_arrays(data.draw, first), small_arrays(data.draw, second)
    out = None
    if shape is not None:
        types = (np.result_type(x1, x2).char,) if data.draw(st.booleans()) else DTYPES
        out = small_arrays(data.draw, shape, types, writeable=True)
        out.flags.writeable = data.draw(st.integers(0, 9)) != 0
    agree(x1, x2, out)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_arguments_of_generalized_ufuncs(data):
    first, second, shape = data.draw(products())
    x1, x2 = small_arrays(data.draw, first, ("i", "f", "d", "e")), small_arrays(data.draw, second, ("i", "f", "d", "e"))
    out = None
    if shape is not None and data.draw(st.booleans()):
        out = small_arrays(data.draw, shape, ("i", "f", "d"), writeable=True)
    arguments = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "casting": st.sampled_from(("no", "equiv", "safe", "same_kind", "unsafe", "any")),
                "order": st.sampled_from(("C", "F", "A", "K", "c", "f", "a", "Z", None)),
                "dtype": st.sampled_from((None, "f4", "f8", "i4", np.float64, "?")),
                "subok": st.sampled_from((True, False)),
                "axes": st.sampled_from(
                    (
                        "fit",
                        [(-2, -1), (-2, -1), (-2, -1)],
                        [(-2, -1), (-2, -1)],
                        (0, 0),
                        [0, 0, 0],
                        [0, 0, ()],
                        "ab",
                        [(0, 1), (1, 0), (1, 0)],
                        [(0, 0), (0, 1), (0, 1)],
                        [(0, 9), (0, 1), (0, 1)],
                        [(0, 1), (0, 1), (0.5, 1)]
                    )
                ),
            }
            if data.draw(st.booleans())
            else {
                "keepdims": st.sampled_from((True, False, 1)),
                "axis": st.sampled_from((0, -1, None, "x")),
                "signature": st.sampled_from(
                    ("ff->f", "dd->d", (None, None, "d"), "ff", "qq->d", "x")
                ),
                "where": st.just(True),
            }
        )
    )
    if arguments.get("axes") == "fit":
        axes = []
        for rank, core in ((len(first), min(len(first), 2)), (len(second), min(len(second), 2))):
            axes.append(tuple(data.draw(st.permutations(range(rank)))[:core]))
        core = sum(map(len, axes)) - 2
        rank = core + max(len(first) - len(axes[0]), len(second) - len(axes[1]), 0)
        axes.append(tuple(axis - rank
                          for axis in data.draw(st.permutations(range(rank)))[:max(core, 0)]))
        arguments["axes"] = axes
    agree(x1, x2, out, **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_in_every_layout(dtype, layout):
    x1, x2 = laid_out((2, 3, 4), dtype, layout, 1), laid_out((4, 5), dtype, layout, 2)
    assert agree(x1, x2) is not None
    if layout != "broadcast":
        assert agree(x1, x2, laid_out((2, 3, 5), dtype, layout, 3)) is not None


@pytest.mark.parametrize("dtype", DTYPES)
def test_big_endian_operands_give_a_native_result(dtype):
    swapped = np.dtype(dtype).newbyteorder(">")
    x1, x2, out = laid_out((3, 4), swapped, "F"), laid_out((4, 5), dtype,
                                                           "C"), laid_out((3, 5), swapped, "sliced")
    assert agree(x1, x2).dtype.isnative
    agree(x1, x2, out)


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[::-1],
                                  lambda a: a[:, ::-1]])
def test_out_may_overlap_the_inputs(view):
    a = laid_out((4, 4), "d", "C")
    expected = np.matmul(a, a)
    work = a.copy()
    assert cuteblas.matmul(work, work, out=view(work)) is not None
    np.testing.assert_array_equal(view(work), expected)


def test_out_that_interleaves_with_an_input_is_written_in_place():
    both = laid_out((4, 8), "d", "C")
    x, out = both[:, ::2], both[:, 1::2]
    expected = np.matmul(x, x)
    cuteblas.reset_stats()
    cuteblas.matmul(x, x, out)
    np.testing.assert_array_equal(out, expected)
    assert "copies" not in cuteblas.stats()["matmul"]


def test_out_that_overlaps_itself():
    out = np.lib.stride_tricks.as_strided(np.zeros(4), (2, 3), (8, 8))
    cuteblas.reset_stats()
    cuteblas.matmul(np.ones((2, 2)), np.arange(6.0).reshape(2, 3), out)
    assert cuteblas.stats()["matmul"]["copies"] == {"out: shares memory with itself": 1}


def test_out_may_lack_leading_axes_of_extent_1():
    x = laid_out((1, 3, 3), "d", "F")
    assert agree(x, x[0], np.zeros((3, 3))) is not None
    assert agree(x[None], x, np.zeros((3, 3))) is not None


@pytest.mark.parametrize("shape1, shape2, shape",
                         [((1, 3), (3, 7), (7,)), ((1, 3), (3, 1), (1,)), ((1, 3), (3,), ()),
                          ((1, 3), (3, 1), ()), ((3,), (3, 1), ()), ((2, 3), (3, 7), (7,)),
                          ((4, 1, 3), (3, 7), (4, 7)), ((1, 3), (4, 3, 7), (7,)),
                          ((7, 3), (3, 1), (7,))])
def test_out_may_lack_the_rows_or_columns_of_matrices(shape1, shape2, shape):
    agree(laid_out(shape1, "d", "C"), laid_out(shape2, "d", "C", 1), out=np.zeros(shape))


def test_out_in_a_tuple():
    x = laid_out((3, 3), "d", "C")
    out = np.zeros((3, 3))
    assert cuteblas.matmul(x, x, out=(out,)) is out
    assert cuteblas.matmul(x, x, out=(None,)).shape == (3, 3)
    for bad in ((), (out, out)):
        check_same_refusal(cuteblas.matmul, outcome(np.matmul, x, x, out=bad)[1], x, x, out=bad)


@pytest.mark.parametrize(("x1", "x2", "out"), [(3, np.ones(3), None),
                                               (np.ones(3), np.float32(2), None),
                                               (np.ones(()), np.ones((3, 3)), None),
                                               (None, np.ones(3), None),
                                               ([[1, 2], [3, 4]], [1, 2], None),
                                               ([[1], [2, 3]], [1, 2], None),
                                               ((1.5, 2), np.ones(2, int), None),
                                               (np.array(["a", "b"]), np.array(["a", "b"]), None),
                                               (np.array(["a"]), np.ones((2, 3)), None),
                                               (np.zeros(2, "M8[s]"), np.zeros(2), None),
                                               (np.zeros(2, "V3"), np.zeros(2), None),
                                               (np.zeros(2, "m8[s]"), np.zeros(2, "m8[s]"), None),
                                               (np.zeros(2, [("x", "f4")]), np.zeros(2), None),
                                               (np.ones((2, 2)), np.ones((2, 2)), [[0, 0], [0, 0]]),
                                               (np.ones((2, 2)), np.ones((2, 2)), 1.0),
                                               (np.ones((2, 2)), np.ones((2, 2)), "ab"),
                                               (np.array([2, 3], object), np.array([4, 5], object),
                                                None), (np.ones((2, 2), np.longdouble),
                                                        np.ones((2, 2)), None),
                                               (np.ones((2, 2), np.clongdouble), np.ones((2, 2)),
                                                np.zeros((2, 2), np.clongdouble)),])
def test_operands_that_are_not_plain_arrays(x1, x2, out):
    expected, refusal = outcome(np.matmul, x1, x2, out=out)
    if refusal is not None:
        check_same_refusal(cuteblas.matmul, refusal, x1, x2, out)
    else:
        result = cuteblas.matmul(x1, x2, out)
        assert type(result) is type(expected) and np.all(result == expected)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "?"])
def test_one_warning_of_lost_imaginary_parts(dtype):
    x = np.array([[1 + 2j, 0], [2j, 3]])
    for arguments in ({"dtype": dtype}, {"out": np.zeros((2, 2), dtype)}):
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            wanted = np.matmul(x, x, casting="unsafe", **arguments).copy()
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(cuteblas.matmul(x, x, casting="unsafe", **arguments),
                                          wanted)
        assert {str(w.message) for w in got} == {str(w.message) for w in expected}
        assert len(got) <= len(expected)


def test_delegation_is_visible():
    cuteblas.reset_stats()
    cuteblas.matmul(np.ones((2, 2), object), np.ones((2, 2), object))
    cuteblas.matmul(np.ones((2, 2), np.longdouble), np.ones((2, 2)))
    result = cuteblas.matmul(np.ones((2, 2)).view(np.matrix), np.ones((2, 2)))
    assert type(result) is np.matrix
    assert cuteblas.stats()["matmul"]["calls"] == {
        "delegated to NumPy: there are no kernels for object": 1,
        "delegated to NumPy: there are no kernels for float128": 1,
        "delegated to NumPy: matrix is a subclass of numpy.ndarray": 1
    }


def test_copies_are_visible_and_only_where_needed():
    cuteblas.reset_stats()
    x = laid_out((4, 4), "f", "sliced")
    cuteblas.matmul(x, x.T[::-1])
    assert "copies" not in cuteblas.stats()["matmul"]
    cuteblas.matmul(x, np.ones((4, 4)), laid_out((4, 4), "f", "C"))
    cuteblas.matmul(x, x, x)
    cuteblas.matmul(laid_out((4, 4), "f", "offset"), x)
    cuteblas.matmul(x.astype(">f4"), x)
    assert cuteblas.stats()["matmul"]["copies"] == {"x1: is float32, computed in float64": 1,
                                                    "out: is float32, computed in float64": 1,
                                                    "out: shares memory with an input": 1,
                                                    "x1: elements are not aligned to their size": 1,
                                                    "x1: is >f4, computed in float32": 1}


class Answers:
    """A type that answers ufuncs itself."""

    def __array_ufunc__(self, ufunc, method, *inputs, **arguments):
        return ufunc, method, len(inputs), arguments


class Refuses:
    """A type that takes no part in ufuncs."""

    __array_ufunc__ = None


def test_other_types_are_asked_first():
    x = np.ones((2, 2))
    assert cuteblas.matmul(x, Answers()) == (np.matmul, "__call__", 2, {})
    assert cuteblas.matmul(Answers(), x, order="F") == (np.matmul, "__call__", 2, {"order": "F"})
    assert cuteblas.matmul(x, x, out=Answers())[:3] == (np.matmul, "__call__", 2)
    with pytest.raises(TypeError, match="does not support ufuncs"):
        cuteblas.matmul(x, Refuses())


@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("layout2", ["C", "F"])
@pytest.mark.parametrize("layout1", ["C", "F", "permuted"])
def test_order_of_the_result(layout1, layout2, order):
    for first, second in (((3, 4), (4, 5)), ((2, 3, 4, 5), (5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6))):
        result = agree(laid_out(first, "d", layout1, 3), laid_out(second, "d", layout2),
                       order=order)
        assert result.flags.f_contiguous or not (order == "F"
                                                 or (order == "A" and layout1 == layout2 == "F"))


@pytest.mark.parametrize("arguments", [{"keepdims": 1, "dtype": "S"},
                                       {"axis": 0, "axes": [], "dtype": "S"},
                                       {"keepdims": 1, "out": np.zeros((2, 2), bool)},
                                       {"axis": 0, "dtype": "S"}, {"casting": "any", "order": "Z"},
                                       {"out": np.zeros((5, 5), bool)},
                                       {"signature": "dd->d", "dtype": "f8"}])
def test_of_two_mistakes_the_one_that_numpy_sees_first(arguments):
    arguments = dict(arguments)
    assert agree(np.ones((2, 3)), np.ones((4, 2)), arguments.pop("out", None), **arguments) is None


def test_number_of_arguments():
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        cuteblas.matmul(1, 2, 3, 4)
    with pytest.raises(TypeError):
        cuteblas.matmul(np.ones(2))


@pytest.mark.parametrize("precision", ["fast", "", "AUTO", 1])
def test_unknown_precision(precision):
    with pytest.raises(ValueError, match="precision is one of 'auto', 'ieee'"):
        cuteblas.matmul(np.ones(2), np.ones(2), precision=precision)


def test_precision_reaches_the_problem():
    cuteblas.matmul(np.ones((2, 2)), np.ones((2, 2)), precision="ieee")
    assert reference.LAUNCHED[-1].problem.precision == "ieee"
    cuteblas.matmul(np.ones((2, 2)), np.ones((2, 2)))
    assert reference.LAUNCHED[-1].problem.precision == "auto"


def test_nothing_is_launched_for_an_empty_result():
    launched = len(reference.LAUNCHED)
    cuteblas.reset_stats()
    assert cuteblas.matmul(np.ones((0, 3)), np.ones((3, 4))).shape == (0, 4)
    assert len(reference.LAUNCHED) == launched
    assert cuteblas.stats() == {"matmul": {"calls": {"nothing": 1}}}


def test_an_empty_sum_is_zero():
    out = np.full((3, 4), np.nan)
    cuteblas.matmul(np.ones((3, 0)), np.ones((0, 4)), out)
    assert (out == 0).all()
