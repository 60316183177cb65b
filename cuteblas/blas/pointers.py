"""The routines on addresses, in BLAS terms: extents, leading dimensions, column-major matrices.

``sgemm(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)`` reads op(A) (m, k) and op(B)
(k, n) and updates C (m, n), as BLAS does; ``sgemm_strided_batched`` has a distance in elements
after each leading dimension and the number of products at the end, as cuBLAS has; ``gemm_ex`` and
``gemm_strided_batched_ex`` name the types. Addresses are integers or ctypes pointers: of the
current CUDA device, of device number ``device``, or of this process's memory with
``device="host"``.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from .._dtypes import dtype
from ..engines.dispatch import own_call
from ..engines.memory import Ints, Memory
from ..functions.signatures import Transposed
from .arguments import TRANSPOSITIONS, Arguments, Request, Transposition
from .calls import run
from .libraries import Place, view_of
from .signatures import Routine, published, rows, with_signature
from .types import PRODUCTS, Types, dtype_named, name_of

__all__ = ["bgemm", "bgemm_strided_batched", "cgemm", "cgemm_strided_batched", "dgemm",
           "dgemm_strided_batched", "gemm_ex", "gemm_strided_batched_ex", "hgemm",
           "hgemm_strided_batched", "igemm", "igemm_strided_batched", "sgemm",
           "sgemm_strided_batched", "zgemm", "zgemm_strided_batched"]

_MOST = 2**48


class _Numbered(Arguments):
    """The arguments of one call, by name and number, so that an error can give both."""

    def refusal(self, kind: type[Exception], name: str, needed: str) -> Exception:
        """An error like xerbla's: number, name and value of the argument, and what it must be."""
        value = self[name]
        shown = repr(value) if isinstance(value, (int, float, complex, str)) or value is None else f"a {type(value).__name__}"
        return kind(
            f"{self.function}: argument {[*self].index(name) + 1} ({name}) is {shown}, but {needed}"
        )

    def number(self, name: str, least: int | None = None, why: str = "") -> int:
        """An integer argument, not below ``least``."""
        try:
            value = self.integer(name)
        except TypeError:
            raise self.refusal(TypeError, name, "it has to be an integer") from None
        if least is not None and value < least:
            raise self.refusal(ValueError, name, f"it has to be at least {why or least}")
        if abs(value) >= _MOST:
            raise self.refusal(ValueError, name, f"its absolute value has to be less than {_MOST}")
        return value

    def transposition(self, name: str, accepted: str = TRANSPOSITIONS) -> Transposition:
        try:
            return super().transposition(name)
        except (TypeError, ValueError) as refusal:
            raise self.refusal(type(refusal), name, f"it has to be {accepted}") from None

    def scalar(self, name: str, types: Types, place: Place) -> Any:
        try:
            return super().scalar(name, types, place)
        except (TypeError, ValueError) as refusal:
            kind = type(refusal)
        needed = {"int32": "an integer of int32"}.get(types.compute,
                                                      "a number" if types.is_complex
                                                      else "a real number")
        raise self.refusal(
            kind,
            name,
            f"it has to be {needed}, or a 0-d array of that kind in the memory of the matrices"
        )

    def types(self, name: str) -> str:
        try:
            return name_of(self[name])
        except TypeError:
            raise self.refusal(TypeError, name,
                               "it has to be the name of an element type") from None

    def address(self, name: str, alignment: int, needed: bool) -> int:
        """An address of elements of a size; 0 only where nothing is read or written."""
        value = self[name]
        if isinstance(value, (ctypes._Pointer, ctypes.c_void_p, ctypes.c_char_p, ctypes.Array)):
            value = ctypes.cast(value, ctypes.c_void_p).value or 0
        try:
            address = operator.index(value)
        except TypeError:
            raise self.refusal(TypeError, name,
                               "it has to be an address: an integer or a ctypes pointer") from None
        if address < 0 or address >= 2**64 or (needed and not address):
            raise self.refusal(ValueError, name, "it has to be the address of a matrix")
        if needed and address % alignment:
            raise self.refusal(ValueError, name,
                               f"it has to be a multiple of {alignment}, the size of an element")
        return address


