"""NumPy's own tests of matmul, from the installed wheel, on our function.

The tests call ``np.matmul`` through the global ``np`` of their module: a stand-in for it that has our function replaces it while
they run. What they check is NumPy's business: values, types, ``out``, overrides, exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy._core.tests import test_multiarray

import cuteblas


class Numpy(ModuleType):
    """NumPy with one function of ours."""

    def __init__(self, matmul: Callable[..., Any]):
        super().__init__("numpy")
        self.matmul = matmul

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch, matmul: Callable[..., Any]) -> None:
    """Let NumPy's tests call our function, and see that they did."""
    monkeypatch.setattr(test_multiarray, "np", Numpy(matmul))
    monkeypatch.setattr(TestMatmul, "matmul", staticmethod(matmul))
    monkeypatch.setattr(TestMatmulOfTwo, "matmul", staticmethod(lambda a, b: matmul(a, b)), raising=False)
    cuteblas.reset_stats()


class TestMatmul(test_multiarray.TestMatmul):
    """NumPy's tests of ``np.matmul``."""


class TestMatmulOfTwo(test_multiarray.MatmulCommon):
    """The tests that NumPy shares with the operator ``@``: two operands and nothing else."""


test_matmul_axes = test_multiarray.test_matmul_axes


def test_substitution_works(matmul: Callable[..., Any]) -> None:
    """The tests above really reach our function."""
    assert test_multiarray.np.matmul is matmul and test_multiarray.np.ones is np.ones
    TestMatmul().test_matrix_matrix_values()
    assert sum(cuteblas.stats()["matmul"]["calls"].values()) > 10
