"""``vecdot``, ``matvec`` and ``vecmat`` against NumPy, with problems evaluated by the
definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas

from . import reference
from .agreement import agree
from .arrays import DTYPES, LAYOUTS, laid_out, small_arrays
from .comparisons import check_same_refusal, outcome

pytestmark = pytest.mark.usefixtures("by_definition")

NAMES = ("vecdot", "matvec", "vecmat")
CORES = {"vecdot": ("n", "n", ""), "matvec": ("mn", "n", "m"), "vecmat": ("n", "nm", "m")}
extents = st.sampled_from((0, 1, 1, 2, 3, 4))


def call(name, *operands, **arguments):
    return agree(getattr(cuteblas, name), getattr(np, name), *operands, **arguments)


@st.composite
def calls(draw):
    """A function and shapes that mostly fit: two operands, an ``out`` or none."""
    name = draw(st.sampled_from(NAMES))
    extent = {"m": draw(extents), "n": draw(extents)}
    batch = draw(st.lists(extents, max_size=3).map(tuple))

    def part():
        return tuple(1 if draw(st.integers(0, 3)) == 0 else n
                     for n in batch[draw(st.integers(0, len(batch))):])

    first, second, result = (tuple(extent[c] for c in core) for core in CORES[name])
    batch1, batch2 = part(), part()
    if draw(st.integers(0, 9)) == 0:
        first = draw(st.lists(extents, max_size=3).map(tuple))
    shape = None
    if draw(st.booleans()):
        shape = (*draw(st.sampled_from(((), (), (2,)))), *np.broadcast_shapes(batch1, batch2),
                 *result)
    return name, (*batch1, *first), (*batch2, *second), shape


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    name, first, second, shape = data.draw(calls())
    x1, x2 = small_arrays(data.draw, first), small_arrays(data.draw, second)
    out = None
    if shape is not None:
        types = (np.result_type(x1, x2).char,) if data.draw(st.booleans()) else DTYPES
        out = small_arrays(data.draw, shape, types, writeable=True)
        out.flags.writeable = data.draw(st.integers(0, 9)) != 0
    call(name, x1, x2, out=out)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_arguments_of_generalized_ufuncs(data):
    name, first, second, _shape = data.draw(calls())
    x1, x2 = small_arrays(data.draw, first, ("i", "f", "D", "e")), small_arrays(data.draw, second, ("i", "f", "D", "e"))
    arguments = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "casting": st.sampled_from(("no", "safe", "same_kind", "unsafe", "any")),
                "order": st.sampled_from(("C", "F", "A", "K", "Z", None)),
                "dtype": st.sampled_from((None, "f4", "c16", "i4", "?")),
                "keepdims": st.sampled_from((True, False, 1)),
                "axis": st.sampled_from((0, 1, -1, -2, None, "x")),
                "axes": st.sampled_from(
                    (
                        [0, 0],
                        [0, -1, ()],
                        [0, 0, 0],
                        [(0,), (-1,), ()],
                        [(0, 1), 0, 0],
                        [(1, 0), -1, -1],
                        [0, (0, 1), 0],
                        [-1, (-1, -2), 0],
                        [(-1,)],
                        "ab"
                    )
                ),
                "signature": st.sampled_from(("ff->f", "dd->d", "x")),
                "where": st.just(True),
            }
        )
    )
    call(name, x1, x2, **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_type_in_every_layout(name, layout):
    first, second = {"vecdot": ((3, 3), (4, 3, 3)), "matvec": ((3, 2, 3), (4, 3, 3)),
                     "vecmat": ((2, 4, 3), (4, 3, 2))}[name]
    for dtype in DTYPES:
        assert call(name, laid_out(first, dtype, layout, 1),
                    laid_out(second, dtype, layout, 2)) is not None


@pytest.mark.parametrize("arguments", [{"keepdims": True}, {"axis": 0},
                                       {"axis": 0, "keepdims": True}, {"axes": [0, 1, ()]},
                                       {"axes": [0, 1, 0], "keepdims": True}, {"axes": [0, 1]},
                                       {"axes": [0, 1], "keepdims": True}])
def test_axes_of_vecdot(arguments):
    assert call("vecdot", laid_out((3, 3, 3), "D", "F", 1), laid_out((3, 3, 3), "D", "sliced", 2),
                **arguments) is not None


def test_first_vector_is_conjugated_as_it_is_read():
    x = laid_out((3, 3), "F", "F")
    for name, conj in (("vecdot", True), ("vecmat", True), ("matvec", False)):
        cuteblas.reset_stats()
        call(name, x, x)
        problem = reference.LAUNCHED[-1].problem
        assert (problem.a.conj, problem.b.conj) == (conj, False)
        assert cuteblas.stats() == {name: {"calls": {"reference": 1}}}


@pytest.mark.parametrize("name", NAMES)
def test_out_may_lack_leading_axes_of_extent_1(name):
    x1, x2 = laid_out((1, 3, 3), "d", "C", 1), laid_out((3, 3), "d", "C", 2)
    assert call(name, x1, x2, out=np.zeros((3,) if name == "vecdot" else (3, 3))) is not None
    assert call("matvec", x1, x2[0], out=np.zeros(3)) is not None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", [7, 8, 12])
def test_many_batch_axes(name, rank):
    batch, extent, rng = (2,) * rank, {"m": 2, "n": 3}, np.random.default_rng(rank)
    first, second = (rng.integers(-3, 4, (*batch, *(extent[c] for c in core))).astype("f")
                     for core in CORES[name][:2])
    call(name, first, second)


@pytest.mark.parametrize("name", NAMES)
def test_out_may_overlap_the_inputs(name):
    work = laid_out((3, 3, 3), "d", "C")
    expected = getattr(np, name)(work, work)
    target = work[0] if name == "vecdot" else work
    assert getattr(cuteblas, name)(work, work, out=(target,)) is target
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operands", [(3, np.ones(3)), ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
                                      (None, np.ones(3)), (np.array(["a"]), np.array(["b"])),
                                      (np.ones((2, 2), object), np.ones((2, 2), object)),
                                      (np.ones((2, 2), "g"), np.ones((2, 2))),
                                      (np.zeros((2, 2), "M8[s]"), [1, 2])], ids=repr)
def test_operands_that_are_not_plain_arrays(name, operands):
    call(name, *operands)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("out", [[0.0], 1.0, (), (None, None)], ids=repr)
def test_what_is_no_out(name, out):
    x = np.ones((2, 2))
    refusal = outcome(getattr(np, name), x, x, out=out)[1]
    check_same_refusal(getattr(cuteblas, name), refusal, x, x, out=out)


@pytest.mark.parametrize("layout", [slice(50, 46, -1), slice(3, 11, 2)])
def test_vecmat_of_complex_operands_writes_nothing_but_out(layout):
    memory, x = np.zeros(64, complex), np.arange(4) + 1j
    matrix = np.arange(16).reshape(4, 4) * (1 - 2j)
    out = memory[layout]
    with cuteblas.backend("numpy"):
        assert cuteblas.vecmat(x, matrix, out=out) is out
    expected = np.zeros(64, complex)
    expected[layout] = x.conj() @ matrix
    np.testing.assert_array_equal(memory, expected)


def test_vecmat_of_complex_operands_in_any_order():
    x, a = np.arange(6).reshape(2, 3) * 1j, np.arange(18).reshape(2, 3, 3) + 1j
    expected = np.matmul(x.conj()[:, None], a)[:, 0]
    for order in "CFAK":
        with cuteblas.backend("numpy"):
            result = cuteblas.vecmat(x, a, order=order)
        np.testing.assert_array_equal(result, expected)
        assert result.flags.f_contiguous == (order == "F")
    out = np.zeros((3, 2), complex)
    with cuteblas.backend("numpy"):
        cuteblas.vecmat(x, a, out=out, axes=[-1, (-2, -1), 0])
    np.testing.assert_array_equal(out, expected.T)
