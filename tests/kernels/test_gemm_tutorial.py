"""``gemm_tutorial``: the layouts that CuTe's tutorial and the naive tiled product print, and their
kernels at work."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cuteblas._dtypes import accumulator_of
from cuteblas.codegen.access import wavefronts
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.layout import (
    Layout,
    Tensor,
    cosize,
    counting_iterator,
    local_partition,
    local_tile,
    make_tensor,
    size,
)
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.tutorial.gemm import NAIVE_TILED, TUTORIAL, TutorialConfig, gemm_tutorial

from .engines import check_product, gemm_problem, outside, place, poison, random

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# What BLAS calls the four cases, and which mode of A (M,K) and of B (N,K) is contiguous: 0 for M or
# N, 1 for K.
MAJORS = {"NT": (0, 0), "TN": (1, 1), "NN": (0, 1), "TT": (1, 0)}


def column_major(m, n, leading):
    """BLAS's matrix of m rows, ``leading`` elements from column to column."""
    return make_tensor(counting_iterator(), (m, n), (1, leading))


# -- what the tutorial prints ----------------------------------------------------------------------
def tutorial_tiles(m=5120, n=5120, k=4096, block=(0, 0)):
    mA, mB, mC = column_major(m, k, m), column_major(n, k, n), column_major(m, n, m)
    blk_shape, blk_coord = (128, 128, 8), (*block, None)
    return (local_tile(mA, blk_shape, blk_coord, (1, None, 1)),
            local_tile(mB, blk_shape, blk_coord, (None, 1, 1)),
            local_tile(mC, blk_shape, blk_coord, (1, 1, None)))


def test_block_layouts_of_the_tutorial():
    sA, sB = Layout((128, 8)), Layout((128, 8))
    assert str(sA) == str(sB) == "(128,8):(1,128)"
    assert TUTORIAL.shared("A", 0) == sA and TUTORIAL.shared("B", 0) == sB
    assert cosize(sA) == 1024 and Layout.parse("(_128,_8):(_1,_128)") == sA


def test_thread_layouts_of_the_tutorial():
    tA, tB, tC = *map(TUTORIAL.copy_threads, (0, 0)), TUTORIAL.compute
    assert (str(tA), str(tB), str(tC)) == ("(32,8):(1,32)", "(32,8):(1,32)", "(16,16):(1,16)")
    assert size(tC) == TUTORIAL.threads == 256


def test_tiles_of_the_tutorial():
    gA, gB, gC = tutorial_tiles()
    assert str(gA.layout) == "(128,8,512):(1,5120,40960)"
    assert str(gB.layout) == "(128,8,512):(1,5120,40960)"
    assert str(gC.layout) == "(128,128):(1,5120)"
    gA, gB, gC = tutorial_tiles(block=(3, 2))
    assert (gA[0, 0, 1], gB[0, 0, 1], gC[0, 0]) == (3 * 128 + 40960, 2 * 128 + 40960,
                                                    3 * 128 + 2 * 128 * 5120)


def test_partitions_of_the_tutorial():
    gA, gB, gC = tutorial_tiles()
    sA = make_tensor(counting_iterator(), Layout((128, 8)))
    thread = 37
    for g in (gA, gB):
        assert str(local_partition(g, TUTORIAL.copy, thread).layout) == "(4,1,512):(32,0,40960)"
    # row 5, column 1
    assert str(local_partition(sA, TUTORIAL.copy, thread)) == "counting_iter(133) o (4,1):(32,0)"
    assert str(local_partition(sA, TUTORIAL.compute, thread,
                               (1, None))) == "counting_iter(5) o (8,8):(16,128)"
    assert str(local_partition(sA, TUTORIAL.compute, thread,
                               (None, 1))) == "counting_iter(2) o (8,8):(16,128)"
    tCgC = local_partition(gC, TUTORIAL.compute, thread, (1, 1))
    assert str(tCgC) == "counting_iter(10245) o (8,8):(16,81920)"
    assert str(Layout(tCgC.shape)) == "(8,8):(1,8)"                                           # tCrC
    covered = sorted(i for t in range(256) for i in local_partition(gC, TUTORIAL.compute, t,
                                                                    (1, 1)))
    assert covered == sorted(gC)


