"""The prelude's functions of values against NumPy, in the emulator and on a GPU; and as machine
code for every architecture."""

import math
from fractions import Fraction
from functools import reduce

import ml_dtypes
import numpy as np
import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.codegen.epilogue import FUNCTIONS, literal
from cuteblas.codegen.intrinsics import called
from cuteblas.codegen.values import Term
from cuteblas.layout import Layout, Tensor
from cuteblas.planning import H200, Plan
from cuteblas.planning.plan import Argument, Launch
from tests.kernels.engines import place
from tests.runtime.samples import GEMM

ERF = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


REFERENCES = {"erf": lambda x: ERF(x).astype(x.dtype), "sigmoid": sigmoid,
              "where": lambda x, y: np.where(x < y, x, y)}
EXACT = ["add", "subtract", "multiply", "minimum", "maximum", "negative", "absolute", "sign",
         "square", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isnan",
         "where"]
REAL = [*EXACT, "divide", "reciprocal", "floor", "ceil", "rint", "sqrt"]
INTEGER = [*EXACT, "power"]
LOGIC = ["logical_and", "logical_or", "logical_xor", "logical_not", "minimum", "maximum", "equal",
         "not_equal", "where", "add", "multiply"]
COMPLEX = ["negative", "real", "imag", "conj", "equal", "not_equal", "isnan", "add", "subtract"]
# units in the last place: the CUDA math library's limits (CUDA C++ Programming Guide, "Mathematical
# functions"), and one of NumPy's
ELEMENTARY = {"exp": 3, "exp2": 3, "expm1": 3, "log": 2, "log2": 2, "log1p": 3, "sin": 3, "cos": 3,
              "tanh": 3, "erf": 3, "sigmoid": 5, "power": 6}
ROUNDED = {"multiply": 3, "divide": 8, "square": 3, "reciprocal": 8, "absolute": 3}


def call(name, *arguments, of=()):
    """A device function of values."""
    return Term(called(name, (of,) if of else (), arguments))


def expression(name, element):
    """A function of x and y."""
    if name == "where":
        return lambda x, y: call(name, x, y, x) if element == "bool" else call(name, call("less", x, y), x, y)
    return lambda *xy: call(name, *xy[:FUNCTIONS[name]])


def cast(*elements):
    """x as one type after the other."""
    return lambda x, _y: reduce(lambda value, element: call("convert", value, of=element), elements,
                                x)


def number(value, element):
    """A number, whatever x and y are."""
    return lambda _x, _y: literal(value, element)


def values_kernel(source, target, expressions):
    """c[f, i] = the f-th expression of x = a[i] and y = b[i], converted to the type of c."""
    k = KernelBuilder("values", 128, waits=False)
    a, b, c = k.pointer("a", source), k.pointer("b", source), k.pointer("c", target, const=False)
    n = k.integer("n")
    i = k.let("i", k.block_index("block", "x") * 128 + k.thread)
    x, y, z = k.registers("x", source, Layout(1)), k.registers("y", source, Layout(1)), k.registers("z", target, Layout(1))
    for pointer, fragment in ((a, x), (b, y)):
        k.copy(Vector(1), Tensor(pointer + i, Layout(1)), fragment, when=i < n)
    for f, of in enumerate(expressions):
        k.assign(z(0), k.convert(of(x(0), y(0)), target))
        k.copy(Vector(1), z, Tensor(c + (f * n + i), Layout(1)), when=i < n)
    return k.build()


