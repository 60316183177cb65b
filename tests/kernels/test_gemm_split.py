"""float32 products on 16-bit tensor cores: planes, products, and the guard that decides which
algorithm is accurate enough."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.split.planes import FORMATS
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.gemm import planes, simt, split
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.split import plan_guarded, why_not_split
from cuteblas.planning.problem import Fusion, GemmProblem, Operand

from .engines import gemm_problem, outside, place, plan_split

U = 2.0**-24


def divide(monkeypatch, more=False):
    """Tiles are always divided, a wave more than those that are left if ``more``."""
    every = split._tilings

    def tilings(p, device, form):
        found = list(every(p, device, form))
        divided = sorted((t.divided, i) for i, t in enumerate(found) if t.divided)
        yield found[divided[-1 if more else 0][1] if divided else 0]

    monkeypatch.setattr(split, "_tilings", tilings)


@pytest.fixture(autouse=True)
def readings_by_these_constants():
    """Tests replace constants that cached readings follow from."""
    planes.readings_of.cache_clear()
    yield
    planes.readings_of.cache_clear()


def hopper(engine):
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")


def product(engine, a, b, plan_for, *, a_order="C", b_order="C", c_order="C", pad=0, scalars=(1, 0),
            before=None, **kinds):
    """C of a plan, and the memory around it checked."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    before = np.full(shape, np.nan, a.dtype) if before is None else before
    pa, pb = place(a, a_order, pad=pad), place(b, b_order, pad=pad)
    pc = place(before, c_order, pad=pad, poison=a.dtype.type(77))
    around = outside(pc)
    plan = plan_for(gemm_problem(pa, pb, pc, **kinds), engine.device)
    engine.run(plan, *scalars, a=pa, b=pb, c=pc)
    assert (pc.base[around] == 77).all()
    return pc.view.copy(), plan


def units(c, a, b):
    """The largest error in units of u |A||B|."""
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    return float((abs(c - wide_a @ wide_b) / (abs(wide_a) @ abs(wide_b) * U + 1e-300)).max())


def limit(k):
    """Rounding of the planes and products that are left out (8 in the worst case, which longer sums
    do not come near), one addition for every 64 of K, and truncation in tensor cores."""
    return 3 + 6 / k + np.sqrt(k / 64) + k * 2.0**-9 / 8


# Where rows are across K, blocks of 16 of them keep 1024 of K, and blocks of 32 keep 512.
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("k", [256, 513, 1537, 2195, 4097])
def test_rows_that_do_not_fit_into_one_block(engine, monkeypatch, k, many):
    """However many blocks share them, and from where elements come: planes are those of rows along
    K, and so is what is known."""
    hopper(engine)
    monkeypatch.setattr(planes, "_MANY_ROWS", 18 if many else 768)
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((20, k)).astype("f4"), rng.standard_normal((k, 18)).astype("f4")
    a[3, k - 1], b[k - 1, 17], b[0, 2] = 2.0**-40, 2.0**-41, 2.0**-42
    if k > 256:
        # all of a row is scaled by what is in one part of it
        a[4, k // 3], b[2 * k // 3, 5] = 40, -40
    across, mixed, along = (product(engine, a, b, plan_guarded, a_order=x, b_order=y)
                            for x, y in ("FC", "CC", "CF"))
    clusters = {256: (1, 1), 513: (2, 2), 1537: (2, 4), 2195: (4, 8), 4097: (8, 8)}[k][many]
    assert clusters_of(across[1]) == (clusters, clusters) and clusters_of(mixed[1]) == (1, clusters)
    assert clusters_of(along[1]) == (1, 1) and slots_of(along[1]) == (k % 4 > 0, k % 4 > 0)
    np.testing.assert_array_equal(across[0], along[0])
    np.testing.assert_array_equal(mixed[0], along[0])
    assert units(along[0], a, b) <= limit(k)


@pytest.mark.parametrize("element, m, n", [("f4", 272, 31), ("f4", 96, 40), ("f4", 31, 176),
                                           ("c8", 272, 31), ("c8", 80, 31)])
def test_a_cluster_has_blocks_of_one_operand(engine, monkeypatch, element, m, n):
    """Many rows are split by an odd number of blocks, few rows by clusters, which come first."""
    hopper(engine)
    monkeypatch.setattr(planes, "_MANY_ROWS", 64)
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal((*shape, 2)).astype("f4").view("c8")[..., 0] if element == "c8"
            else rng.standard_normal(shape).astype("f4") for shape in ((m, 293), (293, n)))
    c, plan = product(engine, a, b, lambda p, d: plan_split(p, d, "fp16x3"), a_order="F",
                      b_order="C")
    config = plan.launches[0].kernel
    assert config.cluster == (2, 1, 1) and plan.launches[0].grid[0] % 2 == 0
    assert abs(c - a.astype("c16") @ b.astype("c16")).max() < 1e-4


