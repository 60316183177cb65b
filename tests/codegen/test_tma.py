"""Boxes of TMA: derived from layouts, refused when they do not fit."""

import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.kernel import TensorMapSpec
from cuteblas.codegen.mbarrier import Mbarriers
from cuteblas.codegen.swizzled import operand_layout
from cuteblas.codegen.tma import TmaBox, TmaLoad, TmaStore, tma_store_wait
from cuteblas.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    domain_offset,
    local_tile,
    make_identity_tensor,
)


def coordinates_from(*corner, extents=(64, 64)):
    return domain_offset(corner, make_identity_tensor(extents))


def plain_box(element, layout):
    return TmaBox(element, ComposedLayout(Swizzle(0, 0, 0), 0, layout))


def test_boxes_come_from_the_layout():
    k_major = TmaBox("float16", operand_layout(128, 64, "float16", True))
    assert (k_major.inner_mode, k_major.box, k_major.swizzle, k_major.repeats) == (
        1,
        (64, 128),
        128,
        ((0, (0, 0)),)
    )
    m_major = TmaBox("float16", operand_layout(192, 64, "float16", False))
    assert (m_major.inner_mode, m_major.box, m_major.repeats) == (0, (64, 64),
                                                                  ((0, (0, 0)), (4096, (64, 0)),
                                                                   (8192, (128, 0))))
    assert m_major.nbytes == 192 * 64 * 2
    narrow = TmaBox("float16", operand_layout(96, 64, "float16", False, 64))
    assert (narrow.box, narrow.swizzle, narrow.repeats) == ((32, 64), 64,
                                                            ((0, (0, 0)), (2048, (32, 0)),
                                                             (4096, (64, 0))))
    # of m_major
    half_deep = TmaBox("float16", ComposedLayout(Swizzle(3, 3, 3), 0,
                                                 Layout(((64, 3), 32), ((1, 4096), 64))))
    assert (half_deep.box, half_deep.repeats) == (
        (64, 32),
        m_major.repeats
    ) and half_deep.nbytes == 192 * 32 * 2
    spec = m_major.map((1000, 500, 3, 4), (1, 1000, 0, 500_000))
    assert spec == TensorMapSpec(dtype("float16"), (1000, 500, 4), (2000, 1_000_000), (64, 64, 1),
                                 128)


def test_layouts_that_no_box_fills():
    swizzle = Swizzle(3, 3, 3)
    with pytest.raises(CodegenError, match="not compact"):
        _ = TmaBox("float16", ComposedLayout(swizzle, 0, Layout((64, 64), (72, 1)))).box
    with pytest.raises(CodegenError, match="share places"):
        _ = TmaBox("float16", ComposedLayout(swizzle, 0, Layout((64, 64), (64, 8)))).box
    with pytest.raises(CodegenError, match=r"takes rows of 128 bytes, .* has 64"):
        _ = TmaBox("float16", ComposedLayout(swizzle, 0, Layout((64, 32), (32, 1)))).swizzle
    with pytest.raises(CodegenError, match="boxes must begin at multiples of 128 bytes"):
        _ = plain_box("float16", Layout(((8, 2), 4), ((1, 32), 8))).repeats
    with pytest.raises(CodegenError, match="no swizzle"):
        _ = TmaBox("float16", ComposedLayout(Swizzle(3, 2, 3), 0,
                                             Layout((64, 64), (64, 1)))).swizzle


def test_boxes_without_a_swizzle_and_of_any_rank():
    plain = plain_box("float32", Layout((32, 8)))
    assert (plain.inner_mode, plain.box, plain.swizzle, plain.nbytes) == (0, (32, 8), 0, 1024)
    assert plain.map((100, 50), (1, 104)) == TensorMapSpec(dtype("float32"), (100, 50), (416,),
                                                           (32, 8), 0)
    rows = plain_box("float32", Layout((8, 32), (32, 1)))
    assert (rows.order, rows.box) == ((1, 0), (32, 8))
    assert plain_box("float32", Layout(((4, 8), 1), ((1, 4), 0))).box == (32, 1)
    nested = plain_box("float32", Layout((4, 32, 32), (1024, 32, 1)))
    assert (nested.order, nested.box) == ((2, 1, 0), (32, 32, 4))
    assert nested.map((4, 25, 60), (64, 256, 1)).strides == (1024, 256)
    # every fourth row: no box is dense there
    split = plain_box("float32", Layout(((4, 8), 32), ((256, 32), 1)))
    assert split.box == (32, 1) and split.repeats[:2] == ((0, (0, 0)), (32, (4, 0))) and split.repeats[8] == (256, (1, 0))


