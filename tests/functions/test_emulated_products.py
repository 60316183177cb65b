"""A few products by the generated kernels themselves, in the emulator: what is planned fits what is run."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
import cuteblas.blas
import cuteblas.linalg
from cuteblas import emulator

from .arrays import laid_out

pytestmark = pytest.mark.skipif(not emulator.available(), reason="there is no C++ compiler")


@pytest.mark.parametrize("name, operands, family", [
    ("tensordot", (("d", (3, 5, 7), "permuted"), ("d", (7, 4, 5), "negative"), ((2, 1), (0, 2))), "gett"),
    ("einsum", ("iijk,kj->i", ("i", (4, 4, 3, 5), "F"), ("i", (5, 3), "sliced")), "gett"),
    ("einsum", ("ij->j", ("i", (40, 9), "F")), "gemm_simt"),
    ("vdot", (("F", (5, 9), "sliced"), ("F", (5, 9), "F")), "gett"),
    ("vecdot", (("F", (3, 1, 9), "F"), ("F", (4, 9), "negative")), "gemm_simt"),
    ("kron", (("b", (3, 5), "F"), ("b", (2, 3), "C")), "gett"),
], ids=str)
def test_kernels(name, operands, family):
    arrays = [laid_out(x[1], x[0], x[2]) if isinstance(x, tuple) and isinstance(x[0], str) else x for x in operands]
    expected = getattr(np, name)(*arrays)
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = getattr(cuteblas, name)(*arrays)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype
    assert cuteblas.stats() == {name: {"calls": {family: 1}}}


@pytest.mark.parametrize("trans", [(2, 2), (2, 1), (0, 2), (1, 0)])
def test_complex_products_by_name(trans):
    """What BLAS conjugates, the kernels that split elements conjugate."""
    rng = np.random.default_rng(3)

    def stored(shape, transposed):
        values = rng.integers(-9, 10, shape) + 1j * rng.integers(-9, 10, shape)
        return np.asarray(values.T if transposed else values, np.complex64)

    a, b, c = stored((20, 33), trans[0]), stored((33, 18), trans[1]), stored((20, 18), False)
    left, right = (x if t == 0 else x.T if t == 1 else x.conj().T for x, t in zip((a, b), trans, strict=True))
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = cuteblas.blas.cgemm(2 - 1j, a, b, 3j, c, trans_a=trans[0], trans_b=trans[1], precision="fp16x3")
    np.testing.assert_array_equal(result, (2 - 1j) * (left @ right) + 3j * c)
    assert cuteblas.stats()["cgemm"]["calls"] == {"gemm_split": 1}
