"""``python -m conformance.bench``, on a GPU that is this CPU."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from conformance.bench import __main__ as command
from conformance.bench import groups, products
from conformance.bench.groups import Selection
from conformance.bench.products import KINDS, RANDOM_DTYPES, random_products
from conformance.bench.samples import random_permutations
from cuteblas import emulator
from cuteblas._cache import cache_directory
from cuteblas.cli import bench
from cuteblas.cli.bench import ORDERS
from cuteblas.cli.machines import medians
from cuteblas.cli.problems import Permutation
from cuteblas.planning.problem import H200
from tests.cli.fakes import FakeGpu

main = command.main


@pytest.fixture
def emulated():
    """Let the emulator run named kernels."""
    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    with cuteblas.backend("emulator"):
        yield


def measured(group, seconds=(1.0,), **selection):
    """The rows of a group, as many cases as it said before."""
    selection = {"sizes": ((24,),), "dtypes": ("float32",), "orders": ("NN",),
                 "repeats": 3} | selection
    count, rows = command.ALL[group](FakeGpu(seconds), Selection(**selection))
    rows = list(rows)
    assert count == len({row["case"] for row in rows})
    return rows


def test_sustained_calls_run_for_as_long_before_they_are_timed():
    log = []

    def interval(call, times):
        log.append((call(), times))
        return 0.01 * times

    machine = groups.Sustained(SimpleNamespace(interval=interval, title="CuPy"), 0.25)
    assert medians(machine, lambda: "a", lambda: "b", repeats=3) == [pytest.approx(0.01)] * 2
    turns = [log[i:i + 3] for i in range(0, len(log), 3)]
    assert len(turns) == 2 * 2 + 3 * 2 and machine.title == "CuPy"
    assert all(turn == [(name, 1), (name, 25), (name, 25)]
               for turn in turns for name in turn[0][:1])


def test_sustained_is_of_products_alone(capsys):
    for arguments in ([], ["transpose"], ["gemm", "host"], ["gemm", "--variants"]):
        assert main([*arguments, "--sustained", "0.25"]) == 2
        assert capsys.readouterr() == (
            "",
            "--sustained needs the group gemm alone, without --variants\n"
        )


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["reduce"], "--random needs the group gemm or transpose alone, as in gemm --random COUNT"),
        ([], "--random needs the group gemm or transpose alone, as in gemm --random COUNT"),
        (
            ["gemm", "--sizes", "64"],
            "gemm --random does not go with --sizes, --variants or --sustained"
        ),
        (
            ["gemm", "--variants"],
            "gemm --random does not go with --sizes, --variants or --sustained"
        )
    ]
)
def test_random_is_of_products_or_transposes(arguments, sentence, capsys):
    assert main([*arguments, "--random", "3"]) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


def test_random_products_are_those_of_their_seed():
    """As many of each kind, type and order, within the extents and sizes that were asked for."""
    drawn = random_products(252, 3)
    assert drawn == random_products(252, 3) and drawn != random_products(252, 4) and len(set(drawn)) == 252
    for attribute, names in (("kind", KINDS), ("dtype", RANDOM_DTYPES), ("orders", ORDERS)):
        assert {name: 252 // len(names) for name in names} == Counter(getattr(x, attribute)
                                                                      for x in drawn)
    for x in (*drawn, *random_products(600, 5)):
        assert all(1 <= n <= 10**6 for n in (x.m, x.n, x.k)) and 1 <= x.batch <= 10**7
        assert x.batch * (x.m * x.k + x.n * x.k + x.m
                          * x.n) <= 10**9 and 2 * x.batch * x.m * x.n * x.k <= 5e12
    assert any(x.batch > 10**5 for x in drawn) and any(max(x.m, x.n, x.k) > 5e5 for x in drawn)
    assert {(x.dtype, x.orders) for x in random_products(30, 0, ("int8",),
                                                         ("TN",))} == {("int8", "TN")}


def test_random_products_are_graded_and_summed_up(capsys, tmp_path, monkeypatch):
    """By kind and by type, the slowest last, beside the floors; and a product of each kind is
    right."""
    small = [x for x in random_products(400, 3) if x.batch * x.m * x.n * x.k < 1e6]
    drawn = list({(x.kind, x.dtype): x for x in small}.values())         # one of each kind and type
    assert {x.kind for x in drawn} == set(KINDS) and {x.dtype for x in drawn} == set(RANDOM_DTYPES)
    rows = list(products.timed_products(FakeGpu((1e-3, 2e-3)), drawn, 1, "auto"))
    assert len(rows) == len(drawn) and all(row["right"] and row["ratio"] == 2.0
                                           and 0 < row["floor_s"] < 1e-3 for row in rows)
    rows[5]["ratio"], rows[7]["ratio"] = 0.5, 0.4
    text = products.report(rows)
    total = next(line for line in text.splitlines() if line.startswith("  all"))
    assert total.split() == ["all", str(len(rows)), "2.00", "2.00", "0.40", "2"]
    assert all(any(line.split()[:1] == [name] or line.startswith(f"  {name} ")
                   for line in text.splitlines()) for name in (*KINDS, *RANDOM_DTYPES))
    slowest = text.partition("the slowest")[2].splitlines()[1:3]
    assert [line.split()[:4] for line in slowest] == [[*row["case"].split(), f"{row['ratio']:.2f}"]
                                                      for row in (rows[7], rows[5])]
    file = tmp_path / "random.json"
    monkeypatch.setattr(bench, "machine_of", lambda options, program: (FakeGpu((1e-3, 2e-3)), {}))
    arguments = ["--dtypes", "int8", "--orders", "NT", "--random", "4", "--seed", "13", "--repeats",
                 "1", "--json", str(file)]
    assert main(["gemm", *arguments]) == 0
    assert "relative to the best of CuPy and torch" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["figures"]["gemm"]) == 4


def test_kernels_of_random_products_are_compiled_before(monkeypatch):
    """Those of the plan that the call itself would take."""
    compiled = []
    monkeypatch.setattr(products.runtime, "compile",
                        lambda kernel, target: compiled.append(kernel.name))
    for each in random_products(40, 6):
        a, b, c = (np.lib.stride_tricks.as_strided(np.empty(1, each.dtype), x.shape, x.strides)
                   for x in products.memories(each))
        with cuteblas.backend("emulator"):
            plan = cuteblas.explain(a, b, c).plan
        compiled.clear()
        products._compile(each, "auto", H200)
        assert compiled == [launch.kernel.name for launch in plan.launches], str(each)


@pytest.mark.usefixtures("emulated")
def test_reductions(monkeypatch):
    rows = measured("reduce", (1e-3, 2e-3), sizes=((20, 30), (8,)),
                    dtypes=("float32", "int8", "complex64"))
    assert [row["case"] for row in rows[:3]] == ["float32 20x30 along 1", "float32 20x30 along 0",
                                                 "float32 8x8 along 1"]
    assert len(rows) == 12 and all(row["right"] for row in rows)
    first = rows[0]
    assert (first["ratio"], first["kernel"]) == (2.0, "reduce") and first["gb_s"] == pytest.approx(
        (600 + 20) * 4 / 1e-3 / 1e9
    )
    monkeypatch.setattr(groups.EMULATOR, "run", lambda plan, arrays: arrays["dst"].fill(0))
    assert not measured("reduce", sizes=((20, 30),))[0]["right"]


def test_the_ratio_of_products_is_that_of_cupy(monkeypatch):
    """As the pages have it; of random products, the fastest of the others counts."""
    class Torch:
        from_dlpack, matmul = staticmethod(np.asarray), staticmethod(np.matmul)

    monkeypatch.setattr(bench, "torch_of", lambda machine: Torch)
    [row] = measured("gemm", (1e-3, 4e-3, 3e-3))
    assert (row["rival_s"], row["torch_s"], row["ratio"]) == (4e-3, 3e-3, 4.0)
    rows = measured("gemm", (1e-3, 4e-3, 3e-3), sizes=(), dtypes=("float32",), random=1, seed=3,
                    orders=())
    assert [row["ratio"] for row in rows] == [3.0]


def test_host_times_are_per_call():
    assert [row["ratio"] for row in measured("host", (3e-6, 6e-6))] == [2.0] * 16
    assert measured("host", (3e-6, 6e-6))[0]["ours_s"] == pytest.approx(3e-6)


def test_host_times_on_numpy_arrays_need_no_gpu(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")
    monkeypatch.setattr(groups, "_HOST_CALLS", 2)
    file = tmp_path / "host.json"
    assert main(["host", "--backend", "numpy", "--repeats", "1", "--json", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "NumPy us" in out and "CuPy" not in out and out.endswith(f"wrote {file}\n") and err == ""
    assert all(row["ours_s"] > 0 and row["rival_s"] > 0
               for row in json.loads(file.read_text())["figures"]["host"])
    assert main(["gemm", "--backend", "numpy"]) == 2
    assert "needs the group host alone: host --backend numpy" in capsys.readouterr().err


@pytest.mark.parametrize(
    "group, selection",
    [
        ("gemm", {"sizes": ((24,), (8, 12, 20), (5, 6)), "orders": ("NN", "TT")}),
        ("reduce", {"sizes": ((8, 12), (16,))}),
        (
            "transpose",
            {
                "sizes": ((16,), (20, 30), (1, 2, 3), Permutation((2, 3, 4), (2, 0, 1)))
            }
        ),
        ("transpose", {"sizes": ((16,),), "variants": True}),
        ("epilogue", {"sizes": ((16,), (8, 4, 2))})
    ]
)
@pytest.mark.usefixtures("emulated")
def test_cases_are_counted_before(group, selection):
    """The total of a progress bar is how many cases there are in the end: ``measured`` compares
    them."""
    assert measured(group, **{"dtypes": ("float32", "float64"), "repeats": 1, "sizes": ((24,),)}
                    | selection)


@pytest.mark.usefixtures("emulated")
def test_transposes_by_name():
    rows = measured("transpose", (1e-3, 2e-3), sizes=((64, 128), (20, 30)),
                    dtypes=("float32", "float64"), variants=True, repeats=1)
    assert [(row["case"], row["variant"]) for row in rows[:2]] == [
        ("float32 64x128", "transpose (planning's choice)"),
        ("float32 64x128", "transpose_naive_read")
    ]
    named = {(row["case"], row["variant"]): row for row in rows}
    assert named["float32 64x128", "transpose_smem_conflict_read"]["conflicts"] == "32-way load"
    assert named["float64 20x30", "transpose_smem_conflict_write"]["conflicts"] == "16-way store"
    assert named["float32 64x128", "transpose_smem_padded_unpredicated"]["conflicts"] == "none"
    assert ("float64 20x30", "transpose_smem_padded_unpredicated") not in named and not any(
        name == "tma_copy" for _, name in named
    )
    assert ("float32 64x128", "tma_transpose") in named
    first = rows[0]
    assert first["ours_s"] == 1e-3 and all(row["right"] for row in rows)
    assert first["gb_s"] == pytest.approx(2 * 64 * 128 * 4 / 1e-3 / 1e9)
    assert bench.move_cases(groups._with_variants(Selection(variants=True), "copy")) == [
        ("float32", Permutation((8192, 8192)))
    ]


@pytest.mark.usefixtures("emulated")
def test_permutations_by_name():
    """Named kernels that refuse a permutation are left out, all of them in place."""
    kinds = bench._size("2x64x32:0,2,1"), bench._size("64:inplace")
    rows = measured("transpose", (1e-3, 2e-3), sizes=kinds, variants=True,
                    repeats=1)
    assert all(row["right"] for row in rows) and [
        row["variant"] for row in rows if row["case"].endswith("inplace")
    ] == ["transpose_in_place (planning's choice)"]
    assert rows[0]["variant"] == "transpose (planning's choice)" and {
        row["case"] for row in rows
    } == {"float32 2x64x32:0,2,1", "float32 64x64:inplace"}


@pytest.mark.usefixtures("emulated")
def test_products_by_name():
    rows = measured("gemm", (4e-3, 2e-3), sizes=((64, 64, 16), (20, 30, 8)), dtypes=("float32",),
                    orders=("NT",), variants=True, repeats=1)
    named = {(row["case"], row["variant"]): row for row in rows}
    assert rows[0]["variant"] == "gemm_simt (planning's choice)" and all(
        row["right"] for row in rows
    )
    assert ("float32 64x64x16 NT", "gemm_naive_tiled_rolled") in named and (
        "float32 20x30x8 NT",
        "gemm_huge"
    ) in named
    assert ("float32 20x30x8 NT", "gemm_huge_aligned") not in named and (
        "float32 64x64x16 NT",
        "igemm_dp4a"
    ) not in named
    assert named["float32 64x64x16 NT", "gemm_naive_tiled_dense"]["conflicts"] != "none"
    assert rows[0]["ours_s"] == 4e-3 and rows[0]["tflops"] == pytest.approx(
        2 * 64 * 64 * 16 / 4e-3 / 1e12
    )


@pytest.mark.usefixtures("emulated")
def test_the_table_of_named_transposes(tmp_path, capsys):
    file = tmp_path / "figures.json"
    which = Selection(((64,),), ("float32",), repeats=1, variants=True)
    bench.measure(FakeGpu((1e-3,)), {"transpose": command.ALL["transpose"]}, which, file, {})
    heading, first, *_ = capsys.readouterr().out.splitlines()[2:]
    assert heading.split() == ["kernel", "bank", "conflicts", "us", "CuPy", "us", "copy", "us",
                               "ratio", "of", "copy", "GB/s"]
    assert first.split() == ["float32", "64x64", "transpose", "(planning's", "choice)", "none",
                             *["1000"] * 3, "1.00", "1.00", "0.0328"]
    assert json.loads(file.read_text())["figures"]["transpose"][0]["of_copy"] == 1


def test_named_kernels_are_of_a_gpu(capsys):
    assert main(["host", "--variants", "--backend", "numpy"]) == 2
    assert "--variants times kernels of a GPU" in capsys.readouterr().err


def test_random_permutations_follow_those_that_are_named(monkeypatch):
    moved = []
    monkeypatch.setattr(groups, "moved", lambda machine, which, *case: moved.append(case)
                        or {"case": str(case)})
    assert len(measured("transpose", sizes=(), dtypes=(), random=5, seed=3)) == 5
    assert moved == random_permutations(5, 3, {"int8": 1, "float16": 2, "float32": 4, "float64": 8,
                                               "complex128": 16})
    moved.clear()
    assert len(measured("transpose", sizes=((4, 5),), dtypes=("int8",), random=2)) == 3
    assert moved[0] == ("int8", Permutation((4, 5)))


def test_clients_need_scikit_learn(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["clients"]) == 2
    assert "pip install 'cuteblas[demo]'" in capsys.readouterr().err


def test_compile_times(monkeypatch):
    compiled, before = [], cache_directory()

    def compile_(kernel, arch, *, fresh):
        assert cache_directory() != before
        compiled.append(fresh)

    monkeypatch.setattr("cuteblas.runtime.compile", compile_)
    rows = measured("compile", sizes=((512,),), dtypes=("float32", "float16"))
    names = [row["case"] for row in rows]
    assert len(set(names)) == len(names) and any(name.startswith("gemm_wgmma")
                                                 and name.endswith(" sm_90a") for name in names)
    assert any(name.startswith("transpose_b16") and name.endswith(" sm_90") for name in names)
    assert compiled == [True, False] * len(names) and cache_directory() == before


def test_types_without_kernels_are_refused():
    name = np.dtype("G").name
    with pytest.raises(ValueError, match=f"there are no kernels for {name}"):
        measured("compile", dtypes=(name,))


def test_tables_and_file(tmp_path, capsys):
    file = tmp_path / "figures.json"
    which = Selection(((24,),), ("float32",), ("NN", "NT"), repeats=1)
    chosen = {name: command.ALL[name] for name in ("gemm", "host")}
    assert bench.verdict(bench.measure(FakeGpu((1e-3, 4e-3)), chosen, which, file,
                                       {"device": "fake"})) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("gemm") < lines.index("host")
    assert {name: len(rows) for name, rows in json.loads(file.read_text())["figures"].items()} == {
        "gemm": 2,
        "host": 16
    }


def test_options_reach_the_measurement(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: None)
    monkeypatch.setattr(bench, "Gpu", FakeGpu)
    monkeypatch.setattr(bench, "versions", lambda: {"device": "fake"})
    monkeypatch.setattr(bench, "measure", lambda *arguments: asked.append(arguments)
                        or {"figure": []})
    monkeypatch.setattr("sys.argv", ["bench", "host"])
    assert main([]) == 0
    assert main(["transpose", "--sizes", "64:inplace"]) == 0
    assert asked.pop()[2] == Selection([Permutation((64, 64), (1, 0), True)])
    assert main(["gemm", "--sustained", "0.25"]) == 0
    assert asked.pop()[2] == Selection(sustained=0.25)
    assert main(["host", "figure", "--sizes", "64", "8x9x10", "--dtypes", "f4", "D", "--orders",
                 "tn", "--precision", "ieee", "--repeats", "5", "--variants", "--json",
                 str(tmp_path / "x"), "--svg", str(tmp_path / "y")]) == 0
    (_, chosen, which, file, _), (_, chosen2, which2, file2, about) = asked
    assert chosen == groups.GROUPS and which == Selection() and file is None
    assert list(chosen2) == ["host", "figure"] and file2 == tmp_path / "x" and "<svg" in (tmp_path / "y").read_text()
    assert which2 == Selection([(64,), (8, 9, 10)], ["float32", "complex128"], ["TN"], "ieee", 5,
                               variants=True)
    assert about == {"command": "python -m conformance.bench host", "device": "fake"}


def test_epilogues(monkeypatch):
    rows = measured("epilogue", (1e-3, 0.9e-3, 2e-3), sizes=((24,),), dtypes=("float32", "float16"))
    assert [row["case"] for row in rows[:3]] == [f"float32 24x24x24 NN {name} auto"
                                                 for name in ("relu", "bias", "bias_gelu")]
    assert all(row["right"] and row["ratio"] == 2.0 and row["of_plain"] == pytest.approx(1 / 0.9)
               for row in rows)
    monkeypatch.setattr(groups, "_elementwise", lambda xp, name, bias: lambda y: y.fill(1e3))
    assert not any(row["right"] for row in measured("epilogue"))


@pytest.mark.parametrize("arguments", [["dance"], ["gemm", "--sustained", "0"],
                                       ["gemm", "--sustained", "long"],
                                       ["gemm", "--sustained", "nan"], ["--random", "0"]])
def test_options_are_checked(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.startswith("python -m conformance.bench: ") and err.count("\n") == 1


def test_svg_needs_the_figure(capsys):
    assert main(["gemm", "--svg", "f.svg"]) == 2
    assert capsys.readouterr() == ("", "--svg needs the group figure: figure --svg FILE\n")
