"""``python -m cuteblas explain``."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import cuteblas
from cuteblas.cli import main
from cuteblas.cli.explain import operand
from cuteblas.cli.problems import shapes


@pytest.mark.parametrize("extents, order, dtype",
                         [((3, 4), "C", "f4"), ((3, 4), "F", "D"), ((2, 3, 4), "F", "f8"),
                          ((5,), "F", "i1"), ((2, 3), "C", "G")])
def test_operands_have_the_strides_of_true_arrays(extents, order, dtype):
    like = np.empty((*extents[:-2], *extents[:-3:-1]), dtype).swapaxes(-1, -2) if order == "F" and len(extents) > 1 \
        else np.empty(extents, dtype)
    x = operand(extents, np.dtype(dtype), order)
    assert (x.shape, x.strides, x.dtype, x.alignment) == (like.shape, like.strides, like.dtype, 16)


def explained(capsys, *arguments):
    assert main(["explain", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_products(capsys):
    text = explained(capsys, "128x64", "64x96", "--order", "cf", "--dtype", "f8", "--verbose")
    told = cuteblas.explain(np.ones((128, 64)), np.ones((96, 64)).T)
    assert text.partition(" problem ")[2] == " ".join(told.verbose().split()).partition(" problem ")[2] != ""
    batched = explained(capsys, "8x3x4", "4x5", "--precision", "ieee")
    assert "matmul: float32 (8, 3, 4) @ float32 (4, 5) -> float32 (8, 3, 5); --verbose says more" in batched


def test_it_begins_with_three_lines(capsys):
    assert main(["explain", "4096x4096", "4096x4096"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[2] != " "]
    assert names == ["kernel", "time", "copies", "fallback", "call"]


def test_transposes_pictures_and_source(capsys):
    text = explained(capsys, "1000000x500000", "--dtype", "complex128", "--picture", "--source")
    assert "copy: complex128 (500000, 1000000) in order 'C'" in text and "the bank of element (i, j)" in text
    assert 'extern "C" __global__' in text
    assert "the bank of element" not in explained(capsys, "512x512")
    assert "elements of C; each cell is a thread" in explained(capsys, "512x512", "512x512", "--picture")
    assert explained(capsys, "0x3", "3x4", "--picture",
                     "--source").count("nothing to do: the result has no elements") == 1
    assert "float32 (64, 1037, 1001) in order 'C'" in explained(capsys, "64x1001x1037:0,2,1")
    assert "transpose_in_place" in explained(capsys, "512x512:inplace")


@pytest.mark.parametrize("dtype", ["float32", "half", "complex64", "f8"])
def test_operands_of_any_size_take_no_memory(capsys, dtype):
    """NumPy's own check allocates memory as large as an operand, which is not available."""
    tracemalloc.start()
    text = explained(capsys, "10000000x1000000", "1000000x1000000", "--dtype", dtype)
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "kernel gemm_" in text and "(10000000, 1000000)" in text and most < 64 << 20


@pytest.mark.parametrize("text, expected", [("4096,4096", [(4096, 4096)]),
                                            ("4096, 4096 16 , 8", [(4096, 4096), (16, 8)]),
                                            ("(4096, 4096) (8,)", [(4096, 4096), (8,)]),
                                            ("4 x 5 @ 5 x 6", [(4, 5), (5, 6)]),
                                            ("(2,3),(3,4)", [(2, 3), (3, 4)]), ("7", [(7,)]),
                                            ("() 3", [(), (3,)]),
                                            ("2X3 3\u00d74", [(2, 3), (3, 4)]), ("0x3", [(0, 3)]),
                                            (" 2x3x4\t5 ", [(2, 3, 4), (5,)])])
def test_ways_to_write_shapes(text, expected):
    assert [extents for extents, _axes in shapes(text)] == expected


@pytest.mark.parametrize("name, written", [("bfloat16", "bfloat16"), ("bf16", "bfloat16"),
                                           ("fp16", "float16"), ("half", "float16"),
                                           ("single", "float32"), ("double", "float64"),
                                           ("f4", "float32"), ("c128", "complex128")])
def test_types_by_the_names_people_have_for_them(capsys, name, written):
    text = explained(capsys, "512x512", "512x512", "--dtype", name)
    assert f": {written} (512, 512) @ {written} (512, 512) -> {written} (512, 512)" in text and f"{written} on" in text
    assert f"copy: {written}" in explained(capsys, "512x512", "--dtype", name)


def test_vectors_batches_and_orders(capsys):
    assert "-> float32 ();" in explained(capsys, "4096", "4096")
    assert "-> float16 (16, 128);" in explained(capsys, "16x128x64", "64", "--dtype", "half")
    layouts = [explained(capsys, "96x64", "64x32", "--verbose", "--order",
                         order).partition("A (M,K) ")[2].split()[0:7:3]
               for order in ("NT", "cf", "C,F")]
    assert layouts[0] == layouts[1] == layouts[2] and layouts[0][0] == "(96,64):(64,1)"


@pytest.mark.parametrize("device, family, name",
                         [("a100", "gemm_mma", "NVIDIA A100"), ("l40s", "gemm_mma", "NVIDIA L40S"),
                          ("RTX4090", "gemm_mma", "RTX 4090"),
                          ("h100", "gemm_wgmma", "NVIDIA H100"),
                          ("h200", "gemm_wgmma", "NVIDIA H200"),
                          ("b200", "gemm_mma", "NVIDIA B200")])
def test_other_cards(capsys, device, family, name):
    text = explained(capsys, "4096x4096", "4096x4096", "--dtype", "half", "--device", device)
    assert text.startswith(f"kernel {family}: ") and name in text
    scaled = "(not measured there: estimated from NVIDIA H200 by clock, multiprocessors and bandwidth)"
    assert (scaled in " ".join(text.split())) == (device not in ("h100", "h200"))


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["3x4", "5x6"], "mismatch in its core dimension"),
        (["3x4", "4x5", "--dtype", "foo"], "data type 'foo' not understood"),
        (["3x4", "4x5", "--order", "CX"], "an order C or F"),
        (["3x4", "4x5", "--order", "C"], "an order C or F"),
        (["3x4"] * 3, "one or two shapes"),
        (["8"], "at least 2"),
        (["3x4", "4x5", "--precision", "best"], "invalid choice: 'best'"),
        (["ax4"], "a shape is written 4096x4096"),
        (["3x-4"], "a shape is written"),
        (["3x"], "a shape is written"),
        ([""], "a shape is written"),
        (["(3,4"], "a shape is written"),
        (["3..4"], "a shape is written"),
        (["99999999999x99999999999", "99999999999x9"], "arrays have less than 2^63 bytes"),
        (["2000000000x2", "2x2000000000"], "array is too big"),
        (["9" * 5000 + "x2"], "an extent has at most 19 digits"),
        (["3x4", "4x5", "--device", "v100"], "device is one of 'a100', "),
        (["16x4:1,1"], "axes of a permutation"),
        (["3x4:inplace", "4x3"], "takes one shape, got two"),
        (["3x4:inplace"], "two equal last extents"),
        (["1000000000x1000000"], "a grid has at most 2^31 - 1"),
        (["3x4", "4x5", "--variant", "best"], "there is no gemm variant")
    ]
)
def test_what_cannot_be_explained(arguments, why, capsys):
    try:
        status = main(["explain", *arguments])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2 and why in err and out == "" and err.count("\n") == 1
