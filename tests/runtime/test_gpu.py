"""Real kernels on a real device."""

import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas.planning.plan import Argument
from cuteblas.runtime import DriverError, Executor, device_info, executor, loading, warmup
from tests.runtime.samples import (
    BOX,
    CLUSTER_RANK,
    LOAD_BOX,
    MULTIPLY,
    REVERSE,
    copy_plan,
    following_plan,
    multiply_plan,
)

pytestmark = pytest.mark.gpu


@pytest.fixture
def cp():
    import cupy

    return cupy


def stream_of(cp):
    return cp.cuda.get_current_stream().ptr


def launch(cp, ready, *arrays, **scalars):
    ready.launch(tuple(array.data.ptr for array in arrays), stream_of(cp), **scalars)


@pytest.mark.parametrize("n", [1, 128, 1000, 100003])
def test_a_kernel_computes(cp, n):
    a, b, c = (cp.arange(n, dtype="f4") + i for i in range(3))
    want = 2 * a.get() * b.get() + 3 * c.get()
    ready = executor(multiply_plan(n))
    launch(cp, ready, a, b, c, alpha=2, beta=3)
    np.testing.assert_allclose(c.get(), want, rtol=1e-6)
    launch(cp, ready, a, b, c)
    np.testing.assert_array_equal(c.get(), a.get() * b.get())


def test_denormals_are_kept(cp):
    # CuPy's own kernels flush denormals
    a, b, c = (cp.asarray(np.full(4, x, "f4")) for x in (2.0**-130, 0.5, 0))
    launch(cp, executor(multiply_plan(4, alpha=1.0, beta=0.0)), a, b, c)
    assert (c.get() == np.float32(2.0**-131)).all()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_types_of_ml_dtypes_in_cupys_arrays(cp, name):
    """CuPy moves their bits; copies and casts are ours."""
    kind = getattr(ml_dtypes, name)
    x = np.arange(2**14).astype(f"u{np.dtype(kind).itemsize}").reshape(128, 128)
    on_gpu, x = cp.asarray(x).view(kind), x.view(kind)
    for view, want in ((on_gpu, x), (on_gpu.T, x.T)):
        assert cuteblas.copy(view, "C").view(np.uint8).get().tobytes() == want.tobytes()
        for target in ("f4", "f8"):
            assert cuteblas.ascontiguousarray(view, target).get().tobytes() == want.astype(target).tobytes()
    numbers = np.random.default_rng(0).standard_normal((100, 70)).astype("f4") * 100
    with np.errstate(over="ignore"):
        result = cuteblas.ascontiguousarray(cp.asarray(numbers).T, kind)
    assert result.view(np.uint8).get().tobytes() == numbers.T.astype(kind).tobytes()


def test_more_than_48_kib_of_shared_memory(cp):
    src, dst = cp.arange(256, dtype="f4"), cp.zeros(256, "f4")
    launch(cp, executor(copy_plan(REVERSE, (1, 1, 1), (Argument("src"), Argument("dst")))), src,
           dst)
    np.testing.assert_array_equal(dst.get(), src.get()[::-1])


def test_an_offset_is_added_to_the_address(cp):
    src, dst = cp.arange(300, dtype="f4"), cp.zeros(256, "f4")
    launch(cp, executor(copy_plan(REVERSE, (1, 1, 1),
                                  (Argument("src", offset=40), Argument("dst")))), src, dst)
    np.testing.assert_array_equal(dst.get(), src.get()[10:266][::-1])


def test_clusters(cp):
    if device_info().arch < "sm_90":
        pytest.skip("clusters need sm_90")
    src, dst = cp.zeros(8, "i4"), cp.full(8, -1, "i4")
    launch(cp, executor(copy_plan(CLUSTER_RANK, (8, 1, 1), (Argument("src"), Argument("dst")))),
           src, dst)
    assert dst.get().tolist() == [0, 1] * 4


@pytest.mark.parametrize("column, row", [(0, 0), (40, 17), (88, 45), (-4, -2)])
# the innermost coordinate is a multiple of 16 bytes
def test_a_tensor_map_describes_the_tensor(cp, column, row):
    if device_info().arch != "sm_90":
        pytest.skip("the kernel is for sm_90a")
    rows = cp.arange(50 * 104, dtype="f4").reshape(50, 104) + 1
    padded = np.zeros((50 + 20, 100 + 80), "f4")
    padded[5:55, 5:105] = rows.get()[:, :100]
    arguments = (Argument("src", tensor_map=BOX), Argument("dst"), Argument(value=column),
                 Argument(value=row))
    ready = executor(copy_plan(LOAD_BOX, (1, 1, 1), arguments))
    for source in (rows, rows.copy(), rows):
        dst = cp.full((8, 32), -1, "f4")
        launch(cp, ready, source, dst)
        np.testing.assert_array_equal(dst.get(), padded[row + 5:row + 13, column + 5:column + 37])


