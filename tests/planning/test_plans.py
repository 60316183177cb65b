"""Plans: pure, printable, hashable, and chosen for reasons that they state."""

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product

import pytest

from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.common import OperandAccess
from cuteblas.planning import H200, CopyProblem, GemmProblem, Operand, plan_copy, plan_gemm
from cuteblas.planning.gemm import simt, split
from cuteblas.planning.gemm.mma import MMA
from cuteblas.planning.gemm.simt import SIMT, candidates, plan_simt
from cuteblas.planning.gemm.wgmma import plan_wgmma, why_not_wgmma
from cuteblas.planning.operands import (
    bind,
    fused,
    oriented,
    span,
    vector_access,
    why_not_mapped,
)
from cuteblas.planning.plan import Workspace, place
from cuteblas.planning.problem import Fusion, transposed


def square(size, dtype="float32", **changes):
    row_major = Operand(dtype, (size, 1))
    return replace(GemmProblem(size, size, size, row_major, Operand(dtype, (1, size)), row_major),
                   **changes)


def test_planning_needs_no_gpu_library():
    code = (
        "import sys\nfrom cuteblas.planning import *\nplan_copy(CopyProblem((64, 64), (1, 64), (64, 1), 4), H200)\n"
        "assert not {'cupy', 'cuda', 'numpy.linalg._linalg_cupy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plans_are_values():
    plan = plan_gemm(square(256), H200)
    assert plan_gemm(square(256), H200) is plan
    assert pickle.loads(pickle.dumps(plan)) == plan and hash(plan) == hash(
        pickle.loads(pickle.dumps(plan))
    )
    assert plan.source.count('extern "C" __global__') == len(plan.launches)


def test_arguments_follow_the_parameters():
    problems = [square(300), square(64, k=100_000), square(128, "float16"),
                square(96, "complex64", alpha="value", beta="value")]
    for plan in [plan_gemm(p, H200) for p in problems] + [
        plan_copy(CopyProblem((50, 60), (1, 50), (60, 1), 2), H200)
    ]:
        for launch in plan.launches:
            assert len(launch.arguments) == len(launch.kernel.params)
            for p, a in zip(launch.kernel.params, launch.arguments, strict=True):
                assert (p.kind == "scalar") == (a.role in (None, "alpha", "beta")), (p, a)
                assert (p.kind == "tensor_map") == (a.tensor_map is not None)


def test_large_products_take_large_tiles_and_small_ones_small():
    tiles = [plan_gemm(square(n, precision="ieee"), H200).config.tile for n in (32, 512, 4096)]
    areas = [tile.m * tile.n for tile in tiles]
    assert areas == sorted(areas) and areas[0] <= 2048 and areas[-1] == 256 * 128


@pytest.mark.parametrize("a, b", list(product([(1, 4096), (4096, 1)], repeat=2)))
def test_large_products_have_the_largest_tile_in_every_order(a, b):
    """A row-major C is computed as C^T = B A^T: the plan's first operand is B."""
    config = plan_gemm(square(4096, a=Operand("float32", a), b=Operand("float32", b),
                              precision="ieee"), H200).config
    assert config.tile.m * config.tile.n == 256 * 128


def test_plans_are_made_without_their_kernels(monkeypatch):
    def refused(config):
        raise AssertionError(config)

    for module in (simt, split):
        for name in ("gemm_simt", "gemm_split", "split_planes"):
            monkeypatch.setattr(module, name, refused, raising=False)
    plan = plan_gemm(square(1234), H200)
    assert plan.family == "gemm_split" and len(plan.launches) > 2 and plan.launches[0].grid
    with pytest.raises(AssertionError):
        assert plan.launches[0].kernel


def test_a_kernel_is_bound_to_what_it_declares():
    """A value without a parameter is left out; a parameter without a value is an error."""
    for k in (64, 100_000):
        problem = square(64, k=k, beta="value", precision="ieee")
        (p, _note), plan = oriented(problem, 0), plan_simt(problem, H200)
        last = plan.launches[-1]

        def generated(_config, last=last):
            return last.kernel

        own = {"W": place("workspace"), "S": plan.config.slices} if k > 64 else {"chunk": 16}
        bound = bind(generated, None, p, last.grid[0], **own)
        assert bound.arguments == last.arguments
    with pytest.raises(TypeError, match="is missing S, W"):
        assert bind(generated, None, p, last.grid[0]).kernel


@pytest.mark.parametrize("a, b, wide", [((1, 4092), (4092, 1), "128x256"),
                                        ((4092, 1), (1, 4092), "256x128")])
def test_with_predicates_a_tile_costs_less_if_its_wide_side_is_the_one_that_is_read_in_vectors(
    a, b, wide
):
    def seconds(tile, **operands):
        problem = square(4092, precision="ieee", **operands)
        return next(x.seconds(H200) for x in SIMT.alternatives(problem, H200)
                    if str(x).startswith(f"gemm_simt {tile} "))

    turned = {"a": Operand("float32", b), "b": Operand("float32", a)}
    assert seconds(wide, a=Operand("float32", a), b=Operand("float32", b)) < seconds(wide, **turned)


def test_a_wide_tile_for_few_columns():
    p = GemmProblem(132 * 256, 128, 1024, *(Operand("float32", s)
                                            for s in ((1024, 1), (1, 128), (128, 1))),
                    precision="ieee")
    config = plan_gemm(p, H200).config
    assert (config.tile.m, config.tile.n, config.slices) == (128, 256, 1)


def test_few_blocks_and_a_deep_k_are_split():
    deep = plan_gemm(square(64, k=200_000, precision="ieee"), H200)
    assert deep.config.slices > 8 and deep.config.slices * deep.config.chunk >= 200_000
    assert deep.workspace_bytes == deep.config.slices * 64 * 64 * 4
    assert plan_gemm(square(4096, precision="ieee"), H200).config.slices == 1


def test_estimates_grow_with_the_work():
    times = {dtype: [plan_gemm(square(n, dtype, precision="ieee"), H200).seconds
                     for n in (64, 1024, 8192)] for dtype in ("float32", "float64", "complex128")}
    assert all(x < y for of_type in times.values() for x, y in pairwise(of_type))
    assert times["float64"][-1] < times["complex128"][-1]


def test_nothing_to_compute_and_nothing_to_sum():
    assert plan_gemm(square(8, m=0), H200).launches == ()
    assert plan_gemm(square(8, batch=(0,), a=Operand("float32", (8, 1), (64,)),
                            b=Operand("float32", (1, 8), (64,)),
                            c=Operand("float32", (8, 1), (64,))), H200).family == "nothing"
    assert len(plan_gemm(square(8, k=0), H200).launches) == 1


@pytest.mark.parametrize(
    "problem, error, message",
    [
        (
            square(8, precision="fast"),
            ValueError,
            "precision is one of 'auto', 'ieee', 'fp16x3', .*'tf32', 'modular', got 'fast'"
        ),
        (square(8, "float128"), TypeError, "do not support element type 'float128'"),
        (
            square(8, m=2**40, n=2**10),
            ValueError,
            r"needs \d+ blocks; a grid has at most 2\^31 - 1"
        ),
    ]
)
def test_problems_that_cannot_be_planned(problem, error, message):
    with pytest.raises(error, match=message):
        plan_gemm(problem, H200)


def test_a_copy_of_too_many_blocks():
    with pytest.raises(ValueError, match=r"needs .* blocks; a grid has at most"):
        plan_copy(CopyProblem((2**44, 5), (5, 1), (7, 1), 4), H200)


def test_the_reason_tells_what_was_chosen_and_what_was_not():
    odd = square(1000, "float16", a=Operand("float16", (1001, 1)))
    plan = plan_gemm(odd, H200)
    assert plan.family == "gemm_wgmma"
    assert "A is copied first: the strides (1001, 1) of A are not positive multiples of 16 bytes" in plan.reason
    plan = plan_gemm(odd, replace(H200, workspace_limit=0))
    assert plan.family == "gemm_mma"
    assert "not gemm_wgmma: its workspace is over the limit of 0 bytes even in small blocks" in plan.reason
    assert "not gemm_wgmma: the strides (1001, 1) of A are not positive multiples of 16 bytes" in plan.reason
    assert "computed as C^T = B A^T" in plan_gemm(square(64), H200).reason
    p = square(3, k=4)                          # each operand stays in the memory of its role
    assert transposed(transposed(p)) == replace(p, a=p.a.named("a"), b=p.b.named("b"))


def test_vectors_are_as_wide_as_whatever_they_begin_at():
    good = Operand("float32", (64, 1), (4096,))
    for changes, width in (({}, 4), ({"strides": (62, 1)}, 2), ({"strides": (63, 1)}, 1),
                           ({"batch_strides": (4098,)}, 2), ({"batch_strides": (4097,)}, 1),
                           ({"alignment": 8}, 2), ({"alignment": 4}, 1), ({"dtype": "int8"}, 16),
                           ({"dtype": "complex128"}, 1), ({"strides": (-64, 1)}, 4)):
        assert vector_access(replace(good, **changes), (8, 64)).width == width, changes
    assert vector_access(good, (8, 62)).width == 2 and vector_access(good, (8, 63)).width == 1
    assert vector_access(replace(good, strides=(1, 8)), (8, 64)).unit == 0
    assert vector_access(replace(good, strides=(8, 2)), (8, 64)) == OperandAccess()


def test_what_tensor_maps_do_not_describe():
    extents, good = (64, 32), Operand("float16", (64, 1), (4096,))
    assert why_not_mapped("A", good, extents) is None
    for changes, words in (({"alignment": 8}, "A is not aligned to 16 bytes"),
                           ({"strides": (64, 2)}, "no mode of A has stride 1"),
                           ({"strides": (63, 1)}, "not positive multiples of 16 bytes"),
                           ({"strides": (-64, 1)}, "not positive"),
                           ({"strides": (0, 1)}, "not positive"),
                           ({"strides": (2**39, 1)}, "not below 2^40"),
                           ({"batch_strides": (2**39,)}, "not below 2^40"),
                           ({"batch_strides": (4,)}, "not multiples of 16"),
                           ({"batch_strides": (-4096,)}, "not multiples"),
                           ({"batch_strides": (4096,) * 4}, "more than three batch modes")):
        assert words in why_not_mapped("A", replace(good, **changes), extents), changes
    for changes in ({"batch_strides": (4096, 0, 4096, 4096)}, {"strides": (2**39 - 8, 1)}):
        assert why_not_mapped("A", replace(good, **changes), extents) is None
    assert why_not_mapped("A", replace(good, strides=(63, 1)), (1, 32)) is None
    assert span([(0, 5), (3, -2), (1, 100)]) == 4


@pytest.mark.parametrize("m, n, strides", [(64, 1, (1, 67)), (5, 1, (1, 7)), (1, 5, (7, 1)),
                                           (5, 1, (3, 1)), (1, 1, (2, 3))])
@pytest.mark.parametrize("batch", [(), (4000,)])
def test_an_epilogue_operand_has_any_stride_along_one_element(m, n, strides, batch):
    sums = Node("add", "float32", (Node("acc", "float32"), Node("operand", "float32", name="x")))
    x = Operand("float32", strides, (4096,) * len(batch))
    a, b, c = (Operand("float32", (pitch, 1), (4096,) * len(batch)) for pitch in (8, 8, n))
    problem = GemmProblem(m, n, 8, a, b, c, batch,
                          fusion=Fusion(EpilogueGraph("sum", sums), (("x", x),)))
    assert plan_gemm(problem, H200).launches


@pytest.mark.parametrize("element, item", [("float32", 4), ("float16", 2), ("float64", 8),
                                           ("int8", 1)])
def test_vectors_of_epilogue_operands_are_aligned(element, item):
    """By their address, strides, batches and extents: each alone decides."""
    sums = Node("add", "float32", (Node("acc", "float32"), Node("operand", "float32", name="x")))

    def width(most=16, run=1, strides=(1024, 1), batch=(), alignment=16, **changes):
        if run == 0:
            strides = strides[::-1]
        fusion = Fusion(EpilogueGraph("sum", sums),
                        (("x", Operand(element, strides, batch, alignment=alignment)),))
        return fused(square(1024, fusion=fusion, **changes), run, most).operands[0].width

    whole = 16 // item
    for run in (0, 1):
        assert width(run=run) == whole and width(most=2, run=run) == min(2, whole)
        for alignment in (1, 2, 4, 8, 16):
            assert width(run=run, alignment=alignment) == min(whole, max(1, alignment // item))
        assert width(run=run, strides=(1026, 1)) == min(2, whole) and width(run=run, strides=(1025, 1)) == 1
        assert width(run=run, strides=(0, 1)) == whole and width(run=run, strides=(1024, 2)) == 1
        assert width(run=run, m=1022, n=1022) == min(2, whole)
        assert width(run=run, batch=(2**20,)) == whole and width(
            run=run, batch=(2**20, 2**20 + 2)
        ) == min(2, whole)


def half(m, n, k, a=(), b=(), c=(), batch=(), **c_changes):
    """A float16 product of row-major A, B^T and C (float32), with strides over the batch."""
    return GemmProblem(m, n, k, Operand("float16", (k, 1), a), Operand("float16", (k, 1), b),
                       replace(Operand("float32", (n, 1), c), **c_changes), batch)


@pytest.mark.parametrize("problem, width", [(half(64, 64, 64), 2), (half(64, 63, 64), 1),
                                            (half(64, 64, 64, alignment=4), 1),
                                            (half(64, 64, 64, alignment=8), 2),
                                            (half(64, 63, 64, strides=(64, 1)), 1),
                                            (half(64, 64, 64, strides=(65, 1)), 1),
                                            (half(64, 64, 64, (4096,), (4096,), (4097,), (3,)),
                                             1),], ids=str)
def test_tensor_core_results_are_written_in_pairs_where_they_can(problem, width):
    assert plan_wgmma(problem, H200).config.c.width == width


def test_tma_writes_what_a_tensor_map_describes():
    assert plan_wgmma(half(64, 64, 64), H200).config.staged == "tma"
    for problem, why in ((half(64, 63, 64, strides=(64, 1)),
                          "63 elements of 4 bytes are not a multiple of 16 bytes"),
                         (half(64, 64, 64, alignment=8), "C is not aligned to 16 bytes"),
                         (half(64, 64, 64, strides=(65, 1)),
                          r"the strides \(65, 1\) of C are not positive multiples of 16 bytes"),
                         (half(64, 64, 64, strides=(2, 128)),
                          "it is not contiguous along rows or columns"),
                         (half(64, 64, 64, (8192,), (4096,), (4097,), (3,)),
                          "the batch strides .* of C are not multiples of 16 bytes"),
                         (half(8, 8, 8, (0,) * 4, (0,) * 4, (512, 256, 128, 64), (2, 2, 2, 2)),
                          "more than three batch modes")):
        plan = plan_wgmma(problem, H200)
        assert plan.config.staged != "tma" and re.search(f"C is written by threads: .*{why}",
                                                         plan.reason), plan.reason


def test_tensor_core_plans_fit_the_result():
    assert plan_wgmma(half(300, 64, 64), H200).config.columns == 64
    assert plan_wgmma(half(300, 65, 8192), H200).config.columns <= 128, "several narrow tiles: most multiprocessors would be idle"
    assert plan_wgmma(half(300, 65 * 132, 64), H200).config.columns > 64
    assert plan_wgmma(half(2**15, 2**15 + 8, 64), H200).config.wide
    assert not plan_wgmma(half(2**14, 2**15, 64), H200).config.wide
    column = plan_wgmma(replace(half(64, 1, 64), b=Operand("float16", (5, 8))), H200)
    assert column.family == "gemm_wgmma" and not column.config.k_major_b
    row = plan_wgmma(replace(half(1, 64, 68), a=Operand("float16", (7, 1)),
                             b=Operand("float16", (1, 64))), H200)
    assert row.family == "gemm_wgmma"
    spec = next(q.tensor_map for q in row.launches[0].arguments if q.role == "a")
    assert spec.strides == (144,), "the stride of a single row is free: here it holds the row"


@pytest.mark.parametrize(
    "problem, why",
    [
        (
            half(64, 64, 64, (4100,), (4096,), (4096,), (3,)),
            "batch strides (4100,) of A are not multiples of 16 bytes"
        ),
        (
            half(8, 8, 8, (64,) * 4, (0,) * 4, (512, 256, 128, 64), (2, 2, 2, 2)),
            "A has more than three batch modes"
        ),
        (half(2**31, 24, 8), "coordinates of tensor maps have 32 bits"),
    ]
)
def test_what_tensor_maps_cannot_describe(problem, why):
    assert why in why_not_wgmma(problem, H200)


def single(m, n, k, a, b, c, batch=(), **changes):
    """A float32 product of operands (strides, batch strides)."""
    return GemmProblem(m, n, k, *(Operand("float32", *o) for o in (a, b, c)), batch, **changes)


@pytest.mark.parametrize("problem, access", [
    (single(20, 16, 8, ((1, 20),), ((1, 16),), ((1, 20),)), "m4m4m4"),
    (single(20, 16, 8, ((1, 20), (161,)), ((1, 16), (128,)), ((1, 20), (322,)), (2,)), "m1m4mw"),
    (single(22, 16, 8, ((1, 24),), ((1, 18),), ((1, 24),)), "m2m2mw"),
    (single(20, 16, 1, ((1, 3),), ((1, 5),), ((1, 20),)), "m4m4m4"),
    (single(20, 16, 8, ((8, 1),), ((2, 3),), ((1, 20),)), "k1s1m4"),
])
def test_vectors_are_as_wide_as_extents_and_other_strides_allow(problem, access):
    assert f"_{access}_" in plan_simt(problem, H200).launches[0].kernel.name


@pytest.mark.parametrize("problem, wide", [
    (single(64, 64, 64, ((1, 64),), ((1, 64),), ((1, 2**24),)), False),
    (single(65, 65, 64, ((1, 65),), ((1, 65),), ((1, 2**24),)), True),
    (single(65, 64, 64, ((2**24, 1),), ((1, 64),), ((1, 65),)), True),
    (single(64, 65, 64, ((1, 64),), ((2**24, 1),), ((1, 64),)), True),
    (single(64, 64, 2**30, ((0, 0),), ((0, 0),), ((1, 64),)), True),
])
def test_offsets_have_64_bits_where_an_operand_reaches_far(problem, wide):
    assert plan_gemm(replace(problem, precision="ieee"),
                     H200).launches[0].kernel.name.endswith("_wide") == wide


def test_every_type_has_tiles():
    for element in ("bool", "int8", "uint64", "float16", "bfloat16", "complex64", "complex128"):
        assert candidates(element)


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_types_that_are_stored_alone_are_refused(element):
    for precision in ("auto", "ieee"):
        with pytest.raises(TypeError,
                           match=f"^kernels store and convert {element} but do not multiply it"):
            plan_gemm(square(512, element, precision=precision), H200)
    assert plan_gemm(square(512, "float16", c=Operand(element, (512, 1))),
                     H200).family == "gemm_wgmma"


def test_large_float64_products_take_the_tensor_cores_that_round_as_the_unit_does():
    for size, precision in ((128, "auto"), (1024, "auto"), (4096, "ieee")):
        assert plan_gemm(square(size, "float64", precision=precision), H200).family == "gemm_mma"
    assert plan_gemm(square(1536, "float64", precision="auto"), H200).family == "gemm_mma"
    assert plan_gemm(square(4096, "float64"), replace(H200, arch="sm_89")).family == "gemm_simt"
    assert plan_gemm(square(4096, "float64", alpha="zero"), H200).family == "gemm_simt"
    strided = square(4096, "float64", a=Operand("float64", (8192, 2)))
    assert plan_gemm(strided, H200).launches


@pytest.mark.parametrize("element, least", [("float64", 3072), ("complex128", 2048)])
def test_the_largest_products_are_by_residues(element, least):
    for size in (least, 4096, 16384):
        plan = plan_gemm(square(size, element), H200)
        native = min(x.seconds(H200) for x in MMA.alternatives(square(size, element), H200))
        assert plan.family == "gemm_modular" and plan.seconds < native
        assert plan.launches == plan_gemm(square(size, element, precision="modular"), H200).launches
    # sums of few terms
    assert plan_gemm(square(4096, element, k=128), H200).family == "gemm_mma"
    # and of too many
    assert plan_gemm(square(4096, element, k=100000), H200).family == "gemm_mma"
    limited = plan_gemm(square(4096, element), replace(H200, workspace_limit=1 << 20))
    assert limited.family == "gemm_mma" and "not gemm_modular: its workspace is over the limit" in limited.reason


def test_large_complex128_products_take_the_float64_tensor_cores():
    for size, precision in ((512, "auto"), (1024, "auto"), (4096, "ieee")):
        plan = plan_gemm(square(size, "complex128", precision=precision), H200)
        assert plan.family == "gemm_mma" and "complex128 on tensor cores by mma.sync" in plan.reason
        assert plan.seconds < SIMT.seconds(square(size, "complex128"), H200)
    assert plan_gemm(square(2048, "complex64", precision="ieee"), H200).family == "gemm_simt"
    assert plan_gemm(square(2048, "complex128"), replace(H200, arch="sm_80")).family == "gemm_mma"
    for arch in ("sm_75", "sm_86", "sm_100", "sm_120"):
        assert plan_gemm(square(2048, "complex128"), replace(H200, arch=arch)).family == "gemm_simt"
    conjugated = plan_gemm(square(2048, "complex128", a=Operand("complex128", (1, 2048), conj=True),
                                  precision="ieee"), H200)
    assert conjugated.family == "gemm_mma" and "cb::complex_mma_m8n8k8<true>(" in conjugated.source


@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_tensor_cores_of_64_bits_take_tiles_that_fill_the_device(element):
    """1024 x 1024 in blocks of 128 x 128 would leave half of 132 multiprocessors idle; slices of K
    cost a second kernel."""
    config = plan_gemm(square(1024, element), H200).config
    assert config.tile.m * config.tile.n <= 128 * 64 and config.slices == 1 and config.blocks >= 128
    large = plan_gemm(square(8192, element, precision="ieee"), H200).config.tile
    assert large.m * large.n >= 64 * 32
    deep = plan_gemm(square(128, element, k=100_000), H200).config
    assert deep.slices > 8 and deep.slices * deep.chunk >= 100_000


def test_element_wise_copies_do_not_count_against_small_tiles():
    """At 256 the small tile is the fastest (docs/performance/history.md), although one operand is
    copied element by element."""
    plan = plan_gemm(square(256, precision="ieee"), H200)
    assert (plan.config.tile.m, plan.config.tile.n) == (32, 32) and plan.config.slices <= 2 and plan.seconds < 10.8e-6


def test_parts_of_a_workspace_are_aligned_and_do_not_meet():
    workspace = Workspace()
    first, second = workspace.take(1), workspace.take(300)
    with workspace.lent():
        third = workspace.take(1)
    fourth = workspace.take(10)
    assert [each.offset for each in (first, second, third, fourth)] == [0, 256, 768, 768]
    assert workspace.nbytes == 778
