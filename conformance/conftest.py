"""Suites that judge from outside, on any backend: ``pytest conformance --backend numpy|emulator|cuda``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cuteblas
from cuteblas import emulator, runtime

# CuPy's allocations are aligned to more than this many bytes, the most that kernels ask for.
_ALIGNMENT = 16
_ON_GPU = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", choices=("numpy", "emulator", "cuda"), default="numpy",
                     help="what works on the arrays: NumPy's BLAS, the generated kernels on the CPU, or the GPU")


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("leaks_references", "slow", "thread_unsafe", "valgrind_error"):
        config.addinivalue_line("markers", f"{mark}(*, reason): a mark in NumPy's own tests")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The backend's name; tests are skipped where it cannot work."""
    name = request.config.getoption("--backend")
    reason = {"numpy": lambda: None, "emulator": emulator.why_unavailable, "cuda": runtime.why_unavailable}[name]()
    if reason:
        pytest.skip(f"the backend {name} cannot work here: {reason}")
    with cuteblas.backend("emulator" if name == "emulator" else "numpy"):
        yield name


@pytest.fixture(scope="session")
def matmul(backend: str) -> Callable[..., Any]:
    """``cuteblas.matmul`` on NumPy arrays; on the GPU by way of CuPy arrays with the same strides and alignments."""
    return _matmul_by_way_of_the_gpu if backend == "cuda" else cuteblas.matmul


@pytest.fixture(scope="session")
def copy(backend: str) -> Callable[..., Any]:
    """``cuteblas.copy`` on NumPy arrays, as ``matmul``."""
    return _copy_by_way_of_the_gpu if backend == "cuda" else cuteblas.copy


def _uploaded(arrays: list[np.ndarray]) -> list[Any]:
    """CuPy arrays with the strides and alignments of NumPy arrays; what shares memory on the host shares it on the GPU."""
    import cupy

    windows = [_window(x) for x in arrays]
    regions: list[list[int]] = []
    for low, high in sorted(windows):
        if regions and low < regions[-1][1]:
            regions[-1][1] = max(high, regions[-1][1])
        else:
            regions.append([low, high])
    moved = []
    for low, high in regions:
        memory = cupy.cuda.alloc(high - low + _ALIGNMENT) + low % _ALIGNMENT
        memory.copy_from_host(ctypes.c_void_p(low), high - low)
        moved.append((low, high, memory))
    result = []
    for x, (low, high) in zip(arrays, windows, strict=True):
        region, memory = next((start, memory) for start, end, memory in moved if start <= low and high <= end)
        result.append(cupy.ndarray(x.shape, x.dtype, memory + (_address(x) - region), x.strides))
    return result


def _window(x: np.ndarray) -> tuple[int, int]:
    """The addresses from the first byte of an array to one past the last."""
    return np.lib.array_utils.byte_bounds(x) if x.size else (_address(x), _address(x) + 1)


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _downloaded(x: Any) -> np.ndarray:
    """A NumPy array with the strides of a CuPy array."""
    host = np.ndarray(x.shape, x.dtype, strides=x.strides)
    host[...] = x.get()
    return host


def _matmul_by_way_of_the_gpu(x1: Any, x2: Any, out: Any = None, **arguments: Any) -> Any:
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    operands = [x if isinstance(x, np.ndarray) else np.asarray(x) for x in (x1, x2)] + ([] if target is None else [target])
    if not all(type(x) is np.ndarray and x.dtype in _ON_GPU and (x is not target or x.flags.writeable) for x in operands):
        return cuteblas.matmul(x1, x2, out, **arguments)
    on_gpu = _uploaded(operands)
    result = cuteblas.matmul(*on_gpu, **arguments)
    if target is None:
        return _downloaded(result) if result.ndim else result.get()[()]
    assert result is on_gpu[2]
    target[...] = cuteblas.copy(result, "C").get()       # CuPy itself reads aligned elements alone
    return target


def _copy_by_way_of_the_gpu(a: Any, order: str = "K") -> Any:
    return _downloaded(cuteblas.copy(_uploaded([np.asarray(a)])[0], order))