def _run(numbered: _Numbered, types: Types) -> None:
    if (own := own_call(numbered["alpha"], numbered["beta"])) is not None:
        own(numbered.update, ({name: numbered[name] for name in ("alpha", "beta")},), {})
    function, device = numbered.function, numbered["device"]
    trans = numbered.transposition("transa"), numbered.transposition("transb")
    m, n, k = (numbered.number(name, 0) for name in "mnk")
    count = numbered.number("batch_count", 0) if "batch_count" in numbered else None
    host = _is_host(function, device)
    extents = {"a": "km" if trans[0].swaps else "mk", "b": "nk" if trans[1].swaps else "kn",
               "c": "mn"}
    size, layouts = {"m": m, "n": n, "k": k}, {}
    for name, letters in extents.items():
        dtype = dtype_named(types.output if name == "c" else types.operands)
        shape: Ints = tuple(size[letter] for letter in letters)
        least = max(1, shape[0])
        leading = numbered.number(f"ld{name}", least, f"max(1, {letters[0]}) = {least}")
        strides: Ints = dtype.itemsize, leading * dtype.itemsize
        read = 0 not in (*shape, m, n, count)
        if count is not None:
            shape, strides = (count, *shape), (numbered.number(f"stride_{name}") * dtype.itemsize,
                                               *strides)
        layouts[name] = numbered.address(name, dtype.itemsize, read), dtype, shape, strides
    if 0 in (m, n, count):
        return
    a, b, c = (_array_on_host(*layout) if host else _array_on_device(*layout, device)
               for layout in layouts.values())
    place = view_of(function, "c", c)[1]
    alpha, beta = (numbered.scalar(name, types, place) for name in ("alpha", "beta"))
    run(function, types, Request(alpha, a, b, beta, c, trans[0].letter, trans[1].letter, 1,
                                 stream=numbered["stream"]))


def _is_host(function: str, device: Any) -> bool:
    if device is None or device == "host":
        return device is not None
    if isinstance(device, bool) or not isinstance(device, (int, np.integer)) or device < 0:
        raise ValueError(
            f"{function} takes 'host', the number of a CUDA device or None as device, got {device!r}"
        )
    return False


def _array_on_host(address: int, dtype: np.dtype, shape: Ints,
                   strides: Ints) -> np.ndarray:
    low, high = Memory(shape, strides, dtype).span
    buffer = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(shape, dtype, buffer, -low, strides)        # type: ignore[arg-type]


def _array_on_device(*layout: Any) -> Any:
    from ._cupy import at_address

    return at_address(*layout)


Device = int | Literal["host"] | None


class Pointers(Protocol):
    __name__: str

    def __call__(self, transa: Transposed, transb: Transposed, m: int, n: int, k: int, alpha: Any,
                 a: Any, lda: int, b: Any, ldb: int, beta: Any, c: Any, ldc: int, *,
                 stream: Any = None, device: Device = None) -> None: ...


class StridedPointers(Protocol):
    """A routine over addresses of equally spaced matrices."""

    __name__: str

    def __call__(self, transa: Transposed, transb: Transposed, m: int, n: int, k: int, alpha: Any,
                 a: Any, lda: int, stride_a: int, b: Any, ldb: int, stride_b: int, beta: Any,
                 c: Any, ldc: int, stride_c: int, batch_count: int, *, stream: Any = None,
                 device: Device = None) -> None: ...


_DOCUMENTATION = """``C = alpha op(A) op(B) + beta C`` of {operands} matrices at addresses{into}, column-major as in BLAS.

    Parameters
    ----------
    transa, transb : {{0, 1, 2, "N", "T", "C", "R"}}
        How A and B are read, as in :func:`cuteblas.blas.sgemm`.
    m, n, k : int
        Extents of op(A) (m, k), op(B) (k, n) and C (m, n).
    alpha, beta : number or 0-d array
        The factors, in {compute}.
    a, b, c : int or ctypes pointer
        Addresses of the first elements.
    lda, ldb, ldc : int
        Elements from one column to the next, at least the number of rows.{strided}
    stream : CUDA stream or handle, optional
        The stream for the kernels; CuPy's current stream by default.
    device : {{None, int, "host"}}
        The owner of the memory: the current CUDA device, a CUDA device by its number, or this process.

    Returns
    -------
    None
        C is updated.

    Raises
    ------
    TypeError, ValueError
        For a wrong argument; the message has its number, its name and its value.
    """

_STRIDED_ARGUMENTS = """
    stride_a, stride_b, stride_c : int
        Elements from one matrix to the next; 0 uses one matrix for all products, which C does not allow.
    batch_count : int
        Number of products."""


_EXAMPLE = """
    Examples
    --------{load}
    >>> A, C = np.full((2, 2), 2, "{operands}"), np.zeros((2, 2), "{output}")
    >>> {name}("N", "T", 2, 2, 2, 1, A.ctypes.data, 2, A.ctypes.data, 2, 0, C.ctypes.data, 2, device="host")
    >>> bool((C == 8).all())
    True
    """

_STRIDED_EXAMPLE = """
    Examples
    --------{load}
    >>> A, C = np.full((3, 2, 2), 2, "{operands}"), np.zeros((3, 2, 2), "{output}")
    >>> {name}("N", "T", 2, 2, 2, 1, A.ctypes.data, 2, 4, A.ctypes.data, 2, 4, 0, C.ctypes.data, 2, 4, 3, device="host")
    >>> bool((C == 8).all())
    True
    """


def _published(protocol: type, row: Routine, strided: str, example: str) -> Any:
    types, package = row.types, dtype(row.types.operands).package
    routine = with_signature(protocol, lambda values: _run(_Numbered(row.name, values), types))
    return published(routine, row, _DOCUMENTATION + example, compute=types.compute,
                     strided=strided, into="" if types.output == types.operands
                     else f" into {types.output}",
                     load="" if package == "numpy" else f"\n    >>> import {package}")


