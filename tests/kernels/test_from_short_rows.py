"""Transposes from short rows without gaps between them: every length of rows, misalignment and
order; no other memory."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.short_rows import FromShortRowsConfig, from_short_rows_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, lengths, moved_by, plan_of_matrix, scrambled, transactions

pytestmark = pytest.mark.usefixtures("without_boxes")

SHORT = [1, 2, 4, 8]
LONG = 256                           # rows from which on they are many
moved = partial(moved_by, FromShortRowsConfig)


def planned(item, columns, rows=10**6, **options):
    return plan_of_matrix(item, rows, columns, **options)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("columns", [range(2, 22), range(22, 43), range(43, 64)], ids=str)
def test_every_length_of_rows(engine, item, columns):
    for n in lengths(item, columns):
        moved(engine, (LONG + 3, n), item, src_offset=1, dst_offset=n % 5)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("around", [-1, 0, 1, 3, 31])
def test_borders_of_tiles(engine, item, around):
    for columns in (3, 35, 60):
        rows = planned(item, columns).config.tile[1]
        moved(engine, (-(-LONG // rows) * rows + rows + around, columns), item, dst_pad=3,
              src_offset=1, dst_offset=1)


@pytest.mark.parametrize("item", SHORT)
def test_every_misalignment_of_both_sides(engine, item):
    for offset in range(32 // item):
        for columns in (7, 34):
            moved(engine, (LONG + 1, columns), item, src_offset=offset,
                  dst_offset=offset * 5 % (32 // item) + 1)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("pad", [1, 2, 3, 5])
def test_rows_of_the_target_begin_anywhere(engine, item, pad):
    moved(engine, (1129, 35), item, dst_pad=pad, src_offset=pad)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("shape, axes", [((3, 1045, 3), (0, 2, 1)), ((2, 1033, 5, 4), (0, 2, 3, 1)),
                                         ((2, 1037, 7), (2, 0, 1))], ids=str)
def test_batches_and_permutations(engine, item, shape, axes):
    moved(engine, shape, item, axes, src_offset=3, dst_offset=1)


@pytest.mark.parametrize("item", SHORT)
def test_batches_walked_backwards(engine, item):
    moved(engine, (3, 1045, 5), item, (0, 2, 1), flip=(("src", 0),))
    moved(engine, (3, 1045, 5), item, (0, 2, 1), flip=(("dst", 0),), src_offset=1)
    moved(engine, (3, 1045, 5), item, (0, 2, 1), flip=(("src", 0), ("dst", 0)), dst_offset=3)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("shape", [(1045, 35), (1300, 6)])
def test_other_threads_and_offsets_of_64_bits(engine, item, shape):
    plan = moved(engine, shape, item)
    rows, columns = shape
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    for threads, words in (((32, 2), (1, -(-columns // 2))), ((64, 4), (2, -(-columns // 4))),
                           ((32, 1), (1, columns))):
        config = replace(plan.config, threads=threads, words=words, wide=True)
        launch = replace(plan.launches[0], kernel=from_short_rows_kernel(config),
                         grid=(-(-rows // config.tile[1]), 1, 1))
        dst.base.view(np.uint8)[:] = 0xA5
        engine.run(replace(plan, launches=(launch,)), src=src, dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("columns", [6, 7, 16, 24, 32, 35, 36, 48, 56])
def test_bank_conflicts_of_every_warp(item, columns):
    """As the emulator counts them, where rows of both sides begin with sectors: none where words
    are put together, and none where the piece comes in, but for a single factor of two.
    """
    tile = planned(item, columns).config.tile[1]
    rows = -(-LONG // tile) * tile
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, (columns, rows), s)
                for s in ((1, columns), (rows, 1)))
    plan = plan_copy(replace(copy_problem(src, dst), dst_alignment=item), H200)
    assert isinstance(plan.config, FromShortRowsConfig)
    for (space, write), (most, least) in transactions(plan, src=src, dst=dst).items():
        allowed = 2 if (not write and columns * item == 256) or (write and columns == 6
                                                                 and item < 8) else 1.05
        assert space == "global" or most <= allowed * least, (plan.config, write, most, least)


@pytest.mark.parametrize("item", SHORT)
def test_rows_of_the_target_are_cut_where_sectors_begin(item):
    """Wherever they begin: no warp writes more sectors than its words fill."""
    rows, columns = 3 * planned(item, 7).config.tile[1] + 1, 7
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, (columns, rows), s)
                for s in ((1, columns), (rows, 1)))
    plan = plan_copy(copy_problem(src, dst), H200)
    assert isinstance(plan.config, FromShortRowsConfig)
    most, _ = transactions(plan, src=src, dst=dst)["global", True]
    # 32 lanes, sectors of 32 bytes; ends of rows are counted together
    assert most <= 1.01 * plan.config.word, most


def test_threads_that_do_not_suffice_are_refused():
    for threads in ((16, 2), (31, 1)):
        with pytest.raises(CodegenError, match="whole sectors"):
            FromShortRowsConfig(1, threads, (1, 3))


def test_which_transposes_are_of_this_kind():
    for item in SHORT:
        assert all(isinstance(planned(item, columns).config, FromShortRowsConfig)
                   for columns in (3, 35))
        assert not isinstance(planned(item, 65).config, FromShortRowsConfig)
        assert not isinstance(planned(item, 35, 255).config, FromShortRowsConfig)
        gaps = CopyProblem((35, 10**6), (1, 36), (10**6, 1), item)
        assert not isinstance(plan_copy(gaps, H200).config, FromShortRowsConfig)
        assert planned(item, 35).config.tile[0] >= 35
    assert planned(4, 35, 2**25).config.wide and not planned(4, 35).config.wide
