"""Tiled copies and multiplications: partitions against brute force over every thread and value."""

import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.tiled import TiledCopy, TiledMma, raked_tv
from cuteblas.layout import CountingIterator, Layout, Tensor, Var, make_identity_tensor, rank, size
from cuteblas.layout.symbolic import evaluate

COPIES = [(Layout((32, 8)), (4, 1)), (Layout((8, 32), (32, 1)), (1, 2)),
          (Layout(((4, 2), 8), ((1, 32), 4)), (2, 3)), (Layout((1, 16)), (8, 1))]


@pytest.mark.parametrize("threads, values", COPIES, ids=str)
def test_a_thread_owns_a_dense_block(threads, values):
    """Value v of thread t is at v + values * t in each mode."""
    tv, tile = raked_tv(threads, values)
    for tm in range(size(threads[0])):
        for tn in range(size(threads[1])):
            for vm in range(values[0]):
                for vn in range(values[1]):
                    position = tv(threads(tm, tn), vm + values[0] * vn)
                    assert position == (vm + values[0] * tm) + tile[0] * (vn + values[1] * tn)


@pytest.mark.parametrize("threads, values", COPIES, ids=str)
def test_partitions_cover_every_element_once(threads, values):
    copy = TiledCopy(threads, values)
    shape = (2 * copy.tile[0], 3 * copy.tile[1])
    tensor = Tensor(CountingIterator(0), Layout(shape, (7, 10_000)))
    seen = [part(v, i, j) for t in range(size(threads)) for part in [copy.partition(tensor, t)]
            for v in range(size(part.layout[0])) for i in range(2) for j in range(3)]
    assert sorted(seen) == sorted(7 * i + 10_000 * j for i in range(shape[0])
                                  for j in range(shape[1]))


def test_a_symbolic_thread_gives_the_same_offsets():
    copy = TiledCopy(Layout((8, 4), (4, 1)), (2, 1))
    tensor = Tensor(CountingIterator(0), Layout((32, 8), (1, 40)))
    t = Var("t", 0, 31)
    symbolic = copy.partition(tensor, t)
    for thread in range(32):
        part = copy.partition(tensor, thread)
        for c in [(0, 0, 0), (1, 1, 1)]:
            assert evaluate(symbolic(*c), {"t": thread}) == part(*c)


def test_further_modes_come_along():
    copy = TiledCopy(Layout((8, 4)), (1, 1))
    part = copy.partition(Tensor(CountingIterator(0), Layout((16, 8, 5), (1, 16, 128))), 3)
    assert rank(part.layout) == 4 and [size(part.layout[i]) for i in range(4)] == [1, 2, 2, 5]


def test_the_identity_tensor_says_where_each_value_is():
    mma = TiledMma(Layout(((8, 2), (4, 2)), ((1, 32), (8, 64))), (4, 2))
    coordinates = make_identity_tensor((64, 64))
    for t in (0, 5, 37, 127):
        part_c = mma.partition_c(coordinates, t)
        for i in range(4):
            for j in range(2):
                for m in range(size(part_c.layout[1])):
                    for n in range(size(part_c.layout[2])):
                        row, column = part_c((i, j), m, n)
                        assert mma.partition_a(coordinates, t)(i, m, 9) == (row, 9)
                        assert mma.partition_b(coordinates, t)(j, n, 9) == (column, 9)


def test_every_element_of_c_has_one_owner():
    mma = TiledMma(Layout(((8, 2), (4, 2)), ((1, 32), (8, 64))), (4, 2))
    identity = make_identity_tensor(mma.tile)
    owners = [tuple(mma.partition_c(identity, t)((i, j), 0, 0)) for t in range(128)
              for i in range(4) for j in range(2)]
    assert sorted(owners) == sorted((m, n) for m in range(mma.tile[0]) for n in range(mma.tile[1]))


def test_threads_that_collide_are_refused():
    with pytest.raises(CodegenError, match="not a bijection"):
        TiledCopy(Layout((8, 4), (1, 4)), (1, 1))
    with pytest.raises(CodegenError, match="not a bijection"):
        TiledMma(Layout((8, 4), (2, 16)), (1, 1))


@pytest.mark.parametrize("threads, values", COPIES, ids=str)
def test_tiles_are_covered_by_whole_passes(threads, values):
    copy = TiledCopy(threads, values)
    assert copy.passes((copy.tile[0], 5 * copy.tile[1]), "A") == (1, 5)
    with pytest.raises(CodegenError, match="of A does not divide into"):
        copy.passes((copy.tile[0] + 1, copy.tile[1]), "A")
