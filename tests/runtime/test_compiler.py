"""Real kernels compiled to cubins without a GPU."""

import os
import pickle
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from cuteblas._cache import cache_directory, usage
from cuteblas.runtime import (
    CompileError,
    MissingDependency,
    compile,
    compiler,
    compiler_version,
    supported_architectures,
)
from tests.runtime.samples import CLUSTER_RANK, LOAD_BOX, MULTIPLY, REVERSE

try:
    OLDEST = supported_architectures()[0]
except MissingDependency as error:
    pytest.skip(str(error), allow_module_level=True)


def is_cubin(data):
    return data[:4] == b"\x7fELF"


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "kernels"))


@pytest.fixture
def no_compiler(monkeypatch):
    """Makes every use of NVRTC fail."""
    import cuda.core

    def refuse(*_):
        raise AssertionError("the compiler was used")
    monkeypatch.setattr(cuda.core, "Program", refuse)


def machine_of(cubin):
    """The architecture's number, which an ELF file for CUDA keeps in the second byte of its
    flags."""
    return struct.unpack_from("<I", cubin, 48)[0] >> 8 & 0xFF


@pytest.mark.parametrize("kernel, arch", [(MULTIPLY, OLDEST), (MULTIPLY, "sm_80"),
                                          (MULTIPLY, "sm_90"), (MULTIPLY, "sm_90a"),
                                          (REVERSE, OLDEST), (REVERSE, "sm_90"),
                                          (CLUSTER_RANK, "sm_90"), (LOAD_BOX, "sm_90a"),],
                         ids=lambda value: getattr(value, "name", value))
def test_kernels_compile(kernel, arch):
    cubin = compile(kernel, arch)
    assert is_cubin(cubin)
    assert machine_of(cubin) == int(arch.strip("sm_a"))
    assert kernel.name.encode() in cubin


def test_the_suffix_reaches_the_compiler():
    body = """extern "C" __global__ void fence(float* x) { asm volatile("wgmma.fence.sync.aligned;"); *x = 1; }"""
    kernel = replace(MULTIPLY, name="fence", body=body)
    assert is_cubin(compile(kernel, "sm_90a"))
    with pytest.raises(CompileError, match="wgmma"):
        compile(kernel, "sm_90")


def test_arithmetic_is_ieee(monkeypatch, empty_cache):
    import cuda.core

    options, program = [], cuda.core.Program

    def watched(code, kind, chosen):
        options.extend(chosen.as_bytes("nvrtc"))
        return program(code, kind, chosen)
    monkeypatch.setattr(cuda.core, "Program", watched)
    compile(MULTIPLY, "sm_90")
    assert {b"--ftz=false", b"--prec-div=true", b"--prec-sqrt=true", b"--fmad=true"} <= set(options)
    assert not any(b"fast" in option for option in options)


def test_threads_import_the_compiler_at_the_same_time(tmp_path):
    """cuda.core replaces its module while it is imported: other threads must not see it half
    initialised."""
    program = (
        "import sys\nfrom concurrent.futures import ThreadPoolExecutor\nfrom cuteblas.runtime import compile\n"
        "from tests.runtime.samples import MULTIPLY, REVERSE\nsys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(all(pool.map(lambda kernel: compile(kernel, 'sm_90'), [MULTIPLY, REVERSE] * 4)))"
    )
    environment = os.environ | {"CUTEBLAS_CACHE_DIR": str(tmp_path),
                                "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=environment, timeout=120)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_an_error_names_the_kernel_and_shows_the_compilers_lines(empty_cache):
    broken = replace(
        MULTIPLY,
        name="broken",
        body='extern "C" __global__ void broken(float* c) {\n  *c = undeclared + 1.f;\n}\n'
    )
    with pytest.raises(CompileError) as caught:
        compile(broken, "sm_80")
    text = str(caught.value)
    assert text.startswith(
        f"kernel broken does not compile for sm_80: NVRTC {compiler_version()} says\n"
    )
    assert 'identifier "undeclared" is undefined' in text and "*c = undeclared + 1.f;" in text
    assert (caught.value.kernel, caught.value.arch) == (
        "broken",
        "sm_80"
    ) and "undeclared" in caught.value.log
    assert "\0" not in text
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.kernel, again.arch, again.log) == (text, "broken", "sm_80",
                                                                 caught.value.log)
    assert usage("entries") == (0, 0)


