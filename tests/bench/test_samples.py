"""Random problems, and the names that they have in files."""

import numpy as np
import pytest

from conformance.bench import calibrate
from conformance.bench.samples import (
    large_products,
    random_copies,
    random_permutations,
    random_products,
    random_samples,
)
from cuteblas.cli.problems import sample_named, usual_samples
from cuteblas.planning.floors import compulsory_bytes
from cuteblas.planning.gemm.dispatch import PRECISIONS
from cuteblas.planning.problem import CopyProblem


def test_names_say_what_a_problem_is():
    drawn = [*random_products(200, 5), *large_products(60, 5), *random_copies(100, 5)]
    assert [sample_named(sample.name) for sample in drawn] == drawn
    assert [calibrate.is_product(x.name) for x in drawn] == [True] * 260 + [False] * 100
    for name in ("int8", "int8 3x4y", "int8 3x4:1,2", "float32 3x4x5 NN"):
        with pytest.raises(ValueError):
            sample_named(name)


def test_calibrate_measures_the_samples_of_seed_0():
    assert usual_samples() == random_samples()


def test_random_permutations_are_those_of_their_seed():
    drawn = random_permutations(200, 3, {"int8": 1, "float64": 8})
    assert drawn == random_permutations(200, 3, {"int8": 1, "float64": 8}) != random_permutations(200, 4, {"int8": 1, "float64": 8})
    for dtype, moved in drawn:
        nbytes = np.prod(moved.extents, dtype=float) * {"int8": 1, "float64": 8}[dtype]
        assert 2**19 <= nbytes <= 2**29 and 2 <= len(moved.extents) <= 26
        assert sorted(moved.axes) == list(range(len(moved.extents)))
    assert any(moved.beyond for _, moved in drawn) and any(moved.backwards is not None
                                                           for _, moved in drawn)


def test_samples_are_of_all_kinds():
    samples = list(random_products(300, 3))
    assert [x.name for x in samples] == [x.name for x in random_products(300, 3)] and len(
        {x.name for x in samples}
    ) == 300
    assert {x.dtype for x in samples} >= {"float16", "bfloat16", "float32", "float64", "complex64",
                                          "complex128", "int8", "bool"}
    assert any(x.problem.batch for x in samples) and any(min(x.problem.m, x.problem.n) <= 16
                                                         for x in samples)
    assert {x.name.split()[-1] for x in samples} >= {"NNN", "TNN", "NTN", "TTN", "NNT"}
    assert all(x.problem.precision in PRECISIONS and compulsory_bytes(x.problem) < 1 << 29
               for x in samples)


def test_samples_are_of_all_kinds_whenever_time_runs_out():
    samples = random_samples(30, 10, 20, seed=3)
    assert len(samples) == 60 and samples != random_samples(30, 10, 20, seed=4)
    for part in (samples[:12], samples[-12:]):
        large = [x.name for x in large_products(10, 3)]
        assert sum(isinstance(x.problem, CopyProblem) for x in part) == 4 and sum(x.name in large for x in part) == 2


def test_large_samples_fill_a_card():
    samples = list(large_products(200, 3))
    assert [x.name for x in samples] == [x.name for x in large_products(200, 3)]
    assert {x.dtype for x in samples} == {"float16", "bfloat16", "float32", "float64", "complex64",
                                          "complex128"}
    assert {x.problem.precision for x in samples} == {"auto", "ieee", "tf32"}
    assert all(min(x.problem.m, x.problem.n, x.problem.k) >= 512
               and compulsory_bytes(x.problem) < 3 << 28 for x in samples)
    assert all(x.name.endswith(f" by {x.problem.precision}") == (x.problem.precision != "auto")
               for x in samples)
