"""Random epilogues: what tracing recorded computes what the function computes, to the bit and in
the same types."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from cuteblas import epilogue, epilogues
from cuteblas.functions.epilogues import evaluate, resolve

from .graphs import by_graph

UNARY = {name: getattr(np, name) for name in ("negative", "absolute", "sign", "square",
                                              "reciprocal", "floor", "ceil", "rint", "exp", "exp2",
                                              "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos",
                                              "tanh", "isnan", "logical_not")}
UNARY |= {"erf": epilogues.erf, "sigmoid": epilogues.sigmoid, "real": lambda x: x.real,
          "imag": lambda x: x.imag, "conj": np.conj, "not": lambda x: ~x,
          "f2": lambda x: x.astype(np.float16), "f4": lambda x: x.astype(np.float32),
          "i4": lambda x: x.astype(np.int32), "b1": lambda x: x.astype(bool),
          "cube": lambda x: np.power(x, 3), "twice": lambda x: 2 * x, "half": lambda x: x / 2,
          "squared": lambda x: x**2, "of_bool": lambda x: (x == 1)**2, "less_one": lambda x: 1 - x,
          "clip": lambda x: np.clip(x, -1, 1), "silu": epilogues.silu, "positive": np.positive,
          "round": np.round, ".round": lambda x: x.round(), ".conj": lambda x: x.conj(),
          "conjugate": lambda x: x.conjugate(), ".clip": lambda x: x.clip(0),
          "copy": lambda x: x.copy()}
BINARY = {name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide", "power",
                                               "minimum", "maximum", "less", "less_equal",
                                               "greater", "greater_equal", "equal", "not_equal",
                                               "logical_and", "logical_or", "logical_xor")}
BINARY |= {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
           "/": lambda x, y: x / y, "&": lambda x, y: x & y, "<": lambda x, y: x < y,
           "where": lambda x, y: np.where(x > y, x, y),
           "where_zero": lambda x, y: np.where(x, y, 0.0)}
# int8 of arrays and int64 of scalars: there are examples of both
DRAWN = sorted(UNARY.keys() - {"of_bool"})
DTYPES = ["float32", "float64", "float16", "int32", "int8", "uint64", "bool", "complex64",
          "complex128"]
NUMBERS = st.sampled_from([0, 1, -1, 3, 0.1, -2.5, 1e300, 2j, np.float32(0.3), np.float64(0.7),
                           np.int16(5), np.float16(0.1), True])


@st.composite
def programs(draw):
    """Steps that each take earlier values by number: values 0 to 4 are acc, a matrix, a vector and
    two numbers."""
    steps = []
    for i in range(draw(st.integers(1, 8))):
        earlier = st.integers(0, 4 + i)
        steps.append((draw(st.sampled_from(DRAWN)), draw(earlier)) if draw(st.booleans()) else
                     (draw(st.sampled_from(sorted(BINARY))), draw(earlier), draw(earlier)))
    return tuple(steps)


def of_program(steps, number):
    @epilogue
    def random(acc, *, x, v, s):
        values = [acc, x, v, s, number]
        for name, *arguments in steps:
            values.append((UNARY if len(arguments) == 1
                           else BINARY)[name](*(values[i] for i in arguments)))
        return values[-1], {"last": acc + values[-1], "top": (acc + values[-1]).sum(axis=-1)}
    return random


def array(rng, shape, dtype):
    kind = np.dtype(dtype)
    x = rng.standard_normal(shape) * 3
    x[rng.random(shape) < 0.1] = 0
    if kind.kind in "biu":
        return abs(x).astype(kind) if kind.kind != "i" else x.astype(kind)
    x[rng.random(shape) < 0.05] = np.nan
    return (x + 1j
            * rng.standard_normal(shape)).astype(kind) if kind.kind == "c" else x.astype(kind)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much,
                                                                  HealthCheck.too_slow])
@given(steps=programs(), sums=st.sampled_from([d for d in DTYPES if d != "float16"]),
       kinds=st.tuples(*[st.sampled_from(DTYPES)] * 2), s=NUMBERS, number=NUMBERS,
       seed=st.integers(0, 9), alpha=st.sampled_from([1, 2]))
@example(steps=(("of_bool", 3),), sums="float32", kinds=("float32", "float32"), s=np.float32(0.3),
         number=0, seed=0, alpha=1)
@example(steps=(("of_bool", 1),), sums="float32", kinds=("float32", "float32"), s=0, number=0,
         seed=0, alpha=1)
@example(steps=(("imag", 1), ("of_bool", 5)), sums="float32", kinds=("float32", "float32"), s=0,
         number=0, seed=0, alpha=1)
@example(steps=(("*", 3, 4), ("*", 0, 5)), sums="float32", kinds=("float32", "float32"), s=2j,
         number=np.float64(0.7), seed=0, alpha=1)
def test_random_expressions(steps, sums, kinds, s, number, seed, alpha):
    rng = np.random.default_rng(seed)
    acc, x, v = array(rng, (3, 4), sums), array(rng, (3, 4), kinds[0]), array(rng, (4,), kinds[1])
    bound = of_program(steps, number)(x=x, v=v, s=s)
    try:
        with np.errstate(all="ignore"):
            resolved = resolve(bound, accumulator=sums, output=None, shape=acc.shape,
                               alpha="one" if alpha == 1 else "value")
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        assume(False)                 # refused: by NumPy, or because kernels have no such operation
    try:
        with np.errstate(all="ignore"):
            want, auxiliary = evaluate(bound, acc, alpha=alpha)
    # what the host alone refuses: 1 / 0, a negative power of integers
    except (ArithmeticError, ValueError):
        assume(False)
    got, outputs = by_graph(resolved, acc, alpha=alpha)
    assert got.dtype == want.dtype == resolved.trace.output
    np.testing.assert_array_equal(got, want)
    assert outputs["last"].dtype == auxiliary["last"].dtype
    np.testing.assert_array_equal(outputs["last"], auxiliary["last"])
    if want.dtype != np.float16:                   # which NumPy sums in float16, kernels in float32
        np.testing.assert_array_equal(outputs["top"], auxiliary["top"])


OF_COMPLEX = {"+": lambda s, x: s + x, "-": lambda s, x: s - x, "*": lambda s, x: s * x,
              "/": lambda s, x: s / x, "equal": lambda s, x: (s == x) + (s == x),
              "reflected": lambda s, x: x * s, "ufunc": np.multiply,
              "where": lambda s, x: s * np.where(x != 0, x, 1.0),
              "of where": lambda s, x: s * -np.where(x != 0, x, 1.0),
              "like": lambda s, x: s * np.ones_like(x), "part": lambda s, x: s * x.real}


@pytest.mark.parametrize("second", [np.float64(0.7), np.float32(0.7), np.complex128(0.7), 0.7, 3,
                                    np.full((3, 4), 0.7), np.array(0.7)],
                         ids=lambda x: f"{type(x).__name__}{getattr(x, 'shape', '')}")
@pytest.mark.parametrize("name", OF_COMPLEX)
@pytest.mark.parametrize("captured", [False, True])
def test_python_complex_with_a_second_number(name, second, captured):
    """Python's complex numbers take a ``numpy.float64`` on their right as a Python float."""
    def applied(acc, s, x):
        return acc * OF_COMPLEX[name](s, x)

    if isinstance(second, np.ndarray) and captured == bool(second.ndim):
        pytest.skip("an array with axes has to be an operand")
    function = epilogue((lambda acc, *, s: applied(acc, s, second)) if captured
                        else lambda acc, *, s, x: applied(acc, s, x))
    bound = function(s=2j) if captured else function(s=2j, x=second)
    acc = (np.arange(12).reshape(3, 4) / 8).astype(np.float32)
    resolved = resolve(bound, accumulator="float32", output=None, shape=acc.shape)
    want, (got, _), (by_numpy, _) = bound(acc), by_graph(resolved, acc), evaluate(bound, acc)
    assert got.dtype == by_numpy.dtype == want.dtype == resolved.trace.output
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(by_numpy, want)


