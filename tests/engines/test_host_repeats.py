"""Calls on NumPy arrays like earlier ones, which are neither checked nor resolved again."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas import blas
from cuteblas.engines import numpy_repeats

FACTOR = 2.0


@cuteblas.epilogue
def scaled(acc, *, bias, slope=0.5, shape="line"):
    y = acc * FACTOR + bias
    return np.where(y > 0, y, slope * y) if shape == "line" else -y


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(numpy_repeats, "_ready", {})


def values(rng, shape, dtype):
    return rng.integers(-5, 6, shape).astype(dtype)


def reference(alpha, a, b, beta, c, trans_a, trans_b):
    wide = complex if a.dtype.kind == "c" else float
    a, b = ({"N": x, "T": x.mT, "C": x.conj().mT}[t] for x, t in ((a, trans_a), (b, trans_b)))
    return alpha * (a.astype(wide) @ b.astype(wide)) + (0 if c is None else beta * c)


@pytest.mark.parametrize(("routine", "dtype", "output"), [("sgemm", "f", "f"), ("dgemm", "d", "d"), ("cgemm", "F", "F"),
                                                          ("zgemm", "D", "D"), ("hgemm", "e", "e"), ("igemm", "b", "i")])
def test_routines_compute_the_second_call_as_the_first(routine, dtype, output):
    rng, call = np.random.default_rng(0), getattr(blas, routine)
    for batch in ((), (2,)):
        for alpha, beta, place in ((1, 0, None), (1, 0, "out"), (2, 0, None), (2, 3, None), (1, 1, "overwrite"), (3, 2, "out"),
                                   (0, 2, None)):
            for trans_a, trans_b in (("N", "N"), ("T", "C")):
                for again in range(3):
                    a, b = values(rng, (*batch, 4, 4), dtype), values(rng, (*batch, 4, 4), dtype)
                    c = values(rng, (*batch, 4, 4), output) if beta else None
                    expected = reference(alpha, a, b, beta, c, trans_a, trans_b)
                    before = len(numpy_repeats._ready)
                    named = {"out": np.full((*batch, 4, 4), 7, output)} if place == "out" else {}
                    result = call(alpha, a, b, beta, c, trans_a, trans_b, place == "overwrite", **named)
                    np.testing.assert_array_equal(result, expected)
                    assert result.dtype == output
                    assert place is None or result is (c if place == "overwrite" else named["out"])
                    assert place is not None or result.strides == result.mT.copy("C").mT.strides
                    assert len(numpy_repeats._ready) == before + (not again)
    assert len(numpy_repeats._ready) == 2 * 7 * 2


def test_a_second_call_is_counted_and_refused_like_the_first():
    a = np.ones((3, 3), np.float32)
    out = np.empty((3, 3), np.float32)
    cuteblas.reset_stats()
    for _ in range(3):
        blas.sgemm(1.0, a, a, out=out)
        cuteblas.matmul(a, a, epilogue="relu")
    assert cuteblas.stats() == {"sgemm": {"calls": {"numpy": 3}}, "matmul": {"calls": {"numpy": 3}}}
    assert len(numpy_repeats._ready) == 2
    with pytest.raises(ValueError, match="share memory"):
        blas.sgemm(1.0, out, a, out=out)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        blas.sgemm(1.0, a, a, out=out)
    with pytest.raises(TypeError, match="takes a in float32"):
        blas.sgemm(1.0, a.astype(float), a)
    with pytest.raises(ValueError):
        blas.sgemm(1.0, a, a[:2])
    with np.errstate(all="raise"):
        assert np.isinf(blas.sgemm(1.0, np.full((3, 3), 3e38, np.float32), a)).all()


@pytest.mark.parametrize("dtype", ["f", "d", "e", "i"])
def test_epilogues_compute_the_second_call_as_the_first(dtype, monkeypatch):
    rng = np.random.default_rng(1)

    def check(slope, bias_shape, **choice):
        x, w, bias = values(rng, (4, 5), dtype), values(rng, (5, 3), dtype), values(rng, bias_shape, dtype)
        bound = {"bias": bias, **({} if slope is None else {"slope": slope}), **choice}
        result = cuteblas.matmul(x, w, epilogue=scaled(**bound))
        y = (x.astype("d") @ w) * FACTOR + bias
        expected = -y if choice else np.where(y > 0, y, (0.5 if slope is None else slope) * y)
        np.testing.assert_array_equal(result, expected.astype(dtype))
        assert result.dtype == dtype
        assert result.flags.c_contiguous and result.flags.owndata

    if dtype == "i":
        with pytest.raises(TypeError):
            check(0.5, (1, 3))
        return
    for _ in range(3):
        for slope, shape in ((None, (1, 3)), (0.25, (1, 3)), (0.75, (4, 1)), (2, (4, 3)), (-2, (4, 3))):
            check(slope, shape)
        check(None, (1, 3), shape="negative")
    known = len(numpy_repeats._ready)
    assert known == 6
    monkeypatch.setitem(globals(), "FACTOR", 4.0)
    for _ in range(2):
        check(None, (1, 3))
    assert len(numpy_repeats._ready) == known + 1


def test_an_epilogue_that_returns_an_operand_returns_a_copy():
    @cuteblas.epilogue
    def nothing(acc, *, other):
        return other

    a, other = np.eye(3), np.arange(9.0).reshape(3, 3)
    for _ in range(2):
        result = cuteblas.matmul(a, a, epilogue=nothing(other=other))
        assert not np.shares_memory(result, other)
        np.testing.assert_array_equal(result, other)


def test_the_emulator_is_not_answered_by_numpy():
    pytest.importorskip("cuteblas.emulator")
    a = np.ones((2, 2), np.float32)
    for _ in range(2):
        blas.sgemm(1.0, a, a)
    cuteblas.reset_stats()
    with cuteblas.backend("emulator"):
        assert numpy_repeats.repeated(next(iter(numpy_repeats._ready))[0], (a, a), None, (1.0, 0)) is None
    assert numpy_repeats.repeated(next(iter(numpy_repeats._ready))[0], (a, a), None, (1.0, 0)) is not None
    assert numpy_repeats.repeated(next(iter(numpy_repeats._ready))[0], (a, [a]), None, (1.0, 0)) is None
    assert numpy_repeats.repeated([], (a, a), None) is None
