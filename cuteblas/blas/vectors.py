"""Routines on matrices and vectors, ``sgemv``, ``sger`` and their kin: products in which one matrix has a single column or row."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Protocol

from ..engines.dispatch import own_call
from ..engines.engine import engine_of
from ..engines.memory import Memory, overlap
from ..functions.gemm import refuse_self_overlap
from ..functions.signatures import Array, Flag, Promoted, Transposed
from .arguments import as_transposition, checked_flag, from_list
from .calls import Request, run
from .libraries import Gathered, gather, is_list
from .types import ROUTINES, dtype_named, type_name

__all__ = ["GEMV", "GER", "cgemv", "cgerc", "cgeru", "dgemv", "dger", "sgemv", "sger", "zgemv", "zgerc", "zgeru"]

_GEMV = """``alpha op(A) x + beta y`` of {operands} arrays.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product; 0 does not read ``a`` or ``x``.
    a : array_like
        {operands} matrix (m, n). Any strides; never copied.
    x : array_like
        {operands} vector: its elements ``offx``, ``offx + |incx|`` ... are used, backwards if ``incx`` is negative.
    beta : number or 0-d array
        Factor of ``y``; 0 does not read it.
    y : array_like, optional
        {operands} vector, zeros by default, of which ``offy`` and ``incy`` choose elements in the same way; all others remain. It
        is only read, unless ``overwrite_y``.
    offx, incx, offy, incy : int
        First elements, and steps.
    trans : {{0, 1, 2, "N", "T", "C", "R"}}
        What is done to ``a`` as it is read, as of :func:`sgemm`.
    overwrite_y : {{0, 1}}
        Whether ``y`` itself is updated in place, whatever its strides, and returned.

    Returns
    -------
    array
        All of ``y``, in the library of the operands.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes, offsets and steps that do not fit, and a ``y`` that is overwritten and shares memory with ``a`` or ``x``.

    Examples
    --------
    >>> from cuteblas import blas
    >>> a, x = np.array([[1, 2], [3, 4]], {operands!r}), np.array([1, 0, 1], {operands!r})
    >>> blas.{name}(2, a, x, incx=2){answer}
    """

_GER = """``alpha x y^{power} + A`` of {operands} arrays.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product; 0 does not read ``x`` or ``y``.
    x, y : array_like
        {operands} vectors of m and n elements{conjugated}. Any strides; never copied.
    incx, incy : {{1, -1}}
        Whether a vector is read backwards.
    a : array_like, optional
        {operands} matrix (m, n), zeros by default. It is only read, unless ``overwrite_a``.
    overwrite_x, overwrite_y : {{0, 1}}
        Without effect, as nothing is copied.
    overwrite_a : {{0, 1}}
        Whether ``a`` itself is updated in place, whatever its strides, and returned.

    Returns
    -------
    array
        The matrix (m, n) in the library of the operands: ``a``, or a new one in Fortran order.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes and steps that do not fit, and an ``a`` that is overwritten and shares memory with ``x`` or ``y``.

    Examples
    --------
    >>> from cuteblas import blas
    >>> x = np.array([1, 2], {operands!r})
    >>> blas.{name}(2, x, x, incy=-1){answer}
    """


class MatrixVector(Protocol):
    """A routine that multiplies a matrix by a vector."""

    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], x: Promoted[Array], beta: Any = 0, y: Any = None, offx: int = 0,
                 incx: int = 1, offy: int = 0, incy: int = 1, trans: Transposed = 0, overwrite_y: Flag = 0) -> Array: ...


class RankOne(Protocol):
    """A routine that adds a product of two vectors to a matrix."""

    __name__: str

    def __call__(self, alpha: Any, x: Promoted[Array], y: Promoted[Array], incx: int = 1, incy: int = 1, a: Any = None,
                 overwrite_x: Flag = 1, overwrite_y: Flag = 1, overwrite_a: Flag = 0) -> Array: ...


def _gathered(function: str, types: str, operands: Mapping[str, Any], ranks: Mapping[str, int]) -> Gathered:
    """The operands as arrays of one library and of the routine's type and ranks."""
    gathered = gather(function, operands)
    for name, x in gathered.arrays.items():
        if is_list(x):
            array = from_list(function, name, x, dtype_named(types))
            if gathered.place.device is not None:
                from ._cupy import from_host

                array = from_host(array, gathered.place.device)
            gathered.arrays[name] = array
        elif (found := type_name(x)) != types:
            raise TypeError(f"{function} takes {name} in {types}, but it is {found}: convert it by {name}.astype({types!r})")
        array = gathered.arrays[name]
        if array.ndim != ranks[name]:
            kind = ("a vector", "a matrix")[ranks[name] - 1]
            raise ValueError(f"{function} takes {kind} as {name}, but it has shape {array.shape}")
    return gathered


