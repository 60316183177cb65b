"""``python -m conformance.blas``."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from conformance import blas as testsuite
from cuteblas import emulator
from cuteblas._dtypes import dtype as element
from cuteblas.blas import routines
from cuteblas.blas.types import ROUTINES, dtype_named


def test_the_table(capsys):
    assert testsuite.main(["--sizes", "5,4x7x3", "--trans", "nt,CR", "--storage", "psn"]) == 0
    head, *rows, count = capsys.readouterr().out.splitlines()
    assert head.split() == ["routine_trans_storage", "m", "n", "k", "alpha", "beta", "residual",
                            "verdict"]
    assert len(rows) == len(ROUTINES) * 2 * 2 * 2 and count == f"{len(rows)} PASS, 0 MARGINAL, 0 FAIL"
    assert rows[0].split()[:4] == ["sgemm_nt_psn", "5", "5", "5"] and rows[0].split()[-1] == "PASS"


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
def test_in_the_emulator(tmp_path):
    file = tmp_path / "outcomes.json"
    assert testsuite.main(["--backend", "emulator", "--routines", "sgemm,igemm", "--sizes", "17",
                           "--trans", "TN", "--storage", "FFF", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert len(records) == 4 and {record["verdict"] for record in records} == {"PASS"}
    assert records[0]["routine"] == "sgemm" and records[0]["residual"] < 1


@pytest.mark.gpu
def test_on_the_gpu():
    assert testsuite.main(["--backend", "cuda", "--sizes", "1,65x130x33", "--trans", "all",
                           "--storage", "FFF,CCC,PSN,NPS,SNC"]) == 0


@pytest.mark.parametrize("name", ROUTINES)
@pytest.mark.parametrize("wrong", ["one element", "all a little", "another array", "NaN"])
def test_it_notices(monkeypatch, name, wrong):
    right = getattr(routines, name)

    def broken(*arguments, **keywords):
        result = right(*arguments, **keywords)
        if wrong == "one element":
            result[2, 3] += 1 if result.dtype.kind == "i" else np.asarray(0.5).astype(result.dtype) * abs(result).max()
        elif wrong == "all a little":
            unit = 2.0**-element(result.dtype.name).significand
            result[...] = result + 1 if result.dtype.kind == "i" else result * np.float64(1 + 64 * unit)
        elif wrong == "NaN" and result.dtype.kind != "i":
            result[0, 0] = np.nan
        return result.copy() if wrong == "another array" or result.dtype.kind == "i" else result

    monkeypatch.setattr(routines, name, broken)
    assert testsuite.main(["--routines", name, "--sizes", "9", "--trans", "NN", "--storage", "FFF",
                           "--scalars", "1:0"]) == 1


def test_reading_c_is_noticed(monkeypatch):
    right = routines.dgemm

    def broken(alpha, a, b, beta, c, *trans, overwrite_c):
        before = c.copy()
        right(alpha, a, b, beta, c, *trans, overwrite_c=overwrite_c)
        c += beta * before * 0
        return c

    monkeypatch.setattr(routines, "dgemm", broken)
    assert testsuite.main(["--routines", "dgemm", "--scalars", "1:0"]) == 1


@pytest.mark.parametrize("arguments, message",
                         [(["--sizes", "4x5"], "sizes are n or MxNxK, got '4x5'"),
                          (["--sizes", "-4"], "sizes are n or MxNxK"),
                          (["--routines", "qgemm"], "no routine 'qgemm'"),
                          (["--trans", "NX"], "2 letters of NTCR"),
                          (["--storage", "FF"], "3 letters of CFPSN"),
                          (["--scalars", "1"], "finite numbers, got '1'"),
                          (["--scalars", "1:nan"], "finite numbers, got '1:nan'"),
                          (["--seed", "-1"], "a seed is an integer of at least 0, got '-1'")])
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        testsuite.main([f"{arguments[0]}={arguments[1]}"])
    assert message in capsys.readouterr().err


def test_complex_scalars_and_all(tmp_path, capsys):
    file = tmp_path / "outcomes.json"
    assert testsuite.main(["--routines", "zgemm,dgemm", "--sizes", "3", "--trans", "all",
                           "--storage", "FFF", "--scalars", "1+2j:0.5", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert len(records) == 32 and records[0]["alpha"] == "(1+2j)" and records[-1]["alpha"] == 1.0


def test_as_a_command():
    done = subprocess.run([sys.executable, "-m", "conformance.blas", "--routines", "sgemm",
                           "--sizes", "3"], capture_output=True, text=True, check=True)
    assert "sgemm_nn_fff" in done.stdout and not done.stderr


@pytest.fixture
def no_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtype_named.cache_clear()
    yield
    dtype_named.cache_clear()


def test_without_ml_dtypes_bfloat16_is_left_out(no_ml_dtypes, capsys):
    assert testsuite.main(["--sizes", "3", "--trans", "NN", "--storage", "FFF"]) == 0
    out, err = capsys.readouterr()
    assert "bgemm" not in out and "hgemm_nn_fff" in out and out.endswith(" 0 FAIL\n")
    assert err.startswith("bgemm is left out: ") and err.endswith("pip install ml-dtypes\n") and err.count("\n") == 1
    assert testsuite.main(["--routines", "bgemm"]) == 1
    assert "bgemm: NumPy has bfloat16 from the package ml_dtypes" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, sentence",
                         [(["--backend", "cuda"],
                           "--backend cuda cannot run here: none was asked for"),
                          (["--json", "missing/outcomes.json"], "there is no directory 'missing'"),
                          (["--routines", "dgemm,sgemm", "--scalars", "1e300:1"],
                           "sgemm: alpha and beta are float32, which cannot hold 1e+300")])
def test_what_is_refused_before_anything_runs(arguments, sentence, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")
    monkeypatch.chdir(tmp_path)
    assert testsuite.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1
