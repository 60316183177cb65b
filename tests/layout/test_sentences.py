"""Every numbered sentence of docs/layout-semantics.md as a property of random layouts.

The examples of the page are in test_semantics.py. Here functions are compared over all coordinates
with ones written without the algebra (reference.py), on layouts drawn with a seed that is the
number of the sentence.
"""

import itertools
import pathlib
import random

import pytest

import cuteblas.layout as cl
from cuteblas.layout import (
    ArithTuple,
    ComposedLayout,
    E,
    Expr,
    Layout,
    LayoutError,
    Swizzle,
    Var,
    coalesce,
    complement,
    composition,
    cosize,
    counting_iterator,
    elem_less,
    filter_zeros,
    flatten,
    idx2crd,
    left_inverse,
    logical_divide,
    logical_product,
    make_identity_layout,
    make_identity_tensor,
    make_tensor,
    rank,
    right_inverse,
    size,
    slice_and_offset,
    unflatten,
    zipped_divide,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout import reference
from tests.layout.reference import at, values

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "layout-semantics.md").read_text()
SENTENCES = {}


def refused(f, *args):
    return isinstance(reference.result_or_refusal(f, *args), LayoutError)


def sentence(*numbers):
    def decorate(f):
        SENTENCES.update(dict.fromkeys(numbers, f))
        return f
    return decorate


def profile(rng, n):
    """A random nesting of ``n`` leaves, as a tuple of zeros."""
    if n == 1:
        return 0 if rng.random() < 0.8 else (0,)
    cut = rng.randint(1, n)
    parts = (profile(rng, cut), *([profile(rng, n - cut)] if cut < n
                                  else [])) if cut < n else (0,) * n
    return parts


def some(rng, least=1, most=4, low=0, high=12, leaves=3):
    """A random layout with up to ``leaves`` leaves of extents from ``least`` to ``most`` and
    strides from ``low`` to ``high``."""
    n = rng.randint(1, leaves)
    like = profile(rng, n)
    shape = [rng.randint(least, most) for _ in range(n)]
    stride = [rng.choice((0, 1, rng.randint(low, high))) for _ in range(n)]
    return Layout(unflatten(shape, like), unflatten(stride, like))


def same(x, expected):
    return [x(i) for i in range(size(x))] == expected


@sentence(1)
def coordinates_are_colexicographic(rng):
    layout = some(rng)
    for i, value in enumerate(values(layout)):
        whole = idx2crd(i, layout.shape)
        by_mode = [i]
        if isinstance(layout.shape, tuple):
            by_mode = [tuple(cl.crd2idx(c, s) for c, s in zip(whole, layout.shape, strict=True)),
                       whole]
        assert all(layout(c) == value for c in (i, whole, *by_mode))


@sentence(2)
def coordinates_outside_are_refused(rng):
    layout = some(rng)
    n = size(layout)
    assert refused(layout, n) and refused(layout, -1) and refused(layout, n + rng.randint(0, 99))
    assert refused(layout, Var("i", n)) and isinstance(layout(Var("i")), (Expr, int))


@sentence(3)
def coordinates_have_the_profile(rng):
    layout = some(rng)
    zero = cl.zero_of(layout.shape)
    assert refused(layout, (0,) * (rank(layout) + 1)) and refused(layout, 0.0) and refused(layout, "0") and refused(layout, True)
    assert refused(layout, ((0, 0, 0, 0),) * rank(layout)) and layout(zero) == 0


