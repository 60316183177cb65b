"""NumPy's own tests of its products and of axis moves, from the installed wheel, on our functions.

The tests call NumPy through the global ``np`` of their module, or through names that the module
imported: stand-ins that have our functions replace them while they run. What they check is NumPy's
business: values, types, ``out``, overrides, exceptions. ``numpy_suite_xfails.txt`` lists the
differences that are meant, with the reason for each.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy._core.tests import test_einsum, test_multiarray, test_numeric, test_ufunc
from numpy.lib.tests import test_shape_base
from numpy.linalg.tests import test_linalg

import cuteblas


class Numpy(ModuleType):
    """A module of NumPy's with functions of ours."""

    def __init__(self, original: ModuleType, ours: dict[str, Any]):
        super().__init__(original.__name__)
        self.__dict__.update(ours)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch, matmul: Callable[..., Any],
         products: dict[str, Callable[..., Any]]) -> None:
    """Let NumPy's tests call our functions."""
    own = {name: call for name, call in products.items() if "." not in name} | {"matmul": matmul}
    linalg = {name.removeprefix("linalg."): call for name, call in products.items()
              if name.startswith("linalg.")}
    numpy = Numpy(np, own | {"linalg": Numpy(np.linalg, linalg)})
    for module in (test_einsum, test_multiarray, test_numeric, test_ufunc, test_shape_base,
                   test_linalg):
        monkeypatch.setattr(module, "np", numpy)
        for name, call in ({**linalg, **own} if module is test_linalg else own).items():
            if getattr(module, name, None) is getattr(np, name,
                                                      getattr(np.linalg, name, None)) is not None:
                monkeypatch.setattr(module, name, call)
    monkeypatch.setattr(TestMatmul, "matmul", staticmethod(matmul))
    monkeypatch.setattr(TestMatmulOfTwo, "matmul", staticmethod(lambda a, b: matmul(a, b)),
                        raising=False)


def only(origin: type, *words: str) -> type:
    """The tests of a class whose names have one of these words."""
    others = {name: None for name in dir(origin) if name.startswith("test")
              and not any(word in name for word in words)}
    return type(origin.__name__, (origin,), others | {"__module__": __name__})


class TestMatmul(test_multiarray.TestMatmul):
    """NumPy's tests of ``np.matmul``."""


class TestMatmulOfTwo(test_multiarray.MatmulCommon):
    """The tests that NumPy shares with the operator ``@``: two operands and nothing else."""


test_matmul_axes = test_multiarray.test_matmul_axes


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


class TestEinsumPath(test_einsum.TestEinsumPath):
    """NumPy's tests of ``np.einsum_path``."""


class TestKron(test_shape_base.TestKron):
    """NumPy's tests of ``np.kron``."""


class TestMultiDot(test_linalg.TestMultiDot):
    """NumPy's tests of ``np.linalg.multi_dot``."""


class TestMatrixPower(test_linalg.TestMatrixPower):
    """NumPy's tests of ``np.linalg.matrix_power``."""


class TestMoveaxis(test_numeric.TestMoveaxis):
    """NumPy's tests of ``np.moveaxis``."""


class TestRollaxis(test_numeric.TestRollaxis):
    """NumPy's tests of ``np.rollaxis``."""


TestUfuncOfVectors = only(test_ufunc.TestUfunc, "vec", "broadcast", "keepdims", "axes_argument",
                          "axis_argument")
TestMethodsOfAxes = only(test_numeric.TestNonarrayArgs, "swapaxes", "transpose", "dot")

test_outer_out_param = test_numeric.test_outer_out_param
test_overlap = test_einsum.test_overlap
test_einsum_chunking_precision = test_einsum.test_einsum_chunking_precision
test_tensordot = test_linalg.test_tensordot
test_linalg_matmul = test_linalg.test_matmul
test_matrix_transpose = test_linalg.test_matrix_transpose
test_sdot_bug_8577 = test_linalg.test_sdot_bug_8577
test_blas64_dot = test_linalg.test_blas64_dot


REACH = [(TestMatmul, "test_matrix_matrix_values", "matmul"), (TestDot, "test_dotmatmat", "dot"),
         (TestVdot, "test_basic", "vdot"), (TestInner, "test_inner_scalar_and_vector", "inner"),
         (TestTensordot, "test_zero_dimension", "tensordot"),
         (TestEinsum, "test_einsum_sums_int32", "einsum"),
         (TestEinsumPath, "test_long_paths", "einsum_path"), (TestKron, "test_basic", "kron"),
         (TestMultiDot, "test_three_arguments_and_out", "linalg.multi_dot")]


@pytest.mark.parametrize("group, test, function", REACH,
                         ids=[function for _group, _test, function in REACH])
def test_substitution_works(group: type, test: str, function: str) -> None:
    """The tests above really reach our functions."""
    origin = group()
    if hasattr(origin, "setup_method"):
        origin.setup_method()
    getattr(origin, test)()
    assert sum(cuteblas.stats()[function]["calls"].values()) > 0
