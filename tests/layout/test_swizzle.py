"""Swizzles and composed layouts."""

import itertools
import random

import pytest

from cuteblas.layout import (
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    Swizzle,
    Tensor,
    Var,
    _,
    coalesce,
    composition,
    cosize,
    counting_iterator,
    downcast,
    local_partition,
    local_tile,
    logical_divide,
    make_swizzle,
    make_tensor,
    max_common_vector,
    recast_layout,
    select,
    size,
    slice_and_offset,
    tile_to_shape,
    upcast,
    zipped_divide,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout.reference import result_or_refusal

SWIZZLES = [Swizzle(b, m, s) for b in range(4) for m in range(3) for s in range(-4, 5)
            if abs(s) >= b]


def by_bits(swizzle, x):
    """The swizzle as its definition says it: bit by bit."""
    out = x
    for i in range(swizzle.bits):
        low, high = swizzle.base + i, swizzle.base + i + abs(swizzle.shift)
        source, target = (high, low) if swizzle.shift >= 0 else (low, high)
        out ^= (x >> source & 1) << target
    return out


@pytest.mark.parametrize("swizzle", SWIZZLES, ids=str)
def test_every_swizzle_is_its_definition_and_an_involution(swizzle):
    period = swizzle.period
    image = [swizzle(x) for x in range(period)]
    assert image == [by_bits(swizzle, x) for x in range(period)]
    assert sorted(image) == list(range(period)) and [swizzle(x)
                                                     for x in image] == list(range(period))
    assert all(swizzle(x + 5 * period) == swizzle(x) + 5 * period for x in range(period))
    t = Var("t", 0, period - 1)
    assert [evaluate(swizzle(t), {"t": x}) for x in range(period)] == image
    assert [evaluate(swizzle(t * 3 + 5), {"t": x}) for x in range(period)] == [
        swizzle(3 * x + 5) for x in range(period)
    ]


def test_identity_and_text():
    assert all(Swizzle(0, 4, 3)(x) == x for x in range(200))
    assert str(Swizzle(3, 4, 3)) == "S<3,4,3>" and eval(repr(Swizzle(3, 4, 3))) == Swizzle(3, 4, 3)
    assert len({Swizzle(2, 0, 2), Swizzle(2, 0, 2)}) == 1


@pytest.mark.parametrize("parts", [(-1, 0, 3), (2, -1, 3), (3, 0, 2), (3, 0, -2)])
def test_swizzles_that_are_refused(parts):
    with pytest.raises(LayoutError, match="Swizzle"):
        Swizzle(*parts)


SMEM = ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8), (8, 1)))


def test_composition_builds_a_composed_layout():
    assert composition(Swizzle(3, 0, 3),
                       Layout((8, 8), (8, 1))) == SMEM and eval(repr(SMEM)) == SMEM
    assert str(SMEM) == "S<3,0,3> o 0 o (8,8):(8,1)" and len(SMEM) == 2 and SMEM.rank == 2 and SMEM.shape == (8, 8)
    assert [[SMEM(r, c) for c in range(8)] for r in range(8)] == [[8 * r + (c ^ r)
                                                                   for c in range(8)]
                                                                  for r in range(8)]
    assert list(SMEM)[1] == SMEM[1] == ComposedLayout(Swizzle(3, 0, 3), 0, Layout(8, 1))


def test_composed_layouts_refuse_what_they_cannot_be():
    with pytest.raises(LayoutError, match="takes a function"):
        ComposedLayout(Swizzle(1, 0, 1), 0, (4, 4))
    with pytest.raises(LayoutError, match="takes a function"):
        ComposedLayout(3, 0, Layout(4))
    with pytest.raises(LayoutError, match="basis"):
        ComposedLayout(Swizzle(1, 0, 1), 0, Layout(4, E(0)))


