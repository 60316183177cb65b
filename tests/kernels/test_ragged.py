"""Transposes between rows that begin anywhere: every misalignment, extents around borders of tiles
and cuts; no other memory."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.tiles import TransposeConfig, transpose_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, move, scrambled

pytestmark = pytest.mark.usefixtures("tiles_alone")


def is_ragged(config):
    return isinstance(config, TransposeConfig) and config.cut > 0


def moved(engine, shape, item, axes=(1, 0), **options):
    """A transpose by a plan that is certainly of this kind."""
    plan = move(engine, scrambled(shape, item), axes, **options)
    assert is_ragged(plan.config), plan.config
    return plan


def ragged(item, shape=(8193, 8191), gap=0, src_gap=0, **options):
    """The plan of a transpose of a matrix, to rows with gaps between them."""
    rows, columns = shape
    return plan_copy(CopyProblem(shape, (1, rows + src_gap), (columns + gap, 1), item, **options),
                     H200)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("around", [-1, 0, 1])
def test_borders_of_tiles_and_cuts(engine, item, around):
    config = ragged(item).config
    (along_j, along_i), border = config.tile, config.border
    for j in (along_j + around, 2 * along_j + around, 32 - min(around, 0)):
        for i in (along_i + around, along_i - border + around, 2 * along_i - border + around,
                  64 - min(around, 0)):
            moved(engine, (max(i, 64), max(j, 32)), item, dst_pad=int(max(i, 64) * item % 32 == 0))


@pytest.mark.parametrize("item", SIZES)
def test_every_misalignment_of_both_sides(engine, item):
    """Of words of 4 and vectors of 16 bytes in the source, of sectors and lines in the target."""
    for offset in range(128 // item):
        moved(engine, (67, 45), item, src_offset=offset, dst_offset=offset * 5 % (128 // item))


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("pad", [1, 2, 3, 5])
def test_every_row_is_misaligned_in_its_own_way(engine, item, pad):
    moved(engine, (129, 70), item, src_pad=pad, dst_pad=2 * pad, src_offset=pad, dst_offset=1)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("options", [{}, {"src_pad": 1, "src_offset": 3}, {"flip": (("src", 2),)}],
                         ids=str)
def test_tiles_of_which_all_rows_exist(engine, item, options):
    """The second and third along I, of three matrices of which the second has memory on both
    sides."""
    config = ragged(item).config
    moved(engine, (3, 3 * config.tile[1] + config.border + 5, 2 * config.tile[0] - 3), item,
          (0, 2, 1), **options)


@pytest.mark.parametrize("item", SIZES)
def test_one_aligned_side(engine, item):
    plan = move(engine, scrambled((128, 65), item), (1, 0))
    assert is_ragged(plan.config) == (item < 16)
    moved(engine, (65, 128), item, dst_pad=0)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("shape, axes", [((3, 67, 45), (0, 2, 1)), ((67, 5, 45), (2, 1, 0)),
                                         ((2, 65, 3, 33), (0, 3, 2, 1)),
                                         ((3, 67, 2, 2, 33), (0, 4, 2, 3, 1))], ids=str)
def test_batches_and_permutations(engine, item, shape, axes):
    moved(engine, shape, item, axes)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("flip", [(("src", 1),), (("dst", 1),), (("src", 1), ("dst", 1))], ids=str)
def test_rows_walked_backwards(engine, item, flip):
    """Rows from the last to the first; a source whose rows are read backwards has no words, and
    takes another kernel."""
    moved(engine, (67, 45), item, flip=flip)
    for other in ((("src", 0),), (("dst", 0),)):
        assert not is_ragged(move(engine, scrambled((67, 45), item), (1, 0), flip=other).config)


@pytest.mark.parametrize("item", SIZES)
def test_strips_of_tiles(engine, item):
    """More tiles along J than run together, and a last strip of fewer; two along I, of which one
    has less than a cut."""
    config = ragged(item).config
    rows, columns = max(64, config.tile[1] - config.border) + 1, 2 * config.tile[0] + 5
    plan = moved(engine, (rows, columns), item)
    src, dst = (Strided(aligned(rows * columns, SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    for group, wide in ((0, False), (1, True), (2, False)):
        kernel = transpose_kernel(replace(plan.config, group=group, wide=wide))
        dst.base.view(np.uint8)[:] = 0xA5
        engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel),)), src=src,
                   dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.parametrize("item", SIZES)
def test_a_batch_in_strips(engine, item):
    plan = moved(engine, (2, 67, 150), item, (0, 2, 1))
    src, dst = (Strided(aligned(2 * 67 * 150, SIZES[item]), 0, plan.problem.shape, s)
                for s in (plan.problem.src_strides, plan.problem.dst_strides))
    src.view[...] = scrambled(plan.problem.shape, item)
    for group, inner in ((2, 0), (1, 0), (1, 1)):
        kernel = transpose_kernel(replace(plan.config, group=group, inner=inner))
        dst.base.view(np.uint8)[:] = 0xA5
        engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=kernel),)), src=src,
                   dst=dst)
        assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.parametrize("cut, item, tile, threads",
                         [(32, 1, (256, 128), 512), (64, 1, (128, 128), 512),
                          (32, 2, (64, 64), 128), (32, 2, (64, 64), 256), (64, 2, (64, 64), 256),
                          (32, 4, (32, 64), 256), (64, 4, (32, 32), 256), (32, 8, (64, 32), 256),
                          (64, 8, (64, 32), 256), (32, 16, (64, 16), 128), (64, 16, (64, 16), 128)])
def test_cuts_at_sectors_and_at_lines(engine, cut, item, tile, threads):
    rows, columns = 131, 75
    src, dst = (Strided(aligned(rows * columns + 3, SIZES[item]), 3, (columns, rows), s)
                for s in ((1, columns), (rows, 1)))
    src.view[...] = scrambled((columns, rows), item)
    plan = plan_copy(copy_problem(src, dst), engine.device)
    config = replace(plan.config, cut=cut, tile=tile, threads=threads)
    blocks = -(-columns // tile[0]) * -(-(rows + config.border) // tile[1])
    launch = replace(plan.launches[0], kernel=transpose_kernel(config), grid=(blocks, 1, 1))
    engine.run(replace(plan, launches=(launch,)), src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()


def test_which_transposes_are_of_this_kind():
    for item in SIZES:
        assert is_ragged(ragged(item).config)
        assert not is_ragged(ragged(item, (8192, 8192)).config)
        assert is_ragged(ragged(item, (8192, 8192), dst_alignment=item).config) == (item < 16)
        assert is_ragged(ragged(item, (10**5, 37), gap=2).config)
        assert not is_ragged(ragged(item, (10**5, 31), gap=1).config)
    assert ragged(16).config.tile == (64, 32)
    assert ragged(4, (2**16 + 1, 2**14 + 1)).config.wide and not ragged(4).config.wide


def test_misuse():
    with pytest.raises(CodegenError, match="begin anywhere"):
        TransposeConfig(4, 4, 16, 16, (64, 64), cut=32)
    with pytest.raises(CodegenError, match="begin anywhere"):
        TransposeConfig(4, 4, 4, 16, (64, 64), cut=8)
    with pytest.raises(CodegenError, match="does not divide"):
        transpose_kernel(TransposeConfig(16, 16, 16, 16, (32, 32), cut=32))
    with pytest.raises(CodegenError, match="whole sectors apart"):
        transpose_kernel(TransposeConfig(1, 4, 4, 16, (64, 128), 128, cut=32))
