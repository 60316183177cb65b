"""BLAS routines with the signatures of ``scipy.linalg.blas`` on NumPy arrays, CuPy arrays and
everything with DLPack.

>>> import numpy as np
>>> from cuteblas import blas
>>> blas.dgemm(1, np.eye(2), [[1, 2], [3, 4]], trans_b='T')
array([[1., 3.],
       [2., 4.]])

``sgemm dgemm cgemm zgemm``, ``hgemm`` (float16), ``bgemm`` (bfloat16) and ``igemm`` (int8 into
int32) fix their types; ``gemm`` takes them from the operands. ``sgemv``, ``sger`` and their kin
work on a matrix and vectors, ``ssyrk``, ``cherk``, ``ssyr2k``, ``cher2k`` and theirs on one
triangle of a symmetric or Hermitian matrix. ``gemm_batched`` and ``gemm_grouped`` multiply lists of
problems; ``cuteblas.blas.pointers`` has the same routines over addresses and leading dimensions;
``plan`` keeps what a product needs for later calls.
"""

from . import pointers
from .groups import gemm_batched, gemm_grouped
from .plans import GemmPlan, plan
from .rank_k import (
    cher2k,
    cherk,
    csyr2k,
    csyrk,
    dsyr2k,
    dsyrk,
    ssyr2k,
    ssyrk,
    zher2k,
    zherk,
    zsyr2k,
    zsyrk,
)
from .routines import bgemm, cgemm, dgemm, gemm, hgemm, igemm, sgemm, zgemm
from .vectors import cgemv, cgerc, cgeru, dgemv, dger, sgemv, sger, zgemv, zgerc, zgeru

__all__ = ["GemmPlan", "bgemm", "cgemm", "cgemv", "cgerc", "cgeru", "cher2k", "cherk", "csyr2k",
           "csyrk", "dgemm", "dgemv", "dger", "dsyr2k", "dsyrk", "gemm", "gemm_batched",
           "gemm_grouped", "hgemm", "igemm", "plan", "pointers", "sgemm", "sgemv", "sger", "ssyr2k",
           "ssyrk", "zgemm", "zgemv", "zgerc", "zgeru", "zher2k", "zherk", "zsyr2k", "zsyrk"]
__dir__ = __all__.copy
