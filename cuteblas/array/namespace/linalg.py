"""Linear algebra of the Array API standard."""

from typing import TYPE_CHECKING, Any

from .generation import generated
from .standard import LINALG

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
globals().update(generated(LINALG, "linalg", __name__))

__all__ = sorted(name for names in LINALG.values() for name in names.split())
