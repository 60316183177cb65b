"""Elements that are not aligned to their size, which end a process's use of a GPU when a kernel
reads them: every function copies them first, or refuses them. CuPy arrays are in host memory here;
those on a device are in ``test_on_a_gpu``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuteblas
import cuteblas.linalg
from cuteblas import blas, epilogues

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines.cuda import CUDA  # noqa: E402

from .host_cupy import installed, on_gpu, on_host  # noqa: E402


@pytest.fixture
def on_the_host(by_definition: None) -> Iterator[None]:
    with installed():
        yield


def shifted(dtype: str, shape: tuple[int, ...] = (6, 6)) -> np.ndarray:
    """An array that begins one byte after a multiple of the size of its elements."""
    kind = np.dtype(dtype)
    return np.ndarray(shape, kind, np.zeros(int(np.prod(shape)) * kind.itemsize + 17, np.uint8), 1)


def packed(dtype: str, shape: tuple[int, ...] = (6, 6)) -> np.ndarray:
    """An array with a byte after every element."""
    return np.zeros(shape, [("element", dtype), ("byte", "u1")])["element"]


def small(x: np.ndarray) -> np.ndarray:
    """The array, filled with small integers."""
    x[...] = np.arange(x.size).reshape(x.shape) % 5
    return x


ROUTINES = {"f4": "sgemm", "f8": "dgemm", "F": "cgemm", "D": "zgemm"}
CALLS = {"ascontiguousarray": lambda x, one: (cuteblas.ascontiguousarray(x, "i1"),
                                              lambda h: h.astype("i1")),
         "asfortranarray": lambda x, one: (cuteblas.asfortranarray(x, "D"),
                                           lambda h: h.astype("D")),
         "copy": lambda x, one: (cuteblas.copy(x.T), lambda h: h.T),
         "matmul": lambda x, one: (cuteblas.matmul(x, x), lambda h: h @ h),
         "mixed matmul": lambda x, one: (cuteblas.matmul(x, one.view("i1")[:, :6]),
                                         lambda h: h @ np.ones((6, 6), h.dtype).view("i1")[:, :6]),
         "dot": lambda x, one: (cuteblas.dot(x, x), lambda h: h @ h),
         "number": lambda x, one: (cuteblas.dot(x, 2), lambda h: h * 2),
         "vdot": lambda x, one: (cuteblas.vdot(x[:4], x[:4].T), lambda h: np.vdot(h[:4], h[:4].T)),
         "sum": lambda x, one: (cuteblas.einsum("ij->i", x), lambda h: h.sum(-1)),
         "elements": lambda x, one: (cuteblas.einsum("ij,ij->ij", x, one), lambda h: h),
         "power": lambda x, one: (cuteblas.linalg.matrix_power(x, 3), lambda h: h @ h @ h),
         "bias": lambda x, one: (cuteblas.matmul(one, one, epilogue=epilogues.bias(bias=x)),
                                 lambda h: 6 + h),
         "row": lambda x, one: (cuteblas.matmul(one, one, epilogue=epilogues.bias(bias=x[:1])),
                                lambda h: np.broadcast_to(6 + h[0], (6, 6))),
         "epilogue": lambda x, one: (cuteblas.matmul(x, one, epilogue="relu"),
                                     lambda h: h @ np.ones_like(h)),}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "F"])
@pytest.mark.parametrize("made", [shifted, packed])
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_operands(made: Any, dtype: str, name: str, on_the_host: None) -> None:
    if name == "epilogue" and dtype == "F":
        pytest.skip("complex numbers have no order")
    check_operand(made, dtype, name, on_gpu, on_host)


def check_operand(made: Any, dtype: str, name: str, to: Any, back: Any) -> None:
    """Check a call with an unaligned operand."""
    x = small(made(dtype))
    got, want = CALLS[name](to(x), to(np.ones((6, 6), dtype)))
    np.testing.assert_array_equal(back(got), want(x.copy()))


@pytest.mark.parametrize("dtype", ROUTINES)
def test_scalars_of_blas(dtype: str, on_the_host: None) -> None:
    check_scalars(dtype, on_gpu, on_host)


def check_scalars(dtype: str, to: Any, back: Any) -> None:
    """Check factors that are unaligned on the device, of the routine's type and of another."""
    routine, one = getattr(blas, ROUTINES[dtype]), to(np.ones((6, 6), dtype))
    for kind in (dtype, "f2", "i4"):
        two, three = small(shifted(kind, (4,)))[2:4]
        x = shifted(kind, (2,))
        x[:] = two, three
        alpha, beta = to(x)[0, ...], to(x)[1, ...]
        np.testing.assert_array_equal(back(routine(alpha, one, one)), np.full((6, 6), 12))
        np.testing.assert_array_equal(back(routine(1, one, one, beta, one)), np.full((6, 6), 9))
        np.testing.assert_array_equal(back(routine(alpha, one, one, beta, one)),
                                      np.full((6, 6), 15))