@sentence(4, 5)
def slices_start_where_they_do(rng):
    layout = some(rng)
    if not isinstance(layout.shape, tuple):
        layout = Layout((layout.shape, 3), (layout.stride, 5))
    free = [rng.random() < 0.5 for _ in layout.shape]
    free[rng.randrange(len(free))] = True
    fixed = [rng.randrange(s) for s in cl.product_each(layout.shape)]
    coord = tuple(None if f else c for f, c in zip(free, fixed, strict=True))
    sub, start = slice_and_offset(coord, layout)
    assert sub.shape == tuple(s for s, f in zip(layout.shape, free, strict=True)
                              if f) and layout(*coord) == sub
    tensor, swizzled = make_tensor(counting_iterator(7),
                                   layout)[coord], composition(Swizzle(2, 0, 2), layout)
    for i in range(size(sub)):
        c = iter(wrap(idx2crd(i, cl.product_each(sub.shape))))
        full = tuple(next(c) if f else x for f, x in zip(free, fixed, strict=True))
        assert sub(i) + start == layout(full) == tensor[i] - 7 and swizzled(*coord)(i) == swizzled(
            full
        )


def wrap(x):
    return x if isinstance(x, tuple) else (x,)


@sentence(6, 8)
def empty_layouts_have_no_coordinates(rng):
    layout = some(rng, least=0, most=2)
    if 0 not in layout.flat_shape:
        layout = Layout((layout.shape, 0), (layout.stride, rng.choice((0, 1, 5))))
    assert size(layout) == cosize(layout) == 0 and refused(layout, 0)
    assert refused(complement, layout, 8) and refused(left_inverse, layout)
    flat = flatten(layout)
    if rank(flat) > 1:
        assert size(zipped_divide(flat, tuple(rng.randint(1, 3)
                                              for _ in range(rank(flat))))[1]) == 0


@sentence(7)
def negative_extents_are_refused(rng):
    layout = some(rng)
    shape = list(layout.flat_shape)
    shape[rng.randrange(len(shape))] = -rng.randint(1, 9)
    assert refused(Layout, unflatten(shape, layout.shape),
                   layout.stride) and refused(Layout, tuple(shape))


@sentence(9)
def strides_of_extent_1_change_nothing(rng):
    layout = some(rng, most=2)
    stride = [rng.randint(-9, 9) if s == 1 else d
              for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True)]
    other = Layout(layout.shape, unflatten(stride, layout.shape))
    assert values(other) == values(layout) and coalesce(other) == coalesce(layout) and cosize(other) == cosize(layout)
    compact = Layout(layout.shape)
    assert all(d == 0 for s, d in zip(compact.flat_shape, compact.flat_stride, strict=True)
               if s == 1)


@sentence(10)
def stride_0_counts_for_the_size_only(rng):
    layout = some(rng)
    once = filter_zeros(layout)
    assert size(layout) == len(values(layout)) and cosize(layout) == max(
        values(layout)
    ) + 1 == cosize(once)
    assert set(values(once)) == set(values(layout))
    assert all(s == 1 for s, d in zip(once.flat_shape, once.flat_stride, strict=True) if d == 0)


@sentence(11)
def complements_and_inverses_look_past_stride_0(rng):
    layout = some(rng)
    doubled = Layout((layout.shape, 3), (layout.stride, 0))
    for f in (lambda x: complement(x, 24), right_inverse):
        results = [reference.result_or_refusal(f, x) for x in (layout, doubled)]
        assert results[0] == results[1] or all(isinstance(r, LayoutError) for r in results)
    inverse = reference.result_or_refusal(left_inverse, doubled)
    assert isinstance(inverse, LayoutError) or all(doubled(inverse(v)) == v
                                                   for v in values(doubled))


@sentence(12)
def cosize_spans_the_values(rng):
    layout = some(rng, low=-9, high=9)
    assert cosize(layout) == max(values(layout)) - min(values(layout)) + 1


@sentence(13)
def negative_tilers_are_refused(rng):
    layout, down = some(rng), Layout(rng.randint(2, 4), -rng.randint(1, 5))
    if len(cl.coalesce(layout).flat_shape) > 1:
        assert refused(composition, layout, down)
    assert refused(complement, down, 8) and refused(left_inverse, down)


