"""Fourier transforms of the Array API standard."""

from .generation import generated
from .standard import FFT

globals().update(generated(FFT, "fft", __name__))

__all__ = sorted(name for names in FFT.values() for name in names.split())
