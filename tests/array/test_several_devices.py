"""Arrays on a GPU that is not the current one, for every way into the kernels."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(0)


@pytest.fixture
def cupy() -> Iterator[SimpleNamespace]:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one device")
    with cupy.cuda.Device(0):
        yield cupy


def on(cupy, ordinal, *arrays):
    with cupy.cuda.Device(ordinal):
        placed = [cupy.asarray(x) for x in arrays]
        cupy.cuda.runtime.deviceSynchronize()
    return placed if len(placed) > 1 else placed[0]


def integers(*shape, dtype="f4"):
    return RNG.integers(-9, 10, shape).astype(dtype)


CALLS = {
    "small": (lambda a, b: cuteblas.matmul(a, b), ((20, 30), (30, 40)), "f4"),
    "gemm_split": (lambda a, b: cuteblas.matmul(a, b), ((512, 512), (512, 640)), "f4"),
    "divided": (lambda a, b: cuteblas.matmul(a, b), ((1537, 1600), (1600, 1537)), "f4"),
    "gemm_wgmma": (lambda a, b: cuteblas.matmul(a, b), ((256, 64), (64, 512)), "f2"),
    "gemm_mma": (lambda a, b: cuteblas.matmul(a, b), ((512, 512), (512, 512)), "f8"),
    "gemm_skinny": (lambda a, b: cuteblas.matmul(a, b), ((20000, 256), (256, 32)), "f4"),
    "batch": (lambda a, b: cuteblas.matmul(a, b), ((3, 20, 30), (3, 30, 40)), "f4"),
    "einsum": (lambda a, b: cuteblas.einsum("ij,jk->ki", a, b), ((20, 30), (30, 40)), "f8"),
    "transpose": (lambda a, b: cuteblas.copy(a.T, order="C"), ((300, 200), (1, 1)), "f4"),
    "sgemm": (lambda a, b: blas.sgemm(1.0, a, b), ((200, 300), (300, 100)), "f4"),
}


@pytest.mark.parametrize("name", CALLS)
def test_work_is_done_where_the_operands_are(cupy, name):
    call, shapes, dtype = CALLS[name]
    a, b = (integers(*shape, dtype=dtype) for shape in shapes)
    expected = call(a, b)
    for ordinal in (1, 0, 1):
        for _ in range(2):                                  # the long way and the short one
            result = call(*on(cupy, ordinal, a, b))
            assert result.device.id == ordinal and cupy.cuda.Device().id == 0
            with cupy.cuda.Device(ordinal):
                np.testing.assert_array_equal(result.get(), expected)


def test_arrays_of_ours_and_hooks(cupy):
    a, b = integers(300, 400), integers(400, 500)
    x, y = on(cupy, 1, a, b)
    for call in (lambda u, v: u @ v, np.matmul, lambda u, v: np.tensordot(u, v, 1)):
        product = call(cuteblas.asarray(x), cuteblas.asarray(y))
        assert product.device == "cuda:1"
        np.testing.assert_array_equal(np.asarray(product.to_device("cpu")), a @ b)
    cuteblas.reset_stats()
    with cuteblas.enabled():
        with cupy.cuda.Device(1):
            inside = [x @ y, cupy.matmul(x, y), x.dot(y), cupy.tensordot(x, y, 1)]
        outside = x @ y
    assert all(c.device.id == 1 for c in (*inside, outside))
    with cupy.cuda.Device(1):
        assert all((c.get() == a @ b).all() for c in (*inside, outside))
    calls = cuteblas.stats()["matmul"]["calls"]
    assert not any(route.startswith("delegated") for route in calls), calls


def test_operands_on_several_devices_are_refused(cupy):
    a, b = integers(20, 30), integers(30, 40)
    with pytest.raises(ValueError, match="operands on one device"):
        cuteblas.matmul(on(cupy, 0, a), on(cupy, 1, b))
    with pytest.raises(ValueError, match="one device"):
        cuteblas.asarray(on(cupy, 0, a)) @ cuteblas.asarray(on(cupy, 1, b))


def test_threads_on_their_own_devices(cupy):
    wrong: list[tuple[int, int]] = []

    def work(ordinal: int) -> None:
        with cupy.cuda.Device(ordinal), cupy.cuda.Stream(non_blocking=True) as stream:
            for i in range(30):
                n = 384 + 64 * (i % 3)
                a, b = cupy.full((n, n), i % 5, np.float32), cupy.full((n, n), ordinal + 1, np.float32)
                if (cuteblas.matmul(a, b).get(stream=stream) != n * (i % 5) * (ordinal + 1)).any():
                    wrong.append((ordinal, i))

    threads = [threading.Thread(target=work, args=(ordinal,)) for ordinal in (0, 1, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_free_for_others_when_no_device_uses_it_any_more(cupy):
    def every_device(call):
        for ordinal in (0, 1):
            with cupy.cuda.Device(ordinal):
                call()

    pool = cupy.get_default_memory_pool()
    for n in (4096, 6144, 8192):
        a, b = on(cupy, 0, *(RNG.random((2, n, n), np.float32)))
        for divided in (False, True):
            x, y = ((cuteblas.ShardedArray.of(z, (0, 1)) for z in (a, b)) if divided else (a, b))
            for _ in range(3):
                c = cuteblas.matmul(x, y, devices=(0, 1))
                del c
                every_device(pool.free_all_blocks)
            del x, y
            every_device(pool.free_all_blocks)
        c = cuteblas.matmul(a, b, devices=(0, 1))
        expected = cuteblas.matmul(a, b)
        del a, b
        every_device(pool.free_all_blocks)
        np.testing.assert_allclose(c.get(), expected.get(), rtol=1e-5)
    every_device(cupy.cuda.runtime.deviceSynchronize)
