"""GPU linear algebra with NumPy's semantics, on kernels that are generated from CuTe layouts.

>>> import cuteblas
>>> cuteblas.matmul([[1, 2], [3, 4]], [1, 1])
array([3, 7])

``matmul``, ``dot``, ``einsum`` and all other products of NumPy, ``transpose`` and its kin, ``copy``
and ``ascontiguousarray`` take NumPy and CuPy arrays and return arrays of the same library;
``cuteblas.linalg`` has the products of ``numpy.linalg``. ``explain`` shows what a call would run,
``stats`` what ran; ``backend("emulator")`` runs the GPU's kernels on the CPU. The layout algebra
and the kernel generator below are ordinary subpackages: ``cuteblas.layout``, ``cuteblas.codegen``.
"""

import os as _os
import sys as _sys
from typing import TYPE_CHECKING

from ._imports import at_first_use as _at_first_use
from ._imports import imported as _imported

if TYPE_CHECKING:
    from . import blas as blas
    from . import cli as cli
    from . import codegen as codegen
    from . import emulator as emulator
    from . import engines as engines
    from . import epilogues as epilogues
    from . import functions as functions
    from . import kernels as kernels
    from . import layout as layout
    from . import linalg as linalg
    from . import planning as planning
    from . import runtime as runtime
    from .array import CallablePackage as _CallablePackage
    from .array import asarray, ndarray
    from .array.install import enabled, install, uninstall
    from .epilogues import epilogue
    from .functions import (
        Explanation,
        ShardedArray,
        ascontiguousarray,
        asfortranarray,
        backend,
        copy,
        current_backend,
        dot,
        einsum,
        einsum_path,
        empty_pinned,
        explain,
        explain_copy,
        inner,
        keep_limit,
        kron,
        matmul,
        matrix_transpose,
        matvec,
        moveaxis,
        outer,
        permute_dims,
        record,
        release,
        reset_stats,
        rollaxis,
        set_workspace_limit,
        stats,
        swapaxes,
        tensordot,
        transpose,
        tune,
        vdot,
        vecdot,
        vecmat,
        warmup,
    )

    array: _CallablePackage

__version__ = "0.1.0"

__all__ = ["Explanation", "ShardedArray", "asarray", "ascontiguousarray", "asfortranarray",
           "backend", "copy", "current_backend", "dot", "einsum", "einsum_path", "empty_pinned",
           "enabled", "epilogue", "explain", "explain_copy", "inner", "install", "keep_limit",
           "kron", "matmul", "matrix_transpose", "matvec", "moveaxis", "ndarray", "outer",
           "permute_dims", "record", "release", "reset_stats", "rollaxis", "set_workspace_limit",
           "stats", "swapaxes", "tensordot", "transpose", "tune", "uninstall", "vdot", "vecdot",
           "vecmat", "warmup"]

_SUBPACKAGES = frozenset({"array", "blas", "codegen", "emulator", "epilogues", "layout", "linalg",
                          "planning", "runtime"})
_INTERNAL = frozenset({"cli", "engines", "functions", "kernels"})
_public = _at_first_use(__name__, {
    **dict.fromkeys(__all__, "functions"), "asarray": "array", "enabled": "array.install",
    "epilogue": "epilogues", "install": "array.install", "ndarray": "array",
    "uninstall": "array.install"})

if not TYPE_CHECKING:                                   # which would take any name for an object
    def __getattr__(name: str) -> object:
        """Import a subpackage, or the module that defines a name, at its first use."""
        if name in _SUBPACKAGES | _INTERNAL:
            return _imported(f"{__name__}.{name}")
        return _public(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBPACKAGES, "__version__"})


def _know_arrays_of_workers() -> None:
    """Let a worker of Dask read our arrays before a task of ours has come to it."""
    for module, table in (("serialize", "dask_deserialize"), ("cuda", "cuda_deserialize")):
        if (protocol := _sys.modules.get(f"distributed.protocol.{module}")) is not None:
            getattr(protocol, table).register_lazy(
                __name__, lambda: _imported(f"{__name__}.dask.serialization")
            )


if _os.environ.get("CUTEBLAS_INSTALL"):
    from .array.install import obey_environment as _obey_environment

    _obey_environment()
_know_arrays_of_workers()
