"""Every routine against SciPy and the definition, on NumPy, in the emulator and on the GPU."""

from __future__ import annotations

import inspect
from itertools import product

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas.types import ROUTINES

from .operands import SCALARS, STORAGES, TRANS, check, placed, random, seen, small, stored_shape

SIZES = [(1, 1, 1), (5, 7, 3), (17, 8, 33)]
needs_compiler = pytest.mark.skipif(not emulator.available(),
                                    reason="no C++ compiler for the emulator")


def call(name, trans, storages, extents, alpha, beta, rng, *, batch=(), on_device=None,
         values=random):
    """Run a routine in place and compare with the definition; C is NaN where it must not be
    read."""
    types = ROUTINES[name]
    m, n, k = extents
    a, b = (values(rng, (*batch, *stored_shape(x, t)), types.operands)
            for x, t in zip(((m, k), (k, n)), trans, strict=True))
    c = values(rng, (*batch, m, n), types.output)
    reads_nan = 0 in (alpha, beta) and types.compute != "int32"
    stored = [placed(x, storage) for x, storage in zip((a, b, c), storages, strict=True)]
    if reads_nan and beta == 0:
        stored[2].view[...] = np.nan
    if reads_nan and alpha == 0:
        stored[0].view[...] = stored[1].view[...] = np.nan
    arrays = [x.view for x in stored]
    if on_device is not None:
        arrays = [on_device(x) for x in stored]
    result = getattr(blas, name)(alpha, arrays[0], arrays[1], beta, arrays[2], *trans,
                                 overwrite_c=1)
    assert result is arrays[2]
    got = result if on_device is None else result.get()
    check(got, seen(a, trans[0]), seen(b, trans[1]), types.output, alpha=alpha, beta=beta, c=c)
    if on_device is None:
        assert all(x.surroundings_are_untouched() for x in stored)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", ROUTINES)
def test_by_numpy(name, storage):
    rng = np.random.default_rng(1)
    others = [s for s in STORAGES if s != storage]
    for i, (trans, extents, scalars) in enumerate(product(product(TRANS, TRANS), SIZES,
                                                          SCALARS[name])):
        call(name, trans, (storage, others[i % 4], STORAGES[i % 5]), extents, *scalars, rng)


@pytest.mark.parametrize("extents", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("name", ROUTINES)
def test_empty(name, extents):
    rng = np.random.default_rng(2)
    for scalars in SCALARS[name]:
        for backend in ("numpy", "emulator") if emulator.available() else ("numpy",):
            with cuteblas.backend(backend):
                call(name, ("N", "T"), ("F", "F", "padded"), extents, *scalars, rng)


@pytest.mark.parametrize("name", ["sgemm", "dgemm", "cgemm", "zgemm"])
def test_like_scipy(name):
    theirs = getattr(pytest.importorskip("scipy.linalg.blas"), name)
    types, rng = ROUTINES[name], np.random.default_rng(3)
    for trans_a, trans_b, (alpha, beta) in product((0, 1, 2), (0, 1, 2), SCALARS[name]):
        a, b = (small(rng, stored_shape(x, "NTC"[t]), types.operands)
                for x, t in (((5, 3), trans_a), ((3, 4), trans_b)))
        c = small(rng, (5, 4), types.output)
        for given in (c, None, np.asfortranarray(c)):
            before = None if given is None else given.copy()
            want = theirs(alpha, a, b, beta, before, trans_a, trans_b, 0)
            got = getattr(blas, name)(alpha, a, b, beta, given, trans_a, trans_b, 0)
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype and got.flags.f_contiguous
            assert given is None or (given == c).all()
        fortran = np.asfortranarray(c)
        assert getattr(blas, name)(alpha, a, b, beta, fortran, trans_a, trans_b, 1) is fortran
        np.testing.assert_array_equal(fortran, theirs(alpha, a, b, beta, c, trans_a, trans_b, 0))


def test_signatures():
    positional = ["alpha", "a", "b", "beta", "c", "trans_a", "trans_b", "overwrite_c"]
    for name in (*ROUTINES, "gemm"):
        function = getattr(blas, name)
        parameters = inspect.signature(function).parameters.values()
        assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == positional
        assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} >= {
            "epilogue",
            "precision",
            "out",
            "stream",
            "variant"
        }
        assert function.__name__ == name and "Parameters" in function.__doc__


