"""Warp-level atoms and what follows from their layouts."""

from dataclasses import replace

import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.access import wavefronts
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mma import MMA_ATOMS, WarpMma, mma_atom, operand_tile
from cuteblas.layout import CountingIterator, Layout, Tensor, size

from .ptx_fragments import fragments

HALF = MMA_ATOMS[0]
BYTES = next(a for a in MMA_ATOMS if a.element == "int8")


def same(a, b):
    return size(a) == size(b) and all(a(i) == b(i) for i in range(size(a)))


def test_fragments_are_those_of_the_instruction_set():
    """The layouts of CuTe's mma_traits_sm80.hpp for 16x8x16 and 16x8x8 of float16, 16x8x32 of int8
    and 8x8x4 of float64."""
    assert same(HALF.tv_a, Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))))
    assert same(HALF.tv_b, Layout(((4, 8), (2, 2)), ((16, 1), (8, 64))))
    assert same(HALF.tv_c, Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))))
    shallow = mma_atom("float16", "sm_75")
    assert shallow.shape == (16, 8, 8) and same(shallow.tv_a,
                                                Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))))
    assert same(BYTES.tv_a, Layout(((4, 8), (4, 2, 2)), ((64, 1), (16, 8, 256))))
    assert same(BYTES.tv_b, Layout(((4, 8), (4, 2)), ((32, 1), (8, 128))))
    double = mma_atom("float64", "sm_80")
    assert same(double.tv_a, Layout((4, 8), (8, 1))) and same(double.tv_c,
                                                              Layout(((4, 8), 2), ((16, 1), 8)))


@pytest.mark.parametrize("atom", [a for a in MMA_ATOMS if not a.element.startswith("complex")],
                         ids=str)
def test_fragments_are_those_that_ptx_writes_down(atom):
    for tv, place in zip((atom.tv_a, atom.tv_b, atom.tv_c),
                         fragments(8 * dtype(atom.element).bytes, atom.shape), strict=True):
        held = [(lane, i) for lane in range(32) for i in range(size(tv[1]))]
        assert [tv(*x) for x in held] == [place(*x) for x in held]


def test_the_best_instruction_of_an_architecture():
    assert mma_atom("float16", "sm_70") is None and mma_atom("bfloat16", "sm_75") is None and mma_atom("float32", "sm_90") is None
    assert mma_atom("float16", "sm_90a").shape == mma_atom("float16", "sm_120").shape == (16, 8, 16)
    assert mma_atom("complex128", "sm_75") is None
    assert mma_atom("complex128", "sm_89").shape == (8, 8, 4) and mma_atom(
        "complex128", "sm_90"
    ).shape == (8, 8, 8)
    assert mma_atom("float64", "sm_89").shape == (8, 8, 4) and mma_atom(
        "float64", "sm_90"
    ).shape == (16, 8, 8)


def test_an_atom_checks_itself():
    with pytest.raises(CodegenError,
                       match=r"does not give each of the \(16, 16\) elements to one lane"):
        replace(HALF, tv_a=Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 64))))


@pytest.mark.parametrize("atom", MMA_ATOMS, ids=lambda a: f"{a.element}-{a.shape}")
def test_warps_cover_the_tile_and_share_operands(atom):
    """Every element of C belongs to one thread; the rows of A and columns of B that a thread holds
    are those of its part of C."""
    tiled = WarpMma(atom, (2, 3), (2, 2))
    (tile_m, tile_n), depth = tiled.tile, atom.shape[2]
    assert sorted(tiled.tv_c(i) for i in range(size(tiled.tv_c))) == list(range(tile_m * tile_n))
    numbers = CountingIterator(0)
    for warp in range(6):
        rows, columns, have_a, have_b = set(), set(), set(), set()
        for thread in range(32 * warp, 32 * warp + 32):
            part = tiled.partition_c(Tensor(numbers, Layout((tile_m, tile_n), (1, 1000))), thread)
            rows |= {x % 1000 for x in part}
            columns |= {x // 1000 for x in part}
            have_a |= set(tiled.partition_a(Tensor(numbers, Layout((tile_m, depth), (1, 1000))),
                                            thread))
            have_b |= set(tiled.partition_b(Tensor(numbers, Layout((tile_n, depth), (1, 1000))),
                                            thread))
        assert have_a == {m + 1000 * k for m in rows for k in range(depth)}
        assert have_b == {n + 1000 * k for n in columns for k in range(depth)}
        assert (len(rows), len(columns)) == tiled.warp_tile


@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("atom", [a for a in MMA_ATOMS if a.per_register > 1],
                         ids=lambda a: f"{a.element}-{a.shape}")
def test_ldmatrix_delivers_the_fragments(atom, mode, k_major):
    """What the instruction does with the addressed rows (PTX ISA, "ldmatrix") puts every value
    where the product expects it."""
    tiled = WarpMma(atom, (2, 2), (2, 4))
    rows, tv = tiled.matrices(mode, k_major), (tiled.tv_a, tiled.tv_b)[mode]
    packed = atom.per_register
    if packed == 4 and not k_major:
        assert rows is None
        return
    width = size(rows[1][0])
    for warp in range(4):
        for quadruple in range(size(rows[1][1])):
            for lane in range(32):
                for matrix in range(4):
                    for i in range(packed):
                        row, column = (lane // 4, packed * (lane % 4) + i) if k_major else (packed * (lane % 4) + i, lane // 4)
                        loaded = rows(32 * warp + 8 * matrix + row, column + width * quadruple)
                        assert loaded == tv(32 * warp + lane, i + packed * (matrix + 4 * quadruple))


def test_no_ldmatrix_for_64_bit_elements_and_broken_quadruples():
    assert WarpMma(mma_atom("float64", "sm_90"), (2, 2), (2, 2)).matrices(0, True) is None
    assert WarpMma(HALF, (2, 2), (1, 1)).matrices(1, True) is None


@pytest.mark.parametrize("element, depth, k_major",
                         [("float16", 16, True), ("float16", 32, True), ("float16", 64, True),
                          ("float16", 32, False), ("int8", 64, True), ("int8", 128, True)])
def test_eight_rows_meet_every_bank_once(element, depth, k_major):
    item = 1 if element == "int8" else 2
    tile = operand_tile(128, depth, element, k_major)
    assert sorted(tile(i) for i in range(size(tile))) == list(range(128 * depth))
    vector = 16 // item
    for chunk in range((depth if k_major else 128) // vector):
        rows = [tile(r, chunk * vector) if k_major else tile(chunk * vector, r) for r in range(8)]
        assert wavefronts([item * x for x in rows], 16) == (1, 1)


@pytest.mark.parametrize("k_major", [True, False])
def test_64_bit_fragments_meet_every_bank_once(k_major):
    tile = operand_tile(64, 16, "float64", k_major)
    lanes = [8 * tile(lane // 4, lane % 4) for lane in range(32)]
    assert wavefronts(lanes, 8) == (2, 2)


@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("depth", [4, 8, 16])
def test_128_bit_fragments_meet_every_bank_once(depth, k_major):
    tile = operand_tile(64, depth, "complex128", k_major)
    assert sorted(tile(i) for i in range(size(tile))) == list(range(64 * depth))
    for row in range(0, 64, 8):
        for k in range(0, depth, 4):
            assert wavefronts([16 * tile(row + lane // 4, k + lane % 4) for lane in range(32)],
                              16) == (4, 4)


def test_odd_tiles_are_refused():
    with pytest.raises(CodegenError, match="rows of a power of two"):
        operand_tile(96, 32, "float16", False)
