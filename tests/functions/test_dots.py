"""``dot``, ``inner``, ``vdot``, ``outer``, ``tensordot`` and ``kron`` against NumPy, with problems
evaluated by the definition."""

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

extents = st.sampled_from((0, 1, 2, 2, 3, 4))
shapes = st.lists(extents, max_size=3).map(tuple)
NAMES = ("dot", "inner", "vdot", "outer", "tensordot", "kron")


def call(name, *operands, **arguments):
    return agree(getattr(cuteblas, name), getattr(np, name), *operands, **arguments)


@st.composite
def fitting(draw, name):
    """Shapes of two operands that mostly fit."""
    a, b = draw(shapes), draw(shapes)
    if draw(st.integers(0, 5)) and a and b:
        if name == "inner":
            b = (*b[:-1], a[-1])
        elif name == "dot":
            b = (*b[:-2], a[-1], *b[-1:]) if len(b) > 1 else (a[-1],)
        elif name == "vdot":
            b = draw(st.permutations(a)) if draw(st.booleans()) else (int(np.prod(a)),)
    return a, tuple(b)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    name = data.draw(st.sampled_from(("dot", "inner", "vdot", "outer", "kron")))
    a, b = (small_arrays(data.draw, shape) for shape in data.draw(fitting(name)))
    scales = () in (a.shape, b.shape) and 0 in (*a.strides, *b.strides)
    call(name, a, b, strides=name != "kron" and not scales)             # where NumPy keeps no rule


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_out(data):
    name = data.draw(st.sampled_from(("dot", "outer")))
    a, b = (small_arrays(data.draw, shape, ("d", "f", "i", "D"))
            for shape in data.draw(fitting(name)))
    try:
        shape = getattr(np, name)(a, b).shape
    except ValueError:
        shape = (2, 3)
    if not data.draw(st.integers(0, 3)):
        shape = data.draw(st.sampled_from(((2, *shape), shape[1:], (*shape, 1))))
    type_ = np.result_type(a, b).char if data.draw(st.integers(0, 3)) else data.draw(st.sampled_from(DTYPES))
    out = small_arrays(data.draw, shape, (type_,), writeable=True)
    if data.draw(st.booleans()):
        out = np.ascontiguousarray(out).reshape(shape)
    out.flags.writeable = data.draw(st.integers(0, 9)) != 0
    call(name, a, b, out=out)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_tensordot(data):
    a, b = data.draw(st.lists(extents, max_size=4)), data.draw(st.lists(extents, max_size=4))
    count = data.draw(st.integers(0, min(len(a), len(b))))
    axes_a, axes_b = (list(data.draw(st.permutations(range(len(x))))[:count]) for x in (a, b))
    if data.draw(st.integers(0, 5)):
        for i, j in zip(axes_a, axes_b, strict=True):
            b[j] = a[i]
    axes = [[i - (len(x) if data.draw(st.integers(0, 3)) == 0 else 0) for i in named]
            for x, named in ((a, axes_a), (b, axes_b))]
    if data.draw(st.integers(0, 4)) == 0:
        axes = data.draw(st.sampled_from((0, 1, 2, 3, -1, (0, 0), (-1, 0), (1.0, 0), 1.5,
                                          ((0, 0), (1, 1)), ((0,), (0, 1)), (0,), "ab", (0, 5),
                                          ((-9,), (0,)), np.int64(1), np.array([[0], [1]]),
                                          (range(1), (0,)))))
    call("tensordot", small_arrays(data.draw, tuple(a)), small_arrays(data.draw, tuple(b)),
         axes=axes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_type_in_every_layout(name, layout):
    shape = (3, 3, 3)
    for dtype in DTYPES:
        assert call(name, laid_out(shape, dtype, layout, 1),
                    laid_out(shape, dtype, layout, 2)) is not None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_copied_or_reshaped(name):
    cuteblas.reset_stats()
    for first in ("F", "sliced", "negative", "permuted", "broadcast"):
        for second in ("C", "F", "sliced", "negative", "permuted"):
            call(
                name,
                laid_out((2, 3, 2), "D", first, 1),
                laid_out((2, 3, 2) if name == "vdot" else (2, 2, 3), "D", second, 2),
                **({"axes": ((1, 0), (2, 1))} if name == "tensordot" else {})
            ) if name not in ("dot", "inner") else call(
                name, laid_out((2, 3, 2), "D", first, 1), laid_out((3, 2, 2), "D", second, 2)
            )
    assert list(cuteblas.stats()) == [name] and "copies" not in cuteblas.stats()[name]
    assert set(cuteblas.stats()[name]["calls"]) == {"reference"}


def test_modes_are_nested():
    a, b = laid_out((2, 3, 4, 5), "d", "C"), laid_out((5, 3, 6, 2), "d", "C")
    call("tensordot", a, b, axes=((1, 3), (1, 0)))
    problem = reference.LAUNCHED[-1].problem
    assert [[mode[0] for mode in group] for group in (problem.m, problem.n,
                                                      problem.k)] == [[2, 4], [6, 2], [3, 5]]


@pytest.mark.parametrize("shape1, shape2, copied",
                         [((6,), (2, 3), False), ((4, 6), (6, 4), True), ((9, 2), (6, 3), True),
                          ((2, 6), (4, 3), False), ((2, 3, 4), (6, 4), False),
                          ((1, 6, 1), (3, 2), False), ((12,), (3, 2, 2), False),
                          ((2, 1, 0), (0,), False)])
def test_vdot_of_different_shapes(shape1, shape2, copied):
    cuteblas.reset_stats()
    call("vdot", laid_out(shape1, "D", "F", 1), laid_out(shape2, "D", "F", 2))
    assert ("ascontiguousarray" in cuteblas.stats()) is copied


def test_vdot_conjugates_as_it_reads():
    x = laid_out((3, 4), "F", "F")
    call("vdot", x, x)
    problem = reference.LAUNCHED[-1].problem
    assert problem.a.conj and not problem.b.conj
    call("vdot", x.real, x.imag)
    assert not reference.LAUNCHED[-1].problem.a.conj


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operands", [(3, 4), (np.ones(3, "f"), 2.0), (2, [1, 2, 3]),
                                      ([[1, 2], [3, 4]], [[1, 0], [0, 1]]),
                                      (np.float16(2), np.ones((2, 2), "e")), (None, 1),
                                      (np.ones(2), "ab"), (np.array(["a"]), np.array(["b"])),
                                      (np.ones(2, "M8[s]"), np.ones(2)), ([[1], [2, 3]], [1]),
                                      (np.ones((2, 2), object), np.ones((2, 2))),
                                      (np.ones((2, 2), "g"), np.ones((2, 2))),
                                      (np.ones(2), np.ones(2, "V3")),
                                      (np.ones((2, 2)).view(np.matrix), np.ones((2, 2)))], ids=repr)
