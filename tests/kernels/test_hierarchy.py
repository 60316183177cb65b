"""CUTLASS's policies, its dp4a product and its fused epilogue, in the emulator and on a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.layout import CountingIterator, Layout, Tensor, size
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.tutorial.gemm import POLICIES
from cuteblas.planning.variants import variants

from .engines import check_tensor_cores, gemm_problem, multiply, place, random

SHAPES = ("small", "medium", "large", "tall", "wide", "huge")
OUTPUT = {"float32": "float32", "float64": "float64", "float16": "float16", "int8": "int32"}


def product(engine, name, a, b, orders="CCC", **how):
    """One product by a variant; the plan."""
    return multiply(engine, lambda p, device: plan_gemm(replace(p, variant=name), device), a, b,
                    orders, output=OUTPUT[a.dtype.name], **how)


@pytest.mark.parametrize("dtype", OUTPUT)
@pytest.mark.parametrize("shape", SHAPES)
def test_policies_on_ragged_sizes(engine, shape, dtype):
    rng = np.random.default_rng(1)
    a, b = random(rng, (133, 36), dtype), random(rng, (36, 70), dtype)
    product(engine, f"gemm_{shape}", a, b, "FCF", c_place={"pad": 3})
    product(engine, f"gemm_{shape}", a, b, "CFC")


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("shape", SHAPES)
def test_aligned_policies(engine, shape, orders):
    """Without predicates, also where K ends inside the ring of stages."""
    rng = np.random.default_rng(2)
    for k in (16, 64):
        a, b = random(rng, (128, k), "float32"), random(rng, (k, 256), "float32")
        plan = product(engine, f"gemm_{shape}_aligned", a, b, orders + "C", alpha=2,
                       beta=3)
        body = plan.launches[0].kernel.body
        assert "tAcA" not in body and "tCcC" not in body and "tAcA" in gemm_body(f"gemm_{shape}")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8"])
def test_aligned_policies_of_other_types(engine, dtype):
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        product(engine, f"gemm_{shape}_aligned", random(rng, (128, 64), dtype),
                random(rng, (64, 128), dtype), "CFC")


def gemm_body(name):
    x = place(np.zeros((64, 64), "f4"))
    return plan_gemm(gemm_problem(x, x, x, variant=name), H200).launches[0].kernel.body


def test_an_empty_sum_without_predicates(engine):
    product(engine, "gemm_medium_aligned", np.zeros((64, 0), "f4"), np.zeros((0, 32), "f4"), beta=2)


@pytest.mark.parametrize("shape, threads, thread_tile",
                         [("small", 64, (2, 2)), ("medium", 64, (4, 4)), ("large", 64, (8, 8)),
                          ("tall", 128, (8, 4)), ("wide", 128, (4, 8)), ("huge", 256, (8, 8))])
def test_a_policy_is_a_nested_layout(shape, threads, thread_tile):
    """As many threads as thread tiles in the block tile; each owns quadrants of at most 4 x 4,
    every element once."""
    policy = POLICIES["float32"][shape]
    tile = policy.tile
    (m, n), rest = policy.block, tuple(t // e for t, e in zip(policy.block, tile.mma.tile,
                                                              strict=True))
    assert tile.threads == threads == m * n // (thread_tile[0] * thread_tile[1])
    assert tuple(v * r for v, r in zip(tile.values, rest, strict=True)) == thread_tile
    numbers = Tensor(CountingIterator(0), Layout((m, n)))
    owned = [tile.mma.partition_c(numbers, t) for t in range(threads)]
    assert sorted(x for part in owned for x in part) == list(range(m * n))
    assert all(size(part.layout) == thread_tile[0] * thread_tile[1] for part in owned)


@pytest.mark.parametrize("dtype", POLICIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_threads_follow_from_the_sizes(dtype, shape):
    policy = POLICIES[dtype][shape]
    assert policy.tile.threads == policy.block[0] * policy.block[1] // (policy.thread[0] * policy.thread[1]) <= 256


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("c_order", "CF")
def test_dp4a(engine, orders, c_order):
    rng = np.random.default_rng(4)
    a, b = random(rng, (70, 132), "int8"), random(rng, (132, 133), "int8")
    plan = product(engine, "igemm_dp4a", a, b, orders + c_order, alpha=-3, beta=2,
                   c_place={"pad": 1})
    moved = orders[0] == "F" or orders[1] == "C"      # two copies share a launch
    assert len(plan.launches) == 1 + moved and "mac_dp4a" in plan.launches[-1].kernel.body


def test_dp4a_in_a_batch_and_unaligned(engine):
    rng = np.random.default_rng(5)
    a, b = random(rng, (3, 20, 24), "int8"), random(rng, (3, 24, 33), "int8")
    product(engine, "igemm_dp4a", a, b, "CFC")
    product(engine, "igemm_dp4a", a, b)
    a, b = a[0], b[0]
    pa, pb, pc = place(a, pad=1), place(b, "F", offset=1), place(np.zeros((20, 33), "i4"))
    plan = plan_gemm(gemm_problem(pa, pb, pc, variant="igemm_dp4a"), engine.device)
    engine.run(plan, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a.astype("i4") @ b.astype("i4"))


def test_a_large_dp4a_takes_a_large_tile():
    def tile(m, n):
        x, c = place(np.zeros((64, 64), "i1")), place(np.zeros((64, 64), "i4"))
        p = gemm_problem(x, x, c, variant="igemm_dp4a")
        p = replace(p, m=m, n=n, a=replace(p.a, strides=(64, 1)), b=replace(p.b, strides=(64, 1)),
                    c=replace(p.c, strides=(n, 1)))
        return plan_gemm(p, H200).config.tile.m

    assert [tile(64, 64), tile(8192, 8192)] == [32, 128]


@pytest.mark.parametrize(
    "name, change, why",
    [
        (
            "gemm_huge",
            {"a": "complex64", "b": "complex64"},
            "two operands of one type, float32, .*, got complex64 and complex64"
        ),
        ("gemm_huge", {"b": "float64"}, "got float32 and float64"),
        (
            "gemm_huge_aligned",
            {},
            "no predicates: M, N, K = 64, 64, 64 are not multiples of the tile 128x128x8"
        ),
        ("gemm_tall_aligned", {}, "not multiples of the tile 128x32x8"),
        ("igemm_dp4a", {}, "multiplies int8 by int8 to int32, got float32 by float32 to float32"),
        ("gemm_small", {"a": "int8", "b": "int8"}, "sums int8 in int32: C is int32, got float32"),
        ("gemm_mma", {}, "sm_90 has no mma.sync for float32"),
    ]
)
def test_refusals(name, change, why):
    x = place(np.zeros((64, 64), "f4"))
    problem = gemm_problem(x, x, x, variant=name)
    problem = replace(problem, **{operand: replace(getattr(problem, operand), dtype=dtype)
                                  for operand, dtype in change.items()})
    with pytest.raises(ValueError, match=why):
        plan_gemm(problem, H200)


def test_dp4a_needs_words():
    x, c = place(np.zeros((64, 66), "i1")), place(np.zeros((64, 66), "i4"))
    with pytest.raises(ValueError, match="K is a multiple of 4, got 66"):
        plan_gemm(gemm_problem(x, place(np.zeros((66, 66), "i1")), c, variant="igemm_dp4a"), H200)


def test_every_variant_is_listed():
    names = {f"gemm_{s}{a}" for s in SHAPES for a in ("", "_aligned")} | {"igemm_dp4a", "gemm_mma"}
    assert names <= set(variants()) and all("CUTLASS" in variants()[name].source for name in names)


def test_the_warp_level_variant(engine):
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((70, 72)).astype("f2"), rng.standard_normal((72, 80)).astype("f2")
    pa, pb, pc = place(a), place(b), place(np.full((70, 80), np.nan, "f4"))
    plan = plan_gemm(gemm_problem(pa, pb, pc, variant="gemm_mma"), engine.device)
    engine.run(plan, a=pa, b=pb, c=pc)
    check_tensor_cores(pc.view, a, b)
    assert plan.family == "gemm_mma" and "variant gemm_mma" in plan.reason
