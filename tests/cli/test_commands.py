"""``python -m cuteblas``."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cuteblas import cli
from cuteblas.cli import doctor, main
from cuteblas.planning.cost import default_costs
from cuteblas.planning.problem import DEVICES


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0
    assert all(name in text and line in text for name, line in cli.COMMANDS.items())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0 and f"python -m cuteblas {name}" in capsys.readouterr().out


def test_python_m_runs_it():
    result = subprocess.run([sys.executable, "-m", "cuteblas", "cache"], capture_output=True,
                            text=True, check=True)
    assert os.environ["CUTEBLAS_CACHE_DIR"] in result.stdout


def test_cache_shows_and_clears(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    for part, count in (("entries", 1), ("calls", 1), ("choices", 1), ("emulator", 2)):
        (tmp_path / part).mkdir()
        for i in range(count):
            (tmp_path / part / str(i)).write_bytes(bytes(3 << 20))

    def shown(*options):
        assert main(["cache", *options]) == 0
        first, *parts = capsys.readouterr().out.splitlines()
        assert first == str(tmp_path)
        return [" ".join(part.split()) for part in parts]
    before = ["for GPUs 1 file 3.0 MiB", "calls on GPUs 1 file 3.0 MiB",
              "measured choices 1 file 3.0 MiB", "for the emulator 2 files 6.0 MiB"]
    assert shown() == before
    assert shown("--clear") == [f"{line}, {count} removed"
                                for line, count in zip(before, (1, 1, 1, 2), strict=True)]
    assert shown() == [f"{what} 0 files 0.0 MiB"
                       for what in ("for GPUs", "calls on GPUs", "measured choices",
                                    "for the emulator")]


def test_doctor_looks_at_everything(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}  " in text for name in doctor._CHECKS)
    assert "this is unexpected" not in text
    assert "NumPy's BLAS" in text


def test_doctor_on_a_machine_with_nothing():
    program = """
import sys
for name in ("cupy", "cuda", "cuda.core", "cuda.bindings", "cuda.bindings.nvrtc"):
    sys.modules[name] = None
from cuteblas.cli import main
sys.exit(main(["doctor"]))
"""
    environment = os.environ | {"PATH": "", "CXX": "",
                                "CUTEBLAS_CACHE_DIR": os.devnull + "/kernels",
                                "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            env=environment, check=True)
    missing = {line[4:22].strip() for line in result.stdout.splitlines() if line.startswith("--")}
    assert {"CuPy", "NVRTC", "C++ compiler", "kernel cache"} <= missing
    assert result.stdout.count("'cuteblas[cuda") >= 2
    assert "this is unexpected" not in result.stdout
    assert "NumPy's BLAS alone: CuPy is not installed" in " ".join(result.stdout.split())


@pytest.mark.parametrize("version, extra, found",
                         [(None, "cuda13]' (or 'cuteblas[cuda12]'", "not found"),
                          (11080, "cuda13]' (or 'cuteblas[cuda12]'", "runs CUDA 11.8 and older"),
                          (12090, "cuda12]'", "runs CUDA 12.9 and older"),
                          (13000, "cuda13]'", "runs CUDA 13.0 and older")])
def test_doctor_asks_the_driver_itself(version, extra, found, monkeypatch):
    """Without CuPy, which extra fits is the driver's to say."""
    monkeypatch.setattr(doctor, "_cuda_of_driver", lambda: version)
    monkeypatch.setitem(sys.modules, "cupy", None)
    (cupy,), (driver,) = doctor._cupy(), doctor._driver()
    assert f"pip install 'cuteblas[{extra}" in cupy.remedy and cupy.remedy.count(
        "cuteblas["
    ) == 1 + ("or" in extra)
    assert driver.text == found and bool(driver.remedy) == (version is None or version < 12000)


def test_doctor_survives_a_broken_part(monkeypatch, capsys):
    def broken():
        raise OSError("the library is damaged")
        yield
    monkeypatch.setitem(doctor._CHECKS, "CuPy", broken)
    assert main(["doctor"]) == 0
    assert "--  CuPy              OSError: the library is damaged" in capsys.readouterr().out


def test_doctor_describes_devices(monkeypatch):
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=RuntimeError)
    monkeypatch.setattr(doctor, "_cuda_of_driver", lambda: 13010)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    from cuteblas.planning.problem import H200

    monkeypatch.setattr(doctor, "device_info", lambda ordinal: H200)
    found = list(doctor._driver())
    assert [finding.name for finding in found] == ["", "device 0", "costs of 0", "device 1",
                                                   "costs of 1", "host rates"]
    assert found[0].text == "runs CUDA 13.1 and older, 2 devices"
    assert found[1].text == "NVIDIA H200, sm_90, 132 multiprocessors at 1980 MHz, 4286 GB/s in a copy, 227 KiB of shared memory"
    assert found[2].text == "measured on this kind of card, shipped with cuteblas"
    assert not any(finding.remedy for finding in found[:-1])
    assert found[-1].text.startswith("estimated") and "calibrate --host" in found[-1].remedy
    monkeypatch.setattr(doctor, "host_costs", lambda: None)
    assert list(doctor._driver())[-1] == doctor.Finding("measured by calibrate --host",
                                                        name="host rates")
    scaled = doctor._costs(DEVICES["a100"])
    assert "scaled from NVIDIA H200 by clock" in scaled.text and "calibrate measures this card" in scaled.remedy
    own = replace(DEVICES["a100"], costs=replace(default_costs(), device=DEVICES["a100"].name,
                                                 origin="a100.json"))
    assert doctor._costs(own) == doctor.Finding("measured here: a100.json")
