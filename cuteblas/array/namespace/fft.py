"""Fourier transforms of the Array API standard."""

from typing import TYPE_CHECKING, Any

from .generation import generated
from .standard import FFT

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
globals().update(generated(FFT, "fft", __name__))

__all__ = sorted(name for names in FFT.values() for name in names.split())
