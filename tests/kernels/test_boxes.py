"""Permutations of short modes by boxes: every small matrix, misalignment and order; no other memory; and when they are taken."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.boxes import BoxConfig, BoxSide, boxes_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, move, moved_by, scrambled, transactions

ITEMS = [1, 2, 4, 8, 16]
moved = partial(moved_by, BoxConfig)


@pytest.fixture
def few(monkeypatch):
    """Boxes for as few elements as tests move."""
    plan_copy.cache_clear()
    monkeypatch.setattr("cuteblas.planning.copy.dispatch._BOXED_FROM", 0)
    yield
    plan_copy.cache_clear()


def problem_of(shape, axes, item, **options):
    """The copy of a dense array's transpose to a dense array."""
    def dense(extents):
        return tuple(int(np.prod(extents[i + 1:])) for i in range(len(extents)))

    source, target = dense(shape), tuple(shape[a] for a in axes)
    return CopyProblem(target, tuple(source[a] for a in axes), dense(target), item, **options)


def planned(shape, axes, item, **options):
    return plan_copy(problem_of(shape, axes, item, **options), H200)


# -- what is moved ----------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 7, 8, 16, 31])
def test_small_matrices(engine, item, rows):
    for columns in (2, 3, 6, 9, 16, 33 if item < 16 else 15):
        moved(engine, (37, rows, columns), item, (0, 2, 1))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("around", [-1, 0, 1])
def test_borders_of_boxes(engine, item, around):
    for rows, columns in ((3, 3), (7, 5)):
        box = planned((10**6, rows, columns), (0, 2, 1), item).config.box
        move(engine, scrambled((2 * box[-1] + around, rows, columns), item), (0, 2, 1))
        plan = planned((500, 400, rows), (1, 0, 2), item)
        if isinstance(plan.config, BoxConfig):
            _, down, across = plan.config.box
            moved(engine, (2 * across + around, 2 * down - around, rows), item, (1, 0, 2))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8])
def test_misaligned(engine, item, offset):
    moved(engine, (70, 3, 5), item, (0, 2, 1), src_offset=offset)
    moved(engine, (70, 3, 5), item, (0, 2, 1), dst_offset=offset)
    moved(engine, (45, 39, 3), item, (1, 0, 2), src_offset=offset, dst_offset=8 - offset)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("pad", [1, 2, 5])
def test_gaps_between_rows(engine, item, pad):
    moved(engine, (70, 3, 5), item, (0, 2, 1), src_pad=pad)
    moved(engine, (70, 3, 5), item, (0, 2, 1), dst_pad=pad)
    moved(engine, (45, 39, 3), item, (1, 0, 2), src_pad=pad, dst_pad=pad)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("gaps", [(3, 0), (0, 1), (3, 1)], ids=str)
def test_rows_end_within_vectors_where_boxes_end(engine, item, gaps):
    """273 and 303 elements in rows of 276 and 304: vectors are wide, and the last box is smaller along both modes."""
    shape, rows = (91, 101, 3), (273 + gaps[0], 303 + gaps[1])
    src = Strided(aligned(100 * rows[0] + 273, SIZES[item]), 0, shape, (3, rows[0], 1))
    dst = Strided(aligned(91 * rows[1], SIZES[item]), 0, shape, (rows[1], 3, 1))
    src.base[:] = scrambled(src.base.shape, item)
    dst.base.view(np.uint8)[:] = 0xA5
    plan = plan_copy(copy_problem(src, dst), engine.device)
    engine.run(plan, src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()
    assert (dst.base.reshape(91, rows[1])[:, 303:].copy().view(np.uint8) == 0xA5).all()
    assert item == 16 or (max(plan.config.source.vector, plan.config.target.vector) > 1 and len(plan.config.cut) == 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((40, 3, 4, 5), (0, 3, 2, 1)), ((3, 30, 5, 2), (1, 3, 0, 2)),
                                         ((9, 11, 7, 3), (0, 2, 1, 3)), ((2, 50, 2, 3, 4), (1, 4, 0, 3, 2)),
                                         ((6, 5, 4), (2, 1, 0))], ids=str)
def test_several_modes(engine, item, shape, axes):
    moved(engine, shape, item, axes)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("flip", [("src", 0), ("src", 1), ("src", 2), ("dst", 0), ("dst", 2)])
def test_modes_walked_backwards(engine, item, flip):
    move(engine, scrambled((70, 3, 5), item), (0, 2, 1), flip=(flip,))
    move(engine, scrambled((45, 39, 3), item), (1, 0, 2), flip=(flip,))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
def test_parts_of_matrices(engine, item):
    """Rotations out of poses: 3 x 3 of 4 x 4; they follow each other with gaps."""
    src = Strided(aligned(60 * 16, SIZES[item]), 0, (60, 3, 3), (16, 1, 4))
    src.base[:] = scrambled((60 * 16,), item)
    dst = Strided(aligned(60 * 9, SIZES[item]), 0, (60, 3, 3), (9, 3, 1))
    plan = plan_copy(copy_problem(src, dst), engine.device)
    engine.run(plan, src=src, dst=dst)
    assert isinstance(plan.config, BoxConfig) and dst.view.tobytes() == src.view.tobytes()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((300, 3, 5), (0, 2, 1)), ((45, 39, 3), (1, 0, 2))], ids=str)
@pytest.mark.parametrize("blocks, threads", [(1, 32), (2, 128), (3, 256)])
def test_blocks_move_one_box_after_the_other(engine, item, shape, axes, blocks, threads):
    """Other blocks and threads, and offsets of 64 bits."""
    plan = moved(engine, shape, item, axes)
    src, dst = (Strided(aligned(int(np.prod(shape)), SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    kernel = boxes_kernel(replace(plan.config, threads=threads, wide=True))
    engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel, grid=(blocks, 1, 1)),)), src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
