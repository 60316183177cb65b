"""Plans of groups of products: what they have in common, the table, and what is refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.grouped import first_blocks, word_offsets
from cuteblas.codegen.kernel import Param
from cuteblas.planning import H200, GemmProblem, Operand
from cuteblas.planning.floors import compulsory_bytes, floor_of
from cuteblas.planning.gemm.grouped import plan_grouped, table_of
from cuteblas.planning.problem import GroupedProblem


def column_major(m, n, k, element="float32", **changes):
    return replace(GemmProblem(m, n, k, Operand(element, (1, m)), Operand(element, (k, 1)),
                               Operand(element, (1, m))), **changes)


def group(*problems):
    return plan_grouped(GroupedProblem(problems), H200)


def test_plans_are_values():
    plan = group(column_major(20, 30, 40), column_major(5, 6, 7))
    assert group(column_major(20, 30, 40), column_major(5, 6, 7)) is plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.problem.roles == ("table",) and {a.role for a in plan.launches[0].arguments} == {
        "table",
        None
    }
    assert "2 products in 1 launch" in plan.reason and "2 products by gemm_simt" in str(plan.config)


def test_the_beginning_of_a_table():
    """A bisection over a power of two finds the last problem with no more blocks before it: none
    without blocks."""
    for blocks in ([1], [3, 0, 2], [0, 0, 5, 0], [2] * 9, [1, 0, 0, 0, 0, 0, 0, 7]):
        before, total = first_blocks(blocks)
        assert total == sum(blocks) and len(before) & (len(before) - 1) == 0 and len(before) >= max(2, len(blocks))
        for block in range(total):
            problem, half = 0, len(before) // 2
            while half:
                problem += half * (before[problem + half] <= block)
                half //= 2
            assert before[problem] <= block < before[problem] + blocks[problem]


def test_members_of_a_row_are_aligned_to_their_size():
    row = [Param("A", "pointer", dtype("complex128")), Param("M", "scalar", dtype("int32")),
           Param("K", "scalar", dtype("int32")), Param("alpha", "scalar", dtype("complex128")),
           Param("beta", "scalar", dtype("bool"))]
    assert word_offsets(row) == ((0, 1, 2, 4, 6), 8)
    assert word_offsets(row[:3]) == ((0, 1, 2), 4)


def test_the_words_of_a_table():
    p = column_major(20, 30, 40, "float64", alpha="value", beta="one")
    plan = group(p, replace(p, m=33, alpha="one", beta="value"))
    part = plan.config.parts[0]
    values = [{"a": 1024, "b": 2048, "c": 4096, "alpha": 2.5},
              {"a": 16, "b": 32, "c": 48, "beta": -1}]
    table = table_of(plan, values)
    assert table.dtype == np.int64 and len(table) == plan.config.table_words
    assert plan.launches[0].arguments[1].value == part.entries == 2 and plan.launches[0].grid[0] == part.blocks
    names = [q.name for q in part.kernel.row]
    for g, (addresses, alpha, beta) in enumerate((((1024, 2048, 4096), 2.5, 1.0),
                                                  ((16, 32, 48), 1.0, -1.0))):
        offsets, words = word_offsets(part.kernel.row)
        row = dict(zip(names, table[part.entries + g * words:][list(offsets)], strict=True))
        assert (row["A"], row["B"], row["C"]) == addresses and row["M"] == (20, 33)[g] and (row["N"], row["K"]) == (30, 40)
        assert np.array([row["alpha"], row["beta"]]).view("f8").tolist() == [alpha, beta]


def test_roles_of_what_is_transposed_are_exchanged():
    rows = GemmProblem(20, 30, 40, Operand("float32", (40, 1)), Operand("float32", (1, 30)),
                       Operand("float32", (30, 1)))
    plan = group(rows, column_major(20, 30, 40))
    products = [member.problem for member in plan.config.parts[0].members]
    assert [(x.a.role or "a", x.b.role or "b") for x in products] == [("b", "a"), ("a", "b")]
    table = table_of(plan, [{"a": 16, "b": 32, "c": 48}, {"a": 64, "b": 80, "c": 96}])
    part = plan.config.parts[0]
    assert table[part.entries:part.entries + 5].tolist() == [32, 16, 48, 30, 20]
    assert table[part.entries + part.row_words:][:5].tolist() == [64, 80, 96, 20, 30]


def test_a_batch_is_a_row_for_each_index():
    p = column_major(20, 30, 40, batch=(2, 3))
    steps = {"a": (2400, 800), "b": (0, 1), "c": (1800, 600)}
    p = replace(p, **{name: replace(getattr(p, name), batch_strides=s)
                      for name, s in steps.items()})
    products = [member.problem for member in group(p).config.parts[0].members]
    assert [x.a.offset for x in products] == [3200 * i for i in range(6)]
    assert [x.b.offset for x in products] == [0, 4, 8] * 2
    assert [x.c.offset for x in products] == [2400 * i for i in range(6)]
    assert {x.a.alignment for x in products} == {16} and [x.b.alignment
                                                          for x in products] == [16, 4, 8] * 2


def test_sums_in_another_type_take_another_kernel():
    p = column_major(20, 30, 40)
    plan = group(p, replace(p, compute="float64"), p)
    assert [len(part.members) for part in plan.config.parts] == [2, 1]


def test_offsets_have_64_bits_where_one_operand_reaches_far():
    near, far = column_major(20, 30, 40), column_major(20, 30, 40, b=Operand("float32", (2**26, 1)))
    for problems, wide in (((near, near), False), ((near, far), True), ((far, near), True)):
        assert ("_wide" in group(*problems).launches[0].kernel.name) == wide


def test_large_products_take_large_tiles_and_small_ones_small():
    small, large = group(*[column_major(30, 30, 30)] * 40), group(*[column_major(2048, 2048, 512)]
                                                                  * 3)
    areas = [plan.config.parts[0].choice.tile.m * plan.config.parts[0].choice.tile.n for plan in (small, large)]
    assert areas[0] < areas[1] == 256 * 128


def test_nothing_to_compute():
    for plan in (group(), group(column_major(0, 5, 6), column_major(5, 0, 6))):
        assert plan.launches == () and plan.family == "nothing"
        assert len(table_of(group(column_major(0, 5, 6)), [{}])) == 0


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"alpha": "device"},
            ValueError,
            "problem 1: alpha and beta of a group of products must be numbers, not addresses"
        ),
        ({"beta": "device"}, ValueError, "problem 1: alpha and beta"),
        (
            {"precision": "fast"},
            ValueError,
            "problem 1: a group of products takes precision 'auto' or 'ieee', got 'fast'"
        ),
        (
            {"variant": "gemm_huge"},
            ValueError,
            "problem 1: a group of products takes no variant, got 'gemm_huge'"
        ),
        ({"m": 2**40, "n": 2**12}, ValueError, r"needs \d+ blocks; a grid has at most 2\^31 - 1"),
        ({"a": Operand("float128", (1, 20))}, TypeError, "do not support element type 'float128'"),
    ]
)
def test_groups_that_cannot_be_planned(change, error, message):
    with pytest.raises(error, match=message):
        group(column_major(5, 6, 7), replace(column_major(20, 30, 40), **change))


def test_a_call_brings_operands_for_each_problem():
    with pytest.raises(ValueError, match="computes 1 products, but the call passes operands for 2"):
        table_of(group(column_major(5, 6, 7)), [{}, {}])


def test_the_floor_is_that_of_all_products():
    p, q = column_major(50, 60, 70), column_major(8, 9, 10, "float64")
    whole = GroupedProblem((p, q))
    assert whole.flops == p.flops + q.flops and compulsory_bytes(whole) == compulsory_bytes(
        p
    ) + compulsory_bytes(q)
    assert floor_of(whole, "gemm_simt", H200).arithmetic_s == pytest.approx(
        sum(floor_of(x, "gemm_simt", H200).arithmetic_s for x in (p, q)))
