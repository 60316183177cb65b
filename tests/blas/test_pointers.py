"""The routines over addresses."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest

import cuteblas
from cuteblas import emulator
from cuteblas.blas import pointers
from cuteblas.blas.types import PRODUCTS, ROUTINES

from .operands import SCALARS, check, random, seen, stored_shape

BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]


def column_major(values, leading):
    """The same matrix with a leading dimension, and its address."""
    whole = np.full((*values.shape[:-2], values.shape[-1], leading), 77, values.dtype)
    view = whole[..., :values.shape[-2]].swapaxes(-1, -2)
    view[...] = values
    return view, whole.ctypes.data


@pytest.mark.parametrize("name", ROUTINES)
def test_like_the_arrays(name):
    rng, types = np.random.default_rng(0), ROUTINES[name]
    for trans, (alpha, beta) in product(product("NTCR", "NTCR"), SCALARS[name]):
        m, n, k = 5, 4, 6
        a, b = (random(rng, stored_shape(x, t), types.operands)
                for x, t in zip(((m, k), (k, n)), trans, strict=True))
        c = random(rng, (m, n), types.output)
        (_a, at_a), (_b, at_b), (view, at_c) = (column_major(x, 9) for x in (a, b, c))
        assert getattr(pointers, name)(*trans, m, n, k, alpha, at_a, 9, at_b, 9, beta, at_c, 9,
                                       device="host") is None
        check(view, seen(a, trans[0]), seen(b, trans[1]), types.output, alpha=alpha, beta=beta, c=c)
        assert (view.base[:, 5:] == 77).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_batches(backend):
    rng = np.random.default_rng(1)
    a, b, c = random(rng, (5, 3), "float64"), random(rng, (4, 3, 2),
                                                     "float64"), random(rng, (4, 5, 2), "float64")
    (_a, at_a), (_b, at_b), (view, at_c) = (column_major(x, 6) for x in (a, b, c))
    with cuteblas.backend(backend):
        pointers.dgemm_strided_batched("n", 0, 5, 2, 3, 2, at_a, 6, 0, at_b, 6, 12, -1, at_c, 6, 12,
                                       4, device="host")
    check(view, np.broadcast_to(a, (4, 5, 3)), b, "float64", alpha=2, beta=-1, c=c)
    assert (view.base[..., 5:] == 77).all()
    pointers.dgemm_strided_batched("n", 0, 5, 2, 3, 2, at_a, 6, 0, at_b, 6, 12, -1, at_c, 6, 12, 0,
                                   device="host")
    backwards = at_b + 3 * 12 * 8
    pointers.dgemm_strided_batched("n", 0, 5, 2, 3, 1, at_a, 6, 0, backwards, 6, -12, 0, at_c, 6,
                                   12, 4, device="host")
    check(view, np.broadcast_to(a, (4, 5, 3)), b[::-1], "float64")


@pytest.mark.parametrize("types", PRODUCTS, ids=lambda t: f"{t.operands}-{t.compute}-{t.output}")
def test_types_by_name(types):
    rng = np.random.default_rng(2)
    a, b, c = (random(rng, shape, d) for shape, d in (((3, 4), types.operands),
                                                      ((4, 2), types.operands),
                                                      ((3, 2), types.output)))
    (_a, at_a), (_b, at_b), (view, at_c) = (column_major(x, 4) for x in (a, b, c))
    pointers.gemm_ex("N", "N", 3, 2, 4, 2, at_a, types.operands, 4, at_b, types.operands, 4, -1,
                     at_c, types.output, 4, types.compute, device="host")
    check(view, a, b, types.output, alpha=2, beta=-1, c=c, compute=types.compute)
    pointers.gemm_strided_batched_ex("N", "N", 3, 2, 4, 2, at_a, a.dtype, 4, 0, at_b, b.dtype, 4, 0,
                                     0, at_c, c.dtype, 4, 8, 1, device="host")
    check(view, a, b, types.output, alpha=2)


def test_ctypes_pointers():
    x, y, z = (ctypes.c_double * 4)(1, 2, 3, 4), (ctypes.c_double * 4)(1, 0, 0, 1), (ctypes.c_double * 4)()
    pointers.dgemm("N", "N", 2, 2, 2, 1, x, 2, ctypes.c_void_p(ctypes.addressof(y)), 2, 0,
                   ctypes.pointer(z), 2, device="host")
    assert list(z) == [1, 2, 3, 4]


def test_nothing_is_touched_where_there_is_nothing_to_do():
    pointers.sgemm("N", "N", 0, 5, 3, 1, 0, 1, 0, 3, 0, 0, 1, device="host")
    z = np.full((2, 2), 3.0, order="F")
    pointers.dgemm("N", "N", 2, 2, 0, 1, 0, 2, 0, 1, 2, z.ctypes.data, 2, device="host")
    assert (z == 6).all()


GOOD = {"transa": "N", "transb": "N", "m": 3, "n": 4, "k": 5, "alpha": 1.0, "a": 0, "lda": 3,
        "b": 0, "ldb": 5, "beta": 0.0, "c": 0, "ldc": 3}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"transa": "X"}, r"sgemm: argument 1 \(transa\) is 'X', but it has to be 0 or 'N'"),
        ({"transb": 7}, r"argument 2 \(transb\) is 7"),
        ({"m": -1}, r"argument 3 \(m\) is -1, but it has to be at least 0"),
        ({"n": 1.5}, r"argument 4 \(n\) is 1.5, but it has to be an integer"),
        (
            {"k": 2**60},
            r"argument 5 \(k\) is .*, but its absolute value has to be less than 281474976710656"
        ),
        ({"alpha": 1j}, r"argument 6 \(alpha\) is 1j, but it has to be a real number"),
        ({"alpha": "x"}, r"argument 6 \(alpha\) is 'x'"),
        ({"a": None}, r"argument 7 \(a\) is None, but it has to be an address"),
        ({"a": 0}, r"argument 7 \(a\) is 0, but it has to be the address of a matrix"),
        (
            {"a": "between elements"},
            r"argument 7 \(a\) is \d+, but it has to be a multiple of 4, the size of an element"
        ),
        ({"a": -4}, r"argument 7 \(a\) is -4"),
        ({"lda": 2}, r"argument 8 \(lda\) is 2, but it has to be at least max\(1, m\) = 3"),
        ({"transa": "T"}, r"argument 8 \(lda\) is 3, but it has to be at least max\(1, k\) = 5"),
        (
            {"transb": "C", "ldb": 3},
            r"argument 10 \(ldb\) is 3, but it has to be at least max\(1, n\) = 4"
        ),
        ({"beta": [1]}, r"argument 11 \(beta\) is a list, but it has to be a real number"),
        ({"c": "x"}, r"argument 12 \(c\) is 'x'"),
        ({"ldc": 0}, r"argument 13 \(ldc\) is 0, but it has to be at least max\(1, m\) = 3"),
        (
            {"device": "gpu"},
            "takes 'host', the number of a CUDA device or None as device, got 'gpu'"
        ),
        ({"device": -1}, "as device, got -1"),
        ({"c": "in a"}, "writes c while it uses a, but they share memory"),
        ({"stream": 0}, "takes a stream for arrays on a CUDA device")
    ],
    ids=str
)
def test_refusals(wrong, message):
    # were a wrong call not refused, it would read and write here
    memory = np.zeros(256, np.float32)
    base = memory.ctypes.data
    arguments = {**GOOD, **{name: base + 256 * i for i, name in enumerate("abc")}, "device": "host",
                 **wrong}
    if wrong == {"c": "in a"}:
        arguments["c"] = base + 4
    if wrong == {"a": "between elements"}:
        arguments["a"] = base + 2
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        pointers.sgemm(**arguments)
    assert "\n" not in str(caught.value)


def test_refused_types():
    arguments = ("N", "N", 1, 1, 1, 1, 4096)
    with pytest.raises(
        TypeError,
        match=r"argument 11 \(b_type\) is 'float64', but it has to be float32, as a_type is"
    ):
        pointers.gemm_ex(*arguments, "float32", 1, 4096, "float64", 1, 0, 4096, "float32", 1,
                         device="host")
    with pytest.raises(
        TypeError, match=r"argument 8 \(a_type\) is 'int64', but it has to be one of float32, "
    ):
        pointers.gemm_ex(*arguments, "int64", 1, 4096, "int64", 1, 0, 4096, "int64", 1,
                         device="host")
    with pytest.raises(
        TypeError,
        match=r"argument 15 \(c_type\) is 'float32', but products of int8 have type int32"
    ):
        pointers.gemm_ex(*arguments, "int8", 1, 4096, "int8", 1, 0, 4096, "float32", 1,
                         device="host")
    with pytest.raises(
        TypeError,
        match=r"argument 17 \(compute_type\) is 'float16', but products of float16 into float32 are summed"
    ):
        pointers.gemm_ex(*arguments, "float16", 1, 4096, "float16", 1, 0, 4096, "float32", 1,
                         "float16", device="host")
    with pytest.raises(
        TypeError,
        match=r"argument 8 \(a_type\) is 'floaty', but it has to be the name of an element type"
    ):
        pointers.gemm_ex(*arguments, "floaty", 1, 4096, "float16", 1, 0, 4096, "float32", 1,
                         device="host")