def test_what_is_broadcast(engine, item):
    """Rows of 3 repeated, and each of them repeated."""
    src = Strided(aligned(150, SIZES[item]), 0, (40, 50, 3), (0, 3, 1))
    src.base[:] = scrambled((150,), item)
    for strides in ((0, 3, 1), (3, 0, 1)):
        source, dst = replace(src, strides=strides), Strided(aligned(6000, SIZES[item]), 0, src.shape, (150, 3, 1))
        engine.run(plan_copy(copy_problem(source, dst), engine.device), src=source, dst=dst)
        assert dst.view.tobytes() == source.view.tobytes()


# -- wider elements ---------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item, n, wider", [(1, 2, 2), (1, 4, 4), (1, 8, 8), (1, 16, 16), (2, 2, 4), (2, 8, 16), (4, 2, 8),
                                            (4, 4, 16), (8, 2, 16)])
def test_pixels_that_are_elements(engine, item, n, wider):
    plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2))
    assert plan.config.item == wider and plan.problem.itemsize == item and not isinstance(plan.config, BoxConfig)
    for options in ({"src_offset": 1}, {"dst_offset": 1}, {"src_pad": 1}, {"dst_pad": 1}):
        plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2), **options)
        assert plan.config.item == item
    plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2), src_offset=n, flip=(("src", 0), ("dst", 1)))
    assert plan.config.item in (item, wider)


# -- planning ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [
    ((10**7, 3, 3), (0, 2, 1)), ((10**6, 4, 4), (0, 2, 1)), ((10**5, 16, 16), (0, 2, 1)), ((10**5, 7, 13), (0, 2, 1)),
    ((10**5, 10, 50), (0, 2, 1)), ((4096, 4096, 3), (1, 0, 2)), ((20000, 5, 7, 11), (0, 3, 2, 1)), ((4001, 4001, 3), (1, 0, 2)),
], ids=str)
def test_short_modes_are_moved_by_boxes(item, shape, axes):
    plan = planned(shape, axes, item)
    config, grid = plan.config, plan.launches[0].grid[0]
    assert isinstance(config, BoxConfig) and f"boxes of {' x '.join(map(str, config.box))} elements" in plan.reason
    assert config.elements * item <= 8192 and config.threads <= 1024 and grid * config.threads <= 2048 * H200.multiprocessors
    # Runs on both sides, of what follows each other there, and where there is enough of it.
    for side in (config.source, config.target):
        run = int(np.prod([config.box[q] for q in side.order[:side.run]]))
        assert run * item >= 64 and run % side.vector == 0
    if shape[0] == 10**7:
        assert config.source.vector * item == 16 and side.run == len(config.box)


@pytest.mark.parametrize("shape, axes, item", [
    ((64, 1024, 1024), (0, 2, 1), 4), ((20000, 64, 64), (0, 2, 1), 4), ((20000, 32, 32, 3), (0, 3, 1, 2), 4),
    ((20000, 3, 32, 32), (0, 2, 3, 1), 4), ((8, 1000, 64, 256), (3, 2, 1, 0), 1), ((8, 2048, 16, 128), (0, 2, 1, 3), 2),
    ((8192, 8192), (1, 0), 4), ((10**6, 20), (1, 0), 4), ((100, 7), (1, 0), 8),
])
def test_others_are_not(shape, axes, item):
    assert not isinstance(planned(shape, axes, item).config, BoxConfig)


def test_few_matrices_have_small_boxes():
    many, some, few = (planned((n, 3, 3), (0, 2, 1), 4) for n in (10**7, 20000, 1000))
    assert some.config.elements * 4 <= 1024 < many.config.elements * 4 and some.launches[0].grid[0] > H200.multiprocessors
    assert not isinstance(few.config, BoxConfig)                        # one kernel for all shapes


@pytest.mark.parametrize("item", [1, 2, 4])
def test_writes_are_as_wide_as_shared_memory_delivers(item):
    """Vectors of 32 x 32 would be gathered from words of one bank; those of 3 x 3 from all."""
    assert planned((80000, 32, 32), (0, 2, 1), 1).config.target.vector == 16
    shape = {1: (7, 13), 2: (7, 13), 4: (3, 3)}[item]
    assert planned((10**6, *shape), (0, 2, 1), item).config.target.vector * item <= 8


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((2000, 3, 3), (0, 2, 1)), ((500, 8, 8), (0, 2, 1)), ((128, 144, 3), (1, 0, 2))], ids=str)
def test_sectors_are_read_and_written_once(item, shape, axes):
    """As the emulator counts them: whole sectors on both sides, and few conflicts."""
    problem = problem_of(shape, axes, item)
    src, dst = (Strided(aligned(int(np.prod(shape)), SIZES[item]), 0, problem.shape, s)
                for s in (problem.src_strides, problem.dst_strides))
    plan = plan_copy(problem, H200)
    assert isinstance(plan.config, BoxConfig)
    for (space, _write), (most, least) in transactions(plan, src=src, dst=dst).items():
        assert most <= (1.3 if space == "global" else 4.5 if item < 16 else 8) * max(1, least), (plan.config, space, most, least)


def test_what_the_kernel_refuses():
    side = BoxSide((1, 0), 2, 4)
    with pytest.raises(CodegenError, match="runs of a box are whole vectors"):
        BoxConfig(4, (3, 3), (), side, side, 32)
    with pytest.raises(CodegenError, match="cut along the last of its modes"):
        BoxConfig(4, (4, 4), (1,), side, side, 32)
