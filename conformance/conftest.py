"""Suites from outside, on any backend:
``pytest conformance --backend numpy|definition|emulator|cuda|cuda-host``.

At the end a table is printed with a row for each suite; docs/conformance.md has it for every
backend.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuteblas
import cuteblas.linalg
from cuteblas import emulator, runtime
from tests.functions import reference

os.environ["CUTEBLAS_KEEP_CALLS"] = "0"      # what is tested is planned here
# SciPy reads it once, when it is imported, and scikit-learn insists on it
os.environ["SCIPY_ARRAY_API"] = "1"

# CuPy's allocations are aligned to more than this many bytes, the most that kernels ask for.
_ALIGNMENT = 16
_ON_GPU = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
_PRODUCTS = ("dot", "vdot", "inner", "outer", "tensordot", "einsum", "einsum_path", "kron",
             "vecdot", "matvec", "vecmat", "swapaxes", "moveaxis", "rollaxis", "transpose",
             "permute_dims", "matrix_transpose", "asfortranarray")
_LINALG = ("multi_dot", "matrix_power", "matmul", "vecdot", "tensordot", "outer",
           "matrix_transpose")
_BACKENDS = ("numpy", "definition", "emulator", "cuda", "cuda-host")
_WORKS_BY = {"definition": "emulator", "emulator": "emulator", "cuda-host": "cuda"}
_HERE = Path(__file__).parent
_XFAILS = _HERE / "numpy_suite_xfails.txt"
_ANSWERED = "answered"

_OUTCOMES = ("passed", "skipped", "xfailed", "failed", "error")
# Routes of calls without a kernel, besides those delegated with a reason.
_WITHOUT_KERNELS = frozenset({"numpy", "nothing", "identity", "matmul", "a view",
                              "element by element"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        choices=_BACKENDS,
        default="numpy",
        help="what works on the arrays: NumPy's BLAS, all of our code but the kernels, which are evaluated by their "
        "definition, the generated kernels on the CPU, or the GPU: on CuPy arrays, or on "
        "NumPy arrays that move there"
    )


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("leaks_references", "slow", "thread_unsafe", "valgrind_error"):
        config.addinivalue_line("markers", f"{mark}(*, reason): a mark in NumPy's own tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that ``numpy_suite_xfails.txt`` lists for this backend."""
    backend = config.getoption("--backend")
    for line in _XFAILS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        (what, backends,
         test), reason = line.partition("|")[0].split(), line.partition("|")[2].strip()
        mark = pytest.mark.skip(reason=reason) if what == "skip" else pytest.mark.xfail(reason=reason, strict=True)
        for item in items:
            if backend in backends.split(",") and test in item.nodeid:
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record with every test the routes of its calls of this package's functions."""
    answered: Counter[tuple[str, str]] = Counter()
    reset = cuteblas.reset_stats

    def note() -> None:
        for function, groups in cuteblas.stats().items():
            for route, count in groups.get("calls", {}).items():
                answered[function, route] += count

    def note_and_reset() -> None:
        note()
        reset()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuteblas, "reset_stats", note_and_reset)
        reset()
        try:
            return (yield)
        finally:
            note()
            item.user_properties.append((_ANSWERED,
                                         [(*key, count) for key, count in answered.items()]))


@pytest.hookimpl(trylast=True)                      # after fixtures have let go of their arrays
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Give the GPU's memory back: NumPy's tests of huge arrays leave too little for others that run
    at the same time."""
    if item.config.getoption("--backend") in ("cuda", "cuda-host"):
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a table of the suites, and the routes of the calls of this package's functions."""
    outcomes: dict[str, Counter[str]] = {}
    routes: dict[str, Counter[str]] = {}
    for outcome in _OUTCOMES:
        for report in terminalreporter.stats.get(outcome, ()):
            suite, _, rest = report.nodeid.partition("::")
            if not suite.startswith(f"{_HERE.name}/") or not rest:
                continue
            row = outcomes.setdefault(suite.removeprefix(f"{_HERE.name}/"), Counter())
            row[outcome] += 1
            for function, route, count in dict(report.user_properties).get(_ANSWERED, ()):
                row["calls"] += count
                row["on kernels"] += count * _is_kernel(route)
                routes.setdefault(function, Counter())[route] += count
    if not outcomes:
        return
    columns = [name for name in (*_OUTCOMES, "calls", "on kernels")
               if name not in _OUTCOMES[3:] or any(row[name] for row in outcomes.values())]
    terminalreporter.section(f"conformance on the backend {config.getoption('--backend')}")
    for line in (["suite", *columns], ["---", *["---:"] * len(columns)],
                 *([f"`{suite}`", *(str(row[name]) for name in columns)]
                   for suite, row in sorted(outcomes.items()))):
        terminalreporter.write_line(f"| {' | '.join(line)} |")
    if config.get_verbosity() > 0:
        for function, counts in sorted(routes.items()):
            described = ", ".join(f"{route}: {count}" for route, count in sorted(counts.items()))
            terminalreporter.write_line(f"{function:24} {counts.total():6}   {described}")