def compute(engine, source, target, expressions, x, y):
    """Those values, a row for each expression."""
    kernel, n = values_kernel(source, target, expressions), x.size
    launch = Launch(kernel, (-(-n // 128), 1, 1),
                    (Argument("a"), Argument("b"), Argument("c"), Argument(value=n)))
    c = place(np.zeros((len(expressions), n), NUMPY.get(target, target)))
    engine.run(Plan(GEMM, H200, "test", None, (launch,)), a=place(x[None]), b=place(y[None]), c=c)
    return c.view


NUMPY = {"bfloat16": ml_dtypes.bfloat16}
FLOAT8 = ["float8_e4m3fn", "float8_e5m2"]


def by_numpy(name, x, y):
    function = REFERENCES.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        return function(*(x, y)[:2 if name == "where" else FUNCTIONS[name]])


def pairs(values):
    """All pairs of some values."""
    x, y = np.meshgrid(values, values)
    return x.ravel().copy(), y.ravel().copy()


def real_pairs(name):
    rng = np.random.default_rng(0)
    info = np.finfo(name)
    special = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 1e-3, 88, -88, 1e10,
                        info.max, -info.max, info.tiny, info.smallest_subnormal,
                        -info.smallest_subnormal, np.inf, -np.inf, np.nan], name)
    x, y = pairs(special)
    return np.concatenate([x, rng.standard_normal(600).astype(name)]), np.concatenate(
        [y, rng.standard_normal(600).astype(name)]
    )


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_real_arithmetic_is_numpys_to_the_bit(engine, name):
    x, y = real_pairs(name)
    got = compute(engine, name, name, [expression(f, name) for f in REAL], x, y)
    for f, row in zip(REAL, got, strict=True):
        np.testing.assert_array_equal(row, by_numpy(f, x, y).astype(name), err_msg=f)
        if f in ("add", "subtract", "multiply", "divide", "negative", "absolute", "floor", "ceil",
                 "rint"):
            numbers = ~np.isnan(row)
            np.testing.assert_array_equal(np.signbit(row[numbers]),
                                          np.signbit(by_numpy(f, x, y)[numbers]), err_msg=f)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_products_are_rounded_before_they_are_added(engine, name):
    x, y = real_pairs(name)
    got = compute(engine, name, name, [lambda x, y: call("add", call("multiply", x, y), x),
                                       lambda x, y: call("subtract", x, call("multiply", y, y))], x,
                  y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, [x * y + x, x - y * y])


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_elementary_functions(engine, name):
    rng = np.random.default_rng(1)
    x = np.concatenate([np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-20, -1e-4, 87, -87,
                                  30, -30, -100], name),
                        (rng.standard_normal(3000)
                         * np.exp(rng.uniform(-8, 3, 3000))).astype(name)])
    y = rng.uniform(-4, 4, x.size).astype(name)
    got = compute(engine, name, name, [expression(f, name) for f in ELEMENTARY], x, y)
    for (f, units), row in zip(ELEMENTARY.items(), got, strict=True):
        want = by_numpy(f, x, y).astype(name)
        np.testing.assert_array_equal(np.isnan(row), np.isnan(want), err_msg=f)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(row[~finite], want[~finite], err_msg=f)
        if f in ("log", "log2"):             # near 1 the libraries' limits are absolute
            finite &= abs(x - 1) > 0.5
        with np.errstate(all="ignore"):
            error = abs(row - want)[finite] / np.spacing(abs(want[finite]))
        assert error.max() <= units, f"{f}: {error.max()} units at {x[finite][error.argmax()]!r}"


def integers(name):
    rng = np.random.default_rng(2)
    info = np.iinfo(name)
    special = np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1], name)
    x, y = pairs(special)
    more = [rng.integers(info.min, info.max, 200, name, endpoint=True) for _ in "xy"]
    return np.concatenate([x, more[0]]), np.concatenate([y, more[1]])


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint32", "int32", "int64", "uint64"])
def test_integers_wrap(engine, name):
    x, y = integers(name)
    with np.errstate(all="ignore"):
        y = np.where(y < 0, -(y + 1), y).astype(name)             # NumPy refuses negative exponents
    got = compute(engine, name, name, [expression(f, name) for f in INTEGER], x, y)
    for f, row in zip(INTEGER, got, strict=True):
        np.testing.assert_array_equal(row, by_numpy(f, x, y).astype(name), err_msg=f)


def test_negative_exponents_of_integers(engine):
    x, y = (np.array(v, np.int32) for v in ([1, -1, -1, 2, -5, 0], [-3, -3, -4, -1, -2, -1]))
    np.testing.assert_array_equal(compute(engine, "int32", "int32", [expression("power", "int32")],
                                          x, y)[0], [1, -1, 1, 0, 0, 0])


def test_logic(engine):
    x, y = pairs(np.array([False, True]))
    got = compute(engine, "bool", "bool", [expression(f, "bool") for f in LOGIC], x, y)
    for f, row in zip(LOGIC, got, strict=True):
        np.testing.assert_array_equal(row, np.where(x, y, x) if f == "where" else by_numpy(f, x, y),
                                      err_msg=f)