def test_launches_go_to_the_given_stream_in_order(cp):
    n = 1 << 20
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        a, b, c = cp.full(n, 2, "f4"), cp.full(n, 3, "f4"), cp.zeros(n, "f4")
        ready = executor(multiply_plan(n, launches=3))
        launch(cp, ready, a, b, c, beta=1)
        assert (c.get(stream=stream) == 18).all()


@pytest.mark.parametrize("captured", [False, True])
def test_launches_that_overlap_see_what_those_before_wrote(cp, captured):
    if device_info().arch < "sm_90":
        pytest.skip("launches overlap from sm_90 on")
    n, launches = 1 << 22, 20
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        a, b, c = cp.ones(n, "f4"), cp.ones(n, "f4"), cp.zeros(n, "f4")
        ready = executor(following_plan(n, launches))
        stream.synchronize()
        if captured:
            stream.begin_capture()
        launch(cp, ready, a, b, c, alpha=1, beta=2)
        if captured:
            stream.end_capture().launch(stream)
        assert (c.get(stream=stream) == 2**launches - 1).all()


@pytest.mark.parametrize("captured", [False, True])
def test_a_launch_waits_for_whatever_is_ahead_of_it(cp, captured):
    """Kernels of others, copies and fills, which know nothing of overlapping, on its stream and on
    another one."""
    n = 1 << 22
    with cp.cuda.Stream(non_blocking=True) as stream:
        other, done = cp.cuda.Stream(non_blocking=True), cp.cuda.Event(disable_timing=True)
        a, b, c, d = cp.ones(n, "f4"), cp.full(n, 5, "f4"), cp.zeros(n, "f4"), cp.zeros(n, "f4")
        ready = executor(following_plan(n, 1))
        scale = cp.ElementwiseKernel("float32 x", "float32 y",
                                     "for (int i = 0; i < 2000; ++i) y = y * 0.5f + x * 0.5f",
                                     "approach")
        scale(d, d)
        stream.synchronize()
        for _ in range(1 if captured else 20):
            if captured:
                stream.begin_capture()
            a.data.memset_async(0, a.nbytes, stream)
            launch(cp, ready, a, b, c, alpha=1, beta=0)             # 0 b
            scale(b, c)                                             # 5
            launch(cp, ready, c, b, d, alpha=1, beta=0)             # 25
            done.record(stream)
            other.wait_event(done)
            with other:
                scale(d, a)                                         # 25
                done.record(other)
            stream.wait_event(done)
            launch(cp, ready, a, d, c, alpha=1, beta=0)             # 625
            d.data.copy_from_device_async(c.data, c.nbytes, stream)
            launch(cp, ready, d, b, a, alpha=1, beta=0)             # 3125
            if captured:
                stream.end_capture().launch(stream)
            assert (a.get(stream=stream) == 3125).all()


def test_an_overlapping_launch_that_is_refused_is_named(cp):
    ready = executor(following_plan(1, 2))
    arguments, (first, second) = ready._blocks.pop()
    ready._blocks.append((arguments, (first, second._replace(shared_bytes=1 << 20))))
    a = cp.zeros(1, "f4")
    with pytest.raises(DriverError,
                       match="launching kernel following on device 0: CUDA_ERROR_INVALID_VALUE"):
        launch(cp, ready, a, a, a)


def test_threads_share_an_executor(cp):
    n, errors = 4096, []
    ready = executor(multiply_plan(n))

    def work(seed):
        with cp.cuda.Stream(non_blocking=True) as stream:
            for i in range(50):
                a, b, c = cp.full(n, seed, "f4"), cp.full(n, i, "f4"), cp.zeros(n, "f4")
                launch(cp, ready, a, b, c, alpha=2)
                if (c.get(stream=stream) != 2 * seed * i).any():
                    errors.append((seed, i))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_thread_that_never_used_the_device(cp):
    a, b, c = (cp.ones(64, "f4") for _ in range(3))
    ready, addresses, stream = executor(multiply_plan(64)), tuple(x.data.ptr
                                                                  for x in (a, b, c)), stream_of(cp)
    failures = []

    def work():
        try:
            ready.launch(addresses, stream, alpha=5)
        except RuntimeError as error:
            failures.append(error)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures and (c.get() == 5).all()


