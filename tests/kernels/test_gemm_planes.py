"""float32 and complex64 products by mma.sync on planes in registers; what they share with those by
wgmma: test_gemm_skinny.py."""

from dataclasses import replace

import numpy as np
import pytest

import cuteblas.planning.gemm.mma as mma
import cuteblas.planning.gemm.skinny as planes
from cuteblas.codegen.mma import SPLIT_ATOMS
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.mma import thin_tiles
from cuteblas.planning.gemm.skinny import plan_planes, why_not_planes

from .test_gemm_skinny import random, units
from .test_gemm_split import hopper, product

TILES = [(atom.element, tile) for atom in SPLIT_ATOMS for tile in thin_tiles(atom, H200, 10**6)]


@pytest.fixture(autouse=True)
def short_sums(monkeypatch):
    """Sums of any length: what is multiplied is as exact."""
    monkeypatch.setattr(planes, "LEAST_K_BY_MMA", 1)


def limit(k):
    """Rounding of the planes and products that are left out, truncation within 16 products, and an
    addition for each of those."""
    return 3 + 6 / k + np.sqrt(k / 16) / 2


def choose(monkeypatch, tile, slices=1, multiprocessors=132):
    """Let planning choose these, and as many blocks as there are so many multiprocessors for."""
    monkeypatch.setattr(mma, "thin_tiles", lambda *_: iter([tile]))
    monkeypatch.setattr(mma, "_thin_chunks",
                        lambda p, device, tile: [tile.k * -(-p.k // (tile.k * slices))])
    return lambda p, device: plan_planes(p, replace(device, multiprocessors=multiprocessors))


@pytest.mark.parametrize("case", range(11))
@pytest.mark.parametrize("dtype, tile", TILES,
                         ids=lambda x: x if isinstance(x, str) else f"{x.m}x{x.n}")
def test_every_order_and_ragged_extents(engine, monkeypatch, dtype, tile, case):
    m, n, k, orders, pad, batch, slices, multiprocessors = [(130, 64, 100, "CCC", 0, (), 1, 132),
                                                            (132, 20, 200, "FFF", 0, (), 1, 1),
                                                            (40, 133, 68, "FCF", 3, (), 1, 132),
                                                            (24, 8, 204, "CFC", 4, (), 3, 132),
                                                            (130, 35, 101, "CCC", 0, (), 2, 1),
                                                            (131, 30, 202, "FFF", 0, (), 1, 132),
                                                            (20, 12, 64, "CCC", 0, (2, 3), 1, 132),
                                                            (16, 20, 200, "FFF", 4, (3,), 2, 2),
                                                            (1, 1, 7, "CCC", 0, (), 1, 132),
                                                            (33, 31, 130, "FCC", 1, (), 2, 132),
                                                            (21, 6, 65, "CCF", 3, (2, 3), 1,
                                                             1)][case]
    hopper(engine)
    a, b = random(m, (*batch, m, k), (*batch, k, n), dtype=dtype)
    plan_for = choose(monkeypatch, tile, slices, multiprocessors)
    conj = tuple(dtype == "complex64" and bool(case & bit) for bit in (1, 2))
    c, plan = product(engine, a, b, plan_for, a_order=orders[0], b_order=orders[1],
                      c_order=orders[2], pad=pad, conj=conj)
    assert plan.family == "gemm_skinny" and plan.config.tile == tile and (plan.config.slices > 1) == (k > tile.k and slices > 1)
    assert units(c, *(x.conj() if flag else x for x, flag in zip((a, b), conj,
                                                                 strict=True))) <= limit(k)


@pytest.mark.parametrize("conj_a", [False, True])
@pytest.mark.parametrize("conj_b", [False, True])
@pytest.mark.parametrize("a, b", [(1, 1), (1, 1j), (1j, 1), (1j, 1j), (2 - 3j, 5 + 7j)])
def test_every_sign_of_a_complex_product(engine, a, b, conj_a, conj_b):
    """One product at a time: real and imaginary parts that no other term hides."""
    hopper(engine)
    x, y = np.full((9, 1), a, "c8"), np.full((1, 10), b, "c8")
    c, _plan = product(engine, x, y, plan_planes, conj=(conj_a, conj_b))
    np.testing.assert_array_equal(c, np.full((9, 10), (np.conj(a) if conj_a else a)
                                             * (np.conj(b) if conj_b else b), "c8"))


def shape_of(m, n, k, dtype="float32", **kinds):
    return GemmProblem(m, n, k, Operand(dtype, (k, 1)), Operand(dtype, (1, n)),
                       Operand(dtype, (n, 1)), (), **kinds)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_what_is_planned(monkeypatch, dtype):
    monkeypatch.setattr(planes, "LEAST_K_BY_MMA", 16)
    plan = plan_gemm(shape_of(1_000_000, 16, 32, dtype), H200)
    assert plan.family == "gemm_skinny" and plan.config.tile.n == 16 and plan.config.slices == 1
    assert plan.launches[0].kernel.name.startswith("gemm_mma") and plan.launches[0].grid[0] < plan.config.blocks
    assert "not finite, the device uses fused multiply-adds" in plan.reason
    assert plan_planes(shape_of(16, 1_000_000, 32, dtype), H200).config.tile.m == 16
    assert plan_gemm(shape_of(1_000_000, 16, 32, dtype, precision="ieee"),
                     H200).family != "gemm_skinny"
    assert plan_gemm(shape_of(4096, 4096, 4096, dtype), H200).family == "gemm_split"
    deep = plan_gemm(shape_of(16, 16, 1_000_000, dtype), H200)
    assert deep.family == "gemm_skinny" and deep.config.slices > 1 and len(deep.launches) > 2


@pytest.mark.parametrize("change, why", [({"beta": "one"}, "must not be read"),
                                         ({"k": 15}, "more accurate in native"),
                                         ({"dtype": "float64"}, "not float64"),
                                         ({"alpha": "zero"}, "nothing to multiply"),
                                         ({"k": 0}, "nothing to multiply"),])
def test_what_is_refused(monkeypatch, change, why):
    monkeypatch.setattr(planes, "LEAST_K_BY_MMA", 16)
    kinds = {"m": 1000, "n": 64, "k": 1024, **change}
    problem = shape_of(kinds.pop("m"), kinds.pop("n"), kinds.pop("k"), **kinds)
    assert why in (why_not_planes(problem, H200) or "")
    with pytest.raises(ValueError, match="gemm_skinny cannot compute this"):
        plan_planes(problem, H200)
    assert why_not_planes(shape_of(1000, 64, 1024), replace(H200, workspace_limit=0)) is not None
