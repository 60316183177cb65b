"""``gemm_outer``: edges and alignments of C, in the emulator and on a GPU; what it shares with
other families is in test_products.py."""

import itertools
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cuteblas._dtypes import dtype as element
from cuteblas.kernels.gemm.outer import gemm_outer
from cuteblas.planning import H200
from cuteblas.planning.gemm import outer
from cuteblas.planning.gemm.dispatch import plan_gemm
from cuteblas.planning.gemm.outer import OUTER, plan_outer, why_not_outer

from .engines import check_product, gemm_problem, multiply, place, random
from .moves import counted

FLOATS = ["float32", "float64", "complex64", "complex128"]
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", *FLOATS]


def least(key):
    """Plans of the choice that has the least of something."""
    return lambda problem, device: plan_outer(problem, device,
                                              choice=min(OUTER.choices(problem, device), key=key))


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_vectors_of_c(dtype):
    for k, n in ((1, 64), (8, 71)):
        a, b, c = (place(np.zeros(shape, dtype)) for shape in ((37, k), (k, n), (37, n)))
        name = plan_outer(gemm_problem(a, b, c), H200).launches[0].kernel.name
        assert ("_whole" in name) == (n == 64 or dtype == "complex128")


def test_bfloat16_is_rounded_once(engine):
    rng, kind = np.random.default_rng(1), np.dtype(ml_dtypes.bfloat16)
    a, b = rng.integers(-9, 10, (20, 2)).astype(kind), rng.integers(-9, 10, (2, 33)).astype(kind)
    pa, pb, pc = place(a), place(b), place(np.full((20, 33), np.nan, kind))
    engine.run(plan_outer(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a.astype("f4") @ b.astype("f4"))


@pytest.mark.parametrize("m, n", [(1, 8), (1, 1031), (2, 9), (8, 8), (5, 2048), (3, 1027),
                                  (100, 15), (257, 33), (9, 1100)])
@pytest.mark.parametrize("dtype", ["float32", "complex128", "int8"])
def test_sizes_on_both_sides_of_edges(engine, dtype, m, n):
    rng = np.random.default_rng(3)
    n = max(n, 32 // np.dtype(dtype).itemsize)
    for key in (lambda x: x.stretches, lambda x: -x.stretches):
        multiply(engine, least(key), random(rng, (m, 1), dtype), random(rng, (1, n), dtype))


@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("n", [32, 37])
def test_c_that_begins_anywhere_and_has_gaps(engine, dtype, n, beta):
    rng = np.random.default_rng(5)
    a, b = random(rng, (50, 2), dtype), random(rng, (2, n), dtype)
    for offset, pad in itertools.product((0, 1, 7), (0, 1, 8, n)):
        multiply(engine, plan_outer, a, b, beta=beta, c_place={"offset": offset, "pad": pad})


def test_infinities_and_nan_are_where_they_belong(engine):
    """Also where a row of A that belongs to other elements of a vector is not finite."""
    for n in (32, 33):
        a, b = np.ones((20, 1), "f4"), np.ones((1, n), "f4")
        a[3], a[7], b[0, 5], b[0, n - 1] = np.inf, np.nan, 0, -np.inf
        pa, pb, pc = place(a), place(b), place(np.full((20, n), 5, "f4"))
        engine.run(plan_outer(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(pc.view, a * b)


def test_every_choice_gives_the_same_bits(engine):
    rng = np.random.default_rng(10)
    a, b = random(rng, (600, 5), "float32"), random(rng, (5, 35), "float32")
    results, pa, pb = set(), place(a), place(b)
    problem = gemm_problem(pa, pb, place(np.zeros((600, 35), "f4")))
    found = list(OUTER.choices(problem, engine.device))
    assert len(found) > 2
    for choice in found:
        pc = place(np.full((600, 35), np.nan, "f4"))
        engine.run(plan_outer(problem, engine.device, choice=choice), a=pa, b=pb, c=pc)
        results.add(pc.view.tobytes())
    assert len(results) == 1


def test_a_stretch_ends_with_c():
    """Few rows that begin anywhere are less than a stretch of whole sectors: no block is without
    work, and offsets fit 32 bits."""
    a, b, c = (place(np.zeros(shape, "i1")) for shape in ((3, 1), (1, 33), (3, 33)))
    problem, n = gemm_problem(a, b, c), 2**28 + 1
    plan = plan_outer(replace(problem, n=n, b=replace(problem.b, strides=(1, n)),
                              c=replace(problem.c, strides=(n, 1))), H200)
    assert plan.config.rows == 32 and plan.config.length < 3 * n + 64 and "_wide" not in plan.launches[0].kernel.name
    assert plan.config.blocks <= -(-plan.config.length // (plan.config.tile.width
                                                           * plan.config.tile.threads))


def test_offsets_of_64_bits(engine):
    rng = np.random.default_rng(15)
    a, b = random(rng, (36, 2), "float32"), random(rng, (2, 23), "float32")
    pa, pb, pc = place(a), place(b), place(np.full((36, 23), np.nan, "f4"), offset=1)
    problem = gemm_problem(pa, pb, pc)
    plan = plan_outer(problem, engine.device)
    huge = plan_outer(replace(problem, m=2**17, a=replace(problem.a, strides=(2**15, 1))),
                      engine.device)
    assert "_wide" in huge.launches[0].kernel.name and "_wide" not in plan.launches[0].kernel.name
    launch = plan.launches[0]
    wide = gemm_outer(replace(outer.config_of(problem, engine.device, plan.config), wide=True))
    assert [p.name for p in wide.params] == [p.name for p in launch.kernel.params]
    engine.run(replace(plan, launches=(replace(launch, kernel=wide),)), a=pa, b=pb, c=pc)
    check_product(pc.view, a, b, "float32")


@pytest.mark.parametrize("dtype", ["int8", "float16", *FLOATS])
@pytest.mark.parametrize("n, pad, batch", [(1024, 0, 1), (1057, 0, 1), (99, 0, 1), (1057, 0, 3),
                                           (1024, 17, 1)])
def test_sectors_are_written_whole(dtype, n, pad, batch):
    """But for those in which matrices, or rows between which there are gaps, begin and end."""
    m, vector = 61, 16 // np.dtype(dtype).itemsize
    a, b, c = (place(np.ones((batch, *shape), dtype), pad=by)
               for shape, by in (((m, 1), 0), ((1, n), 0), ((m, n), pad)))
    problem = gemm_problem(a, b, c)
    # in loops, the first stores of lanes are counted together
    one = min(OUTER.choices(problem, H200), key=lambda x: x.stretches)
    written = [x for x in counted(plan_outer(problem, H200, choice=one), a=a, b=b, c=c)
               if x.space == "global" and x.write]
    # each a vector of single elements, and half a sector beside it
    ends = 2 * batch * (m if pad else 1)
    whole, *elements = sorted(written, key=lambda x: -x.bytes)
    assert whole.bytes == 16 and whole.partial <= ends and whole.transactions <= whole.ideal + ends
    assert whole.transactions >= batch * m * n / (2 * vector) - 2 * ends and sum(x.requests for x in elements) <= ends * vector


def planned(dtype, m, n, k):
    x, y, z = (replace(place(np.zeros((1, 1), dtype)).operand(), strides=strides)
               for strides in ((k, 1), (1, n), (n, 1)))
    problem = replace(gemm_problem(*(place(np.zeros((1, 1), dtype)) for _ in range(3))), m=m, n=n,
                      k=k, a=x, b=y, c=z)
    return plan_gemm(problem, H200)


def test_planning_takes_it_where_it_is_fastest():
    for dtype, (m, n, k) in itertools.product(["float16", "float32", "float64", "complex64",
                                               "complex128", "int8", "int32", "bool"],
                                              [(8192, 8192, 1), (10001, 10003, 1),
                                               (10001, 10003, 2)]):
        plan = planned(dtype, m, n, k)
        assert plan.family == "gemm_outer" and "as C lies in memory" in plan.reason
        moved = m * n * element(dtype).bytes / H200.bandwidth
        assert plan.seconds > 0.85 * moved


@pytest.mark.parametrize("dtype, n, faster", [("float16", 8192, False), ("complex64", 8192, True),
                                              ("complex128", 8192, False), ("float64", 10003, True),
                                              ("complex64", 10003, True)])
def test_eight_of_k_are_slow_to_load_where_others_write_whole_vectors_too(dtype, n, faster):
    """As measured in turns on an H200, where single elements of A are loaded for each vector."""
    assert (planned(dtype, n, n, 8).family == "gemm_outer") is faster


MEASURED = {  # us on an H200: docs/performance/gemm-outer.md
    (8192, 8192, 1): {
        "float16": 31.6,
        "float32": 60.9,
        "float64": 121.3,
        "complex64": 123.9,
        "complex128": 249.4,
        "int8": 17.6,
        "int32": 60.9,
        "bool": 17.8
    },
    (10001, 10003, 1): {
        "float16": 50.1,
        "float32": 97.8,
        "float64": 192.0,
        "complex64": 192.1,
        "complex128": 373.2,
        "int8": 38.4
    },
    (8192, 8192, 4): {"float32": 65.2, "complex64": 141.7, "complex128": 307.8},
    (10001, 10003, 8): {"float64": 296.6, "complex64": 321.9},
    (8192, 8192, 8): {"complex64": 202},
}


@pytest.mark.parametrize("shape", MEASURED)
def test_estimates_are_within_a_quarter_of_what_was_measured(shape):
    for dtype, us in MEASURED[shape].items():
        plan = planned(dtype, *shape)
        expected = min(each.work.seconds(H200) for each in OUTER.choices(plan.problem, H200))
        assert 0.75 * us < expected * 1e6 < 1.25 * us, dtype


def test_what_it_does_not_take_is_refused_in_words():
    def refused(shapes, match, **places):
        a, b, c = (place(np.zeros(shape, "f4"), **places.get(name, {}))
                   for name, shape in zip("abc", shapes, strict=True))
        problem = gemm_problem(a, b, c)
        with pytest.raises(ValueError, match=match):
            plan_outer(problem, H200)
        return problem

    refused([(16, 9), (9, 16), (16, 16)], "K is 9, more than 8")
    refused([(16, 0), (0, 16), (16, 16)], "there is nothing to multiply")
    refused([(16, 1), (1, 7), (16, 7)], "rows of C with 7 elements are shorter than a sector")
    refused([(16, 1), (1, 16), (16, 16)], "neither along its rows nor", c={"step": 2})
    refused([(16, 1), (1, 16), (16, 16)], "lie -16 apart", c={"flip": (True, False)})
    refused([(16, 1), (1, 16), (16, 16)], "lie 33 apart", c={"pad": 17})
    square = gemm_problem(*(place(np.zeros(s, "f4")) for s in ((16, 1), (1, 16), (16, 16))))
    assert why_not_outer(square, H200) is None
    assert "precision='tf32'" in why_not_outer(replace(square, precision="tf32"), H200)
    assert "not a triangle" in why_not_outer(replace(square, triangle="lower"), H200)
    assert "there is nothing to multiply" in why_not_outer(replace(square, alpha="zero"), H200)


def test_the_source_is_for_people():
    a, b, c = (place(np.zeros(shape, "f4")) for shape in ((64, 2), (2, 64), (64, 64)))
    kernel = plan_outer(gemm_problem(a, b, c), H200).launches[0].kernel
    for name in ("tArA", "tBrB", "tCrB", "tCrC", "tCgC"):
        assert name in kernel.body
    assert "asm" not in kernel.body and kernel.facts["global store C"] == "16 bytes a lane: 16 sectors of at least 16"