def test_results_are_fortran_ordered_matrices():
    a, b = np.ones((2, 3, 5, 4), np.float32), np.ones((3, 4, 6), np.float32)
    for backend in ("numpy", "emulator") if emulator.available() else ("numpy",):
        with cuteblas.backend(backend):
            result = blas.sgemm(1, a, b)
        assert result.shape == (2, 3, 5, 6) and result[1, 2].flags.f_contiguous and result.swapaxes(-1, -2).flags.c_contiguous


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 4, 5), (2, 3, 5)), ((3, 4), (2, 4, 5), (3, 5)),
                                    ((7, 1, 3, 4), (2, 4, 5), (1, 1, 3, 5)),
                                    ((0, 3, 4), (4, 5), (3, 5)), ((3, 4), (4, 5), (6, 3, 5))],
                         ids=str)
def test_batches_are_broadcast(shapes):
    rng = np.random.default_rng(4)
    a, b, c = (small(rng, shape, "float64") for shape in shapes)
    want = 2 * np.matmul(a, b) - c
    backends = ("numpy", "emulator") if emulator.available() else ("numpy",)
    for backend in backends:
        with cuteblas.backend(backend):
            np.testing.assert_array_equal(blas.dgemm(2, a, b, -1, c), want)
            out = np.full(want.shape, np.nan)
            assert blas.dgemm(2, a, b, -1, c, out=out) is out
            np.testing.assert_array_equal(out, want)


@needs_compiler
@pytest.mark.parametrize("name", ROUTINES)
def test_in_the_emulator(name):
    """A spread: each routine with all pairs of transpositions, each storage in each place."""
    rng = np.random.default_rng(5)
    scalars = [pair for pair in SCALARS[name] if pair[1] != 1]
    with cuteblas.backend("emulator"):
        for i, trans in enumerate(product(TRANS, TRANS)):
            if i % 5 and name not in ("sgemm", "zgemm"):
                continue
            storages = STORAGES[i % 5], STORAGES[i // 4], STORAGES[(i + 2) % 5]
            call(name, trans, storages, (17, 8, 33), *scalars[i % len(scalars)], rng)


@needs_compiler
def test_kernels_read_c_elsewhere_without_a_copy():
    rng = np.random.default_rng(6)
    a, b, c = (random(rng, shape, "float32") for shape in ((9, 5), (5, 7), (9, 7)))
    with cuteblas.backend("emulator"):
        cuteblas.reset_stats()
        before = c.copy()
        got = blas.sgemm(2, a, b, -1, c)
        np.testing.assert_array_equal(c, before)
        check(got, a, b, "float32", alpha=2, beta=-1, c=c)
        assert "copies" not in cuteblas.stats()["sgemm"]


def test_counters_have_the_routines_name():
    cuteblas.reset_stats()
    blas.dgemm(1, np.eye(2), np.eye(2))
    blas.gemm(1, np.eye(2), np.eye(2))
    blas.gemm(1, np.empty((0, 2)), np.eye(2))
    assert cuteblas.stats() == {"dgemm": {"calls": {"numpy": 1}},
                                "gemm": {"calls": {"numpy": 1, "nothing": 1}}}


@pytest.mark.gpu
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", ROUTINES)
def test_on_the_gpu(name, storage):
    import cupy

    def on_device(x):
        memory = cupy.asarray(x.buffer)
        offset = x.view.__array_interface__["data"][0] - x.buffer.ctypes.data
        return cupy.ndarray(x.view.shape, x.view.dtype, memory.data + offset, x.view.strides)

    rng = np.random.default_rng(7)
    others = [s for s in STORAGES if s != storage]
    for i, (trans, extents, scalars) in enumerate(product(product(TRANS, TRANS),
                                                          [*SIZES, (130, 65, 70)], SCALARS[name])):
        call(name, trans, (storage, others[i % 4], STORAGES[i % 5]), extents, *scalars, rng,
             on_device=on_device)
