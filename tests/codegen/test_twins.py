"""Device functions have two texts, for the GPU and for the emulator: both compute the same, and
what NumPy does.

The GPU's text is compiled for the host, with CUDA's functions and each PTX instruction in C++, as
for sm_75; and on a GPU as it is.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen import prelude
from cuteblas.codegen.intrinsics import INTRINSICS
from cuteblas.codegen.kernel import GeneratedKernel, Param
from cuteblas.codegen.values import Use
from cuteblas.emulator.compiler import build

SHIMS = r"""
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define __CUDA_ARCH__ 750
#define __CB_BITS(name, To, From) inline To name(From x) { To r; std::memcpy(&r, &x, sizeof r); return r; }
__CB_BITS(__float_as_int, int, float)
__CB_BITS(__int_as_float, float, int)
__CB_BITS(__longlong_as_double, double, long long)
#define __CB_ROUNDED(letter, T)                                                  \
  inline T __##letter##add_rn(T a, T b) { return a + b; }                         \
  inline T __##letter##sub_rn(T a, T b) { return a - b; }                         \
  inline T __##letter##mul_rn(T a, T b) { return a * b; }                         \
  inline T __##letter##div_rn(T a, T b) { return a / b; }                         \
  inline T __##letter##rcp_rn(T a) { return 1 / a; }                              \
  inline T __##letter##sqrt_rn(T a) { return std::sqrt(a); }
__CB_ROUNDED(f, float)
__CB_ROUNDED(d, double)
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  unsigned long long const both = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= static_cast<unsigned>(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, int n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (n & 31));
}
inline unsigned short bits_of(float x) {                         // cvt.rn.bf16: nearest of all, by search
  if (x != x) return 0x7fff;
  unsigned const sign = std::signbit(x) ? 0x8000u : 0u;
  double const y = std::fabs(static_cast<double>(x));
  auto const value = [](unsigned b) { return b == 0x7f80u ? std::ldexp(1.0, 128) : double(__int_as_float(int(b << 16))); };
  unsigned low = 0, high = 0x7f80u;
  if (std::isinf(x)) return static_cast<unsigned short>(sign | high);
  while (high - low > 1) (value((low + high) / 2) <= y ? low : high) = (low + high) / 2;
  double const below = y - value(low), above = value(high) - y;
  return static_cast<unsigned short>(sign | (below < above || (below == above && low % 2 == 0) ? low : high));
}
"""
# Each instruction, as a pattern of the statement, in C++. Whatever else has PTX is not called here.
PTX = [
    (
        r'asm\("cvt\.f32\.f16[^;]*;" : "=f"\((\w+)\) : "h"\(([\w.]+)\)\);',
        r"{ _Float16 h; std::memcpy(&h, &\2, 2); \1 = float(h); }"
    ),
    (
        r'asm\("cvt\.rn\.f16\.f32[^;]*;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);',
        r"{ _Float16 h = _Float16(\2); std::memcpy(&\1, &h, 2); }"
    ),
    (r'asm\("cvt\.rn\.bf16\.f32[^;]*;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);', r"\1 = bits_of(\2);"),
    (
        r'asm volatile\("fma\.rn\.f32 [^;]*;" : "\+f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);',
        r"\1 = std::fma(\2, \3, \1);"
    ),
    (
        r'asm\("dp4a[^;]*;" : "=r"\(r\)[^;]*;',
        "r = acc; for (int s = 0; s < 32; s += 8) r += static_cast<signed char>(a >> s) * static_cast<signed char>(b >> s);"
    ),
    (
        r'asm\("\{ \.reg \.b32 t; cvt\.rn\.f16x2[^"]*" : "=h"\(a\.bits\)[^;]*\);',
        "a = convert<half>(x); b = convert<half>(y);"
    ),
    (
        r'asm\("\{ \.reg \.b32 t; cvt\.rn\.bf16x2[^"]*" : "=h"\(a\.bits\)[^;]*\);',
        "a.bits = bits_of(x); b.bits = bits_of(y);"
    ),
    (
        r'asm\("cvt\.rn\.bf16x2\.f32 [^;]*;" : "=r"\(pair\)[^;]*\);',
        "pair = static_cast<unsigned>(bits_of(y)) << 16 | bits_of(x);"
    ),
    (
        r'asm\("prmt\.b32 [^;]*;" : "=r"\(third\)[^;]*\);',
        "third = __byte_perm(__float_as_int(x), __float_as_int(y), 0x7632);"
    ),
    (
        r'asm\("\{ \.reg \.b32 t; add\.u16x2[^"]*" : "\+r"\(least\)[^;]*\);',
        "{ unsigned t = 0; for (int s = 0; s < 32; s += 16) {"
        " unsigned const l = least >> s & 0xffff, m = (magnitude >> s) - 1 & 0xffff;"
        " t |= (m < l ? m : l) << s; } least = t; }"
    ),
    (
        r'asm\("max\.u16x2 [^;]*;" : "\+r"\(most\)[^;]*\);',
        "{ unsigned t = 0; for (int s = 0; s < 32; s += 16) { unsigned const l = most >> s & 0xffff, m = magnitude >> s & 0xffff;"
        " t |= (m > l ? m : l) << s; } most = t; }"
    ),
    (r'asm\("" : [^;]*\);', ";"),
    (r'asm volatile\("" : "\+[fr]"[^;]*\);', ";"),
]


def cuda_text() -> str:
    """The functions of values of the GPU's text, as C++ for the host."""
    core, split, values = (files(prelude).joinpath(f"{name}.cuh").read_text()
                           for name in ("core", "split", "values"))
    head, rest = core.split("// -- Ordinary memory")
    words = "CB_DEVICE unsigned between_words" + rest.split("CB_DEVICE unsigned between_words")[1].split("\n")[0] + "\n"
    text = head + words + rest[rest.index("// -- Transposes of small"):] + split + values
    for pattern, replacement in PTX:
        text, count = re.subn(pattern, lambda found, r=replacement: found.expand(r), text)
        assert count, pattern
    assert "asm" not in text.replace("asm\n", ""), re.findall(r".*asm.*", text)
    return SHIMS + text


