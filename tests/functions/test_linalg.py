"""``cuteblas.linalg`` against ``numpy.linalg``, with problems evaluated by the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
import cuteblas.linalg

from . import reference
from .agreement import agree
from .arrays import DTYPES, LAYOUTS, laid_out, small_arrays

pytestmark = pytest.mark.usefixtures("by_definition")

extents = st.sampled_from((0, 1, 2, 3, 4))


def call(name, *operands, **arguments):
    return agree(getattr(cuteblas.linalg, name), getattr(np.linalg, name), *operands, **arguments)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_multi_dot(data):
    count = data.draw(st.integers(0, 6))
    chain = [data.draw(extents) for _ in range(count + 1)]
    shapes = [(chain[i], chain[i + 1]) for i in range(count)]
    if shapes and data.draw(st.booleans()):
        shapes[0] = shapes[0][1:]
    if shapes and data.draw(st.booleans()):
        shapes[-1] = shapes[-1][:1]
    if shapes and data.draw(st.integers(0, 5)) == 0:
        shapes[data.draw(st.integers(0, count - 1))] = tuple(
            data.draw(st.lists(extents, max_size=3))
        )
    arrays = [small_arrays(data.draw, shape, ("d", "f", "i", "D")) for shape in shapes]
    call("multi_dot", arrays, strides=False)


def test_chain_is_multiplied_in_the_cheap_order():
    shapes = ((8, 2), (2, 9), (9, 3), (3, 7))
    launched = len(reference.LAUNCHED)
    call("multi_dot", [laid_out(shape, "d", "F", i) for i, shape in enumerate(shapes)])
    assert [plan.problem.flops // 2 for plan in reference.LAUNCHED[launched:]] == [
        2 * 9 * 3,
        2 * 3 * 7,
        8 * 2 * 7
    ]


@pytest.mark.parametrize("out", [np.zeros((2, 5)), np.zeros((2, 5), order="F"),
                                 np.zeros((2, 5), "f"), np.zeros((5, 2)), np.zeros(5)],
                         ids=lambda x: f"{x.shape}{x.dtype}{x.flags.f_contiguous}")
def test_out_of_multi_dot(out):
    call("multi_dot", [laid_out(shape, "d", "C") for shape in ((2, 3), (3, 4), (4, 5))], out=out)


def test_multi_dot_counts_its_products():
    cuteblas.reset_stats()
    call("multi_dot", [laid_out((3, 3), "d", "C")] * 4)
    assert cuteblas.stats() == {"linalg.multi_dot": {"calls": {"reference": 3}}}


@pytest.mark.parametrize("arrays", [([[1, 2], [3, 4]],) * 3, [np.ones((2, 2), object)] * 3,
                                    [np.ones((2, 2)).view(np.matrix)] * 3, 5, [None, 1],
                                    [np.ones((2, 2))] * 2 + [np.ones((2, 2), "g")],
                                    [np.ones(1), np.ones((0, 0)), np.ones((0, 1))]], ids=repr)
def test_multi_dot_of_what_are_no_plain_arrays_and_no_chain(arrays):
    call("multi_dot", arrays)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 11, -1, -2, 2.5, "x", np.int8(2), True])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2), (0, 2, 2), (0, 0), (2, 3), (3,), ()], ids=str)
def test_matrix_power(shape, n):
    for dtype in "dDi":
        x = laid_out(shape, dtype, "F", 5)
        if len(shape) > 1 and shape[-1] == shape[-2]:
            x = x + np.eye(shape[-1], dtype=dtype) * 5
        call("matrix_power", x, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_powers_of_every_type(dtype):
    for n in (0, 1, 2, 3):
        assert call("matrix_power", laid_out((3, 3), dtype, "sliced"), n) is not None


def test_matrix_power_of_objects_and_lists():
    call("matrix_power", np.array([[1, 2], [3, 4]], object), 3)
    call("matrix_power", [[1, 2], [3, 4]], 3)
    call("matrix_power", np.ones((2, 2, 2), object), 2)


def test_routes_of_matrix_power():
    x = laid_out((3, 3), "d", "C") + 3 * np.eye(3)
    cuteblas.reset_stats()
    for n in (0, 3, -1):
        cuteblas.linalg.matrix_power(x, n)
    assert cuteblas.stats() == {"linalg.matrix_power": {"calls": {"identity": 1,
                                                                  "inverse by NumPy": 1,
                                                                  "matmul": 2}},
                                "matmul": {"calls": {"reference": 2}}}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_of_the_array_api(layout):
    a, b = laid_out((3, 4, 3), "D", layout, 1), laid_out((3, 3, 4), "D", layout, 2)
    call("matmul", a, b)
    call("vecdot", a, a)
    call("vecdot", a, a, axis=1)
    call("vecdot", a, b)
    call("vecdot", a, a, axis=7)
    call("tensordot", a, b, axes=1)
    call("tensordot", a, b, axes=((0,), (0,)))
    call("tensordot", a, b)
    call("outer", a[0, 0], b[0, 0])
    call("outer", a[0], b[0, 0])
    call("outer", a[0, 0], np.ones(3, object))
    call("matrix_transpose", a)
    call("matrix_transpose", a[0, 0])


def test_names_of_the_array_api_are_counted():
    cuteblas.reset_stats()
    x = np.ones(3)
    cuteblas.linalg.vecdot(x, x)
    cuteblas.linalg.outer(x, x)
    cuteblas.linalg.tensordot(x, x, axes=1)
    assert list(cuteblas.stats()) == ["linalg.outer", "linalg.tensordot", "linalg.vecdot"]
    with pytest.raises(TypeError):
        cuteblas.linalg.matmul(x, x, x)


def test_numpy_takes_numpy_arrays():
    x = np.eye(2)
    with cuteblas.backend("numpy"):
        cuteblas.reset_stats()
        assert (cuteblas.linalg.multi_dot([x, x, x]) == x).all() and (
            cuteblas.linalg.matrix_power(x, 3) == x
        ).all()
        assert cuteblas.stats() == {name: {"calls": {"numpy": 1}}
                                    for name in ("linalg.matrix_power", "linalg.multi_dot")}
