"""Calls that are written down, and compiled before they run."""

import importlib
import importlib.util
import json

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator, epilogues
from cuteblas._cache import usage
from cuteblas.cli import main
from cuteblas.functions.warmup import Recording, _classes, _read, _written
from cuteblas.planning import CopyProblem, GemmProblem
from cuteblas.planning.problem import DEVICES, ContractionProblem, GroupedProblem
from cuteblas.runtime import compiler_version

start = importlib.import_module("cuteblas.functions.warmup")
RNG = np.random.default_rng(0)


def matrix(*shape, dtype=np.float32):
    return RNG.integers(-4, 5, shape).astype(dtype)


A, B, C = matrix(20, 30), matrix(30, 10), matrix(20, 10)


@pytest.fixture
def compiles(monkeypatch, tmp_path):
    """A cache of its own, and a compiler."""
    pytest.importorskip("cuda.core")
    compiler_version()
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "cache"))


def recorded(*calls):
    with cuteblas.backend("emulator"), cuteblas.record() as found:
        for call in calls:
            call()
    return found


CALLS = {
    "matmul": (lambda: cuteblas.matmul(A, B), GemmProblem),
    "out": (lambda: cuteblas.matmul(A, B, out=C.copy()), GemmProblem),
    "copy": (lambda: cuteblas.copy(A.T, order="C"), CopyProblem),
    "einsum": (
        lambda: cuteblas.einsum("abi,bcj->acij", matrix(2, 3, 4), matrix(3, 5, 6)),
        (ContractionProblem, GemmProblem)
    ),
    "complex alpha": (
        lambda: blas.zgemm(1 - 2j, A.astype(complex), B.astype(complex), 0.5, C.astype(complex)),
        GemmProblem
    ),
    "epilogue": (
        lambda: cuteblas.matmul(A, B, epilogue=epilogues.bias_gelu(bias=matrix(10))),
        GemmProblem
    ),
    "group": (lambda: blas.gemm_grouped(1, [A, A[:7], A[3:]], [B, B, B]), GroupedProblem)
}


@pytest.mark.parametrize("name", CALLS)
def test_problems_come_back_from_a_file(name, tmp_path):
    call, kind = CALLS[name]
    calls = recorded(call)
    assert calls.problems and any(isinstance(problem, kind) for problem in calls.problems)
    calls.save(tmp_path / "calls.json")
    again = Recording.load(tmp_path / "calls.json")
    assert again.problems == calls.problems and list(map(hash, again.problems)) == list(
        map(hash, calls.problems)
    )


def test_each_problem_is_written_down_once():
    again = RNG.permutation(30)
    calls = recorded(*[lambda: cuteblas.matmul(A, B)] * 3,
                     lambda: cuteblas.matmul(A.T, A[again[:20] % 20]))
    assert len(calls.problems) == 2
    assert recorded().problems == []


def test_nobody_listens_after_an_error():
    with pytest.raises(ZeroDivisionError), cuteblas.backend("emulator"), cuteblas.record() as calls:
        cuteblas.matmul(A, B)
        _ = 1 / 0
    assert len(calls.problems) == 1
    with cuteblas.backend("emulator"):
        cuteblas.matmul(B.T, A.T)
    assert len(calls.problems) == 1


def test_kernels_are_compiled_for_a_card_that_is_not_here(compiles, tmp_path):
    calls = recorded(lambda: cuteblas.matmul(A, B), lambda: cuteblas.copy(A.T, order="C"))
    done = cuteblas.warmup(calls, device="h200")
    assert (done.plans, done.kernels, done.compiled, done.loaded,
            done.workspace_bytes) == (2, 2, 2, False, 0)
    assert usage("entries").files == 2
    calls.save(tmp_path / "calls.json")
    again = cuteblas.warmup(tmp_path / "calls.json", device="h200")
    assert (again.plans, again.kernels, again.compiled) == (2, 2, 0) and usage("entries").files == 2
    other = cuteblas.warmup(calls, device="a100")
    assert other.compiled == 2 and usage("entries").files == 4
    assert str(other).startswith(
        f"2 plans for {other.device}: 2 kernels, 2 compiled, in the cache on disk; "
    )


