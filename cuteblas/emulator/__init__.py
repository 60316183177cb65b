"""Kernels on the CPU: the generated source, compiled by the host's C++ compiler and run under
checks that no GPU makes.

Every thread of a block is a fiber. Each access to global and shared memory is checked against its
bounds and alignment, and against all others that no barrier or flag orders before it, whatever the
order in which the fibers happened to run. Asynchronous copies, mbarriers, tensor maps and wgmma
behave as PTX describes them, and their misuse is an error that names the kernel, the block, the
thread and the line.

Examples
--------
>>> kernel = emulator.compile(generated)                                   # doctest: +SKIP
>>> kernel.launch((4, 1, 1), [emulator.pointer(a), emulator.pointer(c), 1024])   # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._imports import at_first_use as _at_first_use
from . import errors
from .compiler import available, why_unavailable
from .errors import *  # noqa: F403

if TYPE_CHECKING:
    from .kernel import AccessCount, EmulatedKernel, Pointer, Table, compile, pointer, run

__all__ = ["AccessCount", "EmulatedKernel", "Pointer", "Table", "available", "compile", "pointer",
           "run", "why_unavailable", *errors.__all__]
__dir__ = __all__.copy

if not TYPE_CHECKING:                   # the emulator imports the language of kernels
    __getattr__ = _at_first_use(__name__, dict.fromkeys(
        ("AccessCount", "EmulatedKernel", "Pointer", "Table", "compile", "pointer", "run"),
        "kernel"))
