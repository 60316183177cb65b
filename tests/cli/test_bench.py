"""``python -m cuteblas bench``, on a GPU that is this CPU."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import cuteblas
from cuteblas import emulator
from cuteblas._cache import cache_directory
from cuteblas.cli import bench, main, measurements, products
from cuteblas.cli.measurements import Selection
from cuteblas.cli.permutations import Permutation, random_permutations
from cuteblas.cli.products import KINDS, RANDOM_DTYPES, random_products
from cuteblas.planning.problem import H200

from .fakes import FakeGpu


@pytest.fixture
def emulated():
    """Kernels by name run in the emulator, in place of a GPU."""
    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    with cuteblas.backend("emulator"):
        yield


def measured(group, seconds=(1.0,), **selection):
    selection = {"sizes": ((24,),), "dtypes": ("float32",), "orders": ("NN",), "repeats": 3} | selection
    return list(measurements.GROUPS[group](FakeGpu(seconds), Selection(**selection)))


def test_without_a_gpu_there_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "the CUDA driver does not find a device")
    assert main(["bench", "gemm"]) == 2
    assert capsys.readouterr() == ("", "bench needs a GPU: the CUDA driver does not find a device; without one, "
                                       "bench host --backend numpy times calls on NumPy arrays\n")


def test_sustained_is_of_products_alone(capsys):
    for arguments in ([], ["transpose"], ["gemm", "host"], ["gemm", "--variants"]):
        assert main(["bench", *arguments, "--sustained", "0.25"]) == 2
        assert capsys.readouterr() == ("", "--sustained needs the group gemm alone, without --variants\n")


def test_products():
    rows = measured("gemm", (1e-3, 4e-3), sizes=((24,), (8, 12, 20), (5, 6)), dtypes=("float32", "complex128", "int8"),
                    orders=("NN", "TT"))
    assert [row["case"] for row in rows] == [f"{dtype} {size} {orders}" for dtype in ("float32", "complex128", "int8")
                                             for size in ("24x24x24", "8x12x20") for orders in ("NN", "TT")]
    for row in rows:
        assert (row["ours_s"], row["rival_s"], row["ratio"], row["right"]) == (1e-3, 4e-3, 4.0, True)
        assert row["kernel"] in ("gemm_simt", "gemm_mma", "gemm_thin") and row["error"] == row["rival_error"] < 5
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
    [row] = measured("gemm", (1e-3, 2e-3), sizes=((24,),), dtypes=(bench._dtype("bfloat16"),), orders=("NT",))
    assert row["case"] == "bfloat16 24x24x24 NT" and row["right"] and all(0 < row[of] <= 1 for of in ("error", "rival_error"))


@pytest.mark.parametrize("orders, strides", [("NN", ((20, 1), (12, 1))), ("NT", ((20, 1), (1, 20))), ("TN", ((1, 8), (12, 1))),
                                             ("TT", ((1, 8), (1, 20)))])
def test_orders_are_strides(orders, strides):
    [(_, a, b)] = measurements._products(np, Selection(((8, 12, 20),), ("int8",), (orders,)), measurements.random_array)
    assert (a.shape, b.shape) == ((8, 20), (20, 12)) and (a.strides, b.strides) == strides
    assert not np.array_equal(a.ravel()[:20], b.ravel()[:20])


def test_a_wrong_product_is_found(monkeypatch, capsys):
    monkeypatch.setattr(measurements, "matmul", lambda a, b, out, precision: np.multiply(a @ b, np.float32(1.01), out=out))
    assert bench.measure(FakeGpu(), ["gemm"], Selection(((24,),), ("float32",), ("NN",), repeats=1), None, {}) == 1
    text = capsys.readouterr().out
    assert "WRONG results: float32 24x24x24 NN" in text


def test_transposes(monkeypatch):
    rows = measured("transpose", (2e-3, 6e-3, 1e-3), sizes=((16,), (20, 30), (1, 2, 3)), dtypes=("int8", "complex128"))
    assert [row["case"] for row in rows] == ["int8 16x16", "int8 20x30", "complex128 16x16", "complex128 20x30"]
    last = rows[-1]
    assert (last["ratio"], last["of_copy"], last["kernel"], last["right"]) == (3.0, 0.5, "transpose", True)
    assert last["gb_s"] == pytest.approx(2 * 20 * 30 * 16 / 2e-3 / 1e9)
    monkeypatch.setattr(measurements, "copy", lambda x, order, variant: np.zeros_like(x))
    assert not measured("transpose")[0]["right"]


def test_permutations_and_transposes_in_place(monkeypatch):
    """Exact in the end, whatever was measured before; what they are compared with is NumPy's and a copy of the same bytes."""
    kinds = (bench._size("6x5x8:2,0,1"), bench._size("24:inplace"), bench._size("3x20x20:inplace"), bench._size("8x9:0,1"))
    rows = measured("transpose", (2e-3, 6e-3, 1e-3), sizes=(), permutations=kinds, dtypes=("int8", "complex128"))
    assert [row["case"] for row in rows] == [f"{dtype} {size}" for dtype in ("int8", "complex128") for size in (
        "6x5x8:2,0,1", "24x24:inplace", "3x20x20:inplace", "8x9:0,1")]
    assert [row["kernel"] for row in rows[:4]] == ["transpose", "transpose_in_place", "transpose_in_place", "copy"]
    assert all((row["ratio"], row["of_copy"], row["right"]) == (3.0, 0.5, True) for row in rows)
    assert rows[-2]["gb_s"] == pytest.approx(2 * 3 * 20 * 20 * 16 / 2e-3 / 1e9)
    moves = list(measurements._moves(FakeGpu(), Selection(((5, 6),), ("int16",), permutations=kinds[:2])))
    assert [move.case for move in moves] == ["int16 5x6", "int16 6x5x8:2,0,1", "int16 24x24:inplace"]
    assert moves[1].source.shape == (8, 6, 5) and moves[1].target is None
    assert moves[2].target is moves[2].array and np.array_equal(moves[2].source, moves[2].array.T)
    before = moves[2].array.copy()
    assert moves[2].run() is moves[2].array and np.array_equal(moves[2].array, before.T)
    monkeypatch.setattr(measurements, "copy", lambda x, order="K", out=None, variant=None: np.zeros_like(x) if out is None else out)
    assert not any(row["right"] for row in measured("transpose", sizes=(), permutations=kinds))


