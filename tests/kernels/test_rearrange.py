"""Permutations by boxes: every small matrix, misalignment and order; no other memory; which boxes
are taken, and when."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.rearrange import BoxSide, RearrangeConfig, rearrange_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.copy.dispatch import copy_alternatives

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, move, moved_by, scrambled, transactions

ITEMS = [1, 2, 4, 8, 16]
moved = partial(moved_by, RearrangeConfig)


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


# -- what is moved ---------------------------------------------------------------------------------
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
        if isinstance(plan.config, RearrangeConfig):
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
    """273 and 303 elements in rows of 276 and 304: vectors are wide, and the last box is smaller
    along both modes."""
    shape, rows = (91, 101, 3), (273 + gaps[0], 303 + gaps[1])
    src = Strided(aligned(100 * rows[0] + 273, SIZES[item]), 0, shape, (3, rows[0], 1))
    dst = Strided(aligned(91 * rows[1], SIZES[item]), 0, shape, (rows[1], 3, 1))
    src.base[:] = scrambled(src.base.shape, item)
    dst.base.view(np.uint8)[:] = 0xA5
    plan = plan_copy(copy_problem(src, dst), engine.device)
    engine.run(plan, src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()
    assert (dst.base.reshape(91, rows[1])[:, 303:].copy().view(np.uint8) == 0xA5).all()
    assert isinstance(plan.config, RearrangeConfig) and plan.config.cut


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((40, 3, 4, 5), (0, 3, 2, 1)),
                                         ((3, 30, 5, 2), (1, 3, 0, 2)),
                                         ((9, 11, 7, 3), (0, 2, 1, 3)),
                                         ((2, 50, 2, 3, 4), (1, 4, 0, 3, 2)),
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
    assert isinstance(plan.config, RearrangeConfig) and dst.view.tobytes() == src.view.tobytes()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((300, 3, 5), (0, 2, 1)), ((45, 39, 3), (1, 0, 2))],
                         ids=str)
@pytest.mark.parametrize("lanes, rows", [(1, 1), (7, 3), (32, 4), (5, 51)])
def test_other_threads(engine, item, shape, axes, lanes, rows):
    """Any number of threads along runs and along rows, and offsets of 64 bits."""
    plan = moved(engine, shape, item, axes)
    src, dst = (Strided(aligned(int(np.prod(shape)), SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    source, target = (replace(side, lanes=lanes, rows=rows)
                      for side in (plan.config.source, plan.config.target))
    kernel = rearrange_kernel(replace(plan.config, source=source, target=target, threads=256,
                                      wide=True))
    engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel),)), src=src,
               dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
def test_what_is_broadcast(engine, item):
    """Rows of 3 repeated, and each of them repeated."""
    src = Strided(aligned(150, SIZES[item]), 0, (40, 50, 3), (0, 3, 1))
    src.base[:] = scrambled((150,), item)
    for strides in ((0, 3, 1), (3, 0, 1)):
        source, dst = replace(src, strides=strides), Strided(aligned(6000, SIZES[item]), 0,
                                                             src.shape, (150, 3, 1))
        engine.run(plan_copy(copy_problem(source, dst), engine.device), src=source, dst=dst)
        assert dst.view.tobytes() == source.view.tobytes()


# -- wider elements --------------------------------------------------------------------------------
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item, n, wider", [(1, 2, 2), (1, 4, 4), (1, 8, 8), (1, 16, 16), (2, 2, 4),
                                            (2, 8, 16), (4, 2, 8), (4, 4, 16), (8, 2, 16)])
def test_pixels_that_are_elements(engine, item, n, wider):
    plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2))
    assert plan.config.item == wider and plan.problem.itemsize == item
    for options in ({"src_offset": 1}, {"dst_offset": 1}, {"src_pad": 1}, {"dst_pad": 1}):
        plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2), **options)
        assert plan.config.item == item
    plan = move(engine, scrambled((70, 90, n), item), (1, 0, 2), src_offset=n,
                flip=(("src", 0), ("dst", 1)))
    assert plan.config.item in (item, wider)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", [1, 2])
@pytest.mark.parametrize("shape, axes", [((37, 5, 7, 11), (3, 1, 2, 0)), ((61, 50, 3), (1, 0, 2)),
                                         ((7, 3, 41, 35), (3, 1, 0, 2)),
                                         ((35, 9, 5, 41), (3, 2, 1, 0))], ids=str)
def test_runs_that_begin_anywhere_are_written_by_words(engine, item, shape, axes):
    plan = move(engine, scrambled(shape, item), axes, dst_offset=1)
    assert plan.config.target.covering and "writes of 4 bytes" in plan.reason
    for options in ({"dst_offset": 3, "dst_pad": 1}, {"src_offset": 1, "dst_pad": 3},
                    {"src_pad": 2}, {"flip": (("src", 0), ("dst", 1))}):
        move(engine, scrambled(shape, item), axes, **options)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", [1, 2])
def test_both_sides_are_one_run_that_begins_anywhere(engine, item):
    """Matrices that change places, each a run in both."""
    for offset in (0, 1, 3):
        plan = moved(engine, (5, 7, 11, 13), item, (1, 0, 2, 3), src_offset=offset,
                     dst_offset=2 * offset + 1)
        assert plan.config.source.covering and plan.config.target.covering


# -- planning --------------------------------------------------------------------------------------
ISSUE = [((100, 200, 300, 10), (3, 2, 1, 0)), ((40, 50, 60, 70, 3), (1, 4, 0, 3, 2)),
         ((9,) * 7, (5, 6, 4, 0, 2, 1, 3)), ((11, 13, 17, 19, 15, 5), (5, 3, 1, 0, 2, 4)),
         ((7, 11, 13, 17, 19, 5), (5, 3, 1, 0, 2, 4)),
         ((2,) * 22, (0, 13, 11, 21, 7, 4, 15, 18, 2, 14, 9, 20, 17, 12, 19, 8, 5, 10, 6, 16, 1,
                      3))]


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((10**7, 3, 3), (0, 2, 1)), ((10**6, 4, 4), (0, 2, 1)),
                                         ((10**5, 7, 13), (0, 2, 1)), ((4096, 4096, 3), (1, 0, 2)),
                                         ((20000, 5, 7, 11), (0, 3, 2, 1)),
                                         ((4001, 4001, 3), (1, 0, 2)), *ISSUE], ids=str)
def test_short_modes_are_moved_by_boxes(item, shape, axes):
    plan = planned(shape, axes, item)
    config, kernel = plan.config, plan.launches[0].kernel
    assert isinstance(config, RearrangeConfig) and f"boxes of {' x '.join(map(str, config.box))} elements" in plan.reason
    assert config.elements * item <= 16384 and config.threads <= 512 and kernel.shared_bytes <= 49152
    for side in (config.source, config.target):
        run = int(np.prod([config.box[q] for q in side.order[:side.run]]))
        assert run * item >= 32 and (side.covering or run % side.word == 0)
        # No thread without a word, and no thread with many more than others.
        passes = -(-side.words(item, config.box) // side.lanes) * -(
            -(config.elements // run) // side.rows
        )
        assert passes * side.lanes * side.rows <= 2 * config.elements // side.word + config.threads


@pytest.mark.parametrize("shape, axes, item", [((64, 1024, 1024), (0, 2, 1), 4),
                                               ((20000, 64, 64), (0, 2, 1), 4),
                                               ((8192, 8192), (1, 0), 4), ((8191, 8193), (1, 0), 1),
                                               ((100, 7), (1, 0), 8),
                                               ((1000, 50, 400), (1, 0, 2), 4),])
def test_others_are_not(shape, axes, item):
    assert not isinstance(planned(shape, axes, item).config, RearrangeConfig)


def test_few_matrices_have_small_boxes():
    many, some, few = (planned((n, 3, 3), (0, 2, 1), 4) for n in (10**7, 20000, 1000))
    assert some.config.elements < many.config.elements and some.launches[0].grid[0] > H200.multiprocessors
    assert not isinstance(few.config, RearrangeConfig)                   # one kernel for all shapes


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [*ISSUE, ((10**6, 16), (1, 0)), ((10**6, 48), (1, 0)),
                                         ((50, 64, 48, 64), (0, 3, 1, 2)), ((8192, 8192), (1, 0))],
                         ids=str)
def test_neighbours_meet_in_few_banks(monkeypatch, item, shape, axes):
    """Counted: without padding up to 32 lanes read one bank."""
    monkeypatch.setattr("cuteblas.planning.copy.dispatch._in_boxes", lambda *_: True)
    _tile, box, *_others = copy_alternatives(problem_of(shape, axes, item), H200)
    facts = box.plan().facts
    found = re.findall(r"(\d+) wavefronts of at least (\d+)",
                       " ".join(text for what, text in facts.items() if "shared" in what))
    assert found and max(int(n) / int(least) for n, least in found) <= (3 if item > 2 else 4)


def test_the_kernel_of_the_least_estimate_is_taken():
    for shape, axes in (((40, 50, 60, 70, 3), (1, 4, 0, 3, 2)), ((1000, 1000, 64), (1, 0, 2)),
                        ((100, 200, 300, 10), (3, 2, 1, 0))):
        for item in (1, 4, 16):
            problem = problem_of(shape, axes, item)
            choices = copy_alternatives(problem, H200)
            assert len(choices) > 2 and plan_copy(problem, H200).seconds == min(
                choice.seconds(H200) for choice in choices
            )


@pytest.mark.parametrize("shape, axes, boxes",
                         [((300, 101, 300), (0, 2, 1), True), ((8191, 8193), (1, 0), False),
                          ((10, 49, 67, 16, 5, 12), (0, 2, 4, 5, 3, 1), True),
                          ((50, 1001, 1037), (0, 2, 1), False)], ids=str)
def test_tiles_of_rows_that_begin_anywhere_compete_with_boxes_where_they_are_empty(
    shape, axes, boxes
):
    """They are of one size, and have the elements before a sector besides: 101 columns take two
    tiles of 128."""
    assert isinstance(plan_copy(problem_of(shape, axes, 1), H200).config, RearrangeConfig) == boxes


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes, sectors",
                         [((2000, 3, 3), (0, 2, 1), 1.12), ((500, 8, 8), (0, 2, 1), 1.01),
                          ((128, 144, 3), (1, 0, 2), 2.1)], ids=str)
def test_sectors_are_read_and_written_once(item, shape, axes, sectors):
    """As the emulator counts them: whole sectors but in boxes of so small an image, and few
    conflicts."""
    problem = problem_of(shape, axes, item)
    src, dst = (Strided(aligned(int(np.prod(shape)), SIZES[item]), 0, problem.shape, s)
                for s in (problem.src_strides, problem.dst_strides))
    plan = plan_copy(problem, H200)
    assert isinstance(plan.config, RearrangeConfig)
    for (space, _write), (most, least) in transactions(plan, src=src, dst=dst).items():
        # elements at the ends of runs are written one by one
        ends = 1.3 if plan.config.target.covering else 1.0
        assert most <= (sectors * ends if space == "global" else 4) * max(1, least), (
            plan.config,
            space,
            most,
            least
        )


@pytest.mark.usefixtures("few")
def test_rows_that_begin_anywhere_are_written_from_where_sectors_begin():
    """Else every write of a warp would share a sector with the next one's."""
    odd, even = (planned((n, 5, 7, 60), (3, 1, 2, 0), 4).config.target for n in (37, 40))
    assert (odd.grain, even.grain) == (32, 0) and odd.lanes % 8 == 0


