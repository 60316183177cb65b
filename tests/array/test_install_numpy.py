"""``install(numpy=True)``: NumPy's own products and copies, served by this package; results and
errors are NumPy's."""

from __future__ import annotations

import ctypes
import gc
import inspect
import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextvars import copy_context

import numpy as np
import pytest

import cuteblas
from cuteblas.array import numpy_hooks
from cuteblas.array.install import installed, obey_environment
from cuteblas.array.numpy_loops import either, why_unavailable

if (reason := why_unavailable()) is not None:
    pytest.skip(reason, allow_module_level=True)

N = 48            # products of N x N integers are served, those of small matrices are left to NumPy
ATTRIBUTES = {*[(np, name) for name in ("dot", "inner", "vdot", "tensordot", "einsum", "kron",
                                        "copy", "ascontiguousarray", "asfortranarray")],
              *[(np.linalg, name) for name in ("multi_dot", "matrix_power", "tensordot")]}


def state() -> dict:
    """What is at all places."""
    loops = {(loop.ufunc.__name__, loop.types): loop._place.value for loop in numpy_hooks.LOOPS}
    return {(owner.__name__, name): vars(owner)[name] for owner, name in ATTRIBUTES} | loops


PRISTINE = state()


def is_pristine() -> bool:
    now = state()
    return all(now[place] is before or (type(before) is int and now[place] == before)
               for place, before in PRISTINE.items())


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    cuteblas.reset_stats()
    yield
    cuteblas.uninstall()
    assert is_pristine()


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions of this package that calls arrived at, in order."""
    names: list[str] = []

    def noting(name, function):
        def noted(*args, **named):
            names.append(name)
            return function(*args, **named)
        return noted

    numpy_hooks.SWITCH.checked = True           # not those of the self-test
    for name, function in numpy_hooks._PRODUCTS.items():
        monkeypatch.setitem(numpy_hooks._PRODUCTS, name, noting(name, function))
    for each in numpy_hooks.FUNCTIONS:
        monkeypatch.setattr(each, "_ours", noting(each.patch.function, each._ours))
    return names


def matrix(dtype: str = "i4", n: int = N) -> np.ndarray:
    return (np.arange(n * n).reshape(n, n) % 7
            - (0 if np.dtype(dtype).kind in "bu" else 3)).astype(dtype)


X = matrix()
CALLS = {"operator": ("matmul", lambda: X @ X), "matmul": ("matmul", lambda: np.matmul(X, X.T)),
         "vecdot": ("vecdot", lambda: np.vecdot(np.tile(X, (N, 30)), np.tile(X, (N, 30)))),
         "matvec": ("matvec", lambda: np.matvec(np.tile(X, (N, 1, 1)), X[0])),
         "vecmat": ("vecmat", lambda: np.vecmat(X, np.tile(X, (N, 1, 1)))),
         "in place": ("matmul", lambda: X.copy().__imatmul__(X)),
         "linalg.matmul": ("matmul", lambda: np.linalg.matmul(X, X)),
         "dot": ("dot", lambda: np.dot(X, b=X)), "inner": ("inner", lambda: np.inner(X, X)),
         "vdot": ("vdot", lambda: np.vdot(X, X)),
         "tensordot": ("tensordot", lambda: np.tensordot(X, X, axes=([0], [1]))),
         "kron": ("kron", lambda: np.kron(X, X)),
         "einsum": ("einsum", lambda: np.einsum("ij,kj->ki", X, X)),
         "copy": ("copy", lambda: np.copy(np.tile(X, (4, 1)).T, order="F")),
         "ascontiguousarray": ("ascontiguousarray",
                               lambda: np.ascontiguousarray(np.tile(X, (4, 1)).T)),
         "asfortranarray": ("asfortranarray", lambda: np.asfortranarray(np.tile(X, (4, 1)))),
         "multi_dot": ("multi_dot", lambda: np.linalg.multi_dot([X, X, X])),
         "matrix_power": ("matrix_power", lambda: np.linalg.matrix_power(X, 3)),
         "linalg.tensordot": ("tensordot", lambda: np.linalg.tensordot(X, X, axes=1)),}


@pytest.mark.parametrize("call", CALLS)
def test_every_place_is_served(arrived, call):
    name, made = CALLS[call]
    expected = made()
    assert arrived == []
    cuteblas.install(numpy=True)
    result = made()
    # NumPy's own matrix_power multiplies matrices
    assert arrived[0] == name and set(arrived[1:]) <= {"matmul"}
    assert type(result) is type(expected) and result.dtype == expected.dtype
    assert result.strides == expected.strides
    np.testing.assert_array_equal(result, expected)
    cuteblas.uninstall()
    assert is_pristine()
    made()
    assert len(arrived) <= 3


@pytest.mark.parametrize("dtype", numpy_hooks.TYPES)
def test_every_type_and_any_strides(arrived, dtype):
    a, b = matrix(dtype, 330 if dtype in "fdFD" else N), matrix(dtype, 330 if dtype in "fdFD"
                                                                else N)
    for x, y in ((a, b), (a.T, b[::-1]), (a[:, ::-1].T, b)):
        expected = x @ y
        with cuteblas.enabled(numpy=True):
            result = x @ y
        assert result.dtype == expected.dtype and arrived.pop() == "matmul"
        np.testing.assert_allclose(result, expected, rtol=1e-3 if dtype == "e" else 1e-5)
    assert arrived == []


def test_stacks_and_small_products(arrived):
    stack = np.stack([X, X + 1, X - 1])
    expected = stack @ X, X @ stack.transpose(0, 2, 1), np.broadcast_to(X, (3, N, N)) @ stack
    cuteblas.install(numpy=True)
    results = stack @ X, X @ stack.transpose(0, 2, 1), np.broadcast_to(X, (3, N, N)) @ stack
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    assert arrived == ["matmul"] * 3
    small = X[:4, :4]
    np.testing.assert_array_equal(
        small @ small, np.array(small.tolist(), object) @ np.array(small.tolist(), object)
    )
    np.dot(small, small), np.einsum("ij,jk", small, small), np.copy(small)
    assert arrived == ["matmul"] * 3


@pytest.mark.parametrize("dtype, n, served", [("f8", 16, 0), ("f8", 250, 0), ("F", 200, 0),
                                              ("f4", 300, 1), ("i4", 16, 0), ("i4", 48, 1),
                                              ("e", 48, 1)])
def test_functions_are_served_where_that_can_be_faster(arrived, dtype, n, served):
    x = np.ones((n, n), dtype)
    cuteblas.install(numpy=True)
    for call in (lambda: np.dot(x, x), lambda: np.dot(a=x, b=x), lambda: np.dot(x, b=x),
                 lambda: np.inner(x, x), lambda: np.vdot(x, x), lambda: np.tensordot(x, x, 1),
                 lambda: np.tensordot(x, x, axes=((1,), (0,))),
                 lambda: np.tensordot(a=x, b=x, axes=1), lambda: np.linalg.multi_dot([x, x]),
                 lambda: np.linalg.multi_dot(arrays=(x, x)),
                 lambda: np.dot(x, x, out=np.empty_like(x))):
        arrived.clear()
        call()
        assert (arrived != []) == served
    told: list = []
    numpy_hooks.SWITCH.watch = lambda place, arguments, named: told.append(place)
    np.dot(x, x), np.dot(a=x, b=x), np.tensordot(x, b=x, axes=1), np.dot(x, Answers())
    numpy_hooks.SWITCH.watch = None
    assert told[:2] == [np.dot] * 2 and told.count(np.tensordot) == 1


def test_calls_of_few_elements_never_plan():
    program = PRELUDE + """