@pytest.mark.parametrize("k", [513, 1537, 2195, 4097])
def test_few_and_many_rows_across_k_share_a_launch(engine, monkeypatch, k):
    """Alone, few rows of 1537 would be shared by two blocks where many are by four, and of 2195 by
    four and eight."""
    hopper(engine)
    monkeypatch.setattr(planes, "_MANY_ROWS", 19)
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((20, k)).astype("f4"), rng.standard_normal((k, 18)).astype("f4")
    across, along = (product(engine, a, b, plan_guarded, a_order=x, b_order=y)
                     for x, y in ("FC", "CF"))
    size, slots = {513: (2, (4, 2)), 1537: (4, (4, 2)), 2195: (8, (4, 2)), 4097: (8, (6, 4))}[k]
    assert clusters_of(across[1]) == (size, size) and slots_of(across[1]) == slots
    np.testing.assert_array_equal(across[0], along[0])


@pytest.mark.parametrize("element", ["float32", "complex64"])
@pytest.mark.parametrize("k", [512, 1001, 2049, 4096, 8192, 65536])
def test_rows_across_k_of_any_number_can_be_planned(element, k):
    for m, n in itertools.product((300, 700, 768, 2049), repeat=2):
        operands = (Operand(element, strides) for strides in ((1, m), (1, n), (n, 1)))
        plan = plan_guarded(GemmProblem(m, n, k, *operands), H200)
        assert plan.family == "gemm_split"


