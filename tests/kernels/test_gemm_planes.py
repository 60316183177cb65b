"""float32 and complex64 products on planes in registers, and what native arithmetic is called for."""

from dataclasses import replace

import numpy as np
import pytest

import cuteblas.planning.gemm.mma as mma
import cuteblas.planning.gemm.planes as planes
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.codegen.mma import SPLIT_ATOMS
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.mma import thin_tiles
from cuteblas.planning.gemm.planes import plan_planes, why_not_planes
from cuteblas.planning.problem import Fusion

from . import test_gemm_split_complex as of_complex
from .engines import gemm_problem, place
from .test_gemm_split import U, hopper, product
from .test_gemm_split import units as units_of_real

TILES = [(atom.element, tile) for atom in SPLIT_ATOMS for tile in thin_tiles(atom, H200, 10**6)]


@pytest.fixture(autouse=True)
def short_sums(monkeypatch):
    """Sums of any length: what is multiplied is as exact."""
    monkeypatch.setattr(planes, "LEAST_K", 1)


def random(seed, *shapes, dtype="float32"):
    rng = np.random.default_rng(seed)
    real = (rng.standard_normal((*shape, 1 + dtype.startswith("complex"))).astype("f4") for shape in shapes)
    return tuple(np.ascontiguousarray(x).view(dtype)[..., 0] for x in real)


def units(c, a, b):
    return (of_complex.units if c.dtype.kind == "c" else units_of_real)(c, a, b)


def limit(k):
    """Rounding of the planes and products that are left out, truncation within 16 products, and an addition for each of those."""
    return 3 + 6 / k + np.sqrt(k / 16) / 2