def test_operands_that_are_not_plain_arrays(name, operands):
    call(name, *operands, strides=False, **({"axes": 0} if name == "tensordot" else {}))


@pytest.mark.parametrize("name", ["dot", "outer"])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::-1]])
def test_out_may_overlap_the_inputs(name, view):
    x = laid_out((4, 4), "d", "C")
    a, b = (x, x) if name == "dot" else (x[0], x[1])
    expected, work = getattr(np, name)(a, b), x.copy()
    target = view(work) if name == "outer" else work
    ours = (work, work) if name == "dot" else (work[0], work[1])
    cuteblas.reset_stats()
    assert getattr(cuteblas, name)(*ours, out=target) is target
    np.testing.assert_array_equal(target, expected)
    assert cuteblas.stats()[name]["copies"] == {"out: shares memory with an input": 1}


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
@pytest.mark.parametrize("name", ["dot", "outer", "matmul"])
@pytest.mark.parametrize("which", [0, 1])
def test_out_may_overlap_each_operand_alone(backend, name, which):
    x = np.arange(1.0, 17).reshape(4, 4)
    operands = [x.copy(), x.copy() + 1]
    if name == "outer":
        target, operands[which] = operands[which], operands[which][1]
        operands[1 - which] = operands[1 - which][0]
    else:
        target = operands[which]
    expected = getattr(np, name)(*(y.copy() for y in operands))
    with cuteblas.backend(backend):
        cuteblas.reset_stats()
        assert getattr(cuteblas, name)(*operands, out=target) is target
        if backend == "emulator":
            assert cuteblas.stats()[name]["copies"] == {"out: shares memory with an input": 1}
    np.testing.assert_array_equal(target, expected)


def test_out_that_overlaps_itself():
    out = np.lib.stride_tricks.as_strided(np.zeros(4), (2, 3), (8, 8))
    cuteblas.reset_stats()
    cuteblas.outer([1.0, 2], [3.0, 4, 5], out)
    assert cuteblas.stats()["outer"]["copies"] == {"out: shares memory with itself": 1}


def test_outs_of_outer_may_be_wider_and_of_another_type():
    a, b = laid_out((3,), "f", "C"), laid_out((2, 2), "f", "F")
    cuteblas.reset_stats()
    call("outer", a, b, out=np.zeros((2, 3, 4), "f"))
    call("outer", a, b, out=np.zeros((3, 4), "D"))
    assert cuteblas.stats()["outer"]["copies"] == {"out: has more elements than the result": 1,
                                                   "out: is complex128, computed in float32": 1}


