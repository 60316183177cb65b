"""Values of matmul on any backend: exact where arithmetic is exact, else within the bound of
floating-point sums."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from tests.functions.arrays import DTYPES, LAYOUTS, laid_out

# Both sides of the edges of the smallest tiles, primes, and 1. The emulator pays by the
# multiply-add.
SHAPES = ((1, 1, 1), (1, 33, 5), (31, 1, 17), (32, 32, 16), (33, 31, 17), (13, 64, 40), (65, 7, 1),
          (5, 3, 129))
LONG_SHAPES = ((127, 129, 65), (256, 64, 33), (64, 300, 100))
FLOATS = ("e", "f", "d", "F", "D")
# Unit roundoff of the sums (float16 sums in float32) and of the result.
ROUNDOFF = {"e": (2.0**-24, 2.0**-11), "f": (2.0**-24, 0.0), "d": (2.0**-53, 0.0),
            "F": (2.0**-24, 0.0), "D": (2.0**-53, 0.0)}


@pytest.fixture(params=SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def shape(request):
    """M, N, K."""
    return request.param


@pytest.fixture(params=LONG_SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def long_shape(request, backend):
    """M, N, K that take the emulator too long."""
    if backend == "emulator":
        pytest.skip("too many multiply-adds for the emulator")
    return request.param


def random(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c"
            else values).astype(dtype)


def close(result, a, b):
    """Whether every element is within the bound of a sum of k products, componentwise."""
    wide = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    exact = np.matmul(a.astype(wide), b.astype(wide))
    scale = np.matmul(np.abs(a).astype(np.longdouble), np.abs(b).astype(np.longdouble))
    sums, rounding = ROUNDOFF[a.dtype.char]
    terms = (a.shape[-1] + 2) * (2 if a.dtype.kind == "c" else 1)
    return bool((np.abs(result.astype(wide) - exact) <= terms * sums * scale + rounding
                 * np.abs(exact)).all())


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_within_the_error_bound(matmul, shape, dtype):
    m, n, k = shape
    a, b = random((m, k), dtype, 1), random((k, n), dtype, 2)
    assert close(matmul(a, b), a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_larger_floats_within_the_error_bound(matmul, long_shape, dtype):
    m, n, k = long_shape
    for a, b in ((random((m, k), dtype, 1), random((k, n), dtype, 2)),
                 (random((k, m), dtype, 3).T, random((n, k), dtype, 4).T)):
        assert close(matmul(a, b), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_integers_are_exact(matmul, shape, dtype):
    m, n, k = shape
    a, b = laid_out((m, k), dtype, "C", 1), laid_out((k, n), dtype, "F", 2)
    np.testing.assert_array_equal(matmul(a, b), np.matmul(a, b))


@pytest.mark.parametrize("layout2", LAYOUTS)
@pytest.mark.parametrize("layout1", LAYOUTS)
def test_strides(matmul, layout1, layout2):
    a, b = laid_out((33, 18), "f", layout1, 1), laid_out((18, 37), "f", layout2, 2)
    np.testing.assert_array_equal(matmul(a, b), np.matmul(a, b))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
@pytest.mark.parametrize("dtype", ["e", "f", "D", "b", "q"])
def test_strides_of_out(matmul, dtype, layout):
    a, b, out = laid_out((17, 9), dtype, layout, 1), laid_out((9, 35), dtype, layout, 2), laid_out((17, 35), dtype, layout, 3)
    assert matmul(a, b, out=out) is out
    np.testing.assert_array_equal(out, np.matmul(a, b))


def test_out_leaves_its_surroundings_alone(matmul):
    frame = np.full((41, 43), 7.0, "f")
    a, b = laid_out((33, 18), "f", "C", 1), laid_out((18, 31), "f", "C", 2)
    inside = frame[3:36, 5:36]
    matmul(a, b, out=inside)
    np.testing.assert_array_equal(inside, np.matmul(a, b))
    inside[...] = 7
    assert (frame == 7).all()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::-1],
                                  lambda x: x[:, ::-1]])
def test_out_that_overlaps_an_input(matmul, view):
    x = laid_out((33, 33), "d", "C")
    expected = np.matmul(x, x)
    matmul(x, x, out=view(x))
    np.testing.assert_array_equal(view(x), expected)


@pytest.mark.parametrize("first, second", [((3, 5, 6), (6, 7)), ((5, 6), (3, 6, 7)),
                                           ((3, 5, 6), (3, 6, 7)), ((2, 1, 5, 6), (3, 6, 7)),
                                           ((2, 3, 5, 6), (1, 3, 6, 7)), ((6,), (3, 6, 7)),
                                           ((3, 5, 6), (6,)), ((6,), (6,)),
                                           ((1, 1, 5, 6), (1, 6, 7)), ((0, 5, 6), (6, 7)),
                                           ((3, 5, 0), (0, 7)), ((3, 0, 6), (6, 7)),
                                           ((3, 5, 6), (6, 0)), ((0,), (0,)),
                                           ((2, 3, 4, 5, 6), (2, 3, 4, 6, 7))])
@pytest.mark.parametrize("layout", ["C", "permuted", "broadcast"])
def test_batches_and_vectors(matmul, first, second, layout):
    a, b = laid_out(first, "d", layout, 1), laid_out(second, "d", layout, 2)
    result, expected = matmul(a, b), np.matmul(a, b)
    assert result.shape == expected.shape and type(result) is type(expected)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["b", "h", "i", "q", "B", "H", "I", "Q"])
def test_integers_wrap(matmul, dtype):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            for shape in ((19, 23), (23, 21)))
    np.testing.assert_array_equal(matmul(a, b), np.matmul(a, b))


def test_bool_is_or_of_ands(matmul):
    rng = np.random.default_rng(4)
    a, b = rng.random((33, 300)) < 0.03, rng.random((300, 17)) < 0.03
    result = matmul(a, b)
    assert result.dtype == bool
    np.testing.assert_array_equal(result, (a[:, :, None] & b).any(1))


def test_float16_sums_in_float32_and_rounds_once(matmul):
    ones = np.ones((2, 3000), "e")
    assert (matmul(ones, ones.T) == 3000).all()
    a = np.array([[2048, 1, 1, 1, 1]], "e")
    assert matmul(a, np.ones((5, 1), "e"))[0, 0] == 2052
    with np.errstate(over="ignore"):
        assert np.isinf(matmul(np.full((1, 2), 300, "e"), np.full((2, 1), 300, "e"))).all()


@pytest.mark.parametrize("dtype", ["e", "f", "d"])
def test_nan_and_infinity_propagate(matmul, dtype):
    a, b = np.ones((5, 9), dtype), np.ones((9, 7), dtype)
    a[1, 2], a[2, 3], b[4, 5], b[3, 6] = np.nan, np.inf, -np.inf, 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(matmul(a, b), np.matmul(a, b))


def test_an_empty_sum_is_zero(matmul):
    out = np.full((33, 5), np.nan)
    matmul(np.ones((33, 0)), np.ones((0, 5)), out=out)
    assert (out == 0).all()


def test_promotion(matmul):
    a = laid_out((5, 6), "i", "C", 1)
    for dtype, layout in (("f", "F"), ("D", "C"), ("b", "sliced"), ("e", "negative"), ("Q", "C"),
                          ("?", "F")):
        b = laid_out((6, 4), dtype, layout, 2)
        result, expected = matmul(a, b), np.matmul(a, b)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_calls_ran_where_they_should(matmul, backend):
    cuteblas.reset_stats()
    x = laid_out((4, 4), "f", "C")
    matmul(x, x)
    routes = set(cuteblas.stats()["matmul"]["calls"])
    assert routes == {"numpy"} if backend == "numpy" else routes and not any("umpy" in route.lower() for route in routes)
