"""NumPy's semantics over the kernels: shapes, dtypes, casting, broadcasting and ``out``."""

from .backends import backend, current_backend
from .copies import ascontiguousarray, copy
from .counters import reset_stats, stats
from .explanations import Explanation, explain, explain_copy
from .products import matmul
from .transposes import matrix_transpose, transpose

__all__ = ["Explanation", "ascontiguousarray", "backend", "copy", "current_backend", "explain", "explain_copy", "matmul",
           "matrix_transpose", "reset_stats", "stats", "transpose"]
