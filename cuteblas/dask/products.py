"""Products of Dask arrays whose sums over chunks do not depend on who computes what, or when.

Each task adds one product to the sum so far, in the order of chunks. Where the result has few
chunks, a sum is cut into chains of at least four terms, by numbers of chunks alone, whose ends are
added in groups. Gram matrices have one side of the diagonal computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import Any
from warnings import catch_warnings

import dask
import dask.array as da
import numpy as np
from dask.array.core import Array, PerformanceWarning, asanyarray, unify_chunks
from dask.array.einsumfuncs import parse_einsum_input
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from .._dtypes import DTYPES
from ..array.wrapper import ndarray
from ..engines.counters import tally
from ..engines.dispatch import kind_of
from ..engines.memory import Memory
from ..engines.settings import BACKENDS
from ..functions.algorithms import checked_precision
from ..functions.expressions import settle_tensordot
from ..functions.gufunc import resolve_product
from ..functions.routing import route_of
from .chunks import Term, add, mirrored

DASKS = {"matmul": da.matmul, "tensordot": da.tensordot, "einsum": da.einsum}

_CHAINS = 64      # of partial sums that may be computed at the same time at least, if there are so
                  # many
_LEAST_TERMS = 4  # of a chain: a further one is a further partial sum, and a task that adds its end
_ENDS = 8         # of chains that one task adds, so that there are not many more tasks than
                  # products


def matmul(a: Any, b: Any) -> Array:
    """Matrix product of Dask arrays, as ``dask.array.matmul``.

    Parameters
    ----------
    a, b : array_like
        Operands of shapes (..., m, k) and (..., k, n), batch dimensions broadcast; vectors are rows
        and columns.

    Returns
    -------
    dask.array.Array
        The product in NumPy's result type. It is summed in that type, or in float32 for half
        precision, and rounded once.

    Raises
    ------
    ValueError
        For shapes that do not fit, in NumPy's words, and for unknown settings.

    Examples
    --------
    >>> import dask.array as da
    >>> import cuteblas.dask
    >>> x = da.ones((4, 6), chunks=2)
    >>> cuteblas.dask.matmul(x, x.T).compute().trace()
    np.float64(24.0)
    """
    a, b = asanyarray(a), asanyarray(b)
    if (reason := _why_not(a, b)) is not None:
        return _by_dask("matmul", reason, a, b)
    product = resolve_product(*_memories(a, b))
    if a.ndim == b.ndim == 2 and (gram := _gram(a, b)) is not None:
        x, axis, conj = gram
        return _tensordot(x, x, ((axis,), (axis,)), conj)
    first, second = (term.axes for term in product.terms)
    return _contraction("matmul", (), [(a, first), (b, second)], product.axes)


def tensordot(lhs: Any, rhs: Any, axes: Any = 2) -> Array:
    """Sum of products over given axes of two Dask arrays, as ``dask.array.tensordot``.

    Parameters
    ----------
    lhs, rhs : array_like
        The operands.
    axes : int or pair of (sequence of) int
        The number of last axes of ``lhs`` and first axes of ``rhs``, or the axes of each.

    Returns
    -------
    dask.array.Array
        The remaining axes of ``lhs``, followed by those of ``rhs``; summed as in :func:`matmul`.

    Raises
    ------
    ValueError
        For axes that do not fit, in NumPy's words, and for unknown settings.

    Examples
    --------
    >>> import dask.array as da
    >>> import cuteblas.dask
    >>> x = da.ones((4, 6, 5), chunks=2)
    >>> cuteblas.dask.tensordot(x, x, axes=((0, 2), (0, 2))).shape
    (6, 6)
    """
    lhs, rhs = asanyarray(lhs), asanyarray(rhs)
    if (reason := _why_not(lhs, rhs)) is not None:
        return _by_dask("tensordot", reason, lhs, rhs, axes=axes)
    return _tensordot(lhs, rhs, axes, False)


def _tensordot(lhs: Array, rhs: Array, axes: Any, conj: bool) -> Array:
    settled = settle_tensordot(*_memories(lhs, rhs), None, axes)
    if settled is None:
        raise ValueError("shape-mismatch for sum")
    first, second = (term.axes for term in settled.terms)
    left = tuple(i for i, index in enumerate(first) if index in second)
    right = tuple(second.index(first[i]) for i in left)
    symmetric = lhs.name == rhs.name and left == right and lhs.ndim == 2 and len(left) == 1
    return _contraction("tensordot", (("axes", (left, right)),), [(lhs, first), (rhs, second)],
                        settled.axes, conj, symmetric)


def _memories(*arrays: Array) -> tuple[Memory, Memory]:
    """Two arrays for NumPy's rules; where an extent is not known, extents are not compared."""
    known = not any(np.isnan(n) for x in arrays for n in x.shape)
    first, second = (Memory(x.shape if known else (1,) * x.ndim, (0,) * x.ndim, x.dtype)
                     for x in arrays)
    return first, second


