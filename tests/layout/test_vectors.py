"""Vector widths, alignment, and changes of the element."""

import itertools

import pytest

from cuteblas.layout import (
    E,
    Layout,
    LayoutError,
    Var,
    domain_distribute,
    downcast,
    max_alignment,
    max_common_layout,
    max_common_vector,
    recast_layout,
    size,
    upcast,
)
from tests.layout.reference import layout, values

SMALL = [layout(s, d) for s in itertools.product((1, 2, 3, 4), repeat=2)
         for d in itertools.product((0, 1, 2, 3, 4, 8), repeat=2)]


@pytest.mark.parametrize("a, b, vector", [("(8,16):(16,1)", "(8,16):(32,1)", 16),
                                          ("(8,16):(1,8)", "(8,16):(1,32)", 8),
                                          ("(8,16):(1,8)", "(8,16):(16,1)", 1),
                                          ("128:1", "128:1", 128),
                                          ("(4,8):(1,4)", "((2,2),8):((1,2),4)", 32),
                                          ("8:2", "8:1", 1), ("(2,3):(1,8)", "(2,3):(1,2)", 2),
                                          ("(4,2):(0,1)", "(4,2):(0,1)", 2)])
def test_max_common_vector_examples(a, b, vector):
    assert max_common_vector(Layout.parse(a), Layout.parse(b)) == max_common_vector(Layout.parse(b), Layout.parse(a)) == vector


def test_max_common_layout_is_contiguous_in_both():
    for a, b in itertools.product(SMALL[::5], SMALL):
        if size(a) != size(b):
            continue
        common = max_common_layout(a, b)
        where = values(common)
        assert [values(a)[i] for i in where] == [values(b)[i]
                                                 for i in where] == list(range(size(common)))


def test_max_common_vector_with_symbolic_strides():
    ld = Var("ld")
    assert max_common_vector(Layout((8, 4), (1, ld)), Layout((8, 4), (1, 8))) == 8
    assert max_common_vector(Layout((8, 4), (ld, 1)), Layout((8, 4), (4, 1))) == 4
    with pytest.raises(LayoutError, match="expected a layout"):
        max_common_vector((8, 4), Layout(8))


def test_max_alignment_is_the_largest_upcast():
    for a in SMALL:
        n = max_alignment(a)
        upcast(a, n)
        for larger in range(n + 1, 17):
            with pytest.raises(LayoutError):
                upcast(a, larger)


def test_max_alignment_of_symbolic_strides():
    assert max_alignment(Layout((8, 4), (1, Var("ld")))) == 1
    assert max_alignment(Layout((8, 4), (1, Var("ld", 0, None, bits=-4)))) == 4
    assert max_alignment(Layout((8, 4), (1, 0))) == 8
    with pytest.raises(LayoutError, match="basis"):
        max_alignment(Layout((8, 4), (1, E(0))))


@pytest.mark.parametrize("text, n, result", [("(8,4):(1,8)", 4, "(2,4):(1,2)"),
                                             ("(4,4):(1,4)", 8, "(1,2):(0,1)"),
                                             ("(8,4):(1,12)", 4, "(2,4):(1,3)"),
                                             ("(4,3):(1,0)", 4, "(1,3):(0,0)"),
                                             ("(2,(4,2)):(8,(1,4))", 4, "(2,(1,2)):(2,(0,1))")])
def test_upcast_examples(text, n, result):
    assert str(upcast(Layout.parse(text), n)) == result


def test_upcast_is_the_address_of_the_unit():
    """Element i of the result, times n, is the least of the n addresses of a unit; units do not
    overlap."""
    for a, n in itertools.product(SMALL, (2, 3, 4)):
        try:
            up = upcast(a, n)
        except LayoutError:
            continue
        assert size(a) == n * size(up)
        assert sorted(values(a)) == sorted(n * v + i for v in values(up) for i in range(n))


@pytest.mark.parametrize("text, n", [("(4,4):(1,8)", 8), ("(6,4):(1,8)", 4), ("8:2", 2),
                                     ("(8,4):(1,6)", 4), ("4:-1", 2)])
def test_upcast_refuses(text, n):
    with pytest.raises(LayoutError, match="upcast"):
        upcast(Layout.parse(text), n)


def test_downcast_and_recast():
    assert str(downcast(Layout((2, 4), (1, 2)), 4)) == "(8,4):(1,8)" and downcast(
        Layout(7, 3), 1
    ) == Layout(7, 3)
    assert upcast(downcast(Layout((3, 4), (1, 3)), 2), 2) == Layout((3, 4), (1, 3))
    assert str(recast_layout(Layout((8, 4), (1, 8)), 16, 128)) == "(1,4):(0,1)"
    assert str(recast_layout(Layout((8, 4), (1, 8)), 64, 32)) == "(16,4):(1,16)"
    with pytest.raises(LayoutError, match="not exactly one"):
        downcast(Layout(4, 2), 2)
    with pytest.raises(LayoutError, match="multiple of the other"):
        recast_layout(Layout(8), 24, 16)


def test_domain_distribute():
    assert str(domain_distribute((15, 14), 6)) == "(3,2):(1,15)" and str(domain_distribute(32, 8)) == "8:1"
    with pytest.raises(LayoutError, match="no tile of 4"):
        domain_distribute((3, 5), 4)
