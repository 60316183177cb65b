"""NumPy's functions and ufuncs on ``cuteblas.ndarray``: ours with NumPy's, and with CuPy's arrays,
on either side."""

from __future__ import annotations

import gc
import operator
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing.overrides import (
    get_overridable_numpy_array_functions,
    get_overridable_numpy_ufuncs,
)

import cuteblas
from cuteblas.array import libraries, namespace, operators, wrapper
from cuteblas.array.wrapper import ndarray

from .test_wrapper import BINARY, IN_PLACE, outcome, same

A = np.arange(12, dtype=np.float64).reshape(3, 4)
S = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
V = np.array([3, 1, 2, 1])
B = A > 4
INTO = np.zeros((3, 4))

# For each function of NumPy calls that give arrays. The arguments are wrapped all together and one
# by one.
CALLS = [(np.all, B), (np.any, B, 0), (np.allclose, A, A), (np.amax, A, 1), (np.amin, A),
         (np.angle, A), (np.append, A, A, 0), (np.apply_along_axis, np.sum, 0, A),
         (np.apply_over_axes, np.sum, A, [0]), (np.argmax, A), (np.argmin, A, 1),
         (np.argpartition, V, 2), (np.argsort, V), (np.argwhere, B), (np.around, A, 1),
         (np.array2string, V), (np.array_equal, A, A), (np.array_equiv, A, A[0]),
         (np.array_split, V, 2), (np.array_str, V), (np.astype, A, "f4"), (np.atleast_1d, V, A),
         (np.atleast_2d, V), (np.atleast_3d, A), (np.average, A, 0), (np.bincount, V),
         (np.block, [[A, A], [A, A]]), (np.broadcast_arrays, A, A[0]), (np.broadcast_to, V, (3, 4)),
         (np.can_cast, A, "f8"), (np.choose, V % 2, [V, V + 1]), (np.clip, A, 2, 5),
         (np.column_stack, (V, V)), (np.common_type, A, A),
         (np.compress, [True, False, True], A, 0), (np.concatenate, (A, A), 1), (np.convolve, V, V),
         (np.copy, A), (np.copyto, INTO, A), (np.corrcoef, A), (np.correlate, V, V),
         (np.count_nonzero, B, 0), (np.cov, A), (np.cross, S, S), (np.cumprod, A, 1),
         (np.cumsum, A), (np.cumulative_sum, V), (np.delete, A, 1, 0), (np.diag, S),
         (np.diag_indices_from, S), (np.diagflat, V), (np.diagonal, A), (np.diff, A),
         (np.digitize, V, V[:1]), (np.dot, A, A.T), (np.dsplit, A.reshape(3, 2, 2), 2),
         (np.dstack, (A, A)), (np.ediff1d, V), (np.einsum, "ij,kj->ik", A, A),
         (np.einsum_path, "ij,kj->ik", A, A), (np.empty_like, np.empty(0)), (np.expand_dims, A, 0),
         (np.extract, B, A), (np.fft.fft, A), (np.fft.fftshift, A), (np.fft.irfft, A),
         (np.fill_diagonal, INTO, 3), (np.fix, A), (np.flatnonzero, B), (np.flip, A),
         (np.fliplr, A), (np.full_like, A, 3), (np.gradient, A), (np.histogram, V),
         (np.hstack, (V, V)), (np.imag, A), (np.inner, A, A), (np.insert, V, 1, 5),
         (np.interp, V, [0, 4], [1.0, 2]), (np.intersect1d, V, V), (np.isclose, A, A),
         (np.iscomplexobj, A), (np.isin, V, V[:1]), (np.isneginf, A), (np.isrealobj, A),
         (np.ix_, V, V), (np.kron, S, S), (np.lexsort, (V, V)), (np.linalg.cholesky, S),
         (np.linalg.cond, S), (np.linalg.cross, S, S), (np.linalg.det, S), (np.linalg.diagonal, S),
         (np.linalg.eig, S), (np.linalg.eigh, S), (np.linalg.eigvals, S), (np.linalg.eigvalsh, S),
         (np.linalg.inv, S), (np.linalg.lstsq, S, S), (np.linalg.matmul, S, S),
         (np.linalg.matrix_norm, S), (np.linalg.matrix_power, S, 3), (np.linalg.matrix_rank, S),
         (np.linalg.matrix_transpose, A), (np.linalg.multi_dot, [S, S, S]), (np.linalg.norm, A),
         (np.linalg.outer, V, V), (np.linalg.pinv, S), (np.linalg.qr, S), (np.linalg.slogdet, S),
         (np.linalg.solve, S, S), (np.linalg.svd, S), (np.linalg.svdvals, S),
         (np.linalg.tensordot, S, S), (np.linalg.trace, S), (np.linalg.vecdot, S, S),
         (np.linalg.vector_norm, A), (np.matrix_transpose, A), (np.max, A), (np.mean, A, 0),
         (np.median, A), (np.meshgrid, V, V), (np.min, A), (np.min_scalar_type, V),
         (np.moveaxis, A, 0, 1), (np.nan_to_num, A), (np.nanmax, A), (np.nanmean, A, 1),
         (np.nansum, A), (np.ndim, A), (np.nonzero, B), (np.ones_like, A), (np.outer, V, V),
         (np.packbits, B), (np.pad, V, 2), (np.partition, V, 2), (np.percentile, A, 50),
         (np.permute_dims, A, (1, 0)), (np.piecewise, V, [V > 1], [1, 0]),
         (np.place, INTO, B, [1.0]), (np.poly, V), (np.polyfit, V, V, 1), (np.polyval, V, V),
         (np.prod, A), (np.ptp, A, 0), (np.put, INTO, [0], [3]), (np.putmask, INTO, B, A),
         (np.quantile, A, 0.5), (np.ravel, A), (np.ravel_multi_index, (V % 2, V % 2), (2, 2)),
         (np.real, A), (np.repeat, V, 2), (np.reshape, A, (4, 3)), (np.resize, V, (2, 2)),
         (np.result_type, A, 1), (np.roll, A, 1, 0), (np.rollaxis, A, 1), (np.roots, V),
         (np.rot90, A), (np.round, A), (np.searchsorted, V, 2), (np.select, [B, ~B], [A, -A]),
         (np.setdiff1d, V, [1]), (np.shape, A), (np.sinc, A), (np.size, A), (np.sort, V),
         (np.split, V, 2), (np.squeeze, A[None]), (np.stack, (A, A)), (np.std, A), (np.sum, A, 1),
         (np.swapaxes, A, 0, 1), (np.take, A, [1, 0], 0), (np.take_along_axis, A, V[None] % 3, 0),
         (np.tensordot, A, A.T, 1), (np.tile, V, 2), (np.trace, A), (np.transpose, A),
         (np.trapezoid, V), (np.tril, A), (np.tril_indices_from, S), (np.trim_zeros, V),
         (np.unique, V), (np.unique_all, V), (np.unpackbits, np.array([3], np.uint8)),
         (np.unravel_index, V, (2, 2)), (np.unstack, A), (np.unwrap, A), (np.vander, V),
         (np.var, A), (np.vdot, A, A), (np.vsplit, A, 3), (np.vstack, (V, V)), (np.where, B, A, -A),
         (np.zeros_like, A)]


