"""The routines on arrays: one function for each letter, and ``gemm`` for all types."""

from __future__ import annotations

from typing import Any, Protocol

from .._dtypes import dtype as element
from ..functions.signatures import (
    Array,
    Devices,
    EpilogueLike,
    Flag,
    Precision,
    Promoted,
    Transposed,
)
from .arguments import Request
from .calls import run
from .signatures import Routine, published, rows

_DOCUMENTATION = """``alpha op(A) op(B) + beta C`` of {operands} arrays{sums}.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product; 0 does not read ``a`` or ``b``. The kernel itself reads a 0-d array on the device of the operands, so
        the host does not wait for it.
    a, b : array_like
        {operands} arrays whose transposed views have shapes (..., m, k) and (..., k, n). Any strides; never copied. Lists of
        numbers are converted. Arrays of NumPy, of CuPy, or of any library with DLPack, all of one library and on one device.
    beta : number or 0-d array
        Factor of ``c``; 0 does not read it.
    c : array_like, optional
        {output} array of shape (..., m, n), zeros by default. It is only read, unless ``overwrite_c``.
    trans_a, trans_b : {{0, 1, 2, "N", "T", "C", "R"}}
        How an operand is read: as it is (0, N), transposed (1, T), conjugated and transposed (2, C), or conjugated (R). Letters may
        be small or capital. Real matrices are not changed by conjugation.
    overwrite_c : {{0, 1}}
        Whether to update ``c`` itself in place, whatever its strides, and return it.
    epilogue : epilogue, optional
        The function to compute of each element before it is written; see :mod:`cuteblas.epilogues`.
    precision : {{"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}}, optional
        The algorithm, as in :func:`cuteblas.matmul`.
    out : array, optional
        The array that receives the result, whatever its strides, and is returned. It may be ``c``.
    stream : CUDA stream or handle, optional
        The stream for the kernels; CuPy's current stream by default.
    variant : str, optional
        A named kernel; ``python -m cuteblas kernels`` lists them.
    devices : "all" or sequence of int, optional
        The GPUs of this host that may compute, as in :func:`cuteblas.matmul`. Operands, ``c`` and ``out`` may be on any of them, or
        be :class:`cuteblas.ShardedArray`; ``alpha`` and ``beta`` have to be numbers.

    Returns
    -------
    array or (array, dict)
        The result (..., m, n) in the library of the operands: ``out``, ``c``, or a new array whose matrices are
        Fortran-contiguous. If the epilogue has further results, they follow in a dict by name.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes that do not fit, arrays on different devices, a result that shares memory with ``a`` or ``b``, and unknown
        options.
    """

_EXAMPLES = {"sgemm": """
    Examples
    --------
    >>> from cuteblas.blas import sgemm
    >>> sgemm(2, [[1, 2], [3, 4]], [[1, 0], [0, 1]], trans_a='T')
    array([[2., 6.],
           [4., 8.]], dtype=float32)
    """, "dgemm": """
    Examples
    --------
    >>> from cuteblas.blas import dgemm
    >>> dgemm(2.0, np.eye(2), np.ones((2, 3)))
    array([[2., 2., 2.],
           [2., 2., 2.]])
    """, "cgemm": """
    Examples
    --------
    >>> from cuteblas.blas import cgemm
    >>> a = np.array([[1 + 1j]], np.complex64)
    >>> cgemm(1.0, a, a, trans_a="C")
    array([[2.+0.j]], dtype=complex64)
    """, "zgemm": """
    Examples
    --------
    >>> from cuteblas.blas import zgemm
    >>> a = np.array([[1 + 1j]])
    >>> zgemm(1j, a, a, trans_b="R")
    array([[0.+2.j]])
    """, "hgemm": """
    Examples
    --------
    >>> from cuteblas.blas import hgemm
    >>> a = np.full((1, 4), 2, np.float16)
    >>> hgemm(0.5, a, a, trans_b="T")
    array([[8.]], dtype=float16)
    """, "bgemm": """
    Examples
    --------
    >>> from cuteblas.blas import bgemm
    >>> import ml_dtypes
    >>> a = np.full((1, 4), 2, ml_dtypes.bfloat16)
    >>> bgemm(1.0, a, a, trans_b="T")
    array([[16]], dtype=bfloat16)
    """, "igemm": """
    Examples
    --------
    >>> from cuteblas.blas import igemm
    >>> a = np.full((1, 4), 100, np.int8)
    >>> igemm(1, a, a, trans_b="T")
    array([[40000]], dtype=int32)
    """}


