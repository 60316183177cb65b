"""``gemm_thin``: every element type, stride, scalar and edge against float64, in the emulator and on a GPU."""

import itertools

import numpy as np
import pytest

from cuteblas.planning.gemm.thin import plan_thin

from .engines import check_product, gemm_problem, place, poison, random

FLOATS = ["float32", "float64", "complex64", "complex128"]
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", *FLOATS]


def product(engine, a, b, dtype, *, c_order="C", alpha=1, beta=0, conj=(False, False), a_place=None, b_place=None,
            c_place=None, choice=None):
    """Run one product and compare; returns the plan."""
    shape = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    rng = np.random.default_rng(9)
    before = random(rng, shape, dtype) if beta else np.full(shape, poison(dtype), dtype)
    pa, pb = place(a, **(a_place or {})), place(b, **(b_place or {}))
    pc = place(before, c_order, poison=poison(dtype), **(c_place or {}))
    outside = np.ones(pc.base.shape, bool)
    np.lib.stride_tricks.as_strided(outside[pc.offset:], pc.shape, pc.strides)[...] = False
    untouched = pc.base[outside].copy()
    kinds = {"alpha": "one" if alpha == 1 else "value", "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    problem = gemm_problem(pa, pb, pc, conj=conj, **kinds)
    plan = plan_thin(problem, engine.device, choice=choice and choice(problem))
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    ca, cb = (np.conj(x) if f else x for x, f in zip((a, b), conj, strict=True))
    check_product(pc.view, ca, cb, dtype, alpha=alpha, beta=beta, before=before)
    np.testing.assert_array_equal(pc.base[outside], untouched, err_msg="memory outside of C was written")
    return plan


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("orders", ["".join(o) for o in itertools.product("CF", repeat=2)])
def test_every_type(engine, dtype, orders):
    rng = np.random.default_rng(1)
    a, b = random(rng, (40, 72), dtype), random(rng, (72, 3), dtype)
    product(engine, a, b, dtype, a_place={"order": orders[0]}, b_place={"order": orders[1]})


@pytest.mark.parametrize("orders", ["".join(o) for o in itertools.product("CF", repeat=3)])
@pytest.mark.parametrize("dtype, n", [("float32", 8), ("complex128", 4), ("float16", 16)])
def test_every_order_of_a_b_and_c(engine, dtype, n, orders):
    rng = np.random.default_rng(2)
    a, b = random(rng, (64, 96), dtype), random(rng, (96, n), dtype)
    places = {"c_order": orders[2], "a_place": {"order": orders[0]}, "b_place": {"order": orders[1]}}
    product(engine, a, b, dtype, **places)
    a, b = random(rng, (n, 96), dtype), random(rng, (96, 64), dtype)
    product(engine, a, b, dtype, **places)


SIZES = [(1, 1, 1), (1, 7, 3), (5, 1, 2), (3, 4, 0), (16, 16, 16), (1, 33, 15), (32, 2, 17), (65, 9, 64), (127, 12, 31),
         (1, 1, 1000), (13, 257, 100), (3, 3, 4099)]


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_sizes_on_both_sides_of_tile_edges(engine, m, n, k, orders):
    rng = np.random.default_rng(3)
    product(engine, random(rng, (m, k), "float32"), random(rng, (k, n), "float32"), "float32", a_place={"order": orders[0]},
            b_place={"order": orders[1]})
