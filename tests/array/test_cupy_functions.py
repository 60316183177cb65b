"""NumPy's functions and methods on arrays of ours on a GPU: which arguments CuPy gets, and what
comes back."""

from __future__ import annotations

import copy
import operator
import pickle
from collections import deque
from contextlib import nullcontext
from inspect import Parameter, signature
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing.overrides import get_overridable_numpy_array_functions

import cuteblas
from cuteblas.array import operators, wrapper
from cuteblas.array.wrapper import ndarray

from .test_dispatch import CALLS
from .test_wrapper import outcome

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.array import _cupy_functions as functions  # noqa: E402

NUMPYS = sorted((function for function in get_overridable_numpy_array_functions()
                 if functions._theirs(function)),
                key=lambda function: (function.__module__, function.__name__))


class Recorder:
    """A function of CuPy's parameters that returns the arguments that it is given, by these
    names."""

    def __init__(self, theirs):
        self.__name__, self.__signature__ = theirs.__name__, signature(theirs)

    def __call__(self, *arguments, **named):
        return self.__signature__.bind(*arguments, **named).arguments


def takes_anything(described):
    return any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
               for p in described.parameters.values())


def translated(function, *arguments, **named):
    """What CuPy's function would get."""
    given = signature(function).bind(*arguments, **named)
    return functions._translated(function, [Recorder(functions._theirs(function)[0])], given)()


@pytest.mark.parametrize("function", NUMPYS,
                         ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_parameters(function):
    """What NumPy's function needs arrives, by place or name; each other parameter arrives, or is
    refused by name."""
    numpys, cupys = functions._signature(function), functions._signature(functions._theirs(function)[0])
    if numpys is None or cupys is None or function in functions._INSTEAD:
        pytest.skip("no signature, or a function of our own")
    if takes_anything(cupys):
        pytest.skip("CuPy's function takes anything")
    positional = [p for p in numpys.parameters.values() if p.kind in functions._BY_PLACE]
    needed = {p.name: object() for p in positional if p.default is Parameter.empty}
    by_place = translated(function, *needed.values())
    assert [*by_place.values()][:len(needed)] == [*needed.values()]
    if all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in positional):
        assert translated(function, **needed) == by_place
    for p in numpys.parameters.values():
        if p.default is not Parameter.empty and p.kind is not Parameter.POSITIONAL_ONLY:
            value = object()
            try:
                received = translated(function, *needed.values(), **{p.name: value})
            except TypeError as error:
                received = str(error)
            if isinstance(received, str):
                assert received == f"CuPy's {function.__name__} does not take {p.name!r}"
            else:
                assert value in received.values() and set(by_place) <= set(received)
            assert translated(function, *needed.values(),
                              **{p.name: p.default}).keys() >= by_place.keys()


@pytest.mark.parametrize("call, expected", [(lambda: translated(np.reshape, 1, shape=(2, 3)),
                                             {"a": 1, "newshape": (2, 3)}),
                                            (lambda: translated(np.reshape, 1, (2, 3), "F"),
                                             {"a": 1, "newshape": (2, 3), "order": "F"}),
                                            (lambda: translated(np.argmax, 1, 0, 2, keepdims=True),
                                             {"a": 1, "axis": 0, "out": 2, "keepdims": True}),
                                            (lambda: translated(np.argsort, 1, kind="mergesort"),
                                             {"a": 1}),
                                            (lambda: translated(np.sort, 1, stable=True), {"a": 1}),
                                            (lambda: translated(np.zeros_like, 1, subok=False,
                                                                device=None), {"a": 1}),
                                            (lambda: translated(np.histogram2d, 1, 2, 5, None, True,
                                                                3),
                                             {"x": 1, "y": 2, "bins": 5, "range": None,
                                              "density": True, "weights": 3}),
                                            (lambda: translated(np.linalg.matrix_rank, 1, 2),
                                             {"M": 1, "tol": 2}),
                                            (lambda: translated(np.take_along_axis, 1, 2),
                                             {"a": 1, "indices": 2, "axis": -1}),
                                            (lambda: translated(np.put, 1, 2, 3, "raise"),
                                             {"a": 1, "ind": 2, "v": 3, "mode": "raise"}),
                                            (lambda: translated(np.unique, 1, sorted=False, axis=0),
                                             {"ar": 1, "axis": 0})])
def test_translations(call, expected):
    try:
        assert dict(call()) == expected
    except TypeError as error:          # of a NumPy without that parameter
        if "unexpected keyword" not in str(error):
            raise


