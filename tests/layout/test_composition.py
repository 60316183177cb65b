"""Composition against brute force: it returns the function, whenever a layout of it exists, and
otherwise refuses."""

import itertools
import random

import pytest

from cuteblas.layout import (
    E,
    Layout,
    LayoutError,
    Var,
    compatible,
    composition,
    make_identity_layout,
    make_layout,
    product_each,
    size,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout.reference import at, composed, has_layout, layout, values


def check(a, b):
    """Compose flat ``a`` and ``b``; what happened, after comparing it with brute force."""
    outer, inner = layout(*a), layout(*b)
    domain, reach = size(outer), sum((s - 1) * d for s, d in zip(*b, strict=True))
    try:
        result = composition(outer, inner)
    except LayoutError:
        result = None
    if result is None:
        assert reach >= domain or not has_layout(composed(a, b), b[0]), f"{outer} o {inner} is refused although a layout exists"
        return "outside" if reach >= domain else "refused"
    assert reach < domain, f"{outer} o {inner} reaches {reach} and gave {result}"
    assert compatible(inner.shape, result.shape)
    for coord, value in composed(a, b).items():
        assert result(*coord) == value, f"{outer} o {inner} gave {result}, wrong at {coord}"
    return "composed"


def test_all_pairs_of_one_mode_into_two():
    seen = {"composed": 0, "refused": 0, "outside": 0}
    outer = [(s, d) for s in itertools.product((2, 3, 4, 6), repeat=2)
             for d in itertools.product((0, 1, 2, 3, 5, 8, -1), repeat=2)]
    inner = [((s,), (d,)) for s in range(1, 9) for d in range(9)]
    for a, b in itertools.product(outer, inner):
        seen[check(a, b)] += 1
    assert min(seen.values()) > 1000


def test_all_pairs_of_two_modes_into_two():
    outer = [(s, d) for s in itertools.product((2, 3, 4), repeat=2)
             for d in [(1, 3), (8, 2), (1, 8), (2, 1), (0, 1), (3, -2)]]
    inner = [(s, d) for s in itertools.product((2, 3, 4), repeat=2)
             for d in itertools.product(range(5), repeat=2)]
    seen = [check(a, b) for a, b in itertools.product(outer, inner)]
    assert seen.count("composed") > 1000 and seen.count("refused") > 1000


def test_random_pairs_of_three_modes():
    rng = random.Random(7)

    def draw(rank, extents, strides):
        return tuple(rng.choice(extents) for _ in range(rank)), tuple(rng.choice(strides)
                                                                      for _ in range(rank))

    for _ in range(20000):
        check(draw(3, (1, 2, 3, 4, 6), (0, 1, 2, 5, 6, 12, -3)),
              draw(rng.choice((1, 2, 3)), (1, 2, 3, 4), range(13)))


@pytest.mark.parametrize("outer, inner", [
    ("(6,3):(8,2)", "4:4"),                              # published rules: (2,2):(32,2)
    ("(4,2):(1,8)", "(3,2):(1,3)"),                      # each mode fits alone, their sum carries
    ("(4,6,8):(2,3,5)", "6:3"),
    ("(4,3):(1,8)", "6:1"),                              # published rules: 4:1, two elements lost
])
def test_what_others_get_wrong_is_refused(outer, inner):
    with pytest.raises(LayoutError) as refusal:
        composition(Layout.parse(outer), Layout.parse(inner))
    assert outer in str(refusal.value) and inner in str(refusal.value)


def test_a_refusal_names_the_mode_and_the_coordinate():
    with pytest.raises(
        LayoutError,
        match=r"mode 0 of the tiler, 6:1, goes in steps of 1 up to its coordinate 3; .* has 8 at 4"
    ):
        composition(Layout((4, 3), (1, 8)), Layout(6, 1))
    with pytest.raises(LayoutError,
                       match=r"at the coordinate \(1, 1\) of the tiler's leaves the value is 8"):
        composition(Layout((4, 2), (1, 8)), Layout((3, 2), (1, 3)))


def test_what_others_refuse_is_found():
    assert str(composition(Layout((6, 2), (8, 2)), Layout(2, 4))) == "2:32"
    # by fitting: two values are a layout
    assert composition(Layout((4, 3), (1, 8)), Layout(2, 5))(1) == 9


@pytest.mark.parametrize("outer, inner, result", [
    ("(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
    ("20:2", "(5,4):(4,1)", "(5,4):(8,2)"),
    ("(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
    ("(4,(2,3)):(2,(1,8))", "(2,4):(4,1)", "(2,4):(1,2)"),
    ("(4,8):(8,1)", "(2,2):(0,1)", "(2,2):(0,8)"),
    ("(4,8):(8,1)", "(1,4):(7,1)", "(1,4):(0,8)"),
    ("8:3", "((2,2),2):((1,2),4)", "((2,2),2):((3,6),12)"),
])
def test_worked_examples(outer, inner, result):
    assert str(composition(Layout.parse(outer), Layout.parse(inner))) == result


def test_by_mode_tilers_are_basis_layouts():
    a = Layout((12, (4, 8)), (59, (13, 1)))
    assert composition(a, (Layout(3, 4), Layout(8, 2))) == composition(
        a, Layout((3, 8), (4 * E(0), 2 * E(1)))
    )
    assert composition(a, (3, None)) == make_layout(Layout(3, 59), a[1])
    assert composition(a, Layout((2, 4), (E(1, 1), E(0)))) == Layout((2, 4), (1, 59))
    with pytest.raises(LayoutError, match="as a whole and in part"):
        composition(a, Layout((2, 2), (E(1), E(1, 0))))
    with pytest.raises(LayoutError, match="there is no mode 5"):
        composition(a, Layout(2, E(5)))
    with pytest.raises(LayoutError, match="beside basis strides"):
        composition(a, Layout((2, 2), (E(1), 3)))


def test_basis_strides_of_the_outer_layout():
    coords = make_identity_layout((4, 6))
    tile = composition(coords, Layout((2, 3), (2, 8)))
    assert str(tile) == "(2,3):(2@0,2@1)"
    with pytest.raises(LayoutError, match="not a multiple of one basis element"):
        composition(coords, Layout(2, 5))
    # by fitting: 1 of each mode, both @0
    assert composition(Layout((3, 3), (E(0), E(0))), Layout(2, 4))(1) == (2,)


def test_symbolic_leaves():
    m, ld = Var("M"), Var("ld")
    assert composition(Layout(m, ld), Layout(8, 4)) == Layout(8, 4 * ld)
    assert composition(Layout((4, m), (1, ld)), Layout((4, 3), (1, 4))) == Layout((4, 3), (1, ld))
    big = Var("B", 16)
    assert composition(Layout((big, 3), (2, ld)), 16) == Layout(16, 2)
    with pytest.raises(LayoutError, match=r"not certain that the mode .* divides"):
        composition(Layout((m, 3), (2, ld)), 16)
    fitted = composition(Layout((3, 3), (ld, 7 * ld)), Layout(2, 4))
    assert all(evaluate(fitted(i), {"ld": 5}) == at((3, 3), (5, 35), 4 * i) for i in range(2))


def test_symbolic_results_are_right_for_every_value():
    """Leaves replaced by variables: a result, where there is one, has to hold for all values that
    the variables may have."""
    rng, composed_ones = random.Random(11), 0
    for _ in range(4000):
        a = [[rng.choice((2, 3, 4, 8)) for _ in range(3)],
             [rng.choice((1, 2, 4, 8, 32)) for _ in range(3)]]
        b = [[rng.choice((2, 3, 4)) for _ in range(2)],
             [rng.choice((0, 1, 2, 4, 8)) for _ in range(2)]]
        values_of = {}
        for k, (which, entry) in enumerate(rng.choices([(x, e) for x in (a, b) for e in (0, 1)],
                                                       k=2)):
            place = rng.randrange(len(which[entry]))
            if isinstance(which[entry][place], int):
                values_of[f"v{k}"] = which[entry][place]
                which[entry][place] = Var(f"v{k}", max(0, which[entry][place]
                                                       - rng.choice((0, 0, 2))), None)
        try:
            result = composition(Layout(*map(tuple, a)), Layout(*map(tuple, b)))
        except LayoutError:
            continue
        composed_ones += 1
        for _ in range(3):
            static_a, static_b = ([[evaluate(x, values_of) for x in part] for part in layout_]
                                  for layout_ in (a, b))
            numbers = Layout(substituted(result.shape, values_of),
                             substituted(result.stride, values_of))
            assert product_each(numbers.shape) == tuple(static_b[0])
            assert all(numbers(*c) == v for c, v in composed(static_a, static_b).items())
            values_of = {name: value + rng.randrange(4) for name, value in values_of.items()}
    assert composed_ones > 400


def substituted(x, values_of):
    return tuple(substituted(i, values_of) for i in x) if isinstance(x, tuple) else evaluate(x, values_of)


def test_large_layouts_are_decided_by_division_or_refused():
    a = Layout((1 << 20, 1 << 20), (1, 1 << 21))
    assert composition(a, Layout((1 << 10, 1 << 10), (1, 1 << 20))) == Layout(
        (1 << 10, 1 << 10), (1, 1 << 21)
    )
    with pytest.raises(LayoutError, match="do not divide"):
        composition(a, Layout(1 << 19, 3))


def test_composition_is_associative_where_it_exists():
    rng = random.Random(3)
    for _ in range(300):
        a = layout(tuple(rng.choice((2, 4, 8)) for _ in range(3)),
                   tuple(rng.choice((1, 2, 4, 16)) for _ in range(3)))
        b, c = layout((4, 4), (rng.choice((1, 2)),
                               rng.choice((4, 2)))), layout((2, 2), (rng.choice((1, 2, 4)),
                                                                     rng.choice((1, 8))))
        try:
            left, right = composition(composition(a, b), c), composition(a, composition(b, c))
        except LayoutError:
            continue
        assert values(left) == values(right)
