"""Functions that answer calls which have run before; those for CuPy arrays are imported with the first such array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dispatch import kind_of_type, repeaters

__all__ = ["repeater_of"]


def repeater_of(kind: type) -> Callable[..., Any] | None:
    """The entry of :data:`~cuteblas.engines.dispatch.repeaters` for operands of a type."""
    if kind_of_type(kind) == "cupy":
        from . import repeats as repeats
    return repeaters.get(kind)