@pytest.mark.parametrize("name, by_place, names, shared",
                         [("sort", 2, (), True), ("sort", 1, ("axis",), True),
                          ("sort", 3, (), False), ("sort", 1, ("kind",), False),
                          ("sort", 0, (), False), ("linalg.norm", 4, (), True),
                          ("linalg.norm", 1, ("keepdims", "ord"), True),
                          ("concatenate", 3, (), True), ("histogram2d", 4, (), True),
                          ("histogram2d", 5, (), False), ("take_along_axis", 2, (), False),
                          ("take_along_axis", 3, (), True), ("meshgrid", 2, (), False)])
def test_what_is_passed_on_untranslated(name, by_place, names, shared):
    numpys, cupys = (operator.attrgetter(name)(library) for library in (np, cupy))
    assert functions._is_shared(numpys, cupys, by_place, names) == shared


# -- calls -----------------------------------------------------------------------------------------
A = np.arange(12, dtype=np.float64).reshape(3, 4)
V = np.array([3, 1, 2, 1])
B = A > 4
S = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
N = np.array([[1.0, np.nan], [2.0, 3.0]])

# Calls as NumPy has them and CuPy does not, with what NumPy takes beside arrays.
FURTHER = [(np.take, V, [9, -7], {"mode": "wrap"}), (np.take, A, [5, -9], None, None, "clip"),
           (np.take, V, [9], {"mode": "raise"}), (np.take, A, [1, 0], 1),
           (np.take, V, V % 4, {"out": np.zeros(4, int)}), (np.choose, V % 2, [V, V + 1]),
           (np.choose, V, [V, V + 1], {"mode": "clip"}), (np.choose, V % 2, [1, 2]),
           (np.choose, V % 2, [V, V + 1], {"out": np.zeros(4, int)}), (np.copyto, A, 3),
           (np.copyto, A, np.float64(3)), (np.copyto, A, np.float32(3)),
           (np.copyto, A, [1.0, 2, 3, 4]), (np.copyto, A, 2, {"where": [True, False, True, False]}),
           (np.append, V, 5), (np.append, V, np.int64(5)), (np.append, V, [5, 6]),
           (np.append, V, np.float32(2.5)), (np.append, A, [[1, 2, 3, 4]], 0),
           (np.where, B, A, [1.0, 2, 3, 4]), (np.where, B, np.float32(1), 0),
           (np.concatenate, [A, [[1, 2, 3, 4]]]), (np.stack, [A, A.tolist()]),
           (np.broadcast_arrays, A, V, 1), (np.meshgrid, V, [1, 2]), (np.sum, A, {"where": B}),
           (np.sum, A, 0, {"initial": 3}), (np.prod, A, {"where": B, "initial": 2}),
           (np.mean, A, {"where": B}), (np.mean, A, 0, {"where": A < 9, "keepdims": True}),
           (np.max, A, {"initial": 100}), (np.min, A, 1, {"where": B, "initial": 9}),
           (np.any, A, {"where": B}), (np.all, A, 0, {"where": B}), (np.std, A, {"correction": 1}),
           (np.var, A, 0, {"ddof": 1, "keepdims": True}), (np.max, np.empty(0)),
           (np.max, A, {"where": B}), (np.count_nonzero, B, {"axis": 0, "keepdims": True}),
           (np.sort, A, {"stable": True}), (np.argsort, A, {"kind": "mergesort"}),
           (np.searchsorted, np.sort(V), [1, 2]), (np.sort, A, -1, "mergesort"),
           (np.zeros_like, A, "f4", "C", True), (np.isin, V, [1, 2]),
           (np.isin, V, [1, 2], {"kind": "sort"}), (np.digitize, A, [1, 5]),
           (np.interp, A, [0, 4], [1.0, 2]), (np.clip, A, {"min": 2, "max": 3}),
           (np.clip, A, [1, 2, 3, 4], 9), (np.clip, A, None, 3), (np.allclose, A, 3),
           (np.array_equal, A, A.tolist()), (np.array_equal, A, 3),
           (np.array_equal, N, N, {"equal_nan": True}), (np.array_equiv, A, [0]),
           (np.full_like, A, [1, 2, 3, 4]), (np.zeros_like, A, {"subok": False}),
           (np.zeros_like, A, {"device": None}), (np.reshape, A, {"shape": (2, 6)}),
           (np.reshape, A, {"shape": (2, 6), "copy": True}), (np.putmask, A, B, [1.0, 2]),
           (np.lexsort, (V, V)), (np.ediff1d, V, 9, [1, 2]), (np.gradient, A, 2.0),
           (np.atleast_1d, 3, V), (np.polyval, [1, 2], V), (np.linalg.svd, S, False),
           (np.linalg.svd, S, {"compute_uv": False}), (np.linalg.qr, S, "complete"),
           (np.linalg.qr, S, "r"), (np.linalg.eigh, S, "U"), (np.linalg.slogdet, np.stack([S, S])),
           (np.linalg.slogdet, np.zeros((2, 2))), (np.linalg.inv, np.zeros((2, 2))),
           (np.linalg.inv, np.zeros((3, 2, 2))), (np.linalg.inv, S),
           (np.linalg.inv, np.stack([S, S])), (np.linalg.solve, np.zeros((2, 2)), np.ones(2)),
           (np.linalg.solve, S, [1.0, 2, 3]), (np.linalg.cholesky, -S), (np.linalg.det, S),
           (np.linalg.det, np.zeros((2, 2))), (np.linalg.svdvals, A),
           (np.linalg.vector_norm, A, {"axis": 0, "ord": 1}),
           (np.linalg.matrix_norm, A, {"ord": 1}), (np.linalg.diagonal, A, {"offset": 1}),
           (np.linalg.trace, A, {"offset": 1}),
           (np.unstack, A, {"axis": 1}) if hasattr(np, "unstack") else (np.sum, A),
           (np.dot, A, [1.0, 2, 3, 4]), (np.inner, V, [1, 2, 3, 4]), (np.matmul, A, [1.0, 2, 3, 4]),
           (np.vecdot, A, [1.0, 2, 3, 4]), (np.vdot, V, [1, 2, 3, 4]),
           (np.tensordot, A, A.tolist(), {"axes": 2}), (np.kron, [1, 2], V),
           (np.linalg.multi_dot, [S, S.tolist(), S]), (np.add, A, [1, 2, 3, 4]),
           (np.add, [1, 2, 3, 4], A), (np.power, V, -1), (np.maximum, A, [[5], [6], [7]]),
           (np.less, np.float32(2), A), (np.divmod, V, [2, 2, 2, 2]), (np.stack, deque([A, A])),
           (np.vstack, [A, [1, 2, 3, 4]]), (np.percentile, A, [25, 50]), (np.linalg.norm, A, 2),
           (np.linalg.cholesky, S, {"upper": True}), (np.linalg.matrix_rank, A, {"rtol": 0.1}),
           (np.linalg.pinv, A, {"rtol": 0.1}), (np.clip, A, A - 1, A + 1), (np.cov, A, {"ddof": 0}),
           (np.logical_and, A + 1j, A), (np.put, A, [99], 3, {"mode": "raise"}),
           (np.linalg.qr, A, {"mode": "raw"}), (np.linalg.inv, np.full((2, 2), np.nan)),
           (np.linalg.inv, np.stack([np.full((2, 2), np.nan), np.eye(2)])),
           (np.linalg.inv, np.stack([np.full((2, 2), np.nan), np.zeros((2, 2))])),
           (np.einsum, "ij,ij", A, A.tolist())]