def test_sizes():
    assert (bench._size("4096"), bench._size("8191x8193")) == ((4096,), (8191, 8193))
    assert bench._size("65X35x129x253:2,0,3,1") == Permutation((65, 35, 129, 253), (2, 0, 3, 1))
    assert bench._size("8192:inplace") == Permutation((8192, 8192), (1, 0), True)
    assert bench._size("64x1024x1024:inplace") == Permutation((64, 1024, 1024), (0, 2, 1), True)


def test_random_permutations_are_those_of_their_seed():
    drawn = random_permutations(200, 3, {"int8": 1, "float64": 8})
    assert drawn == random_permutations(200, 3, {"int8": 1, "float64": 8}) != random_permutations(200, 4, {"int8": 1, "float64": 8})
    for dtype, moved in drawn:
        nbytes = np.prod(moved.extents, dtype=float) * {"int8": 1, "float64": 8}[dtype]
        assert 2**19 <= nbytes <= 2**29 and 2 <= len(moved.extents) <= 26
        assert sorted(moved.axes) == list(range(len(moved.extents)))
    assert any(moved.beyond for _, moved in drawn) and any(moved.backwards is not None for _, moved in drawn)
    moved = Permutation((2, 3, 4), (2, 0, 1), beyond=1, backwards=1)
    x = np.arange(30).reshape(2, 3, 5)
    assert moved.memory() == x.shape and (moved.of(x) == x[:, ::-1, :4].transpose(2, 0, 1)).all()
    assert str(moved) == "2x3x4:2,0,1 of rows of 5 with axis 1 reversed"


@pytest.mark.parametrize("size, sentence", [
    ("8191x8193:inplace", "a transpose in place needs square matrices, got '8191x8193:inplace'"),
    ("3x4x5:0,1", "a permutation of axes is written 64x1001x1037:0,2,1, got '3x4x5:0,1'"),
    ("3x4:0,0", "a permutation of axes is written 64x1001x1037:0,2,1, got '3x4:0,0'"),
    ("3x4:", "a permutation of axes is written 64x1001x1037:0,2,1, got '3x4:'"),
    ("3xx4:1,0", "a shape is written 4096x4096, got '3xx4'"),
    ("3x4:x", "a permutation of axes is written 64x1001x1037:0,2,1, got '3x4:x'"),
    ("3x0", "extents to time are above 0, got '3x0'")])