@pytest.mark.parametrize("orders", ["FC", "CC", "FF"])
@pytest.mark.parametrize("element, pad", [("f4", 0), ("f4", 1), ("c8", 0), ("c8", 3)])
@pytest.mark.parametrize("clusters, k", [((1,), 2600), ((2,), 2600), ((8,), 130), ((4,), 1100)])
def test_every_cluster(engine, monkeypatch, element, orders, pad, clusters, k):
    """Little shared memory: of two slots, each is filled many times where few blocks share long
    rows; others find nothing to do."""
    hopper(engine)
    monkeypatch.setattr(planes, "_CLUSTERS", clusters)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-60, 61, s).astype(element) for s in ((2, 21, k), (2, k, 19)))
    if element == "c8":
        a.imag, b.imag = rng.integers(-60, 61, a.shape), rng.integers(-60, 61, b.shape)
    small = replace(engine.device, shared_bytes_per_block=12 << 10)
    c, plan = product(engine, a, b, lambda p, _device: plan_guarded(p, small), a_order=orders[0],
                      b_order=orders[1], pad=pad)
    assert k < 2600 or slots_of(plan) == (2, 2)
    assert max(clusters_of(plan)) == plan.launches[0].kernel.cluster[0] == clusters[0]
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("cluster", [1, 2, 8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_blocks_of_a_cluster_count_is_added(engine, monkeypatch, cluster, order):
    """A row of A, or a column of B, has small elements in several parts of K: three are few enough
    for what the other offers."""
    hopper(engine)
    monkeypatch.setattr(planes, "_CLUSTERS", (cluster,))
    k, at = 1030, [3, 700, 1029, 400]
    rng = np.random.default_rng(cluster)
    long, short = rng.standard_normal((20, k)).astype("f4"), rng.standard_normal((24, k)).astype("f4")
    short[23] = 0
    short[23, 500:520] = 1                      # offers 10
    for few in (True, False):
        long[7, at[:3 if few else 4]] = 2.0**-35
        a, b = (long, short.T) if order == "C" else (short, long.T)
        orders = {"a_order": "F", "b_order": "C"}
        c, plan = product(engine, a, b, plan_guarded, **orders)
        want, _plan = product(engine, a, b, (lambda p, d: plan_split(p, d, "fp16x3")) if few
                              else plan_simt, **orders)
        assert clusters_of(plan) == (cluster, cluster)
        np.testing.assert_array_equal(c, want)


def slots_of(plan):
    """Steps of rows of A and of B that are in shared memory while they are split."""
    return tuple(int(slots or 0) for slots in re.findall(r"_(?:o|s(\d+))(?:_c\d)?_b\d",
                                                         plan.launches[0].kernel.name))


def clusters_of(plan):
    """Blocks that share rows of A and of B."""
    return tuple(int(blocks or 1) for blocks in re.findall(r"_(?:o|s\d+)(?:_c(\d))?_b\d",
                                                           plan.launches[0].kernel.name))


@pytest.mark.parametrize("b_order", ["C", "F"])
@pytest.mark.parametrize("n", [200, 201])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("form", FORMATS)
def test_every_tile(engine, monkeypatch, form, number, n, b_order):
    """Rows of C by TMA and by warps."""
    hopper(engine)
    tile = split.TILES[form][number]
    monkeypatch.setitem(split.TILES, form, (tile,))
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((140, 130)).astype("f4"), rng.standard_normal((130, n)).astype("f4")
    c, plan = product(engine, a, b, lambda p, d: plan_split(p, d, form), b_order=b_order)
    assert plan.config.tile == (tile.rows, tile.columns)
    assert plan.config.staged == ("rows" if n % 4 else "tma")
    assert units(c, a, b) <= limit(130)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("m, n, k, batch, blocks, scalars", [
    (200, 200, 600, (), 3, (1, 0)),      # 4 tiles and more
    (200, 201, 601, (), 7, (1.5, 0.5)),  # parts smaller than a tile: up to three of one, some
                                         # neither begin nor end it
    (100, 100, 1100, (), 5, (1, 0)),     # one tile
    (130, 70, 450, (3,), 5, (-1, 1)),    # tiles of three matrices
    (300, 500, 200, (), 7, (1, 0)),      # 12 to 40 tiles, of which no more than 13 are divided
])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("more", [True, False])
def test_tiles_whose_depth_is_divided(engine, monkeypatch, more, form, number, m, n, k, batch,
                                      blocks, scalars):
    """All of K, once: sums of small integers are exact. What whole waves leave is divided, or a
    wave more."""
    hopper(engine)
    tile = split.TILES[form][number]
    monkeypatch.setitem(split.TILES, form, (tile,))
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-60, 61, s).astype("f4") for s in ((*batch, m, k), (*batch, k, n)))
    before = rng.integers(-60, 61, (*batch, m, n)).astype("f4")
    alpha, beta = scalars
    divide(monkeypatch, more)
    device = replace(engine.device, multiprocessors=blocks)
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    c, plan = product(engine, a, b, lambda p, _device: plan_split(p, device, form), scalars=scalars,
                      before=before, **kinds)
    assert plan.config.divided and plan.launches[1].grid == (blocks, 1, 1)
    np.testing.assert_array_equal(c, alpha * (a @ b) + beta * before)


