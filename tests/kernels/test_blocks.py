"""Products in blocks of C, where a plan for all of it would need more workspace than there may be."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.planning import H200, Operand, plan_gemm
from cuteblas.planning.blocks import plan_in_blocks
from cuteblas.planning.problem import Fusion, GemmProblem
from cuteblas.planning.split import plan_guarded

from .engines import gemm_problem, place
from .test_gemm_split import hopper


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("cuteblas.planning.blocks._MULTIPLE", 16)


def within(limit, device):
    return replace(device, workspace_limit=limit)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("m, n, k, batch, orders, pad, limit", [
    (70, 50, 64, (), "CCC", 0, 20000), (40, 90, 70, (), "FCF", 3, 24000), (20, 24, 65, (5,), "CFC", 1, 20000),
    (33, 20, 64, (3, 2), "FFF", 0, 30000),
])
def test_blocks_have_the_bits_of_the_whole(engine, m, n, k, batch, orders, pad, limit):
    hopper(engine)
    rng = np.random.default_rng(m)
    a, b = (place(rng.standard_normal((*batch, *s)).astype("f4"), order, pad=pad)
            for s, order in zip(((m, k), (k, n)), orders, strict=False))
    whole, parts = (place(np.full((*batch, m, n), np.nan, "f4"), orders[2], pad=pad, poison=np.float32(77)) for _ in range(2))
    engine.run(plan_guarded(gemm_problem(a, b, whole), engine.device), a=a, b=b, c=whole)
    plan = plan_in_blocks(gemm_problem(a, b, parts), within(limit, engine.device), plan_guarded)
    engine.run(plan, a=a, b=b, c=parts)
    np.testing.assert_array_equal(parts.base, whole.base)
    assert plan.workspace_bytes <= limit and "blocks of" in plan.reason and f"over the limit of {limit}" in plan.reason
    assert all(launch.kernel.waits for launch in plan.launches)             # a block waits for the one before


@pytest.mark.usefixtures("small_blocks")
def test_matrices_of_epilogues_move_with_the_blocks(engine):
    hopper(engine)
    rng = np.random.default_rng(1)
    m, n, k = 50, 40, 64
    a, b = place(rng.standard_normal((m, k)).astype("f4")), place(rng.standard_normal((k, n)).astype("f4"))
    c, added = place(np.full((m, n), np.nan, "f4")), place(rng.standard_normal((m, n)).astype("f4"), "F")
    row = place(rng.standard_normal((1, n)).astype("f4"))
    graph = EpilogueGraph("add", Node("add", "float32", (Node("add", "float32", (Node("acc", "float32"),
                          Node("operand", "float32", name="x"))), Node("operand", "float32", name="y"))))
    fusion = Fusion(graph, (("x", added.operand()), ("y", replace(row.operand(), strides=(0, 1)))))
    problem = replace(gemm_problem(a, b, c), fusion=fusion)
    plan = plan_in_blocks(problem, within(16000, engine.device), plan_guarded)
    roles = dict(zip(fusion.roles, (added, row), strict=True))
    engine.run(plan, operands={"a": a, "b": b, "c": c, **roles})
    np.testing.assert_allclose(c.view, a.view.astype("f8") @ b.view + added.view + row.view, rtol=0, atol=1e-5)
    assert len(plan.launches) > 3


def square(n, **changes):
    return GemmProblem(n, n, n, *(Operand("float32", s) for s in ((n, 1), (1, n), (n, 1))), **changes)


def test_blocks_at_the_ends_obey_the_limit():
    """They are smaller, and their tiles are divided, for which sums are exchanged: which takes more than whole tiles."""
    limit, m, n, k = 24364439, 7410, 8089, 611
    a, b, c = Operand("float32", (1, 7418)), Operand("float32", (1, 8090)), Operand("float32", (8093, 1))
    plan = plan_gemm(GemmProblem(m, n, k, a, b, c, precision="bf16x6"), within(limit, H200))
    assert 0 < plan.workspace_bytes <= limit and "blocks of" in plan.reason


def test_the_limit_decides():
    needed = plan_gemm(square(4096), H200).workspace_bytes
    assert needed > 2 * 4 * 4096**2
    for limit, family, many in ((needed, "gemm_split", False), (needed - 1, "gemm_split", True), (50 << 20, "gemm_split", True),
                                (1 << 20, "gemm_simt", False), (0, "gemm_simt", False)):
        plan = plan_gemm(square(4096), within(limit, H200))
        assert plan.family == family and plan.workspace_bytes <= limit and ("bytes is over the limit" in plan.reason) == many
    assert "not gemm_split: its workspace is over the limit of 0 bytes even in small blocks" in plan.reason
    with pytest.raises(ValueError, match="precision='fp16x3' needs a workspace, and the limit is 0 bytes"):
        plan_gemm(square(4096, precision="fp16x3"), within(0, H200))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_slices_of_k_obey_the_limit(dtype):
    operand = Operand(dtype, (65536, 1))
    precision = "auto" if dtype == "float16" else "ieee"
    problem = GemmProblem(64, 64, 65536, operand, operand, Operand(dtype, (64, 1)), precision=precision)
    assert plan_gemm(problem, H200).workspace_bytes > 100000
    assert plan_gemm(problem, within(100000, H200)).workspace_bytes <= 100000
    assert plan_gemm(problem, within(0, H200)).workspace_bytes == 0