def test_an_architecture_that_the_compiler_does_not_know(no_compiler):
    with pytest.raises(CompileError,
                       match=rf"for sm_60: NVRTC [\d.]+ compiles for {OLDEST}, .*sm_90.* only"):
        compile(MULTIPLY, "sm_60")


def test_the_cache_answers_another_process(empty_cache, no_compiler):
    program = "from cuteblas.runtime import compile; from tests.runtime.samples import MULTIPLY; compile(MULTIPLY, 'sm_90')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert usage("entries").files == 1
    assert is_cubin(compile(MULTIPLY, "sm_90"))
    for other in (replace(MULTIPLY, body=MULTIPLY.body + "\n// another"),
                  replace(MULTIPLY, name="other")):
        with pytest.raises(CompileError, match="the compiler was used"):
            compile(other, "sm_90")
    with pytest.raises(CompileError, match="the compiler was used"):
        compile(MULTIPLY, "sm_80")


def test_a_damaged_entry_is_replaced(empty_cache):
    whole = compile(MULTIPLY, "sm_90")
    (entry,) = (path for path in (cache_directory() / "entries").rglob("*") if path.is_file())
    kept = entry.read_bytes()
    for damaged in (kept[:-100], whole, b"", kept[:99] + bytes([kept[99] ^ 1]) + kept[100:]):
        entry.write_bytes(damaged)
        assert compile(MULTIPLY, "sm_90") == whole
        assert entry.read_bytes() == kept


def test_without_a_place_to_keep_it_a_kernel_still_compiles(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    monkeypatch.setattr("cuteblas._cache._warned", [])
    with pytest.warns(RuntimeWarning, match=r"cannot be used .* set CUTEBLAS_CACHE_DIR"):
        assert is_cubin(compile(MULTIPLY, "sm_90"))


@pytest.mark.parametrize("module", ["cuda.core", "cuda.bindings.nvrtc"])
def test_without_cuda_core_the_message_says_what_to_install(monkeypatch, module):
    compiler._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency,
                       match=rf"need {module}, .* pip install 'cuteblas\[cuda13\]'"):
        compile(MULTIPLY, "sm_90", fresh=True)


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch):
    from cuda.bindings import nvrtc

    def missing():
        raise RuntimeError("libnvrtc.so.13 not found")
    compiler._nvrtc.cache_clear()
    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    with pytest.raises(MissingDependency,
                       match=r"needs the NVRTC library, .* pip install 'cuteblas\[cuda13\]'"):
        compile(MULTIPLY, "sm_90")


def test_a_fresh_compilation_asks_no_cache(monkeypatch):
    asked = []
    monkeypatch.setattr(compiler, "find", lambda *_: asked.append("find"))
    monkeypatch.setattr(compiler, "keep", lambda *_: asked.append("keep"))
    assert compile(MULTIPLY, "sm_90", fresh=True) == compile(MULTIPLY, "sm_90")
    assert asked == ["keep", "find", "keep"]


def test_another_compiler_has_cubins_of_its_own(empty_cache, no_compiler, monkeypatch):
    from cuda.bindings import nvrtc

    program = "from cuteblas.runtime import compile; from tests.runtime.samples import MULTIPLY; compile(MULTIPLY, 'sm_90')"
    subprocess.run([sys.executable, "-c", program],
                   env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True)
    assert compile(MULTIPLY, "sm_90").startswith(b"\x7fELF")
    status, major, minor = nvrtc.nvrtcVersion()
    for version in ((major, minor + 1), (major + 1, minor)):
        compiler._nvrtc.cache_clear()
        monkeypatch.setattr(nvrtc, "nvrtcVersion", lambda version=version: (status, *version))
        with pytest.raises(CompileError, match="the compiler was used"):
            compile(MULTIPLY, "sm_90")
    monkeypatch.undo()
    compiler._nvrtc.cache_clear()
