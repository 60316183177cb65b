"""The products of ``numpy.linalg``, with NumPy's signatures, on NumPy and CuPy arrays."""

from .functions.linalg import (
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    vecdot,
)

__all__ = ["matmul", "matrix_power", "matrix_transpose", "multi_dot", "outer", "tensordot",
           "vecdot"]
