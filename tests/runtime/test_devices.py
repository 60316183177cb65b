"""Why there is no GPU, and what a device is like, with stand-ins for CuPy."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuteblas.planning.problem import H200
from cuteblas.runtime import available, capturing, device_info, devices, why_unavailable


class CudaError(RuntimeError):
    pass


@pytest.fixture
def machine(monkeypatch):
    """A machine with CuPy 14 and one H200; tests take away what they need to."""
    attributes = {"MultiProcessorCount": 132, "MaxSharedMemoryPerBlockOptin": 232448,
                  "ClockRate": 1980000, "MemoryClockRate": 3201000, "GlobalMemoryBusWidth": 6144,
                  "L2CacheSize": 62914560}
    runtime = SimpleNamespace(CUDARuntimeError=CudaError, getDeviceCount=lambda: 1,
                              getDeviceProperties=lambda ordinal: {"name": b"NVIDIA H200"})
    device = SimpleNamespace(id=0, compute_capability="90", attributes=attributes)
    fake = SimpleNamespace(__version__="14.2.0",
                           cuda=SimpleNamespace(runtime=runtime, Device=lambda ordinal=0: device))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace())
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    for cached in (devices._why_unavailable, devices._device_info):
        cached.cache_clear()
    yield fake
    for cached in (devices._why_unavailable, devices._device_info):
        cached.cache_clear()


def raising(error):
    def call(*_):
        raise error
    return call


def test_a_machine_with_everything(machine):
    assert why_unavailable() is None and available()


def test_no_cupy(machine, monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert not available()
    assert why_unavailable() == "CuPy is not installed: pip install 'cuteblas[cuda13]' (or 'cuteblas[cuda12]' for a CUDA 12 driver)"


def test_a_broken_cupy(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert why_unavailable().startswith("GPU kernels need cupy, which cannot be imported (")


BROKEN = {"an empty folder": None, "nothing": "",
          "half of CUDA": "__version__ = '14.0.0'\nclass cuda: pass",
          **{error: f"raise {error}('first line\\nsecond line')"
             for error in ("ImportError", "OSError", "KeyError", "SystemExit")},
          "no words": "raise ValueError", "no Python": "this is not Python"}
CALLS = """
import sys, numpy as np, cuteblas
from cuteblas.cli import main
from cuteblas.runtime import MissingDependency
a = np.ones((3, 3), np.float32)
assert (cuteblas.asarray([1, 2]) == [1, 2]).all() and (cuteblas.matmul(a, a) == 3).all()
def on_a_gpu():
    with cuteblas.backend("cuda"):
        cuteblas.matmul(a, a)
for call in (on_a_gpu, cuteblas.install, lambda: cuteblas.empty_pinned(3), lambda: cuteblas.matmul(a, a, devices="all"),
             lambda: cuteblas.einsum("ij,jk", a, a, devices=[0]), lambda: cuteblas.tensordot(a, a, devices=(0, 7)),
             lambda: cuteblas.blas.sgemm(1, a, a, devices="all"), lambda: cuteblas.ShardedArray.of(a, devices=(0,)),
             lambda: cuteblas.ShardedArray.like((3, 3), "float32", devices=(0,)),
             lambda: cuteblas.runtime.device_info()):
    try:
        call()
        raise SystemExit("nothing was raised")
    except MissingDependency as error:
        assert len(str(error).splitlines()) == 1, error
        print(error)
for devices, expected in (("x", ValueError), ([], ValueError), ([-1], ValueError), ([0, 0], ValueError), (["0"], TypeError),
                          (0, TypeError), ([None], TypeError)):
    try:
        cuteblas.matmul(a, a, devices=devices)
        raise SystemExit("nothing was raised")
    except (TypeError, ValueError) as error:
        assert type(error) is expected and "matmul takes" in str(error) and len(str(error).splitlines()) == 1, error
try:
    cuteblas.asarray([1], device="cuda")