def test_shapes_are_products(compiles, monkeypatch):
    done = cuteblas.warmup([((64, 32), (32, 48)), ((5, 64, 32), (32,))], dtype="float64",
                           order="CF", device="h200")
    assert done.plans == 2 and done.compiled == done.kernels > 0
    compiled = usage("entries").files
    with cuteblas.backend("emulator"), cuteblas.record() as calls:
        cuteblas.matmul(matrix(64, 32, dtype=float), matrix(48, 32, dtype=float).T)
    assert cuteblas.warmup(calls,
                           device="h200").compiled == 0 and usage("entries").files == compiled


@pytest.mark.parametrize("wrong, message", [({"calls": [((3, 4), (5, 6))], "device": "h200"},
                                             "mismatch"),
                                            ({"calls": [(3, 4)], "device": "h200"},
                                             "pairs of shapes"),
                                            ({"calls": ["34"], "device": "h200"},
                                             "pairs of shapes"),
                                            ({"calls": [], "device": "nothing"}, "nothing"),
                                            ({"calls": [((3.5, 4), (4, 3))], "device": "h200"},
                                             "pairs of shapes"),
                                            ({"calls": [((3, 4), (4, 3))], "order": "XY",
                                              "device": "h200"}, "a letter for each operand"),
                                            ({"calls": [((3, 4), (4, 3))], "dtype": "U3",
                                              "device": "h200"}, "there are no kernels"),
                                            ({"calls": [((3, 4), (4, 3))], "precision": "best",
                                              "device": "h200"}, "precision")])
def test_refusals(wrong, message):
    with pytest.raises(ValueError, match=message):
        cuteblas.warmup(wrong.pop("calls"), **wrong)


def test_without_a_gpu_a_card_is_to_be_named(monkeypatch):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "there is none")
    with pytest.raises(ValueError, match=r"\(device='h200', --device h200\): there is none"):
        cuteblas.warmup([((3, 4), (4, 3))])


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"form": "another", "problems": []}',
        '{"form": "cuteblas problems 1", "problems": [{"is": "os.system"}]}',
        '{"form": "cuteblas problems 1", "problems": [{"is": "GemmProblem", "m": 3}]}'
    ]
)
def test_what_is_no_recording_is_refused(text, tmp_path):
    (tmp_path / "calls.json").write_text(text)
    with pytest.raises(ValueError, match=r"calls.json is not a recording"):
        cuteblas.warmup(tmp_path / "calls.json", device="h200")


