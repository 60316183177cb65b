"""Linear algebra of the Array API standard."""

from .generation import generated
from .standard import LINALG

globals().update(generated(LINALG, "linalg", __name__))

__all__ = sorted(name for names in LINALG.values() for name in names.split())
