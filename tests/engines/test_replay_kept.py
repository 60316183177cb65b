"""Calls that another process has kept are replayed."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas._cache import cache_directory, keep, usage  # noqa: E402
from cuteblas.engines import execution  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from cuteblas.engines.replay import kept  # noqa: E402

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
CALLS = {
    "matmul": lambda: cuteblas.matmul(A, B), "out": lambda: cuteblas.matmul(A, B, out=C),
    "precision": lambda: cuteblas.matmul(A, B, precision="ieee"), "the same twice": lambda: cuteblas.matmul(A.T, A),
    "views": lambda: cuteblas.matmul(A[::-2], B[:, ::2]), "cast": lambda: cuteblas.matmul(A, DOUBLE),
    "dot": lambda: cuteblas.dot(A, B), "tensordot": lambda: cuteblas.tensordot(X, Y, ((0, 2), (1, 0))),
    "einsum": lambda: cuteblas.einsum("bij,jbk,k->i", X, Y, Y[0, 0]), "copy": lambda: cuteblas.copy(A.T, order="C"),
    "type": lambda: cuteblas.ascontiguousarray(A.T, dtype=np.float64), "sgemm": lambda: blas.sgemm(2.5, A, B),
    "beta": lambda: blas.sgemm(2.5, A, B, 0.5, C)}


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
    assert on_host(call()).dtype == want.dtype                      # and from now on it is recorded here


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


HOSTILE = [b"", b"[" * 100000, b"{\"a\":" * 100000, b"\xff", b"null", b"1e999", b"9" * 5000, b"[]", b"{}", b'"launch"', b"[1, 2]",
           b'{"launch": ' * 400 + b"1" + b"}" * 400, b'{"launch": {"steps": [' * 450 + b"1" + b"]}" * 450,
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
    names = [kept.name_of(head, inputs, out) for head, inputs, out in [
        (("matmul", None), (A, B), None), (("matmul", "ieee"), (A, B), None), (("matmul", "None"), (A, B), None),
        (("matmul", None), (A, B), C), (("matmul", None), (A, B, C), None), (("matmul", None), (A, A), None),
        (("matmul", 1), (A, B), None), (("matmul", True), (A, B), None), (("matmul", 1.0), (A, B), None),
        (("matmul", int), (A, B), None), (("matmul", None), (A.T, B), None), (("matmul", (None,)), (A, B), None),
        (("matmul", None), (SQUARE, B), None), (("matmul", None), (SQUARE.T, B), None),
        (("matmul", None), (A, B.view(np.int32)), None),
        (("matmul", None), (matrix(8, 5)[1:], B), None), (("matmul", None), (A, B), DOUBLE)]]
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