def wrapped(argument):
    """An argument with all of its arrays wrapped."""
    if isinstance(argument, np.ndarray):
        return ndarray(argument)
    return type(argument)(map(wrapped, argument)) if isinstance(argument,
                                                                (tuple, list)) else argument


def fresh(argument):
    return argument.copy() if argument is INTO else argument


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function, arguments", [(call[0], call[1:]) for call in CALLS],
                         ids=lambda x: getattr(x, "__name__", ""))
def test_functions(function, arguments):
    assert function in get_overridable_numpy_array_functions()
    expected_arguments = [fresh(x) for x in arguments]
    expected = outcome(function, *expected_arguments)
    assert not isinstance(expected, Exception), expected
    arrays = [i for i, x in enumerate(arguments)
              if any(isinstance(leaf, np.ndarray) for leaf in libraries.leaves(x))]
    for chosen in (arrays, *([i] for i in arrays)):
        ours = [wrapped(fresh(x)) if i in chosen else fresh(x) for i, x in enumerate(arguments)]
        same(outcome(function, *ours), expected)
        for i in arrays:
            np.testing.assert_array_equal(ours[i], expected_arguments[i])


CREATION = [(np.array, [1, 2]), (np.asarray, [1, 2]), (np.asanyarray, [1, 2]),
            (np.ascontiguousarray, [1, 2]), (np.arange, 3), (np.asfortranarray, [1, 2]),
            (np.empty, 0), (np.eye, 2), (np.identity, 2), (np.ones, 2), (np.zeros, 2),
            (np.full, 2, 3), (np.tri, 2), (np.fromfunction, lambda i: i, (2,)),
            (np.frombuffer, b"12345678"), (np.fromiter, [1, 2], "i4"),
            (np.fromstring, "1 2", "f8", -1, " "), (np.require, [1, 2])]


