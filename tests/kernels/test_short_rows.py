"""Transposes to short rows without gaps between them: every length of rows, misalignment and order;
no other memory."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.kernels.copy.short_rows import ShortRowsConfig, short_rows_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, lengths, moved_by, plan_of_matrix, scrambled, transactions

pytestmark = pytest.mark.usefixtures("without_boxes")

SHORT = [1, 2, 4, 8]
moved = partial(moved_by, ShortRowsConfig)


def planned(item, rows, columns=10**6, **options):
    return plan_of_matrix(item, rows, columns, **options)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("rows", [range(2, 22), range(22, 43), range(43, 64)], ids=str)
def test_every_length_of_rows(engine, item, rows):
    for n in lengths(item, rows):
        moved(engine, (n, 69), item, src_offset=1, dst_offset=n % 5)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("around", [-1, 0, 1, 3])
def test_borders_of_tiles(engine, item, around):
    for rows in (3, 35, 60):
        columns = planned(item, rows).config.tile[0]
        for count in (columns, 2 * columns):
            moved(engine, (rows, max(count + around, 32)), item, src_pad=3, src_offset=1,
                  dst_offset=1)


@pytest.mark.parametrize("item", SHORT)
def test_every_misalignment_of_both_sides(engine, item):
    for offset in range(32 // item):
        for rows in (7, 34):
            moved(engine, (rows, 45), item, src_offset=offset,
                  dst_offset=offset * 5 % (32 // item) + 1)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("pad", [1, 2, 3, 5])
def test_rows_of_the_source_begin_anywhere(engine, item, pad):
    moved(engine, (35, 129), item, src_pad=pad, dst_offset=pad)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("shape, axes", [((3, 35, 45), (0, 2, 1)), ((5, 35, 7, 53), (2, 0, 3, 1)),
                                         ((2, 9, 3, 33), (0, 2, 3, 1)),
                                         ((3, 35, 2, 2, 33), (3, 0, 2, 4, 1))], ids=str)
def test_batches_and_permutations(engine, item, shape, axes):
    moved(engine, shape, item, axes, src_offset=3, dst_offset=1)


@pytest.mark.parametrize("item", SHORT)
def test_rows_and_batches_walked_backwards(engine, item):
    moved(engine, (35, 45), item, flip=(("src", 1),))
    moved(engine, (35, 45), item, flip=(("src", 1), ("dst", 1)))
    moved(engine, (3, 35, 45), item, (0, 2, 1), flip=(("src", 0),))


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("shape", [(35, 45), (6, 300)])
def test_other_threads_and_offsets_of_64_bits(engine, item, shape):
    plan = moved(engine, shape, item)
    rows, columns = shape
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    for threads, words in (((32, 2), (1, -(-rows // 2))), ((64, 4), (2, -(-rows // 4))),
                           ((32, 1), (1, rows))):
        config = replace(plan.config, threads=threads, words=words, wide=True, min_blocks=1)
        launch = replace(plan.launches[0], kernel=short_rows_kernel(config),
                         grid=(-(-columns // config.tile[0]), 1, 1))
        dst.base.view(np.uint8)[:] = 0xA5
        engine.run(replace(plan, launches=(launch,)), src=src, dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("rows", [7, 16, 24, 32, 35, 36, 48, 56])
def test_bank_conflicts_of_every_warp(item, rows):
    """As the emulator counts them: none where words go in, but for rows that do not exist, and none
    where vectors come out."""
    columns = 2 * planned(item, rows, 10**6 + 1).config.tile[0] + 1
    src, dst = (Strided(aligned(rows * columns + 8, SIZES[item]), 1, (columns, rows), s)
                for s in ((1, columns), (rows, 1)))
    plan = plan_copy(copy_problem(src, dst), H200)
    assert isinstance(plan.config, ShortRowsConfig)
    for (space, write), (most, least) in transactions(plan, src=src, dst=dst).items():
        allowed = 2 if write and (plan.config.tile[1] > rows or rows * item == 256) else 1.05
        assert space == "global" or most <= allowed * least, (plan.config, write, most, least)


def test_factors_of_two():
    for item, rows, twos in ((1, 35, 0), (1, 36, 2), (2, 48, 4), (4, 2, 1), (8, 32, 5)):
        assert planned(item, rows, 10**6 + 1).config.twos == twos


def test_which_transposes_are_of_this_kind():
    for item in SHORT:
        assert isinstance(planned(item, 35).config,
                          ShortRowsConfig) and isinstance(planned(item, 3).config, ShortRowsConfig)
        assert not isinstance(planned(item, 65).config, ShortRowsConfig)
        assert not isinstance(planned(item, 35, 20).config, ShortRowsConfig)
        gaps = CopyProblem((1000, 35), (1, 1000), (36, 1), item)
        assert not isinstance(plan_copy(gaps, H200).config, ShortRowsConfig)
        assert planned(item, 35).config.tile[1] >= 35
    assert planned(4, 35, 2**25).config.wide and not planned(4, 35).config.wide
