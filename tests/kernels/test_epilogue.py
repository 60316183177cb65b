"""Epilogues, scalars in device memory and mixed types at the end of every family of GEMM
kernels."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.epilogue import FusedEpilogue
from cuteblas.kernels.gemm.block import GemmConfig
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.gemm.batched import plan_batched
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.outer import plan_outer
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.wgmma import plan_wgmma
from cuteblas.planning.problem import Fusion

from .engines import UNIT, gemm_problem, place

PLANNERS = {"gemm_batched": plan_batched, "gemm_outer": plan_outer, "gemm_simt": plan_simt,
            "gemm_mma": plan_mma, "gemm_wgmma": plan_wgmma}
TYPES = {"float16": np.dtype("f2"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def call(op, *args):
    return Node(op, args[0].dtype, args)


def graph(t, *, c=False):
    """max(alpha * acc [+ beta * c] + bias * scale + residual, floor), and what is below the maximum
    as an output."""
    acc, alpha = Node("acc", t), Node("alpha", t)
    total = call("multiply", alpha, acc)
    if c:
        total = call("add", total, call("multiply", Node("beta", t), Node("c", t)))
    bias = call("multiply", Node("operand", t, name="bias"), Node("operand", t, name="scale"))
    total = call("add", call("add", total, bias), Node("operand", t, name="residual"))
    return EpilogueGraph("test", call("maximum", total, Node("scalar", t, name="floor")),
                         (("pre", total),))


def check(got, want, bound):
    error = abs(got.astype(float) - want)
    assert not np.isnan(error).any(), "poison or NaN in the result"
    assert (error <= bound).all(), float((error / bound).max())


@pytest.mark.parametrize("c_order", "CF")
@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize("family, dtype, m, n, k",
                         [("gemm_simt", "float32", 45, 37, 20), ("gemm_simt", "float64", 33, 70, 9),
                          ("gemm_simt", "float32", 20, 12, 700),
                          ("gemm_mma", "float64", 70, 45, 24), ("gemm_mma", "float16", 70, 46, 40),
                          ("gemm_mma", "bfloat16", 20, 24, 4000),
                          ("gemm_wgmma", "float16", 130, 72, 72),
                          ("gemm_batched", "float32", 5, 7, 9),
                          ("gemm_batched", "float16", 12, 8, 20),
                          ("gemm_batched", "float32", 72, 3, 5),
                          ("gemm_outer", "float32", 45, 37, 5),
                          ("gemm_outer", "float64", 32, 40, 1),
                          ("gemm_outer", "float16", 33, 70, 2),])
def test_every_family_fuses(engine, family, dtype, m, n, k, with_c, c_order):
    rng = np.random.default_rng(1)
    kind, t = TYPES.get(dtype, np.dtype(dtype)), "float64" if dtype == "float64" else "float32"
    a, b, before, pre = (rng.standard_normal(s).astype(kind)
                         for s in ((2, m, k), (2, k, n), (2, m, n), (2, m, n)))
    bias, scale = rng.standard_normal((1, 1, n)).astype(kind), rng.standard_normal((2, m, 1)).astype(t)
    residual = rng.standard_normal((2, m, n)).astype(t)
    pa, pb = place(a), place(b)
    pc = place(before if with_c else np.full_like(before, np.nan), c_order, pad=8)
    ppre = place(np.full_like(pre, np.nan), "F", pad=3)
    placed = {"bias": place(bias), "scale": place(scale), "residual": place(residual, "C", pad=1)}

    def over_c(x):
        strides = tuple(0 if extent == 1 else s
                        for s, extent in zip(x.strides, x.shape, strict=True))
        return replace(x.operand(), strides=strides[-2:], batch_strides=strides[:-2])

    fusion = Fusion(graph(t, c=with_c), tuple((name, over_c(x)) for name, x in placed.items()),
                    (("pre", ppre.operand()),))
    problem = replace(gemm_problem(pa, pb, pc, alpha="value", beta="value" if with_c else "zero"),
                      fusion=fusion)
    plan = PLANNERS[family](problem, engine.device)
    assert plan.family == family and (len(plan.launches) > 1) == (k > 500)
    operands = {f"epi_{name}": x for name, x in placed.items()} | {"epi_pre": ppre, "a": pa,
                                                                   "b": pb, "c": pc}
    engine.run(plan, 1.5, -2.0, numbers={"epi_floor": 0.25}, operands=operands)

    wide = [x.astype(float) for x in (a, b, before, bias, scale, residual)]
    total = 1.5 * (wide[0] @ wide[1]) + (-2.0 * wide[2] if with_c
                                         else 0) + wide[3] * wide[4] + wide[5]
    sums = 1.5 * (abs(wide[0]) @ abs(wide[1])) + 2 * abs(wide[2]) + abs(wide[3] * wide[4]) + abs(wide[5])
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 0)
    bound = (8 + np.sqrt(k) + k / 8 * (rounding > 0)) * UNIT[t] * sums + 1.01 * rounding * abs(total) + 2.0**-25 * (rounding > 0)
    check(pc.view, np.maximum(total, 0.25), bound + rounding)
    check(ppre.view, total, bound)


@pytest.mark.parametrize("k", [13, 700])
@pytest.mark.parametrize("c_order", "CF")
def test_complex_products_on_tensor_cores_fuse(engine, k, c_order):
    """alpha * acc * scale + bias, conjugated operands, small integers: nothing rounds."""
    rng = np.random.default_rng(3)
    m, n, t = 41, 22, "complex128"

    def integers(*shape):
        return rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)

    a, b, bias, scale = integers(m, k), integers(k, n), integers(1, n), integers(m, 1)
    pa, pb, pc = place(a, "F"), place(b), place(np.full((m, n), np.nan, t), c_order, pad=3)
    placed = {"scale": place(scale), "bias": place(bias)}
    total = call("multiply", call("multiply", Node("alpha", t), Node("acc", t)),
                 Node("operand", t, name="scale"))
    fusion = Fusion(EpilogueGraph("test", call("add", total, Node("operand", t, name="bias"))),
                    (("scale", replace(placed["scale"].operand(), strides=(1, 0))),
                     ("bias", replace(placed["bias"].operand(), strides=(0, 1)))))
    problem = replace(gemm_problem(pa, pb, pc, conj=(True, True), alpha="value"), fusion=fusion)
    plan = plan_mma(problem, engine.device)
    assert plan.family == "gemm_mma" and (len(plan.launches) > 1) == (k > 500)
    engine.run(plan, 2 - 1j, operands={f"epi_{name}": x for name, x in placed.items()}
               | {"a": pa, "b": pb, "c": pc})
    np.testing.assert_array_equal(pc.view, (2 - 1j) * (a.conj() @ b.conj()) * scale + bias)


@pytest.mark.parametrize("family, dtype, k", [("gemm_simt", "float32", 9),
                                              ("gemm_simt", "complex64", 700),
                                              ("gemm_mma", "float16", 40),
                                              ("gemm_mma", "complex128", 21),
                                              ("gemm_wgmma", "float16", 72),
                                              ("gemm_outer", "float32", 3),
                                              ("gemm_outer", "float16", 4)])
@pytest.mark.parametrize("alpha, beta", [(2, 3), (0, 3), (2, 0), (0, 0)])
def test_scalars_in_device_memory(engine, family, dtype, k, alpha, beta):
    """Zero is found out when the kernel runs: NaN in what is then not to be read stays out."""
    rng = np.random.default_rng(2)
    m, n = 24, 40
    a, b, before = (rng.integers(-3, 4, s).astype(dtype) for s in ((m, k), (k, n), (m, n)))
    want = alpha * (a.astype("c16") @ b.astype("c16")) + beta * before.astype("c16")
    if not alpha:
        a[:], b[:] = np.nan, np.inf
    if not beta:
        before[:] = np.nan
    pa, pb, pc = place(a), place(b), place(before)
    t = "float32" if dtype == "float16" else dtype
    scalars = {name: place(np.full((1, 1), value, t))
               for name, value in (("alpha", alpha), ("beta", beta))}
    problem = gemm_problem(pa, pb, pc, alpha="device", beta="device")
    plan = PLANNERS[family](problem, engine.device)
    assert plan.problem.roles == ("a", "b", "c", "alpha",
                                  "beta") and (len(plan.launches) > 1) == (k > 500)
    engine.run(plan, operands=scalars, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view.astype("c16"), want)


@pytest.mark.parametrize("a_type, b_type, c_type, compute, slices",
                         [("float16", "float16", "float32", None, False),
                          ("bfloat16", "float16", "float32", None, False),
                          ("float32", "float32", "float32", "float64", False),
                          ("float32", "float32", "float64", None, True),
                          ("int8", "int8", "int32", None, False),
                          ("uint8", "int8", "int32", None, True),
                          ("int32", "int16", "int64", None, False),
                          ("float16", "float32", "float32", None, True),])
def test_mixed_types(engine, a_type, b_type, c_type, compute, slices):
    rng = np.random.default_rng(3)
    m, n, k = 20, 33, 600 if slices else 21
    whole = "int" in a_type

    def values(shape, name):
        kind = TYPES.get(name, np.dtype(name))
        if whole:
            return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
        return rng.standard_normal(shape).astype(kind)

    a, b, before = values((m, k), a_type), values((k, n), b_type), values((m, n), c_type)
    pa, pb, pc = place(a), place(b, "F"), place(before)
    problem = gemm_problem(pa, pb, pc, alpha="value", beta="value", compute=compute)
    plan = plan_simt(problem, engine.device)
    assert plan.problem.accumulator == (compute or c_type) and (len(plan.launches) > 1) == slices
    engine.run(plan, 2, 3, a=pa, b=pb, c=pc)
    if whole:
        np.testing.assert_array_equal(pc.view, 2 * (a.astype(c_type) @ b.astype(c_type)) + 3
                                      * before)
        return
    product = a.astype("f8") @ b.astype("f8"), abs(a.astype("f8")) @ abs(b.astype("f8"))
    want, sums = (2 * x + 3 * y for x, y in zip(product, (before.astype("f8"),
                                                          abs(before.astype("f8"))), strict=True))
    sum_unit = UNIT[compute or c_type]
    check(pc.view, want, (4 + np.sqrt(k)) * sum_unit * sums
          + (1.01 * UNIT[c_type] * abs(want) if compute else 0))


def test_an_integer_sum_becomes_a_float(engine):
    """What dequantize does: int8 operands, sums in int32, C in float32."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-128, 128, (40, 64)).astype("i1"), rng.integers(-128, 128, (64, 24)).astype("i1")
    scale = rng.random((1, 24)).astype("f4")
    pa, pb, pc, pscale = place(a), place(b, "F"), place(np.full((40, 24), np.nan,
                                                                "f4")), place(scale)
    value = call("multiply", Node("cast", "float32", (Node("acc", "int32"),)),
                 Node("operand", "float32", name="scale"))
    fusion = Fusion(EpilogueGraph("dequantize", value),
                    (("scale", replace(pscale.operand(), strides=(0, 1))),))
    problem = gemm_problem(pa, pb, pc, compute="int32", fusion=fusion)
    plan = plan_gemm(problem, engine.device)
    engine.run(plan, a=pa, b=pb, c=pc, operands={"epi_scale": pscale})
    np.testing.assert_array_equal(pc.view, (a.astype("i4") @ b.astype("i4")).astype("f4") * scale)
    for planner in (plan_mma,):                                # 8-bit tensor cores sum in int32 too
        pc.view[...] = np.nan
        engine.run(planner(problem, engine.device), a=pa, b=pb, c=pc,
                   operands={"epi_scale": pscale})
        np.testing.assert_array_equal(pc.view, (a.astype("i4") @ b.astype("i4")).astype("f4")
                                      * scale)


def test_different_graphs_never_share_a_kernel():
    x = place(np.zeros((8, 8), "f4"))
    kernels = set()
    for value in (0.0, -0.0, 1.0):
        fusion = Fusion(EpilogueGraph("f", call("add", Node("acc", "float32"),
                                                Node("constant", "float32", value=value))))
        kernels.add(plan_gemm(gemm_problem(x, x, x, fusion=fusion), H200).launches[0].kernel.digest)
    assert len(kernels) == 3


def test_nested_modes_have_no_epilogue():
    fused = FusedEpilogue(EpilogueGraph("f", Node("acc", "float32")))
    with pytest.raises(CodegenError,
                       match="nested modes need predicates and cannot have an epilogue"):
        GemmConfig("float32", "float32", None, *(OperandAccess(),) * 3, epilogue=fused,
                   modes=(2, 1, 1))