@pytest.mark.parametrize("call", CREATION, ids=lambda call: call[0].__name__)
def test_creation_like_ours(call):
    function, *arguments = call
    like = ndarray(A)           # NumPy 2.4 drops its reference before some of these calls
    same(function(*arguments, like=like), function(*arguments))


def ufuncs():
    return sorted(get_overridable_numpy_ufuncs(), key=lambda ufunc: ufunc.__name__)


SAMPLES = [V, S, B, np.array(["2020-01-01"] * 4, "M8[D]"), np.array([3, 1, 2, 1], "m8[D]"),
           np.array(["a b", "c"]), np.array([1, 2], object),
           np.array(["a", "b"], np.dtypes.StringDType())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ufunc", ufuncs(), ids=lambda ufunc: ufunc.__name__)
def test_ufuncs(ufunc):
    """Every ufunc on samples of several types, whatever NumPy returns or raises."""
    answered = 0
    for sample in SAMPLES:
        expected = outcome(ufunc, *[sample] * ufunc.nin)
        answered += not isinstance(expected, Exception)
        for count in range(1, ufunc.nin + 1):
            operands = [ndarray(sample)] * count + [sample] * (ufunc.nin - count)
            same(outcome(ufunc, *operands), expected)
            same(outcome(ufunc, *operands[::-1]), expected)
    # many of strings want numbers besides
    assert answered or ufunc.nin > 2 or ufunc.__name__.startswith("_")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.divmod, np.negative,
                                   np.logical_or], ids=lambda x: x.__name__)
@pytest.mark.parametrize("method, arguments, named",
                         [("reduce", (A,), {}), ("reduce", (A,), {"axis": 1, "keepdims": True}),
                          ("reduce", (A, None), {"initial": 3, "where": B}),
                          ("accumulate", (A, 1), {}), ("reduceat", (A, [0, 2], 1), {}),
                          ("outer", (V, V), {}), ("reduce", (A,), {"axis": 9}),
                          ("__call__", (A, A), {"where": B, "out": INTO}),
                          ("__call__", (A, A), {"dtype": "f4", "casting": "same_kind"}),
                          ("at", (INTO, ([0, 1], [1, 1]), 2.0), {})],
                         ids=lambda x: x if isinstance(x, str) else "")
def test_methods_of_ufuncs(ufunc, method, arguments, named):
    def call(wrap):
        target = INTO.copy()
        targets = (target, target.copy()) if ufunc.nout == 2 else target
        given = tuple(wrap(target if x is INTO else x) for x in arguments)
        options = {key: wrap(targets if x is INTO else x) for key, x in named.items()}
        result = outcome(getattr(ufunc, method), *given, **options)
        if isinstance(result, np.ndarray | ndarray) and "out" in options:
            assert result is options["out"]
        return result, target

    (expected, changed), (result, ours_changed) = call(lambda x: x), call(wrapped)
    if "out" in named and isinstance(expected, tuple):
        expected = tuple(expected)
    same(result, expected)
    np.testing.assert_array_equal(ours_changed, changed)


