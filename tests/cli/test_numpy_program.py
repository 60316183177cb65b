"""``python -m cuteblas --numpy PROGRAM``: unchanged NumPy programs, reported on and compared."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuteblas
from cuteblas.array import numpy_hooks
from cuteblas.array.numpy_loops import why_unavailable
from cuteblas.cli.comparison import NumpyCalls, frozen, made
from cuteblas.cli.machines import Host, random_array_at
from cuteblas.cli.run import report_on_numpy

from ..functions.arrays import LAYOUTS, laid_out

if (reason := why_unavailable()) is not None:
    pytest.skip(reason, allow_module_level=True)

PROGRAM = """
import sys
import numpy as np
x = np.arange(4900).reshape(70, 70) % 5
for _ in range(3):
    y = x.T @ x
z = np.einsum("ij,jk,kl->il", x, x, x)
print(y.sum(), z.sum(), x[:2, :2] @ x[:2, :2], np.linalg.multi_dot([x, x, x]).sum())
sys.exit(5)
"""


def python(folder, *arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder,
                          timeout=60, env=os.environ
                          | {"PYTHONPATH": os.pathsep.join(sys.path), "CUTEBLAS_BACKEND": "numpy"}
                          | environment)


def test_a_program_ends_as_without_us_and_is_reported_on(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    expected = python(tmp_path, "program.py")
    for options in (["--numpy"], ["run", "--numpy"], ["--numpy", "--compare"],
                    ["--compare", "--numpy"]):
        result = python(tmp_path, "-m", "cuteblas", *options, "program.py")
        assert (result.returncode, result.stdout) == (expected.returncode,
                                                      expected.stdout) == (5, expected.stdout)
        lines = [line.strip() for line in result.stderr.splitlines()]
        assert lines[1].startswith("cuteblas answered ") and "copies of NumPy arrays, 0 of them on a GPU" in lines[1]
        assert any(line.startswith("3  matmul: ")
                   for line in lines) and any(line.startswith("1  einsum: ") for line in lines)
        assert ("in all" in result.stderr) == ("--compare" in options)
    assert any(line.startswith("3 ") and "matmul(int64 70x70 F, int64 70x70): " in line
               for line in lines)
    assert any("matmul(int64 2x2 strided, int64 2x2 strided): NumPy, at once" in line
               for line in lines)
    assert "calls were not timed" not in result.stderr


def test_a_program_without_products_and_one_that_cannot_be_served(tmp_path, monkeypatch):
    for options in (["--numpy"], ["--numpy", "--compare"]):
        result = python(tmp_path, "-m", "cuteblas", *options, "-c", "print('here')")
        assert result.stdout == "here\n" and result.stderr.strip().startswith(
            "cuteblas: no product or copy"
        )
    broken = "import numpy._core._multiarray_umath as m; del m._UFUNC_API"
    result = python(
        tmp_path,
        "-c",
        f"{broken}; import sys, cuteblas.cli; cuteblas.cli.main(['--numpy', '-c', 'print(1)'])"
    )
    assert result.stdout == "1\n"
    assert result.stderr.strip().startswith(
        "NumPy ran all products: cuteblas cannot be installed: NumPy"
    )
    assert report_on_numpy("because") == "NumPy ran all products: because"


def test_arrays_are_made_again_as_they_were():
    for layout in LAYOUTS:
        for dtype in ("f4", "i2", "?", "c16", "i1"):
            x = laid_out((3, 4, 5), dtype, layout)
            again = random_array_at(np, frozen(x, []).memory)
            assert (again.shape, again.strides, again.dtype) == (x.shape, x.strides, x.dtype)
            assert again.__array_interface__["data"][0] % 16 == x.__array_interface__["data"][0] % 16
            assert len(np.unique(again)) > 1
    assert random_array_at(np, frozen(np.ones((0, 4)), []).memory).shape == (0, 4)
    x, arrays = np.ones((30, 20), "f4"), []
    again = made(Host(), frozen((x.T, x, [x, 3], "ij", np.ones(2)), []), arrays)
    assert np.shares_memory(again[0], again[1]) and again[2][0].base is again[1].base and again[2][1:] == [3] and again[3] == "ij"
    assert again[0].strides == x.T.strides and type(again) is tuple and not np.shares_memory(again[0], again[4])


def test_kinds_of_calls_are_told_apart_and_timed():
    x, counter = np.ones((40, 40), "i4"), NumpyCalls()
    out = np.zeros((40, 40), "i4")
    for args, named in (((x, x), {}), ((x, x), {}), ((x, x.copy()), {}), ((x.T, x), {}),
                        ((x, x), {"out": out})):
        counter.note(np.matmul, args, named)
    counter.note(np.matmul, (x, {}), {})
    assert sorted(counter.calls.values()) == [1, 1, 1, 2] and counter.unknown == 1
    dot = next(each for each in numpy_hooks.FUNCTIONS if each.patch.function == "dot")
    counter.note(dot, (np.ones((4, 4)), np.ones((5, 5))), {})           # which NumPy refuses
    *_, last, missing = counter.compared()
    assert last.split()[:2] == ["in", "all"] and missing.split() == ["2", "calls", "were", "not",
                                                                     "timed"]
    assert counter.timed(Host(), next(iter(counter.calls)))[0][0] > 0
    assert numpy_hooks.SWITCH.watch is None and not cuteblas.array.install.installed("numpy")


@pytest.mark.parametrize("name, sizes", [("pca", (2200, 128, 4)), ("kernel_ridge", (210, 150, 784)),
                                         ("digits_network", (210, 210, 2)),
                                         ("count_paths", (64, 7, 3)), ("tensor_network", (4, 20)),
                                         ("kmeans", (3000, 256, 64, 2)),
                                         ("power_iteration", (400, 8, 3)),
                                         ("markov_chains", (350, 3, 50)),
                                         ("coupled_cluster", (4, 12, 2)),
                                         ("image_warps", (2, 384, 1)),
                                         ("gaussian_process", (400, 350, 100)),
                                         ("transformer", (128, 256, 1, 2))])
def test_examples_have_the_same_results(name, sizes, capsys):
    example = Path(__file__).parents[2] / "docs" / "examples" / "numpy_programs" / f"{name}.py"
    assert "cuteblas" not in example.read_text().partition('"""\n\nimport')[2]
    main = runpy.run_path(str(example))["main"]
    main(*sizes)
    expected = capsys.readouterr().out.splitlines()
    cuteblas.install(numpy=True)
    cuteblas.reset_stats()
    main(*sizes)
    cuteblas.uninstall()
    assert capsys.readouterr().out.splitlines()[:-1] == expected[:-1] and expected[0].startswith(
        "checksum "
    )
    assert cuteblas.stats()