def test_threads_wait_for_the_device_while_graphs_are_made(cp):
    """A stream that is being captured would end both the capture and their wait by an error."""
    a, b, c = cp.full(64, 2, "f4"), cp.full(64, 3, "f4"), cp.zeros(64, "f4")
    errors, done = [], threading.Event()

    def wait():
        while not done.is_set():
            try:
                cp.cuda.runtime.deviceSynchronize()
            except cp.cuda.runtime.CUDARuntimeError as error:
                errors.append(error)
    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    made = []
    for _ in range(40):
        ready = executor(multiply_plan(64, launches=8))
        for _ in range(4):
            launch(cp, ready, a, b, c)
        made.append(ready._streams[stream_of(cp)].graph)
    done.set()
    for thread in threads:
        thread.join()
    assert not errors and all(made) and (c.get() == 6).all()


def test_a_captured_launch_replays(cp):
    n = 1000
    plan = multiply_plan(n)
    warmup(plan)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:                            # which does not wait for arrays that other streams fill
        a, b, c = cp.full(n, 2, "f4"), cp.full(n, 3, "f4"), cp.zeros(n, "f4")
        stream.begin_capture()
        launch(cp, executor(plan), a, b, c, beta=1)
        graph = stream.end_capture()
        assert not c.get(stream=stream).any()
        for _ in range(3):
            graph.launch(stream)
        assert (c.get(stream=stream) == 18).all()


def test_a_capture_that_would_have_to_compile_says_so(cp):
    plan = multiply_plan(1)
    cold = replace(MULTIPLY, name="cold", body=MULTIPLY.body.replace("multiply", "cold"))
    cold_plan = replace(plan, launches=(replace(plan.launches[0], kernel=cold),))
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(RuntimeError, match="kernel cold is not loaded on device 0, and"):
                executor(cold_plan)
        finally:
            stream.end_capture()
        executor(cold_plan)


def test_a_workspace_is_given_to_the_kernels(cp):
    n = 1000
    a, b, c = cp.full(n, 2, "f4"), cp.full(n, 3, "f4"), cp.zeros(n, "f4")
    plan = multiply_plan(n)
    (step,) = plan.launches
    into = replace(step, arguments=(*step.arguments[:2], Argument("workspace", offset=512),
                                    *step.arguments[3:]))
    out_of = replace(step, arguments=(Argument("workspace", offset=512), *step.arguments[1:]))
    launch(cp, executor(replace(plan, launches=(into, out_of), workspace_bytes=512 + 4 * n)), a, b,
           c)
    assert (c.get() == 18).all()


def test_the_driver_names_its_error(cp):
    ready = Executor(multiply_plan(1), 0, (loading.load_all([REVERSE], 0)[0].function,),
                     cp.cuda.driver.launchKernel)
    arguments, (call,) = ready._blocks.pop()
    ready._blocks.append((arguments, (call._replace(shared_bytes=1 << 20),)))
    a = cp.zeros(256, "f4")
    with pytest.raises(DriverError,
                       match="launching kernel multiply on device 0: CUDA_ERROR_INVALID_VALUE"):
        launch(cp, ready, a, a, a)


def test_a_kernel_for_another_architecture_is_refused(cp):
    plan = multiply_plan(1)
    newer = replace(MULTIPLY, arch="sm_999")
    with pytest.raises(ValueError, match="needs sm_999 or newer, but the device is sm_"):
        executor(replace(plan, launches=(replace(plan.launches[0], kernel=newer),)))


def test_every_device_has_its_own_executor(cp):
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one device")
    for ordinal in (0, 1):
        with cp.cuda.Device(ordinal):
            a, b, c = cp.full(64, 2, "f4"), cp.full(64, 3, "f4"), cp.zeros(64, "f4")
            ready = executor(multiply_plan(64))
            assert ready.ordinal == ordinal
            launch(cp, ready, a, b, c)
            assert (c.get() == 6).all()


def test_device_info_is_plausible(cp):
    info = device_info()
    assert info.name and info.arch.startswith("sm_") and info.multiprocessors > 0
    assert info.shared_bytes_per_block >= 48 * 1024 and info.l2_bytes > 0
    assert 3e8 < info.clock_hz < 5e9 and 1e10 < info.bandwidth < 2e13