@pytest.mark.parametrize("first", [[1], [[1, 2], [3, 4]], [], [[]], True, 2, np.float32(2),
                                   np.int8(1), np.ones(0, "f4"), np.ones((0, 0), "i4")])
@pytest.mark.parametrize("second", [[], [[]], [[], []], ()])
@pytest.mark.parametrize("name", ["dot", "inner", "vdot"])
def test_lists_without_elements(name, first, second):
    """They have the type of the operand before them."""
    agree(getattr(cuteblas, name), getattr(np, name), first, second)
    agree(getattr(cuteblas, name), getattr(np, name), second, first)
    agree(lambda *x: cuteblas.linalg.multi_dot(x), lambda *x: np.linalg.multi_dot(x), first, second)


@pytest.mark.parametrize("call", ["numpy", "emulator"])
def test_outs_of_dot_are_aligned_as_numpy_has_them(call):
    """To a float for a complex number, and anywhere if there are no elements."""
    out = np.zeros(68, np.complex64).view(np.uint8)[4:4 + 8 * 9].view(np.complex64).reshape(3, 3)
    nothing = np.zeros(99, np.uint8)[1:1].view(np.float64).reshape(0, 3)
    x = np.ones((3, 3), np.complex64)
    with cuteblas.backend(call):
        assert cuteblas.dot(x, x, out=out) is out and (out == 3).all()
        assert cuteblas.dot(np.ones((0, 3)), np.ones((3, 3)), out=nothing) is nothing
    assert np.dot(np.ones((0, 3)), np.ones((3, 3)), out=nothing) is nothing


class Answers:
    """A type that answers NumPy's functions itself."""

    def __array_function__(self, function, types, arguments, named):
        return function.__name__


@pytest.mark.parametrize("name", NAMES)
def test_other_types_are_asked_first(name):
    cuteblas.reset_stats()
    assert getattr(cuteblas, name)(np.ones(2), Answers()) == name
    assert cuteblas.stats()[name]["calls"] == {
        "delegated to NumPy: Answers answers NumPy's functions itself": 1
    }


def test_routes_are_counted():
    x = laid_out((4, 4), "f", "C")
    cuteblas.reset_stats()
    cuteblas.dot(x, x)
    cuteblas.dot(x, 2)
    cuteblas.dot(x[:0], x)
    cuteblas.inner(x.astype(object), x)
    cuteblas.tensordot(x, x.astype("d"))
    with cuteblas.backend("numpy"):
        cuteblas.kron(x, x)
    assert cuteblas.stats() == {
        "dot": {
            "calls": {"element by element": 1, "nothing": 1, "reference": 1},
            "copies": {
                "operand: is float32, computed in float64": 1,
                "operand: is int64, computed in float64": 1
            }
        },
        "inner": {"calls": {"delegated to NumPy: there are no kernels for object": 1}},
        "kron": {"calls": {"numpy": 1}},
        "tensordot": {
            "calls": {"reference": 1},
            "copies": {"operand: is float32, computed in float64": 1}
        }
    }


def test_integers_wrap_and_bool_is_or_of_ands():
    rng = np.random.default_rng(1)
    for dtype in "bBhHiIqQ":
        limits = np.iinfo(dtype)
        a, b = (rng.integers(limits.min, limits.max, (5, 7), dtype, endpoint=True)
                for _ in range(2))
        call("inner", a, b)
        call("vdot", a, b)
        call("outer", a, b)
    a, b = (rng.random((9, 20)) < 0.2 for _ in range(2))
    call("inner", a, b)


@pytest.mark.parametrize("name", ["dot", "inner", "vdot", "tensordot"])
@pytest.mark.parametrize("dtype", ["e", "f", "d", "D"])
def test_floats_are_within_the_bound_of_their_sums(name, dtype):
    rng = np.random.default_rng(2)
    parts = rng.standard_normal((2, 2, 40, 40))
    a, b = ((real + (1j * imaginary if dtype == "D" else 0)).astype(dtype)
            for real, imaginary in parts)
    arguments = {"axes": 1} if name == "tensordot" else {}
    wide = "G" if dtype == "D" else "g"
    exact = getattr(np, name)(a.astype(wide), b.astype(wide), **arguments)
    scale = getattr(np, name)(abs(a).astype("g"), abs(b).astype("g"), **arguments)
    unit = np.finfo(dtype).eps / 2
    terms = 40 if name != "vdot" else 1600
    sums = 2.0**-24 if dtype == "e" else unit
    assert (abs(getattr(cuteblas, name)(a, b, **arguments) - exact) <= 4 * terms * sums * scale
            + unit * abs(exact)).all()