def test_divided_tiles_of_complex_numbers(engine, monkeypatch):
    """Parts of sums are exchanged as the real numbers that they are."""
    hopper(engine)
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-30, 31, s).astype("c8") + 1j * rng.integers(-30, 31, s)
            for s in ((150, 300), (300, 100)))
    divide(monkeypatch)
    device = replace(engine.device, multiprocessors=5)
    c, plan = product(engine, a.astype("c8"), b.astype("c8"),
                      lambda p, _device: plan_guarded(p, device))
    assert plan.config.divided
    np.testing.assert_array_equal(c, (a @ b).astype("c8"))


def test_gated_slices_are_added_by_few_blocks(engine):
    """More tiles than blocks; what runs natively is what native arithmetic gives by itself, bit for
    bit."""
    hopper(engine)
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((130, 600)).astype("f4"), rng.standard_normal((600, 530)).astype("f4")
    a[3, 5] = np.inf
    c, plan = product(engine, a, b, plan_guarded)
    reduction = plan.launches[-1]
    assert reduction.kernel.name.startswith("reduce_split") and reduction.grid[0] == 264 < -(
        -130 // 32
    ) * -(-530 // 8)
    native, _plan = product(engine, a, b, plan_simt)
    np.testing.assert_array_equal(c, native)


@pytest.mark.parametrize("span, expected", [(60, "bf16x6"), (140, "ieee")])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("multiprocessors, cluster", [(1, 1), (3, 2), (5, 4)])
def test_what_is_behind_the_gate_has_few_blocks(engine, monkeypatch, orders, span, expected,
                                                multiprocessors, cluster):
    """A small device: each block, or cluster, splits many groups of rows, and multiplies many
    tiles, one after the other."""
    hopper(engine)
    monkeypatch.setattr("cuteblas.planning.gemm.split._THIRD", -1e9)
    monkeypatch.setattr(planes, "_CLUSTERS", (cluster,))
    monkeypatch.setitem(simt._TILES, "float32",
                        tuple(tile for tile in simt._TILES["float32"]
                              if (tile.m, tile.n) == (32, 32)))
    a, b = graded(span, np.random.default_rng(8), 150, 330, 170)
    small = replace(engine.device, multiprocessors=multiprocessors)
    c, plan = product(engine, a, b, lambda p, _device: plan_guarded(p, small), a_order=orders[0],
                      b_order=orders[1])
    values = [{q.name: argument.value for q, argument in zip(launch.kernel.params, launch.arguments,
                                                             strict=True)}
              for launch in plan.launches]
    assert plan.launches[2].grid[0] < values[2]["blocks"] and plan.launches[4].grid[0] < values[4]["blocks"]
    assert plan.launches[2].grid[0] % plan.launches[2].kernel.cluster[0] == 0
    if expected == "ieee":
        want, _plan = product(engine, a, b, lambda p, _device: plan_simt(p, small),
                              a_order=orders[0], b_order=orders[1])
    else:
        want, _plan = product(engine, a, b, lambda p, _device: plan_split(p, small, expected),
                              a_order=orders[0], b_order=orders[1])
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("value", [None, np.nan])
def test_a_verdict_on_tiles_that_are_divided(engine, monkeypatch, value):
    """Blocks with several tiles leave after the first one, and none waits for sums of others."""
    hopper(engine)
    monkeypatch.setattr(split, "TILES", {form: tiles[2:] for form, tiles in split.TILES.items()})
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-60, 61, s).astype("f4") for s in ((200, 300), (300, 200)))
    if value is not None:
        a[150, 299] = value
    divide(monkeypatch)
    device = replace(engine.device, multiprocessors=3)
    c, plan = product(engine, a, b, lambda p, _device: plan_guarded(p, device))
    assert plan.config.divided and len(plan.launches) > 2
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_any_magnitude(engine, form):
    """Rows and columns are scaled by powers of two: nothing overflows or underflows where the
    result does not."""
    hopper(engine)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((40, 70)), rng.standard_normal((70, 24))
    exponents = rng.integers(-140, 120, (40, 1))
    exponents[0], exponents[1] = 126, -148
    a = (a * np.exp2(exponents)).astype("f4")
    b = (b * np.exp2(rng.integers(-3, 3, (1, 24)))).astype("f4")
    a[2] = 0
    c, _plan = product(engine, a, b, lambda p, d: plan_split(p, d, form))
    want = a.astype("f8") @ b.astype("f8")
    sums = abs(a.astype("f8")) @ abs(b.astype("f8"))
    with np.errstate(over="ignore"):
        finite = np.isfinite(want.astype("f4"))
        np.testing.assert_array_equal(c[~finite], want.astype("f4")[~finite])
    assert (abs(c - want)[finite] <= limit(70) * U * sums[finite]
            + 2.0**-149).all() and not np.isnan(c).any()


