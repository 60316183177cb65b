"""Calls on NumPy arrays that are replayed: neither checked nor resolved again."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, epilogues
from cuteblas.engines import settings
from cuteblas.engines.numpy_gemm import product_in
from cuteblas.engines.placement import FEW
from cuteblas.engines.replay import numpy as replay_numpy
from cuteblas.engines.replay.recording import MOST_RECORDED, store
from cuteblas.functions import fused
from cuteblas.runtime.errors import MissingDependency

FACTOR = 2.0


@cuteblas.epilogue
def scaled(acc, *, bias, slope=0.5, shape="line"):
    y = acc * FACTOR + bias
    return np.where(y > 0, y, slope * y) if shape == "line" else -y


@pytest.fixture(autouse=True)
def nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(replay_numpy, "_recorded", {})


def values(rng, shape, dtype):
    return rng.integers(-5, 6, shape).astype(dtype)


def reference(alpha, a, b, beta, c, trans_a, trans_b):
    wide = complex if a.dtype.kind == "c" else float
    a, b = ({"N": x, "T": x.mT, "C": x.conj().mT}[t] for x, t in ((a, trans_a), (b, trans_b)))
    return alpha * (a.astype(wide) @ b.astype(wide)) + (0 if c is None else beta * c)


@pytest.mark.parametrize(("routine", "dtype", "output"),
                         [("sgemm", "f", "f"), ("dgemm", "d", "d"), ("cgemm", "F", "F"),
                          ("zgemm", "D", "D"), ("hgemm", "e", "e"), ("igemm", "b", "i")])
def test_routines_compute_the_second_call_as_the_first(routine, dtype, output):
    rng, call = np.random.default_rng(0), getattr(blas, routine)
    for batch in ((), (2,)):
        for alpha, beta, place in ((1, 0, None), (1, 0, "out"), (2, 0, None), (2, 3, None),
                                   (1, 1, "overwrite"), (3, 2, "out"), (0, 2, None)):
            for trans_a, trans_b in (("N", "N"), ("T", "C")):
                for again in range(3):
                    a, b = values(rng, (*batch, 4, 4), dtype), values(rng, (*batch, 4, 4), dtype)
                    c = values(rng, (*batch, 4, 4), output) if beta else None
                    expected = reference(alpha, a, b, beta, c, trans_a, trans_b)
                    before = len(replay_numpy._recorded)
                    named = {"out": np.full((*batch, 4, 4), 7, output)} if place == "out" else {}
                    result = call(alpha, a, b, beta, c, trans_a, trans_b, place == "overwrite",
                                  **named)
                    np.testing.assert_array_equal(result, expected)
                    assert result.dtype == output
                    assert place is None or result is (c if place == "overwrite" else named["out"])
                    assert place is not None or result.strides == result.mT.copy("C").mT.strides
                    assert len(replay_numpy._recorded) == before + (not again)
    assert len(replay_numpy._recorded) == 2 * 7 * 2


def test_a_second_call_is_counted_and_refused_like_the_first():
    a = np.ones((3, 3), np.float32)
    out = np.empty((3, 3), np.float32)
    cuteblas.reset_stats()
    for _ in range(3):
        blas.sgemm(1.0, a, a, out=out)
        cuteblas.matmul(a, a, epilogue="relu")
    assert cuteblas.stats() == {"sgemm": {"calls": {"numpy": 3}}, "matmul": {"calls": {"numpy": 3}}}
    assert len(replay_numpy._recorded) == 2
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
    whole = np.ones((3, 3), np.int8)
    for _ in range(2):
        blas.igemm(1, whole, whole)
    with pytest.raises(TypeError, match="alpha has to be an integer"):
        blas.igemm(1.0, whole, whole)


def test_what_a_gpu_might_take_is_asked_each_time(monkeypatch):
    small, large = np.zeros(FEW), np.zeros(FEW + 1)
    for key, x in ((("small",), small), (("large",), large)):
        replay_numpy.record_key(key, "matmul", lambda *_: None, [x])
    for where, found in (("auto", [True, False]), ("numpy", [True, True]),
                         ("cuda", [False, False])):
        monkeypatch.setattr(replay_numpy, "chosen_backend", lambda where=where: where)
        assert [replay_numpy.recorded((key,)) is not None for key in ("small", "large")] == found


def test_no_more_calls_are_recorded_than_memory_is_meant_for():
    recorded = {}
    for i in range(MOST_RECORDED + 3):
        store(recorded, (i,), i)
    assert recorded == {(i,): i for i in range(MOST_RECORDED, MOST_RECORDED + 3)}


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
        for slope, shape in ((None, (1, 3)), (0.25, (1, 3)), (0.75, (4, 1)), (2, (4, 3)),
                             (-2, (4, 3))):
            check(slope, shape)
        check(None, (1, 3), shape="negative")
    recorded = len(replay_numpy._recorded)
    assert recorded == 6
    monkeypatch.setitem(globals(), "FACTOR", 4.0)
    for _ in range(2):
        check(None, (1, 3))
    assert len(replay_numpy._recorded) == recorded + 1


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
        assert replay_numpy.replay(next(iter(replay_numpy._recorded))[0], (a, a), None,
                                   (1.0, 0)) is None
    assert replay_numpy.replay(next(iter(replay_numpy._recorded))[0], (a, a), None,
                               (1.0, 0)) is not None
    assert replay_numpy.replay(next(iter(replay_numpy._recorded))[0], (a, [a]), None,
                               (1.0, 0)) is None
    assert replay_numpy.replay([], (a, a), None) is None


# -- products with an epilogue ---------------------------------------------------------------------
def slope_of(y, *, slope=0.25):
    return np.where(y > 0, y, slope * y)


@cuteblas.epilogue
def sloped(acc, *, by=1.0):
    return slope_of(acc * by) * FACTOR


@cuteblas.epilogue
def any_operands(acc, x, *, y=None, z=2.0, how="sum"):
    value = acc * z + x if how == "sum" else np.maximum(acc, x)
    return value if y is None else value - y


@cuteblas.epilogue
def first_operand(acc, *, x):
    return x


def array(*shape, dtype="f", order="C"):
    return np.array(np.random.default_rng(sum(shape)).integers(-4, 5, shape) / 2, dtype,
                    order=order)


BINDINGS = {"relu": lambda d: "relu", "without operands": lambda d: epilogues.gelu,
            "bias": lambda d: epilogues.bias(bias=array(5, dtype=d)),
            "bias for rows": lambda d: epilogues.bias(bias=array(4, 1, dtype=d)),
            "nested": lambda d: epilogues.bias_gelu(bias=array(5, dtype=d)),
            "sigmoid": lambda d: epilogues.sigmoid(),
            "residual": lambda d: epilogues.residual_add(residual=array(4, 5, dtype=d)),
            "of another type": lambda d: epilogues.bias(bias=array(5, dtype="e")),
            "of integers": lambda d: epilogues.bias(bias=array(5, dtype="i1")),
            "strided": lambda d: any_operands(x=array(5, 4, dtype=d).T),
            "number": lambda d: sloped(by=0.5), "default": lambda d: sloped(),
            "integer": lambda d: sloped(by=3), "NumPy's number": lambda d: sloped(by=np.float32(3)),
            "all": lambda d: any_operands(x=array(5, dtype=d), y=array(4, 1, dtype=d), z=-1.5,
                                          how="max"),
            "in another order": lambda d: any_operands(how="sum", z=1, x=array(1, 5, dtype=d)),
            "none": lambda d: any_operands(x=2.0, y=None),
            "an operand": lambda d: first_operand(x=array(4, 5, dtype=d)),
            "a broadcast one": lambda d: first_operand(x=array(5, dtype=d)),
            "clamp": lambda d: epilogues.clamp(lo=-1.0, hi=None)}


@pytest.mark.parametrize("where", ["numpy", "auto"])
@pytest.mark.parametrize("dtype", ["f", "d", "e"])
@pytest.mark.parametrize("name", BINDINGS)
def test_a_second_call_with_an_epilogue_is_answered_at_once(name, dtype, where, monkeypatch):
    monkeypatch.setattr(settings, "driver_is_there", lambda: True)
    x, w = array(4, 3, dtype=dtype), array(3, 5, dtype=dtype)
    cuteblas.reset_stats()
    with cuteblas.backend(where), np.errstate(all="raise"):
        first = cuteblas.matmul(x, w, epilogue=BINDINGS[name](dtype))
        monkeypatch.setattr(fused, "resolve_fused", None)
        again = [cuteblas.matmul(x, w, epilogue=BINDINGS[name](dtype)) for _ in range(3)]
        assert cuteblas.current_backend() == where
    assert cuteblas.stats() == {"matmul": {"calls": {"numpy": 4}}}
    for result in again:
        assert type(result) is np.ndarray and result.dtype == dtype and result.tobytes() == first.tobytes()
        assert result.strides == first.strides and result.flags.owndata and result.flags.writeable
    assert not np.shares_memory(again[0], again[1])


def test_a_repeated_call_enters_few_functions():
    x, w, bias = array(4, 3), array(3, 5), array(5)
    bound = epilogues.bias(bias=bias)
    for _ in range(3):
        cuteblas.matmul(x, w, epilogue=bound)
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call"
                   else None)
    try:
        cuteblas.matmul(x, w, epilogue=bound)
        before = len(entered)
        epilogues.bias(bias=bias)
    finally:
        sys.setprofile(None)
    assert before <= 7 and entered[before:] == ["__call__"], entered


def test_results_without_warnings_are_those_of_numpy():
    x, big = np.array([[np.inf, -3e38], [np.nan, 0.0]], "f"), np.full((2, 2), 3e38, "f")
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        for bound in (epilogues.bias(bias=big[0]), epilogues.sigmoid(),
                      any_operands(x=big, z=1e300)):
            results = [cuteblas.matmul(x, big, epilogue=bound) for _ in range(3)]
            assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, inner: patch.setitem(globals(), "FACTOR", 3.0),
        lambda patch, inner: patch.delitem(globals(), "FACTOR"),
        lambda patch, inner: patch.setattr(slope_of, "__kwdefaults__", {"slope": 0.5}),
        lambda patch, inner: patch.setitem(slope_of.__kwdefaults__, "slope", 0.75),
        lambda patch, inner: patch.setattr(
            slope_of, "__code__", (lambda y, *, slope=0.25: y * slope).__code__
        ),
        lambda patch, inner: patch.setitem(globals(), "slope_of", lambda y: y + 1),
        lambda patch, inner: patch.setattr(np, "where", lambda condition, a, b: a),
        lambda patch, inner: patch.setattr(inner, "cell_contents", 7.0),
        lambda patch, inner: delattr(inner, "cell_contents")
    ]
)
def test_what_a_function_reads_may_change_between_calls(change, monkeypatch):
    captured = 2.0

    @cuteblas.epilogue
    def reads(acc):
        return slope_of(acc) * FACTOR + captured

    def outcome():
        try:
            result = cuteblas.matmul(x, w, epilogue=reads())
        except NameError as error:
            return repr(error)
        return result.dtype, result.tobytes()

    x, w = array(4, 3), array(3, 5)
    cell = reads.function.__closure__[0]
    before = [outcome() for _ in range(3)]
    assert before[0] == before[1] == before[2]
    with monkeypatch.context() as patch:
        change(patch, cell)
        after = [outcome() for _ in range(3)]
        replay_numpy._recorded.clear()
        reads.known = None
        assert after == [outcome()] * 3
        assert after[0] != before[0]
    cell.cell_contents = 2.0
    assert outcome() == before[0]


def test_numbers_and_shapes_decide_apart():
    x, w = array(4, 3), array(3, 5)
    operands = [2, 2.0, True, np.float32(2), np.float64(2), np.int64(2), 300, 2**40, -1, array(5),
                array(5, dtype="d"), array(1, 5), array(4, 1), array(4, 5), array(4, 5, order="F"),
                array(4, 4)[:, :1], array(2), array(4), array(3, 4, 5), 2**70, 1j]

    def outcome(operand):
        try:
            result = cuteblas.matmul(x, w, epilogue=any_operands(x=operand))
        except Exception as error:
            return type(error), str(error)
        return result.dtype, result.shape, result.strides, result.tobytes()

    expected = []
    for operand in operands:
        replay_numpy._recorded.clear()
        expected.append(outcome(operand))
    assert sum(type(each[0]) is type for each in expected) == 4
    for _ in range(3):
        assert [outcome(operand) for operand in operands] == expected


def test_other_calls_are_not_answered_at_once(monkeypatch):
    pytest.importorskip("cuteblas.emulator")
    x, w, out = array(4, 3), array(3, 5), array(4, 5)
    bound = epilogues.bias(bias=array(5))
    expected = [cuteblas.matmul(x, w, epilogue=bound) for _ in range(3)][2]
    assert cuteblas.matmul(x, w, out, epilogue=bound) is out and out.tobytes() == expected.tobytes()
    assert cuteblas.matmul(x, w, (out,), epilogue=bound) is out
    assert cuteblas.matmul(x, w, epilogue=bound, dtype=np.float64).dtype == np.float64
    assert cuteblas.matmul(x.tolist(), w, epilogue=bound).dtype == np.float64
    with pytest.raises(ValueError, match="precision is one of"):
        cuteblas.matmul(x, w, epilogue=bound, precision="none")
    with pytest.raises(ValueError, match="variant"):
        cuteblas.matmul(x, w, epilogue=bound, variant="none")
    np.testing.assert_array_equal(np.asarray(cuteblas.matmul(cuteblas.asarray(x), w,
                                                             epilogue=bound)), expected)
    monkeypatch.setattr(fused, "resolve_fused", lambda *_: SimpleNamespace())
    for where in ("emulator", "cuda"):
        token = settings._chosen.set(where)
        try:
            with pytest.raises((TypeError, MissingDependency)):         # without a GPU
                cuteblas.matmul(x, w, epilogue=bound)
        finally:
            settings._chosen.reset(token)
    assert cuteblas.matmul(x, w, epilogue=bound).tobytes() == expected.tobytes()


def test_an_epilogue_is_bound_anew_as_the_first_time():
    made = cuteblas.epilogue(lambda acc, *, x, y=1.0: (acc + x * y, {"sums": acc.sum(-1)}))
    for _ in range(2):
        for given in ({"x": 1}, {"x": 1, "y": 2}, {"y": 2, "x": 1}):
            bound = made(**given)
            assert bound.operands == given and bound.outputs == {} and bound.epilogue is made and bound.given == given
            assert list(bound.operands) == list(given) and made(**given).operands is not bound.operands
        sums = np.zeros(2)
        assert made(x=1, sums=sums).outputs == {"sums": sums}
        for wrong, message in (({}, None), ({"y": 1}, "needs x"),
                               ({"x": 1, "z": 2}, "unknown argument 'z'"),
                               ({"x": 1, "acc": sums}, "takes acc from the product")):
            if message:
                with pytest.raises(TypeError, match=message):
                    made(**wrong)


@pytest.mark.parametrize("dtypes", ["bbb", "iii", "qqq", "lil", "fde", "def", "FfF", "idi", "?f?",
                                    (">f4", "<f4", ">f8"), "efd"])
def test_mixed_types_and_integers(dtypes, monkeypatch):
    x, w, other = (array(*shape, dtype=dtype) for shape, dtype in zip(((4, 3), (3, 5), (4, 5)),
                                                                      dtypes, strict=True))
    bound = epilogues.residual_add(residual=other)
    products = []
    monkeypatch.setattr(fused, "product_in", lambda *operands: products.append(0)
                        or product_in(*operands))

    def outcome():
        try:
            result = cuteblas.matmul(x, w, epilogue=bound)
        except Exception as error:
            return type(error), str(error)
        return result.dtype, result.tobytes()

    first = outcome()
    assert [outcome() for _ in range(3)] == [first] * 3
    assert products == [0] * 3 * (dtypes in ("bbb", "iii", "qqq", "lil", "fde", "def", "efd"))


def test_large_operands_that_are_returned_are_copied():
    x = np.ones((300, 300))
    for _ in range(3):
        result = cuteblas.matmul(x, x, epilogue=first_operand(x=x))
        assert not np.shares_memory(result, x) and (result == 1).all()


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_the_logistic_function_of_special_values(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 700, -700, 90, -90, 0.3, -0.3],
                 dtype)
    with np.errstate(all="ignore"):
        e = np.exp(-np.abs(x))
        expected = np.where(x >= 0, np.ones_like(e), e) / (1 + e)
        result = epilogues.sigmoid(x)
    assert result.dtype == dtype and result.tobytes() == expected.tobytes()
    assert isinstance(epilogues.sigmoid(0.0), float)
