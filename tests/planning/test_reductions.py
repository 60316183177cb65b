"""Plans of reductions: threads along the modes, vectors, slices; and what is refused."""

from dataclasses import replace

import pytest

from cuteblas.planning import H200, Operand, ReductionProblem, plan_reduction
from cuteblas.planning.floors import compulsory_bytes, floor_of


def matrix(i, j, strides, dtype="float32", batch=(), batch_strides=(), into=None, **changes):
    """Sums of the rows of a matrix into a dense vector."""
    result, below = [], i
    for n in reversed(batch):
        result.append(below)
        below *= n
    r = Operand(into or dtype, (1, 0), tuple(reversed(result)))
    return replace(ReductionProblem(i, j, Operand(dtype, strides, batch_strides), r, batch),
                   **changes)


def choice(*arguments, **keywords):
    return plan_reduction(matrix(*arguments, **keywords), H200).config


@pytest.mark.parametrize("i, j, strides, lanes, width, threads",
                         [(8192, 8192, (8192, 1), 1, 4, (8, 32)),
                          (8192, 8192, (1, 8192), 0, 4, (32, 8)),
                          (8192, 8192, (8193, 1), 1, 1, (8, 32)),
                          (8192, 8191, (8192, 1), 1, 1, (8, 32)),
                          (8192, 8192, (8194, 1), 1, 2, (8, 32)),
                          (8192, 8192, (2, 16384), 0, 1, (32, 8)),
                          (8192, 8192, (-1, 8192), 0, 1, (32, 8)),
                          (8192, 8192, (0, 1), 1, 4, (8, 32)), (1, 8192, (8192, 1), 1, 4, (1, 256)),
                          (1, 8192, (1, 8192), 1, 1, (1, 256)), (2, 100, (100, 1), 1, 4, (2, 32)),
                          (3, 8192, (1, 3), 0, 1, (4, 64)), (100_000, 3, (3, 1), 1, 1, (64, 4)),
                          (100_000, 3, (1, 100_000), 0, 4, (64, 4)), (1, 1, (0, 0), 1, 1, (32, 1)),
                          (8192, 1, (1, 3), 0, 4, (256, 1)),])
def test_lanes_lie_along_the_contiguous_mode_and_threads_fit_the_extents(
    i, j, strides, lanes, width, threads
):
    c = choice(i, j, strides)
    assert (c.lanes, c.width, c.threads) == (lanes, width, threads)


@pytest.mark.parametrize("dtype, alignment, width",
                         [("int8", 16, 8), ("float16", 16, 8), ("float64", 16, 2),
                          ("complex128", 16, 1), ("float32", 8, 2), ("float32", 4, 1)])
def test_vectors_have_16_bytes_or_8_elements_where_the_address_allows(dtype, alignment, width):
    p = matrix(64, 8192, (8192, 1), dtype)
    assert plan_reduction(replace(p, x=replace(p.x, alignment=alignment)),
                          H200).config.width == width


def test_vectors_are_aligned_in_every_matrix_of_a_batch():
    for stride, width in ((64 * 8192 + 4, 4), (64 * 8192 + 2, 2), (64 * 8192 + 1, 1)):
        assert choice(64, 8192, (8192, 1), batch=(3,), batch_strides=(stride,)).width == width


def test_few_rows_are_cut_into_slices_that_fill_the_device():
    for i, j, strides in ((1, 10**8, (0, 1)), (8192, 8192, (1, 8192)), (3, 10**6, (1, 3))):
        plan = plan_reduction(matrix(i, j, strides), H200)
        c = plan.config
        assert H200.multiprocessors * 4 < plan.launches[0].grid[0] <= H200.multiprocessors * 8
        assert (c.slices - 1) * c.chunk < j <= c.slices * c.chunk and c.chunk % c.tile[1] == 0
        assert len(plan.launches) == 2 and plan.workspace_bytes == c.slices * i * 4 and "slices of" in plan.reason
    for i, j, strides in ((8192, 8192, (8192, 1)), (1, 20_000, (0, 1)), (10**6, 2, (1, 10**6))):
        plan = plan_reduction(matrix(i, j, strides), H200)
        assert (plan.config.slices, len(plan.launches), plan.workspace_bytes) == (1, 1, 0)