except ValueError as error:
    assert "Device not understood" in str(error) and len(str(error).splitlines()) == 1, error
sys.exit(main(["doctor"]))
"""


@pytest.mark.parametrize("how", BROKEN)
def test_a_cupy_that_cannot_be_imported_is_one_that_is_missing(how, tmp_path):
    """Calls that need it raise the one error of this package, in one line; all others work."""
    if BROKEN[how] is None and find_spec("cupy"):
        pytest.skip("CuPy is installed, and comes before a folder without files")
    (tmp_path / "cupy").mkdir()
    if BROKEN[how] is not None:
        (tmp_path / "cupy" / "__init__.py").write_text(BROKEN[how], encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True,
                          env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "this is unexpected" not in done.stdout and "pip install" in done.stdout
    assert how not in ("OSError", "SystemExit") or "first line" in done.stdout


@pytest.mark.skipif(find_spec("cupy") is None or available(),
                    reason="this is of a machine with CuPy and without a driver")
def test_a_cupy_without_a_driver():
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and "the CUDA driver is missing or cannot be used: cudaError" in done.stdout, done.stderr


def test_an_old_cupy(machine):
    machine.__version__ = "13.6.0"
    assert why_unavailable().startswith("CuPy 13.6.0 is too old, and cuteblas needs 14 or newer")


def test_no_driver(machine):
    machine.cuda.runtime.getDeviceCount = raising(CudaError("cudaErrorInsufficientDriver: too old"))
    assert why_unavailable() == "the CUDA driver is missing or cannot be used: cudaErrorInsufficientDriver: too old"


def test_no_device(machine):
    machine.cuda.runtime.getDeviceCount = lambda: 0
    assert why_unavailable() == "the CUDA driver does not find a device"


def test_no_cuda_core(machine, monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "cuda.core"
                        else object())
    assert why_unavailable().startswith(
        "GPU kernels need cuda.core, which is not installed: pip install"
    )


def test_the_question_is_asked_once(machine):
    assert available()
    machine.cuda.runtime.getDeviceCount = raising(AssertionError("asked again"))
    assert available()


def test_device_info_of_an_h200(machine):
    info = device_info()
    assert replace(info, bandwidth=H200.bandwidth) == H200
    assert info.bandwidth == pytest.approx(H200.bandwidth, rel=0.01)
    assert device_info(0) is info


@pytest.mark.parametrize("answer", [True, False])
def test_whether_the_current_stream_is_captured(machine, answer):
    machine.cuda.get_current_stream = lambda: SimpleNamespace(ptr=7)
    machine.cuda.runtime.streamIsCapturing = {7: answer}.__getitem__
    assert capturing() is answer


def test_a_stream_that_may_not_be_asked_counts_as_captured(machine):
    machine.cuda.get_current_stream = lambda: SimpleNamespace(ptr=7)
    machine.cuda.runtime.streamIsCapturing = raising(CudaError("cudaErrorStreamCaptureImplicit"))
    assert capturing()


@pytest.mark.skipif(sys.platform != "linux", reason="the linker of Linux")
def test_nvrtc_is_loaded_where_it_is_a_package_and_compiles(tmp_path):
    program = """
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.runtime.compiler import compile
from cuteblas.runtime.devices import load_libraries
before = open("/proc/self/maps").read()
load_libraries()
print("libnvrtc.so" in before, "libnvrtc.so" in open("/proc/self/maps").read())
assert compile(KernelBuilder("example", threads=32).build(), "sm_90").startswith(b"\\x7fELF")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                         env={**os.environ, "CUTEBLAS_CACHE_DIR": str(tmp_path)})
    installed = [folder for folder in getattr(find_spec("nvidia"), "submodule_search_locations", ())
                 if [*Path(folder).glob("*/lib/libnvrtc.so.*")]]
    assert run.stdout.split() == ["False", str(bool(installed))]
