"""``calibrate`` on a card whose times come from a formula."""

import re
from dataclasses import replace
from multiprocessing import active_children
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest

from cuteblas import runtime
from cuteblas.cli import calibrate, main
from cuteblas.cli.machines import random_array, random_elements
from cuteblas.cli.problems import Sample, usual_samples
from cuteblas.planning.cost import costs_from
from cuteblas.planning.cost.fit import Measured
from cuteblas.planning.cost.hosts import HOST, host_costs_from
from cuteblas.planning.gemm.dispatch import plan_gemm
from cuteblas.planning.problem import H200, CopyProblem, GemmProblem
from cuteblas.runtime import costs as own

from .fakes import FormulaCard

MEASURED = HOST.changed({"link_bytes": 1e9, "multiplications": {"int8": 7.0}})
USUAL = usual_samples()
SAMPLES = [*[x for x in USUAL if isinstance(x.problem, GemmProblem)][:12],
           *[x for x in USUAL if isinstance(x.problem, CopyProblem)][:2]]


def fitted(machine, samples):
    """The problems that were measured, and the regret before and after a fit."""
    first, last = calibrate.ends(600)
    problems = calibrate.measured(machine, samples, first)
    before = calibrate.summary(calibrate.regrets(problems, machine.device))
    _costs, found = calibrate.fitted(machine, problems, last)
    return problems, before, calibrate.summary(found)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A GPU for the command, and a configuration folder."""
    monkeypatch.setenv("CUTEBLAS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(runtime, "why_unavailable", lambda: None)
    monkeypatch.setattr(runtime, "device_info", lambda: replace(H200, name="NVIDIA Some Card"))
    monkeypatch.setattr(calibrate, "versions",
                        lambda: {"device": "NVIDIA Some Card", "driver": "none"})
    monkeypatch.setattr(calibrate, "Card", FormulaCard)
    monkeypatch.setattr(calibrate, "usual_samples", lambda: SAMPLES[-10:])
    monkeypatch.setattr(calibrate, "host_rates", lambda: MEASURED)
    return tmp_path / "config" / "costs" / "nvidia-some-card.json"


def test_the_fit_makes_choices_better(capsys):
    machine = FormulaCard(H200, 0.02)
    problems, before, after = fitted(machine, SAMPLES)
    plans = sum(len(problem.seconds) for problem in problems)
    assert len(problems) == len(SAMPLES) and machine.timed >= plans
    assert after.mean < 0.5 * before.mean and after.percentile95 < 0.15
    assert after.measured == len(SAMPLES)
    assert f"measured {len(SAMPLES)} of {len(SAMPLES)} problems, " in capsys.readouterr().out


def test_numbers_that_are_right_already_stay():
    machine = FormulaCard(H200)
    machine.true = H200
    _problems, before, after = fitted(machine, SAMPLES[:6])
    assert after.mean <= before.mean


def test_the_command_writes_a_file_that_plans_use(card, capsys, tmp_path):
    assert main(["calibrate", "--seconds", "60"]) == 0
    text = capsys.readouterr().out
    assert f"wrote {card}; plans for this card use it from now on" in text
    assert re.search(r"regret before: .*% at the 95th percentile of 10 problems.*\nregret after: ",
                     text)
    assert own.host_costs() == MEASURED
    costs = own.own_costs("NVIDIA Some Card")
    assert costs.device == "NVIDIA Some Card" and costs.about["problems"] == 10 and costs.about["driver"] == "none"
    assert costs.command.startswith("python -m cuteblas") and costs.about["regret"]["after"]["problems"] == 10
    problem = SAMPLES[0].problem
    assert plan_gemm(problem, replace(H200, costs=costs)).seconds != plan_gemm(problem, H200).seconds
    file = tmp_path / "there.json"                    # and the host's own numbers stay as they are
    own.costs_file("this host").unlink()
    assert main(["calibrate", "--seconds", "60", "--json", str(file)]) == 0
    assert costs_from(file.read_text(), "there.json").about["problems"] == 10 and not own.costs_file("this host").exists()
    assert f"wrote {file}\n" in capsys.readouterr().out


def test_numbers_of_the_host_alone(card, capsys, tmp_path):
    assert main(["calibrate", "--host"]) == 0
    file = own.costs_file("this host")
    assert f'wrote {file}; backend("auto") uses it from now on' in capsys.readouterr().out and not card.exists()
    assert own.host_costs().link_bytes == 1e9
    for text, why in (("[]", "indices must be"), ('{"version": 9, "numbers": {}}', "version is 9"),
                      ('{"version": 1, "numbers": {"call": 0}}', "not positive")):
        file.write_text(text)
        with pytest.warns(RuntimeWarning, match=why):
            assert own.host_costs() is HOST
    assert main(["calibrate", "--host", "--json", str(tmp_path / "host.json")]) == 0
    assert host_costs_from((tmp_path / "host.json").read_text(),
                           "host.json").multiplications["int8"] == 7


def test_a_host_is_measured():
    """On CuPy arrays of this process: what is measured means nothing, but all of it is."""
    pytest.importorskip("cupy")
    from tests.functions.host_link import linked

    with linked(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "_on_gpu", lambda a, b: 1e12)
        patch.setattr(calibrate, "_link", lambda x: (3e9, 5e9))
        patch.setattr(calibrate, "_REPEATS", 1)
        costs = calibrate.host_rates(64, 128)
    assert costs.link_bytes == 5e9 and set(costs.gpu_multiplications.values()) == {1e12}
    assert all(0 < x < 1e15 for x in (*costs.multiplications.values(), costs.call,
                                      costs.copied_bytes, costs.transposed_bytes))


def test_what_was_measured_before_an_error_is_fitted(capsys):
    machine = FormulaCard(H200)
    times = machine.times

    def failing(problem, plans):
        if machine.timed > 20:
            raise RuntimeError("an illegal memory access was encountered")
        return times(problem, plans)

    machine.times = failing
    problems, _before, after = fitted(machine, SAMPLES)
    assert 0 < len(problems) < len(SAMPLES) and after.problems == len(problems)
    assert "measuring stopped at" in capsys.readouterr().err


def test_ctrl_c_writes_nothing(card, monkeypatch, capsys):
    def interrupted(self, *_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(FormulaCard, "times", interrupted)
    assert main(["calibrate"]) == 130
    assert not card.exists() and "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments, why", [
    (["--json", "/nowhere/x.json"], "cannot be written"), (["--seconds", "x"], "a whole number"),
    (["--refit", "x"], "unrecognized")])
def test_refusals(capsys, arguments, why):
    try:
        status = main(["calibrate", *arguments])
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2 and why in said and said.count("\n") == 1


def test_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(runtime, "why_unavailable", lambda: "there is none")
    assert main(["calibrate"]) == 2
    assert main(["calibrate", "--host"]) == 2
    assert capsys.readouterr().err == "calibrate needs a GPU: there is none\ncalibrate --host needs a GPU: there is none\n"


def test_plans_are_made_in_other_processes(monkeypatch):
    """Those that are asked for by name; what cannot be compiled is a sentence."""
    compiled = []
    monkeypatch.setattr(
        runtime, "compile", lambda kernel, target: compiled.append((kernel.name, target))
    )
    problem = calibrate.to_measure(SAMPLES[0], H200)
    plans = calibrate.make(SAMPLES[0].name, [*map(str, problem.alternatives), "no such plan"], H200)
    assert [plan.launches for plan in plans[:-1]] == [x.plan().launches for x in problem.alternatives]
    assert compiled and plans[-1] == f"{SAMPLES[0].name}, no such plan: KeyError: 'no such plan'"

    def refused(kernel, target):
        raise runtime.CompileError(kernel.name, target, "no")

    monkeypatch.setattr(runtime, "compile", refused)
    assert isinstance(calibrate.make(SAMPLES[0].name, [str(problem.alternatives[0])], H200)[0], str)


def test_processes_end_with_the_command(monkeypatch, tmp_path):
    """At once, whatever they have before them."""
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    before = active_children()
    with calibrate.Workers() as pool:
        names = [[*map(str, calibrate.to_measure(sample, H200).alternatives)] for sample in SAMPLES]
        futures = [pool.submit(calibrate.make, sample.name, own, H200)
                   for sample, own in zip(SAMPLES, names, strict=True)]
        own = [child for child in active_children() if child not in before]
        assert own
    end = monotonic() + 20
    # the pool's own thread waits for them too
    while any(child.is_alive() for child in own) and monotonic() < end:
        sleep(0.05)
    assert not any(child.is_alive() for child in own) and not all(future.done()
                                                                  and not future.cancelled()
                                                                  and not future.exception()
                                                                  for future in futures)


def test_plans_to_measure_are_the_choice_and_several_tiles():
    for sample in SAMPLES:
        problem = calibrate.to_measure(sample, H200)
        names = list(map(str, problem.alternatives))
        assert names[0] == str(problem.choice(H200)) and len(set(names)) == len(names) <= 12
        everything = calibrate.alternatives_of(sample, H200)
        least = min(x.seconds(H200) for x in everything)
        near = {x.family for x in everything if x.seconds(H200) <= 4 * least}
        assert {x.family for x in problem.alternatives} == near | {problem.alternatives[0].family}


class FakeArray:
    def __init__(self, address, nbytes):
        self.data, self.nbytes = SimpleNamespace(ptr=address), nbytes


class FakeCupy:
    """As much of CuPy as a card asks for; every array is somewhere else."""

    def __init__(self):
        self.arrays, self.end = [], 1 << 40
        stream = SimpleNamespace(ptr=7)
        self.cuda = SimpleNamespace(get_current_stream=lambda: stream)

    def asarray(self, x):
        return x

    def resize(self, x, count):
        array = FakeArray(self.end, count * x.itemsize)
        self.end += array.nbytes + (1 << 30)
        self.arrays.append(array)
        return array


def test_a_card_gives_plans_memory_that_is_large_enough(monkeypatch):
    calls = []

    class Gpu:
        def __init__(self):
            self.rival = FakeCupy()

        def interval(self, call, times):
            call()
            return 1e-5 * times

    monkeypatch.setattr(calibrate, "Gpu", Gpu)
    monkeypatch.setattr(
        runtime,
        "executor",
        lambda plan: SimpleNamespace(launch=lambda *arguments: calls.append(arguments))
    )
    card = calibrate.Card(H200)
    with card.workers:
        for sample in USUAL[::4]:
            calls.clear()
            problem = Measured(sample.name, None, [None], [])
            assert card.times(problem, [None]) == {0: pytest.approx(1e-5)}
            addresses, stream = calls[0]
            assert stream == 7 and len(addresses) == len(sample.problem.roles)
            for address, (low, high) in zip(addresses, reaches(sample), strict=True):
                assert any(x.data.ptr <= address + low and address + high <= x.data.ptr + x.nbytes
                           for x in card._gpu.rival.arrays), sample
        assert card.times(problem, ["it cannot be"]) == {}
        monkeypatch.setattr(FakeCupy, "resize", without_memory)
        assert card.times(problem, [None]) == {}


def without_memory(cupy, x, count):
    raise MemoryError


def reaches(sample: Sample):
    """The first byte of each operand and the end of the last, from its address on."""
    p = sample.problem
    if isinstance(p, CopyProblem):
        return [reach(p.shape, strides, p.itemsize) for strides in (p.src_strides, p.dst_strides)]
    extents = {"a": (p.m, p.k), "b": (p.n, p.k), "c": (p.m, p.n)}
    item = np.dtype({"bfloat16": "float16"}.get(sample.dtype, sample.dtype)).itemsize
    operands = zip("abc", (p.a, p.b, p.c), strict=True)
    return [reach((*extents[name], *p.batch), (*x.strides, *x.batch_strides), item)
            for name, x in operands]


def reach(extents, strides, item):
    steps = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
    return item * sum(min(0, x) for x in steps), item * (1 + sum(max(0, x) for x in steps))


@pytest.mark.parametrize("name", ["bool", "int8", "int64", "float16", "bfloat16", "float32",
                                  "complex64", "float64", "complex128"])
def test_numbers_are_those_of_their_type(name):
    x = calibrate._numbers(name)
    assert x.dtype == np.uint8 and x.flags.c_contiguous
    if name == "bfloat16":
        x = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        assert 0.9 < x.std() < 1.1
    else:
        x = x.view(name)
    assert np.isfinite(x).all() and len(np.unique(x[:1000])) > 1 and abs(x).max() < 100


def test_random_elements_repeat_in_other_rows():
    x = random_array(np, (2048, 1024), "float32")
    assert len(np.unique(x[:, 0])) == 2048 and 0.99 < x.std() < 1.01
    few = random_elements(np.dtype("int8"))
    assert few.min() == -128 and few.max() == 127 and 0.09 < random_elements(np.dtype("bool")).mean() < 0.11
    assert (random_array(np, (3, 4), "int32", 1, "F", 7) < 7).all()


def test_own_costs_are_refused_with_a_warning(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CONFIG_DIR", str(tmp_path))
    assert own.own_costs("A card") is None
    file = own.costs_file("A card")
    assert file == tmp_path / "costs" / "a-card.json"
    file.parent.mkdir()
    file.write_text("{")
    with pytest.warns(RuntimeWarning, match="no valid planning numbers"):
        assert own.own_costs("A card") is None
    from cuteblas.planning.cost import default_costs, written

    file.write_text(written(default_costs()))
    with pytest.warns(RuntimeWarning, match="has those of NVIDIA H200"):
        assert own.own_costs("A card") is None
    file.write_text(written(replace(default_costs(), device="A card")))
    assert own.own_costs("A card").device == "A card"
