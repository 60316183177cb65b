"""NumPy's own tests of ``@`` and ``@=``, from the installed wheel, on ``cuteblas.ndarray``.

The tests make their arrays by ``np.ones``, ``np.arange`` and so on of the global ``np`` of their module: a stand-in for it that
makes arrays of our type replaces it while they run. What they compare is moved to NumPy's arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy._core.tests import test_multiarray

import cuteblas

_MAKERS = frozenset({"arange", "array", "empty", "eye", "full", "ones", "zeros"})
_TOO_LONG_FOR_THE_EMULATOR = ("2d_large", "3d_large")
_NOT_ON_A_GPU = "gGO"
_REFUSED_BEFORE_ANYTHING_RUNS = ("test_exceptions", "test_array_priority_override", "test_matmul_raises")


class Numpy(ModuleType):
    """NumPy whose new arrays are ours, and whose comparisons turn them into NumPy's."""

    def __init__(self, device: str):
        super().__init__("numpy")
        self.device, self.testing = device, self

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(np, name, None) or getattr(np.testing, name)
        if name in _MAKERS:
            return lambda *arguments, **named: ours(theirs(*map(theirs_of, arguments), **named), self.device)
        return compared(theirs) if name.startswith("assert_") else theirs


def ours(x: Any, device: str) -> Any:
    """A NumPy array as one of ours."""
    return cuteblas.asarray(x, device=device) if type(x) is np.ndarray else x


def theirs_of(x: Any) -> Any:
    """One of our arrays as NumPy's; everything else as it is."""
    return np.asarray(x.to_device("cpu")) if isinstance(x, cuteblas.ndarray) else x


def compared(check: Callable[..., None]) -> Callable[..., None]:
    """One of NumPy's comparisons, of NumPy's arrays."""
    return lambda *arguments, **named: check(*map(theirs_of, arguments), **named)


@pytest.fixture(autouse=True)
def substituted(monkeypatch: pytest.MonkeyPatch, backend: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let NumPy's tests work on our type, and see that its products were called."""
    if backend == "emulator" and any(name in request.node.name for name in _TOO_LONG_FOR_THE_EMULATOR):
        pytest.skip("too many multiply-adds for the emulator")
    if backend == "cuda":
        parameters = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
        if any(x.char in _NOT_ON_A_GPU for x in parameters if isinstance(x, np.dtype)):
            pytest.skip("CuPy has no arrays of that type")
        types = "".join(c for c in test_multiarray.MatmulCommon.types if c not in _NOT_ON_A_GPU)
        monkeypatch.setattr(TestMatmulOperator, "types", types, raising=False)
    monkeypatch.setattr(test_multiarray, "np", Numpy("cuda" if backend == "cuda" else "cpu"))
    for name in ("assert_equal", "assert_array_equal"):
        monkeypatch.setattr(test_multiarray, name, compared(getattr(np.testing, name)))
    cuteblas.reset_stats()
    yield
    counts = cuteblas.stats().get("matmul", {}).get("calls", {})
    assert sum(counts.values()) or request.node.originalname in _REFUSED_BEFORE_ANYTHING_RUNS


class TestMatmulOperator(test_multiarray.TestMatmulOperator):
    """NumPy's tests of ``@``."""

    matmul = staticmethod(operator.matmul)

    @pytest.mark.xfail(reason="the product of two vectors is a 0-d array, as the Array API has it", raises=AssertionError)
    def test_result_types(self) -> None:
        super().test_result_types()


class TestMatmulInplace(test_multiarray.TestMatmulInplace):
    """NumPy's tests of ``@=``."""


def test_substitution_works() -> None:
    """The tests above work on our type."""
    assert type(test_multiarray.np.ones((2, 2))) is cuteblas.ndarray
    TestMatmulOperator().test_matrix_matrix_values()
