"""The arrays that clients are called with: those of this package, and on the GPU also CuPy's own
under ``cuteblas.enabled()``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cuteblas


@dataclass(frozen=True)
class Arrays:
    """Arrays that a client is called with.

    Attributes
    ----------
    library : {"cuteblas", "cupy"}
        Whose type they are, as a module that can be imported.
    backend : str
        What multiplies them.
    """

    library: str
    backend: str

    def put(self, x: Any) -> Any:
        """A NumPy array as one of theirs."""
        if self.library == "cuteblas":
            return cuteblas.asarray(np.array(x), device="cuda" if self.backend == "cuda" else "cpu")
        import cupy

        return cupy.asarray(x)

    def get(self, x: Any) -> np.ndarray:
        """One of theirs, and nothing else, as a NumPy array."""
        assert f"{type(x).__module__}.{type(x).__name__}" == f"{self.library}.ndarray"
        return np.asarray(x.to_device("cpu")) if self.library == "cuteblas" else x.get()

    def agree(self, result: Any, expected: Any, rtol: float = 1e-10) -> None:
        """Check that what a client returned for these arrays is what it returns for NumPy's."""
        if isinstance(expected, (tuple, list)):
            assert len(result) == len(expected)
            for mine, numpys in zip(result, expected, strict=True):
                self.agree(mine, numpys, rtol)
            return
        host = np.asarray(result) if isinstance(result, float) else self.get(result)
        assert host.shape == np.shape(expected) and host.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(host, expected, rtol,
                                   atol=rtol * np.abs(expected).max(initial=0))

    @contextmanager
    def multiplied(self, *functions: str, least: int = 1) -> Iterator[None]:
        """Check that inside the ``with`` block one of these functions of ours was called, and that
        no call was left to others."""
        cuteblas.reset_stats()
        yield
        stats = cuteblas.stats()
        calls = {route: count for name in functions
                 for route, count in stats.get(name, {}).get("calls", {}).items()}
        assert sum(calls.values()) >= least, stats
        assert not any(route.startswith("delegated") for route in calls), calls
        assert self.backend == "numpy" or "numpy" not in calls, calls


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every kind of array that there is on the backend."""
    if "arrays" in metafunc.fixturenames:
        libraries = ["cuteblas"] + ["cupy"] * (metafunc.config.getoption("--backend") == "cuda")
        metafunc.parametrize("arrays", libraries, indirect=True)


@pytest.fixture
def arrays(request: pytest.FixtureRequest, backend: str,
           monkeypatch: pytest.MonkeyPatch) -> Iterator[Arrays]:
    """Arrays for a client."""
    monkeypatch.setenv("CUTEBLAS_DEVICE", "cuda" if backend == "cuda" else "cpu")
    with cuteblas.enabled() if request.param == "cupy" else nullcontext():
        yield Arrays(request.param, backend)
