"""float32 and complex64 products with ``precision="auto"``, and float64 and complex128 ones with
``precision="modular"``, are as accurate as those of the library that a user would use instead.

On the GPU that is cuBLAS, on the emulator NumPy's BLAS on small products. Run it with
``pytest conformance/accuracy --backend cuda``.
"""

from __future__ import annotations

from math import sqrt
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import cuteblas
from cuteblas.engines.emulator import EMULATOR

from .grades import ROWS, Grade, Row, grade
from .inputs import CASES, Case

# A product of few terms is rounded a few times by either library; which of them has the smaller
# error is chance.
_LUCK, _LUCK_OF_MANY = 3.0, 4.5
_GROWING = 3.0
# Rows that are compared: with few rows, the errors of products in native arithmetic would be a
# matter of chance too.
_SAMPLED = {"emulator": 64, "cuda": 1024}
_SMALL = (24, 20, 200)
_LARGE = ((1536, 1280, 1024), (1024, 1024, 8192), (777, 1031, 2050))
_MOST_ELEMENTS = 2**25
_DEPTHS = (1, 16, 64, 65, 127, 128, 256, 257, 1000, 16384, 65536)

of_both_types = pytest.mark.parametrize("element", ["float32", "complex64"])
by_residues = pytest.mark.parametrize("element", ["float64", "complex128"])


@pytest.fixture(autouse=True)
def kernels_alone(backend: str) -> None:
    if backend not in ("emulator", "cuda"):
        pytest.skip("accuracy is that of the kernels: --backend emulator or cuda")


def graded(backend: str, element: str, case: Case, extents: tuple[int, int, int],
           orders: str = "NN", precision: str = "auto") -> Row:
    """Multiply by both libraries and keep the line for the table."""
    m, n, k = extents
    rng = np.random.default_rng([crc32(case.name.encode()), *extents])
    a, b = (np.asarray(x, order="C" if order == "N" else "F")
            for x, order in zip(case.of_type(element, rng, m, n, k), orders, strict=True))
    xp: Any = np
    if backend == "cuda":
        import cupy

        xp, a, b = cupy, cupy.asarray(a, order="A"), cupy.asarray(b, order="A")
    mine, again = (cuteblas.matmul(a, b, precision=precision) for _ in range(2))
    assert bool((mine == again).all()), "two runs differ"
    sample = rng.choice(m, min(m, _SAMPLED[backend] // (8 if element in ("float64", "complex128")
                                                        else 1)), replace=False)
    plan = cuteblas.explain(a, b, precision=precision).plan
    ours, theirs = (grade(xp, c, a, b, sample) for c in (mine, xp.matmul(a, b)))
    row = Row(element, case.name, extents, orders, plan.family if plan else "", ours, theirs)
    ROWS.append(row)
    return row


def not_worse(row: Row, allowance: float = 1.0) -> None:
    """The gate: no larger error than the other library's.

    Where both add in native arithmetic, in different orders, the mean errors agree and the largest
    one is a matter of chance.
    """
    ours, theirs = row.ours, row.theirs
    assert ours.rms <= max(allowance * theirs.rms * 1.02, _LUCK / 3), row
    native = ours.rms > 0.9 * theirs.rms
    assert ours.largest <= max(allowance * theirs.largest * (2 if native else 1), _LUCK), row


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@of_both_types
def test_small_products(backend: str, element: str, case: Case) -> None:
    precisions = ("fp16x3", "auto") if backend == "emulator" and "D^-1" not in case.name and "exp(4" not in case.name else ("auto",)
    for precision in precisions:
        # Other libraries cut even a short K into slices, which is worth a factor; tensor cores add
        # in the order of k.
        row = graded(backend, element, case, _SMALL, precision=precision)
        not_worse(row, allowance=5.0)
        assert not case.exact or row.ours == Grade(0.0, 0.0)


