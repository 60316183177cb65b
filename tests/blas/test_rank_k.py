"""``ssyrk``, ``cherk``, ``ssyr2k``, ``cher2k`` and their kin: one triangle, the other one as it
is."""

import numpy as np
import pytest

import cuteblas
from cuteblas import blas
from cuteblas.blas.signatures import rows

RANK_K = [getattr(blas, row.name) for row in rows("syrk", "herk")]
RANK_2K = [getattr(blas, row.name) for row in rows("syr2k", "her2k")]
UNIT = {"f": 2.0**-24, "d": 2.0**-53, "F": 2.0**-24, "D": 2.0**-53}
TYPE = {"s": "f", "d": "d", "c": "F", "z": "D"}


def of_type(rng, kind, *shape):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if kind in "FD" else x).astype(kind)


def turned(name, x):
    """The transpose that a routine multiplies by."""
    return x.conj().T if name[1:3] == "he" else x.T


def expected(name, alpha, a, b, beta, c, trans, lower):
    """The result in twice the precision, and the scale of its errors."""
    wide = {"f": "d", "d": "longdouble", "F": "D", "D": "clongdouble"}[a.dtype.char]
    a, b = (turned(name, x.astype(wide)) if trans else x.astype(wide)
            for x in (a, a if b is None else b))
    twice = "2k" in name
    product = alpha * (a @ turned(name, b))
    scale = abs(alpha) * (abs(a) @ abs(b).T)
    if twice:
        product, scale = product + (np.conj(alpha) if name[1:3] == "he"
                                    else alpha) * (b @ turned(name, a)), scale + scale.T
    before = c.astype(wide)
    if name[1:3] == "he":
        np.fill_diagonal(before, before.diagonal().real)
    written = np.tri(len(c), dtype=bool) if lower else np.tri(len(c), dtype=bool).T
    return written, product + beta * before, scale + abs(beta * before)


def check(name, result, before, a, alpha, b, beta, trans, lower):
    written, want, scale = expected(name, alpha, a, b, beta, before, trans, lower)
    limit = (6 + 2 * np.sqrt(a.size / len(before))) * UNIT[a.dtype.char]
    assert (abs(result - want) <= limit * scale)[written].all()
    there = before.copy()
    if name[1:3] == "he":
        assert (result.diagonal().imag == 0).all()
        written = written | np.eye(len(before), dtype=bool)
    np.testing.assert_array_equal(result[~written], there[~written])


@pytest.mark.parametrize("routine", [*RANK_K, *RANK_2K], ids=lambda f: f.__name__)
@pytest.mark.parametrize("trans, lower, overwrite, order", [(0, 0, 0, "C"), (1, 1, 1, "F"),
                                                            (0, 1, 1, "C"), (1, 0, 0, "F")])
@pytest.mark.parametrize("backend", ["numpy", "emulator"])
def test_triangles_transpositions_and_targets(routine, backend, trans, lower, overwrite, order):
    if backend == "emulator" and not cuteblas.emulator.available():
        pytest.skip(cuteblas.emulator.why_unavailable())
    name, rng = routine.__name__, np.random.default_rng(1)
    kind, twice = TYPE[name[0]], "2k" in name
    alpha = 1.5 - 0.5j if kind in "FD" and (twice or "sy" in name) else 1.5
    trans = 2 * trans if name[1:3] == "he" else trans
    a, b = (of_type(rng, kind, *((17, 70) if trans else (70, 17))) for _ in "ab")
    c = np.array(of_type(rng, kind, 70, 70), order=order)
    before, factors = c.copy(), (a, b) if twice else (a,)
    with cuteblas.backend(backend):
        new = routine(alpha, *factors, trans=trans, lower=lower)
        result = routine(alpha, *factors, -0.5, c, trans=trans, lower=lower,
                         overwrite_c=overwrite)
    assert (result is c) == bool(overwrite) and new.flags.f_contiguous
    if not overwrite:
        np.testing.assert_array_equal(c, before)
    check(name, result, before, a, alpha, b if twice else None, -0.5, trans, lower)
    check(name, new, np.zeros_like(before), a, alpha, b if twice else None, 0, trans, lower)


@pytest.mark.parametrize("routine", [*RANK_K, *RANK_2K], ids=lambda f: f.__name__)
def test_against_scipy(routine):
    scipy_blas = pytest.importorskip("scipy.linalg.blas")
    name, rng = routine.__name__, np.random.default_rng(2)
    kind = TYPE[name[0]]
    factors = [of_type(rng, kind, 9, 5) for _ in range(2 if "2k" in name else 1)]
    c = np.asfortranarray(of_type(rng, kind, 9, 9))
    for lower in (0, 1):
        want = getattr(scipy_blas, name)(2, *factors, 0.5, c, lower=lower)
        np.testing.assert_allclose(routine(2, *factors, 0.5, c, lower=lower), want, rtol=0,
                                   atol=1e-4 if kind in "fF" else 1e-12)