def test_the_kernel_is_headed_by_these_layouts():
    body = gemm_tutorial(TutorialConfig("float32", "float32", "float32")).body
    for line in ("sA: shared float32 (128,8):(1,128), 4096 bytes", "tAsA: (4,1):(32,0)",
                 "tCsA: (8,8):(16,128)", "tCsB: (8,8):(16,128)",
                 "tAgA: (4,1,(K + 7) >> 3):(32,0,dA_k * 8)", "tCgC: (8,8):(16,dC_n * 16)",
                 "tCrC: registers float32 (8,8):(1,8)"):
        assert f"// {line}\n" in body
    assert body.count("cb::syncthreads();") == 2


@pytest.mark.parametrize("case", MAJORS)
def test_strides_of_the_four_cases(case):
    """The tutorial's tables: BLAS's columns of A (M x K, or K x M if transposed) and of B are
    strides of (M,K) and (N,K)."""
    M, N, K, ld = 6, 5, 4, 7
    a, b = (column_major(*((M, K) if case[0] == "N" else (K, M)), ld),
            column_major(*((K, N) if case[1] == "N" else (N, K)), ld))
    implementation = []
    for x, transposed, expected in ((a, case[0] == "T", (M, K)), (b, case[1] == "N", (N, K))):
        modes = (1, 0) if transposed else (0, 1)
        view = Tensor(x.engine, Layout(tuple(x.shape[i] for i in modes),
                                       tuple(x.stride[i] for i in modes)))
        assert view.shape == expected
        implementation.append(view.stride)
    assert tuple(s.index(1) for s in implementation) == MAJORS[case]
    assert all(sorted(s) == [1, ld] for s in implementation)


# -- what the naive tiled product prints -----------------------------------------------------------
def naive_tiles(block=(0, 0)):
    m, n, k = 1024, 1024, 1024 * 8
    mA, mB, mC = column_major(m, k, m), column_major(n, k, n), column_major(m, n, m)
    return (local_tile(mA, (64, 16), (block[0], None)), local_tile(mB, (64, 16), (block[1], None)),
            local_tile(mC, (64, 64), block))


def test_tiles_of_the_naive_product():
    gA, gB, gC = naive_tiles()
    assert (gA.shape, gB.shape, gC.shape) == ((64, 16, 512), (64, 16, 512), (64, 64))
    assert str(NAIVE_TILED.shared("A", 0)) == str(NAIVE_TILED.shared("B", 1)) == "(64,16):(1,64)"
    assert NAIVE_TILED.threads == 64 and NAIVE_TILED.values == (8, 8)


def test_partitions_of_the_naive_product():
    gA, gB, gC = naive_tiles()
    sA = make_tensor(counting_iterator(), Layout((64, 16)))
    for g in (gA, gB):
        assert str(local_partition(g, NAIVE_TILED.copy, 9).layout) == "(1,16,512):(0,1024,16384)"
        assert str(local_partition(sA, NAIVE_TILED.copy, 9).layout) == "(1,16):(0,64)"
    assert str(local_partition(sA, NAIVE_TILED.compute, 9, (1, None)).layout) == "(8,16):(8,64)"
    assert str(local_partition(sA, NAIVE_TILED.compute, 9, (None, 1)).layout) == "(8,16):(8,64)"
    assert str(local_partition(gC, NAIVE_TILED.compute, 9, (1, 1)).layout) == "(8,8):(8,8192)"


def test_blocks_of_the_naive_product_run_along_n_first():
    p = GemmProblem(1024, 512, 64, Operand("float32", (1, 1024)), Operand("float32", (1, 512)),
                    Operand("float32", (1, 1024)))
    assert plan_gemm(replace(p, variant="gemm_naive_tiled"), H200).launches[0].grid == (8, 16, 1)
    assert plan_gemm(replace(p, variant="gemm_tutorial"), H200).launches[0].grid == (8, 4, 1)


# -- bank conflicts --------------------------------------------------------------------------------
def bank(address):
    return address // 4 % 32


def naive_facts(**changes):
    kernel = gemm_tutorial(TutorialConfig("float32", "float32", "float32",
                                          replace(NAIVE_TILED, **changes)))
    return {what: line.removeprefix("4 bytes a lane: ") for what, line in kernel.facts.items()}


