"""NVIDIA's pycute as an oracle, where what it returns is right."""

import itertools
import random

import pytest

import cuteblas.layout as cb
from cuteblas.layout import Layout, LayoutError
from tests.layout.reference import layout, values

pycute = pytest.importorskip("pycute")


def theirs(a):
    return pycute.Layout(a.shape, a.stride)


def draw(rng, ranks=(1, 2, 3)):
    rank = rng.choice(ranks)
    return layout(tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rank)),
                  tuple(rng.choice((0, 1, 2, 3, 4, 6, 8, 12, 24)) for _ in range(rank)))


def as_values(a):
    return [a(i) for i in range(a.size())]


def refused_or(function, *args):
    try:
        return function(*args)
    except (LayoutError, AssertionError, ZeroDivisionError):
        return None


def test_evaluation_and_coordinates():
    rng = random.Random(0)
    for _ in range(300):
        a = draw(rng)
        assert values(a) == [a(i) for i in range(cb.size(a))] == as_values(theirs(a))
        for i in range(cb.size(a)):
            assert cb.idx2crd(i, a.shape) == pycute.idx2crd(i, a.shape)


def test_methods():
    """What pycute's layouts have, ours have, spelt and called the same way."""
    rng = random.Random(2)
    for _ in range(100):
        a = draw(rng)
        assert (len(a), a.size(), a.cosize()) == (len(theirs(a)), theirs(a).size(),
                                                  theirs(a).cosize())
    assert not [name for name in vars(pycute.Layout) if not name.startswith("_")
                and not callable(getattr(a, name, None))]


def test_default_strides_are_the_same_function():
    for shape in [5, (2, 3), ((2, 1), (3, (4, 1))), (1, 1)]:
        assert values(Layout(shape)) == as_values(pycute.Layout(shape))


def test_slices():
    a = Layout(((2, 3), (4, 5)), ((1, 2), (6, 24)))
    for coord in [((None, 1), None), (None, 7), ((1, None), (None, 2)), ((None, None), 3)]:
        sub, start = cb.slice_and_offset(coord, a)
        their_sub, their_start = pycute.slice_and_offset(coord, theirs(a))
        assert (sub.shape, sub.stride, start) == (their_sub.shape, their_sub.stride, their_start)


def test_coalesce():
    rng = random.Random(1)
    for _ in range(500):
        a = draw(rng)
        c = pycute.coalesce(theirs(a))
        assert str(cb.coalesce(a)) == str(Layout(c.shape, c.stride))


def test_composition_finds_everything_that_pycute_finds_rightly():
    rng = random.Random(2)
    agreed = 0
    for _ in range(4000):
        a, b = draw(rng), draw(rng)
        if cb.cosize(b) > cb.size(a):
            continue
        wanted = [a(b(i)) for i in range(cb.size(b))]
        their = refused_or(pycute.composition, theirs(a), theirs(b))
        if their is not None and as_values(their) == wanted:
            assert values(cb.composition(a, b)) == wanted
            agreed += 1
    assert agreed > 500


def test_complement_and_inverses():
    rng = random.Random(3)
    agreed = 0
    for _ in range(2000):
        a = draw(rng, (1, 2))
        target = rng.choice((1, 12, 24, 48))
        mine = refused_or(cb.complement, a, target)
        if mine is not None:
            agreed += 1
            assert values(mine) == as_values(pycute.complement(theirs(a), target))
        their = pycute.right_inverse(theirs(a))
        assert cb.size(cb.right_inverse(a)) >= their.size()
        if 0 not in a.flat_stride and len(set(a.flat_stride)) == len(a.flat_stride):
            assert values(cb.right_inverse(a)) == as_values(their)
        left, their = refused_or(cb.left_inverse, a), refused_or(pycute.left_inverse, theirs(a))
        every = list(range(cb.size(a)))
        if their is not None and [their(v) for v in values(a)] == every:
            assert [left(v) for v in values(a)] == every
    assert agreed > 300


@pytest.mark.parametrize("name", ["logical_divide", "zipped_divide", "tiled_divide",
                                  "logical_product", "zipped_product", "tiled_product"])
def test_divisions_and_products(name):
    rng = random.Random(name)
    mine, their = getattr(cb, name), getattr(pycute, name)
    agreed = 0
    for _ in range(3000):
        a = draw(rng, (1, 2, 3) if "divide" in name else (1, 2))
        b = draw(rng, (1, 2)) if rng.random() < 0.5 else tuple(layout((rng.choice((1, 2, 3, 4)),), (rng.choice((1, 2, 3)),))
                                                               for _ in range(rng.randint(1, a.rank)))
        t = tuple(map(theirs, b)) if isinstance(b, tuple) else theirs(b)
        result, expected = refused_or(mine, a, b), refused_or(their, theirs(a), t)
        if result is None or expected is None or ("divide" in name
                                                  and cb.size(result) != cb.size(a)):
            continue             # a division that rounds up: beyond the layout, theirs wraps around
        agreed += 1
        assert values(result) == as_values(expected) and cb.product_each(
            result.shape
        ) == cb.product_each(expected.shape), (a, b)
    assert agreed > 300


def test_swizzles():
    for b, m, s in itertools.product(range(4), range(3), range(4)):
        if s >= max(b, 1):                               # theirs recurses for ever at shift 0
            assert [cb.Swizzle(b, m, s)(x) for x in range(600)] == [pycute.Swizzle(b, m, s)(x)
                                                                    for x in range(600)]
