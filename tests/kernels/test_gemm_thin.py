"""``gemm_thin``: its tiles and slices, in the emulator and on a GPU; what it shares with other
families is in test_products.py."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.kernels.gemm.thin import gemm_thin
from cuteblas.planning import H200
from cuteblas.planning.gemm import thin
from cuteblas.planning.gemm.dispatch import plan_gemm
from cuteblas.planning.gemm.thin import plan_thin, why_not_thin

from .engines import check_product, gemm_problem, multiply, place, random

FLOATS = ["float32", "float64", "complex64", "complex128"]
SIZES = [(1, 1, 1), (1, 7, 3), (5, 1, 2), (3, 4, 0), (8, 16, 16), (1, 33, 15), (32, 2, 17),
         (65, 7, 64), (127, 8, 31), (1, 1, 1000), (7, 257, 100), (3, 3, 4099)]


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_sizes_on_both_sides_of_tile_edges(engine, m, n, k, orders):
    rng = np.random.default_rng(3)
    multiply(engine, plan_thin, random(rng, (m, k), "float32"), random(rng, (k, n), "float32"),
             orders + "C")


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "float16", "bool"])
@pytest.mark.parametrize("orders, beta", [("CC", 0), ("FF", 1)])
def test_slices_of_k(engine, dtype, orders, beta):
    """Many for few elements of C, which several threads add; in a batch; the last shorter."""
    rng = np.random.default_rng(11)
    a, b = random(rng, (2, 5, 6011), dtype), random(rng, (2, 6011, 3), dtype)

    def most_slices(p, device):
        choices = thin.THIN.choices(p, device)
        return plan_thin(p, device, choice=max(choices, key=lambda x: x.slices))

    plan = multiply(engine, most_slices, a, b, orders + "C", beta=beta)
    assert plan.config.slices > 1 and len(plan.launches) == 2 and plan.workspace_bytes > 0 and "slices" in plan.reason
    assert "_along" in plan.launches[1].kernel.name


@pytest.mark.parametrize("dtype, orders, n", [("float32", "CC", 3), ("float64", "FF", 2),
                                              ("float16", "CF", 8), ("complex64", "FC", 1)])
def test_every_tile(engine, dtype, orders, n):
    """Every tile that planning can choose, but for the number of vectors of a step."""
    rng = np.random.default_rng(12)
    a, b = random(rng, (70, 152), dtype), random(rng, (152, n), dtype)
    problem = gemm_problem(place(a, orders[0]), place(b, orders[1]),
                           place(np.empty((70, n), dtype)))
    found = {(x.tile.lanes, x.tile.warps, x.tile.rest[0] > 1, x.tile.rest[1] > 1): x
             for x in thin.THIN.choices(problem, engine.device)}
    assert len(found) > 5
    for choice in found.values():
        plan = multiply(engine, partial(plan_thin, choice=choice), a, b, orders + "C")
        assert plan.config.tile == choice.tile


def test_results_are_the_same_bit_for_bit_in_any_order_of_threads(engine):
    rng = np.random.default_rng(14)
    a, b = random(rng, (6, 7000), "float32"), random(rng, (7000, 3), "float32")
    results = []
    for seed in (None, 1, 2):
        pa, pb, pc = place(a), place(b), place(np.zeros((6, 3), "f4"))
        engine.run(plan_thin(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc, seed=seed)
        results.append(pc.view.tobytes())
    assert len(set(results)) == 1


def test_small_integers_in_floats_are_exact(engine):
    rng = np.random.default_rng(13)
    for dtype in FLOATS:
        a, b = (rng.integers(-9, 10, s).astype(dtype) for s in ((40, 300), (300, 6)))
        pa, pb, pc = place(a), place(b), place(np.full((40, 6), np.nan, dtype))
        engine.run(plan_thin(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
        np.testing.assert_array_equal(pc.view, a @ b)


def test_beta_zero_does_not_read_c_and_alpha_zero_neither_a_nor_b(engine):
    nan, ones, few = np.full((20, 20), np.nan, "f4"), np.ones((20, 4), "f4"), np.ones((20, 20), "f4")
    pa, pb, pc = place(few), place(ones), place(nan[:, :4].copy())
    engine.run(plan_thin(gemm_problem(pa, pb, pc, alpha="value"), engine.device), 2.0, a=pa, b=pb,
               c=pc)
    np.testing.assert_array_equal(pc.view, 40 * ones)
    pa, pb, pc = place(nan), place(nan[:, :4].copy()), place(ones)
    engine.run(plan_thin(gemm_problem(pa, pb, pc, alpha="zero", beta="value"), engine.device), 0.0,
               3.0, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, 3 * ones)


def test_sums_are_short(engine):
    """Each thread adds few terms, and what it has is added in a tree: the error of a long sum grows
    with neither."""
    rng = np.random.default_rng(16)
    a, b = rng.random((4, 60000), np.float32), rng.random((60000, 1), np.float32)
    pa, pb, pc = place(a), place(b), place(np.zeros((4, 1), "f4"))
    engine.run(plan_thin(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    want = a.astype(float) @ b.astype(float)
    assert (abs(pc.view - want) <= 8 * 2.0**-24 * want).all()


def test_offsets_of_64_bits(engine):
    rng = np.random.default_rng(15)
    a, b = random(rng, (36, 20), "float32"), random(rng, (20, 4), "float32")
    pa, pb, pc = place(a), place(b), place(np.full((36, 4), np.nan, "f4"))
    problem = gemm_problem(pa, pb, pc)
    plan = plan_thin(problem, engine.device)
    huge = plan_thin(replace(problem, m=2**17, a=replace(problem.a, strides=(2**15, 1))),
                     engine.device)
    assert "_wide" in huge.launches[0].kernel.name and "_wide" not in plan.launches[0].kernel.name
    launch = plan.launches[0]
    wide = gemm_thin(replace(thin.config_of(problem, engine.device, plan.config), wide=True))
    assert [p.name for p in wide.params] == [p.name for p in launch.kernel.params]
    engine.run(replace(plan, launches=(replace(launch, kernel=wide),)), a=pa, b=pb, c=pc)
    check_product(pc.view, a, b, "float32")


def test_triangles_and_complex_gram_matrices_are_not_for_it():
    """Of two complex elements opposite to each other the same products are added in another
    order."""
    for dtype, family in (("f4", "gemm_thin"), ("c8", "gemm_simt")):
        a, c = place(np.zeros((3, 100000), dtype)), place(np.zeros((3, 3), dtype))
        problem = replace(gemm_problem(a, a, c), n=3, b=a.operand(), triangle="both")
        plan = plan_gemm(problem, H200)
        assert plan.family == family and why_not_thin(problem, H200) is not None


def test_what_it_does_not_take_is_refused_in_words():
    x, wide = place(np.zeros((17, 17), "f4")), place(np.zeros((17, 17), "f4"))
    with pytest.raises(ValueError, match="more than 8 rows and more than 8 columns"):
        plan_thin(gemm_problem(x, wide, wide), H200)


def test_vectors_are_read_in_whole_lines():
    """By counted sectors, for the usual orders of a matrix times a vector."""
    for dtype in ("float32", "float64", "float16", "complex64", "complex128"):
        for order in "CF":
            a, x, y = place(np.zeros((512, 512), dtype), order), place(np.zeros((512, 1), dtype)), place(np.zeros((512, 1), dtype))
            facts = plan_thin(gemm_problem(a, x, y), H200).launches[0].kernel.facts
            assert facts["global load A"] == "16 bytes a lane: 16 sectors of at least 16", (
                dtype,
                order,
                facts
            )


def test_the_source_is_for_people():
    a, x, y = place(np.zeros((512, 512), "f4")), place(np.zeros((512, 2), "f4")), place(np.zeros((512, 2), "f4"))
    body = plan_thin(gemm_problem(a, x, y), H200).launches[0].kernel.body
    for name in ("tAgA", "tArA", "tBrB", "tCrC", "tCgC", "tCcC"):
        assert name in body
    assert "asm" not in body and "__syncthreads" not in body
