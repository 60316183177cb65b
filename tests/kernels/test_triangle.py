"""Products of which one triangle is computed, by every family, in the emulator and on a GPU: Gram
matrices, syrk and herk."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.kernels.gemm.triangle import Triangle, tiles_of_triangle
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.modular import plan_modular
from cuteblas.planning.gemm.packing import plan_packed
from cuteblas.planning.gemm.ring import WgmmaTile
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.split import plan_guarded
from cuteblas.planning.gemm.wgmma import plan_wgmma

from .engines import Strided, check_product, check_tensor_cores, place, plan_split, poison, random

PLANS = {"simt": plan_simt, "mma": plan_mma, "wgmma": plan_wgmma, "packed": plan_packed,
         "split": plan_guarded, "modular": plan_modular,
         "bf16x6": lambda p, device: plan_split(p, device, "bf16x6")}


def problem_of(x: Strided, c: Strided, part: str, conj=(False, False), **kinds) -> GemmProblem:
    """C = X X^T: A and B are one operand; of a Hermitian C one of them is conjugated."""
    n, k = x.shape[-2:]
    a, b = (x.operand(conj=flag) for flag in conj)
    return GemmProblem(n, n, k, a, b, c.operand(), x.shape[:-2], triangle=part,
                       hermitian=conj[0] != conj[1], **kinds)


def inside(n: int, part: str) -> np.ndarray:
    """Which elements are written."""
    return {"both": np.ones((n, n), bool), "lower": np.tri(n, dtype=bool),
            "upper": np.tri(n, dtype=bool).T}[part]


def product(engine, family, x, part="both", *, order="C", conj=(False, False), alpha=1, beta=0,
            c_order="C", plan=None, dtype=None, seed=None, **layout):
    """One product, compared, the other triangle and the memory around C untouched; the plan and
    C."""
    dtype = dtype or x.dtype.name
    n = x.shape[-2]
    before = random(np.random.default_rng(5), (*x.shape[:-2], n, n), dtype)
    if not beta:
        before[...] = poison(dtype)
    px, pc = place(x, order, **layout), place(before, c_order, pad=5, poison=poison(dtype))
    untouched = pc.base.copy()
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    found = (plan or PLANS[family])(problem_of(px, pc, part, conj, **kinds), engine.device)
    engine.run(found, alpha, beta, a=px, b=px, c=pc, seed=seed)
    result, written = pc.view.copy(), inside(n, part)
    np.testing.assert_array_equal(result[..., ~written], before[..., ~written])
    pc.view[...] = before
    np.testing.assert_array_equal(pc.base, untouched, err_msg="memory around C was written")
    a, b = (np.conj(x) if flag else x for flag in conj)
    compared = np.where(written, result, 0)
    if x.dtype == np.float16:
        want = x.astype(float) @ x.astype(float).swapaxes(-1, -2)
        check_tensor_cores(np.where(written, result, want.astype(result.dtype)), x,
                           x.swapaxes(-1, -2))
    else:
        whole = np.matmul(a, b.swapaxes(-1, -2))
        whole = alpha * whole + beta * (before if beta else 0)
        check_product(np.where(written, compared, whole), a, b.swapaxes(-1, -2), dtype, alpha=alpha,
                      beta=beta, before=before)
    if part == "both" and not beta:
        np.testing.assert_array_equal(result, result.swapaxes(-1, -2), err_msg="not symmetric")
    return found, result


FAMILIES = [("simt", "float32"), ("simt", "int32"), ("simt", "complex64"), ("mma", "float64"),
            ("mma", "complex128"), ("mma", "float16"), ("wgmma", "float16"), ("split", "float32"),
            ("split", "complex64"), ("bf16x6", "float32")]


@pytest.mark.parametrize("part", ["both", "lower", "upper"])
@pytest.mark.parametrize("family, dtype", FAMILIES)
def test_triangles(engine, family, dtype, part):
    """An extent that no tile divides, several squares of tiles: an odd number and an even one."""
    for n, k in ((200, 40), (296, 24)):
        rng = np.random.default_rng(n)
        plan, _c = product(engine, family, random(rng, (n, k), dtype), part)
        assert "triangle" in plan.reason


@pytest.mark.parametrize("c_order", "CF")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("family, dtype", FAMILIES)
def test_orders(engine, family, dtype, order, c_order):
    rng = np.random.default_rng(2)
    n = 136 if family == "wgmma" or dtype == "float16" else 133
    for part in ("both", "lower"):
        product(engine, family, random(rng, (n, 32), dtype), part, order=order, c_order=c_order)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_residues(engine, dtype):
    rng = np.random.default_rng(8)
    for n, k, order in ((200, 40, "C"), (296, 33, "F")):
        plan, _c = product(engine, "modular", random(rng, (n, k), dtype), order=order)
        assert "one triangle" in plan.reason


@pytest.mark.parametrize("conj", [(True, False), (False, True)])
@pytest.mark.parametrize("part", ["lower", "upper"])
@pytest.mark.parametrize("family, dtype", [("simt", "complex64"), ("mma", "complex128"),
                                           ("split", "complex64")])
def test_hermitian(engine, family, dtype, part, conj):
    rng = np.random.default_rng(3)
    _plan, c = product(engine, family, random(rng, (133, 40), dtype), part, conj=conj)
    assert (c.diagonal().imag == 0).all() and (c.diagonal().real > 0).all()


@pytest.mark.parametrize("family, dtype", FAMILIES)
def test_alpha_and_beta(engine, family, dtype):
    rng = np.random.default_rng(4)
    alpha, beta = (3, 2) if dtype == "int32" else (1.5, -0.5)
    if dtype == "float16":
        return                                              # check_tensor_cores has its own scales
    for part in ("both", "upper"):
        product(engine, family, random(rng, (130, 20), dtype), part, alpha=alpha, beta=beta)


@pytest.mark.parametrize("part", ["both", "lower", "upper"])
@pytest.mark.parametrize("family, dtype", [("simt", "float32"), ("mma", "float64")])
def test_few_rows_in_slices_of_k(engine, family, dtype, part):
    rng = np.random.default_rng(9)
    for order in "CF":
        plan, _c = product(engine, family, random(rng, (20, 3000), dtype), part, order=order)
        assert len(plan.launches) == 2 and ("triangle" in plan.reason) == (part != "both")


@pytest.mark.parametrize("family, dtype", [("simt", "float32"), ("mma", "float64"),
                                           ("split", "float32"), ("wgmma", "float16")])
def test_batches(engine, family, dtype):
    rng = np.random.default_rng(6)
    product(engine, family, random(rng, (3, 136, 16), dtype))


def test_tiles_that_blocks_share(engine):
    """Stream-K over a triangle of tiles, and clusters."""
    rng = np.random.default_rng(7)
    x = random(rng, (400, 256), "float16")
    for tile, divided in ((WgmmaTile(2, 128, 4), 10), (WgmmaTile(2, 64, 6), 20)):
        def plan(p, device, tile=tile, divided=divided):
            return plan_wgmma(p, device, tile, divided)

        product(engine, "wgmma", x, plan=plan)


@pytest.mark.parametrize("squares", range(1, 12))
def test_every_square_once(squares):
    """The rectangle that the triangle is folded into."""
    k = KernelBuilder("walk", 32)
    walk = Triangle(k, "both", 64 * squares, (64, 64))
    down, across = walk.tiles
    seen = [walk.at(i, j)[:2] for i in range(down) for j in range(across)]
    assert sorted(seen) == [(i, j) for i in range(squares) for j in range(i + 1)]
    assert len(seen) == tiles_of_triangle(64 * squares, (64, 64))


def test_what_is_chosen():
    """One triangle in half the time; native arithmetic where there is nothing to multiply, or no
    workspace."""
    for dtype, family in (("float32", "gemm_split"), ("float64", "gemm_mma"),
                          ("float16", "gemm_wgmma"), ("int32", "gemm_wgmma")):
        a, c = Operand(dtype, (2048, 1)), Operand(dtype, (4096, 1))
        x = GemmProblem(4096, 4096, 2048, a, a, c, triangle="both")
        plan, whole = plan_gemm(x, H200), plan_gemm(replace(x, triangle=None), H200)
        assert plan.family == family and "one triangle" in plan.reason and plan.seconds < 0.7 * whole.seconds, plan.reason
        nothing = replace(x, triangle="lower", alpha="zero", beta="value")
        assert plan_gemm(nothing, H200).family == "gemm_simt"
        assert plan_gemm(replace(x, triangle="lower"),
                         replace(H200, workspace_limit=0)).family == "gemm_simt"


@pytest.mark.parametrize("dtype, n, k", [("float32", 16, 10**5), ("float32", 256, 65536),
                                         ("complex64", 16, 10**5), ("complex64", 512, 512),
                                         ("complex64", 8, 64), ("complex64", 3, 4096)])
@pytest.mark.parametrize("limit", [None, 1 << 20])
def test_all_of_c_is_symmetric_only_where_both_halves_add_in_one_order(dtype, n, k, limit):
    """Products of planes are added high by low before low by high, which the opposite element has
    the other way round."""
    a = Operand(dtype, (1, n))
    plan = plan_gemm(GemmProblem(n, n, k, a, a, Operand(dtype, (n, 1)), triangle="both"),
                     replace(H200, workspace_limit=limit))
    in_another_order = {"gemm_skinny", "gemm_split"} | ({"gemm_batched", "gemm_thin"}
                                                        if dtype == "complex64" else set())
    assert "triangle" in plan.reason or plan.family not in in_another_order


def test_a_limit_does_not_replace_an_algorithm_by_name():
    a = Operand("float32", (1, 512))
    problem = GemmProblem(512, 512, 512, a, a, Operand("float32", (512, 1)), triangle="both",
                          precision="fp16x3")
    assert plan_gemm(problem, replace(H200, workspace_limit=64 << 20)).family == "gemm_split"