def test_bank_table_of_the_naive_product():
    """The article's tables of (thread - bank), from its own formulas: rows (tid mod 8) * 8 of A,
    columns (tid / 8) * 8 of B."""
    a = [4 * (tid % 8 * 8) for tid in range(32)]
    b = [4 * (tid // 8 * 8) for tid in range(32)]
    assert [bank(x) for x in a[:16]] == [0, 8, 16, 24] * 4
    assert [bank(x) for x in b[:16]] == [0] * 8 + [8] * 8
    # Dense blocks of the layout algebra are these formulas.
    sA, tC = make_tensor(counting_iterator(), Layout((64, 16))), NAIVE_TILED.compute
    for tid in range(32):
        row, column = tid % 8, tid // 8
        assert tC(row, column) == tid
        assert local_tile(sA, (8, 16), (row, 0))[0, 0] * 4 == a[tid] and local_tile(sA, (8, 16), (column, 0))[0, 0] * 4 == b[tid]


def test_bank_conflicts_of_dense_blocks():
    """Conflicts in reads of A and a broadcast in reads of B, as the article finds; but of 2 ways
    instead of 4.

    The article counts the 16 threads of its table as 16 addresses, so 4 of them for each of 4
    banks. tid mod 8 starts again at thread 8, though (the article lets it go on 64 elements
    further): threads 8 to 31 read the very words of threads 0 to 7, which hardware broadcasts.
    There are 8 words in 4 banks: 2 wavefronts. With 16 different rows its 4 ways would be right, as
    the last line shows.
    """
    facts = naive_facts(owned="dense")
    assert facts["shared load sA"] == "2 wavefronts of at least 1"
    assert facts["shared load sB"] == "1 wavefronts of at least 1 (no bank conflict)"
    assert wavefronts([4 * (tid % 8 * 8) for tid in range(32)], 4) == (2, 1)
    assert wavefronts([4 * (tid // 8 * 8) for tid in range(32)], 4) == (1, 1)
    assert wavefronts([4 * (tid * 8) for tid in range(16)], 4) == (4, 1)


def test_the_layouts_that_the_article_prints_have_no_bank_conflict():
    """Its analysis takes rows to be 8 apart between threads; the tCsA that it prints,
    (8,16):(8,64), has them side by side."""
    facts = naive_facts()
    assert all("no bank conflict" in line for what, line in facts.items()
               if what.startswith("shared"))
    assert facts["global store C"] == "4 sectors of at least 4"


@pytest.mark.parametrize("units", MAJORS.values(), ids=MAJORS)
def test_the_tutorial_has_no_bank_conflict(units):
    """K-major operands are transposed while they are copied, into columns that start 4 banks
    apart."""
    facts = gemm_tutorial(TutorialConfig("float32", "float32", "float32", units=(*units, 0))).facts
    assert all("no bank conflict" in line for what, line in facts.items()
               if what.startswith("shared")), facts
    assert all("4 sectors of at least 4" in line for what, line in facts.items()
               if what.startswith("global")), facts


def test_padding_is_what_spares_the_tutorial_conflicts():
    shape = replace(TUTORIAL, pad_k_major=0)
    facts = gemm_tutorial(TutorialConfig("float32", "float32", "float32", shape, (1, 0, 0))).facts
    assert "8 wavefronts" in facts["shared store sA"] and "no bank conflict" in facts["shared store sB"]


def test_rolled_kernels_carry_no_pragma():
    bodies = [gemm_tutorial(TutorialConfig("float32", "float32", "float32",
                                           replace(NAIVE_TILED, unroll=flag))).body
              for flag in (True, False)]
    assert "#pragma unroll" in bodies[0] and "#pragma" not in bodies[1]
    assert bodies[0].replace("#pragma unroll\n", "").replace("8x8_mmm_oz_b0", "") == bodies[
        1
    ].replace("8x8_mmm_oz_b0_rolled", "")


# -- the kernels at work ---------------------------------------------------------------------------
VARIANTS = ["gemm_tutorial", "gemm_naive_tiled", "gemm_naive_tiled_dense",
            "gemm_naive_tiled_rolled"]


def product(engine, variant, a, b, c_type="float32", *, a_order="F", b_order="C", c_order="F",
            alpha=1, beta=0, conj=(False, False), **where):
    """One product by a named kernel into poisoned, padded memory; returns the result, what C held
    before, and the plan."""
    shape = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    before = random(np.random.default_rng(9), shape,
                    c_type) if beta else np.full(shape, poison(c_type), c_type)
    pa, pb = place(a, a_order, **where), place(b, b_order, **where)
    pc = place(before, c_order, pad=3, poison=poison(c_type))
    around = outside(pc)
    untouched = pc.base[around].copy()
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    plan = plan_gemm(gemm_problem(pa, pb, pc, conj=conj, variant=variant, **kinds), engine.device)
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.base[around], untouched,
                                  err_msg="memory outside of C was written")
    return pc.view, before, plan


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", MAJORS)
def test_the_four_cases_at_ragged_sizes(engine, variant, case):
    rng = np.random.default_rng(1)
    a, b = random(rng, (131, 21), "float32"), random(rng, (21, 67), "float32")
    orders = {"a_order": "FC"[MAJORS[case][0]], "b_order": "CF"[MAJORS[case][1]]}
    c, _before, plan = product(engine, variant, a, b, pad=2, **orders)
    check_product(c, a, b, "float32")
    assert plan.config.units == (*MAJORS[case], 0)
    c, _before, plan = product(engine, variant, a, b, c_order="C", **orders)
    check_product(c, a, b, "float32")
    assert "C^T = B A^T" in plan.reason


@pytest.mark.parametrize("case", MAJORS)
@pytest.mark.parametrize("m, n, k", [(128, 128, 8), (256, 128, 24), (128, 256, 0)])
def test_without_predicates(engine, case, m, n, k):
    rng = np.random.default_rng(2)
    a, b = random(rng, (m, k), "float32"), random(rng, (k, n), "float32")
    orders = {"a_order": "FC"[MAJORS[case][0]], "b_order": "CF"[MAJORS[case][1]]}
    c, _before, plan = product(engine, "gemm_tutorial_unpredicated", a, b, **orders)
    check_product(c, a, b, "float32")
    assert "?" not in plan.source.split("extern", 2)[-1] and "< M" not in plan.source


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (127, 129, 7), (129, 127, 9), (16, 300, 8),
                                     (5, 3, 0), (64, 64, 16), (65, 63, 17)])
def test_sizes_on_both_sides_of_tile_edges(engine, m, n, k):
    rng = np.random.default_rng(3)
    a, b = random(rng, (m, k), "float32"), random(rng, (k, n), "float32")
    for variant in ("gemm_tutorial", "gemm_naive_tiled"):
        check_product(product(engine, variant, a, b, a_order="C")[0], a, b, "float32")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64",
                                   "complex64", "complex128"])
