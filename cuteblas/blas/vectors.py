"""Routines on matrices and vectors, ``sgemv``, ``sger`` and their kin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..engines.dispatch import engine_of
from ..engines.memory import Memory, overlap
from ..functions.gemm import refuse_self_overlap
from ..functions.signatures import Array, Flag, Promoted, Transposed
from .arguments import Arguments, Request, gathered_operands
from .calls import perform, run
from .signatures import Routine, published, rows, with_signature
from .types import dtype_named

_GEMV = """``alpha op(A) x + beta y`` of {operands} arrays.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product; 0 does not read ``a`` or ``x``.
    a : array_like
        {operands} matrix (m, n). Any strides; never copied.
    x : array_like
        {operands} vector. Its elements ``offx``, ``offx + |incx|`` ... are multiplied, backwards if ``incx`` is negative.
    beta : number or 0-d array
        Factor of ``y``; 0 does not read it.
    y : array_like, optional
        {operands} vector, zeros by default. ``offy`` and ``incy`` choose the elements to update; all others keep their values. It
        is only read, unless ``overwrite_y``.
    offx, incx, offy, incy : int
        The first elements, and the steps.
    trans : {{0, 1, 2, "N", "T", "C", "R"}}
        How ``a`` is read, as in :func:`sgemm`.
    overwrite_y : {{0, 1}}
        Whether to update ``y`` itself in place, whatever its strides, and return it.

    Returns
    -------
    array
        The whole of ``y``, in the library of the operands.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes, offsets and steps that do not fit, and if an overwritten ``y`` shares memory with ``a`` or ``x``.

    Examples
    --------
    >>> from cuteblas import blas
    >>> a, x = np.array([[1, 2], [3, 4]], {operands!r}), np.array([1, 0, 1], {operands!r})
    >>> blas.{name}(2, a, x, incx=2){answer}
    """

_GER = """``alpha x y^{transpose} + A`` of {operands} arrays.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product; 0 does not read ``x`` or ``y``.
    x, y : array_like
        {operands} vectors of m and n elements{conjugated}. Any strides; never copied.
    incx, incy : {{1, -1}}
        -1 reads a vector backwards.
    a : array_like, optional
        {operands} matrix (m, n), zeros by default. It is only read, unless ``overwrite_a``.
    overwrite_x, overwrite_y : {{0, 1}}
        Without effect, because nothing is copied.
    overwrite_a : {{0, 1}}
        Whether to update ``a`` itself in place, whatever its strides, and return it.

    Returns
    -------
    array
        The matrix (m, n) in the library of the operands: ``a``, or a new one in Fortran order.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes and steps that do not fit, and if an overwritten ``a`` shares memory with ``x`` or ``y``.

    Examples
    --------
    >>> from cuteblas import blas
    >>> x = np.array([1, 2], {operands!r})
    >>> blas.{name}(2, x, x, incy=-1){answer}
    """


class MatrixVector(Protocol):
    """A routine that multiplies a matrix by a vector."""

    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], x: Promoted[Array], beta: Any = 0,
                 y: Any = None, offx: int = 0, incx: int = 1, offy: int = 0, incy: int = 1,
                 trans: Transposed = 0, overwrite_y: Flag = 0) -> Array: ...


class RankOne(Protocol):
    """A routine that adds a product of two vectors to a matrix."""

    __name__: str

    def __call__(self, alpha: Any, x: Promoted[Array], y: Promoted[Array], incx: int = 1,
                 incy: int = 1, a: Any = None, overwrite_x: Flag = 1, overwrite_y: Flag = 1,
                 overwrite_a: Flag = 0) -> Array: ...


def _multiplied(row: Routine, given: Arguments) -> Any:
    """``alpha op(A) x + beta y``: a product in which the second matrix has one column."""
    overwrites, asked = given.overwrites("y"), given.transposition("trans")
    gathered = gathered_operands(row, given)
    arrays = gathered.arrays
    matrix, whole = arrays["a"], arrays.get("y")
    rows, columns = asked.view(matrix).shape
    vector = _chosen(given, "x", arrays["x"], columns)
    if whole is None and given["offy"] == 0 and given["incy"] == 1:
        return gathered.returned(run(row.name, row.types,
                                 Request(given["alpha"], matrix, vector,
                                         trans_a=asked.letter))[:, 0])
    if whole is not None and overwrites:
        _check_overlap(given, "y", arrays)
    else:
        first, step = given.integer("offy"), abs(given.integer("incy"))
        whole = _copied(matrix, whole, first + (rows - 1) * step + 1, dtype_named(row.types.output))
    part = _chosen(given, "y", whole, rows)
    refuse_self_overlap(row.name, "y", engine_of(part).memory(part))
    run(row.name, row.types, Request(given["alpha"], matrix, vector, given["beta"], part,
                                     asked.letter, overwrite_c=1))
    return given["y"] if overwrites and given["y"] is not None else gathered.returned(whole)


def _chosen(given: Arguments, name: str, x: Any, count: int) -> Any:
    """The elements of a vector that a routine uses, a view of one column."""
    function, first, inc = given.function, given.integer(f"off{name}"), given.integer(f"inc{name}")
    if first < 0 or inc == 0:
        raise ValueError(
            f"{function} takes an off{name} of at least 0 and an inc{name} other than 0, got {first} and {inc}"
        )
    end = first + (count - 1) * abs(inc) + 1 if count else first
    if end > len(x):
        raise ValueError(
            f"{function} uses {count} elements of {name} with off{name}={first} and inc{name}={inc}, but {name} has "
            f"length {len(x)}"
        )
    chosen = x[first:end:abs(inc), None]
    return chosen[::-1] if inc < 0 else chosen


def _copied(beside: Any, vector: Any, count: int, dtype: np.dtype) -> Any:
    """A copy of a vector; without one, so many zeros on the device of ``beside``."""
    engine = engine_of(beside)
    with engine.on_device_of(beside):
        if vector is not None:
            return vector.copy()
        zeros = engine.empty(Memory((max(0, count),), (dtype.itemsize,), dtype))
        zeros[...] = 0
        return zeros


def _check_overlap(given: Arguments, target: str, arrays: Mapping[str, Any]) -> None:
    memory = engine_of(arrays[target]).memory
    for name, x in arrays.items():
        if name != target and overlap(memory(x), memory(arrays[target])):
            raise ValueError(
                f"{given.function} writes {target} while it uses {name}, but they share memory: pass another "
                f"{target}, or a copy of {name}"
            )


def _added(row: Routine, given: Arguments) -> Any:
    """``alpha x y^T + A``: a product of a column and a row."""
    given.flag("overwrite_x")
    given.flag("overwrite_y")
    function, overwrites = row.name, given.overwrites("a")
    gathered = gathered_operands(row, given)
    arrays = gathered.arrays
    vectors = []
    for name in "xy":
        if (step := given.integer(f"inc{name}")) not in (1, -1):
            raise ValueError(f"{function} takes 1 or -1 as inc{name}, got {given[f'inc{name}']}")
        vectors.append(arrays[name][::step])
    x, y, target = *vectors, arrays.get("a")
    overwrites = overwrites and target is not None
    if target is not None and target.shape != (len(x), len(y)):
        raise ValueError(
            f"{function} takes a of shape ({len(x)}, {len(y)}) = (len(x), len(y)), but it has shape {target.shape}"
        )
    if overwrites:
        _check_overlap(given, "a", arrays)
        refuse_self_overlap(function, "a", engine_of(target).memory(target))
    result = run(function, row.types, Request(given["alpha"], x[:, None], y[None, :],
                                              0 if target is None else 1, target, 0,
                                              "R" if row.transpose == "H" else "N", overwrites))
    return given["a"] if overwrites else gathered.returned(result)


def _matrix_vector(row: Routine) -> MatrixVector:
    return published(with_signature(MatrixVector, partial(perform, _multiplied, row)), row, _GEMV,
                     [6, 14])


def _rank_one(row: Routine) -> RankOne:
    return published(with_signature(RankOne, partial(perform, _added, row)), row, _GER,
                     [[4, 2], [8, 4]],
                     conjugated="; those of ``y`` are conjugated" if row.transpose == "H" else "")


sgemv, dgemv, cgemv, zgemv = map(_matrix_vector, rows("gemv"))
sger, dger, cgeru, zgeru, cgerc, zgerc = map(_rank_one, rows("ger", "geru", "gerc"))
