"""``python -m cuteblas bench``, on a GPU that is this CPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cuteblas.cli import bench, main
from cuteblas.cli.bench import Selection
from cuteblas.cli.problems import Permutation

from .fakes import FakeGpu

PRODUCTS = {"gemm": bench.GROUPS["gemm"]}


def measured(group, seconds=(1.0,), **selection):
    selection = {"sizes": ((24,),), "dtypes": ("float32",), "orders": ("NN",),
                 "repeats": 3} | selection
    count, rows = bench.GROUPS[group](FakeGpu(seconds), Selection(**selection))
    rows = list(rows)
    assert count == len({row["case"] for row in rows})          # what a bar of progress counts to
    return rows


def test_without_a_gpu_there_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable",
                        lambda: "the CUDA driver does not find a device")
    assert main(["bench", "gemm"]) == 2
    assert capsys.readouterr() == (
        "",
        "bench needs a GPU: the CUDA driver does not find a device; without one, "
        "--backend numpy times calls on NumPy arrays\n"
    )


def test_products():
    rows = measured("gemm", (1e-3, 4e-3), sizes=((24,), (8, 12, 20), (5, 6)),
                    dtypes=("float32", "complex128", "int8"), orders=("NN", "TT"))
    assert [row["case"] for row in rows] == [f"{dtype} {size} {orders}"
                                             for dtype in ("float32", "complex128", "int8")
                                             for size in ("24x24x24", "8x12x20")
                                             for orders in ("NN", "TT")]
    for row in rows:
        assert (row["ours_s"], row["rival_s"], row["ratio"], row["right"]) == (
            1e-3,
            4e-3,
            4.0,
            True
        )
        assert row["kernel"] in ("gemm_simt", "gemm_mma",
                                 "gemm_thin") and row["error"] == row["rival_error"] < 5
    assert rows[0]["tflops"] == pytest.approx(2 * 24**3 / 1e-3 / 1e12)
    assert rows[4]["tflops"] == pytest.approx(8 * 24**3 / 1e-3 / 1e12)


def test_products_of_bfloat16(monkeypatch):
    """NumPy's are float32; ours and CuPy's are measured as bfloat16."""
    def rounded(a, b, out):
        out[...] = a.astype("f4") @ b.astype("f4")

    class Rival:
        matmul = staticmethod(rounded)

        def __getattr__(self, name):
            return getattr(np, name)

    monkeypatch.setattr(FakeGpu, "rival", Rival())
    [row] = measured("gemm", (1e-3, 2e-3), sizes=((24,),), dtypes=(bench._dtype("bfloat16"),),
                     orders=("NT",))
    assert row["case"] == "bfloat16 24x24x24 NT" and row["right"] and all(0 < row[of] <= 1 for of in ("error", "rival_error"))


@pytest.mark.parametrize("orders, strides", [("NN", ((20, 1), (12, 1))), ("NT", ((20, 1), (1, 20))),
                                             ("TN", ((1, 8), (12, 1))), ("TT", ((1, 8), (1, 20)))])
def test_orders_are_strides(orders, strides):
    [case] = bench.product_cases(Selection(((8, 12, 20),), ("int8",), (orders,)), ())
    a, b = bench.operands(np, case)
    assert (a.shape, b.shape) == ((8, 20), (20, 12)) and (a.strides, b.strides) == strides
    assert not np.array_equal(a.ravel()[:20], b.ravel()[:20])


def test_a_wrong_product_is_found(monkeypatch, capsys):
    monkeypatch.setattr(
        bench,
        "matmul",
        lambda a, b, out, precision, variant: np.multiply(a @ b, np.float32(1.01), out=out)
    )
    assert bench.verdict(bench.measure(FakeGpu(), PRODUCTS,
                                       Selection(((24,),), ("float32",), ("NN",), repeats=1), None,
                                       {})) == 1
    text = capsys.readouterr().out
    assert "WRONG results: float32 24x24x24 NN" in text


def test_transposes(monkeypatch):
    rows = measured("transpose", (2e-3, 6e-3, 1e-3), sizes=((16,), (20, 30), (1, 2, 3)),
                    dtypes=("int8", "complex128"))
    assert [row["case"] for row in rows] == ["int8 16x16", "int8 20x30", "complex128 16x16",
                                             "complex128 20x30"]
    last = rows[-1]
    assert (last["ratio"], last["of_copy"], last["kernel"], last["right"]) == (
        3.0,
        0.5,
        "transpose",
        True
    )
    assert last["gb_s"] == pytest.approx(2 * 20 * 30 * 16 / 2e-3 / 1e9)
    monkeypatch.setattr(bench, "copy", lambda x, order, out, variant: np.zeros_like(x))
    assert not measured("transpose")[0]["right"]


def test_permutations_and_transposes_in_place(monkeypatch):
    """Exact in the end, whatever was measured before; what they are compared with is NumPy's and a
    copy of the same bytes."""
    kinds = (bench._size("6x5x8:2,0,1"), bench._size("24:inplace"), bench._size("3x20x20:inplace"),
             bench._size("8x9:0,1"))
    rows = measured("transpose", (2e-3, 6e-3, 1e-3), sizes=kinds,
                    dtypes=("int8", "complex128"))
    assert [row["case"] for row in rows] == [f"{dtype} {size}" for dtype in ("int8", "complex128")
                                             for size in ("6x5x8:2,0,1", "24x24:inplace",
                                                          "3x20x20:inplace", "8x9:0,1")]
    assert [row["kernel"] for row in rows[:4]] == ["transpose", "transpose_in_place",
                                                   "transpose_in_place", "copy"]
    assert all((row["ratio"], row["of_copy"], row["right"]) == (3.0, 0.5, True) for row in rows)
    assert rows[-2]["gb_s"] == pytest.approx(2 * 3 * 20 * 20 * 16 / 2e-3 / 1e9)
    cases = bench.move_cases(Selection(((5, 6), *kinds[:2]), ("int16",)))
    assert [f"{dtype} {size}" for dtype, size in cases] == ["int16 5x6", "int16 6x5x8:2,0,1",
                                                            "int16 24x24:inplace"]
    monkeypatch.setattr(bench, "copy",
                        lambda x, order="K", out=None, variant=None: np.zeros_like(x) if out is None
                        else out)
    assert not any(row["right"] for row in measured("transpose", sizes=kinds))


def test_sizes():
    assert (bench._size("4096"), bench._size("8191x8193")) == ((4096,), (8191, 8193))
    assert bench._size("65X35x129x253:2,0,3,1") == Permutation((65, 35, 129, 253), (2, 0, 3, 1))
    assert bench._size("8192:inplace") == Permutation((8192, 8192), (1, 0), True)
    assert bench._size("64x1024x1024:inplace") == Permutation((64, 1024, 1024), (0, 2, 1), True)


def test_a_permutation_is_of_a_slice_of_memory():
    moved = Permutation((2, 3, 4), (2, 0, 1), beyond=1, backwards=1)
    x = np.arange(30).reshape(2, 3, 5)
    assert moved.memory() == x.shape and (moved.of(x) == x[:, ::-1, :4].transpose(2, 0, 1)).all()
    assert str(moved) == "2x3x4:2,0,1 of rows of 5 with axis 1 reversed"


@pytest.mark.parametrize(
    "size, sentence",
    [
        (
            "8191x8193:inplace",
            "a transpose in place needs two equal last extents, got the shape (8191, 8193)"
        ),
        ("3x4x5:0,1", "the axes of a permutation of (3, 4, 5) are 0 to 2 in some order, got 0,1"),
        ("3x4:0,0", "the axes of a permutation of (3, 4) are 0 to 1 in some order, got 0,0"),
        *(
            (
                text,
                f"a size is written 4096, 8191x8193, 64x1001x1037:0,2,1 or 8192:inplace, with extents above 0, got {text!r}"
            )
            for text in ("3x4:", "3xx4:1,0", "3x4:x", "3x0", "()", "3 4", "")
        )
    ]
)
def test_sizes_are_checked(size, sentence, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "transpose", "--sizes", size])
    error = capsys.readouterr().err
    assert f"argument --sizes: {sentence};" in error and error.count("\n") == 1


@pytest.mark.parametrize("groups", [[], ["gemm"], ["transpose", "gemm"]])
def test_permutations_are_transposes(groups, capsys):
    assert main(["bench", *groups, "--sizes", "64", "64:inplace"]) == 2
    assert capsys.readouterr() == (
        "",
        "permutations of axes and transposes in place need the group transpose alone\n"
    )


def test_numpy_arrays_need_no_gpu(monkeypatch, tmp_path, capsys):
    """Whatever runs them: they are timed as a program would find it."""
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")
    file = tmp_path / "numpy.json"
    arguments = ["--backend", "numpy", "--sizes", "40", "--dtypes", "f4", "bfloat16", "--orders",
                 "NT", "--repeats", "1"]
    assert main(["bench", *arguments, "--json", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "NumPy us" in out and "CuPy" not in out and out.endswith(f"wrote {file}\n") and err == ""
    figures = json.loads(file.read_text())["figures"]
    assert all(row["ours_s"] > 0 and row["rival_s"] > 0 and row["right"]
               for rows in figures.values() for row in rows)
    assert [(row["case"], row["kernel"]) for rows in figures.values()
            for row in rows] == [(f"{dtype} {size}", "NumPy") for size in ("40x40x40 NT", "40x40")
                                 for dtype in ("float32", "bfloat16")]


def test_the_fastest_of_the_others_counts(monkeypatch):
    class Torch:
        from_dlpack, matmul = staticmethod(np.asarray), staticmethod(np.matmul)

    monkeypatch.setattr(bench, "torch_of", lambda machine: Torch)
    [row] = measured("gemm", (1e-3, 4e-3, 3e-3))
    assert (row["rival_s"], row["torch_s"], row["ratio"]) == (4e-3, 3e-3, 3.0) and row["right"]
    assert "torch_s" not in measured("gemm", dtypes=("int8",))[0]


@pytest.mark.parametrize("arguments, sentence",
                         [(["--repeats", "0"], "expected a whole number of at least 1, got '0'"),
                          (["--repeats", "many"], "of at least 1, got 'many'"),
                          (["nope"], "unknown group 'nope'; the groups are gemm, transpose"),
                          (["figure"], "unknown group 'figure'"),
                          (["--json", "no/f.json"], "no directory 'no'"),
                          (["gemm", "--json", "."], "it is a directory")])
def test_what_is_refused_before_anything_runs(arguments, sentence, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["bench", *arguments])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2 and sentence in err and err.count("\n") == 1 and out == ""


def test_types_that_gemm_does_not_take(capsys):
    assert main(["bench", "gemm", "--dtypes", "float8_e5m2", "--sizes", "8", "--backend",
                 "numpy"]) == 2
    assert "not of float8_e5m2" in capsys.readouterr().err


def test_sizes_that_no_group_takes(capsys):
    assert bench.verdict(bench.measure(FakeGpu(), PRODUCTS, Selection(((5, 6),)), None, {})) == 0
    assert "no case has these sizes" in capsys.readouterr().out

def test_tables_and_file(tmp_path, capsys):
    file = tmp_path / "figures.json"
    which = Selection(((24,),), ("float32",), ("NN", "NT"), repeats=1)
    assert bench.verdict(bench.measure(FakeGpu((1e-3, 4e-3)), PRODUCTS, which, file,
                                       {"device": "fake"})) == 0
    lines = capsys.readouterr().out.splitlines()
    heading, first = lines[lines.index("gemm") + 1], lines[lines.index("gemm") + 2]
    assert heading.split() == ["kernel", "us", "CuPy", "us", "ratio", "TFLOP/s", "error", "CuPy's"]
    assert first.startswith("float32 24x24x24 NN") and first.split()[3:7] == [
        "gemm_simt",
        "1000",
        "4000",
        "4.00"
    ]
    written = json.loads(file.read_text())
    assert written["about"] == {"device": "fake"} and [
        row["ratio"] for row in written["figures"]["gemm"]
    ] == [4.0, 4.0]


def test_the_file_survives_an_interruption(tmp_path):
    def stops(machine, which):
        yield {"case": "one", "ours_s": 1.0}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.measure(FakeGpu(), {"gemm": lambda *both: (2, stops(*both))}, Selection(),
                      tmp_path / "f.json", {})
    assert json.loads((tmp_path / "f.json").read_text())["figures"]["gemm"] == [
        {"case": "one", "ours_s": 1.0}
    ]


def test_options_reach_the_measurement(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: None)
    monkeypatch.setattr(bench, "Gpu", FakeGpu)
    monkeypatch.setattr(bench, "versions", lambda: {"device": "fake"})
    monkeypatch.setattr(bench, "measure", lambda *arguments: asked.append(arguments) or {})
    monkeypatch.setattr("sys.argv", ["cuteblas", "bench", "gemm"])
    assert main(["bench"]) == 0
    assert main(["bench", "transpose", "--sizes", "64:inplace"]) == 0
    assert asked.pop()[2] == Selection([Permutation((64, 64), (1, 0), True)])
    assert main(["bench", "gemm", "--sizes", "64", "8x9x10", "--dtypes", "f4", "D", "--orders",
                 "tn", "--precision", "ieee", "--repeats", "5", "--json", str(tmp_path / "x")]) == 0
    (_, groups, which, file, _), (_, groups2, which2, file2, about) = asked
    assert groups == bench.GROUPS and which == Selection() and file is None
    assert groups2 == PRODUCTS and file2 == tmp_path / "x"
    assert which2 == Selection([(64,), (8, 9, 10)], ["float32", "complex128"], ["TN"], "ieee", 5)
    assert about == {"command": "python -m cuteblas bench gemm", "device": "fake"}


@pytest.mark.parametrize("arguments", [["dance"], ["--dtypes", "foo"], ["--orders", "NX"],
                                       ["--precision", "best"], ["--sizes", "big"],
                                       ["gemm", "--sustained", "1"]])
def test_options_are_checked(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.startswith("python -m cuteblas bench: ") and err.count("\n") == 1