def test_one_type(engine, dtype):
    rng = np.random.default_rng(4)
    a, b = random(rng, (37, 29), dtype), random(rng, (29, 45), dtype)
    check_product(product(engine, "gemm_tutorial", a, b, dtype)[0], a, b, dtype)


MIXED = [("float16", "float16", "float32"), ("bfloat16", "bfloat16", "float32"),
         ("float16", "bfloat16", "float32"), ("float32", "float16", "float16"),
         ("float32", "float32", "float64"), ("float64", "float32", "float64"),
         ("float16", "float16", "float64"), ("float64", "float64", "float32"),
         ("int8", "int8", "int32"), ("uint8", "int8", "int32"), ("int16", "uint8", "int64"),
         ("int32", "int32", "int8")]


@pytest.mark.parametrize("types", MIXED, ids="-".join)
@pytest.mark.parametrize("variant", ["gemm_tutorial", "gemm_naive_tiled"])
def test_mixed_types(engine, variant, types):
    """Sums of products run in the type that holds all three; results are rounded or wrapped once,
    into C's type."""
    rng = np.random.default_rng(5)
    first, second, third = (BFLOAT16 if t == "bfloat16" else np.dtype(t) for t in types)
    if third.kind == "i":
        a, b = random(rng, (37, 29), first.name), random(rng, (29, 45), second.name)
        c, _before, _plan = product(engine, variant, a, b, third.name)
        np.testing.assert_array_equal(c, (a.astype(np.int64) @ b.astype(np.int64)).astype(third))
        return
    a, b = rng.standard_normal((37, 29)).astype(first), rng.standard_normal((29, 45)).astype(second)
    c, _before, plan = product(engine, variant, a, b, third.name)
    assert plan.config.accumulator == accumulator_of(*(types if "C^T" not in plan.reason
                                                       else (types[1], types[0], types[2])))
    check_product(c, a.astype(np.float64), b.astype(np.float64), third.name)


@pytest.mark.parametrize("types", [("int8", "float32", "float32"),
                                   ("float64", "float64", "float16"),
                                   ("float32", "float32", "complex64"), ("bool", "bool", "int32")])
def test_types_that_do_not_mix(types):
    p = GemmProblem(8, 8, 8, *(Operand(t, (1, 8)) for t in types), variant="gemm_tutorial")
    with pytest.raises(
        ValueError, match=f"products of {types[0]} and {types[1]} cannot be summed into {types[2]}"
    ):
        plan_gemm(p, H200)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