def choose(monkeypatch, tile, slices=1, multiprocessors=132):
    """Let planning choose these, and as many blocks as there are so many multiprocessors for."""
    monkeypatch.setattr(mma, "thin_tiles", lambda atom, device, depth: iter([tile]))
    monkeypatch.setattr(mma, "_thin_chunks", lambda p, device, tile: [tile.k * -(-p.k // (tile.k * slices))])
    return lambda p, device: plan_planes(p, replace(device, multiprocessors=multiprocessors))


@pytest.mark.parametrize("case", range(11))
@pytest.mark.parametrize("dtype, tile", TILES, ids=lambda x: x if isinstance(x, str) else f"{x.m}x{x.n}")
def test_every_order_and_ragged_extents(engine, monkeypatch, dtype, tile, case):
    m, n, k, orders, pad, batch, slices, multiprocessors = [
        (130, 64, 100, "CCC", 0, (), 1, 132), (132, 20, 200, "FFF", 0, (), 1, 1), (40, 133, 68, "FCF", 3, (), 1, 132),
        (24, 8, 204, "CFC", 4, (), 3, 132), (130, 35, 101, "CCC", 0, (), 2, 1), (131, 30, 202, "FFF", 0, (), 1, 132),
        (20, 12, 64, "CCC", 0, (2, 3), 1, 132), (16, 20, 200, "FFF", 4, (3,), 2, 2), (1, 1, 7, "CCC", 0, (), 1, 132),
        (33, 31, 130, "FCC", 1, (), 2, 132), (21, 6, 65, "CCF", 3, (2, 3), 1, 1)][case]
    hopper(engine)
    a, b = random(m, (*batch, m, k), (*batch, k, n), dtype=dtype)
    plan_for = choose(monkeypatch, tile, slices, multiprocessors)
    conj = tuple(dtype == "complex64" and bool(case & bit) for bit in (1, 2))
    c, plan = product(engine, a, b, plan_for, a_order=orders[0], b_order=orders[1], c_order=orders[2], pad=pad, conj=conj)
    assert plan.family == "gemm_skinny" and plan.config.tile == tile and (plan.config.slices > 1) == (k > tile.k and slices > 1)
    assert units(c, *(x.conj() if flag else x for x, flag in zip((a, b), conj, strict=True))) <= limit(k)


def test_planes_are_exact(engine):
    """Integers of 24 bits, one product each: no bit of an element is lost."""
    hopper(engine)
    rng = np.random.default_rng(1)
    a = (rng.integers(2**23, 2**24, (132, 64)) * rng.choice([-1, 1], (132, 64))).astype("f4")
    c, _plan = product(engine, a, np.eye(64, 20, dtype="f4"), plan_planes)
    np.testing.assert_array_equal(c, a[:, :20])
    c, _plan = product(engine, np.eye(20, 64, dtype="f4"), a.T.copy()[:, :100], plan_planes)
    np.testing.assert_array_equal(c, a.T[:20, :100])


@pytest.mark.parametrize("conj_a", [False, True])
@pytest.mark.parametrize("conj_b", [False, True])
@pytest.mark.parametrize("a, b", [(1, 1), (1, 1j), (1j, 1), (1j, 1j), (2 - 3j, 5 + 7j)])
def test_every_sign_of_a_complex_product(engine, a, b, conj_a, conj_b):
    """One product at a time: real and imaginary parts that no other term hides."""
    hopper(engine)
    x, y = np.full((9, 1), a, "c8"), np.full((1, 10), b, "c8")
    c, _plan = product(engine, x, y, plan_planes, conj=(conj_a, conj_b))
    np.testing.assert_array_equal(c, np.full((9, 10), (np.conj(a) if conj_a else a) * (np.conj(b) if conj_b else b), "c8"))


def test_small_integers_are_exact(engine):
    hopper(engine)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-60, 61, s).astype("f4") for s in ((132, 300), (300, 40)))
    c, _plan = product(engine, a, b, plan_planes, a_order="F")
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**50, -3e38, 2.0**-51, 2.0**-140, 2.0**50 * 1j, complex(1, np.nan)])
def test_elements_out_of_range_take_native_arithmetic(engine, where, value):
    hopper(engine)
    a, b = random(7, (132, 200), (200, 36), dtype="complex64" if isinstance(value, complex) else "float32")
    c, plan = product(engine, a, b, plan_planes)
    native, _plan = product(engine, a, b, lambda p, d: planes.plan_simt(p, d))
    assert (c != native).any()                                      # they are told apart by their rounding
    (a if where == "a" else b)[131 if where == "a" else 30, 30] = value
    with np.errstate(all="ignore"):
        c, _plan = product(engine, a, b, plan_planes)
        native, _plan = product(engine, a, b, lambda p, d: planes.plan_simt(p, d))
    np.testing.assert_array_equal(c, native)
    assert plan.launches[-1].kernel.name.endswith("if2")


@pytest.mark.parametrize("value", [0.0, -0.0, 2.0**-50, 2.0**49.9])
def test_elements_in_range_do_not(engine, value):
    hopper(engine)
    a, b = random(8, (132, 200), (200, 36))
    a[0, 7] = b[9, 3] = value
    c, _plan = product(engine, a, b, plan_planes)
    native, _plan = product(engine, a, b, lambda p, d: planes.plan_simt(p, d))
    assert (c != native).any() and units(c, a, b) <= limit(200)


def test_products_at_the_ends_of_the_range(engine):
    hopper(engine)
    a, b = random(9, (20, 64), (64, 36))
    for low in (-50, 46):
        scaled = [np.copysign(np.clip(abs(x), 1, 4), x) * np.float32(2.0**low) for x in (a, b)]
        c, _plan = product(engine, *scaled, plan_planes)
        assert units(c, *scaled) <= limit(64)


