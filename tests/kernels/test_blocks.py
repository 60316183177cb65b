"""Products in blocks of C, where a plan for all of it would need more workspace than there may be,
or than its operands have."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.planning import H200, Operand, plan_gemm
from cuteblas.planning.gemm import split
from cuteblas.planning.gemm.blocks import plan_in_blocks
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.split import plan_guarded
from cuteblas.planning.problem import Fusion, GemmProblem

from .engines import gemm_problem, place, plan_split
from .test_gemm_split import hopper, product


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("cuteblas.planning.gemm.blocks._MULTIPLE", 16)


def within(limit, device):
    return replace(device, workspace_limit=limit)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("m, n, k, batch, orders, pad, limit",
                         [(70, 50, 64, (), "CCC", 0, 20000), (40, 90, 70, (), "FCF", 3, 24000),
                          (20, 24, 65, (5,), "CFC", 1, 20000),
                          (33, 20, 64, (3, 2), "FFF", 0, 30000),])
def test_blocks_have_the_bits_of_the_whole(engine, m, n, k, batch, orders, pad, limit):
    hopper(engine)
    rng = np.random.default_rng(m)
    a, b = (place(rng.standard_normal((*batch, *s)).astype("f4"), order, pad=pad)
            for s, order in zip(((m, k), (k, n)), orders, strict=False))
    whole, parts = (place(np.full((*batch, m, n), np.nan, "f4"), orders[2], pad=pad,
                          poison=np.float32(77)) for _ in range(2))
    engine.run(plan_guarded(gemm_problem(a, b, whole), engine.device), a=a, b=b, c=whole)
    plan = plan_in_blocks(gemm_problem(a, b, parts), within(limit, engine.device), plan_guarded)
    engine.run(plan, a=a, b=b, c=parts)
    np.testing.assert_array_equal(parts.base, whole.base)
    assert plan.workspace_bytes <= limit and "blocks of" in plan.reason and f"over the limit of {limit}" in plan.reason
    assert all(launch.kernel.waits for launch in plan.launches)   # a block waits for the one before


@pytest.mark.usefixtures("small_blocks")
def test_matrices_of_epilogues_move_with_the_blocks(engine):
    hopper(engine)
    rng = np.random.default_rng(1)
    m, n, k = 50, 40, 64
    a, b = place(rng.standard_normal((m, k)).astype("f4")), place(rng.standard_normal((k, n)).astype("f4"))
    c, added = place(np.full((m, n), np.nan, "f4")), place(rng.standard_normal((m, n)).astype("f4"),
                                                           "F")
    row = place(rng.standard_normal((1, n)).astype("f4"))
    graph = EpilogueGraph("add", Node("add", "float32",
                                      (Node("add", "float32",
                                            (Node("acc", "float32"),
                                             Node("operand", "float32", name="x"))),
                                       Node("operand", "float32", name="y"))))
    fusion = Fusion(graph, (("x", added.operand()), ("y", replace(row.operand(), strides=(0, 1)))))
    problem = replace(gemm_problem(a, b, c), fusion=fusion)
    plan = plan_in_blocks(problem, within(16000, engine.device), plan_guarded)
    roles = dict(zip(fusion.roles, (added, row), strict=True))
    engine.run(plan, operands={"a": a, "b": b, "c": c, **roles})
    np.testing.assert_allclose(c.view, a.view.astype("f8") @ b.view + added.view + row.view, rtol=0,
                               atol=1e-5)
    assert len(plan.launches) > 3


def values_of(rng, shape, element):
    found = rng.standard_normal((2, *shape)) if element == "complex64" else rng.standard_normal((1, *shape))
    return (found[0] + 1j * found[1] if element == "complex64" else found[0]).astype(element)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", split.FORMATS)
@pytest.mark.parametrize("element", ["float32", "complex64"])
@pytest.mark.parametrize("m, n, k, batch, orders, pad, share",
                         [(70, 50, 64, (), "CCC", 0, 0.8), (40, 90, 70, (), "FCF", 3, 0.8),
                          (20, 24, 65, (5,), "CFC", 1, 0.6), (33, 50, 64, (3, 2), "FFF", 0, 0.7),
                          (90, 17, 70, (), "CFC", 0, 0.5),])
def test_blocks_that_share_rows_have_the_bits_of_the_whole(engine, monkeypatch, form, element, m, n,
                                                           k, batch, orders, pad, share):
    """Rows of A are split once for all blocks of C beside each other."""
    hopper(engine)
    rng = np.random.default_rng(m)
    a, b = values_of(rng, (*batch, m, k), element), values_of(rng, (*batch, k, n), element)
    order = dict(zip(("a_order", "b_order", "c_order"), orders, strict=True)) | {"pad": pad}
    whole, plan = product(engine, a, b, lambda p, d: plan_split(p, d, form), **order)
    room = int(share * plan.workspace_bytes)
    monkeypatch.setattr(split, "_room", lambda _problem: room)
    parts, plan = product(engine, a, b, lambda p, d: plan_split(p, d, form), **order)
    np.testing.assert_array_equal(parts, whole)
    assert plan.workspace_bytes <= room and f"{len(plan.launches) // 2} blocks of C, so that" in plan.reason


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("more", [False, True])
def test_what_was_split_for_the_first_block_lies_where_its_launch_put_it(engine, monkeypatch, more):
    """Beside fewer columns the rows of A would be split by other blocks, which leave more or fewer
    records."""
    hopper(engine)
    readings = split.readings_of

    def other_readings(p, device):
        found = readings(p, device)
        a, b = found.operands
        a = replace(a, threads=(1, a.threads[0] * a.threads[1]))
        return found._replace(operands=(a, b)) if (p.n == 2) == more else found

    rng = np.random.default_rng(4)
    a, b = values_of(rng, (40, 64), "float32"), values_of(rng, (64, 98), "float32")
    whole, _plan = product(engine, a, b, plan_guarded)
    monkeypatch.setattr(split, "readings_of", other_readings)
    monkeypatch.setattr(split, "_room", lambda _problem: 4 * 64 * (40 + 32) + 3000)
    parts, plan = product(engine, a, b, plan_guarded)
    assert "4 blocks of C, so that" in plan.reason
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("element", ["float32", "complex64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("beta", ["zero", "value"])
def test_each_block_has_the_algorithm_that_its_elements_need(engine, monkeypatch, element, turned,
                                                             beta):
    """A block that fp16x3 computes is left alone, and what the others read of C is what was
    there."""
    hopper(engine)
    # as if the product were large enough for three algorithms
    monkeypatch.setattr(split, "_THIRD", -1e9)
    rng = np.random.default_rng(3)
    m, k, wide = 80 if element == "complex64" else 40, 70, 16    # fewer blocks of rows would not do
    a, b, before = (values_of(rng, s, element) for s in ((m, k), (k, 4 * wide), (m, 4 * wide)))
    b[:, wide:2 * wide] *= np.exp2(np.linspace(-30, 30, k)).astype("f4")[:, None]
    b[3, 2 * wide + 5] = np.inf
    planners = [lambda p, d: plan_split(p, d, "fp16x3"), lambda p, d: plan_split(p, d, "bf16x6"),
                plan_simt, None]
    planners[3] = planners[0]
    kinds = {"alpha": "value", "beta": beta, "scalars": (1.5, 2.5)}

    def run(columns, planner):
        own, old = b[:, columns], before[:, columns].copy()
        if not turned:
            return product(engine, a, own, planner, before=old, **kinds)
        c, plan = product(engine, own.T, a.T, planner, a_order="F", b_order="F", c_order="F",
                          before=old.T, **kinds)
        return c.T, plan

    want = np.hstack([run(slice(i * wide, (i + 1) * wide), planner)[0]
                      for i, planner in enumerate(planners)])
    needed = run(slice(0, wide), planners[0])[1].workspace_bytes
    monkeypatch.setattr(split, "_room", lambda _problem: needed + 600)
    c, plan = run(slice(None), plan_guarded)
    # bf16x6 is in smaller blocks
    assert "4 blocks of C, so that" in plan.reason and len(plan.launches) > 4 * 5
    np.testing.assert_array_equal(c, want)


@pytest.mark.usefixtures("small_blocks")
def test_matrices_of_epilogues_are_those_of_blocks_that_share_rows(engine, monkeypatch):
    hopper(engine)
    rng = np.random.default_rng(1)
    m, n, k = 50, 40, 64
    a, b = place(rng.standard_normal((m, k)).astype("f4")), place(rng.standard_normal((k, n)).astype("f4"))
    c, added = place(np.full((m, n), np.nan, "f4")), place(rng.standard_normal((m, n)).astype("f4"),
                                                           "F")
    graph = EpilogueGraph("add", Node("add", "float32",
                                      (Node("acc", "float32"),
                                       Node("operand", "float32", name="x"))))
    problem = replace(gemm_problem(a, b, c), fusion=Fusion(graph, (("x", added.operand()),)))
    monkeypatch.setattr(split, "_room", lambda _problem: 18000)
    plan = plan_guarded(problem, engine.device)
    engine.run(plan, operands={"a": a, "b": b, "c": c, "epi_x": added})
    np.testing.assert_allclose(c.view, a.view.astype("f8") @ b.view + added.view, rtol=0, atol=1e-5)
    assert "blocks of C, so that" in plan.reason


@pytest.mark.parametrize("precision", ["auto", *split.FORMATS])
@pytest.mark.parametrize("element", ["float32", "complex64"])
def test_the_workspace_is_little_more_than_the_operands(element, precision):
    """80 MiB more at most, of which the sums of divided tiles are a part; few launches more."""
    rng = np.random.default_rng(5)
    shapes = [(n, n, n) for n in (1024, 2048, 4096, 6144, 8192, 16384, 32768)]
    shapes += [(10240, 4096, 4096), (4096, 4096, 65536), (100000, 2000, 300), (300, 100000, 5000),
               (10**6, 8192, 257)]
    shapes += [tuple(int(2.0**e) for e in rng.uniform(9, 15, 3)) for _ in range(12)]
    for m, n, k in shapes:
        batch, steps = ((), ((), (), ())) if rng.integers(3) else ((4,), ((m * k,), (0 if rng.integers(2) else n * k,), (m * n,)))
        a, b, c = (Operand(element, x, step) for x, step in zip((((k, 1), (1, m))[rng.integers(2)],
                                                                 ((1, n), (k, 1))[rng.integers(2)],
                                                                 ((n, 1), (1, m))[rng.integers(2)]),
                                                                steps, strict=True))
        plan = plan_gemm(GemmProblem(m, n, k, a, b, c, batch, precision=precision), H200)
        many = 4 if batch else 1
        operands = (m * many + n * (many if not batch or b.batch_strides[0]
                                    else 1)) * k * dtype(element).bytes
        assert plan.family == "gemm_split" or precision == "auto"
        assert plan.workspace_bytes <= operands + (80 << 20), (m, n, k, batch, plan.reason)
        assert len(plan.launches) <= 24


def square(n, **changes):
    return GemmProblem(n, n, n, *(Operand("float32", s) for s in ((n, 1), (1, n), (n, 1))),
                       **changes)


def test_blocks_at_the_ends_obey_the_limit():
    """They are smaller, and their tiles are divided, for which sums are exchanged: which takes more
    than whole tiles."""
    limit, m, n, k = 24364439, 7410, 8089, 611
    a, b, c = Operand("float32", (1, 7418)), Operand("float32", (1, 8090)), Operand("float32", (8093, 1))
    plan = plan_gemm(GemmProblem(m, n, k, a, b, c, precision="bf16x6"), within(limit, H200))
    assert 0 < plan.workspace_bytes <= limit and "blocks of" in plan.reason


def test_the_limit_decides():
    needed = plan_gemm(square(4096), H200).workspace_bytes
    assert needed > 2 * 4 * 4096**2
    for limit, family, many in ((needed, "gemm_split", False), (needed - 1, "gemm_split", True),
                                (50 << 20, "gemm_split", True), (1 << 20, "gemm_skinny", False),
                                (0, "gemm_simt", False)):
        plan = plan_gemm(square(4096), within(limit, H200))
        assert plan.family == family and plan.workspace_bytes <= limit and ("bytes is over the limit" in plan.reason) == many
    assert "not gemm_split: its workspace is over the limit of 0 bytes even in small blocks" in plan.reason
    with pytest.raises(ValueError,
                       match="precision='fp16x3' needs more workspace than the limit of 0 bytes"):
        plan_gemm(square(4096, precision="fp16x3"), within(0, H200))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_slices_of_k_obey_the_limit(dtype):
    operand = Operand(dtype, (65536, 1))
    precision = "auto" if dtype == "float16" else "ieee"
    problem = GemmProblem(64, 64, 65536, operand, operand, Operand(dtype, (64, 1)),
                          precision=precision)
    assert plan_gemm(problem, H200).workspace_bytes > 100000
    assert plan_gemm(problem, within(100000, H200)).workspace_bytes <= 100000
    assert plan_gemm(problem, within(0, H200)).workspace_bytes == 0
