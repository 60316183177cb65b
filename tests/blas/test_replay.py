"""Replayed calls of routines on CuPy arrays, without a GPU: arrays are in host memory, and plans
run in the emulator."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes  # noqa: F401
import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas import calls, plans

from .operands import at, small

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not emulator.available():
    pytest.skip("no C++ compiler for the emulator", allow_module_level=True)

from cuteblas.engines import cuda  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402

from ..functions.host_cupy import emulated, install, on_gpu, on_host  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_host():
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        patch.setattr("cuteblas.runtime.executor", emulated)
        replay_cupy.recorded.clear()
        cuteblas.reset_stats()
        yield
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()


@pytest.fixture
def no_long_way(monkeypatch):
    """Forbids the checks that precede a call that is not replayed."""
    def forbid():
        for module in (calls, plans):
            monkeypatch.setattr(module, "prepare",
                                lambda *call, **options: pytest.fail("went the long way"))

    return forbid


RNG = np.random.default_rng(0)


def arrays(dtype="float32", m=4, k=3, n=5):
    output = "int32" if dtype == "int8" else dtype
    shapes = (((m, k), dtype), ((k, n), dtype), ((m, n), output))
    return [at(0, small(RNG, shape, name)) for shape, name in shapes]


def call(routine, alpha, a, b, beta=0, c=None, *, out=None, **options):
    """The routine on CuPy arrays over this memory; the result on the host."""
    given = [x if x is None else on_gpu(x) for x in (a, b, c, out)]
    if out is not None and out is c:
        given[3] = given[2]
    alpha, beta = (on_gpu(x) if isinstance(x, np.ndarray) else x for x in (alpha, beta))
    result = routine(alpha, given[0], given[1], beta, given[2], out=given[3], **options)
    target = given[3] if out is not None else given[2] if options.get("overwrite_c") else None
    assert target is None or result is target
    return on_host(result).copy()


WAYS = {
    "new": lambda c: {},
    "out": lambda c: {"out": np.empty_like(c)},
    "strided out": lambda c: {"out": np.zeros((12, 15), c.dtype)[1::3, ::-3]},
    "in place": lambda c: {"c": c.copy(), "overwrite_c": 1},
    "in place by out": lambda c: dict.fromkeys(("c", "out"), c.copy()),
    "from c": lambda c: {"c": c.copy()},
    "from c to out": lambda c: {"c": c.copy(), "out": np.empty_like(c, order="F")},
    "from a broadcast c": lambda c: {"c": np.broadcast_to(c[:1], c.shape)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("routine, scalars", [("sgemm", [(1, 0), (2.5, 0), (1, 1), (-2, 3.0),
                                                         (0, 2), (np.float64(3), np.float32(-1))]),
                                              ("cgemm", [(1j, 0), (2, 1 - 1j)]),
                                              ("igemm", [(1, 0), (3, -2)]), ("hgemm", [(2, 0.25)]),
                                              ("bgemm", [(1, 2)])])
def test_repeated_calls(way, routine, scalars):
    dtype = blas.types.ROUTINES[routine].operands
    for alpha, beta in scalars:
        given = [(arrays(dtype), alpha, beta)]
        given.append((arrays(dtype), *(x if x in (0, 1) else type(x)(2 * x)
                                       for x in (alpha, beta))))
        with pytest.MonkeyPatch.context() as patch:
            for (a, b, c), first, second in given:
                target = WAYS[way](c)
                uses_c = "c" in target
                before = np.array(target["c"]) if uses_c else None
                got = call(getattr(blas, routine), first, a, b, second if uses_c else 0, **target)
                wide = complex if dtype.startswith("complex") else float
                want = first * (a.astype(wide) @ b.astype(wide)) + (second * before.astype(wide)
                                                                    if uses_c and second else 0)
                np.testing.assert_array_equal(got.astype(wide), want)
                patch.setattr(calls, "prepare", lambda *_, **__: pytest.fail("went the long way"))
    assert sum(cuteblas.stats()[routine]["calls"].values()) == 2 * len(scalars)


@pytest.mark.parametrize("alpha, beta", [("device", 0), (2, "device"), ("device", "device")])
def test_scalars_on_the_device(alpha, beta, no_long_way):
    for repeated in range(2):
        a, b, c = arrays()
        first, second = (np.array(value + repeated, np.float32) if x == "device" else x
                         for x, value in ((alpha, 3), (beta, 5)))
        got = call(blas.sgemm, first, a, b, second, c.copy(), overwrite_c=1)
        np.testing.assert_array_equal(got, first * (a @ b) + second * c)
        no_long_way()


def test_transpositions_and_types(no_long_way):
    z = small(RNG, (4, 4), "complex64")
    wide, sums = {"dtype": "float64"}, {"compute_dtype": np.float64}
    x = arrays()[0]
    for again in range(2):
        for trans, seen in (("N", z), ("T", z.T), (2, z.conj().T), ("r", z.conj())):
            np.testing.assert_array_equal(call(blas.cgemm, 1, z, z, trans_a=trans), seen @ z)
        assert call(blas.gemm, 1, x, x, trans_b=1).dtype == call(blas.gemm, 1, x, x, trans_b=1,
                                                                 **sums).dtype == np.float32
        assert call(blas.gemm, 1, x, x, trans_b=1, **wide).dtype == np.float64
        if not again:
            no_long_way()


CHANGES = {"alpha": {"alpha": 1}, "no alpha": {"alpha": 0},
           "type of alpha": {"alpha": np.float32(2)}, "beta": {"beta": 1}, "no beta": {"beta": 0},
           "transposed": {"trans_a": "T"}, "flag": {"overwrite_c": True, "trans_a": False},
           "precision": {"precision": "ieee"}, "stream": {"stream": 0},
           "epilogue": {"epilogue": "relu"}, "small alpha": {"alpha": 1e-40},
           "large alpha": {"alpha": 1e38}, "no number": {"alpha": float("nan")},
           "sums": {"compute_dtype": "float64"}}


@pytest.mark.parametrize("change", CHANGES)
def test_other_arguments_go_the_long_way(change, monkeypatch):
    a, b, c = (on_gpu(at(0, np.ones((4, 4), np.float32))) for _ in range(3))
    arguments = {"alpha": 2.0, "a": a, "b": b, "beta": 3.0, "c": c, "overwrite_c": 1}
    way = []
    monkeypatch.setattr(calls, "prepare", lambda *call, prepare=calls.prepare: way.append(call)
                        or prepare(*call))
    blas.gemm(**arguments)
    blas.gemm(**arguments)
    assert len(way) == 1
    monkeypatch.setattr(calls, "execute", lambda *call: None)
    blas.gemm(**{**arguments, **CHANGES[change]})
    assert len(way) == 2


@pytest.mark.parametrize("change", ["dtype", "shape", "strides", "alignment", "strides of c",
                                    "c apart", "device"])
def test_other_operands_go_the_long_way(change, monkeypatch):
    memory = at(0, np.ones(100, np.float32))
    a, b, c = (memory[start:start + 16].reshape(4, 4) for start in (0, 16, 32))
    call(blas.gemm, 2, a, b, 3, c, overwrite_c=1)
    options = {"overwrite_c": 1}
    device = 0
    if change == "dtype":
        a, b, c = (x.view("i4") for x in (a, b, c))
    elif change == "shape":
        a, c = a[:3], c[:3]
    elif change == "strides":
        b = b.T
    elif change == "alignment":
        a = memory[49:65].reshape(4, 4)
    elif change == "strides of c":
        c = c.T
    elif change == "c apart":
        options = {"out": memory[48:64].reshape(4, 4)}
    elif change == "device":
        device = 1
    way = []
    monkeypatch.setattr(calls, "prepare", lambda *request: way.append(request))
    monkeypatch.setattr(calls, "execute", lambda *_: None)
    given = [on_gpu(x, device) for x in (a, b, c)]
    blas.gemm(2, given[0], given[1], 3, given[2],
              **{name: on_gpu(x) if name == "out" else x for name, x in options.items()})
    assert len(way) == 1


def test_equal_flags_are_not_always_arguments():
    x = on_gpu(np.ones((3, 3), np.float32))
    blas.sgemm(1, x, x, trans_a=1, overwrite_c=0)
    for arguments in ({"trans_a": 1.0}, {"trans_a": 1, "overwrite_c": 0.0}):
        with pytest.raises(TypeError):
            blas.sgemm(1, x, x, **arguments)
    for wrong in ({"trans_a": [1]}, {"trans_a": 1, "precision": []},
                  {"trans_a": 1, "overwrite_c": np.zeros(2)}):
        with pytest.raises((TypeError, ValueError)):
            blas.sgemm(1, x, x, **wrong)
    i = on_gpu(np.ones((3, 3), np.int8))
    blas.igemm(3, i, i)
    for wrong in (3.0, 2**31, 3j, np.float32(3)):
        with pytest.raises((TypeError, ValueError)):
            blas.igemm(wrong, i, i)
    blas.sgemm(3.5, x, x)
    with pytest.raises(TypeError, match="alpha has to be real"):
        blas.sgemm(3.5 + 0j, x, x)


def test_the_part_of_c_is_not_mistaken():
    a, b, c = (on_gpu(at(0, np.ones((4, 4), np.float32))) for _ in range(3))
    assert blas.sgemm(2, a, b, 3, c, out=c) is c
    result = blas.sgemm(2, a, b, 3, c)
    assert result is not c and (on_host(result) == 41).all() and (on_host(c) == 11).all()
    with pytest.raises(ValueError, match="needs c, because beta is not 0"):
        blas.sgemm(2, a, b, 3, out=c)
    assert (on_host(blas.sgemm(2, a, b, 3)) == 8).all()


def test_overlap_is_checked_every_time():
    memory = at(0, np.ones(64, np.float32))
    a, b, out = (memory[start:start + 16].reshape(4, 4) for start in (0, 16, 32))
    alpha = np.array(2, np.float32)
    call(blas.sgemm, 1, a, b, out=out)
    call(blas.sgemm, alpha, a, b, out=out)
    call(blas.sgemm, 1, a, b, 1, out.copy(), out=out)
    for start, name in ((0, "a"), (12, "a"), (28, "b")):
        with pytest.raises(ValueError, match=f"writes out while it uses {name}"):
            call(blas.sgemm, 1, a, b, out=memory[start:start + 16].reshape(4, 4))
    with pytest.raises(ValueError, match="writes out while it uses alpha"):
        call(blas.sgemm, memory[36:37].reshape(()), a, b, out=out)
    with pytest.raises(ValueError, match="writes out"):
        call(blas.sgemm, 1, a, b, 1, memory[28:44].reshape(4, 4), out=out)
    assert call(blas.sgemm, 1, a, b, out=memory[48:].reshape(4, 4))[0, 0] == 4


def test_what_rounding_makes_of_a_scalar_is_not_replayed():
    nan, b = np.full((3, 3), np.nan, np.float32), np.ones((3, 3), np.float32)
    assert call(blas.sgemm, 1 + 1e-9, b, b)[0, 0] == 3
    assert call(blas.sgemm, 2.0, b, b)[0, 0] == 6
    assert call(blas.sgemm, 2.0, b, b)[0, 0] == 6
    assert (call(blas.sgemm, 1e-50, nan, b) == 0).all()
    assert np.isnan(call(blas.sgemm, 2.0, nan, b)).all()
    c = np.full((3, 3), np.nan, np.float32)
    for beta in (2.0, 1e-50):
        result = call(blas.sgemm, 1, b, b, beta, c.copy(), overwrite_c=1)
        assert np.isnan(result).all() == (beta == 2)
    for alpha in (complex(1.7e308, 1.7e308), np.complex64(complex(3e38, 3e38))):
        assert not np.isfinite(call(blas.cgemm, alpha, b.astype("F"), b.astype("F"))).any()


def test_epilogues_and_copies_are_not_recorded():
    x = np.ones((3, 3), np.float32)
    call(blas.sgemm, 1, x, x, epilogue="relu")
    call(blas.sgemm, np.array(2.0), x, x)           # converted to the type of the sums
    assert not replay_cupy.recorded


def test_plans(no_long_way):
    a, b, c = arrays()
    plan = blas.plan(*(on_gpu(x) for x in (a, b, c)), alpha=2.0, beta=3.0, overwrite_c=1)

    def check(plan, alpha, beta):
        target = on_gpu(c.copy())
        assert plan.execute(on_gpu(a), on_gpu(b), target, alpha=alpha, beta=beta) is target
        np.testing.assert_array_equal(on_host(target), alpha * (a @ b) + beta * c)

    def refuses(plan):
        with pytest.raises(ValueError, match="this plan was made for a of shape"):
            plan.execute(on_gpu(a), on_gpu(b), on_gpu(c.copy()), alpha=2.0, beta=3.0)

    other = on_gpu(np.ones((7, 3), np.float32))
    another = blas.plan(other, on_gpu(b), on_gpu(np.ones((7, 5), np.float32)), alpha=2.0, beta=3.0,
                        overwrite_c=1)
    check(plan, 2.0, 3.0)
    refuses(another)
    with pytest.raises(ValueError, match="was made for beta = a number other than 0, but it is 0"):
        plan.execute(on_gpu(a), on_gpu(b), on_gpu(c.copy()), alpha=2.0, beta=0)
    check(plan, 1.0, -0.5)
    unpickled = pickle.loads(pickle.dumps(plan))
    assert unpickled == plan and copy.copy(plan) == plan and unpickled._token is not plan._token
    check(unpickled, 2.0, 3.0)
    no_long_way()
    check(plan, 5.0, -0.5)
    check(plan, 1.0, 7.0)
    check(unpickled, 5.0, -0.5)
    (counted,) = cuteblas.stats()["plan.execute"]["calls"].values()
    assert counted == 6
