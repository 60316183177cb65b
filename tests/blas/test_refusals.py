"""Wrong calls: one sentence each, of a type that says whose fault it is, before anything is
written."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator

F, D, Z, E, I8 = np.float32, np.float64, np.complex128, np.float16, np.int8
a, b, c = np.ones((3, 4), F), np.ones((4, 5), F), np.ones((3, 5), F)
read_only = c.copy()
read_only.flags.writeable = False
square = np.ones((4, 4), F)
overlapping = np.lib.stride_tricks.as_strided(np.zeros(16, F), (4, 4), (8, 4))
repeated = np.lib.stride_tricks.as_strided(np.zeros(1, F), (4,), (0,))
tall, wide = np.ones((6, 5), F), np.ones((3, 10), F)
unaligned = np.zeros(49, np.uint8)[1:].view(F).reshape(3, 4)

CALLS = [
    # the operands
    (
        TypeError,
        "sgemm takes arrays and lists of numbers, but a is None",
        blas.sgemm,
        (1, None, b),
        {}
    ),
    (
        TypeError,
        "sgemm takes arrays and lists of numbers, but b is a dict",
        blas.sgemm,
        (1, a, {}),
        {}
    ),
    (
        TypeError,
        "sgemm takes arrays and lists of numbers, but a is a str",
        blas.sgemm,
        (1, "ab", b),
        {}
    ),
    (TypeError, "a is a list whose elements are <U1", blas.sgemm, (1, ["a"], b), {}),
    (ValueError, "rows of a differ in length", blas.sgemm, (1, [[1, 2], [3]], b), {}),
    (ValueError, r"a has shape \(\)", blas.dgemm, (1, 2.0, np.ones((4, 5))), {}),
    (ValueError, r"takes matrices.*a has shape \(4,\)", blas.sgemm, (1, a[0], b), {}),
    (ValueError, r"b has shape \(4,\)", blas.sgemm, (1, a, b[:, 0]), {}),
    (
        TypeError,
        "cannot leave out masked elements, but a is a masked array",
        blas.sgemm,
        (1, np.ma.array(a), b),
        {}
    ),
    # types
    (
        TypeError,
        r"sgemm takes a in float32, but it is float64: call dgemm or gemm, or convert it by a.astype\('float32'\)",
        blas.sgemm,
        (1, a.astype(D), b),
        {}
    ),
    (TypeError, "dgemm takes b in float64, but it is float32", blas.dgemm, (1, a.astype(D), b), {}),
    (TypeError, "sgemm takes a in float32, but it is >f4", blas.sgemm, (1, a.astype(">f4"), b), {}),
    (
        TypeError,
        "sgemm takes a in float32, but it is complex128: call zgemm or gemm$",
        blas.sgemm,
        (1, a.astype(Z), b),
        {}
    ),
    (
        TypeError,
        "sgemm takes c in float32, but it is complex128",
        blas.sgemm,
        (1, a, b, 1, c.astype(Z)),
        {}
    ),
    (
        TypeError,
        "sgemm takes out in float32, but it is float64",
        blas.sgemm,
        (1, a, b),
        {"out": c.astype(D)}
    ),
    (
        TypeError,
        "sgemm takes float32 arrays, but a has complex elements",
        blas.sgemm,
        (1, [[1j] * 4], b),
        {}
    ),
    (
        TypeError,
        "igemm takes int8 arrays, but a has elements that are not integers",
        blas.igemm,
        (1, [[0.5]], [[1]]),
        {}
    ),
    (
        ValueError,
        "igemm takes int8 arrays, but a has elements outside -128 to 127",
        blas.igemm,
        (1, [[128]], [[1]]),
        {}
    ),
    (
        TypeError,
        r"gemm takes b in float16, but it is bfloat16: convert it by b.astype\('float16'\)$",
        blas.gemm,
        (1, a.astype(E), b.astype(ml_dtypes.bfloat16)),
        {}
    ),
    (
        TypeError,
        "^gemm multiplies arrays of float32, .*, not of float8_e4m3fn$",
        blas.gemm,
        (1, a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn)),
        {}
    ),
    (
        TypeError,
        "hgemm takes a in float16, but it is float8_e5m2: convert it by",
        blas.hgemm,
        (1, a.astype(ml_dtypes.float8_e5m2), b),
        {}
    ),
    (
        TypeError,
        "gemm multiplies arrays of float32, .*, not of int64",
        blas.gemm,
        (1, a.astype(int), b.astype(int)),
        {}
    ),
    (
        TypeError,
        "gemm of float64 arrays does not take dtype='float32'; it takes dtype='float64' summed in float64",
        blas.gemm,
        (1, a.astype(D), b.astype(D)),
        {"dtype": F}
    ),
    (
        TypeError,
        "takes the name of an element type as compute_dtype, got 'floaty'",
        blas.gemm,
        (1, a, b),
        {"compute_dtype": "floaty"}
    ),
    # scalars
    (
        TypeError,
        "sgemm computes in float32, so alpha has to be real, got complex128",
        blas.sgemm,
        (1j, a, b),
        {}
    ),
    (
        TypeError,
        "beta has to be real, got complex64",
        blas.sgemm,
        (1, a, b, np.complex64(1), c),
        {}
    ),
    (TypeError, "alpha has to be real, got complex128", blas.sgemm, (np.array(1 + 0j), a, b), {}),
    (
        TypeError,
        "igemm computes in int32, so alpha has to be an integer, got float64",
        blas.igemm,
        (1.5, a.astype(I8), b.astype(I8)),
        {}
    ),
    (
        ValueError,
        r"int32, which cannot hold beta = 2147483648",
        blas.igemm,
        (1, a.astype(I8), b.astype(I8), 2**31),
        {}
    ),
    (ValueError, "which cannot hold alpha: it has 1329 bits", blas.sgemm, (10**400, a, b), {}),
    (TypeError, "takes a number or a 0-d array as alpha, got str", blas.sgemm, ("1", a, b), {}),
    (TypeError, "as alpha, got NoneType", blas.sgemm, (None, a, b), {}),
    (TypeError, "as alpha, got list", blas.sgemm, ([1], a, b), {}),
    (
        ValueError,
        r"as beta, got an array of shape \(1,\)",
        blas.sgemm,
        (1, a, b, np.ones(1, F)),
        {}
    ),
    (TypeError, "as alpha, got datetime64", blas.sgemm, (np.datetime64("2020"), a, b), {}),
    # transposition and flags
    (ValueError, "sgemm takes 0 or 'N'.* as trans_a, got 3", blas.sgemm, (1, a, b), {"trans_a": 3}),
    (ValueError, "as trans_b, got 'X'", blas.sgemm, (1, a, b), {"trans_b": "X"}),
    (ValueError, "as trans_b, got ''", blas.sgemm, (1, a, b), {"trans_b": ""}),
    (ValueError, "as trans_b, got -1", blas.sgemm, (1, a, b), {"trans_b": -1}),
    (TypeError, "as trans_a, got float", blas.sgemm, (1, a, b), {"trans_a": 1.0}),
    (
        TypeError,
        "takes 0 or 1 as overwrite_c, got str",
        blas.sgemm,
        (1, a, b),
        {"overwrite_c": "N"}
    ),
    (ValueError, "takes 0 or 1 as overwrite_c, got 2", blas.sgemm, (1, a, b), {"overwrite_c": 2}),
    (
        ValueError,
        "precision is one of 'auto', .*, got 'fast'",
        blas.sgemm,
        (1, a, b),
        {"precision": "fast"}
    ),
    (ValueError, "there is no gemm variant 'fast'", blas.sgemm, (1, a, b), {"variant": "fast"}),
    (ValueError, "but the operands are on the host", blas.sgemm, (1, a, b), {"stream": 0}),
    (TypeError, "unexpected keyword argument 'trans'", blas.sgemm, (1, a, b), {"trans": 1}),
    (TypeError, "unexpected keyword argument 'dtype'", blas.sgemm, (1, a, b), {"dtype": F}),
    # shapes
    (
        ValueError,
        r"k is 4 in a and 5 in b: a \(3, 4\), b \(4, 5\) with trans_b='T'",
        blas.sgemm,
        (1, a, b),
        {"trans_b": 1}
    ),
    (
        ValueError,
        r"k is 3 in a and 4 in b: a \(3, 4\) with trans_a='C', b \(4, 5\)",
        blas.sgemm,
        (1, a, b),
        {"trans_a": "c"}
    ),
    (
        ValueError,
        r"takes c of \(m, n\) = \(3, 5\), but it has shape \(5, 3\)",
        blas.sgemm,
        (1, a, b, 1, c.T),
        {}
    ),
    (
        ValueError,
        r"takes c of \(m, n\) = \(3, 5\), but it has shape \(1, 5\)",
        blas.sgemm,
        (1, a, b, 1, c[:1]),
        {}
    ),
    (
        ValueError,
        r"takes out of shape \(3, 5\), but it has shape \(2, 3, 5\)",
        blas.sgemm,
        (1, a, b),
        {"out": np.ones((2, 3, 5), F)}
    ),
    (
        ValueError,
        r"batch dimensions, but those of a are \(2,\) and b are \(3,\)",
        blas.sgemm,
        (1, np.ones((2, 3, 4), F), np.ones((3, 4, 5), F)),
        {}
    ),
    (
        ValueError,
        r"with overwrite_c=1, but it has shape \(3, 5\) and the result \(2, 3, 5\)",
        blas.sgemm,
        (1, np.stack([a, a]), b, 1, c),
        {"overwrite_c": 1}
    ),
    # memory
    (
        ValueError,
        "sgemm writes into out, but out is read-only",
        blas.sgemm,
        (1, a, b),
        {"out": read_only}
    ),
    (
        ValueError,
        "sgemm writes into c, but c is read-only",
        blas.sgemm,
        (1, a, b, 0, read_only),
        {"overwrite_c": 1}
    ),
    (
        ValueError,
        "writes into out, but out is read-only",
        blas.sgemm,
        (1, a, b),
        {"out": np.broadcast_to(c[:1], (3, 5))}
    ),
    (
        ValueError,
        "elements of out share memory",
        blas.sgemm,
        (1, a, b),
        {"out": np.lib.stride_tricks.as_strided(c.copy(), (3, 5), (4, 4))}
    ),
    (
        ValueError,
        "elements of c share memory",
        blas.ssyrk,
        (1, square, 0, overlapping),
        {"overwrite_c": 1}
    ),
    (
        ValueError,
        "elements of a share memory",
        blas.sger,
        (1, square[0], square[0]),
        {"a": overlapping, "overwrite_a": 1}
    ),
    (
        ValueError,
        "elements of y share memory",
        blas.sgemv,
        (1, square, square[0], 0, repeated),
        {"overwrite_y": 1}
    ),
    (
        ValueError,
        "writes out while it uses a, but they share memory",
        blas.sgemm,
        (1, square, square.copy()),
        {"out": square}
    ),
    (
        ValueError,
        "writes c while it uses b, but they share memory",
        blas.sgemm,
        (1, square.copy(), square, 1, square.T),
        {"overwrite_c": 1}
    ),
    (
        ValueError,
        "writes out while it reads c.*not the same elements",
        blas.sgemm,
        (1, square.copy(), square.copy(), 1, square.T),
        {"out": square}
    ),
    # the first element and one stride, or the other, are the same
    (
        ValueError,
        "writes out while it reads c.*not the same elements",
        blas.sgemm,
        (1, a, b, 1, tall[:3]),
        {"out": tall[::2]}
    ),
    (
        ValueError,
        "writes out while it reads c.*not the same elements",
        blas.sgemm,
        (1, a, b, 1, wide[:, :5]),
        {"out": wide[:, ::2]}
    ),
    (ValueError, "writes out while it uses alpha", blas.sgemm, (c[0, 0, ...], a, b), {"out": c}),
    (
        ValueError,
        "takes out or overwrite_c=1, but not both",
        blas.sgemm,
        (1, a, b, 0, c),
        {"out": c.copy(), "overwrite_c": 1}
    ),
    (
        ValueError,
        "needs c, because beta is not 0; to update out in place, pass it as c, too",
        blas.sgemm,
        (1, a, b, 1),
        {"out": c}
    ),
    (
        TypeError,
        "updates an array in place with overwrite_c=1, but c is a list",
        blas.sgemm,
        (1, a, b, 1, c.tolist()),
        {"overwrite_c": 1}
    ),
    (TypeError, "takes an array as out, got a list", blas.sgemm, (1, a, b), {"out": c.tolist()}),
]


@pytest.mark.parametrize("kind, message, function, arguments, keywords", CALLS,
                         ids=lambda x: re.sub(r"[^ \w]", "", x)[:50] if isinstance(x, str) else "")
@pytest.mark.parametrize("backend", ["numpy", "emulator"])
def test_refusals(kind, message, function, arguments, keywords, backend):
    before = [x.copy() for x in (a, b, c, square)]
    with cuteblas.backend(backend), pytest.raises(kind, match=message) as caught:
        function(*arguments, **keywords)
    assert type(caught.value) is kind and "\n" not in str(caught.value)
    for x, y in zip((a, b, c, square), before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_kernels_need_aligned_elements():
    np.testing.assert_array_equal(blas.sgemm(1, unaligned, b), 0)
    with cuteblas.backend("emulator"), pytest.raises(ValueError, match=r"those of a are not; pass cuteblas.copy\(a\)"):
        blas.sgemm(1, unaligned, b)


def test_variants_need_kernels():
    from cuteblas.planning.variants import variants

    name = next(v.name for v in variants().values() if v.operation == "gemm")
    with pytest.raises(ValueError, match="names a kernel, but kernels run on a GPU"):
        blas.sgemm(1, a, b, variant=name)


@pytest.mark.parametrize("alpha", [2, 2.0, True, np.float32(2), np.float64(2), np.int8(2),
                                   np.float16(2), np.array(2.0), np.array(2, F), np.array(2),
                                   ml_dtypes.bfloat16(2)],
                         ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}")
def test_scalars(alpha):
    backends = ("numpy", "emulator") if emulator.available() else ("numpy",)
    want = float(alpha)
    for backend in backends:
        with cuteblas.backend(backend):
            np.testing.assert_array_equal(blas.sgemm(alpha, a, b), 4 * want)
            np.testing.assert_array_equal(blas.sgemm(1, a, b, alpha, c), 4 + want)
            np.testing.assert_array_equal(blas.zgemm(alpha, a.astype(Z), b.astype(Z)), 4 * want)


def test_scalars_that_vanish_in_the_routines_type_are_zero():
    poisoned = np.full((3, 4), np.nan, F)
    np.testing.assert_array_equal(blas.sgemm(1e-60, poisoned, b), 0)
    assert np.isinf(blas.sgemm(1e60, a, b)).all()


def test_lists_take_the_type_of_the_routine_or_of_the_other_operand():
    assert blas.sgemm(1, [[1, 2]], ((1,), (2,)), 1, [[3]]).tolist() == [[8.0]]
    assert blas.igemm(1, [[1, True]], [[1], [2]]).tolist() == [[3]]
    assert blas.gemm(1, [[1, 2]], [[1], [2]]).dtype == D
    assert blas.gemm(1, [[1, 2j]], [[1], [2]]).dtype == Z
    assert blas.gemm(1, a, np.ones((4, 2)).tolist()).dtype == F
    assert blas.gemm(1, np.ones((2, 4)).tolist(), b.astype(E)).dtype == E
    assert blas.bgemm(1, [[1, 2]], [[1], [2]]).dtype == ml_dtypes.bfloat16


class Named(np.ndarray):
    """A subclass that leaves arithmetic alone."""


def test_subclasses_of_arrays():
    out = c.copy().view(Named)
    assert blas.sgemm(1, a.view(Named), b, out=out) is out and (out == 4).all()
    assert type(blas.sgemm(1, a.view(Named), b)) is np.ndarray
