"""Grading products."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas.cli.grading import grade

_RNG = np.random.default_rng(0)


def normal(shape, dtype):
    x = _RNG.standard_normal(shape)
    return (x + 1j * _RNG.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating)
            else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_a_right_product_passes_with_a_small_error(dtype):
    a, b = normal((40, 50), dtype), normal((50, 30), dtype)
    graded = grade(a, b, a @ b)
    assert graded.passed and 0 < graded.error < 5 and graded.checked == graded.rows == 40


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_one_wrong_element_fails(dtype):
    a, b = normal((20, 10), dtype), normal((10, 15), dtype)
    c = a @ b
    c[7, 3] += 4 * (10 + 2) * np.finfo(dtype).eps * (abs(a) @ abs(b))[7, 3]
    graded = grade(a, b, c)
    assert not graded.passed


def test_the_error_is_in_units_of_u():
    a, b = np.ones((1, 4), "f4"), np.ones((4, 1), "f4")
    c = np.float32([[4 * (1 + 3 * 2.0**-24)]])  # rounds to 1 + 2 * 2^-23 or so; take what is stored
    assert grade(a, b, c).error == pytest.approx((float(c[0, 0]) - 4) / (2.0**-24 * 4), rel=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_integers_are_exact(dtype):
    a, b = _RNG.integers(0, 200, (9, 8)).astype(dtype), _RNG.integers(0, 200, (8, 7)).astype(dtype)
    c = a @ b
    assert grade(a, b, c).error == 0 and grade(a, b, c).passed
    c[0, 0] ^= 1
    assert not grade(a, b, c).passed


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)),
                                    ((2, 1, 4, 5), (3, 5, 6)), ((0, 5), (5, 3)), ((4, 0), (0, 3))])
def test_every_shape_that_matmul_accepts(shapes):
    a, b = (normal(shape, "f4") for shape in shapes)
    c = np.asarray(a @ b)
    assert grade(a, b, c).passed
    if c.size:
        assert not grade(a, b, c + np.float32(1)).passed


def test_infinities_and_nans_belong_where_they_are():
    a, b = normal((6, 4), "f4"), normal((4, 5), "f4")
    a[1, 2], a[3, 0] = np.inf, np.nan
    c = a @ b
    assert grade(a, b, c).passed
    for place, value in (((3, 0), 1.0), ((1, 1), np.nan), ((0, 0), np.inf), ((2, 2), np.nan)):
        wrong = c.copy()
        wrong[place] = value
        assert not grade(a, b, wrong).passed, place


def test_overflow_is_a_matter_of_order():
    a, b = np.full((1, 4), 300, "f2"), np.full((4, 1), 300, "f2")
    assert grade(a, b, np.float16([[np.inf]])).passed


def test_rows_are_left_out_where_the_reference_is_slow(monkeypatch):
    monkeypatch.setattr("cuteblas.cli.grading._WORK_LONG", 3 * 20 * 30)
    a, b = normal((40, 20), "f8"), normal((20, 30), "f8")
    c = a @ b
    assert (grade(a, b, c).checked, grade(a, b, c).rows) == (3, 40)
    c[0, 0] += 1                                               # the first row is among them
    assert not grade(a, b, c).passed