def test_out_of_any_type_is_returned():
    ours, plain = ndarray(np.empty((3, 4))), np.empty((3, 4))
    assert np.add(A, A, out=ours) is ours and np.add(ndarray(A), A, out=plain) is plain and np.add(A, 1, ours) is ours
    np.testing.assert_array_equal(ours._data, A + 1)
    np.testing.assert_array_equal(plain, A + A)
    quotient, remainder = np.divmod(A, 2, out=(ours, None))
    assert quotient is ours and type(remainder) is ndarray
    x = ndarray(A)
    assert np.ascontiguousarray([1], like=x) is not x and np.broadcast_arrays(x, x)[0].shape == (
        3,
        4
    )
    assert np.clip(x, 1, 3, out=ours) is ours and np.sum(A, 0, out=(total := ndarray(np.empty(4)))) is total
    into = np.empty((3, 3))
    y = ndarray(S)
    for call in (lambda: np.dot(y, S, into), lambda: np.matmul(S, y, into),
                 lambda: cuteblas.dot(y, S, into), lambda: np.clip(y, 0, 1, into),
                 lambda: y.cumsum(0, None, into), lambda: np.add(S, y, into),
                 lambda: np.cumsum(y, 0, None, into), lambda: cuteblas.matmul(y, S, into),
                 lambda: np.outer(y[0], S[0], into), lambda: np.take(y, [0, 1, 2], 0, into)):
        assert call() is into
    with pytest.raises(TypeError, match="return arrays must be of ArrayType"):
        np.add(x, x, out=[1])


def test_calls_keep_no_array_alive():
    # memory should be freed as soon as it is unused, not at the next garbage collection
    gc.disable()
    try:
        x, out = ndarray(S.copy()), ndarray(np.empty((3, 3)))
        np.dot(x, x, out), np.divmod(x, x), np.linalg.svd(x), x.sum()
        watched = [weakref.ref(x), weakref.ref(out)]
        del x, out
        assert all(ref() is None for ref in watched)
    finally:
        gc.enable()


def test_where_alone_is_ours():
    same(np.add(A, A, where=ndarray(B), out=ndarray(INTO.copy())),
         np.add(A, A, where=B, out=INTO.copy()))


@pytest.mark.parametrize("axes", [{}, {"axis": 0}, {"keepdims": True}, {"axes": [0, 0, ()]},
                                  {"dtype": "f4"}, {"axis": 7}, {"where": True}], ids=str)
@pytest.mark.parametrize("ufunc", [np.matmul, np.vecdot, np.matvec, np.vecmat],
                         ids=lambda ufunc: ufunc.__name__)
def test_gufuncs(ufunc, axes):
    operands = (S, S[0]) if ufunc is np.matvec else (S[0], S) if ufunc is np.vecmat else (S, S)
    expected = outcome(ufunc, *operands, **axes)
    cuteblas.reset_stats()
    same(outcome(ufunc, *map(ndarray, operands), **axes), expected)
    same(outcome(ufunc, ndarray(operands[0]), operands[1], **axes), expected)
    counted = sum(cuteblas.stats().get(ufunc.__name__, {}).get("calls", {}).values())
    assert counted == (0 if isinstance(expected, Exception) else 2)


@pytest.mark.parametrize("call", [lambda x: np.matmul.reduce(x), lambda x: np.matmul.outer(x, x),
                                  lambda x: np.matmul.at(x, 0, x),
                                  lambda x: np.matmul.accumulate(x)])
def test_gufuncs_have_no_methods(call):
    expected = outcome(call, S)
    assert isinstance(expected, Exception)
    same(outcome(call, ndarray(S)), expected)


def test_our_functions_answer():
    x = ndarray(S)
    cuteblas.reset_stats()
    np.dot(x, S), np.vdot(S, x), np.inner(x, S), np.outer(x, S), np.kron(x, S), np.tensordot(x, S), np.einsum("ij->i", x)
    np.linalg.matrix_power(x, 2), np.linalg.multi_dot([S, x]), np.copy(x), np.linalg.vecdot(x, x)
    assert {"dot", "vdot", "inner", "outer", "kron", "tensordot", "einsum", "linalg.matrix_power",
            "linalg.multi_dot", "copy", "linalg.vecdot"} <= set(cuteblas.stats())
    assert np.transpose(x)._data.base is S or np.transpose(x)._data.base is S.base


