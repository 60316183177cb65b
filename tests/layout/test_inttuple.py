"""Operations on integer tuples."""

import itertools

import pytest

from cuteblas.layout import (
    Layout,
    LayoutError,
    Var,
    ceil_div,
    colex_leq,
    colex_less,
    compatible,
    congruent,
    crd2crd,
    crd2idx,
    elem_geq,
    elem_gtr,
    elem_scale,
    evenly_divides,
    flatten,
    get,
    idx2crd,
    inner_product,
    lex_leq,
    lex_less,
    product,
    product_each,
    product_like,
    round_up,
    shape_div,
    tuple_max,
    tuple_min,
    tuple_sum,
    unflatten,
    unwrap,
    weakly_congruent,
)
from cuteblas.layout.inttuple import divides, gcd, quotient, repeat_like, surely_less
from cuteblas.layout.symbolic import evaluate


def test_products():
    assert product(((2, 3), 4)) == 24 and product_each(((2, 3), 4)) == (6, 4) and product_each(5) == 5
    assert product_like(((2, 3), (4, 5)), (1, (1, 1))) == (6, (4, 5))
    assert inner_product((1, (2, 3)), (4, (5, 6))) == 32 and elem_scale((2, 3), (4, (5, 6))) == (
        8,
        90
    )
    assert (tuple_sum((1, (2, 3))), tuple_max((1, (7, 3))), gcd((12, (8, 20)))) == (6, 7, 4)


def test_shape_of_tuples():
    assert get(((2, 3), 4), 0, 1) == 3 and repeat_like((1, (2, 3)), 0) == (0, (0, 0))
    assert unflatten((1, 2, 3), (0, (0, 0))) == (1, (2, 3)) and flatten(7) == 7
    for flat in [(1, 2), (1, 2, 3, 4)]:
        with pytest.raises(LayoutError, match="entries than leaves"):
            unflatten(flat, (0, (0, 0)))
    with pytest.raises(LayoutError, match="do not match"):
        inner_product((1, 2), (3, 4, 5))


def test_profiles():
    assert congruent((1, (2, 3)), (4, (5, 6))) and not congruent((1, 2), (1, (2, 3))) and congruent(3, Layout(4))
    assert weakly_congruent((1, 2), (1, (2, 3))) and weakly_congruent(3, (1, 2)) and not weakly_congruent((1, 2), 3)


def test_compatibility_is_a_partial_order():
    assert compatible(24, (4, 6)) and compatible((4, 6), ((2, 2), 6)) and compatible(24, 24) and compatible(24, (24,))
    assert not compatible((24,), 24) and not compatible((4, 6), (6, 4)) and not compatible(24, 32)
    shapes = [24, (24,), (4, 6), ((2, 2), 6), (2, 12), (2, (2, 6)), (4, (2, 3)), ((2, 2), (2, 3))]
    for a, b, c in itertools.product(shapes, repeat=3):
        if compatible(a, b) and compatible(b, c):
            assert compatible(a, c)
        assert a == b or not (compatible(a, b) and compatible(b, a))


def test_divisions():
    assert ceil_div((5120, 100), (128, 8)) == (40, 13) and ceil_div((5, 6, 7),
                                                                    (2, None)) == (3, 1, 7)
    assert ceil_div((4, 6), 8) == (1, 3) and ceil_div(Layout((10, 3)), (4,)) == (3, 3) and round_up((5, 8), (4, 4)) == (8, 8)
    assert shape_div((3, 4), 6) == (1, 2) and shape_div((6, (3, 2)), (3, (3, 1))) == (2, (1, 2)) and shape_div(12, (3, 2)) == 2
    for a, b in [(4, 3), ((4, 3), (3, 3))]:
        with pytest.raises(LayoutError, match="neither integer divides"):
            shape_div(a, b)
    with pytest.raises(LayoutError, match="positive"):
        ceil_div(4, 0)
    with pytest.raises(LayoutError, match="more modes"):
        ceil_div((4,), (2, 2))
    m = Var("M")
    assert evaluate(ceil_div((m, 5), (4, 5))[0], {"M": 9}) == 3


