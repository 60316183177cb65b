"""``transpose_in_place``: square matrices of every element size, stride and extent, exact to the
bit; nothing else is touched."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.kernels.copy.tiles import TransposeConfig, transpose_kernel
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.copy.dispatch import square_modes

from .engines import Strided, aligned, outside
from .moves import SIZES, scrambled

POISON = 0xA5


def in_place(x, axes=None):
    """The problem of moving the elements of ``x`` with permuted axes to ``x``; the last two by
    default."""
    axes = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2) if axes is None else axes
    turned = tuple(x.strides[i] for i in axes)
    return CopyProblem(x.shape, turned, x.strides, x.base.itemsize, x.alignment, x.alignment,
                       in_place=True)


def turn(engine, n, item, *, batch=(), pad=0, gap=0, offset=0, step=1, order="C", flip=False,
         seed=None):
    """Transpose matrices in a poisoned allocation, compare, and see that nothing else was
    written."""
    strides = [step, step * n + pad]
    below = strides[1] * n + gap
    for extent in batch[::-1]:
        strides.append(below)
        below *= extent
    strides = [*strides[:1:-1], *(strides[1::-1] if order == "C" else strides[:2])]
    x = Strided(aligned(offset + below + 1, SIZES[item]), offset, (*batch, n, n), tuple(strides))
    if flip:
        x.offset += (n - 1) * x.strides[-2]
        x.strides = (*x.strides[:-2], -x.strides[-2], x.strides[-1])
    x.base.view(np.uint8)[:] = POISON
    x.view[...] = scrambled(x.shape, item)
    expected = np.swapaxes(x.view, -1, -2).copy()
    plan = plan_copy(in_place(x), engine.device)
    engine.run(plan, seed=seed, dst=x)
    assert x.view.tobytes() == expected.tobytes()
    assert (x.base[outside(x)].view(np.uint8) == POISON).all(), "memory outside of the matrices was written"
    assert plan.family == "transpose_in_place"
    return plan


def varied(plan, **changes):
    """The plan with a kernel that is specialised otherwise."""
    return replace(
        plan,
        launches=(
            replace(plan.launches[0], kernel=transpose_kernel(replace(plan.config, **changes))),
        )
    )


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("sizes", [range(2, 36), range(36, 70), range(70, 102), range(102, 131)],
                         ids=str)
def test_sizes(engine, item, sizes):
    for n in sizes:
        turn(engine, n, item)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("n", [192, 256, 257, 320, 384])
def test_many_tiles(engine, item, n):
    """Even and odd numbers of tiles along a side."""
    turn(engine, n, item, pad=16 // item, seed=n)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("tiles", [4, 5])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("less", [16, 13])
def test_strips_of_pairs(engine, item, tiles, batch, less):
    """One column of pairs, strips that divide the rectangle of pairs and that do not, and one strip
    of more than all."""
    even = 8192 - (less == 13)
    side = plan_copy(CopyProblem((even, even), (1, even), (even, 1), item, in_place=True),
                     H200).config.tile[0]
    n = tiles * side - less
    plan = turn(engine, n, item, batch=batch)
    x = Strided(aligned(int(np.prod((*batch, n, n))), SIZES[item]), 0, plan.problem.shape,
                plan.problem.dst_strides)
    expected = np.swapaxes(scrambled(x.shape, item), -1, -2)
    for group in (1, 2, 3, 8):
        x.view[...] = scrambled(x.shape, item)
        engine.run(varied(plan, group=group), dst=x)
        assert x.view.tobytes() == expected.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("n", [4096, 8191])
def test_large_matrices(engine, item, n):
    if engine.name == "emulator":
        pytest.skip("the emulator takes minutes")
    turn(engine, n, item)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("options", [{"pad": 3}, {"pad": 16}, {"offset": 1},
                                     {"offset": 3, "pad": 1}, {"step": 2},
                                     {"step": 3, "pad": 1, "offset": 1}, {"order": "F"},
                                     {"flip": True}, {"flip": True, "step": 2}], ids=str)
def test_strides_and_alignments(engine, item, options):
    turn(engine, 80, item, **options)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("options", [
    {"batch": (3,)}, {"batch": (2, 3)}, {"batch": (3,), "gap": 16}, {"batch": (2, 2), "gap": 1},
    {"batch": (3,), "pad": 16, "order": "F"}, {"batch": (3,), "step": 2}], ids=str)
def test_stacks(engine, item, options):
    for n in (5, 32, 130):
        turn(engine, n, item, **options)


@pytest.mark.parametrize("shape, axes, modes",
                         [((40, 3, 40), (2, 1, 0), (40, 1, 120, 1)),
                          ((6, 7, 6, 7), (2, 3, 0, 1), (42, 1, 42, 0)),
                          ((2, 33, 33), (0, 2, 1), (33, 1, 33, 1)),
                          ((33, 33, 2), (1, 0, 2), (33, 2, 66, 1)),
                          ((1, 5, 1, 5), (0, 3, 2, 1), (5, 1, 5, 0)),
                          ((4, 9, 3, 9, 2), (0, 3, 2, 1, 4), (9, 2, 54, 3))])
def test_modes_of_tensors_change_places(engine, shape, axes, modes):
    x = Strided(aligned(int(np.prod(shape)), "u4"), 0, shape,
                tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape))))
    x.view[...] = scrambled(shape, 4)
    expected = x.view.transpose(axes).copy()
    problem = in_place(x, axes)
    n, inner, outer, batch = square_modes(problem)
    assert (n, inner, outer, len(batch)) == modes
    engine.run(plan_copy(problem, engine.device), dst=x)
    np.testing.assert_array_equal(x.view, expected)


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("n", [64, 70])
def test_offsets_of_64_bits(engine, item, n):
    x = Strided(aligned(n * n, SIZES[item]), 0, (n, n), (n, 1))
    x.view[...] = scrambled((n, n), item)
    expected = x.view.T.copy()
    engine.run(varied(plan_copy(in_place(x), engine.device), wide=True), dst=x)
    assert x.view.tobytes() == expected.tobytes()


def test_which_offsets_have_64_bits():
    for n, expected in ((2**14, False), (2**15, True)):
        assert plan_copy(CopyProblem((n, n), (1, n), (n, 1), 1, in_place=True),
                         H200).config.wide == expected


@pytest.mark.parametrize("item", SIZES)
@pytest.mark.parametrize("n", [8192, 8191])
def test_vectors_of_16_bytes_and_no_bank_conflicts(item, n):
    alignment = 16 if n % 16 == 0 else item
    plan = plan_copy(CopyProblem((n, n), (1, n), (n, 1), item, alignment, alignment, in_place=True),
                     H200)
    assert plan.config.store == 16 and f"cb::store_global<{16 // plan.config.word}>" in plan.launches[0].kernel.body
    tiles = {name: text for name, text in plan.facts.items() if name.startswith("shared")
             and name[-2:] in ("sT", "sU")}
    assert tiles and all("no bank conflict" in text for text in tiles.values()), plan.facts


@pytest.mark.parametrize("item", SIZES)
def test_every_misalignment(engine, item):
    """Of words and vectors and sectors; extents that are not a multiple of a vector."""
    for offset in range(32 // item):
        plan = turn(engine, 67, item, offset=offset, pad=offset * 3 % 7)
        assert (plan.config.cut > 0) == (item < 16)


@pytest.mark.parametrize("item", [1, 2, 4, 8])
@pytest.mark.parametrize("around", [-17, -1, 0, 1, 15, 33])
def test_rows_that_begin_anywhere_around_borders_of_tiles(engine, item, around):
    side = plan_copy(CopyProblem((8191, 8191), (1, 8191), (8191, 1), item, item, item,
                                 in_place=True), H200).config.tile[0]
    for tiles in (1, 2):
        for options in ({"pad": 1}, {"pad": 32 // item, "offset": 1}, {"batch": (2,), "gap": 1},
                        {"flip": True, "pad": 1}):
            plan = turn(engine, max(tiles * side + around, 32), item, **options)
            assert plan.config.cut


@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_tiles_of_devices_with_less_shared_memory(engine, item):
    less = replace(engine.device, shared_bytes_per_block=48 * 1024)
    for n in (67, 129):
        x = Strided(aligned(n * n, SIZES[item]), 0, (n, n), (n, 1))
        x.view[...] = scrambled((n, n), item)
        expected = x.view.T.copy()
        plan = plan_copy(in_place(x), less)
        assert plan.config.cut and plan.launches[0].kernel.shared_bytes <= 48 * 1024
        engine.run(plan, dst=x)
        assert x.view.tobytes() == expected.tobytes()


@pytest.mark.parametrize("item", SIZES)
def test_which_matrices_are_of_this_kind(item):
    def config(n, **options):
        return plan_copy(CopyProblem((n, n), (1, n), (n, 1), item, in_place=True, **options),
                         H200).config

    assert (config(8191).cut > 0) == (item < 16)
    assert (config(8192, dst_alignment=item).cut > 0) == (item < 16)
    assert not config(8192).cut and not config(31).cut


@pytest.mark.parametrize("item", SIZES)
def test_tiles_where_rows_are_no_multiples_of_lines(item):
    def tile(n):
        config = plan_copy(CopyProblem((n, n), (1, n), (n, 1), item, in_place=True), H200).config
        assert config.in_place and not config.cut
        return config.tile[0], config.group

    between = 8192 - 16 // item
    assert tile(8192) == {1: (128, 0), 2: (128, 0), 4: (64, 0), 8: (32, 0), 16: (16, 0)}[item]
    assert tile(between) == {1: (128, 0), 2: (128, 1), 4: (64, 1), 8: (64, 1), 16: (32, 1)}[item]


def test_every_byte_is_moved_once():
    """One block for each pair of tiles: those on the diagonal have one, all others two."""
    plan = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), 4, in_place=True), H200)
    assert plan.launches[0].grid == (128 * 129 // 2, 1,
                                     1) and plan.problem.bytes == 2 * 8192 * 8192 * 4


@pytest.mark.parametrize("shape, src, dst", [((4, 5), (1, 5), (5, 1)), ((4, 4), (4, 1), (4, 1)),
                                             ((4, 4, 4), (1, 16, 4), (16, 4, 1)),
                                             ((4, 4), (1, 8), (4, 1)),
                                             ((2, 2, 3, 3), (6, 18, 1, 3), (18, 9, 3, 1))], ids=str)
def test_what_is_no_transposition_of_square_matrices(shape, src, dst):
    problem = CopyProblem(shape, src, dst, 4, in_place=True)
    assert square_modes(problem) is None
    with pytest.raises(ValueError,
                       match=r"^only square matrices are transposed in place, got shape"):
        plan_copy(problem, H200)


def test_misuse():
    problem = CopyProblem((64, 64), (1, 64), (64, 1), 4, in_place=True)
    with pytest.raises(
        ValueError,
        match="variant 'transpose_naive_read' copies from one array to another, not in place"
    ):
        plan_copy(replace(problem, variant="transpose_naive_read"), H200)
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16 bytes, got 3"):
        plan_copy(replace(problem, itemsize=3), H200)
    with pytest.raises(ValueError, match=r"needs [0-9]+ blocks; a grid has at most"):
        plan_copy(CopyProblem((2**23, 2**23), (1, 2**23), (2**23, 1), 16, in_place=True), H200)
    assert plan_copy(replace(problem, shape=(0, 0)), H200).family == "nothing"
    assert problem.roles == ("dst",)
    with pytest.raises(CodegenError, match="square tiles"):
        TransposeConfig(4, 4, 16, 16, (64, 32), in_place=True)
    for wrong in ({"load": 16}, {"unit": False}, {"cut": 8}):
        with pytest.raises(CodegenError, match="rows that begin anywhere"):
            TransposeConfig(**{"item": 4, "word": 4, "load": 4, "store": 16, "tile": (64, 64),
                               "in_place": True, "cut": 32} | wrong)
    with pytest.raises(CodegenError, match="whole sectors apart"):
        transpose_kernel(TransposeConfig(8, 8, 8, 16, (64, 64), 512, in_place=True, cut=32))
