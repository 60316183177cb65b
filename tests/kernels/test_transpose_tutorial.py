"""The tutorial's transposes: exact at every size, and their bank conflicts and sectors as the
tutorial has them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    _,
    composition,
    cosize,
    inner_partition,
    make_identity_tensor,
    outer_partition,
    tiled_divide,
    zipped_divide,
)
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.variants import variants
from cuteblas.tutorial.transpose import (
    ALONG_M,
    ALONG_N,
    TILE,
    TutorialTransposeConfig,
    padded,
    swizzled,
    tutorial_transpose,
)

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, check_counts, move, scrambled

SETTINGS = ["naive_read", "naive_write", "smem_conflict_read", "smem_conflict_write", "smem_padded",
            "smem_swizzled"]


def facts(name, item=4):
    return plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item,
                                 variant=f"transpose_{name}"), H200).facts


# -- what they compute -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("item", SIZES)
def test_ragged_sizes(engine, name, item):
    for extents in ((33, 65), (31, 130)):
        plan = move(engine, scrambled(extents, item), (1, 0), variant=f"transpose_{name}")
        assert plan.family == f"transpose_{name}"
    move(engine, scrambled((40, 70), item), (1, 0), src_pad=3, dst_pad=5, src_offset=1,
         dst_offset=2, variant=f"transpose_{name}")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("extents", [(1, 1), (1, 90), (90, 1), (3, 5)])
def test_small_and_thin(engine, name, extents):
    move(engine, scrambled(extents, 4), (1, 0), variant=f"transpose_{name}")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("item", SIZES)
def test_without_predicates(engine, name, item):
    plan = move(engine, scrambled((64, 128), item), (1, 0), src_pad=1,
                variant=f"transpose_{name}_unpredicated")
    assert " < M" not in plan.source and " < M" in plan_copy(replace(plan.problem,
                                                                     variant=f"transpose_{name}"),
                                                             H200).source
    for extents in ((48, 64), (32, 96)):
        problem = CopyProblem(extents[::-1], (1, extents[1]), (extents[0], 1), item,
                              variant=f"transpose_{name}_unpredicated")
        with pytest.raises(
            ValueError,
            match=f"M must be a multiple of 32 and N of 64, got {extents[0]} x {extents[1]}"
        ):
            plan_copy(problem, H200)


def test_modes_walked_backwards(engine):
    values, name = scrambled((40, 72), 4), "transpose_smem_swizzled"
    # the rows of the source, last to first
    move(engine, values, (1, 0), flip=(("src", 1),), variant=name)
    move(engine, values, (1, 0), flip=(("src", 0), ("dst", 0)), variant=name)
    for flip in (("src", 0),), (("dst", 0),):
        with pytest.raises(ValueError,
                           match="one with stride 1 in the source and the other in the target"):
            move(engine, values, (1, 0), flip=flip, variant=name)


@pytest.mark.parametrize("kernel", [
    partial(tutorial_transpose, TutorialTransposeConfig(4, *setting, wide=True))
    for setting in (("naive_read", None, ALONG_N), ("smem_swizzled", swizzled(4)))
])
def test_offsets_of_64_bits(engine, kernel):
    values = scrambled((66, 40), 4)
    src, dst = (Strided(aligned(66 * 40, "u4"), 0, (40, 66), s) for s in ((1, 40), (66, 1)))
    src.view[...] = values.T
    name = kernel.args[0].name.removesuffix("_b32_wide")
    plan = plan_copy(replace(copy_problem(src, dst), variant=name), engine.device)
    engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel()),)), src=src,
               dst=dst)
    np.testing.assert_array_equal(dst.view, src.view)
    huge = plan_copy(CopyProblem((2**16, 2**15), (1, 2**16), (2**15, 1), 1, variant=name), H200)
    assert huge.config.wide and "long long M" in huge.source


# -- what they refuse ------------------------------------------------------------------------------
@pytest.mark.parametrize("shape, src, dst", [
    ((64, 64), (65, 1), (64, 1)), ((64, 64), (1, 64), (128, 2)), ((64, 64), (2, 128), (64, 1)),
    ((2, 64, 64), (8192, 1, 64), (4096, 64, 1)),
])
def test_not_a_transpose(shape, src, dst):
    for name in SETTINGS:
        with pytest.raises(
            ValueError,
            match="two modes, one with stride 1 in the source and the other in the target"
        ):
            plan_copy(CopyProblem(shape, src, dst, 4, variant=f"transpose_{name}"), H200)


def test_more_blocks_than_a_grid_has():
    n = 2**17
    with pytest.raises(ValueError, match="needs 2147483648 blocks"):
        plan_copy(CopyProblem((64 * n, 32 * 2**14), (1, 64 * n), (32 * 2**14, 1), 1,
                              variant="transpose_naive_read"), H200)


def test_a_tile_that_shares_places():
    with pytest.raises(CodegenError, match="must hold each of the 32 x 64 elements once"):
        TutorialTransposeConfig(4, "broken", Layout(TILE, (63, 1)))


# -- the tutorial's numbers ------------------------------------------------------------------------
def test_naive_accesses():
    """One side of a naive transpose is one request of neighbours for a warp, the other touches a
    sector with every lane."""
    coalesced, strided = "4 bytes a lane: 4 sectors of at least 4", "4 bytes a lane: 32 sectors of at least 4"
    assert facts("naive_read") == {"global load S": coalesced, "global store D": strided}
    assert facts("naive_write") == {"global load S": strided, "global store D": coalesced}


def test_32_way_bank_conflicts():
    free, conflict = "4 bytes a lane: 1 wavefronts of at least 1 (no bank conflict)", "4 bytes a lane: 32 wavefronts of at least 1"
    for name, (store, load) in {"conflict_read": (free, conflict),
                                "conflict_write": (conflict, free), "padded": (free, free),
                                "swizzled": (free, free)}.items():
        counted = facts(f"smem_{name}")
        assert (counted["shared store sT"], counted["shared load sT"]) == (store, load), name
        for side in ("global load S", "global store D"):
            assert counted[side] == "4 bytes a lane: 4 sectors of at least 4"


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("item", SIZES)
def test_the_emulator_counts_what_the_plan_says(name, item):
    check_counts((64, 128), item, f"transpose_{name}")


@pytest.mark.parametrize("item", SIZES)
def test_padding_and_swizzling_free_every_element_size(item):
    def free(name):
        return ["no bank conflict" in text for what, text in facts(f"smem_{name}", item).items()
                if what.startswith("shared")]

    assert free("padded") == free("swizzled") == [True, True]
    assert free("conflict_read") == [True, False] and free("conflict_write") == [False, True]


def test_layouts_of_the_tutorial():
    """(bM, bN) = (32, 64), 256 threads; the padded tile has a stride of bN + 1 and a larger cosize,
    not another shape."""
    assert TILE == (32, 64) and str(ALONG_N) == "(8,32):(32,1)" and str(ALONG_M) == "(32,8):(1,32)"
    assert str(padded(4)) == str(padded(8)) == "(32,64):(65,1)" and cosize(padded(4)) == 31 * 65 + 64
    bits_x, bits_y = 6, 5                # NUM_BITS_X and NUM_BITS_Y: of the columns and of the rows
    tutorial = composition(Swizzle(bits_y, 0, bits_x), Layout((32, 64), (64, 1)))
    assert all(str(swizzled(item)) == str(tutorial) == "S<5,0,6> o 0 o (32,64):(64,1)"
               for item in (4, 8, 16))
    assert isinstance(swizzled(4), ComposedLayout)


def test_bank_ids_of_the_swizzled_tile():
    """Without the swizzle a column of float elements is one bank; with it, row i has the columns'
    banks exclusive-or i."""
    plain, swizzle = Layout(TILE, (64, 1)), swizzled(4)
    for j in (0, 1, 40, 63):
        assert {plain(i, j) % 32 for i in range(32)} == {j % 32}
        assert [swizzle(i, j) % 32 for i in range(32)] == [(j ^ i) % 32 for i in range(32)]
        assert [padded(4)(i, j) % 32 for i in range(32)] == [(i + j) % 32 for i in range(32)]


def test_inner_and_outer_partitions():
    """(8,4):(4,1) by tiles (4,2): four tiles of neighbours, or eight parts that take one element of
    every tile."""
    whole, tile = Layout((8, 4), (4, 1)), (4, 2)
    assert tiled_divide(whole, tile).shape == ((4, 2), 2, 2)
    elements, tiles = zipped_divide(whole, tile).shape
    assert (elements, tiles) == ((4, 2), (2, 2))

    coordinates = make_identity_tensor((8, 4))
    inner = [inner_partition(coordinates, tile, (i, j)) for j in range(2) for i in range(2)]
    outer = [outer_partition(coordinates, tile, (i, j)) for j in range(2) for i in range(4)]
    assert [part(0) for part in inner] == [(0, 0), (4, 0), (0, 2),
                                           (4, 2)] and all(part.shape == (4, 2) for part in inner)
    assert [part(0) for part in outer] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1),
                                           (3, 1)]
    assert all(part.shape == (2, 2) for part in outer)
    assert outer[5](1, 1) == (1 + 4, 1 + 2) and inner[1](1, 1) == (4 + 1, 1)


def test_the_same_coordinate_in_both_matrices():
    """Row-major (M, N) and column-major (M, N): the one-dimensional coordinate names an element and
    its transpose."""
    m, n = 5, 7
    row_major, column_major = Layout((m, n), (n, 1)), Layout((m, n), (1, m))
    a = np.arange(m * n)
    out = np.empty_like(a)
    for i in range(m * n):
        out[column_major(i)] = a[row_major(i)]
    np.testing.assert_array_equal(out.reshape(n, m), a.reshape(m, n).T)
    tiled = tiled_divide(Layout((8192, 4096), (4096, 1)), TILE)
    assert str(tiled) == "((32,64),256,64):((4096,1),131072,64)" and str(tiled((_, _), 1, 2)) == "(32,64):(4096,1)"


def test_all_are_listed():
    names = {f"transpose_{name}{suffix}" for name in SETTINGS for suffix in ("", "_unpredicated")}
    listed = {name: v for name, v in variants().items() if name in names}
    assert set(listed) == names
    assert all(v.operation == "copy" and "CuTe Matrix Transpose" in v.source
               for v in listed.values())
