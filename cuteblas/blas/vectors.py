"""Routines on matrices and vectors, ``sgemv``, ``sger`` and their kin: products in which one matrix has a single column or row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..engines.dispatch import call_on_held
from ..engines.engine import engine_of
from ..engines.memory import Memory, overlap
from ..functions.gemm import refuse_self_overlap
from ..functions.signatures import Array, Flag, Promoted, Transposed
from .arguments import as_integer, as_transposition, checked_flag, is_overwritten
from .calls import Request, check_types, convert_lists, run
from .libraries import Gathered, gather
from .types import ROUTINES, Types, dtype_named

__all__ = ["GEMV", "GER", "cgemv", "cgerc", "cgeru", "dgemv", "dger", "sgemv", "sger", "zgemv", "zgerc", "zgeru"]

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

_GER = """``alpha x y^{power} + A`` of {operands} arrays.

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

    def __call__(self, alpha: Any, a: Promoted[Array], x: Promoted[Array], beta: Any = 0, y: Any = None, offx: int = 0,
                 incx: int = 1, offy: int = 0, incy: int = 1, trans: Transposed = 0, overwrite_y: Flag = 0) -> Array: ...


class RankOne(Protocol):
    """A routine that adds a product of two vectors to a matrix."""

    __name__: str

    def __call__(self, alpha: Any, x: Promoted[Array], y: Promoted[Array], incx: int = 1, incy: int = 1, a: Any = None,
                 overwrite_x: Flag = 1, overwrite_y: Flag = 1, overwrite_a: Flag = 0) -> Array: ...


def _gathered(function: str, types: Types, operands: Mapping[str, Any], needed: str) -> Gathered:
    """The operands as arrays of one library and of the routine's type: ``a`` is a matrix, and all others are vectors."""
    gathered = gather(function, operands, needed)
    convert_lists(function, gathered.arrays, types, gathered.place)
    check_types(function, gathered.arrays, types)
    for name, x in gathered.arrays.items():
        rank, kind = (2, "matrix") if name == "a" else (1, "vector")
        if x.ndim != rank:
            raise ValueError(f"{function} takes a {kind} as {name}, but it has shape {x.shape}")
    return gathered


def _chosen(function: str, name: str, x: Any, count: int, offset: Any, step: Any) -> Any:
    """The elements of a vector that a routine uses, a view."""
    first, inc = as_integer(function, f"off{name}", offset), as_integer(function, f"inc{name}", step)
    if first < 0 or inc == 0:
        raise ValueError(f"{function} takes an off{name} of at least 0 and an inc{name} other than 0, got {first} and {inc}")
    end = first + (count - 1) * abs(inc) + 1 if count else first
    if end > len(x):
        raise ValueError(f"{function} uses {count} elements of {name} with off{name}={first} and inc{name}={inc}, but {name} has "
                         f"length {len(x)}")
    chosen = x[first:end:abs(inc)]
    return chosen[::-1] if inc < 0 else chosen


def _copied(beside: Any, vector: Any, types: Types, count: int) -> Any:
    """A copy of a vector; without one, so many zeros beside another array."""
    engine, dtype = engine_of(beside), dtype_named(types.operands)
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


def _gemv(function: str, types: Types, alpha: Any, a: Any, x: Any, beta: Any, y: Any, offx: Any, incx: Any, offy: Any, incy: Any,
          trans: Any, overwrite_y: Any) -> Any:
    overwrites, asked = is_overwritten(function, "y", overwrite_y, y), as_transposition(function, "trans", trans)
    gathered = _gathered(function, types, {"a": a, "x": x, "y": y}, "ax")
    arrays = gathered.arrays
    matrix, whole = arrays["a"], arrays.get("y")
    rows, columns = asked.view(matrix).shape
    vector = _chosen(function, "x", arrays["x"], columns, offx, incx)[:, None]
    if whole is None and offy == 0 and incy == 1:
        return gathered.back(run(function, types, Request(alpha, matrix, vector, trans_a=asked.letter))[:, 0])
    if whole is not None and overwrites:
        _check_overlap(function, "y", arrays)
    else:
        first, step = as_integer(function, "offy", offy), abs(as_integer(function, "incy", incy))
        whole = _copied(matrix, whole, types, first + (rows - 1) * step + 1)
    part = _chosen(function, "y", whole, rows, offy, incy)[:, None]
    refuse_self_overlap(function, "y", engine_of(part).memory(part))
    run(function, types, Request(alpha, matrix, vector, beta, part, asked.letter, overwrite_c=1))
    return y if overwrites and y is not None else gathered.back(whole)


