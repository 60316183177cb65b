"""Executors with a fake driver."""

import ctypes
import sys
import threading
import time
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from cuteblas.planning.plan import Argument, Launch, Plan
from cuteblas.planning.problem import H200
from cuteblas.runtime import DriverError, Executor, executor, loading, warmup
from cuteblas.runtime.driver import LaunchError
from cuteblas.runtime.executor import _launched_on, check_launch
from tests.runtime.samples import (
    CLUSTER_RANK,
    COPY,
    GEMM,
    MULTIPLY,
    REVERSE,
    copy_plan,
    following_plan,
    multiply_plan,
)


class FakeLaunch:
    """Stands for ``cuLaunchKernel``: reads the arguments of :data:`MULTIPLY` as the driver does."""

    types = (ctypes.c_uint64,) * 3 + (ctypes.c_int32, ctypes.c_float, ctypes.c_float)

    def __init__(self, delay=None):
        self.calls = []
        self.delay = delay

    def __call__(self, function, x, y, z, bx, by, bz, shared_bytes, stream, parameters, extra):
        if self.delay is not None:
            time.sleep(self.delay)
        pointers = (ctypes.c_void_p * len(self.types)).from_address(parameters)
        arguments = tuple(kind.from_address(p).value
                          for kind, p in zip(self.types, pointers, strict=True))
        self.calls.append((function, (x, y, z), (bx, by, bz), shared_bytes, stream, arguments,
                           extra))


@pytest.fixture
def fake_cupy(monkeypatch):
    """CuPy with one current device, number 0, and no GPU."""
    class Memory:
        def __init__(self, size):
            self.size, self.ptr = size, 0x5000

    fake = SimpleNamespace(contexts=0, allocated=[], capturing=False)

    def free(pointer):
        fake.contexts += 1

    def alloc(size):
        fake.allocated.append(Memory(size))
        return fake.allocated[-1]
    runtime = SimpleNamespace(free=free, CUDARuntimeError=RuntimeError,
                              streamIsCapturing=lambda stream: fake.capturing)
    fake.cuda = SimpleNamespace(Device=lambda *_: SimpleNamespace(id=0), alloc=alloc,
                                runtime=runtime, get_current_stream=lambda: SimpleNamespace(ptr=7))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_a_launch_passes_everything_on(fake_cupy):
    recorder = FakeLaunch()
    plan = multiply_plan(1000, launches=2)
    Executor(plan, 0, (11, 22), recorder).launch((1, 2, 3), 77, alpha=2, beta=0.5)
    assert recorder.calls == [(function, (8, 1, 1), (128, 1, 1), 0, 77, (1, 2, 3, 1000, 2.0, 0.5),
                               0) for function in (11, 22)]


def test_kernels_that_wait_are_launched_another_way(fake_cupy):
    plain, overlapping = FakeLaunch(), FakeLaunch()
    following = following_plan(1000, launches=3)
    plan = replace(following, launches=(*multiply_plan(1000).launches, *following.launches[1:]))
    Executor(plan, 0, (11, 22, 33), plain, lambda: overlapping).launch((1, 2, 3), 77)
    assert [call[0] for call in plain.calls] == [11] and [call[0]
                                                          for call in overlapping.calls] == [22, 33]
    assert overlapping.calls[0][1:] == plain.calls[0][1:]


def test_launches_overlap_from_sm_90_on(fake_cupy):
    plain, overlapping = FakeLaunch(), FakeLaunch()
    plan = replace(following_plan(1000, launches=2), device=replace(H200, arch="sm_80"))
    Executor(plan, 0, (11, 22), plain, lambda: overlapping).launch((1, 2, 3), 77)
    assert [call[0] for call in plain.calls] == [11, 22] and not overlapping.calls


def test_the_grid_and_shared_memory_are_the_plans():
    recorder = FakeLaunch()
    recorder.types = (ctypes.c_uint64,) * 2
    plan = copy_plan(REVERSE, (3, 2, 5), (Argument("src"), Argument("dst")))
    Executor(plan, 0, (5,), recorder).launch((8, 9), 0)
    assert recorder.calls == [(5, (3, 2, 5), (256, 1, 1), REVERSE.shared_bytes, 0, (8, 9), 0)]


def test_threads_do_not_mix_their_arguments():
    recorder = FakeLaunch(delay=0.0005)
    ready = Executor(multiply_plan(1), 0, (1,), recorder)
    start = threading.Barrier(8)

    def work(thread):
        start.wait()
        for i in range(20):
            ready.launch((thread, i, thread * i), thread, alpha=thread, beta=i)
    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = sorted(arguments for _, _, _, _, _, arguments, _ in recorder.calls)
    assert got == sorted((t, i, t * i, 1, float(t), float(i)) for t in range(8) for i in range(20))
    assert all(stream == arguments[0] for _, _, _, _, stream, arguments, _ in recorder.calls)
    assert len(ready._blocks) <= 8