def _number(function: str, name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function} takes an integer as {name}, got {type(value).__name__}") from None


def _chosen(function: str, name: str, x: Any, count: int, offset: Any, step: Any) -> Any:
    """The elements of a vector that a routine uses, a view."""
    first, inc = _number(function, f"off{name}", offset), _number(function, f"inc{name}", step)
    if first < 0 or inc == 0:
        raise ValueError(f"{function} takes off{name} of at least 0 and inc{name} other than 0, got {first} and {inc}")
    end = first + (count - 1) * abs(inc) + 1 if count else first
    if end > len(x):
        raise ValueError(f"{function} uses {count} elements of {name} with off{name}={first} and inc{name}={inc}, but its length "
                         f"is {len(x)}")
    chosen = x[first:end:abs(inc)]
    return chosen[::-1] if inc < 0 else chosen


def _copied(beside: Any, vector: Any, types: str, count: int) -> Any:
    """A copy of a vector; without one, so many zeros beside another array."""
    engine, dtype = engine_of(beside), dtype_named(types)
    with engine.on_device_of(beside):
        if vector is not None:
            return vector.copy()
        zeros = engine.empty(Memory((max(0, count),), (dtype.itemsize,), dtype))
        zeros[...] = 0
        return zeros


def _check_overlap(function: str, target: str, arrays: Mapping[str, Any]) -> None:
    """Refuse to overwrite what is read."""
    memory = engine_of(arrays[target]).memory
    for name, x in arrays.items():
        if name != target and overlap(memory(x), memory(arrays[target])):
            raise ValueError(f"{function} writes {target} while it uses {name}, but they share memory: pass another {target}, or a "
                             f"copy of {name}")


def _gemv(function: str, types: str, alpha: Any, a: Any, x: Any, beta: Any, y: Any, offx: Any, incx: Any, offy: Any, incy: Any,
          trans: Any, overwrite_y: Any) -> Any:
    if is_list(y) and checked_flag(function, "overwrite_y", overwrite_y):
        raise TypeError(f"{function} updates an array in place with overwrite_y=1, but y is a list")
    overwrites, asked = checked_flag(function, "overwrite_y", overwrite_y), as_transposition(function, "trans", trans)
    gathered = _gathered(function, types, {"a": a, "x": x, "y": y}, {"a": 2, "x": 1, "y": 1})
    arrays = gathered.arrays
    for name in "ax":
        if name not in arrays:
            raise TypeError(f"{function} takes arrays and lists of numbers, but {name} is None")
    matrix, whole = arrays["a"], arrays.get("y")
    rows, columns = asked.view(matrix).shape
    vector = _chosen(function, "x", arrays["x"], columns, offx, incx)[:, None]
    product = ROUTINES[_PRODUCTS[types]]
    if whole is None and offy == 0 and incy == 1:
        return gathered.back(run(function, product, Request(alpha, matrix, vector, trans_a=asked.letter))[:, 0])
    if whole is not None and overwrites:
        _check_overlap(function, "y", arrays)
    else:
        first, step = _number(function, "offy", offy), abs(_number(function, "incy", incy))
        whole = _copied(matrix, whole, types, first + (rows - 1) * step + 1)
    part = _chosen(function, "y", whole, rows, offy, incy)[:, None]
    refuse_self_overlap(function, "y", engine_of(part).memory(part))
    run(function, product, Request(alpha, matrix, vector, beta, part, asked.letter, overwrite_c=1))
    return y if overwrites and y is not None else gathered.back(whole)