def einsum(*operands: Any, dtype: Any = None, optimize: Any = False, split_every: Any = None,
           **arguments: Any) -> Array:
    """Sums of products in Einstein's notation of Dask arrays, as ``dask.array.einsum``.

    Parameters
    ----------
    *operands
        Subscripts and arrays, or arrays and lists of numbers in turn.
    dtype : dtype, optional
        The type of the result.
    optimize : bool, str, tuple or list
        The order in which chunks of more than two arrays are multiplied, as in
        :func:`cuteblas.einsum`.
    split_every : int or dict, optional
        If it is given, Dask's own function computes the sum.
    **arguments
        ``order`` and ``casting``, as in :func:`cuteblas.einsum`.

    Returns
    -------
    dask.array.Array
        The sums, as in :func:`matmul`. Operands get smaller chunks if chunks of the result would be
        larger than any of theirs.

    Raises
    ------
    ValueError
        For subscripts that do not fit, and for unknown settings.

    Examples
    --------
    >>> import dask.array as da
    >>> import cuteblas.dask
    >>> x = da.ones((4, 6), chunks=2)
    >>> cuteblas.dask.einsum("ij,kj->ik", x, x).compute().trace()
    np.float64(24.0)
    """
    inputs, outputs, arrays = parse_einsum_input(operands)
    reason = "split_every= is Dask's" if split_every is not None else _why_not(*arrays)
    if reason is not None:
        return _by_dask("einsum", reason, *operands, dtype=dtype, optimize=optimize,
                        split_every=split_every, **arguments)
    names = [tuple(term) for term in inputs.split(",")]
    text = f"{inputs}->{outputs}"
    wanted: dict[str, Any] = {}
    if not any(np.isnan(n) for x in arrays for n in x.shape):
        with catch_warnings(action="ignore", category=PerformanceWarning):
            wanted = dict(zip(outputs, DASKS["einsum"](text, *arrays, optimize=True).chunks,
                              strict=True))
    # cut where Dask cuts them so that chunks of the result are not larger
    terms = [(x.rechunk({axis: wanted[letter] for axis, letter in enumerate(letters)
                         if letter in wanted and x.shape[axis] > 1}), letters)
             for x, letters in zip(arrays, names, strict=True)]
    given = {"subscripts": text, "optimize": optimize, **arguments}
    if dtype is not None:
        given["dtype"] = np.dtype(dtype)
    return _contraction("einsum", tuple(given.items()), terms, tuple(outputs))


# -- graphs ----------------------------------------------------------------------------------------
def _settings() -> tuple[Any, Any]:
    precision, backend = (dask.config.get(f"cuteblas.{name}", None)
                          for name in ("precision", "backend"))
    if precision is not None:
        checked_precision(precision)
    if backend not in (None, *BACKENDS):
        raise ValueError(
            f"cuteblas.backend in Dask's configuration is {backend!r}, but it has to be one of "
            f"{', '.join(map(repr, BACKENDS))}"
        )
    return precision, backend


