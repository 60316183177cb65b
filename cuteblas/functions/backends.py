"""Which backend works on NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

__all__ = ["BACKENDS", "backend", "current_backend"]

BACKENDS = ("numpy", "emulator")


def _checked(name: str, source: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"{source} is {name!r}, but NumPy arrays are worked on by one of {', '.join(map(repr, BACKENDS))}; "
                         f"CuPy arrays always use the GPU")
    return name


_chosen: ContextVar[str | None] = ContextVar("cuteblas_backend", default=None)


@cache
def _from_environment() -> str:
    return _checked(os.environ.get("CUTEBLAS_BACKEND") or "numpy", "CUTEBLAS_BACKEND")


def current_backend() -> str:
    """The backend that works on NumPy arrays: that of the innermost ``with cuteblas.backend(...)``, else the environment variable
    ``CUTEBLAS_BACKEND`` as it was at the first question, else ``"numpy"``.

    Returns
    -------
    str
        ``"numpy"`` or ``"emulator"``.

    Raises
    ------
    ValueError
        If ``CUTEBLAS_BACKEND`` names no backend.
    """
    return _chosen.get() or _from_environment()


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Choose what works on NumPy arrays inside a ``with`` block, for this thread or task.

    Parameters
    ----------
    name : {"numpy", "emulator"}
        ``"numpy"`` is NumPy's BLAS; ``"emulator"`` runs the generated GPU kernels on the CPU. CuPy arrays are not affected.

    Returns
    -------
    context manager
        For a ``with`` block.

    Raises
    ------
    ValueError
        If there is no such backend.
    """
    token = _chosen.set(_checked(name, "the backend"))
    try:
        yield
    finally:
        _chosen.reset(token)