def test_calls_in_turn_use_one_block():
    ready = Executor(multiply_plan(1), 0, (1,), FakeLaunch())
    for _ in range(5):
        ready.launch((1, 2, 3), 0)
    with pytest.raises(ValueError):
        ready.launch((1, 2), 0)
    assert len(ready._blocks) == 1


class Refusal(RuntimeError):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def refusing(times, status, text):
    """A driver that refuses a number of calls, then records."""
    recorder = FakeLaunch()
    left = [times]

    def launch(*call):
        if left[0]:
            left[0] -= 1
            raise Refusal(status, text)
        recorder(*call)
    launch.calls = recorder.calls
    return launch


def test_the_drivers_words_reach_the_caller(fake_cupy):
    driver = refusing(1, 701,
                      "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch")
    ready = Executor(multiply_plan(1), 0, (1,), driver)
    with pytest.raises(
        DriverError,
        match="kernel multiply on device 0: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources"
    ):
        ready.launch((1, 2, 3), 0)
    ready.launch((1, 2, 3), 0)
    assert len(driver.calls) == 1


def test_a_thread_without_a_context_gets_one(fake_cupy):
    driver = refusing(1, 201, "CUDA_ERROR_INVALID_CONTEXT: invalid device context")
    Executor(multiply_plan(1), 0, (1,), driver).launch((1, 2, 3), 0)
    assert fake_cupy.contexts == 1 and len(driver.calls) == 1
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_CONTEXT"):
        Executor(multiply_plan(1), 0, (1,),
                 refusing(2, 201, "CUDA_ERROR_INVALID_CONTEXT")).launch((1, 2, 3), 0)


def test_a_wrong_current_device_is_named(fake_cupy):
    with pytest.raises(
        DriverError,
        match="kernel multiply on device 1 while device 0 is current: CUDA_ERROR_INVALID_CONTEXT"
    ):
        Executor(multiply_plan(1), 1, (1,),
                 refusing(1, 201, "CUDA_ERROR_INVALID_CONTEXT")).launch((1, 2, 3), 0)


def workspace_plan(size):
    plan = multiply_plan(1)
    (launch,) = plan.launches
    arguments = (Argument("a"), Argument("workspace", offset=8), *launch.arguments[2:])
    return replace(plan, launches=(replace(launch, arguments=arguments),), workspace_bytes=size)


def test_the_workspace_is_cupys_and_outlives_a_capture(fake_cupy):
    recorder = FakeLaunch()
    ready = Executor(workspace_plan(4096), 0, (1,), recorder)
    ready.launch((1, 2, 3), 0)
    assert recorder.calls[0][5][:3] == (1, 0x5008, 3)
    assert [memory.size for memory in fake_cupy.allocated] == [4096] and ready._captured == []
    fake_cupy.capturing = True
    ready.launch((1, 2, 3), 0)
    assert ready._captured == fake_cupy.allocated[1:]


class FakeGraph:
    """Stands for a graph: its nodes copy their arguments when it is made and when they are told."""

    def __init__(self, recorder, calls):
        self.recorder, self.calls = recorder, calls
        self.updated, self.refuses = [], None
        self.nodes = [self._read(number) for number in range(len(calls))]

    def _read(self, number):
        before = len(self.recorder.calls)
        _launched_on(self.calls[number], 0xcafe)
        (call,) = self.recorder.calls[before:]
        del self.recorder.calls[before:]
        return call

    def update(self, number):
        self._refuse()
        self.updated.append(number)
        self.nodes[number] = self._read(number)

    def launch(self, stream):
        self._refuse()
        self.recorder.calls += [(*call[:4], stream, *call[5:]) for call in self.nodes]

    def _refuse(self):
        if self.refuses is not None:
            raise LaunchError(self.refuses, "refused")


class Graphs(list):
    """Makes graphs, and has those that it made."""

    def __init__(self, recorder):
        self.recorder = recorder

    def __call__(self, calls):
        self.append(FakeGraph(self.recorder, calls))
        return self[-1]


def several(recorder, make, launches=3):
    return Executor(multiply_plan(1000, launches=launches), 0, tuple(range(1, launches + 1)),
                    recorder, graph_of=make)


