"""``python -m conformance.bench calibrate`` on a card whose times come from a formula."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.bench import calibrate
from conformance.bench.__main__ import main
from cuteblas import runtime
from cuteblas.planning.cost import costs_from
from cuteblas.planning.cost.fit import regrets
from cuteblas.planning.problem import H200
from cuteblas.runtime import costs as own
from tests.cli.fakes import FormulaCard, future

DATA = Path(__file__).parents[2] / "docs" / "performance" / "data" / "calibrate"


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A GPU for the command, and a configuration folder."""
    monkeypatch.setenv("CUTEBLAS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(runtime, "why_unavailable", lambda: None)
    monkeypatch.setattr(runtime, "device_info", lambda: replace(H200, name="NVIDIA Some Card"))
    monkeypatch.setattr(calibrate, "versions",
                        lambda: {"device": "NVIDIA Some Card", "driver": "none"})
    monkeypatch.setattr(calibrate, "Card", FormulaCard)
    return tmp_path / "config" / "costs" / "nvidia-some-card.json"


def test_measurements_are_fitted_again(card, capsys, tmp_path):
    """On the card, and from a file of measurements without it."""
    measurements, again = tmp_path / "measured.json", tmp_path / "again.json"
    arguments = ["--products", "6", "--large", "2", "--copies", "2", "--seconds", "60",
                 "--measurements", str(measurements)]
    assert main(["calibrate", *arguments]) == 0
    text = capsys.readouterr().out
    assert f"wrote {card}; plans for this card use it from now on" in text and f"wrote {measurements}" in text
    assert "regret before" in text and "regret after" in text and "  copies " in text
    costs = own.own_costs("NVIDIA Some Card")
    assert costs.device == "NVIDIA Some Card" and costs.about["seed"] == 0 and costs.about["problems"] == 10
    assert costs.command.startswith("python -m conformance.bench")
    assert main(["calibrate", "--refit", str(measurements), "--json", str(again)]) == 0
    refitted = costs_from(again.read_text(), "again.json")
    assert refitted.device == "NVIDIA Some Card" and refitted.about["problems"] == 10 and refitted.about["driver"] == "none"
    assert f"wrote {again}\n" in capsys.readouterr().out


def test_choices_that_nobody_has_timed_are_timed_again(card, capsys, tmp_path):
    """Rows of before that stay are scaled to the clocks of now; outdated ones are replaced."""
    file, outdated = tmp_path / "measured.json", tmp_path / "outdated.json"
    assert main(["calibrate", "--products", "4", "--large", "0", "--copies", "1", "--seconds", "30",
                 "--check", "--measurements", str(file)]) == 0
    data = json.loads(file.read_text())
    (first, rows), (second, others) = [each for each in data["seconds"].items()
                                       if calibrate.is_product(each[0])][:2]
    # planning's choice is timed first
    slow, chosen = {row: 2 * x for row, x in rows.items()}, next(iter(rows))
    del slow[chosen]
    data["seconds"][first] = slow
    file.write_text(json.dumps(data))
    outdated.write_text(json.dumps({file.name: {second: list(others)[:1]}}))
    assert main(["calibrate", "--again", str(file), "--without", str(outdated), "--seconds",
                 "30"]) == 0
    again = json.loads(file.read_text())["seconds"]
    assert "timed 2 of 2 products again" in capsys.readouterr().out and chosen in again[first]
    assert again[first].items() >= {row: pytest.approx(rows[row], rel=0.2) for row in slow}.items()
    assert again[second].keys() == others.keys()


def test_a_check_writes_nothing(card, capsys):
    assert main(["calibrate", "--products", "3", "--large", "0", "--copies", "0", "--seconds", "30",
                 "--check"]) == 0
    text = capsys.readouterr().out
    assert "regret before" in text and "after" not in text and "wrote" not in text and not card.exists()


@pytest.mark.parametrize("arguments, why", [(["--products", "0", "--large", "0", "--copies", "0"],
                                             "one of them is above 0"),
                                            (["--json", "/nowhere/x.json"], "cannot be written"),
                                            (["--prepare", "--device", "x"], "device is one of"),
                                            (["--refit", "pyproject.toml"], "has no measurements"),
                                            (["--seconds", "x"], "a whole number")])
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
    assert capsys.readouterr().err == "calibrate needs a GPU: there is none\n"


def test_kernels_are_prepared_without_a_gpu(monkeypatch, capsys):
    """In other processes; what cannot be compiled is named, and the status says so."""
    monkeypatch.setattr(runtime, "why_unavailable", lambda: "there is none")
    plans = []

    class Workers:
        def submit(self, function, problem, names, device):
            assert function.__name__ == "make" and device == H200
            everything = calibrate.alternatives_of(calibrate.sample_named(problem), H200)
            made = [each.plan() for each in everything if str(each) in names]
            plans.extend(made)
            return future(made)

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(calibrate, "Workers", Workers)
    arguments = ["--products", "2", "--large", "1", "--copies", "1", "--prepare"]
    assert main(["calibrate", *arguments]) == 0
    kernels = {launch.kernel.digest for plan in plans for launch in plan.launches}
    assert capsys.readouterr().out.startswith(
        f"{len(kernels)} kernels of 4 of 4 problems are compiled for NVIDIA H200, in "
    )
    monkeypatch.setattr(Workers, "submit",
                        lambda self, function, problem, names, device: future([f"{problem}: no"]))
    assert main(["calibrate", *arguments]) == 1
    assert capsys.readouterr().out.count(": no\n") == 4


@pytest.mark.parametrize("name", ["h200-few.json", "h200-slow-copies0.json"])
def test_files_of_measurements_are_read(name):
    """Every problem has its name's plans again, as far as planning still has them."""
    device, about, problems = calibrate.read([DATA / name])
    seconds = json.loads((DATA / name).read_text(encoding="utf-8"))["seconds"]
    assert device.name == about["device"] and [problem.name
                                               for problem in problems] == list(seconds)
    for problem in problems:
        read = zip(map(str, problem.alternatives), problem.seconds, strict=True)
        assert dict(read).items() <= seconds[problem.name].items()
    assert sum(each.regret is not None for each in regrets(problems, device)) > 0.5 * len(problems)
