"""Layouts as objects: construction, text, evaluation, slices, surgery."""

import itertools
import pickle

import numpy as np
import pytest

from cuteblas.layout import (
    ArithTuple,
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    ScaledBasis,
    Swizzle,
    Var,
    _,
    append,
    coshape,
    cosize,
    counting_iterator,
    crd2idx,
    depth,
    dice,
    flatten,
    group_modes,
    idx2crd,
    make_fragment_like,
    make_identity_layout,
    make_layout,
    make_layout_like,
    make_ordered_layout,
    make_tensor,
    prepend,
    rank,
    replace,
    select,
    size,
    slice_,
    slice_and_offset,
    take,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout.reference import values

NESTED = Layout((4, (2, 3)), (2, (1, 8)))


@pytest.mark.parametrize("shape, stride, text",
                         [(8, None, "8:1"), ((4, 2), None, "(4,2):(1,4)"),
                          ((4, 1, 2), None, "(4,1,2):(1,0,4)"),
                          ((4, (2, 3)), (2, (1, 8)), "(4,(2,3)):(2,(1,8))"),
                          ((4, 5), (E(0), E(1)), "(4,5):(1@0,1@1)"),
                          ((4, 5), (3 * E(0, 1), -2), "(4,5):(3@1@0,-2)"), ((5,), (0,), "(5):(0)"),
                          (0, 1, "0:1")])
def test_text_and_back(shape, stride, text):
    a = Layout(shape, stride)
    assert str(a) == text
    assert Layout.parse(text) == a and hash(Layout.parse(text)) == hash(a)
    assert eval(repr(a)) == a
    assert pickle.loads(pickle.dumps(a)) == a


def test_parse_reads_static_marks_names_and_spaces():
    assert Layout.parse("(_128, _8,512) : (_1,5120,40960)") == Layout((128, 8, 512),
                                                                      (1, 5120, 40960))
    assert Layout.parse("((2,2),6)") == Layout(((2, 2), 6))
    m = Var("M", 1, 100)
    assert Layout.parse("(M,4):(1,M)", {"M": m}) == Layout((m, 4), (1, m))
    assert Layout.parse("(ArithM,2):(2@0,7@1@0)") == Layout((Var("ArithM"), 2),
                                                            (2 * E(0), 7 * E(0, 1)))


@pytest.mark.parametrize("text", ["", "(4,2", "4)", "(4,,2)", "4:", "(4,2):(1,4):3", "4@", "4:1@",
                                  "4:x@y", "()", "4.5", "(4 2)", "4:-", "the end"])
def test_parse_refuses(text):
    with pytest.raises(LayoutError, match="Layout"):
        Layout.parse(text)


@pytest.mark.parametrize("shape, stride, why",
                         [((4, 2), (1,), "not congruent"), ((4, 2), 1, "not congruent"),
                          (4, (1,), "not congruent"), ([4, 2], None, "list"),
                          ((4, 2.5), None, "float"), (-4, 1, "negative"), ((), None, "empty tuple"),
                          (True, None, "bool"), ((4, None), None, "NoneType"),
                          (E(0), 1, "ScaledBasis")])
def test_construction_refuses(shape, stride, why):
    with pytest.raises(LayoutError, match=why):
        Layout(shape, stride)


def test_numpy_integers_become_integers():
    a = Layout((np.int64(4), np.int32(2)), (np.int64(2), 1))
    assert a == Layout((4, 2), (2, 1)) and all(type(x) is int for x in (*a.shape, *a.stride))
    assert a(np.int64(5)) == 3 and a(np.int64(1), 1) == 3


def test_frozen_and_comparable_with_anything():
    a = Layout(4)
    with pytest.raises(AttributeError):
        a.shape = 5
    assert a != 4 and a != "4:1" and a != Layout((4,)) and len({a, Layout(4, 1)}) == 1


def test_measures():
    assert (rank(NESTED), depth(NESTED), size(NESTED), cosize(NESTED)) == (2, 2, 24, 24)
    assert (rank(NESTED, 1), depth(NESTED, 0), size(NESTED, 1), size(NESTED, 1, 0),
            cosize(NESTED, 1)) == (2, 0, 6, 2, 18)
    assert (rank(7), depth(7), size((2, (3, 4)))) == (1, 0, 24)
    assert (cosize(Layout(4, -1)), cosize(Layout((4, 3), (0, 2))), cosize(Layout((0, 3))),
            cosize(Layout(1, 9))) == (4, 5, 0, 1)
    methods = (NESTED.rank, NESTED.depth, NESTED.size(), NESTED.cosize(), NESTED.size(1, 0),
               NESTED.cosize(1))
    assert methods == (2, 2, 24, 24, 2, 18) and evaluate(Layout((Var("M"), 4)).size(),
                                                         {"M": 5}) == 20
    swizzled = ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1)))
    for x in (swizzled, make_tensor(counting_iterator(0), swizzled)):
        assert (x.rank, x.depth, x.size(), x.cosize()) == (2, 1, 4, 4)
    m = Var("M")
    assert NESTED.is_static and not Layout((m, 4), (1, 2)).is_static and not Layout((4, 4), (1, m)).is_static
    assert make_identity_layout((4, 4)).is_static and not Layout(4, m * E(0)).is_static
    assert evaluate(cosize(Layout((m, 4), (1, 16))), {"M": 5}) == 53
    with pytest.raises(LayoutError, match="may be negative"):
        cosize(Layout(4, Var("d", None)))
    assert (cosize(make_identity_layout((4, 5))), coshape(Layout((4, 3), (1, 8)))) == (20, 20)
    assert coshape(Layout((4, (3, 2)), (-2 * E(1), (E(0), 0)))) == (3, 7)
    with pytest.raises(LayoutError, match="beside basis strides"):
        coshape(Layout((2, 2), (E(0), 1)))


