"""Layouts through points: found whenever there is one, compared with trying every shape and
stride."""

import itertools
import random

import pytest

from cuteblas.layout import Layout, LayoutError, Var, is_injective, left_inverse, size
from cuteblas.layout.algebra import layout_through
from tests.layout.reference import at, layout, result_or_refusal, values


def shapes(top):
    """All lists of extents above 1 whose product is at most ``top``."""
    yield ()
    for p in range(2, top + 1):
        for rest in shapes(top // p):
            yield (p, *rest)


def some_layout_goes_through(points, largest_stride):
    """Whether a layout with strides of limited size has these values, by trying all of them."""
    top = max(points)
    strides = range(-largest_stride, largest_stride + 1)
    return any(all(at((*shape, top + 1), d, x) == v for x, v in points.items())
               for shape in shapes(top) for d in itertools.product(strides, repeat=len(shape) + 1))


def test_every_function_on_few_points():
    """All sets of up to 4 indices below 7 with all small values."""
    found = refused = 0
    for rank in (1, 2, 3):
        for xs in itertools.combinations(range(1, 7), rank):
            for vs in itertools.product(range(-1, 3), repeat=rank):
                points = dict(zip((0, *xs), (0, *vs), strict=True))
                result = layout_through(points)
                if result is None:
                    refused += 1
                    assert rank < 3 or not some_layout_goes_through(points, 3), points
                else:
                    found += 1
                    assert [result(x) for x in points] == list(points.values())
    assert found > 500 and refused > 50


def test_points_of_layouts_are_found():
    rng = random.Random(5)
    for _ in range(300):
        rank = rng.choice((1, 2, 3, 4))
        a = layout(tuple(rng.choice((2, 3, 4, 5)) for _ in range(rank)),
                   tuple(rng.randrange(-9, 30) for _ in range(rank)))
        xs = [0, *rng.sample(range(size(a)), rng.randrange(1, size(a)))]
        result = layout_through({x: a(x) for x in xs})
        assert result is not None and [result(x) for x in xs] == [a(x) for x in xs]


def test_a_layout_starts_at_0():
    assert layout_through({0: 1}) is None and layout_through({}) == Layout(1, 0)


# -- left inverses ---------------------------------------------------------------------------------
def test_left_inverses_of_all_small_layouts():
    """Refused only where two coordinates share a value or no layout with strides up to the size
    takes the values back."""
    found = none = shared = 0
    for rank in (1, 2):
        for s in itertools.product((2, 3), repeat=rank):
            for d in itertools.product(range(1, 7), repeat=rank):
                a = layout(s, d)
                v = values(a)
                g = result_or_refusal(left_inverse, a)
                if isinstance(g, Layout):
                    found += 1
                    assert [g(x) for x in v] == list(range(len(v))) and is_injective(a)
                elif len(set(v)) < len(v):
                    shared += 1
                    assert "share the value" in g.why and not is_injective(a)
                elif max(v) <= 20:
                    none += 1
                    assert not some_layout_goes_through({x: i for i, x in enumerate(v)},
                                                        4), f"{a} has a left inverse"
    assert min(found, none, shared) > 5


def test_the_numbers_that_the_document_states():
    one_to_one = found = 0
    for rank in (1, 2, 3):
        for s in itertools.product((2, 3, 4), repeat=rank):
            for d in itertools.product(range(1, 13), repeat=rank):
                v = values(layout(s, d))
                if len(set(v)) == len(v):
                    one_to_one += 1
                    g = layout_through({x: i for i, x in enumerate(v)})
                    if g is not None:
                        found += 1
                        assert g(v[-1]) == len(v) - 1
    assert (one_to_one, found, one_to_one - found) == (14690, 6644, 8046)


@pytest.mark.parametrize("text, why", [
    ("(4,4):(1,2)", "the coordinates 2 and 4 share the value 2"),
    ("(3,3):(2,3)", "the layout is one to one, but no layout maps all of its values back"),
    ("(2,2):(3000,3001)", "values up to 6001 are too many to search")])
def test_why_there_is_none(text, why):
    with pytest.raises(LayoutError) as refusal:
        left_inverse(Layout.parse(text))
    assert why in str(refusal.value) and text in str(refusal.value)


def test_symbolic_strides_that_may_not_divide():
    with pytest.raises(LayoutError, match="with symbolic leaves it is not certain"):
        left_inverse(Layout((4, Var("M")), (1, Var("ld"))))


def test_modes_of_stride_0_do_not_count():
    g = left_inverse(Layout((2, 5, 2), (2, 0, 3)))
    assert [g(x) for x in (0, 2, 3, 5)] == [0, 1, 10, 11]
