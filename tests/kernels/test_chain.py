"""Plans as parts of another one: ``(A @ B) @ C`` with one workspace and, on a GPU, one graph."""

import numpy as np
import pytest

from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.floors import floor_of
from cuteblas.planning.plan import Argument, Workspace
from cuteblas.planning.words import kernel_words, plan_rows

from .engines import gemm_problem, place


def chain(x, y, z, c, device):
    """The plan of ``C = (X @ Y) @ Z``, whose first product is between them in the workspace."""
    (m, k), (_k, n), dtype = x.shape, y.shape, x.view.dtype
    workspace = Workspace()
    between = Operand(dtype.name, (n, 1)), workspace.take(m * n * dtype.itemsize)
    whole = gemm_problem(x, y, place(np.zeros((m, n), dtype)))
    first = plan_gemm(GemmProblem(m, n, k, whole.a, whole.b, between[0]), device)
    rest = gemm_problem(place(np.zeros((m, n), dtype)), z, c)
    second = plan_gemm(GemmProblem(m, c.shape[1], n, between[0], rest.b, rest.c), device)
    plan = first.within(workspace, a="x", b="y",
                        c=between[1]).then(second.within(workspace, a=between[1], b="z"))
    return first, second, plan


def run(engine, m, n, k, last, dtype="float32"):
    """A chain of random integers, exactly."""
    rng = np.random.default_rng(m)
    x, y, z = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n), (n, last)))
    px, py, pz, pc = place(x), place(y, "F"), place(z), place(np.full((m, last), np.nan, dtype),
                                                              pad=1, poison=np.nan)
    first, second, plan = chain(px, py, pz, pc, engine.device)
    engine.run(plan, x=px, y=py, z=pz, c=pc)
    np.testing.assert_array_equal(pc.view, x @ y @ z)
    return first, second, plan


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("m, n, k, last", [(40, 30, 50, 20), (33, 17, 3000, 65), (1, 300, 129, 7)])
def test_products_of_three_matrices(engine, m, n, k, last, dtype):
    first, second, plan = run(engine, m, n, k, last, dtype)
    assert plan.roles == ("c", "x", "y",
                          "z") and len(plan.launches) == len(first.launches) + len(second.launches)


def test_parts_use_the_same_scratch_memory_after_what_is_kept(engine):
    first, second, plan = run(engine, 64, 48, 9000, 5000)
    kept = 64 * 48 * 4
    assert first.workspace_bytes and plan.workspace_bytes == kept + max(
        first.workspace_bytes, second.workspace_bytes
    )
    offsets = {argument.offset for argument in plan.launches[-1].arguments
               if argument.role == "workspace"}
    assert offsets == {0} and plan.seconds == first.seconds + second.seconds


def test_scratch_memory_of_the_second_product_is_apart_from_what_it_reads(engine):
    _first, second, plan = run(engine, 40, 9000, 20, 30)
    kept = 40 * 9000 * 4
    assert second.workspace_bytes and plan.workspace_bytes >= kept + second.workspace_bytes


def test_what_is_said_of_it():
    x, y, z, c = (place(np.zeros(shape, "f4")) for shape in ((8, 9), (9, 10), (10, 11), (8, 11)))
    first, second, plan = chain(x, y, z, c, H200)
    assert plan.reason == f"{first.reason}; then {second.reason}" and "2 steps" in kernel_words(
        plan
    )
    assert [text for name, text in plan_rows(plan) if name == "problem"] == [
        "C = A B^T with M = 8, N = 10, K = 9", "C = A B^T with M = 8, N = 11, K = 10"]
    assert floor_of(plan.problem, plan.family,
                    H200).flops == 2 * 8 * 10 * (9 + 11) == plan.problem.flops


def test_parts_begin_where_the_workspace_is_free():
    workspace = Workspace()
    assert workspace.take(1000) == Argument("workspace") and workspace.take(3) == Argument(
        "workspace", offset=1024
    )
    with workspace.lent():
        assert workspace.take(5000).offset == 1280
    assert workspace.take(1).offset == 1280 and workspace.nbytes == 6280
