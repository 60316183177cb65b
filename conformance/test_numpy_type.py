"""NumPy's own tests of products, from the installed wheel, on ``cuteblas.ndarray``.

The tests make their arrays by ``np.ones``, ``np.random.rand`` and so on of the global ``np`` of
their module: a stand-in for it that makes arrays of our type replaces it while they run. NumPy's
operators, ufuncs and functions then lead to ours (NEP 13 and 18). What the tests compare is moved
to NumPy's arrays. ``numpy_suite_xfails.txt`` lists the differences that are meant.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy._core.tests import test_einsum, test_multiarray, test_numeric, test_ufunc
from numpy.lib.tests import test_shape_base
from numpy.linalg.tests import test_linalg

import cuteblas

from .test_numpy_suite import only

_MAKERS = frozenset({"arange", "array", "empty", "eye", "full", "identity", "ones", "zeros"})
_MODULES = test_einsum, test_multiarray, test_numeric, test_ufunc, test_shape_base, test_linalg
_TOO_LONG_FOR_THE_EMULATOR = ("2d_large", "3d_large")
_NOT_ON_A_GPU = "gGO"
_REFUSED_BEFORE_ANYTHING_RUNS = ("test_exceptions", "test_array_priority_override",
                                 "test_matmul_raises")


class Numpy(ModuleType):
    """NumPy, or what it makes random numbers with; new arrays are ours, and comparisons turn them
    into NumPy's."""

    def __init__(self, device: str, original: Any = np):
        super().__init__("numpy")
        self.device, self.testing, self._original = device, self, original

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self._original if hasattr(self._original, name) else np.testing, name)
        if theirs is np.random:
            return Numpy(self.device, np.random)
        if name in _MAKERS or (self._original is not np and callable(theirs)):
            return making(theirs, self.device)
        return compared(theirs) if compares(name) else theirs


def making(theirs: Callable[..., Any], device: str) -> Callable[..., Any]:
    """A function of NumPy's that returns arrays of ours, or a source of them."""
    def made(*arguments: Any, **named: Any) -> Any:
        x = theirs(*map(theirs_of, arguments), **named)
        if isinstance(x, (np.random.RandomState, np.random.Generator)):
            return Numpy(device, x)
        return cuteblas.asarray(x, device="cpu" if x.dtype.char in _NOT_ON_A_GPU
                                else device) if type(x) is np.ndarray else x

    return made


def theirs_of(x: Any) -> Any:
    """One of our arrays as NumPy's; everything else as it is."""
    return np.asarray(x.to_device("cpu")) if isinstance(x, cuteblas.ndarray) else x


def compares(name: str) -> bool:
    """Whether that is one of NumPy's comparisons; those of exceptions call a function, and it is to
    get our arrays."""
    return name.startswith("assert_") and "raises" not in name


def compared(check: Callable[..., None]) -> Callable[..., None]:
    """One of NumPy's comparisons, of NumPy's arrays."""
    return lambda *arguments, **named: check(*map(theirs_of, arguments), **named)


@pytest.fixture(autouse=True)
def substituted(monkeypatch: pytest.MonkeyPatch, backend: str,
                request: pytest.FixtureRequest) -> Iterator[None]:
    """Let NumPy's tests work on our type, and see that its products were called."""
    if backend == "emulator" and any(name in request.node.name
                                     for name in _TOO_LONG_FOR_THE_EMULATOR):
        pytest.skip("too many multiply-adds for the emulator")
    if backend == "cuda":
        _skip_what_a_gpu_cannot_have(request)
        types = "".join(c for c in test_multiarray.MatmulCommon.types if c not in _NOT_ON_A_GPU)
        for group in (TestMatmul, TestMatmulOperator):
            monkeypatch.setattr(group, "types", types)
    numpy = Numpy("cuda" if backend == "cuda" else "cpu")
    for module in _MODULES:
        monkeypatch.setattr(module, "np", numpy)
        for name, member in list(vars(module).items()):
            if name in _MAKERS and member is getattr(np, name):
                monkeypatch.setattr(module, name, getattr(numpy, name))
            elif compares(name) and callable(member):
                monkeypatch.setattr(module, name, compared(member))
    cuteblas.reset_stats()
    yield
    if request.cls in (TestMatmulOperator, TestMatmulInplace):
        counts = cuteblas.stats().get("matmul", {}).get("calls", {})
        assert sum(counts.values()) or request.node.originalname in _REFUSED_BEFORE_ANYTHING_RUNS


