"""Atoms of copies: what they write, and what they refuse."""

import pytest

from cuteblas.codegen.builder import Guard, KernelBuilder
from cuteblas.codegen.copies import CpAsync, Ldmatrix, StoreAsync, Vector
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mbarrier import Mbarriers
from cuteblas.codegen.swizzled import operand_layout
from cuteblas.codegen.tma import TmaBox, TmaLoad, TmaStore
from cuteblas.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    _,
    local_tile,
    make_identity_tensor,
)
from cuteblas.layout.symbolic import evaluate


@pytest.fixture
def k():
    return KernelBuilder("probe", 32, arch="sm_90", cluster=2)


def last(k):
    """The statement written last."""
    return k.build().body.splitlines()[-2].strip()


def places(k, element="float32", shape=(4,)):
    """The same tensor in global memory, shared memory and registers."""
    layout = Layout(shape)
    return Tensor(k.pointer("g", element, const=False), layout), k.shared("s", element, layout), k.registers("r", element, layout)


def test_atoms_say_by_which_instruction(k):
    g, s, r = places(k)
    for atom, source, target, call in ((Vector(4), g, r, "load_global<4>(&r[0], &g[0])"),
                                       (Vector(4), r, g, "store_global<4>(&g[0], &r[0])"),
                                       (Vector(4), s, r, "load_shared<4>(&r[0], &s[0])"),
                                       (Vector(4), r, s, "store_shared<4>(&s[0], &r[0])"),
                                       (CpAsync(4), g, s, "cp_async<4>(&s[0], &g[0], true)")):
        k.copy(atom, source, target)
        assert last(k) == f"cb::{call};"


@pytest.mark.parametrize("atom, way", [(Vector(4), "gs"), (Vector(4), "sg"), (Vector(4), "rr"),
                                       (CpAsync(4), "gr"), (CpAsync(4), "sg"), (CpAsync(4), "rs")])
def test_an_atom_copies_between_its_own_memories(k, atom, way):
    memory = dict(zip("gsr", places(k), strict=True))
    with pytest.raises(CodegenError, match="the atom copies"):
        k.copy(atom, memory[way[0]], memory[way[1]])


@pytest.mark.parametrize("width", [0, 3, 12, 32, -1])
def test_vectors_that_do_not_exist(width):
    for atom in (Vector, CpAsync):
        with pytest.raises(CodegenError, match=f"1, 2, 4, 8 or 16 elements, got {width}"):
            atom(width)


def test_a_predicate_of_each_vector(k):
    n = k.integer("n", multiple=4)
    g, s, r = places(k, shape=(4, 2))
    exists = Guard(make_identity_tensor((4, 2)), (n, None))
    k.copy(Vector(4), g, r, guard=exists, when=k.thread < 7)
    assert "cb::load_global<4>(&r[j * 4], &g[j * 4], tid < 7 && 0 < n);" in k.build().body
    k.copy(CpAsync(4), g, s, guard=exists)
    assert "cb::cp_async<4>(&s[j * 4], &g[j * 4], 0 < n);" in k.build().body


def test_matrices_come_by_rows_of_16_bytes(k):
    s, r = k.shared("s", "float16", Layout((8, 2))), k.registers("r", "b32", Layout((4, 2)))
    k.copy(Ldmatrix(), s, r)
    assert "cb::ldmatrix_x4(&r[i * 4], &s[i * 8]);" in k.build().body
    k.copy(Ldmatrix(transposed=True), s, r)
    assert "cb::ldmatrix_x4_trans(&r[i * 4], &s[i * 8]);" in k.build().body
    with pytest.raises(CodegenError, match="rows of 16 bytes into 4 registers"):
        k.copy(Ldmatrix(), k.shared("t", "float16", Layout((4, 2))), r)
    with pytest.raises(CodegenError, match="not contiguous"):
        k.copy(Ldmatrix(), k.shared("u", "float16", Layout((8, 2), (2, 16))), r)


