"""A plan is quick: function calls until all of its kernels are generated, which do not depend on
the machine."""

import cProfile
import pstats

import pytest

from cuteblas.planning.copy.dispatch import plan_copy
from cuteblas.planning.gemm.dispatch import plan_gemm
from cuteblas.planning.problem import H200, CopyProblem, GemmProblem, Operand

N = 4096


def product(element, m, n, k):
    a, b, c = (Operand(element, strides) for strides in ((k, 1), (1, n), (n, 1)))
    return lambda: plan_gemm(GemmProblem(m, n, k, a=a, b=b, c=c), H200)


@pytest.mark.parametrize("plan, most", [
    (product("float32", N, N, N), 540_000),
    (product("float64", N, N, N), 360_000),
    (product("float16", N, N, N), 60_000),
    (product("float32", 128, 64, 96), 90_000),
    (lambda: plan_copy(CopyProblem((N, N), (1, N), (N, 1), 4), H200), 32_000),
], ids=["split", "modular", "wgmma", "simt", "copy"])
def test_a_plan_takes_few_calls(plan, most):
    profile = cProfile.Profile()
    profile.runcall(plan)
    assert pstats.Stats(profile).total_calls <= most