# What CuPy does not have; each is refused, by a TypeError or in CuPy's words, and none is answered
# wrongly.
LACKING = [(np.block, [[A, A]]), (np.insert, V, 1, 5), (np.linalg.svd, S, {"hermitian": True}),
           (np.sum, A, 0, float, None, False, {"x": 1}), (np.std, A, {"where": B}),
           (np.clip, A, 2, 3, {"dtype": "f4"}), (np.cov, V, V, {"aweights": V}),
           (np.linalg.pinv, A, {"hermitian": True}),
           (np.quantile, A, 0.5, {"weights": A, "method": "inverted_cdf"}),
           (np.zeros_like, A, {"device": "cpu"}),
           (np.unpackbits, np.array([3], np.uint8), {"count": 3}), (np.spacing, A),
           (np.piecewise, A, [B], [lambda x: x])]
# NumPy's functions in ``CALLS`` that CuPy does not have, or not for these arguments.
NOT_ON_A_GPU = {"block", "insert", "roots", "packbits"}
# What NumPy leaves open.
UNSPECIFIED = {"argpartition", "partition", "array_repr", "empty_like", "searchsorted"}


def on_gpu(x):
    """Arguments with arrays of ours on the GPU in the places of NumPy's."""
    if isinstance(x, np.ndarray):
        return ndarray(cupy.asarray(x)) if x.dtype.kind in "biufc" else x
    if isinstance(x, dict):
        return {key: on_gpu(value) for key, value in x.items()}
    return type(x)(map(on_gpu, x)) if isinstance(x, (list, tuple, deque)) else x


