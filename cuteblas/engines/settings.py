"""Settings of a program: the backend for NumPy arrays, and the limit of workspaces."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from ..planning.problem import DeviceInfo

__all__ = ["BACKENDS", "Backend", "answered_libraries", "backend", "backend_of_environment",
           "checked_limit", "chosen_backend", "current_backend", "devices_of_environment",
           "driver_is_there", "hashes_arrays", "keeps_arrays", "limited", "planned_under_the_limit",
           "set_workspace_limit", "workspace_limit"]

Backend = Literal["auto", "numpy", "cuda", "emulator"]
BACKENDS: tuple[str, ...] = get_args(Backend)


def _checked_backend(name: str, source: str) -> str:
    """The backend of that name; "auto" is "numpy" where there is nothing to choose from."""
    if name == "auto":
        return name if driver_is_there() else "numpy"
    if name not in BACKENDS:
        raise ValueError(
            f"{source} is {name!r}, but it has to be one of {', '.join(map(repr, BACKENDS))}; it chooses what "
            f"computes on NumPy arrays, and CuPy arrays always use the GPU"
        )
    return name


_DRIVERS = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}


@cache
def driver_is_there() -> bool:
    """Whether CuPy and a driver are installed, working or not; neither is started."""
    if find_spec("cupy") is None or sys.platform not in _DRIVERS or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    try:
        ctypes.CDLL(_DRIVERS[sys.platform])
    except OSError:
        return False
    return True


_chosen: ContextVar[str | None] = ContextVar("cuteblas_backend", default=None)


chosen_backend = _chosen.get
"""The backend of the innermost ``with cuteblas.backend(...)``, or ``None``, without a frame."""


@cache
def backend_of_environment() -> str:
    return _checked_backend(os.environ.get("CUTEBLAS_BACKEND") or "auto", "CUTEBLAS_BACKEND")


@cache
def devices_of_environment() -> tuple[int, ...] | str | None:
    """The devices that ``CUTEBLAS_DEVICES``, read once, names: "all", ordinals or ``None``."""
    named = os.environ.get("CUTEBLAS_DEVICES", "").strip()
    if named in ("", "all"):
        return named or None
    try:
        return tuple(int(ordinal) for ordinal in named.split(","))
    except ValueError:
        raise ValueError(
            f"CUTEBLAS_DEVICES is {named!r}, but it has to be 'all' or ordinals separated by commas"
        ) from None


@cache
def keeps_arrays() -> bool:
    """Whether arrays that come again are kept: ``CUTEBLAS_KEEP_ARRAYS=1``, read once."""
    return os.environ.get("CUTEBLAS_KEEP_ARRAYS", "0") not in ("", "0")


@cache
def hashes_arrays() -> bool:
    """Whether hashes alone tell if they were written: ``CUTEBLAS_KEEP_ARRAYS=hash``."""
    return os.environ.get("CUTEBLAS_KEEP_ARRAYS") == "hash"


def current_backend() -> str:
    """The backend for NumPy arrays.

    It is that of the innermost ``with cuteblas.backend(...)``, else that of the environment
    variable ``CUTEBLAS_BACKEND``, which is read once, else ``"auto"``.

    Returns
    -------
    str
        ``"auto"``, ``"numpy"``, ``"cuda"`` or ``"emulator"``; ``"numpy"`` replaces ``"auto"`` if
        CuPy or a driver is missing.

    Raises
    ------
    ValueError
        If ``CUTEBLAS_BACKEND`` does not name a backend.

    Examples
    --------
    >>> with cuteblas.backend("emulator"):
    ...     cuteblas.current_backend()
    'emulator'
    """
    return _chosen.get() or backend_of_environment()


@contextmanager
def backend(name: Backend) -> Iterator[None]:
    """Choose the backend for NumPy arrays inside a ``with`` block, in this thread or task.

    Parameters
    ----------
    name : {"auto", "numpy", "cuda", "emulator"}
        ``"numpy"`` uses NumPy's BLAS. ``"cuda"`` moves arrays to the GPU, and results back.
        ``"auto"``, the default, estimates for each call which of the two is faster; without a GPU
        it uses NumPy. ``"emulator"`` runs the generated GPU kernels on the CPU. CuPy arrays always
        use the GPU.

    Returns
    -------
    context manager
        For a ``with`` block.

    Raises
    ------
    ValueError
        If there is no such backend.

    Examples
    --------
    >>> with cuteblas.backend("numpy"):
    ...     cuteblas.current_backend()
    'numpy'
    """
    token = _chosen.set(_checked_backend(name, "the backend"))
    try:
        yield
    finally:
        _chosen.reset(token)


answered_libraries: list[Callable[[], Sequence[str]]] = []
"""Functions that name libraries whose own functions this package answers."""


# -- scratch memory --------------------------------------------------------------------------------
_VARIABLE = "CUTEBLAS_WORKSPACE_LIMIT"
planned_under_the_limit: list[Callable[[], object]] = []
"""What forgets recorded calls, which were planned under the limit that was."""


def checked_limit(nbytes: Any, source: str) -> int:
    try:
        limit = operator.index(int(nbytes) if isinstance(nbytes, str) else nbytes)
    except (TypeError, ValueError):
        raise TypeError(f"{source} has to be a number of bytes, got {nbytes!r}") from None
    if limit < 0:
        raise ValueError(f"{source} has to be a number of bytes that is not negative, got {limit}")
    return limit


_limit: int | None = None
_asked = False


def workspace_limit() -> int | None:
    """The limit; that of the environment until another is set."""
    global _limit, _asked
    if not _asked:
        value = os.environ.get(_VARIABLE)
        _limit, _asked = checked_limit(value, _VARIABLE) if value else None, True
    return _limit


def set_workspace_limit(nbytes: int | None) -> int | None:
    """Limit the scratch memory of a call on the GPU, for the whole process.

    A product that would need more is computed in blocks, one after the other, or by a kernel that
    needs less; ``explain`` shows the choice.

    Parameters
    ----------
    nbytes : int or None
        The most bytes; ``None`` removes the limit. The environment variable
        ``CUTEBLAS_WORKSPACE_LIMIT`` sets the first limit.

    Returns
    -------
    int or None
        The previous limit.

    Raises
    ------
    TypeError, ValueError
        For anything else, or a negative number.

    Examples
    --------
    >>> before = cuteblas.set_workspace_limit(2**30)
    >>> cuteblas.set_workspace_limit(before)
    1073741824
    """
    global _limit
    before = workspace_limit()
    _limit = None if nbytes is None else checked_limit(nbytes, "the limit of workspaces")
    for forget in planned_under_the_limit:
        forget()
    return before


def limited(device: DeviceInfo) -> DeviceInfo:
    limit = workspace_limit()
    return device if limit is None else _limited(device, limit)


@lru_cache(maxsize=64)
def _limited(device: DeviceInfo, limit: int) -> DeviceInfo:
    return replace(device, workspace_limit=limit)
