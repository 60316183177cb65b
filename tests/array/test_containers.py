"""Arrays of ours in lists, named tuples, deques, arrays of objects and other containers, as
arguments of functions."""

from __future__ import annotations

from array import array as buffer
from collections import UserList, deque
from typing import Any, NamedTuple

import numpy as np
import pytest

from cuteblas.array.wrapper import ndarray, unwrapped, wrapped

from .test_wrapper import outcome, same

A = np.array([[2.0, 1.0], [1.0, 3.0]])
B = A + 10
X = ndarray(A)
XP = X.__array_namespace__()


class Pair(NamedTuple):
    """Two arrays."""

    first: Any
    second: Any


class Legacy:
    """A sequence by ``__getitem__`` and ``__len__`` alone."""

    def __init__(self, members):
        self._members = list(members)

    def __len__(self):
        return len(self._members)

    def __getitem__(self, i):
        return self._members[i]


class Subclass(list):
    """A list, but not exactly one."""


def objects(members):
    """An array of Python's objects that are arrays."""
    members = list(members)
    made = np.empty(len(members), object)
    for i, x in enumerate(members):
        made[i] = x
    return made


CONTAINERS = {"deque": deque, "UserList": UserList, "namedtuple": lambda members: Pair(*members),
              "subclass": Subclass, "legacy": Legacy, "objects": objects, "tuple": tuple}
CALLS = {"stack": np.stack, "concatenate": np.concatenate, "hstack": np.hstack, "vstack": np.vstack,
         "dstack": np.dstack, "column_stack": np.column_stack, "block": np.block,
         "lexsort": np.lexsort, "multi_dot": np.linalg.multi_dot,
         "select": lambda c: np.select(c, c),
         "choose": lambda c: np.choose(np.array([[0, 1], [1, 0]]), c),
         "concatenate out": lambda c: np.concatenate(c, out=np.empty((4, 2))),
         "einsum": lambda c: np.einsum("ij,jk", *c), "sum": np.sum,
         "average": lambda c: np.average(c[0], weights=c[1]),
         "piecewise": lambda c: np.piecewise(c[0], [c[0] > 1], [3])}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.filterwarnings("ignore")
def test_containers(call, container):
    if container is objects and call in (np.block, CALLS["choose"]):
        pytest.skip("NumPy takes an array of objects for elements here")
    members = (A > 1, B > 11) if call is CALLS["select"] else (A, B)
    expected = outcome(call, container(members))
    for ours in ((True, True), (True, False), (False, True)):
        result = outcome(call, container([ndarray(x) if wrap else x
                                          for x, wrap in zip(members, ours, strict=True)]))
        if isinstance(expected, Exception):
            assert isinstance(result, type(expected))
        else:
            np.testing.assert_array_equal(np.asarray(plain(result),
                                                     getattr(expected, "dtype", None)), expected)


def plain(result):
    """A result whose elements may be arrays of ours, where NumPy makes an array of objects."""
    if isinstance(result, (tuple, list)):
        return [*map(plain, result)]
    if isinstance(result, ndarray) and result.dtype == object:
        return objects(np.asarray(x) for x in result)
    return np.asarray(result) if isinstance(result, ndarray) else result


@pytest.mark.parametrize("call, numpys", [(lambda: np.stack(np.linalg.slogdet(X)),
                                           lambda: np.stack(np.linalg.slogdet(A))),
                                          (lambda: XP.stack(XP.linalg.qr(X)),
                                           lambda: np.stack(np.linalg.qr(A))),
                                          (lambda: XP.concat(deque([X, X])),
                                           lambda: np.concatenate([A, A])),
                                          (lambda: XP.stack(UserList([X, X])),
                                           lambda: np.stack([A, A])),
                                          (lambda: np.concatenate(np.linalg.eigh(X), axis=None),
                                           lambda: np.concatenate(np.linalg.eigh(A), axis=None)),
                                          (lambda: np.vstack([deque([X[0], X[1]]), X]),
                                           lambda: np.vstack([deque([A[0], A[1]]), A])),
                                          (lambda: np.block([[X, deque([X])[0]], [X, X]]),
                                           lambda: np.block([[A, A], [A, A]])),
                                          (lambda: X + deque([X[0], X[1]]),
                                           lambda: A + deque([A[0], A[1]])),
                                          (lambda: np.add(X, UserList([X[0], 1])),
                                           lambda: np.add(A, UserList([A[0], 1]))),
                                          (lambda: X[deque([X[0] > 1, X[1] > 1])],
                                           lambda: A[deque([A[0] > 1, A[1] > 1])]),
                                          (lambda: np.meshgrid(*np.linalg.eigh(X)[0]),
                                           lambda: np.meshgrid(*np.linalg.eigh(A)[0])),
                                          (lambda: np.pad(X, {0: (1, 1)})
                                           if np.lib.NumpyVersion(np.__version__) >= "2.2.0" else X,
                                           lambda: np.pad(A, {0: (1, 1)})
                                           if np.lib.NumpyVersion(np.__version__) >= "2.2.0"
                                           else A)])
@pytest.mark.filterwarnings("ignore")
def test_results_in_other_functions(call, numpys):
    same(outcome(call), outcome(numpys))


def test_generators_are_refused_by_numpy():
    for call in (np.stack, np.concatenate, np.vstack):
        with pytest.raises(TypeError):
            call(x for x in (X, X))


def test_unwrapped_keeps_types():
    pair = unwrapped(Pair(X, [X, 1]))
    assert type(pair) is Pair and pair.first is A and pair.second == [A, 1]
    assert type(unwrapped(Pair(1, 2))) is Pair and unwrapped({"a": (X,)}) == {"a": (A,)}
    for nothing in (deque([1]), UserList([A]), range(3), "text", b"text", buffer("d", [1.0]),
                    memoryview(b"ab"), objects([A]), objects([X]), Subclass([1]), Pair(1, 2), A):
        assert unwrapped(nothing) is nothing
    eigen = wrapped(np.linalg.eigh(A))
    assert type(eigen).__name__ == "EighResult" and all(type(x) is ndarray for x in eigen)


def test_a_function_of_numpy_is_asked_once(monkeypatch):
    """It would find our arrays in such containers again and again."""
    asked = []
    ask = ndarray.__array_function__
    monkeypatch.setattr(ndarray, "__array_function__",
                        lambda *call: asked.append(call) or ask(*call))
    np.stack(Legacy([X, X]))
    assert len(asked) == 1