def test_nothing_is_read_that_is_not_used():
    a, c = np.full((4, 3), np.nan), np.full((4, 4), np.nan)
    assert np.isnan(blas.dsyrk(1, np.ones((4, 3)), 0, c)[np.tri(4, k=-1, dtype=bool)]).all()
    np.testing.assert_array_equal(np.triu(blas.dsyrk(1, np.ones((4, 3)), 0, c)[:2, 2:]),
                                  np.triu(np.full((2, 2), 3.0)))
    np.testing.assert_array_equal(blas.dsyrk(0, a), np.zeros((4, 4)))
    np.testing.assert_array_equal(blas.dsyrk(1, np.ones((3, 0))), np.zeros((3, 3)))
    assert blas.dsyrk(1, np.ones((0, 3))).shape == (0, 0)


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
@pytest.mark.parametrize("routine", [f for f in (*RANK_K, *RANK_2K) if "he" in f.__name__],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("imaginary", [3.0, np.inf, np.nan])
def test_the_diagonal_of_a_hermitian_matrix_is_real(routine, backend, imaginary):
    """Whatever imaginary parts C has there; sums, and beta times C, are real to the bit."""
    if backend == "emulator" and not cuteblas.emulator.available():
        pytest.skip(cuteblas.emulator.why_unavailable())
    name, rng = routine.__name__, np.random.default_rng(4)
    kind, twice = TYPE[name[0]], "2k" in name
    factors = [of_type(rng, kind, 33, 50) for _ in range(1 + twice)]
    c = of_type(rng, kind, 33, 33)
    c.imag[np.diag_indices(33)] = imaginary
    for lower in (0, 1):
        with cuteblas.backend(backend):
            result = routine(1.5, *factors, -0.5, c, lower=lower)
        before = c.copy()
        before.imag[np.diag_indices(33)] = 0
        check(name, result, before, factors[0], 1.5, factors[1] if twice else None, -0.5, 0, lower)


def test_refusals():
    a = np.ones((3, 2))
    for call, words in ((lambda: blas.zherk(1j, a.astype("D")), "real number as alpha"),
                        (lambda: blas.zher2k(1, *[a.astype("D")] * 2, beta=1j,
                                             c=np.ones((3, 3), "D")), "real number as beta"),
                        (lambda: blas.zherk(1, a.astype("D"), trans=1), "as trans, got"),
                        (lambda: blas.zsyrk(1, a.astype("D"), trans=2), "as trans, got"),
                        (lambda: blas.zsyrk(1, a.astype("D"), trans="Q"),
                         "takes 0 or 'N', 1 or 'T' as trans, got 'Q'"),
                        (lambda: blas.dsyrk(1, np.ones((2, 3, 2))),
                         "takes a matrix as a, but it has shape"),
                        (lambda: blas.dsyr2k(1, a, np.ones((3, 4))),
                         r"of one shape, got a \(3, 2\) and b \(3, 4\)"),
                        (lambda: blas.dsyrk(1, a, 1, np.ones((4, 4))),
                         r"takes c of \(n, n\) = \(3, 3\), .* \(4, 4\): a \(3, 2\)$"),
                        (lambda: blas.dsyrk(1, a, 1, np.ones((3, 3)), trans=1),
                         r"\(2, 2\), .*: a \(3, 2\) with trans='T'$"),
                        (lambda: blas.dsyrk(1, a, 1, np.ones((1, 1))), "has shape")):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(
        TypeError, match=r"but it is float32: call ssyrk, or convert it by a.astype\('float64'\)"
    ):
        blas.dsyrk(1, a.astype("f"))
    with pytest.raises(TypeError, match="but it is float64: call dsyrk, or convert it"):
        blas.zherk(1, a)
    with pytest.raises(TypeError, match="but it is int8: convert it"):
        blas.zherk(1, a.astype("b"))
    with pytest.raises(TypeError, match="b is None"):
        blas.dsyr2k(1, a, None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("routine", RANK_2K)
def test_infinities_do_not_warn(routine):
    a, b = np.array([[[np.inf], [1], [2]], [[-np.inf], [1], [0]]], TYPE[routine.__name__[0]])
    assert np.isnan(routine(1, a, b)[0, 1])


def test_arrays_of_ours():
    a = cuteblas.asarray(np.arange(6.0).reshape(3, 2))
    result = blas.dsyrk(1, a, lower=1)
    assert type(result) is cuteblas.ndarray
    np.testing.assert_array_equal(
        np.asarray(result), np.tril(np.arange(6.0).reshape(3, 2) @ np.arange(6.0).reshape(3, 2).T)
    )
