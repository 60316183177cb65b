"""NumPy's semantics over the kernels: shapes, dtypes, casting, broadcasting and ``out``."""

from .backends import backend, current_backend
from .copies import ascontiguousarray, asfortranarray, copy
from .counters import reset_stats, stats
from .dots import dot, inner, kron, outer, tensordot, vdot
from .einsums import einsum, einsum_path
from .explanations import Explanation, explain, explain_copy
from .limits import set_workspace_limit
from .products import matmul
from .transposes import matrix_transpose, moveaxis, permute_dims, rollaxis, swapaxes, transpose
from .vectors import matvec, vecdot, vecmat

__all__ = ["Explanation", "ascontiguousarray", "asfortranarray", "backend", "copy", "current_backend", "dot", "einsum",
           "einsum_path", "explain", "explain_copy", "inner", "kron", "matmul", "matrix_transpose", "matvec", "moveaxis", "outer",
           "permute_dims", "reset_stats", "rollaxis", "set_workspace_limit", "stats", "swapaxes", "tensordot", "transpose", "vdot",
           "vecdot", "vecmat"]
