"""``copy`` and ``transpose``: every element size, permutation and stride, exact to the bit, in the
emulator and on a GPU."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.tiles import TransposeConfig, transpose_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.copy.dispatch import canonical_modes
from cuteblas.planning.problem import Mode

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, move, scrambled


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("shape", [(64, 64), (128, 160), (65, 33), (100, 132), (1, 300), (300, 1),
                                   (8, 16), (258, 66)])
def test_transposes(engine, item, shape):
    plan = move(engine, scrambled(shape, item), (1, 0))
    assert plan.family == ("copy" if 1 in shape else "transpose")


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("item", [1, 4, 16])
def test_three_modes(engine, item, axes):
    move(engine, scrambled((12, 34, 20), item), axes)


@pytest.mark.parametrize("axes", [(3, 2, 1, 0), (0, 2, 1, 3), (2, 0, 3, 1), (1, 0, 3, 2)])
@pytest.mark.parametrize("item", [2, 8])
def test_four_modes(engine, item, axes):
    move(engine, scrambled((5, 6, 7, 16), item), axes)


@pytest.mark.parametrize("axes", [(4, 0, 3, 1, 2), (0, 3, 2, 4, 1)])
def test_five_modes(engine, axes):
    move(engine, scrambled((3, 4, 5, 6, 8), 4), axes)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("shape, axes", [((3, 32, 2, 5, 128), (4, 2, 0, 3, 1)),
                                         ((32, 9, 2, 64), (3, 2, 1, 0)),
                                         ((8, 40, 2, 3, 64), (4, 3, 2, 1, 0)),
                                         ((2, 48, 3, 64), (3, 2, 1, 0))], ids=str)
def test_two_modes_that_are_one_in_the_target(engine, item, shape, axes):
    move(engine, scrambled(shape, item), axes)


@pytest.mark.usefixtures("tiles_alone")
@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("axes, modes", [((1, 0), 0), ((2, 1, 0), 1), ((3, 1, 2, 0), 2),
                                         ((1, 3, 2, 0), 2)], ids=str)
def test_the_order_of_tiles(engine, item, axes, modes):
    """Strips of all, one, two and more tiles, the last one narrower; strips of one tile for some or
    all of the batch."""
    tile = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item), H200).config.tile
    shape = 2 * tile[1] + 32, *((2, 3)[:modes]), 4 * tile[0] + 16
    values = scrambled(shape, item)
    plan = move(engine, values, axes)
    src, dst = (Strided(aligned(values.size, SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = values.transpose(axes)
    for group, inner in ((0, 0), (2, 0), (3, 0), (9, 0),
                         *((1, n) for n in range(plan.config.modes + 1))):
        kernel = transpose_kernel(replace(plan.config, group=group, inner=inner))
        dst.base.view(np.uint8)[:] = 0xA5
        engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel),)), src=src,
                   dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()
    for group, inner in ((2, 1), (1, plan.config.modes + 1)):
        with pytest.raises(CodegenError, match="strips of one tile"):
            replace(plan.config, group=group, inner=inner)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("options", [{"src_pad": 3}, {"dst_pad": 5}, {"src_pad": 16, "dst_pad": 16},
                                     {"src_offset": 1}, {"dst_offset": 3},
                                     {"src_offset": 1, "dst_offset": 1, "src_pad": 1}], ids=str)
def test_padding_and_alignment(engine, item, options):
    move(engine, scrambled((48, 80), item), (1, 0), **options)
    move(engine, scrambled((48, 80), item), (0, 1), **options)


@pytest.mark.parametrize("flip", [(("src", 0),), (("src", 1),), (("dst", 0),), (("dst", 1),),
                                  (("src", 0), ("dst", 1))], ids=str)
@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_modes_walked_backwards(engine, axes, flip):
    move(engine, scrambled((40, 72), 4), axes, flip=flip)


@pytest.mark.parametrize("item", [1, 8])
def test_broadcast_source(engine, item):
    row = scrambled((1, 50), item)
    src = Strided(aligned(50, row.dtype), 0, (30, 50), (0, 1))
    src.base[:] = row[0]
    dst = Strided(aligned(1500, row.dtype), 0, (30, 50), (1, 30))
    engine.run(plan_copy(copy_problem(src, dst), engine.device), src=src, dst=dst)
    np.testing.assert_array_equal(dst.view, np.broadcast_to(row, (30, 50)))


def test_every_other_element_of_both(engine):
    src, dst = aligned(4000, "u4"), aligned(4000, "u4")
    src[:] = np.arange(4000)
    source, target = Strided(src, 1, (30, 40), (2, 90)), Strided(dst, 3, (30, 40), (82, 2))
    engine.run(plan_copy(copy_problem(source, target), engine.device), src=source, dst=target)
    np.testing.assert_array_equal(target.view, source.view)


def test_offsets_of_64_bits(engine):
    values = scrambled((64, 40), 4)
    src, dst = (Strided(aligned(64 * 40, "u4"), 0, (40, 64), s) for s in ((1, 40), (64, 1)))
    src.view[...] = values.T
    plan = plan_copy(copy_problem(src, dst), engine.device)
    wide = transpose_kernel(replace(plan.config, wide=True))
    engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=wide),)), src=src, dst=dst)
    np.testing.assert_array_equal(dst.view, src.view)
    huge = plan_copy(CopyProblem((2**16, 2**15), (1, 2**16), (2**15, 1), 1), H200)
    assert huge.config.wide


def test_vectors_of_16_bytes_and_no_bank_conflicts():
    """Bytes are read by 8 and put into shared memory at half the speed, which is faster than by 4
    without conflicts."""
    for item in SIZES:
        plan = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item), H200)
        facts = plan.facts
        assert facts["global store D"].startswith("16 bytes a lane"), facts
        assert "no bank conflict" in facts["shared load sT"], facts
        assert ("no bank conflict" if item > 1
                else "8 wavefronts of at least 4") in facts["shared store sT"], facts


@pytest.mark.parametrize("rows, columns, alignment, tile, load",
                         [(128, 256, 16, (256, 128), 8), (8192, 8192, 16, (256, 128), 8),
                          (8192, 240, 16, (128, 128), 4), (96, 8192, 16, (128, 128), 4),
                          (8192, 8192, 4, (128, 128), 4), (32, 132, 4, (128, 128), 4),
                          (64, 64, 16, (64, 64), 4), (48, 60, 4, (64, 64), 4),
                          (256, 64, 16, (64, 256), 4), (240, 64, 16, (128, 128), 4)])
def test_tiles_of_bytes(tiles_alone, rows, columns, alignment, tile, load):
    plan = plan_copy(CopyProblem((columns, rows), (1, columns), (rows + -rows % 32, 1), 1,
                                 src_alignment=alignment), H200)
    assert (plan.config.tile, plan.config.load) == (tile, load)
    threads = {(64, 256): 512, (64, 64): 128}.get(tile, 512 if load == 4
                                                  and min(rows, columns) >= 128 else 256)
    assert plan.config.threads == threads


@pytest.mark.parametrize("rows, columns", [(64, 64), (64, 36), (256, 64), (544, 68), (128, 128),
                                           (320, 132)])
def test_small_and_narrow_matrices_of_bytes(engine, rows, columns):
    facts = move(engine, scrambled((2, rows, columns), 1), (0, 2, 1)).facts
    assert all("no bank conflict" in text for name, text in facts.items()
               if name.startswith("shared")), facts


@pytest.mark.parametrize("item", SIZES)
def test_rows_of_the_target_are_in_order_through_all_modes(tiles_alone, item):
    """Strips of one tile for all batch modes between I and J in the target and for no others."""
    for axes, inner in (((2, 1, 0), 1), ((3, 2, 1, 0), 2), ((0, 3, 2, 1), 1), ((0, 2, 1), 0)):
        source = {axis: 64 ** (len(axes) - 1 - axis) for axis in axes}
        target = tuple(64 ** (len(axes) - 1 - q) for q in range(len(axes)))
        config = plan_copy(CopyProblem((64,) * len(axes), tuple(source[axis] for axis in axes),
                                       target, item), H200).config
        assert config.inner == inner and (config.group == 1 or not inner), config


def test_odd_sizes_have_no_bank_conflicts_either():
    for item in SIZES:
        facts = plan_copy(CopyProblem((8193, 8191), (1, 8193), (8191, 1), item), H200).facts
        assert all("no bank conflict" in text for name, text in facts.items()
                   if name.startswith("shared") and name.endswith("sT"))


def test_vectors_start_where_a_mode_that_is_walked_backwards_ends(engine):
    """The last element of every row is aligned to 16 bytes, the first is not."""
    plan = move(engine, scrambled((40, 72), 4), (0, 1), flip=(("src", 1), ("dst", 1)), src_offset=1,
                dst_offset=1)
    assert plan.config.word == 4


def test_a_broadcast_mode_does_not_hide_a_transposition():
    assert plan_copy(CopyProblem((8, 64, 64), (0, 1, 64), (4096, 64, 1), 4),
                     H200).family == "transpose"


def test_modes_merge_and_turn():
    problem = CopyProblem((4, 1, 5, 6), (30, 7, 6, 1), (30, 9, 6, 1), 4)
    assert canonical_modes(problem) == ((Mode(120, 1, 1),), (0, 0))
    problem = CopyProblem((4, 5), (1, 4), (-5, -1), 4)
    assert canonical_modes(problem) == ((Mode(5, -4, 1), Mode(4, -1, 5)), (19, -19))


def test_nothing_to_do_and_misuse():
    assert plan_copy(CopyProblem((3, 0), (1, 3), (1, 3), 4), H200).launches == ()
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16 bytes, got 3"):
        plan_copy(CopyProblem((3,), (1,), (1,), 3), H200)
    with pytest.raises(CodegenError, match="multiples of a word"):
        TransposeConfig(4, 4, 6, 16, (64, 64))
    with pytest.raises(CodegenError, match="does not divide"):
        transpose_kernel(TransposeConfig(4, 4, 16, 16, (48, 48)))
