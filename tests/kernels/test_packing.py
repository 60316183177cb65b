"""Products on ``gemm_wgmma`` with operands copied first: every reason for which no tensor map reads
them."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.planning import H200, Operand, plan_gemm
from cuteblas.planning.gemm import blocks
from cuteblas.planning.gemm.packing import packed_problem, plan_packed
from cuteblas.planning.gemm.wgmma import why_not_wgmma
from cuteblas.planning.problem import GemmProblem

from .engines import check_tensor_cores, gemm_problem, place

ml_dtypes = pytest.importorskip("ml_dtypes")


def run(engine, a, b, output="float16", *, c=None, alpha=1, beta=0):
    """A product of placed operands by copies, compared with float64."""
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    before = np.random.default_rng(1).standard_normal(shape).astype(output) if beta else np.full(shape, np.nan, output)
    c = c or place(before, pad=1, poison=np.nan)
    problem = gemm_problem(a, b, c, alpha="one" if alpha == 1 else "value",
                           beta="value" if beta else "zero")
    assert why_not_wgmma(packed_problem(problem), H200) is None
    plan = plan_packed(problem, engine.device)
    wide = a.view.copy(), b.view.copy()
    engine.run(plan, alpha, beta, a=a, b=b, c=c)
    check_tensor_cores(c.view, *wide, alpha=alpha, beta=beta, before=before)
    return plan, [name for name in "AB" if f"{name} is copied first" in plan.reason]


def half(shape, seed=0, dtype="float16"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("m, n, k", [(67, 133, 65), (1, 9, 17), (130, 257, 300)])
def test_odd_rows(engine, orders, m, n, k):
    plan, needed = run(engine, place(half((m, k)), orders[0]), place(half((k, n), 1), orders[1]))
    assert plan.family == "gemm_wgmma"
    *copies, product = [q.kernel.name for q in plan.launches]
    assert product.startswith("gemm_wgmma") and 1 <= len(copies) <= len(needed) and all(x.startswith("copy") for x in copies)


def test_two_copies_of_one_kind_are_one_launch(engine):
    plan, needed = run(engine, place(half((67, 133))), place(half((133, 81), 1)))
    assert needed == ["A", "B"] and [q.kernel.name.endswith("paired")
                                     for q in plan.launches] == [True, False]


@pytest.mark.parametrize("m, n, k", [(160, 192, 256), (161, 193, 255)])
def test_two_transposes_of_one_kind_are_one_launch(engine, m, n, k):
    """Bytes run along K: in this order both operands are transposed."""
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")
    rng = np.random.default_rng(0)
    a, b = (place(rng.integers(-128, 128, shape).astype("int8"), order)
            for shape, order in (((m, k), "F"), ((k, n), "C")))
    c = place(np.zeros((m, n), "int8"))
    plan = plan_packed(gemm_problem(a, b, c), engine.device)
    assert [q.kernel.name.startswith("transpose") and "paired" in q.kernel.name
            for q in plan.launches] == [True, False]
    engine.run(plan, 1, 0, a=a, b=b, c=c)
    np.testing.assert_array_equal(c.view, a.view @ b.view)


@pytest.mark.parametrize("case", ["address", "step", "backwards", "repeated"])
@pytest.mark.parametrize("which", [0, 1])
def test_other_reasons(engine, case, which):
    """An address, a stride of two elements, rows walked backwards, one row for all."""
    operands = [half((72, 64)), half((64, 80), 1)]
    options = {"address": {"offset": 3}, "step": {"step": 2}, "backwards": {"flip": (True, False)},
               "repeated": {}}[case]
    placed = [place(x, **(options if i == which else {})) for i, x in enumerate(operands)]
    if case == "repeated":
        placed[which].strides = (0, 1)
    _plan, needed = run(engine, *placed)
    assert needed == ["AB"[which]]


@pytest.mark.parametrize("element, output", [("float16", "float32"), ("bfloat16", "float32"),
                                             ("bfloat16", "bfloat16")])
def test_types(engine, element, output):
    kind, out = (ml_dtypes.bfloat16 if t == "bfloat16" else np.dtype(t) for t in (element, output))
    run(engine, place(half((65, 67), 0, kind)), place(half((67, 75), 1, kind)), out)


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batches(engine, batch):
    run(engine, place(half((*batch, 35, 67))), place(half((*batch, 67, 41), 1)), alpha=2, beta=-1)


def test_a_matrix_for_a_whole_batch_is_copied_once(engine):
    a, b = place(half((35, 67))), place(half((3, 67, 41), 1))
    a.shape, a.strides = (3, 35, 67), (0, 67, 1)
    plan, needed = run(engine, a, b)
    assert needed == ["A", "B"] and plan.workspace_bytes < 2 * (35 * 80 + 3 * 67 * 48) + 512


def test_slices_of_k(engine):
    plan, _needed = run(engine, place(half((67, 4096)), pad=1), place(half((4096, 41), 1)))
    assert "slices" in plan.reason and len(plan.launches) == 4


def test_what_is_copied_where():
    """Rows of the workspace begin where sectors do, long ones where lines do; copies follow each
    other."""
    odd = GemmProblem(300, 101, 255, Operand("float16", (255, 1)), Operand("float16", (1, 101)),
                      Operand("float16", (101, 1)))
    plan = plan_packed(odd, H200)
    copies, product = plan.launches
    maps = {q.offset: q.tensor_map for q in product.arguments if q.tensor_map is not None
            and q.role == "workspace"}
    assert sorted(maps) == sorted(q.offset for q in copies.arguments if q.role == "workspace")
    assert {s for spec in maps.values() for s in spec.strides} >= {512, 224}
    assert plan.workspace_bytes >= 2 * (300 * 256 + 255 * 112) and [
        q.role for q in copies.arguments[1:3]
    ] == ["a", "b"]


def test_what_planning_copies():
    def planned(m, n, k, device=H200, **options):
        return plan_gemm(GemmProblem(m, n, k, Operand("float16", (k, 1)),
                                     Operand("float16", (1, n)), Operand("float16", (n, 1)),
                                     **options), device)

    assert planned(2049, 2049, 2049, precision="ieee").family == "gemm_simt"
    for arch, family, copied in (("sm_90", "gemm_wgmma", True), ("sm_80", "gemm_mma", False),
                                 ("sm_70", "gemm_simt", False)):
        plan = planned(2049, 2049, 2049, replace(H200, arch=arch))
        assert plan.family == family and ("A is copied first" in plan.reason) == copied
    for n, family in ((17, "gemm_mma"), (1001, "gemm_wgmma")):
        assert planned(n, n, n).family == family
    many = replace(planned(8, 9, 9).problem, batch=(2,) * 4,
                   a=Operand("float16", (9, 1), (648, 324, 162, 81)),
                   b=Operand("float16", (1, 9), (0,) * 4),
                   c=Operand("float16", (9, 1), (576, 288, 144, 72)))
    assert plan_gemm(many, H200).family == "gemm_batched"
    small = planned(2049, 2049, 2049, replace(H200, workspace_limit=1 << 22))
    assert small.workspace_bytes <= 1 << 22
    assert planned(2049, 2049, 2049, replace(H200, workspace_limit=0)).family == "gemm_mma"


def test_copies_in_blocks_of_c(engine, monkeypatch):
    """What does not fit into the workspace is copied and multiplied block by block, in the same
    memory."""
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")
    monkeypatch.setattr(blocks, "_MULTIPLE", 64)
    a, b = place(half((150, 133)), pad=1), place(half((133, 141), 1), "F", pad=1)
    c = place(np.full((150, 141), np.nan, "f2"), pad=3, poison=np.nan)
    whole = plan_packed(gemm_problem(a, b, c), engine.device).workspace_bytes
    plan = blocks.plan_in_blocks(gemm_problem(a, b, c),
                                 replace(engine.device, workspace_limit=whole // 2), plan_packed)
    assert 0 < plan.workspace_bytes <= whole // 2 and "blocks of" in plan.reason and len(plan.launches) >= 4
    engine.run(plan, a=a, b=b, c=c)
    check_tensor_cores(c.view, a.view, b.view)
    assert np.isnan(c.base).sum() == c.base.size - c.view.size