def test_sizes_are_checked(size, sentence, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "transpose", "--sizes", size])
    error = capsys.readouterr().err
    assert f"argument --sizes: {sentence};" in error and error.count("\n") == 1


@pytest.mark.parametrize("groups", [[], ["gemm"], ["transpose", "reduce"]])
def test_permutations_are_transposes(groups, capsys):
    assert main(["bench", *groups, "--sizes", "64", "64:inplace"]) == 2
    assert capsys.readouterr() == ("", "permutations of axes and transposes in place need the group transpose alone\n")


@pytest.mark.parametrize("arguments, sentence", [
    (["reduce"], "--random needs the group gemm or transpose alone, as in bench gemm --random COUNT"),
    ([], "--random needs the group gemm or transpose alone, as in bench gemm --random COUNT"),
    (["gemm", "--sizes", "64"], "gemm --random does not go with --sizes, --variants or --sustained"),
    (["gemm", "--variants"], "gemm --random does not go with --sizes, --variants or --sustained")])
def test_random_is_of_products_or_transposes(arguments, sentence, capsys):
    assert main(["bench", *arguments, "--random", "3"]) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


def test_random_products_are_those_of_their_seed():
    """As many of each kind, type and order, within the extents and sizes that were asked for."""
    drawn = random_products(252, 3)
    assert drawn == random_products(252, 3) and drawn != random_products(252, 4) and len(set(drawn)) == 252
    for attribute, names in (("kind", KINDS), ("dtype", RANDOM_DTYPES), ("orders", measurements.ORDERS)):
        assert {name: 252 // len(names) for name in names} == Counter(getattr(x, attribute) for x in drawn)
    for x in (*drawn, *random_products(600, 5)):
        assert all(1 <= n <= 10**6 for n in (x.m, x.n, x.k)) and 1 <= x.batch <= 10**7
        assert x.batch * (x.m * x.k + x.n * x.k + x.m * x.n) <= 10**9 and 2 * x.batch * x.m * x.n * x.k <= 5e12
    assert any(x.batch > 10**5 for x in drawn) and any(max(x.m, x.n, x.k) > 5e5 for x in drawn)
    assert {(x.dtype, x.orders) for x in random_products(30, 0, ("int8",), ("TN",))} == {("int8", "TN")}


def test_random_products_are_graded_and_summed_up(capsys, tmp_path):
    """By kind and by type, the slowest last, beside the floors; and a product of each kind is right."""
    drawn = [x for x in random_products(400, 3) if x.batch * x.m * x.n * x.k < 1e6]
    assert {x.kind for x in drawn} == set(KINDS) and {x.dtype for x in drawn} == set(RANDOM_DTYPES)
    rows = list(products.timed_products(FakeGpu((1e-3, 2e-3)), drawn, 1, "auto"))
    assert len(rows) == len(drawn) and all(row["right"] and row["ratio"] == 2.0 and 0 < row["floor_s"] < 1e-3 for row in rows)
    rows[5]["ratio"], rows[7]["ratio"] = 0.5, 0.4
    text = products.report(rows)
    total = next(line for line in text.splitlines() if line.startswith("  all"))
    assert total.split() == ["all", str(len(rows)), "2.00", "2.00", "0.40", "2"]
    assert all(any(line.split()[:1] == [name] or line.startswith(f"  {name} ") for line in text.splitlines())
               for name in (*KINDS, *RANDOM_DTYPES))
    slowest = text.partition("the slowest")[2].splitlines()[1:3]
    assert [line.split()[:4] for line in slowest] == [[*row["case"].split(), f"{row['ratio']:.2f}"] for row in (rows[7], rows[5])]
    file = tmp_path / "random.json"
    which = Selection(dtypes=("int8",), orders=("NT",), random=4, seed=13, repeats=1)
    assert bench.measure(FakeGpu((1e-3, 2e-3)), ["gemm"], which, file, {}) == 0
    assert "relative to the best of CuPy and torch" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["figures"]["gemm"]) == 4


