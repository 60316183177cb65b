"""Wavefronts and sectors, against cases that can be counted by hand."""

import pytest

from cuteblas.codegen.access import sectors, wavefronts
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.layout import Layout, local_partition, local_tile


@pytest.mark.parametrize("stride, nbytes, actual, ideal", [
    (4, 4, 1, 1),          # a row of words
    (8, 4, 2, 1),          # every other bank
    (128, 4, 32, 1),       # a column of a 32 x 32 tile: one bank
    (132, 4, 1, 1),        # the same, rows padded by a word
    (0, 4, 1, 1),          # broadcast
    (1, 1, 1, 1),          # bytes of the same words
    (8, 8, 2, 2), (256, 8, 32, 2),
    (16, 16, 4, 4), (128, 16, 32, 4), (144, 16, 4, 4),
])
def test_wavefronts(stride, nbytes, actual, ideal):
    assert wavefronts([stride * lane for lane in range(32)], nbytes) == (actual, ideal)


@pytest.mark.parametrize("stride, nbytes, actual, ideal", [
    (4, 4, 4, 4), (16, 16, 16, 16), (64, 4, 32, 4), (1, 1, 1, 1), (0, 4, 1, 1), (128, 16, 32, 16)])
def test_sectors(stride, nbytes, actual, ideal):
    assert sectors([stride * lane for lane in range(32)], nbytes) == (actual, ideal)


@pytest.mark.parametrize("pad, expected", [
    (0, "32 wavefronts of at least 1"), (1, "1 wavefronts of at least 1 (no bank conflict)")])
def test_a_builder_counts_what_it_writes(pad, expected):
    """Reading a column of a row-major tile: 32 ways into one bank, unless rows are padded."""
    k = KernelBuilder("kernel", 32)
    tile = k.shared("s", "float32", Layout((32, 32), (32 + pad, 1)))
    column = local_partition(tile, Layout((32, 1)), k.thread)
    k.copy(Vector(1), k.pin("column", column), k.registers("r", "float32", Layout((1, 32))))
    assert expected in k.build().facts["shared load s"]


def test_accesses_of_several_widths_are_all_told():
    """And there is no bank conflict only if there is none for any width."""
    k = KernelBuilder("kernel", 32)
    tile = k.shared("s", "float32", Layout((4, 32)))
    own = local_partition(tile, Layout((1, 32)), k.thread)
    k.copy(Vector(4), k.pin("vectors", own), k.registers("r", "float32", Layout((4, 1))))
    assert k.build().facts["shared load s"] == "16 bytes a lane: 4 wavefronts of at least 4 (no bank conflict)"
    k.copy(Vector(1), k.pin("words", own), k.registers("q", "float32", Layout((4, 1))))
    assert k.build().facts["shared load s"] == ("16 bytes a lane: 4 wavefronts of at least 4; "
                                                "4 bytes a lane: 4 wavefronts of at least 1")


def test_named_integers_and_named_tensors_count_as_what_they_stand_for():
    k = KernelBuilder("kernel", 32)
    row = k.let("row", k.thread * 2)
    tile = k.shared("s", "float32", Layout((64, 4), (1, 64)))
    once = k.pin("once", local_tile(tile, (1, 4), (row, 0)))
    k.copy(Vector(1), k.pin("twice", local_tile(once, (1, 2), (0, 1))),
           k.registers("r", "float32", Layout((1, 2))))
    assert k.build().facts["shared load s"].endswith("2 wavefronts of at least 1")


def test_the_worst_of_several_accesses_counts():
    k = KernelBuilder("kernel", 32)
    tile, part = k.shared("s", "float32", Layout((32, 32))), k.registers("r", "float32", Layout((1, 1)))
    for column in (local_tile(tile, (1, 1), (0, k.thread)),
                   local_tile(tile, (1, 1), (k.thread, 0))):
        k.copy(Vector(1), column, part)
    assert "32 wavefronts" in k.build().facts["shared load s"]


def test_a_name_counts_as_what_it_stands_for_now():
    """Names end with their block: a later one of the same name has another value."""
    k = KernelBuilder("kernel", 32)
    tile, part = k.shared("s", "float32", Layout((32, 32))), k.registers("r", "float32", Layout((1, 1)))
    for value, expected in ((k.thread % 16, "1 wavefronts"), (k.thread * 32, "32 wavefronts")):
        with k.when(k.thread < 31):
            own = k.let("own", value)
            k.copy(Vector(1), local_tile(tile, (1, 1), (own % 32, own // 32)), part)
        assert f": {expected} of" in k.build().facts["shared load s"]
