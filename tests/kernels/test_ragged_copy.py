"""Copies between rows that begin anywhere: every misalignment, rows that end anywhere; no other
memory."""

from dataclasses import replace

import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.straight import CopyConfig, copy_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy

from .engines import Strided, aligned, copy_problem
from .moves import move, scrambled

ITEMS = [1, 2]


def is_ragged(config):
    return isinstance(config, CopyConfig) and config.anywhere


def moved(engine, shape, item, axes=None, **options):
    """A copy by a plan that is certainly of this kind."""
    plan = move(engine, scrambled(shape, item), axes or tuple(range(len(shape))), **options)
    assert is_ragged(plan.config), plan.config
    return plan


@pytest.mark.parametrize("item", ITEMS)
def test_every_misalignment_of_both_sides(engine, item):
    """Of words of 4 bytes in the source, of vectors of 16 in the target."""
    for offset in range(16 // item):
        moved(engine, (3, 4 * 16 // item + 65), item, src_offset=offset, src_pad=1,
              dst_offset=offset * 5 % (16 // item), dst_pad=3)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_borders_of_tiles(engine, item, more):
    columns = 32 * 16 // item + more
    for along_j, rows in ((8, 16 + more), (1, 5)):
        plan = moved(engine, (rows, columns), item, src_pad=1, dst_pad=1, src_offset=1,
                     dst_offset=2)
        assert plan.config.tile[1] == along_j


@pytest.mark.parametrize("item", ITEMS)
def test_larger_tiles_for_many_rows(engine, item):
    src, dst = (Strided(aligned(70 * 1111, f"u{item}"), 0, (70, 1101), (s, 1))
                for s in (1101, 1111))
    src.view[...] = scrambled(src.shape, item)
    plan = plan_copy(copy_problem(src, dst), replace(engine.device, multiprocessors=1))
    assert plan.config.tile == (32, 16)
    engine.run(plan, src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()


@pytest.mark.parametrize("item", ITEMS)
def test_one_row(engine, item):
    """A slice of a vector: no byte before or after it is read, not even as part of a word (the
    emulator checks)."""
    for offset in range(1, 16 // item, 2):
        moved(engine, (300,), item, src_offset=offset)
        moved(engine, (64,), item, dst_offset=offset)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, axes", [((3, 33, 65), (0, 1, 2)), ((3, 33, 65), (1, 0, 2)),
                                         ((2, 5, 3, 67), (2, 0, 1, 3))], ids=str)
def test_batches(engine, item, shape, axes):
    moved(engine, shape, item, axes, src_pad=1, dst_pad=2)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("flip", [(("src", 0),), (("dst", 0),), (("src", 0), ("dst", 0))], ids=str)
def test_rows_walked_backwards(engine, item, flip):
    moved(engine, (35, 77), item, src_pad=2, dst_pad=3, flip=flip)


@pytest.mark.parametrize("item", ITEMS)
def test_offsets_of_64_bits(engine, item):
    plan = moved(engine, (33, 77), item, src_pad=2)
    src, dst = (Strided(aligned(33 * 79, f"u{item}"), 0, (33, 77), (s, 1)) for s in (79, 77))
    src.view[...] = scrambled((33, 77), item)
    wide = copy_kernel(replace(plan.config, wide=True))
    engine.run(replace(plan, launches=(replace(plan.launches[0], kernel=wide),)), src=src, dst=dst)
    assert dst.view.tobytes() == src.view.tobytes()
    assert plan_copy(CopyProblem((70000, 40000), (50001, 1), (40001, 1), item), H200).config.wide


def test_which_copies_are_of_this_kind():
    def config(shape, src, dst, item, **options):
        return plan_copy(CopyProblem(shape, src, dst, item, **options), H200).config

    assert is_ragged(config((100, 101), (101, 1), (128, 1), 2))
    assert is_ragged(config((100, 102), (102, 1), (128, 1), 1))
    assert is_ragged(config((4096,), (1,), (1,), 2, src_alignment=2))
    assert config((4096,), (1,), (1,), 2, src_alignment=2).tile[1] == 1
    for other in (((100, 102), (102, 1), (128, 1), 2), ((100, 101), (101, 1), (128, 1), 4),
                  ((100, 63), (63, 1), (64, 1), 2), ((100, 101), (202, 2), (128, 1), 2)):
        assert not is_ragged(config(*other))


def test_what_the_kernel_refuses():
    for wrong in ({"word": 4}, {"src_unit": False}, {"dst_unit": False}):
        with pytest.raises(CodegenError, match="contiguous elements of less than 4 bytes"):
            CopyConfig(**{"word": 2, "tile": (32, 8), "anywhere": True} | wrong)
