"""The arithmetic of the device functions, against NumPy and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cuteblas._dtypes import dtype

from .kernels import launch, ptr, scalar


def numpy_type(name: str) -> np.dtype:
    return dtype(name).numpy


def each(expression: str, inputs: dict[str, np.ndarray], output: np.ndarray, types: dict[str, str],
         **scalars: tuple[str, complex]) -> None:
    """``output[i] = expression`` for every i, with the inputs' i-th elements by name."""
    n = output.size
    loads = "".join(f"{dtype(types[k]).ctype} {k}; cb::load_global<1>(&{k}, &in_{k}[i], i < n);"
                    for k in inputs)
    params = (
        *(ptr(f"in_{k}", types[k], const=True) for k in inputs),
        ptr("out", types["out"]),
        scalar("n"),
        *(scalar(k, t) for k, (t, _) in scalars.items()),
    )
    launch(
        f"""
        int const i = threadIdx.x + blockIdx.x * blockDim.x;
        {loads}
        {dtype(types["out"]).ctype} const result = {expression};
        cb::store_global<1>(&out[i], &result, i < n);
        """,
        params,
        (*inputs.values(), output, n, *(v for _, v in scalars.values())),
        threads=128,
        grid=(-(-n // 128),),
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_widens_exactly(name: str) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    out = np.zeros(65536, np.float32)
    each("cb::convert<float>(x)", {"x": bits}, out, {"x": name, "out": "float32"})
    np.testing.assert_array_equal(out, bits.view(numpy_type(name)).astype(np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_floats_round_to_the_nearest_half_and_ties_to_even(name: str) -> None:
    rng = np.random.default_rng(0)
    halves = np.arange(0x7F80 if name == "bfloat16" else 0x7C00,
                       dtype=np.uint16).view(numpy_type(name)).astype(np.float32)
    middles = halves[:-1] + (halves[1:] - halves[:-1]) / 2
    x = np.concatenate(
        [
            halves,
            middles,
            np.nextafter(middles, np.float32(0)),
            np.nextafter(middles, np.float32(np.inf)),
            rng.integers(0, 2**32, 50000, np.uint32).view(np.float32),
            np.float32([65519, 65520, 3.4e38, np.inf, np.nan, -0.0]),
        ]
    )
    x = np.concatenate([x, -x])
    out = np.zeros(x.size, np.uint16)
    each(f"cb::convert<{dtype(name).ctype}>(x)", {"x": x}, out, {"x": "float32", "out": name})
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(numpy_type(name))
    np.testing.assert_array_equal(out.view(numpy_type(name)).astype(np.float32),
                                  want.astype(np.float32))


FLOAT8 = ["float8_e4m3fn", "float8_e5m2"]


def converted(x: np.ndarray, target: str) -> np.ndarray:
    """The elements of an array in another type, by the prelude, as bits."""
    out = np.zeros(x.size, f"u{dtype(target).bytes}")
    source = x.dtype.name
    bits = x.view(f"u{x.itemsize}") if x.dtype.kind in "fV" else x
    each(f"cb::convert<{dtype(target).ctype}>(x)", {"x": bits}, out, {"x": source, "out": target})
    return out


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "float64", *FLOAT8, "int32",
                                    "bool"])
def test_all_numbers_of_8_bits_in_other_types(name: str, target: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(numpy_type(name))
    if target == "int32":
        x = x[np.isfinite(x.astype(np.float32))]
    np.testing.assert_array_equal(converted(x, target),
                                  x.astype(numpy_type(target)).view(f"u{dtype(target).bytes}"))


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_all_numbers_of_16_bits_in_8(source: str, name: str) -> None:
    x = np.arange(65536, dtype=np.uint16).view(numpy_type(source))
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(converted(x, name), x.astype(numpy_type(name)).view(np.uint8))


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_longer_numbers_in_8_bits(source: str, name: str) -> None:
    """Numbers of 8 bits, what lies halfway between two of them and beside it, and any bits at
    all."""
    rng, short = np.random.default_rng(0), np.arange(128, dtype=np.uint8).view(numpy_type(name)).astype(source)
    beyond = np.array([480, 512, 61440, 65536, 3e38, np.inf, np.nan, 1e-40, 2.0**-149], source)
    numbers = np.unique(np.append(short[np.isfinite(short)], beyond))
    with np.errstate(invalid="ignore", over="ignore"):
        halfway = numbers[:-1] + (numbers[1:] - numbers[:-1]) / 2
        bits = rng.integers(0, 2 ** (8 * dtype(source).bytes - 1), 20000,
                            f"u{dtype(source).bytes}").view(source)
        near = np.ldexp(rng.random(20000), rng.integers(-22, 18, 20000)).astype(source)
        x = np.concatenate([numbers, halfway, *(np.nextafter(halfway, to)
                                                for to in np.array([0, np.inf], source)), bits,
                            near])
        if source == "float64":                         # by way of float32, as in ml_dtypes
            x = np.concatenate([x, halfway * (1 + 2.0**-40), np.array([1e300, 5e-324])])
        x = np.concatenate([x, -x])
        np.testing.assert_array_equal(converted(x, name), x.astype(numpy_type(name)).view(np.uint8))


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("source", ["bool", "int8", "uint8", "int64", "uint64"])
def test_integers_in_8_bits(source: str, name: str) -> None:
    info = np.iinfo(source) if source != "bool" else None
    x = np.arange(-70000, 70000) if info is None or info.bits > 8 else np.arange(info.min, info.max + 1)
    x = np.append(x, [0, 1] if info is None else [info.max, info.min]).astype(source) if source != "uint64" else x.astype(np.uint64)
    np.testing.assert_array_equal(converted(x, name), x.astype(numpy_type(name)).view(np.uint8))


def sample(name: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = numpy_type(name)
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if t.kind in "iu":
        info = np.iinfo(t)
        return rng.integers(info.min, info.max, n, t, endpoint=True)
    if t.kind == "c":
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(t)
    return rng.standard_normal(n).astype(t)


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32",
                                  "int64", "uint64"])
def test_integers_wrap_and_booleans_are_or_of_ands(name: str) -> None:
    acc, a, b = (sample(name, 500, seed) for seed in range(3))
    out = np.zeros_like(acc)
    types = dict.fromkeys(("acc", "a", "b", "out"), name)
    each("(cb::mac(acc, a, b), acc)", {"acc": acc, "a": a, "b": b}, out, types)
    np.testing.assert_array_equal(out, acc + a * b)
    scaled = (f"cb::scale<{dtype(name).ctype}>({x}, a)" for x in ("acc", "b"))
    each(f"cb::add({', '.join(scaled)})", {"acc": acc, "a": a, "b": b}, out, types)
    np.testing.assert_array_equal(out, a * acc + a * b)
    each(f"cb::scale<{dtype(name).ctype}>(acc, a)", {"acc": acc, "a": a}, out,
         dict.fromkeys(("acc", "a", "out"), name))
    np.testing.assert_array_equal(out, acc * a)


@pytest.mark.parametrize("name, accumulator", [("float32", "float32"), ("float16", "float32"),
                                               ("bfloat16", "float32"), ("float64", "float64")])
def test_multiply_accumulate_is_fused(name: str, accumulator: str) -> None:
    a, b = sample(name, 1000, 0), sample(name, 1000, 1)
    exact = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    acc = np.array([-float(p) for p in exact], accumulator)
    out = np.zeros_like(acc)
    each(
        "(cb::mac(acc, a, b), acc)",
        {"acc": acc, "a": a, "b": b},
        out,
        {"acc": accumulator, "a": name, "b": name, "out": accumulator},
    )
    np.testing.assert_array_equal(out, np.array([float(p + Fraction(float(c)))
                                                 for p, c in zip(exact, acc, strict=True)],
                                                accumulator))
    if name == accumulator:
        assert np.any(out)


@pytest.mark.parametrize(
    "first, second, accumulator",
    [
        ("float16", "float32", "float32"),
        ("bfloat16", "float16", "float32"),
        ("float16", "float64", "float64"),
        ("bfloat16", "float16", "float64"),
        ("float32", "float64", "float64"),
        ("int8", "uint8", "int32"),
        ("int32", "int16", "int64"),
        ("int64", "int32", "int8"),
    ],
)
def test_multiply_accumulate_takes_different_types(first: str, second: str,
                                                   accumulator: str) -> None:
    a, b, acc = sample(first, 500, 0), sample(second, 500, 1), sample(accumulator, 500, 2)
    out = np.zeros_like(acc)
    types = {"acc": accumulator, "a": first, "b": second, "out": accumulator}
    each("(cb::mac(acc, a, b), acc)", {"acc": acc, "a": a, "b": b}, out, types)
    if accumulator.startswith("int"):
        np.testing.assert_array_equal(out, (acc.astype(np.int64) + a.astype(np.int64)
                                            * b.astype(np.int64)).astype(accumulator))
    else:
        exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
                 for x, y, z in zip(a, b, acc, strict=True)]
        np.testing.assert_array_equal(out, np.array([float(x) for x in exact], accumulator))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("conj_a", [False, True])
@pytest.mark.parametrize("conj_b", [False, True])
def test_complex_multiply_accumulate_conjugates(name: str, conj_a: bool, conj_b: bool) -> None:
    acc, a, b = (sample(name, 300, seed) for seed in range(3))
    out = np.zeros_like(acc)
    each(
        f"(cb::mac<{int(conj_a)}, {int(conj_b)}>(acc, a, b), acc)",
        {"acc": acc, "a": a, "b": b},
        out,
        dict.fromkeys(("acc", "a", "b", "out"), name),
    )
    want = acc + (a.conj() if conj_a else a) * (b.conj() if conj_b else b)
    np.testing.assert_allclose(out, want, rtol=0, atol=20 * np.finfo(name).eps)


def test_the_epilogue_rounds_to_the_output_once() -> None:
    acc = np.float32([1 + 2**-11, 1 + 2**-11 + 2**-20, 1 + 3 * 2**-11, 3.0])
    c = np.float16([0.5, 0.5, 0.5, np.inf])
    out = np.zeros(4, np.float16)
    each("cb::scale<cb::half>(acc, alpha)", {"acc": acc}, out, {"acc": "float32", "out": "float16"},
         alpha=("float32", 1))
    np.testing.assert_array_equal(out, acc.astype(np.float16))
    each(
        "cb::convert<cb::half>(cb::add(cb::scale<float>(acc, alpha), cb::scale<float>(c, beta)))",
        {"acc": acc, "c": c},
        out,
        {"acc": "float32", "c": "float16", "out": "float16"},
        alpha=("float32", 3),
        beta=("float32", -0.25),
    )
    np.testing.assert_array_equal(out, (3 * acc - np.float32(0.25)
                                        * c.astype(np.float32)).astype(np.float16))


def test_the_epilogue_of_complex_numbers() -> None:
    acc, c = sample("complex64", 200, 0), sample("complex64", 200, 1)
    out = np.zeros_like(acc)
    each(
        "cb::add(cb::scale<cb::complex<float>>(acc, alpha), cb::scale<cb::complex<float>>(c, beta))",
        {"acc": acc, "c": c},
        out,
        dict.fromkeys(("acc", "c", "out"), "complex64"),
        alpha=("complex64", 2 - 1j),
        beta=("complex64", 0.5j),
    )
    np.testing.assert_allclose(out, (2 - 1j) * acc + 0.5j * c, rtol=0, atol=1e-5)


def test_register_transposes() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, (32, 4), np.uint32)
    out8, out16 = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    launch(
        """
        unsigned w[4], v[2]; int const t = threadIdx.x;
        cb::load_global<4>(w, &A[4 * t]); cb::load_global<2>(v, &A[4 * t]);
        cb::transpose_b8x4(w); cb::transpose_b16x2(v);
        cb::store_global<4>(&C[4 * t], w); cb::store_global<2>(&D[2 * t], v);
        """,
        (ptr("A", "uint32", const=True), ptr("C", "uint32"), ptr("D", "uint32")),
        (words, out8, out16),
    )
    np.testing.assert_array_equal(out8.view(np.uint8).reshape(32, 4, 4),
                                  words.view(np.uint8).reshape(32, 4, 4).transpose(0, 2, 1))
    np.testing.assert_array_equal(
        out16.view(np.uint16).reshape(32, 2, 2),
        words[:, :2].copy().view(np.uint16).reshape(32, 2, 2).transpose(0, 2, 1)
    )


def test_small_functions() -> None:
    out = np.zeros(6, np.int64)
    launch(
        """
        unsigned short r[2] = {1, 2};
        long long const values[] = {cb::min(3, -2), cb::max(3LL, 1LL << 40), cb::max(1, 2LL), cb::zero<int>(), cb::one<int>(),
                                    *cb::recast<unsigned>(r)};
        for (int i = 0; i < 6; ++i) cb::store_global<1>(&C[i], &values[i], threadIdx.x == 0);
        """,
        (ptr("C", "int64"),),
        (out,),
    )
    np.testing.assert_array_equal(out, [-2, 1 << 40, 2, 0, 1, 0x20001])
