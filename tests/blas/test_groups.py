"""Many products in one call."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator

from .operands import small

SIZES = [(3, 4, 5), (1, 7, 2), (6, 2, 0), (0, 3, 4), (9, 9, 9)]
BACKENDS = ["numpy", pytest.param("emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler"))]


def problems(dtypes=("float32",)):
    rng = np.random.default_rng(0)
    names = [dtypes[i % len(dtypes)] for i in range(len(SIZES))]
    return [[small(rng, shape, name) for (m, n, k), name in zip(SIZES, names, strict=True) for shape in [(m, k) if x == "a" else
             (k, n) if x == "b" else (m, n)]] for x in "abc"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups(backend):
    a, b, c = problems(("float32", "complex128"))
    alphas, betas = [1, 2, 3, 4, 5], [0, -1, 1, 2, 0.5]
    with cuteblas.backend(backend):
        cuteblas.reset_stats()
        got = blas.gemm_grouped(alphas, a, b, betas, c)
        for result, x, y, z, alpha, beta in zip(got, a, b, c, alphas, betas, strict=True):
            np.testing.assert_array_equal(result, alpha * (x @ y) + beta * z)
            assert result.dtype == x.dtype and result.flags.f_contiguous
        assert sum(cuteblas.stats()["gemm_grouped"]["calls"].values()) == len(SIZES)
        transposed = [x.T for x in a]
        trans = ["T", 1, "t", "T", "C"]
        for result, x, y in zip(blas.gemm_grouped(1, transposed, b, trans_a=[*trans[:4], "T"]), a, b, strict=True):
            np.testing.assert_array_equal(result, x @ y)
        outs = [np.empty_like(z) for z in c]
        assert all(x is y for x, y in zip(blas.gemm_grouped(2, a, b, out=outs), outs, strict=True))
        before = [z.copy() for z in c]
        assert all(x is y for x, y in zip(blas.gemm_grouped(1, a, b, 1, c, overwrite_c=1), c, strict=True))
        for z, was, x, y in zip(c, before, a, b, strict=True):
            np.testing.assert_array_equal(z, x @ y + was)
    assert blas.gemm_grouped(1, [], []) == []


def test_all_problems_are_checked_first():
    a, b, c = problems()
    out = [np.zeros_like(x) for x in c]
    with pytest.raises(ValueError, match=r"gemm_grouped, problem 4: multiplies \(m, k\) by \(k, n\)"):
        blas.gemm_grouped(1, a, [*b[:4], np.ones((2, 9), np.float32)], out=out)
    assert not any(x.any() for x in out)


def test_refused_groups():
    a, b, c = problems()
    with pytest.raises(ValueError, match="lists of one length, but a has 5 elements and b 4"):
        blas.gemm_grouped(1, a, b[:4])
    with pytest.raises(ValueError, match="a has 5 elements and alpha 2"):
        blas.gemm_grouped([1, 2], a, b)
    with pytest.raises(TypeError, match="takes a list as a, got a ndarray"):
        blas.gemm_grouped(1, a[0], b)
    with pytest.raises(TypeError, match="takes a list as out, got a ndarray"):
        blas.gemm_grouped(1, a, b, out=c[0])


def test_problems_are_independent():
    x = np.zeros((6, 4))
    a, b = [np.ones((3, 2)), np.ones((3, 2))], [np.ones((2, 4)), np.ones((2, 4))]
    blas.gemm_grouped(1, a, b, out=[x[:3], x[3:]])
    blas.gemm_grouped(1, [a[0]] * 2, [b[0]] * 2, out=[x[::2], x[1::2]])
    assert (x == 2).all()
    with pytest.raises(ValueError, match="in any order, but problem 1 writes memory of problem 0"):
        blas.gemm_grouped(1, a, b, out=[x[:3], x[2:5]])
    chain = [np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2))]
    with pytest.raises(ValueError, match="problem 0 writes memory of problem 1"):
        blas.gemm_grouped(1, [chain[0], chain[1]], [chain[0], chain[1]], out=[chain[1], chain[2]])


def test_batched():
    a, b = np.ones((3, 2, 4)), np.ones((4, 5))
    np.testing.assert_array_equal(blas.gemm_batched(2, a, b), np.full((3, 2, 5), 8.0))
    got = blas.gemm_batched(2, list(a), [b, b, b], 1, [np.ones((2, 5))] * 3)
    assert isinstance(got, list) and all((x == 9).all() for x in got)
    assert blas.gemm_batched(1, a.tolist(), b.tolist()).shape == (3, 2, 5)
    with pytest.raises(ValueError, match=r"arrays of one shape, but those of a are \(2, 4\), \(3, 4\); gemm_grouped"):
        blas.gemm_batched(1, [np.ones((2, 4)), np.ones((3, 4))], [b, b])
    with pytest.raises(TypeError, match="but b is no list of arrays"):
        blas.gemm_batched(1, list(a), b)
