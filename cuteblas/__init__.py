"""GPU linear algebra with NumPy's semantics, on kernels that are generated from CuTe layouts.

>>> import cuteblas
>>> cuteblas.matmul([[1, 2], [3, 4]], [1, 1])
array([3, 7])

``matmul``, ``transpose``, ``copy`` and ``ascontiguousarray`` take NumPy and CuPy arrays and return what they were given.
``explain`` and ``stats`` say what a call runs and what was run; ``backend("emulator")`` runs the GPU's kernels on the CPU. The
layout algebra and the kernel generator below are ordinary subpackages: ``cuteblas.layout``, ``cuteblas.codegen``.
"""

from importlib import import_module as _import_module

from .functions import (
    Explanation,
    ascontiguousarray,
    backend,
    copy,
    current_backend,
    explain,
    explain_copy,
    matmul,
    matrix_transpose,
    reset_stats,
    stats,
    transpose,
)

__version__ = "0.1.0"

__all__ = ["Explanation", "ascontiguousarray", "backend", "copy", "current_backend", "explain", "explain_copy", "matmul",
           "matrix_transpose", "reset_stats", "stats", "transpose"]

_SUBPACKAGES = frozenset({"array", "blas", "cli", "codegen", "emulator", "kernels", "layout", "planning", "runtime"})


def __getattr__(name: str) -> object:
    """Import a subpackage when it is first used."""
    if name in _SUBPACKAGES:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES})