def _chosen_by(name):
    return lambda x: x * 2 if hasattr(x, name) else x * 3


MEMBERS = {"round": lambda x: x.round(), "round(0)": lambda x: x.round(0), "np.round": np.round,
           "np.around": np.around, "round()": round, "clip": lambda x: x.clip(0, 2),
           "clip low": lambda x: x.clip(1), "clip high": lambda x: x.clip(max=1),
           "clip none": lambda x: x.clip(), "np.clip": lambda x: np.clip(x, 0, 2),
           "np.clip none": lambda x: np.clip(x, None, None), "np.clip one": lambda x: np.clip(x, 0),
           "np.clip both": lambda x: np.clip(x, 0, min=1),
           "np.clip by name": lambda x: np.clip(x, min=0, max=2), "copy": lambda x: x.copy(),
           "copy K": lambda x: x.copy("K"), "copy wrong": lambda x: x.copy(wrong=1),
           "astype": lambda x: x.astype(np.float32),
           "astype K": lambda x: x.astype(np.float32, "K"),
           "astype safe": lambda x: x.astype(np.int8, casting="safe"),
           "astype wrong": lambda x: x.astype(np.float32, wrong=1), "conj": lambda x: x.conj(),
           "conjugate": lambda x: x.conjugate(), "np.conj": np.conj, "real": lambda x: x.real,
           "imag": lambda x: x.imag, "np.real": np.real, "np.imag": np.imag,
           "dtype": lambda x: np.ones_like(x, dtype=x.dtype), "positive": np.positive,
           "+": lambda x: +x, "-": lambda x: -x, "abs": abs, "fabs": np.fabs,
           "squared": lambda x: x**2, "zeros_like": lambda x: np.zeros_like(x) + 1,
           "ones_like": np.ones_like, "ones_like of a shape": lambda x: np.ones_like(x, shape=(2,)),
           "ones_like wrong": lambda x: np.ones_like(x, wrong=1),
           "where": lambda x: np.where(x, x, x), "where wrong": lambda x: np.where(x, x, x, x),
           "item": lambda x: x.item(), "iscomplexobj": lambda x: x * 2 if np.iscomplexobj(x) else x
           * 3, "numerator": lambda x: x.numerator, "T": lambda x: x.T,
           **{f"has {name}": _chosen_by(name) for name in ("astype", "clip", "conj", "conjugate",
                                                           "copy", "dtype", "imag", "is_integer",
                                                           "item", "max", "min", "mean", "ndim",
                                                           "real", "round", "shape", "size", "sum",
                                                           "T")}}
