"""Transposes to and from short rows without gaps between them, by boxes that are one piece of
memory on a side: every length of rows, misalignment and order; no other memory."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.kernels.copy.rearrange import RearrangeConfig, rearrange_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.copy import dispatch

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, counted, lengths, moved_by, plan_of_matrix, scrambled

SHORT = [1, 2, 4, 8]
LONG = 259                           # the other extent of matrices
moved = partial(moved_by, RearrangeConfig)


@pytest.fixture
def boxes_alone(monkeypatch):
    """Boxes move everything, however small."""
    def best(problem, device):
        return min((each for each in dispatch.copy_alternatives(problem, device)
                    if isinstance(each.config, RearrangeConfig)),
                   key=lambda each: each.seconds(device))

    plan_copy.cache_clear()
    monkeypatch.setattr(dispatch, "_in_boxes", lambda *_: True)
    monkeypatch.setattr(dispatch, "copy_choice", best)
    yield
    plan_copy.cache_clear()


pytestmark = pytest.mark.usefixtures("boxes_alone")


def matrix(rows, short):
    """A matrix with so many rows, of which either the target's or the source's are short."""
    return (rows, LONG) if short == "target" else (LONG, rows)


both_ways = pytest.mark.parametrize("short", ["source", "target"])


@both_ways
@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("among", [range(2, 22), range(22, 43), range(43, 64)], ids=str)
def test_every_length_of_rows(engine, item, among, short):
    for n in lengths(item, among):
        moved(engine, matrix(n, short), item, src_offset=1, dst_offset=n % 5)


@both_ways
@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("around", [-1, 0, 1, 3])
def test_borders_of_boxes(engine, item, around, short):
    for n in (3, 35, 60):
        box = plan_of_matrix(item, *(n, 10**6)[::1 if short == "target" else -1]).config.box
        long = 2 * max(box) + around
        shape, pad = ((n, long), "src_pad") if short == "target" else ((long, n), "dst_pad")
        moved(engine, shape, item, src_offset=1, dst_offset=1, **{pad: 3})


@both_ways
@pytest.mark.parametrize("item", SHORT)
def test_every_misalignment_of_both_sides(engine, item, short):
    for offset in range(32 // item):
        for n in (7, 34):
            moved(engine, matrix(n, short), item, src_offset=offset,
                  dst_offset=offset * 5 % (32 // item) + 1)


@both_ways
@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("pad", [1, 2, 3, 5])
def test_long_rows_begin_anywhere(engine, item, pad, short):
    if short == "target":
        moved(engine, (35, 429), item, src_pad=pad, dst_offset=pad)
    else:
        moved(engine, (429, 35), item, dst_pad=pad, src_offset=pad)


@pytest.mark.parametrize("item", SHORT)
@pytest.mark.parametrize("shape, axes", [((3, 35, 45), (0, 2, 1)), ((5, 35, 7, 53), (2, 0, 3, 1)),
                                         ((2, 9, 3, 33), (0, 2, 3, 1)),
                                         ((3, 35, 2, 2, 33), (3, 0, 2, 4, 1)),
                                         ((3, 1045, 3), (0, 2, 1)), ((2, 1033, 5, 4), (0, 2, 3, 1)),
                                         ((2, 1037, 7), (2, 0, 1))], ids=str)
def test_batches_and_permutations(engine, item, shape, axes):
    moved(engine, shape, item, axes, src_offset=3, dst_offset=1)


@both_ways
@pytest.mark.parametrize("item", SHORT)
def test_rows_and_batches_walked_backwards(engine, item, short):
    moved(engine, matrix(35, short), item, flip=(("src", 1),))
    moved(engine, matrix(35, short), item, flip=(("src", 1), ("dst", 1)))
    moved(engine, (3, *matrix(5, short)), item, (0, 2, 1), flip=(("src", 0),))
    moved(engine, (3, *matrix(5, short)), item, (0, 2, 1), flip=(("src", 0), ("dst", 0)),
          dst_offset=3)


@both_ways
@pytest.mark.parametrize("item", [1, 2])
@pytest.mark.parametrize("lanes, rows", [(1, 1), (7, 3), (32, 4), (5, 51)])
def test_other_threads_and_offsets_of_64_bits(engine, item, lanes, rows, short):
    for n in (6, 35):
        plan = moved(engine, matrix(n, short), item, src_offset=1, dst_offset=1)
        config = plan.config
        assert config.source.covering or config.target.covering
        shape = plan.problem.shape
        src, dst = (Strided(aligned(1 + n * LONG, SIZES[item]), 1, shape, strides)
                    for strides in (plan.problem.src_strides, plan.problem.dst_strides))
        src.view[...] = scrambled(shape, item)
        source, target = (replace(side, lanes=lanes, rows=rows)
                          for side in (config.source, config.target))
        kernel = rearrange_kernel(replace(config, source=source, target=target, threads=256,
                                          wide=True))
        dst.base.view(np.uint8)[:] = 0xA5
        launch = replace(plan.launches[0], kernel=kernel)
        engine.run(replace(plan, launches=(launch,)), src=src, dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()


@both_ways
@pytest.mark.parametrize("item", [1, 2])
@pytest.mark.parametrize("n", [7, 16, 24, 32, 35, 36, 48, 56])
def test_few_conflicts_and_whole_sectors(item, n, short):
    """As the emulator counts them: of words of long rows that begin anywhere, and of shared
    memory."""
    rows, columns = (n, 1001) if short == "target" else (1001, n)
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, (columns, rows), s)
                for s in ((1, columns), (rows, 1)))
    plan = plan_copy(copy_problem(src, dst), H200)
    for access in counted(plan, src=src, dst=dst):
        most = 3.1 if access.space == "shared" else 2.4 if access.bytes == 4 else 16
        assert access.transactions <= most * max(access.ideal, 1), (plan.config, access)


def test_which_sides_are_moved_by_covering_words():
    to, of = (plan_of_matrix(1, *(37, 10**6 + 3)[::step]).config for step in (1, -1))
    for config, piece in ((to, to.target), (of, of.source)):
        assert config.source.covering and config.target.covering and not piece.row_modes
    assert piece.whole(of.box, of.held)
    aligned_rows = plan_of_matrix(4, 37, 10**6).config
    assert not aligned_rows.source.covering and not aligned_rows.target.covering


def test_gaps_between_rows(engine):
    for item in SHORT:
        gaps = CopyProblem((1000, 35), (1, 1000), (36, 1), item)
        assert plan_copy(gaps, engine.device).config.target.row_modes