def agree(result, expected):
    if isinstance(expected, Exception):
        assert isinstance(result, type(expected)), repr(result)
    elif isinstance(expected, (list, tuple)):
        assert type(result).__name__ == type(expected).__name__ and len(result) == len(expected)
        for r, e in zip(result, expected, strict=True):
            agree(r, e)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert type(result) is ndarray and result.device.startswith("cuda"), repr(result)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(np.asarray(result.to_device("cpu")), expected, rtol=1e-6,
                                   atol=1e-9)
    else:
        assert type(result) is type(expected) and result == expected, repr(result)


def both(function, arguments):
    """What NumPy makes of a call, and of the same with arrays of ours on the GPU; what was written
    into them is part of it."""
    outcomes = []
    for move in (lambda x: x, on_gpu):
        given = copy.deepcopy(arguments)
        named = given.pop() if isinstance(given[-1], dict) else {}
        given, named = [move(x) for x in given], move(named)
        result = outcome(function, *given, **named)
        arrays = [x for x in (*given, named.get("out")) if isinstance(x, (np.ndarray, ndarray))]
        written = [] if isinstance(result, Exception) else arrays
        outcomes.append((result, written))
    return outcomes


# -- CuPy's functions, played by NumPy's -----------------------------------------------------------
# Parameters of CuPy's functions that have to be arrays.
STRICT = {"a", "a1", "a2", "arr", "arr1", "arr2", "b", "bins", "choices", "element", "fill_value",
          "fp", "mask", "p", "src", "test_elements", "to_begin", "to_end", "v", "values", "x", "xp",
          "y"}


class Played:
    """A function with the parameters of CuPy's, and as strict about lists, that NumPy answers."""

    def __init__(self, theirs, numpys):
        self.__name__, self.__signature__, self._numpys = theirs.__name__, signature(theirs), numpys
        names = functions._renamed(numpys, theirs)
        self._names = names and {cupys: numpy for numpy, cupys in names.items()}

    def __call__(self, *arguments, **named):
        if self._names is None:
            return self._numpys(*arguments, **named)
        bound = self.__signature__.bind(*arguments, **named)
        numpys, placed, given = signature(self._numpys).parameters, [], {}
        for name, value in bound.arguments.items():
            members = value if name in ("tup", "arrays", "xi", "args", "arys", "choicelist",
                                        "condlist") else ()
            if (name in STRICT and isinstance(value, list)) or any(isinstance(x, list)
                                                                   for x in members):
                raise AttributeError("'list' object has no attribute 'shape'")
            kind = self.__signature__.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL:
                placed += value
            elif kind is Parameter.VAR_KEYWORD:
                given |= value
            elif (
                theirs := numpys[self._names[name]]
            ).kind is Parameter.POSITIONAL_ONLY or theirs.default is Parameter.empty:
                placed.append(value)
            else:
                given[self._names[name]] = value
        return self._numpys(*placed, **given)


class PlayedCupy:
    """NumPy in the place of CuPy, as far as functions of our own ask it."""

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setattr(functions, "cupy", PlayedCupy())
    monkeypatch.setattr(functions, "on_device_of", lambda x: nullcontext())
    real = functions._theirs
    monkeypatch.setattr(functions, "_theirs",
                        lambda function: tuple(function if functions._signature(x) is None else x
                                               if x is functions._FURTHER.get(function)
                                               else Played(x, function) for x in real(function)))


NOT_PLAYED = {"einsum", "dot", "inner", "vdot", "outer", "kron", "tensordot", "multi_dot", "matmul",
              "vecdot"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [call for call in [*CALLS, *FURTHER]
                                  if not isinstance(call[0], np.ufunc)],
                         ids=lambda call: call[0].__name__)