def complex_pairs(name):
    rng = np.random.default_rng(3)
    part = np.float32 if name == "complex64" else np.float64
    z = [(rng.standard_normal(500) + 1j * rng.standard_normal(500)).astype(name) for _ in "xy"]
    large = np.finfo(part).max / 4
    special = np.array([1, 1j, -1, -1j, 1 + 1j, 3 - 4j, large, complex(large, large),
                        complex(0, large), 1e-20, 1e-20j], name)
    x, y = pairs(special)
    return np.concatenate([z[0], x]), np.concatenate([z[1], y])


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_values(engine, name):
    x, y = complex_pairs(name)
    names = [*COMPLEX, *ROUNDED, "where"]
    expressions = [(lambda x, y: call("where", call("equal", x, y), x, y)) if f == "where"
                   else expression(f, name) for f in names]
    got = compute(engine, name, name, expressions, x, y)
    unit = np.finfo(name).eps / 2
    for f, row in zip(names, got, strict=True):
        want = y if f == "where" else by_numpy(f, x, y)
        if f in ROUNDED:                # NumPy's own products and quotients depend on the processor
            finite = np.isfinite(want) & (abs(want) > 1e-30)
            error = abs(row[finite].astype(np.complex128) - want[finite]) / abs(want[finite])
            assert error.max() <= ROUNDED[f] * unit, f"{f}: {error.max() / unit} units"
        else:
            np.testing.assert_array_equal(row, want.astype(name), err_msg=f)


def test_quotients_of_large_and_of_vanishing_numbers(engine):
    large = np.float32(1e38)
    x = np.array([complex(large, large), complex(large, 0), 1, 1e-30], np.complex64)
    y = np.array([complex(large, large), complex(0, large), 0, complex(0, 1e-30)], np.complex64)
    got = compute(engine, "complex64", "complex64", [expression("divide", "complex64")], x, y)[0]
    np.testing.assert_allclose(got[[0, 1, 3]], [1, -1j, -1j], rtol=1e-6)
    assert np.isposinf(got[2].real) and np.isnan(got[2].imag)


TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
         "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("source", TYPES)
def test_casts(engine, source):
    """To every type, seen as complex128, which holds all values that are used."""
    targets = [t for t in TYPES if not (source.startswith("complex")
                                        and not t.startswith(("complex", "bool")))]
    values = {"b": [0, 1], "u": [0, 1, 100, 65530, 2**40 + 5],
              "i": [0, 1, -1, -100, 127, 70000, -2**40 - 3], "f": [0.0, -0.0, 1.5, 100.75, 2**-30],
              "c": [0, 1.5, 2j, 3 + 2**-30 * 1j]}[np.dtype(source).kind]
    x = np.array([v for v in values if np.dtype(source).kind not in "iu"
                  or abs(v) <= np.iinfo(source).max]).astype(source)
    got = compute(engine, source, "complex128", [cast(t) for t in targets], x, x)
    for t, row in zip(targets, got, strict=True):
        np.testing.assert_array_equal(row, x.astype(t).astype(np.complex128), err_msg=t)


def rounded_once(x, name):
    """A float64 as the nearest number of a 16-bit type, by exact arithmetic."""
    bits = np.arange(0x7F80 if name == "bfloat16" else 0x7C00, dtype=np.uint16)
    grid = bits.view(NUMPY.get(name, name)).astype(np.float64)
    step = grid[-1] - grid[-2]
    grid = np.append(grid, grid[-1] + step)                       # what rounds to it is infinite
    at = np.searchsorted(grid, abs(x)).clip(1, grid.size - 1)
    result = []
    for value, high in zip(np.abs(x), at, strict=True):
        below, above = Fraction(grid[high]) - Fraction(value), Fraction(value) - Fraction(grid[high - 1])
        up = below < above or (below == above and high % 2 == 0)
        result.append(np.inf if high - (not up) == grid.size - 1 else grid[high - (not up)])
    return np.copysign(result, x)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_float64_is_rounded_to_16_bits_once(engine, name):
    rng = np.random.default_rng(4)
    halves = rng.choice(np.arange(0x7B00, dtype=np.uint16),
                        300).view(NUMPY.get(name, name)).astype(np.float64)
    step = np.spacing(halves.astype(NUMPY.get(name, name))).astype(np.float64)
    middles = halves + step / 2
    tiny = 2.0**-60
    x = np.concatenate([halves, middles, middles * (1 + tiny), np.nextafter(middles, np.inf),
                        np.nextafter(middles, 0), halves + step * rng.random(300),
                        [65519.999999, 65520, 3.3961775e38, 3.4e38, 1e300, 1e-300, 5e-324]])
    x = np.concatenate([x, -x])
    got = compute(engine, "float64", "float64", [cast(name, "float32")], x, x)[0]
    np.testing.assert_array_equal(got, rounded_once(x, name))


