"""``python -m cuteblas bench einsum gram``, on a GPU that is this CPU."""

from dataclasses import replace

from cuteblas.cli import bench
from cuteblas.cli import contractions as module
from cuteblas.cli.measurements import Selection

from .fakes import FakeGpu


def test_contractions(monkeypatch, capsys):
    monkeypatch.setattr(module, "_CONTRACTIONS", (("ij,ij->i", ((20, 3),) * 2), ("ij->i", ((4, 5),))))
    which = Selection(repeats=1, dtypes=("float32", "complex128"))
    rows = list(module.contractions(FakeGpu((1e-3, 3e-3)), which))
    assert [row["case"] for row in rows] == [f"{s} {d}" for d in which.dtypes for s in ("ij,ij->i", "ij->i")]
    assert len(rows) == module.number_of_contractions(which) and all(row["right"] and row["ratio"] == 3 for row in rows)
    assert bench.measure(FakeGpu((1e-3,)), ["einsum"], which, None, {}) == 0 and "ij,ij->i" in capsys.readouterr().out


def test_gram_matrices(monkeypatch):
    which = Selection(repeats=1, sizes=((24,), (8, 8, 30)), dtypes=("float64", "complex64", "float16"))
    rows = list(module.gram_matrices(FakeGpu((1e-3, 2e-3, 3e-3, 4e-3)), replace(which, dtypes=which.dtypes[:2])))
    assert [row["case"] for row in rows[:2]] == ["24x24x24 float64", "8x8x30 float64"] and len(rows) == 4
    assert {(row["to_plain"], row["ratio"], row["triangle_s"], row["right"]) for row in rows} == {(2, 3, 4e-3, True)}
    rows = list(module.gram_matrices(FakeGpu((1e-3, 2e-3, 3e-3)), replace(which, dtypes=("float16",))))
    assert {(row["ratio"], row["triangle_s"], row["right"]) for row in rows} == {(3, None, True)}
    assert module.number_of_gram_matrices(which) == 6
    monkeypatch.setattr(module, "matmul", lambda a, b: a @ b + [[1, 0]])
    assert not next(module.gram_matrices(FakeGpu((1e-3,)), Selection(repeats=1, sizes=((2,),), dtypes=("float64",))))["right"]