def test_functions_played_by_numpy(played, call):
    """Everything that a GPU is not needed for: the arguments that CuPy's functions get, ours in
    their place, and the results."""
    function, *arguments = call
    if function.__name__ in NOT_PLAYED or not (function in functions._INSTEAD
                                               or functions._theirs(function)):
        pytest.skip("ours, or not in CuPy")
    if function is np.take and arguments[-1] == {"mode": "wrap"}:
        pytest.skip("CuPy's indices wrap")
    outcomes = []
    for ask in (lambda given, named: function(*given, **named),
                lambda given, named: functions.by_cupy(function, None, tuple(given), named, A)):
        given = copy.deepcopy(arguments)
        named = given.pop() if isinstance(given[-1], dict) else {}
        outcomes.append((outcome(ask, given, named),
                         [x for x in given if isinstance(x, np.ndarray)]))
    (expected, expected_written), (result, written) = outcomes
    if isinstance(expected, Exception):
        assert isinstance(result, type(expected)), repr(result)
        return
    assert type(result).__name__ == type(expected).__name__ or isinstance(expected, np.generic), repr(result)
    for r, e in zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (result, expected)),
                    strict=True):
        np.testing.assert_array_equal(r, e)
        assert np.asarray(r).dtype == np.asarray(e).dtype
    for mine, numpys in zip(written, expected_written, strict=True):
        np.testing.assert_array_equal(mine, numpys)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [call for call in LACKING if not isinstance(call[0], np.ufunc)],
                         ids=lambda call: call[0].__name__)
def test_what_cupy_lacks_is_refused_before_it_is_asked(played, call):
    function, *arguments = call
    if any(takes_anything(functions._signature(theirs)) for theirs in functions._theirs(function)):
        pytest.skip("CuPy has to be asked")
    named = arguments.pop() if isinstance(arguments[-1], dict) else {}
    result = outcome(functions.by_cupy, function, None, tuple(arguments), named, A)
    assert result is NotImplemented or function is np.piecewise or (isinstance(result, TypeError) and (
        "CuPy's" in str(result) or "unexpected keyword" in str(result) or "got multiple" in str(result))), repr(result)


@pytest.mark.parametrize("name, arguments, named",
                         [("take", ([9, -7],), {"mode": "clip"}), ("sum", (), {"where": B}),
                          ("sum", (0,), {"initial": 2, "keepdims": True}),
                          ("max", (), {"initial": 99}), ("argsort", (), {"kind": "heapsort"}),
                          ("clip", (2, 4), {}), ("clip", (A - 1, A + 1), {}),
                          ("clip", (), {"max": 4}), ("std", (), {"ddof": 1}),
                          ("mean", (), {"where": B}), ("round", (), {"decimals": 1}),
                          ("searchsorted", (3,), {}), ("choose", ([A, -A],), {}),
                          ("cumsum", (0,), {}), ("astype", ("f4",), {"subok": False})])
def test_methods_played_by_numpy(played, name, arguments, named):
    x = B.astype(int) if name == "choose" else A[0] if name == "searchsorted" else A
    result = functions.method_by_cupy(name, x, *arguments, **named)
    np.testing.assert_array_equal(result, getattr(x, name)(*arguments, **named))


def test_items():
    for index in ((), (3,), (-1,), (1, 2), ((0, 1),), (99,), (-13,), (1, 2, 3), (np.int64(2),)):
        for x in (A, V, A[:1, :1], A[0, 0].reshape(())):
            expected, result = outcome(x.item, *index), outcome(functions.item, x, *index)
            assert type(result) is type(expected) and (isinstance(expected, Exception)
                                                       or result == expected), (index, x)


def test_linear_algebra_fails_in_numpys_words():
    for function, raised, words in (
        ("inv", np.linalg.LinAlgError("Error reported by getrf. devInfo = [1]"), "Singular matrix"),
        ("cholesky", np.linalg.LinAlgError("devInfo = 2"), "Matrix is not positive definite"),
        (
            "eigvals",
            type("CUSOLVERError", (RuntimeError,), {})("x"),
            "Eigenvalues did not converge"
        ),
        (
            "inv",
            np.linalg.LinAlgError("Last 2 dimensions of the array must be square"),
            "Last 2 dim"
        )
    ):
        with pytest.raises(np.linalg.LinAlgError, match=words), functions.raising(function):
            raise raised
    with pytest.raises(RuntimeError, match="other"), functions.raising("inv"):
        raise RuntimeError("other")


class InCOrder(np.ndarray):
    """An array whose ``imag`` is CuPy's: zeros in C order."""

    imag = property(lambda self: np.zeros(self.shape, self.dtype))


def test_no_imaginary_parts():
    x = np.ones((4, 3, 5), "f")
    for y in (x, x.T, x[:, :, :1], x[:, :, 0].T, x[::2], x[0, 0]):
        assert functions.imag(y.view(InCOrder)).strides == y.imag.strides


