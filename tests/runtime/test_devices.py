"""Why there is no GPU, and what a device is like, with stand-ins for CuPy."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cuteblas.planning.problem import H200
from cuteblas.runtime import available, capturing, device_info, devices, why_unavailable


class CudaError(RuntimeError):
    pass


@pytest.fixture
def machine(monkeypatch):
    """A machine with CuPy 14 and one H200; tests take away what they need to."""
    attributes = {"MultiProcessorCount": 132, "MaxSharedMemoryPerBlockOptin": 232448, "ClockRate": 1980000,
                  "MemoryClockRate": 3201000, "GlobalMemoryBusWidth": 6144, "L2CacheSize": 62914560}
    runtime = SimpleNamespace(CUDARuntimeError=CudaError, getDeviceCount=lambda: 1,
                              getDeviceProperties=lambda ordinal: {"name": b"NVIDIA H200"})
    device = SimpleNamespace(id=0, compute_capability="90", attributes=attributes)
    fake = SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(runtime=runtime, Device=lambda ordinal=0: device))
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
    assert why_unavailable().startswith("CuPy cannot be imported: ")


def test_an_old_cupy(machine):
    machine.__version__ = "13.6.0"
    assert why_unavailable().startswith("CuPy 13.6.0 is too old, 14 or newer is needed")


def test_no_driver(machine):
    machine.cuda.runtime.getDeviceCount = raising(CudaError("cudaErrorInsufficientDriver: too old"))
    assert why_unavailable() == "the CUDA driver is missing or cannot be used: cudaErrorInsufficientDriver: too old"


def test_no_device(machine):
    machine.cuda.runtime.getDeviceCount = lambda: 0
    assert why_unavailable() == "the CUDA driver finds no device"


def test_no_cuda_core(machine, monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "cuda.core" else object())
    assert why_unavailable().startswith("GPU kernels need cuda.core, which is not installed: pip install")


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
