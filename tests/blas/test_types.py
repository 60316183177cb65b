"""Mixed types: the table, in the code and in the documents."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas.signatures import ROWS
from cuteblas.blas.types import PRODUCTS, ROUTINES, dtype_named, resolved

from .operands import check, random

BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("types", PRODUCTS, ids=lambda t: f"{t.operands}-{t.compute}-{t.output}")
def test_every_row_of_the_table(types, backend):
    rng = np.random.default_rng(0)
    a, b, c = (random(rng, shape, dtype) for shape, dtype in zip(((9, 70), (70, 7), (9, 7)),
                                                                 (*[types.operands] * 2,
                                                                  types.output), strict=True))
    alpha, beta = (3, -2) if types.compute == "int32" else (0.75, -2)
    with cuteblas.backend(backend):
        got = blas.gemm(alpha, a, b, beta, c, dtype=types.output, compute_dtype=types.compute)
        check(got, a, b, types.output, alpha=alpha, beta=beta, c=c, compute=types.compute)
        out = np.empty((9, 7), dtype_named(types.output))
        assert blas.gemm(alpha, a, b, beta, c, out=out, compute_dtype=types.compute) is out
        check(out, a, b, types.output, alpha=alpha, beta=beta, c=c, compute=types.compute)


def test_every_routine_is_a_row():
    for row in ROWS.values():
        arguments = inspect.signature(getattr(blas, row.name)).parameters
        assert {"alpha", *row.operands, f"overwrite_{[*row.operands][-1]}"} <= arguments.keys()
        assert all(arguments[name].default is inspect.Parameter.empty for name in row.read)
    assert {*ROWS} == {*blas.__all__} - {"GemmPlan", "gemm", "gemm_batched", "gemm_grouped", "plan",
                                         "pointers"}


def test_float16_sums_do_not_overflow_or_round_on_the_way():
    a, b = np.full((2, 4096), 4, np.float16), np.full((4096, 2), 4, np.float16)
    assert (blas.gemm(1, a, b, dtype="f4") == 65536).all() and np.isinf(blas.hgemm(1, a, b)).all()
    assert (blas.hgemm(0.5, a, b) == 32768).all()
    c = np.ones((2, 2), np.float16)
    assert (blas.gemm(1, a, b, 1, c, dtype=np.float16, out=None)[0, 0]) == np.inf


def test_float64_sums_of_float32():
    a = np.array([[2.0**24, 1, -(2.0**24)]], np.float32)
    b = np.ones((3, 1), np.float32)
    assert blas.gemm(1, a, b, compute_dtype="float64").item() == 1
    assert blas.gemm(1, a, b, compute_dtype="float64").dtype == np.float32
    assert blas.gemm(1, a, b, dtype="float64").dtype == np.float64


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_are_exact_and_wrap(backend):
    with cuteblas.backend(backend):
        a, b = np.full((1, 70000), -128, np.int8), np.full((70000, 1), -128, np.int8)
        assert blas.igemm(1, a, b).item() == 70000 * 2**14
        assert blas.igemm(2, a, b).item() == (2 * 70000 * 2**14 + 2**31) % 2**32 - 2**31
        a, b = np.full((1, 140000), -128, np.int8), np.full((140000, 1), -128, np.int8)
        assert blas.igemm(1, a, b).item() == 140000 * 2**14 - 2**32
        a, b = a[:, :70000], b[:70000]
        c = np.full((1, 1), 2**31 - 1, np.int32)
        assert blas.igemm(-1, a, b, 2**31 - 1,
                          c).item() == (-70000 * 2**14 + (2**31 - 1)**2 + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n, row", [(128, 132), (8, 12)])
def test_few_rows_of_integers_by_padded_ones(n, row, backend):
    rng = np.random.default_rng(5)
    a, b = (random(rng, shape, "int8") for shape in ((7, 192), (192, row)))
    c = random(rng, (7, row - 1), "int32")[:, :n]
    want = -(a.astype(np.int64) @ b[:, :n]) + 2**30 * c.astype(np.int64)
    with cuteblas.backend(backend):
        np.testing.assert_array_equal(blas.igemm(-1, a, b[:, :n], 2**30, c), want.astype(np.int32))


def test_inference():
    assert all(resolved(types.operands) == types for types in ROUTINES.values())
    assert resolved("float32", dtype="float64").compute == "float64"
    assert resolved("int8", dtype=np.float32, epilogue=True).output == "float32"
    with pytest.raises(TypeError, match="gemm of int8 arrays does not take dtype='float32'"):
        resolved("int8", dtype=np.float32)


def test_the_table_of_the_documents():
    text = (Path(cuteblas.__file__).parents[1] / "docs" / "blas.md").read_text(encoding="utf-8")
    for types in PRODUCTS:
        name = next((name for name, t in ROUTINES.items() if t == types), "gemm")
        assert f"| {types.operands} | {types.compute} | {types.output} | `{name}` |" in text


def test_letters_of_transposition():
    x, y = np.array([[1 + 2j, 3], [0, 1j]]), np.eye(2) + 0j
    for letters, want in (("nN", x), ("tT", x.T), ("cChH", x.conj().T), ("rR", x.conj()), ((0,), x),
                          ((1,), x.T), ((2,), x.conj().T)):
        for letter in letters:
            np.testing.assert_array_equal(blas.zgemm(1, x, y, trans_a=letter), want)
    with pytest.raises(ValueError, match="2, 'C' or 'H'"):
        blas.zgemm(1, x, y, trans_a="X")
