"""``python -m conformance.bench figure``, on a GPU that is this CPU."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest

from conformance.bench import __main__ as command
from conformance.bench import figure as module
from conformance.bench.figure import KINDS, chart, figure
from conformance.bench.groups import Selection
from cuteblas import emulator
from cuteblas.cli import bench
from tests.cli.fakes import FakeGpu

SIZE = (48, 40, 32)


@pytest.fixture(autouse=True)
def _compiler():
    if not emulator.available():
        pytest.skip(emulator.why_unavailable())


def rows(**selection):
    count, found = figure(FakeGpu((4e-3, 1e-3)),
                          Selection(**{"sizes": (SIZE,), "orders": ("NN", "TN"), "repeats": 1}
                                    | selection))
    found = list(found)
    assert count == len({row["case"] for row in found})
    return found


def test_every_type_order_and_kernel_is_measured_and_right():
    found = rows(orders=("NN", "NT", "TN", "TT"))
    assert all(row["right"] for row in found)
    every = ("NN", "NT", "TN", "TT")
    wanted = {(letter, orders, kernel) for letter, kind in KINDS.items() for orders in every
              for kernel in kind.kernels}
    # 8-bit tensor core operands are contiguous along K: A is transposed, B is not.
    wanted -= {("I", orders, "gemm_mma") for orders in ("NN", "NT", "TT")}
    seen = {(row["case"][0], row["case"].split()[1],
             None if row["variant"].startswith("planning") else row["variant"]) for row in found}
    assert seen == wanted
    assert {row["variant"] for row in found if row["case"].startswith("H")} == {
        "gemm_huge",
        "planning: gemm_mma"
    }


def test_orders_are_those_of_blas():
    for order, strides in (("N", (1, 6)), ("T", (5, 1))):
        x = module._operand(np, order, 6, 5, "int8", 0)
        assert x.shape == (6, 5) and x.strides == strides


def test_types_and_sizes_can_be_chosen():
    found = rows(dtypes=("float64",), sizes=((16,), (24, 16, 8)), orders=("TT",))
    assert [row["case"] for row in found if row["variant"] == "gemm_mma"] == [
        "DGEMM TT 16x16x16",
        "DGEMM TT 24x16x8"
    ]


def test_a_wrong_kernel_is_found(monkeypatch, capsys):
    class Broken:
        device = staticmethod(emulator_engine().device)

        @staticmethod
        def run(plan, arrays):
            arrays["c"][...] = 1.01 * (arrays["a"].astype(float) @ arrays["b"].astype(float))

    monkeypatch.setattr(module, "engine_of", lambda machine: Broken)
    which = Selection(sizes=(SIZE,), dtypes=("float32",), orders=("NN",), repeats=1)
    assert bench.verdict(bench.measure(FakeGpu(), {"figure": figure}, which, None, {})) == 1
    assert "WRONG results: SGEMM NN 48x40x32" in capsys.readouterr().out


def emulator_engine():
    from cuteblas.engines.emulator import EMULATOR

    return EMULATOR


def test_table_json_and_drawing(tmp_path, capsys, monkeypatch):
    about = {"device": "a <fake> GPU", "cublas": "0"}
    monkeypatch.setattr(
        bench, "machine_of", lambda options, program: (FakeGpu((1e-3, 2e-3)), about)
    )
    data, drawing = tmp_path / "figure.json", tmp_path / "figure.svg"
    arguments = ["figure", "--sizes", "48x40x32", "--orders", "NN", "TN", "--repeats", "1"]
    assert command.main([*arguments, "--json", str(data), "--svg", str(drawing)]) == 0
    found = json.loads(data.read_text())["figures"]["figure"]
    lines = capsys.readouterr().out.splitlines()
    assert sum(line[1:5] == "GEMM" for line in lines) == len(found) and lines[-3:] == [
        "",
        f"wrote {data}",
        f"wrote {drawing}"
    ]
    tree = ElementTree.fromstring(drawing.read_text())
    svg = "{http://www.w3.org/2000/svg}"
    bars = [x for x in tree.iter(f"{svg}rect") if x.find(f"{svg}title") is not None]
    assert len(bars) == len(found)
    zero = {round(float(x.get("y")) + float(x.get("height")), 1) for x in bars}
    assert len(zero) == 1
    unit = [float(x.get("height")) / row["ratio"] for x, row in zip(bars, found, strict=True)]
    assert max(unit) - min(unit) < 0.2                      # heights are proportional to the ratios
    edges = [(float(x.get("x")), float(x.get("x")) + float(x.get("width"))) for x in bars]
    assert all(right <= left for (_, right), (left, _) in pairwise(edges)), "bars overlap"
    words = [x.text for x in tree.iter(f"{svg}text")]
    assert any("a <fake> GPU" in word for word in words) and {"SGEMM", "WGEMM", "NN",
                                                              "TN"} <= set(words)


def test_an_empty_figure_is_a_picture():
    assert ElementTree.fromstring(chart([], {})).tag.endswith("svg")
