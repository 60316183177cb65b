"""``gemm_batched``: small matrices of every type, extent and stride against wider arithmetic, in
the emulator and on a GPU."""

import itertools
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.gemm.batched import BatchedTile, gemm_batched
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.batched import plan_batched, why_not_batched
from cuteblas.planning.problem import Fusion

from .engines import (
    Strided,
    aligned,
    check_product,
    gemm_problem,
    multiply,
    multiply_placed,
    place,
    poison,
    random,
)

FLOATS = ["float32", "float64", "complex64", "complex128"]
def run(engine, a, b, c, **how):
    """Multiply what is placed; the plan."""
    return multiply_placed(engine, plan_batched, a, b, c, **how)


@pytest.mark.parametrize("dtypes", [("int8",) * 3, ("uint8",) * 3, ("bool",) * 3,
                                    ("int8", "int8", "int32")], ids="-".join)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("k", [16, 44])
def test_bytes_are_multiplied_four_at_a_time(engine, orders, k, dtypes):
    rng = np.random.default_rng(7)
    a, b = random(rng, (21, 12, k), dtypes[0]), random(rng, (21, k, 20), dtypes[1])
    pa, pb, pc = place(a, orders[0]), place(b, orders[1]), place(np.full((21, 12, 20), poison(dtypes[2]), dtypes[2]))
    plan = plan_batched(gemm_problem(pa, pb, pc), replace(engine.device, multiprocessors=1))
    assert plan.config.tile.words and "mac_dp4a" in plan.source
    engine.run(plan, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, np.matmul(a, b, dtype=dtypes[2]))


def test_sums_of_bytes_that_do_not_fit_are_not_multiplied_as_signed_bytes(engine):
    a, b = np.full((9, 8, 8), 255, "uint8"), np.full((9, 8, 8), 254, "uint8")
    pa, pb, pc = place(a), place(b), place(np.full((9, 8, 8), -1, "int32"))
    engine.run(plan_batched(gemm_problem(pa, pb, pc), replace(engine.device, multiprocessors=1)),
               a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, np.full((9, 8, 8), 8 * 255 * 254))


EXTENTS = [(1, 1, 1), (1, 1, 200), (2, 1, 33), (1, 8, 2), (2, 3, 4), (5, 5, 5), (6, 6, 6),
           (8, 8, 8), (13, 17, 11), (16, 16, 16), (31, 33, 15), (32, 32, 32), (64, 3, 40),
           (3, 64, 5), (64, 64, 20)]


