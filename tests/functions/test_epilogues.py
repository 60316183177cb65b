"""Epilogues: decoration, binding, tracing, types, and every refusal in its words."""

import builtins
import functools
import math
import os
import pickle
import re
import time
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas import epilogue, epilogues
from cuteblas.functions.epilogues import Epilogue, as_bound, evaluate, resolve
from cuteblas.functions.epilogues import functions as own_functions

from .graphs import by_graph

F32 = {"accumulator": "float32", "output": "float32", "shape": (3, 4)}
RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def same(bound, acc, **product):
    """Trace and NumPy agree to the bit; returns what they agree on."""
    c, alpha, beta = (product.get(name, default)
                      for name, default in (("c", None), ("alpha", 1), ("beta", 0)))
    resolved = resolve(bound, accumulator=acc.dtype.name, output=product.get("output"),
                       shape=acc.shape, beta="zero" if beta == 0 else "value", has_c=c is not None)
    want = evaluate(bound, acc, output=product.get("output"), alpha=alpha, beta=beta, c=c)
    got = by_graph(resolved, acc, alpha=alpha, beta=beta, c=c)
    assert got[0].dtype == want[0].dtype and got[1].keys() == want[1].keys()
    np.testing.assert_array_equal(got[0], want[0])
    for name in want[1]:
        assert got[1][name].dtype == want[1][name].dtype, name
        np.testing.assert_array_equal(got[1][name], want[1][name])
    return want


def refusal(call, *args, **kwargs):
    """The sentence of a refusal."""
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def traced(function, *, options=None, operands=None, **product):
    """The trace of a function with operands."""
    return resolve(Epilogue(function, **(options or {}))(**(operands or {})),
                   **{**F32, **product}).trace


# -- what an epilogue may name ---------------------------------------------------------------------
def test_what_is_not_named_has_been_applied():
    acc, c = normal(3, 4), normal(3, 4)
    plain, _ = same(epilogue(lambda acc: acc)(), acc, alpha=2, beta=3, c=c)
    np.testing.assert_array_equal(plain, 2 * acc + 3 * c)
    raw, _ = same(epilogue(lambda acc, c, *, alpha, beta: (alpha * acc + 1) - beta * c)(), acc,
                  alpha=2, beta=3, c=c)
    np.testing.assert_array_equal(raw, (2 * acc + 1) - 3 * c)
    unscaled, _ = same(epilogue(lambda acc, *, alpha: acc - alpha)(), acc, alpha=2)
    np.testing.assert_array_equal(unscaled, acc - 2)
    gated, _ = same(epilogue(lambda acc, c: acc * c)(), acc, alpha=2, c=c)
    np.testing.assert_array_equal(gated, 2 * acc * c)


def test_c_is_not_read_where_beta_is_zero():
    acc, c = normal(3, 4), np.full((3, 4), np.nan, np.float32)
    for function in (lambda acc: acc, lambda acc, c, *, alpha, beta: alpha * acc + beta * c):
        trace = traced(function, has_c=True)
        assert not trace.graph.leaves("c") and not trace.graph.leaves("beta")
        result, _ = same(epilogue(function)(), acc, c=c, beta=0)
        np.testing.assert_array_equal(result, acc)


def test_products_that_an_epilogue_does_not_take():
    assert "reads c, but this product has no c" in refusal(traced, lambda acc, c: acc + c)
    assert "beta must be 0" in refusal(traced, lambda acc, c: acc + c, has_c=True, beta="one")
    assert "takes neither c nor beta" in refusal(traced, lambda acc, alpha: acc, beta="value",
                                                 has_c=True)
    assert "let the epilogue take c and beta" in refusal(traced, lambda acc: acc,
                                                         accumulator="int32", beta="value",
                                                         has_c=True)
    with pytest.raises(ValueError, match="reads c"):
        evaluate(epilogue(lambda acc, c: acc)(), normal(2, 2))


def test_alpha_that_is_known_to_be_one_is_left_out():
    assert not traced(lambda acc: acc, alpha="one").graph.leaves("alpha")
    assert traced(lambda acc: acc).graph.leaves("alpha")


@pytest.mark.parametrize("function, words", [
    (lambda x: x, "first parameter .* is x, but it must be acc"),
    (lambda: 0, "first parameter .* is missing"),
    (lambda acc, *, beta: acc, "takes beta without c"),
    (lambda acc, *rest: acc, r"has a parameter \*rest"),
    (lambda acc, **rest: acc, r"has a parameter \*\*rest"),
    (lambda acc, /: acc, "has a parameter acc"),
    (lambda acc, c=0: acc, "gives c a default"),
    (lambda acc, *, x=[1]: acc, "default of type list"),
    (lambda acc, *, β: acc, "ASCII"),
    (epilogues.relu, "is already an epilogue"),
    (np.exp, "takes a Python function, got ufunc"),
])
def test_decoration_refuses(function, words):
    with pytest.raises(TypeError, match=words):
        epilogue(function)


def test_an_epilogue_keeps_its_function():
    @epilogue
    def halved(acc):
        """Half of it."""
        return acc / 2

    assert halved.__doc__ == "Half of it." and halved.__name__ == str(halved) == "halved" and "halved(acc)" in repr(halved)
    assert pickle.loads(pickle.dumps(epilogues.gelu)) is epilogues.gelu
    bound = pickle.loads(pickle.dumps(epilogues.bias(bias=np.arange(3))))
    assert bound.epilogue is epilogues.bias and bound.operands["bias"].tolist() == [0, 1, 2] and "bias=<array (3,)>" in repr(bound)


# -- calling and binding ---------------------------------------------------------------------------
def test_calls_compute_and_keywords_bind():
    @epilogue
    def f(acc, c, *, alpha, beta, s=2.0):
        return alpha * acc + beta * c + s

    assert f(1.0) == 3 and f(1.0, 5.0, beta=2) == 13 and f(1.0, alpha=4, s=0) == 4
    assert f(s=1.0)(3.0) == 4
    assert "got c without beta" in refusal(f, 1.0, 5.0)
    assert "unknown argument 't'; f takes 'c', 'alpha', 'beta', 's'" in refusal(f, 1.0, t=1)
    assert "got two values for 'c'" in refusal(f, 1.0, 2.0, c=3)
    assert "takes 5 arguments, got 6" in refusal(f, *range(6))
    assert "takes alpha from the product" in refusal(f, alpha=2)
    assert "needs bias: bias(bias=...)" in refusal(epilogues.bias) == refusal(epilogues.bias, np.ones(3))
    assert "unknown argument 'lo'; relu takes none" in refusal(epilogues.relu, lo=3)


