"""What alpha, beta and the extent K decide: which operands are read, and that a sum of nothing is
zero.

``alpha A B + beta C`` has neither A nor B where alpha or K is zero, whatever else they are, and no
C where beta is zero.
"""

from __future__ import annotations

from itertools import product

import ml_dtypes  # noqa: F401      NumPy knows bfloat16 by name from here on
import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas import pointers
from cuteblas.blas.types import ROUTINES
from cuteblas.functions.epilogues import epilogue
from cuteblas.planning import H200, GemmProblem, Operand, plan_contraction
from cuteblas.planning.problem import ContractionProblem, Storage

nan, inf = np.nan, np.inf
M = 3
ALPHAS, BETAS, POISONED = (0, 1, 2, nan, inf), (0, 1, 3, nan), ("", "a", "b", "c")
FEW = {"alphas": (0, 2, nan), "betas": (0, 3)}
COMPLEX = (complex(nan, 0), complex(0, nan), complex(1, inf), 2 - 1j)
TYPES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
TYPE = {name: types.operands for name, types in ROUTINES.items()}
VECTORS = [*(f"{t}gemv" for t in "sdcz"), "sger", "dger", "cgeru", "cgerc", "zgeru", "zgerc"]
TRIANGLES = [f"{t}{name}" for name, types in (("syrk", "sdcz"), ("syr2k", "sdcz"), ("herk", "cz"),
                                              ("her2k", "cz")) for t in types]


@epilogue
def shifted(acc, *, by):
    return acc + by


@epilogue
def own(acc, c, *, alpha, beta):
    return np.where(alpha == alpha, alpha * acc, 7) + beta * c


def type_of(name):
    return TYPE.get(name) or TYPES[name[0]]


def gemm_by(name, alpha, a, b, beta, c, back):
    return getattr(blas, name)(alpha, a, b, beta, c)


def in_place(name, alpha, a, b, beta, c, back):
    return getattr(blas, name)(alpha, a, b, beta if c is not None else 0, c,
                               overwrite_c=c is not None)


def by_plan(name, alpha, a, b, beta, c, back):
    return blas.plan(a, b, c, alpha=alpha, beta=beta).execute(a, b, c, alpha=alpha, beta=beta)


def by_plan_for_another_number(name, alpha, a, b, beta, c, back):
    usual = 5 if not hasattr(alpha, "shape") and alpha not in (0, 1) else alpha
    return blas.plan(a, b, c, alpha=usual, beta=beta).execute(a, b, c, alpha=alpha, beta=beta)


def in_a_batch(name, alpha, a, b, beta, c, back):
    return blas.gemm_batched(alpha, a[None], b, beta, c)[0]


def in_a_group(name, alpha, a, b, beta, c, back):
    first, second, _other = blas.gemm_grouped([alpha, alpha, 2], [a, a, a[:2]], [b, b, b],
                                              [beta, beta, 0], None if c is None else [c, c, None])
    np.testing.assert_array_equal(back(first).astype("complex128"),
                                  back(second).astype("complex128"))
    return first


def with_an_epilogue(name, alpha, a, b, beta, c, back):
    return getattr(blas, name)(alpha, a, b, beta if c is not None else 0, c, epilogue=shifted(by=0))


def by_addresses(name, alpha, a, b, beta, c, back):
    if c is None:
        return getattr(blas, name)(alpha, a, b)
    address = (lambda x: x.ctypes.data) if isinstance(a, np.ndarray) else (lambda x: x.data.ptr)
    a, b, c = (x.T.copy().T for x in (a, b, c))
    m, n, k = *c.shape, a.shape[1]
    getattr(pointers, name)("N", "N", m, n, k, alpha, address(a), m, address(b), max(1, k), beta,
                            address(c), m, device="host" if isinstance(a, np.ndarray) else None)
    return c


WAYS = {f.__name__: f for f in (gemm_by, in_place, by_plan, by_plan_for_another_number, in_a_batch,
                                in_a_group, with_an_epilogue, by_addresses)}


def operands(name, k, poison, beta):
    """A (m, k), B (k, n) and C, of small numbers whose sums are not zero, with a NaN in one of
    them."""
    rng, kind = np.random.default_rng(1), type_of(name)
    arrays = {"a": rng.integers(1, 4, (M, k)), "b": rng.integers(1, 4, (k, M)),
              "c": rng.integers(1, 4, (M, M))}
    for role, x in arrays.items():
        wanted = np.dtype("int32" if kind == "int8" and role == "c" else kind)
        arrays[role] = x.astype(wanted) * wanted.type(1 + 1j if wanted.kind == "c" else 1)
    if poison and arrays[poison].size:
        arrays[poison][0, -1] = complex(nan, nan) if arrays[poison].dtype.kind == "c" else nan
    return arrays["a"], arrays["b"], arrays["c"]


