"""Every public function on arrays of ours: NumPy's, CuPy's and the kernels' answers, wrapped."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, epilogues, linalg
from cuteblas.array import from_dlpack
from cuteblas.array.wrapper import ndarray
from cuteblas.blas import pointers
from tests.functions import reference

A = np.arange(6, dtype=np.float64).reshape(2, 3) - 2
B = np.arange(12, dtype=np.float64).reshape(3, 4) % 5
C = np.ones((2, 4))
V = np.arange(4.0)
S = np.array([[2.0, 1, 0], [1, 3, 1], [0, 1, 2]])
STACK = np.ones((2, 3, 2))
TWO, ONE = np.array(2.0), np.array(1.0)
WIDE = np.ones((1, 4))


@cuteblas.epilogue
def observed(acc, *, bias):
    before = acc + bias
    return np.maximum(before, 0), {"before": before, "total": before.sum(axis=-1)}


class Call(NamedTuple):
    """A function of arrays, and what it is given; ``into`` are those that it writes."""

    name: str
    function: Any
    arrays: tuple[np.ndarray, ...]
    into: tuple[int, ...] = ()
    by_cupy: bool = True            # False: CuPy itself computes, which takes a GPU

    def __str__(self):
        return self.name


def call(name, function, *arrays, into=(), by_cupy=True):
    return Call(name, function, arrays, into, by_cupy)


def routine(name, dtype):
    function, narrow = getattr(blas, name), [x.astype(dtype) for x in (A, B, C)]
    return [call(name, lambda a, b: function(1, a, b), *narrow[:2]),
            call(name, lambda a, b, c: function(2, a, b, 1, c, overwrite_c=1), *narrow, into=(2,))]


def fill(function):
    """A routine over addresses: what it writes."""
    def run(alpha, beta):
        c = np.ones((4, 4), order="F")
        a = np.asfortranarray(np.arange(16.0).reshape(4, 4))
        function(0, 0, 4, 4, 4, alpha, a.ctypes.data, 4, a.ctypes.data, 4, beta, c.ctypes.data, 4,
                 device="host")
        return c.tolist()

    return run


matmul, explain = cuteblas.matmul, cuteblas.explain
LETTERS = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
CALLS = [
    call("matmul", matmul, A, B), call("matmul", matmul, A, B, C, into=(2,)),
    call("matmul", lambda a, b: matmul(a, b, precision="ieee", order="F"), A, B),
    call("matmul", lambda a, b, out: matmul(a, b, (out,), epilogue="relu"), A, B, C, into=(2,)),
    call("matmul", lambda a, b: matmul(a, b, epilogue="relu"), A[0], B[:, 0]),
    call("matmul", lambda a, b, bias: matmul(a, b, epilogue=epilogues.bias(bias=bias)), A, B, V),
    call("matmul", lambda a, b, bias: matmul(a, b, epilogue=observed(bias=bias)), A, B, WIDE),
    call("matmul", lambda a, b, bias, x: matmul(a, b, epilogue=observed(bias=bias, before=x)), A, B, WIDE, C, into=(3,)),
    call("matmul", lambda a, b: matmul(a, b, axes=[(0, 1), (0, 1), (1, 0)], epilogue="relu"), A, B),
    call("dot", cuteblas.dot, A, B), call("dot", cuteblas.dot, A, B, C, into=(2,)),
    call("dot", lambda a, b: cuteblas.dot(a, b, precision="ieee"), A, B),
    call("inner", cuteblas.inner, A, A), call("outer", cuteblas.outer, V, V), call("vdot", cuteblas.vdot, A, A),
    call("kron", cuteblas.kron, A, B), call("tensordot", lambda a, b: cuteblas.tensordot(a, b, 1), A, B),
    call("vecdot", cuteblas.vecdot, A, A), call("matvec", cuteblas.matvec, S, A[0]), call("vecmat", cuteblas.vecmat, A[0], S),
    call("einsum", lambda a, b: cuteblas.einsum("ij,jk->ik", a, b), A, B),
    call("einsum", lambda a, b: cuteblas.einsum(a, [0, 1], b, [1, 2], [2, 0], precision="ieee"), A, B),
    call("einsum", lambda a, b, out: cuteblas.einsum("ij,jk->ik", a, b, out=out), A, B, C, into=(2,)),
    call("einsum_path", lambda a, b: cuteblas.einsum_path("ij,jk->ik", a, b), A, B),
    call("transpose", cuteblas.transpose, A), call("permute_dims", lambda x: cuteblas.permute_dims(x, (1, 0)), A),
    call("swapaxes", lambda x: cuteblas.swapaxes(x, 0, 1), A), call("moveaxis", lambda x: cuteblas.moveaxis(x, 0, 1), A),
    call("rollaxis", lambda x: cuteblas.rollaxis(x, 1), A), call("matrix_transpose", cuteblas.matrix_transpose, STACK),
    call("copy", lambda x: cuteblas.copy(x.T), A), call("copy", lambda x, out: cuteblas.copy(x, out=out), C + 1, C, into=(1,)),
    call("ascontiguousarray", lambda x: cuteblas.ascontiguousarray(x.T), A),
    call("ascontiguousarray", cuteblas.ascontiguousarray, A), call("ascontiguousarray", cuteblas.ascontiguousarray, TWO),
    call("ascontiguousarray", lambda x: cuteblas.ascontiguousarray(x, np.float32), A),
    call("asfortranarray", cuteblas.asfortranarray, A), call("asfortranarray", lambda x: cuteblas.asfortranarray(x.T), A),
    call("explain", lambda a, b: explain(a, b).plan, A, B), call("explain", lambda a, b, c: explain(a, b, (c,)).plan, A, B, C),
    call("explain", lambda a, b, bias: explain(a, b, epilogue=epilogues.bias(bias=bias)).plan, A, B, V),
    call("explain_copy", lambda a: cuteblas.explain_copy(a.T).plan, A),
    call("explain_copy", lambda a, out: cuteblas.explain_copy(a, out=out).plan, A, A + 1),
    call("linalg.matmul", linalg.matmul, A, B), call("linalg.outer", linalg.outer, V, V),
    call("linalg.tensordot", lambda a, b: linalg.tensordot(a, b, axes=1), A, B), call("linalg.vecdot", linalg.vecdot, A, A),
    call("linalg.matrix_transpose", linalg.matrix_transpose, A),
    call("linalg.matrix_power", lambda x: linalg.matrix_power(x, 3), S),
    call("linalg.matrix_power", lambda x: linalg.matrix_power(x, 2, precision="ieee"), S),
    call("linalg.multi_dot", lambda a, b, c: linalg.multi_dot([a, b, c]), A, S, B),
    call("linalg.multi_dot", lambda a, b, c, out: linalg.multi_dot([a, b, c], out=out), A, S, B, C, into=(3,)),
    *(each for name, dtype in (("sgemm", "f4"), ("dgemm", "f8"), ("cgemm", "c8"), ("zgemm", "c16"), ("hgemm", "f2"), ("gemm", "f4"))
      for each in routine(name, dtype)),
    call("igemm", lambda a, b: blas.igemm(1, a, b), A.astype("i1"), B.astype("i1")),
    *(call(f"{kind}gemv", lambda a, x, kind=kind: getattr(blas, f"{kind}gemv")(1, a, x, trans=1), B.astype(dtype), V.astype(dtype))
      for kind, dtype in zip("sdcz", ("f4", "f8", "c8", "c16"), strict=True)),
    *(call(name, lambda x, y, name=name: getattr(blas, name)(1, x, y), V.astype(dtype), V.astype(dtype))
      for name, dtype in (("sger", "f4"), ("dger", "f8"), ("cgeru", "c8"), ("cgerc", "c8"), ("zgeru", "c16"), ("zgerc", "c16"))),
    *(call(name, lambda x, name=name: getattr(blas, name)(1, x), A.astype(LETTERS[name[0]]), by_cupy=False)
      for name in ("ssyrk", "dsyrk", "csyrk", "zsyrk", "cherk", "zherk")),
    *(call(name, lambda x, y, name=name: getattr(blas, name)(1, x, y), *2 * [A.astype(LETTERS[name[0]])], by_cupy=False)
      for name in ("ssyr2k", "dsyr2k", "csyr2k", "zsyr2k", "cher2k", "zher2k")),
    call("dgemm", lambda alpha, a, b, beta, c: blas.dgemm(alpha, a, b, beta, c), TWO, A, B, ONE, C),
    call("dgemm", lambda a, b, out: blas.dgemm(1, a, b, out=out), A, B, C, into=(2,)),
    call("dgemm", lambda a, b: blas.dgemm(1, a, b, trans_a="T", trans_b="T"), B, A),
    call("dgemm", lambda a, b, bias: blas.dgemm(1, a, b, epilogue=observed(bias=bias)), A, B, WIDE),
    call("dgemm", lambda a, b, bias, x: blas.dgemm(1, a, b, epilogue=observed(bias=bias, before=x)), A, B, WIDE, C, into=(3,)),
    call("gemm_batched", lambda a, b: blas.gemm_batched(1, a, b), STACK, A),
    call("gemm_batched", lambda a, b, c, d: blas.gemm_batched(1, [a, b], [c, d]), A, A, B, B),
    call("gemm_grouped", lambda a, b, c, d: blas.gemm_grouped(1, [a, b], [c, d]), A, A[:1], B, S),
    call("gemm_grouped", lambda a, b, c, d, out: blas.gemm_grouped([1, 2], [a, b], [c, d], out=[out, None]), A, A[:1], B, S, C,
         into=(4,)),
    call("plan", lambda a, b: blas.plan(a, b).plan, A, B),
    call("GemmPlan", lambda a, b: blas.plan(A, B).execute(a, b) if type(a) is np.ndarray else blas.plan(a, b).execute(a, b), A, B),
    call("GemmPlan", lambda a, b, out: blas.plan(a, b, out=out).execute(a, b, out=out), A, B, C, into=(2,)),
    call("ndarray", ndarray, A), call("ndarray", lambda x: ndarray(ndarray(x)), A),
    call("erf", lambda x: epilogues.erf(x), A, by_cupy=False),
    *(call(name, getattr(epilogues, name), C, by_cupy=False) for name in epilogues.ready
      if not getattr(epilogues, name).operands and not getattr(epilogues, name).inputs),
    *(call(name, lambda x, y, name=name, role=role: getattr(epilogues, name)(x, **{role: y}), C - 2, C - 1.5, by_cupy=False)
      for role in ("bias", "x") for name in epilogues.ready if role in getattr(epilogues, name).operands),
    call("clamp", lambda acc, lo: epilogues.clamp(acc, lo=lo), C, np.full((1, 1), 2.0), by_cupy=False),
    call("scale", lambda acc, scale: epilogues.scale(acc, scale=scale), C, V, by_cupy=False),
    call("leaky_relu", lambda acc: epilogues.leaky_relu(acc), C, by_cupy=False),
    call("dequantize", lambda acc, x: epilogues.dequantize(acc, row_scale=x), C, np.ones((2, 1), "f4"), by_cupy=False),
    call("residual_add", lambda acc, x: epilogues.residual_add(acc, residual=x), C, C, by_cupy=False),
    call("bgrad_a", lambda x: epilogues.bgrad_a(x, a=x), S, by_cupy=False),
    call("bgrad_b", lambda x: epilogues.bgrad_b(x, b=x), S, by_cupy=False),
    call("maximum", lambda x, y: epilogues.maximum(x, y), A, A, by_cupy=False),
    call("minimum", lambda x, y: epilogues.minimum(x, y), A, A, by_cupy=False),
    call("where", lambda x, y: epilogues.where(x > 0, x, y), A, A, by_cupy=False),
    call("epilogue", lambda acc, bias: observed(acc, bias=bias), C, WIDE, by_cupy=False),
    call("Bound", lambda acc, bias: observed(bias=bias)(acc), C, WIDE, by_cupy=False),
    call("pointers.dgemm", fill(pointers.dgemm), TWO, ONE, by_cupy=False),
]

WITHOUT_ARRAYS = {
    "Explanation",
    "ShardedArray",
    "backend",
    "current_backend",
    "empty_pinned",
    "enabled",
    "install",
    "keep_limit",
    "record",
    "release",
    "reset_stats",
    "set_workspace_limit",
    "stats",
    "tune",
    "uninstall",
    "warmup",
    "Epilogue",
    "ready",
    "pointers",
    "asarray",
    "from_dlpack",  # make arrays of ours of anything: test_creation.py
    "bgemm"
}  # NumPy has bfloat16 from ml_dtypes alone: test_types.py


def test_every_public_function_is_called():
    public = {*cuteblas.__all__, *(f"linalg.{name}" for name in linalg.__all__), *blas.__all__,
              *epilogues.__all__}
    called = {each.name for each in CALLS}
    assert public - called == WITHOUT_ARRAYS & public, public - called
    assert called - public == {"pointers.dgemm"}
    assert type(from_dlpack(ndarray(A))) is type(cuteblas.asarray(ndarray(A))) is ndarray


def same(result, expected, host=np.asarray):
    """Whether a result is the expected one with ours in place of its arrays and scalars."""
    if isinstance(expected, dict):
        assert type(result) is dict and result.keys() == expected.keys()
        for name, x in expected.items():
            same(result[name], x, host)
    elif isinstance(expected, (tuple, list)):
        assert type(result) is type(expected) and len(result) == len(expected)
        for x, y in zip(result, expected, strict=True):
            same(x, y, host)
    elif hasattr(expected, "strides"):
        assert type(result) is ndarray, f"{type(result)} in place of an array of ours"
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(host(result._data), host(expected))
    else:
        assert type(result) is type(expected) and result == expected


def check(each, made=lambda x: x.copy("K"), host=np.asarray):
    """A call with all of its arrays ours, and with each of them alone, against the call with
    none."""
    plain = [made(x) for x in each.arrays]
    expected = each.function(*plain)
    for chosen in (range(len(plain)), *([i] for i in range(len(plain)))):
        given = [ndarray(made(x)) if i in chosen else made(x) for i, x in enumerate(each.arrays)]
        result = each.function(*given)
        returned = [result, *(result if isinstance(result, (tuple, list)) else ())]
        returned += [x for part in returned if isinstance(part, dict) for x in part.values()]
        for i in each.into:
            assert any(x is given[i] for x in returned), "an array that is written into is returned"
            np.testing.assert_array_equal(host(given[i]._data if i in chosen else given[i]),
                                          host(plain[i]))
        if not each.into or len(chosen) > 1:
            same(result, expected, host)


@pytest.mark.parametrize("each", CALLS, ids=str)
def test_on_the_host(each):
    check(each)


@pytest.mark.parametrize("each", CALLS, ids=str)
def test_by_kernels(each, monkeypatch):
    if each.name.startswith("gemm_") and len(each.arrays) > 3:
        pytest.skip("groups are not run by the definition here")
    reference.install(monkeypatch)
    with cuteblas.backend("emulator"):
        check(each)


def test_a_call_is_counted_once(monkeypatch):
    x = ndarray(S)
    reference.install(monkeypatch)
    for backend in ("numpy", "emulator"):
        with cuteblas.backend(backend):
            for function in (matmul, cuteblas.dot, lambda a, b: matmul(a, b, epilogue="relu"),
                             lambda a, b: cuteblas.copy(a),
                             lambda a, b: cuteblas.ascontiguousarray(a.T)):
                cuteblas.reset_stats()
                function(x, S)
                counted = cuteblas.stats()
                assert sum(sum(counts["calls"].values())
                           for counts in counted.values()) == 1, counted


def test_another_type_answers():
    """A type that answers NumPy's functions gets the array of ours, as it does from NumPy."""
    class Foreign:
        def __array_ufunc__(self, ufunc, method, *inputs, **named):
            return [type(x) for x in inputs]

    assert cuteblas.matmul(ndarray(S), Foreign()) == np.matmul(ndarray(S),
                                                               Foreign()) == [ndarray, Foreign]
    with pytest.raises(TypeError, match="matmul with an epilogue takes plain NumPy or CuPy arrays"):
        cuteblas.matmul(ndarray(S), Foreign(), epilogue="relu")


cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from tests.functions import host_cupy  # noqa: E402


@pytest.fixture
def cupy_on_the_host(monkeypatch):
    for name in ("plan_gemm", "plan_copy", "plan_contraction", "plan_reduction"):
        monkeypatch.setattr(f"cuteblas.planning.{name}", reference.fake_plan)
    with host_cupy.installed():
        yield


ON_GPUS = [each for each in CALLS if each.by_cupy]


@pytest.mark.parametrize("each", ON_GPUS, ids=str)
def test_on_a_gpu(each, cupy_on_the_host):
    check(each, lambda x: host_cupy.on_gpu(x.copy("K")), host_cupy.on_host)


@pytest.mark.parametrize("each", [each for each in ON_GPUS if len(each.arrays) > 1], ids=str)
def test_host_and_gpu_are_refused(each, cupy_on_the_host):
    """Ours on the host and CuPy's on a GPU, and the other way round: one sentence that names both
    places."""
    if each.name in ("gemm_grouped", "einsum_path"):
        pytest.skip("each problem has a place of its own, and a path needs no elements")
    for on_gpu in ((0,), (len(each.arrays) - 1,), range(len(each.arrays) - 1)):
        plain = [host_cupy.on_gpu(x.copy("K")) if i in on_gpu else x.copy("K")
                 for i, x in enumerate(each.arrays)]
        for ours in (range(len(plain)), *([i] for i in range(len(plain)))):
            given = [ndarray(x) if i in ours else x for i, x in enumerate(plain)]
            with pytest.raises((TypeError, ValueError)) as refusal:
                each.function(*given)
            assert "host" in str(refusal.value) and "cuda:0" in str(refusal.value), refusal.value