@pytest.mark.parametrize("function, arguments",
                         [("dot", (S, S)), ("vdot", (S, S)), ("inner", (S, S)), ("outer", (V, V)),
                          ("tensordot", (S, S)), ("einsum", ("ij,jk", S, S)), ("kron", (S, S)),
                          ("vecdot", (S, S)), ("matvec", (S, S[0])), ("vecmat", (S[0], S)),
                          ("linalg.multi_dot", ([S, S],)), ("linalg.matrix_power", (S, 2)),
                          ("linalg.outer", (V, V))])
def test_our_functions_by_our_names_are_counted_once(function, arguments):
    call, numpys = (operator.attrgetter(function)(package) for package in (cuteblas, np))
    cuteblas.reset_stats()
    same(call(*wrapper.wrapped(arguments)), numpys(*arguments))
    assert cuteblas.stats() == {function: {"calls": {"numpy": 1}}}


def test_our_functions_are_those_of_numpys_names():
    ours = libraries.ours_by_numpys()
    assert ours[np.matmul] is cuteblas.matmul and ours[np.linalg.multi_dot] is cuteblas.linalg.multi_dot
    assert np.record not in ours and all(function.__name__ == ours[function].__name__
                                         for function in ours)


def test_einsum_of_the_namespace():
    x = ndarray(S)
    same(namespace.einsum("ij,kj->ik", x, x), S @ S.T)


def test_foreign_functions_see_our_arrays():
    class Other:
        def __array_function__(self, function, types, arguments, named):
            return [type(x) for x in arguments]

    assert np.dot(ndarray(A), Other()) == [ndarray, Other] and np.concatenate(
        [ndarray(A), Other()]
    ) == [list]


def test_foreign_functions_are_refused_by_name():
    class Other:
        def __array_function__(self, function, types, arguments, named):
            return NotImplemented

    with pytest.raises(
        TypeError,
        match=r"no implementation found for 'numpy\.dot' on types that implement __array_function__"
    ):
        np.dot(ndarray(A), Other())
    with pytest.raises(TypeError, match=r"operand type.*all returned NotImplemented.*'add'"):
        np.add(ndarray(A), type("Mute", (), {"__array_ufunc__": lambda *a, **k: NotImplemented})())


# -- CuPy's arrays ---------------------------------------------------------------------------------
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines import cuda  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from tests.functions.host_cupy import install, on_gpu, on_host  # noqa: E402


@pytest.fixture
def on_the_host(monkeypatch):
    """CuPy's arrays in host memory, multiplied by the definition."""
    from tests.functions import reference

    monkeypatch.setattr("cuteblas.planning.plan_gemm", reference.fake_plan)
    monkeypatch.setattr("cuteblas.planning.plan_copy", reference.fake_plan)
    monkeypatch.setattr("cuteblas.planning.plan_contraction", reference.fake_plan)
    monkeypatch.setattr("cuteblas.planning.plan_reduction", reference.fake_plan)
    install(monkeypatch)
    _forget()
    cuteblas.reset_stats()
    yield
    _forget()


def _forget():
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()


C, W = S, S.T.copy()
SIDES = {"ours-ours": (True, True), "ours-cupy": (True, False), "cupy-ours": (False, True)}


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("call", [operator.matmul, np.matmul, np.linalg.matmul, np.dot,
                                  lambda a, b: np.tensordot(a, b, 1), np.inner, np.vdot, np.outer,
                                  np.kron, np.vecdot, np.linalg.vecdot,
                                  lambda a, b: np.einsum("ij,jk", a, b),
                                  lambda a, b: np.linalg.multi_dot([a, b, a]),
                                  lambda a, b: np.matvec(a, b[0]), lambda a, b: np.vecmat(a[0], b),
                                  lambda a, b: np.linalg.outer(a[0], b[0]),
                                  lambda a, b: np.linalg.tensordot(a, b, axes=2)])