@pytest.mark.parametrize("call", [lambda f, x: f(bais=x), lambda f, x: f(bais=x, bias=x[0].copy()),
                                  lambda f, x: f(bias=x, bais=3), lambda f, x: f(bais="x", bias=x),
                                  lambda f, x: f(x, bais=x), lambda f, x: f(bias=x)(x, bais=x)])
@pytest.mark.parametrize("name", ["bias", "bias_relu", "bias_gelu", "own"])
def test_an_unknown_argument_is_named_beside_those_that_there_are(call, name):
    @epilogue
    def own(acc, *, bias):
        return acc + bias

    function, x = own if name == "own" else getattr(epilogues, name), np.ones((3, 3), np.float32)
    with pytest.raises(TypeError, match=f"^unknown argument 'bais'; {name} takes 'bias'$"):
        cuteblas.matmul(x, x, epilogue=call(function, x.copy()))


def test_a_missing_operand_is_named_beside_an_array_for_an_output():
    assert "needs bias: bias_relu_aux(bias=...)" in refusal(epilogues.bias_relu_aux,
                                                            mask=np.zeros((3, 3), bool))


def test_half_precision_is_computed_in_float32():
    for kind in (np.float16, ml_dtypes.bfloat16):
        x = normal(3, 4).astype(kind)
        result = epilogues.silu(x)
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, epilogues.silu(x.astype(np.float32)))
        result, _ = same(epilogues.scale(scale=x), normal(3, 4), output=np.dtype(kind).name)
        assert result.dtype == kind


def test_what_epilogue_may_be():
    assert as_bound("gelu").epilogue is epilogues.gelu and as_bound(epilogues.gelu).epilogue is epilogues.gelu
    bound = epilogues.scale(scale=2)
    assert as_bound(bound) is bound
    assert "unknown epilogue 'gellu'; the predefined ones are bgrad_a, " in refusal(
        as_bound, "gellu"
    )
    assert "needs bias" in refusal(as_bound, "bias")
    assert "decorate it with @cuteblas.epilogue" in refusal(as_bound, lambda acc: acc)
    assert "or the name of a predefined one, got int" in refusal(as_bound, 3)
    assert cuteblas.epilogue is epilogues.epilogue is epilogue


def test_arrays_of_a_bound_epilogue_can_be_replaced():
    bound = epilogues.dequantize(scale=2.0, row_scale=np.ones(3))
    moved = bound.converted(lambda name, x: (name, x + 1)[1])
    assert moved.operands["scale"] == 2.0 and moved.operands["row_scale"].tolist() == [2, 2, 2]


# -- operands --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(3, 4), (4, 4), (1, 4), (4, 1), (2, 4, 4)])
def test_operands_broadcast_as_in_numpy(shape):
    """A vector lies along the last axis whatever its length; a value for each row has shape (m,
    1)."""
    acc, (*_batch, m, n) = normal(*shape), shape
    for operand in ((n,), (1,), (m, 1), (1, n), (), shape):
        x = normal(*operand)
        np.testing.assert_array_equal(same(epilogues.bias(bias=x), acc)[0], acc + x)
        np.testing.assert_array_equal(epilogues.bias(acc, bias=x), acc + x)
    (_, view), = resolve(epilogues.bias(bias=normal(m, 1)), **{**F32, "shape": shape}).operands
    assert view.shape == shape and (n == 1 or (view.strides[-1] == 0 and view.base is not None))
    assert same(epilogues.bias(bias=[1.0] * n), acc)[0].dtype == np.float64     # a list is an array


@pytest.mark.parametrize("call", [lambda x: resolve(epilogues.bias(bias=x), **F32),
                                  lambda x: epilogues.bias(normal(3, 4), bias=x),
                                  lambda x: evaluate(epilogues.bias(bias=x), normal(3, 4)),
                                  lambda x: evaluate(epilogues.bias(bias=list(x)), normal(2, 3, 4)),
                                  lambda x: resolve(epilogue(lambda acc, *, bias: acc)(bias=x),
                                                    **F32)])
def test_a_vector_with_a_value_for_each_row_is_refused(call):
    with pytest.raises(
        ValueError,
        match=r"'bias' of epilogue .* has shape \(3,\), .*: pass bias\[:, None\] for a value of each"
    ):
        call(normal(3))


def test_other_errors_of_values_stay():
    with pytest.raises(ValueError, match="per is 'row'"):
        epilogues.drelu_bgrad(normal(3, 4), x=normal(3, 4), per="both")


def test_scales_of_integers():
    sums, row, column = RNG.integers(-99, 99, (4, 4), np.int32), normal(4, 1), normal(4)
    result, _ = same(epilogues.dequantize(row_scale=row, column_scale=column), sums)
    np.testing.assert_array_equal(result, sums.astype(np.float32) * row * column)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (4, 3), (7, 3, 4)])
def test_operands_that_do_not_fit(shape):
    message = refusal(resolve, epilogues.bias(bias=np.ones(shape, np.float32)), **F32)
    assert "operand 'bias' of epilogue bias has" in message and str(shape[0]) in message
    unused = epilogue(lambda acc, *, x: acc)
    assert "operand 'x'" in refusal(resolve, unused(x=np.ones(shape)), **F32)


def test_batches_broadcast():
    acc = normal(2, 3, 4)
    for shape in ((2, 1, 1), (3, 4), (1, 4), (2, 3, 1), ()):
        same(epilogues.residual_add(residual=normal(*shape)), acc)