@pytest.mark.parametrize("alpha, beta", [(1, 1), (2, 0), (-3, 1), (2, 5), (0, 2)])
def test_alpha_and_beta(engine, dtype, alpha, beta):
    rng = np.random.default_rng(6)
    a, b = random(rng, (20, 30), dtype), random(rng, (30, 28), dtype)
    c, before, _plan = product(engine, "gemm_tutorial", a, b, dtype, alpha=alpha, beta=beta)
    check_product(c, a, b, dtype, alpha=alpha, beta=beta, before=before)


@pytest.mark.parametrize("conj", [(True, False), (False, True)])
@pytest.mark.parametrize("where", [{"step": 2}, {"flip": (True, True)}, {"offset": 1}])
def test_strides_and_conjugation(engine, where, conj):
    rng = np.random.default_rng(7)
    a, b = random(rng, (33, 12), "complex64"), random(rng, (12, 35), "complex64")
    c, _before, _plan = product(engine, "gemm_tutorial", a, b, "complex64", conj=conj, **where)
    check_product(c, *(np.conj(x) if f else x for x, f in zip((a, b), conj, strict=True)),
                  "complex64")


def test_batches(engine):
    rng = np.random.default_rng(8)
    a, b = random(rng, (2, 3, 33, 18), "float32"), random(rng, (2, 3, 18, 20), "float32")
    c, _before, plan = product(engine, "gemm_naive_tiled", a, b)
    check_product(c, a, b, "float32")
    assert plan.launches[0].grid[2] == 6


# -- refusals --------------------------------------------------------------------------------------
def square(m, n=8, k=8, **changes):
    return GemmProblem(m, n, k, Operand("float32", (1, m)), Operand("float32", (1, n)),
                       Operand("float32", (1, m)), **changes)


@pytest.mark.parametrize(
    "problem, message",
    [
        (
            square(128, 128, 12, variant="gemm_tutorial_unpredicated"),
            r"no predicates: M, N, K = 128, 128, 12 are not multiples of the block \(128, 128, 8\)"
        ),
        (
            square(128, 2**24, variant="gemm_tutorial"),
            "a grid of 1 x 131072 x 1 blocks; a grid has at most 2147483647 x 65535 x 65535"
        ),
        (square(8, batch=(2**16,), variant="gemm_tutorial"), "a grid of 1 x 1 x 65536 blocks"),
    ]
)
def test_problems_that_variants_refuse(problem, message):
    batch = [replace(o, batch_strides=(0,) * len(problem.batch))
             for o in (problem.a, problem.b, problem.c)]
    with pytest.raises(ValueError, match=message):
        plan_gemm(replace(problem, **dict(zip("abc", batch, strict=True))), H200)


def test_shapes_that_do_not_divide():
    with pytest.raises(CodegenError, match="one size"):
        replace(TUTORIAL, compute=Layout((16, 8)))
    with pytest.raises(CodegenError,
                       match=r"the tile \(128, 4\) of A does not divide among the threads"):
        replace(TUTORIAL, block=(128, 128, 4))


def test_builders_unroll_by_default():
    k = KernelBuilder("kernel", 32)
    k.fill(k.registers("r", "float32", Layout((4,))))
    assert "#pragma unroll" in k.build().body


@pytest.mark.parametrize("shape", [TUTORIAL, NAIVE_TILED, replace(NAIVE_TILED, owned="dense"),
                                   replace(NAIVE_TILED, unroll=False)],
                         ids=["tutorial", "naive", "dense", "rolled"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_machine_code(shape, arch, tmp_path):
    from .test_cubins import cubin, resources

    for units, predicated in (((0, 0, 0), False), ((1, 0, 0), True), ((0, 1, None), True)):
        kernel = gemm_tutorial(TutorialConfig("float32", "float32", "float32", shape, units,
                                              predicated=predicated))
        registers, stack = resources(cubin(kernel, arch), tmp_path)
        assert stack == 0 and registers * kernel.threads <= 65536


@pytest.mark.parametrize("types", [*MIXED, ("bool",) * 3, ("complex64",) * 3], ids="-".join)
def test_machine_code_of_mixed_types(types):
    from .test_cubins import cubin

    assert cubin(gemm_tutorial(TutorialConfig(*types, alpha="value", beta="value", batch_modes=1,
                                              wide=True)), "sm_80")
