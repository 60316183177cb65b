"""Products with few rows or columns on planes in registers, and what native arithmetic is called
for.

By wgmma, and what those by mma.sync share with it; what these have alone: test_gemm_planes.py.
"""

from dataclasses import replace

import numpy as np
import pytest

import cuteblas.planning.gemm.mma as mma
import cuteblas.planning.gemm.skinny as skinny
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.skinny import plan_planes, plan_skinny, why_not_skinny
from cuteblas.planning.problem import Fusion

from . import test_gemm_split_complex as of_complex
from .engines import gemm_problem, place
from .test_gemm_split import U, hopper, limit, product
from .test_gemm_split import units as units_of_real


@pytest.fixture(autouse=True)
def short_sums(monkeypatch):
    """Sums of any length, by the kernel of its own: what is multiplied is as exact, but the
    emulator is slow."""
    monkeypatch.setattr(skinny, "LEAST_K_BY_MMA", 1)
    monkeypatch.setattr(skinny, "LEAST_K", 1)


@pytest.fixture(params=[plan_skinny, plan_planes], ids=["wgmma", "mma"])
def plan_by(request):
    """Either way to compute them."""
    return request.param


def random(seed, *shapes, dtype="float32"):
    rng = np.random.default_rng(seed)
    real = (rng.standard_normal((*shape, 1 + dtype.startswith("complex"))).astype("f4")
            for shape in shapes)
    return tuple(np.ascontiguousarray(x).view(dtype)[..., 0] for x in real)


def units(c, a, b):
    return (of_complex.units if c.dtype.kind == "c" else units_of_real)(c, a, b)


def stages_at_a_time(columns, slices):
    """Plans of these."""
    def tilings(p, device):
        stages = -(-p.k // 64)
        chunk = -(-stages // slices)
        count = -(-stages // chunk)
        tile = next(tile for tile in skinny.TILES if tile.columns == columns)
        blocks = tile.blocks(tile.clusters(p) * count, device)
        yield skinny.Choice(tile, count, chunk * 64, blocks)

    return replace(skinny.SKINNY, tilings=tilings).plan


@pytest.mark.parametrize("columns", [32, 64])
@pytest.mark.parametrize(
    "m, n, k, a_order, b_order, c_order, pad, batch, slices",
    [
        (130, 64, 100, "C", "C", "C", 0, (), 1),
        (24, 8, 204, "C", "F", "C", 4, (), 3),
        (300, 68, 320, "F", "C", "C", 0, (), 2),
        (128, 64, 256, "C", "F", "F", 0, (), 4),
        (16, 20, 200, "F", "F", "F", 4, (3,), 2),
        # no tensor maps
        (130, 35, 101, "C", "C", "C", 0, (), 1),
        (33, 31, 130, "F", "C", "C", 1, (), 2),
        (70, 50, 258, "C", "F", "C", 0, (), 4),
        (18, 22, 202, "F", "F", "C", 2, (3,), 2),
        (132, 26, 70, "F", "F", "C", 0, (2,), 1),
        (1, 1, 7, "C", "C", "C", 0, (), 1),
    ]
)
def test_columns_slices_and_tensor_maps(engine, columns, m, n, k, a_order, b_order, c_order, pad,
                                        batch, slices):
    hopper(engine)
    a, b = random(m, (*batch, m, k), (*batch, k, n))
    c, plan = product(engine, a, b, stages_at_a_time(columns, slices), a_order=a_order,
                      b_order=b_order, c_order=c_order, pad=pad)
    assert plan.family == "gemm_skinny" and plan.config.columns == columns and plan.config.slices == (slices > 1)
    rows = m if a_order == "F" else k, n if b_order == "C" else k
    assert plan.config.tma == ((True, True) if m == n == 1
                               else tuple((row + pad) % 4 == 0 for row in rows))
    assert units(c, a, b) <= limit(k)


def test_planes_are_exact(engine, plan_by):
    """Integers of 24 bits, one product each: no bit of an element is lost."""
    hopper(engine)
    rng = np.random.default_rng(1)
    a = (rng.integers(2**23, 2**24, (132, 64)) * rng.choice([-1, 1], (132, 64))).astype("f4")
    c, _plan = product(engine, a, np.eye(64, 20, dtype="f4"), plan_by)
    np.testing.assert_array_equal(c, a[:, :20])
    c, _plan = product(engine, np.eye(20, 64, dtype="f4"), a.T.copy()[:, :100], plan_by)
    np.testing.assert_array_equal(c, a.T[:20, :100])


def test_small_integers_are_exact(engine, plan_by):
    hopper(engine)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-60, 61, s).astype("f4") for s in ((132, 300), (300, 40)))
    c, _plan = product(engine, a, b, plan_by, a_order="F")
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**50, -3e38, 2.0**-51, 2.0**-140,
                                   2.0**50 * 1j, complex(1, np.nan)])
def test_elements_out_of_range_take_native_arithmetic(engine, plan_by, where, value):
    hopper(engine)
    if isinstance(value, complex) and plan_by is plan_skinny:
        pytest.skip("wgmma is for float32")
    a, b = random(7, (132, 200), (200, 36), dtype="complex64" if isinstance(value, complex)
                  else "float32")
    c, plan = product(engine, a, b, plan_by)
    native, _plan = product(engine, a, b, plan_simt)
    assert (c != native).any()                               # they are told apart by their rounding
    (a if where == "a" else b)[131 if where == "a" else 30, 30] = value
    with np.errstate(all="ignore"):
        c, _plan = product(engine, a, b, plan_by)
        native, _plan = product(engine, a, b, plan_simt)
    np.testing.assert_array_equal(c, native)
    assert plan.launches[-1].kernel.name.endswith("if2")