def test_coordinates_of_tma_come_from_tiled_tensors():
    box = plain_box("float32", Layout((32, 8)))
    k = KernelBuilder("k", 32, arch="sm_90")
    name, extents = k.tensor_map("map"), (k.integer("I"), k.integer("J"))
    tile, bar = k.shared("tile", "float32", box.layout), Mbarriers(k, "bar", 1, arrivals=1).at(0)
    coordinates = local_tile(make_identity_tensor(extents), (32, 8),
                             (k.block_index("bi", "x"), k.block_index("bj", "y")))
    assert str(coordinates) == "ArithTuple(bi * 32,bj * 8) o (32,8):(1@0,1@1)"
    k.copy(TmaLoad(name, box, bar), coordinates, tile)
    k.copy(TmaStore(name, box), tile, coordinates)
    tma_store_wait(k)
    text = k.build().body
    assert "cb::tma_load(&tile[0], &map, &bar[0], bi * 32, bj * 8);" in text
    assert "cb::tma_store(&map, &tile[0], bi * 32, bj * 8);\n  cb::tma_store_commit();\n  cb::tma_store_wait_read<0>();" in text
    with pytest.raises(
        CodegenError,
        match="must be a multiple of 16 bytes; I elements of 4 bytes are not provably one"
    ):
        k.copy(TmaLoad(name, box, bar), coordinates_from(extents[0], 0), tile)
    k.copy(TmaLoad(name, box, bar), coordinates_from(-4, -3), tile)
    with pytest.raises(CodegenError, match="; -3 elements"):
        k.copy(TmaStore(name, box), tile, coordinates_from(-3, 0))


@pytest.mark.parametrize("change, message", [({"shape": (0, 8)}, "extents of a tensor map are 1"),
                                             ({"strides": (24,)}, "multiples of 16 bytes"),
                                             ({"strides": (-64,)}, "positive"),
                                             ({"box": (64, 300)}, "box are 1 to 256"),
                                             ({"swizzle": 48}, "0, 32, 64 or 128"),
                                             ({"box": (96, 8)}, "at most the swizzle span"),
                                             ({"box": (4, 8)}, "multiple of 16 bytes"),
                                             ({"shape": (8,)}, "one stride less"),])
def test_tensor_maps_that_the_hardware_refuses(change, message):
    fields = {"dtype": dtype("float16"), "shape": (64, 64), "strides": (128,), "box": (64, 64),
              "swizzle": 128}
    TensorMapSpec(**fields)
    with pytest.raises(ValueError, match=message):
        TensorMapSpec(**(fields | change))


def test_a_copy_to_several_blocks_names_their_set():
    k = KernelBuilder("probe", 32, arch="sm_90", cluster=2)
    box = plain_box("float16", Layout((64, 8), (1, 64)))
    tile, bar = k.shared("tile", "float16", box.layout), Mbarriers(k, "bar", 1, arrivals=1).at(0)
    rank = k.let("rank", k.block_index("block", "x") % 2)
    k.copy(TmaLoad(k.tensor_map("map"), box, bar, blocks=3), coordinates_from(0, 8 * rank), tile)
    k.cluster_barrier()
    kernel = k.build()
    assert "cb::tma_load_multicast(&tile[0], &map, &bar[0], 3, 0, rank * 8);" in kernel.body
    assert "cb::cluster_sync();" in kernel.body
    assert kernel.cluster == (2, 1, 1) and "__launch_bounds__(32) __cluster_dims__(2, 1, 1)" in kernel.body
