"""How near expected times are to measured ones: ``python docs/performance/estimates.py`` writes the
table of README.md.

It plans every case of the data in this folder for an H200 and compares
``planning.estimates.estimate`` with the measured time.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from cuteblas.planning import (
    CopyProblem,
    GemmProblem,
    Operand,
    Plan,
    ReductionProblem,
    plan_copy,
    plan_gemm,
    plan_reduction,
)
from cuteblas.planning.floors import estimate
from cuteblas.planning.problem import H200

DATA = Path(__file__).parent / "data"
# Of earlier kernels, at the clocks that loads of seconds leave, and of another card.
LEFT_OUT = {("h200-bench", "gemm"), ("h200-bench", "transpose"), ("h200-bench", "epilogue"),
            ("h200-sustained", "gemm"), ("h200-transpose-random", "transpose"),
            ("h100-random", "gemm")}
BYTES = {"int8": 1, "float16": 2, "float32": 4, "float64": 8, "complex128": 16}
# Of CUTLASS's figure: types of A and B, of C, and of the sums.
KINDS = {"S": ("float32", "float32", None), "D": ("float64", "float64", None),
         "H": ("float16", "float16", None), "I": ("int8", "int32", None),
         "W": ("float16", "float32", None)}
KNOWN = ("gemm_", "igemm_", "transpose_", "tma_")


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes
    ----------
    name : str
        File and case.
    family : str or None
        The kernel that was measured, if the data says it.
    seconds : float
        What was measured.
    plan : callable
        Makes the plan.
    """

    name: str
    family: str | None
    seconds: float
    plan: Callable[[], Plan]


def cases() -> Iterator[Case]:
    """Every measurement that a plan is expected to meet."""
    for file in sorted(DATA.glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        precision = re.search(r"--precision (\w+)", data["about"]["command"])
        for group, rows in data["figures"].items():
            make = MAKERS.get(group)
            if make is not None and (file.stem, group) not in LEFT_OUT:
                for row in rows:
                    plan = make(row, precision[1] if precision else "auto")
                    seconds = row["latency_s"] if "latency_s" in row else row["ours_s"]
                    yield Case(f"{file.stem} {row['case']} {row.get('variant', '')}".strip(),
                               row.get("kernel"), seconds, plan)


def variant_of(row: dict[str, Any]) -> str | None:
    """The named kernel of a row; ``None`` for planning's choice."""
    name = row.get("variant", "")
    return name if name.startswith(KNOWN) and "(" not in name else None


def product(row: dict[str, Any], precision: str) -> Callable[[], Plan]:
    """``float32 1024x1024x1024 NT``: matrices by rows, B as it is (N) or transposed (T)."""
    dtype, size, (order_a, order_b) = row["case"].split()
    m, n, k = map(int, size.split("x"))
    a, b = Operand(dtype, (k, 1) if order_a == "N" else (1, m)), Operand(dtype, (1, n) if order_b == "N" else (k, 1))
    if dtype in ("float64", "complex128") and row.get("kernel") in ("gemm_mma", "gemm_simt"):
        precision = "ieee"                             # of earlier plans
    problem = GemmProblem(m, n, k, a, b, Operand(dtype, (n, 1)), precision=precision,
                          variant=variant_of(row))
    return lambda: plan_gemm(problem, H200)


def figure(row: dict[str, Any], _precision: str) -> Callable[[], Plan]:
    """``SGEMM NN 10240x4096x4096``: matrices by columns."""
    name, (order_a, order_b), size = row["case"].split()
    m, n, k = map(int, size.split("x"))
    dtype, output, compute = KINDS[name[0]]
    a, b = Operand(dtype, (1, m) if order_a == "N" else (k, 1)), Operand(dtype, (k, 1) if order_b == "N" else (1, n))
    precision = "ieee" if row["variant"] == "planning: gemm_simt" or dtype == "float64" else "auto"
    problem = GemmProblem(m, n, k, a, b, Operand(output, (1, m)), precision=precision,
                          variant=variant_of(row), compute=compute)
    return lambda: plan_gemm(problem, H200)


def permutation(row: dict[str, Any], _precision: str) -> Callable[[], Plan]:
    """``int8 64x1001x1037:0,2,1 of rows of 1040 with axis 0 reversed``: an array by rows, of longer
    ones or with an axis backwards, written out with its axes permuted, or transposed in place.
    """
    dtype, words, *how = row["case"].split()
    size, _colon, axes = words.partition(":")
    shape = tuple(map(int, size.split("x")))
    rows = int(how[how.index("rows") + 2]) if "rows" in how else shape[-1]
    backwards = int(how[how.index("axis") + 1]) if "axis" in how else None
    order = tuple(map(int, axes.split(","))) if axes and axes != "inplace" else (*range(len(shape) - 2), -1, -2)
    target = tuple(shape[i] for i in order)
    strides = [tuple(prod(x[i + 1:]) for i in range(len(x))) for x in ((*shape[:-1], rows), target)]
    source = tuple(-step if i == backwards else step for i, step in enumerate(strides[0]))
    problem = CopyProblem(target, tuple(source[i] for i in order), strides[1], BYTES[dtype],
                          variant=variant_of(row), in_place=axes == "inplace")
    return lambda: plan_copy(problem, H200)


def reduction(row: dict[str, Any], _precision: str) -> Callable[[], Plan]:
    """``float32 8192x8192 along 1``."""
    dtype, size, _along, axis = row["case"].split()
    rows, columns = map(int, size.split("x"))
    i, j, strides = (rows, columns, (columns, 1)) if axis == "1" else (columns, rows, (1, columns))
    problem = ReductionProblem(i, j, Operand(dtype, strides), Operand(dtype, (1, 0)))
    return lambda: plan_reduction(problem, H200)


MAKERS = {"gemm": product, "figure": figure, "transpose": permutation, "reduce": reduction}


def ratios(every: int = 1) -> dict[str, list[tuple[float, str]]]:
    """Expected over measured time, by family, sorted, each with its case; of every so manieth
    measurement."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for case in list(cases())[::every]:
        plan = case.plan()
        if case.family in (None, plan.family):         # planning takes the kernel that was measured
            seconds = estimate(plan).seconds
            assert seconds is not None
            named = getattr(plan.problem, "variant", None) is not None
            group = "named kernels" if named else f"{plan.family}, operands copied" if plan.copied else plan.family
            found[group].append((seconds / case.seconds, case.name))
    return {family: sorted(found[family]) for family in sorted(found)}


def table() -> Iterator[str]:
    """The table, in Markdown."""
    yield "| kernels | measurements | median | nine of ten | least | most |"
    yield "|---|---|---|---|---|---|"
    by_family = ratios()
    for family, found in (*by_family.items(), ("all", sorted(x for each in by_family.values()
                                                             for x in each))):
        values = [ratio for ratio, _name in found]
        low, high = (values[round((len(values) - 1) * part)] for part in (0.05, 0.95))
        least, most = (f"{ratio:.2f} ({name.removeprefix('h200-').partition(' ')[2]})"
                       for ratio, name in (found[0], found[-1]))
        yield f"| {family} | {len(values)} | {median(values):.2f} | {low:.2f} to {high:.2f} | {least} | {most} |"


if __name__ == "__main__":
    print("\n".join(table()))
