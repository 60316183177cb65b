"""No problem is without a plan: random ones of every kind, for cards of every architecture, and all
that planning could choose.

A problem is random in extents (0, 1 and huge ones among them), strides, alignments, types, scalars,
epilogues and precisions. Plans need no GPU, so their launches are not run: that a card can have
them is checked.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from random import Random

import ml_dtypes  # noqa: F401      NumPy knows bfloat16 by name from here on
import numpy as np
import pytest

from cuteblas.blas.types import PRODUCTS
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.planning import (
    H200,
    CopyProblem,
    GemmProblem,
    Operand,
    plan_contraction,
    plan_copy,
    plan_gemm,
    plan_reduction,
)
from cuteblas.planning.gemm.dispatch import PRECISIONS, _rows, _timed
from cuteblas.planning.gemm.grouped import plan_grouped
from cuteblas.planning.problem import (
    DEVICES,
    ContractionProblem,
    DeviceInfo,
    Fusion,
    GroupedProblem,
    ReductionProblem,
    Storage,
)

CARDS = [*DEVICES.values(), DeviceInfo("Volta", "sm_70", 80, 96 << 10, 1.5e9, 8e11, 6 << 20),
         DeviceInfo("Turing", "sm_75", 68, 64 << 10, 1.5e9, 5e11, 4 << 20),
         DeviceInfo("one multiprocessor", "sm_86", 1, 99 << 10, 1e9, 1e11, 1 << 20),
         DeviceInfo("consumer Blackwell", "sm_120", 170, 99 << 10, 2.4e9, 1.6e12, 96 << 20)]
LIMITS = (0, 1, 1000, 10**6, 10**9)
MEMORY = 2**38                          # bytes of a result, at most
EXTENTS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129,
           192, 255, 256, 257, 1000, 1024, 1025, 4096, 65536, 100003, 2**20, 2**31 - 1, 2**31,
           2**33)
TYPES = [(t.operands, t.output, t.compute) for t in PRODUCTS] + [
    (t, t, None)
    for t in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
]


def extent(r):
    return r.choice(EXTENTS) if r.random() < 0.7 else r.randint(1, 300)


def card(r):
    device = r.choice(CARDS)
    return replace(device, workspace_limit=r.choice(LIMITS)) if r.random() < 0.15 else device


def alignment(r, item):
    return min(16, max(item, r.choice((1, 2, 4, 8, 16)))) if r.random() < 0.4 else 16


def operand(r, dtype, m, n, batch, written=False):
    """A matrix in any order, padded, sliced, reversed or broadcast, perhaps in a batch."""
    pad = r.choice((0, 1, 2, 3, 4, 8, 12, 16))
    strides = [(n + pad, 1), (1, m + pad), (2 * n + 1, 2), (-(n + pad), -1), (n, -1)]
    strides += [] if written else [(0, 1), (1, 0), (0, 0)]
    after, steps = 2 * (max(m, 1) + pad) * (max(n, 1) + pad), []
    for count in reversed(batch):
        steps.insert(0, 0 if not written and r.random() < 0.3 else after + r.choice((0, 0, 1, 16)))
        after *= max(count, 1)
    return Operand(dtype, r.choice(strides), tuple(steps),
                   not written and dtype.startswith("complex") and r.random() < 0.3,
                   alignment(r, np.dtype(dtype).itemsize))


def fusion(r, dtype, m, n, batch, compute):
    """An epilogue that adds a bias, and perhaps writes what was before it."""
    bias = replace(operand(r, dtype, m, n, batch), conj=False,
                   strides=r.choice(((0, 1), (1, 0), (n, 1), (1, m))))
    before = Node("multiply", compute, (Node("alpha", compute), Node("acc", compute)))
    result = Node("add", compute, (before, Node("operand", compute, name="bias")))
    outputs = (("before", operand(r, dtype, m, n, batch, True)),) if r.random() < 0.5 else ()
    graph = EpilogueGraph("biased", result, tuple((name, before) for name, _x in outputs))
    return Fusion(graph, (("bias", bias),), outputs)


def gemm(r):
    """A product whose result is not larger than memory."""
    dtype, output, compute = r.choice(TYPES)
    m, n, k = extent(r), extent(r), extent(r)
    batch = tuple(r.choice((0, 1, 2, 3, 7, 64, 65, 1000, 100000))
                  for _ in range(r.choice((0, 0, 0, 1, 1, 2, 3, 4))))
    triangle = r.choice(("lower", "upper", "both")) if r.random() < 0.15 else None
    m = n if triangle else m
    if m * n * prod(batch) * 8 > MEMORY:
        return gemm(r)
    a, b = operand(r, dtype, m, k, batch), operand(r, dtype, n, k, batch)
    alpha, beta = (r.choice(("one", "zero", "value", "device")) for _ in "ab")
    fused = fusion(r, output, m, n, batch,
                   compute) if compute == output and not triangle and r.random() < 0.1 else None
    p = GemmProblem(m, n, k, a, b, operand(r, output, m, n, batch, True), batch, alpha, beta,
                    r.choice(("auto", "auto", "ieee")), compute=compute, triangle=triangle,
                    fusion=fused)
    return replace(p, b=a, alpha="one", beta="zero") if triangle == "both" else p


def strides(r, shape, broadcast=False):
    """Those of modes in any order, with gaps and backwards, each element once unless they may be
    broadcast."""
    steps, at = [0] * len(shape), r.choice((1, 1, 1, 2))
    for axis in r.sample(range(len(shape)), len(shape)):
        steps[axis] = r.choice((0, 1)) if broadcast and r.random() < 0.1 else at * r.choice((1, 1, 1, 1, -1))
        at = at * max(1, shape[axis]) + r.choice((0, 0, 1, 3, 8, 16))
    return tuple(steps)


def copy(r):
    item, shape = r.choice((1, 2, 4, 8, 16)), []
    for _ in range(r.choice((1, 2, 2, 3, 3, 4, 5, 6, 8))):
        n = extent(r) if r.random() < 0.5 else r.choice((1, 2, 3, 5, 8, 33, 64))
        shape.append(n if prod(shape) * n * item <= MEMORY else 1)
    return CopyProblem(tuple(shape), strides(r, shape, True), strides(r, shape), item,
                       alignment(r, item), alignment(r, item))


def reduction(r):
    dtype = r.choice(("float16", "float32", "float64", "bfloat16", "int8", "int32", "int64",
                      "uint8", "bool", "complex64"))
    has_extrema = dtype not in ("int8", "uint8", "bool", "complex64")
    op = r.choice(("sum", "sum", "max", "min")) if has_extrema else "sum"
    output = {"float16": "float32", "bfloat16": "float32", "int8": "int32",
              "uint8": "int32"}.get(dtype, dtype)
    i, j, batch = extent(r), extent(r), tuple(r.choice((1, 2, 3, 1000))
                                              for _ in range(r.choice((0, 0, 1, 2))))
    i, j = i if i * prod(batch) < 2**31 else 7, j if op == "sum" else max(1, j)
    x, y = operand(r, dtype, i, j, batch), operand(r, dtype, i, j, batch)
    target = replace(operand(r, output, i, 1, batch, True), strides=(r.choice((1, 2, -1)), 0))
    return ReductionProblem(i, j, x, target, batch, op,
                            y=y if op == "sum" and r.random() < 0.4 else None)


def contraction(r):
    dtype = r.choice(("float16", "float32", "float64", "bfloat16", "complex64", "int8", "int32",
                      "int64"))
    groups = []
    for most in (3, 3, 3, 2):
        groups.append([])
        for _ in range(r.randint(0, most)):
            n = extent(r) if r.random() < 0.3 else r.choice((1, 2, 3, 4, 5, 7, 8, 16, 33))
            groups[-1].append(n if prod(groups[-1]) * n <= 2**13 else 3)
    m, n, k, batch = groups
    of_a, of_b, of_c = (strides(r, [*x, *y, *batch]) for x, y in ((m, k), (n, k), (m, n)))
    item = np.dtype(dtype).itemsize
    return ContractionProblem(tuple(zip(m, of_a, of_c, strict=False)),
                              tuple(zip(n, of_b, of_c[len(m):], strict=False)),
                              tuple(zip(k, of_a[len(m):], of_b[len(n):], strict=False)),
                              *(Storage(dtype, alignment=alignment(r, item)) for _ in "abc"),
                              tuple(zip(batch, of_a[len(m) + len(k):], of_b[len(n) + len(k):],
                                        of_c[len(m) + len(n):], strict=True)),
                              r.choice(("one", "zero", "value")),
                              r.choice(("one", "zero", "value")), r.choice(("auto", "ieee")))


def group(r):
    products = []
    while len(products) < r.choice((1, 2, 5)):
        p = gemm(r)
        if prod(p.batch) <= 64 and "device" not in (p.alpha, p.beta) and not p.triangle:
            products.append(p)
    return GroupedProblem(tuple(products))


KINDS = {"products": (gemm, plan_gemm, 60), "copies": (copy, plan_copy, 120),
         "reductions": (reduction, plan_reduction, 200),
         "contractions": (contraction, plan_contraction, 40), "groups": (group, plan_grouped, 60)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_problem_has_a_plan_that_the_card_can_run(kind):
    made, planned, count = KINDS[kind]
    r = Random(35)
    for _ in range(count):
        problem, device = made(r), card(r)
        plan = planned(problem, device)
        assert plan.seconds is not None and 0 <= plan.seconds < inf, (problem, device)
        assert device.workspace_limit is None or plan.workspace_bytes <= device.workspace_limit, (
            problem,
            device
        )
        for each in plan.launches:
            assert 0 < each.grid[0] < 2**31 and all(0 < n < 2**16 for n in each.grid[1:]), (
                problem,
                device,
                each.grid
            )
            assert each.kernel.shared_bytes <= device.shared_bytes_per_block, (
                problem,
                device,
                each.kernel.name
            )


def check_alternatives(problem, device):
    """Every family that takes a problem has alternatives, each with an expected time, and one of
    them can be launched."""
    best = inf
    for row in _rows(problem, device):
        seconds = [each.seconds(device) for each in _timed(row, problem, device)]
        assert seconds and min(seconds) > 0, (row.name, problem, device.arch)
        best = min(best, *seconds)
    assert best < inf, (problem, device.arch)


def test_every_family_that_takes_a_problem_has_alternatives():
    r, count = Random(36), 0
    while count < 500:
        problem, device = gemm(r), r.choice(CARDS)
        if 0 not in (problem.m, problem.n, *problem.batch):
            check_alternatives(problem, device)
            count += 1


def test_thin_products_of_every_type_extent_and_order_have_alternatives():
    r = Random(37)
    for _ in range(600):
        dtype, output, compute = r.choice(TYPES)
        few, many, k, batch = r.randint(1, 8), max(1, extent(r)), extent(r), r.choice(((), (), (3,), (1000,)))
        m, n = r.sample((few, many), 2)
        if m * n * prod(batch) * 8 <= MEMORY:
            check_alternatives(GemmProblem(m, n, k, operand(r, dtype, m, k, batch),
                                           operand(r, dtype, n, k, batch),
                                           operand(r, output, m, n, batch, True), batch, "value",
                                           "value", compute=compute), r.choice(CARDS))


@pytest.mark.parametrize("n, row", [(128, 132), (8, 12)])
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.arch)
def test_bytes_with_padded_rows(device, n, row):
    a, b = Operand("int8", (192, 1)), Operand("int8", (1, row), alignment=4)
    for c in (Operand("int32", (row - 1, 1), alignment=4), Operand("int32", (1, 7), alignment=4)):
        assert plan_gemm(GemmProblem(7, n, 192, a, b, c, alpha="value", beta="value"),
                         device).launches


def test_an_algorithm_by_name_is_planned_or_refused_in_words():
    r = Random(38)
    for _ in range(60):
        problem, device = replace(gemm(r), precision=r.choice(PRECISIONS)), card(r)
        try:
            plan_gemm(problem, device)
        except ValueError as refusal:
            assert str(refusal).startswith(f"precision={problem.precision!r}"), (problem, device)  # noqa: PT017


def test_more_blocks_than_a_grid_has_are_no_alternative():
    """One row of 2^33 columns in the least tiles of gemm_thin, and triangles of 2^32 matrices,
    would be too many."""
    x = Operand("int16", (1, 5), (2064,))
    p = GemmProblem(1, 2**33, 1024, x, Operand("int16", (2049, 2), (2**44,)),
                    Operand("int16", (2**33 + 1, 1), (2**34,)), (7,))
    assert plan_gemm(p, H200).launches
    a = Operand("int32", (1, 2), (2**36, 71500, 0))
    gram = GemmProblem(2, 2, 275, a, a, Operand("int32", (1, 5), (2**29, 520, 9)), (64, 2**20, 65),
                       triangle="both")
    assert plan_gemm(gram, H200).launches
