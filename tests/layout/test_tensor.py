"""Tensors: every tensor that the documents print, tiles and partitions, predicates."""

import itertools

import pytest

from cuteblas.layout import (
    ArithTuple,
    E,
    Layout,
    LayoutError,
    Swizzle,
    Tensor,
    Var,
    _,
    composition,
    counting_iterator,
    domain_offset,
    elem_leq,
    elem_less,
    get_flat_coord,
    local_partition,
    local_tile,
    logical_product,
    make_identity_tensor,
    make_layout,
    make_tensor,
    make_tma_tensor,
    outer_partition,
    product_each,
    size,
    tensor_table,
    tiled_divide,
    zipped_divide,
)
from cuteblas.layout.symbolic import evaluate


class Memory:
    """A pointer into nothing: elements say where they are."""

    def __init__(self, offset=0):
        self.offset = offset

    def __add__(self, offset):
        return Memory(self.offset + offset)

    def __getitem__(self, offset):
        return ("element", self.offset + offset)


# -- CuTe's text on TMA tensors --------------------------------------------------------------------
def test_counting_tensor():
    assert tensor_table(make_tensor(counting_iterator(42), (4, 5))) == "\n".join([
        "counting_iter(42) o (4,5):(1,4):",
        "   42   46   50   54   58",
        "   43   47   51   55   59",
        "   44   48   52   56   60",
        "   45   49   53   57   61"])


def test_coordinate_tensors():
    a = make_tensor(counting_iterator((0, 0)), (4, 5), (E(0), E(1)))
    assert tensor_table(a) == "\n".join([
        "ArithTuple(0,0) o (4,5):(1@0,1@1):",
        "  (0,0)  (0,1)  (0,2)  (0,3)  (0,4)",
        "  (1,0)  (1,1)  (1,2)  (1,3)  (1,4)",
        "  (2,0)  (2,1)  (2,2)  (2,3)  (2,4)",
        "  (3,0)  (3,1)  (3,2)  (3,3)  (3,4)"])
    b = make_tensor(counting_iterator((0, 0)), (4, 5), (E(1), E(0)))
    assert tensor_table(b) == "\n".join([
        "ArithTuple(0,0) o (4,5):(1@1,1@0):",
        "  (0,0)  (1,0)  (2,0)  (3,0)  (4,0)",
        "  (0,1)  (1,1)  (2,1)  (3,1)  (4,1)",
        "  (0,2)  (1,2)  (2,2)  (3,2)  (4,2)",
        "  (0,3)  (1,3)  (2,3)  (3,3)  (4,3)"])


def test_coordinate_iterators_add():
    iterator = counting_iterator((42, 2, 7)) + ArithTuple(0, 5, 2)
    assert iterator[ArithTuple()] == (42, 7, 9) and str(iterator) == "ArithTuple(42,7,9)"


def test_the_tensor_that_the_text_opens_with():
    t = make_tensor(counting_iterator((0, 0, 0, 0)),
                    Layout.parse("((_128,_64),2,3,1):((_1@0,_1@1),_64@1,_1@2,_1@3)"))
    assert str(t) == "ArithTuple(0,0,0,0) o ((128,64),2,3,1):((1@0,1@1),64@1,1@2,1@3)"
    assert t[(5, 7), 1, 2, 0] == (5, 71, 2, 0)
    assert str(t[_, 1, _, 0]) == "ArithTuple(0,64,0,0) o ((128,64),3):((1@0,1@1),1@2)"


# -- CuTe's text on GEMM ---------------------------------------------------------------------------
BLOCK = (128, 128, 8)