class Row(NamedTuple):
    """A function of elements ``x``, ``y``, ``z``; what NumPy says of the same arrays, if it
    does."""

    expression: str
    inputs: tuple[str, ...]
    output: str
    numpy: Callable | None = None
    limit: float | None = None              # of magnitudes
    exact_on_gpu: bool = True


FLOATS, INTEGERS = ("float32", "float64"), ("int8", "uint8", "int16", "int32", "uint32", "int64",
                                            "uint64")
COMPLEX, NUMBERS = ("complex64", "complex128"), (*FLOATS, *INTEGERS)
SHORT = ("float16", "bfloat16")


def ctype(name: str) -> str:
    return dtype(name).ctype


def numpy_type(name: str) -> np.dtype:
    return dtype(name).numpy


def rows() -> Iterator[Row]:
    for source in (*SHORT, *NUMBERS, "bool"):
        for target in (*SHORT, *NUMBERS, *COMPLEX, "bool"):
            whole = target in INTEGERS and source in (*FLOATS, *SHORT)
            unsigned = whole and target.startswith("u")
            x = "cb::absolute(cb::convert<float>(x))" if unsigned else "x"
            # NumPy rounds float64 to bfloat16 by way of float32, and integers to half by way of
            # what is wider
            wide = target in SHORT and source not in ("float32", *SHORT) and (source, target) != ("float64", "float16")
            known = not wide and not whole
            yield Row(f"cb::convert<{ctype(target)}>({x})", (source,), target,
                      (lambda a, t=target: a.astype(numpy_type(t))) if known else None,
                      100.0 if whole else None)
    for source in ("complex64", "complex128"):
        yield Row("cb::convert<cb::complex<float>>(x)", (source,), "complex64",
                  lambda a: a.astype("c8"))
        yield Row("cb::convert<bool>(x)", (source,), "bool", lambda a: a.astype(bool))
    for kind in NUMBERS:
        yield Row("cb::multiply(x, y)", (kind, kind), kind, np.multiply)
        yield Row("cb::add(x, y)", (kind, kind), kind, np.add)
        yield Row("cb::subtract(x, y)", (kind, kind), kind, np.subtract)
        yield Row("cb::negative(x)", (kind,), kind, np.negative)
        yield Row("cb::absolute(x)", (kind,), kind, np.absolute)
        yield Row("cb::square(x)", (kind,), kind, np.square)
        yield Row("cb::minimum(x, y)", (kind, kind), kind, np.minimum)
        yield Row("cb::maximum(x, y)", (kind, kind), kind, np.maximum)
        yield Row("cb::sign(x)", (kind,), kind, np.sign)
        yield Row("cb::add(z, cb::multiply(x, y))", (kind,) * 3, kind)
        for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
            yield Row(f"cb::{name}(x, y)", (kind, kind), "bool", getattr(np, name))
        yield Row("[&] { auto sum = z; cb::mac(sum, x, y); return sum; }()", (kind,) * 3, kind)
    for kind in FLOATS:
        yield Row("cb::divide(x, y)", (kind, kind), kind, np.divide)
        yield Row("cb::reciprocal(x)", (kind,), kind, np.reciprocal)
        yield Row("cb::isnan(x)", (kind,), "bool", np.isnan)
        for name in ("floor", "ceil", "rint", "sqrt"):
            yield Row(f"cb::{name}(x)", (kind,), kind, getattr(np, name))
        yield Row("cb::sigmoid(x)", (kind,), kind, None, None, False)
    for kind in INTEGERS:
        yield Row("cb::power(x, static_cast<decltype(x)>(y & 63))", (kind, kind), kind,
                  lambda a, b: np.power(a, (b & b.dtype.type(63))))
        yield Row(
            f"cb::power(static_cast<{ctype(kind)}>(x % 3), static_cast<{ctype(kind)}>(y % 5))",
            (kind, kind),
            kind
        )
    for kind in COMPLEX:
        for name in ("add", "subtract", "multiply", "divide"):
            yield Row(f"cb::{name}(x, y)", (kind, kind), kind,
                      {"add": np.add, "subtract": np.subtract}.get(name))
        for name in ("negative", "reciprocal", "square", "conj"):
            yield Row(f"cb::{name}(x)", (kind,), kind,
                      {"negative": np.negative, "conj": np.conjugate}.get(name))
        yield Row(f"cb::divide(x, {ctype(kind)}{{y.re * 0, y.im * 0}})", (kind, kind), kind)
        yield Row("cb::equal(x, y)", (kind, kind), "bool", np.equal)
        for conj in ("false, false", "true, false", "false, true", "true, true"):
            yield Row(f"[&] {{ auto sum = z; cb::mac<{conj}>(sum, x, y); return sum; }}()",
                      (kind,) * 3, kind)
    yield Row("cb::dp4a(x, y, z)", ("int32", "uint32", "uint32"), "int32")
    yield Row("cb::between_words(x, y, z & 31)", ("uint32", "uint32", "int32"), "uint32")
    yield Row("cb::scalbn(x, y % 300)", ("float32", "int32"), "float32")
    yield Row("cb::row_shift(cb::absolute(x), 7)", ("float32",), "int32")
    yield Row("cb::row_need(y & 1023, z & 1023, x)", ("float32", "int32", "int32"), "float32")
    yield Row("cb::row_offer(x, y)", ("float32", "float32"), "float32")
    yield Row("cb::pairs_are_between(x, y, z, -14, 15)", ("uint32",) * 3, "bool")
    yield Row(
        "cb::pairs_are_between(((113u << 7) - 2 + (x & 3)) * 65537u, ((142u << 7) - 2 + (y & 3)) * 65537u, z << 16, -14, 15)",
        ("uint32",) * 3,
        "bool"
    )
    for part in ("first", "second", "third", "least", "most", "lost"):
        yield Row(
            "[&] { unsigned first, second, third, least = 0xffffffffu, most = 0, lost = 0; "
            f"cb::split_pair(x, y, first, second, third, least, most, lost); return {part}; }}()",
            ("float32",) * 2,
            "uint32",
            None,
            1e38
        )
    for part in range(4):
        yield Row(
            f"[&] {{ unsigned w[4] = {{x, y, z, x ^ z}}; cb::transpose_b8x4(w); return w[{part}]; }}()",
            ("uint32",) * 3,
            "uint32"
        )
    for part in range(2):
        yield Row(
            f"[&] {{ unsigned w[2] = {{x, y}}; cb::transpose_b16x2(w); return w[{part}]; }}()",
            ("uint32",) * 2,
            "uint32"
        )
    for plane in ("cb::half", "cb::bfloat16"):
        yield Row(
            f"[&] {{ {plane} a, b; cb::convert_pair(a, b, x, y); return b.bits * 65536u + a.bits; }}()",
            ("float32",) * 2,
            "uint32",
            None,
            1e38
        )
        yield Row(f"cb::plane_rest(x, cb::convert<{plane}>(y), 2048.0f)", ("float32",) * 2,
                  "float32")