def _ger(function: str, types: Types, conjugates: bool, alpha: Any, x: Any, y: Any, incx: Any, incy: Any, a: Any,
         overwrite_a: Any) -> Any:
    overwrites = is_overwritten(function, "a", overwrite_a, a)
    gathered = _gathered(function, types, {"x": x, "y": y, "a": a}, "xy")
    arrays = gathered.arrays
    vectors = []
    for name, step in (("x", incx), ("y", incy)):
        if as_integer(function, f"inc{name}", step) not in (1, -1):
            raise ValueError(f"{function} takes 1 or -1 as inc{name}, got {step}")
        vectors.append(arrays[name][::step])
    target = arrays.get("a")
    if target is not None and target.shape != (len(vectors[0]), len(vectors[1])):
        raise ValueError(f"{function} takes a of shape ({len(vectors[0])}, {len(vectors[1])}) = (len(x), len(y)), but it has shape "
                         f"{target.shape}")
    if target is not None and overwrites:
        _check_overlap(function, "a", arrays)
        refuse_self_overlap(function, "a", engine_of(target).memory(target))
    result = run(function, types, Request(alpha, vectors[0][:, None], vectors[1][None, :], 0 if target is None else 1, target, 0,
                                          "R" if conjugates else "N", overwrites and target is not None))
    return a if overwrites and target is not None else gathered.back(result)


def _matrix_vector(name: str) -> MatrixVector:
    types = ROUTINES[f"{name[0]}gemm"]

    def routine(alpha: Any, a: Any, x: Any, beta: Any = 0, y: Any = None, offx: int = 0, incx: int = 1, offy: int = 0,
                incy: int = 1, trans: Any = 0, overwrite_y: Any = 0) -> Any:
        return call_on_held(_gemv, name, types, alpha, a, x, beta, y, offx, incx, offy, incy, trans, overwrite_y)

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _GEMV.format(operands=types.operands, name=name, answer=as_printed([6, 14], types))
    return routine


def _rank_one(name: str) -> RankOne:
    types, conjugates = ROUTINES[f"{name[0]}gemm"], name.endswith("c")

    def routine(alpha: Any, x: Any, y: Any, incx: int = 1, incy: int = 1, a: Any = None, overwrite_x: Any = 1, overwrite_y: Any = 1,
                overwrite_a: Any = 0) -> Any:
        checked_flag(name, "overwrite_x", overwrite_x)
        checked_flag(name, "overwrite_y", overwrite_y)
        return call_on_held(_ger, name, types, conjugates, alpha, x, y, incx, incy, a, overwrite_a)

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _GER.format(operands=types.operands, name=name, answer=as_printed([[4, 2], [8, 4]], types),
                                  power="H" if conjugates else "T",
                                  conjugated="; those of ``y`` are conjugated" if conjugates else "")
    return routine


def as_printed(values: Any, types: Types) -> str:
    """The lines of an example that show a result of a routine."""
    return f"\n{np.array(values, types.output)!r}".replace("\n", "\n    ")


sgemv, dgemv, cgemv, zgemv = GEMV = tuple(map(_matrix_vector, ("sgemv", "dgemv", "cgemv", "zgemv")))
sger, dger, cgeru, cgerc, zgeru, zgerc = GER = tuple(map(_rank_one, ("sger", "dger", "cgeru", "cgerc", "zgeru", "zgerc")))
