"""The Array API standard, version 2024.12, for ``cuteblas.ndarray``, with ``linalg`` and ``fft``.

Products are ours, other functions those of array-api-compat. Beyond it there are ``float16``, and
functions that xarray looks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np
from array_api_compat.numpy import __array_namespace_info__ as _Info

from ..functions import einsum as einsum
from . import libraries as _libraries
from .creation import asarray as asarray
from .creation import from_dlpack as from_dlpack
from .standard import CONSTANTS, DTYPES, FFT, LINALG, MAIN, NUMPYS, VERSION
from .standard import generated as _generated
from .standard import submodule as _submodule

__array_api_version__ = VERSION


class __array_namespace_info__(_Info):
    """What there is to know about the namespace: capabilities, devices, dtypes."""

    __module__ = __name__

    def default_device(self) -> str:
        """Where arrays are made by default."""
        return _libraries.default_device()

    def devices(self) -> Any:
        return [*_libraries.devices()]

    def default_dtypes(self, *, device: Any = None) -> Any:
        """Types that arrays have by default; the same on every device."""
        _libraries.checked_device(device)
        return super().default_dtypes()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Any:
        """Types by name, all of them or those of a kind; the same on every device."""
        _libraries.checked_device(device)
        return super().dtypes(kind=kind)


if TYPE_CHECKING:                       # names of tables
    def __getattr__(name: str) -> Any: ...
fft = _submodule(f"{__name__}.fft", FFT)
linalg = _submodule(f"{__name__}.linalg", LINALG)
_functions = _generated(MAIN, "", __name__)
globals().update(_functions, **{name: getattr(_np, name)
                                for name in (*CONSTANTS, *DTYPES, *NUMPYS)})

__all__ = sorted((*CONSTANTS, *DTYPES, *NUMPYS, *_functions, "__array_api_version__",
                  "__array_namespace_info__", "asarray", "einsum", "fft", "from_dlpack", "linalg"))


def __dir__() -> list[str]:
    return __all__
