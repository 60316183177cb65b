"""NumPy's semantics over the kernels; its modules are imported when a function is first used."""

import sys as _sys
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from .._imports import imported as _imported

if TYPE_CHECKING:
    from ..engines.counters import reset_stats, stats
    from ..engines.keeping import keep_limit, release
    from ..engines.pinned import empty_pinned
    from ..engines.settings import backend, current_backend, set_workspace_limit
    from ..engines.sharded import ShardedArray
    from ..engines.tuning import tune
    from .copy import ascontiguousarray, asfortranarray, copy
    from .dot import dot, inner, kron, matvec, outer, tensordot, vdot, vecdot, vecmat
    from .einsum import einsum, einsum_path
    from .explain import Explanation, explain, explain_copy
    from .matmul import matmul
    from .transpose import matrix_transpose, moveaxis, permute_dims, rollaxis, swapaxes, transpose
    from .warmup import record, warmup

__all__ = ["Explanation", "ShardedArray", "ascontiguousarray", "asfortranarray", "backend", "copy",
           "current_backend", "dot", "einsum", "einsum_path", "empty_pinned", "explain",
           "explain_copy", "inner", "keep_limit", "kron", "matmul", "matrix_transpose", "matvec",
           "moveaxis", "outer", "permute_dims", "record", "release", "reset_stats", "rollaxis",
           "set_workspace_limit", "stats", "swapaxes", "tensordot", "transpose", "tune", "vdot",
           "vecdot", "vecmat", "warmup"]

_MODULES = {"..engines.counters": ("reset_stats", "stats"), "..engines.pinned": ("empty_pinned",),
            "..engines.sharded": ("ShardedArray",), "..engines.keeping": ("keep_limit", "release"),
            "..engines.settings": ("backend", "current_backend", "set_workspace_limit"),
            "..engines.tuning": ("tune",), ".copy": ("ascontiguousarray", "asfortranarray", "copy"),
            ".dot": ("dot", "inner", "kron", "matvec", "outer", "tensordot", "vdot", "vecdot",
                     "vecmat"),
            ".einsum": ("einsum", "einsum_path"),
            ".explain": ("Explanation", "explain", "explain_copy"), ".matmul": ("matmul",),
            ".transpose": ("matrix_transpose", "moveaxis", "permute_dims", "rollaxis", "swapaxes",
                           "transpose"), ".warmup": ("record", "warmup")}


class _Functions(_ModuleType):
    """This package; its functions are properties of the class, which a submodule cannot replace."""


def _property(name: str, module: str) -> property:
    def get(_package: _ModuleType) -> Any:
        return _imported(module, name, __name__)

    return property(get, lambda _package, _module: None)


for _module, _names in _MODULES.items():
    for _name in _names:
        setattr(_Functions, _name, _property(_name, _module))
_sys.modules[__name__].__class__ = _Functions