from cuteblas.array import install
from cuteblas.engines import placement, settings
settings.driver_is_there = placement.driver_is_there = lambda: True
install.start_soon = lambda: None
cuteblas.install(numpy=True)
for dtype in "fiFd?e":
    for x in (np.eye(16, dtype=dtype), np.eye(48, dtype=dtype)):
        x @ x, np.dot(x, x), np.inner(x, x), np.vdot(x, x), np.tensordot(x, x, 1), np.einsum("ij,jk", x, x), np.kron(x[:5], x)
        np.linalg.matrix_power(x, 3), np.linalg.multi_dot([x] * 5), np.copy(x.T), np.ascontiguousarray(x.T), np.matvec(x, x[0])
        cuteblas.matmul(x, x), cuteblas.dot(x, x), cuteblas.einsum("ij,jk", x, x), cuteblas.copy(x.T)
        cuteblas.linalg.multi_dot([x] * 5)
print(cuteblas.current_backend(), sorted({name.split(".")[1] for name in sys.modules if name.startswith("cuteblas.")}
                                         & {"planning", "kernels", "emulator"}))
"""
    assert python(program) == "auto []"


@pytest.mark.parametrize("text", ["jk->k", "jk->", "jk,k->k"])
def test_few_elements_of_float16_are_summed_in_float32(arrived, text):
    x = np.ones((5000, 3), np.float16)
    with cuteblas.enabled(numpy=True):
        np.testing.assert_array_equal(np.einsum(text, *(x, x[0])[:text.count(",") + 1]),
                                      15000 if text == "jk->" else 5000)
    assert arrived == ["einsum"]


# -- what is as in NumPy ---------------------------------------------------------------------------
class Sub(np.ndarray):
    pass


class Loud(np.ndarray):
    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        return "loud"


class Answers:
    def __array_function__(self, function, types, args, named):
        return "answers", function.__name__


def read_only() -> np.ndarray:
    out = np.zeros((N, N), "i4")
    out.flags.writeable = False
    return out


def overlapping(call):
    x = np.tile(X, (2, 2))
    call(x[:N, :N], x[5:N + 5, 3:N + 3], out=x[2:N + 2, 1:N + 1])
    return x


def unaligned() -> np.ndarray:
    records = np.zeros((N, N), [("before", "i1"), ("value", "i4")])
    records["value"] = X
    return records["value"]


def through_a_view() -> np.ndarray:
    x = np.tile(X, (10, 10))
    np.einsum("ii->i", x)[...] = 99
    return x


def mapped(folder) -> np.ndarray:
    file = np.memmap(folder / "x.dat", "i4", "w+", shape=(N, N))
    file[...] = X
    return file


INPUTS = {
    "read-only out": lambda f: np.matmul(X, X, out=read_only()),
    "read-only out of dot": lambda f: np.dot(X, X, out=read_only()),
    "read-only operand": lambda f: read_only() @ X,
    "overlapping out": lambda f: overlapping(np.matmul),
    "out is an operand": lambda f: np.matmul(y := X.copy(), X, out=y),
    "overlapping out of dot": lambda f: overlapping(np.dot),
    "overlapping out of einsum": lambda f: overlapping(
        lambda x, y, out: np.einsum("ij,jk", x, y, out=out)
    ),
    "strided out": lambda f: np.matmul(X, X, out=np.zeros((2 * N, 3 * N), "i4")[::2, ::-3]),
    "wider out": lambda f: np.matmul(X, X, out=np.zeros((N, N), "f8")),
    "narrower out": lambda f: np.matmul(X, X, out=np.zeros((N, N), "i1")),
    "out of another shape": lambda f: np.matmul(X, X, out=np.zeros((N, 2))),
    "tuple": lambda f: np.matmul(X, X, out=(np.zeros((N, N), "i4"),)),
    "masked": lambda f: np.ma.array(X, mask=X == 0) @ X,
    "masked dot": lambda f: np.dot(np.ma.array(X, mask=X == 0), X),
    "masked copy": lambda f: np.copy(np.ma.array(X, mask=X == 0), subok=True),
    "np.matrix": lambda f: np.matrix(X) @ X,
    "np.matrix power": lambda f: np.linalg.matrix_power(np.matrix(X), 2),
    "np.matrix product": lambda f: np.matrix(X) * X,
    "subclass": lambda f: X.view(Sub) @ X,
    "subclass dot": lambda f: np.dot(X.view(Sub), X),
    "subclass einsum": lambda f: np.einsum("ij,jk", X.view(Sub), X),
    "loud subclass": lambda f: X.view(Loud) @ X,
    "answers": lambda f: np.dot(Answers(), X),
    "answers in a list": lambda f: np.linalg.multi_dot([X, Answers()]),
    "object": lambda f: X.astype(object) @ X,
    "object dot": lambda f: np.dot(X.astype(object), X),
    "object einsum": lambda f: np.einsum("ij,jk", X.astype(object), X.astype(object)),
    "object copy": lambda f: np.copy(X.astype(object)),
    "mapped": lambda f: mapped(f) @ mapped(f).T,
    "mapped copy": lambda f: np.ascontiguousarray(mapped(f).T),
    "byte order": lambda f: X.astype(">i4") @ X,
    "byte order dot": lambda f: np.dot(X.astype(">i4"), X),
    "byte order copy": lambda f: np.ascontiguousarray(X.astype(">i4").T),
    "unaligned": lambda f: unaligned() @ unaligned().T,
    "unaligned einsum": lambda f: np.einsum("ij,jk", unaligned(), unaligned()),
    "longdouble": lambda f: X.astype("g") @ X,
    "mixed types": lambda f: X @ X.astype("i8"),
    "strings": lambda f: X.astype(str) @ X,
    "dates": lambda f: np.dot(X.astype("M8[s]"), X),
    "lists": lambda f: np.dot([[1, 2], [3, 4]], [1, 1]),
    "numbers": lambda f: np.dot(X, 3),
    "scalars": lambda f: np.dot(X, np.int64(3)),
    "shapes": lambda f: X @ X[1:],
    "shapes of dot": lambda f: np.dot(X, X[1:]),
    "shapes of einsum": lambda f: np.einsum("ij,jk", X, X[1:]),
    "0-d": lambda f: np.matmul(X, np.int32(1)),
    "empty": lambda f: X[:0].T @ X[:0],
    "not square": lambda f: np.linalg.matrix_power(X[1:], 2),
    "negative power": lambda f: np.linalg.matrix_power(X, -1),
    "power": lambda f: np.linalg.matrix_power(X, 1.5),
    "one matrix": lambda f: np.linalg.multi_dot([X]),
    "vectors": lambda f: X[0] @ X[1],
    "vector and matrix": lambda f: np.linalg.multi_dot([X[0], X, X[0]]),
    "axes": lambda f: np.matmul(X, X, axes=[(0, 1), (1, 0), (1, 0)]),
    "axis": lambda f: np.vecdot(X, X, axis=0),
    "keepdims": lambda f: np.vecdot(X, X, keepdims=True),
    "dtype": lambda f: np.matmul(X, X, dtype="f4"),
    "casting": lambda f: np.matmul(X, X, dtype="i1", casting="unsafe"),
    "refused casting": lambda f: np.matmul(X, X, dtype="i1"),
    "wrong argument": lambda f: np.matmul(X, X, nonsense=1),
    "wrong argument of dot": lambda f: np.dot(X, X, nonsense=1),
    "too few": lambda f: np.dot(X),
    "too many": lambda f: np.kron(X, X, X),
    "our argument": lambda f: np.dot(X, X, precision="ieee"),
    "subscripts": lambda f: np.einsum("ij,jk->iz", X, X),
    "einsum order": lambda f: np.einsum("ij,jk", X, X, order="F"),
    "einsum dtype": lambda f: np.einsum("ij,jk", X, X, dtype="f8"),
    "einsum path": lambda f: np.einsum("ij,jk", X, X, optimize=["einsum_path", (0, 1)], order="C"),
    "einsum lists": lambda f: np.einsum(X, [0, 1], X, [1, 2], [2, 0]),
    "einsum view": lambda f: through_a_view(),
    "order": lambda f: np.copy(X, "Z"),
    "like": lambda f: np.ascontiguousarray(X, like=X),
    "dtype of a copy": lambda f: np.ascontiguousarray(X, "f4"),
    "bool": lambda f: (X > 0) @ (X > 1),
    "float16": lambda f: X.astype("f2") @ X.astype("f2"),
    "invalid": lambda f: np.full((N, N), np.inf, "f2") @ X,
    "overflow": lambda f: np.full((N, N), 6e4, "f2") @ np.full((N, N), 6e4, "f2"),
    "wraps": lambda f: (X.astype("i1") * 30) @ (X.astype("i1") * 9),
    "where": lambda f: np.matmul(X, X, where=True),
    "reduce": lambda f: np.matmul.reduce(X),
    "accumulate": lambda f: np.vecdot.outer(X, X),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_input_is_taken_as_by_numpy(name, tmp_path):
    def outcome():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                result = INPUTS[name](tmp_path)
            except Exception as error:
                return type(error), str(error)
        if not isinstance(result, np.ndarray):
            return type(result), result
        return (type(result), result.dtype, result.shape, result.strides, result.flags.writeable,
                result.tolist(), {str(each.message) for each in told})

    expected = outcome()
    cuteblas.install(numpy=True)
    assert repr(outcome()) == repr(expected)


def test_tables_of_numpys_functions_hold(arrived):
    """Packages that answer NumPy's functions keep them in tables, made before or while ours are in
    their places."""
    before = np.dot
    cuteblas.install(numpy=True)
    during = np.dot
    assert {before: 1}[during] == {during: 1}[before] == 1 and before == during == before and during != np.inner
    assert during in (before, np.vdot) and before in {during}
    assert during.__name__ == "dot" and during.__doc__ == before.__doc__ and during.__module__ == "numpy"
    assert inspect.signature(np.kron) == inspect.signature(
        inspect.unwrap(np.kron)
    ) and "served by cuteblas" in repr(during)
    assert pickle.loads(pickle.dumps(during)) is during and weakref.ref(during)() is during and callable(during)
    np.testing.assert_array_equal(during.__call__(X, X), before(X, X))
    arrived.clear()
    stored = pickle.dumps(np.linalg.multi_dot)
    cuteblas.uninstall()
    assert pickle.loads(stored) is np.linalg.multi_dot and pickle.loads(pickle.dumps(during)) is before
    np.testing.assert_array_equal(during(X, X), before(X, X))
    assert arrived == []


# -- for whom, and how long ------------------------------------------------------------------------
def test_blocks_are_for_their_thread_and_install_is_for_all(arrived):
    def elsewhere():
        thread = threading.Thread(target=lambda: (X @ X, np.dot(X, X)))
        thread.start()
        thread.join()

    with cuteblas.enabled(numpy=True):
        elsewhere()
        assert arrived == []
        copy_context().run(lambda: (X @ X, np.dot(X, X)))       # as tasks of asyncio
        assert arrived == ["matmul", "dot"]
        with cuteblas.enabled(numpy=True):
            cuteblas.install(numpy=True)
        assert installed("numpy") and not installed("cupy")
        cuteblas.uninstall()
        X @ X
        assert arrived == ["matmul", "dot", "matmul"] and not installed("numpy")
    assert is_pristine()
    cuteblas.install(numpy=True)
    cuteblas.install(numpy=True)
    elsewhere()
    assert arrived[3:] == ["matmul", "dot"]


def test_another_threads_block_keeps_the_hooks(arrived):
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with cuteblas.enabled(numpy=True):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(ZeroDivisionError), cuteblas.enabled(numpy=True):
        1 / 0  # noqa: B018
    assert not is_pristine()
    X @ X
    assert arrived == []
    leave.set()
    thread.join()
    assert is_pristine()


def test_many_threads_at_once():
    expected, wrong = X @ X, []

    def work():
        for i in range(60):
            with cuteblas.enabled(numpy=True):
                if not np.array_equal(X @ X, expected) or not np.array_equal(
                    np.dot(X, X), expected
                ):
                    wrong.append(i)
            if not np.array_equal(X @ X, expected):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and is_pristine()


def test_into_neither_and_into_both(monkeypatch):
    with pytest.raises(ValueError, match="CuPy, NumPy or both"):
        cuteblas.install(cupy=False)
    monkeypatch.setitem(sys.modules, "cupy", None)
    for entry in (lambda: cuteblas.install(cupy=True, numpy=True),
                  lambda: cuteblas.enabled(cupy=True, numpy=True).__enter__()):
        with pytest.raises(RuntimeError, match="cuteblas cannot be installed: "):
            entry()
        assert is_pristine() and not installed("numpy")


@pytest.mark.parametrize("place", ["matmul", "dot"])
def test_wrong_results_and_missing_calls_are_found(monkeypatch, place):
    monkeypatch.setattr(numpy_hooks, "SWITCH", numpy_hooks.SWITCH)
    numpy_hooks.SWITCH.checked = False
    if place == "matmul":
        monkeypatch.setitem(numpy_hooks._PRODUCTS, "matmul", lambda a, b, out: out.fill(1))
    else:
        dot = next(each for each in numpy_hooks.FUNCTIONS if each.patch.function == "dot")
        monkeypatch.setattr(dot, "_ours", lambda a, b: a)
    with pytest.raises(
        RuntimeError,
        match=f"cuteblas cannot be installed: a result of {place} differs from NumPy's"
    ):
        cuteblas.install(numpy=True)
    assert is_pristine() and not installed("numpy")
    monkeypatch.undo()
    monkeypatch.setattr(numpy_hooks, "as_a_program", lambda function, *args: None)
    with pytest.raises(RuntimeError, match="calls of matmul do not reach cuteblas"):
        cuteblas.install(numpy=True)
    monkeypatch.undo()
    cuteblas.install(numpy=True)


def test_a_loop_over_ours_is_left_alone(arrived):
    loop = next(each for each in numpy_hooks.LOOPS
                if (each.ufunc, each.types) == (np.matmul, "ii->i"))
    original = loop._place.value
    cuteblas.install(numpy=True)
    ours = loop._place.value
    other = next(each for each in numpy_hooks.LOOPS
                 if (each.ufunc, each.types) == (np.matmul, "II->I"))
    other.unlink()
    theirs = other._place.value             # the same sums of the same words
    loop._replace(theirs)
    cuteblas.uninstall()
    assert loop._place.value == theirs
    np.testing.assert_array_equal(X @ X, np.dot(X, X))
    cuteblas.install(numpy=True)
    X @ X
    assert arrived[-1] == "matmul"
    cuteblas.uninstall()
    assert loop._place.value == theirs != ours
    loop._replace(original)


# -- failures --------------------------------------------------------------------------------------
@pytest.mark.parametrize("error, reason", [(MemoryError(), "no memory"),
                                           (KeyError("x"), "KeyError where NumPy has none")])
def test_numpy_computes_where_ours_fails(monkeypatch, error, reason):
    def failing(*args, **named):
        if len(args) > 2:
            args[2].fill(99)
        raise error

    expected = X @ X
    numpy_hooks.SWITCH.checked = True
    monkeypatch.setitem(numpy_hooks._PRODUCTS, "matmul", failing)
    for each in numpy_hooks.FUNCTIONS:
        monkeypatch.setattr(each, "_ours", failing)
    cuteblas.install(numpy=True)
    np.testing.assert_array_equal(X @ X, expected)
    np.testing.assert_array_equal(np.dot(X, X), expected)
    counted = {"calls": {f"delegated to NumPy: {reason}": 1}}
    assert cuteblas.stats() == {"matmul": counted, "dot": counted}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of POSIX")
def test_exceptions_of_signals_reach_the_program():
    """Whenever a handler raises, also inside a loop: the result is right, and the program gets the
    exception."""
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm("the program's", number)

    small, expected, before = X[:8, :8], (X[:8, :8] @ X[:8, :8],
                                          X @ X), signal.signal(signal.SIGALRM, handler)
    cuteblas.install(numpy=True)
    gc.disable()            # Python drops exceptions in callbacks of gc, of which hypothesis has one
    try:
        seen, random = 0, np.random.default_rng(0)
        for delay in random.uniform(5e-6, 300e-6, 300):
            c = d = None
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                for _ in range(20000):
                    c, d = small @ small, X @ X
                    assert (c == expected[0]).all() and (d == expected[1]).all()
            except Alarm as error:
                seen += error.args == ("the program's", signal.SIGALRM)
        assert seen == 300
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def test_interrupts_reach_the_program(monkeypatch):
    def interrupted(a, b, out):
        out.fill(99)
        raise KeyboardInterrupt("here")

    expected, result = X @ X, []
    numpy_hooks.SWITCH.checked = True
    monkeypatch.setitem(numpy_hooks._PRODUCTS, "matmul", interrupted)
    cuteblas.install(numpy=True)
    with pytest.raises(KeyboardInterrupt, match="here"):
        result.append(X @ X)
        for _ in range(10):
            result.append(len(result))
    np.testing.assert_array_equal(np.dot(X, X) if not result else result[0], expected)


SWEEP = """
def product(dtype, name):
    n = 64 if dtype in ("i4", "f2", "?") else 330
    x = (np.arange(n * n).reshape(n, n) % 7 - 3 * (dtype != "?")).astype(dtype)
    several = np.stack([x, x[::-1], x] if n > 64 else [x] * 60)
    function, a, b = {"matmul": (np.matmul, x, x), "stack": (np.matmul, several, x), "matvec": (np.matvec, several, x[0]),
                      "vecdot": (np.vecdot, *[np.tile(x, (2, 30))] * 2), "vecmat": (np.vecmat, x[0], several)}[name]
    expected = function(a, b)
    return function, a, b, np.empty_like(expected), expected