def test_products_with_cupy(on_the_host, sides, call):
    a, b = (ndarray(on_gpu(x)) if ours else on_gpu(x)
            for x, ours in zip((C, W), sides, strict=True))
    result, expected = call(a, b), call(C, W)
    assert type(result) is ndarray and type(result._data) is cupy.ndarray and result.device == "cuda:0"
    np.testing.assert_array_equal(on_host(result._data), expected)
    assert not any("numpy" in route.lower() for counts in cuteblas.stats().values()
                   for route in counts.get("calls", {}))


@pytest.mark.parametrize("call", [np.transpose, np.matrix_transpose, lambda x: np.swapaxes(x, 0, 1),
                                  lambda x: np.moveaxis(x, 0, 1), lambda x: x.T, lambda x: x.mT,
                                  lambda x: x[::-1, 0], lambda x: x.reshape(-1), np.copy,
                                  lambda x: np.linalg.matrix_power(x, 3), lambda x: x.copy(),
                                  lambda x: x.dot(x)])
def test_one_array_of_cupy(on_the_host, call):
    result = call(ndarray(on_gpu(C)))
    assert type(result) is ndarray and type(result._data) is cupy.ndarray
    np.testing.assert_array_equal(on_host(result._data), call(C))


@pytest.fixture
def host_ufuncs(monkeypatch):
    """What ``_cupy_functions`` asks of CuPy, in host memory."""
    def host(x):
        return on_host(x) if isinstance(x, cupy.ndarray) else x

    def by_numpy(theirs):
        return lambda *arrays, **named: on_gpu(theirs(*map(host, arrays), **named))

    for name in ("less", "add"):
        monkeypatch.setattr(cupy, name, by_numpy(getattr(np, name)))
    cupy.add.outer = by_numpy(np.add.outer)
    monkeypatch.setattr(cupy, "asarray", lambda x: x if isinstance(x, cupy.ndarray)
                        else on_gpu(np.asarray(x)))
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype: on_gpu(np.full(shape, 7, dtype)))
    monkeypatch.setattr(
        cupy,
        "copyto",
        lambda dst, src, casting, where: np.copyto(host(dst), host(src), casting, host(where))
    )
    monkeypatch.setattr(
        cupy.ndarray,
        "sum",
        lambda x, axis, keepdims=False, out=None: on_gpu(host(x).sum(axis, keepdims=keepdims))
    )


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
def test_where_with_cupy(host_ufuncs):
    x, y, mask = (ndarray(on_gpu(v)) for v in (C, W, C > 1))
    out = ndarray(on_gpu(np.full((3, 3), 5.0)))
    assert np.less(x, y, out=out, where=mask) is out
    np.testing.assert_array_equal(on_host(out._data),
                                  np.less(C, W, where=C > 1, out=np.full((3, 3), 5.0)))
    result = np.add(x, 1, where=[True, False, True], out=None)
    np.testing.assert_array_equal(on_host(result._data)[:, ::2], C[:, ::2] + 1)
    assert (on_host(result._data)[:, 1] == 7).all()
    wide = np.add(x[0], 1, where=mask, out=None)
    assert wide.shape == (3, 3)
    for mask, casting in ((np.array([1, 0, 1]), "same_kind"), (C > 1, "no")):
        with pytest.raises(TypeError) as theirs:
            np.less(C, 1, where=mask, out=C.copy(), casting=casting)
        with pytest.raises(TypeError) as ours:
            np.less(x, 1, where=on_gpu(mask), out=x, casting=casting)
        assert str(ours.value) == str(theirs.value)


def test_methods_of_ufuncs_with_cupy(host_ufuncs):
    x = ndarray(on_gpu(C))
    np.testing.assert_array_equal(on_host(np.add.reduce(x)._data), np.add.reduce(C))
    np.testing.assert_array_equal(on_host(np.add.reduce(x, 1, keepdims=True)._data),
                                  np.add.reduce(C, 1, keepdims=True))
    np.testing.assert_array_equal(on_host(np.add.outer(x, x)._data), np.add.outer(C, C))
    for call, name in ((lambda: np.hypot.reduce(x), r"hypot\.reduce"),
                       (lambda: np.isnat.at(x, [0]), r"isnat\.at")):
        with pytest.raises(TypeError, match=f"CuPy has no {name}"):
            call()
    with pytest.raises(TypeError, match="not allowed in ufunc with non-trivial signature"):
        np.matmul.outer(x, x)