@pytest.mark.parametrize("swizzle", SWIZZLES[::3], ids=str)
def test_slices_of_composed_layouts(swizzle):
    a = ComposedLayout(swizzle, 5, Layout((4, (2, 8)), (16, (1, 2))))
    for i, j in itertools.product(range(4), range(16)):
        row, column = a(i, _), a(_, j)
        assert row(j) == column(i) == a(i, j)
        (sub, start), (sub2, start2) = slice_and_offset((i, _),
                                                        a), slice_and_offset((_, (_, j // 2)), a)
        assert start + sub(j) == a(i, j) and start2 + sub2(i, j % 2) == a(i, j)


def test_division_tiling_and_composition_act_on_the_domain():
    tiled = zipped_divide(SMEM, (4, 2))
    assert str(tiled) == "S<3,0,3> o 0 o ((4,2),(2,4)):((8,1),(32,2))"
    for i, j, k, m in itertools.product(range(4), range(2), range(2), range(4)):
        assert tiled((i, j), (k, m)) == SMEM(i + 4 * k, j + 2 * m)
    assert composition(SMEM, (4, None))(3, 5) == SMEM(3, 5) and logical_divide(
        SMEM, (2,)
    ).shape == ((2, 4), 8)
    assert select(SMEM, 1, 0)(3, 2) == SMEM(2, 3)
    assert size(SMEM) == 64 and coalesce(ComposedLayout(Swizzle(1, 0, 1), 0,
                                                        Layout((4, 2)))).shape == 8
    whole = tile_to_shape(SMEM, (16, 24))
    assert sorted(whole(i) for i in range(16 * 24)) == list(range(16 * 24))


def test_a_multiple_of_the_period_moves_into_the_engine():
    tensor = make_tensor(counting_iterator(0),
                         ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8, 4), (8, 1, 64))))
    stage = tensor[_, _, 2]
    assert (stage.engine.start, stage.layout.offset) == (128, 0)
    k, t = Var("k"), Var("t", 0, 7)
    part = tensor[t, _, k + 1]
    assert (str(part.engine.start), str(part.layout.offset)) == ("k * 64 + 64", "t * 8")
    for kv, tv, c in itertools.product(range(3), range(8), range(8)):
        assert evaluate(part[c], {"k": kv, "t": tv}) == tensor[tv, c, kv + 1]


def test_partitions_of_swizzled_tensors_are_right_for_every_thread():
    tensor = make_tensor(counting_iterator(0),
                         ComposedLayout(Swizzle(2, 1, 3), 0, Layout((16, 32), (32, 1))))
    threads = Layout((4, 8), (8, 1))
    t = Var("t", 0, 31)
    part = local_partition(local_tile(tensor, (8, 16), (1, 1)), threads, t)
    for tv, i, j in itertools.product(range(32), range(2), range(2)):
        assert evaluate(part[i, j], {"t": tv}) == tensor[8 + tv // 8 + 4 * i, 16 + tv % 8 + 8 * j]


@pytest.mark.parametrize("swizzle", SWIZZLES, ids=str)
@pytest.mark.parametrize("offset, text", [(0, "(3,5):(5,1)"), (3, "4:1"), (0, "2:1"),
                                          (7, "(8,8):(8,1)"), (2, "0:1")])
def test_cosize_bounds_every_value(swizzle, offset, text):
    a = ComposedLayout(swizzle, offset, Layout.parse(text))
    bound = cosize(a)
    assert all(0 <= a(i) < bound for i in range(size(a)))
    assert bound <= cosize(a.inner) + offset + swizzle.period


def test_cosize_examples():
    assert cosize(ComposedLayout(Swizzle(3, 4, 3), 0, Layout((64, 64)))) == 4096
    assert cosize(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(3, 1))) == 4
    assert cosize(make_tensor(counting_iterator(), SMEM)) == 64
    with pytest.raises(LayoutError, match="negative"):
        cosize(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(3, -1)))
    with pytest.raises(LayoutError, match="not a swizzle"):
        cosize(ComposedLayout(abs, 0, Layout(3)))


def test_any_function_may_be_outside():
    squares = ComposedLayout(lambda x: x * x, 1, Layout((2, 3)))
    assert [squares(i) for i in range(6)] == [1, 4, 9, 16, 25, 36]
    assert squares(_, 2)(1) == 36 and logical_divide(squares, (_, 3)).rank == 2 and squares.swizzle == Swizzle(0, 0, 0)


def test_recasting_a_swizzled_layout_keeps_the_bytes():
    halves = ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))
    vectors = upcast(halves, 8)
    assert vectors == ComposedLayout(Swizzle(3, 0, 3), 0, Layout((8, 8), (8, 1)))
    assert all(vectors(r, c) * 8 == halves(r, 8 * c) for r in range(8) for c in range(8))
    assert downcast(vectors, 8) == halves and recast_layout(halves, 16, 128) == vectors
    with pytest.raises(LayoutError, match="within a unit"):
        upcast(halves, 16)
    with pytest.raises(LayoutError, match="powers of two"):
        upcast(halves, 3)


def test_a_vector_ends_where_the_swizzle_permutes():
    rows = Layout((8, 64), (64, 1))
    assert max_common_vector(rows, rows) == 512
    assert max_common_vector(ComposedLayout(Swizzle(3, 3, 3), 0, rows), rows) == 8
    assert max_common_vector(Tensor(counting_iterator(), rows),
                             Tensor(counting_iterator(), Layout((8, 64), (80, 1)))) == 64


# -- swizzles from what they do --------------------------------------------------------------------
def test_swizzles_from_their_masks():
    for swizzle in SWIZZLES:
        if swizzle.bits:
            assert make_swizzle(swizzle.mask, swizzle.changed) == swizzle
    assert make_swizzle(0, 0).bits == 0
    for read, changed in [(0b101, 0b1010000), (0b11, 0b100), (0b11, 0b110), (-1, 0)]:
        with pytest.raises(LayoutError, match="make_swizzle"):
            make_swizzle(read, changed)