@pytest.mark.parametrize("name", FLOAT8)
def test_numbers_of_8_bits_are_those_of_ml_dtypes_to_the_bit(engine, name):
    """All of them, and all of 16 bits, and what is beside the middle of two; a NaN keeps its
    sign."""
    every = np.arange(256, dtype=np.uint8).view(name)
    for target in ("float16", "bfloat16", "float32", "float64", *FLOAT8):
        got = compute(engine, name, target, [cast(target)], every, every)[0]
        np.testing.assert_array_equal(bits_of(got), bits_of(every.astype(target)), err_msg=target)
    numbers = every[np.isfinite(every.astype("f4"))].astype("f8")
    middles = (numbers + np.append(numbers[1:], 464)) / 2
    with np.errstate(all="ignore"):
        for source in ("float16", "bfloat16", "float32", "float64"):
            x = np.arange(65536, dtype=np.uint16).view(source) if np.dtype(source).itemsize == 2 else np.concatenate(
                [middles, middles * (1 + 2.0**-20), middles * (1 - 2.0**-20), middles * (1 + 2.0**-40),
                 [1e6, -1e6, 3e38, 1e-45, np.inf, -np.inf, np.nan, -np.nan]]).astype(source)
            got = compute(engine, source, name, [cast(name)], x, x)[0]
            np.testing.assert_array_equal(bits_of(got), bits_of(x.astype(name)), err_msg=source)


def bits_of(x):
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


LITERALS = {"float32": [math.inf, -math.inf, math.nan, -0.0, 0.1, 1e-45, 3.4e38, 2**24 + 1, 1e-60],
            "float64": [math.inf, -math.inf, math.nan, -0.0, 0.1, 5e-324, 1.7e308],
            "int64": [2**63 - 1, -2**63, 0], "uint64": [2**64 - 1, 2**63, 1],
            "int32": [-2**31, 2**31 - 1], "int8": [-128], "uint8": [255], "bool": [True, False],
            "complex64": [0.1 + 2j, complex(math.inf, -0.0), complex(math.nan, 1)],
            "complex128": [0.1 - 1e-300j, complex(0.0, -math.inf)]}


@pytest.mark.parametrize("name", LITERALS)
def test_literals(engine, name):
    numbers, x = LITERALS[name], np.zeros(1, name)
    got = compute(engine, name, name, [number(v, name) for v in numbers], x, x)[:, 0]
    want = np.array(numbers, name)
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    elif want.dtype.kind == "c":
        np.testing.assert_array_equal(np.signbit(got.imag), np.signbit(want.imag))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_machine_code(arch):
    pytest.importorskip("cuda.core", reason="NVRTC comes with the extra 'test'")
    from cuteblas import runtime

    for name, functions in (("float32", [*REAL, *ELEMENTARY]), ("float64", [*REAL, *ELEMENTARY]),
                            ("int32", INTEGER), ("complex64", [*COMPLEX, *ROUNDED]),
                            ("complex128", [*COMPLEX, *ROUNDED]), ("bool", LOGIC)):
        numbers = [number(v, name) for v in LITERALS.get(name, [])]
        casts = [cast(t) for t in TYPES if not name.startswith("complex")
                 or t.startswith(("c", "b"))]
        if name.startswith("float"):
            casts += [cast(short, "float32") for short in ("float16", "bfloat16", *FLOAT8)]
        target = "complex128"
        assert runtime.compile(values_kernel(name, target,
                                             [*(expression(f, name) for f in functions), *numbers,
                                              *casts]), arch)
    for name in FLOAT8:
        targets = ["float16", "bfloat16", "float32", "float64", "int32", "bool", "complex64",
                   *FLOAT8]
        assert runtime.compile(values_kernel(name, "float32",
                                             [cast(t, name) for t in targets if t != "complex64"]),
                               arch)
        assert runtime.compile(values_kernel(name, "complex64", [cast(t) for t in targets]), arch)