@pytest.mark.parametrize("m, n, k", EXTENTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128"])
def test_extents(engine, m, n, k, dtype):
    rng = np.random.default_rng(1)
    multiply(engine, plan_batched, random(rng, (9, m, k), dtype), random(rng, (9, k, n), dtype))


def shuffled(values, order):
    """Values in memory in an order of their modes, the slowest first."""
    strides, step = [0] * values.ndim, 1
    for mode in reversed(order):
        strides[mode] = step
        step *= values.shape[mode]
    x = Strided(aligned(step, values.dtype), 0, values.shape, tuple(strides))
    x.view[...] = values
    return x


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("batch", [32, 35])
def test_matrices_between_rows_and_columns(engine, batch, operand, order):
    rng, dtype = np.random.default_rng(2), "float32"
    orders = [(0, 1, 2)] * 3
    orders[operand] = order
    arrays = random(rng, (batch, 6, 8), dtype), random(rng, (batch, 8, 4),
                                                       dtype), np.full((batch, 6, 4), np.nan, dtype)
    run(engine, *(shuffled(x, o) for x, o in zip(arrays, orders, strict=True)))


@pytest.mark.parametrize("gap", [1, 2, 4])
def test_gaps_between_matrices(engine, gap):
    """Vectors along rows divide what is from one matrix to the next too."""
    rng, operands = np.random.default_rng(8), []
    for values in (random(rng, (30, 4, 8), "float32"), random(rng, (30, 8, 4), "float32"),
                   np.full((30, 4, 4), np.nan, "float32")):
        rows, columns = values.shape[1:]
        x = Strided(aligned(30 * (rows * columns + gap), "float32"), 0, values.shape,
                    (rows * columns + gap, columns, 1))
        x.view[...] = values
        operands.append(x)
    run(engine, *operands)


@pytest.mark.parametrize("flip", [(True, False, False), (True, True, False), (True, True, True)])
def test_a_block_of_one_matrix_walks_backwards(engine, flip):
    """A mode of one matrix is left out of the order of memory, whatever its stride is."""
    rng = np.random.default_rng(4)
    a, b = random(rng, (9, 8, 4), "float32"), random(rng, (9, 4, 12), "float32")
    for c_flip in (None, flip):
        plan = multiply(engine, plan_batched, a, b, a_place={"flip": flip}, b_place={"flip": flip},
                        c_place={"flip": c_flip} if c_flip else {})
        assert plan.config.tile.matrices == 1


@pytest.mark.parametrize("shapes", [((1, 1), (3, 7)), ((3, 7), (1, 1)), ((3, 1), (1, 7)),
                                    ((3, 7), (1, 7)), ((3, 1), (3, 7)), ((2, 3, 5), (2, 1, 5))],
                         ids=str)
def test_operands_that_are_the_same_for_many_matrices(engine, shapes):
    rng, dtype = np.random.default_rng(3), "float64"
    batch = np.broadcast_shapes(*shapes)
    operands = []
    for shape, extents in zip(shapes, ((5, 3), (3, 4)), strict=True):
        x = place(random(rng, (*shape, *extents), dtype))
        steps = tuple(0 if n == 1 else s for n, s in zip(shape, x.strides, strict=False))
        operands.append(Strided(x.base, x.offset, (*batch, *extents), (*steps, *x.strides[-2:])))
    run(engine, *operands, place(np.full((*batch, 5, 4), np.nan), pad=2))


@pytest.mark.parametrize("shapes", [((7, 1000, 4), (7, 4, 3)), ((7, 3, 5), (7, 5, 130)),
                                    ((2, 72, 9), (2, 9, 64)), ((3, 4, 200, 2), (3, 1, 2, 8))],
                         ids=str)
def test_more_rows_than_a_matrix_has_are_many_matrices(engine, shapes):
    rng, dtype = np.random.default_rng(9), "float32"
    a, b = (random(rng, shape, dtype) for shape in shapes)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    placed = place(b)
    steps = tuple(0 if n == 1 else s for n, s in zip(b.shape[:-2], placed.strides, strict=False))
    shared = Strided(placed.base, 0, (*batch, *b.shape[-2:]), (*steps, *placed.strides[-2:]))
    plan = run(engine, place(a), shared, place(np.full((*batch, a.shape[-2], b.shape[-1]), np.nan,
                                                       dtype)))
    assert max(plan.config.extents[:2]) <= 64


def test_rows_that_cannot_be_cut_are_refused():
    x = Operand("float32", (3, 1), (3 * 1009,))
    p = GemmProblem(1009, 3, 3, x, Operand("float32", (1, 3), (9,)), x, (100,))
    assert "1009 x 3 are larger than" in why_not_batched(p, H200)
    x = Operand("float32", (3, 1), (3 * 1000,))
    assert why_not_batched(replace(p, m=1000, a=x, c=x), H200) is None


@pytest.mark.parametrize("m, n, dtype, cut", [(66, 8, "float16", True), (51, 8, "int8", True),
                                              (68, 72, "float32", False),
                                              (221, 8, "float16", False), (221, 8, "float32", True),
                                              (66, 8, "int8", False)])
def test_parts_of_rows_are_whole_words_of_one_side(m, n, dtype, cut):
    def matrix(rows, columns):
        return Operand(dtype, (columns, 1), (rows * columns,))

    p = GemmProblem(m, n, 6, matrix(m, 6), matrix(n, 6), matrix(m, n), (100,))
    assert (why_not_batched(p, H200) is None) == cut


def test_one_element_is_read_for_all_rows(engine):
    rng = np.random.default_rng(4)
    a, b = place(random(rng, (12, 1, 1), "float32")), place(random(rng, (12, 6, 5), "float32"))
    repeated = Strided(a.base, 0, (12, 4, 6), (1, 0, 0))
    run(engine, repeated, b, place(np.full((12, 4, 5), np.nan, "float32")))


@pytest.mark.parametrize("extents", [(1, 2, 1), (5, 7, 1), (3, 4, 6), (8, 4, 8)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128"])
@pytest.mark.parametrize("operand", "ab")
def test_one_element_is_read_for_all_matrices(engine, operand, dtype, extents):
    rng, (m, n, k) = np.random.default_rng(4), extents
    shapes = {"a": (9, m, k), "b": (9, k, n)}
    one = Strided(place(random(rng, (1, 1), dtype)).base, 0, shapes.pop(operand), (0, 0, 0))
    others = {name: place(random(rng, shape, dtype)) for name, shape in shapes.items()}
    run(engine, **{operand: one, **others}, c=place(np.full((9, m, n), poison(dtype), dtype),
                                                    poison=poison(dtype)))


@pytest.mark.parametrize("alpha, beta", [(2, 3), (0, 3), (2, 0), (0, 0)])
def test_scalars_in_device_memory(engine, alpha, beta):
    """Zero is found out when the kernel runs: NaN in what is then not to be used stays out."""
    rng = np.random.default_rng(5)
    a, b, before = (rng.integers(-3, 4, (20, 4, 4)).astype("float32") for _ in range(3))
    want = alpha * (a @ b) + beta * before
    if not alpha:
        a[:], b[:] = np.nan, np.inf
    if not beta:
        before[:] = np.nan
    pa, pb, pc = place(a), place(b), place(before)
    scalars = {name: place(np.full((1, 1), value, "float32"))
               for name, value in (("alpha", alpha), ("beta", beta))}
    plan = plan_batched(gemm_problem(pa, pb, pc, alpha="device", beta="device"), engine.device)
    engine.run(plan, operands=scalars, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, want)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("order_of_c", [(0, 1, 2), (0, 2, 1), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("extents", [(4, 4, 4), (9, 3, 5)], ids=str)
def test_matrices_of_an_epilogue_in_another_order_than_c(engine, extents, order_of_c, order):
    """acc + residual, and the sum as an output: C may be one span, the others are not."""
    rng, (m, n, k), batch = np.random.default_rng(10), extents, 40
    a, b, residual = (rng.integers(-9, 10, shape).astype("float32")
                      for shape in ((batch, m, k), (batch, k, n), (batch, m, n)))
    pa, pb, empty = place(a), place(b), np.full((batch, m, n), np.nan, "float32")
    pc, pr, pre = shuffled(empty, order_of_c), shuffled(residual,
                                                        order), shuffled(empty, order[::-1])
    acc = Node("acc", "float32")
    total = Node("add", "float32", (acc, Node("operand", "float32", name="residual")))
    fusion = Fusion(EpilogueGraph("test", total, (("pre", acc),)), (("residual", pr.operand()),),
                    (("pre", pre.operand()),))
    plan = plan_batched(replace(gemm_problem(pa, pb, pc), fusion=fusion), engine.device)
    engine.run(plan, operands={"epi_residual": pr, "epi_pre": pre, "a": pa, "b": pb, "c": pc})
    np.testing.assert_array_equal(pc.view, a @ b + residual)
    np.testing.assert_array_equal(pre.view, a @ b)


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices_of_an_epilogue_for_a_block_of_one_matrix(engine, order):
    """A bias that batch modes share has a stride for each of them."""
    rng, (m, n, k), batch = np.random.default_rng(11), (72, 3, 5), (2, 3)
    a, b, bias = (rng.integers(-9, 10, shape).astype("float32")
                  for shape in ((*batch, m, k), (*batch, k, n), (batch[0], 1, 1, n)))
    pa, pb, pc = place(a), place(b), place(np.full((*batch, m, n), np.nan, "float32"), order)
    pbias = place(bias)
    total = Node("add", "float32", (Node("acc", "float32"),
                                    Node("operand", "float32", name="bias")))
    over_c = replace(pbias.operand(), strides=(0, 1), batch_strides=(n, 0))
    fusion = Fusion(EpilogueGraph("test", total), (("bias", over_c),))
    plan = plan_batched(replace(gemm_problem(pa, pb, pc), fusion=fusion), engine.device)
    assert plan.config.tile.matrices == 1
    engine.run(plan, operands={"epi_bias": pbias, "a": pa, "b": pb, "c": pc})
    np.testing.assert_array_equal(pc.view, a @ b + bias)


@pytest.mark.parametrize("conj", [(True, False), (False, True)])
def test_conjugation_where_a_thread_has_whole_matrices(engine, conj):
    rng = np.random.default_rng(9)
    pa, pb = (place(random(rng, (600, 3, 3), "complex64")) for _ in range(2))
    pc = place(np.full((600, 3, 3), poison("complex64"), "complex64"))
    plan = plan_batched(gemm_problem(pa, pb, pc, conj=conj),
                        replace(engine.device, multiprocessors=1))
    assert plan.config.tile.whole
    engine.run(plan, a=pa, b=pb, c=pc)
    a, b = (np.conj(x.view) if f else x.view for x, f in zip((pa, pb), conj, strict=True))
    check_product(pc.view, np.array(a), np.array(b), "complex64")


@pytest.mark.parametrize("a_type, b_type, c_type",
                         [("int8", "int8", "int32"), ("float16", "float16", "float32"),
                          ("float32", "float32", "float64"), ("bfloat16", "bfloat16", "bfloat16"),
                          ("bfloat16", "float16", "float32")])
def test_mixed_types(engine, a_type, b_type, c_type):
    rng = np.random.default_rng(6)
    a_type, b_type, c_type = (getattr(ml_dtypes, t, t) for t in (a_type, b_type, c_type))
    a, b = (rng.integers(-4, 5, (30, 5, 5)).astype(t) for t in (a_type, b_type))
    pa, pb, pc = place(a), place(b), place(np.full((30, 5, 5), -1, c_type))
    engine.run(plan_batched(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view.astype(float), a.astype(float) @ b.astype(float))


def test_offsets_beyond_32_bits():
    x = Operand("float32", (3, 1), (9,))
    plan = plan_batched(GemmProblem(3, 3, 3, x, Operand("float32", (1, 3), (9,)), x, (2 * 10**8,)),
                        H200)
    assert plan.config.wide and "long long const first = block * " in plan.source
    assert not plan_batched(GemmProblem(3, 3, 3, x, Operand("float32", (1, 3), (9,)), x, (10**6,)),
                            H200).config.wide


def test_spans_are_copied_by_whole_vectors():
    """3 x 3 matrices of any type that follow each other are read 16 bytes at a time, and written by
    vectors of sums of 16 bytes."""
    for dtype, width in (("int8", 16), ("float16", 8), ("float32", 4), ("float64", 2)):
        x = Operand(dtype, (3, 1), (9,))
        config = plan_batched(GemmProblem(3, 3, 3, x, Operand(dtype, (1, 3), (9,)), x, (10**5,)),
                              H200).config
        assert (config.a.width, config.b.width) == (width, width)
        assert config.c.width * np.dtype(config.accumulator).itemsize == 16


@pytest.mark.parametrize("dtype, extents", [("complex128", (32, 32, 32)), ("float64", (37, 37, 37)),
                                            ("uint8", (8, 8, 120))])
def test_shared_memory_ends_with_the_last_vectors(dtype, extents):
    """Not with the last of the matrices that would have them: a block of one matrix would need
    twice as much."""
    m, n, k = extents
    plan = plan_batched(GemmProblem(m, n, k, Operand(dtype, (k, 1), (m * k,)),
                                    Operand(dtype, (1, n), (n * k,)),
                                    Operand(dtype, (n, 1), (m * n,)), (10**5,)), H200)
    kernel, config = plan.launches[0].kernel, plan.config
    each = [(sum((e - 1) * s for e, s in zip(side.box, side.held, strict=True)) + 1)
            for side in config.sides]
    item, sums = np.dtype(dtype).itemsize, np.dtype(config.sums).itemsize
    a, b = (x + config.tile.threads * side.width
            for x, side in zip(each, (config.a, config.b), strict=False))
    assert kernel.shared_bytes <= max((a + b) * item + 128, each[2] * config.tile.depth * sums)


@pytest.mark.parametrize("extents", [(3, 3, 3), (4, 4, 4), (8, 8, 8), (16, 16, 16), (32, 32, 32)],
                         ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_few_bank_conflicts(dtype, extents):
    m, n, k = extents
    plan = plan_batched(GemmProblem(m, n, k, Operand(dtype, (k, 1), (m * k,)),
                                    Operand(dtype, (1, n), (n * k,)),
                                    Operand(dtype, (n, 1), (m * n,)), (10**5,)), H200)
    for name, text in plan.facts.items():
        if name.startswith("shared load"):
            for part in text.split("; "):
                actual, _, least = part.split(": ")[1].partition(" wavefronts of at least ")
                assert int(actual) <= 2 * int(least.split()[0]), (name, text)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16"])
def test_gram_matrices_are_exactly_symmetric(dtype):
    """A complex element adds the products of the one opposite in another order, so that planning
    takes no such kernel."""
    a, b, c = Operand(dtype, (1, 3), (15,)), Operand(dtype, (1, 3), (15,)), Operand(dtype, (3, 1), (9,))
    plan = plan_gemm(GemmProblem(3, 3, 5, a, b, c, (10**5,), triangle="both"), H200)
    assert (plan.family == "gemm_batched") == (dtype != "complex64")


def test_what_it_refuses():
    x = Operand("float32", (4, 1), (16,))
    p = GemmProblem(4, 4, 4, x, Operand("float32", (1, 4), (16,)), x, (100,))
    assert why_not_batched(p, H200) is None
    assert "not a triangle" in why_not_batched(replace(p, triangle="lower"), H200)
    assert why_not_batched(replace(p, alpha="zero"), H200) == "there is nothing to multiply"
    assert "are larger than" in why_not_batched(replace(p, m=67), H200)
    with pytest.raises(ValueError, match="there is only one matrix"):
        plan_batched(replace(p, batch=(), a=replace(x, batch_strides=()),
                             b=replace(p.b, batch_strides=()), c=replace(x, batch_strides=())),
                     H200)
    config = plan_batched(p, H200).config
    with pytest.raises(CodegenError, match="does not divide"):
        gemm_batched(replace(config, tile=BatchedTile(64, step=7)))