# -- CuPy's arrays in host memory ------------------------------------------------------------------
@pytest.fixture
def on_the_host(monkeypatch):
    from tests.functions import host_cupy, reference

    for name in ("plan_gemm", "plan_copy", "plan_contraction", "plan_reduction"):
        monkeypatch.setattr(f"cuteblas.planning.{name}", reference.fake_plan)
    host_cupy.install(monkeypatch)

    def asarray(x, dtype=None):
        return x if isinstance(x, cupy.ndarray) else host_cupy.on_gpu(np.array(x, dtype))

    monkeypatch.setattr(cupy, "asarray", asarray)
    library = SimpleNamespace(asarray=asarray,
                              full=lambda shape, value: host_cupy.on_gpu(np.full(shape, value)),
                              ascontiguousarray=None, asfortranarray=None)
    for module in (wrapper, operators):
        monkeypatch.setattr(module, "made_on", lambda device: nullcontext(library))
    yield host_cupy
    host_cupy.replay_cupy.recorded.clear()
    host_cupy.cuda.launcher_for.cache_clear()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x @ [1.0, 2, 3],
        lambda x: [1.0, 2, 3] @ x,
        lambda x: np.matmul(x, [1.0, 2, 3]),
        lambda x: np.dot([[1.0, 2, 3]], x),
        lambda x: x.dot([1.0, 2, 3]),
        lambda x: np.vecdot(x, [1.0, 2, 3]),
        lambda x: np.tensordot(x, S.tolist(), axes=1),
        lambda x: np.linalg.multi_dot([x, S.tolist(), x]),
        lambda x: np.inner([1.0, 2, 3], x),
        lambda x: np.kron([1.0, 2], x),
        lambda x: np.einsum("ij,jk->ik", x, S.tolist()),
        lambda x: np.linalg.multi_dot(deque([x, x])),
        lambda x: x == None,  # noqa: E711
        lambda x: x != "text"
    ]
)
def test_lists_beside_arrays_on_a_gpu(on_the_host, call):
    result = call(ndarray(on_the_host.on_gpu(S.copy())))
    assert type(result) is ndarray and type(result._data) is cupy.ndarray
    np.testing.assert_array_equal(on_the_host.on_host(result._data), call(S))


def test_scalars_are_no_arrays_of_the_host(on_the_host, monkeypatch):
    """NumPy makes arrays of them before it asks, in comparisons; arrays without axes are arrays."""
    x, seen = ndarray(on_the_host.on_gpu(S.copy())), []
    ours = {ufunc: lambda *operands: seen.append(operands) for ufunc in (np.less, np.equal, np.add)}
    monkeypatch.setattr(wrapper, "ours_by_numpys", lambda: ours)
    np.float32(2) < x, np.int64(2) == x, np.add(x, np.float32(1))
    assert [type(next(y for y in operands if y is not x._data))
            for operands in seen] == [np.float32, np.int64, np.float32]
    for call in (lambda: x + np.array(1.0), lambda: np.add(x, ndarray(np.array(1.0))),
                 lambda: x < ndarray(np.array(1.0))):
        with pytest.raises(ValueError, match="needs its operands on one device"):
            call()


def test_keys_are_numpys_on_a_gpu(on_the_host):
    x = ndarray(on_the_host.on_gpu(S.copy()))
    for wrong in (1.5, "field", (0, 2.0), 1j, b"a", np.float32(1)):
        for call in (lambda wrong=wrong: x[wrong],
                     lambda wrong=wrong: operator.setitem(x, wrong, 1)):
            with pytest.raises(IndexError, match="only integers, slices"):
                call()
    assert x[1, ::2].shape == (2,) and x[..., None].shape == (3, 3, 1)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x[:0])
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        ndarray(on_the_host.on_gpu(V.copy())) ** -1


@pytest.mark.parametrize("dtype, error", [("f8", ValueError), ("i8", TypeError),
                                          ("c16", TypeError)])
def test_an_element_is_no_sequence_on_a_gpu(on_the_host, dtype, error):
    x = ndarray(on_the_host.on_gpu(S.astype(dtype)))
    for key, value in (((0, 1), (5.0,)), ((np.int64(0), -1), [1, 2]), ((2, 2), [])):
        for array in (S.astype(dtype), x):
            with pytest.raises(error):
                array[key] = value
    with pytest.raises(IndexError):
        x[0, 3] = [1]


def test_kernels_of_cupy_by_their_own_names(on_the_host):
    c = on_the_host.on_gpu(S.copy())
    x = ndarray(on_the_host.on_gpu(S.copy()))
    seen = []

    def kernel(*arguments, **named):
        seen.append(arguments)
        return named.get("out", arguments[-1])

    ask = x.__cupy_override_elementwise_kernel__
    assert ask(kernel, x, c) is c and ask(kernel, c, x) is x and ask(kernel, c, x, out=c) is c
    assert [type(argument) for arguments in seen for argument in arguments] == [cupy.ndarray] * 6


