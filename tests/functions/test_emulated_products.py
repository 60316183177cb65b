"""A few products by the generated kernels themselves, in the emulator: what is planned fits what is
run."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
import cuteblas.blas
import cuteblas.linalg
from cuteblas import emulator
from cuteblas.functions import contractions

from .arrays import DTYPES, laid_out

pytestmark = pytest.mark.skipif(not emulator.available(), reason="there is no C++ compiler")


@pytest.mark.parametrize("name, operands, family",
                         [("tensordot", (("d", (3, 5, 7), "permuted"), ("d", (7, 4, 5), "negative"),
                                         ((2, 1), (0, 2))), "gett"),
                          ("einsum", ("iijk,kj->i", ("i", (4, 4, 3, 5), "F"),
                                      ("i", (5, 3), "sliced")), "gett"),
                          ("vdot", (("F", (5, 9), "sliced"), ("F", (5, 9), "F")), "gett"),
                          ("vecdot", (("F", (3, 1, 9), "F"), ("F", (4, 9), "negative")),
                           "gemm_simt"), ("kron", (("b", (3, 5), "F"), ("b", (2, 3), "C")),
                                          "gett"),], ids=str)
def test_kernels(name, operands, family):
    arrays = [laid_out(x[1], x[0], x[2]) if isinstance(x, tuple) and isinstance(x[0], str) else x
              for x in operands]
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
    left, right = (x if t == 0 else x.T if t == 1 else x.conj().T
                   for x, t in zip((a, b), trans, strict=True))
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = cuteblas.blas.cgemm(2 - 1j, a, b, 3j, c, trans_a=trans[0], trans_b=trans[1],
                                     precision="fp16x3")
    np.testing.assert_array_equal(result, (2 - 1j) * (left @ right) + 3j * c)
    assert cuteblas.stats()["cgemm"]["calls"] == {"gemm_split": 1}


def test_kernels_by_name_and_what_they_refuse():
    a, b, cube = (laid_out(shape, "f", "F", i)
                  for i, shape in enumerate(((6, 8), (8, 4), (4, 4, 4))))
    with cuteblas.backend("emulator"):
        for variant, family in (("gett", "gett"), ("gemm_small", "gemm_simt")):
            cuteblas.reset_stats()
            np.testing.assert_array_equal(cuteblas.tensordot(a, b, 1, variant=variant), a @ b)
            assert cuteblas.stats()["tensordot"]["calls"] == {family: 1}
        for how in ({"variant": "gemm_small"}, {"precision": "fp16x3"}):
            with pytest.raises(ValueError,
                               match=r"matrices, but the modes .* of this contraction form none"):
                cuteblas.tensordot(cube, cube[::-1, :, ::2].repeat(2, 2), ((0, 2), (1, 0)), **how)
        with pytest.raises(
            ValueError,
            match=r"gemm_split cannot compute this: it multiplies float32 .*, not float64"
        ):
            cuteblas.dot(a.astype("d"), b.astype("d"), precision="fp16x3")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("subscripts, layout",
                         [("ij->i", "C"), ("ij->j", "sliced"), ("ij->", "negative"),
                          ("ij->j", "broadcast"), ("ijk->j", "permuted"), ("iij->j", "offset")])
def test_sums_over_one_operand(subscripts, layout, dtype):
    """Types, values and strides; integers wrap in their type, and bool is a logical or."""
    x = laid_out((9, 9, 9)[:subscripts.index("-")], dtype, layout)
    if x.dtype.kind in "iu" and layout in ("C", "sliced"):
        x = x * x.dtype.type(np.iinfo(x.dtype).max // 4)
    expected = np.einsum(subscripts, x)
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = cuteblas.einsum(subscripts, x)
        into = np.full(2 * np.size(expected) + 1, 7, expected.dtype)
        out = into[1::2].reshape(expected.shape)
        cuteblas.einsum(subscripts, x, out=out)
    for got in (result, out):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
    assert (into[::2] == expected.dtype.type(7)).all()
    assert cuteblas.stats()["einsum"]["calls"].keys() == {"reduce"}


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 7), (7, 1), (3, 4099)])
@pytest.mark.parametrize("subscripts", ["ij->i", "ij->j", "ij->"])
def test_sums_of_any_extent(subscripts, shape):
    x = laid_out(shape, "f", "C")
    with cuteblas.backend("emulator"):
        result = cuteblas.einsum(subscripts, x)
    np.testing.assert_array_equal(result, np.einsum(subscripts, x))


@pytest.mark.parametrize("dtype", ["e", "f", "F", "?", "b"])
@pytest.mark.parametrize("subscripts", ["ij,kl->k", "ijk,kl->il", "ij,i->", "ij,i->i"])
def test_sums_inside_products(subscripts, dtype):
    extents = dict(zip("ijkl", (5, 7, 6, 3), strict=True))
    x, y = (laid_out(tuple(extents[c] for c in term), dtype, "F", i)
            for i, term in enumerate(subscripts.split("->")[0].split(",")))
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = cuteblas.einsum(subscripts, x, y)
    np.testing.assert_array_equal(result, np.einsum(subscripts, x, y))
    calls = cuteblas.stats()["einsum"]["calls"]
    # sums, and what is done with them
    assert result.dtype == x.dtype and calls["reduce"] >= 1 and sum(calls.values()) >= 2


@pytest.mark.parametrize("dtype", ["d", "D"])
@pytest.mark.parametrize("subscripts, reductions",
                         [("ij,kl->k", 0), ("ijk,kl->il", 0), ("ij,i->", 1), ("ij,i->i", 1)])
def test_sums_of_products(subscripts, reductions, dtype):
    """No wider type: sums are part of the product, or of products that are written."""
    extents = dict(zip("ijkl", (5, 7, 6, 3), strict=True))
    x, y = (laid_out(tuple(extents[c] for c in term), dtype, "F", i)
            for i, term in enumerate(subscripts.split("->")[0].split(",")))
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        result = cuteblas.einsum(subscripts, x, y)
    np.testing.assert_array_equal(result, np.einsum(subscripts, x, y))
    assert cuteblas.stats()["einsum"]["calls"].get("reduce", 0) == reductions


@pytest.mark.parametrize("dtype", ["f", "D"])
def test_sums_before_products_do_not_overflow(dtype, monkeypatch):
    """As they come where they save work."""
    monkeypatch.setattr(contractions, "_MOST_AT_ONCE", 0)
    monkeypatch.setattr(contractions, "_MOST_OF_ELEMENTS", 0)
    huge = np.finfo(dtype).max / 2
    x, y = np.full((5, 7), huge, dtype), np.full((5, 6), 2.0**-9, dtype)
    with cuteblas.backend("emulator"):
        np.testing.assert_allclose(cuteblas.einsum("ij,ik->i", x, y),
                                   np.full(5, huge * 2.0**-9 * 42, dtype), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["?", "e", "f", "d", "D", "V12"])
def test_transposition_in_place(dtype):
    """Elements of 12 bytes are three words each, the innermost mode of a batch."""
    x = (np.arange(2 * 70 * 70
                   * np.dtype(dtype).itemsize) % 251).astype("u1").view(dtype).reshape(2, 70, 70)
    expected = x.swapaxes(1, 2).copy()
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        assert cuteblas.copy(x.mT, out=x) is x
        assert cuteblas.explain_copy(x.mT, out=x).plan.family == "transpose_in_place"
    assert x.tobytes() == expected.tobytes() and cuteblas.stats() == {
        "copy": {"calls": {"transpose_in_place": 1}}
    }