def _is_kernel(route: str) -> bool:
    """Whether a route of ``cuteblas.stats`` is a family of kernels."""
    return route not in _WITHOUT_KERNELS and not route.startswith(("delegated", "inverse"))


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The backend's name; tests are skipped where it cannot work."""
    name = request.config.getoption("--backend")
    needs = {"emulator": emulator.why_unavailable, "cuda": runtime.why_unavailable,
             "cuda-host": runtime.why_unavailable}
    reason = needs.get(name, lambda: None)()
    if reason:
        pytest.skip(f"the backend {name} cannot work here: {reason}")
    with pytest.MonkeyPatch.context() as patch, cuteblas.backend(_WORKS_BY.get(name, "numpy")):
        if name == "definition":
            reference.install(patch)
        yield name


@pytest.fixture(scope="session")
def matmul(backend: str) -> Callable[..., Any]:
    """``cuteblas.matmul`` on NumPy arrays; on the GPU by way of CuPy arrays with the same strides
    and alignments."""
    return _matmul_by_way_of_the_gpu if backend == "cuda" else cuteblas.matmul


@pytest.fixture(scope="session")
def copy(backend: str) -> Callable[..., Any]:
    """``cuteblas.copy`` on NumPy arrays, as ``matmul``."""
    return _copy_by_way_of_the_gpu if backend == "cuda" else cuteblas.copy


@pytest.fixture(scope="session")
def products(backend: str) -> dict[str, Callable[..., Any]]:
    """Our functions by NumPy's names for them, on NumPy arrays; on the GPU by way of CuPy arrays as
    ``matmul``."""
    ours = {name: getattr(cuteblas, name) for name in _PRODUCTS}
    ours |= {f"linalg.{name}": getattr(cuteblas.linalg, name) for name in _LINALG}
    return {name: _by_way_of_the_gpu(name, call)
            for name, call in ours.items()} if backend == "cuda" else ours