def test_creation_like_cupy(on_the_host, monkeypatch):
    zeros = SimpleNamespace(zeros=lambda *arguments: on_gpu(np.zeros(*arguments)))
    monkeypatch.setattr(
        wrapper, "made_on", lambda device: nullcontext({"cuda:0": zeros, "cpu": np}[device])
    )
    like = ndarray(on_gpu(C))
    assert np.zeros(3, like=like).device == "cuda:0" and np.zeros(3,
                                                                  like=ndarray(C)).device == "cpu"
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.full'"):
        np.full(3, 1, like=like)


def test_in_place_with_cupy(on_the_host):
    x = C.copy()
    ours = before = ndarray(on_gpu(x))
    ours @= on_gpu(W)
    assert ours is before and np.array_equal(x, C @ W)
    theirs = on_gpu(C.copy())
    theirs @= ours
    assert type(theirs) is ndarray          # CuPy has no in-place product


@pytest.mark.parametrize("call", [call for call in BINARY if call not in (operator.matmul, divmod)],
                         ids=lambda call: call.__name__)
def test_operators_with_cupy_are_ours(monkeypatch, call):
    """Whichever is on the left; the elements themselves need a GPU."""
    asked = []
    monkeypatch.setattr(ndarray, "__array_ufunc__",
                        lambda self, ufunc, *rest: asked.append(ufunc) or "ours")
    monkeypatch.setattr(operators, "_operated",
                        lambda call, x, other: asked.append(type(other)) or "ours")
    ours, theirs = ndarray(on_gpu(C)), on_gpu(C)
    assert call(theirs, ours) == "ours" and call(ours, theirs) == "ours"
    assert len(asked) == 2 and asked[1] is cupy.ndarray


@pytest.mark.parametrize("ufunc", [np.add, np.less, np.power, np.divmod, np.logical_and],
                         ids=lambda ufunc: ufunc.__name__)
def test_ufuncs_with_cupy_are_ours(monkeypatch, ufunc):
    monkeypatch.setattr(ndarray, "__array_ufunc__", lambda self, ufunc, *rest: ufunc.__name__)
    ours, theirs = ndarray(on_gpu(C)), on_gpu(C)
    assert ufunc(theirs, ours) == ufunc(ours, theirs) == ufunc.__name__


def test_cupy_has_all_operators_in_place():
    assert all(hasattr(cupy.ndarray, f"__{call.__name__}__") for call in IN_PLACE
               if call is not operator.imatmul)


def test_the_cuda_array_interface_stays_closed():
    """With it CuPy would answer ``cupy_array @ ours`` itself."""
    assert not hasattr(ndarray, "__cuda_array_interface__") and not hasattr(
        ndarray, "__cupy_get_ndarray__"
    )


HOST_AND_GPU = [operator.matmul, operator.add, operator.lt, np.add, np.matmul, np.dot, np.copyto,
                divmod, operator.iadd, operator.imatmul, lambda a, b: np.concatenate([a, b]),
                lambda a, b: np.where(a, a, b), lambda a, b: operator.setitem(a, 0, b),
                namespace.add]


@pytest.mark.parametrize("call", HOST_AND_GPU)
def test_host_and_gpu_do_not_mix(on_the_host, call):
    ours, ours_on_gpu = ndarray(C), ndarray(on_gpu(C))
    for a, b in ((ours, on_gpu(C)), (ours_on_gpu, ours), (ours_on_gpu, C), (ours, ours_on_gpu)):
        with pytest.raises(
            ValueError,
            match=r"needs its operands on one device, but .* is on (the host|cuda:0) and .* on "
        ):
            call(a, b)


def test_gpu_arrays_are_not_moved_silently():
    x = ndarray(on_gpu(C))
    assert x.device == "cuda:0" and x.shape == (3, 3) and len(x) == 3
    for call in (np.asarray, np.array, lambda x: np.asarray([x, x])):
        with pytest.raises(TypeError,
                           match=r"Implicit conversion to a NumPy array is not allowed.*to_device"):
            call(x)