@sentence(14, 15, 16)
def composition_is_complete(rng):
    outer, inner = some(rng, leaves=2, most=6), some(rng, leaves=2, high=5)
    if cosize(inner) > size(outer):
        return
    found = reference.result_or_refusal(composition, outer, inner)
    wanted = reference.composed((outer.flat_shape, outer.flat_stride),
                                (inner.flat_shape, inner.flat_stride))
    assert isinstance(found, LayoutError) != reference.has_layout(wanted, inner.flat_shape)
    if not isinstance(found, LayoutError):
        assert cl.compatible(inner.shape, found.shape) and same(
            found, [outer(inner(i)) for i in range(size(inner))]
        )


@sentence(17)
def tilers_outside_are_refused(rng):
    outer, inner = some(rng), some(rng, least=2)
    if cosize(inner) > size(outer):
        assert refused(composition, outer, inner)


@sentence(18)
def symbolic_compositions_hold_for_all_values(rng):
    n, ld = Var("n", 8), Var("ld", 0)
    outer = Layout((rng.choice((2, 4, 8)), n), (rng.choice((1, ld)), rng.choice((ld, 32))))
    inner = Layout((rng.randint(1, 4), rng.randint(1, 4)), (rng.randint(1, 8), rng.randint(1, 8)))
    found = reference.result_or_refusal(composition, outer, inner)
    if isinstance(found, LayoutError):
        return
    for _ in range(3):
        known = {"n": rng.randint(8, 40), "ld": rng.randint(0, 99)}
        leaves = [[evaluate(x, known) for x in wrap(flatten(t))]
                  for t in (outer.shape, outer.stride, found.shape, found.stride)]
        if leaves[0][0] * leaves[0][1] >= cosize(inner):
            assert [at(*leaves[2:], i) for i in range(size(found))] == [
                at(*leaves[:2], inner(i)) for i in range(size(inner))
            ]


@sentence(19)
def large_compositions_are_refused_undecided(rng):
    n = 1 << rng.randint(19, 40)
    with pytest.raises(LayoutError, match="too many to search"):
        composition(Layout((2 * n, 2 * n), (1, 5 * n)), Layout(n, 3))


