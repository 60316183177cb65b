"""``gemm_mma``: tiles, edges, slices and words of warp-level tensor cores, in the emulator and on a
GPU; what it shares with other families is in test_products.py."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mma import mma_atom
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm.mma import MmaConfig, MmaTile, gemm_mma
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.gemm import mma as planning
from cuteblas.planning.gemm.mma import (
    MMA,
    mma_tiles,
    plan_mma,
    thin_tiles,
    why_not_mma,
)
from cuteblas.planning.gemm.simt import plan_simt

from .engines import check_tensor_cores, gemm_problem, multiply, place, random
from .moves import counted

ml_dtypes = pytest.importorskip("ml_dtypes")

OUTPUT = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "float64": "float64",
          "complex128": "complex128"}


def run(engine, a, b, orders="CCC", *, output=None, **how):
    """One product, where the architecture has the instruction; the plan."""
    if mma_atom(a.dtype.name, engine.device.arch) is None:
        pytest.skip(f"{engine.device.arch} has no mma.sync for {a.dtype}")
    return multiply(engine, plan_mma, a, b, orders, output=output or OUTPUT[a.dtype.name], **how)


@pytest.mark.parametrize("element, output", [("float16", "float16"), ("bfloat16", "float32"),
                                             ("bfloat16", "bfloat16"), ("int8", "int32")])
def test_types(engine, element, output):
    rng = np.random.default_rng(2)
    run(engine, random(rng, (64, 96), element), random(rng, (96, 72), element), "CFC",
        output=output)


@pytest.mark.parametrize("dtype", ["float16", "complex128"])
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 8, 8), (8, 1, 40), (33, 31, 65), (129, 264, 72),
                                     (64, 8, 520), (128, 128, 32)])
def test_ragged_sizes(engine, dtype, m, n, k):
    rng = np.random.default_rng(3)
    run(engine, random(rng, (m, k), dtype), random(rng, (k, n), dtype), c_place={"pad": 1})


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("conj", [(True, False), (False, True), (True, True)])
def test_conjugation_in_the_product(engine, conj, orders):
    rng = np.random.default_rng(14)
    for c_order in "CF":                               # a column-major C exchanges the operands
        run(engine, random(rng, (19, 30), "complex128"), random(rng, (30, 28), "complex128"),
            orders + c_order, conj=conj)


@pytest.mark.parametrize("conj_a", [False, True])
@pytest.mark.parametrize("conj_b", [False, True])
@pytest.mark.parametrize("a, b", [(1, 1), (1, 1j), (1j, 1), (1j, 1j), (2 - 3j, 5 + 7j)])
def test_every_sign_of_a_complex_product(engine, a, b, conj_a, conj_b):
    """One product at a time: real and imaginary parts that no other term hides."""
    x, y = np.full((9, 1), a, "c16"), np.full((1, 10), b, "c16")
    pa, pb, pc = place(x), place(y), place(np.full((9, 10), np.nan, "c16"))
    engine.run(plan_mma(gemm_problem(pa, pb, pc, conj=(conj_a, conj_b)), engine.device), a=pa, b=pb,
               c=pc)
    np.testing.assert_array_equal(pc.view, np.full((9, 10), (np.conj(a) if conj_a else a)
                                                   * (np.conj(b) if conj_b else b)))


@pytest.mark.parametrize("conj", [(False, False), (True, False), (False, True), (True, True)])
def test_small_complex_integers_are_those_of_fused_multiply_adds(engine, conj):
    """Nothing rounds, so the order of the sums does not matter: every bit is that of gemm_simt."""
    rng = np.random.default_rng(15)
    a, b = (rng.integers(-8, 9, (*s, 2)).astype(float).view("c16")[..., 0]
            for s in ((41, 100), (100, 45)))
    a[3], b[:, 5] = a[3].real, b[:, 5].real            # an imaginary part of +0
    results = []
    for planner in (plan_mma, plan_simt):
        pa, pb, pc = place(a), place(b, "F"), place(np.full((41, 45), np.nan, "c16"))
        engine.run(planner(gemm_problem(pa, pb, pc, conj=conj), engine.device), a=pa, b=pb, c=pc)
        results.append(pc.view.copy())
    np.testing.assert_array_equal(*(result.view("u8") for result in results))
    np.testing.assert_array_equal(
        results[0], (a.conj() if conj[0] else a) @ (b.conj() if conj[1] else b)
    )


def test_float64_has_the_bits_of_fused_multiply_adds(engine):
    """Both sum in the order of k and round every step, whatever the tile."""
    rng = np.random.default_rng(16)
    a, b = rng.standard_normal((70, 83)), rng.standard_normal((83, 45))
    results = []
    for planner in (plan_mma, plan_simt):
        pa, pb, pc = place(a), place(b), place(np.full((70, 45), np.nan))
        engine.run(planner(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
        results.append(pc.view.copy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64", "complex128"])
@pytest.mark.parametrize("c_order", "CF")
def test_slices_of_k_are_added_in_order(engine, monkeypatch, dtype, c_order):
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 32)
    rng = np.random.default_rng(8)
    k = {"int8": 16_000, "complex128": 1500}.get(dtype, 4000)
    plan = run(engine, random(rng, (33, k), dtype), random(rng, (k, 40), dtype), "CF" + c_order,
               alpha=3, beta=2)
    assert plan.config.slices > 2 and len(plan.launches) == 2


TILES = [(dtype, tile) for dtype in OUTPUT for tile in mma_tiles(mma_atom(dtype, "sm_90"), H200)]
THIN = [(dtype, tile) for dtype in OUTPUT for tile in thin_tiles(mma_atom(dtype, "sm_90"), H200,
                                                                 10**6)]


def is_thin(tile):
    """Whether a tile is for products with few columns or rows."""
    return any(replace(x, stages=tile.stages) == tile
               for x in thin_tiles(tile.atom, H200, 10**6, covered=True))


@pytest.fixture
def one_tile(monkeypatch):
    """Lets planning choose nothing but a tile."""
    def choose(tile):
        few, many = ([tile], []) if is_thin(tile) else ([], [tile])
        monkeypatch.setattr(planning, "thin_tiles", lambda *_: iter(few))
        monkeypatch.setattr(planning, "mma_tiles", lambda atom, device: iter(many))

    return choose


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype, tile", THIN, ids=lambda x: x if isinstance(x, str)
                         else f"{x.m}x{x.n}")
def test_tiles_for_few_columns_or_rows(engine, one_tile, dtype, tile, orders):
    """Ragged extents, more than one tile, and K in slices."""
    one_tile(tile)
    # elements that an asynchronous copy moves
    rng, step = np.random.default_rng(21), 2 if "16" in dtype else 1
    m, n = (tile.m + 8, tile.n - 5 * step) if tile.m > tile.n else (tile.m - 5 * step, tile.n + 8)
    for k in (5 * step, 7 * tile.k + 3 * step):
        run(engine, random(rng, (m, k), dtype), random(rng, (k, n), dtype), orders + "C")


@pytest.mark.parametrize("dtype, tile", TILES,
                         ids=lambda x: x if isinstance(x, str) else f"{x.m}x{x.n}")
def test_every_tile(engine, one_tile, dtype, tile):
    """Every tile that planning can choose, on a ragged problem a little larger than it."""
    one_tile(tile)
    rng = np.random.default_rng(9)
    run(engine, random(rng, (tile.m + 8, 80), dtype), random(rng, (80, tile.n + 16), dtype),
        "CFC")


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_large_tiles_that_divide_the_problem_have_no_predicates(engine, one_tile, dtype, orders):
    """Fewer steps along K than stages and more, with batches; next to what is there nothing may be
    read or written."""
    tiles = [tile for tile in mma_tiles(mma_atom(dtype, "sm_90"), H200)
             if (tile.m, tile.n) in ((128, 64), (64, 64))]
    rng = np.random.default_rng(17)
    for tile, steps in zip(tiles[:2] if dtype == "float64" else tiles * 2, (1, 6), strict=True):
        one_tile(tile)
        a, b = random(rng, (2, 2 * tile.m, steps * tile.k),
                      dtype), random(rng, (2, steps * tile.k, tile.n), dtype)
        plan = run(engine, a, b, orders + "C", beta=steps // 6, c_place={"pad": 2})
        assert "_aligned" in plan.launches[0].kernel.name
    plan = run(engine, random(rng, (2 * tile.m + 1, tile.k), dtype),
               random(rng, (tile.k, tile.n), dtype))
    assert "_aligned" not in plan.launches[0].kernel.name


@pytest.mark.parametrize("k, without", [(976, True), (968, False)])
def test_slices_of_k_without_predicates(engine, monkeypatch, one_tile, k, without):
    tile = next(mma_tiles(mma_atom("complex128", "sm_90"), H200))
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 32)
    one_tile(tile)
    rng = np.random.default_rng(18)
    plan = run(engine, random(rng, (tile.m, k), "complex128"),
               random(rng, (k, tile.n), "complex128"), "CFC")
    assert plan.config.slices > 2 and k % plan.config.chunk and ("_aligned" in plan.launches[0].kernel.name) == without


def test_complex128_has_the_bits_of_older_parts(engine):
    """An instruction adds four elements of k after the other four, in the order of the four
    instructions before sm_90."""
    rng = np.random.default_rng(19)
    a, b = random(rng, (70, 83), "complex128"), random(rng, (83, 45), "complex128")
    results, names = [], []
    for device in (engine.device, replace(engine.device, arch="sm_80")):
        pa, pb, pc = place(a), place(b), place(np.full((70, 45), np.nan, "c16"))
        plan = plan_mma(gemm_problem(pa, pb, pc), device)
        engine.run(plan, a=pa, b=pb, c=pc)
        results.append(pc.view.copy())
        names.append(plan.launches[0].kernel.name)
    assert "m8n8k8" in names[0] and "m8n8k4" in names[1]
    np.testing.assert_array_equal(*results)


def test_older_parts_multiply_shallower_matrices(engine):
    """sm_75: 16x8x8, two stages, and copies through registers; the same source runs everywhere."""
    older = replace(engine.device, arch="sm_75", shared_bytes_per_block=65536)
    rng = np.random.default_rng(10)
    a, b = random(rng, (70, 100), "float16"), random(rng, (100, 90), "float16")
    pa, pb, pc = place(a), place(b, "F"), place(np.full((70, 90), np.nan, "f4"))
    plan = plan_mma(gemm_problem(pa, pb, pc), older)
    assert "m16n8k8" in plan.launches[0].kernel.body and plan.launches[0].kernel.arch == "sm_75"
    assert plan.launches[0].kernel.shared_bytes <= 65536
    engine.run(plan, a=pa, b=pb, c=pc)
    check_tensor_cores(pc.view, a, b)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_older_parts_read_rows_that_begin_inside_of_words(engine, orders):
    older = replace(engine.device, arch="sm_75", shared_bytes_per_block=65536)
    rng = np.random.default_rng(34)
    a, b = random(rng, (35, 77), "float16"), random(rng, (77, 65), "float16")
    pa, pb, pc = place(a, orders[0]), place(b, orders[1]), place(np.full((35, 65), np.nan, "f2"))
    plan = plan_mma(gemm_problem(pa, pb, pc), older)
    assert "read as the words that cover their rows" in plan.reason and plan.launches[0].kernel.arch == "sm_75"
    engine.run(plan, a=pa, b=pb, c=pc)
    check_tensor_cores(pc.view, a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_integers_are_exact(engine, dtype):
    rng = np.random.default_rng(11)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    a, b = rng.integers(-8, 9, (40, 128)).astype(kind), rng.integers(-8, 9, (128, 48)).astype(kind)
    pa, pb, pc = place(a), place(b), place(np.full((40, 48), np.nan, "f4"))
    engine.run(plan_mma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a.astype("f4") @ b.astype("f4"))


def test_threads_in_any_order(engine):
    rng = np.random.default_rng(12)
    a, b = random(rng, (64, 256), "float16"), random(rng, (256, 64), "float16")
    pa, pb, pc = place(a), place(b), place(np.full((64, 64), np.nan, "f4"))
    for seed in range(3):
        engine.run(plan_mma(gemm_problem(pa, pb, pc), engine.device), seed=seed, a=pa, b=pb, c=pc)
        check_tensor_cores(pc.view, a, b)


def test_offsets_of_64_bits(engine):
    rng = np.random.default_rng(13)
    a, b = random(rng, (40, 64), "float16"), random(rng, (64, 48), "float16")
    pa, pb, pc = place(a), place(b), place(np.full((40, 48), np.nan, "f4"))
    problem = gemm_problem(pa, pb, pc)
    plan = plan_mma(problem, engine.device)
    launch = plan.launches[0]
    access = OperandAccess(1, 8), OperandAccess(0, 8), OperandAccess(1, 2)
    wide = gemm_mma(MmaConfig("float16", "float32", plan.config.tile, *access, wide=True))
    assert [p.name for p in wide.params] == [p.name for p in launch.kernel.params]
    engine.run(replace(plan, launches=(replace(launch, kernel=wide),)), a=pa, b=pb, c=pc)
    check_tensor_cores(pc.view, a, b)
    assert "_wide" in plan_mma(replace(problem, m=2**16, a=replace(problem.a, strides=(2**15, 1))),
                               H200).launches[0].kernel.name


@pytest.mark.parametrize("dtype", OUTPUT)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_no_bank_conflicts(dtype, orders):
    """Counted by the generator, for copies and fragments, in every order that the type allows."""
    if dtype == "int8" and orders != "CF":
        pytest.skip("8-bit operands are contiguous along K")
    x = np.zeros((512, 512), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    pc = place(np.zeros((512, 512), OUTPUT[dtype]))
    problem = gemm_problem(place(x, orders[0]), place(x, orders[1]), pc)
    read = [planning.vector_access(operand, (512, 512)) for operand in (problem.a, problem.b)]
    for tile in (*mma_tiles(mma_atom(dtype, "sm_90"), H200),
                 *thin_tiles(mma_atom(dtype, "sm_90"), H200, 10**6)):
        facts = gemm_mma(MmaConfig(dtype, OUTPUT[dtype], tile, *read,
                                   OperandAccess(1, 1 if dtype == "complex128" else 2))).facts
        shared = {name: text for name, text in facts.items() if name.startswith("shared")}
        assert len(shared) == 4 and all("no bank conflict" in text
                                        for text in shared.values()), (tile, shared)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("m, n, k, width", [(64, 96, 80, 4), (70, 36, 40, 4), (33, 22, 17, 2),
                                            (40, 21, 33, "w")])
@pytest.mark.parametrize("alpha, beta", [(1, 0), (2, 3)])
def test_results_of_two_bytes(engine, dtype, m, n, k, width, alpha, beta):
    """Every other tile: each has every size, and each type with one size or another."""
    rng, wide = np.random.default_rng(6), "float32"
    a, b, c = (random(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    pa, pb, pc = place(a), place(b), place(c, poison=np.nan)
    kinds = {"alpha": "one" if alpha == 1 else "value", "beta": "value" if beta else "zero"}
    alternatives = [*MMA.alternatives(gemm_problem(pa, pb, pc, **kinds), engine.device)]
    for alternative in alternatives[(k + (dtype == "float16")) % 2::2]:
        pc.view[...] = c if beta else np.nan
        plan = alternative.plan()
        assert f"k{width}_" in plan.launches[0].kernel.name or len(plan.launches) > 1
        engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
        want = alpha * (a.astype(wide) @ b.astype(wide)) + beta * c.astype(wide)
        np.testing.assert_allclose(pc.view.astype(wide), want, rtol=2.0**-7, atol=2.0**-7 * k**0.5)


COVERED = [*mma_tiles(mma_atom("float16", "sm_90"), H200),
           *thin_tiles(mma_atom("float16", "sm_90"), H200, 10**6, covered=True)]


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("tile", COVERED, ids=lambda x: f"{x.m}x{x.n}x{x.k} {x.min_blocks}")
def test_rows_that_begin_inside_of_words(engine, one_tile, tile, orders):
    """Of all three matrices, in a batch, at every edge of a tile; what is between rows is not a
    number."""
    one_tile(tile)
    rng, between = np.random.default_rng(31), {"pad": 2, "poison": np.nan}
    for m, n, k, where in ((tile.m + 5, tile.n - 1, tile.k + 1, between),
                           (tile.m - 1, tile.n + 3, tile.k - 1, {}),
                           (3, 5, 2 * tile.k + 7, {"offset": 2, **between})):
        a, b = random(rng, (2, m, k), "float16"), random(rng, (2, k, n), "float16")
        plan = run(engine, a, b, orders + "C", output="float16", a_place=where, b_place=where,
                   c_place=where)
        names = {"C": "kw", "F": "mw"}[orders[0]] + {"C": "mw", "F": "kw"}[orders[1]] + "kw"
        assert names in plan.launches[0].kernel.name and len(plan.launches) == 1


@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFF", "FFC"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("alpha, beta", [(1, 0), (-3, 2)])
def test_only_some_rows_that_begin_inside_of_words(engine, dtype, orders, alpha, beta):
    """One operand by vectors, the other one by words; in either order of C."""
    rng = np.random.default_rng(32)
    for m, n, k in ((33, 48, 65), (64, 31, 40), (21, 96, 64)):
        run(engine, random(rng, (m, k), dtype), random(rng, (k, n), dtype), orders, output=dtype,
            alpha=alpha, beta=beta)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_slices_of_rows_that_begin_inside_of_words(engine, monkeypatch, orders):
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 32)
    rng = np.random.default_rng(33)
    a, b = random(rng, (35, 1001), "float16"), random(rng, (1001, 17), "float16")
    pa, pb, pc = place(a, orders[0]), place(b, orders[1]), place(np.full((35, 17), np.nan, "f2"))
    plans = [x.plan() for x in MMA.alternatives(gemm_problem(pa, pb, pc), engine.device)
             if is_thin(x.plan().config.tile)]
    assert any(plan.config.slices > 2 for plan in plans)
    for plan in plans[::5]:
        pc.view[...] = np.nan
        engine.run(plan, a=pa, b=pb, c=pc)
        check_tensor_cores(pc.view, a, b)


def test_what_is_not_read_by_covering_words():
    """Where the word that covers the first element may begin before the array, and vectors."""
    x = place(np.zeros((63, 63), "f2"))
    for a, covering in ((x, True), (place(x.view, flip=(True, False)), False),
                        (place(x.view, offset=1), False), (place(x.view[:, :62]), False),
                        (place(np.zeros((63, 63), "f4")), False), (place(x.view[:1]), False)):
        assert planning._read(a.operand(), a.shape).covering == covering


def test_rows_are_moved_by_words():
    """All but what is alone in a word at an end of a row."""
    a, b, c = (place(np.ones((4, 63, 63), "f2")) for _ in range(3))
    plan = next(x for x in MMA.alternatives(gemm_problem(a, b, c), H200)
                if is_thin(x.plan().config.tile)).plan()
    moved = [x for x in counted(plan, a=a, b=b, c=c) if x.space == "global"]
    assert moved and all(x.bytes == 4 or x.bytes == 2 for x in moved)


def test_stores_of_two_bytes_fill_sectors():
    a, b, c = (place(np.ones(shape, "f2")) for shape in ((64, 48), (48, 96), (64, 96)))
    for alternative in MMA.alternatives(gemm_problem(a, b, c), H200):
        plan = alternative.plan()
        if len(plan.launches) == 1:
            written = [x for x in counted(plan, a=a, b=b, c=c) if x.space == "global" and x.write]
            assert written and not any(x.partial for x in written), alternative


def test_no_stages_that_a_short_sum_has_no_use_for():
    x = place(np.zeros((64, 32), "f2"))
    for alternative in MMA.alternatives(gemm_problem(x, place(np.zeros((32, 64), "f2")),
                                                     place(np.zeros((64, 64), "f2"))), H200):
        assert "_s2_" in alternative.plan().launches[0].kernel.name


def half(**changes):
    x = place(np.zeros((64, 64), "f2"))
    return replace(gemm_problem(x, x, place(np.zeros((64, 64), "f4"))), **changes)


def test_planning_takes_it_where_wgmma_does_not_apply():
    for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"):
        plan = plan_gemm(half(), replace(H200, arch=arch))
        assert plan.family == "gemm_mma" and "wgmma exists on sm_90 alone" in plan.reason
    unaligned = half(a=replace(half().a, alignment=4))
    plan = plan_gemm(unaligned, H200)
    assert plan.family == "gemm_mma" and "A is not aligned to 16 bytes" in plan.reason
    assert plan_gemm(half(m=2048, n=2048), H200).family == "gemm_wgmma"
    assert plan_gemm(half(precision="ieee"), replace(H200, arch="sm_80")).family == "gemm_simt"
    bfloat = half(a=replace(half().a, dtype="bfloat16"), b=replace(half().b, dtype="bfloat16"))
    plan = plan_gemm(bfloat, replace(H200, arch="sm_75"))
    assert plan.family == "gemm_simt" and "sm_75 has no mma.sync for bfloat16" in plan.reason


@pytest.mark.parametrize("change, why", [({"a": replace(half().a, dtype="float32")},
                                          "no mma.sync for float32"),
                                         ({"b": replace(half().b, dtype="bfloat16")},
                                          "no mma.sync for float16 and bfloat16"),
                                         ({"a": replace(half().a, dtype="int8"),
                                           "b": replace(half().b, dtype="int8")},
                                          "sums int8 in int32, but C is float32"),
                                         ({"precision": "ieee"}, "precision='ieee'"),
                                         ({"k": 0}, "nothing to multiply"),],
                         ids=lambda x: x if isinstance(x, str) else "")
def test_refusals(change, why):
    assert why in why_not_mma(half(**change), H200)
    with pytest.raises(ValueError, match=f"gemm_mma cannot compute this: .*{why}"):
        plan_mma(half(**change), H200)


def test_eight_bit_operands_lie_along_k():
    x, c = place(np.zeros((64, 64), "i1")), place(np.zeros((64, 64), "i4"))
    assert "8-bit operands must be contiguous along K, but B has strides (1, 64)" in why_not_mma(
        gemm_problem(x, x, c), H200
    )


def test_small_problems_take_small_tiles_and_deep_ones_are_split():
    def choice(m, n, k):
        x = half()
        return plan_mma(replace(x, m=m, n=n, k=k, a=replace(x.a, strides=(k, 1)),
                                b=replace(x.b, strides=(k, 1)), c=replace(x.c, strides=(n, 1))),
                        H200).config

    small, large = choice(64, 64, 64).tile, choice(8192, 8192, 512).tile
    assert small.m * small.n <= 64 * 64 < large.m * large.n
    assert choice(8192, 8192, 512).slices == 1 and choice(64, 64, 100_000).slices > 8


def test_misuse_is_refused():
    atom = mma_atom("float16", "sm_80")
    access = OperandAccess(1, 8)
    with pytest.raises(CodegenError, match="vectors of at most 2 elements of C along N"):
        gemm_mma(MmaConfig("float16", "float32", MmaTile(64, 64, 32, atom), access, access,
                           OperandAccess(0, 2)))
    with pytest.raises(CodegenError, match="do not divide the tile"):
        MmaTile(100, 64, 32, atom)
    with pytest.raises(CodegenError, match="an even number of steps"):
        gemm_mma(MmaConfig("float16", "float32", MmaTile(64, 64, 16, atom), access, access,
                           OperandAccess(1)))
    with pytest.raises(CodegenError, match="8-bit elements are contiguous along K"):
        tile = MmaTile(64, 64, 64, mma_atom("int8", "sm_80"))
        gemm_mma(MmaConfig("int8", "int32", tile, OperandAccess(0, 16), OperandAccess(1, 16),
                           OperandAccess(1)))