def test_several_launches_become_a_graph_on_each_stream(fake_cupy):
    recorder = FakeLaunch()
    graphs = Graphs(recorder)
    ready, wanted = several(recorder, graphs), []
    random = Random(0)
    for _ in range(60):
        addresses, stream = tuple(random.choice((8, 16, 24))
                                  for _ in range(3)), random.choice((0, 7, 9))
        alpha, beta = random.choice((0.0, -0.0, 2.5)), random.choice((1.0, 0.5))
        ready.launch(addresses, stream, alpha, beta)
        wanted += [(i, (8, 1, 1), (128, 1, 1), 0, stream, (*addresses, 1000, alpha, beta), 0)
                   for i in (1, 2, 3)]
    assert list(map(repr, recorder.calls)) == list(map(repr, wanted)) and len(graphs) == 3


def test_one_launch_and_one_in_a_capture_are_no_graphs(fake_cupy):
    recorder = FakeLaunch()
    graphs = Graphs(recorder)
    ready = several(recorder, graphs, launches=1)
    for _ in range(9):
        ready.launch((1, 2, 3), 0)
    fake_cupy.capturing = True
    ready = several(recorder, graphs)
    for _ in range(9):
        ready.launch((1, 2, 3), 0)
    assert not graphs and len(recorder.calls) == 9 + 27


def test_only_nodes_whose_arguments_changed_are_told(fake_cupy):
    recorder = FakeLaunch()
    recorder.types = (ctypes.c_uint64,) * 2
    orders = ("src", "dst"), ("src", "src"), ("dst", "dst")
    plan = Plan(COPY, H200, "test", None, tuple(Launch(REVERSE, (1, 1, 1),
                                                       tuple(map(Argument, order)))
                                                for order in orders))
    graphs = Graphs(recorder)
    ready = Executor(plan, 0, (1, 2, 3), recorder, graph_of=graphs)
    calls = [(8, 16)] * 4 + [(8, 24), (8, 24), (32, 24), (40, 16)]
    for addresses in calls:
        ready.launch(addresses, 0)
    assert graphs[0].updated == [0, 2, 0, 1, 0, 1, 2]
    assert [call[5] for call in recorder.calls] == [pair for s, d in calls
                                                    for pair in ((s, d), (s, s), (d, d))]


@pytest.mark.parametrize("status, stays", [(999, False), (201, True)])
def test_a_graph_that_is_refused_is_launched_as_kernels(fake_cupy, status, stays):
    recorder = FakeLaunch()
    graphs = Graphs(recorder)
    ready = several(recorder, graphs)
    for i in range(4):
        ready.launch((1, 2, i), 0)
    graphs[0].refuses = status
    ready.launch((1, 2, 9), 0)
    graphs[0].refuses = None
    ready.launch((1, 2, 9), 0)
    ready.launch((1, 2, 10), 0)
    assert [call[5][2] for call in recorder.calls[::3]] == [0, 1, 2, 3, 9, 9,
                                                            10] and len(graphs) == 1
    assert (ready._streams[0].graph is graphs[0]) == stays


def test_where_no_graph_can_be_made_kernels_are_launched(fake_cupy):
    asked, recorder = [], FakeLaunch()
    ready = several(recorder, asked.append)
    for _ in range(9):
        ready.launch((1, 2, 3), 0)
    assert len(asked) == 1 and len(recorder.calls) == 27


def test_streams_beyond_some_have_no_graph(fake_cupy):
    recorder = FakeLaunch()
    graphs = Graphs(recorder)
    ready = several(recorder, graphs)
    for stream in [*range(50)] * 4:
        ready.launch((1, 2, stream), stream)
    assert len(graphs) == 8 and [(call[4], call[5][2])
                                 for call in recorder.calls[::3]] == [(i, i) for i in [*range(50)]
                                                                      * 4]


def test_threads_share_a_stream(fake_cupy):
    recorder = FakeLaunch(delay=0.0001)
    ready = several(recorder, lambda calls: None)
    start = threading.Barrier(4)

    def work(thread):
        start.wait()
        for i in range(10):
            ready.launch((thread, i, thread * i), 0)
    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [(t, i, t * i) for t in range(4) for i in range(10) for _ in range(3)]
    assert sorted(call[5][:3] for call in recorder.calls) == sorted(wanted)


def test_a_plan_without_launches_does_nothing_anywhere(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    plan = Plan(GEMM, H200, "nothing", None, (), workspace_bytes=0)
    executor(plan).launch((1, 2, 3), 0)
    warmup(plan)


def test_nothing_is_compiled_while_a_stream_is_captured(fake_cupy, monkeypatch):
    fake_cupy.capturing = True
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "compile", lambda *_: pytest.fail("compiled"))
    with pytest.raises(
        RuntimeError,
        match=r"kernel multiply is not loaded on device 0, .* call warmup, .* before the capture"
    ):
        loading.load_all([MULTIPLY], 0)