ROWS = tuple(rows())


def numbers(name: str, n: int, seed: int, limit: float | None) -> np.ndarray:
    """All numbers of 16 bits, or special ones, what lies between two shorter ones and beside that,
    and any bits."""
    rng, kind = np.random.default_rng(seed), numpy_type(name)
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if kind.kind == "c":
        parts = [rng.permutation(numbers(f"float{4 * kind.itemsize}", n, seed + i, limit))
                 for i in (0, 7)]
        return np.stack(parts, axis=-1).reshape(-1).view(kind)
    bits = rng.integers(0, 256, n * kind.itemsize, np.uint8).view(f"u{kind.itemsize}")
    if kind.itemsize == 2:
        bits[:min(n, 65536)] = rng.permutation(65536).astype(np.uint16)[:min(n, 65536)]
    x = bits.view(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        special = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], kind)
    elif kind.itemsize == 2:
        special = x[:0]
    else:
        info = np.finfo(kind)
        with np.errstate(all="ignore"):
            short = np.concatenate([np.arange(0, 65536, 37, np.uint16).view(t).astype(np.float64)
                                    for t in (np.float16, ml_dtypes.bfloat16)])
            middles = short + np.abs(short) * 2.0 ** rng.integers(-12, -7, short.size)
            special = np.concatenate([[0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.tiny,
                                       info.max, info.smallest_subnormal], short, middles,
                                      middles * (1 + 2.0**-30),
                                      rng.standard_normal(3000)]).astype(kind)
    special = rng.permutation(special)[: n // 2]
    x = x.copy()
    x[:special.size] = special
    x = x if kind.itemsize == 2 else rng.permutation(x)
    if limit is not None:
        with np.errstate(all="ignore"):
            x[~(abs(x.astype(np.float64)) < limit)] = 1
    return x


def inputs_of(row: Row, n: int = 1 << 14) -> list[np.ndarray]:
    n = 65536 if len(row.inputs) == 1 and numpy_type(row.inputs[0]).itemsize == 2 else n
    return [numbers(name, n, 10 * i + len(row.expression), row.limit)
            for i, name in enumerate(row.inputs)]


def functions(text: str, export: str) -> str:
    """A loop for each row."""
    for i, row in enumerate(ROWS):
        arrays = ", ".join(f"{ctype(name)} const* in{k}" for k, name in enumerate(row.inputs))
        elements = "".join(f"{ctype(name)} const {'xyz'[k]} = in{k}[i]; "
                           for k, name in enumerate(row.inputs))
        text += (f"\n{export} void row{i}({arrays}, {ctype(row.output)}* out, long n) {{\n"
                 f"  for (long i = 0; i < n; ++i) {{ {elements}out[i] = {row.expression}; }}\n}}")
    return text


EXPORT = 'extern "C" __attribute__((visibility("default")))'


@pytest.fixture(scope="module")
def twins() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    if not emulator.available():
        pytest.skip(str(emulator.why_unavailable()))
    return (build(functions(cuda_text(), EXPORT), "the GPU's functions", headers=()),
            build(functions('#include "device.h"\n#include "../codegen/prelude/modular.cuh"\n',
                            EXPORT), "the emulator's functions"))


def computed(library: ctypes.CDLL, i: int, inputs: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(len(inputs[0]), numpy_type(ROWS[i].output))
    getattr(library, f"row{i}")(*(ctypes.c_void_p(x.ctypes.data) for x in (*inputs, out)),
                                ctypes.c_long(len(out)))
    return out


def expect_equal(got: np.ndarray, want: np.ndarray, inputs: list[np.ndarray]) -> None:
    """To the bit, but that any NaN is as good as another."""
    got, want = (x.reshape(-1, 1).view(f"f{x.itemsize // 2}") if x.dtype.kind == "c"
                 else x.reshape(-1, 1) for x in (got, want))
    wrong = (got.view(f"u{got.itemsize}") != want.view(f"u{want.itemsize}"))
    if got.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            wrong &= ~(np.isnan(got.astype("d")) & np.isnan(want.astype("d")))
    at = np.flatnonzero(wrong.any(axis=-1))
    assert not at.size, (len(at), [x[at[0]] for x in inputs], got[at[0]], want[at[0]])


@pytest.mark.parametrize("i", range(len(ROWS)),
                         ids=[f"{row.expression}-{row.inputs[0]}" for row in ROWS])
def test_both_texts_compute_the_same(twins, i):
    inputs = inputs_of(ROWS[i])
    got, want = (computed(library, i, inputs) for library in twins)
    expect_equal(got, want, inputs)
    if ROWS[i].numpy is not None:
        with np.errstate(all="ignore"):
            expect_equal(got, np.asarray(ROWS[i].numpy(*inputs), got.dtype), inputs)


def uses_in(text: str) -> frozenset[Use]:
    called = re.findall(r"cb::(\w+)(?:<((?:[^<>()]|<[^<>]*>)*)>)?\(", text)
    return frozenset(Use(name, tuple(of.split(", ")) if of else ()) for name, of in called
                     if name in INTRINSICS)


@pytest.mark.gpu
@pytest.mark.parametrize("i", [i for i, row in enumerate(ROWS) if row.exact_on_gpu],
                         ids=[f"{row.expression}-{row.inputs[0]}" for row in ROWS
                              if row.exact_on_gpu])
def test_a_gpu_computes_the_same(twins, i):
    import cupy

    from cuteblas.runtime import compile, device_info
    row, inputs = ROWS[i], inputs_of(ROWS[i], 1 << 17)
    names = (*row.inputs, row.output)
    params = tuple(Param(f"p{k}", "pointer", dtype(name), const=k < len(row.inputs))
                   for k, name in enumerate(names))
    arguments = ", ".join(f"{ctype(name)}{' const' * (k < len(row.inputs))}* p{k}"
                          for k, name in enumerate(names))
    elements = "".join(f"{ctype(name)} const {'xyz'[k]} = p{k}[i]; "
                       for k, name in enumerate(row.inputs))
    body = (f'extern "C" __global__ void __launch_bounds__(128) twin({arguments}, int n) {{\n'
            "  int const i = blockIdx.x * 128 + threadIdx.x;\n"
            f"  if (i < n) {{ {elements}p{len(row.inputs)}[i] = {row.expression}; }}\n}}\n")
    kernel = GeneratedKernel("twin", body, (*params, Param("n", "scalar", dtype("int32"))), 128,
                             uses=uses_in(body))
    module = cupy.cuda.function.Module()
    module.load(compile(kernel, device_info().arch))
    n = len(inputs[0])
    on_gpu = [cupy.asarray(x.view(np.uint8))
              for x in (*inputs, np.zeros(n, numpy_type(row.output)))]
    module.get_function("twin")((-(-n // 128),), (128,), (*on_gpu, np.int32(n)))
    expect_equal(on_gpu[-1].get().view(numpy_type(row.output)), computed(twins[1], i, inputs),
                 inputs)


@pytest.mark.gpu
def test_who_counts_last_sees_what_all_have_written():
    """Acquire and release of ``count_arrival``: ordinary stores before it are seen by the block
    that comes last."""
    import cupy

    from cuteblas.runtime import compile, device_info
    body = """extern "C" __global__ void __launch_bounds__(128) counted(unsigned* parts, unsigned* count, unsigned* out) {
  parts[blockIdx.x * 128 + threadIdx.x] = blockIdx.x + threadIdx.x;
  cb::syncthreads();
  __shared__ unsigned before;
  if (threadIdx.x == 0) before = cb::count_arrival(count);
  cb::syncthreads();
  if (before + 1 == gridDim.x) {
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i * 128 + threadIdx.x];
    out[threadIdx.x] = sum;
  }
}
"""
    params = tuple(Param(name, "pointer", dtype("uint32"), const=False)
                   for name in ("parts", "count", "out"))
    module = cupy.cuda.function.Module()
    module.load(compile(GeneratedKernel("counted", body, params, 128, uses=uses_in(body)),
                        device_info().arch))
    function, blocks = module.get_function("counted"), 3000
    for _ in range(50):
        parts, count, out = cupy.zeros(blocks * 128,
                                       "u4"), cupy.zeros(1, "u4"), cupy.zeros(128, "u4")
        function((blocks,), (128,), (parts, count, out))
        assert int(count[0]) == blocks
        np.testing.assert_array_equal(out.get(),
                                      blocks * (blocks - 1) // 2 + blocks * np.arange(128))
