"""Problems by name: what the gates plan, on which cards.

The name is the definition, so that a line of a committed file says what it is about::

    float32 512x500x480 NTN pad3 beta=one      a product: type, extents (batches first), orders
                                               of A, B and C, options
    float16>float32 64x8x8x8 NNN               with another type of C; a batch of 64
    4B 1001x1037:1,0 reversed0                 a copy: bytes of an element, extents, axes, options
    sum float32 1000x5000 N                    a reduction of rows: sum, max, min or dot
    contract abk,kbc->ac float32 a8 b4 k8 c16  a contraction
    group float32 64x64x64 NNN + ...           products in one launch
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod

import ml_dtypes  # noqa: F401      NumPy knows bfloat16 by name from here on

from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.planning import (
    CopyProblem,
    GemmProblem,
    Operand,
    Plan,
    ReductionProblem,
    Storage,
    plan_contraction,
    plan_copy,
    plan_gemm,
    plan_reduction,
)
from cuteblas.planning.gemm.grouped import plan_grouped
from cuteblas.planning.problem import DEVICES, DeviceInfo, Fusion, GroupedProblem, Problem
from tests.planning.contractions import contraction_problem

CARDS = {
    "t4": DeviceInfo("Tesla T4", "sm_75", 40, 64 << 10, 1.59e9, 0.87 * 320e9, 4 << 20),
    "rtx3090": DeviceInfo(
        "NVIDIA GeForce RTX 3090", "sm_86", 82, 99 << 10, 1.695e9, 0.87 * 936e9, 6 << 20
    ),
    "h200-16mib": replace(DEVICES["h200"], workspace_limit=1 << 24),
    **DEVICES,
}
"""The cards that planning knows, two others, and one with little room for workspaces."""

_COPY = re.compile(r"(?P<item>\d+)B (?P<extents>[\dx]+):(?P<axes>[\d,]+)")
_REDUCTIONS = ("sum", "max", "min", "dot")


def problem_named(name: str) -> Problem:
    """The problem of a name."""
    kind, _, rest = name.partition(" ")
    if kind == "group":
        return GroupedProblem(tuple(map(product, rest.split(" + "))))
    if kind == "contract":
        return _contraction(rest)
    if kind in _REDUCTIONS:
        return _reduction(name)
    return copy(name) if _COPY.match(name) else product(name)


PLANNERS: dict[type, Callable[..., Plan]] = {
    GemmProblem: plan_gemm,
    CopyProblem: plan_copy,
    ReductionProblem: plan_reduction,
    GroupedProblem: plan_grouped,
}


def planned(name: str, card: str) -> Plan:
    """The plan of a problem on a card, which has a hash, since executors are found by plans;
    ValueError for a precision that the card lacks."""
    problem = problem_named(name)
    plan = PLANNERS.get(type(problem), plan_contraction)(problem, CARDS[card])
    assert isinstance(hash(plan), int)
    return plan


def _options(words: list[str]) -> dict[str, str]:
    """``pad3`` and ``beta=one`` by their names."""
    found = (re.fullmatch(r"([a-z-]+)=?(.*)", word) for word in words)
    return {match[1]: match[2] for match in found if match}


def product(name: str) -> GemmProblem:
    """A product by its name.

    Options: ``pad3`` (rows or columns in memory are 3 elements longer), ``step2`` (elements of A
    lie 2 apart), ``align4`` (bytes), ``alpha=`` and ``beta=`` (``one``, ``zero``, ``value``,
    ``device``), ``by=`` (precision), ``triangle=``, ``compute=``, ``conj`` (A), ``share`` (all
    batches have one B), ``bias`` (an epilogue), ``kept`` (a second output).
    """
    types, sizes, orders, *words = name.split()
    o = _options(words)
    element, _, output = types.partition(">")
    *batch, m, n, k = map(int, sizes.split("x"))
    pad, step, align = int(o.get("pad", 0)), int(o.get("step", 1)), int(o.get("align", 16))

    def operand(dtype: str, rows: int, columns: int, order: str, step: int = 1) -> Operand:
        run, count = (columns, rows) if order == "N" else (rows, columns)
        pitch = run * step + pad
        strides = (pitch, step) if order == "N" else (step, pitch)
        return Operand(
            dtype,
            strides,
            tuple(pitch * count * prod(batch[i + 1 :]) for i in range(len(batch))),
            alignment=align,
        )

    a = replace(operand(element, m, k, orders[0], step), conj="conj" in o)
    b = operand(element, n, k, "T" if orders[1] == "N" else "N")
    b = replace(b, batch_strides=(0,) * len(batch)) if "share" in o else b
    b = a if o.get("triangle") == "both" else b
    return GemmProblem(
        m,
        n,
        k,
        a,
        b,
        operand(output or element, m, n, orders[2]),
        tuple(batch),
        o.get("alpha", "one"),
        o.get("beta", "zero"),
        o.get("by", "auto"),
        compute=o.get("compute"),
        triangle=o.get("triangle"),
        fusion=_fusion(o, output or element, m, n, tuple(batch))
        if "bias" in o or "kept" in o
        else None,
    )


def _fusion(o: dict[str, str], dtype: str, m: int, n: int, batch: tuple[int, ...]) -> Fusion:
    """A ReLU of the sum and a bias; with ``kept`` the sum is an auxiliary output."""
    compute = o.get("compute") or {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    total = Node("add", compute, (Node("acc", compute), Node("operand", compute, name="bias")))
    positive = Node("maximum", compute, (total, Node("constant", compute, value=0.0)))
    steps = tuple(m * n * prod(batch[i + 1 :]) for i in range(len(batch)))
    outputs = (("before", Operand(dtype, (n, 1), steps)),) if "kept" in o else ()
    graph = EpilogueGraph("biased", positive, tuple((each, total) for each, _x in outputs))
    return Fusion(graph, (("bias", Operand(dtype, (0, 1), (0,) * len(batch))),), outputs)


def copy(name: str) -> CopyProblem:
    """A copy by its name: an array in C order whose axes are permuted, written out in C order.

    Options: ``pad3`` (rows of the source are 3 elements longer), ``gap3`` (rows of the target
    are), ``reversed1`` (an axis), ``align4`` (bytes), ``inplace``.
    """
    head, *words = name.removeprefix(" ").split(" ")[1:]
    item, o = int(name.split("B")[0]), _options(words)
    extents, axes = (
        tuple(map(int, text.split(sep))) for text, sep in zip(head.split(":"), "x,", strict=True)
    )
    memory = (*extents[:-1], extents[-1] + int(o.get("pad", 0)))
    strides = [prod(memory[axis + 1 :]) for axis in range(len(memory))]
    if "reversed" in o:
        strides[int(o["reversed"])] *= -1
    shape = tuple(extents[axis] for axis in axes)
    held = (*shape[:-1], shape[-1] + int(o.get("gap", 0)))
    align = int(o.get("align", 16))
    source, target = (
        (strides[axis] for axis in axes),
        (prod(held[axis + 1 :]) for axis in range(len(held))),
    )
    return CopyProblem(
        shape, tuple(source), tuple(target), item, align, align, in_place="inplace" in o
    )


def _reduction(name: str) -> ReductionProblem:
    """A reduction by its name, of rows (``N``) or columns (``T``) of memory."""
    op, element, sizes, order = name.split()
    i, j = map(int, sizes.split("x"))
    x = Operand(element, (j, 1) if order == "N" else (1, i))
    output = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}.get(element, element)
    return ReductionProblem(
        i,
        j,
        x,
        Operand(output, (1, 0)),
        op="sum" if op == "dot" else op,
        y=x if op == "dot" else None,
    )


def _contraction(name: str) -> Problem:
    """A contraction by its subscripts, its type and the extent of each letter."""
    subscripts, element, *letters = name.split()
    extent = {each[0]: int(each[1:]) for each in letters}
    shapes = [tuple(extent[x] for x in part) for part in re.split(",|->", subscripts)]
    strides = tuple(tuple(prod(shape[i + 1 :]) for i in range(len(shape))) for shape in shapes)
    return contraction_problem(
        subscripts, (shapes[0], shapes[1]), strides, (Storage(element),) * 3
    )