@pytest.mark.parametrize("made", [shifted, packed])
def test_inverses(made: Any, on_the_host: None) -> None:
    x = made("f8", (3, 3))
    x[...] = np.arange(9).reshape(3, 3) + 4 * np.eye(3)
    np.testing.assert_allclose(on_host(cuteblas.linalg.matrix_power(on_gpu(x), -1)),
                               np.linalg.inv(x.copy()), rtol=1e-9, atol=1e-12)


def test_operands_of_blas_are_refused(on_the_host: None) -> None:
    x, one = on_gpu(shifted("f4")), on_gpu(np.ones((6, 6), "f4"))
    for call in (lambda: blas.sgemm(1, x, one), lambda: blas.sgemm(1, one, one, 1, x),
                 lambda: blas.sgemm(1, one, one, out=x)):
        with pytest.raises(ValueError, match="takes elements that are aligned to their size"):
            call()
    for groups in (([x, one], [one, one]), ([one, one], [x, one])):
        with pytest.raises(ValueError, match="takes elements that are aligned to their size"):
            blas.gemm_grouped(1, *groups)
    nothing = on_gpu(shifted("f4", (0, 6)))
    assert blas.sgemm(1, nothing, one).shape == (0, 6)
    assert (on_host(blas.sgemm(1, nothing, nothing, trans_a="T")) == 0).all()


@pytest.mark.parametrize("made", [shifted, packed])
def test_results(made: Any, on_the_host: None) -> None:
    check_results(made, on_gpu, on_host)


def check_results(made: Any, to: Any, back: Any) -> None:
    """Check every function that writes into an unaligned array."""
    one = to(np.ones((6, 6), "f4"))
    for write in (lambda x: cuteblas.matmul(one, one, out=x),
                  lambda x: cuteblas.matmul(one, one, out=x, epilogue="relu"),
                  lambda x: cuteblas.matmul(one, one, epilogue=epilogues.gelu_aux(pre=x)),
                  lambda x: cuteblas.einsum("ij,jk->ik", one, one, out=x),
                  lambda x: cuteblas.vecdot(one, one[:, None], out=x.T)):
        x = to(made("f4"))
        write(x)
        np.testing.assert_array_equal(back(x), np.full((6, 6), 6))
    x = to(made("f4"))
    cuteblas.copy(one, out=x)
    np.testing.assert_array_equal(back(x), np.ones((6, 6)))
    x = to(made("f4", (6,)))
    cuteblas.matmul(one, one, epilogue=epilogues.bgrad_a(bgrad=x))
    np.testing.assert_array_equal(back(x), np.full(6, 6))


# -- on a device -----------------------------------------------------------------------------------
def to_device(x: np.ndarray) -> Any:
    """A CuPy array with the contents, strides and alignment of ``x``."""
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = cupy.cuda.alloc(high - low + 32) + low % 16
    memory.copy_from_host(low, high - low)
    return cupy.ndarray(x.shape, x.dtype, memory + (x.__array_interface__["data"][0] - low),
                        x.strides)


def from_device(x: Any) -> np.ndarray:
    """The elements of a CuPy array, aligned or not."""
    low, high = CUDA.memory(x).span
    memory = np.zeros(high - low, np.uint8)
    (x.data + low).copy_to_host(memory.ctypes.data, memory.nbytes)
    return np.ndarray(x.shape, x.dtype, memory, -low, x.strides)


def check_on_the_device() -> None:
    """All of the above."""
    for made in (shifted, packed):
        for dtype in ("f2", "f4", "f8", "F"):
            for name in CALLS:
                if (name, dtype) != ("epilogue", "F"):
                    check_operand(made, dtype, name, to_device, from_device)
        check_results(made, to_device, from_device)
    for dtype in ROUTINES:
        check_scalars(dtype, to_device, from_device)
    x = small(shifted("f8", (3, 3))) + 4 * np.eye(3)
    y = shifted("f8", (3, 3))
    y[...] = x
    np.testing.assert_allclose(from_device(cuteblas.linalg.matrix_power(to_device(y), -1)),
                               np.linalg.inv(x))


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """In a process of its own: what would be wrong is the end of its use of the device."""
    program = f"from {__name__} import check_on_the_device; check_on_the_device()"
    home = str(Path(__file__).parents[2])
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=home,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
