"""``gemm_wgmma``: TMA, mbarriers and warpgroup matrix instructions, in the emulator and on a Hopper GPU."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm_wgmma import WgmmaConfig, gemm_wgmma
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.wgmma import plan_wgmma, why_not_wgmma

from .engines import check_tensor_cores, gemm_problem, place

ml_dtypes = pytest.importorskip("ml_dtypes")


def values(rng, shape, dtype):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def run(engine, a, b, output, *, alpha=1, beta=0, c_order="C", a_order="C", b_order="C", c_pad=0, blocks=None):
    if not engine.device.arch.startswith("sm_90"):
        pytest.skip("wgmma exists on sm_90 alone")
    shape = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    kind = ml_dtypes.bfloat16 if output == "bfloat16" else output
    before = np.random.default_rng(5).standard_normal(shape).astype(kind) if beta else np.full(shape, np.nan, kind)
    pa, pb, pc = place(a, a_order), place(b, b_order), place(before, c_order, pad=c_pad, poison=np.nan)
    problem = gemm_problem(pa, pb, pc, alpha="one" if alpha == 1 else "value", beta={0: "zero", 1: "one"}.get(beta, "value"))
    assert why_not_wgmma(problem, H200) is None
    plan = plan_wgmma(problem, engine.device)
    if blocks:
        plan = replace(plan, launches=(replace(plan.launches[0], grid=(blocks, 1, 1)),))
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    check_tensor_cores(pc.view, a, b, alpha=alpha, beta=beta, before=before)
    assert np.isnan(pc.base[~inside(pc)].astype(float)).all(), "memory outside of C was written"
    return plan


def inside(x):
    mask = np.zeros(x.base.shape, bool)
    np.lib.stride_tricks.as_strided(mask[x.offset:], x.shape, x.strides)[...] = True
    return mask


@pytest.mark.parametrize("orders", ["".join(o) for o in itertools.product("CF", repeat=3)])
def test_every_order_of_a_b_and_c(engine, orders):
    rng = np.random.default_rng(1)
    a, b = values(rng, (72, 96), "float16"), values(rng, (96, 136), "float16")
    run(engine, a, b, "float32", a_order=orders[0], b_order=orders[1], c_order=orders[2])


@pytest.mark.parametrize("element, output", [("float16", "float16"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")])
def test_types(engine, element, output):
    rng = np.random.default_rng(2)
    run(engine, values(rng, (64, 64), element), values(rng, (64, 72), element), output)


@pytest.mark.parametrize("m, n, k", [(1, 8, 8), (8, 8, 8), (129, 264, 72), (64, 8, 520), (136, 520, 64)])
def test_ragged_sizes_and_many_stages(engine, m, n, k):
    rng = np.random.default_rng(3)
    run(engine, values(rng, (m, k), "float16"), values(rng, (k, n), "float16"), "float32", c_pad=1)


@pytest.mark.parametrize("alpha, beta", [(2, 0), (1, 1), (-0.5, 3)])
def test_alpha_and_beta(engine, alpha, beta):
    rng = np.random.default_rng(4)
    run(engine, values(rng, (40, 64), "float16"), values(rng, (64, 24), "float16"), "float32", alpha=alpha, beta=beta)


@pytest.mark.parametrize("batch", [(3,), (2, 2)])
def test_batches_and_a_persistent_grid(engine, batch):
    """Fewer blocks than tiles: stages and phases run on from tile to tile."""
    rng = np.random.default_rng(6)
    run(engine, values(rng, (*batch, 72, 128), "float16"), values(rng, (*batch, 128, 264), "float16"), "float32", blocks=2)


def test_broadcast_batch(engine):
    if not engine.device.arch.startswith("sm_90"):
        pytest.skip("wgmma exists on sm_90 alone")
    rng = np.random.default_rng(7)
    a, b = values(rng, (1, 24, 64), "float16"), values(rng, (3, 64, 32), "float16")
    pa, pb, pc = place(a), place(b), place(np.full((3, 24, 32), np.nan, "f4"))
    pa.shape, pa.strides = (3, 24, 64), (0, *pa.strides[1:])
    engine.run(plan_wgmma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_allclose(pc.view, a.astype("f4") @ b.astype("f4"), rtol=0, atol=1e-4)


def test_small_integers_are_exact(engine):
    rng = np.random.default_rng(8)
    a, b = rng.integers(-8, 9, (40, 128)).astype("f2"), rng.integers(-8, 9, (128, 48)).astype("f2")
    pa, pb, pc = place(a), place(b), place(np.full((40, 48), np.nan, "f4"))
    engine.run(plan_wgmma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a.astype("f4") @ b.astype("f4"))


def problem(**changes):
    x = place(np.zeros((64, 64), "f2"))
    return replace(gemm_problem(x, x, x), **changes)


@pytest.mark.parametrize("change, why", [
    ({"a": replace(problem().a, dtype="float32")}, "float16 or bfloat16"),
    ({"precision": "ieee"}, "precision='ieee'"),
    ({"k": 0}, "nothing to multiply"),
    ({"a": replace(problem().a, strides=(2, 3))}, "no mode of A has stride 1"),
    ({"b": replace(problem().b, strides=(1, 63))}, "strides .* of B are not positive multiples of 16 bytes"),
    ({"a": replace(problem().a, strides=(-64, 1))}, "positive multiples"),
    ({"a": replace(problem().a, alignment=8)}, "A is not aligned"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_planning_says_why_not_and_takes_another_kernel(change, why):
    import re

    p = problem(**change)
    assert re.search(why, why_not_wgmma(p, H200))
    if p.a.dtype == "float16":
        plan = plan_gemm(p, H200)
        last_resort = p.precision == "ieee" or p.k == 0
        assert plan.family == ("gemm_simt" if last_resort else "gemm_mma") and re.search(why, plan.reason)


def test_other_architectures_use_another_kernel():
    older = replace(H200, arch="sm_80")
    assert "sm_90 alone" in plan_gemm(problem(), older).reason
    assert plan_gemm(problem(), H200).family == "gemm_wgmma"


def test_misuse_is_refused():
    with pytest.raises(CodegenError, match="vectors of 1 or 2 along N"):
        gemm_wgmma(WgmmaConfig("float16", "float32", c=OperandAccess(0, 2)))
    with pytest.raises(CodegenError, match="8 to 256 columns"):
        gemm_wgmma(WgmmaConfig("float16", "float32", columns=260))