def test_arrays_of_other_libraries():
    class Tensor:
        def __init__(self):
            self.shape = (3, 4)

        def __array__(self, dtype=None, copy=None):
            return np.ones((3, 4), np.float32)

    (_, x), = resolve(epilogues.scale(scale=Tensor()), **F32).operands
    assert isinstance(x, np.ndarray)
    assert "float128" in refusal(resolve, epilogues.scale(scale=np.ones((3, 4), np.longdouble)),
                                 **F32)


def test_byte_order_does_not_matter():
    acc, x = normal(3, 4), normal(3, 4)
    np.testing.assert_array_equal(same(epilogues.scale(scale=x.astype(">f4")), acc)[0], acc * x)


# -- numbers ---------------------------------------------------------------------------------------
def test_python_numbers_take_the_type_of_what_they_meet():
    resolved = resolve(epilogues.leaky_relu(negative_slope=0.25), **F32)
    (slope,) = resolved.trace.graph.leaves("scalar")
    assert slope.dtype == "float32" and resolved.scalars == (("negative_slope", 0.25),)
    assert {n.dtype for n in resolved.trace.graph.nodes} == {"float32", "bool"}
    strong = resolve(epilogues.scale(scale=np.float64(0.1)), **F32).trace
    assert strong.graph.leaves("scalar")[0].dtype == strong.graph.result.dtype == "float64"
    assert same(epilogues.scale(scale=np.float64(0.1)), normal(3, 4))[0].dtype == np.float64
    assert same(epilogues.scale(scale=np.float16(0.1)), normal(3, 4))[0].dtype == np.float32


def test_numbers_change_without_another_graph():
    graphs = {resolve(epilogues.clamp(lo=lo, hi=6.0), **F32).trace.graph.digest
              for lo in (0.0, 1.5, -math.inf)}
    assert len(graphs) == 1
    assert resolve(epilogues.clamp(lo=1, hi=6.0), **F32).scalars == (("lo", 1.0), ("hi", 6.0))


def test_numbers_that_are_used_in_several_types():
    @epilogue
    def f(acc, *, x, s):
        return acc * s + (x * s).astype(np.float32)

    bound = f(x=normal(3, 4, dtype=np.float64), s=0.1)
    assert resolve(bound, **F32).trace.graph.leaves("scalar")[0].dtype == "float64"
    same(bound, normal(3, 4))


def test_arithmetic_of_python_numbers_is_pythons():
    @epilogue
    def f(acc, *, s, t=3):
        return acc * (1 - s / t) + (t * t - 1) / 7 + t**3

    acc = normal(3, 4)
    result, _ = same(f(s=0.1), acc)
    np.testing.assert_array_equal(result, acc * (1 - 0.1 / 3) + 8 / 7 + 27)
    assert result.dtype == np.float32
    assert same(f(s=1, t=2), acc)[0].dtype == np.float32
    result, _ = same(epilogue(lambda acc, *, s: acc
                              * ((s < 3) + (s > 1)) / ((s == 2) & (s > 0)))(s=2), acc)
    np.testing.assert_array_equal(result, acc * 2)
    # as numpy.sqrt(2.0) is
    assert same(epilogue(lambda acc, *, s: acc * np.sqrt(s))(s=2.0), acc)[0].dtype == np.float64


NUMBERS = [(0.75, "efdFD"), (0.0, "efdFD"), (math.nan, "efdFD"), (math.inf, "efdFD"), (1j, "FD"),
           (0j, "FD"), (5, "bBhHiIlLefdFD"), (300, "hHiIlLefdFD"), (-1, "bhilefdFD"),
           (2**31, "IlLefdFD"), (2**63, "LfdFD"), (True, "?bBhHiIlLefdFD"),
           (np.float64(0.75), "efdFD"), (np.float16(2), "efdFD"), (np.int64(5), "bhilefdFD"),
           (np.int64(300), "hilefdFD"), (np.uint8(200), "BhHiIlLefdFD"), (np.complex64(1), "FD"),
           (np.bool_(True), "?bBhHiIlLefdFD")]


@pytest.mark.parametrize("value, holds", NUMBERS, ids=[repr(value) for value, _ in NUMBERS])
@pytest.mark.parametrize("how", ["constant", "default", "operand"])
def test_a_number_as_the_result_is_refused_where_c_cannot_hold_it(value, holds, how):
    if how == "operand" and isinstance(value, bool):
        pytest.skip("a choice, and so a constant")

    def default(acc, *, s=value):
        return s

    bound = {"constant": epilogue(lambda acc: value)(), "default": epilogue(default)(),
             "operand": epilogue(default)(s=value)}[how]
    for kind in "?bBhHiIlLefdFD" if value is not NUMBERS[10][0] else "?bBhHiIlLfdFD":
        output = np.dtype(kind)
        acc = np.ones((2, 3), "f4" if kind == "e" else output)
        if kind in holds:
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(same(bound, acc, output=output.name)[0],
                                              np.full((2, 3), value, output))
            continue
        for call in (lambda acc=acc: resolve(bound, accumulator=acc.dtype.name,
                                             output=acc.dtype.name, shape=acc.shape),
                     lambda acc=acc: evaluate(bound, acc, output=acc.dtype.name)):
            with pytest.raises((TypeError, OverflowError),
                               match=r"cannot be written to a result of|out of bounds for"):
                call()


@pytest.mark.parametrize("function", [lambda acc, *, s: s, lambda acc, *, s: 2 * s,
                                      lambda acc, *, s: acc + s, lambda acc, *, s: acc + 2 * s,
                                      lambda acc, *, s: -s - 1,
                                      lambda acc, *, s: np.where(acc.astype(np.int32) + s > 0,
                                                                 acc + s, acc),
                                      lambda acc, *, s: np.where(s > 3, acc, acc * abs(-s)),
                                      lambda acc, *, s: acc + ((s > 3) + s),
                                      lambda acc, *, s: acc + s**2,
                                      lambda acc, *, s: (s, {"x": acc.astype(np.float32) * s})])
