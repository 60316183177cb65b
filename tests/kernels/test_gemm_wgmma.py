"""``gemm_wgmma``: TMA, mbarriers and warpgroup matrix instructions, in the emulator and on a Hopper
GPU."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm.wgmma import WgmmaConfig, gemm_wgmma
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.ring import WgmmaTile
from cuteblas.planning.gemm.wgmma import _divisions, plan_wgmma, why_not_wgmma
from cuteblas.planning.plan import aligned
from cuteblas.planning.problem import Fusion

from .engines import check_tensor_cores, gemm_problem, outside, place

ml_dtypes = pytest.importorskip("ml_dtypes")


def values(rng, shape, dtype):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def hopper(engine):
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")


def run(engine, a, b, output, *, alpha=1, beta=0, c_order="C", a_order="C", b_order="C", c_pad=0,
        c_step=1, blocks=None, device=None, exact=False, **choice):
    hopper(engine)
    shape = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    kind = ml_dtypes.bfloat16 if output == "bfloat16" else output
    rng = np.random.default_rng(5)
    before = np.full(shape, np.nan, kind)
    if beta:
        before = (rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape)).astype(kind)
    pa, pb, pc = place(a, a_order), place(b, b_order), place(before, c_order, pad=c_pad,
                                                             step=c_step, poison=np.nan)
    problem = gemm_problem(pa, pb, pc, alpha="one" if alpha == 1 else "value",
                           beta={0: "zero", 1: "one"}.get(beta, "value"))
    assert why_not_wgmma(problem, H200) is None
    plan = plan_wgmma(problem, device or engine.device, **choice)
    if blocks:
        plan = replace(plan, launches=(replace(plan.launches[0], grid=(blocks, 1, 1)),))
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    if exact:
        want = alpha * (a.astype("f4") @ b.astype("f4")) + (beta * before if beta else 0)
        np.testing.assert_array_equal(pc.view, want.astype(kind))
    else:
        check_tensor_cores(pc.view, a, b, alpha=alpha, beta=beta, before=before)
    assert np.isnan(pc.base[outside(pc)].astype(float)).all(), "memory outside of C was written"
    return plan


@pytest.mark.parametrize("element, output", [("float16", "float32"), ("bfloat16", "float32")])
def test_c_of_another_type(engine, element, output):
    rng = np.random.default_rng(2)
    run(engine, values(rng, (64, 64), element), values(rng, (64, 72), element), output)


@pytest.mark.parametrize("m, n, k", [(1, 8, 8), (8, 8, 8), (129, 264, 72), (64, 8, 520),
                                     (136, 520, 64)])
def test_ragged_sizes_and_many_stages(engine, m, n, k):
    rng = np.random.default_rng(3)
    run(engine, values(rng, (m, k), "float16"), values(rng, (k, n), "float16"), "float32", c_pad=1)


@pytest.mark.parametrize("batch", [(3,), (2, 2)])
def test_batches_and_a_persistent_grid(engine, batch):
    """Fewer blocks than tiles: stages and phases run on from tile to tile."""
    rng = np.random.default_rng(6)
    run(engine, values(rng, (*batch, 72, 128), "float16"),
        values(rng, (*batch, 128, 264), "float16"), "float32", blocks=2)


CLUSTERS = [WgmmaTile(2, 64, 3, 2), WgmmaTile(1, 128, 3, 2), WgmmaTile(1, 128, 2, 4),
            WgmmaTile(2, 256, 4, 2)]


@pytest.mark.parametrize("tile", CLUSTERS, ids=str)
@pytest.mark.parametrize("orders", ["CCC", "FCC", "CFF", "FFC"])
def test_clusters(engine, tile, orders):
    """Odd numbers of tiles: blocks of a cluster that have no tile of C still bring their part of
    what the others multiply."""
    rng = np.random.default_rng(9)
    a, b = values(rng, (136, 200), "float16"), values(rng, (200, 72), "float16")
    plan = run(engine, a, b, "float16", a_order=orders[0], b_order=orders[1], c_order=orders[2],
               tile=tile)
    assert plan.launches[0].grid[0] % tile.cluster == 0 and plan.launches[
        0
    ].kernel.cluster == (tile.cluster, 1, 1)


SHAPES = [WgmmaTile(1, 192, 3), WgmmaTile(2, 96, 3), WgmmaTile(2, 160, 3), WgmmaTile(3, 32, 3),
          WgmmaTile(3, 96, 5), WgmmaTile(1, 48, 3), WgmmaTile(2, 320, 3), WgmmaTile(3, 224, 3),
          WgmmaTile(2, 192, 3, 2), WgmmaTile(2, 224, 3, 2),
          WgmmaTile(1, 64, 3, 2), WgmmaTile(2, 320, 3, 2),
          WgmmaTile(3, 192, 3, 2)]


@pytest.mark.parametrize("tile", SHAPES, ids=str)
@pytest.mark.parametrize("orders, pad, batch, beta", [
    ("CCC", 0, (), 0), ("FCC", 8, (2,), 2), ("CFF", 1, (), 0), ("FFC", 0, (), 1)])
def test_shapes_of_tiles(engine, tile, orders, pad, batch, beta):
    """More tiles than blocks. Columns that are not whole lines of 128 bytes, whose pieces of C may
    be odd in number; three warpgroups; more columns than an instruction has. Pairs that cut an
    MN-major B along K, as its lines are odd in number."""
    rng = np.random.default_rng(18)
    a, b = values(rng, (*batch, 200, 136), "float16"), values(rng, (*batch, 136, 328), "float16")
    plan = run(engine, a, b, "float16", a_order=orders[0], b_order=orders[1], c_order=orders[2],
               c_pad=pad, beta=beta, tile=tile, blocks=tile.cluster)
    assert plan.config.staged == ("rows" if pad == 1 else "tma")


@pytest.mark.parametrize("tile", [WgmmaTile(1, 192, 3), WgmmaTile(3, 96, 3), WgmmaTile(2, 128, 3),
                                  WgmmaTile(1, 128, 3, 2)], ids=str)
@pytest.mark.parametrize("orders", ["CCC", "FFC", "CFF", "FCF"])
@pytest.mark.parametrize("m, n, k, batch", [(392, 8, 72, ()), (8, 40, 136, (2,)),
                                            (40, 392, 64, ())])
def test_boxes_beyond_an_operand_are_not_brought(engine, tile, orders, m, n, k, batch):
    rng = np.random.default_rng(19)
    a, b = values(rng, (*batch, m, k), "float16"), values(rng, (*batch, k, n), "float16")
    plan = run(engine, a, b, "float16", a_order=orders[0], b_order=orders[1], c_order=orders[2],
               tile=tile, blocks=tile.cluster)
    assert plan.config.clipped and "clipped" in plan.launches[0].kernel.name


@pytest.mark.parametrize(
    "n, order, tile, clipped",
    [
        (1472, "C", WgmmaTile(3, 96, 5), True),
        (1472, "F", WgmmaTile(3, 96, 5), True),
        (1536, "C", WgmmaTile(3, 96, 5), False),
        # half a line of B, and 16 rows of it
        (1504, "C", WgmmaTile(3, 96, 5), True),
        (1520, "F", WgmmaTile(3, 96, 5), False),
        (1600, "C", WgmmaTile(2, 192, 4), False),
        (2624, "C", WgmmaTile(2, 224, 4), True),
        (2624, "F", WgmmaTile(2, 224, 4), False),
    ]
)
def test_boxes_are_clipped_where_tma_is_what_a_stage_waits_for(n, order, tile, clipped):
    """And where whole boxes are outside of an operand: of 64 rows, or of a line of an MN-major
    one."""
    a, b, c = Operand("float16", (n, 1)), Operand("float16",
                                                  (1, n) if order == "C"
                                                  else (n, 1)), Operand("float16", (n, 1))
    config = plan_wgmma(GemmProblem(n, n, n, a, b, c), H200, tile).config
    assert config.clipped == clipped
    assert max(box.rows for box in config.boxes) <= 64 or not clipped


@pytest.mark.parametrize("output, stages", [("float16", 5), ("float32", 4)])
def test_fewer_stages_where_pieces_of_c_are_larger(output, stages):
    x = Operand("float16", (1536, 1))
    plan = plan_wgmma(GemmProblem(1536, 1536, 1536, x, x, Operand(output, (1536, 1))), H200,
                      WgmmaTile(3, 96, 5))
    assert plan.config.stages == stages and plan.launches[0].kernel.shared_bytes <= H200.shared_bytes_per_block


@pytest.mark.parametrize("tile", CLUSTERS[:3], ids=str)
@pytest.mark.parametrize("alpha, beta, pad", [(1, 0, 8), (2, 3, 0), (1, 0, 1)])
def test_clusters_walk_over_batches(engine, tile, alpha, beta, pad):
    """One cluster for all tiles; C is written by TMA, or by threads where its rows are not
    multiples of 16 bytes."""
    rng = np.random.default_rng(10)
    a, b = values(rng, (2, 2, 72, 128), "bfloat16"), values(rng, (2, 2, 128, 136), "bfloat16")
    plan = run(engine, a, b, "float32", alpha=alpha, beta=beta, c_pad=pad, tile=tile,
               blocks=tile.cluster)
    staged, why = ("tma", "by TMA") if pad != 1 else ("rows", "by threads: the strides")
    assert plan.config.staged == staged and why in plan.reason


@pytest.mark.parametrize("orders, beta, c_pad", [("CCC", 0, 0), ("FCF", 2, 0), ("CFC", 1, 3)])
def test_slices_of_k_are_added_in_order(engine, orders, beta, c_pad):
    rng = np.random.default_rng(12)
    a, b = values(rng, (2, 72, 4096), "float16"), values(rng, (2, 4096, 40), "float16")
    plan = run(engine, a, b, "float16", beta=beta, a_order=orders[0], b_order=orders[1],
               c_order=orders[2], c_pad=c_pad)
    assert len(plan.launches) == 2 and re.search("K in .* slices of .*, added in order",
                                                 plan.reason)


@pytest.mark.parametrize("m, n, k", [
    *((n, n, n) for n in (2048, 2112, 2176, 2304, 2560, 2688, 3072, 3712, 4096, 4416, 8192)),
    (5120, 5120, 4096), (4352, 4096, 4096), (128, 128, 65536), (128, 128, 65600),
])
def test_tilings_leave_few_multiprocessors_idle(m, n, k):
    """Where whole waves of tiles would, K is sliced or tiles are divided, which takes a launch
    before or after the product."""
    a, b, c = Operand("float16", (k, 1)), Operand("float16", (1, n)), Operand("float16", (n, 1))
    plan = plan_wgmma(GemmProblem(m, n, k, a, b, c), H200)
    config, sliced = plan.config, re.search("K in ([0-9]+) slices", plan.reason)
    slices = int(sliced.group(1)) if sliced else 1
    waves = -(-(-(-m // config.rows) * -(-n // config.columns) * slices) // H200.multiprocessors)
    assert config.staged == "tma" and len(plan.launches) == 1 + (slices > 1 or config.divided)
    assert all(launch.grid[0] <= H200.multiprocessors
               for launch in plan.launches[:1 + config.divided])
    assert config.divided == ("of them divided" in plan.reason)
    assert config.divided or m * n * slices > 0.77 * waves * H200.multiprocessors * config.rows * config.columns


@pytest.mark.parametrize("m, n, paired", [(2048, 2048, False), (3584, 3584, False),
                                          (4096, 4096, True), (12288, 4096, True),
                                          (16256, 8192, False)])
def test_pairs_of_large_tiles_share_b(m, n, paired):
    """From three waves on; an odd number of rows of tiles would leave half of a pair without work,
    in one wave more."""
    a, b, c = Operand("float16", (4096, 1)), Operand("float16", (1, n)), Operand("float16", (n, 1))
    plan = plan_wgmma(GemmProblem(m, n, 4096, a, b, c), H200)
    assert (plan.config.cluster == 2) == paired and (
        "clusters of 2 x 1 blocks" in plan.reason
    ) == paired
    assert plan.config.columns == 256 or not paired
    a, b, c = Operand("float32", (4096, 1)), Operand("float32", (4096, 1)), Operand("float32", (n, 1))
    # not measured
    assert plan_wgmma(GemmProblem(m, n, 4096, a, b, c, precision="tf32"),
                      H200).config.cluster == 1


@pytest.mark.parametrize("n, inside", [*((n, True)
                                         for n in (1000, 2056, 2200, 2552, 3000, 4104, 5000)),
                                       *((n, False) for n in (2560, 3008, 3712))])
@pytest.mark.parametrize("order", "CF")
def test_blocks_share_operands_whose_rows_begin_inside_of_sectors(n, inside, order):
    """Always B, the wider one; then no tiles are divided."""
    a, b, c = Operand("float16", (n, 1)), Operand("float16",
                                                  (1, n) if order == "C"
                                                  else (n, 1)), Operand("float16", (n, 1))
    config = plan_wgmma(GemmProblem(n, n, n, a, b, c), H200).config
    assert config.cluster == (2 if inside else 1) and not (inside and config.divided)


@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_one_operand_whose_rows_begin_inside_of_sectors(engine, orders):
    """Pairs of blocks at the edge, where one of them has no tile of C."""
    rng = np.random.default_rng(17)
    run(engine, values(rng, (264, 200), "float16"), values(rng, (200, 392), "float16"), "float16",
        a_order=orders[0], b_order=orders[1], tile=WgmmaTile(2, 128, 2, 2))


def test_tiles_are_not_divided_where_there_is_no_memory_for_sums():
    a, b, c = Operand("float16", (4096, 1)), Operand("float16", (1, 5120)), Operand("float16", (5120, 1))
    plan = plan_wgmma(GemmProblem(5120, 5120, 4096, a, b, c),
                      replace(H200, workspace_limit=1 << 20))
    assert len(plan.launches) == 1 and plan.workspace_bytes == 0


def test_results_do_not_depend_on_the_schedule(engine):
    rng = np.random.default_rng(11)
    a, b = values(rng, (72, 128), "float16"), values(rng, (128, 72), "float16")
    hopper(engine)
    results = []
    for seed in (None, 1, 2):
        pa, pb, pc = place(a), place(b), place(np.full((72, 72), np.nan, "f4"))
        engine.run(plan_wgmma(gemm_problem(pa, pb, pc), engine.device, CLUSTERS[0]), seed=seed,
                   a=pa, b=pb, c=pc)
        results.append(pc.view.copy())
    assert all((x == results[0]).all() for x in results)


# -- tiles that are divided ------------------------------------------------------------------------
@pytest.mark.parametrize("columns, order, some",
                         [(192, "C", True), (224, "C", False), (224, "F", True)])
def test_boxes_of_narrow_lines_are_not_divided(columns, order, some):
    """The thread that brings them would have more to remember than registers."""
    n = 5120
    a, b, c = Operand("float16", (n, 1)), Operand("float16",
                                                  (1, n) if order == "C"
                                                  else (n, 1)), Operand("float16", (n, 1))
    problem = GemmProblem(n, n, n, a, b, c)
    assert any(_divisions(problem, H200, WgmmaTile(2, columns, 4))) == some


DIVIDED = [WgmmaTile(2, 256, 4), WgmmaTile(2, 192, 4), WgmmaTile(1, 64, 8), WgmmaTile(2, 320, 3),
           WgmmaTile(3, 96, 4)]


@pytest.mark.parametrize("m, n, k, batch, blocks, divided, kinds", [
    # some tiles are divided, others are whole
    (200, 520, 328, (), 3, 2, {}),
    # parts smaller than a tile: some neither begin nor end it
    (200, 264, 600, (), 7, 4, {"alpha": 2, "beta": 3}),
    (64, 64, 1104, (), 5, 1, {"output": "float16"}),            # one tile
    # tiles of three matrices; C is written by warps
    (130, 72, 456, (3,), 5, 6, {"beta": 1, "c_pad": 1}),
    (72, 136, 264, (2, 2), 4, 4, {"c_order": "F", "a_order": "F", "b_order": "F"}),
    (100, 520, 128, (), 9, 3, {"c_step": 2}),    # some blocks have no part; C is written by threads
])
@pytest.mark.parametrize("tile", DIVIDED, ids=str)
def test_tiles_whose_depth_is_divided(engine, tile, m, n, k, batch, blocks, divided, kinds):
    """All of K, once: sums of small integers are exact."""
    hopper(engine)
    device = replace(engine.device, multiprocessors=blocks)
    divided = min(divided, tile.clusters(GemmProblem(m, n, k, *3 * (Operand("float16", (1, 1)),),
                                                     batch)))
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, s).astype("f2") for s in ((*batch, m, k), (*batch, k, n)))
    plan = run(engine, a, b, kinds.get("output", "float32"), exact=True, device=device, tile=tile,
               divided=divided, **{name: x for name, x in kinds.items() if name != "output"})
    assert plan.config.divided and plan.launches[1].grid == (blocks, 1, 1)


@pytest.mark.parametrize("scale", [0, 1.5])
def test_divided_tiles_with_scalars_in_device_memory(engine, scale):
    """Where alpha turns out to be zero, nothing is summed, and no block waits for another one."""
    hopper(engine)
    rng = np.random.default_rng(13)
    a, b, before = (rng.integers(-3, 4, s).astype("f2")
                    for s in ((150, 304), (304, 200), (150, 200)))
    pa, pb, pc = place(a), place(b), place(before.astype("f4"))
    scalars = [place(np.full((1, 1), x, "f4")) for x in (scale, 2)]
    problem = gemm_problem(pa, pb, pc, alpha="device", beta="device")
    plan = plan_wgmma(problem, replace(engine.device, multiprocessors=5), DIVIDED[2], 9)
    engine.run(plan, a=pa, b=pb, c=pc, operands=dict(zip(("alpha", "beta"), scalars, strict=True)))
    np.testing.assert_array_equal(pc.view, scale * (a.astype("f4") @ b.astype("f4")) + 2 * before)


def test_divided_tiles_with_an_epilogue(engine):
    hopper(engine)
    rng = np.random.default_rng(14)
    a, b = (rng.integers(-3, 4, s).astype("f2") for s in ((150, 304), (304, 200)))
    relu = EpilogueGraph("relu", Node("maximum", "float32",
                                      (Node("acc", "float32"),
                                       Node("constant", "float32", value=0))))
    pa, pb, pc = place(a), place(b), place(np.full((150, 200), np.nan, "f2"))
    problem = replace(gemm_problem(pa, pb, pc), fusion=Fusion(relu))
    engine.run(plan_wgmma(problem, replace(engine.device, multiprocessors=5), DIVIDED[2], 7), a=pa,
               b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, np.maximum(a.astype("f4") @ b.astype("f4"),
                                                      0).astype("f2"))


def test_divided_tiles_are_the_same_in_every_run(engine):
    """Bit for bit, whichever block is faster and whatever an earlier run left in the workspace."""
    hopper(engine)
    rng = np.random.default_rng(15)
    results = []
    for other, seed in ((False, None), (True, 1), (False, 2), (False, 3)):
        a, b = values(np.random.default_rng(16 + other), (200, 600),
                      "float16"), values(rng, (600, 264), "float16")
        pa, pb, pc = place(a), place(np.ones_like(b)), place(np.full((200, 264), np.nan, "f4"))
        plan = plan_wgmma(gemm_problem(pa, pb, pc), replace(engine.device, multiprocessors=7),
                          DIVIDED[2], 20)
        engine.run(plan, seed=seed, a=pa, b=pb, c=pc)
        check_tensor_cores(pc.view, a, pb.view)
        results.append(pc.view.copy())
    assert (results[0] == results[2]).all() and (results[0] == results[3]).all() and (results[0] != results[1]).any()


@pytest.mark.parametrize("tile", DIVIDED, ids=str)
def test_flags_are_cleared_before_they_are_looked_at(tile):
    """All of them, where the workspace begins, before the sums."""
    operand = Operand("float16", (4096, 1))
    plan = plan_wgmma(GemmProblem(4096, 4096, 4096, operand, operand, operand), H200, tile, 116)
    clear, product = ({q.name: x for q, x in zip(launch.kernel.params, launch.arguments,
                                                 strict=True)} for launch in plan.launches)
    blocks = plan.launches[1].grid[0]
    assert clear["words"] == product["flags"] and clear["count"].value == tile.groups * blocks
    sums = product["sums"].offset
    assert clear["words"].offset == 0 and sums == aligned(4 * clear["count"].value)
    assert plan.workspace_bytes == sums + 4 * 64 * tile.groups * tile.columns * blocks


def test_broadcast_batch(engine):
    hopper(engine)
    rng = np.random.default_rng(7)
    a, b = values(rng, (1, 24, 64), "float16"), values(rng, (3, 64, 32), "float16")
    pa, pb, pc = place(a), place(b), place(np.full((3, 24, 32), np.nan, "f4"))
    pa.shape, pa.strides = (3, 24, 64), (0, *pa.strides[1:])
    engine.run(plan_wgmma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_allclose(pc.view, a.astype("f4") @ b.astype("f4"), rtol=0, atol=1e-4)


def test_small_integers_are_exact(engine):
    rng = np.random.default_rng(8)
    a, b = rng.integers(-8, 9, (40, 128)).astype("f2"), rng.integers(-8, 9, (128, 48)).astype("f2")
    pa, pb, pc = place(a), place(b), place(np.full((40, 48), np.nan, "f4"))
    engine.run(plan_wgmma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.view, a.astype("f4") @ b.astype("f4"))


def problem(**changes):
    x = place(np.zeros((64, 64), "f2"))
    return replace(gemm_problem(x, x, x), **changes)


@pytest.mark.parametrize("change, why", [({"a": replace(problem().a, dtype="float32")},
                                          "float16 or bfloat16"),
                                         ({"precision": "ieee"}, "precision='ieee'"),
                                         ({"k": 0}, "nothing to multiply"),
                                         ({"a": replace(problem().a, strides=(2, 3))},
                                          "no mode of A has stride 1"),
                                         ({"b": replace(problem().b, strides=(1, 63))},
                                          "strides .* of B are not positive multiples of 16 bytes"),
                                         ({"a": replace(problem().a, strides=(-64, 1))},
                                          "positive multiples"),
                                         ({"a": replace(problem().a, alignment=8)},
                                          "A is not aligned"),],
                         ids=lambda x: x if isinstance(x, str) else "")
def test_planning_says_why_not_and_takes_another_kernel(change, why):
    p = problem(**change)
    assert re.search(why, why_not_wgmma(p, H200))
    if p.a.dtype == "float16":
        plan = plan_gemm(p, replace(H200, workspace_limit=0))     # no memory for copies of operands
        assert plan.family in ("gemm_simt", "gemm_mma") and re.search(why, plan.reason)


def test_other_architectures_use_another_kernel():
    older = replace(H200, arch="sm_80")
    assert "sm_90 alone" in plan_gemm(problem(), older).reason
    x = Operand("float16", (512, 1))
    assert plan_gemm(GemmProblem(512, 512, 512, x, x, x), H200).family == "gemm_wgmma"


def test_misuse_is_refused():
    with pytest.raises(CodegenError, match="cannot form clusters"):
        gemm_wgmma(WgmmaConfig("float16", "float32", cluster=2, divided=True))
    with pytest.raises(CodegenError, match="vectors of at most 2 elements of C along N"):
        gemm_wgmma(WgmmaConfig("float16", "float32", c=OperandAccess(0, 2)))
    with pytest.raises(CodegenError, match="8 to 256 columns"):
        gemm_wgmma(WgmmaConfig("float16", "float32", columns=260))