@pytest.mark.parametrize("form", FORMATS)
def test_small_integers_are_exact(engine, form):
    hopper(engine)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-60, 61, s).astype("f4") for s in ((70, 300), (300, 40)))
    c, _plan = product(engine, a, b, lambda p, d: plan_split(p, d, form), a_order="F")
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("alpha, beta", [(1.5, 0), (-2.0, 0.5), (1, 1)])
def test_alpha_beta_and_epilogue(engine, alpha, beta):
    hopper(engine)
    rng = np.random.default_rng(5)
    a, b, before = (rng.standard_normal(s).astype("f4") for s in ((40, 70), (70, 36), (40, 36)))
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    given = before if beta else np.full_like(before, np.nan)
    c, _plan = product(engine, a, b, lambda p, d: plan_split(p, d, "fp16x3"), scalars=(alpha, beta),
                       before=given.copy(), **kinds)
    want = alpha * (a.astype("f8") @ b) + (beta * before if beta else 0)
    sums = abs(alpha) * (abs(a) @ abs(b)) + abs(beta * before)
    assert (abs(c - want) <= (limit(70) + 3) * U * sums).all()
    relu = EpilogueGraph("relu", Node("maximum", "float32",
                                      (Node("acc", "float32"),
                                       Node("constant", "float32", value=0))))
    c, _plan = product(engine, a, b, lambda p, d: plan_guarded(replace(p, fusion=Fusion(relu)), d))
    assert (abs(c - np.maximum(a.astype("f8") @ b, 0)) <= limit(70) * U
            * (abs(a) @ abs(b))).all() and (c == 0).any()


# -- who decides -----------------------------------------------------------------------------------
def graded(span, rng, m=33, n=20, k=200):
    """A D and D^-1 B: all products have one magnitude, elements range over 2^span."""
    d = np.exp2(np.linspace(-span / 2, span / 2, k))
    return (rng.standard_normal((m, k))
            * d).astype("f4"), (rng.standard_normal((k, n)) / d[:, None]).astype("f4")


@pytest.fixture
def with_bf16x6(monkeypatch):
    """Guarded plans as those of products that are large enough for three algorithms."""
    monkeypatch.setattr("cuteblas.planning.gemm.split._THIRD", -1e9)


@pytest.mark.parametrize("span, expected", [(0, "fp16x3"), (20, "fp16x3"), (60, "bf16x6"),
                                            (80, "bf16x6"), (140, "ieee")])
@pytest.mark.usefixtures("with_bf16x6")
def test_the_device_takes_what_is_accurate_enough(engine, span, expected):
    hopper(engine)
    a, b = graded(span, np.random.default_rng(6))
    c, plan = product(engine, a, b, plan_guarded)
    assert len(plan.launches) == 5
    if expected == "ieee":
        want, _plan = product(engine, a, b, plan_simt)
    else:
        want, _plan = product(engine, a, b, lambda p, d: plan_split(p, d, expected))
    np.testing.assert_array_equal(c, want)
    assert units(c, a, b) <= limit(200) + (10 if expected == "ieee" else 0)


def test_without_bf16x6_the_device_falls_back_to_native_arithmetic(engine):
    hopper(engine)
    a, b = graded(60, np.random.default_rng(7))
    c, plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, plan_simt)
    assert len(plan.launches) == 3
    np.testing.assert_array_equal(c, want)


