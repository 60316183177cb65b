"""Choices that are measured, with a clock of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, epilogues
from cuteblas._cache import cache_directory, clear, export_to, import_from, keep
from cuteblas.engines import tuning
from cuteblas.engines.emulator import Emulator
from cuteblas.engines.tuning import plan_for
from cuteblas.planning import (
    ContractionProblem,
    CopyProblem,
    GemmProblem,
    Operand,
    Storage,
    plan_gemm,
)
from cuteblas.planning.operands import written
from cuteblas.planning.problem import H200, device_named

SINGLE, HALF = Operand("float32", (96, 1)), Operand("float16", (96, 1))
PROBLEM = GemmProblem(96, 96, 96, SINGLE, replace(SINGLE, strides=(1, 96)), SINGLE)
RNG = np.random.default_rng(3)


class Clock:
    """Says what plans take: the later a plan is asked for first, the less, unless told
    otherwise."""

    def __init__(self) -> None:
        self.asked: list = []
        self.seconds = lambda number: 1e-3 / (1 + number)

    def __call__(self, plan) -> float | None:
        if plan not in self.asked:
            self.asked.append(plan)
        found = self.seconds(self.asked.index(plan))
        if isinstance(found, Exception):
            raise found
        return found


def forget() -> None:
    """What a new process knows."""
    tuning._known.clear()


@pytest.fixture(autouse=True)
def clock(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "_on", False)
    found = Clock()
    monkeypatch.setattr(Emulator, "seconds", lambda self, plan, *_given: found(plan))
    forget()
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        before = cuteblas.tune(True)
        yield found
        cuteblas.tune(before)
    forget()


def arrays(dtype="f4"):
    return (RNG.integers(-3, 4, (96, 96)).astype(dtype) for _ in range(2))


def multiply() -> None:
    a, b = arrays()
    assert (cuteblas.matmul(a, b) == a @ b).all()


def files() -> list:
    return sorted(path for path in (cache_directory() / "choices").glob("*"))


def test_the_fastest_of_three_is_kept(clock):
    planned = plan_for(PROBLEM, H200)
    multiply()
    assert len(clock.asked) == 3 and clock.asked[0] == planned and len(files()) == 1
    assert len({plan.launches for plan in clock.asked}) == 3
    found = plan_for(PROBLEM, H200)
    assert found == clock.asked[2] != planned and found.seconds and found.works
    assert found.measured.startswith("333 us by gemm_") and found.measured.endswith(
        "1 ms by the estimate's choice"
    )
    told = cuteblas.explain(*arrays())
    assert f"\n  measured  {found.measured}\n" in str(told) and told.plan == found
    assert cuteblas.stats()["tune"] == {"calls": {found.family: 1}}
    assert cuteblas.stats()["matmul"] == {"calls": {found.family: 1}}
    multiply()
    assert len(clock.asked) == 3 and cuteblas.stats()["tune"] == {"calls": {found.family: 1}}


@pytest.mark.parametrize("on", [True, False])
def test_a_kept_choice_is_used_without_timing(on, clock):
    multiply()
    found = plan_for(PROBLEM, H200)
    forget()
    cuteblas.tune(on)
    clock.asked.clear()
    multiply()
    assert not clock.asked and plan_for(PROBLEM, H200) == found and plan_for(PROBLEM, H200).measured == found.measured


def test_another_process_uses_it(clock):
    multiply()
    found = plan_for(PROBLEM, H200)
    program = (
        "import numpy, cuteblas; a = numpy.ones((96, 96), 'f4'); plan = cuteblas.explain(a, a, device='h200').plan; "
        "print(plan.measured); print(plan.config)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, env=os.environ)
    assert done.stdout.splitlines() == [found.measured, str(found.config)]


@pytest.mark.parametrize("other", [(PROBLEM, device_named("h100")), (PROBLEM, device_named("a100")),
                                   (PROBLEM, replace(H200, workspace_limit=1 << 20)),
                                   (replace(PROBLEM, k=95), H200),
                                   (replace(PROBLEM, precision="ieee"), H200)], ids=str)
def test_it_holds_for_its_card_and_problem_alone(other):
    multiply()
    assert plan_for(PROBLEM, H200).measured and not plan_for(*other).measured


def test_it_holds_for_its_version_alone(monkeypatch):
    multiply()
    forget()
    monkeypatch.setattr(cuteblas, "__version__", "0.0.1")
    assert not plan_for(PROBLEM, H200).measured


def test_nothing_is_timed_without_tuning(clock):
    assert cuteblas.tune(False) is True and cuteblas.tune(False) is False
    multiply()
    assert not clock.asked and not files() and "tune" not in cuteblas.stats()


HOSTILE = [b"", b"\xff", b"[]", b"{}", b"null", b"[" * 100000, b'{"times": 3}',
           b'{"times": {"by nobody": 1}}', b'{"times": {"the estimate\'s choice": "x"}}',
           b'{"times": {}}', b'{"times": {"a": 1e999, "b": NaN}}']


@pytest.mark.parametrize("content", [None, *HOSTILE], ids=range(1 + len(HOSTILE)))
def test_whatever_a_file_holds_a_choice_is_measured_again(content, clock):
    multiply()
    found = plan_for(PROBLEM, H200)
    (path,) = files()
    if content is None:
        path.write_bytes(path.read_bytes()[:-3])
    else:
        keep("choices", path.name, content)
    forget()
    assert plan_for(PROBLEM, H200) == plan_gemm(PROBLEM, H200)
    clock.asked.clear()
    multiply()
    assert len(clock.asked) == 3 and plan_for(PROBLEM, H200) == found
    forget()
    assert plan_for(PROBLEM, H200) == found


def test_the_estimate_keeps_its_choice_where_others_are_hardly_faster(clock):
    clock.seconds = lambda number: 1e-3 - 1e-5 * number
    multiply()
    assert plan_for(PROBLEM, H200) == plan_gemm(PROBLEM, H200)
    assert plan_for(PROBLEM, H200).measured.startswith("1 ms by the estimate's choice; 980 us by ")
    forget()
    assert plan_for(PROBLEM, H200).measured


@pytest.mark.parametrize("bad", [{0}, {1}, {2}])
def test_a_plan_that_fails_is_left_out(bad, clock):
    clock.seconds = lambda number: MemoryError() if number in bad else 1e-3 / (1 + number)
    multiply()
    assert plan_for(PROBLEM, H200) == clock.asked[max({0, 1, 2} - bad)] and plan_for(PROBLEM, H200).measured.count("by gemm") < 3
    assert [*cuteblas.stats()["tune"]["left out"]] == ["MemoryError"]


@pytest.mark.parametrize("bad", [{0, 1, 2}, {1, 2}])
def test_where_plans_cannot_be_compared_planning_chooses(bad, clock):
    clock.seconds = lambda number: RuntimeError("refused") if number in bad else 1e-3
    multiply()
    multiply()
    assert len(clock.asked) == 3 and not files() and not plan_for(PROBLEM, H200).measured
    assert [*cuteblas.stats()["tune"].pop("left out")] == ["RuntimeError"] and "calls" not in cuteblas.stats()["tune"]


def test_what_cannot_be_timed_now_is_timed_later(clock):
    clock.seconds = lambda number: None                     # a graph is captured
    multiply()
    assert len(clock.asked) == 1 and not files()
    clock.seconds = lambda number: 1e-3 / (1 + number)
    multiply()
    assert len(clock.asked) == 3 and len(files()) == 1


def test_threads_time_once(clock):
    planned, count = plan_gemm(PROBLEM, H200), []

    def timer(plan):
        count.append(plan)
        return clock(plan)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: tuning.fastest(planned, timer), range(8)))
    assert len(count) == 4 and len(set(found)) == 1          # the first plan twice


STACK = Operand("float32", (8, 1), (64,))


@pytest.mark.parametrize("device", [H200, replace(H200, workspace_limit=1 << 16),
                                    device_named("a100")], ids=["H200", "limited", "A100"])
@pytest.mark.parametrize("problem", [PROBLEM, replace(PROBLEM, precision="ieee"),
                                     GemmProblem(96, 96, 96, HALF, HALF, HALF),
                                     *(GemmProblem(512, 512, 512,
                                                   *[Operand("float32", (512, 1))] * 3,
                                                   triangle=which) for which in ("both", "lower")),
                                     GemmProblem(8, 8, 8, STACK, STACK, STACK, batch=(1000,)),
                                     replace(PROBLEM, k=0),
                                     replace(PROBLEM, alpha="value", beta="value"),
                                     CopyProblem((64, 512, 30), (512, 1, 512 * 64), (1920, 30, 1),
                                                 4),
                                     *(ContractionProblem(((96, 96, 96),), ((96, 1, 1),),
                                                          ((96, 1, 96),), *[Storage(of)] * 3)
                                       for of in ("float32", "float16")),
                                     ContractionProblem(((96, 96, 96),), ((96, 96, 1),),
                                                        ((64, 1, 1),), *[Storage("float32")] * 3,
                                                        same=True)], ids=str)
def test_choices_compute_the_same_problem_within_the_limit(problem, device, clock):
    planned = plan_for(problem, device)
    found = tuning.fastest(planned, clock)
    assert found.measured and found == clock.asked[-1] and len(clock.asked) > 1
    assert all(plan.problem == problem and plan.device == device for plan in clock.asked)
    assert device.workspace_limit is None or all(plan.workspace_bytes <= device.workspace_limit
                                                 for plan in clock.asked)
    forget()
    again = plan_for(problem, device)
    assert again == found and again.measured == found.measured


@pytest.mark.parametrize(
    "call, count",
    [
        (lambda a, b: blas.sgemm(2, a, b, -1, a.copy()), 1),
        (lambda a, b: blas.plan(a, b).execute(a, b), 1),
        (lambda a, b: cuteblas.dot(a, b), 1),
        (lambda a, b: cuteblas.einsum("ij,kj->ik", a, b), 1),
        (lambda a, b: cuteblas.matmul(a, b, epilogue=epilogues.scale(scale=3.0)), 1),
        (lambda a, b: cuteblas.matmul(a.T, a), 1),
        (lambda a, b: cuteblas.copy(a.reshape(4, 24, 96).transpose(2, 0, 1)), 1),
        (lambda a, b: cuteblas.matmul(a, b, variant="gemm_small"), 0),
        (lambda a, b: cuteblas.matmul(a[:0], b), 0)
    ]
)
def test_other_calls(call, count, clock):
    a, b = arrays()
    cuteblas.tune(False)
    want = call(a, b)
    cuteblas.tune(True)
    assert np.array_equal(call(a, b), want) and len(files()) == count
    assert sum(cuteblas.stats().get("tune", {"calls": {}})["calls"].values()) == count


@pytest.mark.parametrize("value, on", [("1", True), ("0", False), ("", False)])
def test_the_environment_turns_it_on(value, on):
    program = "import cuteblas; print(cuteblas.tune(False), cuteblas.tune(True), cuteblas.tune(True))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, env={**os.environ, "CUTEBLAS_TUNE": value})
    assert done.stdout.split() == [str(on), "False", "True"]


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_other_settings_are_refused(value):
    with pytest.raises(TypeError, match=f"tune takes True or False, got {value!r}"):
        cuteblas.tune(value)


def test_choices_go_to_other_machines(tmp_path):
    multiply()
    found, file = plan_for(PROBLEM, H200), str(tmp_path / "choices.zip")
    assert export_to(file, "sm_80") == 0 and export_to(file, "sm_90") == 1 and clear("choices") == 1
    forget()
    assert not plan_for(PROBLEM, H200).measured and import_from(file) == 1
    forget()
    assert plan_for(PROBLEM, H200) == found


def test_what_plans_write():
    down = Operand("float32", (-8, 1), (-64,))
    same = replace(SINGLE, batch_strides=(0,))
    assert written(GemmProblem(4, 8, 3, same, same, down, batch=(5,))) == {
        "c": (4 * (24 + 256), 4 * 8)
    }
    assert written(
        ContractionProblem(
            ((4, 1, -8), (2, 4, 100)),
            ((8, 1, 1),),
            ((3, 8, 8),),
            *[Storage("float32")] * 3,
            batch=((5, 0, 0, 64),)
        )
    ) == {"c": (96, 4 * (100 + 7 + 256 + 1))}
    assert written(CopyProblem((3, 5), (5, 1), (1, 3), 2)) == {"dst": (0, 30)}
    a = np.ones((4, 4), "f4")
    fused = cuteblas.explain(a, a, epilogue=epilogues.relu_aux()).plan.problem
    assert written(fused) == {"c": (0, 64), "epi_mask": (0, 16)}