def test_kernels_of_random_products_are_compiled_before(monkeypatch):
    """Those of the plan that the call itself would take."""
    compiled = []
    monkeypatch.setattr(products.runtime, "compile", lambda kernel, target: compiled.append(kernel.name))
    monkeypatch.setattr(products, "device_of_workers", lambda: H200)
    for each in random_products(40, 6):
        a, b, c = (np.lib.stride_tricks.as_strided(np.empty(1, each.dtype), x.shape, x.strides) for x in products.memories(each))
        with cuteblas.backend("emulator"):
            plan = cuteblas.explain(a, b, c).plan
        compiled.clear()
        products._compile(each, "auto")
        assert compiled == [launch.kernel.name for launch in plan.launches], str(each)


@pytest.mark.usefixtures("emulated")
def test_reductions(monkeypatch):
    rows = measured("reduce", (1e-3, 2e-3), sizes=((20, 30), (8,)), dtypes=("float32", "int8", "complex64"))
    assert [row["case"] for row in rows[:3]] == ["float32 20x30 along 1", "float32 20x30 along 0", "float32 8x8 along 1"]
    assert len(rows) == 12 and all(row["right"] for row in rows)
    first = rows[0]
    assert (first["ratio"], first["kernel"]) == (2.0, "reduce") and first["gb_s"] == pytest.approx((600 + 20) * 4 / 1e-3 / 1e9)
    monkeypatch.setattr(measurements.EMULATOR, "run", lambda plan, arrays: arrays["dst"].fill(0))
    assert not measured("reduce", sizes=((20, 30),))[0]["right"]


@pytest.mark.usefixtures("emulated")
def test_transposes_by_name(monkeypatch):
    rows = measured("transpose", (1e-3, 2e-3), sizes=((64, 128), (20, 30)), dtypes=("float32", "float64"), variants=True, repeats=1)
    assert [(row["case"], row["variant"]) for row in rows[:2]] == [
        ("float32 64x128", "transpose (planning's choice)"), ("float32 64x128", "transpose_naive_read")]
    named = {(row["case"], row["variant"]): row for row in rows}
    assert named["float32 64x128", "transpose_smem_conflict_read"]["conflicts"] == "32-way load"
    assert named["float64 20x30", "transpose_smem_conflict_write"]["conflicts"] == "16-way store"
    assert named["float32 64x128", "transpose_smem_padded_unpredicated"]["conflicts"] == "none"
    assert ("float64 20x30", "transpose_smem_padded_unpredicated") not in named and not any(name == "tma_copy" for _, name in named)
    assert ("float32 64x128", "tma_transpose") in named
    first = rows[0]
    assert (first["latency_s"], first["percent_of_copy"]) == (2e-3, 50.0) and all(row["right"] for row in rows)
    assert first["gb_s"] == pytest.approx(2 * 64 * 128 * 4 / 2e-3 / 1e9)
    asked = []
    monkeypatch.setattr(measurements, "_moves", lambda machine, which: asked.append(which) or iter(()))
    measured("transpose", sizes=(), dtypes=(), variants=True)
    assert (asked[0].sizes, asked[0].dtypes) == (((8192,),), ("float32",))


@pytest.mark.usefixtures("emulated")
def test_permutations_by_name():
    """Named kernels that refuse a permutation are left out, all of them in place."""
    kinds = bench._size("2x64x32:0,2,1"), bench._size("64:inplace")
    rows = measured("transpose", (1e-3, 2e-3), sizes=(), permutations=kinds, variants=True, repeats=1)
    assert all(row["right"] for row in rows) and [row["variant"] for row in rows if row["case"].endswith("inplace")] == [
        "transpose_in_place (planning's choice)"]
    assert rows[0]["variant"] == "transpose (planning's choice)" and {row["case"] for row in rows} == {
        "float32 2x64x32:0,2,1", "float32 64x64:inplace"}


@pytest.mark.usefixtures("emulated")
def test_products_by_name():
    rows = measured("gemm", (4e-3, 2e-3), sizes=((64, 64, 16), (20, 30, 8)), dtypes=("float32",), orders=("NT",), variants=True,
                    repeats=1)
    named = {(row["case"], row["variant"]): row for row in rows}
    assert rows[0]["variant"] == "gemm_simt (planning's choice)" and all(row["right"] for row in rows)
    assert ("float32 64x64x16 NT", "gemm_naive_tiled_rolled") in named and ("float32 20x30x8 NT", "gemm_huge") in named
    assert ("float32 20x30x8 NT", "gemm_huge_aligned") not in named and ("float32 64x64x16 NT", "igemm_dp4a") not in named
    assert named["float32 64x64x16 NT", "gemm_naive_tiled_dense"]["conflicts"] != "none"
    assert rows[0]["ratio"] == pytest.approx(2) and rows[0]["tflops"] == pytest.approx(2 * 64 * 64 * 16 / 2e-3 / 1e12)