def test_a_few_tiny_elements_among_many_do_not_matter(engine):
    """One element in a row is far below the others, as in every large random matrix: the row of the
    other operand offers enough."""
    hopper(engine)
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((40, 200)).astype("f4"), rng.standard_normal((200, 24)).astype("f4")
    a[3, 7], b[9, 4] = 2.0**-40, -(2.0**-33)
    c, _plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, lambda p, d: plan_split(p, d, "fp16x3"))
    np.testing.assert_array_equal(c, want)
    assert units(c, a, b) <= limit(200)


def test_a_tiny_element_that_is_alone_matters(engine):
    """Where the other operand is zero except at the tiny element, fp16x3 would lose it."""
    hopper(engine)
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((40, 200)).astype("f4"), np.zeros((200, 24), "f4")
    a[:, 7] = rng.standard_normal(40).astype("f4") * 2.0**-40
    b[7] = rng.standard_normal(24)
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= 2


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["a", "b"])
def test_infinities_and_nans_are_where_ieee_puts_them(engine, value, where):
    hopper(engine)
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((20, 70)).astype("f4"), rng.standard_normal((70, 24)).astype("f4")
    (a if where == "a" else b)[3, 5] = value
    c, _plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, plan_simt)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("matrix, row", [(0, 0), (0, 15), (1, 20), (1, 39)])
def test_the_device_looks_at_every_row_of_every_matrix(engine, order, where, matrix, row):
    """One row in one matrix of a batch has an infinity: the whole product falls back, whichever
    block of the splitter found it."""
    hopper(engine)
    rng = np.random.default_rng(15)
    a, b = rng.standard_normal((2, 40, 70)).astype("f4"), rng.standard_normal((2, 70, 40)).astype("f4")
    (a if where == "a" else b.swapaxes(1, 2))[matrix, row, 5] = np.inf
    c, _plan = product(engine, a, b, plan_guarded, a_order=order, b_order=order)
    want, _plan = product(engine, a, b, plan_simt, a_order=order, b_order=order)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shared", ["a", "b"])