def test_a_kernel_is_loaded_once_per_device(fake_cupy, monkeypatch):
    loads = []

    def load(kernel, ordinal, cubin):
        assert cubin == kernel.name.encode()
        loads.append((kernel.name, ordinal))
        return loading.LoadedKernel(len(loads), None)
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "_load", load)
    monkeypatch.setattr(loading, "compile", lambda kernel, target: kernel.name.encode())
    monkeypatch.setattr(loading, "_target", lambda kernel, ordinal: kernel.arch)
    got = [loading.load_all([kernel], ordinal)[0].function for kernel, ordinal in
           ((MULTIPLY, 0), (REVERSE, 0), (replace(MULTIPLY), 0), (MULTIPLY, 1), (MULTIPLY, 0))]
    assert got == [1, 2, 1, 3, 1] and loads == [("multiply", 0), ("reverse", 0), ("multiply", 1)]


def test_kernels_of_a_plan_are_compiled_side_by_side(fake_cupy, monkeypatch):
    """Each compilation waits for the other to begin."""
    begun = threading.Barrier(2, timeout=10)
    compiled = []

    def compile(kernel, target):
        begun.wait()
        compiled.append(kernel.name)
        return b""
    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "compile", compile)
    monkeypatch.setattr(loading, "_target", lambda kernel, ordinal: kernel.arch)
    monkeypatch.setattr(loading, "_load",
                        lambda kernel, ordinal, cubin: loading.LoadedKernel(len(kernel.name), None))
    got = [loaded.function for loaded in loading.load_all([MULTIPLY, REVERSE, MULTIPLY], 0)]
    assert got == [8, 7, 8] and sorted(compiled) == ["multiply", "reverse"]
    assert [loaded.function for loaded in loading.load_all([REVERSE, MULTIPLY],
                                                           0)] == [7, 8] and len(compiled) == 2


def test_a_kernel_is_generated_while_the_one_before_it_is_compiled(fake_cupy, monkeypatch):
    generated = threading.Event()

    def kernels():
        yield MULTIPLY
        generated.set()
        yield REVERSE

    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "compile", lambda kernel, target: generated.wait(10))
    monkeypatch.setattr(loading, "_target", lambda kernel, ordinal: kernel.arch)
    monkeypatch.setattr(loading, "_load",
                        lambda kernel, ordinal, cubin: loading.LoadedKernel(cubin, None))
    assert [loaded.function for loaded in loading.load_all(kernels(), 0)] == [True, True]


MULTIPLY_ARGUMENTS = multiply_plan(1).launches[0].arguments


@pytest.mark.parametrize("kernel, grid", [(MULTIPLY, (2**31 - 1, 65535, 65535)),
                                          (REVERSE, (1, 1, 1)),
                                          (replace(MULTIPLY, threads=1024), (1, 1, 1)),
                                          (replace(REVERSE,
                                                   shared_bytes=H200.shared_bytes_per_block),
                                           (1, 1, 1)), (CLUSTER_RANK, (4, 3, 1)),])
def test_launches_within_the_limits(kernel, grid):
    check_launch(Launch(kernel, grid, ()), H200)


@pytest.mark.parametrize(
    "kernel, grid, words",
    [
        (
            MULTIPLY,
            (2**31, 1, 1),
            "needs a grid of 2147483648 x 1 x 1 blocks, but the limits are 2147483647 x 65535 x 65535"
        ),
        (MULTIPLY, (1, 65536, 1), "grid of 1 x 65536 x 1 blocks"),
        (MULTIPLY, (1, 1, 65536), "grid of 1 x 1 x 65536 blocks"),
        (MULTIPLY, (0, 1, 1), "grid of 0 x 1 x 1 blocks"),
        (
            replace(MULTIPLY, threads=1025),
            (1, 1, 1),
            "needs 1025 threads per block, but the limit is 1024"
        ),
        (
            replace(MULTIPLY, shared_bytes=232449),
            (1, 1, 1),
            "needs 232449 bytes of shared memory per block, but .* has 232448"
        ),
        (
            CLUSTER_RANK,
            (3, 1, 1),
            "grid of 3 x 1 x 1 blocks, but its clusters of 2 x 1 x 1 do not divide it"
        ),
        (
            replace(MULTIPLY, cluster=(2, 1, 1)),
            (2, 1, 1),
            "does not declare them with __cluster_dims__"
        ),
    ]
)
def test_launches_beyond_the_limits_are_refused(kernel, grid, words):
    with pytest.raises(ValueError, match=words):
        check_launch(Launch(kernel, grid, ()), H200)


def test_copies_take_two_addresses():
    recorder = FakeLaunch()
    recorder.types = (ctypes.c_uint64,) * 2
    plan = Plan(COPY, H200, "test", None, (Launch(REVERSE, (1, 1, 1),
                                                  (Argument("dst"), Argument("src"))),))
    Executor(plan, 0, (1,), recorder).launch((10, 20), 0)
    assert recorder.calls[0][5] == (20, 10)