def test_like_of_what_takes_arrays_alone(on_the_host):
    x = ndarray(on_the_host.on_gpu(S.copy()))
    cuteblas.reset_stats()
    for made, expected in ((np.ascontiguousarray([1, 2], like=x), [1, 2]),
                           (np.asfortranarray(x, like=x), S),
                           (np.ascontiguousarray(x.T, "f4", like=x), S.T)):
        assert type(made) is ndarray and type(made._data) is cupy.ndarray
        np.testing.assert_array_equal(on_the_host.on_host(made._data), expected)
    assert cuteblas.stats()["asfortranarray"]["calls"] == {"reference": 1}


# -- on a GPU --------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [call for call in [*CALLS, *FURTHER]
                                  if call[0].__name__ not in UNSPECIFIED],
                         ids=lambda call: call[0].__name__)
def test_functions_on_a_gpu(call):
    function, *arguments = call
    if function.__name__ in NOT_ON_A_GPU:
        pytest.skip("CuPy does not have it")
    (expected, expected_written), (result, written) = both(function, arguments)
    if function.__name__ in ("svd", "qr", "eig", "eigh"):       # vectors have signs of their own
        expected, result = (r._make(map(abs, r)) if hasattr(r, "_make") else r
                            for r in (expected, result))
    agree(result, expected)
    for mine, numpys in zip(written, expected_written, strict=True):
        agree(mine, numpys)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", LACKING, ids=lambda call: call[0].__name__)
def test_what_cupy_lacks_is_refused(call):
    function, *arguments = call
    result = both(function, arguments)[1][0]
    assert isinstance(result, (TypeError, NotImplementedError)), repr(result)


@pytest.mark.gpu
def test_results_of_linear_algebra_have_names_on_a_gpu():
    x = cuteblas.asarray(S)
    assert np.linalg.svd(x).S.shape == (3,) and np.linalg.qr(x).Q.shape == (3, 3) and np.linalg.slogdet(x).logabsdet.shape == ()
    assert np.linalg.eigh(x).eigenvalues.shape == (3,) and np.stack(np.linalg.slogdet(x)).shape == (
        2,
    )
    xp = x.__array_namespace__()
    for singular in (lambda: np.linalg.inv(x * 0), lambda: xp.linalg.inv(x * 0),
                     lambda: np.linalg.solve(x * 0, x[0])):
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
            singular()
    with pytest.raises(np.linalg.LinAlgError, match=r"^Matrix is not positive definite$"):
        np.linalg.cholesky(-x)


METHODS = [lambda x: x.take([9, -7], mode="wrap"), lambda x: x.take([1], axis=1, mode="clip"),
           lambda x: x.sum(where=x > 2), lambda x: x.sum(0, initial=2, keepdims=True),
           lambda x: x.max(initial=9.5), lambda x: x.mean(0, where=x > 2, keepdims=True),
           lambda x: x.std(ddof=1), lambda x: x.item(3), lambda x: x.item(-1),
           lambda x: x.item(1, 2), lambda x: x.item((0, 1)), lambda x: x.item(99),
           lambda x: x.item(1, 2, 3), lambda x: x.clip(min=2), lambda x: x.clip(2, 4),
           lambda x: x.argsort(kind="stable"), lambda x: x.dot([1.0, 2, 3, 4]),
           lambda x: x.astype("f4", subok=False), lambda x: (x > 3).choose([x, -x]),
           lambda x: bool(x[:0]), lambda x: x.sort(stable=True), lambda x: x.flat[[0, 2]],
           lambda x: x.flat[(x > 5).ravel()], lambda x: x.flat[3], lambda x: x.T.flat[1:4],
           lambda x: list(x.flat)[5], lambda x: x.flat.copy(), lambda x: x.any(where=x > 3),
           lambda x: x.round(decimals=1), lambda x: +x, lambda x: operator.add(x, [1, 2, 3, 4]),
           lambda x: [1, 2, 3, 4] - x, lambda x: x @ [1, 2, 3, 4], lambda x: [1, 2, 3] @ x,
           lambda x: operator.eq(x, None), lambda x: x != "text", lambda x: x.astype(int) ** -1,
           lambda x: np.float32(2) < x, lambda x: np.int64(2) == x, lambda x: x < np.float64(3),
           lambda x: [1, 2, 3, 4] in x, lambda x: 99 in x, lambda x: copy.copy(x.T),
           lambda x: x.conj(), lambda x: pickle.loads(pickle.dumps(x)), lambda x: x[1.5],
           lambda x: x["field"], lambda x: x[1j]]