def _ger(function: str, types: str, conjugates: bool, alpha: Any, x: Any, y: Any, incx: Any, incy: Any, a: Any,
         overwrite_a: Any) -> Any:
    overwrites = checked_flag(function, "overwrite_a", overwrite_a)
    if is_list(a) and overwrites:
        raise TypeError(f"{function} updates an array in place with overwrite_a=1, but a is a list")
    gathered = _gathered(function, types, {"x": x, "y": y, "a": a}, {"x": 1, "y": 1, "a": 2})
    arrays = gathered.arrays
    vectors = []
    for name, step in (("x", incx), ("y", incy)):
        if name not in arrays:
            raise TypeError(f"{function} takes arrays and lists of numbers, but {name} is None")
        if _number(function, f"inc{name}", step) not in (1, -1):
            raise ValueError(f"{function} takes 1 or -1 as inc{name}, got {step}")
        vectors.append(arrays[name][::step])
    target = arrays.get("a")
    if target is not None and target.shape != (len(vectors[0]), len(vectors[1])):
        raise ValueError(f"{function} takes a of shape ({len(vectors[0])}, {len(vectors[1])}), by the lengths of x and y, but it "
                         f"has shape {target.shape}")
    if target is not None and overwrites:
        _check_overlap(function, "a", arrays)
        refuse_self_overlap(function, "a", engine_of(target).memory(target))
    result = run(function, ROUTINES[_PRODUCTS[types]],
                 Request(alpha, vectors[0][:, None], vectors[1][None, :], 0 if target is None else 1, target, 0,
                         "R" if conjugates else "N", overwrites and target is not None))
    return a if overwrites and target is not None else gathered.back(result)


_PRODUCTS = {types.operands: name for name, types in ROUTINES.items() if name[0] in "sdcz"}
"""The routine that multiplies matrices of a type."""


def _matrix_vector(name: str, types: str, answer: str) -> MatrixVector:
    def routine(alpha: Any, a: Any, x: Any, beta: Any = 0, y: Any = None, offx: int = 0, incx: int = 1, offy: int = 0,
                incy: int = 1, trans: Any = 0, overwrite_y: Any = 0) -> Any:
        given = name, types, alpha, a, x, beta, y, offx, incx, offy, incy, trans, overwrite_y
        own = own_call(alpha, a, x, beta, y)
        return _gemv(*given) if own is None else own(_gemv, given, {})

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _GEMV.format(operands=types, name=name, answer=f"\n    {answer}")
    return routine


def _rank_one(name: str, types: str, answer: str) -> RankOne:
    conjugates = name.endswith("c")

    def routine(alpha: Any, x: Any, y: Any, incx: int = 1, incy: int = 1, a: Any = None, overwrite_x: Any = 1, overwrite_y: Any = 1,
                overwrite_a: Any = 0) -> Any:
        checked_flag(name, "overwrite_x", overwrite_x)
        checked_flag(name, "overwrite_y", overwrite_y)
        given = name, types, conjugates, alpha, x, y, incx, incy, a, overwrite_a
        own = own_call(alpha, x, y, a)
        return _ger(*given) if own is None else own(_ger, given, {})

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _GER.format(operands=types, name=name, answer=f"\n    {answer}", power="H" if conjugates else "T",
                                  conjugated=", of which that of ``y`` are conjugated" if conjugates else "")
    return routine


_FLOAT32, _COMPLEX64 = ", dtype=float32)", ", dtype=complex64)"
_SUMS = {"s": "array([ 6., 14.]" + _FLOAT32, "d": "array([ 6., 14.])", "c": "array([ 6.+0.j, 14.+0.j]" + _COMPLEX64,
         "z": "array([ 6.+0.j, 14.+0.j])"}
_REAL = "array([[4., 2.],\n           [8., 4.]]"
_COMPLEX = "array([[4.+0.j, 2.+0.j],\n           [8.+0.j, 4.+0.j]]"

sgemv = _matrix_vector("sgemv", "float32", _SUMS["s"])
dgemv = _matrix_vector("dgemv", "float64", _SUMS["d"])
cgemv = _matrix_vector("cgemv", "complex64", _SUMS["c"])
zgemv = _matrix_vector("zgemv", "complex128", _SUMS["z"])
sger = _rank_one("sger", "float32", _REAL + _FLOAT32)
dger = _rank_one("dger", "float64", _REAL + ")")
cgeru = _rank_one("cgeru", "complex64", _COMPLEX + _COMPLEX64)
cgerc = _rank_one("cgerc", "complex64", _COMPLEX + _COMPLEX64)
zgeru = _rank_one("zgeru", "complex128", _COMPLEX + ")")
zgerc = _rank_one("zgerc", "complex128", _COMPLEX + ")")

GEMV = (sgemv, dgemv, cgemv, zgemv)
GER = (sger, dger, cgeru, cgerc, zgeru, zgerc)
