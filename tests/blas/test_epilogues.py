"""Epilogues in the routines: what they compute is tested with them; here, that the routines hand
them on."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.functions.epilogues import epilogue

from .operands import at, small

BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]
RNG = np.random.default_rng(0)
A, B, C = (small(RNG, shape, "float32") for shape in ((6, 4), (4, 5), (6, 5)))
BIAS = np.arange(5, dtype=np.float32) - 2


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request):
    with cuteblas.backend(request.param):
        yield request.param


@epilogue
def bias_relu_aux(acc, *, bias):
    pre = acc + bias
    return np.maximum(pre, 0), {"pre": pre}


@epilogue
def mixed(acc, c, *, alpha, beta, by):
    return by * (alpha * acc) + beta * c


def test_operands_and_further_results():
    got, extras = blas.sgemm(2, A, B, -1, C, epilogue=bias_relu_aux(bias=BIAS))
    want = 2 * (A @ B) - C + BIAS
    np.testing.assert_array_equal(got, np.maximum(want, 0))
    assert list(extras) == ["pre"]
    np.testing.assert_array_equal(extras["pre"], want)
    pre, out = np.empty((6, 5), np.float32), np.empty((6, 5), np.float32)
    got, extras = blas.sgemm(2, A, B, -1, C, out=out, epilogue=bias_relu_aux(bias=BIAS, pre=pre))
    assert got is out and extras["pre"] is pre
    np.testing.assert_array_equal(pre, want)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("trans_a, trans_b", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("m, n", [(6, 6), (6, 5), (5, 6)])
def test_operands_broadcast_over_c_whatever_its_order(order, trans_a, trans_b, m, n):
    a, b, row = small(RNG, (m, 4), "float32"), small(RNG, (4, n), "float32"), small(RNG, (m, 1), "float32")
    out = np.zeros((m, n), np.float32, order=order)
    operands = (a.T if trans_a else a), (b.T if trans_b else b)
    for bias in (BIAS[:n] if n == 5 else np.arange(n, dtype=np.float32), row):
        for _again in range(2):
            blas.sgemm(1, *operands, trans_a=trans_a, trans_b=trans_b, out=out,
                       epilogue=bias_relu_aux(bias=bias))
            np.testing.assert_array_equal(out, np.maximum(a @ b + bias, 0))
        for listed in ([bias, bias], bias_relu_aux(bias=bias)):
            bound = [bias_relu_aux(bias=x) for x in listed] if isinstance(listed, list) else listed
            for got, _extras in blas.gemm_grouped(1, [a, a], [b, b], epilogue=bound):
                np.testing.assert_array_equal(got, np.maximum(a @ b + bias, 0))
    if m != n:
        with pytest.raises(ValueError, match=r"pass bias\[:, None\] for a value of each row"):
            blas.sgemm(1, a, b, epilogue=bias_relu_aux(bias=row[:, 0]))


def test_raw_sums_alpha_and_beta():
    np.testing.assert_array_equal(blas.sgemm(2, A, B, -1, C, epilogue=mixed(by=3.0)),
                                  6 * (A @ B) - C)
    poisoned = np.full_like(C, np.nan)
    np.testing.assert_array_equal(blas.sgemm(2, A, B, 0, poisoned, epilogue=mixed(by=3.0)),
                                  6 * (A @ B))
    np.testing.assert_array_equal(blas.sgemm(0, np.full_like(A, np.nan), B, 1, C,
                                             epilogue=mixed(by=3.0)), C)


def test_names_and_lists():
    np.testing.assert_array_equal(blas.sgemm(1, A, B, epilogue="relu"), np.maximum(A @ B, 0))
    np.testing.assert_array_equal(blas.gemm_batched(1, [A, -A], [B, B], epilogue="relu")[1],
                                  np.maximum(-A @ B, 0))


def test_types_of_results():
    a, b = small(RNG, (6, 4), "int8"), small(RNG, (4, 5), "int8")
    halved = epilogue(lambda acc, *, by: acc * by)
    got = blas.gemm(1, a, b, dtype="float32", epilogue=halved(by=np.float32(0.5)))
    np.testing.assert_array_equal(got, (a.astype(np.float32) @ b) * 0.5)


def test_plans():
    plan = blas.plan(A, B, epilogue=bias_relu_aux(bias=BIAS))
    got, extras = plan.execute(A, B, epilogue=bias_relu_aux(bias=BIAS + 1))
    np.testing.assert_array_equal(extras["pre"], A @ B + BIAS + 1)
    np.testing.assert_array_equal(got, np.maximum(extras["pre"], 0))
    for other in (None, "relu", bias_relu_aux(bias=C[:, :1])):
        with pytest.raises(ValueError, match="this plan was made for another epilogue"):
            plan.execute(A, B, epilogue=other)
    plan = blas.plan(A, B, epilogue=bias_relu_aux(bias=at(0, BIAS)))
    with pytest.raises(ValueError, match="or for epilogue operands of other layouts"):
        plan.execute(A, B, epilogue=bias_relu_aux(bias=at(4, BIAS)))


def test_shared_memory_is_refused():
    out, x = np.zeros((6, 5), np.float32), np.zeros((12, 5), np.float32)
    with pytest.raises(ValueError, match="writes out while it reads bias, but they share memory"):
        blas.sgemm(1, A, B, out=out, epilogue=bias_relu_aux(bias=out[0]))
    with pytest.raises(ValueError, match="writes pre while it uses out, but they share memory"):
        blas.sgemm(1, A, B, out=out, epilogue=bias_relu_aux(bias=BIAS, pre=out))
    with pytest.raises(ValueError, match="writes pre while it uses a, but they share memory"):
        square = np.zeros((4, 4), np.float32)
        blas.sgemm(1, square, square, epilogue=bias_relu_aux(bias=BIAS[None, :4], pre=square))
    residual = x[:6]
    got, _ = blas.sgemm(1, A, B, out=residual, epilogue=bias_relu_aux(bias=residual))
    np.testing.assert_array_equal(got, np.maximum(A @ B, 0))


@pytest.mark.parametrize("wrong, kind, message",
                         [(np.tanh, TypeError, "decorate it with @cuteblas.epilogue"),
                          (3, TypeError, "got int"),
                          ("rellu", ValueError, "unknown epilogue 'rellu'")])
def test_refusals(wrong, kind, message):
    with pytest.raises(kind, match=message):
        blas.sgemm(1, A, B, epilogue=wrong)
