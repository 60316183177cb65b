"""Calls that have run in any process, in files: what a call comes to is known by its key, and by all else that decides it.

That is this package's own files, the versions of NumPy, of CuPy and of the compiler, the device, what was measured of it, and the
limit of workspaces.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from .._cache import find, keep
from ..runtime.configuration import costs_file
from .settings import workspace_limit

__all__ = ["name_of", "place", "read", "write"]

_COMPILERS = "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "cuda-bindings", "cuda-core"
_TOOLKITS = "CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX"
_FACTS = "name", "major", "minor", "multiProcessorCount", "totalGlobalMem", "l2CacheSize", "sharedMemPerBlockOptin"


@cache
def _files() -> str | None:
    """A digest that changes with the files of this package; ``None`` if they are not files."""
    found, folders = [], [str(Path(__file__).parents[1])]
    try:
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif not entry.name.endswith(".pyc"):
                        state = entry.stat()
                        found.append((entry.path, state.st_size, state.st_mtime_ns))
    except OSError:
        return None
    return sha256(repr(sorted(found)).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def place(ordinal: int) -> str | None:
    """All that decides how calls on a device are launched, besides the call; ``None`` if it is not known."""
    if os.environ.get("CUTEBLAS_KEEP_CALLS") == "0" or (files := _files()) is None:
        return None
    try:
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None
    costs = measured = None
    with suppress(OSError):
        costs = costs_file(properties["name"].decode())
        measured = costs.stat().st_mtime_ns
    return repr((files, np.__version__, cupy.__version__, cupy.cuda.runtime.driverGetVersion(), *map(_version, _COMPILERS),
                 *map(os.environ.get, _TOOLKITS), *map(properties.get, _FACTS), str(costs), measured))


class _NotPlain(Exception):
    """A part of a call has no name that means the same in another process."""


def _plain(x: Any) -> str:
    """A name of a value, and of no other one."""
    kind = type(x)
    if x is None or kind in (bool, int, float, str):
        return repr(x)
    if issubclass(kind, tuple):
        return f"{kind.__qualname__}({', '.join(map(_plain, x))})"
    if kind is type and x.__module__ in ("builtins", "numpy"):
        return f"{x.__module__}.{x.__qualname__}"
    raise _NotPlain


def is_usual(dtype: np.dtype) -> bool:
    """Whether a type is the one that its name stands for."""
    return dtype.isbuiltin == 1 and np.dtype(dtype.str) is dtype


def name_of(head: Hashable, inputs: Sequence[Any], out: Any) -> str | None:
    """The name of the file of a call, which :func:`~cuteblas.engines.repeats.repeated` may answer; ``None`` if it has none."""
    arrays = inputs if out is None else (*inputs, out)
    if len({x.data.device_id for x in arrays}) != 1 or not all(is_usual(x.dtype) for x in arrays):
        return None
    where = place(arrays[0].data.device_id)
    if where is None:
        return None
    try:
        text = _plain(head)
    except _NotPlain:
        return None
    parts = [(x.shape, x.strides, x.dtype.str, x.data.ptr & 15) for x in arrays]
    same = len(inputs) > 1 and inputs[0].data.ptr == inputs[1].data.ptr
    return sha256(f"{where} {workspace_limit()} {text} {parts} {out is None} {same}".encode()).hexdigest()


def read(name: str) -> Any:
    """The contents of a file; ``None`` if it is not there or was damaged."""
    with suppress(ValueError, RecursionError):          # not JSON, or not what is written here
        return None if (data := find("calls", name)) is None else json.loads(data)
    return None


def write(name: str, record: Any) -> None:
    """Keep how a call is launched."""
    with suppress(TypeError, ValueError):               # a number that JSON does not have
        keep("calls", name, json.dumps(record).encode())
