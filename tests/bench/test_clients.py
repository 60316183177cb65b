"""``python -m conformance.bench clients``, on a GPU that is this CPU."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import cuteblas
from conformance.bench import __main__ as command
from conformance.bench import clients as module
from conformance.bench.clients import CASES, clients
from conformance.bench.groups import Selection
from cuteblas.cli import bench
from tests.cli.fakes import FakeGpu

pytest.importorskip("sklearn", minversion="1.8")


@pytest.fixture(autouse=True)
def inside(monkeypatch):
    """Whether the hooks are in force; they are not installed where there is no GPU."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    entered = []

    @contextmanager
    def enabled():
        entered.append(True)
        # in the place of a product that a hook serves
        cuteblas.matmul(np.ones((2, 2)), np.ones((2, 2)))
        yield
        entered.append(False)

    monkeypatch.setattr(module, "enabled", enabled)
    return entered


def measured(seconds=(1.0,), **selection):
    count, rows = clients(FakeGpu(seconds), Selection(**{"sizes": ((80, 12),), "repeats": 1}
                                                      | selection))
    rows = list(rows)
    assert len(rows) == count
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_program_runs_both_ways(inside, dtype):
    rows = measured((1e-3, 3e-3), dtypes=(dtype,))
    assert [row["case"] for row in rows] == [f"{case.name} {dtype} 80x12" for case in CASES]
    for row in rows:
        assert (row["installed_s"], row["alone_s"], row["ratio"], row["products"]) == (
            1e-3,
            3e-3,
            3.0,
            1
        )
        assert row["right"] and row["difference"] == 0
    assert inside.count(True) == inside.count(False) > 2 * len(CASES)


def test_what_is_measured_by_default():
    assert {case.name: case.size for case in CASES}["PCA full"] == (20000, 2000)
    assert {case.name.split()[0] for case in CASES} >= {"PCA", "Ridge", "GaussianMixture"}
    x = module._samples(np, 50, 6, "float32")
    assert x.shape == (50, 6) and x.dtype == np.float32


def test_a_wrong_result_is_found(monkeypatch, capsys):
    results = iter([np.ones(3), np.ones(3) + 2e-3] + [np.ones(3)] * 9)
    monkeypatch.setattr(module, "CASES", (module.Case("PCA", (20, 4), lambda x: next(results)),))
    assert bench.verdict(bench.measure(FakeGpu((1e-3,)), {"clients": command.ALL["clients"]},
                                       Selection(repeats=1), None, {})) == 1
    heading, row, *_, last = capsys.readouterr().out.splitlines()[2:]
    assert heading.split() == ["products", "ours", "ms", "CuPy", "ms", "ratio", "differs"]
    assert row.split() == ["PCA", "float32", "20x4", "1", "1.0", "1.0", "1.00", "0.002", "WRONG"]
    assert last == "WRONG results: PCA float32 20x4"
