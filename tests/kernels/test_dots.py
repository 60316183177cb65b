"""Dot products of rows: products with one row and one column, as reductions, of any strides, in the
emulator and on a GPU."""

import numpy as np
import pytest

from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.reductions import plan_dots, why_not_dots

from .engines import UNIT, gemm_problem, place, poison, random

TYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "bool"]


def dots(engine, x, y, conj=(False, False), seed=None, **layout):
    """The products of the rows of (batch, K) arrays, compared with exact arithmetic; the plan and
    the result."""
    nothing = None if x.dtype.kind == "b" else poison(x.dtype)
    px = place(x[:, None, :], poison=nothing, **layout)
    py = place(y[:, :, None], "F", poison=nothing)
    pc = place(np.zeros((len(x), 1, 1), x.dtype), poison=nothing, pad=3)
    pc.view[...] = 0 if nothing is None else nothing
    around = pc.base.copy()
    plan = plan_dots(gemm_problem(px, py, pc, conj=conj), engine.device)
    assert plan.family == "reduce"
    engine.run(plan, a=px, b=py, c=pc, seed=seed)
    result = pc.view[:, 0, 0].copy()
    pc.view[...] = 0 if nothing is None else nothing
    assert pc.base.tobytes() == around.tobytes(), "memory outside of C was written"
    if x.dtype.kind in "iub":
        np.testing.assert_array_equal(result, (x[:, None] @ y[..., None])[:, 0, 0])
    else:
        wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
        x, y = (z.astype(wide).conj() if c else z.astype(wide)
                for z, c in zip((x, y), conj, strict=True))
        unit = UNIT[result.dtype.name]
        error, bound = abs(result - (x * y).sum(-1)), 4 * unit * (abs(x) * abs(y)).sum(-1)
        assert (error <= bound).all(), float((error / bound).max())
    return plan, result


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [1, 7, 32, 300, 1025])
def test_types_and_lengths(engine, dtype, k):
    rng = np.random.default_rng(k)
    dots(engine, random(rng, (37, k), dtype), random(rng, (37, k), dtype))


@pytest.mark.parametrize("layout", [{"order": "F"}, {"pad": 3}, {"step": 2},
                                    {"flip": (True, False, False)}, {"flip": (False, False, True)},
                                    {"offset": 1}])
def test_any_strides(engine, layout):
    rng = np.random.default_rng(3)
    dots(engine, random(rng, (33, 65), "float32"), random(rng, (33, 65), "float32"), **layout)


@pytest.mark.parametrize("conj", [(True, False), (False, True), (True, True)])
def test_conjugated(engine, conj):
    rng = np.random.default_rng(4)
    dots(engine, random(rng, (5, 40), "complex64"), random(rng, (5, 40), "complex64"), conj)


def test_one_long_row_in_slices_is_reproducible(engine):
    rng = np.random.default_rng(5)
    x, y = random(rng, (1, 50_001), "float32"), random(rng, (1, 50_001), "float32")
    plan, result = dots(engine, x, y)
    assert len(plan.launches) == 2
    assert dots(engine, x, y, seed=11)[1].tobytes() == result.tobytes()


def test_an_operand_that_is_broadcast(engine):
    rng = np.random.default_rng(6)
    x, y = random(rng, (50, 1, 129), "float64"), random(rng, (50, 129, 1), "float64")
    y[:] = y[0]
    px, py, pc = place(x), place(y[:1], "F"), place(np.zeros((50, 1, 1)))
    py.shape, py.strides = (50, 129, 1), (0, *py.strides[1:])
    for a, b in ((px, py), (py, px)):
        if a is py:
            a, b = (type(z)(z.base, z.offset, (50, *z.shape[:0:-1]),
                            (z.strides[0], *z.strides[:0:-1])) for z in (py, px))
        plan = plan_dots(gemm_problem(a, b, pc), engine.device)
        assert plan.family == "reduce"
        engine.run(plan, a=a, b=b, c=pc)
        np.testing.assert_allclose(pc.view, x @ y, rtol=0, atol=1e-12)


def test_what_is_no_dot_product_goes_elsewhere():
    rng = np.random.default_rng(7)
    x = place(random(rng, (4, 2, 8), "float32"))
    y = place(random(rng, (4, 8, 1), "float32"))
    problem = gemm_problem(x, y, place(np.zeros((4, 2, 1), "float32")))
    assert "one row" in why_not_dots(problem, H200)


def test_rows_that_cost_what_memory_does():
    """100,000 rows of 300 took 30 times as long by a tile for each."""
    from cuteblas.planning import H200, GemmProblem, Operand

    for name, other in (("float32", plan_simt), ("float64", plan_mma)):
        x, c = Operand(name, (0, 1), (300,)), Operand(name, (0, 0), (1,))
        problem = GemmProblem(1, 1, 300, x, x, c, (100_000,))
        moved = 2 * 300 * 100_000 * np.dtype(name).itemsize / H200.bandwidth
        assert plan_gemm(problem, H200).seconds < 1.3 * moved < 0.2 * other(problem, H200).seconds