def _pointers(row: Routine) -> Pointers:
    return _published(Pointers, row, "", _EXAMPLE)


def _strided_pointers(row: Routine) -> StridedPointers:
    return _published(StridedPointers, row._replace(name=f"{row.name}_strided_batched"),
                      _STRIDED_ARGUMENTS, _STRIDED_EXAMPLE)


sgemm, dgemm, cgemm, zgemm, hgemm, bgemm, igemm = map(_pointers, rows("gemm"))
(
    sgemm_strided_batched, dgemm_strided_batched, cgemm_strided_batched, zgemm_strided_batched,
    hgemm_strided_batched, bgemm_strided_batched, igemm_strided_batched
) = map(_strided_pointers, rows("gemm"))


def gemm_ex(transa: Transposed, transb: Transposed, m: int, n: int, k: int, alpha: Any, a: Any,
            a_type: Any, lda: int, b: Any, b_type: Any, ldb: int, beta: Any, c: Any, c_type: Any,
            ldc: int, compute_type: Any = None, *, stream: Any = None,
            device: Device = None) -> None:
    """As :func:`sgemm`, for any types in the table of :mod:`cuteblas.blas.types`; each type follows
    its address.

    Parameters
    ----------
    transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
        As in :func:`sgemm`.
    a_type, b_type, c_type : dtype or str
        Types of the elements.
    compute_type : dtype or str, optional
        Type in which products are summed.
    stream, device
        As in :func:`sgemm`.

    Returns
    -------
    None
        C is updated.

    Raises
    ------
    TypeError, ValueError
        As in :func:`sgemm`, and for types that are not in the table.

    Examples
    --------
    >>> A, C = np.full((2, 2), 300, np.float16), np.zeros((2, 2), np.float32)
    >>> a, c = A.ctypes.data, C.ctypes.data
    >>> gemm_ex("N", "N", 2, 2, 2, 1.0, a, "float16", 2, a, "float16", 2, 0.0, c, "float32", 2, device="host")
    >>> C.tolist()
    [[180000.0, 180000.0], [180000.0, 180000.0]]
    """
    numbered = _Numbered("gemm_ex", locals())
    _run(numbered, _types_of(numbered))


def gemm_strided_batched_ex(transa: Transposed, transb: Transposed, m: int, n: int, k: int,
                            alpha: Any, a: Any, a_type: Any, lda: int, stride_a: int, b: Any,
                            b_type: Any, ldb: int, stride_b: int, beta: Any, c: Any, c_type: Any,
                            ldc: int, stride_c: int, batch_count: int, compute_type: Any = None, *,
                            stream: Any = None, device: Device = None) -> None:
    """As :func:`sgemm_strided_batched`, for any types in the table of :mod:`cuteblas.blas.types`;
    each type follows its address.

    Parameters
    ----------
    transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batch_count
        As in :func:`sgemm_strided_batched`.
    a_type, b_type, c_type : dtype or str
        Types of the elements.
    compute_type : dtype or str, optional
        Type in which products are summed.
    stream, device
        As in :func:`sgemm`.

    Returns
    -------
    None
        C is updated.

    Raises
    ------
    TypeError, ValueError
        As in :func:`sgemm_strided_batched`, and for types that are not in the table.

    Examples
    --------
    >>> A, C = np.full((3, 2, 2), 300, np.float16), np.zeros((3, 2, 2), np.float32)
    >>> a, c = A.ctypes.data, C.ctypes.data
    >>> gemm_strided_batched_ex("N", "N", 2, 2, 2, 1.0, a, "float16", 2, 4, a, "float16", 2, 4, 0.0, c, "float32", 2, 4, 3,
    ...                         device="host")
    >>> C[2].tolist()
    [[180000.0, 180000.0], [180000.0, 180000.0]]
    """
    numbered = _Numbered("gemm_strided_batched_ex", locals())
    _run(numbered, _types_of(numbered))


def _types_of(numbered: _Numbered) -> Types:
    """The entry of the table with these three or four types."""
    operands, second, output = (numbered.types(name) for name in ("a_type", "b_type", "c_type"))
    if second != operands:
        raise numbered.refusal(TypeError, "b_type", f"it has to be {operands}, as a_type is")

    def among(known: Sequence[Types], name: str, of: str, wanted: str, needed: str,
              separator: str = " or ") -> list[Types]:
        """Those with a type that is wanted."""
        if not (found := [types for types in known if getattr(types, of) == wanted]):
            choices = separator.join(dict.fromkeys(getattr(types, of) for types in known))
            raise numbered.refusal(TypeError, name, f"{needed} {choices}")
        return found

    known = among(PRODUCTS, "a_type", "operands", operands, "it has to be one of", ", ")
    known = among(known, "c_type", "output", output, f"products of {operands} have type")
    if numbered["compute_type"] is None:
        return known[0]
    compute = numbered.types("compute_type")
    return among(known, "compute_type", "compute", compute,
                 f"products of {operands} into {output} are summed in")[0]