class Product(Protocol):
    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], b: Promoted[Array], beta: Any = 0,
                 c: Any = None, trans_a: Transposed = 0, trans_b: Transposed = 0,
                 overwrite_c: Flag = 0, *, epilogue: EpilogueLike = None,
                 precision: Precision | None = None, out: Any = None, stream: Any = None,
                 variant: str | None = None, devices: Devices | None = None) -> Array: ...


def _routine(row: Routine) -> Product:
    name, types = row.name, row.types

    def routine(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans_a: Any = 0,
                trans_b: Any = 0, overwrite_c: Any = 0, *, epilogue: Any = None,
                precision: str | None = None, out: Any = None, stream: Any = None,
                variant: str | None = None, devices: Any = None) -> Any:
        request = Request(alpha, a, b, beta, c, trans_a, trans_b, overwrite_c, epilogue, precision,
                          out, stream, variant)
        return run(name, types, request) if devices is None else _run_over(name, types, request, devices)

    sums = "" if types.compute == types.output else f", summed in {types.compute}" \
        + ("" if types.output == types.operands else f" into {types.output}")
    sums += " and rounded once" if element(types.output).is_stored else ""
    return published(routine, row, _DOCUMENTATION + _EXAMPLES[name], sums=sums)


sgemm, dgemm, cgemm, zgemm, hgemm, bgemm, igemm = map(_routine, rows("gemm"))


def gemm(alpha: Any, a: Promoted[Array], b: Promoted[Array], beta: Any = 0, c: Any = None,
         trans_a: Transposed = 0, trans_b: Transposed = 0, overwrite_c: Flag = 0, *,
         dtype: Any = None, compute_dtype: Any = None, epilogue: EpilogueLike = None,
         precision: Precision | None = None, out: Any = None, stream: Any = None,
         variant: str | None = None, devices: Devices | None = None) -> Array:
    """``alpha op(A) op(B) + beta C`` of arrays of any type in the table of
    :mod:`cuteblas.blas.types`.

    The types of the operands choose the routine. If both are lists, they become float64, or
    complex128 if they have complex elements. All other arguments are those of :func:`sgemm`.

    Parameters
    ----------
    dtype : dtype, optional
        Type of the result; by default that of ``out`` or ``c``, else that of the operands (int32
        for int8).
    compute_dtype : dtype, optional
        Type in which products are summed.
    alpha, a, b, beta, c, trans_a, trans_b, overwrite_c, epilogue, precision, out, stream, variant, devices
        As in :func:`sgemm`.

    Returns
    -------
    array
        As in :func:`sgemm`.

    Raises
    ------
    TypeError
        As in :func:`sgemm`, and for types that are not in the table.

    Examples
    --------
    >>> import numpy as np
    >>> from cuteblas.blas import gemm
    >>> a = np.full((2, 3), 200, np.float16)
    >>> gemm(1, a, a, trans_b='T', dtype=np.float32)
    array([[120000., 120000.],
           [120000., 120000.]], dtype=float32)
    """
    request = Request(alpha, a, b, beta, c, trans_a, trans_b, overwrite_c, epilogue, precision, out,
                      stream, variant, dtype, compute_dtype)
    return run("gemm", None, request) if devices is None else _run_over("gemm", None, request, devices)


def _run_over(*call: Any) -> Any:
    from .devices import run_over

    return run_over(*call)
