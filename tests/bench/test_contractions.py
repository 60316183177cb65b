"""``python -m conformance.bench einsum gram``, on a GPU that is this CPU."""

from dataclasses import replace

from conformance.bench import __main__ as command
from conformance.bench import contractions as module
from conformance.bench.groups import Selection
from cuteblas.cli import bench
from tests.cli.fakes import FakeGpu


def measured(group, seconds, which):
    count, rows = group(FakeGpu(seconds), which)
    rows = list(rows)
    assert len(rows) == count
    return rows


def test_contractions(monkeypatch, capsys):
    monkeypatch.setattr(module, "_CONTRACTIONS",
                        (("ij,ij->i", ((20, 3),) * 2), ("ij->i", ((4, 5),))))
    which = Selection(repeats=1, dtypes=("float32", "complex128"))
    rows = measured(module.contractions, (1e-3, 3e-3), which)
    assert [row["case"] for row in rows] == [f"{s} {d}" for d in which.dtypes
                                             for s in ("ij,ij->i", "ij->i")]
    assert all(row["right"] and row["ratio"] == 3 for row in rows)
    assert bench.verdict(bench.measure(FakeGpu((1e-3,)), {"einsum": command.ALL["einsum"]}, which,
                                       None, {})) == 0
    assert "ij,ij->i" in capsys.readouterr().out


def test_gram_matrices(monkeypatch):
    which = Selection(repeats=1, sizes=((24,), (8, 8, 30)),
                      dtypes=("float64", "complex64", "float16"))
    rows = measured(module.gram_matrices, (1e-3, 2e-3, 3e-3, 4e-3),
                    replace(which, dtypes=which.dtypes[:2]))
    assert [row["case"] for row in rows[:2]] == ["24x24x24 float64",
                                                 "8x8x30 float64"] and len(rows) == 4
    assert {(row["to_plain"], row["ratio"], row["triangle_s"], row["right"])
            for row in rows} == {(2, 3, 4e-3, True)}
    rows = measured(module.gram_matrices, (1e-3, 2e-3, 3e-3), replace(which, dtypes=("float16",)))
    assert {(row["ratio"], row["triangle_s"], row["right"]) for row in rows} == {(3, None, True)}
    monkeypatch.setattr(module, "matmul", lambda a, b: a @ b + [[1, 0]])
    [row] = measured(module.gram_matrices, (1e-3,),
                     Selection(repeats=1, sizes=((2,),), dtypes=("float64",)))
    assert not row["right"]