def _skip_what_a_gpu_cannot_have(request: pytest.FixtureRequest) -> None:
    if request.cls in ON_THE_HOST:
        pytest.skip("on CuPy's arrays these functions are tested by test_numpy_suite.py")
    parameters = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    source = inspect.getsource(request.function)
    if any(isinstance(x, np.ndarray) for x in parameters) or "self.m1" in source:
        pytest.skip("its arrays are made before NumPy has been replaced")
    if "umt." in source or "uml." in source:
        pytest.skip("CuPy does not have the ufuncs that NumPy has for its tests")
    if (any(x.char in _NOT_ON_A_GPU for x in parameters if isinstance(x, np.dtype))
            or any(word in source for word in ("object", "longdouble", "'O'", "'>i4'"))):
        pytest.skip("CuPy has no arrays of that type")


class TestMatmulOperator(test_multiarray.TestMatmulOperator):
    """NumPy's tests of ``@``."""

    matmul = staticmethod(operator.matmul)


class TestMatmulInplace(test_multiarray.TestMatmulInplace):
    """NumPy's tests of ``@=``."""


class TestMatmul(test_multiarray.TestMatmul):
    """NumPy's tests of ``np.matmul``."""

    matmul = staticmethod(np.matmul)


TestGufuncKeywords = only(test_ufunc.TestUfunc, "vec", "broadcast", "keepdims", "axes_argument",
                          "axis_argument", "type_cast", "endian", "incontiguous", "output_argument")
TestGufuncKeywords.__name__ = "TestGufuncKeywords"


class TestDot(test_multiarray.TestDot):
    """NumPy's tests of ``np.dot``."""


class TestVdot(test_multiarray.TestVdot):
    """NumPy's tests of ``np.vdot``."""


class TestInner(test_multiarray.TestInner):
    """NumPy's tests of ``np.inner``."""


class TestTensordot(test_numeric.TestTensordot):
    """NumPy's tests of ``np.tensordot``."""


class TestEinsum(test_einsum.TestEinsum):
    """NumPy's tests of ``np.einsum``."""


class TestKron(test_shape_base.TestKron):
    """NumPy's tests of ``np.kron``."""


class TestMultiDot(test_linalg.TestMultiDot):
    """NumPy's tests of ``np.linalg.multi_dot``."""


class TestMatrixPower(test_linalg.TestMatrixPower):
    """NumPy's tests of ``np.linalg.matrix_power``."""


ON_THE_HOST = TestDot, TestVdot, TestInner, TestTensordot, TestEinsum, TestKron, TestMultiDot, TestMatrixPower


REACH = [(TestMatmulOperator, "test_matrix_matrix_values", "matmul"),
         (TestMatmul, "test_matrix_matrix_values", "matmul"),
         (TestGufuncKeywords, "test_out_broadcasts", "vecdot"), (TestDot, "test_dotmatmat", "dot"),
         (TestVdot, "test_vdot_array_order", "vdot"),
         (TestInner, "test_inner_scalar_and_vector", "inner"),
         (TestTensordot, "test_zero_dimensional", "tensordot"),
         (TestEinsum, "test_einsum_sums_int32", "einsum"), (TestKron, "test_basic", "kron"),
         (TestMultiDot, "test_three_arguments_and_out", "linalg.multi_dot")]


@pytest.mark.parametrize("group, test, function", REACH,
                         ids=[f"{group.__name__}-{function}" for group, _test, function in REACH])
def test_substitution_works(backend: str, group: type, test: str, function: str) -> None:
    """The tests above work on our type."""
    if backend == "cuda" and group in ON_THE_HOST:
        pytest.skip("on CuPy's arrays these functions are tested by test_numpy_suite.py")
    assert type(test_multiarray.np.ones((2, 2))) is type(test_linalg.array([1])) is cuteblas.ndarray
    origin = group()
    if hasattr(origin, "setup_method"):
        origin.setup_method()
    getattr(origin, test)()
    assert sum(cuteblas.stats()[function]["calls"].values()) > 0
