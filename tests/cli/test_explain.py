"""``python -m cuteblas explain``."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas.cli import main
from cuteblas.cli.explain import stand_in


@pytest.mark.parametrize("extents, order, dtype", [((3, 4), "C", "f4"), ((3, 4), "F", "D"), ((2, 3, 4), "F", "f8"),
                                                   ((5,), "F", "i1"), ((2, 3), "C", "G")])
def test_stand_ins_have_the_strides_of_true_arrays(extents, order, dtype):
    like = np.empty((*extents[:-2], *extents[:-3:-1]), dtype).swapaxes(-1, -2) if order == "F" and len(extents) > 1 \
        else np.empty(extents, dtype)
    stand = stand_in(extents, np.dtype(dtype), order)
    assert (stand.shape, stand.strides, stand.dtype) == (like.shape, like.strides, like.dtype)
    assert not stand.flags.writeable and stand.ctypes.data % 16 == 0


def test_arrays_of_any_size_take_no_memory():
    assert stand_in((10**7, 10**7), np.dtype("f8"), "C").nbytes == 8 * 10**14


def explained(capsys, *arguments):
    assert main(["explain", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_products(capsys):
    text = explained(capsys, "128x64", "64x96", "--order", "cf", "--dtype", "f8")
    told = cuteblas.explain(np.ones((128, 64)), np.ones((96, 64)).T)
    assert text == " ".join(str(told).split())
    batched = explained(capsys, "8x3x4", "4x5", "--precision", "ieee")
    assert batched.startswith("matmul: float32 (8, 3, 4) @ float32 (4, 5) -> float32 (8, 3, 5)")


def test_transposes_pictures_and_source(capsys):
    text = explained(capsys, "1000000x500000", "--dtype", "complex128", "--picture", "--source")
    assert "copy: complex128 (500000, 1000000) in order 'C'" in text and "the bank of word (j, i)" in text
    assert 'extern "C" __global__' in text
    assert "the bank of word" not in explained(capsys, "512x512")
    assert "elements of C that" in explained(capsys, "512x512", "512x512", "--picture")
    assert explained(capsys, "0x3", "3x4", "--picture", "--source").count("nothing") == 1


@pytest.mark.parametrize("arguments, why", [
    (["3x4", "5x6"], "mismatch in its core dimension"), (["3x4", "4x5", "--dtype", "foo"], "data type 'foo' not understood"),
    (["3x4", "4x5", "--order", "CX"], "an order C or F"), (["3x4", "4x5", "--order", "C"], "an order C or F"),
    (["3x4"] * 3, "one or two shapes"), (["8"], "at least 2"), (["3x4", "4x5", "--precision", "best"], "precision is one of")])
def test_what_cannot_be_explained(arguments, why, capsys):
    assert main(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert why in err and out == ""


@pytest.mark.parametrize("text", ["ax4", "3x-4", "3x", ""])
def test_shapes_are_written_with_x(text, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["explain", text])
    assert stop.value.code == 2 and "a shape is written 4096x4096" in capsys.readouterr().err