def test_the_command(compiles, tmp_path, capsys):
    recorded(lambda: cuteblas.matmul(A, B)).save(tmp_path / "calls.json")
    assert main(["warmup", str(tmp_path / "calls.json"), "--device", "h200"]) == 0
    assert main(["warmup", "20x30", "30x10", "--device", "h200"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("1 plan for NVIDIA H200: 1 kernel, 1 compiled, in the cache on disk; ") and ", 0 compiled, " in second
    assert main(["warmup", "20x30", "--device",
                 "h200"]) != 0 and "product needs two shapes" in capsys.readouterr().err
    assert main(["warmup", "calls.jsn"]) != 0 and "got 'calls.jsn'; no file has that name" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_the_start_set_is_what_numpy_programs_run(monkeypatch):
    """In one piece, in panels and in blocks: the problems of all these calls, and no others."""
    from cuteblas.functions import tiles
    from cuteblas.planning import streaming

    from .host_link import linked

    extents = (120, 90, 110), (96, 96, 96), (64, 900, 32), (900, 16, 24), (530, 540, 8)
    monkeypatch.setattr(start, "_START_SET", extents)
    monkeypatch.setattr(tiles, "_STRAIGHT_BYTES", 1 << 12)
    for name, value in {"_PANEL_BYTES": 1 << 14, "_BLOCK_ROWS": 128, "_LONG": 0.0}.items():
        monkeypatch.setattr(streaming, name, value)
    monkeypatch.setattr(streaming, "_panels", streaming._panels.__wrapped__)
    with linked(), cuteblas.record() as calls:
        for m, n, k in extents:
            for dtype in ("float64", "float32", "complex128", "complex64"):
                a, b = matrix(m, k, dtype=dtype), matrix(k, n, dtype=dtype)
                for x, y in ((a, b), (a, np.asfortranarray(b)), (np.asfortranarray(a), b)):
                    cuteblas.matmul(x, y)
    products = [*start._start_set()]
    plain = {problem for problem in products if isinstance(problem, GemmProblem)
             and not problem.triangle}
    assert plain == {*calls.problems}
    assert len({(problem.m, problem.n) for problem in calls.problems}) == 10
    with linked(), cuteblas.record() as calls:
        square = matrix(96, 96)
        cuteblas.matmul(square, square.T)
        cuteblas.copy(matrix(96, 96, dtype=float).T, order="C")
    gram, copy = calls.problems
    assert gram.triangle and gram in products

    def kernels(problem):
        return {launch.kernel.name for launch in start._plan(problem, DEVICES["h200"]).launches}

    assert kernels(copy) in [kernels(problem) for problem in products
                             if isinstance(problem, CopyProblem)]


def test_the_start_set_is_compiled(compiles, monkeypatch, capsys):
    monkeypatch.setattr(start, "_START_SET", ((64, 64, 64),))
    assert main(["warmup", "--numpy", "--device", "h200"]) == 0
    said = capsys.readouterr().out
    done = cuteblas.warmup(device="h200")
    assert said.startswith(
        f"{done.plans} plans for NVIDIA H200: {done.kernels} kernels, {done.kernels} compiled"
    )
    assert not done.compiled and not done.loaded
    assert usage("entries").files == done.kernels and usage("emulator").files == emulator.available()
    for wrong in ([], ["--numpy", "3x4", "4x3"]):
        assert main(["warmup",
                     *wrong]) == 2 and "files, shapes or --numpy" in capsys.readouterr().err


def test_numbers_of_graphs_stay():
    with cuteblas.backend("emulator"), cuteblas.record() as calls:
        cuteblas.matmul(A, B, epilogue="relu")
    (problem,) = calls.problems
    text = json.dumps(problem, default=_written)
    assert _read(json.loads(text), _classes()).fusion.graph.digest == problem.fusion.graph.digest


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_kernels_are_loaded_on_this_device(monkeypatch, compiles):
    import cupy

    from .host_cupy import installed, on_gpu

    loaded, allocated = [], []
    with installed(), monkeypatch.context() as monkeypatch:
        monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: None)
        monkeypatch.setattr("cuteblas.runtime.capturing", lambda: False)
        monkeypatch.setattr("cuteblas.engines.cuda.current_device", lambda: 0)
        monkeypatch.setattr("cuteblas.runtime.device_info",
                            lambda ordinal=None: cuteblas.planning.H200)
        monkeypatch.setattr("cuteblas.engines.cuda.launcher_for",
                            lambda plan, ordinal: loaded.append((plan.problem, ordinal)))
        monkeypatch.setattr(cupy.cuda, "alloc", allocated.append)
        a = on_gpu(np.zeros((2048, 2048), np.float32))
        done = cuteblas.warmup([(a.shape, a.shape)])
        assert done.loaded and allocated == [done.workspace_bytes] and done.workspace_bytes > 0
        assert [ordinal for _problem, ordinal in loaded] == [0] and "loaded, with" in str(done)
        monkeypatch.setattr("cuteblas.runtime.capturing", lambda: True)
        with pytest.raises(RuntimeError, match="before the capture"):
            cuteblas.warmup([(a.shape, a.shape)])


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_calls_that_are_known_are_written_down_too(by_definition):
    from .host_cupy import installed, on_gpu

    with installed():
        a, b = on_gpu(A), on_gpu(B)
        cuteblas.matmul(a, b)
        with cuteblas.record() as calls:
            cuteblas.matmul(a, b)
            cuteblas.matmul(a, b)
        assert len(calls.problems) == 1