def test_integers_of_a_call_are_refused_as_in_numpy(function):
    """Wherever a Python integer meets a type that does not hold it, and whichever call came
    before."""
    a, b = np.ones((2, 3), np.int8), np.ones((3, 4), np.int8)
    bound, refused = epilogue(function), {}
    for backend in ("numpy", "emulator"):
        with cuteblas.backend(backend):
            for s in (5, 5, 63, 64, 100, 127, 128, 300, -60, -65, -200, 5):
                try:
                    value = function(a @ b, s=s)
                    want = np.broadcast_to(np.asarray(value[0] if isinstance(value, tuple)
                                                      else value), (2, 4))
                    fits = want.dtype == np.int8 or (want == want.astype(np.int8)).all()
                except OverflowError:
                    fits = False
                if fits:
                    got = cuteblas.matmul(a, b, epilogue=bound(s=s))
                    np.testing.assert_array_equal(got[0] if isinstance(got, tuple) else got,
                                                  want.astype(np.int8))
                else:
                    with pytest.raises(OverflowError, match="out of bounds for int8"):
                        cuteblas.matmul(a, b, epilogue=bound(s=s))
                refused[s] = not fits
    assert {*refused.values()} == {True, False}


def test_a_constant_is_rounded_once():
    value = 1 + 2.0**-11 + 2.0**-40                     # to float32, then to float16, is 1
    for function, operands in ((lambda acc: value, {}), (lambda acc, *, s: s, {"s": value}),
                               (lambda acc: np.float64(value), {})):
        got, _ = same(epilogue(function)(**operands), normal(2, 2), output="float16")
        assert (got == 1 + 2.0**-10).all()


def test_integers_that_do_not_fit():
    bound, bytes_ = epilogues.scale(scale=300), {**F32, "accumulator": "int8", "output": "int8"}
    assert "is 300, which is out of bounds for int8" in refusal(resolve, bound, **bytes_)
    assert refusal(traced, lambda acc: acc * 300,
                   **bytes_) == "Python integer 300 out of bounds for int8"
    assert resolve(epilogues.scale(scale=-128), **bytes_).scalars == (("scale", -128),)
    traced(lambda acc: acc + 2**63, accumulator="uint64", output="uint64")


def test_python_numbers_have_no_methods():
    bound = epilogue(lambda acc, *, x: acc * x.astype(np.float32))
    assert "a Python number has no 'astype'" in refusal(resolve, bound(x=2.0), **F32)
    same(bound(x=np.float64(2.0)), normal(3, 4))


def test_powers_of_python_numbers_have_no_type():
    for function in (lambda acc, x: acc * x**0.5, lambda acc, x: acc * 2**x,
                     lambda acc, x: acc * x**x):
        assert "use numpy.power" in refusal(traced, function, operands={"x": 2})
    same(epilogue(lambda acc, *, x: acc * x**2 + np.power(x, 0.5))(x=2.0), normal(3, 4))


def test_choices_are_part_of_the_graph():
    @epilogue
    def f(acc, *, activation="relu", doubled=False):
        x = 2 * acc if doubled else acc
        return epilogues.relu(x) if activation == "relu" else np.tanh(x)

    acc = normal(3, 4)
    np.testing.assert_array_equal(same(f(), acc)[0], np.maximum(acc, 0))
    np.testing.assert_array_equal(same(f(activation="tanh", doubled=True), acc)[0],
                                  np.tanh(2 * acc))
    assert len({resolve(f(activation=a, doubled=d), **F32).trace.graph.digest for a in ("relu", "tanh")
                for d in (False, True)}) == 4


# -- types -----------------------------------------------------------------------------------------
TYPED = {"int64": lambda acc: acc // 1 if False else acc + 1, "divided": lambda acc: acc / 2,
         "root": lambda acc: np.sqrt(acc), "compared": lambda acc: (acc > 1) & (acc <= 5)
         | ~(acc != 3) ^ (acc == 2), "logic": lambda acc: np.logical_or(acc, acc - 1)
         & np.logical_not(acc), "chosen": lambda acc: np.where(acc > 0, 1, 0),
         "chosen_acc": lambda acc: np.where(acc, acc, 0),
         "rounded": lambda acc: np.rint(acc) + np.floor(acc) + np.round(acc),
         "squares": lambda acc: acc**2 + acc**1 + np.square(acc) + np.power(acc, 2),
         "clipped": lambda acc: np.clip(acc, 1, 3),
         "clipped_method": lambda acc: acc.clip(2) + acc.clip(max=1),
         "magnitude": lambda acc: abs(acc) + np.fabs(acc),
         "signs": lambda acc: np.sign(acc) + (-acc) + (+acc), "erf": lambda acc: epilogues.erf(acc),
         "sigmoid": lambda acc: epilogues.sigmoid(acc),
         "parts": lambda acc: acc.real + acc.imag + np.conj(acc) + np.real(acc) + acc.conjugate()
         + acc.conj(), "likes": lambda acc: np.zeros_like(acc)
         + np.ones_like(acc, dtype=np.float64),
         "half": lambda acc: acc.astype(np.float16) * np.float16(0.1) + 1,
         "half_functions": lambda acc: np.exp(acc.astype(np.float16) / 64),
         "nan": lambda acc: np.isnan(acc) | np.isnan(acc / acc), "number": lambda acc: 2.5,
         "casts": lambda acc: acc.astype(np.int16).astype(bool).astype(np.uint8).astype("f4"),
         "generic": lambda acc: acc.real if np.iscomplexobj(acc) else acc * 2,
         "strong": lambda acc: acc * np.float32(1.5) + np.array(2, np.int8),
         "neutral": lambda acc: (1 * acc * 1.0 - 0) / 1,
         "nothing_neutral": lambda acc: (acc / 0 + acc * 0) - (acc - 1) / 1,
         "wrapped": lambda acc: acc * (np.ones_like(acc, dtype=np.int64) * 300).astype(np.int8),}
COMPLEX_TYPED = {
    "arithmetic": lambda acc: (acc * 2j + 1) / (acc - 3) - acc**2 + np.reciprocal(acc),
    "parts": lambda acc: acc.real + 1j * acc.imag + np.conj(acc) + abs(acc),
    "compared": lambda acc: np.where((acc == 1) | (acc != acc), acc, 0),
    "nan": lambda acc: np.isnan(acc).astype(np.float32) + acc.astype(bool),
    "widened": lambda acc: acc.astype(np.complex128) * np.float64(0.1),
    "real_power": lambda acc: acc.real**0.5 + acc.imag**-1 + acc.real**1.5,
}


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int8", "uint16", "uint64",
                                  "bool"])