def _contraction(function: str, arguments: tuple[tuple[str, Any], ...],
                 terms: Sequence[tuple[Array, tuple[str, ...]]], out: tuple[str, ...],
                 conj: bool = False, symmetric: bool = False) -> Array:
    """A sum of products of chunks, for each chunk of the result; ``symmetric`` equals its
    (conjugate) transpose."""
    precision, backend = _settings()
    extents, arrays = unify_chunks(*(x for term in terms for x in term), warn=False)
    inputs = [indices for _x, indices in terms]
    term = Term(function, arguments, "", "", precision, backend, conj, alone=True)
    meta = term(None, *(meta_from_array(x._meta, x.ndim, x.dtype) for x in arrays))
    dtype = meta.dtype
    term = replace(term, dtype=dtype.name, sums=DTYPES[dtype.name].computed if dtype.name in DTYPES
                   else dtype.name)
    summed = sorted({index for indices in inputs for index in indices} - {*out})
    counts = {index: len(extents[index]) for index in (*out, *summed)}
    name = f"{function}-{tokenize(term, [x.name for x in arrays], inputs, out, symmetric)}"
    graph: dict[Any, Any] = {}
    length, blocks = prod(counts[index] for index in summed), prod(counts[index] for index in out)
    for block in product(*(range(counts[index]) for index in out)):
        if symmetric and block[0] > block[1]:
            graph[name, *block] = (mirrored, (name, *block[::-1]), conj)
            continue
        keys = []
        for inner in product(*(range(counts[index]) for index in summed)):
            at = dict(zip((*out, *summed), (*block, *inner), strict=True))
            keys.append([(x.name, *(at[index] if n > 1 else 0
                                    for index, n in zip(indices, x.numblocks, strict=True)))
                         for x, indices in zip(arrays, inputs, strict=True)])
        _add_sum(graph, (name, *block), keys, term,
                 max(1, min(length // _LEAST_TERMS, -(-_CHAINS // blocks))))
    chunks = tuple(extents[index] for index in out)
    return Array(HighLevelGraph.from_collections(name, graph, dependencies=arrays), name, chunks,
                 dtype=dtype, meta=meta_from_array(meta, ndim=len(out), dtype=dtype))


def _add_sum(graph: dict[Hashable, Any], result: tuple[Any, ...],
             terms: Sequence[Sequence[Hashable]], term: Term, chains: int) -> None:
    """The tasks of one sum: terms in chains, and the ends of these in groups."""
    def task(term: Term, before: Any, keys: Sequence[Hashable]) -> tuple[Any, ...]:
        once = [*dict.fromkeys(keys)]
        if len(once) < len(keys):                   # Dask may give a chunk to a task as two objects
            term = replace(term, operands=tuple(once.index(key) for key in keys))
        return (term, before, *once)

    step, last = (replace(term, alone=len(terms) == 1, last=last) for last in (False, True))
    name, *block = result
    ends: list[tuple[Any, ...]] = []
    for start, stop in pairwise([len(terms) * i // chains for i in range(chains + 1)]):
        before: tuple[Any, ...] | None = None
        for i in range(start, stop):
            ends_it = chains == 1 and i == stop - 1
            key = result if ends_it else (f"sum-of-{name}", *block, i)
            graph[key] = task(last if ends_it else step, before, terms[i])
            before = key
        assert before is not None
        ends.append(before)
    level = 0
    while len(ends) > 1:
        level += 1
        groups = [ends[i:i + _ENDS] for i in range(0, len(ends), _ENDS)]
        ends = []
        for i, group in enumerate(groups):
            if len(group) == 1:                         # the last of them, alone
                ends += group
                continue
            key = result if len(groups) == 1 else (f"sum-of-sums-of-{name}", *block, level, i)
            graph[key] = (partial(add, dtype=term.dtype) if len(groups) == 1 else add, *group)
            ends.append(key)


# -- who answers -----------------------------------------------------------------------------------
def _why_not(*arrays: Array) -> str | None:
    """Why Dask itself answers a product of these arrays; ``None`` if it does not."""
    for x in arrays:
        kind = type(x._meta)
        if kind is not np.ndarray and kind is not ndarray and kind_of(x._meta) != "cupy":
            return f"chunks are {kind.__module__}.{kind.__name__}"
        if x.dtype.kind not in "biufc" and not ((row := DTYPES.get(x.dtype.name))
                                                and row.is_multiplied):
            return f"elements are {x.dtype}"
    return None


def _by_dask(function: str, reason: str, *operands: Any, **arguments: Any) -> Array:
    tally(f"dask.{function}", "calls", route_of(reason).replace("NumPy", "Dask")).tick()
    return DASKS[function](*operands, **arguments)


def _gram(a: Array, b: Array) -> tuple[Array, int, bool] | None:
    """The array x, its summed axis, and the first factor's conjugation, of ``x.T @ x``."""
    if a.shape[::-1] != b.shape or a.chunks[::-1] != b.chunks:
        return None
    if b.T.name == a.name:
        return b, 0, False
    if a.T.name == b.name:
        return a, 1, False
    if b.dtype.kind in "iufc" and a.name in (b.conj().T.name, b.T.conj().name):
        return b, 0, b.dtype.kind == "c"
    return None