def is_right(out, expected):
    return np.array_equal(out, expected) if out.dtype.kind in "ib" else np.allclose(out, expected, rtol=1e-2)
"""


@pytest.mark.parametrize("dtype", ["i4", "f8", "f2", "?"])
def test_a_loop_computes_at_any_depth_of_the_stack(dtype):
    """Frame by frame up to the limit: never memory that nothing was written to."""
    program = PRELUDE + SWEEP + f"""
def at(depth):
    return at(depth - 1) if depth else function(a, b, out=out)
products = [product({dtype!r}, name) for name in ("matmul", "stack", "vecdot", "matvec", "vecmat")]
cuteblas.install(numpy=True)
sys.setrecursionlimit(200)
for function, a, b, out, expected in products:
    function(a, b, out=out)
    right, refused = 0, 0
    for depth in range(120, 205):
        out.fill(99 if out.dtype != bool else False)
        try:
            at(depth)
        except RecursionError:
            refused += 1
            continue
        if not is_right(out, expected):
            print(function, "wrong at", depth)
        right += 1
    print(right > 40, refused > 5)
"""
    assert python(program).split("\n") == ["True True"] * 5


@pytest.mark.parametrize("kind", ["Exception", "SystemExit"])
@pytest.mark.parametrize("place", ["settrace", "setprofile"])
def test_exceptions_of_tracing_functions(place, kind):
    """Whichever event raises one: the result is right, or the program gets the exception."""
    program = PRELUDE + SWEEP + f"""