@pytest.mark.parametrize("extents", _LARGE, ids=lambda e: "x".join(map(str, e)))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@of_both_types
def test_large_products(backend: str, element: str, case: Case,
                        extents: tuple[int, int, int]) -> None:
    if backend != "cuda":
        pytest.skip("large products need a GPU")
    row = graded(backend, element, case, extents)
    not_worse(row)
    assert not case.exact or row.ours == Grade(0.0, 0.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@by_residues
def test_small_products_by_residues(backend: str, element: str, case: Case) -> None:
    row = graded(backend, element, case, _SMALL, precision="modular")
    assert row.algorithm == "gemm_modular"
    not_worse(row, allowance=5.0)
    assert not case.exact or row.ours == Grade(0.0, 0.0)


@pytest.mark.parametrize("extents", _LARGE, ids=lambda e: "x".join(map(str, e)))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@by_residues
def test_large_products_by_residues(backend: str, element: str, case: Case,
                                    extents: tuple[int, int, int]) -> None:
    if backend != "cuda":
        pytest.skip("large products need a GPU")
    row = graded(backend, element, case, extents, precision="modular")
    # the device left it to native arithmetic
    if row.ours != graded(backend, element, case, extents, precision="ieee").ours:
        not_worse(row)
    assert not case.exact or row.ours == Grade(0.0, 0.0)


@pytest.mark.parametrize("orders", ["NT", "TN", "TT"])
@of_both_types
def test_all_orders(backend: str, element: str, orders: str) -> None:
    if backend != "cuda":
        pytest.skip("large products need a GPU")
    for case in CASES[:2]:
        not_worse(graded(backend, element, case, _LARGE[0], orders))


@pytest.mark.parametrize("k", _DEPTHS)
@of_both_types
def test_depths(backend: str, element: str, k: int) -> None:
    if backend != "cuda":
        pytest.skip("large products need a GPU")
    for case in CASES[:2]:
        not_worse(graded(backend, element, case, (1024, 1024, k)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@of_both_types
def test_native_sums(backend: str, element: str, case: Case) -> None:
    """Small and large results, and every depth: errors of native arithmetic are no larger than the
    other library's."""
    if backend != "cuda":
        return native(backend, element, case, _SMALL)
    for extents in ((256, 192), (777, 1031), (1536, 1280), (64, 64)):
        for k in (*_DEPTHS, 192, 512, 1024, 4096):
            if max(extents) * k <= _MOST_ELEMENTS:
                native(backend, element, case, (*extents, k))
    return None


def native(backend: str, element: str, case: Case, extents: tuple[int, int, int]) -> None:
    """The gate of precision ``"ieee"``.

    Of few terms, each result is rounded a few times by either library; the largest of a hundred
    thousand errors is chance then. Sums that grow to the end of K are rounded less by chains that
    take turns than by chunks. The root of the mean of N squares has a standard error of 1 / sqrt(2
    N), of which three are allowed.
    """
    row = graded(backend, element, case, extents, precision="ieee")
    allowance = _GROWING if "growing" in case.name else 1.0
    chance = 1 + 3 / sqrt(2 * extents[0] * extents[1])
    assert row.ours.rms <= max(1.05 * chance * allowance * row.theirs.rms, 1.0), row
    assert row.ours.largest <= max(1.5 * allowance * row.theirs.largest, _LUCK_OF_MANY), row
    assert not case.exact or row.ours == Grade(0.0, 0.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans(backend: str, value: float) -> None:
    """They stay in their row and column, and are where float64 puts them; everything else is as
    accurate as without."""
    m, n, k = (1024, 1024, 1024) if backend == "cuda" else _SMALL
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    a[3, 5], b[7, 2] = value, value
    with np.errstate(invalid="ignore"):
        want = a.astype("f8") @ b.astype("f8")
    if backend == "cuda":
        import cupy

        got = cuteblas.matmul(cupy.asarray(a), cupy.asarray(b)).get()
    else:
        got = cuteblas.matmul(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    fine = np.isfinite(want)
    scale = abs(np.where(np.isfinite(a), a, 0)).astype("f8") @ abs(
        np.where(np.isfinite(b), b, 0)
    ).astype("f8")
    assert (abs(got - want)[fine] <= (8 + np.sqrt(k)) * 2.0**-24 * scale[fine]).all()


@pytest.mark.parametrize("value", [complex(np.inf, 1), complex(0, -np.inf), complex(np.nan, 0)])
def test_complex_infinities_and_nans(backend: str, value: complex) -> None:
    """They are where native arithmetic puts them, part by part."""
    m, n, k = (1024, 1024, 1024) if backend == "cuda" else _SMALL
    a, b = CASES[1].of_type("complex64", np.random.default_rng(1), m, n, k)
    a[3, 5], b[7, 2] = value, value
    xp: Any = np
    if backend == "cuda":
        import cupy as xp
    got, want = (cuteblas.matmul(xp.asarray(a), xp.asarray(b), precision=precision)
                 for precision in ("auto", "ieee"))
    if backend == "cuda":
        got, want = got.get(), want.get()
    np.testing.assert_array_equal(got.view("f4"), want.view("f4"))
    assert np.isfinite(got).sum() == (m - 1) * (n - 1)


@of_both_types
def test_the_emulator_runs_the_split_kernels(backend: str, element: str) -> None:
    """What the small products above ran on, so that a change of planning does not empty this
    suite."""
    if backend != "emulator":
        pytest.skip("about the emulator")
    a = np.ones((24, 200), element)
    plan = cuteblas.explain(a, np.ones((200, 20), element), precision="fp16x3").plan
    assert plan is not None and plan.family == "gemm_split" and EMULATOR.device(a).arch == "sm_90"
