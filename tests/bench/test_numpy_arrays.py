"""``python -m conformance.bench numpy link``, with a GPU and CuPy that are this process."""

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from conformance.bench import __main__ as command
from conformance.bench import numpy_arrays
from conformance.bench.groups import Selection
from cuteblas.cli import bench
from tests.functions import host_cupy
from tests.functions.host_link import linked


class Library:
    """CuPy's functions that the table needs, by NumPy."""

    asarray = staticmethod(lambda x: x.copy())
    matmul, ascontiguousarray = staticmethod(np.matmul), staticmethod(np.ascontiguousarray)

    @staticmethod
    def asnumpy(x, out):
        out[...] = x

    cuda = type("cuda", (), {"alloc": staticmethod(host_cupy.allocate)})


class Machine:
    rival, title = Library, "CuPy"


def test_products(capsys):
    with linked():
        which = Selection(sizes=((40,),), dtypes=("float32", "complex64", "int64", "float16"),
                          repeats=2)
        assert numpy_arrays.numpy_arrays(Machine, which)[0] == 4
        assert bench.verdict(bench.measure(Machine, {"numpy": command.ALL["numpy"]}, which, None,
                                           {})) == 0
    heading, *rows = capsys.readouterr().out.splitlines()[2:]
    assert heading.split() == ["us", "new", "us", "NumPy", "us", "trip", "us", "ratio", "to",
                               "trip", "GB/s"] and len(rows) == 4


def test_the_usual_cases(monkeypatch):
    names = [case.name for case in numpy_arrays.CASES]
    assert len(names) == len(set(names)) and "transpose float32 8192" in names
    monkeypatch.setattr(numpy_arrays, "CASES", [numpy_arrays._products("int64", 64, 1 / 4)])
    with linked():
        _count, (row,) = numpy_arrays.numpy_arrays(Machine, Selection(repeats=1))
    assert row["right"] and row["ratio"] == pytest.approx(row["numpy_s"] / row["ours_s"])


def test_the_link(monkeypatch):
    monkeypatch.setattr(numpy_arrays, "_BLOCK", 1 << 16)
    with linked():
        count, rows = numpy_arrays.link(Machine, Selection(repeats=1))
        rows = list(rows)
    assert [row["case"] for row in rows][:3] == ["pageable, up", "pageable, down",
                                                 "pageable, both ways"]
    assert len(rows) == count == 6
