"""Where calls on NumPy arrays run by what earlier ones took: a driver, an engine and a clock that
are pretended."""

import sys
from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas.engines import placement, settings
from cuteblas.engines.placement import Work
from cuteblas.planning.cost.hosts import HOST

X = np.zeros((1, 1), np.float32)


@pytest.mark.parametrize("processors", [8, 16, 64])
def test_what_hashes_cost(monkeypatch, processors):
    """To compare a matrix takes as long as NumPy takes to read it, so that its products by vectors
    stay; products of matrices gain."""
    monkeypatch.setattr(placement, "_processors", lambda: processors)
    monkeypatch.setattr(placement, "_costs", lambda: HOST)
    monkeypatch.setattr(placement, "_corrections", defaultdict(lambda: 1.0))
    n, there = 8192, {}
    for columns in (1, n):
        nbytes = 4 * n * n
        work = Work(np.dtype("f4"), n * n * columns, nbytes + 4 * n * columns, 4 * n * columns)
        for hashed in (False, True):
            monkeypatch.setattr("cuteblas.engines.keeping.by_hashes", lambda hashed=hashed: hashed)
            here, there[hashed] = work.with_copies(nbytes).seconds()
            assert (there[hashed] < here) == (columns > 1 or not hashed)
        assert there[False] < there[True]
    assert there[True] < work.seconds()[1]


class Machine:
    """A GPU whose calls, and a host whose calls, take so many times what is expected of them, and
    seconds in addition."""

    def __init__(self):
        self.now, self.slow, self.extra, self.ran = 1.0, {"host": 1.0, "GPU": 1.0}, 0.0, Counter()
        # seconds after a product of NumPy, and how slow what moves is
        self.spins, self.beside, self.last = 0.35, 1.0, 0.0

    def call(self, work, name="matmul"):
        """Run a call; where it ran."""
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr(placement, "_corrections", defaultdict(lambda: 1.0))
            expected = dict(zip(("host", "GPU"), work.seconds(), strict=True))

        def run(side):
            spins = side == "GPU" and self.now < self.last + self.spins
            self.now += expected[side] * self.slow[side] * (self.beside if spins
                                                            else 1) + self.extra
            if side == "host":
                self.last = self.now
            self.ran[side] += 1
            return side

        self.run = run
        return placement.offload(name, work, None, [X], None, lambda: run("host"))


@pytest.fixture
def machine(monkeypatch):
    found = Machine()
    monkeypatch.setitem(sys.modules, "cuteblas.engines.cuda",
                        SimpleNamespace(Compiling=KeyError, without_waiting=nullcontext))
    monkeypatch.setitem(sys.modules, "cuteblas.engines.host_cuda",
                        SimpleNamespace(carry=lambda *_: found.run("GPU")))
    for name, value in {"perf_counter": lambda: found.now, "_possible": lambda: True,
                        "_processors": lambda: 16, "_started": True, "_starting": None,
                        "_compiling": {}, "_missed": defaultdict(float), "_costs": lambda: HOST, "_carried": set(),
                        "staying": set(), "_corrections": defaultdict(lambda: 1.0),
                        "_calls": Counter(), "_busy": 0.0, "_alternating": 0.0,
                        "_spin": lambda: found.spins}.items():
        monkeypatch.setattr(placement, name, value)
    monkeypatch.setattr(settings, "driver_is_there", lambda: True)
    cuteblas.reset_stats()
    with cuteblas.backend("auto"):
        yield found


def product(products, dtype=np.float32, nbytes=1 << 20):
    return placement.Work(np.dtype(dtype), products, nbytes, nbytes)


FAST_HERE, FAST_THERE = product(5e8, nbytes=120 << 20), product(1.5e9)


def rates(work):
    return placement._reason_for(work)[1].partition("GPU (")[2].rstrip(")")


def test_these_calls_are_on_either_side(machine):
    here, there = FAST_HERE.seconds()
    assert 1e-3 < here < there < 4 * here
    here, there = FAST_THERE.seconds()
    assert 4 * there < here < 8 * there and here > 2e-3
    assert [placement._reason_for(work)[0] for work in (FAST_HERE, FAST_THERE)] == [False, True]


def test_a_host_that_is_slower_than_expected_gives_calls_away(machine):
    """NumPy by one thread, as with OMP_NUM_THREADS=1."""
    machine.slow["host"] = 16
    where = [machine.call(FAST_HERE) for _ in range(20)]
    first = where.index("GPU")
    assert 0 < first < 8 and where[first:] == ["GPU"] * (20 - first)
    # all but the first one on the GPU
    assert rates(FAST_HERE) == "estimated, corrected by 19 calls"
    assert cuteblas.stats()["rates"] == {"corrected": {"host: float32": first,
                                                       "GPU: float32": 19 - first}}
    # of another kind
    assert machine.call(replace(FAST_HERE, dtype=np.dtype(np.float64), products=1e8)) == "host"
    assert "corrected" not in rates(product(1e9, np.int64))


def test_a_gpu_that_is_slower_than_expected_gets_fewer(machine):
    machine.slow["GPU"] = 100
    where = [machine.call(FAST_THERE) for _ in range(30)]
    last = where.index("host")
    assert 3 < last < 12 and where[last:] == ["host"] * (30 - last)
    assert placement._corrections[True, "float32"] <= 8