@pytest.mark.gpu
@pytest.mark.parametrize("call", METHODS)
def test_methods_on_a_gpu(call):
    agree(outcome(call, cuteblas.asarray(A)), outcome(call, A.copy()))


@pytest.mark.gpu
def test_what_is_the_array_itself_stays_it_on_a_gpu():
    x = cuteblas.asarray(A)
    assert x.conj() is x and x.astype("f8", copy=False) is x and x.real is x and np.asarray(x, like=x) is x
    assert x.view(type(x)).shape == x.shape and (eval(repr(x), {"cuteblas": cuteblas}) == x).all()
    assert copy.copy(ndarray(cupy.asfortranarray(cupy.asarray(A)))).flags.f_contiguous
    assert np.ascontiguousarray(3, like=x).shape == (1,) and np.asfortranarray(A.tolist(), like=x).flags.f_contiguous


@pytest.mark.gpu
@pytest.mark.parametrize("key", [0, -1, slice(None, None, -1), (0, 1), ..., (slice(None), 1),
                                 [0, 1], None, ([0, 1], [1, 2])], ids=repr)
def test_assignment_on_a_gpu(key):
    for value in (7, 2.5, np.float32(3), [1.0, 2, 3, 4], [[1.0], [2.0], [3.0]], (5.0,),
                  [np.float64(1)] * 4, np.arange(4.0), "x", 1j, [1, [2]]):
        x, plain = cuteblas.asarray(A, copy=True), A.copy()
        expected = outcome(operator.setitem, plain, key, value)
        result = outcome(operator.setitem, x, key, on_gpu(value))
        assert isinstance(result, Exception) == isinstance(expected, Exception), (value, result)
        np.testing.assert_array_equal(np.asarray(x.to_device("cpu")), plain)
    truths, plain = cuteblas.asarray(B, copy=True), B.copy()
    for value in ([0], (), [None, 0]):
        truths[0, 1], plain[0, 1] = value, value
        np.testing.assert_array_equal(np.asarray(truths.to_device("cpu")), plain)
    flat = cuteblas.asarray(A, copy=True)
    flat.T.flat[[1, 2]] = [50, 60]
    flat.flat[(flat > 55).ravel()] = 7
    plain = A.copy()
    plain.T.flat[[1, 2]] = [50, 60]
    plain.flat[(plain > 55).ravel()] = 7
    np.testing.assert_array_equal(np.asarray(flat.to_device("cpu")), plain)
    for wrong in (1.5, "field", (0, 2.0)):
        with pytest.raises(IndexError, match="only integers, slices"):
            flat[wrong] = 1


@pytest.mark.parametrize("call", [np.matmul, np.matvec, np.vecmat])
def test_an_operand_that_is_out_is_what_comes_back(on_the_host, call):
    x = ndarray(on_the_host.on_gpu(S[:2, :2].copy()))
    for y in (x, ndarray(on_the_host.on_gpu(S[:2, :2].copy())),
              on_the_host.on_gpu(S[:2, :2].copy())):
        assert call(x, y, out=y) is y
        into = (y,)
        assert call(x, y, out=into) is y


@pytest.mark.gpu
def test_cupys_own_names():
    x, c = cuteblas.asarray(A), cupy.asarray(A)
    for call in (lambda: cupy.add(c, x), lambda: cupy.add(x, 1), lambda: cupy.sqrt(x),
                 lambda: cupy.divmod(x, c)[0], lambda: cupy.sum(x),
                 lambda: cupy.ElementwiseKernel("T x", "T y", "y = x", "same")(x), lambda: c + x,
                 lambda: np.add(c, x)):
        assert type(call()) is ndarray
    into = x.copy()
    assert cupy.add(x, 1, out=into) is into
    assert np.add(into, x, out=into) is into and np.add(x, into, where=True, out=(into,)) is into
    kept = c
    kept += x
    assert kept is c and (c == cupy.asarray(A)
                          * 2).all() and type(cupy.from_dlpack(x)) is cupy.ndarray
    for refused in (lambda: cupy.asarray(x), lambda: cupy.asnumpy(x), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"cupy\.from_dlpack"):
            refused()
    assert type(cupy.matmul(c, c.T)) is cupy.ndarray and type(c @ x.T) is ndarray
