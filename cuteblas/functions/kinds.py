"""What sort of object an operand is, told from its type without importing CuPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from .._forks import forget_in_children, use_cuda

__all__ = ["Kind", "kind_of", "own_call", "own_types"]

Kind = Literal["numpy", "subclass", "cupy", "foreign", "scalar", "like"]

own_types: dict[type, Callable[..., Any]] = {}
"""Types that answer NumPy's functions with those of this package: a call comes back with what they hold, and is counted then. Each
has a function of (call, name, operands, keyword arguments) that lets a function answer on what they hold."""


def own_call(*operands: object) -> Callable[..., Any] | None:
    """What lets a function answer on what operands of a type of ours hold; ``None`` if none is of such a type."""
    return next((own_types[type(x)] for x in operands if type(x) in own_types), None)


def kind_of(x: object) -> Kind:
    """The kind of an operand, told from its type.

    ``"numpy"`` is ``numpy.ndarray`` itself, ``"subclass"`` a subclass of it that leaves ufuncs alone, ``"cupy"`` any CuPy array,
    ``"foreign"`` a type that answers ufuncs itself (NEP 13), ``"scalar"`` a number, ``"like"`` everything that NumPy would convert.

    Raises
    ------
    RuntimeError
        For CuPy arrays in a process that was forked from one that had used CUDA.
    """
    return _kind_of_type(type(x))       # type: ignore[arg-type]      # mypy doubts that classes are hashable


@lru_cache(maxsize=512)
def _kind_of_type(kind: type) -> Kind:
    if issubclass(kind, np.ndarray):
        if kind is np.ndarray:
            return "numpy"
        return "subclass" if kind.__array_ufunc__ is np.ndarray.__array_ufunc__ else "foreign"
    cupy_array = getattr(sys.modules.get("cupy"), "ndarray", None)
    if cupy_array is not None and issubclass(kind, cupy_array):
        use_cuda()
        return "cupy"
    if hasattr(kind, "__array_ufunc__"):
        return "foreign"
    return "scalar" if issubclass(kind, (int, float, complex, np.generic)) else "like"


forget_in_children(_kind_of_type.cache_clear)
