"""Calls that another process has kept are replayed."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas._cache import cache_directory, keep, usage  # noqa: E402
from cuteblas.engines import cuda, execution, tuning  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from cuteblas.engines.replay import kept  # noqa: E402
from cuteblas.planning import GemmProblem, Operand, plan_gemm  # noqa: E402
from cuteblas.planning.problem import H200  # noqa: E402

from ..functions import host_cupy  # noqa: E402
from ..functions.host_cupy import installed, on_gpu, on_host  # noqa: E402

RNG = np.random.default_rng(0)


class Ready:
    """What launches a plan by the definition."""

    def __init__(self, plan):
        self.plan = plan

    def launch(self, addresses, stream, *scalars):
        host_cupy.executor(self.plan).launch(addresses, stream, *scalars)


@pytest.fixture(autouse=True)
def files(by_definition: None, monkeypatch, tmp_path) -> Iterator[SimpleNamespace]:
    """A cache of its own, in which plans stand for what is kept of them."""
    plans = []

    def plan_to_json(plan, device):
        plans.append(plan)
        return len(plans) - 1

    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    with installed():
        here = SimpleNamespace(text="this machine", plans=plans)
        monkeypatch.setattr("cuteblas.runtime.executor", Ready)
        monkeypatch.setattr(kept, "fingerprint", lambda ordinal: here.text)
        monkeypatch.setattr(kept, "plan_to_json", plan_to_json)
        monkeypatch.setattr(kept, "executor_from_json", lambda number, device: Ready(plans[number]))
        yield here


def matrix(*shape, dtype=np.float32):
    return on_gpu(RNG.integers(-4, 5, shape).astype(dtype))


A, B, C, X, Y = matrix(7, 5), matrix(5, 6), matrix(7, 6), matrix(3, 7, 5), matrix(5, 3, 4)
DOUBLE, SQUARE = matrix(5, 6, dtype=np.float64), matrix(7, 7)
CALLS = {"matmul": lambda: cuteblas.matmul(A, B), "out": lambda: cuteblas.matmul(A, B, out=C),
         "precision": lambda: cuteblas.matmul(A, B, precision="ieee"),
         "the same twice": lambda: cuteblas.matmul(A.T, A),
         "views": lambda: cuteblas.matmul(A[::-2], B[:, ::2]),
         "cast": lambda: cuteblas.matmul(A, DOUBLE), "dot": lambda: cuteblas.dot(A, B),
         "tensordot": lambda: cuteblas.tensordot(X, Y, ((0, 2), (1, 0))),
         "einsum": lambda: cuteblas.einsum("bij,jbk,k->i", X, Y, Y[0, 0]),
         "copy": lambda: cuteblas.copy(A.T, order="C"),
         "type": lambda: cuteblas.ascontiguousarray(A.T, dtype=np.float64),
         "sgemm": lambda: blas.sgemm(2.5, A, B), "beta": lambda: blas.sgemm(2.5, A, B, 0.5, C)}


@pytest.mark.parametrize("name", CALLS)
def test_another_process_plans_nothing(name, monkeypatch):
    call = CALLS[name]
    want = on_host(call()).copy()
    counted = cuteblas.stats()
    replay_cupy.forget()                                                # another process
    monkeypatch.setattr(execution, "Execution", None)               # the long way
    cuteblas.reset_stats()
    got = call()
    assert (on_host(got) == want).all() and cuteblas.stats().keys() <= counted.keys()
    assert on_host(call()).dtype == want.dtype                 # and from now on it is recorded here


@pytest.mark.parametrize("change", ["place", "limit", "file"])
def test_what_may_have_changed_is_planned_again(change, files, monkeypatch):
    cuteblas.matmul(A, B)
    replay_cupy.forget()
    if change == "place":
        files.text = "another version"
    elif change == "limit":
        monkeypatch.setattr(kept, "workspace_limit", lambda: 1 << 20)
    else:
        for path in (cache_directory() / "calls").iterdir():
            path.write_bytes(path.read_bytes()[:-5])
    planned = len(files.plans)
    assert (on_host(cuteblas.matmul(A, B)) == on_host(A) @ on_host(B)).all()
    assert len(files.plans) > planned


HOSTILE = [b"", b"[" * 100000, b"{\"a\":" * 100000, b"\xff", b"null", b"1e999", b"9" * 5000, b"[]",
           b"{}", b'"launch"', b"[1, 2]", b'{"launch": ' * 400 + b"1" + b"}" * 400,
           b'{"launch": {"steps": [' * 450 + b"1" + b"]}" * 450,
           b'{"launch": {"function": "nothing", "places": []}}', b'{"launch": {"plan": 1e999}}',
           b'{"launch": {"plan": 0, "on": [99999999999999999999]}}']


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_file_holds_a_call_is_planned_again(content, files):
    cuteblas.matmul(A, B)
    replay_cupy.forget()
    for path in (cache_directory() / "calls").iterdir():            # how two products were launched
        keep("calls", path.name, content)
    planned = len(files.plans)
    assert (on_host(cuteblas.matmul(A, B)) == on_host(A) @ on_host(B)).all()
    assert len(files.plans) > planned


def test_out_that_meets_an_operand_goes_the_long_way():
    def arrays(shift):
        x = matrix(200)
        return x[:49].reshape(7, 7), x[shift:shift + 49].reshape(7, 7)

    a, c = arrays(100)
    cuteblas.matmul(a, SQUARE, out=c)
    replay_cupy.forget()
    a, c = arrays(20)
    want = on_host(a).copy() @ on_host(SQUARE)
    cuteblas.matmul(a, SQUARE, out=c)
    assert (on_host(c) == want).all()


def test_calls_without_a_name_are_not_kept(files):
    @cuteblas.epilogue
    def doubled(acc):
        return 2 * acc

    cuteblas.matmul(A, B, epilogue=doubled)
    assert usage("calls").files == 0
    assert kept.name_of(("function", doubled), (A, B), None) is None


def test_names_tell_calls_apart():
    names = [
        kept.name_of(head, inputs, out)
        for head, inputs, out in [
            (("matmul", None), (A, B), None),
            (("matmul", "ieee"), (A, B), None),
            (("matmul", "None"), (A, B), None),
            (("matmul", None), (A, B), C),
            (("matmul", None), (A, B, C), None),
            (("matmul", None), (A, A), None),
            (("matmul", 1), (A, B), None),
            (("matmul", True), (A, B), None),
            (("matmul", 1.0), (A, B), None),
            (("matmul", int), (A, B), None),
            (("matmul", None), (A.T, B), None),
            (("matmul", (None,)), (A, B), None),
            (("matmul", None), (SQUARE, B), None),
            (("matmul", None), (SQUARE.T, B), None),
            (("matmul", None), (A, B.view(np.int32)), None),
            (("matmul", None), (matrix(8, 5)[1:], B), None),
            (("matmul", None), (A, B), DOUBLE)
        ]
    ]
    assert None not in names and len({*names}) == len(names)


def test_a_capture_loads_nothing(monkeypatch):
    cuteblas.matmul(A, B)
    replay_cupy.forget()
    monkeypatch.setattr("cuteblas.runtime.capturing", lambda: True)
    monkeypatch.setattr(kept, "executor_from_json", None)
    cuteblas.matmul(A, B)


def test_fingerprints(monkeypatch):
    properties = {"name": b"A card", "major": 9, "minor": 0, "multiProcessorCount": 3}
    monkeypatch.undo()
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda ordinal: properties)
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: 13000)
    monkeypatch.setenv("CUTEBLAS_KEEP_CALLS", "0")
    kept.fingerprint.cache_clear()
    assert kept.fingerprint(0) is None
    monkeypatch.delenv("CUTEBLAS_KEEP_CALLS")
    kept.fingerprint.cache_clear()
    try:
        first = kept.fingerprint(0)
        kept.fingerprint.cache_clear()
        properties["name"] = b"Another card"
        assert first is not None and kept.fingerprint(0) not in (None, first)
    finally:
        kept.fingerprint.cache_clear()


@pytest.fixture
def clock(monkeypatch) -> Iterator[list]:
    """Plans that were timed; each takes less than those before."""
    asked: list = []

    def seconds(self, plan, *_given):
        asked.append(plan)
        return 1 / len(asked)

    monkeypatch.setattr("cuteblas.engines.cuda.Cuda.seconds", seconds)
    # What stands for planning in these tests has no launches and no alternatives.
    monkeypatch.setattr(tuning, "_has_alternatives", lambda plan: True)
    others = [(str(i), i) for i in range(4)]
    monkeypatch.setattr(tuning, "_plans", lambda plan: [(tuning._PLANNED, plan),
                                                        *((name, replace(plan, config=config))
                                                          for name, config in others)])
    yield asked
    cuteblas.tune(False)
    tuning._known.clear()


def test_recorded_and_kept_calls_are_timed_once_tuning_is_on(clock, files):
    for _ in range(2):
        cuteblas.matmul(A, B)
    assert not clock and not cuteblas.tune(True)
    for _ in range(2):
        assert (on_host(cuteblas.matmul(A, B)) == on_host(A) @ on_host(B)).all()
    assert len(clock) == 4 and files.plans[-1].config == 1          # the first plan twice
    cuteblas.tune(False)
    for _ in range(2):
        tuning._known.clear()
        replay_cupy.forget()                                        # another process
        cuteblas.matmul(A, B)
    assert len(clock) == 4 and files.plans[-1].config == 1


def test_other_processes_replay_calls_of_measured_choices(clock, monkeypatch):
    cuteblas.tune(True)
    cuteblas.matmul(A, B)
    replay_cupy.forget()                                            # another process
    timed = len(clock)
    monkeypatch.setattr(execution, "Execution", None)               # the long way
    assert (on_host(cuteblas.matmul(A, B)) == on_host(A) @ on_host(B)).all() and len(clock) == timed


def test_what_is_captured_is_not_recorded_before_it_is_timed(clock, monkeypatch):
    cuteblas.tune(True)
    with monkeypatch.context() as patch:
        patch.setattr("cuteblas.engines.cuda.Cuda.seconds", lambda *_given: None)
        cuteblas.matmul(A, B)
    assert not replay_cupy.recorded and not clock
    cuteblas.matmul(A, B)
    assert len(clock) == 4 and replay_cupy.recorded


def test_plans_are_timed_on_scratch_memory(monkeypatch):
    events = []

    class Event:
        def record(self):
            events.append(len(launched))

        def synchronize(self):
            pass

    launched = []

    def executor(plan):
        def launch(addresses, *scalars):
            launched.append(addresses)
            host_cupy.executor(plan).launch(addresses, *scalars)
        return SimpleNamespace(launch=launch)

    monkeypatch.setattr(
        cuda,
        "cupy",
        SimpleNamespace(
            cuda=SimpleNamespace(
                Event=Event,
                alloc=lambda nbytes: Memory(host_cupy.allocate(nbytes)),
                get_elapsed_time=lambda a, b: 2.0
            )
        )
    )
    monkeypatch.setattr(cuda, "_FILLED", 64)
    monkeypatch.setattr("cuteblas.runtime.executor", executor)
    a, b, c = (on_host(x) for x in (A, B, C))
    want = c.copy()
    down = Operand("float32", (-6, 1))
    problem = GemmProblem(7, 6, 5, Operand("float32", (5, 1)), Operand("float32", (1, 6)), down,
                          beta="value")
    seconds = cuda.CUDA.seconds(plan_gemm(problem, H200), {"a": A, "b": B, "c": C[::-1]}, 1, 2.0,
                                None)
    assert (c == want).all() and (a @ b).any()
    assert len(launched) == 3 + 10 and seconds == pytest.approx(2e-3 / 10)
    assert all(given[:2] == (A.data.ptr, B.data.ptr)
               and (given[2] - C[::-1].data.ptr) % 256 == 0 != given[2] - C[::-1].data.ptr
               for given in launched)
    assert events == [0, 3, 3, 13]
    monkeypatch.setattr("cuteblas.runtime.capturing", lambda: True)
    assert cuda.CUDA.seconds(plan_gemm(problem, H200), {"a": A, "b": B, "c": C}) is None


class Memory:
    """What ``cupy.cuda.alloc`` returns, which can be filled without a device."""

    def __init__(self, pointer):
        self.pointer, self.ptr = pointer, pointer.ptr

    def memset_async(self, value, size):
        ctypes.memset(self.ptr, value, size)