def test_a_correction_that_kept_calls_away_fades(machine):
    machine.slow["GPU"] = 100
    for _ in range(30):
        machine.call(FAST_THERE)
    assert machine.ran["host"] > 10
    machine.slow["GPU"] = 1
    before = machine.now
    while machine.call(FAST_THERE) == "host":
        assert machine.now - before < 60
    assert machine.now - before > 0.1
    for _ in range(100):
        assert machine.call(FAST_THERE) == "GPU"


def test_estimates_that_are_right_stay(machine):
    works = FAST_HERE, FAST_THERE, placement.Work(np.dtype(np.uint8), 0.0, 1 << 28, 1 << 28, True), \
        placement.Work(np.dtype(np.uint8), 0.0, 1 << 28, 1 << 28)
    for work in works * 5:
        machine.call(work, work.kind)
    assert placement._corrections == pytest.approx(dict.fromkeys(placement._corrections, 1.0))
    assert {*cuteblas.stats()["rates"]["corrected"]} >= {"GPU: transposes", "GPU: copies",
                                                         "host: float32"}


def test_a_loop_is_not_kept_by_what_the_threads_of_the_last_product_by_numpy_cost(
    machine, monkeypatch
):
    machine.beside = 8.0
    job = SimpleNamespace(done=lambda: machine.now > 2, wait=lambda most: 0.0)
    monkeypatch.setattr(placement, "_starting", job)
    where = [machine.call(FAST_THERE) for _ in range(900)]
    first = where.index("GPU")
    assert first > 9 and {*where[first:]} == {"GPU"}


def test_calls_between_products_by_numpy_count_what_their_threads_cost(machine):
    machine.beside = 8.0
    where = [machine.call(FAST_THERE) for _ in range(60) if machine.call(FAST_HERE)]
    assert where.count("GPU") > 1 and where[-20:].count("host") > 15
    assert placement._corrections[True, "float32"] == 1
    machine.now += 1
    assert machine.call(FAST_THERE) == "GPU"


def test_calls_that_compile_or_load_or_run_beside_it_teach_nothing(machine, monkeypatch):
    machine.extra = 1.0
    machine.call(FAST_THERE)                            # the first one of its kind
    assert not placement._calls["float32"]
    job = SimpleNamespace(done=lambda: False, wait=lambda most: 0.0, exception=lambda: None)
    for name, value in {"_starting": job, "_compiling": {"another kind": job}}.items():
        with monkeypatch.context() as during:
            during.setattr(placement, name, value)
            machine.call(FAST_HERE)
    assert machine.ran == {"GPU": 1, "host": 2} and not placement._calls["float32"]
    machine.call(FAST_HERE)
    assert placement._calls["float32"] == 1


@pytest.mark.parametrize("side, work", [("host", FAST_HERE), ("GPU", FAST_THERE)])
def test_an_outlier_moves_little(machine, side, work):
    for _ in range(3):
        machine.call(work)
    machine.extra = 1000.0
    machine.call(work)
    assert placement._corrections[side == "GPU", "float32"] == pytest.approx(2**0.5)
    for _ in range(100):
        placement._learn(True, FAST_THERE, 1e6)
        placement._learn(False, product(1e12), 1e-3)
    assert placement._corrections[True, "float32"] <= 8 and placement._corrections[False, "float32"] >= 1 / 8


def test_short_calls_teach_nothing(machine):
    short = product(1e8, nbytes=1 << 18)
    assert max(short.seconds()) < 1e-3
    machine.slow["host"] = 1.5
    for _ in range(9):
        machine.call(short)
    assert "rates" not in cuteblas.stats() and rates(short) == "estimated"
    machine.slow["host"] = 16                           # which were expected to be short
    machine.call(short)
    assert rates(short) == "estimated, corrected by 1 call"


def test_what_stays_is_considered_again(machine):
    placement.staying.add("a call")
    machine.call(FAST_HERE)
    assert placement.staying == {"a call"}
    machine.slow["host"] = 1.5
    machine.call(FAST_HERE)
    assert not placement.staying


def test_products_that_stay_are_known_if_they_are_short(machine, monkeypatch):
    """Others go on teaching."""
    monkeypatch.setattr(placement, "_ready", True)
    monkeypatch.setattr(import_module("cuteblas.functions.matmul"), "staying", placement.staying)
    for m, known in ((300, 1), (8000, 0)):
        a, b = np.ones((m, 1000), np.float32), np.ones((1000, 100), np.float32)
        placement.staying.clear()
        with monkeypatch.context() as faster:
            faster.setattr(placement, "_costs", lambda: replace(HOST, call=1.0))
            assert (cuteblas.matmul(a, b) == 1000).all()
        assert len(placement.staying) == known


def test_where_rates_come_from_is_said(machine, monkeypatch):
    assert rates(FAST_HERE) == "estimated"
    monkeypatch.setattr(placement, "_costs", lambda: replace(HOST, call=1e-3))
    assert rates(FAST_HERE) == "measured by calibrate --host"
    machine.call(FAST_HERE)
    assert rates(FAST_HERE) == "measured by calibrate --host, corrected by 1 call"


def test_threads_learn_side_by_side(machine):
    def learn():
        for i in range(300):
            placement._learn(bool(i % 2), FAST_THERE, 1.0)
    threads = [Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(1 / 8 <= factor <= 8 for factor in placement._corrections.values())