@pytest.mark.parametrize("value", [0.0, -0.0, 2.0**-50, 2.0**49.9])
def test_elements_in_range_do_not(engine, plan_by, value):
    hopper(engine)
    a, b = random(8, (132, 200), (200, 36))
    a[0, 7] = b[9, 3] = value
    c, _plan = product(engine, a, b, plan_by)
    native, _plan = product(engine, a, b, plan_simt)
    assert (c != native).any() and units(c, a, b) <= limit(200)


def test_products_at_the_ends_of_the_range(engine, plan_by):
    hopper(engine)
    a, b = random(9, (20, 64), (64, 36))
    for low in (-50, 46):
        scaled = [np.copysign(np.clip(abs(x), 1, 4), x) * np.float32(2.0**low) for x in (a, b)]
        c, _plan = product(engine, *scaled, plan_by)
        assert units(c, *scaled) <= limit(64)


@pytest.mark.parametrize("slices", [1, 2])
def test_alpha_and_epilogue(engine, monkeypatch, plan_by, slices):
    hopper(engine)
    plan_by = stages_at_a_time(64, slices) if plan_by is plan_skinny else plan_by
    monkeypatch.setattr(mma, "_thin_chunks",
                        lambda p, device, tile: [tile.k * -(-p.k // (tile.k * slices))])
    a, b = random(5, (40, 136), (136, 36))
    c, _plan = product(engine, a, b, plan_by, scalars=(-2.0, 0), alpha="value")
    assert units(c / -2, a, b) <= limit(136)
    relu = EpilogueGraph("relu", Node("maximum", "float32",
                                      (Node("acc", "float32"),
                                       Node("constant", "float32", value=0))))
    c, _plan = product(engine, a, b, lambda p, d: plan_by(replace(p, fusion=Fusion(relu)), d))
    assert (abs(c - np.maximum(a.astype("f8") @ b, 0)) <= limit(136) * U
            * (abs(a) @ abs(b))).all() and (c == 0).any()


@pytest.mark.parametrize("step, flip", [(2, None), (1, (True, False)), (1, (False, True)),
                                        (3, (True, True))])
def test_any_strides(engine, plan_by, step, flip):
    hopper(engine)
    a, b = random(10, (132, 131), (131, 36))
    pa, pb = place(a, step=step, flip=flip), place(b, "F", step=step, flip=flip)
    pc = place(np.full((132, 36), np.nan, "f4"), flip=flip)
    plan = plan_by(gemm_problem(pa, pb, pc), engine.device)
    engine.run(plan, 1, 0, a=pa, b=pb, c=pc)
    assert units(pc.view, a, b) <= limit(131) and (plan_by is plan_planes
                                                   or not any(plan.config.tma))


@pytest.mark.parametrize("k", [72, 73])
def test_broadcast_operands(engine, plan_by, k):
    hopper(engine)
    a, b = random(6, (3, 132, k), (k, 20))
    pa, pb, pc = place(a), place(b), place(np.full((3, 132, 20), np.nan, "f4"))
    problem = gemm_problem(pa, pb, pc)
    problem = replace(problem, b=replace(problem.b, batch_strides=(0,)))
    engine.run(plan_by(problem, engine.device), 1, 0, a=pa, b=pb, c=pc)
    assert units(pc.view, a, b) <= limit(k)


def shape_of(m, n, k, **kinds):
    return GemmProblem(m, n, k, Operand("float32", (k, 1)), Operand("float32", (1, n)),
                       Operand("float32", (n, 1)), (), **kinds)


def test_what_is_planned(monkeypatch):
    monkeypatch.setattr(skinny, "LEAST_K", 256)
    plan = plan_gemm(shape_of(100_000, 64, 1024), H200)
    assert plan.family == "gemm_skinny" and plan.config.columns == 64 and not plan.config.slices
    assert "not finite, the device uses fused multiply-adds" in plan.reason
    plan = plan_gemm(shape_of(64, 100_000, 1024), H200)
    assert plan.family == "gemm_skinny" and "B is the smaller operand" in plan.reason
    plan = plan_gemm(shape_of(1024, 64, 100_000), H200)
    assert plan.family == "gemm_skinny" and plan.config.slices and len(plan.launches) > 3
    assert plan_gemm(shape_of(100_000, 64, 1024, precision="ieee"), H200).family == "gemm_simt"
    assert plan_gemm(shape_of(4096, 4096, 4096), H200).family == "gemm_split"
    assert plan_gemm(shape_of(100_000, 64, 128), H200).family == "gemm_simt"


@pytest.mark.parametrize("change, why", [({"beta": "one"}, "must not be read"),
                                         ({"k": 255}, "more accurate in native"),
                                         ({"alpha": "zero"}, "nothing to multiply"),
                                         ({"k": 0}, "nothing to multiply"),
                                         ({"m": 2**31}, "32 bits"),])
def test_what_is_refused(monkeypatch, change, why):
    monkeypatch.setattr(skinny, "LEAST_K", 256)
    kinds = {"m": 1000, "n": 64, "k": 1024, **change}
    problem = shape_of(kinds.pop("m"), kinds.pop("n"), kinds.pop("k"), **kinds)
    assert why in (why_not_skinny(problem, H200) or "")
    with pytest.raises(ValueError, match="gemm_skinny cannot compute this"):
        plan_skinny(problem, H200)
    assert why_not_skinny(shape_of(1000, 64, 1024), replace(H200, workspace_limit=0)) is not None