def test_what_is_certain_of_symbolic_integers():
    m, n = Var("M", 1, 10), Var("N")
    assert surely_less(m, 11) and not surely_less(m, 10) and not surely_less(n, 100) and surely_less(n, n + 1)
    assert quotient(6 * n, 3) == 2 * n and quotient(n, 2) is None and quotient(7, 7) == 1 and quotient(4, 0) is None
    assert divides(n, n) and not divides(4, 6) and divides(1, n) and not divides(n, 6)


@pytest.mark.parametrize("shape", [12, (3, 4), ((2, 3), 2), (2, (1, 3), 2)])
def test_coordinates_and_indices(shape):
    for i in range(12):
        coord = idx2crd(i, shape)
        assert crd2idx(coord, shape) == i and crd2crd(coord, shape, (4, 3)) == (i % 4, i // 4)
        assert crd2crd(i, 12, shape) == coord
    for i in (-1, 12):
        with pytest.raises(LayoutError, match="outside"):
            idx2crd(i, shape)


def test_indices_with_strides_invert_compact_layouts():
    for i in range(24):
        assert idx2crd(i, (4, (2, 3)), (6, (3, 1))) == (i // 6, (i // 3 % 2, i % 3))
    assert idx2crd((5, 2), ((2, 3), 4)) == ((1, 2), 2) and idx2crd(3, (4, 5), (1, 0)) == (3, 0)
    with pytest.raises(LayoutError, match="integer or a tuple"):
        idx2crd("a", 4)


def test_symbolic_indices_divide_only_where_needed():
    t = Var("t", 0, 255)
    assert [str(c) for c in idx2crd(t, (32, 8))] == ["t & 31", "t >> 5"]
    assert [str(c) for c in idx2crd(Var("b"), (Var("M"), 8))] == ["b % M", "b / M"]


def test_orders_of_tuples():
    pairs = list(itertools.product(itertools.product(range(3), repeat=2), repeat=2))
    for a, b in pairs:
        assert (lex_less(a, b), lex_leq(a, b)) == (a < b, a <= b)
        assert (colex_less(a, b), colex_leq(a, b)) == (a[::-1] < b[::-1], a[::-1] <= b[::-1])
        assert (elem_gtr(a, b), elem_geq(a, b)) == (a[0] > b[0] and a[1] > b[1],
                                                    a[0] >= b[0] and a[1] >= b[1])
        assert colex_less(a, b) == (crd2idx(a, (3, 3)) < crd2idx(b, (3, 3)))
    assert lex_less(((1, 2), 3), ((1, 3), 0)) and not colex_less(((1, 2), 3),
                                                                 ((1, 3), 0)) and lex_less(1, 2)
    with pytest.raises(LayoutError, match="do not match"):
        lex_less((1, 2), 3)
    with pytest.raises(LayoutError, match="not certain"):
        colex_leq((1, Var("i")), (1, 2))


def test_even_division():
    assert evenly_divides((128, (4, 3)), (32, 6)) and evenly_divides((128, 5), 64) and evenly_divides((128, 5), (None, 5))
    assert not evenly_divides((128, 5), (32, 2)) and evenly_divides((Var("M") * 8, 5), (4,)) and not evenly_divides(Var("M"), 2)
    with pytest.raises(LayoutError, match="more modes"):
        evenly_divides(4, (2, 2))


def test_leaves_of_tuples():
    assert (tuple_min((3, (1, 2))), tuple_max((3, (1, 4))), tuple_sum((3, (1, 2))),
            tuple_min(7)) == (1, 4, 6, 7)
    assert unwrap(((4,),)) == 4 and unwrap(((4, 5),)) == (4, 5) and unwrap(3) == 3