@sentence(20, 21)
def divisions_continue_the_last_mode(rng):
    layout, tile = some(rng), rng.randint(1, 9)
    found = reference.result_or_refusal(logical_divide, layout, tile)
    runs = [(s, d) for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True)
            if s != 1] or [(1, layout.flat_stride[-1])]
    if isinstance(found, LayoutError):
        assert len(runs) > 1
        return
    assert size(found[0]) == tile and size(found) == -(-size(layout) // tile) * tile
    if len(runs) == 1 and runs[0][0] == 1:
        return                                  # every mode has extent 1: there is none to continue
    assert same(found, [at(*zip(*runs, strict=True), i) for i in range(size(found))])
    extents, tiles = (rng.randint(1, 7), rng.randint(1, 7)), (rng.randint(1, 4), rng.randint(1, 4))
    told = zipped_divide(make_identity_tensor(extents), tiles)
    assert sum(bool(elem_less(told[i], extents))
               for i in range(size(told))) == extents[0] * extents[1]


@sentence(22)
def tilers_divide_mode_by_mode(rng):
    layout = Layout((rng.randint(1, 6), rng.randint(1, 6)), (rng.randint(1, 9), rng.randint(1, 9)))
    n, m = rng.randint(1, 4), rng.randint(1, 4)
    assert logical_divide(layout, (n, m)) == cl.make_layout(logical_divide(layout[0], n),
                                                            logical_divide(layout[1], Layout(m)))
    assert zipped_divide(layout, (None, m))[0][0] == layout[0] and size(zipped_divide(layout, (None, m))[1][0]) == 1
    assert logical_divide(layout, None) == layout


def fills_an_interval(found):
    """Whether shifted copies of a set from 0 on fill an interval: where the next copy goes is
    forced."""
    covered = set()
    for _ in range(200):
        start = next(x for x in itertools.count() if x not in covered)
        copy = {start + x for x in found}
        if copy & covered:
            return False
        covered |= copy
        if len(covered) == max(covered) + 1:
            return True
    raise AssertionError("undecided")


@sentence(23)
def complements_fill_an_interval(rng):
    layout, n = some(rng, high=8), rng.randint(1, 40)
    distinct = values(filter_zeros(layout))
    found = reference.result_or_refusal(complement, layout, n)
    exists = len(set(distinct)) == len(distinct) and fills_an_interval(set(distinct))
    assert exists != isinstance(found, LayoutError)
    if exists:
        reached = sorted(x + y for x in set(distinct) for y in values(found))
        assert reached == list(range(len(reached))) and len(reached) >= n


@sentence(24)
def products_repeat_the_block(rng):
    block, tiler = some(rng, leaves=2), some(rng, leaves=2)
    found = reference.result_or_refusal(logical_product, block, tiler)
    if not isinstance(found, LayoutError):
        copies = complement(block, size(block) * cosize(tiler))
        assert found[0] == block and same(found[1], [copies(tiler(i)) for i in range(size(tiler))])
        swizzle = Swizzle(1, 0, 2)
        assert logical_product(composition(swizzle, block), tiler) == composition(swizzle, found)
    assert refused(logical_product, make_tensor(counting_iterator(0), block), tiler)


@sentence(25)
def right_inverses_invert(rng):
    layout = some(rng)
    inverse = right_inverse(layout)
    assert all(layout(inverse(i)) == i for i in range(size(inverse)))
    once = values(filter_zeros(layout))
    if sorted(once) == list(range(len(once))):
        assert size(inverse) == len(once)


@sentence(26, 27, 28)
def left_inverses_invert(rng):
    layout = some(rng, high=9)
    found = reference.result_or_refusal(left_inverse, layout)
    once = values(filter_zeros(layout))
    if isinstance(found, LayoutError):
        assert ("share the value" in str(found)) == (len(set(once)) < len(once))
    else:
        assert len(set(once)) == len(once) and all(layout(found(v)) == v for v in once)
        if len(set(values(layout))) == size(layout):
            assert all(found(layout(i)) == i for i in range(size(layout)))


def swizzles(top):
    return [Swizzle(b, m, s * sign) for b in range(top + 1) for m in range(top + 1)
            for s in range(b, top + 1) for sign in (1, -1)]


@sentence(29, 30)
def composed_layouts_see_the_sum(rng):
    swizzle, inner, offset = rng.choice(swizzles(3)), some(rng, leaves=2), rng.randint(0, 99)
    composed = ComposedLayout(swizzle, offset, inner)
    assert same(composed, [swizzle(offset + inner(i)) for i in range(size(inner))])
    sub, outside = composed.slice_and_offset(None)
    assert outside % swizzle.period == 0 and [outside + sub(i) for i in range(size(sub))] == [
        composed(i) for i in range(size(sub))
    ]
    k = Var("k")
    sub, outside = ComposedLayout(swizzle, offset + k * swizzle.period,
                                  inner).slice_and_offset(None)
    assert isinstance(sub.offset, int) and isinstance(outside, Expr)


@sentence(31)
def cosizes_of_swizzled_layouts_are_bounds(rng):
    swizzle, inner = rng.choice(swizzles(3)), some(rng)
    composed = composition(swizzle, inner)
    found = [composed(i) for i in range(size(inner))]
    assert cosize(composed) > max(found)
    if cosize(inner) <= swizzle.mask & -swizzle.mask:
        assert cosize(composed) == cosize(inner)


@sentence(32)
def swizzles_compose_where_one_does_the_same(rng):
    a, b = rng.choice(swizzles(2)), rng.choice(swizzles(2))
    wanted = [a(b(x)) for x in range(1 << 6)]
    found = reference.result_or_refusal(composition, a, b)
    exists = any([s(x) for x in range(1 << 6)] == wanted for s in swizzles(5))
    assert exists != isinstance(found, LayoutError) and (not exists
                                                         or [found(x)
                                                             for x in range(1 << 6)] == wanted)
    inner = some(rng)
    whole = reference.result_or_refusal(composition, a, composition(b, inner))
    assert isinstance(whole, LayoutError) or same(whole, [a(b(inner(i)))
                                                          for i in range(size(inner))])


@sentence(33)
def swizzles_come_out_of_layouts(rng):
    layout, swizzle = some(rng, leaves=2, most=8), rng.choice(swizzles(2))
    n = size(layout)
    if any(swizzle(i) >= n for i in range(n)):
        return
    wanted = [layout(swizzle(i)) for i in range(n)]
    found = reference.result_or_refusal(composition, layout, swizzle)
    top = max(wanted).bit_length()
    exists = any([s(layout(i)) for i in range(n)] == wanted for s in swizzles(min(top, 6)))
    if isinstance(found, LayoutError):
        assert not exists
    else:
        assert same(found, wanted)


@sentence(34)
def basis_strides_give_coordinates(rng):
    shape = (rng.randint(1, 4), rng.randint(1, 4))
    a, b = rng.randint(1, 5), rng.randint(1, 5)
    layout = Layout(shape, (a * E(1), b * E(0)))
    for i, j in itertools.product(*map(range, shape)):
        assert layout(i, j) == (b * j, a * i) and make_identity_layout(shape)(i, j) == (i, j)
    with pytest.raises(LayoutError):
        ArithTuple(a, b) + rng.randint(1, 9)


@sentence(35)
def tuples_of_tilers_are_layouts(rng):
    outer = Layout((8, 6), (rng.randint(1, 9), rng.randint(1, 9)))
    tilers = tuple(Layout(rng.choice((1, 2)), rng.choice((1, 2, 3))) for _ in range(2))
    assert composition(outer, cl.tiler_to_layout(tilers)) == composition(outer, tilers)
    assert composition(outer, tilers) == cl.make_layout(
        *(composition(m, t) for m, t in zip(outer, tilers, strict=True))
    )


@sentence(36)
def equality_is_of_the_spelling(rng):
    layout, n = some(rng), rng.randint(2, 4)
    split = Layout((n, layout.shape), (1, cl.transform_leaf(layout.stride, lambda d: d * n)))
    assert (layout == Layout(layout.shape, layout.stride)) and hash(layout) == hash(
        Layout(layout.shape, layout.stride)
    )
    assert coalesce(Layout((n, n))) == coalesce(Layout(n * n)) and Layout((n, n)) != Layout(n * n)
    assert values(coalesce(split)) == values(split) and size(coalesce(split)) == size(split)


@sentence(37)
def texts_read_back(rng):
    layout = some(rng, least=0, low=-9)
    basis = Layout(layout.shape, cl.transform_leaf(layout.stride,
                                                   lambda d: d
                                                   * E(rng.randint(0, 2),
                                                       *([1] * rng.randint(0, 1)))))
    for x in (layout, basis):
        assert Layout.parse(str(x)) == x == eval(repr(x), {"Layout": Layout, "E": E})


@sentence(38)
def what_is_no_integer_is_refused(rng):
    layout = some(rng)
    for wrong in (True, 2.0, "2", 1 << 1024):
        shape = list(layout.flat_shape)
        shape[rng.randrange(len(shape))] = wrong
        assert refused(Layout, unflatten(shape, layout.shape)) and refused(
            Layout, layout.shape, unflatten(shape, layout.shape)
        )


def test_every_sentence_has_a_property():
    assert sorted(SENTENCES) == list(range(1, TEXT.count("\n**") - TEXT.count("\n**Why") + 1))


@pytest.mark.parametrize("number", sorted(SENTENCES))
def test_sentence(number):
    rng = random.Random(number)
    for _ in range(200):
        SENTENCES[number](rng)