def test_a_word_for_another_block_lies_there_as_it_would_here(k):
    words, came = k.shared("words", "float32", Layout((8, 2))), Mbarriers(k, "came", 1, arrivals=1)
    rank, x = k.let("rank", k.block_index("block", "x") % 2), k.registers("x", "float32", Layout(1))
    word = Tensor(words.engine, Layout((1, 8, 2), (0, 1, 8)))[_, 3, rank]
    k.copy(StoreAsync(1 - rank, came.at(0)), x, word)
    assert "cb::store_async(&words[rank * 8 + 3], x[0], -rank + 1, &came[0]);" in k.build().body
    for source, target in ((x, words[_, 0]), (x, x), (word, word),
                           (k.registers("two", "float32", Layout(2)), word)):
        with pytest.raises(CodegenError, match=r"StoreAsync stores one word|words of 4 bytes are "
                                               "copied from rmem to smem"):
            k.copy(StoreAsync(1, came.at(0)), source, target)


def test_atoms_without_predicates_refuse_them(k):
    bar = Mbarriers(k, "bar", 1, arrivals=1).at(0)
    box = TmaBox("float32", ComposedLayout(Swizzle(0, 0, 0), 0, Layout((32, 8))))
    tile, name = k.shared("tile", "float32", box.layout), k.tensor_map("map")
    coordinates = local_tile(make_identity_tensor((64, 64)), (32, 8), (0, 0))
    word, x = k.shared("w", "float32", Layout(1)), k.registers("x", "float32", Layout(1))
    for atom, source, target in ((TmaLoad(name, box, bar), coordinates, tile),
                                 (TmaStore(name, box), tile, coordinates),
                                 (StoreAsync(1, bar), x, word)):
        k.copy(atom, source, target)
        with pytest.raises(CodegenError, match=f"{type(atom).__name__} takes no predicates"):
            k.copy(atom, source, target, when=k.thread < 3)


def test_a_box_fills_the_whole_tile(k):
    bar = Mbarriers(k, "bar", 1, arrivals=1).at(0)
    box = TmaBox("float16", operand_layout(128, 64, "float16", True))
    tile = k.shared("tile", "float16", operand_layout(64, 64, "float16", True))
    with pytest.raises(CodegenError, match="tiles of 16384 bytes"):
        k.copy(TmaLoad(k.tensor_map("map"), box, bar),
               local_tile(make_identity_tensor((256, 64)), (128, 64), (0, 0)), tile)


def test_an_element_is_a_tensor_of_one(k):
    g, s, r = places(k, shape=(4, 8))
    k.copy(Vector(1), s(3, k.thread), r(1, 0))
    with pytest.raises(CodegenError, match="extents differ"):
        k.copy(Vector(1), s(3, 0), r)
    k.copy(Vector(1), r(1, 0), k.let("place", g(k.thread, 2)))
    assert [line.strip() for line in k.build().body.splitlines()[-4:-1]] == [
        "cb::load_shared<1>(&r[1], &s[tid * 4 + 3]);",
        "int const place = tid + 8;",
        "cb::store_global<1>(&g[place], &r[1]);"
    ]


def test_words_that_cover_a_run_which_begins_anywhere(k):
    """Two aligned words cover a word of four elements; places are counted from the first word, not
    from the array's address."""
    S = Tensor(k.pointer("S", "b8", alignment=1), Layout((100, 9), (1, 102)))
    lines = k.lines("words", S.engine, "b32", 16, spanned=True)
    assert [q.name for q in k.build().params] == ["S", "S_lowest", "S_end"]
    place = lines.place(S(k.thread, 2))
    at = {"words_before": 13, "tid": 5, "S_lowest": -3, "S_end": 1000}
    start = 13 + 5 + 2 * 102
    assert [evaluate(lines.run(place, 2)(n).index, at) for n in range(2)] == [
        start // 4,
        start // 4 + 1
    ]
    assert evaluate(lines.bits(place), at) == 8 * (start % 4)
    assert evaluate(lines.run(place, 4, whole=4)(0).index, at) == start // 16 * 4
    k.copy(Vector(4), lines.run(place, 4, whole=4), k.registers("r", "b32", Layout(4)))
    with pytest.raises(CodegenError, match="not provably aligned"):
        k.copy(Vector(4), lines.run(place, 4), k.registers("q", "b32", Layout(4)))


def test_covering_words_are_memory_of_the_array(k):
    S = Tensor(k.pointer("S", "b16", alignment=2), Layout(100))
    rows = S(k.thread), S(k.thread + 7)
    covered = k.lines("words", S.engine, "b32", 4, spanned=True).covered(rows, 5)
    assert covered.c == "tid >= S_lowest + 1 && tid + 14 <= S_end"
    with pytest.raises(CodegenError, match="no parameters for the bounds"):
        k.lines("others", S.engine, "b32", 4).covered(rows, 5)