function, a, b, out, expected = product("i4", "matmul")
cuteblas.install(numpy=True)
def trace(frame, event, argument):
    global left
    left -= 1
    if not left:
        raise {kind}("of the program")
    return trace
raised = 0
for event in range(1, 400):
    left = event
    out.fill(99)
    try:
        sys.{place}(trace)
        function(a, b, out=out)
        for _ in range(3): pass
        sys.{place}(None)
    except {kind} as error:
        sys.{place}(None)
        raised += str(error) == "of the program"
    else:
        if not is_right(out, expected):
            print("wrong after", event)
print(raised > 0)
"""
    assert python(program) == "True"


def test_memory_that_runs_out_anywhere():
    pytest.importorskip("_testcapi", reason="fails allocations; not in every build of Python")
    program = PRELUDE + SWEEP + """
from _testcapi import remove_mem_hooks, set_nomemory
function, a, b, out, expected = product("i4", "matmul")
cuteblas.install(numpy=True)
def fails(first, last):
    try:
        set_nomemory(first, last)
        function(a, b, out)
        remove_mem_hooks()
        return False
    except (MemoryError, SystemError):          # NumPy's own without an exception
        remove_mem_hooks()
        return True
for first in range(12):                       # later ones crash NumPy's errstate
    out.fill(99)
    if not fails(first, first + 1) and not is_right(out, expected):
        print("wrong after", first)
