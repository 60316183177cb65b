"""Expected times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from runpy import run_path
from statistics import median

import pytest

from cuteblas.planning import (
    H200,
    CopyProblem,
    GemmProblem,
    Operand,
    ReductionProblem,
    Storage,
    plan_copy,
    plan_gemm,
    plan_reduction,
)
from cuteblas.planning.floors import (
    casting_seconds,
    duration,
    estimate,
    floor_of,
    quantity,
    touched_bytes,
)
from cuteblas.planning.gemm.contraction import plan_contraction
from cuteblas.planning.gemm.grouped import plan_grouped
from cuteblas.planning.problem import DEVICES, GroupedProblem, Tensor, device_named
from cuteblas.planning.variants import variants
from cuteblas.planning.words import kernel_words, time_words
from tests.planning.contractions import contraction_problem

SCRIPT = Path(__file__).parents[2] / "docs" / "performance" / "estimates.py"


def square(n, dtype, **options):
    return GemmProblem(n, n, n, Operand(dtype, (n, 1)), Operand(dtype, (1, n)),
                       Operand(dtype, (n, 1)), **options)


def test_measurements_are_met():
    """As docs/performance/README.md says; that page has all of them."""
    by_family = run_path(str(SCRIPT))["ratios"](every=19)
    assert {"gemm_mma", "gemm_skinny", "gemm_split", "gemm_wgmma", "named kernels",
            "transpose"} <= by_family.keys()
    everything = sorted(ratio for found in by_family.values() for ratio, _name in found)
    assert len(everything) > 30 and 0.9 < median(everything) < 1.1
    assert everything[2] > 0.7 and everything[-3] < 1.6
    for family, found in by_family.items():
        assert 0.7 < median(ratio for ratio, _name in found) < 1.5, family


PLANS = {
    "simt": lambda d: plan_gemm(square(512, "float32", precision="ieee"), d),
    "integers": lambda d: plan_gemm(square(512, "int64"), d),
    "half": lambda d: plan_gemm(square(1024, "float16"), d),
    "odd half": lambda d: plan_gemm(square(513, "float16"), d),
    "auto": lambda d: plan_gemm(square(2048, "float32"), d),
    "skinny": lambda d: plan_gemm(
        GemmProblem(
            100000,
            16,
            1024,
            Operand("float32", (1024, 1)),
            Operand("float32", (1024, 1)),
            Operand("float32", (16, 1))
        ),
        d
    ),
    "double": lambda d: plan_gemm(square(1024, "float64"), d),
    "in slices": lambda d: plan_gemm(
        GemmProblem(
            64,
            64,
            65536,
            Operand("float64", (65536, 1)),
            Operand("float64", (65536, 1)),
            Operand("float64", (64, 1))
        ),
        d
    ),
    "in blocks": lambda d: plan_gemm(square(2048, "float32"), replace(d, workspace_limit=1 << 24)),
    "group": lambda d: plan_grouped(
        GroupedProblem((square(64, "float32"), square(96, "float32"))), d
    ),
    "contraction": lambda d: plan_contraction(
        contraction_problem(
            "abk,kbc->ac",
            ((8, 4, 8), (8, 4, 16)),
            ((32, 8, 1), (64, 16, 1), (16, 1)),
            (Storage("float32"),) * 3
        ),
        d
    ),
    "transpose": lambda d: plan_copy(CopyProblem((64, 64), (1, 64), (64, 1), 4), d),
    "in place": lambda d: plan_copy(CopyProblem((64, 64), (1, 64), (64, 1), 4, in_place=True), d),
    "straight": lambda d: plan_copy(CopyProblem((64, 64), (128, 2), (64, 1), 4), d),
    "boxes": lambda d: plan_copy(CopyProblem((100000, 3, 3), (9, 1, 3), (9, 3, 1), 4), d),
    "rows that begin anywhere": lambda d: plan_copy(
        CopyProblem((1001, 1037), (1, 1001), (1037, 1), 2), d
    ),
    "reduction": lambda d: plan_reduction(
        ReductionProblem(64, 1024, Operand("float32", (1024, 1)), Operand("float32", (1, 0))), d
    ),
}


@pytest.mark.parametrize("card", ["h200", "a100", "rtx4090"])
@pytest.mark.parametrize("name", PLANS)
def test_every_family_has_an_expected_time(name, card):
    plan = PLANS[name](device_named(card))
    found = estimate(plan)
    assert 0 < found.seconds < 1 and found.bound in ("arithmetic", "memory traffic", "latency")
    assert found.seconds >= found.floor.seconds and " expected on " in time_words(plan, found)
    assert kernel_words(plan).startswith(plan.family)
    assert {plan: found}[plan] is found         # as executors are found


@pytest.mark.parametrize("name", variants())
def test_every_named_kernel_has_an_expected_time(name):
    from cuteblas.cli.kernels import example

    found = estimate(plan := example(variants()[name]))
    assert found.seconds > 0 and kernel_words(plan).startswith(name)


def test_nothing_takes_no_time():
    plan = plan_gemm(square(0, "float32"), H200)
    assert estimate(plan).seconds == 0 and estimate(plan).bound == "nothing" and time_words(plan, estimate(plan)) == "none"


def test_a_plan_that_a_caller_overruled_has_none():
    plan = replace(plan_gemm(square(64, "float32"), H200), seconds=None)
    found = estimate(plan)
    assert found.seconds is None and time_words(plan, found).startswith(
        "no estimate; no kernel takes less"
    )


def test_larger_problems_take_longer():
    for dtype in ("float16", "float32", "float64", "complex64", "int8"):
        seconds = [estimate(plan_gemm(square(n, dtype), H200)).seconds for n in (256, 1024, 4096)]
        assert seconds == sorted(seconds) and seconds[2] > 4 * seconds[1]
    assert casting_seconds(1 << 30, H200) > 2e-4


@pytest.mark.parametrize("shape, strides, item, expected",
                         [((64, 64), (64, 1), 4, 64 * 64 * 4), ((64, 64), (1, 64), 4, 64 * 64 * 4),
                          ((64, 64), (128, 1), 4, 64 * 64 * 4), ((64, 32), (64, 2), 4, 64 * 256),
                          ((100, 3), (1000, 1), 1, 100 * 32), ((16, 16), (1600, 100), 4, 256 * 32),
                          ((8, 0), (1, 1), 4, 0), ((8, 5), (1, 0), 2, 16), ((8,), (-1,), 4, 32),
                          ((), (), 8, 8)])
def test_memory_moves_sectors(shape, strides, item, expected):
    assert touched_bytes(Tensor("", item, tuple(zip(shape, strides, strict=True)))) == expected


def test_cards():
    """Their data sheets: TFLOP/s in float32, and of tensor cores in 16 bits."""
    def tflops(name, family, dtype):
        plan = square(4096, dtype)
        return plan.flops / floor_of(plan, family, DEVICES[name]).arithmetic_s / 1e12

    for name, single, half in (("a100", 19.5, 312), ("l40s", 91.6, 362), ("rtx4090", 82.6, 165),
                               ("h100", 67, 1070)):
        assert tflops(name, "gemm_simt", "float32") == pytest.approx(single, rel=0.01)
        assert tflops(name, "gemm_mma", "float16") == pytest.approx(half, rel=0.02)
    assert device_named(" NVIDIA RTX 4090".strip()) is DEVICES["rtx4090"]


def test_quantities_read_well():
    assert [quantity(x, "s") for x in (2.75e-3, 999.6e-6, 0, 6.91e-11, 1.0, 123456)] == [
        "2.75 ms", "1 ms", "0 s", "69.1 ps", "1 s", "123 ks"]
    assert [duration(x) for x in (119, 130, 37.2e3, 217e3, 1e9)] == ["119 s", "2.17 min", "10.3 h",
                                                                     "2.51 days", "11,600 days"]
