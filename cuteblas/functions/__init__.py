"""NumPy's semantics over the kernels: shapes, dtypes, casting, broadcasting and ``out``."""

from ..engines.counters import reset_stats, stats
from ..engines.pinned import empty_pinned
from ..engines.settings import backend, current_backend, set_workspace_limit
from ..engines.sharded import ShardedArray
from .copy import ascontiguousarray, asfortranarray, copy
from .dot import dot, inner, kron, outer, tensordot, vdot
from .einsum import einsum, einsum_path
from .explain import Explanation, explain, explain_copy
from .matmul import matmul
from .transpose import matrix_transpose, moveaxis, permute_dims, rollaxis, swapaxes, transpose
from .vecdot import matvec, vecdot, vecmat

__all__ = ["Explanation", "ShardedArray", "ascontiguousarray", "asfortranarray", "backend", "copy", "current_backend", "dot",
           "einsum", "einsum_path", "empty_pinned", "explain", "explain_copy", "inner", "kron", "matmul", "matrix_transpose",
           "matvec", "moveaxis", "outer", "permute_dims", "reset_stats", "rollaxis", "set_workspace_limit", "stats", "swapaxes",
           "tensordot", "transpose", "vdot", "vecdot", "vecmat"]
