"""Products that are planned once."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.planning.plan import Plan

from .operands import at

A, B, C = (at(0, x.astype(np.float32)) for x in (np.arange(24).reshape(6, 4), np.ones((4, 5)),
                                                 np.ones((6, 5))))
BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with cuteblas.backend(request.param):
        yield request.param


def test_execute(backend):
    plan = blas.plan(A, B, alpha=2)
    assert isinstance(plan.plan, Plan) and plan.plan.problem.k == 4
    for alpha in (2, -0.5, 1):
        np.testing.assert_array_equal(plan.execute(A, B, alpha=alpha), alpha * (A @ B))
    other = A + 3
    np.testing.assert_array_equal(plan.execute(other, B, alpha=2), 2 * (other @ B))
    assert plan.execute(A, B, alpha=2).flags.f_contiguous


def test_results_in_place(backend):
    out = np.empty((6, 5), np.float32)
    plan = blas.plan(A, B, out=out)
    assert plan.execute(A, B, out=out) is out and (out == A @ B).all()
    plan = blas.plan(A, B, C, beta=2, overwrite_c=1)
    c = C.copy()
    assert plan.execute(A, B, c, beta=-1) is c and (c == A @ B - 1).all()
    plan = blas.plan(A, B, C, beta=2)
    np.testing.assert_array_equal(plan.execute(A, B, C, beta=3), A @ B + 3)
    assert (C == 1).all()


def test_transpositions_and_batches(backend):
    z = np.stack([A.T + 1j * A.T] * 2).astype(np.complex64)
    plan = blas.plan(z, z, trans_a="C", trans_b="r")
    np.testing.assert_array_equal(plan.execute(z, z), z.conj().swapaxes(-1, -2) @ z.conj())
    plan = blas.plan(A, B, compute_dtype="float64", dtype="float64")
    assert plan.execute(A, B).dtype == np.float64


@pytest.mark.parametrize(
    "arguments, keywords, message",
    [
        (
            (A.astype("f8"), B.astype("f8")),
            {},
            "gemm of float64 arrays does not take dtype='float32'"
        ),
        (
            (A[:, :3], B[:3]),
            {},
            r"this plan was made for a of shape \(6, 4\), but it has shape \(6, 3\)"
        ),
        (
            (np.asfortranarray(A), B),
            {},
            r"was made for a with strides \(16, 4\), but it has \(4, 24\)"
        ),
        ((A, B, C), {}, "was made without c"),
        ((A, B), {"alpha": 2}, "was made for alpha = 1, but it is a number other than 0"),
        ((A, B), {"alpha": 0}, "was made for alpha = 1, but it is 0"),
        (
            (A, B),
            {"alpha": np.array(1, np.float32)},
            "was made for alpha = 1, but it is a 0-d array"
        ),
        (
            (A, B),
            {"out": np.empty((6, 5), np.float32)},
            r"was made for out with strides \(4, 24\), but it has \(20, 4\)"
        ),
        ((A, B), {"epilogue": 3}, "epilogue"),
        ((A, at(4, B)), {}, "was made for b aligned to 16 bytes, but it is aligned to 4")
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else ""
)
def test_other_operands_are_refused(arguments, keywords, message, backend):
    plan = blas.plan(A, B)
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        plan.execute(*arguments, **keywords)
    assert "\n" not in str(caught.value)


def test_beta_zero_and_missing_operands(backend):
    plan = blas.plan(A, B, C, beta=2)
    with pytest.raises(ValueError, match="was made for beta = a number other than 0, but it is 0"):
        plan.execute(A, B, np.full_like(C, np.nan), beta=0)
    with pytest.raises(ValueError, match="was made with c, which is missing"):
        plan.execute(A, B)


def test_it_explains_itself(backend):
    plan = blas.plan(A, B)
    text = str(plan)
    assert text == str(plan.explain()) and "gemm: a float32 (6, 4), b float32 (4, 5), trans NN -> float32 (6, 5)" in text
    assert "kernel" in text and "__global__" in plan.explain().source
    assert ("emulator" if backend == "emulator" else "NumPy") in text
    assert "trans NN" in plan._repr_html_()


PROGRAM = """
import pickle, sys
import numpy as np
plan = pickle.load(sys.stdin.buffer)
a, b = np.arange(24, dtype=np.float32).reshape(6, 4), np.ones((4, 5), np.float32)
assert (plan.execute(a, b, alpha=2) == 2 * (a @ b)).all()
try:
    plan.execute(a.astype("f8"), b)
except TypeError as refusal:
    print(plan.plan.family, refusal)
"""


def test_pickles_work_in_another_process(backend, monkeypatch):
    monkeypatch.setenv("CUTEBLAS_BACKEND", backend)
    plan = blas.plan(A, B, alpha=2)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan and hash(copy) == hash(plan) and str(copy) == str(plan)
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=pickle.dumps(plan),
                          capture_output=True, check=True)
    assert done.stdout.decode().startswith(f"{plan.plan.family} plan.execute takes b in float64") or b"float64" in done.stdout


def test_counters():
    cuteblas.reset_stats()
    blas.plan(A, B).execute(A, B)
    assert cuteblas.stats() == {"plan.execute": {"calls": {"numpy": 1}}}


def test_planning_reads_and_writes_nothing(backend):
    out = np.full((6, 5), 7, np.float32)
    blas.plan(np.full_like(A, np.nan), B, out=out)
    assert (out == 7).all()