def test_evaluation_at_every_kind_of_coordinate():
    for i, (outer, (a, b)) in enumerate((n % 4, (n // 4 % 2, n // 8)) for n in range(24)):
        expected = 2 * outer + a + 8 * b
        assert NESTED(i) == NESTED(outer, i // 4) == NESTED(outer, (a, b)) == NESTED((outer, (a, b))) == expected
        assert crd2idx((outer, (a, b)), NESTED.shape, NESTED.stride) == expected
        assert idx2crd(i, NESTED.shape) == (outer, (a, b))


def test_symbolic_coordinates_give_index_expressions():
    i, j = Var("i", 0, 23), Var("j", 0, 5)
    for n in range(24):
        assert evaluate(NESTED(i), {"i": n}) == NESTED(n)
    for n, k in itertools.product(range(4), range(6)):
        assert evaluate(NESTED(n, j), {"j": k}) == NESTED(n, k)
    assert str(Layout((4, 8), (1, 4))(Var("t", 0, 31))) == "t"
    assert str(Layout((32, 8), (8, 1))(Var("t", 0, 255))) == "(t & 31) * 8 + (t >> 5)"


def test_symbolic_shapes_and_strides():
    m, k, ld = Var("M"), Var("K"), Var("ld")
    a = Layout((m, k), (1, ld))
    assert a(2, 3) == 3 * ld + 2
    at = a(Var("i"))
    assert [evaluate(at, {"i": i, "M": 5, "ld": 7}) for i in range(15)] == [
        i % 5 + i // 5 * 7 for i in range(15)
    ]


@pytest.mark.parametrize("coord", [(24,), (-1,), (4, 0), (0, 6), (0, (2, 0)), (1, 2, 3),
                                   (1, (1, 1, 1)), ((0, 1), 1), ("a",), (1.5, 0)])
def test_coordinates_that_do_not_fit_are_refused(coord):
    with pytest.raises(LayoutError):
        NESTED(*coord)


def test_symbolic_coordinates_certainly_outside_are_refused():
    assert NESTED(Var("i", 0, 100)) is not None
    with pytest.raises(LayoutError, match="outside"):
        NESTED(Var("i", 24, 100))


def test_modes():
    assert len(NESTED) == 2 and list(NESTED) == [Layout(4, 2), Layout((2, 3), (1, 8))]
    assert NESTED[1, 1] == Layout(3, 8) and NESTED[-1] == NESTED[1]
    assert NESTED[0:2] == NESTED and NESTED[1:] == make_layout(NESTED[1])
    assert Layout(4)[0] == Layout(4) and list(Layout(4)) == [Layout(4)]
    for mode in (2, (0, 1), (1, 2)):
        with pytest.raises(LayoutError, match="no mode"):
            NESTED[mode]


@pytest.mark.parametrize("coord, text, start",
                         [((_, 1), "(4):(2)", 1), ((2, _), "((2,3)):((1,8))", 4),
                          ((2, (_, 1)), "(2):(1)", 12), (((_), (1, _)), "(4,3):(2,8)", 1),
                          ((3, (_, _)), "(2,3):(1,8)", 6), (_, "(4,(2,3)):(2,(1,8))", 0)])
def test_slices(coord, text, start):
    sub, offset = slice_and_offset(coord, NESTED)
    assert (str(sub), offset) == (text, start)
    assert NESTED(coord) == sub
    assert (slice_(coord, NESTED.shape), slice_(coord, NESTED.stride)) == (sub.shape, sub.stride)


def test_slices_refuse_coordinates_that_do_not_fit():
    for coord in [(_, 6), (4, _), (_, 1, 1), (_, (1, 1, 1)), ((_, 0), 1)]:
        with pytest.raises(LayoutError):
            slice_and_offset(coord, NESTED)
    with pytest.raises(LayoutError, match="no mode free"):
        slice_and_offset((1, 2), NESTED)
    assert dice((_, 1), NESTED.shape) == ((2, 3),)


def test_a_slice_of_an_empty_mode_is_empty():
    assert str(Layout((0, 4), (1, 8))(_, 2)) == "(0):(1)"


def test_make_layout():
    assert make_layout((4, 2)) == Layout((4, 2)) and make_layout((4, 2), (2, 1)) == Layout(
        (4, 2), (2, 1)
    )
    assert make_layout(Layout(4), Layout((2, 3))) == Layout((4, (2, 3)), (1, (1, 2)))
    assert make_layout(Layout(4)) == Layout((4,), (1,))
    assert str(make_layout((2, (3, 4)), "right")) == "(2,(3,4)):(12,(4,1))" and make_layout(
        (2, 3), "left"
    ) == Layout((2, 3))
    for args in [(), (Layout(4), 2), (4, Layout(2)), (4, 1, 2), (4, "middle")]:
        with pytest.raises(LayoutError, match="make_layout"):
            make_layout(*args)


@pytest.mark.parametrize("shape, order, text",
                         [((2, 3, 4), (2, 1, 3), "(2,3,4):(3,1,6)"),
                          ((2, (3, 4)), (1, 0), "(2,(3,4)):(12,(1,3))"),
                          ((2, 2), (0, 0), "(2,2):(1,2)"),
                          ((2, 3, 4), (Var("x"), 5, Var("y")), "(2,3,4):(3,1,6)"),
                          ((2, 1, 3), (2, 1, 0), "(2,1,3):(3,0,1)"), (5, 1, "5:1")])
def test_make_ordered_layout(shape, order, text):
    assert str(make_ordered_layout(shape, order)) == text


def test_make_ordered_layout_refuses():
    for shape, order in [((2, 3), (1, 2, 3)), (4, (1, 2)), ((2, 3), None)]:
        with pytest.raises(LayoutError, match="do not match"):
            make_ordered_layout(shape, order)


def test_make_layout_like():
    assert str(make_layout_like(Layout((4, 3, 2), (100, 0, 7)))) == "(4,3,2):(2,0,1)"
    assert str(make_layout_like(Layout((4, (3, 2)), (8, (64, -1))))) == "(4,(3,2)):(2,(8,1))"
    with pytest.raises(LayoutError, match="no order"):
        make_layout_like(Layout(4, E(0)))


def test_surgery_on_layouts_and_tuples():
    a = Layout((2, 3, 4, 5), (1, 2, 6, 24))
    assert str(select(a, 3, 0)) == "(5,2):(24,1)" and select((2, 3, 4), 2, 1) == (4, 3)
    assert str(take(a, 1, 3)) == "(3,4):(2,6)" and take((2, 3, 4), 0, 1) == (2,)
    assert str(group_modes(a, 1, 3)) == "(2,(3,4),5):(1,(2,6),24)" and group_modes(
        (1, 2, 3), 0, 2
    ) == ((1, 2), 3)
    assert values(group_modes(a, 0, 2)) == values(a) and values(
        flatten(group_modes(a, 0, 2))
    ) == values(a)
    assert str(append(a, 5)) == "(2,3,4,5,1):(1,2,6,24,0)" and append((2,), 3) == (2, 1, 1) and append(a, 2) == a
    assert append(a, n=5) == append(a, 5) and str(prepend(Layout(2),
                                                          with_=Layout(7, 3))) == "(7,2):(3,1)"
    assert str(append(Layout(2), None, Layout(7, 3))) == "(2,7):(1,3)" and str(prepend(Layout(2), 2)) == "(1,2):(0,1)"
    assert str(replace(a, 1, Layout(9, 9))) == "(2,9,4,5):(1,9,6,24)" and replace(
        (1, 2, 3), -1, 7
    ) == (1, 2, 7)
    for call in [lambda: select(a, 4), lambda: select(a), lambda: take(a, 2, 2),
                 lambda: take(a, 0, 5), lambda: group_modes(a, 3, 2),
                 lambda: replace(a, 4, Layout(1))]:
        with pytest.raises(LayoutError):
            call()


def test_basis_strides_map_coordinates_to_coordinates():
    a = make_identity_layout((4, (5, 3)))
    assert str(a) == "(4,(5,3)):(1@0,(1@0@1,1@1@1))"
    for coord in itertools.product(range(4), itertools.product(range(5), range(3))):
        assert a(coord) == coord
    assert a(0) == (0, (0, 0)) and a(21) == (1, (0, 1)) and make_identity_layout(7)(3) == 3
    assert Layout((4, 5), (E(1), E(0)))(2, 3) == (3, 2)
    assert Layout((4, 5), (E(1), 0))(2, 3) == (0, 2)
    i = Var("i", 0, 3)
    assert a(i, (2, 1)) == ArithTuple(i, (2, 1))


def test_arithmetic_of_basis_elements():
    """The table and the linear combinations of CuTe's text on TMA tensors."""
    elements = (E(0), E(1), E(0, 1), E(1, 0), 5 * E(1), 5 * E(0, 1))
    assert [str(e) for e in elements] == ["1@0", "1@1", "1@1@0", "1@0@1", "5@1", "5@1@0"]
    assert 3 * E(0) + 4 * E(1) == (3, 4)
    assert 2 * (2 * E(0, 1)) + 3 * E(1) + 4 * (5 * E(1)) + 7 * E(0, 0) == ((7, 4), 23)
    assert ArithTuple(42, 2, 7) + ArithTuple(0, 5, 2) == (42, 7, 9)
    assert ArithTuple(1, 2) - (1,) == (0, 2) and -ArithTuple(1, (2, 3)) == (-1, (-2, -3))
    assert 2 * ArithTuple(1, (2, 3)) == (2, (4, 6))
    assert sum([E(0), E(1)], 0) == (1, 1) and -E(2) == ScaledBasis(-1, (2,))
    assert repr(3 * E(1)) == "3*E(1)" and repr(E(0, 1)) == "E(0, 1)" and repr(ArithTuple((1,), 2)) == "ArithTuple((1,), 2)"
    assert pickle.loads(pickle.dumps(ArithTuple(1, (2, 3)))) == (1, (2, 3))
    with pytest.raises(LayoutError, match="cannot be added"):
        ArithTuple(1, 2) + 3
    with pytest.raises(LayoutError, match="cannot be added"):
        E(0) + E(0, 1)
    for bad in [(), (-1,), (1.5,)]:
        with pytest.raises(LayoutError, match="position"):
            E(*bad)


def test_fragments_are_compact_and_keep_the_order():
    assert str(make_fragment_like(Layout(((2, 2), 4, 3),
                                         ((64, 8), 512, 128)))) == "((2,2),4,3):((1,2),12,4)"
    assert str(make_fragment_like(Layout((4, 3, 5), (0, 7, 1)))) == "(4,3,5):(0,5,1)"
    assert str(make_fragment_like(Layout(((4, 2), 3), ((100, 0), 0)))) == "((4,2),3):((1,0),0)"
    assert make_fragment_like(Layout(6, 3)) == Layout(6) and make_fragment_like(
        Layout((6,), (3,))
    ) == Layout((6,), (1,))
    swizzled = ComposedLayout(Swizzle(2, 0, 3), 0, Layout((4, 8), (8, 1)))
    assert str(make_fragment_like(make_tensor(counting_iterator(0), swizzled))) == "(4,8):(1,4)"
    with pytest.raises(LayoutError, match="expected a layout"):
        make_fragment_like(4)


def test_extents_are_not_negative_and_modes_are_not_endless():
    for shape in (-1, (2, -1), (2, (3, -1))):
        with pytest.raises(LayoutError):
            Layout(shape)
    with pytest.raises(LayoutError, match="at most 65536 modes"):
        append(Layout(2), n=(1 << 16) + 1)
    assert rank(append(Layout(2), n=1 << 16)) == 1 << 16
