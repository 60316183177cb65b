"""Divisions and products: examples of CuTe's documents, and what every division and product has to
satisfy."""

import itertools
import random

import pytest

from cuteblas.layout import (
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    Swizzle,
    Var,
    _,
    append,
    blocked_product,
    ceil_div,
    coalesce,
    composition,
    cosize,
    flat_divide,
    flat_product,
    get_flat_coord,
    logical_divide,
    logical_product,
    make_identity_layout,
    make_layout,
    make_layout_tv,
    product_each,
    raked_product,
    size,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    tiler_to_layout,
    with_shape,
    wrap,
    zipped_divide,
    zipped_product,
)
from cuteblas.layout.symbolic import evaluate
from tests.layout.reference import layout, values

PARSE = Layout.parse
GRID = PARSE("(9,(4,8)):(59,(13,1))")
TILER = (Layout(3, 3), Layout((2, 4), (1, 8)))


@pytest.mark.parametrize("divide, text", [
    (logical_divide, "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"),
    (zipped_divide, "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"),
    (tiled_divide, "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
    (flat_divide, "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))")])
def test_divisions_of_the_documents(divide, text):
    assert str(divide(GRID, TILER)) == text


@pytest.mark.parametrize("text, tiler, result", [
    ("16:1", "4:1", "(4,4):(1,4)"),
    ("(4,2,3):(2,1,8)", "4:2", "((2,2),(2,3)):((4,1),(2,8))"),
    ("1000:1", "128:1", "(128,8):(1,128)"),
    ("8:3", "16:1", "(16,1):(3,0)"),
    ("0:1", "128:1", "(128,0):(1,0)"),
    ("1:0", "4:1", "(4,1):(0,0)"),
    ("7:5", "1:0", "(1,7):(0,5)")])
def test_logical_divide_by_a_layout(text, tiler, result):
    assert str(logical_divide(PARSE(text), PARSE(tiler))) == result


def test_dividing_one_mode_by_a_number_is_dividing_by_its_layout():
    """The usual case has a short cut."""
    for n, d, tile in itertools.product((0, 1, 4, 7, 12), (0, 1, 5, -2), (1, 2, 3, 8)):
        quick, full = logical_divide(Layout(n, d), tile), logical_divide(Layout(n, d), Layout(tile))
        assert quick.shape == full.shape and values(quick) == values(full) and values(quick[0]) == values(full[0])


def test_modes_without_a_tile():
    a = Layout((6, 8, 5), (1, 6, 48))
    assert str(logical_divide(a, (_, 4))) == "(6,(4,2),5):(1,(6,24),48)"
    assert str(zipped_divide(a, (_, 4))) == "((6,4),(1,2,5)):((1,6),(0,24,48))"
    assert str(tiled_divide(a, 4)) == "(4,60):(1,4)"
    assert str(zipped_divide(a, (3, 2))) == "((3,2),(2,4,5)):((1,6),(3,12,48))"
    assert zipped_divide(a, None) == make_layout(a, Layout(1, 0))


def test_nested_tilers_divide_nested_modes():
    a = Layout(((4, 6), 8), ((1, 4), 24))
    assert str(zipped_divide(a, ((2, 3), 4))) == "(((2,3),4),((2,2),2)):(((1,4),24),((2,12),96))"


def test_divisions_refuse():
    for divide in (logical_divide, zipped_divide, tiled_divide, flat_divide):
        with pytest.raises(LayoutError, match="more than 2 modes"):
            divide(GRID, (3, 4, 5))
        with pytest.raises(LayoutError, match="tiler is a layout"):
            divide(GRID, "3")
        with pytest.raises(LayoutError):
            divide(Layout((6, 3), (8, 2)), 4)
        with pytest.raises(LayoutError, match="expected a layout"):
            divide((4, 4), 2)
    with pytest.raises(LayoutError, match="complement"):
        # published rules: a result of 8 of the 12 elements
        logical_divide(Layout(12), Layout((2, 2), (1, 3)))


def test_every_division_is_the_tile_and_all_elements_once():
    """For all small modes and one-to-one tilers: refused, or mode 0 is the tiler's elements and
    every element is there once."""
    divided = 0
    for shape in [(12,), (6, 4), (4, 2, 3)]:
        plain = layout(shape, tuple(1000 ** i for i in range(len(shape))))
        for rank in (1, 2):
            for s, d in itertools.product(itertools.product((2, 3, 4), repeat=rank),
                                          itertools.product((1, 2, 3, 4, 6, 8), repeat=rank)):
                tiler = layout(s, d)
                if len(set(values(tiler))) < size(tiler) or cosize(tiler) > size(plain):
                    continue
                try:
                    result = logical_divide(plain, tiler)
                except LayoutError:
                    continue
                divided += 1
                assert values(result[0]) == [plain(i) for i in values(tiler)]
                elements = values(result)
                assert set(values(plain)) <= set(elements) and len(set(elements)) == len(elements)
    assert divided > 50


@pytest.mark.parametrize("extent, tile", [(1, 4), (3, 4), (4, 4), (5, 4), (1000, 128), (0, 8),
                                          (7, 1)])
def test_rounding_up_is_predicated_by_an_identity_layout(extent, tile):
    data, identity = Layout((extent, 2), (3, 3000)), make_identity_layout((extent, 2))
    divided, coords = logical_divide(data, (tile,)), logical_divide(identity, (tile,))
    assert size(divided, 0, 1) == ceil_div(extent, tile)
    seen = [(coords(i), divided(i)) for i in range(size(divided))]
    inside = {c: v for c, v in seen if c[0] < extent}
    assert inside == {(i, j): 3 * i + 3000 * j for i in range(extent) for j in range(2)}
    assert len(seen) == ceil_div(extent, tile) * tile * 2


def test_symbolic_extents_round_up():
    m, ld = Var("M"), Var("ld")
    result = zipped_divide(Layout((m, 100), (1, ld)), (128, 8))
    assert result == Layout(((128, 8), (ceil_div(m, 128), 13)), ((1, ld), (128, 8 * ld)))
    assert evaluate(result.shape[1][0], {"M": 129}) == 2


@pytest.mark.parametrize("block, tiler, result", [
    ("(2,2):(4,1)", "6:1", "((2,2),(2,3)):((4,1),(2,8))"),
    ("(2,2):(4,1)", "(4,2):(2,1)", "((2,2),(4,2)):((4,1),(8,2))"),
    ("(2,2):(4,1)", "(3,2):(2,1)", "((2,2),(3,2)):((4,1),(8,2))"),
    ("4:1", "6:1", "(4,6):(1,4)"),
    ("4:0", "3:1", "(4,3):(0,1)")])
def test_logical_product_examples(block, tiler, result):
    assert str(logical_product(PARSE(block), PARSE(tiler))) == result


def test_products_of_the_documents():
    block, tiler = PARSE("(2,5):(5,1)"), (Layout(3, 5), Layout(4, 6))
    assert str(logical_product(block, tiler)) == "((2,3),(5,4)):((5,10),(1,30))"
    assert str(zipped_product(block, tiler)) == "((2,5),(3,4)):((5,1),(10,30))"
    assert str(tiled_product(block, tiler)) == "((2,5),3,4):((5,1),10,30)"
    assert str(flat_product(block, tiler)) == "(2,5,3,4):(5,1,10,30)"
    assert str(blocked_product(block, PARSE("(3,4):(1,3)"))) == "((2,3),(5,4)):((5,10),(1,30))"
    assert str(raked_product(block, PARSE("(3,4):(1,3)"))) == "((3,2),(4,5)):((10,5),(30,1))"


def test_an_integer_is_a_tiler_of_products():
    assert logical_product(Layout(4), 6) == logical_product(Layout(4),
                                                            Layout(6)) == Layout((4, 6), (1, 4))


def test_products_keep_the_block_and_do_not_overlap():
    rng = random.Random(5)
    made = 0
    for _i in range(600):
        block = layout(*[tuple(rng.choice(c) for _j in range(2))
                         for c in ((1, 2, 3, 4), (1, 2, 3, 4, 8))])
        tiler = layout(*[tuple(rng.choice(c) for _j in range(2))
                         for c in ((1, 2, 3), (1, 2, 3, 4))])
        try:
            result = logical_product(block, tiler)
        except LayoutError:
            continue
        made += 1
        assert values(result[0]) == values(block)
        copies = {v: {v + x for x in values(block)} for v in values(result[1])}
        assert sum(map(len, copies.values())) == len(set().union(*copies.values()))
        starts, arranged = values(result[1]), values(tiler)
        assert [v == w for v in starts for w in starts] == [v == w for v in arranged
                                                            for w in arranged]
        blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
        assert sorted(values(blocked)) == sorted(values(raked)) == sorted(values(result))
        assert coalesce(make_layout(*(m[0] for m in blocked))) == coalesce(block)
    assert made > 100


def test_ranked_products_pad_the_smaller_rank():
    assert str(blocked_product(Layout(4), Layout((2, 3)))) == "((4,2),(1,3)):((1,4),(0,8))"
    assert str(raked_product(Layout((2, 2)), 3)) == "((3,2),(1,2)):((4,1),(0,2))"
    assert append(Layout(4), 2) == Layout((4, 1), (1, 0))
    with pytest.raises(LayoutError, match="layout or an integer"):
        blocked_product(Layout(4), (2, 3))


def test_products_refuse():
    with pytest.raises(LayoutError, match="the block of a product is a layout"):
        logical_product((4, 4), 2)
    with pytest.raises(LayoutError, match="more than 1 modes"):
        logical_product(Layout(4), (2, 2))
    with pytest.raises(LayoutError, match="complement"):
        logical_product(Layout((2, 2), (1, 3)), 4)


def test_tile_to_shape():
    a = tile_to_shape(Layout((8, 8), (8, 1)), (16, 24))
    assert product_each(a.shape) == (16, 24) and sorted(values(a)) == list(range(16 * 24))
    assert str(a) == "((8,2),(8,3)):((8,64),(1,128))"
    assert str(tile_to_shape(Layout((8, 8), (8, 1)), (16, 24),
                             (2, 1))) == "((8,2),(8,3)):((8,192),(1,64))"
    assert str(tile_to_shape(Layout((4, 2)),
                             (8, 2, 3))) == "((4,2),(2,1),(1,3)):((1,8),(4,0),(0,16))"
    with pytest.raises(LayoutError, match="mode 1: 20 is not a multiple of 8"):
        tile_to_shape(Layout((8, 8)), (16, 20))
    with pytest.raises(LayoutError, match="fewer modes"):
        tile_to_shape(Layout((8, 8)), (16,))


def test_zipped_divide_begins_with_the_composition():
    for tiler in [(3, 8), TILER, (Layout(3, 1), Layout(4, 2))]:
        assert values(zipped_divide(GRID, tiler)[0]) == values(composition(GRID, tiler))


# -- thread-value layouts --------------------------------------------------------------------------
@pytest.mark.parametrize("threads, values_, tile, tv", [
    ("(4,2):(2,1)", "(1,4)", (4, 8), "((2,4),4):((16,1),4)"),
    ("(32,8)", "(4,1)", (128, 8), "(256,4):(4,1)"),
    ("(2,(2,2)):(1,(4,2))", "(2,2):(2,1)", (4, 8), None),
    ("8", "2", (16,), "(8,2):(2,1)")])
def test_thread_value_layouts(threads, values_, tile, tv):
    threads, values_ = Layout.parse(threads), Layout.parse(values_)
    extents, layout_tv = make_layout_tv(threads, values_)
    assert extents == tile and (tv is None or str(layout_tv) == tv)
    whole = Layout(extents)
    for t, v in itertools.product(range(size(threads)), range(size(values_))):
        corner, inside = wrap(get_flat_coord(threads, t)), wrap(get_flat_coord(values_, v))
        where = [
            c * size(values_, i) + w for i, (c, w) in enumerate(zip(corner, inside, strict=True))
        ]
        assert layout_tv(t, v) == whole(tuple(where))


def test_thread_value_layouts_that_are_refused():
    with pytest.raises(LayoutError, match="the layout of the threads is not one to one"):
        make_layout_tv(Layout(4, 2), Layout(4))
    with pytest.raises(LayoutError, match="the layout of the values is not one to one"):
        make_layout_tv(Layout(4), Layout((2, 2), (1, 0)))


# -- tilers as layouts -----------------------------------------------------------------------------
def test_a_tiler_by_modes_is_one_layout():
    assert str(tiler_to_layout((4, 5))) == "(4,5):(1@0,1@1)"
    assert str(tiler_to_layout((Layout(4, 2), Layout(5, 3)))) == "(4,5):(2@0,3@1)"
    assert str(tiler_to_layout((4, (Layout((2, 3), (E(1), E(0))),
                                    5)))) == "(4,((2,3),5)):(1@0,((1@1@0@1,1@0@0@1),1@1@1))"
    a = Layout((12, (4, 8), 5), (59, (13, 1), 1000))
    assert str(tiler_to_layout((None, (2, None)), a)) == "(12,(2,8)):(1@0,(1@0@1,1@1@1))"
    assert tiler_to_layout(7) == Layout(7) and tiler_to_layout(Layout(4, 2)) == Layout(4, 2)
    with pytest.raises(LayoutError, match=r"a whole mode \(None\) needs the layout"):
        tiler_to_layout((None, 4))
    with pytest.raises(LayoutError, match="more than 3 modes"):
        tiler_to_layout((1, 2, 3, 4), a)
    with pytest.raises(LayoutError, match="a tiler is a layout"):
        tiler_to_layout(("x",))


def test_composition_by_modes_is_composition_with_that_layout():
    a = Layout((12, (4, 8), 5), (59, (13, 1), 1000))
    for tiler in [(3, 8), (Layout(3, 4), Layout((2, 4), (1, 8))), (None, (2, None)),
                  (Layout((2, 3), (6, 1)), None, 5), (1, 1)]:
        both = composition(a, tiler)
        assert both == composition(a, tiler_to_layout(tiler, a))
        modes = [composition(mode, t) for mode, t in zip(a, tiler, strict=False)]
        assert values(both) == values(make_layout(*modes)) and both.rank == len(tiler)


def test_with_shape():
    a = Layout((4, 6), (6, 1))
    assert values(with_shape(a, (2, 12))) == values(a) and with_shape(a, (2, 12)).rank == 2
    assert values(with_shape(a, 8)) == values(a)[:8]
    with pytest.raises(LayoutError, match="layout has 24"):
        with_shape(a, 25)


# -- products of swizzled blocks -------------------------------------------------------------------
def test_products_of_swizzled_blocks():
    """A block that fills whole periods of its swizzle is repeated as it is."""
    atom = ComposedLayout(Swizzle(2, 0, 2), 0, Layout((4, 4), (4, 1)))
    copies = Layout((2, 3), (3, 1))
    pairs = logical_product(atom, copies)
    whole = blocked_product(atom, copies)
    assert isinstance(pairs, ComposedLayout) and whole.shape == ((4, 2), (4, 3))
    for i, j, a, b in itertools.product(range(4), range(4), range(2), range(3)):
        assert pairs((i, j), (a, b)) == whole((i, a), (j, b)) == atom(i, j) + 16 * copies(a, b)
    assert raked_product(atom, copies).inner == raked_product(atom.inner, copies)
    assert str(flat_product(atom, copies)) == "S<2,0,2> o 0 o (4,4,2,3):(4,1,48,16)"