"""
    assert python(program) == ""


_SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


def loop_of(first, second, least, count):
    return _SIGNATURE(either(*[ctypes.cast(each, ctypes.c_void_p).value
                               for each in (first, second)], least, count))


def test_the_second_function_runs_unless_the_first_is_done():
    calls, extents, least = [], (ctypes.c_ssize_t * 2)(20, 5), ctypes.c_double(100)
    place = ctypes.addressof(extents)

    def first(a, b, c, done):
        calls.append((a, b, c))
        word = ctypes.c_ssize_t.from_address(done)
        assert word.value == 0
        word.value = a == 2
        if a == 3:
            raise ZeroDivisionError
    functions = _SIGNATURE(first), _SIGNATURE(lambda *arguments: calls.append(arguments))
    both = loop_of(*functions, least, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: calls.append("told"))
        for a in (1, 2, 3):
            both(a, place, 30, 40)
    assert calls == [(1, place, 30), (1, place, 30, 40), (2, place, 30), (3, place, 30), "told",
                     (3, place, 30, 40)]


@pytest.mark.parametrize("extents, product", [((1, 15, 15, 15), 3375), ((1, 16, 16, 16), 4096),
                                              ((2, 63, 1), 126), ((2**31, 2**31), 2**62),
                                              ((0, 5, 5, 5), 0), ((2**63 - 1, 0), 0),
                                              ((5, 0, 2**62), 0),
                                              ((1, 2**62, 2**62, 2**62), 2**186),
                                              ((2**63 - 1,) * 4, 2**252),
                                              ((1, 2**33, 2**31), 2**64),
                                              ((3, 1, 2**53), 3 * 2**53), ((1, 1), 1)])
def test_the_second_function_alone_runs_for_fewer_multiplications(extents, product):
    calls: list[str] = []
    functions = [_SIGNATURE(lambda *_arguments, name=name: calls.append(name))
                 for name in ("first", "second")]
    least = ctypes.c_double()
    both, words = loop_of(*functions, least, len(extents)), (ctypes.c_ssize_t * 5)(*extents, *[7] * (5 - len(extents)))
    for below in {product, product + 1 + product // 2**50, max(product - 1 - product // 2**50, 0),
                  0, 1, 2**63, 1 << 16}:
        calls.clear()
        least.value = below
        both(10, ctypes.addressof(words), 30, 40)
        assert calls == (["first", "second"] if product >= below else ["second"]), below


def frames_of(call) -> int:
    """How many functions of Python a call enters in the module of loops."""
    entered = []
    sys.setprofile(
        lambda frame, event, _: entered.append(
            event == "call" and frame.f_globals["__name__"].endswith("numpy_loops")
        )
    )
    try:
        call()
    finally:
        sys.setprofile(None)
    return sum(entered)


@pytest.mark.parametrize("dtype, least", [("f4", 1 << 25), ("f8", 1 << 25), ("F", 1 << 25),
                                          ("i1", 1 << 16), ("i8", 1 << 16), ("e", 1 << 16),
                                          ("?", 1 << 16)])
@pytest.mark.parametrize("name", ["matmul", "vecdot", "matvec", "vecmat"])
def test_small_products_do_not_enter_python(name, dtype, least):
    def operands(several, n):
        one = np.ones((), dtype)
        stack, vector = np.broadcast_to(one, (several, n, n)), np.broadcast_to(one, (n,))
        return {"matmul": (stack, np.broadcast_to(one, (n, 1))),
                "vecdot": (np.broadcast_to(one, (several * n, n)), vector),
                "matvec": (stack, vector), "vecmat": (vector, stack)}[name]

    function, n = getattr(np, name), 64 if least == 1 << 16 else 1024
    many = least // n**2
    calls = [*[operands(several, n) for several in (many, many - 1, 1, 0)], operands(3, 1),
             operands(2, 0)]
    cuteblas.install(numpy=True)
    assert [frames_of(lambda x=x: function(*x)) > 0 for x in calls] == [True] + [False] * 5
    told: list = []
    numpy_hooks.SWITCH.watch = lambda place, arguments, named: told.append(
        (place, [x.size for x in arguments])
    )
    for x in calls[1:]:
        function(*x)
    numpy_hooks.SWITCH.watch = None
    assert [place for place, _ in told] == [function] * len(told) and len(told) >= 3
    assert not frames_of(lambda: function(*calls[1]))
    cuteblas.uninstall()
    # as a report does before it installs
    numpy_hooks.SWITCH.watch = lambda place, arguments, named: told.append(place)
    cuteblas.install(numpy=True)
    told.clear()
    function(*calls[2])
    numpy_hooks.SWITCH.watch = None
    assert told == [function]


@pytest.mark.parametrize("machine", ["riscv64", ""])
def test_machines_without_such_a_function(monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(
        RuntimeError, match=f"a loop in machine code cannot be made: there is no code for {machine}"
    ):
        cuteblas.install(numpy=True)


def test_calls_of_this_package_are_counted_once():
    cuteblas.install(numpy=True)
    cuteblas.reset_stats()
    tall = np.tile(X, (N, 30))
    cuteblas.matmul(X, X), cuteblas.dot(X, X), cuteblas.vecdot(tall, tall), cuteblas.copy(tall)
    assert {name: sum(groups["calls"].values()) for name, groups in cuteblas.stats().items()} == {
        "matmul": 1, "dot": 1, "vecdot": 1, "copy": 1}
    X @ X
    assert sum(cuteblas.stats()["matmul"]["calls"].values()) == 2


# -- processes -------------------------------------------------------------------------------------
def python(program: str, **environment: str) -> str:
    result = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", program],
                            capture_output=True, text=True, timeout=120,
                            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
                            | environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


PRELUDE = """
import numpy as np, cuteblas, os, sys, threading
X = np.arange(2304).reshape(48, 48) % 7
def served(function="matmul"): return sum(cuteblas.stats().get(function, {}).get("calls", {}).values())
"""


@pytest.mark.parametrize("wish, expected", [("numpy", "True False"), ("cupy,numpy", "True True"),
                                            ("1, numpy", "True True"), ("cupy", "False True"),
                                            ("0", "False False")])
def test_the_environment_variable(wish, expected):
    program = PRELUDE + "from cuteblas.array.install import installed\nprint(installed('numpy'), installed('cupy'))"
    assert python(program, CUTEBLAS_INSTALL=wish) == expected


def test_the_environment_variable_where_it_is_not_possible(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_INSTALL", "numpy")
    monkeypatch.setattr(numpy_hooks, "why_unavailable", lambda: "because")
    with pytest.warns(RuntimeWarning, match="cuteblas cannot be installed: because"):
        obey_environment()
    assert is_pristine() and not installed("numpy")


def test_a_reload_of_numpy():
    program = PRELUDE + """