@pytest.mark.parametrize("slices", [1, 2])
def test_alpha_and_epilogue(engine, monkeypatch, slices):
    hopper(engine)
    plan_planes = choose(monkeypatch, TILES[0][1], slices)
    a, b = random(5, (40, 136), (136, 36))
    c, _plan = product(engine, a, b, plan_planes, scalars=(-2.0, 0), alpha="value")
    assert units(c / -2, a, b) <= limit(136)
    relu = EpilogueGraph("relu", Node("maximum", "float32", (Node("acc", "float32"), Node("constant", "float32", value=0))))
    c, _plan = product(engine, a, b, lambda p, d: plan_planes(replace(p, fusion=Fusion(relu)), d))
    assert (abs(c - np.maximum(a.astype("f8") @ b, 0)) <= limit(136) * U * (abs(a) @ abs(b))).all() and (c == 0).any()


@pytest.mark.parametrize("step, flip", [(2, None), (1, (True, False)), (1, (False, True)), (3, (True, True))])
def test_any_strides(engine, step, flip):
    hopper(engine)
    a, b = random(10, (132, 131), (131, 36))
    pa, pb = place(a, step=step, flip=flip), place(b, "F", step=step, flip=flip)
    pc = place(np.full((132, 36), np.nan, "f4"), flip=flip)
    plan = plan_planes(gemm_problem(pa, pb, pc), engine.device)
    engine.run(plan, 1, 0, a=pa, b=pb, c=pc)
    assert units(pc.view, a, b) <= limit(131)


@pytest.mark.parametrize("k", [72, 73])
def test_broadcast_operands(engine, k):
    hopper(engine)
    a, b = random(6, (3, 132, k), (k, 20))
    pa, pb, pc = place(a), place(b), place(np.full((3, 132, 20), np.nan, "f4"))
    problem = gemm_problem(pa, pb, pc)
    problem = replace(problem, b=replace(problem.b, batch_strides=(0,)))
    engine.run(plan_planes(problem, engine.device), 1, 0, a=pa, b=pb, c=pc)
    assert units(pc.view, a, b) <= limit(k)


def shape_of(m, n, k, dtype="float32", **kinds):
    return GemmProblem(m, n, k, Operand(dtype, (k, 1)), Operand(dtype, (1, n)), Operand(dtype, (n, 1)), (), **kinds)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_what_is_planned(monkeypatch, dtype):
    monkeypatch.setattr(planes, "LEAST_K", 16)
    plan = plan_gemm(shape_of(1_000_000, 16, 32, dtype), H200)
    assert plan.family == "gemm_skinny" and plan.config.tile.n == 16 and plan.config.slices == 1
    assert plan.launches[0].kernel.name.startswith("gemm_mma") and plan.launches[0].grid[0] < plan.config.blocks
    assert "not finite, the device takes fused multiply-adds" in plan.reason
    plan = plan_gemm(shape_of(16, 1_000_000, 32, dtype), H200)
    assert plan.family == "gemm_skinny" and plan.config.tile.m == 16
    assert plan_gemm(shape_of(1_000_000, 16, 32, dtype, precision="ieee"), H200).family != "gemm_skinny"
    assert plan_gemm(shape_of(4096, 4096, 4096, dtype), H200).family == "gemm_split"
    deep = plan_gemm(shape_of(16, 16, 1_000_000, dtype), H200)
    assert deep.family == "gemm_skinny" and deep.config.slices > 1 and len(deep.launches) > 2


@pytest.mark.parametrize("change, why", [
    ({"beta": "one"}, "must not be read"), ({"k": 15}, "more accurate in native"), ({"dtype": "float64"}, "not float64"),
    ({"alpha": "zero"}, "nothing to multiply"), ({"k": 0}, "nothing to multiply"),
])
def test_what_is_refused(monkeypatch, change, why):
    monkeypatch.setattr(planes, "LEAST_K", 16)
    kinds = {"m": 1000, "n": 64, "k": 1024, **change}
    problem = shape_of(kinds.pop("m"), kinds.pop("n"), kinds.pop("k"), **kinds)
    assert why in (why_not_planes(problem, H200) or "")
    with pytest.raises(ValueError, match="gemm_mma cannot compute this"):
        plan_planes(problem, H200)
    assert why_not_planes(shape_of(1000, 64, 1024), replace(H200, workspace_limit=0)) is not None
