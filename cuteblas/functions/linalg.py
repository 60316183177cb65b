"""The products of ``numpy.linalg``. Users know this module as ``cuteblas.linalg``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np

from ..engines.counters import tally
from ..engines.exact import LEAST, SMALL, WITHOUT_BLAS, least_products
from ..engines.memory import Ints, Memory, new_memory
from ..engines.placement import offload, stays, work_of
from .algorithms import NATIVE, checked_algorithm
from .dot import DOT, TENSORDOT, VECDOT
from .expressions import Expression, settle_dot, settle_outer, stand_in
from .matmul import matmul as any_matmul
from .routing import (
    NumpyCall,
    NumpyProduct,
    answer,
    delegate,
    resolve,
    route_of,
    without_kernels,
)
from .signatures import Array, Precision, Promoted, typed_conversion, typed_product
from .transpose import matrix_transpose

__all__ = ["matmul", "matrix_power", "matrix_transpose", "multi_dot", "outer", "tensordot",
           "vecdot"]

# A chain of products: the number of an array, or the two chains that are multiplied.
_Tree = int | tuple["_Tree", "_Tree"]


@typed_product
def matmul(x1: Any, x2: Any, /, *, precision: Precision | None = None,
           variant: str | None = None) -> Any:
    """Matrix product of two arrays, as ``numpy.linalg.matmul``: :func:`cuteblas.matmul` without the
    arguments of ufuncs.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., m, k) and (..., k, n). NumPy in, NumPy out; CuPy in, CuPy out.
    precision, variant : str, optional
        As in :func:`cuteblas.matmul`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The product.

    Examples
    --------
    >>> cuteblas.linalg.matmul(np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    return any_matmul(x1, x2, precision=precision, variant=variant)


@typed_product
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Dot products of vectors along an axis, the first one conjugated, as ``numpy.linalg.vecdot``.

    Parameters
    ----------
    x1, x2 : array_like
        NumPy in, NumPy out; CuPy in, CuPy out. Any strides.
    axis : int
        The axis of the vectors in both operands.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        Without the axis of the vectors; a NumPy scalar for two vectors.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.linalg.vecdot``, in its words and before anything runs; also for
        operands on different devices.

    Examples
    --------
    >>> cuteblas.linalg.vecdot(np.ones((5, 3)), np.ones((5, 3)))
    array([3., 3., 3., 3., 3.])
    """
    return answer(_VECDOT, x1, x2, arguments={"axis": axis})


@typed_product
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2, precision: Precision | None = None,
              variant: str | None = None) -> Any:
    """Sum of products over given axes, as ``numpy.linalg.tensordot``: see
    :func:`cuteblas.tensordot`.

    Parameters
    ----------
    x1, x2 : array_like
        NumPy in, NumPy out; CuPy in, CuPy out.
    axes : int or two sequences of int
        How many axes, or which of each operand, are summed over.
    precision, variant : str, optional
        As in :func:`cuteblas.matmul`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        With the other axes of ``x1``, followed by those of ``x2``.

    Examples
    --------
    >>> cuteblas.linalg.tensordot(np.ones((2, 3, 4)), np.ones((3, 4, 5))).shape
    (2, 5)
    """
    return answer(_TENSORDOT, x1, x2, None, precision, variant, {"axes": axes})


@typed_product
def outer(x1: Any, x2: Any, /) -> Any:
    """Products of every element of one vector with every element of another, as
    ``numpy.linalg.outer``.

    Parameters
    ----------
    x1, x2 : array_like
        Vectors. NumPy in, NumPy out; CuPy in, CuPy out.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        Of shape (m, n).

    Raises
    ------
    ValueError
        If an operand is not a vector, in NumPy's words; also for operands on different devices.
    TypeError
        The errors of ``numpy.linalg.outer``, in its words.

    Examples
    --------
    >>> cuteblas.linalg.outer(np.array([1, 2]), np.array([3, 4]))
    array([[3, 4],
           [6, 8]])
    """
    return answer(_OUTER, x1, x2)


def _settle_vectors(x1: Memory, x2: Memory, out: None) -> Expression | None:
    return settle_outer(x1, x2, out) if len(x1.shape) == len(x2.shape) == 1 else None


_VECDOT, _TENSORDOT, _CHAIN = (replace(product, name=name) for product, name in (
    (VECDOT, "linalg.vecdot"), (TENSORDOT, "linalg.tensordot"), (DOT, "linalg.multi_dot")))
_OUTER = NumpyProduct("linalg.outer", np.linalg.outer, _settle_vectors)


def multi_dot(arrays: Sequence[Promoted[Array]], *, out: Any = None,
              precision: Precision | None = None) -> Array:
    """Product of a chain of matrices in the order with the fewest multiplications, as
    ``numpy.linalg.multi_dot``.

    Parameters
    ----------
    arrays : sequence of array_like
        At least two matrices; the first and the last may be vectors, a row and a column. NumPy in,
        NumPy out; CuPy in, CuPy out.
    out : array, optional
        Receives the result; C-contiguous, with exactly its shape and type, as in
        :func:`cuteblas.dot`.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm of every product on the GPU, as in :func:`cuteblas.matmul`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The product, or ``out``.

    Raises
    ------
    TypeError, ValueError, numpy.linalg.LinAlgError
        The errors of ``numpy.linalg.multi_dot``, in its words and before anything runs; also for
        operands on different devices, and for an unknown precision.

    Examples
    --------
    >>> cuteblas.linalg.multi_dot([np.ones((10, 2)), np.ones((2, 50)), np.ones((50, 3))]).shape
    (10, 3)
    """
    if (precision is None or precision in NATIVE) and type(arrays) in (list, tuple) \
            and _all_stay(arrays, out):
        result = _multiplied_on_host(arrays, out)
        if result is None:
            result = np.linalg.multi_dot(arrays, out=out)       # type: ignore[arg-type]
            _by_numpy()
        return result
    function, algorithm = "linalg.multi_dot", checked_algorithm(precision)
    operands, count = list[Any](arrays), len(arrays)
    if not count:
        return np.linalg.multi_dot(operands)                    # refuses it
    call = NumpyCall(function, lambda *given, **named: np.linalg.multi_dot(given, **named), operands,
                     out, algorithm=algorithm,
                     again=lambda *given, **named: multi_dot(given, precision=precision, **named))
    resolved = resolve(call)
    if isinstance(resolved, str):
        return delegate(call, resolved)
    if (strange := resolved.strange) is not None:
        return delegate(call, without_kernels(call, resolved, strange))
    if count == 2:
        return answer(_CHAIN, operands[0], operands[1], out, precision)
    ranks = [len(x.shape) for x in resolved.memories]
    if count < 2 or not _are_chain(ranks):
        return np.linalg.multi_dot([stand_in(x) for x in resolved.memories])
    matrices = _matrices(resolved.arrays)
    products, tree = _cheapest([x.shape for x in matrices])
    # in the order in which they are made, before any is made
    _multiplied(tree, _resolved, [*map(resolved.engine.memory, matrices)], resolved.out_memory)
    multiplied = partial(_multiplied, tree, partial(answer, _CHAIN, precision=precision))
    if resolved.engine.moves:
        shape = matrices[0].shape[0], matrices[-1].shape[1]
        work = work_of(products, np.result_type(*matrices), matrices, out, shape)
        result = offload(function, work, lambda _run, there, out: multiplied(there, out), matrices,
                         out, partial(multiplied, matrices, out))
    else:
        result = multiplied(matrices, resolved.out)
    return _of_ranks(result, ranks)


_by_numpy = tally("linalg.multi_dot", "calls", "numpy").tick


def _all_stay(arrays: Sequence[Any], out: Any) -> bool:
    for x in arrays:
        if type(x) is not np.ndarray:
            return False
    return len(arrays) > 0 and (out is None or type(out) is np.ndarray) and stays(*arrays, out)


def _multiplied(tree: _Tree, multiply: Callable[..., Any], matrices: Sequence[Any],
                out: Any = None) -> Any:
    if isinstance(tree, int):
        return matrices[tree]
    return multiply(*(_multiplied(chain, multiply, matrices) for chain in tree), out)


def _of_ranks(result: Any, ranks: Sequence[int]) -> Any:
    """A chain's product without the axes that vectors at its ends lack."""
    if ranks[0] == ranks[-1] == 1:
        return result[0, 0]
    return result.ravel() if 1 in (ranks[0], ranks[-1]) else result


def _multiplied_on_host(arrays: Sequence[Any], out: Any) -> Any:
    """A chain's product for types without NumPy's BLAS; ``None`` for small ones."""
    for x in arrays:
        if x.size > SMALL and x.dtype.char in WITHOUT_BLAS:
            break
    else:
        return None
    ranks = [x.ndim for x in arrays]
    if len(ranks) < 2 or out is not None or not _are_chain(ranks):
        return None
    matrices = _matrices(arrays)
    products, tree = _cheapest([x.shape for x in matrices])
    if products < least_products(*arrays) or any(x.shape[1] != y.shape[0] for x, y in pairwise(matrices)):
        return None
    return _of_ranks(_multiplied(tree, partial(answer, _CHAIN), matrices), ranks)


def _are_chain(ranks: Sequence[int]) -> bool:
    return 1 <= ranks[0] <= 2 and 1 <= ranks[-1] <= 2 and set(ranks[1:-1]) <= {2}


def _matrices(arrays: Sequence[Any]) -> list[Any]:
    first, *between, last = arrays
    return [first[None, :] if first.ndim == 1 else first, *between,
            last[:, None] if last.ndim == 1 else last]


def _cheapest(shapes: Sequence[Ints]) -> tuple[int, _Tree]:
    """The fewest multiplications, and the order that has them; of equally good ones NumPy's."""
    extents = [rows for rows, _columns in shapes] + [shapes[-1][1]]
    if len(shapes) == 3:            # what NumPy looks at, should the second matrix not fit the first
        extents[1] = shapes[0][1]
    best: dict[tuple[int, int], tuple[int, _Tree]] = {(i, i): (0, i) for i in range(len(shapes))}
    for length in range(1, len(shapes)):
        for i in range(len(shapes) - length):
            j = i + length
            around = extents[i] * extents[j + 1]
            cost, k = min((best[i, k][0] + best[k + 1, j][0] + around * extents[k + 1], k)
                          for k in range(i, j))
            best[i, j] = cost, (best[i, k][1], best[k + 1, j][1])
    return best[0, len(shapes) - 1]


def _resolved(first: Memory, second: Memory, out: Memory | None) -> Memory:
    settled = settle_dot(first, second, out)
    if settled is None:
        np.dot(stand_in(first), stand_in(second))
        raise AssertionError("NumPy multiplies matrices whose extents differ")
    return settled.memory


@typed_conversion
def matrix_power(a: Any, n: int, *, precision: Precision | None = None) -> Any:
    """A square matrix, or each matrix of a stack, raised to an integer power, as
    ``numpy.linalg.matrix_power``.

    :func:`cuteblas.matmul` computes the products; for a negative power, NumPy or CuPy inverts the
    matrix first.

    Parameters
    ----------
    a : array_like
        Of shape (..., m, m). NumPy in, NumPy out; CuPy in, CuPy out.
    n : int
        The power.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm of every product on the GPU, as in :func:`cuteblas.matmul`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        Of the shape of ``a``.

    Raises
    ------
    TypeError, ValueError, numpy.linalg.LinAlgError
        The errors of ``numpy.linalg.matrix_power``, in its words and before anything runs; also for
        an unknown precision.

    Examples
    --------
    >>> cuteblas.linalg.matrix_power(np.array([[1, 1], [1, 0]]), 10)
    array([[89, 55],
           [55, 34]])
    """
    function, algorithm = "linalg.matrix_power", checked_algorithm(precision)
    if (precision is None or precision in NATIVE) and type(a) is np.ndarray and stays(a):
        if (result := _powered_on_host(a, n)) is None:
            result = np.linalg.matrix_power(a, n)
            _powers_by_numpy()
        return result
    again = partial(matrix_power, precision=precision)
    call = NumpyCall(function, np.linalg.matrix_power, (a,), None, {"n": n}, algorithm, again=again)
    resolved = resolve(call)
    if isinstance(resolved, str):
        return delegate(call, resolved)
    (x,), (memory,) = resolved.arrays, resolved.memories
    if len(memory.shape) < 2 or memory.shape[-2] != memory.shape[-1]:
        return np.linalg.matrix_power(stand_in(memory), 1)
    try:
        power = index(n)
    except TypeError:
        return np.linalg.matrix_power(np.zeros((1, 1)), n)
    if memory.dtype.hasobject or (resolved.engine.moves and resolved.strange is not None):
        return delegate(call, route_of(f"there are no kernels for {memory.dtype}"))
    with resolved.running(function) as (run, _arrays):
        if power == 0:
            run.count("calls", "identity")
            result = run.empty(new_memory(memory, "K"))
            run.assign(result, resolved.engine.identity(memory.shape[-1], memory.dtype))
            return result
        if power < 0:
            run.count("calls", "inverse by " + ("NumPy" if resolved.engine.on_host else "CuPy"))
            x, power = resolved.engine.inverse(run.aligned(x)), -power
        if resolved.engine.moves and power > 1:
            times = power.bit_length() + power.bit_count() - 2
            work = work_of(times * x.size * x.shape[-1], x.dtype, (x,), None, x.shape)
            return offload(function, work, lambda _run, there, _out: again(there[0], power), (x,),
                           None, partial(again, x, power))
        run.count("calls", "matmul")
        return _powered(x, power, partial(any_matmul, precision=precision))


_powers_by_numpy = tally("linalg.matrix_power", "calls", "numpy").tick


def _powered_on_host(a: Any, n: Any) -> Any:
    """A power for types without NumPy's BLAS; ``None`` for small ones."""
    if a.dtype.char not in WITHOUT_BLAS or type(n) is not int or n < 2 or a.ndim < 2 or a.shape[-1] != a.shape[-2] \
            or a.size * a.shape[-1] < LEAST:
        return None
    tally("linalg.matrix_power", "calls", "matmul").tick()
    return _powered(a, n, any_matmul)


def _powered(x: Any, n: int, multiply: Callable[[Any, Any], Any]) -> Any:
    """A positive power in NumPy's order of products: results are the same to the last bit."""
    if n == 1:
        return x
    if n == 3:
        return multiply(multiply(x, x), x)
    result, square = None, x
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = square if result is None else multiply(result, square)
        if not n:
            return result
        square = multiply(square, square)