def test_functions_that_neither_has_are_refused_by_name():
    x = ndarray(on_gpu(C))
    for function in (np.is_busday, np.datetime_as_string):
        with pytest.raises(TypeError,
                           match=rf"no implementation found for 'numpy\.{function.__name__}'"):
            function(x)


@pytest.mark.gpu
@pytest.mark.parametrize("call", BINARY, ids=lambda call: call.__name__)
def test_operators_on_a_gpu(call):
    dtype = int if call in (operator.lshift, operator.rshift, operator.and_, operator.or_,
                            operator.xor) else float
    a, b = S.astype(dtype) + 1, S.T.astype(dtype) + 1
    expected = call(a, b)
    for first, second in ((True, True), (True, False), (False, True)):
        x, y = (ndarray(cupy.asarray(v)) if ours else cupy.asarray(v)
                for v, ours in ((a, first), (b, second)))
        result = call(x, y)
        for r, e in zip(*((v if isinstance(v, tuple) else (v,)) for v in (result, expected)),
                        strict=True):
            assert type(r) is ndarray and r.device == "cuda:0"
            np.testing.assert_allclose(np.asarray(r.to_device("cpu")), e)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
@pytest.mark.parametrize("call", [np.add.reduce, np.multiply.reduce, np.maximum.reduce,
                                  lambda x: np.minimum.reduce(x, 1),
                                  lambda x: np.logical_and.reduce(x > 1),
                                  lambda x: np.logical_or.reduce(x > 3, axis=None),
                                  lambda x: np.add.reduce(x, axis=(0, 1), keepdims=True),
                                  np.add.accumulate, lambda x: np.multiply.accumulate(x, 1),
                                  lambda x: np.add.outer(x, x[0]),
                                  lambda x: np.add.reduceat(x, [0, 2]),
                                  lambda x: np.where(x > 1, np.sqrt(x, where=x > 1), 0.0),
                                  lambda x: np.less(x, 2, where=x > 1, out=x.copy()),
                                  lambda x: [np.add.at(x, [0, 0], 1.0), x][1]])
def test_methods_of_ufuncs_and_where_on_a_gpu(call):
    result = call(cuteblas.asarray(S, copy=True))
    assert type(result) is ndarray and result.device == "cuda:0"
    np.testing.assert_allclose(np.asarray(result.to_device("cpu")), call(S.copy()))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2)])
def test_singular_matrices_on_a_gpu(shape):
    with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
        cuteblas.linalg.matrix_power(cupy.zeros(shape), -1)


@pytest.mark.gpu
def test_a_gpu_array_is_one_in_everything():
    import pickle

    x = cuteblas.asarray(S)
    assert x.device.startswith("cuda:") and repr(x).endswith("device='cuda:0')") and str(x) == str(S)
    assert (pickle.loads(pickle.dumps(x)) == x).all() and range(3)[cuteblas.asarray(1)] == 1
    assert float(x[0, 0]) == 4.0 and int(np.sum(x)) == 13
    np.testing.assert_array_equal(np.from_dlpack(x.to_device("cpu")), S)
    assert cuteblas.array.from_dlpack(cupy.asarray(S)).device == "cuda:0"
    assert np.asarray(cuteblas.array.from_dlpack(x, device="cpu")).tolist() == S.tolist()
    assert x.to_device("cpu").device == "cpu" and x.to_device("cuda:0") is x
    mask = x > 3
    assert x[mask].shape == (1,) and x[cuteblas.asarray([1, 0])].shape == (2, 3) and x[mask].device == "cuda:0"
    x[mask] = 4
    x += 1
    assert np.asarray(x.to_device("cpu")).tolist() == (S + 1).tolist()
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    assert np.ones(3, like=x).device == "cuda:0"
    with pytest.raises(TypeError, match="spacing"):
        np.spacing(x)


def test_a_view_on_a_gpu_has_numbers(on_the_host):
    x = ndarray(on_gpu(np.arange(3.0)))
    assert x.view(np.int64).dtype == np.int64
    for element in (np.ndarray, object, type("Matrix", (np.ndarray,), {})):
        with pytest.raises(TypeError, match="view takes a dtype of numbers"):
            x.view(element)
