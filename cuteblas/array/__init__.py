"""``cuteblas.ndarray``, its Array API namespace, and the hooks that let CuPy's and NumPy's own
functions run as ours."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .creation import asarray, from_dlpack
from .operators import define_operators
from .wrapper import define, ndarray

if TYPE_CHECKING:
    from . import namespace as namespace
else:
    def __getattr__(name: str) -> ModuleType:
        """Import the namespace when it is first used, which takes half a second."""
        if name == "namespace":
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

__all__ = ["asarray", "from_dlpack", "ndarray"]


def __dir__() -> list[str]:
    return [*__all__, "namespace"]


_VERSIONS = frozenset({"2021.12", "2022.12", "2023.12", "2024.12"})


def _array_namespace(self: ndarray, /, *, api_version: str | None = None) -> ModuleType:
    """The functions of the Array API standard for these arrays.

    Raises
    ------
    ValueError
        For an unknown version, in NumPy's words.
    """
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f'Version "{api_version}" of the Array API Standard is not supported.')
    from . import namespace

    return namespace


define_operators()
# here, because the namespace is made of functions on the class
define("__array_namespace__", _array_namespace)


class CallablePackage(ModuleType):
    """This package, which may be called as ``numpy.array`` is."""

    if TYPE_CHECKING:
        asarray, from_dlpack = staticmethod(asarray), staticmethod(from_dlpack)
        namespace: ModuleType

    def __call__(self, object: Any, dtype: Any = None, *, copy: bool | None = True,
                 device: Any = None) -> ndarray:
        """Make a new array: :func:`asarray`, but with a copy by default."""
        return asarray(object, dtype=dtype, device=device, copy=copy)


sys.modules[__name__].__class__ = CallablePackage
