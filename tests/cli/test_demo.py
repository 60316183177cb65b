"""``python -m cuteblas demo``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from cuteblas import current_backend, emulator
from cuteblas.cli import demo, main
from cuteblas.planning.floors import duration

from .fakes import FakeGpu

needs_compiler = pytest.mark.skipif(not emulator.available(),
                                    reason=str(emulator.why_unavailable()))
_RNG = np.random.default_rng(0)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr("cuteblas.emulator.why_unavailable",
                        lambda: "there is no compiler; install one with: apt-get install g++")


@pytest.fixture
def fake_gpu(monkeypatch):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: None)
    monkeypatch.setattr(demo, "Gpu", lambda: FakeGpu(seconds=(1.0, 3.0)))


@pytest.fixture
def saved(tmp_path):
    def save(name, array):
        np.save(tmp_path / name, array)
        return str(tmp_path / f"{name}.npy")
    return save


@needs_compiler
def test_digits(no_gpu, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo"]) == 0
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    for part in ("1797 handwritten digits of 8x8 pixels", "float32 (1797, 4096)",
                 "no GPU: none was asked for", "right, all 1797 rows checked: the error is at most",
                 "of the terms (float32 itself rounds by 6.0e-08)",
                 "right: all 7360512 elements are where NumPy puts them",
                 "kernel gemm_simt, generated for this product: 1 block",
                 "right: every element equals NumPy's", "64 threads own ",
                 "measurements on one NVIDIA H200", "with an estimated time", "gemm_split",
                 "all 3 results are right", "cuteblas explain 4096x4096"):
        assert part in flat, part
    assert "numpy.matmul" not in text, "NumPy has no rival here"
    assert max(map(len, text.splitlines())) <= 80 and "\x1b" not in text
    first, turned = (text[text.index(title):].splitlines()[1:9]
                     for title in ("four digits", "upside down"))
    assert any(line.strip() for line in first) and turned == first[::-1]


def test_what_is_said_of_a_gpu_is_in_the_data(tmp_path, no_gpu, no_compiler, saved, capsys):
    committed = Path(demo.__file__).parent / "measured.json"
    run_path(str(Path(__file__).parents[2] / "docs" / "performance" / "measured.py"))["main"](
        tmp_path / "measured.json"
    )
    assert (tmp_path / "measured.json").read_text() == committed.read_text()
    assert main(["demo", saved("x", np.ones((4, 5), "f4"))]) == 0
    lines = " ".join(capsys.readouterr().out.split())
    for what, ours, theirs in json.loads(committed.read_text())["rows"]:
        assert f"{what} {duration(ours)} {duration(theirs)} {theirs / ours:.1f} times as fast" in lines
    assert "on one NVIDIA H200, beside CuPy 14.2 (cuBLAS 13.1)" in lines


def test_digits_need_scikit_learn(monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo"]) == 2
    assert "pip install 'cuteblas[demo]'; or name one or two .npy files" in capsys.readouterr().err


@needs_compiler
def test_two_files_in_the_emulator(no_gpu, saved, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "cache"))
    a, b = saved("a", _RNG.standard_normal((130, 40))), saved("b", np.asfortranarray(_RNG.standard_normal((40, 25))))
    assert main(["demo", a, b]) == 0
    text = capsys.readouterr().out
    assert "a.npy: float64 (130, 40); b.npy: float64 (40, 25)" in text and "Multiply: a.npy @ b.npy" in text
    assert "product   float64 (96, 40) @ (40, 25)" in text and "all 3 results are right" in text
    assert "mostly to compile the kernel, which is now on disk" in " ".join(text.split())
    assert main(["demo", a, b]) == 0
    assert "with the compiled kernel from disk" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shape, dtype, formula",
                         [((30, 50), "f4", "A A^T"), ((50, 30), "c8", "A^H A"),
                          ((6,), "i4", "A A^T"), ((3, 20, 10), "f2", "A^T A")])
def test_gram_matrix_of_one_file(shape, dtype, formula, no_gpu, no_compiler, saved, capsys):
    x = (10 * (_RNG.standard_normal(shape) + (1j * _RNG.standard_normal(shape) if dtype[0] == "c"
                                              else 0))).astype(dtype)
    assert main(["demo", saved("x", x)]) == 0
    text = capsys.readouterr().out
    assert f"the Gram matrix {formula} of x.npy" in text and "install one with: apt-get install g++" in text
    assert "all 2 results are right" in text


def test_the_gram_matrix_of_complex_numbers_is_hermitian(saved):
    x = _RNG.standard_normal((4, 6)) + 1j * _RNG.standard_normal((4, 6))
    work = demo.task([saved("x", x)])
    assert np.array_equal(work.a, x) and np.array_equal(work.b,
                                                        x.conj().T) and np.array_equal(work.x, x)


@pytest.mark.skipif(np.dtype("g").itemsize == 8, reason="longdouble is float64 here")
def test_types_without_kernels(no_gpu, saved, capsys):
    assert main(["demo", saved("x", np.ones((4, 5), "g"))]) == 0
    text = capsys.readouterr().out
    assert f"there are no kernels for {np.dtype('g')}" in text and "all 2 results are right" in text


@pytest.mark.parametrize("files, why", [(["missing.npy"], "missing.npy cannot be read"),
                                        (["a", "b", "c"], "one or two .npy files"),
                                        ([np.array([{}])], "holds Python objects"),
                                        ([np.array(["text"])], "holds <U4"),
                                        ([np.ones((0, 3))], "nothing to multiply"),
                                        ([np.float64(3)], "nothing to multiply"),
                                        ([np.ones((2, 3)), np.ones((2, 3))],
                                         "mismatch in its core dimension")])
def test_what_cannot_be_multiplied(files, why, no_gpu, saved, capsys):
    names = [name if isinstance(name, str) else saved(f"x{i}", name)
             for i, name in enumerate(files)]
    assert main(["demo", *names]) == 2
    out, err = capsys.readouterr()
    assert why in err and err.count("\n") == 1 and out == ""


@pytest.mark.parametrize("content, why", [(b"1 2 3\n", "is not a .npy file; numpy.save("),
                                          (b"", "is not a .npy file"),
                                          (b"\x93NUMPY\x01\x00", "cannot be read as a .npy file"),
                                          (None, "Is a directory")])
def test_files_that_are_none(content, why, no_gpu, tmp_path, capsys):
    """The message does not advise to load them unsafely."""
    file = tmp_path / "t.txt"
    file.mkdir() if content is None else file.write_bytes(content)
    assert main(["demo", str(file)]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1 and "pickle" not in err


def test_archives_are_refused(tmp_path, no_gpu, capsys):
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    assert main(["demo", str(tmp_path / "x.npz")]) == 2
    assert "holds several arrays" in capsys.readouterr().err


def test_on_a_gpu_the_rival_is_cupy(fake_gpu, saved, capsys):
    assert main(["demo", saved("x", np.ones((40, 30), "f4"))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "runs on a fake GPU Multiply" in text and "cupy's right, all 30 rows checked" in text
    assert "cuteblas.matmul 1 s, cupy.matmul 3 s: 3.00 times as fast" in text
    assert "cuteblas.ascontiguousarray 1 s, cupy.ascontiguousarray 3 s: 3.00 times as fast" in text
    assert "Watch a kernel" not in text and "Speed on a GPU" not in text and "all 2 results are right" in text


def test_the_emulator_of_the_environment_is_not_given_large_products(no_gpu, no_compiler, saved,
                                                                     monkeypatch, capsys):
    def multiplied(a, b):
        seen.append(current_backend())
        return np.matmul(a, b)

    seen = []
    monkeypatch.setenv("CUTEBLAS_BACKEND", "emulator")
    monkeypatch.setattr(demo, "matmul", multiplied)
    assert main(["demo", saved("x", np.ones((40, 30), "f4"))]) == 0 and seen == ["numpy"]


def test_wrong_results_are_said_and_end_with_status_1(fake_gpu, saved, monkeypatch, capsys):
    def matmul(a, b):
        return np.matmul(a, b) * np.float32(1.01)

    def ascontiguousarray(x):
        return x

    monkeypatch.setattr(demo, "matmul", matmul)
    name = saved("x", np.ones((40, 30), "f4"))
    assert main(["demo", name]) == 1
    text = capsys.readouterr().out
    assert "result WRONG" in " ".join(text.split()) and "1 of 2 results are WRONG" in text
    monkeypatch.setattr(demo, "ascontiguousarray", ascontiguousarray)
    assert main(["demo", name]) == 1
    assert "NOT all 1200 elements are where NumPy puts them" in capsys.readouterr().out


def test_what_the_emulator_finds_is_shown(no_gpu, saved, monkeypatch, capsys):
    def found(plan, operands, *_scalars, **_numbers):
        raise emulator.DataRace("kernel k: two accesses")

    monkeypatch.setattr(emulator, "why_unavailable", lambda: None)
    monkeypatch.setattr(emulator, "run", found)
    assert main(["demo", saved("x", np.ones((8, 8), "f4"))]) == 1
    assert re.search(r"ERROR +kernel k: two accesses", capsys.readouterr().out)