def test_the_device_looks_at_rows_of_broadcast_operands(engine, order, shared):
    """The operand that all products share has a row with too many small elements for what the last
    row of the other one offers."""
    hopper(engine)
    rng = np.random.default_rng(16)
    a, b = rng.standard_normal((3, 40, 200)).astype("f4"), rng.standard_normal((3, 200, 40)).astype("f4")
    own, other = (a, b.swapaxes(1, 2)) if shared == "a" else (b.swapaxes(1, 2), a)
    own[:] = own[:1]
    own[:, 39, :5] *= np.float32(2.0**-30)
    rest = other[2, 39, 40:].copy()
    other[2, 39, 40:] = 0
    for enough in (False, True):
        if enough:
            other[2, 39, 40:] = rest
        pa, pb = place(a, order), place(b, order)
        pc = place(np.full((3, 40, 40), np.nan, "f4"))
        if shared == "a":
            pa = replace(pa, strides=(0, *pa.strides[1:]))
        else:
            pb = replace(pb, strides=(0, *pb.strides[1:]))
        results = []
        for plan_for in (plan_guarded, plan_simt, lambda p, d: plan_split(p, d, "fp16x3")):
            pc.view[...] = np.nan
            engine.run(plan_for(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
            results.append(pc.view.copy())
        guarded, native, split = results
        assert not np.array_equal(native, split)
        np.testing.assert_array_equal(guarded, split if enough else native)


def test_subnormal_operands_keep_their_bits(engine):
    hopper(engine)
    rng = np.random.default_rng(11)
    a = (rng.integers(-1000, 1001, (20, 70)) * 2.0**-149).astype("f4")
    b = (rng.standard_normal((70, 24)) * 2.0**100).astype("f4")
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= limit(70)


# -- planning --------------------------------------------------------------------------------------
def square(n, element="f4", **kinds):
    x = place(np.zeros((2, 2), element))
    p = gemm_problem(x, x, x, **kinds)
    return replace(p, m=n, n=n, k=n, a=replace(p.a, strides=(n, 1)), b=replace(p.b, strides=(1, n)),
                   c=replace(p.c, strides=(n, 1)))


def test_large_products_are_split_small_ones_are_not():
    assert all(plan_gemm(square(n), H200).family == "gemm_simt" for n in (128, 320))
    assert all(plan_gemm(square(n), H200).family == "gemm_split" for n in (2048, 8192))
    assert plan_gemm(square(4096, precision="ieee"), H200).family == "gemm_simt"
    thin = replace(square(4096), k=32)
    assert plan_gemm(thin, H200).family == "gemm_simt"


def test_an_algorithm_by_name_is_what_runs():
    for name, form in FORMATS.items():
        plan = plan_gemm(square(256, precision=name), H200)
        assert plan.config.format == name and form.element in plan.reason and len(plan.launches) == 2


@pytest.mark.parametrize("change, why", [({"k": 0}, "nothing to multiply"),
                                         ({"m": 2**31}, "coordinates"),
                                         ({"compute": "float64"}, "summed in float64"),
                                         ({"batch": (2, 2, 2)}, "more than 2 batch modes"),])
def test_refusals(change, why):
    p = square(64)
    if "batch" in change:
        p = replace(p, a=replace(p.a, batch_strides=(1, 2, 3)),
                    b=replace(p.b, batch_strides=(1, 2, 3)))
    p = replace(p, **change)
    assert why in why_not_split(p, H200)
    with pytest.raises(ValueError, match=why):
        plan_split(p, H200, "fp16x3")
    assert "sm_90 alone" in why_not_split(square(64), replace(H200, arch="sm_80"))


def test_a_third_algorithm_is_there_where_it_pays():
    formats = [{launch.kernel.name.split("_")[2] for launch in plan_gemm(square(n), H200).launches
                if launch.kernel.name.startswith("gemm_split")} for n in (1024, 4096)]
    assert formats == [{"fp16x3"}, {"fp16x3", "bf16x6"}]


def test_tiles_are_narrow_where_that_gives_more_multiprocessors_work():
    assert [plan_gemm(square(n), H200).config.columns for n in (1024, 4096)] == [64, 128]


@pytest.mark.parametrize("n, pitch", [(1001, 1024), (2500, 2560), (257, 320), (250, 256),
                                      (130, 136)])
def test_long_rows_of_planes_begin_at_lines(n, pitch):
    """Of 128 bytes, so that TMA reads each part of a row from one of them; short ones would take
    more room than they need."""
    splitting = plan_guarded(square(n), H200).launches[0]
    values = {q.name: argument.value for q, argument in zip(splitting.kernel.params,
                                                            splitting.arguments, strict=True)}
    assert values["dPA_row"] == values["dPB_row"] == pitch


@pytest.mark.parametrize("n", [4096, 2560])
def test_the_workspace_is_no_more_than_planes_and_what_is_known_of_rows(n):
    """And a tile of sums for each block, where tiles are divided, of bf16x6 at least."""
    plan = plan_gemm(square(n), H200)
    assert plan.workspace_bytes <= 2 * n * n * 6 + 2 * n * 12 + 4096 + 132 * (4 * 128 * 128 + 8)


@pytest.mark.parametrize("n, divided", [(1536, 144), (2048, 0), (2049, 157), (2560, 136),
                                        (4096, 100), (8192, 136)])
def test_what_is_divided(n, divided):
    """The tiles after whole waves, or these and one more wave if they are few."""
    launch = plan_gemm(square(n), H200).launches[1]
    values = dict(zip((q.name for q in launch.kernel.params), launch.arguments, strict=True))
    assert (values["divided"].value if "divided" in values else 0) == divided
