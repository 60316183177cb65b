"""The predefined epilogues against their definitions in float64, and the backward ones against
differences of the forward ones."""

import math

import numpy as np
import pytest

from cuteblas import epilogues
from cuteblas.functions.epilogues import as_bound, evaluate, resolve

X = np.linspace(-6, 6, 97).reshape(1, -1)
RNG = np.random.default_rng(0)


def phi(x):
    """The normal distribution function."""
    return np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)))(x)


FORWARD = {"relu": lambda x: np.where(x > 0, x, 0),
           "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x), "gelu": lambda x: x * phi(x),
           "gelu_tanh": lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi)
                                                  * (x + 0.044715 * x**3))),
           "silu": lambda x: x / (1 + np.exp(-x)), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
           "tanh": np.tanh, "clamp": lambda x: x,}


@pytest.mark.parametrize("name", FORWARD)
def test_activations(name):
    np.testing.assert_allclose(getattr(epilogues, name)(X), FORWARD[name](X), rtol=1e-13,
                               atol=1e-15)
    result, none = evaluate(as_bound(name), X.astype(np.float32))
    assert result.dtype == np.float32 and not none
    np.testing.assert_allclose(result, FORWARD[name](X), rtol=1e-5, atol=1e-6)
    assert np.isnan(getattr(epilogues, name)(np.nan))


def test_gelus_agree():
    assert 1e-5 < abs(epilogues.gelu(X) - epilogues.gelu_tanh(X)).max() < 1e-3


def test_operands():
    acc, y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
    np.testing.assert_array_equal(epilogues.bias(acc, bias=y[0]), acc + y[0])
    np.testing.assert_array_equal(epilogues.bias_relu(acc, bias=y[0]), np.maximum(acc + y[0], 0))
    np.testing.assert_array_equal(epilogues.bias_gelu(acc, bias=y[0]), epilogues.gelu(acc + y[0]))
    np.testing.assert_array_equal(epilogues.residual_add(acc, residual=y), acc + y)
    np.testing.assert_array_equal(epilogues.scale(acc, scale=y), acc * y)
    np.testing.assert_array_equal(epilogues.clamp(acc, lo=-0.5), np.maximum(acc, -0.5))
    np.testing.assert_array_equal(epilogues.clamp(acc, hi=0.5), np.minimum(acc, 0.5))
    np.testing.assert_array_equal(epilogues.clamp(acc, lo=-0.5, hi=0.5), np.clip(acc, -0.5, 0.5))
    np.testing.assert_array_equal(epilogues.leaky_relu(acc, negative_slope=2.0),
                                  np.where(acc > 0, acc, 2 * acc))


def test_dequantize():
    sums = RNG.integers(-1000, 1000, (3, 4), np.int32)
    row, column = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 1), 4))
    zero = RNG.integers(-9, 9, (1, 4), np.int32)
    bound = epilogues.dequantize(scale=0.5, row_scale=row, column_scale=column, zero=zero)
    assert resolve(bound, accumulator="int32", output=None, shape=(3, 4)).trace.output == "float32"
    np.testing.assert_array_equal(bound(sums),
                                  (sums - zero).astype(np.float32) * np.float32(0.5) * row * column)
    assert epilogues.dequantize(sums, scale=np.float64(0.5)).dtype == np.float32


@pytest.mark.parametrize("name", ["drelu", "dgelu", "dgelu_tanh"])
def test_derivatives(name):
    forward, h = getattr(epilogues, name[1:]), 1e-5
    x = X[abs(X) > 1e-3].reshape(1, -1)                        # ReLU has none at 0
    gradient = RNG.standard_normal(x.shape)
    want = gradient * (forward(x + h) - forward(x - h)) / (2 * h)
    np.testing.assert_allclose(getattr(epilogues, name)(gradient, x=x), want, atol=1e-9)


def test_the_derivative_of_relu_at_zero_is_zero():
    assert epilogues.drelu(np.ones(3), x=np.array([-1.0, 0.0, 1.0])).tolist() == [0, 0, 1]
    assert epilogues.drelu(np.ones(2), x=np.array([False, True])).tolist() == [0, 1]
    assert epilogues.drelu(np.full(2, np.nan), x=np.array([False, True]))[0] == 0


@pytest.mark.parametrize("name", ["drelu", "dgelu", "dgelu_tanh"])
def test_gradients_of_biases(name):
    gradient, x = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 3, 4))
    want = getattr(epilogues, name)(gradient, x=x)
    for per, axis in ((None, 2), ("row", 2), ("column", 1)):
        result, more = getattr(epilogues, f"{name}_bgrad")(gradient, x=x,
                                                           **({"per": per} if per else {}))
        np.testing.assert_array_equal(result, want)
        np.testing.assert_array_equal(more["bgrad"], want.sum(axis=axis))
    with pytest.raises(ValueError, match="per is 'row' or 'column', got 'both'"):
        getattr(epilogues, f"{name}_bgrad")(gradient, x=x, per="both")


@pytest.mark.parametrize("name", ["relu_aux", "bias_relu_aux", "gelu_aux", "bias_gelu_aux"])
def test_what_the_backward_pass_needs(name):
    acc, bias = RNG.standard_normal((3, 4)), RNG.standard_normal(4)
    operands = {"bias": bias} if name.startswith("bias") else {}
    pre = acc + bias if operands else acc
    result, more = getattr(epilogues, name)(acc, **operands)
    if "gelu" in name:
        np.testing.assert_array_equal(result, epilogues.gelu(pre))
        np.testing.assert_array_equal(more["pre"], pre)
    else:
        np.testing.assert_array_equal(result, np.maximum(pre, 0))
        assert more["mask"].dtype == bool
        np.testing.assert_array_equal(epilogues.drelu(acc, x=more["mask"]),
                                      epilogues.drelu(acc, x=pre))


def test_sums_over_k():
    a, b = RNG.standard_normal((2, 3, 5)), RNG.standard_normal((2, 5, 4))
    acc = a @ b
    np.testing.assert_array_equal(epilogues.bgrad_a(acc, a=a)[1]["bgrad"], a.sum(axis=2))
    np.testing.assert_array_equal(epilogues.bgrad_b(acc, b=b)[1]["bgrad"], b.sum(axis=1))


@pytest.mark.parametrize("name", epilogues.ready)
def test_every_ready_epilogue_says_what_it_does(name):
    assert getattr(epilogues, name).__doc__ and name in epilogues.__all__
