"""Calls on plain NumPy arrays that NumPy answers at once: its results, types and errors, counted
for the function."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas

CALLS = {"dot": (np.dot, cuteblas.dot, ((5, 6), (6, 7))),
         "inner": (np.inner, cuteblas.inner, ((5, 6), (7, 6))),
         "vdot": (np.vdot, cuteblas.vdot, ((5, 6), (5, 6))),
         "outer": (np.outer, cuteblas.outer, ((5, 6), (7,))),
         "kron": (np.kron, cuteblas.kron, ((5, 6), (7,))),
         "tensordot": (np.tensordot, cuteblas.tensordot, ((2, 5, 6), (5, 6, 7))),
         "vecdot": (np.vecdot, cuteblas.vecdot, ((5, 6), (5, 6))),
         "matvec": (np.matvec, cuteblas.matvec, ((5, 6), (6,))),
         "vecmat": (np.vecmat, cuteblas.vecmat, ((5,), (5, 6)))}
LARGE = {"dot": ((50, 60), (4, 60, 70)), "inner": ((2, 50, 60), (70, 60)),
         "tensordot": ((50, 8, 9), (8, 9, 70)), "matvec": ((400, 300), (300,)),
         "vecmat": ((300,), (300, 400))}


@pytest.mark.parametrize("kind", ["?", "b", "L", "e", "f", "d", "D"])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_numpys(name, kind):
    theirs, ours, shapes = CALLS[name]
    rng = np.random.default_rng(0)
    for extents in (shapes, LARGE.get(name, shapes),
                    tuple((0, *x[1:]) if name == "outer" else x for x in shapes)):
        a, b = (rng.integers(0, 3, shape).astype(kind) for shape in extents)
        cuteblas.reset_stats()
        result, expected = ours(a, b), theirs(a, b)
        assert type(result) is type(expected) and np.asarray(result).dtype == np.asarray(expected).dtype
        assert np.array_equal(result, expected) and getattr(result, "strides",
                                                            ()) == getattr(expected, "strides", ())
        assert sum(cuteblas.stats()[name]["calls"].values()) == 1


@pytest.mark.parametrize("name", CALLS)
def test_refusals_are_numpys(name):
    theirs, ours, (first, _second) = CALLS[name]
    for wrong in ((11,), (3, 11)):
        a, b = np.ones(first), np.ones(wrong)
        assert answer_of(ours, a, b) == answer_of(theirs, a, b)


def answer_of(call, a, b):
    """The shape of the result, or what is raised."""
    try:
        return np.shape(call(a, b))
    except ValueError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", ["B", "e", "d"])
@pytest.mark.parametrize("shapes", [[(5, 6), (6, 7)], [(40, 50), (50, 60)],
                                    [(3, 4), (4, 5), (5, 6)], [(30, 40), (40, 50), (50, 60)],
                                    [(60,), (60, 70), (70, 80), (80,)]])
def test_chains(shapes, kind):
    arrays = [np.random.default_rng(i).integers(0, 3, shape).astype(kind)
              for i, shape in enumerate(shapes)]
    result, expected = cuteblas.linalg.multi_dot(arrays), np.linalg.multi_dot(arrays)
    assert type(result) is type(expected) and result.dtype == expected.dtype
    assert np.allclose(result, expected, rtol=2e-3, equal_nan=True)


def test_small_sums_of_the_same_letters_and_shapes_in_other_types():
    for kind in ("d", "i", "O", "D", "d"):
        a, b = np.arange(64).reshape(8, 8).astype(kind), np.arange(64).reshape(8, 8).astype(kind)
        result = cuteblas.einsum("ij,ij->i", a, b)
        assert result.dtype == a.dtype and (result == np.einsum("ij,ij->i", a, b)).all()
    with pytest.raises(TypeError):
        cuteblas.einsum("ij,ij->i", a, a.astype("S4"))


@pytest.mark.parametrize("name", LARGE)
def test_sums_of_float16_that_overflow_warn_as_numpys(name):
    theirs, ours, _shapes = CALLS[name]
    a, b = (np.full(shape, 200, "e") for shape in LARGE[name])
    for call in (theirs, ours):
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            call(a, b)
        with np.errstate(over="ignore"):
            assert np.isinf(call(a, b)).all()