def test_modes_that_follow_each_other_are_one():
    plan = plan_reduction(matrix(20, 40, (40, 1), batch=(5, 3), batch_strides=(2400, 800)), H200)
    assert plan.launches[0].kernel.name.endswith("_b0") and plan.launches[0].grid == (
        -(-300 // plan.config.tile[0]),
        1,
        1
    )
    apart = plan_reduction(matrix(20, 40, (41, 1), batch=(5, 3), batch_strides=(2600, 840)), H200)
    assert apart.launches[0].kernel.name.endswith("_b2")


@pytest.mark.parametrize("i, j, strides, wide",
                         [(2**15, 2**14, (2**14, 1), False), (2**15, 2**15, (2**15 + 4, 1), True),
                          (4, 2**30, (0, 1), True), (4, 64, (3 * 2**26, 1), False),
                          (5, 64, (3 * 2**26, 1), True), (64, 2, (1, -2**30), True)])
def test_offsets_have_64_bits_where_x_reaches_far(i, j, strides, wide):
    """Threads beyond the end compute addresses too."""
    assert plan_reduction(matrix(i, j, strides),
                          H200).launches[0].kernel.name.endswith("_wide") == wide


def test_nothing_to_do_and_nothing_to_sum():
    assert plan_reduction(matrix(0, 5, (5, 1)), H200).family == "nothing"
    assert plan_reduction(matrix(3, 5, (5, 1), batch=(0,), batch_strides=(15,)),
                          H200).launches == ()
    assert len(plan_reduction(matrix(3, 0, (5, 1)), H200).launches) == 1


@pytest.mark.parametrize("problem, error, message",
                         [(matrix(3, 5, (5, 1), op="mean"), ValueError,
                           "op is one of 'sum', 'max', 'min', got 'mean'"),
                          (matrix(3, 0, (5, 1), op="max"), ValueError,
                           "zero-size array to reduction operation maximum which has no identity"),
                          (matrix(3, 5, (5, 1), "complex64", op="max"), TypeError,
                           "kernels do not compute max of complex64 in complex64 to complex64"),
                          (matrix(3, 5, (5, 1), "complex64", into="float32"), TypeError,
                           "sum of complex64 in complex64 to float32"),
                          (matrix(3, 5, (5, 1), "float64", compute="float32"), TypeError,
                           "sum of float64 in float32 to float64"),
                          (matrix(3, 5, (5, 1), "float32", into="float16", compute="float64"),
                           TypeError, "sum of float32 in float64 to float16"),
                          (matrix(3, 5, (5, 1), "int8", into="float32"), TypeError,
                           "sum of int8 in int8 to float32"),
                          (matrix(3, 5, (5, 1), "int8", op="max", into="int32"), TypeError,
                           "max of int8 in int8 to int32"),
                          (matrix(3, 5, (5, 1), "bool", op="max"), TypeError,
                           "max of bool in bool to bool"),
                          (matrix(3, 5, (5, 1), "int8", into="bool", compute="bool"), TypeError,
                           "sum of int8 in bool to bool"),
                          (matrix(3, 5, (5, 1), "b32"), TypeError, "sum of b32"),
                          (matrix(3, 5, (5, 1), "int8x4", into="int32"), TypeError,
                           "sum of int8x4"), (matrix(2**40, 5, (5, 1)), ValueError,
                                              r"needs \d+ blocks; a grid has at most 2\^31 - 1"),])
def test_reductions_that_cannot_be_planned(problem, error, message):
    with pytest.raises(error, match=message):
        plan_reduction(problem, H200)


def test_the_floor_is_what_has_to_be_read_and_written():
    problem = matrix(8192, 8192, (8192, 1))
    assert compulsory_bytes(problem) == (8192 * 8192 + 8192) * 4
    assert floor_of(problem, "reduce", H200).limit == "memory traffic"