def test_two_swizzles_are_one_whenever_a_swizzle_is_both():
    """All pairs: the composition is right, and refused only where no swizzle with these bits is the
    function."""
    every = [Swizzle(b, m, s) for b in range(5) for m in range(4) for s in range(-5, 6)
             if abs(s) >= b]
    by_images = {}
    for s in every:
        # linear over exclusive or: these decide
        by_images.setdefault(tuple(s(1 << i) for i in range(12)), s)
    merged = refused = 0
    for outer, inner in itertools.product([s for s in every if s.bits < 4 and s.base < 3
                                           and abs(s.shift) < 5], repeat=2):
        images = tuple(outer(inner(1 << i)) for i in range(12))
        both = result_or_refusal(composition, outer, inner)
        if isinstance(both, LayoutError):
            refused += 1
            assert images not in by_images and "bit" in both.why
        else:
            merged += 1
            assert images == tuple(both(1 << i) for i in range(12))
            assert all(both(x) == outer(inner(x)) for x in range(0, 4096, 37))
    assert merged > 800 and refused > 800


def test_a_swizzle_over_a_swizzled_layout():
    a = ComposedLayout(Swizzle(2, 1, 3), 5, Layout((8, 8), (8, 1)))
    both = composition(Swizzle(1, 0, 3), a)
    assert both == ComposedLayout(Swizzle(3, 0, 3), 5, a.inner)
    assert all(both(i) == Swizzle(1, 0, 3)(a(i)) for i in range(64))
    assert composition(Swizzle(2, 1, 3), a).swizzle.bits == 0              # it undoes itself
    with pytest.raises(LayoutError, match="bit 4 flips 0b10 of the result, bit 5 flips 0b110"):
        composition(Swizzle(1, 1, 4), a)
    with pytest.raises(LayoutError, match="not a swizzle"):
        composition(Swizzle(1, 0, 3), ComposedLayout(abs, 0, Layout(4)))


def test_a_swizzle_inside_of_a_layout_comes_out():
    """Right at every coordinate, or refused where no swizzle after the layout does it."""
    rng = random.Random(2)
    every = [Swizzle(b, m, s) for b in range(4) for m in range(8) for s in range(-7, 8)
             if abs(s) >= b]
    found = refused = 0
    for _trial in range(500):
        rank = rng.choice((1, 2, 3))
        order = rng.sample(range(rank), rank)
        shape = [rng.choice((2, 4, 8)) for _ in range(rank)]
        stride, d = [0] * rank, rng.choice((1, 1, 2))
        for i in order:
            stride[i], d = d, d * shape[i] * rng.choice((1, 1, 1, 2))
        a = Layout(tuple(shape), tuple(stride))
        n = size(a)
        swizzle = rng.choice([s for s in every if s.period <= n and s.bits] or [Swizzle(1, 0, 1)])
        b = composition(Layout(n), Layout(n // 2, rng.choice((1, 2))))
        inside = ComposedLayout(swizzle, rng.choice((0, 0, n // 4)), b)
        try:
            values = [a(inside(i)) for i in range(size(b))]
        except LayoutError:
            continue                                                      # it reaches outside
        outside = result_or_refusal(composition, a, inside)
        if isinstance(outside, LayoutError):
            refused += 1
            start, plain = a(inside.offset), [a(b(i)) for i in range(size(b))]
            assert not any([s(start + p) for p in plain] == values for s in every), (a, inside)
        else:
            found += 1
            assert [outside(i) for i in range(size(b))] == values
    assert found > 100 and refused > 20


def test_a_layout_after_a_swizzle():
    a = Layout((8, 8), (8, 1))
    outside = composition(a, Swizzle(3, 0, 3))
    assert str(outside) == "S<3,0,-3> o 0 o (8,8):(8,1)" and all(
        outside(i) == a(Swizzle(3, 0, 3)(i)) for i in range(64)
    )
    assert composition(Layout(64, 2), Swizzle(3, 0, 3)) == ComposedLayout(
        Swizzle(3, 1, 3), 0, Layout(64, 2)
    )
    with pytest.raises(LayoutError, match="symbolic leaves or basis strides"):
        composition(Layout(Var("M")), Swizzle(1, 0, 1))
    with pytest.raises(LayoutError, match="outer part of the tiler is not a swizzle"):
        composition(Layout(8), ComposedLayout(abs, 0, Layout(4)))
    with pytest.raises(LayoutError, match="values are too many to search for a swizzle"):
        composition(Layout(1 << 20), Swizzle(1, 0, 1))
    with pytest.raises(LayoutError, match="no swizzle"):
        composition(Layout((4, 4), (1, 5)), Swizzle(1, 0, 2))


def test_an_identity_swizzle_is_recast_whatever_its_base():
    a = ComposedLayout(Swizzle(0, 0, 3), 0, Layout((8, 4), (1, 8)))
    assert recast_layout(a, 16, 64) == ComposedLayout(Swizzle(0, 0, 3), 0, Layout((2, 4), (1, 2)))
