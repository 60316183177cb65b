"""Copies and materialised transposes on any backend, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.functions.arrays import LAYOUTS, laid_out

# Element sizes of 1, 2, 4, 8 and 16 bytes.
DTYPES = ("b", "e", "f", "d", "D")
SHAPES = ((1,), (5, 7), (33, 65), (3, 17, 19), (2, 3, 4, 5), (0, 3), (), (64, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposes(copy, shape, dtype):
    x = laid_out(shape, dtype, "C")
    result = copy(x.T, order="C")
    assert result.flags.c_contiguous and result.dtype == x.dtype
    np.testing.assert_array_equal(result, x.T)


@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(copy, layout, order):
    for shape, dtype in (((13, 9), "f"), ((3, 4, 5), "d"), ((6, 35), "b")):
        x = laid_out(shape, dtype, layout)
        result, expected = copy(x, order=order), np.copy(x, order=order)
        assert result.strides == expected.strides
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_permutations(copy, axes):
    x = laid_out((6, 33, 10), "f", "C").transpose(axes)
    np.testing.assert_array_equal(copy(x, order="C"), x)