@pytest.mark.parametrize("name", TYPED)
def test_types_are_numpys(kind, name):
    acc = np.array([[0, 1, 2], [3, 5, 100]]).astype(kind)
    if kind.startswith("float"):
        acc = acc - np.array([[0.5, 0, -1], [2, 3.5, np.nan]], kind)
    bound = epilogue(TYPED[name])()
    try:
        with np.errstate(all="ignore"):
            evaluated = TYPED[name](acc)
    except TypeError as reason:                 # what NumPy refuses is refused in its words
        with pytest.raises(TypeError, match=re.escape(str(reason)[:60])):
            same(bound, acc)
        return
    with np.errstate(all="ignore"):
        result, _ = same(bound, acc)
    assert result.dtype == np.asarray(evaluated).dtype
    np.testing.assert_array_equal(result, np.broadcast_to(evaluated, acc.shape))


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX_TYPED)
def test_complex_types_are_numpys(kind, name):
    acc = np.array([[1, 2 - 1j, 0.5j], [3, -1 + 1j, complex(np.nan, 1)]], kind)
    with np.errstate(all="ignore"):
        result, _ = same(epilogue(COMPLEX_TYPED[name])(), acc)
        np.testing.assert_array_equal(result, COMPLEX_TYPED[name](acc))


@pytest.mark.parametrize("accumulator, output, function, words",
                         [("complex64", "float32", lambda acc: acc,
                           "computes complex64, which cannot be written to a result of float32"),
                          ("float32", "int32", lambda acc: acc,
                           "computes float32, which cannot be written to a result of int32"),
                          ("int32", "uint8", lambda acc: acc,
                           "cannot be written to a result of uint8"),
                          ("complex64", "float32", lambda acc: acc.astype(np.float32),
                           "complex value where a value of type float32 is needed"),
                          ("complex64", "complex64", lambda acc: np.exp(acc),
                           "complex value where the argument of exp is needed"),
                          ("complex64", "complex64", lambda acc: np.maximum(acc, 0),
                           "complex value where the argument of maximum is needed"),
                          ("complex64", "complex64", lambda acc: np.where(acc < 0, acc, 0),
                           "the argument of less"),
                          ("int64", "int64", lambda acc: np.where(acc < np.uint64(3), acc, 0),
                           "do not compare int64 with uint64"),
                          ("int32", "int32", lambda acc: acc & 3,
                           "combine conditions, not integers"),
                          ("int32", "int32", lambda acc: acc ** -1,
                           "Integers to negative integer powers"),
                          ("int32", "int32", lambda acc: np.reciprocal(acc),
                           "not support the reciprocal of integers"),])
def test_types_that_do_not_fit(accumulator, output, function, words):
    assert words in refusal(traced, function, accumulator=accumulator, output=output)


@pytest.mark.parametrize("output", ["float16", "bfloat16", "float64", "complex64"])
def test_results_are_stored_as_c(output):
    assert traced(lambda acc: acc * 2, output=output).output == output
    assert same(epilogue(lambda acc: acc * 2)(), normal(3, 4),
                output=output)[0].dtype.name == output


