"""The figure of CUTLASS's first article, for this GPU: every element type in every order of its
operands, relative to cuBLAS.

As in BLAS, matrices are column-major (N) unless they are transposed (T), and C is column-major.
cuBLAS is called directly (``cublasGemmEx``), so that all types have the same baseline. It sums S, H
and W in float32, D in float64 and I in int32, and so do our kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from cuteblas.cli.bench import Measured, Row, Selection, graded
from cuteblas.cli.machines import medians
from cuteblas.planning import GemmProblem, Operand, Plan, plan_gemm

from .groups import engine_of

__all__ = ["KINDS", "chart", "figure"]

_SIZE = (10240, 4096, 4096)
_SAMPLE = 48                         # rows and columns of C that are checked
# cudaDataType_t
_CUDA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10}
# cublasComputeType_t
_COMPUTE = {"float32": 68, "float64": 70, "int32": 72}
_OPERATIONS, _DEFAULT_ALGORITHM, _HOST_POINTERS = {"N": 0, "T": 1}, -1, 0


@dataclass(frozen=True)
class Kind:
    """One letter of the figure.

    Attributes
    ----------
    element, output, total : str
        Types of A and B, of C, and of the sums.
    kernels : tuple of str or None
        Named kernels that are measured; ``None`` is planning's own choice.
    about : str
        One line for the legend.
    """

    element: str
    output: str
    total: str
    kernels: tuple[str | None, ...]
    about: str


KINDS = {
    "S": Kind("float32", "float32", "float32", ("gemm_huge", None), "float32"),
    "D": Kind("float64", "float64", "float64", ("gemm_huge", "gemm_mma", None), "float64"),
    "H": Kind("float16", "float16", "float32", ("gemm_huge", None), "float16, summed in float32"),
    "I": Kind("int8", "int32", "int32", ("igemm_dp4a", "gemm_mma"), "int8, summed in int32"),
    "W": Kind("float16", "float32", "float32", ("gemm_mma", None), "float16 to float32"),
}


def figure(machine: Any, which: Selection) -> Measured:
    """The figure: a case for every letter, size and order, a row for each kernel beside cuBLAS."""
    letters = [letter for letter, kind in KINDS.items() if not which.dtypes
               or kind.element in which.dtypes]
    sizes = [size if len(size) == 3 else size * 3 for size in which.sizes
             if len(size) in (1, 3)] or [_SIZE]
    clusters = list(product(letters, sizes, which.orders))
    return len(clusters), (row for letter, size, orders in clusters
                           for row in _bars(machine, which, letter, KINDS[letter], size, orders))


def _bars(machine: Any, which: Selection, letter: str, kind: Kind, size: tuple[int, ...],
          orders: str) -> Iterator[Row]:
    """One cluster of bars."""
    m, n, k = size
    xp = machine.rival
    a, b = _operand(xp, orders[0], m, k, kind.element, 0), _operand(xp, orders[1], k, n,
                                                                    kind.element, 1)
    c, theirs = (xp.empty((n, m), kind.output).T for _ in range(2))
    engine = engine_of(machine)
    plans = {name: plan for name in kind.kernels
             if (plan := _planned(a, b, c, name, engine.device(a))) is not None}
    calls = (lambda plan=plan: engine.run(plan, {"a": a, "b": b, "c": c})
             for plan in plans.values())
    rival, *taken = medians(machine, _baseline(xp, orders, a, b, theirs, kind), *calls,
                            repeats=which.repeats)
    for (name, plan), ours in zip(plans.items(), taken, strict=True):
        c[...] = 0
        engine.run(plan, {"a": a, "b": b, "c": c})
        grade = graded(machine, a, b, c, (_SAMPLE, _SAMPLE))
        yield {"case": f"{letter}GEMM {orders} {m}x{n}x{k}",
               "variant": name or f"planning: {plan.family}", "ours_s": ours, "rival_s": rival,
               "ratio": rival / ours, "tflops": 2 * m * n * k / ours / 1e12, "error": grade.error,
               "right": grade.passed}


def _operand(xp: Any, order: str, rows: int, columns: int, element: str, seed: int) -> Any:
    """Normal numbers, or small integers, by columns (N) or rows (T)."""
    shape = (rows, columns) if order == "T" else (columns, rows)
    generator = xp.random.RandomState(seed)
    x = generator.randint(-100, 100, shape) if np.issubdtype(element, np.integer) else generator.standard_normal(shape)
    x = x.astype(element)
    return x if order == "T" else x.T


def _planned(a: Any, b: Any, c: Any, variant: str | None, device: Any) -> Plan | None:
    """The plan of a kernel, or ``None`` if it does not take these operands."""
    def operand(x: Any) -> Operand:
        first, second = (s // x.itemsize for s in x.strides)
        return Operand(x.dtype.name, (first, second))

    (m, k), n = a.shape, b.shape[1]
    try:
        return plan_gemm(GemmProblem(m, n, k, operand(a), operand(b.T), operand(c),
                                     variant=variant), device)
    except ValueError:
        return None


def _baseline(xp: Any, orders: str, a: Any, b: Any, c: Any, kind: Kind) -> Callable[[], Any]:
    """The product with cuBLAS; with NumPy where there is no GPU."""
    if xp is np:
        return lambda: np.matmul(a, b, out=c, dtype=kind.output, casting="unsafe")
    cublas = import_module("cupy_backends.cuda.libs.cublas")

    handle = xp.cuda.device.get_cublas_handle()
    cublas.setPointerMode(handle, _HOST_POINTERS)
    one, zero = (np.array(x, kind.total) for x in (1, 0))
    (m, k), n = a.shape, b.shape[1]
    lead_a, lead_b = (m if orders[0] == "N" else k), (k if orders[1] == "N" else n)
    element, output = _CUDA_TYPE[kind.element], _CUDA_TYPE[kind.output]

    def product() -> None:
        cublas.gemmEx(handle, _OPERATIONS[orders[0]], _OPERATIONS[orders[1]], m, n, k,
                      one.ctypes.data, a.data.ptr, element, lead_a, b.data.ptr, element, lead_b,
                      zero.ctypes.data, c.data.ptr, output, m, _COMPUTE[kind.total],
                      _DEFAULT_ALGORITHM)

    return product


# -- the picture -----------------------------------------------------------------------------------
_COLOURS = {"article": "#4878a8", "mma": "#e0883a", "planning": "#4f9d69"}
_LEGEND = {"article": "the article's kernel (gemm_huge, igemm_dp4a)",
           "mma": "gemm_mma: warp-level tensor cores", "planning": "planning's own choice"}
_BAR, _GAP, _LETTER_GAP, _HEIGHT, _LEFT, _TOP = 16, 10, 26, 300, 56, 64


def _series(variant: str) -> str:
    return "planning" if variant.startswith("planning") else "mma" if variant == "gemm_mma" else "article"


def chart(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """The figure as SVG: a bar for every row, its height the speed relative to cuBLAS.

    Parameters
    ----------
    rows : sequence of Row
        What :func:`figure` yields.
    about : mapping
        ``device`` and ``cublas`` go into the title.
    """
    top = max(1.2, ceil(10 * max((row["ratio"] for row in rows), default=1)) / 10)
    shapes: list[str] = []

    def y(ratio: float) -> float:
        return _TOP + _HEIGHT * (1 - ratio / top)

    def text(x: float, at: float, words: str, size: int, anchor: str = "middle",
             weight: str = "normal") -> None:
        shapes.append(
            f'<text x="{x:.1f}" y="{at:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
            f'{escape(words)}</text>'
        )

    x: float = _LEFT + _GAP
    bars: list[str] = []
    clusters: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        product, orders, _size = row["case"].split()
        clusters.setdefault(product[0], {}).setdefault(orders, []).append(row)
    for letter, cluster in clusters.items():
        first = x
        for orders, members in cluster.items():
            start = x
            for row in members:
                at = y(row["ratio"])
                colour = _COLOURS[_series(row["variant"])]
                bars.append(
                    f'<rect x="{x:.1f}" y="{at:.1f}" width="{_BAR - 2}" height="{y(0) - at:.1f}" fill="{colour}">'
                    f'<title>{escape(row["case"])}, {escape(row["variant"])}: {row["ratio"]:.2f} of cuBLAS, '
                    f'{row["tflops"]:.3g} TFLOP/s</title></rect>'
                )
                text(x + _BAR / 2 - 1, at - 4, f"{row['ratio']:.2f}".removeprefix("0"), 8)
                x += _BAR
            text((start + x) / 2, y(0) + 14, orders, 10)
            x += _GAP
        text((first + x - _GAP) / 2, y(0) + 32, f"{letter}GEMM", 12, weight="bold")
        text((first + x - _GAP) / 2, y(0) + 47, KINDS[letter].about, 9)
        x += _LETTER_GAP
    width, height = max(x, 640), y(0) + 92
    lines = []
    for tenth in range(0, round(top * 10) + 1, 2):
        at = y(tenth / 10)
        lines.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{x - _LETTER_GAP:.1f}" y2="{at:.1f}" '
                     f'stroke="{"#333" if tenth in (0, 10) else "#ddd"}"/>')
        text(_LEFT - 6, at + 4, f"{tenth / 10:.1f}", 10, "end")
    size = rows[0]["case"].split()[-1] if rows else ""
    text(_LEFT, 24, "Speed relative to cuBLAS", 15, "start", "bold")
    text(
        _LEFT,
        42,
        f"{about.get('device', '')}, cuBLAS {about.get('cublas', '')}, M x N x K = {size}; "
        "N: by columns, T: by rows",
        11,
        "start"
    )
    at = float(_LEFT)
    for series, words in _LEGEND.items():
        shapes.append(
            f'<rect x="{at:.1f}" y="{y(0) + 66:.1f}" width="11" height="11" fill="{_COLOURS[series]}"/>'
        )
        text(at + 16, y(0) + 76, words, 10, "start")
        at += 40 + 5.6 * len(words)
    body = "\n".join((*lines, *bars, *shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" fill="#222">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
