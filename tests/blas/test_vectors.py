"""``gemv`` and ``ger`` against SciPy and the definition, on NumPy, in the emulator and on the
GPU."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
GEMV = {name: TYPES[name[0]] for name in ("sgemv", "dgemv", "cgemv", "zgemv")}
GER = {name: TYPES[name[0]] for name in ("sger", "dger", "cgeru", "cgerc", "zgeru", "zgerc")}
needs_compiler = pytest.mark.skipif(not emulator.available(),
                                    reason="no C++ compiler for the emulator")
STEPS = [{}, {"incx": -1}, {"incx": 2, "offx": 1}, {"incy": 3, "offy": 2},
         {"incx": -2, "incy": -2, "offy": 1}]


def small(rng, shape, dtype):
    """Integers that every type sums exactly."""
    x = rng.integers(-4, 5, shape)
    return (x + 1j * rng.integers(-4, 5, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def chosen(x, count, off, inc):
    part = x[off:off + (count - 1) * abs(inc) + 1:abs(inc)]
    return part[::-1] if inc < 0 else part


def of(trans, a):
    return {"N": a, "T": a.T, "C": a.conj().T}["NTC"[trans]]


@pytest.mark.parametrize("backend, name, trans",
                         [*(("numpy", name, trans) for name in GEMV for trans in (0, 1, 2)),
                          *(pytest.param("emulator", *each, marks=needs_compiler)
                            for each in (("sgemv", 1), ("zgemv", 2)))])
def test_gemv(backend, name, trans):
    rng = np.random.default_rng(1)
    dtype = GEMV[name]
    for order, steps, (alpha, beta) in zip("CFCFC", STEPS,
                                           [(1, 0), (2, 0), (-1, 1), (3, 2), (0, 2)], strict=True):
        a = np.asarray(small(rng, (9, 14), dtype), order=order)
        rows, columns = of(trans, a).shape
        x, y = small(rng, 40, dtype), small(rng, 60, dtype)
        want = y.copy()
        part = chosen(want, rows, steps.get("offy", 0), steps.get("incy", 1))
        part[...] = alpha * (of(trans, a) @ chosen(x, columns, steps.get("offx", 0),
                                                   steps.get("incx", 1))) + beta * part
        before = y.copy()
        with cuteblas.backend(backend):
            got = getattr(blas, name)(alpha, a, x, beta, y, trans=trans, **steps)
            np.testing.assert_array_equal(y, before)
            again = getattr(blas, name)(alpha, a, x, beta, y, trans=trans, overwrite_y=1, **steps)
        assert again is y and got.dtype == dtype
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("backend, name", [*(("numpy", name) for name in GER),
                                           pytest.param("emulator", "zgerc", marks=needs_compiler)])
def test_ger(backend, name):
    rng = np.random.default_rng(2)
    dtype = GER[name]
    for incx, incy, order, alpha in ((1, 1, "F", 1), (-1, 1, "C", 2), (1, -1, "F", -3)):
        x, y, a = small(rng, 7, dtype), small(rng, 18, dtype)[::2], np.asarray(small(rng, (7, 9), dtype), order=order)
        other = y[::incy].conj() if name.endswith("c") else y[::incy]
        product = alpha * np.outer(x[::incx], other)
        before = a.copy()
        with cuteblas.backend(backend):
            new = getattr(blas, name)(alpha, x, y, incx=incx, incy=incy)
            got = getattr(blas, name)(alpha, x, y, incx, incy, a)
            np.testing.assert_array_equal(a, before)
            assert getattr(blas, name)(alpha, x, y, incx, incy, a, overwrite_a=1) is a
        np.testing.assert_array_equal(new, product)
        assert new.flags.f_contiguous and new.dtype == dtype
        np.testing.assert_array_equal(got, product + before)
        np.testing.assert_array_equal(a, product + before)


@pytest.mark.parametrize("name", [*GEMV, *GER])
def test_signatures_and_answers_are_scipys(name):
    scipy = pytest.importorskip("scipy.linalg.blas")
    theirs, dtype, rng = getattr(scipy, name), {**GEMV, **GER}[name], np.random.default_rng(3)
    first = theirs.__doc__.splitlines()[0]
    names = first[first.index("(") + 1:-1].replace("[", "").replace("]", "").split(",")
    assert list(inspect.signature(getattr(blas, name)).parameters) == names
    a, x, y = small(rng, (5, 6), dtype), small(rng, 30, dtype), small(rng, 30, dtype)
    if name in GEMV:
        calls = [((2, a, x), s) for s in STEPS] + [((2, a, x, 3, y), s) for s in STEPS] + [((1, a, x), {"trans": 2, "incy": 2})]
    else:
        calls = [((2, x[:5], y[:6]), {}), ((2, x[:5], y[:6], -1, -1, a), {})]
    for given, named in calls:
        got, want = getattr(blas, name)(*given, **named), theirs(*given, **named)
        np.testing.assert_array_equal(got, want)
        assert got.shape == want.shape and got.dtype == want.dtype


def test_beta_zero_does_not_read_y_and_alpha_zero_neither_a_nor_x():
    a, nan = np.ones((3, 4)), np.full(3, np.nan)
    assert blas.dgemv(1, a, np.ones(4), 0, nan).tolist() == [4, 4, 4]
    assert blas.dgemv(0, np.full((3, 4), np.nan), np.full(4, np.nan), 2,
                      np.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("m, n", [(0, 3), (3, 0), (0, 0)])
def test_empty(m, n):
    assert blas.dgemv(1, np.ones((m, n)), np.ones(n), 2, np.ones(m)).tolist() == [2.0] * m
    assert blas.dgemv(1, np.ones((m, n)), np.ones(n)).tolist() == [0.0] * m
    assert blas.dger(1, np.ones(m), np.ones(n)).shape == (m, n)


def test_lists_and_our_own_arrays():
    assert blas.sgemv(1, [[1, 2], [3, 4]], [1, 1]).tolist() == [3, 7]
    a, x = cuteblas.asarray(np.eye(3)), cuteblas.asarray(np.arange(3.0))
    y = blas.dgemv(2, a, x)
    assert type(y) is cuteblas.ndarray and y.tolist() == [0, 2, 4]
    assert blas.dgemv(2, a, x, 1, y, overwrite_y=1) is y and y.tolist() == [0, 4, 8]
    assert type(blas.dger(1, x, x)) is cuteblas.ndarray


A, X, Y = np.ones((3, 4)), np.ones(4), np.ones(3)
REFUSED = [(ValueError, "uses 4 elements of x with offx=1 and incx=1, but x has length 4",
            blas.dgemv, (1, A, X), {"offx": 1}),
           (ValueError, "uses 3 elements of y with offy=0 and incy=2, but y has length 3",
            blas.dgemv, (1, A, X, 1, Y), {"incy": 2}),
           (ValueError, "incx other than 0, got 0 and 0", blas.dgemv, (1, A, X), {"incx": 0}),
           (ValueError, "offy of at least 0", blas.dgemv, (1, A, X, 0, Y), {"offy": -1}),
           (ValueError, "a vector as x, but it has shape", blas.dgemv, (1, A, A), {}),
           (ValueError, "a matrix as a, but it has shape", blas.dgemv, (1, X, X), {}),
           (TypeError, "takes a in float32, but it is float64", blas.sgemv, (1, A, X), {}),
           (TypeError, "an integer as incx, got float", blas.dgemv, (1, A, X), {"incx": 1.5}),
           (TypeError, "but x is None", blas.dgemv, (1, A, None), {}),
           (TypeError, "y is a list", blas.dgemv, (1, A, X, 1, [1, 1, 1]), {"overwrite_y": 1}),
           (ValueError, "writes y while it uses x", blas.dgemv, (1, np.ones((4, 4)), X, 1, X),
            {"overwrite_y": 1}), (TypeError, "alpha has to be real", blas.dgemv, (1j, A, X), {}),
           (ValueError, "1 or -1 as incx, got 2", blas.dger, (1, X, X), {"incx": 2}),
           (ValueError, r"a of shape \(4, 3\)", blas.dger, (1, X, Y), {"a": A}),
           (ValueError, "writes a while it uses x", blas.dger, (1, A[0], X),
            {"a": np.lib.stride_tricks.as_strided(A, (4, 4), (8, 8)), "overwrite_a": 1}),
           (ValueError, "0 or 1 as overwrite_x, got 2", blas.dger, (1, X, X), {"overwrite_x": 2}),]


@pytest.mark.parametrize("error, text, function, given, named", REFUSED,
                         ids=[text for _e, text, *_ in REFUSED])
def test_wrong_input_is_refused(error, text, function, given, named):
    with pytest.raises(error, match=text):
        function(*given, **named)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*GEMV, *GER])
def test_on_a_device(name):
    import cupy

    rng, dtype = np.random.default_rng(4), {**GEMV, **GER}[name]
    a, x, y = (small(rng, shape, dtype) for shape in ((33, 50), 120, 120))
    if name in GEMV:
        for trans in (0, 1, 2):
            given = {"incx": -2, "incy": 2, "offy": 3, "trans": trans}
            got = getattr(blas, name)(2, cupy.asarray(a), cupy.asarray(x), 3, cupy.asarray(y),
                                      **given)
            np.testing.assert_array_equal(got.get(), getattr(blas, name)(2, a, x, 3, y, **given))
    else:
        got = getattr(blas, name)(2, cupy.asarray(x[:33]), cupy.asarray(y[:50]), -1, 1,
                                  cupy.asarray(a))
        np.testing.assert_array_equal(got.get(), getattr(blas, name)(2, x[:33], y[:50], -1, 1, a))
