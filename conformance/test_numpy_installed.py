"""NumPy's own tests of its products, from the installed wheel, on NumPy itself while cuteblas is
installed in it.

No call is too small: all that arrive are answered by this package, on NumPy's BLAS or, with
``--backend cuda-host``, on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from numpy._core.tests import test_einsum, test_multiarray, test_numeric, test_overrides, test_ufunc
from numpy.lib.tests import test_shape_base
from numpy.linalg.tests import test_linalg

import cuteblas
from cuteblas.array import numpy_hooks
from cuteblas.array.numpy_loops import why_unavailable

from .test_numpy_suite import only

if (reason := why_unavailable()) is not None:
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(autouse=True, scope="module")
def installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Install, with no call that is too small."""
    if (chosen := request.config.getoption("--backend")) not in ("numpy", "cuda-host"):
        pytest.skip("one of the backends that unchanged programs have")
    with pytest.MonkeyPatch.context() as patch, cuteblas.backend("numpy" if chosen == "numpy"
                                                                 else "cuda"):
        for loop in numpy_hooks.LOOPS:
            patch.setattr(loop, "least", 0)
            patch.setattr(loop, "_ours", {})
        for function in numpy_hooks.FUNCTIONS:
            patch.setattr(function, "_least", 0)
        cuteblas.install(numpy=True)
        yield
        cuteblas.uninstall()


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """No test ends with NumPy in the place of a function of ours that failed."""
    cuteblas.reset_stats()
    yield
    routes = {route for groups in cuteblas.stats().values() for route in groups.get("calls", {})}
    assert not [route for route in routes if "where NumPy has none" in route]


for _module, _names in {test_multiarray: ("TestMatmul", "TestMatmulOperator", "TestMatmulInplace",
                                          "TestDot", "TestVdot", "TestInner"),
                        test_numeric: ("TestTensordot", "TestNonarrayArgs"),
                        test_einsum: ("TestEinsum",), test_shape_base: ("TestKron",),
                        test_linalg: ("TestMultiDot", "TestMatrixPower"),
                        test_overrides: ("TestArrayFunctionDispatch",
                                         "TestArrayFunctionImplementation",
                                         "TestNDArrayArrayFunction", "TestNumPyFunctions",
                                         "TestArrayLike")}.items():
    for _name in _names:
        globals()[_name] = type(_name, (getattr(_module, _name),), {"__module__": __name__})

TestUfuncOfVectors = only(test_ufunc.TestUfunc, "vec", "matrix_multiply", "broadcast", "keepdims",
                          "axes_argument", "axis_argument")
test_overlap, test_einsum_chunking_precision = test_einsum.test_overlap, test_einsum.test_einsum_chunking_precision
test_tensordot, test_linalg_matmul = test_linalg.test_tensordot, test_linalg.test_matmul


@pytest.mark.parametrize("group, test, function",
                         [("TestMatmul", "test_matrix_matrix_values", "matmul"),
                          ("TestMatmulOperator", "test_matrix_matrix_values", "matmul"),
                          ("TestDot", "test_dotmatmat", "dot"), ("TestVdot", "test_basic", "vdot"),
                          ("TestEinsum", "test_einsum_sums_int32", "einsum")])
def test_the_tests_reach_this_package(group: str, test: str, function: str) -> None:
    """They are not answered by NumPy alone."""
    tests = globals()[group]()
    if hasattr(tests, "setup_method"):
        tests.setup_method()
    getattr(tests, test)()
    assert sum(cuteblas.stats()[function]["calls"].values()) > 0