import importlib, warnings
cuteblas.install(numpy=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    importlib.reload(np)
pristine = np.dot
cuteblas.reset_stats()
X @ X, np.dot(X, X)
print(served(), served("dot"))
cuteblas.install(numpy=True)
np.dot(X, X)
print(served("dot"))
cuteblas.uninstall()
print(np.dot is pristine)
cuteblas.reset_stats()
X @ X, np.dot(X, X)
print(cuteblas.stats())
"""
    assert python(program).split("\n") == ["1 0", "1", "True", "{}"]


def test_a_reload_of_this_package():
    program = PRELUDE + """
import importlib, gc
from cuteblas.array import install, numpy_hooks, numpy_loops
original = np.dot
cuteblas.install(numpy=True)
importlib.reload(cuteblas)
cuteblas.uninstall()
print(np.dot is original)
cuteblas.install(numpy=True)
for name in [name for name in sys.modules if name.startswith("cuteblas")]:
    del sys.modules[name]               # the module is gone, its loops are not
del cuteblas, install, numpy_hooks, numpy_loops
gc.collect()
print((X @ X == np.dot(X, X)).all(), (X.astype("f4") @ X == np.dot(X, X)).all())
import cuteblas
cuteblas.install(numpy=True)
print((X @ X == np.dot(X, X)).all(), served() > 0)
"""
    assert python(program).split("\n") == ["True", "True True", "True True"]


def test_the_end_of_the_interpreter():
    program = PRELUDE + """
import atexit, time
class Last:
    def __del__(self): print("del", int((X @ X)[0, 0]))
last, want = Last(), int((X @ X)[0, 0])
def work():
    while True: X @ X, np.dot(X, X)
atexit.register(lambda: print("before", int(np.dot(X, X)[0, 0])))
cuteblas.install(numpy=True)
atexit.register(lambda: print("after", int((X @ X)[0, 0])))
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    said = python(program)
    assert said == python(program.replace("cuteblas.install(numpy=True)",
                                          "")) and said.startswith("after ") and "before" in said
    assert "del " in python(program.replace("range(3)", "()"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forks():
    program = PRELUDE + """
def work(stop):
    while not stop.is_set(): X @ X, np.dot(X, X)
stop = threading.Event()
cuteblas.install(numpy=True)
threads = [threading.Thread(target=work, args=(stop,)) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(3):
    if (child := os.fork()) == 0:
        cuteblas.reset_stats()
        right = (X @ X == np.dot(X, X)).all() and served() == 1
        cuteblas.uninstall()
        right = right and (X @ X == np.dot(X, X)).all() and served() == 1
        os._exit(0 if right else 3)
    print(os.waitpid(child, 0)[1], end=" ")
stop.set()
for thread in threads: thread.join()
cuteblas.reset_stats()
X @ X
print(served())
"""
    assert python(program) == "0 0 0 1"


def test_subinterpreters():
    """NumPy is for one interpreter of a process; another one refuses to install, and leaves the
    first alone."""
    program = PRELUDE + """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
cuteblas.install(numpy=True)
other = interpreters.create()
code = '''
try:
    import numpy
except ImportError:
    pass
else:
    from cuteblas.array.numpy_loops import why_unavailable
    assert "main interpreter" in str(why_unavailable())
'''
try:
    failure = (getattr(interpreters, "exec", None) or interpreters.run_string)(other, code)
except Exception as error:
    failure = error
print(failure)
interpreters.destroy(other)
print((X @ X == np.dot(X, X)).all(), served() > 0)
"""
    assert python(program).split("\n") == [
        "None", "True True"]


def test_explain_and_doctor_say_what_is_installed():
    from cuteblas.cli.doctor import findings

    def told():
        return ["NumPy, whose own functions run this way too" in cuteblas.explain(X, X).verbose(),
                *["installed in NumPy" in found.text for found in findings()
                  if found.name == "programs"]]

    assert told() == [False, False]
    with cuteblas.enabled(numpy=True):
        assert told() == [True, True]
    cuteblas.install(numpy=True)
    assert told() == [True, True]
