"""The prelude: only what a kernel needs, and the only place with PTX."""

import ctypes
import itertools
import re
from pathlib import Path

import pytest

import cuteblas
from cuteblas import emulator
from cuteblas.codegen.kernel import GeneratedKernel
from cuteblas.codegen.prelude import cuda_prelude
from cuteblas.codegen.values import Use
from cuteblas.emulator.compiler import build


def test_parts_are_included_on_demand():
    assert "mbarrier" not in cuda_prelude([Use("load_global", ("1",))])
    text = cuda_prelude([Use("wgmma_m64k16", ("64", "cb::half", "0", "1"))])
    assert text.count("wgmma.mma_async") == 1 and "m64n64k16.f32.f16.f16" in text and "p, 1, 1, 0, 1;" in text


def test_no_headers_and_no_fast_math():
    text = cuda_prelude([Use("tma_load")])
    assert "#include" not in text and "ftz" not in text and "__fdividef" not in text


def test_ptx_lives_in_the_prelude_alone():
    package = Path(cuteblas.__file__).parent
    for path in package.rglob("*.py"):
        if "prelude" not in path.parts and "emulator" not in path.parts:
            assert not re.search(r"asm volatile|\basm\(", path.read_text()), path


def test_the_digest_is_of_the_whole_source():
    one, two = (GeneratedKernel("k", body, (), 32) for body in ("a", "b"))
    assert one.digest != two.digest and one.digest == GeneratedKernel("k", "a", (), 32).digest


# The real products of one lane, where every lane holds the same elements: rows 0 to 7 and 8 to 15,
# four columns of k.
ONE_LANE = """
#include <cstring>
#define CB_DEVICE inline
inline int __double2hiint(double x) { long long bits; std::memcpy(&bits, &x, 8); return static_cast<int>(bits >> 32); }
inline int __double2loint(double x) { long long bits; std::memcpy(&bits, &x, 8); return static_cast<int>(bits); }
inline double __hiloint2double(int hi, int lo) {
  unsigned long long const bits = static_cast<unsigned long long>(static_cast<unsigned>(hi)) << 32 | static_cast<unsigned>(lo);
  double x; std::memcpy(&x, &bits, 8); return x;
}
namespace cb {
template <class T> struct complex { T re, im; };
template <class In> void mma_m16n8k16(In* d, In const* a, In const* b) {
  for (int v = 0; v < 4; ++v) {
    for (int k = 0; k < 4; ++k) d[v] += a[2 * k + v / 2] * b[k];
  }
}
template <class In> void mma_m8n8k4(In* d, In const* a, In const* b) {
  for (int v = 0; v < 2; ++v) d[v] += a[0] * b[0];
}
}
"""
CALLS = """
extern "C" __attribute__((visibility("default"))) void product(double* d, double const* a, double const* b, int conj) {
  using C = cb::complex<double>;
  auto const call = conj ? ATOM<true> : ATOM<false>;
  call(reinterpret_cast<C*>(d), reinterpret_cast<C const*>(a), reinterpret_cast<C const*>(b));
}
"""


@pytest.mark.skipif(not emulator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("depth", [4, 8])
def test_signs_of_the_complex_product(depth):
    """The text that the GPU compiles, on the host: one instruction, or four before sm_90, for every
    fourth k."""
    atom = f"complex_mma_m8n8k{depth}"
    text = cuda_prelude([Use(atom, ("true",))])
    assert "m16n8k16.row.col.f64" in text and "m8n8k4.row.col.f64" in text
    functions = text[text.index("// cuteblas prelude, complex"):]
    library = build(f"{ONE_LANE}{functions}{CALLS.replace('ATOM', 'cb::' + atom)}", "the prelude",
                    headers=())
    held = depth // 4
    for x, y, conj in itertools.product((1, 1j, 2 - 3j), (1, 1j, 5 + 7j), (0, 1)):
        a, b = [x, x + 3 - 2j][:held], [y, 2 * y - 1j][:held]
        d, several = (ctypes.c_double * 4)(1, 2, 3, 4), ctypes.c_double * (2 * held)
        library.product(d, *(several(*(part for z in zs for part in (z.real, z.imag)))
                             for zs in (a, b)), conj)
        product = sum(u * (complex(v).conjugate() if conj else v)
                      for u, v in zip(a, b, strict=True))
        assert [complex(d[0], d[1]), complex(d[2], d[3])] == [1 + 2j + product, 3 + 4j + product]


def test_flags_release_and_acquire():
    """The emulator has its own flags: it does not see what these are."""
    text = cuda_prelude([])
    flags = text[text.index("unsigned load_flag("):text.index("// -- Asynchronous copies")]
    assert all(word in flags for word in ("ld.acquire.gpu", "st.release.gpu", "atom.acq_rel.gpu"))
    assert flags.count("asm volatile") == flags.count('"memory"') == 3
