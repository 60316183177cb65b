"""The prelude: only what a kernel needs, and the only place with PTX."""

import re
from pathlib import Path

import cuteblas
from cuteblas.codegen.kernel import GeneratedKernel
from cuteblas.codegen.prelude import cuda_prelude


def test_parts_are_included_on_demand():
    assert "mbarrier" not in cuda_prelude("cb::load_global<1>(r, g);")
    text = cuda_prelude("cb::wgmma_m64k16<64, cb::half, 0, 1>(d, a, b, 1); cb::wgmma_m64k16<64, cb::half, 0, 1>(d, a, b, 1);")
    assert text.count("wgmma.mma_async") == 1 and "m64n64k16.f32.f16.f16" in text and "p, 1, 1, 0, 1;" in text


def test_no_headers_and_no_fast_math():
    text = cuda_prelude("cb::tma_load(...)")
    assert "#include" not in text and "ftz" not in text and "__fdividef" not in text


def test_ptx_lives_in_the_prelude_alone():
    package = Path(cuteblas.__file__).parent
    for path in package.rglob("*.py"):
        if "prelude" not in path.parts and "emulator" not in path.parts:
            assert not re.search(r"asm volatile|\basm\(", path.read_text()), path


def test_the_digest_is_of_the_whole_source():
    one, two = (GeneratedKernel("k", body, (), 32) for body in ("a", "b"))
    assert one.digest != two.digest and one.digest == GeneratedKernel("k", "a", (), 32).digest