GIVEN = {"acc": None, "float": 0.75, "int": 3, "complex": 1 + 2j, "float32": np.float32(0.75),
         "int8": np.int8(3), "bool": np.bool_(True), "complex64": np.complex64(1 + 2j),
         "row": np.full((1, 3), 1.5, "f4"), "0-d": np.array(1.5),
         "matrix": np.full((2, 3), 3, "i4"), "column": np.full((2, 1), True)}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_values_are_numpys(name):
    """Members of arrays, of NumPy's numbers and of Python's are refused, or give the type and the
    value that NumPy gives."""
    member = MEMBERS[name]

    @epilogue
    def alone(acc, *, x=None):
        return member(acc if x is None else x)

    @epilogue
    def beside(acc, *, x=None):
        return acc * 1 + member(acc if x is None else x)

    for sums in ("f4", "f8", "i4", "c8", "?"):
        acc = (np.arange(6).reshape(2, 3) / (2 if sums in ("f4", "f8") else 1)).astype(sums)
        for function in (alone, beside):
            for x in GIVEN.values():
                bound = function() if x is None else function(x=x)
                try:
                    resolved = resolve(bound, accumulator=acc.dtype.name, output=None,
                                       shape=acc.shape)
                except (TypeError, ValueError, ArithmeticError, AttributeError):
                    continue
                with np.errstate(all="ignore"):
                    # no error where a kernel has none
                    want = np.asarray(function.function(acc, x=x))
                    got, _ = by_graph(resolved, acc)
                    by_numpy, _ = evaluate(bound, acc)
                assert got.dtype == want.dtype == by_numpy.dtype
                np.testing.assert_array_equal(got, np.broadcast_to(want, acc.shape))
                np.testing.assert_array_equal(by_numpy, np.broadcast_to(want, acc.shape))
