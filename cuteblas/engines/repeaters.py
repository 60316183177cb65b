"""Who answers calls on CuPy arrays that have run before: imported when the first such array arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dispatch import kind_of_type, repeaters

__all__ = ["repeater_of"]


def repeater_of(kind: type) -> Callable[..., Any] | None:
    """What :data:`~cuteblas.engines.dispatch.repeaters` has for operands of a type, that of CuPy arrays from the first one on."""
    if kind_of_type(kind) == "cupy":
        from . import repeats as repeats
    return repeaters.get(kind)
