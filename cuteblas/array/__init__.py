"""``cuteblas.ndarray``, its Array API namespace, and the hooks that let CuPy's own arrays use the kernels."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .creation import asarray, from_dlpack
from .wrapper import ndarray

__all__ = ["asarray", "from_dlpack", "ndarray"]


class _Array(ModuleType):
    """This package, which may be called as ``numpy.array`` is: both have the name ``cuteblas.array``."""

    def __call__(self, object: Any, dtype: Any = None, *, copy: bool | None = True, device: Any = None) -> ndarray:
        """A new array: :func:`asarray`, which copies unless it is told otherwise."""
        return asarray(object, dtype=dtype, device=device, copy=copy)


sys.modules[__name__].__class__ = _Array