@pytest.mark.usefixtures("emulated")
def test_the_table_of_named_transposes(tmp_path, capsys):
    file = tmp_path / "figures.json"
    which = Selection(((64,),), ("float32",), repeats=1, variants=True)
    assert bench.measure(FakeGpu((1e-3,)), ["transpose"], which, file, {}) == 0
    heading, first, *_ = capsys.readouterr().out.splitlines()[2:]
    assert heading.split() == ["kernel", "ms", "GB/s", "%", "of", "copy", "bank", "conflicts"]
    assert first.split() == ["float32", "64x64", "transpose", "(planning's", "choice)", "1.00000", "0.0328", "100.0", "none"]
    assert json.loads(file.read_text())["figures"]["transpose"][0]["percent_of_copy"] == 100


def test_host_times_are_per_call():
    assert [row["ratio"] for row in measured("host", (3e-6, 6e-6))] == [2.0] * 16
    assert measured("host", (3e-6, 6e-6))[0]["ours_s"] == pytest.approx(3e-6)


def test_host_times_on_numpy_arrays_need_no_gpu(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")
    monkeypatch.setattr(measurements, "_HOST_CALLS", 2)
    file = tmp_path / "host.json"
    assert main(["bench", "host", "--backend", "numpy", "--repeats", "1", "--json", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "NumPy us" in out and "CuPy" not in out and out.endswith(f"wrote {file}\n") and err == ""
    assert all(row["ours_s"] > 0 and row["rival_s"] > 0 for row in json.loads(file.read_text())["figures"]["host"])
    assert main(["bench", "gemm", "--backend", "numpy"]) == 2
    assert "bench host --backend numpy" in capsys.readouterr().err


@pytest.mark.parametrize("group, selection", [
    ("gemm", {"sizes": ((24,), (8, 12, 20), (5, 6)), "orders": ("NN", "TT")}), ("reduce", {"sizes": ((8, 12), (16,))}),
    ("host", {}),
    ("transpose", {"sizes": ((16,), (20, 30), (1, 2, 3)), "permutations": (Permutation((2, 3, 4), (2, 0, 1)),)}),
    ("transpose", {"sizes": ((16,),), "variants": True}), ("epilogue", {"sizes": ((16,), (8, 4, 2))})])
def test_cases_are_counted_before(group, selection, request):
    """The total of a progress bar is how many cases there are in the end."""
    if group != "host":
        request.getfixturevalue("emulated")
    which = {"dtypes": ("float32", "float64"), "repeats": 1, "sizes": ((24,),)} | selection
    rows = measured(group, **which)
    assert measurements.number_of_cases(group, Selection(**which)) == len({row["case"] for row in rows})


@pytest.mark.parametrize("arguments, sentence", [
    (["--repeats", "0"], "expected a whole number of at least 1, got '0'"), (["--repeats", "many"], "of at least 1, got 'many'"),
    (["nope"], "unknown group 'nope'"), (["gemm", "--svg", "f.svg"], "bench figure --svg FILE"),
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


def test_clients_need_scikit_learn(monkeypatch, capsys):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    assert main(["bench", "clients"]) == 2
    assert "pip install 'cuteblas[demo]'" in capsys.readouterr().err


def test_sizes_that_no_group_takes(capsys):
    assert bench.measure(FakeGpu(), ["gemm"], Selection(((5, 6),)), None, {}) == 0
    assert "no case has these sizes" in capsys.readouterr().out

def test_compile_times(monkeypatch):
    compiled, before = [], cache_directory()

    def compile_(kernel, arch, *, fresh):
        assert cache_directory() != before
        compiled.append(fresh)

    monkeypatch.setattr("cuteblas.runtime.compile", compile_)
    rows = measured("compile", sizes=((512,),), dtypes=("float32", "float16"))
    names = [row["case"] for row in rows]
    assert len(set(names)) == len(names) and any(name.startswith("gemm_wgmma") and name.endswith(" sm_90a") for name in names)
    assert any(name.startswith("transpose_b16") and name.endswith(" sm_90") for name in names)
    assert compiled == [True, False] * len(names) and cache_directory() == before


def test_types_without_kernels_are_refused():
    with pytest.raises(ValueError, match="there are no kernels for object"):
        measured("compile", dtypes=("object",))


def test_tables_and_file(tmp_path, capsys):
    file = tmp_path / "figures.json"
    which = Selection(((24,),), ("float32",), ("NN", "NT"), repeats=1)
    assert bench.measure(FakeGpu((1e-3, 4e-3)), ["gemm", "host"], which, file, {"device": "fake"}) == 0
    lines = capsys.readouterr().out.splitlines()
    heading, first = lines[lines.index("gemm") + 1], lines[lines.index("gemm") + 2]
    assert heading.split() == ["kernel", "us", "CuPy", "us", "ratio", "TFLOP/s", "error", "CuPy's"]
    assert first.startswith("float32 24x24x24 NN") and first.split()[3:7] == ["gemm_simt", "1000", "4000", "4.00"]
    written = json.loads(file.read_text())
    assert written["about"] == {"device": "fake"} and [row["ratio"] for row in written["figures"]["gemm"]] == [4.0, 4.0]
    assert len(written["figures"]["host"]) == 16


def test_the_file_survives_an_interruption(tmp_path, monkeypatch):
    def stops(machine, which):
        yield {"case": "one", "ours_s": 1.0}
        raise KeyboardInterrupt

    monkeypatch.setitem(bench._GROUPS, "gemm", (stops, lambda which: 2))
    with pytest.raises(KeyboardInterrupt):
        bench.measure(FakeGpu(), ["gemm"], Selection(), tmp_path / "f.json", {})
    assert json.loads((tmp_path / "f.json").read_text())["figures"]["gemm"] == [{"case": "one", "ours_s": 1.0}]


def test_options_reach_the_measurement(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: None)
    monkeypatch.setattr(bench, "Gpu", FakeGpu)
    monkeypatch.setattr(bench, "versions", lambda: {"device": "fake"})
    monkeypatch.setattr(bench, "measure", lambda *arguments: asked.append(arguments) or 0)
    monkeypatch.setattr("sys.argv", ["cuteblas", "bench", "host"])
    assert main(["bench"]) == 0
    assert main(["bench", "transpose", "--sizes", "64:inplace"]) == 0
    assert asked.pop()[2] == Selection(permutations=(Permutation((64, 64), (1, 0), True),))
    assert main(["bench", "gemm", "--sustained", "0.25"]) == 0
    assert asked.pop()[2] == Selection(sustained=0.25)
    assert main(["bench", "host", "figure", "--sizes", "64", "8x9x10", "--dtypes", "f4", "D", "--orders", "tn", "--precision",
                 "ieee", "--repeats", "5", "--variants", "--json", str(tmp_path / "x"), "--svg", str(tmp_path / "y")]) == 0
    (_, groups, which, file, _, drawing), (_, groups2, which2, file2, about, drawing2) = asked
    assert groups == list(measurements.GROUPS) and which == Selection() and file is drawing is None
    assert groups2 == ["host", "figure"] and (file2, drawing2) == (tmp_path / "x", tmp_path / "y")
    assert which2 == Selection(((64,), (8, 9, 10)), ("float32", "complex128"), ("TN",), "ieee", 5, True)
    assert about == {"command": "python -m cuteblas bench host", "device": "fake"}


@pytest.mark.parametrize("arguments", [["dance"], ["--dtypes", "foo"], ["--orders", "NX"], ["--precision", "best"],
                                       ["--sizes", "big"], ["gemm", "--sustained", "0"], ["gemm", "--sustained", "long"],
                                       ["gemm", "--sustained", "nan"]])
def test_options_are_checked(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.startswith("python -m cuteblas bench: ") and err.count("\n") == 1


def test_epilogues(monkeypatch):
    rows = measured("epilogue", (1e-3, 0.9e-3, 2e-3), sizes=((24,),), dtypes=("float32", "float16"))
    assert [row["case"] for row in rows[:3]] == [f"float32 24x24x24 NN {name} auto" for name in ("relu", "bias", "bias_gelu")]
    assert all(row["right"] and row["ratio"] == 2.0 and row["of_plain"] == pytest.approx(1 / 0.9) for row in rows)
    monkeypatch.setattr(measurements, "_elementwise", lambda xp, name, bias: lambda y: y.fill(1e3))
    assert not any(row["right"] for row in measured("epilogue"))
