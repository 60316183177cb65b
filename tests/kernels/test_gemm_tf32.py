"""``precision="tf32"``: float32 products on tensor cores of what TMA rounds to 11 bits."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.codegen.wgmma import WgmmaAtom
from cuteblas.kernels.gemm.wgmma import WgmmaConfig
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.ring import WgmmaTile
from cuteblas.planning.gemm.wgmma import plan_wgmma
from cuteblas.planning.problem import Fusion

from .engines import check_tensor_cores, gemm_problem, outside, place


def rounded(x):
    """To the nearest number with 11 bits, of two the even one; infinities and NaNs stay."""
    bits = np.ascontiguousarray(x, "f4").view("u4")
    near = bits + 0xFFF + (bits >> 13 & 1) & 0xFFFFE000
    return np.where(np.isfinite(x), near.view("f4"), x)


def product(engine, a, b, *, a_order="C", b_order="C", c_order="C", pad=0, alpha=1, beta=0,
            plan_for=plan_gemm, **kinds):
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    before = np.random.default_rng(3).standard_normal(shape).astype("f4") if beta else np.full(shape, np.nan, "f4")
    pa, pb, pc = place(a, a_order, pad=pad), place(b, b_order, pad=pad), place(before, c_order, pad=pad, poison=np.nan)
    problem = gemm_problem(pa, pb, pc, alpha="one" if alpha == 1 else "value",
                           beta="value" if beta else "zero", precision="tf32", **kinds)
    plan = plan_for(problem, engine.device)
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    around = outside(pc)
    assert np.isnan(pc.base[around]).all()
    return pc.view.copy(), plan, before


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


@pytest.mark.parametrize("orders", ["CFC", "CCC", "FFC", "FCC", "CFF", "FCF"])
@pytest.mark.parametrize("m, n, k, pad, batch",
                         [(136, 72, 100, 0, ()), (67, 41, 65, 0, ()), (40, 24, 200, 3, ()),
                          (1, 1, 1, 0, ()), (8, 40, 36, 4, (2, 3))])
def test_every_order_and_ragged_extents(engine, orders, m, n, k, pad, batch):
    """As exact products of rounded operands; what is not contiguous along K, or at no multiple of
    16 bytes, is copied first."""
    a, b = normal(*batch, m, k), normal(*batch, k, n, seed=1)
    c, plan, _before = product(engine, a, b, a_order=orders[0], b_order=orders[1],
                               c_order=orders[2], pad=pad)
    assert plan.family == "gemm_wgmma" and "rounded to tfloat32 by TMA" in plan.reason
    check_tensor_cores(c, rounded(a), rounded(b))
    aligned = (k + pad) % 4 == 0
    assert ("A is copied first" in plan.reason) == (not aligned
                                                    or orders[0] == "F") or 1 in (m, n, k)
    assert ("B is copied first" in plan.reason) == (not aligned
                                                    or orders[1] == "C") or 1 in (m, n, k)


@pytest.mark.parametrize("value, want", [(4.4e-44, 0), (2.0**-137, 0),
                                         (2.0**-137 * 1.01, 2.0**-136), (2.0**-136, 2.0**-136),
                                         (1.25 * 2.0**-136, 2.0**-136), (2.0**-126, 2.0**-126),
                                         (2.0**-126 - 2.0**-149, 2.0**-126)])
def test_below_the_least_normal_number(engine, value, want):
    """As docs/matmul.md says: operands are rounded to multiples of 2^-136, so that the least ones
    are 0."""
    a, one = np.full((8, 8), value, "f4"), np.eye(8, dtype="f4")
    for x, y in ((a, one), (one, a), (-a, one)):
        c, _plan, _before = product(engine, x, y, b_order="F")
        np.testing.assert_array_equal(c, np.float32(want if (x >= 0).all() else -want))


@pytest.mark.parametrize("alpha, beta", [(2, 0), (-0.5, 3)])
def test_alpha_and_beta(engine, alpha, beta):
    a, b = normal(72, 64), normal(64, 40, seed=1)
    c, _plan, before = product(engine, a, b, b_order="F", alpha=alpha, beta=beta)
    check_tensor_cores(c, rounded(a), rounded(b), alpha=alpha, beta=beta, before=before)


@pytest.mark.parametrize("tile", [WgmmaTile(1, 64, 3), WgmmaTile(2, 128, 3), WgmmaTile(3, 192, 2),
                                  WgmmaTile(2, 320, 2), WgmmaTile(2, 128, 2, 2),
                                  WgmmaTile(1, 64, 3, 2)], ids=str)
def test_tiles_and_clusters(engine, tile):
    a, b = normal(200, 72), normal(72, 330, seed=1)
    c, plan, _before = product(engine, a, b, b_order="F",
                               plan_for=lambda p, d: plan_wgmma(p, d, tile))
    assert "x32_s" in plan.launches[-1].kernel.name and "x32, " in plan.reason
    check_tensor_cores(c, rounded(a), rounded(b))


def test_slices_of_k(engine):
    a, b = normal(40, 4096), normal(4096, 24, seed=1)
    c, plan, _before = product(engine, a, b, b_order="F")
    assert "slices of" in plan.reason and len(plan.launches) == 2
    check_tensor_cores(c, rounded(a), rounded(b))


def test_tiles_divided_along_k(engine):
    a, b = normal(136, 520), normal(520, 72, seed=1)
    c, plan, _before = product(engine, a, b, b_order="F",
                               plan_for=lambda p, d: plan_wgmma(p, d, WgmmaTile(1, 64, 3),
                                                                divided=6))
    assert "6 of them divided" in plan.reason
    check_tensor_cores(c, rounded(a), rounded(b))


def test_small_integers_are_exact(engine):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-40, 41, shape).astype("f4") for shape in ((72, 100), (100, 40)))
    np.testing.assert_array_equal(product(engine, a, b)[0], a @ b)


def test_how_numbers_are_rounded(engine):
    """To nearest, ties to even, up to infinity; infinities and NaNs stay, whatever their bits."""
    bits = np.array([0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0xBF801000, 0xBF803000,
                     0x7F7FEFFF, 0x7F7FF000, 0x00801000, 0x00001000, 0x00003000, 0x7F800000,
                     0xFF800000, 0x7FC00000, 0x7F800001], "u4")
    for value in bits.view("f4"):
        a = np.zeros((8, 8), "f4")
        a[0, 0] = value
        with np.errstate(all="ignore"):
            want = rounded(a) @ np.eye(8, dtype="f4")
        np.testing.assert_array_equal(product(engine, a, np.eye(8, dtype="f4"),
                                              b_order="F")[0][0, 0], want[0, 0])


def test_infinities_and_nans_stay_in_their_rows(engine):
    a, b = np.ones((40, 36), "f4"), np.ones((36, 24), "f4")
    a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, -np.inf
    c, _plan, _before = product(engine, a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ b)


def test_epilogue(engine):
    graph = EpilogueGraph("exp", Node("exp", "float32", (Node("acc", "float32"),)))
    a, b = normal(40, 36) / 8, normal(36, 24, seed=1) / 8
    c, _plan, _before = product(engine, a, b, fusion=Fusion(graph))
    np.testing.assert_allclose(c, np.exp(rounded(a).astype("f8") @ rounded(b).astype("f8")),
                               rtol=1e-5)


def planned(element="float32", device=H200, m=300, n=300, k=301, **options):
    x = Operand(element, (k, 1))
    return plan_gemm(GemmProblem(m, n, k, x, x, Operand(element, (n, 1)),
                                 **{"precision": "tf32", **options}), device)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"element": "complex64"},
            "precision='tf32' multiplies float32 by float32, not complex64 by complex64"
        ),
        (
            {"element": "float16"},
            "precision='tf32' multiplies float32 by float32, not float16 by float16"
        ),
        ({"element": "int32"}, "not int32 by int32"),
        ({"k": 0}, "there is nothing to multiply"),
        ({"device": replace(H200, arch="sm_80")}, "wgmma exists on sm_90 alone, not on sm_80"),
        (
            {"device": replace(H200, workspace_limit=1000)},
            "precision='tf32' needs more workspace than the limit of 1000 bytes"
        ),
    ]
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        planned(**options)


def test_blocks_where_copies_are_over_the_limit():
    limit = 1 << 20
    plan = planned(m=700, n=700, device=replace(H200, workspace_limit=limit))
    assert 0 < plan.workspace_bytes <= limit and "blocks of" in plan.reason


def test_only_on_request():
    assert "tfloat32" not in planned(precision="auto", m=4096, n=4096, k=4096).reason
    assert "tf32" in planned(m=4096, n=4096, k=4096).launches[-1].kernel.name


def test_operands_are_k_major():
    with pytest.raises(CodegenError, match="wgmma reads tfloat32 along K alone"):
        WgmmaAtom(64, "tfloat32", k_major_b=False)
    with pytest.raises(CodegenError, match="wgmma reads tfloat32 along K alone"):
        WgmmaConfig("tfloat32", "float32", k_major_a=False).mma  # noqa: B018
