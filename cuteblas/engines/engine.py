"""What runs plans on arrays of one library: the emulator on NumPy arrays, CUDA on CuPy arrays.

An engine takes steps and records nothing; :mod:`~cuteblas.engines.execution` says which steps a
call consists of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .dispatch import kind_of
from .emulator import EMULATOR, Emulator

if TYPE_CHECKING:
    from .cuda import Cuda

__all__ = ["Engine", "engine_of"]

Engine: TypeAlias = "Emulator | Cuda"
"""Arrays of one library, and the means to run plans on them.

All engines have the same methods, and four attributes:

- ``on_host``: whether arrays are NumPy's, whose loops take elements of any alignment and keep
  subnormal numbers; CuPy's do neither.
- ``moves``: whether calls take NumPy arrays to the GPU, where
  :data:`~cuteblas.engines.cuda.CUDA` takes their steps.
- ``runs``: whether plans run; otherwise nothing is computed, counted or recorded.
- ``out_of_memory``: the exception of ``run`` if there is no memory for a workspace, or ``()``.
"""


def engine_of(x: Any) -> Engine:
    """What runs kernels on an array."""
    if kind_of(x) == "cupy":
        from .cuda import CUDA

        return CUDA
    return EMULATOR
