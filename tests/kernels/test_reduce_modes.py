"""``reduce_modes``: sums, largest and smallest elements along a mode, of any strides, in the
emulator and on a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas._dtypes import dtype as element
from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.reduce.modes import ReduceModesConfig, reduce_modes
from cuteblas.planning import H200, Operand
from cuteblas.planning.plan import Workspace
from cuteblas.planning.plan import place as at
from cuteblas.planning.problem import ReductionProblem
from cuteblas.planning.reductions import plan_reduction

from .engines import UNIT, Strided, aligned, outside, place, poison, random

ml_dtypes = pytest.importorskip("ml_dtypes")

REDUCED = {"sum": np.sum, "max": np.max, "min": np.min}
SIZES = [0, 1, 7, 31, 32, 33, 127, 128, 129, 513]


def vector(shape, dtype, *, step=1, flip=False):
    """A poisoned vector, in a batch perhaps, of which every ``step``-th element is used."""
    flips = (*(flip for _ in shape), False)
    return place(np.full((*shape, 1), poison(dtype), dtype), "F", step=step, flip=flips,
                 poison=poison(dtype))


def problem_of(x, r, op="sum", compute=None):
    """R = op over the last mode of X."""
    *batch, i, j = x.shape
    into = Operand(r.base.dtype.name, (r.strides[-2], 0), r.strides[:-2], alignment=r.alignment)
    return ReductionProblem(i, j, x.operand(), into, tuple(batch), op, compute)


def check(r, x, op, compute=None):
    """Compare with exact arithmetic; sums of floats in units of u sum |x|, rounded to R's type
    once."""
    kind = r.dtype
    if op != "sum":
        want = REDUCED[op](x.astype(kind), axis=-1)
        np.testing.assert_array_equal(*(y.astype("f8") if element(kind.name).is_stored else y
                                        for y in (r, want)))
    elif kind.kind in "iu":
        np.testing.assert_array_equal(r, np.sum(x, axis=-1, dtype=compute or kind).astype(kind))
    else:
        wide = np.clongdouble if kind.kind == "c" else np.longdouble
        want, scale = x.astype(wide).sum(-1), abs(x.astype("c16" if kind.kind == "c"
                                                           else "f8")).sum(-1)
        within = UNIT[compute or element(x.dtype.name).computed] * 2 * scale
        rounding = 2.0**-element(kind.name).significand * abs(want) * 1.01
        error = abs(r.astype(wide) - want)
        assert not np.isnan(error).any(), "poison or NaN in the result"
        assert (error <= within + rounding).all(), float((error / (within + 1e-300)).max())


def reduce(engine, x, op="sum", order="C", *, dtype=None, compute=None, r_step=1, r_flip=False,
           seed=None, **layout):
    """Reduce the last mode, compare, and check the memory around the result; returns the plan and
    the result."""
    into = dtype or x.dtype
    px, pr = place(x, order, poison=None if x.dtype.kind == "b" else poison(x.dtype), **layout), \
        vector(x.shape[:-1], into, step=r_step, flip=r_flip)
    return run(engine, px, pr, op, compute, seed)


def run(engine, px, pr, op="sum", compute=None, seed=None):
    around = outside(pr)
    untouched = pr.base[around].tobytes()
    plan = plan_reduction(problem_of(px, pr, op, compute), engine.device)
    engine.run(plan, src=px, dst=pr, seed=seed)
    assert pr.base[around].tobytes() == untouched, "memory outside of R was written"
    check(pr.view[..., 0], px.view, op, compute)
    return plan, pr.view[..., 0].copy()


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("i", [1, 7, 32, 129])
@pytest.mark.parametrize("j", SIZES)
def test_sizes(engine, i, j, order):
    rng = np.random.default_rng(i + 1000 * j)
    reduce(engine, random(rng, (i, j), "float32"), order=order)
    if j:
        reduce(engine, random(rng, (i, j), "float32"), "max", order)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16", "bfloat16",
                                   "float8_e4m3fn", "float8_e5m2", "float32", "float64",
                                   "complex64", "complex128"])
def test_types(engine, dtype, order):
    rng = np.random.default_rng(1)
    kind = element(dtype).numpy
    x = rng.standard_normal((37, 160)).astype(kind) if element(dtype).package == "ml_dtypes" else random(rng, (37, 160), dtype)
    reduce(engine, x, order=order)
    if kind.kind != "c":
        for op in ("max", "min"):
            reduce(engine, x, op, order)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("element, compute, into",
                         [("float16", "float32", "float32"), ("float16", "float64", "float64"),
                          ("float32", "float64", "float64"), ("float32", "float32", "float16"),
                          ("float64", "float64", "float32"), ("int8", "int64", "int64"),
                          ("uint8", "uint32", "int64"), ("int32", "int64", "int32"),
                          ("bool", "int64", "int64")])
def test_sums_in_other_types(engine, element, compute, into, order):
    reduce(engine, random(np.random.default_rng(2), (20, 100), element), order=order, dtype=into,
           compute=compute)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(20, 100), (1, 100_000), (33, 0)])
def test_a_sum_of_bool_is_a_logical_or(engine, shape, order):
    x = np.zeros(shape, bool)
    x[:, 7:8] = True
    x[3:5] = False
    px, pr = place(x, order), vector(shape[:1], bool)
    engine.run(plan_reduction(problem_of(px, pr), engine.device), src=px, dst=pr)
    np.testing.assert_array_equal(pr.view[..., 0], x.any(-1))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("layout", [{"pad": 3}, {"pad": 4}, {"step": 2}, {"step": 3, "pad": 1},
                                    {"offset": 1}, {"flip": (True, False)}, {"flip": (False, True)},
                                    {"flip": (True, True), "step": 2}, {"r_step": 3},
                                    {"r_step": 2, "r_flip": True}], ids=str)
def test_strides(engine, layout, order, op):
    reduce(engine, random(np.random.default_rng(3), (36, 132), "float32"), op, order, **layout)


@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (0, 0), (3, 3), (1, 1), (-1, 1), (1, -1)])
@pytest.mark.parametrize("op", ["sum", "min"])
def test_strides_that_repeat_elements(engine, strides, op):
    shape = (33, 70)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    base = aligned(sum(map(abs, reach)) + 1, "float32")
    base[:] = random(np.random.default_rng(4), base.shape, "float32")
    run(engine, Strided(base, -sum(r for r in reach if r < 0), shape, strides),
        vector(shape[:1], "float32"), op)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("batch", [(3,), (2, 3), (5, 1, 2)])
def test_batches(engine, batch, order):
    rng = np.random.default_rng(5)
    plan, _ = reduce(engine, random(rng, (*batch, 20, 40), "float32"), order=order)
    assert plan.launches[0].kernel.name.endswith("b0" if order == "C" else "b1"), "rows of matrices that follow each other are rows"
    flip = (*(True for _ in batch), False, True)
    reduce(engine, random(rng, (*batch, 20, 41), "float64"), "max", order, pad=3, r_step=2,
           flip=flip)
    x = np.broadcast_to(random(rng, (20, 40), "float32"), (*batch, 20, 40))
    px = place(np.ascontiguousarray(x[(0,) * len(batch)]), order)
    broadcast = Strided(px.base, px.offset, x.shape, (*(0 for _ in batch), *px.strides))
    run(engine, broadcast, vector(x.shape[:-1], "float32"))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("i, j, order", [(1, 40_001, "C"), (1, 33_000, "F"), (3, 40_000, "C"),
                                         (3, 9_000, "F"), (130, 300, "F")])
def test_few_rows_are_cut_into_slices(engine, i, j, order, op):
    rng = np.random.default_rng(6)
    plan, _ = reduce(engine, random(rng, (i, j), "float32"), op, order)
    assert (len(plan.launches), plan.config.slices > 1, plan.workspace_bytes > 0) == (2, True, True)


@pytest.mark.parametrize("op", ["sum", "min"])
def test_slices_in_a_batch(engine, op):
    rng = np.random.default_rng(7)
    for batch, flip in (((2,), (False,)), ((2, 3), (False, True))):
        plan, _ = reduce(engine, random(rng, (*batch, 5, 1100), "float16"), op, "F", pad=1,
                         r_step=2, flip=(*flip, False, False))
        assert len(plan.launches) == 2 and plan.launches[0].kernel.name.endswith(
            f"b{len(batch) + 1}_split"
        )


def test_results_do_not_depend_on_the_order_of_the_threads(engine):
    x = random(np.random.default_rng(8), (5, 9000), "float32")
    for order in "CF":
        results = [reduce(engine, x, order=order, seed=seed)[1].tobytes() for seed in (None, 1, 2)]
        assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(6, 50), (2, 40_000)])
def test_a_nan_is_handed_on(engine, shape, dtype):
    x = random(np.random.default_rng(9), shape, dtype)
    x[1, shape[1] * 2 // 3] = np.nan
    x[0, :] = -np.inf
    for op in ("max", "min"):
        with np.errstate(invalid="ignore"):
            for order in "CF":
                reduce(engine, x, op, order)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float32"])
def test_extremes_where_zero_is_outside_of_the_values(engine, dtype):
    """Elements beyond the end are read as zero; they must not count."""
    x = np.full((3, 5), 1, dtype)
    assert (reduce(engine, x, "min")[1] == 1).all()
    if dtype[0] != "u":
        assert (reduce(engine, -x, "max")[1] == -1).all()
    if dtype != "float32":
        least = np.full((3, 5), np.iinfo(dtype).min, dtype)
        reduce(engine, least, "max")
        reduce(engine, np.full((3, 5), np.iinfo(dtype).max, dtype), "min")


def test_offsets_of_64_bits(engine):
    px, pr = place(random(np.random.default_rng(10), (40, 66), "float32")), vector((40,), "float32")
    plan = plan_reduction(problem_of(px, pr), engine.device)
    (launch,) = plan.launches
    config = ReduceModesConfig("sum", "float32", "float32", "float32", OperandAccess(1, 2),
                               plan.config.threads, 1, wide=True)
    assert plan.config.width == 2 and "long long" in reduce_modes(config).body
    engine.run(replace(plan, launches=(replace(launch, kernel=reduce_modes(config)),)), src=px,
               dst=pr)
    check(pr.view[:, 0], px.view, "sum")


def test_as_a_part_of_another_plan(engine):
    """Other roles, offsets, and a workspace of which something is taken."""
    px, pr = place(random(np.random.default_rng(11), (3, 40_000), "float32"),
                   offset=4), vector((3,), "float32")
    problem = problem_of(px, pr)
    workspace = Workspace()
    workspace.take(1000)
    whole = plan_reduction(problem, engine.device)
    plan = whole.within(workspace)
    assert [a.offset for launch in plan.launches for a in launch.arguments
            if a.role == "workspace"] == [1024, 1024]
    assert plan.workspace_bytes == workspace.nbytes == 1024 + whole.config.slices * 3 * 4
    engine.run(plan, src=px, dst=pr)
    check(pr.view[:, 0], px.view, "sum")
    shifted = whole.within(Workspace(), src=at("a", 16), dst=at("epi_sums", 4))
    roles = {a.role: a.offset for launch in shifted.launches for a in launch.arguments if a.role}
    assert roles == {"a": 16, "workspace": 0, "epi_sums": 4}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("strides", [(8192, 1), (1, 8192)])
def test_large_reductions_read_vectors_in_whole_sectors(dtype, strides):
    plan = plan_reduction(ReductionProblem(8192, 8192, Operand(dtype, strides),
                                           Operand(dtype, (1, 0))), H200)
    nbytes = 8 if dtype == "int8" else 16
    assert plan.facts["global load X"] == f"{nbytes} bytes a lane: {nbytes} sectors of at least {nbytes}", plan.facts


def test_narrow_lanes_do_not_meet_in_banks():
    for strides in ((8192, 1), (1, 8192)):
        facts = plan_reduction(ReductionProblem(8192, 8192, Operand("float32", strides),
                                                Operand("float32", (1, 0))), H200).facts
        assert all("no bank conflict" in text for name, text in facts.items()
                   if name.startswith("shared")), facts


@pytest.mark.parametrize("change, why", [
    ({"op": "mean"}, "op is one of 'sum', 'max', 'min'"),
    ({"threads": (3, 32)}, "powers of two"), ({"lanes": 0}, "lanes lie along")])
def test_configurations_that_are_none(change, why):
    config = {"op": "sum", "element": "float32", "accumulator": "float32", "output": "float32",
              "x": OperandAccess(1, 4), "threads": (8, 32), "lanes": 1}
    with pytest.raises(CodegenError, match=why):
        ReduceModesConfig(**(config | change))
