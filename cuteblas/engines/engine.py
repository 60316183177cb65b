"""What runs plans on arrays of one library; ``engines.execution`` says which steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .dispatch import kind_of
from .emulator import EMULATOR, Emulator

if TYPE_CHECKING:
    from .cuda import Cuda

__all__ = ["Engine", "engine_of"]

Engine: TypeAlias = "Emulator | Cuda"
"""Arrays of one library, and the means to run plans on them. ``on_host`` arrays are NumPy's, of
any alignment and with subnormal numbers; ``kernels`` run on them where they are; ``moves`` takes
them to the GPU where that is faster; unless ``runs``, nothing is computed, counted or recorded;
``out_of_memory`` is raised without room for a workspace, or ``()``."""


def engine_of(x: Any) -> Engine:
    if kind_of(x) == "cupy":
        from .cuda import CUDA

        return CUDA
    return EMULATOR
