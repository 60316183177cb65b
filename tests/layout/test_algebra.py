"""Coalescing, complements, inverses: all small layouts against brute force."""

import itertools

import pytest

from cuteblas.layout import (
    E,
    Layout,
    LayoutError,
    Var,
    coalesce,
    complement,
    congruent,
    depth,
    filter_zeros,
    filtered,
    flatten,
    get_1d_coord,
    get_flat_coord,
    get_hier_coord,
    is_bijective,
    is_injective,
    left_inverse,
    make_layout,
    nullspace,
    right_inverse,
    size,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout.reference import layout, result_or_refusal, values

SMALL = [
    layout(s, d)
    for rank in (1, 2, 3)
    for s in itertools.product((1, 2, 3, 4)[: 5 - rank], repeat=rank)
    for d in itertools.product((0, 1, 2, 3, 4, 6, 8, -1), repeat=rank)
]


def tiles_an_interval(distinct, at_least):
    """Whether shifted copies of a set with least element 0 fill ``[0, n)`` for some
    ``n >= at_least``: each hole forces a copy."""
    filled, n = set(), 0
    while n < at_least or any(x >= n for x in filled):
        if n not in filled:
            copy = {n + x for x in distinct}
            if copy & filled:
                return False
            filled |= copy
        n += 1
        if n > 4 * (at_least + max(distinct) + 1):
            return False
    return True


def test_coalesce_keeps_the_function():
    for a in SMALL:
        c = coalesce(a)
        assert values(c) == values(a) and c.rank <= max(1, a.rank)
        assert coalesce(c) == c


@pytest.mark.parametrize("text, result", [("(2,(1,6)):(1,(6,2))", "12:1"), ("(2,3):(0,0)", "6:0"),
                                          ("(1,1):(5,7)", "1:0"),
                                          ("(4,(2,3)):(2,(8,1))", "(8,3):(2,1)")])
def test_coalesce_examples(text, result):
    assert str(coalesce(Layout.parse(text))) == result


def test_coalesce_by_mode_keeps_the_modes():
    a = Layout.parse("(2,(1,6)):(1,(6,2))")
    assert str(coalesce(a, (1, 1))) == "(2,6):(1,2)"
    assert str(coalesce(Layout.parse("((2,2),(3,5),7):((1,2),(4,12),60)"),
                        (1,))) == "(4,(3,5),7):(1,(4,12),60)"
    with pytest.raises(LayoutError, match="more modes"):
        coalesce(Layout(4), (1, 1))


def test_coalesce_symbolic():
    m, n = Var("M"), Var("N")
    assert coalesce(Layout((m, n), (1, m))) == Layout(m * n, 1)
    assert coalesce(Layout((m, 1, n), (1, 5, 3))) == Layout((m, n), (1, 3))


def test_filter_zeros_keeps_the_set_of_values():
    for a in SMALL:
        assert set(values(filter_zeros(a))) == set(values(filtered(a))) == set(values(a))
        assert len(filter_zeros(a)) == len(a)
    assert str(filter_zeros(Layout((4, (2, 3)), (0, (1, 0))))) == "(1,(2,1)):(0,(1,0))"


def test_flatten():
    assert flatten(((1, 2), (3, (4,)))) == (1, 2, 3, 4) and flatten(5) == 5
    assert str(flatten(Layout(((2, 2), 3), ((1, 6), 2)))) == "(2,2,3):(1,6,2)"


def test_complement_of_all_small_layouts():
    """It exists exactly where copies of the distinct values fill an interval, and then (layout,
    complement) fills it."""
    found = refused = 0
    for a in SMALL:
        distinct = values(filter_zeros(a))
        for target in (1, 7, 24):
            possible = len(set(distinct)) == len(distinct) and min(distinct) >= 0 and tiles_an_interval(set(distinct), target)
            try:
                rest = complement(a, target)
            except LayoutError:
                assert not possible, f"complement({a}, {target}) exists"
                refused += 1
                continue
            found += 1
            both = values(make_layout(filter_zeros(a), rest))
            assert sorted(both) == list(range(len(both))) and len(both) >= target, f"complement({a}, {target}) = {rest}"
            assert list(rest.flat_stride) == sorted(rest.flat_stride)
    assert found > 500 and refused > 500


@pytest.mark.parametrize("text, target, result",
                         [("4:1", 24, "6:4"), ("6:4", 24, "4:1"), ("(4,6):(1,4)", 24, "1:0"),
                          ("4:2", 24, "(2,3):(1,8)"), ("(2,4):(1,6)", 24, "3:2"),
                          ("(2,2):(1,6)", 24, "(3,2):(2,12)"), ("128:1", 1000, "8:128"),
                          ("(2,4):(0,3)", 24, "(3,2):(1,12)")])
def test_complement_examples(text, target, result):
    assert str(complement(Layout.parse(text), target)) == result


def test_complement_refuses_with_the_mode():
    with pytest.raises(
        LayoutError,
        match=r"complement\(\(2,2\):\(1,3\), 12\): the mode 2:3 does not start at a multiple of 2"
    ):
        complement(Layout((2, 2), (1, 3)), 12)
    with pytest.raises(LayoutError, match="the mode 4:2 does not start at a multiple of 4"):
        complement(Layout((4, 4), (1, 2)), 32)
    with pytest.raises(LayoutError, match="negative"):
        complement(Layout(4, -1), 8)
    with pytest.raises(LayoutError, match="is empty"):
        complement(Layout(0, 1), 8)
    with pytest.raises(LayoutError, match="basis"):
        complement(Layout(4, E(0)), 8)


def test_complement_symbolic():
    m, n = Var("M", 1), Var("N", 1)
    assert complement(Layout(8, 1), m) == coalesce(Layout((m + 7) // 8, 8))
    assert complement(Layout((m, n), (1, m)), 64).stride == m * n
    with pytest.raises(LayoutError, match="does not start"):
        complement(Layout((m, n), (1, 2 * n)), 64)


def test_right_inverse_of_all_small_layouts():
    for a in SMALL:
        r = right_inverse(a)
        v = values(a)
        assert [v[i] for i in values(r)] == list(range(size(r)))
        if sorted(v) == list(range(len(v))):
            assert size(r) == len(v) and is_bijective(a)
        else:
            assert not is_bijective(a)


@pytest.mark.parametrize("text, result", [("(4,8):(8,1)", "(8,4):(4,1)"), ("2:2", "1:0"),
                                          ("(2,2):(0,1)", "2:2"), ("(3,7):(7,1)", "(7,3):(3,1)"),
                                          ("((2,4),8):((4,8),32)", "1:0"), ("(4,2):(1,8)", "4:1")])
def test_right_inverse_examples(text, result):
    assert str(right_inverse(Layout.parse(text))) == result


def test_inverse_symbolic():
    m, n = Var("M", 1), Var("N", 1)
    assert right_inverse(Layout((m, n), (n, 1))) == Layout((n, m), (m, 1))
    inverse = left_inverse(Layout((m, n), (1, m)))
    assert [evaluate(inverse(i), {"M": 3, "N": 4}) for i in range(12)] == list(range(12))


def test_left_inverse_of_all_small_layouts():
    found = 0
    for a in SMALL:
        v = values(a)
        g = result_or_refusal(left_inverse, a)
        if isinstance(g, LayoutError):
            kept = values(filter_zeros(a))
            assert min(v) < 0 or len(set(kept)) < len(kept) or "no layout" in g.why
            continue
        found += 1
        back = [g(x) for x in v]
        assert [v[i] for i in back] == v
        if len(set(v)) == len(v):
            assert back == list(range(len(v)))
    assert found > 200


@pytest.mark.parametrize("text, result", [("4:2", "(2,4):(0,1)"), ("(4,8):(8,1)", "(8,4):(4,1)"),
                                          ("(2,2):(1,3)", "(3,2):(1,2)"), ("(2,3):(0,1)", "3:2"),
                                          ("5:0", "1:0")])
def test_left_inverse_examples(text, result):
    assert str(left_inverse(Layout.parse(text))) == result


def test_left_inverse_refuses_shared_values():
    with pytest.raises(LayoutError, match="left_inverse"):
        left_inverse(Layout((4, 4), (1, 2)))


def test_nullspace():
    assert str(nullspace(Layout((2, 3, 4), (0, 1, 0)))) == "(2,4):(1,6)"
    for a in SMALL:
        zeros = values(nullspace(a))
        v = values(a)
        assert all(v[i] == 0 for i in zeros) and len(set(zeros)) == len(zeros)


def test_is_injective():
    for a in SMALL:
        v = values(a)
        assert is_injective(a) == (len(set(v)) == len(v))
    m, n = Var("M", 1), Var("N", 1)
    assert is_injective(Layout((m, n), (1, m))) and is_injective(Layout((4, 3), (E(0), E(1))))
    assert is_injective(Layout((0, 4), (1, 0)))
    assert not is_injective(Layout((4, 3), (E(0), 2 * E(0)))) and not is_injective(
        Layout((m, 4), (1, 0))
    )
    for undecided in (Layout((m, n), (1, 5)), Layout((1 << 11, 1 << 11), (3, 5))):
        with pytest.raises(LayoutError, match="do not tell"):
            is_injective(undecided)


@pytest.mark.parametrize("text", ["(4,8)", "(4,8):(8,1)", "((2,4),(3,1)):((12,3),(1,0))", "6",
                                  "(4,1,2):(2,0,1)"])
def test_coordinates_of_values(text):
    a = Layout.parse(text)
    for i in range(size(a)):
        assert a(get_1d_coord(a, i)) == i
        flat, hier = get_flat_coord(a, i), get_hier_coord(a, i)
        assert congruent(hier, a.shape) and a(hier) == i and a(flat) == i and depth(flat) <= 1
        t = Var("t", 0, size(a) - 1)
        assert evaluate(get_1d_coord(a, t), {"t": i}) == get_1d_coord(a, i)
    with pytest.raises(LayoutError, match="outside"):
        get_hier_coord(a, size(a))
    with pytest.raises(LayoutError, match="not one to one"):
        get_1d_coord(Layout((4, 2), (1, 8)), 3)
