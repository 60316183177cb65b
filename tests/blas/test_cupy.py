"""CuPy arrays without a GPU: they are in host memory, and plans run in the emulator."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas import pointers

from .operands import check, placed, random, seen, stored_shape

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not emulator.available():
    pytest.skip("no C++ compiler for the emulator", allow_module_level=True)

from cuteblas.engines import cuda  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402

from ..functions.host_cupy import emulated, install, on_gpu, on_host  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_host():
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        patch.setattr("cuteblas.runtime.executor", emulated)
        yield
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()


def test_products():
    rng = np.random.default_rng(0)
    for i, trans in enumerate([("N", "T"), ("C", "R"), ("R", "N")]):
        a, b = (random(rng, stored_shape(x, t), "complex64")
                for x, t in zip(((7, 5), (5, 6)), trans, strict=True))
        c = placed(random(rng, (7, 6), "complex64"), ("C", "padded", "sliced")[i])
        before = c.view.copy()
        target = on_gpu(c.view)
        got = blas.cgemm(1 + 1j, on_gpu(a), on_gpu(b), 2, target, *trans, overwrite_c=1)
        assert got is target
        check(c.view, seen(a, trans[0]), seen(b, trans[1]), "complex64", alpha=1 + 1j, beta=2,
              c=before)
        assert c.surroundings_are_untouched()


def test_new_results_are_fortran_ordered():
    a, b = np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32)
    got = blas.sgemm(1, on_gpu(a), on_gpu(b))
    assert type(got) is cupy.ndarray and got[0].flags.f_contiguous
    np.testing.assert_array_equal(on_host(got), a @ b)


def test_lists_go_to_the_device_of_the_arrays(monkeypatch):
    monkeypatch.setattr(cupy, "asarray", lambda x, order: on_gpu(np.array(x, order=order)))
    monkeypatch.setattr(cupy.cuda, "Device", lambda ordinal: nullcontext())
    got = blas.sgemm(1, on_gpu(np.ones((3, 2), np.float32)), [[1, 2], [3, 4]])
    assert type(got) is cupy.ndarray and on_host(got).tolist() == [[4, 6]] * 3


def test_scalars_on_the_device_are_not_read_by_the_host():
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    alpha = np.array(3, np.float32)
    got = blas.sgemm(on_gpu(alpha), on_gpu(a), on_gpu(b))
    np.testing.assert_array_equal(on_host(got), 12)
    plan = blas.plan(on_gpu(a), on_gpu(b), alpha=on_gpu(alpha))
    alpha[...] = -1
    np.testing.assert_array_equal(on_host(plan.execute(on_gpu(a), on_gpu(b), alpha=on_gpu(alpha))),
                                  -4)
    assert plan.plan.problem.alpha == "device"


def test_places():
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    with pytest.raises(TypeError,
                       match="a is a cupy array on cuda:0 and b a numpy array on the host"):
        blas.sgemm(1, on_gpu(a), b)
    with pytest.raises(ValueError, match="on one device, but a is on cuda:0 and b on cuda:1"):
        blas.sgemm(1, on_gpu(a), on_gpu(b, device=1))
    with pytest.raises(
        ValueError,
        match=r"takes alpha in the library and on the device of the operands, .* and alpha is"
    ):
        blas.sgemm(on_gpu(np.array(1, np.float32)), a, b)
    with pytest.raises(ValueError, match="writes out while it uses a"):
        square = on_gpu(np.ones((4, 4), np.float32))
        blas.sgemm(1, square, on_gpu(np.ones((4, 4), np.float32)), out=square)
    np.testing.assert_array_equal(on_host(blas.sgemm(np.array(2.0), on_gpu(a), on_gpu(b))), 8)


def test_plans_are_made_for_the_device():
    a, b = on_gpu(np.ones((3, 4), np.float32)), on_gpu(np.ones((4, 5), np.float32))
    plan = blas.plan(a, b)
    assert "cuda:0" in str(plan) and "NVIDIA H200" in str(plan)
    assert (on_host(plan.execute(a, b)) == 4).all()
    with pytest.raises(
        ValueError,
        match="was made for cupy arrays on cuda:0, but these are numpy arrays on the host"
    ):
        plan.execute(np.ones((3, 4), np.float32), np.ones((4, 5), np.float32))


def test_pointers(monkeypatch):
    a, b, c = (np.asfortranarray(np.ones(shape)) for shape in ((3, 4), (4, 5), (3, 5)))
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    pointers.dgemm("N", "N", 3, 5, 4, 2, a.ctypes.data, 3, b.ctypes.data, 4, 1, c.ctypes.data, 3)
    assert (c == 9).all()


def test_streams(monkeypatch):
    from cuteblas.blas import _cupy as module

    entered = []

    class Fake:
        def __init__(self, handle):
            self.handle = handle

        def __enter__(self):
            entered.append(self.handle)

        def __exit__(self, *_):
            entered.append(None)

    monkeypatch.setattr(
        module,
        "cupy",
        SimpleNamespace(cuda=SimpleNamespace(Device=Fake, ExternalStream=Fake, Stream=Fake))
    )
    a, b = on_gpu(np.ones((3, 4), np.float32)), on_gpu(np.ones((4, 5), np.float32))
    for stream in (77, SimpleNamespace(cuda_stream=77),
                   SimpleNamespace(__cuda_stream__=lambda: (0, 77)), Fake(77)):
        entered.clear()
        assert (on_host(blas.sgemm(1, a, b, stream=stream)) == 4).all()
        assert entered == [0, 77, None, None]
    for wrong in ("fast", 1.5, True):
        with pytest.raises(TypeError, match="stream has to be a CUDA stream or the handle of one"):
            blas.sgemm(1, a, b, stream=wrong)


def test_counters():
    cuteblas.reset_stats()
    blas.sgemm(1, on_gpu(np.ones((3, 4), np.float32)), on_gpu(np.ones((4, 5), np.float32)))
    assert list(cuteblas.stats()["sgemm"]["calls"]) == ["gemm_simt"]
