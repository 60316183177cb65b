"""Atoms and descriptors of wgmma: derived from layouts, refused when they do not fit."""

import numpy as np
import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.prelude import cuda_prelude
from cuteblas.codegen.swizzled import operand_layout
from cuteblas.codegen.values import Use
from cuteblas.codegen.wgmma import WgmmaAtom, WgmmaMma, WgmmaOperand, WgmmaRegisterMma
from cuteblas.layout import ComposedLayout, Layout, Swizzle, make_identity_tensor, make_layout, size


@pytest.mark.parametrize("n", [8, 64, 128, 256])
def test_accumulators_cover_the_tile(n):
    atom = WgmmaAtom(n, "float16")
    hits = np.zeros((64, n), int)
    for t in range(128):
        for i in range(n // 2):
            # PTX ISA: row 16 * warp + lane / 4 + 8 * (i / 2 % 2), column 8 * (i / 4) + 2 * (lane
            # % 4) + i % 2
            row, column = 16 * (t // 32) + t % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (t % 4) + i % 2
            assert atom.tv_c(t, i) == row + 64 * column
            hits[row, column] += 1
    assert (hits == 1).all()


def test_warpgroups_stack_along_m():
    mma = WgmmaMma((WgmmaAtom(16, "bfloat16"),), 2)
    part = mma.partition_c(make_identity_tensor((128, 16)), 128 + 5)
    assert part(0, 0, 0) == (64 + 1, 2) and part((1, 1, 1), 0, 0) == (64 + 1 + 8, 8 + 3)


def test_pairs_of_columns_are_elements():
    """A thread has the same columns of accumulators either way, two of them as one element."""
    single, pairs = (WgmmaMma((WgmmaAtom(24, "float16"),), 2, parts) for parts in (1, 2))
    assert pairs.tile == (128, 12)
    for thread in range(256):
        alone = single.partition_c(make_identity_tensor((128, 24)), thread)
        together = pairs.partition_c(make_identity_tensor((128, 12)), thread)
        for h in range(2):
            for n in range(3):
                row, column = together((0, h, n), 0, 0)
                assert [alone((i, h, n), 0, 0) for i in range(2)] == [(row, 2 * column),
                                                                      (row, 2 * column + 1)]


@pytest.mark.parametrize("element, n", [("float16", 12), ("float16", 264), ("float32", 64)])
def test_atoms_that_do_not_exist(element, n):
    with pytest.raises(CodegenError,
                       match="8 to 256 columns in steps of 8 and operands of float16, bfloat16"):
        WgmmaAtom(n, element)


@pytest.mark.parametrize("wrong, words", [({"n": 40, "element": "int8"}, "in steps of 16"),
                                          ({"n": 64, "element": "uint8", "k_major_b": False},
                                           "along K alone")])
def test_atoms_of_bytes_that_do_not_exist(wrong, words):
    with pytest.raises(CodegenError, match=words):
        WgmmaAtom(**wrong)


def test_atoms_of_bytes():
    """Bytes, K of 32, sums in int32; in PTX without scales, transposes and
    saturation."""
    assert [WgmmaAtom(n, "int8").depth for n in (8, 24, 32, 240)] == [32] * 4
    atom = WgmmaAtom(16, "uint8")
    assert (atom.accumulator, atom.function, atom.of) == ("int32", "wgmma_m64k32",
                                                          (16, "uint8", "uint8"))
    text = cuda_prelude([Use("wgmma_m64k32", ("16", "signed char", "unsigned char"))])
    assert '"wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8 {%0, %1, %2, %3, %4, %5, %6, %7}, "' in text
    assert '"%8, %9, p; }' in text and "wgmma_m64k32<16, signed char, unsigned char>(" in text
    assert WgmmaOperand("int8", operand_layout(64, 128, "int8", True), True).offsets == (16, 1024)


def test_descriptors_come_from_the_layout():
    assert WgmmaOperand("float16", operand_layout(64, 64, "float16", True),
                        True).offsets == (16, 1024)
    wide = WgmmaOperand("float16", operand_layout(128, 64, "float16", False), False)
    assert wide.offsets == (8192, 1024)
    narrow = WgmmaOperand("float16", operand_layout(160, 64, "float16", False, 64), False)
    assert (narrow.row_bytes, narrow.offsets) == (64, (4096, 512))


def ring(k, operand, stages=3):
    """Of tiles of an operand."""
    return k.shared("ring", operand.element, operand.layout.map_domain(
        lambda tile: make_layout(*tile, Layout(stages, size(tile)))), alignment=1024)


@pytest.mark.parametrize("extent, k_major, span, rows",
                         [(64, True, 128, None), (128, False, 128, None), (160, False, 64, None),
                          (256, True, 128, 128), (256, False, 128, 128), (320, True, 128, 256)])
def test_operands_are_tensors_of_descriptors(extent, k_major, span, rows):
    """Bytes from the first descriptor, by the instruction along MN, the one along K, and the
    stage."""
    k = KernelBuilder("probe", 128, arch="sm_90a")
    operand = WgmmaOperand("float16", operand_layout(extent, 64, "float16", k_major, span), k_major)
    tiles = ring(k, operand)
    tensor = operand.tensor(k, "desc", tiles, rows)
    assert tensor.shape[0] == -(-extent // (rows or extent))
    for m in range(tensor.shape[0]):
        for step in range(4):
            for stage in range(3):
                assert tensor(m, step, stage).offset == 2 * tiles.layout.inner(
                    (m * (rows or extent), 16 * step, stage)
                )


def test_rows_of_an_instruction_begin_with_a_line():
    k = KernelBuilder("probe", 128, arch="sm_90a")
    for k_major, rows in ((True, 20), (False, 32)):
        operand = WgmmaOperand("float16", operand_layout(128, 64, "float16", k_major), k_major)
        with pytest.raises(CodegenError, match=f"do not begin at {rows}"):
            operand.tensor(k, "desc", ring(KernelBuilder("other", 128), operand), rows)


def test_a_product_is_written_by_its_atom():
    k = KernelBuilder("probe", 128, arch="sm_90a")
    a, b = (WgmmaOperand("float16", operand_layout(n, 64, "float16", True), True)
            for n in (64, 192))
    tCrA = a.tensor(
        k,
        "desc_a",
        k.shared("sA", "float16", a.layout.map_domain(lambda t: make_layout(*t, Layout(1, 0))))
    )
    tCrB = b.tensor(
        k,
        "desc_b",
        k.shared("sB", "float16", b.layout.map_domain(lambda t: make_layout(*t, Layout(1, 0)))),
        128
    )
    tCrC = k.registers("tCrC", "float32", Layout((2, 2, 24)))
    mma = WgmmaMma((WgmmaAtom(128, "float16"), WgmmaAtom(64, "float16")), 1, accumulate=False)
    k.gemm(mma, tCrC, tCrA[None, None, 0], tCrB[None, None, 0])
    calls = [line.strip() for line in k.build().body.splitlines() if "wgmma_m64" in line]
    assert calls[:3] == [
        "cb::wgmma_m64k16<128, cb::half, 0, 0>(reinterpret_cast<float (&)[64]>(tCrC[0]), cb::wgmma_descriptor_advance(desc_a, 0), "
        "cb::wgmma_descriptor_advance(desc_b, 0), 0);",
        "cb::wgmma_m64k16<64, cb::half, 0, 0>(reinterpret_cast<float (&)[32]>(tCrC[64]), cb::wgmma_descriptor_advance(desc_a, 0), "
        "cb::wgmma_descriptor_advance(desc_b, 16384), 0);",
        "cb::wgmma_m64k16<128, cb::half, 0, 0>(reinterpret_cast<float (&)[64]>(tCrC[0]), cb::wgmma_descriptor_advance(desc_a, 32), "
        "cb::wgmma_descriptor_advance(desc_b, 32), 1);"
    ]
    assert len(calls) == 8


@pytest.mark.parametrize("columns, element", [(12, "bfloat16"), (264, "bfloat16"),
                                              (64, "tfloat32")])
def test_products_on_registers_that_do_not_exist(columns, element):
    with pytest.raises(CodegenError, match="takes float16 or bfloat16 in registers"):
        WgmmaRegisterMma(columns, 2, True, element)


@pytest.mark.parametrize("swizzle", [Swizzle(0, 0, 0), Swizzle(3, 4, 3)])
def test_a_wrong_swizzle_has_no_descriptor(swizzle):
    with pytest.raises(CodegenError, match=r"no descriptor .* swizzle"):
        _ = WgmmaOperand("float16", ComposedLayout(swizzle, 0,
                                                   operand_layout(64, 64, "float16", True).inner),
                         True).offsets


@pytest.mark.parametrize("inner, k_major", [(Layout((64, 64), (64, 1)), False),
                                            (Layout((64, 64)), True),
                                            (Layout(((32, 2), 64), ((1, 2048), 32)), False),
                                            (Layout(((8, 2, 4), 64), ((64, 512, 2048), 1)), True),
                                            (Layout((64, (8, 8)), (64, (1, 16))), True)])
def test_a_wrong_layout_has_no_descriptor(inner, k_major):
    with pytest.raises(CodegenError, match="no descriptor"):
        _ = WgmmaOperand("float16", ComposedLayout(Swizzle(3, 3, 3), 0, inner), k_major).offsets
    right = operand_layout(64, 64, "float16", k_major).inner
    with pytest.raises(CodegenError, match="no descriptor"):
        _ = WgmmaOperand("float16", ComposedLayout(Swizzle(2, 3, 3), 0, right), k_major).offsets