def _by_way_of_the_gpu(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function on NumPy arrays that uploads them, and downloads what it returns; what cannot be
    uploaded stays on the host."""
    def on_gpu(*arguments: Any, **named: Any) -> Any:
        nested = name == "linalg.multi_dot"
        given = list(arguments[0]) if nested else list(arguments)
        places = _places_of_operands(name, given)
        arrays = [x for i, x in enumerate(given) if isinstance(x, np.ndarray)
                  and (i in places or i == _OUT.get(name))]
        if (out := named.get("out")) is not None:
            arrays.append(out)
        for i in places:
            # NumPy's functions take lists together with arrays, ours on a GPU do not
            if arrays and isinstance(given[i], list):
                given[i] = np.array(given[i])
                arrays.append(given[i])
        if not arrays or not all(type(x) is np.ndarray and x.dtype in _ON_GPU and x.flags.writeable
                                 for x in arrays):
            return call(*arguments, **named)
        uploads = Uploads(arrays)
        given = [uploads.of(x) for x in given]
        named = {key: uploads.of(x) for key, x in named.items()}
        return uploads.back(call(given, *arguments[1:], **named) if nested
                            else call(*given, **named))

    return on_gpu


# Positions of ``out``, and numbers of operands in front of other arguments where there are not two.
_OUT = {"dot": 2, "outer": 2, "vecdot": 2, "matvec": 2, "vecmat": 2}
_OF_ONE = frozenset({"swapaxes", "moveaxis", "rollaxis", "transpose", "permute_dims",
                     "matrix_transpose", "asfortranarray", "linalg.matrix_power",
                     "linalg.matrix_transpose"})


def _places_of_operands(name: str, given: list[Any]) -> range:
    """The positions of operands among the arguments of a function, or in its list of arrays."""
    if name in ("einsum", "einsum_path"):
        return range(1, len(given)) if isinstance(given[0], str) else range(0, len(given) // 2 * 2, 2)
    return range(len(given) if name == "linalg.multi_dot"
                 else min(1 if name in _OF_ONE else 2, len(given)))


class Uploads:
    """CuPy arrays with the strides and alignments of NumPy arrays; what shares memory on the host
    shares it on the GPU.

    Parameters
    ----------
    arrays : list of numpy.ndarray
        They are to stay as they are until their data comes back.
    """

    def __init__(self, arrays: list[np.ndarray]):
        windows = [_window(x) for x in arrays]
        regions: list[list[int]] = []
        for low, high in sorted(windows):
            if regions and low < regions[-1][1]:
                regions[-1][1] = max(high, regions[-1][1])
            else:
                regions.append([low, high])
        self._moved = [(low, high, _uploaded(low, high)) for low, high in regions]
        self._pairs = []
        for x, (low, high) in zip(arrays, windows, strict=True):
            region, memory = next((start, memory) for start, end, memory in self._moved
                                  if start <= low and high <= end)
            self._pairs.append((x, _on_gpu(x, memory + (_address(x) - region))))

    def of(self, x: Any) -> Any:
        """The CuPy array in the place of a NumPy array; anything else as it is."""
        return next((there for here, there in self._pairs if here is x), x)

    def back(self, result: Any) -> Any:
        """What NumPy would return: the array that was given as ``out``, a view, a scalar or a new
        array."""
        if not hasattr(result, "get"):
            return result
        for here, there in self._pairs:
            if result is there:
                here[...] = _elements(there)
                return here
        for low, high, memory in self._moved:
            if 0 <= (distance := result.data.ptr - memory.ptr) < high - low:
                source = next(here for here, _there in self._pairs if low <= _address(here) < high)
                return _view(source, low + distance, result)
        return _downloaded(result) if result.ndim else _elements(result)[()]


def _view(x: np.ndarray, address: int, like: Any) -> np.ndarray:
    """An array with the shape and strides of another in the memory of ``x``."""
    owner = x
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    memory = owner.ravel("K")
    return np.ndarray(like.shape, like.dtype, memory, address - _address(memory), like.strides)


def _uploaded(low: int, high: int) -> Any:
    """Memory of the host, by its addresses, copied to the GPU."""
    import cupy

    memory = cupy.cuda.alloc(high - low + _ALIGNMENT) + low % _ALIGNMENT
    memory.copy_from_host(ctypes.c_void_p(low), high - low)
    return memory


def _on_gpu(x: np.ndarray, memory: Any) -> Any:
    import cupy

    return cupy.ndarray(x.shape, x.dtype, memory, x.strides)


def _window(x: np.ndarray) -> tuple[int, int]:
    """The addresses from the first byte of an array to one past the last."""
    return np.lib.array_utils.byte_bounds(x) if x.size else (_address(x), _address(x) + 1)


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _downloaded(x: Any) -> np.ndarray:
    """A NumPy array with the strides of a CuPy array."""
    host = np.ndarray(x.shape, x.dtype, strides=x.strides)
    host[...] = _elements(x)
    return host


def _elements(x: Any) -> np.ndarray:
    """The elements of a CuPy array, aligned or not: CuPy itself reads aligned ones alone."""
    aligned = not any(n % x.itemsize for n in (x.data.ptr, *x.strides))
    return (x if aligned else cuteblas.copy(x, "C")).get()


def _matmul_by_way_of_the_gpu(x1: Any, x2: Any, out: Any = None, **arguments: Any) -> Any:
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    operands = [x if isinstance(x, np.ndarray) else np.asarray(x)
                for x in (x1, x2)] + ([] if target is None else [target])
    if not all(type(x) is np.ndarray and x.dtype in _ON_GPU
               and (x is not target or x.flags.writeable) for x in operands):
        return cuteblas.matmul(x1, x2, out, **arguments)
    uploads = Uploads(operands)
    return uploads.back(cuteblas.matmul(*map(uploads.of, operands), **arguments))


def _copy_by_way_of_the_gpu(a: Any, order: str = "K") -> Any:
    uploads = Uploads([a := np.asarray(a)])
    return uploads.back(cuteblas.copy(uploads.of(a), order))