def combined(alpha, sums, beta, c, k, dtype):
    """The definition."""
    with np.errstate(all="ignore"):
        total = sums * dtype.type(alpha) if k and alpha != 0 else np.zeros_like(sums)
        return total if c is None or beta == 0 else total + c * dtype.type(beta)


def cases(name, alphas=ALPHAS, betas=BETAS):
    integral, is_complex = type_of(name) == "int8", type_of(name).startswith("complex")
    for alpha, beta, poison, k, with_c in product(alphas, betas, POISONED, (0, 4), (True, False)):
        if (integral and (poison or not np.isfinite([alpha, beta]).all())) or (
            poison == "c" and not with_c
        ):
            continue
        yield alpha, beta, poison, k, with_c
    if is_complex and "her" not in name:
        yield from product(COMPLEX, (0, COMPLEX[0], 2 - 1j), ("", "c"), (0, 4), (True,))


def check_product(name, way, case, there=lambda x: x, back=np.asarray, device=False):
    alpha, beta, poison, k, with_c = case
    a, b, c = operands(name, k, poison, beta)
    sums = np.dtype(ROUTINES[name].compute)
    want = combined(alpha, a.astype(sums) @ b.astype(sums), beta,
                    c.astype(sums) if with_c else None, k, sums)
    given = [there(np.array(x, sums)) if device else x for x in (alpha, beta)]
    got = WAYS[way](name, given[0], there(a), there(b), given[1], there(c) if with_c else None,
                    back)
    np.testing.assert_array_equal(back(got).astype(sums), want.astype(c.dtype).astype(sums),
                                  err_msg=str(case))


def check_vector(name, case, there=lambda x: x, back=np.asarray):
    alpha, beta, poison, k, with_c = case
    a, b, c = operands(name, k, poison, beta)
    if "ger" in name:
        if not k or beta not in (0, 1):
            return
        x, y, before = a[:, 0], b[0], c if with_c and beta else None
        want = combined(alpha, np.outer(x, y.conj() if name.endswith("c") else y), 1, before, 1,
                        a.dtype)
        got = getattr(blas, name)(alpha, there(x.copy()), there(y.copy()),
                                  a=None if before is None else there(before))
    else:
        x, y = b[:, -1].copy(), c[:, -1].copy() if with_c else None
        want = combined(alpha, a @ x, beta, y, k, a.dtype)
        got = getattr(blas, name)(alpha, there(a), there(x), beta, None if y is None else there(y))
    np.testing.assert_array_equal(back(got), want, err_msg=str(case))


def check_triangle(name, case, lower, there=lambda x: x, back=np.asarray):
    alpha, beta, poison, k, with_c = case
    if poison == "b" and "2k" not in name:
        return
    a, b, c = operands(name, k, poison, beta)
    hermitian = "her" in name
    other = b.T if "2k" in name else a
    turned = [x.conj().T if hermitian else x.T for x in (a, other)]
    want = combined(alpha, a @ turned[1], beta, c if with_c else None, k, a.dtype)
    if "2k" in name:
        with np.errstate(all="ignore"):
            want = want + combined(np.conj(alpha) if hermitian else alpha, other @ turned[0], 0,
                                   None, k, a.dtype)
    if hermitian:
        diagonal = combined(alpha, (a @ turned[1]).diagonal().real, beta,
                            c.diagonal().real if with_c else None, k, a.real.dtype)
        if "2k" in name:
            with np.errstate(all="ignore"):
                diagonal = diagonal + combined(alpha, (other @ turned[0]).diagonal().real, 0, None,
                                               k, a.real.dtype)
        np.fill_diagonal(want, diagonal)
        if not poison:
            c.imag[np.diag_indices(M)] = nan                              # not read
    factors = [there(np.ascontiguousarray(x)) for x in ((a, other) if "2k" in name else (a,))]
    got = back(getattr(blas, name)(alpha, *factors, beta, there(c) if with_c else None,
                                   lower=lower))
    written = np.tri(M, dtype=bool) if lower else np.tri(M, dtype=bool).T
    np.testing.assert_array_equal(got[written], want[written], err_msg=str(case))
    assert not hermitian or (got.diagonal().imag == 0).all(), case
    before = c if with_c else np.zeros_like(c)
    np.testing.assert_array_equal(got[~written], before[~written], err_msg=str(case))


BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROUTINES)
def test_products(name, way):
    usual = way == "gemm_by"
    for case in cases(name) if usual else cases(name, **FEW):
        check_product(name, way, case)
        if case[2] in ("", "a"):
            check_product(name, way, case, device=True)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name):
    for case in cases(name):
        check_vector(name, case)


@pytest.mark.parametrize("name", TRIANGLES)
def test_triangles(name):
    for case in cases(name):
        check_triangle(name, case, case[3] == 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_epilogue_that_takes_alpha_gets_it_as_it_is(backend):
    a, b, c = np.ones((2, 0), np.float32), np.ones((0, 2), np.float32), np.ones((2, 2), np.float32)
    with cuteblas.backend(backend):
        for alpha, want in ((nan, 7 + 3), (2, 3)):
            for scalar in (alpha, np.array(alpha, np.float32)):
                assert (blas.sgemm(scalar, a, b, 3, c, epilogue=own) == want).all()


@epilogue
def with_alpha(acc, *, alpha):
    return acc + alpha


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_group_knows_alphas_of_zero(backend):
    a, b = np.full((2, 3), nan, np.float32), np.ones((3, 2), np.float32)
    with cuteblas.backend(backend):
        for alphas in ([0, 0], [0, 2]):
            first, second = blas.gemm_grouped(alphas, [a, b.T], [b, b], epilogue=with_alpha)
            assert (first == 0).all() and (second == (5 if alphas[1] else 0)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_is_not_multiplied_by(backend):
    c, one = np.full((2, 2), complex(inf, 1), np.complex64), np.ones((2, 1), np.complex64)
    with cuteblas.backend(backend):
        for result in (blas.cgemm(2, one, one.T, 1, c),
                       blas.cgemm(2, one, one.T, 1, c.copy(), overwrite_c=1),
                       blas.cgemm(0, one, one.T, 1, c),
                       blas.cgemm(2, one, one.T, 1, c, epilogue=shifted(by=0))):
            assert (result.real == inf).all() and np.isfinite(result.imag).all()


def test_a_plan_of_an_empty_sum_takes_no_alpha():
    x = Operand("float32", (1, 1))
    for kind in ("zero", "one", "value", "device"):
        assert GemmProblem(3, 3, 0, x, x, x, alpha=kind, beta="device").roles == (
            "a",
            "b",
            "c",
            "beta"
        )
        plan = plan_contraction(ContractionProblem(((3, 1, 3),), ((3, 1, 1),),
                                                   ((2, 1, 1), (0, 1, 1)),
                                                   *[Storage("float32")] * 3, alpha=kind,
                                                   beta="value"), H200)
        assert {x.role for launch in plan.launches for x in launch.arguments} == {
            None,
            "a",
            "b",
            "c",
            "beta"
        }


needs_compiler = pytest.mark.skipif(not emulator.available(),
                                    reason="no C++ compiler for the emulator")
@needs_compiler
@pytest.mark.parametrize("name, way", [*(("sgemm", way) for way in WAYS),
                                       *((name, "gemm_by")
                                         for name in ("hgemm", "igemm", "cgemm"))])
def test_products_in_the_emulator(name, way):
    with cuteblas.backend("emulator"):
        for case in cases(name, **FEW):
            check_product(name, way, case)
            if way == "gemm_by" and case[2] in ("", "a"):
                check_product(name, way, case, device=True)


@needs_compiler
@pytest.mark.parametrize("name", ["sgemv", "cgerc", "ssyrk", "cherk", "cher2k"])
def test_vectors_and_triangles_in_the_emulator(name):
    with cuteblas.backend("emulator"):
        for case in cases(name, **FEW):
            if name in VECTORS:
                check_vector(name, case)
            else:
                check_triangle(name, case, case[0] == 0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*ROUTINES, *VECTORS, *TRIANGLES])
def test_on_a_gpu(name):
    import cupy

    for case in cases(name):
        if name in VECTORS:
            check_vector(name, case, cupy.asarray, cupy.asnumpy)
        elif name in TRIANGLES:
            check_triangle(name, case, case[3] == 0, cupy.asarray, cupy.asnumpy)
        else:
            for way in WAYS:
                check_product(name, way, case, cupy.asarray, cupy.asnumpy,
                              device=case[2] in ("", "a") and way != "in_a_batch")