def test_tiles_of_the_gemm_text():
    m_a = make_tensor(counting_iterator(0), (5120, 4096), (1, 5120))
    m_c = make_tensor(counting_iterator(0), (5120, 5120), (1, 5120))
    coord = (Var("bx"), Var("by"), _)
    g_a, g_b, g_c = (local_tile(m_a, BLOCK, coord, (1, _, 1)),
                     local_tile(m_a, BLOCK, coord, (_, 1, 1)),
                     local_tile(m_c, BLOCK, coord, (1, 1, _)))
    assert str(g_a.layout) == str(g_b.layout) == "(128,8,512):(1,5120,40960)" and str(g_c.layout) == "(128,128):(1,5120)"
    assert [str(t.engine.start) for t in (g_a, g_b, g_c)] == ["bx * 128", "by * 128",
                                                              "bx * 128 + by * 655360"]
    assert str(make_layout(BLOCK[::2])) == "(128,8):(1,128)"


def test_tiles_with_symbolic_extents():
    m, k, ld, bx = Var("M"), Var("K"), Var("ldA"), Var("bx")
    tile = local_tile(make_tensor(Memory(), (m, k), (1, ld)), (128, 8), (bx, _))
    assert tile.layout == Layout((128, 8, (k + 7) // 8),
                                 (1, ld, 8 * ld)) and tile.engine.offset == bx * 128
    where = tile[3, 5, 2][1]
    assert evaluate(where, {"bx": 4, "ldA": 1000, "M": 1, "K": 1}) == 4 * 128 + 3 + 1000 * (5 + 16)


@pytest.mark.parametrize("threads, index, tile",
                         [(Layout((32, 8)), 37, (5, 1)), (Layout((32, 8), (8, 1)), 37, (4, 5)),
                          (Layout((16, 16)), 200, (8, 12)),
                          (Layout(((2, 4), 8), ((1, 16), 2)), 37, (5, 2)),
                          (Layout(((4, 1), (2, 4)), ((2, 0), (1, 8))), 21, (2, 5))])
def test_partitions_give_each_thread_its_elements(threads, index, tile):
    shape = product_each(threads.shape)
    data = make_tensor(Memory(), (2 * shape[0], 3 * shape[1]), (1, 1000))
    part = local_partition(data, threads, index)
    assert part.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        assert part[i, j] == data[tile[0] + i * shape[0], tile[1] + j * shape[1]]
    assert get_flat_coord(threads, index) == tile and threads(*tile) == index


@pytest.mark.parametrize("threads", ["(32,8)", "(32,8):(8,1)", "((2,4),8):((1,16),2)",
                                     "(4,1,2):(2,0,1)"])
def test_get_flat_coord_inverts_for_every_thread(threads):
    layout = Layout.parse(threads)
    t = Var("t", 0, size(layout) - 1)
    symbolic = get_flat_coord(layout, t)
    for i in range(size(layout)):
        coord = get_flat_coord(layout, i)
        assert layout(*coord) == i and tuple(evaluate(c, {"t": i}) for c in symbolic) == coord
    assert get_flat_coord(Layout(8), 5) == 5


@pytest.mark.parametrize("threads", ["8:2", "(4,4):(1,2)", "(4,2):(1,0)", "(4,4):(1,1)"])
def test_thread_layouts_that_are_not_one_to_one_are_refused(threads):
    with pytest.raises(LayoutError, match="not one to one"):
        get_flat_coord(Layout.parse(threads), 1)


def test_projected_partition():
    data = make_tensor(Memory(), (64, 16), (1, 64))
    part = local_partition(data, Layout((32, 4, 2), (8, 2, 1)), 21, (1, _, 1))
    assert part.shape == (2, 8) and part[1, 3] == data[2 + 32, 1 + 2 * 3]
    with pytest.raises(LayoutError, match="projection"):
        local_tile(data, (4, 4), (0, 0), (1, 1, 1))


# -- predicates ------------------------------------------------------------------------------------
def test_identity_tensors_are_tiled_like_the_data():
    assert str(local_tile(make_identity_tensor((5, 7)), (2, 4),
                          (2, 1))) == "ArithTuple(4,4) o (2,4):(1@0,1@1)"
    assert make_identity_tensor((2, (3, 4)))[1, (2, 3)] == (1,
                                                            (2,
                                                             3)) and make_identity_tensor(5)[3] == 3


@pytest.mark.parametrize("shape, tile, threads",
                         [((5, 7), (2, 4), Layout(2)), ((13, 9), (8, 4), Layout((4, 2))),
                          ((1, 1), (4, 4), Layout((2, 2)))])
def test_predicated_partition_covers_every_element_once(shape, tile, threads):
    threads = threads if threads.rank == 2 else Layout((threads.shape, 1))
    data, coords = make_tensor(Memory(), shape, (1, 100)), make_identity_tensor(shape)
    grid = zipped_divide(data, tile).shape[1]
    seen = []
    for bx, by, t in itertools.product(range(grid[0]), range(grid[1]), range(size(threads))):
        mine, where = (local_partition(local_tile(x, tile, (bx, by)), threads, t)
                       for x in (data, coords))
        for i in range(size(mine)):
            if elem_less(where[i], shape):
                seen.append(where[i])
                assert mine[i] == data[tuple(where[i])]
    assert sorted(seen) == sorted(itertools.product(*map(range, shape)))


def test_predicates_are_expressions_unless_they_are_certain():
    m, i = Var("M"), Var("i", 0, 7)
    assert str(elem_less((i, 3), (m, 5))) == "i < M" and elem_less((i, 3), (8, 4)) is True and elem_less((i, 4), (8, 4)) is False
    assert evaluate(elem_leq((i,), (m,)), {"i": 3, "M": 3}) == 1 and elem_leq(3, 2) is False
    with pytest.raises(LayoutError, match="do not match"):
        elem_less((1, 2), (3, 4, 5))


# -- tensors as objects ----------------------------------------------------------------------------
def test_access_and_slices():
    t = make_tensor(Memory(7), (4, (2, 3)), (1, (100, 1000)))
    assert t[1, (1, 2)] == t(1, (1, 2)) == t[1, 5] == t[21] == ("element", 7 + 2101)
    assert t[_, (1, 2)].layout == Layout((4,), (1,)) and t[_, (1, 2)][1] == t[1, (1, 2)] and t(_, 0).engine is t.engine
    assert (t.rank, len(t), t.shape, t.stride, size(t)) == (2, 2, (4, (2, 3)), (1, (100, 1000)), 24)
    assert list(make_tensor(counting_iterator(3), 4)) == [3, 4, 5, 6]
    with pytest.raises(LayoutError, match="outside"):
        t[4, 0]
    with pytest.raises(LayoutError, match="cannot be listed"):
        list(make_tensor(Memory(), Var("M")))


def test_dots_leave_all_modes_before_free():
    t = make_tensor(counting_iterator(7), (2, (3, 2), 5))
    assert list(t[..., 4]) == list(t[None, None, 4]) and list(t[..., 1, 4]) == list(t[None, 1, 4])
    assert t[..., 1, 1, 4] == t[1, 1, 4] and list(t[...,]) == list(t)
    with pytest.raises(LayoutError):
        t[1, ..., 4]


def test_the_document_on_transposes():
    """tiled_divide and two block coordinates give the (TileY, TileX) tile of a block."""
    t = tiled_divide(make_tensor(counting_iterator(0), (128, 192), (192, 1)), (32, 64))
    assert str(t.layout) == "((32,64),4,3):((192,1),6144,64)"
    assert str(t[(_, _), 2, 1]) == "counting_iter(12352) o (32,64):(192,1)"
    a, tile = Layout((8, 4), (4, 1)), Layout((4, 2), (2, 1))
    assert str(tiled_divide(a, tile.shape)) == "((4,2),2,2):((4,1),16,2)"
    outer = outer_partition(make_tensor(counting_iterator(0), a), tile.shape, (1, 1))
    assert str(outer) == "counting_iter(5) o (2,2):(16,2)"


def test_algebra_acts_on_the_layout():
    t = make_tensor(counting_iterator(5), (8, 4))
    assert composition(t, (2, 2)) == Tensor(counting_iterator(5), Layout((2, 2), (1, 8)))
    with pytest.raises(LayoutError, match="the block of a product is a layout"):
        logical_product(t, 2)


def test_domain_offset():
    t = make_tensor(counting_iterator(0), (8, (4, 2)), (1, (8, 64)))
    assert domain_offset((2, (1, 1)), t)[1, 0] == t[3, (1, 1)] and domain_offset((-1, (0, 0)), t)[1, 0] == 0
    swizzled = make_tensor(counting_iterator(0),
                           composition(Swizzle(2, 0, 3), Layout((8, 8), (8, 1))))
    moved = domain_offset((1, 2), swizzled)
    assert all(moved[i, j] == swizzled[i + 1, j + 2] for i in range(7) for j in range(6))
    i = make_identity_tensor((8, 8))
    assert domain_offset((2, -3), i)[1, 1] == (3, -2)
    with pytest.raises(LayoutError, match="does not fit"):
        domain_offset((1, 2, 3), t)


def test_make_tensor_refuses_two_strides():
    with pytest.raises(LayoutError, match="already has strides"):
        make_tensor(Memory(), Layout(4), 1)


def test_offsets_of_zero_keep_the_engine():
    engine = Memory()
    assert make_tensor(engine, (4, 4))[_, 0].engine is engine
    assert isinstance(make_tensor(engine, (4, 4))[_, 1], Tensor)


# -- tensors of TMA coordinates --------------------------------------------------------------------
@pytest.mark.parametrize("text, result", [
    ("(4,5):(1,4)", "ArithTuple(0,0) o (4,5):(1@0,1@1)"),                   # the seed's two tensors
    ("(4,5):(5,1)", "ArithTuple(0,0) o (4,5):(1@1,1@0)"),
    ("(M,K,L):(1,ldA,batch)", "ArithTuple(0,0,0) o (M,K,L):(1@0,1@1,1@2)"),
    ("(4,8,1,3):(8,1,7,0)", "ArithTuple(0,0) o (4,8,1,3):(1@1,1@0,0,0)"),
    ("((8,2),(3,2)):((1,8),(100,16))", "ArithTuple(0,0,0) o ((8,2),(3,2)):((1@0,8@0),(1@2,1@1))")])
def test_tma_tensors(text, result):
    assert str(make_tma_tensor(Layout.parse(text))) == result


def test_tma_coordinates_address_the_elements():
    """Coordinate times stride of its dimension is the address of the element."""
    a = Layout(((8, 2), (3, 2), 4), ((1, 8), (100, 16), 1000))
    strides, coords = (1, 16, 100, 1000), make_tma_tensor(make_tensor(counting_iterator(0), a))
    for i in range(size(a)):
        assert sum(c * d for c, d in zip(coords[i], strides, strict=True)) == a(i)


def test_tma_tensors_are_tiled_like_data():
    whole = make_tma_tensor(Layout((256, 192, 3), (192, 1, 256 * 192)))
    tile = local_tile(whole, (128, 64), (1, _, 0))
    assert str(tile) == "ArithTuple(0,128,0) o (128,64,3):(1@1,1@0,64@0)" and tile[5, 7, 2] == (
        7 + 128,
        128 + 5,
        0
    )


@pytest.mark.parametrize("bad", ["(4,5):(2,8)", "(4,5):(1,-4)",
                                 "(2,2,2,2,2,2):(1,4,16,64,256,1024)", "(4,5):(1@0,1@1)"])
def test_tma_tensors_that_are_refused(bad):
    with pytest.raises(LayoutError, match="make_tma_tensor"):
        make_tma_tensor(Layout.parse(bad))
