"""NumPy's functions on CuPy arrays, by CuPy's functions of other parameters.

It imports CuPy, and is imported when the first of them arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

__all__ = ["by_cupy"]


def by_cupy(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], some: cupy.ndarray) -> Any:
    """A function of NumPy on CuPy arrays, one of which is ``some``; ``NotImplemented`` if CuPy has none of that name."""
    return some.__array_function__(function, (cupy.ndarray,), arguments, named)