# -- what a traced value cannot do -----------------------------------------------------------------
@pytest.mark.parametrize(
    "function, words",
    [
        (lambda acc: acc if acc > 0 else 0, r"cannot branch on a value .* numpy.where"),
        (lambda acc: max(acc, 0), "numpy.maximum"),
        (lambda acc: acc > 0 and acc, "cannot branch"),
        (lambda acc: 0 < acc < 6, "cannot branch"),
        (lambda acc: math.exp(acc), r"numpy.exp, not math.exp"),
        (lambda acc: float(acc), "cannot become Python numbers"),
        (lambda acc: np.asarray(acc), "cannot become Python numbers or arrays"),
        (lambda acc: acc[0], "no length, items or shape"),
        (lambda acc: len(acc), "no length, items or shape"),
        (lambda acc: list(acc), "no length"),
        (lambda acc: acc.__setitem__(acc < 0, 0), r"numpy.where replaces x\[x < 0\] = 0"),
        (lambda acc: acc // 2, "not support the operators // %"),
        (lambda acc: 3 % acc, "not support the operators // %"),
        (lambda acc: acc @ acc, "not support the operators"),
        (lambda acc: acc.mean(), "have no 'mean'; they support operators"),
        (lambda acc: acc.T, "have no 'T'"),
        (lambda acc, x=2.0: x.astype(np.float32) * acc, "'float' object has no attribute 'astype'"),
        (
            lambda acc: np.log10(acc),
            "epilogues do not support numpy.log10; they support operators, .* tanh"
        ),
        (lambda acc: np.arctan2(acc, 1), "not support numpy.arctan2"),
        (lambda acc: np.linalg.norm(acc), "not support numpy.linalg.norm"),
        (lambda acc: np.modf(acc), "not support numpy.modf"),
        (lambda acc: np.cumsum(acc), "not support numpy.cumsum"),
        (lambda acc: np.add.reduce(acc), "numpy.add.reduce does not; .* auxiliary outputs"),
        (lambda acc: np.exp(acc, out=np.ones(3)), "takes no argument 'out'"),
        (lambda acc: np.where(acc > 0), "a condition and two values"),
        (lambda acc: np.round(acc, 2), "rounds to integers"),
        (lambda acc: np.clip(acc, 0, 1, casting="no"), "takes no argument 'casting'"),
        (
            lambda acc: acc + np.ones(4),
            r"uses an array of shape \(4,\) that is not one of its arguments; make it an operand"
        ),
        (lambda acc: np.ones(4) * acc, "make it an operand"),
        (lambda acc: np.maximum(acc, "x"), "cannot compute with str"),
        (lambda acc: acc + None, "unsupported operand"),
        (lambda acc: acc.astype("U3"), "not support values of type"),
        (lambda acc: acc + acc.sum(axis=-1), "complete only when the whole result is"),
        (lambda acc: np.exp(acc.max(axis=-2)), "Reduction|complete only"),
        (lambda acc: acc.sum(axis=-1), "returns a reduction as its result"),
        (lambda acc: None, "returns nothing"),
        (lambda acc: [acc], "returns list"),
        (lambda acc: (acc, [acc]), "second item is list"),
        (
            lambda acc: (acc, {"x": 1.0}),
            "'x' of epilogue <lambda> is float, not a value or a reduction"
        ),
        (lambda acc: (acc, {"x y": acc}), "names an auxiliary output 'x y'"),
        (lambda acc: (acc, {"acc": acc}), "names an auxiliary output 'acc'"),
        (
            lambda acc: (acc, {"x": acc.sum()}),
            r"takes axis=-1 \(over columns: .*\) or axis=-2 .*, not axis=None"
        ),
        (lambda acc: (acc, {"x": acc.sum(axis=0)}), "not axis=0"),
        (
            lambda acc: (acc, {"x": acc.sum(axis=-1, keepdims=True)}),
            "takes only axis=, not keepdims=True"
        ),
        (lambda acc: (acc, {"x": np.zeros_like(acc).real.max(axis=True)}), "not axis=True"),
    ]
)
def test_functions_that_cannot_be_traced(function, words):
    with pytest.raises((TypeError, ValueError, AttributeError), match=words):
        traced(function)


def test_operands_are_not_reduced_or_written_as_matrices():
    x = {"x": np.ones(4, np.float32)}
    assert "depend on acc or c" in refusal(traced, lambda acc, x: (acc, {"s": x.sum(axis=-1)}),
                                           operands=x)
    assert "not as large as the result" in refusal(traced, lambda acc, x: (acc, {"s": x * 2}),
                                                   operands=x)
    complex64 = {"accumulator": "complex64", "output": "complex64"}
    assert "have no maximum" in refusal(traced, lambda acc: (acc, {"s": acc.max(axis=-1)}),
                                        **complex64)


def test_an_epilogue_has_an_end():
    def chain(acc, *, n):
        for _ in range(len(n)):
            acc = acc * acc
        return acc

    trace = traced(chain, operands={"n": "x" * 490})
    # 2^490 if spelled out
    assert len(trace.graph.nodes) > 490 and len(str(trace.graph.result)) < 1000
    assert pickle.loads(pickle.dumps(trace.graph)) == trace.graph
    assert "chains at most 500 operations" in refusal(traced, chain, operands={"n": "x" * 600})


# -- outputs and reductions ------------------------------------------------------------------------
@epilogue
def everything(acc, *, bias):
    pre = acc + bias
    result = np.maximum(pre, 0)
    return result, {"pre": pre, "mask": pre > 0, "total": result.sum(axis=-1),
                    "top": np.max(pre, axis=-2), "low": pre.min(axis=-1),
                    "count": np.sum(pre > 0, axis=-2), "scaled": (pre * 2).sum(axis=-1),
                    "widest": (pre * 2).max(axis=-1)}


@pytest.mark.parametrize("output", ["float32", "float16", "float64"])
def test_auxiliary_outputs(output):
    trace = resolve(everything(bias=normal(4)), **{**F32, "output": output}).trace
    assert {name: kind for name, kind in trace.outputs if name not in trace.hidden} == {
        "pre": "float16" if output == "float16" else "float32", "mask": "bool"}
    sources = {name: source for name, _op, _axis, source, _kind in trace.reductions}
    # elsewhere C is not what was computed
    assert sources["total"] == ("c" if output == "float32" else "total_values")
    assert sources["top"] == sources["low"] == ("top_values" if output == "float16" else "pre")
    assert sources["count"] == "count_values" and sources["scaled"] == sources["widest"] == "scaled_values"
    assert {name: kind for name, *_how, kind in trace.reductions}["count"] == "int64"
    assert trace.hidden == {s for s in sources.values() if s.endswith("_values")}
    acc, bias = normal(3, 4), normal(4)
    _, auxiliary = same(everything(bias=bias), acc, output=output)
    np.testing.assert_array_equal(auxiliary["total"], np.maximum(acc + bias, 0).sum(axis=-1))
    np.testing.assert_array_equal(auxiliary["count"], (acc + bias > 0).sum(axis=0))


def test_arrays_for_auxiliary_outputs():
    pre, total = np.zeros((4, 3), np.float64).T, np.zeros(3, np.float32)
    bound, acc = everything(bias=normal(4), pre=pre, total=total), normal(3, 4)
    trace = resolve(bound, **F32).trace
    assert trace.outputs[0] == ("pre", "float64") and trace.reductions[0][0] == "total"
    _, auxiliary = evaluate(bound, acc, output="float32")
    assert auxiliary["pre"] is pre and auxiliary["total"] is total
    np.testing.assert_array_equal(pre, acc + bound.operands["bias"])


@pytest.mark.parametrize(
    "given, words",
    [
        ({"prr": np.zeros((3, 4))}, r"unknown argument 'prr'; .* takes 'bias', 'pre'"),
        ({"pre": np.zeros((4, 3))}, r"has shape \(4, 3\), but the output has \(3, 4\)"),
        ({"total": np.zeros(4)}, r"has shape \(4,\), but the output has \(3,\)"),
        (
            {"pre": np.zeros((3, 4), np.int32)},
            "computes float32 for 'pre', which cannot be written to an array of int32"
        ),
        ({"top": np.zeros(4, np.int32)}, "computes float32 for 'top'"),
        ({"pre": np.broadcast_to(np.float32(0), (3, 4))}, "is read-only"),
        ({"top_values": np.zeros((3, 4))}, "unknown argument 'top_values'; "),
    ]
)
def test_arrays_that_do_not_fit(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        resolve(everything(bias=1.0, **given), **{**F32, "output": "float16"})


def test_extrema_of_nothing():
    for shape in ((0, 4), (3, 0)):
        assert "has no elements" in refusal(resolve, everything(bias=1.0),
                                            **{**F32, "shape": shape})
    traced(lambda acc: (acc, {"s": acc.sum(axis=-1)}), shape=(3, 0))


def test_inputs_are_reduced_over_k():
    a, b = normal(3, 5), normal(5, 4)
    acc = a @ b
    for bound, source, axis, want in ((epilogues.bgrad_a(), "a", -1, a.sum(axis=1)),
                                      (epilogues.bgrad_b(), "b", -2, b.sum(axis=0))):
        (vector,) = resolve(bound, **F32).trace.reductions
        assert vector == ("bgrad", "sum", axis, source, "float32")
        result, auxiliary = evaluate(bound, acc, output="float32", a=a, b=b)
        np.testing.assert_array_equal(result, acc)
        np.testing.assert_array_equal(auxiliary["bgrad"], want)
    into = np.zeros((7, 3), np.float32)                # A has batch modes of its own
    resolve(epilogues.bgrad_a(bgrad=into), **F32, inputs={"a": (7, 3, 5), "b": (5, 4)})

    def of_inputs(function, **others):
        return refusal(traced, function, options={"inputs": True}, **others)

    assert "may take only the sum, max or min of a" in of_inputs(lambda acc, a: acc + a)
    assert "may take only the sum, max or min of a" in of_inputs(lambda acc, a: a * 2)
    assert "may take only the sum, max or min of b" in of_inputs(lambda acc, b: np.clip(b, 0, 1))
    assert "a reduction of b in an epilogue takes axis=-2" in of_inputs(
        lambda acc, b: (acc, {"s": b.sum(axis=-1)})
    )
    assert traced(lambda acc, a: (acc, {"top": np.max(a, axis=-1)}),
                  options={"inputs": True}).reductions[0][1] == "max"
    # an operand like any other
    assert traced(lambda acc, a: acc + a, operands={"a": 1.0}).graph.leaves("scalar")


# -- what is traced again --------------------------------------------------------------------------
def digest(bound):
    return resolve(bound, **F32).trace.graph.digest


def test_functions_of_one_name_have_graphs_of_their_own():
    def make(factor):
        @epilogue
        def scaled(acc):
            return acc * factor
        return scaled

    two, three = make(2.0), make(3.0)
    assert digest(two()) != digest(three()) and digest(two()) == digest(make(2.0)())
    assert digest(make(0.0)()) != digest(make(-0.0)()) and digest(make(math.nan)()) == digest(
        make(math.nan)()
    )


FACTOR = 2.0
SETTINGS = {"factor": 2.0}


def helper(x):
    return x * FACTOR


@epilogue
def inner(acc):
    return acc * FACTOR


class Settings:
    factor = 2.0


@pytest.mark.parametrize(
    "function, change",
    [
        (lambda acc: acc * FACTOR, lambda patch: patch.setitem(globals(), "FACTOR", 3.0)),
        (lambda acc: helper(acc), lambda patch: patch.setitem(globals(), "FACTOR", 3.0)),
        (lambda acc: inner(acc), lambda patch: patch.setitem(globals(), "FACTOR", 3.0)),
        (
            lambda acc: [helper(x) for x in (acc,)][0],  # noqa: RUF015
            lambda patch: patch.setitem(globals(), "FACTOR", 3.0)
        ),
        (
            lambda acc: acc * SETTINGS["factor"],
            lambda patch: patch.setitem(SETTINGS, "factor", 3.0)
        ),
        (lambda acc: acc * Settings.factor, lambda patch: patch.setattr(Settings, "factor", 3.0)),
        (
            lambda acc: helper(acc),
            lambda patch: patch.setitem(globals(), "helper", lambda x: x * 5)
        ),
        (
            lambda acc: helper(acc),
            lambda patch: patch.setattr(helper, "__code__", (lambda x: x + FACTOR).__code__)
        ),
        (
            lambda acc: globals()["helper"](acc),
            lambda patch: patch.setitem(globals(), "FACTOR", 3.0)
        ),
    ]
)
def test_what_a_function_reads_may_change(function, change):
    bound = epilogue(function)()
    before = digest(bound)
    assert digest(bound) == before
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        assert digest(bound) != before
    assert digest(bound) == before


class Number(float):
    """A number that could have attributes."""


def scaled_by_attribute(x):
    return x * scaled_by_attribute.factor


@epilogue
def of_itself(acc):
    return acc * of_itself.factor


@functools.wraps(np.clip)
def disguised(x):
    return x * SETTINGS["factor"]


MODULE, NUMBER, RECORD = ModuleType("settings"), Number(2.0), np.zeros((), "f4,f4")[()]
MODULE.inner = ModuleType("settings.inner")
scaled_by_attribute.factor = of_itself.factor = MODULE.factor = MODULE.inner.factor = NUMBER.factor = 2.0
RANDOM = np.random.default_rng(0)


def with_import(acc):
    import math as m

    return acc * m.pi


@pytest.mark.parametrize("function, change, kept",
                         [(lambda acc: scaled_by_attribute(acc),
                           lambda patch: patch.setattr(scaled_by_attribute, "factor", 3.0), True),
                          (lambda acc: acc * scaled_by_attribute.factor,
                           lambda patch: patch.setattr(scaled_by_attribute, "factor", 3.0), True),
                          (lambda acc: of_itself(acc),
                           lambda patch: patch.setattr(of_itself, "factor", 3.0), True),
                          (of_itself.function,
                           lambda patch: patch.setattr(of_itself, "factor", 3.0), True),
                          (lambda acc: acc * MODULE.factor,
                           lambda patch: patch.setattr(MODULE, "factor", 3.0), True),
                          (lambda acc: acc * MODULE.inner.factor,
                           lambda patch: patch.setattr(MODULE.inner, "factor", 3.0), True),
                          (lambda acc: acc * MODULE.inner.factor,
                           lambda patch: patch.setattr(MODULE, "inner",
                                                       SimpleNamespace(factor=3.0)), True),
                          (lambda acc: np.exp(acc), lambda patch: patch.setattr(np, "exp", np.sqrt),
                           True), (lambda acc: acc * math.sqrt(2),
                                   lambda patch: patch.setattr(math, "sqrt", lambda x: x), True),
                          (lambda acc: acc * abs(-2),
                           lambda patch: patch.setitem(globals(), "abs", lambda x: x), True),
                          (lambda acc: acc * pow(2, 1),
                           lambda patch: patch.setattr(builtins, "pow", lambda x, y: 3), True),
                          (lambda acc: (lambda m: acc * m.factor)(MODULE),
                           lambda patch: patch.setattr(MODULE, "factor", 3.0), False),
                          (lambda acc: acc * NUMBER.factor,
                           lambda patch: patch.setattr(NUMBER, "factor", 3.0), False),
                          (lambda acc: disguised(acc),
                           lambda patch: patch.setitem(SETTINGS, "factor", 3.0), False),
                          (lambda acc: acc * RECORD["f0"], lambda patch: RECORD.setfield(1, "f4"),
                           False), (lambda acc: acc * vars(MODULE)["factor"],
                                    lambda patch: patch.setattr(MODULE, "factor", 3.0), False),
                          (lambda acc: acc * of_itself.__dict__["factor"],
                           lambda patch: patch.setattr(of_itself, "factor", 3.0), False),
                          (with_import, lambda patch: patch.setattr(math, "pi", 3.0), False),])
def test_attributes_may_change(function, change, kept):
    """Where everything that is read is known, a trace is kept; otherwise the function is traced at
    every call."""
    made = epilogue(function)
    before = digest(made())
    assert digest(made()) == before and (made.known.unchanged is not bool) == kept
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        assert digest(made()) != before


def test_what_is_different_every_time_is_asked_every_time():
    numbers = iter(range(100))
    for function in (
        lambda acc: acc * np.random.random(),  # noqa: NPY002
        lambda acc: acc * RANDOM.random(),
        lambda acc: acc * (1e6 * time.perf_counter() % 1000.0),
        lambda acc: acc * next(numbers)
    ):
        bound = epilogue(function)()
        assert digest(bound) != digest(bound)


def test_an_attribute_that_appears():
    def helper(x):
        return x * getattr(helper, "factor", 1.0)

    def either(x):
        try:
            return x * helper.other
        except AttributeError:
            return x

    def made(function):
        return lambda acc: function(acc)

    for function, name in ((helper, "factor"), (either, "other")):
        bound = epilogue(made(function))()
        before = digest(bound)
        setattr(helper, name, 3.0)
        assert digest(bound) != before
        delattr(helper, name)
        assert digest(bound) == before


def test_ready_epilogues_and_plain_functions_are_kept():
    for function in (lambda acc: epilogues.gelu(acc) + np.float32(1),
                     lambda acc: np.where(acc > 0, acc, np.finfo(np.float32).eps),
                     lambda acc: epilogues.drelu_bgrad(acc, x=acc),
                     lambda acc: acc * math.pi + sum(x for x in (1, 2))):
        made = epilogue(function)
        resolve(made(), **F32)
        assert made.known.unchanged()


def test_closures_and_defaults_may_change():
    factor = 2.0

    def scaled(x, by=2.0, *, plus=0.0):
        return x * by + plus

    closure, defaults = epilogue(lambda acc: acc * factor)(), epilogue(lambda acc: scaled(acc))()
    before = digest(closure), digest(defaults)
    factor = 3.0
    assert digest(closure) != before[0]
    scaled.__defaults__ = (3.0,)
    assert digest(defaults) != before[1]
    scaled.__defaults__ = (2.0,)
    scaled.__kwdefaults__["plus"] = 1.0
    assert digest(defaults) != before[1]


def test_nothing_is_traced_twice_without_need():
    calls = []
    counted = epilogue(lambda acc, *, x: epilogues.relu(acc + x))
    original = counted.function

    def counting(**arguments):
        calls.append(1)
        return original(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        for x in (1.0, 2.0, 3):
            resolve(counted(x=x), **F32)
        assert len(counted.known.by_key) == 2                    # a float, an int
        patch.setattr(counted, "function", counting)
        patch.setattr(counted.known, "unchanged", lambda: True)
        resolve(counted(x=4.0), **F32)
        assert not calls
        resolve(counted(x=np.ones(4)), **F32)
        assert calls == [1]


def test_graphs_of_the_same_computation_are_equal():
    one, two = (traced(lambda acc: np.exp(acc) * math.nan).graph for _ in range(2))
    assert one == two and hash(one.result) == hash(two.result) and one.digest == two.digest
    assert traced(lambda acc: acc * 0.0).graph != traced(lambda acc: acc * -0.0).graph


# -- functions -------------------------------------------------------------------------------------
def test_erf_without_scipy(monkeypatch):
    from scipy.special import erf, expit

    x = normal(100)
    np.testing.assert_array_equal(epilogues.erf(x), erf(x))
    monkeypatch.setattr(own_functions, "_erf_of_numpy", lambda: own_functions._erf_by_math)
    got = epilogues.erf(x)
    assert got.dtype == np.float32 and isinstance(epilogues.erf(0.5), float)
    np.testing.assert_allclose(got, erf(x.astype(float)), rtol=2e-7)
    if not os.environ.get("SCIPY_ARRAY_API"):            # which wraps SciPy's ufuncs into functions
        graph = traced(lambda acc: erf(acc) + expit(acc)).graph         # SciPy's own are known too
        assert {"erf", "sigmoid"} <= {node.op for node in graph.nodes}


def test_sigmoid_does_not_overflow():
    x = np.float32([-np.inf, -100, -1, 0, 1, 100, np.inf])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_allclose(epilogues.sigmoid(x[1:-1]),
                                   1 / (1 + np.exp(-x[1:-1].astype(float))), rtol=2e-7, atol=1e-44)
    assert epilogues.sigmoid(x)[[0, -1]].tolist() == [0, 1] and np.isnan(
        epilogues.sigmoid(np.float32(np.nan))
    )


def test_integer_sums_on_the_host_keep_all_bits():
    a, b = np.array([[604415364]], np.int32), np.array([[-285529529]], np.int32)
    np.testing.assert_array_equal(cuteblas.matmul(a, b, epilogue="relu"), np.maximum(a @ b, 0))
    a, b = a.astype(np.int64) << 20, b.astype(np.int64)
    np.testing.assert_array_equal(cuteblas.matmul(a, b, epilogue="relu"), np.maximum(a @ b, 0))
