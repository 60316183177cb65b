"""``gemm_simt``: tiles, chains of sums and slices, in the emulator and on a GPU; what it shares
with other families is in test_products.py."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm.simt import SimtConfig, TileShape, gemm_simt
from cuteblas.planning import H200, GemmProblem, Operand
from cuteblas.planning.gemm import simt
from cuteblas.planning.gemm.family import Choice
from cuteblas.planning.gemm.simt import candidates, plan_simt, summing

from .engines import check_product, gemm_problem, multiply, place, random

FLOATS = ["float32", "float64", "complex64", "complex128"]
SIZES = [(1, 1, 1), (1, 7, 3), (5, 1, 2), (3, 4, 0), (16, 16, 16), (31, 33, 15), (32, 32, 17),
         (65, 63, 64), (127, 129, 31), (13, 257, 100)]


@pytest.mark.parametrize("m, n, k", SIZES)
def test_sizes_on_both_sides_of_tile_edges(engine, m, n, k):
    rng = np.random.default_rng(3)
    multiply(engine, plan_simt, random(rng, (m, k), "float32"), random(rng, (k, n), "float32"))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "float16"])
@pytest.mark.parametrize("alpha, beta", [(1, 0), (3, 2)])
def test_slices_of_k_are_added_in_order(engine, dtype, alpha, beta):
    rng = np.random.default_rng(11)
    a, b = random(rng, (2, 20, 1030), dtype), random(rng, (2, 1030, 24), dtype)
    plan = multiply(engine, plan_simt, a, b, alpha=alpha, beta=beta)
    assert plan.config.slices > 1 and len(plan.launches) == 2 and plan.workspace_bytes > 0
    assert "slices" in plan.reason


@pytest.mark.parametrize("dtype, candidate", [(d, c) for d in FLOATS for c in candidates(d)],
                         ids=str)
def test_every_tile(engine, monkeypatch, dtype, candidate):
    """Every tile that planning can choose, on a ragged problem a little larger than it, in the
    orders that load it differently."""
    monkeypatch.setattr(simt, "candidates", lambda element: (candidate,))
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 10**9)
    rng = np.random.default_rng(12)
    t = candidate
    # C is row-major, so the plan transposes the problem
    m, n, k = t.n + 4, t.m + 8, 2 * t.k * t.stages + 4
    a, b = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
    for orders in ("CC", "FF") if t.m * t.n <= 64 * 64 else ("CC",):
        plan = multiply(engine, plan_simt, a, b, orders + "C")
        assert (plan.config.tile.m, plan.config.tile.n, plan.config.tile.warps) == (
            t.m,
            t.n,
            t.warps
        )


@pytest.mark.parametrize("orders", ["".join(o) for o in itertools.product("CF", repeat=2)])
@pytest.mark.parametrize("tile, k", [(0, 8), (0, 16), (0, 88), (1, 40)])
def test_extents_that_the_tile_divides_need_no_predicates(engine, monkeypatch, orders, tile, k):
    """Fewer steps along K than stages of the ring, and more; what is beyond the last step is not
    read."""
    candidate = candidates("float32")[tile]
    monkeypatch.setattr(simt, "candidates", lambda element: (candidate,))
    rng = np.random.default_rng(16)
    t = candidate
    a, b = random(rng, (t.n, k), "float32"), random(rng, (k, t.m), "float32")
    for kinds in ({}, {"alpha": 3, "beta": 2}) if k == 88 else ({},):
        plan = multiply(engine, plan_simt, a, b, orders + "C", **kinds)
        assert "_aligned" in plan.launches[0].kernel.name and (plan.config.tile.m,
                                                               plan.config.tile.n) == (t.m, t.n)


def test_slices_of_k_without_predicates(engine, monkeypatch):
    candidate = candidates("float32")[0]
    monkeypatch.setattr(simt, "candidates", lambda element: (candidate,))
    rng = np.random.default_rng(17)
    t = candidate
    a, b = random(rng, (t.n, 1048), "float32"), random(rng, (1048, t.m), "float32")
    plan = multiply(engine, plan_simt, a, b, alpha=2)
    assert plan.config.slices > 1 and 1048 % plan.config.chunk and "_aligned" in plan.launches[0].kernel.name


def test_extents_that_the_tile_does_not_divide_have_predicates():
    first = candidates("float32")[0]
    for more in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        m, n, k = (e + extra for e, extra in zip((8 * first.m, 16 * first.n, 1024), more,
                                                 strict=True))
        row = Operand("float32", (k, 1), (), False, 16)
        plan = plan_simt(GemmProblem(m, n, k, row, row, Operand("float32", (1, m), (), False, 16)),
                         H200)
        assert "_aligned" not in plan.launches[0].kernel.name


@pytest.mark.parametrize("element", FLOATS)
def test_half_a_warp_reads_vectors_in_one_wavefront(element):
    """A lane reads the same of A as the lane that differs in bit 1, and the same of B as the one
    that differs in bit 0."""
    for candidate in candidates(element):
        mma = candidate.mma
        for operand, bit in ((mma.tv_a, 2), (mma.tv_b, 1)):
            assert all(operand((lane, 0)) == operand((lane ^ bit, 0))
                       for lane in range(candidate.threads)), candidate


@pytest.mark.parametrize("dtype, candidate", [(d, c) for d in ("float32", "complex64")
                                              for c in candidates(d)], ids=str)
def test_sums_in_chunks(engine, dtype, candidate):
    """Ones that are added to 2^24 one by one are lost; chunks of ones are not, but for those of the
    first."""
    t = candidate
    for k in (300, 2100):
        a, b = np.ones((5, k), dtype), np.ones((k, 7), dtype)
        a[:, 0] = 2.0**24
        pa, pb, pc = place(a), place(b), place(np.full((5, 7), np.nan, dtype))
        plan = plan_simt(gemm_problem(pa, pb, pc), engine.device, choice=Choice(t, 1, k, 1))
        engine.run(plan, a=pa, b=pb, c=pc)
        tiles = -(-k // t.k)
        chunk = t.chunk(tiles)
        lost = 2**24 + k - 1 - pc.view.real.astype(float)
        assert chunk * t.k <= 1024 and (abs(lost) < chunk * t.k + tiles // chunk).all(), (
            k,
            chunk,
            lost
        )


def lost_ones(engine, dtype, k, large, tile=None, slices=1):
    """How many ones beside a 2^24 at ``large`` are lost: those that are added to it one by one."""
    a, b = np.ones((5, k), dtype), np.ones((k, 7), dtype)
    a[:, large] = 2.0**24
    pa, pb, pc = place(a), place(b), place(np.full((5, 7), np.nan, dtype))
    choice = None if tile is None else Choice(tile, slices, -(-k // slices), slices,
                                              turn=64 * (slices > 1))
    plan = plan_simt(gemm_problem(pa, pb, pc), engine.device, choice=choice)
    engine.run(plan, a=pa, b=pb, c=pc)
    lost = 2**24 + k - 1 - pc.view.real.astype(float)
    assert (lost == lost[0, 0]).all()
    return lost[0, 0]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("k", [64, 65, 128])
def test_chains_of_a_short_k(engine, dtype, k):
    """Other libraries add chains of 8 elements one after the other: 8 + k/8 ones at least are lost
    in the first."""
    assert lost_ones(engine, dtype, k, 0) <= -(-k // 8) + 1


@pytest.mark.parametrize("tile, k", [(0, 2048), (0, 2100), (1, 2048), (1, 2005)])
def test_slices_of_one_chain_take_turns(engine, tile, k):
    """A sum that grows to the end of K is not that of the last slice alone: the last eighth is
    added by all slices."""
    single = replace(candidates("float32")[tile], totals=None)
    lost = lost_ones(engine, "float32", k, k - k // 8, single, slices=4)
    assert lost <= 64 + 16, lost


@pytest.mark.parametrize("orders", ["".join(o) for o in itertools.product("CF", repeat=2)])
@pytest.mark.parametrize("k, slices", [(512, 2), (513, 4), (575, 3), (640, 3), (449, 7)])
def test_turns_of_slices(engine, orders, k, slices):
    """Every element of K belongs to one slice, with and without predicates, in turns that are whole
    or not; batches too."""
    rng = np.random.default_rng(21)
    single = replace(candidates("float32")[0], totals=None)
    for batch, extents in (((), (128, 256)), ((2,), (9, 12))):
        a, b = (rng.integers(-9, 10, (*batch, *s)).astype("f4")
                for s in ((extents[0], k), (k, extents[1])))
        pa, pb, pc = place(a, orders[0]), place(b, orders[1]), place(np.full((*batch, *extents), np.nan, "f4"))
        choice = Choice(single, slices, -(-k // (64 * slices)) * 64,
                        slices * len(a) if batch else slices, turn=64)
        plan = plan_simt(gemm_problem(pa, pb, pc), engine.device, choice=choice)
        assert "turns64" in plan.launches[0].kernel.name and "that take turns of 64" in plan.reason
        engine.run(plan, a=pa, b=pb, c=pc)
        np.testing.assert_array_equal(pc.view, a @ b)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("slices", [2, 3, 4, 5, 7, 33])
def test_slices_are_added_in_chains(engine, dtype, slices):
    """The first of many slices is added to a fourth of the others, or their sums, in order."""
    tile = candidates(dtype)[-1]
    small = replace(tile, chains=1)
    k = 16 * slices
    a, b = np.zeros((5, k), dtype), np.ones((k, 7), dtype)
    a[:, ::16] = 1
    a[:, 0] = 2.0**24
    pa, pb, pc = place(a), place(b), place(np.full((5, 7), np.nan, dtype))
    engine.run(plan_simt(gemm_problem(pa, pb, pc), engine.device,
                         choice=Choice(small, slices, 16, slices)), a=pa, b=pb, c=pc)
    lost = 2**24 + slices - 1 - pc.view.real.astype(float)
    assert (lost <= (slices - 1) // 4 + 2).all(), lost


def test_small_integers_in_floats_are_exact(engine):
    rng = np.random.default_rng(13)
    for dtype in FLOATS:
        a, b = (rng.integers(-9, 10, s).astype(dtype) for s in ((40, 300), (300, 36)))
        pa, pb, pc = place(a), place(b), place(np.full((40, 36), np.nan, dtype))
        engine.run(plan_simt(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
        np.testing.assert_array_equal(pc.view, a @ b)


def test_nan_and_inf_stay_in_their_rows_and_columns(engine):
    a, b = np.ones((40, 50), "f4"), np.ones((50, 44), "f4")
    a[3, 7], a[39, 49], b[0, 43] = np.nan, np.inf, -np.inf
    pa, pb, pc = place(a), place(b), place(np.zeros((40, 44), "f4"))
    engine.run(plan_simt(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a @ b)


def test_beta_zero_does_not_read_c_and_alpha_zero_neither_a_nor_b(engine):
    nan = np.full((20, 20), np.nan, "f4")
    ones = np.ones((20, 20), "f4")
    pa, pb, pc = place(ones), place(ones), place(nan)
    engine.run(plan_simt(gemm_problem(pa, pb, pc, alpha="value"), engine.device), 2.0, a=pa, b=pb,
               c=pc)
    np.testing.assert_array_equal(pc.view, 40 * ones)
    pa, pb, pc = place(nan), place(nan), place(ones)
    engine.run(plan_simt(gemm_problem(pa, pb, pc, alpha="zero", beta="value"), engine.device), 0.0,
               3.0, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, 3 * ones)


def test_results_are_the_same_bit_for_bit_in_any_order_of_threads(engine):
    rng = np.random.default_rng(14)
    a, b = random(rng, (40, 700), "float32"), random(rng, (700, 36), "float32")
    results = []
    for seed in (None, 1, 2):
        pa, pb, pc = place(a), place(b), place(np.zeros((40, 36), "f4"))
        engine.run(plan_simt(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc, seed=seed)
        results.append(pc.view.tobytes())
    assert len(set(results)) == 1


def test_offsets_of_64_bits(engine):
    """The same kernel with 64-bit offsets, and a plan that needs them."""
    rng = np.random.default_rng(15)
    a, b = random(rng, (36, 20), "float32"), random(rng, (20, 40), "float32")
    pa, pb, pc = place(a), place(b), place(np.full((36, 40), np.nan, "f4"))
    problem = gemm_problem(pa, pb, pc)
    plan = plan_simt(problem, engine.device)
    huge = plan_simt(replace(problem, m=2**17, a=replace(problem.a, strides=(2**15, 1))),
                     engine.device)
    assert "_wide" in huge.launches[0].kernel.name and "_wide" not in plan.launches[0].kernel.name
    launch = plan.launches[0]
    access = OperandAccess(0, 4), OperandAccess(1), OperandAccess(0, 4)
    wide = gemm_simt(SimtConfig("float32", "float32", plan.config.tile, *access, wide=True))
    assert [p.name for p in wide.params] == [p.name for p in launch.kernel.params]
    engine.run(replace(plan, launches=(replace(launch, kernel=wide),)), a=pa, b=pb, c=pc)
    check_product(pc.view, a, b, "float32")


def test_tiles_that_do_not_divide_are_refused():
    access = OperandAccess(0, 1), OperandAccess(0, 1), OperandAccess(0, 1)
    with pytest.raises(CodegenError, match="does not divide"):
        gemm_simt(SimtConfig("float32", "float32", TileShape(96, 64, 8), *access))
    with pytest.raises(CodegenError, match="stride 1"):
        OperandAccess(None, 4)


@pytest.mark.parametrize("order", ["MN-major", "K-major"])
def test_shared_memory_without_bank_conflicts(order):
    """float32 tiles meet every bank once, whichever way A and B come in; tiles of 16 rows are too
    narrow for full vectors."""
    for candidate in candidates("float32"):
        tile = candidate
        operand = OperandAccess(0, 4) if order == "MN-major" else OperandAccess(1)
        facts = gemm_simt(SimtConfig("float32", "float32", tile, operand, operand,
                                     OperandAccess(0, 4))).facts
        shared = {what: text for what, text in facts.items() if what.startswith("shared")
                  and not what.endswith("sT")}
        conflicts = {what for what, text in shared.items() if "no bank conflict" not in text}
        narrow = {f"shared store s{name}" for name, extent in (("A", tile.m), ("B", tile.n))
                  if order == "MN-major" and extent < 32}
        assert len(shared) == 4 and conflicts == narrow, (str(tile), shared)


@pytest.mark.parametrize("element", ["float64", "complex64"])
@pytest.mark.parametrize("operand", [OperandAccess(0, 2), OperandAccess(1)],
                         ids=["MN-major", "K-major"])
def test_elements_of_8_bytes_are_stored_without_bank_conflicts(element, operand):
    for candidate in candidates(element):
        facts = gemm_simt(SimtConfig(element, element, candidate, operand, operand,
                                     OperandAccess(0, 2))).facts
        assert all("no bank conflict" in facts[f"shared store s{name}"] for name in "AB"), candidate


def test_where_large_tiles_have_totals():
    """Where few blocks have a long K; not where shared memory is too small for them, nor in
    groups."""
    large = next(x for x in candidates("float32") if (x.m, x.n) == (256, 128))

    def totals(depth, blocks, device=H200, slices=1):
        return summing(large, depth, blocks, 4, device, slices).totals

    assert totals(4096, 128) == "shared" and totals(2048, 128) is totals(16384, 512) is None
    assert totals(2048, 128, slices=2) == "shared" and totals(1024, 128, slices=2) is None
    assert totals(16384, 128, replace(H200, shared_bytes_per_block=101376)) is None
    for each in candidates("float32"):
        kernel = gemm_simt(SimtConfig("float32", "float32", each, *3 * (OperandAccess(0, 1),)))
        assert abs(kernel.shared_bytes - each.shared_bytes(4)) < 256 and each.totals


def test_where_small_tiles_have_more_chains():
    """Where all blocks run at once with the registers for them; not where how many there are is
    unknown, as in groups."""
    for element, per_multiprocessor in (("float32", 4), ("complex64", 2)):
        small, most = candidates(element)[-1 if element == "complex64"
                                          else 6], per_multiprocessor * H200.multiprocessors
        assert small.chains == 4 == summing(small, 100, 0, 4, H200).chains == summing(small, 100, most + 1, 4, H200).chains
        more = summing(small, 100, most, 4, H200)
        assert more.chains == 8 and more.min_blocks == per_multiprocessor


def test_slices_that_take_turns_are_of_a_plain_k():
    tile, access = TileShape(64, 64, 16), 3 * (OperandAccess(0, 1),)
    for options in ({"turn": 24, "split_k": True}, {"turn": 64},
                    {"turn": 64, "split_k": True, "modes": (1, 1, 2)}):
        with pytest.raises(CodegenError, match="slices that take turns"):
            gemm_simt(SimtConfig("float32", "float32", tile, *access, batch_modes=1, **options))


def test_the_source_is_for_people():
    """Tiles, partitions and copies by name; no PTX; no address outside of the prelude's calls."""
    access = OperandAccess(0, 4), OperandAccess(1), OperandAccess(0, 4)
    body = gemm_simt(SimtConfig("float32", "float32", TileShape(128, 128, 8), *access)).body
    for name in ("tAgA", "tAsA", "tCsA", "tCrC", "tCgC", "tCcC"):
        assert name in body
    assert "asm" not in body and "__syncthreads" not in body and "no bank conflict" in body
