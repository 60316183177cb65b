"""What is read, what is written, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas.types import ROUTINES

from .operands import STORAGES, placed, small

BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]
FLOATS = [name for name, types in ROUTINES.items() if types.compute != "int32"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with cuteblas.backend(request.param):
        yield request.param


def operands(name, *, shapes=((9, 5), (5, 7), (9, 7))):
    rng, types = np.random.default_rng(0), ROUTINES[name]
    return [small(rng, shape, dtype) for shape, dtype in zip(shapes, (types.operands,
                                                                      types.operands, types.output),
                                                             strict=True)]


@pytest.mark.parametrize("name", FLOATS)
def test_beta_zero_does_not_read_c(name, backend):
    a, b, c = operands(name)
    want = getattr(blas, name)(1, a, b)
    c[...] = np.nan
    for beta in (0, -0.0, np.float32(0), np.array(0, ROUTINES[name].compute)):
        assert not np.isnan(getattr(blas, name)(1, a, b, beta, c).astype(complex)).any()
        np.testing.assert_array_equal(getattr(blas, name)(1, a, b, beta, c.copy(), overwrite_c=1),
                                      want)


@pytest.mark.parametrize("name", FLOATS)
def test_alpha_zero_does_not_read_a_or_b(name, backend):
    a, b, c = operands(name)
    a[...] = np.nan
    b[...] = np.inf
    for alpha in (0, np.array(0, ROUTINES[name].compute)):
        np.testing.assert_array_equal(getattr(blas, name)(alpha, a, b), 0)
        np.testing.assert_array_equal(getattr(blas, name)(alpha, a, b, 2, c), 2 * c)


@pytest.mark.parametrize("name", FLOATS)
def test_everything_else_propagates(name, backend):
    a, b, c = operands(name)
    a[2, 3], c[4, 5] = np.nan, np.nan
    got = getattr(blas, name)(1, a, b, 1, c)
    expected = np.zeros(got.shape, bool)
    expected[2], expected[4, 5] = True, True
    np.testing.assert_array_equal(np.isnan(got.astype(complex)), expected)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("argument", ["out", "out is c", "overwrite_c"])
def test_in_place_is_in_place(argument, storage, backend):
    a, b, c = operands("sgemm")
    want = blas.sgemm(2, a, b, -1, c)
    target = placed(c, storage)
    view = target.view
    cuteblas.reset_stats()
    if argument == "out":
        got = blas.sgemm(2, a, b, -1, c, out=view)
    elif argument == "out is c":
        got = blas.sgemm(2, a, b, -1, view, out=view)
    else:
        got = blas.sgemm(2, a, b, -1, view, overwrite_c=1)
    assert got is view
    np.testing.assert_array_equal(view, want)
    assert target.surroundings_are_untouched()
    assert "copies" not in cuteblas.stats()["sgemm"]


def test_in_place_batches(backend):
    a, b, c = operands("dgemm", shapes=((2, 3, 9, 5), (3, 5, 7), (2, 3, 9, 7)))
    target = placed(c, "sliced")
    assert blas.dgemm(1, a, b, 1, target.view, overwrite_c=1) is target.view
    np.testing.assert_array_equal(target.view, np.matmul(a, b) + c)
    assert target.surroundings_are_untouched()


def test_c_is_only_read(backend):
    a, b, c = operands("zgemm")
    c.flags.writeable = False
    np.testing.assert_array_equal(blas.zgemm(1, a, b, 2, c), a @ b + 2 * c)
    wide = np.broadcast_to(c[:1], c.shape)
    np.testing.assert_array_equal(blas.zgemm(1, a, b, 2, wide), a @ b + 2 * wide)


def test_operands_may_share_memory(backend):
    x = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(blas.dgemm(1, x, x, 1, x, 1, 0), x.T @ x + x)
    np.testing.assert_array_equal(blas.dgemm(1, x[:2], x[:, ::-1]), x[:2] @ x[:, ::-1])


def test_interleaved_results_do_not_overlap(backend):
    both = np.zeros((4, 4, 2))
    x = np.arange(16.0).reshape(4, 4)
    both[..., 0] = x
    blas.dgemm(1, both[..., 0], both[..., 0], out=both[..., 1])
    np.testing.assert_array_equal(both[..., 1], x @ x)
    np.testing.assert_array_equal(both[..., 0], x)


def test_a_scalar_of_the_callers_array(backend):
    x = np.arange(1.0, 17).reshape(4, 4)
    np.testing.assert_array_equal(blas.dgemm(x[1, 1, ...], x, x), 6 * (x @ x))