def test_what_the_kernel_refuses():
    side = BoxSide((1, 0), 2, 4, 8, 1)
    with pytest.raises(CodegenError, match="runs of a box must be whole words"):
        RearrangeConfig(4, (3, 3), (), (), side, side, (1, 3), (), 32)
    with pytest.raises(CodegenError, match="only be cut along its last mode"):
        RearrangeConfig(4, (4, 4), (1,), (), side, side, (4, 1), (1,), 32)
    with pytest.raises(CodegenError, match="order boxes along every cut mode"):
        RearrangeConfig(4, (4, 4), (0,), (), side, side, (4, 1), (), 32)
    with pytest.raises(CodegenError, match="order boxes along every cut mode"):
        RearrangeConfig(4, (4, 4), (0,), (1,), side, side, (4, 1), (0,), 32)
    covering = BoxSide((1, 0), 1, 2, 8, 1, grain=32)
    for item, source, target in ((4, replace(side, grain=32), side),
                                 (1, replace(side, word=1), covering)):
        with pytest.raises(CodegenError, match="need words of 4 bytes or of one element"):
            RearrangeConfig(item, (4, 4), (), (), source, target, (4, 1), (), 32)
    for held in ((4, 1), (1, 4)):
        RearrangeConfig(2, (4, 4), (), (), replace(side, word=1), covering, held, (), 32)
